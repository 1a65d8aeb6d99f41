/* Memory that can be told to run out. The sources under test are compiled with malloc, calloc and realloc renamed to
   these. */
#include <stdlib.h>

long until_failure = -1; /* calls that still succeed before one fails; -1: all */

void *failing_malloc(size_t size);
void *failing_calloc(size_t count, size_t size);
void *failing_realloc(void *old, size_t size);

static int fails(void)
{
    return until_failure >= 0 && until_failure-- == 0;
}

void *failing_malloc(size_t size)
{
    return fails() ? NULL : malloc(size);
}

void *failing_calloc(size_t count, size_t size)
{
    return fails() ? NULL : calloc(count, size);
}

void *failing_realloc(void *old, size_t size)
{
    return fails() ? NULL : realloc(old, size);
}
