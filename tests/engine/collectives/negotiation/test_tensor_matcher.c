/* The negotiation of collectives: what belongs together, what does not fit, joins, groups, losses;
 * and over a thousand shuffled orders of requests. */
#include <string.h>

#include "engine/collectives/negotiation/tensor_matcher.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { N = 3 }; /* workers */

static TensorMatcher *matcher;

static void begin(void)
{
    matcher = tensor_matcher_new(N);
}

static void end(void)
{
    tensor_matcher_free(matcher);
}

static TensorRequest allreduce(RubatoReduction reduction, uint64_t n)
{
    return (TensorRequest){ .operation = TENSOR_ALLREDUCE,
                            .dtype = RUBATO_F32,
                            .n_dims = 1,
                            .shape = { n },
                            .reduce = { .reduction = reduction, .prescale = 1, .postscale = 1 } };
}

static TensorAsk sum_of(const char *name)
{
    return (TensorAsk){ .name = name, .request = allreduce(RUBATO_REDUCTION_SUM, 4), .tag = begin };
}

static void ask(uint32_t rank, TensorAsk one)
{
    ck_assert(tensor_matcher_ask(matcher, rank, &one, 1, NULL));
}

static void expect_nothing(void)
{
    ck_assert_ptr_null(tensor_matcher_next(matcher));
}

/* The next decision is of that name (NULL: of the join), and runs. */
static void expect_run(const char *name)
{
    TensorDecision *const decision = tensor_matcher_next(matcher);

    ck_assert_ptr_nonnull(decision);
    ck_assert_str_eq(decision->name == NULL ? "(join)" : decision->name,
                     name == NULL ? "(join)" : name);
    ck_assert_ptr_null(decision->error);
    tensor_decision_free(decision);
}

static void expect_failure(const char *name, RubatoError code, const char *text, const char *other)
{
    TensorDecision *const decision = tensor_matcher_next(matcher);

    ck_assert_ptr_nonnull(decision);
    ck_assert_str_eq(decision->name == NULL ? "(join)" : decision->name, name);
    ck_assert_ptr_nonnull(decision->error);
    GError *error = g_error_copy(decision->error);
    check_error(&error, code, text, other, NULL);
    tensor_decision_free(decision);
}

static void expect_refusal(uint32_t rank, const TensorAsk *asks, size_t n, RubatoError code,
                           const char *text)
{
    GError *error = NULL;

    ck_assert(!tensor_matcher_ask(matcher, rank, asks, n, &error));
    check_error(&error, code, text, NULL);
}

START_TEST(operation_runs_once_all_have_asked_in_any_order)
{
    for (uint32_t rank = 0; rank < N; rank++) {
        expect_nothing();
        ask(rank, sum_of(rank == 1 ? "b" : "a"));
        ask(rank, sum_of(rank == 1 ? "a" : "b"));
    }
    expect_run("a");
    expect_run("b");
    expect_nothing();
    ask(0, sum_of("a")); /* free again */
    expect_nothing();
}
END_TEST

typedef struct {
    TensorRequest one, other;
    const char *text, *text_of_other;
} Mismatch;

#define REDUCE(member, value)                                                              \
    {                                                                                      \
        .operation = TENSOR_ALLREDUCE, .n_dims = 1, .shape = { 4 }, .reduce.member = value \
    }
#define TENSOR(...)                                              \
    {                                                            \
        .reduce = { .prescale = 1, .postscale = 1 }, __VA_ARGS__ \
    }

