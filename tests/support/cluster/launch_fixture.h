/* Runs of the launcher for its tests: its files, a process in which it runs, and the results.
 *
 * Threads: main, inside a case; a failure fails the case. */
#ifndef TESTS_SUPPORT_CLUSTER_LAUNCH_FIXTURE_H
#define TESTS_SUPPORT_CLUSTER_LAUNCH_FIXTURE_H

#include <check.h>
#include <glib.h>
#include <rubato/launcher.h>
#include <stdbool.h>
#include <sys/types.h>

/* An address of the block for documentation. It belongs to nobody, and is resolved without a
 * query. */
#define ELSEWHERE "198.51.100.7"

/* The folder of the case's files, which exists while the case runs. */
extern char *launch_folder;

/* A test case of the suite with such a folder. */
TCase *launch_add_case(Suite *suite, const char *name);

/* Writes a file into the folder. (transfer full) its path */
char *launch_write_file(const char *name, const char *text, mode_t mode);

/* Writes run.cfg, with nodes 0, 10, 20 … on this host and no long waits. (transfer full) its
 * path */
char *launch_write_cluster(unsigned n_nodes, const char *host);

/* The same on this machine, but the launcher asks no node to end because another one has failed,
 * for as long as a case may take. */
char *launch_write_patient_cluster(unsigned n_nodes);

typedef struct {
    pid_t pid;
    int fds[2];
    GString *texts[2]; /* what was read of standard output and standard error */
} Run;

/* sh -c script, on the nodes of the file; argv has room for four. */
RubatoLaunch launch_shell(const char *cluster, const char *script, const char **argv);

Run run_start(const RubatoLaunch *launch);

/* Starts a shell script on each of n nodes of this machine. */
Run run_start_shell(unsigned n_nodes, const char *script);

/* The same with launch_write_patient_cluster(). */
Run run_start_patient_shell(unsigned n_nodes, const char *script);

/* Reads until the text comes. */
void run_wait_for(Run *run, int stream, const char *text);

/* Reads to the end of both streams. Returns the exit code, or -signal. */
int run_finish(Run *run);
void run_clear(Run *run);

void run_check_contains(const Run *run, int stream, const char *text);

/* The lines of a stream in alphabetical order, because the order of nodes' lines may differ.
 * (transfer full) */
char *run_sorted_lines(const Run *run, int stream);

/* The process id that a node has written to its output as name=pid. */
pid_t run_pid_of(const Run *run, const char *name);

bool is_gone(pid_t pid);

/* Script of a node that leaves one process in its group and one in a session of its own. */
#define LEAVE_PROCESSES \
    "sleep 1000 & echo child=$!; setsid sleep 1000 & echo session=$!; echo self=$$\n"

void run_check_nothing_left(const Run *run);

typedef struct {
    int number;
    const char *name;
} PassedSignal;

#define N_PASSED_SIGNALS 3
extern const PassedSignal PASSED_SIGNALS[N_PASSED_SIGNALS];

#endif
