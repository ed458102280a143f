/* The world of the model simulation: workers, nodes, channels, shards, and two judges that know the
 * semantics but not how models work.
 *
 * - The bookkeeper of each shard knows the clocks and announcements delivered to it, and says which
 *   Gets may be answered.
 * - The log holds all Adds. A row has a column per worker, and the worker's j-th Add to a key adds
 *   3^j there. So a sum shows which Adds it has, how often, and whether one between is missing.
 *
 * Threads: the test's. */
#ifndef TESTS_SUPPORT_MODEL_WORLD_H
#define TESTS_SUPPORT_MODEL_WORLD_H

#include <check.h>

#include "models/model.h"
#include "models/shard.h"

#define MAX_NODES 3
#define MAX_SHARDS 4
#define MAX_WORKERS 8
#define FIRST_KEY 1000
#define N_KEYS 24 /* a set of keys is a mask */
#define MAX_CALL_KEYS 6
#define MAX_ADDS 40 /* of a worker to a key: 3^40 still fits */
#define MAX_ITERATIONS 48

typedef enum { KIND_GET, KIND_ADD, KIND_CLOCK, KIND_ANNOUNCE } Kind;

/* A Get of a worker, in parts for the shards. */
typedef struct {
    uint32_t worker;
    uint64_t clock;
    size_t n;
    RubatoKey keys[MAX_CALL_KEYS];
    int64_t values[MAX_CALL_KEYS * MAX_WORKERS];
    uint32_t own[MAX_CALL_KEYS];               /* Adds of its worker to the key before it */
    uint32_t seen[MAX_CALL_KEYS][MAX_WORKERS]; /* Adds in what it read */
    bool is_read[MAX_CALL_KEYS];
    uint32_t n_pending;
} Get;

typedef struct Message Message;
struct Message {
    RubatoRequest request; /* first */
    Kind kind;
    uint32_t source;
    Get *get;
    bool is_selection;
    RubatoKey keys[MAX_CALL_KEYS];
    uint32_t at[MAX_CALL_KEYS];
    int64_t values[MAX_CALL_KEYS * MAX_WORKERS];
    bool is_answered;
};

typedef struct {
    uint32_t node;
    uint64_t clock; /* RUBATO_CLOCK_RETIRED at the end */
    uint32_t n_steps_left;
    Get *waits_for;
    uint32_t n_pending; /* Gets in flight, waited for or not */

    /* a worker that tells its iterations */
    bool tells;
    uint32_t n_iterations;
    uint32_t n_told;
    bool has_got;                        /* its Get at this clock */
    uint32_t iterations[MAX_ITERATIONS]; /* masks */

    uint64_t clocks_told[MAX_SHARDS]; /* if the sources are workers */
} Worker;

/* What the bookkeeper of a shard knows. */
typedef struct {
    RubatoShard *shard;
    RubatoModel *model;
    RubatoKey first_key;
    uint64_t n_keys;
    uint64_t clocks[MAX_WORKERS]; /* by source */
    uint32_t n_told[MAX_WORKERS]; /* UINT32_MAX: it will tell no more */
    uint32_t told[MAX_WORKERS][MAX_ITERATIONS];
    uint32_t n_told_keys[MAX_WORKERS]; /* of the iteration whose announcement has come in part */
    GPtrArray *parked;
} Place;

typedef struct {
    unsigned seed;
    GRand *rand;
    RubatoTableSpec spec;
    uint32_t n_nodes, n_places, n_workers, n_sources;
    bool has_worker_clocks;
    int delivery_percent; /* the chance that a message is delivered */
    uint32_t slow_worker;
    Worker workers[MAX_WORKERS];
    Place places[MAX_SHARDS];
    GQueue channels[MAX_NODES][MAX_SHARDS];
    uint64_t node_clocks_told[MAX_NODES][MAX_SHARDS];
    GPtrArray *gets, *messages;
    uint64_t log[MAX_WORKERS][N_KEYS][MAX_ADDS]; /* the clock of each Add */
    uint32_t n_log[MAX_WORKERS][N_KEYS];
} World;

#define FAIL(world, ...)                                                                     \
    do {                                                                                     \
        g_autofree char *what = g_strdup_printf(__VA_ARGS__);                                \
        ck_abort_msg(                                                                        \
            "seed %u (%s, %s, record %s, s=%u q=%u, %u workers, %u nodes, %u shards): %s",   \
            (world)->seed, (world)->spec.model, (world)->spec.storage, (world)->spec.record, \
            (world)->spec.staleness, (world)->spec.speculation, (world)->n_workers,          \
            (world)->n_nodes, (world)->n_places, what);                                      \
    } while (0)

bool world_has_model(const World *world, const char *name);

/* The lowest of n clocks. */
uint64_t world_lowest(const uint64_t *clocks, uint32_t n);

/* A key as a bit of a mask. */
uint32_t world_bit_of(RubatoKey key);

/* Whether a shard may answer a Get, by what it has been told. */
bool world_may_be_answered(const World *world, const Place *place, const Message *message);

/* A model has answered a part of a Get: records what it read, and judges the Get when it is the
 * last part. */
void world_take_answer(World *world, Message *message);

/* Compares what a Get has seen with what it had to see and could see. At any time after its answer,
 * best when the log is complete. */
void world_judge_get(World *world, const Get *get);

/* Checks the final state of a shard: every Add is in it if the task has ended (is_over); under BSP,
 * those of the clocks that are over. */
void world_judge_rows(World *world, const Place *place, bool is_over);

#endif
