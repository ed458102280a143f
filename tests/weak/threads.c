/* The threads of an execution, and what they wait for: mutexes, conditions, futexes, descriptors.
 *
 * Each is a context with a stack of its own. A thread runs until it comes to an operation and the
 * choice is another thread, or until it has to wait. If all wait, the execution has failed: whoever
 * should have woken one of them has not. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <ucontext.h>

#include "tests/weak/checker.h"

enum { STACK_BYTES = 128 << 10, MOST_LOCKS = 16, MOST_FDS = 16, FIRST_FD = 1000, LONG_MS = 1000 };

typedef struct {
    ucontext_t context;
    char *stack;
    char name[16];
    void *(*run)(void *user);
    void *user;
    View view;
    bool ended;
    bool gives_way;       /* until another has done something */
    bool has_timeout;     /* it waits in a poll that would end */
    const char *waits_on; /* NULL: it can go on; else what for */
    const void *waited;   /* the object of it */
} Thread;

/* A mutex, a condition; what an unlock or a write has made known. */
typedef struct {
    const void *address;
    bool is_locked;
    View view;
} Lock;

typedef struct {
    bool is_epoll;
    uint64_t count; /* of an eventfd */
    View view;
    struct {
        int fd;
        bool is_watched;
    } members[MOST_FDS]; /* of an epoll */
    unsigned n_members;
} Descriptor;

static Thread threads[WEAK_THREADS];
static unsigned n_threads, present;
static Lock locks[MOST_LOCKS];
static unsigned n_locks;
static Descriptor descriptors[MOST_FDS];
static unsigned n_descriptors;

static ucontext_t outside;
static bool is_running;
static const WeakCase *running;
static unsigned n_steps;
static bool time_passes;
static int64_t now_ms;
static const void *last_done; /* see thread_step_again */
static unsigned last_doer;
static char failure[256];

View *thread_view(void)
{
    return &threads[present].view;
}

unsigned thread_number(void)
{
    return present;
}

const char *thread_name(void)
{
    return threads[present].name;
}

bool thread_is_running(void)
{
    return is_running;
}

_Noreturn void weak_fail(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(failure, sizeof failure, format, arguments);
    va_end(arguments);
    story_add("%s\n", failure);
    if (!is_running)
        abort();
    setcontext(&outside);
    abort();
}

/* ---- who goes next ---- */

static bool can_run(unsigned i)
{
    return !threads[i].ended && threads[i].waits_on == NULL;
}

static _Noreturn void fail_for_nobody_runs(void)
{
    char text[200] = "";

    for (unsigned i = 0; i < n_threads; i++)
        if (!threads[i].ended) {
            const size_t at = strlen(text);
            (void)snprintf(text + at, sizeof text - at, "%s%s waits for %s", at == 0 ? "" : ", ",
                           threads[i].name, threads[i].waits_on);
        }
    weak_fail("nobody can go on: %s", text);
}

static void go_to(unsigned next)
{
    const unsigned before = present;

    if (next == before)
        return;
    present = next;
    swapcontext(&threads[before].context, &threads[next].context);
}

/* Those that can go on, the present thread first; those that give way only if there are no
 * others. */
static unsigned list_runnable(unsigned runnable[WEAK_THREADS], bool also_giving_way)
{
    unsigned n = 0;

    for (unsigned i = 0; i < n_threads; i++) {
        const unsigned at = (present + i) % n_threads;
        if (can_run(at) && (also_giving_way || !threads[at].gives_way))
            runnable[n++] = at;
    }
    return n;
}

/* All polls end that would. False: there is none, or time stands still. */
static bool pass_time(void)
{
    bool is_some = false;

    for (unsigned i = 0; i < n_threads && time_passes; i++)
        if (!threads[i].ended && threads[i].waits_on != NULL && threads[i].has_timeout) {
            threads[i].waits_on = NULL;
            is_some = true;
        }
    now_ms += is_some ? LONG_MS : 0;
    return is_some;
}

int64_t weak_now_ms(void)
{
    return now_ms;
}

void weak_let_time_pass(void)
{
    time_passes = true;
}

void weak_stop_time(void)
{
    time_passes = false;
}

