/* Snapshots in S3, by a real server: they come back, in parts and pages, whatever the server and
 * the network do meanwhile; and one that is torn is never taken for a snapshot. */
#include <glib/gstdio.h>
#include <rubato/error.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "io/store/folder_ops.h"
#include "io/store/s3/s3_list.h"
#include "io/store/s3/s3_text.h"
#include "io/store/snapshot.h"
#include "io/store/store_file.h"
#include "test_paths.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"
#include "tests/support/store/s3_server.h"
#include "tests/support/store/small_chain.h"
#include "tests/support/store/small_snapshot.h"

/* Each case has a place of its own. */
static char *directory;

static void set_up(void)
{
    static int n_cases;

    directory = g_strdup_printf("s3://snapshots/of a test/%d-%d", (int)getpid(), n_cases++);
    s3_server_be_good();
}

static void tear_down(void)
{
    g_clear_pointer(&directory, g_free);
}

static uint64_t write_one(uint64_t seed, RubatoPacking packing)
{
    g_autoptr(GError) error = NULL;
    uint64_t number;

    if (!small_snapshot_write(directory, seed, packing, &number, &error))
        ck_abort_msg("%s", error->message);
    return number;
}

static void expect_list(size_t n_expected, const uint64_t *expected)
{
    g_autofree uint64_t *numbers = NULL;
    g_autoptr(GError) error = NULL;
    size_t n;

    if (!rubato_snapshot_list(directory, &numbers, &n, &error))
        ck_abort_msg("%s", error->message);
    ck_assert_uint_eq(n, n_expected);
    if (n > 0)
        ck_assert_mem_eq(numbers, expected, n * sizeof *numbers);
}

/* The keys of the case's place that begin so. (transfer full) */
static GPtrArray *list_keys(const char *name, uint32_t most)
{
    g_auto(S3Path) path = { .bucket = NULL };
    g_autoptr(S3Client) client = s3_client_new(NULL);
    GPtrArray *const keys = g_ptr_array_new_with_free_func(g_free);
    g_autofree char *before = NULL;
    g_autoptr(GError) error = NULL;

    ck_assert(client != NULL && s3_path_parse(directory, &path, NULL));
    before = s3_path_below(&path, name);
    if (!s3_list(client, path.bucket, before, most, keys, NULL, &error))
        ck_abort_msg("%s", error->message);
    return keys;
}

/* ---- they come back ---- */

START_TEST(snapshot_comes_back_as_it_was)
{
    const RubatoPacking packing = _i == 0 ? RUBATO_PACKING_NONE : RUBATO_PACKING_ZSTD;
    g_autoptr(RubatoSnapshot) snapshot = NULL;

    expect_list(0, NULL);
    ck_assert_uint_eq(write_one(11, packing), 1);
    ck_assert_uint_eq(write_one(12, packing), 2);
    small_snapshot_check(directory, 1, 11);
    small_snapshot_check(directory, 0, 12);
    expect_list(2, (const uint64_t[]){ 1, 2 });
    snapshot = rubato_snapshot_open(directory, 2, NULL);
    ck_assert(snapshot != NULL && rubato_snapshot_verify(snapshot, NULL));
}
END_TEST

START_TEST(old_snapshots_go_with_all_their_objects)
{
    for (uint64_t seed = 1; seed <= 4; seed++)
        write_one(seed, RUBATO_PACKING_NONE);
    ck_assert(snapshot_folder_keep(directory, 2, NULL));
    expect_list(2, (const uint64_t[]){ 3, 4 });
    g_autoptr(GPtrArray) rows = list_keys("rows-", S3_LIST_MOST);
    ck_assert_uint_eq(rows->len, 2 * 4);
    small_snapshot_check(directory, 3, 3);
}
END_TEST

/* In whatever pages they come. */
START_TEST(listing_goes_on_page_by_page)
{
    write_one(1, RUBATO_PACKING_NONE);
    write_one(2, RUBATO_PACKING_NONE);
    g_autoptr(GPtrArray) all = list_keys("", S3_LIST_MOST);
    const unsigned n_before = s3_server_count("continuation-token", "good");
    g_autoptr(GPtrArray) paged = list_keys("", 3);

    ck_assert_uint_eq(all->len, 2 * 5);
    ck_assert_uint_eq(paged->len, all->len);
    for (guint i = 0; i < all->len; i++)
        ck_assert_str_eq(g_ptr_array_index(paged, i), g_ptr_array_index(all, i));
    ck_assert_uint_eq(s3_server_count("continuation-token", "good") - n_before, 3);
}
END_TEST

