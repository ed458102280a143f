/* What a server does for parts with replicas, as their primary and as the server of a replica.
 * There are no threads: the test handles each message itself, as the owner. */
#include "engine/server/replicas/server_copied.h"
#include "engine/server/replicas/server_feed.h"
#include "engine/server/replicas/server_replicas.h"
#include "models/shard/shard.h"
#include "tests/support/engine/server_rig.h"
#include "tests/support/runner.h"

/* A part has a replica on server 1, and has had no inputs. */
START_TEST(a_position_of_a_replica_that_cannot_be_is_refused)
{
    static const uint32_t replica = 1;
    static const struct {
        uint32_t node, server, part;
        uint64_t number;
        bool is_refused;
    } told[] = {
        { SERVER_RIG_OTHER, 1, 0, 0, false },
        { SERVER_RIG_OTHER, 1, 0, 1, true },  /* there is no such input */
        { SERVER_RIG_OTHER, 2, 0, 0, true },  /* nor such a server, */
        { SERVER_RIG_OTHER, 0, 0, 0, true },  /* nor is it on that node, */
        { 0, 0, 0, 0, true },                 /* nor a replica */
        { SERVER_RIG_OTHER, 1, 1, 0, false }, /* of a part that has none: late */
    };
    ServerRig rig;

    server_rig_init(&rig, "asp");
    server_rig_add_server(&rig);
    server_add_feed(&rig.server, 0, 0, &replica, 1);
    for (size_t i = 0; i < G_N_ELEMENTS(told); i++) {
        RigAsked asked = { .message = { .kind = MESSAGE_POSITION,
                                        .part = told[i].part,
                                        .node = told[i].node,
                                        .number = told[i].number,
                                        .request = { .worker = told[i].server } } };
        const uint64_t before = rig.server.n_refused;

        server_rig_ask(&rig, &asked);
        require_msg((rig.server.n_refused > before) == told[i].is_refused, "position %zu", i);
    }
    server_rig_clear(&rig);
}
END_TEST

/* A replica becomes the primary by map 2. A clock that was told by map 1 may have come on another
 * way than Adds before it, which died with the old primary and are sent again behind map 2. */
START_TEST(a_new_primary_counts_only_clocks_of_its_map)
{
    const uint32_t epoch = 1;
    RigAsked asked;
    ServerRig rig;

    server_rig_init(&rig, "ssp");
    server_rig_add_server(&rig);
    server_add_table(&rig.server, SERVER_RIG_TABLES, 1);
    server_add_replica(&rig.server, SERVER_RIG_TABLES, 0, 1,
                       shard_new(&rig.specs[0], 0, SERVER_RIG_KEYS, NULL));
    server_rig_begin_task_of(&rig, epoch, SERVER_RIG_TABLES, &rig.specs[0]);
    server_leave_node(&rig.server, SERVER_RIG_OTHER);
    server_set_place(&rig.server,
                     &(PartPlace){ .table = SERVER_RIG_TABLES, .map = 2, .primary = 0 });
    server_rig_get(&rig, &asked, epoch, SERVER_RIG_TABLES, 1);
    for (uint32_t map = 1; map <= 2; map++) {
        ck_assert(!call_has_ended(&asked.call));
        server_rig_tell_clock_by(&rig, epoch, SERVER_RIG_TABLES, map, 0, 1);
        server_rig_tell_clock_by(&rig, epoch, SERVER_RIG_TABLES, map, 1, 1);
    }
    ck_assert(call_has_ended(&asked.call));
    ck_assert_uint_eq(asked.call.status, CALL_OK);
    server_rig_end_task(&rig, epoch);
    server_rig_clear(&rig);
}
END_TEST

/* The replica becomes the primary of a part whose task goes on. */
START_TEST(a_node_that_the_run_has_ended_for_ends_no_task_of_replicas)
{
    static const uint32_t replica = 1;
    const uint32_t epoch = 1;
    const FedPart *fed;
    ServerRig rig;

    server_rig_init(&rig, "ssp");
    server_rig_add_server(&rig);
    server_add_table(&rig.server, SERVER_RIG_TABLES, 1);
    server_add_shard(&rig.server, SERVER_RIG_TABLES, 0,
                     shard_new(&rig.specs[0], 0, SERVER_RIG_KEYS, NULL));
    server_add_feed(&rig.server, SERVER_RIG_TABLES, 0, &replica, 1);
    fed = server_find_table(&rig.server, SERVER_RIG_TABLES)->parts[0].fed;
    server_rig_begin_task_of(&rig, epoch, SERVER_RIG_TABLES, &rig.specs[0]);
    post_office_end(&rig.office);
    server_rig_end_task(&rig, epoch);
    ck_assert_uint_eq(fed->feed.n_inputs, 0);
    server_rig_clear(&rig);
}
END_TEST

