/* Where a node finds the secret of its run, what is refused, and what is allowed without a secret.
 *
 * docs/security.md: Where nodes find it; Without a secret; Over ZeroMQ */
#include <fcntl.h>
#include <glib/gstdio.h>
#include <rubato/launcher.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/cluster/secret_source.h"
#include "tests/support/cluster/launch_fixture.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

#define DIGITS "00112233445566778899aabbccddeeff0123456789ABCDEFfedcba9876543210"

/* A cluster of one node there, with these lines more. (transfer full) */
static Cluster *cluster_at(const char *host, const char *lines)
{
    g_autofree char *text =
        g_strdup_printf("cluster: { scheduler = { host = \"%s\"; port = 4100; };\n"
                        "nodes = ( { id = 3; host = \"%s\"; port = 4101; } );\n%s };\n",
                        host, host, lines);
    g_autofree char *path = launch_write_file("run.cfg", text, 0600);
    GError *error = NULL;
    Cluster *const cluster = cluster_read(path, &error);

    ck_assert_msg(cluster != NULL, "%s", error != NULL ? error->message : "");
    return cluster;
}

static void assert_digits(const RunSecret *secret, const char *digits)
{
    char found[RUN_SECRET_DIGITS + 1];

    run_secret_format(secret, found);
    ck_assert_int_eq(g_ascii_strcasecmp(found, digits), 0);
}

/* Finds the secret, which must be this one, from this origin. */
static void assert_finds(const Cluster *cluster, SecretOrigin origin, const char *digits)
{
    GError *error = NULL;
    RunSecret secret;
    SecretOrigin found;

    ck_assert_msg(secret_find(cluster, &secret, &found, &error), "%s",
                  error != NULL ? error->message : "");
    ck_assert_int_eq(found, origin);
    if (digits != NULL)
        assert_digits(&secret, digits);
}

START_TEST(nothing_is_found_where_nothing_is_named)
{
    g_autoptr(Cluster) cluster = cluster_at("127.0.0.1", "");

    assert_finds(cluster, SECRET_ORIGIN_NONE, NULL);
}
END_TEST

/* ---- files ---- */

START_TEST(made_file_is_read_and_nobody_else_may)
{
    g_autofree char *path = g_build_filename(launch_folder, "s", NULL);
    g_autofree char *text = NULL, *again = NULL;
    g_autoptr(Cluster) cluster = cluster_at("127.0.0.1", "secret_file = \"s\";"); /* beside it */
    GError *error = NULL;
    struct stat status;

    (void)umask(0);
    ck_assert(rubato_launch_make_secret(path, &error));
    ck_assert_int_eq(stat(path, &status), 0);
    ck_assert_uint_eq(status.st_mode & 07777, 0600);
    ck_assert(g_file_get_contents(path, &text, NULL, NULL));
    ck_assert_uint_eq(strlen(text), RUN_SECRET_DIGITS + 1);
    assert_finds(cluster, SECRET_ORIGIN_FROM_FILE, g_strchomp(text));
    /* One that is there stays. */
    ck_assert(!rubato_launch_make_secret(path, &error));
    check_error(&error, RUBATO_ERROR_IO, path, "left as it is", NULL);
    ck_assert(g_file_get_contents(path, &again, NULL, NULL));
    ck_assert_str_eq(g_strchomp(again), text);
}
END_TEST

static const struct {
    mode_t mode;
    const char *text, *says;
} files[] = {
    { 0640, DIGITS "\n", "chmod 600" }, { 0604, DIGITS "\n", "chmod 600" },
    { 0610, DIGITS "\n", "mode 0610" }, { 0600, "", "has 0" },
    { 0600, DIGITS "0", "has 65" },     { 0600, "zz" DIGITS, "character 1" },
};

START_TEST(file_that_others_may_use_or_that_is_none_is_refused)
{
    g_autofree char *path = launch_write_file("s", files[_i].text, 0600);
    g_autoptr(Cluster) cluster = cluster_at("127.0.0.1", "secret_file = \"s\";");
    SecretOrigin origin;
    GError *error = NULL;
    RunSecret secret;

    ck_assert_int_eq(chmod(path, files[_i].mode), 0);
    ck_assert(!secret_find(cluster, &secret, &origin, &error));
    ck_assert_int_eq(origin, SECRET_ORIGIN_NONE);
    ck_assert_msg(strstr(error->message, path) != NULL, "%s", error->message);
    ck_assert_msg(strstr(error->message, files[_i].says) != NULL, "%s", error->message);
    ck_assert_msg(strstr(error->message, "0011") == NULL, "it is shown: %s", error->message);
    g_error_free(error);
}
END_TEST

