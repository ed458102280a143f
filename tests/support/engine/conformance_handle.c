#include "tests/support/engine/conformance_handle.h"

#include <string.h>

#include "tests/support/engine/engine_fixture.h"

enum { LENDER = 1 }; /* the rank whose tickets borrow */

bool handle_open(Handle *handle, RubatoWorker *worker, GError **error)
{
    const RubatoTableSpec *spec = &handle->plan->spec;
    const Step *steps = handle->plan->steps[rubato_worker_rank(worker)];

    switch (handle->kind) {
    case HANDLE_KV:
        handle->kv = rubato_worker_open_kv_table(worker, spec->name, spec->dtype, error);
        return handle->kv != NULL;
    case HANDLE_KV_CACHED:
    case HANDLE_KV_ALL_CACHED:
        handle->kv = rubato_worker_open_kv_table_cached(worker, spec->name, spec->dtype, error);
        return handle->kv != NULL;
    case HANDLE_CHUNK:
        handle->chunk = rubato_worker_open_chunk_table(worker, spec->name, spec->dtype, error);
        return handle->chunk != NULL;
    case HANDLE_RAGGED:
        handle->ragged = rubato_worker_open_ragged_table(worker, spec->name, spec->dtype, error);
        return handle->ragged != NULL;
    case HANDLE_SPARSE:
        break;
    }
    for (uint32_t t = 0; t < N_ITERATIONS; t++)
        handle->iterations[t] = (RubatoIteration){ steps[t].keys, steps[t].n };
    handle->sparse = rubato_worker_open_sparse_kv_client_table(
        worker, spec->name, spec->dtype, handle->iterations, N_ITERATIONS, error);
    return handle->sparse != NULL;
}

void handle_close(Handle *handle)
{
    rubato_kv_table_free(handle->kv);
    rubato_chunk_table_free(handle->chunk);
    rubato_sparse_kv_client_table_free(handle->sparse);
    rubato_ragged_table_free(handle->ragged);
}

static void count_callback(RubatoTicket ticket, const GError *error, void *user_data)
{
    Handle *handle = user_data;

    (void)ticket;
    handle->n_callbacks += error == NULL;
}

/* ---- what is lent ---- */

static RubatoRequestOptions options_of(const Handle *handle)
{
    return (RubatoRequestOptions){ .buffers = rubato_worker_rank(handle->worker) == LENDER
                                                  ? RUBATO_BUFFERS_BORROWED
                                                  : RUBATO_BUFFERS_COPIED };
}

/* Copies deltas to where they stay while an Add borrows them. */
static const void *lend(Handle *handle, const void *deltas)
{
    memcpy(handle->lent, deltas, sizeof handle->lent);
    memcpy(handle->as_lent, deltas, sizeof handle->as_lent);
    return handle->lent;
}

bool handle_take_back(Handle *handle, GError **error)
{
    if (handle->lent_to == 0)
        return true;
    TRY(rubato_worker_wait(handle->worker, handle->lent_to, error));
    REQUIRE(memcmp(handle->lent, handle->as_lent, sizeof handle->lent) == 0);
    memset(handle->lent, 0x22, sizeof handle->lent);
    memset(&handle->lent_step, 0x22, sizeof handle->lent_step);
    memset(handle->lent_lengths, 0x22, sizeof handle->lent_lengths);
    handle->lent_to = 0;
    return true;
}

/* ---- rows of different lengths ---- */

static bool wait_for_get(Handle *handle, const Step *step, uint32_t *lengths, char *packed,
                         bool blocking, GError **error)
{
    const RubatoRequestOptions options = options_of(handle);
    const size_t most = MAX_STEP_KEYS * MAX_WIDTH;
    RubatoTicket ticket;

    if (blocking)
        return rubato_ragged_table_get_into(handle->ragged, step->keys, step->n, lengths, packed,
                                            most, error);
    ticket = rubato_ragged_table_get_into_async(handle->ragged, step->keys, step->n, lengths,
                                                packed, most, &options, error);
    return ticket != 0 && rubato_worker_wait(handle->worker, ticket, error);
}

/* An Add that stays in flight. The lender's deltas, keys and lengths must stay as they are: they
 * lie in the handle. */
static bool add_ragged_async(Handle *handle, const Step *step, const uint32_t *lengths,
                             const char *packed, GError **error)
{
    const RubatoRequestOptions options = options_of(handle);

    if (options.buffers != RUBATO_BUFFERS_BORROWED)
        return rubato_ragged_table_add_async(handle->ragged, step->keys, step->n, lengths, packed,
                                             &options, error) != 0;
    TRY(handle_take_back(handle, error));
    handle->lent_step = *step;
    memcpy(handle->lent_lengths, lengths, step->n * sizeof lengths[0]);
    handle->lent_to =
        rubato_ragged_table_add_async(handle->ragged, handle->lent_step.keys, step->n,
                                      handle->lent_lengths, lend(handle, packed), &options, error);
    return handle->lent_to != 0;
}

/* An Add and Get is two requests. */
static bool ask_ragged(Handle *handle, const Request *request, bool blocking, GError **error)
{
    const Plan *plan = handle->plan;
    const Step *step = request->step;
    _Alignas(8) char packed[MAX_STEP_KEYS * MAX_WIDTH * 8];
    uint32_t lengths[MAX_STEP_KEYS];

    for (uint32_t i = 0; i < step->n; i++)
        lengths[i] = plan_row_length(plan, step->numbers[i]);
    if (request->ask != ASK_GET) {
        plan_pack(plan, step, packed, request->deltas);
        TRY(blocking ? rubato_ragged_table_add(handle->ragged, step->keys, step->n, lengths, packed,
                                               error)
                     : add_ragged_async(handle, step, lengths, packed, error));
    }
    if (request->ask == ASK_ADD)
        return true;
    TRY(wait_for_get(handle, step, lengths, packed, blocking, error));
    for (uint32_t i = 0; i < step->n; i++)
        REQUIRE(lengths[i] == plan_row_length(plan, step->numbers[i]));
    plan_unpack(plan, step, packed, request->values);
    return true;
}