static void pick_next(void)
{
    unsigned runnable[WEAK_THREADS];
    unsigned n = list_runnable(runnable, false);

    if (n == 0)
        n = list_runnable(runnable, true);
    if (n == 0 && pass_time())
        n = list_runnable(runnable, true);
    if (n == 0)
        fail_for_nobody_runs();
    go_to(runnable[n == 1 ? 0 : choose(CHOICE_THREAD, n)]);
}

static void note_step(void)
{
    for (unsigned i = 0; i < n_threads; i++)
        if (i != present)
            threads[i].gives_way = false;
}

void thread_step_again(const void *what)
{
    if (++n_steps > WEAK_STEPS)
        weak_fail("no end after %d steps", WEAK_STEPS);
    if (what == NULL || what != last_done || last_doer != present)
        pick_next();
    last_done = what;
    last_doer = present;
    note_step();
}

void thread_step(void)
{
    thread_step_again(NULL);
}

void weak_yield(void)
{
    if (!is_running)
        return;
    threads[present].gives_way = true;
    pick_next();
    threads[present].gives_way = false;
}

static void wait_for(const char *what, const void *object)
{
    threads[present].waits_on = what;
    threads[present].waited = object;
    pick_next();
}

/* Up to n threads that wait for the object can go on. */
static void wake(const char *what, const void *object, int n)
{
    for (unsigned i = 0; i < n_threads && n > 0; i++)
        if (threads[i].waits_on == what && threads[i].waited == object) {
            threads[i].waits_on = NULL;
            n--;
        }
}

static const char *const for_end = "the end of a thread", *const for_mutex = "a mutex",
                         *const for_condition = "a condition", *const for_futex = "a futex",
                         *const for_descriptor = "a descriptor";

/* ---- threads ---- */

static void run_thread(void)
{
    Thread *const self = &threads[present];

    (void)self->run(self->user);
    self->ended = true;
    self->view.clock[present]++;
    story_add("%-8s ends\n", self->name);
    wake(for_end, self, WEAK_THREADS);
    if (present == 0) {
        is_running = false;
        setcontext(&outside);
    }
    pick_next();
    abort(); /* nobody comes back to it */
}

static unsigned add_thread(const char *name, void *(*run)(void *user), void *user)
{
    if (n_threads == WEAK_THREADS)
        weak_fail("more than %d threads", WEAK_THREADS);
    Thread *const thread = &threads[n_threads++];
    char *const stack = thread->stack != NULL ? thread->stack : malloc(STACK_BYTES);

    if (stack == NULL)
        abort();
    thread->stack = stack;
    (void)snprintf(thread->name, sizeof thread->name, "%s", name);
    thread->run = run;
    thread->user = user;
    thread->ended = thread->gives_way = thread->has_timeout = false;
    thread->waits_on = NULL;
    memset(&thread->view, 0, sizeof thread->view);
    for (unsigned i = 0; i < WEAK_THREADS; i++)
        thread->view.clock[i] = 0;
    thread->view.clock[n_threads - 1] = 1;
    getcontext(&thread->context);
    thread->context.uc_stack.ss_sp = stack;
    thread->context.uc_stack.ss_size = STACK_BYTES;
    thread->context.uc_link = NULL;
    makecontext(&thread->context, run_thread, 0);
    return n_threads - 1;
}

unsigned weak_start(const char *name, void *(*run)(void *user), void *user)
{
    const unsigned number = add_thread(name, run, user);

    view_join(&threads[number].view, thread_view());
    thread_view()->clock[present]++;
    return number;
}

void weak_join(unsigned number)
{
    thread_step();
    while (!threads[number].ended)
        wait_for(for_end, &threads[number]);
    view_join(thread_view(), &threads[number].view);
}

int weak_thread_create(pthread_t *thread, void *(*run)(void *user), void *user);
int weak_thread_join(pthread_t thread);
int weak_thread_name(pthread_t thread, const char *name);

int weak_thread_create(pthread_t *thread, void *(*run)(void *user), void *user)
{
    *thread = weak_start("thread", run, user);
    return 0;
}

int weak_thread_join(pthread_t thread)
{
    weak_join((unsigned)thread);
    return 0;
}

int weak_thread_name(pthread_t thread, const char *name)
{
    (void)snprintf(threads[thread].name, sizeof threads[thread].name, "%s", name);
    return 0;
}

