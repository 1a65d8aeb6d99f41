# The Parser: bytes in, frames out. Included by _codec_c.pyx.

@cython.final
cdef class Parser(_Bodies):
    """Parser(version=None, *, limits=None, lenient=False, heartbeats=False, commands=(), stream_over=None)
--

    A parser of one stream: feed it bytes, and iterate over the frames.

    Args:
        version: "1.0", "1.1", "1.2", "legacy", or None before negotiation.
        limits: the largest sizes to accept, in bytes; None for the defaults of `Limits`.
        lenient: whether to tolerate common mistakes of peers. docs/codec.md lists them.
        heartbeats: whether to yield HEARTBEAT for each EOL between frames.
        commands: names of further commands, such as "PING".
        stream_over: larger bodies, in bytes, are streamed: a frame whose body is None, then pieces, then END_OF_BODY.

    Raises:
        TypeError, ValueError: an argument has another type, or is out of range.
        FrameError: while iterating, at malformed data, after the frames before it. The parser then ignores further
            data, and raises the same error again.

    >>> parser = Parser("1.2")
    >>> list(parser.feed(b"SEND\\ndestination:/queue/a\\n\\nhel"))
    []
    >>> list(parser.feed(b"lo\\0"))
    [<Frame SEND destination='/queue/a' body=5 bytes b'hello'>]
    >>> parser.close()
    """
    cdef stomp_rules next_rules
    cdef int turn  # next_rules has to replace rules
    cdef object _version, _limits
    cdef bint lenient
    cdef _Names extra
    cdef bint lent_body  # get_buffer lent a part of a body
    cdef object taker_owner  # keeps the taker alive
    cdef const stomp_taker *taker  # or NULL

    def __cinit__(self, *_, **__):
        stomp_scan_init(&self.scan)
        self.extra = _Names(())

    def __init__(self, version=None, *, limits=None, lenient=False, heartbeats=False, commands=(), stream_over=None):
        if self._limits is not None:
            raise TypeError("a Parser is made once: make another one")
        self._limits = _checked_limits(limits)
        self.lenient = bool(lenient)
        self.extra = _names_of(_checked_commands(commands))
        self.stream_over = UINT64_MAX
        if stream_over is not None:
            if type(stream_over) is not int or stream_over < 0:
                raise ValueError(f"stream_over is {stream_over!r}: it must be None or an int of 0 or more")
            self.stream_over = min(stream_over, UINT64_MAX)
        self._set_version(version, bool(heartbeats))
        self.rules = self.next_rules
        self.turn = 0

    def __dealloc__(self):
        stomp_scan_free(&self.scan)

    cdef int _set_version(self, version, int heartbeats) except -1:
        cdef stomp_rules rules
        _dialect_rules(&rules, version, self.lenient)
        _limit_rules(&rules, self._limits)
        rules.report_beats = heartbeats
        rules.extra = self.extra.names
        rules.extra_count = self.extra.count
        self.next_rules = rules
        self.turn = 1
        self._version = version
        return 0

    @property
    def version(self):
        """The version, as it was given. Setting it takes effect with the next frame; an unknown one is a ValueError."""
        return self._version

    @version.setter
    def version(self, value):
        with cython.critical_section(self):
            self._set_version(value, self.next_rules.report_beats)

    @property
    def buffered(self):
        """Bytes that were fed and not handed out: frames that were not iterated, and the last, incomplete frame."""
        with cython.critical_section(self):
            if self.failure is not None:
                return 0
            if self.state == IN_STREAM:  # have: bytes that were kept before the body was streamed
                return self._unread() + (self.have if self.body else 0)
            return self._unread() + self.held + (self.have if self.state != IN_HEAD else 0)

    @property
    def failed(self):
        """What was not read because of a malformed frame, up to the next `feed`; else None, also if the stream ended.

        It is `(frame, octets, at)`: the frame if its head was read, with the body None, else None; then the bytes from
        its body on, or else from its first byte on, with all that was fed behind them and without pieces that were
        handed out; and the index of the fault in them.
        """
        with cython.critical_section(self):
            return self.lost

    def __iter__(self):
        return self

    # ---- input ----

    @cython.critical_section
    def feed(self, data):
        """Take in bytes and return an iterator over the frames that are complete.

        Each step parses one frame. Frames that are not iterated stay for the next call.

        Args:
            data: any contiguous bytes-like object. It may be changed afterwards.
        """
        cdef Py_buffer view
        if PyBytes_CheckExact(data) and self._goes_on(<const uint8_t *>PyBytes_AS_STRING(data), <size_t>PyBytes_GET_SIZE(data)):
            return self
        if PyBytes_CheckExact(data):
            self._feed(<const uint8_t *>PyBytes_AS_STRING(data), <size_t>PyBytes_GET_SIZE(data), <bytes>data)
        else:
            PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
            try:
                self._feed(<const uint8_t *>view.buf, <size_t>view.len, None)
            finally:
                PyBuffer_Release(&view)
        return self

    cdef int _feed(self, const uint8_t *data, size_t len, bytes whole) except -1:
        cdef size_t first = 0
        self.lent = False
        if self.failure is not None:
            self.lost = None
            return 0
        if self.state != IN_HEAD and len and self.start == self.end and self.pinned is None:
            first = self._fill_from(data, len)
            self.total += first
            if first == len:
                return 0
        return self._take(data + first, len - first, whole)

    @cython.critical_section
    def get_buffer(self, hint=-1):
        """Return a buffer to read into, as `asyncio.BufferedProtocol` does. Call `buffer_updated` afterwards."""
        cdef size_t size = PIECE
        cdef _Lease lease
        cdef _Block block
        if hint > 0:
            size = min(<size_t>min(hint, PIECE), <size_t>PIECE)
        self.lent = False
        self._settle()
        self.lent_body = self.state == IN_COUNTED and self.failure is None and self.start == self.end and self.have < self.need
        if self.lent_body:
            self._body_room(<size_t>min(<uint64_t>size, self.need - self.have), self.have)
            size = <size_t>min(<uint64_t>(self.room - self.have), self.need - self.have)
            lease = _lend(<object>self.body, <uint8_t *>PyBytes_AS_STRING(<object>self.body) + self.have, size)
        elif self.lease is not None and type(self.lease.owner) is _Block and self.lease.room >= size:
            lease = self.lease  # old views may reach what is read, but nothing is scanned there
        else:
            block = _Block(size)
            lease = _lend(block, block.data, block.room)
        view = memoryview(lease)
        self.lease = lease
        self.lent = True
        return view

    @cython.critical_section
    def buffer_updated(self, n):
        """Take in the first `n` bytes of the buffer, and return an iterator as `feed` does.

        Raises:
            RuntimeError: `get_buffer` was not called, or `feed` was called since.
            ValueError: the buffer is smaller than `n` bytes.
        """
        cdef _Lease lease
        cdef size_t count
        cdef Py_ssize_t size
        n = _index(n)  # first, since it may run any code
        size = PyNumber_AsSsize_t(n, NULL)  # clipped if too large
        lease = self.lease
        if not self.lent:
            raise RuntimeError("buffer_updated() without get_buffer(), or after feed()")
        if size < 0 or <size_t>size > lease.room:
            raise ValueError(f"n is {n}: the buffer has {lease.room} bytes")
        count = <size_t>size
        if self.lent_body and self.body and lease.data == <uint8_t *>PyBytes_AS_STRING(<object>self.body) + self.have:
            self.lent = False
            self.have += count
            self.total += count
        else:
            self._feed(lease.data, count, None)
        return self

    # ---- frames ----

    def _offer(self, owner):
        """Offer each complete frame to the taker (stomp_taker.h) of an object before it is made."""
        cdef const stomp_taker *taker = <const stomp_taker *>PyCapsule_GetPointer(owner.taker, STOMP_TAKER)
        if taker.owner != <void *>owner:  # the parser keeps that one alive, and the taker lies in it
            raise ValueError("the taker belongs to another object")
        if taker.scan_size != sizeof(stomp_scan):
            raise ValueError("the taker was built with another version of the scanner")
        self.taker_owner = owner
        self.taker = taker

    cdef int _taken(self, const uint8_t *frame, size_t size) except -1:
        """Offer a frame whose body has `size` bytes to the taker. The frame counts as read while that looks at it, because it
        may call Python, which may feed this parser: its memory is held, and its scan kept as it is."""
        cdef size_t whole = self.scan.head + size + 1
        cdef _Block block = self.block
        cdef bytes pinned = self.pinned
        cdef int taken
        self.start += whole
        self.state = IN_TAKING
        taken = self.taker.take(self.taker.owner, &self.scan, frame, size)
        self.state = IN_HEAD
        if taken == STOMP_LEFT:
            self.start -= whole
        return taken

    def __next__(self):
        cdef PyObject *item = self._next()
        if not item:
            raise StopIteration
        frame = <object>item
        Py_XDECREF(item)  # `frame` owns it now
        return frame

    @cython.critical_section
    cdef PyObject *_next(self) except? NULL:
        """Return the next event as a new reference, or NULL. A MemoryError loses no event: the next call returns the same
        one, or the parser has failed."""
        cdef int outcome, taken
        cdef size_t head, here, most
        cdef const uint8_t *frame
        cdef const uint8_t *nul
        cdef PyObject *made
        while True:
            if self.state != IN_HEAD:
                if self._has_all():
                    return NULL
                item = self._next_body()
                if item is not None:
                    return _given(item)
            else:
                if self.failure is not None:
                    self._fail_again()
                if self.bridge and self.start >= self.bridge:
                    self._cross()
                if self.turn and self.scan.phase == 0:
                    self.rules = self.next_rules
                    self.turn = 0
                outcome = stomp_scan_head(&self.scan, &self.rules, self.data + self.start, self.end - self.start)
                self.start += self.scan.skip
                if outcome == STOMP_HEAD:
                    head = self.scan.head
                    frame = self.data + self.start
                    here = self.end - self.start - head
                    if self.scan.marks & STOMP_HAS_LENGTH:
                        most = <size_t>self.scan.length
                        if here > self.scan.length and self.scan.length <= self.stream_over:
                            if frame[head + most]:
                                self._fail(STOMP_MISSING_NULL, head + most, head)
                            if self.taker:
                                taken = self._taken(frame, most)
                                if taken == STOMP_TAKEN:
                                    continue
                                if taken == STOMP_TAKEN_LAST:
                                    return NULL
                            made = stomp_frame_from_scan(&self.scan, &self.rules, frame, PyBytes_New(<const char *>frame + head, <Py_ssize_t>most))
                            self.start += head + most + 1
                            return made
                    elif here:
                        if not frame[head]:
                            if self.taker:
                                taken = self._taken(frame, 0)
                                if taken == STOMP_TAKEN:
                                    continue
                                if taken == STOMP_TAKEN_LAST:
                                    return NULL
                            made = stomp_frame_from_scan(&self.scan, &self.rules, frame, _given(_EMPTY))
                            self.start += head + 1
                            return made
                        if not stomp_takes_body(&self.rules, self.scan.command):
                            self._fail(STOMP_BODY_NOT_ALLOWED, head, head)
                        nul = <const uint8_t *>memchr(frame + head, 0, <size_t>min(<uint64_t>here, min(self.rules.max_body, self.stream_over) + 1))
                        if nul:
                            most = nul - frame - head
                            if self.taker:
                                taken = self._taken(frame, most)
                                if taken == STOMP_TAKEN:
                                    continue
                                if taken == STOMP_TAKEN_LAST:
                                    return NULL
                            made = stomp_frame_from_scan(&self.scan, &self.rules, frame, PyBytes_New(<const char *>frame + head, <Py_ssize_t>most))
                            self.start += head + most + 1
                            return made
                        if here > self.rules.max_body and self.rules.max_body <= self.stream_over:
                            self._fail(STOMP_LIMIT_BODY, head + <size_t>self.rules.max_body, head)
                    if self._begin_body():
                        return _given(self.frame)
                    continue
                if outcome == STOMP_BEAT:
                    return _given(_HEARTBEAT)
                if outcome == STOMP_BAD:
                    self._fail(self.scan.error, self.scan.at)
            if not self._rest():
                return NULL

    @cython.critical_section
    def close(self):
        """Mark the end of the stream. Iterate over all frames first.

        Raises:
            FrameError: "truncated" if the stream ended inside a frame; or the error that iterating raised before.
        """
        if self.failure is not None:
            self._fail_again()
        if self.state != IN_HEAD or self._unread():
            self._die((STOMP_TRUNCATED, self.total, b""))
            self._fail_again()
