/* A follower and its programs: what is read, held and gone back to; who may ask; and that whoever
 * says nonsense, at either end, does no harm to others.
 *
 * A case that waits for a version asks until it is there: its time limit ends that. */
#include <check.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <rubato/launcher.h>
#include <rubato/rubato.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/serving/serving_address.h"
#include "engine/serving/serving_answer.h"
#include "engine/serving/serving_line.h"
#include "engine/serving/serving_message.h"
#include "io/net/monotonic.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"
#include "tests/support/store/small_snapshot.h"

enum { N_KEYS = 50, N_READERS = 4, N_VERSIONS = 6, N_GETS = 100 };

static char *directory, *uri, *secret_file;
static RubatoEngine *engine;
static RubatoKey keys[N_KEYS];
static RubatoFollowerServer *server;
static RubatoRemoteFollower *remote;

/* ---- versions: all rows of "n" have the version's number as their value ---- */

static void write_version(void)
{
    const RubatoSnapshotSpec spec = { .directory = directory, .full_every = 8 };
    g_autoptr(GError) error = NULL;
    int64_t ones[2 * N_KEYS];

    for (size_t i = 0; i < G_N_ELEMENTS(ones); i++)
        ones[i] = 1;
    ck_assert(rubato_engine_add(engine, "n", keys, N_KEYS, ones, &error));
    ck_assert(rubato_engine_snapshot(engine, &spec, NULL, &error));
}

static bool fill_lists(RubatoWorker *worker, void *user_data, GError **error)
{
    const uint32_t lengths[] = { 3, 0 };
    const uint8_t values[] = { 7, 8, 9 };
    g_autoptr(RubatoRaggedTable) lists =
        rubato_worker_open_ragged_table(worker, "lists", RUBATO_U8, error);

    (void)user_data;
    return lists != NULL && rubato_ragged_table_assign(lists, keys, 2, lengths, values, error);
}

static void set_up(void)
{
    directory = g_dir_make_tmp("rubato-serving-XXXXXX", NULL);
    uri = g_strconcat("file:", directory, NULL);
    secret_file = g_strconcat(directory, "/secret", NULL);
    for (size_t i = 0; i < N_KEYS; i++)
        keys[i] = i * 1000;
    engine = engine_with_servers(2);
    create_table(engine, &(RubatoTableSpec){
                             .name = "n", .dtype = RUBATO_I64, .width = 2, .storage = "hash" });
    create_table(engine, &(RubatoTableSpec){ .name = "lists",
                                             .dtype = RUBATO_U8,
                                             .shape = RUBATO_SHAPE_RAGGED,
                                             .storage = "hash" });
    run_ok(engine, 1, fill_lists, NULL, "lists");
    g_unsetenv("RUBATO_SECRET");
}

static void tear_down(void)
{
    g_clear_pointer(&remote, rubato_remote_follower_free);
    g_clear_pointer(&server, rubato_follower_server_free);
    rubato_engine_free(engine);
    remove_tree(directory);
    g_free(secret_file);
    g_free(directory);
    g_free(uri);
}

static void serve(const RubatoFollowerServerSpec *spec)
{
    g_autoptr(GError) error = NULL;

    server = rubato_follower_serve(spec, &error);
    ck_assert_msg(server != NULL, "%s", error != NULL ? error->message : "");
}

static RubatoRemoteFollower *connect_to(const char *address, const char *secret)
{
    g_autoptr(GError) error = NULL;
    RubatoRemoteFollower *const found = rubato_remote_follower_connect(
        &(RubatoRemoteFollowerSpec){ .address = address, .secret_file = secret, .timeout_s = 20 },
        &error);

    ck_assert_msg(found != NULL, "%s", error != NULL ? error->message : "");
    return found;
}

static void begin(void)
{
    serve(&(RubatoFollowerServerSpec){ .follows = { .uri = uri } });
    remote = connect_to(rubato_follower_server_address(server), NULL);
}

static RubatoServedStatus ask_status(void)
{
    g_autoptr(GError) error = NULL;
    RubatoServedStatus status;

    ck_assert_msg(rubato_remote_follower_status(remote, &status, &error), "%s",
                  error != NULL ? error->message : "");
    return status;
}

