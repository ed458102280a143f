/* `rubato run`: makes the plan of a run, and watches over the supervisor that carries it out.
 *
 * All errors before the start are found here, in the caller's process. Then it forks the supervisor
 * (launcher_supervisor.c), passes signals on to it, and waits. The supervisor is in a process group
 * of its own, so a signal from the terminal reaches it once, through this process. If the
 * supervisor is killed, its nodes die with it. Processes that the nodes had started become children
 * of this process, which kills them.
 *
 * Thread: the one thread of the process. */
#include "engine/launch/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/cluster/host.h"
#include "engine/cluster/rendezvous.h"
#include "engine/cluster/secret_source.h"
#include "engine/health/engine_health.h"
#include "engine/join/journal_file.h"
#include "engine/launch/launcher_news.h"
#include "engine/launch/launcher_output.h"
#include "engine/launch/launcher_processes.h"
#include "engine/launch/launcher_remote.h"
#include "engine/launch/launcher_role.h"

#define COLUMNS_DEFAULT 80
#define PREFIX_COLUMNS 12 /* of the id of a node, and brackets */
#define DEFAULT_SSH "ssh"
#define JOURNAL_NAME "journal"

/* ---- the plan ---- */

static char *list_ids(const Cluster *cluster)
{
    GString *list = g_string_new(NULL);

    for (uint32_t i = 0; i < cluster->n_nodes; i++)
        g_string_append_printf(list, "%s%u", i > 0 ? ", " : "", cluster->nodes[i].id);
    return g_string_free(list, FALSE);
}

/* Marks the nodes that are to be started: those that are named, or all that are not spare.
 * (transfer full) NULL on error */
static bool *choose_nodes(const Cluster *cluster, const RubatoLaunch *launch, GError **error)
{
    g_autofree bool *chosen = g_new0(bool, cluster->n_nodes);

    for (uint32_t i = 0; i < cluster->n_nodes; i++)
        chosen[i] = (launch->nodes == NULL || launch->n_nodes == 0) && !cluster->nodes[i].spare;
    for (size_t i = 0; launch->nodes != NULL && i < launch->n_nodes; i++) {
        uint32_t number;

        if (cluster_find(cluster, launch->nodes[i], &number) == NULL) {
            g_autofree char *ids = list_ids(cluster);
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                        "%s has no node %u; its nodes are %s", cluster->path, launch->nodes[i],
                        ids);
            return NULL;
        }
        if (cluster->nodes[number].spare && !launch->joins) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                        "node %u is spare: a run begins without it; --join has a process join a "
                        "run that has begun",
                        launch->nodes[i]);
            return NULL;
        }
        chosen[number] = true;
    }
    return g_steal_pointer(&chosen);
}

/* How many columns a bar may have, with a node's id before it; 0: there is no terminal on which one
 * can be drawn. */
static unsigned bar_columns(void)
{
    const char *term = g_getenv("TERM");
    struct winsize size;

    if (!isatty(STDERR_FILENO) || term == NULL || *term == '\0' || strcmp(term, "dumb") == 0)
        return 0;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        size.ws_col = COLUMNS_DEFAULT;
    return size.ws_col > PREFIX_COLUMNS ? size.ws_col - PREFIX_COLUMNS : 0;
}

/* The environment of a node: the secret itself is never in it. (transfer full) */
static char **make_environment(const LaunchPlan *whole)
{
    char **environment = g_environ_unsetenv(g_get_environ(), SECRET_VARIABLE);

    environment = g_environ_unsetenv(environment, "RUBATO_ROLE");
    environment = g_environ_unsetenv(environment, JOIN_VARIABLE);
    environment = g_environ_unsetenv(environment, SECRET_FD_VARIABLE);
    environment = g_environ_unsetenv(environment, BAR_VARIABLE);
    environment = g_environ_setenv(environment, LAUNCHER_NEWS_VARIABLE, "1", TRUE);
    if (bar_columns() > 0) {
        g_autofree char *columns = g_strdup_printf("%u", bar_columns());
        environment = g_environ_setenv(environment, BAR_VARIABLE, columns, TRUE);
    }
    if (whole->secret_fd != 0) {
        g_autofree char *number = g_strdup_printf("%d", whole->secret_fd);
        environment = g_environ_setenv(environment, SECRET_FD_VARIABLE, number, TRUE);
    }
    return environment;
}