static const Mismatch mismatches[] = {
    { TENSOR(.operation = TENSOR_BROADCAST, .n_dims = 2, .shape = { 4, 2 }),
      TENSOR(.operation = TENSOR_ALLGATHER, .n_dims = 2, .shape = { 4, 2 }),
      "broadcast from rank 0 of f32 [4, 2] by worker 0 and worker 2",
      "allgather of f32 [4, 2] by worker 1" },
    { TENSOR(.operation = TENSOR_BROADCAST, .n_dims = 2, .shape = { 4, 2 }),
      TENSOR(.operation = TENSOR_BROADCAST, .root = 1, .n_dims = 2, .shape = { 4, 2 }),
      "from rank 0", "from rank 1" },
    { TENSOR(.dtype = RUBATO_F64, .n_dims = 2, .shape = { 4, 2 }),
      TENSOR(.dtype = RUBATO_BF16, .n_dims = 2, .shape = { 4, 2 }), "f64 [4, 2] by worker 0 and",
      "bf16 [4, 2] by worker 1" },
    { TENSOR(.n_dims = 2, .shape = { 4, 2 }), TENSOR(.n_dims = 1, .shape = { 4, 2 }), "[4, 2]",
      "[4]" },
    { TENSOR(.shape = { 4, 2 }, .n_dims = 2), TENSOR(.shape = { 5, 2 }, .n_dims = 2), "[4, 2]",
      "[5, 2]" },
    { TENSOR(.operation = TENSOR_ALLGATHER, .shape = { 4, 2 }, .n_dims = 2),
      TENSOR(.operation = TENSOR_ALLGATHER, .shape = { 9, 3 }, .n_dims = 2), "[4, 2]", "[9, 3]" },
    { REDUCE(reduction, RUBATO_REDUCTION_MIN), REDUCE(reduction, RUBATO_REDUCTION_MAX),
      "allreduce (min,", "allreduce (max," },
    { REDUCE(prescale, 0.5), REDUCE(prescale, 2), "prescale 0.5", "prescale 2" },
    { REDUCE(postscale, 0.5), REDUCE(postscale, 2), "postscale 0.5", "postscale 2" },
    { REDUCE(divides_by_all, true), REDUCE(divides_by_all, false), "divided by all) of",
      "postscale 0) of f32 [4] by worker 1" },
};

START_TEST(mismatch_fails_the_operation_alone_and_tells_both_sides)
{
    const Mismatch *const mismatch = &mismatches[_i];

    for (uint32_t rank = 0; rank < N; rank++) {
        const TensorAsk one = { "x", rank == 1 ? mismatch->other : mismatch->one, begin };

        expect_nothing();
        ask(rank, one);
    }
    expect_failure("x", RUBATO_ERROR_MISMATCH, mismatch->text, mismatch->text_of_other);
    for (uint32_t rank = 0; rank < N; rank++)
        ask(rank, sum_of("x"));
    expect_run("x");
}
END_TEST

START_TEST(allgather_may_differ_in_rows)
{
    for (uint32_t rank = 0; rank < N; rank++) {
        const TensorAsk one = {
            "x", { .operation = TENSOR_ALLGATHER, .n_dims = 2, .shape = { rank, 2 } }, begin
        };

        ask(rank, one);
    }
    expect_run("x");
}
END_TEST

START_TEST(name_is_refused_while_it_is_pending)
{
    const TensorAsk group[] = { sum_of("new"), sum_of("a") };
    const TensorAsk twice[] = { sum_of("new"), sum_of("new") };

    ask(0, sum_of("a"));
    expect_refusal(0, &group[1], 1, RUBATO_ERROR_EXISTS,
                   "worker 0 asks for allreduce a while its allreduce");
    expect_refusal(0, group, 2, RUBATO_ERROR_EXISTS, "allreduce a");
    expect_refusal(0, twice, 2, RUBATO_ERROR_EXISTS, "allreduce new");
    ck_assert_ptr_null(tensor_matcher_missing(matcher, "new")); /* nothing of a group was taken */
}
END_TEST

START_TEST(group_is_decided_as_a_whole)
{
    const TensorAsk group[] = { sum_of("b"), sum_of("a") }, turned[] = { group[1], group[0] };

    ck_assert(tensor_matcher_ask(matcher, 0, group, 2, NULL));
    ck_assert(tensor_matcher_ask(matcher, 1, turned, 2, NULL));
    expect_nothing();
    ck_assert(tensor_matcher_ask(matcher, 2, group, 2, NULL));
    expect_run("a");
    expect_run("b");
}
END_TEST

START_TEST(group_fails_as_a_whole)
{
    TensorAsk group[] = { sum_of("b"), sum_of("a") };

    ck_assert(tensor_matcher_ask(matcher, 0, group, 2, NULL));
    ck_assert(tensor_matcher_ask(matcher, 1, group, 2, NULL));
    group[1].request.shape[0] = 5;
    ck_assert(tensor_matcher_ask(matcher, 2, group, 2, NULL));
    expect_failure("a", RUBATO_ERROR_MISMATCH, "disagree on a", "[5] by worker 2");
    expect_failure("b", RUBATO_ERROR_MISMATCH, "disagree on a", "[5] by worker 2");
    expect_nothing();
}
END_TEST

