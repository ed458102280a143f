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

static void meet(void)
{
    uint64_t round;

    if (barrier_arrive(&barrier, &round))
        barrier_release(&barrier, round);
    wait_in(round);
}

static void *meet_twice(void *number)
{
    const uintptr_t i = (uintptr_t)number;

    for (uint32_t n = 1; n <= 2; n++) {
        did[i] = n;
        meet();
        weak_expect(did[1 - i] == n);
        meet();
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
    if (completes)
        barrier_release(&barrier, round);
    return NULL;
}

static void *meet_once(void *number)
{
    const uintptr_t i = (uintptr_t)number;

    did[i] = 1;
    meet();
    weak_expect(did[0] == 1 && did[1] == 1 && did[2] == 1);
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
    { "barrier_cancelled_in_it", cancelled_in_it },
    { "barrier_released_late", released_late },
    { NULL, NULL },
};
