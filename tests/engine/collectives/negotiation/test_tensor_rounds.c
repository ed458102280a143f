/* Rounds of bit vectors: what all nodes have told runs, what one asks in full does not, vectors
 * that come in any order, and those that make no sense. */
#include "engine/collectives/negotiation/tensor_rounds.h"

#include <check.h>
#include <string.h>

#include "tests/support/runner.h"

enum { N_NODES = 4, WITHOUT_WORKERS = 2, SET = 3, SERIAL = 9, N_SLOTS = 130 };

static const uint32_t workers_of[N_NODES] = { 2, 1, 0, 3 };
static const uint32_t members_of[N_NODES] = { 1, 0, 0, 2 };

static TensorRounds *rounds; /* of node 0 */

static void set_up(void)
{
    rounds = tensor_rounds_new(workers_of, N_NODES, 0);
}

static void tear_down(void)
{
    g_clear_pointer(&rounds, tensor_rounds_free);
}

/* A vector with one bit: of a slot that is asked again, or in full. n_cuts: its cut-overs, too. */
static TensorVector *vector_of(uint64_t serial, uint32_t slot, bool in_full, uint32_t n_cuts)
{
    TensorVector *const vector = tensor_vector_new(n_cuts, n_cuts);
    TensorBits *const bits = tensor_vector_add(vector, SET, serial, N_SLOTS);

    tensor_bit_set(in_full ? bits->in_full : bits->again, slot);
    return vector;
}

/* Takes the vector. */
static const char *take(uint32_t node, uint64_t round, TensorVector *vector)
{
    g_autoptr(GByteArray) bytes = tensor_vector_write(vector);
    const char *const wrong = tensor_rounds_take(rounds, node, round, bytes->data, bytes->len);

    tensor_vector_free(vector);
    return wrong;
}

static void give(uint32_t node, uint64_t round, TensorVector *vector)
{
    ck_assert_ptr_null(take(node, round, vector));
}

static TensorRoundOutcome outcome_of(uint32_t slot)
{
    return tensor_rounds_outcome(
        rounds, &g_array_index(tensor_rounds_own(rounds)->sets, TensorBits, 0), slot, members_of);
}

static bool may_run(uint32_t slot)
{
    return tensor_rounds_may_run(
        rounds, &g_array_index(tensor_rounds_own(rounds)->sets, TensorBits, 0), slot, members_of);
}

/* By what the others have told so far: node 1 has no workers in the set. */
START_TEST(slot_may_run_until_another_node_has_told_otherwise)
{
    TensorVector *const joined = tensor_vector_new(0, 0);

    tensor_vector_add(joined, SET, SERIAL, 0)->is_joined = 1;
    tensor_rounds_tell(rounds, vector_of(SERIAL, 5, false, 0));
    give(1, 1, tensor_vector_new(0, 0));
    ck_assert(may_run(5));
    give(3, 1,
         _i == 0   ? vector_of(SERIAL, 5, false, 0)
         : _i == 1 ? vector_of(SERIAL, 6, false, 0)
         : _i == 2 ? vector_of(SERIAL, 5, true, 0)
         : _i == 3 ? vector_of(SERIAL + 1, 5, false, 0)
                   : joined);
    ck_assert(may_run(5) == (_i == 0));
    if (_i < 4)
        tensor_vector_free(joined);
}
END_TEST

START_TEST(slot_runs_once_all_nodes_with_workers_in_its_set_have_told_it)
{
    tensor_rounds_tell(rounds, vector_of(SERIAL, 129, false, 0));
    give(1, 1, tensor_vector_new(0, 0));
    ck_assert(!tensor_rounds_is_complete(rounds));
    give(3, 1, vector_of(SERIAL, 129, false, 0));
    ck_assert(tensor_rounds_is_complete(rounds));
    ck_assert_int_eq(outcome_of(129), TENSOR_ROUND_RUNS);
    ck_assert_int_eq(outcome_of(128), TENSOR_ROUND_OPEN);
    tensor_rounds_end(rounds);
    ck_assert_uint_eq(tensor_rounds_number(rounds), 2);
    ck_assert(!tensor_rounds_has_told(rounds));
}
END_TEST

START_TEST(slot_stays_open_where_another_node_means_another_set_or_slot)
{
    tensor_rounds_tell(rounds, vector_of(SERIAL, 5, false, 0));
    give(1, 1, tensor_vector_new(0, 0));
    give(3, 1, vector_of(_i == 0 ? SERIAL + 1 : SERIAL, _i == 0 ? 5 : 6, false, 0));
    ck_assert_int_eq(outcome_of(5), TENSOR_ROUND_OPEN);
}
END_TEST

