/* Runs of the launcher for its tests: files for it, a process of its own that it runs in, and what
 * came of it.
 *
 * Threads: main, inside a case; failures are the case's. */
#ifndef TESTS_SUPPORT_LAUNCH_FIXTURE_H
#define TESTS_SUPPORT_LAUNCH_FIXTURE_H

#include <check.h>
#include <glib.h>
#include <rubato/launcher.h>
#include <stdbool.h>
#include <sys/types.h>

/* An address of the block for documentation: nobody's, and resolved without asking anybody. */
#define ELSEWHERE "198.51.100.7"

/* The folder of the case's files, there while it runs. */
extern char *launch_folder;

/* A test case of the suite with such a folder. */
TCase *launch_add_case(Suite *suite, const char *name);

/* Writes a file into the folder. (transfer full) its path */
char *launch_write_file(const char *name, const char *text, mode_t mode);

/* Writes run.cfg, with nodes 0, 10, 20 … on this host and no long waits. (transfer full) its
 * path */
char *launch_write_cluster(unsigned n_nodes, const char *host);

typedef struct {
    pid_t pid;
    int fds[2];
    GString *texts[2]; /* what has come of standard output and standard error */
} Run;

/* sh -c script, on the nodes of the file; argv has room for four. */
RubatoLaunch launch_shell(const char *cluster, const char *script, const char **argv);

Run run_start(const RubatoLaunch *launch);

/* Starts a shell script on each of n nodes of this machine. */
Run run_start_shell(unsigned n_nodes, const char *script);

/* The same, where no node is asked to end because another one has failed, as long as a case may
 * take. */
Run run_start_patient_shell(unsigned n_nodes, const char *script);

/* Reads until the text has come. */
void run_wait_for(Run *run, int stream, const char *text);

/* Reads up to the end of both streams; the exit code, or -signal. */
int run_finish(Run *run);
void run_clear(Run *run);

void run_check_contains(const Run *run, int stream, const char *text);

/* The lines of a stream in alphabetical order, for nodes are as fast as they are.
 * (transfer full) */
char *run_sorted_lines(const Run *run, int stream);

/* The process that a node has named in its output as name=pid. */
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
