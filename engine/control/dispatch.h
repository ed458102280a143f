/* Where control messages and the network's events go.
 *
 * Threads: as each function says. */
#ifndef RUBATO_ENGINE_CONTROL_DISPATCH_H
#define RUBATO_ENGINE_CONTROL_DISPATCH_H

#include <rubato/engine.h>

#include "engine/control/control.h"
#include "engine/scheduler/scheduler.h"
#include "io/net/network/network.h"

/* Times that the network's ticks keep. */
typedef struct {
    /* the control actor's owner only */
    int64_t refused_ms; /* when this node last logged who was refused */
    int64_t missed_ms;  /* when this node last logged who is missing at the rendezvous */

    /* I/O thread only */
    int64_t beat_ms;         /* when this node last sent a beat */
    int64_t tick_ms;         /* when it last ticked */
    int64_t resumed_ms;      /* when it last found that it had been stopped for a long time */
    int64_t silent_since_ms; /* silence of the scheduler's node before does not count */
    int64_t looked_ms;       /* when it last asked who goes on as the scheduler */
} DispatchTimes;

/* The thread of the engine's calls, before other threads exist. */
void dispatch_init(RubatoEngine *engine);

/* Creates the scheduler on the scheduler's node. False: it was to go on from a journal, and
 * cannot. */
bool dispatch_start_scheduler(RubatoEngine *engine, GError **error);

/* Sends a control message to the scheduler, wherever it runs. Any thread. */
void engine_tell_scheduler(RubatoEngine *engine, const Control *control);

/* Has `look` called between two events of the scheduler, which runs on this node; waits for that.
 * It may run on another thread, and must not block. Any thread that holds no lock, while the
 * control actor is there. */
void dispatch_look_at_scheduler(RubatoEngine *engine,
                                void (*look)(Scheduler *scheduler, int64_t now_ms, void *user),
                                void *user);

/* Sends a greeting to the scheduler, which listens at that endpoint. Any thread but the I/O
 * thread. */
void dispatch_greet(RubatoEngine *engine, const char *scheduler, const Control *greeting);

/* Tells a node that it is given up. If the node was only stopped, it reads this when it
 * continues. */
void dispatch_say_last_word(RubatoEngine *engine, uint32_t node, const char *text);

/* The functions that the network calls. */
extern const NetworkHandler dispatch_network_handler;

/* Refuses all further requests and calls, and wakes all waiters. Any thread; the first cause
 * stays. */
void engine_break(RubatoEngine *engine, uint32_t code, const char *text);

#endif
