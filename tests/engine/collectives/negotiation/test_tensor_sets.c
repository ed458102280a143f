/* Sets of workers: they are made and removed by agreement; operations of several sets have nothing
 * to do with each other; what becomes of a set when it is removed, or when a worker leaves or is
 * lost. */
#include "engine/collectives/negotiation/tensor_sets.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { N = 4 }; /* workers */

static TensorSets *sets;

static void begin(void)
{
    sets = tensor_sets_new(N);
}

static void end(void)
{
    tensor_sets_free(sets);
}

static const TensorRequest sum = { .operation = TENSOR_ALLREDUCE,
                                   .dtype = RUBATO_F32,
                                   .n_dims = 1,
                                   .shape = { 4 },
                                   .reduce = { .prescale = 1, .postscale = 1 } };

static bool ask(uint32_t set, uint32_t rank, const char *name, GError **error)
{
    return tensor_sets_ask(sets, set, rank, &(TensorAsk){ name, sum, begin }, 1, error);
}

/* The next outcome. name NULL: it is of none. */
static TensorOutcome *take(TensorOutcomeKind kind, uint32_t set, const char *name)
{
    TensorOutcome *const outcome = tensor_sets_next(sets);

    ck_assert_ptr_nonnull(outcome);
    ck_assert_int_eq(outcome->kind, kind);
    ck_assert_uint_eq(outcome->set, set);
    ck_assert_pstr_eq(outcome->decision == NULL ? NULL : outcome->decision->name, name);
    return outcome;
}

static void expect(TensorOutcomeKind kind, uint32_t set, const char *name)
{
    TensorOutcome *const outcome = take(kind, set, name);

    ck_assert_ptr_null(outcome->error);
    ck_assert(outcome->decision == NULL || outcome->decision->error == NULL);
    tensor_outcome_free(outcome);
}

static void expect_failure(TensorOutcomeKind kind, uint32_t set, const char *name, RubatoError code,
                           const char *text)
{
    TensorOutcome *const outcome = take(kind, set, name);
    GError *error =
        g_error_copy(outcome->decision != NULL ? outcome->decision->error : outcome->error);

    check_error(&error, code, text, NULL);
    tensor_outcome_free(outcome);
}

static void expect_nothing(void)
{
    ck_assert_ptr_null(tensor_sets_next(sets));
}

/* All workers ask for a set of two. */
static void make(uint32_t one, uint32_t other, uint32_t id)
{
    const uint32_t ranks[] = { one, other };

    for (uint32_t rank = 0; rank < N; rank++) {
        expect_nothing();
        ck_assert(tensor_sets_make(sets, rank, ranks, 2, NULL));
    }
    expect(TENSOR_OUTCOME_MADE, id, NULL);
    expect_nothing();
}

static void remove_set(uint32_t id)
{
    for (uint32_t rank = 0; rank < N; rank++) {
        expect_nothing();
        ck_assert(tensor_sets_remove(sets, rank, id, NULL));
    }
}

START_TEST(ids_of_removed_sets_are_used_again)
{
    make(0, 1, 1);
    make(2, 3, 2);
    make(1, 3, 3);
    remove_set(2);
    expect(TENSOR_OUTCOME_REMOVED, 2, NULL);
    make(0, 3, 2);
    make(0, 2, 4);
}
END_TEST

START_TEST(sets_progress_at_the_same_time_under_the_same_names)
{
    make(0, 1, 1);
    make(1, 2, 2);
    ck_assert(ask(1, 1, "x", NULL));
    ck_assert(ask(2, 1, "x", NULL));
    ck_assert(ask(0, 1, "x", NULL));
    ck_assert(ask(2, 2, "x", NULL));
    expect(TENSOR_OUTCOME_NAME, 2, "x");
    ck_assert(ask(1, 0, "x", NULL));
    expect(TENSOR_OUTCOME_NAME, 1, "x");
    for (uint32_t rank = 0; rank < N; rank++)
        ck_assert(rank == 1 || ask(0, rank, "x", NULL));
    expect(TENSOR_OUTCOME_NAME, 0, "x");
    ck_assert(tensor_sets_join(sets, 2, 2, NULL));
    ck_assert(tensor_sets_join(sets, 2, 1, NULL));
    TensorOutcome *const joined = take(TENSOR_OUTCOME_JOIN, 2, NULL);
    ck_assert_uint_eq(joined->decision->last, 0); /* the place of worker 1 */
    tensor_outcome_free(joined);
    expect_nothing();
}
END_TEST

