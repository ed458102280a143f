/* Programs with --checkpoint and --resume: a run that goes on from any snapshot ends with the same
 * bits as one that was not interrupted, on one process and on two nodes. */
#include <rubato/mix.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "test_paths.h"
#include "tests/support/cluster/program_run.h"
#include "tests/support/data/image_files.h"
#include "tests/support/runner.h"
#include "tests/support/store/small_snapshot.h"

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Outcome, outcome_clear)

enum { N_ROWS = 1000, N_EPOCHS = 4, N_BLOCKS_ROWS = 12000 /* of more than ten blocks */ };

static char *folder, *rows, *checkpoints;

/* Rows of a linear model with some noise. */
static void write_rows(uint64_t n)
{
    g_autoptr(GString) text = g_string_new(NULL);

    for (uint64_t i = 0; i < n; i++) {
        const uint64_t bits = rubato_mix64(i + 1);
        const unsigned a = (unsigned)(bits % 20), b = 20 + (unsigned)(bits >> 8) % 30;

        g_string_append_printf(text, "%d %u:1 %u:0.5\n", (bits >> 20) % 40 < a + b ? 1 : -1, a, b);
    }
    ck_assert(g_file_set_contents(rows, text->str, (gssize)text->len, NULL));
}

static void set_up(void)
{
    folder = make_folder();
    rows = g_build_filename(folder, "rows.svm", NULL);
    checkpoints = g_build_filename(folder, "checkpoints", NULL);
    write_rows(N_ROWS);
    write_image_files(folder, 200, 20);
}

static void tear_down(void)
{
    remove_tree(folder);
    g_free(checkpoints);
    g_free(rows);
    g_free(folder);
}

/* Runs a program over the epochs, and saves its model under that name. */
static Outcome run(Place place, const char *program, const char *model, const char *const *more)
{
    g_auto(GStrv) words = g_strsplit(program, " ", 2); /* its name, and perhaps a flag */
    const bool is_softmax = strcmp(words[0], "rubato-softmax") == 0;
    const bool is_mlp = strcmp(words[0], "rubato-mlp") == 0;
    g_autofree char *images = g_build_filename(folder, "train-images-idx3-ubyte", NULL);
    g_autofree char *save = g_build_filename(folder, model, NULL);
    const char *arguments[20] = { "--epochs", "4", "--save", save };
    size_t n = 4;

    if (is_softmax) {
        arguments[n++] = "--data";
        arguments[n++] = folder;
    } else {
        arguments[n++] = "--train";
        arguments[n++] = is_mlp ? images : rows;
        arguments[n++] = "--rule=adam"; /* has state */
        arguments[n++] = is_mlp ? "--batch-size=20" : "--batch-size=200";
    }
    if (words[1] != NULL)
        arguments[n++] = words[1];
    for (; *more != NULL; more++)
        arguments[n++] = *more;
    return run_program(place, words[0], arguments);
}

static void run_ok(Place place, const char *program, const char *model, const char *text,
                   const char *const *more)
{
    g_auto(Outcome) outcome = run(place, program, model, more);

    ck_assert_msg(outcome.status == 0, "%s", outcome.err);
    ck_assert_msg(strstr(outcome.err, text) != NULL, "%s", outcome.err);
}

static void expect_refusal(int status, const char *text, const char *const *more)
{
    g_auto(Outcome) outcome = run(PLACE_ONE_PROCESS, "rubato-lr", "none", more);

    ck_assert_msg(outcome.status == status, "%s", outcome.err);
    ck_assert_msg(strstr(outcome.err, text) != NULL, "%s", outcome.err);
}

static void expect_same_array(const char *name, const char *left, const char *right)
{
    g_autofree char *left_path = g_build_filename(folder, left, name, NULL);
    g_autofree char *right_path = g_build_filename(folder, right, name, NULL);
    g_autofree char *left_bytes = NULL;
    g_autofree char *right_bytes = NULL;
    gsize n_left, n_right;

    ck_assert(g_file_get_contents(left_path, &left_bytes, &n_left, NULL));
    ck_assert(g_file_get_contents(right_path, &right_bytes, &n_right, NULL));
    ck_assert_uint_eq(n_left, n_right);
    ck_assert_mem_eq(left_bytes, right_bytes, n_left);
}

static void expect_same_of(const char *program, const char *left, const char *right)
{
    const bool is_net =
        g_str_has_prefix(program, "rubato-mlp") || g_str_has_prefix(program, "rubato-wide-deep");

    expect_same_array(is_net ? "layer-1.npy" : "weights.npy", left, right);
}

static void expect_same(const char *left, const char *right)
{
    expect_same_of("", left, right);
}

static void expect_list(size_t n_expected, uint64_t newest)
{
    g_autofree uint64_t *numbers = NULL;
    size_t n;

    ck_assert(rubato_snapshot_list(checkpoints, &numbers, &n, NULL));
    ck_assert_uint_eq(n, n_expected);
    ck_assert_uint_eq(numbers[n - 1], newest);
}

static void drop(uint64_t number)
{
    g_autofree char *path = snapshot_folder_whole(checkpoints, number);

    remove_tree(path);
}

