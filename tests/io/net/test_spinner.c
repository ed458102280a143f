/* Polling before sleeping: as long as it helps, and only now and then after that. */
#include "io/net/spinner.h"

#include <glib.h>
#include <sched.h>
#include <sys/sysinfo.h>

#include "io/net/monotonic.h"
#include "tests/support/runner.h"

static unsigned n_asked;

/* In place of GLib's, which reads a file each time. */
guint g_get_num_processors(void)
{
    n_asked++;
    return (guint)get_nprocs();
}

/* As if there were several processors, however many this machine has. */
static Spinner new_spinner(void)
{
    Spinner spinner;

    spinner_init(&spinner);
    spinner.is_alone = false;
    return spinner;
}

static void look_in_vain(Spinner *spinner, SpinnerEnd *end)
{
    while (spinner_go_on(spinner, end))
        ;
}

START_TEST(the_time_begins_when_something_was_not_found_at_once)
{
    Spinner spinner = new_spinner();
    SpinnerEnd end;

    ck_assert(spinner_begin(&spinner, &end));
    ck_assert_int_eq(end, 0);
    (void)spinner_go_on(&spinner, &end);
    ck_assert_int_gt(end, 0);
}
END_TEST

START_TEST(a_look_ends_when_its_time_is_over)
{
    Spinner spinner = new_spinner();
    SpinnerEnd end;

    ck_assert(spinner_begin(&spinner, &end));
    look_in_vain(&spinner, &end);
    ck_assert(!spinner_go_on(&spinner, &end));
}
END_TEST

/* How many attempts are left out before the next one, which is in vain. */
static unsigned count_skipped(Spinner *spinner)
{
    SpinnerEnd end;
    unsigned n_skipped = 0;

    for (; !spinner_begin(spinner, &end); n_skipped++)
        ;
    look_in_vain(spinner, &end);
    return n_skipped;
}

START_TEST(looks_in_vain_become_seldom_but_do_not_cease)
{
    Spinner spinner = new_spinner();
    unsigned n_skipped = 0;

    ck_assert_uint_eq(count_skipped(&spinner), 0);
    ck_assert_uint_eq(count_skipped(&spinner), 0);
    for (int i = 0; i < 12; i++) {
        const unsigned before = n_skipped;

        n_skipped = count_skipped(&spinner);
        ck_assert_uint_ge(n_skipped, before);
        ck_assert_uint_le(n_skipped, 2 * before + 1);
    }
    ck_assert_uint_gt(n_skipped, 10);
    ck_assert_uint_lt(n_skipped, 100);
}
END_TEST

START_TEST(one_that_finds_something_makes_all_worth_it)
{
    Spinner spinner = new_spinner();
    SpinnerEnd end;

    while (spinner_begin(&spinner, &end))
        look_in_vain(&spinner, &end);
    while (!spinner_begin(&spinner, &end))
        ;
    spinner_found(&spinner);
    for (int i = 0; i < 100; i++) {
        ck_assert(spinner_begin(&spinner, &end));
        spinner_found(&spinner);
    }
}
END_TEST

/* A turn of each thread on the processor is no time lost. */
START_TEST(threads_that_share_a_processor_look_longer_and_give_way_sooner)
{
    Spinner spinner = new_spinner(), shared = new_spinner();
    SpinnerEnd end, shared_end;

    spinner_share(&spinner, g_get_num_processors());
    ck_assert_uint_eq(spinner.n_looks, new_spinner().n_looks);
    ck_assert_uint_eq(spinner.n_sharing, 1);
    spinner_share(&shared, 3 * g_get_num_processors() + 1);
    ck_assert_uint_lt(shared.n_looks, spinner.n_looks);
    ck_assert(spinner_begin(&spinner, &end) && spinner_begin(&shared, &shared_end));
    (void)spinner_go_on(&spinner, &end);
    (void)spinner_go_on(&shared, &shared_end);
    ck_assert_int_gt(shared_end, end + 2 * 50000);
    spinner_share(&shared, UINT32_MAX);
    ck_assert_uint_le(shared.n_sharing, 64);
}
END_TEST

START_TEST(who_receives_on_a_processor_of_its_own_gives_it_away_less_often)
{
    Spinner spinner = new_spinner(), shared = new_spinner();

    spinner_share(&spinner, g_get_num_processors());
    ck_assert_uint_ge(spinner_looks_receiving(&spinner), 4 * spinner.n_looks);
    spinner_share(&shared, g_get_num_processors() + 1);
    ck_assert_uint_eq(spinner_looks_receiving(&shared), shared.n_looks);
}
END_TEST

START_TEST(patient_threads_that_share_a_processor_look_longer_but_not_without_end)
{
    Spinner patient = new_spinner(), crowd = new_spinner();
    SpinnerEnd patient_end, crowd_end;

    patient.is_patient = crowd.is_patient = true;
    spinner_share(&patient, 2 * g_get_num_processors());
    spinner_share(&crowd, UINT32_MAX);
    ck_assert(spinner_begin(&patient, &patient_end) && spinner_begin(&crowd, &crowd_end));
    const int64_t begun = monotonic_ns();
    (void)spinner_go_on(&patient, &patient_end);
    (void)spinner_go_on(&crowd, &crowd_end);
    ck_assert_int_ge(patient_end, begun + 10 * 50000);
    ck_assert_int_le(crowd_end, monotonic_ns() + 64 * 50000); /* as without patience */
}
END_TEST