START_TEST(file_that_is_missing_strange_or_of_another_user_is_refused)
{
    g_autofree char *path = g_build_filename(launch_folder, "s", NULL);
    GError *error = NULL;
    RunSecret secret;

    ck_assert(!secret_read_file(path, &secret, &error));
    check_error(&error, RUBATO_ERROR_IO, path, "rubato secret", NULL);
    ck_assert_int_eq(mkfifo(path, 0600), 0); /* nobody writes: it must not wait */
    ck_assert(!secret_read_file(path, &secret, &error));
    check_error(&error, RUBATO_ERROR_CONFIG, path, "no file of bytes", NULL);
    ck_assert_int_eq(unlink(path), 0);
    g_free(launch_write_file("s", DIGITS, 0600));
    if (chown(path, 1234, (gid_t)-1) != 0)
        return; /* only root can try it */
    ck_assert(!secret_read_file(path, &secret, &error));
    check_error(&error, RUBATO_ERROR_CONFIG, path, "belongs to user 1234", NULL);
}
END_TEST

/* ---- the environment ---- */

START_TEST(variable_is_read_wiped_and_unset_and_found_again)
{
    g_autoptr(Cluster) cluster = cluster_at("127.0.0.1", "secret_file = \"missing\";");
    g_autofree char *number = NULL;

    ck_assert(g_setenv(SECRET_VARIABLE, DIGITS, TRUE));
    const char *const place = g_getenv(SECRET_VARIABLE);
    assert_finds(cluster, SECRET_ORIGIN_FROM_VARIABLE, DIGITS);
    ck_assert_ptr_null(g_getenv(SECRET_VARIABLE));
    ck_assert_int_eq(place[0], '\0');
    /* A second engine of the process, and a program that the process starts. */
    assert_finds(cluster, SECRET_ORIGIN_FROM_DESCRIPTOR, DIGITS);
    assert_finds(cluster, SECRET_ORIGIN_FROM_DESCRIPTOR, DIGITS);
    number = g_strdup(g_getenv(SECRET_FD_VARIABLE));
    ck_assert_int_eq(fcntl(atoi(number), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}
END_TEST

START_TEST(variable_that_is_no_secret_is_refused_and_wiped)
{
    g_autoptr(Cluster) cluster = cluster_at("127.0.0.1", "");
    SecretOrigin origin;
    GError *error = NULL;
    RunSecret secret;

    ck_assert(g_setenv(SECRET_VARIABLE, "hunter2", TRUE));
    ck_assert(!secret_find(cluster, &secret, &origin, &error));
    ck_assert_msg(strstr(error->message, SECRET_VARIABLE) != NULL, "%s", error->message);
    ck_assert_msg(strstr(error->message, "hunter2") == NULL, "%s", error->message);
    ck_assert_ptr_null(g_getenv(SECRET_VARIABLE));
    g_error_free(error);
}
END_TEST

/* As a shell hands it on. */
START_TEST(pipe_is_read_once_and_found_again)
{
    g_autoptr(Cluster) cluster = cluster_at("127.0.0.1", "");
    g_autofree char *number = NULL;
    int ends[2];

    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_eq(write(ends[1], DIGITS "\n", RUN_SECRET_DIGITS + 1), RUN_SECRET_DIGITS + 1);
    ck_assert_int_eq(close(ends[1]), 0);
    number = g_strdup_printf("%d", ends[0]);
    ck_assert(g_setenv(SECRET_FD_VARIABLE, number, TRUE));
    assert_finds(cluster, SECRET_ORIGIN_FROM_DESCRIPTOR, DIGITS);
    assert_finds(cluster, SECRET_ORIGIN_FROM_DESCRIPTOR, DIGITS);
}
END_TEST

/* The nodes of one `rubato run` share the descriptor's offset, and read at the same time. */
START_TEST(offset_of_an_inherited_descriptor_is_left_alone)
{
    enum { ANYWHERE = 10 };
    g_autoptr(Cluster) cluster = cluster_at("127.0.0.1", "");
    GError *error = NULL;
    RunSecret secret;

    ck_assert(run_secret_parse(DIGITS, RUN_SECRET_DIGITS, &secret, NULL));
    const int fd = secret_to_descriptor(&secret, &error);
    ck_assert_int_ge(fd, 0);
    g_autofree char *number = g_strdup_printf("%d", fd);
    ck_assert(g_setenv(SECRET_FD_VARIABLE, number, TRUE));
    ck_assert_int_eq(lseek(fd, ANYWHERE, SEEK_SET), ANYWHERE);
    assert_finds(cluster, SECRET_ORIGIN_FROM_DESCRIPTOR, DIGITS);
    ck_assert_int_eq(lseek(fd, 0, SEEK_CUR), ANYWHERE);
}
END_TEST

START_TEST(descriptor_that_is_something_else_is_left_alone)
{
    g_autoptr(Cluster) cluster = cluster_at("127.0.0.1", "");
    g_autofree char *path = launch_write_file("other", DIGITS, 0600);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    SecretOrigin origin;
    GError *error = NULL;
    RunSecret secret;
    int ends[2];

    ck_assert_int_eq(pipe(ends), 0); /* in which nothing is: it must not wait */
    const int fds[] = { 999, file, ends[0], 0 };
    for (size_t i = 0; i < G_N_ELEMENTS(fds); i++) {
        g_autofree char *number = g_strdup_printf("%d", fds[i]);
        ck_assert(g_setenv(SECRET_FD_VARIABLE, number, TRUE));
        ck_assert(!secret_find(cluster, &secret, &origin, &error));
        check_error(&error, RUBATO_ERROR_CONFIG, SECRET_FD_VARIABLE, "unset", NULL);
    }
    ck_assert_int_eq(lseek(file, 0, SEEK_CUR), 0);
}
END_TEST

/* ---- what may be done without ---- */

static const struct {
    const char *host, *lines;
    SecretOrigin origin;
    const char *says; /* NULL: it is allowed */
} rules[] = {
    { "127.0.0.1", "", SECRET_ORIGIN_NONE, NULL },
    { "127.7.7.7", "transport = \"tcp\";", SECRET_ORIGIN_NONE, NULL },
    { "::1", "", SECRET_ORIGIN_NONE, NULL },
    { "localhost", "", SECRET_ORIGIN_NONE, NULL },
    { ELSEWHERE, "", SECRET_ORIGIN_NONE, "run.cfg:1: the host of the scheduler, " ELSEWHERE },
    { ELSEWHERE, "", SECRET_ORIGIN_NONE, "rubato run" },
    { ELSEWHERE, "", SECRET_ORIGIN_NONE, "rubato secret FILE" },
    { ELSEWHERE, "insecure = true;", SECRET_ORIGIN_NONE, NULL },
    { ELSEWHERE, "insecure = false;", SECRET_ORIGIN_NONE, "insecure = true;" },
    { ELSEWHERE, "", SECRET_ORIGIN_FROM_FILE, NULL },
    { "127.0.0.1", "encrypt = true;", SECRET_ORIGIN_NONE, "run.cfg:3: encrypt = true;" },
    { "127.0.0.1", "encrypt = true; insecure = true;", SECRET_ORIGIN_NONE, "needs a secret" },
    { "127.0.0.1", "authenticate = true;", SECRET_ORIGIN_NONE,
      "run.cfg:3: authenticate = true; needs a" },
    { "127.0.0.1", "authenticate = true;", SECRET_ORIGIN_FROM_FILE, NULL },
    { ELSEWHERE, "encrypt = true;", SECRET_ORIGIN_FROM_VARIABLE, NULL },
    { ELSEWHERE, "encrypt = false; insecure = true;", SECRET_ORIGIN_NONE, NULL },
    { "127.0.0.1", "transport = \"zmq\";", SECRET_ORIGIN_NONE, NULL },
    { "localhost", "transport = \"zmq\";", SECRET_ORIGIN_FROM_FILE, NULL },
    { ELSEWHERE, "transport = \"zmq\";", SECRET_ORIGIN_FROM_FILE, NULL },
    { ELSEWHERE, "transport = \"zmq\"; encrypt = true;", SECRET_ORIGIN_FROM_VARIABLE, NULL },
    { ELSEWHERE, "transport = \"zmq\";", SECRET_ORIGIN_NONE, "insecure = true;" },
    { "127.0.0.1", "transport = \"ipc\"; encrypt = true;", SECRET_ORIGIN_NONE, "needs a secret" },
    { ELSEWHERE, "transport = \"zmq\"; insecure = true;", SECRET_ORIGIN_NONE, NULL },
    { ELSEWHERE, "transport = \"ipc\";", SECRET_ORIGIN_FROM_FILE, NULL },
    { ELSEWHERE, "transport = \"tcp\"; encrypt = true;", SECRET_ORIGIN_FROM_FILE, NULL },
    { ELSEWHERE, "transport = \"shm\"; encrypt = true;", SECRET_ORIGIN_FROM_FILE, NULL },
};

START_TEST(without_a_secret_there_is_only_loopback_unless_the_file_says_so)
{
    g_autoptr(Cluster) cluster = cluster_at(rules[_i].host, rules[_i].lines);
    GError *error = NULL;
    const bool allowed = secret_check_cluster(cluster, rules[_i].origin, &error);

    ck_assert_msg(allowed == (rules[_i].says == NULL), "%s",
                  error != NULL ? error->message : "allowed");
    if (!allowed)
        check_error(&error, RUBATO_ERROR_CONFIG, rules[_i].says, NULL);
}
END_TEST

/* By the public call, before anything is bound. */
START_TEST(engine_refuses_other_addresses_without_a_secret)
{
    g_autoptr(Cluster) cluster = cluster_at(ELSEWHERE, "");
    const RubatoEngineConfig config = { .cluster_file = cluster->path, .node = 3 };
    GError *error = NULL;

    ck_assert_ptr_null(rubato_engine_new(&config, &error));
    check_error(&error, RUBATO_ERROR_CONFIG, "no secret", "insecure = true;", NULL);
}
END_TEST

/* Of the file itself. */
static const struct {
    const char *lines, *says;
} wrong[] = {
    { "encrypt = 1;",
      "run.cfg:3: 'encrypt' of the cluster is a whole number; write encrypt = true;" },
    { "insecure = \"yes\";", "write insecure = true;" },
    { "secret_file = \"\";", "'secret_file' of the cluster is empty" },
    { "secret_file = true;", "a truth value; write a text in quotes" },
    { "secretfile = \"s\";", "did you mean 'secret_file'?" },
};

START_TEST(wrong_keys_are_refused)
{
    g_autofree char *text =
        g_strdup_printf("cluster: { scheduler = { host = \"127.0.0.1\"; port = 4100; };\n"
                        "nodes = ( { id = 3; host = \"127.0.0.1\"; port = 4101; } );\n%s };\n",
                        wrong[_i].lines);
    GError *error = NULL;

    ck_assert_ptr_null(cluster_parse(text, strlen(text), "run.cfg", &error));
    check_error(&error, RUBATO_ERROR_CONFIG, wrong[_i].says, NULL);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("secret_source");
    TCase *const all = launch_add_case(suite, "sources");

    (void)g_unsetenv(SECRET_VARIABLE);
    (void)g_unsetenv(SECRET_FD_VARIABLE);
    tcase_add_test(all, nothing_is_found_where_nothing_is_named);
    tcase_add_test(all, made_file_is_read_and_nobody_else_may);
    tcase_add_loop_test(all, file_that_others_may_use_or_that_is_none_is_refused, 0,
                        (int)G_N_ELEMENTS(files));
    tcase_add_test(all, file_that_is_missing_strange_or_of_another_user_is_refused);
    tcase_add_test(all, variable_is_read_wiped_and_unset_and_found_again);
    tcase_add_test(all, variable_that_is_no_secret_is_refused_and_wiped);
    tcase_add_test(all, pipe_is_read_once_and_found_again);
    tcase_add_test(all, offset_of_an_inherited_descriptor_is_left_alone);
    tcase_add_test(all, descriptor_that_is_something_else_is_left_alone);
    tcase_add_loop_test(all, without_a_secret_there_is_only_loopback_unless_the_file_says_so, 0,
                        (int)G_N_ELEMENTS(rules));
    tcase_add_test(all, engine_refuses_other_addresses_without_a_secret);
    tcase_add_loop_test(all, wrong_keys_are_refused, 0, (int)G_N_ELEMENTS(wrong));
    return run_suite(suite);
}
