/* An engine from the command line and the environment. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { MAX_ARGS = 12 };

/* The remaining arguments are in argv. */
typedef struct {
    int argc;
    char *argv_[MAX_ARGS + 1];
    char **argv;
    char *texts;
} Line;

/* Cuts a line at its blanks. */
static void split(Line *line, const char *text)
{
    *line = (Line){ .texts = g_strdup(text) };
    line->argv = line->argv_;
    for (char *word = strtok(line->texts, " "); word != NULL; word = strtok(NULL, " "))
        line->argv[line->argc++] = word;
}

static RubatoEngine *engine_of(const char *text, Line *line, GError **error)
{
    split(line, text);
    return rubato_engine_new_from_args(&line->argc, &line->argv, error);
}

START_TEST(servers_and_workers_are_taken_and_the_rest_is_left)
{
    Line line;
    RubatoEngine *engine = engine_of("app --servers 3 --epochs 7 --workers=2 file -v", &line, NULL);

    ck_assert_ptr_nonnull(engine);
    ck_assert_uint_eq(rubato_engine_n_servers(engine), 3);
    ck_assert_uint_eq(rubato_engine_n_workers(engine), 2);
    ck_assert_uint_eq(rubato_engine_n_nodes(engine), 1);
    ck_assert_int_eq(line.argc, 5);
    ck_assert_str_eq(line.argv[0], "app");
    ck_assert_str_eq(line.argv[1], "--epochs");
    ck_assert_str_eq(line.argv[2], "7");
    ck_assert_str_eq(line.argv[3], "file");
    ck_assert_str_eq(line.argv[4], "-v");
    rubato_engine_free(engine);
    g_free(line.texts);
}
END_TEST

START_TEST(threads_and_rows_are_bound_where_it_is_asked_for)
{
    static const char *const lines[] = { "app --bind-cores", "app --numa --servers 2" };
    g_autoptr(GError) error = NULL;
    Line line;
    RubatoEngine *engine = engine_of(lines[_i], &line, &error);

    ck_assert_int_eq(line.argc, 1);
    if (engine == NULL) /* without hwloc, or in a container that may not */
        check_error(&error, RUBATO_ERROR_INVALID, _i == 0 ? "bind_cores" : "", NULL);
    else
        ck_assert((strstr(rubato_engine_binding(engine), "rows in the NUMA") != NULL) == (_i == 1));
    rubato_engine_free(engine);
    g_free(line.texts);
}
END_TEST

START_TEST(no_flags_make_one_process)
{
    Line line;
    RubatoEngine *engine = engine_of("app", &line, NULL);

    ck_assert_ptr_nonnull(engine);
    ck_assert_uint_eq(rubato_engine_n_servers(engine), 1);
    ck_assert_int_eq(line.argc, 1);
    rubato_engine_free(engine);
    g_free(line.texts);
}
END_TEST

static const struct {
    const char *line;
    const char *texts[2];
} wrong[] = {
    { "app --node 1", { "--node", "--cluster FILE" } },
    { "app --cluster pair.cfg", { "--node ID", "rubato run" } },
    { "app --cluster pair.cfg --node 0 --servers 2", { "--servers", "single process" } },
    { "app --cluster pair.cfg --node 0 --workers 2", { "--workers", "cluster file says" } },
    { "app --servers -1", { "--servers -1", "" } },
    { "app --workers 99999999", { "--workers 99999999", "" } },
    { "app --cluster pair.cfg --node -5", { "--node -5", "" } },
};

START_TEST(flags_that_make_no_sense_are_refused)
{
    GError *error = NULL;
    Line line;

    ck_assert_ptr_null(engine_of(wrong[_i].line, &line, &error));
    check_error(&error, RUBATO_ERROR_INVALID, wrong[_i].texts[0], wrong[_i].texts[1], NULL);
    g_free(line.texts);
}
END_TEST

START_TEST(what_is_no_number_is_refused)
{
    static const char *const lines[] = { "app --servers many", "app --servers", "app --node x" };
    GError *error = NULL;
    Line line;

    ck_assert_ptr_null(engine_of(lines[_i], &line, &error));
    ck_assert_ptr_nonnull(error);
    g_clear_error(&error);
    g_free(line.texts);
}
END_TEST

