/* A follower of a stream: which versions it applies, what it does when some are missed, damaged,
 * held back or of another run, and what readers see meanwhile. That it has the rows of each
 * version, of tables of all kinds, is shown by test_increments.c. */
#include <check.h>
#include <glib/gstdio.h>
#include <rubato/rubato.h>
#include <stdatomic.h>
#include <string.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"
#include "tests/support/store/small_snapshot.h"

enum { N_KEYS = 40, FULL_EVERY = 4 };

static char *directory, *uri;
static RubatoEngine *engine;
static RubatoKey keys[N_KEYS];

static void begin_run(uint32_t width)
{
    engine = engine_with_servers(2);
    create_table(engine, &(RubatoTableSpec){
                             .name = "n", .dtype = RUBATO_I64, .width = width, .storage = "hash" });
    create_table(engine, &(RubatoTableSpec){ .name = "range", .n_keys = N_KEYS });
    create_table(engine, &(RubatoTableSpec){
                             .name = "lists", .shape = RUBATO_SHAPE_RAGGED, .storage = "hash" });
}

static void set_up(void)
{
    directory = g_dir_make_tmp("rubato-follow-XXXXXX", NULL);
    uri = g_strconcat("file:", directory, NULL);
    for (size_t i = 0; i < N_KEYS; i++)
        keys[i] = i * 1000;
    begin_run(1);
}

static void tear_down(void)
{
    rubato_engine_free(engine);
    remove_tree(directory);
    g_free(directory);
    g_free(uri);
}

/* ---- versions: all rows of "n" have the version's number as their value ---- */

static bool try_version(uint32_t full_every, uint32_t keep, GError **error)
{
    const RubatoSnapshotSpec spec = { .directory = directory,
                                      .full_every = full_every,
                                      .keep = keep };
    int64_t ones[N_KEYS];

    for (size_t i = 0; i < N_KEYS; i++)
        ones[i] = 1;
    return rubato_engine_add(engine, "n", keys, N_KEYS, ones, error) &&
           rubato_engine_snapshot(engine, &spec, NULL, error);
}

static void write_version(uint32_t full_every, uint32_t keep)
{
    g_autoptr(GError) error = NULL;

    ck_assert_msg(try_version(full_every, keep, &error), "%s", error != NULL ? error->message : "");
}

static void write_versions(int n)
{
    for (int i = 0; i < n; i++)
        write_version(FULL_EVERY, 0);
}

static char *find_file(uint64_t version, const char *name)
{
    return g_strdup_printf("%s/snapshot-%06" G_GUINT64_FORMAT "/%s", directory, version, name);
}

/* Not to the disk, for which there would be hundreds of waits. */
static void put_bytes(const char *path, const char *bytes, gsize n)
{
    ck_assert(
        g_file_set_contents_full(path, bytes, (gssize)n, G_FILE_SET_CONTENTS_NONE, 0666, NULL));
}

/* Flips a bit in the middle of a version's manifest. */
static void damage(uint64_t version)
{
    g_autofree char *path = find_file(version, "manifest");
    g_autofree char *bytes = NULL;
    gsize n;

    ck_assert(g_file_get_contents(path, &bytes, &n, NULL));
    bytes[n / 2] ^= 1;
    put_bytes(path, bytes, n);
}

/* The file of some part. (transfer full) */
static char *find_part(uint64_t version)
{
    g_autofree char *folder = find_file(version, "");
    GDir *const dir = g_dir_open(folder, 0, NULL);
    const char *name;
    char *path;

    ck_assert_ptr_nonnull(dir);
    do
        name = g_dir_read_name(dir);
    while (g_strcmp0(name, MANIFEST_NAME) == 0);
    ck_assert_ptr_nonnull(name);
    path = find_file(version, name);
    g_dir_close(dir);
    return path;
}

static void remove_part(uint64_t version)
{
    g_autofree char *path = find_part(version);

    ck_assert_int_eq(g_unlink(path), 0);
}

