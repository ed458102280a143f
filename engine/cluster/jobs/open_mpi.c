/* A process that mpirun of Open MPI has started: what its variables and PMIx say.
 *
 * The variables say which process this is, but not on which host rank 0 runs. The daemon of mpirun
 * on this host knows it, and tells it by PMIx; MPI itself is not begun. The library is loaded only
 * then, so that no other program needs it.
 *
 * Runs as job_place.h says. */
#include <rubato/error.h>
#include <stdlib.h>
#include <string.h>
#ifdef RUBATO_HAS_PMIX
#include <dlfcn.h>
#include <pmix.h>
#endif

#include "engine/cluster/cluster_file.h"
#include "engine/cluster/jobs/job_environment.h"
#include "engine/cluster/jobs/job_place.h"
#include "engine/cluster/jobs/job_port.h"

static const JobStarter STARTER = { "mpirun of Open MPI has started this process", "mpirun" };

static bool refuse(GError **error, const char *why)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "%s on one of several hosts, and %s, so nobody knows where process 0 runs; set "
                "RUBATO_SCHEDULER=HOST:PORT to where it does",
                STARTER.started, why);
    return false;
}

#ifdef RUBATO_HAS_PMIX

typedef struct {
    void *library;
    __typeof__(&PMIx_Init) init;
    __typeof__(&PMIx_Get) get;
    __typeof__(&PMIx_Finalize) finalize;
    __typeof__(&PMIx_Error_string) error_string;
} Pmix;

/* POSIX lets a pointer to data become one to a function; C does not. */
static bool find_function(const Pmix *pmix, const char *name, void *function)
{
    void *const address = dlsym(pmix->library, name);

    memcpy(function, &address, sizeof address);
    return address != NULL;
}

/* The library stays loaded: it leaves handlers of its own in the process. */
static bool load(Pmix *pmix, GError **error)
{
    pmix->library = dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);
    if (pmix->library == NULL)
        return refuse(error, dlerror());
    if (!find_function(pmix, "PMIx_Init", &pmix->init) ||
        !find_function(pmix, "PMIx_Get", &pmix->get) ||
        !find_function(pmix, "PMIx_Finalize", &pmix->finalize) ||
        !find_function(pmix, "PMIx_Error_string", &pmix->error_string))
        return refuse(error, "libpmix.so.2 has not the functions of PMIx");
    return true;
}

/* The daemon is on this host, and knows all processes of the job, so it answers at once. */
static bool ask_host(const Pmix *pmix, const char **host, GError **error)
{
    pmix_proc_t self, first;
    pmix_value_t *value = NULL;
    pmix_status_t status = pmix->init(&self, NULL, 0);

    if (status != PMIX_SUCCESS)
        return refuse(error, pmix->error_string(status));
    memset(&first, 0, sizeof first);
    memcpy(first.nspace, self.nspace, sizeof first.nspace);
    first.rank = 0;
    status = pmix->get(&first, PMIX_HOSTNAME, NULL, 0, &value);
    if (status == PMIX_SUCCESS && value->type == PMIX_STRING) {
        *host = g_intern_string(value->data.string);
        free(value->data.string); /* as PMIX_VALUE_RELEASE does, which needs the library */
    }
    free(value);
    pmix->finalize(NULL, 0);
    if (*host == NULL && status == PMIX_SUCCESS)
        return refuse(error, "it names no host");
    return *host != NULL || refuse(error, pmix->error_string(status));
}

static bool find_host_of_first(const char **host, GError **error)
{
    Pmix pmix;

    return load(&pmix, error) && ask_host(&pmix, host, error);
}

#else

static bool find_host_of_first(const char **host G_GNUC_UNUSED, GError **error)
{
    return refuse(error, "Rubato was built without libpmix");
}

#endif

/* Processes of one host need no network. MPI cannot begin after PMIx has ended. */
static bool find_host(JobPlace *place, const char *job, uint32_t n_local, GError **error)
{
    bool has_begun;

    place->host = n_local == place->size ? "127.0.0.1" : job_recall(job);
    if (place->host != NULL || g_getenv("RUBATO_SCHEDULER") != NULL)
        return true;
    if (job_uses_mpi(&has_begun) && !has_begun)
        return refuse(error, "the program uses MPI, but calls MPI_Init after it makes the engine");
    if (!find_host_of_first(&place->host, error))
        return false;
    job_remember(job, place->host);
    return true;
}

static bool find(JobPlace *place, GError **error)
{
    const char *const space = g_getenv("PMIX_NAMESPACE");
    JobPlace found = { .system = "Open MPI" };
    uint32_t n_local;

    if (g_getenv("OMPI_COMM_WORLD_SIZE") == NULL || space == NULL)
        return true;
    if (!job_read_number(&STARTER, "OMPI_COMM_WORLD_SIZE", 1, CLUSTER_MAX_NODES, &found.size,
                         error) ||
        !job_read_number(&STARTER, "OMPI_COMM_WORLD_RANK", 0, found.size - 1, &found.rank, error) ||
        !job_read_number(&STARTER, "OMPI_COMM_WORLD_LOCAL_SIZE", 1, found.size, &n_local, error) ||
        !find_host(&found, space, n_local, error))
        return false;
    found.port = job_port_of(space);
    *place = found;
    return true;
}

const JobSystem job_system_open_mpi = { .name = "Open MPI", .find = find };
