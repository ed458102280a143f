/* Which way an allreduce goes, and what the tuner makes of how long ways take; the file of
 * what it found. */
#include <glib/gstdio.h>
#include <rubato/error.h>
#include <string.h>

#include "engine/collectives/tensor_tuning.h"
#include "tests/support/runner.h"

enum {
    SAMPLES_OF_WAY = TENSOR_WAY_TURNS * (TENSOR_TURN_SAMPLES + TENSOR_TURN_SKIPPED),
    ALL_SAMPLES = 2 * SAMPLES_OF_WAY,
    TWO_WAYS = 1 << TENSOR_WAY_SHARES | 1 << TENSOR_WAY_DIRECT,
    ALL_WAYS = (1 << TENSOR_WAYS) - 1,
};

START_TEST(each_size_has_its_class)
{
    ck_assert_uint_eq(tensor_class_of(0), 0);
    for (uint32_t i = 0; i < TENSOR_MEASURED_CLASSES; i++) {
        ck_assert_uint_eq(tensor_class_of(tensor_class_bytes(i)), i);
        ck_assert_uint_eq(tensor_class_of(tensor_class_bytes(i) + 1), i + 1);
    }
    ck_assert_uint_eq(tensor_class_of(UINT64_MAX), TENSOR_MEASURED_CLASSES);
    for (uint32_t i = 0; i < TENSOR_CLASSES; i++) {
        ck_assert_int_eq(tensor_cutovers_way(tensor_cutovers_up_to(32 << 10), i),
                         i < 4 ? TENSOR_WAY_DIRECT : TENSOR_WAY_SHARES);
        ck_assert_int_eq(tensor_cutovers_way(tensor_cutovers_all(TENSOR_WAY_RING), i),
                         TENSOR_WAY_RING);
    }
}
END_TEST

START_TEST(cutovers_name_a_way_for_each_class)
{
    for (uint32_t i = 0; i < TENSOR_CLASSES; i++) {
        TensorCutovers cutovers = tensor_cutovers_all(TENSOR_WAY_HALVING);

        ck_assert(tensor_cutovers_are_valid(cutovers));
        tensor_cutovers_set(&cutovers, i, TENSOR_WAY_RING);
        ck_assert(tensor_cutovers_are_valid(cutovers));
        ck_assert_int_eq(tensor_cutovers_way(cutovers, i), TENSOR_WAY_RING);
        tensor_cutovers_set(&cutovers, i, TENSOR_WAYS);
        ck_assert(!tensor_cutovers_are_valid(cutovers));
        tensor_cutovers_set(&cutovers, i, TENSOR_WAY_HALVING);
        ck_assert_uint_eq(cutovers, tensor_cutovers_all(TENSOR_WAY_HALVING));
    }
    ck_assert(!tensor_cutovers_are_valid(UINT64_C(1) << 4 * TENSOR_CLASSES));
}
END_TEST

/* Between two nodes they are the same messages, and many nodes' values need much memory. */
START_TEST(ways_that_cannot_differ_are_not_measured)
{
    ck_assert_uint_eq(tensor_ways_of(2), TWO_WAYS);
    ck_assert_uint_eq(tensor_ways_of(3), ALL_WAYS);
    ck_assert_uint_eq(tensor_ways_of(16), ALL_WAYS);
    ck_assert_uint_eq(tensor_ways_of(17),
                      1u << TENSOR_WAY_SHARES | 1u << TENSOR_WAY_HALVING | 1u << TENSOR_WAY_RING);
}
END_TEST

/* Operations of a class, whose times depend on the way alone, until nothing changes any more.
 * Returns how many it took. */
static uint32_t measure(TensorTuner *tuner, uint32_t size_class, const uint64_t ns[TENSOR_WAYS])
{
    for (uint32_t n = 1; n <= 10 * ALL_SAMPLES; n++) {
        const TensorWay way = tensor_cutovers_way(tuner->cutovers, size_class);

        if (tensor_tuner_note(tuner, size_class, way, ns[way]) == TENSOR_TUNER_SETTLES)
            return n;
    }
    return 0;
}

