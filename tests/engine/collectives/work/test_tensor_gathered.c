/* Memory for what workers gather: huge pages for large arrays, which are kept for the next ones. */
#include "engine/collectives/work/tensor_gathered.h"

#include <check.h>
#include <glib.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/runner.h"

enum {
    HUGE_PAGE_BYTES = 2 << 20,
    LARGE_BYTES = 3 * HUGE_PAGE_BYTES + 17, /* four pages */
    N_THREADS = 3,
    N_TURNS = 50
};

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

static RubatoGathered gather(TensorGatheredPool *pool, uint64_t n_bytes)
{
    RubatoGathered gathered = { 0 };

    ck_assert(tensor_gathered_allocate(pool, &gathered, n_bytes));
    ck_assert_ptr_nonnull(gathered.values);
    return gathered;
}

START_TEST(large_memory_asks_for_huge_pages)
{
    TensorGatheredPool *const pool = tensor_gathered_pool_new();
    RubatoGathered gathered = gather(pool, LARGE_BYTES);
    unsigned char *const memory = gathered.values;

    ck_assert_uint_eq((uintptr_t)memory % HUGE_PAGE_BYTES, 0);
    memory[0] = memory[LARGE_BYTES - 1] = 1;
    if (g_file_test("/sys/kernel/mm/transparent_hugepage", G_FILE_TEST_EXISTS))
        ck_assert(is_advised(memory));
    rubato_gathered_clear(&gathered);
    ck_assert_ptr_null(gathered.values);
    ck_assert_ptr_null(gathered.memory);
    tensor_gathered_pool_close(pool);
}
END_TEST

START_TEST(small_memory_is_as_any)
{
    TensorGatheredPool *const pool = tensor_gathered_pool_new();
    RubatoGathered gathered = gather(pool, 17), other = gather(NULL, LARGE_BYTES);

    memset(gathered.values, 1, 17);
    memset(other.values, 1, LARGE_BYTES);
    rubato_gathered_clear(&gathered);
    rubato_gathered_clear(&other);
    ck_assert_uint_eq(tensor_gathered_pool_bytes(pool), 0);
    tensor_gathered_pool_close(pool);
}
END_TEST

/* What the first one has written is still there; it takes none that is half as large, or twice. */
START_TEST(what_was_freed_is_used_again)
{
    TensorGatheredPool *const pool = tensor_gathered_pool_new();
    RubatoGathered first = gather(pool, LARGE_BYTES), half = gather(pool, 2 * HUGE_PAGE_BYTES),
                   twice = gather(pool, 8 * HUGE_PAGE_BYTES);
    void *const values = first.values;

    memset(first.values, 7, LARGE_BYTES);
    memset(half.values, 8, 1);
    memset(twice.values, 9, 1);
    rubato_gathered_clear(&twice);
    rubato_gathered_clear(&first);
    rubato_gathered_clear(&half);
    ck_assert_uint_eq(tensor_gathered_pool_bytes(pool), 14 * HUGE_PAGE_BYTES);
    first = gather(pool, LARGE_BYTES - HUGE_PAGE_BYTES); /* a quarter less */
    ck_assert_ptr_eq(first.values, values);
    ck_assert_uint_eq(*(unsigned char *)first.values, 7);
    ck_assert_uint_eq(tensor_gathered_pool_bytes(pool), 10 * HUGE_PAGE_BYTES);
    twice = gather(pool, LARGE_BYTES);
    ck_assert_uint_eq(tensor_gathered_pool_bytes(pool), 10 * HUGE_PAGE_BYTES);
    rubato_gathered_clear(&first);
    rubato_gathered_clear(&twice);
    tensor_gathered_pool_close(pool);
}
END_TEST

/* What has been kept longest goes first; what is larger than all that may be is not kept. */
START_TEST(what_is_kept_is_bounded)
{
    TensorGatheredPool *const pool = tensor_gathered_pool_new();
    enum { N = TENSOR_GATHERED_KEPT_BYTES / TENSOR_GATHERED_LARGE_BYTES + 2 };
    RubatoGathered small[N], much;

    for (int i = 0; i < N; i++)
        small[i] = gather(pool, TENSOR_GATHERED_LARGE_BYTES);
    void *const last = small[N - 1].values;
    for (int i = 0; i < N; i++)
        rubato_gathered_clear(&small[i]);
    ck_assert_uint_eq(tensor_gathered_pool_bytes(pool), TENSOR_GATHERED_KEPT_BYTES);
    much = gather(pool, TENSOR_GATHERED_KEPT_BYTES + 1);
    rubato_gathered_clear(&much);
    ck_assert_uint_eq(tensor_gathered_pool_bytes(pool), TENSOR_GATHERED_KEPT_BYTES);
    much = gather(pool, TENSOR_GATHERED_KEPT_BYTES - TENSOR_GATHERED_LARGE_BYTES);
    rubato_gathered_clear(&much);
    ck_assert_uint_eq(tensor_gathered_pool_bytes(pool), TENSOR_GATHERED_KEPT_BYTES);
    small[0] = gather(pool, TENSOR_GATHERED_LARGE_BYTES);
    ck_assert_ptr_eq(small[0].values, last);
    rubato_gathered_clear(&small[0]);
    tensor_gathered_pool_close(pool);
}
END_TEST

