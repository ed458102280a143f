/* Collectives of every kind that are pending while a node is lost: three nodes with a worker each,
 * of which that of rank PENDING_LOST ends itself.
 *
 * Threads: a worker's. */
#ifndef TESTS_SUPPORT_CLUSTER_PENDING_CALLS_H
#define TESTS_SUPPORT_CLUSTER_PENDING_CALLS_H

#include "tests/support/cluster/cluster_run.h"

enum { PENDING_NODES = 3, PENDING_LOST = 1, PENDING_TICKETS = 7 };

/* A worker's arrays, zero at first. */
typedef struct {
    uint64_t n_values;
    float *input, *output[PENDING_TICKETS];
    RubatoGathered gathered[2];
} PendingCalls;

PendingCalls *pending_calls_new(uint64_t n_values);
void pending_calls_free(PendingCalls *calls);

/* One of all values, into output i. */
RubatoTensor pending_calls_tensor(const PendingCalls *calls, const char *name, uint32_t i);

/* Asks by tickets for a tensor of each kind, of which the lost worker asks for the last one, too;
 * then worker 0 waits for a set, and worker 2 has joined. All of it must fail, by errors that
 * is_named accepts. Says "ended at" and the time. *failure: that of the call that waited. */
bool pending_calls_fail(RubatoWorker *worker, PendingCalls *calls,
                        bool (*is_named)(const GError *failure), GError **failure, GError **error);

/* The lost worker: asks for the last one, says "gone at" and the time, and raises the signal. */
bool pending_calls_be_lost(RubatoWorker *worker, PendingCalls *calls, int signal, GError **error);

#endif
