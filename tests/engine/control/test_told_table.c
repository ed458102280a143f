/* Tables as lines of text: what is read is what was written. */
#include "engine/control/told_table.h"
#include "tests/support/runner.h"

#include <rubato/error.h>
#include <string.h>

static const ServerCount SERVERS = { 3, 3 };

static const RubatoKey BOUNDS[] = { 10, 20, UINT64_MAX };
static const RubatoKey LISTED[] = { 7, 1, UINT64_MAX - 1 };

static const RubatoTableSpec SPECS[] = {
    { .name = "plain" },
    { .name = "it's \"a\" name, with \\ and \xc3\xbc",
      .dtype = RUBATO_F64,
      .width = 3,
      .n_keys = 1000,
      .first_key = 17,
      .model = "ssp",
      .staleness = 2,
      .replicas = 1,
      .parts = 7 },
    { .name = "by bounds",
      .n_keys = UINT64_MAX,
      .partition = "bounds",
      .bounds = BOUNDS,
      .n_bounds = 3,
      .parts = 4,
      .model = "bsp",
      .max_kept_bytes = 1 << 20,
      .update = "adam",
      .rule = { .learning_rate = 0.1, .epsilon = 1e-30, .clip_norm = 1.0 / 3, .row_wise = true },
      .aggregate = RUBATO_AGGREGATE_MEAN },
    { .name = "zeros, not defaults",
      .update = "momentum",
      .rule = { .momentum = RUBATO_ZERO, .learning_rate = RUBATO_ZERO } },
    { .name = "listed", .admit = "list", .admit_keys = LISTED, .n_admit_keys = 3 },
    { .name = "counted",
      .admit = "count",
      .admit_count = 3,
      .admit_bytes = 1000003,
      .admit_halve_after = 5000011,
      .parts = 8 },
    { .name = "bounded", .max_bytes = 10000019, .evict = "lfu", .parts = 8 },
    { .name = "expiring", .width = 2, .expire = "score", .expire_below = 0.3 },
    { .name = "normal",
      .init = "normal",
      .init_mean = -0.25,
      .init_stddev = 1e-5,
      .seed = UINT64_MAX,
      .chunk_size = 4,
      .n_keys = 64,
      .no_split = true,
      .needs = { .network_bytes = 5, .queries = 6 } },
    { .name = "announced",
      .n_keys = 100,
      .model = "sparse_ssp",
      .staleness = 1,
      .speculation = 2,
      .record = "dense" },
    { .name = "uniform",
      .init = "uniform",
      .init_low = -1,
      .init_high = 3,
      .update = "ftrl",
      .rule = { .beta = 2,
                .l1 = 0.5,
                .l2 = 0.25,
                .clip_value = 9,
                .weight_decay = 0.125,
                .max_gradient = 8,
                .on_bad_gradient = RUBATO_ON_BAD_GRADIENT_REFUSE },
      .needs = { .memory_bytes = 4 } },
    { .name = "zero normal",
      .width = 4,
      .storage = "hash",
      .create_on_get = true,
      .init = "zero_normal",
      .init_stddev = 2,
      .init_zero_every = 2,
      .update = "adagrad",
      .rule = { .initial_accumulator = 0.5 } },
    { .name = "by chance",
      .init_value = 5,
      .admit = "probability",
      .admit_probability = 0.3,
      .expire = "clocks",
      .expire_after = 6,
      .update = "rmsprop",
      .rule = { .decay = 0.5 } },
    { .name = "by score",
      .width = 2,
      .expire = "score",
      .expire_below = 0.3,
      .expire_decay = 0.5,
      .expire_show_weight = 0.25,
      .expire_click_weight = 2,
      .cache = RUBATO_CACHE_NONE },
    { .name = "betas", .update = "adam", .rule = { .beta1 = 0.5, .beta2 = 0.75 } },
    { .name = "ragged", .shape = RUBATO_SHAPE_RAGGED },
    { .name = "no UTF-8: \xff\xc3(", .init_value = 5e-324 },
    { .name = "small", .update = "adam", .rule = { .learning_rate = 1e-310 } },
};

static Table *make(const RubatoTableSpec *spec, uint32_t id, uint64_t hash_seed)
{
    GError *error = NULL;
    Table *const table = table_new(spec, &SERVERS, &error);

    ck_assert_msg(table != NULL, "%s", error != NULL ? error->message : "");
    table->id = id;
    table->hash_seed = hash_seed;
    if (spec->replicas > 0)
        part_map_set_replicas(table->map, 1, (const uint32_t[7]){ 0 });
    return table;
}

/* All but names and lists. Both have no bytes between members that are not 0. */
static void expect_same_members(const RubatoTableSpec *one, const RubatoTableSpec *other)
{
    RubatoTableSpec copies[] = { *one, *other };

    for (size_t i = 0; i < 2; i++) {
        RubatoTableSpec *const copy = &copies[i];

        copy->name = copy->storage = copy->evict = copy->admit = copy->expire = copy->model = NULL;
        copy->record = copy->update = copy->init = copy->partition = NULL;
        copy->admit_keys = copy->bounds = NULL;
    }
    ck_assert_mem_eq(&copies[0], &copies[1], sizeof copies[0]);
}

