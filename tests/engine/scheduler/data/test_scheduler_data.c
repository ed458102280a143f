/* The scheduler and the data of a task: readers that must be the same, blocks for nodes that ask,
 * wrong messages. */
#include <string.h>

#include "tests/support/runner.h"
#include "tests/support/scheduler/scheduler_fixture.h"

static uint32_t epoch; /* of the task */

static void begin_task(void)
{
    begin();
    epoch = agree(1, CONTROL_CALL_RUN, "task x");
}

static Control reader(uint32_t id, const char *text)
{
    return (Control){ .kind = CONTROL_READER,
                      .reader = { .epoch = epoch,
                                  .reader = id,
                                  .n_epochs = 1,
                                  .is_dynamic = true,
                                  .description = text,
                                  .digest = "" } };
}

static Control inputs(uint32_t id, uint32_t number, const char *detail)
{
    return (
        Control){ .kind = CONTROL_INPUTS,
                  .inputs = { .epoch = epoch, .reader = id, .first = number, .lines = detail } };
}

static Control want(uint32_t id, uint32_t number, const char *detail)
{
    return (
        Control){ .kind = CONTROL_WANT,
                  .want = { .epoch = epoch, .reader = id, .n_blocks = number, .events = detail } };
}

static void expect_blocks(uint32_t node, uint32_t id, bool last, const char *detail)
{
    const Control *blocks = expect(node, CONTROL_BLOCKS);

    ck_assert_uint_eq(blocks->blocks.epoch, epoch);
    ck_assert_uint_eq(blocks->blocks.reader, id);
    ck_assert_uint_eq(blocks->blocks.is_last, last);
    ck_assert_str_eq(blocks->blocks.tickets, detail);
}

START_TEST(scheduler_deals_blocks_in_each_node_s_own_numbers)
{
    begin_task();
    say(0, reader(0, "the same"));
    say(0, inputs(0, 0, "10 2 1 a\n20 1 1 b\n"));
    say(2, reader(0, "the same"));
    say(2, inputs(0, 0, "20 1 1 b\n"));
    expect_quiet();
    say(2, want(0, 5, ""));
    expect_blocks(2, 0, false, "d0 0 0 0\n");
    say(0, want(0, 1, ""));
    expect_blocks(0, 0, false, "d0 0 0 0\n");
    say(0, want(0, 1, "f0 0 0 9\n"));
    expect_blocks(0, 0, false, "d0 0 1 0\n");
    say(0, want(0, 1, ""));
    expect_blocks(0, 0, true, "");
    /* what node 2 gives back goes to node 0, which calls it by another number */
    say(2, want(0, 0, "b0 0 0 4\n"));
    expect_quiet();
    say(0, want(0, 1, ""));
    expect_blocks(0, 0, false, "d0 1 0 4\n");
}
END_TEST

/* Its workers have returned and left a block unread. */
START_TEST(scheduler_deals_again_what_a_node_held_that_leaves)
{
    begin_task();
    for (uint32_t node = 0; node <= 2; node += 2) {
        say(node, reader(0, "r"));
        say(node, inputs(0, 0, "10 1 1 a\n"));
    }
    say(2, want(0, 1, ""));
    expect_blocks(2, 0, false, "d0 0 0 0\n");
    done(2, epoch);
    say(2, (Control){ .kind = CONTROL_LEAVE });
    say(0, want(0, 1, ""));
    expect_blocks(0, 0, false, "d0 0 0 0\n");
}
END_TEST

START_TEST(scheduler_keeps_readers_apart)
{
    begin_task();
    say(0, reader(3, "three"));
    say(0, inputs(3, 0, "10 1 1 a\n"));
    say(0, reader(1, "one"));
    say(0, inputs(1, 0, "10 1 1 a\n"));
    say(0, want(3, 1, ""));
    expect_blocks(0, 3, false, "d0 0 0 0\n");
    say(0, want(1, 1, ""));
    expect_blocks(0, 1, false, "d0 0 0 0\n");
}
END_TEST

START_TEST(scheduler_fails_a_task_whose_nodes_read_different_data)
{
    begin_task();
    say(1, reader(0, "1 epochs"));
    say(2, reader(0, "2 epochs"));
    expect_verdict_everywhere(
        CONTROL_CANCEL, MISMATCH_CODE,
        "task x: reader 0 of its workers reads 2 epochs on node 7, but 1 epochs on node 4");
    expect_quiet();
}
END_TEST

START_TEST(scheduler_fails_a_task_whose_nodes_read_other_files)
{
    Control fixed = reader(0, "1 epochs");

    begin_task();
    fixed.reader.epoch = epoch;
    fixed.reader.is_dynamic = false;
    fixed.reader.digest = "a";
    say(1, fixed);
    fixed.reader.digest = "b";
    say(0, fixed);
    expect_verdict_everywhere(CONTROL_CANCEL, MISMATCH_CODE,
                              "task x: reader 0 of its workers reads 1 epochs on node 0, but 1 "
                              "epochs on node 4, from other files");
}
END_TEST

START_TEST(scheduler_fails_a_task_whose_files_differ)
{
    begin_task();
    say(1, reader(0, "r"));
    say(1, inputs(0, 0, "10 1 1 a\n"));
    say(2, reader(0, "r"));
    say(2, inputs(0, 0, "11 1 1 a\n"));
    expect_verdict_everywhere(CONTROL_CANCEL, MISMATCH_CODE,
                              "task x: node 7 reads a of 11 bytes, where others see 10; give all "
                              "nodes the same");
}
END_TEST

