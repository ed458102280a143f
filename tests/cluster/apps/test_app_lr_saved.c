/* Models that rubato-lr saves: a run that loads one has the same results, on other nodes too, and
 * goes on in the same way. */
#include <string.h>

#include "tests/support/cluster/program_run.h"
#include "tests/support/runner.h"

#define FEW_ROWS "1 1:1 7:1\n-1 2:1 7:1\n1 1:1 9:2\n-1 3:4\n"

/* A saved model gives the same results as its run, wherever it was trained and is loaded. */
START_TEST(lr_has_the_same_metrics_with_a_saved_model)
{
    const Place place = (Place)_i,
                other = place == PLACE_ONE_PROCESS ? PLACE_TWO_NODES : PLACE_ONE_PROCESS;
    g_autofree char *dir = make_folder();
    g_autofree char *model = g_build_filename(dir, "model", NULL);
    g_autofree char *rows = write_text(dir, "rows", FEW_ROWS);

    g_autoptr(JsonNode) trained = run_for_card(
        place, "rubato-lr",
        (const char *const[]){ "--train", rows, "--test", rows, "--save", model, NULL });
    g_autoptr(JsonNode) loaded =
        run_for_card(other, "rubato-lr",
                     (const char *const[]){ "--train", rows, "--test", rows, "--epochs", "0",
                                            "--load", model, NULL });
    ck_assert_double_lt(metric(trained, "test_logloss"), 0.5);
    ck_assert_double_eq(metric(loaded, "test_logloss"), metric(trained, "test_logloss"));
    ck_assert_int_eq(number(loaded, "samples"), 0);
    remove_folder(dir);
}
END_TEST

/* Columns of very different sizes: standardised they are learned; and the model predicts the same
 * rows the same wherever it is loaded, without the flag. */
START_TEST(lr_keeps_how_rows_are_standardised_with_the_model)
{
    const Place place = (Place)_i,
                other = place == PLACE_ONE_PROCESS ? PLACE_TWO_NODES : PLACE_ONE_PROCESS;
    g_autofree char *dir = make_folder();
    g_autofree char *model = g_build_filename(dir, "model", NULL);
    g_autofree char *plain = g_build_filename(dir, "plain", NULL);
    g_autofree char *rows =
        write_text(dir, "rows.csv", "1,3000000,.002\n0,3000900,.001\n1,3000100,.003\n0,3000800,\n");

    g_autoptr(JsonNode) trained =
        run_for_card(place, "rubato-lr",
                     (const char *const[]){ "--train", rows, "--test", rows, "--standardize",
                                            "--epochs", "100", "--save", model, NULL });
    g_autoptr(JsonNode) loaded = run_for_card(
        other, "rubato-lr", (const char *const[]){ "--load", model, "--test", rows, NULL });
    g_autoptr(JsonNode) further =
        run_for_card(other, "rubato-lr",
                     (const char *const[]){ "--load", model, "--train", rows, "--test", rows,
                                            "--epochs", "10", NULL });
    ck_assert_double_lt(metric(trained, "test_logloss"), 0.2);
    ck_assert_double_eq(metric(loaded, "test_logloss"), metric(trained, "test_logloss"));
    ck_assert_double_lt(metric(further, "test_logloss"), metric(trained, "test_logloss"));

    Outcome outcome = run_program(place, "rubato-lr",
                                  (const char *const[]){ "--train", rows, "--save", plain,
                                                         "--keep-going", "--epochs", "1", NULL });
    ck_assert_msg(outcome.status == 0, "%.4000s", outcome.err);
    outcome_clear(&outcome);
    outcome = run_program(
        place, "rubato-lr",
        (const char *const[]){ "--load", plain, "--test", rows, "--standardize", NULL });
    ck_assert_int_eq(outcome.status, 1);
    ck_assert_msg(strstr(outcome.err, "--standardize: the model in") != NULL, "%.4000s",
                  outcome.err);
    outcome_clear(&outcome);
    remove_folder(dir);
}
END_TEST

