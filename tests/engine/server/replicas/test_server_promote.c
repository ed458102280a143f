/* Replicas that become primaries, on servers that are driven by hand. */
#include <rubato/error.h>

#include "engine/server/replicas/server_copied.h"
#include "engine/server/replicas/server_copies.h"
#include "engine/server/replicas/server_handover.h"
#include "tests/support/engine/replica_world.h"
#include "tests/support/runner.h"

static bool knows_task(uint32_t server)
{
    return replica_find_model(replica_world_replica(server), WORLD_EPOCH).model != NULL;
}

/* The primary dies when some of its replicas know of a task that has begun: bit 0 of _i says
 * whether server 1 does, which becomes the primary, bit 1 whether server 2 does. With bit 2, server
 * 2 hears of the task before it knows the new primary. */
START_TEST(a_new_primary_tells_tasks_that_replicas_have_missed)
{
    static const uint32_t other[] = { 2 };
    const bool hears[] = { false, (_i & 1) != 0, (_i & 2) != 0 }, is_ahead = (_i & 4) != 0;
    Call call;

    replica_world_begin("asp");
    replica_world_begin_task(0);
    for (uint32_t i = 1; i <= 2; i++) {
        replica_world_begin_task(i);
        if (hears[i])
            replica_world_deliver(i);
        replica_world_lose_letters(i);
        ck_assert(knows_task(i) == hears[i]);
        server_leave_node(replica_world_server(i), 0);
    }
    replica_world_place(1, 0, 3, 1, other, 1);
    if (is_ahead)
        replica_world_deliver(2);
    replica_world_place(2, 0, 3, 1, other, 1);
    replica_world_add(1, &call);
    ck_assert(!call_has_ended(&call)); /* its replica does not have it yet */
    replica_world_deliver(2);
    replica_world_deliver(1);
    ck_assert(call_has_ended(&call));
    ck_assert_uint_eq(call.status, CALL_OK);
    ck_assert_uint_eq(replica_world_replica(2)->position, 1);
    replica_world_end();
}
END_TEST

/* Its node begins a task when a new primary has told it already. */
START_TEST(a_replica_has_one_model_of_a_task)
{
    replica_world_begin("asp");
    /* as if it were a replica since its table was made, which sees tasks begin by itself */
    replica_world_replica(2)->made = 0;
    replica_world_begin_task(0);
    replica_world_deliver(2);
    replica_world_begin_task(2);
    ck_assert_uint_eq(replica_world_replica(2)->models->len, 1);
    replica_world_end();
}
END_TEST

/* Of two replicas, _i have been told of it. None keeps it. */
START_TEST(a_task_that_replicas_cannot_be_told_of_fails)
{
    g_autoptr(GError) error = NULL;

    replica_world_begin("asp");
    replica_world_starve(_i);
    ck_assert(!replica_world_try_task(0, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY));
    ck_assert(replica_world_starve(-1));
    for (uint32_t i = 1; i <= 2; i++) {
        replica_world_deliver(i);
        ck_assert(!knows_task(i));
        ck_assert_uint_eq(replica_world_replica(i)->position, 1); /* its end */
    }
    replica_world_deliver(0);
    replica_world_end();
}
END_TEST

/* Another node is lost after the primary has passed on its last input, and so it stays. Meanwhile a
 * task has ended. */
START_TEST(a_primary_that_stays_tells_the_end_of_a_task)
{
    static const uint32_t others[] = { 1, 2 };
    const PartPlace next = { .map = 3, .primary = 1 };

    replica_world_begin("asp");
    for (uint32_t i = 0; i <= 2; i++)
        replica_world_begin_task(i);
    for (uint32_t i = 1; i <= 2; i++)
        replica_world_deliver(i);
    server_settle_part(replica_world_server(0), &next);
    server_end_task(replica_world_server(0), WORLD_EPOCH);
    for (uint32_t i = 1; i <= 2; i++) {
        replica_world_deliver(i);
        ck_assert(knows_task(i) && replica_world_replica(i)->had_last);
    }
    for (uint32_t i = 0; i <= 2; i++)
        replica_world_place(i, 0, 4, 0, others, 2);
    for (uint32_t i = 1; i <= 2; i++) {
        replica_world_deliver(i);
        ck_assert(!knows_task(i));
    }
    replica_world_deliver(0);
    replica_world_end();
}
END_TEST

/* ---- announcements ---- */

enum { USED = 3, COMING = 4, UNUSED = 5 };

/* What is under way arrives, also to a server that has another primary since. */
static void deliver_all(void)
{
    for (int round = 0; round < 3; round++)
        for (uint32_t i = 0; i <= 2; i++)
            replica_world_deliver(i);
}

