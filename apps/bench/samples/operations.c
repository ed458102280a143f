/* What the cases do with Rubato, and the table that they do it to. */
#include <math.h>
#include <stdlib.h>

#include "apps/bench/bench.h"
#include "apps/bench/samples/samples.h"

/* The size of one Add that fills a table. */
enum { FILL_VALUES = 1 << 20, FILL_KEYS = 10000 };

/* Waits for a ticket, if there is one. */
static bool wait_for(const Bench *bench, RubatoTicket ticket, GError **error)
{
    return ticket != 0 && rubato_worker_wait(bench->worker, ticket, error);
}

/* Times the operation if somebody asks for it. */
#define EACH(bench, n, operation)                                           \
    for (size_t i_ = 0; i_ < (n); i_++) {                                   \
        const double began_ = (bench)->latencies == NULL ? 0 : bench_now(); \
        if (!(operation))                                                   \
            return false;                                                   \
        if ((bench)->latencies != NULL)                                     \
            (bench)->latencies[i_] = bench_now() - began_;                  \
    }                                                                       \
    return true

const RubatoKey *bench_next_keys(Bench *bench)
{
    const BenchCase *what = bench->what;

    return bench->keys + bench->turn++ % MAX(1, what->n_sets) * what->n_keys;
}

bool get_key(Bench *bench, size_t n, GError **error)
{
    EACH(bench, n, rubato_kv_table_get(bench->table, bench->keys, 1, bench->values, error));
}

bool add_key(Bench *bench, size_t n, GError **error)
{
    EACH(bench, n, rubato_kv_table_add(bench->table, bench->keys, 1, bench->values, error));
}

bool get_keys(Bench *bench, size_t n, GError **error)
{
    const size_t n_keys = bench->what->n_keys;

    EACH(bench, n,
         rubato_kv_table_get(bench->table, bench_next_keys(bench), n_keys, bench->values, error));
}

bool get_range(Bench *bench, size_t n, GError **error)
{
    const size_t n_keys = bench->what->n_keys;

    EACH(bench, n, rubato_kv_table_get_range(bench->table, 0, n_keys, bench->values, error));
}

bool call_norm(Bench *bench, size_t n, GError **error)
{
    const RubatoHandlerCall call = { .table = "bench", .handler = "norm" };

    EACH(bench, n, rubato_worker_call_handler(bench->worker, &call, NULL, error));
}

static bool add_keys(Bench *bench, size_t n, GError **error)
{
    const size_t n_keys = bench->what->n_keys;

    EACH(bench, n,
         rubato_kv_table_add(bench->table, bench_next_keys(bench), n_keys, bench->values, error));
}

static bool add_range(Bench *bench, size_t n, GError **error)
{
    const size_t n_keys = bench->what->n_keys;

    EACH(bench, n, rubato_kv_table_add_range(bench->table, 0, n_keys, bench->values, error));
}

/* A Get sees its worker's earlier Adds. Its row is thrown away, because bench->values must stay. */
static bool arrive(Bench *bench, GError **error)
{
    g_autofree float *row = g_new(float, bench_width(bench->what));

    return rubato_kv_table_get(bench->table, bench->keys, 1, row, error);
}

bool add_key_then_get(Bench *bench, size_t n, GError **error)
{
    return add_key(bench, n, error) && arrive(bench, error);
}

bool add_keys_then_get(Bench *bench, size_t n, GError **error)
{
    return add_keys(bench, n, error) && arrive(bench, error);
}

bool add_range_then_get(Bench *bench, size_t n, GError **error)
{
    return add_range(bench, n, error) && arrive(bench, error);
}

static RubatoKey hash_key(uint64_t row)
{
    return rubato_mix64(row + UINT64_C(0x9e3779b97f4a7c15)); /* different for each row */
}

/* Their hashes take a few instructions, which are part of the time. */
static bool add_new_keys(Bench *bench, size_t n, GError **error)
{
    const size_t n_keys = bench->what->n_keys;

    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < n_keys; k++)
            bench->keys[k] = hash_key(bench->n_rows + bench->next_row++);
        if (!rubato_kv_table_add(bench->table, bench->keys, n_keys, bench->values, error))
            return false;
    }
    return true;
}

bool add_new_keys_then_get(Bench *bench, size_t n, GError **error)
{
    return add_new_keys(bench, n, error) && arrive(bench, error);
}

bool push_key(Bench *bench, size_t n, GError **error)
{
    EACH(bench, n,
         wait_for(
             bench,
             rubato_kv_table_add_async(bench->table, bench->keys, 1, bench->values, NULL, error),
             error));
}

bool pull_key(Bench *bench, size_t n, GError **error)
{
    EACH(bench, n,
         wait_for(
             bench,
             rubato_kv_table_get_async(bench->table, bench->keys, 1, bench->values, NULL, error),
             error));
}

bool add_get_key(Bench *bench, size_t n, GError **error)
{
    const float one = 1;

    EACH(bench, n,
         rubato_kv_table_add_get(bench->table, bench->keys, 1, &one, bench->values, error));
}

static const RubatoRequestOptions borrowed = { .buffers = RUBATO_BUFFERS_BORROWED };

bool push_range(Bench *bench, size_t n, GError **error)
{
    EACH(bench, n,
         wait_for(bench,
                  rubato_kv_table_add_range_async(bench->table, 0, bench->what->n_keys,
                                                  bench->values, &borrowed, error),
                  error));
}

bool pull_range(Bench *bench, size_t n, GError **error)
{
    EACH(bench, n,
         wait_for(bench,
                  rubato_kv_table_get_range_async(bench->table, 0, bench->what->n_keys,
                                                  bench->values, &borrowed, error),
                  error));
}

