/* Parts with replicas, on nodes that are processes: whatever workers and engines do to a table, and
 * whatever happens on the wire, each replica ends with the bytes of its primary, after the same
 * inputs. */
#include <rubato/handler_ops.h>
#include <rubato/plugin.h>
#include <string.h>

#include "engine/engine_private.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/engine/ragged_lists.h"
#include "tests/support/engine/shard_digest.h"
#include "tests/support/runner.h"

enum {
    N_NODES = 3,
    N_KEYS = 60,
    WIDTH = 3,
    N_CLOCKS = 4,
    MOST_KEYS = 9,
    N_PARTS = 5,
    ARGUMENT_BYTES = 540000
};

static const RubatoTableSpec specs[] = {
    { .name = "asp", .model = "asp", .storage = "hash", .update = "adam" },
    { .name = "bsp", .model = "bsp", .n_keys = N_KEYS, .update = "momentum" },
    { .name = "mean",
      .model = "bsp",
      .storage = "hash",
      .aggregate = RUBATO_AGGREGATE_MEAN,
      .update = "adagrad" },
    { .name = "ssp", .model = "ssp", .staleness = 1, .n_keys = N_KEYS, .update = "add" },
    { .name = "created",
      .model = "ssp",
      .staleness = 1,
      .storage = "hash",
      .create_on_get = true,
      .update = "adagrad" },
    { .name = "bounded",
      .model = "bsp",
      .storage = "hash",
      .max_bytes = 20 << 20,
      .update = "add" },
    { .name = "expiring",
      .model = "asp",
      .storage = "hash",
      .expire = "seconds",
      .expire_after = 1000,
      .update = "add" },
    { .name = "sparse",
      .model = "sparse_ssp",
      .staleness = 1,
      .speculation = 2,
      .n_keys = N_KEYS,
      .update = "adagrad" },
};
enum { N_TABLES = G_N_ELEMENTS(specs), SPARSE = N_TABLES - 1 };

typedef struct {
    const char *over;
    const char *faults; /* RUBATO_FAULTS; NULL: none */
    uint32_t n_replicas;
    RaggedLists lists; /* a table of ragged rows besides */
} Wire;

enum { LIST_CLOCKS = 6 };

static const Wire wires[] = {
    { "shm", NULL, 1, { .model = "bsp", .n_clocks = LIST_CLOCKS, .scale = 1 } },
    { "tcp",
      "double=0.2,reorder=0.005,seed=11",
      1,
      { .model = "ssp", .staleness = 2, .n_clocks = LIST_CLOCKS, .scale = 40 } },
    { "shm",
      "drop=0.0005,double=0.2,reorder=0.005,seed=12",
      2,
      { .model = "asp", .is_hashed = true, .n_clocks = LIST_CLOCKS, .scale = 300 } },
    { "tcp",
      "delay=1ms,seed=13",
      2,
      { .model = "bsp", .is_hashed = true, .n_clocks = LIST_CLOCKS, .scale = 1 } },
};

static size_t draw(uint64_t *state, RubatoKey *keys, float *deltas)
{
    const size_t n = 1 + random_below(state, MOST_KEYS);

    for (size_t i = 0; i < n; i++)
        keys[i] = random_below(state, N_KEYS);
    for (size_t i = 0; i < n * WIDTH; i++)
        deltas[i] = (float)random_below(state, 1000) / 997.0f - 0.5f;
    return n;
}

/* Scales the rows of its call, and fails for some arguments when it has done half of them. */
static bool run_half(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                     GError **error)
{
    const uint32_t how = rubato_read_u32(arguments);
    RubatoPartRows rows;

    (void)result;
    while (rubato_part_next(part, &rows))
        for (size_t i = 0; i < (how == 0 ? rows.n / 2 : rows.n); i++)
            for (size_t at = 0; at < WIDTH; at++)
                ((float *)rubato_part_rows_row(&rows, i))[at] *= 1.0f + (float)how / 7;
    if (how != 0)
        return true;
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "it has had enough");
    return false;
}

static const RubatoHandlerOps half = { .name = "half",
                                       .access = RUBATO_ACCESS_WRITES,
                                       .run = run_half };

/* On some keys, with as many bytes as make several messages now and then; or on all rows. */
static RubatoHandlerCall draw_call(uint64_t *state, const char *table, const RubatoKey *keys,
                                   size_t n, char *arguments)
{
    const bool is_long = random_below(state, 16) == 0;
    const uint32_t how = random_below(state, 4);

    memcpy(arguments, &how, sizeof how);
    return (RubatoHandlerCall){ .table = table,
                                .handler = "half",
                                .arguments = arguments,
                                .n_argument_bytes = is_long ? ARGUMENT_BYTES : sizeof how,
                                .scope = random_below(state, 3) == 0 ? RUBATO_SCOPE_TABLE
                                                                     : RUBATO_SCOPE_KEYS,
                                .keys = keys,
                                .n_keys = n };
}