static void wait_for_version(uint64_t version)
{
    while (ask_status().version != version)
        g_thread_yield();
}

static RubatoRemoteTable *open_n(void)
{
    g_autoptr(GError) error = NULL;
    RubatoRemoteTable *const table =
        rubato_remote_follower_open_table(remote, "n", RUBATO_I64, &error);

    ck_assert_msg(table != NULL, "%s", error != NULL ? error->message : "");
    return table;
}

static void expect_value(RubatoRemoteTable *table, uint64_t expected_version, int64_t value)
{
    int64_t values[2 * N_KEYS];
    bool found[N_KEYS];
    uint64_t version;

    ck_assert(rubato_remote_table_get(table, keys, N_KEYS, values, found, &version, NULL));
    ck_assert_uint_eq(version, expected_version);
    for (size_t i = 0; i < N_KEYS; i++)
        ck_assert(found[i] && values[2 * i] == value && values[2 * i + 1] == value);
}

/* ---- what is read ---- */

START_TEST(program_reads_each_version)
{
    g_autoptr(RubatoRemoteTable) table = NULL;

    begin();
    ck_assert_uint_eq(ask_status().version, 0);
    write_version();
    wait_for_version(1);
    table = open_n();
    for (int64_t version = 1; version < 5; version++) {
        wait_for_version((uint64_t)version);
        expect_value(table, (uint64_t)version, version);
        write_version();
    }
    ck_assert_uint_ge(ask_status().n_gets, 4);
}
END_TEST

START_TEST(key_without_a_row_is_zeros)
{
    const RubatoKey asked[] = { 5, 0, UINT64_MAX };
    int64_t values[] = { 9, 9, 9, 9, 9, 9 };
    bool found[3];

    write_version();
    begin();
    wait_for_version(1);
    g_autoptr(RubatoRemoteTable) table = open_n();
    ck_assert(rubato_remote_table_get(table, asked, 3, values, found, NULL, NULL));
    ck_assert(!found[0] && found[1] && !found[2]);
    ck_assert(values[0] == 0 && values[1] == 0 && values[2] == 1 && values[5] == 0);
    ck_assert(rubato_remote_table_get(table, NULL, 0, NULL, NULL, NULL, NULL));
}
END_TEST

typedef struct {
    uint32_t lengths[3];
    uint8_t first[3];
} Lists;

static void take_list(size_t i, const void *values, uint32_t n_values, void *user_data)
{
    Lists *const lists = user_data;

    lists->lengths[i] = values != NULL ? n_values : UINT32_MAX;
    lists->first[i] = values != NULL && n_values > 0 ? *(const uint8_t *)values : 0;
}

START_TEST(rows_of_different_lengths_are_read)
{
    const RubatoKey asked[] = { keys[1], keys[0], 5 };
    Lists lists;
    uint8_t bytes[64];

    write_version();
    begin();
    wait_for_version(1);
    g_autoptr(RubatoRemoteTable) table =
        rubato_remote_follower_open_table(remote, "lists", RUBATO_U8, NULL);
    g_autoptr(GError) error = NULL;
    ck_assert_ptr_nonnull(table);
    ck_assert(rubato_remote_table_read(table, asked, 3, take_list, &lists, NULL, NULL));
    ck_assert_uint_eq(lists.lengths[0], 0);
    ck_assert_uint_eq(lists.lengths[1], 3);
    ck_assert_uint_eq(lists.first[1], 7);
    ck_assert_uint_eq(lists.lengths[2], UINT32_MAX);
    ck_assert(!rubato_remote_table_get(table, asked, 3, bytes, NULL, NULL, &error));
    check_error(&error, RUBATO_ERROR_INVALID, "different lengths", NULL);
}
END_TEST

