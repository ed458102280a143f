/* ChunkTable: the places of chunks, the short last one, and elements on the same data. */
#include <string.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

/* keys, chunk size, and what follows from them */
typedef struct {
    uint64_t n_keys;
    uint32_t chunk_size;
    uint64_t n_chunks;
    uint32_t last_length;
} Shape;

static const Shape shapes[] = {
    { 12, 4, 3, 4 }, { 13, 4, 4, 1 },  { 15, 4, 4, 3 },   { 3, 4, 1, 3 },
    { 1, 1, 1, 1 },  { 10, 0, 10, 1 }, { 100, 7, 15, 2 }, { 5, UINT32_MAX, 1, 5 },
};

enum { FIRST = 30, WIDTH = 2, MAX_KEYS = 100 };

/* Value of column j of the i-th key once it was added to. */
static int64_t value_of(uint64_t i, uint32_t j)
{
    return (int64_t)i * 10 + (int64_t)j + 1;
}

static bool check_rows(const int64_t *values, uint64_t first, uint64_t n, int64_t times,
                       GError **error)
{
    for (uint64_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < WIDTH; j++)
            REQUIRE(values[i * WIDTH + j] == times * value_of(first + i, j), "(key %d, column %u)",
                    (int)(first + i), j);
    return true;
}

static bool check_geometry(const RubatoChunkTable *table, const Shape *shape, GError **error)
{
    const uint32_t chunk_size = MAX(1, shape->chunk_size);

    REQUIRE(rubato_chunk_table_n_chunks(table) == shape->n_chunks);
    REQUIRE(rubato_chunk_table_chunk_size(table) == chunk_size);
    REQUIRE(rubato_chunk_table_width(table) == WIDTH);
    for (uint64_t i = 0; i + 1 < shape->n_chunks; i++)
        REQUIRE(rubato_chunk_table_chunk_length(table, i) == chunk_size);
    REQUIRE(rubato_chunk_table_chunk_length(table, shape->n_chunks - 1) == shape->last_length);
    REQUIRE(rubato_chunk_table_chunk_length(table, shape->n_chunks) == 0);
    return true;
}

