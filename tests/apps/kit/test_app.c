/* What the programs share: flags, the split of rows into steps, progress, the result card. */
#include "apps/kit/app.h"

#include <fcntl.h>
#include <glib/gstdio.h>
#include <json-glib/json-glib.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test_paths.h"
#include "tests/support/runner.h"

#define ARGUMENTS_MAX 8

static const AppProgram program = {
    .name = "rubato-test",
    .summary = "Tests.",
    .epochs = 3,
    .batch_size = 16,
    .learning_rate = 0.25,
};

static bool parse(App *app, const char *const *arguments)
{
    char *argv[ARGUMENTS_MAX + 2] = { (char *)"rubato-test" };
    int argc = 1;

    for (; arguments[argc - 1] != NULL; argc++)
        argv[argc] = (char *)arguments[argc - 1];
    return app_parse(app, &program, argc, argv);
}

/* A case's standard error goes here, so that the case can read it. */
static int capture_stderr(void)
{
    int ends[2];

    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_ge(dup2(ends[1], STDERR_FILENO), 0);
    close(ends[1]);
    return ends[0];
}

/* Reads the output so far. A terminal passes it on in pieces and at any time, so a mark is written
 * at the end, and reading waits for the mark. */
static void read_all(int fd, char *text, size_t size)
{
    size_t n = 0;

    ck_assert_int_eq(write(STDERR_FILENO, "\004", 1), 1);
    do {
        const ssize_t got = read(fd, text + n, size - n);

        ck_assert_int_gt(got, 0);
        n += (size_t)got;
    } while (text[n - 1] != '\004');
    text[n - 1] = '\0';
}

static void no_environment(void)
{
    g_unsetenv("RUBATO_CLUSTER");
    g_unsetenv("RUBATO_NODE");
}

/* Flags. */

START_TEST(flags_not_given_have_the_programs_defaults)
{
    App app;

    ck_assert(parse(&app, (const char *const[]){ NULL }));
    ck_assert_str_eq(app.model, "bsp");
    ck_assert_uint_eq(app.staleness, 0);
    ck_assert_uint_eq(app.epochs, 3);
    ck_assert_uint_eq(app.batch_size, 16);
    ck_assert_double_eq(app.learning_rate, 0.25);
    ck_assert_uint_eq(app.seed, 1);
    ck_assert_ptr_null(app.json);
    ck_assert_ptr_null(app.cluster);
    ck_assert_uint_eq(app.servers, 0);
    ck_assert_uint_eq(app.workers, 0);
    ck_assert_int_eq(app_end(&app, NULL), EXIT_SUCCESS);
}
END_TEST

START_TEST(flags_given_are_taken)
{
    App app;

    ck_assert(parse(&app, (const char *const[]){ "--servers=2", "--workers=3", "--model=sparse_ssp",
                                                 "--staleness=4", "--speculation=2", "--seed=9",
                                                 "--json=-", NULL }));
    ck_assert_str_eq(app.model, "sparse_ssp");
    ck_assert_uint_eq(app.staleness, 4);
    ck_assert_uint_eq(app.speculation, 2);
    ck_assert_uint_eq(app.servers, 2);
    ck_assert_uint_eq(app.workers, 3);
    ck_assert_uint_eq(app.seed, 9);
    ck_assert_str_eq(app.json, "-");
    app_end(&app, NULL);
}
END_TEST

static const struct {
    const char *model;
    uint32_t staleness, speculation; /* 0: it has none */
} model_numbers[] = { { "asp", 0, 0 }, { "bsp", 0, 0 }, { "ssp", 1, 0 }, { "sparse_ssp", 1, 1 } };

START_TEST(a_model_has_the_numbers_that_it_takes)
{
    App app;
    RubatoTableSpec spec = { .name = "t" };

    ck_assert(parse(&app, (const char *const[]){ "--model", model_numbers[_i].model, NULL }));
    app_set_model(&app, &spec);
    ck_assert_str_eq(spec.model, model_numbers[_i].model);
    ck_assert_uint_eq(spec.staleness, model_numbers[_i].staleness);
    ck_assert_uint_eq(spec.speculation, model_numbers[_i].speculation);
    app_end(&app, NULL);
}
END_TEST

