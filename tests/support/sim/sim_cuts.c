/* Cuts of a simulated cluster's tables, while tasks run: what the images of all parts have together
 * is looked at when all nodes have read their own, as the scheduler's node knows. If a node is lost
 * meanwhile, nobody looks.
 *
 * Threads: a node's main thread, or that of its engine's snapshots, which may end after the node
 * has left its engine; so functions are given that. Nodes put their rows together in one place,
 * since all threads of the simulation are fibers of one. Each reads its own first: after a loss
 * others may begin the next cut meanwhile, and then nobody wants what it has read. */
#include "tests/support/sim/sim_cluster_private.h"

#include <rubato/snapshot.h>
#include <string.h>

#include "engine/snapshot/snapshot_cut.h"
#include "engine/task/task_run_private.h"
#include "models/shard/image.h"
#include "models/spec.h"
#include "tests/support/engine/engine_fixture.h"

typedef struct {
    RubatoKey first_key;
    uint64_t n_keys; /* 0: its rows are not looked at */
    uint32_t width;
    uint32_t id;
    uint32_t n_parts;
    int64_t *rows; /* of the keys; the node's own */
    ImageSlice slice;
    uint32_t part;
    bool at_end;
} Reading;

/* Goes on by one slice of one part, so that requests come between. */
static void read_slice(Server *server, void *data)
{
    Reading *reading = data;
    RubatoShard *const shard = server_find_shard(server, reading->id, reading->part);

    reading->at_end = true;
    if (shard == NULL || !shard_has_image(shard))
        return;
    if (!shard_read_image(shard, 3, &reading->slice))
        sim_fail("an image has no memory");
    reading->at_end = reading->slice.at_end;
}

/* The rest, on this thread: rows that are lent count once the next call tells which are valid. */
static void take_slice(Reading *reading)
{
    ImageSlice *const slice = &reading->slice;

    if (!image_slice_fetch(slice))
        sim_fail("rows of an image cannot be read");
    if (slice->state == SLICE_LENT || reading->n_keys == 0)
        return;
    for (size_t i = 0; i < slice->n; i++) {
        const RubatoKey key = slice->keys != NULL ? slice->keys[i] : slice->first + i;
        const uint32_t n = reading->width;
        const uint64_t row = key - reading->first_key;

        if (row < reading->n_keys)
            for (uint32_t j = 0; j < n; j++)
                reading->rows[row * n + j] += ((const int64_t *)slice->values)[i * n + j];
    }
}

static void read_table(RubatoEngine *engine, Reading *reading)
{
    for (uint32_t i = 0; i < engine->n_servers; i++)
        for (reading->part = 0; reading->part < reading->n_parts; reading->part++) {
            servers_run(&engine->servers[i], 1, read_slice, reading);
            while (!reading->at_end) {
                take_slice(reading);
                servers_run(&engine->servers[i], 1, read_slice, reading);
            }
        }
    image_slice_clear(&reading->slice);
}

/* Whether it is known which Adds are sent: no worker fails, or is lost. */
static bool is_judged(const SimScenario *scenario)
{
    bool is_judged = scenario->failing_worker == UINT32_MAX && scenario->cancelled_ms < 0;

    if (scenario->keeps_rows && scenario->outlives)
        return true;

    for (uint32_t i = 0; i < scenario->n_faults; i++)
        is_judged = is_judged && (scenario->faults[i].kind != SIM_FAULT_KILL ||
                                  scenario->workers[scenario->faults[i].from] == 0);
    return is_judged;
}

static void judge(const SimJob *job, SimCut *cut)
{
    const SimScenario *const scenario = job->scenario;
    SimPrefix prefixes[SIM_MOST_WORKERS];

    for (uint32_t i = 0; i < scenario->n_workers; i++)
        prefixes[i] = (SimPrefix){ .first_unseen = UINT64_MAX };
    for (uint32_t i = 0; i < scenario->n_tables; i++)
        if (scenario->tables[i].handle == SIM_HANDLE_RAGGED ||
            sim_table_expires(scenario, &scenario->tables[i]))
            continue; /* it has no images */
        else if (scenario->tables[i].model == SIM_MODEL_BSP)
            sim_history_check_clock(job->histories[i], cut->rows[i], cut->clocks[i]);
        else
            sim_history_see_prefixes(job->histories[i], cut->rows[i], prefixes);
    for (uint32_t i = 0; i < scenario->n_workers; i++)
        if (prefixes[i].last_seen >= prefixes[i].first_unseen)
            sim_fail("a cut has Add %" G_GUINT64_FORMAT " of worker %u, and not Add " //
                     "%" G_GUINT64_FORMAT,
                     prefixes[i].last_seen, i, prefixes[i].first_unseen);
}