START_TEST(removed_set_fails_what_is_pending_in_it_alone)
{
    GError *error = NULL;

    make(0, 1, 1);
    ck_assert(ask(0, 0, "x", NULL));
    ck_assert(ask(1, 0, "x", NULL));
    ck_assert(tensor_sets_join(sets, 1, 1, NULL));
    expect(TENSOR_OUTCOME_NAME, 1, "x"); /* worker 1 has joined */
    ck_assert(ask(1, 0, "y", NULL));
    expect(TENSOR_OUTCOME_NAME, 1, "y");
    make(2, 3, 2);
    ck_assert(ask(2, 3, "z", NULL));
    remove_set(2);
    expect_failure(TENSOR_OUTCOME_NAME, 2, "z", RUBATO_ERROR_CANCELLED,
                   "set 2 of workers was removed");
    expect(TENSOR_OUTCOME_REMOVED, 2, NULL);
    ck_assert(!ask(2, 3, "z", &error));
    check_error(&error, RUBATO_ERROR_INVALID, "there is no set 2", NULL);
    remove_set(1);
    expect_failure(TENSOR_OUTCOME_JOIN, 1, NULL, RUBATO_ERROR_CANCELLED, "set 1");
    expect(TENSOR_OUTCOME_REMOVED, 1, NULL);
    for (uint32_t rank = 1; rank < N; rank++)
        ck_assert(ask(0, rank, "x", NULL));
    expect(TENSOR_OUTCOME_NAME, 0, "x");
}
END_TEST

START_TEST(workers_who_want_different_changes_get_none)
{
    const uint32_t ranks[] = { 0, 1, 3 };
    GError *error = NULL;

    for (uint32_t rank = 0; rank < N; rank++)
        ck_assert(tensor_sets_make(sets, rank, ranks, rank == 2 ? 3 : 2, NULL));
    expect_failure(TENSOR_OUTCOME_REFUSED, 0, NULL, RUBATO_ERROR_MISMATCH,
                   "a set of workers 0-1 is asked for by workers 0-1, 3, but a set of workers 0-1, "
                   "3 by worker 2");
    make(0, 1, 1);
    for (uint32_t rank = 0; rank < N; rank++)
        ck_assert(rank == 0 ? tensor_sets_remove(sets, rank, 1, NULL)
                            : tensor_sets_make(sets, rank, ranks, 2, NULL));
    expect_failure(TENSOR_OUTCOME_REFUSED, 0, NULL, RUBATO_ERROR_MISMATCH,
                   "the removal of set 1 is asked for by worker 0, but a set of workers 0-1 by "
                   "workers 1-3");
    ck_assert(ask(1, 0, "x", NULL)); /* the set is there */
    ck_assert(!tensor_sets_remove(sets, 0, 2, &error));
    check_error(&error, RUBATO_ERROR_INVALID, "there is no set 2", NULL);
    ck_assert(!tensor_sets_remove(sets, 0, 0, &error));
    check_error(&error, RUBATO_ERROR_INVALID, "there is no set 0 to be removed", NULL);
}
END_TEST

START_TEST(those_who_are_missing_in_a_change_are_named)
{
    const uint32_t ranks[] = { 3 };

    ck_assert_ptr_null(tensor_sets_missing(sets));
    ck_assert(tensor_sets_make(sets, 2, ranks, 1, NULL));
    ck_assert(!tensor_sets_make(sets, 2, ranks, 1, NULL));
    g_autofree char *missing = tensor_sets_missing(sets);
    ck_assert_str_eq(missing, "workers 0-1, 3");
}
END_TEST

