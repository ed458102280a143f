/* Who answers a program may be anything, and so may be who says where a host is. */
#include <check.h>
#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <rubato/rubato.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/serving/serving_address.h"
#include "engine/serving/serving_line.h"
#include "engine/serving/serving_message.h"
#include "io/net/monotonic.h"
#include "tests/support/runner.h"

static RubatoRemoteFollower *remote;

static void check_error(const GError *error, int code, const char *text)
{
    ck_assert_msg(g_error_matches(error, RUBATO_ERROR, code), "%s",
                  error != NULL ? error->message : "no error");
    ck_assert_msg(strstr(error->message, text) != NULL, "%s", error->message);
}

typedef struct {
    int listener;
    const uint8_t *bytes; /* of its answers, one behind the other */
    size_t n;             /* of each */
    size_t n_more;        /* answers behind the first one */
    pthread_t thread;
} Liar;

static void *lie(void *data)
{
    const Liar *const liar = data;
    ServingLine line;
    ServingHead head;
    uint8_t request[128];
    g_autofree uint8_t *answer = g_malloc(liar->n + 1);
    size_t told = 0;
    struct pollfd ready = { .fd = liar->listener, .events = POLLIN };

    (void)poll(&ready, 1, 20000);
    if (!serving_line_open(&line, accept(liar->listener, NULL, NULL), HANDSHAKE_ROLE_ACCEPTS, NULL,
                           monotonic_ms() + 20000, NULL))
        return NULL;
    while (serving_line_receive_head(&line, &head, sizeof request, monotonic_ms() + 20000, NULL) &&
           serving_line_receive(&line, &head, request, monotonic_ms() + 20000, NULL)) {
        memcpy(answer, liar->bytes + told * liar->n, liar->n);
        (void)serving_line_send(&line, answer, liar->n, monotonic_ms() + 20000, NULL);
        told += told < liar->n_more;
    }
    serving_line_close(&line);
    return NULL;
}

static void begin_lying(Liar *liar)
{
    struct sockaddr_in at;
    socklen_t size = sizeof at;

    liar->listener = serving_listen("tcp://127.0.0.1:0", false, NULL);
    ck_assert_int_eq(getsockname(liar->listener, (struct sockaddr *)&at, &size), 0);
    g_autofree char *address = g_strdup_printf("tcp://127.0.0.1:%u", ntohs(at.sin_port));
    ck_assert_int_eq(pthread_create(&liar->thread, NULL, lie, liar), 0);
    remote = rubato_remote_follower_connect(
        &(RubatoRemoteFollowerSpec){ .address = address, .timeout_s = 20 }, NULL);
    ck_assert_ptr_nonnull(remote);
}

static void end_lying(Liar *liar)
{
    rubato_remote_follower_free(g_steal_pointer(&remote));
    pthread_join(liar->thread, NULL);
    close(liar->listener);
}

static const struct {
    const char *bytes;
    size_t n;
    const char *text;
} lies[] = {
    { "", 0, "makes no sense" },
    { "\0\0\0\0", 4, "the shape of a table" },
    { "\xff\0\0\0why", 7, "makes no sense" },
    { "\1\0\0\0\xff\xfe", 6, "follower tcp" },
    { "\0\0\0\0\0\0\0\0\7\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
      44, "makes no sense" }, /* of a shape that there is not */
    { "\0\0\0\0\xff\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
      44, "makes no sense" },
};

START_TEST(nonsense_of_a_server_is_an_error)
{
    g_autoptr(GError) error = NULL;
    Liar liar = { .bytes = (const uint8_t *)lies[_i].bytes, .n = lies[_i].n };
    RubatoFollowedTable shape;

    begin_lying(&liar);
    ck_assert(!rubato_remote_follower_describe_table(remote, "n", &shape, &error));
    ck_assert_msg(strstr(error->message, lies[_i].text) != NULL, "%s", error->message);
    end_lying(&liar);
}
END_TEST

/* A follower tells what is wrong in a few words. */
START_TEST(error_text_that_is_too_long_is_nonsense)
{
    for (size_t n = SERVING_MOST_NAME; n <= SERVING_MOST_NAME + 1; n++) {
        g_autofree uint8_t *bytes = g_malloc(4 + n);
        g_autoptr(GError) error = NULL;
        Liar liar = { .bytes = bytes, .n = 4 + n };
        RubatoFollowedTable shape;

        memset(bytes, 'x', 4 + n);
        memcpy(bytes, (const uint8_t[]){ 1 + RUBATO_ERROR_MEMORY, 0, 0, 0 }, 4);
        begin_lying(&liar);
        ck_assert(!rubato_remote_follower_describe_table(remote, "n", &shape, &error));
        ck_assert_int_eq(error->code, n == SERVING_MOST_NAME ? (int)RUBATO_ERROR_MEMORY
                                                             : (int)RUBATO_ERROR_FORMAT);
        end_lying(&liar);
    }
}
END_TEST