/* The RUBATO_HEALTH of a node, wherever it runs; NULL: it gets none. A port of a host has room for
 * one node, and the scheduler's tells of the whole run. 0 is any port, so all nodes have it. */
static const char *choose_health(const LaunchPlan *whole, const ClusterNode *node)
{
    const char *const port = g_getenv(HEALTH_VARIABLE);
    const bool is_schedulers = node == &whole->cluster->nodes[whole->cluster->scheduler_node];

    return port != NULL && (is_schedulers || strcmp(port, "0") == 0) ? port : NULL;
}

/* A scheduler that is alone on its node, and whose process is to be started again, keeps a journal,
 * from which the next process goes on. */
static bool plan_journal(LaunchPlan *whole, LaunchNode *plan, GError **error)
{
    const Cluster *const cluster = whole->cluster;
    const char *const given = g_getenv(JOURNAL_VARIABLE);
    g_autoptr(GError) failure = NULL;

    if (whole->restarts == 0 || plan->node != &cluster->nodes[cluster->scheduler_node] ||
        plan->node->servers > 0 || plan->node->workers > 0)
        return true;
    whole->resumes = plan->node;
    if (given != NULL && *given != '\0') {
        whole->journal = g_strdup(given);
        return true;
    }
    whole->journal_folder = g_dir_make_tmp("rubato-run-XXXXXX", &failure);
    if (whole->journal_folder == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO,
                    "no folder for the scheduler's journal, without which node %u cannot be "
                    "started again: %s",
                    plan->node->id, failure->message);
        return false;
    }
    whole->journal = g_build_filename(whole->journal_folder, JOURNAL_NAME, NULL);
    plan->environment = g_environ_setenv(plan->environment, JOURNAL_VARIABLE, whole->journal, TRUE);
    return true;
}

/* The journal is gone if the run has ended well. */
static void remove_journal(const LaunchPlan *plan)
{
    g_autofree char *beside = NULL;

    if (plan->journal_folder == NULL)
        return;
    beside = journal_file_beside(plan->journal);
    (void)unlink(plan->journal);
    (void)unlink(beside);
    (void)rmdir(plan->journal_folder);
}

static bool plan_local(LaunchPlan *whole, LaunchNode *plan, const RubatoLaunch *launch,
                       const char *cluster_file, GError **error)
{
    g_autofree char *id = g_strdup_printf("%u", plan->node->id);
    const char *const health = choose_health(whole, plan->node);
    char *program = launcher_find_program(launch->argv[0], error);

    if (program == NULL)
        return false;
    plan->argv = g_strdupv((char **)launch->argv);
    g_free(plan->argv[0]);
    plan->argv[0] = program;
    plan->environment =
        g_environ_setenv(make_environment(whole), "RUBATO_CLUSTER", cluster_file, TRUE);
    plan->environment = g_environ_setenv(plan->environment, "RUBATO_NODE", id, TRUE);
    if (health == NULL)
        plan->environment = g_environ_unsetenv(plan->environment, HEALTH_VARIABLE);
    if (!plan_journal(whole, plan, error))
        return false;
    plan->again = g_environ_setenv(g_strdupv(plan->environment), JOIN_VARIABLE, "1", TRUE);
    if (launch->joins)
        plan->environment = g_environ_setenv(plan->environment, JOIN_VARIABLE, "1", TRUE);
    return true;
}

static bool plan_remote(const LaunchPlan *whole, LaunchNode *plan, const RubatoLaunch *launch,
                        const char *cluster_file, GError **error)
{
    const char *command = launch->ssh != NULL ? launch->ssh : DEFAULT_SSH;
    g_autofree char *folder = g_get_current_dir();
    const RemoteCommand remote = {
        .host = plan->node->host,
        .folder = folder,
        .cluster_file = cluster_file,
        .id = plan->node->id,
        .argv = launch->argv,
        .reads_secret = whole->has_secret,
        .health = choose_health(whole, plan->node),
    };
    g_autoptr(GError) cause = NULL;
    g_auto(GStrv) words = NULL;

    if (launch->joins || launch->restarts > 0) {
        g_set_error(
            error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
            "node %u is on another machine, %s, which ssh reaches: a process that joins a run "
            "(--restart, --join) is started on its own machine alone",
            plan->node->id, plan->node->host);
        return false;
    }
    if (!g_shell_parse_argv(command, NULL, &words, &cause)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "the ssh command \"%s\" makes no sense: %s", command, cause->message);
        return false;
    }

    char *program = launcher_find_program(words[0], error);
    if (program == NULL) {
        g_prefix_error(error,
                       "node %u is on another machine, %s, and ssh reaches it: ", plan->node->id,
                       plan->node->host);
        return false;
    }
    g_free(words[0]);
    words[0] = program;
    plan->remote = true;
    plan->argv = remote_command_argv(&remote, words);
    plan->environment = g_environ_unsetenv(make_environment(whole), SECRET_FD_VARIABLE);
    return true;
}

