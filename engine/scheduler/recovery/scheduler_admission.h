/* Which process takes the place of a lost node, and its ADMITTED.
 *
 * Threads: as scheduler.h. */
#ifndef RUBATO_ENGINE_SCHEDULER_RECOVERY_SCHEDULER_ADMISSION_H
#define RUBATO_ENGINE_SCHEDULER_RECOVERY_SCHEDULER_ADMISSION_H

#include "engine/scheduler/scheduler_state.h"

/* Why the run admits no process at all; NULL: it does. *code goes with it. */
const char *admission_find_obstacle(const Scheduler *scheduler, uint32_t *code);

/* Whether a process of the run has, or had, this incarnation. */
bool admission_knows(const Scheduler *scheduler, uint64_t incarnation);

/* Begins one: the process that said JOIN, for a lost node. False: there were too many. */
bool admission_begin(Scheduler *scheduler, uint32_t node, const ControlHello *join, uint64_t asker);

/* The scheduler's own node is lost, and joins the run as that of this process as soon as nothing
 * else is under way. */
bool admission_awaits_own(const Scheduler *scheduler);

/* A snapshot has put off a process that is to join, and it asks again soon. Until then no other one
 * begins: where one follows another, it would never be admitted. If it does not ask, that ends. */
bool admission_is_due(const Scheduler *scheduler);

/* Why there is no snapshot if it is lost and cannot join. */
#define SCHEDULER_LACKS_OWN "the scheduler's node, which completes snapshots, has left the run"

/* The same for this process, whose links nodes have already. */
void admission_begin_own(Scheduler *scheduler);

/* A number from which bytes are counted, which nobody had. 0: there is none left. */
uint64_t admission_count_from(Scheduler *scheduler);

/* All nodes have links to the process: it is the node from now on. */
void admission_install(Scheduler *scheduler);

/* Tells the process so. It may ask again. */
void admission_answer(Scheduler *scheduler, uint32_t node);

/* It makes the same calls as the others from now on. Tells all nodes. */
void admission_catch_up(Scheduler *scheduler, uint32_t node);

/* It is given up, or is over. */
void admission_end(Scheduler *scheduler);

#endif
