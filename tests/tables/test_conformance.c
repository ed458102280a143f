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

#include "tests/support/engine/conformance_handle.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/engine/fitting_spec.h"
#include "tests/support/engine/own_handlers.h"
#include "tests/support/runner.h"
#include "tests/support/sizes.h"

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
        uint64_t least = plan_added_before(plan, w, lowest, number);
        uint64_t most = plan_added_before(plan, w, t + plan->reach + 1, number);

        if (plan->is_asp)
            least = 0, most = plan_added_before(plan, w, N_ITERATIONS, number);
        if (plan->is_bsp)
            least = most = plan_added_before(plan, w, t, number);
        else if (w == rank)
            least = most = plan_added_before(plan, w, own_end, number);
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
    TRY(handle_ask(handle, &request, t, error));
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
    TRY(handle_ask(handle, &(Request){ ASK_ADD, step, deltas, NULL }, t, error));
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
        TRY(handle_clock(handle, error));
        if (t % 2 == 0) /* of an Add that was made an iteration before, and its clock */
            TRY(handle_take_back(handle, error));
    }
    return true;
}

static bool work(RubatoWorker *worker, void *user_data, GError **error)
{
    const Plan *plan = user_data;
    Handle handle = { .worker = worker, .plan = plan, .kind = plan->handle };

    mover_begin(plan->mover);
    const bool ok =
        handle_open(&handle, worker, error) && iterate(&handle, rubato_worker_rank(worker), error);

    handle_close(&handle);
    return ok;
}

/* ---- the cases ---- */

static Step all_keys(const Plan *plan)
{
    Step all = { .n = N_KEYS };

    for (uint32_t i = 0; i < N_KEYS; i++) {
        all.numbers[i] = N_KEYS - 1 - i;
        all.keys[i] = plan_key(plan, N_KEYS - 1 - i);
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
        lengths[i] = plan_row_length(plan, all.numbers[i]);
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
    plan_unpack(plan, &all, packed, values);
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
            total =
                total * DIGIT + (int64_t)plan_added_before(plan, w, N_ITERATIONS, N_KEYS - 1 - i);
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

    plan_make(plan, seed);
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