START_TEST(worker_that_leaves_closes_its_sets_alone)
{
    const uint32_t ranks[] = { 3 };
    GError *error = NULL;

    make(0, 1, 1);
    make(2, 3, 2);
    ck_assert(ask(1, 0, "x", NULL));
    ck_assert(ask(2, 2, "x", NULL));
    ck_assert(tensor_sets_make(sets, 2, ranks, 1, NULL));
    tensor_sets_leave(sets, 1, "has returned");
    expect_failure(TENSOR_OUTCOME_CLOSED, 0, NULL, RUBATO_ERROR_NOT_FOUND, "worker 1 has returned");
    expect_failure(TENSOR_OUTCOME_NAME, 1, "x", RUBATO_ERROR_NOT_FOUND, "worker 1 has returned");
    expect_failure(TENSOR_OUTCOME_CLOSED, 1, NULL, RUBATO_ERROR_NOT_FOUND, "worker 1 has returned");
    expect_failure(TENSOR_OUTCOME_REFUSED, 0, NULL, RUBATO_ERROR_NOT_FOUND, "worker 1");
    ck_assert(!ask(1, 0, "y", &error));
    check_error(&error, RUBATO_ERROR_NOT_FOUND, "worker 1 has returned", NULL);
    ck_assert(!tensor_sets_make(sets, 2, ranks, 1, &error));
    check_error(&error, RUBATO_ERROR_NOT_FOUND, "worker 1 has returned", NULL);
    ck_assert(ask(2, 3, "x", NULL)); /* the other set goes on */
    expect(TENSOR_OUTCOME_NAME, 2, "x");
    tensor_sets_leave(sets, 0, "has returned"); /* its sets have closed */
    expect_nothing();
}
END_TEST

START_TEST(errors_name_workers_by_their_rank_in_the_task)
{
    GError *error = NULL;

    make(1, 3, 1);
    ck_assert(!ask(1, 2, "x", &error));
    check_error(&error, RUBATO_ERROR_INVALID, "worker 2 is not in set 1", NULL);
    ck_assert(ask(1, 3, "x", NULL));
    ck_assert(!ask(1, 3, "x", &error));
    check_error(&error, RUBATO_ERROR_EXISTS, "worker 3 asks for allreduce x", NULL);
}
END_TEST

/* ---- losses ---- */

static void lose(uint32_t first, uint32_t end)
{
    g_autoptr(GError) why =
        g_error_new_literal(RUBATO_ERROR, RUBATO_ERROR_NODE_LOST, "node 2 was lost");

    tensor_sets_lose(sets, first, end, why);
}

/* What fails by the loss that follows. */
static void expect_by_loss(TensorOutcomeKind kind, uint32_t set, const char *name)
{
    TensorOutcome *const outcome = take(kind, set, name);

    ck_assert(outcome->is_by_loss);
    ck_assert(g_error_matches(outcome->decision != NULL ? outcome->decision->error : outcome->error,
                              RUBATO_ERROR, RUBATO_ERROR_NODE_LOST));
    tensor_outcome_free(outcome);
}

static void expect_lost(uint32_t n_living)
{
    TensorOutcome *const outcome = take(TENSOR_OUTCOME_LOST, 0, NULL);

    ck_assert_uint_eq(outcome->n_members, n_living);
    ck_assert(g_error_matches(outcome->error, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST));
    tensor_outcome_free(outcome);
}

START_TEST(a_loss_fails_what_is_pending_in_its_sets_alone_and_leaves_the_others)
{
    const uint32_t *ranks;
    uint32_t n;

    make(1, 2, 1);
    make(0, 1, 2);
    ck_assert(ask(0, 0, "x", NULL));
    ck_assert(ask(0, 2, "x", NULL));
    ck_assert(ask(1, 1, "y", NULL));
    ck_assert(ask(2, 1, "z", NULL));
    lose(2, 4);
    expect_by_loss(TENSOR_OUTCOME_NAME, 0, "x");
    expect_by_loss(TENSOR_OUTCOME_NAME, 1, "y");
    expect_lost(2);
    expect_nothing();
    ck_assert_uint_eq(tensor_sets_generation(sets), 1);
    ck_assert_ptr_nonnull(tensor_sets_matcher(sets, 1, &ranks, &n));
    ck_assert(n == 1 && ranks[0] == 1);
    ck_assert(ask(2, 0, "z", NULL)); /* as if nothing had been */
    expect(TENSOR_OUTCOME_NAME, 2, "z");
    ck_assert(ask(1, 1, "y", NULL));
    expect(TENSOR_OUTCOME_NAME, 1, "y");
    ck_assert(ask(0, 1, "x", NULL));
    expect_nothing();
    ck_assert(ask(0, 0, "x", NULL));
    expect(TENSOR_OUTCOME_NAME, 0, "x");
}
END_TEST