/* The run is as one that was killed after epoch `done`. */
static const struct {
    const char *program;
    Place place, resumed_place;
    unsigned done;
} runs[] = {
    { "rubato-lr", PLACE_ONE_PROCESS, PLACE_ONE_PROCESS, 1 },
    { "rubato-lr", PLACE_ONE_PROCESS, PLACE_TWO_NODES, 3 },
    { "rubato-lr", PLACE_TWO_NODES, PLACE_ONE_PROCESS, 2 },
    { "rubato-softmax", PLACE_ONE_PROCESS, PLACE_ONE_PROCESS, 2 },
    { "rubato-softmax --by=allreduce", PLACE_ONE_PROCESS, PLACE_ONE_PROCESS, 2 },
    { "rubato-mlp", PLACE_ONE_PROCESS, PLACE_TWO_NODES, 2 },
    { "rubato-mlp --by=allreduce", PLACE_TWO_NODES, PLACE_TWO_NODES, 1 },
    { "rubato-wide-deep", PLACE_ONE_PROCESS, PLACE_ONE_PROCESS, 3 },
};

START_TEST(resumed_run_ends_with_the_same_bits)
{
    const char *const first[] = { "--checkpoint", checkpoints, "--keep=0", NULL };
    const char *const second[] = { "--checkpoint", checkpoints, "--resume", NULL };
    g_autofree char *said = g_strdup_printf("going on from snapshot %u", runs[_i].done);

    run_ok(runs[_i].place, runs[_i].program, "whole", "", first);
    expect_list(N_EPOCHS, N_EPOCHS);
    for (unsigned number = N_EPOCHS; number > runs[_i].done; number--)
        drop(number);
    run_ok(runs[_i].resumed_place, runs[_i].program, "resumed", said, second);
    expect_same_of(runs[_i].program, "whole", "resumed");
    expect_list(3, N_EPOCHS); /* --keep has a default */
}
END_TEST

/* Programs that take snapshots between epochs alone, each with flags of its own. A tree follows
 * from the scores of all trees before, to the last bit. */
static const struct {
    const char *program, *array, *flags[4];
    unsigned epochs;
} between_epochs[] = {
    { "rubato-gbdt", "trees.npy", { "--max-depth=3" }, 40 },
    { "rubato-kmeans", "centers.npy", { "--clusters=5", "--batch-size=100" }, 10 },
    { "rubato-mf", "factors.npy", { "--rule=sgd", "--factors=4", "--format=ratings" }, 6 },
};

/* Ratings of users and items; else points, of which a curve parts two classes. */
static void write_other_rows(bool are_ratings)
{
    g_autoptr(GString) text = g_string_new(NULL);

    for (uint64_t i = 0; i < N_ROWS; i++) {
        const uint64_t bits = rubato_mix64(i + 1);
        const double x = (double)(bits % 997) / 997, y = (double)((bits >> 16) % 991) / 991;
        const double noise = (double)((bits >> 32) % 100) / 300;

        if (are_ratings)
            g_string_append_printf(text, "%u\t%u\t%u\n", (unsigned)(bits % 50),
                                   (unsigned)(bits >> 8) % 40, 1 + (unsigned)(bits >> 16) % 5);
        else
            g_string_append_printf(text, "%d 1:%.3f 2:%.3f\n", x * x + noise < y ? 1 : -1, x, y);
    }
    ck_assert(g_file_set_contents(rows, text->str, (gssize)text->len, NULL));
}

static void run_other(size_t i, const char *model, const char *more)
{
    g_autofree char *save = g_build_filename(folder, model, NULL);
    g_autofree char *epochs = g_strdup_printf("--epochs=%u", between_epochs[i].epochs);
    const char *arguments[16] = { "--train", rows,           epochs,      "--save",
                                  save,      "--checkpoint", checkpoints, more };

    for (size_t flag = 0, n = 8; between_epochs[i].flags[flag] != NULL; flag++)
        arguments[n++] = between_epochs[i].flags[flag];
    g_auto(Outcome) outcome = run_program(PLACE_ONE_PROCESS, between_epochs[i].program, arguments);
    ck_assert_msg(outcome.status == 0, "%s", outcome.err);
}

START_TEST(resumed_trees_centers_and_factors_have_the_same_bits)
{
    const size_t i = (size_t)_i;

    write_other_rows(strcmp(between_epochs[i].program, "rubato-mf") == 0);
    run_other(i, "whole", "--keep=0");
    expect_list(between_epochs[i].epochs, between_epochs[i].epochs);
    for (unsigned number = between_epochs[i].epochs; number > between_epochs[i].epochs / 2;
         number--)
        drop(number);
    run_other(i, "resumed", "--resume");
    expect_same_array(between_epochs[i].array, "whole", "resumed");
}
END_TEST

/* ---- in the middle of an epoch ---- */

/* The run is as one that was killed when it had taken so many snapshots of each hundred. The rows
 * that the workers had read by then do not come again. */
