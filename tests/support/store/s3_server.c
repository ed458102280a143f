/* The server runs as a process of its own, and ends when the pipe to it is closed: with this
 * process at the latest. */
#include "tests/support/store/s3_server.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test_paths.h"
#include "tests/support/store/small_snapshot.h"

static struct {
    char *folder;
    GPid pid;
    int to, from;
    uint64_t n_plans;
} server;

/* Its first line is its port. */
static bool read_port(char *text, size_t n_most)
{
    for (size_t n = 0; n + 1 < n_most; n++) {
        if (read(server.from, text + n, 1) != 1)
            return false;
        if (text[n] == '\n') {
            text[n] = '\0';
            return true;
        }
    }
    return false;
}

static bool begin(const char *modules)
{
    const char *const script = TEST_SOURCE_DIR "/tests/support/store/s3/server.js";
    const char *const arguments[] = { "node", script, modules, server.folder, NULL };
    g_autoptr(GError) error = NULL;
    char port[16];

    if (!g_spawn_async_with_pipes(NULL, (char **)(uintptr_t)arguments, NULL,
                                  G_SPAWN_SEARCH_PATH | G_SPAWN_DO_NOT_REAP_CHILD, NULL, NULL,
                                  &server.pid, &server.to, &server.from, NULL, &error)) {
        printf("skipped: %s\n", error->message);
        return false;
    }
    if (!read_port(port, sizeof port)) {
        printf("skipped: the server of S3 says no port\n");
        return false;
    }
    g_autofree char *endpoint = g_strdup_printf("http://127.0.0.1:%s", port);
    g_setenv("AWS_ENDPOINT_URL", endpoint, TRUE);
    g_setenv("AWS_ACCESS_KEY_ID", "S3RVER", TRUE);
    g_setenv("AWS_SECRET_ACCESS_KEY", "S3RVER", TRUE);
    g_setenv("AWS_REGION", "eu-north-1", TRUE);
    g_setenv("no_proxy", "127.0.0.1", TRUE);
    g_unsetenv("AWS_SESSION_TOKEN");
    g_unsetenv("AWS_ENDPOINT_URL_S3");
    return true;
}

bool s3_server_start(void)
{
    const char *const modules = TEST_S3RVER_DIR "/node_modules";

    if (!g_file_test(TEST_S3RVER_DIR "/.version", G_FILE_TEST_EXISTS)) {
        printf("skipped: there is no s3rver in %s; tests/support/store/s3/fetch fetches it\n",
               TEST_S3RVER_DIR);
        return false;
    }
    server.folder = g_dir_make_tmp("rubato-s3-XXXXXX", NULL);
    return server.folder != NULL && begin(modules);
}

void s3_server_stop(void)
{
    if (server.pid != 0) {
        close(server.to);
        waitpid(server.pid, NULL, 0); /* it ends when its input does */
    }
    if (server.folder != NULL)
        remove_tree(server.folder);
    g_clear_pointer(&server.folder, g_free);
}

void s3_server_fail(const char *kind, unsigned after, unsigned times)
{
    g_autofree char *path = g_build_filename(server.folder, "faults", NULL);
    /* Each text is another one, so the server begins to count. */
    g_autofree char *text = g_strdup_printf("%s %u %u\n%" G_GUINT64_FORMAT "-%d\n", kind, after,
                                            times, ++server.n_plans, (int)getpid());

    ck_assert(g_file_set_contents(path, text, -1, NULL));
}

void s3_server_be_good(void)
{
    s3_server_fail("none", 0, 0);
}

unsigned s3_server_count(const char *text, const char *other)
{
    g_autofree char *path = g_build_filename(server.folder, "log", NULL);
    g_autofree char *log = NULL;
    g_auto(GStrv) lines = NULL;
    unsigned n = 0;

    if (!g_file_get_contents(path, &log, NULL, NULL))
        return 0;
    lines = g_strsplit(log, "\n", -1);
    for (char **line = lines; *line != NULL; line++)
        n += strstr(*line, text) != NULL && strstr(*line, other) != NULL;
    return n;
}

char *s3_server_object(const char *key)
{
    return g_strdup_printf("%s/data/snapshots/%s._S3rver_object", server.folder, key);
}
