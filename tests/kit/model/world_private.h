/* The inside of a run: what it is made of, and its judges.
 *
 * A row has a column for each worker. The worker's j-th Add to a key adds 3^j there: so a sum shows
 * how many of its Adds are in it, and whether one is missing or in it twice.
 *
 * Threads: that of the test case. */
#ifndef TESTS_KIT_MODEL_WORLD_PRIVATE_H
#define TESTS_KIT_MODEL_WORLD_PRIVATE_H

#include "tests/kit/model/world.h"

#define FIRST_KEY RUBATO_TEST_FIRST_KEY
#define N_KEYS RUBATO_TEST_N_KEYS

typedef enum { MESSAGE_GET, MESSAGE_ADD, MESSAGE_CLOCK, MESSAGE_ANNOUNCE } MessageKind;

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

typedef struct {
    RubatoRequest request; /* first */
    MessageKind kind;
    uint32_t source; /* of a clock */
    Get *get;
    bool is_selection;
    bool is_answered;
    RubatoKey keys[MAX_CALL_KEYS];
    uint32_t at[MAX_CALL_KEYS];
    int64_t values[MAX_CALL_KEYS * MAX_WORKERS];
} Message;

typedef struct {
    uint64_t clock; /* RUBATO_CLOCK_RETIRED at the end */
    Get *waits_for;
    uint32_t n_pending;            /* Gets in flight */
    uint32_t n_told;               /* iterations; UINT32_MAX: no more come */
    uint32_t told[MAX_ITERATIONS]; /* masks of keys */
    bool has_got;                  /* a Get at this clock */
} Worker;

/* What a shard has been told, and what it has. */
struct RubatoTestView {
    const World *world;
    RubatoModelDriver *driver;
    RubatoKey first_key;
    uint64_t n_keys;
    uint64_t clocks[MAX_WORKERS]; /* by source */
    uint32_t n_told[MAX_WORKERS];
    uint32_t told[MAX_WORKERS][MAX_ITERATIONS];
    uint32_t n_told_keys[MAX_WORKERS]; /* of the iteration that has come in part */
    GPtrArray *parked;
};

typedef struct RubatoTestView Shard;

struct World {
    Scenario scenario;
    bool has_worker_clocks;
    uint32_t n_sources;
    Worker workers[MAX_WORKERS];
    Shard shards[MAX_SHARDS];
    GQueue channels[MAX_NODES][MAX_SHARDS];
    uint64_t clocks_told[MAX_WORKERS][MAX_SHARDS]; /* by source */
    GPtrArray *gets, *messages;
    uint64_t log[MAX_WORKERS][N_KEYS][MAX_ADDS]; /* the clock of each Add */
    uint32_t n_log[MAX_WORKERS][N_KEYS];
    GString *story;
    char *failure;
};

static inline uint64_t lowest(const uint64_t *clocks, uint32_t n)
{
    uint64_t min = RUBATO_CLOCK_RETIRED;

    for (uint32_t i = 0; i < n; i++)
        min = MIN(min, clocks[i]);
    return min;
}

static inline uint32_t bit_of(RubatoKey key)
{
    return UINT32_C(1) << (key - FIRST_KEY);
}

/* A bound is broken; the first one counts. */
void world_fail(World *world, const char *format, ...) G_GNUC_PRINTF(2, 3);

/* Adds to the story, if it is told. */
void world_tell(World *world, const char *format, ...) G_GNUC_PRINTF(2, 3);

/* The clock of the slowest live worker. */
uint64_t world_true_min(const World *world);

/* What a Get has seen, as far as it has been answered. */
void judge_get(World *world, const Get *get);

/* A shard has answered a part of a Get. */
void judge_answer(World *world, Shard *shard, Message *message);

/* A Get that is due must not be parked. */
void judge_parked(World *world, const Shard *shard);

/* What is left in a shard after the task: every Add if all programs have come to their end. */
void judge_rows(World *world, const Shard *shard, bool is_over);

#endif
