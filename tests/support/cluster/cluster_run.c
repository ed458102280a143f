/* See cluster_run.h. Nothing here waits for a fixed time: it reads until a text or an end comes.
 * The clock only decides when to give up. */
#include "tests/support/cluster/cluster_run.h"

#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/engine_private.h"
#include "tests/support/engine/engine_fixture.h"

/* Names the nodes' transport; unset: the default of a cluster file. */
#define TRANSPORT_VARIABLE "RUBATO_TEST_TRANSPORT"

/* For what hangs, on a machine that does much else. */
#define PATIENCE_MS 150000
#define CASE_SECONDS 45 /* times CK_TIMEOUT_MULTIPLIER */
#define MOST_SHOWN 3000 /* bytes of a process's output in a failure */

const uint32_t CLUSTER_IDS[CLUSTER_MOST_NODES] = { 3, 7, 20, 41 };

/* A sanitizer makes everything slower. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SLOWNESS 3
#elif __has_feature(address_sanitizer)
#define SLOWNESS 2
#endif
#endif
#if !defined(SLOWNESS) && defined(__SANITIZE_THREAD__)
#define SLOWNESS 3
#elif !defined(SLOWNESS) && defined(__SANITIZE_ADDRESS__)
#define SLOWNESS 2
#endif
#ifndef SLOWNESS
#define SLOWNESS 1
#endif

uint32_t cluster_slowness(void)
{
    return SLOWNESS;
}

uint32_t cluster_short_timeout_ms(void)
{
    return 3000;
}

int64_t cluster_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

TCase *cluster_add_case(Suite *suite, const char *name)
{
    TCase *tcase = tcase_create(name);

    tcase_set_timeout(tcase, CASE_SECONDS * SLOWNESS);
    suite_add_tcase(suite, tcase);
    return tcase;
}

/* The end of a text, from the beginning of a line on. */
static const char *last_part(const GString *text)
{
    const char *at = text->str + (text->len > MOST_SHOWN ? text->len - MOST_SHOWN : 0);

    while (at > text->str && at[-1] != '\n')
        at--;
    return at;
}

void cluster_fail(ClusterRun *run, const char *format, ...)
{
    g_autofree char *text = NULL;
    va_list arguments;

    va_start(arguments, format);
    text = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    for (uint32_t i = 0; i < run->n_processes; i++) {
        const ClusterProcess *process = &run->processes[i];

        if (process->text != NULL)
            fprintf(stderr, "---- process %u (pid %d, %s %d) wrote:\n%s\n", i, (int)process->pid,
                    process->ended ? "ended with" : "running,", process->status,
                    last_part(process->text));
    }
    fflush(stderr);
    ck_abort_msg("%s", text);
    abort(); /* ck_abort_msg does not return */
}

/* ---- the file and the port ---- */

/* Reserves a port: a socket is bound to it but does not listen, so only a process that names the
 * port can use it. */
static void reserve_port(ClusterRun *run)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t size = sizeof address;
    const int one = 1;

    run->port_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(run->port_fd, 0);
    ck_assert_int_eq(setsockopt(run->port_fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), 0);
    ck_assert_int_eq(bind(run->port_fd, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(getsockname(run->port_fd, (struct sockaddr *)&address, &size), 0);
    run->port = ntohs(address.sin_port);
}

const char *cluster_add_file(ClusterRun *run, const char *text)
{
    const int fd = memfd_create("cluster", MFD_CLOEXEC);
    const size_t length = strlen(text);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, length), (ssize_t)length);
    g_array_append_val(run->files, fd);
    g_ptr_array_add(run->paths, g_strdup_printf("/proc/%d/fd/%d", (int)getpid(), fd));
    return run->paths->pdata[run->paths->len - 1];
}

char *cluster_file_text(const ClusterRun *run)
{
    const ClusterShape *shape = &run->shape;
    const char *const over = shape->over != NULL ? shape->over : g_getenv(TRANSPORT_VARIABLE);
    GString *text = g_string_new("cluster: { name = \"test\";\n");

    g_string_append_printf(text,
                           "scheduler = { host = \"127.0.0.1\"; port = %u; node = %u; };\n"
                           "heartbeat_ms = %u; timeout_ms = %u; stall_ms = %u;\n"
                           "rendezvous_ms = %u;\nnodes = (\n",
                           run->port, CLUSTER_IDS[shape->scheduler], shape->heartbeat_ms,
                           shape->timeout_ms, shape->stall_ms, shape->rendezvous_ms);
    for (uint32_t i = 0; i < shape->n_nodes; i++)
        g_string_append_printf(
            text, "%s{ id = %u; host = \"127.0.0.1\"; port = 0; servers = %u; workers = %u; %s}",
            i == 0 ? "" : ",\n", CLUSTER_IDS[i], shape->nodes[i].servers, shape->nodes[i].workers,
            (shape->spares & 1u << i) != 0 ? "spare = true; " : "");
    g_string_append(text, ");\n");
    if (over != NULL)
        g_string_append_printf(text, "transport = \"%s\";\n", over);
    if (shape->service_mib > 0)
        g_string_append_printf(text, "service_mib = %u;\n", shape->service_mib);
    if (shape->lines != NULL)
        g_string_append(text, shape->lines);
    if (shape->encrypts)
        g_string_append(text, "encrypt = true;\n");
    g_string_append(text, "};\n");
    return g_string_free(text, FALSE);
}

