/* A node's view of the clocks of a task: what it tells, what it hears, and its slowest worker. */
#include <glib.h>
#include <pthread.h>
#include <sched.h>

#include "io/net/monotonic.h"
#include "tables/clocks.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

#define RETIRED RUBATO_CLOCK_RETIRED

/* Node 1 of three, with the workers of ranks 2, 3 and 4; node 2 has one, 5. */
static void init(Clocks *clocks)
{
    static const uint32_t workers_of[] = { 2, 3, 1 };

    clocks_init(clocks, 1, 3, workers_of);
}

START_TEST(the_nodes_clock_moves_with_its_slowest_worker)
{
    Clocks clocks;
    NodeClock news;

    init(&clocks);
    ck_assert(!clocks_advance(&clocks, 2, 1, &news));
    ck_assert_uint_eq(news.clock, 0);
    ck_assert(!clocks_advance(&clocks, 2, 2, &news));
    ck_assert(!clocks_advance(&clocks, 4, 1, &news));
    ck_assert_uint_eq(news.clock, 0);
    ck_assert(clocks_advance(&clocks, 3, 3, &news));
    ck_assert_uint_eq(news.clock, 1);
    ck_assert_uint_eq(news.slowest, 4);
    ck_assert(clocks_advance(&clocks, 4, 2, &news));
    ck_assert_uint_eq(news.clock, 2);
    clocks_clear(&clocks);
}
END_TEST

START_TEST(retired_workers_hold_nobody_back)
{
    Clocks clocks;
    NodeClock news;

    init(&clocks);
    clocks_advance(&clocks, 2, 5, &news);
    clocks_advance(&clocks, 3, 7, &news);
    ck_assert(clocks_advance(&clocks, 4, RETIRED, &news));
    ck_assert_uint_eq(news.clock, 5);
    ck_assert_uint_eq(news.slowest, 2);
    ck_assert(!clocks_advance(&clocks, 3, RETIRED, &news));
    ck_assert(clocks_advance(&clocks, 2, RETIRED, &news));
    ck_assert_uint_eq(news.clock, RETIRED);
    clocks_clear(&clocks);
}
END_TEST

START_TEST(the_slowest_of_all_nodes_is_named)
{
    Clocks clocks;
    NodeClock news, slowest;
    uint32_t node = 99;

    init(&clocks);
    for (uint32_t rank = 2; rank <= 4; rank++)
        clocks_advance(&clocks, rank, 10 + rank, &news);
    clocks_hear(&clocks, 0, (NodeClock){ .clock = 20, .slowest = 1 });
    clocks_hear(&clocks, 2, (NodeClock){ .clock = 11, .slowest = 5 });
    ck_assert(clocks_slowest(&clocks, &slowest, &node));
    ck_assert_uint_eq(slowest.clock, 11);
    ck_assert_uint_eq(slowest.slowest, 5);
    ck_assert_uint_eq(node, 2);
    clocks_hear(&clocks, 2, (NodeClock){ .clock = RETIRED });
    ck_assert(clocks_slowest(&clocks, &slowest, &node));
    ck_assert_uint_eq(slowest.clock, 12);
    ck_assert_uint_eq(slowest.slowest, 2);
    ck_assert_uint_eq(node, 1);
    clocks_clear(&clocks);
}
END_TEST

START_TEST(old_news_and_news_of_itself_are_ignored)
{
    Clocks clocks;
    NodeClock slowest;
    uint32_t node;

    init(&clocks);
    clocks_hear(&clocks, 0, (NodeClock){ .clock = 4, .slowest = 0 });
    clocks_hear(&clocks, 0, (NodeClock){ .clock = 3, .slowest = 1 });
    clocks_hear(&clocks, 2, (NodeClock){ .clock = 9, .slowest = 5 });
    clocks_hear(&clocks, 1, (NodeClock){ .clock = 50, .slowest = 3 });
    ck_assert(clocks_slowest(&clocks, &slowest, &node));
    ck_assert_uint_eq(node, 1);
    ck_assert_uint_eq(slowest.clock, 0);
    for (uint32_t rank = 2; rank <= 4; rank++)
        clocks_advance(&clocks, rank, RETIRED, &(NodeClock){ 0 });
    ck_assert(clocks_slowest(&clocks, &slowest, &node));
    ck_assert_uint_eq(node, 0);
    ck_assert_uint_eq(slowest.clock, 4);
    ck_assert_uint_eq(slowest.slowest, 0);
    clocks_clear(&clocks);
}
END_TEST

