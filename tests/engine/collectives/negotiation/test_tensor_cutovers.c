/* Which way an allreduce goes, and what the tuner makes of how long both ways take; the file of
 * what it found. */
#include <glib/gstdio.h>
#include <rubato/error.h>
#include <string.h>

#include "engine/collectives/tensor_tuning.h"
#include "tests/support/runner.h"

enum { ALL_SAMPLES = TENSOR_TURNS * (TENSOR_TURN_SAMPLES + TENSOR_TURN_SKIPPED) };

START_TEST(each_size_has_its_class)
{
    ck_assert_uint_eq(tensor_class_of(0), 0);
    for (uint32_t i = 0; i < TENSOR_CLASSES; i++) {
        ck_assert_uint_eq(tensor_class_of(tensor_class_bytes(i)), i);
        ck_assert_uint_eq(tensor_class_of(tensor_class_bytes(i) + 1), i + 1);
    }
    ck_assert_uint_eq(tensor_class_of(UINT64_MAX), TENSOR_CLASSES);
    ck_assert_uint_eq(tensor_cutovers_up_to(32 << 10), 0xf);
    ck_assert_uint_eq(tensor_cutovers_up_to(UINT64_MAX), TENSOR_ALL_CLASSES);
}
END_TEST

/* Operations of a class, whose times depend on the way alone, until nothing changes any more.
 * Returns how many it took. */
static uint32_t measure(TensorTuner *tuner, uint32_t size_class, const uint64_t ns[TENSOR_WAYS])
{
    for (uint32_t n = 1; n <= 10 * ALL_SAMPLES; n++) {
        const bool directly = (tuner->direct >> size_class & 1) != 0;

        if (tensor_tuner_note(tuner, size_class, directly, ns[directly]) == TENSOR_TUNER_SETTLES)
            return n;
    }
    return 0;
}

START_TEST(the_faster_way_is_taken)
{
    static const struct {
        uint64_t ns[TENSOR_WAYS];
        bool began_directly, directly;
    } cases[] = {
        { { 100, 200 }, true, false }, { { 200, 100 }, true, true }, { { 100, 200 }, false, false },
        { { 200, 100 }, false, true }, { { 99, 100 }, true, true }, /* that may be noise */
        { { 100, 99 }, false, false },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        TensorTuner tuner;

        tensor_tuner_init(&tuner, cases[i].began_directly ? TENSOR_ALL_CLASSES : 0);
        ck_assert_uint_eq(measure(&tuner, 4, cases[i].ns), ALL_SAMPLES);
        ck_assert((tuner.direct >> 4 & 1) == cases[i].directly);
        ck_assert_uint_eq(tuner.trials[4].medians[true], cases[i].ns[true]);
        ck_assert_uint_eq(tuner.trials[4].medians[false], cases[i].ns[false]);
        /* others are as they were, and this one stays */
        ck_assert(tensor_tuner_note(&tuner, 4, cases[i].directly, 1) == TENSOR_TUNER_NOTHING);
        ck_assert_uint_eq(tuner.direct | 1u << 4,
                          (cases[i].began_directly ? TENSOR_ALL_CLASSES : 0) | 1u << 4);
    }
}
END_TEST

START_TEST(what_was_under_way_at_a_change_counts_for_nothing)
{
    const uint64_t ns[] = { 100, 200 };
    TensorTuner tuner;

    tensor_tuner_init(&tuner, 0);
    for (uint32_t i = 0; i < 10 * ALL_SAMPLES; i++)
        ck_assert(tensor_tuner_note(&tuner, 2, true, 1) == TENSOR_TUNER_NOTHING);
    ck_assert_uint_eq(measure(&tuner, 2, ns), ALL_SAMPLES);
    ck_assert_uint_eq(tuner.direct, 0);
}
END_TEST

