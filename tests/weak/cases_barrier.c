/* Barriers: nobody goes on before all have come; then each sees what the others did before; nobody
 * that sleeps is forgotten, not even when the task is cancelled. */
#include "engine/task/barrier.h"
#include "tests/weak/cases.h"

enum { WORKERS = 3 };

static Barrier barrier;
static _Atomic bool cancelled;
static uint32_t did[WORKERS]; /* plain: written by each worker before a barrier, read behind it */

static void begin(uint32_t n_workers)
{
    barrier_init(&barrier, n_workers);
    atomic_init(&cancelled, false);
    for (unsigned i = 0; i < WORKERS; i++)
        did[i] = 0;
}

static bool is_cancelled(void)
{
    return atomic_load_explicit(&cancelled, memory_order_seq_cst);
}

static void wait_in(uint64_t round)
{
    while (!barrier_is_passed(&barrier, round) && !is_cancelled())
        barrier_sleep(&barrier, round, &cancelled, -1);
}

/* The first n_workers have done this before they came. */
static void expect_done(unsigned n_workers, uint32_t n)
{
    for (unsigned i = 0; i < n_workers; i++)
        weak_expect(did[i] == n);
}

/* Who completes the barrier sees what the others did: it asks servers for all that they sent. */
static void meet(unsigned n_workers, uint32_t n)
{
    uint64_t round;

    if (barrier_arrive(&barrier, &round)) {
        expect_done(n_workers, n);
        barrier_release(&barrier, round);
    }
    wait_in(round);
}

static void *meet_twice(void *number)
{
    const uintptr_t i = (uintptr_t)number;

    for (uint32_t n = 1; n <= 2; n++) {
        did[i] = n;
        meet(2, n);
        weak_expect(did[1 - i] == n);
        meet(2, n);
    }
    return NULL;
}

static void met_twice(void)
{
    begin(2);
    const unsigned other = weak_start("worker 1", meet_twice, (void *)1);
    (void)meet_twice((void *)0);
    weak_join(other);
    weak_expect(barrier_round(&barrier) == 4);
}

static void *retire(void *unused)
{
    uint64_t round;
    bool completes;

    (void)unused;
    did[2] = 1;
    weak_expect(barrier_retire(&barrier, &round, &completes) == 2);
    if (completes) {
        expect_done(3, 1);
        barrier_release(&barrier, round);
    }
    return NULL;
}

static void *meet_once(void *number)
{
    const uintptr_t i = (uintptr_t)number;

    did[i] = 1;
    meet(3, 1);
    expect_done(3, 1);
    return NULL;
}

/* The third one completes the barrier by not coming, or has gone before. */
static void left_alone(void)
{
    begin(3);
    const unsigned other = weak_start("worker 1", meet_once, (void *)1);
    const unsigned third = weak_start("worker 2", retire, NULL);
    (void)meet_once((void *)0);
    weak_join(other);
    weak_join(third);
}

static _Atomic bool told; /* by a process that nothing here orders */

static void *come_and_look(void *number)
{
    const uintptr_t i = (uintptr_t)number;
    uint64_t round;

    did[i] = 1;
    if (barrier_arrive(&barrier, &round))
        atomic_store_explicit(&told, true, memory_order_relaxed);
    if (barrier_is_passed(&barrier, round))
        expect_done(2, 1);
    return NULL;
}

static void *release_if_told(void *unused)
{
    (void)unused;
    if (atomic_load_explicit(&told, memory_order_relaxed))
        barrier_release(&barrier, 0);
    return NULL;
}

/* On several nodes: another thread releases, because another process has said so. */
static void released_by_another(void)
{
    begin(2);
    atomic_init(&told, false);
    const unsigned other = weak_start("worker 1", come_and_look, (void *)1);
    const unsigned releaser = weak_start("releaser", release_if_told, NULL);
    (void)come_and_look((void *)0);
    weak_join(other);
    weak_join(releaser);
}

static void *cancel(void *unused)
{
    (void)unused;
    atomic_store_explicit(&cancelled, true, memory_order_seq_cst);
    barrier_cancel(&barrier);
    return NULL;
}

static void cancelled_in_it(void)
{
    uint64_t round;

    begin(2);
    const unsigned other = weak_start("canceller", cancel, NULL);
    weak_expect(!barrier_arrive(&barrier, &round));
    wait_in(round);
    weak_expect(is_cancelled());
    weak_join(other);
}

/* A release may come when workers of a cancelled task retire: no count is lost. */
static void *release_late(void *unused)
{
    (void)unused;
    barrier_release(&barrier, 0);
    return NULL;
}

static void released_late(void)
{
    uint64_t round;
    bool completes;

    begin(2);
    weak_expect(!barrier_arrive(&barrier, &round));
    const unsigned other = weak_start("releaser", release_late, NULL);
    weak_expect(barrier_retire(&barrier, &round, &completes) == 1);
    weak_expect(barrier_retire(&barrier, &round, &completes) == 0);
    weak_join(other);
    weak_expect(barrier_n_live(&barrier) == 0);
}

const WeakCase barrier_cases[] = {
    { "barrier_met_twice", met_twice },
    { "barrier_left_alone", left_alone },
    { "barrier_released_by_another", released_by_another },
    { "barrier_cancelled_in_it", cancelled_in_it },
    { "barrier_released_late", released_late },
    { NULL, NULL },
};
