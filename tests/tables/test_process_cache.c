/* The process cache with a server that answers when the test decides: rows that are served at once,
 * calls that wait for others' fetches, and Adds to rows that are cached or on their way. */
#include <rubato/error.h>
#include <string.h>
#include <time.h>

#include "models/update/update.h"
#include "tables/client/client.h"
#include "tables/process_cache.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { N_ROWS = 16, N_WORKERS = 3 };

/* A server with plain rows that keeps each Get until it is told to answer. */
typedef struct {
    Actor actor; /* first */
    int64_t rows[N_ROWS];
    GPtrArray *waiting; /* of Message: Gets, as they came */
    bool at_once;       /* answers Gets as they come */
    uint64_t min_clock;
} SlowServer;

typedef struct {
    SlowServer server;
    Actor helper; /* without a thread: what it has to do is done at once */
    PostOffice office;
    RubatoTableSpec spec;
    Partition partition;
    PartMap *map;
    TableRoute route;
    _Atomic bool cancelled;
    ProcessCache *cache;
    TableClient *clients[N_WORKERS];
} Rig;

static void read_rows(SlowServer *server, Message *message)
{
    const RubatoKeys *keys = &message->request.keys;
    int64_t *values = message->request.output;

    for (size_t i = 0; i < keys->n; i++)
        values[i] = server->rows[(keys->keys == NULL ? keys->first + i : keys->keys[i]) % N_ROWS];
    message->min_clock = server->min_clock;
    message->status = CALL_OK;
}

static void serve_slowly(Actor *actor, Message *message)
{
    SlowServer *server = (SlowServer *)actor;
    const RubatoKeys *keys = &message->request.keys;
    const int64_t *deltas = message->request.input;

    if (message->kind == MESSAGE_GET && !server->at_once) {
        g_ptr_array_add(server->waiting, message);
        return;
    }
    if (message->kind == MESSAGE_GET)
        read_rows(server, message);
    for (size_t i = 0; message->kind == MESSAGE_ADD && i < keys->n; i++)
        server->rows[keys->keys == NULL ? keys->first + i : keys->keys[i]] += deltas[i];
    actor_answer(actor, message);
}

/* Answers the oldest Get, with the rows as they are now. */
static void answer_oldest(Rig *rig)
{
    Message *message;

    ck_assert_uint_gt(rig->server.waiting->len, 0);
    message = g_ptr_array_steal_index(rig->server.waiting, 0);
    read_rows(&rig->server, message);
    message_end(message);
}

static void help(Actor *actor, Message *message)
{
    message->invoke(message, actor);
}

static void rig_init(Rig *rig, uint32_t staleness, const char *update)
{
    static const uint32_t one = 1, id = 0;

    memset(rig, 0, sizeof *rig);
    rig->spec = (RubatoTableSpec){ .name = "t",
                                   .dtype = RUBATO_I64,
                                   .width = 1,
                                   .storage = "dense",
                                   .n_keys = N_ROWS,
                                   .model = "ssp",
                                   .staleness = staleness,
                                   .update = update,
                                   .partition = "range",
                                   .chunk_size = 1,
                                   .cache = RUBATO_CACHE_ALL };
    post_office_init(&rig->office, 0, 1, &id, &one, &FLOW_SIZES_USUAL);
    actor_init(&rig->server.actor, serve_slowly, NULL);
    actor_init(&rig->helper, help, NULL);
    rig->server.waiting = g_ptr_array_new();
    rig->office.servers[0].actor = &rig->server.actor;
    ck_assert(partition_init(&rig->partition, &rig->spec, PARTITION_KEYS_RANGE, 1, NULL));
    rig->route.spec = &rig->spec;
    rig->route.partition = &rig->partition;
    rig->map = part_map_new(1, 1);
    rig->route.map = rig->map;
    rig->route.traits = rubato_model_traits("ssp");
    rig->route.update = update_find(update);
    rig->route.replayable = true;
    rig->route.epoch = 1;
    rig->route.hash_seed = UINT64_C(0x1234567890abcdef);
    rig->route.row_bytes = sizeof(int64_t);
    rig->route.office = &rig->office;
    rig->route.cancelled = &rig->cancelled;
    rig->route.stall_ms = 1000;
    rig->cache = process_cache_new(&rig->route, &rig->helper);
    atomic_store(&rig->route.cache, rig->cache);
    for (uint32_t i = 0; i < N_WORKERS; i++)
        rig->clients[i] = table_client_new(&rig->route, i);
}

