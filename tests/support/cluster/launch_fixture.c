/* See launch_fixture.h. Nothing here waits for a fixed time: it reads until a text or the end
 * comes. */
#include "tests/support/cluster/launch_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

const PassedSignal PASSED_SIGNALS[N_PASSED_SIGNALS] = {
    { SIGINT, "INT" },
    { SIGTERM, "TERM" },
    { SIGHUP, "HUP" },
};

#define CODE_NOT_LAUNCHED 99
#define PATIENT_MS 60000

char *launch_folder;

static void make_folder(void)
{
    launch_folder = g_dir_make_tmp("launcher-XXXXXX", NULL);
    ck_assert_ptr_nonnull(launch_folder);
}

static void remove_folder(void)
{
    g_autoptr(GDir) dir = g_dir_open(launch_folder, 0, NULL);
    const char *name;

    while (dir != NULL && (name = g_dir_read_name(dir)) != NULL) {
        g_autofree char *path = g_build_filename(launch_folder, name, NULL);
        unlink(path);
    }
    rmdir(launch_folder);
    g_free(launch_folder);
}

char *launch_write_file(const char *name, const char *text, mode_t mode)
{
    char *path = g_build_filename(launch_folder, name, NULL);

    ck_assert(g_file_set_contents(path, text, -1, NULL));
    ck_assert_int_eq(chmod(path, mode), 0);
    return path;
}

/* A cluster file with nodes 0, 10, 20 … on this host. */
static char *write_cluster(unsigned n_nodes, const char *host, unsigned timeout_ms)
{
    g_autoptr(GString) text = g_string_new(NULL);

    g_string_append_printf(text,
                           "cluster = { heartbeat_ms = 10; timeout_ms = %u;\n"
                           "scheduler = { host = \"127.0.0.1\"; port = 9; };\n"
                           "nodes = (\n",
                           timeout_ms);
    for (unsigned i = 0; i < n_nodes; i++)
        g_string_append_printf(text, "%s{ id = %u; host = \"%s\"; port = 0; }", i > 0 ? ",\n" : "",
                               10 * i, host);
    g_string_append(text, "); };\n");
    return launch_write_file("run.cfg", text->str, 0600);
}

char *launch_write_cluster(unsigned n_nodes, const char *host)
{
    return write_cluster(n_nodes, host, 100);
}

char *launch_write_patient_cluster(unsigned n_nodes)
{
    return write_cluster(n_nodes, "127.0.0.1", PATIENT_MS);
}

/* ---- a run in a process of its own ---- */

Run run_start(const RubatoLaunch *launch)
{
    int out[2];
    int err[2];
    Run run;

    ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
    ck_assert_int_eq(pipe2(err, O_CLOEXEC), 0);
    run.pid = fork();
    ck_assert_int_ge(run.pid, 0);
    if (run.pid == 0) {
        g_autoptr(GError) error = NULL;
        int code = -1;

        dup2(out[1], STDOUT_FILENO);
        dup2(err[1], STDERR_FILENO);
        close(out[0]);
        close(out[1]);
        close(err[0]);
        close(err[1]);
        if (!rubato_launch_run(launch, &code, &error)) {
            g_printerr("error %d: %s\n", error->code, error->message);
            code = CODE_NOT_LAUNCHED;
        }
        exit(code);
    }
    close(out[1]);
    close(err[1]);
    run.fds[0] = out[0];
    run.fds[1] = err[0];
    run.texts[0] = g_string_new(NULL);
    run.texts[1] = g_string_new(NULL);
    return run;
}

/* Reads more; false at the end of both streams. */
static bool read_more(Run *run)
{
    struct pollfd fds[] = { { run->fds[0], POLLIN, 0 }, { run->fds[1], POLLIN, 0 } };
    char bytes[8192];

    if (run->fds[0] < 0 && run->fds[1] < 0)
        return false;
    ck_assert_int_gt(poll(fds, 2, -1), 0);
    for (int i = 0; i < 2; i++) {
        if (fds[i].revents == 0)
            continue;
        const ssize_t n = read(run->fds[i], bytes, sizeof bytes);
        if (n > 0) {
            g_string_append_len(run->texts[i], bytes, n);
        } else {
            close(run->fds[i]);
            run->fds[i] = -1;
        }
    }
    return true;
}

void run_wait_for(Run *run, int stream, const char *text)
{
    while (strstr(run->texts[stream]->str, text) == NULL)
        ck_assert_msg(read_more(run), "no '%s' in: %s%s", text, run->texts[0]->str,
                      run->texts[1]->str);
}

/* Reads up to the end of both streams; the exit code, or -signal. */
int run_finish(Run *run)
{
    int status;

    while (read_more(run))
        continue;
    ck_assert_int_eq(waitpid(run->pid, &status, 0), run->pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void run_clear(Run *run)
{
    g_string_free(run->texts[0], TRUE);
    g_string_free(run->texts[1], TRUE);
}

void run_check_contains(const Run *run, int stream, const char *text)
{
    ck_assert_msg(strstr(run->texts[stream]->str, text) != NULL, "'%s' is not in: %s", text,
                  run->texts[stream]->str);
}

static int compare_lines(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The lines of a stream in alphabetical order, because the order of nodes' lines may differ. */
char *run_sorted_lines(const Run *run, int stream)
{
    g_auto(GStrv) lines = g_strsplit(run->texts[stream]->str, "\n", -1);
    const size_t n = g_strv_length(lines);

    /* The last one is what follows the last newline. */
    ck_assert_str_eq(lines[n - 1], "");
    qsort(lines, n - 1, sizeof *lines, compare_lines);
    return g_strjoinv("\n", lines);
}

/* The process id that a node has written in a line "NAME=pid". */
pid_t run_pid_of(const Run *run, const char *name)
{
    g_autofree char *label = g_strdup_printf("%s=", name);
    const char *at = strstr(run->texts[0]->str, label);

    ck_assert_msg(at != NULL, "no %s in: %s", name, run->texts[0]->str);
    return atoi(at + strlen(label));
}

bool is_gone(pid_t pid)
{
    return kill(pid, 0) != 0 && errno == ESRCH;
}

RubatoLaunch launch_shell(const char *cluster, const char *script, const char **argv)
{
    argv[0] = "sh";
    argv[1] = "-c";
    argv[2] = script;
    argv[3] = NULL;
    return (RubatoLaunch){ .cluster_file = cluster, .argv = argv };
}

static Run start_shell(unsigned n_nodes, const char *script, unsigned timeout_ms)
{
    g_autofree char *cluster = write_cluster(n_nodes, "127.0.0.1", timeout_ms);
    const char *argv[4];
    const RubatoLaunch launch = launch_shell(cluster, script, argv);

    return run_start(&launch);
}

Run run_start_shell(unsigned n_nodes, const char *script)
{
    return start_shell(n_nodes, script, 100);
}

Run run_start_patient_shell(unsigned n_nodes, const char *script)
{
    return start_shell(n_nodes, script, PATIENT_MS);
}

void run_check_nothing_left(const Run *run)
{
    ck_assert(is_gone(run_pid_of(run, "self")));
    ck_assert(is_gone(run_pid_of(run, "child")));
    ck_assert(is_gone(run_pid_of(run, "session")));
}

TCase *launch_add_case(Suite *suite, const char *name)
{
    TCase *tcase = tcase_create(name);

    tcase_add_checked_fixture(tcase, make_folder, remove_folder);
    tcase_set_timeout(tcase, 30);
    suite_add_tcase(suite, tcase);
    return tcase;
}