static void damage_part(uint64_t version)
{
    g_autofree char *path = find_part(version);
    g_autofree char *bytes = NULL;
    gsize n;

    ck_assert(g_file_get_contents(path, &bytes, &n, NULL));
    bytes[n / 2] ^= 1;
    put_bytes(path, bytes, n);
}

static void remove_version(uint64_t version)
{
    g_autofree char *folder = find_file(version, "");

    remove_tree(folder);
}

/* With another manifest, whose checksum is right. */
static void put_manifest(uint64_t version, const Manifest *manifest)
{
    g_autofree char *path = find_file(version, MANIFEST_NAME);
    g_autofree char *text = manifest_text(manifest);

    put_bytes(path, text, strlen(text));
}

enum { HOLD_BACK_S = 100000 };

/* Twice as old as what is held back. */
static void make_old(uint64_t version)
{
    g_autoptr(Manifest) manifest = snapshot_folder_read(directory, version, NULL);

    ck_assert_ptr_nonnull(manifest);
    manifest->time_us -= (int64_t)2 * HOLD_BACK_S * G_USEC_PER_SEC;
    put_manifest(version, manifest);
}

/* ---- followers ---- */

static RubatoFollower *new_held_back(void)
{
    RubatoFollower *const follower =
        rubato_follower_new(&(RubatoFollowerSpec){ .uri = uri, .hold_back_s = HOLD_BACK_S }, NULL);

    ck_assert_ptr_nonnull(follower);
    return follower;
}

static RubatoFollower *new_follower(void)
{
    RubatoFollower *const follower = rubato_follower_new(&(RubatoFollowerSpec){ .uri = uri }, NULL);

    ck_assert_ptr_nonnull(follower);
    return follower;
}

/* All rows have the value of that version. */
static void check_rows(RubatoFollower *follower, uint64_t version, int64_t value)
{
    int64_t values[N_KEYS];
    bool found[N_KEYS];
    uint64_t read = 0;

    ck_assert_uint_eq(rubato_follower_version(follower, NULL), version);
    ck_assert(rubato_follower_get(follower, "n", keys, N_KEYS, values, found, &read, NULL));
    ck_assert_uint_eq(read, version);
    for (size_t i = 0; i < N_KEYS; i++) {
        ck_assert(found[i]);
        ck_assert_int_eq(values[i], value);
    }
}

static void advance(RubatoFollower *follower, RubatoFollowed wanted, uint64_t version)
{
    g_autoptr(GError) error = NULL;
    RubatoFollowed followed;

    ck_assert_msg(rubato_follower_advance(follower, 0, &followed, &error), "%s",
                  error != NULL ? error->message : "");
    ck_assert_int_eq(followed, wanted);
    check_rows(follower, version, (int64_t)version);
}

static void advance_fails(RubatoFollower *follower, RubatoError code, const char *text)
{
    RubatoFollowed followed = RUBATO_FOLLOWED_NEXT;
    GError *error = NULL;

    ck_assert(!rubato_follower_advance(follower, 0, &followed, &error));
    check_error(&error, code, text, NULL);
}

/* ---- the cases ---- */

START_TEST(follower_applies_each_version_once_and_in_order)
{
    g_autoptr(RubatoFollower) follower = new_follower();
    RubatoFollowed followed = RUBATO_FOLLOWED_NEXT;

    ck_assert(rubato_follower_advance(follower, 0, &followed, NULL));
    ck_assert_int_eq(followed, RUBATO_FOLLOWED_NOTHING);
    ck_assert_uint_eq(rubato_follower_version(follower, NULL), 0);
    write_versions(2);
    advance(follower, RUBATO_FOLLOWED_ANEW, 2);
    write_versions(4); /* 5 has all rows */
    for (uint64_t version = 3; version <= 6; version++)
        advance(follower, RUBATO_FOLLOWED_NEXT, version);
    advance(follower, RUBATO_FOLLOWED_NOTHING, 6);
}
END_TEST