static bool plan_node(LaunchPlan *whole, LaunchNode *plan, const ClusterNode *node,
                      const RubatoLaunch *launch, GError **error)
{
    const Cluster *const cluster = whole->cluster;
    g_autofree char *where = g_strdup_printf("%s:%u", cluster->path, node->line);
    g_autofree char *cluster_file = g_canonicalize_filename(cluster->path, NULL);
    Host host = { 0 };

    if (!host_resolve(&host, node->host, where, error))
        return false;
    host_clear(&host);
    plan->node = node;
    return host.local ? plan_local(whole, plan, launch, cluster_file, error)
                      : plan_remote(whole, plan, launch, cluster_file, error);
}

/* The secret that the nodes get: the given one, or else a new one. There is no new one if some
 * nodes of the run are started elsewhere, because they could not know it. */
static bool plan_secret(LaunchPlan *plan, bool all_nodes, GError **error)
{
    SecretOrigin origin;

    if (!secret_find(plan->cluster, &plan->secret, &origin, error))
        return false;
    plan->has_secret = origin != SECRET_ORIGIN_NONE;
    if (!plan->has_secret && all_nodes)
        plan->has_secret = run_secret_draw(&plan->secret, error);
    if (!plan->has_secret)
        return !all_nodes && secret_check_cluster(plan->cluster, origin, error);
    const int fd = secret_to_descriptor(&plan->secret, error);
    plan->secret_fd = MAX(fd, 0);
    return fd != -1;
}

static bool starts_all(const bool *chosen, const Cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->n_nodes; i++)
        if (!chosen[i] && !cluster->nodes[i].spare)
            return false;
    return true;
}

/* Nodes that go on tell of a loss the launcher that has started them. So one that starts lost nodes
 * alone hears of no loss. */
static bool check_joins(const RubatoLaunch *launch, GError **error)
{
    if (launch->joins && launch->n_nodes == 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "say as which nodes the processes are to join, lost ones or spare ones: --node "
                    "ID");
        return false;
    }
    if (launch->joins && launch->restarts > 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "--join and --restart exclude each other: the nodes that go on tell of a loss "
                    "the `rubato run` that has started them, not the one that joins");
        return false;
    }
    return true;
}

LaunchPlan *launch_plan_new(const RubatoLaunch *launch, GError **error)
{
    g_autoptr(LaunchPlan) plan = g_new0(LaunchPlan, 1);
    g_autofree bool *chosen = NULL;

    plan->no_prefix = launch->no_prefix;
    plan->restarts = launch->restarts;
    plan->cluster = cluster_read(launch->cluster_file, error);
    if (plan->cluster == NULL)
        return NULL;
    chosen = choose_nodes(plan->cluster, launch, error);
    if (chosen == NULL || !check_joins(launch, error))
        return NULL;
    const bool all = starts_all(chosen, plan->cluster);
    plan->is_whole = all && !launch->joins;
    if (!plan_secret(plan, all, error))
        return NULL;
    plan->nodes = g_new0(LaunchNode, plan->cluster->n_nodes);
    for (uint32_t i = 0; i < plan->cluster->n_nodes; i++) {
        if (!chosen[i])
            continue;
        if (!plan_node(plan, &plan->nodes[plan->n_nodes++], &plan->cluster->nodes[i], launch,
                       error))
            return NULL;
    }
    return g_steal_pointer(&plan);
}

void launch_plan_free(LaunchPlan *plan)
{
    if (plan == NULL)
        return;
    for (uint32_t i = 0; i < plan->n_nodes; i++) {
        g_strfreev(plan->nodes[i].argv);
        g_strfreev(plan->nodes[i].environment);
        g_strfreev(plan->nodes[i].again);
    }
    g_free(plan->nodes);
    remove_journal(plan);
    g_free(plan->journal);
    g_free(plan->journal_folder);
    if (plan->secret_fd != 0)
        close(plan->secret_fd);
    run_secret_clear(&plan->secret);
    cluster_free(plan->cluster);
    g_free(plan);
}