ClusterRun *cluster_run_new(const ClusterShape *shape)
{
    ClusterRun *run = g_new0(ClusterRun, 1);
    g_autofree char *text = NULL;

    ck_assert_uint_le(shape->n_nodes, CLUSTER_MOST_NODES);
    run->shape = *shape;
    if (run->shape.heartbeat_ms == 0)
        run->shape.heartbeat_ms = 200;
    if (run->shape.timeout_ms == 0)
        run->shape.timeout_ms = 60000;
    if (run->shape.stall_ms == 0)
        run->shape.stall_ms = 10000;
    if (run->shape.rendezvous_ms == 0)
        run->shape.rendezvous_ms = 60000;
    run->n_processes = shape->n_nodes;
    for (uint32_t i = 0; i < CLUSTER_MOST_PROCESSES; i++)
        run->processes[i].fd = -1;
    run->files = g_array_new(FALSE, FALSE, sizeof(int));
    run->paths = g_ptr_array_new_with_free_func(g_free);
    reserve_port(run);
    text = cluster_file_text(run);
    run->path = cluster_add_file(run, text);
    return run;
}

void cluster_run_free(ClusterRun *run)
{
    for (uint32_t i = 0; i < run->n_processes; i++) {
        ClusterProcess *process = &run->processes[i];

        if (process->pid > 0 && !process->ended) {
            kill(process->pid, SIGKILL);
            waitpid(process->pid, NULL, 0);
        }
        if (process->fd >= 0)
            close(process->fd);
        if (process->text != NULL)
            g_string_free(process->text, TRUE);
    }
    for (guint i = 0; i < run->files->len; i++)
        close(g_array_index(run->files, int, i));
    g_array_unref(run->files);
    g_ptr_array_unref(run->paths);
    close(run->port_fd);
    g_free(run);
}

/* ---- processes ---- */

/* Forks. True in the child, whose output goes to the case, and which dies with the case. */
static bool split_off(ClusterProcess *process)
{
    const pid_t parent = getpid();
    int fds[2];

    ck_assert_int_eq(pipe(fds), 0);
    fflush(NULL);
    process->pid = fork();
    ck_assert_int_ge(process->pid, 0);
    if (process->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGINT, SIG_DFL); /* check has handlers of its own */
        signal(SIGTERM, SIG_DFL);
        if (getppid() != parent)
            _exit(1);
        dup2(fds[1], STDOUT_FILENO);
        dup2(fds[1], STDERR_FILENO);
        close(fds[0]);
        close(fds[1]);
        return true;
    }
    close(fds[1]);
    process->fd = fds[0];
    process->text = g_string_new(NULL);
    process->ended = false;
    return false;
}

/* Like GLib's own writer, but without the local time. The thread sanitizer sees a race in the C
 * library's, and the node stands still for seconds while the sanitizer finds out that it is to
 * ignore this race: so long that the node is lost. */
static GLogWriterOutput write_log(GLogLevelFlags level, const GLogField *fields, gsize n_fields,
                                  gpointer user_data)
{
    const char *domain = "", *text = "", *kind = "Message";

    (void)user_data;
    if ((level & (G_LOG_LEVEL_INFO | G_LOG_LEVEL_DEBUG)) != 0)
        return G_LOG_WRITER_HANDLED;
    for (gsize i = 0; i < n_fields; i++) {
        if (strcmp(fields[i].key, "MESSAGE") == 0)
            text = fields[i].value;
        else if (strcmp(fields[i].key, "GLIB_DOMAIN") == 0)
            domain = fields[i].value;
    }
    if ((level & G_LOG_LEVEL_ERROR) != 0)
        kind = "ERROR **";
    else if ((level & G_LOG_LEVEL_CRITICAL) != 0)
        kind = "CRITICAL **";
    else if ((level & G_LOG_LEVEL_WARNING) != 0)
        kind = "WARNING **";
    cluster_say("%s-%s: %.3f: %s", domain, kind, (double)cluster_now_ms() / 1000, text);
    return G_LOG_WRITER_HANDLED;
}

