# Octets that were fed and not read yet. Included by _codec_c.pyx.

cdef tuple _NO_MEMORY = (STOMP_NO_MEMORY, 0, b"")  # what a stream dies of


cdef class _Input:
    """[start, end) of data is unread. data lies in a block of our own or is that of a bytes object, `pinned`, which is read
    in place. Where something was unread when a large object came, only its first octets were put behind that in the block,
    and the rest is read in place once the index `bridge` is passed."""
    cdef const uint8_t *data
    cdef size_t start, end
    cdef _Block block
    cdef bytes pinned
    cdef size_t bridge  # where octets of pinned begin in the block, or 0
    cdef _Lease lease  # room that get_buffer lent last
    cdef bint lent  # it may still be filled
    cdef uint64_t total  # octets fed
    cdef object failure  # what the stream died of: (error, offset, near)

    cdef inline size_t _unread(self) noexcept:
        """Octets not looked at, those of a pinned object behind a bridge included."""
        cdef size_t unread = self.end - self.start
        if self.bridge:
            unread += <size_t>PyBytes_GET_SIZE(self.pinned) - (self.end - self.bridge)
        return unread

    cdef int _take(self, const uint8_t *data, size_t len, bytes whole) except -1:
        """Take in [data, data + len): the end of `whole`, if that is no None, which may be read in place."""
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
            # Only the start of it joins the rest that is there: most of it can be read in place.
            self.bridge = self._append(data, SMALL // 4)
            self.pinned = whole
        else:
            self._settle()
            self._append(data, len)
        self.total += len
        return 0

    cdef size_t _append(self, const uint8_t *data, size_t len) except? 0:
        """Put octets behind the unread ones in the block; returns the index of the first one."""
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
                block = _block_for(2 * unread + more)
            except MemoryError:  # octets that came cannot be kept: what came later would be read as if they had not
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
        """Copy what is unread of a pinned object into the block and let go of it."""
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
        """Everything that came before the pinned object is read: go on inside it."""
        self.start -= self.bridge
        self.bridge = 0
        self.data = <const uint8_t *>PyBytes_AS_STRING(self.pinned)
        self.end = <size_t>PyBytes_GET_SIZE(self.pinned)
        return 0

    cdef int _rest(self) except -1:
        """Nothing more can be read now. 1 if there was more behind a bridge after all."""
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
        """Idle parsers own no block, and those that wait for the rest of a frame none that is much too large."""
        cdef _Block block = self.block
        cdef size_t unread = self.end - self.start
        if (unread and (block.room <= PIECE or unread > block.room // 8)) or (self.lease is not None and self.lease.owner is block):
            return 0
        cdef _Block smaller = None
        if unread:
            try:
                smaller = _block_for(2 * unread)
            except MemoryError:  # then the large one stays
                return 0
            memcpy(smaller.data, block.data + self.start, unread)
            self.data = smaller.data
            self.start = 0
            self.end = unread
        self.block = smaller
        if Py_REFCNT(<void *>block) == 1:  # nobody has an older view of it
            _give_back(block)
        return 0

    cdef int _end_lease(self) except -1:
        """Whoever still looks at a lent buffer must not reach what is put into it from now on."""
        cdef _Block block
        cdef size_t unread = self.end - self.start
        self.lent = False
        if self.lease is None or not self.lease.views:
            return 0
        if self.lease.owner is self.block:
            try:
                block = _Block(unread + SMALL)
            except MemoryError:  # what is fed now cannot be kept
                self._die(_NO_MEMORY)
                raise
            if self.data == self.block.data:
                memcpy(block.data, self.data + self.start, unread)
                self.data = block.data
                self.start = 0
                self.end = unread
            self.block = block
        self.lease = None
        return 0

    cdef object _fail(self, int error, size_t at):
        """Report what is wrong `at` octets behind the first unread one, and be dead from now on, whatever else fails."""
        cdef bytes head = b""
        try:
            offset = self.total - self._unread() + at
            if self._in_head() and self.start < self.end:
                head = PyBytes_FromStringAndSize(<const char *>self.data + self.start, <Py_ssize_t>min(self.end - self.start, <size_t>PIECE))
            failure = error, offset, b""
        except MemoryError:
            self._die(_NO_MEMORY)
            raise
        self._die(failure)
        if head:
            self.failure = error, offset, _excerpt(head, at)
        self._fail_again()

    cdef object _fail_again(self):
        error, offset, near = self.failure
        _raise(error, offset, near)

    cdef int _die(self, failure) except -1:
        self.failure = failure
        self.pinned = self.block = None
        self.start = self.end = self.bridge = 0
        return 0

    cdef bint _in_head(self) noexcept:
        """Is the frame under way still in its head? Then its octets can be shown."""
        return False

