/* The scheduler: a run begins without its spare node, and a process joins as it later.
 *
 * docs/replication.md: A node that was not there. */
#include "engine/scheduler/scheduler_base.h"
#include "engine/scheduler/scheduler_state.h"
#include "tests/support/runner.h"
#include "tests/support/scheduler/join_fixture.h"

#define WITHOUT "node 4 (127.0.0.1:4102) is spare, and no process has joined the run as it yet"

/* GONE is spare. */
static void set_up_spare(void)
{
    static const bool is_spare[N_NODES] = { false, true, false };
    SchedulerConfig config = CONFIG;

    set_up();
    config.admits = true;
    config.is_spare = is_spare;
    replace_scheduler(&config, NULL);
}

static void begin_without(void)
{
    hello(0);
    hello(2);
    for (uint32_t i = 0; i < N_NODES; i += 2) {
        const ControlWelcome *const welcome =
            &expect_greeting(ENDPOINTS[i], CONTROL_WELCOME)->welcome;

        ck_assert_uint_eq(welcome->n_nodes, N_NODES);
        ck_assert_str_eq(welcome->endpoints[0], ENDPOINTS[0]);
        ck_assert_str_eq(welcome->endpoints[GONE], "");
        ck_assert_uint_eq(welcome->incarnations[GONE], 0);
    }
    expect_quiet();
}

static void expect_joins(uint32_t map, uint64_t incarnation, uint64_t counted_from)
{
    for (uint32_t i = 0; i < N_NODES; i += 2) {
        const ControlRecover *const recover = &expect(i, CONTROL_RECOVER)->recover;

        ck_assert_uint_eq(recover->map, map);
        ck_assert_uint_eq(recover->step, CONTROL_RECOVER_ADMIT);
        ck_assert_uint_eq(recover->cause, CONTROL_CAUSE_JOIN);
        ck_assert_str_eq(recover->text, WHO " joins the run as node 4 (127.0.0.1:4102)");
        ck_assert_uint_eq(recover->incarnation, incarnation);
        ck_assert_uint_eq(recover->counted_from, counted_from);
    }
    expect_quiet();
}

START_TEST(run_begins_without_its_spare_node)
{
    begin_without();
    for (uint32_t i = 0; i < N_NODES; i += 2)
        propose(i, 1, CONTROL_CALL_BARRIER, "barrier");
    for (uint32_t i = 0; i < N_NODES; i += 2)
        expect_verdict(i, CONTROL_COMMIT, CONTROL_OK, "");
    expect_quiet();
}
END_TEST

/* It waits for the others alone. */
START_TEST(spare_node_is_not_missing)
{
    g_autofree char *missing = NULL;

    hello(0);
    missing = scheduler_missing(scheduler);
    ck_assert_str_eq(missing, "node 7 (127.0.0.1:4103)");
}
END_TEST

START_TEST(process_that_does_not_say_that_it_joins_is_refused)
{
    hello(GONE);
    expect_refusal(ENDPOINTS[GONE], INVALID_CODE,
                   "node 4 (127.0.0.1:4102) is spare: a process joins the run as it (rubato run "
                   "--join, RUBATO_JOIN=1)");
    begin_without();
    hello(GONE);
    expect_refusal(ENDPOINTS[GONE], INVALID_CODE,
                   "node 4 (127.0.0.1:4102) is spare: a process joins the run as it (rubato run "
                   "--join, RUBATO_JOIN=1)");
    expect_quiet();
}
END_TEST

/* It asks again until the run has begun. */
START_TEST(process_may_come_before_the_run_begins)
{
    join(STEP);
    expect_quiet();
    begin_without();
    join(STEP);
    expect_joins(2, STEP, COUNTED);
}
END_TEST

/* With and without tables that have replicas. */
START_TEST(process_joins_and_serves_as_one_in_the_place_of_a_lost_node)
{
    begin_without();
    scheduler->goes_on = _i == 1;
    join(STEP);
    expect_joins(2, STEP, COUNTED);
    do_step(OTHERS, 2, CONTROL_RECOVER_ADMIT, "the tables\n");
    expect_admitted(STEP, COUNTED, ENDPOINTS[2]);
    expect_step_alone(1u << GONE, 2, CONTROL_RECOVER_TABLES, "the tables\n");
    do_step(1u << GONE, 2, CONTROL_RECOVER_TABLES, "");
    go_through(ALL, 2);
    expect_waiting(NULL);
    ck_assert(!scheduler_is_absent(scheduler, GONE));
    join(STEP + 1); /* another one */
    expect_refusal(NEW, INVALID_CODE,
                   "node 4 (127.0.0.1:4102) is in the run (" WHO ") and not lost, so " WHO
                   " cannot take its place");
}
END_TEST

