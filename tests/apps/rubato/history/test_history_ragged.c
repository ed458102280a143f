/* `rubato history check` on tables of ragged rows: histories that are wrong on purpose, one for
 * each rule, and the same without the fault. */
#include <string.h>

#include "test_paths.h"
#include "tests/support/cluster/history_ragged_writer.h"
#include "tests/support/runner.h"

enum { VALUE = 4 /* bytes */ };

static const int32_t values[] = { 7, 8, 9, 7, 8, 9 };

static void append(RaggedWriter *writer, uint32_t worker, uint32_t first, uint32_t n)
{
    ragged_writer_do(writer, worker, HISTORY_RAGGED_APPEND, n, values + first, VALUE * (int64_t)n);
}

static void get(RaggedWriter *writer, uint32_t worker, uint32_t n)
{
    ragged_writer_get(writer, worker, 1, &n, values);
}

static void run_once(RaggedWriter *writer, bool faulty)
{
    append(writer, 0, 0, 1);
    if (faulty)
        ragged_writer_run(writer, 0, 0, 1, VALUE);
    ragged_writer_end(writer, 1, values);
}

static void run_at_all(RaggedWriter *writer, bool faulty)
{
    const uint64_t number =
        ragged_writer_ask(writer, 0, HISTORY_RAGGED_ERASE, 0, 0, NULL); /* of an empty row */

    if (!faulty)
        ragged_writer_run(writer, 0, 0, number, 0);
    ragged_writer_end(writer, 0, NULL);
}

static void run_what_was_asked(RaggedWriter *writer, bool faulty)
{
    append(writer, 0, 0, 1);
    if (faulty)
        ragged_writer_run(writer, 1, 0, 3, 0);
    ragged_writer_end(writer, 1, values);
}

static void change_bytes_once(RaggedWriter *writer, bool faulty)
{
    append(writer, 0, 0, 2);
    writer->row_bytes += faulty ? 2 * VALUE : 0;
    ragged_writer_do(writer, 1, HISTORY_RAGGED_ERASE, 0, NULL, -2 * VALUE);
    ragged_writer_end(writer, 0, NULL);
}

/* The server has counted it, and its rows do not show it. */
static void keep_what_was_added(RaggedWriter *writer, bool faulty)
{
    const int32_t sums[] = { 8, 10 }, deltas[] = { 1, 2 };

    append(writer, 0, 0, 2);
    ragged_writer_do(writer, 1, HISTORY_RAGGED_ADD, 2, deltas, 0);
    ragged_writer_end(writer, 2, faulty ? values : sums);
}

static void add_once(RaggedWriter *writer, bool faulty)
{
    const int32_t deltas[] = { 1, 0 }, once[] = { 8, 8 }, twice[] = { 9, 8 };

    append(writer, 0, 0, 2);
    ragged_writer_do(writer, 1, HISTORY_RAGGED_ADD, 2, deltas, 0);
    ragged_writer_do(writer, 0, HISTORY_RAGGED_ADD, 2, (const int32_t[]){ 0, 0 }, 0);
    ragged_writer_get(writer, 0, 1, (const uint32_t[]){ 2 }, faulty ? twice : once);
    ragged_writer_end(writer, 2, once);
}

static void invent_nothing(RaggedWriter *writer, bool faulty)
{
    append(writer, 1, 0, 2);
    ragged_writer_get(writer, 0, 1, (const uint32_t[]){ 2 - faulty },
                      faulty ? (const int32_t[]){ 5 } : values);
    ragged_writer_end(writer, 2, values);
}

static void assign_and_see(RaggedWriter *writer, bool faulty)
{
    append(writer, 1, 0, 2);
    ragged_writer_do(writer, 1, HISTORY_RAGGED_ASSIGN, 1, values + 2, -VALUE);
    ragged_writer_get(writer, 1, 1, (const uint32_t[]){ 1 }, faulty ? values : values + 2);
    ragged_writer_end(writer, 1, values + 2);
}

