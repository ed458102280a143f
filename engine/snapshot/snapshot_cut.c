/* The cut of a snapshot.
 *
 * DESIGN NOTE
 *
 * A snapshot must hold a set of Adds that could have been all Adds so far: of each worker the first
 * ones that it made, and with each Add all that its worker had seen before. The scheduler leads all
 * nodes through steps. Each begins when all nodes have finished the one before.
 *
 *   PREPARE
 *          Each node reads from the store what it must know before the cut, and has memory ready.
 *          A store may be silent for long, and nodes are not equally fast. Nothing is closed yet:
 *          workers go on, and so does what follows a loss.
 *   CLOSE  No worker of a task that uses one of the tables begins another step, and those in the
 *          middle of one end it (engine/task/step_gate.h).
 *          Each node closes the maps of the tables, as for a part that moves (tables/part_map.h).
 *          Then no thread of the node is in the middle of a call that changes rows, and none will
 *          be. So each worker stands between two of its calls: that is its cut. The node tells its
 *          clocks, sends a fence to every server, behind all that it sent before, and waits for the
 *          answers.
 *   CUT    Now each server has handled what all workers sent before their cuts, and nothing else
 *          has been sent. The image of each part begins, which copies nothing
 *          (models/shard/image.h).
 *   WRITE  Each node opens its maps. Its workers go on, and rows are copied before they change. The
 *          node writes what its parts had at CUT.
 *          Tables that can have no images (models/shard/image.h) stay closed, and are written as
 *          they are.
 *   COMMIT All of it has been written, by all nodes. The other maps are opened, too.
 *   FORGET The images end, before another snapshot may begin. This comes last, also after a step
 *          that failed; then it opens the maps.
 *
 * Why it is a true cut. An Add is in an image if it was sent before its worker's map was closed. A
 * worker that comes to a closed map waits there, so it sends nothing to any table of the snapshot
 * behind an Add that is not in it: of each worker the image has the first Adds. Suppose that a
 * worker's Add is in the image, and it had seen another one's that is not. That other one was sent
 * after WRITE had begun on its node, so after CUT had ended on all nodes, so after CLOSE had ended
 * on the first worker's node; and there nothing that is in the image was sent after CLOSE. No
 * channel between workers can change that: neither a table nor a barrier nor the program's own.
 *
 * Clocks. A model that applies Adds by their clock keeps those of unfinished clocks, and the rows
 * do not show them. There workers also wait with their clocks, and with their end, while the map is
 * closed. All clocks have been told before the fence. So at CUT all parts have the same min clock,
 * and their rows show the Adds of all lower clocks and no others: the cut of each worker is the
 * call by which it came to that clock. The snapshot says which clock it is. (Under such a model no
 * worker sees an Add before that call of all workers, so this is a true cut, too.)
 *
 * Steps. When the maps are closed, no worker is in the middle of a step, and none is until WRITE.
 * So all that a worker changes in a step is in the snapshot, or nothing of it is, on whichever
 * tables: a program that changes its place in the data in the same step finds both together. Under
 * a model that applies Adds by their clock, a step has the clocks of all its tables, so all of them
 * have the same min clock at CUT. This does not hold between tables of such models and of others: a
 * fast worker's step is in the latter, and kept in the former. So a step of such a task, in
 * which rows are done, may not change the former (engine/task/kept_rows.c).
 *
 * Which rows are done. Nodes look at the lowest clock that they have heard. What a node has told
 * other nodes before its fence has come to those that have servers, because the fence came behind
 * it. To a node without servers it may come after CUT, if that was led by a third node. So such a
 * node asks a server, which has heard all clocks when CUT begins, and hears no others until WRITE.
 *
 * Gets are not held up. They change nothing but clocks that they bring, which have been told.
 *
 * What PREPARE has found holds until the snapshot has ended. Its tables are held, and no collective
 * call begins, so none is dropped and no task begins. A task may end, and a loss may give parts
 * other primaries; then the snapshot fails, or some memory was made ready in vain. The snapshot on
 * which this one builds can be removed by somebody outside of the run alone: the run itself removes
 * old ones in COMMIT, and one snapshot is taken at a time. COMMIT looks whether it is still there.
 *
 * Why each wait ends. PREPARE waits for the store, whose client gives up a silent one, and for
 * nobody else. A worker at a closed map waits for CLOSE and CUT. They wait for senders that
 * are posting, which wait for nothing, and for fences, which servers answer without a wait. None
 * of this waits for a worker, but for those in the middle of a step: CLOSE waits for them as long
 * as it takes until a wait is told (stall_ms), and then fails. A lost node ends the snapshot. If
 * the run goes on without it, the steps that follow the loss close the same maps. They wait until
 * the snapshot has opened them: in CLOSE it does not wait for a lost node, and no longer for
 * workers, which may wait for that node's parts. Then the images are as good as before, but nobody
 * needs them.
 *
 * Replicas have no images: only a part's primary is written. So the rows of a part that gets
 * another primary are all written next time, also in an increment.
 *
 * What it costs. A call that changes rows waits for two rounds with the scheduler and a fence; one
 * that changes a table without images, until all of the snapshot has been written.
 *
 * Threads: as the header says; begin_images and end_images as the server's owner. */
