/* The memory of rows that are about to come, which is made ready. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/parts/ready_memory.h"
#include "io/net/processors.h"
#include "models/shard/shard.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"
#include "tests/support/store/small_snapshot.h"

/* A row of 4 KiB; those that are restored lie in the middle of the table, and the parts' bounds
 * among them. */
enum {
    WIDTH = 1024,
    N_KEYS = 12288,
    FIRST = 3072,
    N_RESTORED = 6144,
};

#define ROW_BYTES ((size_t)WIDTH * sizeof(float))
#define HUGE_BYTES ((size_t)2 << 20)

static const RubatoTableSpec spec = { .name = "rows", .width = WIDTH, .n_keys = N_KEYS };

typedef struct {
    uint32_t table, part;
    RubatoKey key;
    unsigned char *row; /* set if the server has it */
} RowPlace;

static void find_row(Server *server, void *data)
{
    RowPlace *const place = data;
    const RubatoShard *const shard = server_find_shard(server, place->table, place->part);
    RubatoKey first;
    uint64_t n;
    size_t stride;

    if (shard == NULL)
        return;
    shard_range(shard, &first, &n);
    if (place->key >= first && place->key - first < n)
        place->row = (unsigned char *)shard_memory(shard, &stride) + (place->key - first) * stride;
}

static unsigned char *row_of(RubatoEngine *engine, const Table *table, RubatoKey key)
{
    RowPlace place = { .table = table->id, .key = key };

    for (; place.part < table->map->n_parts; place.part++)
        for (uint32_t i = 0; i < engine->n_servers; i++)
            servers_run(&engine->servers[i], 1, find_row, &place);
    ck_assert_ptr_nonnull(place.row);
    return place.row;
}

static bool has_memory(unsigned char *row)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    unsigned char is_there;

    ck_assert_int_eq(mincore(row - (uintptr_t)row % page, page, &is_there), 0);
    return (is_there & 1) != 0;
}

static bool is_in_memory(RubatoEngine *engine, const Table *table, RubatoKey key)
{
    return has_memory(row_of(engine, table, key));
}

static bool kernel_can(void)
{
#ifdef MADV_POPULATE_WRITE
    const size_t n = (size_t)sysconf(_SC_PAGESIZE);
    void *const page = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const bool can = page != MAP_FAILED && madvise(page, n, MADV_POPULATE_WRITE) == 0;

    munmap(page, n);
    return can;
#else
    return false;
#endif
}

/* Rows that are near others may lie on the same huge page. */
START_TEST(rows_to_be_restored_get_memory_and_no_others)
{
    g_autoptr(RubatoEngine) engine = engine_with_servers(2);
    const RubatoKey near = 2 * HUGE_BYTES / ROW_BYTES, last = FIRST + N_RESTORED - 1;
    const Table *table;
    ReadyMemory *ready;

    if (processors_count() == 1 || !kernel_can()) {
        fprintf(stderr, "skipped: one processor, or a kernel before 5.14\n");
        return;
    }
    create_table(engine, &spec);
    pthread_mutex_lock(&engine->lock);
    table = engine_find_table(engine, "rows", NULL);
    pthread_mutex_unlock(&engine->lock);
    ready = ready_memory_start(engine, table, FIRST, N_RESTORED);
    ck_assert_ptr_nonnull(ready);
    /* it begins with the last row, and ends with the first whole page */
    while (!is_in_memory(engine, table, FIRST + near))
        ck_assert_int_eq(sched_yield(), 0);
    ready_memory_stop(ready);
    ck_assert(is_in_memory(engine, table, N_KEYS / 2));
    ck_assert(is_in_memory(engine, table, last - near));
    ck_assert(!is_in_memory(engine, table, FIRST - near));
    ck_assert(!is_in_memory(engine, table, last + near));
    ck_assert(!is_in_memory(engine, table, N_KEYS - 1));
}
END_TEST

