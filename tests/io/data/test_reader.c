/* Readers: one of them gets each row in each epoch, batches are as rubato/data.h promises, shuffles
 * depend on their seed, and how a reader ends. */
#include "io/data/deal/reader.h"

#include <string.h>
#include <unistd.h>

#include "tests/support/data/data_rows.h"
#include "tests/support/data/data_text.h"
#include "tests/support/runner.h"

#define N_ROWS 5000u
#define MOST_FILES 4u

/* A folder with the rows in files. */
typedef struct {
    char *dir;
    char *paths[MOST_FILES + 1];
} Files;

static Files write_files(unsigned n_files, RowsPacking packing)
{
    Files files = { .dir = g_dir_make_tmp("rubato-reader-XXXXXX", NULL) };
    uint32_t first = 0;

    for (unsigned i = 0; i < n_files; i++) {
        /* of different sizes */
        const uint32_t end = N_ROWS * (i + 1) * (i + 2) / (n_files * (n_files + 1));
        g_autofree char *name = g_strdup_printf("rows-%u.ffm", i);

        files.paths[i] = rows_write(files.dir, name, packing, first, end - first);
        first = end;
    }
    return files;
}

static void remove_all(Files *files)
{
    remove_files(files->dir);
    for (unsigned i = 0; i < MOST_FILES; i++)
        g_free(files->paths[i]);
    g_free(files->dir);
}

static RubatoDataSpec spec_of(const Files *files)
{
    return (RubatoDataSpec){ .paths = (const char *const *)files->paths, .format = "libffm" };
}

static RubatoDataset *open_dataset(const RubatoDataSpec *spec)
{
    g_autoptr(GError) error = NULL;
    RubatoDataset *dataset = rubato_dataset_open(spec, &error);

    ck_assert_msg(dataset != NULL, "%s", error != NULL ? error->message : "no error set");
    return dataset;
}

/* The share of one worker. */
static RubatoReader *open_share(RubatoDataset *dataset, const RubatoReaderOptions *options,
                                uint32_t rank, uint32_t n_workers)
{
    RubatoReaderOptions filled;

    ck_assert(reader_options_fill(options, &filled, NULL));
    return reader_new(dataset, &filled, fixed_split_new(dataset, &filled, rank, n_workers), NULL,
                      NULL);
}

static size_t read_all(RubatoReader *reader, _Atomic uint32_t *counts, uint32_t batch_rows)
{
    g_autoptr(RubatoBatch) batch = NULL;
    g_autoptr(GError) error = NULL;
    size_t n_rows = 0;

    while (rubato_reader_next(reader, &batch, &error)) {
        const char *fault = rows_count(batch, counts, N_ROWS);

        require_msg(fault == NULL, "%s", fault);
        require_msg(batch->n_rows <= batch_rows, "%zu rows", batch->n_rows);
        n_rows += batch->n_rows;
    }
    ck_assert_msg(error == NULL, "%s", error != NULL ? error->message : "");
    ck_assert(!rubato_reader_failed(reader));
    ck_assert_ptr_null(batch);
    return n_rows;
}

static const struct {
    unsigned n_files;
    RowsPacking packing;
    uint32_t n_workers, batch_rows, epochs;
    bool shuffle, cache;
    uint64_t memory_bytes;
} splits[] = {
    { 1, ROWS_PLAIN, 1, 256, 1, false, false, 0 }, { 1, ROWS_PLAIN, 3, 100, 2, true, false, 0 },
    { 4, ROWS_PLAIN, 2, 7, 1, true, false, 1 },    { 1, ROWS_PLAIN, 40, 64, 3, true, false, 0 },
    { 1, ROWS_GZIP, 1, 999, 2, true, false, 1 },   { 1, ROWS_ZSTD, 3, 100, 2, true, false, 1 },
    { 4, ROWS_GZIP, 3, 300, 2, true, false, 0 },   { 2, ROWS_ZSTD, 3, 50, 3, false, false, 0 },
    { 1, ROWS_PLAIN, 3, 200, 2, true, true, 0 },   { 4, ROWS_ZSTD, 3, 200, 2, true, true, 1 },
    { 1, ROWS_GZIP, 2, 5000, 2, true, true, 0 },
};

