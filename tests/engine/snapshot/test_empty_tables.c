/* Tables that have no row yet, of each kind that begins so: in snapshots and chains of them, in
 * arrays, and in streams. */
#include <rubato/npy.h>
#include <rubato/table_files.h>
#include <string.h>

#include "test_paths.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"
#include "tests/support/store/small_snapshot.h"

enum { KEY = 77 };

static char *directory;

static void set_up(void)
{
    directory = g_dir_make_tmp("rubato-empty-XXXXXX", NULL);
}

static void tear_down(void)
{
    remove_tree(directory);
    g_free(directory);
}

static const RubatoTableSpec specs[] = {
    { .name = "admitted", .storage = "hash", .admit = "count", .admit_count = 2 },
    { .name = "bounded", .storage = "hash", .max_bytes = 16 << 20 },
    { .name = "hash", .width = 3, .storage = "hash", .update = "adam", .parts = 3 },
    { .name = "lists", .shape = RUBATO_SHAPE_RAGGED, .storage = "hash" },
};

static RubatoEngine *with_tables(uint32_t servers)
{
    RubatoEngine *const engine = engine_with_servers(servers);

    for (size_t i = 0; i < G_N_ELEMENTS(specs); i++)
        create_table(engine, &specs[i]);
    return engine;
}

static void expect_no_rows(RubatoEngine *engine)
{
    for (size_t i = 0; i < G_N_ELEMENTS(specs); i++)
        ck_assert_uint_eq(count_rows(engine, specs[i].name), 0);
}

static void take(RubatoEngine *engine, RubatoPacking packing, uint32_t full_every)
{
    const RubatoSnapshotSpec spec = { .directory = directory,
                                      .packing = packing,
                                      .full_every = full_every };

    MUST(rubato_engine_snapshot(engine, &spec, NULL, &error));
}

static void restore(RubatoEngine *engine, uint64_t number)
{
    const RubatoRestoreSpec spec = { .directory = directory, .number = number };

    MUST(rubato_engine_restore(engine, &spec, NULL, &error));
}

static const float row[] = { 1, -2, 3 };

static void set_row(RubatoEngine *engine)
{
    const RubatoKey key = KEY;

    MUST(rubato_engine_set(engine, "hash", &key, 1, row, &error));
}

static void expect_row(RubatoEngine *engine)
{
    const RubatoKey key = KEY;
    float values[3];

    ck_assert_uint_eq(count_rows(engine, "hash"), 1);
    MUST(rubato_engine_get(engine, "hash", &key, 1, values, &error));
    ck_assert_mem_eq(values, row, sizeof row);
}

/* ---- snapshots ---- */

START_TEST(empty_tables_come_back)
{
    g_autoptr(RubatoEngine) from = with_tables(2);

    take(from, _i == 0 ? RUBATO_PACKING_NONE : RUBATO_PACKING_8BIT, 0);
    g_autoptr(RubatoSnapshot) snapshot = rubato_snapshot_open(directory, 0, NULL);
    ck_assert_uint_eq(rubato_snapshot_n_tables(snapshot), G_N_ELEMENTS(specs));
    for (size_t i = 0; i < G_N_ELEMENTS(specs); i++)
        ck_assert_uint_eq(rubato_snapshot_table(snapshot, i)->n_rows, 0);
    MUST(rubato_snapshot_verify(snapshot, &error));

    g_autoptr(RubatoEngine) to = with_tables(3);
    restore(to, 0);
    expect_no_rows(to);
    set_row(to);
    expect_row(to);
}
END_TEST

/* No row, nothing that changed, a first row, nothing again. */
START_TEST(chain_may_begin_without_rows)
{
    g_autoptr(RubatoEngine) from = with_tables(2);
    g_autoptr(RubatoEngine) none = with_tables(1);
    g_autoptr(RubatoEngine) one = with_tables(3);
    uint64_t number;

    take(from, RUBATO_PACKING_NONE, 9);
    take(from, RUBATO_PACKING_NONE, 9);
    set_row(from);
    take(from, RUBATO_PACKING_NONE, 9);
    take(from, RUBATO_PACKING_NONE, 9);
    for (number = 1; number <= 4; number++) {
        g_autoptr(RubatoSnapshot) link = rubato_snapshot_open(directory, number, NULL);

        ck_assert_uint_eq(rubato_snapshot_base(link), number - 1);
        MUST(rubato_snapshot_verify(link, &error));
    }
    restore(none, 2);
    expect_no_rows(none);
    restore(one, 4);
    expect_row(one);
    MUST(rubato_snapshot_compact(directory, 1, &number, &error));
    restore(none, number);
    expect_row(none);
}
END_TEST

/* ---- arrays ---- */