static const struct {
    const char *program;
    Place place, resumed_place;
    unsigned percent;
} middles[] = {
    { "rubato-lr", PLACE_ONE_PROCESS, PLACE_ONE_PROCESS, 1 },
    { "rubato-lr", PLACE_TWO_NODES, PLACE_ONE_PROCESS, 50 },
    { "rubato-fm", PLACE_ONE_PROCESS, PLACE_TWO_NODES, 30 },
    { "rubato-softmax", PLACE_ONE_PROCESS, PLACE_ONE_PROCESS, 60 },
    { "rubato-softmax --by=allreduce", PLACE_TWO_NODES, PLACE_TWO_NODES, 60 },
    { "rubato-mlp", PLACE_TWO_NODES, PLACE_ONE_PROCESS, 40 },
    { "rubato-mlp --by=allreduce", PLACE_ONE_PROCESS, PLACE_ONE_PROCESS, 70 },
    { "rubato-wide-deep", PLACE_TWO_NODES, PLACE_TWO_NODES, 50 },
};

/* Drops the newest, so that one in the middle of an epoch is the last. */
static void drop_to(unsigned percent)
{
    g_autofree uint64_t *numbers = NULL;
    size_t n;

    ck_assert(rubato_snapshot_list(checkpoints, &numbers, &n, NULL));
    ck_assert_uint_ge(n, 3);
    const size_t n_left = MAX(1, n * percent / 100);
    for (; n > n_left; n--)
        drop(numbers[n - 1]);
}

START_TEST(run_resumed_in_the_middle_of_an_epoch_ends_with_the_same_bits)
{
    const char *const first[] = { "--checkpoint",          checkpoints,      "--keep=0",
                                  "--checkpoint-every=2c", "--full-every=3", NULL };
    const char *const second[] = { "--checkpoint", checkpoints, "--resume", NULL };

    run_ok(middles[_i].place, middles[_i].program, "whole", "", first);
    drop_to(middles[_i].percent);
    run_ok(middles[_i].resumed_place, middles[_i].program, "resumed", "steps of the next one",
           second);
    expect_same_of(middles[_i].program, "whole", "resumed");
}
END_TEST

static const char *const clocked[] = { "rubato-lr", "rubato-fm", "rubato-mlp" };

/* With this seed worker 1 sleeps in its first step alone, and worker 0 in none: it takes the first
 * snapshot meanwhile. So the run goes on from the beginning, or worker 1 would never train on the
 * rows of that step. */
START_TEST(run_whose_slowest_worker_has_done_no_step_leaves_out_no_row)
{
    const char *const first[] = {
        "--checkpoint",          checkpoints,   "--keep=0",    "--workers=2",          "--epochs=1",
        "--checkpoint-every=1c", "--model=asp", "--seed=3496", "--straggler=0.5:1000", NULL
    };
    const char *const second[] = { "--checkpoint", checkpoints,   "--resume", "--workers=2",
                                   "--epochs=1",   "--model=asp", NULL };

    run_ok(PLACE_ONE_PROCESS, clocked[_i], "whole", "", first);
    drop_to(1);
    g_autoptr(RubatoSnapshot) snapshot = rubato_snapshot_open(checkpoints, 1, NULL);
    ck_assert_ptr_nonnull(snapshot);
    ck_assert_ptr_nonnull(strstr(rubato_snapshot_note(snapshot), "steps=1\n"));
    ck_assert_uint_eq(rubato_snapshot_table(snapshot, 0)->clock, 0);
    run_ok(PLACE_ONE_PROCESS, clocked[_i], "resumed", ": 0 of 1 epochs are done\n", second);
}
END_TEST

/* Each is killed in the same epoch as the one before it. */
static const char *const resumed_twice[] = { "rubato-lr", "rubato-mlp", "rubato-wide-deep" };

START_TEST(run_resumed_twice_in_an_epoch_ends_with_the_same_bits)
{
    const char *const program = resumed_twice[_i];
    const char *const arguments[] = { "--checkpoint",          checkpoints, "--keep=0",
                                      "--checkpoint-every=1c", "--resume",  NULL };

    run_ok(PLACE_ONE_PROCESS, program, "whole", "so training begins", arguments);
    drop_to(30);
    run_ok(PLACE_ONE_PROCESS, program, "resumed", ": 1 of 4 epochs are done, and ", arguments);
    drop_to(40);
    run_ok(PLACE_ONE_PROCESS, program, "twice", ": 1 of 4 epochs are done, and ", arguments);
    expect_same_of(program, "whole", "resumed");
    expect_same_of(program, "whole", "twice");
}
END_TEST

/* Has the run take a snapshot, as a user does from outside. */
static void take_from_outside(void)
{
    const char *const argv[] = { TEST_BIN_DIR "/rubato", "checkpoint", "take", checkpoints, NULL };
    g_autofree char *out = NULL, *err = NULL;
    int status;

    ck_assert(g_spawn_sync(NULL, (char **)(uintptr_t)argv, NULL, G_SPAWN_DEFAULT, NULL, NULL, &out,
                           &err, &status, NULL));
    ck_assert_msg(status == 0 && strcmp(out, "snapshot 1\n") == 0, "%s%s", out, err);
}

/* ---- a dynamic split ---- */