START_TEST(flags_of_a_run_that_ends_early_and_leaves_files)
{
    App app;

    ck_assert(parse(&app, (const char *const[]){ "--straggler=0.25:10", "--time-limit=1.5",
                                                 "--target-loss=-2.5", "--save=a/", "--plot=c",
                                                 "--predict=d", "--output=e", NULL }));
    ck_assert_double_eq(app.straggler_probability, 0.25);
    ck_assert_double_eq(app.straggler_ms, 10);
    ck_assert_double_eq(app.time_limit, 1.5);
    ck_assert_double_eq(app.target_loss, -2.5);
    ck_assert_str_eq(app.save, "a");
    ck_assert_str_eq(app.plot, "c");
    ck_assert_str_eq(app.predict, "d");
    ck_assert_str_eq(app.output, "e");
    ck_assert_uint_eq(app.epochs, 3);
    ck_assert(!app_only_loads(&app));
    app_end(&app, NULL);
}
END_TEST

START_TEST(a_loaded_model_predicts_without_training_unless_told_to)
{
    App app;

    ck_assert(parse(&app, (const char *const[]){ "--load=a", "--predict=b", NULL }));
    ck_assert_uint_eq(app.epochs, 0);
    ck_assert(app_only_loads(&app));
    ck_assert_str_eq(app.output, "-");
    app_end(&app, NULL);
    ck_assert(parse(&app, (const char *const[]){ "--load=a", "--predict=b", "--epochs=2", NULL }));
    ck_assert_uint_eq(app.epochs, 2);
    ck_assert(!app_only_loads(&app));
    app_end(&app, NULL);
    ck_assert(parse(&app, (const char *const[]){ "--load=a", NULL }));
    ck_assert_uint_eq(app.epochs, 3);
    app_end(&app, NULL);
}
END_TEST

START_TEST(flags_place_a_node_by_argument_or_environment)
{
    static const char pair[] = TEST_SOURCE_DIR "/config/pair.cfg";
    static const char trio[] = TEST_SOURCE_DIR "/config/trio.cfg";
    App app;

    g_setenv("RUBATO_CLUSTER", pair, TRUE);
    g_setenv("RUBATO_NODE", "5", TRUE);
    ck_assert(parse(&app, (const char *const[]){ NULL }));
    ck_assert_str_eq(app.cluster, pair);
    ck_assert_uint_eq(app.node, 5);
    app_end(&app, NULL);

    ck_assert(parse(&app, (const char *const[]){ "--cluster", trio, "--node", "2", NULL }));
    ck_assert_str_eq(app.cluster, trio);
    ck_assert_uint_eq(app.node, 2);
    app_end(&app, NULL);
}
END_TEST