/* A server that goes on telling names for ever would fill the memory. */
START_TEST(listing_without_an_end_is_refused)
{
    g_auto(S3Path) path = { .bucket = NULL };
    g_autoptr(S3Client) client = s3_client_new(NULL);
    g_autoptr(GPtrArray) keys = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(GError) error = NULL;
    g_autofree char *before = NULL;

    write_one(1, RUBATO_PACKING_NONE); /* five objects */
    ck_assert(client != NULL && s3_path_parse(directory, &path, NULL));
    before = s3_path_below(&path, "");
    ck_assert(!s3_list_at_most(client, path.bucket, before, 2, 4, keys, NULL, &error));
    check_error(&error, RUBATO_ERROR_IO, "there are 4 keys or more", NULL);
    ck_assert_uint_eq(keys->len, 4); /* and no further page was asked for */
    g_ptr_array_set_size(keys, 0);
    ck_assert(s3_list_at_most(client, path.bucket, before, 2, 6, keys, NULL, NULL));
    ck_assert_uint_eq(keys->len, 5);
}
END_TEST

enum { N_LONG = 17 << 17, WIDE = 8 }; /* 17 MiB: two parts, and the rest */

static bool count_rows_read(const RubatoSnapshotRows *rows, void *user_data, GError **error)
{
    (void)error;
    for (size_t i = 0; i < rows->n; i++) {
        uint64_t value;

        memcpy(&value, (const char *)rows->values + i * WIDE, sizeof value);
        *(uint64_t *)user_data += value == (rows->first + i) * 3;
    }
    return true;
}

/* Writes a long file; its sum tells whether it comes back. */
static bool write_long(const char *path, GError **error)
{
    const PartShape shape = { .row_bytes = WIDE, .value_bytes = WIDE };
    g_autoptr(PartWriter) writer = part_writer_new(path, 5, RUBATO_PACKING_NONE, &shape, error);
    g_autofree uint64_t *rows = g_new(uint64_t, N_LONG / 64);
    bool ok = writer != NULL;

    for (uint64_t first = 0; ok && first < N_LONG; first += N_LONG / 64) {
        for (uint64_t i = 0; i < N_LONG / 64; i++)
            rows[i] = (first + i) * 3;
        ok = part_writer_rows(
            writer, &(RubatoSnapshotRows){ .first = first, .n = N_LONG / 64, .values = rows },
            error);
    }
    return ok && part_writer_finish(writer, error);
}

static void check_long(const char *path)
{
    PartFile file = { .path = path,
                      .seed = 5,
                      .shape = { .row_bytes = WIDE, .value_bytes = WIDE } };
    uint64_t n_good = 0;
    const PartTaker taker = { .rows = count_rows_read, .user_data = &n_good };
    g_autoptr(GError) error = NULL;

    ck_assert(block_file_read_end(path, &file.sum, &file.n_rows, NULL));
    if (!part_rows_read(&file, &taker, NULL, &error))
        ck_abort_msg("%s", error->message);
    ck_assert_uint_eq(n_good, N_LONG);
}

/* A part that is lost on its way is sent again; and so is the end, whose answer may be lost: then
 * the server knows of no such upload, because it has made the object. */
START_TEST(long_file_goes_in_parts_and_each_again_if_need_be)
{
    static const struct {
        const char *kind;
        unsigned after;
    } faults[] = { { "none", 0 }, { "500", 1 }, { "silent", 4 } };
    g_autofree char *path = g_strconcat(directory, "/rows-0000000000000005/0.0.rows", NULL);
    const unsigned n_before = s3_server_count("partNumber", "good");
    g_autoptr(GError) error = NULL;

    s3_server_fail(faults[_i].kind, faults[_i].after, 1);
    if (!write_long(path, &error))
        ck_abort_msg("%s", error->message);
    ck_assert_uint_eq(s3_server_count("partNumber", "good") - n_before, 3);
    s3_server_fail(_i % 2 == 0 ? "cut" : "503", 1, 2);
    check_long(path);
}
END_TEST

/* ---- faults ---- */

