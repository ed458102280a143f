/* `rubato run` that starts a lost node again, or starts processes that join a run, with small shell
 * programs as nodes. Node 10 is lost; node 0 goes on, and says so.
 *
 * tests/cluster/losses/test_cluster_join.c has what such processes do in a run. */
#include <rubato/launcher.h>
#include <string.h>

#include "tests/support/cluster/launch_fixture.h"
#include "tests/support/runner.h"

/* await FILE: until the case has written a file of its folder. tell N: that the run goes on without
 * process N of node 10. say WORDS: other news. */
#define FUNCTIONS                                                              \
    "await() { until [ -e ${RUBATO_CLUSTER%/*}/$1 ]; do sleep 0.02; done; }\n" \
    "say() { printf '\\033_rubato %s\\033\\\\\\n' \"$*\" >&2; }\n"             \
    "tell() { say lost 10 $1; }\n"

/* The scripts of node 0, of node 10, and of processes in its place. */
typedef struct {
    const char *goes_on, *is_lost, *joins;
} Scripts;

static Run start(const char *cluster, uint32_t restarts, const Scripts *scripts)
{
    g_autofree char *script =
        g_strconcat(FUNCTIONS "case $RUBATO_NODE$RUBATO_JOIN in\n0) ", scripts->goes_on, ";;\n10) ",
                    scripts->is_lost, ";;\n101) ", scripts->joins, ";;\nesac", NULL);
    const char *argv[4];
    RubatoLaunch launch = launch_shell(cluster, script, argv);

    launch.restarts = restarts;
    return run_start(&launch);
}

static void write_empty(const char *name)
{
    g_free(launch_write_file(name, "", 0600));
}

/* Starts them, and writes the file "lost" when node 10 is. */
static Run start_and_lose(uint32_t restarts, const char *goes_on, const char *joins)
{
    g_autofree char *cluster = launch_write_patient_cluster(2);
    Run run = start(cluster, restarts, &(Scripts){ goes_on, "kill -KILL $$", joins });

    run_wait_for(&run, 1, "rubato: node 10 was killed by signal 9 (SIGKILL); waiting for");
    write_empty("lost");
    return run;
}

static unsigned count(const GString *text, const char *what)
{
    unsigned n = 0;

    for (const char *at = text->str; (at = strstr(at, what)) != NULL; at += strlen(what))
        n++;
    return n;
}

START_TEST(lost_node_is_started_again_and_serves)
{
    Run run = start_and_lose(1, "await lost; tell 7; await end",
                             "echo serves as $RUBATO_NODE; await end");

    run_wait_for(&run, 0, "[10] serves as 10\n");
    write_empty("end");
    ck_assert_int_eq(run_finish(&run), 0);
    run_check_contains(&run, 1, "rubato: the others go on without node 10\n");
    run_check_contains(&run, 1,
                       "rubato: node 10 is started again, in the place of the lost process "
                       "(1 of 1 times)\n");
    run_clear(&run);
}
END_TEST

/* News of its first process may come when another one runs. */
START_TEST(node_that_is_lost_again_is_started_as_often_as_was_said)
{
    const uint32_t restarts = (uint32_t)_i;
    Run run = start_and_lose(restarts,
                             "await lost; tell 7; await late; tell 7; echo told late\n"
                             "await again; tell 8; tell 8; await end",
                             "if [ -e ${RUBATO_CLUSTER%/*}/again ]; then echo second; await end\n"
                             "else echo serves; await kill; kill -KILL $$; fi");

    run_wait_for(&run, 0, "[10] serves\n");
    write_empty("late");
    run_wait_for(&run, 0, "[0] told late\n");
    write_empty("kill");
    run_wait_for(&run, 1, "rubato: node 10, which was started again, was killed by signal 9");
    write_empty("again");
    if (restarts == 1) {
        run_wait_for(&run, 1, "rubato: node 10 is not started again: it was, 1 of 1 times\n");
    } else {
        run_wait_for(&run, 1, "in the place of the lost process (2 of 2 times)\n");
        run_wait_for(&run, 0, "[10] second\n");
    }
    write_empty("end");
    ck_assert_int_eq(run_finish(&run), 0);
    ck_assert_uint_eq(count(run.texts[1], "the others go on without node 10"), 2);
    ck_assert_uint_eq(count(run.texts[1], "is started again"), restarts);
    run_clear(&run);
}
END_TEST

