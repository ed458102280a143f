/* How a server handles a message: the task and the table that it names, and faults in messages of
 * other nodes. There are no threads: the test handles each message itself, as the owner. */
#include "engine/server/server.h"

#include <math.h>
#include <string.h>

#include "io/net/handler_call.h"
#include "models/handlers/handler.h"
#include "models/shard/shard.h"
#include "models/update/bad_gradients.h"
#include "tests/support/engine/server_rig.h"
#include "tests/support/runner.h"

START_TEST(tasks_on_one_table_have_clocks_of_their_own)
{
    RigAsked first, second, late;
    ServerRig rig;

    server_rig_init(&rig, "ssp");
    server_rig_begin_task(&rig, 1, 0);
    server_rig_begin_task(&rig, 2, 0);
    server_rig_get(&rig, &first, 1, 0, 1);
    server_rig_get(&rig, &second, 2, 0, 1);
    server_rig_tell_clock(&rig, 2, 0, 0, 1);
    server_rig_tell_clock(&rig, 2, 0, 1, 1);
    ck_assert(call_has_ended(&second.call));
    ck_assert_uint_eq(second.call.status, CALL_OK);
    ck_assert_uint_eq(second.call.min_clock, 1);
    ck_assert(!call_has_ended(&first.call));

    server_rig_end_task(&rig, 2);
    ck_assert(!call_has_ended(&first.call));
    server_rig_get(&rig, &late, 2, 0, 0);
    ck_assert_uint_eq(late.call.status, CALL_CANCELLED);
    ck_assert_uint_eq(server_rig_add(&rig, 2, 0, 5), CALL_CANCELLED);
    ck_assert_uint_eq(server_rig_add(&rig, 1, 0, 7), CALL_OK);
    server_rig_tell_clock(&rig, 1, 0, 0, 1);
    server_rig_tell_clock(&rig, 1, 0, 1, 1);
    ck_assert(call_has_ended(&first.call));
    ck_assert_uint_eq(first.call.status, CALL_OK);
    ck_assert_int_eq(first.value, 7);
    server_rig_end_task(&rig, 1);
    server_rig_clear(&rig);
}
END_TEST

START_TEST(what_is_parked_when_its_task_ends_is_cancelled)
{
    RigAsked parked[SERVER_RIG_ADAM], other;
    ServerRig rig;

    server_rig_init(&rig, _i == 0 ? "ssp" : "bsp");
    for (uint32_t table = 0; table < SERVER_RIG_ADAM; table++) {
        server_rig_begin_task(&rig, 1, table);
        server_rig_begin_task(&rig, 2, table);
        server_rig_get(&rig, &parked[table], 1, table, 3);
    }
    server_rig_get(&rig, &other, 2, 0, 3);
    server_rig_end_task(&rig, 1);
    server_rig_end_task(&rig, 1); /* once more does nothing */
    for (uint32_t table = 0; table < SERVER_RIG_ADAM; table++) {
        ck_assert(call_has_ended(&parked[table].call));
        ck_assert_uint_eq(parked[table].call.status, CALL_CANCELLED);
    }
    ck_assert(!call_has_ended(&other.call));
    server_rig_end_task(&rig, 2);
    ck_assert_uint_eq(other.call.status, CALL_CANCELLED);
    server_rig_clear(&rig);
}
END_TEST

/* A Get of one key may have to look at all that others have announced. */
START_TEST(a_get_may_be_more_work_than_its_keys)
{
    enum { N = 2000 };
    RubatoKey keys[N] = { 0 };
    RigAsked asked = { 0 };
    ServerRig rig;

    server_rig_init(&rig, "sparse_ssp");
    server_rig_begin_task(&rig, 1, 0);
    server_rig_get(&rig, &asked, 1, 0, 0);
    ck_assert_uint_eq(rig.server.actor.find_work(&rig.server.actor, &asked.message), 0);
    asked.message = (Message){ .kind = MESSAGE_ANNOUNCE,
                               .epoch = 1,
                               .request = { .worker = 1, .keys = { .keys = keys, .n = N } } };
    server_rig_ask(&rig, &asked);
    server_rig_get(&rig, &asked, 1, 0, 0);
    ck_assert_uint_eq(rig.server.actor.find_work(&rig.server.actor, &asked.message), N);
    server_rig_end_task(&rig, 1);
    server_rig_clear(&rig);
}
END_TEST

