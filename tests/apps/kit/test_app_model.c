/* Saved models: --save, --load and --predict. */
#include <glib/gstdio.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "apps/kit/model/app_model.h"
#include "tests/support/cluster/program_run.h"
#include "tests/support/runner.h"

static char *scratch; /* a folder for the case's files */

static void make_scratch(void)
{
    scratch = make_folder();
    g_unsetenv("RUBATO_CLUSTER");
}

static void remove_scratch(void)
{
    remove_folder(scratch);
    g_free(scratch);
}

static char *in_scratch(const char *name)
{
    return g_build_filename(scratch, name, NULL);
}

static guint count_entries(const char *path)
{
    g_autoptr(GDir) dir = g_dir_open(path, 0, NULL);
    guint n = 0;

    while (dir != NULL && g_dir_read_name(dir) != NULL)
        n++;
    return n;
}

static void expect_error(GError *error, RubatoError code, const char *text)
{
    ck_assert_ptr_nonnull(error);
    ck_assert_msg(g_error_matches(error, RUBATO_ERROR, (gint)code), "%s", error->message);
    ck_assert_msg(strstr(error->message, text) != NULL, "\"%s\" lacks \"%s\"", error->message,
                  text);
}

/* ---- models ---- */

enum { N_DENSE = 3000, N_HASH = 50000, WIDTH = 3 };

static const AppProgram program = {
    .name = "rubato-test",
    .summary = "Tests.",
    .epochs = 1,
    .batch_size = 1,
    .learning_rate = 1,
};

static bool predict(const char *path, FILE *output, void *user_data, GError **error)
{
    fprintf(output, "%s\n", path);
    if (user_data == NULL)
        return true;
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT, "no rows");
    return false;
}

static const AppArray arrays[] = {
    { .name = "dense",
      .spec = { .name = "d",
                .dtype = RUBATO_I64,
                .width = 1,
                .first_key = 70,
                .n_keys = N_DENSE } },
    { .name = "hash",
      .spec = { .name = "h", .dtype = RUBATO_F32, .width = WIDTH, .init_value = 0.5 } },
};

typedef struct {
    App app;
    double label;
    AppNumber numbers[2];
    AppSetting settings[2];
    AppModel model;
} Run;

/* (transfer full) */
static Run *run_new(const char *flag, const char *value, const char *more)
{
    Run *run = g_new0(Run, 1);
    char *argv[] = { (char *)"rubato-test", (char *)"--servers=3", (char *)flag,
                     (char *)value,         (char *)more,          NULL };

    run->numbers[0] = (AppNumber){ "label", &run->label };
    run->settings[0] = (AppSetting){ "factors", "16" };
    run->model = (AppModel){ .arrays = arrays,
                             .n_arrays = G_N_ELEMENTS(arrays),
                             .settings = run->settings,
                             .numbers = run->numbers,
                             .predict = predict };
    ck_assert(app_parse(&run->app, &program, more != NULL ? 5 : 4, argv));
    return run;
}

static bool run_begin(Run *run, GError **error)
{
    return app_start(&run->app, error) && app_create_model(&run->app, &run->model, error);
}

static void run_free(Run *run)
{
    app_end(&run->app, NULL);
    g_free(run);
}

static RubatoKey hash_key(uint64_t i)
{
    return i * UINT64_C(0x9e3779b97f4a7c15);
}

/* Makes a model and saves it. Returns its folder. */
static char *save_model(int64_t first)
{
    char *dir = in_scratch("model");
    Run *run = run_new("--save", dir, NULL);
    g_autofree int64_t *dense = g_new(int64_t, N_DENSE);
    g_autofree RubatoKey *keys = g_new(RubatoKey, N_HASH);
    g_autofree float *rows = g_new(float, N_HASH *WIDTH);
    g_autoptr(GError) error = NULL;

    run->label = 0.1;
    for (int i = 0; i < N_DENSE; i++)
        dense[i] = first - i;
    for (uint64_t i = 0; i < N_HASH; i++) {
        keys[i] = hash_key(i);
        for (uint64_t j = 0; j < WIDTH; j++)
            rows[i * WIDTH + j] = (float)(i * 10 + j);
    }
    ck_assert(run_begin(run, NULL));
    ck_assert(rubato_engine_add_range(run->app.engine, "d", 70, N_DENSE, dense, NULL));
    ck_assert(rubato_engine_add(run->app.engine, "h", keys, N_HASH, rows, NULL));
    ck_assert_msg(app_finish(&run->app, &run->model, &error), "%s",
                  error != NULL ? error->message : "");
    run_free(run);
    return dir;
}

