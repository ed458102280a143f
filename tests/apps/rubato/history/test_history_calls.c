/* `rubato history check` on calls of handlers that write: histories that are wrong on purpose, one
 * for each rule, and the same without the fault. */
#include <math.h>
#include <string.h>

#include "tests/support/cluster/history_writer.h"
#include "tests/support/runner.h"

/* A call of a worker that has made no other at its clock, on one part, which has run it. */
static void call(Writer *writer, uint32_t worker, float before, float after)
{
    writer_run(writer, worker, writer_call(writer, worker, 1, /* is_done= */ true), before, after);
}

static void tick_both(Writer *writer)
{
    writer_tick(writer, 0);
    writer_tick(writer, 1);
}

static void run_once(Writer *writer, bool faulty)
{
    writer_add(writer, 0, 5, 3);
    call(writer, 0, 3, 6);
    if (faulty) /* the same call again */
        writer_run(writer, 0, 1, 6, 12);
    writer_end(writer, faulty ? 12 : 6);
}

/* It changes nothing, so no row tells whether it was run. */
static void run_at_all(Writer *writer, bool faulty)
{
    const uint64_t number = writer_call(writer, 0, 1, /* is_done= */ true);

    if (!faulty)
        writer_run(writer, 0, number, 0, 0);
    writer_end(writer, 0);
}

static void run_on_all_parts(Writer *writer, bool faulty)
{
    const uint64_t number = writer_call(writer, 1, 2, /* is_done= */ true);

    writer_run(writer, 1, number, 0, 0);
    if (!faulty)
        writer_apply(writer->server,
                     &(HistoryApplied){ .epoch = 1, .rank = 1, .number = number, .part = 1 }, 0, 0);
    writer_end(writer, 0);
}

static void run_what_was_called(Writer *writer, bool faulty)
{
    const uint64_t number = writer_call(writer, 1, 1, /* is_done= */ true);

    writer_run(writer, 1, number, 0, 4);
    if (faulty)
        writer_run(writer, 1, number + 1, 4, 8);
    writer_end(writer, faulty ? 8 : 4);
}

static void keep_what_it_changed(Writer *writer, bool faulty)
{
    writer_add(writer, 1, 5, 3);
    call(writer, 1, 3, 10);
    writer_end(writer, faulty ? 3 : 10);
}

static void change_it_once(Writer *writer, bool faulty)
{
    writer_add(writer, 1, 5, 3);
    call(writer, 1, 3, 10);
    writer_end(writer, faulty ? 17 : 10);
}

static void find_own_adds(Writer *writer, bool faulty)
{
    writer_add(writer, 0, 5, 1);
    writer_add(writer, 0, 5, 2);
    call(writer, 0, faulty ? 1 : 3, faulty ? 2 : 6);
    writer_end(writer, faulty ? 4 : 6);
}

static void see_own_call(Writer *writer, bool faulty)
{
    writer_add(writer, 0, 5, 3);
    call(writer, 0, 3, 6);
    writer_get(writer, 0, 5, faulty ? 3 : 6);
    writer_end(writer, 6);
}

static void see_calls_within_staleness(Writer *writer, bool faulty)
{
    call(writer, 1, 0, 10);
    tick_both(writer);
    tick_both(writer);
    writer_get(writer, 0, 5, faulty ? 0 : 10); /* at clock 2: all of clock 0 */
    writer_end(writer, 10);
}

static void see_no_call_of_own_clock(Writer *writer, bool faulty)
{
    writer_add(writer, 0, 5, 3);
    tick_both(writer);
    call(writer, 1, 3, 6);
    writer_get(writer, 0, 5, faulty ? 6 : 3);
    writer_end(writer, 6);
}

/* Of worker 0 the Add of the same clock, of worker 1 none. */
static void find_the_adds_before(Writer *writer, bool faulty)
{
    writer_add(writer, 0, 5, 1);
    writer_add(writer, 1, 5, 10);
    call(writer, 0, faulty ? 11 : 1, faulty ? 22 : 2);
    tick_both(writer);
    writer_end(writer, faulty ? 22 : 12);
}

static void find_its_last_bits(Writer *writer, bool faulty)
{
    writer_add(writer, 0, 5, 1e8F);
    writer_add(writer, 0, 5, -1e8F);
    writer_add(writer, 0, 5, 0.3F);
    call(writer, 0, faulty ? 0 : 0.3F, 1);
    tick_both(writer);
    writer_get(writer, 0, 5, 1);
    writer_end(writer, 1);
}

static void keep_number(Writer *writer, bool faulty)
{
    call(writer, 0, 0, 1);
    writer->n_adds[0] -= faulty; /* as if it were no change of its worker's */
    writer_add(writer, 0, 5, 1);
    writer_end(writer, 2);
}

/* Node 1 has a replica of the part. */
static void copy_alike(Writer *writer, bool faulty)
{
    History *const other = writer_open_node(1, "ssp", "add");
    HistoryStream *const server = writer_new_server(other);

    call(writer, 0, 0, 7);
    writer_apply(server, &(HistoryApplied){ .epoch = 1, .number = 1 }, 0, faulty ? 8 : 7);
    history_stream_free(server);
    history_say(other, "end 1 at 3 well\n");
    history_close(other);
    writer_end(writer, 7);
}