static void rig_clear(Rig *rig)
{
    ck_assert_uint_eq(rig->server.waiting->len, 0);
    for (uint32_t i = 0; i < N_WORKERS; i++)
        table_client_free(rig->clients[i]);
    process_cache_free(rig->cache);
    partition_clear(&rig->partition);
    part_map_free(rig->map);
    post_office_clear(&rig->office);
    g_ptr_array_unref(rig->server.waiting);
}

/* A Get under way. */
typedef struct {
    Call call;
    int64_t values[4];
} Reading;

static void begin_reading(Rig *rig, Reading *reading, uint32_t worker, uint64_t clock,
                          const RubatoKey *keys, size_t n)
{
    const Slice slice = { .keys = { .keys = keys, .n = n } };

    memset(reading->values, 0x55, sizeof reading->values);
    rig->clients[worker]->clock = clock;
    call_begin(&reading->call, NULL);
    process_cache_get(rig->cache, rig->clients[worker], &slice, reading->values, &reading->call);
    call_sent(&reading->call);
}

#define READ(rig, reading, worker, clock, ...)                                  \
    do {                                                                        \
        const RubatoKey keys_[] = { __VA_ARGS__ };                              \
        begin_reading(rig, reading, worker, clock, keys_, G_N_ELEMENTS(keys_)); \
    } while (0)

static bool has_ended(Reading *reading)
{
    return call_has_ended(&reading->call);
}

static void add(Rig *rig, uint32_t worker, RubatoKey key, int64_t delta)
{
    ck_assert(table_client_add(rig->clients[worker], &key, 1, &delta, NULL));
}

static void check_stats(Rig *rig, uint64_t hits, uint64_t misses, uint64_t joins)
{
    ProcessCacheStats stats;

    process_cache_stats(rig->cache, &stats);
    ck_assert_uint_eq(stats.hits, hits);
    ck_assert_uint_eq(stats.misses, misses);
    ck_assert_uint_eq(stats.joins, joins);
}

/* ---- keys that somebody chose ---- */

enum { N_CHOSEN = 5000 };

static RubatoKey scattered_key(uint64_t i)
{
    return rubato_mix64(i + 1);
}

/* A hash table that uses all 64 bits folded, or the lower 32, has all of them in one place. */
static RubatoKey folding_to_0(uint64_t i)
{
    return i << 32 | i;
}

static RubatoKey ending_in_0(uint64_t i)
{
    return i << 32;
}

/* Processor time of this thread that it takes to cache rows of so many keys. */
static double seconds_to_cache(RubatoKey (*key)(uint64_t i))
{
    g_autofree RubatoKey *keys = g_new(RubatoKey, N_CHOSEN);
    g_autofree int64_t *values = g_new(int64_t, N_CHOSEN);
    const Slice slice = { .keys = { .keys = keys, .n = N_CHOSEN } };
    struct timespec before, after;
    Call call;
    Rig rig;

    for (uint64_t i = 0; i < N_CHOSEN; i++)
        keys[i] = key(i);
    rig_init(&rig, 0, "add");
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    call_begin(&call, NULL);
    process_cache_get(rig.cache, rig.clients[0], &slice, values, &call);
    call_sent(&call);
    answer_oldest(&rig);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    ck_assert(call_has_ended(&call));
    check_stats(&rig, 0, N_CHOSEN, 0);
    rig_clear(&rig);
    return (double)(after.tv_sec - before.tv_sec) + 1e-9 * (double)(after.tv_nsec - before.tv_nsec);
}

/* The best of some times, since a machine may be held up in any of them. */
static double least_seconds_to_cache(RubatoKey (*key)(uint64_t i))
{
    double least = seconds_to_cache(key);

    for (int i = 1; i < 5; i++) {
        const double seconds = seconds_to_cache(key);

        least = MIN(least, seconds);
    }
    return least;
}

