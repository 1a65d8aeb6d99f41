# The input of a parser: bytes that were fed and not read yet. Included by _codec_c.pyx.

cdef tuple _NO_MEMORY = (STOMP_NO_MEMORY, 0, b"")  # the failure of a parser without memory


cdef class _Input:
    """The unread bytes, [start, end) of data. data is in a block of ours, or in a bytes object, `pinned`, that is read in
    place. If a large object is fed while bytes are unread, only its first bytes are appended to the block; the rest is read
    in place once the index `bridge` is passed."""
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
        """Raise the error `at` bytes after the first unread one, and fail from now on, even if memory runs out here. `head` is
        the size of a complete head that is still unread."""
        cdef bytes seen = b""
        try:
            offset = self.total - self._unread() + at
            lost = self._failed(at, head)
            if self._in_head() and self.start < self.end:
                seen = PyBytes_FromStringAndSize(<const char *>self.data + self.start, <Py_ssize_t>min(self.end - self.start, <size_t>PIECE))
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
        cdef bytes octets = PyBytes_FromStringAndSize(<const char *>self.data + self.start + skip, <Py_ssize_t>(self.end - self.start - skip))
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

