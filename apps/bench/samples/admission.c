/* What admission costs: the same Adds to two tables at their bound, of which one admits all keys.
 * In one case each key comes twice, the second time when the caches have forgotten it: so each is
 * admitted. In the other half of each Add's keys have rows, and the rest come once: so they are
 * refused, and evict nothing. */
#include "apps/bench/bench.h"
#include "apps/bench/samples/samples.h"

enum { SETS_BETWEEN = 32 }; /* the first and the second Add to a key */

/* Sets the keys from position `at` on to the first n of a set. */
static void choose_keys(const Bench *bench, size_t at, size_t n, uint64_t set)
{
    for (size_t i = 0; i < n; i++)
        bench->keys[at + i] = bench_key(bench->what, set * bench->what->n_keys + i);
}

/* Adds to the keys, and waits until they have arrived. Adds up the seconds. */
static bool add_keys(const Bench *bench, RubatoKVTable *table, double *seconds, GError **error)
{
    const double began = bench_now();
    float value;

    if (!rubato_kv_table_add(table, bench->keys, bench->what->n_keys, bench->values, error) ||
        !rubato_kv_table_get(table, bench->keys, 1, &value, error))
        return false;
    *seconds += bench_now() - began;
    return true;
}

/* Both tables in turn, so that both see the same machine. */
typedef bool AddSets(const Bench *bench, RubatoKVTable *table, uint64_t set, double *seconds,
                     GError **error);

static bool add_to_both(const Bench *bench, AddSets *add, RubatoKVTable *plain, uint64_t set,
                        double seconds[2], GError **error)
{
    return add(bench, bench->table, set, &seconds[0], error) &&
           add(bench, plain, set, &seconds[1], error);
}

/* One set that is new, and one that comes again. */
static bool add_twice(const Bench *bench, RubatoKVTable *table, uint64_t set, double *seconds,
                      GError **error)
{
    const size_t n_keys = bench->what->n_keys;

    choose_keys(bench, 0, n_keys, set);
    if (!add_keys(bench, table, seconds, error))
        return false;
    if (set < SETS_BETWEEN)
        return true;
    choose_keys(bench, 0, n_keys, set - SETS_BETWEEN);
    return add_keys(bench, table, seconds, error);
}

/* Half a set that is new, and half of one of those that came twice when the table was filled: these
 * take turns. Two such Adds, as many as above. */
static bool add_rare(const Bench *bench, RubatoKVTable *table, uint64_t set, double *seconds,
                     GError **error)
{
    const size_t n_keys = bench->what->n_keys;
    const uint64_t n_filled = bench->n_rows / n_keys, n_known = MIN(n_filled / 2, SETS_BETWEEN);

    for (uint64_t i = 0; i < 2; i++) {
        choose_keys(bench, 0, n_keys / 2, 2 * set + i);
        choose_keys(bench, n_keys / 2, n_keys - n_keys / 2,
                    n_filled - MIN(n_filled, 2 * SETS_BETWEEN) + (2 * set + i) % n_known);
        if (!add_keys(bench, table, seconds, error))
            return false;
    }
    return true;
}

static bool sample_adds(Bench *bench, AddSets *add, size_t n, BenchSample *sample, GError **error)
{
    const uint64_t n_first = bench->n_rows / bench->what->n_keys;
    double unused[2] = { 0 }, seconds[2] = { 0 };
    g_autoptr(RubatoKVTable) plain =
        rubato_worker_open_kv_table(bench->worker, BENCH_PLAIN_TABLE, RUBATO_F32, error);

    if (plain == NULL)
        return false;
    for (; bench->next_row < n_first; bench->next_row++)
        if (!add_to_both(bench, add_twice, plain, bench->next_row, unused, error))
            return false;
    for (size_t i = 0; i < n; i += 2)
        if (!add_to_both(bench, add, plain, bench->next_row++, seconds, error))
            return false;

    const double n_keys = (double)(n + n % 2) * (double)bench->what->n_keys;

    *sample = (BenchSample){ .own = n_keys / seconds[0], .limit = n_keys / seconds[1] };
    return true;
}

bool sample_admission(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    return sample_adds(bench, add_twice, n, sample, error);
}

bool sample_admission_of_rare(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    return sample_adds(bench, add_rare, n, sample, error);
}
