/* A scheduler in whose run a node is lost, and a process takes its place.
 *
 * Threads: the test's own. */
#ifndef TESTS_SUPPORT_SCHEDULER_JOIN_FIXTURE_H
#define TESTS_SUPPORT_SCHEDULER_JOIN_FIXTURE_H

#include "tests/support/scheduler/scheduler_steps.h"

#define GONE 1u    /* the node that is lost first */
#define OTHERS 5u  /* the others, as a mask */
#define STEP 1000u /* an incarnation that is no process's of the rendezvous */
#define NEW "tcp://new"
#define WHO "dan pid 13"
#define COUNTED ((uint64_t)1 << 48)

/* The rendezvous of a run that admits processes, and the COMMIT of a table with replicas. */
void begin_that_admits(void);

/* As expect_step, and nobody is told anything else. */
void expect_step_alone(unsigned nodes, uint32_t map, ControlRecoverStep step, const char *lines);

/* All that follows a loss or a join, by the map, with one part, whose primary is server 0: behind
 * CLOSE; with it. */
void go_on_from_close(unsigned nodes, uint32_t map);
void go_through(unsigned nodes, uint32_t map);

/* Until the others go on without GONE. */
void begin_and_lose(void);

/* The process asks for the place of a node, or of GONE. */
Control join_of(uint32_t number, uint64_t incarnation);
void join(uint64_t incarnation);

/* The others are to open links to it; it hears that it is in the run, where the third node is at
 * that address. */
void expect_admit(uint32_t map, uint64_t incarnation, uint64_t counted_from);
void expect_admitted(uint64_t incarnation, uint64_t counted_from, const char *third);

/* The process is the node, and makes the tables next; until it has replicas, too. */
void admit(uint32_t map, uint64_t incarnation, uint64_t counted_from);
void admit_wholly(uint32_t map, uint64_t incarnation, uint64_t counted_from);

/* A PROPOSE that says what a process without a program has to know. */
void propose_told(uint32_t node, uint64_t number, ControlCall what, const char *told);

#endif