static void check_model(Run *run, int64_t first)
{
    g_autofree int64_t *dense = g_new(int64_t, N_DENSE);
    g_autofree RubatoKey *keys = g_new(RubatoKey, N_HASH);
    g_autofree float *rows = g_new(float, N_HASH *WIDTH);
    g_autofree RubatoKey *listed = NULL;
    size_t n, n_wrong = 0;

    for (uint64_t i = 0; i < N_HASH; i++)
        keys[i] = hash_key(i);
    ck_assert(rubato_engine_get_range(run->app.engine, "d", 70, N_DENSE, dense, NULL));
    ck_assert(rubato_engine_get(run->app.engine, "h", keys, N_HASH, rows, NULL));
    ck_assert(rubato_engine_list_keys(run->app.engine, "h", &listed, &n, NULL));
    ck_assert_uint_eq(n, N_HASH);
    for (int i = 0; i < N_DENSE; i++)
        n_wrong += dense[i] != first - i;
    for (size_t i = 0; i < (size_t)N_HASH * WIDTH; i++)
        n_wrong += fabs((double)rows[i] - ((double)(i / WIDTH * 10 + i % WIDTH) + 0.5)) > 0;
    ck_assert_uint_eq(n_wrong, 0);
    ck_assert_double_eq(run->label, 0.1);
}

START_TEST(a_model_is_loaded_as_it_was_saved)
{
    g_autofree char *dir = save_model(INT64_MIN + N_DENSE);
    g_autoptr(GError) error = NULL;
    Run *run = run_new("--load", dir, NULL);

    ck_assert_uint_eq(count_entries(dir), 6);
    ck_assert_uint_eq(count_entries(scratch), 1); /* nothing beside it */
    ck_assert_msg(run_begin(run, &error), "%s", error != NULL ? error->message : "");
    check_model(run, INT64_MIN + N_DENSE);
    run_free(run);
}
END_TEST

START_TEST(a_model_takes_the_place_of_an_older_one)
{
    g_autofree char *dir = save_model(5);
    Run *run = run_new("--load", dir, NULL);

    g_free(save_model(6));
    ck_assert_uint_eq(count_entries(scratch), 1);
    ck_assert(run_begin(run, NULL));
    check_model(run, 6);
    run_free(run);
}
END_TEST

START_TEST(the_shape_of_a_saved_table_can_be_asked)
{
    g_autofree char *dir = save_model(5);
    Run *run = run_new("--load", dir, NULL);
    uint32_t width;
    uint64_t n_keys;
    g_autoptr(GError) error = NULL;

    ck_assert(app_start(&run->app, NULL));
    ck_assert(app_model_shape(&run->app, "dense", &width, &n_keys, NULL));
    ck_assert_uint_eq(width, 1);
    ck_assert_uint_eq(n_keys, N_DENSE);
    ck_assert(app_model_shape(&run->app, "hash", &width, &n_keys, NULL));
    ck_assert_uint_eq(width, WIDTH);
    ck_assert_uint_eq(n_keys, 0);
    ck_assert(!app_model_shape(&run->app, "other", &width, &n_keys, &error));
    expect_error(
        error, RUBATO_ERROR_FORMAT,
        "expected an array \"other\" in \"arrays\", found dense, hash; a model that another "
        "version saved with other arrays cannot be loaded: train and save it anew");
    run_free(run);
}
END_TEST

