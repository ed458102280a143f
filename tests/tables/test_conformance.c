/* One suite over all models, storages and handles, each with every dtype, 1 to 4 servers and rows
 * of 1, 3 and 32 values: workers read, check what they see, and add, at full speed.
 *
 * A value shows who has added to it: worker w adds 64^w. So a value is a number with one digit for
 * each worker, which is the number of its Adds that the reader has seen. Column j has j + 1 times
 * as much. Every value fits a float exactly.
 *
 * Of what a worker does, half goes by tickets; one worker's tickets borrow its buffers. Handlers
 * that read stand in place of some Gets, and handlers that write in place of some Adds. */
#include <stdlib.h>
#include <string.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/engine/fitting_spec.h"
#include "tests/support/engine/mover.h"
#include "tests/support/engine/own_handlers.h"
#include "tests/support/runner.h"
#include "tests/support/sizes.h"

enum {
    N_WORKERS = 3,
    N_ITERATIONS = 6,
    N_KEYS = 37, /* no multiple of the chunk size */
    CHUNK_SIZE = 5,
    N_CHUNKS = (N_KEYS + CHUNK_SIZE - 1) / CHUNK_SIZE,
    FIRST_KEY = 1000,
    FIRST_OF_RUN = 2, /* keys with these numbers lie side by side in hash storage too */
    END_OF_RUN = 20,
    MAX_STEP_KEYS = 40,
    MAX_WIDTH = 32,
    DIGIT = 64,
};

typedef enum {
    HANDLE_KV,
    HANDLE_KV_CACHED,     /* opened for the process cache */
    HANDLE_KV_ALL_CACHED, /* the process cache serves all rows */
    HANDLE_CHUNK,
    HANDLE_SPARSE,
    HANDLE_RAGGED, /* row i has 1 + i % width values */
} HandleKind;

static const char *const handle_names[] = {
    "KVTable",    "cached KVTable",      "cached KVTable with a cache",
    "ChunkTable", "SparseKVClientTable", "RaggedTable"
};

static const struct {
    const char *model;
    const char *storage;
    HandleKind handle;
} kinds[] = {
    { "asp", "dense", HANDLE_KV },
    { "asp", "hash", HANDLE_KV },
    { "asp", "dense", HANDLE_KV_CACHED },
    { "asp", "hash", HANDLE_KV_CACHED },
    { "asp", "dense", HANDLE_CHUNK },
    { "asp", "dense", HANDLE_SPARSE },
    { "asp", "hash", HANDLE_SPARSE },
    { "bsp", "dense", HANDLE_KV },
    { "bsp", "hash", HANDLE_KV },
    { "bsp", "dense", HANDLE_KV_CACHED },
    { "bsp", "hash", HANDLE_KV_CACHED },
    { "bsp", "dense", HANDLE_CHUNK },
    { "bsp", "dense", HANDLE_SPARSE },
    { "bsp", "hash", HANDLE_SPARSE },
    { "ssp", "dense", HANDLE_KV },
    { "ssp", "hash", HANDLE_KV },
    { "ssp", "dense", HANDLE_KV_CACHED },
    { "ssp", "hash", HANDLE_KV_CACHED },
    { "ssp", "dense", HANDLE_KV_ALL_CACHED },
    { "ssp", "hash", HANDLE_KV_ALL_CACHED },
    { "ssp", "dense", HANDLE_CHUNK },
    { "ssp", "dense", HANDLE_SPARSE },
    { "ssp", "hash", HANDLE_SPARSE },
    { "asp", "dense", HANDLE_RAGGED },
    { "asp", "hash", HANDLE_RAGGED },
    { "bsp", "dense", HANDLE_RAGGED },
    { "bsp", "hash", HANDLE_RAGGED },
    { "ssp", "dense", HANDLE_RAGGED },
    { "ssp", "hash", HANDLE_RAGGED },
    { "sparse_ssp", "dense", HANDLE_KV },
    { "sparse_ssp", "hash", HANDLE_KV },
    { "sparse_ssp", "dense", HANDLE_KV_CACHED },
    { "sparse_ssp", "hash", HANDLE_KV_CACHED },
    { "sparse_ssp", "dense", HANDLE_CHUNK },
    { "sparse_ssp", "dense", HANDLE_SPARSE },
    { "sparse_ssp", "hash", HANDLE_SPARSE },
};

/* ---- the plan: which keys each worker uses when ---- */

