/* The operating system in a simulation: threads, locks, conditions, futexes, the clock, eventfds
 * and epolls. tests/CMakeLists.txt has the linker replace each function f by __wrap_f of this file;
 * outside of a simulation that calls f.
 *
 * A lock or a condition is kept in the memory of the pthread_mutex_t or pthread_cond_t itself:
 * zeroed, as their initialisers leave them, it is free.
 *
 * Threads: one; see sim.h for those of the simulation. */
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "io/net/processors.h"
#include "tests/support/sim/sim_private.h"

#define WRAP(type, name, ...)                      \
    __typeof__(name) __real_##name, __wrap_##name; \
    type __wrap_##name(__VA_ARGS__)

static SimThread *thread_of(pthread_t thread)
{
    return (SimThread *)(void *)thread;
}

static int64_t ns_of(const struct timespec *time)
{
    return (int64_t)time->tv_sec * 1000 * SIM_MS + time->tv_nsec;
}

/* ---- threads ---- */

WRAP(int, pthread_create, pthread_t *thread, const pthread_attr_t *attributes,
     void *(*run)(void *data), void *data)
{
    if (!sim_is_inside())
        return __real_pthread_create(thread, attributes, run, data);
    *thread = (pthread_t)(void *)sim_thread_new(sim_node(), "new", run, data);
    sim_may_give_way();
    return 0;
}

WRAP(int, pthread_join, pthread_t thread, void **result)
{
    if (!sim_is_inside())
        return __real_pthread_join(thread, result);
    SimThread *const joined = thread_of(thread);
    if (!joined->has_ended)
        (void)sim_wait(&joined->joiners, SIM_NEVER, "joins", joined);
    if (result != NULL)
        *result = joined->result;
    return 0;
}

WRAP(int, pthread_tryjoin_np, pthread_t thread, void **result)
{
    if (!sim_is_inside())
        return __real_pthread_tryjoin_np(thread, result);
    if (!thread_of(thread)->has_ended)
        return EBUSY;
    if (result != NULL)
        *result = thread_of(thread)->result;
    return 0;
}

WRAP(int, pthread_setname_np, pthread_t thread, const char *name)
{
    if (!sim_is_inside())
        return __real_pthread_setname_np(thread, name);
    g_strlcpy(thread_of(thread)->name, name, sizeof thread_of(thread)->name);
    return 0;
}

WRAP(int, pthread_sigmask, int how, const sigset_t *set, sigset_t *before)
{
    return sim_is_inside() ? 0 : __real_pthread_sigmask(how, set, before);
}

WRAP(int, sched_yield, void)
{
    if (!sim_is_inside())
        return __real_sched_yield();
    sim_give_way();
    return 0;
}

/* One processor, so that no thread polls when it could sleep. */
WRAP(uint32_t, processors_count, void)
{
    return sim_is_inside() ? 1 : __real_processors_count();
}

/* ---- locks ---- */

typedef struct {
    SimThread *owner;
    SimQueue waiting;
} SimMutex;

G_STATIC_ASSERT(sizeof(SimMutex) <= sizeof(pthread_mutex_t));
G_STATIC_ASSERT(sizeof(SimQueue) <= sizeof(pthread_cond_t));

static void lock(SimMutex *mutex)
{
    if (mutex->owner == sim_current)
        sim_fail("a thread locks what it has locked");
    while (mutex->owner != NULL)
        (void)sim_wait(&mutex->waiting, SIM_NEVER, "waits for the lock", mutex);
    mutex->owner = sim_current;
}

static void unlock(SimMutex *mutex)
{
    if (mutex->owner != sim_current)
        sim_fail("a thread unlocks what it has not locked");
    mutex->owner = NULL;
    if (mutex->waiting.first != NULL)
        sim_wake(sim_pick(&mutex->waiting));
}

WRAP(int, pthread_mutex_init, pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes)
{
    if (!sim_is_inside())
        return __real_pthread_mutex_init(mutex, attributes);
    memset(mutex, 0, sizeof *mutex);
    return 0;
}

WRAP(int, pthread_mutex_destroy, pthread_mutex_t *mutex)
{
    if (!sim_is_inside())
        return __real_pthread_mutex_destroy(mutex);
    const SimMutex *const self = (SimMutex *)mutex;
    if (self->owner != NULL || self->waiting.first != NULL)
        sim_fail("a lock is destroyed that somebody holds or waits for");
    return 0;
}