/* A description in which one text is replaced by another. */
static const struct {
    const char *that, *this, *message;
} bad_descriptions[] = {
    { "{", "", "expected an object of JSON" },
    { "rubato-model", "other", "expected the description of a saved model" },
    { "\"version\" : 2", "\"version\" : 3", "expected \"version\" 2" },
    { "\"version\" : 2", "\"version\" : 1", "it is not as it was saved: its checksum is" },
    { "\"version\" : 2", "\"version\" : 2, \"color\" : 3",
      "an unknown \"color\" in the description" },
    { "\"label\" : 0.1", "\"label\" : 0.2", "model.json: it is not as it was saved" },
    { "\"label\" : 0.1", "\"label\" : 0.1, \"bias\" : 1", "unknown \"bias\" in \"numbers\"" },
    { "\"16\"", "\"16\", \"depth\" : \"2\"", "unknown \"depth\" in \"settings\"" },
    { "\"width\" : 3", "\"width\" : 3, \"depth\" : 3", "unknown \"depth\" in an array" },
    { "\"keys_checksum\"", "\"keys_sum\"", "unknown \"keys_sum\" in an array" },
    { "rubato-test", "rubato-fm", "expected a model of rubato-test, found one of rubato-fm" },
    { "\"16\"", "\"8\"", "saved with factors 8, this run has 16" },
    { "\"16\"", "[]", "saved with factors unknown" },
    { "\"label\"", "\"lable\"", "expected a number \"label\"" },
    { "\"dense\",\n      \"dtype\"", "\"thick\",\n      \"dtype\"", "expected an array \"dense\"" },
    { "\"i64\"", "\"f64\"", "array dense: expected 3000 rows of 1 i64 from key 70 on; found" },
    { "\"first_key\" : 70", "\"first_key\" : 71", "of 1 i64 from key 71" },
    { "\"first_key\" : 70", "\"first\" : 71", "array dense: expected dtype, width, storage" },
    { "\"f32\"", "[\"f32\"]", "array hash: expected dtype, width, storage" },
    { "\"width\" : 3", "\"width\" : 4", "expected a hash table of f32, 3 a row; found a hash" },
    { "\"rows\" : 50000", "\"rows\" : 49999", "hash.npy: expected an array (49999, 3) of <f4" },
    { "\"rows\" : 50000", "\"rows\" : -1",
      "hash.npy: expected an array (18446744073709551615, 3)" },
};

START_TEST(a_description_that_is_wrong_is_refused)
{
    g_autofree char *dir = save_model(5);
    g_autofree char *path = g_build_filename(dir, "model.json", NULL);
    g_autofree char *text = NULL;
    g_autoptr(GError) error = NULL;

    ck_assert(g_file_get_contents(path, &text, NULL, NULL));
    g_autoptr(GString) changed = g_string_new(text);
    ck_assert_uint_gt(
        g_string_replace(changed, bad_descriptions[_i].that, bad_descriptions[_i].this, 1), 0);
    ck_assert(g_file_set_contents(path, changed->str, -1, NULL));
    Run *run = run_new("--load", dir, NULL);
    ck_assert(!run_begin(run, &error));
    expect_error(error, RUBATO_ERROR_FORMAT, bad_descriptions[_i].message);
    ck_assert(g_str_has_prefix(error->message, "--load: ") ||
              g_str_has_prefix(error->message, dir));
    ck_assert_double_eq(run->label, 0);
    run_free(run);
}
END_TEST

START_TEST(missing_files_are_named)
{
    static const char *const names[] = { "model.json", "dense.npy", "hash.keys.npy" };
    g_autofree char *dir = save_model(5);
    g_autofree char *path = g_build_filename(dir, names[_i], NULL);
    g_autoptr(GError) error = NULL;
    Run *run = run_new("--load", dir, NULL);

    ck_assert_int_eq(g_unlink(path), 0);
    ck_assert(!run_begin(run, &error));
    expect_error(error, RUBATO_ERROR_IO, path);
    run_free(run);
}
END_TEST