/* Adds by chunks, reads by elements and by chunks: backwards, all, the last twice. */
static bool use_chunks(RubatoWorker *worker, void *user_data, GError **error)
{
    const Shape *shape = user_data;
    g_autoptr(RubatoChunkTable) table =
        rubato_worker_open_chunk_table(worker, "t", RUBATO_I64, error);
    const uint64_t last = shape->n_chunks - 1;
    const uint64_t last_twice[] = { last, 0, last };
    const uint64_t chunk_size = MAX(1, shape->chunk_size);
    const uint64_t in_first = MIN(chunk_size, shape->n_keys);
    int64_t deltas[MAX_KEYS * WIDTH], values[3 * MAX_KEYS * WIDTH];
    uint64_t chunks[MAX_KEYS];
    RubatoKey keys[MAX_KEYS];
    uint64_t filled = 0;

    TRY(table != NULL && check_geometry(table, shape, error));
    for (uint64_t i = 0; i < shape->n_keys; i++) {
        keys[i] = FIRST + shape->n_keys - 1 - i;
        for (uint32_t j = 0; j < WIDTH; j++)
            deltas[i * WIDTH + j] = value_of(i, j);
    }
    for (uint64_t i = 0; i < shape->n_chunks; i++)
        chunks[i] = i;
    TRY(rubato_chunk_table_add_chunks(table, chunks, shape->n_chunks, deltas, error));
    TRY(rubato_chunk_table_get(table, keys, shape->n_keys, values, error));
    for (uint64_t i = 0; i < shape->n_keys; i++)
        TRY(check_rows(values + i * WIDTH, shape->n_keys - 1 - i, 1, 1, error));

    /* the last chunk first: its short length decides where the others land */
    for (uint64_t i = 0; i < shape->n_chunks; i++) {
        chunks[i] = last - i;
        for (uint64_t k = 0; k < rubato_chunk_table_chunk_length(table, last - i); k++, filled++)
            for (uint32_t j = 0; j < WIDTH; j++)
                deltas[filled * WIDTH + j] = value_of((last - i) * chunk_size + k, j);
    }
    TRY(rubato_chunk_table_add_chunks(table, chunks, shape->n_chunks, deltas, error));
    memset(values, 0, sizeof values);
    TRY(rubato_chunk_table_get_chunks(table, last_twice, 3, values, error));
    TRY(check_rows(values, last * chunk_size, shape->last_length, 2, error));
    TRY(check_rows(values + shape->last_length * WIDTH, 0, in_first, 2, error));
    TRY(check_rows(values + (shape->last_length + in_first) * WIDTH, last * chunk_size,
                   shape->last_length, 2, error));

    /* repeated chunks accumulate, and elements go to the same rows */
    filled = 0;
    for (int copy = 0; copy < 2; copy++)
        for (uint64_t k = 0; k < in_first; k++, filled++)
            for (uint32_t j = 0; j < WIDTH; j++)
                deltas[filled * WIDTH + j] = value_of(k, j);
    TRY(2 * in_first <= MAX_KEYS
            ? rubato_chunk_table_add_chunks(table, (const uint64_t[]){ 0, 0 }, 2, deltas, error)
            : true);

    /* the first that there is not */
    REQUIRE(!rubato_chunk_table_get_chunks(table, &shape->n_chunks, 1, values, error));
    REQUIRE(is_error(error, RUBATO_ERROR_RANGE, "is outside its chunks 0 to"));
    REQUIRE(!rubato_chunk_table_add_chunks(table, &shape->n_chunks, 1, deltas, error));
    REQUIRE(is_error(error, RUBATO_ERROR_RANGE, "is outside its chunks 0 to"));
    return rubato_chunk_table_clock(table, error);
}

/* _i: shape × servers. */
START_TEST(chunks_and_elements_are_the_same_data)
{
    Shape shape = shapes[_i / 5];
    RubatoEngine *engine = engine_with_servers(1 + (uint32_t)_i % 5);
    int64_t values[MAX_KEYS * WIDTH];
    GError *error = NULL;

    create_table(engine, &(RubatoTableSpec){ .name = "t",
                                             .dtype = RUBATO_I64,
                                             .width = WIDTH,
                                             .first_key = FIRST,
                                             .n_keys = shape.n_keys,
                                             .chunk_size = shape.chunk_size });
    run_ok(engine, 1, use_chunks, &shape, "t");
    ck_assert(rubato_engine_get_range(engine, "t", FIRST, (size_t)shape.n_keys, values, &error));
    for (uint64_t i = 0; i < shape.n_keys; i++) {
        const bool in_first = i < MAX(1, shape.chunk_size);

        for (uint32_t j = 0; j < WIDTH; j++)
            QUICK_ASSERT(values[i * WIDTH + j] == (in_first ? 4 : 2) * value_of(i, j));
    }
    rubato_engine_free(engine);
}
END_TEST

/* A server's range ends where a chunk does. */
START_TEST(a_chunk_lies_on_one_server)
{
    RubatoEngine *engine = engine_with_servers(3);

    create_table(engine, &(RubatoTableSpec){ .name = "t", .n_keys = 37, .chunk_size = 5 });
    ck_assert_uint_eq(count_rows_of(engine, "t", 0), 15);
    ck_assert_uint_eq(count_rows_of(engine, "t", 1), 15);
    ck_assert_uint_eq(count_rows_of(engine, "t", 2), 7);
    rubato_engine_free(engine);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("chunk_table");
    TCase *cases = tcase_create("chunk_table");

    tcase_add_loop_test(cases, chunks_and_elements_are_the_same_data, 0,
                        5 * (int)G_N_ELEMENTS(shapes));
    tcase_add_test(cases, a_chunk_lies_on_one_server);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
