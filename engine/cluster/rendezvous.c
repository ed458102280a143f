/* How a node finds the others: it binds its address, and greets the scheduler until it is answered.
 * A host's name may become known only after the node has started, as in a cluster that starts its
 * machines one after the other. So the node looks it up again and again.
 *
 * The calling thread waits; the control actor's owner sets `welcome` or `refusal`. */
#include <netdb.h>
#include <string.h>

#include "engine/cluster/secret_source.h"
#include "engine/engine_private.h"
#include "engine/join/scheduler_again.h"
#include "io/kernel_random.h"
#include "io/net/transport/tcp/tcp_address.h"
#include "models/registry.h"

enum {
    GREETING_MS = 200, /* between two greetings */
    RESOLVE_MS = 500,  /* between two looks for a host's address */
    NOTICE_MS = 5000,  /* between two lines in the log that say whom this node waits for */
};

/* "tcp://127.0.0.1:4101": addresses are numbers. */
static char *resolve_endpoint(const char *transport, const char *host, uint16_t port,
                              GError **error)
{
    const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
    struct addrinfo *found = NULL;
    char address[NI_MAXHOST] = "";
    char *endpoint = NULL;
    int failure = getaddrinfo(host, NULL, &hints, &found);

    if (failure == 0)
        failure = getnameinfo(found->ai_addr, found->ai_addrlen, address, sizeof address, NULL, 0,
                              NI_NUMERICHOST);
    if (failure != 0)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK, "cannot resolve the host %s: %s",
                    host, gai_strerror(failure));
    else
        endpoint = tcp_address_join(transport, address, port);
    if (found != NULL)
        freeaddrinfo(found);
    return endpoint;
}

/* Waits a moment before the next look for a host's address. False: the run has been cancelled. */
static bool wait_to_resolve(RubatoEngine *engine, GError **error)
{
    pthread_mutex_lock(&engine->lock);
    if (engine->broken_text == NULL)
        engine_wait_changed(engine, RESOLVE_MS);
    const bool goes_on = engine_check(engine, error);
    pthread_mutex_unlock(&engine->lock);
    return goes_on;
}

/* The same, until rendezvous_ms have passed since the node began. */
static char *find_endpoint(RubatoEngine *engine, const char *transport, const char *host,
                           uint16_t port, int64_t began_ms, GError **error)
{
    const uint32_t patience_ms = engine->cluster->rendezvous_ms;
    int64_t notice_ms = network_now_ms();

    for (;;) {
        g_autoptr(GError) failure = NULL;
        char *const endpoint = resolve_endpoint(transport, host, port, &failure);
        const int64_t now_ms = network_now_ms();

        if (endpoint != NULL)
            return endpoint;
        if (now_ms - began_ms >= (int64_t)patience_ms) {
            g_propagate_prefixed_error(error, g_steal_pointer(&failure),
                                       "node %u: after %.1f s: ", engine->id,
                                       (double)(now_ms - began_ms) / 1e3);
            return NULL;
        }
        if (now_ms - notice_ms >= MIN(engine->stall_ms, NOTICE_MS)) {
            g_message("node %u waits: %s", engine->id, failure->message);
            notice_ms = now_ms;
        }
        if (!wait_to_resolve(engine, error))
            return NULL;
    }
}

/* Finds the run's secret, and whether the run may do without one. */
static bool find_secret(RubatoEngine *engine, RunSecret *secret, bool *found, GError **error)
{
    SecretOrigin origin;

    if (!secret_find(engine->cluster, secret, &origin, error) ||
        !secret_check_cluster(engine->cluster, origin, error))
        return false;
    *found = origin != SECRET_ORIGIN_NONE;
    return true;
}

/* Opens the network at the node's address, at one within the host unless `near` is NULL, and on the
 * scheduler's node at that of the scheduler. */
