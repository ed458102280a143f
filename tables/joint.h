/* A Get, an Add or the begin of an iteration at all parts of a table at once, by a worker's thread.
 *
 * If all parts of a table are on servers of this process, and these are idle, a worker's thread can
 * be the owner of all of them for a moment. Then its keys need not be cut for each server, and no
 * message is sent. What happens is the same as if each server had handled its own message.
 *
 * A single worker of a task becomes the owner for each of these. Several workers read beside one
 * another: they share the servers, and no rows change meanwhile. Rows of a single value they read
 * beside owners, too. If they take turns, each becomes the owner in its turn. For an Add they
 * become the owner if one token stands for all servers (io/net/actor.h).
 *
 * It is tried alone: a server that is busy, or whose model would keep the request, gets its message
 * as usual. See engine/server/joint/server_joint.c.
 *
 * Threads: a worker's. */
#ifndef RUBATO_TABLES_JOINT_H
#define RUBATO_TABLES_JOINT_H

#include <rubato/request.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/row_places.h"
#include "tables/partition.h"

typedef struct {
    uint32_t worker;
    uint64_t clock;
    uint64_t node_clock; /* that a Get brings; 0: none */
    const RubatoKey *keys;
    size_t n_keys;
    const void *deltas;    /* of an Add */
    void *values;          /* of a Get; NULL: a turn reads no rows */
    RowPlaces *places;     /* of one of several workers: where the rows are; set in a turn, and by a
                            * Get */
    bool lends;            /* of several workers, in a turn or an Add: the tokens become one */
    bool admits_readers;   /* a Get that shares the servers: others may then read beside owners */
    bool begins_iteration; /* by a Get: the worker has reached its clock, under a model that takes
                            * announcements */
} JointAsk;

struct TableRoute;

/* What the owner of servers does. Each returns false if nothing has been done, but that servers may
 * have been told the clock. */
typedef struct {
    /* *min_clock: the lowest min clock of the parts. */
    bool (*get)(const struct TableRoute *route, const JointAsk *ask, uint64_t *min_clock);
    bool (*add)(const struct TableRoute *route, const JointAsk *ask); /* NULL: of a single worker */

    /* One of several workers begins its iteration, whose clock is the ask's: each part, which has a
     * slice of its keys, takes their announcement and then that clock. NULL: it sends messages. */
    bool (*begin)(const struct TableRoute *route, const JointAsk *ask, const Slice *slices);

    /* In a worker's turn: the parts take the Adds that it has deferred before the ask's clock, and
     * all earlier ones. Then reads the rows, if the ask has values. False: some parts may have
     * taken them. NULL if workers do not take turns. */
    bool (*take_turn)(const struct TableRoute *route, const JointAsk *ask, uint64_t *min_clock);
} JointOps;

/* Requests of more keys are cut: workers own servers for parts of many keys one after the other.
 * Gets that need not own them may have more, but not any number: who wants to own the servers
 * waits. Requests of few keys are cut, too: TableRoute.least_joint_keys. For a single worker that
 * is JOINT_LEAST_KEYS, because a cut of few keys costs less than a second server that may not be
 * needed. */
#define JOINT_LEAST_KEYS 16u
#define JOINT_MOST_KEYS 1024u
#define JOINT_MOST_KEYS_TO_BEGIN 256u /* and to add, by several workers on several servers */
#define JOINT_MOST_KEYS_IN_TURN 4096u
#define JOINT_MOST_KEYS_TO_READ 16384u
#define JOINT_MOST_KEYS_BESIDE 65536u /* owners: of them few have to wait */

#endif
