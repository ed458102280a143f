/* Included before everything else in the sources under check: their atomic operations, locks, waits
 * and threads become calls of the checker (weak.h). What is not replaced here does not compile, or
 * runs as it is.
 *
 * The standard's generic functions are macros in both compilers' headers, so they can be defined
 * anew. Each use makes a WeakSite, and a pointer to it in a section of its own, by which the
 * checker finds all places, also those that no case executes. */
#ifndef TESTS_WEAK_REPLACE_H
#define TESTS_WEAK_REPLACE_H

#include <glib.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "io/net/futex.h"
#include "io/net/log_sink.h"
#include "io/net/monotonic.h"
#include "tests/weak/weak.h"

/* ---- atomic operations ---- */

typedef enum { WEAK_ADD, WEAK_SUBTRACT, WEAK_OR, WEAK_AND } WeakChange;

void weak_init(volatile void *object, size_t size, uint64_t value);
uint64_t weak_load(WeakSite *site, const volatile void *object, size_t size);
void weak_store(WeakSite *site, volatile void *object, size_t size, uint64_t value);
uint64_t weak_exchange(WeakSite *site, volatile void *object, size_t size, uint64_t value);
uint64_t weak_change(WeakSite *site, volatile void *object, size_t size, WeakChange change,
                     uint64_t operand);
bool weak_compare_exchange(WeakSite *site, volatile void *object, size_t size, uint64_t *expected,
                           uint64_t desired, bool may_fail);

#define WEAK_SITE(operation_, object_, order_, failure_)                                  \
    __extension__({                                                                       \
        static WeakSite weak_site = { .file = __FILE__,                                   \
                                      .line = __LINE__,                                   \
                                      .operation = operation_,                            \
                                      .object = object_,                                  \
                                      .order = order_,                                    \
                                      .failure = failure_,                                \
                                      .order_now = order_,                                \
                                      .failure_now = failure_ };                          \
        static WeakSite *const weak_listed __attribute__((section("weak_sites"), used)) = \
            &weak_site;                                                                   \
        weak_listed;                                                                      \
    })

/* The type of what the object holds: an expression has no qualifiers. */
#define WEAK_TYPE(object) __typeof__((void)0, *(object))

#define WEAK_BITS(bits, value)                              \
    do {                                                    \
        (bits) = 0;                                         \
        __builtin_memcpy(&(bits), &(value), sizeof(value)); \
    } while (0)

#define WEAK_LOAD(text, object, order)                                                   \
    __extension__({                                                                      \
        WEAK_TYPE(object) weak_loaded;                                                   \
        const uint64_t weak_load_bits =                                                  \
            weak_load(WEAK_SITE("load", text, order, -1), (object), sizeof weak_loaded); \
        __builtin_memcpy(&weak_loaded, &weak_load_bits, sizeof weak_loaded);             \
        weak_loaded;                                                                     \
    })

#define WEAK_STORE(text, object, value, order)                                        \
    __extension__({                                                                   \
        const WEAK_TYPE(object) weak_stored = (value);                                \
        uint64_t weak_store_bits;                                                     \
        WEAK_BITS(weak_store_bits, weak_stored);                                      \
        weak_store(WEAK_SITE("store", text, order, -1), (object), sizeof weak_stored, \
                   weak_store_bits);                                                  \
    })

#define WEAK_EXCHANGE(text, object, value, order)                                            \
    __extension__({                                                                          \
        WEAK_TYPE(object) weak_exchanged = (value);                                          \
        uint64_t weak_exchange_bits;                                                         \
        WEAK_BITS(weak_exchange_bits, weak_exchanged);                                       \
        weak_exchange_bits = weak_exchange(WEAK_SITE("exchange", text, order, -1), (object), \
                                           sizeof weak_exchanged, weak_exchange_bits);       \
        __builtin_memcpy(&weak_exchanged, &weak_exchange_bits, sizeof weak_exchanged);       \
        weak_exchanged;                                                                      \
    })

