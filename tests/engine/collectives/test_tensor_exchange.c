/* How the threads of one node share the work of collectives on tensors: the exchange alone, whose
 * links to the other node and to the coordinator are the test itself. */
#include "engine/collectives/tensor_exchange.h"

#include <check.h>
#include <pthread.h>
#include <rubato/error.h>
#include <sched.h>
#include <semaphore.h>
#include <string.h>

#include "engine/collectives/negotiation/tensor_rounds.h"
#include "engine/collectives/negotiation/tensor_text.h"
#include "engine/control/control.h"
#include "io/net/monotonic.h"
#include "tests/support/collectives/idle_links.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { N_VALUES = 10000, SELF = 0, OTHER = 1, LEAVER = 0, SLEEPER = 1 };

typedef struct {
    float values[N_VALUES];
    Call call;
    TensorEntry entry;
} Asked;

typedef struct {
    TensorExchange *exchange;
    pthread_t leaver;
    sem_t is_sending, may_go_on;
    Asked both[2], alone; /* what each worker asks for; what the leaver waits for */
    uint32_t n_sleeps;
    bool was_woken;
    uint32_t n_revokes;
    uint32_t n_expects; /* calls of expect, */
    bool expects;       /* and what the last one said */
} World;

/* ---- links ---- */

/* The only step that sends is the leaver's. */
static void send_message(void *user, uint32_t node, void *message)
{
    World *const world = user;

    (void)node;
    g_free(message);
    sem_post(&world->is_sending);
    sem_wait(&world->may_go_on);
}

static void hear(World *world, const TensorVerdict *verdict)
{
    g_autoptr(GString) lines = g_string_new(NULL);

    tensor_verdict_write(lines, verdict);
    ck_assert(tensor_exchange_hear(world->exchange, lines->str));
}

/* While the leaver sends: the other node's values come, and what the leaver waits for fails. */
static void let_it_leave(World *world)
{
    g_autoptr(GError) why = g_error_new_literal(RUBATO_ERROR, RUBATO_ERROR_MISMATCH, "it differs");
    float *const values = g_new0(float, N_VALUES);
    TensorVerdict verdict = { .kind = TENSOR_VERDICT_FAIL,
                              .number = 2,
                              .code = control_code_of(why),
                              .name = "alone",
                              .error = why->message };

    ck_assert_ptr_null(
        tensor_exchange_receive(world->exchange, OTHER,
                                &(TensorMessage){ .kind = TENSOR_MESSAGE_PART,
                                                  .number = 1,
                                                  .bytes = values,
                                                  .n_bytes = sizeof world->alone.values },
                                values));
    hear(world, &verdict);
}

/* The sleeper sleeps: first while the leaver's step goes on, then until it has returned. */
static void wait_for_call(void *user, Call *call, int timeout_ms)
{
    World *const world = user;

    (void)timeout_ms;
    if (world->n_sleeps++ == 0) {
        let_it_leave(world);
        return;
    }
    sem_post(&world->may_go_on);
    pthread_join(world->leaver, NULL);
    world->was_woken = call_has_ended(call);
}

static void expect(void *user, bool expects)
{
    World *const world = user;

    world->n_expects++;
    world->expects = expects;
}

static const TensorLinks links = {
    .carrier = { .new_message = idle_new_message,
                 .send = send_message,
                 .forget = idle_forget,
                 .keep = idle_keep,
                 .drop = idle_drop },
    .tell = idle_tell,
    .is_full = idle_is_full,
    .wait_room = idle_wait_room,
    .wait = wait_for_call,
    .expect = expect,
};

/* ---- workers ---- */

static void ask(World *world, uint32_t rank, const char *name, Asked *asked)
{
    asked->entry = (TensorEntry){
        .name = name,
        .place = rank,
        .part = { .request = { .operation = TENSOR_ALLREDUCE,
                               .dtype = RUBATO_F32,
                               .n_dims = 1,
                               .shape = { N_VALUES },
                               .reduce = { .prescale = 1, .postscale = 1 } },
                  .input = asked->values,
                  .output = asked->values },
        .call = &asked->call,
    };
    for (uint32_t i = 0; i < N_VALUES; i++)
        asked->values[i] = (float)(rank + 1);
    call_begin(&asked->call, NULL);
    call_add_parts(&asked->call, 1);
    ck_assert(tensor_exchange_ask(world->exchange, rank, &asked->entry, 1, NULL));
    call_sent(&asked->call);
}

