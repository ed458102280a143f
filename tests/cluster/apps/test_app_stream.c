/* Programs with --stream: who follows has the model that --save leaves, and whole models before.
 *
 * No case waits for a time: a program's training ends with a version. */
#include <check.h>
#include <rubato/rubato.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "test_paths.h"
#include "tests/support/cluster/program_run.h"
#include "tests/support/data/image_files.h"
#include "tests/support/runner.h"
#include "tests/support/store/small_snapshot.h"

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Outcome, outcome_clear)

enum { N_ROWS = 400 };

static char *folder, *rows, *model, *uri;

static void set_up(void)
{
    g_autoptr(GString) text = g_string_new(NULL);

    for (unsigned i = 0; i < N_ROWS; i++)
        g_string_append_printf(text, "%d %u:1 %u:0.5\n", i % 3 == 0 ? 1 : -1, i % 20, 20 + i % 30);
    folder = make_folder();
    rows = write_text(folder, "rows.svm", text->str);
    write_image_files(folder, 100, 20);
    model = g_build_filename(folder, "model", NULL);
    uri = g_strdup_printf("file:%s/stream", folder);
}

static void tear_down(void)
{
    remove_tree(folder);
    g_free(uri);
    g_free(model);
    g_free(rows);
    g_free(folder);
}

typedef struct {
    const char *program; /* its name, and perhaps a flag */
    Place place;
    const char *every;
    const char *table;
} Case;

static Outcome run(const Case *it)
{
    g_auto(GStrv) words = g_strsplit(it->program, " ", 2);
    g_autofree char *images = g_build_filename(folder, "train-images-idx3-ubyte", NULL);
    const bool is_softmax = strcmp(words[0], "rubato-softmax") == 0;
    const bool is_mlp = strcmp(words[0], "rubato-mlp") == 0;
    const char *const arguments[] = { is_softmax ? "--data" : "--train",
                                      is_softmax ? folder
                                      : is_mlp   ? images
                                                 : rows,
                                      "--epochs=2",
                                      "--save",
                                      model,
                                      "--stream",
                                      uri,
                                      "--stream-every",
                                      it->every,
                                      words[1],
                                      NULL };

    return run_program(it->place, words[0], arguments);
}

/* The bytes of an array of the saved model; NULL: there is none. (transfer full) */
static char *read_saved(const char *table, const char *ending, gsize *n)
{
    g_autofree char *name = g_strconcat(table, ending, NULL);
    g_autofree char *path = g_build_filename(model, name, NULL);
    g_autofree char *bytes = NULL;
    gsize n_file;

    if (!g_file_get_contents(path, &bytes, &n_file, NULL))
        return NULL;
    const gsize head = 10 + (guchar)bytes[8] + 256u * (guchar)bytes[9];
    ck_assert_uint_gt(n_file, head);
    *n = n_file - head;
    return g_memdup2(bytes + head, *n);
}

/* The keys of a table of the saved model, n in all. (transfer full) */
static RubatoKey *list_keys(const char *table, const RubatoFollowedTable *shape, gsize *n)
{
    RubatoKey *keys;

    if (!shape->holds_range) {
        keys = (RubatoKey *)(gpointer)read_saved(table, ".keys.npy", n);
        ck_assert_ptr_nonnull(keys);
        *n /= sizeof *keys;
        return keys;
    }
    keys = g_new(RubatoKey, shape->n_keys);
    for (uint64_t i = 0; i < shape->n_keys; i++)
        keys[i] = shape->first_key + i;
    *n = shape->n_keys;
    return keys;
}

static void expect_saved(RubatoFollower *follower, const char *table)
{
    RubatoFollowedTable shape;
    gsize n, n_bytes = 0;

    ck_assert(rubato_follower_table(follower, table, &shape, NULL));
    g_autofree RubatoKey *keys = list_keys(table, &shape, &n);
    g_autofree char *saved = read_saved(table, ".npy", &n_bytes);
    g_autofree char *values = g_malloc0(n_bytes);
    ck_assert_uint_eq(n, shape.n_rows);
    ck_assert_uint_eq(n_bytes, n * shape.width * rubato_dtype_size(shape.dtype));
    ck_assert(rubato_follower_get(follower, table, keys, n, values, NULL, NULL, NULL));
    ck_assert_mem_eq(saved, values, n_bytes);
}

