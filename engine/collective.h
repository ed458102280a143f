/* Calls that every node makes: propose, do, commit.
 *
 * Threads: that of the engine's calls, one call at a time. */
#ifndef RUBATO_ENGINE_COLLECTIVE_H
#define RUBATO_ENGINE_COLLECTIVE_H

#include <pthread.h>
#include <rubato/engine.h>

#include "engine/control/control.h"

/* The stage that this node has reached in its present collective call. */
typedef enum {
    CALL_STAGE_NONE,
    CALL_STAGE_PROPOSED,
    CALL_STAGE_GO,
    CALL_STAGE_COMMITTED,
} CallStage;

/* The present collective call. There is at most one at a time. Guarded by the engine's lock. */
typedef struct {
    uint64_t number; /* among this node's, from 1 */
    CallStage stage;
    pthread_t caller; /* the thread that makes it */
    const char *text; /* what it is, its own */
    ControlGo go;     /* the last one */
    bool *lost;       /* by node number: lost when the scheduler sent it; the same on all nodes */
    bool *workerless; /* lost then, or such that another process had its place */
    uint32_t commit_code;
    char *commit_text;
} PresentCall;

typedef struct {
    ControlCall what;
    const char *text;    /* "table weights" */
    const char *detail;  /* the arguments in words; NULL: a newcomer cannot tell them any more */
    const char *workers; /* of a RUN: as ControlPropose.workers */
    const char *told;    /* as ControlPropose.told; longer ones are not told */
    uint64_t seed;       /* a proposal: the first node's seed is used by all */
    bool survives;       /* as ControlPropose.survives */
    uint32_t replace_ms; /* likewise */

    /* This node's part, on the calling thread, between GO and READY, for each step. May be NULL. */
    bool (*perform)(RubatoEngine *engine, const ControlGo *go, void *data, GError **error);

    /* Undoes this node's part if another node could not do its own. May be NULL. */
    void (*undo)(RubatoEngine *engine, uint32_t id, void *data);

    /* All nodes have done theirs. The engine's lock is held. May be NULL. */
    void (*commit)(RubatoEngine *engine, void *data);

    /* In the place of all this, if the run had made the call, with success, before this process
     * took the place of a lost node (newcomer.h); id: as in GO, told: as in PAST. May be NULL. */
    void (*past)(RubatoEngine *engine, uint32_t id, const char *told, void *data);
    void *data;
} CollectiveCall;

bool collective(RubatoEngine *engine, const CollectiveCall *call, GError **error);

/* Does this node's part of a call that others have made, from its GO on. lost: as in
 * PresentCall. */
bool collective_serve(RubatoEngine *engine, const CollectiveCall *call, const ControlGo *go,
                      const bool *lost, GError **error);

/* The same of a call that this node's program has made, on the thread of serving.h. */
bool collective_serve_own(RubatoEngine *engine, const CollectiveCall *call, const ControlGo *go,
                          const bool *lost, const bool *workerless, GError **error);

#endif
