/* `rubato history check` on histories that are wrong on purpose, one for each rule, and on the same
 * without the fault. */
#include <math.h>
#include <string.h>

#include "tests/support/cluster/history_writer.h"
#include "tests/support/runner.h"

/* ---- histories: right ones, and what is wrong with the others ---- */

/* Two workers of three clocks add 1 and 10 in each; `faulty` says where it is wrong. */
typedef struct {
    const char *model, *update;
    void (*write)(Writer *writer, bool faulty);
    const char *rule, *said; /* of the faulty one */
} Case;

static void both_add_and_clock(Writer *writer)
{
    writer_add(writer, 0, 5, 1);
    writer_add(writer, 1, 5, 10);
    writer_tick(writer, 0);
    writer_tick(writer, 1);
}

static void see_own(Writer *writer, bool faulty)
{
    writer_add(writer, 0, 5, 1);
    writer_add(writer, 0, 5, 2);
    writer_get(writer, 0, 5, faulty ? 1 : 3);
    writer_end(writer, 3);
}

static void see_within_staleness(Writer *writer, bool faulty)
{
    both_add_and_clock(writer);
    both_add_and_clock(writer);
    writer_get(writer, 0, 5, faulty ? 2 : 12); /* at clock 2: all of clock 0 */
    writer_end(writer, 22);
}

static void see_clocks_before(Writer *writer, bool faulty)
{
    both_add_and_clock(writer);
    writer_add(writer, 1, 5, 10);
    writer_get(writer, 0, 5, faulty ? 1 : 11);
    writer_end(writer, 21);
}

static void see_none_of_own_clock(Writer *writer, bool faulty)
{
    both_add_and_clock(writer);
    writer_add(writer, 0, 5, 1);
    writer_get(writer, 0, 5, faulty ? 12 : 11);
    writer_end(writer, 12);
}

static void see_order_of_clocks(Writer *writer, bool faulty)
{
    const float terms[] = { 1e8F, -1e8F, 0.3F };
    float in_order = 0;

    for (int i = 0; i < 3; i++) {
        writer_add(writer, 0, 5, terms[i]);
        in_order += terms[i];
    }
    writer_tick(writer, 0);
    writer_tick(writer, 1);
    writer_get(writer, 0, 5, faulty ? 0.3F - 1e8F + 1e8F : in_order);
    writer_end(writer, in_order);
}

static void see_same_bits(Writer *writer, bool faulty)
{
    both_add_and_clock(writer);
    writer_get(writer, 0, 5, 0.25F);
    writer_get(writer, 1, 5, faulty ? 0.5F : 0.25F);
    writer_end(writer, 0.25F);
}

static void lose_none(Writer *writer, bool faulty)
{
    both_add_and_clock(writer);
    both_add_and_clock(writer);
    writer_end(writer, faulty ? 12 : 22);
}

static void count_none_twice(Writer *writer, bool faulty)
{
    both_add_and_clock(writer);
    both_add_and_clock(writer);
    writer_end(writer, faulty ? 23 : 22);
}

static void invent_none(Writer *writer, bool faulty)
{
    both_add_and_clock(writer);
    writer_get(writer, 0, 5, faulty ? 4 : 11);
    writer_end(writer, 11);
}

static void go_not_back(Writer *writer, bool faulty)
{
    both_add_and_clock(writer);
    writer_get(writer, 0, 5, 11);
    writer_get(writer, 0, 5, faulty ? 1 : 11);
    writer_end(writer, 11);
}

static void clock_by_one(Writer *writer, bool faulty)
{
    both_add_and_clock(writer);
    writer->clocks[1] += faulty;
    writer_tick(writer, 1);
    writer_end(writer, 11);
}

static void number_adds(Writer *writer, bool faulty)
{
    both_add_and_clock(writer);
    writer->n_adds[0] += faulty;
    writer_add(writer, 0, 5, 1);
    writer_end(writer, 12);
}

static void keep_announced(Writer *writer, bool faulty)
{
    writer_announce(writer, 0, 0, 5);
    writer_get(writer, 0, faulty ? 6 : 5, 0);
    writer_end(writer, 0);
}

