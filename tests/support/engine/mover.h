/* A thread that moves the parts of a table between the servers of an engine while a task runs.
 *
 * Threads: mover_begin, any of the task's workers; the others, the thread that makes the engine's
 * calls. */
#ifndef TESTS_SUPPORT_ENGINE_MOVER_H
#define TESTS_SUPPORT_ENGINE_MOVER_H

#include <rubato/rubato.h>

typedef struct Mover Mover;

/* Before the task is run. (transfer full) */
Mover *mover_new(RubatoEngine *engine, const char *table, uint32_t n_parts, uint64_t seed);

/* The task has begun, so the mover may begin. NULL is allowed. */
void mover_begin(Mover *mover);

/* After the task: waits for the last move and returns how many there were, at least one if the
 * mover was begun. A failed move fails the test. */
uint64_t mover_end(Mover *mover);

#endif
