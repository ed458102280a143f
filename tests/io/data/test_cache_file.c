/* Caches of data: they are made, used, made again if something has changed, and not used if they
 * are damaged. */
#include "io/data/cache_file.h"

#include <fcntl.h>
#include <glib/gstdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/data/cache_writer.h"
#include "io/data/dataset.h"
#include "tests/support/data/data_rows.h"
#include "tests/support/data/data_text.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

#define N_ROWS 3000u

static char *dir, *path, *cache_path;

static void set_up(void)
{
    dir = g_dir_make_tmp("rubato-cache-XXXXXX", NULL);
    path = rows_write(dir, "rows.ffm", ROWS_PLAIN, 0, N_ROWS);
    cache_path = g_strconcat(path, ".rubato-cache", NULL);
}

static void tear_down(void)
{
    remove_files(dir);
    g_free(dir);
    g_free(path);
    g_free(cache_path);
}

static RubatoDataSpec cached(void)
{
    static const char *paths[2];

    paths[0] = path;
    return (RubatoDataSpec){ .paths = paths, .cache = RUBATO_DATA_CACHE_KEEP };
}

/* Reads all rows. They are known by their labels; without, they are only as many. */
static void read_all(const RubatoDataSpec *spec)
{
    g_autofree _Atomic uint32_t *counts = g_malloc0_n(N_ROWS, sizeof *counts);
    g_autoptr(RubatoBatch) batch = NULL;
    g_autoptr(GError) error = NULL;
    RubatoDataset *dataset = rubato_dataset_open(spec, &error);
    size_t n_rows = 0;

    ck_assert_msg(dataset != NULL, "%s", error != NULL ? error->message : "");
    RubatoReader *reader =
        rubato_dataset_open_reader(dataset, &(RubatoReaderOptions){ .shuffle = true }, &error);
    while (rubato_reader_next(reader, &batch, &error)) {
        const char *fault = spec->skip_labels ? NULL : rows_count(batch, counts, N_ROWS);

        n_rows += batch->n_rows;
        require_msg(fault == NULL, "%s", fault);
    }
    ck_assert_msg(error == NULL, "%s", error != NULL ? error->message : "");
    ck_assert_uint_eq(n_rows, N_ROWS);
    ck_assert(spec->skip_labels || rows_all_counted(counts, N_ROWS, 1));
    rubato_reader_free(reader);
    rubato_dataset_free(dataset);
}

/* What distinguishes a cache file from another one in its place. */
static struct stat cache_identity(void)
{
    struct stat status;