static Network *open_at(RubatoEngine *engine, const char *own, const char *near,
                        const char *scheduler, const RunSecret *secret, GError **error)
{
    const char *endpoints[3];
    const char *const wanted = engine->cluster->transport;
    const bool any = engine->transport != NULL || cluster_shares_memory_nearby(engine->cluster);
    NetworkConfig config = {
        .transport = any ? NULL : wanted,
        .transport_ops = engine->transport,
        .faults = engine->faults,
        .self = engine->self,
        .n_nodes = engine->n_nodes,
        .secret = secret,
        .encrypt = engine->cluster->encrypt,
        .authenticate = engine->cluster->authenticate,
        .incarnation = engine->incarnation,
        .bind_endpoints = endpoints,
        .window_bytes = engine->sizes.window_bytes,
        .out_bytes = engine->sizes.out_bytes,
        .high_out_bytes = engine->sizes.high_out_bytes,
        .near_high_out_bytes = engine->sizes.near_high_out_bytes,
        .taken_bytes = engine->sizes.taken_bytes,
        .parked_bytes = engine->sizes.parked_bytes,
        .joined_bytes = engine->sizes.joined_bytes,
        .turn_bytes = engine->sizes.turn_bytes,
        .room_bytes = post_office_room_bytes(),
        .drops_replies = true,
        .tick_ms = CLAMP(engine->heartbeat_ms / 4, 1, 50),
        .timeout_ms = engine->timeout_ms,
    };

    endpoints[config.n_bind_endpoints++] = own;
    if (near != NULL)
        endpoints[config.n_bind_endpoints++] = near;
    if (engine->self == engine->scheduler_node)
        endpoints[config.n_bind_endpoints++] = scheduler;
    Network *const network = network_new(&config, &dispatch_network_handler, engine, error);
    if (network != NULL)
        engine->addresses = near == NULL ? g_strdup(network_endpoint(network, 0))
                                         : g_strjoin(",", network_endpoint(network, 0),
                                                     network_endpoint(network, 1), NULL);
    return network;
}

/* Greetings always go over TCP: nodes do not know yet where the others are. */
static bool open_network(RubatoEngine *engine, const char *scheduler, int64_t began_ms,
                         GError **error)
{
    const ClusterNode *node = &engine->cluster->nodes[engine->self];
    const char *const wanted = engine->cluster->transport;
    const char *const far = cluster_far_transport(engine->cluster);
    const bool shares = cluster_shares_memory_nearby(engine->cluster);
    g_autofree char *own = find_endpoint(engine, far, node->host, node->port, began_ms, error);
    g_autofree char *near = NULL;
    g_autoptr(GError) failure = NULL;
    g_auto(RunSecret) secret = { { 0 } };
    bool has_secret;

    if (own == NULL || !find_secret(engine, &secret, &has_secret, error))
        return false;
    const RunSecret *const proof = has_secret ? &secret : NULL;
    if (engine->transport == NULL && strcmp(wanted, far) != 0)
        near = g_strconcat(shares ? "shm" : wanted, "://*", NULL);
    Network *network = open_at(engine, own, near, scheduler, proof, &failure);
    if (network == NULL && near != NULL && shares) {
        g_autoptr(GError) without = NULL;

        network = open_at(engine, own, NULL, scheduler, proof, &without);
        if (network != NULL)
            g_message("node %u talks %s to nodes of its own host, too: %s", engine->id,
                      strcmp(far, "ucx") == 0 ? "UCX" : "TCP", failure->message);
        g_clear_error(&failure);
        failure = g_steal_pointer(&without);
    }
    if (network == NULL) {
        g_propagate_prefixed_error(error, g_steal_pointer(&failure), "node %u: ", engine->id);
        return false;
    }
    pthread_mutex_lock(&engine->lock); /* a signal may look at it */
    engine->network = network;
    pthread_mutex_unlock(&engine->lock);
    engine->office.network = engine->network;
    if (engine->self == engine->scheduler_node && !dispatch_start_scheduler(engine, error))
        return false;
    return network_start(engine->network, error);
}

