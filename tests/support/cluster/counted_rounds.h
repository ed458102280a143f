/* Rounds of Adds that the rows count: each adds one to all keys, and in the end each worker adds
 * its rounds to one key more. So the rows tell whether each Add counted once, whatever has happened
 * to the nodes meanwhile.
 *
 * Threads: inside a node, the one that calls; counted_rounds_stop: a signal's. */
#ifndef TESTS_SUPPORT_CLUSTER_COUNTED_ROUNDS_H
#define TESTS_SUPPORT_CLUSTER_COUNTED_ROUNDS_H

#include "tests/support/cluster/cluster_run.h"

/* The keys 0 to COUNTED_KEYS - 1, and COUNTED_KEYS itself for the rounds; values are RUBATO_I64. */
enum { COUNTED_KEYS = 200 };

/* Ends the rounds that have no end, as the handler of a signal. */
void counted_rounds_stop(int number);

typedef struct {
    const char *table;
    int64_t most; /* rounds; 0: until counted_rounds_stop */
    /* What a worker does after the clock of a round, counted from 0. NULL: nothing. */
    bool (*after_clock)(RubatoWorker *worker, int64_t round, GError **error);
    const char *lists_model; /* of a table of ragged rows, which each round also writes to:
                              * counted_lists.h. NULL: none */
} CountedRounds;

/* Runs a task of such rounds, and checks the rows. A worker says "busy" after some rounds, and sees
 * at least its own. */
bool counted_rounds_play(RubatoEngine *engine, const CountedRounds *rounds, GError **error);

/* Checks the rows again. */
bool counted_rounds_check(RubatoEngine *engine, const char *table, GError **error);

#endif
