/* Which workers' deltas that are no numbers the log has told: one line for each table and worker,
 * however many servers of the node such deltas reach.
 *
 * Threads: any; init before the servers start, clear when they have stopped. */
#ifndef RUBATO_ENGINE_SERVER_NO_NUMBERS_H
#define RUBATO_ENGINE_SERVER_NO_NUMBERS_H

#include <glib.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    pthread_mutex_t lock;
    /* guarded by lock */
    GArray *told; /* of tables and workers */
} NoNumbers;

void no_numbers_init(NoNumbers *numbers);

/* Zeroed ones are allowed. */
void no_numbers_clear(NoNumbers *numbers);

/* Whether this is the first call for the table and worker. Tables have numbers that are never used
 * again. */
bool no_numbers_are_first(NoNumbers *numbers, uint32_t table, uint32_t worker);

#endif
