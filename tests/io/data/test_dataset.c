/* Datasets: the files that a spec means, the numbering of keys, blocks in memory and from packed
 * files, bad rows, and wrong specs. */
#include "io/data/dataset.h"

#include <glib/gstdio.h>
#include <malloc.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/data/random.h"
#include "tests/support/data/data_rows.h"
#include "tests/support/data/data_text.h"
#include "tests/support/runner.h"

/* ---- numbering keys ---- */

static int compare_keys(const void *a, const void *b)
{
    const RubatoKey left = *(const RubatoKey *)a, right = *(const RubatoKey *)b;

    return (left > right) - (left < right);
}

static const struct {
    size_t n;
    uint32_t n_different;
    bool scattered; /* over all 64 bits */
} key_sets[] = {
    { 0, 1, false },   { 1, 1, true },       { 5, 2, true },          { 1000, 900, false },
    { 1000, 7, true }, { 4000, 4000, true }, { 100000, 60000, true }, { 3000, 3000, false },
};

START_TEST(keys_are_numbered_in_their_order)
{
    Random random = random_stream(1, (uint64_t)_i);
    const size_t n = key_sets[_i].n;
    g_autofree RubatoKey *keys = g_new(RubatoKey, n + 1);
    g_autofree RubatoKey *sorted = g_new(RubatoKey, n + 1);
    g_autofree uint32_t *index = g_new(uint32_t, n + 1);
    size_t n_sorted = 0;
    KeyCoder coder;

    key_coder_init(&coder);
    /* twice, for what the first time leaves */
    for (int time = 0; time < 2; time++) {
        for (size_t i = 0; i < n; i++) {
            const uint64_t key = random_below(&random, key_sets[_i].n_different);

            sorted[i] = keys[i] =
                key_sets[_i].scattered ? key * UINT64_C(0x9e3779b97f4a7c15) : 77 + key;
        }
        ck_assert(key_coder_code(&coder, keys, n, index));
        qsort(sorted, n, sizeof *sorted, compare_keys);
        n_sorted = 0;
        for (size_t i = 0; i < n; i++)
            if (n_sorted == 0 || sorted[i] != sorted[n_sorted - 1])
                sorted[n_sorted++] = sorted[i];
        ck_assert_uint_eq(coder.n_keys, n_sorted);
        for (size_t i = 0; i < n_sorted; i++)
            require_msg(coder.keys[i] == sorted[i], "key %zu", i);
        for (size_t i = 0; i < n; i++)
            require_msg(coder.keys[index[i]] == keys[i], "place of %zu", i);
    }
    key_coder_clear(&coder);
}
END_TEST

/* ---- files ---- */

static char *dir;

static void set_up(void)
{
    dir = g_dir_make_tmp("rubato-dataset-XXXXXX", NULL);
}

static void tear_down(void)
{
    remove_files(dir);
    g_free(dir);
}

static char *write_text(const char *name, const char *text)
{
    char *path = g_build_filename(dir, name, NULL);

    ck_assert(g_file_set_contents(path, text, -1, NULL));
    return path;
}

START_TEST(globs_mean_files_in_their_order)
{
    g_autofree char *pattern = g_build_filename(dir, "day-*.ffm", NULL);
    g_autofree char *last = rows_write(dir, "last.ffm", ROWS_PLAIN, 30, 10);
    const char *const paths[] = { pattern, last, NULL };

    g_free(rows_write(dir, "day-2.ffm", ROWS_GZIP, 10, 20));
    g_free(rows_write(dir, "day-1.ffm", ROWS_PLAIN, 0, 10));
    g_autoptr(RubatoRows) rows = rubato_dataset_load(&(RubatoDataSpec){ .paths = paths }, NULL);
    ck_assert_ptr_nonnull(rows);
    ck_assert_uint_eq(rows->n_rows, 40);
    for (uint32_t i = 0; i < 40; i++)
        require_msg((uint32_t)rows->label[i] == i, "row %u", i);
    ck_assert_uint_eq(rows->row_start[40], rows->n_entries);
}
END_TEST

START_TEST(a_file_may_have_a_name_like_a_glob)
{
    g_autofree char *path = rows_write(dir, "a[1].ffm", ROWS_PLAIN, 0, 3);
    const char *const paths[] = { path, NULL };
    g_autoptr(RubatoRows) rows = rubato_dataset_load(&(RubatoDataSpec){ .paths = paths }, NULL);

    ck_assert_uint_eq(rows->n_rows, 3);
}
END_TEST

