/* Models, storages, update rules and kinds of streams that a program registers. The registry is the
 * process's, and nothing leaves it; so each case runs in a process of its own (check forks). */
#include <rubato/rubato.h>
#include <string.h>

#include "models/model.h"
#include "models/registry.h"
#include "models/storage/storage.h"
#include "models/update/update.h"
#include "tests/support/engine/eager_model.h"
#include "tests/support/runner.h"

/* ---- a rule of one's own ---- */

/* value = value × 2 + delta */
static void apply_rows(const RubatoUpdate *update, void *const *rows, const void *deltas,
                       const uint32_t *at, size_t n)
{
    const float *floats = deltas;

    for (size_t i = 0; i < n; i++)
        for (uint32_t v = 0; v < update->width; v++) {
            float *value = (float *)rows[i] + v;

            *value = *value * 2 + floats[(at == NULL ? i : at[i]) * update->width + v];
        }
}

static const RubatoUpdateOps doubling = { .name = "doubling", .apply_rows = apply_rows };

/* ---- registering ---- */

START_TEST(what_is_registered_has_a_name_like_any_other)
{
    RubatoStorageOps storage = *storage_find("hash");
    GError *error = NULL;

    storage.name = "hash-too";
    ck_assert_ptr_null(rubato_model_traits("eager"));
    ck_assert_ptr_null(rubato_update_rule_traits("doubling"));
    ck_assert_msg(rubato_register_model(&eager_model, &error), "%s",
                  error != NULL ? error->message : "");
    ck_assert(rubato_register_storage(&storage, NULL));
    ck_assert(rubato_register_update_rule(&doubling, NULL));
    ck_assert_ptr_eq(rubato_model_traits("eager"), &eager_model.traits);
    ck_assert_ptr_eq(rubato_update_rule_traits("doubling"), &doubling.traits);
    ck_assert_ptr_eq(storage_find("hash-too"), &storage);

    size_t n = 0;
    while (rubato_model_name(n) != NULL)
        n++;
    ck_assert_str_eq(rubato_model_name(0), "asp");
    ck_assert_str_eq(rubato_model_name(n - 1), "eager");
    for (n = 0; rubato_storage_name(n) != NULL; n++)
        ;
    ck_assert_str_eq(rubato_storage_name(n - 1), "hash-too");
    for (n = 0; rubato_update_rule_name(n) != NULL; n++)
        ;
    ck_assert_str_eq(rubato_update_rule_name(n - 1), "doubling");
}
END_TEST

static bool count(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoKey keys[] = { 3, 70000 };
    const float ones[] = { 1, 1 };
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table(worker, "table", RUBATO_F32, error);

    (void)user_data;
    for (int i = 0; table != NULL && i < 3; i++)
        if (!rubato_kv_table_add(table, keys, 2, ones, error) ||
            !rubato_kv_table_clock(table, error))
            return false;
    return table != NULL;
}

START_TEST(table_of_registered_parts_serves_a_task)
{
    RubatoStorageOps storage = *storage_find("hash");
    const RubatoTableSpec spec = {
        .name = "table", .model = "eager", .storage = "hash-too", .update = "doubling"
    };
    const char *const tables[] = { "table", NULL };
    const RubatoTask task = {
        .name = "count", .run = count, .tables = tables, .workers_per_node = 1
    };
    const RubatoKey key = 70000;
    GError *error = NULL;
    float value = 0;

    storage.name = "hash-too";
    ck_assert(rubato_register_model(&eager_model, NULL) &&
              rubato_register_storage(&storage, NULL) &&
              rubato_register_update_rule(&doubling, NULL));
    g_autoptr(RubatoEngine) engine =
        rubato_engine_new(&(RubatoEngineConfig){ .servers = 2 }, &error);
    ck_assert_ptr_nonnull(engine);
    ck_assert_msg(rubato_engine_create_table(engine, &spec, &error) &&
                      rubato_engine_run(engine, &task, &error) &&
                      rubato_engine_get(engine, "table", &key, 1, &value, &error),
                  "%s", error != NULL ? error->message : "");
    ck_assert_float_eq(value, 7); /* 1, 3, 7 */
}
END_TEST

/* ---- refused ---- */

static void expect_refused(bool registered, GError *error, const char *text)
{
    ck_assert(!registered);
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_INVALID));
    ck_assert_msg(strstr(error->message, text) != NULL, "%s", error->message);
    g_error_free(error);
}

static void expect_model_refused(RubatoModelOps ops, const char *text)
{
    GError *error = NULL;
    const bool registered = rubato_register_model(&ops, &error);

    expect_refused(registered, error, text);
    ck_assert_ptr_null(registry_name(REGISTRY_MODELS, 0));
}