/* Under a check of addresses whatever is not freed, or twice, is told at the end. */
START_TEST(results_are_freed_behind_the_end_of_the_task)
{
    TensorGatheredPool *const pool = tensor_gathered_pool_new();
    RubatoGathered kept = gather(pool, LARGE_BYTES), later = gather(pool, LARGE_BYTES),
                   last = gather(pool, LARGE_BYTES);

    rubato_gathered_clear(&kept);
    tensor_gathered_pool_close(pool);
    memset(later.values, 1, LARGE_BYTES);
    rubato_gathered_clear(&later);
    rubato_gathered_clear(&last);
    rubato_gathered_clear(&last);
}
END_TEST

START_TEST(values_that_are_taken_out_are_not_kept)
{
    TensorGatheredPool *const pool = tensor_gathered_pool_new();
    RubatoGathered gathered = gather(pool, LARGE_BYTES), later = gather(pool, LARGE_BYTES);
    unsigned char *const values = g_steal_pointer(&gathered.values);

    rubato_gathered_clear(&gathered);
    ck_assert_uint_eq(tensor_gathered_pool_bytes(pool), 0);
    memset(values, 1, LARGE_BYTES);
    g_free(values);
    tensor_gathered_pool_close(pool);
    g_free(g_steal_pointer(&later.values));
    rubato_gathered_clear(&later);
}
END_TEST

/* With sanitizers a size that cannot be ends the process. */
static bool is_sanitized(void)
{
    const char *const sanitize = g_getenv("RUBATO_SANITIZE");

    return sanitize != NULL && *sanitize != '\0';
}

START_TEST(what_is_kept_is_freed_where_there_is_no_memory)
{
    TensorGatheredPool *const pool = tensor_gathered_pool_new();
    RubatoGathered gathered = gather(pool, LARGE_BYTES), none = { 0 };

    rubato_gathered_clear(&gathered);
    ck_assert(!tensor_gathered_allocate(pool, &none, UINT64_MAX));
    ck_assert_uint_eq(tensor_gathered_pool_bytes(pool), 4 * HUGE_PAGE_BYTES);
    if (!is_sanitized()) {
        ck_assert(!tensor_gathered_allocate(pool, &none, INT64_MAX));
        ck_assert_uint_eq(tensor_gathered_pool_bytes(pool), 0);
    }
    ck_assert_ptr_null(none.values);
    ck_assert_ptr_null(none.memory);
    tensor_gathered_pool_close(pool);
}
END_TEST

/* Each thread writes, reads and frees what it has, as workers of a task do. */
static void *gather_often(void *pool)
{
    for (uint32_t i = 0; i < N_TURNS; i++) {
        RubatoGathered gathered = gather(pool, LARGE_BYTES);
        unsigned char *const values = gathered.values;

        values[0] = values[LARGE_BYTES - 1] = (unsigned char)i;
        ck_assert_uint_eq(values[0] + values[LARGE_BYTES - 1], 2 * i);
        rubato_gathered_clear(&gathered);
    }
    return NULL;
}

START_TEST(any_thread_takes_what_another_has_freed)
{
    TensorGatheredPool *const pool = tensor_gathered_pool_new();
    pthread_t threads[N_THREADS];

    for (int i = 0; i < N_THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, gather_often, pool), 0);
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    ck_assert_uint_ge(tensor_gathered_pool_bytes(pool), 4 * HUGE_PAGE_BYTES);
    ck_assert_uint_le(tensor_gathered_pool_bytes(pool), N_THREADS * 4 * HUGE_PAGE_BYTES);
    tensor_gathered_pool_close(pool);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("tensor_gathered");
    TCase *const cases = tcase_create("cases");

    tcase_add_test(cases, large_memory_asks_for_huge_pages);
    tcase_add_test(cases, small_memory_is_as_any);
    tcase_add_test(cases, what_was_freed_is_used_again);
    tcase_add_test(cases, what_is_kept_is_bounded);
    tcase_add_test(cases, results_are_freed_behind_the_end_of_the_task);
    tcase_add_test(cases, values_that_are_taken_out_are_not_kept);
    tcase_add_test(cases, what_is_kept_is_freed_where_there_is_no_memory);
    tcase_add_test(cases, any_thread_takes_what_another_has_freed);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
