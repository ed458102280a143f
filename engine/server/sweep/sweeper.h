/* The thread that has servers remove expired rows. A node has one as soon as it has had a table
 * whose rows expire.
 *
 * Threads: sweeper_start from the engine's collective calls, one at a time; sweeper_stop from the
 * one that frees it. */
#ifndef RUBATO_ENGINE_SERVER_SWEEP_SWEEPER_H
#define RUBATO_ENGINE_SERVER_SWEEP_SWEEPER_H

#include <pthread.h>

#include "engine/server/server.h"

typedef struct {
    bool is_running; /* of the threads above */
    pthread_t thread;

    /* immutable while it runs */
    Server *servers;
    uint32_t n_servers;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stops; /* guarded by lock */
} Sweeper;

/* The present time of tables that count seconds. */
uint64_t sweeper_seconds(void);

/* Starts the thread, if it does not run. The servers run until it has been stopped. False: there
 * can be none. */
bool sweeper_start(Sweeper *sweeper, Server *servers, uint32_t n_servers, GError **error);

/* Stops the thread, if it runs. */
void sweeper_stop(Sweeper *sweeper);

#endif