START_TEST(model_without_what_it_needs_is_refused)
{
    RubatoModelOps ops = eager_model;

    ops.name = NULL;
    expect_model_refused(ops, "its name has to be");
    ops.name = "";
    expect_model_refused(ops, "its name has to be");
    ops.name = "Eager";
    expect_model_refused(ops, "its name has to be");
    ops.name = "two words";
    expect_model_refused(ops, "its name has to be");
    ops.name = "a23456789012345678901234567890123"; /* 33 */
    expect_model_refused(ops, "its name has to be");
    ops.name = "bsp";
    expect_model_refused(ops, "there is one of that name already");
    ops = eager_model;
    ops.destroy = NULL;
    expect_model_refused(ops, "it needs create, destroy, get and add");
    ops = eager_model;
    ops.traits.lead = (RubatoLead)9;
    expect_model_refused(ops, "9 is no RubatoLead");
    ops = eager_model;
    ops.traits.lazy_clocks = ops.traits.per_worker_clocks = true;
    expect_model_refused(ops, "exclude each other");
}
END_TEST

START_TEST(storage_without_what_it_needs_is_refused)
{
    RubatoStorageOps ops = *storage_find("hash");
    GError *error = NULL;
    bool registered;

    registered = rubato_register_storage(&ops, &error);
    expect_refused(registered, g_steal_pointer(&error), "there is one of that name already");
    ops.name = "other";
    ops.find = NULL;
    registered = rubato_register_storage(&ops, &error);
    expect_refused(registered, g_steal_pointer(&error), "it needs find and find_or_create");
    ops.holds_range = true;
    ops.run = NULL;
    registered = rubato_register_storage(&ops, &error);
    expect_refused(registered, g_steal_pointer(&error), "it needs create, destroy, run and size");
}
END_TEST

static bool run_nothing(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                        GError **error)
{
    (void)part;
    (void)arguments;
    (void)result;
    (void)error;
    return true;
}

static bool reduce_nothing(const RubatoHandlerSetting *setting, RubatoByteReader *arguments,
                           RubatoByteReader *results, size_t n, RubatoByteWriter *result,
                           GError **error)
{
    (void)setting;
    (void)arguments;
    (void)results;
    (void)n;
    (void)result;
    (void)error;
    return true;
}

START_TEST(handler_without_what_it_needs_is_refused)
{
    static const struct {
        RubatoHandlerOps ops;
        const char *text;
    } cases[] = {
        { { .name = "norm", .run = run_nothing }, "there is one of that name already" },
        { { .name = "No", .run = run_nothing }, "its name has to be" },
        { { .name = "own" }, "it needs run" },
        { { .name = "own", .access = (RubatoAccess)7, .run = run_nothing },
          "7 is no RubatoAccess" },
        { { .name = "own",
            .access = RUBATO_ACCESS_WRITES,
            .run = run_nothing,
            .reduce = reduce_nothing },
          "it has no results to reduce" },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        GError *error = NULL;
        const bool registered = rubato_register_handler(&cases[i].ops, &error);

        expect_refused(registered, error, cases[i].text);
    }
    ck_assert_ptr_null(registry_name(REGISTRY_HANDLERS, 0));
}
END_TEST

START_TEST(rule_without_what_it_needs_is_refused)
{
    RubatoUpdateOps ops = *update_find("momentum");
    GError *error = NULL;
    bool registered;

    ops.name = "other";
    ops.apply = update_find("add")->apply;
    registered = rubato_register_update_rule(&ops, &error);
    expect_refused(registered, g_steal_pointer(&error), "a rule with state can have no apply");
    ops.apply_rows = NULL;
    registered = rubato_register_update_rule(&ops, &error);
    expect_refused(registered, g_steal_pointer(&error), "it needs apply_rows");
}
END_TEST

static char *find_no_directory(const char *rest, GError **error)
{
    (void)rest;
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "there is none");
    return NULL;
}

static RubatoStreamReader *open_nothing(const char *rest, char **directory, GError **error)
{
    (void)rest;
    (void)directory;
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_IO, "it cannot be opened");
    return NULL;
}

static void close_nothing(RubatoStreamReader *reader)
{
    (void)reader;
}

static const RubatoStreamWriterOps no_writer = { .written = NULL };
static const RubatoStreamReaderOps no_reader = { .close = close_nothing };
static const RubatoStreamReaderOps shut_reader = { .open = open_nothing, .close = close_nothing };

#define NO_STREAM .form = "x:NOTHING", .find_directory = find_no_directory

static const struct {
    RubatoStreamOps ops;
    const char *text;
} unfit_streams[] = {
    { { NO_STREAM, .name = "X" }, "its name has to be" },
    { { NO_STREAM, .name = "file" }, "there is one of that name already" },
    { { .name = "x", .form = "x:NOTHING" }, "it needs form and find_directory" },
    { { .name = "x", .find_directory = find_no_directory }, "it needs form and find_directory" },
    { { NO_STREAM, .name = "x", .writer = &no_writer },
      "its writer needs open, written and close" },
    { { NO_STREAM, .name = "x", .reader = &no_reader }, "its reader needs open and close" },
};

