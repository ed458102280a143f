/* Tables as NumPy arrays: saved, loaded into other tables, refused when they are damaged or do not
 * fit.
 *
 * docs/reference/table-files.md */
#include <rubato/npy.h>
#include <rubato/table_files.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/support/cluster/program_run.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { N = 8, WIDTH = 3, STEP = 5 };

static char *scratch; /* a folder for the case's files */

static void make_scratch(void)
{
    scratch = make_folder();
}

static void remove_scratch(void)
{
    remove_folder(scratch);
    g_free(scratch);
}

static char *in_scratch(const char *name)
{
    return g_build_filename(scratch, name, NULL);
}

static void expect_error(GError **error, RubatoError code, const char *text)
{
    ck_assert_ptr_nonnull(*error);
    ck_assert_msg(g_error_matches(*error, RUBATO_ERROR, (gint)code), "%s", (*error)->message);
    ck_assert_msg(strstr((*error)->message, text) != NULL, "\"%s\" lacks \"%s\"", (*error)->message,
                  text);
    g_clear_error(error);
}

static RubatoTableSpec spec_of(const char *name, const char *storage, const char *update)
{
    RubatoTableSpec spec = {
        .name = name, .width = WIDTH, .storage = storage, .update = update, .model = "asp"
    };

    if (strcmp(storage, "dense") == 0) {
        spec.first_key = 100;
        spec.n_keys = N;
    }
    return spec;
}

static RubatoKey key_of(const char *storage, size_t i)
{
    return strcmp(storage, "dense") == 0 ? 100 + i : 7 + i * 1000003;
}

/* Adds something to each row, so that the rule has state, too. */
static void fill(RubatoEngine *engine, const char *table, const char *storage)
{
    RubatoKey keys[N];
    float deltas[N * WIDTH];

    for (size_t i = 0; i < N; i++)
        keys[i] = key_of(storage, i);
    for (size_t i = 0; i < N * WIDTH; i++)
        deltas[i] = (float)i / 4 - 5;
    ck_assert(rubato_engine_add(engine, table, keys, N, deltas, NULL));
}

typedef struct {
    float values[N * WIDTH], state[N * WIDTH];
} Rows;

static Rows read_rows(RubatoEngine *engine, const char *table, const char *storage, bool has_state)
{
    RubatoKey keys[N];
    Rows rows = { 0 };

    for (size_t i = 0; i < N; i++)
        keys[i] = key_of(storage, i);
    ck_assert(rubato_engine_get(engine, table, keys, N, rows.values, NULL));
    if (has_state)
        ck_assert(rubato_engine_get_state(engine, table, keys, N, rows.state, NULL));
    return rows;
}

static bool save(RubatoEngine *engine, const char *table, const char *name, GError **error)
{
    g_autofree char *path = in_scratch(name);

    return rubato_engine_save_table(engine, table, path, RUBATO_TABLE_VALUES_AND_STATE, NULL,
                                    error);
}

static bool load(RubatoEngine *engine, const char *table, const char *name,
                 RubatoTableContent content, GError **error)
{
    g_autofree char *path = in_scratch(name);

    return rubato_engine_load_table(engine, table, path, content, NULL, error);
}

/* ---- there and back ---- */

static const char *const storages[] = { "dense", "hash" };

START_TEST(a_table_is_loaded_as_it_was_saved)
{
    const char *storage = storages[_i];
    RubatoEngine *engine = engine_with_servers(2);
    const RubatoTableSpec from = spec_of("from", storage, "adagrad");
    const RubatoTableSpec to = spec_of("to", storage, "adagrad");
    const RubatoTableSpec plain = spec_of("plain", storage, "add");
    GError *error = NULL;

    create_table(engine, &from);
    create_table(engine, &to);
    create_table(engine, &plain);
    fill(engine, "from", storage);
    const Rows before = read_rows(engine, "from", storage, true);
    ck_assert_msg(save(engine, "from", "t", &error), "%s", error != NULL ? error->message : "");

    ck_assert(load(engine, "to", "t", RUBATO_TABLE_VALUES_AND_STATE, NULL));
    const Rows all = read_rows(engine, "to", storage, true);
    ck_assert_mem_eq(all.values, before.values, sizeof all.values);
    ck_assert_mem_eq(all.state, before.state, sizeof all.state);

    ck_assert(load(engine, "to", "t", RUBATO_TABLE_VALUES, NULL));
    const Rows values = read_rows(engine, "to", storage, true);
    ck_assert_mem_eq(values.values, before.values, sizeof values.values);
    for (size_t i = 0; i < N * WIDTH; i++)
        ck_assert(values.state[i] == 0);

    ck_assert(load(engine, "plain", "t", RUBATO_TABLE_VALUES_AND_STATE, NULL));
    const Rows without = read_rows(engine, "plain", storage, false);
    ck_assert_mem_eq(without.values, before.values, sizeof without.values);
    rubato_engine_free(engine);
}
END_TEST