typedef struct {
    uint32_t n;
    uint32_t numbers[MAX_STEP_KEYS]; /* 0 .. N_KEYS - 1 */
    RubatoKey keys[MAX_STEP_KEYS];
    bool is_run;
    bool is_chunks;
    uint32_t n_chunks;
    uint64_t chunks[N_CHUNKS];
} Step;

typedef struct {
    RubatoTableSpec spec;
    bool moves;
    Mover *mover; /* NULL: they do not */
    HandleKind handle;
    bool is_bsp, is_asp;
    uint64_t staleness; /* how far ahead of another's clocks a Get may be */
    uint64_t reach;     /* and how far ahead it may itself be seen */
    Step steps[N_WORKERS][N_ITERATIONS];
    uint32_t times[N_WORKERS][N_ITERATIONS][N_KEYS]; /* a key is in a step */
} Plan;

static RubatoKey key_of(const Plan *plan, uint32_t number)
{
    uint64_t state = number;

    if (strcmp(plan->spec.storage, "dense") == 0)
        return FIRST_KEY + number;
    if (number < FIRST_OF_RUN)
        return number == 0 ? 0 : UINT64_MAX;
    return number < END_OF_RUN ? 500 + number : next_random(&state);
}

static void plan_chunks(Step *step, uint64_t *random)
{
    const bool in_a_row = random_below(random, 2) == 0;
    const uint32_t first = random_below(random, N_CHUNKS);

    step->is_chunks = true;
    step->n_chunks = random_below(random, in_a_row ? N_CHUNKS - first + 1 : N_CHUNKS);
    for (uint32_t i = 0; i < step->n_chunks; i++) {
        step->chunks[i] = in_a_row ? first + i : random_below(random, N_CHUNKS);
        for (uint64_t k = step->chunks[i] * CHUNK_SIZE;
             k < (step->chunks[i] + 1) * CHUNK_SIZE && k < N_KEYS; k++)
            step->numbers[step->n++] = (uint32_t)k;
    }
}

static void plan_run(Step *step, uint64_t *random)
{
    const uint32_t first = FIRST_OF_RUN + random_below(random, END_OF_RUN - FIRST_OF_RUN);

    step->is_run = true;
    step->n = random_below(random, END_OF_RUN - first + 1);
    for (uint32_t i = 0; i < step->n; i++)
        step->numbers[i] = first + i;
}

static void plan_list(Step *step, uint64_t *random)
{
    step->n = random_below(random, MAX_STEP_KEYS);
    for (uint32_t i = 0; i < step->n; i++)
        step->numbers[i] = i > 0 && random_below(random, 4) == 0
                               ? step->numbers[random_below(random, i)]
                               : random_below(random, N_KEYS);
}

static void make_plan(Plan *plan, uint64_t seed)
{
    uint64_t random = seed;

    memset(plan->steps, 0, sizeof plan->steps);
    memset(plan->times, 0, sizeof plan->times);
    for (uint32_t w = 0; w < N_WORKERS; w++)
        for (uint32_t t = 0; t < N_ITERATIONS; t++) {
            Step *step = &plan->steps[w][t];

            if (plan->handle == HANDLE_CHUNK && t % 2 == 0)
                plan_chunks(step, &random);
            else if (random_below(&random, 3) == 0)
                plan_run(step, &random);
            else
                plan_list(step, &random);
            for (uint32_t i = 0; i < step->n; i++) {
                step->keys[i] = key_of(plan, step->numbers[i]);
                plan->times[w][t][step->numbers[i]]++;
            }
        }
}

/* How often a worker has added to a key in the iterations before `end`. */
static uint64_t added_before(const Plan *plan, uint32_t worker, uint64_t end, uint32_t number)
{
    uint64_t n = 0;

    for (uint64_t t = 0; t < end && t < N_ITERATIONS; t++)
        n += plan->times[worker][t][number];
    return n;
}

/* ---- one handle of any kind ---- */

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

enum { LENDER = 1 }; /* the rank whose tickets borrow */

static bool open_handle(Handle *handle, RubatoWorker *worker, GError **error)
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

static void close_handle(Handle *handle)
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

/* What a step asks of a handle. */
typedef enum { ASK_GET, ASK_ADD, ASK_ADD_GET } Ask;

typedef struct {
    Ask ask;
    const Step *step;
    const void *deltas;
    void *values;
} Request;

