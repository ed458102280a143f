/* Memory in huge pages: where it begins, what it has, and that it goes. */
#include <check.h>
#include <glib.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "io/huge_pages.h"
#include "tests/support/runner.h"

#define HUGE_PAGE ((size_t)2 << 20)

static const size_t sizes[] = {
    0,         1,       4096,          4097,         HUGE_PAGE / 4 - 1, HUGE_PAGE / 4,
    HUGE_PAGE, 1 << 20, HUGE_PAGE + 8, 3 * HUGE_PAGE
};

START_TEST(memory_is_zero_and_begins_where_a_huge_page_may)
{
    const size_t n = sizes[_i];
    unsigned char *const memory = huge_pages_take(n);
    size_t n_set = 0;

    ck_assert_ptr_nonnull(memory);
    if (n >= HUGE_PAGE / 4)
        ck_assert_uint_eq((uintptr_t)memory % HUGE_PAGE, 0);
    for (size_t i = 0; i < n; i++)
        n_set += memory[i] != 0;
    ck_assert_uint_eq(n_set, 0);
    memset(memory, 1, n);
    huge_pages_free(memory, n);
}
END_TEST

/* What is freed can be mapped again there, as a whole. */
START_TEST(all_of_it_is_freed)
{
    const size_t n = sizes[_i], unit = n >= HUGE_PAGE / 4 ? HUGE_PAGE : 4096;
    const size_t whole = (MAX(n, 1) + unit - 1) / unit * unit;
    unsigned char *const memory = huge_pages_take(n);
    void *again;

    huge_pages_free(memory, n);
    again =
        mmap(memory, whole, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    ck_assert_ptr_eq(again, memory);
    ck_assert_int_eq(munmap(again, whole), 0);
}
END_TEST

START_TEST(more_than_there_is_is_refused)
{
    ck_assert_ptr_null(huge_pages_take(SIZE_MAX));
    ck_assert_ptr_null(huge_pages_take(SIZE_MAX / 2 + 1));
    ck_assert_ptr_null(huge_pages_take(SIZE_MAX / 4));
    huge_pages_free(NULL, 7);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("huge_pages");
    TCase *cases = tcase_create("huge_pages");

    tcase_add_loop_test(cases, memory_is_zero_and_begins_where_a_huge_page_may, 0,
                        G_N_ELEMENTS(sizes));
    tcase_add_loop_test(cases, all_of_it_is_freed, 0, G_N_ELEMENTS(sizes));
    tcase_add_test(cases, more_than_there_is_is_refused);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