START_TEST(the_environment_says_what_the_flags_do_not)
{
    GError *error = NULL;
    Line line;

    setenv("RUBATO_CLUSTER", "no/such.cfg", 1);
    setenv("RUBATO_NODE", "3", 1);
    ck_assert_ptr_null(engine_of("app", &line, &error));
    ck_assert_ptr_nonnull(strstr(error->message, "no/such.cfg"));
    g_clear_error(&error);
    g_free(line.texts);
    ck_assert_ptr_null(engine_of("app --cluster other.cfg --node 1", &line, &error));
    ck_assert_ptr_nonnull(strstr(error->message, "other.cfg")); /* flags come first */
    g_clear_error(&error);
    g_free(line.texts);
    setenv("RUBATO_NODE", "three", 1);
    ck_assert_ptr_null(engine_of("app", &line, &error));
    check_error(&error, RUBATO_ERROR_INVALID, NULL);
    g_free(line.texts);
}
END_TEST

/* The error of a missing number names its place. */
START_TEST(a_node_that_the_environment_leaves_out_or_garbles_is_named)
{
    GError *error = NULL;
    Line line;

    setenv("RUBATO_CLUSTER", "no/such.cfg", 1);
    if (_i == 0)
        unsetenv("RUBATO_NODE");
    else
        setenv("RUBATO_NODE", "12 monkeys", 1);
    ck_assert_ptr_null(engine_of("app", &line, &error));
    check_error(&error, RUBATO_ERROR_INVALID, _i == 0 ? "--node ID" : "RUBATO_NODE", NULL);
    g_free(line.texts);
}
END_TEST

/* A program may have short options of its own, with any letter in them. A process that has printed
 * the help ends with 0, so a good one ends with 1 here. */
START_TEST(short_options_of_the_program_are_left)
{
    static const char *const words[] = { "-width", "-xh", "-v?", "--", "--help" };
    Line line;
    RubatoEngine *engine = engine_of("app -width -xh --servers 2 -v? -- --help", &line, NULL);

    ck_assert_ptr_nonnull(engine);
    ck_assert_uint_eq(rubato_engine_n_servers(engine), 2);
    ck_assert_int_eq(line.argc, 6);
    for (int i = 0; i < 5; i++)
        ck_assert_str_eq(line.argv[i + 1], words[i]);
    rubato_engine_free(engine);
    g_free(line.texts);
    exit(1);
}
END_TEST

static const struct {
    const char *variables[4]; /* "NAME=VALUE" */
    const char *line;
    const char *texts[2];
} announcements[] = {
    { { "RUBATO_ROLE=workr" }, "app", { "\"workr\"", "did you mean worker?" } },
    { { "RUBATO_ROLE=queen" }, "app", { "\"queen\"", "server, worker, node and alone" } },
    { { "RUBATO_ROLE=worker" }, "app", { "RUBATO_SCHEDULER=HOST:PORT", "" } },
    { { "RUBATO_SCHEDULER=a:1" }, "app", { "set RUBATO_ROLE", "" } },
    { { "RUBATO_ROLE=worker", "RUBATO_SCHEDULER=a:1", "RUBATO_CLUSTER=x.cfg" },
      "app",
      { "RUBATO_ROLE and RUBATO_CLUSTER", "unset one" } },
    { { "RUBATO_ROLE=worker", "RUBATO_SCHEDULER=nowhere" }, "app", { "\"nowhere\"", "HOST:PORT" } },
    { { "RUBATO_ROLE=worker", "RUBATO_SCHEDULER=a:70000" }, "app", { "\"a:70000\"", "HOST:PORT" } },
    { { "RUBATO_ROLE=worker", "RUBATO_SCHEDULER=a:1", "RUBATO_THREADS=0" },
      "app",
      { "RUBATO_THREADS is \"0\"", "from 1" } },
    { { "RUBATO_ROLE=worker", "RUBATO_SCHEDULER=a:1", "RUBATO_NODE=first" },
      "app",
      { "RUBATO_NODE is \"first\"", "from 1" } },
    { { "RUBATO_ROLE=worker", "RUBATO_SCHEDULER=a:1" },
      "app --workers 2",
      { "--servers and --workers", "RUBATO_THREADS" } },
    { { "RUBATO_ROLE=node", "RUBATO_SCHEDULER=a:1", "RUBATO_NODES=2", "RUBATO_NODE=2" },
      "app",
      { "0 to 1, unless RUBATO_SPARES", "" } },
    { { "RUBATO_ROLE=scheduler", "RUBATO_SCHEDULER=a:1", "RUBATO_SERVERS=1", "RUBATO_SPARES=-1" },
      "app",
      { "RUBATO_SPARES is \"-1\"", "from 0" } },
    { { "RUBATO_ROLE=scheduler", "RUBATO_SCHEDULER=a:1", "RUBATO_SERVERS=1" },
      "app",
      { "RUBATO_WORKERS does not say", "" } },
    { { "RUBATO_ROLE=scheduler", "RUBATO_SCHEDULER=a:1", "RUBATO_SERVERS=0", "RUBATO_WORKERS=1" },
      "app",
      { "RUBATO_SERVERS is \"0\"", "" } },
    { { "RUBATO_ROLE=scheduler", "RUBATO_SCHEDULER=a:1", "RUBATO_SERVERS=4000",
        "RUBATO_WORKERS=4000" },
      "app",
      { "8000 nodes", "4095" } },
    { { "RUBATO_ROLE=node" }, "app", { "no job system", "srun" } },
    { { "RUBATO_ROLE=node", "RUBATO_NODES=2", "RUBATO_NODE=2", "RUBATO_SCHEDULER=a:1" },
      "app",
      { "RUBATO_NODE is 2", "0 to 1" } },
    { { "RUBATO_ROLE=node", "RUBATO_NODES=2", "RUBATO_NODE=1" }, "app", { "HOST:PORT", "" } },
};

