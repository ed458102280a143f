/* The services of a node: those that it has, and its requests to those of others.
 *
 *   services.c          its services: their life, the public calls
 *   service_requests.c  requests to them, as they come
 *   service_runners.c   the threads that run them
 *   service_barrier.c   the service behind barriers of a group
 *   service_calls.c     this node's requests: how they are sent, and the wait for answers
 *   service_replies.c   answers, as they come
 *   service_send.c      pieces on their way to other nodes
 *   service_message.c   their bytes
 *
 * A lower file of this list calls none above it.
 *
 * Threads: any, unless a function says otherwise. */
#ifndef RUBATO_ENGINE_SERVICES_SERVICES_H
#define RUBATO_ENGINE_SERVICES_SERVICES_H

#include <rubato/service.h>

#include "io/net/post_office/post_office.h"

typedef struct Services Services;

/* Office and names must outlive the services. node_names: by number. most_kept_bytes: of another
 * node's requests, until they are answered. (transfer full) */
Services *services_new(PostOffice *office, char *const *node_names, uint64_t most_kept_bytes);

/* Ends all threads; waits for functions that still run, and says so in the log. Behind the
 * network's end. After it only services_break and services_free may be called. NULL is allowed. */
void services_stop(Services *services);

/* They are stopped, and no thread is left that may break them. NULL is allowed. */
void services_free(Services *services);

bool services_serve(Services *services, const char *name, RubatoServiceFunc function,
                    void *user_data, GError **error);
/* A service of the engine's own, whose name begins with "rubato." and stays. It ends with the
 * others. Its thread starts with its first request, and if that fails, with a later one. Before
 * other threads use the services. */
void services_serve_own(Services *services, const char *name, RubatoServiceFunc function,
                        void *user_data);
bool services_unserve(Services *services, const char *name, GError **error);

/* Whether the function of one of these services makes this call. */
bool services_are_calling(Services *services);

/* A MESSAGE_SERVICE came; takes it over. Returns what is wrong with it; NULL if nothing is. The
 * receiving thread; does not block. */
const char *services_receive(Services *services, Incoming *incoming);

/* The run is broken: all requests fail for this reason, also later ones. Does not block. */
void services_break(Services *services, uint32_t code, const char *text);

/* Asks these nodes, by number; they are not those that question->to names. (transfer full) */
RubatoServiceCall *services_request(Services *services, const RubatoQuestion *question,
                                    const uint32_t *nodes, size_t n_nodes);

/* The task is cancelled: its workers' requests fail. Does not block. */
void services_cancel(Services *services, uint32_t epoch);

/* The name of the service that barriers ask; their body is the sorted numbers of the nodes, 4 bytes
 * each. It runs on the first of them. */
#define SERVICE_BARRIER "rubato.barrier"

/* The name of the service that tells how far a node is: engine/health/engine_status.c. */
#define SERVICE_STATUS "rubato.status"

/* The name of the service that tells a node's time: engine/engine_timeline.c. */
#define SERVICE_CLOCK "rubato.clock"

#endif
