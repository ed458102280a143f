#include "engine/collectives/backend/mpi/mpi_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <rubato/error.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static MpiLibrary library; /* guarded by lock until is_loaded */
static bool is_loaded;
static _Atomic bool is_forgotten;

/* Held while MPI begins, which may wait for other processes. */
static pthread_mutex_t beginning = PTHREAD_MUTEX_INITIALIZER;
/* guarded by beginning */
static bool is_own; /* an engine has begun MPI */
static int level;   /* of threads that MPI gave it */
/* written before end_with_process is registered */
static _Atomic pid_t own_process; /* that has begun MPI; 0: none has */
static _Atomic unsigned n_open;   /* backends between mpi_library_begin and mpi_library_end */

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

/* MPI waits here for the processes that have not ended it. Three kinds of process must not do so:
 *
 * - One that exits while an engine lives. The engine's thread still calls MPI, and the other nodes
 *   wait for this one.
 * - A fork of the one that began MPI: the connections are not its own.
 * - One that has ended MPI itself.
 *
 * No other thread may make an engine meanwhile. */
static void end_with_process(void)
{
    int has_ended = 0;

    if (atomic_load(&own_process) != getpid() || atomic_load(&n_open) > 0 ||
        atomic_load(&is_forgotten))
        return;
    library.MPI_Finalized(&has_ended);
    if (!has_ended)
        library.MPI_Finalize();
}

static bool refuse(GError **error, const char *why)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CONFIG, "collectives = \"mpi\": %s", why);
    return false;
}

bool mpi_library_check(const MpiLibrary *mpi, GError **error)
{
    const pid_t process = atomic_load(&own_process);
    int has_ended = 0;

    if (process != 0 && process != getpid())
        return refuse(error, "MPI belongs to the process that this one was forked from");
    if (process != 0 && atomic_load(&is_forgotten))
        return refuse(error, "an earlier run of this process has lost nodes, and MPI with them");
    mpi->MPI_Finalized(&has_ended);
    return !has_ended || refuse(error, "MPI has ended in this process, and cannot begin again");
}

/* The program has begun it, and its threads may call it at any time. */
static bool check_program(const MpiLibrary *mpi, GError **error)
{
    int given = MPI_THREAD_SINGLE;

    mpi->MPI_Query_thread(&given);
    return given == MPI_THREAD_MULTIPLE ||
           refuse(error, "the program has begun MPI without MPI_THREAD_MULTIPLE, and a thread of "
                         "the engine has to call it, too");
}

/* MPI has begun, for this engine or for an earlier one. */
static bool check_level(GError **error)
{
    if (level < MPI_THREAD_SERIALIZED)
        return refuse(error, "this MPI can be called by the program's main thread alone");
    return level == MPI_THREAD_MULTIPLE || atomic_load(&n_open) == 0 ||
           refuse(error, "this MPI can be called by one thread at a time, and another engine of "
                         "this process uses it");
}

/* The program's threads may call MPI while an engine's does, and so may another engine's. */
static bool begin(const MpiLibrary *mpi, GError **error)
{
    struct sigaction before[G_N_ELEMENTS(signals)];

    for (size_t i = 0; i < G_N_ELEMENTS(signals); i++)
        (void)sigaction(signals[i], NULL, &before[i]);
    const int code = mpi->MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    for (size_t i = 0; i < G_N_ELEMENTS(signals); i++)
        (void)sigaction(signals[i], &before[i], NULL);
    if (code != MPI_SUCCESS)
        return refuse(error, "MPI_Init_thread failed");
    is_own = true;
    atomic_store(&own_process, getpid());
    atexit(end_with_process);
    return true;
}

bool mpi_library_begin(const MpiLibrary *mpi, GError **error)
{
    int has_begun = 0;
    bool ok = false;

    if (!mpi_library_check(mpi, error))
        return false;
    pthread_mutex_lock(&beginning);
    mpi->MPI_Initialized(&has_begun);
    if (has_begun && !is_own)
        ok = check_program(mpi, error);
    else
        ok = (has_begun || begin(mpi, error)) && check_level(error);
    if (ok)
        atomic_fetch_add(&n_open, 1);
    pthread_mutex_unlock(&beginning);
    return ok;
}

void mpi_library_end(void)
{
    atomic_fetch_sub(&n_open, 1);
}

void mpi_library_forget(void)
{
    atomic_store(&is_forgotten, true);
}

char *mpi_library_explain(const MpiLibrary *mpi, int code)
{
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int n = 0;

    if (mpi->MPI_Error_string(code, text, &n) != MPI_SUCCESS)
        return g_strdup_printf("MPI's error %d", code);
    return g_strdup(text);
}