/* Of two that come at once one is refused, and nothing else changes. */
START_TEST(second_of_two_processes_is_refused)
{
    begin_without();
    join(STEP);
    expect_joins(2, STEP, COUNTED);
    join(STEP + 1);
    expect_greeting(NEW, CONTROL_WAITING); /* it asks again */
    expect_quiet();
    do_step(OTHERS, 2, CONTROL_RECOVER_ADMIT, "");
    expect_admitted(STEP, COUNTED, ENDPOINTS[2]);
    expect_step_alone(1u << GONE, 2, CONTROL_RECOVER_TABLES, "");
    join(STEP + 1);
    expect_refusal(NEW, INVALID_CODE,
                   "node 4 (127.0.0.1:4102) is in the run (" WHO ") and not lost, so " WHO
                   " cannot take its place");
    expect_quiet();
}
END_TEST

/* Nodes cannot reach it: they leave it out as before, and another one may come. */
START_TEST(node_is_spare_again_if_its_process_is_refused)
{
    begin_without();
    join(STEP);
    expect_joins(2, STEP, COUNTED);
    say(2, (Control){ .kind = CONTROL_RECOVERED,
                      .recover = { .map = 2,
                                   .step = CONTROL_RECOVER_ADMIT,
                                   .text = "no way there",
                                   .lines = "" } });
    expect_refusal(NEW, INVALID_CODE, "no way there");
    (void)expect_step(OTHERS, 3, CONTROL_RECOVER_CLOSE, "");
    go_on_from_close(OTHERS, 3);
    ck_assert(scheduler_is_absent(scheduler, GONE));
    join(STEP + 1);
    expect_joins(4, STEP + 1, 2 * COUNTED);
}
END_TEST

/* ---- its share of the parts ---- */

/* Part 0 on nodes 0 and 2; both of its roles may go to the node. */
#define BEFORE "0 0 2 0 2\n"
#define COPIED "0 0 3 0 2 1\n"

static void close_with(uint32_t map, const char *of_0, const char *of_gone, const char *of_2)
{
    (void)expect_step(ALL, map, CONTROL_RECOVER_CLOSE, "");
    say(0, step_done(map, CONTROL_RECOVER_CLOSE, of_0));
    say(GONE, step_done(map, CONTROL_RECOVER_CLOSE, of_gone));
    say(2, step_done(map, CONTROL_RECOVER_CLOSE, of_2));
}

static void expect_and_do(uint32_t map, ControlRecoverStep step, ControlCause cause,
                          const char *lines, const char *says)
{
    ck_assert_uint_eq(expect_step(ALL, map, step, lines), cause);
    do_step(ALL, map, step, says);
}

/* Up to where copies are made, by the plan. */
static void join_with_plan(const char *plan)
{
    begin_without();
    scheduler->goes_on = true;
    join(STEP);
    expect_joins(2, STEP, COUNTED);
    do_step(OTHERS, 2, CONTROL_RECOVER_ADMIT, "");
    expect_admitted(STEP, COUNTED, ENDPOINTS[2]);
    expect_step_alone(1u << GONE, 2, CONTROL_RECOVER_TABLES, "");
    do_step(1u << GONE, 2, CONTROL_RECOVER_TABLES, "");
    close_with(2, "k0 0 0 0\np0 0 0 0\n", "", "r0 0 2 5\n");
    expect_and_do(2, CONTROL_RECOVER_PROMOTE, CONTROL_CAUSE_JOIN, BEFORE, "");
    expect_and_do(2, CONTROL_RECOVER_OPEN, CONTROL_CAUSE_JOIN, BEFORE, plan);
    expect_and_do(2, CONTROL_RECOVER_EXPECT, CONTROL_CAUSE_JOIN, COPIED, "");
    expect_and_do(2, CONTROL_RECOVER_COPY, CONTROL_CAUSE_JOIN, COPIED, "");
    expect_quiet(); /* calls and tasks go on until the copies are there */
}

