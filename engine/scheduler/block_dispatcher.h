/* Deals the blocks of a dataset out to nodes: the logic of a dynamic split, for one reader of each
 * worker of a task.
 *
 * A pure state machine, part of the scheduler. Every block of every input is dealt once in each
 * epoch; of what is given back, the rows that nobody has read are dealt again. A node gets blocks
 * of inputs that it holds alone: first those that fewest others hold, so that nobody is left with
 * blocks that he cannot read. The epochs of an input follow each other; a node goes on to the next
 * when nothing that it holds is left of the one before.
 *
 * Threads: the scheduler's owner. */
#ifndef RUBATO_ENGINE_SCHEDULER_BLOCK_DISPATCHER_H
#define RUBATO_ENGINE_SCHEDULER_BLOCK_DISPATCHER_H

#include "io/data/deal/block_source.h"

typedef struct {
    uint32_t n_nodes;
    uint32_t epochs;
    bool shuffle;
    uint64_t seed;
} BlockDispatcherConfig;

/* An input as one node sees it. */
typedef struct {
    const char *name; /* inputs of one name are one */
    uint64_t bytes;
    uint64_t n_blocks; /* INPUT_BLOCKS_UNKNOWN: a node will find its end */
    bool any_order;    /* else its blocks are dealt one after the other */
} BlockDispatcherInput;

#define BLOCK_DISPATCHER_MAX_INPUTS 65536u
#define BLOCK_DISPATCHER_NO_INPUT UINT32_MAX

typedef struct BlockDispatcher BlockDispatcher;

/* (transfer full) */
BlockDispatcher *block_dispatcher_new(const BlockDispatcherConfig *config);
void block_dispatcher_free(BlockDispatcher *dispatcher);

/* A node holds an input. Returns the input's number; BLOCK_DISPATCHER_NO_INPUT with what is wrong
 * in *wrong, which is for people: the node has another file of that name than the others, or there
 * are too many. (transfer full) */
uint32_t block_dispatcher_add_input(BlockDispatcher *dispatcher, uint32_t node,
                                    const BlockDispatcherInput *input, char **wrong);

/* Deals up to `wanted` tickets to a node, fewer when little is left. 0: nothing is left for it. */
size_t block_dispatcher_assign(BlockDispatcher *dispatcher, uint32_t node, size_t wanted,
                               BlockTicket *tickets);

/* What became of a ticket: read; given back with n_read rows read; or the input ends before it.
 * False where the node does not have such a ticket. */
bool block_dispatcher_finish(BlockDispatcher *dispatcher, uint32_t node, const BlockTicket *ticket);
bool block_dispatcher_give_back(BlockDispatcher *dispatcher, uint32_t node,
                                const BlockTicket *ticket);
bool block_dispatcher_absent(BlockDispatcher *dispatcher, uint32_t node, const BlockTicket *ticket);

/* The node reads no more: what it was dealt and has not finished is dealt again, whole. */
void block_dispatcher_node_out(BlockDispatcher *dispatcher, uint32_t node);

#endif