START_TEST(tables_are_listed_and_described)
{
    RubatoFollowedTable shape;

    begin();
    g_auto(GStrv) none = rubato_remote_follower_list_tables(remote, NULL);
    ck_assert_uint_eq(g_strv_length(none), 0);
    write_version();
    wait_for_version(1);
    g_auto(GStrv) names = rubato_remote_follower_list_tables(remote, NULL);
    ck_assert_uint_eq(g_strv_length(names), 2);
    ck_assert_str_eq(names[0], "lists");
    ck_assert_str_eq(names[1], "n");
    ck_assert(rubato_remote_follower_describe_table(remote, "n", &shape, NULL));
    ck_assert(shape.dtype == RUBATO_I64 && shape.width == 2 && shape.n_rows == N_KEYS);
}
END_TEST

/* ---- many readers, while versions come: none sees two versions in a call ---- */

typedef struct {
    pthread_barrier_t *round; /* of each version: all begin together */
    bool ok;
    pthread_t thread;
} Reader;

static void *read_on(void *data)
{
    Reader *const reader = data;
    const RubatoRemoteFollowerSpec spec = { .address = rubato_follower_server_address(server),
                                            .timeout_s = 20 };
    g_autoptr(RubatoRemoteFollower) own = rubato_remote_follower_connect(&spec, NULL);
    g_autoptr(RubatoRemoteTable) table =
        own != NULL ? rubato_remote_follower_open_table(own, "n", RUBATO_I64, NULL) : NULL;
    int64_t values[2 * N_KEYS];
    uint64_t version = 0, before = 0;

    reader->ok = table != NULL;
    for (int i = 0; i < N_VERSIONS * N_GETS; i++) {
        if (i % N_GETS == 0)
            pthread_barrier_wait(reader->round);
        reader->ok = reader->ok &&
                     rubato_remote_table_get(table, keys, N_KEYS, values, NULL, &version, NULL) &&
                     version >= before;
        for (size_t j = 0; j < 2 * N_KEYS; j++)
            reader->ok = reader->ok && values[j] == (int64_t)version;
        before = version;
    }
    return NULL;
}

START_TEST(readers_see_whole_versions_in_order)
{
    pthread_barrier_t round;
    Reader readers[N_READERS];

    begin();
    write_version();
    wait_for_version(1);
    pthread_barrier_init(&round, NULL, N_READERS + 1);
    for (size_t i = 0; i < N_READERS; i++) {
        readers[i] = (Reader){ .round = &round };
        ck_assert_int_eq(pthread_create(&readers[i].thread, NULL, read_on, &readers[i]), 0);
    }
    for (int i = 0; i < N_VERSIONS; i++) {
        pthread_barrier_wait(&round);
        write_version();
    }
    for (size_t i = 0; i < N_READERS; i++) {
        pthread_join(readers[i].thread, NULL);
        ck_assert(readers[i].ok);
    }
    wait_for_version(N_VERSIONS + 1);
    pthread_barrier_destroy(&round);
}
END_TEST

/* ---- hold, back, continue ---- */

START_TEST(serving_stays_goes_back_and_goes_on)
{
    g_autoptr(GError) error = NULL;

    begin();
    for (uint64_t i = 1; i <= 3; i++) {
        write_version();
        wait_for_version(i);
    }
    g_autoptr(RubatoRemoteTable) table = open_n();
    ck_assert(rubato_remote_follower_go_to(remote, 2, NULL));
    ck_assert(ask_status().is_held);
    expect_value(table, 2, 2);
    write_version();
    ck_assert(rubato_remote_follower_go_to(remote, 4, NULL)); /* forward */
    expect_value(table, 4, 4);
    ck_assert(!rubato_remote_follower_go_to(remote, 9, &error));
    check_error(&error, RUBATO_ERROR_NOT_FOUND, "no version 9", NULL);
    ck_assert(
        rubato_remote_follower_go_to(remote, 1, NULL)); /* read from files: nobody has its undo */
    expect_value(table, 1, 1);
    ck_assert(rubato_remote_follower_continue(remote, NULL));
    wait_for_version(4);
    ck_assert(!ask_status().is_held);
    ck_assert(rubato_remote_follower_hold(remote, NULL));
    write_version();
    ck_assert(ask_status().is_held);
    expect_value(table, 4, 4);
}
END_TEST

