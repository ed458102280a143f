/* What admission costs: the same Adds to two tables, of which one admits all keys. Each key comes
 * twice, the second time when the caches have forgotten it. */
#include "apps/bench/bench.h"
#include "apps/bench/samples/samples.h"

enum { SETS_BETWEEN = 32 }; /* the first and the second Add to a key */

/* Adds to the keys of a set, and waits until they have arrived. Adds up the seconds. */
static bool add_set(Bench *bench, RubatoKVTable *table, uint64_t set, double *seconds,
                    GError **error)
{
    const size_t n_keys = bench->what->n_keys;
    double began;
    float value;

    for (size_t i = 0; i < n_keys; i++)
        bench->keys[i] = bench_key(bench->what, set * n_keys + i);
    began = bench_now();
    if (!rubato_kv_table_add(table, bench->keys, n_keys, bench->values, error) ||
        !rubato_kv_table_get(table, bench->keys, 1, &value, error))
        return false;
    *seconds += bench_now() - began;
    return true;
}

/* One set that is new, and one that comes again. Both tables in turn, so that both see the same
 * machine. */
static bool add_two_sets(Bench *bench, RubatoKVTable *plain, uint64_t set, double seconds[2],
                         GError **error)
{
    RubatoKVTable *const tables[] = { bench->table, plain };

    for (unsigned i = 0; i < G_N_ELEMENTS(tables); i++)
        if (!add_set(bench, tables[i], set, &seconds[i], error) ||
            (set >= SETS_BETWEEN &&
             !add_set(bench, tables[i], set - SETS_BETWEEN, &seconds[i], error)))
            return false;
    return true;
}

bool sample_admission(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    const uint64_t n_first = bench->n_rows / bench->what->n_keys;
    double unused[2] = { 0 }, seconds[2] = { 0 };
    g_autoptr(RubatoKVTable) plain =
        rubato_worker_open_kv_table(bench->worker, BENCH_PLAIN_TABLE, RUBATO_F32, error);

    if (plain == NULL)
        return false;
    for (; bench->next_row < n_first; bench->next_row++)
        if (!add_two_sets(bench, plain, bench->next_row, unused, error))
            return false;
    for (size_t i = 0; i < n; i += 2)
        if (!add_two_sets(bench, plain, bench->next_row++, seconds, error))
            return false;
    const double n_keys = (double)(n + n % 2) * (double)bench->what->n_keys;

    *sample = (BenchSample){ .own = n_keys / seconds[0], .limit = n_keys / seconds[1] };
    return true;
}