START_TEST(kind_of_stream_without_what_it_needs_is_refused)
{
    GError *error = NULL;
    const bool registered = rubato_register_stream(&unfit_streams[_i].ops, &error);

    expect_refused(registered, error, unfit_streams[_i].text);
}
END_TEST

static size_t count_streams(void)
{
    size_t n = 0;

    while (rubato_stream_name(n) != NULL)
        n++;
    return n;
}

/* What a kind says is told by whoever names it, with the URI. */
START_TEST(kind_of_stream_is_found_by_tasks_and_followers)
{
    static const RubatoStreamOps shut = { NO_STREAM, .name = "shut", .reader = &shut_reader };
    static const RubatoFollowerSpec spec = { .uri = "shut:x" };
    const size_t n_before = count_streams();
    GError *error = NULL;
    bool ok;

    ok = rubato_stream_check("shut:x", &error);
    expect_refused(ok, g_steal_pointer(&error), "it is named by file:DIR, the directory of");
    ck_assert(rubato_register_stream(&shut, NULL));
    ck_assert(rubato_register_stream(&shut, NULL));
    ck_assert_uint_eq(count_streams(), n_before + 1);
    ck_assert_str_eq(rubato_stream_name(n_before), "shut");
    ok = rubato_stream_check("shut:x", &error);
    expect_refused(ok, g_steal_pointer(&error), "a stream to \"shut:x\": there is none");
    ok = rubato_stream_check("other:x", &error);
    expect_refused(ok, g_steal_pointer(&error), ", or x:NOTHING");
    ck_assert_ptr_null(rubato_follower_new(&spec, &error));
    ck_assert_str_eq(error->message, "a stream to \"shut:x\": it cannot be opened");
    g_error_free(error);
}
END_TEST

START_TEST(nothing_is_registered_while_there_is_an_engine)
{
    RubatoModelOps second = eager_model;
    GError *error = NULL;
    bool registered;

    second.name = "second";
    ck_assert(rubato_register_model(&eager_model, NULL));
    RubatoEngine *engine = rubato_engine_new(&(RubatoEngineConfig){ .servers = 1 }, &error);
    ck_assert_ptr_nonnull(engine);
    ck_assert(rubato_register_model(&eager_model, NULL)); /* it is there */
    registered = rubato_register_model(&second, &error);
    expect_refused(registered, g_steal_pointer(&error), "the process has an engine");
    rubato_engine_free(engine);
    ck_assert_ptr_null(
        rubato_engine_new(&(RubatoEngineConfig){ .cluster_file = "/no/such" }, NULL));
    ck_assert(rubato_register_model(&second, NULL));
}
END_TEST

START_TEST(sixty_four_of_a_kind_are_enough)
{
    enum { MOST = 64 };
    static RubatoModelOps ops[MOST + 1];
    static char names[MOST + 1][16];
    GError *error = NULL;

    for (unsigned i = 0; i <= MOST; i++) {
        g_snprintf(names[i], sizeof names[i], "model-%u", i);
        ops[i] = eager_model;
        ops[i].name = names[i];
        if (i < MOST)
            ck_assert(rubato_register_model(&ops[i], NULL));
    }
    const bool registered = rubato_register_model(&ops[MOST], &error);
    expect_refused(registered, error, "there are 64 registered ones already");
    ck_assert_ptr_eq(model_find("model-63"), &ops[63]);
}
END_TEST

START_TEST(file_that_is_no_plugin_is_named)
{
    GError *error = NULL;

    ck_assert(!rubato_load_plugin("/no/such.so", &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND));
    ck_assert_ptr_nonnull(strstr(error->message, "/no/such.so"));
    g_clear_error(&error);
    ck_assert(!rubato_load_plugin("libzmq.so.5", &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND));
    ck_assert_ptr_nonnull(strstr(error->message, "does not define rubato_plugin_register"));
    g_clear_error(&error);
}
END_TEST

/* ---- what nodes compare ---- */

START_TEST(descriptions_are_equal_whatever_the_order)
{
    RubatoModelOps second = eager_model;
    g_autofree char *nothing = registry_describe();

    second.name = "a-model";
    ck_assert_str_eq(nothing, "");
    ck_assert(rubato_register_update_rule(&doubling, NULL));
    ck_assert(rubato_register_model(&eager_model, NULL));
    ck_assert(rubato_register_model(&second, NULL));
    g_autofree char *all = registry_describe();
    g_auto(GStrv) lines = g_strsplit(all, "\n", -1);
    ck_assert_uint_eq(g_strv_length(lines), 3);
    ck_assert(g_str_has_prefix(lines[0], "model a-model "));
    ck_assert(g_str_has_prefix(lines[1], "model eager "));
    ck_assert(g_str_has_prefix(lines[2], "update rule doubling "));
}
END_TEST