START_TEST(serving_may_hold_from_its_first_version_on)
{
    serve(&(RubatoFollowerServerSpec){ .follows = { .uri = uri }, .holds = true });
    remote = connect_to(rubato_follower_server_address(server), NULL);
    write_version();
    wait_for_version(1);
    while (!ask_status().is_held)
        g_thread_yield();
    write_version();
    ck_assert_uint_eq(ask_status().version, 1);
}
END_TEST

/* A version that is damaged is told, and the rows stay; a good one ends the fault. */
START_TEST(damaged_version_is_told)
{
    g_autofree char *manifest = g_strconcat(directory, "/snapshot-000002/manifest", NULL);

    write_version();
    begin();
    wait_for_version(1);
    ck_assert(rubato_remote_follower_hold(remote, NULL));
    write_version();
    ck_assert(g_file_set_contents(manifest, "nonsense", -1, NULL));
    ck_assert(rubato_remote_follower_continue(remote, NULL));
    while (strstr(ask_status().fault, "snapshot-000002") == NULL)
        g_thread_yield();
    ck_assert_uint_eq(ask_status().version, 1);
    write_version(); /* has all rows, since the one before cannot be read */
    wait_for_version(3);
    while (ask_status().fault[0] != '\0')
        g_thread_yield();
}
END_TEST

/* ---- what is refused ---- */

START_TEST(calls_that_make_no_sense_are_refused)
{
    g_autofree RubatoKey *many = g_new0(RubatoKey, RUBATO_REMOTE_MOST_KEYS + 1);
    g_autofree int64_t *values = g_new(int64_t, 2 * (RUBATO_REMOTE_MOST_KEYS + 1));
    g_autoptr(GError) error = NULL;

    begin();
    ck_assert_ptr_null(rubato_remote_follower_open_table(remote, "n", RUBATO_I64, &error));
    check_error(&error, RUBATO_ERROR_NOT_FOUND, "no version yet", NULL);
    write_version();
    wait_for_version(1);
    ck_assert_ptr_null(rubato_remote_follower_open_table(remote, "none", RUBATO_I64, &error));
    check_error(&error, RUBATO_ERROR_NOT_FOUND, "no table none", NULL);
    ck_assert_ptr_null(rubato_remote_follower_open_table(remote, "n", RUBATO_F32, &error));
    check_error(&error, RUBATO_ERROR_TYPE, "has i64 values, and was opened with f32", NULL);
    g_autoptr(RubatoRemoteTable) table = open_n();
    ck_assert(!rubato_remote_table_get(table, many, RUBATO_REMOTE_MOST_KEYS + 1, values, NULL, NULL,
                                       &error));
    check_error(&error, RUBATO_ERROR_INVALID, "ask for 262144 at most", NULL);
    ck_assert(rubato_remote_table_get(table, many, RUBATO_REMOTE_MOST_KEYS, values, NULL, NULL,
                                      &error)); /* 4 MiB */
    expect_value(table, 1, 1);
}
END_TEST

/* 16 MiB are the most: of rows of 1 KiB so many keys are too many. */
START_TEST(answer_that_is_too_large_is_refused)
{
    enum { WIDTH = 128, MOST = (int)(RUBATO_REMOTE_MOST_BYTES / (WIDTH * sizeof(int64_t))) };
    const RubatoSnapshotSpec spec = { .directory = directory };
    g_autofree RubatoKey *same = g_new0(RubatoKey, MOST + 1);
    g_autofree int64_t *values = g_new0(int64_t, WIDTH * (MOST + 1));
    g_autoptr(GError) error = NULL;

    create_table(engine,
                 &(RubatoTableSpec){
                     .name = "wide", .dtype = RUBATO_I64, .width = WIDTH, .storage = "hash" });
    ck_assert(rubato_engine_add(engine, "wide", keys, 1, values, NULL));
    ck_assert(rubato_engine_snapshot(engine, &spec, NULL, NULL));
    begin();
    wait_for_version(1);
    g_autoptr(RubatoRemoteTable) table =
        rubato_remote_follower_open_table(remote, "wide", RUBATO_I64, NULL);
    ck_assert(rubato_remote_table_get(table, same, MOST, values, NULL, NULL, &error));
    ck_assert(!rubato_remote_table_get(table, same, MOST + 1, values, NULL, NULL, &error));
    check_error(&error, RUBATO_ERROR_INVALID, "ask for fewer", NULL);
}
END_TEST

