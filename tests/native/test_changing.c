/* Data that somebody else writes while it is read, as other threads and processes may write what parse_columns, frame_ends and
   read_websocket look at: any answer will do, but nothing outside of the data is touched, nor outside of what is made of it. */
#include <pthread.h>

#include "checks.h"

#define ROUNDS 20000

/* What the data is in turn, of the same size, right before the guard page. */
struct pair {
    const char *first, *second;
    size_t size;
};
#define PAIR(first, second) {first, second, (sizeof first < sizeof second ? sizeof first : sizeof second) - 1}
#define DIGITS "1111111111111111111111111111111111111111111111111111111"
static const struct pair pairs[] = {
    PAIR("SEND\ncontent-length:1\n\n" DIGITS, "SEND\ncontent-length:111" DIGITS), /* a number that has no end any more */
    PAIR("SEND\na:\r\nb:\r\nc:\n\n\0SEND\na:\r\nb:\r\n\r\n\0SEND\na:\n\n\0a:\r\n\n",
         "SEND\na\r\r\nb\r\r\ncc\n\n\0SEND\na\r\r\nb:\r\n\r\n\0SEND\na\r\n\n\0a\r\r\n\n"), /* a colon that becomes the CR of its line */
    PAIR("\n\nSEND\n\nx\0SEND\n\nyyyyy\0SEND\n\nzzzzz\0ACK\n\n\0", "\r\nSEND\r\nx\nSEND\r\nyyyyy\nSEND\n\nzzzzz\nACK\n\nc"), /* the last NUL */
};

static uint8_t *data;
static size_t size;
static const struct pair *now;
static int over;

static void *write_on(void *unused)
{
    (void)unused;
    for (size_t i = 0; !__atomic_load_n(&over, __ATOMIC_RELAXED); i++)
        for (size_t k = 0; k < size; k++) {
            const char c = (i % 2 ? now->first : now->second)[k];
            ((volatile uint8_t *)data)[k] = (uint8_t)c;
        }
    return NULL;
}

static void read_columns(const struct stomp_rules *rules, const struct stomp_wanted *wanted)
{
    struct stomp_columns columns;
    MUST(stomp_columns_parse(&columns, rules, wanted, data, size) == 0);
    MUST(columns.consumed <= size && columns.rows <= (int64_t)size);
    stomp_columns_free(&columns);
}

static void read_ends(void)
{
    const struct stomp_ends_wanted wanted = {1, SIZE_MAX, 100};
    struct stomp_ends ends;
    MUST(stomp_frame_ends(&ends, &wanted, data, size) == 0);
    for (size_t i = 0; i < ends.count; i++)
        MUST(ends.ends[i] > 0 && (size_t)ends.ends[i] <= size);
    stomp_ends_free(&ends);
}

static void check_threads(void)
{
    const struct stomp_name names[] = {{(const uint8_t *)"a", 1}, {(const uint8_t *)"b", 1}};
    const struct stomp_condition where = {{(const uint8_t *)"a", 1}, 0, 1, names, 2};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        pthread_t thread;
        now = &pairs[i];
        size = now->size;
        data = guarded.last - size;
        memcpy(data, now->first, size);
        over = 0;
        MUST(pthread_create(&thread, NULL, write_on, NULL) == 0);
        for (unsigned round = 0; round < ROUNDS; round++) {
            const struct stomp_rules rules = rules_of((int)(round % VERSIONS), round / VERSIONS % LENIENCIES, default_limits);
            const struct stomp_wanted wanted = {63, (int)(round / 2 % 2), names, 2, &where, round / 4 % 2};
            read_columns(&rules, &wanted);
            read_ends();
        }
        __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
        MUST(pthread_join(thread, NULL) == 0);
    }
}

/* Two frames of WebSocket are measured; then another thread has made one of them longer, or none. */
static void check_websocket(void)
{
    static const uint8_t before[] = "\x81\x02hi\x82\x03 and", *const after[] = {
        (const uint8_t *)"\x81\x05hi\x82\x03 and", (const uint8_t *)"\x81\x01hi\x82\x03 and", (const uint8_t *)"\x81\x02hi\x82\x7f and",
        (const uint8_t *)"\x01\x02hi\x82\x03 and", (const uint8_t *)"\x81\x07hi\x82\x03 and", (const uint8_t *)"\x81\x02hi\x88\x03 and",
    };
    const struct stomp_websocket_rules rules = {0, 1, UINT64_MAX, SIZE_MAX};
    const size_t len = 9;
    for (size_t i = 0; i < sizeof after / sizeof *after; i++) {
        struct stomp_websocket_run run;
        uint8_t wire[9];
        memcpy(wire, before, len);
        stomp_websocket_measure(&run, &rules, wire, len);
        MUST(run.payload == 5 && run.frames == 2 && run.end == len);
        memcpy(wire, after[i], len);
        uint8_t *out = guarded.last - run.payload;
        stomp_websocket_copy(out, &run, &rules, wire);
        MUST(run.payload <= 5 && run.frames <= 2 && run.end <= len);
    }
}

int main(void)
{
    guarded = make_guarded(4096);
    check_websocket();
    check_threads();
    printf("%u rounds of each pair as wanted\n", ROUNDS);
    return 0;
}