WRAP(int, pthread_mutex_lock, pthread_mutex_t *mutex)
{
    if (!sim_is_inside())
        return __real_pthread_mutex_lock(mutex);
    sim_may_give_way();
    lock((SimMutex *)mutex);
    return 0;
}

WRAP(int, pthread_mutex_trylock, pthread_mutex_t *mutex)
{
    if (!sim_is_inside())
        return __real_pthread_mutex_trylock(mutex);
    if (((SimMutex *)mutex)->owner != NULL)
        return EBUSY;
    lock((SimMutex *)mutex);
    return 0;
}

WRAP(int, pthread_mutex_unlock, pthread_mutex_t *mutex)
{
    if (!sim_is_inside())
        return __real_pthread_mutex_unlock(mutex);
    unlock((SimMutex *)mutex);
    sim_may_give_way();
    return 0;
}

WRAP(int, pthread_cond_init, pthread_cond_t *cond, const pthread_condattr_t *attributes)
{
    if (!sim_is_inside())
        return __real_pthread_cond_init(cond, attributes);
    memset(cond, 0, sizeof *cond);
    return 0;
}

WRAP(int, pthread_cond_destroy, pthread_cond_t *cond)
{
    if (!sim_is_inside())
        return __real_pthread_cond_destroy(cond);
    if (((SimQueue *)cond)->first != NULL)
        sim_fail("a condition is destroyed that somebody waits for");
    return 0;
}

static bool wait_for_cond(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t until_ns)
{
    bool woken = true;

    unlock((SimMutex *)mutex);
    if (sim_is_spurious())
        sim_give_way();
    else
        woken = sim_wait((SimQueue *)cond, until_ns, "waits for the condition", cond);
    lock((SimMutex *)mutex);
    return woken;
}

WRAP(int, pthread_cond_wait, pthread_cond_t *cond, pthread_mutex_t *mutex)
{
    if (!sim_is_inside())
        return __real_pthread_cond_wait(cond, mutex);
    (void)wait_for_cond(cond, mutex, SIM_NEVER);
    return 0;
}

WRAP(int, pthread_cond_timedwait, pthread_cond_t *cond, pthread_mutex_t *mutex,
     const struct timespec *end)
{
    if (!sim_is_inside())
        return __real_pthread_cond_timedwait(cond, mutex, end);
    return wait_for_cond(cond, mutex, ns_of(end)) ? 0 : ETIMEDOUT;
}

WRAP(int, pthread_cond_signal, pthread_cond_t *cond)
{
    if (!sim_is_inside())
        return __real_pthread_cond_signal(cond);
    if (((SimQueue *)cond)->first != NULL)
        sim_wake(sim_pick((SimQueue *)cond));
    return 0;
}

WRAP(int, pthread_cond_broadcast, pthread_cond_t *cond)
{
    if (!sim_is_inside())
        return __real_pthread_cond_broadcast(cond);
    while (((SimQueue *)cond)->first != NULL)
        sim_wake(((SimQueue *)cond)->first);
    return 0;
}

/* ---- futexes ---- */

static SimQueue futex_sleepers;

static long wait_for_word(const uint32_t *word, uint32_t expected, const struct timespec *timeout)
{
    sim_may_give_way();
    if (__atomic_load_n(word, __ATOMIC_SEQ_CST) != expected) {
        errno = EAGAIN;
        return -1;
    }
    if (sim_is_spurious()) {
        sim_give_way();
        return 0;
    }
    const int64_t until_ns = timeout == NULL ? SIM_NEVER : sim_now_ns() + ns_of(timeout);
    if (sim_wait(&futex_sleepers, until_ns, "sleeps on the futex", word))
        return 0;
    errno = ETIMEDOUT;
    return -1;
}

static long wake_sleepers(const uint32_t *word, uint32_t n)
{
    long n_woken = 0;

    for (SimThread *thread = futex_sleepers.first, *next; thread != NULL && n > 0; thread = next) {
        next = thread->next;
        if (thread->whom != word)
            continue;
        sim_wake(thread);
        n_woken++;
        n--;
    }
    sim_may_give_way();
    return n_woken;
}

/* Reads six arguments, as the kernel's entry does, although a caller may give fewer. What is beyond
 * them on its stack is not used; the address sanitizer would take it for a fault. */