START_TEST(groups_must_agree)
{
    const TensorAsk group[] = { sum_of("b"), sum_of("a") };

    ck_assert(tensor_matcher_ask(matcher, 0, group, 2, NULL));
    ck_assert(tensor_matcher_ask(matcher, 1, group, 2, NULL));
    ask(2, sum_of("b"));
    expect_failure("a", RUBATO_ERROR_MISMATCH, "worker 2 asks for it alone",
                   "worker 0 and worker 1 asked for it together with a");
    expect_failure("b", RUBATO_ERROR_MISMATCH, "worker 2 asks for it alone",
                   "worker 0 and worker 1 asked for it together with a");
}
END_TEST

/* Also what is not complete of other groups fails: nobody will ask for it again. */
START_TEST(groups_that_overlap_fail_with_all_their_names)
{
    const TensorAsk one[] = { sum_of("a"), sum_of("b") }, other[] = { sum_of("b"), sum_of("c") };

    for (int i = 0; i < 2; i++) {
        ck_assert(tensor_matcher_ask(matcher, 0, one, 2, NULL));
        ck_assert(tensor_matcher_ask(matcher, 1, other, 2, NULL));
        expect_nothing();
        ck_assert(tensor_matcher_ask(matcher, 2, one, 2, NULL));
        for (int k = 0; k < 3; k++) {
            TensorDecision *const decision = tensor_matcher_next(matcher);

            ck_assert_ptr_nonnull(decision);
            GError *error = g_error_copy(decision->error);
            check_error(&error, RUBATO_ERROR_MISMATCH, "worker 1 asks for it together with c",
                        "together with a", NULL);
            tensor_decision_free(decision);
        }
        expect_nothing();
        for (uint32_t rank = 0; rank < N; rank++)
            ck_assert(tensor_matcher_ask(matcher, rank, one, 2, NULL));
        expect_run("a");
        expect_run("b");
    }
}
END_TEST

START_TEST(large_groups_are_decided)
{
    enum { N_LARGE = 1000 };
    g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);
    g_autofree TensorAsk *asks = g_new(TensorAsk, N_LARGE);

    for (int i = 0; i < N_LARGE; i++) {
        g_ptr_array_add(names, g_strdup_printf("%d", i));
        asks[i] = sum_of(names->pdata[i]);
    }
    for (uint32_t rank = 0; rank < N; rank++)
        ck_assert(tensor_matcher_ask(matcher, rank, asks, N_LARGE, NULL));
    for (int i = 0; i < N_LARGE; i++) {
        TensorDecision *const decision = tensor_matcher_next(matcher);

        QUICK_ASSERT(decision != NULL && decision->error == NULL);
        tensor_decision_free(decision);
    }
    expect_nothing();
}
END_TEST

START_TEST(joined_worker_is_not_waited_for)
{
    GError *error = NULL;
    uint32_t last = UINT32_MAX;

    ask(0, sum_of("a"));
    ask(2, sum_of("a"));
    ck_assert(tensor_matcher_join(matcher, 1, NULL));
    expect_run("a");
    ask(0, sum_of("b"));
    ask(2, sum_of("b"));
    expect_run("b");
    ck_assert(!tensor_matcher_join(matcher, 1, &error));
    check_error(&error, RUBATO_ERROR_EXISTS, "worker 1 has joined already", NULL);
    expect_refusal(1, &(TensorAsk){ "c", allreduce(RUBATO_REDUCTION_SUM, 1), begin }, 1,
                   RUBATO_ERROR_INVALID, "worker 1 has joined");
    ck_assert(tensor_matcher_join(matcher, 2, NULL));
    expect_nothing();
    ck_assert(tensor_matcher_join(matcher, 0, NULL));
    TensorDecision *const decision = tensor_matcher_next(matcher);
    ck_assert_ptr_null(decision->name);
    last = decision->last;
    tensor_decision_free(decision);
    ck_assert_uint_eq(last, 0);
    ask(1, sum_of("c")); /* a new round */
    expect_nothing();
}
END_TEST

/* What a worker asked for before it joined still counts. */
START_TEST(request_before_the_join_is_waited_for_by_name)
{
    ask(1, sum_of("a"));
    ck_assert(tensor_matcher_join(matcher, 1, NULL));
    ask(0, sum_of("a"));
    expect_nothing();
    ask(2, sum_of("a"));
    expect_run("a");
}
END_TEST

