/* Models and the columns on which they were trained, as a user sees them: rubato-lr and rubato-fm
 * with csv that lacks the label or has other columns, and with models that say nothing about
 * columns. */
#include <string.h>

#include "tests/support/cluster/program_run.h"
#include "tests/support/runner.h"

static const char *const programs[] = { "rubato-lr", "rubato-fm" };

#define HEADER "a,paid,town,b\n"
#define ROWS       \
    "1,1,Rome,0\n" \
    "0,0,York,1\n" \
    "1,1,York,1\n" \
    "0,0,Rome,0\n"
#define ROWS_WITHOUT_LABELS \
    "1,Rome,0\n"            \
    "0,York,1\n"            \
    "1,York,1\n"            \
    "0,Rome,0\n"

static char *folder, *train, *model;

static char *write_rows(const char *name, const char *text)
{
    char *path = g_build_filename(folder, name, NULL);

    ck_assert(g_file_set_contents(path, text, -1, NULL));
    return path;
}

static void make_files(void)
{
    folder = make_folder();
    train = write_rows("train.csv", HEADER ROWS);
    model = g_build_filename(folder, "model", NULL);
}

static void remove_files(void)
{
    remove_folder(folder);
    g_free(folder);
    g_free(train);
    g_free(model);
}

/* Adds the arguments of every call. */
static Outcome call(Place place, const char *program, const char *const *more)
{
    const char *arguments[16] = { "--label-column", "paid",      "--categorical",
                                  "town",           "--factors", "2" };
    size_t n = strcmp(program, "rubato-fm") == 0 ? 6 : 4;

    for (size_t i = 0; more[i] != NULL; i++)
        arguments[n++] = more[i];
    return run_program(place, program, arguments);
}

static void save_model(const char *program)
{
    Outcome outcome = call(PLACE_ONE_PROCESS, program,
                           (const char *const[]){ "--train", train, "--save", model, NULL });

    ck_assert_msg(outcome.status == 0, "%.4000s", outcome.err);
    outcome_clear(&outcome);
}

/* (transfer full) */
static char *predict(Place place, const char *program, const char *rows)
{
    g_autofree char *output = g_build_filename(folder, "output", NULL);
    char *text = NULL;
    Outcome outcome =
        call(place, program,
             (const char *const[]){ "--load", model, "--predict", rows, "--output", output, NULL });

    ck_assert_msg(outcome.status == 0, "%.4000s", outcome.err);
    ck_assert_msg(strstr(outcome.err, "keys") == NULL, "%.4000s", outcome.err);
    outcome_clear(&outcome);
    ck_assert(g_file_get_contents(output, &text, NULL, NULL));
    return text;
}

START_TEST(rows_without_labels_are_predicted_as_those_with_them)
{
    const char *program = programs[_i];
    g_autofree char *column = write_rows("column.csv", "a,town,b\n" ROWS_WITHOUT_LABELS);
    g_autofree char *cells = write_rows("cells.csv", HEADER "1,,Rome,0\n0,?,York,1\n"
                                                            "1,\"\",York,1\n0,no,Rome,0\n");
    save_model(program);
    g_autofree char *with_labels = predict(PLACE_ONE_PROCESS, program, train);
    g_autofree char *without_column = predict(PLACE_TWO_NODES, program, column);
    g_autofree char *without_cells = predict(PLACE_ONE_PROCESS, program, cells);
    g_auto(GStrv) lines = g_strsplit(with_labels, "\n", -1);

    ck_assert_uint_eq(g_strv_length(lines), 5);
    ck_assert_double_gt(g_ascii_strtod(lines[0], NULL), g_ascii_strtod(lines[1], NULL));
    ck_assert_str_eq(without_column, with_labels);
    ck_assert_str_eq(without_cells, with_labels);
}
END_TEST

static const struct {
    Place place;
    const char *arguments[5];   /* the last is followed by the rows */
    const char *text, *message; /* what is in the rows, and is said of it */
    const char *advice;
} refused[] = {
    { PLACE_ONE_PROCESS,
      { "--load", "MODEL", "--predict" },
      "paid,a,town,b\n" ROWS,
      "rows.csv:1:1: expected \"a\", the name of column 0 in the model's rows, found \"paid\"",
      "The model's rows: 4 columns, a, paid, town, b; --format csv --label-column paid "
      "--categorical town --hash-bits 64. Give it rows with these" },
    { PLACE_TWO_NODES,
      { "--load", "MODEL", "--epochs", "1", "--train" },
      "a,paid,town,b,c\n1,1,Rome,0,0\n0,0,York,1,0\n",
      "rows.csv:1:1: expected 4 columns, as in the model's rows, found 5",
      "The model's rows: 4 columns, a, paid, town, b;" },
    { PLACE_ONE_PROCESS,
      { "--train", "TRAIN", "--test" },
      "a,town,b\n" ROWS_WITHOUT_LABELS,
      "rows.csv:1:1: expected 4 columns, as in the model's rows, found 3",
      "The model's rows: 4 columns" },
    { PLACE_ONE_PROCESS,
      { "--train", "TRAIN", "--predict" },
      "a,town\n1,Rome\n",
      "rows.csv:1:1: expected 4 columns, or all but the label, as in the model's rows, found 2",
      "only the label may be missing" },
};

