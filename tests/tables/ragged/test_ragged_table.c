/* Tables of ragged rows in one process: what each call does and gives back, under every model and
 * over both storages; lengths that do not agree; what such tables refuse. */
#include <stdlib.h>
#include <string.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/engine/ragged_lists.h"
#include "tests/support/runner.h"

enum { N_KEYS = 60, MOST_LENGTH = 40, N_WORKERS = 3, N_PARTS = 5 };

static const char *const models[] = { "asp", "bsp", "ssp" };
static const RubatoDtype dtypes[] = { RUBATO_F32, RUBATO_F64, RUBATO_I32, RUBATO_I64, RUBATO_U8 };

static RubatoKey key_of(bool is_hashed, uint32_t i)
{
    return is_hashed ? (i == 0 ? 0 : rubato_mix64(i)) : 100 + i;
}

static RubatoTableSpec make_spec(const char *model, bool is_hashed, RubatoDtype dtype)
{
    return (RubatoTableSpec){ .name = "lists",
                              .dtype = dtype,
                              .shape = RUBATO_SHAPE_RAGGED,
                              .model = model,
                              .first_key = is_hashed ? 0 : 100,
                              .n_keys = is_hashed ? 0 : N_KEYS,
                              .parts = N_PARTS };
}

/* ---- every call, by one worker, against a list of what the rows should hold ---- */

typedef struct {
    RubatoTableSpec spec;
    bool is_hashed;
    uint32_t lengths[N_KEYS];
    uint8_t values[N_KEYS][4 * MOST_LENGTH]; /* small numbers, as every dtype has them */
} Mirror;

typedef struct {
    uint32_t n;
    uint32_t numbers[16]; /* of keys; they may repeat */
    RubatoKey keys[16];
    uint32_t lengths[16];
    uint8_t small[16 * MOST_LENGTH];
    char values[16 * MOST_LENGTH * 8]; /* the same in the table's dtype */
} Some;

static void store(RubatoDtype dtype, char *values, size_t i, uint8_t value)
{
    if (dtype == RUBATO_U8)
        values[i] = (char)value;
    else
        value_store(dtype, values, i, value);
}

static uint8_t load(RubatoDtype dtype, const void *values, size_t i)
{
    return dtype == RUBATO_U8 ? ((const uint8_t *)values)[i]
                              : (uint8_t)value_load(dtype, values, i);
}

/* Keys, and new values for them; as long as the rows are, or of any length. */
static void choose(const Mirror *mirror, Some *some, bool as_long, uint64_t *random)
{
    size_t at = 0;

    some->n = random_below(random, 17);
    for (uint32_t i = 0; i < some->n; i++) {
        some->numbers[i] = random_below(random, N_KEYS);
        some->keys[i] = key_of(mirror->is_hashed, some->numbers[i]);
        some->lengths[i] =
            as_long ? mirror->lengths[some->numbers[i]] : random_below(random, MOST_LENGTH / 2);
        for (uint32_t j = 0; j < some->lengths[i]; j++, at++) {
            some->small[at] = (uint8_t)random_below(random, 5);
            store(mirror->spec.dtype, some->values, at, some->small[at]);
        }
    }
}

typedef enum { CHANGE_ADD, CHANGE_ASSIGN, CHANGE_APPEND, CHANGE_ERASE, CHANGE_N } Change;

/* Rows must not become longer than the mirror has room for. */
static bool fits(const Mirror *mirror, const Some *some, Change change)
{
    uint32_t longer[N_KEYS] = { 0 };
    bool ok = true;

    for (uint32_t i = 0; i < some->n && change == CHANGE_APPEND; i++) {
        longer[some->numbers[i]] += some->lengths[i];
        ok &= mirror->lengths[some->numbers[i]] + longer[some->numbers[i]] <= MOST_LENGTH;
    }
    return ok;
}