/* Somebody who chooses keys and knows the program does not know the seed. */
START_TEST(chosen_keys_cost_no_more_than_others)
{
    static RubatoKey (*const chosen[])(uint64_t i) = { folding_to_0, ending_in_0 };
    const double usual = least_seconds_to_cache(scattered_key);
    const double seconds = least_seconds_to_cache(chosen[_i]);

    ck_assert_msg(seconds < 10 * usual, "%g s for chosen keys, %g s for others", seconds, usual);
}
END_TEST

/* ---- hits ---- */

START_TEST(what_one_worker_read_serves_the_others)
{
    Rig rig;
    Reading reading;

    rig_init(&rig, 1, "add");
    rig.server.rows[3] = 30;
    rig.server.rows[5] = 50;
    READ(&rig, &reading, 0, 0, 5, 3);
    ck_assert(!has_ended(&reading));
    answer_oldest(&rig);
    ck_assert(has_ended(&reading));
    ck_assert_int_eq(reading.values[0], 50);
    ck_assert_int_eq(reading.values[1], 30);
    READ(&rig, &reading, 1, 1, 3);
    ck_assert(has_ended(&reading)); /* nobody was asked */
    ck_assert_int_eq(reading.values[0], 30);
    READ(&rig, &reading, 2, 0, 3, 5, 3);
    ck_assert(has_ended(&reading));
    ck_assert_int_eq(reading.values[2], 30);
    check_stats(&rig, 4, 2, 0);
    rig_clear(&rig);
}
END_TEST

START_TEST(a_row_serves_as_long_as_the_bound_allows)
{
    Rig rig;
    Reading reading;

    rig_init(&rig, 2, "add");
    rig.server.min_clock = 3;
    READ(&rig, &reading, 0, 4, 7);
    answer_oldest(&rig);
    rig.server.rows[7] = 99; /* another node's Add */
    READ(&rig, &reading, 1, 5, 7);
    ck_assert(has_ended(&reading)); /* 3 is not below 5 - 2 */
    ck_assert_int_eq(reading.values[0], 0);
    READ(&rig, &reading, 1, 6, 7);
    ck_assert(!has_ended(&reading)); /* but it is below 6 - 2 */
    rig.server.min_clock = 4;
    answer_oldest(&rig);
    ck_assert(has_ended(&reading));
    ck_assert_int_eq(reading.values[0], 99);
    check_stats(&rig, 1, 2, 0);
    rig_clear(&rig);
}
END_TEST

/* _i: in which order. */
START_TEST(a_call_is_as_old_as_its_oldest_row)
{
    const RubatoKey keys[] = { _i == 0 ? 3 : 5, _i == 0 ? 5 : 3 };
    Rig rig;
    Reading reading;

    rig_init(&rig, 9, "add");
    rig.server.min_clock = 1;
    READ(&rig, &reading, 0, 4, 3);
    answer_oldest(&rig);
    rig.server.min_clock = 4;
    READ(&rig, &reading, 0, 4, 5);
    answer_oldest(&rig);
    begin_reading(&rig, &reading, 1, 5, keys, 2);
    ck_assert(has_ended(&reading));
    ck_assert_uint_eq(reading.call.min_clock, 1);
    check_stats(&rig, 2, 2, 0);
    rig_clear(&rig);
}
END_TEST

START_TEST(a_repeated_key_is_fetched_once)
{
    Rig rig;
    Reading reading;

    rig_init(&rig, 0, "add");
    rig.server.rows[2] = 20;
    READ(&rig, &reading, 0, 0, 2, 2, 2);
    ck_assert_uint_eq(((Message *)rig.server.waiting->pdata[0])->request.keys.n, 1);
    answer_oldest(&rig);
    for (size_t i = 0; i < 3; i++)
        ck_assert_int_eq(reading.values[i], 20);
    rig_clear(&rig);
}
END_TEST

/* ---- joins ---- */

