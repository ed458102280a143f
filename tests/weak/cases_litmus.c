/* What the checker itself must allow and forbid: the litmus tests of the literature (Alglave,
 * Maranget, Tautschnig: TOPLAS 2014; Lahav et al., PLDI 2017), one for each rule of the model. */
#include "tests/weak/cases.h"

static _Atomic uint32_t x, y;
static uint32_t data, seen[4];

static void begin(void)
{
    atomic_init(&x, 0);
    atomic_init(&y, 0);
    data = 0;
    for (unsigned i = 0; i < 4; i++)
        seen[i] = 0;
}

static void run_two(void *(*one)(void *user), void *(*two)(void *user))
{
    const unsigned first = weak_start("one", one, NULL), second = weak_start("two", two, NULL);

    weak_join(first);
    weak_join(second);
}

#define THREAD(name)                \
    static void *name(void *unused) \
    {                               \
        (void)unused;

#define END      \
    return NULL; \
    }

/* ---- store buffering ---- */

THREAD(store_x_load_y)
atomic_store(&x, 1);
seen[0] = atomic_load(&y);
END

    THREAD(store_y_load_x) atomic_store(&y, 1);
seen[1] = atomic_load(&x);
END

    THREAD(store_y_load_x_acquire) atomic_store(&y, 1);
seen[1] = atomic_load_explicit(&x, memory_order_acquire);
END

    THREAD(release_y_load_x) atomic_store_explicit(&y, 1, memory_order_release);
seen[1] = atomic_load(&x);
END

    static void
    store_buffering(void)
{
    begin();
    run_two(store_x_load_y, store_y_load_x);
    weak_expect(seen[0] == 1 || seen[1] == 1);
}

static void store_buffering_with_an_acquire(void)
{
    begin();
    run_two(store_x_load_y, store_y_load_x_acquire);
    weak_expect(seen[0] == 1 || seen[1] == 1);
}

static void store_buffering_with_a_release(void)
{
    begin();
    run_two(store_x_load_y, release_y_load_x);
    weak_expect(seen[0] == 1 || seen[1] == 1);
}

/* ---- message passing ---- */

THREAD(pass)
data = 1;
atomic_store_explicit(&x, 1, memory_order_release);
END

    THREAD(pass_relaxed) data = 1;
atomic_store_explicit(&x, 1, memory_order_relaxed);
END

    THREAD(receive) if (atomic_load_explicit(&x, memory_order_acquire) == 1) weak_expect(data == 1);
END

    THREAD(receive_relaxed) if (atomic_load_explicit(&x, memory_order_relaxed) == 1)
        weak_expect(data == 1);
END

    static void
    message_passing(void)
{
    begin();
    run_two(pass, receive);
}

static void message_passing_without_release(void)
{
    begin();
    run_two(pass_relaxed, receive);
}

static void message_passing_without_acquire(void)
{
    begin();
    run_two(pass, receive_relaxed);
}

/* ---- release sequences: a read-modify-write passes on what it has read, a store does not ---- */

THREAD(add_one)
(void)atomic_fetch_add_explicit(&x, 1, memory_order_relaxed);
END

    THREAD(store_two) if (atomic_load_explicit(&x, memory_order_relaxed) == 1)
        atomic_store_explicit(&x, 2, memory_order_relaxed);
END

    THREAD(receive_two) if (atomic_load_explicit(&x, memory_order_acquire) == 2)
        weak_expect(data == 1);
END

    static void
    run_three(void *(*one)(void *user), void *(*two)(void *user), void *(*three)(void *user))
{
    const unsigned first = weak_start("one", one, NULL), second = weak_start("two", two, NULL);

    three(NULL);
    weak_join(first);
    weak_join(second);
}

static void release_sequence(void)
{
    begin();
    run_three(pass, add_one, receive_two);
}

static void no_release_sequence(void)
{
    begin();
    run_three(pass, store_two, receive_two);
}

/* ---- one object has one order, and a read-modify-write reads the newest ---- */

THREAD(write_one_and_two)
atomic_store_explicit(&x, 1, memory_order_relaxed);
atomic_store_explicit(&x, 2, memory_order_relaxed);
END

    THREAD(read_twice) seen[0] = atomic_load_explicit(&x, memory_order_relaxed);
seen[1] = atomic_load_explicit(&x, memory_order_relaxed);
weak_expect(seen[0] <= seen[1]);
END

    static void
    coherence(void)
{
    begin();
    run_two(write_one_and_two, read_twice);
    weak_expect(atomic_load_explicit(&x, memory_order_relaxed) == 2);
}