#include "engine/snapshot/snapshot_cut.h"

#include "engine/task/task_run.h"
#include "io/net/fence.h"
#include "io/net/monotonic.h"
#include "io/net/stall_clock.h"
#include "models/model.h"
#include "models/shard/image.h"

void cut_init(Cut *cut, const GPtrArray *tables, SpillFile *spill)
{
    *cut = (Cut){ .n_tables = tables->len,
                  .tables = g_new0(CutTable, tables->len + 1),
                  .spill = spill,
                  .steps = g_ptr_array_new_with_free_func((GDestroyNotify)step_gate_unref),
                  .lock = PTHREAD_MUTEX_INITIALIZER };
    for (guint i = 0; i < tables->len; i++)
        cut->tables[i].table = g_ptr_array_index(tables, i);
}

/* ---- which tables tasks use ---- */

static bool uses(const RubatoTaskRun *run, const Table *table)
{
    size_t n;
    Table *const *const tables = task_run_tables(run, &n);

    for (size_t i = 0; i < n; i++)
        if (tables[i] == table)
            return true;
    return false;
}

/* A table without images must not change while it is written, and nothing holds up Gets. */
const char *cut_fault(const RubatoTableSpec *spec)
{
    if (spec->create_on_get && shard_image_fault(spec) != NULL)
        return "its Gets create rows (create_on_get), which its storage does not allow meanwhile";
    return NULL;
}

/* Which tables are cut. Those that no task uses may be written meanwhile, too, if the scheduler
 * leads at a time that the program does not know. The lock is held. */
static bool find_cut(RubatoEngine *engine, Cut *cut, GError **error)
{
    for (size_t i = 0; i < cut->n_tables; i++) {
        CutTable *const one = &cut->tables[i];
        const char *const fault = cut_fault(one->table->spec);
        const bool has_images = shard_image_fault(one->table->spec) == NULL;

        for (guint j = 0; j < engine->runs->len; j++)
            one->is_cut |= uses(g_ptr_array_index(engine->runs, j), one->table);
        if (one->is_cut && fault != NULL) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                        "table %s: a task uses it, and %s: such a table is written between tasks "
                        "alone",
                        one->table->spec->name, fault);
            return false;
        }
        one->is_paused = one->is_cut && !has_images;
        one->is_cut |= cut->is_led && fault == NULL && has_images;
    }
    return true;
}

/* ---- CLOSE ---- */

/* How often it is looked whether a node is lost. */
#define LOOK_MS 20

/* The scheduler has said of which node, and that is what all nodes hear. */
static bool fail_torn(GError **error)
{
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST,
                        "there is no snapshot: a node was lost meanwhile");
    return false;
}

static bool is_call(const Call *call, const void *data)
{
    return call == data;
}

/* The call waits for lost nodes no more. */
static void leave_lost(RubatoEngine *engine, const Call *call)
{
    g_autofree bool *lost = g_new(bool, engine->n_nodes);
    g_autofree bool *workerless = g_new(bool, engine->n_nodes);

    pthread_mutex_lock(&engine->lock);
    engine_list_lost(engine, lost, workerless);
    pthread_mutex_unlock(&engine->lock);
    for (uint32_t node = 0; node < engine->n_nodes; node++)
        if (lost[node])
            post_office_leave_calls(&engine->office, node, is_call, call);
}