static void tell_made(void)
{
    say(0, (Control){ .kind = CONTROL_MADE, .made = { .server = 0, .n = 1 } });
    for (uint32_t i = 0; i < N_NODES; i++)
        expect(i, CONTROL_MADE);
}

static const struct {
    const char *plan, *after;
} shares[] = {
    { COPIED "m0 0 0 1 2\n", "0 0 2 1 2\n" }, /* the primary */
    { COPIED "m0 0 2 1 2\n", "0 0 2 0 1\n" }, /* the replica */
};

START_TEST(copy_on_the_node_takes_the_place_of_another_one)
{
    const char *const after = shares[_i].after;

    join_with_plan(shares[_i].plan);
    tell_made();
    close_with(3, "k0 0 0 0\np0 0 0 0\n", "r0 0 1 5\n", "r0 0 2 5\n");
    expect_and_do(3, CONTROL_RECOVER_SETTLE, CONTROL_CAUSE_BALANCE, after, "");
    expect_and_do(3, CONTROL_RECOVER_PROMOTE, CONTROL_CAUSE_BALANCE, after, "");
    expect_and_do(3, CONTROL_RECOVER_OPEN, CONTROL_CAUSE_BALANCE, after, "");
    expect_quiet();
    expect_waiting(NULL);
}
END_TEST

/* The copy counts as the replica that was lost, so no part may leave its server. */
START_TEST(copy_stays_beside_the_others_if_one_of_them_is_lost)
{
    join_with_plan(shares[0].plan);
    tell_made();
    (void)expect_step(ALL, 3, CONTROL_RECOVER_CLOSE, "");
    lose(2);
    (void)expect_step(3, 4, CONTROL_RECOVER_CLOSE, "");
    say(0, step_done(4, CONTROL_RECOVER_CLOSE, "k0 0 0 0\np0 0 0 0\n"));
    say(GONE, step_done(4, CONTROL_RECOVER_CLOSE, "r0 0 1 5\n"));
    for (ControlRecoverStep step = CONTROL_RECOVER_PROMOTE; step <= CONTROL_RECOVER_OPEN; step++) {
        (void)expect_step(3, 4, step, "0 0 2 0 1\n");
        do_step(3, 4, step, "");
    }
    (void)expect_step(3, 5, CONTROL_RECOVER_CLOSE, "");
    say(0, step_done(5, CONTROL_RECOVER_CLOSE, "k0 0 0 0\np0 0 0 0\n"));
    say(GONE, step_done(5, CONTROL_RECOVER_CLOSE, "r0 0 1 5\n"));
    for (ControlRecoverStep step = CONTROL_RECOVER_SETTLE; step <= CONTROL_RECOVER_OPEN; step++) {
        (void)expect_step(3, 5, step, "0 0 2 0 1\n");
        do_step(3, 5, step, "");
    }
    expect_quiet();
}
END_TEST

/* Two parts on node 0, without replicas; nodes 1 and 2 are spare, and get one of them each. */
#define PARTS "k0 0 0 0\nk0 1 0 0\n"
#define BOTH_ON_0 PARTS "p0 0 0 0\np0 1 0 0\n"

static void set_up_two_spares(void)
{
    static const bool is_spare[N_NODES] = { false, true, true };
    SchedulerConfig config = CONFIG;

    set_up();
    config.admits = true;
    config.is_spare = is_spare;
    replace_scheduler(&config, NULL);
    hello(0);
    expect_greeting(ENDPOINTS[0], CONTROL_WELCOME);
    scheduler->goes_on = true;
}

/* The nodes of the mask do steps; node 0 says what it has in CLOSE, and the plan in OPEN. */
static void close_and_open(unsigned nodes, uint32_t map, ControlCause cause, const char *of_0,
                           const char *of_2, const char *sets, const char *plan)
{
    ck_assert_uint_eq(expect_step(nodes, map, CONTROL_RECOVER_CLOSE, ""), cause);
    for (uint32_t i = 0; i < N_NODES; i++)
        if ((nodes >> i & 1) != 0)
            say(i, step_done(map, CONTROL_RECOVER_CLOSE, i == 0 ? of_0 : i == 2 ? of_2 : ""));
    for (ControlRecoverStep step = cause == CONTROL_CAUSE_BALANCE ? CONTROL_RECOVER_SETTLE
                                                                  : CONTROL_RECOVER_PROMOTE;
         step <= CONTROL_RECOVER_OPEN; step++) {
        ck_assert_uint_eq(expect_step(nodes, map, step, sets), cause);
        do_step(nodes, map, step, step == CONTROL_RECOVER_OPEN ? plan : "");
    }
}

