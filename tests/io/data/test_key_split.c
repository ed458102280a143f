/* The split by key: rows with the same key at a place come to the same worker, each row to exactly
 * one, in each epoch and in any order of the rows. */
#include <string.h>

#include "io/data/deal/reader.h"
#include "tests/support/data/data_rows.h"
#include "tests/support/data/data_text.h"
#include "tests/support/runner.h"

#define N_ROWS 3000u

/* rows_write gives them no key, one, two and so on. */
static const struct {
    RowsPacking packing;
    uint32_t place, n_workers, epochs, batch_rows;
    bool shuffle;
} scenes[] = {
    { ROWS_PLAIN, 0, 1, 1, 256, false }, { ROWS_PLAIN, 0, 3, 2, 100, true },
    { ROWS_PLAIN, 2, 2, 1, 7, false },   { ROWS_GZIP, 1, 3, 2, 64, true },
    { ROWS_ZSTD, 0, 40, 2, 300, true },  { ROWS_PLAIN, 100, 3, 1, 256, false },
};

typedef struct {
    char *dir, *path;
    RubatoDataset *dataset;
} Data;

static Data begin(RowsPacking packing)
{
    Data data = { .dir = g_dir_make_tmp("rubato-key-split-XXXXXX", NULL) };
    g_autoptr(GError) error = NULL;

    data.path = rows_write(data.dir, "rows.ffm", packing, 0, N_ROWS);
    data.dataset = rubato_dataset_open(
        &(RubatoDataSpec){ .paths = (const char *const[]){ data.path, NULL }, .format = "libffm" },
        &error);
    ck_assert_msg(data.dataset != NULL, "%s", error != NULL ? error->message : "no error set");
    return data;
}

static void end(Data *data)
{
    rubato_dataset_free(data->dataset);
    remove_files(data->dir);
    g_free(data->path);
    g_free(data->dir);
}

static RubatoReader *open_share(const Data *data, const RubatoReaderOptions *options, uint32_t rank,
                                uint32_t n_workers)
{
    RubatoReaderOptions filled;

    ck_assert(reader_options_fill(options, &filled, NULL));
    return reader_new(data->dataset, &filled,
                      key_split_new(data->dataset, &filled, rank, n_workers), NULL, NULL);
}

/* The rows of each key have one owner, and so have those without one. */
static void check_owners(const RubatoBatch *batch, uint32_t place, GHashTable *owners,
                         gpointer *owner_of_others, uint32_t rank)
{
    const gpointer own = GUINT_TO_POINTER(rank + 1);

    for (size_t row = 0; row < batch->n_rows; row++) {
        const size_t entry = batch->row_start[row] + place;
        gpointer owner = *owner_of_others;

        if (entry < batch->row_start[row + 1]) {
            const gpointer key = GSIZE_TO_POINTER(batch->keys[batch->index[entry]]);

            owner = g_hash_table_lookup(owners, key);
            g_hash_table_insert(owners, key, own);
        } else {
            *owner_of_others = own;
        }
        require_msg(owner == NULL || owner == own, "row %g is read by two workers' keys",
                    (double)batch->label[row]);
    }
}

START_TEST(rows_with_one_key_come_to_one_worker_and_each_row_once)
{
    Data data = begin(scenes[_i].packing);
    const RubatoReaderOptions options = { .split = RUBATO_SPLIT_BY_KEY,
                                          .key_place = scenes[_i].place,
                                          .epochs = scenes[_i].epochs,
                                          .batch_rows = scenes[_i].batch_rows,
                                          .shuffle = scenes[_i].shuffle };
    g_autoptr(GHashTable) owners = g_hash_table_new(NULL, NULL);
    g_autofree _Atomic uint32_t *counts = g_malloc0_n(N_ROWS, sizeof *counts);
    gpointer owner_of_others = NULL;
    uint32_t n_busy = 0;

    for (uint32_t rank = 0; rank < scenes[_i].n_workers; rank++) {
        g_autoptr(RubatoReader) reader = open_share(&data, &options, rank, scenes[_i].n_workers);
        g_autoptr(RubatoBatch) batch = NULL;
        g_autoptr(GError) error = NULL;
        bool is_busy = false;

        while (rubato_reader_next(reader, &batch, &error)) {
            ck_assert_ptr_null(rows_count(batch, counts, N_ROWS));
            check_owners(batch, scenes[_i].place, owners, &owner_of_others, rank);
            is_busy = true;
        }
        ck_assert_msg(error == NULL, "%s", error != NULL ? error->message : "");
        n_busy += is_busy;
    }
    ck_assert(rows_all_counted(counts, N_ROWS, scenes[_i].epochs));
    if (g_hash_table_size(owners) > 0)
        ck_assert_uint_ge(n_busy, MIN(scenes[_i].n_workers, 3));
    end(&data);
}
END_TEST

START_TEST(a_worker_has_its_rows_in_the_order_of_the_files_unless_shuffled)
{
    Data data = begin(ROWS_PLAIN);
    const RubatoReaderOptions options = { .split = RUBATO_SPLIT_BY_KEY };
    g_autoptr(RubatoReader) reader = open_share(&data, &options, 1, 3);
    g_autoptr(RubatoBatch) batch = NULL;
    float before = -1;

    while (rubato_reader_next(reader, &batch, NULL))
        for (size_t row = 0; row < batch->n_rows; before = batch->label[row++])
            ck_assert(batch->label[row] > before);
    ck_assert(before > 0);
    end(&data);
}
END_TEST

START_TEST(a_place_without_the_split_is_refused)
{
    static const struct {
        RubatoReaderOptions options;
        const char *text;
    } wrong[] = {
        { { .key_place = 1 }, "key_place 1 needs RUBATO_SPLIT_BY_KEY" },
        { { .split = RUBATO_SPLIT_DYNAMIC, .key_place = 2 }, "key_place 2 needs" },
        { { .split = (RubatoSplit)7 }, "there is no split 7" },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(wrong); i++) {
        RubatoReaderOptions filled;
        g_autoptr(GError) error = NULL;

        ck_assert(!reader_options_fill(&wrong[i].options, &filled, &error));
        ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_INVALID));
        ck_assert_msg(strstr(error->message, wrong[i].text) != NULL, "%s", error->message);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("key_split");
    TCase *cases = tcase_create("rows");

    tcase_add_loop_test(cases, rows_with_one_key_come_to_one_worker_and_each_row_once, 0,
                        G_N_ELEMENTS(scenes));
    tcase_add_test(cases, a_worker_has_its_rows_in_the_order_of_the_files_unless_shuffled);
    tcase_add_test(cases, a_place_without_the_split_is_refused);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
