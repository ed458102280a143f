/* Rounds of Adds to all keys of a table while nodes are lost: what is acknowledged counts once.
 *
 * Threads: inside a node, the one that calls. */
#ifndef TESTS_SUPPORT_CLUSTER_LOSSY_ROUNDS_H
#define TESTS_SUPPORT_CLUSTER_LOSSY_ROUNDS_H

#include "tests/support/cluster/cluster_run.h"

/* Whether the node of this number is lost, as far as this one knows. */
bool cluster_is_lost(RubatoEngine *engine, uint32_t node);

/* The table has the keys 0 to n_keys - 1, and n_keys itself, where workers add up their rounds. */
typedef struct {
    RubatoEngine *engine;
    const RubatoTableSpec *spec;
    uint32_t n_keys;
    const uint32_t *victims;
    uint32_t n_victims;
    bool calls; /* each round also calls a handler: it adds 1 to all keys, and fails at times */
    bool lists; /* each round also writes to a table of ragged rows: counted_lists.h */
} LossyRounds;

/* Registers that handler: before any node begins. */
void lossy_rounds_register(void);

/* Tables of LOSSY_KEYS keys and that of the rounds, each over another transport or under another
 * model. Tests run on each of them. */
enum { LOSSY_KEYS = 400, N_LOSSY_CASES = 3 };

typedef struct {
    const char *over;
    RubatoTableSpec spec;
} LossyCase;

extern const LossyCase lossy_cases[N_LOSSY_CASES];

/* A task: adds 1 to all keys, reads them and clocks, until all victims are lost, and some rounds
 * more. Says "busy" after some. A worker sees at least its own rounds, and hears of each call that
 * fails. rounds: LossyRounds. */
bool lossy_rounds_work(RubatoWorker *worker, void *rounds, GError **error);

/* Makes the table, and that of the lists; their names are for a task. */
enum { LOSSY_TABLES = 3 };
bool lossy_rounds_create(LossyRounds *rounds, const char *tables[LOSSY_TABLES], GError **error);

/* Makes them, runs the task on it, and checks that each key has one for each round and each
 * call. *n_rounds becomes the number of rounds; NULL: it is not asked for. */
bool lossy_rounds_play(LossyRounds *rounds, int64_t *n_rounds, GError **error);

/* The last of these, when the task has ended. */
bool lossy_rounds_check(LossyRounds *rounds, int64_t *n_rounds, GError **error);

#endif
