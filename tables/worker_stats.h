/* Counts for RubatoWorkerStats. rubato/task.h describes its members.
 *
 * Threads: the owner of the stats. */
#ifndef RUBATO_TABLES_WORKER_STATS_H
#define RUBATO_TABLES_WORKER_STATS_H

#include <rubato/task.h>

/* Monotonic. */
uint64_t worker_stats_now_ns(void);

/* A Get at that clock was answered; min_clock is the lowest of its answers. */
static inline void worker_stats_count_get(RubatoWorkerStats *stats, uint64_t clock,
                                          uint64_t min_clock)
{
    const uint64_t staleness = clock > min_clock ? clock - min_clock : 0;

    stats->n_gets++;
    stats->staleness_sum += staleness;
    stats->staleness_max = MAX(stats->staleness_max, staleness);
    stats->staleness[MIN(staleness, RUBATO_STALENESS_BUCKETS - 1)]++;
}

#endif
