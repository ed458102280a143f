/* The launcher: starts a program once for each node of a cluster file and waits until all have
 * ended. The program `rubato` calls it.
 *
 * Threads: the main thread of a process that has no other one. rubato_launch_run forks, and while
 * it runs it takes SIGINT, SIGTERM, SIGHUP and SIGCHLD for itself. */
#ifndef RUBATO_LAUNCHER_H
#define RUBATO_LAUNCHER_H

#include <rubato/error.h>

G_BEGIN_DECLS

typedef struct {
    const char *cluster_file;
    const char *const *argv; /* the program and its arguments, ended by NULL */
    const uint32_t *nodes;   /* the ids of the nodes to start; NULL: all of the file */
    size_t n_nodes;
    const char *ssh; /* the command that reaches other machines, with its options; NULL: "ssh" */
    bool no_prefix;  /* print the nodes' lines as they are, without [node] before them */

    /* How many times each node is started again when it is lost and the others, started by the same
     * call, go on without it. The new process takes the place of the lost one, and serves: its
     * environment has RUBATO_JOIN=1. All nodes must be of this machine. */
    uint32_t restarts;

    /* The nodes, which must be given and be of this machine, are lost ones of a run that goes on
     * elsewhere: the processes take their places. Not beside restarts. */
    bool joins;
} RubatoLaunch;

/* Starts argv for each node with RUBATO_CLUSTER and RUBATO_NODE in its environment: here if the
 * node's host is an address of this machine, else through ssh. The nodes read the run's secret from
 * a descriptor, whose number is in RUBATO_SECRET_FD. It is the secret of RUBATO_SECRET or of the
 * file's secret_file. If there is neither, and if all nodes are started, it is a new one. The
 * nodes' lines go to standard output and standard error with the node's id before them, and
 * messages about nodes go to standard error. SIGINT, SIGTERM and SIGHUP are passed on to every
 * node; a second one kills them. When one node fails, the others have twice the file's timeout_ms
 * to end by themselves; then they are ended. No started process is left running when this returns.
 *
 * True if the nodes were started. *exit_code is then 0 if all of them ended well, else the exit
 * code of the first that failed, or 128 + signal if a signal ended it. False if none was started,
 * with RUBATO_ERROR_CONFIG, _IO, _INVALID, _NOT_FOUND (the program) or _NETWORK (a host). */
RUBATO_API bool rubato_launch_run(const RubatoLaunch *launch, int *exit_code, GError **error);

/* A node of a run without a cluster file. The comments name the environment variables that the
 * members become. If a member is 0 or NULL, its variable stays as it is. */
typedef struct {
    const char *role;        /* RUBATO_ROLE: "scheduler", "server", "worker" or "node" */
    const char *const *argv; /* the program and its arguments, ended by NULL */
    const char *scheduler;   /* RUBATO_SCHEDULER */
    const char *interface;   /* RUBATO_INTERFACE */
    const char *settings;    /* RUBATO_SETTINGS */
    uint32_t servers;        /* RUBATO_SERVERS */
    uint32_t workers;        /* RUBATO_WORKERS */
    uint32_t threads;        /* RUBATO_THREADS */
    uint32_t node;           /* RUBATO_NODE */
    uint32_t spares;         /* RUBATO_SPARES */
} RubatoLaunchRole;

/* Makes this process such a node: replaces it by the program, with RUBATO_ROLE and the members'
 * variables in its environment. Returns only with an error: RUBATO_ERROR_INVALID, _NOT_FOUND (the
 * program) or _IO. */
RUBATO_API bool rubato_launch_role(const RubatoLaunchRole *launch, GError **error);

/* Makes a file with a new secret, for nodes that are not all started by one rubato_launch_run. Only
 * its owner may use the file (mode 0600). False with RUBATO_ERROR_IO if it cannot be made, or if
 * there is already a file of that name. */
RUBATO_API bool rubato_launch_make_secret(const char *path, GError **error);

/* A new secret, as RUBATO_SECRET holds it: 64 hexadecimal digits. NULL with RUBATO_ERROR_IO if the
 * system gives no random bytes. (transfer full) */
RUBATO_API char *rubato_launch_draw_secret(GError **error);

/* Reads the file, resolves its hosts, and tries its ports on this machine. It appends a table of
 * what would run where to the report, even if a host or a port is wrong. False with
 * RUBATO_ERROR_CONFIG, _IO or _NETWORK, and a line for each fault in the message. */
RUBATO_API bool rubato_launch_check(const char *cluster_file, GString *report, GError **error);

/* Reads a cluster file and a file of tables, and appends to the report where each part of each
 * table would lie, and what its server then has of its limits. Nothing is started. What the file
 * leaves out of a table's needs is taken from the folder `measured`, into which a run with
 * RUBATO_MEASURE has written; NULL: it is 0. False with RUBATO_ERROR_CONFIG, _IO, _FORMAT or
 * _NOT_FOUND (a file), or _INVALID: a table that makes no sense, or that fits nowhere. The report
 * then has the tables before it. */
RUBATO_API bool rubato_launch_place(const char *cluster_file, const char *table_file,
                                    const char *measured, GString *report, GError **error);

/* A node of a run that goes on, which is to be drained. */
typedef struct {
    const char *cluster_file; /* of the run; NULL: it has none, */
    const char *scheduler;    /* and its scheduler listens at this HOST:PORT */
    const char *settings;     /* as RUBATO_SETTINGS, of such a run; NULL: none */
    const char *secret_file;  /* of the run's secret; NULL: it is found as nodes find it */
    uint32_t node;            /* its id */
    uint32_t timeout_ms;      /* without an answer it is given up after this; 0: 10,000 */
} RubatoLaunchDrain;

/* Asks the run's scheduler to drain the node, as rubato_engine_drain_node does, and to let it go:
 * the node's process ends with RUBATO_ERROR_SERVED and the others go on, as soon as none of its
 * workers is in a task. Returns when it has left, or, if it has such workers, when it is drained;
 * *told (NULL: not told) becomes a line that says which. The process that calls needs no place in
 * the run, but its secret, and takes RUBATO_SECRET out of the environment. Errors:
 * RUBATO_ERROR_CONFIG or _IO for the file or the secret, _NETWORK if no scheduler answers,
 * _MISMATCH if it is of another build, and those of rubato_engine_drain_node.
 * (transfer full: *told) */
RUBATO_API bool rubato_launch_drain(const RubatoLaunchDrain *drain, char **told, GError **error);

typedef enum {
    RUBATO_FINDING_FINE,
    RUBATO_FINDING_SHORT, /* a run works here, but something is missing, too small or not known */
    RUBATO_FINDING_FAILS, /* a run fails here */
} RubatoFindingState;

/* One thing that rubato_launch_check_here has looked at. */
typedef struct {
    const char *name; /* "cores"; a constant */
    char *text;       /* what there is */
    RubatoFindingState state;
    char *advice; /* what to do about it; NULL: nothing */
} RubatoFinding;

/* What a program that uses Rubato would do here, in this environment: which job system or variables
 * make it a node, which address and transport it would use, and whether cores, memory and limits of
 * the machine are enough for that. It tries the ports that this node would listen at, connects to
 * nobody, and takes RUBATO_SECRET out of the environment, as an engine does. Texts are for people,
 * and may change. Returns a list of RubatoFinding, which it frees with them. (transfer full) */
RUBATO_API GPtrArray *rubato_launch_check_here(void);

G_END_DECLS

#endif