/* How many rows the newest snapshot has as done. */
static int64_t rows_done(void)
{
    g_autofree uint64_t *numbers = NULL;
    size_t n_numbers;

    ck_assert(rubato_snapshot_list(checkpoints, &numbers, &n_numbers, NULL));
    ck_assert_uint_gt(n_numbers, 0);
    g_autofree char *number = g_strdup_printf("%" G_GUINT64_FORMAT, numbers[n_numbers - 1]);
    g_autofree char *folder_npy = g_build_filename(folder, "exported", NULL);
    const char *const argv[] = {
        TEST_BIN_DIR "/rubato", "checkpoint", "export", checkpoints, number, folder_npy, NULL
    };
    g_autofree char *path = g_build_filename(folder_npy, "app-rows-done.npy", NULL);
    g_autofree char *bytes = NULL, *err = NULL;
    int64_t n = -1;
    int status;
    gsize n_bytes;

    ck_assert(g_spawn_sync(NULL, (char **)(uintptr_t)argv, NULL, G_SPAWN_STDOUT_TO_DEV_NULL, NULL,
                           NULL, NULL, &err, &status, NULL));
    ck_assert_msg(status == 0, "%s", err);
    ck_assert(g_file_get_contents(path, &bytes, &n_bytes, NULL));
    memcpy(&n, bytes + n_bytes - sizeof n, sizeof n); /* its last number, little-endian */
    remove_tree(folder_npy);
    return n;
}

/* A snapshot has the rows that are done exactly if it has their Adds, and counts them: the run that
 * goes on, by more or fewer workers, trains on the others. It compares their number with the
 * count. */
static const struct {
    const char *program, *model;
    Place place, resumed_place;
    const char *workers; /* of the run that goes on, in one process */
    unsigned percent;
} dynamic[] = {
    { "rubato-lr", "--model=asp", PLACE_ONE_PROCESS, PLACE_ONE_PROCESS, "--workers=3", 30 },
    { "rubato-lr", "--model=bsp", PLACE_TWO_NODES, PLACE_ONE_PROCESS, "--workers=1", 60 },
    { "rubato-fm", "--model=ssp", PLACE_ONE_PROCESS, PLACE_TWO_NODES, NULL, 50 },
    { "rubato-fm", "--model=sparse_ssp", PLACE_ONE_PROCESS, PLACE_ONE_PROCESS, "--workers=5", 70 },
    { "rubato-wide-deep", "--model=bsp", PLACE_ONE_PROCESS, PLACE_ONE_PROCESS, "--workers=2", 50 },
};

START_TEST(run_resumed_in_the_middle_of_a_dynamic_split_trains_on_the_other_rows)
{
    const char *const first[] = { "--checkpoint",    checkpoints,       "--keep=0",
                                  "--epochs=2",      "--split=dynamic", "--checkpoint-every=5c",
                                  dynamic[_i].model, "--full-every=3",  NULL };
    const char *const second[] = { "--checkpoint",      checkpoints,
                                   "--resume",          "--epochs=2",
                                   "--split=dynamic",   dynamic[_i].model,
                                   dynamic[_i].workers, NULL };

    write_rows(N_BLOCKS_ROWS);
    run_ok(dynamic[_i].place, dynamic[_i].program, "whole", "", first);
    ck_assert_int_eq(rows_done(), 2 * N_BLOCKS_ROWS);
    drop_to(dynamic[_i].percent);
    const int64_t n_done = rows_done();
    ck_assert_int_gt(n_done, 0);
    ck_assert_int_lt(n_done, 2 * N_BLOCKS_ROWS);
    run_ok(dynamic[_i].resumed_place, dynamic[_i].program, "resumed", " of the 12000 rows of the",
           second);
    ck_assert_int_eq(rows_done(), 2 * N_BLOCKS_ROWS);
}
END_TEST

/* It gets the rows in the same order. */
START_TEST(one_worker_of_a_dynamic_split_ends_with_the_same_bits)
{
    const char *const first[] = { "--checkpoint",    checkpoints,
                                  "--keep=0",        "--checkpoint-every=9c",
                                  "--split=dynamic", "--epochs=2",
                                  "--workers=1",     NULL };
    const char *const second[] = { "--checkpoint", checkpoints,   "--resume", "--split=dynamic",
                                   "--epochs=2",   "--workers=1", NULL };

    write_rows(N_BLOCKS_ROWS);
    run_ok(PLACE_ONE_PROCESS, "rubato-lr", "whole", "", first);
    drop_to(40);
    run_ok(PLACE_ONE_PROCESS, "rubato-lr", "resumed", " of the 12000 rows of the", second);
    expect_same("whole", "resumed");
}
END_TEST

/* Starts rubato-lr, slow, without --save; sends the signal when it has done an epoch, and perhaps
 * taken a snapshot. Returns how it ended. */
