/* The function of a simulation's workers: in each iteration a worker reads and adds to some rows of
 * each table, by the table's handle, and then clocks. Its actions depend on the scenario's seed and
 * its rank alone. The rows that it reads are compared with the history.
 *
 * Threads: the workers' of the simulation. */
#include "tests/support/sim/sim_cluster.h"

#include <string.h>

#include "tests/support/engine/engine_fixture.h"

#define MOST_ASYNC 3

/* A Get that was begun and not waited for. */
typedef struct {
    SimGet get;
    int64_t *rows;
    RubatoTicket ticket;
} Asked;

typedef struct {
    const SimTable *spec;
    SimHistory *history;
    uint64_t clock;
    union {
        RubatoKVTable *kv;
        RubatoKVTable *client;
        RubatoChunkTable *chunks;
        RubatoSparseKVClientTable *sparse;
        RubatoRaggedTable *ragged;
    };
    Asked asked[MOST_ASYNC];
    uint32_t n_asked;
    RubatoIteration *iterations; /* of a sparse table */
} Opened;

typedef struct {
    RubatoWorker *worker;
    const SimJob *job;
    uint32_t rank;
    uint64_t state; /* of its own random numbers */
    uint64_t other; /* the same of those that no change follows from */
    Opened tables[SIM_MOST_TABLES];
} Self;

static uint32_t draw(Self *self, uint32_t limit)
{
    return random_below(&self->state, MAX(1, limit));
}

static bool may_be_replaced(const Self *self)
{
    return self->job->scenario->replace_ms > 0;
}

/* A worker in the place of a lost one makes the same changes, so these must not depend on what an
 * earlier iteration has left. */
static void begin_iteration(Self *self, uint64_t iteration)
{
    const SimJob *const job = self->job;

    if (may_be_replaced(self))
        self->state =
            ((job->scenario->seed * 1000003 + self->rank) * 101 + job->task) * 10007 + iteration;
}

/* What is not waited for at once may be left over. */
static uint32_t draw_when(Self *self, uint32_t limit)
{
    return may_be_replaced(self) ? random_below(&self->other, limit) : draw(self, limit);
}

/* Draws keys; NULL and *n consecutive ones from *first, now and then. (transfer full) */
static RubatoKey *draw_keys(Self *self, const SimTable *spec, size_t *n)
{
    *n = 1 + draw(self, spec->most_keys);
    RubatoKey *const keys = g_new(RubatoKey, *n);
    const bool in_a_row = draw(self, 3) == 0 && *n <= spec->n_keys;
    const RubatoKey first =
        spec->first_key + draw(self, spec->n_keys - (in_a_row ? (uint32_t)*n - 1 : 0));

    for (size_t i = 0; i < *n; i++)
        keys[i] = in_a_row ? first + i : spec->first_key + draw(self, spec->n_keys);
    return keys;
}

static bool is_run(const RubatoKey *keys, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (keys[i] != keys[0] + i)
            return false;
    return true;
}

/* ---- chunks: whole ones stand for their keys ---- */

static RubatoKey *keys_of_chunks(Self *self, Opened *table, uint64_t *chunks, size_t n_chunks,
                                 size_t *n)
{
    const SimTable *const spec = table->spec;
    RubatoKey *const keys = g_new(RubatoKey, n_chunks * spec->chunk_size);

    *n = 0;
    for (size_t i = 0; i < n_chunks; i++) {
        chunks[i] = draw(self, (uint32_t)rubato_chunk_table_n_chunks(table->chunks));
        const uint32_t length = rubato_chunk_table_chunk_length(table->chunks, chunks[i]);
        for (uint32_t j = 0; j < length; j++)
            keys[(*n)++] = spec->first_key + chunks[i] * spec->chunk_size + j;
    }
    return keys;
}

/* ---- Gets ---- */

/* Some requests with tickets have high priority. */
static RubatoRequestOptions draw_options(Self *self)
{
    return (RubatoRequestOptions){ .priority = draw(self, 3) == 0 ? RUBATO_PRIORITY_HIGH
                                                                  : RUBATO_PRIORITY_NORMAL };
}