START_TEST(nothing_is_started_again_if_nobody_asks)
{
    Run run = start_and_lose(0, "await lost; tell 7; await end", "echo serves");

    run_wait_for(&run, 1, "rubato: the others go on without node 10\n");
    write_empty("end");
    ck_assert_int_eq(run_finish(&run), 0);
    ck_assert_str_eq(run.texts[0]->str, "");
    run_clear(&run);
}
END_TEST

START_TEST(nothing_is_started_again_if_the_others_end)
{
    Run run = start_and_lose(1, "await lost; exit 5", "echo serves");

    ck_assert_int_eq(run_finish(&run), 128 + 9);
    ck_assert_str_eq(run.texts[0]->str, "");
    run_check_contains(&run, 1, "rubato: node 10 (127.0.0.1) was killed by signal 9 (SIGKILL)\n");
    run_clear(&run);
}
END_TEST

/* By then node 0 has been told to end, and its end is not the cause. */
START_TEST(news_of_a_loss_may_come_too_late)
{
    g_autofree char *cluster = launch_write_cluster(2, "127.0.0.1");
    Run run = start(cluster, 1,
                    &(Scripts){ "trap 'tell 7; trap - TERM; kill -TERM $$' TERM; await end",
                                "kill -KILL $$", "echo serves" });

    ck_assert_int_eq(run_finish(&run), 128 + 9);
    ck_assert_str_eq(run.texts[0]->str, "");
    run_check_contains(&run, 1, "rubato: still running: 0; sending SIGTERM\n");
    run_check_contains(&run, 1, "rubato: node 10 (127.0.0.1) was killed by signal 9 (SIGKILL)\n");
    run_clear(&run);
}
END_TEST

START_TEST(process_that_is_refused_leaves_the_run_as_it_is)
{
    Run run = start_and_lose(1, "await lost; tell 7; await end", "exit 3");

    run_wait_for(&run, 1, "rubato: node 10, which was started again, exited with code 3\n");
    write_empty("end");
    ck_assert_int_eq(run_finish(&run), 0);
    run_clear(&run);
}
END_TEST

/* It waits for a run that has ended. */
START_TEST(process_that_has_not_joined_ends_after_the_run)
{
    g_autofree char *cluster = launch_write_cluster(2, "127.0.0.1");
    Run run = start(cluster, 1,
                    &(Scripts){ "await lost; tell 7; await end", "await kill; kill -KILL $$",
                                "echo waits; exec sleep 1000" });

    write_empty("lost");
    run_wait_for(&run, 1, "rubato: the others go on without node 10\n");
    write_empty("kill");
    run_wait_for(&run, 0, "[10] waits\n");
    write_empty("end");
    ck_assert_int_eq(run_finish(&run), 0);
    run_check_contains(&run, 1, "rubato: still running: 10; sending SIGTERM\n");
    run_clear(&run);
}
END_TEST

/* What the launcher's own environment says of this does not count. */
START_TEST(processes_join_if_they_are_to)
{
    static const uint32_t nodes[] = { 10 };
    g_autofree char *cluster = launch_write_cluster(2, "127.0.0.1");
    const char *argv[4];
    RubatoLaunch launch = launch_shell(cluster, "echo ${RUBATO_JOIN-first}", argv);

    g_setenv("RUBATO_JOIN", "1", TRUE);
    launch.nodes = nodes;
    launch.n_nodes = 1;
    launch.joins = _i == 1;
    Run run = run_start(&launch);
    ck_assert_int_eq(run_finish(&run), 0);
    ck_assert_str_eq(run.texts[0]->str, launch.joins ? "[10] 1\n" : "[10] first\n");
    run_clear(&run);
}
END_TEST

/* ---- a scheduler that is alone on its node ---- */

/* The script of nodes 0 and 10, and of node 9 with the scheduler. */
static Run start_with_scheduler(uint32_t restarts, uint32_t timeout_ms, const char *script)
{
    g_autofree char *text = g_strdup_printf(
        "cluster = { heartbeat_ms = 10; timeout_ms = %u;\n"
        "scheduler = { host = \"127.0.0.1\"; port = 9; node = 9; };\n"
        "nodes = ( { id = 0; host = \"127.0.0.1\"; port = 0; },\n"
        "          { id = 10; host = \"127.0.0.1\"; port = 0; },\n"
        "          { id = 9; host = \"127.0.0.1\"; port = 0; servers = 0; workers = 0; } ); };\n",
        timeout_ms);
    g_autofree char *cluster = launch_write_file("run.cfg", text, 0600);
    g_autofree char *with_functions = g_strconcat(FUNCTIONS, script, NULL);
    const char *argv[4];
    RubatoLaunch launch = launch_shell(cluster, with_functions, argv);

    launch.restarts = restarts;
    return run_start(&launch);
}

