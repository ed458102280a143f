/* Replicas that are made in the place of lost ones, on servers that are driven by hand. */
#include "engine/server/replicas/server_copied.h"
#include "engine/server/replicas/server_copies.h"
#include "tests/support/engine/replica_world.h"
#include "tests/support/runner.h"

/* Server 2 has lost its replicas, and gets others. */
static void order_copies(void)
{
    static const uint32_t replicas[] = { 1, 2 };

    for (uint32_t table = 0; table < WORLD_TABLES; table++) {
        const PartPlace place = {
            .table = table, .map = 3, .primary = 0, .n_replicas = 2, .replicas = replicas
        };

        for (uint32_t i = 0; i <= 2; i++)
            replica_world_place(i, table, 3, 0, replicas, 1);
        server_expect_replica(replica_world_server(2), &place, replica_world_shard());
        server_order_copies(replica_world_server(0), &place);
    }
}

static void begin_all(void)
{
    replica_world_begin("bsp");
    for (uint32_t i = 0; i <= 2; i++) {
        replica_world_begin_task(i);
        replica_world_deliver(i);
    }
}

/* It is acknowledged when replicas have it. */
static void add(void)
{
    Call call;

    replica_world_add(0, &call);
    replica_world_deliver(1);
    replica_world_deliver(2);
    replica_world_deliver(0);
    ck_assert(call_has_ended(&call));
    ck_assert_uint_eq(call.status, CALL_OK);
}

/* There is no memory to send the image's message number n. False: it has fewer. */
static bool copy_without_memory(int n)
{
    bool has_starved;

    begin_all();
    add(); /* the model keeps it */
    order_copies();
    replica_world_starve(n);
    server_make_copies(replica_world_server(0));
    has_starved = replica_world_starve(-1);
    for (int i = 0; i < 2; i++) { /* the image and the position, then WHOLE */
        replica_world_deliver(2);
        replica_world_deliver(0);
    }
    ck_assert_int_eq(replica_world_replica(2)->stage,
                     has_starved ? REPLICA_GIVEN_UP : REPLICA_WHOLE);
    ck_assert(!has_starved || replica_world_replica(2)->shard == NULL);
    ck_assert_uint_eq(replica_world_fed(0)->feed.n_replicas, has_starved ? 1 : 2);
    add();
    ck_assert_uint_eq(replica_world_replica(1)->position, replica_world_fed(0)->feed.n_inputs);
    replica_world_end();
    return has_starved;
}

/* The task goes on, and so does the primary. What has come of the image does not stay. */
START_TEST(a_replica_whose_image_finds_no_memory_is_given_up)
{
    int n = 0;

    while (copy_without_memory(n))
        n++;
    ck_assert_int_ge(n, 7); /* COPY, HAD, the task, HAD, clocks, rows, COPIED */
}
END_TEST

/* Answers wait for it once more follows its image than is allowed. They leave when it has come, or
 * is given up with its node. */
START_TEST(what_follows_an_image_is_bounded)
{
    enum { MOST_ADDS = 1000 };
    Server *const primary = (replica_world_begin("asp"), replica_world_server(0));
    const bool is_lost = _i == 1;
    g_autofree Call *calls = g_new(Call, MOST_ADDS);
    int n = 0;

    primary->office->sizes.window_bytes = 16;
    for (uint32_t i = 0; i <= 2; i++) {
        replica_world_begin_task(i);
        replica_world_deliver(i);
    }
    order_copies();
    server_make_copies(primary);
    do { /* the other replica has them at once */
        replica_world_add(0, &calls[n]);
        replica_world_deliver(1);
        replica_world_deliver(0);
    } while (call_has_ended(&calls[n++]) && n < MOST_ADDS);
    ck_assert_int_gt(n, 3); /* nobody waits for a few */
    ck_assert_int_lt(n, 30);
    replica_world_add(0, &calls[n++]);
    replica_world_deliver(1);
    replica_world_deliver(0);
    ck_assert(!call_has_ended(&calls[n - 1]));
    if (is_lost)
        server_leave_node(primary, 2);
    else
        replica_world_deliver_all();
    for (int i = 0; i < n; i++) {
        ck_assert(call_has_ended(&calls[i]));
        ck_assert_uint_eq(calls[i].status, CALL_OK);
    }
    ck_assert_uint_eq(replica_world_fed(0)->feed.n_replicas, is_lost ? 1 : 2);
    if (is_lost)
        replica_world_lose_letters(2);
    replica_world_end();
}
END_TEST

/* The replica has its image, but its table is dropped before it is WHOLE: it tells nothing more. */
START_TEST(the_next_copy_begins_when_the_table_of_one_is_dropped)
{
    replica_world_begin("asp");
    order_copies();
    servers_post_copies(replica_world_server(0), 1);
    replica_world_deliver(2);
    replica_world_deliver(0);
    ck_assert(replica_world_is_sent(2, 0, FEED_WHOLE));
    for (uint32_t i = 0; i <= 2; i++)
        servers_drop_table(replica_world_server(i), 1, 0);
    ck_assert(replica_world_is_sent(2, 1, FEED_COPY));
    replica_world_end();
}
END_TEST

/* The tables evict nothing, create no rows, and count no seconds. */
START_TEST(what_a_primary_cannot_do_by_itself_is_refused)
{
    static const struct {
        uint8_t kind;
        size_t n, bytes;
    } told[] = { { FEED_EVICTED, 1, 16 }, { FEED_CREATED, 2, 8 }, { FEED_TIME, 0, 0 } };
    const uint64_t words[] = { 0, 1 };

    replica_world_begin("asp");
    for (size_t i = 0; i < G_N_ELEMENTS(told); i++) {
        Server *const server = replica_world_server(1);
        Call call;
        Message message = { .kind = MESSAGE_FEED,
                            .fed_kind = told[i].kind,
                            .server = 1,
                            .number = 1,
                            .row_bytes = told[i].bytes,
                            .input_bytes = told[i].n * told[i].bytes,
                            .end = message_end_call,
                            .call = &call,
                            .request = { .keys = { .n = told[i].n }, .input = words } };

        call_begin(&call, NULL);
        call_add_parts(&call, 1);
        ck_assert(actor_try_handle(&server->actor, &message));
        call_sent(&call);
        ck_assert_uint_eq(server->n_refused, i + 1);
    }
    ck_assert_uint_eq(replica_world_replica(1)->position, 0);
    replica_world_end();
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("server copies");
    TCase *const cases = tcase_create("cases");

    tcase_add_test(cases, a_replica_whose_image_finds_no_memory_is_given_up);
    tcase_add_loop_test(cases, what_follows_an_image_is_bounded, 0, 2);
    tcase_add_test(cases, the_next_copy_begins_when_the_table_of_one_is_dropped);
    tcase_add_test(cases, what_a_primary_cannot_do_by_itself_is_refused);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
