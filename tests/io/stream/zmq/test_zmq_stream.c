/* Streams over ZeroMQ: a follower gets each version once and in order, whatever is missed or gone.
 *
 * docs/security.md: Streams over ZeroMQ */
#include <check.h>
#include <glib/gstdio.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/store/small_snapshot.h"
#include "tests/support/stream/stream_fixture.h"

START_TEST(follower_gets_each_version_once_and_in_order)
{
    g_autoptr(RubatoFollower) follower = stream_follow(); /* before anybody publishes */
    RubatoStreamWriter *writer;

    stream_write(4, 0);
    writer = stream_publish();
    ck_assert_int_eq(stream_advance_to(follower, 1), 1);
    for (uint64_t version = 2; version <= 6; version++) {
        stream_go_on(writer, 4, 0);
        ck_assert_int_eq(stream_advance_to(follower, version), 0);
    }
    ck_assert(rubato_follower_go_to(follower, 3, NULL));
    stream_check_rows(follower, 3);
    zmq_publisher_close(writer);
}
END_TEST

START_TEST(late_joiner_gets_the_newest_and_what_it_builds_on)
{
    RubatoStreamWriter *writer;

    for (int i = 0; i < 6; i++)
        stream_write(4, 0);
    writer = stream_publish();
    g_autoptr(RubatoFollower) follower = stream_follow();
    ck_assert_int_eq(stream_advance_to(follower, 6), 1);
    ck_assert(!rubato_follower_go_to(follower, 4, NULL)); /* it builds on 5, which has all rows */
    zmq_publisher_close(writer);
}
END_TEST

/* Versions come and go while it does nothing: it neither holds up who writes them, nor is lost. */
START_TEST(slow_reader_goes_on_with_the_newest)
{
    g_autoptr(RubatoFollower) follower = stream_follow();
    RubatoStreamWriter *writer;

    stream_write(4, 3);
    writer = stream_publish();
    ck_assert_int_eq(stream_advance_to(follower, 1), 1);
    for (uint64_t version = 2; version <= 30; version++)
        stream_go_on(writer, 4, 3);
    ck_assert_int_ge(stream_advance_to(follower, 30), 1);
    stream_go_on(writer, 4, 3);
    ck_assert_int_eq(stream_advance_to(follower, 31), 0);
    zmq_publisher_close(writer);
}
END_TEST

/* Meanwhile versions come and go. */
START_TEST(publisher_that_comes_back_goes_on)
{
    g_autoptr(RubatoFollower) follower = stream_follow();
    RubatoStreamWriter *writer;

    stream_write(4, 0);
    writer = stream_publish();
    ck_assert_int_eq(stream_advance_to(follower, 1), 1);
    zmq_publisher_close(writer);
    stream_write(4, 0);
    stream_write(4, 0);
    writer = stream_publish();
    ck_assert_int_eq(stream_advance_to(follower, 3), 0);
    zmq_publisher_close(writer);
    for (int i = 0; i < 4; i++)
        stream_write(2, 1); /* 4 goes on with the others; 5 and 7 have all rows */
    writer = stream_publish();
    ck_assert_int_eq(stream_advance_to(follower, 7), 1);
    stream_go_on(writer, 2, 1);
    ck_assert_int_eq(stream_advance_to(follower, 8), 0);
    zmq_publisher_close(writer);
}
END_TEST

START_TEST(another_stream_begins_anew)
{
    g_autoptr(RubatoFollower) follower = stream_follow();
    RubatoStreamWriter *writer;

    stream_write(4, 0);
    stream_write(4, 0);
    writer = stream_publish();
    ck_assert_int_eq(stream_advance_to(follower, 2), 1);
    zmq_publisher_close(writer);
    remove_tree(stream.directory);
    rubato_engine_free(stream.engine);
    stream.engine = engine_with_servers(1);
    stream_create_table(1);
    stream_write(4, 0);
    writer = stream_publish();
    ck_assert_int_eq(stream_advance_to(follower, 1), 1);
    zmq_publisher_close(writer);
}
END_TEST