/* ---- rows of different lengths: the same values, without those beyond a row's end ---- */

static uint32_t length_of(const Plan *plan, uint32_t number)
{
    return 1 + number % plan->spec.width;
}

/* Copies the values that rows have between rows of one length and packed ones. */
static void pack(const Plan *plan, const Step *step, char *packed, const char *even)
{
    const size_t value_bytes = rubato_dtype_size(plan->spec.dtype);

    for (uint32_t i = 0; i < step->n; i++) {
        const size_t n_bytes = length_of(plan, step->numbers[i]) * value_bytes;

        memcpy(packed, even + i * plan->spec.width * value_bytes, n_bytes);
        packed += n_bytes;
    }
}

/* Beyond the end of a row there is what would be there. */
static void unpack(const Plan *plan, const Step *step, const char *packed, char *even)
{
    const size_t value_bytes = rubato_dtype_size(plan->spec.dtype);
    const uint32_t width = plan->spec.width;

    for (uint32_t i = 0; i < step->n; i++) {
        const uint32_t n = length_of(plan, step->numbers[i]);

        memcpy(even + i * width * value_bytes, packed, n * value_bytes);
        for (uint32_t j = n; j < width; j++)
            value_store(plan->spec.dtype, even, i * width + j,
                        (j + 1) * value_load(plan->spec.dtype, even, i * width));
        packed += n * value_bytes;
    }
}

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

/* What was lent may be used again, and is as it was; the next user finds something else in it. */
static bool take_back(Handle *handle, GError **error)
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
    TRY(take_back(handle, error));
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
        lengths[i] = length_of(plan, step->numbers[i]);
    if (request->ask != ASK_GET) {
        pack(plan, step, packed, request->deltas);
        TRY(blocking ? rubato_ragged_table_add(handle->ragged, step->keys, step->n, lengths, packed,
                                               error)
                     : add_ragged_async(handle, step, lengths, packed, error));
    }
    if (request->ask == ASK_ADD)
        return true;
    TRY(wait_for_get(handle, step, lengths, packed, blocking, error));
    for (uint32_t i = 0; i < step->n; i++)
        REQUIRE(lengths[i] == length_of(plan, step->numbers[i]));
    unpack(plan, step, packed, request->values);
    return true;
}

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
    TRY(take_back(handle, error));
    handle->lent_step = *request->step;
    lent.step = &handle->lent_step;
    lent.deltas = lend(handle, request->deltas);
    handle->lent_to = ask_async(handle, &lent, &options, error);
    return handle->lent_to != 0;
}

/* By a ticket in every other iteration: with a callback, and waited for if rows come back. */
static bool ask(Handle *handle, const Request *request, uint64_t t, GError **error)
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

static bool clock_handle(Handle *handle, GError **error)
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

/* ---- what a worker does and checks ---- */

/* Whether a row is one that a worker at clock t may see, its own Adds of clocks before own_end. */
static bool check_row(const Plan *plan, uint32_t rank, uint64_t t, uint64_t own_end,
                      uint32_t number, const void *values, size_t row, GError **error)
{
    const RubatoDtype dtype = plan->spec.dtype;
    const uint32_t width = plan->spec.width;
    const int64_t value = value_load(dtype, values, row * width);
    uint64_t digits = (uint64_t)value;

    for (uint32_t j = 1; j < width; j++)
        REQUIRE(value_load(dtype, values, row * width + j) == value * (j + 1),
                "(column %u of key %u)", j, number);
    for (uint32_t w = 0; w < N_WORKERS; w++, digits /= DIGIT) {
        const uint64_t seen = digits % DIGIT;
        const uint64_t lowest = t > plan->staleness ? t - plan->staleness : 0;
        uint64_t least = added_before(plan, w, lowest, number);
        uint64_t most = added_before(plan, w, t + plan->reach + 1, number);

        if (plan->is_asp)
            least = 0, most = added_before(plan, w, N_ITERATIONS, number);
        if (plan->is_bsp)
            least = most = added_before(plan, w, t, number);
        else if (w == rank)
            least = most = added_before(plan, w, own_end, number);
        REQUIRE(seen >= least && seen <= most,
                "(worker %u at clock %" G_GUINT64_FORMAT " sees %" G_GUINT64_FORMAT
                " Adds of worker %u to key %u: least %" G_GUINT64_FORMAT ", most %" G_GUINT64_FORMAT
                ")",
                rank, t, seen, w, number, least, most);
    }
    REQUIRE(digits == 0);
    return true;
}