static void expect_failure(int code, const char *what, const char *other)
{
    g_autoptr(GError) error = NULL;
    uint64_t number;

    ck_assert(!small_snapshot_write(directory, 7, RUBATO_PACKING_NONE, &number, &error));
    require_msg(g_error_matches(error, RUBATO_ERROR, (int)code), "%s", error->message);
    require_msg(strstr(error->message, what) != NULL && strstr(error->message, other) != NULL, "%s",
                error->message);
    require_msg(strstr(error->message, "wrong-secret") == NULL, "%s", error->message);
}

START_TEST(faults_that_pass_are_waited_for)
{
    static const char *const kinds[] = { "500", "503", "slow", "drop", "cut", "silent" };

    for (unsigned after = 0; after < 14; after += 7) {
        const unsigned n_before = s3_server_count("", kinds[_i]);

        s3_server_fail(kinds[_i], after, 2);
        write_one(after + 1, RUBATO_PACKING_NONE);
        ck_assert_uint_ge(s3_server_count("", kinds[_i]) - n_before, 2);
        small_snapshot_check(directory, after / 7 + 1, after + 1);
    }
}
END_TEST

/* What the server says of a fault is longer than the object. */
START_TEST(faults_that_pass_are_waited_for_with_short_objects)
{
    g_autofree char *path = g_strconcat(directory, "/rows-0000000000000005/0.0.rows", NULL);
    StoreFile *file = store_file_create(path, NULL);
    g_autoptr(GError) error = NULL;
    char bytes[4];
    uint64_t n_bytes;
    size_t n;

    ck_assert(file->ops->append(file, "abc", 3, "d", 1, NULL) && file->ops->finish(file, NULL));
    store_file_close(file);
    file = store_file_open(path, &n_bytes, NULL);
    ck_assert(file != NULL && n_bytes == 4);
    const unsigned n_before = s3_server_count("GET", "503");
    s3_server_fail("503", 0, 1);
    if (!file->ops->read(file, 0, bytes, 4, &n, &error))
        ck_abort_msg("%s", error->message);
    ck_assert_uint_eq(n, 4);
    ck_assert_mem_eq(bytes, "abcd", 4);
    ck_assert_uint_eq(s3_server_count("GET", "503") - n_before, 1);
    store_file_close(file);
}
END_TEST

/* After any byte, with its length told and without. What is missing is not taken for what the
 * object lacks. */
START_TEST(answer_that_is_cut_is_asked_for_again)
{
    static const char *const kinds[] = { "cut", "endless" };
    g_autofree char *path = g_strconcat(directory, "/rows-0000000000000005/0.0.rows", NULL);
    StoreFile *file = store_file_create(path, NULL);
    g_autoptr(GError) error = NULL;

    ck_assert(file->ops->append(file, "abc", 3, "d", 1, NULL) && file->ops->finish(file, NULL));
    store_file_close(file);
    for (size_t at = 0; at < 4; at++) {
        g_autofree char *kind = g_strdup_printf("%s-%zu", kinds[_i], at);
        char bytes[4];
        uint64_t n_bytes;
        size_t n;

        s3_server_fail(kind, _i == 0 ? 1 : 0, 2); /* what is opened has no body */
        file = store_file_open(path, &n_bytes, &error);
        if (file == NULL || !file->ops->read(file, 0, bytes, 4, &n, &error))
            ck_abort_msg("%s: %s", kind, error->message);
        ck_assert_uint_eq(n_bytes, 4);
        ck_assert_uint_eq(n, 4);
        ck_assert_mem_eq(bytes, "abcd", 4);
        store_file_close(file);
    }
}
END_TEST

/* One that is cut is not taken for a damaged manifest: a run would begin with an older snapshot. */
START_TEST(manifest_that_is_cut_is_asked_for_again)
{
    static const char *const kinds[] = { "cut-0", "cut-100", "endless-0", "endless-100" };

    write_one(3, RUBATO_PACKING_NONE);
    s3_server_fail(kinds[_i], 0, 3); /* a page of names, and what is in them */
    small_snapshot_check(directory, 0, 3);
}
END_TEST

