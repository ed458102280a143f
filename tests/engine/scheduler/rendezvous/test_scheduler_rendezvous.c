/* The scheduler: which nodes are welcomed or refused, and which nodes are told. */
#include "tests/support/runner.h"
#include "tests/support/scheduler/scheduler_fixture.h"

START_TEST(scheduler_welcomes_once_every_node_is_here)
{
    hello(0);
    hello(2);
    hello(0);
    expect_quiet();
    ck_assert(!scheduler_has_begun(scheduler));
    g_autofree char *missing = scheduler_missing(scheduler);
    ck_assert_str_eq(missing, "node 4 (127.0.0.1:4102)");

    hello(1);
    ck_assert(scheduler_has_begun(scheduler));
    ck_assert_ptr_null(scheduler_missing(scheduler));
    uint64_t run_id = 0;
    for (uint32_t i = 0; i < N_NODES; i++) {
        const Control *welcome = expect_greeting(ENDPOINTS[i], CONTROL_WELCOME);
        ck_assert_uint_eq(welcome->welcome.n_nodes, N_NODES);
        for (uint32_t n = 0; n < N_NODES; n++) {
            ck_assert_str_eq(welcome->welcome.endpoints[n], ENDPOINTS[n]);
            ck_assert_uint_eq(welcome->welcome.incarnations[n], 100 + n);
        }
        ck_assert(i == 0 || welcome->welcome.run_id == run_id);
        run_id = welcome->welcome.run_id;
    }
    ck_assert_uint_ne(run_id, 0);
    expect_quiet();
}
END_TEST

START_TEST(scheduler_welcomes_again_who_repeats_its_hello)
{
    begin();
    hello(1);
    ck_assert_uint_eq(expect_greeting(ENDPOINTS[1], CONTROL_WELCOME)->welcome.n_nodes, N_NODES);
    expect_quiet();
}
END_TEST

START_TEST(scheduler_gives_each_run_another_id)
{
    begin();
    hello(0);
    const uint64_t one = expect_greeting(ENDPOINTS[0], CONTROL_WELCOME)->welcome.run_id;

    replace_scheduler(&CONFIG, NULL);
    Control other = hello_of(1);
    other.hello.incarnation = 5;
    hello(0);
    greet(&other);
    hello(2);
    ck_assert_uint_ne(expect_greeting(ENDPOINTS[0], CONTROL_WELCOME)->welcome.run_id, one);
}
END_TEST

START_TEST(scheduler_names_every_missing_node)
{
    g_autofree char *missing = scheduler_missing(scheduler);
    ck_assert_str_eq(missing, "node 0 (127.0.0.1:4101), node 4 (127.0.0.1:4102) and node 7 "
                              "(127.0.0.1:4103)");
}
END_TEST

START_TEST(scheduler_refuses_another_cluster_file_and_goes_on)
{
    const char *const text = "node 4 (bob pid 11) runs with another cluster file than the "
                             "scheduler: digest fedcba987654 there, 0123456789ab here; start "
                             "every node with the same file";
    Control other = hello_of(1);
    other.hello.digest = "fedcba9876543210";

    hello(0);
    greet(&other);
    expect_refusal("tcp://b", MISMATCH_CODE, text);
    expect_quiet();
    ck_assert(!scheduler_has_ended(scheduler));

    /* The node itself may still come. */
    hello(2);
    hello(1);
    for (uint32_t i = 0; i < N_NODES; i++)
        expect_greeting(ENDPOINTS[i], CONTROL_WELCOME);
    expect_quiet();
}
END_TEST

START_TEST(scheduler_refuses_who_has_registered_something_else)
{
    Control other = hello_of(1);
    other.hello.registered = "model quorum 0123456789ab";

    hello(0);
    greet(&other);
    expect_refusal("tcp://b", MISMATCH_CODE,
                   "node 4 (bob pid 11) has registered the model quorum, the scheduler has not: "
                   "register the same models, storages and update rules on every node, or load the "
                   "same plug-ins");
    expect_quiet();
    ck_assert(!scheduler_has_ended(scheduler));
}
END_TEST

