/* Pure functions, and the time. */
#include "tables/worker_stats.h"

#include <time.h>

/* A program may keep them as rows of a table of 64-bit values, so they have no padding. */
G_STATIC_ASSERT(sizeof(RubatoWorkerStats) == (9 + RUBATO_STALENESS_BUCKETS) * sizeof(uint64_t));

uint64_t worker_stats_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void rubato_worker_stats_add(RubatoWorkerStats *to, const RubatoWorkerStats *from)
{
    g_return_if_fail(to != NULL && from != NULL);
    to->n_gets += from->n_gets;
    to->n_adds += from->n_adds;
    to->n_clocks += from->n_clocks;
    to->n_barriers += from->n_barriers;
    to->get_wait_ns += from->get_wait_ns;
    to->send_wait_ns += from->send_wait_ns;
    to->barrier_wait_ns += from->barrier_wait_ns;
    to->staleness_sum += from->staleness_sum;
    to->staleness_max = MAX(to->staleness_max, from->staleness_max);
    for (size_t i = 0; i < RUBATO_STALENESS_BUCKETS; i++)
        to->staleness[i] += from->staleness[i];
}