static bool get_by_ticket(Self *self, Opened *table, const RubatoKey *keys, size_t n, int64_t *rows,
                          GError **error)
{
    const RubatoRequestOptions options = draw_options(self);
    const RubatoTicket ticket =
        rubato_kv_table_get_async(table->kv, keys, n, rows, &options, error);

    return ticket != 0 && rubato_worker_wait(self->worker, ticket, error);
}

static SimRaggedCall ragged_call(Self *self, const RubatoKey *keys, size_t n)
{
    const RubatoRequestOptions options = draw_options(self);

    return (SimRaggedCall){ .keys = keys,
                            .n = n,
                            .length = self->job->scenario->n_workers,
                            .by_ticket = draw(self, 2) == 0,
                            .options = options };
}

static bool get_rows(Self *self, Opened *table, const RubatoKey *keys, size_t n, int64_t *rows,
                     GError **error)
{
    const bool as_range = is_run(keys, n) && draw(self, 2) == 0;
    SimRaggedCall ragged;

    switch (table->spec->handle) {
    case SIM_HANDLE_KV:
        if (draw(self, 3) == 0)
            return get_by_ticket(self, table, keys, n, rows, error);
        return as_range ? rubato_kv_table_get_range(table->kv, keys[0], n, rows, error)
                        : rubato_kv_table_get(table->kv, keys, n, rows, error);
    case SIM_HANDLE_KV_CLIENT:
        return as_range ? rubato_kv_table_get_range(table->client, keys[0], n, rows, error)
                        : rubato_kv_table_get(table->client, keys, n, rows, error);
    case SIM_HANDLE_CHUNK:
        return rubato_chunk_table_get(table->chunks, keys, n, rows, error);
    case SIM_HANDLE_RAGGED:
        ragged = ragged_call(self, keys, n);
        return sim_ragged_get(self->worker, table->ragged, &ragged, rows, error);
    default:
        g_assert_not_reached();
    }
}

static int64_t *new_rows(const Self *self, size_t n)
{
    int64_t *const rows =
        g_new(int64_t, n * self->job->scenario->n_workers + 1); /* not NULL, also for none */

    memset(rows, 0x5a, n * self->job->scenario->n_workers * sizeof *rows);
    return rows;
}

/* Adds and gets in one request. */
static bool add_get_rows(Self *self, Opened *table, const RubatoKey *keys, size_t n,
                         const int64_t *deltas, int64_t *rows, GError **error)
{
    const bool as_range = is_run(keys, n) && draw(self, 2) == 0;
    const RubatoRequestOptions options = draw_options(self);
    RubatoTicket ticket;

    switch (table->spec->handle) {
    case SIM_HANDLE_KV:
        return as_range ? rubato_kv_table_add_get_range(table->kv, keys[0], n, deltas, rows, error)
                        : rubato_kv_table_add_get(table->kv, keys, n, deltas, rows, error);
    case SIM_HANDLE_KV_CLIENT:
        ticket =
            rubato_kv_table_add_get_async(table->client, keys, n, deltas, rows, &options, error);
        return ticket != 0 && rubato_worker_wait(self->worker, ticket, error);
    case SIM_HANDLE_CHUNK:
        return rubato_chunk_table_add_get(table->chunks, keys, n, deltas, rows, error);
    default:
        g_assert_not_reached();
    }
}

static bool add_get(Self *self, Opened *table, GError **error)
{
    size_t n;
    g_autofree RubatoKey *keys = draw_keys(self, table->spec, &n);
    g_autofree int64_t *deltas = new_rows(self, n);
    g_autofree int64_t *rows = new_rows(self, n);
    SimGet asked;

    sim_history_add(table->history, self->rank, table->clock, keys, n, deltas);
    sim_history_begin_get(table->history, &asked, self->rank, table->clock, keys, n);
    const bool ok = add_get_rows(self, table, keys, n, deltas, rows, error);
    if (ok)
        sim_history_end_get(table->history, &asked, rows);
    sim_get_clear(&asked);
    return ok;
}