START_TEST(announcements_that_make_no_sense_are_refused)
{
    GError *error = NULL;
    Line line;

    for (size_t i = 0; i < G_N_ELEMENTS(announcements[_i].variables); i++) {
        g_auto(GStrv) parts = announcements[_i].variables[i] != NULL
                                  ? g_strsplit(announcements[_i].variables[i], "=", 2)
                                  : NULL;

        if (parts != NULL)
            g_setenv(parts[0], parts[1], TRUE);
    }
    ck_assert_ptr_null(engine_of(announcements[_i].line, &line, &error));
    check_error(&error, RUBATO_ERROR_INVALID, announcements[_i].texts[0],
                announcements[_i].texts[1], NULL);
    g_free(line.texts);
}
END_TEST

/* An empty variable is like none, and flags come first. */
START_TEST(an_announcement_may_be_empty_or_overruled)
{
    GError *error = NULL;
    Line line;

    setenv("RUBATO_ROLE", "", 1);
    setenv("RUBATO_SCHEDULER", "", 1);
    RubatoEngine *engine = engine_of("app", &line, &error);
    ck_assert_ptr_nonnull(engine);
    rubato_engine_free(engine);
    g_free(line.texts);
    setenv("RUBATO_ROLE", "worker", 1);
    setenv("RUBATO_SCHEDULER", "127.0.0.1:9", 1);
    ck_assert_ptr_null(engine_of("app --cluster no/such.cfg --node 1", &line, &error));
    check_error(&error, RUBATO_ERROR_IO, "no/such.cfg", NULL);
    g_free(line.texts);
}
END_TEST

/* --help prints to standard output and ends the process well. */
START_TEST(help_ends_the_process)
{
    static const char *const lines[] = { "app --help", "app -h", "app --servers 2 -? file" };
    Line line;

    engine_of(lines[_i], &line, NULL);
    _exit(1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("args");
    TCase *cases = tcase_create("args");

    unsetenv("RUBATO_CLUSTER");
    unsetenv("RUBATO_NODE");
    tcase_add_test(cases, servers_and_workers_are_taken_and_the_rest_is_left);
    tcase_add_loop_test(cases, threads_and_rows_are_bound_where_it_is_asked_for, 0, 2);
    tcase_add_test(cases, no_flags_make_one_process);
    tcase_add_loop_test(cases, flags_that_make_no_sense_are_refused, 0, G_N_ELEMENTS(wrong));
    tcase_add_loop_test(cases, what_is_no_number_is_refused, 0, 3);
    tcase_add_test(cases, the_environment_says_what_the_flags_do_not);
    tcase_add_loop_test(cases, a_node_that_the_environment_leaves_out_or_garbles_is_named, 0, 2);
    tcase_add_loop_test(cases, announcements_that_make_no_sense_are_refused, 0,
                        G_N_ELEMENTS(announcements));
    tcase_add_test(cases, an_announcement_may_be_empty_or_overruled);
    tcase_add_exit_test(cases, short_options_of_the_program_are_left, 1);
    tcase_add_loop_exit_test(cases, help_ends_the_process, 0, 0, 3);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
