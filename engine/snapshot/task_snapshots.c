/* Snapshots that a task takes by itself.
 *
 * Why each wait ends: the thread waits for a time, or for the end of a snapshot, which the
 * scheduler tells (scheduler_snapshot.c), or which this node ends when the scheduler cannot. When
 * the task ends, its thread is woken.
 *
 * Threads: `run` is the thread's; the rest as in the header. */
#include "engine/snapshot/task_snapshots.h"

#include <math.h>
#include <rubato/snapshot.h>

#include "engine/snapshot/snapshot_files.h"
#include "engine/task/task_run.h"
#include "io/net/log_sink.h"
#include "io/net/monotonic.h"
#include "io/store/outside_requests.h"
#include "io/store/snapshot_folder.h"

/* Between two looks at the clock of workers, and into the directory. */
#define LOOK_MS 50
#define LOOK_ASKED_US (200 * 1000)

struct TaskSnapshots {
    /* immutable */
    RubatoEngine *engine;
    char *directory;
    char *ask; /* snapshot_text.h */
    double every_s;
    uint64_t every_clocks;

    const RubatoTaskRun *run; /* NULL until it starts */
    bool has_thread;
    pthread_t thread;

    /* the thread's */
    int64_t asked_us;      /* when the last one was asked for, or the task began */
    uint64_t clock;        /* of the slowest worker then */
    int64_t look_asked_us; /* when to look into the directory */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool ends; /* guarded by lock */
};

/* ---- its thread ---- */

/* The clock of the slowest worker on the first table. */
static uint64_t find_clock(const TaskSnapshots *snapshots)
{
    size_t n;
    Table *const *const tables = task_run_tables(snapshots->run, &n);

    return n > 0 ? task_run_lowest_clock(snapshots->run, tables[0]->id) : 0;
}

static bool is_due(TaskSnapshots *snapshots, uint64_t clock)
{
    const int64_t now_us = g_get_monotonic_time();

    if (clock == RUBATO_CLOCK_RETIRED)
        return false;
    if (snapshots->every_s > 0 &&
        (double)(now_us - snapshots->asked_us) >= snapshots->every_s * G_USEC_PER_SEC)
        return true;
    if (snapshots->every_clocks > 0 && clock - snapshots->clock >= snapshots->every_clocks)
        return true;
    if (now_us < snapshots->look_asked_us)
        return false;
    snapshots->look_asked_us = now_us + LOOK_ASKED_US;
    return rubato_snapshot_is_asked(snapshots->directory);
}

static bool ask(TaskSnapshots *snapshots, GError **error)
{
    SnapshotAsk ask = { .spec = snapshots->ask, .epoch = task_run_epoch(snapshots->run) };
    Call call;

    if (!snapshot_folder_draw_seed(&ask.seed, error))
        return false;
    call_begin(&call, NULL);
    call_add_parts(&call, 1);
    ask.call = &call;
    snapshot_asks_begin(&snapshots->engine->snapshot_asks, &ask);
    call_sent(&call);
    while (!call_wait(&call, -1))
        continue;
    if (ask.failure == NULL)
        return true;
    g_propagate_error(error, ask.failure);
    return false;
}

/* A snapshot that has not even begun answers no request. If a request stayed, a snapshot would be
 * due again at once, and who asked would wait for ever. (asked: those there before) */
static void refuse_requests(const TaskSnapshots *snapshots, GPtrArray *asked, const char *why)
{
    g_autoptr(GPtrArray) left = outside_requests_list(snapshots->directory);

    for (guint i = left->len; i-- > 0;)
        if (!g_ptr_array_find_with_equal_func(asked, left->pdata[i], g_str_equal, NULL))
            g_ptr_array_remove_index(left, i);
    outside_requests_answer(snapshots->directory, left, 0, why);
}

