/* What keeps a link from going on: a state machine without networks. */
#include "io/net/link/link_fault.h"

#include "tests/support/runner.h"

START_TEST(fault_is_final_after_its_time_and_its_tries)
{
    LinkFault fault = { 0 };
    int64_t now_ms = 1000;

    ck_assert(!link_fault_asks(&fault, 100, now_ms));
    link_fault_sign(&fault, "bad", 100, now_ms);
    for (uint32_t i = 1; i <= LINK_FAULT_TRIES; i++) {
        ck_assert(!link_fault_is_final(&fault, 500, now_ms));
        ck_assert(link_fault_asks(&fault, 100, now_ms));
        ck_assert(!link_fault_asks(&fault, 100, now_ms + 99));
        now_ms += 100;
        link_fault_sign(&fault, "bad", 100, now_ms);
    }
    ck_assert(link_fault_is_final(&fault, 500, now_ms));
    ck_assert(link_fault_is_final(&fault, 100 * LINK_FAULT_TRIES, now_ms));
    ck_assert(!link_fault_is_final(&fault, 100 * LINK_FAULT_TRIES, now_ms - 1));
}
END_TEST

/* Everything in the buffers of a stopped receiver comes at once. */
START_TEST(fault_is_not_final_by_time_alone)
{
    LinkFault fault = { 0 };

    link_fault_sign(&fault, "bad", 100, 0);
    ck_assert(link_fault_asks(&fault, 100, 0));
    for (int i = 0; i < 1000; i++)
        link_fault_sign(&fault, "bad", 100, 60000);
    ck_assert(!link_fault_is_final(&fault, 500, 60000));
}
END_TEST

/* Asked each 10 ms, it may not have read that yet. */
START_TEST(fault_is_not_final_because_the_packet_was_asked_for_often)
{
    LinkFault fault = { 0 };
    int64_t now_ms = 10000;

    link_fault_sign(&fault, "bad", 100, 0);
    for (; now_ms < 10000 + 100 * (LINK_FAULT_TRIES - 1); now_ms += 10) {
        ck_assert(link_fault_asks(&fault, 10, now_ms));
        link_fault_sign(&fault, "bad", 100, now_ms);
        ck_assert(!link_fault_is_final(&fault, 500, now_ms));
    }
    ck_assert(link_fault_asks(&fault, 10, now_ms));
    link_fault_sign(&fault, "bad", 100, now_ms);
    ck_assert(link_fault_is_final(&fault, 500, now_ms));
}
END_TEST

START_TEST(fault_is_forgotten_when_the_link_goes_on)
{
    LinkFault fault = { 0 };

    for (int64_t i = 0, now_ms = 0; i < 1000; i++, now_ms += 100) {
        if (i % LINK_FAULT_TRIES == 0)
            link_fault_clear(&fault);
        ck_assert(!link_fault_is_final(&fault, 500, now_ms));
        link_fault_sign(&fault, "bad", 100, now_ms);
        ck_assert(link_fault_asks(&fault, 100, now_ms));
    }
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("link_fault");
    TCase *const faults = tcase_create("faults");

    tcase_add_test(faults, fault_is_final_after_its_time_and_its_tries);
    tcase_add_test(faults, fault_is_not_final_by_time_alone);
    tcase_add_test(faults, fault_is_not_final_because_the_packet_was_asked_for_often);
    tcase_add_test(faults, fault_is_forgotten_when_the_link_goes_on);
    suite_add_tcase(suite, faults);
    return run_suite(suite);
}