static void *run_case(void *user)
{
    (void)user;
    running->run();
    return NULL;
}

bool threads_run(const WeakCase *one, char *text, size_t text_bytes)
{
    volatile bool has_begun = false;

    n_threads = n_locks = n_descriptors = present = n_steps = 0;
    last_done = NULL;
    time_passes = false;
    now_ms = 0;
    running = one;
    *failure = '\0';
    memory_begin();
    races_begin();
    add_thread("main", run_case, NULL);
    is_running = true;
    getcontext(&outside); /* comes back here at the end, or from weak_fail */
    if (!has_begun) {
        has_begun = true;
        setcontext(&threads[0].context);
    }
    is_running = false;
    if (*failure == '\0')
        return true;
    (void)snprintf(text, text_bytes, "%s", failure);
    return false;
}

/* ---- mutexes and conditions ---- */

static Lock *find_lock(const void *address)
{
    for (unsigned i = 0; i < n_locks; i++)
        if (locks[i].address == address)
            return &locks[i];
    if (n_locks == MOST_LOCKS)
        weak_fail("more than %d mutexes and conditions", MOST_LOCKS);
    locks[n_locks] = (Lock){ .address = address };
    return &locks[n_locks++];
}

int weak_lock(pthread_mutex_t *mutex);
int weak_trylock(pthread_mutex_t *mutex);
int weak_unlock(pthread_mutex_t *mutex);
int weak_broadcast(pthread_cond_t *cond);
bool weak_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);

int weak_lock(pthread_mutex_t *mutex)
{
    Lock *const lock = find_lock(mutex);

    thread_step();
    while (lock->is_locked)
        wait_for(for_mutex, mutex);
    lock->is_locked = true;
    view_join(thread_view(), &lock->view);
    story_add("%-8s locks %p\n", thread_name(), (void *)mutex);
    return 0;
}

int weak_trylock(pthread_mutex_t *mutex)
{
    Lock *const lock = find_lock(mutex);

    thread_step();
    story_add("%-8s tries to lock %p\n", thread_name(), (void *)mutex);
    if (lock->is_locked)
        return EBUSY;
    lock->is_locked = true;
    view_join(thread_view(), &lock->view);
    return 0;
}

int weak_unlock(pthread_mutex_t *mutex)
{
    Lock *const lock = find_lock(mutex);

    if (!lock->is_locked)
        weak_fail("unlocks what is not locked");
    thread_step();
    lock->view = *thread_view();
    thread_view()->clock[present]++;
    lock->is_locked = false;
    wake(for_mutex, mutex, WEAK_THREADS);
    story_add("%-8s unlocks %p\n", thread_name(), (void *)mutex);
    return 0;
}

int weak_broadcast(pthread_cond_t *cond)
{
    thread_step();
    wake(for_condition, cond, WEAK_THREADS);
    story_add("%-8s broadcasts\n", thread_name());
    return 0;
}

bool weak_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
    Lock *const lock = find_lock(mutex);

    thread_step();
    story_add("%-8s unlocks and waits for a condition\n", thread_name());
    lock->view = *thread_view();
    thread_view()->clock[present]++;
    lock->is_locked = false;
    wake(for_mutex, mutex, WEAK_THREADS);
    wait_for(for_condition, cond);
    return weak_lock(mutex) == 0;
}

/* ---- futexes ---- */

void weak_futex_wait(_Atomic uint32_t *word, uint32_t expected);
void weak_futex_wake(_Atomic uint32_t *word, int n);

void weak_futex_wait(_Atomic uint32_t *word, uint32_t expected)
{
    thread_step();
    const uint64_t value = memory_kernel_load(word, sizeof *word);

    story_add("%-8s futex_wait: the word is %#llx, %#x expected: %s\n", thread_name(),
              (unsigned long long)value, expected, value == expected ? "sleeps" : "goes on");
    if (value == expected)
        wait_for(for_futex, word);
}

/* The word may be gone already: only its address counts. */
void weak_futex_wake(_Atomic uint32_t *word, int n)
{
    thread_step();
    memory_kernel_sees(word);
    wake(for_futex, word, n);
    story_add("%-8s futex_wake\n", thread_name());
}

/* ---- descriptors ---- */

