/* See tensor_gathered.h. */
#include "engine/collectives/work/tensor_gathered.h"

#include <glib.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { HUGE_PAGE_BYTES = 2 << 20, HUGE_FROM_PAGES = 2 };

void *tensor_gathered_new(uint64_t n_bytes)
{
    void *memory = NULL;

    if (n_bytes < (uint64_t)HUGE_PAGE_BYTES * HUGE_FROM_PAGES)
        return g_try_malloc(n_bytes);
    if (posix_memalign(&memory, HUGE_PAGE_BYTES, n_bytes) != 0)
        return NULL;
    /* advice: it works without them, slower; what is less than a page at the end stays as it is */
    (void)madvise(memory, n_bytes / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES, MADV_HUGEPAGE);
    return memory;
}