    ck_assert_int_eq(stat(cache_path, &status), 0);
    return status;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static unsigned count_files(void)
{
    g_autoptr(GDir) files = g_dir_open(dir, 0, NULL);
    unsigned n = 0;

    while (g_dir_read_name(files) != NULL)
        n++;
    return n;
}

START_TEST(cache_is_made_once_and_used)
{
    const RubatoDataSpec spec = cached();

    read_all(&spec);
    const struct stat first = cache_identity();
    /* the input's rows are not read again: they may be gone, as long as its size and time agree
     * (its beginning tells whether its labels are words) */
    struct stat status;
    ck_assert_int_eq(stat(path, &status), 0);
    g_autofree char *blanks = g_strnfill((gsize)status.st_size, '\n');
    const int fd = open(path, O_WRONLY);
    ck_assert_int_eq(write(fd, blanks, (size_t)status.st_size), status.st_size);
    close(fd);
    ck_assert_int_eq(
        utimensat(AT_FDCWD, path, (const struct timespec[]){ status.st_atim, status.st_mtim }, 0),
        0);
    read_all(&spec);
    const struct stat second = cache_identity();
    ck_assert(same_file(&first, &second));
    ck_assert_uint_eq(count_files(), 2);
}
END_TEST

START_TEST(cache_tells_what_the_data_set_holds)
{
    const RubatoDataSpec spec = cached();
    RubatoDataSummary plain, made, kept;
    RubatoDataSpec without = spec;

    without.cache = RUBATO_DATA_CACHE_NONE;
    const RubatoDataSpec *const specs[] = { &without, &spec, &spec };
    RubatoDataSummary *const summaries[] = { &plain, &made, &kept };
    for (size_t i = 0; i < G_N_ELEMENTS(specs); i++) {
        RubatoDataset *dataset = rubato_dataset_open(specs[i], NULL);

        ck_assert(rubato_dataset_summary(dataset, summaries[i], NULL));
        rubato_dataset_free(dataset);
        ck_assert_uint_eq(summaries[i]->n_rows, N_ROWS);
        ck_assert_uint_eq(summaries[i]->n_entries, plain.n_entries);
        ck_assert_uint_eq(summaries[i]->max_key, plain.max_key);
        ck_assert_uint_eq(summaries[i]->n_fields, 8);
        ck_assert_float_eq(summaries[i]->min_label, 0);
        ck_assert_float_eq(summaries[i]->max_label, N_ROWS - 1);
    }
    RubatoRows *rows = rubato_dataset_load(&spec, NULL);
    ck_assert_uint_eq(rows->n_rows, plain.n_rows);
    ck_assert_uint_eq(rows->n_entries, plain.n_entries);
    ck_assert_uint_eq(rows->max_key, plain.max_key);
    ck_assert_uint_eq(rows->n_fields, plain.n_fields);
    rubato_rows_free(rows);
}
END_TEST

/* A cache that is shortened does not end the process that reads it: the rows come from the
 * input. */
START_TEST(cache_may_become_shorter_while_it_is_read)
{
    RubatoDataSpec spec = cached();
    g_autofree _Atomic uint32_t *counts = g_malloc0_n(N_ROWS, sizeof *counts);
    g_autoptr(RubatoBatch) batch = NULL;
    g_autoptr(GError) error = NULL;
    unsigned n_batches = 0;

    read_all(&spec); /* makes it */
    spec.memory_bytes = _i % 2 == 0 ? 0 : 1;
    RubatoDataset *dataset = rubato_dataset_open(&spec, &error);
    ck_assert_ptr_nonnull(dataset);
    RubatoReader *reader =
        rubato_dataset_open_reader(dataset, &(RubatoReaderOptions){ .batch_rows = 100 }, &error);
    ck_assert_ptr_nonnull(reader);
    if (_i < 2)
        ck_assert_int_eq(truncate(cache_path, 100), 0);
    while (rubato_reader_next(reader, &batch, &error)) {
        const char *fault;

        if (_i >= 2 && n_batches++ == 1)
            ck_assert_int_eq(truncate(cache_path, 0), 0);
        fault = rows_count(batch, counts, N_ROWS);
        require_msg(fault == NULL, "%s", fault);
    }
    ck_assert_msg(error == NULL, "%s", error != NULL ? error->message : "");
    ck_assert(rows_all_counted(counts, N_ROWS, 1));
    rubato_reader_free(reader);
    rubato_dataset_free(dataset);
}
END_TEST

/* Changes after which a cache no longer fits. */
static void touch_input(RubatoDataSpec *spec)
{
    (void)spec;
    ck_assert_int_eq(utimensat(AT_FDCWD, path, (const struct timespec[]){ { 1, 0 }, { 1, 0 } }, 0),
                     0);
}

static void ask_for_other_columns(RubatoDataSpec *spec)
{
    spec->label_column = "2"; /* libffm has no columns, but the spec is another */
}

static void skip_labels(RubatoDataSpec *spec)
{
    spec->skip_labels = true;
}

static void ask_for_the_columns_of_a_model(RubatoDataSpec *spec)
{
    static const RubatoDataKeys keys = { .format = "libffm", .label_column = RUBATO_NO_COLUMN };

    spec->skip_labels = true;
    spec->keys = &keys;
}

static void write_other_rubbish(RubatoDataSpec *spec)
{
    (void)spec;
    ck_assert(g_file_set_contents(cache_path, "no cache of ours", -1, NULL));
}

static void write_nothing(RubatoDataSpec *spec)
{
    (void)spec;
    ck_assert(g_file_set_contents(cache_path, "", 0, NULL));
}

static void cut_end(RubatoDataSpec *spec)
{
    const struct stat status = cache_identity();

    (void)spec;
    ck_assert_int_eq(truncate(cache_path, status.st_size - 1), 0);
}

static void lengthen(RubatoDataSpec *spec)
{
    const struct stat status = cache_identity();

    (void)spec;
    ck_assert_int_eq(truncate(cache_path, status.st_size + 24), 0);
}

/* Flips a bit in the middle of the index. */
static void damage_index(RubatoDataSpec *spec)
{
    g_autofree char *bytes = NULL;
    gsize size;

    (void)spec;
    ck_assert(g_file_get_contents(cache_path, &bytes, &size, NULL));
    bytes[size - 9] ^= 4;
    ck_assert(g_file_set_contents(cache_path, bytes, (gssize)size, NULL));
}

static void damage_header(RubatoDataSpec *spec)
{
    g_autofree char *bytes = NULL;
    gsize size;

    (void)spec;
    ck_assert(g_file_get_contents(cache_path, &bytes, &size, NULL));
    bytes[8]++; /* the version */
    ck_assert(g_file_set_contents(cache_path, bytes, (gssize)size, NULL));
}

static void (*const changes[])(RubatoDataSpec *spec) = {
    touch_input,
    ask_for_other_columns,
    write_other_rubbish,
    write_nothing,
    cut_end,
    lengthen,
    damage_index,
    damage_header,
    skip_labels,
    ask_for_the_columns_of_a_model,
};

START_TEST(cache_that_does_not_fit_is_made_anew)
{
    RubatoDataSpec spec = cached();

    read_all(&spec);
    const struct stat first = cache_identity();
    changes[_i](&spec);
    const struct stat changed = cache_identity();
    read_all(&spec);
    const struct stat second = cache_identity();
    ck_assert(!same_file(&first, &second) && !same_file(&changed, &second));
    ck_assert_int_eq(second.st_size, first.st_size);
    read_all(&spec);
    const struct stat third = cache_identity();
    ck_assert(same_file(&second, &third));
    ck_assert_uint_eq(count_files(), 2);
}
END_TEST

START_TEST(cache_whose_input_has_grown_is_made_anew)
{
    const RubatoDataSpec spec = cached();
    RubatoDataSummary summary;
    FILE *file;

    read_all(&spec);
    file = fopen(path, "a");
    fputs("7 1:2:3", file);
    fclose(file);
    RubatoDataset *dataset = rubato_dataset_open(&spec, NULL);
    ck_assert(rubato_dataset_summary(dataset, &summary, NULL));
    ck_assert_uint_eq(summary.n_rows, N_ROWS + 1);
    rubato_dataset_free(dataset);
}
END_TEST

/* Damage anywhere in a block: the rows come from the input, and the next dataset makes the cache
 * anew. */
START_TEST(damaged_block_is_read_from_the_input)
{
    const RubatoDataSpec spec = cached();
    g_autofree char *bytes = NULL;
    gsize size;

    log_capture_start();
    read_all(&spec);
    ck_assert(g_file_get_contents(cache_path, &bytes, &size, NULL));
    bytes[size * (gsize)(_i + 1) / 8] ^= 16;
    ck_assert(g_file_set_contents(cache_path, bytes, (gssize)size, NULL));
    read_all(&spec);
    ck_assert_uint_eq(log_capture_count("is damaged and was removed; reading"), 1);
    ck_assert(!g_file_test(cache_path, G_FILE_TEST_EXISTS));
    read_all(&spec);
    cache_identity();
}
END_TEST

/* A block whose header claims more than it has is refused even if its checksum is right. */
START_TEST(block_that_is_not_sound_is_refused)
{
    RowBlock rows;
    KeyCoder coder;
    bool released = false;

    row_block_init(&rows, /* has_fields= */ true);
    key_coder_init(&coder);
    ck_assert(row_block_want_rows(&rows, 2) && row_block_want_entries(&rows, 3));
    for (uint32_t i = 0; i < 3; i++) {
        rows.key[i] = 10 + i;
        rows.field[i] = i;
        rows.value[i] = 2;
        rows.n_entries++;
        if (i > 0)
            row_block_end_row(&rows, 1);
    }
    DataBlock *block = data_block_new(&rows, 0, &coder);
    const size_t size = block->image_bytes;
    for (size_t at = 0; at < size; at++) {
        g_autofree char *image = g_memdup2(block->head, size);

        image[at] ^= 0x40;
        DataBlock *other = data_block_new_image(image, size, IMAGE_NEW, &released, NULL);
        if (other == NULL)
            continue;
        /* labels, fields, values, what is only told; nothing that leads outside */
        require_msg(other->row_start[other->head->n_rows] == other->head->n_entries, "byte %zu",
                    at);
        for (size_t e = 0; e < other->head->n_entries; e++)
            require_msg(other->index[e] < other->head->n_keys, "byte %zu", at);
        require_msg(other->image_bytes <= size, "byte %zu", at);
        g_free(other);
    }
    for (size_t cut = 0; cut < size; cut++)
        require_msg(data_block_new_image(block->head, cut, IMAGE_NEW, NULL, NULL) == NULL,
                    "%zu bytes", cut);
    data_block_unref(block);
    row_block_clear(&rows);
    key_coder_clear(&coder);
}
END_TEST

START_TEST(folder_that_cannot_be_written_is_told_once)
{
    RubatoDataSpec spec = cached();
    g_autofree char *second = rows_write(dir, "second.ffm", ROWS_PLAIN, 0, 10);
    g_autofree char *nowhere = g_build_filename(dir, "nowhere", NULL);
    const char *const paths[] = { path, second, NULL };
    RubatoDataSummary summary;

    log_capture_start();
    spec.paths = paths;
    spec.cache_directory = nowhere;
    RubatoDataset *dataset = rubato_dataset_open(&spec, NULL);
    ck_assert_ptr_nonnull(dataset);
    ck_assert(rubato_dataset_summary(dataset, &summary, NULL));
    ck_assert_uint_eq(summary.n_rows, N_ROWS + 10);
    ck_assert_uint_eq(log_capture_count("cannot be written"), 1);
    ck_assert_uint_eq(log_capture_count("going on without a cache"), 1);
    rubato_dataset_free(dataset);
}
END_TEST

START_TEST(caches_of_one_folder_are_kept_apart)
{
    RubatoDataSpec spec = cached();
    g_autofree char *folder = g_build_filename(dir, "caches", NULL);
    g_autofree char *other_dir = g_build_filename(dir, "other", NULL);

    ck_assert(g_mkdir(folder, 0777) == 0 && g_mkdir(other_dir, 0777) == 0);
    g_autofree char *other = rows_write(other_dir, "rows.ffm", ROWS_GZIP, 0, 20);
    const char *const paths[] = { path, other, NULL };
    spec.paths = paths;
    spec.cache_directory = folder;
    rubato_dataset_free(rubato_dataset_open(&spec, NULL));
    g_autoptr(GDir) files = g_dir_open(folder, 0, NULL);
    unsigned n = 0;
    for (const char *name; (name = g_dir_read_name(files)) != NULL; n++)
        ck_assert(g_str_has_prefix(name, "rows.ffm-") && g_str_has_suffix(name, ".rubato-cache"));
    ck_assert_uint_eq(n, 2);
    remove_files(folder);
    remove_files(other_dir);
}
END_TEST

START_TEST(bad_rows_count_with_a_cache_too)
{
    RubatoDataSpec spec = cached();
    RubatoDataSummary summary;
    g_autoptr(GError) error = NULL;

    ck_assert(g_file_set_contents(path, "1 0:1:1\nx\n2 0:1:1\ny\n", -1, NULL));
    spec.max_bad_rows = 2;
    for (int i = 0; i < 2; i++) {
        RubatoDataset *dataset = rubato_dataset_open(&spec, NULL);

        ck_assert(rubato_dataset_summary(dataset, &summary, NULL));
        ck_assert_uint_eq(summary.n_rows, 2);
        ck_assert_uint_eq(summary.n_bad_rows, 2);
        rubato_dataset_free(dataset);
    }
    spec.max_bad_rows = 1;
    ck_assert_ptr_null(rubato_dataset_open(&spec, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT));
    ck_assert_ptr_nonnull(strstr(error->message, "rows.ffm:4:1: expected"));
}
END_TEST

/* Several processes open the dataset at once, none of them with a cache. */
START_TEST(cache_is_made_by_one_of_several_processes)
{
    const RubatoDataSpec spec = cached();
    pid_t children[4];

    for (size_t i = 0; i < G_N_ELEMENTS(children); i++) {
        children[i] = fork();
        if (children[i] == 0) {
            RubatoDataset *dataset = rubato_dataset_open(&spec, NULL);

            _exit(dataset != NULL && dataset_in_any_order(dataset, 0) ? 0 : 1);
        }
    }
    for (size_t i = 0; i < G_N_ELEMENTS(children); i++) {
        int status;

        ck_assert_int_eq(waitpid(children[i], &status, 0), children[i]);
        ck_assert_int_eq(status, 0);
    }
    ck_assert_uint_eq(count_files(), 2);
    read_all(&spec);
}
END_TEST

/* ---- blocks in memory ---- */

enum { N_BLOCKS = 4 };

/* A cache of blocks with one row each, whose label is the block's number. */
static CacheFile *open_cache_of_rows(uint64_t resident_bytes)
{
    const CacheKey key = { .input_bytes = 1 };
    CacheWriter *writer = cache_writer_new(cache_path, &key, NULL);
    RowBlock rows;
    KeyCoder coder;

    ck_assert_ptr_nonnull(writer);
    row_block_init(&rows, /* has_fields= */ true);
    key_coder_init(&coder);
    for (uint64_t number = 0; number < N_BLOCKS; number++) {
        row_block_reset(&rows);
        ck_assert(row_block_want_rows(&rows, 1) && row_block_want_entries(&rows, number + 1));
        for (uint32_t i = 0; i <= number; i++) { /* blocks differ in size */
            rows.key[i] = i;
            rows.field[i] = 0;
            rows.value[i] = 1;
            rows.n_entries++;
        }
        row_block_end_row(&rows, (float)number);
        g_autoptr(DataBlock) block = data_block_new(&rows, 0, &coder);
        ck_assert(cache_writer_add(writer, number, block, NULL));
    }
    ck_assert(cache_writer_finish(writer, N_BLOCKS, NULL));
    cache_writer_free(writer);
    row_block_clear(&rows);
    key_coder_clear(&coder);
    CacheFile *const cache = cache_file_open(cache_path, &key, resident_bytes);
    ck_assert_ptr_nonnull(cache);
    return cache;
}

static bool is_block(const DataBlock *block, uint64_t number)
{
    return block != NULL && block->head->n_rows == 1 && block->head->n_entries == number + 1 &&
           block->label[0] == (float)number;
}

/* Blocks that are in use at the same time do not share memory, one that was given back makes room
 * for the next, and each may stay longer than the cache. */
START_TEST(memory_of_a_block_is_used_again_once_it_was_given_back)
{
    CacheFile *const cache = open_cache_of_rows(/* resident_bytes= */ 0);
    DataBlock *const first = cache_file_block(cache, 0, DATASET_KEEP_NOTHING);
    DataBlock *const second = cache_file_block(cache, 3, DATASET_KEEP_BLOCK);
    const void *const memory = second->head;

    ck_assert(is_block(first, 0) && is_block(second, 3));
    data_block_unref(second);
    DataBlock *const third = cache_file_block(cache, 1, DATASET_KEEP_NOTHING);
    ck_assert_ptr_eq(third->head, memory);
    cache_file_unref(cache);
    ck_assert(is_block(first, 0) && is_block(third, 1));
    data_block_unref(first);
    data_block_unref(third);
}
END_TEST

START_TEST(block_stays_in_memory_if_asked_for_or_if_read_again)
{
    CacheFile *const cache = open_cache_of_rows(/* resident_bytes= */ 1 << 20);
    DataBlock *const asked = cache_file_block(cache, 2, DATASET_KEEP_BLOCK);
    DataBlock *const once = cache_file_block(cache, 1, DATASET_KEEP_NOTHING);
    DataBlock *const twice = cache_file_block(cache, 1, DATASET_KEEP_NOTHING);

    ck_assert_ptr_eq(cache_file_block(cache, 2, DATASET_KEEP_NOTHING), asked);
    ck_assert_ptr_ne(once, twice);
    ck_assert_ptr_eq(cache_file_block(cache, 1, DATASET_KEEP_NOTHING), twice);
    ck_assert(is_block(asked, 2) && is_block(once, 1) && is_block(twice, 1));
    data_block_unref(asked);
    data_block_unref(asked);
    data_block_unref(once);
    data_block_unref(twice);
    data_block_unref(twice);
    cache_file_unref(cache);
}
END_TEST

/* A block whose bytes are damaged is refused also where another one was sound before. */
START_TEST(damaged_block_is_refused_in_used_memory)
{
    CacheFile *const cache = open_cache_of_rows(/* resident_bytes= */ 0);
    DataBlock *block = cache_file_block(cache, 3, DATASET_KEEP_NOTHING);
    g_autofree char *bytes = NULL;
    gsize size;

    ck_assert(is_block(block, 3));
    data_block_unref(block);
    ck_assert(g_file_get_contents(cache_path, &bytes, &size, NULL));
    const int fd = open(cache_path, O_WRONLY);
    for (gsize at = 0; at < size; at++) {
        const char damaged = (char)(bytes[at] ^ 1);
        ck_assert_int_eq(pwrite(fd, &damaged, 1, (off_t)at), 1);
    }
    close(fd);
    for (uint64_t number = 0; number < N_BLOCKS; number++)
        ck_assert_ptr_null(cache_file_block(cache, number, DATASET_KEEP_NOTHING));
    cache_file_unref(cache);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cache file");
    TCase *cases = tcase_create("caches");

    tcase_set_timeout(cases, 20);
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, cache_is_made_once_and_used);
    tcase_add_test(cases, cache_tells_what_the_data_set_holds);
    tcase_add_loop_test(cases, cache_may_become_shorter_while_it_is_read, 0, 4);
    tcase_add_loop_test(cases, cache_that_does_not_fit_is_made_anew, 0, G_N_ELEMENTS(changes));
    tcase_add_test(cases, cache_whose_input_has_grown_is_made_anew);
    tcase_add_loop_test(cases, damaged_block_is_read_from_the_input, 0, 7);
    tcase_add_test(cases, block_that_is_not_sound_is_refused);
    tcase_add_test(cases, folder_that_cannot_be_written_is_told_once);
    tcase_add_test(cases, caches_of_one_folder_are_kept_apart);
    tcase_add_test(cases, bad_rows_count_with_a_cache_too);
    tcase_add_test(cases, cache_is_made_by_one_of_several_processes);
    tcase_add_test(cases, memory_of_a_block_is_used_again_once_it_was_given_back);
    tcase_add_test(cases, block_stays_in_memory_if_asked_for_or_if_read_again);
    tcase_add_test(cases, damaged_block_is_refused_in_used_memory);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
