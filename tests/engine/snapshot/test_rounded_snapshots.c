/* Snapshots whose values are rounded: what is restored, what is followed, what they say of the
 * loss, and what stays exact. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "io/store/snapshot_folder.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"
#include "tests/support/store/small_snapshot.h"

enum { N_KEYS = 3000, WIDTH = 4 };

static char *directory;
static RubatoEngine *engine;
static RubatoKey keys[N_KEYS];

static const struct {
    const char *name;
    RubatoTableSpec spec;
    bool is_rounded;
} tables[] = {
    { "dense", { .name = "dense", .width = WIDTH, .n_keys = N_KEYS }, true },
    { "hash", { .name = "hash", .width = WIDTH, .storage = "hash", .dtype = RUBATO_F64 }, true },
    { "stateful",
      { .name = "stateful", .width = WIDTH, .n_keys = N_KEYS, .update = "adagrad" },
      true },
};

static const struct {
    RubatoPacking packing;
    double most; /* of a row's largest value */
} roundings[] = { { RUBATO_PACKING_BF16, 1.0 / 256 }, { RUBATO_PACKING_8BIT, 1.0 / 253 } };

static RubatoEngine *make_engine(void)
{
    RubatoEngine *const made = engine_with_servers(2);

    for (size_t i = 0; i < G_N_ELEMENTS(tables); i++)
        create_table(made, &tables[i].spec);
    create_table(made,
                 &(RubatoTableSpec){ .name = "counts", .dtype = RUBATO_I64, .n_keys = N_KEYS });
    return made;
}

static void set_up(void)
{
    directory = g_dir_make_tmp("rubato-rounded-XXXXXX", NULL);
    engine = make_engine();
    for (size_t i = 0; i < N_KEYS; i++)
        keys[i] = i;
}

static void tear_down(void)
{
    rubato_engine_free(engine);
    remove_tree(directory);
    g_free(directory);
}

/* Adds to each `every`th row. */
static void add(size_t every)
{
    for (size_t t = 0; t < G_N_ELEMENTS(tables); t++)
        for (size_t i = 0; i < N_KEYS; i += every) {
            float f32[WIDTH];
            double f64[WIDTH];

            for (size_t v = 0; v < WIDTH; v++) {
                f64[v] = sin((double)(i * WIDTH + v)) * (double)(1 + i % 7);
                f32[v] = (float)f64[v];
            }
            ck_assert(rubato_engine_add(
                engine, tables[t].name, &keys[i], 1,
                tables[t].spec.dtype == RUBATO_F64 ? (void *)f64 : (void *)f32, NULL));
        }
    for (size_t i = 0; i < N_KEYS; i += every) {
        const int64_t count = INT64_MAX / 3 - (int64_t)i; /* which no f64 has */

        ck_assert(rubato_engine_add(engine, "counts", &keys[i], 1, &count, NULL));
    }
}

static void get(RubatoEngine *from, size_t table, double *values)
{
    g_autofree float *f32 = g_new(float, N_KEYS *WIDTH);
    const bool is_f64 = tables[table].spec.dtype == RUBATO_F64;

    ck_assert(rubato_engine_get(from, tables[table].name, keys, N_KEYS,
                                is_f64 ? (void *)values : (void *)f32, NULL));
    for (size_t i = 0; !is_f64 && i < (size_t)N_KEYS * WIDTH; i++)
        values[i] = (double)f32[i];
}

/* Each value is near that of the engine; returns the largest error. */
static double compare(const double *exact, const double *stored, double most)
{
    double largest = 0;

    for (size_t row = 0; row < N_KEYS; row++) {
        double bound = 0;

        for (size_t i = row * WIDTH; i < (row + 1) * WIDTH; i++)
            bound = fmax(bound, fabs(exact[i]) * most);
        for (size_t i = row * WIDTH; i < (row + 1) * WIDTH; i++) {
            ck_assert_double_le(fabs(exact[i] - stored[i]), bound + 1e-30);
            largest = fmax(largest, fabs(exact[i] - stored[i]));
        }
    }
    return largest;
}