static void apply(Mirror *mirror, const Some *some, Change change)
{
    const uint8_t *from = some->small;

    for (uint32_t i = 0; i < some->n; i++) {
        const uint32_t row = some->numbers[i];
        const uint32_t begin = change == CHANGE_APPEND ? mirror->lengths[row] : 0;
        const uint32_t n = change == CHANGE_ERASE ? 0 : some->lengths[i];

        for (uint32_t j = 0; j < n; j++)
            mirror->values[row][begin + j] =
                (uint8_t)(from[j] + (change == CHANGE_ADD ? mirror->values[row][j] : 0));
        mirror->lengths[row] = begin + n;
        from += some->lengths[i];
    }
}

static bool check_rows(const Mirror *mirror, const Some *some, const uint32_t *lengths,
                       const void *values, GError **error)
{
    size_t at = 0;

    for (uint32_t i = 0; i < some->n; i++) {
        const uint32_t row = some->numbers[i];

        REQUIRE(lengths[i] == mirror->lengths[row], "(%u of row %u, not %u)", lengths[i], row,
                mirror->lengths[row]);
        for (uint32_t j = 0; values != NULL && j < lengths[i]; j++, at++)
            REQUIRE(load(mirror->spec.dtype, values, at) == mirror->values[row][j]);
    }
    return true;
}

static bool wait_for(RubatoWorker *worker, RubatoTicket ticket, GError **error)
{
    return ticket != 0 && rubato_worker_wait(worker, ticket, error);
}