/* Returns when all servers have handled what this node sent before, which they answer without a
 * wait. part: NULL, or one that a task uses, of that epoch; then sets *lowest to its min clock. */
static bool fence(RubatoEngine *engine, uint32_t epoch, const FencedPart *part, uint64_t *lowest,
                  GError **error)
{
    PostOffice *const office = &engine->office;
    g_autofree Message *messages = g_new0(Message, office->n_servers + 1);
    StallClock clock;
    Call call;

    fence_start(office, epoch, &engine->broken, part, part != NULL ? 1 : 0, NULL, messages, &call);
    stall_clock_start(&clock, engine->stall_ms);
    while (!post_office_wait(office, &call, stall_clock_look_ms(&clock, LOOK_MS))) {
        if (engine_cut_is_torn(engine))
            leave_lost(engine, &call);
        if (stall_clock_strikes(&clock)) {
            uint32_t node = office->self;

            post_office_waits_for(office, &call, &node);
            g_message("a snapshot waits for node %u to take in what was sent to its servers (for "
                      "%.1f s so far)",
                      office->node_ids[node], stall_clock_s(&clock));
        }
    }
    /* relaxed, twice: the call has ended, which orders it */
    if (atomic_load_explicit(&call.status, memory_order_relaxed) == CALL_OK) {
        if (part != NULL) /* the servers tell no clock */
            *lowest = atomic_load_explicit(&call.min_clock, memory_order_relaxed);
        return true;
    }
    if (engine_cut_is_torn(engine))
        return fail_torn(error);
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_CANCELLED,
                        "there is no snapshot: the run has ended");
    return false;
}

/* The lock is held. */
static void tell_clocks(RubatoEngine *engine, const Cut *cut)
{
    for (size_t i = 0; i < cut->n_tables; i++)
        for (guint j = 0; j < engine->runs->len && cut->tables[i].is_cut; j++)
            task_run_tell_clocks(g_ptr_array_index(engine->runs, j), cut->tables[i].table->id);
}

/* The tasks that use a table of the cut. The lock is held. */
static void hold_steps(RubatoEngine *engine, Cut *cut)
{
    for (guint j = 0; j < engine->runs->len; j++) {
        const RubatoTaskRun *const run = g_ptr_array_index(engine->runs, j);
        bool is_used = false;

        for (size_t i = 0; i < cut->n_tables; i++)
            is_used |= cut->tables[i].is_cut && uses(run, cut->tables[i].table);
        if (is_used)
            g_ptr_array_add(cut->steps, step_gate_ref(task_run_steps(run)));
    }
}

/* All are closed before one is waited for. */
static bool close_steps(RubatoEngine *engine, const Cut *cut, GError **error)
{
    const int64_t end_ms = monotonic_ms() + engine->stall_ms;
    uint32_t rank;

    for (guint i = 0; i < cut->steps->len; i++)
        step_gate_close(cut->steps->pdata[i]);
    for (guint i = 0; i < cut->steps->len; i++) {
        bool is_empty = false, is_late = false;

        while (!is_empty && !is_late) {
            const int64_t now_ms = monotonic_ms();

            if (engine_cut_is_torn(engine))
                return fail_torn(error);
            is_late = now_ms >= end_ms;
            is_empty = step_gate_wait(cut->steps->pdata[i], MIN(now_ms + LOOK_MS, end_ms), &rank);
        }
        if (!is_empty) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_TIMEOUT,
                        "task %s: worker %u has been in the middle of a step for %.1f s while a "
                        "snapshot waits for its end: in a step a worker must not wait for others",
                        step_gate_task(cut->steps->pdata[i]), rank, engine->stall_ms / 1e3);
            return false;
        }
    }
    return true;
}

/* Threads that are in the middle of sending may need the lock before they end it, or need what the
 * receiving thread does with it. So it is not held while the maps are closed. */
