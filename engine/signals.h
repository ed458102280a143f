/* SIGINT and SIGTERM: the first cancels the run in order, the second ends the process at once; but
 * first the program may be asked.
 *
 * Threads: signal_watch_new from a thread whose mask later threads inherit, before they start. */
#ifndef RUBATO_ENGINE_SIGNALS_H
#define RUBATO_ENGINE_SIGNALS_H

#include <rubato/engine.h>

typedef struct SignalWatch SignalWatch;

/* Blocks both signals in the calling thread, and watches for them on a thread of its own, which
 * calls `interrupted` until it returns true: the run is cancelled. A signal after that ends the
 * process. NULL if that is impossible. (transfer full) */
SignalWatch *signal_watch_new(bool (*interrupted)(RubatoEngine *engine, int signal_number),
                              RubatoEngine *engine);

/* Ends the thread and unblocks what was not blocked before. NULL is allowed. */
void signal_watch_free(SignalWatch *watch);

#endif