/* A failure is told at once, or by a clock. */
static bool forgive(bool ok, GError **found, GError **error)
{
    if (!ok && g_error_matches(*found, RUBATO_ERROR, RUBATO_ERROR_HANDLER)) {
        g_clear_error(found);
        return true;
    }
    if (!ok)
        g_propagate_error(error, *found);
    return ok;
}

static bool call(RubatoWorker *worker, const char *table, uint64_t *state, GError **error)
{
    RubatoKey keys[MOST_KEYS];
    float deltas[MOST_KEYS * WIDTH];
    GError *found = NULL;
    g_autofree char *arguments = g_malloc0(ARGUMENT_BYTES);
    const size_t n = draw(state, keys, deltas);
    const RubatoHandlerCall asked = draw_call(state, table, keys, n, arguments);

    return forgive(rubato_worker_call_handler(worker, &asked, NULL, &found), &found, error);
}

static bool clock_on(RubatoKVTable *table, GError **error)
{
    GError *found = NULL;

    while (!rubato_kv_table_clock(table, &found)) /* it tells a failure once */
        TRY(forgive(false, &found, error));
    return true;
}

static bool use(RubatoWorker *worker, const RubatoTableSpec *spec, RubatoKVTable *table,
                uint64_t *state, GError **error)
{
    RubatoKey keys[MOST_KEYS];
    float deltas[MOST_KEYS * WIDTH], rows[N_KEYS * WIDTH];
    size_t n;

    for (uint32_t i = random_below(state, 4); i > 0; i--) {
        n = draw(state, keys, deltas);
        TRY(rubato_kv_table_add(table, keys, n, deltas, error));
    }
    n = draw(state, keys, deltas);
    if (random_below(state, 3) == 0)
        TRY(rubato_kv_table_add_get(table, keys, n, deltas, rows, error));
    if (random_below(state, 8) == 0 && strcmp(spec->update, "add") != 0)
        TRY(rubato_worker_tune(worker, spec->name, RUBATO_HYPER_LEARNING_RATE,
                               0.01 * (1 + random_below(state, 9)), error));
    for (uint32_t i = random_below(state, 3); i > 0; i--)
        TRY(call(worker, spec->name, state, error));
    TRY(random_below(state, 3) == 0 || rubato_kv_table_get_range(table, 0, N_KEYS, rows, error));
    return clock_on(table, error);
}

/* A worker announces the keys that it will use. */
static bool use_sparse(RubatoWorker *worker, uint64_t *state, GError **error)
{
    RubatoKey keys[N_CLOCKS][MOST_KEYS];
    float deltas[MOST_KEYS * WIDTH], rows[MOST_KEYS * WIDTH];
    RubatoIteration iterations[N_CLOCKS];

    for (uint32_t i = 0; i < N_CLOCKS; i++)
        iterations[i] = (RubatoIteration){ keys[i], draw(state, keys[i], deltas) };
    g_autoptr(RubatoSparseKVClientTable) table = rubato_worker_open_sparse_kv_client_table(
        worker, specs[SPARSE].name, RUBATO_F32, iterations, N_CLOCKS, error);
    TRY(table != NULL);
    for (uint32_t i = 0; i < N_CLOCKS; i++)
        TRY(rubato_sparse_kv_client_table_get(table, rows, error) &&
            rubato_sparse_kv_client_table_add(table, deltas, error));
    return true;
}

static bool work(RubatoWorker *worker, void *user_data, GError **error)
{
    uint64_t state = 100 + rubato_worker_rank(worker);
    RubatoKVTable *tables[N_TABLES] = { NULL };
    bool ok = true;

    (void)user_data;
    for (size_t i = 0; i < SPARSE && ok; i++) {
        tables[i] = rubato_worker_open_kv_table(worker, specs[i].name, RUBATO_F32, error);
        ok = tables[i] != NULL;
    }
    for (uint32_t clock = 0; clock < N_CLOCKS && ok; clock++)
        for (size_t i = 0; i < SPARSE && ok; i++)
            ok = use(worker, &specs[i], tables[i], &state, error);
    for (size_t i = 0; i < 2 * SPARSE && ok; i++) /* so that each failure is told */
        ok = clock_on(tables[i / 2], error);
    for (size_t i = 0; i < SPARSE; i++)
        rubato_kv_table_free(tables[i]);
    return ok && use_sparse(worker, &state, error);
}