START_TEST(missing_files_may_be_skipped)
{
    g_autofree char *pattern = g_build_filename(dir, "no-*.ffm", NULL);
    g_autofree char *absent = g_build_filename(dir, "absent.ffm", NULL);
    const char *const paths[] = { pattern, absent, NULL };
    RubatoDataSummary summary;
    g_autoptr(GError) error = NULL;
    RubatoDataset *dataset =
        rubato_dataset_open(&(RubatoDataSpec){ .paths = paths, .skip_missing = true }, &error);

    ck_assert_msg(dataset != NULL, "%s", error != NULL ? error->message : "");
    ck_assert(rubato_dataset_summary(dataset, &summary, NULL));
    ck_assert_uint_eq(summary.n_rows, 0);
    rubato_dataset_free(dataset);
    ck_assert_ptr_null(
        rubato_dataset_load(&(RubatoDataSpec){ .paths = paths, .skip_missing = true }, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT));
}
END_TEST

static const char *no_file[] = { NULL };
static const char *nothing_like_it[] = { "/nowhere/*.ffm", NULL };
static const char *absent_file[] = { "/nowhere/a.ffm", NULL };
static const char *folder[] = { "/tmp", NULL };
static const char *device[] = { "/dev/null", NULL };
static const char *good_name[] = { "/dev/null", NULL };

static const struct {
    RubatoDataSpec spec;
    RubatoError code;
    const char *message;
} bad_specs[] = {
    { { .paths = NULL }, RUBATO_ERROR_INVALID, "no file to read; name one at least" },
    { { .paths = no_file }, RUBATO_ERROR_INVALID, "no file to read; name one at least" },
    { { .paths = nothing_like_it }, RUBATO_ERROR_NOT_FOUND, "/nowhere/*.ffm: there is no such" },
    { { .paths = absent_file }, RUBATO_ERROR_IO, "/nowhere/a.ffm: cannot be opened: No such file" },
    { { .paths = folder }, RUBATO_ERROR_IO, "/tmp: is a directory; name a file" },
    { { .paths = device }, RUBATO_ERROR_IO, "/dev/null: is a pipe or device; name a file" },
    { { .paths = good_name, .format = "xml" },
      RUBATO_ERROR_NOT_FOUND,
      "there is no data format \"xml\"; the formats are libsvm" },
    { { .paths = good_name, .hash_bits = 65 }, RUBATO_ERROR_INVALID, "hash_bits 65: hashes have" },
};

START_TEST(specs_that_make_no_sense_are_refused)
{
    g_autoptr(GError) error = NULL;

    ck_assert_ptr_null(rubato_dataset_open(&bad_specs[_i].spec, &error));
    ck_assert_msg(g_error_matches(error, RUBATO_ERROR, (gint)bad_specs[_i].code), "%s",
                  error->message);
    ck_assert_msg(g_str_has_prefix(error->message, bad_specs[_i].message), "%s", error->message);
}
END_TEST

/* ---- blocks ---- */

typedef struct {
    char *path;
    const char *paths[2];
    RubatoDataset *dataset;
    BlockScratch scratch;
} Opened;

static void open_rows(Opened *opened, RowsPacking packing, uint32_t n_rows, uint64_t memory_bytes)
{
    opened->path = rows_write(dir, "rows.ffm", packing, 0, n_rows);
    opened->paths[0] = opened->path;
    opened->paths[1] = NULL;
    opened->dataset = rubato_dataset_open(
        &(RubatoDataSpec){ .paths = opened->paths, .memory_bytes = memory_bytes }, NULL);
    ck_assert_ptr_nonnull(opened->dataset);
    block_scratch_init(&opened->scratch);
}

static void close_rows(Opened *opened)
{
    rubato_dataset_free(opened->dataset);
    block_scratch_clear(&opened->scratch);
    g_free(opened->path);
}

static DataBlock *get_block(Opened *opened, uint64_t number, DatasetKeep keep)
{
    DataBlock *block;
    g_autoptr(GError) error = NULL;
    const bool ok =
        dataset_block(opened->dataset, 0, number, keep, &opened->scratch, &block, &error);

    ck_assert_msg(ok, "%s", error != NULL ? error->message : "");
    return block;
}

