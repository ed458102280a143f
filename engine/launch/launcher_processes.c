/* Starts processes, describes their ends, and sweeps up what they leave behind.
 *
 * A started process has a session of its own: no terminal's signals reach it past the launcher, and
 * one signal reaches all of its group. PR_SET_PDEATHSIG ends it with its parent. A process that
 * leaves its group becomes a child of the nearest subreaper when its parent ends; there
 * processes_sweep finds it among the children.
 *
 * Thread: the one thread of the process. */
#include "engine/launch/launcher_processes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <rubato/error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct {
    int input[2];
    int output[2];
    int errors[2];
    int failure[2]; /* the new process writes here why it could not become the program */
} Pipes;

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void close_pipes(Pipes *pipes)
{
    int *const all[] = { pipes->input, pipes->output, pipes->errors, pipes->failure };

    for (size_t i = 0; i < G_N_ELEMENTS(all); i++) {
        close_fd(&all[i][0]);
        close_fd(&all[i][1]);
    }
}

static bool open_pipes(Pipes *pipes, bool wants_input)
{
    *pipes = (Pipes){ { -1, -1 }, { -1, -1 }, { -1, -1 }, { -1, -1 } };
    if (pipe2(pipes->output, O_CLOEXEC) != 0 || pipe2(pipes->errors, O_CLOEXEC) != 0 ||
        pipe2(pipes->failure, O_CLOEXEC) != 0)
        return false;
    if (wants_input)
        return pipe2(pipes->input, O_CLOEXEC) == 0;
    pipes->input[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return pipes->input[0] >= 0;
}

static void set_default_signals(void)
{
    const struct sigaction normal = { .sa_handler = SIG_DFL };

    /* The signals that the supervisor ignores. The others are as the launcher itself got them. */
    sigaction(SIGPIPE, &normal, NULL);
    sigaction(SIGTTOU, &normal, NULL);
}

/* Runs in the new process. */
G_GNUC_NORETURN static void become(const ProcessSpec *spec, const Pipes *pipes, pid_t parent)
{
    setsid();
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent &&
        dup2(pipes->input[0], STDIN_FILENO) >= 0 && dup2(pipes->output[1], STDOUT_FILENO) >= 0 &&
        dup2(pipes->errors[1], STDERR_FILENO) >= 0) {
        set_default_signals();
        if (spec->inherited_fd != 0)
            fcntl(spec->inherited_fd, F_SETFD, 0); /* not closed */
        if (spec->n_files != NULL)
            setrlimit(RLIMIT_NOFILE, spec->n_files);
        sigprocmask(SIG_SETMASK, spec->mask, NULL);
        execvpe(spec->argv[0], spec->argv, spec->environment);
    }

    const int failure = errno;
    /* Nothing can be done about a failure to tell a failure. */
    if (write(pipes->failure[1], &failure, sizeof failure) < 0)
        _exit(126);
    _exit(127);
}

static bool set_nonblocking(int fd)
{
    const int flags = fcntl(fd, F_GETFL);

    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

bool process_start(Process *process, const ProcessSpec *spec, GError **error)
{
    const pid_t parent = getpid();
    int failure = 0;
    pid_t pid = -1;
    Pipes pipes;

    if (!open_pipes(&pipes, spec->wants_input) || !set_nonblocking(pipes.output[0]) ||
        !set_nonblocking(pipes.errors[0]) || (pid = fork()) < 0) {
        failure = errno;
    } else if (pid == 0) {
        become(spec, &pipes, parent);
    } else {
        /* Ends without data once the program runs; then its session and group exist too. */
        close_fd(&pipes.failure[1]);
        while (read(pipes.failure[0], &failure, sizeof failure) < 0 && errno == EINTR)
            continue;
        if (failure != 0)
            waitpid(pid, NULL, 0);
    }
    if (failure == 0) {
        process->pid = pid;
        process->input = pipes.input[1];
        process->output[0] = pipes.output[0];
        process->output[1] = pipes.errors[0];
        pipes.input[1] = pipes.output[0] = pipes.errors[0] = -1;
    } else {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "cannot start %s: %s", spec->argv[0],
                    g_strerror(failure));
    }
    close_pipes(&pipes);
    return failure == 0;
}

void process_signal(pid_t pid, int signal)
{
    kill(-pid, signal);
}

/* The parent of a process, or -1 if it is gone. */
static pid_t parent_of(const char *pid)
{
    g_autofree char *path = g_strdup_printf("/proc/%s/stat", pid);
    g_autofree char *text = NULL;

    if (!g_file_get_contents(path, &text, NULL, NULL))
        return -1;

    /* pid (name) state ppid …, and a name may hold parentheses. */
    const char *after = strrchr(text, ')');
    int parent;
    char state;
    if (after == NULL || sscanf(after + 1, " %c %d", &state, &parent) != 2)
        return -1;
    return parent;
}

GArray *processes_list_children(void)
{
    GArray *children = g_array_new(FALSE, FALSE, sizeof(pid_t));
    const pid_t self = getpid();
    DIR *processes = opendir("/proc");
    const struct dirent *entry;

    while (processes != NULL && (entry = readdir(processes)) != NULL) {
        if (!g_ascii_isdigit(entry->d_name[0]) || parent_of(entry->d_name) != self)
            continue;
        const pid_t pid = atoi(entry->d_name);
        g_array_append_val(children, pid);
    }
    if (processes != NULL)
        closedir(processes);
    return children;
}

static bool contains(const GArray *pids, pid_t pid)
{
    for (guint i = 0; pids != NULL && i < pids->len; i++)
        if (g_array_index(pids, pid_t, i) == pid)
            return true;
    return false;
}

void processes_sweep(const GArray *spared)
{
    bool found;

    /* Each round ends the present children; their children become ours in the next round. */
    do {
        g_autoptr(GArray) children = processes_list_children();

        found = false;
        for (guint i = 0; i < children->len; i++) {
            const pid_t pid = g_array_index(children, pid_t, i);
            if (contains(spared, pid))
                continue;
            found = true;
            kill(pid, SIGKILL);
            while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
                continue;
        }
    } while (found);
}

char *process_describe_end(const siginfo_t *end)
{
    if (end->si_code == CLD_EXITED)
        return g_strdup_printf("exited with code %d", end->si_status);

    const char *name = sigabbrev_np(end->si_status);
    return g_strdup_printf("was killed by signal %d (%s%s)%s", end->si_status,
                           name != NULL ? "SIG" : "unnamed", name != NULL ? name : "",
                           end->si_code == CLD_DUMPED ? " and left a core" : "");
}

int process_exit_code(const siginfo_t *end)
{
    return end->si_code == CLD_EXITED ? end->si_status : 128 + end->si_status;
}