static bool get(Self *self, Opened *table, GError **error)
{
    const bool by_chunks = table->spec->handle == SIM_HANDLE_CHUNK && draw(self, 2) == 0;
    uint64_t chunks[3];
    const size_t n_chunks = 1 + draw(self, G_N_ELEMENTS(chunks));
    size_t n;
    g_autofree RubatoKey *keys = by_chunks ? keys_of_chunks(self, table, chunks, n_chunks, &n)
                                           : draw_keys(self, table->spec, &n);
    g_autofree int64_t *rows = new_rows(self, n);
    SimGet asked;

    sim_history_begin_get(table->history, &asked, self->rank, table->clock, keys, n);
    const bool ok =
        by_chunks ? rubato_chunk_table_get_chunks(table->chunks, chunks, n_chunks, rows, error)
                  : get_rows(self, table, keys, n, rows, error);
    if (ok)
        sim_history_end_get(table->history, &asked, rows);
    sim_get_clear(&asked);
    return ok;
}

/* ---- Gets that are not waited for at once ---- */

static bool end_asked(const Self *self, Opened *table, uint32_t i, GError **error)
{
    Asked *const asked = &table->asked[i];
    const bool ok = rubato_worker_wait(self->worker, asked->ticket, error);

    if (ok)
        sim_history_end_get(table->history, &asked->get, asked->rows);
    sim_get_clear(&asked->get);
    g_free(asked->rows);
    *asked = table->asked[--table->n_asked];
    return ok;
}

static bool ask(Self *self, Opened *table, GError **error)
{
    if (table->n_asked == MOST_ASYNC)
        TRY(end_asked(self, table, draw_when(self, MOST_ASYNC), error));

    Asked *const asked = &table->asked[table->n_asked];
    const RubatoRequestOptions options = draw_options(self);
    size_t n;
    g_autofree RubatoKey *keys = draw_keys(self, table->spec, &n);
    asked->rows = new_rows(self, n);
    sim_history_begin_get(table->history, &asked->get, self->rank, table->clock, keys, n);
    asked->ticket = rubato_kv_table_get_async(table->client, keys, n, asked->rows, &options, error);
    if (asked->ticket != 0) {
        table->n_asked++;
        return true;
    }
    sim_get_clear(&asked->get);
    g_free(asked->rows);
    return false;
}

/* ---- Adds ---- */

/* Of a table that admits keys, or of ragged rows: makes a row that nobody reads, at any time of the
 * run. So replicas that are made must be told of it, or get such rows in slices; they are compared
 * with their primaries. */
static bool add_unread(const Self *self, const Opened *table, RubatoKey key, GError **error)
{
    const uint64_t mixed = rubato_mix64(key << 32 | table->clock << 8 | self->rank);
    const RubatoKey unread = SIM_UNREAD_KEY + mixed % SIM_UNREAD_KEYS;
    g_autofree int64_t *delta = g_new0(int64_t, self->job->scenario->n_workers);

    if (table->spec->handle == SIM_HANDLE_RAGGED && table->spec->is_hash)
        return sim_ragged_append(table->ragged, unread % SIM_UNREAD_LISTS, mixed, error);
    if (!sim_table_admits(self->job->scenario, table->spec))
        return true;
    delta[self->rank] = 1;
    if (table->spec->handle == SIM_HANDLE_KV)
        return rubato_kv_table_add(table->kv, &unread, 1, delta, error);
    return table->spec->handle != SIM_HANDLE_KV_CLIENT ||
           rubato_kv_table_add(table->client, &unread, 1, delta, error);
}

