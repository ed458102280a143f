/* The commands `rubato follow` and `rubato publish`, run as a user does. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rubato/rubato.h>

#include "test_paths.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/network/port_pair.h"
#include "tests/support/runner.h"
#include "tests/support/store/small_snapshot.h"

static char *directory, *uri;
static RubatoEngine *engine;

static void set_up(void)
{
    directory = g_dir_make_tmp("rubato-follow-XXXXXX", NULL);
    uri = g_strconcat("file:", directory, NULL);
    engine = engine_with_servers(1);
    create_table(engine, &(RubatoTableSpec){ .name = "n", .width = 2, .storage = "hash" });
}

static void tear_down(void)
{
    rubato_engine_free(engine);
    remove_tree(directory);
    g_free(directory);
    g_free(uri);
}

static void write_version(void)
{
    const RubatoKey key = 3;
    const float delta[] = { 1, 0.5 };
    const RubatoSnapshotSpec spec = { .directory = directory, .full_every = 8 };

    ck_assert(rubato_engine_add(engine, "n", &key, 1, delta, NULL));
    ck_assert(rubato_engine_snapshot(engine, &spec, NULL, NULL));
}

typedef struct {
    int status;
    char *out, *err;
} Said;

static void said_clear(Said *said)
{
    g_free(said->out);
    g_free(said->err);
}

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Said, said_clear)

/* Runs `rubato follow` with the arguments, ended by NULL. */
static Said run(const char *const *arguments)
{
    const char *argv[12] = { TEST_BIN_DIR "/rubato", "follow" };
    Said said;

    for (size_t i = 0; arguments[i] != NULL; i++)
        argv[i + 2] = arguments[i];
    ck_assert(g_spawn_sync(NULL, (char **)(uintptr_t)argv, NULL, G_SPAWN_DEFAULT, NULL, NULL,
                           &said.out, &said.err, &said.status, NULL));
    said.status = WEXITSTATUS(said.status);
    return said;
}

/* ---- one that serves ---- */

typedef struct {
    GPid pid;
    FILE *err;
    char address[128];
} Serving;

/* Waits for a line that has the text. */
static void wait_for_line(const Serving *serving, const char *text)
{
    char line[1024] = "";

    while (strstr(line, text) == NULL)
        ck_assert_ptr_nonnull(fgets(line, sizeof line, serving->err));
}

static Serving start(const char *const *arguments)
{
    const char *argv[12] = { TEST_BIN_DIR "/rubato", "follow", uri };
    Serving serving = { 0 };
    int out, err;

    for (size_t i = 0; arguments[i] != NULL; i++)
        argv[i + 3] = arguments[i];
    ck_assert(g_spawn_async_with_pipes(NULL, (char **)(uintptr_t)argv, NULL,
                                       G_SPAWN_DO_NOT_REAP_CHILD, NULL, NULL, &serving.pid, NULL,
                                       &out, &err, NULL));
    FILE *const lines = fdopen(out, "r");
    ck_assert_ptr_nonnull(fgets(serving.address, sizeof serving.address, lines));
    g_strchomp(serving.address);
    fclose(lines);
    serving.err = fdopen(err, "r");
    return serving;
}

static void stop(Serving *serving, int signal_number)
{
    int status;

    ck_assert_int_eq(kill(serving->pid, signal_number), 0);
    wait_for_line(serving, "ends at version");
    ck_assert_int_eq(waitpid(serving->pid, &status, 0), serving->pid);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    fclose(serving->err);
}

/* `rubato follow --at` it must print the text and end with the status. */
static void ask(const Serving *serving, int status, const char *text, const char *const *words)
{
    const char *arguments[8] = { "--at", serving->address };

    for (size_t i = 0; words[i] != NULL; i++)
        arguments[i + 2] = words[i];
    g_auto(Said) said = run(arguments);
    ck_assert_msg(said.status == status, "%d: %s%s", said.status, said.out, said.err);
    ck_assert_msg(strstr(status == 0 ? said.out : said.err, text) != NULL, "%s%s", said.out,
                  said.err);
}

#define WORDS(...) ((const char *const[]){ __VA_ARGS__, NULL })