START_TEST(the_fastest_way_is_taken)
{
    static const struct {
        uint64_t ns[TENSOR_WAYS];
        uint32_t ways;
        TensorWay first, taken;
    } cases[] = {
        { { 100, 200, 1, 1, 1 }, TWO_WAYS, TENSOR_WAY_DIRECT, TENSOR_WAY_SHARES },
        { { 200, 100, 1, 1, 1 }, TWO_WAYS, TENSOR_WAY_DIRECT, TENSOR_WAY_DIRECT },
        { { 100, 200, 1, 1, 1 }, TWO_WAYS, TENSOR_WAY_SHARES, TENSOR_WAY_SHARES },
        { { 200, 100, 1, 1, 1 }, TWO_WAYS, TENSOR_WAY_SHARES, TENSOR_WAY_DIRECT },
        { { 99, 100, 1, 1, 1 }, TWO_WAYS, TENSOR_WAY_DIRECT, TENSOR_WAY_DIRECT }, /* noise */
        { { 100, 99, 1, 1, 1 }, TWO_WAYS, TENSOR_WAY_SHARES, TENSOR_WAY_SHARES },
        { { 9, 8, 7, 1, 1 }, TENSOR_WAYS_IN_ORDER, TENSOR_WAY_SHARES, TENSOR_WAY_DOUBLING },
        { { 9, 8, 7, 6, 5 }, ALL_WAYS, TENSOR_WAY_SHARES, TENSOR_WAY_RING },
        { { 9, 8, 7, 4, 5 }, ALL_WAYS, TENSOR_WAY_DOUBLING, TENSOR_WAY_HALVING },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        const TensorCutovers before = tensor_cutovers_all(cases[i].first);
        TensorCutovers after = before;
        TensorTuner tuner;

        tensor_tuner_init(&tuner, before, cases[i].ways);
        ck_assert_uint_eq(measure(&tuner, 4, cases[i].ns),
                          SAMPLES_OF_WAY * (uint32_t)__builtin_popcount(cases[i].ways));
        for (uint32_t way = 0; way < TENSOR_WAYS; way++)
            ck_assert_uint_eq(tuner.trials[4].medians[way],
                              (cases[i].ways >> way & 1) != 0 ? cases[i].ns[way] : 0);
        /* others are as they were, and this one stays */
        ck_assert(tensor_tuner_note(&tuner, 4, cases[i].taken, 1) == TENSOR_TUNER_NOTHING);
        tensor_cutovers_set(&after, 4, cases[i].taken);
        ck_assert_uint_eq(tuner.cutovers, after);
    }
}
END_TEST

START_TEST(what_was_under_way_at_a_change_counts_for_nothing)
{
    const uint64_t ns[TENSOR_WAYS] = { 100, 200 };
    TensorTuner tuner;

    tensor_tuner_init(&tuner, 0, TWO_WAYS);
    for (uint32_t i = 0; i < 10 * ALL_SAMPLES; i++)
        ck_assert(tensor_tuner_note(&tuner, 2, TENSOR_WAY_DIRECT, 1) == TENSOR_TUNER_NOTHING);
    ck_assert_uint_eq(measure(&tuner, 2, ns), ALL_SAMPLES);
    ck_assert_uint_eq(tuner.cutovers, 0);
}
END_TEST

/* Nor what is larger than all classes, nor a way without another one. */
START_TEST(what_is_pinned_is_not_measured)
{
    const uint64_t ns[TENSOR_WAYS] = { 100, 200 };
    TensorTuner tuner;

    tensor_tuner_init(&tuner, 0, TWO_WAYS);
    tensor_tuner_pin(&tuner, 3, TENSOR_WAY_RING);
    ck_assert_uint_eq(measure(&tuner, 3, ns), 0);
    ck_assert_uint_eq(measure(&tuner, TENSOR_MEASURED_CLASSES, ns), 0);
    ck_assert_uint_eq(tuner.cutovers, (uint64_t)TENSOR_WAY_RING << 12);
    tensor_tuner_init(&tuner, 0, 1u << TENSOR_WAY_SHARES);
    ck_assert_uint_eq(measure(&tuner, 3, ns), 0);
}
END_TEST

/* ---- the file ---- */

static char *folder, *path;

static void make_folder(void)
{
    folder = g_dir_make_tmp("rubato-XXXXXX", NULL);
    ck_assert_ptr_nonnull(folder);
    path = g_build_filename(folder, "cut-overs", NULL);
}

static void remove_folder(void)
{
    g_unlink(path);
    ck_assert_int_eq(g_rmdir(folder), 0);
    g_clear_pointer(&path, g_free);
    g_clear_pointer(&folder, g_free);
}