START_TEST(follower_goes_back_and_on_again)
{
    g_autoptr(RubatoFollower) follower = rubato_follower_new(
        &(RubatoFollowerSpec){ .uri = uri, .undo_bytes = _i == 0 ? 0 : 1 }, NULL);
    GError *error = NULL;

    write_version(FULL_EVERY, 0);
    for (uint64_t version = 1; version <= 4; version++) {
        advance(follower, version == 1 ? RUBATO_FOLLOWED_ANEW : RUBATO_FOLLOWED_NEXT, version);
        if (version < 4)
            write_version(FULL_EVERY, 0);
    }
    for (uint64_t version = 4; version-- > 1;) {
        ck_assert(rubato_follower_go_to(follower, version, NULL));
        check_rows(follower, version, (int64_t)version);
    }
    advance(follower, RUBATO_FOLLOWED_NEXT, 2);
    ck_assert(rubato_follower_go_to(follower, 4, NULL)); /* forward */
    check_rows(follower, 4, 4);
    ck_assert(!rubato_follower_go_to(follower, 5, &error));
    check_error(&error, RUBATO_ERROR_NOT_FOUND, "no version 5", NULL);
    ck_assert(!rubato_follower_go_to(follower, 0, &error));
    check_error(&error, RUBATO_ERROR_NOT_FOUND, "no version 0", NULL);
    check_rows(follower, 4, 4);
}
END_TEST

/* Rows that a version has changed are still in memory, whatever becomes of the files. */
START_TEST(follower_goes_back_without_reading)
{
    g_autoptr(RubatoFollower) follower = new_follower();

    write_versions(1);
    advance(follower, RUBATO_FOLLOWED_ANEW, 1);
    write_versions(2);
    advance(follower, RUBATO_FOLLOWED_NEXT, 2);
    advance(follower, RUBATO_FOLLOWED_NEXT, 3);
    remove_tree(directory);
    ck_assert(rubato_follower_go_to(follower, 1, NULL));
    check_rows(follower, 1, 1);
}
END_TEST

START_TEST(follower_that_missed_versions_begins_anew)
{
    g_autoptr(RubatoFollower) follower = new_follower();

    write_version(2, 1);
    advance(follower, RUBATO_FOLLOWED_ANEW, 1);
    for (int i = 0; i < 5; i++)
        write_version(2, 1); /* 5 and 6 stay */
    advance(follower, RUBATO_FOLLOWED_ANEW, 6);
    write_version(2, 1);
    advance(follower, RUBATO_FOLLOWED_NEXT, 7);
}
END_TEST

/* It stays where it is until a version with all rows comes; the error is told once. */
START_TEST(damaged_version_is_not_applied)
{
    g_autoptr(RubatoFollower) follower = new_follower();

    write_versions(1);
    advance(follower, RUBATO_FOLLOWED_ANEW, 1);
    write_versions(1);
    damage(2);
    advance_fails(follower, RUBATO_ERROR_FORMAT, "snapshot-000002");
    check_rows(follower, 1, 1);
    advance_fails(follower, RUBATO_ERROR_FORMAT, "snapshot-000002");
    write_versions(1); /* which builds on nothing, since that one cannot be read */
    write_versions(1);
    advance(follower, RUBATO_FOLLOWED_ANEW, 3);
    advance(follower, RUBATO_FOLLOWED_NEXT, 4);
}
END_TEST

START_TEST(follower_begins_with_the_newest_good_version)
{
    g_autoptr(RubatoFollower) follower = new_follower();

    write_versions(3);
    damage(3);
    advance(follower, RUBATO_FOLLOWED_ANEW, 2);
    advance_fails(follower, RUBATO_ERROR_FORMAT, "snapshot-000003");
    check_rows(follower, 2, 2);
}
END_TEST

/* Behind the follower's own, or the newest one when it begins. */
START_TEST(version_without_a_file_is_passed_over)
{
    g_autoptr(RubatoFollower) follower = new_follower();

    write_versions(1);
    if (_i == 0)
        advance(follower, RUBATO_FOLLOWED_ANEW, 1);
    write_versions(1);
    remove_part(2);
    if (_i == 0)
        write_version(/* full_every= */ 1, 0);
    advance(follower, RUBATO_FOLLOWED_ANEW, _i == 0 ? 3 : 1);
}
END_TEST

