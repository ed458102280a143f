/* Memory in huge pages: see huge_pages.h. */
#include "io/huge_pages.h"

#include <stdint.h>
#include <sys/mman.h>

#define HUGE_PAGE_BYTES ((size_t)2 << 20)
#define LEAST_BYTES (HUGE_PAGE_BYTES / 4)

static void *map(size_t n)
{
    void *const memory = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

static size_t round_up(size_t n)
{
    return (n + HUGE_PAGE_BYTES - 1) & ~(HUGE_PAGE_BYTES - 1);
}

/* The kernel need not begin where a huge page may: some do so only if it is asked for whole ones,
 * and some never. */
void *huge_pages_take(size_t n)
{
    unsigned char *memory;
    size_t n_bytes, before;

    if (n < LEAST_BYTES)
        return map(n > 0 ? n : 1);
    if (n > SIZE_MAX / 2)
        return NULL;
    n_bytes = round_up(n);
    memory = map(n_bytes + HUGE_PAGE_BYTES);
    if (memory == NULL)
        return NULL;
    before = -(uintptr_t)memory & (HUGE_PAGE_BYTES - 1);
    if (before > 0)
        (void)munmap(memory, before);
    (void)munmap(memory + before + n_bytes, HUGE_PAGE_BYTES - before);
    (void)madvise(memory + before, n_bytes, MADV_HUGEPAGE); /* advice */
    return memory + before;
}

void huge_pages_free(void *memory, size_t n)
{
    if (memory != NULL)
        (void)munmap(memory, n < LEAST_BYTES ? (n > 0 ? n : 1) : round_up(n));
}