static TensorTuning *open_file(uint32_t n_nodes, GError **error)
{
    return tensor_tuning_new(path, NULL, "x", n_nodes, 0, error);
}

START_TEST(what_was_found_is_written_and_holds_the_next_time)
{
    static const uint64_t ns[TENSOR_WAYS] = { 2500, 1000, 3000 };
    g_autoptr(GError) error = NULL;
    g_autofree char *text = NULL, *again = NULL;
    TensorTuning *tuning = open_file(3, &error);

    ck_assert_ptr_nonnull(tuning);
    ck_assert(tensor_tuning_measures(tuning));
    ck_assert_uint_eq(tensor_tuning_cutovers(tuning), 0);
    for (uint32_t i = 0; i < 3 * SAMPLES_OF_WAY; i++) {
        const TensorWay way = tensor_cutovers_way(tensor_tuning_cutovers(tuning), 6);

        tensor_tuning_note(tuning, 6, way, ns[way]);
    }
    ck_assert_uint_eq(tensor_tuning_cutovers(tuning), (uint64_t)TENSOR_WAY_DIRECT << 24);
    tensor_tuning_free(tuning);
    ck_assert(g_file_get_contents(path, &text, NULL, &error));
    ck_assert_ptr_nonnull(
        strstr(text, "\nnodes 3\n262144 direct reduce-scatter=2.5 direct=1.0 doubling=3.0\n"));

    tuning = open_file(3, &error);
    ck_assert_ptr_nonnull(tuning);
    ck_assert(!tensor_tuning_measures(tuning));
    ck_assert_uint_eq(tensor_tuning_cutovers(tuning), (uint64_t)TENSOR_WAY_DIRECT << 24);
    for (uint32_t i = 0; i < ALL_SAMPLES; i++)
        ck_assert(!tensor_tuning_note(tuning, 6, TENSOR_WAY_DIRECT, 9000));
    tensor_tuning_free(tuning);
    ck_assert(g_file_get_contents(path, &again, NULL, &error));
    ck_assert_str_eq(again, text);
}
END_TEST

START_TEST(a_file_can_name_each_way_for_each_size)
{
    TensorCutovers expected = 0;
    TensorTuning *tuning;

    ck_assert(g_file_set_contents(
        path, "nodes 3\n4096 doubling\n8192 halving\n16384 direct\nlarger ring\n", -1, NULL));
    tuning = open_file(3, NULL);
    ck_assert_ptr_nonnull(tuning);
    tensor_cutovers_set(&expected, 0, TENSOR_WAY_DOUBLING);
    tensor_cutovers_set(&expected, 1, TENSOR_WAY_HALVING);
    tensor_cutovers_set(&expected, 2, TENSOR_WAY_DIRECT);
    tensor_cutovers_set(&expected, TENSOR_MEASURED_CLASSES, TENSOR_WAY_RING);
    ck_assert_uint_eq(tensor_tuning_cutovers(tuning), expected);
    tensor_tuning_free(tuning);
}
END_TEST

START_TEST(a_way_can_be_named_for_all_sizes)
{
    for (uint32_t way = 0; way < TENSOR_WAYS; way++) {
        TensorTuning *const tuning =
            tensor_tuning_new(NULL, tensor_way_name((TensorWay)way), "x", 3, 0, NULL);

        ck_assert_ptr_nonnull(tuning);
        ck_assert(!tensor_tuning_measures(tuning));
        ck_assert_uint_eq(tensor_tuning_cutovers(tuning), tensor_cutovers_all((TensorWay)way));
        tensor_tuning_free(tuning);
    }
}
END_TEST

/* Only with "any" ways that add in an order of their own are tried. */
START_TEST(ways_of_another_order_are_measured_if_asked_for)
{
    static const uint64_t ns[TENSOR_WAYS] = { 9000, 8000, 7000, 6000, 5000 };

    for (int any = 0; any < 2; any++) {
        TensorTuning *const tuning =
            tensor_tuning_new(path, any ? TENSOR_ANY_WAY : NULL, "x", 3, 0, NULL);

        ck_assert_ptr_nonnull(tuning);
        for (uint32_t i = 0; i < TENSOR_WAYS * SAMPLES_OF_WAY; i++) {
            const TensorWay way = tensor_cutovers_way(tensor_tuning_cutovers(tuning), 2);

            ck_assert(any || (TENSOR_WAYS_IN_ORDER >> way & 1) != 0);
            tensor_tuning_note(tuning, 2, way, ns[way]);
        }
        ck_assert_int_eq(tensor_cutovers_way(tensor_tuning_cutovers(tuning), 2),
                         any ? TENSOR_WAY_RING : TENSOR_WAY_DOUBLING);
        tensor_tuning_free(tuning);
        g_unlink(path);
    }
}
END_TEST

