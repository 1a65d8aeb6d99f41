/* Header text by tables and by rules, right before and right behind a page that must not be touched. */
#include "checks.h"

static unsigned long checked;

/* ---- escapes ---- */

/* Escapes at each two places of a text: runs of plain octets are copied 8 at a time. */
static void check_runs(placer *place)
{
    static const char letters[] = "ncr\\x";
    char wire[40], text[40];
    uint8_t out[sizeof wire];
    for (size_t len = 2; len < sizeof wire; len++)
        for (size_t first = 0; first + 1 < len; first++)
            for (size_t second = first + 2; second < len; second++, checked++) {
                size_t to = 0, bad = len;
                memset(wire, 'y', len);
                wire[first] = wire[second] = '\\';
                wire[first + 1] = letters[len % 5];
                if (second + 1 < len)
                    wire[second + 1] = 'n';
                for (size_t i = 0; i < len; i++) {
                    static const char plain[] = "\n:\r\\";
                    const char *letter = wire[i] == '\\' && i + 1 < len ? memchr(letters, wire[i + 1], 4) : NULL;
                    bad = wire[i] == '\\' && !letter && bad == len ? i : bad;
                    text[to++] = letter ? plain[letter - letters] : wire[i];
                    i += letter != NULL;
                }
                const uint8_t *placed = place((const uint8_t *)wire, len);
                MUST(stomp_unescape(out, placed, len, 2) == to && !memcmp(out, text, to));
                MUST(stomp_bad_escape(placed, len, 2) == bad);
            }
}

/* ---- writing ---- */

/* What one octet becomes in a value and in a name; NULL: refused. */
static const char *written_as(uint8_t c, int mode, int is_name)
{
    static char same[2];
    same[0] = (char)c;
    if (c == 0)
        return NULL;
    if (mode == STOMP_WRITE_1_2 || mode == STOMP_WRITE_1_1) {
        if (c == '\n' || c == ':' || c == '\\')
            return c == '\n' ? "\\n" : c == ':' ? "\\c" : "\\\\";
        return c == '\r' && mode == STOMP_WRITE_1_2 ? "\\r" : same;
    }
    if (c == '\n' || (c == ':' && is_name) || (c == '\r' && mode != STOMP_WRITE_1_0) || (c < 32 && mode == STOMP_WRITE_LEGACY))
        return NULL;
    return same;
}

/* Each octet at each place of texts of each small length: the writer works on 16 octets at a time. */
static void check_writing(placer *place)
{
    uint8_t text[50], out[2 * sizeof text + 16];
    for (unsigned c = 0; c < 256; c++)
        for (size_t len = 1; len <= sizeof text; len++)
            for (size_t at = 0; at < len; at += len > 9 ? 3 : 1)
                for (int mode = STOMP_WRITE_1_2; mode <= STOMP_WRITE_LEGACY; mode++, checked++) {
                    memset(text, 'x', len);
                    text[at] = (uint8_t)c;
                    int is_name = (int)(len + at) % 2;
                    const char *want = written_as((uint8_t)c, mode, is_name);
                    size_t size = stomp_write_text(out, place(text, len), len, mode, is_name);
                    if (!want) {
                        MUST(size == STOMP_REFUSED);
                        continue;
                    }
                    MUST(size == len - 1 + strlen(want) && !memcmp(out + at, want, strlen(want)));
                    MUST(!at || out[at - 1] == 'x');
                    MUST(at + 1 == len || out[size - 1] == 'x');
                }
}

/* ---- UTF-8 ---- */

/* The table of Unicode (3.9, well-formed sequences), an octet at a time. */
static int well_formed(const uint8_t *s, size_t len)
{
    uint8_t low = 0x80, high = 0xbf;
    if (len == 0 || (s[0] > 0x7f && s[0] < 0xc2) || s[0] > 0xf4)
        return 0;
    if (s[0] < 0x80)
        return 1;
    size_t size = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    low = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : low;
    high = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : high;
    for (size_t i = 1; i < size; i++, low = 0x80, high = 0xbf)
        if (i >= len || s[i] < low || s[i] > high)
            return 0;
    return (int)size;
}

static void check_utf8_at(const uint8_t *sequence, size_t len, size_t before, placer *place)
{
    uint8_t text[32];
    memset(text, 'x', sizeof text);
    memcpy(text + before, sequence, len);
    for (size_t after = 0; after < 2; after++, checked++) {
        size_t size = before + len + after, want = before;
        while (want < size && well_formed(text + want, size - want))
            want += (size_t)well_formed(text + want, size - want);
        MUST(stomp_bad_utf8(place(text, size), size) == want);
    }
}

static void check_utf8(placer *place)
{
    static const uint8_t edges[] = {0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc2, 0xe0, 0xed, 0xf4, 0xff};
    uint8_t s[4];
    for (unsigned first = 0; first < 256; first++)
        for (size_t i = 0; i < sizeof edges; i++)
            for (size_t k = 0; k < sizeof edges; k++) {
                s[0] = (uint8_t)first;
                s[1] = edges[i];
                s[2] = edges[k];
                s[3] = edges[(i + k) % sizeof edges];
                for (size_t len = 1; len <= 4; len++)
                    check_utf8_at(s, len, (i + k) % 9, place);
            }
}

/* Texts longer than two blocks, with one octet of a valid text set to each value that begins or ends a range. */
static void check_long_utf8(placer *place)
{
    static const char unit[] = "x\xc3\xa9\xe6\x9d\xb1\xf0\x9f\x98\x80\xed\x9f\xbf\xe0\xa0\x80\xf4\x8f\xbf\xbf\xdf\xbf";
    static const uint8_t edges[] = {0x41, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xe0, 0xed, 0xf0, 0xf4, 0xf5, 0xff};
    uint8_t text[160];
    for (size_t first = 0; first < sizeof unit - 1; first++)
        for (size_t at = 0; at < sizeof text; at++)
            for (size_t i = 0; i < sizeof edges; i++, checked++) {
                size_t size = sizeof text - at % 3, want = 0;
                for (size_t k = 0; k < sizeof text; k++)
                    text[k] = k < first ? 'x' : (uint8_t)unit[(k - first) % (sizeof unit - 1)];
                text[at] = edges[i];
                while (want < size && well_formed(text + want, size - want))
                    want += (size_t)well_formed(text + want, size - want);
                MUST(stomp_bad_utf8(place(text, size), size) == want);
            }
}

int main(void)
{
    placer *const places[] = {place_before_guard, place_behind_guard};
    guarded = make_guarded(64);
    for (size_t p = 0; p < 2; p++) {
        check_runs(places[p]);
        check_writing(places[p]);
        check_utf8(places[p]);
        check_long_utf8(places[p]);
    }
    printf("%lu texts as wanted\n", checked);
    return 0;
}
