# Bodies that were not there whole when their head was read. Included by _codec_c.pyx.

cdef enum:
    IN_HEAD  # no body is under way
    IN_COUNTED  # a body of known length is being filled
    IN_OPEN  # a body that ends at its NUL is being filled
    IN_STREAM  # a body is being handed out in pieces


cdef class _Bodies(_Input):
    """The frame whose body is under way, and what there is of it."""
    cdef stomp_scan scan  # its head
    cdef stomp_rules rules
    cdef int state
    cdef object frame
    cdef PyObject *body  # bytes under construction, or NULL
    cdef size_t room  # of body
    cdef uint64_t have  # octets that came of the body; but for IN_STREAM they are in `body`
    cdef uint64_t need  # IN_COUNTED: its length; IN_OPEN: how long it may be without being refused or handed out in pieces
    cdef uint64_t stream_over
    cdef size_t held  # octets of the head of `frame`
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

    cdef bint _begin_body(self) except -1:
        """The head is there, its body not all of it. True: it is handed out in pieces."""
        cdef bint stream
        cdef PyObject *frame = stomp_frame_from_scan(&self.scan, &self.rules, self.data + self.start, NULL)
        self.frame = <object>frame
        Py_XDECREF(frame)  # self.frame holds it now
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
        """The next thing to hand out, or None when more octets are needed."""
        cdef size_t here
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
        """Hand out the frame under way; its NUL is the next octet."""
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

    # ---- bodies handed out whole: filled in place ----

    cdef int _body_room(self, size_t more, uint64_t came) except -1:
        """Room for `more` octets behind those that are there, of which `came` have come. It grows by what came, not by what
        was announced: once there are some KiB by much, so that a body of a MiB is hardly ever moved, later by doubling."""
        cdef uint64_t much = SMALL if self.counted else PIECE // 2
        cdef size_t room
        cdef PyObject *bigger
        if not self.lent:
            self.lease = None
        if self.body and Py_REFCNT(self.body) == 1 and self.room >= self.have + more:
            return 0
        room = <size_t>max(self.have + more, <uint64_t>SMALL, 2 * came if came < much or came > 4 * PIECE else <uint64_t>(17 * PIECE))
        room = <size_t>min(self.need, <uint64_t>room)
        if self.body and Py_REFCNT(self.body) == 1:  # nobody looks at it through a lease
            self._resize(room)
            self.room = room
            return 0
        fresh = self._new_body(room)
        if self.body:
            memcpy(PyBytes_AS_STRING(fresh), PyBytes_AS_STRING(<object>self.body), <size_t>self.have)
        Py_INCREF(fresh)
        bigger = self.body
        self.body = <PyObject *>fresh
        Py_XDECREF(bigger)
        self.room = room
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
        except MemoryError:  # what there was of the body is gone, too
            self._die(_NO_MEMORY)
            raise
        return 0

    cdef int _fill(self, const uint8_t *data, size_t len) except -1:
        self._body_room(len, self.have + len)
        memcpy(<uint8_t *>PyBytes_AS_STRING(<object>self.body) + self.have, data, len)
        self.have += len
        return 0

    cdef object _taken_body(self):
        """What there is of the body."""
        if not self.body:
            return b""
        try:
            stomp_bytes_end(&self.body, self.room, <size_t>self.have)
        except MemoryError:
            self._die(_NO_MEMORY)
            raise
        body = <object>self.body
        Py_XDECREF(self.body)  # the local name holds it now
        self.body = NULL
        return body

    cdef object _look_for_end(self, size_t here):
        """Go on with a body that ends at its NUL."""
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
        """How many octets of [data, data + len), just fed, go straight to the body: it is known that they belong there."""
        cdef const uint8_t *nul
        if self.have >= self.need or self.state == IN_STREAM:
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

    # Most octets of large bodies pass through these two, which do no more than they must.

    cdef inline bint _goes_on(self, const uint8_t *data, size_t len) noexcept:
        """Take in [data, data + len) where that is the middle of a body, room was made for it, and nobody looks at that."""
        if self.state != IN_COUNTED or self.start != self.end or self.lease is not None:
            return False
        if not self.body or len > self.room - self.have:  # there is no more room than the body needs
            return False
        memcpy(<uint8_t *>PyBytes_AS_STRING(<object>self.body) + self.have, data, len)
        self.have += len
        self.total += len
        return True

    cdef inline bint _has_all(self) noexcept:
        """Did all that came go to the body under way? Then there is nothing to hand out, and nothing to tidy up."""
        return self.pinned is None and self.block is None

    # ---- bodies handed out in pieces ----

    cdef object _stream(self, size_t here):
        cdef const uint8_t *data = self.data + self.start
        cdef const uint8_t *nul = NULL
        cdef size_t most
        if self.body:  # what was kept before it was known that there is too much of it
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
    """A reference to give away."""
    Py_INCREF(item)
    return <PyObject *>item
