/* Tickets of all handles: waiting for any of several, buffers that are borrowed, and that tickets
 * leave nothing behind. */
#include <malloc.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define IS_SANITIZED 1
#endif
#endif
#ifndef IS_SANITIZED
#define IS_SANITIZED 0
#endif

enum { N_KEYS = 100 };

static RubatoEngine *make_engine(const char *model)
{
    RubatoEngine *engine = engine_with_servers(2);

    create_table(engine, &(RubatoTableSpec){ .name = "t",
                                             .dtype = RUBATO_I64,
                                             .n_keys = N_KEYS,
                                             .chunk_size = 10,
                                             .model = model,
                                             .cache = RUBATO_CACHE_NONE });
    return engine;
}

/* ---- every handle ---- */

static bool use_kv(RubatoWorker *worker, GError **error)
{
    const RubatoKey keys[] = { 99, 0 };
    const int64_t deltas[] = { 1, 2 };
    int64_t values[2] = { 0 }, run[3] = { 0 };

    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    TRY(table != NULL);
    TRY(rubato_kv_table_add_async(table, keys, 2, deltas, NULL, error) != 0);
    TRY(rubato_kv_table_add_range_async(table, 0, 2, deltas, NULL, error) != 0);
    TRY(rubato_kv_table_get_async(table, keys, 2, values, NULL, error) != 0);
    TRY(rubato_kv_table_get_range_async(table, 0, 3, run, NULL, error) != 0);
    TRY(rubato_worker_wait_all(worker, error));
    REQUIRE(values[0] == 1 && values[1] == 3);
    REQUIRE(run[0] == 3 && run[1] == 2 && run[2] == 0);
    return true;
}

static bool use_chunks(RubatoWorker *worker, GError **error)
{
    const uint64_t apart[] = { 9, 5 };
    const RubatoKey key = 50;
    int64_t deltas[20], values[20] = { 0 }, value = 0;

    g_autoptr(RubatoChunkTable) table =
        rubato_worker_open_chunk_table(worker, "t", RUBATO_I64, error);
    TRY(table != NULL);
    for (int i = 0; i < 20; i++)
        deltas[i] = 100 + i;
    /* the keys of scattered chunks are the handle's own: they are copied in any case */
    const RubatoRequestOptions borrowed = { .buffers = RUBATO_BUFFERS_BORROWED };
    TRY(rubato_chunk_table_add_chunks_async(table, apart, 2, deltas, &borrowed, error) != 0);
    TRY(rubato_chunk_table_get_chunks_async(table, apart, 2, values, &borrowed, error) != 0);
    TRY(rubato_chunk_table_add_async(table, &key, 1, deltas, NULL, error) != 0);
    TRY(rubato_chunk_table_get_async(table, &key, 1, &value, NULL, error) != 0);
    TRY(rubato_worker_wait_all(worker, error));
    for (int i = 0; i < 20; i++)
        REQUIRE(values[i] == 100 + i + (i == 9 ? 1 : 0), "(%d: %d)", i, (int)values[i]);
    REQUIRE(value == 110 + 100);
    return true;
}

static bool use_sparse(RubatoWorker *worker, GError **error)
{
    const RubatoKey first[] = { 30, 31 }, second[] = { 31, 77 };
    const RubatoIteration iterations[] = { { first, 2 }, { second, 2 } };
    const int64_t deltas[] = { 5, 6 };
    int64_t values[2][2];

    g_autoptr(RubatoSparseKVClientTable) table =
        rubato_worker_open_sparse_kv_client_table(worker, "t", RUBATO_I64, iterations, 2, error);
    TRY(table != NULL);
    REQUIRE(rubato_sparse_kv_client_table_add_async(table, deltas, NULL, error) == 0);
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "belongs to no iteration"));
    TRY(rubato_sparse_kv_client_table_get_async(table, values[0], NULL, error) != 0);
    TRY(rubato_sparse_kv_client_table_add_async(table, deltas, NULL, error) != 0);
    TRY(rubato_sparse_kv_client_table_get_async(table, values[1], NULL, error) != 0);
    REQUIRE(rubato_sparse_kv_client_table_clock_value(table) == 1);
    REQUIRE(rubato_sparse_kv_client_table_get_async(table, values[1], NULL, error) == 0);
    REQUIRE(is_error(error, RUBATO_ERROR_RANGE, "iterations have been read"));
    TRY(rubato_worker_wait_all(worker, error));
    REQUIRE(values[0][0] == 0 && values[0][1] == 0);
    REQUIRE(values[1][0] == 6 && values[1][1] == 0);
    return true;
}

