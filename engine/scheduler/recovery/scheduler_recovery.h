/* RECOVER: parts of a lost node get another primary; JOIN's steps.
 *
 * Threads: as scheduler.h. */
#ifndef RUBATO_ENGINE_SCHEDULER_RECOVERY_SCHEDULER_RECOVERY_H
#define RUBATO_ENGINE_SCHEDULER_RECOVERY_SCHEDULER_RECOVERY_H

#include "engine/scheduler/scheduler_state.h"

Recovery *recovery_new(uint32_t n_nodes);
void recovery_free(Recovery *recovery);

/* The node is lost, and the run goes on. */
void recovery_begin(Scheduler *scheduler, uint32_t node, const char *text);
bool recovery_hears_done(Scheduler *scheduler, uint32_t node, const Control *control);

/* A node says that it has made n replicas, and could not make n_missing. False: it was not to make
 * so many. */
bool recovery_hears_made(Scheduler *scheduler, uint32_t node, uint32_t n, uint32_t n_missing);

/* The process of the admission takes the place of its node. Nothing else is under way. */
void recovery_admit(Scheduler *scheduler);
void recovery_check(Scheduler *scheduler);
void recovery_add_waits(const Scheduler *scheduler, GArray *waits);

/* The steps by which parts leave a node: cause DRAIN or HAND_OVER. Nothing else is under way.
 * what: "is drained", for the log. */
void recovery_drain(Scheduler *scheduler, ControlCause cause, uint32_t node, const char *what);

/* Copies on a node that has joined take the place of others, if there are some and all are made.
 * Nothing else is under way. */
void recovery_balance(Scheduler *scheduler);

/* After the last steps: whether they were those of a HAND_OVER; why nodes cannot be drained (NULL:
 * they can); whether replicas that were to be made are not there yet. */
bool recovery_has_handed_over(const Scheduler *scheduler);
const char *recovery_drain_fault(const Scheduler *scheduler);
bool recovery_awaits_copies(const Scheduler *scheduler);

/* As bytes: see engine/control/state_walk.h. */
void recovery_walk(StateWalk *walk, Scheduler *scheduler);

#endif
