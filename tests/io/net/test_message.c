/* Copies of messages, and giving messages back. */
#include <glib.h>
#include <string.h>

#include "io/net/message.h"
#include "tests/support/runner.h"

static const RubatoKey keys[] = { 50, 40, 30, 20, 10 };
static const int16_t rows[] = { 500, 501, 400, 401, 300, 301, 200, 201, 100, 101 };
#define ROW_BYTES (2 * sizeof(int16_t))

static Message add_of(RubatoKeys its_keys)
{
    return (Message){
        .kind = MESSAGE_ADD,
        .epoch = 4,
        .table = 2,
        .server = 1,
        .request = { .worker = 3, .clock = 9, .keys = its_keys, .input = rows },
        .row_bytes = ROW_BYTES,
    };
}

START_TEST(a_list_is_copied_with_its_deltas)
{
    RubatoKey own_keys[5];
    int16_t own_rows[10];
    Message add = add_of((RubatoKeys){ .keys = own_keys, .n = 5 });
    Message *copy;

    memcpy(own_keys, keys, sizeof keys);
    memcpy(own_rows, rows, sizeof rows);
    add.request.input = own_rows;
    copy = message_copy_request(&add);
    memset(own_keys, 0xff, sizeof own_keys);
    memset(own_rows, 0xff, sizeof own_rows);
    ck_assert_mem_eq(copy->request.keys.keys, keys, sizeof keys);
    ck_assert_mem_eq(copy->request.input, rows, sizeof rows);
    ck_assert_uint_eq(copy->request.keys.n, 5);
    ck_assert_ptr_null(copy->request.keys.at);
    ck_assert_uint_eq(copy->request.worker, 3);
    ck_assert_uint_eq(copy->request.clock, 9);
    ck_assert_uint_eq(copy->epoch, 4);
    ck_assert_uint_eq(copy->table, 2);
    ck_assert_uint_eq(copy->server, 1);
    message_end(copy);
}
END_TEST

START_TEST(a_copied_list_is_packed_with_its_deltas)
{
    const Message add = add_of((RubatoKeys){ .keys = keys, .n = 5 });
    Message *copy = message_copy_request(&add);
    const RubatoKeys *its_keys = &copy->request.keys;
    const char *input = copy->request.input;
    const RubatoKeys first = message_keys_from(its_keys, 0, 4);
    const RubatoKeys last = message_keys_from(its_keys, 1, 4);
    const RubatoKeys run = { .n = 5 };
    static const char padding[4];

    ck_assert_ptr_eq(message_packed(copy, its_keys, input), its_keys->keys);
    ck_assert_mem_eq(input + sizeof rows, padding, sizeof padding);
    ck_assert_ptr_null(message_packed(copy, &first, input));
    ck_assert_ptr_null(message_packed(copy, &last, input + ROW_BYTES));
    ck_assert_ptr_null(message_packed(copy, &run, input));
    ck_assert_ptr_null(message_packed(copy, its_keys, NULL));
    copy->is_packed = false;
    ck_assert_ptr_null(message_packed(copy, its_keys, input));
    message_end(copy);
}
END_TEST

START_TEST(a_selection_becomes_a_list_of_what_it_selects)
{
    const uint32_t at[] = { 4, 1, 1 };
    const Message add = add_of((RubatoKeys){ .keys = keys, .at = at, .n = 3 });
    Message *copy = message_copy_request(&add);
    static const RubatoKey selected[] = { 10, 40, 40 };
    static const int16_t selected_rows[] = { 100, 101, 400, 401, 400, 401 };

    ck_assert_ptr_null(copy->request.keys.at);
    ck_assert_uint_eq(copy->request.keys.n, 3);
    ck_assert_mem_eq(copy->request.keys.keys, selected, sizeof selected);
    ck_assert_mem_eq(copy->request.input, selected_rows, sizeof selected_rows);
    message_end(copy);
}
END_TEST

START_TEST(a_run_stays_a_run)
{
    const Message add = add_of((RubatoKeys){ .first = 77, .n = 5 });
    Message *copy = message_copy_request(&add);

    ck_assert_ptr_null(copy->request.keys.keys);
    ck_assert_uint_eq(copy->request.keys.first, 77);
    ck_assert_uint_eq(copy->request.keys.n, 5);
    ck_assert_mem_eq(copy->request.input, rows, sizeof rows);
    message_end(copy);
}
END_TEST

START_TEST(an_announcement_has_keys_alone)
{
    const uint32_t at[] = { 3, 0 };
    Message announcement = add_of((RubatoKeys){ .keys = keys, .at = at, .n = 2 });
    Message *copy;

    announcement.kind = MESSAGE_ANNOUNCE;
    announcement.request.input = NULL;
    copy = message_copy_request(&announcement);
    ck_assert_uint_eq(copy->request.keys.keys[0], 20);
    ck_assert_uint_eq(copy->request.keys.keys[1], 50);
    ck_assert_ptr_null(copy->request.input);
    message_end(copy);
}
END_TEST

START_TEST(a_clock_is_copied_too)
{
    const Message clock = { .kind = MESSAGE_CLOCK, .clock = { .source = 1, .clock = 5 } };
    Message *copy = message_copy_clock(&clock);

    ck_assert_uint_eq(copy->clock.source, 1);
    ck_assert_uint_eq(copy->clock.clock, 5);
    message_end(copy);
}
END_TEST

START_TEST(a_copy_answers_to_the_same_call)
{
    Call call;
    Message add = add_of((RubatoKeys){ .keys = keys, .n = 5 });
    Message *copy;

    call_begin(&call, NULL);
    call_add_parts(&call, 1);
    call_sent(&call);
    add.call = &call;
    copy = message_copy_request(&add);
    copy->status = CALL_REFUSED;
    copy->min_clock = 12;
    message_end(copy);
    ck_assert(call_has_ended(&call));
    ck_assert_uint_eq(call.status, CALL_REFUSED);
    ck_assert_uint_eq(call.min_clock, 12);
}
END_TEST

START_TEST(a_message_that_nobody_waits_for_ends_in_nothing)
{
    Message message = { .kind = MESSAGE_CLOCK };

    message_end(&message);
    ck_assert_int_eq(message.kind, MESSAGE_CLOCK);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("message");
    TCase *cases = tcase_create("copies");

    tcase_add_test(cases, a_list_is_copied_with_its_deltas);
    tcase_add_test(cases, a_copied_list_is_packed_with_its_deltas);
    tcase_add_test(cases, a_selection_becomes_a_list_of_what_it_selects);
    tcase_add_test(cases, a_run_stays_a_run);
    tcase_add_test(cases, an_announcement_has_keys_alone);
    tcase_add_test(cases, a_clock_is_copied_too);
    tcase_add_test(cases, a_copy_answers_to_the_same_call);
    tcase_add_test(cases, a_message_that_nobody_waits_for_ends_in_nothing);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
