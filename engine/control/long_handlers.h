/* Handlers that run for long, told to the other nodes. So who waits for a server of another node
 * can say what that server does.
 *
 * A node looks at its own servers once in each heartbeat. It tells the scheduler which handler a
 * server runs if it ran it at the last look, too, and later that it does so no longer. The
 * scheduler tells all nodes, and each notes it where it notes what its own servers run. All of this
 * is for messages to the user alone.
 *
 * Threads: as each function says. */
#ifndef RUBATO_ENGINE_CONTROL_LONG_HANDLERS_H
#define RUBATO_ENGINE_CONTROL_LONG_HANDLERS_H

#include <rubato/engine.h>

#include "engine/control/control.h"

/* What a node knows of one of its own servers. Names are those of registered handlers, which
 * stay. */
typedef struct {
    const char *seen; /* that it ran at the last look; NULL: none */
    const char *told; /* that others believe it to run */
} LongHandler;

/* Looks at the servers of this node, in a run of several nodes, and calls `tell` with what the
 * scheduler has to know. The thread that ticks. */
void long_handlers_look(RubatoEngine *engine,
                        void (*tell)(RubatoEngine *engine, const Control *control));

/* Another node's server runs a handler for long, or no longer. The control actor's owner. */
void node_hears_runs(RubatoEngine *engine, uint32_t from, const Control *control);

#endif
