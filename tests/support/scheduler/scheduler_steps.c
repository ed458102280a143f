#include "tests/support/scheduler/scheduler_steps.h"

#include <check.h>

#include "engine/scheduler/scheduler_state.h"

void begin_with_replicas(void)
{
    begin();
    scheduler->goes_on = true;
}

void lose(uint32_t node)
{
    scheduler_node_gone(scheduler, now_ms, node, "its process has ended");
}

Control step_done(uint32_t map, ControlRecoverStep step, const char *lines)
{
    return (Control){ .kind = CONTROL_RECOVERED,
                      .recover = { .map = map, .step = step, .text = "", .lines = lines } };
}

ControlCause expect_step(unsigned nodes, uint32_t map, ControlRecoverStep step, const char *lines)
{
    ControlCause cause = CONTROL_CAUSE_LOSS;

    for (uint32_t i = 0; i < N_NODES; i++) {
        if ((nodes & (1u << i)) == 0)
            continue;
        const ControlRecover *const recover = &expect(i, CONTROL_RECOVER)->recover;

        ck_assert_uint_eq(recover->map, map);
        ck_assert_uint_eq(recover->step, step);
        ck_assert_str_eq(recover->lines, lines);
        cause = (ControlCause)recover->cause;
    }
    return cause;
}

void do_step(unsigned nodes, uint32_t map, ControlRecoverStep step, const char *says)
{
    for (uint32_t i = 0; i < N_NODES; i++)
        if ((nodes & (1u << i)) != 0)
            say(i, step_done(map, step, i == 0 ? says : ""));
}