static int run_and_signal(int signal_number, bool takes, const char *const *more)
{
    const char *argv[20] = {
        TEST_BIN_DIR "/rubato-lr", "--epochs=4",  "--train",         rows, "--rule=adam",
        "--batch-size=200",        "--workers=4", "--straggler=1:30"
    };
    size_t n = 8;
    char line[1024] = "";
    int err, status;
    GPid pid;

    for (; *more != NULL; more++)
        argv[n++] = *more;
    ck_assert(g_spawn_async_with_pipes(NULL, (char **)(uintptr_t)argv, NULL,
                                       G_SPAWN_DO_NOT_REAP_CHILD | G_SPAWN_STDOUT_TO_DEV_NULL, NULL,
                                       NULL, &pid, NULL, NULL, &err, NULL));
    FILE *const said = fdopen(err, "r");
    while (strstr(line, "epoch 1/") == NULL)
        ck_assert_ptr_nonnull(fgets(line, sizeof line, said));
    if (takes)
        take_from_outside();
    if (takes) /* nobody else may write there */
        expect_refusal(1, "/.writer: this directory has a writer already: process ",
                       (const char *const[]){ "--checkpoint", checkpoints, "--resume", NULL });
    ck_assert_int_eq(kill(pid, signal_number), 0);
    while (fgets(line, sizeof line, said) != NULL)
        continue;
    fclose(said);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return status;
}

/* Whether a run has saved its model under that name. */
static bool has_saved(const char *model)
{
    g_autofree char *path = g_build_filename(folder, model, "model.json", NULL);

    return g_file_test(path, G_FILE_TEST_EXISTS);
}

static const struct {
    int signal_number;
    const char *every;
    bool takes; /* one from outside */
    bool saves; /* its model, too */
    const char *text;
} signals[] = { { SIGTERM, "4", false, false, " epochs are done" },
                { SIGTERM, "4", false, true, " epochs are done" },
                { SIGKILL, "1c", false, false, "steps of the next one" },
                { SIGKILL, "4", true, false, " epochs are done" } };

/* SIGTERM ends training with a snapshot, whatever --checkpoint-every says, also where the model is
 * to be saved. */
START_TEST(run_that_a_signal_ended_goes_on_with_the_same_bits)
{
    const int signal_number = signals[_i].signal_number;
    g_autofree char *others = g_build_filename(folder, "others", NULL);
    g_autofree char *stopped = g_build_filename(folder, "stopped", NULL);
    const char *const save = signals[_i].saves ? "--save" : NULL;
    const char *const first[] = {
        "--checkpoint", checkpoints, "--checkpoint-every", signals[_i].every, save, stopped, NULL
    };
    const char *const second[] = { "--checkpoint", checkpoints, "--resume", NULL };
    const int status = run_and_signal(signal_number, signals[_i].takes, first);

    ck_assert(has_saved("stopped") == signals[_i].saves);
    if (signal_number == SIGTERM)
        ck_assert_int_eq(WEXITSTATUS(status), 128 + SIGTERM);
    else
        ck_assert_int_eq(WTERMSIG(status), signal_number);
    run_ok(PLACE_ONE_PROCESS, "rubato-lr", "resumed", signals[_i].text, second);
    run_ok(PLACE_ONE_PROCESS, "rubato-lr", "whole", "",
           (const char *const[]){ "--checkpoint", others, NULL });
    expect_same("whole", "resumed");
}
END_TEST

/* The snapshot is taken between two epochs then. */
START_TEST(epochs_of_one_step_end_with_a_snapshot_at_a_signal)
{
    const char *const flags[] = {
        "--checkpoint",         checkpoints, "--checkpoint-every", "1000000s", "--epochs=1000000",
        "--batch-size=1000000", NULL
    };
    const char *const argv[] = { TEST_BIN_DIR "/rubato", "checkpoint", "list", checkpoints, NULL };
    g_autofree char *out = NULL, *err = NULL;
    int status = run_and_signal(SIGTERM, false, flags);

    ck_assert_int_eq(WEXITSTATUS(status), 128 + SIGTERM);
    ck_assert(g_spawn_sync(NULL, (char **)(uintptr_t)argv, NULL, G_SPAWN_DEFAULT, NULL, NULL, &out,
                           &err, &status, NULL));
    ck_assert_msg(status == 0 && *out != '\0', "%s%s", out, err);
}
END_TEST

/* Programs that take snapshots between epochs alone end with the present one. The line is in the
 * pipe when the first is over; so the signal comes in a later one. */
START_TEST(signal_ends_programs_without_steps_with_a_snapshot)
{
    g_autofree char *save = g_build_filename(folder, "stopped", NULL);
    const bool saves = _i == 1;
    const char *const argv[] = { TEST_BIN_DIR "/rubato-gbdt",
                                 "--train",
                                 rows,
                                 "--epochs=1000000",
                                 "--checkpoint",
                                 checkpoints,
                                 "--checkpoint-every=1000000",
                                 saves ? "--save" : NULL,
                                 save,
                                 NULL };
    char line[1024] = "";
    int err, status;
    GPid pid;

    ck_assert(g_spawn_async_with_pipes(NULL, (char **)(uintptr_t)argv, NULL,
                                       G_SPAWN_DO_NOT_REAP_CHILD | G_SPAWN_STDOUT_TO_DEV_NULL, NULL,
                                       NULL, &pid, NULL, NULL, &err, NULL));
    FILE *const said = fdopen(err, "r");
    while (strstr(line, "epoch 1/") == NULL)
        ck_assert_ptr_nonnull(fgets(line, sizeof line, said));
    ck_assert_int_eq(kill(pid, SIGTERM), 0);
    while (fgets(line, sizeof line, said) != NULL)
        continue;
    fclose(said);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(WEXITSTATUS(status), 128 + SIGTERM);
    expect_list(1, 1);
    ck_assert(has_saved("stopped") == saves);
}
END_TEST

