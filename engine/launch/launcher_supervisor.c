/* The supervisor: carries out a plan. It starts the nodes, prints their output line by line, passes
 * signals on, ends all nodes when one fails and the others do not go on without it, starts lost
 * ones again if it is asked to, and leaves nothing running.
 *
 * It is a process of its own below the one that was called (launcher.c), and a single thread in one
 * loop around poll. The two watch each other. If the supervisor is killed, the nodes die with it
 * (PR_SET_PDEATHSIG), and processes that they had started become children of the caller, which
 * kills them. If the caller is killed, the lifeline pipe closes, and the supervisor kills
 * everything.
 *
 * launcher_child.c has the states of a node and what is done to it, launcher_result.c which ends
 * are failures, launcher_writer.c the output that waits for a reader; this file has the phases of
 * the run and the loop. */
#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/join/journal_file.h"
#include "engine/launch/launcher_child.h"
#include "engine/launch/launcher_news.h"
#include "engine/launch/launcher_result.h"
#include "engine/launch/launcher_writer.h"

#define GRACE_EXTRA_MS 1000u  /* beyond two timeouts, for the others to end by themselves */
#define TERM_TO_KILL_MS 2000u /* from SIGTERM to SIGKILL */
#define LEFT_PIPES_MS 1000u   /* for what still writes to an ended node's pipes */
#define STUCK_OUTPUT_MS 1000u /* for output that nobody reads, once everything is killed */

#define CODE_NOT_STARTED 126
#define CODE_OUTPUT_CLOSED (128 + SIGPIPE)

typedef enum {
    PHASE_STEADY,      /* nobody has failed */
    PHASE_GRACE,       /* one has: the others may end by themselves */
    PHASE_TERMINATING, /* they got SIGTERM */
    PHASE_KILLING,     /* they got SIGKILL */
} Phase;

typedef struct {
    const LaunchPlan *plan;
    Child *children;
    uint32_t n_children;
    int signals; /* a signalfd */
    int lifeline;
    sigset_t mask; /* for the nodes */
    struct rlimit n_files;

    Phase phase;
    gint64 deadline;    /* of the phase; 0: none */
    Child *failed;      /* the first */
    GArray *news;       /* of LauncherNews: what nodes have told since the last time */
    GArray *known;      /* of LauncherNews: all losses that were told before */
    bool run_has_ended; /* nodes that live need none that does not */
    int asked;          /* the first signal that came for the run, or 0 */
    int forced;         /* the exit code where it is not a node's, or 0 */
    LauncherWriter out;
} Supervisor;

static bool is_due(gint64 deadline)
{
    return deadline != 0 && g_get_monotonic_time() >= deadline;
}

G_GNUC_PRINTF(2, 3) static void tell(Supervisor *supervisor, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    launcher_writer_tell(&supervisor->out, format, arguments);
    va_end(arguments);
}

static char *list_running(const Supervisor *supervisor)
{
    GString *list = g_string_new(NULL);

    for (uint32_t i = 0; i < supervisor->n_children; i++)
        if (supervisor->children[i].state == CHILD_RUNNING)
            g_string_append_printf(list, "%s%u", list->len > 0 ? ", " : "",
                                   supervisor->plan->nodes[i].node->id);
    return g_string_free(list, FALSE);
}

static bool any_in_state(const Supervisor *supervisor, ChildState state)
{
    for (uint32_t i = 0; i < supervisor->n_children; i++)
        if (supervisor->children[i].state == state)
            return true;
    return false;
}

/* ---- signals to nodes ---- */

static void signal_all(Supervisor *supervisor, int signal)
{
    for (uint32_t i = 0; i < supervisor->n_children; i++)
        if (supervisor->children[i].state == CHILD_RUNNING)
            child_signal(&supervisor->children[i], signal);
}

static uint32_t grace_ms(const Supervisor *supervisor)
{
    return 2 * supervisor->plan->cluster->timeout_ms + GRACE_EXTRA_MS;
}