/* deltas not NULL: adds them in the same request. */
static bool get_and_check(Handle *handle, uint32_t rank, uint64_t t, uint64_t own_end,
                          const void *deltas, GError **error)
{
    const Plan *plan = handle->plan;
    const Step *step = &plan->steps[rank][t];
    const size_t n_bytes = step->n * plan->spec.width * rubato_dtype_size(plan->spec.dtype);
    _Alignas(8) char values[MAX_STEP_KEYS * MAX_WIDTH * 8 + 1];
    const Request request = { deltas == NULL ? ASK_GET : ASK_ADD_GET, step, deltas, values };

    memset(values, 0x7e, sizeof values);
    TRY(ask(handle, &request, t, error));
    for (uint32_t i = 0; i < step->n; i++)
        TRY(check_row(plan, rank, t, own_end, step->numbers[i], values, i, error));
    REQUIRE(values[n_bytes] == 0x7e, "(something was written behind the rows)");
    return true;
}

/* ---- handlers, in place of Gets and Adds ---- */

/* Calls a handler on the keys of a step. One by ticket that has no result stays in flight. */
static bool call_step(Handle *handle, const Step *step, uint64_t t, const char *name,
                      const int64_t *unit, GBytes **result, GError **error)
{
    const RubatoHandlerCall call = { .table = handle->plan->spec.name,
                                     .handler = name,
                                     .arguments = unit,
                                     .n_argument_bytes = unit == NULL ? 0 : sizeof *unit,
                                     .scope = RUBATO_SCOPE_KEYS,
                                     .keys = step->keys,
                                     .n_keys = step->n };
    RubatoTicket ticket;

    if (t % 2 == 0)
        return rubato_worker_call_handler(handle->worker, &call, result, error);
    ticket = rubato_worker_call_handler_async(handle->worker, &call, result, NULL, error);
    return ticket != 0 && (result == NULL || rubato_worker_wait(handle->worker, ticket, error));
}

/* Whether the rows come for the step's keys, each in its place among those of its part. */
static bool call_and_check(Handle *handle, uint32_t rank, uint64_t t, GError **error)
{
    const Plan *plan = handle->plan;
    const Step *step = &plan->steps[rank][t];
    const size_t row_bytes = plan->spec.width * rubato_dtype_size(plan->spec.dtype);
    bool is_told[MAX_STEP_KEYS] = { false };
    _Alignas(8) char row[MAX_WIDTH * 8];
    g_autoptr(GBytes) result = NULL;

    TRY(call_step(handle, step, t, "rows", NULL, &result, error));
    RubatoByteReader reader = rubato_byte_reader_of(result);
    for (uint32_t i = 0; i < step->n; i++) {
        const RubatoKey key = rubato_read_u64(&reader);
        uint32_t at = 0;

        while (at < step->n && (step->keys[at] != key || is_told[at]))
            at++;
        REQUIRE(at < step->n && rubato_byte_reader_left(&reader) >= row_bytes);
        is_told[at] = true;
        memcpy(row, rubato_read_bytes(&reader, row_bytes), row_bytes);
        TRY(check_row(plan, rank, t, t + 1, step->numbers[at], row, 0, error));
    }
    return rubato_byte_reader_finish(&reader, "the rows", error);
}

static bool add(Handle *handle, const Step *step, uint64_t t, int64_t unit, void *deltas,
                GError **error)
{
    if (handle->kind != HANDLE_RAGGED && t % 3 == 0)
        return call_step(handle, step, t, "increase", &unit, NULL, error);
    TRY(ask(handle, &(Request){ ASK_ADD, step, deltas, NULL }, t, error));
    memset(deltas, 0x11, MAX_STEP_KEYS * MAX_WIDTH * 8); /* the caller's again */
    return true;
}