START_TEST(slot_is_asked_in_full_if_one_node_asks_so_or_has_joined)
{
    TensorVector *const joined = tensor_vector_new(0, 0);

    tensor_vector_add(joined, SET, SERIAL, 0)->is_joined = 1;
    tensor_rounds_tell(rounds, vector_of(SERIAL, 5, false, 0));
    give(1, 1, tensor_vector_new(0, 0));
    if (_i == 0)
        give(3, 1, vector_of(SERIAL, 5, true, 0));
    else
        give(3, 1, joined);
    ck_assert_int_eq(outcome_of(5), TENSOR_ROUND_IN_FULL);
    if (_i == 0)
        tensor_vector_free(joined);
}
END_TEST

static bool is_there(const void *user, const TensorBits *bits)
{
    return bits->set == SET && bits->serial == *(const uint64_t *)user;
}

static bool may_wait(void)
{
    const uint64_t serial = SERIAL;

    return tensor_rounds_may_wait(rounds, is_there, &serial);
}

/* Whoever else has told a vector. */
START_TEST(a_vector_that_only_asks_again_may_wait_for_workers_here)
{
    TensorVector *const joined = vector_of(SERIAL, 5, false, 0);
    TensorVector *const both = vector_of(SERIAL, 5, false, 0);
    TensorVector *const others = vector_of(SERIAL, 5, false, 0);
    TensorVector *const without = tensor_vector_new(0, 0);
    TensorVector *const wrong[] = { joined,
                                    both,
                                    others,
                                    without,
                                    tensor_vector_new(0, 0),
                                    vector_of(SERIAL, 5, true, 0),
                                    vector_of(SERIAL + 1, 5, false, 0) };

    g_array_index(joined->sets, TensorBits, 0).is_joined = 1;
    tensor_bit_set(g_array_index(both->sets, TensorBits, 0).in_full, 129);
    tensor_bit_set(tensor_vector_add(others, SET + 1, SERIAL, 1)->again, 0);
    tensor_vector_add(without, SET, SERIAL, N_SLOTS);
    give(1, 1, vector_of(SERIAL, 129, false, 0));
    ck_assert(may_wait());
    give(3, 2, tensor_vector_new(0, 0)); /* of the next round */
    ck_assert(may_wait());
    for (size_t i = 0; i < G_N_ELEMENTS(wrong); i++) {
        tear_down();
        set_up();
        give(1, 1, vector_of(SERIAL, 6, false, 0));
        give(3, 1, wrong[i]);
        ck_assert_msg(!may_wait(), "vector %zu", i);
    }
}
END_TEST

START_TEST(vectors_of_the_next_round_wait_for_it)
{
    give(3, 2, vector_of(SERIAL, 7, false, 0));
    ck_assert(!tensor_rounds_awaited(rounds));
    give(3, 1, tensor_vector_new(0, 0));
    ck_assert(tensor_rounds_awaited(rounds));
    tensor_rounds_tell(rounds, tensor_vector_new(0, 0));
    ck_assert(!tensor_rounds_awaited(rounds));
    give(1, 1, tensor_vector_new(0, 0));
    ck_assert(tensor_rounds_is_complete(rounds));
    tensor_rounds_end(rounds);
    ck_assert(tensor_rounds_awaited(rounds));
    tensor_rounds_tell(rounds, vector_of(SERIAL, 7, false, 0));
    give(1, 2, tensor_vector_new(0, 0));
    ck_assert_int_eq(outcome_of(7), TENSOR_ROUND_RUNS);
}
END_TEST

/* Before its vector has come, behind it, or while that of the next round is there, too. */
START_TEST(a_round_ends_without_a_lost_node_and_says_nothing_of_its_sets)
{
    static const uint32_t others[N_NODES] = { 1, 1, 0, 0 };

    tensor_rounds_tell(rounds, vector_of(SERIAL, 5, false, 0));
    if (_i > 0)
        give(3, 1, vector_of(SERIAL, 5, false, 0));
    if (_i > 1)
        give(3, 2, vector_of(SERIAL, 5, false, 0));
    tensor_rounds_lose(rounds, 3);
    tensor_rounds_lose(rounds, 3);
    ck_assert(!tensor_rounds_is_complete(rounds));
    give(1, 1, vector_of(SERIAL, 5, false, 0));
    ck_assert(tensor_rounds_is_complete(rounds));
    ck_assert_int_eq(outcome_of(5), TENSOR_ROUND_OPEN);
    ck_assert_int_eq(
        tensor_rounds_outcome(
            rounds, &g_array_index(tensor_rounds_own(rounds)->sets, TensorBits, 0), 5, others),
        TENSOR_ROUND_RUNS);
    tensor_rounds_end(rounds);
    ck_assert(!tensor_rounds_awaited(rounds));
    give(3, 2, tensor_vector_new(0, 0)); /* it comes late */
    ck_assert(!tensor_rounds_awaited(rounds));
    give(1, 2, tensor_vector_new(0, 0));
    tensor_rounds_tell(rounds, tensor_vector_new(0, 0));
    ck_assert(tensor_rounds_is_complete(rounds));
}
END_TEST

