/* Connections that are cut, by seed, under every model and handle: what a Get sees stays within the
 * model's bounds, and every Add takes effect once. And clocks that are as far apart as staleness
 * and speculation allow, with the same cuts. */
#include <pthread.h>

#include "tests/support/cluster/cluster_run.h"
#include "tests/support/cluster/outage.h"
#include "tests/support/engine/fitting_spec.h"
#include "tests/support/runner.h"

enum {
    N_KEYS = 40,
    CHUNK = 8,
    N_CLOCKS = 12,
    STALENESS = 1,
    SPECULATION = 1,
    FAR = 150, /* further than the window of clocks in which a model counts them */
};

static const char *const models[] = { "asp", "bsp", "ssp", "sparse_ssp" };

typedef enum { HANDLE_KV, HANDLE_CLIENT, HANDLE_CHUNKS, HANDLE_SPARSE, N_HANDLES } HandleKind;

typedef struct {
    const char *model;
    HandleKind kind;
    guint32 seed;
} Scene;

static const ClusterShape TWO = { .n_nodes = 2, .nodes = { { 1, 2 }, { 1, 2 } }, .over = "tcp" };

/* ---- one way to call for all handles ---- */

typedef struct {
    RubatoWorker *worker;
    HandleKind kind;
    RubatoKVTable *kv;
    RubatoKVTable *client;
    RubatoChunkTable *chunks;
    RubatoSparseKVClientTable *sparse;
    RubatoIteration *iterations; /* of the sparse one: all keys, N_CLOCKS times */
} Handle;

static bool open_handle(RubatoWorker *worker, HandleKind kind, const RubatoKey *keys,
                        Handle *handle, GError **error)
{
    *handle = (Handle){ .worker = worker, .kind = kind };
    switch (kind) {
    case HANDLE_KV:
        handle->kv = rubato_worker_open_kv_table(worker, "counts", RUBATO_I64, error);
        return handle->kv != NULL;
    case HANDLE_CLIENT:
        handle->client = rubato_worker_open_kv_table_cached(worker, "counts", RUBATO_I64, error);
        return handle->client != NULL;
    case HANDLE_CHUNKS:
        handle->chunks = rubato_worker_open_chunk_table(worker, "counts", RUBATO_I64, error);
        return handle->chunks != NULL;
    case HANDLE_SPARSE:
        handle->iterations = g_new(RubatoIteration, N_CLOCKS);
        for (uint32_t i = 0; i < N_CLOCKS; i++)
            handle->iterations[i] = (RubatoIteration){ keys, N_KEYS };
        handle->sparse = rubato_worker_open_sparse_kv_client_table(
            worker, "counts", RUBATO_I64, handle->iterations, N_CLOCKS, error);
        return handle->sparse != NULL;
    case N_HANDLES:
        break;
    }
    return false;
}

static void close_handle(Handle *handle)
{
    rubato_kv_table_free(handle->kv);
    rubato_kv_table_free(handle->client);
    rubato_chunk_table_free(handle->chunks);
    rubato_sparse_kv_client_table_free(handle->sparse);
    g_free(handle->iterations);
}

static const uint64_t chunks[] = { 4, 1, 0, 3, 2 };

static bool get_all(Handle *handle, const RubatoKey *keys, int64_t *values, GError **error)
{
    switch (handle->kind) {
    case HANDLE_KV:
        return rubato_kv_table_get(handle->kv, keys, N_KEYS, values, error);
    case HANDLE_CLIENT: {
        const RubatoTicket ticket =
            rubato_kv_table_get_async(handle->client, keys, N_KEYS, values, NULL, error);

        return ticket != 0 && rubato_worker_wait(handle->worker, ticket, error);
    }
    case HANDLE_CHUNKS:
        return rubato_chunk_table_get_chunks(handle->chunks, chunks, N_KEYS / CHUNK, values, error);
    case HANDLE_SPARSE:
        return rubato_sparse_kv_client_table_get(handle->sparse, values, error);
    case N_HANDLES:
        break;
    }
    return false;
}

/* Ends the iteration as well, unless the handle does that itself. */
static bool add_all(Handle *handle, const RubatoKey *keys, const int64_t *deltas, GError **error)
{
    switch (handle->kind) {
    case HANDLE_KV:
        return rubato_kv_table_add(handle->kv, keys, N_KEYS, deltas, error) &&
               rubato_kv_table_clock(handle->kv, error);
    case HANDLE_CLIENT: /* the next Get waits for the ticket, or else the freeing of the handle */
        return rubato_kv_table_add_async(handle->client, keys, N_KEYS, deltas, NULL, error) != 0 &&
               rubato_kv_table_clock(handle->client, error);
    case HANDLE_CHUNKS:
        return rubato_chunk_table_add_chunks(handle->chunks, chunks, N_KEYS / CHUNK, deltas,
                                             error) &&
               rubato_chunk_table_clock(handle->chunks, error);
    case HANDLE_SPARSE:
        return rubato_sparse_kv_client_table_add(handle->sparse, deltas, error);
    case N_HANDLES:
        break;
    }
    return false;
}