START_TEST(every_row_comes_to_one_worker_in_each_epoch)
{
    Files files = write_files(splits[_i].n_files, splits[_i].packing);
    RubatoDataSpec spec = spec_of(&files);
    const RubatoReaderOptions options = { .epochs = splits[_i].epochs,
                                          .batch_rows = splits[_i].batch_rows,
                                          .shuffle = splits[_i].shuffle,
                                          .seed = (uint64_t)_i };
    g_autofree _Atomic uint32_t *counts = g_malloc0_n(N_ROWS, sizeof *counts);

    spec.cache = splits[_i].cache ? RUBATO_DATA_CACHE_KEEP : RUBATO_DATA_CACHE_NONE;
    spec.memory_bytes = splits[_i].memory_bytes;
    RubatoDataset *dataset = open_dataset(&spec);
    for (uint32_t rank = 0; rank < splits[_i].n_workers; rank++) {
        RubatoReader *reader = open_share(dataset, &options, rank, splits[_i].n_workers);
        const size_t n_rows = read_all(reader, counts, splits[_i].batch_rows);

        /* shares are even where there is something to share */
        if (splits[_i].n_files == 1 && splits[_i].n_workers <= 3)
            require_msg(n_rows * splits[_i].n_workers > N_ROWS * splits[_i].epochs / 2,
                        "worker %u has only %zu rows", rank, n_rows);
        rubato_reader_free(reader);
    }
    ck_assert(rows_all_counted(counts, N_ROWS, splits[_i].epochs));
    rubato_dataset_free(dataset);
    remove_all(&files);
}
END_TEST

/* The labels in the order in which they come, over all epochs. (transfer full) */
static GArray *read_order(RubatoDataset *dataset, const RubatoReaderOptions *options)
{
    RubatoReader *reader = rubato_dataset_open_reader(dataset, options, NULL);
    GArray *order = g_array_new(FALSE, FALSE, sizeof(float));
    g_autoptr(RubatoBatch) batch = NULL;

    while (rubato_reader_next(reader, &batch, NULL))
        g_array_append_vals(order, batch->label, (guint)batch->n_rows);
    rubato_reader_free(reader);
    return order;
}

static bool same_order(const GArray *a, const GArray *b)
{
    return a->len == b->len && memcmp(a->data, b->data, a->len * sizeof(float)) == 0;
}

START_TEST(rows_come_in_order_unless_shuffled)
{
    Files files = write_files(2, _i == 0 ? ROWS_PLAIN : ROWS_GZIP);
    const RubatoDataSpec spec = spec_of(&files);
    RubatoDataset *dataset = open_dataset(&spec);
    g_autoptr(GArray) order =
        read_order(dataset, &(RubatoReaderOptions){ .batch_rows = 77, .epochs = 2 });

    ck_assert_uint_eq(order->len, 2 * N_ROWS);
    for (uint32_t i = 0; i < order->len; i++)
        require_msg((uint32_t)g_array_index(order, float, i) == i % N_ROWS, "row %u is not", i);
    rubato_dataset_free(dataset);
    remove_all(&files);
}
END_TEST

START_TEST(a_shuffle_follows_from_its_seed)
{
    Files files = write_files(2, ROWS_PLAIN);
    const RubatoDataSpec spec = spec_of(&files);
    RubatoDataset *dataset = open_dataset(&spec), *other = open_dataset(&spec);
    RubatoReaderOptions options = { .shuffle = true, .seed = 5, .epochs = 2 };
    g_autoptr(GArray) order = read_order(dataset, &options);
    g_autoptr(GArray) again = read_order(other, &options);
    unsigned n_same = 0;

    options.seed = 6;
    g_autoptr(GArray) different = read_order(dataset, &options);
    ck_assert(same_order(order, again));
    ck_assert(!same_order(order, different));
    /* neither in its place in the file nor in that of the other epoch */
    for (uint32_t i = 0; i < N_ROWS; i++) {
        const float label = g_array_index(order, float, i);
        const float next = g_array_index(order, float, i + N_ROWS);

        n_same += (uint32_t)label == i || (uint32_t)label == (uint32_t)next;
    }
    ck_assert_msg(n_same < N_ROWS / 50, "%u rows are where they were", n_same);
    rubato_dataset_free(dataset);
    rubato_dataset_free(other);
    remove_all(&files);
}
END_TEST

START_TEST(a_batch_ends_with_its_epoch)
{
    Files files = write_files(1, ROWS_PLAIN);
    const RubatoDataSpec spec = spec_of(&files);
    RubatoDataset *dataset = open_dataset(&spec);
    const RubatoReaderOptions options = { .batch_rows = 3000, .epochs = 3 };
    RubatoReader *reader = rubato_dataset_open_reader(dataset, &options, NULL);
    g_autoptr(RubatoBatch) batch = NULL;

    for (unsigned i = 0; i < 6; i++) {
        ck_assert(rubato_reader_next(reader, &batch, NULL));
        ck_assert_uint_eq(batch->n_rows, i % 2 == 0 ? 3000 : N_ROWS - 3000);
        ck_assert_uint_eq(batch->epoch, i / 2);
    }
    ck_assert(!rubato_reader_next(reader, &batch, NULL));
    ck_assert(!rubato_reader_next(reader, &batch, NULL));
    rubato_reader_free(reader);
    rubato_dataset_free(dataset);
    remove_all(&files);
}
END_TEST