START_TEST(answer_that_never_says_its_length_is_refused)
{
    write_one(3, RUBATO_PACKING_NONE);
    s3_server_fail("endless-9999", 0, 100);
    g_autoptr(GError) error = NULL;
    g_autoptr(RubatoSnapshot) snapshot = rubato_snapshot_open(directory, 0, &error);
    ck_assert(snapshot == NULL);
    check_error(&error, RUBATO_ERROR_IO, "the answer does not say how long it is", NULL);
}
END_TEST

START_TEST(wrong_secret_is_refused_at_once)
{
    const unsigned n_before = s3_server_count("SignatureDoesNotMatch", "");

    g_setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret", TRUE);
    expect_failure(RUBATO_ERROR_IO, "SignatureDoesNotMatch", directory);
    ck_assert_uint_ge(s3_server_count("SignatureDoesNotMatch", "") - n_before, 1);
    ck_assert_uint_le(s3_server_count("SignatureDoesNotMatch", "") - n_before, 3); /* and removal */
}
END_TEST

START_TEST(what_the_environment_lacks_is_named)
{
    static const char *const names[] = { "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY" };

    g_unsetenv(names[_i]);
    expect_failure(RUBATO_ERROR_CONFIG, names[_i], "environment");
}
END_TEST

START_TEST(bucket_that_is_not_there_is_named)
{
    g_autoptr(GError) error = NULL;
    g_autofree uint64_t *numbers = NULL;
    size_t n;

    ck_assert(!rubato_snapshot_list("s3://nowhere/at-all", &numbers, &n, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_IO));
    require_msg(strstr(error->message, "s3://nowhere") && strstr(error->message, "NoSuchBucket"),
                "%s", error->message);
}
END_TEST

START_TEST(server_that_is_not_there_is_named_after_some_tries)
{
    g_setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1", TRUE);
    expect_failure(RUBATO_ERROR_IO, "http://127.0.0.1:1: ", "connect");
}
END_TEST

START_TEST(places_that_are_none_are_refused)
{
    static const char *const places[] = { "s3://",        "s3:///prefix",      "s3://Large/prefix",
                                          "s3://ab/c",    "s3://bucket/../x",  "s3://-bucket/x",
                                          "s3://bu?ket/", "s3://bucket/a/./b", "s3://bucket/\xff" };

    for (size_t i = 0; i < G_N_ELEMENTS(places); i++) {
        g_autofree uint64_t *numbers = NULL;
        g_autoptr(GError) error = NULL;
        size_t n;

        ck_assert(!rubato_snapshot_list(places[i], &numbers, &n, &error));
        require_msg(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_INVALID), "%s: %s", places[i],
                    error->message);
    }
}
END_TEST

/* From any request on the server refuses all: the process might as well have died, since nothing of
 * it reaches the server any more. */
START_TEST(snapshot_that_is_cut_at_any_request_is_none)
{
    bool was_written = false;
    unsigned n_refused = 0;

    write_one(1, RUBATO_PACKING_NONE);
    for (unsigned after = 0; !was_written; after++) {
        g_autoptr(GError) error = NULL;
        uint64_t number;

        s3_server_fail("deny", after, 1000);
        was_written = small_snapshot_write(directory, 2, RUBATO_PACKING_NONE, &number, &error);
        s3_server_be_good();
        ck_assert_uint_lt(after, 100);
        require_msg(was_written || g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_IO), "%s",
                    error->message);
        n_refused += !was_written;
        if (!was_written)
            expect_list(1, (const uint64_t[]){ 1 });
    }
    ck_assert_uint_gt(n_refused, 4); /* each file, and the manifest */
    small_snapshot_check(directory, 1, 1);
    small_snapshot_check(directory, 0, 2);
    /* What was left is gone with the next one. */
    snapshot_folder_tidy(directory, 99);
    g_autoptr(GPtrArray) rows = list_keys("rows-", S3_LIST_MOST);
    ck_assert_uint_eq(rows->len, 2 * 4);
}
END_TEST