static void see_own(RaggedWriter *writer, bool faulty)
{
    append(writer, 0, 0, 1);
    append(writer, 0, 1, 1);
    get(writer, 0, faulty ? 1 : 2);
    ragged_writer_end(writer, 2, values);
}

static void see_within_staleness(RaggedWriter *writer, bool faulty)
{
    append(writer, 1, 0, 1);
    ragged_writer_tick(writer);
    append(writer, 1, 1, 1);
    ragged_writer_tick(writer);
    get(writer, 0, faulty ? 0 : 1); /* at clock 2: all of clock 0 */
    ragged_writer_end(writer, 2, values);
}

static void see_clocks_before(RaggedWriter *writer, bool faulty)
{
    append(writer, 0, 0, 1);
    append(writer, 1, 1, 1);
    ragged_writer_tick(writer);
    append(writer, 0, 2, 1);
    get(writer, 1, faulty ? 1 : 2);
    ragged_writer_end(writer, 3, values);
}

static void see_none_of_own_clock(RaggedWriter *writer, bool faulty)
{
    append(writer, 0, 0, 1);
    ragged_writer_tick(writer);
    append(writer, 0, 1, 1);
    get(writer, 0, faulty ? 2 : 1);
    ragged_writer_end(writer, 2, values);
}

static void run_by_worker(RaggedWriter *writer, bool faulty)
{
    const uint64_t first = ragged_writer_ask(writer, 0, HISTORY_RAGGED_APPEND, 0, 1, values);
    const uint64_t second = ragged_writer_ask(writer, 1, HISTORY_RAGGED_APPEND, 0, 1, values);

    ragged_writer_run(writer, faulty, 0, faulty ? second : first, VALUE);
    ragged_writer_run(writer, !faulty, 0, faulty ? first : second, VALUE);
    ragged_writer_end(writer, 2, (const int32_t[]){ 7, 7 });
}

static void run_in_order(RaggedWriter *writer, bool faulty)
{
    const uint64_t first = ragged_writer_ask(writer, 0, HISTORY_RAGGED_APPEND, 0, 1, values);
    const uint64_t second = ragged_writer_ask(writer, 0, HISTORY_RAGGED_APPEND, 0, 1, values);

    ragged_writer_run(writer, 0, 0, faulty ? second : first, VALUE);
    ragged_writer_run(writer, 0, 0, faulty ? first : second, VALUE);
    ragged_writer_end(writer, 2, (const int32_t[]){ 7, 7 });
}

static void go_not_back(RaggedWriter *writer, bool faulty)
{
    append(writer, 1, 0, 1);
    append(writer, 1, 1, 1);
    get(writer, 0, 2);
    get(writer, 0, faulty ? 1 : 2);
    ragged_writer_end(writer, 2, values);
}

/* Rows 5 and 6 are written by one request. */
static void see_a_part_as_a_whole(RaggedWriter *writer, bool faulty)
{
    const uint32_t lengths[] = { 1, 1 }, other[] = { 0, 1 }, none[] = { 0, 0 };

    history_note_ragged(writer->workers[1], &(HistoryRagged){ .op = HISTORY_RAGGED_APPEND,
                                                              .n_adds = writer->n_adds[1]++,
                                                              .number = ++writer->n_calls[1],
                                                              .keys = { .first = 5, .n = 2 },
                                                              .lengths = lengths,
                                                              .rows = values });
    ragged_writer_run(writer, 1, 0, 1, 2 * VALUE);
    ragged_writer_get(writer, 0, 2, faulty ? other : none, values + 1);
    ragged_writer_end(writer, 1, values);
}

static void see_nothing_later(RaggedWriter *writer, bool faulty)
{
    append(writer, 0, 0, 1);
    get(writer, 0, faulty ? 2 : 1);
    append(writer, 0, 1, 1);
    ragged_writer_end(writer, 2, values);
}

