/* The scanner right before and right behind a page that must not be touched. With a FILE: each record in it, read whole, octet
   by octet and at every cut. test_native.py makes them from the vectors and the reference model: two numbers of 4 octets, an
   input (checks.h), the trace that is wanted. */
#include "checks.h"

static struct trace whole, cut;
static unsigned long readings;

static void compare(const struct stomp_rules *rules, const uint8_t *wire, size_t len, struct cuts cuts, placer *place, const char *want, size_t want_len)
{
    readings++;
    read_stream(&cut, rules, wire, len, cuts, place);
    if (cut.len == want_len && !memcmp(cut.text, want, want_len))
        return;
    fprintf(stderr, "stream: %.*s\n  want: %.*s\n   got: %.*s\n   cut: first %zu, each %zu, seed %u\n", (int)len,
            (const char *)wire, (int)want_len, want, (int)cut.len, cut.text, cuts.first, cuts.each, cuts.seed);
    abort();
}

/* Read in every way: whole, in pieces of any small size, and cut in two at every place. */
static void read_in_every_way(const struct stomp_rules *rules, const uint8_t *wire, size_t len, const char *want, size_t want_len)
{
    placer *const places[] = {place_before_guard, place_behind_guard};
    for (size_t p = 0; p < 2; p++) {
        for (size_t each = 0; each < 4; each++)
            compare(rules, wire, len, (struct cuts){0, each, 0}, places[p], want, want_len);
        for (size_t first = 1; first < len; first++)
            compare(rules, wire, len, (struct cuts){first, 0, 0}, places[p], want, want_len);
        for (uint32_t seed = 1; seed < 4; seed++)
            compare(rules, wire, len, (struct cuts){0, 0, seed}, places[p], want, want_len);
    }
}

/* The lowest byte comes first, on any machine. */
static uint32_t read_size(const uint8_t *four)
{
    return four[0] | (uint32_t)four[1] << 8 | (uint32_t)four[2] << 16 | (uint32_t)four[3] << 24;
}

static void read_file(const char *path)
{
    static uint8_t input[INPUT_MOST];
    static char want[TEXT_MOST];
    uint8_t head[8];
    unsigned long records = 0;
    FILE *file = fopen(path, "rb");
    MUST(file);
    while (fread(head, sizeof head, 1, file) == 1) {
        const uint32_t sizes[2] = {read_size(head), read_size(head + 4)};
        MUST(sizes[0] >= INPUT_HEAD && sizes[0] <= sizeof input && sizes[1] <= sizeof want);
        MUST(fread(input, 1, sizes[0], file) == sizes[0] && fread(want, 1, sizes[1], file) == sizes[1]);
        struct stomp_rules rules = rules_of_input(input);
        read_in_every_way(&rules, input + INPUT_HEAD, sizes[0] - INPUT_HEAD, want, sizes[1]);
        records++;
    }
    fclose(file);
    printf("%lu records, %lu readings as wanted\n", records, readings);
}

/* More headers than fit inside the scanner: it takes memory, keeps it for the next frame, and gives it back. */
static void read_many_headers(void)
{
    static uint8_t wire[INPUT_MOST];
    struct stomp_rules rules = rules_of(V1_2, 0, default_limits);
    for (size_t count = STOMP_INLINE_LINES - 1; count < 4 * STOMP_INLINE_LINES + 2; count++) {
        size_t len = 0;
        for (int frames = 0; frames < 2; frames++) {
            memcpy(wire + len, "SEND\n", 5);
            len += 5;
            for (size_t i = 0; i < count; i++, len += 4)
                memcpy(wire + len, "a:b\n", 4);
            memcpy(wire + len, "\n\0", 2);
            len += 2;
        }
        read_stream(&whole, &rules, wire, len, (struct cuts){0}, place_before_guard);
        MUST(whole.frames == 2 && whole.headers == 2 * count && !whole.error);
        read_stream(&cut, &rules, wire, len, (struct cuts){0, 37, 0}, place_before_guard);
        MUST(same_trace(&whole, &cut));
    }
}

/* Each octet at places of a value where the scanner goes from one look to the next, in values of many lengths: what is
   read at once is what is read octet by octet. */
static void read_every_octet(void)
{
    static const size_t places[] = {0, 1, 7, 13, 14, 15, 16, 23, 24, 25, 29, 30, 31, 55, 56, 57, 61, 62, 63, 64, 65};
    uint8_t wire[256] = "SEND\nkey:";
    for (unsigned c = 0; c < 256; c++)
        for (size_t i = 0; i < sizeof places / sizeof *places; i++)
            for (size_t len = places[i] + 1; len < places[i] + 80; len += 13, readings++) {
                struct stomp_rules rules = rules_of((int)(len % VERSIONS), (int)(c + i) % LENIENCIES, default_limits);
                memset(wire + 9, 'x', len);
                wire[9 + places[i]] = (uint8_t)c;
                memcpy(wire + 9 + len, "\n\n\0", 3);
                read_stream(&whole, &rules, wire, 12 + len, (struct cuts){0}, place_before_guard);
                read_stream(&cut, &rules, wire, 12 + len, (struct cuts){0, 1, 0}, place_before_guard);
                MUST(same_trace(&whole, &cut) && (whole.frames || whole.error));
            }
}

/* Every dialect, so that test_native.py can compare them with spec.py. */
static void show_dialects(void)
{
    for (int version = 0; version < VERSIONS; version++) {
        for (int lenient = 0; lenient < LENIENCIES; lenient++) {
            struct stomp_rules rules = rules_of(version, lenient, default_limits);
            printf("%d %d %u %d", version, lenient, rules.flags, rules.escapes);
            for (int i = 0; i < STOMP_COMMANDS; i++)
                if (rules.commands >> i & 1)
                    printf(" %s", stomp_command_names[i]);
            printf("\n");
        }
    }
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "--dialects")) {
        show_dialects();
        return 0;
    }
    guarded = make_guarded(INPUT_MOST);
    if (argc == 2) {
        read_file(argv[1]);
        return 0;
    }
    read_many_headers();
    read_every_octet();
    printf("%lu readings as wanted\n", readings);
    return 0;
}