static const Case cases[] = {
    { "rubato-lr", PLACE_ONE_PROCESS, "1c", "weights" },
    { "rubato-lr", PLACE_TWO_NODES, ".001s", "weights" },
    { "rubato-lr --validate=.2", PLACE_ONE_PROCESS, "100s", "weights" },
    { "rubato-softmax", PLACE_ONE_PROCESS, "2c", "weights" },
    { "rubato-softmax --by=allreduce", PLACE_ONE_PROCESS, ".001s", "weights" },
    { "rubato-mlp --by=allreduce", PLACE_TWO_NODES, ".001s", "layer-1" },
};

START_TEST(followed_model_is_the_saved_one)
{
    const Case *const it = &cases[_i];
    g_auto(Outcome) outcome = run(it);
    g_autoptr(GError) error = NULL;
    g_autoptr(RubatoFollower) follower =
        rubato_follower_new(&(RubatoFollowerSpec){ .uri = uri }, &error);
    RubatoFollowed followed;

    ck_assert_msg(outcome.status == 0, "%s", outcome.err);
    ck_assert_ptr_nonnull(follower);
    ck_assert_msg(rubato_follower_advance(follower, 0, &followed, &error), "%s",
                  error != NULL ? error->message : "");
    ck_assert_int_eq(followed, RUBATO_FOLLOWED_ANEW);
    expect_saved(follower, it->table);
}
END_TEST

/* A version for each epoch, when training is a task for each. */
START_TEST(each_epoch_of_a_run_with_snapshots_ends_with_a_version)
{
    g_autofree char *checkpoint = g_strdup_printf("--checkpoint=%s/snapshots", folder);
    g_autofree char *program = g_strdup_printf("rubato-lr %s", checkpoint);
    g_auto(Outcome) outcome = run(&(Case){ program, PLACE_ONE_PROCESS, "100s", NULL });
    g_autofree uint64_t *numbers = NULL;
    size_t n;

    ck_assert_msg(outcome.status == 0, "%s", outcome.err);
    ck_assert(rubato_snapshot_list(uri + strlen("file:"), &numbers, &n, NULL));
    ck_assert_uint_eq(n, 2);
}
END_TEST

/* Starts rubato-lr, slow, and kills it when a follower has its third version: in the middle of
 * whatever it does. */
static void train_and_kill(RubatoFollower *follower)
{
    const char *const argv[] = { TEST_BIN_DIR "/rubato-lr",
                                 "--train",
                                 rows,
                                 "--epochs=1000",
                                 "--straggler=1:2",
                                 "--stream",
                                 uri,
                                 "--stream-every=.001s",
                                 NULL };
    RubatoFollowed followed;
    int status;
    GPid pid;

    ck_assert(g_spawn_async(NULL, (char **)(uintptr_t)argv, NULL,
                            G_SPAWN_DO_NOT_REAP_CHILD | G_SPAWN_STDERR_TO_DEV_NULL, NULL, NULL,
                            &pid, NULL));
    while (rubato_follower_version(follower, NULL) < 3)
        ck_assert(rubato_follower_advance(follower, 20, &followed, NULL));
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFSIGNALED(status));
}

/* It needs nothing but the directory: the next run goes on behind the last whole version, and the
 * follower with it. */
START_TEST(follower_goes_on_when_the_program_was_killed)
{
    g_autoptr(RubatoFollower) follower =
        rubato_follower_new(&(RubatoFollowerSpec){ .uri = uri }, NULL);
    RubatoFollowed followed = RUBATO_FOLLOWED_NEXT;

    train_and_kill(follower);
    const uint64_t before = rubato_follower_version(follower, NULL);
    g_auto(Outcome) outcome = run(&cases[0]);
    ck_assert_msg(outcome.status == 0, "%s", outcome.err);
    while (followed != RUBATO_FOLLOWED_NOTHING)
        ck_assert(rubato_follower_advance(follower, 0, &followed, NULL));
    ck_assert_uint_gt(rubato_follower_version(follower, NULL), before);
    expect_saved(follower, "weights");
}
END_TEST

static const struct {
    const char *arguments[4], *message;
} refused[] = {
    { { "--stream", "nowhere:x" }, "--stream: a stream to \"nowhere:x\"" },
    { { "--stream=file:" }, "--stream: a stream to \"file:\"" },
    { { "--stream=file:s", "--stream-every=5" }, "--stream-every: expected seconds" },
    { { "--stream=file:s", "--stream-every=1.5c" }, "--stream-every: expected seconds" },
    { { "--stream=file:s", "--stream-every=0s" }, "--stream-every: expected seconds" },
    { { "--stream=file:s", "--stream-every=nans" }, "--stream-every: expected seconds" },
};

