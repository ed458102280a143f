/* Iterations that workers have begun and that servers have not been told of.
 *
 * For a model that takes announcements, if all workers are in this process and read rows beside
 * the owners of servers (joint.h). A server has to know a worker's clock, and the keys of its
 * iteration, only if a Get is further ahead than the staleness and asks whether it may be answered
 * all the same. So a worker notes its iteration here. Who makes such a Get tells servers what all
 * workers have noted, and until it is answered each worker tells its next iterations itself.
 * Usually nobody asks before the next iteration takes the place of the one before, which then is
 * told to nobody.
 *
 * Threads: late_iterations_new and late_iterations_free one that owns them; late_iterations_begin
 * the worker of this rank; the rest any worker. */
#ifndef RUBATO_TABLES_LATE_ITERATIONS_H
#define RUBATO_TABLES_LATE_ITERATIONS_H

#include <rubato/request.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct LateIterations LateIterations;

LateIterations *late_iterations_new(uint32_t first_rank, uint32_t n_workers);
void late_iterations_free(LateIterations *late);

typedef enum {
    LATE_ITERATION_NOTED,   /* nobody asks */
    LATE_ITERATION_ASKED,   /* it is to be told at once */
    LATE_ITERATION_REFUSED, /* there is no memory, and nothing has been noted */
} LateIterationNote;

/* A worker has come to this clock, and uses the keys in its iteration. They are copied. */
LateIterationNote late_iterations_begin(LateIterations *late, uint32_t rank, uint64_t clock,
                                        const RubatoKey *keys, size_t n);

/* Tells servers that a worker has come to this clock, and then the keys of its iteration. No other
 * thread tells of this worker meanwhile, so it may not wait for a worker. */
typedef void (*LateIterationTell)(void *user, uint32_t rank, uint64_t clock,
                                  const RubatoKeys *keys);

/* Has what a worker has noted told, if it has not been; and what all have noted. */
void late_iterations_tell(LateIterations *late, uint32_t rank, LateIterationTell tell, void *user);
void late_iterations_tell_all(LateIterations *late, LateIterationTell tell, void *user);

/* Between the two, workers tell their iterations at once. */
void late_iterations_ask(LateIterations *late);
void late_iterations_end_ask(LateIterations *late);

/* From now on they always do: a request has come for which nobody asks in this way. The first one
 * that calls it has all told then. */
bool late_iterations_end(LateIterations *late);
bool late_iterations_have_ended(const LateIterations *late);

#endif