/* Whether the flag says the loss again or not: the usual learning rate is that of the model's. */
START_TEST(a_loaded_loss_decides_the_learning_rate)
{
    static const char *const names[] = { "rubato-lr", "rubato-fm" };
    g_autofree char *dir = make_folder();
    g_autofree char *model = g_build_filename(dir, "model", NULL);
    g_autofree char *rows = write_text(dir, "rows", "1 1:1\n2 2:1\n3 3:1\n1 1:2 3:1\n");
    const char *const first[] = { "--train", rows,          "--loss", "softmax", "--epochs",
                                  "1",       "--workers=1", "--save", model,     NULL };
    double losses[2];

    g_autoptr(JsonNode) begun = run_for_card(PLACE_ONE_PROCESS, names[_i], first);
    ck_assert_ptr_nonnull(begun);
    for (size_t i = 0; i < 2; i++) {
        g_autoptr(JsonNode) card = run_for_card(
            PLACE_ONE_PROCESS, names[_i],
            (const char *const[]){ "--load", model, "--train", rows, "--test", rows, "--epochs",
                                   "3", "--workers=1", i == 0 ? NULL : "--loss", "softmax", NULL });
        losses[i] = metric(card, "test_logloss");
    }
    ck_assert_double_eq(losses[0], losses[1]);
    remove_folder(dir);
}
END_TEST

/* On rows that contradict those to train on, each epoch is worse than the one before: the model of
 * the first is the one that is tested and saved, on every node. */
START_TEST(lr_keeps_the_epoch_that_validation_likes_best)
{
    const Place place = (Place)_i;
    g_autofree char *dir = make_folder();
    g_autofree char *model = g_build_filename(dir, "model", NULL);
    g_autofree char *rows = write_text(dir, "rows", FEW_ROWS);
    g_autofree char *contrary = write_text(dir, "contrary", "-1 1:1\n1 2:1\n");

    g_autoptr(JsonNode) card = run_for_card(
        place, "rubato-lr",
        (const char *const[]){ "--train", rows, "--validate", contrary, "--test", contrary,
                               "--patience", "2", "--epochs", "9", "--save", model, NULL });
    g_autoptr(JsonNode) loaded = run_for_card(
        place, "rubato-lr", (const char *const[]){ "--load", model, "--test", contrary, NULL });
    JsonObject *validation =
        json_object_get_object_member(json_node_get_object(card), "validation");
    ck_assert_ptr_nonnull(validation);
    JsonArray *losses = json_object_get_array_member(validation, "loss");
    ck_assert_uint_eq(json_array_get_length(losses), 3);
    ck_assert_int_eq(json_object_get_int_member(validation, "best_epoch"), 1);
    ck_assert_double_lt(json_array_get_double_element(losses, 0),
                        json_array_get_double_element(losses, 2));
    ck_assert_double_eq_tol(metric(card, "test_logloss"), json_array_get_double_element(losses, 0),
                            1e-6);
    ck_assert_double_eq(metric(loaded, "test_logloss"), metric(card, "test_logloss"));
    ck_assert_int_eq(number(card, "samples"), 12);
    remove_folder(dir);
}
END_TEST

/* Three words, each with a key of its own: learned, saved, and predicted elsewhere. */
START_TEST(lr_learns_many_classes)
{
    const Place place = (Place)_i,
                other = place == PLACE_ONE_PROCESS ? PLACE_TWO_NODES : PLACE_ONE_PROCESS;
    g_autofree char *dir = make_folder();
    g_autofree char *model = g_build_filename(dir, "model", NULL);
    g_autofree char *output = g_build_filename(dir, "output", NULL);
    g_autofree char *rows = write_text(dir, "rows.csv",
                                       "red,1,0,0\nblue,0,1,0\ngreen,0,0,1\n"
                                       "red,2,0,1\nblue,0,2,1\ngreen,1,0,2\n");
    g_autofree char *more = write_text(dir, "more.csv", "green,0,0,3\nred,3,0,0\nblue,0,3,0\n");
    g_autofree char *text = NULL;

    g_autoptr(JsonNode) trained = run_for_card(
        place, "rubato-lr",
        (const char *const[]){ "--train", rows, "--test", more, "--loss", "softmax", "--l2", "1e-4",
                               "--validate", more, "--save", model, NULL });
    ck_assert_double_eq(metric(trained, "test_accuracy"), 1);
    ck_assert_double_lt(metric(trained, "test_logloss"), 0.3);
    g_autoptr(JsonNode) loaded = run_for_card(
        other, "rubato-lr", (const char *const[]){ "--load", model, "--test", more, NULL });
    ck_assert_double_eq(metric(loaded, "test_logloss"), metric(trained, "test_logloss"));

    Outcome outcome = run_program(other, "rubato-lr",
                                  (const char *const[]){ "--load", model, "--train", rows, "--l2",
                                                         "1e-4", "--epochs", "1", "--predict", more,
                                                         "--output", output, NULL });
    ck_assert_msg(outcome.status == 0, "%.4000s", outcome.err);
    outcome_clear(&outcome);
    ck_assert(g_file_get_contents(output, &text, NULL, NULL));
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    ck_assert_uint_eq(g_strv_length(lines), 4);
    ck_assert_msg(g_str_has_prefix(lines[0], "green\t") && g_str_has_prefix(lines[1], "red\t") &&
                      g_str_has_prefix(lines[2], "blue\t"),
                  "%s", text);
    remove_folder(dir);
}
END_TEST

