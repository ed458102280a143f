/* Who learns from which ratings in rubato-mf. */
#include <glib.h>
#include <glib/gstdio.h>
#include <string.h>

#include "apps/mf/mf_blocks.h"
#include "tests/support/cluster/program_run.h"
#include "tests/support/runner.h"

#define N_USERS 50
#define N_ITEMS 31

/* The rating of user u and item i says which ones they are. */
#define RATING_OF(u, i) ((u)*100 + (i))

static RubatoDataset *make_rows(const char *dir, GError **error)
{
    g_autofree char *path = g_build_filename(dir, "rows.ratings", NULL);
    const char *const paths[] = { path, NULL };
    const RubatoDataSpec spec = { .paths = paths, .format = "ratings" };
    GString *text = g_string_new(NULL);

    /* users with small numbers have more ratings */
    for (int u = 0; u < N_USERS; u++)
        for (int i = u % 3; i < N_ITEMS; i += 1 + u / 10)
            g_string_append_printf(text, "%d,%d,%d\n", u, i, RATING_OF(u, i));
    ck_assert(g_file_set_contents(path, text->str, -1, NULL));
    g_string_free(text, TRUE);
    return rubato_dataset_open(&spec, error);
}

/* Each rating is in one block of one worker, whichever node has the worker; and users and items
 * are those of the rating. */
START_TEST(mf_each_rating_belongs_to_one_worker_and_block)
{
    const uint32_t n_workers = (uint32_t)_i + 1;
    g_autofree char *dir = make_folder();
    g_autoptr(RubatoDataset) rows = make_rows(dir, NULL);
    unsigned seen[RATING_OF(N_USERS, 0)] = { 0 };
    RubatoDataSummary summary;
    size_t n = 0;

    ck_assert(rows != NULL && rubato_dataset_summary(rows, &summary, NULL));
    for (uint32_t rank = 0; rank < n_workers; rank++) {
        g_auto(MfBlocks) blocks = { 0 };

        ck_assert(mf_blocks_read(&blocks, rows, n_workers, rank, 1, 7, NULL));
        const MfShare *share = &blocks.shares[0];
        ck_assert_uint_eq(share->starts[0], 0);
        for (uint32_t b = 0; b < n_workers; b++)
            for (size_t i = share->starts[b]; i < share->starts[b + 1]; i++) {
                const MfRating *rating = &share->ratings[i];
                const int u = (int)(share->users[rating->user] / 2);
                const int item = (int)(blocks.items[b][rating->item] / 2);

                ck_assert_uint_lt(rating->user, share->n_users);
                ck_assert_uint_lt(rating->item, blocks.n_items[b]);
                ck_assert_float_eq(rating->rating, (float)RATING_OF(u, item));
                seen[(int)rating->rating]++;
                n++;
            }
        /* about as many as the others, too */
        ck_assert_uint_le(share->starts[n_workers], summary.n_rows / n_workers + N_ITEMS);
    }
    ck_assert_uint_eq(n, summary.n_rows);
    for (size_t i = 0; i < G_N_ELEMENTS(seen); i++)
        ck_assert_uint_le(seen[i], 1);
    remove_folder(dir);
}
END_TEST

START_TEST(mf_nodes_with_several_workers_have_the_same_shares)
{
    g_autofree char *dir = make_folder();
    g_autoptr(RubatoDataset) rows = make_rows(dir, NULL);
    g_auto(MfBlocks) all = { 0 };

    ck_assert(mf_blocks_read(&all, rows, 4, 0, 4, 7, NULL));
    for (uint32_t rank = 0; rank < 4; rank++) {
        g_auto(MfBlocks) one = { 0 };

        ck_assert(mf_blocks_read(&one, rows, 4, rank, 1, 7, NULL));
        ck_assert_uint_eq(one.shares[0].starts[4], all.shares[rank].starts[4]);
        ck_assert_mem_eq(one.shares[0].ratings, all.shares[rank].ratings,
                         one.shares[0].starts[4] * sizeof(MfRating));
        ck_assert_double_eq(one.mean, all.mean);
    }
    remove_folder(dir);
}
END_TEST

static const struct {
    const char *text, *message;
} wrong[] = {
    { "3 1:1 2:1\n4 1:1 2:1 3:1\n", "expected rows of a user and an item, found one with 3" },
    { "3 1:1 2:1\n4 2:1 3:1\n", "key 2 is a user in one row and an item in another" },
};

START_TEST(mf_refuses_rows_that_are_no_ratings)
{
    g_autofree char *dir = make_folder();
    g_autofree char *path = g_build_filename(dir, "rows", NULL);
    const char *const paths[] = { path, NULL };
    const RubatoDataSpec spec = { .paths = paths };
    g_autoptr(GError) error = NULL;
    g_auto(MfBlocks) blocks = { 0 };

    ck_assert(g_file_set_contents(path, wrong[_i].text, -1, NULL));
    g_autoptr(RubatoDataset) rows = rubato_dataset_open(&spec, NULL);
    ck_assert(!mf_blocks_read(&blocks, rows, 2, 0, 2, 1, &error));
    ck_assert_msg(strstr(error->message, wrong[_i].message) != NULL, "%s", error->message);
    remove_folder(dir);
}
END_TEST

static Suite *mf_blocks_suite(void)
{
    Suite *suite = suite_create("mf blocks");
    TCase *tcase = tcase_create("mf blocks");

    tcase_add_loop_test(tcase, mf_each_rating_belongs_to_one_worker_and_block, 0, 5);
    tcase_add_test(tcase, mf_nodes_with_several_workers_have_the_same_shares);
    tcase_add_loop_test(tcase, mf_refuses_rows_that_are_no_ratings, 0, (int)G_N_ELEMENTS(wrong));
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return run_suite(mf_blocks_suite());
}
