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

/* ---- whole Adds of two parts ---- */

static pthread_mutex_t tokens[2] = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER };
static uint64_t n_taken_of[2]; /* guarded by tokens */

static void begin_whole(uint32_t n_workers)
{
    const RubatoKey firsts[] = { 0, 1 };

    clocks_init(&clocks, 0, 1, &n_workers);
    adds = deferred_adds_new(2, n_workers, clocks_own_address(&clocks));
    weak_expect(deferred_adds_allow_whole(adds, firsts));
    n_taken_of[0] = n_taken_of[1] = 0;
}

/* Each Add has a key of each part. */
static void check_next_of(void *user, RubatoRequest *request)
{
    const uintptr_t part = (uintptr_t)user;
    const RubatoKeys *const keys = &request->keys;
    const uint64_t *const deltas = request->input;

    weak_expect(keys->n == 1 && keys->keys[keys->at[0]] == part);
    weak_expect(request->clock == n_taken_of[part]);
    weak_expect(deltas[keys->at[0]] == delta_of((uint32_t)part, request->clock));
    n_taken_of[part]++;
}

static void check_next_whole(void *unused, RubatoRequest *request)
{
    const uint64_t *const deltas = request->input;

    (void)unused;
    for (uint32_t part = 0; part < 2; part++) {
        weak_expect(request->clock == n_taken_of[part]++);
        weak_expect(deltas[part] == delta_of(part, request->clock));
    }
}

static void *add_whole(void *rank)
{
    static const RubatoKey keys[] = { 0, 1 };
    const uint32_t worker = (uint32_t)(uintptr_t)rank;

    for (uint64_t clock = 0; clock < ROUNDS; clock++) {
        const uint64_t deltas[] = { delta_of(0, clock), delta_of(1, clock) };
        const RubatoRequest request = {
            .worker = worker, .clock = clock, .keys = { .keys = keys, .n = 2 }, .input = deltas
        };
        NodeClock news;

        weak_expect(deferred_adds_push_whole(adds, &request, sizeof *deltas));
        clocks_advance(&clocks, worker, clock + 1, &news);
    }
    return NULL;
}

static void *bring_part(void *user)
{
    const uintptr_t part = (uintptr_t)user;

    pthread_mutex_lock(&tokens[part]);
    const uint64_t clock = deferred_adds_clock(adds);

    deferred_adds_take(adds, (uint32_t)part, clock, check_next_of, user);
    weak_expect(n_taken_of[part] >= clock);
    pthread_mutex_unlock(&tokens[part]);
    return NULL;
}

/* As a worker that is the owner of all. */
static void bring_both(void)
{
    pthread_mutex_lock(&tokens[0]);
    pthread_mutex_lock(&tokens[1]);
    const uint64_t clock = deferred_adds_clock(adds);
    const bool are_equal = n_taken_of[0] == n_taken_of[1];

    weak_expect(deferred_adds_take_whole(adds, clock, check_next_whole, NULL) == are_equal);
    weak_expect(!are_equal || n_taken_of[0] >= clock);
    pthread_mutex_unlock(&tokens[1]);
    pthread_mutex_unlock(&tokens[0]);
}

/* The worker goes on; the parts take its Adds each for itself and both at once. */
static void whole_adds(void)
{
    begin_whole(1);
    const unsigned worker = weak_start("worker 0", add_whole, NULL);
    const unsigned owner = weak_start("owner of part 1", bring_part, (void *)1);

    bring_part((void *)0);
    bring_both();
    bring_both();
    weak_join(owner);
    weak_join(worker);
    bring_part((void *)0);
    bring_part((void *)1);
    weak_expect(n_taken_of[0] == ROUNDS && n_taken_of[1] == ROUNDS);
    end();
}

static void check_next_of_two(void *unused, RubatoRequest *request)
{
    const uint64_t *const deltas = request->input;
    const uint64_t n = n_taken_of[0]++;

    (void)unused;
    weak_expect(request->clock == n / 2 && request->worker == n % 2);
    for (uint32_t part = 0; part < 2; part++)
        weak_expect(deltas[part] == delta_of(part, request->clock));
}

/* Each of two workers has its Adds of the clocks that have passed taken from both parts. */
static void take_turns_whole(void)
{
    for (uint32_t worker = 0; worker < 2; worker++) {
        pthread_mutex_lock(&tokens[0]);
        const uint64_t clock = deferred_adds_clock(adds);

        if (clock > 0) {
            const uint64_t end = deferred_adds_turn_of(adds, clock - 1, worker) + 1;

            weak_expect(deferred_adds_take_whole(adds, end, check_next_of_two, NULL));
            weak_expect(n_taken_of[0] >= end);
        }
        pthread_mutex_unlock(&tokens[0]);
    }
}

static void whole_adds_of_two(void)
{
    begin_whole(2);
    const unsigned first = weak_start("worker 0", add_whole, (void *)0);
    const unsigned second = weak_start("worker 1", add_whole, (void *)1);

    take_turns_whole();
    weak_join(first);
    weak_join(second);
    take_turns_whole();
    weak_expect(n_taken_of[0] == 2 * ROUNDS);
    end();
}

const WeakCase deferred_cases[] = {
    { "deferred_one_worker", one_worker },          { "deferred_two_workers", two_workers },
    { "deferred_borrowed", borrowed_adds },         { "deferred_whole", whole_adds },
    { "deferred_whole_of_two", whole_adds_of_two }, { NULL, NULL },
};
