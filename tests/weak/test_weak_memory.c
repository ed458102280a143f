/* Memory orders: the cases hold under all that C11 allows, and each order of the sources is needed.
 *
 *     test_weak_memory                          the test
 *     test_weak_memory CASE SEED [PLACE]        prints the execution of a case and a seed; PLACE is
 *                                               a weakened order as the test names it
 *
 * RUBATO_WEAK_SEEDS: how many executions are drawn of each case (1,000); up to
 * twenty times as many where an order is made weaker and nothing has failed yet. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/runner.h"
#include "tests/weak/cases.h"

enum { MOST_CASES = 96, MOST_MUTANTS = 512, SHORTEST_TRY = 40, VISITS = 100 };

static const WeakCase *const groups[] = { actor_cases,   barrier_cases,  call_cases,
                                          clocks_cases,  deferred_cases, lent_cases,
                                          network_cases, part_map_cases, read_gate_cases,
                                          ring_cases,    sleepers_cases };

static const WeakCase *cases[MOST_CASES];
static size_t n_cases;
static bool visits[MOST_CASES][MOST_MUTANTS]; /* before anything is made weaker */
static uint64_t n_seeds = 1000;

/* Orders without which no case fails, and why they stand all the same. */
typedef struct {
    const char *file;
    const char *change; /* as weak_describe has it, behind the line's number */
    const char *reason;
} Exception;

static const Exception exceptions[] = {
    { "io/net/call.c", "compare_exchange &call->pending: acq_rel becomes release",
      "the load before it has acquired all that counts; but in C11 no exchange may have a failure "
      "order, here acquire, that is stronger than the other" },
    { "io/net/network/network_help.c", "exchange &network->helping: acquire becomes relaxed",
      "what it orders are calls of epoll_ctl, which the checker runs in one order" },
    { "io/net/network/network_help.c", "store &network->helping: release becomes relaxed",
      "what it orders are calls of epoll_ctl, which the checker runs in one order" },
    { "io/net/read_gate.h", "fetch_sub &seat->n: seq_cst becomes acq_rel",
      "who closes the gate sleeps only if the seat is as it was, and the checker's futex always "
      "compares with the newest value" },
    { "io/net/network/network_send.c", "exchange &peer->token: seq_cst becomes acq_rel",
      "ZeroMQ asks for a full fence where its sockets go from thread to thread" },
};

static const Exception *find_exception(const WeakMutant *mutant)
{
    for (size_t i = 0; i < sizeof exceptions / sizeof exceptions[0]; i++)
        if (strcmp(weak_short(mutant->site->file), exceptions[i].file) == 0 &&
            strstr(weak_describe(mutant), exceptions[i].change) != NULL)
            return &exceptions[i];
    return NULL;
}

static void list_cases(void)
{
    WeakFailure failure;

    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        for (const WeakCase *one = groups[i]; one->name != NULL; one++) {
            if (n_cases == MOST_CASES) {
                fprintf(stderr, "test_weak_memory: more than %d cases\n", MOST_CASES);
                exit(EXIT_FAILURE);
            }
            cases[n_cases++] = one;
        }
    for (size_t i = 0; i < n_cases; i++) {
        weak_forget_visits();
        (void)weak_try_seeds(cases[i], 1, VISITS, &failure);
        (void)weak_try_few(cases[i], 2, VISITS, &failure);
        for (size_t at = 0; at < weak_n_mutants(); at++)
            visits[i][at] = weak_was_visited(weak_mutant(at));
    }
}

/* ---- the checker itself ---- */

static bool finds_fault(const WeakCase *one, WeakFailure *failure)
{
    return !weak_try_few(one, 3, 20000, failure) || !weak_try_seeds(one, 1, n_seeds, failure);
}

/* The story goes to the error output: it is longer than a message of check may be. */
static void fail_with_story(const WeakCase *one, const WeakFailure *failure)
{
    char *const story = weak_tell(one);

    (void)fprintf(stderr, "---- %s ----\n%s", one->name, story);
    free(story);
    if (failure->seed == 0)
        ck_abort_msg("%s: %s", one->name, failure->text);
    ck_abort_msg("%s: %s (again: test_weak_memory %s %llu)", one->name, failure->text, one->name,
                 (unsigned long long)failure->seed);
}

START_TEST(what_c11_forbids_never_happens)
{
    WeakFailure failure;

    for (const WeakCase *one = sound_litmus_cases; one->name != NULL; one++)
        if (finds_fault(one, &failure))
            fail_with_story(one, &failure);
}
END_TEST

START_TEST(what_c11_allows_happens)
{
    WeakFailure failure;

    for (const WeakCase *one = unsound_litmus_cases; one->name != NULL; one++) {
        require_msg(!weak_try_few(one, 3, 20000, &failure), "%s: not by choices", one->name);
        require_msg(!weak_try_seeds(one, 1, n_seeds, &failure), "%s: not by seeds", one->name);
    }
}
END_TEST