START_TEST(batches_stay_valid_while_later_ones_are_read)
{
    Files files = write_files(1, ROWS_PLAIN);
    const RubatoDataSpec spec = spec_of(&files);
    RubatoDataset *dataset = open_dataset(&spec);
    const RubatoReaderOptions options = { .batch_rows = 10, .ahead = 2, .shuffle = true };
    RubatoReader *reader = rubato_dataset_open_reader(dataset, &options, NULL);
    RubatoBatch *window[8] = { NULL };
    g_autofree _Atomic uint32_t *counts = g_malloc0_n(N_ROWS, sizeof *counts);

    for (unsigned i = 0; i < 300; i++)
        ck_assert(rubato_reader_next(reader, &window[i % G_N_ELEMENTS(window)], NULL));
    /* and after the reader is gone */
    rubato_reader_free(reader);
    rubato_dataset_free(dataset);
    for (unsigned i = 0; i < G_N_ELEMENTS(window); i++) {
        ck_assert_ptr_null(rows_count(window[i], counts, N_ROWS));
        rubato_batch_free(window[i]);
    }
    for (uint32_t i = 0; i < N_ROWS; i++)
        require_msg(counts[i] <= 1, "row %u is in two batches", i);
    remove_all(&files);
}
END_TEST

START_TEST(a_reader_may_be_freed_at_any_time)
{
    Files files = write_files(2, _i % 2 == 0 ? ROWS_PLAIN : ROWS_GZIP);
    const RubatoDataSpec spec = spec_of(&files);
    RubatoDataset *dataset = open_dataset(&spec);
    const RubatoReaderOptions options = { .batch_rows = 16, .ahead = 1, .epochs = UINT32_MAX };
    RubatoReader *reader = rubato_dataset_open_reader(dataset, &options, NULL);
    g_autoptr(RubatoBatch) batch = NULL;

    for (int i = 0; i < _i * 50; i++)
        ck_assert(rubato_reader_next(reader, &batch, NULL));
    rubato_reader_free(reader);
    rubato_dataset_free(dataset);
    remove_all(&files);
}
END_TEST

/* One block for one reader; notes how it was left. */
typedef struct {
    BlockSource source;
    BlockTicket ticket;
    bool taken, given_back;
} OneBlock;

static bool one_block_take(BlockSource *source, BlockTicket *ticket, GError **error)
{
    OneBlock *one = (OneBlock *)source;
    const bool there = !one->taken;

    (void)error;
    one->taken = true;
    *ticket = one->ticket;
    return there;
}

static void one_block_give_back(BlockSource *source, const BlockTicket *ticket)
{
    OneBlock *one = (OneBlock *)source;

    one->ticket = *ticket;
    one->given_back = true;
}

static void one_block_destroy(BlockSource *source)
{
    (void)source; /* on the stack */
}

static const BlockSourceOps one_block_ops = { .take = one_block_take,
                                              .give_back = one_block_give_back,
                                              .destroy = one_block_destroy };

START_TEST(rows_left_by_one_node_go_on_at_another)
{
    Files files = write_files(2, ROWS_PLAIN);
    const RubatoDataSpec both = spec_of(&files);
    const RubatoDataSpec second = { .paths = both.paths + 1, .format = both.format };
    RubatoDataset *here = open_dataset(&both), *there = open_dataset(&second);
    const RubatoReaderOptions options = { .split = RUBATO_SPLIT_DYNAMIC,
                                          .epochs = 1,
                                          .batch_rows = 10,
                                          .ahead = 1,
                                          .shuffle = true,
                                          .seed = 5 };
    /* the same file is number 1 here and number 0 there */
    OneBlock one = { .source.ops = &one_block_ops, .ticket = { .input = 1 } };
    g_autofree _Atomic uint32_t *counts = g_malloc0_n(N_ROWS, sizeof *counts);
    g_autoptr(RubatoBatch) batch = NULL;

    RubatoReader *reader = reader_new(here, &options, &one.source, NULL, NULL);
    for (unsigned i = 0; i < 3; i++) {
        ck_assert(rubato_reader_next(reader, &batch, NULL));
        ck_assert_ptr_null(rows_count(batch, counts, N_ROWS));
    }
    rubato_reader_free(reader);
    ck_assert(one.given_back);
    ck_assert_uint_eq(one.ticket.n_read, 30);

    one = (OneBlock){ .source.ops = &one_block_ops, .ticket = { .n_read = one.ticket.n_read } };
    reader = reader_new(there, &options, &one.source, NULL, NULL);
    ck_assert_uint_gt(read_all(reader, counts, 10), 30);
    rubato_reader_free(reader);
    for (uint32_t row = 0; row < N_ROWS; row++)
        require_msg(counts[row] <= 1, "row %u was read %u times", row, counts[row]);
    rubato_dataset_free(there);
    rubato_dataset_free(here);
    remove_all(&files);
}
END_TEST

