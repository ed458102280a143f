/* Processes of the launcher: how one is started, how it ended, and the end of what it left behind.
 *
 * Threads: the one thread of the process. */
#ifndef RUBATO_ENGINE_LAUNCH_LAUNCHER_PROCESSES_H
#define RUBATO_ENGINE_LAUNCH_LAUNCHER_PROCESSES_H

#include <glib.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

typedef struct {
    char *const *argv;
    char *const *environment;
    const sigset_t *mask;         /* of signals, for the new process */
    const struct rlimit *n_files; /* its limit of open files; NULL: as it is */
    int inherited_fd;             /* one besides the standard streams; 0: none */
    bool wants_input;             /* a pipe as standard input; else it reads nothing */
} ProcessSpec;

typedef struct {
    pid_t pid;     /* of a session, and so of a process group, of its own */
    int input;     /* the pipe's end, or -1 */
    int output[2]; /* ends of pipes, not blocking, for standard output and standard error */
} Process;

/* Starts a process that dies when this one does. False with RUBATO_ERROR_IO. */
bool process_start(Process *process, const ProcessSpec *spec, GError **error);

/* Sends a signal to the process and all of its group. */
void process_signal(pid_t pid, int signal);

/* The present children of this process. (transfer full) array of pid_t */
GArray *processes_list_children(void);

/* Kills every child of this process, and the children that it inherits by that, except those in
 * `spared` (may be NULL). Returns when they are gone. */
void processes_sweep(const GArray *spared);

/* "exited with code 3", "was killed by signal 9 (SIGKILL)". (transfer full) */
char *process_describe_end(const siginfo_t *end);

/* The exit code as a shell gives it: the code, or 128 + the signal. */
int process_exit_code(const siginfo_t *end);

#endif