START_TEST(concurrent_misses_are_fetched_once)
{
    Rig rig;
    Reading first, second, third;

    rig_init(&rig, 1, "add");
    rig.server.rows[1] = 10;
    rig.server.rows[2] = 20;
    READ(&rig, &first, 0, 2, 1);
    READ(&rig, &second, 1, 2, 1);
    READ(&rig, &third, 2, 2, 1, 2); /* key 2 has to be asked for */
    ck_assert_uint_eq(rig.server.waiting->len, 2);
    rig.server.min_clock = 1;
    answer_oldest(&rig);
    ck_assert(has_ended(&first) && has_ended(&second) && !has_ended(&third));
    answer_oldest(&rig);
    ck_assert(has_ended(&third));
    ck_assert_int_eq(second.values[0], 10);
    ck_assert_int_eq(third.values[0], 10);
    ck_assert_int_eq(third.values[1], 20);
    check_stats(&rig, 0, 2, 2);
    rig_clear(&rig);
}
END_TEST

START_TEST(an_earlier_fetch_is_too_old_for_a_later_clock)
{
    Rig rig;
    Reading first, second;

    rig_init(&rig, 0, "add");
    READ(&rig, &first, 0, 1, 4);
    READ(&rig, &second, 1, 2, 4);
    ck_assert_uint_eq(rig.server.waiting->len, 2);
    rig.server.min_clock = 1;
    rig.server.rows[4] = 1;
    answer_oldest(&rig);
    ck_assert(has_ended(&first) && !has_ended(&second));
    rig.server.min_clock = 2;
    rig.server.rows[4] = 2;
    answer_oldest(&rig);
    ck_assert(has_ended(&second));
    ck_assert_int_eq(second.values[0], 2);
    READ(&rig, &first, 2, 2, 4);
    ck_assert(has_ended(&first)); /* the newer one is kept */
    ck_assert_int_eq(first.values[0], 2);
    rig_clear(&rig);
}
END_TEST

/* The fetch of a later clock may be parked until this worker has clocked. So a Get must not wait
 * for it, unless the min clock is known to be high enough. */
START_TEST(a_later_fetch_is_joined_only_where_it_need_not_wait)
{
    Rig rig;
    Reading ahead, behind, known;

    rig_init(&rig, 1, "add");
    READ(&rig, &ahead, 0, 2, 6);
    READ(&rig, &behind, 1, 0, 6);
    ck_assert_uint_eq(rig.server.waiting->len, 2);
    g_ptr_array_add(rig.server.waiting, g_ptr_array_steal_index(rig.server.waiting, 0));
    answer_oldest(&rig); /* that of the worker behind */
    ck_assert(has_ended(&behind) && !has_ended(&ahead));
    rig.server.min_clock = 1;
    answer_oldest(&rig);
    ck_assert(has_ended(&ahead));

    READ(&rig, &ahead, 0, 2, 8); /* the min clock is 1: this one is not parked */
    READ(&rig, &known, 1, 1, 8);
    ck_assert_uint_eq(rig.server.waiting->len, 1);
    answer_oldest(&rig);
    ck_assert(has_ended(&ahead) && has_ended(&known));
    rig_clear(&rig);
}
END_TEST

/* ---- Adds ---- */

START_TEST(a_worker_sees_what_it_added_to_a_cached_row)
{
    Rig rig;
    Reading reading;

    rig_init(&rig, 3, "add");
    rig.server.rows[1] = 100;
    READ(&rig, &reading, 0, 0, 1);
    answer_oldest(&rig);
    add(&rig, 0, 1, 5);
    add(&rig, 1, 1, 7);
    READ(&rig, &reading, 0, 0, 1);
    ck_assert(has_ended(&reading));
    ck_assert_int_eq(reading.values[0], 112);
    ck_assert_int_eq(rig.server.rows[1], 112);
    rig_clear(&rig);
}
END_TEST

START_TEST(an_added_run_reaches_the_cached_rows_too)
{
    static const int64_t deltas[] = { 1, 2, 3 };
    Rig rig;
    Reading reading;

    rig_init(&rig, 3, "add");
    READ(&rig, &reading, 0, 0, 4, 5, 6);
    answer_oldest(&rig);
    ck_assert(table_client_add_run(rig.clients[0], 4, 3, deltas, NULL));
    READ(&rig, &reading, 0, 0, 6, 5, 4);
    ck_assert(has_ended(&reading));
    ck_assert_int_eq(reading.values[0], 3);
    ck_assert_int_eq(reading.values[1], 2);
    ck_assert_int_eq(reading.values[2], 1);
    rig_clear(&rig);
}
END_TEST