/* What a manifest says that somebody wrote: of rows that are missing, or of more than can be. */
START_TEST(range_without_all_rows_is_refused)
{
    g_autoptr(RubatoFollower) follower = new_follower();
    g_autoptr(Manifest) manifest = NULL;
    ManifestTable *range;

    write_versions(1);
    manifest = snapshot_folder_read(directory, 1, NULL);
    ck_assert_ptr_nonnull(manifest);
    range = &manifest->tables[manifest->n_tables - 1];
    ck_assert_str_eq(range->spec.name, "range");
    range->spec.n_keys = _i == 0 ? N_KEYS + 1 : UINT64_C(1) << 62; /* of 4 bytes */
    if (_i == 1)
        range->parts[0].n_rows += range->spec.n_keys - N_KEYS;
    put_manifest(1, manifest);
    advance_fails(follower, RUBATO_ERROR_FORMAT,
                  _i == 0 ? "a range of 41 keys has 40 rows" : "more than can be");
    ck_assert_uint_eq(rubato_follower_version(follower, NULL), 0);
}
END_TEST

/* Nothing of a version is applied if any of its bytes is wrong. */
START_TEST(no_flipped_byte_is_followed)
{
    g_autoptr(RubatoFollower) follower = new_follower();
    g_autofree char *folder = find_file(2, "");
    GDir *dir;

    write_versions(1);
    advance(follower, RUBATO_FOLLOWED_ANEW, 1);
    write_versions(1);
    dir = g_dir_open(folder, 0, NULL);
    ck_assert_ptr_nonnull(dir);
    for (const char *name; (name = g_dir_read_name(dir)) != NULL;) {
        g_autofree char *path = find_file(2, name);
        g_autofree char *bytes = NULL;
        gsize n;

        ck_assert(g_file_get_contents(path, &bytes, &n, NULL));
        for (gsize i = 0; i < n; i += 61) {
            g_autoptr(RubatoFollower) other = new_follower();

            bytes[i] ^= 0x10;
            put_bytes(path, bytes, n);
            bytes[i] ^= 0x10;
            ck_assert(rubato_follower_go_to(other, 1, NULL));
            advance_fails(other, RUBATO_ERROR_FORMAT, "snapshot-000002");
            check_rows(other, 1, 1);
        }
        put_bytes(path, bytes, n);
    }
    g_dir_close(dir);
    advance(follower, RUBATO_FOLLOWED_NEXT, 2);
}
END_TEST

/* Fewer versions than before, as many, more; as many with all rows; one more with all rows. */
static const struct {
    int n_before, n;
} streams[] = { { 2, 1 }, { 2, 2 }, { 2, 3 }, { 1, 1 }, { FULL_EVERY, FULL_EVERY + 1 } };

/* Its directory was emptied, and another run streams there. */
START_TEST(follower_notices_another_stream)
{
    g_autoptr(RubatoFollower) follower = new_follower();
    const int n_before = streams[_i].n_before, n = streams[_i].n;

    write_versions(n_before);
    advance(follower, RUBATO_FOLLOWED_ANEW, (uint64_t)n_before);
    rubato_engine_free(engine);
    remove_tree(directory);
    begin_run(1);
    write_versions(n);
    advance(follower, RUBATO_FOLLOWED_ANEW, (uint64_t)n);
}
END_TEST

START_TEST(table_of_another_shape_is_not_followed)
{
    g_autoptr(RubatoFollower) follower = new_follower();

    write_versions(1);
    advance(follower, RUBATO_FOLLOWED_ANEW, 1);
    rubato_engine_free(engine);
    begin_run(2);
    ck_assert(rubato_engine_snapshot(engine, &(RubatoSnapshotSpec){ .directory = directory }, NULL,
                                     NULL));
    advance_fails(follower, RUBATO_ERROR_MISMATCH, "table n has another shape");
    check_rows(follower, 1, 1);
}
END_TEST

