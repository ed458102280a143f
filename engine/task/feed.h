/* A feed: one reader of each of a node's workers in a task, seen from the node: it tells the scheduler
 * what they read, and in a dynamic split fetches blocks for all of them.
 *
 * Threads: any, but feed_open from a worker's. */
#ifndef RUBATO_ENGINE_TASK_FEED_H
#define RUBATO_ENGINE_TASK_FEED_H

#include "engine/node.h"
#include "io/data/deal/block_source.h"

typedef struct Feed Feed;

/* How the scheduler and the log know it. */
typedef struct {
    RubatoEngine *engine;
    const char *task; /* copied */
    uint32_t epoch;   /* the task's */
    uint32_t id;      /* which of a worker's readers */
} FeedPlace;

/* For a dataset and options, which have been filled in. (transfer full) */
Feed *feed_new(const FeedPlace *place, RubatoDataset *dataset, const RubatoReaderOptions *options);

/* The task is over: nothing is sent any more. */
void feed_close(Feed *feed);
void feed_unref(Feed *feed);

/* Tells the scheduler of the reader; the first of the node's workers that opens it calls this, once,
 * with no lock held. */
void feed_announce(Feed *feed);

/* Whether another worker's reader is the same; RUBATO_ERROR_MISMATCH says how not. */
bool feed_check(const Feed *feed, const RubatoDataset *dataset, const RubatoReaderOptions *options,
                GError **error);

/* A worker's source of blocks, of a dynamic split. (transfer full) */
BlockSource *feed_open(Feed *feed);

/* The scheduler's answer; the task's cancellation. */
void feed_receive(Feed *feed, const Control *blocks);
void feed_cancel(Feed *feed);

#endif