static const Case cases[] = {
    { "asp", "add", see_own, "own",
      "table w, worker 0 of task 1 at clock 0, key 5: its worker does not see its own Add 1 of "
      "worker 0 at clock 0" },
    { "ssp", "add", see_within_staleness, "bound",
      "worker 0 of task 1 at clock 2, key 5: Add 0 of worker 1 at clock 0 is missing, which "
      "staleness 1 has it see" },
    { "sparse_ssp", "add", see_within_staleness, "bound", "Add 0 of worker 1 at clock 0" },
    { "bsp", "add", see_clocks_before, "exact", "Add 0 of worker 1 at clock 0 is missing" },
    { "bsp", "add", see_none_of_own_clock, "exact", "it shows Add 1 of worker 0 at clock 1" },
    { "bsp", "add", see_order_of_clocks, "exact", "worker 0 of task 1 at clock 1, key 5" },
    { "bsp", "adam", see_same_bits, "same", "other bits than a Get of worker 0" },
    { "ssp", "add", lose_none, "once", "key 5: Add 1 of worker 1 at clock 1 is lost" },
    { "asp", "add", count_none_twice, "once",
      "key 5: it shows Add 0 of worker 0 at clock 0 twice" },
    { "bsp", "add", lose_none, "once", "Add 1 of worker 1 at clock 1 is lost" },
    { "ssp", "add", invent_none, "invented", "it shows 4 in column 0" },
    { "ssp", "add", go_not_back, "back", "it shows 1, and its worker has seen 11 before" },
    { "ssp", "add", clock_by_one, "order", "its clock goes from 1 to 3" },
    { "ssp", "add", number_adds, "order", "its Add number 2 comes after 1 Adds" },
    { "sparse_ssp", "add", keep_announced, "announced", "a Get of other keys than were announced" },
};

START_TEST(a_history_without_faults_is_right)
{
    const Case *one = &cases[_i];
    Writer writer = { 0 };

    writer_begin(&writer, one->model, one->update);
    one->write(&writer, /* faulty= */ false);
    g_autofree char *said = writer_check(NULL, EXIT_SUCCESS);
    ck_assert_msg(g_str_has_suffix(said, "\nnothing wrong\n"), "%s", said);
}
END_TEST

START_TEST(each_fault_is_told_by_rule_worker_clock_and_key)
{
    const Case *one = &cases[_i];
    g_autofree char *rule = g_strdup_printf("WRONG (%s): table w, ", one->rule);
    Writer writer = { 0 };

    writer_begin(&writer, one->model, one->update);
    one->write(&writer, /* faulty= */ true);
    g_autofree char *said = writer_check(NULL, EXIT_WRONG);
    ck_assert_msg(strstr(said, rule) != NULL && strstr(said, one->said) != NULL, "%s", said);
    g_autofree char *json = writer_check("--json", EXIT_WRONG);
    g_autofree char *member = g_strdup_printf("\"rule\":\"%s\"", one->rule);
    ck_assert_msg(strstr(json, member) != NULL, "%s", json);
}
END_TEST

/* The other node says once more what the table is, and knows nothing of the handler. */
START_TEST(rows_that_a_handler_wrote_are_not_compared)
{
    const HistoryRecord call = { .kind = HISTORY_HANDLER_KEYS, .flags = HISTORY_WRITES };
    Writer writer = { 0 };

    writer_begin(&writer, "asp", "add");
    history_note_handler(writer.workers[0], &call, "scale", NULL, 0);
    writer_end(&writer, 7);
    History *other = writer_open_node(1, "asp", "add");
    history_say(other, "end 1 at 3 well\n");
    history_close(other);
    g_autofree char *said = writer_check(NULL, EXIT_SUCCESS);
    ck_assert_msg(
        strstr(said, "rows not compared: handlers have written to it, and nothing says what") !=
            NULL,
        "%s", said);
}
END_TEST

/* A node that was killed has a file without an end, and one that had a full disk says so. */
START_TEST(a_history_without_an_end_is_incomplete)
{
    g_autofree char *path = g_strdup_printf("%s/node-0.history", writer_folder);
    g_autofree char *bytes = NULL;
    Writer writer = { 0 };
    gsize size;

    writer_begin(&writer, "ssp", "add");
    lose_none(&writer, /* faulty= */ true);
    ck_assert(g_file_get_contents(path, &bytes, &size, NULL));
    bytes[8] = (char)(_i == 0 ? 0 : 2);
    ck_assert(g_file_set_contents(path, bytes, (gssize)(size - (_i == 0 ? 8 : 0)), NULL));
    g_autofree char *said = writer_check(NULL, EXIT_INCOMPLETE);
    ck_assert_msg(strstr(said, "INCOMPLETE: 1 node") != NULL, "%s", said);
}
END_TEST