START_TEST(the_tables_of_a_task_are_told_apart)
{
    RigAsked asked;
    ServerRig rig;

    server_rig_init(&rig, "asp");
    for (uint32_t table = 0; table < SERVER_RIG_ADAM; table++)
        server_rig_begin_task(&rig, 1, table);
    for (uint32_t table = 0; table < SERVER_RIG_ADAM; table++)
        ck_assert_uint_eq(server_rig_add(&rig, 1, table, 1 + table), CALL_OK);
    for (uint32_t table = 0; table < SERVER_RIG_ADAM; table++) {
        server_rig_get(&rig, &asked, 1, table, 0);
        ck_assert_int_eq(asked.value, 1 + table);
    }
    server_rig_end_task(&rig, 1);
    server_rig_clear(&rig);
}
END_TEST

START_TEST(sources_without_workers_hold_nobody_back)
{
    static const uint32_t workers_of[] = { 1, 0 };
    RigAsked asked;
    ServerRig rig;

    server_rig_init(&rig, "ssp");
    const RubatoModelSetup setup = { .spec = &rig.specs[0],
                                     .n_workers = 1,
                                     .n_keys = SERVER_RIG_KEYS };
    ck_assert(server_begin_task(&rig.server, 1, 0, &setup, 2, workers_of, NULL));
    server_rig_tell_clock(&rig, 1, 0, 0, 1);
    server_rig_get(&rig, &asked, 1, 0, 1);
    ck_assert(call_has_ended(&asked.call));
    server_rig_end_task(&rig, 1);
    server_rig_clear(&rig);
}
END_TEST

/* A Get that brings its node's clock is no older than that. */
START_TEST(a_get_may_bring_the_clock_of_its_node)
{
    RigAsked asked;
    ServerRig rig;

    server_rig_init(&rig, "ssp");
    server_rig_begin_task(&rig, 1, 0);
    server_rig_tell_clock(&rig, 1, 0, 1, 1);
    memset(&asked, 0, sizeof asked);
    asked.message = (Message){
        .kind = MESSAGE_GET,
        .epoch = 1,
        .node_clock = 1,
        .request = { .clock = 1, .keys = { .keys = &asked.key, .n = 1 }, .output = &asked.value }
    };
    server_rig_ask(&rig, &asked);
    ck_assert(call_has_ended(&asked.call));
    server_rig_end_task(&rig, 1);
    server_rig_clear(&rig);
}
END_TEST

/* The clock that all nodes have reached counts for each of them. A model that counts the clocks of
 * workers is sent none, and ignores one. */
START_TEST(a_common_clock_counts_for_every_node)
{
    RigAsked asked;
    ServerRig rig;

    server_rig_init(&rig, "ssp");
    server_rig_begin_task(&rig, 1, 0);
    server_rig_get(&rig, &asked, 1, 0, 2);
    server_rig_tell_clock(&rig, 1, 0, MESSAGE_CLOCK_OF_ALL, 1);
    ck_assert(!call_has_ended(&asked.call));
    server_rig_tell_clock(&rig, 1, 0, MESSAGE_CLOCK_OF_ALL, 2);
    ck_assert(call_has_ended(&asked.call));
    ck_assert_uint_eq(asked.call.min_clock, 2);
    server_rig_end_task(&rig, 1);
    server_rig_clear(&rig);
}
END_TEST

/* _i: a model of nodes' clocks, one of workers' */
START_TEST(a_get_of_another_node_brings_its_clock_where_it_counts)
{
    RigAsked asked = { 0 };
    ServerRig rig;

    server_rig_init(&rig, _i == 0 ? "ssp" : "sparse_ssp");
    server_rig_begin_task(&rig, 1, 0);
    server_rig_tell_clock(&rig, 1, 0, 0, 1);
    asked.message = (Message){ .kind = MESSAGE_GET,
                               .epoch = 1,
                               .node = SERVER_RIG_OTHER,
                               .node_clock = 1,
                               .request = { .worker = 1,
                                            .clock = 1,
                                            .keys = { .keys = &asked.key, .n = 1 },
                                            .output = &asked.value } };
    server_rig_ask(&rig, &asked);
    ck_assert(call_has_ended(&asked.call));
    ck_assert_uint_eq(asked.call.status, _i == 0 ? CALL_OK : CALL_REFUSED);
    if (_i == 0)
        ck_assert_uint_eq(asked.call.min_clock, 1);
    ck_assert_uint_eq(rig.server.n_refused, (uint64_t)_i);
    server_rig_end_task(&rig, 1);
    server_rig_clear(&rig);
}
END_TEST