START_TEST(few_rows_are_not_worth_a_thread)
{
    g_autoptr(RubatoEngine) engine = engine_with_servers(2);
    const Table *table;

    create_table(engine, &spec);
    pthread_mutex_lock(&engine->lock);
    table = engine_find_table(engine, "rows", NULL);
    pthread_mutex_unlock(&engine->lock);
    ck_assert_ptr_null(ready_memory_start(engine, table, FIRST, 100));
}
END_TEST

static bool counts_down(const void *n)
{
    return (*(unsigned *)(uintptr_t)n)-- == 0;
}

/* It ends after the last pieces, or never: then all rows have memory. */
START_TEST(the_rows_of_a_new_shard_get_memory)
{
    RubatoShard *const shard = shard_new(&spec, 0, N_KEYS, NULL);
    unsigned n_few = 2, n_many = 1000;
    unsigned char *rows;
    size_t stride;

    if (!kernel_can()) {
        fprintf(stderr, "skipped: a kernel before 5.14\n");
        return;
    }
    ck_assert_ptr_nonnull(shard);
    rows = shard_memory(shard, &stride);
    ready_memory_fill(shard, counts_down, &n_few);
    ck_assert(has_memory(rows + (N_KEYS - 2) * stride));
    ck_assert(!has_memory(rows + N_KEYS / 2 * stride));
    ready_memory_fill(shard, counts_down, &n_many);
    ck_assert(has_memory(rows + N_KEYS / 2 * stride));
    ck_assert(has_memory(rows + 2 * stride));
    shard_free(shard);
}
END_TEST

static void expect_rows(RubatoEngine *engine, RubatoKey first, size_t n, const float *expected)
{
    g_autofree float *found = g_new(float, n *WIDTH);

    ck_assert(rubato_engine_get_range(engine, "rows", first, n, found, NULL));
    ck_assert_mem_eq(found, expected, n * ROW_BYTES);
}

START_TEST(rows_are_restored_into_a_larger_table)
{
    const RubatoTableSpec smaller = {
        .name = "rows", .width = WIDTH, .first_key = FIRST, .n_keys = N_RESTORED
    };
    g_autofree char *directory = g_dir_make_tmp("rubato-ready-XXXXXX", NULL);
    g_autofree float *rows = g_new(float, (size_t)N_RESTORED *WIDTH);
    g_autofree float *zeros = g_new0(float, (size_t)FIRST *WIDTH);
    g_autoptr(RubatoEngine) written = engine_with_servers(1);
    g_autoptr(RubatoEngine) restored = engine_with_servers(2);

    for (size_t i = 0; i < (size_t)N_RESTORED * WIDTH; i++)
        rows[i] = (float)i;
    create_table(written, &smaller);
    create_table(restored, &spec);
    ck_assert(rubato_engine_set_range(written, "rows", FIRST, N_RESTORED, rows, NULL));
    ck_assert(rubato_engine_snapshot(written, &(RubatoSnapshotSpec){ .directory = directory }, NULL,
                                     NULL));
    ck_assert(rubato_engine_restore(restored, &(RubatoRestoreSpec){ .directory = directory }, NULL,
                                    NULL));
    expect_rows(restored, FIRST, N_RESTORED, rows);
    expect_rows(restored, 0, FIRST, zeros);
    expect_rows(restored, FIRST + N_RESTORED, N_KEYS - FIRST - N_RESTORED, zeros);
    remove_tree(directory);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("ready_memory");
    TCase *const cases = tcase_create("ready");

    tcase_set_timeout(cases, 30);
    tcase_add_test(cases, rows_to_be_restored_get_memory_and_no_others);
    tcase_add_test(cases, few_rows_are_not_worth_a_thread);
    tcase_add_test(cases, the_rows_of_a_new_shard_get_memory);
    tcase_add_test(cases, rows_are_restored_into_a_larger_table);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