static void make_folder_whole(rlim_t most)
{
    struct rlimit limit;

    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = most;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* The disk of the reader. It says so, and goes on when there is room. */
START_TEST(full_disk_is_told_and_asked_again)
{
    RubatoStreamWriter *writer;

    signal(SIGXFSZ, SIG_IGN);
    stream_write(4, 0);
    make_folder_whole(100000);
    writer = stream_publish();
    g_autoptr(RubatoFollower) follower = stream_follow();
    stream_expect_fault(follower, RUBATO_ERROR_IO, "cannot be written");
    ck_assert_uint_eq(rubato_follower_version(follower, NULL), 0);
    make_folder_whole(RLIM_INFINITY);
    while (rubato_follower_version(follower, NULL) == 0)
        (void)rubato_follower_advance(follower, STREAM_WAIT_S, &(RubatoFollowed){ 0 }, NULL);
    stream_check_rows(follower, 1);
    zmq_publisher_close(writer);
}
END_TEST

START_TEST(silence_is_told)
{
    g_autoptr(RubatoFollower) follower = stream_follow();

    stream_expect_fault(follower, RUBATO_ERROR_NETWORK, "nothing was heard for 5 s");
}
END_TEST

static size_t count_readers_folders(void)
{
    GDir *const dir = g_dir_open(stream.temporary, 0, NULL);
    size_t n = 0;

    for (const char *name; (name = g_dir_read_name(dir)) != NULL;)
        n += g_str_has_prefix(name, "rubato-stream-reader-") ? 1 : 0;
    g_dir_close(dir);
    return n;
}

START_TEST(what_a_killed_reader_left_is_removed)
{
    g_autofree char *left = g_build_filename(stream.temporary, "rubato-stream-reader-AAAAAA", NULL);
    g_autofree char *lock = g_build_filename(left, ".reader", NULL);
    g_autofree char *version = g_build_filename(left, "snapshot-000001", NULL);
    RubatoFollower *follower;

    ck_assert_int_eq(g_mkdir(left, 0700), 0);
    ck_assert_int_eq(g_mkdir(version, 0700), 0);
    ck_assert(g_file_set_contents(lock, "", 0, NULL));
    follower = stream_follow();
    ck_assert_uint_eq(count_readers_folders(), 1);
    ck_assert(!g_file_test(left, G_FILE_TEST_EXISTS));
    rubato_follower_free(follower);
    ck_assert_uint_eq(count_readers_folders(), 0);
}
END_TEST

/* ---- secrets ---- */

static char *make_secret(const char *name, char digit)
{
    char *const path = g_build_filename(stream.temporary, name, NULL);
    g_autofree char *digits = g_strnfill(64, digit);

    ck_assert(g_file_set_contents_full(path, digits, 64, G_FILE_SET_CONTENTS_NONE, 0600, NULL));
    return path;
}

/* docs/security.md: Streams over ZeroMQ. Who has another secret, or none, hears nothing. */
START_TEST(secret_has_to_be_the_same)
{
    g_autofree char *right = make_secret("right", 'a'), *wrong = make_secret("wrong", 'b');
    g_autofree char *plain = stream.uri;
    g_autofree char *wrong_uri = g_strconcat(stream.uri, "?secret=", wrong, NULL);
    g_autofree char *plain_rest = stream.rest;
    RubatoStreamWriter *writer;

    stream.uri = g_strconcat(plain, "?secret=", right, NULL);
    stream.rest = g_strconcat(plain_rest, "?secret=", right, NULL);
    stream_write(4, 0);
    writer = stream_publish();
    g_autoptr(RubatoFollower) follower = stream_follow();
    g_autoptr(RubatoFollower) without =
        rubato_follower_new(&(RubatoFollowerSpec){ .uri = plain }, NULL);
    g_autoptr(RubatoFollower) stranger =
        rubato_follower_new(&(RubatoFollowerSpec){ .uri = wrong_uri }, NULL);
    ck_assert_int_eq(stream_advance_to(follower, 1), 1);
    stream_go_on(writer, 4, 0);
    ck_assert_int_eq(stream_advance_to(follower, 2), 0);
    stream_expect_fault(stranger, RUBATO_ERROR_NETWORK, "has it the same secret?");
    stream_expect_fault(without, RUBATO_ERROR_NETWORK, "has it the same secret?");
    ck_assert_uint_eq(rubato_follower_version(stranger, NULL), 0);
    ck_assert_uint_eq(rubato_follower_version(without, NULL), 0);
    zmq_publisher_close(writer);
}
END_TEST

static const struct {
    const char *uri;
    RubatoError code;
    const char *text;
} wrong[] = {
    { "zmq:", RUBATO_ERROR_INVALID, "expected zmq:tcp://HOST:PORT" },
    { "zmq:tcp://127.0.0.1", RUBATO_ERROR_INVALID, "expected zmq:tcp://HOST:PORT" },
    { "zmq:ipc://x", RUBATO_ERROR_INVALID, "expected zmq:tcp://HOST:PORT" },
    { "zmq:tcp://127.0.0.1:0", RUBATO_ERROR_INVALID, "its port" },
    { "zmq:tcp://127.0.0.1:65535", RUBATO_ERROR_INVALID, "its port" },
    { "zmq:tcp://127.0.0.1:7070?dir=x", RUBATO_ERROR_INVALID, "found \"dir=x\"" },
    { "zmq:tcp://127.0.0.1:7070?secret=", RUBATO_ERROR_INVALID, "found \"secret=\"" },
    { "zmq:tcp://10.1.2.3:7070", RUBATO_ERROR_INVALID, "needs a secret" },
    { "zmq:tcp://*:7070", RUBATO_ERROR_INVALID, "needs a secret" },
    { "zmq:tcp://127.0.0.1.example.org:7070", RUBATO_ERROR_INVALID, "needs a secret" },
    { "zmq:tcp://10.1.2.3:7070?secret=/no/such", RUBATO_ERROR_IO, "/no/such" },
};

START_TEST(uris_that_make_no_sense_are_refused)
{
    GError *error = NULL;

    ck_assert_ptr_null(rubato_follower_new(&(RubatoFollowerSpec){ .uri = wrong[_i].uri }, &error));
    check_error(&error, wrong[_i].code, wrong[_i].text, NULL);
}
END_TEST

START_TEST(run_has_to_say_where_versions_lie)
{
    GError *error = NULL;

    ck_assert(rubato_stream_check("zmq:tcp://127.0.0.1:7070?directory=x%20y", NULL));
    ck_assert(!rubato_stream_check("zmq:tcp://127.0.0.1:7070", &error));
    check_error(&error, RUBATO_ERROR_INVALID, "?directory=DIR", NULL);
    ck_assert(!rubato_stream_check("zmq:tcp://127.0.0.1:7070?directory=s3://b/p", &error));
    check_error(&error, RUBATO_ERROR_INVALID, "s3://b/p", NULL);
}
END_TEST

/* ---- a task ---- */

static bool add_one(RubatoWorker *worker, void *user_data, GError **error)
{
    int64_t ones[64];
    const RubatoKey key = 7;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "n", RUBATO_I64, error);

    (void)user_data;
    for (size_t i = 0; i < 64; i++)
        ones[i] = 1;
    return table != NULL && rubato_kv_table_add(table, &key, 1, ones, error);
}