static void enter_phase(Supervisor *supervisor, Phase phase)
{
    g_autofree char *running = list_running(supervisor);

    supervisor->phase = phase;
    supervisor->deadline = 0;
    if (phase == PHASE_GRACE) {
        supervisor->deadline = deadline_in_ms(grace_ms(supervisor));
    } else if (phase == PHASE_TERMINATING) {
        tell(supervisor, "still running: %s; sending SIGTERM", running);
        supervisor->deadline = deadline_in_ms(TERM_TO_KILL_MS);
        signal_all(supervisor, SIGTERM);
    } else {
        signal_all(supervisor, SIGKILL);
    }
}

/* ---- ends of nodes ---- */

static bool has_failed(const Supervisor *supervisor, const Child *child)
{
    return launcher_result_has_failed(supervisor->plan, child);
}

/* A run that goes on without lost nodes has ended, and the node is killed: the others have all that
 * came of its calls. A node that exits otherwise says itself that it has failed; but a scheduler's
 * next process only that it has found nothing to go on with. */
static bool is_lost_at_end(const Supervisor *supervisor, const Child *child)
{
    return supervisor->run_has_ended && supervisor->phase <= PHASE_GRACE &&
           supervisor->asked == 0 && (child->end.si_code != CLD_EXITED || child->n_restarts > 0) &&
           has_failed(supervisor, child);
}

/* Whether nodes may be started again. Another node's end may be no failure, which only a scheduler
 * can say: so its next process is started also while the others are expected to end. */
static bool may_start_again(const Supervisor *supervisor, const Child *child)
{
    return supervisor->asked == 0 && !supervisor->run_has_ended &&
           child->n_restarts < supervisor->plan->restarts &&
           (supervisor->phase == PHASE_STEADY ||
            (supervisor->phase == PHASE_GRACE && child->plan->node == supervisor->plan->resumes));
}

/* Whether the others wait for another process of the node, which goes on as the scheduler. One that
 * ends by itself has come to the end of the run, or has failed. */
static bool is_to_resume(const Supervisor *supervisor, const Child *child)
{
    const bool was_killed = child->end.si_code == CLD_KILLED || child->end.si_code == CLD_DUMPED;

    return child->plan->node == supervisor->plan->resumes && was_killed &&
           may_start_again(supervisor, child);
}

static void tell_end_again(Supervisor *supervisor, const Child *child)
{
    if (child->n_restarts == 0 || child->is_lost || process_exit_code(&child->end) == 0)
        return;
    g_autofree char *how = process_describe_end(&child->end);
    tell(supervisor, "node %u, %swhich was started again, %s", child->plan->node->id,
         child->plan->node == supervisor->plan->resumes ? "where the scheduler runs and " : "",
         how);
}

/* The end of a lost node is no failure. */
static void forgive(Supervisor *supervisor, Child *child)
{
    child->is_lost = true;
    if (supervisor->failed != child)
        return;
    supervisor->failed = NULL;
    for (uint32_t i = 0; i < supervisor->n_children && supervisor->failed == NULL; i++)
        if (has_failed(supervisor, &supervisor->children[i]))
            supervisor->failed = &supervisor->children[i];
    if (supervisor->failed == NULL && supervisor->phase == PHASE_GRACE) {
        supervisor->phase = PHASE_STEADY;
        supervisor->deadline = 0;
    }
}

static void forgive_at_end(Supervisor *supervisor, Child *child)
{
    g_autofree char *how = process_describe_end(&child->end);

    tell(supervisor, "node %u %s when the run had ended: nothing of the run is lost",
         child->plan->node->id, how);
    forgive(supervisor, child);
}

static void tell_not_again(Supervisor *supervisor, const Child *child)
{
    if (child->n_restarts > 0 && child->n_restarts >= supervisor->plan->restarts)
        tell(supervisor, "node %u is not started again: it was, %u of %u times",
             child->plan->node->id, child->n_restarts, supervisor->plan->restarts);
}

static void note_failure(Supervisor *supervisor, Child *child)
{
    if (!has_failed(supervisor, child) || supervisor->failed != NULL)
        return;
    supervisor->failed = child;
    if (any_in_state(supervisor, CHILD_RUNNING) && supervisor->phase == PHASE_STEADY) {
        g_autofree char *how = process_describe_end(&child->end);
        tell(supervisor, "node %u %s; waiting for the others to end", child->plan->node->id, how);
        enter_phase(supervisor, PHASE_GRACE);
    }
}

