/* What the files of this folder share. See services.h. */
#ifndef RUBATO_ENGINE_SERVICES_SERVICES_PRIVATE_H
#define RUBATO_ENGINE_SERVICES_SERVICES_PRIVATE_H

#include <pthread.h>

#include "engine/control/control.h"
#include "engine/services/service_message.h"
#include "engine/services/services.h"

/* Requests to one node that it has not answered. Of those that a node takes of another one twice as
 * many: no node has more. */
#define MOST_OPEN 1024u

/* A body that comes in pieces, or has come. */
typedef struct {
    uint8_t *bytes;
    size_t n, room;
} ServiceBody;

/* A request that this node has to answer. */
typedef struct {
    uint32_t node; /* number of the node that asks */
    uint64_t serial;
    char name[RUBATO_SERVICE_NAME_BYTES];
    GBytes *local;    /* of this node's own request: its body; else NULL */
    ServiceBody body; /* of another node's */
    uint64_t n_whole;
    uint64_t n_kept; /* of the bytes that are kept of its node */
    bool is_whole;   /* all of it has come */
    bool is_held;    /* in a room of a barrier */
    uint32_t code;   /* CONTROL_OK, or why it cannot be answered */
    char *text;
} ServiceJob;

/* A thread that works off jobs. */
typedef struct ServiceRunner {
    char *name;
    RubatoServiceFunc function; /* NULL: the clerk, who answers what no service does */
    void *user_data;
    pthread_t thread;
    GQueue jobs;
    ServiceJob *running;
    bool has_thread;
    bool is_ending;
    struct ServiceRunner *awaited; /* whose end its function waits for; NULL: nobody's */
} ServiceRunner;

/* An answer of this node's request. */
typedef struct {
    uint32_t node;
    uint64_t serial; /* 0: the request is not on its way */
    size_t n_sent;
    bool is_sent, is_done;
    ServiceBody body;
    GBytes *bytes;
    GError *error;
} ServiceReply;

struct RubatoServiceCall {
    /* immutable once made */
    Services *services;
    char *name;
    const uint8_t *bytes; /* the caller's, until services_request returns */
    size_t n_bytes;
    uint32_t n;
    int64_t began_ms, end_ms;
    uint32_t epoch; /* of the task whose worker asks; 0: nobody's */

    /* guarded by the services' lock */
    ServiceReply *replies;
    uint32_t *order; /* the places of those that are done, as they came */
    uint32_t n_done, n_told;
    bool is_cancelled; /* with the task */
};

/* A request that is on its way. */
typedef struct {
    RubatoServiceCall *call; /* NULL: nobody waits any more */
    uint32_t place;
    uint32_t node;
} ServicePending;

struct Services {
    /* immutable */
    PostOffice *office;
    char *const *node_names;
    uint64_t most_kept_bytes; /* of one node's requests, until they are answered */
    /* This node's own request is there: see service_requests.c. The lock is held. */
    void (*take_own)(Services *services, ServiceJob *job);
    /* Nobody waits for it any more. The lock is held. */
    void (*forget)(Services *services, uint32_t node, uint64_t serial);

    _Atomic bool is_broken;

    pthread_mutex_t lock;
    pthread_cond_t changed; /* anything */
    /* guarded by lock */
    GPtrArray *runners;  /* of ServiceRunner; the first is the clerk */
    GHashTable **jobs;   /* by node: of ServiceJob, by serial */
    uint64_t *kept;      /* by node: bytes of its jobs, also those that have not come yet */
    GPtrArray *rooms;    /* of barriers: service_barrier.c; the clerk's */
    GHashTable *calls;   /* of RubatoServiceCall: all that are not freed */
    GHashTable *pending; /* of ServicePending, by serial */
    uint32_t *n_open;    /* by node: those of `pending` */
    uint64_t serial;     /* the last one given */
    uint32_t broken_code;
    char *broken_text;
};

/* ---- service_send.c: without the lock ---- */

/* Sends a message, whatever room there is. False: no memory. */
bool service_send(Services *services, uint32_t node, const ServiceMessage *message);

/* Sends an answer piece by piece, as there is room; without memory for a piece, a failure that says
 * so. Blocks. */
void service_send_answer(Services *services, const ServiceJob *job, uint32_t code,
                         const void *bytes, size_t n);

/* Sends a message of some bytes, of this service. Without memory for it tries again and again, and
 * says so in the log. The lock is held, but not during the wait. */
void service_send_short(Services *services, uint32_t node, const char *service,
                        const ServiceMessage *message);

/* Whether the run is broken: for network_wait_room. */
bool service_is_cancelled(void *services);

/* Appends. False: no memory. */
bool service_body_add(ServiceBody *body, const void *bytes, size_t n, uint64_t n_whole);

/* ---- service_replies.c: the lock is held ---- */

/* "node 1 (HOST:PORT)". (transfer full) */
char *service_node_text(const Services *services, uint32_t node);

/* The reply at this place fails, unless it is done. */
void service_fail_reply(RubatoServiceCall *call, uint32_t place, uint32_t code, const char *text);

/* The request has its answer, or never gets one. */
void service_forget_pending(Services *services, uint64_t serial);

/* A piece of an answer came. NULL, or what is wrong with it. */
const char *service_replies_receive(Services *services, uint32_t node,
                                    const ServiceMessage *message);

/* This node itself has answered. */
void service_replies_answer_own(Services *services, const ServiceJob *job, uint32_t code,
                                GBytes *bytes);
void service_replies_break(Services *services);

/* ---- service_barrier.c: the clerk, with the lock ---- */

typedef struct {
    GBytes *group;
    GPtrArray *held; /* of ServiceJob: one for each node that is here */
} BarrierRoom;

/* A job for the barrier. Appends to `done` those that can be answered. */
void service_barrier_take(Services *services, ServiceJob *job, GPtrArray *done);

/* Nobody waits for a held job any more: it leaves its room, as one that has failed. */
void service_barrier_forget(Services *services, ServiceJob *job);
void barrier_room_free(gpointer room);

/* ---- service_runners.c ---- */

/* NULL: this node does not serve that name. The lock is held, as for the next six. */
ServiceRunner *service_runner_find(const Services *services, const char *name);
ServiceRunner *service_runner_clerk(const Services *services);

/* The one whose function has called this; NULL: none of these services'. */
ServiceRunner *service_runner_own(const Services *services);

/* Starts its thread. 0, or the number of the system's error. */
int service_runner_start(Services *services, ServiceRunner *runner);

/* Gives it a job. */
void service_runner_give(Services *services, ServiceRunner *runner, ServiceJob *job);

/* Nobody needs its body any more. */
void service_job_release(Services *services, ServiceJob *job);

/* Nobody needs the job any more. */
void service_job_end(Services *services, ServiceJob *job);

ServiceRunner *service_runner_new(const char *name, RubatoServiceFunc function, void *user_data);
void service_runner_free(ServiceRunner *runner);

/* Waits for the end of its thread. Without the lock. */
void service_runner_end(Services *services, ServiceRunner *runner);

/* ---- service_requests.c: the lock is held ---- */

/* This node asks itself. */
void service_requests_take_own(Services *services, ServiceJob *job);

/* Nobody waits for the answer any more. */
void service_requests_forget(Services *services, uint32_t node, uint64_t serial);

#endif
