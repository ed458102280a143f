/* Clocks: the node's clock moves when its slowest worker clocks, whichever worker moves it; a Get
 * that waits for it is told; an Add is sent before the clock that counts it. */
#include "tables/clocks.h"
#include "tests/weak/cases.h"

enum { WORKERS = 3, ROUNDS = 2 };

static Clocks clocks;
static uint64_t adds[WORKERS];      /* plain: how many each worker has sent */
static _Atomic uint64_t at_servers; /* the highest clock that they were told */

static void begin(uint32_t n_workers)
{
    const uint32_t workers_of[] = { n_workers };

    clocks_init(&clocks, 0, 1, workers_of);
    atomic_init(&at_servers, 0);
    for (unsigned i = 0; i < WORKERS; i++)
        adds[i] = 0;
}

static void tell(uint64_t clock)
{
    uint64_t told = atomic_load_explicit(&at_servers, memory_order_relaxed);

    while (told < clock &&
           !atomic_compare_exchange_strong_explicit(&at_servers, &told, clock, memory_order_relaxed,
                                                    memory_order_relaxed))
        ;
}

/* The worker that moves the node's clock has seen the Adds of all workers at earlier clocks. */
static void advance(uint32_t rank, uint64_t clock, uint32_t n_workers)
{
    NodeClock news;

    adds[rank]++;
    if (clocks_advance(&clocks, rank, clock, &news)) {
        for (uint32_t i = 0; i < n_workers; i++)
            if (clock == 1)
                weak_expect(adds[i] >= 1);
        tell(news.clock);
    }
}

static void *advance_once_of_two(void *rank)
{
    advance((uint32_t)(uintptr_t)rank, 1, 2);
    return NULL;
}

static void *advance_once_of_three(void *rank)
{
    advance((uint32_t)(uintptr_t)rank, 1, 3);
    return NULL;
}

static void *advance_twice(void *rank)
{
    NodeClock news;

    for (uint64_t clock = 1; clock <= ROUNDS; clock++)
        if (clocks_advance(&clocks, (uint32_t)(uintptr_t)rank, clock, &news))
            tell(news.clock);
    return NULL;
}

static void *retire(void *rank)
{
    NodeClock news;

    if (clocks_advance(&clocks, (uint32_t)(uintptr_t)rank, 1, &news))
        tell(news.clock);
    if (clocks_advance(&clocks, (uint32_t)(uintptr_t)rank, RUBATO_CLOCK_RETIRED, &news))
        tell(news.clock);
    return NULL;
}

/* All workers have reached `clock`: so has the node, and one of them has told it. */
static void end(uint64_t clock)
{
    weak_expect(clocks_own(&clocks) == clock);
    weak_expect(atomic_load_explicit(&at_servers, memory_order_relaxed) == clock);
    clocks_clear(&clocks);
}

static void two_workers(void)
{
    begin(2);
    const unsigned other = weak_start("worker 1", advance_once_of_two, (void *)1);
    advance_once_of_two((void *)0);
    weak_join(other);
    end(1);
}

static void three_workers(void)
{
    begin(3);
    const unsigned one = weak_start("worker 1", advance_once_of_three, (void *)1);
    const unsigned two = weak_start("worker 2", advance_once_of_three, (void *)2);
    advance_once_of_three((void *)0);
    weak_join(one);
    weak_join(two);
    end(1);
}

static void several_rounds(void)
{
    begin(2);
    const unsigned other = weak_start("worker 1", advance_twice, (void *)1);
    advance_twice((void *)0);
    weak_join(other);
    end(ROUNDS);
}

static void one_retires(void)
{
    begin(2);
    const unsigned other = weak_start("worker 1", retire, (void *)1);
    advance_twice((void *)0);
    weak_join(other);
    end(ROUNDS);
}

/* ---- lazy clocks ---- */

static _Atomic uint64_t
    at_server; /* the node's clock as the server knows it from Gets and tellings */

static void hear(uint64_t clock)
{
    uint64_t known = atomic_load_explicit(&at_server, memory_order_relaxed);

    while (known < clock &&
           !atomic_compare_exchange_strong_explicit(&at_server, &known, clock, memory_order_relaxed,
                                                    memory_order_relaxed))
        ;
}

/* As client_clock.c does: the worker that has moved the clock tells the servers if a Get waits. */
static void *advance_lazily(void *rank)
{
    NodeClock news;

    if (clocks_advance(&clocks, (uint32_t)(uintptr_t)rank, 1, &news) &&
        clocks_are_awaited(&clocks)) {
        hear(news.clock);
        clocks_tell(&clocks, news.clock);
    }
    return NULL;
}

static void awaited(void)
{
    begin(1);
    atomic_init(&at_server, 0);
    const unsigned worker = weak_start("worker 0", advance_lazily, (void *)0);
    hear(clocks_await(&clocks, 1));
    weak_join(worker);
    weak_expect(atomic_load_explicit(&at_server, memory_order_relaxed) == 1);
    clocks_clear(&clocks);
}

/* Two Gets of the same clock: the second relies on the clock that the first has brought. */
static void *await(void *unused)
{
    (void)unused;
    hear(clocks_await(&clocks, 1));
    return NULL;
}

static void awaited_by_two(void)
{
    begin(1);
    atomic_init(&at_server, 0);
    const unsigned worker = weak_start("worker 0", advance_lazily, (void *)0);
    const unsigned other = weak_start("get", await, NULL);
    await(NULL);
    weak_join(worker);
    weak_join(other);
    weak_expect(atomic_load_explicit(&at_server, memory_order_relaxed) == 1);
    clocks_clear(&clocks);
}

/* ---- what was told ---- */

static uint64_t sent; /* plain: the message that a server is sent before clocks_tell */

static void *tell_once(void *unused)
{
    (void)unused;
    sent = 1;
    clocks_tell(&clocks, 1);
    return NULL;
}

static void told(void)
{
    begin(1);
    sent = 0;
    const unsigned teller = weak_start("teller", tell_once, NULL);
    if (clocks_told(&clocks) == 1)
        weak_expect(sent == 1);
    weak_join(teller);
    clocks_clear(&clocks);
}

const WeakCase clocks_cases[] = {
    { "clocks_two_workers", two_workers },
    { "clocks_three_workers", three_workers },
    { "clocks_several_rounds", several_rounds },
    { "clocks_one_retires", one_retires },
    { "clocks_awaited", awaited },
    { "clocks_awaited_by_two", awaited_by_two },
    { "clocks_told", told },
    { NULL, NULL },
};