static void say_hello(RubatoEngine *engine, const char *scheduler)
{
    g_autofree char *description =
        g_strdup_printf("%s process %ld", g_get_host_name(), (long)getpid());
    g_autofree char *registered = registry_describe();
    const Control hello = {
        .kind = engine->serving != NULL ? CONTROL_JOIN : CONTROL_HELLO,
        .hello = { .node_id = engine->id,
                   .number = engine->self,
                   .incarnation = engine->incarnation,
                   .digest = engine->cluster->digest,
                   .endpoints = engine->addresses,
                   .description = description,
                   .registered = registered },
    };

    dispatch_greet(engine, scheduler, &hello);
}

/* Tells the others, who would wait, that this node ends before the run has begun, and why. */
static void say_farewell(RubatoEngine *engine, const char *scheduler, const char *why)
{
    if (engine->self == engine->scheduler_node)
        engine_tell_scheduler(engine, &(Control){ .kind = CONTROL_STOP, .stop = { why } });
    else
        dispatch_greet(engine, scheduler,
                       &(Control){ .kind = CONTROL_FAREWELL,
                                   .farewell = { engine->id, engine->incarnation, why } });
}

/* Whether there should be a connection to the scheduler, and is none. Who joins a run finds it
 * there from the beginning. */
static bool is_broken(RubatoEngine *engine, const char *scheduler)
{
    const NetworkPeerState state = network_greeting_state(engine->network, scheduler);

    return engine->serving != NULL ? state != NETWORK_PEER_CONNECTED
                                   : state == NETWORK_PEER_DISCONNECTED;
}

/* Greets the scheduler, and checks the connection to it. *broken_ms becomes the time at which the
 * connection was first found broken; INT64_MAX: it is not broken. The caller holds the lock; it is
 * released during the call. */
static void greet(RubatoEngine *engine, const char *scheduler, int64_t now_ms, int64_t *broken_ms)
{
    bool broken = false;

    pthread_mutex_unlock(&engine->lock);
    say_hello(engine, scheduler);
    if (engine->self != engine->scheduler_node)
        broken = is_broken(engine, scheduler);
    pthread_mutex_lock(&engine->lock);
    *broken_ms = broken ? MIN(*broken_ms, now_ms) : INT64_MAX;
}

/* Says why this node stops waiting. The lock is held. */
static bool give_up(RubatoEngine *engine, int64_t waited_ms, int64_t without_ms, GError **error)
{
    const char *const host = engine->cluster->scheduler_host;
    const uint16_t port = engine->cluster->scheduler_port;
    const uint32_t id = engine->node_ids[engine->scheduler_node];

    if (without_ms > 0 && engine->serving != NULL)
        g_set_error(
            error, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST,
            "node %u cannot join a run: for %.1f s there was no connection to its scheduler "
            "at %s:%u; has the run ended?",
            engine->id, (double)without_ms / 1000, host, port);
    else if (without_ms > 0)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST,
                    "node %u: the scheduler at %s:%u was lost before the run began: the "
                    "connection to it broke, and for %.1f s there was no other; has node %u ended?",
                    engine->id, host, port, (double)without_ms / 1000, id);
    else if (engine->rendezvous.later != NULL)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                    "node %u cannot join a run: nothing was heard of its scheduler at %s:%u for "
                    "%.1f s; before, it said that %s",
                    engine->id, host, port, (double)waited_ms / 1000, engine->rendezvous.later);
    else
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                    "node %u: no answer of the scheduler at %s:%u within %.1f s; is node %u "
                    "running?",
                    engine->id, host, port, (double)waited_ms / 1000, id);
    return false;
}

/* For the log. On the scheduler's node the scheduler itself says who is missing. */
static void say_waiting(const RubatoEngine *engine)
{
    if (engine->self == engine->scheduler_node)
        return;
    if (engine->rendezvous.later != NULL)
        g_message("%s", engine->rendezvous.later);
    else
        g_message("node %u waits for the scheduler at %s:%u to say that %s", engine->id,
                  engine->cluster->scheduler_host, engine->cluster->scheduler_port,
                  engine->serving != NULL ? "it is in the run" : "all nodes are here");
}

