#include "stomp_write.h"

/* How a special byte is written: 0 unchanged, -1 not at all, else by a backslash and this letter. */
static int letter_of(uint8_t c, int mode, int is_name)
{
    if (c == 0)
        return -1;
    if (mode <= STOMP_WRITE_1_1)
        return c == '\n' ? 'n' : c == ':' ? 'c' : c == '\\' ? '\\' : c == '\r' && mode == STOMP_WRITE_1_2 ? 'r' : 0;
    if (c == '\n' || (c == '\r' && mode != STOMP_WRITE_1_0) || (c == ':' && is_name) || (c < 32 && mode == STOMP_WRITE_LEGACY))
        return -1;
    return 0;
}

size_t stomp_write_escaped(uint8_t *out, const uint8_t *text, size_t len, int mode, int is_name)
{
    uint8_t *to = out;
    for (size_t i = 0; i < len; i += 16) {
        const size_t many = len - i < 16 ? len - i : 16;
        uint8_t part[32] = "                "; /* so that 16 bytes can be copied from each byte of the text on */
        memcpy(part, text + i, many);
        for (uint32_t bits = stomp_copy_16(to, part); bits; bits &= bits - 1) {
            const unsigned at = stomp_low_bit(bits);
            const int letter = letter_of(part[at], mode, is_name);
            if (letter < 0)
                return STOMP_REFUSED;
            if (!letter)
                continue;
            to[at] = '\\';
            to++; /* from here on, all bytes of the part are one place further */
            to[at] = (uint8_t)letter;
            memcpy(to + at + 1, part + at + 1, 16);
        }
        to += many;
    }
    return (size_t)(to - out);
}