/* The lost node has come to its end, and says that an Add was made which is not there. */
START_TEST(rows_are_not_compared_after_the_loss_of_a_node)
{
    Writer writer = { 0 };

    writer_begin(&writer, "bsp", "add");
    History *other = writer_open_node(1, "bsp", "add");
    if (_i == 1)
        history_say(other, "lost 0\n");
    history_close(other);
    lose_none(&writer, /* faulty= */ true);
    g_autofree char *said = writer_check(NULL, _i == 1 ? EXIT_INCOMPLETE : EXIT_WRONG);
    ck_assert_msg((strstr(said, "INCOMPLETE: 1 node has no whole history: it was lost") != NULL) ==
                      (_i == 1),
                  "%s", said);
}
END_TEST

/* One of the nodes with which the run begins has no file. One that joined later has, and does not
 * stand for it; those that may come later are missed by nobody. */
START_TEST(the_nodes_of_the_beginning_have_files)
{
    const bool is_missing = _i == 1;
    Writer writer = { 0 };

    writer_begin(&writer, "bsp", "add");
    lose_none(&writer, /* faulty= */ false);
    history_close(history_open(writer_folder, 1, is_missing ? 3 : 2, NULL));
    history_close(history_open_again(writer_folder, 4, 0, NULL));
    g_autofree char *said = writer_check(NULL, is_missing ? EXIT_INCOMPLETE : EXIT_SUCCESS);
    ck_assert_msg((strstr(said, "INCOMPLETE: 1 node has") != NULL) == is_missing, "%s", said);
}
END_TEST

/* A node that has asked nothing is killed, or comes to its end: all rows are compared. One that was
 * killed when it had begun to ask may have asked more than its file has. */
START_TEST(a_lost_node_that_has_asked_nothing_is_missed_by_nobody)
{
    static const struct {
        uint32_t state; /* of its file */
        int ends;
        const char *says;
    } lost[] = {
        { 3, EXIT_WRONG, "WRONG (once)" },
        { 1, EXIT_WRONG, "WRONG (once)" },
        { 0, EXIT_INCOMPLETE, "INCOMPLETE: 1 node has no whole history: it was lost" },
    };
    g_autofree char *path = g_strdup_printf("%s/node-1.history", writer_folder);
    g_autofree char *bytes = NULL;
    Writer writer = { 0 };
    gsize size;

    writer_begin(&writer, "asp", "add");
    history_say(writer.history, "lost 1\n");
    history_close(writer_open_node(1, "asp", "add"));
    lose_none(&writer, /* faulty= */ true);
    ck_assert(g_file_get_contents(path, &bytes, &size, NULL));
    bytes[8] = (char)lost[_i].state;
    ck_assert(g_file_set_contents(path, bytes, (gssize)size, NULL));
    g_autofree char *said = writer_check(NULL, lost[_i].ends);
    ck_assert_msg(strstr(said, lost[_i].says) != NULL, "%s", said);
}
END_TEST

/* ---- workers that are replaced ---- */

static HistoryStream *begin_worker(History *history, uint32_t rank)
{
    return history_stream_new(
        history, &(HistoryIdentity){ .epoch = 1, .rank = rank, .dtype = RUBATO_F32, .width = 1 });
}

static void begin_replaced(History *history, uint32_t rank, Writer *writer)
{
    history_say(history, "replaces 1 for 1\n");
    writer->workers[rank] = begin_worker(history, rank);
}

/* What its process has before it is killed: a clock, and an Add of the next one. */
static void write_lost(const char *model, bool tells_all)
{
    g_autofree char *path = g_strdup_printf("%s/node-1.history", writer_folder);
    g_autofree char *bytes = NULL;
    History *const history = writer_open_node(1, model, "add");
    Writer writer = { 0 };
    gsize size;

    begin_replaced(history, 1, &writer);
    writer_add(&writer, 1, 5, 10);
    writer_tick(&writer, 1);
    if (tells_all)
        writer_add(&writer, 1, 5, 100);
    history_stream_free(writer.workers[1]);
    history_close(history);
    ck_assert(g_file_get_contents(path, &bytes, &size, NULL));
    bytes[8] = 0; /* it was killed */
    ck_assert(g_file_set_contents(path, bytes, (gssize)size, NULL));
}

/* Another process makes that Add again, and one more. What it draws with the first one, it gets as
 * the lost one did. */
static void write_newcomer(bool draws)
{
    History *const history = history_open_again(writer_folder, 1, 2, NULL);
    Writer writer = { .clocks = { 0, 1 } };

    ck_assert_ptr_nonnull(history);
    history_say(history, "task 1 at 2 train\n");
    history_say(history, "again 1 1 0 1\n");
    begin_replaced(history, 1, &writer);
    writer_get(&writer, 1, 5, 111); /* the part has had the Add of the lost one */
    writer_add(&writer, 1, 5, 100);
    if (draws)
        writer_get(&writer, 1, 5, 110);
    writer_tick(&writer, 1);
    writer_add(&writer, 1, 5, 1000);
    history_stream_free(writer.workers[1]);
    history_say(history, "done 1 1\n");
    history_say(history, "end 1 at 3 well\n");
    history_close(history);
}