/* Any trait that differs shows in the description. */
START_TEST(every_trait_is_described)
{
    RubatoModelOps models[7];
    RubatoUpdateOps rules[6];
    static const char *const names[] = { "m0", "m1", "m2", "m3", "m4", "m5", "m6" };

    for (size_t i = 0; i < G_N_ELEMENTS(models); i++) {
        models[i] = eager_model;
        models[i].name = names[i];
    }
    models[1].traits.lead = RUBATO_LEAD_NONE;
    models[2].traits.per_worker_clocks = true;
    models[3].traits.lazy_clocks = true;
    models[4].traits.rows_may_be_cached = true;
    models[5].traits.applies_by_clock = true;
    models[6].traits.takes_announcements = true;
    for (size_t i = 0; i < G_N_ELEMENTS(models); i++)
        ck_assert(rubato_register_model(&models[i], NULL));
    for (size_t i = 0; i < G_N_ELEMENTS(rules); i++) {
        rules[i] = doubling;
        rules[i].name = names[i];
    }
    rules[1].traits.replayable = true;
    rules[2].traits.takes_gradients = true;
    rules[3].traits.may_be_row_wise = true;
    rules[4].traits.hypers = RUBATO_HYPER_BIT(RUBATO_HYPER_BETA1);
    rules[5].traits.defaults.max_gradient = 1;
    for (size_t i = 0; i < G_N_ELEMENTS(rules); i++)
        ck_assert(rubato_register_update_rule(&rules[i], NULL));

    g_autofree char *all = registry_describe();
    g_auto(GStrv) lines = g_strsplit(all, "\n", -1);
    for (size_t i = 0; lines[i] != NULL; i++)
        for (size_t k = 0; k < i; k++)
            if (lines[i][0] == lines[k][0]) /* of a kind */
                ck_assert_str_ne(strrchr(lines[i], ' '), strrchr(lines[k], ' '));
}
END_TEST

START_TEST(differences_are_told_from_either_side)
{
    static const struct {
        const char *theirs, *ours, *text;
    } cases[] = {
        { "", "", NULL },
        { "model a 1", "model a 1", NULL },
        { "model a 1", "", "node 3 has registered the model a, the scheduler has not" },
        { "", "update rule b 1", "the scheduler has registered the update rule b, node 3 has not" },
        { "model a 1\nmodel c 1", "model a 1\nmodel b 1\nmodel c 1",
          "the scheduler has registered the model b, node 3 has not" },
        { "model a 1", "model a 2",
          "the traits of the model a of node 3 are others than those of the scheduler" },
        { "model ab 1", "model a 1", "node 3 has registered the model ab, the scheduler has not" },
        { "model a 1\nmodel a 1", "model a 1",
          "node 3 and the scheduler list what is registered in another way" },
        { "rubbish", "", "node 3 has registered the rubbish, the scheduler has not" },
        { "\n\n", "", "node 3 and the scheduler list what is registered in another way" },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *text =
            registry_compare(cases[i].theirs, "node 3", cases[i].ours, "the scheduler");

        if (cases[i].text == NULL)
            ck_assert_ptr_null(text);
        else
            ck_assert_str_eq(text, cases[i].text);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("registry");
    TCase *registering = tcase_create("registering");
    TCase *comparing = tcase_create("comparing");

    tcase_add_test(registering, what_is_registered_has_a_name_like_any_other);
    tcase_add_test(registering, table_of_registered_parts_serves_a_task);
    tcase_add_test(registering, model_without_what_it_needs_is_refused);
    tcase_add_test(registering, storage_without_what_it_needs_is_refused);
    tcase_add_test(registering, handler_without_what_it_needs_is_refused);
    tcase_add_test(registering, rule_without_what_it_needs_is_refused);
    tcase_add_loop_test(registering, kind_of_stream_without_what_it_needs_is_refused, 0,
                        G_N_ELEMENTS(unfit_streams));
    tcase_add_test(registering, kind_of_stream_is_found_by_tasks_and_followers);
    tcase_add_test(registering, nothing_is_registered_while_there_is_an_engine);
    tcase_add_test(registering, sixty_four_of_a_kind_are_enough);
    tcase_add_test(registering, file_that_is_no_plugin_is_named);
    tcase_add_test(comparing, descriptions_are_equal_whatever_the_order);
    tcase_add_test(comparing, every_trait_is_described);
    tcase_add_test(comparing, differences_are_told_from_either_side);
    suite_add_tcase(suite, registering);
    suite_add_tcase(suite, comparing);
    return run_suite(suite);
}
