/* Which columns, headers and frames are wanted, and the buffers that columns are made in. */
#ifndef STOMP_WANTED_H
#define STOMP_WANTED_H

#include "stomp_rules.h"

struct stomp_buffer {
    uint8_t *data;
    size_t len, room;
};

/* Offsets and octets of a text or binary column; valid holds a bit a row where nulls are allowed. */
struct stomp_column {
    struct stomp_buffer offsets, data, valid;
    int64_t nulls;
};

/* The columns before those of single headers, in their order: bits. */
enum stomp_column_bit {
    STOMP_COLUMN_COMMAND = 1 << 0,
    STOMP_COLUMN_HEADERS = 1 << 1,
    STOMP_COLUMN_BODY = 1 << 2,
    STOMP_COLUMN_OFFSET = 1 << 3,
    STOMP_COLUMN_LENGTH = 1 << 4,
    STOMP_COLUMN_ERROR = 1 << 5,
    STOMP_COLUMNS = (1 << 6) - 1 /* all of them */
};

/* What the command, or the first header of this name, must be, or begin with: as text in a column. */
struct stomp_condition {
    struct stomp_name name;
    int of_command, is_prefix;
    const struct stomp_name *values; /* ascending; no prefix begins with another one */
    size_t count;
};

struct stomp_wanted {
    int columns;                    /* enum stomp_column_bit */
    int repeats;                    /* 0: of a repeated header only the first entry */
    const struct stomp_name *names; /* headers with a column of their own */
    size_t names_count;
    const struct stomp_condition *where; /* all must hold */
    size_t where_count;
};

#endif
