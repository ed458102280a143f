/* `rubato history check` on a worker that another process has again, because its node was lost
 * between the clocks of two tables: what the first table has heard, the worker repeats. */
#include <string.h>

#include "tests/support/cluster/history_ragged_writer.h"
#include "tests/support/runner.h"

enum { VALUE = 4 };

static const int32_t ones[] = { 1, 1 };

static HistoryStream *new_stream(History *history, RubatoDtype dtype)
{
    return history_stream_new(
        history, &(HistoryIdentity){ .epoch = 1, .rank = 1, .dtype = dtype, .width = 1 });
}

/* The process that has worker 1 of node 1, from clock 0 on. (transfer full) */
static History *open_next(unsigned heard)
{
    History *history = history_open_again(writer_folder, 1, 1, NULL);

    ck_assert_ptr_nonnull(history);
    history_say(history, "task 1 at 2 train\n");
    history_say(history, "replaces 1 for 1\n");
    history_say(history, "again 1 1 0 0 %u\n", heard);
    return history;
}

static void close_next(History *history)
{
    history_say(history, "end 1 at 3 well\n");
    history_close(history);
}

static void check(unsigned heard, const char *rule)
{
    g_autofree char *said = writer_check(NULL, heard > 0 ? EXIT_SUCCESS : EXIT_WRONG);

    ck_assert_msg((strstr(said, rule) != NULL) == (heard == 0), "%s", said);
}

/* _i: the clock of worker 1 that the table's server has heard. */
START_TEST(ragged_rows_may_show_what_their_table_has_heard)
{
    RaggedWriter writer;

    ragged_writer_begin(&writer, "bsp");
    history_say(writer.history, "replaces 1 for 1\nlost 1\n");
    History *lost = ragged_writer_open_node(1, "bsp");
    history_say(lost, "replaces 1 for 1\n");
    history_stream_free(writer.workers[1]);
    writer.workers[1] = new_stream(lost, RUBATO_I32);
    ragged_writer_do(&writer, 0, HISTORY_RAGGED_APPEND, 1, ones, VALUE);
    ragged_writer_do(&writer, 1, HISTORY_RAGGED_APPEND, 1, ones, VALUE);
    history_stream_free(writer.workers[1]);
    history_close(lost);

    History *next = open_next((unsigned)_i);
    writer.workers[1] = new_stream(next, RUBATO_I32);
    writer.n_calls[1] = writer.n_adds[1] = 0;
    ragged_writer_ask(&writer, 1, HISTORY_RAGGED_APPEND, 0, 1, ones);
    ragged_writer_get(&writer, 1, 1, (const uint32_t[]){ 2 }, ones);
    ragged_writer_tick(&writer);
    ragged_writer_get(&writer, 1, 1, (const uint32_t[]){ 2 }, ones);
    ragged_writer_end(&writer, 2, ones);
    close_next(next);
    check((unsigned)_i, "WRONG (exact): ");
}
END_TEST

START_TEST(rows_may_show_what_their_table_has_heard)
{
    Writer writer = { 0 };

    writer_begin(&writer, "bsp", "add");
    history_say(writer.history, "replaces 1 for 1\nlost 1\n");
    History *lost = writer_open_node(1, "bsp", "add");
    history_say(lost, "replaces 1 for 1\n");
    history_stream_free(writer.workers[1]);
    writer.workers[1] = new_stream(lost, RUBATO_F32);
    writer_add(&writer, 0, 5, 1);
    writer_add(&writer, 1, 5, 2);
    history_stream_free(writer.workers[1]);
    history_close(lost);

    History *next = open_next((unsigned)_i);
    writer.workers[1] = new_stream(next, RUBATO_F32);
    writer.n_adds[1] = 0;
    writer_get(&writer, 0, 5, 0);
    writer_get(&writer, 1, 5, 3);
    writer_add(&writer, 1, 5, 2);
    writer_tick(&writer, 0);
    writer_tick(&writer, 1);
    writer_get(&writer, 1, 5, 3);
    writer_end(&writer, 3);
    close_next(next);
    check((unsigned)_i, "WRONG (same): ");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("history repeated");
    TCase *tcase = tcase_create("repeated");

    tcase_add_checked_fixture(tcase, writer_set_up, writer_tear_down);
    tcase_add_loop_test(tcase, ragged_rows_may_show_what_their_table_has_heard, 0, 2);
    tcase_add_loop_test(tcase, rows_may_show_what_their_table_has_heard, 0, 2);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