/* The lengths do not fit, so it fails. */
static void fail_as_it_should(RaggedWriter *writer, bool faulty)
{
    const uint64_t number =
        ragged_writer_ask(writer, 0, HISTORY_RAGGED_ADD, HISTORY_FAILED, 3, values);

    history_note_ragged_ran(writer->server, &(HistoryApplied){ .epoch = 1, .number = number },
                            faulty ? 0 : HISTORY_FAILED, ++writer->order, 0);
    ragged_writer_end(writer, 0, NULL);
}

static void tell_failure(RaggedWriter *writer, bool faulty)
{
    const uint64_t number =
        ragged_writer_ask(writer, 0, HISTORY_RAGGED_ADD, faulty ? 0 : HISTORY_UNTOLD, 3, values);

    history_note_ragged_ran(writer->server, &(HistoryApplied){ .epoch = 1, .number = number },
                            HISTORY_FAILED, ++writer->order, 0);
    ragged_writer_end(writer, 0, NULL);
}

static void keep_number(RaggedWriter *writer, bool faulty)
{
    append(writer, 0, 0, 1);
    writer->n_adds[0] += faulty;
    append(writer, 0, 1, 1);
    ragged_writer_end(writer, 2, values);
}

static void leave_no_gap(RaggedWriter *writer, bool faulty)
{
    append(writer, 0, 0, 1);
    writer->order += faulty;
    append(writer, 0, 1, 1);
    ragged_writer_end(writer, 2, values);
}

/* Node 1 has a replica of the part, which it got after the first request. */
static void copy_alike(RaggedWriter *writer, bool faulty)
{
    History *const other = ragged_writer_open_node(1, "ssp");
    HistoryStream *const server = ragged_writer_new_server(other);

    append(writer, 0, 0, 1);
    append(writer, 0, 1, 1);
    append(writer, 1, 2, 1);
    history_note_ragged_ran(server, &(HistoryApplied){ 0 }, 0, 1, VALUE);
    history_note_ragged_ran(
        server, &(HistoryApplied){ .epoch = 1, .rank = faulty, .number = faulty ? 1 : 2 }, 0, 2,
        2 * VALUE);
    history_stream_free(server);
    history_say(other, "end 1 at 3 well\n");
    history_close(other);
    ragged_writer_end(writer, 3, values);
}

/* The replica has got other rows than those that the first request makes. */
static void come_alike(RaggedWriter *writer, bool faulty)
{
    History *const other = ragged_writer_open_node(1, "ssp");
    HistoryStream *const server = ragged_writer_new_server(other);

    append(writer, 0, 0, 2);
    history_note_ragged_ran(server, &(HistoryApplied){ 0 }, 0, 1, (faulty ? 1 : 2) * VALUE);
    history_stream_free(server);
    history_say(other, "end 1 at 3 well\n");
    history_close(other);
    ragged_writer_end(writer, 2, values);
}