/* What the engine of each node does to a table between tasks. */
static bool change(RubatoEngine *engine, const char *table, GError **error)
{
    uint64_t state = 7 + rubato_engine_node(engine);
    RubatoKey keys[MOST_KEYS];
    float values[MOST_KEYS * WIDTH];

    g_autofree char *arguments = g_malloc0(ARGUMENT_BYTES);

    for (int i = 0; i < 5; i++) {
        size_t n = draw(&state, keys, values);
        const RubatoHandlerCall asked = draw_call(&state, table, keys, n, arguments);
        GError *found = NULL;

        TRY(forgive(rubato_engine_call_handler(engine, &asked, NULL, &found), &found, error));

        TRY(rubato_engine_add(engine, table, keys, n, values, error));
        n = draw(&state, keys, values);
        TRY(rubato_engine_set(engine, table, keys, n, values, error));
    }
    return rubato_engine_reset(engine, table, keys, 1, error);
}

static void tell(Server *server, void *data)
{
    const Table *table = data;

    for (uint32_t part = 0; part < table->map->n_parts; part++) {
        PartDigest digest;

        if (part_digest(server, table->id, part, &digest))
            cluster_say("%s of part %u of %s: %" G_GUINT64_FORMAT " inputs, digest "
                        "%" G_GUINT64_FORMAT,
                        digest.is_primary ? "primary" : "replica", part, table->spec->name,
                        digest.n_inputs, digest.digest);
    }
}

static bool tell_of(RubatoEngine *engine, const char *name, GError **error)
{
    Table *table;

    TRY(rubato_engine_barrier(engine, error));
    pthread_mutex_lock(&engine->lock);
    table = engine_find_table(engine, name, error);
    pthread_mutex_unlock(&engine->lock);
    TRY(table != NULL);
    servers_run(engine->servers, engine->n_servers, tell, table);
    return rubato_engine_barrier(engine, error);
}

/* A Get leaves when the replicas have all inputs that came before it. So when each node has read
 * all rows after its last change, the replicas are what the primaries are. */
static bool read_and_tell(RubatoEngine *engine, const char *name, GError **error)
{
    float rows[N_KEYS * WIDTH];

    return rubato_engine_get_range(engine, name, 0, N_KEYS, rows, error) &&
           tell_of(engine, name, error);
}

/* Lists, which engines change between tasks, too. */
static bool play_lists(RubatoEngine *engine, const Wire *wire, GError **error)
{
    static const char *const tables[] = { "lists", NULL };
    const uint32_t n_workers = rubato_engine_n_workers(engine);
    const RubatoKey keys[] = { 500, 501, 502 };
    const uint32_t lengths[] = { 3, 30000, 30 + rubato_engine_node(engine) };
    g_autofree int32_t *values = g_new0(int32_t, lengths[0] + lengths[1] + lengths[2]);
    RubatoTableSpec spec = ragged_lists_spec(&wire->lists);

    spec.replicas = wire->n_replicas;
    TRY(rubato_engine_create_table(engine, &spec, error) &&
        cluster_run_task(engine, "lists", ragged_lists_work, &wire->lists, tables, error) &&
        ragged_lists_check(engine, &wire->lists, n_workers, error) &&
        rubato_engine_barrier(engine, error));
    TRY(rubato_engine_assign_ragged(engine, "lists", keys, 3, lengths, values, error) &&
        rubato_engine_erase_ragged(engine, "lists", keys, 1, error) &&
        rubato_engine_barrier(engine, error));
    return ragged_lists_read(engine, &wire->lists, error) && tell_of(engine, "lists", error);
}

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    const Wire *const wire = data;
    const char *names[N_TABLES + 1] = { NULL };

    for (size_t i = 0; i < N_TABLES; i++) {
        RubatoTableSpec spec = specs[i];

        spec.width = WIDTH;
        spec.parts = N_PARTS;
        spec.replicas = wire->n_replicas;
        names[i] = spec.name;
        TRY(rubato_engine_create_table(engine, &spec, error));
    }
    TRY(cluster_run_task(engine, "first", work, NULL, names, error) &&
        rubato_engine_barrier(engine, error));
    for (size_t i = 0; i < N_TABLES; i++)
        TRY(change(engine, names[i], error) && rubato_engine_barrier(engine, error));
    TRY(cluster_run_task(engine, "second", work, NULL, names, error));
    for (size_t i = 0; i < N_TABLES; i++)
        TRY(read_and_tell(engine, names[i], error));
    return play_lists(engine, wire, error);
}

/* What a process says of the part, or of its replica; NULL: nothing. (transfer full) */
static char *find_line(ClusterRun *run, uint32_t node, const char *what, const char *table,
                       uint32_t part)
{
    g_autofree char *begin = g_strdup_printf("%s of part %u of %s: ", what, part, table);

    return strstr(run->processes[node].text->str, begin) == NULL
               ? NULL
               : cluster_text_after(run, node, begin);
}