/* ---- what another node may not ask ---- */

enum { IN_TASK = 1, BETWEEN = 0 };

static const struct {
    uint32_t epoch, table;
    MessageKind kind;
    uint32_t worker;
    RubatoKey first;
    size_t n, input_bytes;
    CallStatus status;
    RubatoTuning tuning;
} foreign[] = {
#define NOBODY BAD_GRADIENTS_NO_WORKER
    /* in a task */
    { IN_TASK, 0, MESSAGE_ADD, 1, 0, 2, 16, CALL_OK, { 0 } },
    { IN_TASK, 0, MESSAGE_ADD, 1, 0, 2, 15, CALL_REFUSED, { 0 } },
    { IN_TASK, 0, MESSAGE_ADD, 1, 0, 2, 24, CALL_REFUSED, { 0 } },
    { IN_TASK, 0, MESSAGE_ADD, 1, 6, 2, 16, CALL_OK, { 0 } },
    { IN_TASK, 0, MESSAGE_ADD, 1, 7, 2, 16, CALL_REFUSED, { 0 } },
    { IN_TASK, 0, MESSAGE_ADD, 2, 0, 2, 16, CALL_REFUSED, { 0 } },
    { IN_TASK, 0, MESSAGE_GET, 1, SERVER_RIG_KEYS, 1, 0, CALL_REFUSED, { 0 } },
    { IN_TASK, 0, MESSAGE_ADD_GET, 1, 0, 2, 16, CALL_OK, { 0 } },
    { IN_TASK, 0, MESSAGE_ADD_GET, 1, 0, 2, 15, CALL_REFUSED, { 0 } },
    { IN_TASK, 0, MESSAGE_ADD_GET, 1, 0, 2, 0, CALL_REFUSED, { 0 } }, /* it brings no deltas */
    { IN_TASK, 0, MESSAGE_ADD_GET, 1, 7, 2, 16, CALL_REFUSED, { 0 } },
    { IN_TASK, 0, MESSAGE_ADD_GET, 2, 0, 2, 16, CALL_REFUSED, { 0 } },
    { BETWEEN, 1, MESSAGE_ADD_GET, NOBODY, 0, 2, 16, CALL_REFUSED, { 0 } },
    { IN_TASK, 0, MESSAGE_GET, 2, 0, 1, 0, CALL_REFUSED, { 0 } },
    { IN_TASK, 0, MESSAGE_GET, 1, 0, 1, 8, CALL_REFUSED, { 0 } }, /* it brings values */
    { IN_TASK, 0, MESSAGE_GET_STATE, 1, 0, 1, 0, CALL_REFUSED, { 0 } },
    { IN_TASK, 0, MESSAGE_LIST_KEYS, 1, 0, 1, 0, CALL_REFUSED, { 0 } },
    { IN_TASK, 0, MESSAGE_LIST_KEYS, 1, 0, 0, 0, CALL_REFUSED, { 0 } },
    { IN_TASK, 0, MESSAGE_COUNT_KEYS, 1, 0, 1, 0, CALL_REFUSED, { 0 } },
    { IN_TASK, 0, MESSAGE_SET, 1, 0, 1, 8, CALL_REFUSED, { 0 } },
    { IN_TASK, 0, MESSAGE_RESET, 1, 0, 1, 0, CALL_REFUSED, { 0 } },
    { IN_TASK, 0, MESSAGE_TUNE, 1, 0, 0, 0, CALL_REFUSED, { (RubatoHyper)99, 1 } },
    { IN_TASK, 0, MESSAGE_TUNE, 2, 0, 0, 0, CALL_REFUSED, { RUBATO_HYPER_LEARNING_RATE, 1 } },
    { IN_TASK, 0, MESSAGE_RETURN, 1, 0, 1, 0, CALL_REFUSED, { 0 } }, /* it has no replicas */
    { BETWEEN, 1, MESSAGE_RETURN, NOBODY, 0, 1, 0, CALL_REFUSED, { 0 } },
    { IN_TASK, 0, MESSAGE_ANNOUNCE, 1, 0, 2, 0, CALL_OK, { 0 } },
    { IN_TASK, 0, MESSAGE_ANNOUNCE, 1, 0, 2, 16, CALL_REFUSED, { 0 } },
    { IN_TASK, 0, MESSAGE_ANNOUNCE, 1, 7, 2, 0, CALL_REFUSED, { 0 } },
    { IN_TASK, 1, MESSAGE_ADD, 1, 0, 2, 16, CALL_CANCELLED, { 0 } },
    { IN_TASK + 1, 0, MESSAGE_ADD, 1, 0, 2, 16, CALL_CANCELLED, { 0 } },
    { IN_TASK + 1, 0, MESSAGE_FENCE, 9, 0, 0, 0, CALL_OK, { 0 } },
    /* between tasks */
    { BETWEEN, 1, MESSAGE_ADD, NOBODY, 0, 2, 16, CALL_OK, { 0 } },
    { BETWEEN, 1, MESSAGE_SET, NOBODY, 0, 2, 16, CALL_OK, { 0 } },
    { BETWEEN, 1, MESSAGE_SET, NOBODY, 0, 2, 8, CALL_REFUSED, { 0 } },
    { BETWEEN, 1, MESSAGE_RESET, NOBODY, 0, 2, 0, CALL_OK, { 0 } },
    { BETWEEN, 1, MESSAGE_RESET, NOBODY, 0, 2, 16, CALL_REFUSED, { 0 } },
    { BETWEEN, 1, MESSAGE_ADD, 0, 0, 2, 16, CALL_REFUSED, { 0 } },
    { BETWEEN, 9, MESSAGE_ADD, NOBODY, 0, 2, 16, CALL_REFUSED, { 0 } },
    { BETWEEN, 1, MESSAGE_LIST_KEYS, NOBODY, 0, SERVER_RIG_KEYS + 1, 0, CALL_REFUSED, { 0 } },
    { BETWEEN, 1, MESSAGE_COUNT_KEYS, NOBODY, 0, 2, 0, CALL_REFUSED, { 0 } },
    { BETWEEN, 1, MESSAGE_COUNT_KEYS, NOBODY, 0, 0, 0, CALL_REFUSED, { 0 } },
    { BETWEEN, 1, MESSAGE_LIST_BAD_GRADIENTS, NOBODY, 0, 1, 0, CALL_REFUSED, { 0 } },
    { BETWEEN, 1, MESSAGE_CLOCK, 0, 0, 0, 0, CALL_REFUSED, { 0 } },
    { IN_TASK, 0, MESSAGE_SET_CLOCKS, 1, 0, 2, 16, CALL_REFUSED, { 0 } }, /* no part moves here */
    { BETWEEN, 1, MESSAGE_SET_CLOCKS, NOBODY, 0, 2, 16, CALL_REFUSED, { 0 } },
    { BETWEEN, 1, MESSAGE_SET_BAD_GRADIENTS, NOBODY, 0, 1, 32, CALL_REFUSED, { 0 } },
    { IN_TASK, 0, MESSAGE_SET_BAD_GRADIENTS, 1, 0, 1, 32, CALL_REFUSED, { 0 } },
    { BETWEEN, 1, MESSAGE_SET_USES, NOBODY, 0, 1, 16, CALL_REFUSED, { 0 } },
    { IN_TASK, 0, MESSAGE_SET_USES, 1, 0, 1, 16, CALL_REFUSED, { 0 } },
    { BETWEEN, 1, MESSAGE_SET_MARKS, NOBODY, 0, 1, 4, CALL_REFUSED, { 0 } },
    { IN_TASK, 0, MESSAGE_SET_MARKS, 1, 0, 1, 4, CALL_REFUSED, { 0 } },
    { BETWEEN, 1, MESSAGE_REMOVE, NOBODY, 0, 1, 0, CALL_REFUSED, { 0 } },
    { IN_TASK, 0, MESSAGE_REMOVE, 1, 0, 1, 0, CALL_REFUSED, { 0 } },
    { BETWEEN, 1, MESSAGE_SET_ADMISSION, NOBODY, 0, 1, 8, CALL_REFUSED, { 0 } },
    { IN_TASK, 0, MESSAGE_SET_ADMISSION, 1, 0, 1, 8, CALL_REFUSED, { 0 } },
    { BETWEEN, 1, MESSAGE_ANNOUNCE, NOBODY, 0, 1, 0, CALL_REFUSED, { 0 } },
    /* what Adam keeps beside a value: two means, two counts */
    { BETWEEN, SERVER_RIG_ADAM, MESSAGE_SET_STATE, NOBODY, 0, 1, 32, CALL_OK, { 0 } },
    { BETWEEN, SERVER_RIG_ADAM, MESSAGE_SET_STATE, NOBODY, 0, 1, 16, CALL_REFUSED, { 0 } },
    { BETWEEN,
      SERVER_RIG_ADAM,
      MESSAGE_TUNE,
      NOBODY,
      0,
      0,
      0,
      CALL_OK,
      { RUBATO_HYPER_LEARNING_RATE, 1 } },
    { BETWEEN,
      SERVER_RIG_ADAM,
      MESSAGE_TUNE,
      NOBODY,
      0,
      1,
      0,
      CALL_REFUSED,
      { RUBATO_HYPER_LEARNING_RATE, 1 } },
    { BETWEEN,
      SERVER_RIG_ADAM,
      MESSAGE_TUNE,
      NOBODY,
      0,
      0,
      8,
      CALL_REFUSED,
      { RUBATO_HYPER_LEARNING_RATE, 1 } },
    { BETWEEN,
      SERVER_RIG_ADAM,
      MESSAGE_TUNE,
      NOBODY,
      0,
      0,
      0,
      CALL_REFUSED,
      { RUBATO_HYPER_LEARNING_RATE, NAN } },
};

