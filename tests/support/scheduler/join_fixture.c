#include "tests/support/scheduler/join_fixture.h"

#include <check.h>

#include "engine/scheduler/scheduler_state.h"

void begin_that_admits(void)
{
    SchedulerConfig config = CONFIG;

    config.admits = true;
    replace_scheduler(&config, NULL);
    begin_with_replicas();
}

void expect_step_alone(unsigned nodes, uint32_t map, ControlRecoverStep step, const char *lines)
{
    (void)expect_step(nodes, map, step, lines);
    expect_quiet();
}

void go_on_from_close(unsigned nodes, uint32_t map)
{
    do_step(nodes, map, CONTROL_RECOVER_CLOSE, "k0 0 0 0\np0 0 0 0\n");
    expect_step_alone(nodes, map, CONTROL_RECOVER_PROMOTE, "0 0 1 0\n");
    do_step(nodes, map, CONTROL_RECOVER_PROMOTE, "");
    expect_step_alone(nodes, map, CONTROL_RECOVER_OPEN, "0 0 1 0\n");
    do_step(nodes, map, CONTROL_RECOVER_OPEN, "0 0 2 0 1\n");
    expect_step_alone(nodes, map, CONTROL_RECOVER_EXPECT, "0 0 2 0 1\n");
    do_step(nodes, map, CONTROL_RECOVER_EXPECT, "");
    expect_step_alone(nodes, map, CONTROL_RECOVER_COPY, "0 0 2 0 1\n");
    do_step(nodes, map, CONTROL_RECOVER_COPY, "");
}

void go_through(unsigned nodes, uint32_t map)
{
    expect_step_alone(nodes, map, CONTROL_RECOVER_CLOSE, "");
    go_on_from_close(nodes, map);
}

void begin_and_lose(void)
{
    begin_that_admits();
    lose(GONE);
    go_through(OTHERS, 2);
}

Control join_of(uint32_t number, uint64_t incarnation)
{
    Control join = hello_of(number);

    join.kind = CONTROL_JOIN;
    join.hello.incarnation = incarnation;
    join.hello.endpoints = NEW;
    join.hello.description = WHO;
    return join;
}

void join(uint64_t incarnation)
{
    const Control control = join_of(GONE, incarnation);

    greet(&control);
}

void expect_admit(uint32_t map, uint64_t incarnation, uint64_t counted_from)
{
    for (uint32_t i = 0; i < N_NODES; i += 2) {
        const ControlRecover *const recover = &expect(i, CONTROL_RECOVER)->recover;

        ck_assert_uint_eq(recover->map, map);
        ck_assert_uint_eq(recover->step, CONTROL_RECOVER_ADMIT);
        ck_assert_uint_eq(recover->node, GONE);
        ck_assert_uint_eq(recover->cause, CONTROL_CAUSE_JOIN);
        ck_assert_str_eq(recover->text, WHO " takes the place of node 4 (127.0.0.1:4102)");
        ck_assert_str_eq(recover->endpoints, NEW);
        ck_assert_uint_eq(recover->incarnation, incarnation);
        ck_assert_uint_eq(recover->counted_from, counted_from);
    }
    expect_quiet();
}

void expect_admitted(uint64_t incarnation, uint64_t counted_from, const char *third)
{
    const ControlWelcome *const admitted = &expect_greeting(NEW, CONTROL_ADMITTED)->welcome;

    ck_assert_uint_eq(admitted->run_id, scheduler->run_id);
    ck_assert_uint_eq(admitted->n_nodes, N_NODES);
    ck_assert_uint_eq(admitted->counted_from, counted_from);
    ck_assert_str_eq(admitted->endpoints[0], ENDPOINTS[0]);
    ck_assert_str_eq(admitted->endpoints[GONE], NEW);
    ck_assert_str_eq(admitted->endpoints[2], third);
    ck_assert_uint_eq(admitted->incarnations[0], 100);
    ck_assert_uint_eq(admitted->incarnations[GONE], incarnation);
}

void admit(uint32_t map, uint64_t incarnation, uint64_t counted_from)
{
    g_autoptr(GString) told = g_string_new("the tables\n");

    for (guint i = 0; i < scheduler->tasks->len; i++)
        g_string_append(told, ((SchedulerTask *)scheduler->tasks->pdata[i])->told);
    join(incarnation);
    expect_admit(map, incarnation, counted_from);
    do_step(OTHERS, map, CONTROL_RECOVER_ADMIT, "the tables\n");
    expect_admitted(incarnation, counted_from, ENDPOINTS[2]);
    expect_step_alone(1u << GONE, map, CONTROL_RECOVER_TABLES, told->str);
}

void admit_wholly(uint32_t map, uint64_t incarnation, uint64_t counted_from)
{
    admit(map, incarnation, counted_from);
    do_step(1u << GONE, map, CONTROL_RECOVER_TABLES, "");
    go_through(ALL, map);
}

void propose_told(uint32_t node, uint64_t number, ControlCall what, const char *told)
{
    Control proposal = call(number, what, "x", "same");

    proposal.propose.workers = "2 1 3";
    proposal.propose.told = told;
    say(node, proposal);
}
