/* The dtypes and the error domain. */
#include <rubato/error.h>
#include <rubato/types.h>

#include "tests/support/runner.h"

static const struct {
    RubatoDtype dtype;
    const char *name;
    size_t size;
} dtypes[] = {
    { RUBATO_F32, "f32", sizeof(float) },
    { RUBATO_F64, "f64", sizeof(double) },
    { RUBATO_I32, "i32", sizeof(int32_t) },
    { RUBATO_I64, "i64", sizeof(int64_t) },
    { (RubatoDtype)77, "?", 0 },
};

START_TEST(each_dtype_has_its_name_and_size)
{
    ck_assert_str_eq(rubato_dtype_name(dtypes[_i].dtype), dtypes[_i].name);
    ck_assert_uint_eq(rubato_dtype_size(dtypes[_i].dtype), dtypes[_i].size);
}
END_TEST

START_TEST(the_error_domain_is_our_own)
{
    ck_assert_str_eq(g_quark_to_string(RUBATO_ERROR), "rubato-error-quark");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("types");
    TCase *tcase = tcase_create("types");

    tcase_add_loop_test(tcase, each_dtype_has_its_name_and_size, 0, G_N_ELEMENTS(dtypes));
    tcase_add_test(tcase, the_error_domain_is_our_own);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