static void *leave(void *user)
{
    World *const world = user;

    tensor_exchange_wait(world->exchange, LEAVER, &world->alone.call);
    return NULL;
}

/* A worker that waits for one tensor does a step of another. By then its own has ended, so that it
 * returns. What its step made possible is left to those who sleep. */
START_TEST(worker_that_returns_wakes_others_for_the_work_that_it_leaves)
{
    const uint32_t node_ids[] = { 0, 1 }, workers_of[] = { 2, 1 };
    g_autofree World *world = g_new0(World, 1);
    TensorVerdict run = {
        .kind = TENSOR_VERDICT_RUN, .number = 1, .slot = TENSOR_NO_SLOT, .name = "both"
    };

    sem_init(&world->is_sending, 0, 0);
    sem_init(&world->may_go_on, 0, 0);
    world->exchange = tensor_exchange_new(&(TensorPlace){ .task = "work",
                                                          .n_nodes = 2,
                                                          .self = SELF,
                                                          .node_ids = node_ids,
                                                          .workers_of = workers_of,
                                                          .stall_ms = 60000 });
    tensor_exchange_link(world->exchange, &links, world);
    ask(world, LEAVER, "both", &world->both[LEAVER]);
    ask(world, SLEEPER, "both", &world->both[SLEEPER]);
    ask(world, LEAVER, "alone", &world->alone);
    hear(world, &run);
    ck_assert_int_eq(pthread_create(&world->leaver, NULL, leave, world), 0);
    sem_wait(&world->is_sending);
    tensor_exchange_wait(world->exchange, SLEEPER, &world->both[SLEEPER].call);
    ck_assert(world->was_woken);
    ck_assert_uint_eq(world->n_sleeps, 2);
    ck_assert(call_has_ended(&world->both[LEAVER].call));
    ck_assert_float_eq(world->both[LEAVER].values[N_VALUES - 1], 3);
    ck_assert(g_error_matches(world->alone.entry.failure, RUBATO_ERROR, RUBATO_ERROR_MISMATCH));
    g_clear_error(&world->alone.entry.failure);
    tensor_exchange_free(world->exchange);
    sem_destroy(&world->is_sending);
    sem_destroy(&world->may_go_on);
}
END_TEST

/* A backend that has to poll does it only meanwhile. */
START_TEST(messages_are_expected_while_any_operation_runs)
{
    const uint32_t node_ids[] = { 0, 1 }, workers_of[] = { 1, 1 };
    g_autofree World *world = g_new0(World, 1);
    TensorVerdict run = {
        .kind = TENSOR_VERDICT_RUN, .number = 1, .slot = TENSOR_NO_SLOT, .name = "both"
    };

    world->exchange = tensor_exchange_new(&(TensorPlace){ .task = "work",
                                                          .n_nodes = 2,
                                                          .self = SELF,
                                                          .node_ids = node_ids,
                                                          .workers_of = workers_of,
                                                          .stall_ms = 60000 });
    tensor_exchange_link(world->exchange, &links, world);
    ask(world, 0, "both", &world->both[0]);
    ask(world, 0, "alone", &world->alone);
    ck_assert_uint_eq(world->n_expects, 0);
    hear(world, &run);
    ck_assert(world->expects);
    run.number = 2;
    g_strlcpy(run.name, "alone", sizeof run.name);
    hear(world, &run);
    char *const text = g_strdup("no memory");
    ck_assert_ptr_null(
        tensor_exchange_receive(world->exchange, OTHER,
                                &(TensorMessage){ .kind = TENSOR_MESSAGE_FAILURE,
                                                  .code = CONTROL_CODE(RUBATO_ERROR_MEMORY),
                                                  .number = 1,
                                                  .bytes = text,
                                                  .n_bytes = strlen(text) },
                                text));
    ck_assert(call_has_ended(&world->both[0].call));
    ck_assert_uint_eq(world->n_expects, 1);
    tensor_exchange_cancel(world->exchange, "it is enough");
    ck_assert_uint_eq(world->n_expects, 2);
    ck_assert(!world->expects);
    ck_assert(call_has_ended(&world->alone.call));
    g_clear_error(&world->both[0].entry.failure);
    g_clear_error(&world->alone.entry.failure);
    tensor_exchange_free(world->exchange);
}
END_TEST