int weak_eventfd(void);
int weak_epoll(void);
int weak_epoll_ctl(int epoll, int operation, int fd, const struct epoll_event *event);
int weak_poll(struct pollfd *polled, size_t n, int timeout_ms);
ssize_t weak_read(int fd, void *to, size_t size);
ssize_t weak_write(int fd, const void *from, size_t size);

static int add_descriptor(bool is_epoll)
{
    if (n_descriptors == MOST_FDS)
        weak_fail("more than %d descriptors", MOST_FDS);
    descriptors[n_descriptors] = (Descriptor){ .is_epoll = is_epoll };
    return FIRST_FD + (int)n_descriptors++;
}

static Descriptor *find_descriptor(int fd)
{
    if (fd < FIRST_FD || fd >= FIRST_FD + (int)n_descriptors)
        weak_fail("no such descriptor: %d", fd);
    return &descriptors[fd - FIRST_FD];
}

int weak_eventfd(void)
{
    return add_descriptor(/* is_epoll= */ false);
}

int weak_epoll(void)
{
    return add_descriptor(/* is_epoll= */ true);
}

static bool is_readable(int fd)
{
    const Descriptor *const self = find_descriptor(fd);

    if (!self->is_epoll)
        return self->count > 0;
    for (unsigned i = 0; i < self->n_members; i++)
        if (self->members[i].is_watched && is_readable(self->members[i].fd))
            return true;
    return false;
}

/* The kernel's lock of the descriptor orders who writes before who then reads or polls. */
static void take_view(int fd)
{
    view_join(thread_view(), &find_descriptor(fd)->view);
}

static void give_view(int fd)
{
    view_join(&find_descriptor(fd)->view, thread_view());
    thread_view()->clock[present]++;
}

int weak_epoll_ctl(int epoll, int operation, int fd, const struct epoll_event *event)
{
    Descriptor *const self = find_descriptor(epoll);

    thread_step();
    take_view(epoll);
    give_view(epoll);
    story_add("%-8s epoll_ctl: %d of %d is %swatched\n", thread_name(), fd, epoll,
              event->events != 0 ? "" : "not ");
    if (operation == EPOLL_CTL_ADD)
        self->members[self->n_members++].fd = fd;
    for (unsigned i = 0; i < self->n_members; i++)
        if (self->members[i].fd == fd)
            self->members[i].is_watched = event->events != 0;
    wake(for_descriptor, NULL, WEAK_THREADS);
    return 0;
}

static int count_readable(struct pollfd *polled, size_t n)
{
    int n_ready = 0;

    for (size_t i = 0; i < n; i++) {
        polled[i].revents = is_readable(polled[i].fd) ? POLLIN : 0;
        n_ready += polled[i].revents != 0;
        if (polled[i].revents != 0)
            take_view(polled[i].fd);
    }
    return n_ready;
}

int weak_poll(struct pollfd *polled, size_t n, int timeout_ms)
{
    const int64_t begun_ms = now_ms;
    int n_ready;

    thread_step();
    while ((n_ready = count_readable(polled, n)) == 0 && timeout_ms != 0 && now_ms == begun_ms) {
        story_add("%-8s polls and sleeps\n", thread_name());
        threads[present].has_timeout = timeout_ms > 0;
        wait_for(for_descriptor, NULL);
        threads[present].has_timeout = false;
    }
    story_add("%-8s polls: %d are readable\n", thread_name(), n_ready);
    return n_ready;
}

ssize_t weak_read(int fd, void *to, size_t size)
{
    Descriptor *const self = find_descriptor(fd);

    thread_step();
    take_view(fd);
    if (self->count == 0) {
        errno = EAGAIN;
        return -1;
    }
    memcpy(to, &self->count, sizeof self->count);
    self->count = 0;
    story_add("%-8s reads descriptor %d\n", thread_name(), fd);
    return (ssize_t)size;
}

ssize_t weak_write(int fd, const void *from, size_t size)
{
    uint64_t added;

    thread_step();
    memcpy(&added, from, sizeof added);
    find_descriptor(fd)->count += added;
    give_view(fd);
    wake(for_descriptor, NULL, WEAK_THREADS);
    story_add("%-8s writes descriptor %d\n", thread_name(), fd);
    return (ssize_t)size;
}