/* A common clock says that the others have reached it, and which worker is the slowest. */
START_TEST(a_common_clock_counts_for_each_other_node)
{
    Clocks clocks;
    NodeClock news, slowest;
    uint32_t node;

    init(&clocks);
    for (uint32_t rank = 2; rank <= 4; rank++)
        clocks_advance(&clocks, rank, 7, &news);
    clocks_hear(&clocks, 0, (NodeClock){ .clock = 9, .slowest = 0 });
    clocks_hear_common(&clocks, (NodeClock){ .clock = 7, .slowest = 5 });
    ck_assert(clocks_slowest(&clocks, &slowest, &node));
    ck_assert_uint_eq(slowest.clock, 7);
    ck_assert_uint_eq(slowest.slowest, 5); /* not this node's, which has the same clock */
    ck_assert_uint_eq(node, 2);
    clocks_hear_common(&clocks, (NodeClock){ .clock = 6, .slowest = 1 }); /* overtaken */
    ck_assert(clocks_slowest(&clocks, &slowest, &node));
    ck_assert_uint_eq(node, 2);
    clocks_hear(&clocks, 2, (NodeClock){ .clock = RETIRED });
    ck_assert(clocks_slowest(&clocks, &slowest, &node));
    ck_assert_uint_eq(slowest.clock, 7);
    ck_assert_uint_eq(node, 1);
    clocks_hear_common(&clocks, (NodeClock){ .clock = 8, .slowest = 99 }); /* of no worker */
    clocks_clear(&clocks);
}
END_TEST

typedef struct {
    unsigned n;
    NodeClock last;
    bool leaves_one_out;
} Spread;

static bool note_spread(void *user, NodeClock common)
{
    Spread *const spread = user;

    spread->n++;
    spread->last = common;
    return !spread->leaves_one_out;
}

START_TEST(the_common_clock_is_spread_once_when_the_lowest_has_gone_up)
{
    Clocks clocks;
    NodeClock news;
    Spread spread = { 0 };

    init(&clocks);
    clocks_hear(&clocks, 0, (NodeClock){ .clock = 3, .slowest = 0 });
    clocks_spread(&clocks, CLOCKS_HIGHER, note_spread, &spread);
    for (uint32_t rank = 2; rank <= 4; rank++)
        clocks_advance(&clocks, rank, 2, &news);
    clocks_spread(&clocks, CLOCKS_HIGHER, note_spread, &spread);
    ck_assert_uint_eq(spread.n, 0); /* node 2 is at 0 */
    clocks_hear(&clocks, 2, (NodeClock){ .clock = 4, .slowest = 5 });
    clocks_spread(&clocks, CLOCKS_HIGHER, note_spread, &spread);
    clocks_spread(&clocks, CLOCKS_HIGHER, note_spread, &spread);
    ck_assert_uint_eq(spread.n, 1);
    ck_assert_uint_eq(spread.last.clock, 2);
    ck_assert_uint_ge(spread.last.slowest, 2); /* one of this node's */
    ck_assert_uint_le(spread.last.slowest, 4);
    for (uint32_t rank = 2; rank <= 4; rank++)
        clocks_advance(&clocks, rank, RETIRED, &news);
    clocks_hear(&clocks, 0, (NodeClock){ .clock = RETIRED });
    ck_assert(!clocks_all_have_retired(&clocks));
    clocks_hear(&clocks, 2, (NodeClock){ .clock = RETIRED });
    clocks_spread(&clocks, CLOCKS_HIGHER, note_spread, &spread);
    clocks_spread(&clocks, CLOCKS_NEWS, note_spread, &spread);
    ck_assert_uint_eq(spread.n, 2);
    ck_assert_uint_eq(spread.last.clock, RETIRED);
    ck_assert(clocks_all_have_retired(&clocks));
    clocks_clear(&clocks);
}
END_TEST