START_TEST(rows_of_a_range_go_into_a_hash_table_and_back)
{
    RubatoEngine *engine = engine_with_servers(2);
    const RubatoTableSpec specs[] = { spec_of("dense", "dense", "add"),
                                      spec_of("hash", "hash", "add"),
                                      spec_of("again", "dense", "add") };

    for (size_t i = 0; i < G_N_ELEMENTS(specs); i++)
        create_table(engine, &specs[i]);
    fill(engine, "dense", "dense");
    const Rows before = read_rows(engine, "dense", "dense", false);
    ck_assert(save(engine, "dense", "range", NULL));
    ck_assert(load(engine, "hash", "range", RUBATO_TABLE_VALUES, NULL));
    ck_assert(save(engine, "hash", "keys", NULL));
    ck_assert(load(engine, "again", "keys", RUBATO_TABLE_VALUES, NULL));
    const Rows after = read_rows(engine, "again", "dense", false);
    ck_assert_mem_eq(after.values, before.values, sizeof after.values);
    rubato_engine_free(engine);
}
END_TEST

static void write_header(FILE *file, const char *descr, unsigned n_dimensions,
                         const uint64_t *shape)
{
    size_t n;
    g_autofree char *header = rubato_npy_header(descr, n_dimensions, shape, &n);

    fwrite(header, 1, n, file);
}

/* As numpy.save writes it: no text beside it. */
START_TEST(arrays_of_other_programs_are_loaded)
{
    RubatoEngine *engine = engine_with_servers(1);
    const RubatoKey keys[] = { 5, 3 };
    const double values[] = { 1.5, -2 };
    g_autofree char *path = in_scratch("numpy.npy");
    g_autofree char *keys_path = in_scratch("numpy.keys.npy");
    double found[2];
    FILE *file = fopen(path, "w");

    write_header(file, "<f8", 1, (const uint64_t[]){ 2 });
    fwrite(values, sizeof *values, 2, file);
    fclose(file);
    file = fopen(keys_path, "w");
    write_header(file, RUBATO_NPY_KEYS, 1, (const uint64_t[]){ 2 });
    fwrite(keys, sizeof *keys, 2, file);
    fclose(file);
    create_table(engine, &(RubatoTableSpec){ .name = "t", .dtype = RUBATO_F64 });
    ck_assert(load(engine, "t", "numpy", RUBATO_TABLE_VALUES, NULL));
    ck_assert(rubato_engine_get(engine, "t", keys, 2, found, NULL));
    ck_assert(found[0] == 1.5 && found[1] == -2);
    rubato_engine_free(engine);
}
END_TEST

/* ---- what is refused ---- */

START_TEST(files_that_are_there_are_not_replaced)
{
    static const char *const names[] = { "t.npy", "t.keys.npy", "t.state.npy", "t.table" };
    RubatoEngine *engine = engine_with_servers(1);
    const RubatoTableSpec spec = spec_of("t", "dense", "add");
    GError *error = NULL;

    create_table(engine, &spec);
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        g_autofree char *path = in_scratch(names[i]);
        g_autofree char *text = NULL;

        ck_assert(g_file_set_contents(path, "mine", 4, NULL));
        ck_assert(!save(engine, "t", "t", &error));
        expect_error(&error, RUBATO_ERROR_EXISTS, names[i]);
        ck_assert(g_file_get_contents(path, &text, NULL, NULL));
        ck_assert_str_eq(text, "mine");
        remove(path);
    }
    ck_assert(save(engine, "t", "t", NULL));
    ck_assert(!save(engine, "t", "missing/t", &error));
    expect_error(&error, RUBATO_ERROR_IO, "missing/t.npy: cannot be written");
    rubato_engine_free(engine);
}
END_TEST

/* Without waiting for the disk. */
static void write_file(const char *path, const char *bytes, size_t n)
{
    FILE *file = fopen(path, "w");

    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, n, file), n);
    ck_assert_int_eq(fclose(file), 0);
}