static void say_error(const GError *error)
{
    if (error == NULL)
        cluster_say("error: none was set");
    else
        cluster_say("error %d: %s", error->code, error->message);
}

G_NORETURN static void be_node(const RubatoEngineConfig *config, const ClusterShape *shape,
                               ClusterPlay play, const void *data)
{
    GError *error = NULL;

    log_set_writer(write_log);
    const EngineParts parts = { .faults = shape->faults,
                                .sizes = shape->sizes != NULL ? shape->sizes : test_sizes() };
    RubatoEngine *engine = engine_new_of(config, &parts, &error);
    int status = EXIT_SUCCESS;

    if (engine == NULL) {
        say_error(error);
        g_clear_error(&error);
        exit(CLUSTER_NOT_STARTED);
    }
    if (!play(engine, data, &error)) {
        say_error(error);
        g_clear_error(&error);
        status = CLUSTER_FAILED;
    }
    rubato_engine_free(engine);
    exit(status);
}

static void start_engine(ClusterRun *run, ClusterProcess *process, uint32_t id, const char *path,
                         ClusterPlay play, const void *data)
{
    const RubatoEngineConfig config = { .cluster_file = path,
                                        .node = id,
                                        .handle_signals = run->shape.handle_signals,
                                        .catches_up = run->shape.catches_up };

    if (!split_off(process))
        return;
    if (run->shape.encrypts)
        g_setenv("RUBATO_SECRET", CLUSTER_SECRET, TRUE);
    be_node(&config, &run->shape, play, data);
}

void cluster_start_node_with(ClusterRun *run, uint32_t number, const char *path, ClusterPlay play,
                             const void *data)
{
    ck_assert_uint_lt(number, run->shape.n_nodes);
    ck_assert_int_eq(run->processes[number].pid, 0);
    start_engine(run, &run->processes[number], CLUSTER_IDS[number], path, play, data);
}

void cluster_start_node(ClusterRun *run, uint32_t number, ClusterPlay play, const void *data)
{
    cluster_start_node_with(run, number, run->path, play, data);
}

void cluster_start(ClusterRun *run, ClusterPlay play, const void *data)
{
    for (uint32_t i = 0; i < run->shape.n_nodes; i++)
        if ((run->shape.spares & 1u << i) == 0)
            cluster_start_node(run, i, play, data);
}

static ClusterProcess *new_process(ClusterRun *run)
{
    ck_assert_uint_lt(run->n_processes, CLUSTER_MOST_PROCESSES);
    return &run->processes[run->n_processes++];
}

uint32_t cluster_start_process(ClusterRun *run, int (*function)(const void *data), const void *data)
{
    if (split_off(new_process(run)))
        exit(function(data));
    return run->n_processes - 1;
}

uint32_t cluster_start_other(ClusterRun *run, uint32_t id, const char *path, ClusterPlay play,
                             const void *data)
{
    start_engine(run, new_process(run), id, path, play, data);
    return run->n_processes - 1;
}

uint32_t cluster_start_joining(ClusterRun *run, uint32_t number, ClusterPlay play, const void *data)
{
    g_setenv("RUBATO_JOIN", "1", TRUE);
    const uint32_t process = cluster_start_other(run, CLUSTER_IDS[number], run->path, play, data);
    g_unsetenv("RUBATO_JOIN");
    return process;
}

void cluster_signal(ClusterRun *run, uint32_t process, int number)
{
    ck_assert_int_gt(run->processes[process].pid, 0);
    ck_assert_int_eq(kill(run->processes[process].pid, number), 0);
}

/* ---- watching them ---- */