/* ---- who may ask ---- */

START_TEST(only_who_knows_the_secret_may_ask)
{
    g_autofree char *other = g_strconcat(directory, "/other", NULL);
    g_autoptr(GError) error = NULL;
    RubatoRemoteFollowerSpec spec = { .timeout_s = 20 };

    ck_assert(rubato_launch_make_secret(secret_file, NULL));
    ck_assert(rubato_launch_make_secret(other, NULL));
    write_version();
    serve(&(RubatoFollowerServerSpec){ .follows = { .uri = uri }, .secret_file = secret_file });
    spec.address = rubato_follower_server_address(server);
    ck_assert_ptr_null(rubato_remote_follower_connect(&spec, &error));
    check_error(&error, RUBATO_ERROR_NETWORK, "no follower that needs no secret", NULL);
    spec.secret_file = other;
    ck_assert_ptr_null(rubato_remote_follower_connect(&spec, &error));
    check_error(&error, RUBATO_ERROR_NETWORK, "no follower that knows this secret", NULL);
    remote = connect_to(spec.address, secret_file);
    wait_for_version(1);
    g_autoptr(RubatoRemoteTable) table = open_n();
    expect_value(table, 1, 1);
}
END_TEST

static const struct {
    const char *address;
    RubatoError code;
    const char *text;
} wrong[] = {
    { "tcp://*:0", RUBATO_ERROR_INVALID, "needs a secret" },
    { "tcp://0.0.0.0:0", RUBATO_ERROR_INVALID, "needs a secret" },
    { "tcp://127.0.0.1", RUBATO_ERROR_NETWORK, "write tcp://HOST:PORT" },
    { "shm://x:1", RUBATO_ERROR_NETWORK, "write tcp://HOST:PORT" },
    { "tcp://no.such.host.invalid:1", RUBATO_ERROR_NETWORK, "no.such.host.invalid" },
};

START_TEST(wrong_address_is_refused)
{
    const RubatoFollowerServerSpec spec = { .follows = { .uri = uri },
                                            .address = wrong[_i].address };
    g_autoptr(GError) error = NULL;

    ck_assert_ptr_null(rubato_follower_serve(&spec, &error));
    check_error(&error, wrong[_i].code, wrong[_i].text, NULL);
}
END_TEST

/* ---- strangers and liars ---- */

static int raw_connection(void)
{
    const int fd =
        serving_connect_to(rubato_follower_server_address(server), monotonic_ms() + 20000, NULL);

    ck_assert_int_ge(fd, 0);
    return fd;
}

static void open_line(ServingLine *line)
{
    ck_assert(serving_line_open(line, raw_connection(), HANDSHAKE_ROLE_CONNECTS, NULL,
                                monotonic_ms() + 20000, NULL));
}

START_TEST(noise_of_strangers_does_no_harm)
{
    static const char http[] = "GET / HTTP/1.0\r\n\r\n";
    uint8_t noise[1000];
    int fds[3];

    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (uint8_t)(i * 37);
    write_version();
    begin();
    for (size_t i = 0; i < G_N_ELEMENTS(fds); i++)
        fds[i] = raw_connection();
    (void)!send(fds[0], noise, sizeof noise, MSG_NOSIGNAL);
    (void)!send(fds[1], http, strlen(http), MSG_NOSIGNAL); /* the third one says nothing */
    wait_for_version(1);
    g_autoptr(RubatoRemoteTable) table = open_n();
    expect_value(table, 1, 1);
    while (recv(fds[0], noise, sizeof noise, 0) > 0)
        continue; /* it is closed, not left open */
    for (size_t i = 0; i < G_N_ELEMENTS(fds); i++)
        close(fds[i]);
}
END_TEST