/* If it does not, all hear why one was refused, and not only that it did not come. */
START_TEST(scheduler_says_in_the_end_whom_it_refused)
{
    const char *const text =
        "node 4 (127.0.0.1:4102) and node 7 (127.0.0.1:4103) did not come within "
        "30 s: refused was one, for node 4 (bob pid 11) runs with another cluster "
        "file than the scheduler: digest fedcba987654 there, 0123456789ab here; "
        "start every node with the same file";
    Control other = hello_of(1);
    other.hello.digest = "fedcba9876543210";

    tick();
    hello(0);
    greet(&other);
    expect_greeting("tcp://b", CONTROL_REFUSE);
    for (int64_t end = now_ms + CONFIG.rendezvous_ms; now_ms < end; now_ms += 1000) {
        hello(0);
        tick();
    }
    expect_quiet();
    tick();
    expect_refusal("tcp://a", MISMATCH_CODE, text);
    ck_assert(scheduler_has_ended(scheduler));

    /* Also who comes, or asks, later. */
    hello(2);
    expect_refusal("tcp://c", MISMATCH_CODE, text);
    hello(0);
    expect_refusal("tcp://a", MISMATCH_CODE, text);
    now_ms += 60000;
    tick();
    expect_quiet();
}
END_TEST

START_TEST(scheduler_refuses_another_wire_version_and_goes_on)
{
    const char *const text = "node 7 (cid pid 12) speaks wire version 13, the scheduler speaks "
                             "wire version 12: start every node with the same build of Rubato";
    const Control newer = hello_of(2);

    hello(0);
    hello(1);
    ck_assert(scheduler_greet(scheduler, now_ms, &newer, 13, asker_of(newer.hello.endpoints)));
    expect_refusal("tcp://c", MISMATCH_CODE, text);
    expect_quiet();
    ck_assert(!scheduler_has_ended(scheduler));
}
END_TEST

START_TEST(scheduler_refuses_an_unknown_node_alone)
{
    Control unknown = hello_of(1);
    unknown.hello.node_id = 5;
    unknown.hello.endpoints = "tcp://stranger";

    hello(0);
    greet(&unknown);
    expect_refusal("tcp://stranger", INVALID_CODE,
                   "there is no node 5 in the cluster file; its nodes are 0, 4, 7");

    /* With another file too: it belongs to another run. */
    unknown.hello.digest = "other";
    greet(&unknown);
    ck_assert_uint_eq(expect_greeting("tcp://stranger", CONTROL_REFUSE)->refuse.code,
                      MISMATCH_CODE);
    ck_assert(!scheduler_has_ended(scheduler));
    hello(1);
    hello(2);
    for (uint32_t i = 0; i < N_NODES; i++)
        expect_greeting(ENDPOINTS[i], CONTROL_WELCOME);
    expect_quiet();
}
END_TEST

START_TEST(scheduler_refuses_a_node_that_counts_itself_wrongly)
{
    Control wrong = hello_of(1);
    wrong.hello.number = 2;
    greet(&wrong);
    expect_refusal("tcp://b", INVALID_CODE,
                   "node 4 (bob pid 11) takes itself for number 2 of the nodes, but is number 1");
    ck_assert(!scheduler_has_ended(scheduler));
}
END_TEST

START_TEST(scheduler_refuses_the_second_of_two_processes_of_a_node)
{
    const char *const text = "node 4 was started twice: bob pid 11 is in the run, eve pid 66 "
                             "came later and is refused; if the first one has ended, the run "
                             "does not know it yet";
    Control second = hello_of(1);
    second.hello.incarnation = 999;
    second.hello.endpoints = "tcp://eve";
    second.hello.description = "eve pid 66";

    hello(1);
    greet(&second);
    expect_refusal("tcp://eve", INVALID_CODE, text);

    /* Nor does it matter to the run that the second one has another file. */
    second.hello.digest = "other";
    greet(&second);
    ck_assert_uint_eq(expect_greeting("tcp://eve", CONTROL_REFUSE)->refuse.code, MISMATCH_CODE);
    expect_quiet();

    /* The first is in, and stays in. */
    begin();
    second.hello.digest = CONFIG.digest;
    greet(&second);
    expect_refusal("tcp://eve", INVALID_CODE, text);
    agree(1, CONTROL_CALL_CREATE, "table a");
}
END_TEST

