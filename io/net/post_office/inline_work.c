/* See inline_work.h. */
#include "io/net/post_office/inline_work.h"

#include <glib.h>

#include "io/net/monotonic.h"

/* The most that one request may take, and when no other request of a batch begins. Both are short
 * beside a heartbeat. */
#define MOST_NS 5000000
#define MOST_OF_BATCH_NS 20000000

/* Whatever the requests before took: that of one piece of a request. */
#define MOST_VALUES ((uint64_t)1 << 17)

/* So many values of which nothing is known take as long as one request may. */
#define FIRST_VALUES 1024

/* By this factor more are allowed after one that was fast. */
#define UP_BY 8

void inline_work_init(InlineWork *work)
{
    *work = (InlineWork){ 0 };
    atomic_init(&work->most, FIRST_VALUES);
}

void inline_work_begin_batch(InlineWork *work)
{
    work->end_ns = 0;
    work->n_unmeasured = 0; /* the time between two batches is not theirs */
    work->is_over = false;
}

bool inline_work_takes_more(const InlineWork *work)
{
    return !work->is_over;
}

size_t inline_work_most(const InlineWork *work)
{
    /* Relaxed, here and below: an estimate, on which nothing else depends. */
    return work->is_over ? 0 : atomic_load_explicit(&work->most, memory_order_relaxed);
}

void inline_work_begin(InlineWork *work)
{
    if (work->n_unmeasured > 0)
        return;
    work->began_ns = monotonic_coarse_ns();
    if (work->end_ns == 0)
        work->end_ns = work->began_ns + MOST_OF_BATCH_NS;
}

void inline_work_end(InlineWork *work, size_t n_values, size_t n_released)
{
    work->n_unmeasured += 1 + n_values + n_released;
    if (work->n_unmeasured < INLINE_WORK_MEASURED)
        return;
    const int64_t now_ns = monotonic_coarse_ns();

    if (n_values < INLINE_WORK_MEASURED)
        inline_work_learn(work, work->n_unmeasured, now_ns - work->began_ns);
    work->n_unmeasured = 0;
    work->is_over = now_ns > work->end_ns;
}

void inline_work_learn(InlineWork *work, size_t n_values, int64_t ns)
{
    const uint32_t before = atomic_load_explicit(&work->most, memory_order_relaxed);
    const uint64_t most = ns <= MONOTONIC_TICK_NS
                              ? MIN((uint64_t)before * UP_BY, MOST_VALUES)
                              : CLAMP(MOST_NS * (uint64_t)n_values / (uint64_t)ns, 1, MOST_VALUES);

    if (most != before)
        atomic_store_explicit(&work->most, (uint32_t)most, memory_order_relaxed);
}