static void note_end(Supervisor *supervisor, Child *child)
{
    child->state = CHILD_ENDING;
    child->deadline = deadline_in_ms(child_is_drained(child) ? 0 : LEFT_PIPES_MS);
    child_close_input(child);
    if (is_to_resume(supervisor, child)) {
        g_autofree char *how = process_describe_end(&child->end);

        tell(supervisor, "node %u, where the scheduler runs, %s", child->plan->node->id, how);
        child->is_lost = true;
    }
    tell_end_again(supervisor, child);
    if (is_lost_at_end(supervisor, child))
        forgive_at_end(supervisor, child);
    else if (child->plan->node == supervisor->plan->resumes && has_failed(supervisor, child))
        tell_not_again(supervisor, child);
    note_failure(supervisor, child);
}

/* Notes the nodes that have ended: only those that a signal ended, or all. */
static void note_ends(Supervisor *supervisor, bool by_signal)
{
    for (uint32_t i = 0; i < supervisor->n_children; i++) {
        Child *child = &supervisor->children[i];
        siginfo_t end = { 0 };

        if (child->state == CHILD_RUNNING &&
            waitid(P_PID, (id_t)child->process.pid, &end, WEXITED | WNOHANG | WNOWAIT) == 0 &&
            end.si_pid != 0 && (!by_signal || end.si_code != CLD_EXITED)) {
            child->end = end;
            note_end(supervisor, child);
        }
    }
}

static Child *find_child(const Supervisor *supervisor, uint32_t id)
{
    for (uint32_t i = 0; i < supervisor->n_children; i++)
        if (supervisor->children[i].plan->node->id == id)
            return &supervisor->children[i];
    return NULL;
}

/* If the lost node still runs, it learns that it is lost, and ends; one that stands still does not,
 * and is killed. */
static void note_loss(Supervisor *supervisor, Child *child)
{
    child->lost_deadline = child->state == CHILD_RUNNING ? deadline_in_ms(grace_ms(supervisor)) : 0;
    tell(supervisor, "the others go on without node %u", child->plan->node->id);
    tell_not_again(supervisor, child);
    forgive(supervisor, child);
}

static bool is_known(const Supervisor *supervisor, const LauncherNews *news)
{
    for (guint i = 0; i < supervisor->known->len; i++) {
        const LauncherNews *const known = &g_array_index(supervisor->known, LauncherNews, i);

        if (known->id == news->id && known->incarnation == news->incarnation)
            return true;
    }
    return false;
}

static void note_run_end(Supervisor *supervisor)
{
    supervisor->run_has_ended = true;
    for (uint32_t i = 0; i < supervisor->n_children; i++)
        if (is_lost_at_end(supervisor, &supervisor->children[i]))
            forgive_at_end(supervisor, &supervisor->children[i]);
}

/* Each node that goes on tells of each lost process. The news of one node may come when the node
 * that is lost has been started again, because another node was heard before. Without the
 * scheduler, only another process of it lets the others go on: is_to_resume. */
static void take_loss(Supervisor *supervisor, const LauncherNews *news, Child *child)
{
    if (is_known(supervisor, news) || child->plan->node == supervisor->plan->resumes ||
        (supervisor->run_has_ended && child->is_lost))
        return;
    g_array_append_val(supervisor->known, *news);
    note_loss(supervisor, child);
}

/* What nodes have told since the last time. News of losses, and of the run's end, that come too
 * late, when nodes have been told to end, change nothing: the cause of that stays the failed node,
 * and not one that the launcher's own signal ends. */