static void take(TaskSnapshots *snapshots, uint64_t clock)
{
    g_autoptr(GPtrArray) asked = outside_requests_list(snapshots->directory);
    g_autoptr(GError) error = NULL;

    snapshots->asked_us = g_get_monotonic_time();
    snapshots->clock = clock;
    /* Cancelled: the task has ended. Then it needs none. */
    if (ask(snapshots, &error) || g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_CANCELLED))
        return;
    g_warning("task %s goes on without a snapshot that was due: %s", task_run_name(snapshots->run),
              error->message);
    refuse_requests(snapshots, asked, error->message);
}

static void *run(void *data)
{
    TaskSnapshots *const snapshots = data;

    pthread_mutex_lock(&snapshots->lock);
    while (!snapshots->ends) {
        monotonic_wait(&snapshots->changed, &snapshots->lock, monotonic_ms() + LOOK_MS);
        pthread_mutex_unlock(&snapshots->lock);
        const uint64_t clock = find_clock(snapshots);
        if (is_due(snapshots, clock))
            take(snapshots, clock);
        pthread_mutex_lock(&snapshots->lock);
    }
    pthread_mutex_unlock(&snapshots->lock);
    return NULL;
}

/* ---- its life ---- */

/* What is asked for; NULL with an error. (transfer full) */
static char *write_ask(RubatoEngine *engine, const RubatoTask *task, GError **error)
{
    const RubatoTaskSnapshots *const told = task->snapshots;
    static const char *const no_tables[] = { NULL };
    const char *const *const own = task->tables != NULL ? task->tables : no_tables;
    char *ask;

    if (!(told->every_s >= 0) || isinf(told->every_s)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "task %s: snapshots every %g seconds", task->name, told->every_s);
        return NULL;
    }
    ask = snapshot_write_ask(engine, &told->spec,
                             told->spec.tables != NULL ? told->spec.tables : own, error);
    /* Requests from outside may come before the first snapshot. */
    if (ask != NULL && !snapshot_folder_make_directory(told->spec.directory, error))
        g_clear_pointer(&ask, g_free);
    if (ask == NULL)
        g_prefix_error(error, "task %s: ", task->name);
    return ask;
}

TaskSnapshots *task_snapshots_new(RubatoEngine *engine, const RubatoTask *task, GError **error)
{
    TaskSnapshots *snapshots;
    char *ask;

    if (task->snapshots == NULL)
        return NULL;
    ask = write_ask(engine, task, error);
    if (ask == NULL)
        return NULL;
    snapshots = g_new0(TaskSnapshots, 1);
    snapshots->engine = engine;
    snapshots->directory = g_strdup(task->snapshots->spec.directory);
    snapshots->ask = ask;
    snapshots->every_s = task->snapshots->every_s;
    snapshots->every_clocks = task->snapshots->every_clocks;
    pthread_mutex_init(&snapshots->lock, NULL);
    monotonic_cond_init(&snapshots->changed);
    return snapshots;
}

void task_snapshots_start(TaskSnapshots *snapshots, const RubatoTaskRun *task)
{
    if (snapshots == NULL || !task_run_has_first_worker(task))
        return;
    snapshots->run = task;
    snapshots->asked_us = g_get_monotonic_time();
    snapshots->has_thread = log_sink_start_thread(&snapshots->thread, run, snapshots) == 0;
    if (!snapshots->has_thread)
        g_warning("task %s takes no snapshots: a thread for them cannot be started",
                  task_run_name(task));
}

void task_snapshots_free(TaskSnapshots *snapshots)
{
    if (snapshots == NULL)
        return;
    if (snapshots->has_thread) {
        pthread_mutex_lock(&snapshots->lock);
        snapshots->ends = true;
        pthread_cond_signal(&snapshots->changed);
        pthread_mutex_unlock(&snapshots->lock);
        pthread_join(snapshots->thread, NULL);
    }
    pthread_cond_destroy(&snapshots->changed);
    pthread_mutex_destroy(&snapshots->lock);
    g_free(snapshots->directory);
    g_free(snapshots->ask);
    g_free(snapshots);
}