/* A message of another node. */
static Message message_of(int i, const int64_t *input)
{
    static int64_t output[2];
    Message message = { .kind = foreign[i].kind,
                        .epoch = foreign[i].epoch,
                        .table = foreign[i].table,
                        .node = SERVER_RIG_OTHER };

    if (message.kind == MESSAGE_CLOCK) {
        message.clock = (MessageClock){ .source = SERVER_RIG_OTHER, .clock = 1 };
        return message;
    }
    message.request = (RubatoRequest){ .worker = foreign[i].worker,
                                       .keys = { .first = foreign[i].first, .n = foreign[i].n } };
    message.input_bytes = foreign[i].input_bytes;
    if (message.input_bytes > 0)
        message.request.input = input;
    if (message.kind == MESSAGE_TUNE)
        message.request.tuning = foreign[i].tuning;
    if (message.kind == MESSAGE_ADD_GET)
        message.request.output = output;
    return message;
}
/* A server has some parts of a table: a Get for another one may be sent again, a Get for one that
 * the table does not have is refused, in a task and between tasks. */
START_TEST(a_get_of_a_part_that_is_not_here_is_told_so)
{
    static const CallStatus status_of[] = { CALL_OK, CALL_MOVED, CALL_OK, CALL_REFUSED };
    ServerRig rig;
    uint64_t n_refused = 0;

    server_rig_init(&rig, "asp");
    server_add_table(&rig.server, SERVER_RIG_TABLES, 3);
    for (uint32_t part = 0; part < 3; part += 2)
        server_add_shard(&rig.server, SERVER_RIG_TABLES, part,
                         shard_new(&rig.specs[0], 0, SERVER_RIG_KEYS, NULL));
    server_rig_begin_task(&rig, IN_TASK, 0);
    const RubatoModelSetup setup = { .spec = &rig.specs[0], .n_workers = 2 };
    static const uint32_t workers_of[] = { 1, 1 };
    ck_assert(
        server_begin_task(&rig.server, IN_TASK, SERVER_RIG_TABLES, &setup, 2, workers_of, NULL));
    for (uint32_t i = 0; i < 2 * G_N_ELEMENTS(status_of); i++) {
        const uint32_t part = i % G_N_ELEMENTS(status_of);
        const bool in_task = i < G_N_ELEMENTS(status_of);
        RigAsked asked = { 0 };

        asked.message = (Message){ .kind = MESSAGE_GET,
                                   .epoch = in_task ? IN_TASK : BETWEEN,
                                   .table = SERVER_RIG_TABLES,
                                   .part = part,
                                   .node = SERVER_RIG_OTHER,
                                   .request = { .worker = in_task ? 0 : BAD_GRADIENTS_NO_WORKER,
                                                .keys = { .first = 1, .n = 1 },
                                                .output = &asked.value } };
        server_rig_ask(&rig, &asked);
        ck_assert(call_has_ended(&asked.call));
        ck_assert_uint_eq(asked.call.status, status_of[part]);
        n_refused += status_of[part] == CALL_REFUSED;
        ck_assert_uint_eq(rig.server.n_refused, n_refused);
    }
    server_rig_end_task(&rig, IN_TASK);
    server_rig_clear(&rig);
}
END_TEST