/* A model without bias knows nothing about a row without keys. */
START_TEST(lr_predicts_with_a_saved_model)
{
    const Place place = (Place)_i;
    g_autofree char *dir = make_folder();
    g_autofree char *model = g_build_filename(dir, "model", NULL);
    g_autofree char *output = g_build_filename(dir, "output", NULL);
    g_autofree char *rows = write_text(dir, "rows", FEW_ROWS);
    g_autofree char *unlabelled = write_text(dir, "unlabelled", "0 1:1\n0\n0 3:1\n");
    g_autofree char *text = NULL;

    Outcome trained =
        run_program(place, "rubato-lr",
                    (const char *const[]){ "--no-bias", "--train", rows, "--save", model, NULL });
    ck_assert_msg(trained.status == 0, "%.4000s", trained.err);
    outcome_clear(&trained);
    Outcome outcome = run_program(place, "rubato-lr",
                                  (const char *const[]){ "--no-bias", "--load", model, "--predict",
                                                         unlabelled, "--output", output, NULL });
    ck_assert_msg(outcome.status == 0, "%.4000s", outcome.err);
    outcome_clear(&outcome);
    ck_assert(g_file_get_contents(output, &text, NULL, NULL));
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    ck_assert_uint_eq(g_strv_length(lines), 4);
    ck_assert_double_gt(g_ascii_strtod(lines[0], NULL), 0.6);
    ck_assert_str_eq(lines[1], "0.5");
    ck_assert_double_lt(g_ascii_strtod(lines[2], NULL), 0.4);
    remove_folder(dir);
}
END_TEST

#define PEOPLE "age,paid,town\n0.5,3,Rome\n0.2,1,York\n0.6,3,York\n0.1,1,Rome\n0.4,2,Oslo\n"

/* Nobody says again what the model knows: loss, bias, format and columns. The name of the file
 * means another format. */
START_TEST(lr_tests_a_saved_model_as_it_was_trained)
{
    const Place place = (Place)_i;
    g_autofree char *dir = make_folder();
    g_autofree char *model = g_build_filename(dir, "model", NULL);
    g_autofree char *rows = write_text(dir, "rows.txt", PEOPLE);

    g_autoptr(JsonNode) trained = run_for_card(
        place, "rubato-lr",
        (const char *const[]){ "--train", rows, "--test", rows, "--format", "csv", "--loss",
                               "squared", "--no-bias", "--label-column", "paid", "--categorical",
                               "town", "--hash-bits", "40", "--save", model, NULL });
    g_autoptr(JsonNode) loaded = run_for_card(
        place, "rubato-lr", (const char *const[]){ "--load", model, "--test", rows, NULL });
    ck_assert_double_lt(metric(trained, "test_rmse"), 1);
    ck_assert_double_eq(metric(loaded, "test_rmse"), metric(trained, "test_rmse"));
    ck_assert_double_eq(metric(loaded, "weights_norm"), metric(trained, "weights_norm"));
    ck_assert_int_eq(number(loaded, "epochs"), 0);

    /* training goes on in the same way */
    g_autoptr(JsonNode) further = run_for_card(
        place, "rubato-lr",
        (const char *const[]){ "--load", model, "--train", rows, "--test", rows, NULL });
    ck_assert_double_lt(metric(further, "test_rmse"), metric(trained, "test_rmse"));
    remove_folder(dir);
}
END_TEST