static bool iterate(Handle *handle, uint32_t rank, GError **error)
{
    const Plan *plan = handle->plan;
    const uint32_t width = plan->spec.width;
    const int64_t unit = rank == 0 ? 1 : rank == 1 ? DIGIT : DIGIT * DIGIT;
    _Alignas(8) char deltas[MAX_STEP_KEYS * MAX_WIDTH * 8];

    for (uint64_t t = 0; t < N_ITERATIONS; t++) {
        const Step *step = &plan->steps[rank][t];

        for (uint32_t i = 0; i < step->n; i++)
            for (uint32_t j = 0; j < width; j++)
                value_store(plan->spec.dtype, deltas, (size_t)i * width + j, unit * (j + 1));
        TRY(get_and_check(handle, rank, t, t, NULL, error));
        if (t % 3 == 2) { /* of two iterations, one with a ticket */
            TRY(get_and_check(handle, rank, t, t + 1, deltas, error));
        } else {
            TRY(add(handle, step, t, unit, deltas, error));
            if (handle->kind != HANDLE_RAGGED && t % 3 == 1)
                TRY(call_and_check(handle, rank, t, error));
            else if (handle->kind != HANDLE_SPARSE)
                TRY(get_and_check(handle, rank, t, t + 1, NULL, error));
        }
        TRY(clock_handle(handle, error));
        if (t % 2 == 0) /* of an Add that was made an iteration before, and its clock */
            TRY(take_back(handle, error));
    }
    return true;
}

static bool work(RubatoWorker *worker, void *user_data, GError **error)
{
    const Plan *plan = user_data;
    Handle handle = { .worker = worker, .plan = plan, .kind = plan->handle };

    mover_begin(plan->mover);
    const bool ok =
        open_handle(&handle, worker, error) && iterate(&handle, rubato_worker_rank(worker), error);

    close_handle(&handle);
    return ok;
}

/* ---- the cases ---- */

static Step all_keys(const Plan *plan)
{
    Step all = { .n = N_KEYS };

    for (uint32_t i = 0; i < N_KEYS; i++) {
        all.numbers[i] = N_KEYS - 1 - i;
        all.keys[i] = key_of(plan, N_KEYS - 1 - i);
    }
    return all;
}

/* Rows have to have their lengths before anything is added. */
static void make_ragged_rows(RubatoEngine *engine, const Plan *plan)
{
    static const char zeros[N_KEYS * MAX_WIDTH * 8];
    const Step all = all_keys(plan);
    uint32_t lengths[N_KEYS];

    for (uint32_t i = 0; i < N_KEYS; i++)
        lengths[i] = length_of(plan, all.numbers[i]);
    ck_assert(rubato_engine_assign_ragged(engine, plan->spec.name, all.keys, N_KEYS, lengths, zeros,
                                          NULL));
}

static void create_planned(RubatoEngine *engine, const Plan *plan)
{
    RubatoTableSpec spec = plan->spec;

    if (plan->handle != HANDLE_RAGGED) {
        create_table(engine, &spec);
        return;
    }
    spec.width = spec.chunk_size = 0;
    spec.create_on_get = false;
    spec.shape = RUBATO_SHAPE_RAGGED;
    create_table(engine, &spec);
    make_ragged_rows(engine, plan);
}

static bool read_all(RubatoEngine *engine, const Plan *plan, void *values)
{
    const Step all = all_keys(plan);
    g_autofree void *packed = NULL;
    uint32_t lengths[N_KEYS];

    if (plan->handle != HANDLE_RAGGED)
        return rubato_engine_get(engine, plan->spec.name, all.keys, N_KEYS, values, NULL);
    if (!rubato_engine_get_ragged(engine, plan->spec.name, all.keys, N_KEYS, lengths, &packed,
                                  NULL))
        return false;
    unpack(plan, &all, packed, values);
    return true;
}

static void check_totals(RubatoEngine *engine, const Plan *plan)
{
    const uint32_t width = plan->spec.width;
    _Alignas(8) char values[N_KEYS * MAX_WIDTH * 8];

    ck_assert(read_all(engine, plan, values));
    for (uint32_t i = 0; i < N_KEYS; i++) {
        int64_t total = 0;

        for (uint32_t w = N_WORKERS; w-- > 0;)
            total = total * DIGIT + (int64_t)added_before(plan, w, N_ITERATIONS, N_KEYS - 1 - i);
        for (uint32_t j = 0; j < width; j++)
            QUICK_ASSERT(value_load(plan->spec.dtype, values, (size_t)i * width + j) ==
                         total * (j + 1));
    }
}

