/* Workers that read a dynamic split which cuts keep. Each row of each epoch is added to a table of
 * its own in the step in which it is done. So in a cut the table has a row as often as there are
 * epochs, but for those that the reader's text leaves to be dealt: whoever goes on gets these. If a
 * node with workers is lost, and others have these again, this stays as it is; if the task goes on
 * without them, a row may be there once more each time that a lost worker has added it.
 *
 * Threads: the workers' of the simulation, and the nodes' main threads. */
#include <string.h>

#include "engine/control/dispatch.h"
#include "engine/scheduler/data/block_dispatcher.h"
#include "engine/scheduler/scheduler.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/sim/sim_cluster_private.h"

#define READER "rows"

enum {
    N_BLOCKS = 64, /* of a dataset in memory */
    N_BLOCK = SIM_KEPT_ROWS / N_BLOCKS,
    N_EPOCHS = 2,
    MOST_BATCH = 5,
};

RubatoTableSpec sim_kept_table(const SimScenario *scenario)
{
    static const char *const models[] = { "asp", "ssp", "bsp" };
    const bool is_hash = scenario->seed / 3 % 2 == 1;
    const char *const model = models[scenario->seed % 3];

    return (RubatoTableSpec){
        .name = SIM_KEPT_TABLE,
        .dtype = RUBATO_I64,
        .storage = is_hash ? "hash" : "dense",
        .n_keys = is_hash ? 0 : SIM_KEPT_ROWS,
        .model = model,
        .staleness = strcmp(model, "ssp") == 0 ? 1 : 0,
        .replicas = scenario->n_replicas,
    };
}

static RubatoReaderOptions reader_options(const SimScenario *scenario)
{
    return (RubatoReaderOptions){ .epochs = N_EPOCHS,
                                  .batch_rows = 1 + (uint32_t)(scenario->seed / 6 % MOST_BATCH),
                                  .shuffle = scenario->seed / 2 % 2 == 1,
                                  .seed = scenario->seed,
                                  .split = RUBATO_SPLIT_DYNAMIC,
                                  .kept_as = READER };
}

/* The label of a row is its number. (transfer full) */
static RubatoDataset *make_rows(void)
{
    static const size_t row_start[SIM_KEPT_ROWS + 1];
    float labels[SIM_KEPT_ROWS];
    const RubatoRows rows = { .n_rows = SIM_KEPT_ROWS, .row_start = row_start, .label = labels };

    for (size_t i = 0; i < SIM_KEPT_ROWS; i++)
        labels[i] = (float)i;
    return rubato_dataset_new_from_rows(&rows, "numbered", NULL);
}

/* ---- the workers ---- */

typedef struct {
    SimNode *node;
    RubatoDataset *dataset;
} Job;

typedef struct {
    RubatoWorker *worker;
    RubatoReader *reader;
    RubatoKVTable *table;
    SimNode *node;
    uint64_t state; /* of random numbers from which it follows what is in a step */
    uint64_t other; /* of the rest */
    uint64_t clock; /* steps that it has ended */
} Self;

/* Its node may be lost, and nobody comes in its place. */
static bool may_be_lost(const SimNode *node)
{
    const SimScenario *const scenario = node->cluster->scenario;

    return scenario->continues && scenario->n_faults > 0 &&
           scenario->faults[0].from == node->number;
}

static bool add_rows(Self *self, const RubatoBatch *batch, size_t first, size_t n, GError **error)
{
    const int64_t one = 1;

    for (size_t i = first; i < first + n; i++) {
        const RubatoKey key = (RubatoKey)batch->label[i];

        self->node->cluster->n_tried[key] += may_be_lost(self->node);
        TRY(rubato_kv_table_add(self->table, &key, 1, &one, error));
        if (random_below(&self->other, 4) == 0)
            sim_sleep_ns((int64_t)sim_below(SIM_MS));
    }
    return rubato_kv_table_clock(self->table, error);
}

