/* Who calls: which thread, in which process, and from where in the library. Handles and engines are
 * for some callers alone; a call by another is found here, for the price of a comparison.
 *
 * What is kept is a thread's own, but for two counts: of the threads that were given a number, and
 * of the forks that led to this process.
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
} CallerPlace;

/* initial-exec: read by one instruction, without a call, also in the shared library. */
#define CALLER_OWN _Thread_local __attribute__((tls_model("initial-exec")))

extern CALLER_OWN uint64_t caller_thread; /* its number; 0: it has none yet */
extern CALLER_OWN CallerPlace caller_place;

/* The calling thread's number, which no other has had, given to it where it has none. */
uint64_t caller_number(void);

/* How many forks led to this process, counted from when this was first asked. The thread that has
 * forked has no number in the child. */
uint32_t caller_n_forks(void);

#endif