static void take(RubatoPacking packing, uint32_t full_every)
{
    const RubatoSnapshotSpec spec = { .directory = directory,
                                      .packing = packing,
                                      .full_every = full_every };

    ck_assert(rubato_engine_snapshot(engine, &spec, NULL, NULL));
}

static void check_counts(RubatoEngine *restored)
{
    g_autofree int64_t *is = g_new(int64_t, N_KEYS), *was = g_new(int64_t, N_KEYS);

    ck_assert(rubato_engine_get(engine, "counts", keys, N_KEYS, was, NULL));
    ck_assert(rubato_engine_get(restored, "counts", keys, N_KEYS, is, NULL));
    ck_assert_int_eq(memcmp(is, was, N_KEYS * sizeof *is), 0);
}

/* What is in the newest one, as an engine restores it, and what it says of its loss. */
static void check_newest(double most)
{
    g_autoptr(RubatoEngine) restored = make_engine();
    g_autoptr(RubatoSnapshot) snapshot = rubato_snapshot_open(directory, 0, NULL);
    g_autofree double *exact = g_new(double, N_KEYS *WIDTH), *is = g_new(double, N_KEYS *WIDTH);
    RubatoSnapshotLoss loss;

    ck_assert(rubato_snapshot_verify(snapshot, NULL));
    ck_assert(rubato_engine_restore(restored, &(RubatoRestoreSpec){ .directory = directory }, NULL,
                                    NULL));
    for (size_t t = 0; t < G_N_ELEMENTS(tables); t++) {
        get(engine, t, exact);
        get(restored, t, is);
        const double largest = compare(exact, is, most);

        ck_assert_double_gt(largest, 0);
        ck_assert(rubato_snapshot_loss(snapshot, tables[t].name, &loss, NULL));
        ck_assert_uint_ge(loss.n_values, N_KEYS * WIDTH);
        ck_assert_double_ge(loss.largest, largest * .9999);
        ck_assert_double_le(loss.largest, largest * 1.5); /* rows before may have lost more */
        ck_assert(loss.root_mean_square > 0 && loss.root_mean_square < loss.largest);
    }
    ck_assert(rubato_snapshot_loss(snapshot, "counts", &loss, NULL));
    ck_assert(loss.n_values == 0 && loss.largest == 0);
    check_counts(restored);
}

START_TEST(rounded_values_are_restored_and_their_loss_is_told)
{
    add(1);
    take(roundings[_i].packing, 4);
    check_newest(roundings[_i].most);
    add(10);
    take(roundings[_i].packing, 4); /* of keys that are close: in bits */
    add(1000);
    take(roundings[_i].packing, 4); /* of others */
    check_newest(roundings[_i].most);
    ck_assert(rubato_snapshot_compact(directory, 0, NULL, NULL));
    check_newest(roundings[_i].most);
}
END_TEST

/* How far one more gradient moves the first value of a key. */
static double find_step(RubatoEngine *of, RubatoKey key)
{
    const float gradient[WIDTH] = { 1 };
    float before[WIDTH], after[WIDTH];

    ck_assert(rubato_engine_get(of, "stateful", &key, 1, before, NULL));
    ck_assert(rubato_engine_add(of, "stateful", &key, 1, gradient, NULL));
    ck_assert(rubato_engine_get(of, "stateful", &key, 1, after, NULL));
    return (double)after[0] - (double)before[0];
}

/* The rule's state, by which it divides, is that of the same key, and not rounded. */
START_TEST(state_of_the_rule_stays_exact)
{
    g_autoptr(RubatoEngine) restored = make_engine();

    add(1);
    take(roundings[_i].packing, 0);
    ck_assert(rubato_engine_restore(restored, &(RubatoRestoreSpec){ .directory = directory }, NULL,
                                    NULL));
    for (RubatoKey key = 1; key < N_KEYS; key += 97) {
        const double step = find_step(engine, key);

        ck_assert_double_gt(fabs(step), 0);
        ck_assert_double_eq_tol(find_step(restored, key), step, fabs(step) * 1e-4);
    }
}
END_TEST