/* The engine does not end before its readers have the last version. */
START_TEST(last_version_of_a_task_reaches_its_follower)
{
    static const char *const tables[] = { "n", NULL };
    g_autofree char *uri = g_strconcat(stream.uri, "?directory=", stream.directory, NULL);
    const RubatoTaskStream to = { .uri = uri };
    const RubatoTask task = {
        .name = "add", .run = add_one, .tables = tables, .workers_per_node = 1, .stream = &to
    };
    const RubatoKey key = 7;
    int64_t values[64];
    RubatoFollowed followed;
    g_autoptr(RubatoFollower) follower = stream_follow();

    run_task_ok(stream.engine, &task);
    ck_assert(rubato_follower_advance(follower, STREAM_WAIT_S, &followed, NULL));
    run_task_ok(stream.engine, &task);
    run_task_ok(stream.engine, &task);
    rubato_engine_free(g_steal_pointer(&stream.engine));
    while (rubato_follower_version(follower, NULL) < 3) {
        ck_assert(rubato_follower_advance(follower, 0, &followed, NULL));
        ck_assert_int_ne(followed, RUBATO_FOLLOWED_NOTHING);
    }
    ck_assert(rubato_follower_get(follower, "n", &key, 1, values, NULL, NULL, NULL));
    ck_assert_int_eq(values[63], 3);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("zmq_stream");
    TCase *const cases = tcase_create("streams over ZeroMQ");

    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, stream_set_up, stream_tear_down);
    tcase_add_test(cases, follower_gets_each_version_once_and_in_order);
    tcase_add_test(cases, late_joiner_gets_the_newest_and_what_it_builds_on);
    tcase_add_test(cases, slow_reader_goes_on_with_the_newest);
    tcase_add_test(cases, publisher_that_comes_back_goes_on);
    tcase_add_test(cases, another_stream_begins_anew);
    tcase_add_test(cases, full_disk_is_told_and_asked_again);
    tcase_add_test(cases, silence_is_told);
    tcase_add_test(cases, what_a_killed_reader_left_is_removed);
    tcase_add_test(cases, secret_has_to_be_the_same);
    tcase_add_loop_test(cases, uris_that_make_no_sense_are_refused, 0, G_N_ELEMENTS(wrong));
    tcase_add_test(cases, run_has_to_say_where_versions_lie);
    tcase_add_test(cases, last_version_of_a_task_reaches_its_follower);
    suite_add_tcase(suite, cases);
    return stream_run_suite(suite);
}
