/* The launcher: starts a program once for each node of a cluster file and stays until all have
 * ended. It is what the program `rubato` is made of.
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
    bool no_prefix;  /* lines come out as they are, without [node] before them */
} RubatoLaunch;

/* Starts argv for each node with RUBATO_CLUSTER and RUBATO_NODE in its environment: here where the
 * node's host is an address of this machine, through ssh elsewhere. The run's secret they find
 * behind a descriptor, whose number is RUBATO_SECRET_FD: what RUBATO_SECRET or the file's
 * secret_file gives, else a new one, which is made where all of the nodes are started. Their lines
 * go to standard output and standard error with the node's id before them; what happens to nodes is
 * told on standard error. SIGINT, SIGTERM and SIGHUP go on to every node, a second one kills them.
 * When one fails, the others have twice the file's timeout to end by themselves before they are
 * ended. Nothing that was started is left running when this returns.
 *
 * True where the nodes were started; *exit_code is then 0 where all of them ended well, else that
 * of the first that failed, 128 + signal where a signal ended it. False before anything was
 * started, with RUBATO_ERROR_CONFIG, _IO, _INVALID, _NOT_FOUND (the program) or _NETWORK (a
 * host). */
RUBATO_API bool rubato_launch_run(const RubatoLaunch *launch, int *exit_code, GError **error);

/* Makes a file of a new secret, for nodes that are not all started by rubato_launch_run; nobody but
 * its owner may use it. False with RUBATO_ERROR_IO where that cannot be, or there is a file of that
 * name. */
RUBATO_API bool rubato_launch_make_secret(const char *path, GError **error);

/* Reads the file, resolves its hosts, tries its ports that are on this machine, and appends a table
 * of what would run where to the report: also where a host or a port is wrong. False with what is
 * wrong, a line for each fault: RUBATO_ERROR_CONFIG, _IO or _NETWORK. */
RUBATO_API bool rubato_launch_check(const char *cluster_file, GString *report, GError **error);

G_END_DECLS

#endif