static void copy(unsigned nodes, uint32_t map, const char *sets)
{
    (void)expect_step(nodes, map, CONTROL_RECOVER_EXPECT, sets);
    do_step(nodes, map, CONTROL_RECOVER_EXPECT, "");
    (void)expect_step(nodes, map, CONTROL_RECOVER_COPY, sets);
    do_step(nodes, map, CONTROL_RECOVER_COPY, "");
}

/* Up to CLOSE. */
static void join_as(uint32_t number, unsigned before, uint32_t map)
{
    const Control control = join_of(number, STEP + number);

    greet(&control);
    (void)expect_step(before, map, CONTROL_RECOVER_ADMIT, "");
    do_step(before, map, CONTROL_RECOVER_ADMIT, "");
    expect_greeting(NEW, CONTROL_ADMITTED);
    (void)expect_step(1u << number, map, CONTROL_RECOVER_TABLES, "");
    do_step(1u << number, map, CONTROL_RECOVER_TABLES, "");
}

/* The copy on node 1 is not whole when node 2 joins, and is dropped. */
START_TEST(node_gets_its_share_although_another_one_joins_before)
{
    static const char *const of_2 = "p0 1 2 9\n";

    join_as(1, 1u, 2);
    close_and_open(3, 2, CONTROL_CAUSE_JOIN, BOTH_ON_0, "", "0 0 1 0\n0 1 1 0\n",
                   "0 0 2 0 1\n0 1 1 0\nm0 0 0 1 1\n");
    copy(3, 2, "0 0 2 0 1\n0 1 1 0\n");
    expect_quiet();
    join_as(2, 3u, 3);
    close_and_open(ALL, 3, CONTROL_CAUSE_JOIN, BOTH_ON_0, "", "0 0 1 0\n0 1 1 0\n",
                   "0 0 1 0\n0 1 2 0 2\nm0 1 0 2 1\n");
    copy(ALL, 3, "0 0 1 0\n0 1 2 0 2\n");
    expect_quiet();
    tell_made();
    close_and_open(ALL, 4, CONTROL_CAUSE_BALANCE, BOTH_ON_0, "r0 1 2 9\n", "0 0 1 0\n0 1 1 2\n",
                   "");
    close_and_open(ALL, 5, CONTROL_CAUSE_BALANCE, PARTS "p0 0 0 0\n", of_2, "0 0 1 0\n0 1 1 2\n",
                   "0 0 2 0 1\n0 1 1 2\nm0 0 0 1 1\n");
    copy(ALL, 5, "0 0 2 0 1\n0 1 1 2\n");
    expect_quiet();
    tell_made();
    ck_assert_uint_eq(expect_step(ALL, 6, CONTROL_RECOVER_CLOSE, ""), CONTROL_CAUSE_BALANCE);
    say(0, step_done(6, CONTROL_RECOVER_CLOSE, PARTS "p0 0 0 0\n"));
    say(1, step_done(6, CONTROL_RECOVER_CLOSE, "r0 0 1 9\n"));
    say(2, step_done(6, CONTROL_RECOVER_CLOSE, of_2));
    (void)expect_step(ALL, 6, CONTROL_RECOVER_SETTLE, "0 0 1 1\n0 1 1 2\n");
}
END_TEST

/* No plan has been made for it when node 2 is lost. */
START_TEST(node_gets_its_share_although_another_one_is_lost_before)
{
    join_as(2, 1u, 2);
    close_and_open(5, 2, CONTROL_CAUSE_JOIN, BOTH_ON_0, "", "0 0 1 0\n0 1 1 0\n", "");
    join_as(1, 5u, 3);
    (void)expect_step(ALL, 3, CONTROL_RECOVER_CLOSE, "");
    lose(2);
    close_and_open(3, 4, CONTROL_CAUSE_LOSS, BOTH_ON_0, "", "0 0 1 0\n0 1 1 0\n", "");
    close_and_open(3, 5, CONTROL_CAUSE_BALANCE, BOTH_ON_0, "", "0 0 1 0\n0 1 1 0\n",
                   "0 0 2 0 1\n0 1 1 0\nm0 0 0 1 1\n");
    copy(3, 5, "0 0 2 0 1\n0 1 1 0\n");
    expect_quiet();
}
END_TEST