#define CALL(name, ...)                                                                          \
    (asynchronous                                                                                \
         ? wait_for(worker, rubato_ragged_table_##name##_async(table, __VA_ARGS__, NULL, error), \
                    error)                                                                       \
         : rubato_ragged_table_##name(table, __VA_ARGS__, error))

static bool write_some(RubatoWorker *worker, RubatoRaggedTable *table, const Some *some,
                       Change change, bool asynchronous, GError **error)
{
    switch (change) {
    case CHANGE_ADD:
        return CALL(add, some->keys, some->n, some->lengths, some->values);
    case CHANGE_ASSIGN:
        return CALL(assign, some->keys, some->n, some->lengths, some->values);
    case CHANGE_APPEND:
        return CALL(append, some->keys, some->n, some->lengths, some->values);
    case CHANGE_ERASE:
    case CHANGE_N:
        break;
    }
    return CALL(erase, some->keys, some->n);
}

static bool read_some(RubatoWorker *worker, RubatoRaggedTable *table, const Mirror *mirror,
                      const Some *some, bool asynchronous, GError **error)
{
    const size_t value_bytes = rubato_dtype_size(mirror->spec.dtype);
    char into[16 * MOST_LENGTH * 8];
    g_autofree void *values = NULL;
    uint32_t lengths[16];
    size_t n = 0;

    memset(lengths, 0xee, sizeof lengths);
    TRY(CALL(lengths, some->keys, some->n, lengths));
    TRY(check_rows(mirror, some, lengths, NULL, error));
    for (uint32_t i = 0; i < some->n; i++)
        n += lengths[i];
    memset(lengths, 0xee, sizeof lengths);
    TRY(CALL(get, some->keys, some->n, lengths, &values));
    REQUIRE((values != NULL) == (n > 0));
    TRY(check_rows(mirror, some, lengths, values, error));
    memset(into, 0x7e, sizeof into);
    TRY(CALL(get_into, some->keys, some->n, lengths, into, n));
    REQUIRE(n * value_bytes == sizeof into || into[n * value_bytes] == 0x7e);
    return check_rows(mirror, some, lengths, into, error);
}

static bool play_alone(RubatoWorker *worker, void *user_data, GError **error)
{
    Mirror *mirror = user_data;
    uint64_t random = 7;
    Some some;
    g_autoptr(RubatoRaggedTable) table =
        rubato_worker_open_ragged_table(worker, "lists", mirror->spec.dtype, error);

    if (table == NULL)
        return false;
    for (uint32_t step = 0; step < 150; step++) {
        const Change change = (Change)(step % CHANGE_N);

        choose(mirror, &some, change == CHANGE_ADD, &random);
        if (!fits(mirror, &some, change))
            continue;
        TRY(write_some(worker, table, &some, change, step % 3 == 0, error));
        apply(mirror, &some, change);
        memset(some.lengths, 0, sizeof some.lengths);
        memset(some.values, 0x55, sizeof some.values);
        TRY(rubato_ragged_table_clock(table, error));
        choose(mirror, &some, false, &random); /* reads need the keys alone */
        TRY(read_some(worker, table, mirror, &some, step % 2 == 0, error));
    }
    return true;
}

START_TEST(each_call_does_what_it_says)
{
    const bool is_hashed = _i % 2 == 1;
    const char *model = models[_i / 2 % 3];
    RubatoEngine *engine = engine_with_servers(1 + (uint32_t)_i % 3);

    for (size_t i = 0; i < G_N_ELEMENTS(dtypes); i++) {
        Mirror *mirror = g_new0(Mirror, 1);

        mirror->is_hashed = is_hashed;
        mirror->spec = make_spec(model, is_hashed, dtypes[i]);
        create_table(engine, &mirror->spec);
        run_ok(engine, 1, play_alone, mirror, "lists");
        ck_assert(rubato_engine_drop_table(engine, "lists", NULL));
        g_free(mirror);
    }
    rubato_engine_free(engine);
}
END_TEST

/* ---- several workers ---- */

static void run_lists(uint32_t servers, const RaggedLists *lists)
{
    RubatoEngine *engine = engine_with_servers(servers);
    const RubatoTableSpec spec = ragged_lists_spec(lists);
    g_autoptr(GError) error = NULL;

    create_table(engine, &spec);
    run_ok(engine, N_WORKERS, ragged_lists_work, (void *)(uintptr_t)lists, "lists");
    ck_assert_msg(ragged_lists_check(engine, lists, N_WORKERS, &error), "%s",
                  error == NULL ? "" : error->message);
    rubato_engine_free(engine);
}

START_TEST(each_get_shows_what_its_model_lets_it)
{
    const RaggedLists lists = { .model = models[_i % 3],
                                .is_hashed = _i / 3 % 2 == 1,
                                .staleness = _i % 3 == 2 ? 2 : 0,
                                .n_clocks = 12,
                                .scale = 1 };

    run_lists(1, &lists);
    run_lists(3, &lists);
}
END_TEST

/* ---- errors ---- */

static bool add_wrong_lengths(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoKey keys[] = { 101, 100 };
    const uint32_t lengths[] = { 3, 2 }, wrong[] = { 3, 4 };
    const float values[] = { 1, 2, 3, 4, 5 }, deltas[] = { 1, 1, 1, 1, 1, 1, 1 };
    g_autoptr(RubatoRaggedTable) table =
        rubato_worker_open_ragged_table(worker, "lists", RUBATO_F32, error);
    float into[5] = { 0 };
    uint32_t seen[2];
    RubatoTicket ticket;

    (void)user_data;
    TRY(table != NULL && rubato_ragged_table_assign(table, keys, 2, lengths, values, error));
    REQUIRE(!rubato_ragged_table_add(table, keys, 2, wrong, deltas, error));
    REQUIRE(strstr((*error)->message, "brings 4 values for key 100, whose row has 2") != NULL, "%s",
            (*error)->message);
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "lists"));
    ticket = rubato_ragged_table_add_async(table, keys, 2, wrong, deltas, NULL, error);
    REQUIRE(ticket != 0 && !rubato_worker_wait(worker, ticket, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "brings 4 values for key 100"));
    TRY(rubato_worker_wait(worker, ticket, error)); /* told once */
    TRY(rubato_ragged_table_get_into(table, keys, 2, seen, into, 5, error));
    REQUIRE(memcmp(into, values, sizeof values) == 0); /* nothing was added */
    TRY(rubato_ragged_table_add(table, keys, 2, lengths, deltas, error));
    TRY(rubato_ragged_table_get_into(table, keys, 2, seen, into, 5, error));
    REQUIRE(into[0] == 2 && into[4] == 6);
    return true;
}

