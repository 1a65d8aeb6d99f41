# Bodies that were incomplete when their head was read. Included by _codec_c.pyx.

cdef enum:
    IN_HEAD  # no body is pending
    IN_COUNTED  # a body of known length is being filled
    IN_OPEN  # a body that ends at its NUL is being filled
    IN_STREAM  # a body is being streamed
    IN_TAKING  # the taker looks at a frame, and may call Python


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
            kept = PyBytes_FromStringAndSize(PyBytes_AS_STRING(<object>self.body), <Py_ssize_t>self.have) if self.body else b""
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
            if self.have < self.need or self.start == self.end:
                return None
            if self.data[self.start]:
                self._fail(STOMP_MISSING_NULL, 0)
            return self._finish(self._taken_body())
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

    # ---- whole bodies: filled in place ----

    cdef int _body_room(self, size_t more, uint64_t came) except -1:
        """Make room for `more` bytes; `came` were received so far. Invariant: the room grows with the bytes received, not by
        content-length. After some KiB it grows to about 1 MiB, so that such a body is rarely moved; then it doubles."""
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
        room = max(self.have + more, <uint64_t>SMALL, 2 * came if came < much or came > 4 * PIECE else <uint64_t>(17 * PIECE))
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
        """Take in [data, data + len) if it is the middle of a body that has room, and nothing is lent. Return whether it was."""
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
        return self.pinned is None and self.block is None

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
