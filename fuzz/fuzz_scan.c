/* Invariant: the C code alone, without Python,
   - gives the same frames and the same error at the same offset, however the octets are cut and wherever they lie;
   - gives offsets inside the frame, in order, and marks that promise no more than is true;
   - reads nothing outside its input, which is why every input lies in memory of exactly its size (AddressSanitizer);
   - makes columns that agree with the frames, whose offsets never fall, whatever is wanted of them;
   - finds the ends of the frames by a light parse;
   - writes header text that reads back as it was;
   - reads WebSocket frames inside its input only, as many as it is asked for, and reads what it writes.

   The input is that of case.py. libFuzzer drives it (clang -fsanitize=fuzzer), or standalone.c with any compiler.
   tests/native/checks.h says most of what must hold. */
#include "checks.h"
#include "stomp.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

/* Memory of exactly this size, anew for every call: the one before is given back. */
static const uint8_t *place_exactly(const uint8_t *data, size_t len)
{
    static uint8_t *last;
    free(last);
    last = malloc(len ? len : 1);
    MUST(last);
    if (len)
        memcpy(last, data, len);
    return last;
}

static void check_columns_of(const struct stomp_rules *rules, const uint8_t *data, size_t len, const struct trace *trace, int export)
{
    static const struct stomp_name names[] = {{(const uint8_t *)"a", 1}, {(const uint8_t *)"content-length", 14}};
    struct stomp_columns columns;
    struct ArrowArray array;
    struct ArrowSchema schema;
    struct stomp_rules quiet = *rules;
    quiet.report_beats = 0;
    const struct stomp_wanted all = {STOMP_COLUMNS, 1, names, 2, NULL, 0};
    MUST(stomp_columns_parse(&columns, &quiet, &all, data, len) == 0);
    check_columns(&columns, data, len, trace);
    if (export) {
        MUST(stomp_columns_schema(&columns, &schema) == 0 && stomp_columns_array(&columns, &array) == 0);
        MUST(array.n_children == schema.n_children && array.length == columns.rows);
    }
    stomp_columns_free(&columns);
    if (!export)
        return;
    schema.release(&schema);
    array.release(&array);
    MUST(!schema.release && !array.release);
}

/* Any choice of columns and frames. */
static void check_choice(const struct stomp_rules *rules, const uint8_t *data, size_t len, const struct trace *trace, uint8_t choice)
{
    static const struct stomp_name names[] = {{(const uint8_t *)"a", 1}, {(const uint8_t *)"id", 2}};
    static const struct stomp_name values[] = {{(const uint8_t *)"1", 1}, {(const uint8_t *)"a", 1}};
    const struct stomp_condition where = {names[choice & 1], choice >> 1 & 1, choice >> 2 & 1, values, 2};
    const struct stomp_wanted wanted = {choice & STOMP_COLUMNS, choice >> 6 & 1, names, choice % 3, &where, choice >> 7};
    struct stomp_columns columns;
    struct stomp_rules quiet = *rules;
    quiet.report_beats = 0;
    MUST(stomp_columns_parse(&columns, &quiet, &wanted, data, len) == 0 && columns.bad == trace->error);
    MUST((uint64_t)columns.rows <= trace->frames + (trace->error != STOMP_OK));
    if (wanted.columns & STOMP_COLUMN_HEADERS) {
        check_text_column(&columns.keys, columns.headers);
        check_text_column(&columns.values, columns.headers);
    }
    stomp_columns_free(&columns);
}

/* Ends ascend, each behind a NUL; those of the frames that are read by strict rules come first. */
static void check_ends(const uint8_t *input, const uint8_t *data, size_t len, const struct trace *trace)
{
    const struct stomp_ends_wanted wanted = {1, SIZE_MAX, rules_of_input(input).max_body};
    const int version = input[0] % 5, lenient = input[0] / 5 % 2;
    struct stomp_ends ends;
    MUST(stomp_frame_ends(&ends, &wanted, data, len) == 0);
    for (size_t k = 0; k < ends.count; k++)
        MUST(ends.ends[k] > (k ? ends.ends[k - 1] : 0) && (size_t)ends.ends[k] <= len && !data[ends.ends[k] - 1]);
    if (version <= V1_0 && !lenient && trace->frames)
        MUST(ends.count >= trace->frames && (size_t)ends.ends[trace->frames - 1] == trace->frame_end);
    stomp_ends_free(&ends);
}

