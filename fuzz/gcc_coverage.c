/* Coverage of code that gcc compiled with -fsanitize-coverage=trace-pc, for libFuzzer, which only knows clang's kind.
   Preloaded in front of the library that holds libFuzzer: its counters stand for hashed places in the code. */
#include <stdint.h>

#define PLACES 16384

struct place {
    uintptr_t address, flags;
};

static uint8_t counters[PLACES];
static struct place places[PLACES];

void __sanitizer_cov_8bit_counters_init(uint8_t *start, uint8_t *end);
void __sanitizer_cov_pcs_init(const struct place *start, const struct place *end);
void __sanitizer_cov_trace_pc(void);

void __sanitizer_cov_trace_pc(void)
{
    uintptr_t at = (uintptr_t)__builtin_return_address(0);
    uint8_t *counter = &counters[(at ^ at >> 16) % PLACES];
    *counter += *counter < 255;
}

__attribute__((constructor)) static void register_counters(void)
{
    for (uintptr_t i = 0; i < PLACES; i++)
        places[i].address = (uintptr_t)&counters[i];
    __sanitizer_cov_8bit_counters_init(counters, counters + PLACES);
    __sanitizer_cov_pcs_init(places, places + PLACES);
}