/* Worker 0 announces a key of an iteration, which has n_all if it comes in pieces. */
static void announce(uint32_t server, uint64_t iteration, RubatoKey key, uint64_t n_all,
                     uint64_t sequence)
{
    Message message = {
        .kind = MESSAGE_ANNOUNCE,
        .sequence = sequence,
        .request = { .clock = iteration, .keys = { .first = key, .n = 1 }, .n_announced = n_all }
    };
    Call call;

    replica_world_ask(server, &message, &call);
    deliver_all();
    ck_assert(call_has_ended(&call));
    ck_assert_uint_eq(call.status, CALL_OK);
}

/* A Get of worker 1 at a clock that needs all earlier iterations of worker 0. */
typedef struct {
    Message message;
    Call call;
    int64_t row;
} AskedGet;

static bool is_answered(AskedGet *get, uint32_t server, uint64_t clock, RubatoKey key)
{
    *get = (AskedGet){ .message = { .kind = MESSAGE_GET,
                                    .request = { .worker = 1,
                                                 .clock = clock,
                                                 .keys = { .first = key, .n = 1 },
                                                 .output = &get->row } } };
    replica_world_ask(server, &get->message, &get->call);
    deliver_all();
    return call_has_ended(&get->call);
}

/* Server 2 has lost its replica, and gets another one. */
static void make_again(void)
{
    static const uint32_t replicas[] = { 1, 2 };
    const PartPlace place = { .map = 3, .primary = 0, .n_replicas = 2, .replicas = replicas };

    for (uint32_t i = 0; i <= 2; i++)
        replica_world_place(i, 0, 3, 0, replicas, 1);
    server_expect_replica(replica_world_server(2), &place, replica_world_shard());
    server_order_copies(replica_world_server(0), &place);
    server_make_copies(replica_world_server(0));
    deliver_all();
    ck_assert_int_eq(replica_world_replica(2)->stage, REPLICA_WHOLE);
}

/* The primary knows iteration 0 of a worker, and half of iteration 1. Then server 2 becomes the
 * primary, with _i 1 as a replica that was made after that. The worker sends again the last piece
 * that it knows, of which it has no answer, and then the other one. */
START_TEST(a_new_primary_knows_what_workers_announced)
{
    static const uint32_t other[] = { 1 };
    AskedGet gets[6];

    replica_world_begin("sparse_ssp");
    for (uint32_t i = 0; i <= 2; i++)
        replica_world_begin_task(i);
    deliver_all();
    announce(0, 0, USED, 0, 10);
    announce(0, 1, COMING, 2, 11);
    ck_assert(is_answered(&gets[0], 0, 1, UNUSED));
    if (_i == 1)
        make_again();
    ck_assert(is_answered(&gets[1], 0, 1, UNUSED)); /* the model of before was taken apart */
    for (uint32_t i = 1; i <= 2; i++)
        server_leave_node(replica_world_server(i), 0);
    for (uint32_t i = 1; i <= 2; i++)
        replica_world_place(i, 0, 4, 2, other, 1);
    deliver_all();
    ck_assert(is_answered(&gets[2], 2, 1, UNUSED));
    ck_assert(!is_answered(&gets[3], 2, 1, USED));
    announce(2, 1, COMING, 2, 11);
    ck_assert(!is_answered(&gets[4], 2, 2, UNUSED)); /* the rest of iteration 1 is not known */
    announce(2, 1, COMING + 2, 2, 12);
    ck_assert(call_has_ended(&gets[4].call));
    ck_assert_uint_eq(gets[4].call.status, CALL_OK);
    ck_assert(!call_has_ended(&gets[3].call));
    replica_world_end();
}
END_TEST

/* A worker that is lost uses no key any more, and tells none. */
START_TEST(announcements_of_lost_workers_hold_nobody)
{
    AskedGet used, untold;

    replica_world_begin("sparse_ssp");
    for (uint32_t i = 0; i <= 2; i++)
        replica_world_begin_task(i);
    deliver_all();
    announce(0, 0, USED, 0, 10);
    ck_assert(!is_answered(&used, 0, 1, USED));
    ck_assert(!is_answered(&untold, 0, 3, UNUSED));
    server_lose_workers(replica_world_server(0), 1);
    deliver_all();
    ck_assert(call_has_ended(&used.call) && call_has_ended(&untold.call));
    ck_assert_uint_eq(used.call.status, CALL_OK);
    ck_assert_uint_eq(untold.call.status, CALL_OK);
    replica_world_end();
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("server promote");
    TCase *const cases = tcase_create("cases");

    tcase_add_loop_test(cases, a_new_primary_tells_tasks_that_replicas_have_missed, 0, 8);
    tcase_add_test(cases, a_replica_has_one_model_of_a_task);
    tcase_add_loop_test(cases, a_task_that_replicas_cannot_be_told_of_fails, 0, 2);
    tcase_add_test(cases, a_primary_that_stays_tells_the_end_of_a_task);
    tcase_add_loop_test(cases, a_new_primary_knows_what_workers_announced, 0, 2);
    tcase_add_test(cases, announcements_of_lost_workers_hold_nobody);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