START_TEST(rows_with_other_columns_are_refused_before_training)
{
    g_autofree char *rows = write_rows("rows.csv", refused[_i].text);
    const char *arguments[8] = { NULL };
    size_t n = 0;

    for (; n < G_N_ELEMENTS(refused[_i].arguments) && refused[_i].arguments[n] != NULL; n++) {
        const char *argument = refused[_i].arguments[n];

        arguments[n] = strcmp(argument, "MODEL") == 0   ? model
                       : strcmp(argument, "TRAIN") == 0 ? train
                                                        : argument;
    }
    arguments[n] = rows;
    if (strcmp(refused[_i].arguments[0], "--load") == 0)
        save_model("rubato-lr");
    Outcome outcome = call(refused[_i].place, "rubato-lr", arguments);
    ck_assert_int_eq(outcome.status, 1);
    ck_assert_msg(strstr(outcome.err, refused[_i].message) != NULL, "%.4000s", outcome.err);
    ck_assert_msg(strstr(outcome.err, refused[_i].advice) != NULL, "%.4000s", outcome.err);
    ck_assert_msg(strstr(outcome.err, "samples/s") == NULL, "%.4000s", outcome.err);
    outcome_clear(&outcome);
}
END_TEST

static void drop_checksum(JsonArray *array, guint i, JsonNode *element, void *user)
{
    (void)array;
    (void)i;
    (void)user;
    json_object_remove_member(json_node_get_object(element), "checksum");
}

/* The description of a saved model as version 1 had it, without checksums: without its keys, as
 * those of old are, or with others. */
static void change_keys(const char *keys)
{
    g_autofree char *path = g_build_filename(model, "model.json", NULL);
    g_autofree char *text = NULL;

    ck_assert(g_file_get_contents(path, &text, NULL, NULL));
    g_autoptr(JsonNode) root = json_from_string(text, NULL);
    JsonObject *object = json_node_get_object(root);
    ck_assert(json_object_has_member(object, "keys"));
    json_object_set_int_member(object, "version", 1);
    json_object_remove_member(object, "checksum");
    json_array_foreach_element(json_object_get_array_member(object, "arrays"), drop_checksum, NULL);
    json_object_remove_member(object, "keys");
    if (keys != NULL)
        json_object_set_member(object, "keys", json_from_string(keys, NULL));
    g_autofree char *changed = json_to_string(root, TRUE);
    ck_assert(g_file_set_contents(path, changed, -1, NULL));
}

START_TEST(a_model_that_says_nothing_of_keys_is_loaded_with_a_warning)
{
    const char *program = programs[_i];
    g_autofree char *with_keys = (save_model(program), predict(PLACE_ONE_PROCESS, program, train));

    change_keys(NULL);
    Outcome outcome = call(PLACE_ONE_PROCESS, program,
                           (const char *const[]){ "--load", model, "--predict", train, NULL });
    ck_assert_msg(outcome.status == 0, "%.4000s", outcome.err);
    ck_assert_str_eq(outcome.out, with_keys);
    ck_assert_msg(strstr(outcome.err, "/model.json: an older version saved it without \"keys\"") !=
                      NULL,
                  "%.4000s", outcome.err);
    outcome_clear(&outcome);
}
END_TEST

START_TEST(a_model_with_keys_that_cannot_be_is_refused)
{
    save_model("rubato-lr");
    change_keys(_i == 0 ? "{\"format\":\"csv\",\"columns\":4,\"label\":4}" : "[]");
    Outcome outcome = call(PLACE_ONE_PROCESS, "rubato-lr",
                           (const char *const[]){ "--load", model, "--predict", train, NULL });
    ck_assert_int_eq(outcome.status, 1);
    ck_assert_msg(strstr(outcome.err, "/model.json: \"keys\": expected a format and") != NULL,
                  "%.4000s", outcome.err);
    outcome_clear(&outcome);
}
END_TEST