__typeof__(syscall) __real_syscall, __wrap_syscall;
__attribute__((no_sanitize("address"))) long __wrap_syscall(long number, ...)
{
    va_list arguments;
    long values[6];

    va_start(arguments, number);
    for (int i = 0; i < 6; i++)
        values[i] = va_arg(arguments, long);
    va_end(arguments);
    if (!sim_is_inside() || number != SYS_futex)
        return __real_syscall(number, values[0], values[1], values[2], values[3], values[4],
                              values[5]);
    const uint32_t *const word = (const uint32_t *)(void *)(uintptr_t)values[0];
    switch ((int)values[1]) {
    case FUTEX_WAIT_PRIVATE:
        return wait_for_word(word, (uint32_t)values[2],
                             (const struct timespec *)(void *)(uintptr_t)values[3]);
    case FUTEX_WAKE_PRIVATE:
        return wake_sleepers(word, (uint32_t)values[2]);
    default:
        sim_fail("the simulation does not know operation %ld of futexes", values[1]);
    }
}

/* ---- time, chance, and who one is ---- */

WRAP(int, clock_gettime, clockid_t clock, struct timespec *time)
{
    if (!sim_is_inside())
        return __real_clock_gettime(clock, time);
    const int64_t now_ns = sim_now_ns();
    *time = (struct timespec){ .tv_sec = (time_t)(now_ns / (1000 * SIM_MS)),
                               .tv_nsec = (long)(now_ns % (1000 * SIM_MS)) };
    return 0;
}

WRAP(ssize_t, getrandom, void *bytes, size_t size, unsigned flags)
{
    if (!sim_is_inside())
        return __real_getrandom(bytes, size, flags);
    for (size_t i = 0; i < size; i++)
        ((uint8_t *)bytes)[i] = (uint8_t)sim_random();
    return (ssize_t)size;
}

WRAP(pid_t, getpid, void)
{
    return sim_is_inside() ? (pid_t)(1000 + sim_node()) : __real_getpid();
}

/* ---- descriptors ---- */

#define FIRST_FD (1 << 20)
#define MOST_FDS (8 * SIM_MOST_NODES)
#define MOST_WATCHED 16

typedef struct {
    int fd;
    uint32_t events;
} Watched;

typedef enum { FD_FREE, FD_EVENT, FD_EPOLL, FD_FLAG } FdKind;

typedef struct {
    FdKind kind;
    uint64_t count; /* of an eventfd; a flag: 0 or 1 */
    Watched watched[MOST_WATCHED];
    uint32_t n_watched;
} SimFd;

static SimFd fds[MOST_FDS];
static SimQueue pollers;

static SimFd *find_fd(int fd)
{
    if (fd < FIRST_FD || fd >= FIRST_FD + MOST_FDS)
        return NULL;
    if (fds[fd - FIRST_FD].kind == FD_FREE)
        sim_fail("descriptor %d is used, which is closed", fd);
    return &fds[fd - FIRST_FD];
}

static int new_fd(FdKind kind)
{
    for (int i = 0; i < MOST_FDS; i++)
        if (fds[i].kind == FD_FREE) {
            fds[i] = (SimFd){ .kind = kind };
            return FIRST_FD + i;
        }
    sim_fail("more than %d descriptors", MOST_FDS);
}

static bool is_readable(const SimFd *self)
{
    if (self->kind != FD_EPOLL)
        return self->count > 0;
    for (uint32_t i = 0; i < self->n_watched; i++)
        if ((self->watched[i].events & EPOLLIN) != 0 && is_readable(find_fd(self->watched[i].fd)))
            return true;
    return false;
}

static int count_readable(struct pollfd *polled, unsigned n)
{
    int n_readable = 0;

    for (unsigned i = 0; i < n; i++) {
        SimFd *const self = find_fd(polled[i].fd);
        polled[i].revents = (polled[i].events & POLLIN) && is_readable(self) ? POLLIN : 0;
        n_readable += polled[i].revents != 0;
    }
    return n_readable;
}

static void wake_pollers(void)
{
    for (SimThread *thread = pollers.first, *next; thread != NULL; thread = next) {
        next = thread->next;
        if (count_readable(thread->polled, thread->n_polled) > 0)
            sim_wake(thread);
    }
}

int sim_fd_new(void)
{
    return new_fd(FD_FLAG);
}

void sim_fd_set(int fd, bool readable)
{
    SimFd *const self = find_fd(fd);
    const bool news = readable && self->count == 0;

    self->count = readable ? 1 : 0;
    if (news)
        wake_pollers();
}