/* Also of one of which a worker had left. */
START_TEST(sets_of_workers_that_are_replaced_keep_them_and_begin_anew)
{
    g_autoptr(GError) why =
        g_error_new_literal(RUBATO_ERROR, RUBATO_ERROR_NODE_LOST, "node 2 was lost");
    uint32_t n, made, generation;
    const uint32_t *ranks;

    make(1, 2, 1);
    make(0, 1, 2);
    make(2, 3, 3);
    tensor_sets_leave(sets, 3, "has returned");
    expect_failure(TENSOR_OUTCOME_CLOSED, 0, NULL, RUBATO_ERROR_NOT_FOUND, "worker 3 has returned");
    expect_failure(TENSOR_OUTCOME_CLOSED, 3, NULL, RUBATO_ERROR_NOT_FOUND, "worker 3 has returned");
    ck_assert(ask(1, 1, "y", NULL));
    ck_assert(ask(2, 1, "z", NULL));
    tensor_sets_replace(sets, 2, 4, why);
    expect_by_loss(TENSOR_OUTCOME_NAME, 1, "y");
    TensorOutcome *const outcome = take(TENSOR_OUTCOME_REPLACED, 0, NULL);
    ck_assert_uint_eq(outcome->n_members, 4);
    tensor_outcome_free(outcome);
    expect_nothing();
    ck_assert_ptr_nonnull(tensor_sets_matcher(sets, 1, &ranks, &n));
    ck_assert(n == 2 && ranks[0] == 1 && ranks[1] == 2);
    tensor_sets_age(sets, 1, &made, &generation);
    ck_assert(made == 1 && generation == 1);
    tensor_sets_age(sets, 2, &made, &generation);
    ck_assert(made == 2 && generation == 0);
    ck_assert_uint_eq(tensor_sets_n_made(sets), 3);
    ck_assert(ask(2, 0, "z", NULL)); /* as if nothing had been */
    expect(TENSOR_OUTCOME_NAME, 2, "z");
    ck_assert(ask(1, 1, "y", NULL));
    expect_nothing();
    ck_assert(ask(1, 2, "y", NULL));
    expect(TENSOR_OUTCOME_NAME, 1, "y");
    for (uint32_t rank = 0; rank < 4; rank++)
        ck_assert(ask(0, rank, "x", NULL));
    expect(TENSOR_OUTCOME_NAME, 0, "x");
}
END_TEST

START_TEST(a_set_whose_workers_are_all_lost_ends)
{
    make(2, 3, 1);
    make(0, 3, 2);
    ck_assert(ask(1, 2, "x", NULL));
    lose(2, 4);
    expect_by_loss(TENSOR_OUTCOME_NAME, 1, "x");
    expect_lost(2);
    ck_assert(!ask(1, 2, "x", NULL));
    for (uint32_t rank = 0; rank < 2; rank++) {
        expect_nothing();
        ck_assert(tensor_sets_make(sets, rank, (const uint32_t[]){ 1 }, 1, NULL));
    }
    expect(TENSOR_OUTCOME_MADE, 1, NULL);
}
END_TEST

