/* Whether the processes of a run can use MPI: see backend_mpi.c. */
#include <rubato/error.h>

#include "engine/cluster/jobs/job_environment.h"
#include "engine/collectives/backend/mpi/mpi_private.h"

bool mpi_refuse(GError **error, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    g_autofree char *text = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CONFIG, "collectives = \"mpi\": %s", text);
    return false;
}

/* Open MPI ends with the first connection to mpirun that ends (open_mpi.c). */
static bool check_place(const MpiLibrary *mpi, GError **error)
{
    const char *const space = g_getenv("PMIX_NAMESPACE");
    int has_begun = 0;

    mpi->MPI_Initialized(&has_begun);
    return has_begun || space == NULL || job_recall(space) == NULL ||
           mpi_refuse(error,
                      "Rubato has asked mpirun where node 0 runs, and MPI cannot begin behind "
                      "that; set RUBATO_SCHEDULER=HOST:PORT to where it does");
}

bool mpi_check_count(uint32_t n_nodes, int64_t n_processes, GError **error)
{
    return n_processes == (int64_t)n_nodes ||
           mpi_refuse(error,
                      "the run has %u nodes, but MPI %" G_GINT64_FORMAT
                      " process(es); start each node "
                      "by one and the same mpirun, or by srun --mpi=pmix",
                      n_nodes, n_processes);
}

/* Hydra speaks PMI-1, where Open MPI asks for PMIx: each process would be an MPI of one. */
static bool check_starter(GError **error)
{
    return g_getenv("OMPI_COMM_WORLD_SIZE") != NULL || g_getenv("PMI_FD") == NULL ||
           g_getenv("MPI_LOCALNRANKS") == NULL ||
           mpi_refuse(error,
                      "MPICH's mpiexec has started this process, and Open MPI's library finds no "
                      "other one by it; start the nodes by Open MPI's mpirun, or leave this "
                      "setting out, and collectives go over Rubato's own network");
}

/* Open MPI would say that it was built wrongly, and end the process. A program that has begun MPI
 * did so by some way of its own. */
static bool check_step(const MpiLibrary *mpi, GError **error)
{
    int has_begun = 0;

    mpi->MPI_Initialized(&has_begun);
    return has_begun || g_getenv("SLURM_PROCID") == NULL || g_getenv("PMIX_RANK") != NULL ||
           g_getenv("PMI_RANK") != NULL ||
           mpi_refuse(error,
                      "this is a step of Slurm, and its tasks have no PMIx, by which MPI finds "
                      "the others; start them by srun --mpi=pmix");
}

/* If mpirun says how many processes it has started. MPI would wait for all of them, and those that
 * are no nodes do not come. */
static bool check_started(uint32_t n_nodes, GError **error)
{
    const char *const text = g_getenv("OMPI_COMM_WORLD_SIZE");
    guint64 n_processes;

    if (text == NULL || !g_ascii_string_to_unsigned(text, 10, 1, INT32_MAX, &n_processes, NULL))
        return true;
    return mpi_check_count(n_nodes, (int64_t)n_processes, error);
}

bool mpi_check(uint32_t n_nodes, GError **error)
{
    const MpiLibrary *const mpi = mpi_library_load(error);

    return mpi != NULL && mpi_library_check(mpi, error) && check_place(mpi, error) &&
           check_starter(error) && check_step(mpi, error) && check_started(n_nodes, error);
}