START_TEST(news_are_another_slowest_worker_and_a_node_that_was_left_out)
{
    Clocks clocks;
    NodeClock news;
    Spread spread = { .leaves_one_out = true };

    init(&clocks);
    for (uint32_t rank = 2; rank <= 4; rank++)
        clocks_advance(&clocks, rank, 2, &news);
    clocks_hear(&clocks, 0, (NodeClock){ .clock = 2, .slowest = 1 });
    clocks_hear(&clocks, 2, (NodeClock){ .clock = 2, .slowest = 5 });
    clocks_spread(&clocks, CLOCKS_HIGHER, note_spread, &spread);
    ck_assert_uint_eq(spread.n, 1);
    ck_assert_uint_eq(spread.last.slowest, 1);
    clocks_spread(&clocks, CLOCKS_HIGHER, note_spread, &spread);
    ck_assert_uint_eq(spread.n, 1);
    spread.leaves_one_out = false;
    clocks_spread(&clocks, CLOCKS_NEWS, note_spread, &spread);
    ck_assert_uint_eq(spread.n, 2);
    clocks_spread(&clocks, CLOCKS_NEWS, note_spread, &spread);
    ck_assert_uint_eq(spread.n, 2);
    clocks_hear(&clocks, 0, (NodeClock){ .clock = 3, .slowest = 1 });
    clocks_spread(&clocks, CLOCKS_HIGHER, note_spread, &spread);
    ck_assert_uint_eq(spread.n, 2);
    clocks_spread(&clocks, CLOCKS_NEWS, note_spread, &spread);
    ck_assert_uint_eq(spread.n, 3);
    ck_assert_uint_eq(spread.last.clock, 2);
    ck_assert_uint_ge(spread.last.slowest, 2);
    ck_assert_uint_le(spread.last.slowest, 4);
    clocks_clear(&clocks);
}
END_TEST

START_TEST(a_node_without_workers_holds_nobody_back)
{
    static const uint32_t workers_of[] = { 0, 1, 0 };
    Clocks clocks;
    NodeClock slowest;
    uint32_t node = 99;

    clocks_init(&clocks, 0, 3, workers_of);
    ck_assert_uint_eq(clocks_own(&clocks), RETIRED);
    ck_assert(clocks_slowest(&clocks, &slowest, &node));
    ck_assert_uint_eq(node, 1);
    ck_assert_uint_eq(slowest.clock, 0);
    clocks_clear(&clocks);
}
END_TEST

START_TEST(nobody_is_slowest_once_all_have_retired)
{
    static const uint32_t workers_of[] = { 0, 1, 0 };
    Clocks clocks;
    NodeClock news, slowest;
    uint32_t node;

    clocks_init(&clocks, 1, 3, workers_of);
    ck_assert(clocks_slowest(&clocks, &slowest, &node));
    ck_assert_uint_eq(node, 1);
    ck_assert(clocks_advance(&clocks, 0, RETIRED, &news));
    ck_assert(!clocks_slowest(&clocks, &slowest, &node));
    clocks_clear(&clocks);
}
END_TEST