static bool use_all_handles(RubatoWorker *worker, void *user_data, GError **error)
{
    (void)user_data;
    return use_sparse(worker, error) && use_kv(worker, error) && use_chunks(worker, error);
}

START_TEST(every_handle_has_tickets)
{
    RubatoEngine *engine = make_engine("asp");

    run_ok(engine, 1, use_all_handles, NULL, "t");
    rubato_engine_free(engine);
}
END_TEST

/* ---- any of several ---- */

/* Worker 0 is a clock ahead on "t", and not on "u". */
static bool wait_for_any(RubatoWorker *worker, void *user_data, GError **error)
{
    Event *told = user_data;
    const RubatoKey key = 3;
    const int64_t one = 1;
    int64_t late = -1, soon = -1;
    RubatoTicket tickets[3] = { 0 }, last;
    size_t ended = 7;

    g_autoptr(RubatoKVTable) t = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    g_autoptr(RubatoKVTable) u = rubato_worker_open_kv_table_cached(worker, "u", RUBATO_I64, error);
    TRY(t != NULL && u != NULL);
    if (rubato_worker_rank(worker) == 1) {
        TRY(event_await(told, 1, worker, error));
        TRY(rubato_kv_table_add(t, &key, 1, &one, error));
        return rubato_kv_table_clock(t, error);
    }
    REQUIRE(!rubato_worker_wait_any(worker, tickets, 3, &ended, error) && ended == 3);
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "any of no tickets"));
    TRY(rubato_kv_table_clock(t, error));
    tickets[1] = rubato_kv_table_get_async(t, &key, 1, &late, NULL, error);
    tickets[2] = rubato_kv_table_get_async(u, &key, 1, &soon, NULL, error);
    TRY(tickets[1] != 0 && tickets[2] != 0);
    TRY(rubato_worker_wait_any(worker, tickets, 3, &ended, error));
    REQUIRE(ended == 2 && soon == 0 && !rubato_worker_poll(worker, tickets[1]));
    last = tickets[2];
    tickets[2] = 0;
    event_raise(told);
    TRY(rubato_worker_wait_any(worker, tickets, 3, &ended, error));
    REQUIRE(ended == 1 && late == 1);
    tickets[0] = last + 1; /* of its slot, and too late */
    REQUIRE(!rubato_worker_wait_any(worker, tickets, 3, &ended, error) && ended == 3);
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "never given out"));
    return true;
}

START_TEST(wait_any_waits_for_the_first_of_several_tables)
{
    RubatoEngine *engine = make_engine("ssp");
    Event told = EVENT_INIT;
    const char *const tables[] = { "t", "u", NULL };

    create_table(engine, &(RubatoTableSpec){ .name = "u", .dtype = RUBATO_I64, .n_keys = N_KEYS });
    run_task_ok(engine, &(RubatoTask){ .name = "case",
                                       .run = wait_for_any,
                                       .user_data = &told,
                                       .tables = tables,
                                       .workers_per_node = 2 });
    rubato_engine_free(engine);
}
END_TEST

/* ---- a deadline ---- */

/* Worker 0 is a clock ahead. Its wait ends by the deadline alone: worker 1 waits to be told. */
static bool wait_until_deadline(RubatoWorker *worker, void *user_data, GError **error)
{
    Event *told = user_data;
    const RubatoKey key = 3;
    const int64_t one = 1;
    int64_t value = -1;

    g_autoptr(RubatoKVTable) t = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    TRY(t != NULL);
    if (rubato_worker_rank(worker) == 1) {
        TRY(event_await(told, 1, worker, error));
        TRY(rubato_kv_table_add(t, &key, 1, &one, error));
        return rubato_kv_table_clock(t, error);
    }
    TRY(rubato_kv_table_clock(t, error));
    const RubatoTicket ticket = rubato_kv_table_get_async(t, &key, 1, &value, NULL, error);
    TRY(ticket != 0);
    for (uint32_t timeout_ms = 0; timeout_ms < 2; timeout_ms++) {
        REQUIRE(!rubato_worker_wait_for(worker, ticket, timeout_ms, error));
        REQUIRE(is_error(error, RUBATO_ERROR_TIMEOUT, "still under way"));
        REQUIRE(value == -1 && !rubato_worker_poll(worker, ticket));
    }
    event_raise(told);
    TRY(rubato_worker_wait_for(worker, ticket, UINT32_MAX, error));
    REQUIRE(value == 1);
    TRY(rubato_worker_wait_for(worker, ticket, 0, error)); /* it has ended */
    REQUIRE(!rubato_worker_wait_for(worker, ticket + 1, 0, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "never given out"));
    return true;
}

