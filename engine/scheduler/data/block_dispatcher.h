/* Deals the blocks of a dataset out to nodes: the logic of a dynamic split, for one reader of each
 * worker of a task.
 *
 * A pure state machine, part of the scheduler. Every block of every input is dealt once in each
 * epoch. Of a block that is given back, the unread rows are dealt again. A node gets blocks only of
 * inputs that it holds. Inputs that the fewest nodes hold come first, so that no block is left for
 * a node that cannot read it. The epochs of an input follow each other. A node begins the next
 * epoch when it holds no more blocks of the one before.
 *
 * Threads: the scheduler's owner. */
#ifndef RUBATO_ENGINE_SCHEDULER_DATA_BLOCK_DISPATCHER_H
#define RUBATO_ENGINE_SCHEDULER_DATA_BLOCK_DISPATCHER_H

#include "engine/control/state_walk.h"
#include "io/data/deal/block_source.h"

typedef struct {
    uint32_t n_nodes;
    uint32_t epochs;
    bool shuffle;
    uint64_t seed;
    bool keeps_finished; /* until it is settled, what a node has read may have to be dealt again */
    bool only_checks;    /* it never deals: it was read to see whether its text makes sense */
} BlockDispatcherConfig;

/* An input as one node sees it. */
typedef struct {
    const char *name; /* inputs with the same name are the same input */
    uint64_t bytes;
    uint64_t n_blocks; /* INPUT_BLOCKS_UNKNOWN: a node will find the input's end */
    bool any_order;    /* else its blocks are dealt one after the other */
} BlockDispatcherInput;

#define BLOCK_DISPATCHER_MAX_INPUTS 65536u
#define BLOCK_DISPATCHER_NO_INPUT UINT32_MAX

typedef struct BlockDispatcher BlockDispatcher;

/* (transfer full) */
BlockDispatcher *block_dispatcher_new(const BlockDispatcherConfig *config);
void block_dispatcher_free(BlockDispatcher *dispatcher);

/* A node holds an input. Returns the input's number. Returns BLOCK_DISPATCHER_NO_INPUT, and a
 * message for people in *wrong, if the node's file of that name differs from the others', or if
 * there are too many inputs. (transfer full) */
uint32_t block_dispatcher_add_input(BlockDispatcher *dispatcher, uint32_t node,
                                    const BlockDispatcherInput *input, char **wrong);

/* Deals up to `wanted` tickets to a node; fewer when few blocks are left. 0: none is left for
 * it. */
size_t block_dispatcher_assign(BlockDispatcher *dispatcher, uint32_t node, size_t wanted,
                               BlockTicket *tickets);

/* The result of a ticket: it was read; it is given back after n_read rows; or the input ends before
 * it. False if the node does not have such a ticket. */
bool block_dispatcher_finish(BlockDispatcher *dispatcher, uint32_t node, const BlockTicket *ticket);
bool block_dispatcher_give_back(BlockDispatcher *dispatcher, uint32_t node,
                                const BlockTicket *ticket);
bool block_dispatcher_absent(BlockDispatcher *dispatcher, uint32_t node, const BlockTicket *ticket);

/* What the node has read so far will not be dealt again, whatever happens. */
void block_dispatcher_settle(BlockDispatcher *dispatcher, uint32_t node);

/* The node reads no more: each of its unfinished tickets is dealt again as a whole, and so is each
 * finished one that is not settled. */
void block_dispatcher_node_out(BlockDispatcher *dispatcher, uint32_t node);

/* ---- in snapshots (block_dispatcher_text.c) ---- */

/* A snapshot is to be cut. Until it is written, nodes tell of tickets that they have, or have given
 * back: rows before ticket->n_read are done. And of rows that they had told to be read, and that
 * are not in the cut: n_read to `end`. False: there can be no such ticket. */
void block_dispatcher_begin_cut(BlockDispatcher *dispatcher);
bool block_dispatcher_note_done(BlockDispatcher *dispatcher, const BlockTicket *ticket);
bool block_dispatcher_note_undone(BlockDispatcher *dispatcher, const BlockTicket *rows);

/* Appends all that a dispatcher of another run needs to deal the rows that are not done. */
void block_dispatcher_write(BlockDispatcher *dispatcher, GString *text);

/* Reads it. config: its n_nodes, keeps_finished and only_checks count; the others are the text's.
 * NULL if the text makes no sense, or there is no memory. (transfer full) */
BlockDispatcher *block_dispatcher_read(const BlockDispatcherConfig *config, const char *text);

/* An input from the snapshot that no node holds, and of which blocks are left; NULL: none.
 * (transfer none) */
const char *block_dispatcher_find_missing(const BlockDispatcher *dispatcher);

/* How far the data has been read, as far as nodes have told. Each block of each epoch counts in one
 * of the three. */
typedef struct {
    uint32_t n_inputs;
    uint32_t epoch;   /* the lowest of which blocks are left to be dealt; the last one if none is */
    uint64_t n_done;  /* read, and not to be read again */
    uint64_t n_dealt; /* that nodes have, and have not told to be read */
    uint64_t n_left;  /* to be dealt, also again; UINT64_MAX: an input's end is not known */
} BlockDispatcherProgress;

BlockDispatcherProgress block_dispatcher_progress(const BlockDispatcher *dispatcher);

/* Those of n_dealt that the node has. */
uint64_t block_dispatcher_n_dealt(const BlockDispatcher *dispatcher, uint32_t node);

/* How many blocks of nodes that are out have not been dealt again as a whole. Of an input that only
 * such nodes held, one stands for all. A block of which such a node had read rows before it gave it
 * back stays one of them, unless it was settled: nobody will read these rows again. */
uint64_t block_dispatcher_n_orphans(const BlockDispatcher *dispatcher);

/* ---- as bytes (block_dispatcher_walk.c) ---- */

/* A ticket; the same of an element of an array. */
void block_ticket_walk(StateWalk *walk, void *ticket);

/* Walks through one; NULL: there is none, or it reads: then it returns a new one, or NULL.
 * n_nodes: of the run. (transfer full) */
BlockDispatcher *block_dispatcher_walk(StateWalk *walk, BlockDispatcher *dispatcher,
                                       uint32_t n_nodes);

#endif
