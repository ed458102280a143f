/* The simulation from inside: what sim.c and sim_posix.c share. */
#ifndef TESTS_SUPPORT_SIM_SIM_PRIVATE_H
#define TESTS_SUPPORT_SIM_SIM_PRIVATE_H

#include "io/net/caller.h"
#include "tests/support/sim/fiber.h"
#include "tests/support/sim/sim.h"

typedef struct SimThread SimThread;

/* Threads that wait for the same thing; all zero: none. */
typedef struct {
    SimThread *first, *last;
} SimQueue;

struct SimThread {
    uint32_t number, node;
    char name[16];
    Fiber *fiber;
    void *(*run)(void *data);
    void *data, *result;
    bool has_ended;
    SimQueue joiners;

    /* while it waits */
    SimQueue *queue; /* NULL: in none */
    SimThread *previous, *next;
    const char *what; /* it waits for; NULL: it does not */
    const void *whom;
    int64_t since_ns;
    uint64_t n_waits; /* tells a timeout of an earlier wait from one of this wait */
    bool timed_out;
    int saved_errno;

    /* the library's thread-local variables; see io/net/caller.h */
    uint64_t caller_thread;
    CallerPlace caller_place;

    /* in poll */
    void *polled;
    unsigned n_polled;
};

/* The thread that runs, NULL outside. */
extern SimThread *sim_current;

/* The current thread waits until another thread wakes it, or until the time. False: the time has
 * come. queue may be NULL. */
bool sim_wait(SimQueue *queue, int64_t until_ns, const char *what, const void *whom);

/* Wakes a waiting thread. */
void sim_wake(SimThread *thread);

/* Any thread of a queue; NULL: there is none. */
SimThread *sim_pick(SimQueue *queue);

/* Other threads may run first. */
void sim_give_way(void);

/* As sim_give_way, if the seed wants it. */
void sim_may_give_way(void);

SimThread *sim_thread_new(uint32_t node, const char *name, void *(*run)(void *data), void *data);

/* A wait may end without a reason. */
bool sim_is_spurious(void);

#endif
