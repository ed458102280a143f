/* What the sources under check need and the checker replaces: time is the checker's, nobody looks
 * for a while before sleeping, and no block of memory is used twice in an execution. */
#include "io/net/link/block_pool.h"
#include "io/net/monotonic.h"
#include "io/net/spinner.h"

int64_t monotonic_ns(void)
{
    return weak_now_ms() * 1000000;
}

int64_t monotonic_ms(void)
{
    return weak_now_ms();
}

void monotonic_cond_init(pthread_cond_t *cond)
{
    (void)cond;
}

BlockPool *block_pool_new(void)
{
    return NULL;
}

void block_pool_free(BlockPool *pool)
{
    (void)pool;
}

void *block_pool_take(BlockPool *pool, size_t size)
{
    (void)pool;
    return g_try_malloc(size);
}

void block_pool_give(BlockPool *pool, void *block, size_t size)
{
    (void)pool;
    (void)size;
    g_free(block);
}

void spinner_init(Spinner *spinner)
{
    *spinner = (Spinner){ 0 };
}

void spinner_share(Spinner *spinner, uint32_t n_threads)
{
    spinner->n_sharing = n_threads;
}

/* Writes, as the real one: whoever has no right to the spinner makes a race. */
bool spinner_begin(Spinner *spinner, SpinnerEnd *end)
{
    spinner->n_failed++;
    (void)end;
    return false;
}

bool spinner_go_on(Spinner *spinner, SpinnerEnd *end)
{
    (void)spinner;
    (void)end;
    return false;
}

void spinner_found(Spinner *spinner)
{
    (void)spinner;
}

void spinner_note_origin(Spinner *spinner, int processor)
{
    (void)spinner;
    (void)processor;
}