static const struct {
    const char *arguments[ARGUMENTS_MAX];
    const char *message;
} bad_flags[] = {
    { { "--frobnicate" }, "--frobnicate" },
    { { "file" }, "unexpected argument \"file\"" },
    { { "--model", "bulk" }, "--model: expected one of asp, bsp, ssp, sparse_ssp, found \"bulk\"" },
    { { "--model=ssp", "--staleness", "-1" }, "--staleness: expected a number from 0 to" },
    { { "--staleness", "3" }, "--staleness: has no effect under --model bsp" },
    { { "--staleness=0", "--model=asp" }, "--staleness: has no effect under --model asp" },
    { { "--speculation=1", "--model=ssp" }, "--speculation: has no effect under --model ssp" },
    { { "--speculation", "-1" }, "--speculation: expected a number from 0 to" },
    { { "--epochs", "-1" }, "--epochs: expected a number from 0 to" },
    { { "--epochs", "many" }, "many" },
    { { "--batch-size", "-3" }, "--batch-size: expected a number from 1 to" },
    { { "--learning-rate", "0" }, "--learning-rate: expected a number above 0, found 0" },
    { { "--learning-rate", "nan" }, "--learning-rate: expected a number above 0" },
    { { "--learning-rate", "inf" }, "--learning-rate: expected a number above 0" },
    { { "--learning-rate", "fast" }, "fast" },
    { { "--seed", "-1" }, "--seed: expected a number from 0, found -1" },
    { { "--straggler", "0.5" }, "--straggler: expected PROBABILITY:MS" },
    { { "--straggler", "1.5:10" }, "--straggler: expected PROBABILITY:MS" },
    { { "--straggler", "0.5:-1" }, "--straggler: expected PROBABILITY:MS" },
    { { "--straggler", "0.5:10s" }, "found \"0.5:10s\"" },
    { { "--straggler", ":10" }, "--straggler: expected PROBABILITY:MS" },
    { { "--straggler", "nan:10" }, "--straggler: expected PROBABILITY:MS" },
    { { "--time-limit", "-1" }, "--time-limit: expected seconds above 0, found -1" },
    { { "--time-limit", "nan" }, "--time-limit: expected seconds above 0" },
    { { "--target-loss", "low" }, "--target-loss: expected a number, found \"low\"" },
    { { "--target-loss", "inf" }, "--target-loss: expected a number" },
    { { "--output", "x" }, "--output: needs --predict FILE" },
    { { "--predict", "x", "--json", "-" }, "--json and --output: standard output cannot" },
    { { "--workers", "0" }, "--workers: expected a number from 1 to" },
    { { "--servers", "1000000" }, "--servers: expected a number from 1 to" },
    { { "--node", "1" }, "--node: needs --cluster FILE" },
    { { "--cluster", "x.cfg" }, "--node: give the id that this node has in x.cfg" },
    { { "--cluster", "x.cfg", "--node", "-1" }, "--node: expected a number from 0 to" },
    { { "--cluster", "x.cfg", "--node", "1", "--workers", "2" },
      "--workers: is for a single process; on a cluster the numbers stand in its file, x.cfg" },
    { { "--cluster", "x.cfg", "--node", "1", "--servers", "2" }, "--servers: is for a single" },
};

START_TEST(flags_that_are_wrong_are_refused_with_a_reason)
{
    char text[1024];
    App app;
    const int said = capture_stderr();

    ck_assert(!parse(&app, bad_flags[_i].arguments));
    read_all(said, text, sizeof text);
    ck_assert_msg(g_str_has_prefix(text, "rubato-test: "), "%s", text);
    ck_assert_msg(strstr(text, bad_flags[_i].message) != NULL, "\"%s\" lacks \"%s\"", text,
                  bad_flags[_i].message);
    ck_assert(strstr(text, "rubato-test --help") != NULL);
}
END_TEST

START_TEST(flags_refuse_a_node_of_the_environment_that_is_no_number)
{
    char text[1024];
    App app;
    const int said = capture_stderr();

    g_setenv("RUBATO_CLUSTER", "file.cfg", TRUE);
    g_setenv("RUBATO_NODE", "one", TRUE);
    ck_assert(!parse(&app, (const char *const[]){ NULL }));
    read_all(said, text, sizeof text);
    ck_assert(strstr(text, "RUBATO_NODE: expected the id of a node, found \"one\"") != NULL);
}
END_TEST

START_TEST(learning_rate_falls_to_a_twentieth)
{
    App app = { .learning_rate = 2 };

    ck_assert_double_eq(app_learning_rate(&app, 0, 100), 2);
    ck_assert_double_eq_tol(app_learning_rate(&app, 50, 100), 1.05, 1e-12);
    ck_assert_double_eq_tol(app_learning_rate(&app, 100, 100), 0.1, 1e-12);
}
END_TEST

START_TEST(end_reports_the_error)
{
    char text[256];
    App app;
    g_autoptr(GError) error = g_error_new_literal(RUBATO_ERROR, RUBATO_ERROR_IO, "no disk");
    const int said = capture_stderr();

    ck_assert(parse(&app, (const char *const[]){ NULL }));
    ck_assert_int_eq(app_end(&app, error), EXIT_FAILURE);
    read_all(said, text, sizeof text);
    ck_assert_str_eq(text, "rubato-test: no disk\n");
}
END_TEST

/* Progress. */

static const struct {
    uint64_t n;
    const char *text;
} counts[] = {
    { 0, "0" },          { 999, "999" },           { 1000, "1,000" },
    { 60000, "60,000" }, { 1234567, "1,234,567" }, { UINT64_MAX, "18,446,744,073,709,551,615" }
};

START_TEST(counts_have_commas_between_thousands)
{
    char text[40];

    app_format_count(counts[_i].n, text, sizeof text);
    ck_assert_str_eq(text, counts[_i].text);
}
END_TEST

