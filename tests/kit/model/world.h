/* One run of a model test: workers on nodes, shards with a model each, and between a node and a
 * shard a channel that keeps its order.
 *
 * What happens is a list of actions. A run can be given any list: an action that is not possible
 * when its turn comes is left out. So a part of a failing list is a run too.
 *
 * Threads: that of the test case. */
#ifndef TESTS_KIT_MODEL_WORLD_H
#define TESTS_KIT_MODEL_WORLD_H

#include <rubato/testing.h>

#define MAX_NODES 3
#define MAX_SHARDS 4
#define MAX_WORKERS 8
#define MAX_CALL_KEYS 6
#define MAX_ADDS 40 /* of a worker to a key: 3^40 still fits */
#define MAX_ITERATIONS 16

typedef enum {
    ACTION_GET, /* a worker's Get, for whose answer it waits or not */
    ACTION_ADD,
    ACTION_CLOCK,
    ACTION_RETIRE,
    ACTION_ANNOUNCE, /* the keys of the worker's next iteration */
    ACTION_END_TELLING,
    ACTION_TELL,    /* a node tells a shard the clocks that it has not told it yet */
    ACTION_DELIVER, /* a shard takes the next message of a node */
} ActionKind;

typedef struct {
    ActionKind kind;
    uint8_t worker;
    uint8_t node, shard; /* of TELL and DELIVER */
    bool waits;          /* of GET */
    uint8_t bits; /* GET: which shards get a selection; CLOCK, RETIRE: which are told at once;
                          * ANNOUNCE: which keys come in a message of their own */
    uint8_t n_keys;
    uint8_t keys[MAX_CALL_KEYS]; /* less the first key */
} Action;

/* What a run is besides its actions. */
typedef struct {
    uint64_t seed;
    RubatoTableSpec spec; /* whole */
    RubatoTestBounds bounds;
    uint32_t n_workers, n_nodes, n_shards;
    uint8_t node_of[MAX_WORKERS];
    bool tells[MAX_WORKERS]; /* the worker announces its keys, and uses no others */
    bool is_cut_off;         /* the task ends after the last action, whatever waits then */
} Scenario;

typedef struct World World;

/* Begins a run. story: what happens is written to it; NULL: not. (transfer full) */
World *world_new(const Scenario *scenario, GString *story);
void world_free(World *world);

/* Performs an action, if it is possible now; whether it was. */
bool world_perform(World *world, const Action *action);

/* What could happen now. */
bool world_can_step(const World *world,
                    uint32_t worker); /* the worker is live and waits for nothing */
bool world_has_mail(const World *world, uint32_t node, uint32_t shard);
bool world_has_news(const World *world, uint32_t node, uint32_t shard); /* clocks not told yet */
uint64_t world_clock(const World *world, uint32_t worker);
uint32_t world_n_told(const World *world,
                      uint32_t worker);                  /* iterations; UINT32_MAX: no more come */
bool world_has_got(const World *world, uint32_t worker); /* a Get at its present clock */
bool world_is_over(const World *world);                  /* all workers have retired */

/* The keys of the iteration that a telling worker is at; how many. */
uint32_t world_iteration_keys(const World *world, uint32_t worker, uint8_t *keys);

/* Ends the run: unless it is cut off, delivers all that is left and retires the workers; then ends
 * the task and looks at the rows. */
void world_end(World *world);

/* The first bound that was broken; NULL: none. */
const char *world_failure(const World *world);

#endif