START_TEST(operation_that_needs_a_joined_worker_says_so)
{
    const TensorAsk gather = { "x",
                               { .operation = TENSOR_ALLGATHER, .n_dims = 1, .shape = { 1 } },
                               begin };

    ask(0, gather);
    ask(2, gather);
    ck_assert(tensor_matcher_join(matcher, 1, NULL));
    expect_failure("x", RUBATO_ERROR_MISMATCH, "allgather x needs worker 1, which has joined",
                   "only allreduce");
}
END_TEST

START_TEST(worker_that_leaves_fails_what_is_pending_and_what_follows)
{
    const TensorAsk one = sum_of("c");

    ask(0, sum_of("a"));
    ask(1, sum_of("b"));
    ck_assert(tensor_matcher_join(matcher, 2, NULL));
    tensor_matcher_leave(matcher, 1, "has returned");
    expect_failure("a", RUBATO_ERROR_NOT_FOUND, "worker 1 has returned", "");
    expect_failure("b", RUBATO_ERROR_NOT_FOUND, "worker 1 has returned", "");
    expect_failure("(join)", RUBATO_ERROR_NOT_FOUND, "worker 1 has returned", "");
    expect_refusal(0, &one, 1, RUBATO_ERROR_NOT_FOUND, "worker 1 has returned");
}
END_TEST

START_TEST(those_who_are_missing_are_named_with_what_they_asked_last)
{
    g_autofree char *text = NULL;

    ask(1, sum_of("grad/6"));
    ask(0, sum_of("grad/7"));
    text = tensor_matcher_missing(matcher, "grad/7");
    ck_assert_str_eq(text, "worker 1 (which last asked for grad/6) and worker 2 (which has not "
                           "asked for anything)");
}
END_TEST

/* ---- a thousand shuffled orders ---- */

enum { MOST_WORKERS = 6, MOST_NAMES = 24, MOST_GROUP = 4, N_ROUNDS = 3 };

/* A run of several iterations over the same names. Each worker asks in an order of its own; some
 * names do not fit, some make groups. */
typedef struct {
    uint64_t random;
    uint32_t n_workers, n_names;
    uint32_t group_of[MOST_NAMES]; /* the first name of its group, which lie side by side */
    int odd_worker[MOST_NAMES];    /* who asks for another shape; -1: nobody */
    uint32_t todo[MOST_WORKERS][MOST_NAMES]; /* the names in this order; the first of a group */
    uint32_t n_todo, at[MOST_WORKERS];
    uint32_t n_asked[MOST_NAMES]; /* in this round */
    uint32_t n_decided;
    bool is_decided[MOST_NAMES];
} Story;

static void make_story(Story *story, uint64_t seed)
{
    *story = (Story){ .random = seed };
    story->n_workers = 1 + random_below(&story->random, MOST_WORKERS);
    story->n_names = 1 + random_below(&story->random, MOST_NAMES);
    for (uint32_t i = 0; i < story->n_names;) {
        const uint32_t first = i;
        uint32_t n =
            random_below(&story->random, 4) > 0 ? 1 : 1 + random_below(&story->random, MOST_GROUP);

        for (; n > 0 && i < story->n_names; n--, i++)
            story->group_of[i] = first;
        story->todo[0][story->n_todo++] = first;
    }
}

static void shuffle(Story *story)
{
    story->n_decided = 0;
    memset(story->at, 0, sizeof story->at);
    memset(story->n_asked, 0, sizeof story->n_asked);
    memset(story->is_decided, 0, sizeof story->is_decided);
    for (uint32_t i = 0; i < story->n_names; i++)
        story->odd_worker[i] = story->n_workers > 1 && random_below(&story->random, 8) == 0
                                   ? (int)random_below(&story->random, story->n_workers)
                                   : -1;
    for (uint32_t rank = 0; rank < story->n_workers; rank++) {
        uint32_t *const todo = story->todo[rank];

        memcpy(todo, story->todo[0], story->n_todo * sizeof *todo);
        for (uint32_t i = story->n_todo; i-- > 1;) {
            const uint32_t k = random_below(&story->random, i + 1), kept = todo[i];

            todo[i] = todo[k];
            todo[k] = kept;
        }
    }
}

/* Whether all workers have asked for each name of its group. */
static bool all_have_asked(const Story *story, uint32_t group)
{
    for (uint32_t i = 0; i < story->n_names; i++)
        if (story->group_of[i] == group && story->n_asked[i] < story->n_workers)
            return false;
    return true;
}