static void note_news(Supervisor *supervisor)
{
    for (guint i = 0; i < supervisor->news->len; i++) {
        const LauncherNews *const news = &g_array_index(supervisor->news, LauncherNews, i);
        const bool is_late = supervisor->phase > PHASE_GRACE;
        Child *const child =
            news->kind == LAUNCHER_NEWS_ENDED ? NULL : find_child(supervisor, news->id);

        if (news->kind == LAUNCHER_NEWS_ENDED && !is_late)
            note_run_end(supervisor);
        else if (news->kind == LAUNCHER_NEWS_SERVED && child != NULL)
            child->has_served = true;
        else if (news->kind == LAUNCHER_NEWS_LOST && child != NULL && !is_late)
            take_loss(supervisor, news, child);
    }
    g_array_set_size(supervisor->news, 0);
}

/* Its last news are its own, and not those of its next process. */
static void finish(Supervisor *supervisor, Child *child)
{
    child_finish(child, supervisor->out.waiting);
    note_news(supervisor);
}

/* Takes note of every process that has ended. */
static void reap(Supervisor *supervisor)
{
    siginfo_t end;

    /* If several have ended since the last check, a killed one is probably the cause, and the
     * others exited because they lost it. */
    note_ends(supervisor, /* by_signal= */ true);
    note_ends(supervisor, /* by_signal= */ false);

    /* Orphans of the nodes become children of this process and must not accumulate as zombies. But
     * while a node's own zombie is kept, waitid would return that one. */
    while (!any_in_state(supervisor, CHILD_ENDING)) {
        end.si_pid = 0;
        if (waitid(P_ALL, 0, &end, WEXITED | WNOHANG | WNOWAIT) != 0 || end.si_pid == 0)
            return;
        for (uint32_t i = 0; i < supervisor->n_children; i++)
            if (supervisor->children[i].state == CHILD_RUNNING &&
                supervisor->children[i].process.pid == end.si_pid)
                return; /* it ended just now; its SIGCHLD is still to come */
        waitpid(end.si_pid, NULL, 0);
    }
}

/* ---- starting ---- */

static char *make_prefix(const Supervisor *supervisor, uint32_t i, int fd)
{
    static const unsigned colours[] = { 36, 33, 35, 32, 34, 31 };
    const uint32_t id = supervisor->plan->nodes[i].node->id;
    const char *refused = g_getenv("NO_COLOR");

    if (supervisor->plan->no_prefix)
        return g_strdup("");
    if (isatty(fd) && (refused == NULL || *refused == '\0'))
        return g_strdup_printf("\033[%um[%u]\033[0m ", colours[i % G_N_ELEMENTS(colours)], id);
    return g_strdup_printf("[%u] ", id);
}

/* Starts the process of node i of the plan. False: it cannot be, and why is told. */
static bool start_child(Supervisor *supervisor, uint32_t i, char **environment)
{
    bool *const shown = &supervisor->out.bar_is_shown;
    bool *const bars[] = { isatty(STDOUT_FILENO) ? shown : NULL,
                           isatty(STDERR_FILENO) ? shown : NULL };
    const LaunchNode *const plan = &supervisor->plan->nodes[i];
    Child *const child = &supervisor->children[i];
    const ProcessSpec spec = { .argv = plan->argv,
                               .environment = environment,
                               .mask = &supervisor->mask,
                               .n_files = &supervisor->n_files,
                               .inherited_fd = plan->remote ? 0 : supervisor->plan->secret_fd,
                               .wants_input = plan->remote };
    g_autofree char *out = make_prefix(supervisor, i, STDOUT_FILENO);
    g_autofree char *err = make_prefix(supervisor, i, STDERR_FILENO);
    g_autoptr(GError) error = NULL;

    if (!child_start(child, plan, &spec, (const char *const[]){ out, err }, bars, &error)) {
        tell(supervisor, "node %u: %s", plan->node->id, error->message);
        return false;
    }
    line_stream_hear(&child->lines[1], supervisor->news);
    return true;
}

/* Whether a process runs that others can join: one from the beginning, such as the scheduler's. */
static bool run_goes_on(const Supervisor *supervisor)
{
    for (uint32_t i = 0; i < supervisor->n_children; i++) {
        const Child *const child = &supervisor->children[i];

        if (child->state == CHILD_RUNNING && child->n_restarts == 0 && !child->is_lost)
            return true;
    }
    return false;
}