static bool add(Self *self, Opened *table, GError **error)
{
    const bool by_chunks = table->spec->handle == SIM_HANDLE_CHUNK && draw(self, 2) == 0;
    uint64_t chunks[3];
    const size_t n_chunks = 1 + draw(self, G_N_ELEMENTS(chunks));
    size_t n;
    g_autofree RubatoKey *keys = by_chunks ? keys_of_chunks(self, table, chunks, n_chunks, &n)
                                           : draw_keys(self, table->spec, &n);
    g_autofree int64_t *deltas = new_rows(self, n);
    const bool as_range = is_run(keys, n) && draw(self, 2) == 0;
    const RubatoRequestOptions options = draw_options(self);
    SimRaggedCall ragged;

    if (!add_unread(self, table, keys[0], error))
        return false;
    sim_history_add(table->history, self->rank, table->clock, keys, n, deltas);
    switch (table->spec->handle) {
    case SIM_HANDLE_KV:
        return as_range ? rubato_kv_table_add_range(table->kv, keys[0], n, deltas, error)
                        : rubato_kv_table_add(table->kv, keys, n, deltas, error);
    case SIM_HANDLE_KV_CLIENT:
        if (draw(self, 2) == 0)
            return rubato_kv_table_add_async(table->client, keys, n, deltas, &options, error) != 0;
        return as_range ? rubato_kv_table_add_range(table->client, keys[0], n, deltas, error)
                        : rubato_kv_table_add(table->client, keys, n, deltas, error);
    case SIM_HANDLE_CHUNK:
        return by_chunks
                   ? rubato_chunk_table_add_chunks(table->chunks, chunks, n_chunks, deltas, error)
                   : rubato_chunk_table_add(table->chunks, keys, n, deltas, error);
    case SIM_HANDLE_RAGGED:
        ragged = ragged_call(self, keys, n);
        return sim_ragged_add(table->ragged, &ragged, deltas, error);
    default:
        g_assert_not_reached();
    }
}

/* ---- clocks ---- */

/* A Get under bsp that would be sent again to another primary must not come behind the Adds of its
 * own clock. So its worker's clock waits for it, if the table has replicas and a part of the Get is
 * on another node. */
static void check_answered(const Self *self, const Opened *table)
{
    if (self->job->scenario->n_replicas == 0 || table->spec->model != SIM_MODEL_BSP)
        return;
    for (uint32_t i = 0; i < table->n_asked; i++)
        if (!rubato_worker_poll(self->worker, table->asked[i].ticket) &&
            sim_replicas_are_remote(table->spec->name, self->job, &table->asked[i].get))
            sim_fail("worker %u has ended clock %" G_GUINT64_FORMAT
                     " of table %s, and a Get of that clock is not answered",
                     self->rank, table->clock - 1, table->spec->name);
}

static bool tick(const Self *self, Opened *table, GError **error)
{
    bool ok;

    switch (table->spec->handle) {
    case SIM_HANDLE_KV:
        ok = rubato_kv_table_clock(table->kv, error);
        break;
    case SIM_HANDLE_KV_CLIENT:
        ok = rubato_kv_table_clock(table->client, error);
        break;
    case SIM_HANDLE_CHUNK:
        ok = rubato_chunk_table_clock(table->chunks, error);
        break;
    case SIM_HANDLE_SPARSE: /* the next Get would do it, but that of other tables may come first */
        ok = rubato_sparse_kv_client_table_clock(table->sparse, error);
        break;
    case SIM_HANDLE_RAGGED:
        ok = rubato_ragged_table_clock(table->ragged, error);
        break;
    default:
        g_assert_not_reached();
    }
    table->clock++;
    if (ok)
        check_answered(self, table);
    return ok;
}

/* ---- a table that clocks itself ---- */

static void draw_iterations(Self *self, Opened *table)
{
    const uint32_t n = self->job->scenario->n_iterations;

    table->iterations = g_new0(RubatoIteration, n);
    for (uint32_t i = 0; i < n; i++)
        if (draw(self, 12) != 0)
            table->iterations[i].keys = draw_keys(self, table->spec, &table->iterations[i].n);
}

