/* A node in the supervisor: its process, its output cut into lines, and its state.
 *
 * Threads: the one thread of the supervisor. */
#ifndef RUBATO_ENGINE_LAUNCH_LAUNCHER_CHILD_H
#define RUBATO_ENGINE_LAUNCH_LAUNCHER_CHILD_H

#include "engine/launch/launcher.h"
#include "engine/launch/launcher_output.h"
#include "engine/launch/launcher_processes.h"

#define DEADLINE_MS \
    1000ll /* a millisecond of a deadline, which is in g_get_monotonic_time's unit */

typedef enum { CHILD_RUNNING, CHILD_ENDING, CHILD_DONE } ChildState;

typedef struct {
    const LaunchNode *plan;
    Process process;
    LineStream lines[2]; /* of standard output and standard error */
    ChildState state;
    siginfo_t end;
    gint64 deadline;      /* RUNNING: of a remote kill; ENDING: of its pipes; 0: none */
    bool is_lost;         /* the run goes on without it */
    bool has_served;      /* its end is not that of the program, it says */
    uint32_t n_restarts;  /* how many processes of the node were before this one */
    gint64 lost_deadline; /* by when a lost one that still runs has ended by itself; 0: none */
} Child;

static inline gint64 deadline_in_ms(uint32_t ms)
{
    return g_get_monotonic_time() + ms * DEADLINE_MS;
}

/* Starts the process of the spec for plan's node; prefixes go before the lines of each stream.
 * RUBATO_ERROR_IO. */
bool child_start(Child *child, const LaunchNode *plan, const ProcessSpec *spec,
                 const char *const prefixes[2], bool *const bars[2], GError **error);

/* Once it is DONE. */
void child_clear(Child *child);

/* Hands a node on another machine the run's secret, before any signal. */
void child_send_secret(Child *child, const RunSecret *secret);

/* Sends it a signal: to its group here, or by name to the machine where it runs. */
void child_signal(Child *child, int signal);
void child_close_input(Child *child);

/* Reads what there is in one of its streams, whole lines to `out`; closes at the stream's end. */
void child_pump(Child *child, int stream, GString *out);

/* Whether both of its streams have come to their end. */
bool child_is_drained(const Child *child);

/* Ends the rest of its group, reads the rest of its output, and sets it DONE. */
void child_finish(Child *child, GString *const out[2]);

#endif