static CallStatus feed(ServerRig *rig, uint8_t kind, uint32_t map)
{
    RigAsked asked = { .message = { .kind = MESSAGE_FEED,
                                    .fed_kind = kind,
                                    .table = SERVER_RIG_TABLES,
                                    .node = SERVER_RIG_OTHER,
                                    .request = { .worker = 1, .clock = map } } };

    server_rig_ask(rig, &asked);
    return asked.call.status;
}

static bool is_listed(const ServerRig *rig)
{
    g_autoptr(GArray) parts = g_array_new(FALSE, FALSE, sizeof(HeldPart));

    server_list_parts(&rig->server, SERVER_RIG_TABLES, parts);
    return parts->len > 0;
}

/* A replica is to be made on a server. */
static void expect_copy(ServerRig *rig)
{
    const PartPlace place = { .table = SERVER_RIG_TABLES, .map = 2, .primary = 1 };

    server_rig_init(rig, "asp");
    server_rig_add_server(rig);
    server_add_table(&rig->server, SERVER_RIG_TABLES, 1);
    server_expect_replica(&rig->server, &place,
                          shard_new(&rig->specs[0], 0, SERVER_RIG_KEYS, NULL));
}

/* Before FEED_WHOLE it may lack what the primary has acknowledged without it. */
START_TEST(a_replica_that_is_made_is_listed_once_it_is_whole)
{
    ServerRig rig;

    expect_copy(&rig);
    ck_assert(!is_listed(&rig));
    ck_assert_uint_eq(feed(&rig, FEED_COPY, 2), CALL_OK);
    ck_assert(!is_listed(&rig));
    /* as FEED_COPIED does, and then FEED_WHOLE, which also tell the primary: there is no network
     * here */
    server_replica(&rig.server, SERVER_RIG_TABLES, 0)->stage = REPLICA_FOLLOWS;
    ck_assert(!is_listed(&rig));
    server_replica(&rig.server, SERVER_RIG_TABLES, 0)->stage = REPLICA_WHOLE;
    ck_assert(is_listed(&rig));
    server_rig_clear(&rig);
}
END_TEST

/* The primary hears so when its image has ended, and nobody takes the replica for one. */
START_TEST(a_replica_that_lacks_a_piece_of_its_image_is_given_up)
{
    ServerRig rig;

    expect_copy(&rig);
    ck_assert_uint_eq(feed(&rig, FEED_COPY, 2), CALL_OK);
    ck_assert_uint_eq(feed(&rig, FEED_CALLED, 2), CALL_REFUSED); /* it tells nothing of a call */
    ck_assert_int_eq(server_replica(&rig.server, SERVER_RIG_TABLES, 0)->stage, REPLICA_GIVEN_UP);
    ck_assert_uint_eq(feed(&rig, FEED_CALLED, 2), CALL_OK); /* what else comes counts for nothing */
    server_rig_clear(&rig);
}
END_TEST

/* ---- what a primary does by itself ---- */

static const RubatoTableSpec evicting = { .name = "evicting",
                                          .dtype = RUBATO_I64,
                                          .storage = "hash",
                                          .max_bytes = 4 << 20,
                                          .create_on_get = true,
                                          .replicas = 1 };

/* The next input is of another primary. */
START_TEST(what_was_to_be_evicted_stays_if_the_input_is_lost_with_its_primary)
{
    static const RubatoKey keys[] = { 5, 6, 7 };
    const ShardEviction eviction = { 0, 6 };
    Replica *replica;
    ServerRig rig;

    server_rig_init(&rig, "asp");
    server_rig_add_server(&rig);
    server_add_table(&rig.server, SERVER_RIG_TABLES, 1);
    server_add_replica(&rig.server, SERVER_RIG_TABLES, 0, 1, shard_new(&evicting, 0, 0, NULL));
    replica = server_replica(&rig.server, SERVER_RIG_TABLES, 0);
    shard_create_rows(replica->shard, keys, 2);
    ck_assert(shard_expect_evictions(replica->shard, &eviction, 1));
    server_leave_node(&rig.server, SERVER_RIG_OTHER);
    shard_begin_told_input(replica->shard);
    shard_create_rows(replica->shard, keys + 2, 1);
    shard_end_told_input(replica->shard);
    ck_assert_uint_eq(shard_n_rows(replica->shard), 3);
    server_rig_clear(&rig);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server replicas");
    TCase *cases = tcase_create("cases");

    tcase_add_test(cases, a_position_of_a_replica_that_cannot_be_is_refused);
    tcase_add_test(cases, a_new_primary_counts_only_clocks_of_its_map);
    tcase_add_test(cases, a_node_that_the_run_has_ended_for_ends_no_task_of_replicas);
    tcase_add_test(cases, a_replica_that_is_made_is_listed_once_it_is_whole);
    tcase_add_test(cases, a_replica_that_lacks_a_piece_of_its_image_is_given_up);
    tcase_add_test(cases, what_was_to_be_evicted_stays_if_the_input_is_lost_with_its_primary);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