START_TEST(what_is_pinned_is_not_measured)
{
    const uint64_t ns[] = { 100, 200 };
    TensorTuner tuner;

    tensor_tuner_init(&tuner, 0);
    tensor_tuner_pin(&tuner, 3, true);
    ck_assert_uint_eq(measure(&tuner, 3, ns), 0);
    ck_assert_uint_eq(tuner.direct, 1u << 3);
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

START_TEST(what_was_found_is_written_and_holds_the_next_time)
{
    g_autoptr(GError) error = NULL;
    g_autofree char *text = NULL, *again = NULL;
    TensorTuning *tuning = tensor_tuning_new(path, "x", 2, 0xf, &error);

    ck_assert_ptr_nonnull(tuning);
    ck_assert(tensor_tuning_measures(tuning));
    ck_assert_uint_eq(tensor_tuning_direct(tuning), 0xf);
    for (uint32_t i = 0; i < ALL_SAMPLES; i++) {
        const bool directly = (tensor_tuning_direct(tuning) >> 6 & 1) != 0;

        tensor_tuning_note(tuning, 6, directly, directly ? 1000 : 2500);
    }
    ck_assert_uint_eq(tensor_tuning_direct(tuning), 0xf | 1u << 6);
    tensor_tuning_free(tuning);
    ck_assert(g_file_get_contents(path, &text, NULL, &error));
    ck_assert_ptr_nonnull(strstr(text, "\nnodes 2\n262144 direct reduce-scatter=2.5 direct=1.0\n"));

    tuning = tensor_tuning_new(path, "x", 2, 0, &error);
    ck_assert_ptr_nonnull(tuning);
    ck_assert(!tensor_tuning_measures(tuning));
    ck_assert_uint_eq(tensor_tuning_direct(tuning), 1u << 6);
    for (uint32_t i = 0; i < ALL_SAMPLES; i++)
        ck_assert(!tensor_tuning_note(tuning, 6, true, 9000));
    tensor_tuning_free(tuning);
    ck_assert(g_file_get_contents(path, &again, NULL, &error));
    ck_assert_str_eq(again, text);
}
END_TEST

START_TEST(nothing_is_written_where_nothing_was_found)
{
    TensorTuning *const tuning = tensor_tuning_new(path, "x", 2, 0xf, NULL);

    ck_assert_ptr_nonnull(tuning);
    tensor_tuning_note(tuning, 6, false, 1);
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
    { "nodes 2\n65536 ring\n", RUBATO_ERROR_FORMAT, "line 2" },
    { "nodes 2\n65535 direct\n", RUBATO_ERROR_FORMAT, "65535" },
    { "nodes 2\n16777216 direct\n", RUBATO_ERROR_FORMAT, "16777216" },
    { "nodes 2\n-1 direct\n", RUBATO_ERROR_FORMAT, "line 2" },
    { "nodes 2\n\xff\n", RUBATO_ERROR_FORMAT, "no file of cut-overs" },
};

START_TEST(a_file_that_makes_no_sense_is_refused)
{
    g_autoptr(GError) error = NULL;

    ck_assert(g_file_set_contents(path, refused[_i].text, -1, NULL));
    ck_assert_ptr_null(tensor_tuning_new(path, "x", 2, 0, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, refused[_i].code));
    ck_assert_msg(strstr(error->message, refused[_i].says) != NULL &&
                      strstr(error->message, path) != NULL,
                  "%s", error->message);
}
END_TEST

START_TEST(a_file_that_cannot_be_read_is_refused)
{
    g_autoptr(GError) error = NULL;

    ck_assert_ptr_null(tensor_tuning_new(folder, "x", 2, 0, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_IO));
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("tensor cut-overs");
    TCase *const tuner = tcase_create("tuner");
    TCase *const file = tcase_create("file");

    tcase_add_test(tuner, each_size_has_its_class);
    tcase_add_test(tuner, the_faster_way_is_taken);
    tcase_add_test(tuner, what_was_under_way_at_a_change_counts_for_nothing);
    tcase_add_test(tuner, what_is_pinned_is_not_measured);
    suite_add_tcase(suite, tuner);
    tcase_add_checked_fixture(file, make_folder, remove_folder);
    tcase_add_test(file, what_was_found_is_written_and_holds_the_next_time);
    tcase_add_test(file, nothing_is_written_where_nothing_was_found);
    tcase_add_loop_test(file, a_file_that_makes_no_sense_is_refused, 0, G_N_ELEMENTS(refused));
    tcase_add_test(file, a_file_that_cannot_be_read_is_refused);
    suite_add_tcase(suite, file);
    return run_suite(suite);
}