static bool fits(const Story *story, uint32_t group)
{
    for (uint32_t i = 0; i < story->n_names; i++)
        if (story->group_of[i] == group && story->odd_worker[i] >= 0)
            return false;
    return true;
}

static void take_decisions(Story *story, TensorMatcher *of, uint64_t seed)
{
    TensorDecision *decision;

    while ((decision = tensor_matcher_next(of)) != NULL) {
        const uint32_t i = (uint32_t)atoi(decision->name + 1);

        require_msg(all_have_asked(story, story->group_of[i]), "seed %zu: %s came too early",
                    (size_t)seed, decision->name);
        require_msg(!story->is_decided[i], "seed %zu: %s came twice", (size_t)seed, decision->name);
        require_msg((decision->error == NULL) == fits(story, story->group_of[i]),
                    "seed %zu: %s ended wrongly", (size_t)seed, decision->name);
        for (uint32_t rank = 0; rank < story->n_workers; rank++)
            require_msg(decision->tags[rank] == &story->todo[rank], "seed %zu: %s has a wrong tag",
                        (size_t)seed, decision->name);
        story->is_decided[i] = true;
        story->n_decided++;
        tensor_decision_free(decision);
    }
}

static void ask_next(Story *story, TensorMatcher *of, uint32_t rank)
{
    const uint32_t group = story->todo[rank][story->at[rank]++];
    char names[MOST_GROUP][8];
    TensorAsk asks[MOST_GROUP];
    uint32_t n = 0;

    for (uint32_t i = group; i < story->n_names && story->group_of[i] == group; i++, n++) {
        g_snprintf(names[n], sizeof names[n], "n%u", i);
        asks[n] =
            (TensorAsk){ names[n],
                         allreduce(RUBATO_REDUCTION_SUM, story->odd_worker[i] == (int)rank ? 5 : 4),
                         &story->todo[rank] };
        story->n_asked[i]++;
    }
    require_msg(tensor_matcher_ask(of, rank, asks, n, NULL), "an ask was refused");
}

static void play(uint64_t seed)
{
    Story story;

    make_story(&story, seed);
    TensorMatcher *const of = tensor_matcher_new(story.n_workers);
    for (int round = 0; round < N_ROUNDS; round++) {
        uint32_t n_left;

        shuffle(&story);
        for (n_left = story.n_workers * story.n_todo; n_left > 0; n_left--) {
            uint32_t rank = random_below(&story.random, story.n_workers);

            while (story.at[rank] == story.n_todo)
                rank = (rank + 1) % story.n_workers;
            ask_next(&story, of, rank);
            take_decisions(&story, of, seed);
        }
        require_msg(story.n_decided == story.n_names, "seed %zu: %u of %u names were decided",
                    (size_t)seed, story.n_decided, story.n_names);
    }
    tensor_matcher_free(of);
}

START_TEST(every_order_ends_in_the_same_decisions)
{
    const char *const one = g_getenv("RUBATO_TEST_SEED");

    if (one != NULL) {
        play(g_ascii_strtoull(one, NULL, 10));
        return;
    }
    for (uint64_t seed = 0; seed < 1000; seed++)
        play(seed);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("tensor_matcher");
    TCase *const cases = tcase_create("cases");

    tcase_add_checked_fixture(cases, begin, end);
    tcase_add_test(cases, operation_runs_once_all_have_asked_in_any_order);
    tcase_add_loop_test(cases, mismatch_fails_the_operation_alone_and_tells_both_sides, 0,
                        G_N_ELEMENTS(mismatches));
    tcase_add_test(cases, allgather_may_differ_in_rows);
    tcase_add_test(cases, name_is_refused_while_it_is_pending);
    tcase_add_test(cases, group_is_decided_as_a_whole);
    tcase_add_test(cases, group_fails_as_a_whole);
    tcase_add_test(cases, groups_must_agree);
    tcase_add_test(cases, groups_that_overlap_fail_with_all_their_names);
    tcase_add_test(cases, large_groups_are_decided);
    tcase_add_test(cases, joined_worker_is_not_waited_for);
    tcase_add_test(cases, request_before_the_join_is_waited_for_by_name);
    tcase_add_test(cases, operation_that_needs_a_joined_worker_says_so);
    tcase_add_test(cases, worker_that_leaves_fails_what_is_pending_and_what_follows);
    tcase_add_test(cases, those_who_are_missing_are_named_with_what_they_asked_last);
    tcase_add_test(cases, every_order_ends_in_the_same_decisions);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