/* ---- cuts under every model and handle ---- */

/* The bounds of a row's value when every worker adds 1 to every row in each clock. */
static void find_bounds(const char *model, int64_t clock, int64_t n_workers, int64_t *low,
                        int64_t *high)
{
    const int64_t others = n_workers - 1, behind = MAX(0, clock - STALENESS);

    if (g_str_equal(model, "bsp")) {
        *low = *high = n_workers * clock;
    } else if (g_str_equal(model, "asp")) {
        *low = clock;
        *high = clock + others * N_CLOCKS;
    } else { /* all keys of all iterations collide: speculation lets nobody ahead */
        const int64_t ahead = clock + STALENESS + 1;

        *low = clock + others * behind;
        *high = clock + others * MIN(ahead, N_CLOCKS);
    }
}

/* Cuts a connection of this node now and then. The seed decides which, and when. */
static void cut_by_chance(GRand *rand, unsigned one_in)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the resets, of all workers */

    if (g_rand_int_range(rand, 0, (gint32)one_in) != 0)
        return;
    pthread_mutex_lock(&lock);
    (void)outage_reset_connections(1 + g_rand_int(rand) % 2);
    pthread_mutex_unlock(&lock);
}

static bool count_on(RubatoWorker *worker, const Scene *scene, Handle *handle,
                     const RubatoKey *keys, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker);
    g_autoptr(GRand) rand = g_rand_new_with_seed(scene->seed * 100 + rank);
    int64_t values[N_KEYS], ones[N_KEYS], low, high;

    for (uint32_t i = 0; i < N_KEYS; i++)
        ones[i] = 1;
    for (int64_t clock = 0; clock < N_CLOCKS; clock++) {
        cut_by_chance(rand, 4);
        if (!get_all(handle, keys, values, error))
            return false;
        find_bounds(scene->model, clock, rubato_worker_n_workers(worker), &low, &high);
        for (uint32_t i = 0; i < N_KEYS; i++)
            EXPECT(values[i] >= low && values[i] <= high,
                   "%s, handle %d, seed %u: worker %u at clock %d sees %d, expected %d to %d",
                   scene->model, scene->kind, scene->seed, rank, (int)clock, (int)values[i],
                   (int)low, (int)high);
        cut_by_chance(rand, 4);
        if (!add_all(handle, keys, ones, error))
            return false;
    }
    return true;
}

static bool count(RubatoWorker *worker, void *user_data, GError **error)
{
    const Scene *scene = user_data;
    RubatoKey keys[N_KEYS];
    Handle handle;
    bool ok;

    for (uint32_t i = 0; i < N_KEYS; i++)
        keys[i] = (i * 7) % N_KEYS; /* in no order */
    ok = open_handle(worker, scene->kind, keys, &handle, error) &&
         count_on(worker, scene, &handle, keys, error);
    close_handle(&handle);
    return ok;
}

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    const Scene *scene = data;
    const char *const tables[] = { "counts", NULL };
    const RubatoTableSpec spec = fitting_spec((RubatoTableSpec){ .name = "counts",
                                                                 .dtype = RUBATO_I64,
                                                                 .n_keys = N_KEYS,
                                                                 .chunk_size = CHUNK,
                                                                 .model = scene->model,
                                                                 .staleness = STALENESS,
                                                                 .speculation = SPECULATION,
                                                                 .cache = RUBATO_CACHE_REMOTE });
    const int64_t expected = (int64_t)rubato_engine_n_workers(engine) * N_CLOCKS;
    int64_t values[N_KEYS];

    if (!rubato_engine_create_table(engine, &spec, error) ||
        !cluster_run_task(engine, "count", count, scene, tables, error) ||
        !rubato_engine_get_range(engine, "counts", 0, N_KEYS, values, error))
        return false;
    for (uint32_t i = 0; i < N_KEYS; i++)
        EXPECT(values[i] == expected, "key %u is %d at last, expected %d", i, (int)values[i],
               (int)expected);
    /* No worker leaves before all have read. */
    return rubato_engine_drop_table(engine, "counts", error);
}