/* Those of the batch from `first` on are done in one step; a cut may come at each call. In the
 * place of a lost worker, earlier steps change nothing. */
static bool do_step(Self *self, const RubatoBatch *batch, size_t first, size_t n, GError **error)
{
    const bool is_done = self->clock++ < rubato_worker_first_clock(self->worker);

    TRY(rubato_worker_begin_step(self->worker, error));
    TRY(is_done || add_rows(self, batch, first, n, error));
    TRY(rubato_worker_finish_rows(self->worker, self->reader, n, error));
    return rubato_worker_end_step(self->worker, error);
}

/* A step that waits for room in the window may be too long for a cut. */
static bool ask_for_cut(Self *self, GError **error)
{
    static const char *const names[] = { SIM_KEPT_TABLE, NULL };
    const RubatoSnapshotSpec spec = { .directory = "none", .tables = names };
    g_autoptr(GError) found = NULL;
    const bool ok =
        random_below(&self->other, 2) == 0
            ? rubato_worker_snapshot(self->worker, &spec, NULL, &found)
            : rubato_worker_snapshot_async(self->worker, &spec, NULL, NULL, &found) != 0;

    if (ok || g_error_matches(found, RUBATO_ERROR, RUBATO_ERROR_TIMEOUT) ||
        (self->node->cluster->scenario->outlives &&
         g_error_matches(found, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST)))
        return true;
    g_propagate_error(error, g_steal_pointer(&found));
    return false;
}

static bool train(Self *self, const RubatoBatch *batch, GError **error)
{
    const size_t n = 1 + random_below(&self->state, (uint32_t)batch->n_rows);

    if (random_below(&self->other, 12) == 0)
        TRY(ask_for_cut(self, error));
    TRY(do_step(self, batch, 0, n, error));
    return n == batch->n_rows || do_step(self, batch, n, batch->n_rows - n, error);
}

static bool run(RubatoWorker *worker, void *user_data, GError **error)
{
    const Job *const job = user_data;
    const SimScenario *const scenario = job->node->cluster->scenario;
    const uint32_t rank = rubato_worker_rank(worker);
    const RubatoReaderOptions options = reader_options(scenario);
    const int64_t most_ns =
        scenario->think_ns * (rank == scenario->slow_worker ? SIM_SLOW_WORKER : 1);
    g_autoptr(RubatoBatch) batch = NULL;
    g_autoptr(RubatoReader) reader =
        rubato_worker_open_reader(worker, job->dataset, &options, error);
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table(worker, SIM_KEPT_TABLE, RUBATO_I64, error);
    Self self = { .worker = worker,
                  .reader = reader,
                  .table = table,
                  .node = job->node,
                  .state = scenario->seed * 1000 + rank,
                  .other = scenario->seed * 1001 + rank };

    REQUIRE(reader != NULL && table != NULL);
    while (rubato_reader_next(reader, &batch, error)) {
        sim_sleep_ns((int64_t)sim_below((uint64_t)most_ns));
        TRY(train(&self, batch, error));
        job->node->cluster->progress_ns = sim_now_ns();
    }
    return !rubato_reader_failed(reader);
}

static bool is_right(const SimNode *node, size_t row, int64_t n)
{
    return n >= N_EPOCHS && n <= N_EPOCHS + (int64_t)node->cluster->n_tried[row];
}

