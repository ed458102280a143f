/* The dispatcher's state, for its files.
 *
 * Threads: the scheduler's owner. */
#ifndef RUBATO_ENGINE_SCHEDULER_DATA_BLOCK_DISPATCHER_PRIVATE_H
#define RUBATO_ENGINE_SCHEDULER_DATA_BLOCK_DISPATCHER_PRIVATE_H

#include "engine/scheduler/data/block_dispatcher.h"
#include "io/data/random.h"

#define NOBODY UINT32_MAX

typedef struct {
    char *name;
    uint64_t bytes;
    uint64_t n_blocks;
    bool any_order;
    bool *held; /* by node */
    uint32_t n_holders;
    uint32_t last; /* the node that got the last block of it, or NOBODY */

    uint32_t epoch;     /* the epoch now dealt; the config's `epochs`: all are dealt */
    uint64_t next;      /* place in its order */
    uint32_t *order;    /* NULL: its own */
    uint64_t n_ordered; /* numbers in it; 0: none */
} InputEntry;

struct BlockDispatcher {
    BlockDispatcherConfig config;
    GArray *inputs;      /* of InputEntry, by input */
    GHashTable *by_name; /* to input + 1 */
    GArray **dealt;      /* by node: of BlockTicket */
    GArray **finished;   /* by node: of BlockTicket, as they were dealt */
    uint64_t *n_begun;   /* by node: blocks given back after it had read rows of them */
    GArray *returned;    /* of BlockTicket, those of nodes that are out first */
    guint n_orphans;     /* of nodes that are out */
    uint64_t n_torn;     /* the n_begun of nodes that are out */
    uint64_t n_done;     /* blocks that were read */
    uint64_t n_ordered;  /* of all inputs */
    Random random;
    bool is_restored; /* it has all inputs from the snapshot */

    /* Of the snapshot that is cut: see block_dispatcher_text.c. */
    GArray *done;   /* of BlockTicket: their rows before n_read are */
    GArray *undone; /* of BlockTicket: rows n_read to `end` are not in it */
};

/* Draws the order of n blocks in the epoch that the entry is in; 0: its own. False, and its own
 * order: there is no memory, or the dispatcher would have more numbers than it may. */
bool block_dispatcher_order(BlockDispatcher *dispatcher, InputEntry *entry, uint32_t input,
                            uint64_t n);

/* Begins the next epoch if all blocks of this one have been dealt. */
void block_dispatcher_end_epochs(BlockDispatcher *dispatcher, InputEntry *entry, uint32_t input);

#endif