static void run_plan(RubatoEngine *engine, Plan *plan, uint64_t seed)
{
    g_autoptr(GError) error = NULL;
    const char *const tables[] = { plan->spec.name, NULL };
    const RubatoTask task = { .name = "conformance",
                              .run = work,
                              .user_data = plan,
                              .tables = tables,
                              .workers_per_node = N_WORKERS };
    bool ok;

    make_plan(plan, seed);
    create_planned(engine, plan);
    if (plan->moves)
        plan->mover = mover_new(engine, plan->spec.name, plan->spec.parts, seed);
    ok = rubato_engine_run(engine, &task, &error);
    ck_assert_msg(ok,
                  "%s under %s over %s, %s×%u, %u parts on %u servers, staleness %u, "
                  "seed %u: %s",
                  handle_names[plan->handle], plan->spec.model, plan->spec.storage,
                  rubato_dtype_name(plan->spec.dtype), plan->spec.width, plan->spec.parts,
                  rubato_engine_n_servers(engine), plan->spec.staleness, (unsigned)seed,
                  error == NULL ? "" : error->message);
    if (plan->moves)
        ck_assert_uint_gt(mover_end(plan->mover), 0);
    plan->mover = NULL;
    check_totals(engine, plan);
    ck_assert(rubato_engine_drop_table(engine, plan->spec.name, NULL));
}

/* All tables of a kind: models, storages and handles as kinds[] has them. */
static void run_plans(size_t kind, uint32_t most_servers, bool moves)
{
    static const uint32_t widths[] = { 1, 3, MAX_WIDTH };
    const bool is_dense = strcmp(kinds[kind].storage, "dense") == 0;
    Plan *plan = g_new0(Plan, 1);

    plan->moves = moves;
    plan->handle = kinds[kind].handle;
    plan->is_asp = strcmp(kinds[kind].model, "asp") == 0;
    plan->is_bsp = strcmp(kinds[kind].model, "bsp") == 0;
    for (uint32_t servers = moves ? 2 : 1; servers <= most_servers; servers++) {
        RubatoEngine *engine = engine_with_servers(servers);

        /* slow builds play one dtype: another with each number of servers, and with small sizes */
        const uint32_t shift = test_sizes() == small_sizes() ? 2 : 0;
        const uint32_t first = is_slow() ? (kind + servers + shift) % 4 : 0;

        for (uint32_t i = first; i < 4 * G_N_ELEMENTS(widths); i += is_slow() ? 4 : 1) {
            const bool is_ssp = !plan->is_asp && !plan->is_bsp;
            const bool is_sparse = strcmp(kinds[kind].model, "sparse_ssp") == 0;

            plan->spec = fitting_spec((RubatoTableSpec){
                .name = "t",
                .dtype = (RubatoDtype)(i % 4),
                .width = widths[i / 4],
                .storage = kinds[kind].storage,
                .first_key = is_dense ? FIRST_KEY : 0,
                .n_keys = is_dense ? N_KEYS : 0,
                .chunk_size = is_dense ? CHUNK_SIZE : 0,
                .parts = i % 3 == 0 && !moves ? 0 : 1 + (3 * servers + i) % 9,
                .model = kinds[kind].model,
                .staleness = is_ssp ? (servers + i) % 3 : 0,
                .speculation = is_sparse ? i % 3 : 0,
                .record = is_dense && i % 2 == 0 ? "dense" : "hash",
                .create_on_get = !is_dense && i % 2 == 0,
                .cache =
                    plan->handle == HANDLE_KV_ALL_CACHED ? RUBATO_CACHE_ALL : RUBATO_CACHE_NONE,
            });
            plan->staleness = plan->spec.staleness;
            plan->reach = plan->spec.staleness + plan->spec.speculation;
            run_plan(engine, plan, (uint64_t)kind * 1000 + servers * 100 + i);
        }
        rubato_engine_free(engine);
    }
    g_free(plan);
}

START_TEST(every_get_sees_what_it_must_and_may)
{
    run_plans((size_t)_i, 4, false);
}
END_TEST

START_TEST(every_get_sees_what_it_must_and_may_while_parts_move)
{
    run_plans((size_t)_i, 3, true);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("conformance");
    TCase *cases = tcase_create("models, storages, handles");

    tcase_add_checked_fixture(cases, own_handlers_register, NULL);
    tcase_add_loop_test(cases, every_get_sees_what_it_must_and_may, 0, G_N_ELEMENTS(kinds));
    tcase_add_loop_test(cases, every_get_sees_what_it_must_and_may_while_parts_move, 0,
                        G_N_ELEMENTS(kinds));
    tcase_set_timeout(cases, 20);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