/* Its plan must make sense. */
START_TEST(plan_with_wrong_lines_is_dropped)
{
    static const char *const wrong[] = { "m0 0 0 1 2\n", COPIED "m0 0 0 1\n", COPIED "m0 0 0 1 9\n",
                                         COPIED "m0 0 0 1 2\nx" };

    begin_without();
    scheduler->goes_on = true;
    lose(2);
    (void)expect_step(1, 2, CONTROL_RECOVER_CLOSE, "");
    say(0, step_done(2, CONTROL_RECOVER_CLOSE, "k0 0 0 0\np0 0 0 0\n"));
    (void)expect_step(1, 2, CONTROL_RECOVER_PROMOTE, "0 0 1 0\n");
    do_step(1, 2, CONTROL_RECOVER_PROMOTE, "");
    (void)expect_step(1, 2, CONTROL_RECOVER_OPEN, "0 0 1 0\n");
    for (size_t i = 0; i < G_N_ELEMENTS(wrong); i++)
        ck_assert(!hears(0, step_done(2, CONTROL_RECOVER_OPEN, wrong[i])));
}
END_TEST

START_TEST(spare_node_cannot_be_drained)
{
    begin_without();
    say(0, (Control){ .kind = CONTROL_DRAIN, .drain = { .number = 1, .node_id = IDS[GONE] } });
    const ControlDrain *const answer = &expect(0, CONTROL_DRAINED)->drain;
    ck_assert_uint_eq(answer->outcome.code, LOST_CODE);
    ck_assert_str_eq(answer->outcome.text, "node 4 cannot be drained: " WITHOUT);
}
END_TEST

/* ---- nodes that announce themselves ---- */

static Roster *roster;

/* Node 1 is a server, node 2 is spare. */
static void set_up_announced(void)
{
    static const bool is_spare[N_NODES] = { false, false, true };
    SchedulerConfig config = CONFIG;

    set_up();
    roster = roster_new(&(RosterConfig){ .n_servers = 1,
                                         .n_spares = 1,
                                         .spare_servers = 1,
                                         .host = "10.0.0.1",
                                         .port = 4100,
                                         .wire_version = CONFIG.wire_version,
                                         .timeout_ms = 1000 });
    config.admits = true;
    config.node_ids = NULL;
    config.node_names = NULL;
    config.is_spare = is_spare;
    config.roster = roster;
    replace_scheduler(&config, NULL);
}

static void tear_down_announced(void)
{
    tear_down();
    roster_free(roster);
}

/* From the address NEW. */
static void announce(uint64_t incarnation)
{
    const Control control = { .kind = CONTROL_ANNOUNCE,
                              .announce = { .incarnation = incarnation,
                                            .role = CONTROL_ROLE_SERVER,
                                            .servers = 1,
                                            .host = "10.0.0.9",
                                            .description = WHO } };

    ck_assert(scheduler_greet(scheduler, now_ms, &control, CONFIG.wire_version, asker_of(NEW)));
}

static const ControlPlace *expect_place(uint32_t id)
{
    const ControlPlace *const place = &expect_greeting(NEW, CONTROL_PLACE)->place;

    ck_assert_uint_eq(place->node_id, id);
    return place;
}

static Control greeting_of(uint32_t number, ControlKind kind, uint64_t incarnation)
{
    Control control = join_of(number, incarnation);

    control.kind = kind;
    control.hello.node_id = number;
    return control;
}

static void greet_as(uint32_t number, ControlKind kind, uint64_t incarnation)
{
    const Control control = greeting_of(number, kind, incarnation);

    ck_assert(scheduler_greet(scheduler, now_ms, &control, CONFIG.wire_version, asker_of(NEW)));
}

static void gather(void)
{
    announce(101);
    expect_place(0);
    roster_open(roster);
    announce(101);
    ck_assert(!expect_place(1)->joins);
    greet_as(0, CONTROL_HELLO, 100);
}

static void begin_gathered(void)
{
    greet_as(1, CONTROL_HELLO, 101);
    expect_greeting(NEW, CONTROL_WELCOME);
    expect_greeting(NEW, CONTROL_WELCOME);
    expect_quiet();
}