static void clear(SimCut *cut)
{
    for (uint32_t i = 0; i < SIM_MOST_TABLES; i++)
        g_clear_pointer(&cut->rows[i], g_free);
}

/* What a task that fails had kept may be dropped. */
static bool any_is_cancelled(RubatoEngine *engine)
{
    bool any = false;

    pthread_mutex_lock(&engine->lock);
    for (guint i = 0; i < engine->runs->len; i++)
        any = any || task_run_is_cancelled(g_ptr_array_index(engine->runs, i));
    pthread_mutex_unlock(&engine->lock);
    return any;
}

/* All nodes have read their images. */
static void look_at(SimNode *node, RubatoEngine *engine, const SimJob *job)
{
    SimCut *const cut = &node->cluster->cut;

    if (node->number != job->scenario->scheduler)
        return;
    if (is_judged(job->scenario) && !any_is_cancelled(engine)) {
        if (job->scenario->keeps_rows)
            sim_kept_judge(node, engine, cut->rows[0]);
        else
            judge(job, cut);
    }
    SIM_TRACE("a cut was looked at");
    cut->n_done++;
    cut->n_whole += engine->n_losses > 0;
    clear(cut);
}

/* (transfer full) */
static GPtrArray *find_tables(SimNode *node, const char *const *names)
{
    GPtrArray *tables = g_ptr_array_new();

    pthread_mutex_lock(&node->engine->lock);
    for (; *names != NULL; names++)
        g_ptr_array_add(tables, engine_find_table(node->engine, *names, NULL));
    pthread_mutex_unlock(&node->engine->lock);
    return tables;
}

/* What a node does for a cut. */
typedef struct {
    SimNode *node;
    const SimJob *job;
} Taking;

/* Where the table is among those of the job. */
static uint32_t place_in(const SimJob *job, const char *name)
{
    uint32_t i = 0;

    if (job->scenario->keeps_rows)
        return 0;
    while (i < job->scenario->n_tables && strcmp(job->scenario->tables[i].name, name) != 0)
        i++;
    if (i == job->scenario->n_tables)
        sim_fail("a cut of table %s, which is not of its task", name);
    return i;
}

static void add_rows(SimCut *shared, uint32_t table, const int64_t *rows, size_t n)
{
    if (shared->rows[table] == NULL)
        shared->rows[table] = g_new0(int64_t, n);
    for (size_t i = 0; i < n; i++)
        shared->rows[table][i] += rows[i];
}

static void read_cut(SimNode *node, RubatoEngine *engine, const SimJob *job, const CutTable *one,
                     uint64_t seed)
{
    const Table *const table = one->table;
    SimCut *const shared = &node->cluster->cut;
    Reading reading = { .id = table->id, .n_parts = table->map->n_parts };

    if (job == NULL) {
        read_table(engine, &reading);
        return;
    }
    const uint32_t i = place_in(job, table->spec->name);
    if (table->spec->shape == RUBATO_SHAPE_RAGGED)
        return;
    reading.width = spec_width(table->spec);
    reading.first_key = job->scenario->keeps_rows ? 0 : job->scenario->tables[i].first_key;
    reading.n_keys = job->scenario->keeps_rows ? SIM_KEPT_ROWS : job->scenario->tables[i].n_keys;
    const size_t n = (size_t)reading.n_keys * reading.width;
    g_autofree int64_t *rows = g_new0(int64_t, n);

    reading.rows = rows;
    read_table(engine, &reading);
    if (shared->seed != seed)
        return;
    add_rows(shared, i, rows, n);
    if (node->number == job->scenario->scheduler)
        shared->clocks[i] = one->clock;
}

/* Until a node has been lost, none closes anything while another one prepares. */
static void check_open(const SimNode *node, const RubatoEngine *engine)
{
    const SimCluster *const cluster = node->cluster;

    for (uint32_t i = 0; i < sim_cluster_n_processes(cluster); i++) {
        const RubatoEngine *const other = cluster->nodes[i].engine;

        if (!cluster->nodes[i].was_killed && engine->n_losses == 0 && other != NULL &&
            other->n_losses == 0 && other->cut_holds != CUT_HOLDS_NOTHING)
            sim_fail("node %u prepares a cut, and node %u has begun it", node->number, i);
    }
}