static bool close_maps(RubatoEngine *engine, Cut *cut, GError **error)
{
    bool is_any_cut = false, ok;

    cut->holds = true;
    pthread_mutex_lock(&engine->lock);
    ok = find_cut(engine, cut, error);
    if (ok)
        hold_steps(engine, cut);
    pthread_mutex_unlock(&engine->lock);
    ok = ok && close_steps(engine, cut, error);
    for (size_t i = 0; i < cut->n_tables && ok; i++) {
        CutTable *const one = &cut->tables[i];

        if (!one->is_cut)
            continue;
        part_map_close(one->table->map);
        is_any_cut = one->is_closed = true;
    }
    if (!ok || !is_any_cut)
        return ok;
    pthread_mutex_lock(&engine->lock);
    tell_clocks(engine, cut);
    pthread_mutex_unlock(&engine->lock);
    return fence(engine, 0, NULL, NULL, error);
}

/* ---- CUT ---- */

/* False: there is no memory. */
static bool cut_shard(RubatoShard *shard, const Cut *cut, bool gets_image)
{
    const KeyCover *cover = NULL;
    uint64_t n_rows;

    if (cut->notes_changes) {
        shard_cut_changes(shard, cut->whom, cut->base, cut->seed);
        cover = shard_changes(shard, cut->whom, &n_rows);
    }
    if (gets_image)
        return shard_begin_image(shard, cover, cut->spill);
    shard_hold_sweeps(shard);
    return true;
}

static void begin_images(Server *server, void *data)
{
    Cut *cut = data;

    for (size_t i = 0; i < cut->n_tables; i++) {
        const Table *const table = cut->tables[i].table;

        for (uint32_t part = 0; part < table->map->n_parts; part++) {
            RubatoShard *const shard = server_find_shard(server, table->id, part);

            if (shard == NULL ||
                cut_shard(shard, cut, cut->tables[i].is_cut && !cut->tables[i].is_paused))
                continue;
            pthread_mutex_lock(&cut->lock);
            cut->starved = true;
            pthread_mutex_unlock(&cut->lock);
        }
    }
}

static void note_clocks(RubatoEngine *engine, Cut *cut)
{
    pthread_mutex_lock(&engine->lock);
    for (size_t i = 0; i < cut->n_tables; i++) {
        CutTable *const one = &cut->tables[i];
        uint64_t lowest = RUBATO_CLOCK_RETIRED;

        for (guint j = 0; j < engine->runs->len; j++) {
            const RubatoTaskRun *run = g_ptr_array_index(engine->runs, j);
            const uint64_t clock = uses(run, one->table)
                                       ? task_run_lowest_clock(run, one->table->id)
                                       : RUBATO_CLOCK_RETIRED;

            lowest = MIN(lowest, clock);
        }
        one->clock = lowest == RUBATO_CLOCK_RETIRED ? 0 : lowest;
    }
    pthread_mutex_unlock(&engine->lock);
}

/* Whether workers of the task for which the snapshot is made still run. A task that has ended, or
 * was cancelled, has no clock to go on from. */
static bool check_task(RubatoEngine *engine, const Cut *cut, GError **error)
{
    bool goes_on = cut->epoch == 0 || engine->serving != NULL; /* which has no runs: others look */

    pthread_mutex_lock(&engine->lock);
    if (!goes_on) {
        const RubatoTaskRun *const run = engine_find_run(engine, cut->epoch);

        goes_on = run != NULL && task_run_goes_on(run);
    }
    pthread_mutex_unlock(&engine->lock);
    if (!goes_on)
        g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_CANCELLED, "its task has ended");
    return goes_on;
}

typedef struct {
    GPtrArray *readers; /* of NodeReader, held */
    uint32_t epoch;
    Table *table;    /* of the cut, whose Adds are applied by their clock; NULL: there is none */
    uint64_t lowest; /* clock of the task's workers there */
} CutReaders;

/* The clocks of all tables whose Adds are applied by their clock have been told, and are the same;
 * those of others may not have come. */
static Table *find_clocked(const RubatoTaskRun *run, const Cut *cut)
{
    for (size_t i = 0; i < cut->n_tables; i++) {
        Table *const table = cut->tables[i].table;

        if (cut->tables[i].is_cut && model_traits(table->spec)->applies_by_clock &&
            uses(run, table))
            return table;
    }
    return NULL;
}

