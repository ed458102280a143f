/* The rows of one reader that were done in the last steps of workers that have ended, where Adds
 * are applied by their clock: a snapshot has those of the steps before its clock. A node that lives
 * tells that in each snapshot; what it told at its workers' end counts when it is lost.
 *
 * A pure state machine, part of the scheduler. It keeps what snapshots may yet be without.
 *
 * Threads: the scheduler's owner. */
#ifndef RUBATO_ENGINE_SCHEDULER_DATA_ENDED_STEPS_H
#define RUBATO_ENGINE_SCHEDULER_DATA_ENDED_STEPS_H

#include "engine/scheduler/data/block_dispatcher.h"

typedef struct EndedSteps EndedSteps;

/* (transfer full) */
EndedSteps *ended_steps_new(uint32_t n_nodes);
void ended_steps_free(EndedSteps *ended); /* NULL is allowed */

/* The node tells rows n_read to `end` of a step, with the dispatcher's number of the input. */
void ended_steps_add(EndedSteps *ended, uint32_t node, uint64_t clock, const BlockTicket *rows);

/* The node's workers had not ended after all: they are in another process. */
void ended_steps_begin_again(EndedSteps *ended, uint32_t node);

/* The node is lost: nobody else tells its rows. */
void ended_steps_lose(EndedSteps *ended, uint32_t node);

/* Whether a node was lost so, whatever it had told. */
bool ended_steps_are_lost(const EndedSteps *ended);

/* A snapshot has the steps before `clock`: notes the rows of lost nodes that are not in it, and
 * forgets the others. Each later snapshot has the same clock or a later one. */
void ended_steps_cut(EndedSteps *ended, uint64_t clock, BlockDispatcher *dispatcher);

/* Walks through all of it; of a new one, of as many nodes, if it reads. */
void ended_steps_walk(StateWalk *walk, EndedSteps *ended);

#endif
