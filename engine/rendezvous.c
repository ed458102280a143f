/* How a node finds the others: it binds its address, and greets the scheduler until it is answered.
 *
 * The calling thread waits; the control actor's owner sets `welcome` or `refusal`. */
#include <netdb.h>
#include <string.h>
#include <sys/random.h>

#include "engine/node.h"

enum {
    GREETING_MS = 200, /* between two greetings */
    NOTICE_MS = 5000,  /* between two lines in the log that say whom this node waits for */
};

/* "tcp://127.0.0.1:4101": sockets bind numeric addresses. */
static char *resolve_endpoint(const char *host, uint16_t port, GError **error)
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
        endpoint = g_strdup_printf(strchr(address, ':') == NULL ? "tcp://%s:%u" : "tcp://[%s]:%u",
                                   address, port);
    if (found != NULL)
        freeaddrinfo(found);
    return endpoint;
}

static bool open_network(RubatoEngine *engine, const char *scheduler, GError **error)
{
    const ClusterNode *node = &engine->cluster->nodes[engine->self];
    g_autofree char *own = resolve_endpoint(node->host, node->port, error);
    const char *const endpoints[] = { own, scheduler };
    const NetworkConfig config = {
        .transport = engine->cluster->transport,
        .transport_ops = engine->transport,
        .self = engine->self,
        .n_nodes = engine->n_nodes,
        .incarnation = engine->incarnation,
        .bind_endpoints = endpoints,
        .n_bind_endpoints = engine->self == engine->scheduler_node ? 2 : 1,
        .room_bytes = post_office_room_bytes(),
        .tick_ms = CLAMP(engine->heartbeat_ms / 4, 1, 50),
    };

    if (own == NULL)
        return false;
    engine->network = network_new(&config, &dispatch_network_handler, engine, error);
    if (engine->network == NULL) {
        g_prefix_error(error, "node %u: ", engine->id);
        return false;
    }
    engine->office.network = engine->network;
    if (engine->self == engine->scheduler_node)
        dispatch_start_scheduler(engine);
    return network_start(engine->network, error);
}

static void say_hello(RubatoEngine *engine, const char *scheduler)
{
    g_autofree char *description =
        g_strdup_printf("%s process %ld", g_get_host_name(), (long)getpid());
    g_autoptr(GError) error = NULL;
    const Control hello = {
        .kind = CONTROL_HELLO,
        .node = engine->id,
        .number = engine->self,
        .digest = engine->cluster->digest,
        .incarnation = engine->incarnation,
        .endpoint = network_endpoint(engine->network, 0),
        .description = description,
    };
    g_autoptr(GVariant) body = control_encode(&hello);

    if (!network_greet(engine->network, scheduler, body, &error))
        g_warning("cannot greet the scheduler: %s", error->message);
}

/* The lock is held. */
static bool wait_for_welcome(RubatoEngine *engine, const char *scheduler, GError **error)
{
    const int64_t began_ms = network_now_ms();
    const uint32_t patience_ms = engine->cluster->rendezvous_ms;
    const uint32_t between_ms = MIN(engine->stall_ms, NOTICE_MS);
    int64_t hello_ms = began_ms - GREETING_MS, notice_ms = began_ms;

    while (!engine->welcome && engine->refusal == NULL && engine->broken_text == NULL) {
        const int64_t now_ms = network_now_ms();

        if (now_ms - hello_ms >= GREETING_MS) {
            pthread_mutex_unlock(&engine->lock);
            say_hello(engine, scheduler);
            pthread_mutex_lock(&engine->lock);
            hello_ms = now_ms;
        }
        /* Of the scheduler's node the scheduler itself says who is missing. */
        if (engine->self != engine->scheduler_node && now_ms - notice_ms >= between_ms) {
            g_message("node %u waits for the scheduler at %s:%u to say that all nodes are here",
                      engine->id, engine->cluster->scheduler_host, engine->cluster->scheduler_port);
            notice_ms = now_ms;
        }
        /* The scheduler, if it is there, has a little time to say who is missing. */
        if (now_ms - began_ms > (int64_t)patience_ms + engine->timeout_ms) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                        "node %u: no answer of the scheduler at %s:%u within %.1f s; is node %u "
                        "running?",
                        engine->id, engine->cluster->scheduler_host,
                        engine->cluster->scheduler_port, (double)(now_ms - began_ms) / 1000,
                        engine->node_ids[engine->scheduler_node]);
            return false;
        }
        engine_wait_changed(engine, GREETING_MS);
    }
    if (!engine->welcome && engine->refusal != NULL) {
        const Control refuse = {
            .code = engine->refusal_code == CONTROL_OK ? CONTROL_CODE(RUBATO_ERROR_NETWORK)
                                                       : engine->refusal_code,
            .text = engine->refusal,
        };

        return control_check(&refuse, error);
    }
    return engine_check(engine, error);
}

bool rendezvous(RubatoEngine *engine, GError **error)
{
    g_autofree char *scheduler =
        resolve_endpoint(engine->cluster->scheduler_host, engine->cluster->scheduler_port, error);
    bool ok;

    if (scheduler == NULL)
        return false;
    if (getrandom(&engine->incarnation, sizeof engine->incarnation, 0) !=
        (ssize_t)sizeof engine->incarnation)
        engine->incarnation = (uint64_t)g_get_real_time() ^ ((uint64_t)getpid() << 48);
    if (!open_network(engine, scheduler, error))
        return false;
    pthread_mutex_lock(&engine->lock);
    ok = wait_for_welcome(engine, scheduler, error);
    pthread_mutex_unlock(&engine->lock);
    return ok;
}
