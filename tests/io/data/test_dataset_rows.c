/* Datasets of rows in memory: the same rows, summary and splits as of the file that they were read
 * from, and what is refused. */
#include <string.h>

#include "io/data/deal/reader.h"
#include "tests/support/data/data_rows.h"
#include "tests/support/data/data_text.h"
#include "tests/support/runner.h"

#define N_ROWS 5000u

typedef struct {
    char *dir, *path;
    RubatoDataSpec spec;
    const char *paths[2];
} File;

static void write_file(File *file)
{
    *file = (File){ .dir = g_dir_make_tmp("rubato-rows-XXXXXX", NULL) };
    file->path = rows_write(file->dir, "rows.ffm", ROWS_PLAIN, 0, N_ROWS);
    file->paths[0] = file->path;
    file->spec = (RubatoDataSpec){ .paths = file->paths, .format = "libffm" };
}

static void remove_file(File *file)
{
    remove_files(file->dir);
    g_free(file->path);
    g_free(file->dir);
}

/* The dataset has a copy: the rows that it was made from are gone. */
static RubatoDataset *load(const File *file)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(RubatoRows) rows = rubato_dataset_load(&file->spec, &error);
    ck_assert_msg(rows != NULL, "%s", error != NULL ? error->message : "");
    RubatoDataset *dataset = rubato_dataset_new_from_rows(rows, "mine", &error);

    ck_assert_msg(dataset != NULL, "%s", error != NULL ? error->message : "");
    memset((void *)(uintptr_t)rows->key, 0xff, rows->n_entries * sizeof *rows->key);
    return dataset;
}

static const struct {
    RubatoSplit split;
    uint32_t n_workers, epochs, batch_rows;
    bool shuffle;
} scenes[] = {
    { RUBATO_SPLIT_FIXED, 1, 1, 256, false },  { RUBATO_SPLIT_FIXED, 3, 2, 100, true },
    { RUBATO_SPLIT_FIXED, 100, 1, 64, true },  { RUBATO_SPLIT_BY_KEY, 3, 2, 100, true },
    { RUBATO_SPLIT_BY_KEY, 2, 1, 999, false },
};

START_TEST(every_row_comes_to_one_worker_in_each_epoch)
{
    File file;
    g_autofree _Atomic uint32_t *counts = g_malloc0_n(N_ROWS, sizeof *counts);
    const RubatoReaderOptions options = { .split = scenes[_i].split,
                                          .epochs = scenes[_i].epochs,
                                          .batch_rows = scenes[_i].batch_rows,
                                          .shuffle = scenes[_i].shuffle };
    RubatoReaderOptions filled;
    const uint32_t n = scenes[_i].n_workers;

    write_file(&file);
    g_autoptr(RubatoDataset) dataset = load(&file);
    remove_file(&file);
    ck_assert(reader_options_fill(&options, &filled, NULL));
    for (uint32_t rank = 0; rank < n; rank++) {
        BlockSource *source = filled.split == RUBATO_SPLIT_BY_KEY
                                  ? key_split_new(dataset, &filled, rank, n)
                                  : fixed_split_new(dataset, &filled, rank, n);
        g_autoptr(RubatoReader) reader = reader_new(dataset, &filled, source, NULL, NULL);
        g_autoptr(RubatoBatch) batch = NULL;

        while (rubato_reader_next(reader, &batch, NULL))
            ck_assert_ptr_null(rows_count(batch, counts, N_ROWS));
        ck_assert(!rubato_reader_failed(reader));
    }
    ck_assert(rows_all_counted(counts, N_ROWS, filled.epochs));
}
END_TEST

START_TEST(rows_come_in_their_order)
{
    File file;
    g_autoptr(RubatoBatch) batch = NULL;
    uint32_t row = 0;

    write_file(&file);
    g_autoptr(RubatoDataset) dataset = load(&file);
    g_autoptr(RubatoReader) reader =
        rubato_dataset_open_reader(dataset, &(RubatoReaderOptions){ .batch_rows = 77 }, NULL);
    while (rubato_reader_next(reader, &batch, NULL))
        for (size_t i = 0; i < batch->n_rows; i++)
            ck_assert_uint_eq((uint32_t)batch->label[i], row++);
    ck_assert_uint_eq(row, N_ROWS);
    remove_file(&file);
}
END_TEST