START_TEST(patience_is_for_those_who_share_a_processor)
{
    Spinner spinner = new_spinner();
    SpinnerEnd end;

    spinner.is_patient = true;
    spinner_share(&spinner, g_get_num_processors());
    ck_assert(spinner_begin(&spinner, &end));
    (void)spinner_go_on(&spinner, &end);
    ck_assert_int_le(end, monotonic_ns() + 50000);
}
END_TEST

START_TEST(who_waits_for_what_takes_long_looks_for_a_fifth_of_a_millisecond)
{
    Spinner spinner = new_spinner();
    SpinnerEnd end;

    spinner.looks_long = true;
    spinner_share(&spinner, g_get_num_processors());
    ck_assert(spinner_begin(&spinner, &end));
    const int64_t begun = monotonic_ns();
    (void)spinner_go_on(&spinner, &end);
    ck_assert_int_ge(end, begun + 4 * 50000);
    ck_assert_int_le(end, monotonic_ns() + 4 * 50000);
}
END_TEST

START_TEST(the_system_is_asked_once_how_many_processors_there_are)
{
    Spinner spinner = new_spinner();
    const unsigned before = n_asked; /* by cases before, too, where they run in one process */

    for (int i = 0; i < 10; i++) {
        spinner = new_spinner();
        spinner_share(&spinner, 1000);
    }
    ck_assert_uint_eq(n_asked, before);
}
END_TEST

START_TEST(on_a_single_processor_nobody_looks)
{
    Spinner spinner = new_spinner();
    SpinnerEnd end;

    spinner.is_alone = true;
    for (int i = 0; i < 200; i++)
        ck_assert(!spinner_begin(&spinner, &end));
}
END_TEST

/* As if so much had been found only after another thread had used the processor. */
static void be_crowded(Spinner *spinner)
{
    spinner->moved_at = 0;
    for (int i = 0; i < 20; i++) {
        spinner->gave_way = true;
        spinner_found(spinner);
    }
}

START_TEST(who_shares_a_processor_leaves_it_and_may_come_back)
{
    Spinner spinner = new_spinner();
    cpu_set_t before, after;
    SpinnerEnd end;
    int n_moves = 0;

    spinner.moves = true;
    ck_assert_int_eq(sched_getaffinity(0, sizeof before, &before), 0);
    for (int i = 0; i < 50; i++) {
        const int processor = sched_getcpu();

        be_crowded(&spinner);
        ck_assert(spinner_begin(&spinner, &end));
        n_moves += sched_getcpu() != processor;
        ck_assert_int_eq(sched_getaffinity(0, sizeof after, &after), 0);
        ck_assert(CPU_EQUAL(&before, &after));
    }
    if (CPU_COUNT(&before) > 1) /* others may move it too, but not back each time */
        ck_assert_int_gt(n_moves, 10);
    else
        ck_assert_int_eq(n_moves, 0);
}
END_TEST

START_TEST(who_does_not_share_or_may_not_move_stays)
{
    Spinner spinner = new_spinner();
    SpinnerEnd end;

    be_crowded(&spinner);
    ck_assert(spinner_begin(&spinner, &end));
    ck_assert_int_eq(spinner.moved_at, 0);

    spinner.moves = true;
    spinner_found(&spinner); /* at once */
    ck_assert(spinner_begin(&spinner, &end));
    ck_assert_int_eq(spinner.moved_at, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("spinner");
    TCase *cases = tcase_create("spinner");

    tcase_add_test(cases, a_look_ends_when_its_time_is_over);
    tcase_add_test(cases, the_time_begins_when_something_was_not_found_at_once);
    tcase_add_test(cases, looks_in_vain_become_seldom_but_do_not_cease);
    tcase_add_test(cases, one_that_finds_something_makes_all_worth_it);
    tcase_add_test(cases, threads_that_share_a_processor_look_longer_and_give_way_sooner);
    tcase_add_test(cases, who_receives_on_a_processor_of_its_own_gives_it_away_less_often);
    tcase_add_test(cases, patient_threads_that_share_a_processor_look_longer_but_not_without_end);
    tcase_add_test(cases, patience_is_for_those_who_share_a_processor);
    tcase_add_test(cases, who_waits_for_what_takes_long_looks_for_a_fifth_of_a_millisecond);
    tcase_add_test(cases, the_system_is_asked_once_how_many_processors_there_are);
    tcase_add_test(cases, on_a_single_processor_nobody_looks);
    tcase_add_test(cases, who_shares_a_processor_leaves_it_and_may_come_back);
    tcase_add_test(cases, who_does_not_share_or_may_not_move_stays);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