enum { PATIENT_MS = 60000 };

/* Nobody has to say that the others go on: they wait for it. The journal is where the first process
 * has it, and is gone afterwards. */
START_TEST(scheduler_that_is_alone_is_started_again_at_once)
{
    Run run = start_with_scheduler(
        2, PATIENT_MS,
        "case $RUBATO_NODE$RUBATO_JOIN in\n"
        "0 | 10) await end;;\n"
        "9) echo title > $RUBATO_JOURNAL; echo state >> $RUBATO_JOURNAL; echo keeps "
        "$RUBATO_JOURNAL; kill -KILL $$;;\n"
        "91) if [ -e ${RUBATO_CLUSTER%/*}/again ]; then exec cat $RUBATO_JOURNAL; fi\n"
        "    : > ${RUBATO_CLUSTER%/*}/again; kill -KILL $$;;\n"
        "esac");

    run_wait_for(&run, 0, "[9] state\n");
    write_empty("end");
    ck_assert_int_eq(run_finish(&run), 0);
    run_check_contains(&run, 1,
                       "rubato: node 9, where the scheduler runs, was killed by signal 9 "
                       "(SIGKILL)\n");
    ck_assert_uint_eq(count(run.texts[1], "is started again, in the place of the lost process"), 2);
    g_auto(GStrv) words = g_strsplit_set(strstr(run.texts[0]->str, "keeps ") + 6, "\n", 2);
    g_autofree char *folder = g_path_get_dirname(words[0]);
    ck_assert(!g_file_test(folder, G_FILE_TEST_EXISTS));
    run_clear(&run);
}
END_TEST

/* Its first process is killed before there is a journal, the second one before something is in it:
 * nobody can have heard that the run has begun. */
START_TEST(scheduler_that_was_killed_before_the_run_began_begins)
{
    Run run =
        start_with_scheduler(3, PATIENT_MS,
                             "folder=${RUBATO_CLUSTER%/*}\n"
                             "case $RUBATO_NODE$RUBATO_JOIN in\n"
                             "0 | 10) await end;;\n"
                             "9) if mkdir $folder/first 2> /dev/null; then kill -KILL $$; fi\n"
                             "   echo title > $RUBATO_JOURNAL\n"
                             "   if mkdir $folder/second 2> /dev/null; then kill -KILL $$; fi\n"
                             "   echo record >> $RUBATO_JOURNAL; kill -KILL $$;;\n"
                             "91) echo goes on; await end;;\n"
                             "esac");

    run_wait_for(&run, 0, "[9] goes on\n");
    write_empty("end");
    ck_assert_int_eq(run_finish(&run), 0);
    run_check_contains(&run, 1,
                       "rubato: node 9 is started again, since the run has not begun (1 of 3 "
                       "times)\n");
    run_check_contains(&run, 1, "since the run has not begun (2 of 3 times)\n");
    run_check_contains(&run, 1, "in the place of the lost process (3 of 3 times)\n");
    run_clear(&run);
}
END_TEST

/* The journal that the user names has records of an earlier run, and the first process is killed
 * before it opens the file. */
START_TEST(records_of_an_earlier_run_are_not_of_this_one)
{
    g_autofree char *journal = launch_write_file("journal", "title\nrecord\n", 0600);

    g_setenv("RUBATO_JOURNAL", journal, TRUE);
    Run run = start_with_scheduler(1, PATIENT_MS,
                                   "case $RUBATO_NODE$RUBATO_JOIN in\n"
                                   "0 | 10) await end;;\n"
                                   "9) if mkdir ${RUBATO_CLUSTER%/*}/first 2> /dev/null; then kill "
                                   "-KILL $$; fi\n"
                                   "   echo begins; await end;;\n"
                                   "esac");

    run_wait_for(&run, 0, "[9] begins\n");
    write_empty("end");
    ck_assert_int_eq(run_finish(&run), 0);
    run_check_contains(&run, 1, "since the run has not begun (1 of 1 times)\n");
    ck_assert(g_file_test(journal, G_FILE_TEST_EXISTS));
    run_clear(&run);
}
END_TEST