void sim_fd_close(int fd)
{
    SimFd *const self = find_fd(fd);

    self->kind = FD_FREE;
    for (int i = 0; i < MOST_FDS; i++) /* an epoll forgets what is closed */
        for (uint32_t j = 0; fds[i].kind == FD_EPOLL && j < fds[i].n_watched; j++)
            if (fds[i].watched[j].fd == fd)
                fds[i].watched[j--] = fds[i].watched[--fds[i].n_watched];
}

uint32_t sim_n_fds(void)
{
    uint32_t n = 0;

    for (int i = 0; i < MOST_FDS; i++)
        n += fds[i].kind != FD_FREE;
    return n;
}

WRAP(int, eventfd, unsigned count, int flags)
{
    if (!sim_is_inside())
        return __real_eventfd(count, flags);
    const int fd = new_fd(FD_EVENT);
    find_fd(fd)->count = count;
    return fd;
}

WRAP(int, epoll_create1, int flags)
{
    return sim_is_inside() ? new_fd(FD_EPOLL) : __real_epoll_create1(flags);
}

WRAP(int, epoll_ctl, int epoll, int operation, int fd, struct epoll_event *event)
{
    SimFd *const self = sim_is_inside() ? find_fd(epoll) : NULL;

    if (self == NULL)
        return __real_epoll_ctl(epoll, operation, fd, event);
    uint32_t i = 0;
    while (i < self->n_watched && self->watched[i].fd != fd)
        i++;
    if ((operation == EPOLL_CTL_ADD) != (i == self->n_watched) || i == MOST_WATCHED) {
        errno = EINVAL;
        return -1;
    }
    if (operation == EPOLL_CTL_DEL) {
        self->watched[i] = self->watched[--self->n_watched];
    } else {
        self->watched[i] = (Watched){ fd, event->events };
        self->n_watched += operation == EPOLL_CTL_ADD;
        wake_pollers();
    }
    return 0;
}

static int poll_until(struct pollfd *polled, nfds_t n, int64_t until_ns)
{
    int n_readable = count_readable(polled, (unsigned)n);
    if (n_readable > 0)
        return n_readable;
    if (until_ns <= sim_now_ns()) {
        sim_give_way();
        return count_readable(polled, (unsigned)n);
    }
    sim_current->polled = polled;
    sim_current->n_polled = (unsigned)n;
    (void)sim_wait(&pollers, until_ns, "polls", polled);
    return count_readable(polled, (unsigned)n);
}

WRAP(int, poll, struct pollfd *polled, nfds_t n, int timeout_ms)
{
    if (!sim_is_inside() || n == 0 || polled[0].fd < FIRST_FD)
        return __real_poll(polled, n, timeout_ms);
    sim_may_give_way();
    return poll_until(polled, n, timeout_ms < 0 ? SIM_NEVER : sim_now_ns() + timeout_ms * SIM_MS);
}

WRAP(int, ppoll, struct pollfd *polled, nfds_t n, const struct timespec *period,
     const sigset_t *signals)
{
    if (!sim_is_inside() || n == 0 || polled[0].fd < FIRST_FD)
        return __real_ppoll(polled, n, period, signals);
    sim_may_give_way();
    return poll_until(polled, n, sim_now_ns() + ns_of(period));
}

WRAP(ssize_t, read, int fd, void *bytes, size_t size)
{
    SimFd *const self = sim_is_inside() ? find_fd(fd) : NULL;

    if (self == NULL)
        return __real_read(fd, bytes, size);
    if (self->kind != FD_EVENT || size < sizeof self->count || self->count == 0) {
        errno = self->kind == FD_EVENT && self->count == 0 ? EAGAIN : EINVAL;
        return -1;
    }
    memcpy(bytes, &self->count, sizeof self->count);
    self->count = 0;
    return sizeof self->count;
}

WRAP(ssize_t, write, int fd, const void *bytes, size_t size)
{
    SimFd *const self = sim_is_inside() ? find_fd(fd) : NULL;
    uint64_t n;

    if (self == NULL)
        return __real_write(fd, bytes, size);
    if (self->kind != FD_EVENT || size < sizeof n) {
        errno = EINVAL;
        return -1;
    }
    memcpy(&n, bytes, sizeof n);
    self->count += n;
    wake_pollers();
    sim_may_give_way();
    return sizeof n;
}

WRAP(int, close, int fd)
{
    if (!sim_is_inside() || find_fd(fd) == NULL)
        return __real_close(fd);
    sim_fd_close(fd);
    return 0;
}