/* What is behind it cannot be understood either, so that nobody may wait for it. */
START_TEST(nonsense_of_the_coordinator_ends_what_is_pending_and_what_runs)
{
    const uint32_t node_ids[] = { 0, 1 }, workers_of[] = { 1, 1 };
    static const struct {
        const char *lines;
        bool fails_alone; /* only what it is about */
    } nonsense[] = {
        { "hello\n", false },     { "r 3 0 0 alone\n\n", false }, { "r 2 0 0 alone\n 7 7\n", true },
        { "o 2 0 0 1\n", false }, { "m 2 1\n", false },           { "d 2 1\n", false },
    };
    TensorVerdict run = {
        .kind = TENSOR_VERDICT_RUN, .number = 1, .slot = TENSOR_NO_SLOT, .name = "both"
    };

    for (size_t i = 0; i < G_N_ELEMENTS(nonsense); i++) {
        g_autofree World *world = g_new0(World, 1);

        world->exchange = tensor_exchange_new(&(TensorPlace){ .task = "work",
                                                              .n_nodes = 2,
                                                              .self = SELF,
                                                              .node_ids = node_ids,
                                                              .workers_of = workers_of,
                                                              .stall_ms = 60000 });
        tensor_exchange_link(world->exchange, &links, world);
        ask(world, 0, "both", &world->both[0]);
        ask(world, 0, "alone", &world->alone);
        hear(world, &run);
        ck_assert(tensor_exchange_hear(world->exchange, nonsense[i].lines) ==
                  nonsense[i].fails_alone);
        ck_assert(call_has_ended(&world->alone.call));
        ck_assert(g_error_matches(world->alone.entry.failure, RUBATO_ERROR, RUBATO_ERROR_FORMAT));
        ck_assert(call_has_ended(&world->both[0].call) != nonsense[i].fails_alone);
        tensor_exchange_cancel(world->exchange, "it is enough");
        g_clear_error(&world->both[0].entry.failure);
        g_clear_error(&world->alone.entry.failure);
        tensor_exchange_free(world->exchange);
    }
}
END_TEST

/* ---- arrays that are read behind the end ---- */

enum { N_LOOKS = 3, LONG_MS = 60000 };

static void wait_for_readers(void *user, Call *readers, int timeout_ms)
{
    World *const world = user;

    ck_assert_int_ge(timeout_ms, 0); /* it has to look whether the task was cancelled */
    if (++world->n_sleeps == N_LOOKS)
        call_end_part(readers, CALL_OK, 0);
}

/* It acknowledges nothing until the log has said so. */
static void wait_until_told(void *user, Call *readers, int timeout_ms)
{
    const int64_t end_ms = monotonic_ms() + timeout_ms;

    (void)user;
    while (monotonic_ms() < end_ms)
        sched_yield();
    if (log_capture_count("allreduce lent of task work waits for node 7 to acknowledge values that "
                          "are sent from its arrays, last heard 1.5 s ago (for 0.") > 0)
        call_end_part(readers, CALL_OK, 0);
}

static bool reads_lent(void *user, uint32_t node)
{
    (void)user;
    return node == OTHER;
}

static double be_silent(void *user, uint32_t node)
{
    (void)user;
    ck_assert_uint_eq(node, OTHER);
    return 1.5;
}

static void copy_lent(void *user)
{
    ((World *)user)->n_revokes++;
}

