/* How an engine begins: what the run is, by a cluster file, an announcement or the configuration
 * alone; its threads; and the rendezvous with the other nodes.
 *
 * Threads start in this order: helper and servers, the network, the rendezvous. What has begun is
 * ended by rubato_engine_free, also if a later step fails. */
#include <errno.h>

#include "engine/cluster/announce.h"
#include "engine/engine_private.h"
#include "engine/health/engine_health.h"
#include "engine/health/engine_status.h"
#include "engine/signals.h"
#include "engine/snapshot/led_snapshots.h"

/* For the helper and the thread of part steps. */
static void handle_invoke(Actor *actor, Message *message)
{
    message->invoke(message, actor); /* the message is the function's: it frees or ends it */
}

static bool describe_single(RubatoEngine *engine, GError **error)
{
    const RubatoEngineConfig *config = &engine->config;

    if (config->servers > CLUSTER_MAX_THREADS || config->workers > CLUSTER_MAX_THREADS) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "%u servers and %u workers; ask for %u of each at most", config->servers,
                    config->workers, CLUSTER_MAX_THREADS);
        return false;
    }
    engine->n_nodes = 1;
    engine->node_ids = g_new0(uint32_t, 1);
    engine->node_names = g_new0(char *, 2);
    engine->node_names[0] = g_strdup("this process");
    engine->servers_of = g_new0(uint32_t, 1);
    engine->workers_of = g_new0(uint32_t, 1);
    engine->servers_of[0] = MAX(1, config->servers);
    engine->server_count = (ServerCount){ engine->servers_of[0], engine->servers_of[0] };
    engine->workers_of[0] = MAX(1, config->workers);
    engine->stall_ms = config->stall_ms;
    return true;
}

static bool describe_cluster(RubatoEngine *engine, GError **error)
{
    if (engine->cluster == NULL) /* nobody has announced it */
        engine->cluster = cluster_read(engine->config.cluster_file, error);
    if (engine->cluster == NULL)
        return false;

    const Cluster *const cluster = engine->cluster;
    const uint32_t n = cluster->n_nodes;
    if (cluster_find(cluster, engine->config.node, &engine->self) == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CONFIG,
                    "%s: there is no node %u in it; give --node one of its ids", cluster->path,
                    engine->config.node);
        return false;
    }
    engine->id = engine->config.node;
    engine->n_nodes = n;
    engine->node_ids = g_new0(uint32_t, n);
    engine->node_names = g_new0(char *, n + 1);
    engine->servers_of = g_new0(uint32_t, n);
    engine->workers_of = g_new0(uint32_t, n);
    for (uint32_t i = 0; i < n; i++) {
        const ClusterNode *node = &cluster->nodes[i];

        engine->node_ids[i] = node->id;
        /* Nodes that announce themselves have any port, which tells a reader nothing. */
        engine->node_names[i] =
            !engine->announces
                ? g_strdup_printf("%s:%u", node->host, node->port)
                : g_strdup(node->spare && i != engine->self ? "any host" : node->host);
        engine->servers_of[i] = node->servers;
        engine->workers_of[i] = node->workers;
        engine->server_count.n += node->servers;
    }
    engine->server_count.n_first = cluster_first_servers(cluster);
    engine->scheduler_node = cluster->scheduler_node;
    engine->timeout_ms = cluster->timeout_ms;
    engine->heartbeat_ms = MIN(cluster->heartbeat_ms, MAX(cluster->timeout_ms / 4, 1));
    engine->silence_ms = engine->timeout_ms + engine->heartbeat_ms;
    engine->stall_ms = engine->config.stall_ms != 0 ? engine->config.stall_ms : cluster->stall_ms;
    return true;
}

/* A server cannot do what a task has asked of it: there is no memory, or a handler failed for which
 * nobody waits. Called by the server's owner. */
static void fail_task(void *user, uint32_t epoch, int code, const char *text)
{
    const ControlOutcome outcome = { CONTROL_CODE(code), text };

    engine_tell_scheduler(user, &(Control){ .kind = CONTROL_FAIL, .fail = { epoch, outcome } });
}

/* The same of replicas that a server has made. */
static void tell_made(void *user, uint32_t server, uint32_t n, uint32_t n_missing)
{
    engine_tell_scheduler(user,
                          &(Control){ .kind = CONTROL_MADE, .made = { server, n, n_missing } });
}

static void tell_scheduler(void *user, const Control *control)
{
    engine_tell_scheduler(user, control);
}