START_TEST(tables_without_names_are_nonsense)
{
    g_autoptr(GError) error = NULL;
    Liar liar = { .bytes = (const uint8_t *)"\0\0\0\0n\0\0\0", .n = 8 };

    begin_lying(&liar);
    ck_assert_ptr_null(rubato_remote_follower_list_tables(remote, &error));
    check_error(error, RUBATO_ERROR_FORMAT, "makes no sense");
    end_lying(&liar);
}
END_TEST

/* A table of rows of 64 KiB, it says, and of different lengths; then a row of 20 bytes. What lies
 * behind them is not read. */
START_TEST(rows_that_are_shorter_than_the_width_are_not_read)
{
    static const uint8_t told[2][44] = {
        { [4] = RUBATO_U8, [8] = RUBATO_SHAPE_RAGGED, [14] = 1 },
        { [12] = RUBATO_U8, [18] = 1, [20] = 20 },
    };
    g_autofree uint8_t *values = g_malloc(1 << 16);
    g_autoptr(GError) error = NULL;
    Liar liar = { .bytes = told[0], .n = sizeof told[0], .n_more = 1 };
    const RubatoKey key = 0;

    begin_lying(&liar);
    g_autoptr(RubatoRemoteTable) table =
        rubato_remote_follower_open_table(remote, "n", RUBATO_U8, NULL);
    ck_assert_ptr_nonnull(table);
    ck_assert_uint_eq(rubato_remote_table_shape(table)->width, 1 << 16);
    ck_assert(!rubato_remote_table_get(table, &key, 1, values, NULL, NULL, &error));
    check_error(error, RUBATO_ERROR_INVALID, "different lengths");
    end_lying(&liar);
}
END_TEST

/* ---- names ---- */

#define SLOW_HOST "slow.rubato.example"

static pthread_mutex_t lookup_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t lookup_changed = PTHREAD_COND_INITIALIZER;
static bool name_server_answers, lookup_has_ended; /* guarded by lookup_lock */

/* In place of the C library's: for one name, a name server that does not answer until it is told
 * to. */
int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                struct addrinfo **found)
{
    int (*const own)(const char *, const char *, const struct addrinfo *, struct addrinfo **) =
        (int (*)(const char *, const char *, const struct addrinfo *, struct addrinfo **))dlsym(
            RTLD_NEXT, "getaddrinfo");

    if (g_strcmp0(host, SLOW_HOST) != 0 || (hints->ai_flags & AI_NUMERICHOST) != 0)
        return own(host, port, hints, found);
    pthread_mutex_lock(&lookup_lock);
    while (!name_server_answers)
        pthread_cond_wait(&lookup_changed, &lookup_lock);
    lookup_has_ended = true;
    pthread_cond_broadcast(&lookup_changed);
    pthread_mutex_unlock(&lookup_lock);
    return own("127.0.0.1", port, hints, found);
}

static void let_name_server_answer(void)
{
    pthread_mutex_lock(&lookup_lock);
    name_server_answers = true;
    pthread_cond_broadcast(&lookup_changed);
    pthread_mutex_unlock(&lookup_lock);
}

START_TEST(name_that_nobody_knows_in_time_is_an_error)
{
    g_autoptr(GError) error = NULL;

    ck_assert_ptr_null(rubato_remote_follower_connect(
        &(RubatoRemoteFollowerSpec){ .address = "tcp://" SLOW_HOST ":1", .timeout_s = 0.05 },
        &error));
    check_error(error, RUBATO_ERROR_TIMEOUT, SLOW_HOST);
    let_name_server_answer();
    pthread_mutex_lock(&lookup_lock); /* its thread goes on, and uses nothing of the caller */
    while (!lookup_has_ended)
        pthread_cond_wait(&lookup_changed, &lookup_lock);
    pthread_mutex_unlock(&lookup_lock);
}
END_TEST

START_TEST(name_is_found_in_time)
{
    g_autoptr(GError) error = NULL;
    const int listener = serving_listen("tcp://127.0.0.1:0", false, NULL);
    struct sockaddr_in at;
    socklen_t size = sizeof at;

    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&at, &size), 0);
    g_autofree char *address = g_strdup_printf("tcp://" SLOW_HOST ":%u", ntohs(at.sin_port));
    let_name_server_answer();
    const int fd = serving_connect_to(address, monotonic_ms() + 20000, &error);
    ck_assert_msg(fd >= 0, "%s", error != NULL ? error->message : "");
    close(fd);
    close(listener);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("serving nonsense");
    TCase *cases = tcase_create("cases");

    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, nonsense_of_a_server_is_an_error, 0, G_N_ELEMENTS(lies));
    tcase_add_test(cases, error_text_that_is_too_long_is_nonsense);
    tcase_add_test(cases, tables_without_names_are_nonsense);
    tcase_add_test(cases, rows_that_are_shorter_than_the_width_are_not_read);
    tcase_add_test(cases, name_that_nobody_knows_in_time_is_an_error);
    tcase_add_test(cases, name_is_found_in_time);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
