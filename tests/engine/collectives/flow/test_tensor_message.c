/* The bytes of a piece of a tensor that lies in memory which its sender lends. */
#include <string.h>

#include "engine/collectives/flow/tensor_message.h"
#include "engine/control/control.h"
#include "tests/support/runner.h"

enum { ALL_BYTES = TENSOR_MESSAGE_HEADER_BYTES + TENSOR_MESSAGE_LOAN_BYTES };

static const TensorMessage lent = { .kind = TENSOR_MESSAGE_RESULT,
                                    .number = 3,
                                    .place = 5,
                                    .n_bytes = 70000,
                                    .is_lent = true,
                                    .loan = { .block = 9, .reader = 3, .use = 11 } };

START_TEST(a_loan_is_read_as_it_was_written)
{
    uint8_t bytes[ALL_BYTES];
    TensorMessage message;

    tensor_message_write(&lent, bytes);
    ck_assert_pstr_eq(tensor_message_read(bytes, sizeof bytes, &message), NULL);
    ck_assert(message.is_lent);
    ck_assert_int_eq(message.kind, lent.kind);
    ck_assert_uint_eq(message.number, lent.number);
    ck_assert_uint_eq(message.place, lent.place);
    ck_assert_uint_eq(message.n_bytes, lent.n_bytes);
    ck_assert_uint_eq(message.loan.block, lent.loan.block);
    ck_assert_uint_eq(message.loan.reader, lent.loan.reader);
    ck_assert_uint_eq(message.loan.use, lent.loan.use);
    ck_assert_ptr_null(message.bytes);
}
END_TEST

START_TEST(a_wrong_loan_is_refused)
{
    uint8_t bytes[ALL_BYTES + 1] = { 0 };
    TensorMessage message, wrong = lent;

    /* kinds whose bytes are looked at more than once, and such as there are not */
    for (uint32_t kind = 0; kind <= TENSOR_MESSAGE_END; kind++) {
        wrong.kind = (TensorMessageKind)kind;
        wrong.code = kind == TENSOR_MESSAGE_FAILURE ? CONTROL_CODE(RUBATO_ERROR_IO) : 0;
        tensor_message_write(&wrong, bytes);
        ck_assert((tensor_message_read(bytes, ALL_BYTES, &message) == NULL) ==
                  tensor_message_may_be_lent(wrong.kind));
    }
    wrong = lent;
    tensor_message_write(&wrong, bytes);
    ck_assert_ptr_nonnull(tensor_message_read(bytes, ALL_BYTES - 1, &message));
    ck_assert_ptr_nonnull(tensor_message_read(bytes, ALL_BYTES + 1, &message));
    ck_assert_ptr_nonnull(tensor_message_read(bytes, TENSOR_MESSAGE_HEADER_BYTES, &message));
    wrong.n_bytes = TENSOR_MESSAGE_MOST_BYTES + 1;
    tensor_message_write(&wrong, bytes);
    ck_assert_ptr_nonnull(tensor_message_read(bytes, ALL_BYTES, &message));
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("tensor message");
    TCase *const all = tcase_create("loans");

    tcase_add_test(all, a_loan_is_read_as_it_was_written);
    tcase_add_test(all, a_wrong_loan_is_refused);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}
