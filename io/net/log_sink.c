/* Log lines, from GLib's handler of their domain to the sink of the thread that writes them.
 *
 * GLib's log is the process's, and a handler of a domain does not learn whose line it has. So the
 * sink is thread-local. Runs on the thread that writes the line. */
#include "io/net/log_sink.h"

#include <stdatomic.h>

static _Thread_local const LogSink *present;

static RubatoLogLevel level_of(GLogLevelFlags level)
{
    return (level & (G_LOG_LEVEL_ERROR | G_LOG_LEVEL_CRITICAL)) != 0 ? RUBATO_LOG_CRITICAL
           : (level & G_LOG_LEVEL_WARNING) != 0                      ? RUBATO_LOG_WARNING
                                                                     : RUBATO_LOG_MESSAGE;
}

static void take_line(const char *domain, GLogLevelFlags level, const char *text, void *user_data)
{
    const LogSink *sink = present;

    if (sink != NULL && level_of(level) < sink->least)
        return;
    if (sink == NULL || sink->write == NULL) {
        g_log_default_handler(domain, level, text, user_data);
        return;
    }
    present = NULL; /* what the function itself logs is none of the engine's lines */
    sink->write(level_of(level), text, sink->engine, sink->user_data);
    present = sink;
}

static void install(void)
{
    g_log_set_handler(G_LOG_DOMAIN, G_LOG_LEVEL_MASK | G_LOG_FLAG_FATAL | G_LOG_FLAG_RECURSION,
                      take_line, NULL);
}

void log_sink_install(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, install);
}

const LogSink *log_sink_set(const LogSink *sink)
{
    const LogSink *before = present;

    present = sink;
    return before;
}

/* relaxed: nothing else follows from it, and who asks asks again */
static bool is_set(const _Atomic bool *flag)
{
    return flag != NULL && atomic_load_explicit(flag, memory_order_relaxed);
}

bool log_sink_is_over(void)
{
    return present != NULL && is_set(present->is_over);
}

bool log_sink_is_asked(void)
{
    return present != NULL && is_set(present->is_asked);
}

/* ---- threads ---- */

typedef struct {
    void *(*run)(void *data);
    void *data;
    const LogSink *sink;
} Start;

static void *run_with_sink(void *user)
{
    const Start start = *(Start *)user;

    g_free(user);
    present = start.sink;
    return start.run(start.data);
}

int log_sink_start_thread(pthread_t *thread, void *(*run)(void *data), void *data)
{
    if (present == NULL)
        return pthread_create(thread, NULL, run, data);

    Start *start = g_new(Start, 1);
    *start = (Start){ run, data, present };
    const int failure = pthread_create(thread, NULL, run_with_sink, start);
    if (failure != 0)
        g_free(start);
    return failure;
}
