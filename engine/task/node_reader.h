/* A node reader: one reader of each of a node's workers in a task, seen from the node: it tells the
 * scheduler what they read, and in a dynamic split fetches blocks for all of them.
 *
 * Threads: any, but node_reader_open from a worker's. */
#ifndef RUBATO_ENGINE_TASK_NODE_READER_H
#define RUBATO_ENGINE_TASK_NODE_READER_H

#include "engine/task/task_host.h"
#include "io/data/deal/block_source.h"

typedef struct NodeReader NodeReader;

/* How the scheduler and the log know it. */
typedef struct {
    const TaskHost *host;
    const char *task; /* copied */
    uint32_t epoch;   /* the task's */
    uint32_t id;      /* which of a worker's readers */
} NodeReaderPlace;

/* For a dataset and options, which have been filled in. (transfer full) */
NodeReader *node_reader_new(const NodeReaderPlace *place, RubatoDataset *dataset,
                            const RubatoReaderOptions *options);

/* The task is over: nothing is sent any more. */
void node_reader_close(NodeReader *node_reader);
void node_reader_unref(NodeReader *node_reader);

/* Tells the scheduler of the reader; the first of the node's workers that opens it calls this,
 * once, with no lock held. */
void node_reader_announce(NodeReader *node_reader);

/* Whether another worker's reader is the same; RUBATO_ERROR_MISMATCH says how not. */
bool node_reader_check(const NodeReader *node_reader, const RubatoDataset *dataset,
                       const RubatoReaderOptions *options, GError **error);

/* A worker's source of blocks, of a dynamic split. (transfer full) */
BlockSource *node_reader_open(NodeReader *node_reader);

/* The scheduler's answer; the task's cancellation. */
void node_reader_receive(NodeReader *node_reader, const ControlBlocks *blocks);
void node_reader_cancel(NodeReader *node_reader);

#endif