/* The server reads the rows when the Add has come already: it must not be counted twice. */
START_TEST(an_add_that_overtakes_a_parked_fetch_counts_once)
{
    Rig rig;
    Reading first, second;

    rig_init(&rig, 0, "add");
    READ(&rig, &first, 0, 1, 9);
    add(&rig, 1, 9, 4);
    READ(&rig, &second, 1, 1, 9); /* it has to see its own Add: no joining */
    ck_assert_uint_eq(rig.server.waiting->len, 2);
    rig.server.min_clock = 1;
    answer_oldest(&rig);
    ck_assert(has_ended(&first) && !has_ended(&second));
    ck_assert_int_eq(first.values[0], 4);
    answer_oldest(&rig);
    ck_assert_int_eq(second.values[0], 4);
    READ(&rig, &first, 2, 1, 9);
    ck_assert(has_ended(&first));
    ck_assert_int_eq(first.values[0], 4);
    rig_clear(&rig);
}
END_TEST

/* The server read the rows before the Add; the answer comes after it, and lacks it. */
START_TEST(an_answer_that_lacks_an_add_is_not_kept)
{
    Rig rig;
    Reading first, second;

    rig_init(&rig, 0, "add");
    READ(&rig, &first, 0, 0, 9);
    add(&rig, 0, 9, 4);
    rig.server.rows[9] = 0;
    answer_oldest(&rig);
    rig.server.rows[9] = 4;
    ck_assert_int_eq(first.values[0], 0); /* it was asked for before the Add */
    READ(&rig, &second, 0, 0, 9);
    ck_assert(!has_ended(&second));
    answer_oldest(&rig);
    ck_assert_int_eq(second.values[0], 4);
    rig_clear(&rig);
}
END_TEST

START_TEST(assignments_reach_the_cache)
{
    Rig rig;
    Reading reading;

    rig_init(&rig, 1, "assign");
    rig.server.rows[0] = 1;
    READ(&rig, &reading, 0, 0, 0);
    answer_oldest(&rig);
    add(&rig, 0, 0, 77);
    READ(&rig, &reading, 0, 0, 0);
    ck_assert(has_ended(&reading));
    ck_assert_int_eq(reading.values[0], 77);
    rig_clear(&rig);
}
END_TEST

START_TEST(a_rule_that_cannot_be_replayed_drops_the_row)
{
    Rig rig;
    Reading reading;

    rig_init(&rig, 1, "add");
    rig.route.replayable = false;
    READ(&rig, &reading, 0, 0, 0, 1);
    answer_oldest(&rig);
    add(&rig, 0, 0, 5);
    READ(&rig, &reading, 0, 0, 1);
    ck_assert(has_ended(&reading)); /* the other row stays */
    READ(&rig, &reading, 0, 0, 0);
    ck_assert(!has_ended(&reading));
    answer_oldest(&rig);
    ck_assert_int_eq(reading.values[0], 5);
    rig_clear(&rig);
}
END_TEST

/* ---- ends ---- */

START_TEST(a_cancelled_fetch_cancels_all_who_wait_and_is_not_kept)
{
    Rig rig;
    Reading first, second;
    Message *message;

    rig_init(&rig, 1, "add");
    READ(&rig, &first, 0, 0, 0);
    READ(&rig, &second, 1, 0, 0);
    message = g_ptr_array_steal_index(rig.server.waiting, 0);
    message->status = CALL_CANCELLED;
    message->min_clock = UINT64_MAX;
    message_end(message);
    ck_assert(has_ended(&first) && has_ended(&second));
    ck_assert_uint_eq(first.call.status, CALL_CANCELLED);
    ck_assert_uint_eq(second.call.status, CALL_CANCELLED);
    READ(&rig, &first, 0, 0, 0);
    ck_assert(!has_ended(&first));
    answer_oldest(&rig);
    ck_assert_uint_eq(first.call.status, CALL_OK);
    rig_clear(&rig);
}
END_TEST