static const struct {
    int signal_number;
    const char *every, *model;
} dynamic_signals[] = { { SIGTERM, "4", "--model=bsp" },
                        { SIGKILL, "3c", "--model=bsp" },
                        { SIGKILL, "0.05s", "--model=asp" } };

START_TEST(dynamic_split_that_a_signal_ended_goes_on_with_the_other_rows)
{
    const char *const first[] = {
        "--checkpoint",    checkpoints,       "--checkpoint-every",      dynamic_signals[_i].every,
        "--split=dynamic", "--straggler=1:8", dynamic_signals[_i].model, NULL
    };
    const char *const second[] = { "--checkpoint",
                                   checkpoints,
                                   "--resume",
                                   "--split=dynamic",
                                   "--workers=3",
                                   dynamic_signals[_i].model,
                                   NULL };
    int status;

    write_rows(N_BLOCKS_ROWS);
    status = run_and_signal(dynamic_signals[_i].signal_number, false, first);
    if (dynamic_signals[_i].signal_number == SIGTERM)
        ck_assert_int_eq(WEXITSTATUS(status), 128 + SIGTERM);
    else
        ck_assert_int_eq(WTERMSIG(status), SIGKILL);
    ck_assert_int_gt(rows_done(), 0);
    ck_assert_int_lt(rows_done(), N_EPOCHS * N_BLOCKS_ROWS);
    run_ok(PLACE_ONE_PROCESS, "rubato-lr", "resumed", "going on from snapshot", second);
    ck_assert_int_eq(rows_done(), N_EPOCHS * N_BLOCKS_ROWS);
}
END_TEST

START_TEST(dynamic_and_fixed_splits_do_not_go_on_from_each_other)
{
    const char *const dynamic_run[] = { "--checkpoint", checkpoints, "--checkpoint-every=2c",
                                        "--split=dynamic", NULL };
    const char *const fixed_run[] = { "--checkpoint", checkpoints, "--checkpoint-every=2c", NULL };

    write_rows(N_BLOCKS_ROWS);
    run_ok(PLACE_ONE_PROCESS, "rubato-lr", "whole", "", dynamic_run);
    drop_to(50);
    expect_refusal(1, "the middle of an epoch with --split dynamic: go on with the same",
                   (const char *const[]){ "--checkpoint", checkpoints, "--resume", NULL });
    remove_tree(checkpoints);
    run_ok(PLACE_ONE_PROCESS, "rubato-lr", "whole", "", fixed_run);
    drop_to(50);
    expect_refusal(
        1, "--resume with --split dynamic goes on from such a run alone",
        (const char *const[]){ "--checkpoint", checkpoints, "--resume", "--split=dynamic", NULL });
}
END_TEST

/* Which rows a worker had, its number and the size of its batches decide. */
START_TEST(middle_of_an_epoch_needs_the_same_workers_and_batches)
{
    const char *const first[] = { "--checkpoint", checkpoints, "--checkpoint-every=2c", NULL };
    const char *const other[] = { "--checkpoint", checkpoints, "--resume", "--batch-size=32",
                                  NULL };
    g_auto(Outcome) outcome = { 0 };

    run_ok(PLACE_ONE_PROCESS, "rubato-lr", "whole", "", first);
    drop_to(50);
    outcome = run(PLACE_ONE_PROCESS, "rubato-lr", "none", other);
    ck_assert_int_eq(outcome.status, 1);
    ck_assert_msg(strstr(outcome.err, "is of the middle of an epoch, with 4 workers, --batch-size "
                                      "200 and --split fixed: go on with the same") != NULL,
                  "%s", outcome.err);
}
END_TEST

/* Here the order of the rows is the same, too. Readers of files have another seed in each epoch of
 * a run with snapshots. */
START_TEST(softmax_learns_the_same_without_snapshots)
{
    const char *const with[] = { "--checkpoint", checkpoints, NULL }, *const without[] = { NULL };

    run_ok(PLACE_ONE_PROCESS, "rubato-softmax", "with", "", with);
    run_ok(PLACE_ONE_PROCESS, "rubato-softmax", "without", "", without);
    expect_same("with", "without");
}
END_TEST

START_TEST(damaged_snapshot_is_passed_over)
{
    const char *const first[] = { "--checkpoint", checkpoints, NULL };
    const char *const second[] = { "--checkpoint", checkpoints, "--resume", NULL };
    g_autofree char *newest = snapshot_folder_whole(checkpoints, 4);
    g_autofree char *part = snapshot_folder_part(newest, 1, 0);

    run_ok(PLACE_ONE_PROCESS, "rubato-lr", "whole", "", first);
    ck_assert(g_file_set_contents(part, "nonsense", -1, NULL));
    run_ok(PLACE_ONE_PROCESS, "rubato-lr", "resumed", "going on from snapshot 3", second);
    expect_same("whole", "resumed");
}
END_TEST

