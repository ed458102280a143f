/* A check suite of an outside project: built with `pkg-config --cflags --libs rubato-testing`. */
#include <check.h>
#include <rubato/testing.h>

START_TEST(ssp_keeps_its_bounds)
{
    RubatoModelTest test = { .spec = { .model = "ssp", .staleness = 1 }, .n_seeds = 200 };

    test.bounds = rubato_test_bounds(&test.spec);
    rubato_test_model(&test);
}
END_TEST

/* The test can fail. */
START_TEST(ssp_is_no_bsp)
{
    const RubatoModelTest test = {
        .spec = { .model = "ssp", .staleness = 1 },
        .bounds = { .is_exact = true },
        .n_seeds = 200,
    };
    char *story = rubato_test_model_story(&test);

    ck_assert_ptr_nonnull(story);
    g_free(story);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ssp");
    TCase *tcase = tcase_create("bounds");

    tcase_add_test(tcase, ssp_keeps_its_bounds);
    tcase_add_test(tcase, ssp_is_no_bsp);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed != 0;
}