START_TEST(what_is_forgotten_is_fetched_anew)
{
    Rig rig;
    Reading first, second, third;

    rig_init(&rig, 1, "add");
    READ(&rig, &first, 0, 0, 0);
    answer_oldest(&rig);
    READ(&rig, &second, 0, 0, 1);
    rig.server.rows[0] = rig.server.rows[1] = 6;
    process_cache_forget(rig.cache);
    READ(&rig, &third, 1, 0, 0, 1);
    ck_assert(!has_ended(&third));
    ck_assert_uint_eq(rig.server.waiting->len, 2);
    answer_oldest(&rig);
    answer_oldest(&rig);
    ck_assert(has_ended(&second));
    ck_assert_int_eq(third.values[0], 6);
    ck_assert_int_eq(third.values[1], 6);
    rig_clear(&rig);
}
END_TEST

START_TEST(a_full_cache_forgets_rows_but_none_that_is_being_fetched)
{
    Rig rig;
    Reading reading, fetching, joining, again;

    rig_init(&rig, 1, "add");
    rig.office.sizes.cache_bytes = 1; /* less than a row */
    READ(&rig, &reading, 0, 0, 3);
    answer_oldest(&rig);
    READ(&rig, &fetching, 0, 0, 5); /* forgets 3 */
    READ(&rig, &joining, 1, 0, 5);
    ck_assert_uint_eq(rig.server.waiting->len, 1);
    READ(&rig, &again, 1, 0, 3);
    ck_assert_uint_eq(rig.server.waiting->len, 2);
    answer_oldest(&rig);
    ck_assert(has_ended(&fetching) && has_ended(&joining) && !has_ended(&again));
    answer_oldest(&rig);
    ck_assert(has_ended(&again));
    check_stats(&rig, 0, 3, 1);
    rig_clear(&rig);
}
END_TEST

START_TEST(an_answer_that_comes_at_once_is_kept_too)
{
    Rig rig;
    Reading reading;

    rig_init(&rig, 1, "add");
    rig.server.rows[0] = 8;
    rig.server.at_once = true;
    /* the answer comes while the cache is held: only another thread may take it in */
    ck_assert(actor_start(&rig.helper, "helper"));
    READ(&rig, &reading, 0, 0, 0);
    ck_assert(call_wait(&reading.call, -1));
    ck_assert_int_eq(reading.values[0], 8);
    actor_stop(&rig.helper);
    READ(&rig, &reading, 1, 0, 0);
    ck_assert(has_ended(&reading));
    check_stats(&rig, 1, 1, 0);
    rig_clear(&rig);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("process_cache");
    TCase *cases = tcase_create("process_cache");

    tcase_add_test(cases, what_one_worker_read_serves_the_others);
    tcase_add_loop_test(cases, chosen_keys_cost_no_more_than_others, 0, 2);
    tcase_add_test(cases, a_row_serves_as_long_as_the_bound_allows);
    tcase_add_loop_test(cases, a_call_is_as_old_as_its_oldest_row, 0, 2);
    tcase_add_test(cases, a_repeated_key_is_fetched_once);
    tcase_add_test(cases, concurrent_misses_are_fetched_once);
    tcase_add_test(cases, an_earlier_fetch_is_too_old_for_a_later_clock);
    tcase_add_test(cases, a_later_fetch_is_joined_only_where_it_need_not_wait);
    tcase_add_test(cases, a_worker_sees_what_it_added_to_a_cached_row);
    tcase_add_test(cases, an_added_run_reaches_the_cached_rows_too);
    tcase_add_test(cases, an_add_that_overtakes_a_parked_fetch_counts_once);
    tcase_add_test(cases, an_answer_that_lacks_an_add_is_not_kept);
    tcase_add_test(cases, assignments_reach_the_cache);
    tcase_add_test(cases, a_rule_that_cannot_be_replayed_drops_the_row);
    tcase_add_test(cases, a_cancelled_fetch_cancels_all_who_wait_and_is_not_kept);
    tcase_add_test(cases, what_is_forgotten_is_fetched_anew);
    tcase_add_test(cases, a_full_cache_forgets_rows_but_none_that_is_being_fetched);
    tcase_add_test(cases, an_answer_that_comes_at_once_is_kept_too);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
