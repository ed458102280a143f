/* HELLO until WELCOME, JOIN, refusals.
 *
 * Threads: as scheduler.h. */
#ifndef RUBATO_ENGINE_SCHEDULER_RENDEZVOUS_SCHEDULER_RENDEZVOUS_H
#define RUBATO_ENGINE_SCHEDULER_RENDEZVOUS_SCHEDULER_RENDEZVOUS_H

#include "engine/scheduler/scheduler_state.h"

void rendezvous_hello(Scheduler *scheduler, const Control *control, uint16_t version,
                      uint64_t asker);

/* A node that is here ends before the run has begun: then the run cannot begin. */
void rendezvous_farewell(Scheduler *scheduler, const Control *farewell, uint16_t version,
                         uint64_t asker);

/* The same for the scheduler's own node. */
void rendezvous_stop(Scheduler *scheduler, const char *text);

/* A process wants to take the place of a lost node. */
void rendezvous_join(Scheduler *scheduler, const Control *join, uint16_t version, uint64_t asker);

/* A process of a run without a cluster file asks for its place, again or too late. */
void rendezvous_announce(Scheduler *scheduler, const Control *control, uint16_t version,
                         uint64_t asker);
void rendezvous_tick(Scheduler *scheduler);

/* A spare node: the run begins without it. */
void rendezvous_leave_out(SchedulerNode *node);

/* All nodes are here that are not spare. The same again, by the journal. */
void rendezvous_begin(Scheduler *scheduler);
void rendezvous_begin_again(Scheduler *scheduler, const ControlWelcome *welcome);

/* The scheduler's own node joins the run, if that can begin now. */
void rendezvous_admit_own(Scheduler *scheduler);
void rendezvous_node_gone(Scheduler *scheduler, uint32_t node);

#endif