static const struct {
    const char *model, *update;
    void (*write)(Writer *writer, bool faulty);
    const char *rule, *said; /* of the faulty one */
} cases[] = {
    { "asp", "add", run_once, "once",
      "worker 0 of task 1 at clock 0: its call number 1 ran twice on part 0, on node 0" },
    { "asp", "add", run_at_all, "once",
      "worker 0 of task 1 at clock 0: its call number 1 of handler scale is lost: it ran on 0 of "
      "1 parts" },
    { "ssp", "sgd", run_at_all, "once", "its call number 1 of handler scale is lost" },
    { "bsp", "add", run_on_all_parts, "once",
      "worker 1 of task 1 at clock 0: its call number 1 "
      "of handler scale is lost: it ran on 1 of 2 parts" },
    { "ssp", "add", run_what_was_called, "invented",
      "worker 1 of task 1 at clock 0: part 0 has run its call number 2, which it has not made" },
    { "ssp", "add", keep_what_it_changed, "once",
      "key 5: call 1 of worker 1 at clock 0, of handler scale is lost" },
    { "asp", "add", change_it_once, "once",
      "key 5: it shows call 1 of worker 1 at clock 0, of handler scale twice" },
    { "asp", "add", find_own_adds, "own",
      "key 5: what its call of handler scale has found: its worker does not see its own Add 1" },
    { "ssp", "add", see_own_call, "own",
      "key 5: its worker does not see its own call 1 of worker 0 at clock 0, of handler scale" },
    { "ssp", "add", see_calls_within_staleness, "bound",
      "worker 0 of task 1 at clock 2, key 5: call 0 of worker 1 at clock 0, of handler scale is "
      "missing, which staleness 1 has it see" },
    { "bsp", "add", see_no_call_of_own_clock, "exact",
      "it shows call 0 of worker 1 at clock 1, of handler scale, which was made later" },
    { "bsp", "add", find_the_adds_before, "exact",
      "what its call of handler scale has found: it shows Add 0 of worker 1 at clock 0" },
    { "bsp", "add", find_its_last_bits, "exact",
      "what its call has found differs by its last bits" },
    { "ssp", "add", keep_number, "order", "its Add number 0 comes after 1 Adds" },
    { "ssp", "add", copy_alike, "alike",
      "its call number 1 has changed other rows of part 0 on node 1 than on node 0" },
};

START_TEST(calls_without_faults_are_right)
{
    Writer writer = { 0 };

    writer_begin(&writer, cases[_i].model, cases[_i].update);
    cases[_i].write(&writer, /* faulty= */ false);
    g_autofree char *said = writer_check(NULL, EXIT_SUCCESS);
    ck_assert_msg(g_str_has_suffix(said, "\nnothing wrong\n"), "%s", said);
}
END_TEST

START_TEST(each_fault_of_a_call_is_told)
{
    g_autofree char *rule = g_strdup_printf("WRONG (%s): table w, ", cases[_i].rule);
    Writer writer = { 0 };

    writer_begin(&writer, cases[_i].model, cases[_i].update);
    cases[_i].write(&writer, /* faulty= */ true);
    g_autofree char *said = writer_check(NULL, EXIT_WRONG);
    ck_assert_msg(strstr(said, rule) != NULL && strstr(said, cases[_i].said) != NULL, "%s", said);
}
END_TEST

/* It may have run, or not; but never twice. */
START_TEST(a_call_that_failed_may_have_run)
{
    Writer writer = { 0 };

    writer_begin(&writer, "asp", "add");
    const uint64_t number = writer_call(&writer, 0, 2, /* is_done= */ false);
    for (int i = 0; i < _i; i++)
        writer_run(&writer, 0, number, (float)i, (float)i + 1);
    writer_end(&writer, (float)_i);
    g_autofree char *said = writer_check(NULL, _i < 2 ? EXIT_SUCCESS : EXIT_WRONG);
    ck_assert_msg((strstr(said, "ran twice") != NULL) == (_i == 2), "%s", said);
}
END_TEST

/* What a process that was lost has run last, nobody else may have got: only if no other one has run
 * the call, it counts. _i 1: the process was lost. */
START_TEST(what_a_lost_server_has_run_counts_less)
{
    Writer writer = { 0 };

    writer_begin(&writer, "ssp", "add");
    History *other = writer_open_node(1, "ssp", "add");
    HistoryStream *server = writer_new_server(other);
    const uint64_t first = writer_call(&writer, 0, 1, /* is_done= */ true);
    const uint64_t second = writer_call(&writer, 0, 1, /* is_done= */ true);
    writer_apply(server, &(HistoryApplied){ .epoch = 1, .number = first }, 0, 1);
    writer_apply(server, &(HistoryApplied){ .epoch = 1, .number = second }, 1, 3);
    writer_run(&writer, 0, second, 1, 2);
    if (_i == 1)
        history_say(writer.history, "lost 1\n");
    history_stream_free(server);
    history_say(other, "end 1 at 3 well\n");
    history_close(other);
    writer_end(&writer, 2);
    g_autofree char *said = writer_check(NULL, _i == 1 ? EXIT_SUCCESS : EXIT_WRONG);
    ck_assert_msg((strstr(said, "WRONG (alike)") != NULL) == (_i == 0), "%s", said);
}
END_TEST

START_TEST(damaged_calls_are_refused_or_judged)
{
    Writer writer = { 0 };

    writer_begin(&writer, "bsp", "add");
    find_its_last_bits(&writer, /* faulty= */ false);
    writer_expect_no_crash(67);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("history calls");
    TCase *tcase = tcase_create("calls");

    tcase_add_checked_fixture(tcase, writer_set_up, writer_tear_down);
    tcase_add_loop_test(tcase, calls_without_faults_are_right, 0, G_N_ELEMENTS(cases));
    tcase_add_loop_test(tcase, each_fault_of_a_call_is_told, 0, G_N_ELEMENTS(cases));
    tcase_add_loop_test(tcase, a_call_that_failed_may_have_run, 0, 3);
    tcase_add_loop_test(tcase, what_a_lost_server_has_run_counts_less, 0, 2);
    tcase_add_test(tcase, damaged_calls_are_refused_or_judged);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
