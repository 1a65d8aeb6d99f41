/* Frames that make no row, told by one header before their heads are taken apart: usual frames, which are checked as the scan
   does, but whose lines are not kept. Invariant: without it only the speed changes. */
#ifndef STOMP_SIEVE_H
#define STOMP_SIEVE_H

#include "stomp_head.h"
#include "stomp_wanted.h"

#define STOMP_LONGEST_PAUSE 64 /* frames */

struct stomp_sieve {
    const struct stomp_condition *by; /* NULL: no condition is fit */
    size_t most;                      /* a head with as many bytes is within all limits of lines */
    uint32_t pause, next_pause;       /* frames without a try: now, and after the next try in vain */
    size_t (*pass)(const struct stomp_sieve *, struct stomp_scan *, const struct stomp_rules *, const uint8_t *, size_t);
};

void stomp_sieve_init(struct stomp_sieve *sieve, const struct stomp_rules *rules, const struct stomp_wanted *wanted);

/* Pass over the frames at data that are usual and fail the condition. The scan has to be between two frames. Returns the bytes of
   those frames. Where most frames are others, it is tried seldom. */
static inline size_t stomp_sieve_pass(struct stomp_sieve *sieve, struct stomp_scan *scan, const struct stomp_rules *rules,
                                      const uint8_t *data, size_t len)
{
    if (!sieve->by || (sieve->pause && sieve->pause--))
        return 0;
    const size_t passed = sieve->pass(sieve, scan, rules, data, len);
    sieve->next_pause = passed ? 0 : sieve->next_pause < STOMP_LONGEST_PAUSE ? 2 * sieve->next_pause + 1 : STOMP_LONGEST_PAUSE;
    sieve->pause = sieve->next_pause;
    return passed;
}

#endif
