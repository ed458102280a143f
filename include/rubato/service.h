/* Messages between nodes: services by name, requests to them, barriers of a group, and who lives.
 *
 * A service is a function of the application that answers requests of any node. A request goes to a
 * node, or to a group of nodes; the answers are collected as they come. Each wait has a deadline.
 * A node that is lost, a service that fails, or a name that nobody serves is the error of that
 * node's answer alone.
 *
 * Each service has a thread of its own, which runs its requests one at a time, those of one node in
 * the order in which they were made. No heartbeat depends on it: a service may compute for as long
 * as it likes, wait, and make requests to other services.
 *
 * Bodies are bytes, at most RUBATO_SERVICE_MOST_BYTES; bytes.h reads and writes them with checks.
 *
 * Threads: any, also a worker's in its task's function, and a service's; not a callback's. A call
 * belongs to one thread at a time. */
#ifndef RUBATO_SERVICE_H
#define RUBATO_SERVICE_H

#include <rubato/bytes.h>
#include <rubato/engine.h>

G_BEGIN_DECLS

#define RUBATO_SERVICE_MOST_BYTES ((size_t)1 << 30) /* of a request, and of an answer */
#define RUBATO_SERVICE_NAME_BYTES 64                /* of a name, its end included */
#define RUBATO_SERVICE_TIMEOUT_MS 60000u            /* where a timeout is 0 */

/* What a service is asked. All of it is there until the service's function returns. */
typedef struct {
    const char *service;
    uint32_t node; /* the id of the node that asks */
    const void *bytes;
    size_t n_bytes;
} RubatoServiceRequest;

/* Answers a request: writes the answer. False with an error, which the node that asked gets, and no
 * other one. */
typedef bool (*RubatoServiceFunc)(const RubatoServiceRequest *request, RubatoByteWriter *answer,
                                  void *user_data, GError **error);

/* Serves requests of that name on this node from now on, until rubato_engine_unserve or
 * rubato_engine_free returns: user_data has to stay until then. Nodes may serve different names.
 * RUBATO_ERROR_EXISTS; RUBATO_ERROR_INVALID for a name that is empty, too long, no UTF-8 or begins
 * with "rubato."; RUBATO_ERROR_MEMORY if there is no further thread. */
RUBATO_API bool rubato_engine_serve(RubatoEngine *engine, const char *name,
                                    RubatoServiceFunc function, void *user_data, GError **error);

/* Ends a service. Waits until the request that it runs has been answered; those that wait for it
 * fail as if nobody had served them. RUBATO_ERROR_NOT_FOUND; RUBATO_ERROR_INVALID from the service
 * itself, or from one whose end this service waits for. */
RUBATO_API bool rubato_engine_unserve(RubatoEngine *engine, const char *name, GError **error);

/* Which nodes are meant. */
typedef enum {
    RUBATO_GROUP_ALL,     /* every node of the run */
    RUBATO_GROUP_SERVERS, /* every node that has servers */
    RUBATO_GROUP_WORKERS, /* every node that has workers of a task that names no number */
    RUBATO_GROUP_NODES,   /* those of a list of ids */
    RUBATO_GROUP_NODE,    /* the node with that id */
    RUBATO_GROUP_SERVER,  /* the node of the server with that number */
    RUBATO_GROUP_WORKER,  /* the node of the worker of that rank, in such a task */
} RubatoGroup;

typedef struct {
    RubatoGroup group;
    uint32_t number;       /* RUBATO_GROUP_NODE, _SERVER, _WORKER */
    const uint32_t *nodes; /* RUBATO_GROUP_NODES: ids, none of them twice */
    size_t n_nodes;
} RubatoAddressees;

typedef struct {
    const char *service;
    RubatoAddressees to;
    const void *bytes; /* NULL: none. Needed until the call returns */
    size_t n_bytes;
    uint32_t timeout_ms; /* until the last answer; 0: RUBATO_SERVICE_TIMEOUT_MS */
} RubatoQuestion;

/* A request under way to each node of a group. */
typedef struct RubatoServiceCall RubatoServiceCall;

/* The answer of a node, or why there is none. Bytes and error are the call's. */
typedef struct {
    uint32_t node;       /* its id */
    GBytes *bytes;       /* NULL: there is no answer */
    const GError *error; /* NULL: there is one. RUBATO_ERROR_SERVICE: the service failed, and says
                          * why; _NOT_FOUND: the node has no such service; _TIMEOUT; _NODE_LOST;
                          * _MEMORY; _CANCELLED: the task of the worker that asks has failed, or
                          * a signal has ended the run */
} RubatoServiceAnswer;

/* Sends a request to the service of that name on each node. Returns when it is on its way to all,
 * or the deadline is over; nodes without an answer by then are told by rubato_service_call_next.
 * NULL with RUBATO_ERROR_INVALID, RUBATO_ERROR_RANGE (no such node, server or worker) or
 * RUBATO_ERROR_MEMORY. (transfer full) */
RUBATO_API RubatoServiceCall *rubato_engine_request(RubatoEngine *engine,
                                                    const RubatoQuestion *question, GError **error);

/* Waits for the next answer, in the order in which they come. False: all have been told. */
RUBATO_API bool rubato_service_call_next(RubatoServiceCall *call, RubatoServiceAnswer *answer);

/* Frees the call and its answers. Answers that have not come are no longer waited for. Before
 * rubato_engine_free. NULL is allowed. */
RUBATO_API void rubato_service_call_free(RubatoServiceCall *call);

/* Both, for a question to a single node. False with the answer's error, or RUBATO_ERROR_INVALID if
 * the group is not one node. (*answer: transfer full; NULL: nobody wants it) */
RUBATO_API bool rubato_engine_ask(RubatoEngine *engine, const RubatoQuestion *question,
                                  GBytes **answer, GError **error);

/* Waits until each node of the group is in a barrier of the same group. This node has to be one of
 * it. One thread of a node at a time for the same group. RUBATO_ERROR_TIMEOUT, _NODE_LOST,
 * _INVALID. A node that has timed out is not in the barrier any more. */
RUBATO_API bool rubato_engine_group_barrier(RubatoEngine *engine, const RubatoAddressees *group,
                                            uint32_t timeout_ms, GError **error);

/* Calls the function when rubato_engine_free begins: all services still answer, and the other nodes
 * are there, unless they are lost. The last that was registered comes first. In these functions,
 * and in services, rubato_engine_free does nothing but say so in the log. */
RUBATO_API void rubato_engine_at_exit(RubatoEngine *engine, void (*function)(void *user_data),
                                      void *user_data);

/* A node of the run. */
typedef struct {
    uint32_t node; /* its id */
    uint32_t servers, workers;
    char *name;      /* "HOST:PORT" */
    bool is_lost;    /* it is in the run no more; */
    bool is_drained; /* because it was drained, and has left in order */
    bool is_spare;   /* no process has joined the run as it yet */
    double silent_s; /* since something was last heard from it; of a lost one until its loss */
    int64_t lost_us; /* when it was lost, as g_get_real_time; 0: it is not */
    char *why;       /* why it was lost, or is not there; NULL: it is there */
} RubatoNodeState;

/* All nodes of the run, ordered by id, as this node knows them. (transfer full, *n of them;
 * rubato_node_states_free) */
RUBATO_API RubatoNodeState *rubato_engine_list_nodes(RubatoEngine *engine, size_t *n);
RUBATO_API void rubato_node_states_free(RubatoNodeState *states, size_t n);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(RubatoServiceCall, rubato_service_call_free)

G_END_DECLS

#endif