/* Written text reads back as it was, and holds nothing that ends a line or a frame. */
static void check_writing(const uint8_t *text, size_t len)
{
    uint8_t *written = malloc(2 * len + 16), *back = malloc(2 * len + 16);
    MUST(written && back);
    for (int mode = STOMP_WRITE_1_2; mode <= STOMP_WRITE_LEGACY; mode++) {
        for (int is_name = 0; is_name < 2; is_name++) {
            int level = mode == STOMP_WRITE_1_2 ? 2 : mode == STOMP_WRITE_1_1;
            size_t size = stomp_write_text(written, text, len, mode, is_name);
            if (size == STOMP_REFUSED)
                continue;
            MUST(size >= len && size <= 2 * len && !memchr(written, 0, size) && !memchr(written, '\n', size));
            MUST(!is_name || !memchr(written, ':', size));
            MUST(!level || stomp_bad_escape(written, size, level) == size);
            MUST(stomp_unescape(back, written, size, level) == len && !memcmp(back, text, len));
        }
    }
    free(written);
    free(back);
}

/* Any text can be unescaped, into room of its size. */
static void check_reading(const uint8_t *text, size_t len)
{
    uint8_t *out = malloc(len ? len : 1);
    MUST(out && stomp_bad_utf8(text, len) <= len);
    for (int level = 0; level < 3; level++) {
        MUST(stomp_unescape(out, text, len, level) <= len);
        MUST(stomp_bad_escape(text, len, level) <= len);
    }
    free(out);
}

/* A run of WebSocket frames ends inside the data, and its payloads are what they were when written again. */
static void check_websocket(const uint8_t *data, size_t len, uint8_t choice)
{
    const struct stomp_websocket_rules rules = {choice & 1, choice & 2, choice & 4 ? UINT64_MAX : choice, choice & 8 ? SIZE_MAX : 3};
    struct stomp_websocket_run run, again;
    stomp_websocket_measure(&run, &rules, data, len);
    MUST(run.end <= len && run.payload <= run.end && run.frames <= rules.most);
    uint8_t *payload = malloc(run.payload + 1), *written = malloc(run.payload + STOMP_WEBSOCKET_HEAD);
    MUST(payload && written);
    size_t measured = run.end;
    stomp_websocket_copy(payload, &run, &rules, data);
    MUST(run.end == measured || (rules.utf8 && run.end < measured));
    uint8_t *end = stomp_websocket_write(written, payload, run.payload, rules.masked ? (const uint8_t *)"\1\2\376\377" : NULL);
    const struct stomp_websocket_rules wide = {rules.masked, 1, UINT64_MAX, 2};
    stomp_websocket_measure(&again, &wide, written, (size_t)(end - written));
    MUST(again.frames == 1 && again.payload == run.payload && again.end == (size_t)(end - written));
    uint8_t *back = malloc(run.payload + 1);
    MUST(back);
    stomp_websocket_copy(back, &again, &wide, written);
    MUST(again.frames == 1 && !memcmp(back, payload, run.payload));
    free(payload);
    free(written);
    free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    static struct trace whole, cut;
    if (size < INPUT_HEAD || size > INPUT_MOST)
        return 0;
    struct stomp_rules rules = rules_of_input(input);
    const uint8_t *wire = input + INPUT_HEAD;
    size_t len = size - INPUT_HEAD, some = len < 100 ? len : 100;
    read_stream(&whole, &rules, wire, len, (struct cuts){0}, place_exactly);
    struct cuts cuts = {0, input[3] % 4 ? 0 : 1, input[3] % 4 ? input[3] * 77u + 1 : 0}; /* random, or octet by octet */
    read_stream(&cut, &rules, wire, len, cuts, place_exactly);
    MUST(same_trace(&whole, &cut));
    check_columns_of(&rules, place_exactly(wire, len), len, &whole, input[3] & 1);
    check_choice(&rules, place_exactly(wire, len), len, &whole, input[2]);
    check_ends(input, place_exactly(wire, len), len, &whole);
    check_writing(place_exactly(wire, some), some);
    check_reading(place_exactly(wire, some), some);
    check_websocket(place_exactly(wire, len), len, input[2]);
    return 0;
}
