/* Tables of ragged rows with replicas, on servers that are driven by hand: a replica that is made
 * has the rows and what "bsp" keeps, a request that is made again counts once, and one that fails
 * when nobody waits for it fails the task and ends no node. */
#include <rubato/error.h>
#include <string.h>

#include "io/net/handler_call.h"
#include "models/handlers/handler.h"
#include "models/ragged/ragged.h"
#include "tests/support/engine/replica_world.h"
#include "tests/support/engine/shard_digest.h"
#include "tests/support/runner.h"

enum { LONG = 75000 /* values: several messages */ };

/* Worker 0 writes n times the value to a row. */
static void make(WorldCall *made, uint32_t server, const char *name, uint64_t serial, RubatoKey key,
                 uint32_t n, int64_t value)
{
    const size_t n_bytes = sizeof n + n * sizeof value;

    *made = (WorldCall){ .arguments = g_malloc(n_bytes) };
    memcpy(made->arguments, &n, sizeof n);
    for (uint32_t i = 0; i < n; i++)
        memcpy(made->arguments + sizeof n + i * sizeof value, &value, sizeof value);
    made->handler_call = (HandlerCall){
        .ops = ragged_find(name), .arguments = made->arguments, .n_bytes = n_bytes, .serial = serial
    };
    replica_world_call(made, server, key, /* clock= */ 0);
}

static void write_to(uint32_t server, const char *name, uint64_t serial, RubatoKey key, uint32_t n,
                     int64_t value)
{
    WorldCall made;

    make(&made, server, name, serial, key, n, value);
    replica_world_end_call(&made, NULL);
}

static uint32_t length_of(RubatoShard *shard, RubatoKey key)
{
    HandlerCall call = { .ops = ragged_find("ragged.lengths"), .arguments = "" };
    uint32_t length;

    handler_run(&call, shard, &(RubatoKeys){ .first = key, .n = 1 });
    memcpy(&length, call.answer.bytes, sizeof length);
    handler_answer_clear(&call.answer);
    return length;
}

static RubatoShard *primary_of(uint32_t server)
{
    return server_find_shard(replica_world_server(server), 0, 0);
}

static void check_replica(uint32_t primary, uint32_t server)
{
    ck_assert_uint_eq(shard_digest(primary_of(primary)),
                      shard_digest(replica_world_replica(server)->shard));
}

/* ---- failures that nobody waits for ---- */

static uint32_t n_failed;

static void note_failure(void *user, uint32_t epoch, int code, const char *text)
{
    (void)user;
    ck_assert_uint_eq(epoch, WORLD_EPOCH);
    ck_assert_int_eq(code, RUBATO_ERROR_HANDLER);
    ck_assert_msg(strstr(text, "table t: part 0 (node ") != NULL &&
                      strstr(text, "brings 2 values for key 5, whose row has 0") != NULL,
                  "%s", text);
    n_failed++;
}

static void begin(const char *model)
{
    n_failed = 0;
    replica_world_begin_like(&(RubatoTableSpec){ .model = model, .shape = RUBATO_SHAPE_RAGGED });
    for (uint32_t i = 0; i <= 2; i++) {
        replica_world_begin_task(i);
        replica_world_server(i)->fail_task = note_failure;
    }
    replica_world_deliver_all();
}

/* Under "bsp" its worker has gone on, so each holder of the part fails the task. */
START_TEST(a_request_that_fails_later_ends_no_node)
{
    WorldCall made;

    begin("bsp");
    make(&made, 0, "ragged.add", 1, 5, 2, 1);
    replica_world_end_call(&made, NULL);
    write_to(0, "ragged.append", 2, 6, 3, 1);
    ck_assert_uint_eq(n_failed, 0);
    replica_world_tell_clocks(0, 1, 2);
    ck_assert_uint_eq(n_failed, 3);
    ck_assert_uint_eq(length_of(primary_of(0), 6), 3);
    check_replica(0, 1);
    check_replica(0, 2);
    replica_world_end();
}
END_TEST

/* ---- images ---- */

/* _i 1: the rows are written when the clock ends, behind the image. */
START_TEST(a_replica_that_is_made_has_ragged_rows)
{
    begin(_i == 0 ? "asp" : "bsp");
    write_to(0, "ragged.assign", 1, 0, 3, 7);
    write_to(0, "ragged.append", 2, 1, LONG, 8);
    write_to(0, "ragged.append", 3, 1, LONG, 9);
    write_to(0, "ragged.assign", 4, 2, 1, 10);
    write_to(0, "ragged.assign", 5, 2, 0, 0);
    write_to(0, "ragged.append", 6, 7, 5, 11);
    ck_assert_uint_eq(length_of(primary_of(0), 1), _i == 0 ? 2 * LONG : 0);
    replica_world_make_again();
    check_replica(0, 2);
    write_to(0, "ragged.append", 7, 1, 1, 12);
    write_to(0, "ragged.append", 8, 3, 50, 13);
    if (_i == 1)
        replica_world_tell_clocks(0, 1, 3);
    ck_assert_uint_eq(length_of(primary_of(0), 1), 2 * LONG + 1);
    check_replica(0, 1);
    check_replica(0, 2);
    replica_world_end();
}
END_TEST

/* ---- requests that are made again ---- */

/* _i 1: under "bsp"; 2: the next primary was made behind them. */
START_TEST(a_request_that_is_made_again_counts_once)
{
    const bool is_kept = _i > 0;
    WorldCall made;

    begin(is_kept ? "bsp" : "asp");
    write_to(0, "ragged.append", 1, 4, 2, 5);
    write_to(0, "ragged.append", 2, 4, LONG, 6);
    if (_i == 2)
        replica_world_make_again();
    replica_world_lose_primary();
    write_to(2, "ragged.append", 1, 4, 2, 5);
    write_to(2, "ragged.append", 2, 4, LONG, 6);
    write_to(2, "ragged.append", 3, 4, 1, 7);
    if (is_kept)
        replica_world_tell_clocks(2, 1, 4);
    ck_assert_uint_eq(length_of(primary_of(2), 4), 3 + LONG);
    check_replica(2, 1);
    if (!is_kept) { /* it fails as before */
        make(&made, 2, "ragged.add", 4, 5, 2, 1);
        replica_world_end_call(&made, "whose row has 0");
        write_to(2, "ragged.assign", 5, 5, 2, 1);
        make(&made, 2, "ragged.add", 4, 5, 2, 1);
        replica_world_end_call(&made, "whose row has 0");
    }
    ck_assert_uint_eq(n_failed, 0);
    replica_world_end();
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("server ragged");
    TCase *const cases = tcase_create("cases");

    tcase_add_test(cases, a_request_that_fails_later_ends_no_node);
    tcase_add_loop_test(cases, a_replica_that_is_made_has_ragged_rows, 0, 2);
    tcase_add_loop_test(cases, a_request_that_is_made_again_counts_once, 0, 3);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