/* A clock comes once to a server and holds for every part that is there: the parked Get of each
 * part is answered. */
START_TEST(a_clock_reaches_every_part)
{
    static const uint32_t workers_of[] = { 1, 1 };
    RigAsked asked[3];
    ServerRig rig;

    server_rig_init(&rig, "ssp");
    server_add_table(&rig.server, SERVER_RIG_TABLES, G_N_ELEMENTS(asked));
    for (uint32_t part = 0; part < G_N_ELEMENTS(asked); part++)
        server_add_shard(&rig.server, SERVER_RIG_TABLES, part,
                         shard_new(&rig.specs[0], 0, SERVER_RIG_KEYS, NULL));
    const RubatoModelSetup setup = { .spec = &rig.specs[0], .n_workers = 2 };
    ck_assert(server_begin_task(&rig.server, 1, SERVER_RIG_TABLES, &setup, 2, workers_of, NULL));
    for (uint32_t part = 0; part < G_N_ELEMENTS(asked); part++) {
        memset(&asked[part], 0, sizeof asked[part]);
        asked[part].message = (Message){ .kind = MESSAGE_GET,
                                         .epoch = 1,
                                         .table = SERVER_RIG_TABLES,
                                         .part = part,
                                         .request = { .clock = 1,
                                                      .keys = { .keys = &asked[part].key, .n = 1 },
                                                      .output = &asked[part].value } };
        server_rig_ask(&rig, &asked[part]);
        ck_assert(!call_has_ended(&asked[part].call));
    }
    server_rig_tell_clock(&rig, 1, SERVER_RIG_TABLES, 0, 1);
    for (uint32_t part = 0; part < G_N_ELEMENTS(asked); part++)
        ck_assert(!call_has_ended(&asked[part].call));
    server_rig_tell_clock(&rig, 1, SERVER_RIG_TABLES, 1, 1);
    for (uint32_t part = 0; part < G_N_ELEMENTS(asked); part++) {
        ck_assert(call_has_ended(&asked[part].call));
        ck_assert_uint_eq(asked[part].call.min_clock, 1);
    }
    server_rig_end_task(&rig, 1);
    server_rig_clear(&rig);
}
END_TEST

