/* What the cases do with rows of any length, and how long these are. */
#include "apps/bench/bench.h"
#include "apps/bench/samples/samples.h"

enum { FILL_ROWS = 10000 }; /* of one request */

bool bench_is_ragged(const BenchCase *what)
{
    return what->table.shape == RUBATO_SHAPE_RAGGED;
}

uint32_t bench_ragged_length(uint64_t row)
{
    return 1 + (uint32_t)(rubato_mix64(row + 1) % BENCH_RAGGED_MOST_LENGTH);
}

bool bench_open_ragged(Bench *bench, GError **error)
{
    bench->ragged = rubato_worker_open_ragged_table(bench->worker, "bench", RUBATO_F32, error);
    bench->lengths = g_new(uint32_t, MAX(bench->what->n_keys, FILL_ROWS));
    return bench->ragged != NULL;
}

/* values: as many as the rows of a request have at most. */
bool bench_fill_ragged(Bench *bench, const float *values, size_t n_values, GError **error)
{
    g_autofree RubatoKey *keys = g_new(RubatoKey, FILL_ROWS);

    for (uint64_t row = 0; row < bench->n_rows;) {
        size_t n = 0, n_written = 0;

        while (n < FILL_ROWS && row < bench->n_rows &&
               n_written + BENCH_RAGGED_MOST_LENGTH <= n_values) {
            bench->lengths[n] = bench_ragged_length(row);
            n_written += bench->lengths[n];
            keys[n++] = bench_key(bench->what, row++);
        }
        if (!rubato_ragged_table_assign(bench->ragged, keys, n, bench->lengths, values, error))
            return false;
    }
    return true;
}

bool get_ragged(Bench *bench, size_t n, GError **error)
{
    const size_t n_keys = bench->what->n_keys;

    for (size_t i = 0; i < n; i++)
        if (!rubato_ragged_table_get_into(bench->ragged, bench_next_keys(bench), n_keys,
                                          bench->lengths, bench->values,
                                          n_keys * BENCH_RAGGED_MOST_LENGTH, error))
            return false;
    return true;
}