START_TEST(wrong_flags_are_refused_before_anything_is_read)
{
    const char *arguments[8] = { "--train=not-there" };

    for (size_t i = 0; refused[_i].arguments[i] != NULL; i++)
        arguments[i + 1] = refused[_i].arguments[i];
    g_auto(Outcome) outcome = run_program(PLACE_ONE_PROCESS, "rubato-lr", arguments);
    ck_assert_int_eq(outcome.status, 2);
    ck_assert_msg(strstr(outcome.err, refused[_i].message) != NULL, "%s", outcome.err);
}
END_TEST

START_TEST(versions_are_packed_as_the_flag_says)
{
    static const Case it = { "rubato-lr --stream-packing=8bit", PLACE_ONE_PROCESS, "1s",
                             "weights" };
    g_autofree char *stream = g_build_filename(folder, "stream", NULL);
    g_auto(Outcome) outcome = run(&it);
    g_autoptr(RubatoSnapshot) version = NULL;

    ck_assert_msg(outcome.status == 0, "%s", outcome.err);
    version = rubato_snapshot_open(stream, 0, NULL);
    ck_assert_ptr_nonnull(version);
    ck_assert_int_eq(rubato_snapshot_packing(version), RUBATO_PACKING_8BIT);
}
END_TEST

/* A folder has the last number that there is, so no version can get one. */
START_TEST(run_whose_stream_lacks_the_last_version_says_so_by_its_status)
{
    const Case it = { "rubato-lr", _i == 0 ? PLACE_ONE_PROCESS : PLACE_TWO_NODES, "1s", "weights" };
    g_autofree char *stream = g_build_filename(folder, "stream", NULL);
    g_autofree char *taken = snapshot_folder_whole(stream, UINT64_MAX - 1);
    g_autofree char *saved = g_build_filename(model, "model.json", NULL);

    ck_assert_int_eq(g_mkdir_with_parents(taken, 0777), 0);
    g_auto(Outcome) outcome = run(&it);
    ck_assert_msg(outcome.status == 1, "%d: %s", outcome.status, outcome.err);
    ck_assert_msg(strstr(outcome.err, "without the last version of its stream") != NULL, "%s",
                  outcome.err);
    ck_assert(g_file_test(saved, G_FILE_TEST_EXISTS));
}
END_TEST

/* Its snapshots would be versions, and go with them. */
START_TEST(snapshots_and_stream_need_a_directory_each)
{
    g_autofree char *directory = g_build_filename(folder, "stream", NULL);
    const char *const arguments[] = { "--train", rows, "--checkpoint", directory, "--stream",
                                      uri,       NULL };
    g_auto(Outcome) outcome = run_program(PLACE_ONE_PROCESS, "rubato-lr", arguments);

    ck_assert_int_eq(outcome.status, 1);
    ck_assert_msg(strstr(outcome.err, "which takes snapshots there; that is this process, and "
                                      "snapshots and streams need a directory each") != NULL,
                  "%s", outcome.err);
}
END_TEST

static Suite *app_stream_suite(void)
{
    Suite *suite = suite_create("programs that stream");
    TCase *streams = tcase_create("streams");

    tcase_add_checked_fixture(streams, set_up, tear_down);
    tcase_add_loop_test(streams, followed_model_is_the_saved_one, 0, G_N_ELEMENTS(cases));
    tcase_add_test(streams, each_epoch_of_a_run_with_snapshots_ends_with_a_version);
    tcase_add_test(streams, follower_goes_on_when_the_program_was_killed);
    tcase_add_loop_test(streams, wrong_flags_are_refused_before_anything_is_read, 0,
                        G_N_ELEMENTS(refused));
    tcase_add_test(streams, versions_are_packed_as_the_flag_says);
    tcase_add_loop_test(streams, run_whose_stream_lacks_the_last_version_says_so_by_its_status, 0,
                        2);
    tcase_add_test(streams, snapshots_and_stream_need_a_directory_each);
    suite_add_tcase(suite, streams);
    return suite;
}

int main(void)
{
    return run_suite(app_stream_suite());
}