/* Until the run begins, it asks again; another one waits for what becomes of it. */
START_TEST(process_that_announces_itself_joins_as_a_spare_node)
{
    gather();
    announce(STEP);
    ck_assert(expect_place(2)->joins);
    greet_as(2, CONTROL_JOIN, STEP + 1);
    expect_quiet();
    announce(STEP + 2);
    expect_place(0);
    begin_gathered();
    greet_as(2, CONTROL_JOIN, STEP + 1);
    for (uint32_t i = 0; i < 2; i++) {
        const ControlRecover *const recover = &expect(i, CONTROL_RECOVER)->recover;

        ck_assert_uint_eq(recover->step, CONTROL_RECOVER_ADMIT);
        ck_assert_str_eq(recover->text, WHO " joins the run as node 2");
    }
    announce(STEP + 2);
    expect_place(0);
    do_step(3, 2, CONTROL_RECOVER_ADMIT, "");
    expect_greeting(NEW, CONTROL_ADMITTED);
    announce(STEP + 2);
    expect_refusal(NEW, INVALID_CODE,
                   "the scheduler waits for 1 servers (RUBATO_SERVERS), and so many are here (" WHO
                   "): the server (" WHO ") is one too many; the run has 1 spare place "
                   "(RUBATO_SPARES), which is taken");
}
END_TEST

/* One that has said that it ends gives the place back at once, one that is silent later. */
START_TEST(place_of_a_process_that_ends_is_free_again)
{
    gather();
    begin_gathered();
    announce(STEP);
    expect_place(2);
    scheduler_greet(scheduler, now_ms,
                    &(Control){ .kind = CONTROL_FAREWELL, .farewell = { 0, STEP, "it ends" } },
                    CONFIG.wire_version, asker_of(NEW));
    announce(STEP + 1);
    expect_place(2);
    now_ms += 999;
    greet_as(2, CONTROL_JOIN, STEP + 7); /* it is admitted, or asks again */
    expect(0, CONTROL_RECOVER);
    expect(1, CONTROL_RECOVER);
    now_ms += 999;
    announce(STEP + 2);
    expect_place(0);
    now_ms += 1;
    announce(STEP + 2);
    expect_place(2);
    expect_quiet();
}
END_TEST

/* It hears why, and not that there is no place. */
START_TEST(process_that_comes_when_the_run_ends_hears_so)
{
    gather();
    begin_gathered();
    say(0, (Control){ .kind = CONTROL_STOP, .stop = { "the end" } });
    announce(STEP);
    ck_assert_uint_eq(expect_greeting(NEW, CONTROL_REFUSE)->refuse.code, CANCELLED_CODE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scheduler_spare");
    TCase *spare = tcase_create("spare");

    tcase_add_checked_fixture(spare, set_up_spare, tear_down);
    tcase_add_test(spare, run_begins_without_its_spare_node);
    tcase_add_test(spare, spare_node_is_not_missing);
    tcase_add_test(spare, process_that_does_not_say_that_it_joins_is_refused);
    tcase_add_test(spare, process_may_come_before_the_run_begins);
    tcase_add_loop_test(spare, process_joins_and_serves_as_one_in_the_place_of_a_lost_node, 0, 2);
    tcase_add_test(spare, second_of_two_processes_is_refused);
    tcase_add_test(spare, node_is_spare_again_if_its_process_is_refused);
    tcase_add_test(spare, spare_node_cannot_be_drained);
    tcase_add_loop_test(spare, copy_on_the_node_takes_the_place_of_another_one, 0,
                        G_N_ELEMENTS(shares));
    tcase_add_test(spare, copy_stays_beside_the_others_if_one_of_them_is_lost);
    tcase_add_test(spare, plan_with_wrong_lines_is_dropped);
    suite_add_tcase(suite, spare);
    TCase *two = tcase_create("two spares");
    tcase_add_checked_fixture(two, set_up_two_spares, tear_down);
    tcase_add_test(two, node_gets_its_share_although_another_one_joins_before);
    tcase_add_test(two, node_gets_its_share_although_another_one_is_lost_before);

    TCase *announced = tcase_create("announced");
    tcase_add_checked_fixture(announced, set_up_announced, tear_down_announced);
    tcase_add_test(announced, process_that_announces_itself_joins_as_a_spare_node);
    tcase_add_test(announced, place_of_a_process_that_ends_is_free_again);
    tcase_add_test(announced, process_that_comes_when_the_run_ends_hears_so);
    suite_add_tcase(suite, two);
    suite_add_tcase(suite, announced);
    return run_suite(suite);
}
