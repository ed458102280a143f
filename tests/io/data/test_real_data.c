/* Well-known data sets are read completely and correctly. They are not part of the project: if they
 * are missing, nothing is tested. */
#include <rubato/data.h>

#include "test_paths.h"
#include "tests/support/runner.h"

#define DATA_DIR TEST_SOURCE_DIR "/../shared/data/"

static const char *const adult_categories[] = { "2", "4", "6", "7", "8", "9", "10", "14", NULL };

static const struct {
    const char *path;
    RubatoDataSpec spec;
    size_t n_rows, n_entries;
    RubatoKey max_key; /* 0: a hash, or nobody knows */
    uint32_t n_fields;
    double value_sum; /* 0: nobody knows */
} sets[] = {
    { .path = "a9a/a9a",
      .n_rows = 32561,
      .n_entries = 451592,
      .max_key = 123,
      .value_sum = 451592 },
    { .path = "a9a/a9a.t", .n_rows = 16281, .n_entries = 225731, .max_key = 122 },
    { .path = "w8a/w8a.test.svm", .n_rows = 9949, .n_entries = 117031, .max_key = 300 },
    { .path = "adult/adult.train.csv",
      .n_rows = 32561,
      .n_entries = 455854,
      .max_key = 14,
      .n_fields = 15 },
    { .path = "adult/adult.train.csv",
      .spec = { .categorical_columns = adult_categories, .categories = RUBATO_CATEGORIES_CODED },
      .n_rows = 32561,
      .n_entries = 455854,
      .max_key = 116,
      .n_fields = 15 },
    { .path = "kos/docword.kos.txt.gz",
      .n_rows = 3430,
      .n_entries = 353160,
      .max_key = 6906,
      .value_sum = 467714 },
    { .path = "text8/text8-head.gz", .n_rows = 0, .n_entries = 549570, .value_sum = 549570 },
};

START_TEST(a_known_set_is_read_whole)
{
    g_autofree char *path = g_strconcat(DATA_DIR, sets[_i].path, NULL);
    const char *const paths[] = { path, NULL };
    RubatoDataSpec spec = sets[_i].spec;
    g_autoptr(GError) error = NULL;
    double sum = 0;

    if (!g_file_test(path, G_FILE_TEST_EXISTS)) {
        g_print("%s is not there\n", path);
        return;
    }
    spec.paths = paths;
    g_autoptr(RubatoRows) rows = rubato_dataset_load(&spec, &error);
    ck_assert_msg(rows != NULL, "%s", error != NULL ? error->message : "");
    if (sets[_i].n_rows != 0)
        ck_assert_uint_eq(rows->n_rows, sets[_i].n_rows);
    ck_assert_uint_eq(rows->n_entries, sets[_i].n_entries);
    if (sets[_i].max_key != 0)
        ck_assert_uint_eq(rows->max_key, sets[_i].max_key);
    ck_assert_uint_eq(rows->n_fields, sets[_i].n_fields);
    for (size_t e = 0; e < rows->n_entries; e++)
        sum += (double)rows->value[e];
    if (sets[_i].value_sum != 0)
        ck_assert(sum == sets[_i].value_sum);
}
END_TEST

int main(void)
{
    if (!g_file_test(DATA_DIR, G_FILE_TEST_IS_DIR)) {
        g_print("test_real_data: there is no " DATA_DIR "; nothing is tested\n");
        return TEST_SKIPPED;
    }

    Suite *suite = suite_create("real_data");
    TCase *known = tcase_create("known");
    tcase_add_loop_test(known, a_known_set_is_read_whole, 0, (int)G_N_ELEMENTS(sets));
    suite_add_tcase(suite, known);
    return run_suite(suite);
}
