/* A node reader stands for the same reader of all of a node's workers in a task. It tells the
 * scheduler what they read. In a dynamic split it fetches blocks for all of them.
 *
 * Threads: any; node_reader_open from a worker's thread only. */
#ifndef RUBATO_ENGINE_TASK_NODE_READER_H
#define RUBATO_ENGINE_TASK_NODE_READER_H

#include "engine/task/task_host.h"
#include "io/data/deal/reader.h"

typedef struct NodeReader NodeReader;

/* How the scheduler and the log identify the reader. */
typedef struct {
    const TaskHost *host;
    const char *task; /* copied */
    uint32_t epoch;   /* the task's */
    uint32_t id;      /* the number of the reader among a worker's readers */
    /* If lost workers are to be replaced, each has blocks of its own, so that those in their place
     * get the same: */
    uint32_t first_rank; /* of the node's workers */
    uint32_t n_apart;    /* how many they are; 0: all have their blocks together */
} NodeReaderPlace;

/* Takes a dataset and options whose defaults are filled in. (transfer full) */
NodeReader *node_reader_new(const NodeReaderPlace *place, RubatoDataset *dataset,
                            const RubatoReaderOptions *options);

/* The task is over: the node reader sends nothing more. */
void node_reader_close(NodeReader *node_reader);
void node_reader_unref(NodeReader *node_reader);

/* Tells the scheduler of the reader. The first worker of the node that opens the reader calls this
 * once, with no lock held. */
void node_reader_announce(NodeReader *node_reader);

/* Whether another worker's reader is the same. RUBATO_ERROR_MISMATCH says how they differ. */
bool node_reader_check(const NodeReader *node_reader, const RubatoDataset *dataset,
                       const RubatoReaderOptions *options, GError **error);

/* A worker's source of blocks in a dynamic split. (transfer full) */
BlockSource *node_reader_open(NodeReader *node_reader, uint32_t rank);

/* Where the reader of a worker tells how far it has come. It stays as long as the node reader. */
ReaderProgress *node_reader_add_worker(NodeReader *node_reader, uint32_t rank);

/* A worker whose blocks are its own has closed the reader: returns when the scheduler has heard
 * what became of all of them, or the task is over. With no lock held. */
void node_reader_end_worker(NodeReader *node_reader, uint32_t rank);

/* What it reads, and how far each worker has come: the member `readers` of a task's status. What is
 * said of one worker is of one moment; another worker may have read on before it is its turn.
 * (transfer floating) */
GVariant *node_reader_status(NodeReader *node_reader);

/* ---- of readers that are kept in snapshots ---- */

/* Which clock a worker had on a table whose Adds are applied by their clock when it began a step,
 * and the lowest clock of all workers now, as far as the node has heard. */
typedef struct {
    uint64_t clock;  /* NODE_READER_NO_CLOCK: Adds are applied when they come */
    uint64_t lowest; /* then not looked at */
} NodeReaderClock;

#define NODE_READER_NO_CLOCK UINT64_MAX

bool node_reader_is_kept(const NodeReader *node_reader);

/* In the step of a worker of the source, which node_reader_open gave: these rows are done. */
void node_reader_note_done(BlockSource *source, const ReaderRows *rows, size_t n,
                           NodeReaderClock at);

/* While no worker is in a step: tells the scheduler which rows are done for a snapshot that has the
 * Adds of clocks below `lowest` where these are applied by their clock. With no lock held. */
void node_reader_tell_done(NodeReader *node_reader, uint64_t lowest);

/* The node's workers have ended: tells the scheduler in which of their steps, at clock `lowest` or
 * later, rows were done. With no lock held. */
void node_reader_tell_ended(NodeReader *node_reader, uint64_t lowest);

NodeReader *node_reader_ref(NodeReader *node_reader);

/* The scheduler's answer; the task's cancellation. */
void node_reader_receive(NodeReader *node_reader, const ControlBlocks *blocks);
void node_reader_cancel(NodeReader *node_reader);

#endif