/* The tasks whose steps are closed. The lock is held. (transfer full) */
static GArray *list_readers(const RubatoEngine *engine, const Cut *cut)
{
    GArray *const tasks = g_array_new(FALSE, FALSE, sizeof(CutReaders));

    for (guint j = 0; j < engine->runs->len; j++) {
        RubatoTaskRun *const run = g_ptr_array_index(engine->runs, j);
        CutReaders task = { .epoch = task_run_epoch(run), .lowest = NODE_READER_NO_CLOCK };

        if (!g_ptr_array_find(cut->steps, task_run_steps(run), NULL))
            continue;
        task.readers = task_run_hold_readers(run);
        task.table = find_clocked(run, cut);
        if (task.table != NULL)
            task.lowest = task_run_lowest_clock(run, task.table->id);
        g_array_append_val(tasks, task);
    }
    return tasks;
}

/* Any part will do: at CUT all have the same min clock. */
static bool ask_lowest(RubatoEngine *engine, CutReaders *task, GError **error)
{
    const FencedPart part = { .table = task->table->id,
                              .part = 0,
                              .server = part_map_server(task->table->map, 0) };

    return fence(engine, task->epoch, &part, &task->lowest, error);
}

static bool are_kept(const GPtrArray *readers)
{
    for (guint i = 0; i < readers->len; i++)
        if (node_reader_is_kept(readers->pdata[i]))
            return true;
    return false;
}

/* In the place of a lost process, workers repeat what that one had done, and have done fewer rows
 * than the tables show. */
static bool check_repeated(RubatoEngine *engine, const CutReaders *task, GError **error)
{
    uint32_t rank = 0;

    if (!are_kept(task->readers))
        return true;
    pthread_mutex_lock(&engine->lock);
    const RubatoTaskRun *const run = engine_find_run(engine, task->epoch);
    const bool repeats = run != NULL && task_run_repeats(run, task->lowest, &rank);
    if (repeats)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST,
                    "there is no snapshot yet: worker %u of task %s has the place of a lost one, "
                    "and repeats what that one had done",
                    rank, task_run_name(run));
    pthread_mutex_unlock(&engine->lock);
    return !repeats;
}

/* Tells the scheduler which rows are done in the cut. Of the tasks whose steps are closed, no
 * worker can be in one. The message to the scheduler goes before the one that CUT is done. */
static bool tell_readers(RubatoEngine *engine, const Cut *cut, GError **error)
{
    const bool hears_late = engine->servers_of[engine->self] == 0;
    bool ok = true;

    pthread_mutex_lock(&engine->lock);
    g_autoptr(GArray) tasks = list_readers(engine, cut);
    pthread_mutex_unlock(&engine->lock);
    for (guint i = 0; i < tasks->len; i++) {
        CutReaders *const task = &g_array_index(tasks, CutReaders, i);

        if (hears_late && task->table != NULL && task->readers->len > 0)
            ok = ok && ask_lowest(engine, task, error);
        ok = ok && check_repeated(engine, task, error);
        for (guint j = 0; j < task->readers->len && ok; j++)
            node_reader_tell_done(task->readers->pdata[j], task->lowest);
        g_ptr_array_unref(task->readers);
    }
    return ok;
}

static bool cut_parts(RubatoEngine *engine, Cut *cut, uint64_t seed, GError **error)
{
    cut->seed = seed;
    if (!check_task(engine, cut, error))
        return false;
    note_clocks(engine, cut);
    if (!tell_readers(engine, cut, error))
        return false;
    cut->has_images = true;
    servers_run(engine->servers, engine->n_servers, begin_images, cut);
    if (!cut->starved)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                "node %u has no memory for what changes while a snapshot is written", engine->id);
    return false;
}

/* ---- WRITE ---- */

typedef enum { OPENED_IMAGED, OPENED_ALL } Opened;

/* A worker in a step may then wait at a map that is still closed. It waits for the disk, and for
 * nobody who waits for it: the step of no worker is waited for before FORGET. */