/* The node's clock stays, but the worker that others would name has clocked. */
START_TEST(the_workers_of_a_lost_node_hold_nobody_back)
{
    Clocks clocks;
    NodeClock slowest;
    uint32_t node;

    init(&clocks);
    clocks_hear(&clocks, 0, (NodeClock){ .clock = 2, .slowest = 1 });
    clocks_lose(&clocks, 0);
    clocks_hear(&clocks, 0, (NodeClock){ .clock = 3, .slowest = 1 }); /* it was under way */
    clocks_lose(&clocks, 1);                                          /* not itself */
    ck_assert(clocks_slowest(&clocks, &slowest, &node));
    ck_assert_uint_eq(slowest.clock, 0);
    ck_assert_uint_eq(node, 1);
    clocks_lose(&clocks, 2);
    for (uint32_t rank = 2; rank < 5; rank++)
        clocks_advance(&clocks, rank, RETIRED, &slowest);
    ck_assert(!clocks_slowest(&clocks, &slowest, &node));
    clocks_clear(&clocks);
}
END_TEST

START_TEST(another_slowest_worker_is_news)
{
    Clocks clocks;
    NodeClock news;

    init(&clocks);
    ck_assert(!clocks_has_news(&clocks, &news));
    clocks_advance(&clocks, 2, 1, &news);
    ck_assert(clocks_has_news(&clocks, &news));
    ck_assert_uint_eq(news.clock, 0);
    ck_assert_uint_eq(news.slowest, 3);
    ck_assert(!clocks_has_news(&clocks, &news));
    clocks_advance(&clocks, 3, RETIRED, &news);
    clocks_advance(&clocks, 4, RETIRED, &news);
    ck_assert(!clocks_has_news(&clocks, &news)); /* it was told with the clock */
    clocks_advance(&clocks, 2, RETIRED, &news);
    ck_assert(!clocks_has_news(&clocks, &news));
    clocks_clear(&clocks);
}
END_TEST

START_TEST(what_servers_were_told_does_not_go_back)
{
    Clocks clocks;

    init(&clocks);
    ck_assert_uint_eq(clocks_told(&clocks), 0);
    clocks_tell(&clocks, 5);
    clocks_tell(&clocks, 3); /* overtaken on its way */
    ck_assert_uint_eq(clocks_told(&clocks), 5);
    clocks_tell(&clocks, RETIRED);
    ck_assert_uint_eq(clocks_told(&clocks), RETIRED);
    clocks_clear(&clocks);
}
END_TEST

START_TEST(a_clock_is_awaited_until_servers_are_told_it)
{
    Clocks clocks;
    NodeClock news;

    init(&clocks);
    ck_assert(!clocks_are_awaited(&clocks));
    ck_assert_uint_eq(clocks_await(&clocks, 2), 0);
    ck_assert_uint_eq(clocks_await(&clocks, 1), 0);
    ck_assert(clocks_are_awaited(&clocks));
    for (uint32_t rank = 2; rank < 5; rank++)
        clocks_advance(&clocks, rank, 1, &news);
    clocks_tell(&clocks, news.clock);
    ck_assert(clocks_are_awaited(&clocks));
    for (uint32_t rank = 2; rank < 5; rank++)
        clocks_advance(&clocks, rank, 2, &news);
    clocks_tell(&clocks, news.clock);
    ck_assert(!clocks_are_awaited(&clocks));
    ck_assert_uint_eq(clocks_await(&clocks, 2), 2);
    ck_assert(!clocks_are_awaited(&clocks));
    clocks_clear(&clocks);
}
END_TEST

/* ---- against a plain reference ---- */