/* Whether no other node can have heard that the run has begun: then they still look for a
 * scheduler, and its next process is one that begins. */
static bool begins_anew(const Supervisor *supervisor, const Child *child)
{
    return child->plan->node == supervisor->plan->resumes &&
           !journal_file_has_begun(supervisor->plan->journal);
}

/* A node without which the run goes on, and whose process has ended, is started again. */
static void start_again(Supervisor *supervisor, uint32_t i)
{
    Child *const child = &supervisor->children[i];
    const uint32_t most = supervisor->plan->restarts;

    if (!child->is_lost || child->state != CHILD_DONE || !may_start_again(supervisor, child) ||
        !run_goes_on(supervisor))
        return;
    const LaunchNode *const plan = &supervisor->plan->nodes[i];
    const bool begins = begins_anew(supervisor, child);
    Child before = *child;

    *child = (Child){ .n_restarts = before.n_restarts + 1 };
    if (!start_child(supervisor, i, begins ? plan->environment : plan->again)) {
        *child = before;
        child->n_restarts = most;
        child->is_lost = child->plan->node != supervisor->plan->resumes;
        note_failure(supervisor, child);
        return;
    }
    tell(supervisor, "node %u is started again, %s (%u of %u times)", plan->node->id,
         begins ? "since the run has not begun" : "in the place of the lost process",
         child->n_restarts, most);
    child_clear(&before);
}

/* Does what is due by now. */
static void advance(Supervisor *supervisor)
{
    note_news(supervisor);
    for (uint32_t i = 0; i < supervisor->n_children; i++) {
        Child *child = &supervisor->children[i];

        if (child->state == CHILD_ENDING && (child_is_drained(child) || is_due(child->deadline)))
            finish(supervisor, child);
        else if (child->state == CHILD_RUNNING && is_due(child->deadline)) {
            child->deadline = 0;
            process_signal(child->process.pid, SIGKILL);
        } else if (child->state == CHILD_RUNNING && is_due(child->lost_deadline)) {
            child->lost_deadline = 0;
            tell(supervisor, "node %u is lost and still runs; killing it", child->plan->node->id);
            child_signal(child, SIGKILL);
        }
        start_again(supervisor, i);
    }
    /* Processes that were started again wait for a run that has ended, if they did not join it. */
    if (supervisor->phase == PHASE_STEADY && any_in_state(supervisor, CHILD_RUNNING) &&
        supervisor->plan->restarts > 0 && !run_goes_on(supervisor))
        enter_phase(supervisor, PHASE_GRACE);
    if (!any_in_state(supervisor, CHILD_RUNNING))
        supervisor->deadline = 0;
    else if (is_due(supervisor->deadline))
        enter_phase(supervisor,
                    supervisor->phase == PHASE_GRACE ? PHASE_TERMINATING : PHASE_KILLING);
    reap(supervisor);
}

/* ---- events ---- */

static void take_signal(Supervisor *supervisor, int signal)
{
    if (signal == SIGCHLD) {
        reap(supervisor);
    } else if (supervisor->asked == 0) {
        supervisor->asked = signal;
        tell(supervisor, "SIG%s goes to every node; a second signal kills them",
             sigabbrev_np(signal));
        signal_all(supervisor, signal);
    } else if (supervisor->phase != PHASE_KILLING) {
        tell(supervisor, "a second signal: killing every node");
        supervisor->forced = 128 + signal;
        enter_phase(supervisor, PHASE_KILLING);
    }
}

static void take_signals(Supervisor *supervisor)
{
    struct signalfd_siginfo info;

    while (read(supervisor->signals, &info, sizeof info) == (ssize_t)sizeof info)
        take_signal(supervisor, (int)info.ssi_signo);
}

static void notice_caller(Supervisor *supervisor, short events)
{
    if (events == 0 || supervisor->lifeline < 0)
        return;
    supervisor->lifeline = -1;
    supervisor->forced = 128 + SIGKILL;
    launcher_writer_close(&supervisor->out);
    enter_phase(supervisor, PHASE_KILLING);
}

