/* Snapshots of a task at given times.
 *
 * Why each wait ends: the thread waits for a time, or for the end of a snapshot, which the
 * scheduler tells (scheduler_snapshot.c), or which this node ends when the scheduler cannot. When
 * the task ends, its thread is woken.
 *
 * Threads: `run` is the thread's; the rest as in the header. */
#include "engine/snapshot/snapshot_schedule.h"

#include <math.h>

#include "engine/task/task_run.h"
#include "io/net/log_sink.h"
#include "io/net/monotonic.h"
#include "io/store/outside_requests.h"
#include "io/store/snapshot_folder.h"
#include "io/stream/stream_folder.h"

/* Between two looks at the clock of workers, and into the directory. */
#define LOOK_MS 50
#define LOOK_STREAM_MS 5
#define LOOK_ASKED_US (200 * 1000)

/* Before the next version of a stream, if one failed. */
#define AFTER_FAILURE_US ((int64_t)G_USEC_PER_SEC)

struct SnapshotSchedule {
    /* immutable */
    RubatoEngine *engine;
    char *directory;
    char *ask; /* snapshot_text.h */
    double every_s;
    uint64_t every_clocks;
    ChangesFor whom;

    StreamWriter *writer; /* NULL: nobody is told of versions */

    const RubatoTaskRun *run; /* NULL until it starts, and on nodes without worker 0 */
    bool has_thread;
    pthread_t thread;

    /* the thread's */
    int64_t asked_us;      /* when the last one was asked for, or the task began */
    uint64_t clock;        /* of the slowest worker then */
    int64_t look_asked_us; /* when to look into the directory */
    int64_t not_before_us; /* after a failure */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool ends; /* guarded by lock */
};

/* ---- its thread ---- */

/* The clock of the slowest worker on the first table. */
static uint64_t find_clock(const SnapshotSchedule *schedule)
{
    size_t n;
    Table *const *const tables = task_run_tables(schedule->run, &n);

    return n > 0 ? task_run_lowest_clock(schedule->run, tables[0]->id) : 0;
}

static bool is_due(SnapshotSchedule *schedule, uint64_t clock)
{
    const int64_t now_us = g_get_monotonic_time();

    if (clock == RUBATO_CLOCK_RETIRED || now_us < schedule->not_before_us)
        return false;
    if (schedule->every_s > 0 &&
        (double)(now_us - schedule->asked_us) >= schedule->every_s * G_USEC_PER_SEC)
        return true;
    if (schedule->every_clocks > 0 && clock - schedule->clock >= schedule->every_clocks)
        return true;
    if (schedule->whom == CHANGES_FOR_STREAM || now_us < schedule->look_asked_us)
        return false;
    schedule->look_asked_us = now_us + LOOK_ASKED_US;
    return rubato_snapshot_is_asked(schedule->directory);
}

/* epoch: of the task that has to go on until the cut; 0: none. */
static bool ask(SnapshotSchedule *schedule, uint32_t epoch, GError **error)
{
    SnapshotAsk ask = { .spec = schedule->ask, .epoch = epoch };
    Call call;

    if (!snapshot_folder_draw_seed(&ask.seed, error))
        return false;
    call_begin(&call, NULL);
    call_add_parts(&call, 1);
    ask.call = &call;
    snapshot_asks_begin(&schedule->engine->snapshot_asks, &ask);
    call_sent(&call);
    while (!call_wait(&call, -1))
        continue;
    if (ask.failure == NULL) {
        stream_writer_tell(schedule->writer, ask.written);
        return true;
    }
    g_propagate_error(error, ask.failure);
    return false;
}

/* A snapshot that has not even begun answers no request. If a request stayed, a snapshot would be
 * due again at once, and who asked would wait for ever. (asked: those there before) */
static void refuse_requests(const SnapshotSchedule *schedule, GPtrArray *asked, const char *why)
{
    g_autoptr(GPtrArray) left = outside_requests_list(schedule->directory);

    for (guint i = left->len; i-- > 0;)
        if (!g_ptr_array_find_with_equal_func(asked, left->pdata[i], g_str_equal, NULL))
            g_ptr_array_remove_index(left, i);
    outside_requests_answer(schedule->directory, left, 0, why);
}

static void take(SnapshotSchedule *schedule, uint64_t clock)
{
    const bool is_stream = schedule->whom == CHANGES_FOR_STREAM;
    g_autoptr(GPtrArray) asked = is_stream ? NULL : outside_requests_list(schedule->directory);
    g_autoptr(GError) error = NULL;

    schedule->asked_us = g_get_monotonic_time();
    schedule->clock = clock;
    /* Cancelled: the task has ended. Then it needs none. */
    if (ask(schedule, task_run_epoch(schedule->run), &error) ||
        g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_CANCELLED))
        return;
    g_warning("task %s goes on without a %s that was due: %s", task_run_name(schedule->run),
              is_stream ? "version of its stream" : "snapshot", error->message);
    if (is_stream)
        schedule->not_before_us = schedule->asked_us + AFTER_FAILURE_US;
    else
        refuse_requests(schedule, asked, error->message);
}