START_TEST(an_add_of_other_lengths_changes_nothing)
{
    RubatoEngine *engine = engine_with_servers(1);
    RubatoTableSpec spec = make_spec("asp", false, RUBATO_F32);

    spec.parts = 1;
    create_table(engine, &spec);
    run_ok(engine, 1, add_wrong_lengths, NULL, "lists");
    rubato_engine_free(engine);
}
END_TEST

static bool add_wrong_at_clock(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoKey key = 100;
    const uint32_t length = 4;
    const float deltas[] = { 1, 1, 1, 1 };
    uint32_t seen;
    g_autoptr(RubatoRaggedTable) table =
        rubato_worker_open_ragged_table(worker, "lists", RUBATO_F32, error);

    (void)user_data;
    TRY(table != NULL && rubato_ragged_table_add(table, &key, 1, &length, deltas, error));
    TRY(rubato_ragged_table_clock(table, error));
    return rubato_ragged_table_lengths(table, &key, 1, &seen, error);
}

START_TEST(under_bsp_other_lengths_fail_the_task_when_the_clock_ends)
{
    RubatoEngine *engine = engine_with_servers(1);
    const RubatoTableSpec spec = make_spec("bsp", false, RUBATO_F32);
    const char *const tables[] = { "lists", NULL };
    const RubatoTask task = {
        .name = "wrong", .run = add_wrong_at_clock, .tables = tables, .workers_per_node = 1
    };

    create_table(engine, &spec);
    run_fails(engine, &task, RUBATO_ERROR_HANDLER, "4 values for key 100, whose row has 0", NULL);
    rubato_engine_free(engine);
}
END_TEST

static bool too_little_room(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoKey keys[] = { 100, 101 };
    const uint32_t lengths[] = { 3, 2 };
    uint8_t values[] = { 1, 2, 3, 4, 5 }, into[5] = { 9, 9, 9, 9, 9 };
    uint32_t seen[2] = { 0 };
    g_autoptr(RubatoRaggedTable) table =
        rubato_worker_open_ragged_table(worker, "lists", RUBATO_U8, error);

    (void)user_data;
    TRY(table != NULL && rubato_ragged_table_assign(table, keys, 2, lengths, values, error));
    REQUIRE(!rubato_ragged_table_get_into(table, keys, 2, seen, into, 4, error));
    REQUIRE(is_error(error, RUBATO_ERROR_RANGE, "the rows have 5 values, and there is room for 4"));
    REQUIRE(seen[0] == 3 && seen[1] == 2 && into[0] == 9);
    REQUIRE(!rubato_ragged_table_get_into(table, keys, 2, seen, NULL, 0, error));
    REQUIRE(is_error(error, RUBATO_ERROR_RANGE, "5 values"));
    return rubato_ragged_table_get_into(table, keys, 2, seen, into, 5, error) && into[4] == 5;
}

START_TEST(a_get_without_room_tells_the_lengths)
{
    RubatoEngine *engine = engine_with_servers(2);
    const RubatoTableSpec spec = make_spec("asp", false, RUBATO_U8);

    create_table(engine, &spec);
    run_ok(engine, 1, too_little_room, NULL, "lists");
    rubato_engine_free(engine);
}
END_TEST

static bool too_long(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoKey key = 1;
    const uint32_t most = (uint32_t)RUBATO_RAGGED_MOST_ROW_BYTES, more = most + 1, one = 1;
    g_autofree uint8_t *values = g_malloc0(most);
    uint32_t length;
    g_autoptr(RubatoRaggedTable) table =
        rubato_worker_open_ragged_table(worker, "lists", RUBATO_U8, error);

    (void)user_data;
    TRY(table != NULL);
    REQUIRE(!rubato_ragged_table_assign(table, &key, 1, &more, values, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "134217729 values are given for key 1"));
    TRY(rubato_ragged_table_assign(table, &key, 1, &most, values, error));
    REQUIRE(!rubato_ragged_table_append(table, &key, 1, &one, values, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "the row of key 1 has 134217728 bytes"));
    TRY(rubato_ragged_table_lengths(table, &key, 1, &length, error));
    REQUIRE(length == most);
    return rubato_ragged_table_erase(table, &key, 1, error);
}