static const AppProgressView halfway = {
    .epoch = 2,
    .n_epochs = 3,
    .done = 0.5,
    .samples_per_second = 12345,
    .loss = 0.25,
};

START_TEST(bar_shows_epoch_speed_and_loss)
{
    char text[300];

    app_progress_format_bar(&halfway, 79, text, sizeof text);
    ck_assert_str_eq(text, "epoch 2/3 [==============>               ]  50 %  12,345 samples/s"
                           "  loss 0.2500");
    app_progress_format_line(&halfway, text, sizeof text);
    ck_assert_str_eq(text, "epoch 2/3  50 %  12,345 samples/s  loss 0.2500");
}
END_TEST

START_TEST(bar_leaves_out_a_loss_that_is_not_known)
{
    AppProgressView view = halfway;
    char text[300];

    view.loss = (double)NAN;
    app_progress_format_line(&view, text, sizeof text);
    ck_assert_str_eq(text, "epoch 2/3  50 %  12,345 samples/s");
}
END_TEST

START_TEST(bar_fits_every_width)
{
    char text[300];

    for (unsigned columns = 1; columns < 250; columns++)
        for (int done = 0; done <= 4; done++) {
            AppProgressView view = halfway;

            view.done = done / 4.0;
            app_progress_format_bar(&view, columns, text, sizeof text);
            ck_assert_uint_le(strlen(text), columns);
        }
}
END_TEST

/* A run of four epochs in two nodes of one worker each, of which this is one. */
static void run_progress(AppProgress *progress)
{
    app_progress_begin(progress, 4, 800);
    app_progress_report(progress, 2, 1);
    for (int i = 0; i < 40; i++) {
        app_progress_count(progress, 10);
        app_progress_draw(progress, 10, 5);
    }
    app_progress_end(progress, 0);
}

START_TEST(progress_on_a_pipe_is_a_line_for_each_epoch)
{
    AppProgress progress;
    char text[4096];
    const int said = capture_stderr();

    run_progress(&progress);
    read_all(said, text, sizeof text);
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    ck_assert_uint_eq(g_strv_length(lines), 5); /* the last is empty */
    for (int i = 0; i < 4; i++) {
        g_autofree char *start = g_strdup_printf("epoch %d/4  ", i + 1);

        ck_assert_msg(g_str_has_prefix(lines[i], start), "line %d is \"%s\"", i, lines[i]);
        ck_assert(g_str_has_suffix(lines[i], "loss 0.5000"));
    }
    ck_assert(g_str_has_prefix(lines[0], "epoch 1/4  25 %"));
    ck_assert(g_str_has_prefix(lines[3], "epoch 4/4  100 %"));
    ck_assert(strchr(text, '\r') == NULL && strchr(text, '\033') == NULL);
}
END_TEST

/* This node had 300 of the 800 samples, and thinks at first that the other one had as many. */
START_TEST(progress_ends_with_what_all_nodes_have_done)
{
    AppProgress progress;
    char text[4096];
    const int said = capture_stderr();

    app_progress_begin(&progress, 4, 800);
    app_progress_report(&progress, 2, 1);
    app_progress_count(&progress, 300);
    app_progress_end(&progress, 800);
    read_all(said, text, sizeof text);
    ck_assert_msg(g_str_has_prefix(text, "epoch 4/4  100 %"), "%s", text);
}
END_TEST

START_TEST(progress_of_a_node_that_does_not_report_is_silent)
{
    AppProgress progress;
    char text[256];
    const int said = capture_stderr();

    app_progress_begin(&progress, 4, 800);
    app_progress_count(&progress, 400);
    app_progress_end(&progress, 0);
    read_all(said, text, sizeof text);
    ck_assert_str_eq(text, "");
}
END_TEST

static int open_terminal(void)
{
    const int master = posix_openpt(O_RDWR | O_NOCTTY);

    ck_assert_int_ge(master, 0);
    ck_assert_int_eq(grantpt(master), 0);
    ck_assert_int_eq(unlockpt(master), 0);
    const int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    ck_assert_int_ge(slave, 0);
    ck_assert_int_ge(dup2(slave, STDERR_FILENO), 0);
    return master;
}