static void open_maps(Cut *cut, Opened opened)
{
    for (guint i = 0; i < cut->steps->len; i++)
        step_gate_open(cut->steps->pdata[i]);
    g_ptr_array_set_size(cut->steps, 0);
    for (size_t i = 0; i < cut->n_tables; i++) {
        CutTable *const one = &cut->tables[i];

        if (!one->is_closed || (one->is_paused && opened == OPENED_IMAGED))
            continue;
        part_map_reopen(one->table->map);
        one->is_closed = false;
    }
}

/* ---- FORGET ---- */

static void end_images(Server *server, void *data)
{
    Cut *cut = data;

    for (size_t i = 0; i < cut->n_tables; i++) {
        const Table *const table = cut->tables[i].table;

        for (uint32_t part = 0; part < table->map->n_parts; part++) {
            RubatoShard *const shard = server_find_shard(server, table->id, part);

            if (shard == NULL)
                continue;
            pthread_mutex_lock(&cut->lock);
            g_ptr_array_add(cut->ended, shard_take_image(shard));
            pthread_mutex_unlock(&cut->lock);
            shard_release_sweeps(shard);
        }
    }
}

static void free_image(gpointer image)
{
    shard_image_free(image);
}

/* Memory goes back to the system without the servers. */
static void run_end_images(RubatoEngine *engine, Cut *cut)
{
    cut->ended = g_ptr_array_new_with_free_func(free_image);
    servers_run(engine->servers, engine->n_servers, end_images, cut);
    g_clear_pointer(&cut->ended, g_ptr_array_unref);
}

/* Once only: when the call has ended on all nodes, another snapshot may have images already, while
 * the thread that made this one has yet to clear it. */
static void forget(RubatoEngine *engine, Cut *cut)
{
    open_maps(cut, OPENED_ALL);
    if (cut->has_images)
        run_end_images(engine, cut);
    cut->has_images = false;
    if (cut->holds)
        engine_release_cut(engine, CUT_HOLDS_NOTHING);
    cut->holds = false;
}

/* ---- all steps ---- */

bool cut_perform(RubatoEngine *engine, Cut *cut, ControlStep step, uint64_t seed,
                 const CutWork *work, GError **error)
{
    switch (step) {
    case CONTROL_STEP_PREPARE:
        return work->prepare == NULL || work->prepare(engine, cut, work->data, error);
    case CONTROL_STEP_CLOSE:
        return close_maps(engine, cut, error);
    case CONTROL_STEP_CUT:
        return cut_parts(engine, cut, seed, error);
    case CONTROL_STEP_WRITE:
        open_maps(cut, OPENED_IMAGED);
        engine_release_cut(engine, CUT_HOLDS_IMAGES); /* those that stay closed have no replicas */
        if (engine_cut_is_torn(engine))
            return fail_torn(error);
        return work->write(engine, cut, seed, work->data, error);
    case CONTROL_STEP_COMMIT:
        open_maps(cut, OPENED_ALL);
        return work->commit(engine, cut, work->data, error);
    default:
        forget(engine, cut);
        return true;
    }
}

/* ---- the call ---- */

typedef struct {
    Cut *cut;
    const CutWork *work;
} Step;

static bool perform(RubatoEngine *engine, const ControlGo *go, void *data, GError **error)
{
    const Step *const step = data;

    return cut_perform(engine, step->cut, (ControlStep)go->step, go->hash_seed, step->work, error);
}

bool cut_make(RubatoEngine *engine, Cut *cut, const CutCall *call, const CutWork *work,
              GError **error)
{
    Step step = { cut, work };
    const CollectiveCall made = { .what = CONTROL_CALL_SNAPSHOT,
                                  .text = call->text,
                                  .detail = call->detail,
                                  .told = call->told,
                                  .seed = call->seed,
                                  .perform = perform,
                                  .data = &step };

    return collective(engine, &made, error);
}

void cut_clear(RubatoEngine *engine, Cut *cut)
{
    forget(engine, cut);
    spill_file_free(cut->spill);
    g_ptr_array_unref(cut->steps);
    pthread_mutex_destroy(&cut->lock);
    g_free(cut->tables);
}