/* The files of a snapshot of another process that is being written stay. */
START_TEST(files_of_no_snapshot_go_but_those_that_are_being_written)
{
    g_autofree char *own = snapshot_folder_writing(directory, 8);
    g_autofree char *left = snapshot_folder_writing(directory, 9);
    const char *const folders[] = { own, left };

    write_one(3, RUBATO_PACKING_NONE);
    for (size_t i = 0; i < 2; i++) {
        g_autofree char *path = snapshot_folder_part(folders[i], 0, 0);
        StoreFile *const file = store_file_create(path, NULL);

        ck_assert(file->ops->append(file, "abc", 3, "d", 1, NULL));
        ck_assert(file->ops->finish(file, NULL));
        store_file_close(file);
    }
    snapshot_folder_tidy(directory, 8);
    g_autofree char *path = snapshot_folder_part(own, 0, 0);
    g_autofree char *gone = snapshot_folder_part(left, 0, 0);
    ck_assert(snapshot_folder_has_file(path));
    ck_assert(!snapshot_folder_has_file(gone));
    small_snapshot_check(directory, 0, 3);
}
END_TEST

/* Bytes that change in the bucket are found, and the object is named. */
START_TEST(changed_object_is_never_restored)
{
    static const char *const names[] = { "rows-0000000000000003/2.1.rows",
                                         "rows-0000000000000003/0.0.rows",
                                         "snapshot-000001-0000000000000003" };
    const char *const name = names[_i];
    g_autofree char *key = g_strconcat(directory + strlen("s3://snapshots/"), "/", name, NULL);
    g_autofree char *path = s3_server_object(key);
    g_autofree char *bytes = NULL;
    gsize n;

    write_one(3, RUBATO_PACKING_NONE);
    ck_assert(g_file_get_contents(path, &bytes, &n, NULL));
    for (gsize at = 0; at < n; at += n / 6) {
        g_autoptr(RubatoSnapshot) snapshot = NULL;
        g_autoptr(GError) error = NULL;

        bytes[at] ^= 4;
        ck_assert(g_file_set_contents(path, bytes, (gssize)n, NULL));
        snapshot = rubato_snapshot_open(directory, 1, &error);
        ck_assert(snapshot == NULL || !rubato_snapshot_verify(snapshot, &error));
        require_msg(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT), "%s",
                    error->message);
        require_msg(strstr(error->message, name) != NULL, "%s", error->message);
        bytes[at] ^= 4;
    }
    ck_assert(g_file_set_contents(path, bytes, (gssize)n, NULL));
    small_snapshot_check(directory, 1, 3);
}
END_TEST

/* ---- what a server may say ---- */

START_TEST(answers_that_are_no_listing_are_refused)
{
    static const struct {
        const char *text;
        bool is_page;
        guint n_keys;
    } answers[] = {
        { "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>a&amp;b</Key>"
          "</Contents></ListBucketResult>",
          true, 1 },
        { "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>", false, 0 },
        { "<ListBucketResult><Contents><Key>a</Key>", false, 1 },
        { "<html>hello</html>", false, 0 },
        { "", false, 0 },
        { "\xff\xfe", false, 0 },
        { "<ListBucketResult><Key>a</Key><Owner><Key>b</Key></Owner></ListBucketResult>", true, 0 },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(answers); i++) {
        g_autoptr(GPtrArray) keys = g_ptr_array_new_with_free_func(g_free);
        g_autoptr(GPtrArray) prefixes = g_ptr_array_new_with_free_func(g_free);
        g_autoptr(GByteArray) xml = g_byte_array_new();
        S3Page page = { .keys = keys, .prefixes = prefixes };

        g_byte_array_append(xml, (const guint8 *)answers[i].text, (guint)strlen(answers[i].text));
        require_msg(s3_text_read_page(xml, &page) == answers[i].is_page, "%s", answers[i].text);
        ck_assert_ptr_null(page.next);
        require_msg(keys->len == answers[i].n_keys, "%s", answers[i].text);
    }
}
END_TEST

/* ---- programs ---- */

static char *run_rubato(int expected, const char *const *arguments)
{
    g_autofree char *program = g_strconcat(TEST_BIN_DIR, "/", arguments[0], NULL);
    const char *all[16] = { program };
    g_autofree char *err = NULL;
    char *out = NULL;
    int status;

    for (size_t i = 1; arguments[i] != NULL; i++)
        all[i] = arguments[i];
    ck_assert(g_spawn_sync(NULL, (char **)(uintptr_t)all, NULL, 0, NULL, NULL, &out, &err, &status,
                           NULL));
    require_msg(g_spawn_check_wait_status(status, NULL) == (expected == 0), "%s: %s", arguments[0],
                err);
    if (expected != 0) {
        g_free(out);
        return g_steal_pointer(&err);
    }
    return out;
}