START_TEST(progress_on_a_terminal_is_redrawn_in_place)
{
    AppProgress progress;
    char text[4096];
    const int terminal = open_terminal();

    g_setenv("TERM", "xterm", TRUE);
    app_progress_begin(&progress, 4, 800);
    app_progress_report(&progress, 2, 1);
    for (int i = 0; i < 3; i++) {
        progress.drawn_us = 0; /* as if the time had come */
        app_progress_count(&progress, 100);
        app_progress_draw(&progress, 100, 50);
    }
    app_progress_end(&progress, 0);
    read_all(terminal, text, sizeof text);
    ck_assert(strchr(text, '\n') == NULL);
    g_auto(GStrv) pictures = g_strsplit(text, "\r", -1);
    ck_assert_uint_eq(g_strv_length(pictures), 5); /* nothing, three bars, the erasure */
    ck_assert(g_str_has_prefix(pictures[1], "epoch 2/4 ["));
    ck_assert(g_str_has_prefix(pictures[3], "epoch 4/4 ["));
    ck_assert_str_eq(pictures[4], "\033[K");
}
END_TEST

START_TEST(progress_on_a_dumb_terminal_is_lines)
{
    AppProgress progress;
    char text[4096];
    const int terminal = open_terminal();

    g_setenv("TERM", "dumb", TRUE);
    run_progress(&progress);
    read_all(terminal, text, sizeof text);
    ck_assert(strchr(text, '\n') != NULL);
    ck_assert(strchr(text, '\033') == NULL);
}
END_TEST

/* The card. */

static void fill(App *app)
{
    ck_assert(parse(app, (const char *const[]){ "--model=ssp", "--staleness=2", NULL }));
    app->n_samples = 180000;
    app->seconds = 4;
    app_add_metric(app, "train_loss", 0.5);
    app_add_metric(app, "test_accuracy", 0.8375);
    app_add_metric(app, "test_auc", (double)NAN);
}

START_TEST(card_tells_the_run_and_its_metrics)
{
    App app;

    fill(&app);
    g_autofree char *text = app_card_text(&app);
    ck_assert(g_str_has_prefix(text, "rubato-test\n"));
    ck_assert(strstr(text, "ssp, staleness 2\n") != NULL);
    ck_assert(strstr(text, "3 epochs, 180,000 samples in 4.00 s, 45,000 samples/s\n") != NULL);
    ck_assert(strstr(text, "  train loss     0.5000\n") != NULL);
    ck_assert(strstr(text, "  test accuracy  83.75 %\n") != NULL);
    app_end(&app, NULL);
}
END_TEST

START_TEST(card_as_json_has_every_member)
{
    static const char *const members[] = {
        "app",       "nodes",   "servers", "workers", "model",
        "staleness", "epochs",  "samples", "seconds", "samples_per_second",
        "stopped",   "metrics", "curve"
    };
    App app;
    g_autoptr(JsonParser) parser = json_parser_new();

    fill(&app);
    g_autofree char *text = app_card_json(&app);
    ck_assert(strchr(text, '\n') == NULL);
    ck_assert(json_parser_load_from_data(parser, text, -1, NULL));
    JsonObject *card = json_node_get_object(json_parser_get_root(parser));
    for (size_t i = 0; i < G_N_ELEMENTS(members); i++)
        ck_assert_msg(json_object_has_member(card, members[i]), "no %s", members[i]);
    ck_assert_str_eq(json_object_get_string_member(card, "app"), "rubato-test");
    ck_assert_str_eq(json_object_get_string_member(card, "model"), "ssp");
    ck_assert_int_eq(json_object_get_int_member(card, "staleness"), 2);
    ck_assert_int_eq(json_object_get_int_member(card, "samples"), 180000);
    ck_assert_double_eq(json_object_get_double_member(card, "samples_per_second"), 45000);
    JsonObject *metrics = json_object_get_object_member(card, "metrics");
    ck_assert_double_eq(json_object_get_double_member(metrics, "test_accuracy"), 0.8375);
    ck_assert(json_object_get_null_member(metrics, "test_auc"));
    app_end(&app, NULL);
}
END_TEST

