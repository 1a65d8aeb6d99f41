#include "stomp_write.h"

size_t stomp_write_slowly(uint8_t *out, const uint8_t *text, size_t len, int mode, int is_name)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        uint8_t c = text[i];
        uint8_t letter = 0;
        if (c == 0)
            return STOMP_REFUSED;
        if (mode <= STOMP_WRITE_1_1) {
            letter = c == '\n' ? 'n' : c == ':' ? 'c' : c == '\\' ? '\\' : c == '\r' && mode == STOMP_WRITE_1_2 ? 'r' : 0;
        } else if (c == '\n' || (c == '\r' && mode != STOMP_WRITE_1_0) || (c == ':' && is_name)
                   || (c < 32 && mode == STOMP_WRITE_LEGACY)) {
            return STOMP_REFUSED;
        }
        if (letter) {
            out[n++] = '\\';
            out[n++] = letter;
        } else {
            out[n++] = c;
        }
    }
    return n;
}
