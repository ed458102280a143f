/* What workers have asked before, they ask again by the id of its slot: it runs once all have, and
 * whatever happens in between, each request has the outcome that it would have in full. */
#include "engine/collectives/negotiation/tensor_sets.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { N = 3 }; /* workers */

static TensorSets *sets;
static int n_live; /* tags, and what workers are known by that ask again */

static void *tag_new(void)
{
    n_live++;
    return g_new(char, 1);
}

static void tag_free(void *user, void *tag)
{
    (void)user;
    n_live--;
    g_free(tag);
}

static void *tag_of(void *user, const TensorSlot *slot, uint32_t name, uint32_t place, void *held)
{
    (void)user;
    ck_assert_uint_lt(name, slot->n);
    ck_assert_uint_lt(place, N);
    ck_assert_ptr_nonnull(held);
    return tag_new();
}

static const TensorRecall recall = { .tag = tag_of, .drop = tag_free, .untag = tag_free };

static void begin(void)
{
    n_live = 0;
    sets = tensor_sets_new(N);
    tensor_sets_recall(sets, &recall, NULL);
}

static void end(void)
{
    TensorOutcome *outcome;
    GError *why = g_error_new_literal(RUBATO_ERROR, RUBATO_ERROR_CANCELLED, "the end");

    tensor_sets_cancel(sets, why);
    g_error_free(why);
    while ((outcome = tensor_sets_next(sets)) != NULL) {
        for (uint32_t i = 0; outcome->decision != NULL && i < outcome->n_members; i++)
            if (outcome->decision->tags[i] != NULL)
                tag_free(NULL, outcome->decision->tags[i]);
        tensor_outcome_free(outcome);
    }
    ck_assert_int_eq(n_live, 0);
    tensor_sets_free(sets);
}

static TensorAsk sum_of(const char *name, uint64_t n)
{
    return (TensorAsk){ name,
                        { .operation = TENSOR_ALLREDUCE,
                          .dtype = RUBATO_F32,
                          .n_dims = 1,
                          .shape = { n },
                          .reduce = { .prescale = 1, .postscale = 1 } },
                        tag_new() };
}

static void ask(uint32_t set, uint32_t rank, const char *name, uint64_t n)
{
    const TensorAsk one = sum_of(name, n);

    ck_assert(tensor_sets_ask(sets, set, rank, &one, 1, NULL));
}

static void ask_group(uint32_t rank, const char *name, const char *other)
{
    const TensorAsk group[] = { sum_of(name, 4), sum_of(other, 4) };

    ck_assert(tensor_sets_ask(sets, 0, rank, group, 2, NULL));
}

static void again(uint32_t set, uint32_t rank, uint32_t slot)
{
    ck_assert(tensor_sets_again(sets, set, rank, slot, tag_new(), NULL));
}

static void refuses(uint32_t set, uint32_t rank, uint32_t slot, RubatoError code, const char *text)
{
    void *const held = tag_new();
    GError *error = NULL;

    ck_assert(!tensor_sets_again(sets, set, rank, slot, held, &error));
    tag_free(NULL, held);
    check_error(&error, code, text, NULL);
}

static TensorOutcome *take(TensorOutcomeKind kind, uint32_t slot)
{
    TensorOutcome *const outcome = tensor_sets_next(sets);

    ck_assert_ptr_nonnull(outcome);
    ck_assert_int_eq(outcome->kind, kind);
    ck_assert_uint_eq(outcome->slot, slot);
    return outcome;
}

static void put_back(TensorOutcome *outcome)
{
    for (uint32_t i = 0; outcome->decision != NULL && i < outcome->n_members; i++)
        if (outcome->decision->tags[i] != NULL)
            tag_free(NULL, outcome->decision->tags[i]);
    for (uint32_t i = 0; outcome->held != NULL && i < outcome->n_members; i++)
        tag_free(NULL, outcome->held[i]);
    tensor_outcome_free(outcome);
}

/* A name runs. */
static void expect_name(const char *name, uint32_t slot)
{
    TensorOutcome *const outcome = take(TENSOR_OUTCOME_NAME, slot);

    ck_assert_str_eq(outcome->decision->name, name);
    ck_assert_ptr_null(outcome->decision->error);
    put_back(outcome);
}

