/* Steps that follow a loss, a join or a drain, as the scheduler leads nodes through them.
 *
 * Threads: the test's own. */
#ifndef TESTS_SUPPORT_SCHEDULER_SCHEDULER_STEPS_H
#define TESTS_SUPPORT_SCHEDULER_SCHEDULER_STEPS_H

#include "tests/support/scheduler/scheduler_fixture.h"

/* The rendezvous, and the COMMIT of a table with replicas. */
void begin_with_replicas(void);

/* The node's process has ended. */
void lose(uint32_t node);

/* A node says that it has done the step. */
Control step_done(uint32_t map, ControlRecoverStep step, const char *lines);

/* The nodes of the mask are told to do a step, with these lines. Returns why. */
ControlCause expect_step(unsigned nodes, uint32_t map, ControlRecoverStep step, const char *lines);

/* They do it; node 0 says the lines. */
void do_step(unsigned nodes, uint32_t map, ControlRecoverStep step, const char *says);

#endif
