cdef long long _EACH

cdef class Account:
    cdef public long long limit, first, second, floor, reserve, most_held, used, held, fixed, most_fixed, most_keys
    cdef public dict waiting
    cdef public double _look_at
    cdef public Account whole

    cpdef use(self, long long cost)
    cpdef use_messages(self, long long count, long long octets)
    cpdef charge(self, long long cost)
    cpdef hold(self, long long cost)
    cpdef bint is_large(self, long long cost, double part=*) except -1
    cpdef wait(self, stock)

cdef class Part(Account):
    pass
