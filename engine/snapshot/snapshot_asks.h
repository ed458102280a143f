/* The snapshots that this node has asked the scheduler for, until it says how they ended.
 *
 * Threads: any. */
#ifndef RUBATO_ENGINE_SNAPSHOT_SNAPSHOT_ASKS_H
#define RUBATO_ENGINE_SNAPSHOT_SNAPSHOT_ASKS_H

#include <pthread.h>

#include "engine/control/control.h"
#include "io/net/call.h"

/* One of them. It stays where it is until its call ends. */
typedef struct SnapshotAsk SnapshotAsk;
struct SnapshotAsk {
    /* the caller's */
    Call *call;       /* it has begun, with a part for this */
    const char *spec; /* snapshot_text.h */
    uint64_t seed;
    uint32_t epoch; /* as ControlSnapshot.epoch */
    Call *cut;      /* the same, for the moment when all nodes have cut their tables, or it has
                     * failed before; NULL: nobody waits for that */

    /* set before the call ends */
    uint64_t written; /* the snapshot's number in its directory */
    GError *failure;  /* with CALL_FAILED */

    /* guarded by SnapshotAsks.lock */
    uint64_t number;
    SnapshotAsk *next;
};

typedef struct {
    /* immutable */
    void (*tell_scheduler)(void *user, const Control *control);
    void *user;

    pthread_mutex_t lock;
    /* guarded by lock */
    uint64_t n;         /* that were asked */
    SnapshotAsk *first; /* of those that have not ended */
    bool is_broken;     /* no more can be asked */
} SnapshotAsks;

void snapshot_asks_init(SnapshotAsks *asks,
                        void (*tell_scheduler)(void *user, const Control *control), void *user);
void snapshot_asks_clear(SnapshotAsks *asks);

/* Asks for one. The call's part ends when the scheduler has said how it ended, perhaps at once. */
void snapshot_asks_begin(SnapshotAsks *asks, SnapshotAsk *ask);

/* All nodes have cut their tables for what has that number among this node's. */
void snapshot_asks_hear_cut(SnapshotAsks *asks, uint64_t number);

/* The scheduler says so. */
void snapshot_asks_hear_end(SnapshotAsks *asks, const ControlSnapshot *end);

/* The scheduler will say nothing more: ends all with this. */
void snapshot_asks_break(SnapshotAsks *asks, uint32_t code, const char *text);

#endif
