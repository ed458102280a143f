/* Memory for what workers gather: huge pages for large arrays. */
#include "engine/collectives/work/tensor_gathered.h"

#include <check.h>
#include <glib.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/runner.h"

enum { HUGE_PAGE_BYTES = 2 << 20 };

/* Whether the mapping that has this address is advised to have huge pages. */
static bool is_advised(const void *address)
{
    FILE *const maps = fopen("/proc/self/smaps", "r");
    bool is_there = false, has_advice = false;
    unsigned long first, behind;
    char line[4096];

    ck_assert_ptr_nonnull(maps);
    while (fgets(line, sizeof line, maps) != NULL) {
        if (sscanf(line, "%lx-%lx ", &first, &behind) == 2)
            is_there = (uintptr_t)address >= first && (uintptr_t)address < behind;
        if (is_there && g_str_has_prefix(line, "VmFlags:"))
            has_advice = strstr(line, " hg") != NULL;
    }
    fclose(maps);
    return has_advice;
}

START_TEST(large_memory_asks_for_huge_pages)
{
    const size_t n_bytes = 3 * HUGE_PAGE_BYTES + 17;
    unsigned char *const memory = tensor_gathered_new(n_bytes);

    ck_assert_ptr_nonnull(memory);
    ck_assert_uint_eq((uintptr_t)memory % HUGE_PAGE_BYTES, 0);
    memory[0] = memory[n_bytes - 1] = 1;
    if (g_file_test("/sys/kernel/mm/transparent_hugepage", G_FILE_TEST_EXISTS))
        ck_assert(is_advised(memory));
    g_free(memory);
}
END_TEST

START_TEST(small_memory_is_as_any)
{
    unsigned char *const memory = tensor_gathered_new(17);

    ck_assert_ptr_nonnull(memory);
    memset(memory, 1, 17);
    g_free(memory);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("tensor_gathered");
    TCase *const cases = tcase_create("cases");

    tcase_add_test(cases, large_memory_asks_for_huge_pages);
    tcase_add_test(cases, small_memory_is_as_any);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