START_TEST(joins_and_changes_fail_by_a_loss_and_count_the_living_behind_it)
{
    const uint32_t ranks[] = { 0, 3 };
    GError *error = NULL;

    ck_assert(tensor_sets_join(sets, 0, 0, NULL));
    ck_assert(tensor_sets_make(sets, 1, ranks, 2, NULL));
    ck_assert(tensor_sets_make(sets, 3, ranks, 2, NULL));
    lose(3, 4);
    expect_by_loss(TENSOR_OUTCOME_REFUSED, 0, NULL);
    expect_by_loss(TENSOR_OUTCOME_JOIN, 0, NULL);
    expect_lost(3);
    ck_assert(!tensor_sets_make(sets, 1, ranks, 2, &error));
    check_error(&error, RUBATO_ERROR_INVALID, "worker 3 was lost", NULL);
    for (uint32_t rank = 0; rank < 3; rank++) {
        g_autofree char *missing = tensor_sets_missing(sets);

        ck_assert_pstr_eq(missing, rank == 0 ? NULL : rank == 1 ? "workers 1-2" : "worker 2");
        expect_nothing();
        ck_assert(tensor_sets_make(sets, rank, ranks, 1, NULL));
    }
    expect(TENSOR_OUTCOME_MADE, 1, NULL);
    for (uint32_t rank = 0; rank < 3; rank++) {
        expect_nothing();
        ck_assert(tensor_sets_join(sets, 0, rank, NULL));
    }
    expect(TENSOR_OUTCOME_JOIN, 0, NULL);
}
END_TEST

/* A worker that had returned is dead for the others; one that lives keeps its sets closed. */
START_TEST(a_set_that_was_closed_by_a_lost_worker_opens_again)
{
    make(0, 1, 1);
    tensor_sets_leave(sets, 3, "has returned");
    expect_failure(TENSOR_OUTCOME_CLOSED, 0, NULL, RUBATO_ERROR_NOT_FOUND, "worker 3");
    if (_i == 1) {
        tensor_sets_leave(sets, 1, "has returned");
        expect_failure(TENSOR_OUTCOME_CLOSED, 1, NULL, RUBATO_ERROR_NOT_FOUND, "worker 1");
    }
    lose(2, 4);
    expect_lost(2);
    if (_i == 1)
        expect_failure(TENSOR_OUTCOME_CLOSED, 0, NULL, RUBATO_ERROR_NOT_FOUND, "worker 1");
    expect_nothing();
    ck_assert(ask(0, 0, "x", NULL) == (_i == 0));
    tensor_sets_leave(sets, 3, "has returned");
    expect_nothing();
}
END_TEST

START_TEST(what_was_told_before_a_loss_that_concerns_its_set_is_late)
{
    make(0, 1, 1);
    make(0, 3, 2);
    make(2, 3, 3);
    lose(3, 4);
    lose(2, 3);
    ck_assert(!tensor_sets_is_late(sets, 1, 0));
    ck_assert(tensor_sets_is_late(sets, 2, 0) && !tensor_sets_is_late(sets, 2, 1));
    ck_assert(tensor_sets_is_late(sets, 0, 1) && !tensor_sets_is_late(sets, 0, 2));
    ck_assert(tensor_sets_is_late(sets, 3, 1) && !tensor_sets_is_late(sets, 3, 2));
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("tensor_sets");
    TCase *const cases = tcase_create("cases");

    tcase_add_checked_fixture(cases, begin, end);
    tcase_add_test(cases, ids_of_removed_sets_are_used_again);
    tcase_add_test(cases, sets_progress_at_the_same_time_under_the_same_names);
    tcase_add_test(cases, removed_set_fails_what_is_pending_in_it_alone);
    tcase_add_test(cases, workers_who_want_different_changes_get_none);
    tcase_add_test(cases, those_who_are_missing_in_a_change_are_named);
    tcase_add_test(cases, worker_that_leaves_closes_its_sets_alone);
    tcase_add_test(cases, errors_name_workers_by_their_rank_in_the_task);
    tcase_add_test(cases, a_loss_fails_what_is_pending_in_its_sets_alone_and_leaves_the_others);
    tcase_add_test(cases, sets_of_workers_that_are_replaced_keep_them_and_begin_anew);
    tcase_add_test(cases, a_set_whose_workers_are_all_lost_ends);
    tcase_add_test(cases, joins_and_changes_fail_by_a_loss_and_count_the_living_behind_it);
    tcase_add_loop_test(cases, a_set_that_was_closed_by_a_lost_worker_opens_again, 0, 2);
    tcase_add_test(cases, what_was_told_before_a_loss_that_concerns_its_set_is_late);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
