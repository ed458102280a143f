#include "engine/collectives/backend/mpi/mpi_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <rubato/error.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static MpiLibrary library; /* guarded by lock until is_loaded */
static bool is_loaded;
static _Atomic bool is_forgotten;

/* MPI handles these when it begins. They are the program's. */
static const int signals[] = { SIGABRT, SIGBUS, SIGFPE, SIGSEGV };

/* POSIX lets a pointer to data become one to a function; C does not. */
static bool find_function(void *handle, const char *name, void *function)
{
    void *const address = dlsym(handle, name);

    memcpy(function, &address, sizeof address);
    return address != NULL;
}

/* What Open MPI's constants are the addresses of. The lock is held. */
static const char *find_constants(void *handle)
{
    static const char *const names[] = { "ompi_mpi_comm_world", "ompi_mpi_byte",
                                         "ompi_mpi_uint32_t", "ompi_mpi_errors_return" };
    void *found[G_N_ELEMENTS(names)];

    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        found[i] = dlsym(handle, names[i]);
        if (found[i] == NULL)
            return names[i];
    }
    library.world = found[0];
    library.byte = found[1];
    library.uint32 = found[2];
    library.errors_return = found[3];
    return NULL;
}

/* Its own plug-ins look for its symbols among those of the whole process. The lock is held. */
static bool load(GError **error)
{
    void *const handle = dlopen("libmpi.so.40", RTLD_NOW | RTLD_GLOBAL);

    if (handle == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CONFIG,
                    "cannot load Open MPI, which collectives = \"mpi\" needs: %s", dlerror());
        return false;
    }
    const char *missing = find_constants(handle);
#define MPI_FIND(name)                                \
    if (!find_function(handle, #name, &library.name)) \
        missing = #name;
    MPI_FUNCTIONS(MPI_FIND)
#undef MPI_FIND
    if (missing != NULL)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CONFIG,
                    "this machine's Open MPI has no %s, which collectives = \"mpi\" needs",
                    missing);
    return missing == NULL;
}

const MpiLibrary *mpi_library_load(GError **error)
{
    pthread_mutex_lock(&lock);
    is_loaded = is_loaded || load(error);
    const bool found = is_loaded;
    pthread_mutex_unlock(&lock);
    return found ? &library : NULL;
}

/* MPI waits here for the processes that have not ended it. */
static void end_with_process(void)
{
    /* relaxed: no thread of an engine is left */
    if (!atomic_load_explicit(&is_forgotten, memory_order_relaxed))
        library.MPI_Finalize();
}

static bool refuse(GError **error, const char *why)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CONFIG, "collectives = \"mpi\": %s", why);
    return false;
}

/* The program may have begun it, and then its threads may call it at any time. */
static bool check_begun(const MpiLibrary *mpi, GError **error)
{
    int level = MPI_THREAD_SINGLE, has_ended = 0;

    mpi->MPI_Finalized(&has_ended);
    if (has_ended)
        return refuse(error, "MPI has ended in this process, and cannot begin again");
    mpi->MPI_Query_thread(&level);
    return level == MPI_THREAD_MULTIPLE ||
           refuse(error, "the program has begun MPI without MPI_THREAD_MULTIPLE, and a thread of "
                         "the engine has to call it, too");
}

bool mpi_library_begin(const MpiLibrary *mpi, GError **error)
{
    static bool is_own; /* the thread of the engine's calls alone */
    struct sigaction before[G_N_ELEMENTS(signals)];
    int has_begun = 0, level = MPI_THREAD_SINGLE;

    /* relaxed: an earlier engine's threads have been joined */
    if (is_own && atomic_load_explicit(&is_forgotten, memory_order_relaxed))
        return refuse(error, "an earlier run of this process has lost nodes, and MPI with them");
    mpi->MPI_Initialized(&has_begun);
    if (has_begun)
        return is_own || check_begun(mpi, error);
    for (size_t i = 0; i < G_N_ELEMENTS(signals); i++)
        (void)sigaction(signals[i], NULL, &before[i]);
    const int code = mpi->MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    for (size_t i = 0; i < G_N_ELEMENTS(signals); i++)
        (void)sigaction(signals[i], &before[i], NULL);
    if (code != MPI_SUCCESS)
        return refuse(error, "MPI_Init_thread failed");
    is_own = true;
    atexit(end_with_process);
    return level >= MPI_THREAD_SERIALIZED ||
           refuse(error, "this MPI can be called by the program's main thread alone");
}

void mpi_library_forget(void)
{
    atomic_store_explicit(&is_forgotten, true, memory_order_relaxed); /* see end_with_process */
}

char *mpi_library_explain(const MpiLibrary *mpi, int code)
{
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int n = 0;

    if (mpi->MPI_Error_string(code, text, &n) != MPI_SUCCESS)
        return g_strdup_printf("MPI's error %d", code);
    return g_strdup(text);
}