static bool iterate_sparse(Self *self, Opened *table, GError **error)
{
    RubatoIteration next;

    REQUIRE(rubato_sparse_kv_client_table_next(table->sparse, &next), "no iteration is left");
    g_autofree int64_t *rows = new_rows(self, next.n);
    SimGet asked;
    sim_history_begin_get(table->history, &asked, self->rank, table->clock, next.keys, next.n);
    const bool ok = rubato_sparse_kv_client_table_get(table->sparse, rows, error);
    if (ok)
        sim_history_end_get(table->history, &asked, rows);
    sim_get_clear(&asked);
    for (uint32_t n = draw(self, 3); ok && n > 0; n--) {
        sim_history_add(table->history, self->rank, table->clock, next.keys, next.n, rows);
        TRY(rubato_sparse_kv_client_table_add(table->sparse, rows, error));
    }
    table->clock += !may_be_replaced(self);
    return ok;
}

/* ---- the whole ---- */

static bool iterate(Self *self, Opened *table, GError **error)
{
    if (table->spec->handle == SIM_HANDLE_SPARSE)
        return iterate_sparse(self, table, error);
    for (uint32_t n = draw(self, 4); n > 0; n--) {
        const uint32_t what = draw(self, 6);
        if (what < 2 || (what == 5 && table->spec->handle == SIM_HANDLE_RAGGED))
            TRY(add(self, table, error));
        else if (what == 5)
            TRY(add_get(self, table, error));
        else if (what < 4 || table->spec->handle != SIM_HANDLE_KV_CLIENT)
            TRY(get(self, table, error));
        else
            TRY(ask(self, table, error));
    }
    while (table->n_asked > 0 && draw_when(self, 2) == 0)
        TRY(end_asked(self, table, 0, error));
    return may_be_replaced(self) || tick(self, table, error);
}

/* If lost workers are replaced, an iteration ends with the clocks of all tables. */
static bool tick_all(Self *self, GError **error)
{
    for (uint32_t i = 0; may_be_replaced(self) && i < self->job->scenario->n_tables; i++)
        TRY(tick(self, &self->tables[i], error));
    return true;
}

static bool open_table(Self *self, Opened *table, GError **error)
{
    const char *const name = table->spec->name;

    switch (table->spec->handle) {
    case SIM_HANDLE_KV:
        table->kv = rubato_worker_open_kv_table(self->worker, name, RUBATO_I64, error);
        return table->kv != NULL;
    case SIM_HANDLE_KV_CLIENT:
        table->client = rubato_worker_open_kv_table_cached(self->worker, name, RUBATO_I64, error);
        return table->client != NULL;
    case SIM_HANDLE_CHUNK:
        table->chunks = rubato_worker_open_chunk_table(self->worker, name, RUBATO_I64, error);
        return table->chunks != NULL;
    case SIM_HANDLE_SPARSE:
        draw_iterations(self, table);
        table->sparse = rubato_worker_open_sparse_kv_client_table(
            self->worker, name, RUBATO_I64, table->iterations, self->job->scenario->n_iterations,
            error);
        return table->sparse != NULL;
    case SIM_HANDLE_RAGGED:
        table->ragged = rubato_worker_open_ragged_table(self->worker, name, RUBATO_I64, error);
        return table->ragged != NULL;
    }
    g_assert_not_reached();
}

static void close_table(Self *self, Opened *table)
{
    /* An answer may still be written: the handle waits for it, so the rows are freed after it. */
    switch (table->spec->handle) {
    case SIM_HANDLE_KV:
        rubato_kv_table_free(table->kv);
        break;
    case SIM_HANDLE_KV_CLIENT:
        rubato_kv_table_free(table->client);
        break;
    case SIM_HANDLE_CHUNK:
        rubato_chunk_table_free(table->chunks);
        break;
    case SIM_HANDLE_SPARSE:
        rubato_sparse_kv_client_table_free(table->sparse);
        break;
    case SIM_HANDLE_RAGGED:
        rubato_ragged_table_free(table->ragged);
        break;
    }
    for (uint32_t i = 0; i < table->n_asked; i++) {
        sim_get_clear(&table->asked[i].get);
        g_free(table->asked[i].rows);
    }
    for (uint32_t i = 0; table->iterations != NULL && i < self->job->scenario->n_iterations; i++)
        g_free((RubatoKey *)(uintptr_t)table->iterations[i].keys);
    g_free(table->iterations);
}