/* ---- all other handles ---- */

#define KEYS request->step->keys, request->step->n
#define RUN request->step->keys[0], request->step->n
#define CHUNKS request->step->chunks, request->step->n_chunks

/* The calls of a handle for keys (or what stands for them), with or without a wait. */
#define ASK(prefix, suffix, table, keys, last)                                                \
    (request->ask == ASK_GET ? prefix##_get##suffix(table, keys, request->values, last error) \
     : request->ask == ASK_ADD                                                                \
         ? prefix##_add##suffix(table, keys, request->deltas, last error)                     \
         : prefix##_add_get##suffix(table, keys, request->deltas, request->values, last error))
#define NOTHING
#define OPTIONS options,

static bool ask_blocking(Handle *handle, const Request *request, GError **error)
{
    const Step *step = request->step;

    switch (handle->kind) {
    case HANDLE_KV:
    case HANDLE_KV_CACHED:
    case HANDLE_KV_ALL_CACHED:
        return step->is_run && step->n > 0 && handle->kind != HANDLE_KV_ALL_CACHED
                   ? ASK(rubato_kv_table, _range, handle->kv, RUN, NOTHING)
                   : ASK(rubato_kv_table, , handle->kv, KEYS, NOTHING);
    case HANDLE_CHUNK:
        return step->is_chunks ? ASK(rubato_chunk_table, _chunks, handle->chunk, CHUNKS, NOTHING)
                               : ASK(rubato_chunk_table, , handle->chunk, KEYS, NOTHING);
    case HANDLE_SPARSE:
    case HANDLE_RAGGED: /* ask_ragged */
        break;
    }
    return request->ask == ASK_GET
               ? rubato_sparse_kv_client_table_get(handle->sparse, request->values, error)
           : request->ask == ASK_ADD
               ? rubato_sparse_kv_client_table_add(handle->sparse, request->deltas, error)
               : rubato_sparse_kv_client_table_add_get(handle->sparse, request->deltas,
                                                       request->values, error);
}

static RubatoTicket ask_async(Handle *handle, const Request *request,
                              const RubatoRequestOptions *options, GError **error)
{
    const Step *step = request->step;

    switch (handle->kind) {
    case HANDLE_KV:
    case HANDLE_KV_CACHED:
    case HANDLE_KV_ALL_CACHED:
        return step->is_run && step->n > 0 && handle->kind != HANDLE_KV_ALL_CACHED
                   ? ASK(rubato_kv_table, _range_async, handle->kv, RUN, OPTIONS)
                   : ASK(rubato_kv_table, _async, handle->kv, KEYS, OPTIONS);
    case HANDLE_CHUNK:
        return step->is_chunks
                   ? ASK(rubato_chunk_table, _chunks_async, handle->chunk, CHUNKS, OPTIONS)
                   : ASK(rubato_chunk_table, _async, handle->chunk, KEYS, OPTIONS);
    case HANDLE_SPARSE:
    case HANDLE_RAGGED: /* ask_ragged */
        break;
    }
    return request->ask == ASK_GET ? rubato_sparse_kv_client_table_get_async(
                                         handle->sparse, request->values, options, error)
           : request->ask == ASK_ADD
               ? rubato_sparse_kv_client_table_add_async(handle->sparse, request->deltas, options,
                                                         error)
               : rubato_sparse_kv_client_table_add_get_async(handle->sparse, request->deltas,
                                                             request->values, options, error);
}

/* An Add that stays in flight, until the handle is closed or what was lent to it is taken back. */
static bool add_async(Handle *handle, const Request *request, GError **error)
{
    const RubatoRequestOptions options = options_of(handle);
    Request lent = *request;

    if (options.buffers != RUBATO_BUFFERS_BORROWED)
        return ask_async(handle, request, NULL, error) != 0;
    TRY(handle_take_back(handle, error));
    handle->lent_step = *request->step;
    lent.step = &handle->lent_step;
    lent.deltas = lend(handle, request->deltas);
    handle->lent_to = ask_async(handle, &lent, &options, error);
    return handle->lent_to != 0;
}

bool handle_ask(Handle *handle, const Request *request, uint64_t t, GError **error)
{
    RubatoRequestOptions options = options_of(handle);
    RubatoTicket ticket;

    if (handle->kind == HANDLE_RAGGED)
        return ask_ragged(handle, request, t % 2 == 0, error);
    if (t % 2 == 0)
        return ask_blocking(handle, request, error);
    if (request->ask == ASK_ADD)
        return add_async(handle, request, error);
    handle->n_callbacks = 0;
    options.callback = count_callback;
    options.user_data = handle;
    ticket = ask_async(handle, request, &options, error);
    TRY(ticket != 0 && rubato_worker_wait(handle->worker, ticket, error));
    REQUIRE(handle->n_callbacks == 1);
    return true;
}

bool handle_clock(Handle *handle, GError **error)
{
    switch (handle->kind) {
    case HANDLE_KV:
    case HANDLE_KV_CACHED:
    case HANDLE_KV_ALL_CACHED:
        return rubato_kv_table_clock(handle->kv, error);
    case HANDLE_CHUNK:
        return rubato_chunk_table_clock(handle->chunk, error);
    case HANDLE_RAGGED:
        return rubato_ragged_table_clock(handle->ragged, error);
    case HANDLE_SPARSE: /* it clocks itself */
        break;
    }
    return true;
}