START_TEST(a_thousand_steps_agree_with_a_plain_minimum)
{
    enum { N_WORKERS = 7 };
    const uint32_t workers_of[] = { N_WORKERS };
    uint64_t plain[N_WORKERS] = { 0 };
    uint64_t random = (uint64_t)_i, told = 0;
    Clocks clocks;

    clocks_init(&clocks, 0, 1, workers_of);
    for (int step = 0; step < 1000; step++) {
        const uint32_t rank = random_below(&random, N_WORKERS);
        uint64_t minimum = RETIRED;
        NodeClock news;
        bool moved;

        if (plain[rank] == RETIRED)
            continue;
        plain[rank] =
            random_below(&random, 150) == 0 ? RETIRED : plain[rank] + 1 + random_below(&random, 2);
        for (uint32_t i = 0; i < N_WORKERS; i++)
            minimum = MIN(minimum, plain[i]);
        moved = clocks_advance(&clocks, rank, plain[rank], &news);
        ck_assert_uint_eq(news.clock, minimum);
        ck_assert(moved == (minimum != told));
        if (minimum != RETIRED)
            ck_assert_uint_eq(plain[news.slowest], moved ? minimum : plain[news.slowest]);
        told = minimum;
    }
    clocks_clear(&clocks);
}
END_TEST

/* ---- threads ---- */

enum { N_THREADS = 3, N_CLOCKS = 2000 };

typedef struct {
    Clocks *clocks;
    uint32_t rank;
    uint64_t n_moved;
    uint64_t backwards;
} Ticker;

static void *tick(void *user)
{
    Ticker *ticker = user;
    uint64_t last = 0;

    for (uint64_t clock = 1; clock <= N_CLOCKS; clock++) {
        NodeClock news;

        if (!clocks_advance(ticker->clocks, ticker->rank, clock, &news))
            continue;
        ticker->n_moved++;
        ticker->backwards += news.clock <= last;
        last = news.clock;
    }
    return NULL;
}

START_TEST(each_move_of_the_nodes_clock_is_told_by_one_worker)
{
    const uint32_t workers_of[] = { N_THREADS };
    Clocks clocks;
    Ticker tickers[N_THREADS];
    pthread_t threads[N_THREADS];
    uint64_t n_moved = 0;

    clocks_init(&clocks, 0, 1, workers_of);
    for (uint32_t i = 0; i < N_THREADS; i++) {
        tickers[i] = (Ticker){ .clocks = &clocks, .rank = i };
        pthread_create(&threads[i], NULL, tick, &tickers[i]);
    }
    for (uint32_t i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
        n_moved += tickers[i].n_moved;
        ck_assert_uint_eq(tickers[i].backwards, 0);
    }
    ck_assert_uint_eq(n_moved, N_CLOCKS);
    clocks_clear(&clocks);
}
END_TEST

/* Workers as under lazy clocks: a worker that is too early waits until the clock is told. */
static void *run_awaiting(void *user)
{
    Ticker *ticker = user;
    Clocks *clocks = ticker->clocks;

    for (uint64_t clock = 1; clock <= N_CLOCKS; clock++) {
        NodeClock news;

        if (clocks_advance(clocks, ticker->rank, clock, &news) && clocks_are_awaited(clocks))
            clocks_tell(clocks, news.clock);
        if (clocks_own(clocks) < clock && clocks_await(clocks, clock) < clock)
            while (clocks_told(clocks) < clock)
                sched_yield();
    }
    return NULL;
}

