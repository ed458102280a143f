/* Where the log lines of an engine go, and so whose thread is whose. They are lines of GLib's log,
 * of the domain "rubato"; a line is an engine's if the thread that writes it has its sink. A
 * thread of the library takes over the sink of the thread that starts it. A thread of the
 * application has the sink of an engine during the engine's calls.
 *
 * Threads: any. */
#ifndef RUBATO_IO_NET_LOG_SINK_H
#define RUBATO_IO_NET_LOG_SINK_H

#include <pthread.h>
#include <rubato/engine.h>

typedef struct {
    RubatoLogLevel least; /* lines of lower levels are dropped */
    RubatoLogFunc write;  /* NULL: GLib's log writes them */
    void *user_data;
    RubatoEngine *engine;
    const _Atomic bool *is_over;  /* set when the run is cancelled; NULL: it never is */
    const _Atomic bool *is_asked; /* set when a signal has asked the program to end; or NULL */
} LogSink;

/* Makes GLib's log ask the sinks; once a process, from the first sink on that wants something. */
void log_sink_install(void);

/* The calling thread's sink from now on; NULL: none. Returns the one before. */
const LogSink *log_sink_set(const LogSink *sink);

/* Whether the run of the engine whose sink the calling thread has was cancelled here: then nobody
 * should wait for long for what is outside of it, such as a server of S3. */
bool log_sink_is_over(void);

/* Whether a signal has come to the process of that engine: then somebody waits for its end, even if
 * the program goes on for as long as it takes to save what it has. */
bool log_sink_is_asked(void);

/* As pthread_create; the thread has the sink of the calling one. */
int log_sink_start_thread(pthread_t *thread, void *(*run)(void *data), void *data);

/* The calling thread's sink until the end of the block:
 *
 *     LOG_SINK_SCOPE(&engine->log); */
typedef struct {
    const LogSink *before;
} LogSinkScope;

static inline void log_sink_scope_end(LogSinkScope *scope)
{
    log_sink_set(scope->before);
}

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(LogSinkScope, log_sink_scope_end)

#define LOG_SINK_SCOPE(sink) \
    G_GNUC_UNUSED g_auto(LogSinkScope) log_sink_scope = { log_sink_set(sink) }

#endif
