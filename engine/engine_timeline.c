/* The timeline of a node: where it is written, from when to when.
 *
 * Threads: any, unless engine_private.h says otherwise. */
#include <rubato/timeline.h>
#include <string.h>

#include "engine/engine_private.h"
#include "engine/task/task_run.h"

enum { PROBES = 16, PROBE_MS = 10000 };

/* Each node writes a file of its own: "trace.json" becomes "trace.node-3.json". (transfer full) */
static char *path_of_node(const RubatoEngine *engine, const char *file)
{
    const char *const slash = strrchr(file, '/');
    const char *const dot = strrchr(slash == NULL ? file : slash, '.');
    const int length = dot == NULL ? (int)strlen(file) : (int)(dot - file);

    if (engine->n_nodes == 1)
        return g_strdup(file);
    return g_strdup_printf("%.*s.node-%u%s", length, file, engine->id, file + length);
}

/* ---- its clock ---- */

/* Tells the time of the scheduler's node. */
static bool answer(const RubatoServiceRequest *request, RubatoByteWriter *writer, void *user_data,
                   GError **error)
{
    const int64_t now_ns = monotonic_ns();

    (void)request;
    (void)user_data;
    (void)error;
    rubato_write(writer, &now_ns, sizeof now_ns);
    return true;
}

void engine_serve_clock(RubatoEngine *engine)
{
    services_serve_own(engine->services, SERVICE_CLOCK, answer, NULL);
}

/* False: it has not answered. */
static bool ask_time(const RubatoEngine *engine, TimelineProbe *probe)
{
    const RubatoQuestion question = { .service = SERVICE_CLOCK, .timeout_ms = PROBE_MS };
    RubatoServiceAnswer reply;

    probe->sent_ns = monotonic_ns();
    g_autoptr(RubatoServiceCall) call =
        services_request(engine->services, &question, &engine->scheduler_node, 1);
    if (!rubato_service_call_next(call, &reply) || reply.error != NULL ||
        g_bytes_get_size(reply.bytes) != sizeof probe->other_ns)
        return false;
    probe->answered_ns = monotonic_ns();
    memcpy(&probe->other_ns, g_bytes_get_data(reply.bytes, NULL), sizeof probe->other_ns);
    return true;
}

/* Each probe has an answer, or its time is over. */
static TimelineClock measure(RubatoEngine *engine)
{
    TimelineProbe probes[PROBES];
    size_t n = 0;

    if (engine->self == engine->scheduler_node)
        return (TimelineClock){ 0 };
    while (n < PROBES && ask_time(engine, &probes[n]))
        n++;
    if (n > 0)
        return timeline_estimate(probes, n);
    g_warning("node %u: the scheduler's node does not tell its time, so the timeline has this "
              "node's own",
              engine->id);
    return (TimelineClock){ .is_own = true };
}

void engine_set_timeline_clock(RubatoEngine *engine)
{
    if (!timeline_is_on(engine->timeline))
        return;
    const TimelineClock clock = measure(engine);
    timeline_set_clock(engine->timeline, &clock);
}

/* ---- from when to when ---- */

static bool start(RubatoEngine *engine, const char *file, const TimelineClock *clock,
                  GError **error)
{
    g_autofree char *path = path_of_node(engine, file);

    if (!timeline_start(engine->timeline, path, clock, error))
        return false;
    g_message("node %u records its timeline in %s", engine->id, path);
    return true;
}

bool engine_begin_timeline(RubatoEngine *engine, GError **error)
{
    const char *const file = g_getenv(TIMELINE_VARIABLE);

    engine->timeline = timeline_new(engine->id);
    if (file == NULL || *file == '\0' || start(engine, file, NULL, error))
        return true;
    g_prefix_error(error, "the environment variable " TIMELINE_VARIABLE " is \"%s\": ", file);
    return false;
}

/* A worker that begins meanwhile is named twice. */
static void name_workers(RubatoEngine *engine)
{
    pthread_mutex_lock(&engine->lock);
    for (guint i = 0; i < engine->runs->len; i++)
        task_run_name_workers(engine->runs->pdata[i]);
    pthread_mutex_unlock(&engine->lock);
}

bool rubato_engine_start_timeline(RubatoEngine *engine, const char *file, GError **error)
{
    g_return_val_if_fail(engine != NULL && file != NULL, false);
    LOG_SINK_SCOPE(&engine->log);
    if (!engine_check_caller_or_worker(engine, "rubato_engine_start_timeline", error))
        return false;
    const TimelineClock clock = measure(engine);
    if (!start(engine, file, &clock, error))
        return false;
    name_workers(engine);
    return true;
}

bool rubato_engine_stop_timeline(RubatoEngine *engine, GError **error)
{
    g_return_val_if_fail(engine != NULL, false);
    LOG_SINK_SCOPE(&engine->log);
    return engine_check_caller_or_worker(engine, "rubato_engine_stop_timeline", error) &&
           timeline_stop(engine->timeline, error);
}