/* How long to wait until the next look. */
static int64_t find_wait_ms(const SnapshotSchedule *schedule)
{
    const int64_t now_us = g_get_monotonic_time();
    const bool is_stream = schedule->whom == CHANGES_FOR_STREAM;
    const int64_t look_ms = is_stream && schedule->every_clocks > 0 ? LOOK_STREAM_MS : LOOK_MS;
    double left_us;

    if (schedule->every_s <= 0)
        return look_ms;
    left_us = schedule->every_s * G_USEC_PER_SEC - (double)(now_us - schedule->asked_us);
    left_us = MAX(left_us, (double)(schedule->not_before_us - now_us));
    return (int64_t)CLAMP(left_us / 1000, 0, (double)look_ms - 1) + 1;
}

static void *run(void *data)
{
    SnapshotSchedule *const schedule = data;

    pthread_mutex_lock(&schedule->lock);
    while (!schedule->ends) {
        monotonic_wait(&schedule->changed, &schedule->lock,
                       monotonic_ms() + find_wait_ms(schedule));
        pthread_mutex_unlock(&schedule->lock);
        const uint64_t clock = find_clock(schedule);
        if (is_due(schedule, clock))
            take(schedule, clock);
        pthread_mutex_lock(&schedule->lock);
    }
    pthread_mutex_unlock(&schedule->lock);
    return NULL;
}

/* ---- its life ---- */

/* What is asked for; NULL with an error. (transfer full) */
static char *write_ask(RubatoEngine *engine, const RubatoTask *task, const SnapshotTimes *times,
                       GError **error)
{
    static const char *const no_tables[] = { NULL };
    const char *const *const own = task->tables != NULL ? task->tables : no_tables;
    const RubatoSnapshotSpec *const spec = &times->spec;
    char *ask;

    if (!(times->every_s >= 0) || isinf(times->every_s)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "%s every %g seconds",
                    times->whom == CHANGES_FOR_STREAM ? "versions" : "snapshots", times->every_s);
        return NULL;
    }
    if (!snapshot_check_once(spec, error))
        return NULL;
    ask = snapshot_write_ask(engine, spec, times->whom, spec->tables != NULL ? spec->tables : own,
                             error);
    /* Requests from outside may come before the first snapshot. */
    if (ask != NULL && !snapshot_folder_make_directory(spec->directory, error))
        g_clear_pointer(&ask, g_free);
    return ask;
}

SnapshotSchedule *snapshot_schedule_new(RubatoEngine *engine, const RubatoTask *task,
                                        const SnapshotTimes *times, GError **error)
{
    char *const ask = write_ask(engine, task, times, error);
    SnapshotSchedule *schedule;

    if (ask == NULL) {
        g_prefix_error(error, "task %s: ", task->name);
        return NULL;
    }
    schedule = g_new0(SnapshotSchedule, 1);
    schedule->engine = engine;
    schedule->directory = g_strdup(times->spec.directory);
    schedule->ask = ask;
    schedule->every_s = times->every_s;
    schedule->every_clocks = times->every_clocks;
    schedule->whom = times->whom;
    pthread_mutex_init(&schedule->lock, NULL);
    monotonic_cond_init(&schedule->changed);
    return schedule;
}

void snapshot_schedule_tell(SnapshotSchedule *schedule, StreamWriter *writer)
{
    schedule->writer = writer;
}

void snapshot_schedule_start(SnapshotSchedule *schedule, const RubatoTaskRun *run_started)
{
    if (!task_run_has_first_worker(run_started))
        return;
    schedule->run = run_started;
    schedule->asked_us = g_get_monotonic_time();
    schedule->has_thread = log_sink_start_thread(&schedule->thread, run, schedule) == 0;
    if (!schedule->has_thread)
        g_warning("task %s takes no snapshots: a thread for them cannot be started",
                  task_run_name(run_started));
}

void snapshot_schedule_stop(SnapshotSchedule *schedule)
{
    if (!schedule->has_thread)
        return;
    pthread_mutex_lock(&schedule->lock);
    schedule->ends = true;
    pthread_cond_signal(&schedule->changed);
    pthread_mutex_unlock(&schedule->lock);
    pthread_join(schedule->thread, NULL);
    schedule->has_thread = false;
}

void snapshot_schedule_take_last(SnapshotSchedule *schedule)
{
    uint32_t n_left = schedule->engine->n_nodes; /* each torn one has lost another node */
    g_autoptr(GError) error = NULL;

    if (schedule->run == NULL)
        return;
    while (!ask(schedule, /* epoch= */ 0, &error) && --n_left > 0 &&
           g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST))
        g_clear_error(&error);
    if (error != NULL)
        g_warning("task %s has ended without the last version of its stream: %s",
                  task_run_name(schedule->run), error->message);
    else if (!stream_folder_sync(schedule->directory, &error))
        g_warning("task %s: the last versions of its stream may go with the machine: %s",
                  task_run_name(schedule->run), error->message);
    if (error != NULL) /* relaxed: it is a number, and nothing else follows from it */
        atomic_fetch_add_explicit(&schedule->engine->n_missed_versions, 1, memory_order_relaxed);
}

void snapshot_schedule_free(SnapshotSchedule *schedule)
{
    if (schedule == NULL)
        return;
    snapshot_schedule_stop(schedule);
    pthread_cond_destroy(&schedule->changed);
    pthread_mutex_destroy(&schedule->lock);
    g_free(schedule->directory);
    g_free(schedule->ask);
    g_free(schedule);
}