static void expect_failure(const char *name, RubatoError code)
{
    TensorOutcome *const outcome = take(TENSOR_OUTCOME_NAME, TENSOR_NO_SLOT);

    ck_assert_str_eq(outcome->decision->name, name);
    ck_assert(g_error_matches(outcome->decision->error, RUBATO_ERROR, (int)code));
    put_back(outcome);
}

static void expect_again(uint32_t slot, uint32_t n_names)
{
    TensorOutcome *const outcome = take(TENSOR_OUTCOME_AGAIN, slot);

    ck_assert_uint_eq(outcome->n_names, n_names);
    put_back(outcome);
}

static void expect_nothing(void)
{
    ck_assert_ptr_null(tensor_sets_next(sets));
}

static void all_ask(const char *name, uint64_t n, uint32_t slot)
{
    for (uint32_t rank = 0; rank < N; rank++)
        ask(0, rank, name, n);
    expect_name(name, slot);
}

START_TEST(what_all_ask_again_runs)
{
    all_ask("x", 4, 0);
    all_ask("y", 4, 1);
    for (int i = 0; i < 3; i++) {
        again(0, 2, 1);
        again(0, 0, 0);
        again(0, 1, 0);
        again(0, 0, 1);
        expect_nothing();
        again(0, 1, 1);
        expect_again(1, 1);
        again(0, 2, 0);
        expect_again(0, 1);
    }
    refuses(0, 0, 2, RUBATO_ERROR_INVALID, "set 0 has no slot 2");
    refuses(1, 0, 0, RUBATO_ERROR_INVALID, "there is no set 1");
    again(0, 0, 0);
    refuses(0, 0, 0, RUBATO_ERROR_EXISTS, "worker 0 asks for allreduce x while");
}
END_TEST

START_TEST(group_is_asked_again_as_a_whole)
{
    for (uint32_t rank = 0; rank < N; rank++)
        ask_group(rank, rank == 1 ? "y" : "x", rank == 1 ? "x" : "y");
    expect_name("x", 0);
    expect_name("y", 0);
    for (uint32_t rank = 0; rank < N; rank++)
        again(0, rank, 0);
    expect_again(0, 2);
    again(0, 0, 0); /* others ask for one of its names alone */
    ask(0, 1, "y", 4);
    ask(0, 2, "y", 4);
    expect_failure("x", RUBATO_ERROR_MISMATCH);
    expect_failure("y", RUBATO_ERROR_MISMATCH);
}
END_TEST

START_TEST(another_shape_is_compared_with_what_others_ask_again)
{
    all_ask("x", 4, 0);
    again(0, 0, 0);
    ask(0, 1, "x", 5);
    expect_nothing();
    again(0, 2, 0);
    expect_failure("x", RUBATO_ERROR_MISMATCH);
    again(0, 1, 0); /* what failed has changed nothing */
    again(0, 2, 0);
    again(0, 0, 0);
    expect_again(0, 1);
    ask(0, 0, "x", 5);
    again(0, 1, 0);
    ask(0, 2, "x", 5);
    expect_failure("x", RUBATO_ERROR_MISMATCH);
    all_ask("x", 5, 1); /* the other one was there until it was filled */
    refuses(0, 0, 0, RUBATO_ERROR_INVALID, "no slot 0");
    all_ask("z", 5, 0);
    ask(0, 0, "x", 4);
    again(0, 1, 1);
    again(0, 2, 1);
    expect_failure("x", RUBATO_ERROR_MISMATCH);
}
END_TEST

START_TEST(slot_goes_once_another_one_has_one_of_its_names)
{
    for (uint32_t rank = 0; rank < N; rank++)
        ask_group(rank, "x", "y");
    expect_name("x", 0);
    expect_name("y", 0);
    all_ask("y", 4, 1);
    refuses(0, 0, 0, RUBATO_ERROR_INVALID, "no slot 0");
    all_ask("x", 4, 0);
    for (uint32_t rank = 0; rank < N; rank++)
        again(0, rank, 1);
    expect_again(1, 1);
}
END_TEST