START_TEST(a_get_with_a_deadline_goes_on_behind_it)
{
    RubatoEngine *engine = make_engine("ssp");
    Event told = EVENT_INIT;

    run_ok(engine, 2, wait_until_deadline, &told, "t");
    rubato_engine_free(engine);
}
END_TEST

/* Worker 0 is a clock ahead, and its request writes to an array that is declared behind the handle.
 */
static bool leave_early(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) t = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    Event *told = user_data;
    RubatoTicket ticket;

    TRY(t != NULL);
    if (rubato_worker_rank(worker) == 1)
        return event_await(told, 1, worker, error) && rubato_kv_table_clock(t, error);
    TRY(rubato_kv_table_clock(t, error));
    {
        g_autofree int64_t *values = g_new(int64_t, N_KEYS);
        g_autoptr(RubatoTicketScope) scope = rubato_worker_ticket_scope(worker);

        ticket = rubato_kv_table_get_range_async(t, 0, N_KEYS, values, NULL, error);
        TRY(scope != NULL && ticket != 0);
        event_raise(told);
    }
    REQUIRE(rubato_worker_poll(worker, ticket));
    return true;
}

START_TEST(all_tickets_have_ended_at_the_end_of_a_scope)
{
    RubatoEngine *engine = make_engine("ssp");
    Event told = EVENT_INIT;

    run_ok(engine, 2, leave_early, &told, "t");
    rubato_engine_free(engine);
}
END_TEST

/* ---- what tickets leave behind ---- */

static size_t count_descriptors(void)
{
    g_autoptr(GDir) dir = g_dir_open("/proc/self/fd", 0, NULL);
    size_t n = 0;

    while (g_dir_read_name(dir) != NULL)
        n++;
    return n;
}

static void count_call(RubatoTicket ticket, const GError *error, void *user_data)
{
    (void)ticket;
    (void)error;
    event_raise(user_data);
}

static bool make_tickets(RubatoKVTable *table, unsigned n, Event *called, GError **error)
{
    const RubatoRequestOptions usual = { 0 },
                               with_callback = { .callback = count_call, .user_data = called };
    const RubatoKey keys[] = { 5, 95 };
    const int64_t ones[] = { 1, 1 };
    static int64_t values[2]; /* of each worker's last Get; never read */

    for (unsigned i = 0; i < n; i++) {
        const RubatoRequestOptions *options = i % 16 == 0 ? &with_callback : &usual;

        if (i % 3 == 0)
            TRY(rubato_kv_table_get_async(table, keys, 2, values, options, error) != 0);
        else
            TRY(rubato_kv_table_add_async(table, keys, 2, ones, options, error) != 0);
    }
    return true;
}

/* Nobody waits for a ticket. How many are under way at once, at most, depends on how the system
 * schedules threads, and what is kept of them grows with it: 12 bytes for each, up to 240 KB, and
 * what the allocator keeps for its threads. Eight bytes for each ticket that ever was would be 4.6
 * MB. */
static bool forget_tickets(RubatoWorker *worker, void *user_data, GError **error)
{
    enum { N_ROUND = 20000, N_ROUNDS = 30, MOST_GROWTH = 1 << 20 };
    const RubatoKey key = 0;
    size_t n_bytes = 0, n_files = 0;
    Event called = EVENT_INIT;
    int64_t value;

    (void)user_data;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    TRY(table != NULL);
    for (int round = 0; round < N_ROUNDS; round++) {
        TRY(make_tickets(table, N_ROUND, &called, error));
        TRY(event_await(&called, (unsigned)(round + 1) * N_ROUND / 16, worker, error));
        /* a new ticket frees what many at once have left */
        TRY(rubato_worker_wait(
            worker, rubato_kv_table_get_async(table, &key, 1, &value, NULL, error), error));
        if (round == 0) {
            n_bytes = mallinfo2().uordblks;
            n_files = count_descriptors();
        }
    }
    REQUIRE(count_descriptors() == n_files);
    if (!IS_SANITIZED)
        REQUIRE(mallinfo2().uordblks < n_bytes + MOST_GROWTH, "(%zu bytes became %zu)", n_bytes,
                (size_t)mallinfo2().uordblks);
    return true;
}