START_TEST(cut_overs_are_those_of_the_node_that_has_heard_the_fewest)
{
    TensorCutovers cutovers = 0;

    tensor_rounds_tell(rounds, tensor_vector_new(3, 3));
    give(1, 1, tensor_vector_new(2, 2));
    give(3, 1, tensor_vector_new((uint32_t)_i, 1));
    ck_assert(tensor_rounds_cutovers(rounds, &cutovers) == (_i > 0));
    ck_assert(_i == 0 || cutovers == 1);
}
END_TEST

START_TEST(what_does_not_belong_to_the_round_is_refused)
{
    give(1, 1, tensor_vector_new(0, 0));
    give(1, 2, tensor_vector_new(0, 0));
    ck_assert_ptr_nonnull(take(1, 1, tensor_vector_new(0, 0)));
    ck_assert_ptr_nonnull(take(1, 2, tensor_vector_new(0, 0)));
    ck_assert_ptr_nonnull(take(3, 3, tensor_vector_new(0, 0)));
    ck_assert_ptr_nonnull(take(3, 0, tensor_vector_new(0, 0)));
    ck_assert_ptr_nonnull(take(0, 1, tensor_vector_new(0, 0)));
    ck_assert_ptr_nonnull(take(WITHOUT_WORKERS, 1, tensor_vector_new(0, 0)));
}
END_TEST

/* Where a number lies in the bytes of a vector with one set of three words, and a value that makes
 * no sense there. */
static const struct {
    size_t at, size;
    uint64_t value;
} nonsense[] = {
    { 4, 8, UINT64_C(1) << 60 },  /* cut-overs of classes that there are not */
    { 4, 8, TENSOR_WAYS },        /* a way that there is not */
    { 12, 4, TENSOR_ROUND_SETS }, /* a set's id */
    { 16, 4, 2 },                 /* words: some are left */
    { 16, 4, 4 },                 /* more than there are */
    { 16, 4, UINT32_MAX },        /* more than there can be */
    { 28, 8, 2 },                 /* joined twice */
};

START_TEST(bytes_that_make_no_sense_are_refused)
{
    TensorVector *const vector = vector_of(SERIAL, 1, false, 1);
    g_autoptr(GByteArray) bytes = tensor_vector_write(vector);

    tensor_vector_free(vector);
    memcpy(bytes->data + nonsense[_i].at, &nonsense[_i].value, nonsense[_i].size);
    ck_assert_ptr_null(tensor_vector_read(bytes->data, bytes->len));
}
END_TEST

START_TEST(bytes_that_are_cut_off_are_refused)
{
    TensorVector *const vector = vector_of(SERIAL, 1, false, 1);
    g_autoptr(GByteArray) bytes = tensor_vector_write(vector);

    tensor_vector_free(vector);
    for (size_t n = 0; n < bytes->len; n++)
        if (n != 12) /* a vector without sets */
            ck_assert_ptr_null(tensor_vector_read(bytes->data, n));
}
END_TEST

START_TEST(numbers_of_operations_say_their_round)
{
    const uint64_t number =
        tensor_round_number(TENSOR_ROUNDS_END - 1, TENSOR_ROUND_SETS - 1, TENSOR_ROUND_NAMES - 1);

    ck_assert_uint_eq(number, UINT64_MAX);
    ck_assert_uint_eq(tensor_round_of(number), TENSOR_ROUNDS_END - 1);
    ck_assert_uint_ne(tensor_round_number(1, 0, 1), tensor_round_number(1, 1, 0));
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("tensor_rounds");
    TCase *const cases = tcase_create("cases");

    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_loop_test(cases, slot_may_run_until_another_node_has_told_otherwise, 0, 5);
    tcase_add_test(cases, slot_runs_once_all_nodes_with_workers_in_its_set_have_told_it);
    tcase_add_loop_test(cases, slot_stays_open_where_another_node_means_another_set_or_slot, 0, 2);
    tcase_add_loop_test(cases, slot_is_asked_in_full_if_one_node_asks_so_or_has_joined, 0, 2);
    tcase_add_test(cases, a_vector_that_only_asks_again_may_wait_for_workers_here);
    tcase_add_test(cases, vectors_of_the_next_round_wait_for_it);
    tcase_add_loop_test(cases, a_round_ends_without_a_lost_node_and_says_nothing_of_its_sets, 0, 3);
    tcase_add_loop_test(cases, cut_overs_are_those_of_the_node_that_has_heard_the_fewest, 0, 2);
    tcase_add_test(cases, what_does_not_belong_to_the_round_is_refused);
    tcase_add_loop_test(cases, bytes_that_make_no_sense_are_refused, 0, G_N_ELEMENTS(nonsense));
    tcase_add_test(cases, bytes_that_are_cut_off_are_refused);
    tcase_add_test(cases, numbers_of_operations_say_their_round);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