static void lost_update(void)
{
    begin();
    run_two(add_one, add_one);
    weak_expect(atomic_load_explicit(&x, memory_order_relaxed) == 2);
}

/* ---- two readers, two writers ---- */

THREAD(read_x_y)
seen[0] = atomic_load(&x);
seen[1] = atomic_load(&y);
END

    THREAD(read_y_x) seen[2] = atomic_load(&y);
seen[3] = atomic_load(&x);
END

    THREAD(read_x_y_acquire) seen[0] = atomic_load_explicit(&x, memory_order_acquire);
seen[1] = atomic_load_explicit(&y, memory_order_acquire);
END

    THREAD(read_y_x_acquire) seen[2] = atomic_load_explicit(&y, memory_order_acquire);
seen[3] = atomic_load_explicit(&x, memory_order_acquire);
END

    THREAD(write_x) atomic_store(&x, 1);
END

    THREAD(write_y) atomic_store(&y, 1);
END

    static void
    run_four(void *(*three)(void *user), void *(*four)(void *user))
{
    const unsigned first = weak_start("one", write_x, NULL);
    const unsigned second = weak_start("two", write_y, NULL);

    run_two(three, four);
    weak_join(first);
    weak_join(second);
    weak_expect(!(seen[0] == 1 && seen[1] == 0 && seen[2] == 1 && seen[3] == 0));
}

static void independent_reads(void)
{
    begin();
    run_four(read_x_y, read_y_x);
}

static void independent_reads_with_acquire(void)
{
    begin();
    run_four(read_x_y_acquire, read_y_x_acquire);
}

/* ---- what is relaxed does not order what is sequentially consistent ---- */

THREAD(store_x_and_flag)
atomic_store(&x, 1);
atomic_store_explicit(&y, 1, memory_order_relaxed);
END

    THREAD(store_x_and_release_flag) atomic_store(&x, 1);
atomic_store_explicit(&y, 1, memory_order_release);
END

    THREAD(load_flag_and_x) if (atomic_load_explicit(&y, memory_order_acquire) == 1)
        weak_expect(atomic_load(&x) == 1);
END

    static void
    relaxed_flag(void)
{
    begin();
    run_two(store_x_and_flag, load_flag_and_x);
}

static void released_flag(void)
{
    begin();
    run_two(store_x_and_release_flag, load_flag_and_x);
}

/* ---- sleeping ---- */

THREAD(sleep_on_x)
while (atomic_load_explicit(&x, memory_order_relaxed) == 0)
    futex_wait(&x, 0, -1);
END

    THREAD(wake_x) atomic_store_explicit(&x, 1, memory_order_relaxed);
futex_wake(&x, 1);
END

    THREAD(wake_x_too_early) futex_wake(&x, 1);
atomic_store_explicit(&x, 1, memory_order_relaxed);
END

    static void
    futex(void)
{
    begin();
    run_two(sleep_on_x, wake_x);
}

static void futex_woken_too_early(void)
{
    begin();
    run_two(sleep_on_x, wake_x_too_early);
}

/* ---- plain memory ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

THREAD(add_locked)
pthread_mutex_lock(&lock);
data++;
pthread_mutex_unlock(&lock);
END

    THREAD(add_unlocked) data++;
END

    static void
    locked(void)
{
    begin();
    run_two(add_locked, add_locked);
    weak_expect(data == 2);
}

static void unlocked(void)
{
    begin();
    run_two(add_locked, add_unlocked);
}

const WeakCase sound_litmus_cases[] = {
    { "store_buffering", store_buffering },
    { "message_passing", message_passing },
    { "release_sequence", release_sequence },
    { "coherence", coherence },
    { "lost_update", lost_update },
    { "independent_reads", independent_reads },
    { "released_flag", released_flag },
    { "futex", futex },
    { "locked", locked },
    { NULL, NULL },
};

const WeakCase unsound_litmus_cases[] = {
    { "store_buffering_with_an_acquire", store_buffering_with_an_acquire },
    { "store_buffering_with_a_release", store_buffering_with_a_release },
    { "message_passing_without_release", message_passing_without_release },
    { "message_passing_without_acquire", message_passing_without_acquire },
    { "no_release_sequence", no_release_sequence },
    { "independent_reads_with_acquire", independent_reads_with_acquire },
    { "relaxed_flag", relaxed_flag },
    { "futex_woken_too_early", futex_woken_too_early },
    { "unlocked", unlocked },
    { NULL, NULL },
};