START_TEST(no_row_becomes_longer_than_rows_may_be)
{
    RubatoEngine *engine = engine_with_servers(1);
    const RubatoTableSpec spec = make_spec("asp", true, RUBATO_U8);

    create_table(engine, &spec);
    run_ok(engine, 1, too_long, NULL, "lists");
    rubato_engine_free(engine);
}
END_TEST

/* ---- what such a table refuses ---- */

START_TEST(a_spec_says_only_what_has_an_effect)
{
    const struct {
        RubatoTableSpec spec;
        const char *text;
    } cases[] = {
        { { .width = 2 }, "width" },
        { { .chunk_size = 2, .n_keys = 10 }, "chunk_size" },
        { { .create_on_get = true }, "create_on_get" },
        { { .init = "uniform", .init_high = 1 }, "init" },
        { { .init_value = 1 }, "init_value" },
        { { .update = "assign" }, "update" },
        { { .rule = { .on_bad_gradient = RUBATO_ON_BAD_GRADIENT_COUNT } }, "on_bad_gradient" },
        { { .model = "bsp", .aggregate = RUBATO_AGGREGATE_SUM }, "aggregate" },
        { { .model = "ssp", .cache = RUBATO_CACHE_ALL }, "cache" },
        { { .model = "sparse_ssp" }, "sparse_ssp" },
    };
    RubatoEngine *engine = engine_with_servers(1);
    const RubatoTableSpec bytes = { .name = "bytes", .dtype = RUBATO_U8 };
    GError *error = NULL;

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        RubatoTableSpec spec = cases[i].spec;

        spec.name = "lists";
        spec.shape = RUBATO_SHAPE_RAGGED;
        ck_assert(!rubato_engine_create_table(engine, &spec, &error));
        check_error(&error, RUBATO_ERROR_INVALID, cases[i].text, "lists", NULL);
    }
    ck_assert(!rubato_engine_create_table(engine, &bytes, &error));
    check_error(&error, RUBATO_ERROR_INVALID, "RUBATO_U8", "RUBATO_SHAPE_RAGGED", NULL);
    rubato_engine_free(engine);
}
END_TEST

static bool open_otherwise(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoHandlerCall call = { .table = "lists", .handler = "norm" };
    const RubatoHandlerCall own = { .table = "lists", .handler = "ragged.get" };

    (void)user_data;
    REQUIRE(rubato_worker_open_kv_table(worker, "lists", RUBATO_F32, error) == NULL);
    REQUIRE(is_error(error, RUBATO_ERROR_TYPE, "RubatoRaggedTable"));
    REQUIRE(rubato_worker_open_chunk_table(worker, "lists", RUBATO_F32, error) == NULL);
    REQUIRE(is_error(error, RUBATO_ERROR_TYPE, "RubatoRaggedTable"));
    REQUIRE(rubato_worker_open_ragged_table(worker, "even", RUBATO_F32, error) == NULL);
    REQUIRE(is_error(error, RUBATO_ERROR_TYPE, "RubatoKVTable"));
    REQUIRE(rubato_worker_open_ragged_table(worker, "lists", RUBATO_U8, error) == NULL);
    REQUIRE(is_error(error, RUBATO_ERROR_TYPE, "u8"));
    REQUIRE(!rubato_worker_call_handler(worker, &call, NULL, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "norm"));
    REQUIRE(!rubato_worker_call_handler(worker, &own, NULL, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "ragged.get"));
    REQUIRE(!rubato_worker_tune(worker, "lists", RUBATO_HYPER_MAX_GRADIENT, 1, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "lists"));
    return true;
}

