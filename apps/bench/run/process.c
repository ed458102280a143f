/* This program once more, as the other end of a case. */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "apps/bench/run/process.h"

bool process_start(const ProcessStart *start, GPid *process, GError **error)
{
    g_autofree char *self = g_file_read_link("/proc/self/exe", error);
    const char *argv[PROCESS_MAX_ARGUMENTS + 2] = { self };

    if (self == NULL)
        return false;
    for (size_t i = 0; i < PROCESS_MAX_ARGUMENTS; i++)
        argv[i + 1] = start->arguments[i];
    return g_spawn_async_with_pipes_and_fds(
        NULL, argv, NULL, G_SPAWN_DO_NOT_REAP_CHILD, NULL, NULL, /* stdin_fd= */ -1,
        /* stdout_fd= */ -1, /* stderr_fd= */ -1, &start->shared_fd, &start->as_fd,
        start->as_fd != 0 ? 1 : 0, process, NULL, start->output, NULL, error);
}

void process_wait(GPid process)
{
    waitpid(process, NULL, 0);
}

void process_end_with_parent(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}
