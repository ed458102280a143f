/* Identifies the caller of a function: its thread, its process, and its place in the library.
 * Handles and engines may be used by some callers only; a comparison of these numbers finds a wrong
 * caller.
 *
 * All of this is thread-local, except for two counts: of the threads that have a number, and of the
 * forks that led to this process.
 *
 * Threads: any. */
#ifndef RUBATO_IO_NET_CALLER_H
#define RUBATO_IO_NET_CALLER_H

#include <stdbool.h>
#include <stdint.h>

/* Where a thread is that runs the application's code. */
typedef enum {
    CALLER_OUTSIDE,
    CALLER_IN_TASK,     /* a worker, in its task's function */
    CALLER_IN_CALLBACK, /* the helper, in a callback */
    CALLER_IN_HANDLER,  /* any thread, in an op of a handler */
} CallerPlace;

/* The task of a worker; all zero elsewhere. */
typedef struct {
    uint32_t epoch;
    const _Atomic bool *cancelled; /* whether the task was cancelled */
} CallerTask;

/* initial-exec: read by one instruction, without a call, also in the shared library. */
#define CALLER_OWN _Thread_local __attribute__((tls_model("initial-exec")))

extern CALLER_OWN uint64_t caller_thread; /* its number; 0: it has none yet */
extern CALLER_OWN CallerPlace caller_place;
extern CALLER_OWN CallerTask caller_task;

/* The calling thread's number, which no other thread has or had. The first call gives it one. */
uint64_t caller_number(void);

/* The thread comes to a place. Returns where it was, for caller_leave. */
static inline CallerPlace caller_enter(CallerPlace place)
{
    const CallerPlace before = caller_place;

    caller_place = place;
    return before;
}

static inline void caller_leave(CallerPlace before)
{
    caller_place = before;
}

/* How many forks led to this process, counted from the first call. The thread that has forked has
 * no number in the child. */
uint32_t caller_n_forks(void);

#endif
