cdef long long _EACH

cdef class Account:
    cdef public long long limit, first, second, floor, reserve, most_held, used, held, fixed, most_fixed, most_keys
    cdef public dict waiting
    cdef public double _look_at
    cdef public Account whole

    cpdef int use(self, long long cost) except -1
    cpdef int use_messages(self, long long count, long long octets) except -1
    cpdef int charge(self, long long cost) except -1
    cpdef int hold(self, long long cost) except -1
    cpdef bint is_large(self, long long cost, double part=*) except -1
    cpdef int wait(self, stock) except -1

cdef class Part(Account):
    pass