static void describe_task_host(RubatoEngine *engine)
{
    engine->task_host = (TaskHost){ .office = &engine->office,
                                    .servers = engine->servers,
                                    .n_servers = engine->n_servers,
                                    .helper = &engine->helper,
                                    .services = engine->services,
                                    .tensors = engine->tensors,
                                    .binding = engine->binding,
                                    .workers_of = engine->workers_of,
                                    .stall_ms = engine->stall_ms,
                                    .history = engine->history,
                                    .timeline = engine->timeline,
                                    .tell_scheduler = tell_scheduler,
                                    .user = engine };
}

/* The number of this node's first server. */
static uint32_t first_server(const RubatoEngine *engine)
{
    uint32_t first = 0;

    for (uint32_t node = 0; node < engine->self; node++)
        first += engine->servers_of[node];
    return first;
}

/* Threads that start from here on are bound, if that is asked for. */
static bool begin_binding(RubatoEngine *engine, GError **error)
{
    const Cluster *const cluster = engine->cluster;
    const bool numa = engine->config.numa || (cluster != NULL && cluster->numa);
    const ThreadBindingSetup setup = {
        .node = { .cluster = cluster,
                  .single = { engine->servers_of[0], engine->workers_of[0] },
                  .number = engine->self,
                  .is_announced = engine->config.cluster_file == NULL },
        .first_server = first_server(engine),
        .numa = numa,
    };

    if (!numa && !engine->config.bind_cores && (cluster == NULL || !cluster->bind_cores))
        return true;
    engine->binding = thread_binding_new(&setup, error);
    return engine->binding != NULL;
}

static bool start_servers(RubatoEngine *engine, GError **error)
{
    for (uint32_t i = 0; i < engine->n_servers; i++) {
        Server *const server = &engine->servers[i];

        if (engine->binding != NULL)
            server->home = thread_binding_home(engine->binding, i);
        if (!server_start(server)) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                        "cannot start %u server threads: %s", engine->n_servers, g_strerror(errno));
            return false;
        }
        if (engine->binding != NULL &&
            !thread_binding_bind_server(engine->binding, i, server->actor.thread, error))
            return false;
    }
    return true;
}

static bool start_threads(RubatoEngine *engine, GError **error)
{
    const uint32_t first = first_server(engine);

    engine->n_servers = engine->servers_of[engine->self];
    engine->servers = g_aligned_alloc0(engine->n_servers + 1, sizeof(Server), _Alignof(Server));
    engine->long_handlers = g_new0(LongHandler, engine->n_servers + 1);
    no_numbers_init(&engine->no_numbers);
    for (uint32_t i = 0; i < engine->n_servers; i++) {
        server_init(&engine->servers[i], first + i, &engine->office, fail_task, engine);
        engine->servers[i].no_numbers = &engine->no_numbers;
        engine->servers[i].history = engine->history;
        if (engine->needs != NULL)
            server_measure(&engine->servers[i]);
        engine->servers[i].tell_made = tell_made;
        engine->office.servers[first + i].actor = &engine->servers[i].actor;
    }
    describe_task_host(engine);
    if (actor_start(&engine->helper, "helper") && actor_start(&engine->part_steps, "part steps"))
        return start_servers(engine, error);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "cannot start the threads of a node: %s",
                g_strerror(errno));
    return false;
}

static bool take_faults_of_environment(RubatoEngine *engine, GError **error)
{
    const char *const text = g_getenv(FAULTS_VARIABLE);

    if (text == NULL || engine->faults != NULL)
        return true;
    if (!faults_on_demand_parse(&engine->on_demand, text, error))
        return false;
    if (engine->on_demand.has_wire) {
        engine->own_faults.of_packets = engine->on_demand.of_packets;
        engine->faults = &engine->own_faults;
    }
    return true;
}

/* When the nodes are known. */
static bool begin_faults_on_demand(RubatoEngine *engine, GError **error)
{
    FaultsOnDemand *const faults = &engine->on_demand;
    bool is_known = !faults->kills;

    for (uint32_t i = 0; i < engine->n_nodes && !is_known; i++)
        is_known = engine->cluster == NULL ? faults->kill_node == engine->id
                                           : faults->kill_node == engine->node_ids[i];
    if (!is_known) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "the environment variable " FAULTS_VARIABLE " kills node %u, and there is none "
                    "of that id",
                    faults->kill_node);
        return false;
    }
    if (faults->text != NULL)
        g_warning("node %u: FAULTS ON DEMAND: " FAULTS_VARIABLE "=%s%s", engine->id, faults->text,
                  engine->cluster == NULL && faults->has_wire
                      ? " (a single process sends nothing over a wire)"
                      : "");
    return faults_on_demand_arm(faults, engine->id, error);
}

/* Plug-ins are loaded before there is an engine, so before a node hears what others announce. */
static bool check_announced(const RubatoEngine *engine, GError **error)
{
    if (engine->cluster->plugins == NULL)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CONFIG,
                "%s: 'plugins' is for cluster files; give --plugin FILE to the program of each "
                "node",
                engine->cluster->path);
    return false;
}

