/* The memory of rows of different lengths: what rows hold through changes and compaction, how much
 * memory they take, and how long compaction goes on at a time. */
#include <rubato/testing.h>
#include <stdlib.h>
#include <string.h>

#include "models/ragged/ragged_heap.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

/* What a storage would have: the rows of the keys from FIRST_KEY on. */
enum { FIRST_KEY = 40, MOST_ROWS = 20000 };

typedef struct {
    RaggedHeap *heap;
    uint32_t n_rows;
    RaggedRow rows[MOST_ROWS];
    uint32_t versions[MOST_ROWS]; /* of what the row holds */
    uint32_t lengths[MOST_ROWS];
    uint64_t state; /* of random numbers */
} Table;

static void find(void *user, const RubatoKey *keys, size_t n, RaggedRow **rows)
{
    Table *table = user;

    require_msg(n <= RAGGED_FIND_MOST, "%zu keys at once", n);
    for (size_t i = 0; i < n; i++) {
        require_msg(keys[i] - FIRST_KEY < table->n_rows, "key %" G_GUINT64_FORMAT, keys[i]);
        rows[i] = &table->rows[keys[i] - FIRST_KEY];
    }
}

static Table *new_table(uint32_t n_rows)
{
    Table *table = g_new0(Table, 1);

    table->heap = ragged_heap_new(find, table);
    table->n_rows = n_rows;
    table->state = 1;
    return table;
}

static void free_table(Table *table)
{
    ragged_heap_free(table->heap);
    g_free(table);
}

/* All bytes of a row are the same, so that they are quickly written and compared. */
static unsigned char byte_of(size_t row, uint32_t version)
{
    return (unsigned char)(row * 7 + version * 13);
}

/* Gives a row n bytes, of which it keeps some. */
static void put(Table *table, size_t row, size_t n, size_t kept)
{
    RaggedRow *const at = &table->rows[row];

    require_msg(ragged_heap_resize(table->heap, FIRST_KEY + row, at, n, kept), "no memory");
    if (kept == 0)
        table->versions[row]++;
    unsigned char *const bytes = ragged_heap_bytes(table->heap, at);

    if (n > kept)
        memset(bytes + kept, byte_of(row, table->versions[row]), n - kept);
    table->lengths[row] = (uint32_t)n;
}

static void check_row(Table *table, size_t row)
{
    const unsigned char *bytes = ragged_heap_bytes(table->heap, &table->rows[row]);

    require_msg(ragged_heap_length(table->heap, table->rows[row]) == table->lengths[row] &&
                    (bytes == NULL) == (table->lengths[row] == 0),
                "row %zu of %u bytes", row, table->lengths[row]);
    if (bytes != NULL)
        require_msg(bytes[0] == byte_of(row, table->versions[row]) &&
                        memcmp(bytes, bytes + 1, table->lengths[row] - 1) == 0,
                    "row %zu of %u bytes has others", row, table->lengths[row]);
}

static void check_all(Table *table)
{
    uint64_t n_bytes = 0;

    for (size_t row = 0; row < table->n_rows; row++) {
        check_row(table, row);
        n_bytes += table->lengths[row];
    }
    ck_assert_uint_eq(ragged_heap_row_bytes(table->heap), n_bytes);
}

static void check_memory(const Table *table)
{
    const uint64_t payload = ragged_heap_row_bytes(table->heap);
    const uint64_t all = ragged_heap_all_bytes(table->heap) + table->n_rows * sizeof(RaggedRow);
    const uint64_t most = payload + payload / 2 + 32 * table->n_rows;

    ck_assert_msg(all <= most,
                  "%" G_GUINT64_FORMAT " bytes for %" G_GUINT64_FORMAT " bytes of %u rows, %.2f x",
                  all, payload, table->n_rows, (double)all / (double)payload);
}

/* ---- what rows hold ---- */

/* Lengths from nothing to more than a segment, most of them short. */
static size_t some_length(Table *table)
{
    const uint32_t kind = random_below(&table->state, 100);

    if (kind < 10)
        return 0;
    if (kind < 90)
        return random_below(&table->state, 200);
    if (kind < 99)
        return random_below(&table->state, 5000);
    return random_below(&table->state, 2 << 20);
}

START_TEST(rows_hold_what_they_were_given)
{
    enum { N_ROWS = 300 };
    Table *table = new_table(N_ROWS);
    const size_t n_steps = is_slow() ? 3000 : 30000;

    for (size_t step = 0; step < n_steps; step++) {
        const size_t row = random_below(&table->state, N_ROWS);
        const size_t before = table->lengths[row];
        const size_t n = some_length(table);

        switch (random_below(&table->state, 4)) {
        case 0: /* append */
            if (before < 1 << 20)
                put(table, row, before + n % 300, before);
            break;
        case 1: /* cut */
            put(table, row, MIN(n, before), MIN(n, before));
            break;
        default:
            put(table, row, n, 0);
        }
        if (step % 8 == 0)
            ragged_heap_compact(table->heap);
        check_row(table, random_below(&table->state, N_ROWS));
    }
    check_all(table);
    free_table(table);
}
END_TEST

START_TEST(a_long_row_leaves_nothing_behind)
{
    Table *table = new_table(2);
    const uint64_t empty = ragged_heap_all_bytes(table->heap);

    for (size_t i = 0; i < 100; i++) {
        put(table, 0, (8 << 20) + i, 0);
        put(table, 1, 3, 0);
    }
    check_all(table);
    ck_assert_uint_le(ragged_heap_all_bytes(table->heap), (9 << 20) + empty);
    put(table, 0, 0, 0);
    put(table, 1, 0, 0);
    ck_assert_uint_le(ragged_heap_all_bytes(table->heap), empty + 256);
    free_table(table);
}
END_TEST