START_TEST(other_folders_are_left_alone)
{
    g_autofree char *dir = in_scratch("letters");
    g_autofree char *file = g_build_filename(dir, _i == 0 ? "love" : "love.npy", NULL);
    g_autoptr(GError) error = NULL;

    ck_assert_int_eq(g_mkdir(dir, 0777), 0);
    ck_assert(g_file_set_contents(file, "x", 1, NULL));
    Run *run = run_new("--save", dir, NULL);
    ck_assert(!run_begin(run, &error));
    expect_error(error, RUBATO_ERROR_IO, _i == 0 ? "there is a love in it" : "no saved model");
    ck_assert(g_file_test(file, G_FILE_TEST_EXISTS));
    run_free(run);

    g_clear_error(&error);
    run = run_new("--save", file, NULL);
    ck_assert(!run_begin(run, &error));
    expect_error(error, RUBATO_ERROR_IO, "no folder");
    run_free(run);
}
END_TEST

/* If the folder is filled during a save, the save does not touch it, and leaves nothing behind. */
START_TEST(a_folder_that_is_taken_meanwhile_is_not_replaced)
{
    g_autofree char *dir = in_scratch("model");
    g_autofree char *file = g_build_filename(dir, "love", NULL);
    g_autoptr(GError) error = NULL;
    Run *run = run_new("--save", dir, NULL);

    ck_assert(run_begin(run, NULL));
    ck_assert_int_eq(g_mkdir(dir, 0777), 0);
    ck_assert(g_file_set_contents(file, "x", 1, NULL));
    ck_assert(!app_finish(&run->app, &run->model, &error));
    expect_error(error, RUBATO_ERROR_IO, "--save: ");
    ck_assert(g_file_test(file, G_FILE_TEST_EXISTS));
    ck_assert_uint_eq(count_entries(scratch), 1);
    run_free(run);
}
END_TEST

/* ---- damage ---- */

enum { N_FEW = 3 };

static const AppArray few_arrays[] = {
    { .name = "dense",
      .spec = { .name = "d", .dtype = RUBATO_I64, .first_key = 70, .n_keys = N_FEW } },
    { .name = "hash", .spec = { .name = "h", .dtype = RUBATO_F32, .update = "adagrad" } },
};

static Run *run_few(const char *flag, const char *dir)
{
    Run *run = run_new(flag, dir, NULL);

    run->model.arrays = few_arrays;
    return run;
}

static const int64_t few_values[N_FEW] = { 3, -5, INT64_MAX };
static const RubatoKey few_keys[N_FEW] = { 1, 300, UINT64_MAX };
static const float few_rows[N_FEW] = { 0.25f, -7, 1e9f };
static const float few_states[N_FEW] = { 3, 0, 1e-9f };

static char *save_few(void)
{
    char *dir = in_scratch("few");
    Run *run = run_few("--save", dir);

    run->label = 0.1;
    ck_assert(run_begin(run, NULL));
    ck_assert(rubato_engine_set_range(run->app.engine, "d", 70, N_FEW, few_values, NULL));
    ck_assert(rubato_engine_set(run->app.engine, "h", few_keys, N_FEW, few_rows, NULL));
    ck_assert(rubato_engine_set_state(run->app.engine, "h", few_keys, N_FEW, few_states, NULL));
    ck_assert(app_finish(&run->app, &run->model, NULL));
    run_free(run);
    return dir;
}

/* Whether a model can be loaded. If so, it must be the one that was saved; if not, the error must
 * name the file. */