bool iterate(Bench *bench, size_t n, GError **error)
{
    const size_t n_keys = bench->what->n_keys;

    EACH(bench, n,
         rubato_kv_table_get(bench->table, bench->keys, n_keys, bench->values, error) &&
             rubato_kv_table_add(bench->table, bench->keys, n_keys, bench->values, error) &&
             rubato_kv_table_clock(bench->table, error));
}

static bool iterate_once(Bench *bench, GError **error)
{
    const RubatoKey *keys = bench_next_keys(bench);
    const size_t n_keys = bench->what->n_keys;

    return rubato_kv_table_get(bench->table, keys, n_keys, bench->values, error) &&
           rubato_kv_table_add(bench->table, keys, n_keys, bench->values, error) &&
           rubato_kv_table_clock(bench->table, error);
}

static bool iterate_announced(Bench *bench, GError **error)
{
    return rubato_sparse_kv_client_table_get(bench->sparse, bench->values, error) &&
           rubato_sparse_kv_client_table_add(bench->sparse, bench->values, error);
}

bool iterate_fresh(Bench *bench, size_t n, GError **error)
{
    EACH(bench, n,
         bench->sparse == NULL ? iterate_once(bench, error) : iterate_announced(bench, error));
}

/* The keys of an iteration of a handle that announces them. */
static bool announce_next(uint64_t iteration, RubatoIteration *keys, void *user_data)
{
    Bench *bench = user_data;

    (void)iteration;
    *keys = (RubatoIteration){ bench_next_keys(bench), bench->what->n_keys };
    return true;
}

/* ---- the table ---- */

size_t bench_width(const BenchCase *what)
{
    return bench_is_ragged(what) ? BENCH_RAGGED_MOST_LENGTH : MAX(1, what->table.width);
}

RubatoKey bench_key(const BenchCase *what, uint64_t row)
{
    if (bench_is_dense(what))
        return row;
    return hash_key(row);
}

static int compare_keys(const void *a, const void *b)
{
    const RubatoKey x = *(const RubatoKey *)a, y = *(const RubatoKey *)b;

    return x < y ? -1 : x > y;
}

/* Row 0 is the most frequent. Of a continuous density 1/x between 1 and n + 1. */
static uint64_t zipf_row(GRand *random, uint64_t n_rows)
{
    const double x = exp(g_rand_double(random) * log((double)n_rows + 1));

    return MIN((uint64_t)x - 1, n_rows - 1);
}

static void choose_keys(Bench *bench)
{
    const BenchCase *what = bench->what;
    GRand *random = g_rand_new_with_seed(1 + rubato_worker_rank(bench->worker));
    const size_t n_keys = MAX(1, what->n_sets) * what->n_keys;

    bench->keys = g_new(RubatoKey, n_keys);
    bench->values = g_new(float, what->n_keys *bench_width(what));
    for (size_t i = 0; i < what->n_keys * bench_width(what); i++)
        bench->values[i] = 1;
    for (size_t i = 0; i < n_keys; i++) {
        const uint64_t row =
            what->keys == BENCH_KEYS_ZIPF
                ? zipf_row(random, bench->n_rows)
                : ((uint64_t)g_rand_int(random) << 32 | g_rand_int(random)) % bench->n_rows;
        bench->keys[i] = bench_key(what, row);
    }
    for (size_t i = 0; i < n_keys && what->keys != BENCH_KEYS_RANDOM; i += what->n_keys)
        qsort(bench->keys + i, what->n_keys, sizeof *bench->keys, compare_keys);
    g_rand_free(random);
}

bool bench_open_table(Bench *bench, GError **error)
{
    const RubatoModelTraits *traits = rubato_model_traits(bench->what->table.model);

    if (bench_is_ragged(bench->what)) {
        choose_keys(bench);
        return bench_open_ragged(bench, error);
    }
    bench->table = rubato_worker_open_kv_table(bench->worker, "bench", RUBATO_F32, error);
    if (bench->table == NULL)
        return false;
    choose_keys(bench);
    if (!traits->takes_announcements)
        return true;
    bench->sparse = rubato_worker_open_sparse_kv_client_table_with(
        bench->worker, "bench", RUBATO_F32, announce_next, bench, error);
    return bench->sparse != NULL;
}

static bool fill_dense(Bench *bench, const float *values, GError **error)
{
    const uint64_t step = FILL_VALUES / bench_width(bench->what);

    for (uint64_t row = 0; row < bench->n_rows; row += step)
        if (!rubato_kv_table_add_range(bench->table, row, MIN(step, bench->n_rows - row), values,
                                       error))
            return false;
    return true;
}

static bool fill_hashed(Bench *bench, const float *values, GError **error)
{
    g_autofree RubatoKey *keys = g_new(RubatoKey, FILL_KEYS);

    for (uint64_t row = 0; row < bench->n_rows;) {
        size_t n = 0;

        while (n < FILL_KEYS && row < bench->n_rows)
            keys[n++] = bench_key(bench->what, row++);
        if (!rubato_kv_table_add(bench->table, keys, n, values, error))
            return false;
    }
    return true;
}

bool bench_fill(Bench *bench, GError **error)
{
    const size_t of_keys = FILL_KEYS * bench_width(bench->what);
    const size_t n_values = MAX(FILL_VALUES, of_keys);
    g_autofree float *values = g_new(float, n_values);

    for (size_t i = 0; i < n_values; i++)
        values[i] = 1;
    if (bench_is_ragged(bench->what))
        return bench_fill_ragged(bench, values, n_values, error);
    return (bench_is_dense(bench->what) ? fill_dense(bench, values, error)
                                        : fill_hashed(bench, values, error)) &&
           arrive(bench, error);
}