START_TEST(worker_that_has_joined_is_not_waited_for)
{
    all_ask("x", 4, 0);
    again(0, 0, 0);
    ck_assert(tensor_sets_join(sets, 0, 1, NULL));
    expect_nothing();
    again(0, 2, 0);
    TensorOutcome *const outcome = take(TENSOR_OUTCOME_NAME, TENSOR_NO_SLOT);
    ck_assert_ptr_null(outcome->decision->tags[1]);
    put_back(outcome);
    refuses(0, 1, 0, RUBATO_ERROR_INVALID, "worker 1 has joined");
    ck_assert(tensor_sets_join(sets, 0, 0, NULL));
    ck_assert(tensor_sets_join(sets, 0, 2, NULL));
    put_back(take(TENSOR_OUTCOME_JOIN, TENSOR_NO_SLOT));
    for (uint32_t rank = 0; rank < N; rank++)
        again(0, rank, 0);
    expect_again(0, 1);
}
END_TEST

START_TEST(what_is_asked_again_fails_once_a_worker_leaves)
{
    all_ask("x", 4, 0);
    again(0, 0, 0);
    tensor_sets_leave(sets, 1, "has returned");
    expect_failure("x", RUBATO_ERROR_NOT_FOUND);
    put_back(take(TENSOR_OUTCOME_CLOSED, TENSOR_NO_SLOT));
    refuses(0, 2, 0, RUBATO_ERROR_NOT_FOUND, "worker 1 has returned");
}
END_TEST

START_TEST(removed_set_takes_its_slots_along)
{
    const uint32_t ranks[] = { 0, 2 };

    for (int i = 0; i < 2; i++) {
        for (uint32_t rank = 0; rank < N; rank++)
            ck_assert(tensor_sets_make(sets, rank, ranks, 2, NULL));
        put_back(take(TENSOR_OUTCOME_MADE, TENSOR_NO_SLOT));
        refuses(1, 0, 0, RUBATO_ERROR_INVALID, "set 1 has no slot 0");
        refuses(1, 1, 0, RUBATO_ERROR_INVALID, "worker 1 is not in set 1");
        ask(1, 0, "x", 4);
        ask(1, 2, "x", 4);
        expect_name("x", 0);
        again(1, 0, 0);
        for (uint32_t rank = 0; rank < N; rank++)
            ck_assert(tensor_sets_remove(sets, rank, 1, NULL));
        expect_failure("x", RUBATO_ERROR_CANCELLED);
        put_back(take(TENSOR_OUTCOME_REMOVED, TENSOR_NO_SLOT));
    }
}
END_TEST

START_TEST(names_beyond_the_bound_have_no_slot)
{
    enum { N_GROUP = TENSOR_SLOTS_MOST_NAMES - 1 };
    g_autofree TensorAsk *group = g_new(TensorAsk, N_GROUP);
    char(*const names)[8] = g_malloc(N_GROUP * sizeof *names);

    for (uint32_t i = 0; i < N_GROUP; i++)
        g_snprintf(names[i], sizeof names[i], "%04u", i);
    for (uint32_t rank = 0; rank < N; rank++) {
        for (uint32_t i = 0; i < N_GROUP; i++)
            group[i] = sum_of(names[i], 1);
        ck_assert(tensor_sets_ask(sets, 0, rank, group, N_GROUP, NULL));
    }
    for (uint32_t i = 0; i < N_GROUP; i++)
        put_back(take(TENSOR_OUTCOME_NAME, 0));
    all_ask("x", 1, 1);
    all_ask("y", 1, TENSOR_NO_SLOT);
    for (uint32_t rank = 0; rank < N; rank++)
        again(0, rank, 0);
    expect_again(0, N_GROUP);
    g_free(names);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("tensor_slots");
    TCase *const cases = tcase_create("cases");

    tcase_add_checked_fixture(cases, begin, end);
    tcase_add_test(cases, what_all_ask_again_runs);
    tcase_add_test(cases, group_is_asked_again_as_a_whole);
    tcase_add_test(cases, another_shape_is_compared_with_what_others_ask_again);
    tcase_add_test(cases, slot_goes_once_another_one_has_one_of_its_names);
    tcase_add_test(cases, worker_that_has_joined_is_not_waited_for);
    tcase_add_test(cases, what_is_asked_again_fails_once_a_worker_leaves);
    tcase_add_test(cases, removed_set_takes_its_slots_along);
    tcase_add_test(cases, names_beyond_the_bound_have_no_slot);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