START_TEST(what_wants_rows_of_one_length_is_refused)
{
    RubatoEngine *engine = engine_with_servers(1);
    const RubatoTableSpec spec = make_spec("asp", false, RUBATO_F32);
    const RubatoTableSpec even = { .name = "even", .n_keys = 10 };
    const char *const tables[] = { "lists", "even", NULL };
    const RubatoTask task = {
        .name = "open", .run = open_otherwise, .tables = tables, .workers_per_node = 1
    };
    const RubatoHandlerCall own = { .table = "even", .handler = "ragged.get" };
    const RubatoKey key = 100;
    uint32_t length;
    void *values;
    float value = 0;
    GError *error = NULL;

    create_table(engine, &spec);
    create_table(engine, &even);
    run_task_ok(engine, &task);
    ck_assert(!rubato_engine_get(engine, "lists", &key, 1, &value, &error));
    check_error(&error, RUBATO_ERROR_TYPE, "rubato_engine_get_ragged", NULL);
    ck_assert(!rubato_engine_reset(engine, "lists", &key, 1, &error));
    check_error(&error, RUBATO_ERROR_TYPE, "lists", NULL);
    ck_assert(!rubato_engine_get_ragged(engine, "even", &key, 1, &length, &values, &error));
    check_error(&error, RUBATO_ERROR_NOT_FOUND, "even", NULL);
    ck_assert(!rubato_engine_call_handler(engine, &own, NULL, &error));
    check_error(&error, RUBATO_ERROR_NOT_FOUND, "ragged.get", NULL);
    rubato_engine_free(engine);
}
END_TEST

/* ---- between tasks ---- */

START_TEST(the_engine_reads_and_writes_rows_between_tasks)
{
    RubatoEngine *engine = engine_with_servers(2);
    const RubatoTableSpec spec = make_spec("bsp", true, RUBATO_I64);
    const RubatoKey keys[] = { 5, 77, 6 };
    const uint32_t lengths[] = { 2, 0, 1 };
    const int64_t values[] = { -1, 2, INT64_MIN };
    uint32_t seen[3];
    int64_t *rows;
    RubatoKey *listed;
    size_t n;

    create_table(engine, &spec);
    ck_assert(rubato_engine_assign_ragged(engine, "lists", keys, 3, lengths, values, NULL));
    ck_assert(rubato_engine_get_ragged(engine, "lists", keys, 3, seen, (void **)&rows, NULL));
    ck_assert_mem_eq(seen, lengths, sizeof seen);
    ck_assert_mem_eq(rows, values, sizeof values);
    g_free(rows);
    ck_assert(rubato_engine_list_keys(engine, "lists", &listed, &n, NULL));
    ck_assert_uint_eq(n, 3);
    g_free(listed);
    ck_assert(rubato_engine_erase_ragged(engine, "lists", keys, 3, NULL));
    ck_assert(rubato_engine_get_ragged(engine, "lists", keys, 3, seen, (void **)&rows, NULL));
    ck_assert_ptr_null(rows);
    ck_assert_uint_eq(seen[0] + seen[1] + seen[2], 0);
    rubato_engine_free(engine);
}
END_TEST

/* ---- memory ---- */

enum { N_LISTS = 20000, N_REPLACED = 500, MOST_VALUES = 60 };

/* Rows of any length between the least and the most. Those of 9 bytes are the worst in hash
 * storage. */
static const struct {
    bool is_hashed;
    RubatoDtype dtype;
    uint32_t least_values, most_values;
} churns[] = {
    { false, RUBATO_F32, 0, 4 }, { false, RUBATO_F32, 0, MOST_VALUES },
    { true, RUBATO_F32, 0, 4 },  { true, RUBATO_F32, 0, MOST_VALUES },
    { true, RUBATO_U8, 0, 1 },   { true, RUBATO_U8, 9, 9 },
};

static void replace_some(RubatoEngine *engine, int churn, const uint32_t *numbers, size_t n,
                         uint64_t *random)
{
    static const float values[N_REPLACED * MOST_VALUES];
    RubatoKey keys[N_REPLACED];
    uint32_t lengths[N_REPLACED];

    for (size_t i = 0; i < n; i++) {
        keys[i] = key_of(churns[churn].is_hashed, numbers[i]);
        lengths[i] =
            churns[churn].least_values +
            random_below(random, churns[churn].most_values - churns[churn].least_values + 1);
    }
    require_msg(rubato_engine_assign_ragged(engine, "lists", keys, n, lengths, values, NULL),
                "not assigned");
}

