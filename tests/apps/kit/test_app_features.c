/* What rows say of their keys: how often each comes, and how its values are standardised. */
#include <check.h>
#include <glib/gstdio.h>
#include <math.h>
#include <unistd.h>

#include "apps/kit/scores/app_features.h"
#include "tests/support/runner.h"

static RubatoDataset *open_text(RubatoDataSpec spec, const char *text, char **path)
{
    const int fd = g_file_open_tmp("rubato-rows-XXXXXX", path, NULL);

    close(fd);
    ck_assert(g_file_set_contents(*path, text, -1, NULL));
    spec.paths = (const char *const[]){ *path, NULL };
    RubatoDataset *rows = rubato_dataset_open(&spec, NULL);
    ck_assert_ptr_nonnull(rows);
    return rows;
}

static AppFeatures *learn(RubatoDataSpec spec, const char *text)
{
    g_autofree char *path = NULL;
    g_autoptr(RubatoDataset) rows = open_text(spec, text, &path);
    AppFeatures *features = app_features_learn(rows, NULL);

    ck_assert_ptr_nonnull(features);
    g_unlink(path);
    return features;
}

static void check_scaling(const AppFeatures *features, RubatoKey key, double mean, double scale)
{
    double found_mean, found_scale;

    app_features_scaling(features, key, &found_mean, &found_scale);
    ck_assert_double_eq_tol(found_mean, mean, 1e-6);
    ck_assert_double_eq_tol(found_scale, scale, 1e-6);
}

START_TEST(keys_share_penalties_among_their_entries)
{
    static const RubatoKey keys[] = { 1, 2, 9 };
    const RubatoBatch batch = { .n_keys = G_N_ELEMENTS(keys), .keys = keys };
    g_autoptr(AppFeatures) features =
        learn((RubatoDataSpec){ .format = "libsvm" }, "1 1:7\n-1 1:2 2:3\n1 1:2\n");
    float shares[G_N_ELEMENTS(keys)];

    app_features_shares(features, &batch, 3, shares);
    ck_assert_float_eq(shares[0], 1);
    ck_assert_float_eq(shares[1], 3);
    ck_assert_float_eq(shares[2], 1);
}
END_TEST

/* 1: in every row; 2: in two, with zeros elsewhere; 3: all its values are 1; 4: always 5;
 * 9: none. */
START_TEST(keys_that_every_row_has_are_centred_and_others_keep_their_zeros)
{
    g_autoptr(AppFeatures) features =
        learn((RubatoDataSpec){ .format = "libsvm" },
              "1 1:1000002 2:3 4:5\n-1 1:1000004 3:1 4:5\n1 1:1000006 2:-5 4:5\n");

    check_scaling(features, 1, 1000004, 1 / sqrt(8.0 / 3));
    check_scaling(features, 2, 0, 1 / sqrt(17));
    check_scaling(features, 3, 0, 1);
    check_scaling(features, 4, 5, 0);
    check_scaling(features, 9, 0, 1);
}
END_TEST

/* An empty cell counts as the mean; categories stay as they are. */
START_TEST(columns_of_numbers_are_centred_whatever_they_lack)
{
    static const char *const categorical[] = { "2", NULL };
    g_autoptr(AppFeatures) features =
        learn((RubatoDataSpec){ .format = "csv", .categorical_columns = categorical },
              "1,2,red\n0,,red\n1,6,red\n");

    check_scaling(features, 1, 4, 0.5);
    check_scaling(features, 2, 0, 1);
}
END_TEST

START_TEST(batches_have_the_values_of_this_scaling)
{
    const char *text = "1 1:2 2:3\n-1 1:6\n";
    g_autoptr(AppFeatures) features = learn((RubatoDataSpec){ .format = "libsvm" }, text);
    g_autofree char *path = NULL;
    g_autoptr(RubatoDataset) rows =
        open_text((RubatoDataSpec){ .format = "libsvm" }, "1 1:8 2:6\n1 7:9\n", &path);
    g_autoptr(RubatoReader) reader =
        rubato_dataset_open_reader(rows, &(RubatoReaderOptions){ 0 }, NULL);
    AppScaledBatch scaled = { .values = NULL };
    RubatoBatch *batch = NULL;

    ck_assert(rubato_reader_next(reader, &batch, NULL));
    ck_assert(app_scaled_batch_fill(&scaled, features, batch, NULL));
    ck_assert_uint_eq(scaled.batch.n_rows, 2);
    ck_assert(scaled.batch.value[0] == 2 && scaled.batch.value[1] == 2 &&
              scaled.batch.value[2] == 9);
    ck_assert(batch->value[0] == 8);
    app_scaled_batch_clear(&scaled);
    rubato_batch_free(batch);
    g_unlink(path);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("app_features");
    TCase *tcase = tcase_create("app_features");

    tcase_add_test(tcase, keys_share_penalties_among_their_entries);
    tcase_add_test(tcase, keys_that_every_row_has_are_centred_and_others_keep_their_zeros);
    tcase_add_test(tcase, columns_of_numbers_are_centred_whatever_they_lack);
    tcase_add_test(tcase, batches_have_the_values_of_this_scaling);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
