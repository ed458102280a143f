/* Simulates several nodes: their threads run on one thread, with a simulated clock.
 *
 * A test that is linked with the wrappers of sim_posix.c runs the unchanged library: its threads
 * are fibers, and its locks, futexes, sleeps and clock are simulated. Wherever a thread may block,
 * the seed decides which thread runs next. Time passes only while no thread can run, and a little
 * with each turn. So a run depends on its seed alone. Outside of a simulation the wrappers call
 * what they wrap.
 *
 *     sim_begin(&options);
 *     sim_spawn(node, "main", run, data);
 *     end = sim_run(until_ns);
 *     sim_end();
 *
 * Threads: one. "A thread", from here on, is one of the simulation. */
#ifndef TESTS_SUPPORT_SIM_SIM_H
#define TESTS_SUPPORT_SIM_SIM_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

#define SIM_NEVER INT64_MAX
#define SIM_MS INT64_C(1000000)
#define SIM_MOST_NODES 512

typedef struct {
    uint64_t seed;
    uint32_t yield_1024;   /* how often, of 1,024 times, a thread gives way though it need not */
    uint32_t delay_1024;   /* how often it is delayed then */
    int64_t most_delay_ns; /* for how long at most */
    bool traces;           /* what happens is printed */
} SimOptions;

typedef enum {
    SIM_END_DONE,  /* every thread has ended */
    SIM_END_LATE,  /* the time is over */
    SIM_END_STUCK, /* no thread will ever run again */
} SimEnd;

void sim_begin(const SimOptions *options);

/* Runs until every thread has ended, or the time is over. */
SimEnd sim_run(int64_t until_ns);

/* Threads that have not ended are lost, with everything on their stacks. */
void sim_end(void);

/* Starts a thread of a node. Threads that it starts belong to the same node. */
void sim_spawn(uint32_t node, const char *name, void *(*run)(void *data), void *data);

/* The node of the running thread. */
uint32_t sim_node(void);

/* Whether a thread of a simulation runs. */
bool sim_is_inside(void);

int64_t sim_now_ns(void);
int64_t sim_now_ms(void);

/* In a thread. */
void sim_sleep_ns(int64_t ns);

/* While it is true, the running thread gives way to nobody: what it reads of others stays as it is.
 * A lock that another one has is then a failure. */
void sim_keep_running(bool keeps);

/* Calls the function, outside all threads, when so much time has passed. */
void sim_after(int64_t ns, void (*call)(void *data, uint64_t number), void *data, uint64_t number);

/* Freezes a node: none of its threads runs from now on. Or unfreezes it. */
void sim_freeze(uint32_t node);
void sim_thaw(uint32_t node);
bool sim_is_frozen(uint32_t node);

/* ---- numbers that follow from the seed ---- */

uint64_t sim_random(void);
uint64_t sim_below(uint64_t limit);         /* 0 if it is 0 */
bool sim_chance(uint32_t n, uint32_t of_m); /* n times of m */

/* ---- what happened ---- */

/* A digest of everything that sim_mark and the choice of threads told so far. The same seed gives
 * the same digest. */
uint64_t sim_digest(void);
void sim_mark(uint64_t what);

/* The number of turns so far. */
uint64_t sim_n_turns(void);

/* Prints a line with time and thread, if the options say so. */
#define SIM_TRACE(...)              \
    do {                            \
        if (sim_traces())           \
            sim_trace(__VA_ARGS__); \
    } while (0)

bool sim_traces(void);
void sim_trace(const char *format, ...) G_GNUC_PRINTF(1, 2);

/* A line for each thread that has not ended: what it waits for, and since when. (transfer full) */
char *sim_describe_threads(void);

/* Ends the test: prints the text, and what each thread waits for. */
void sim_fail(const char *format, ...) G_GNUC_PRINTF(1, 2) G_GNUC_NORETURN;

/* Called by sim_fail first, to say which run it is. */
void sim_on_failure(void (*say)(void *user), void *user);

/* ---- descriptors that become readable ---- */

/* A descriptor as an eventfd, which counts nothing: readable while it is set. */
int sim_fd_new(void);
void sim_fd_set(int fd, bool readable);
void sim_fd_close(int fd);

/* Descriptors of the simulation that are open. */
uint32_t sim_n_fds(void);

#endif