static uint64_t count_values(RubatoEngine *engine)
{
    g_autofree RubatoKey *keys = NULL;
    g_autofree uint32_t *lengths = NULL;
    g_autofree char *values = NULL;
    uint64_t n_values = 0;
    size_t n;

    ck_assert(rubato_engine_list_keys(engine, "lists", &keys, &n, NULL));
    lengths = g_new(uint32_t, n);
    ck_assert(rubato_engine_get_ragged(engine, "lists", keys, n, lengths, (void **)&values, NULL));
    for (size_t i = 0; i < n; i++)
        n_values += lengths[i];
    return n_values;
}

static void check_bytes(RubatoEngine *engine, RubatoDtype dtype)
{
    const uint64_t payload = count_values(engine) * rubato_dtype_size(dtype);
    RubatoTableStats stats;

    ck_assert(rubato_engine_table_stats(engine, "lists", &stats, NULL));
    ck_assert_uint_eq(stats.n_rows, N_LISTS);
    ck_assert_msg(stats.n_bytes > payload &&
                      stats.n_bytes <= payload + payload / 2 + 32 * stats.n_rows,
                  "%" G_GUINT64_FORMAT " bytes for %" G_GUINT64_FORMAT " bytes of values",
                  stats.n_bytes, payload);
}

/* Of all that the table takes: rows, garbage, and how rows are found. */
START_TEST(a_million_replacements_leave_a_table_small)
{
    const size_t n_requests = (is_slow() ? 60000 : 1000000) / N_REPLACED;
    RubatoTableSpec spec = make_spec("asp", churns[_i].is_hashed, churns[_i].dtype);
    RubatoEngine *engine = engine_with_servers(2);
    uint32_t numbers[N_REPLACED];
    uint64_t random = 5;

    spec.n_keys = churns[_i].is_hashed ? 0 : N_LISTS;
    create_table(engine, &spec);
    for (uint32_t number = 0; number < N_LISTS; number += N_REPLACED) {
        for (uint32_t i = 0; i < N_REPLACED; i++)
            numbers[i] = number + i;
        replace_some(engine, _i, numbers, N_REPLACED, &random);
    }
    for (size_t request = 0; request < n_requests; request++) {
        for (size_t i = 0; i < N_REPLACED; i++)
            numbers[i] = random_below(&random, N_LISTS);
        replace_some(engine, _i, numbers, N_REPLACED, &random);
        if (request % (n_requests / 4) == 0)
            check_bytes(engine, churns[_i].dtype);
    }
    check_bytes(engine, churns[_i].dtype);
    rubato_engine_free(engine);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ragged_table");
    TCase *calls = tcase_create("calls"), *refused = tcase_create("errors");

    tcase_add_loop_test(calls, each_call_does_what_it_says, 0, 6);
    tcase_add_loop_test(calls, each_get_shows_what_its_model_lets_it, 0, 6);
    tcase_add_test(calls, the_engine_reads_and_writes_rows_between_tasks);
    tcase_add_loop_test(calls, a_million_replacements_leave_a_table_small, 0, G_N_ELEMENTS(churns));
    tcase_set_timeout(calls, 60);
    suite_add_tcase(suite, calls);
    tcase_add_test(refused, an_add_of_other_lengths_changes_nothing);
    tcase_add_test(refused, under_bsp_other_lengths_fail_the_task_when_the_clock_ends);
    tcase_add_test(refused, a_get_without_room_tells_the_lengths);
    tcase_add_test(refused, no_row_becomes_longer_than_rows_may_be);
    tcase_add_test(refused, a_spec_says_only_what_has_an_effect);
    tcase_add_test(refused, what_wants_rows_of_one_length_is_refused);
    tcase_set_timeout(refused, 60);
    suite_add_tcase(suite, refused);
    return run_suite(suite);
}
