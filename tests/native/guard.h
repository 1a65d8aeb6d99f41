/* Memory with a page behind and a page before it that must not be touched: reading one octet too many ends the program.
   A Python bytes object hides that mistake, for it owns a NUL to spare. */
#ifndef GUARD_H
#define GUARD_H

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "checks.h"

/* [first, last): whole pages that may be used, at least `size` octets. */
struct guarded {
    uint8_t *first, *last;
};

static inline struct guarded make_guarded(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (size + page - 1) / page * page;
    uint8_t *pages = mmap(NULL, room + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(pages != MAP_FAILED);
    MUST(mprotect(pages, page, PROT_NONE) == 0 && mprotect(pages + page + room, page, PROT_NONE) == 0);
    return (struct guarded){pages + page, pages + page + room};
}

static struct guarded guarded;

/* The octets right before the guard page. Some that lie before them are set to what was never sent. */
static inline const uint8_t *place_before_guard(const uint8_t *data, size_t len)
{
    size_t room = (size_t)(guarded.last - guarded.first);
    MUST(len <= room);
    memset(guarded.last - (len + 64 < room ? len + 64 : room), '\n', len + 64 < room ? 64 : room - len);
    if (len)
        memcpy(guarded.last - len, data, len);
    return guarded.last - len;
}

/* The octets right behind a guard page. */
static inline const uint8_t *place_behind_guard(const uint8_t *data, size_t len)
{
    size_t room = (size_t)(guarded.last - guarded.first);
    MUST(len <= room);
    if (len)
        memcpy(guarded.first, data, len);
    memset(guarded.first + len, '\n', room - len < 64 ? room - len : 64);
    return guarded.first;
}

#endif