START_TEST(cuts_change_nothing_under_any_model_and_handle)
{
    const Scene scene = { .model = models[_i / N_HANDLES],
                          .kind = (HandleKind)(_i % N_HANDLES),
                          .seed = (guint32)_i };
    ClusterRun *run = cluster_run_new(&TWO);

    cluster_start(run, play, &scene);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- clocks that are far apart ---- */

/* The first worker runs ahead as far as it may while the other is at clock 0, in a barrier; then
 * the other follows. The case tests that each Get is answered; otherwise the barrier would not be
 * passed. */
typedef struct {
    const char *model;
    uint32_t staleness, speculation;
    uint64_t lead; /* by how many clocks a Get may be ahead */
} Apart;

static const Apart apart[] = {
    { "asp", 0, 0, FAR },
    { "ssp", FAR, 0, FAR },
    { "sparse_ssp", 10, FAR - 10, FAR },
    { "sparse_ssp", 0, 64, 64 },
};

static bool go_ahead(RubatoWorker *worker, const Apart *scene, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker);
    const RubatoKey key = 2 * rank; /* they use different ones */
    const bool is_sparse = g_str_equal(scene->model, "sparse_ssp");
    const size_t n = (size_t)scene->lead + 1;
    g_autoptr(GRand) rand = g_rand_new_with_seed(rank);
    g_autofree RubatoIteration *iterations = g_new(RubatoIteration, n);
    g_autoptr(RubatoKVTable) kv = NULL;
    g_autoptr(RubatoSparseKVClientTable) sparse = NULL;
    const int64_t one = 1;
    int64_t value;

    for (size_t i = 0; i < n; i++)
        iterations[i] = (RubatoIteration){ &key, 1 };
    if (is_sparse)
        sparse = rubato_worker_open_sparse_kv_client_table(worker, "counts", RUBATO_I64, iterations,
                                                           n, error);
    else
        kv = rubato_worker_open_kv_table(worker, "counts", RUBATO_I64, error);
    if ((kv == NULL && sparse == NULL) || !rubato_worker_barrier(worker, error) || /* all told */
        (rank == 1 && !rubato_worker_barrier(worker, error)))
        return false;
    for (size_t clock = 0; clock < n; clock++) {
        cut_by_chance(rand, 40);
        if (is_sparse ? !rubato_sparse_kv_client_table_get(sparse, &value, error)
                      : !rubato_kv_table_get(kv, &key, 1, &value, error))
            return false;
        EXPECT(value == (int64_t)clock, "at clock %d it is %d", (int)clock, (int)value);
        if (is_sparse ? !rubato_sparse_kv_client_table_add(sparse, &one, error)
                      : !rubato_kv_table_add(kv, &key, 1, &one, error) ||
                            !rubato_kv_table_clock(kv, error))
            return false;
    }
    return rank == 1 || rubato_worker_barrier(worker, error);
}

static bool go(RubatoWorker *worker, void *user_data, GError **error)
{
    return go_ahead(worker, user_data, error);
}

static bool play_apart(RubatoEngine *engine, const void *data, GError **error)
{
    const Apart *scene = data;
    const char *const tables[] = { "counts", NULL };
    const RubatoTableSpec spec =
        fitting_spec((RubatoTableSpec){ .name = "counts",
                                        .dtype = RUBATO_I64,
                                        .n_keys = 4,
                                        .model = scene->model,
                                        .staleness = scene->staleness,
                                        .speculation = scene->speculation });
    int64_t values[4];

    if (!rubato_engine_create_table(engine, &spec, error) ||
        !cluster_run_task(engine, "apart", go, scene, tables, error) ||
        !rubato_engine_get_range(engine, "counts", 0, 4, values, error))
        return false;
    for (uint32_t i = 0; i < 4; i++)
        EXPECT(values[i] == (i % 2 == 0 ? (int64_t)scene->lead + 1 : 0), "key %u is %d", i,
               (int)values[i]);
    return rubato_engine_drop_table(engine, "counts", error);
}

START_TEST(a_worker_goes_as_far_ahead_as_it_may)
{
    const ClusterShape shape = { .n_nodes = 2, .nodes = { { 1, 1 }, { 1, 1 } }, .over = "tcp" };
    ClusterRun *run = cluster_run_new(&shape);

    cluster_start(run, play_apart, &apart[_i]);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

static Suite *cuts_suite(void)
{
    Suite *suite = suite_create("cut connections");
    TCase *cuts = cluster_add_case(suite, "cuts");
    TCase *far = cluster_add_case(suite, "far apart");

    tcase_add_loop_test(cuts, cuts_change_nothing_under_any_model_and_handle, 0,
                        (int)G_N_ELEMENTS(models) * N_HANDLES);
    tcase_add_loop_test(far, a_worker_goes_as_far_ahead_as_it_may, 0, (int)G_N_ELEMENTS(apart));
    return suite;
}

int main(void)
{
    return run_suite(cuts_suite());
}