START_TEST(what_another_node_asks_is_checked)
{
    const int64_t ones[] = { 0x3ff0000000000000, 1, 1, 1 }; /* as a double 1, too */
    const bool counts = foreign[_i].status == CALL_REFUSED;
    RigAsked asked, here;
    ServerRig rig;

    server_rig_init(&rig, "asp");
    server_rig_begin_task(&rig, IN_TASK, 0);
    memset(&asked, 0, sizeof asked);
    asked.message = message_of(_i, ones);
    server_rig_ask(&rig, &asked);
    ck_assert(call_has_ended(&asked.call));
    ck_assert_uint_eq(asked.call.status, foreign[_i].status);
    ck_assert_uint_eq(rig.server.n_refused, counts ? 1 : 0);
    if (foreign[_i].status != CALL_OK)
        for (uint32_t table = 0; table < SERVER_RIG_TABLES; table++)
            for (RubatoKey key = 0; key < SERVER_RIG_KEYS; key++) { /* nothing has changed */
                memset(&here, 0, sizeof here);
                here.message = (Message){ .kind = MESSAGE_GET,
                                          .table = table,
                                          .request = { .worker = BAD_GRADIENTS_NO_WORKER,
                                                       .keys = { .first = key, .n = 1 },
                                                       .output = &here.value } };
                server_rig_ask(&rig, &here);
                require_msg(here.value == 0, "key %u of %s", (unsigned)key, rig.specs[table].name);
            }
    server_rig_end_task(&rig, IN_TASK);
    server_rig_clear(&rig);
}
END_TEST

