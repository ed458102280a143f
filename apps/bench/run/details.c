/* More of what cases find out. */
#include "apps/bench/bench.h"

void bench_note_most(BenchDetails *details, size_t i, const char *name, double value)
{
    details->at[i] = (BenchDetail){ name, MAX(details->at[i].value, value) };
    details->n = MAX(details->n, i + 1);
}

void bench_note_mean(BenchDetails *details, size_t i, const char *name, double value)
{
    const double before = details->at[i].value;

    details->n_samples[i]++;
    details->at[i] =
        (BenchDetail){ name, before + (value - before) / (double)details->n_samples[i] };
    details->n = MAX(details->n, i + 1);
}