/* The store of some nodes answers late. */
static bool prepare_cut(SimNode *node, const RubatoEngine *engine)
{
    SimCluster *const cluster = node->cluster;
    const int64_t began_ns = sim_now_ns();

    if (sim_chance(1, 2))
        sim_sleep_ns((int64_t)sim_below(8 * (uint64_t)cluster->scenario->think_ns));
    check_open(node, engine);
    cluster->cut.n_went_on += cluster->progress_ns > began_ns;
    return true;
}

static bool prepare(RubatoEngine *engine, const Cut *cut, void *data, GError **error)
{
    const Taking *const taking = data;

    (void)cut;
    (void)error;
    return prepare_cut(taking->node, engine);
}

static bool read_images(RubatoEngine *engine, const Cut *cut, uint64_t seed, void *data,
                        GError **error)
{
    const Taking *const taking = data;

    SimCut *const shared = &taking->node->cluster->cut;

    (void)error;
    if (shared->seed != seed) /* what another one has left, which a loss has ended */
        clear(shared);
    shared->seed = seed;
    for (size_t i = 0; i < cut->n_tables; i++)
        read_cut(taking->node, engine, taking->job, &cut->tables[i], seed);
    return true;
}

static bool end_reading(RubatoEngine *engine, const Cut *cut, void *data, GError **error)
{
    const Taking *const taking = data;

    (void)cut;
    (void)error;
    if (taking->job != NULL)
        look_at(taking->node, engine, taking->job);
    return true;
}

/* A step of a worker may be too long for a cut, where the network is slow: on all nodes alike. */
bool sim_cut_take(SimNode *node, const SimJob *job, const char *const *names, GError **error)
{
    const bool keeps_rows = node->cluster->scenario->keeps_rows;
    g_autoptr(GPtrArray) tables = find_tables(node, names);
    g_autoptr(GError) found = NULL;
    Taking taking = { node, keeps_rows ? &node->cluster->job : job };
    const CutWork work = { prepare, read_images, end_reading, &taking };
    Cut cut;
    bool ok;

    cut_init(&cut, tables, /* spill= */ NULL);
    ok = cut_make(node->engine, &cut,
                  &(CutCall){ .text = "tables", .detail = "of a test", .seed = ++node->n_cuts },
                  &work, &found);
    SIM_TRACE("%s", ok ? "has cut the tables" : "cannot cut the tables");
    cut_clear(node->engine, &cut);
    if (ok || (keeps_rows && g_error_matches(found, RUBATO_ERROR, RUBATO_ERROR_TIMEOUT)))
        return true;
    g_propagate_error(error, g_steal_pointer(&found));
    return false;
}

/* ---- cuts that workers ask for ---- */

static bool prepare_led(RubatoEngine *engine, const Cut *cut, void *data, GError **error)
{
    (void)cut;
    (void)error;
    return prepare_cut(data, engine);
}

static bool read_led(RubatoEngine *engine, const Cut *cut, uint64_t seed, void *data,
                     GError **error)
{
    SimNode *const node = data;

    return read_images(engine, cut, seed, &(Taking){ node, &node->cluster->job }, error);
}

static bool end_led(RubatoEngine *engine, const Cut *cut, void *data, GError **error)
{
    SimNode *const node = data;

    return end_reading(engine, cut, &(Taking){ node, &node->cluster->job }, error);
}

CutWork sim_cut_work(SimNode *node)
{
    return (CutWork){ prepare_led, read_led, end_led, node };
}

bool sim_cut_ask(RubatoWorker *worker, const SimJob *job, bool waits, GError **error)
{
    const char *names[SIM_MOST_TABLES + 1] = { NULL };
    const RubatoSnapshotSpec spec = { .directory = "none", .tables = names };
    g_autoptr(GError) found = NULL;

    for (uint32_t i = 0; i < job->scenario->n_tables; i++)
        names[i] = job->scenario->tables[i].name;
    const bool ok = waits ? rubato_worker_snapshot(worker, &spec, NULL, &found)
                          : rubato_worker_snapshot_async(worker, &spec, NULL, NULL, &found) != 0;

    SIM_TRACE("worker %u: %s", rubato_worker_rank(worker),
              ok ? "has asked for a cut" : found->message);
    if (ok ||
        (job->scenario->outlives && g_error_matches(found, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST)))
        return true;
    g_propagate_error(error, g_steal_pointer(&found));
    return false;
}