/* A request as bytes, and the error that answers it. */
static const struct {
    const char *bytes;
    size_t n;
    RubatoError code;
} bad_requests[] = {
    { "", 0, RUBATO_ERROR_MISMATCH },
    { "\2\0\0\0\0\0\0\0", 8, RUBATO_ERROR_MISMATCH },
    { "\1\0\0\0\xff\0\0\0", 8, RUBATO_ERROR_INVALID },
    { "\1\0\0\0\0\0\0\0", 8, RUBATO_ERROR_INVALID },                          /* GET */
    { "\1\0\0\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff", 16, RUBATO_ERROR_INVALID }, /* a long name */
    { "\1\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0n\1\2", 19, RUBATO_ERROR_INVALID },    /* half a key */
    { "\1\0\0\0\0\0\0\0\0\0\0\0\2\0\0\0\xff\xff", 18, RUBATO_ERROR_INVALID }, /* no UTF-8 */
    { "\1\0\0\0\1\0\0\0", 8, RUBATO_ERROR_INVALID },                          /* TABLE */
    { "\1\0\0\0\6\0\0\0\1\0\0", 11, RUBATO_ERROR_FORMAT },                    /* GO_TO */
    { "\1\0\0\0\6\0\0\0\0\0\0\0\0\0\0\0", 16, RUBATO_ERROR_NOT_FOUND },
    { "\1\0\0\0\6\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", 16, RUBATO_ERROR_NOT_FOUND },
};

START_TEST(bad_request_is_answered_by_an_error)
{
    ServingLine line;
    ServingHead head;
    uint8_t bytes[64], answer[8192];

    write_version();
    begin();
    open_line(&line);
    for (size_t i = 0; i < G_N_ELEMENTS(bad_requests); i++) {
        memcpy(bytes, bad_requests[i].bytes, bad_requests[i].n);
        ck_assert(serving_line_send(&line, bytes, bad_requests[i].n, monotonic_ms() + 20000, NULL));
        ck_assert(
            serving_line_receive_head(&line, &head, sizeof answer, monotonic_ms() + 20000, NULL));
        ck_assert(serving_line_receive(&line, &head, answer, monotonic_ms() + 20000, NULL));
        ck_assert_uint_ge(head.n, 4);
        ck_assert_msg(answer[0] == 1 + bad_requests[i].code, "request %zu: %u: %.*s", i, answer[0],
                      (int)head.n - 4, (const char *)answer + 4);
    }
    serving_line_close(&line);
}
END_TEST

/* One that is longer than any, and one whose bytes were changed, end the connection; so does a
 * client that dies in the middle of a request. Others go on. */
START_TEST(broken_connection_is_closed)
{
    static const uint8_t huge[20] = { 0xff, 0xff, 0xff, 0xff };
    static const uint8_t changed[24] = { 4, 0, 0, 0, 1 }; /* with a wrong tag */
    ServingLine lines[3];
    uint8_t byte;

    write_version();
    begin();
    for (size_t i = 0; i < G_N_ELEMENTS(lines); i++)
        open_line(&lines[i]);
    ck_assert_int_gt(send(lines[0].fd, huge, sizeof huge, MSG_NOSIGNAL), 0);
    ck_assert_int_gt(send(lines[1].fd, changed, sizeof changed, MSG_NOSIGNAL), 0);
    ck_assert_int_gt(send(lines[2].fd, changed, sizeof changed - 1, MSG_NOSIGNAL), 0);
    shutdown(lines[2].fd, SHUT_WR);
    for (size_t i = 0; i < G_N_ELEMENTS(lines); i++) {
        ServingHead head;
        ck_assert(!serving_line_receive_head(&lines[i], &head, sizeof byte, monotonic_ms() + 20000,
                                             NULL));
        serving_line_close(&lines[i]);
    }
    wait_for_version(1);
    while (ask_status().n_clients != 1)
        g_thread_yield();
}
END_TEST