static const struct {
    const char *flag;
    RubatoPacking packing;
} packings[] = { { "--checkpoint-packing=zstd", RUBATO_PACKING_ZSTD },
                 { "--checkpoint-packing=bf16", RUBATO_PACKING_BF16 },
                 { "--checkpoint-packing=8bit", RUBATO_PACKING_8BIT } };

/* Rounded rows are others, but a run goes on from them; without a loss its bits are the same. */
START_TEST(snapshots_are_packed_as_the_flag_says)
{
    const char *const first[] = { "--checkpoint", checkpoints, packings[_i].flag, NULL };
    const char *const second[] = { "--checkpoint", checkpoints, "--resume", NULL };

    run_ok(PLACE_ONE_PROCESS, "rubato-lr", "whole", "", first);
    drop(4);
    g_autoptr(RubatoSnapshot) snapshot = rubato_snapshot_open(checkpoints, 3, NULL);
    ck_assert_ptr_nonnull(snapshot);
    ck_assert_int_eq(rubato_snapshot_packing(snapshot), packings[_i].packing);
    run_ok(PLACE_ONE_PROCESS, "rubato-lr", "resumed", "going on from snapshot 3", second);
    if (packings[_i].packing == RUBATO_PACKING_ZSTD)
        expect_same("whole", "resumed");
}
END_TEST

START_TEST(resumed_run_that_is_over_trains_no_more)
{
    const char *const begins[] = { "--checkpoint", checkpoints, "--resume", "--checkpoint-every=3",
                                   NULL };

    run_ok(PLACE_ONE_PROCESS, "rubato-lr", "whole", "so training begins", begins);
    expect_list(2, 2); /* after epochs 3 and 4 */
    run_ok(PLACE_ONE_PROCESS, "rubato-lr", "again", "4 of 4 epochs are done", begins);
    expect_same("whole", "again");
    expect_list(2, 2);
}
END_TEST

START_TEST(epoch_that_was_stopped_has_no_snapshot)
{
    const char *const arguments[] = { "--checkpoint", checkpoints, "--time-limit=0.05",
                                      "--straggler=1:20", NULL };
    g_autofree uint64_t *numbers = NULL;
    size_t n;

    run_ok(PLACE_ONE_PROCESS, "rubato-lr", "stopped", "", arguments);
    ck_assert(rubato_snapshot_list(checkpoints, &numbers, &n, NULL));
    ck_assert_uint_eq(n, 0);
}
END_TEST

/* A folder has the last number that there is, so no snapshot can get one. Training goes on, and the
 * model is saved; that snapshots are missing the exit status says. */
START_TEST(snapshots_that_fail_end_no_training)
{
    const Place place = _i == 1 ? PLACE_TWO_NODES : PLACE_ONE_PROCESS;
    const bool has_steps = _i == 2;
    const char *const arguments[] = { "--checkpoint", checkpoints, "--checkpoint-every",
                                      has_steps ? "1c" : "1", NULL };
    g_autofree char *taken = snapshot_folder_whole(checkpoints, UINT64_MAX - 1);

    run_ok(place, "rubato-lr", "whole", "", arguments);
    remove_tree(checkpoints);
    ck_assert_int_eq(g_mkdir_with_parents(taken, 0777), 0);
    g_auto(Outcome) outcome = run(place, "rubato-lr", "without", arguments);
    ck_assert_msg(outcome.status == 1, "%s", outcome.err);
    for (unsigned epoch = 1; epoch <= 4; epoch++) {
        g_autofree char *line = g_strdup_printf(
            "rubato-lr: no snapshot %s epoch %u: ", has_steps ? "in the middle of" : "of", epoch);

        ck_assert_msg(strstr(outcome.err, line) != NULL, "%s", outcome.err);
    }
    expect_same("whole", "without");
}
END_TEST

/* As on a full disk: a limit of the shell that started the run ends no training. */
START_TEST(limit_of_file_sizes_ends_no_training)
{
    const char *const argv[] = {
        "/bin/sh",
        "-c",
        "ulimit -f 0; exec \"$0\" --epochs=2 --train \"$1\" --batch-size=200 --checkpoint \"$2\" "
        "--checkpoint-every \"$3\"",
        TEST_BIN_DIR "/rubato-lr",
        rows,
        checkpoints,
        _i == 0 ? "1" : "2c",
        NULL
    };
    g_autofree char *out = NULL, *err = NULL;
    int status;

    ck_assert(g_spawn_sync(NULL, (char **)(uintptr_t)argv, NULL, G_SPAWN_DEFAULT, NULL, NULL, &out,
                           &err, &status, NULL));
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 1, "%d: %s", status, err);
    ck_assert_msg(strstr(err, "rubato-lr: no snapshot of epoch 2: ") != NULL &&
                      strstr(err, "File too large") != NULL &&
                      strstr(err, "the last snapshot has failed, so the exit status is 1") != NULL,
                  "%s", err);
    /* Also of the last one in an epoch, for which the end of its task waits. */
    ck_assert_msg(_i == 0 || strstr(err, "no snapshot in the middle of epoch 2: ") != NULL, "%s",
                  err);
    ck_assert_msg(strstr(err, "rubato-lr: node ") == NULL, "%s", err);
}
END_TEST