/* Blocks of a packed file in any order, and more than once. */
START_TEST(blocks_are_the_same_in_any_order)
{
    static const uint64_t order[] = { 3, 1, 3, 0, 2, 2, 7, 0, 5, 4, 6, 1 };
    Opened opened;
    float first_labels[8];
    size_t n_rows[8];

    open_rows(&opened, (RowsPacking)_i, 5000, 1);
    for (uint64_t i = 0; i < 8; i++) {
        g_autoptr(DataBlock) block = get_block(&opened, i, DATASET_KEEP_NOTHING);

        ck_assert_ptr_nonnull(block);
        first_labels[i] = block->label[0];
        n_rows[i] = block->head->n_rows;
        ck_assert_float_eq(first_labels[i],
                           i == 0 ? 0 : first_labels[i - 1] + (float)n_rows[i - 1]);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(order); i++) {
        g_autoptr(DataBlock) block = get_block(&opened, order[i], DATASET_KEEP_NOTHING);

        ck_assert_float_eq(block->label[0], first_labels[order[i]]);
        ck_assert_uint_eq(block->head->n_rows, n_rows[order[i]]);
    }
    ck_assert_ptr_null(get_block(&opened, 100000, DATASET_KEEP_NOTHING));
    ck_assert_ptr_null(get_block(&opened, UINT64_MAX, DATASET_KEEP_NOTHING));
    close_rows(&opened);
}
END_TEST

START_TEST(blocks_are_kept_as_long_as_there_is_room)
{
    Opened opened;

    open_rows(&opened, _i == 0 ? ROWS_PLAIN : ROWS_GZIP, 5000, 60000);
    g_autoptr(DataBlock) first = get_block(&opened, 0, DATASET_KEEP_BLOCK);
    g_autoptr(DataBlock) again = get_block(&opened, 0, DATASET_KEEP_BLOCK);
    ck_assert_ptr_eq(first, again);
    g_autoptr(DataBlock) dropped = get_block(&opened, 1, DATASET_KEEP_NOTHING);
    g_autoptr(DataBlock) other = get_block(&opened, 1, DATASET_KEEP_NOTHING);
    ck_assert_ptr_ne(dropped, other);
    g_autoptr(DataBlock) third = get_block(&opened, 1, DATASET_KEEP_NOTHING);
    ck_assert_ptr_eq(other, third);
    for (uint64_t i = 2; i < 6; i++)
        data_block_unref(get_block(&opened, i, DATASET_KEEP_BLOCK));
    g_autoptr(DataBlock) last = get_block(&opened, 5, DATASET_KEEP_BLOCK);
    g_autoptr(DataBlock) too_many = get_block(&opened, 5, DATASET_KEEP_BLOCK);
    ck_assert_ptr_ne(last, too_many);
    close_rows(&opened);
}
END_TEST

