/* Columns: well-formed at every cut of the data, right before and right behind a page that must not be touched; and
   memory that runs out at any place is reported, and nothing is lost or freed twice. */
#include "guard.h"

extern long until_failure; /* memory.c */

/* ---- streams ---- */

static const struct stomp_name names[] = {{(const uint8_t *)"a", 1}, {(const uint8_t *)"content-length", 14}};
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
        ADD("key:value\n");
    ADD("\nbody\0\nSEND\n\ncut");
}

/* Parse, check, hand over, release. */
static void parse(const struct stomp_rules *rules, const uint8_t *data, size_t len)
{
    struct stomp_columns columns;
    struct ArrowArray array;
    struct ArrowSchema schema;
    MUST(stomp_columns_parse(&columns, rules, data, len, names, 2) == 0);
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

/* The same, where the n-th call for memory fails. 1 if all went well before that. */
static int parse_without_memory(const struct stomp_rules *rules, long n)
{
    struct stomp_columns columns;
    struct ArrowArray array;
    struct ArrowSchema schema;
    until_failure = n;
    int failed = stomp_columns_parse(&columns, rules, wire, wire_len, names, 2) < 0;
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
        for (int lenient = 0; lenient < 2; lenient++)
            for (size_t len = 0; len <= wire_len; len++)
                for (int p = 0; p < 2; p++, parsed++) {
                    struct stomp_rules rules = rules_of(version, lenient, default_limits);
                    read_stream(&trace, &rules, wire, len, (struct cuts){0}, places[p]);
                    parse(&rules, places[p](wire, len), len);
                }
    struct stomp_rules rules = rules_of(V1_2, 1, default_limits);
    while (!parse_without_memory(&rules, n))
        n++;
    MUST(n > 20);
    scan_without_memory(&rules);
    printf("%lu streams as wanted, %ld failures of memory reported\n", parsed, n);
    return 0;
}