START_TEST(a_way_that_there_is_not_is_refused)
{
    static const char *const names[] = { "rings", "", TENSOR_ANY_WAY }; /* the last: no file */

    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        g_autoptr(GError) error = NULL;

        ck_assert_ptr_null(tensor_tuning_new(NULL, names[i], "x", 3, 0, &error));
        ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_CONFIG));
        ck_assert_ptr_nonnull(strstr(error->message, "halving, ring"));
    }
}
END_TEST

START_TEST(nothing_is_written_where_nothing_was_found)
{
    TensorTuning *const tuning = open_file(2, NULL);

    ck_assert_ptr_nonnull(tuning);
    tensor_tuning_note(tuning, 6, TENSOR_WAY_SHARES, 1);
    tensor_tuning_free(tuning);
    ck_assert(!g_file_test(path, G_FILE_TEST_EXISTS));
}
END_TEST

static const struct {
    const char *text;
    int code;
    const char *says;
} refused[] = {
    { "", RUBATO_ERROR_FORMAT, "how many nodes" },
    { "# nothing\n", RUBATO_ERROR_FORMAT, "how many nodes" },
    { "nodes 3\n", RUBATO_ERROR_CONFIG, "of 3 nodes" },
    { "65536 direct\n", RUBATO_ERROR_FORMAT, "line 1" },
    { "nodes 2\n65536 rings\n", RUBATO_ERROR_FORMAT, "line 2" },
    { "nodes 2\n65535 direct\n", RUBATO_ERROR_FORMAT, "65535" },
    { "nodes 2\n16777216 direct\n", RUBATO_ERROR_FORMAT, "16777216" },
    { "nodes 2\nlarge direct\n", RUBATO_ERROR_FORMAT, "large" },
    { "nodes 2\n-1 direct\n", RUBATO_ERROR_FORMAT, "line 2" },
    { "nodes 2\n\xff\n", RUBATO_ERROR_FORMAT, "no file of cut-overs" },
};

START_TEST(a_file_that_makes_no_sense_is_refused)
{
    g_autoptr(GError) error = NULL;

    ck_assert(g_file_set_contents(path, refused[_i].text, -1, NULL));
    ck_assert_ptr_null(open_file(2, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, refused[_i].code));
    ck_assert_msg(strstr(error->message, refused[_i].says) != NULL &&
                      strstr(error->message, path) != NULL,
                  "%s", error->message);
}
END_TEST

START_TEST(a_file_that_cannot_be_read_is_refused)
{
    g_autoptr(GError) error = NULL;

    ck_assert_ptr_null(tensor_tuning_new(folder, NULL, "x", 2, 0, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_IO));
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("tensor cut-overs");
    TCase *const tuner = tcase_create("tuner");
    TCase *const file = tcase_create("file");

    tcase_add_test(tuner, each_size_has_its_class);
    tcase_add_test(tuner, cutovers_name_a_way_for_each_class);
    tcase_add_test(tuner, ways_that_cannot_differ_are_not_measured);
    tcase_add_test(tuner, the_fastest_way_is_taken);
    tcase_add_test(tuner, what_was_under_way_at_a_change_counts_for_nothing);
    tcase_add_test(tuner, what_is_pinned_is_not_measured);
    suite_add_tcase(suite, tuner);
    tcase_add_checked_fixture(file, make_folder, remove_folder);
    tcase_add_test(file, what_was_found_is_written_and_holds_the_next_time);
    tcase_add_test(file, a_file_can_name_each_way_for_each_size);
    tcase_add_test(file, a_way_can_be_named_for_all_sizes);
    tcase_add_test(file, ways_of_another_order_are_measured_if_asked_for);
    tcase_add_test(file, a_way_that_there_is_not_is_refused);
    tcase_add_test(file, nothing_is_written_where_nothing_was_found);
    tcase_add_loop_test(file, a_file_that_makes_no_sense_is_refused, 0, G_N_ELEMENTS(refused));
    tcase_add_test(file, a_file_that_cannot_be_read_is_refused);
    suite_add_tcase(suite, file);
    return run_suite(suite);
}