/* A node that begins calls of handlers and sends no more of them takes up a bounded number of
 * places. The others are told that there is no memory, and those that have one keep it. */
START_TEST(calls_that_are_begun_and_not_finished_are_bounded)
{
    enum { N_BEGUN = 20000, MOST = 1 << 14 };
    static const unsigned char bytes[100];
    uint32_t n_taken = 0;
    ServerRig rig;

    server_rig_init(&rig, "asp");
    for (uint64_t i = 0; i < N_BEGUN; i++) {
        RigAsked asked = { .value = 0 };

        asked.message = (Message){ .kind = MESSAGE_HANDLER,
                                   .node = SERVER_RIG_OTHER,
                                   .row_bytes = 1,
                                   .input_bytes = 8,
                                   .request = { .worker = NOBODY,
                                                .keys = { .n = 8 },
                                                .input = bytes,
                                                .piece = { i + 1, sizeof bytes } } };
        server_rig_ask(&rig, &asked);
        ck_assert(call_has_ended(&asked.call));
        ck_assert(asked.call.status == CALL_OK || asked.call.status == CALL_NO_MEMORY);
        n_taken += asked.call.status == CALL_OK;
    }
    ck_assert_uint_gt(n_taken, MOST / 2);
    ck_assert_uint_lt(n_taken, MOST);
    ck_assert_uint_eq(rig.server.partial_calls->len, n_taken);
    ck_assert_uint_eq(rig.server.n_refused, 0);
    server_rig_clear(&rig);
}
END_TEST

/* ---- tables of ragged rows ---- */

/* The bytes of a request, which begin with its name; what they say of sizes may be wrong. */
static size_t write_ragged(unsigned char *bytes, const char *name, const RubatoKeys *keys,
                           const void *arguments, size_t n)
{
    HandlerCall call = { .ops = handler_find(name), .arguments = arguments, .n_bytes = n };

    handler_call_write(&call, keys, bytes);
    return handler_call_size(&call, keys);
}

static char said[200]; /* the last line of the log */

static GLogWriterOutput keep_line(GLogLevelFlags level, const GLogField *fields, gsize n,
                                  gpointer data)
{
    (void)level;
    (void)data;
    for (gsize i = 0; i < n; i++)
        if (g_str_equal(fields[i].key, "MESSAGE"))
            g_strlcpy(said, fields[i].value, sizeof said);
    return G_LOG_WRITER_HANDLED;
}