START_TEST(serving_serves_until_a_signal_ends_it)
{
    Serving serving;

    write_version();
    serving = start(WORDS("--tables", "n"));
    wait_for_line(&serving, "serves version 1");
    ask(&serving, 0, "3: 1 0.5\n5: no row\n", WORDS("get", "n", "3", "5"));
    ask(&serving, 0, "version  1 of", WORDS("status"));
    ask(&serving, 0, "table    n: 1 rows, f32 × 2", WORDS("status"));
    ask(&serving, 0, "", WORDS("hold"));
    wait_for_line(&serving, "stays at version 1");
    write_version();
    ask(&serving, 0, ", held", WORDS("status"));
    ask(&serving, 0, "", WORDS("back", "2"));
    ask(&serving, 0, "3: 2 1\n", WORDS("get", "n", "3"));
    ask(&serving, 0, "", WORDS("back", "1"));
    ask(&serving, 0, "3: 1 0.5\n", WORDS("get", "n", "3"));
    ask(&serving, 1, "no version 7", WORDS("back", "7"));
    ask(&serving, 0, "", WORDS("continue"));
    wait_for_line(&serving, "goes on from version");
    stop(&serving, SIGTERM);
}
END_TEST

static bool add_once(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoKey key = 3;
    const float delta[] = { 1, 0.5 };
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "n", RUBATO_F32, error);

    (void)user_data;
    return table != NULL && rubato_kv_table_add(table, &key, 1, delta, error);
}

/* Over ZeroMQ, to one that was there before and one that comes late. */
START_TEST(published_stream_is_served)
{
    static const char *const tables[] = { "n", NULL };
    g_autofree char *published = g_strdup_printf("zmq:tcp://127.0.0.1:%u", find_port_pair());
    g_autofree char *to = g_strdup_printf("%s?directory=%s", published, directory);
    const RubatoTaskStream stream = { .uri = to };
    const RubatoTask task = {
        .name = "add", .run = add_once, .tables = tables, .workers_per_node = 1, .stream = &stream
    };
    Serving early, late;

    g_free(uri);
    uri = g_steal_pointer(&published);
    early = start(WORDS(NULL));
    run_task_ok(engine, &task);
    wait_for_line(&early, "serves version 1");
    run_task_ok(engine, &task);
    late = start(WORDS("--hold"));
    wait_for_line(&late, "stays at version");
    rubato_engine_free(g_steal_pointer(&engine)); /* when both have all versions */
    ask(&early, 0, "3: 2 1\n", WORDS("get", "n", "3"));
    ask(&late, 0, "", WORDS("back", "2"));
    ask(&late, 0, "3: 2 1\n5: no row\n", WORDS("get", "n", "3", "5"));
    stop(&early, SIGTERM);
    stop(&late, SIGTERM);
}
END_TEST