typedef struct {
    const char *scheduler; /* how the next process of its node ends */
    const char *node;      /* how node 0 ends */
    int code;              /* of the run */
} End;

static const End ends[] = {
    { "say lost 0 1; tell 2; say ended; say served 9", "exit 3", 3 },
    { "say lost 0 1; tell 2; say ended; exit 1", "exit 3", 3 },
    { "tell 2; say ended; say served 9", "say served 0; exit 0", 128 + 9 }, /* it was drained */
    { "tell 2; say ended; say served 9", "exit 0", 0 },
    { "tell 2; exit 1", "exit 0", 0 },
};

/* The next process of the scheduler stood still until the others had ended, and counts them as
 * lost. What it says of the run counts only if the program came to its end somewhere. */
START_TEST(losses_are_forgiven_only_if_the_program_came_to_its_end)
{
    const End *const end = &ends[_i];
    g_autofree char *script =
        g_strdup_printf("case $RUBATO_NODE$RUBATO_JOIN in\n"
                        "0) await go; %s;;\n"
                        "10) await go; kill -KILL $$;;\n"
                        "9) echo \"title\nrecord\" > $RUBATO_JOURNAL; kill -KILL $$;;\n"
                        "91) echo again; await lost; %s;;\n"
                        "esac",
                        end->node, end->scheduler);
    Run run = start_with_scheduler(1, PATIENT_MS, script);

    run_wait_for(&run, 0, "[9] again\n");
    write_empty("go");
    run_wait_for(&run, 1, "; waiting for the others to end\n");
    write_empty("lost");
    ck_assert_int_eq(run_finish(&run), end->code);
    ck_assert_uint_eq(count(run.texts[1], "the program has come to its end on no node"),
                      end->code != 0);
    run_clear(&run);
}
END_TEST

/* The others, which wait for it, are ended. */
START_TEST(scheduler_that_is_killed_too_often_ends_the_run)
{
    Run run = start_with_scheduler(2, /* timeout_ms= */ 100,
                                   "case $RUBATO_NODE in\n"
                                   "9) kill -KILL $$;;\n"
                                   "*) exec sleep 1000;;\n"
                                   "esac");

    ck_assert_int_eq(run_finish(&run), 128 + 9);
    run_check_contains(&run, 1,
                       "rubato: node 9, where the scheduler runs and which was started again, was "
                       "killed by signal 9 (SIGKILL)\n"
                       "rubato: node 9 is not started again: it was, 2 of 2 times\n"
                       "rubato: node 9 was killed by signal 9 (SIGKILL); waiting for the others to "
                       "end\n");
    run_check_contains(&run, 1, "rubato: still running: 0, 10; sending SIGTERM\n");
    run_check_contains(&run, 1, "rubato: node 9 (127.0.0.1) was killed by signal 9 (SIGKILL)\n");
    run_clear(&run);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("launcher_restart");
    TCase *restart = launch_add_case(suite, "restart");

    tcase_add_test(restart, lost_node_is_started_again_and_serves);
    tcase_add_loop_test(restart, node_that_is_lost_again_is_started_as_often_as_was_said, 1, 3);
    tcase_add_test(restart, nothing_is_started_again_if_nobody_asks);
    tcase_add_test(restart, nothing_is_started_again_if_the_others_end);
    tcase_add_test(restart, news_of_a_loss_may_come_too_late);
    tcase_add_test(restart, process_that_is_refused_leaves_the_run_as_it_is);
    tcase_add_test(restart, process_that_has_not_joined_ends_after_the_run);
    tcase_add_loop_test(restart, processes_join_if_they_are_to, 0, 2);
    tcase_add_test(restart, scheduler_that_is_alone_is_started_again_at_once);
    tcase_add_test(restart, scheduler_that_was_killed_before_the_run_began_begins);
    tcase_add_test(restart, records_of_an_earlier_run_are_not_of_this_one);
    tcase_add_loop_test(restart, losses_are_forgiven_only_if_the_program_came_to_its_end, 0,
                        G_N_ELEMENTS(ends));
    tcase_add_test(restart, scheduler_that_is_killed_too_often_ends_the_run);
    return run_suite(suite);
}
