/* A node that plays the conformance suite of collectives (tensor_suite.h) with those that start
 * with it, whatever starts them: test_mpi_collectives.sh. Its arguments are those of any program.
 * Prints one line; exits with 1 and the error if something was wrong.
 *
 *     collectives_node [--workers N] [PART...]
 *
 * Some parts are played alone: "exits" ends node 0 while it has an engine, "finalizes" ends MPI
 * behind the engine, and of three nodes "loses" kills node 1 while operations of every kind are
 * pending, "loses-scheduler" node 0 while values cross. */
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/cluster/pending_calls.h"
#include "tests/support/collectives/tensor_suite.h"
#include "tests/support/engine/engine_fixture.h"

/* A child that ends as programs do has nothing to do with its parent's MPI. */
static bool play_forks(RubatoEngine *engine, uint32_t n_workers, GError **error)
{
    const pid_t child = fork();
    int status = 0;

    (void)n_workers;
    if (child == 0)
        exit(0);
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "a forked process ended with %d",
                    status);
        return false;
    }
    return rubato_engine_barrier(engine, error);
}

/* The others wait for node 0, and hear that it is lost. */
static bool play_exits(RubatoEngine *engine, uint32_t n_workers, GError **error)
{
    (void)n_workers;
    if (!rubato_engine_barrier(engine, error))
        return false;
    if (rubato_engine_node(engine) == 0)
        exit(3);
    return rubato_engine_barrier(engine, error);
}

/* ---- a node is killed ---- */

enum { N_VALUES = 1 << 19, STEPS_BEFORE = 5 };

typedef struct {
    bool (*run)(RubatoWorker *worker, uint32_t lost, GError **error);
    uint32_t lost; /* node */
    GError *wrong;
} Loss;

static bool names_node(const GError *failure, uint32_t node)
{
    g_autofree char *name = g_strdup_printf("node %u ", node);

    return strstr(failure->message, name) != NULL;
}

static bool is_of_node(const GError *failure, uint32_t node)
{
    return g_error_matches(failure, RUBATO_ERROR, RUBATO_ERROR_CANCELLED) &&
           names_node(failure, node);
}

static bool is_of_pending_lost(const GError *failure)
{
    return is_of_node(failure, PENDING_LOST);
}

static bool wait_for_lost(RubatoWorker *worker, uint32_t lost, GError **error)
{
    PendingCalls *const calls = pending_calls_new(N_VALUES);
    g_autoptr(GError) failure = NULL;
    g_autoptr(GError) later = NULL;
    bool ok;

    TRY(rubato_worker_named_barrier(worker, "begin", error));
    if (rubato_worker_rank(worker) == lost)
        return pending_calls_be_lost(worker, calls, SIGKILL, error);
    ok = pending_calls_fail(worker, calls, is_of_pending_lost, &failure, error);
    pending_calls_free(calls);
    TRY(ok);
    REQUIRE(!rubato_worker_named_barrier(worker, "later", &later));
    REQUIRE(is_of_pending_lost(later), "(%s)", later->message);
    return true;
}

/* Values cross when the node goes. */
static bool train_until_lost(RubatoWorker *worker, uint32_t lost, GError **error)
{
    g_autofree float *values = g_new0(float, N_VALUES);
    const RubatoTensor tensor = { .name = "grad",
                                  .dtype = RUBATO_F32,
                                  .n_dims = 1,
                                  .shape = { N_VALUES },
                                  .input = values,
                                  .output = values };
    g_autoptr(GError) failure = NULL;
    RubatoTicket ticket;

    for (uint32_t step = 0;; step++) {
        ticket = rubato_worker_allreduce_async(worker, &tensor, NULL, NULL, &failure);
        if (step == STEPS_BEFORE && rubato_worker_rank(worker) == lost)
            raise(SIGKILL);
        if (ticket == 0 || !rubato_worker_wait(worker, ticket, &failure))
            break;
    }
    REQUIRE(is_of_node(failure, lost), "(%s)", failure->message);
    return true;
}

static bool be_there(RubatoWorker *worker, void *user_data, GError **error)
{
    Loss *const loss = user_data;

    (void)error;
    return loss->run(worker, loss->lost, &loss->wrong);
}

/* The task ends with the node, whatever a worker returns. */
static bool play_loss(RubatoEngine *engine, Loss loss, GError **error)
{
    const RubatoTask task = { .name = "work", .run = be_there, .user_data = &loss };
    g_autoptr(GError) failure = NULL;
    const bool ok = rubato_engine_run(engine, &task, &failure);

    if (loss.wrong != NULL) {
        g_propagate_error(error, loss.wrong);
        return false;
    }
    REQUIRE(!ok && names_node(failure, loss.lost), "(%s)", ok ? "it ends well" : failure->message);
    return true;
}

static bool play_loses(RubatoEngine *engine, uint32_t n_workers, GError **error)
{
    (void)n_workers;
    return play_loss(engine, (Loss){ .run = wait_for_lost, .lost = PENDING_LOST }, error);
}

/* Node 0 is the scheduler. */
static bool play_loses_scheduler(RubatoEngine *engine, uint32_t n_workers, GError **error)
{
    (void)n_workers;
    return play_loss(engine, (Loss){ .run = train_until_lost, .lost = 0 }, error);
}

/* MPI is loaded, and not linked. */
static bool end_mpi(void)
{
    void *const address = dlsym(RTLD_DEFAULT, "MPI_Finalize");
    int (*finalize)(void);

    memcpy(&finalize, &address, sizeof finalize);
    return address != NULL && finalize() == 0;
}

static const struct {
    const char *name;
    TensorSuitePart play;
    bool is_last; /* the run ends with it */
} parts[] = {
    { "dtypes", tensor_suite_dtypes, false },
    { "operations", tensor_suite_operations, false },
    { "sets", tensor_suite_sets, false },
    { "much", tensor_suite_much, false },
    { "sums", tensor_suite_sums, false },
    { "numbers", tensor_suite_numbers, false },
    { "compression", tensor_suite_compression, false },
    { "repeats", tensor_suite_repeats, false },
    { "forks", play_forks, false },
    { "exits", play_exits, true },
    { "loses", play_loses, true },
    { "loses-scheduler", play_loses_scheduler, true },
};

static bool play(RubatoEngine *engine, char *const *chosen, GError **error)
{
    for (size_t i = 0; i < G_N_ELEMENTS(parts); i++)
        if ((*chosen == NULL ? !parts[i].is_last
                             : g_strv_contains((const char *const *)chosen, parts[i].name)) &&
            !parts[i].play(engine, rubato_engine_n_workers(engine), error)) {
            g_prefix_error(error, "%s: ", parts[i].name);
            return false;
        }
    return true;
}

static int play_all(int argc, char **argv)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(RubatoEngine) engine = rubato_engine_new_from_args(&argc, &argv, &error);

    if (engine == NULL || !play(engine, argv + 1, &error)) {
        g_printerr("collectives_node: %s\n", error->message);
        return 1;
    }
    g_print("collectives are right\n");
    return 0;
}

int main(int argc, char **argv)
{
    const bool finalizes = argc == 2 && strcmp(argv[1], "finalizes") == 0;
    const int code = play_all(argc, argv);

    return finalizes && !end_mpi() ? 1 : code;
}