#define RUN(expected, ...) run_rubato(expected, (const char *const[]){ __VA_ARGS__, NULL })

/* A run that goes on from S3 ends with the same bits as one that was not interrupted. */
START_TEST(programs_keep_their_snapshots_there)
{
    g_autofree char *folder = g_dir_make_tmp("rubato-s3-XXXXXX", NULL);
    g_autofree char *rows = g_build_filename(folder, "rows.svm", NULL);
    g_autofree char *whole = g_build_filename(folder, "whole", NULL);
    g_autofree char *resumed = g_build_filename(folder, "resumed", NULL);
    g_autofree char *local = g_build_filename(folder, "local", NULL);
    g_autofree char *exported = g_build_filename(folder, "exported", NULL);
    g_autofree char *whole_rows = g_build_filename(whole, "weights.npy", NULL);
    g_autofree char *resumed_rows = g_build_filename(resumed, "weights.npy", NULL);
    g_autofree char *one = NULL, *other = NULL;
    g_autoptr(GString) text = g_string_new(NULL);
    gsize n_one, n_other;

    for (int i = 0; i < 200; i++)
        g_string_append_printf(text, "%d %d:1 %d:0.5\n", i % 3 ? 1 : -1, i % 7, 8 + i % 11);
    ck_assert(g_file_set_contents(rows, text->str, -1, NULL));
    g_free(RUN(0, "rubato-lr", "--train", rows, "--workers", "1", "--epochs", "4", "--checkpoint",
               local, "--save", whole));
    g_free(RUN(0, "rubato-lr", "--train", rows, "--workers", "1", "--epochs", "4", "--checkpoint",
               directory));
    expect_list(3, (const uint64_t[]){ 2, 3, 4 });
    ck_assert(s3_write_ops.remove(directory, 4, NULL) && s3_write_ops.remove(directory, 3, NULL));
    g_free(RUN(0, "rubato-lr", "--train", rows, "--workers", "1", "--epochs", "4", "--checkpoint",
               directory, "--resume", "--save", resumed));
    ck_assert(g_file_get_contents(whole_rows, &one, &n_one, NULL));
    ck_assert(g_file_get_contents(resumed_rows, &other, &n_other, NULL));
    ck_assert_uint_eq(n_one, n_other);
    ck_assert_mem_eq(one, other, n_one);
    expect_list(3, (const uint64_t[]){ 2, 3, 4 });

    g_autofree char *listed = RUN(0, "rubato", "checkpoint", "list", directory);
    g_autofree char *shown = RUN(0, "rubato", "checkpoint", "show", directory);
    ck_assert(strstr(listed, "     4  ") != NULL && strstr(shown, "weights") != NULL);
    g_free(RUN(1, "rubato", "checkpoint", "diff", directory, "2", "4"));
    g_free(RUN(0, "rubato", "checkpoint", "verify", directory));
    g_free(RUN(0, "rubato", "checkpoint", "export", directory, "4", exported));
    g_autofree char *exported_rows = g_build_filename(exported, "weights.npy", NULL);
    ck_assert(g_file_test(exported_rows, G_FILE_TEST_EXISTS));
    remove_tree(folder);
}
END_TEST

/* Before and after, whoever opens the newest one reads the same rows. */
START_TEST(chain_in_a_bucket_is_made_one)
{
    uint64_t number;

    for (unsigned link = 0; link <= SMALL_CHAIN_LINKS; link++)
        ck_assert(
            small_chain_write(directory, link, 100 + link, RUBATO_PACKING_ZSTD, &number, NULL));
    small_chain_check(directory, 0, SMALL_CHAIN_LINKS);
    g_autofree char *made = RUN(0, "rubato", "checkpoint", "compact", directory, "2");
    ck_assert_str_eq(made, "snapshot 5 holds all rows\n");
    small_chain_check(directory, 5, SMALL_CHAIN_LINKS);
    small_chain_check(directory, 4, SMALL_CHAIN_LINKS); /* it and what it needs are kept */
    g_autoptr(RubatoSnapshot) snapshot = rubato_snapshot_open(directory, 5, NULL);
    ck_assert_uint_eq(rubato_snapshot_base(snapshot), 0);

    /* Nothing is left to be written; but the links go now, with all their objects. */
    g_autofree char *again = RUN(0, "rubato", "checkpoint", "compact", directory, "1");
    ck_assert_str_eq(again, "snapshot 5 holds all rows\n");
    expect_list(1, (const uint64_t[]){ 5 });
    g_autoptr(GPtrArray) keys = list_keys("", S3_LIST_MOST);
    g_autoptr(GPtrArray) rows = list_keys("rows-", S3_LIST_MOST);
    ck_assert_uint_eq(keys->len, rows->len + 1); /* the manifest */
    small_chain_check(directory, 0, SMALL_CHAIN_LINKS);
    g_free(RUN(0, "rubato", "checkpoint", "verify", directory));
}
END_TEST

