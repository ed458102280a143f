/* Runs of several node processes on this machine, for tests: each node is a fork of the case that
 * runs a function over real sockets. The case watches what each node writes and how it ends.
 *
 * A case makes a run, starts its nodes and waits for events: a text in a node's output, a node's
 * end. Every wait is bounded. When its time is over, or when a node ends in an unexpected way, the
 * case fails and shows the last output of the nodes. Nodes die with the case.
 *
 * The cluster file is in memory. The scheduler's port is reserved while the run exists, by a bound
 * socket that does not listen: only a process that names the port can use it. Nodes have any port.
 *
 * Threads: the case's only one; inside a node cluster_say from any. */
#ifndef TESTS_SUPPORT_CLUSTER_CLUSTER_RUN_H
#define TESTS_SUPPORT_CLUSTER_CLUSTER_RUN_H

#include <check.h>
#include <rubato/rubato.h>
#include <sys/types.h>

#include "io/net/network/network.h"
#include "tests/support/sizes.h"

#define CLUSTER_MOST_NODES 4
#define CLUSTER_MOST_PROCESSES 12

/* The ids of nodes 0, 1, … of a run: not consecutive, so that a test notices an id that is used as
 * a number. */
extern const uint32_t CLUSTER_IDS[CLUSTER_MOST_NODES];

/* The secret of runs that are encrypted. */
#define CLUSTER_SECRET "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

typedef struct {
    uint32_t servers, workers;
} ClusterNodeShape;

typedef struct {
    uint32_t n_nodes;
    ClusterNodeShape nodes[CLUSTER_MOST_NODES];
    unsigned spares;        /* nodes without which the run begins, as a mask */
    uint32_t scheduler;     /* the number of its node */
    uint32_t heartbeat_ms;  /* 0: 200 */
    uint32_t timeout_ms;    /* 0: a minute, so that a busy machine loses nobody */
    uint32_t stall_ms;      /* 0: 10,000 */
    uint32_t rendezvous_ms; /* 0: a minute */
    uint32_t service_mib;   /* 0: the file says nothing */
    bool handle_signals;
    bool catches_up;        /* as RubatoEngineConfig.catches_up */
    bool encrypts;          /* with a secret that all nodes have */
    const char *lines;      /* more lines of the file; NULL: none */
    const char *over;       /* the file's transport; NULL: RUBATO_TEST_TRANSPORT, or none */
    WireFaults *faults;     /* NULL: none */
    const FlowSizes *sizes; /* NULL: test_sizes() */
} ClusterShape;

typedef struct {
    pid_t pid;
    int fd;        /* -1: all was read */
    GString *text; /* its output, standard output and standard error */
    bool ended;
    int status; /* its exit code, or -signal */
} ClusterProcess;

typedef struct {
    ClusterShape shape;
    const char *path; /* of the file; the same in the case and in its nodes */
    uint16_t port;
    int port_fd;
    GArray *files; /* of descriptors; the first is the run's */
    GPtrArray *paths;
    ClusterProcess processes[CLUSTER_MOST_PROCESSES]; /* nodes by number, then others */
    uint32_t n_processes;
} ClusterRun;

/* The function that a node runs with its engine, which is freed afterwards. If it returns false
 * with an error, the node writes "error CODE: MESSAGE" and ends with CLUSTER_FAILED. */
typedef bool (*ClusterPlay)(RubatoEngine *engine, const void *data, GError **error);

enum {
    CLUSTER_FAILED = 11,
    CLUSTER_NOT_STARTED = 12, /* there was no engine: "error CODE: MESSAGE" */
};

/* How much slower than usual this build is. */
uint32_t cluster_slowness(void);

/* A heartbeat timeout for cases that wait until a node counts as lost. It is short, but no other
 * node counts as lost if the machine holds up a process for three seconds. */
uint32_t cluster_short_timeout_ms(void);

/* A test case whose timeout leaves time for waits. */
TCase *cluster_add_case(Suite *suite, const char *name);