START_TEST(scheduler_drops_what_makes_no_sense_of_data)
{
    begin_task();
    ck_assert(!hears(0, want(0, 1, "")));
    ck_assert(!hears(0, inputs(0, 0, "10 1 1 a\n")));
    say(0, reader(0, "r"));
    ck_assert(!hears(0, inputs(0, 1, "10 1 1 a\n")));
    ck_assert(!hears(0, inputs(0, 0, "10 1 2 a\n")));
    ck_assert(!hears(0, inputs(0, 0, "10 1 1 a")));
    ck_assert(!hears(0, inputs(0, 0, "x 1 1 a\n")));
    say(0, inputs(0, 0, "10 1 1 a\n"));
    ck_assert(!hears(0, want(0, 1, "f0 0 0 0\n")));
    ck_assert(!hears(0, want(0, 1, "d0 0 0 0\n")));
    ck_assert(!hears(0, want(0, 1, "f0 1 0 0\n")));
    ck_assert(!hears(0, want(0, 1, "rubbish")));
    expect_quiet();
}
END_TEST

START_TEST(scheduler_minds_no_late_word_of_data)
{
    begin_task();
    say(0, reader(0, "r"));
    for (uint32_t i = 0; i < N_NODES; i++)
        done(i, epoch);
    for (uint32_t i = 0; i < N_NODES; i++)
        expect(i, CONTROL_TASK_END);
    say(0, want(0, 1, ""));
    say(0, inputs(0, 0, "10 1 1 a\n"));
    say(0, reader(0, "r"));
    expect_quiet();
    epoch += 7;
    ck_assert(!hears(0, reader(0, "r")));
}
END_TEST

/* The member of a part, or of the place in a list, as text. (transfer full) */
static char *shown(GVariant *part, const char *name)
{
    g_autoptr(GVariant) member = g_variant_lookup_value(part, name, NULL);

    return member != NULL ? g_variant_print(member, FALSE) : g_strdup("none");
}

static void expect_member(GVariant *part, const char *name, const char *text)
{
    g_autofree char *found = shown(part, name);

    ck_assert_msg(strcmp(found, text) == 0, "%s is %s, not %s", name, found, text);
}

static GVariant *member_of_list(GVariant *part, const char *name, size_t i)
{
    g_autoptr(GVariant) list = g_variant_lookup_value(part, name, G_VARIANT_TYPE("aa{sv}"));

    ck_assert_msg(list != NULL && i < g_variant_n_children(list), "%s has no %zu", name, i);
    return g_variant_get_child_value(list, i);
}

START_TEST(status_tells_the_queue_of_each_reader)
{
    begin_task();
    say(0, reader(0, "1 epochs"));
    say(0, inputs(0, 0, "10 2 1 a\n20 3 1 b\n"));
    say(2, reader(0, "1 epochs"));
    say(2, inputs(0, 0, "20 3 1 b\n"));
    say(0, want(0, 1, ""));
    say(2, want(0, 1, ""));
    say(0, want(0, 1, "f0 0 0 9\n"));
    g_autoptr(GVariant) status = g_variant_ref_sink(scheduler_status(scheduler, now_ms));
    g_autoptr(GVariant) task = member_of_list(status, "tasks", 0);
    g_autoptr(GVariant) queue = member_of_list(task, "readers", 0);
    expect_member(task, "name", "'x'");
    expect_member(queue, "reads", "'1 epochs'");
    expect_member(queue, "files", "2");
    expect_member(queue, "epoch", "1");
    expect_member(queue, "epochs", "1");
    expect_member(queue, "done", "1");
    expect_member(queue, "dealt", "2");
    expect_member(queue, "left", "2");
    expect_member(queue, "nodes",
                  "[{'node': <int64 0>, 'dealt': <int64 1>}, "
                  "{'node': <int64 7>, 'dealt': <int64 1>}]");
    g_autoptr(GVariant) node = member_of_list(status, "nodes", 1);
    expect_member(node, "node", "4");
    expect_member(node, "state", "'live'");
    expect_member(node, "silent_s", "0.0");
}
END_TEST

START_TEST(status_tells_of_lost_nodes_and_of_their_tasks)
{
    begin_task();
    say(1, reader(0, "1 epochs"));
    say(1, inputs(0, 0, "10 2 1 a\n"));
    now_ms += 40;
    scheduler_node_gone(scheduler, now_ms, 1, "its process has ended");
    now_ms += 60;
    g_autoptr(GVariant) status = g_variant_ref_sink(scheduler_status(scheduler, now_ms));
    g_autoptr(GVariant) node = member_of_list(status, "nodes", 1);
    g_autoptr(GVariant) task = member_of_list(status, "tasks", 0);
    g_autofree char *why = shown(node, "why");
    g_autofree char *cancelled = shown(task, "cancelled");
    expect_member(node, "state", "'lost'");
    ck_assert_msg(strstr(why, "its process has ended") != NULL, "%s", why);
    ck_assert_msg(strstr(cancelled, "its process has ended") != NULL, "%s", cancelled);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scheduler data");
    TCase *cases = tcase_create("data");

    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, scheduler_deals_blocks_in_each_node_s_own_numbers);
    tcase_add_test(cases, scheduler_deals_again_what_a_node_held_that_leaves);
    tcase_add_test(cases, scheduler_keeps_readers_apart);
    tcase_add_test(cases, scheduler_fails_a_task_whose_nodes_read_different_data);
    tcase_add_test(cases, scheduler_fails_a_task_whose_nodes_read_other_files);
    tcase_add_test(cases, scheduler_fails_a_task_whose_files_differ);
    tcase_add_test(cases, scheduler_drops_what_makes_no_sense_of_data);
    tcase_add_test(cases, scheduler_minds_no_late_word_of_data);
    tcase_add_test(cases, status_tells_the_queue_of_each_reader);
    tcase_add_test(cases, status_tells_of_lost_nodes_and_of_their_tasks);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
