/* The speed tricks that a build can switch off, by -DSTOMP_NO_...=1. tricks.json says what each does; docs/tricks.md what it
   pays. Each is 0 or 1 in code, so that all of it is compiled always; STOMP_NO_SIMD and STOMP_NO_AVX2 are in stomp_mask.h.
   Invariant: without any of them the results are the same. */
#ifndef STOMP_TRICKS_H
#define STOMP_TRICKS_H

#ifndef STOMP_NO_SCAN_BLOCKS
#define STOMP_NO_SCAN_BLOCKS 0
#endif
#ifndef STOMP_NO_QUICK_HEAD
#define STOMP_NO_QUICK_HEAD 0
#endif
#ifndef STOMP_NO_SIEVE
#define STOMP_NO_SIEVE 0
#endif
#ifndef STOMP_NO_UTF8_BLOCKS
#define STOMP_NO_UTF8_BLOCKS 0
#endif
#ifndef STOMP_NO_UTF8_TABLES
#define STOMP_NO_UTF8_TABLES 0
#endif
#ifndef STOMP_NO_UNESCAPE_RUNS
#define STOMP_NO_UNESCAPE_RUNS 0
#endif
#ifndef STOMP_NO_NARROW_OFFSETS
#define STOMP_NO_NARROW_OFFSETS 0
#endif
#ifndef STOMP_NO_SPARE_OBJECTS
#define STOMP_NO_SPARE_OBJECTS 0
#endif
#ifndef STOMP_NO_SPARE_BLOCKS
#define STOMP_NO_SPARE_BLOCKS 0
#endif
#ifndef STOMP_NO_KNOWN_NAMES
#define STOMP_NO_KNOWN_NAMES 0
#endif
#ifndef STOMP_NO_KNOWN_VALUES
#define STOMP_NO_KNOWN_VALUES 0
#endif
#ifndef STOMP_NO_SHORT_COPIES
#define STOMP_NO_SHORT_COPIES 0
#endif
#ifndef STOMP_NO_RAW_LOOKUP
#define STOMP_NO_RAW_LOOKUP 0
#endif
#ifndef STOMP_NO_DICT_ITEMS
#define STOMP_NO_DICT_ITEMS 0
#endif
#ifndef STOMP_NO_VECTORCALL
#define STOMP_NO_VECTORCALL 0
#endif
#ifndef STOMP_NO_COPY_AND_LOOK
#define STOMP_NO_COPY_AND_LOOK 0
#endif
#ifndef STOMP_NO_COPIED_LINES
#define STOMP_NO_COPIED_LINES 0
#endif
#ifndef STOMP_NO_ASCII_LINES
#define STOMP_NO_ASCII_LINES 0
#endif
#ifndef STOMP_NO_EXPECTED_SIZE
#define STOMP_NO_EXPECTED_SIZE 0
#endif
#ifndef STOMP_NO_PREPARED_RULES
#define STOMP_NO_PREPARED_RULES 0
#endif
#ifndef STOMP_NO_KEPT_HEAP
#define STOMP_NO_KEPT_HEAP 0
#endif
#ifndef STOMP_NO_READ_IN_PLACE
#define STOMP_NO_READ_IN_PLACE 0
#endif
#ifndef STOMP_NO_STRAIGHT_BODY
#define STOMP_NO_STRAIGHT_BODY 0
#endif
#ifndef STOMP_NO_ITERNEXT
#define STOMP_NO_ITERNEXT 0
#endif

#endif