/* Bytes of each file are changed in turn. The table keeps its rows. */
START_TEST(a_table_with_any_byte_changed_is_refused)
{
    static const char *const suffixes[] = { ".npy", ".keys.npy", ".state.npy", ".table" };
    RubatoEngine *engine = engine_with_servers(1);
    const RubatoTableSpec from = spec_of("from", "hash", "adagrad");
    const RubatoTableSpec to = spec_of("to", "hash", "adagrad");
    const Rows nothing = { 0 };

    create_table(engine, &from);
    create_table(engine, &to);
    fill(engine, "from", "hash");
    ck_assert(save(engine, "from", "t", NULL));
    for (size_t i = 0; i < G_N_ELEMENTS(suffixes); i++) {
        g_autofree char *name = g_strconcat("t", suffixes[i], NULL);
        g_autofree char *path = in_scratch(name);
        g_autofree char *bytes = NULL;
        gsize n;

        ck_assert(g_file_get_contents(path, &bytes, &n, NULL));
        for (size_t at = i; at < n; at += STEP) {
            bytes[at] ^= 1;
            write_file(path, bytes, n);
            /* a header may be padded with anything blank */
            if (load(engine, "to", "t", RUBATO_TABLE_VALUES_AND_STATE, NULL))
                ck_assert_msg(at < 128 && g_ascii_isspace(bytes[at]), "%s: byte %zu", name, at);
            bytes[at] ^= 1;
        }
        write_file(path, bytes, n);
    }
    const Rows after = read_rows(engine, "to", "hash", true);
    ck_assert_mem_eq(after.values, nothing.values, sizeof after.values);
    ck_assert(load(engine, "to", "t", RUBATO_TABLE_VALUES_AND_STATE, NULL));
    rubato_engine_free(engine);
}
END_TEST

START_TEST(a_table_that_does_not_fit_is_refused)
{
    RubatoEngine *engine = engine_with_servers(1);
    const RubatoTableSpec from = spec_of("from", "hash", "adagrad");
    RubatoTableSpec other = spec_of("adam", "hash", "adam");
    GError *error = NULL;

    create_table(engine, &from);
    create_table(engine, &other);
    other = spec_of("wide", "hash", "add");
    other.width = 4;
    create_table(engine, &other);
    other = spec_of("f64", "hash", "add");
    other.dtype = RUBATO_F64;
    create_table(engine, &other);
    other = spec_of("range", "dense", "add");
    create_table(engine, &other);
    create_table(engine, &(RubatoTableSpec){ .name = "ragged", .shape = RUBATO_SHAPE_RAGGED });
    fill(engine, "from", "hash");
    ck_assert(save(engine, "from", "t", NULL));

    ck_assert(!load(engine, "adam", "t", RUBATO_TABLE_VALUES_AND_STATE, &error));
    expect_error(&error, RUBATO_ERROR_MISMATCH, "update rule \"adagrad\", the table has \"adam\"");
    ck_assert(load(engine, "adam", "t", RUBATO_TABLE_VALUES, NULL));
    ck_assert(!load(engine, "wide", "t", RUBATO_TABLE_VALUES, &error));
    expect_error(&error, RUBATO_ERROR_FORMAT, "expected an array (8, 4) of <f4, found (8, 3)");
    ck_assert(!load(engine, "f64", "t", RUBATO_TABLE_VALUES, &error));
    expect_error(&error, RUBATO_ERROR_FORMAT, "<f8");
    ck_assert(!load(engine, "range", "t", RUBATO_TABLE_VALUES, &error));
    expect_error(&error, RUBATO_ERROR_MISMATCH, "key 7 is none of the table's 8 from key 100 on");
    ck_assert(!load(engine, "from", "u", RUBATO_TABLE_VALUES, &error));
    expect_error(&error, RUBATO_ERROR_IO, "u.npy: No such file");
    ck_assert(!save(engine, "ragged", "ragged", &error));
    expect_error(&error, RUBATO_ERROR_INVALID, "different lengths");
    ck_assert(!save(engine, "none", "none", &error));
    expect_error(&error, RUBATO_ERROR_NOT_FOUND, "no table none");
    rubato_engine_free(engine);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("table_files");
    TCase *const cases = tcase_create("files");

    tcase_add_checked_fixture(cases, make_scratch, remove_scratch);
    tcase_add_loop_test(cases, a_table_is_loaded_as_it_was_saved, 0, G_N_ELEMENTS(storages));
    tcase_add_test(cases, rows_of_a_range_go_into_a_hash_table_and_back);
    tcase_add_test(cases, arrays_of_other_programs_are_loaded);
    tcase_add_test(cases, files_that_are_there_are_not_replaced);
    tcase_add_test(cases, a_table_with_any_byte_changed_is_refused);
    tcase_add_test(cases, a_table_that_does_not_fit_is_refused);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
