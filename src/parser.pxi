# The parser: its input, the bodies that arrive in pieces, the frames. Included by codec.pyx.

# ==== the input: bytes that were fed and not read yet ====

cdef tuple _NO_MEMORY = (STOMP_NO_MEMORY, 0, b"")  # the failure of a parser without memory


cdef class _Input:
    """The unread bytes, [start, end) of data. data is in a block of ours, or in a bytes object, `pinned`, that is read
    in place. If a large object is fed while bytes are unread, only its first bytes are appended to the block; the rest
    is read in place once the index `bridge` is passed."""
    cdef const uint8_t *data
    cdef size_t start, end
    cdef _Block block
    cdef bytes pinned
    cdef size_t bridge  # index in the block at which bytes of pinned begin, or 0
    cdef _Lease lease  # what get_buffer lent last: a part of a body, or a block of its own
    cdef bint lent  # buffer_updated may still be called
    cdef uint64_t total  # bytes fed
    cdef object failure  # (error, offset, near), or None
    cdef object lost  # what `Parser.failed` returns

    cdef inline size_t _unread(self) noexcept:
        """Return the number of unread bytes, including those of a pinned object after a bridge."""
        cdef size_t unread = self.end - self.start
        if self.bridge:
            unread += <size_t>PyBytes_GET_SIZE(self.pinned) - (self.end - self.bridge)
        return unread

    cdef int _take(self, const uint8_t *data, size_t len, bytes whole) except -1:
        """Take in [data, data + len). If `whole` is not None, that is its end, and it may be read in place."""
        if len == 0:
            return 0
        if self.start == self.end and self.pinned is None:
            if whole is not None and len >= SMALL:
                self.pinned = whole
                self.data = <const uint8_t *>PyBytes_AS_STRING(whole)
                self.end = <size_t>PyBytes_GET_SIZE(whole)
                self.start = self.end - len
            else:
                self._append(data, len)
        elif whole is not None and len >= SMALL and self.pinned is None:
            # Only its beginning is copied: the rest can be read in place.
            self.bridge = self._append(data, SMALL // 4)
            self.pinned = whole
        else:
            self._settle()
            self._append(data, len)
        self.total += len
        return 0

    cdef size_t _append(self, const uint8_t *data, size_t len) except? 0:
        """Append bytes to the unread ones in the block, and return the index of the first."""
        cdef size_t at
        if len == 0:
            return 0
        self._make_room(len)
        at = self.end
        memcpy(self.block.data + at, data, len)
        self.end += len
        return at

    cdef int _make_room(self, size_t more) except -1:
        cdef size_t unread = self.end - self.start
        cdef _Block block = self.block
        if block is None or (block.room - self.end < more and (block.room - unread < more or unread > block.room // 2)):
            try:
                block = _block_for(2 * <uint64_t>unread + more)
            except MemoryError:  # lost bytes: later ones must not be read as if they had followed
                self._die(_NO_MEMORY)
                raise
            if unread:
                memcpy(block.data, self.data + self.start, unread)
            self.block = block
            self.start = 0
            self.end = unread
        elif unread == 0:
            self.start = self.end = 0
        elif block.room - self.end < more:
            memmove(block.data, block.data + self.start, unread)
            self.start = 0
            self.end = unread
        self.data = block.data
        return 0

    cdef int _settle(self) except -1:
        """Copy the unread bytes of a pinned object into the block, and release it."""
        cdef bytes pinned = self.pinned
        cdef size_t seen
        if pinned is None:
            return 0
        if self.bridge:
            seen = self.end - self.bridge
            self.bridge = 0
            self.pinned = None
            self._append(<const uint8_t *>PyBytes_AS_STRING(pinned) + seen, <size_t>PyBytes_GET_SIZE(pinned) - seen)
            return 0
        cdef const uint8_t *rest = self.data + self.start
        seen = self.end - self.start
        self.pinned = None
        self.start = self.end = 0
        self._append(rest, seen)
        return 0

    cdef inline int _cross(self) noexcept:
        """Continue inside the pinned object: all bytes before it are read."""
        self.start -= self.bridge
        self.bridge = 0
        self.data = <const uint8_t *>PyBytes_AS_STRING(self.pinned)
        self.end = <size_t>PyBytes_GET_SIZE(self.pinned)
        return 0

    cdef int _rest(self) except -1:
        """Tidy up when no more can be read. Return 1 if there are more bytes after a bridge."""
        if self.bridge:
            if self.start >= self.bridge:
                self._cross()
            else:
                self._settle()
            return 1
        if self.pinned is not None:
            self._settle()
        if self.start == self.end:
            self.start = self.end = 0
        if self.block is not None:
            self._shrink()
        return 0

    cdef int _shrink(self) except -1:
        """Free the block of an idle parser, and replace one that is far too large for the rest of a frame."""
        cdef _Block block = self.block
        cdef size_t unread = self.end - self.start
        if unread and (block.room <= PIECE or unread > block.room // 8):
            return 0
        cdef _Block smaller = None
        if unread:
            try:
                smaller = _block_for(2 * unread)
            except MemoryError:  # keep the large one
                return 0
            memcpy(smaller.data, block.data + self.start, unread)
            self.data = smaller.data
            self.start = 0
            self.end = unread
        self.block = smaller
        if Py_REFCNT(<void *>block) == 1:  # nobody looks at a frame in it
            _give_back(block)
        return 0

    cdef object _fail(self, int error, size_t at, size_t head=0):
        """Raise the error `at` bytes after the first unread one, and fail from now on, even if memory runs out here.
        `head` is the size of a complete head that is still unread."""
        cdef bytes seen = b""
        try:
            offset = self.total - self._unread() + at
            lost = self._failed(at, head)
            if self._in_head() and self.start < self.end:
                seen = PyBytes_FromStringAndSize(<const char *>self.data + self.start,
                                                 <Py_ssize_t>min(self.end - self.start, <size_t>PIECE))
            failure = error, offset, b""
        except MemoryError:
            self._die(_NO_MEMORY)
            raise
        self._die(failure)
        self.lost = lost
        if seen:
            self.failure = error, offset, _excerpt(seen, at)
        self._fail_again()

    cdef object _failed(self, size_t at, size_t head):
        """Return what `Parser.failed` will return."""
        return None

    cdef bytes _all_unread(self, size_t skip):
        """Return the unread bytes, without the first ones."""
        cdef bytes octets = PyBytes_FromStringAndSize(<const char *>self.data + self.start + skip,
                                                      <Py_ssize_t>(self.end - self.start - skip))
        return octets + self.pinned[self.end - self.bridge:] if self.bridge else octets

    cdef object _fail_again(self):
        error, offset, near = self.failure
        _raise(error, offset, near)

    cdef int _die(self, failure) except -1:
        self.failure = failure
        self.pinned = self.block = None
        self.start = self.end = self.bridge = 0
        return 0

    cdef bint _in_head(self) noexcept:
        """Return whether the current frame is still in its head, whose bytes can be shown."""
        return False


# ==== bodies that were incomplete when their head was read ====

cdef enum:
    IN_HEAD  # no body is pending
    IN_COUNTED  # a body of known length is being filled
    IN_OPEN  # a body that ends at its NUL is being filled
    IN_TEXT  # the NUL of a text is looked for: its content-length may count characters
    IN_STREAM  # a body is being streamed
    IN_TAKING  # the hook looks at a frame, and may call Python


cdef Py_ssize_t MOST = PY_SSIZE_T_MAX - 64  # bytes of the longest bytes object, beside its head


cdef class _Bodies(_Input):
    """The frame whose body is pending, and the received part of the body."""
    cdef stomp_scan scan  # the scan of its head
    cdef stomp_rules rules
    cdef int state
    cdef object frame
    cdef PyObject *body  # bytes under construction, or NULL
    cdef size_t room  # of body
    cdef uint64_t have  # bytes received of the body; in `body`, except for IN_STREAM
    cdef uint64_t need  # IN_COUNTED: its length; IN_OPEN: the largest that is neither refused nor streamed
    cdef uint64_t stream_over
    cdef uint64_t wrong, missing  # IN_TEXT: the content-length, and the offset in the stream of what should be a NUL
    cdef int turn, told  # turn 1: there are new rules; 2: the last frame had a wrong length, of which was `told` once
    cdef size_t held  # bytes of the head of `frame`
    cdef bint counted

    def __dealloc__(self):
        Py_XDECREF(self.body)

    cdef bint _in_head(self) noexcept:
        return self.state == IN_HEAD

    cdef int _die(self, failure) except -1:
        cdef PyObject *body = self.body
        self.state = IN_HEAD
        self.frame = None
        self.body = NULL
        self.have = self.held = 0
        Py_XDECREF(body)
        return _Input._die(self, failure)

    cdef object _failed(self, size_t at, size_t head):
        cdef PyObject *made
        if self.state != IN_HEAD:
            kept = b""
            if self.body:
                kept = PyBytes_FromStringAndSize(PyBytes_AS_STRING(<object>self.body), <Py_ssize_t>self.have)
            return self.frame, kept + self._all_unread(0), len(kept) + at
        if not head:
            return None, self._all_unread(0), at
        made = stomp_frame_from_scan(&self.scan, &self.rules, self.data + self.start, NULL)
        frame = <object>made
        Py_XDECREF(made)  # `frame` owns it now
        return frame, self._all_unread(head), at - head

    cdef bint _begin_body(self) except -1:
        """Begin an incomplete body. Return whether it is streamed."""
        cdef bint stream
        cdef PyObject *frame = stomp_frame_from_scan(&self.scan, &self.rules, self.data + self.start, NULL)
        self.frame = <object>frame
        Py_XDECREF(frame)  # self.frame owns it now
        self.start += self.scan.head
        self.held = self.scan.head
        self.have = 0
        self.counted = (self.scan.marks & STOMP_HAS_LENGTH) != 0
        self.need = self.scan.length if self.counted else min(self.rules.max_body, self.stream_over)
        stream = self.counted and self.need > self.stream_over
        self.state = IN_STREAM if stream else IN_COUNTED if self.counted else IN_OPEN
        if stream:
            self.held = 0
        return stream

    cdef object _next_body(self):
        """Return the next event, or None if more bytes are needed."""
        cdef size_t here
        if self.state == IN_TAKING:  # its scan must not begin anew
            raise RuntimeError("the parser is being iterated over: wait until that step has ended")
        if self.bridge and self.start >= self.bridge:
            self._cross()
        here = self.end - self.start
        if self.state == IN_COUNTED:
            if here and self.have < self.need:
                here = <size_t>min(<uint64_t>here, self.need - self.have)
                self._fill(self.data + self.start, here)
                self.start += here
            if self.have < self.need:
                return None
            if self.start == self.end:
                return self._early() if self.rules.flags & STOMP_MENDS_LENGTH and not self.bridge else None
            if self.data[self.start]:
                return self._begin_idle() if self.scan.marks & STOMP_IDLE else self._mend()
            return self._finish(self._taken_body())
        if self.state == IN_TEXT:
            return self._look_for_nul(here)
        if self.state == IN_OPEN:
            return self._look_for_end(here)
        return self._stream(here)

    cdef object _finish(self, body):
        """Return the pending frame, whose NUL is the next byte."""
        frame = self.frame
        Py_INCREF(body)
        (<StompFrame *>(<PyObject *>frame)).body = <void *>body
        self._leave_body()
        return frame

    cdef int _leave_body(self) noexcept:
        self.start += 1
        self.state = IN_HEAD
        self.frame = None
        self.have = self.held = 0
        return 0

    # ---- a content-length that is wrong ----

    cdef int _is_wrong(self, size_t head) except -1:
        """Raise the error of a frame without a NUL behind its body, unless the end may be found piece by piece."""
        if self.scan.marks & STOMP_IDLE:
            if not stomp_takes_body(&self.rules, self.scan.command):
                self._fail(STOMP_BODY_NOT_ALLOWED, head, head)
        elif not self.rules.flags & STOMP_MENDS_LENGTH:
            self._fail(STOMP_MISSING_NULL, head + <size_t>self.scan.length, head)
        return 0

    cdef object _begin_idle(self):
        """Begin a body that follows the head of a frame without one, as long as its content-length says."""
        if not stomp_takes_body(&self.rules, self.scan.command):
            self._fail(STOMP_BODY_NOT_ALLOWED, 0)
        self.scan.marks &= ~STOMP_IDLE
        self.need = self.scan.idle
        if self.need <= self.stream_over:
            return self._next_body()
        self.state = IN_STREAM
        self.held = 0
        return self.frame

    cdef object _early(self):
        """Return the frame if all that was announced is there, and ends in a NUL: a client may have to acknowledge it."""
        if not self.need or PyBytes_AS_STRING(<object>self.body)[self.need - 1]:
            return None
        wrong = stomp_wrong_length(<const uint8_t *>PyBytes_AS_STRING(<object>self.body), self.need)
        return self._mended(self.need - 1, 0) if wrong == STOMP_COUNTS_NUL else None

    cdef object _mend(self):
        """Return the frame if its content-length counts the NUL; look for that if it may count characters."""
        cdef stomp_wrong wrong = STOMP_WRONG
        if self.rules.flags & STOMP_MENDS_LENGTH and self.need:
            wrong = stomp_wrong_length(<const uint8_t *>PyBytes_AS_STRING(<object>self.body), self.need)
        if wrong == STOMP_WRONG:
            self._fail(STOMP_MISSING_NULL, 0)
        if wrong == STOMP_COUNTS_NUL:
            return self._mended(self.need - 1, 0)
        self.state = IN_TEXT
        self.wrong = self.need
        self.missing = self.total - self._unread()
        self.need = STOMP_MOST_BYTES(self.need, min(self.rules.max_body, self.stream_over))
        return self._look_for_nul(self.end - self.start)

    cdef object _look_for_nul(self, size_t here):
        cdef const uint8_t *data = self.data + self.start
        cdef size_t most = <size_t>min(<uint64_t>here, self.need + 1 - self.have)
        cdef const uint8_t *nul = <const uint8_t *>memchr(data, 0, most) if most else NULL
        most = nul - data if nul else most
        if self.have + most > self.need:
            self._fail_text()
        if most:
            self._fill(data, most)
            self.start += most
        if not nul:
            return None
        if not stomp_counts_characters(<const uint8_t *>PyBytes_AS_STRING(<object>self.body), <size_t>self.have,
                                       self.wrong):
            self._fail_text()
        return self._mended(self.have, 1)

    cdef object _mended(self, uint64_t size, size_t nul):
        """Return the pending frame with a body of `size` bytes; `nul` bytes of those behind it are its NUL."""
        cdef PyObject *rest = NULL
        self.have = size
        if not size:
            rest, self.body = self.body, NULL
            Py_XDECREF(rest)
        (<StompFrame *>(<PyObject *>self.frame)).marks |= STOMP_ODD  # a writer must not copy its content-length
        frame = self._finish(self._taken_body())
        self.start += nul - 1
        self.turn |= 2
        if not self.told:
            self.told = True
            _tell_of_length()
        return frame

    cdef object _fail_text(self):
        """Raise the error of a text whose content-length does not count its characters either."""
        self._fail(STOMP_MISSING_NULL, <size_t>(self.missing - (self.total - self._unread())))  # below 0, modulo 2**64

    # ---- whole bodies: filled in place ----

    cdef int _body_room(self, size_t more, uint64_t came) except -1:
        """Make room for `more` bytes; `came` were received so far. Invariant: the room grows with the bytes received,
        not by content-length. After some KiB it grows to about 1 MiB, so that such a body is rarely moved; then it
        doubles."""
        cdef uint64_t much = SMALL if self.counted else PIECE // 2
        cdef uint64_t room
        cdef PyObject *bigger
        if not self.lent:
            self.lease = None
        if self.body and Py_REFCNT(self.body) == 1 and self.room >= self.have + more:
            return 0
        if self.have + more > <uint64_t>MOST:
            self._die(_NO_MEMORY)
            raise MemoryError
        room = 2 * came if came < much or came > 4 * PIECE else <uint64_t>(17 * PIECE)
        room = max(self.have + more, <uint64_t>SMALL, room)
        room = min(self.need, room, <uint64_t>MOST)
        if self.body and Py_REFCNT(self.body) == 1:  # no lease refers to it
            self._resize(<size_t>room)
            self.room = <size_t>room
            return 0
        fresh = self._new_body(<size_t>room)
        if self.body:
            memcpy(PyBytes_AS_STRING(fresh), PyBytes_AS_STRING(<object>self.body), <size_t>self.have)
        Py_INCREF(fresh)
        bigger = self.body
        self.body = <PyObject *>fresh
        Py_XDECREF(bigger)
        self.room = <size_t>room
        return 0

    cdef object _new_body(self, size_t room):
        try:
            return PyBytes_FromStringAndSize(NULL, <Py_ssize_t>room)
        except MemoryError:
            self._die(_NO_MEMORY)
            raise

    cdef int _resize(self, size_t room) except -1:
        try:
            _PyBytes_Resize(&self.body, <Py_ssize_t>room)
        except MemoryError:  # this frees the received part too
            self._die(_NO_MEMORY)
            raise
        return 0

    cdef int _fill(self, const uint8_t *data, size_t len) except -1:
        self._body_room(len, self.have + len)
        memcpy(<uint8_t *>PyBytes_AS_STRING(<object>self.body) + self.have, data, len)
        self.have += len
        return 0

    cdef object _taken_body(self):
        """Return the received part of the body, which no view of get_buffer reaches."""
        if not self.lent:
            self.lease = None
        if not self.body:
            return b""
        try:
            if Py_REFCNT(self.body) > 1:
                return self._copied_body()
            stomp_bytes_end(&self.body, self.room, <size_t>self.have)
        except MemoryError:
            self._die(_NO_MEMORY)
            raise
        body = <object>self.body
        Py_XDECREF(self.body)  # the local name owns it now
        self.body = NULL
        return body

    cdef object _copied_body(self):
        cdef PyObject *lent = self.body
        copy = PyBytes_FromStringAndSize(PyBytes_AS_STRING(<object>lent), <Py_ssize_t>self.have)
        self.body = NULL
        Py_XDECREF(lent)
        return copy

    cdef object _look_for_end(self, size_t here):
        """Continue a body that ends at its NUL."""
        cdef size_t most = <size_t>min(<uint64_t>here, self.rules.max_body + 1 - self.have)
        cdef const uint8_t *data = self.data + self.start
        cdef const uint8_t *nul
        if here and self.have == 0 and data[0] and not stomp_takes_body(&self.rules, self.scan.command):
            self._fail(STOMP_BODY_NOT_ALLOWED, 0)
        nul = <const uint8_t *>memchr(data, 0, most) if here else NULL
        here = nul - data if nul else most
        if not nul and self.have + here > self.rules.max_body and self.rules.max_body <= self.stream_over:
            self._fail(STOMP_LIMIT_BODY, <size_t>(self.rules.max_body - self.have))
        if self.have + here > self.stream_over:
            self.state = IN_STREAM
            self.held = 0
            return self.frame
        if here:
            self._fill(data, here)
            self.start += here
        return self._finish(self._taken_body()) if nul else None

    cdef size_t _fill_from(self, const uint8_t *data, size_t len) except? 0:
        """Copy the part of [data, data + len), just fed, that certainly belongs to the body. Return its size."""
        cdef const uint8_t *nul
        if self.have >= self.need or self.state == IN_STREAM or self.state == IN_TAKING:
            return 0
        if self.state == IN_COUNTED:
            len = <size_t>min(<uint64_t>len, self.need - self.have)
        elif not self.have or len > self.need - self.have:
            return 0
        else:
            nul = <const uint8_t *>memchr(data, 0, len)
            len = nul - data if nul else len
        if len:
            self._fill(data, len)
        return len

    # Most bytes of large bodies pass through these two, which do as little as possible.

    cdef inline bint _goes_on(self, const uint8_t *data, size_t len) noexcept:
        """Take in [data, data + len) if it is the middle of a body that has room, and nothing is lent. Return whether
        it was."""
        if self.state != IN_COUNTED or self.start != self.end or self.lease is not None:
            return False
        if not self.body or len > self.room - self.have:  # the room is never larger than the body
            return False
        memcpy(<uint8_t *>PyBytes_AS_STRING(<object>self.body) + self.have, data, len)
        self.have += len
        self.total += len
        return True

    cdef inline bint _has_all(self) noexcept:
        """Return whether all bytes went to the pending body, so that there is no event and nothing to tidy up."""
        return self.pinned is None and self.block is None and not (
            self.rules.flags & STOMP_MENDS_LENGTH and self.state == IN_COUNTED and self.have == self.need)

    # ---- streamed bodies ----

    cdef object _stream(self, size_t here):
        cdef const uint8_t *data = self.data + self.start
        cdef const uint8_t *nul = NULL
        cdef size_t most
        if self.body:  # the part that was kept before the body was streamed
            return self._taken_body()
        if not here:
            return None
        if self.counted:
            most = <size_t>min(<uint64_t>here, self.need - self.have)
            if self.need == self.have:
                if data[0]:
                    self._fail(STOMP_MISSING_NULL, 0)
                self._leave_body()
                return _END_OF_BODY
        else:
            most = <size_t>min(<uint64_t>here, self.rules.max_body - self.have)
            nul = <const uint8_t *>memchr(data, 0, most) if most else NULL
            if nul:
                most = nul - data
            if most == 0:
                if data[0]:
                    self._fail(STOMP_LIMIT_BODY, 0)
                self._leave_body()
                return _END_OF_BODY
        whole = self.pinned is not None and not self.bridge and most == <size_t>PyBytes_GET_SIZE(self.pinned)
        piece = self.pinned if whole else PyBytes_FromStringAndSize(<const char *>data, <Py_ssize_t>most)
        self.start += most
        self.have += most
        return piece


cdef inline PyObject *_given(item) noexcept:
    """Return a new reference, which the caller owns."""
    Py_INCREF(item)
    return <PyObject *>item


# ==== the parser: bytes in, frames out ====

@cython.final
cdef class Parser(_Bodies):
    """Parser(version=None, *, limits=None, lenient=False, heartbeats=False, commands=(), stream_over=None)
--

    A parser of one stream: feed it bytes, and iterate over the frames.

    Args:
        version: "1.0", "1.1", "1.2", "legacy", or None before negotiation.
        limits: the largest sizes to accept, in bytes; None for the defaults of `Limits`.
        lenient: True to tolerate common mistakes of peers, "server" what a server should. docs/codec.md lists them.
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
    cdef object _version, _limits
    cdef int lenient  # an index in `LENIENCIES`
    cdef _Names extra
    cdef bint lent_body  # get_buffer lent a part of a body
    cdef object hook_owner  # keeps the hook alive
    cdef const stomp_hook *hook  # or NULL

    def __cinit__(self, *_, **__):
        stomp_scan_init(&self.scan)
        self.extra = _Names(())

    def __init__(self, version=None, *, limits=None, lenient=False, heartbeats=False, commands=(), stream_over=None):
        if self._limits is not None:
            raise TypeError("a Parser is made once: make another one")
        self._limits = _checked_limits(limits)
        self.lenient = _LENIENCIES.index(_checked_leniency(lenient))
        self.extra = _names_of(_checked_commands(commands))
        self.stream_over = UINT64_MAX
        if stream_over is not None:
            if type(stream_over) is not int or stream_over < 0:
                raise ValueError(f"stream_over is {stream_over!r}: it must be None or an int of 0 or more")
            self.stream_over = min(stream_over, UINT64_MAX)
        self._set_version(version, _checked_flag("heartbeats", heartbeats))
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
        self.turn |= 1
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
        if PyBytes_CheckExact(data) and self._goes_on(<const uint8_t *>PyBytes_AS_STRING(data),
                                                      <size_t>PyBytes_GET_SIZE(data)):
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
        self.lent_body = (self.state == IN_COUNTED and self.failure is None and self.start == self.end
                          and self.have < self.need)
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
        """Offer each complete frame to the hook (stomp.h) of an object before it is made."""
        cdef const stomp_hook *hook = <const stomp_hook *>PyCapsule_GetPointer(owner.hook, STOMP_HOOK)
        if hook.owner != <void *>owner:  # the parser keeps that one alive, and the hook lies in it
            raise ValueError("the hook belongs to another object")
        if hook.scan_size != sizeof(stomp_scan):
            raise ValueError("the hook was built with another version of the scanner")
        self.hook_owner = owner
        self.hook = hook

    cdef int _taken(self, const uint8_t *frame, size_t size) except -1:
        """Offer a frame whose body has `size` bytes to the hook. The frame counts as read while that looks at it,
        because it may call Python, which may feed this parser: its memory is held, and its scan kept as it is."""
        cdef size_t whole = self.scan.head + size + 1
        cdef _Block block = self.block
        cdef bytes pinned = self.pinned
        cdef int taken
        self.start += whole
        self.state = IN_TAKING
        taken = self.hook.take(self.hook.owner, &self.scan, frame, size)
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
        """Return the next event as a new reference, or NULL. A MemoryError loses no event: the next call returns the
        same one, or the parser has failed."""
        cdef int outcome, taken
        cdef size_t head, here, most
        cdef const uint8_t *frame
        cdef const uint8_t *nul
        cdef PyObject *made
        cdef PyObject *body
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
                    if self.turn & 2 and self.start < self.end:
                        self.turn &= 1
                        if not stomp_may_follow(&self.rules, self.data[self.start]):
                            self._fail(STOMP_MISSING_NULL, 0)
                    if self.turn & 1:
                        self.rules = self.next_rules
                    self.turn &= 2
                outcome = stomp_scan_head(&self.scan, &self.rules, self.data + self.start, self.end - self.start)
                self.start += self.scan.skip
                if outcome == STOMP_HEAD:
                    head = self.scan.head
                    frame = self.data + self.start
                    here = self.end - self.start - head
                    most = SIZE_MAX
                    if self.scan.marks & STOMP_HAS_LENGTH:
                        if here > self.scan.length and self.scan.length <= self.stream_over:
                            most = <size_t>self.scan.length
                            if frame[head + most]:
                                self._is_wrong(head)
                                most = SIZE_MAX
                    elif here:
                        if frame[head]:
                            if not stomp_takes_body(&self.rules, self.scan.command):
                                self._fail(STOMP_BODY_NOT_ALLOWED, head, head)
                            nul = <const uint8_t *>memchr(
                                frame + head, 0,
                                <size_t>min(<uint64_t>here, min(self.rules.max_body, self.stream_over) + 1))
                            if nul:
                                most = nul - frame - head
                            elif here > self.rules.max_body and self.rules.max_body <= self.stream_over:
                                self._fail(STOMP_LIMIT_BODY, head + <size_t>self.rules.max_body, head)
                        else:
                            most = 0
                    if most != SIZE_MAX:
                        if self.hook:
                            taken = self._taken(frame, most)
                            if taken == STOMP_TAKEN:
                                continue
                            if taken == STOMP_TAKEN_LAST:
                                return NULL
                        if most:
                            body = PyBytes_New(<const char *>frame + head, <Py_ssize_t>most)
                        else:
                            body = _given(_EMPTY)
                        made = stomp_frame_from_scan(&self.scan, &self.rules, frame, body)
                        self.start += head + most + 1
                        return made
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
