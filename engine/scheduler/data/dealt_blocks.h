/* The blocks of a dynamic split that each worker of a task was given, in their order, if lost
 * workers are to be replaced: a process in the place of a lost one gets the same again, and then
 * others.
 *
 * A pure state machine, part of the scheduler. It keeps some bytes of each block as long as the
 * task runs.
 *
 * Threads: the scheduler's owner. */
#ifndef RUBATO_ENGINE_SCHEDULER_DATA_DEALT_BLOCKS_H
#define RUBATO_ENGINE_SCHEDULER_DATA_DEALT_BLOCKS_H

#include "engine/control/state_walk.h"
#include "io/data/deal/block_source.h"

typedef struct DealtBlocks DealtBlocks;

/* (transfer full) */
DealtBlocks *dealt_blocks_new(uint32_t n_workers);
void dealt_blocks_free(DealtBlocks *dealt); /* NULL is allowed */

/* A worker was given n blocks; 0: none is left for it, and never will be. */
void dealt_blocks_note(DealtBlocks *dealt, uint32_t rank, const BlockTicket *tickets, size_t n);

/* What the lost worker was given, and the one in its place has yet to get: up to n of them. 0: that
 * is all; *has_ended: and it was told that no block is left for it. */
size_t dealt_blocks_repeat(DealtBlocks *dealt, uint32_t rank, size_t n, BlockTicket *tickets,
                           bool *has_ended);

/* Another process has the worker's place. */
void dealt_blocks_begin_again(DealtBlocks *dealt, uint32_t rank);

/* Whether the tables may have more of the worker than the process in its place has told: it has
 * asked for no block yet, or not told again what became of all those of which the lost one had told
 * that. False of a worker that was not lost, or that had no blocks. */
bool dealt_blocks_are_behind(const DealtBlocks *dealt, uint32_t rank);

/* The worker tells what became of a block. It gets the same rows once at most: who gives some back
 * reads no more. */
typedef enum {
    DEALT_IS_NEW,
    DEALT_IS_KNOWN, /* the lost worker had told it */
    DEALT_IS_WRONG, /* the worker was not given it */
} DealtVerdict;
DealtVerdict dealt_blocks_end(DealtBlocks *dealt, uint32_t rank, const BlockTicket *ticket);

/* Walks through all of it; of a new one, of as many workers, if it reads. */
void dealt_blocks_walk(StateWalk *walk, DealtBlocks *dealt);

#endif