START_TEST(what_another_node_asks_of_ragged_rows_is_checked)
{
    static const uint32_t two[] = { 2, 0 }, huge[] = { UINT32_MAX }, none[] = { 0, 0, 0 };
    static const char count_of_no_move[] = "the count of writes of a part that does not move";
    static const char no_count[] = "a count of writes that is no number of 8 bytes";
    const struct {
        const char *name;
        const void *arguments;
        size_t n_bytes;
        RubatoKeys keys;
        const char *why; /* or NULL */
    } cases[] = {
        { "ragged.go_on", two, 8, { .n = 0 }, count_of_no_move },
        { "ragged.go_on", two, 4, { .n = 0 }, no_count },
        { "ragged.go_on", none, 12, { .n = 0 }, no_count },
        { "ragged.get", two, 1, { .first = 1, .n = 1 }, NULL }, /* arguments of none */
        { "ragged.erase", two, 4, { .first = 1, .n = 1 }, NULL },
        { "ragged.get", NULL, 0, { .first = SERVER_RIG_KEYS, .n = 1 }, NULL }, /* keys of nobody */
        { "ragged.get", NULL, 0, { .first = 1, .n = SERVER_RIG_KEYS }, NULL },
        { "ragged.assign", two, 4, { .first = 1, .n = 1 }, NULL },  /* rows without values */
        { "ragged.assign", two, 3, { .first = 1, .n = 1 }, NULL },  /* less than a length */
        { "ragged.append", huge, 4, { .first = 1, .n = 1 }, NULL }, /* longer than rows may be */
        { "ragged.add", none, 8, { .first = 1, .n = 3 }, NULL },    /* fewer lengths than keys */
        { "ragged.add", none, 12, { .first = 1, .n = 2 }, NULL },   /* more of them */
        { "norm", NULL, 0, { .first = 1, .n = 1 }, NULL },          /* for rows of one length */
    };
    static const MessageKind kinds[] = { MESSAGE_GET,   MESSAGE_ADD,       MESSAGE_SET,
                                         MESSAGE_RESET, MESSAGE_GET_STATE, MESSAGE_SET_STATE };
    RubatoTableSpec spec = { .name = "lists",
                             .n_keys = SERVER_RIG_KEYS,
                             .shape = RUBATO_SHAPE_RAGGED };
    RubatoShard *shard;
    uint64_t n_refused = 0;
    ServerRig rig;

    g_log_set_writer_func(keep_line, NULL, NULL);
    server_rig_init(&rig, "asp");
    shard = shard_new(&spec, 0, SERVER_RIG_KEYS, NULL);
    server_add_table(&rig.server, SERVER_RIG_TABLES, 1);
    server_add_shard(&rig.server, SERVER_RIG_TABLES, 0, shard);
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        _Alignas(8) unsigned char bytes[200];
        const size_t n = write_ragged(bytes, cases[i].name, &cases[i].keys, cases[i].arguments,
                                      cases[i].n_bytes);
        RigAsked asked = { .value = 0 };

        asked.message = (Message){ .kind = MESSAGE_HANDLER,
                                   .table = SERVER_RIG_TABLES,
                                   .node = SERVER_RIG_OTHER,
                                   .row_bytes = 1,
                                   .input_bytes = n,
                                   .request = { .worker = BAD_GRADIENTS_NO_WORKER,
                                                .keys = { .n = n },
                                                .input = bytes,
                                                .piece = { i + 1, n } } };
        server_rig_ask(&rig, &asked);
        require_msg(call_has_ended(&asked.call) && asked.call.status == CALL_REFUSED,
                    "case %zu: %s", i, cases[i].name);
        require_msg(cases[i].why == NULL || strstr(said, cases[i].why) != NULL, "case %zu: %s", i,
                    said);
        ck_assert_uint_eq(rig.server.n_refused, ++n_refused);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(kinds); i++) { /* they would see where rows lie */
        static const float input[2];
        RigAsked asked = { .value = 0 };

        asked.message = (Message){ .kind = kinds[i],
                                   .table = SERVER_RIG_TABLES,
                                   .node = SERVER_RIG_OTHER,
                                   .request = { .worker = BAD_GRADIENTS_NO_WORKER,
                                                .keys = { .first = 1, .n = 1 },
                                                .output = &asked.value } };
        if (kinds[i] == MESSAGE_ADD || kinds[i] == MESSAGE_SET) {
            asked.message.request.input = input;
            asked.message.input_bytes = sizeof input[0];
        }
        server_rig_ask(&rig, &asked);
        require_msg(asked.call.status == CALL_REFUSED, "kind %u", kinds[i]);
        ck_assert_uint_eq(rig.server.n_refused, ++n_refused);
    }
    server_rig_clear(&rig);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("server");
    TCase *const cases = tcase_create("server");

    tcase_add_test(cases, tasks_on_one_table_have_clocks_of_their_own);
    tcase_add_loop_test(cases, what_is_parked_when_its_task_ends_is_cancelled, 0, 2);
    tcase_add_test(cases, a_get_may_be_more_work_than_its_keys);
    tcase_add_test(cases, the_tables_of_a_task_are_told_apart);
    tcase_add_test(cases, sources_without_workers_hold_nobody_back);
    tcase_add_test(cases, a_get_may_bring_the_clock_of_its_node);
    tcase_add_test(cases, a_get_of_a_part_that_is_not_here_is_told_so);
    tcase_add_test(cases, a_clock_reaches_every_part);
    tcase_add_test(cases, a_common_clock_counts_for_every_node);
    tcase_add_loop_test(cases, a_get_of_another_node_brings_its_clock_where_it_counts, 0, 2);
    tcase_add_loop_test(cases, what_another_node_asks_is_checked, 0, G_N_ELEMENTS(foreign));
    tcase_add_test(cases, calls_that_are_begun_and_not_finished_are_bounded);
    tcase_add_test(cases, what_another_node_asks_of_ragged_rows_is_checked);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