#define ARGUMENTS(...) ((const char *const[]){ __VA_ARGS__, NULL })

START_TEST(calls_that_make_no_sense_are_refused)
{
    expect_refusal(2, "--resume: needs --checkpoint", ARGUMENTS("--resume"));
    expect_refusal(2, "--keep: needs --checkpoint", ARGUMENTS("--keep=2"));
    expect_refusal(2, "--checkpoint-packing: expected one of none, zstd, bf16, 8bit",
                   ARGUMENTS("--checkpoint", checkpoints, "--checkpoint-packing=i8"));
    expect_refusal(2, "--checkpoint-every: expected",
                   ARGUMENTS("--checkpoint", checkpoints, "--checkpoint-every=0"));
    expect_refusal(2, "--checkpoint-every: expected",
                   ARGUMENTS("--checkpoint", checkpoints, "--checkpoint-every=5m"));
    expect_refusal(2, "--checkpoint-every: expected",
                   ARGUMENTS("--checkpoint", checkpoints, "--checkpoint-every=1.5c"));
    expect_refusal(2, "--resume and --load",
                   ARGUMENTS("--checkpoint", checkpoints, "--resume", "--load", "x"));
    expect_refusal(2, "--checkpoint and --validate",
                   ARGUMENTS("--checkpoint", checkpoints, "--validate", rows));
    expect_refusal(1, "s3://", ARGUMENTS("--checkpoint=s3://")); /* it is no directory "s3:" */
    run_ok(PLACE_ONE_PROCESS, "rubato-lr", "whole", "", ARGUMENTS("--checkpoint", checkpoints));
    expect_refusal(1, "go on from them with --resume", ARGUMENTS("--checkpoint", checkpoints));
    /* Another rule keeps other state. */
    expect_refusal(1, "do not fit",
                   ARGUMENTS("--checkpoint", checkpoints, "--resume", "--rule=ftrl"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("programs with snapshots");
    TCase *cases = tcase_create("checkpoints"), *splits = tcase_create("dynamic splits");

    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_loop_test(cases, resumed_run_ends_with_the_same_bits, 0, G_N_ELEMENTS(runs));
    tcase_add_loop_test(cases, resumed_trees_centers_and_factors_have_the_same_bits, 0,
                        G_N_ELEMENTS(between_epochs));
    tcase_add_loop_test(cases, run_resumed_in_the_middle_of_an_epoch_ends_with_the_same_bits, 0,
                        G_N_ELEMENTS(middles));
    tcase_add_loop_test(cases, run_whose_slowest_worker_has_done_no_step_leaves_out_no_row, 0,
                        G_N_ELEMENTS(clocked));
    tcase_add_loop_test(cases, run_resumed_twice_in_an_epoch_ends_with_the_same_bits, 0,
                        G_N_ELEMENTS(resumed_twice));
    tcase_add_loop_test(cases, run_that_a_signal_ended_goes_on_with_the_same_bits, 0,
                        G_N_ELEMENTS(signals));
    tcase_add_loop_test(cases, signal_ends_programs_without_steps_with_a_snapshot, 0, 2);
    tcase_add_test(cases, epochs_of_one_step_end_with_a_snapshot_at_a_signal);
    tcase_add_test(cases, middle_of_an_epoch_needs_the_same_workers_and_batches);
    tcase_add_test(cases, softmax_learns_the_same_without_snapshots);
    tcase_add_test(cases, damaged_snapshot_is_passed_over);
    tcase_add_loop_test(cases, snapshots_are_packed_as_the_flag_says, 0, G_N_ELEMENTS(packings));
    tcase_add_test(cases, resumed_run_that_is_over_trains_no_more);
    tcase_add_test(cases, epoch_that_was_stopped_has_no_snapshot);
    tcase_add_loop_test(cases, snapshots_that_fail_end_no_training, 0, 3);
    tcase_add_loop_test(cases, limit_of_file_sizes_ends_no_training, 0, 2);
    tcase_add_test(cases, calls_that_make_no_sense_are_refused);
    suite_add_tcase(suite, cases);
    tcase_set_timeout(splits, 60);
    tcase_add_checked_fixture(splits, set_up, tear_down);
    tcase_add_loop_test(splits,
                        run_resumed_in_the_middle_of_a_dynamic_split_trains_on_the_other_rows, 0,
                        G_N_ELEMENTS(dynamic));
    tcase_add_test(splits, one_worker_of_a_dynamic_split_ends_with_the_same_bits);
    tcase_add_loop_test(splits, dynamic_split_that_a_signal_ended_goes_on_with_the_other_rows, 0,
                        G_N_ELEMENTS(dynamic_signals));
    tcase_add_test(splits, dynamic_and_fixed_splits_do_not_go_on_from_each_other);
    suite_add_tcase(suite, splits);
    return run_suite(suite);
}
