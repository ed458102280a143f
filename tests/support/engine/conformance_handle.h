/* One handle of any kind, for test_conformance.c: what it is asked is the same for all. By turns it
 * asks with calls that wait and by tickets, and one worker's tickets borrow its buffers.
 *
 * Threads: the worker whose handle it is. */
#ifndef TESTS_SUPPORT_ENGINE_CONFORMANCE_HANDLE_H
#define TESTS_SUPPORT_ENGINE_CONFORMANCE_HANDLE_H

#include "tests/support/engine/conformance_plan.h"

typedef struct {
    RubatoWorker *worker;
    const Plan *plan;
    HandleKind kind;
    RubatoKVTable *kv;
    RubatoChunkTable *chunk;
    RubatoSparseKVClientTable *sparse;
    RubatoRaggedTable *ragged;
    RubatoIteration iterations[N_ITERATIONS];
    uint32_t n_callbacks; /* helper thread, then whoever has waited */

    /* What is lent to an Add that is on its way, and what was in it as it was lent. */
    RubatoTicket lent_to; /* 0: none */
    Step lent_step;
    uint32_t lent_lengths[MAX_STEP_KEYS];
    _Alignas(8) char lent[MAX_STEP_KEYS * MAX_WIDTH * 8];
    _Alignas(8) char as_lent[MAX_STEP_KEYS * MAX_WIDTH * 8];
} Handle;

/* What a step asks of a handle. */
typedef enum { ASK_GET, ASK_ADD, ASK_ADD_GET } Ask;

typedef struct {
    Ask ask;
    const Step *step;
    const void *deltas;
    void *values;
} Request;

/* The worker, the plan and the kind are set. */
bool handle_open(Handle *handle, RubatoWorker *worker, GError **error);
void handle_close(Handle *handle);

/* By a ticket in every other iteration: with a callback, and waited for if rows come back. */
bool handle_ask(Handle *handle, const Request *request, uint64_t t, GError **error);

/* What was lent may be used again, and is as it was; the next user finds something else in it. */
bool handle_take_back(Handle *handle, GError **error);

bool handle_clock(Handle *handle, GError **error);

#endif