/* Which rows go is told by part, so it is not applied to the rows that there are. */
START_TEST(version_of_other_parts_is_read_as_a_whole)
{
    g_autoptr(RubatoFollower) follower = new_follower();
    const float one = 1;
    float weight;

    write_versions(1);
    advance(follower, RUBATO_FOLLOWED_ANEW, 1);
    ck_assert(rubato_engine_drop_table(engine, "range", NULL));
    create_table(engine, &(RubatoTableSpec){ .name = "range", .n_keys = N_KEYS, .parts = 5 });
    ck_assert(rubato_engine_add(engine, "range", &keys[0], 1, &one, NULL));
    write_versions(1);
    advance(follower, RUBATO_FOLLOWED_NEXT, 2);
    ck_assert(rubato_follower_get(follower, "range", &keys[0], 1, &weight, NULL, NULL, NULL));
    ck_assert(weight == 1);
    write_versions(1);
    advance(follower, RUBATO_FOLLOWED_NEXT, 3);
}
END_TEST

/* So it can go back, too. */
START_TEST(tables_of_the_first_version_are_followed)
{
    g_autoptr(RubatoFollower) follower = new_follower();
    RubatoFollowedTable table;
    GError *error = NULL;

    write_versions(1);
    advance(follower, RUBATO_FOLLOWED_ANEW, 1);
    create_table(engine, &(RubatoTableSpec){ .name = "more", .n_keys = 1 });
    write_version(/* full_every= */ 1, 0);
    advance(follower, RUBATO_FOLLOWED_NEXT, 2);
    ck_assert(!rubato_follower_table(follower, "more", &table, &error));
    check_error(&error, RUBATO_ERROR_NOT_FOUND, "no table more", NULL);
    ck_assert(rubato_follower_go_to(follower, 1, NULL));
    check_rows(follower, 1, 1);
}
END_TEST

START_TEST(young_versions_are_held_back)
{
    g_autoptr(RubatoFollower) follower =
        rubato_follower_new(&(RubatoFollowerSpec){ .uri = uri, .hold_back_s = 1e6 }, NULL);
    RubatoFollowed followed;

    write_versions(2);
    ck_assert(rubato_follower_advance(follower, 0, &followed, NULL));
    ck_assert_int_eq(followed, RUBATO_FOLLOWED_NOTHING);
    ck_assert(rubato_follower_go_to(follower, 1, NULL)); /* who asks for it gets it */
    advance(follower, RUBATO_FOLLOWED_NOTHING, 1);
}
END_TEST

START_TEST(versions_that_are_old_enough_are_followed)
{
    g_autoptr(RubatoFollower) follower = new_held_back();

    write_versions(3);
    make_old(1);
    make_old(2);
    advance(follower, RUBATO_FOLLOWED_ANEW, 2);
    advance(follower, RUBATO_FOLLOWED_NOTHING, 2);
    make_old(3);
    advance(follower, RUBATO_FOLLOWED_NEXT, 3);
}
END_TEST

/* The next version is gone, perhaps its own, too, and the others behind it are held back. */
START_TEST(held_back_follower_never_goes_to_an_older_version)
{
    g_autoptr(RubatoFollower) follower = new_held_back();

    write_versions(3);
    for (uint64_t version = 1; version <= 3; version++)
        make_old(version);
    advance(follower, RUBATO_FOLLOWED_ANEW, 3);
    write_versions(2); /* 5 has all rows */
    remove_version(4);
    if (_i == 1)
        remove_version(3);
    advance(follower, RUBATO_FOLLOWED_NOTHING, 3);
    make_old(5);
    advance(follower, RUBATO_FOLLOWED_ANEW, 5);
}
END_TEST