/* ---- what is refused ---- */

static const struct {
    const char *flags[2], *message;
} said_otherwise[] = {
    { { "--loss", "hinge" }, "the model was saved with loss logistic, this run has hinge" },
    { { "--no-bias", NULL }, "the model was saved with bias yes, this run has no" },
    { { "--label-column", "age" }, "expected the label in column 1, as in the model's rows" },
    { { "--hash-bits", "20" }, "expected hashes of 64 bits, as of the model's rows, found 20" },
    { { "--format", "libsvm" }, "expected rows of the format csv, as the model's, found libsvm" },
};

START_TEST(lr_refuses_what_is_said_otherwise_than_the_model_has_it)
{
    g_autofree char *dir = make_folder();
    g_autofree char *model = g_build_filename(dir, "model", NULL);
    g_autofree char *rows = write_text(dir, "rows.csv", "age,paid,town\n0.5,1,Rome\n0,0,York\n");

    Outcome trained =
        run_program(PLACE_ONE_PROCESS, "rubato-lr",
                    (const char *const[]){ "--train", rows, "--label-column", "paid",
                                           "--categorical", "town", "--save", model, NULL });
    ck_assert_msg(trained.status == 0, "%.4000s", trained.err);
    outcome_clear(&trained);
    for (size_t i = 0; i < G_N_ELEMENTS(said_otherwise); i++) {
        Outcome outcome = run_program(PLACE_ONE_PROCESS, "rubato-lr",
                                      (const char *const[]){ "--load", model, "--test", rows,
                                                             said_otherwise[i].flags[0],
                                                             said_otherwise[i].flags[1], NULL });
        ck_assert_int_eq(outcome.status, 1);
        ck_assert_msg(strstr(outcome.err, said_otherwise[i].message) != NULL, "%.4000s",
                      outcome.err);
        outcome_clear(&outcome);
    }
    remove_folder(dir);
}
END_TEST

START_TEST(a_model_that_cannot_be_loaded_ends_the_run_on_every_node)
{
    const Place place = (Place)_i;
    g_autofree char *dir = make_folder();
    g_autofree char *rows = write_text(dir, "rows", FEW_ROWS);
    Outcome outcome = run_program(
        place, "rubato-lr", (const char *const[]){ "--train", rows, "--load", "/no/such", NULL });

    ck_assert_int_eq(outcome.status, 1);
    ck_assert_msg(strstr(outcome.err, "rubato-lr: --load: ") != NULL, "%.4000s", outcome.err);
    if (place == PLACE_TWO_NODES)
        ck_assert_msg(strstr(outcome.err, "[7] rubato-lr: task load: worker 0 (node 3)") != NULL,
                      "%.4000s", outcome.err);
    outcome_clear(&outcome);
    remove_folder(dir);
}
END_TEST

static Suite *lr_suite(void)
{
    Suite *suite = suite_create("app_lr_saved");
    TCase *tcase = tcase_create("lr");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, lr_has_the_same_metrics_with_a_saved_model, 0, 2);
    tcase_add_loop_test(tcase, lr_keeps_how_rows_are_standardised_with_the_model, 0, 2);
    tcase_add_loop_test(tcase, a_loaded_loss_decides_the_learning_rate, 0, 2);
    tcase_add_loop_test(tcase, lr_keeps_the_epoch_that_validation_likes_best, 0, 2);
    tcase_add_loop_test(tcase, lr_learns_many_classes, 0, 2);
    tcase_add_loop_test(tcase, lr_predicts_with_a_saved_model, 0, 2);
    tcase_add_loop_test(tcase, lr_tests_a_saved_model_as_it_was_trained, 0, 2);
    tcase_add_test(tcase, lr_refuses_what_is_said_otherwise_than_the_model_has_it);
    tcase_add_loop_test(tcase, a_model_that_cannot_be_loaded_ends_the_run_on_every_node, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return run_suite(lr_suite());
}