START_TEST(an_error_comes_behind_the_rows_before_it)
{
    g_autofree char *dir = g_dir_make_tmp("rubato-reader-XXXXXX", NULL);
    g_autofree char *good = rows_write(dir, "a.ffm", ROWS_PLAIN, 0, N_ROWS);
    g_autofree char *bad = g_build_filename(dir, "b.ffm", NULL);
    const char *const paths[] = { good, bad, NULL };
    const RubatoDataSpec spec = { .paths = paths };
    g_autoptr(RubatoBatch) batch = NULL;
    g_autoptr(GError) error = NULL;
    size_t n_rows = 0;

    ck_assert(g_file_set_contents(bad, "1 0:1:1\n1 0:1:1\n1 0:x:1\n", -1, NULL));
    RubatoDataset *dataset = open_dataset(&spec);
    RubatoReader *reader = rubato_dataset_open_reader(dataset, &(RubatoReaderOptions){ 0 }, NULL);
    while (rubato_reader_next(reader, &batch, &error))
        n_rows += batch->n_rows;
    ck_assert(rubato_reader_failed(reader));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT));
    ck_assert_msg(strstr(error->message, "b.ffm:3:3: expected") != NULL, "%s", error->message);
    /* all but what was in the batch that could not be made */
    ck_assert_uint_gt(n_rows, N_ROWS - 256);
    g_clear_error(&error);
    ck_assert(!rubato_reader_next(reader, &batch, &error));
    ck_assert_ptr_nonnull(error);
    rubato_reader_free(reader);
    rubato_dataset_free(dataset);
    remove_files(dir);
}
END_TEST

START_TEST(a_file_that_shrinks_is_an_error)
{
    Files files = write_files(1, ROWS_PLAIN);
    const RubatoDataSpec spec = spec_of(&files);
    RubatoDataset *dataset = open_dataset(&spec);
    g_autoptr(RubatoBatch) batch = NULL;
    g_autoptr(GError) error = NULL;

    ck_assert_int_eq(truncate(files.paths[0], 100), 0);
    RubatoReader *reader = rubato_dataset_open_reader(dataset, &(RubatoReaderOptions){ 0 }, NULL);
    ck_assert(!rubato_reader_next(reader, &batch, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_IO));
    ck_assert_ptr_nonnull(strstr(error->message, "rows-0.ffm: ends at byte 100, but had "));
    rubato_reader_free(reader);
    rubato_dataset_free(dataset);
    remove_all(&files);
}
END_TEST

START_TEST(options_out_of_range_are_refused)
{
    Files files = write_files(1, ROWS_PLAIN);
    const RubatoDataSpec spec = spec_of(&files);
    RubatoDataset *dataset = open_dataset(&spec);
    g_autoptr(GError) error = NULL;

    ck_assert_ptr_null(
        rubato_dataset_open_reader(dataset, &(RubatoReaderOptions){ .ahead = 100000 }, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_INVALID));
    g_clear_error(&error);
    ck_assert_ptr_null(rubato_dataset_open_reader(
        dataset, &(RubatoReaderOptions){ .batch_rows = UINT32_MAX }, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_INVALID));
    rubato_dataset_free(dataset);
    remove_all(&files);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("reader");
    TCase *cases = tcase_create("readers");

    tcase_set_timeout(cases, 20);
    tcase_add_loop_test(cases, every_row_comes_to_one_worker_in_each_epoch, 0,
                        G_N_ELEMENTS(splits));
    tcase_add_loop_test(cases, rows_come_in_order_unless_shuffled, 0, 2);
    tcase_add_test(cases, a_shuffle_follows_from_its_seed);
    tcase_add_test(cases, a_batch_ends_with_its_epoch);
    tcase_add_test(cases, batches_stay_valid_while_later_ones_are_read);
    tcase_add_loop_test(cases, a_reader_may_be_freed_at_any_time, 0, 4);
    tcase_add_test(cases, rows_left_by_one_node_go_on_at_another);
    tcase_add_test(cases, an_error_comes_behind_the_rows_before_it);
    tcase_add_test(cases, a_file_that_shrinks_is_an_error);
    tcase_add_test(cases, options_out_of_range_are_refused);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