START_TEST(a_row_as_long_as_rows_may_be)
{
    Table *table = new_table(1);

    put(table, 0, 5, 0);
    ck_assert(ragged_heap_resize(table->heap, FIRST_KEY, &table->rows[0],
                                 RUBATO_RAGGED_MOST_ROW_BYTES, 5));
    ck_assert_uint_eq(ragged_heap_length(table->heap, table->rows[0]),
                      RUBATO_RAGGED_MOST_ROW_BYTES);
    put(table, 0, 5, 5);
    check_all(table);
    free_table(table);
}
END_TEST

/* ---- memory ---- */

static const struct {
    uint32_t n_rows, most_bytes;
} sizes[] = {
    { MOST_ROWS, 1 },   { MOST_ROWS, 8 }, { MOST_ROWS, 40 },
    { MOST_ROWS, 400 }, { 2000, 3000 },   { 200, 100 },
};

START_TEST(a_million_replacements_leave_little_garbage)
{
    Table *table = new_table(sizes[_i].n_rows);
    const size_t n_steps = is_slow() ? 60000 : 1000000;
    const uint32_t most = sizes[_i].most_bytes;

    for (size_t row = 0; row < table->n_rows; row++)
        put(table, row, random_below(&table->state, most + 1), 0);
    for (size_t step = 0; step < n_steps; step++) {
        put(table, random_below(&table->state, table->n_rows),
            random_below(&table->state, most + 1), 0);
        ragged_heap_compact(table->heap);
        if (step % 10000 == 9999 && table->n_rows > 1000)
            check_memory(table);
    }
    check_all(table);
    free_table(table);
}
END_TEST

/* Each room's array is as long as it has rows, whatever was there before: without compaction. */
START_TEST(short_rows_leave_no_garbage)
{
    static const size_t lengths[] = { 64, 8, 33, 7, 16, 9, 0 };
    Table *table = new_table(MOST_ROWS);
    const uint64_t empty = ragged_heap_all_bytes(table->heap);

    for (size_t i = 0; i < G_N_ELEMENTS(lengths); i++) {
        const uint64_t row_bytes = lengths[i] < 8 ? 0 : 8 + (lengths[i] + 3) / 4 * 4;
        const uint64_t most = MOST_ROWS * (4 * row_bytes + 1) / 4;

        for (size_t row = 0; row < MOST_ROWS; row++)
            put(table, row, lengths[i], 0);
        check_all(table);
        ck_assert_uint_le(ragged_heap_all_bytes(table->heap), empty + most + (6 << 10));
    }
    free_table(table);
}
END_TEST

/* Requests of 2,000 rows: each brings and leaves more than one row's garbage. */
START_TEST(many_rows_at_once_are_kept_up_with)
{
    enum { AT_ONCE = 2000 };
    Table *table = new_table(MOST_ROWS);

    for (size_t step = 0; step < 60; step++) {
        for (size_t i = 0; i < AT_ONCE; i++)
            put(table, random_below(&table->state, MOST_ROWS), random_below(&table->state, 200), 0);
        ragged_heap_compact(table->heap);
    }
    check_all(table);
    check_memory(table);
    ck_assert_uint_le(ragged_heap_most_work(table->heap),
                      RAGGED_MOST_WORK + RAGGED_FIND_MOST * (RAGGED_BLOCK_WORK + (64 << 10)));
    free_table(table);
}
END_TEST

/* What a peak has left is not freed at once, because no call may take long; but it is freed. */
START_TEST(after_a_peak_memory_shrinks_in_small_steps)
{
    Table *table = new_table(MOST_ROWS);
    size_t n_steps = 0;

    for (size_t row = 0; row < MOST_ROWS; row++)
        put(table, row, 2500, 0);
    for (size_t row = 0; row < MOST_ROWS; row++)
        if (row % 8 != 0)
            put(table, row, 0, 0);
    for (uint64_t before = UINT64_MAX; before != ragged_heap_all_bytes(table->heap); n_steps++) {
        before = ragged_heap_all_bytes(table->heap);
        ragged_heap_compact(table->heap);
    }
    ck_assert_uint_gt(n_steps, 2);
    ck_assert_uint_le(ragged_heap_most_work(table->heap),
                      RAGGED_MOST_WORK + RAGGED_FIND_MOST * (RAGGED_BLOCK_WORK + (64 << 10)));
    check_all(table);
    check_memory(table);
    free_table(table);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ragged_heap");
    TCase *rows = tcase_create("rows"), *memory = tcase_create("memory");

    tcase_add_test(rows, rows_hold_what_they_were_given);
    tcase_add_test(rows, a_long_row_leaves_nothing_behind);
    tcase_add_test(rows, a_row_as_long_as_rows_may_be);
    tcase_set_timeout(rows, 60);
    suite_add_tcase(suite, rows);
    tcase_add_loop_test(memory, a_million_replacements_leave_little_garbage, 0,
                        G_N_ELEMENTS(sizes));
    tcase_add_test(memory, short_rows_leave_no_garbage);
    tcase_add_test(memory, many_rows_at_once_are_kept_up_with);
    tcase_add_test(memory, after_a_peak_memory_shrinks_in_small_steps);
    tcase_set_timeout(memory, 60);
    suite_add_tcase(suite, memory);
    return run_suite(suite);
}
