/* See cluster_counts.h. */
#include "tests/support/cluster/cluster_counts.h"

#include <glib.h>

/* The reader's own Adds of clocks before its own are there in any case. All keys of all iterations
 * collide, so speculation lets no worker run ahead. */
static double find_lowest(const CountRules *rules, uint64_t clock, uint64_t n_workers)
{
    const uint64_t behind = clock > rules->staleness ? clock - rules->staleness : 0;

    if (g_str_equal(rules->model, "bsp"))
        return (double)(n_workers * clock);
    if (g_str_equal(rules->model, "asp"))
        return (double)clock;
    return (double)(clock + (n_workers - 1) * behind);
}

static double find_highest(const CountRules *rules, uint64_t clock, uint64_t n_workers)
{
    const uint64_t ahead = clock + rules->staleness + rules->n_early;

    if (g_str_equal(rules->model, "bsp"))
        return (double)(n_workers * clock);
    if (g_str_equal(rules->model, "asp"))
        return (double)(clock + (n_workers - 1) * rules->n_clocks);
    return (double)(clock + (n_workers - 1) * MIN(ahead, rules->n_clocks));
}

bool cluster_check_counts(const CountRules *rules, const RubatoWorker *worker, uint64_t clock,
                          uint64_t until, const double *values, size_t n, GError **error)
{
    const uint32_t n_workers = rubato_worker_n_workers(worker);
    const bool is_exact = g_str_equal(rules->model, "bsp");
    const double low = find_lowest(rules, clock, n_workers);
    const double high = find_highest(rules, is_exact ? clock : until, n_workers);

    for (size_t i = 0; i < n; i++)
        EXPECT(values[i] >= low && values[i] <= high,
               "%s: worker %u at clock %" G_GUINT64_FORMAT " sees %g, expected %g to %g",
               rules->model, rubato_worker_rank(worker), clock, values[i], low, high);
    return true;
}