/* A worker that was not told would wait for ever. */
START_TEST(whoever_awaits_a_clock_is_told)
{
    const uint32_t workers_of[] = { N_THREADS };
    Clocks clocks;
    Ticker tickers[N_THREADS];
    pthread_t threads[N_THREADS];

    clocks_init(&clocks, 0, 1, workers_of);
    for (uint32_t i = 0; i < N_THREADS; i++) {
        tickers[i] = (Ticker){ .clocks = &clocks, .rank = i };
        pthread_create(&threads[i], NULL, run_awaiting, &tickers[i]);
    }
    for (uint32_t i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    ck_assert_uint_eq(clocks_own(&clocks), N_CLOCKS);
    clocks_clear(&clocks);
}
END_TEST

/* ---- workers that stay close together, as under a bound ---- */

enum { BOUND = 1, N_CLOSE = 200000, MOST_MS = 2000, MOST_MS_SLOWLY = 700 };

typedef struct {
    Clocks *clocks;
    uint32_t rank;
    _Atomic uint64_t *begun; /* of each worker: the clock that it is about to come to */
    _Atomic uint64_t *last;  /* with which they end */
    int64_t end_ms;
    uint64_t n_beyond; /* times that the node's clock was past a worker's */
} Runner;

/* If each step costs a context switch, there are fewer steps. No worker is so far ahead that it is
 * past the last clock when it hears of it. */
static void end_in_time(Runner *runner, uint64_t clock)
{
    uint64_t last = N_CLOSE;

    if (clock % 64 == 0 && monotonic_ms() >= runner->end_ms)
        (void)atomic_compare_exchange_strong(runner->last, &last, MIN(last, clock + 64));
}

static void *run_close(void *user)
{
    Runner *runner = user;

    for (uint64_t clock = 1; clock <= atomic_load(runner->last); clock++) {
        NodeClock news;

        end_in_time(runner, clock);
        while (clocks_own(runner->clocks) + BOUND + 1 < clock)
            sched_yield();
        atomic_store(&runner->begun[runner->rank], clock);
        (void)clocks_advance(runner->clocks, runner->rank, clock, &news);
        for (uint32_t i = 0; i < N_THREADS; i++)
            runner->n_beyond += atomic_load(&runner->begun[i]) < news.clock;
    }
    return NULL;
}

START_TEST(the_nodes_clock_is_never_past_a_workers)
{
    const uint32_t workers_of[] = { N_THREADS };
    Clocks clocks;
    _Atomic uint64_t begun[N_THREADS] = { 0 }, last = N_CLOSE;
    const int64_t end_ms = monotonic_ms() + (is_slow() ? MOST_MS_SLOWLY : MOST_MS);
    Runner runners[N_THREADS];
    pthread_t threads[N_THREADS];

    clocks_init(&clocks, 0, 1, workers_of);
    for (uint32_t i = 0; i < N_THREADS; i++) {
        runners[i] = (Runner){
            .clocks = &clocks, .rank = i, .begun = begun, .last = &last, .end_ms = end_ms
        };
        pthread_create(&threads[i], NULL, run_close, &runners[i]);
    }
    for (uint32_t i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
        ck_assert_uint_eq(runners[i].n_beyond, 0);
    }
    ck_assert_uint_eq(clocks_own(&clocks), atomic_load(&last));
    clocks_clear(&clocks);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("clocks");
    TCase *cases = tcase_create("clocks");

    tcase_add_test(cases, the_nodes_clock_moves_with_its_slowest_worker);
    tcase_add_test(cases, retired_workers_hold_nobody_back);
    tcase_add_test(cases, the_slowest_of_all_nodes_is_named);
    tcase_add_test(cases, old_news_and_news_of_itself_are_ignored);
    tcase_add_test(cases, a_common_clock_counts_for_each_other_node);
    tcase_add_test(cases, the_common_clock_is_spread_once_when_the_lowest_has_gone_up);
    tcase_add_test(cases, news_are_another_slowest_worker_and_a_node_that_was_left_out);
    tcase_add_test(cases, a_node_without_workers_holds_nobody_back);
    tcase_add_test(cases, nobody_is_slowest_once_all_have_retired);
    tcase_add_test(cases, the_workers_of_a_lost_node_hold_nobody_back);
    tcase_add_test(cases, another_slowest_worker_is_news);
    tcase_add_test(cases, what_servers_were_told_does_not_go_back);
    tcase_add_test(cases, a_clock_is_awaited_until_servers_are_told_it);
    tcase_add_loop_test(cases, a_thousand_steps_agree_with_a_plain_minimum, 0, 20);
    tcase_add_test(cases, each_move_of_the_nodes_clock_is_told_by_one_worker);
    tcase_add_loop_test(cases, whoever_awaits_a_clock_is_told, 0, 5);
    tcase_add_loop_test(cases, the_nodes_clock_is_never_past_a_workers, 0, 3);
    tcase_set_timeout(cases, 20);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