START_TEST(scheduler_takes_a_node_anew_that_died_before_the_run)
{
    Control second = hello_of(1);
    second.hello.incarnation = 999;

    tick();
    hello(1);
    now_ms += CONFIG.timeout_ms - 1;
    tick();
    greet(&second);
    expect_greeting("tcp://b", CONTROL_REFUSE);
    now_ms++;
    tick();
    greet(&second);
    hello(0);
    hello(2);
    ck_assert_uint_eq(expect_greeting("tcp://a", CONTROL_WELCOME)->welcome.incarnations[1], 999);

    /* The scheduler does not wait for a node that is known to be dead. */
    replace_scheduler(&CONFIG, NULL);
    hello(1);
    scheduler_node_gone(scheduler, now_ms, 1, "its process has ended");
    greet(&second);
    hello(0);
    hello(2);
    ck_assert(scheduler_has_begun(scheduler));
}
END_TEST

START_TEST(scheduler_gives_up_when_a_node_never_comes)
{
    const char *const text =
        "node 7 (127.0.0.1:4103) did not come within 30 s: start every node of the cluster file, "
        "and look at what the missing ones say";
    tick();
    for (int64_t end = now_ms + CONFIG.rendezvous_ms - 1000; now_ms < end; now_ms += 1000) {
        hello(0);
        hello(1);
        tick();
    }
    expect_quiet();
    now_ms += 1000;
    hello(1);
    tick();
    expect_refusal("tcp://a", LOST_CODE, text);
    expect_refusal("tcp://b", LOST_CODE, text);
    ck_assert(scheduler_has_ended(scheduler));
    hello(2);
    expect_refusal("tcp://c", LOST_CODE, text);
    expect_quiet();
}
END_TEST

START_TEST(scheduler_ignores_what_is_no_hello)
{
    ck_assert(!scheduler_greet(scheduler, now_ms, &(Control){ .kind = CONTROL_WELCOME }, 5, 1));
    /* No node belongs to the run before it has begun. */
    ck_assert(!hears(0, (Control){ .kind = CONTROL_BEAT }));
    expect_quiet();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scheduler rendezvous");

    TCase *rendezvous = tcase_create("rendezvous");
    tcase_add_checked_fixture(rendezvous, set_up, tear_down);
    tcase_add_test(rendezvous, scheduler_welcomes_once_every_node_is_here);
    tcase_add_test(rendezvous, scheduler_welcomes_again_who_repeats_its_hello);
    tcase_add_test(rendezvous, scheduler_gives_each_run_another_id);
    tcase_add_test(rendezvous, scheduler_names_every_missing_node);
    tcase_add_test(rendezvous, scheduler_refuses_another_cluster_file_and_goes_on);
    tcase_add_test(rendezvous, scheduler_refuses_who_has_registered_something_else);
    tcase_add_test(rendezvous, scheduler_says_in_the_end_whom_it_refused);
    tcase_add_test(rendezvous, scheduler_refuses_another_wire_version_and_goes_on);
    tcase_add_test(rendezvous, scheduler_refuses_an_unknown_node_alone);
    tcase_add_test(rendezvous, scheduler_refuses_a_node_that_counts_itself_wrongly);
    tcase_add_test(rendezvous, scheduler_refuses_the_second_of_two_processes_of_a_node);
    tcase_add_test(rendezvous, scheduler_takes_a_node_anew_that_died_before_the_run);
    tcase_add_test(rendezvous, scheduler_gives_up_when_a_node_never_comes);
    tcase_add_test(rendezvous, scheduler_ignores_what_is_no_hello);
    suite_add_tcase(suite, rendezvous);

    return run_suite(suite);
}
