cpdef bytes ident_of(bytes epoch, long long seq)
cpdef bytes head_of(bytes before, bytes ident, bytes after, long long tag)
cpdef bytes frame_of(bytes head, bytes tail)
cpdef bytes joined(bytes start, list messages)
