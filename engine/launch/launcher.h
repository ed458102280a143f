/* What the parts of the launcher share: the plan of a run, and the supervisor that carries it out.
 *
 * Threads: the one thread of the process, before and after its fork. */
#ifndef RUBATO_ENGINE_LAUNCH_LAUNCHER_H
#define RUBATO_ENGINE_LAUNCH_LAUNCHER_H

#include <rubato/launcher.h>
#include <signal.h>

#include "engine/cluster/cluster_file.h"
#include "io/net/secure/secret.h"

/* One process to start. */
typedef struct {
    const ClusterNode *node;
    bool remote;        /* argv is ssh, which takes signals' names on its standard input */
    char **argv;        /* argv[0] is a path */
    char **environment; /* without the secret; it names the descriptor of it */
    char **again;       /* the environment of a process that takes the place of a lost one */
} LaunchNode;

typedef struct {
    Cluster *cluster;
    LaunchNode *nodes;
    uint32_t n_nodes;
    bool no_prefix;
    bool is_whole;     /* it starts all nodes with which the run begins */
    uint32_t restarts; /* of each node of this machine, if it is lost and the run goes on */
    const ClusterNode *resumes; /* the scheduler's, if it keeps a journal; or NULL */
    char *journal;              /* its path */
    char *journal_folder;       /* that was made for the journal; or NULL */
    bool has_secret; /* nodes are given one; else each node finds the secret itself, or has none */
    RunSecret secret;
    int secret_fd; /* of it, for nodes on this machine to inherit; 0: there is none */
} LaunchPlan;

/* Reads the cluster file and finds everything that is needed to start. (transfer full) */
LaunchPlan *launch_plan_new(const RubatoLaunch *launch, GError **error);
void launch_plan_free(LaunchPlan *plan);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(LaunchPlan, launch_plan_free)

/* Starts the plan's processes and stays until all have ended; the exit code of the run. `taken` are
 * the signals that the caller has blocked for it, `before` the mask that it found. When `lifeline`
 * hangs up, the caller is gone: everything is killed. */
int launch_keep(const LaunchPlan *plan, const sigset_t *taken, const sigset_t *before,
                int lifeline);

#endif