START_TEST(report_says_nothing_on_a_node_that_does_not_report)
{
    App app;
    g_autofree char *path = g_build_filename(g_get_tmp_dir(), "rubato-no-such-card", NULL);

    fill(&app);
    app.json = g_strdup(path);
    ck_assert(app_report(&app, NULL));
    ck_assert(!g_file_test(path, G_FILE_TEST_EXISTS));
    app_end(&app, NULL);
}
END_TEST

START_TEST(report_fails_where_the_json_cannot_be_written)
{
    App app;
    g_autoptr(GError) error = NULL;

    fill(&app);
    app.reports = true;
    app.json = g_strdup("/no/such/folder/card.json");
    ck_assert(!app_report(&app, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_IO));
    ck_assert(strstr(error->message, "/no/such/folder/card.json") != NULL);
    app_end(&app, NULL);
}
END_TEST

/* A pipe is written into; a file in its place would leave its reader without a word. */
START_TEST(report_goes_into_a_pipe)
{
    App app;
    g_autofree char *folder = g_dir_make_tmp("rubato-card-XXXXXX", NULL);
    g_autofree char *path = g_build_filename(folder, "pipe", NULL);
    char text[4096] = "";

    ck_assert_int_eq(mkfifo(path, 0600), 0);
    const int reader = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    ck_assert_int_ge(reader, 0);
    fill(&app);
    app.reports = true;
    app.json = g_strdup(path);
    ck_assert(app_report(&app, NULL));
    ck_assert_int_gt(read(reader, text, sizeof text - 1), 0);
    ck_assert(g_str_has_prefix(text, "{\"app\":\"rubato-test\""));
    app_end(&app, NULL);
    close(reader);
    g_unlink(path);
    g_rmdir(folder);
}
END_TEST

static Suite *app_suite(void)
{
    Suite *suite = suite_create("app");
    TCase *flags = tcase_create("flags");
    TCase *progress = tcase_create("progress");
    TCase *card = tcase_create("card");

    tcase_add_checked_fixture(flags, no_environment, NULL);
    tcase_add_test(flags, flags_not_given_have_the_programs_defaults);
    tcase_add_test(flags, flags_given_are_taken);
    tcase_add_loop_test(flags, a_model_has_the_numbers_that_it_takes, 0,
                        (int)G_N_ELEMENTS(model_numbers));
    tcase_add_test(flags, flags_of_a_run_that_ends_early_and_leaves_files);
    tcase_add_test(flags, a_loaded_model_predicts_without_training_unless_told_to);
    tcase_add_test(flags, flags_place_a_node_by_argument_or_environment);
    tcase_add_loop_test(flags, flags_that_are_wrong_are_refused_with_a_reason, 0,
                        (int)G_N_ELEMENTS(bad_flags));
    tcase_add_test(flags, flags_refuse_a_node_of_the_environment_that_is_no_number);
    tcase_add_test(flags, learning_rate_falls_to_a_twentieth);
    tcase_add_test(flags, end_reports_the_error);
    tcase_add_loop_test(progress, counts_have_commas_between_thousands, 0,
                        (int)G_N_ELEMENTS(counts));
    tcase_add_test(progress, bar_shows_epoch_speed_and_loss);
    tcase_add_test(progress, bar_leaves_out_a_loss_that_is_not_known);
    tcase_add_test(progress, bar_fits_every_width);
    tcase_add_test(progress, progress_on_a_pipe_is_a_line_for_each_epoch);
    tcase_add_test(progress, progress_ends_with_what_all_nodes_have_done);
    tcase_add_test(progress, progress_of_a_node_that_does_not_report_is_silent);
    tcase_add_test(progress, progress_on_a_terminal_is_redrawn_in_place);
    tcase_add_test(progress, progress_on_a_dumb_terminal_is_lines);
    tcase_add_checked_fixture(card, no_environment, NULL);
    tcase_add_test(card, card_tells_the_run_and_its_metrics);
    tcase_add_test(card, card_as_json_has_every_member);
    tcase_add_test(card, report_says_nothing_on_a_node_that_does_not_report);
    tcase_add_test(card, report_fails_where_the_json_cannot_be_written);
    tcase_add_test(card, report_goes_into_a_pipe);
    suite_add_tcase(suite, flags);
    suite_add_tcase(suite, progress);
    suite_add_tcase(suite, card);
    return suite;
}

int main(void)
{
    return run_suite(app_suite());
}