static void read_output(ClusterProcess *process)
{
    char bytes[16384];
    const ssize_t n = read(process->fd, bytes, sizeof bytes);
    int status = 0;

    if (n > 0) {
        g_string_append_len(process->text, bytes, n);
        return;
    }
    close(process->fd);
    process->fd = -1;
    waitpid(process->pid, &status, 0);
    process->ended = true;
    process->status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* Reads what any process has written. False if nothing came before the deadline. */
static bool read_more(ClusterRun *run, int64_t deadline_ms)
{
    struct pollfd fds[CLUSTER_MOST_PROCESSES];
    const int64_t left_ms = deadline_ms - cluster_now_ms();

    for (uint32_t i = 0; i < run->n_processes; i++)
        fds[i] = (struct pollfd){ .fd = run->processes[i].fd, .events = POLLIN };
    if (left_ms <= 0 || poll(fds, run->n_processes, (int)left_ms) <= 0)
        return cluster_now_ms() < deadline_ms;
    for (uint32_t i = 0; i < run->n_processes; i++)
        if (fds[i].fd >= 0 && fds[i].revents != 0)
            read_output(&run->processes[i]);
    return true;
}

static int64_t patience_ends(void)
{
    return cluster_now_ms() + PATIENCE_MS * SLOWNESS;
}

void cluster_wait_for(ClusterRun *run, uint32_t process, const char *text)
{
    const int64_t deadline_ms = patience_ends();
    const ClusterProcess *watched = &run->processes[process];

    while (strstr(watched->text->str, text) == NULL) {
        if (watched->ended)
            cluster_fail(run, "process %u ended with %d and never wrote '%s'", process,
                         watched->status, text);
        if (!read_more(run, deadline_ms))
            cluster_fail(run, "process %u did not write '%s' in time", process, text);
    }
}

int cluster_wait_end(ClusterRun *run, uint32_t process)
{
    const int64_t deadline_ms = patience_ends();
    const ClusterProcess *watched = &run->processes[process];

    while (!watched->ended)
        if (!read_more(run, deadline_ms))
            cluster_fail(run, "process %u did not end in time", process);
    return watched->status;
}

void cluster_expect_end(ClusterRun *run, uint32_t process, int status)
{
    const int found = cluster_wait_end(run, process);

    if (found != status)
        cluster_fail(run, "process %u ended with %d instead of %d", process, found, status);
}

void cluster_expect_success(ClusterRun *run)
{
    for (uint32_t i = 0; i < run->shape.n_nodes; i++)
        if ((run->shape.spares & 1u << i) == 0)
            cluster_expect_end(run, i, EXIT_SUCCESS);
}

void cluster_expect_text(ClusterRun *run, uint32_t process, const char *text)
{
    if (!run->processes[process].ended)
        cluster_fail(run, "process %u may still write '%s': wait for it", process, text);
    if (strstr(run->processes[process].text->str, text) == NULL)
        cluster_fail(run, "process %u has not written '%s'", process, text);
}

void cluster_expect_no_text(ClusterRun *run, uint32_t process, const char *text)
{
    if (!run->processes[process].ended)
        cluster_fail(run, "process %u may still write '%s'", process, text);
    if (strstr(run->processes[process].text->str, text) != NULL)
        cluster_fail(run, "process %u has written '%s'", process, text);
}

char *cluster_text_after(ClusterRun *run, uint32_t process, const char *text)
{
    const char *at = strstr(run->processes[process].text->str, text);

    if (at == NULL)
        cluster_fail(run, "process %u has not written '%s'", process, text);
    at += strlen(text);
    return g_strndup(at, strcspn(at, "\n"));
}

char *cluster_play_alone(uint32_t servers, uint32_t workers, ClusterPlay play, const void *data)
{
    char *text;
    ClusterRun *run = cluster_run_new(&(ClusterShape){ .n_nodes = 1, .nodes = { { 1, 1 } } });
    const RubatoEngineConfig config = { .servers = servers, .workers = workers };

    if (split_off(&run->processes[0]))
        be_node(&config, &(ClusterShape){ .n_nodes = 1 }, play, data);
    cluster_expect_success(run);
    text = g_strdup(run->processes[0].text->str);
    cluster_run_free(run);
    return text;
}

/* ---- inside a node ---- */

void cluster_say(const char *format, ...)
{
    g_autofree char *text = NULL;
    g_autofree char *line = NULL;
    va_list arguments;

    va_start(arguments, format);
    text = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    line = g_strconcat(text, "\n", NULL);
    if (write(STDOUT_FILENO, line, strlen(line)) < 0)
        _exit(1); /* the case is gone */
}

bool cluster_expect_error(GError **found, RubatoError code, const char *text, GError **error)
{
    EXPECT(*found != NULL, "no error, instead of '%s'", text);
    EXPECT(g_error_matches(*found, RUBATO_ERROR, (int)code), "code %d instead of %d: %s",
           (*found)->code, (int)code, (*found)->message);
    EXPECT(strstr((*found)->message, text) != NULL, "'%s' is not in '%s'", text, (*found)->message);
    g_clear_error(found);
    return true;
}

bool cluster_run_task(RubatoEngine *engine, const char *name, RubatoTaskFunc function,
                      const void *data, const char *const *tables, GError **error)
{
    const RubatoTask task = {
        .name = name, .run = function, .user_data = (void *)(uintptr_t)data, .tables = tables
    };

    return rubato_engine_run(engine, &task, error);
}
