/* A node that plays the conformance suite of collectives (tensor_suite.h) with those that start
 * with it, whatever starts them: test_mpi_collectives.sh. Its arguments are those of any program.
 * Prints one line; exits with 1 and the error if something was wrong.
 *
 *     collectives_node [--workers N] [PART...]
 *
 * Two parts are played alone: "exits" ends node 0 while it has an engine, and "finalizes" ends MPI
 * behind the engine. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/engine/tensor_suite.h"

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
} parts[] = {
    { "operations", tensor_suite_operations },
    { "sets", tensor_suite_sets },
    { "much", tensor_suite_much },
    { "sums", tensor_suite_sums },
    { "numbers", tensor_suite_numbers },
    { "compression", tensor_suite_compression },
    { "repeats", tensor_suite_repeats },
    { "forks", play_forks },
    { "exits", play_exits },
};

static bool play(RubatoEngine *engine, char *const *chosen, GError **error)
{
    for (size_t i = 0; i < G_N_ELEMENTS(parts); i++)
        if ((*chosen == NULL ? parts[i].play != play_exits
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
