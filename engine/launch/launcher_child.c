/* A node in the supervisor: how it is signalled and finished. launcher_supervisor.c decides when.
 *
 * A child's states: RUNNING. ENDING, when its process has ended: the rest in its pipes is read, and
 * other processes that write there have a moment to end. DONE. Its process stays a zombie until
 * DONE, so that no other process can get the number of its group.
 *
 * Thread: the one thread of the supervisor. Nothing here blocks: input and output are pipes that do
 * not, and child_finish waits only for a process that has ended. */
#include "engine/launch/launcher_child.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define REMOTE_KILL_MS 2000u /* for ssh to bring the news of a remote kill */

bool child_start(Child *child, const LaunchNode *plan, const ProcessSpec *spec,
                 const char *const prefixes[2], bool *const bars[2], GError **error)
{
    child->plan = plan;
    if (!process_start(&child->process, spec, error))
        return false;
    if (child->process.input >= 0)
        fcntl(child->process.input, F_SETFL, O_NONBLOCK);
    for (int stream = 0; stream < 2; stream++)
        line_stream_init(&child->lines[stream], prefixes[stream], bars[stream]);
    child->state = CHILD_RUNNING;
    return true;
}

void child_clear(Child *child)
{
    for (int stream = 0; stream < 2; stream++)
        line_stream_clear(&child->lines[stream]);
}

void child_close_input(Child *child)
{
    if (child->process.input >= 0)
        close(child->process.input);
    child->process.input = -1;
}

void child_send_secret(Child *child, const RunSecret *secret)
{
    char line[RUN_SECRET_DIGITS + 1];

    run_secret_format(secret, line);
    line[RUN_SECRET_DIGITS] = '\n';
    /* A new pipe takes it at once. If ssh has ended already, its exit status shows that. */
    if (write(child->process.input, line, sizeof line) != (ssize_t)sizeof line)
        child_close_input(child);
    run_secret_wipe(line, sizeof line);
}

/* A remote node gets the signal's name over ssh. ssh itself gets no signal, so that it can report
 * how the node ended. */
void child_signal(Child *child, int signal)
{
    if (child->process.input < 0) {
        process_signal(child->process.pid, signal);
        return;
    }

    g_autofree char *line = g_strdup_printf("%s\n", sigabbrev_np(signal));
    const ssize_t written = write(child->process.input, line, strlen(line));
    if (written < 0 || signal == SIGKILL) {
        /* The end of its input ends it on the other side in any case. */
        child_close_input(child);
        child->deadline = deadline_in_ms(REMOTE_KILL_MS);
    }
}

void child_pump(Child *child, int stream, GString *out)
{
    int *fd = &child->process.output[stream];
    char bytes[16384];

    /* A bound, so that one node that never stops writing does not keep the others waiting. */
    for (int rounds = 0; *fd >= 0 && rounds < 16; rounds++) {
        const ssize_t n = read(*fd, bytes, sizeof bytes);
        if (n > 0) {
            line_stream_feed(&child->lines[stream], bytes, (size_t)n, out);
        } else if (n == 0 || (errno != EINTR && errno != EAGAIN)) {
            close(*fd);
            *fd = -1;
            line_stream_finish(&child->lines[stream], out);
        } else if (errno == EAGAIN) {
            return;
        }
    }
}

bool child_is_drained(const Child *child)
{
    return child->process.output[0] < 0 && child->process.output[1] < 0;
}

void child_finish(Child *child, GString *const out[2])
{
    /* Kills the rest of its group, then reads the rest of its pipes. */
    process_signal(child->process.pid, SIGKILL);
    waitpid(child->process.pid, NULL, 0);
    for (int stream = 0; stream < 2; stream++) {
        child_pump(child, stream, out[stream]);
        if (child->process.output[stream] >= 0)
            close(child->process.output[stream]);
        child->process.output[stream] = -1;
        line_stream_finish(&child->lines[stream], out[stream]);
    }
    child->state = CHILD_DONE;
    child->deadline = 0;
}