static void expect_no_values(const char *folder)
{
    g_autofree char *path = g_build_filename(folder, "hash", NULL);
    g_autofree char *array = g_strconcat(path, ".npy", NULL);
    g_autofree char *bytes = NULL;
    g_autoptr(RubatoEngine) engine = with_tables(2);
    RubatoTableFiles files;
    gsize n;

    ck_assert(g_file_get_contents(array, &bytes, &n, NULL));
    ck_assert_uint_eq(n % 64, 0); /* a header alone */
    ck_assert_ptr_nonnull(memmem(bytes, n, "(0, 3)", strlen("(0, 3)")));
    MUST(rubato_engine_load_table(engine, "hash", path, RUBATO_TABLE_VALUES_AND_STATE, &files,
                                  &error));
    ck_assert_uint_eq(files.n_rows, 0);
    expect_no_rows(engine);
}

START_TEST(table_without_rows_is_saved_and_loaded)
{
    g_autoptr(RubatoEngine) engine = with_tables(2);
    g_autofree char *path = g_build_filename(directory, "hash", NULL);
    RubatoTableFiles files;

    MUST(rubato_engine_save_table(engine, "hash", path, RUBATO_TABLE_VALUES_AND_STATE, &files,
                                  &error));
    ck_assert_uint_eq(files.n_rows, 0);
    expect_no_values(directory);
}
END_TEST

START_TEST(table_without_rows_is_exported)
{
    g_autofree char *out = g_build_filename(directory, "out", NULL);
    const char *const argv[] = {
        TEST_BIN_DIR "/rubato", "checkpoint", "export", directory, "1", out, NULL
    };
    g_autofree char *said = NULL;
    g_autoptr(RubatoEngine) engine = with_tables(2);
    int status;

    take(engine, RUBATO_PACKING_ZSTD, 0);
    ck_assert(g_spawn_sync(NULL, (char **)(uintptr_t)argv, NULL, G_SPAWN_DEFAULT, NULL, NULL, NULL,
                           &said, &status, NULL));
    ck_assert_msg(g_spawn_check_wait_status(status, NULL), "%s", said);
    expect_no_values(out);
    remove_tree(out);
}
END_TEST

/* ---- streams ---- */

static const char *const hash_alone[] = { "hash", NULL };

/* Of a task that adds nothing, if user_data is NULL. */
static bool add_row(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "hash", RUBATO_F32, error);
    const RubatoKey key = KEY;

    return table != NULL && (user_data == NULL || rubato_kv_table_add(table, &key, 1, row, error));
}

static void stream_once(RubatoEngine *engine, const char *uri, void *adds)
{
    const RubatoTaskStream stream = { .uri = uri };
    const RubatoTask task = { .name = "stream",
                              .run = add_row,
                              .user_data = adds,
                              .tables = hash_alone,
                              .workers_per_node = 1,
                              .stream = &stream };

    run_task_ok(engine, &task);
}

static void expect_version(RubatoFollower *follower, RubatoFollowed expected, bool has_row)
{
    const RubatoKey key = KEY;
    RubatoFollowed followed;
    RubatoFollowedTable shape;
    float values[3];
    bool found;

    MUST(rubato_follower_advance(follower, 0, &followed, &error));
    ck_assert_int_eq(followed, expected);
    MUST(rubato_follower_table(follower, "hash", &shape, &error));
    ck_assert_uint_eq(shape.n_rows, has_row ? 1 : 0);
    MUST(rubato_follower_get(follower, "hash", &key, 1, values, &found, NULL, &error));
    ck_assert(found == has_row);
}

START_TEST(follower_has_a_table_without_rows)
{
    g_autoptr(RubatoEngine) engine = with_tables(2);
    g_autofree char *uri = g_strconcat("file:", directory, NULL);
    g_autoptr(RubatoFollower) follower =
        rubato_follower_new(&(RubatoFollowerSpec){ .uri = uri }, NULL);

    stream_once(engine, uri, NULL);
    expect_version(follower, RUBATO_FOLLOWED_ANEW, false);
    stream_once(engine, uri, NULL);
    expect_version(follower, RUBATO_FOLLOWED_NEXT, false);
    stream_once(engine, uri, engine);
    expect_version(follower, RUBATO_FOLLOWED_NEXT, true);
    MUST(rubato_follower_go_to(follower, 1, &error));
    ck_assert_uint_eq(rubato_follower_version(follower, NULL), 1);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("empty_tables");
    TCase *const cases = tcase_create("empty");

    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_set_timeout(cases, 30); /* most of the time it waits for the disk */
    tcase_add_loop_test(cases, empty_tables_come_back, 0, 2);
    tcase_add_test(cases, chain_may_begin_without_rows);
    tcase_add_test(cases, table_without_rows_is_saved_and_loaded);
    tcase_add_test(cases, table_without_rows_is_exported);
    tcase_add_test(cases, follower_has_a_table_without_rows);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
