/* What the files of the backend "mpi" share:
 *
 *   mpi_check.c    whether the processes of a run can use MPI
 *   mpi_thread.c   the thread that calls it
 *   mpi_library.c  the library, which is loaded when a run asks for it
 *   backend_mpi.c  all else: what an exchange calls, and how the backend opens and closes
 *
 * Threads: as backend_mpi.c says. */
#ifndef RUBATO_ENGINE_COLLECTIVES_MPI_PRIVATE_H
#define RUBATO_ENGINE_COLLECTIVES_MPI_PRIVATE_H

#include "engine/collectives/backend/mpi/mpi_library.h"
#include "engine/collectives/backend/tensor_backend.h"

enum { MOST_UNDER_WAY = 64 }; /* of what is received, and of what is sent */

typedef struct MpiBackend MpiBackend;

/* A message: here and in MPI. */
typedef struct {
    uint32_t node; /* from which it comes, or to which it goes */
    bool is_kept;
    size_t n_bytes;
    struct {
        uint64_t epoch;
        uint8_t header[TENSOR_MESSAGE_HEADER_BYTES];
        uint8_t values[]; /* as aligned as the rest */
    } wire __attribute__((aligned(16)));
} Piece;

enum {
    WIRE_HEADER_BYTES = sizeof(uint64_t) + TENSOR_MESSAGE_HEADER_BYTES,
    MOST_WIRE_BYTES = WIRE_HEADER_BYTES + TENSOR_MESSAGE_MOST_BYTES,
};

/* Pieces that MPI has, and its requests for them. */
typedef struct {
    Piece *pieces[MOST_UNDER_WAY];
    MPI_Request requests[MOST_UNDER_WAY];
    uint32_t n;
} UnderWay;

struct MpiBackend {
    TensorBackend base;

    /* immutable */
    TensorBackendPlace place;
    const MpiLibrary *mpi;
    MPI_Comm comm;
    int *rank_of;      /* by node number */
    uint32_t *node_of; /* by rank */
    size_t most_kept;  /* bytes of one node */
    pthread_t thread;

    /* the thread's */
    UnderWay sent, received; /* of `received` the oldest is first */
    uint32_t n_polls;        /* without news */
    uint32_t n_ended;        /* nodes that send no more */

    pthread_mutex_t lock;
    pthread_cond_t news; /* for the thread */
    pthread_cond_t room; /* pieces have gone, or it is broken */
    /* guarded by lock */
    GQueue out;                          /* of Piece */
    size_t *out_bytes;                   /* by node: of those and of `sent` */
    size_t *kept_bytes;                  /* by node */
    uint32_t n_expecting;                /* exchanges */
    bool is_closing, is_broken, is_over; /* it is over: the thread has ended, or will */
    bool has_returned;                   /* the thread calls MPI no more */
};

/* n_bytes: in MPI. NULL: there is no memory. (g_free) */
static inline Piece *mpi_piece_new(uint32_t node, size_t n_bytes)
{
    Piece *const piece =
        n_bytes > SIZE_MAX - sizeof *piece ? NULL : g_try_malloc(sizeof *piece + n_bytes);

    if (piece == NULL)
        return NULL;
    piece->node = node;
    piece->is_kept = false;
    piece->n_bytes = n_bytes;
    return piece;
}

/* ---- mpi_check.c ---- */

/* Sets RUBATO_ERROR_CONFIG, with this text behind the setting. Returns false. */
bool mpi_refuse(GError **error, const char *format, ...) G_GNUC_PRINTF(2, 3);

/* Whether MPI has one process for each node. */
bool mpi_check_count(uint32_t n_nodes, int64_t n_processes, GError **error);

/* What can be known before MPI begins. */
bool mpi_check(uint32_t n_nodes, GError **error);

/* ---- mpi_thread.c ---- */

/* Calls MPI until the backend is closed, or broken. data: the MpiBackend. */
void *mpi_run(void *data);

#endif