#define WEAK_FETCH(text, object, operand, order, change, name)                       \
    __extension__({                                                                  \
        WEAK_TYPE(object) weak_fetched = (WEAK_TYPE(object))(operand);               \
        uint64_t weak_fetch_bits;                                                    \
        WEAK_BITS(weak_fetch_bits, weak_fetched);                                    \
        weak_fetch_bits = weak_change(WEAK_SITE(name, text, order, -1), (object),    \
                                      sizeof weak_fetched, change, weak_fetch_bits); \
        __builtin_memcpy(&weak_fetched, &weak_fetch_bits, sizeof weak_fetched);      \
        weak_fetched;                                                                \
    })

#define WEAK_CAS(text, object, expected, desired, order, failure, may_fail)                     \
    __extension__({                                                                             \
        WEAK_TYPE(object) *const weak_expected = (expected);                                    \
        const WEAK_TYPE(object) weak_desired = (desired);                                       \
        uint64_t weak_expected_bits, weak_desired_bits;                                         \
        WEAK_BITS(weak_expected_bits, *weak_expected);                                          \
        WEAK_BITS(weak_desired_bits, weak_desired);                                             \
        const bool weak_succeeded = weak_compare_exchange(                                      \
            WEAK_SITE("compare_exchange", text, order, failure), (object), sizeof weak_desired, \
            &weak_expected_bits, weak_desired_bits, may_fail);                                  \
        __builtin_memcpy(weak_expected, &weak_expected_bits, sizeof *weak_expected);            \
        weak_succeeded;                                                                         \
    })

#undef atomic_init
#undef atomic_load
#undef atomic_load_explicit
#undef atomic_store
#undef atomic_store_explicit
#undef atomic_exchange
#undef atomic_exchange_explicit
#undef atomic_fetch_add
#undef atomic_fetch_add_explicit
#undef atomic_fetch_sub
#undef atomic_fetch_sub_explicit
#undef atomic_fetch_or
#undef atomic_fetch_or_explicit
#undef atomic_fetch_and
#undef atomic_fetch_and_explicit
#undef atomic_compare_exchange_strong
#undef atomic_compare_exchange_strong_explicit
#undef atomic_compare_exchange_weak
#undef atomic_compare_exchange_weak_explicit
#undef atomic_thread_fence
#undef atomic_signal_fence
#undef atomic_fetch_xor
#undef atomic_fetch_xor_explicit
#undef atomic_flag_test_and_set
#undef atomic_flag_test_and_set_explicit
#define atomic_thread_fence weak_has_no_fences

#define atomic_init(object, value)                              \
    __extension__({                                             \
        const WEAK_TYPE(object) weak_first = (value);           \
        uint64_t weak_init_bits;                                \
        WEAK_BITS(weak_init_bits, weak_first);                  \
        weak_init((object), sizeof weak_first, weak_init_bits); \
    })
