/* How the messages of collectives cross between nodes. A backend is chosen by its name in the
 * cluster file (`collectives`), so all nodes of a run have the same.
 *
 *   tensor_backend.c  which there are
 *   backend_own.c     "own": by the network that carries all else
 *   mpi/              "mpi": by the MPI of the site
 *
 * What crosses is the same for all of them: the messages of tensor_flow.h. So which values are
 * combined where, and in which order, does not depend on the backend, nor do the bits of results.
 *
 * Threads: any, unless a function says otherwise. */
#ifndef RUBATO_ENGINE_COLLECTIVES_BACKEND_TENSOR_BACKEND_H
#define RUBATO_ENGINE_COLLECTIVES_BACKEND_TENSOR_BACKEND_H

#include "engine/collectives/flow/tensor_message.h"
#include "io/net/post_office/post_office.h"

typedef struct TensorBackend TensorBackend;

/* What a backend needs of its engine. What it points to must outlive the backend. */
typedef struct {
    PostOffice *office;

    /* A message came from the node with that number, for the task of that epoch; takes it over.
     * NULL, or what is wrong: then it does not. Does not block. Not for backends whose messages
     * come by the network. */
    const char *(*receive)(void *user, uint32_t node, uint32_t epoch, const TensorMessage *message,
                           void *owner);

    /* It cannot go on: the run has to end. */
    void (*broke)(void *user, const char *text);
    void *user;
} TensorBackendPlace;

/* See TensorCarrier and TensorLinks, which have the same for one exchange. */
typedef struct {
    void *(*new_message)(TensorBackend *backend, uint32_t node, uint32_t epoch,
                         const TensorMessage *message, void **bytes);
    void *(*share_message)(TensorBackend *backend, uint32_t node, uint32_t epoch,
                           const TensorMessage *message, void *first); /* NULL: it never does */
    void *(*lend_message)(TensorBackend *backend, uint32_t node, uint32_t epoch,
                          const TensorMessage *message, Call *readers); /* NULL: it never does */
    void (*revoke)(TensorBackend *backend);                             /* the same */
    bool (*reads_lent)(TensorBackend *backend, uint32_t node);          /* the same */
    void (*send)(TensorBackend *backend, uint32_t node, void *message);
    void (*send_with_next)(TensorBackend *backend, uint32_t node, void *message); /* NULL: send */
    void (*forget)(TensorBackend *backend, uint32_t node, void *message);
    size_t (*best_bytes)(TensorBackend *backend, uint32_t node); /* NULL: as few as there are */
    void *(*keep)(TensorBackend *backend, void *message, const void **bytes);
    void (*drop)(TensorBackend *backend, void *message);
    bool (*is_full)(TensorBackend *backend, uint32_t node);
    bool (*wait_room)(TensorBackend *backend, uint32_t node, bool (*is_over)(void *data),
                      void *data, int timeout_ms);
    void (*expect)(TensorBackend *backend, bool expects); /* NULL: it always receives */
    bool outlives_losses; /* it carries on between the others after a node is lost */
} TensorWays;

/* All nodes open it, after they have met, and close it at the end of the run. One thread at a
 * time. */
typedef struct {
    const char *name;

    /* Whether it can be opened in this process, of a run of so many nodes, as far as is known
     * before they meet. NULL: it always can. RUBATO_ERROR_CONFIG. */
    bool (*check)(uint32_t n_nodes, GError **error);

    /* May wait until the other nodes open it. RUBATO_ERROR_CONFIG, _NETWORK. (transfer full) */
    TensorBackend *(*open)(const TensorBackendPlace *place, GError **error);

    /* No task is left in this process. patience_ms: how long it may wait for the other nodes to
     * close it. */
    void (*close)(TensorBackend *backend, unsigned patience_ms);
} TensorBackendOps;

/* What each backend begins with. */
struct TensorBackend {
    const TensorBackendOps *ops;
    const TensorWays *ways;
};

#define TENSOR_BACKEND_OWN "own"

/* The names of all, also of those that were not built in; NULL behind the last one. */
const char *tensor_backend_name(size_t i);

/* RUBATO_ERROR_CONFIG: it is not known, or was not built in. (transfer none) */
const TensorBackendOps *tensor_backend_find(const char *name, GError **error);

extern const TensorBackendOps tensor_backend_own;
extern const TensorBackendOps tensor_backend_mpi; /* if it was built in */

#endif
