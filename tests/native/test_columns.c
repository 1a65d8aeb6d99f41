/* Columns, and ends of frames: well-formed at every cut of the data, right before and right behind a page that must not be
   touched; and memory that runs out at any place is reported, and nothing is lost or freed twice. */
#include "checks.h"

extern long until_failure; /* memory.c */

/* ---- streams ---- */

static const struct stomp_name names[] = {{(const uint8_t *)"a", 1}, {(const uint8_t *)"content-length", 14}};
static const struct stomp_name values[] = {{(const uint8_t *)"", 0}, {(const uint8_t *)"1", 1}};
/* Every frame, those with a header a:1…, none. */
static const struct stomp_condition conditions[] = {
    {{(const uint8_t *)"command", 7}, 1, 1, values, 1},
    {{(const uint8_t *)"a", 1}, 0, 1, values + 1, 1},
    {{(const uint8_t *)"x", 1}, 0, 0, values, 2},
};
static const struct stomp_wanted all = {STOMP_COLUMNS, 1, names, 2, NULL, 0};
/* What may be wanted: fewer columns, conditions, no repeats. */
static const struct stomp_wanted choices[] = {
    {0, 1, NULL, 0, NULL, 0},
    {STOMP_COLUMN_HEADERS, 0, names, 1, conditions, 1},
    {STOMP_COLUMN_BODY | STOMP_COLUMN_ERROR, 0, names, 2, conditions, 2},
    {STOMP_COLUMNS & ~STOMP_COLUMN_HEADERS, 1, NULL, 0, conditions + 1, 2},
    {STOMP_COLUMN_COMMAND | STOMP_COLUMN_LENGTH, 0, names, 2, conditions + 1, 1},
};
static struct trace trace;
static uint8_t wire[INPUT_MOST];
static size_t wire_len;

static void add(const char *octets, size_t len)
{
    MUST(wire_len + len <= sizeof wire);
    memcpy(wire + wire_len, octets, len);
    wire_len += len;
}
#define ADD(text) add(text, sizeof(text) - 1)

/* Frames of all kinds, one with more headers than the scanner has room for by itself. */
static void make_wire(void)
{
    ADD("\nMESSAGE\na:1\na:2\ndestination:/queue/\\c\ncontent-length:3\n\na\0b\0\n\n");
    ADD("SEND\nx:\xc3\xa9\\n\xff\xfe\n\nhello\0ABORT\n\n\0lower\n\n\0");
    ADD("SEND\n");
    for (int i = 0; i < STOMP_INLINE_LINES + 5; i++)
        ADD("key:value\nq\\cr:x\n");
    ADD("\nbody\0\nSEND\n\ncut");
}

/* Parse, check, hand over, release. */
static void parse(const struct stomp_rules *rules, const uint8_t *data, size_t len)
{
    struct stomp_columns columns;
    struct ArrowArray array;
    struct ArrowSchema schema;
    MUST(stomp_columns_parse(&columns, rules, &all, data, len) == 0);
    check_columns(&columns, data, len, &trace);
    int64_t rows = columns.rows;
    MUST(stomp_columns_schema(&columns, &schema) == 0 && stomp_columns_array(&columns, &array) == 0);
    stomp_columns_free(&columns);
    MUST(array.length == rows && array.n_children == 8 && schema.n_children == 8 && !strcmp(schema.format, "+s"));
    MUST(!strcmp(schema.children[6]->name, "a") && array.children[1]->children[0]->n_children == 2);
    schema.release(&schema);
    array.release(&array);
    MUST(!schema.release && !array.release);
}

/* What else may be wanted: as many rows as fulfil the conditions, and the malformed one. */
static void choose(const struct stomp_rules *rules, const struct stomp_wanted *wanted, const uint8_t *data, size_t len)
{
    struct stomp_columns columns;
    struct ArrowArray array;
    struct ArrowSchema schema;
    MUST(stomp_columns_parse(&columns, rules, wanted, data, len) == 0 && columns.bad == trace.error);
    MUST((uint64_t)columns.rows <= trace.frames + (trace.error != STOMP_OK) && columns.rows >= (trace.error != STOMP_OK));
    MUST(wanted->where_count || (uint64_t)columns.rows == trace.frames + (trace.error != STOMP_OK));
    if (wanted->columns & STOMP_COLUMN_HEADERS) {
        check_text_column(&columns.keys, columns.headers);
        check_text_column(&columns.values, columns.headers);
        check_offsets(&columns.entries, columns.rows, (size_t)columns.headers);
    }
    for (size_t i = 0; i < wanted->names_count; i++)
        check_text_column(&columns.extra[i], columns.rows);
    MUST(stomp_columns_schema(&columns, &schema) == 0 && stomp_columns_array(&columns, &array) == 0);
    MUST(array.n_children == schema.n_children && array.n_children >= (int64_t)wanted->names_count);
    stomp_columns_free(&columns);
    schema.release(&schema);
    array.release(&array);
}