/* The lock is held. Why this ends: the scheduler answers, or is not heard for the patience. One
 * that puts off a process which is to join says so to each of its greetings: then it may wait for
 * long, as for a snapshot, whose own waits end (scheduler_snapshot.c). */
static bool wait_for_welcome(RubatoEngine *engine, const char *scheduler, int64_t began_ms,
                             GError **error)
{
    const uint32_t patience_ms = engine->cluster->rendezvous_ms;
    const uint32_t between_ms = MIN(engine->stall_ms, NOTICE_MS);
    int64_t notice_ms = network_now_ms(), hello_ms = notice_ms - GREETING_MS;
    int64_t broken_ms = INT64_MAX;

    while (!engine->rendezvous.welcome && engine->rendezvous.refusal == NULL &&
           engine->broken_text == NULL) {
        const int64_t now_ms = network_now_ms();

        if (now_ms - hello_ms >= GREETING_MS) {
            greet(engine, scheduler, now_ms, &broken_ms);
            hello_ms = now_ms;
            continue; /* the answer may have come while the lock was free */
        }
        if (broken_ms != INT64_MAX && now_ms - broken_ms >= engine->timeout_ms)
            return give_up(engine, now_ms - began_ms, now_ms - broken_ms, error);
        if (now_ms - notice_ms >= between_ms) {
            say_waiting(engine);
            notice_ms = now_ms;
        }
        const int64_t since_ms = MAX(began_ms, engine->rendezvous.later_ms);
        /* The scheduler, if it is there, has a little time to say who is missing. */
        if (now_ms - since_ms > (int64_t)patience_ms + engine->timeout_ms)
            return give_up(engine, now_ms - since_ms, 0, error);
        engine_wait_changed(engine, GREETING_MS);
    }
    if (!engine->rendezvous.welcome && engine->rendezvous.refusal != NULL)
        return control_check(engine->rendezvous.refusal_code == CONTROL_OK
                                 ? CONTROL_CODE(RUBATO_ERROR_NETWORK)
                                 : engine->rendezvous.refusal_code,
                             engine->rendezvous.refusal, error);
    return engine_check(engine, error);
}

static bool is_set(const char *variable)
{
    const char *const text = g_getenv(variable);

    return text != NULL && *text != '\0' && strcmp(text, "0") != 0;
}

bool rendezvous_joins(void)
{
    return is_set(JOIN_VARIABLE);
}

bool rendezvous_catches_up(void)
{
    return is_set(CATCH_UP_VARIABLE);
}

bool rendezvous(RubatoEngine *engine, GError **error)
{
    const int64_t began_ms = network_now_ms();
    g_autoptr(GError) failure = NULL;
    char *scheduler;
    bool ok;

    if (!scheduler_again_open_journal(engine, error))
        return false;
    scheduler = engine->scheduler_address =
        find_endpoint(engine, "tcp", engine->cluster->scheduler_host,
                      engine->cluster->scheduler_port, began_ms, error);
    if (scheduler == NULL)
        return false;
    if (!kernel_random(&engine->incarnation))
        engine->incarnation = (uint64_t)g_get_real_time() ^ ((uint64_t)getpid() << 48);
    if (!open_network(engine, scheduler, began_ms, error))
        return false;
    if (scheduler_again_is_asked(engine))
        return scheduler_again_enter(engine, error);
    pthread_mutex_lock(&engine->lock);
    ok = wait_for_welcome(engine, scheduler, began_ms, &failure);
    pthread_mutex_unlock(&engine->lock);
    if (ok)
        return true;
    say_farewell(engine, scheduler, failure->message);
    g_propagate_error(error, g_steal_pointer(&failure));
    return false;
}