static void check_part(ClusterRun *run, const char *table, uint32_t part, uint32_t n_replicas)
{
    g_autofree char *primary = NULL;
    uint32_t n_found = 0;

    for (uint32_t node = 0; node < N_NODES && primary == NULL; node++)
        primary = find_line(run, node, "primary", table, part);
    if (primary == NULL || g_str_has_prefix(primary, "0 inputs"))
        cluster_fail(run, "part %u of %s has no primary, or no inputs", part, table);
    for (uint32_t node = 0; node < N_NODES; node++) {
        g_autofree char *replica = find_line(run, node, "replica", table, part);

        n_found += replica != NULL;
        if (replica != NULL && strcmp(replica, primary) != 0)
            cluster_fail(run, "part %u of %s: the replica on node %u has %s, the primary %s", part,
                         table, node, replica, primary);
    }
    if (n_found != n_replicas)
        cluster_fail(run, "part %u of %s has %u replicas", part, table, n_found);
}

START_TEST(a_replica_is_what_its_primary_is_to_the_byte)
{
    const Wire *wire = &wires[_i];
    ClusterRun *run = cluster_run_new(&(ClusterShape){
        .n_nodes = N_NODES, .nodes = { { 1, 2 }, { 2, 1 }, { 1, 1 } }, .over = wire->over });

    ck_assert(rubato_register_handler(&half, NULL));
    if (wire->faults != NULL)
        g_setenv(FAULTS_VARIABLE, wire->faults, TRUE);
    cluster_start(run, play, wire);
    cluster_expect_success(run);
    for (size_t i = 0; i < N_TABLES; i++)
        for (uint32_t part = 0; part < N_PARTS; part++)
            check_part(run, specs[i].name, part, wire->n_replicas);
    for (uint32_t part = 0; part < N_PARTS; part++)
        check_part(run, "lists", part, wire->n_replicas);
    cluster_run_free(run);
}
END_TEST

/* ---- what cannot be ---- */

static bool play_refused(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec few = { .name = "few", .n_keys = 4, .replicas = 2 };
    GError *found = NULL;

    (void)data;
    EXPECT(!rubato_engine_create_table(engine, &few, &found), "it was made");
    return cluster_expect_error(&found, RUBATO_ERROR_INVALID,
                                "2 replicas need servers on 3 nodes, and 2 nodes have some", error);
}

START_TEST(replicas_need_nodes_of_their_own)
{
    ClusterRun *run = cluster_run_new(
        &(ClusterShape){ .n_nodes = N_NODES, .nodes = { { 3, 1 }, { 0, 1 }, { 1, 1 } } });

    cluster_start(run, play_refused, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

static bool play_unmoved(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = { .name = "stays", .n_keys = 4, .replicas = 1 };
    GError *found = NULL;

    (void)data;
    TRY(rubato_engine_create_table(engine, &spec, error));
    EXPECT(!rubato_engine_move_part(engine, "stays", 0, 1, &found), "it moved");
    return cluster_expect_error(&found, RUBATO_ERROR_INVALID, "it has replicas", error);
}

START_TEST(parts_with_replicas_do_not_move)
{
    ClusterRun *run =
        cluster_run_new(&(ClusterShape){ .n_nodes = 2, .nodes = { { 1, 1 }, { 1, 1 } } });

    cluster_start(run, play_unmoved, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

static bool play_unlike(RubatoEngine *engine, const void *data, GError **error)
{
    const bool first = rubato_engine_node(engine) == CLUSTER_IDS[0];
    const RubatoTableSpec spec = { .name = "rows", .n_keys = 8, .replicas = first ? 1 : 0 };
    GError *found = NULL;

    (void)data;
    EXPECT(!rubato_engine_create_table(engine, &spec, &found), "it was made");
    return cluster_expect_error(&found, RUBATO_ERROR_MISMATCH, "replicas 1", error);
}

START_TEST(all_nodes_name_the_same_number_of_replicas)
{
    ClusterRun *run =
        cluster_run_new(&(ClusterShape){ .n_nodes = 2, .nodes = { { 1, 1 }, { 1, 1 } } });

    cluster_start(run, play_unlike, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster replicas");
    TCase *same = cluster_add_case(suite, "same");
    TCase *refused = cluster_add_case(suite, "refused");

    tcase_add_loop_test(same, a_replica_is_what_its_primary_is_to_the_byte, 0, G_N_ELEMENTS(wires));
    tcase_add_test(refused, replicas_need_nodes_of_their_own);
    tcase_add_test(refused, parts_with_replicas_do_not_move);
    tcase_add_test(refused, all_nodes_name_the_same_number_of_replicas);
    return run_suite(suite);
}