static bool load_few(const char *dir, const char *file, size_t at)
{
    Run *run = run_few("--load", dir);
    g_autoptr(GError) error = NULL;
    const bool loaded = run_begin(run, &error);

    if (loaded) {
        g_autofree RubatoKey *keys = NULL;
        int64_t values[N_FEW];
        float rows[N_FEW], states[N_FEW];
        size_t n = 0;

        ck_assert(rubato_engine_get_range(run->app.engine, "d", 70, N_FEW, values, NULL));
        ck_assert(rubato_engine_list_keys(run->app.engine, "h", &keys, &n, NULL));
        ck_assert(rubato_engine_get(run->app.engine, "h", few_keys, N_FEW, rows, NULL));
        ck_assert(rubato_engine_get_state(run->app.engine, "h", few_keys, N_FEW, states, NULL));
        require_msg(n == N_FEW && memcmp(keys, few_keys, sizeof few_keys) == 0 &&
                        memcmp(values, few_values, sizeof values) == 0 &&
                        memcmp(rows, few_rows, sizeof rows) == 0 &&
                        memcmp(states, few_states, sizeof states) == 0 && run->label == 0.1,
                    "%s is another model with byte %zu changed", file, at);
    } else {
        require_msg(strstr(error->message, file) != NULL, "\"%s\" lacks %s", error->message, file);
    }
    run_free(run);
    return loaded;
}

/* Flips one bit of each byte of each file, a different one each time. Blanks and the like may
 * change. Without RUBATO_TEST_EVERY_BYTE it is one byte of seven. */
START_TEST(a_model_with_any_bit_changed_is_refused_or_the_same)
{
    static const struct {
        const char *name;
        size_t n_harmless; /* at most: blanks of JSON and of a header */
    } files[] = {
        { "model.json", 400 },   { "dense.npy", 70 },      { "hash.npy", 70 },
        { "hash.keys.npy", 70 }, { "hash.state.npy", 70 },
    };
    g_autofree char *dir = save_few();
    g_autofree char *path = g_build_filename(dir, files[_i].name, NULL);
    g_autofree char *bytes = NULL;
    const gsize step = g_getenv("RUBATO_TEST_EVERY_BYTE") != NULL ? 1 : 7;
    gsize n_bytes = 0;
    size_t n_harmless = 0;

    ck_assert(load_few(dir, "", 0));
    ck_assert(g_file_get_contents(path, &bytes, &n_bytes, NULL));
    for (size_t i = 0; i < n_bytes; i += step) {
        const char mask = (char)(1 << (i % 7 + i / 64) % 8);

        bytes[i] ^= mask;
        ck_assert(g_file_set_contents_full(path, bytes, (gssize)n_bytes, G_FILE_SET_CONTENTS_NONE,
                                           0666, NULL));
        n_harmless += load_few(dir, files[_i].name, i);
        bytes[i] ^= mask;
    }
    ck_assert_msg(n_harmless <= files[_i].n_harmless, "%zu of %zu", n_harmless, (size_t)n_bytes);
}
END_TEST

/* ---- the state of update rules ---- */

enum { N_UNITS = 3 };

/* Of a rule that servers apply, and of one that workers apply. */
static const AppArray stateful[] = {
    { .name = "rows",
      .spec = { .name = "r", .dtype = RUBATO_F32, .n_keys = N_UNITS, .update = "momentum" } },
    { .name = "states",
      .spec = { .name = "s", .dtype = RUBATO_F32, .n_keys = 2 * N_UNITS, .update = "assign" },
      .is_state = true },
};

static const float unit_values[N_UNITS] = { 1, 2, 3 };
static const float unit_states[2 * N_UNITS] = { 4, 5, 6, 7, 8, 9 };

static char *told; /* what was printed as an error */

static void take_told(const char *text)
{
    char *const all = g_strconcat(told, text, NULL);

    g_free(told);
    told = all;
}

/* As many arrays as the model has. */
static char *save_states(size_t n_arrays)
{
    char *dir = in_scratch("states");
    Run *run = run_new("--save", dir, NULL);

    run->model.arrays = stateful;
    run->model.n_arrays = n_arrays;
    ck_assert(run_begin(run, NULL));
    ck_assert(rubato_engine_set_range(run->app.engine, "r", 0, N_UNITS, unit_values, NULL));
    ck_assert(rubato_engine_set_state_range(run->app.engine, "r", 0, N_UNITS, unit_states, NULL));
    if (n_arrays > 1)
        ck_assert(rubato_engine_set_range(run->app.engine, "s", 0, 2 * N_UNITS, unit_states, NULL));
    ck_assert(app_finish(&run->app, &run->model, NULL));
    run_free(run);
    return dir;
}

