/* The arithmetic of rubato-kmeans, against plain loops. */
#include <check.h>
#include <glib.h>
#include <math.h>
#include <string.h>

#include "apps/kmeans/kmeans_model.h"
#include "tests/support/runner.h"

#define N_ROUNDS 12
#define NEAR 1e-4

/* More centres than one panel has, and a last block that is not full. */
static const struct {
    size_t n_rows;
    uint32_t n_columns, n_clusters;
} shapes[] = { { 1, 1, 1 }, { 3, 2, 2 }, { 201, 5, 20 }, { 150, 33, 16 }, { 333, 3, 40 } };

static float *random_values(GRand *random, size_t n)
{
    float *values = g_new(float, n);

    for (size_t i = 0; i < n; i++)
        values[i] = (float)g_rand_double_range(random, -1, 1);
    return values;
}

static double distance_of(const float *a, const float *b, uint32_t n)
{
    double sum = 0;

    for (uint32_t i = 0; i < n; i++)
        sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return sum;
}

static double least_distance(const KmeansCentres *centres, const float *row)
{
    double least = (double)INFINITY;

    for (uint32_t c = 0; c < centres->n_clusters; c++) {
        const double distance =
            distance_of(centres->values + c * centres->n_columns, row, centres->n_columns);

        least = MIN(least, distance);
    }
    return least;
}

/* Each row has the nearest centre, and sums and inertia are those of the rows. */
static void check_share(const KmeansShare *share)
{
    const KmeansCentres *centres = &share->centres;
    const uint32_t n_columns = centres->n_columns;
    const size_t width = KMEANS_SUM_WIDTH(n_columns);
    g_autofree double *sums = g_new0(double, centres->n_clusters *width);
    double inertia = 0;

    for (size_t row = 0; row < share->rows.n_rows; row++) {
        const float *values = share->rows.values + row * n_columns;
        const uint32_t cluster = share->cluster[row];
        const double own = distance_of(centres->values + cluster * n_columns, values, n_columns);

        ck_assert_double_le(own, least_distance(centres, values) + NEAR);
        inertia += own;
        sums[cluster * width]++;
        for (uint32_t i = 0; i < n_columns; i++)
            sums[cluster * width + 1 + i] += (double)values[i];
    }
    ck_assert_double_eq_tol(kmeans_share_inertia(share), inertia, NEAR * (inertia + 1));
    for (size_t i = 0; i < centres->n_clusters * width; i++)
        ck_assert_double_eq_tol(share->sums[i], sums[i], 1e-9);
}

static void make_share(KmeansShare *share, int shape)
{
    GRand *random = g_rand_new_with_seed((guint32)shape + 1);
    const uint32_t n_columns = shapes[shape].n_columns, n_clusters = shapes[shape].n_clusters;

    *share = (KmeansShare){ .rows = { .n_rows = shapes[shape].n_rows, .n_columns = n_columns } };
    share->rows.values = random_values(random, shapes[shape].n_rows * n_columns);
    ck_assert(kmeans_share_init(share, n_clusters, NULL));
    g_free(share->centres.values);
    share->centres.values = random_values(random, (size_t)n_clusters * n_columns);
    kmeans_centres_update(&share->centres);
    g_rand_free(random);
}

/* The bounds spare work, and change no result. */
START_TEST(kmeans_rows_stay_with_the_nearest_centre_as_centres_move)
{
    KmeansShare share;

    make_share(&share, _i);
    g_autofree double *changes =
        g_new(double, share.centres.n_clusters *KMEANS_SUM_WIDTH(share.centres.n_columns));
    double before = (double)INFINITY;
    ck_assert_uint_eq(kmeans_share_assign(&share, changes), shapes[_i].n_rows);
    ck_assert_uint_eq(kmeans_share_assign(&share, changes), 0);
    for (int round = 0; round < N_ROUNDS; round++) {
        check_share(&share);
        const double inertia = kmeans_share_inertia(&share);
        ck_assert_double_le(inertia, before + NEAR);
        before = inertia;
        kmeans_centres_follow(&share.centres, share.sums, share.how_far);
        /* twice before the rows are looked at: ways add up */
        share.sums[1] += round % 3 == 0 ? 0.5 : 0;
        kmeans_centres_follow(&share.centres, share.sums, share.how_far);
        share.sums[1] -= round % 3 == 0 ? 0.5 : 0;
        if (round % 3 == 0)
            before = (double)INFINITY;
        kmeans_share_assign(&share, changes);
    }
    kmeans_share_clear(&share);
}
END_TEST

START_TEST(kmeans_classifies_and_adds_rows_as_it_assigns_them)
{
    KmeansShare share;

    make_share(&share, _i);
    const size_t n = shapes[_i].n_rows,
                 n_sums = share.centres.n_clusters * KMEANS_SUM_WIDTH(share.centres.n_columns);
    g_autofree uint32_t *clusters = g_new(uint32_t, n);
    g_autofree float *distances = g_new(float, n);
    g_autofree double *changes = g_new(double, n_sums), *sums = g_new0(double, n_sums);
    g_autofree size_t *places = g_new(size_t, n);

    for (size_t i = 0; i < n; i++)
        places[i] = i;
    kmeans_share_assign(&share, changes);
    kmeans_classify(&share.centres, share.rows.values, n, clusters, distances);
    const double inertia = kmeans_share_add(&share, places, n, sums);
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        ck_assert_uint_eq(clusters[i], share.cluster[i]);
        sum += (double)distances[i];
    }
    ck_assert_double_eq_tol(inertia, sum, NEAR * (sum + 1));
    for (size_t i = 0; i < n_sums; i++)
        ck_assert_double_eq_tol(sums[i], share.sums[i], 1e-9);
    kmeans_share_clear(&share);
}
END_TEST

START_TEST(kmeans_centre_without_rows_stays)
{
    KmeansShare share;

    make_share(&share, 1);
    const float value = share.centres.values[2];
    kmeans_centres_follow(&share.centres, share.sums, share.how_far);
    ck_assert_float_eq(share.centres.values[2], value);
    ck_assert_float_eq(share.how_far[1], 0);
    kmeans_share_clear(&share);
}
END_TEST

static Suite *kmeans_model_suite(void)
{
    Suite *suite = suite_create("kmeans model");
    TCase *tcase = tcase_create("kmeans model");

    tcase_add_loop_test(tcase, kmeans_rows_stay_with_the_nearest_centre_as_centres_move, 0,
                        (int)G_N_ELEMENTS(shapes));
    tcase_add_loop_test(tcase, kmeans_classifies_and_adds_rows_as_it_assigns_them, 0,
                        (int)G_N_ELEMENTS(shapes));
    tcase_add_test(tcase, kmeans_centre_without_rows_stays);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return run_suite(kmeans_model_suite());
}