bool sim_kept_run(SimNode *node, SimKeptTask *run_task, GError **error)
{
    const RubatoTableSpec spec = sim_kept_table(node->cluster->scenario);
    const char *const names[] = { SIM_KEPT_TABLE, NULL };
    g_autoptr(RubatoDataset) dataset = make_rows();
    Job job = { node, dataset };
    const RubatoTask task = { .name = "kept", .run = run, .user_data = &job, .tables = names };
    RubatoKey keys[SIM_KEPT_ROWS];
    int64_t rows[SIM_KEPT_ROWS];

    for (size_t i = 0; i < SIM_KEPT_ROWS; i++)
        keys[i] = i;
    TRY(rubato_engine_create_table(node->engine, &spec, error));
    TRY(run_task(node, &task, error));
    TRY(rubato_engine_get(node->engine, SIM_KEPT_TABLE, keys, SIM_KEPT_ROWS, rows, error));
    for (size_t i = 0; i < SIM_KEPT_ROWS; i++)
        if (!is_right(node, i, rows[i]))
            sim_fail("row %zu was trained on %" G_GINT64_FORMAT " times", i, rows[i]);
    return true;
}

/* ---- the judge ---- */

/* Deals all that a reader's text leaves: counts each row, by its number. */
static void count_left(const SimScenario *scenario, const char *text, int64_t *left)
{
    g_autoptr(RubatoDataset) dataset = make_rows();
    const RubatoReaderOptions options = reader_options(scenario);
    const BlockDispatcherConfig config = { .n_nodes = 1 };
    const Input *const input = dataset_input(dataset, 0);
    const BlockDispatcherInput held = { .name = input_path(input),
                                        .bytes = input_size(input),
                                        .n_blocks = dataset_n_blocks(dataset, 0),
                                        .any_order = dataset_in_any_order(dataset, 0) };
    const char *const lines = strchr(text, '\n'); /* behind what it reads */
    BlockDispatcher *const dispatcher =
        lines != NULL ? block_dispatcher_read(&config, lines + 1) : NULL;
    uint32_t order[N_BLOCK];
    char *wrong = NULL;
    BlockTicket ticket;

    if (dispatcher == NULL ||
        block_dispatcher_add_input(dispatcher, 0, &held, &wrong) == BLOCK_DISPATCHER_NO_INPUT)
        sim_fail("the text of a reader makes no sense: %s", text);
    while (block_dispatcher_assign(dispatcher, 0, 1, &ticket) == 1) {
        const uint32_t *const shuffled =
            block_row_order(dataset, &options, &ticket, N_BLOCK, order);
        const uint64_t end = ticket.end > 0 ? ticket.end : N_BLOCK;

        for (uint64_t i = ticket.n_read; i < end; i++)
            left[ticket.block * N_BLOCK + (shuffled != NULL ? shuffled[i] : i)]++;
        block_dispatcher_finish(dispatcher, 0, &ticket);
    }
    block_dispatcher_free(dispatcher);
}

static void take_readers(Scheduler *scheduler, int64_t now_ms, void *readers)
{
    (void)now_ms;
    *(GHashTable **)readers = scheduler_cut_readers(scheduler);
}

/* There is no reader before its first block is dealt, nor when all workers have ended: then all
 * rows are there, or none. */
void sim_kept_judge(const SimNode *node, RubatoEngine *engine, const int64_t *rows)
{
    g_autoptr(GHashTable) readers = NULL;
    int64_t left[SIM_KEPT_ROWS] = { 0 };
    const char *text;

    dispatch_look_at_scheduler(engine, take_readers, &readers);
    text = g_hash_table_lookup(readers, READER);
    if (text != NULL)
        count_left(node->cluster->scenario, text, left);
    for (size_t i = 0; i < SIM_KEPT_ROWS; i++) {
        const bool is_before = text == NULL && rows[i] == 0 && rows[0] == 0;

        if (!is_before && !is_right(node, i, rows[i] + left[i]))
            sim_fail("a cut has row %zu %" G_GINT64_FORMAT " times, and %s leaves it %" //
                     G_GINT64_FORMAT " times of %d",
                     i, rows[i], text != NULL ? "its reader" : "no reader", left[i], N_EPOCHS);
    }
}

void sim_scenario_draw_kept(SimScenario *scenario, uint64_t seed)
{
    sim_scenario_draw_exact(scenario, seed, 1);
    scenario->exact_program = 0;
    scenario->keeps_rows = true;
}