/* Words as labels: trained on, kept with the model, tested on, printed; with no header to be
 * mistaken for. Sparse rows to predict need no label. */
static const struct {
    const char *suffix, *rows, *more, *other, *fault;
} worded[] = {
    { ".csv", "spam,5,1\nham,1,5\nspam,4,1\nham,1,4\n", "?,1,4\n?,4,1\n", "eggs,1,4\n",
      "other.csv:1:1: expected one of the labels of the model's rows in column 0, found \"eggs\"" },
    { ".svm", "spam 1:5 2:1\nham 1:1 2:5\nspam 1:4 2:1\nham 1:1 2:4\n", "1:1 2:4\n? 1:4 2:1\n",
      "eggs 1:1 2:4\n",
      "other.svm:1:1: expected one of the labels of the model's rows, found \"eggs\"" },
};

static char *write_worded(size_t i, const char *name, const char *rows)
{
    g_autofree char *file = g_strconcat(name, worded[i].suffix, NULL);

    return write_rows(file, rows);
}

START_TEST(words_as_labels_are_kept_with_the_model_and_predicted)
{
    const size_t n_programs = G_N_ELEMENTS(programs), format = (size_t)_i / n_programs;
    const char *program = programs[(size_t)_i % n_programs];
    const bool is_csv = format == 0, names_label = is_csv && strcmp(program, "rubato-fm") != 0;
    g_autofree char *spam = write_worded(format, "spam", worded[format].rows);
    g_autofree char *more = write_worded(format, "more", worded[format].more);
    g_autofree char *other = write_worded(format, "other", worded[format].other);
    g_autofree char *output = g_build_filename(folder, "output", NULL);
    g_autofree char *text = NULL;
    Outcome outcome = run_program(_i == 0 ? PLACE_ONE_PROCESS : PLACE_TWO_NODES, program,
                                  (const char *const[]){ "--train", spam, "--test", spam, "--save",
                                                         model, "--epochs", "100", NULL });

    ck_assert_msg(outcome.status == 0, "%.4000s", outcome.err);
    ck_assert_msg((strstr(outcome.err, "the first line is a row") != NULL) == is_csv, "%.4000s",
                  outcome.err);
    ck_assert_msg(strstr(outcome.err, "labels are words: ham, spam") != NULL, "%.4000s",
                  outcome.err);
    ck_assert_msg(strstr(outcome.out, "test accuracy  100.00 %") != NULL, "%.4000s", outcome.out);
    outcome_clear(&outcome);

    outcome =
        run_program(PLACE_ONE_PROCESS, program,
                    (const char *const[]){ "--load", model, "--predict", more, "--output", output,
                                           names_label ? "--label-column" : NULL, "0", NULL });
    ck_assert_msg(outcome.status == 0, "%.4000s", outcome.err);
    outcome_clear(&outcome);
    ck_assert(g_file_get_contents(output, &text, NULL, NULL));
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    ck_assert_msg(g_strv_length(lines) == 3 && g_str_has_prefix(lines[0], "ham\t0.") &&
                      g_str_has_prefix(lines[1], "spam\t0."),
                  "%s", text);
    ck_assert_double_gt(g_ascii_strtod(lines[0] + strlen("ham\t"), NULL), 0.5);

    outcome = run_program(PLACE_ONE_PROCESS, program,
                          (const char *const[]){ "--load", model, "--test", other, NULL });
    ck_assert_int_eq(outcome.status, 1);
    ck_assert_msg(strstr(outcome.err, worded[format].fault) != NULL, "%.4000s", outcome.err);
    outcome_clear(&outcome);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("app_columns");
    TCase *tcase = tcase_create("columns");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, make_files, remove_files);
    tcase_add_loop_test(tcase, rows_without_labels_are_predicted_as_those_with_them, 0,
                        (int)G_N_ELEMENTS(programs));
    tcase_add_loop_test(tcase, rows_with_other_columns_are_refused_before_training, 0,
                        (int)G_N_ELEMENTS(refused));
    tcase_add_loop_test(tcase, a_model_that_says_nothing_of_keys_is_loaded_with_a_warning, 0,
                        (int)G_N_ELEMENTS(programs));
    tcase_add_loop_test(tcase, words_as_labels_are_kept_with_the_model_and_predicted, 0,
                        (int)(G_N_ELEMENTS(programs) * G_N_ELEMENTS(worded)));
    tcase_add_loop_test(tcase, a_model_with_keys_that_cannot_be_is_refused, 0, 2);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