START_TEST(tickets_that_nobody_waits_for_leave_nothing_behind)
{
    RubatoEngine *engine = make_engine("asp");

    run_ok(engine, 1, forget_tickets, NULL, "t");
    ck_assert_int_eq(read_i64(engine, "t", 5), 30 * 13333);
    rubato_engine_free(engine);
}
END_TEST

/* Worker 0 is a clock ahead, so all of its Gets wait at once until worker 1 clocks. */
static bool have_many_tickets(RubatoWorker *worker, void *user_data, GError **error)
{
    enum { N_TICKETS = 10000, MOST_GROWTH = 512 << 10 };
    Event *asked = user_data;
    g_autofree int64_t *values = g_new0(int64_t, N_TICKETS);
    const RubatoKey key = 5;

    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    TRY(table != NULL);
    if (rubato_worker_rank(worker) == 1) {
        TRY(event_await(asked, 1, worker, error));
        return rubato_kv_table_clock(table, error);
    }
    TRY(rubato_kv_table_get(table, &key, 1, values, error));
    TRY(rubato_kv_table_clock(table, error));
    const size_t n_bytes = mallinfo2().uordblks;
    for (int i = 0; i < N_TICKETS; i++)
        TRY(rubato_kv_table_get_async(table, &key, 1, &values[i], NULL, error) != 0);
    const size_t with_all = mallinfo2().uordblks;
    event_raise(asked);
    TRY(rubato_worker_wait_all(worker, error));
    TRY(rubato_worker_wait(worker, rubato_kv_table_get_async(table, &key, 1, values, NULL, error),
                           error));
    if (!IS_SANITIZED) {
        REQUIRE(with_all > n_bytes + 2 * MOST_GROWTH, "(what is kept would not be noticed)");
        REQUIRE(mallinfo2().uordblks < n_bytes + MOST_GROWTH, "(%zu bytes became %zu)", n_bytes,
                (size_t)mallinfo2().uordblks);
    }
    return true;
}

START_TEST(tickets_that_were_many_at_once_give_their_memory_back)
{
    RubatoEngine *engine = engine_with_servers(1);
    Event asked = EVENT_INIT;

    create_table(engine, &(RubatoTableSpec){ .name = "t",
                                             .dtype = RUBATO_I64,
                                             .n_keys = N_KEYS,
                                             .model = "bsp",
                                             .cache = RUBATO_CACHE_NONE });
    run_ok(engine, 2, have_many_tickets, &asked, "t");
    rubato_engine_free(engine);
}
END_TEST

/* ---- buffers ---- */

/* Each byte of a key and of a delta counts. */
static bool reuse_buffers(RubatoWorker *worker, void *user_data, GError **error)
{
    RubatoKey keys[] = { UINT64_MAX - 1, UINT64_C(0xfedcba9876543210) };
    int64_t deltas[] = { INT64_MAX, INT64_MIN }, values[2] = { 0 };
    const RubatoKey keys_read[] = { keys[0], keys[1] };

    (void)user_data;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "h", RUBATO_I64, error);
    TRY(table != NULL);
    const RubatoTicket ticket = rubato_kv_table_add_async(table, keys, 2, deltas, NULL, error);
    memset(keys, 0, sizeof keys);
    memset(deltas, 0, sizeof deltas);
    TRY(rubato_worker_wait(worker, ticket, error));
    TRY(rubato_kv_table_get(table, keys_read, 2, values, error));
    REQUIRE(values[0] == INT64_MAX && values[1] == INT64_MIN);
    return true;
}

START_TEST(buffers_that_are_copied_may_be_used_again_at_once)
{
    RubatoEngine *engine = engine_with_servers(2);

    create_table(engine, &(RubatoTableSpec){ .name = "h", .dtype = RUBATO_I64, .storage = "hash" });
    run_ok(engine, 1, reuse_buffers, NULL, "h");
    rubato_engine_free(engine);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ticket");
    TCase *cases = tcase_create("ticket");

    tcase_add_test(cases, every_handle_has_tickets);
    tcase_add_test(cases, wait_any_waits_for_the_first_of_several_tables);
    tcase_add_test(cases, a_get_with_a_deadline_goes_on_behind_it);
    tcase_add_test(cases, all_tickets_have_ended_at_the_end_of_a_scope);
    tcase_add_test(cases, tickets_that_nobody_waits_for_leave_nothing_behind);
    tcase_add_test(cases, tickets_that_were_many_at_once_give_their_memory_back);
    tcase_add_test(cases, buffers_that_are_copied_may_be_used_again_at_once);
    tcase_set_timeout(cases, 20);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
