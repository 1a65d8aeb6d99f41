/* UTF-8 by blocks. */
#ifndef STOMP_UTF8_H
#define STOMP_UTF8_H

#include "stomp_block.h"

/* Find what is not UTF-8 in a block that begins with a character, and whose bytes `high` are above 127. Bit i of the result: byte
   i neither begins nor continues a character. *cut: the first byte of a character that ends behind the block, as a bit, or 0;
   bits above that one mean nothing. */
static STOMP_INLINE uint64_t stomp_utf8_errors(const struct stomp_isa *isa, const uint8_t *at, uint64_t high, uint64_t *cut)
{
    const uint64_t lead = isa->at_least(at, 0xc0), three = isa->at_least(at, 0xe0);
    uint64_t wanted = lead << 1, bad = lead & ~isa->at_least(at, 0xc2);
    *cut = lead & (uint64_t)1 << 63;
    if (three) { /* no overlong forms, no surrogates */
        const uint64_t four = isa->at_least(at, 0xf0), upper = isa->at_least(at, 0xa0);
        bad |= (isa->equal(at, 0xe0) << 1 & ~upper) | (isa->equal(at, 0xed) << 1 & upper);
        wanted |= three << 2;
        *cut |= three & (uint64_t)3 << 62;
        if (four) {
            const uint64_t not_first = isa->at_least(at, 0x90);
            bad |= isa->at_least(at, 0xf5) | (isa->equal(at, 0xf0) << 1 & ~not_first);
            bad |= isa->equal(at, 0xf4) << 1 & not_first;
            wanted |= four << 3;
            *cut |= four & (uint64_t)7 << 61;
        }
    }
    return bad | (wanted ^ (high & ~lead));
}

/* Return the index of a character at or before the first ill-formed sequence, or len. */
static STOMP_INLINE size_t stomp_utf8_blocks(const struct stomp_isa *isa, const uint8_t *text, size_t len)
{
    uint8_t padded[2 * STOMP_BLOCK];
    size_t i = 0;
    while (i < len) {
        const uint8_t *at = len - i < STOMP_BLOCK ? stomp_last_block(text, i, len, padded) : text + i;
        const uint64_t high = isa->at_least(at, 0x80);
        uint64_t cut = 0;
        if (high && stomp_utf8_errors(isa, at, high, &cut) & stomp_up_to(cut))
            return i;
        i += cut ? stomp_low_bit64(cut) : STOMP_BLOCK;
    }
    return len;
}

#endif