/* Milliseconds until the next deadline; -1: none. */
static int next_timeout(const Supervisor *supervisor)
{
    gint64 next = supervisor->deadline;

    for (uint32_t i = 0; i < supervisor->n_children; i++) {
        const Child *const child = &supervisor->children[i];
        const gint64 deadlines[] = { child->deadline,
                                     child->state == CHILD_RUNNING ? child->lost_deadline : 0 };

        for (int j = 0; j < 2; j++)
            if (deadlines[j] != 0 && (next == 0 || deadlines[j] < next))
                next = deadlines[j];
    }
    if (next == 0)
        return -1;

    const gint64 left = next - g_get_monotonic_time();
    return left <= 0 ? 0 : (int)MIN(left / DEADLINE_MS + 1, G_MAXINT);
}

static void notice_closed_output(Supervisor *supervisor, int stream)
{
    if (stream == WRITER_ERROR || supervisor->phase == PHASE_KILLING)
        return;
    tell(supervisor, "nobody reads the output any more; ending every node");
    supervisor->forced = CODE_OUTPUT_CLOSED;
    if (supervisor->phase != PHASE_TERMINATING && any_in_state(supervisor, CHILD_RUNNING))
        enter_phase(supervisor, PHASE_TERMINATING);
}

/* Writes the rest of standard output and standard error, and still handles signals: a reader may be
 * slow, and the user may lose patience. */
static void flush(Supervisor *supervisor)
{
    gint64 patience = 0; /* once everything is killed, for a reader that reads nothing */

    for (;;) {
        const bool left[] = { launcher_writer_has_waiting(&supervisor->out, WRITER_OUT),
                              launcher_writer_has_waiting(&supervisor->out, WRITER_ERROR) };
        if (!left[0] && !left[1])
            return;

        struct pollfd fds[] = { { left[0] ? STDOUT_FILENO : -1, POLLOUT, 0 },
                                { left[1] ? STDERR_FILENO : -1, POLLOUT, 0 },
                                { supervisor->signals, POLLIN, 0 },
                                { supervisor->lifeline, POLLIN, 0 } };
        const bool killing = supervisor->phase == PHASE_KILLING;
        const int timeout = killing ? (int)STUCK_OUTPUT_MS : next_timeout(supervisor);

        if (poll(fds, G_N_ELEMENTS(fds), timeout) < 0)
            continue;
        notice_caller(supervisor, fds[3].revents);
        if (fds[2].revents != 0)
            take_signals(supervisor);
        for (int stream = 0; stream < 2; stream++)
            if (fds[stream].revents != 0 && !launcher_writer_write_piece(&supervisor->out, stream))
                notice_closed_output(supervisor, stream);
        if (fds[0].revents != 0 || fds[1].revents != 0)
            patience = 0;
        else if (!killing)
            advance(supervisor);
        else if (patience == 0)
            patience = deadline_in_ms(STUCK_OUTPUT_MS);
        else if (is_due(patience))
            launcher_writer_close(&supervisor->out);
    }
}

/* Waits for whatever comes next and deals with it. */
static void run_once(Supervisor *supervisor, struct pollfd *fds)
{
    nfds_t n = 2;

    fds[0] = (struct pollfd){ supervisor->signals, POLLIN, 0 };
    fds[1] = (struct pollfd){ supervisor->lifeline, POLLIN, 0 };
    for (uint32_t i = 0; i < supervisor->n_children; i++)
        for (int stream = 0; stream < 2; stream++)
            fds[n++] = (struct pollfd){ supervisor->children[i].process.output[stream], POLLIN, 0 };
    if (poll(fds, n, next_timeout(supervisor)) > 0) {
        notice_caller(supervisor, fds[1].revents);
        for (nfds_t i = 2; i < n; i++)
            if (fds[i].revents != 0)
                child_pump(&supervisor->children[(i - 2) / 2], (int)(i % 2),
                           supervisor->out.waiting[i % 2]);
        if (fds[0].revents != 0)
            take_signals(supervisor);
    }
    advance(supervisor);
    flush(supervisor);
}

/* ---- the beginning and the end ---- */