static const TensorEntry lent = { .name = "lent",
                                  .part = { .request = { .operation = TENSOR_ALLREDUCE } } };

static void begin_lending(World *world, const TensorLinks *lending, uint32_t stall_ms)
{
    static const uint32_t node_ids[] = { 0, 7, 3 }, workers_of[] = { 1, 1, 1 };

    world->exchange = tensor_exchange_new(&(TensorPlace){ .task = "work",
                                                          .n_nodes = 3,
                                                          .self = SELF,
                                                          .node_ids = node_ids,
                                                          .workers_of = workers_of,
                                                          .stall_ms = stall_ms });
    tensor_exchange_link(world->exchange, lending, world);
}

/* What was sent of them is copied only if the other node may never acknowledge it. */
START_TEST(worker_waits_until_nobody_reads_its_arrays)
{
    static const struct {
        bool fails, is_cancelled;
        uint32_t n_revokes;
    } ends[] = { { false, false, 0 }, { true, false, N_LOOKS }, { false, true, N_LOOKS } };
    static const TensorLinks lending = { .carrier = { .new_message = idle_new_message,
                                                      .send = send_message,
                                                      .forget = idle_forget,
                                                      .keep = idle_keep,
                                                      .drop = idle_drop },
                                         .revoke = copy_lent,
                                         .tell = idle_tell,
                                         .is_full = idle_is_full,
                                         .wait_room = idle_wait_room,
                                         .wait = wait_for_readers };
    g_autofree World *world = g_new0(World, 1);
    Call readers;

    begin_lending(world, &lending, LONG_MS);
    call_begin(&readers, NULL);
    tensor_exchange_wait_readers(world->exchange, &lent, &readers, ends[_i].fails);
    ck_assert_uint_eq(world->n_sleeps, 0);
    if (ends[_i].is_cancelled)
        tensor_exchange_cancel(world->exchange, "it is enough");
    call_begin(&readers, NULL);
    call_join_part(&readers);
    tensor_exchange_wait_readers(world->exchange, &lent, &readers, ends[_i].fails);
    ck_assert(call_has_ended(&readers));
    ck_assert_uint_eq(world->n_sleeps, N_LOOKS);
    ck_assert_uint_eq(world->n_revokes, ends[_i].n_revokes);
    tensor_exchange_free(world->exchange);
}
END_TEST

START_TEST(long_wait_for_readers_names_the_node_that_has_to_acknowledge)
{
    static const TensorLinks late = { .revoke = copy_lent,
                                      .reads_lent = reads_lent,
                                      .silence_s = be_silent,
                                      .tell = idle_tell,
                                      .wait = wait_until_told };
    g_autofree World *world = g_new0(World, 1);
    Call readers;

    log_capture_start();
    begin_lending(world, &late, /* stall_ms= */ 1);
    call_begin(&readers, NULL);
    call_join_part(&readers);
    tensor_exchange_wait_readers(world->exchange, &lent, &readers, /* failed= */ false);
    ck_assert_uint_eq(log_capture_count("node 3"), 0); /* nothing was sent to it */
    ck_assert_uint_eq(world->n_revokes, 0);
    tensor_exchange_cancel(world->exchange, "it is enough");
    tensor_exchange_free(world->exchange);
}
END_TEST

/* ---- answers to vectors of bits ---- */

enum { EMPTY_VECTOR_BYTES = sizeof(uint32_t) + sizeof(TensorCutovers), N_ANSWERS = 11 };

/* What the other node tells in the first round, and what this one's worker does before. */
typedef struct {
    bool is_empty, is_in_full, is_joined, is_of_other_set, is_of_former_set;
    enum { DOES_NOTHING, ASKS_IN_FULL, RUNS_BY_VERDICT, CHANGES_SETS, JOINS, LEAVES } before;
    bool is_put_off;
} Answer;

typedef struct {
    World world;
    Asked again;     /* the same as world.both[0] once more */
    uint32_t n_told; /* vectors */
    size_t n_bytes;  /* of the last one */
} Telling;