static void write_survivor(const char *model, float last)
{
    Writer writer = { 0 };

    writer_begin(&writer, model, "add");
    history_say(writer.history, "replaces 1 for 1\n");
    writer_add(&writer, 0, 5, 1);
    writer_tick(&writer, 0);
    history_say(writer.history, "lost 1\n");
    history_say(writer.history, "done 1 0\n");
    history_stream_free(writer.workers[1]);
    writer.workers[1] = NULL;
    writer_end(&writer, last);
}

/* Whatever the file of the lost process has of the Add that was made again. */
START_TEST(adds_of_a_worker_that_is_replaced_count_once)
{
    static const struct {
        float last;
        int ends;
        const char *says;
    } sums[] = {
        { 1111, EXIT_SUCCESS, "\nnothing wrong\n" },
        { 1211, EXIT_WRONG,
          "WRONG (once): table w, node 0 between tasks, key 5: it shows Add 1 of "
          "worker 1 at clock 1 twice" },
        { 1011, EXIT_WRONG,
          "WRONG (once): table w, node 0 between tasks, key 5: Add 1 of worker 1 "
          "at clock 1 is lost" },
        { 1101, EXIT_WRONG, "Add 0 of worker 1 at clock 0 is lost" },
    };

    write_survivor("ssp", sums[_i / 2].last);
    write_lost("ssp", /* tells_all= */ _i % 2 == 1);
    write_newcomer(/* draws= */ false);
    g_autofree char *said = writer_check(NULL, sums[_i / 2].ends);
    ck_assert_msg(strstr(said, sums[_i / 2].says) != NULL, "%s", said);
    ck_assert_msg(g_str_has_prefix(said, "2 nodes, ") && strstr(said, "; 0 not compared") != NULL,
                  "%s", said);
}
END_TEST

/* Its row is older than the one that this process has read. */
START_TEST(an_answer_that_is_given_again_shows_no_later_adds)
{
    write_survivor("asp", 1111);
    write_lost("asp", /* tells_all= */ true);
    write_newcomer(/* draws= */ true);
    g_free(writer_check(NULL, EXIT_SUCCESS));
}
END_TEST

/* Nobody says what it would have done. */
START_TEST(a_lost_process_without_another_in_its_place_is_missed)
{
    write_survivor("ssp", 1111);
    write_lost("ssp", /* tells_all= */ true);
    g_autofree char *said = writer_check(NULL, EXIT_INCOMPLETE);
    ck_assert_msg(strstr(said, "INCOMPLETE: 1 node has no whole history") != NULL, "%s", said);
}
END_TEST

START_TEST(damaged_files_are_refused_or_judged)
{
    Writer writer = { 0 };

    writer_begin(&writer, "sparse_ssp", "add");
    keep_announced(&writer, /* faulty= */ false);
    writer_expect_no_crash(37);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("history check");
    TCase *tcase = tcase_create("rules");

    tcase_add_loop_test(tcase, adds_of_a_worker_that_is_replaced_count_once, 0, 8);
    tcase_add_test(tcase, an_answer_that_is_given_again_shows_no_later_adds);
    tcase_add_test(tcase, a_lost_process_without_another_in_its_place_is_missed);

    tcase_add_checked_fixture(tcase, writer_set_up, writer_tear_down);
    tcase_add_loop_test(tcase, a_history_without_faults_is_right, 0, G_N_ELEMENTS(cases));
    tcase_add_loop_test(tcase, each_fault_is_told_by_rule_worker_clock_and_key, 0,
                        G_N_ELEMENTS(cases));
    tcase_add_test(tcase, rows_that_a_handler_wrote_are_not_compared);
    tcase_add_loop_test(tcase, a_history_without_an_end_is_incomplete, 0, 2);
    tcase_add_loop_test(tcase, rows_are_not_compared_after_the_loss_of_a_node, 0, 2);
    tcase_add_loop_test(tcase, the_nodes_of_the_beginning_have_files, 0, 2);
    tcase_add_loop_test(tcase, a_lost_node_that_has_asked_nothing_is_missed_by_nobody, 0, 3);
    tcase_add_test(tcase, damaged_files_are_refused_or_judged);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