static const struct {
    const char *model;
    void (*write)(RaggedWriter *writer, bool faulty);
    const char *rule, *said; /* of the faulty one */
} cases[] = {
    { "asp", run_once, "once", "its call number 1 ran twice on part 0, as its number 1 and 2" },
    { "asp", run_at_all, "once",
      "erase 0 of worker 0 at clock 0, its call number 1, is lost: it did not run on part 0" },
    { "ssp", run_what_was_asked, "invented",
      "worker 1 of task 1 at clock 0: part 0 has run its call number 3, which it has not made" },
    { "ssp", change_bytes_once, "once",
      "after its call number 1 part 0 has 8 bytes of rows on node 0, and the calls up to there "
      "make 0" },
    { "ssp", keep_what_was_added, "once", "key 5: add 0 of worker 1 at clock 0 is lost" },
    { "ssp", add_once, "once", "key 5: it shows add 0 of worker 1 at clock 0 twice" },
    { "asp", invent_nothing, "invented", "key 5: it shows a row of 1 values that it has not been" },
    { "asp", assign_and_see, "invented", "key 5: it shows a row of 1 values that it has not been" },
    { "asp", see_own, "own",
      "key 5: its worker does not see its own append 1 of worker 0 at clock 0" },
    { "ssp", see_within_staleness, "bound",
      "worker 0 of task 1 at clock 2, key 5: append 0 of worker 1 at clock 0 is missing, which "
      "staleness 1 has it see" },
    { "bsp", see_clocks_before, "exact",
      "worker 1 of task 1 at clock 1, key 5: append 0 of worker 1 at clock 0 is missing, which BSP "
      "has it see" },
    { "bsp", see_none_of_own_clock, "exact",
      "key 5: it shows append 1 of worker 0 at clock 1, which was made later" },
    { "bsp", run_by_worker, "exact",
      "worker 0 of task 1 at clock 0: part 0 has run its call number 1 after one of worker 1 at "
      "clock 0" },
    { "asp", run_in_order, "order", "part 0 has run its call number 1 after a later one" },
    { "asp", go_not_back, "back",
      "it does not show append 1 of worker 1 at clock 0, which its worker has seen before" },
    { "asp", see_a_part_as_a_whole, "whole", "its 2 rows of part 0 have been so, but never all" },
    { "asp", see_nothing_later, "early",
      "key 5: it shows append 1 of worker 0 at clock 0, which was made later" },
    { "asp", fail_as_it_should, "once",
      "its call number 1 has been done on part 0, and should have failed" },
    { "ssp", tell_failure, "once", "has failed on part 0, and it was told that it was done" },
    { "ssp", keep_number, "order", "its Add number 2 comes after 1 Adds" },
    { "ssp", leave_no_gap, "order",
      "what part 0 has run as its number 2 is in no file, and this is number 3" },
    { "ssp", copy_alike, "alike",
      "its call number 2 was number 2 of part 0 on node 0; on node 1 that was another one" },
    { "ssp", come_alike, "alike",
      "part 0 came to node 1 with 4 bytes of rows, and the 1 calls before make 8" },
};

START_TEST(ragged_rows_without_faults_are_right)
{
    RaggedWriter writer;

    ragged_writer_begin(&writer, cases[_i].model);
    cases[_i].write(&writer, /* faulty= */ false);
    g_autofree char *said = writer_check(NULL, EXIT_SUCCESS);
    ck_assert_msg(g_str_has_suffix(said, "\nnothing wrong\n") &&
                      strstr(said, "; 0 not compared\n") != NULL,
                  "%s", said);
}
END_TEST

START_TEST(each_fault_of_ragged_rows_is_told)
{
    g_autofree char *rule = g_strdup_printf("WRONG (%s): table r, ", cases[_i].rule);
    RaggedWriter writer;

    ragged_writer_begin(&writer, cases[_i].model);
    cases[_i].write(&writer, /* faulty= */ true);
    g_autofree char *said = writer_check(NULL, EXIT_WRONG);
    ck_assert_msg(strstr(said, rule) != NULL && strstr(said, cases[_i].said) != NULL, "%s", said);
}
END_TEST

/* What it ran last, nobody else may have got: only up to where another holder of the part has come,
 * it counts. _i 1: the process was lost. */
START_TEST(what_a_lost_server_has_run_of_ragged_rows_counts_less)
{
    RaggedWriter writer;

    ragged_writer_begin(&writer, "ssp");
    History *other = ragged_writer_open_node(1, "ssp");
    HistoryStream *server = ragged_writer_new_server(other);
    append(&writer, 0, 0, 1);
    append(&writer, 0, 1, 1);
    for (uint64_t i = 1; i <= 2; i++) /* in another order */
        history_note_ragged_ran(server, &(HistoryApplied){ .epoch = 1, .number = 3 - i }, 0, i,
                                VALUE * i);
    history_note_ragged_ran(server, &(HistoryApplied){ .epoch = 1, .rank = 1, .number = 9 }, 0, 3,
                            3 * VALUE);
    if (_i == 1)
        history_say(writer.history, "lost 1\n");
    history_stream_free(server);
    history_say(other, "end 1 at 3 well\n");
    history_close(other);
    ragged_writer_end(&writer, 2, values);
    g_autofree char *said = writer_check(NULL, _i == 1 ? EXIT_SUCCESS : EXIT_WRONG);
    ck_assert_msg((strstr(said, "WRONG (alike)") != NULL) == (_i == 0), "%s", said);
}
END_TEST