static uint64_t count_bytes(RubatoPacking packing)
{
    take(packing, 0);
    g_autoptr(RubatoSnapshot) snapshot = rubato_snapshot_open(directory, 0, NULL);
    ck_assert_int_eq(rubato_snapshot_packing(snapshot), packing);
    return rubato_snapshot_find_table(snapshot, "dense")->n_bytes;
}

START_TEST(rounded_values_take_fewer_bytes)
{
    add(1);
    const uint64_t exact = count_bytes(RUBATO_PACKING_NONE);
    ck_assert_uint_lt(count_bytes(RUBATO_PACKING_BF16), exact * 52 / 100);
    ck_assert_uint_lt(count_bytes(RUBATO_PACKING_8BIT), exact * 52 / 100); /* 4 of 8 bytes a row
                                                                            * are its step */
}
END_TEST

START_TEST(follower_has_rounded_values)
{
    g_autofree char *uri = g_strconcat("file:", directory, NULL);
    g_autoptr(RubatoFollower) follower =
        rubato_follower_new(&(RubatoFollowerSpec){ .uri = uri }, NULL);
    g_autofree double *exact = g_new(double, N_KEYS *WIDTH), *is = g_new(double, N_KEYS *WIDTH);
    RubatoFollowed followed;

    for (int version = 1; version <= 2; version++) {
        add(version == 1 ? 1 : 10);
        take(roundings[_i].packing, 4);
        ck_assert(rubato_follower_advance(follower, 0, &followed, NULL));
        ck_assert_int_eq(followed, version == 1 ? RUBATO_FOLLOWED_ANEW : RUBATO_FOLLOWED_NEXT);
        ck_assert(rubato_follower_get(follower, "hash", keys, N_KEYS, is, NULL, NULL, NULL));
        get(engine, 1, exact);
        ck_assert_double_gt(compare(exact, is, roundings[_i].most), 1e-4);
    }
}
END_TEST

/* A file of a table that has no reals, whose writer says that its values are rounded. */
START_TEST(rounded_values_of_other_types_are_refused)
{
    const PartShape real = { .row_bytes = 8, .value_bytes = 8, .is_real = true };
    const double values[] = { 1, 2 };
    const RubatoSnapshotRows rows = { .first = 3, .n = 2, .values = values };
    g_autofree char *path = g_build_filename(directory, "part", NULL);
    g_autoptr(PartWriter) writer = part_writer_new(path, 5, RUBATO_PACKING_8BIT, &real, NULL);
    const PartTaker nobody = { .rows = NULL };
    PartFile file = { .path = path, .seed = 5, .shape = real, .n_rows = 2 };
    GError *error = NULL;

    ck_assert(part_writer_rows(writer, &rows, NULL) && part_writer_finish(writer, NULL));
    ck_assert(block_file_read_end(path, &file.sum, &file.n_rows, NULL));
    ck_assert(part_rows_read(&file, &nobody, NULL, NULL));
    file.shape.is_real = false;
    ck_assert(!part_rows_read(&file, &nobody, NULL, &error));
    check_error(&error, RUBATO_ERROR_FORMAT, "rounded values, which the table cannot have", NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rounded snapshots");
    TCase *cases = tcase_create("rounded");

    tcase_set_timeout(cases, 30);
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_loop_test(cases, rounded_values_are_restored_and_their_loss_is_told, 0,
                        G_N_ELEMENTS(roundings));
    tcase_add_loop_test(cases, state_of_the_rule_stays_exact, 0, G_N_ELEMENTS(roundings));
    tcase_add_test(cases, rounded_values_take_fewer_bytes);
    tcase_add_loop_test(cases, follower_has_rounded_values, 0, G_N_ELEMENTS(roundings));
    tcase_add_test(cases, rounded_values_of_other_types_are_refused);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