/* Ends ascend, each behind a NUL; in STOMP 1.0 to 1.2 those of the frames that are read come first. */
static void find_ends(int version, int lenient, const uint8_t *data, size_t len)
{
    const struct stomp_ends_wanted wanted[] = {{1, SIZE_MAX, 1000}, {40, SIZE_MAX, 1000}, {1, 2, 0}};
    struct stomp_ends ends;
    for (size_t i = 0; i < 3; i++) {
        MUST(stomp_frame_ends(&ends, &wanted[i], data, len) == 0 && ends.count <= wanted[i].most);
        for (size_t k = 0; k < ends.count; k++)
            MUST(ends.ends[k] > (k ? ends.ends[k - 1] : 0) && (size_t)ends.ends[k] <= len && !data[ends.ends[k] - 1]);
        if (i == 0 && !lenient && version <= V1_0 && trace.frames)
            MUST(ends.count >= trace.frames && (size_t)ends.ends[trace.frames - 1] == trace.frame_end);
        stomp_ends_free(&ends);
    }
}

/* The same, where the n-th call for memory fails. 1 if all went well before that. */
static int parse_without_memory(const struct stomp_rules *rules, const struct stomp_wanted *wanted, long n)
{
    struct stomp_columns columns;
    struct ArrowArray array;
    struct ArrowSchema schema;
    until_failure = n;
    int failed = stomp_columns_parse(&columns, rules, wanted, wire, wire_len) < 0;
    if (!failed && !(failed = stomp_columns_schema(&columns, &schema) < 0)) {
        failed = stomp_columns_array(&columns, &array) < 0;
        if (!failed)
            array.release(&array);
        schema.release(&schema);
    }
    until_failure = -1;
    stomp_columns_free(&columns);
    return !failed;
}

static int find_ends_without_memory(long n)
{
    static const uint8_t many[200];
    const struct stomp_ends_wanted wanted = {1, SIZE_MAX, 0};
    struct stomp_ends ends;
    until_failure = n;
    int failed = stomp_frame_ends(&ends, &wanted, many, sizeof many) < 0;
    until_failure = -1;
    MUST(failed || ends.count == sizeof many);
    stomp_ends_free(&ends);
    return !failed;
}

/* The scanner without memory for more headers: an error, and it can be freed. */
static void scan_without_memory(const struct stomp_rules *rules)
{
    for (long n = 0;; n++) {
        struct stomp_scan scan;
        size_t from = 0;
        int outcome;
        stomp_scan_init(&scan);
        until_failure = n;
        while ((outcome = stomp_scan_head(&scan, rules, wire + from, wire_len - from)) == STOMP_HEAD) {
            const uint8_t *body = wire + from + scan.skip + scan.head, *nul;
            nul = memchr(body + (scan.marks & STOMP_HAS_LENGTH ? scan.length : 0), 0, (size_t)(wire + wire_len - body));
            from = nul ? (size_t)(nul - wire) + 1 : wire_len;
        }
        int out = until_failure < 0;
        until_failure = -1;
        stomp_scan_free(&scan);
        if (outcome != STOMP_BAD && !out)
            return;
        MUST(n < 50 && outcome == STOMP_BAD && scan.error == STOMP_NO_MEMORY);
    }
}

int main(void)
{
    long n = 0;
    unsigned long parsed = 0;
    placer *const places[] = {place_before_guard, place_behind_guard};
    guarded = make_guarded(sizeof wire);
    make_wire();
    for (int version = 0; version < VERSIONS; version++)
        for (int lenient = 0; lenient < LENIENCIES; lenient++)
            for (size_t len = 0; len <= wire_len; len++)
                for (int p = 0; p < 2; p++, parsed++) {
                    struct stomp_rules rules = rules_of(version, lenient, default_limits);
                    read_stream(&trace, &rules, wire, len, (struct cuts){0}, places[p]);
                    const uint8_t *data = places[p](wire, len);
                    parse(&rules, data, len);
                    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
                        choose(&rules, &choices[i], data, len);
                    find_ends(version, lenient, data, len);
                }
    struct stomp_rules rules = rules_of(V1_2, LENIENT, default_limits);
    while (!parse_without_memory(&rules, &all, n))
        n++;
    MUST(n > 20);
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
        for (long k = 0; !parse_without_memory(&rules, &choices[i], k); k++)
            n++;
    for (long k = 0; !find_ends_without_memory(k); k++)
        n++;
    scan_without_memory(&rules);
    printf("%lu streams as wanted, %ld failures of memory reported\n", parsed, n);
    return 0;
}
