/* See scarce_memory.h. */
#include "tests/support/engine/scarce_memory.h"

#include <glib.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

static _Atomic bool is_scarce;
static _Atomic size_t least;           /* bytes */
static _Atomic uint64_t n_asked;       /* since it became scarce */
static _Atomic uint64_t n_failed;      /* of them */
static _Atomic uint64_t first_failing; /* counted from 1 */
static _Atomic uint64_t n_failing;     /* in a row */

static bool fails(size_t n_bytes)
{
    if (!is_scarce || n_bytes < least)
        return false;

    const uint64_t number = ++n_asked;
    const bool failing = number >= first_failing && number - first_failing < n_failing;

    n_failed += failing;
    return failing;
}

void scarce_memory_begin(size_t least_bytes, uint64_t first, uint64_t n)
{
    least = least_bytes;
    first_failing = first;
    n_failing = n;
    n_asked = n_failed = 0;
    is_scarce = true;
}

bool scarce_memory_end(void)
{
    is_scarce = false;
    return n_failed > 0;
}

#define WRAP(type, name, parameters, n_bytes, ...)                 \
    __typeof__(name) __real_##name, __wrap_##name;                 \
    type __wrap_##name parameters                                  \
    {                                                              \
        return fails(n_bytes) ? NULL : __real_##name(__VA_ARGS__); \
    }

WRAP(void *, g_try_malloc, (gsize n), n, n)
WRAP(void *, g_try_malloc0, (gsize n), n, n)
WRAP(void *, g_try_malloc_n, (gsize n, gsize size), n *size, n, size)
WRAP(void *, g_try_malloc0_n, (gsize n, gsize size), n *size, n, size)
WRAP(void *, g_try_realloc, (void *memory, gsize n), n, memory, n)
WRAP(void *, g_try_realloc_n, (void *memory, gsize n, gsize size), n *size, memory, n, size)
WRAP(void *, aligned_alloc, (size_t alignment, size_t n), n, alignment, n)

__typeof__(mmap) __real_mmap, __wrap_mmap;
void *__wrap_mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    return fails(n) ? MAP_FAILED : __real_mmap(at, n, protection, flags, fd, offset);
}