/* Loads it into arrays with other specs. The rows always come back; `servers` says whether the
 * state of servers does, `workers` that of workers. */
static void expect_states(const char *dir, const AppArray expected[2], bool servers, bool workers,
                          const char *note)
{
    const float zeros[2 * N_UNITS] = { 0 };
    float values[N_UNITS], states[2 * N_UNITS] = { 0 };
    Run *run = run_new("--load", dir, NULL);
    g_autoptr(GError) error = NULL;

    run->model.arrays = expected;
    run->model.n_arrays = 2;
    told = g_strdup("");
    const GPrintFunc usual = g_set_printerr_handler(take_told);
    const bool good = run_begin(run, &error);
    g_set_printerr_handler(usual);
    ck_assert_msg(good, "%s", error != NULL ? error->message : "");
    ck_assert_msg(note != NULL ? strstr(told, note) != NULL : *told == '\0', "\"%s\"", told);
    g_clear_pointer(&told, g_free);

    ck_assert(rubato_engine_get_range(run->app.engine, "r", 0, N_UNITS, values, NULL));
    ck_assert_mem_eq(values, unit_values, sizeof values);
    ck_assert(rubato_engine_get_state_range(run->app.engine, "r", 0, N_UNITS, states, NULL));
    ck_assert_mem_eq(states, servers ? unit_states : zeros, N_UNITS * sizeof *states);
    ck_assert(rubato_engine_get_range(run->app.engine, "s", 0, N_UNITS, states, NULL));
    ck_assert_mem_eq(states, workers ? unit_states : zeros, N_UNITS * sizeof *states);
    run_free(run);
}

START_TEST(state_of_update_rules_comes_back)
{
    g_autofree char *dir = save_states(2);

    expect_states(dir, stateful, true, true, NULL);
}
END_TEST

/* The rows of another rule are of use, its state is not. */
START_TEST(state_of_another_rule_begins_anew)
{
    g_autofree char *dir = save_states(2);
    AppArray arrays_now[] = { stateful[0], stateful[1] };

    arrays_now[0].spec.update = "adagrad";
    expect_states(dir, arrays_now, false, true,
                  "rubato-test: --load: the state of the update rule begins anew: ");
    arrays_now[0] = stateful[0];
    arrays_now[1].spec.n_keys = N_UNITS;
    expect_states(dir, arrays_now, true, false,
                  "begins anew: the model was not trained by workers");
}
END_TEST

START_TEST(a_model_without_state_of_workers_is_loaded)
{
    g_autofree char *dir = save_states(1);

    expect_states(dir, stateful, true, false, "begins anew: the model was not trained by workers");
}
END_TEST

/* By servers goes on what workers began. */
START_TEST(state_that_nobody_needs_is_passed_over)
{
    g_autofree char *dir = save_states(2);
    Run *run = run_new("--load", dir, NULL);
    g_autoptr(GError) error = NULL;

    run->model.arrays = stateful;
    run->model.n_arrays = 1;
    ck_assert_msg(run_begin(run, &error), "%s", error != NULL ? error->message : "");
    run_free(run);
}
END_TEST

/* ---- predictions ---- */

START_TEST(predictions_are_written_whole_or_not_at_all)
{
    g_autofree char *path = in_scratch("out");
    g_autofree char *flag = g_strdup_printf("--output=%s", path);
    g_autofree char *text = NULL;
    g_autoptr(GError) error = NULL;
    Run *run = run_new("--predict", "/dev/null", flag);

    ck_assert(run_begin(run, NULL));
    ck_assert(app_finish(&run->app, &run->model, NULL));
    run->model.user_data = run; /* fail */
    ck_assert(!app_finish(&run->app, &run->model, &error));
    expect_error(error, RUBATO_ERROR_FORMAT, "no rows");
    ck_assert(g_file_get_contents(path, &text, NULL, NULL));
    ck_assert_str_eq(text, "/dev/null\n");
    ck_assert_uint_eq(count_entries(scratch), 1);
    run_free(run);
}
END_TEST