static void *new_told(void *user, uint32_t node, const TensorMessage *message, void **bytes)
{
    Telling *const telling = user;

    (void)node;
    if (message->kind == TENSOR_MESSAGE_BITS) {
        telling->n_told++;
        telling->n_bytes = message->n_bytes;
    }
    return *bytes = g_malloc(message->n_bytes);
}

static const TensorLinks telling_links = {
    .carrier = { .new_message = new_told,
                 .send = idle_forget,
                 .forget = idle_forget,
                 .keep = idle_keep,
                 .drop = idle_drop },
    .tell = idle_tell,
    .is_full = idle_is_full,
    .wait_room = idle_wait_room,
    .always_receives = idle_yes,
};

static void give_part(World *world, uint64_t number)
{
    float *const values = g_new0(float, N_VALUES);

    ck_assert_ptr_null(
        tensor_exchange_receive(world->exchange, OTHER,
                                &(TensorMessage){ .kind = TENSOR_MESSAGE_PART,
                                                  .number = number,
                                                  .bytes = values,
                                                  .n_bytes = N_VALUES * sizeof *values },
                                values));
}

static void give_vector(World *world, uint64_t round, const Answer *answer)
{
    TensorVector *const vector = tensor_vector_new(0, 0);
    g_autoptr(GByteArray) bytes = NULL;

    if (!answer->is_empty) {
        TensorBits *const bits = tensor_vector_add(vector, answer->is_of_other_set ? 1 : 0,
                                                   answer->is_of_former_set ? 7 : 0, 1);

        tensor_bit_set(bits->again, 0);
        if (answer->is_in_full)
            tensor_bit_set(bits->in_full, 0);
        bits->is_joined = answer->is_joined;
    }
    bytes = tensor_vector_write(vector);
    tensor_vector_free(vector);
    void *const copy = g_memdup2(bytes->data, bytes->len);
    ck_assert_ptr_null(tensor_exchange_receive(
        world->exchange, OTHER,
        &(TensorMessage){
            .kind = TENSOR_MESSAGE_BITS, .number = round, .bytes = copy, .n_bytes = bytes->len },
        copy));
}

/* "both" has run once, by the coordinator's verdict, and can be asked again by its slot. */
static void begin_telling(Telling *telling)
{
    static const uint32_t node_ids[] = { 0, 1 }, workers_of[] = { 1, 1 };
    World *const world = &telling->world;

    world->exchange = tensor_exchange_new(&(TensorPlace){ .task = "work",
                                                          .n_nodes = 2,
                                                          .self = SELF,
                                                          .node_ids = node_ids,
                                                          .workers_of = workers_of,
                                                          .stall_ms = 60000 });
    tensor_exchange_link(world->exchange, &telling_links, telling);
    ask(world, 0, "both", &world->both[0]);
    hear(world,
         &(TensorVerdict){ .kind = TENSOR_VERDICT_RUN, .number = 1, .slot = 0, .name = "both" });
    give_part(world, 1);
    tensor_exchange_wait(world->exchange, 0, &world->both[0].call);
    ck_assert_ptr_null(world->both[0].entry.failure);
}

static void end_telling(Telling *telling)
{
    tensor_exchange_cancel(telling->world.exchange, "it is enough");
    g_clear_error(&telling->world.alone.entry.failure);
    g_clear_error(&telling->again.entry.failure);
    tensor_exchange_free(telling->world.exchange);
}