START_TEST(more_clients_than_may_be_are_closed)
{
    g_autoptr(GError) error = NULL;
    RubatoRemoteFollowerSpec spec = { .timeout_s = 20 };

    serve(&(RubatoFollowerServerSpec){ .follows = { .uri = uri }, .most_clients = 1 });
    spec.address = rubato_follower_server_address(server);
    remote = connect_to(spec.address, NULL);
    ck_assert_uint_eq(ask_status().n_clients, 1); /* it has its place once it is answered */
    ck_assert_ptr_null(rubato_remote_follower_connect(&spec, &error));
    check_error(&error, RUBATO_ERROR_NETWORK, "too many clients", NULL);
    rubato_remote_follower_free(g_steal_pointer(&remote));
    /* its place is free as soon as its end is noticed */
    while ((remote = rubato_remote_follower_connect(&spec, NULL)) == NULL)
        g_thread_yield();
}
END_TEST

/* Connections that say nothing: more than may be clients, and than may be in their handshake. */
START_TEST(strangers_keep_no_client_out)
{
    int fds[100];

    serve(&(RubatoFollowerServerSpec){ .follows = { .uri = uri }, .most_clients = 2 });
    for (size_t i = 0; i < G_N_ELEMENTS(fds); i++)
        fds[i] = raw_connection();
    remote = connect_to(rubato_follower_server_address(server), NULL);
    ck_assert_uint_eq(ask_status().n_clients, 1);
    for (size_t i = 0; i < G_N_ELEMENTS(fds); i++)
        close(fds[i]);
}
END_TEST

/* Requests that have begun and do not go on: each has room for its own bytes alone, so many of them
 * keep nobody from an answer. */
START_TEST(requests_that_come_slowly_keep_no_room_from_others)
{
    static const uint8_t head[21] = { 232, 3 }; /* 1,000 bytes, of which one comes */
    ServingLine lines[40];

    write_version();
    begin();
    wait_for_version(1);
    for (size_t i = 0; i < G_N_ELEMENTS(lines); i++) {
        open_line(&lines[i]);
        ck_assert_int_eq(send(lines[i].fd, head, sizeof head, MSG_NOSIGNAL), sizeof head);
    }
    g_autoptr(RubatoRemoteTable) table = open_n();
    expect_value(table, 1, 1);
    for (size_t i = 0; i < G_N_ELEMENTS(lines); i++)
        serving_line_close(&lines[i]);
}
END_TEST

/* What has begun to come is told from silence before its head is whole: so a server gives it a time
 * from then on. */