START_TEST(predictions_that_find_no_room_are_an_error)
{
    g_autoptr(GError) error = NULL;
    Run *run = run_new("--predict", "/dev/null", "--output=/dev/full");

    ck_assert(run_begin(run, NULL));
    ck_assert(!app_finish(&run->app, &run->model, &error));
    expect_error(error, RUBATO_ERROR_IO, "--output /");
    run_free(run);
}
END_TEST

/* Errors that would otherwise come only after the training. */
START_TEST(files_that_cannot_be_read_or_written_are_told_at_the_start)
{
    static const struct {
        const char *flag, *value, *message;
    } cases[] = {
        { "--predict", "/no/such/rows", "--predict /no/such/rows: cannot be opened: No such" },
        { "--json", "/no/such/card", "--json /no/such/card: /no/such: No such" },
        { "--json", "/tmp", "--json /tmp: is a folder; name a file" },
        { "--json", "/proc/card", "--json /proc/card: /proc: " },
        { "--save", "/no/such/model", "--save: /no/such/model: cannot be made: No such" },
        { "--save", "/proc/model", "--save: /proc/model: cannot be made: " },
        { "--plot", "/no/such/plot", "--plot /no/such/plot: /no/such: No such" },
        { "--output", "/no/such/out", "--output /no/such/out: /no/such: No such" },
    };
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        const bool is_output = strcmp(cases[i].flag, "--output") == 0;
        g_autoptr(GError) error = NULL;
        Run *run = run_new(cases[i].flag, cases[i].value, is_output ? "--predict=/dev/null" : NULL);

        ck_assert(!run_begin(run, &error));
        expect_error(error, RUBATO_ERROR_IO, cases[i].message);
        run_free(run);
    }
}
END_TEST

START_TEST(a_program_that_does_not_predict_says_so)
{
    g_autoptr(GError) error = NULL;
    Run *run = run_new("--predict", "/dev/null", NULL);

    run->model.predict = NULL;
    ck_assert(!run_begin(run, &error));
    expect_error(error, RUBATO_ERROR_INVALID, "--predict: rubato-test does not predict");
    run_free(run);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("app model");
    TCase *cases = tcase_create("models");

    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, make_scratch, remove_scratch);
    tcase_add_test(cases, a_model_is_loaded_as_it_was_saved);
    tcase_add_test(cases, a_model_takes_the_place_of_an_older_one);
    tcase_add_test(cases, the_shape_of_a_saved_table_can_be_asked);
    tcase_add_loop_test(cases, a_description_that_is_wrong_is_refused, 0,
                        (int)G_N_ELEMENTS(bad_descriptions));
    tcase_add_loop_test(cases, missing_files_are_named, 0, 3);
    tcase_add_loop_test(cases, a_model_with_any_bit_changed_is_refused_or_the_same, 0, 5);
    tcase_add_test(cases, state_of_update_rules_comes_back);
    tcase_add_test(cases, state_of_another_rule_begins_anew);
    tcase_add_test(cases, a_model_without_state_of_workers_is_loaded);
    tcase_add_test(cases, state_that_nobody_needs_is_passed_over);
    tcase_add_loop_test(cases, other_folders_are_left_alone, 0, 2);
    tcase_add_test(cases, a_folder_that_is_taken_meanwhile_is_not_replaced);
    tcase_add_test(cases, predictions_are_written_whole_or_not_at_all);
    tcase_add_test(cases, predictions_that_find_no_room_are_an_error);
    tcase_add_test(cases, files_that_cannot_be_read_or_written_are_told_at_the_start);
    tcase_add_test(cases, a_program_that_does_not_predict_says_so);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