static bool begins_with_barrier(const SimJob *job, uint32_t iteration)
{
    uint64_t state = job->scenario->seed * 31 + iteration;

    return random_below(&state, 1024) < job->scenario->barrier_1024;
}

static void think(Self *self)
{
    const SimScenario *const scenario = self->job->scenario;
    const int64_t most_ns =
        scenario->think_ns * (self->rank == scenario->slow_worker ? SIM_SLOW_WORKER : 1);

    sim_sleep_ns((int64_t)(next_random(&self->state) % (uint64_t)most_ns));
}

/* Whether the worker asks for a cut in this iteration. */
static bool asks_for_cut(const Self *self, uint32_t iteration)
{
    const SimScenario *const scenario = self->job->scenario;
    uint64_t state = (scenario->seed * 271 + self->rank) * 65537 + iteration + self->job->task;

    (void)next_random(&state); /* the first ones of states that are near are near, too */

    return self->job->asks_for_cuts && random_below(&state, 3 * scenario->n_workers) == 0;
}

static bool work(Self *self, SimJob *job, GError **error)
{
    const SimScenario *const scenario = self->job->scenario;

    for (uint32_t i = 0; i < scenario->n_tables; i++)
        TRY(open_table(self, &self->tables[i], error));
    for (uint32_t i = (uint32_t)rubato_worker_first_clock(self->worker); i < scenario->n_iterations;
         i++) {
        begin_iteration(self, i);
        if (begins_with_barrier(self->job, i)) {
            for (uint32_t j = 0; j < scenario->n_tables; j++)
                sim_history_enter_barrier(self->tables[j].history, self->rank);
            TRY(rubato_worker_barrier(self->worker, error));
        }
        if (scenario->failing_worker == self->rank && scenario->failing_iteration == i &&
            self->job->task == scenario->n_tasks) {
            job->has_failed = true;
            return fail_at(error, __FILE__, __LINE__, "it goes on", " by its seed");
        }
        if (asks_for_cut(self, i))
            TRY(sim_cut_ask(self->worker, job, i % 2 == 0, error));
        think(self);
        for (uint32_t j = 0; j < scenario->n_tables; j++) {
            TRY(iterate(self, &self->tables[j], error));
            sim_replicas_send_again(job, scenario->tables[j].name, self->state);
        }
        TRY(tick_all(self, error));
        SIM_TRACE("worker %u has done iteration %u", self->rank, i);
        *job->progress_ns = sim_now_ns();
    }
    return true;
}

bool sim_worker_run(RubatoWorker *worker, void *user_data, GError **error)
{
    SimJob *const job = user_data;
    Self self = { .worker = worker, .job = job, .rank = rubato_worker_rank(worker) };
    const uint64_t first = rubato_worker_first_clock(worker);
    uint32_t n_barriers = 0;
    bool is_again = false;

    if (job->begun_task < job->task) {
        job->begun_task = job->task;
        job->begun_ns = sim_now_ns();
        for (uint32_t i = 0; i < job->scenario->n_tables; i++)
            sim_history_begin_task(job->histories[i]);
    }
    self.state = self.other = job->scenario->seed * 1000003 + self.rank * 101 + job->task;
    for (uint32_t i = 0; i < job->scenario->n_tables; i++)
        self.tables[i] = (Opened){ .spec = &job->scenario->tables[i],
                                   .history = job->histories[i],
                                   .clock = first };
    for (uint64_t i = 0; i < MIN(first, job->scenario->n_iterations); i++)
        n_barriers += begins_with_barrier(job, (uint32_t)i);
    for (uint32_t i = 0; i < job->scenario->n_tables; i++)
        is_again =
            sim_history_begin_worker(job->histories[i], self.rank, sim_node(), first, n_barriers);
    job->n_replaced += is_again;
    const bool ok = work(&self, job, error);
    for (uint32_t i = 0; i < job->scenario->n_tables; i++)
        close_table(&self, &self.tables[i]);
    return ok;
}
