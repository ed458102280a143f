/* An exchange whose workers take the place of lost ones, alone: what the coordinator says of how
 * things stand is brought by the test, as are messages of other nodes. */
#include <check.h>
#include <rubato/error.h>

#include "engine/collectives/negotiation/tensor_text.h"
#include "engine/collectives/tensor_exchange.h"
#include "engine/control/control.h"
#include "tests/support/collectives/idle_links.h"
#include "tests/support/runner.h"

enum { N_NODES = 3, SELF = 2, OTHER = 0 };

static TensorExchange *exchange;
static uint32_t n_dropped;

static void drop(void *user, void *message)
{
    n_dropped++;
    idle_drop(user, message);
}

static const TensorLinks links = {
    .carrier = { .new_message = idle_new_message,
                 .forget = idle_forget,
                 .keep = idle_keep,
                 .drop = drop },
    .tell = idle_tell,
    .is_full = idle_is_full,
    .wait_room = idle_wait_room,
    .outlives_losses = idle_yes,
};

static void begin(void)
{
    static const uint32_t node_ids[N_NODES] = { 0, 4, 5 }, workers_of[N_NODES] = { 1, 1, 1 };

    n_dropped = 0;
    exchange = tensor_exchange_new(&(TensorPlace){ .task = "work",
                                                   .n_nodes = N_NODES,
                                                   .self = SELF,
                                                   .node_ids = node_ids,
                                                   .workers_of = workers_of,
                                                   .stall_ms = 60000,
                                                   .replaces = true,
                                                   .returns = true });
    tensor_exchange_link(exchange, &links, NULL);
}

static void end(void)
{
    tensor_exchange_cancel(exchange, "it is enough");
    tensor_exchange_unlink(exchange);
    tensor_exchange_free(exchange);
}

static bool hears(const TensorVerdict *verdict)
{
    g_autoptr(GString) lines = g_string_new(NULL);

    tensor_verdict_write(lines, verdict);
    return tensor_exchange_hear(exchange, lines->str);
}

static void give_piece(uint64_t number)
{
    uint8_t *const bytes = g_malloc0(8);

    ck_assert_ptr_null(tensor_exchange_receive(
        exchange, OTHER,
        &(TensorMessage){
            .kind = TENSOR_MESSAGE_PART, .number = number, .bytes = bytes, .n_bytes = 8 },
        bytes));
}

/* So many verdicts, and two losses. */
static bool hears_back(uint64_t number)
{
    return hears(&(TensorVerdict){ .kind = TENSOR_VERDICT_BACK,
                                   .number = number,
                                   .n = 2,
                                   .code = CONTROL_CODE(RUBATO_ERROR_NODE_LOST),
                                   .error = (char *)"node 5 was lost" });
}

/* The workers of node 4 had ended when it was lost, and nobody takes their place. */
START_TEST(a_set_may_be_without_workers_that_were_lost_for_good)
{
    g_autoptr(GError) told = NULL;
    TensorMember member;

    begin();
    ck_assert(hears(&(TensorVerdict){
        .kind = TENSOR_VERDICT_SET, .n = 2, .ranks = (char *)" 0 0, 2 2", .error = (char *)"" }));
    ck_assert(hears_back(7));
    ck_assert_uint_eq(tensor_exchange_set_size(exchange, 0), 2);
    ck_assert(!tensor_exchange_enter_set(exchange, 0, 2, &member, &told));
    ck_assert(g_error_matches(told, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST));
    ck_assert_str_eq(told->message, "node 5 was lost");
    ck_assert(tensor_exchange_enter_set(exchange, 0, 2, &member, NULL));
    ck_assert_uint_eq(member.place, 1);
    end();
}
END_TEST

/* It would be kept until the task ends. */
START_TEST(what_was_sent_to_the_lost_process_is_dropped)
{
    begin();
    give_piece(7);
    give_piece(8);
    ck_assert_uint_eq(n_dropped, 0);
    ck_assert(hears_back(7));
    ck_assert_uint_eq(n_dropped, 1);
    give_piece(6);
    ck_assert_uint_eq(n_dropped, 2);
    end();
    ck_assert_uint_eq(n_dropped, 3);
}
END_TEST

static const TensorVerdict nonsense[] = {
    { .kind = TENSOR_VERDICT_JOINED, .number = 1 }, /* it is away */
    { .kind = TENSOR_VERDICT_SET, .ranks = (char *)" 0 3", .error = (char *)"" },
    { .kind = TENSOR_VERDICT_SET, .set = UINT32_MAX, .error = (char *)"" },
    { .kind = TENSOR_VERDICT_BACK, .number = 7, .n = 2, .error = (char *)"" },
};

START_TEST(nonsense_about_how_things_stand_is_refused)
{
    begin();
    ck_assert(!hears(&nonsense[_i]));
    end();
}
END_TEST

START_TEST(it_is_told_once)
{
    begin();
    ck_assert(hears_back(7));
    ck_assert(!hears_back(7));
    end();
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("tensor_returns");
    TCase *const cases = tcase_create("cases");

    tcase_add_test(cases, a_set_may_be_without_workers_that_were_lost_for_good);
    tcase_add_test(cases, what_was_sent_to_the_lost_process_is_dropped);
    tcase_add_loop_test(cases, nonsense_about_how_things_stand_is_refused, 0,
                        G_N_ELEMENTS(nonsense));
    tcase_add_test(cases, it_is_told_once);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
