/* The library of Open MPI, which is loaded by nodes that use it: no other program needs it. MPI
 * begins at most once in a process, and ends with it.
 *
 * Threads: as each function says. */
#ifndef RUBATO_ENGINE_COLLECTIVES_BACKEND_MPI_MPI_LIBRARY_H
#define RUBATO_ENGINE_COLLECTIVES_BACKEND_MPI_MPI_LIBRARY_H

#include <stdbool.h>

#include <glib.h>
#include <mpi.h>

/* The functions that the backend calls. */
#define MPI_FUNCTIONS(DO)       \
    DO(MPI_Initialized)         \
    DO(MPI_Finalized)           \
    DO(MPI_Init_thread)         \
    DO(MPI_Query_thread)        \
    DO(MPI_Finalize)            \
    DO(MPI_Comm_dup)            \
    DO(MPI_Comm_free)           \
    DO(MPI_Comm_size)           \
    DO(MPI_Comm_set_errhandler) \
    DO(MPI_Allgather)           \
    DO(MPI_Isend)               \
    DO(MPI_Improbe)             \
    DO(MPI_Get_count)           \
    DO(MPI_Imrecv)              \
    DO(MPI_Test)                \
    DO(MPI_Testsome)            \
    DO(MPI_Error_string)

/* The names of constants would ask the linker for what they stand for, so these are used. */
typedef struct {
#define MPI_POINTER(name) __typeof__(&name) name;
    MPI_FUNCTIONS(MPI_POINTER)
#undef MPI_POINTER
    MPI_Comm world;
    MPI_Datatype byte, uint32;
    MPI_Errhandler errors_return;
} MpiLibrary;

/* Loads it, if it is not loaded yet. NULL with RUBATO_ERROR_CONFIG. It stays loaded. Any thread.
 * (transfer none) */
const MpiLibrary *mpi_library_load(GError **error);

/* Whether MPI can begin in this process, or can be used further. Does not wait.
 * RUBATO_ERROR_CONFIG. Any thread. */
bool mpi_library_check(const MpiLibrary *mpi, GError **error);

/* Begins MPI, unless it has begun, for any threads. All processes of mpirun do it; waits for them.
 * If MPI allows less, it is for one engine of the process at a time, which calls it by one thread
 * at a time. RUBATO_ERROR_CONFIG: it cannot begin here. Otherwise mpi_library_end follows. Any
 * thread. */
bool mpi_library_begin(const MpiLibrary *mpi, GError **error);

/* The engine calls MPI no more. Once none does, MPI ends with the process. Any thread. */
void mpi_library_end(void);

/* MPI is not to be ended at the end of the process: it would wait for processes that may be gone.
 * Then mpirun says that the process has not ended it. Any thread. */
void mpi_library_forget(void);

/* (transfer full) */
char *mpi_library_explain(const MpiLibrary *mpi, int code);

#endif