/* Only where the other node waits for this one's worker alone. */
START_TEST(answer_to_a_vector_is_put_off_until_the_next_tick_at_most)
{
    static const Answer answers[N_ANSWERS] = {
        { .is_put_off = true },     { .is_empty = true },          { .is_in_full = true },
        { .is_joined = true },      { .is_of_other_set = true },   { .is_of_former_set = true },
        { .before = ASKS_IN_FULL }, { .before = RUNS_BY_VERDICT }, { .before = CHANGES_SETS },
        { .before = JOINS },        { .before = LEAVES },
    };
    const Answer *const answer = &answers[_i];
    g_autofree Telling *telling = g_new0(Telling, 1);
    World *const world = &telling->world;
    uint32_t ranks[] = { 0 };
    TensorSetChange change = { .ranks = ranks, .n_ranks = 1 };
    TensorJoin join = { 0 };

    begin_telling(telling);
    call_begin(&change.call, NULL);
    call_begin(&join.call, NULL);
    if (answer->before == ASKS_IN_FULL || answer->before == RUNS_BY_VERDICT)
        ask(world, 0, "alone", &world->alone);
    if (answer->before == RUNS_BY_VERDICT)
        hear(world, &(TensorVerdict){ .kind = TENSOR_VERDICT_RUN,
                                      .number = 2,
                                      .slot = TENSOR_NO_SLOT,
                                      .name = "alone" });
    if (answer->before == CHANGES_SETS)
        ck_assert(tensor_exchange_change_sets(world->exchange, 0, &change, NULL));
    if (answer->before == JOINS)
        ck_assert(tensor_exchange_join(world->exchange, 0, &join, NULL));
    if (answer->before == LEAVES)
        tensor_exchange_leave(world->exchange, 0);
    const uint32_t n_before = telling->n_told;
    tensor_exchange_tick(world->exchange); /* nobody waits for anything */
    ck_assert_uint_eq(telling->n_told, n_before);
    give_vector(world, 1, answer);
    ck_assert(telling->n_told == (answer->is_put_off ? 0 : 1));
    tensor_exchange_tick(world->exchange);
    ck_assert_uint_eq(telling->n_told, 1);
    ck_assert(!answer->is_put_off || telling->n_bytes == EMPTY_VECTOR_BYTES);
    give_vector(world, 2, answer); /* a tick hurries one answer alone */
    ck_assert(telling->n_told == (answer->is_put_off ? 1 : 2));
    end_telling(telling);
    g_clear_error(&join.failure);
    g_clear_error(&change.failure);
}
END_TEST

/* So both ask in one round, and their values are there at its end. */
START_TEST(worker_that_asks_again_answers_the_vector_that_waits_for_it)
{
    static const Answer again = { 0 }, nothing = { .is_empty = true };
    const uint64_t number = tensor_round_number((uint64_t)_i + 1, 0, 0);
    g_autofree Telling *telling = g_new0(Telling, 1);
    World *const world = &telling->world;

    begin_telling(telling);
    if (_i == 0) {
        give_part(world, number);
        give_vector(world, 1, &again);
        ck_assert_uint_eq(telling->n_told, 0);
        ask(world, 0, "both", &telling->again);
    } else { /* it has asked before, in vain */
        ask(world, 0, "both", &telling->again);
        give_vector(world, 1, &nothing);
        ck_assert_uint_eq(telling->n_told, 1);
        give_part(world, number);
        give_vector(world, 2, &again);
    }
    ck_assert_uint_eq(telling->n_told, (uint32_t)_i + 1);
    ck_assert_uint_gt(telling->n_bytes, EMPTY_VECTOR_BYTES);
    tensor_exchange_wait(world->exchange, 0, &telling->again.call);
    ck_assert_ptr_null(telling->again.entry.failure);
    end_telling(telling);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("tensor_exchange");
    TCase *const cases = tcase_create("cases");

    tcase_add_test(cases, worker_that_returns_wakes_others_for_the_work_that_it_leaves);
    tcase_add_test(cases, messages_are_expected_while_any_operation_runs);
    tcase_add_loop_test(cases, worker_waits_until_nobody_reads_its_arrays, 0, 3);
    tcase_add_test(cases, long_wait_for_readers_names_the_node_that_has_to_acknowledge);
    tcase_add_test(cases, nonsense_of_the_coordinator_ends_what_is_pending_and_what_runs);
    tcase_add_loop_test(cases, answer_to_a_vector_is_put_off_until_the_next_tick_at_most, 0,
                        N_ANSWERS);
    tcase_add_loop_test(cases, worker_that_asks_again_answers_the_vector_that_waits_for_it, 0, 2);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
