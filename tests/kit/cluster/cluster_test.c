/* Runs of a function on several engines of one process, which talk over a network with faults.
 *
 * Threads: the test case's, which waits, and one for each node. */
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <rubato/error.h>
#include <rubato/testing.h>

#include "tests/kit/trial.h"

enum {
    MOST_NODES = 8,
    USUAL_PATIENCE_S = 60,
    LIMIT_MS = 60000, /* so that a busy machine loses nobody */
};

typedef struct Run Run;

typedef struct {
    Run *run;
    uint32_t id;
    RubatoEngine *engine; /* guarded by the run's lock; NULL: not there yet, or about to end */
    GError *error;        /* read when the thread has ended */
    bool has_failed;
    pthread_t thread;
} Node;

struct Run {
    const RubatoClusterTest *test;
    uint64_t seed;
    RubatoWireFaults faults;
    uint32_t n_nodes;
    char *path; /* of the cluster file */
    int port_fd, file_fd;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    uint32_t n_ended; /* guarded by lock */
    Node nodes[MOST_NODES];
};

/* ---- the cluster file ---- */

/* A port of the loopback that is the scheduler's: a socket is bound to it and does not listen, so
 * nobody else gets the port. 0: there is none. */
static uint16_t reserve_port(Run *run)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t size = sizeof address;
    const int one = 1;

    run->port_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (run->port_fd < 0 ||
        setsockopt(run->port_fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
        bind(run->port_fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        getsockname(run->port_fd, (struct sockaddr *)&address, &size) != 0)
        return 0;
    return ntohs(address.sin_port);
}

static bool write_cluster_file(Run *run)
{
    g_autoptr(GString) text = g_string_new("cluster: { name = \"test\";\n");

    g_string_append_printf(text,
                           "scheduler = { host = \"127.0.0.1\"; port = %u; };\n"
                           "heartbeat_ms = 200; timeout_ms = %d; rendezvous_ms = %d;\n"
                           "transport = \"tcp\"; nodes = (",
                           reserve_port(run), LIMIT_MS, LIMIT_MS);
    for (uint32_t i = 0; i < run->n_nodes; i++)
        g_string_append_printf(
            text, "%s{ id = %u; host = \"127.0.0.1\"; port = 0; servers = %u; workers = %u; }",
            i == 0 ? "" : ",\n", i, MAX(1, run->test->servers), MAX(1, run->test->workers));
    g_string_append(text, "); };\n");
    run->file_fd = memfd_create("cluster", MFD_CLOEXEC);
    run->path = g_strdup_printf("/proc/self/fd/%d", run->file_fd);
    return run->file_fd >= 0 && write(run->file_fd, text->str, text->len) == (ssize_t)text->len;
}

/* ---- nodes ---- */

static void set_engine(Node *node, RubatoEngine *engine)
{
    pthread_mutex_lock(&node->run->lock);
    node->engine = engine;
    pthread_mutex_unlock(&node->run->lock);
}

static void *be_node(void *data)
{
    Node *node = data;
    Run *run = node->run;
    const RubatoEngineConfig config = { .cluster_file = run->path, .node = node->id };
    RubatoEngine *engine = rubato_engine_new_with_faults(&config, &run->faults, &node->error);

    if (engine == NULL) {
        node->has_failed = true;
    } else {
        set_engine(node, engine);
        node->has_failed = !run->test->play(engine, run->test->user, &node->error);
        set_engine(node, NULL); /* nobody cancels it any more */
        rubato_engine_free(engine);
    }
    pthread_mutex_lock(&run->lock);
    run->n_ended++;
    pthread_cond_signal(&run->ended);
    pthread_mutex_unlock(&run->lock);
    return NULL;
}

/* Waits for all nodes. False: some have not ended in time. */
static bool wait_for_nodes(Run *run, uint32_t seconds)
{
    struct timespec until;
    int status = 0;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += seconds;
    pthread_mutex_lock(&run->lock);
    while (run->n_ended < run->n_nodes && status == 0)
        status = pthread_cond_timedwait(&run->ended, &run->lock, &until);
    const bool all_ended = run->n_ended == run->n_nodes;
    pthread_mutex_unlock(&run->lock);
    return all_ended;
}

static void cancel_tasks(Run *run)
{
    pthread_mutex_lock(&run->lock);
    for (uint32_t i = 0; i < run->n_nodes; i++)
        if (run->nodes[i].engine != NULL)
            rubato_engine_cancel(run->nodes[i].engine);
    pthread_mutex_unlock(&run->lock);
}

/* ---- a seed ---- */

static void describe(const Run *run, GString *text)
{
    const RubatoWireFaults *faults = &run->faults;

    g_string_append_printf(text,
                           "seed %" G_GUINT64_FORMAT ": %u nodes of %u servers and %u workers; "
                           "loss %g, doubling %g, reordering %g, cut %g for %u ms\n",
                           run->seed, run->n_nodes, MAX(1, run->test->servers),
                           MAX(1, run->test->workers), faults->loss, faults->doubling,
                           faults->reordering, faults->cut, faults->cut_ms);
}

static RubatoWireFaults draw_faults(const RubatoClusterTest *test, uint64_t seed)
{
    GRand *random = trial_random(seed, 1);
    RubatoWireFaults faults = {
        .loss = g_rand_double_range(random, 0, 0.03),
        .doubling = g_rand_double_range(random, 0, 0.2),
        .reordering = g_rand_double_range(random, 0, 0.1),
        .cut = g_rand_double_range(random, 0, 0.002),
        .cut_ms = 20 + pick(random, 100),
    };

    g_rand_free(random);
    if (test->faults != NULL)
        faults = *test->faults;
    faults.seed = seed;
    return faults;
}

/* Tells what each node that failed says; the nodes that were only cancelled come last. */
static char *tell_failures(const Run *run, bool ended_in_time)
{
    GString *text = g_string_new(NULL);

    if (!ended_in_time)
        g_string_append(text, "the nodes did not end in time\n");
    for (int cancelled = 0; cancelled < 2; cancelled++)
        for (uint32_t i = 0; i < run->n_nodes; i++) {
            const Node *node = &run->nodes[i];

            if (node->has_failed &&
                cancelled == g_error_matches(node->error, RUBATO_ERROR, RUBATO_ERROR_CANCELLED))
                g_string_append_printf(text, "node %u: %s\n", i,
                                       node->error == NULL ? "it failed and did not say why"
                                                           : node->error->message);
        }
    if (text->len > 0) {
        describe(run, text);
        return g_string_free(text, FALSE);
    }
    g_string_free(text, TRUE);
    return NULL;
}

static char *run_nodes(Run *run)
{
    for (uint32_t i = 0; i < run->n_nodes; i++) {
        run->nodes[i] = (Node){ .run = run, .id = i };
        if (pthread_create(&run->nodes[i].thread, NULL, be_node, &run->nodes[i]) != 0)
            g_error("cannot start a thread for a node");
    }
    const bool ended_in_time =
        wait_for_nodes(run, run->test->patience_s == 0 ? USUAL_PATIENCE_S : run->test->patience_s);
    bool have_ended = ended_in_time;
    /* Again and again: a task may begin only now. */
    for (uint32_t i = 0; i < USUAL_PATIENCE_S && !have_ended; i++) {
        cancel_tasks(run);
        have_ended = wait_for_nodes(run, 1);
    }
    if (!have_ended) { /* their threads cannot be ended */
        g_autoptr(GString) text = g_string_new(NULL);

        describe(run, text);
        g_error("nodes have not ended, nor when their tasks were cancelled: %s", text->str);
    }
    for (uint32_t i = 0; i < run->n_nodes; i++)
        pthread_join(run->nodes[i].thread, NULL);
    char *story = tell_failures(run, ended_in_time);
    for (uint32_t i = 0; i < run->n_nodes; i++)
        g_clear_error(&run->nodes[i].error);
    return story;
}

static char *run_seed(const void *data, uint64_t seed)
{
    const RubatoClusterTest *test = data;
    Run *run = g_new0(Run, 1);
    pthread_condattr_t attributes;

    run->test = test;
    run->seed = seed;
    run->faults = draw_faults(test, seed);
    run->n_nodes = test->n_nodes == 0 ? 2 : MIN(test->n_nodes, MOST_NODES);
    pthread_mutex_init(&run->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&run->ended, &attributes);
    pthread_condattr_destroy(&attributes);
    char *story = write_cluster_file(run) ? run_nodes(run)
                                          : g_strdup("there is no memory for a cluster file\n");
    pthread_cond_destroy(&run->ended);
    pthread_mutex_destroy(&run->lock);
    close(run->port_fd);
    close(run->file_fd);
    g_free(run->path);
    g_free(run);
    return story;
}

char *rubato_test_cluster_story(const RubatoClusterTest *test)
{
    return trial_run_seeds(test->first_seed, test->n_seeds == 0 ? 1 : test->n_seeds, run_seed,
                           test);
}