START_TEST(a_failure_is_repeated_by_its_seed)
{
    const WeakCase *const one = &unsound_litmus_cases[0];
    WeakFailure failure, again;

    ck_assert(!weak_try_seeds(one, 1, n_seeds, &failure));
    char *const first = weak_tell(one);
    ck_assert(!weak_try_seeds(one, failure.seed, 1, &again));
    char *const second = weak_tell(one);
    ck_assert_ptr_nonnull(strstr(first, failure.text));
    ck_assert_str_eq(first, second);
    free(first);
    free(second);
}
END_TEST

/* ---- the cases ---- */

START_TEST(holds_in_every_execution)
{
    const WeakCase *const one = cases[_i];
    WeakFailure failure;

    if (!weak_try_few(one, 2, 2 * n_seeds, &failure) || !weak_try_seeds(one, 1, n_seeds, &failure))
        fail_with_story(one, &failure);
}
END_TEST

/* ---- the orders ---- */

static bool some_case_fails(size_t mutant, uint64_t n)
{
    WeakFailure failure;

    for (size_t i = 0; i < n_cases; i++)
        if (visits[i][mutant] && !weak_try_seeds(cases[i], 1, n, &failure))
            return true;
    return false;
}

START_TEST(an_order_is_needed)
{
    const WeakMutant *const mutant = weak_mutant((size_t)_i);
    const Exception *const exception = find_exception(mutant);
    const uint64_t most = exception != NULL ? n_seeds / 10 : 20 * n_seeds;
    bool is_visited = false, fails = false;

    for (size_t i = 0; i < n_cases; i++)
        is_visited = is_visited || visits[i][_i];
    require_msg(is_visited, "no case executes %s", weak_describe(mutant));
    weak_weaken(mutant);
    for (uint64_t n = SHORTEST_TRY; !fails && n <= most; n *= 8)
        fails = some_case_fails((size_t)_i, n);
    if (exception == NULL)
        require_msg(fails, "%s, and no case fails", weak_describe(mutant));
    else
        require_msg(!fails, "%s, and a case fails: it is no exception any more",
                    weak_describe(mutant));
}
END_TEST

START_TEST(every_exception_is_an_order_of_the_sources)
{
    for (size_t i = 0; i < sizeof exceptions / sizeof exceptions[0]; i++) {
        bool is_found = false;

        for (size_t at = 0; at < weak_n_mutants(); at++)
            is_found = is_found || find_exception(weak_mutant(at)) == &exceptions[i];
        require_msg(is_found, "%s: %s", exceptions[i].file, exceptions[i].change);
    }
}
END_TEST

/* ---- one execution ---- */

static int tell(const char *name, const char *seed, const char *place)
{
    WeakFailure failure;

    for (size_t i = 0; place != NULL && i < weak_n_mutants(); i++)
        if (strcmp(weak_describe(weak_mutant(i)), place) == 0)
            weak_weaken(weak_mutant(i));
    for (size_t i = 0; i < n_cases; i++)
        if (strcmp(cases[i]->name, name) == 0) {
            const bool held = weak_try_seeds(cases[i], strtoull(seed, NULL, 10), 1, &failure);
            (void)fputs(weak_tell(cases[i]), stdout);
            return held ? EXIT_SUCCESS : EXIT_FAILURE;
        }
    (void)fprintf(stderr, "there is no case \"%s\"\n", name);
    return EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    const char *const seeds = getenv("RUBATO_WEAK_SEEDS");
    Suite *suite = suite_create("weak_memory");
    TCase *checker = tcase_create("checker");
    TCase *all = tcase_create("cases");
    TCase *orders = tcase_create("orders");

    if (seeds != NULL)
        n_seeds = strtoull(seeds, NULL, 10);
    list_cases();
    if (argc > 2)
        return tell(argv[1], argv[2], argc > 3 ? argv[3] : NULL);

    const double patience = seeds != NULL ? 1800 : 20;
    tcase_set_timeout(checker, patience);
    tcase_set_timeout(all, patience);
    tcase_set_timeout(orders, patience);
    tcase_add_test(checker, what_c11_forbids_never_happens);
    tcase_add_test(checker, what_c11_allows_happens);
    tcase_add_test(checker, a_failure_is_repeated_by_its_seed);
    suite_add_tcase(suite, checker);
    tcase_add_loop_test(all, holds_in_every_execution, 0, (int)n_cases);
    suite_add_tcase(suite, all);
    tcase_add_loop_test(orders, an_order_is_needed, 0, (int)weak_n_mutants());
    tcase_add_test(orders, every_exception_is_an_order_of_the_sources);
    suite_add_tcase(suite, orders);
    return run_suite(suite);
}