START_TEST(held_back_follower_goes_on_behind_a_damaged_version)
{
    g_autoptr(RubatoFollower) follower = new_held_back();

    write_versions(1);
    make_old(1);
    advance(follower, RUBATO_FOLLOWED_ANEW, 1);
    write_versions(1);
    make_old(2);
    damage_part(2);
    write_version(/* full_every= */ 1, 0);
    if (_i == 1) { /* so is the newest one */
        write_versions(1);
        damage(4);
    }
    advance_fails(follower, RUBATO_ERROR_FORMAT, "snapshot-000002");
    advance_fails(follower, RUBATO_ERROR_FORMAT, "snapshot-000002");
    make_old(3);
    advance(follower, RUBATO_FOLLOWED_ANEW, 3);
}
END_TEST

/* ---- threads ---- */

/* Returns data, or NULL if there is no version. */
static void *write_later(void *data)
{
    return try_version(FULL_EVERY, 0, NULL) ? data : NULL;
}

START_TEST(follower_waits_for_a_version)
{
    g_autoptr(RubatoFollower) follower = new_follower();
    RubatoFollowed followed;
    GThread *writer;

    write_versions(1);
    advance(follower, RUBATO_FOLLOWED_ANEW, 1);
    writer = g_thread_new("writer", write_later, follower);
    ck_assert(rubato_follower_advance(follower, G_MAXDOUBLE, &followed, NULL));
    ck_assert_int_eq(followed, RUBATO_FOLLOWED_NEXT);
    ck_assert_ptr_nonnull(g_thread_join(writer));
    check_rows(follower, 2, 2);
}
END_TEST

typedef struct {
    RubatoFollower *follower;
    _Atomic bool ends;
    _Atomic uint64_t n_reads;
    bool is_torn; /* the reader's */
} Reader;

static void *read_all_the_time(void *data)
{
    Reader *const reader = data;

    while (!atomic_load(&reader->ends)) {
        int64_t values[N_KEYS];
        uint64_t version = 0;

        if (!rubato_follower_get(reader->follower, "n", keys, N_KEYS, values, NULL, &version, NULL))
            reader->is_torn = true;
        for (size_t i = 0; i < N_KEYS; i++)
            reader->is_torn |= values[i] != (int64_t)version;
        atomic_fetch_add(&reader->n_reads, 1);
    }
    return NULL;
}

/* Each read sees one version, while others are applied, undone and read anew. */
START_TEST(no_read_is_torn)
{
    enum { N_READERS = 2, N_VERSIONS = 6 };
    g_autoptr(RubatoFollower) follower = new_follower();
    Reader readers[N_READERS];
    GThread *threads[N_READERS];

    write_versions(N_VERSIONS);
    ck_assert(rubato_follower_go_to(follower, 1, NULL));
    for (int i = 0; i < N_READERS; i++) {
        readers[i] = (Reader){ .follower = follower };
        threads[i] = g_thread_new("reader", read_all_the_time, &readers[i]);
    }
    for (uint64_t version = 2; version <= N_VERSIONS; version++) {
        const uint64_t n_before = atomic_load(&readers[0].n_reads);

        advance(follower, RUBATO_FOLLOWED_NEXT, version);
        if (version % 3 == 0) {
            ck_assert(rubato_follower_go_to(follower, version - 1, NULL));
            ck_assert(rubato_follower_go_to(follower, version, NULL));
        }
        while (atomic_load(&readers[0].n_reads) == n_before)
            g_thread_yield();
    }
    for (int i = 0; i < N_READERS; i++) {
        atomic_store(&readers[i].ends, true);
        g_thread_join(threads[i]);
        ck_assert(!readers[i].is_torn);
    }
}
END_TEST

/* ---- what is wrong ---- */