#define atomic_load(object) WEAK_LOAD(#object, object, memory_order_seq_cst)
#define atomic_load_explicit(object, order) WEAK_LOAD(#object, object, order)
#define atomic_store(object, value) WEAK_STORE(#object, object, value, memory_order_seq_cst)
#define atomic_store_explicit(object, value, order) WEAK_STORE(#object, object, value, order)
#define atomic_exchange(object, value) WEAK_EXCHANGE(#object, object, value, memory_order_seq_cst)
#define atomic_exchange_explicit(object, value, order) WEAK_EXCHANGE(#object, object, value, order)
#define atomic_fetch_add(object, n) \
    WEAK_FETCH(#object, object, n, memory_order_seq_cst, WEAK_ADD, "fetch_add")
#define atomic_fetch_add_explicit(object, n, order) \
    WEAK_FETCH(#object, object, n, order, WEAK_ADD, "fetch_add")
#define atomic_fetch_sub(object, n) \
    WEAK_FETCH(#object, object, n, memory_order_seq_cst, WEAK_SUBTRACT, "fetch_sub")
#define atomic_fetch_sub_explicit(object, n, order) \
    WEAK_FETCH(#object, object, n, order, WEAK_SUBTRACT, "fetch_sub")
#define atomic_fetch_or(object, n) \
    WEAK_FETCH(#object, object, n, memory_order_seq_cst, WEAK_OR, "fetch_or")
#define atomic_fetch_or_explicit(object, n, order) \
    WEAK_FETCH(#object, object, n, order, WEAK_OR, "fetch_or")
#define atomic_fetch_and(object, n) \
    WEAK_FETCH(#object, object, n, memory_order_seq_cst, WEAK_AND, "fetch_and")
#define atomic_fetch_and_explicit(object, n, order) \
    WEAK_FETCH(#object, object, n, order, WEAK_AND, "fetch_and")
#define atomic_compare_exchange_strong(object, expected, desired) \
    WEAK_CAS(#object, object, expected, desired, memory_order_seq_cst, -1, false)
#define atomic_compare_exchange_strong_explicit(object, expected, desired, order, failure) \
    WEAK_CAS(#object, object, expected, desired, order, failure, false)
#define atomic_compare_exchange_weak(object, expected, desired) \
    WEAK_CAS(#object, object, expected, desired, memory_order_seq_cst, -1, true)
#define atomic_compare_exchange_weak_explicit(object, expected, desired, order, failure) \
    WEAK_CAS(#object, object, expected, desired, order, failure, true)

/* ---- threads, locks, waits ---- */

static inline int weak_nothing(const void *object)
{
    (void)object;
    return 0;
}

int weak_thread_create(pthread_t *thread, void *(*run)(void *user), void *user);
int weak_thread_join(pthread_t thread);
int weak_thread_name(pthread_t thread, const char *name);
int weak_lock(pthread_mutex_t *mutex);
int weak_trylock(pthread_mutex_t *mutex);
int weak_unlock(pthread_mutex_t *mutex);
int weak_broadcast(pthread_cond_t *cond);
bool weak_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);
void weak_futex_wait(_Atomic uint32_t *word, uint32_t expected);
void weak_futex_wake(_Atomic uint32_t *word, int n);
int weak_eventfd(void);
int weak_epoll(void);
int weak_epoll_ctl(int epoll, int operation, int fd, const struct epoll_event *event);
int weak_poll(struct pollfd *polled, size_t n, int timeout_ms);
ssize_t weak_read(int fd, void *to, size_t size);
ssize_t weak_write(int fd, const void *from, size_t size);

#define pthread_create(thread, attributes, run, user) weak_thread_create(thread, run, user)
#define log_sink_start_thread(thread, run, user) weak_thread_create(thread, run, user)
#define pthread_join(thread, result) weak_thread_join(thread)
#define pthread_setname_np(thread, name) weak_thread_name(thread, name)
#define pthread_mutex_init(mutex, attributes) weak_nothing(mutex)
#define pthread_mutex_destroy(mutex) weak_nothing(mutex)
#define pthread_mutex_lock(mutex) weak_lock(mutex)
#define pthread_mutex_trylock(mutex) weak_trylock(mutex)
#define pthread_mutex_unlock(mutex) weak_unlock(mutex)
#define pthread_cond_destroy(cond) weak_nothing(cond)
#define pthread_cond_broadcast(cond) weak_broadcast(cond)
#define monotonic_wait(cond, mutex, end_ms) ((void)(end_ms), weak_wait(cond, mutex))
#define sched_yield() weak_yield()
#define spin_pause() ((void)0)
#define futex_wait(word, expected, timeout_ms) ((void)(timeout_ms), weak_futex_wait(word, expected))
#define futex_wake(word, n) weak_futex_wake(word, n)
#define eventfd(value, flags) weak_eventfd()
#define epoll_create1(flags) weak_epoll()
#define epoll_ctl(epoll, operation, fd, event) weak_epoll_ctl(epoll, operation, fd, event)
#define poll(polled, n, timeout_ms) weak_poll(polled, n, timeout_ms)
#define ppoll(polled, n, period, signals) ((void)(period), weak_poll(polled, n, 1))
#define read(fd, to, size) weak_read(fd, to, size)
#define write(fd, from, size) weak_write(fd, from, size)

/* ---- memory ---- */

/* As a write of all of it; and it is not used again in this execution. */
void weak_free(void *memory);

#define g_free weak_free

/* With its reads and writes. */
void *weak_copy(void *to, const void *from, size_t size);

#undef memcpy
#define memcpy(to, from, size) weak_copy(to, from, size)

#endif
