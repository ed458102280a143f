/* A scheduler of three nodes under test. Its inputs and outputs take a line each.
 *
 * Outputs are kept until an expect takes them. A tear_down ignores the rest, so tests end with
 * expect_quiet if it matters.
 *
 * Threads: the test's own. */
#ifndef TESTS_SUPPORT_SCHEDULER_SCHEDULER_FIXTURE_H
#define TESTS_SUPPORT_SCHEDULER_SCHEDULER_FIXTURE_H

#include "engine/scheduler/scheduler.h"

#define N_NODES 3
#define ALL 7u /* as a mask of nodes */

#define LOST_CODE CONTROL_CODE(RUBATO_ERROR_NODE_LOST)
#define CANCELLED_CODE CONTROL_CODE(RUBATO_ERROR_CANCELLED)
#define MISMATCH_CODE CONTROL_CODE(RUBATO_ERROR_MISMATCH)
#define INVALID_CODE CONTROL_CODE(RUBATO_ERROR_INVALID)
#define FAILED_CODE CONTROL_CODE(RUBATO_ERROR_TASK_FAILED)

/* Ids with gaps: 0, 4, 7. No node's number is its id, except for the first. */
extern const uint32_t IDS[N_NODES];
extern const char *const ENDPOINTS[N_NODES];
extern const SchedulerConfig CONFIG;

extern Scheduler *scheduler;
extern int64_t now_ms;

/* The checked fixture of a case: a scheduler by CONFIG, before its rendezvous. */
void set_up(void);
void tear_down(void);

/* Replaces the scheduler by another one, whose output goes to `send`, or is kept if that is
 * NULL. */
void replace_scheduler(const SchedulerConfig *config,
                       void (*send)(void *user, uint32_t node, const Control *control));

/* Replaces it by one that is made of its state, and returns the bytes of that. With
 * RUBATO_TEST_STATE in the environment this is done before each input, so that nothing may follow
 * from what is no part of the state. */
guint read_scheduler_again(void);

/* Keeps an output. A test's own `send` calls it first. */
void put_sent(void *user, uint32_t node, const Control *control);

/* The asker of a HELLO whose sender receives at the endpoint. */
uint64_t asker_of(const char *endpoint);

/* Takes the first output for a node, or the first greeting to an endpoint. It must be of that kind.
 * Valid until the next expect. */
const Control *expect(uint32_t node, ControlKind kind);
const Control *expect_greeting(const char *endpoint, ControlKind kind);

/* The same, with this code and text. */
void expect_verdict(uint32_t node, ControlKind kind, uint32_t code, const char *text);
void expect_verdict_everywhere(ControlKind kind, uint32_t code, const char *text);
void expect_refusal(const char *endpoint, uint32_t code, const char *text);
void expect_release(uint32_t node, uint32_t epoch, uint64_t round);

/* Checks that there is no other output. */
void expect_quiet(void);

/* The text of scheduler_waiting. */
void expect_waiting(const char *text);

/* The HELLO of a node; a greeting goes in; both. */
Control hello_of(uint32_t number);
void greet(const Control *hello);
void hello(uint32_t number);

/* The rendezvous, over. */
void begin(void);

/* Hands in a message. Returns whether the scheduler accepted it; the second function expects
 * that. */
bool hears(uint32_t node, Control control);
void say(uint32_t node, Control control);

/* A PROPOSE whose arguments are `detail`; one with arguments that all nodes have. */
Control call(uint64_t op, ControlCall what, const char *name, const char *detail);
void propose(uint32_t node, uint64_t op, ControlCall what, const char *name);
void ready(uint32_t node, uint64_t op);

/* A call proposed by all, up to GO, whose id it returns; and on to a good COMMIT. */
uint32_t go(uint64_t op, ControlCall what, const char *name);
uint32_t agree(uint64_t op, ControlCall what, const char *name);

void done(uint32_t node, uint32_t epoch);
void fail_worker(uint32_t node, uint32_t epoch, const char *text);
void arrive(uint32_t node, uint32_t epoch, uint64_t round);

void tick(void);

/* Lets time pass while the nodes of the mask send heartbeats. Drops the heartbeats that come
 * out. */
void pass_ms(int64_t ms, unsigned beating);

#endif