START_TEST(nonsense_is_refused)
{
    static const char *const none[] = { "none", NULL };
    g_autoptr(RubatoFollower) follower = new_follower();
    g_autoptr(RubatoFollower) other =
        rubato_follower_new(&(RubatoFollowerSpec){ .uri = uri, .tables = none }, NULL);
    RubatoFollowedTable table;
    int64_t value;
    GError *error = NULL;

    ck_assert_ptr_null(rubato_follower_new(&(RubatoFollowerSpec){ .uri = "tcp://h" }, &error));
    check_error(&error, RUBATO_ERROR_INVALID, "is named by file:DIR", NULL);
    ck_assert(!rubato_stream_check("file:s3://bucket/model", &error));
    check_error(&error, RUBATO_ERROR_INVALID, "do not lie in S3", NULL);
    ck_assert_ptr_null(
        rubato_follower_new(&(RubatoFollowerSpec){ .uri = uri, .hold_back_s = -1 }, &error));
    check_error(&error, RUBATO_ERROR_INVALID, "holds back for -1 seconds", NULL);
    ck_assert(!rubato_follower_table(follower, "n", &table, &error));
    check_error(&error, RUBATO_ERROR_NOT_FOUND, "there is no version yet", NULL);
    write_versions(1);
    advance(follower, RUBATO_FOLLOWED_ANEW, 1);
    advance_fails(other, RUBATO_ERROR_NOT_FOUND, "has no table none");
    ck_assert(!rubato_follower_get(follower, "none", keys, 1, &value, NULL, NULL, &error));
    check_error(&error, RUBATO_ERROR_NOT_FOUND, "no table none is followed", NULL);
    ck_assert(!rubato_follower_get(follower, "lists", keys, 1, &value, NULL, NULL, &error));
    check_error(&error, RUBATO_ERROR_INVALID, "rows of different lengths", NULL);
}
END_TEST

START_TEST(keys_without_rows_have_zeros)
{
    g_autoptr(RubatoFollower) follower = new_follower();
    const RubatoKey absent[] = { 1, 1000, UINT64_MAX };
    int64_t values[] = { 7, 7, 7 };
    float weights[] = { 7, 7 };
    bool found[3];

    write_versions(1);
    advance(follower, RUBATO_FOLLOWED_ANEW, 1);
    ck_assert(rubato_follower_get(follower, "n", absent, 3, values, found, NULL, NULL));
    ck_assert(!found[0] && found[1] && !found[2]);
    ck_assert(values[0] == 0 && values[1] == 1 && values[2] == 0);
    ck_assert(rubato_follower_get(follower, "range", absent, 2, weights, found, NULL, NULL));
    ck_assert(found[0] && !found[1] && weights[0] == 0 && weights[1] == 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("following a stream");
    TCase *cases = tcase_create("follower");

    tcase_set_timeout(cases, 30);
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, follower_applies_each_version_once_and_in_order);
    tcase_add_loop_test(cases, follower_goes_back_and_on_again, 0, 2);
    tcase_add_test(cases, follower_goes_back_without_reading);
    tcase_add_test(cases, follower_that_missed_versions_begins_anew);
    tcase_add_test(cases, damaged_version_is_not_applied);
    tcase_add_test(cases, follower_begins_with_the_newest_good_version);
    tcase_add_test(cases, no_flipped_byte_is_followed);
    tcase_add_loop_test(cases, version_without_a_file_is_passed_over, 0, 2);
    tcase_add_loop_test(cases, range_without_all_rows_is_refused, 0, 2);
    tcase_add_loop_test(cases, follower_notices_another_stream, 0, G_N_ELEMENTS(streams));
    tcase_add_test(cases, table_of_another_shape_is_not_followed);
    tcase_add_test(cases, version_of_other_parts_is_read_as_a_whole);
    tcase_add_test(cases, tables_of_the_first_version_are_followed);
    tcase_add_test(cases, young_versions_are_held_back);
    tcase_add_test(cases, versions_that_are_old_enough_are_followed);
    tcase_add_loop_test(cases, held_back_follower_never_goes_to_an_older_version, 0, 2);
    tcase_add_loop_test(cases, held_back_follower_goes_on_behind_a_damaged_version, 0, 2);
    tcase_add_test(cases, follower_waits_for_a_version);
    tcase_add_test(cases, no_read_is_torn);
    tcase_add_test(cases, nonsense_is_refused);
    tcase_add_test(cases, keys_without_rows_have_zeros);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