/* The nodes of a run without a cluster file gather, and then know of it what a file would say. */
static bool announce_first(RubatoEngine *engine, GError **error)
{
    engine->announces = true;
    if (engine->config.handle_signals)
        engine->signals = signal_watch_new(engine_interrupted, engine);
    return announce(engine, error) && check_announced(engine, error) &&
           describe_cluster(engine, error);
}

static bool describe(RubatoEngine *engine, GError **error)
{
    if (engine->config.announcement != NULL &&
        engine->config.announcement->role != RUBATO_ROLE_NONE)
        return announce_first(engine, error);
    return engine->config.cluster_file != NULL ? describe_cluster(engine, error)
                                               : describe_single(engine, error);
}

/* What can be known before nodes meet is said before they wait for each other. */
static bool check_collectives(const RubatoEngine *engine, GError **error)
{
    const TensorBackendOps *const backend =
        tensor_backend_find(engine->cluster->collectives, error);

    return backend != NULL && (engine->n_nodes == 1 || backend->check == NULL ||
                               backend->check(engine->n_nodes, error));
}

/* A single node has no messages for another one, and a process that only serves has no workers. */
static bool open_collectives(RubatoEngine *engine, GError **error)
{
    const bool has_none =
        engine->n_nodes == 1 || (engine->serving != NULL && engine->newcomer == NULL);

    return tensor_router_open(engine->tensors,
                              has_none ? TENSOR_BACKEND_OWN : engine->cluster->collectives, error);
}

/* A process that has joined would write over what the lost one has written. Its history has a file
 * of its own. */
static bool begin_records(RubatoEngine *engine, GError **error)
{
    const bool handles = engine->config.handle_signals;
    sigset_t before;
    bool ok;

    if (handles) /* they have threads, and the one that hears signals starts later */
        signals_block(&before);
    ok = engine_begin_history(engine, error) &&
         (engine->serving != NULL ||
          (engine_begin_timeline(engine, error) && engine_begin_needs(engine, error)));
    if (handles)
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    return ok;
}

bool engine_begin(RubatoEngine *engine, GError **error)
{
    actor_init(&engine->helper, handle_invoke, NULL);
    actor_init(&engine->part_steps, handle_invoke, NULL);
    led_snapshots_init(engine);
    snapshot_asks_init(&engine->snapshot_asks, tell_scheduler, engine);
    if (!take_faults_of_environment(engine, error) || !engine_begin_health(engine, error) ||
        !describe(engine, error))
        return false;
    /* one that announces itself has learned only now that it joins a run that goes on */
    if (engine->serving != NULL && (engine->config.catches_up || rendezvous_catches_up()))
        engine->newcomer = newcomer_new();
    if (!begin_faults_on_demand(engine, error) || !begin_records(engine, error) ||
        !begin_binding(engine, error))
        return false;
    if (engine->stall_ms == 0)
        engine->stall_ms = 10000;
    post_office_init(&engine->office, engine->self, engine->n_nodes, engine->node_ids,
                     engine->servers_of, &engine->sizes);
    engine->office.stall_ms = engine->stall_ms;
    engine->office.root = engine->scheduler_node;
    engine->losses = g_new0(NodeLoss, engine->n_nodes);
    engine->drains = g_new0(bool, engine->n_nodes);
    engine->told_ended = g_new0(uint64_t, engine->n_nodes);
    engine->drain_asks = g_ptr_array_new();
    engine->call.lost = g_new0(bool, engine->n_nodes);
    engine->call.workerless = g_new0(bool, engine->n_nodes);
    const uint32_t service_mib =
        engine->cluster != NULL ? engine->cluster->service_mib : CLUSTER_USUAL_SERVICE_MIB;

    engine->services =
        services_new(&engine->office, engine->node_names, (uint64_t)service_mib << 20);
    engine_serve_status(engine);
    engine_serve_clock(engine);
    engine->tensors = tensor_router_new(&engine->office, tell_scheduler, engine);
    dispatch_init(engine);
    /* A signal may come at once, and is sent to the scheduler. */
    if (engine->cluster == NULL && !dispatch_start_scheduler(engine, error))
        return false;
    if (engine->config.handle_signals && engine->signals == NULL)
        engine->signals = signal_watch_new(engine_interrupted, engine);
    pthread_mutex_lock(&engine->lock);
    engine->announces = false; /* from here on a signal breaks what there is */
    pthread_mutex_unlock(&engine->lock);
    if (!start_threads(engine, error) ||
        (engine->cluster != NULL &&
         !(check_collectives(engine, error) && rendezvous(engine, error) &&
           open_collectives(engine, error))))
        return false;
    engine_set_timeline_clock(engine);
    return true;
}
