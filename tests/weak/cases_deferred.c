/* Deferred Adds: whoever brings a clock finds all Adds of the clocks before, whole; a block is used
 * again only when its Add has been taken; Adds come in the order of clocks and workers. */
#include <pthread.h>

#include "io/net/deferred_adds.h"
#include "tables/clocks.h"
#include "tests/weak/cases.h"

enum { WORKERS = 2, ROUNDS = 3 };

static Clocks clocks;
static DeferredAdds *adds;
static pthread_mutex_t token = PTHREAD_MUTEX_INITIALIZER; /* as an actor's: one owner at a time */
static uint64_t n_taken;                                  /* guarded by token */

static void begin(uint32_t n_workers)
{
    const uint32_t workers_of[] = { n_workers };

    clocks_init(&clocks, 0, 1, workers_of);
    adds = deferred_adds_new(1, n_workers, clocks_own_address(&clocks));
    n_taken = 0;
}

static void end(void)
{
    deferred_adds_free(adds);
    clocks_clear(&clocks);
}

/* The delta names the worker and the clock. */
static uint64_t delta_of(uint32_t worker, uint64_t clock)
{
    return 100 * (worker + 1) + clock;
}

static void check_next(void *user, RubatoRequest *request)
{
    const uint64_t *n_workers = user;

    weak_expect(request->clock == n_taken / *n_workers);
    weak_expect(request->worker == n_taken % *n_workers);
    weak_expect(*(const uint64_t *)request->input == delta_of(request->worker, request->clock));
    n_taken++;
}

/* As a server does for a Get that has brought a clock. */
static void bring(uint64_t clock, uint64_t n_workers)
{
    pthread_mutex_lock(&token);
    deferred_adds_take(adds, 0, deferred_adds_turn_of(adds, clock, 0), check_next, &n_workers);
    weak_expect(n_taken >= clock * n_workers);
    pthread_mutex_unlock(&token);
}

static void add_and_clock(uint32_t worker, uint64_t clock)
{
    const uint64_t delta = delta_of(worker, clock);
    const RubatoRequest request = {
        .worker = worker, .clock = clock, .keys = { .n = 1 }, .input = &delta
    };
    NodeClock news;

    weak_expect(deferred_adds_push(adds, 0, &request, sizeof delta));
    clocks_advance(&clocks, worker, clock + 1, &news);
}

static void *add_alone(void *unused)
{
    (void)unused;
    for (uint64_t clock = 0; clock < ROUNDS; clock++)
        add_and_clock(0, clock);
    return NULL;
}

/* The owner goes after the worker, whose blocks it so gives back one by one. */
static void one_worker(void)
{
    begin(1);
    const unsigned worker = weak_start("worker 0", add_alone, NULL);
    for (int i = 0; i < ROUNDS; i++)
        bring(deferred_adds_clock(adds), 1);
    weak_join(worker);
    bring(ROUNDS, 1);
    end();
}

static void *add_and_bring(void *rank)
{
    for (uint64_t clock = 0; clock < 2; clock++) {
        add_and_clock((uint32_t)(uintptr_t)rank, clock);
        bring(clocks_own(&clocks), WORKERS);
    }
    return NULL;
}

/* Each worker brings the clock for both. */
static void two_workers(void)
{
    begin(WORKERS);
    const unsigned other = weak_start("worker 1", add_and_bring, (void *)1);
    add_and_bring((void *)0);
    weak_join(other);
    bring(2, WORKERS);
    weak_expect(n_taken == 2 * WORKERS);
    end();
}

static void check_and_change(void *user, RubatoRequest *request)
{
    uint64_t *const n_seen = user;
    uint64_t *const delta = (uint64_t *)(uintptr_t)request->input;

    weak_expect(request->worker == *n_seen);
    weak_expect(*delta == delta_of(request->worker, request->clock));
    *delta += 1000;
    (*n_seen)++;
}

static void check_changed(void *user, RubatoRequest *request)
{
    (void)user;
    weak_expect(*(const uint64_t *)request->input ==
                1000 + delta_of(request->worker, request->clock));
    n_taken++;
}

/* As a server whose model borrows the Adds of a clock, one clock after the other. */
static void borrow(uint64_t clock)
{
    pthread_mutex_lock(&token);
    while (n_taken < clock * WORKERS) {
        const uint64_t next = n_taken / WORKERS + 1;
        uint64_t n_seen = 0;

        deferred_adds_look(adds, 0, next, check_and_change, &n_seen);
        weak_expect(n_seen == WORKERS);
        deferred_adds_take(adds, 0, deferred_adds_turn_of(adds, next, 0), check_changed, NULL);
    }
    pthread_mutex_unlock(&token);
}

static void *add_and_borrow(void *rank)
{
    for (uint64_t clock = 0; clock < ROUNDS; clock++) {
        add_and_clock((uint32_t)(uintptr_t)rank, clock);
        borrow(clocks_own(&clocks));
    }
    return NULL;
}

/* The owner writes into blocks that it only looks at; their workers use them again. */
static void borrowed_adds(void)
{
    begin(WORKERS);
    const unsigned other = weak_start("worker 1", add_and_borrow, (void *)1);
    add_and_borrow((void *)0);
    weak_join(other);
    borrow(ROUNDS);
    weak_expect(n_taken == ROUNDS * WORKERS);
    end();
}

const WeakCase deferred_cases[] = {
    { "deferred_one_worker", one_worker },
    { "deferred_two_workers", two_workers },
    { "deferred_borrowed", borrowed_adds },
    { NULL, NULL },
};