/* (transfer full) */
ClusterRun *cluster_run_new(const ClusterShape *shape);

/* Makes one more file with this text. Returns its path. (transfer none) */
const char *cluster_add_file(ClusterRun *run, const char *text);

/* The text of the run's own file. (transfer full) */
char *cluster_file_text(const ClusterRun *run);

/* Ends all processes that still run. */
void cluster_run_free(ClusterRun *run);

/* Starts node `number`. */
void cluster_start_node(ClusterRun *run, uint32_t number, ClusterPlay play, const void *data);

/* The same with another file. */
void cluster_start_node_with(ClusterRun *run, uint32_t number, const char *path, ClusterPlay play,
                             const void *data);

/* Starts all nodes that are not spare. */
void cluster_start(ClusterRun *run, ClusterPlay play, const void *data);

/* Starts another process, which exits with the function's result. Returns its number among the
 * processes. */
uint32_t cluster_start_process(ClusterRun *run, int (*function)(const void *data),
                               const void *data);

/* Starts node `id` of a file again, or a node that is not in it. Returns its number among the
 * processes. */
uint32_t cluster_start_other(ClusterRun *run, uint32_t id, const char *path, ClusterPlay play,
                             const void *data);

/* The same of a process that joins a run which has begun, as node `number`. */
uint32_t cluster_start_joining(ClusterRun *run, uint32_t number, ClusterPlay play,
                               const void *data);

/* Waits until a process has written the text. */
void cluster_wait_for(ClusterRun *run, uint32_t process, const char *text);

/* Waits for the end of a process. Returns its exit code, or -signal. */
int cluster_wait_end(ClusterRun *run, uint32_t process);

/* Waits for its end and expects that status. */
void cluster_expect_end(ClusterRun *run, uint32_t process, int status);

/* Waits for the end of all nodes that are not spare, and expects success of each. */
void cluster_expect_success(ClusterRun *run);

/* Expects that a process that has ended has written the text, or that it has not. */
void cluster_expect_text(ClusterRun *run, uint32_t process, const char *text);
void cluster_expect_no_text(ClusterRun *run, uint32_t process, const char *text);

/* The rest of the line behind the first occurrence of the text in a process's output. (transfer
 * full) */
char *cluster_text_after(ClusterRun *run, uint32_t process, const char *text);

void cluster_signal(ClusterRun *run, uint32_t process, int number);

/* Runs the function in one process without a cluster, expects success, and returns its output.
 * (transfer full) */
char *cluster_play_alone(uint32_t servers, uint32_t workers, ClusterPlay play, const void *data);

/* Fails the case and shows the last output of the processes. */
G_NORETURN void cluster_fail(ClusterRun *run, const char *format, ...) G_GNUC_PRINTF(2, 3);

/* Monotonic, the same in all processes. */
int64_t cluster_now_ms(void);

/* ---- inside a node ---- */

/* Writes a line in one piece. */
void cluster_say(const char *format, ...) G_GNUC_PRINTF(1, 2);

/* Leaves the function with an error if the condition does not hold. */
#define EXPECT(condition, ...)                                                                    \
    do                                                                                            \
        if (!(condition)) {                                                                       \
            g_autofree char *expected_ = g_strdup_printf(__VA_ARGS__);                            \
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "%s:%d: not %s: %s", __FILE__, \
                        __LINE__, #condition, expected_);                                         \
            return false;                                                                         \
        }                                                                                         \
    while (0)

/* The same for a call that must fail with that code and a message that contains the text. Frees and
 * clears the error. */
bool cluster_expect_error(GError **found, RubatoError code, const char *text, GError **error);

/* Runs a task of the tables (a list ended by NULL, which may be NULL) with each node's workers. */
bool cluster_run_task(RubatoEngine *engine, const char *name, RubatoTaskFunc function,
                      const void *data, const char *const *tables, GError **error);

#endif