START_TEST(head_that_comes_in_part_is_not_waited_for_any_longer)
{
    g_autoptr(GError) error = NULL;
    ServingLine line = { .fd = -1 };
    ServingHead head;
    int ends[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    line.fd = ends[0];
    ck_assert(!serving_line_wait(&line, monotonic_ms() + 1, &error));
    check_error(&error, RUBATO_ERROR_TIMEOUT, "in time", NULL);
    ck_assert_int_eq(send(ends[1], "\4", 1, 0), 1);
    ck_assert(serving_line_wait(&line, SERVING_LINE_NEVER, NULL));
    ck_assert(!serving_line_receive_head(&line, &head, 100, monotonic_ms() + 1, &error));
    check_error(&error, RUBATO_ERROR_TIMEOUT, "in time", NULL);
    serving_line_close(&line);
    close(ends[1]);
}
END_TEST

/* The flags of an open descriptor, as the kernel lists them: it may be another thread's. */
static unsigned long flags_of(int fd)
{
    g_autofree char *path = g_strdup_printf("/proc/self/fdinfo/%d", fd);
    g_autofree char *text = NULL;
    const char *flags;

    ck_assert(g_file_get_contents(path, &text, NULL, NULL));
    flags = strstr(text, "flags:");
    ck_assert_ptr_nonnull(flags);
    return strtoul(flags + strlen("flags:"), NULL, 8);
}

/* A program that the server's process starts does not keep connections open. */
START_TEST(sockets_are_closed_in_programs_that_are_started)
{
    unsigned n_sockets = 0;

    begin();
    (void)ask_status();
    for (int fd = 3; fd < 200; fd++) {
        g_autofree char *path = g_strdup_printf("/proc/self/fd/%d", fd);
        g_autofree char *what = g_file_read_link(path, NULL);

        if (what == NULL || !g_str_has_prefix(what, "socket:"))
            continue;
        ck_assert(flags_of(fd) & O_CLOEXEC);
        n_sockets++;
    }
    ck_assert_uint_ge(n_sockets, 4); /* that listens, of the program, and of the server two */
}
END_TEST

/* So its client learns why, and need not guess that the connection broke. */
START_TEST(answer_without_room_is_an_error)
{
    static const uint8_t list[] = { 1, 0, 0, 0, 3, 0, 0, 0 };
    const RubatoFollowerSpec spec = { .uri = uri };
    ServingFollowing *const following = serving_following_new(&spec, /* holds= */ false, NULL);
    ServingCounts counts = { 0 };
    g_auto(RubatoByteWriter) answer = rubato_byte_writer_new(8);

    write_version();
    while (rubato_follower_version(serving_following_follower(following), NULL) == 0)
        g_thread_yield();
    ck_assert(serving_answer(following, &counts, list, sizeof list, &answer));
    ck_assert_uint_eq(answer.bytes[0], 1 + RUBATO_ERROR_MEMORY);
    serving_following_free(following);
}
END_TEST

/* A follower that is started again at the same address. */
START_TEST(program_goes_on_with_a_server_that_was_started_again)
{
    g_autofree char *address = NULL;
    g_autoptr(GError) error = NULL;
    RubatoServedStatus status;

    write_version();
    begin();
    wait_for_version(1);
    g_autoptr(RubatoRemoteTable) table = open_n();
    address = g_strdup(rubato_follower_server_address(server));
    rubato_follower_server_free(g_steal_pointer(&server));
    ck_assert(!rubato_remote_follower_status(remote, &status, &error));
    check_error(&error, RUBATO_ERROR_NETWORK, "no follower answers at", NULL);
    serve(&(RubatoFollowerServerSpec){ .follows = { .uri = uri }, .address = address });
    wait_for_version(1);
    expect_value(table, 1, 1);
    rubato_follower_server_free(g_steal_pointer(&server));
    serve(&(RubatoFollowerServerSpec){ .follows = { .uri = uri }, .address = address });
    wait_for_version(1); /* on a connection that was there before */
}
END_TEST

static Suite *serving_suite(void)
{
    Suite *suite = suite_create("serving");
    TCase *reading = tcase_create("reading");
    TCase *asking = tcase_create("asking");

    tcase_add_checked_fixture(reading, set_up, tear_down);
    tcase_add_test(reading, program_reads_each_version);
    tcase_add_test(reading, key_without_a_row_is_zeros);
    tcase_add_test(reading, rows_of_different_lengths_are_read);
    tcase_add_test(reading, tables_are_listed_and_described);
    tcase_add_test(reading, readers_see_whole_versions_in_order);
    tcase_add_test(reading, serving_stays_goes_back_and_goes_on);
    tcase_add_test(reading, serving_may_hold_from_its_first_version_on);
    tcase_add_test(reading, damaged_version_is_told);
    suite_add_tcase(suite, reading);
    tcase_add_checked_fixture(asking, set_up, tear_down);
    tcase_add_test(asking, calls_that_make_no_sense_are_refused);
    tcase_add_test(asking, answer_that_is_too_large_is_refused);
    tcase_add_test(asking, only_who_knows_the_secret_may_ask);
    tcase_add_loop_test(asking, wrong_address_is_refused, 0, G_N_ELEMENTS(wrong));
    tcase_add_test(asking, noise_of_strangers_does_no_harm);
    tcase_add_test(asking, bad_request_is_answered_by_an_error);
    tcase_add_test(asking, broken_connection_is_closed);
    tcase_add_test(asking, more_clients_than_may_be_are_closed);
    tcase_add_test(asking, strangers_keep_no_client_out);
    tcase_add_test(asking, requests_that_come_slowly_keep_no_room_from_others);
    tcase_add_test(asking, head_that_comes_in_part_is_not_waited_for_any_longer);
    tcase_add_test(asking, sockets_are_closed_in_programs_that_are_started);
    tcase_add_test(asking, answer_without_room_is_an_error);
    tcase_add_test(asking, program_goes_on_with_a_server_that_was_started_again);
    suite_add_tcase(suite, asking);
    return suite;
}

int main(void)
{
    return run_suite(serving_suite());
}