/* A process that is killed leaves nothing behind that another one has to clear. */
START_TEST(killed_server_is_started_again_at_its_address)
{
    Serving serving, again;
    int status;

    write_version();
    serving = start(WORDS("--hold"));
    wait_for_line(&serving, "stays at version 1");
    ck_assert_int_eq(kill(serving.pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(serving.pid, &status, 0), serving.pid);
    fclose(serving.err);
    ask(&serving, 1, "no follower answers at", WORDS("status"));
    write_version();
    again = start(WORDS("--serve", serving.address));
    wait_for_line(&again, "serves version 2");
    ask(&again, 0, "3: 2 1\n", WORDS("get", "n", "3"));
    stop(&again, SIGINT);
}
END_TEST

static const struct {
    const char *arguments[6];
    int status;
    const char *text;
} wrong[] = {
    { { NULL }, 2, "which stream?" },
    { { "nowhere:x" }, 2, "it is named by" },
    { { "file:x", "y" }, 2, "which stream?" },
    { { "file:x", "--clients", "-1" }, 2, "--clients takes" },
    { { "file:x", "--hold-back", "-1" }, 2, "holds back for -1 seconds" },
    { { "file:x", "--serve", "tcp://0.0.0.0:0" }, 2, "needs a secret" },
    { { "file:x", "--secret-file", "not-there" }, 1, "not-there" },
    { { "file:x", "--timeout", "3" }, 2, "needs --at" },
    { { "--at", "tcp://127.0.0.1:1", "status", "--hold" }, 2, "asks one that serves already" },
    { { "--at", "tcp://127.0.0.1:1" }, 2, "which command?" },
    { { "--at", "tcp://127.0.0.1:1", "fly" }, 2, "which command?" },
    { { "--at", "tcp://127.0.0.1:1", "back" }, 2, "back VERSION" },
    { { "--at", "127.0.0.1:1", "status" }, 1, "write tcp://HOST:PORT" },
};

START_TEST(wrong_command_line_is_refused)
{
    g_auto(Said) said = run(wrong[_i].arguments);

    ck_assert_msg(said.status == wrong[_i].status, "%d: %s", said.status, said.err);
    ck_assert_msg(strstr(said.err, wrong[_i].text) != NULL, "%s", said.err);
}
END_TEST

/* Runs `rubato publish` until it says the text. */
static Serving publish(const char *published, const char *text)
{
    const char *const argv[] = { TEST_BIN_DIR "/rubato", "publish", published, NULL };
    Serving publishing = { 0 };
    int err;

    ck_assert(g_spawn_async_with_pipes(NULL, (char **)(uintptr_t)argv, NULL,
                                       G_SPAWN_DO_NOT_REAP_CHILD, NULL, NULL, &publishing.pid, NULL,
                                       NULL, &err, NULL));
    publishing.err = fdopen(err, "r");
    wait_for_line(&publishing, text);
    return publishing;
}

static int end_of(const Serving *publishing)
{
    int status;

    ck_assert_int_eq(waitpid(publishing->pid, &status, 0), publishing->pid);
    fclose(publishing->err);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* No run publishes it; the case's time limit ends the waits for versions. */
START_TEST(directory_is_published_without_a_run)
{
    g_autofree char *followed = g_strdup_printf("zmq:tcp://127.0.0.1:%u", find_port_pair());
    g_autofree char *published = g_strdup_printf("%s?directory=%s", followed, directory);
    const RubatoFollowerSpec spec = { .uri = followed };
    g_autoptr(RubatoFollower) follower = NULL;
    const RubatoKey key = 3;
    RubatoFollowed how;
    float row[2];

    write_version();
    const Serving publishing = publish(published, "publishes zmq:");
    follower = rubato_follower_new(&spec, NULL);
    while (rubato_follower_version(follower, NULL) < 1)
        ck_assert(rubato_follower_advance(follower, 20, &how, NULL));
    write_version(); /* it looks again */
    while (rubato_follower_version(follower, NULL) < 2)
        ck_assert(rubato_follower_advance(follower, 20, &how, NULL));
    ck_assert(rubato_follower_get(follower, "n", &key, 1, row, NULL, NULL, NULL));
    ck_assert(row[0] == 2 && row[1] == 1);

    const Serving second = publish(published, "cannot publish at");
    ck_assert_int_eq(end_of(&second), 1);
    g_clear_pointer(&follower, rubato_follower_free);
    ck_assert_int_eq(kill(publishing.pid, SIGTERM), 0);
    wait_for_line(&publishing, "ends");
    ck_assert_int_eq(end_of(&publishing), 0);
}
END_TEST

START_TEST(what_cannot_be_published_is_told)
{
    g_autofree char *absent =
        g_strdup_printf("zmq:tcp://127.0.0.1:7080?directory=%s/absent", directory);
    const Serving files = publish(uri, "look into the directory themselves");
    const Serving none = publish(absent, "there is no directory");
    const Serving nowhere = publish("zmq:tcp://127.0.0.1:7080", "expected zmq:");

    ck_assert_int_eq(end_of(&files), 2);
    ck_assert_int_eq(end_of(&none), 1);
    ck_assert_int_eq(end_of(&nowhere), 2);
}
END_TEST

static Suite *follow_suite(void)
{
    Suite *suite = suite_create("rubato follow");
    TCase *cases = tcase_create("cases");

    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, serving_serves_until_a_signal_ends_it);
    tcase_add_test(cases, published_stream_is_served);
    tcase_add_test(cases, killed_server_is_started_again_at_its_address);
    tcase_add_loop_test(cases, wrong_command_line_is_refused, 0, G_N_ELEMENTS(wrong));
    tcase_add_test(cases, directory_is_published_without_a_run);
    tcase_add_test(cases, what_cannot_be_published_is_told);
    suite_add_tcase(suite, cases);
    return suite;
}

int main(void)
{
    return run_suite(follow_suite());
}