START_TEST(what_they_hold_is_what_the_file_holds)
{
    File file;
    RubatoDataSummary found, expected;

    write_file(&file);
    g_autoptr(RubatoDataset) dataset = load(&file);
    g_autoptr(RubatoDataset) of_file = rubato_dataset_open(&file.spec, NULL);
    ck_assert(rubato_dataset_summary(dataset, &found, NULL));
    ck_assert(rubato_dataset_summary(of_file, &expected, NULL));
    ck_assert_uint_eq(found.n_rows, expected.n_rows);
    ck_assert_uint_eq(found.n_entries, expected.n_entries);
    ck_assert_uint_eq(found.n_bad_rows, 0);
    ck_assert_uint_eq(found.max_key, expected.max_key);
    ck_assert_uint_eq(found.n_fields, expected.n_fields);
    ck_assert(found.min_label == expected.min_label && found.max_label == expected.max_label);
    ck_assert_str_eq(rubato_dataset_keys(dataset)->format, "libffm");
    g_autofree char *place = rubato_dataset_find_label(dataset, 4321);
    ck_assert_pstr_eq(place, "mine: row 4321");
    ck_assert_ptr_null(rubato_dataset_find_label(dataset, -7));
    remove_file(&file);
}
END_TEST

START_TEST(rows_without_entries_or_fields_are_read)
{
    static const size_t row_start[] = { 0, 0, 0 };
    static const float label[] = { 3, 4 };
    const RubatoRows rows = { .n_rows = 2, .row_start = row_start, .label = label };
    g_autoptr(RubatoDataset) dataset = rubato_dataset_new_from_rows(&rows, "empty", NULL);
    g_autoptr(RubatoReader) reader =
        rubato_dataset_open_reader(dataset, &(RubatoReaderOptions){ .batch_rows = 2 }, NULL);
    g_autoptr(RubatoBatch) batch = NULL;

    ck_assert_str_eq(rubato_dataset_keys(dataset)->format, "libsvm");
    ck_assert(rubato_reader_next(reader, &batch, NULL));
    ck_assert_uint_eq(batch->n_rows, 2);
    ck_assert_uint_eq(batch->n_keys, 0);
    ck_assert_ptr_null(batch->field);
    ck_assert(batch->label[1] == 4);
    ck_assert(!rubato_reader_next(reader, &batch, NULL));
}
END_TEST

START_TEST(rows_that_make_no_sense_are_refused)
{
    static const size_t good[] = { 0, 1, 2 }, late[] = { 1, 1, 2 }, early[] = { 0, 1, 1 },
                        down[] = { 0, 3, 2 };
    static const RubatoKey key[] = { 1, 2 };
    static const float value[] = { 1, 1 };
    const struct {
        RubatoRows rows;
        const char *text;
    } wrong[] = {
        { { .n_rows = 0, .row_start = good, .label = value }, "there are none" },
        { { 2, 2, 0, 0, late, key, NULL, value, value }, "from 0 to n_entries" },
        { { 2, 2, 0, 0, early, key, NULL, value, value }, "from 0 to n_entries" },
        { { 2, 2, 0, 0, down, key, NULL, value, value }, "descends" },
        { { 2, 2, 0, 0, good, NULL, NULL, value, value }, "are needed" },
        { { 2, 2, 0, 0, good, key, NULL, NULL, value }, "are needed" },
        { { 2, 2, 0, 0, good, key, NULL, value, NULL }, "are needed" },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(wrong); i++) {
        g_autoptr(GError) error = NULL;

        ck_assert_ptr_null(rubato_dataset_new_from_rows(&wrong[i].rows, "mine", &error));
        ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_INVALID));
        ck_assert_msg(strstr(error->message, wrong[i].text) != NULL, "%s", error->message);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("dataset_rows");
    TCase *cases = tcase_create("rows");

    tcase_add_loop_test(cases, every_row_comes_to_one_worker_in_each_epoch, 0,
                        G_N_ELEMENTS(scenes));
    tcase_add_test(cases, rows_come_in_their_order);
    tcase_add_test(cases, what_they_hold_is_what_the_file_holds);
    tcase_add_test(cases, rows_without_entries_or_fields_are_read);
    tcase_add_test(cases, rows_that_make_no_sense_are_refused);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
