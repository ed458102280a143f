/* The Adds of a simulation's workers, and what a Get may see of them: the semantics of the models,
 * checked by code that sees all workers but knows nothing of how models work.
 *
 * A row has a column for each worker. Each Add of a worker adds a number there that is drawn for
 * this Add alone. So the sum that a Get sees tells which Adds of the worker are in it: always the
 * first ones up to some Add, because they take effect in order.
 *
 * Threads: those of the simulation. */
#ifndef TESTS_SUPPORT_SIM_SIM_HISTORY_H
#define TESTS_SUPPORT_SIM_SIM_HISTORY_H

#include <rubato/rubato.h>

typedef struct SimHistory SimHistory;

typedef enum { SIM_MODEL_ASP, SIM_MODEL_BSP, SIM_MODEL_SSP, SIM_MODEL_SPARSE_SSP } SimModel;

/* Of the keys first_key .. first_key + n_keys - 1. (transfer full) */
SimHistory *sim_history_new(const char *name, SimModel model, uint64_t staleness, bool has_cache,
                            RubatoKey first_key, uint32_t n_keys, uint32_t n_workers);
void sim_history_free(SimHistory *history);

/* A task begins: clocks are 0, and every earlier Add must be seen. */
void sim_history_begin_task(SimHistory *history);

/* A worker of the task is in that process, and begins with a clock, before which it would have come
 * to so many barriers. Returns whether it is in the place of a lost one. Then it makes the Adds of
 * the lost one again, from there on, which count once. */
bool sim_history_begin_worker(SimHistory *history, uint32_t worker, uint32_t node, uint64_t clock,
                              uint32_t n_barriers);

/* The node was killed. Of what its workers have made, the first Adds count, to any number; or, if
 * they are replaced, all. */
void sim_history_lose_node(SimHistory *history, uint32_t node);

/* Lost workers are replaced. may_be_ahead: a worker ends its clock on this table before that on
 * another one. So under BSP one in the place of a lost one, which begins with the lower of the two,
 * may see all Adds of its first clock, too. What it adds then is had. */
void sim_history_replace(SimHistory *history, bool may_be_ahead);

/* The worker reaches a barrier. After it, the worker sees everything that any worker added before
 * the barrier. That holds if no row that was read earlier is served again. */
void sim_history_enter_barrier(SimHistory *history, uint32_t worker);

/* The worker is about to add to the keys at this clock: fills n rows of deltas. */
void sim_history_add(SimHistory *history, uint32_t worker, uint64_t clock, const RubatoKey *keys,
                     size_t n, int64_t *deltas);

/* A Get that a worker is about to make. */
typedef struct {
    uint32_t worker;
    uint64_t clock;
    uint32_t n_barriers; /* that it has passed */
    size_t n;
    RubatoKey *keys;
    uint32_t *least; /* of its own Adds to the key */
} SimGet;

void sim_history_begin_get(SimHistory *history, SimGet *get, uint32_t worker, uint64_t clock,
                           const RubatoKey *keys, size_t n);

/* The Get has returned these rows: ends the test if it must not. */
void sim_history_end_get(SimHistory *history, SimGet *get, const int64_t *rows);
void sim_get_clear(SimGet *get);

/* The rows after a task that failed: the next task begins with them. Every node tells them. */
void sim_history_adopt(SimHistory *history, RubatoKey first, size_t n, const int64_t *rows);

/* Of a worker's Adds to all tables: their numbers ascend. */
typedef struct {
    uint64_t last_seen;    /* the highest that rows have */
    uint64_t first_unseen; /* the lowest that rows lack */
} SimPrefix;

/* Looks which Adds the rows of all keys have; prefixes by worker. */
void sim_history_see_prefixes(const SimHistory *history, const int64_t *rows, SimPrefix *prefixes);

/* The rows must have all Adds of the clocks below this, and no others. 0: or all Adds, because the
 * workers have ended. */
void sim_history_check_clock(const SimHistory *history, const int64_t *rows, uint64_t clock);

/* Every Add must be in the rows, once. */
void sim_history_check_all(const SimHistory *history, RubatoKey first, size_t n,
                           const int64_t *rows);

#endif