/* ---- the run ---- */

/* A signal that the caller ignores, as under nohup, stays ignored. */
static void choose_signals(sigset_t *taken)
{
    static const int candidates[] = { SIGINT, SIGTERM, SIGHUP };
    struct sigaction present;

    sigemptyset(taken);
    sigaddset(taken, SIGCHLD);
    for (size_t i = 0; i < G_N_ELEMENTS(candidates); i++)
        if (sigaction(candidates[i], NULL, &present) == 0 && present.sa_handler != SIG_IGN)
            sigaddset(taken, candidates[i]);
}

/* Pipes must not get the numbers of the standard streams. */
static void open_standard_streams(void)
{
    int fd;

    do {
        fd = open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

/* Waits for the supervisor's end and passes signals on to it meanwhile. */
static void watch(pid_t supervisor, const sigset_t *taken, siginfo_t *end)
{
    for (;;) {
        end->si_pid = 0;
        if (waitid(P_PID, (id_t)supervisor, end, WEXITED | WNOHANG) != 0 || end->si_pid != 0)
            return;

        const int signal = sigwaitinfo(taken, NULL);
        if (signal > 0 && signal != SIGCHLD)
            kill(supervisor, signal);
    }
}

/* Drops signals that came after the end of the run. */
static void discard_signals(const sigset_t *taken)
{
    static const struct timespec now = { 0, 0 };

    while (sigtimedwait(taken, NULL, &now) > 0)
        continue;
}

static bool run_supervisor(const LaunchPlan *plan, const sigset_t *taken, const sigset_t *before,
                           int *exit_code, GError **error)
{
    g_autoptr(GArray) children_before = processes_list_children();
    int lifeline[2] = { -1, -1 };
    siginfo_t end = { 0 };

    if (pipe2(lifeline, O_CLOEXEC) != 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "cannot open a pipe: %s",
                    g_strerror(errno));
        return false;
    }

    const pid_t supervisor = fork();
    if (supervisor == 0) {
        close(lifeline[1]);
        setpgid(0, 0);
        exit(launch_keep(plan, taken, before, lifeline[0]));
    }
    close(lifeline[0]);
    if (supervisor < 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "cannot start a process: %s",
                    g_strerror(errno));
        close(lifeline[1]);
        return false;
    }
    watch(supervisor, taken, &end);
    close(lifeline[1]);
    *exit_code = process_exit_code(&end);
    if (end.si_code != CLD_EXITED) {
        g_autofree char *how = process_describe_end(&end);
        processes_sweep(children_before);
        g_printerr("rubato: the process that kept the nodes %s; every node was killed\n", how);
    }
    return true;
}

char *rubato_launch_draw_secret(GError **error)
{
    char digits[RUN_SECRET_DIGITS + 1] = "";
    g_auto(RunSecret) secret = { { 0 } };

    if (!run_secret_draw(&secret, error))
        return NULL;
    run_secret_format(&secret, digits);
    char *const text = g_strdup(digits);
    run_secret_wipe(digits, sizeof digits);
    return text;
}

bool rubato_launch_make_secret(const char *path, GError **error)
{
    g_return_val_if_fail(path != NULL, false);
    return secret_make_file(path, error);
}

bool rubato_launch_run(const RubatoLaunch *launch, int *exit_code, GError **error)
{
    g_return_val_if_fail(launch != NULL && launch->cluster_file != NULL && exit_code != NULL,
                         false);

    if (launch->argv == NULL || launch->argv[0] == NULL || *launch->argv[0] == '\0') {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "no program to run");
        return false;
    }

    g_autoptr(LaunchPlan) plan = launch_plan_new(launch, error);
    if (plan == NULL)
        return false;

    int was_subreaper = 0;
    sigset_t taken;
    sigset_t before;

    open_standard_streams();
    fflush(NULL); /* or the supervisor would write it again */
    choose_signals(&taken);
    sigprocmask(SIG_BLOCK, &taken, &before);
    prctl(PR_GET_CHILD_SUBREAPER, &was_subreaper);
    prctl(PR_SET_CHILD_SUBREAPER, 1);

    const bool started = run_supervisor(plan, &taken, &before, exit_code, error);

    prctl(PR_SET_CHILD_SUBREAPER, was_subreaper);
    discard_signals(&taken);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return started;
}