/* Bytes that the process has. */
static size_t resident_bytes(void)
{
    unsigned long total, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    ck_assert_int_eq(fscanf(file, "%lu %lu", &total, &resident), 2);
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* 4 MB of text, many times over, in memory for a few blocks of it. */
START_TEST(memory_stays_flat)
{
    const char *sanitizers = getenv("RUBATO_SANITIZE");
    const uint32_t n_rows = 60000;
    Opened opened;
    g_autoptr(RubatoBatch) batch = NULL;
    size_t before = 0, after = 0;

    if (sanitizers != NULL && sanitizers[0] != '\0')
        return; /* they keep what is freed */
    open_rows(&opened, (RowsPacking)_i, n_rows, 1);
    RubatoReader *reader = rubato_dataset_open_reader(
        opened.dataset, &(RubatoReaderOptions){ .epochs = 6, .shuffle = true }, NULL);
    while (rubato_reader_next(reader, &batch, NULL)) {
        if (batch->epoch == 1 && before == 0)
            before = resident_bytes();
        after = resident_bytes();
    }
    ck_assert_uint_gt(before, 0);
    ck_assert_msg(after < before + 2000000, "%zu bytes, then %zu", before, after);
    rubato_reader_free(reader);
    close_rows(&opened);
}
END_TEST

/* ---- bad rows ---- */

START_TEST(bad_rows_are_counted_once)
{
    g_autofree char *path = write_text("rows", "1 1:1\nx\n2 2:2\n3 3:y\n4\n");
    const char *const paths[] = { path, NULL };
    RubatoDataSpec spec = { .paths = paths, .max_bad_rows = 2, .memory_bytes = 1 };
    g_autoptr(RubatoBatch) batch = NULL;
    g_autoptr(GError) error = NULL;
    RubatoDataSummary summary;
    size_t n_rows = 0;

    RubatoDataset *dataset = rubato_dataset_open(&spec, NULL);
    RubatoReader *reader =
        rubato_dataset_open_reader(dataset, &(RubatoReaderOptions){ .epochs = 3 }, NULL);
    while (rubato_reader_next(reader, &batch, &error))
        n_rows += batch->n_rows;
    ck_assert_msg(error == NULL, "%s", error != NULL ? error->message : "");
    ck_assert_uint_eq(n_rows, 9);
    ck_assert(rubato_dataset_summary(dataset, &summary, NULL));
    ck_assert_uint_eq(summary.n_bad_rows, 2);
    ck_assert_uint_eq(summary.n_rows, 3);
    rubato_reader_free(reader);
    rubato_dataset_free(dataset);

    spec.max_bad_rows = 1;
    ck_assert_ptr_null(rubato_dataset_load(&spec, &error));
    ck_assert_ptr_nonnull(strstr(error->message, "rows:4:5: expected"));
}
END_TEST

/* Labels that are words: the cache keeps their places, and the words are learned each time. */
START_TEST(words_of_labels_are_known_with_a_cache)
{
    g_autofree char *path = write_text("rows.csv", "b,1\na,2\nb,3\n");
    const char *const paths[] = { path, NULL };
    const RubatoDataSpec spec = { .paths = paths, .cache = RUBATO_DATA_CACHE_KEEP };

    for (int time = 0; time < 2; time++) {
        g_autoptr(RubatoDataset) dataset = rubato_dataset_open(&spec, NULL);
        g_autoptr(RubatoReader) reader =
            rubato_dataset_open_reader(dataset, &(RubatoReaderOptions){ 0 }, NULL);
        g_autoptr(RubatoBatch) batch = NULL;
        const RubatoDataKeys *keys = rubato_dataset_keys(dataset);

        ck_assert(rubato_reader_next(reader, &batch, NULL));
        ck_assert(batch->label[0] == 1 && batch->label[1] == 0 && batch->label[2] == 1);
        ck_assert_uint_eq(keys->n_label_words, 2);
        ck_assert_str_eq(keys->label_words[0], "a");
        ck_assert_str_eq(keys->label_words[1], "b");
        ck_assert_ptr_null(keys->label_words[2]);
    }
}
END_TEST

/* ---- rows that are set aside ---- */

#define N_DIVIDED 9000u

/* Counts the rows of a dataset of numbered rows, and returns how many there are. */
static uint64_t count_rows(const RubatoDataSpec *spec, _Atomic uint32_t *counts)
{
    g_autoptr(RubatoDataset) dataset = rubato_dataset_open(spec, NULL);
    g_autoptr(RubatoReader) reader =
        rubato_dataset_open_reader(dataset, &(RubatoReaderOptions){ .epochs = 1 }, NULL);
    g_autoptr(RubatoBatch) batch = NULL;
    RubatoDataSummary summary;

    while (rubato_reader_next(reader, &batch, NULL))
        ck_assert_pstr_eq(rows_count(batch, counts, N_DIVIDED), NULL);
    ck_assert(rubato_dataset_summary(dataset, &summary, NULL));
    return summary.n_rows;
}

/* Each row is in one of the two, in the same one each time, with a cache and without, and however
 * the file is packed. */
START_TEST(rows_are_divided_the_same_each_time)
{
    static _Atomic uint32_t counts[N_DIVIDED], again[N_DIVIDED];
    g_autofree char *path = rows_write(dir, "rows.ffm", (RowsPacking)_i, 0, N_DIVIDED);
    const char *const paths[] = { path, NULL };
    RubatoDataSpec others = { .paths = paths, .held_out = 0.25, .cache = RUBATO_DATA_CACHE_KEEP };
    const RubatoDataSpec held = { .paths = paths, .held_out = 0.25, .only_held_out = true };
    const uint64_t n_held = count_rows(&held, counts);

    ck_assert_uint_eq(count_rows(&others, counts) + n_held, N_DIVIDED);
    ck_assert(rows_all_counted(counts, N_DIVIDED, 1));
    /* a fair coin has a deviation of 41 here */
    ck_assert_msg(n_held > N_DIVIDED / 4 - 200 && n_held < N_DIVIDED / 4 + 200,
                  "%" G_GUINT64_FORMAT, n_held);
    (void)count_rows(&others, again); /* from the cache */
    others.cache = RUBATO_DATA_CACHE_NONE;
    (void)count_rows(&others, again);
    (void)count_rows(&held, again);
    (void)count_rows(&held, again);
    ck_assert(rows_all_counted(again, N_DIVIDED, 2));
    g_autoptr(RubatoRows) whole = rubato_dataset_load(&held, NULL);
    ck_assert_uint_eq(whole->n_rows, n_held);
}
END_TEST

/* Equal rows are not all on one side, nor are files of one row. */
START_TEST(equal_rows_and_files_of_one_row_are_divided)
{
    g_autoptr(GString) text = g_string_new(NULL);
    g_autoptr(GPtrArray) paths = g_ptr_array_new_with_free_func(g_free);
    uint32_t n_held = 0;

    for (int i = 0; i < 400; i++)
        g_string_append(text, "1 7:1\n");
    for (int i = 0; i < 40; i++) {
        g_autofree char *name = g_strdup_printf("one-%d", i);
        g_autofree char *row = g_strdup_printf("%d 7:1\n", i);

        g_ptr_array_add(paths, write_text(name, row));
    }
    g_ptr_array_add(paths, NULL);
    g_autoptr(RubatoRows) equal =
        load_good(&(RubatoDataSpec){ .held_out = 0.5, .only_held_out = true }, text->str);
    ck_assert(equal->n_rows > 150 && equal->n_rows < 250);

    const RubatoDataSpec spec = { .paths = (const char *const *)paths->pdata, .held_out = 0.5 };
    g_autoptr(RubatoRows) ones = rubato_dataset_load(&spec, NULL);
    n_held = 40 - (uint32_t)ones->n_rows;
    ck_assert_msg(n_held > 5 && n_held < 35, "%u", n_held);
}
END_TEST

/* ---- codes of categories, which all rows decide ---- */

START_TEST(codes_are_learnt_once_and_kept_in_the_cache)
{
    g_autofree char *path = write_text("rows.csv", "1,a,b\n2,c,a\n3,a,d\n");
    const char *const paths[] = { path, NULL };
    const char *const columns[] = { "1", "2", NULL };
    const RubatoDataSpec spec = { .paths = paths,
                                  .categorical_columns = columns,
                                  .categories = RUBATO_CATEGORIES_CODED,
                                  .cache = RUBATO_DATA_CACHE_KEEP };
    g_autofree char *cache = g_strconcat(path, ".rubato-cache", NULL);
    g_autofree char *bytes = NULL;
    g_autoptr(GError) error = NULL;
    gsize size;

    for (int time = 0; time < 3; time++) {
        RubatoDataset *dataset = rubato_dataset_open(&spec, NULL);
        RubatoReader *reader =
            rubato_dataset_open_reader(dataset, &(RubatoReaderOptions){ 0 }, NULL);
        RubatoBatch *batch = NULL;

        if (time < 2) {
            ck_assert(rubato_reader_next(reader, &batch, NULL));
            ck_assert_uint_eq(batch->n_keys, 5);
            for (size_t i = 0; i < 5; i++)
                ck_assert_uint_eq(batch->keys[i], 3 + i);
            rubato_batch_free(batch);
        } else {
            /* what it would be read from instead was not learnt from */
            ck_assert(!rubato_reader_next(reader, &batch, &error));
            ck_assert_ptr_nonnull(strstr(error->message, "start once more"));
        }
        rubato_reader_free(reader);
        rubato_dataset_free(dataset);
        if (time == 1) {
            ck_assert(g_file_get_contents(cache, &bytes, &size, NULL));
            bytes[size / 2] ^= 1;
            ck_assert(g_file_set_contents(cache, bytes, (gssize)size, NULL));
        }
    }
    ck_assert(!g_file_test(cache, G_FILE_TEST_EXISTS));
}
END_TEST

/* ---- where a row is ---- */

static const struct {
    const char *name, *text;
    const char *place; /* of label 3, behind the name; NULL: nowhere */
} labels[] = {
    { "a.svm", "1 1:1\n# 3\n\n2 1:3\n3 7:1\n3 8:1\n", ":5" },
    { "a.svm", "3", ":1" },
    { "a.svm", "1 1:1\n3 1:x\r\n3 1:1\r\n", ":3" }, /* the second cannot be read */
    { "a.svm", "1 1:1\n", NULL },
    { "a.csv", "y,a\n1,3\n\"3\",1\n", ":3" },
    { "a.bow", "4\n9\n5\n1 1 1\n2 1 1\n2 2 1\n3 1 1\n3 2 1\n", ":7" },
    { "a.ratings", "1 2 4.5\n2 2 3\n", ":2" },
};

START_TEST(a_row_is_found_by_its_label)
{
    g_autofree char *path = write_text(labels[_i].name, labels[_i].text);
    const char *const paths[] = { path, NULL };
    const RubatoDataSpec spec = { .paths = paths, .max_bad_rows = 1 };
    g_autoptr(RubatoDataset) dataset = rubato_dataset_open(&spec, NULL);
    g_autofree char *place = rubato_dataset_find_label(dataset, 3);

    if (labels[_i].place == NULL)
        ck_assert_ptr_null(place);
    else {
        ck_assert_ptr_nonnull(place);
        ck_assert_str_eq(place + strlen(path), labels[_i].place);
    }
}
END_TEST

START_TEST(an_image_is_found_by_its_label)
{
    static const char pixels[] = "\0\0\x08\x03\0\0\0\x03\0\0\0\x01\0\0\0\x02"
                                 "abcdef";
    static const char labels_of[] = "\0\0\x08\x01\0\0\0\x03"
                                    "\x05\x03\x03";
    g_autofree char *images = g_build_filename(dir, "images.idx", NULL);
    g_autofree char *label_file = g_build_filename(dir, "labels", NULL);
    g_autofree char *expected = g_strdup_printf("%s: byte 18", images);
    const char *const paths[] = { images, NULL };
    const RubatoDataSpec spec = { .paths = paths, .labels_path = label_file };

    ck_assert(g_file_set_contents(images, pixels, sizeof pixels - 1, NULL));
    ck_assert(g_file_set_contents(label_file, labels_of, sizeof labels_of - 1, NULL));
    g_autoptr(RubatoDataset) dataset = rubato_dataset_open(&spec, NULL);
    g_autofree char *place = rubato_dataset_find_label(dataset, 3);
    ck_assert_pstr_eq(place, expected);
}
END_TEST

/* In the second of two files, of many blocks, however they are packed, and with a cache. */
START_TEST(a_row_is_found_in_a_large_file)
{
    g_autofree char *first = rows_write(dir, "first.ffm", ROWS_PLAIN, 0, 1000);
    g_autofree char *second = rows_write(dir, "second.ffm", (RowsPacking)_i, 1000, 9000);
    g_autofree char *expected = g_strdup_printf("%s:8000", second);
    const char *const paths[] = { first, second, NULL };
    const RubatoDataSpec spec = { .paths = paths, .cache = RUBATO_DATA_CACHE_KEEP };
    g_autoptr(RubatoDataset) dataset = rubato_dataset_open(&spec, NULL);
    g_autofree char *place = rubato_dataset_find_label(dataset, 8999);

    ck_assert_pstr_eq(place, expected);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("dataset");
    TCase *cases = tcase_create("datasets");

    tcase_set_timeout(cases, 20);
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_loop_test(cases, keys_are_numbered_in_their_order, 0, G_N_ELEMENTS(key_sets));
    tcase_add_test(cases, globs_mean_files_in_their_order);
    tcase_add_test(cases, a_file_may_have_a_name_like_a_glob);
    tcase_add_test(cases, missing_files_may_be_skipped);
    tcase_add_loop_test(cases, specs_that_make_no_sense_are_refused, 0, G_N_ELEMENTS(bad_specs));
    tcase_add_loop_test(cases, blocks_are_the_same_in_any_order, 0, ROWS_N_PACKINGS);
    tcase_add_loop_test(cases, blocks_are_kept_as_long_as_there_is_room, 0, 2);
    tcase_add_loop_test(cases, memory_stays_flat, 0, ROWS_N_PACKINGS);
    tcase_add_test(cases, bad_rows_are_counted_once);
    tcase_add_test(cases, words_of_labels_are_known_with_a_cache);
    tcase_add_loop_test(cases, rows_are_divided_the_same_each_time, 0, ROWS_N_PACKINGS);
    tcase_add_test(cases, equal_rows_and_files_of_one_row_are_divided);
    tcase_add_test(cases, codes_are_learnt_once_and_kept_in_the_cache);
    tcase_add_loop_test(cases, a_row_is_found_by_its_label, 0, G_N_ELEMENTS(labels));
    tcase_add_test(cases, an_image_is_found_by_its_label);
    tcase_add_loop_test(cases, a_row_is_found_in_a_large_file, 0, ROWS_N_PACKINGS);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
