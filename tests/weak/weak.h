/* A checker for code that relies on the memory orders of C11.
 *
 * DESIGN NOTE
 *
 * What runs. The sources under check are compiled a second time with replace.h, which turns their
 * atomic operations, mutexes, futexes, eventfds and threads into calls of this checker. They are
 * otherwise as they are: a case calls actor_post, and that is the library's own code. The
 * compiler's instrumentation for ThreadSanitizer reports every plain access of memory to the
 * checker, too (races.c), so a message that is read without an acquire is a data race and fails the
 * case.
 *
 * How it runs. A case is a function. It runs as the first thread of an execution and starts others;
 * all are contexts on one thread of the kernel, which change only where the checker says so: before
 * an operation on an atomic object, a mutex, a futex or a descriptor. An execution is a sequence of
 * choices: which thread goes next, and which of the stores that a load may read it does read.
 * Choice 0 is always to go on with the same thread and to read the newest store. An execution is
 * repeated by repeating its choices, and thus by its seed.
 *
 * The memory model (memory.c). Each atomic object has a list of all stores in modification order.
 * Each thread has a view: for every object the oldest store that it may still read. A store with
 * release carries its thread's view; a load with acquire that reads it joins that view to its own;
 * a read-modify-write reads the newest store and passes its view on (release sequences as in C++20:
 * read-modify-writes alone continue them). Sequentially consistent operations have one order, which
 * agrees with happens-before, with modification order, and with loads that come before the stores
 * that they do not see; it is decided no further than that, so such a load may still come before a
 * store that was executed earlier. This is RC11 (Lahav et al., PLDI 2017) but for three
 * simplifications, all of which leave out executions and never invent one: modification order is
 * the order in which stores were executed; the order of sequentially consistent operations agrees
 * with all of happens-before (as in C11); a load reads no store that is executed later. There are
 * no fences: a source that uses one does not compile.
 *
 * The kernel. futex_wait may read an old value, unless the thread that stored a newer one has
 * called futex_wake since; neither orders anything else. Mutexes, and the descriptors' reads,
 * writes and polls, order memory as the kernel's locks do. No wait ends because of time, unless the
 * case says so (weak_let_time_pass): a lost wake-up shows as an execution in which nobody can go
 * on.
 *
 * How to explore. weak_try_few tries all executions with at most n choices other than 0;
 * weak_try_seeds draws choices at random. weak_weaken makes one memory order of one place weaker
 * than the source says; a case must then fail, or that order is not needed (test_weak_memory.c).
 *
 * Threads: one; all state is static. */
#ifndef TESTS_WEAK_WEAK_H
#define TESTS_WEAK_WEAK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* ---- cases ---- */

typedef struct {
    const char *name;
    void (*run)(void); /* the first thread; its data are static, and it sets them up each time */
} WeakCase;

/* Ends the execution: the case has failed. */
_Noreturn void weak_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define weak_expect(condition)                                                          \
    do {                                                                                \
        if (!(condition))                                                               \
            weak_fail("%s:%d: not so: %s", weak_short(__FILE__), __LINE__, #condition); \
    } while (0)

const char *weak_short(const char *file); /* the path from the project's root */

/* Starts a thread of a case; at most WEAK_THREADS in all. Returns its number, for weak_join. */
unsigned weak_start(const char *name, void *(*run)(void *user), void *user);
void weak_join(unsigned thread);

/* Lets the others go first. */
void weak_yield(void);

/* In this execution polls with a timeout end when nobody else can go on, and time has then passed:
 * for what is meant to be noticed at the next tick alone. */
void weak_let_time_pass(void);
void weak_stop_time(void);
int64_t weak_now_ms(void);

/* ---- places ---- */

/* Where a source calls an atomic operation. */
typedef struct {
    const char *file;
    int line;
    const char *operation, *object; /* as the source writes it */
    int order;
    int failure; /* of a compare-exchange that names one; else -1 */

    /* as it is executed now */
    int order_now, failure_now;
    bool is_visited;
} WeakSite;

/* One weaker order at one place. */
typedef struct {
    const WeakSite *site; /* the first of those that stand for this place in several objects */
    bool is_failure;      /* the order of a compare-exchange that fails */
    int order;
} WeakMutant;

/* All steps by which an order of the sources under check can be made weaker, in a fixed order. */
size_t weak_n_mutants(void);
const WeakMutant *weak_mutant(size_t i);

/* "io/net/actor.c:93 store &actor->owned: seq_cst becomes release", in static memory. */
const char *weak_describe(const WeakMutant *mutant);

/* From now on; NULL: everything as the source says. */
void weak_weaken(const WeakMutant *mutant);

/* Whether the place was executed since weak_forget_visits. */
bool weak_was_visited(const WeakMutant *mutant);
void weak_forget_visits(void);

/* ---- exploring ---- */

typedef struct {
    uint64_t seed; /* 0: found by weak_try_few */
    uint64_t n_tried;
    char text[256]; /* what was wrong */
} WeakFailure;

/* True: all executions were as they should be, or there are more than `most`. */
bool weak_try_few(const WeakCase *one, unsigned n_deviations, uint64_t most, WeakFailure *failure);

/* The executions of so many seeds from the first one, which is not 0. */
bool weak_try_seeds(const WeakCase *one, uint64_t first, uint64_t n, WeakFailure *failure);

/* Runs the execution that has failed last once more and tells it line by line: thread, place,
 * operation, value. Free with free(). */
char *weak_tell(const WeakCase *one);

#endif