static void start_children(Supervisor *supervisor)
{
    if (supervisor->plan->resumes != NULL)
        journal_file_clear(supervisor->plan->journal);
    for (uint32_t i = 0; i < supervisor->plan->n_nodes; i++) {
        const LaunchNode *const plan = &supervisor->plan->nodes[i];

        if (!start_child(supervisor, i, plan->environment)) {
            supervisor->forced = CODE_NOT_STARTED;
            enter_phase(supervisor, PHASE_KILLING);
            return;
        }
        supervisor->n_children = i + 1;
        if (plan->remote && supervisor->plan->has_secret)
            child_send_secret(&supervisor->children[i], &supervisor->plan->secret);
    }
}

/* Each node takes two or three descriptors. */
static void raise_file_limit(Supervisor *supervisor)
{
    if (getrlimit(RLIMIT_NOFILE, &supervisor->n_files) != 0)
        return;

    const struct rlimit raised = { supervisor->n_files.rlim_max, supervisor->n_files.rlim_max };
    setrlimit(RLIMIT_NOFILE, &raised);
}

static bool others_ended_well(const Supervisor *supervisor)
{
    bool ok = supervisor->n_children > 1;

    for (uint32_t i = 0; i < supervisor->n_children; i++)
        ok = ok && (&supervisor->children[i] == supervisor->failed ||
                    process_exit_code(&supervisor->children[i].end) == 0);
    return ok;
}

static void tell_end(Supervisor *supervisor, const LauncherResult *result)
{
    const Child *const failed = result->child;

    if (supervisor->forced != 0)
        return;
    if (result->kind == LAUNCHER_RESULT_NO_END)
        tell(supervisor, "the program has come to its end on no node: the run has failed");
    if (failed == NULL)
        return;

    g_autofree char *how = process_describe_end(&failed->end);
    const bool by_ssh =
        failed->plan->remote && failed->end.si_code == CLD_EXITED && failed->end.si_status == 255;
    tell(supervisor, "node %u (%s) %s%s%s", failed->plan->node->id, failed->plan->node->host, how,
         by_ssh ? ", as ssh does when the connection cannot be made or is lost" : "",
         others_ended_well(supervisor) ? "; all others ended well" : "");
}

int launch_keep(const LaunchPlan *plan, const sigset_t *taken, const sigset_t *before, int lifeline)
{
    const struct sigaction ignore = { .sa_handler = SIG_IGN };
    Supervisor supervisor = { .plan = plan, .lifeline = lifeline, .mask = *before };
    g_autofree struct pollfd *fds = g_new(struct pollfd, 2 + 2 * (size_t)plan->n_nodes);

    /* Its own group may not be the terminal's foreground group, but must write there. */
    sigaction(SIGTTOU, &ignore, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    raise_file_limit(&supervisor);
    supervisor.signals = signalfd(-1, taken, SFD_CLOEXEC | SFD_NONBLOCK);
    supervisor.children = g_new0(Child, plan->n_nodes);
    supervisor.news = g_array_new(FALSE, FALSE, sizeof(LauncherNews));
    supervisor.known = g_array_new(FALSE, FALSE, sizeof(LauncherNews));
    launcher_writer_init(&supervisor.out);

    start_children(&supervisor);
    while (any_in_state(&supervisor, CHILD_RUNNING) || any_in_state(&supervisor, CHILD_ENDING))
        run_once(&supervisor, fds);
    processes_sweep(/* spared= */ NULL);
    const LauncherResult result =
        launcher_result(plan, supervisor.children, supervisor.n_children, supervisor.failed);
    tell_end(&supervisor, &result);
    line_stream_erase_bar(&supervisor.out.bar_is_shown, supervisor.out.waiting[WRITER_ERROR]);
    flush(&supervisor);

    const int code = supervisor.forced != 0 ? supervisor.forced : launcher_result_code(&result);
    for (uint32_t i = 0; i < supervisor.n_children; i++)
        child_clear(&supervisor.children[i]);
    g_array_unref(supervisor.news);
    g_array_unref(supervisor.known);
    launcher_writer_clear(&supervisor.out);
    g_free(supervisor.children);
    close(supervisor.signals);
    return code;
}