/* It is in the file in several records. */
START_TEST(a_long_row_is_compared)
{
    enum { LONG = 100000 };
    g_autofree int32_t *row = g_new(int32_t, LONG + 1);
    RaggedWriter writer;

    for (int32_t i = 0; i <= LONG; i++)
        row[i] = i * 3;
    ragged_writer_begin(&writer, "asp");
    ragged_writer_do(&writer, 0, HISTORY_RAGGED_ASSIGN, LONG, row, LONG * (int64_t)VALUE);
    ragged_writer_do(&writer, 0, HISTORY_RAGGED_APPEND, 1, row + LONG, VALUE);
    row[LONG / 2] += _i;
    ragged_writer_end(&writer, LONG + 1, row);
    g_autofree char *said = writer_check(NULL, _i == 0 ? EXIT_SUCCESS : EXIT_WRONG);
    ck_assert_msg((strstr(said, "WRONG (invented)") != NULL) == (_i == 1), "%s", said);
}
END_TEST

START_TEST(damaged_ragged_rows_are_refused_or_judged)
{
    RaggedWriter writer;

    ragged_writer_begin(&writer, "bsp");
    see_clocks_before(&writer, /* faulty= */ false);
    writer_expect_no_crash(23);
}
END_TEST

/* Of the format before ragged rows, which had all the rest; and of a later one. */
START_TEST(the_format_has_a_version)
{
    g_autofree char *path = g_strdup_printf("%s/node-0.history", writer_folder);
    const char *argv[] = { TEST_BIN_DIR "/rubato", "history", "check", writer_folder, NULL };
    g_autofree char *bytes = NULL, *complained = NULL;
    Writer writer = { 0 };
    gsize size;

    writer_begin(&writer, "ssp", "add");
    writer_add(&writer, 0, 5, 2);
    writer_end(&writer, 2);
    ck_assert(g_file_get_contents(path, &bytes, &size, NULL));
    ck_assert_mem_eq(bytes, "RBTHIST5", 8);
    bytes[7] = '1';
    ck_assert(g_file_set_contents(path, bytes, (gssize)size, NULL));
    g_free(writer_check(NULL, EXIT_SUCCESS));
    bytes[7] = '6';
    ck_assert(g_file_set_contents(path, bytes, (gssize)size, NULL));
    ck_assert(g_spawn_sync(NULL, (char **)(uintptr_t)argv, NULL, G_SPAWN_STDOUT_TO_DEV_NULL, NULL,
                           NULL, NULL, &complained, NULL, NULL));
    ck_assert_msg(strstr(complained, "has a format that this version does not read") != NULL, "%s",
                  complained);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("history ragged");
    TCase *tcase = tcase_create("ragged");

    tcase_add_checked_fixture(tcase, writer_set_up, writer_tear_down);
    tcase_add_loop_test(tcase, ragged_rows_without_faults_are_right, 0, G_N_ELEMENTS(cases));
    tcase_add_loop_test(tcase, each_fault_of_ragged_rows_is_told, 0, G_N_ELEMENTS(cases));
    tcase_add_loop_test(tcase, what_a_lost_server_has_run_of_ragged_rows_counts_less, 0, 2);
    tcase_add_loop_test(tcase, a_long_row_is_compared, 0, 2);
    tcase_add_test(tcase, damaged_ragged_rows_are_refused_or_judged);
    tcase_add_test(tcase, the_format_has_a_version);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