static void expect_same(const Table *one, const Table *other)
{
    g_autofree char *text = table_describe(one->spec);
    g_autofree char *other_text = table_describe(other->spec);

    ck_assert_str_eq(text, other_text);
    ck_assert_str_eq(one->spec->name, other->spec->name);
    ck_assert_uint_eq(one->id, other->id);
    ck_assert_uint_eq(one->hash_seed, other->hash_seed);
    ck_assert_uint_eq(one->most_parts, other->most_parts);
    ck_assert_uint_eq(one->map->n_parts, other->map->n_parts);
    ck_assert_uint_eq(one->map->n_replicas, other->map->n_replicas);
    expect_same_members(one->given, other->given);
}

START_TEST(table_that_is_read_is_the_one_that_was_written)
{
    g_autoptr(Table) table = make(&SPECS[_i], 5, UINT64_MAX - 3);
    g_autoptr(GString) text = g_string_new(NULL);
    g_autoptr(GString) again = g_string_new(NULL);
    g_autoptr(GError) error = NULL;

    told_table_write(text, table);
    const char *at = text->str;
    g_autoptr(Table) read = told_table_read(&at, &SERVERS, &error);
    ck_assert_msg(read != NULL, "%s: %s", error != NULL ? error->message : "", text->str);
    ck_assert_ptr_eq(at, text->str + text->len);
    expect_same(table, read);
    told_table_write(again, read);
    ck_assert_str_eq(text->str, again->str);
}
END_TEST

START_TEST(lines_are_read_one_after_the_other)
{
    g_autoptr(GString) text = g_string_new(NULL);

    for (uint32_t i = 0; i < G_N_ELEMENTS(SPECS); i++) {
        g_autoptr(Table) table = make(&SPECS[i], i, i);

        told_table_write(text, table);
    }
    const char *at = text->str;
    for (uint32_t i = 0; i < G_N_ELEMENTS(SPECS); i++) {
        g_autoptr(Table) read = told_table_read(&at, &SERVERS, NULL);

        ck_assert_ptr_nonnull(read);
        ck_assert_uint_eq(read->id, i);
        ck_assert_str_eq(read->spec->name, SPECS[i].name);
    }
    ck_assert_str_eq(at, "");
}
END_TEST

static const struct {
    const char *text;
    int code;
} nonsense[] = {
    { "", RUBATO_ERROR_FORMAT },
    { "{}", RUBATO_ERROR_FORMAT }, /* no end */
    { "\n", RUBATO_ERROR_FORMAT },
    { "hello\n", RUBATO_ERROR_FORMAT },
    { "{}\n", RUBATO_ERROR_FORMAT },
    { "{'table': <uint32 1>, 'name': <b'a'>}\n", RUBATO_ERROR_FORMAT },
    { "{'hash_seed': <uint64 1>, 'name': <b'a'>}\n", RUBATO_ERROR_FORMAT },
    { "{'table': <uint32 1>, 'hash_seed': <uint64 1>}\n", RUBATO_ERROR_INVALID },
    { "{'table': <uint32 1048576>, 'hash_seed': <uint64 1>, 'name': "
      "<b'a'>}\n",
      RUBATO_ERROR_FORMAT },
    { "{'table': <uint32 1>, 'hash_seed': <uint64 1>, 'name': <b'a'>, 'map_replicas': <uint32 1>}"
      "\n",
      RUBATO_ERROR_FORMAT },
    { "{'table': <uint32 1>, 'hash_seed': <uint64 1>, 'name': <5>}\n", RUBATO_ERROR_FORMAT },
    { "{'table': <uint32 1>, 'hash_seed': <uint64 1>, 'name': <b'a'>, "
      "'bounds': <['a']>}\n",
      RUBATO_ERROR_FORMAT },
    { "{'table': <uint32 1>, 'hash_seed': <uint64 1>, 'name': <b'a'>, "
      "'storage': <b'heap'>}\n",
      RUBATO_ERROR_NOT_FOUND },
};

START_TEST(what_is_no_table_is_refused_and_left)
{
    const char *at = nonsense[_i].text;
    g_autoptr(GError) error = NULL;

    ck_assert_ptr_null(told_table_read(&at, &SERVERS, &error));
    ck_assert_ptr_eq(at, nonsense[_i].text);
    ck_assert_msg(g_error_matches(error, RUBATO_ERROR, nonsense[_i].code), "%s",
                  error != NULL ? error->message : "no error");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("told_table");
    TCase *texts = tcase_create("texts");

    tcase_add_loop_test(texts, table_that_is_read_is_the_one_that_was_written, 0,
                        G_N_ELEMENTS(SPECS));
    tcase_add_test(texts, lines_are_read_one_after_the_other);
    tcase_add_loop_test(texts, what_is_no_table_is_refused_and_left, 0, G_N_ELEMENTS(nonsense));
    suite_add_tcase(suite, texts);
    return run_suite(suite);
}