/* As a user does from outside, while the run trains. */
START_TEST(running_program_takes_a_snapshot_into_a_bucket_when_asked)
{
    g_autofree char *folder = g_dir_make_tmp("rubato-s3-XXXXXX", NULL);
    g_autofree char *rows = g_build_filename(folder, "rows.svm", NULL);
    g_autofree char *program = g_strconcat(TEST_BIN_DIR, "/rubato-lr", NULL);
    const char *const argv[] = { program,    "--train",         rows,
                                 "--epochs", "1000000",         "--checkpoint",
                                 directory,  "--workers=2",     "--checkpoint-every",
                                 "1000000",  "--straggler=1:5", NULL };
    GPid pid;
    int status;

    ck_assert(g_file_set_contents(rows, "1 1:1\n-1 2:1\n1 3:1\n-1 1:1 2:1\n", -1, NULL));
    ck_assert(g_spawn_async(NULL, (char **)(uintptr_t)argv, NULL,
                            G_SPAWN_DO_NOT_REAP_CHILD | G_SPAWN_STDOUT_TO_DEV_NULL |
                                G_SPAWN_STDERR_TO_DEV_NULL,
                            NULL, NULL, &pid, NULL));
    g_autofree char *said = RUN(0, "rubato", "checkpoint", "take", directory);
    ck_assert_str_eq(said, "snapshot 1\n");
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    g_free(RUN(0, "rubato", "checkpoint", "verify", directory));
    remove_tree(folder);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("s3_store");
    TCase *const cases = tcase_create("s3");
    int result;

    if (!s3_server_start()) {
        s3_server_stop();
        suite_add_tcase(suite, cases);
        return TEST_SKIPPED;
    }
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_set_timeout(cases, 120);
    tcase_add_loop_test(cases, snapshot_comes_back_as_it_was, 0, 2);
    tcase_add_test(cases, old_snapshots_go_with_all_their_objects);
    tcase_add_test(cases, listing_goes_on_page_by_page);
    tcase_add_loop_test(cases, long_file_goes_in_parts_and_each_again_if_need_be, 0, 3);
    tcase_add_loop_test(cases, faults_that_pass_are_waited_for, 0, 6);
    tcase_add_test(cases, faults_that_pass_are_waited_for_with_short_objects);
    tcase_add_loop_test(cases, answer_that_is_cut_is_asked_for_again, 0, 2);
    tcase_add_loop_test(cases, manifest_that_is_cut_is_asked_for_again, 0, 4);
    tcase_add_test(cases, answer_that_never_says_its_length_is_refused);
    tcase_add_test(cases, wrong_secret_is_refused_at_once);
    tcase_add_loop_test(cases, what_the_environment_lacks_is_named, 0, 2);
    tcase_add_test(cases, bucket_that_is_not_there_is_named);
    tcase_add_test(cases, server_that_is_not_there_is_named_after_some_tries);
    tcase_add_test(cases, places_that_are_none_are_refused);
    tcase_add_test(cases, snapshot_that_is_cut_at_any_request_is_none);
    tcase_add_test(cases, files_of_no_snapshot_go_but_those_that_are_being_written);
    tcase_add_loop_test(cases, changed_object_is_never_restored, 0, 3);
    tcase_add_test(cases, answers_that_are_no_listing_are_refused);
    tcase_add_test(cases, listing_without_an_end_is_refused);
    tcase_add_test(cases, programs_keep_their_snapshots_there);
    tcase_add_test(cases, chain_in_a_bucket_is_made_one);
    tcase_add_test(cases, running_program_takes_a_snapshot_into_a_bucket_when_asked);
    suite_add_tcase(suite, cases);
    result = run_suite(suite);
    s3_server_stop();
    return result;
}
