/* SIGINT, SIGTERM and SIGHUP: the first one cancels the run in order, the second ends the process
 * at once; but first the program may be asked. A SIGHUP that is ignored stays so.
 *
 * Threads: signal_watch_new from a thread whose mask later threads inherit, before they start. */
#ifndef RUBATO_ENGINE_SIGNALS_H
#define RUBATO_ENGINE_SIGNALS_H

#include <rubato/engine.h>
#include <signal.h>

typedef struct SignalWatch SignalWatch;

/* Blocks these signals in the calling thread, for threads that start before the watch: one that did
 * not block them would end the process. The caller restores the mask. */
void signals_block(sigset_t *before);

/* Blocks these signals in the calling thread, and watches for them on a thread of its own, which
 * calls `interrupted` until it returns true: the run is cancelled. A signal after that ends the
 * process. NULL if that is impossible. (transfer full) */
SignalWatch *signal_watch_new(bool (*interrupted)(RubatoEngine *engine, int signal_number),
                              RubatoEngine *engine);

/* Ends the thread and unblocks what was not blocked before. NULL is allowed. */
void signal_watch_free(SignalWatch *watch);

#endif
