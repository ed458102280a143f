/* The engine's life.
 *
 * Threads start in this order: helper and servers, the network, the rendezvous. They stop in the
 * reverse order. The thread of part steps starts with the first and stops before all others, which
 * it uses. Tables and runs are in lists under the engine's lock. */
#include <errno.h>
#include <rubato/plugin.h>
#include <string.h>

#include "engine/cluster/announce.h"
#include "engine/engine_private.h"
#include "engine/health/engine_health.h"
#include "engine/health/engine_status.h"
#include "engine/join/journal_file.h"
#include "engine/signals.h"
#include "engine/snapshot/led_snapshots.h"
#include "engine/snapshot/write_pace.h"
#include "io/net/caller.h"
#include "io/net/log_sink.h"
#include "io/net/monotonic.h"
#include "io/net/stall_clock.h"
#include "models/registry.h"

/* With the writer's blocks and slices a snapshot takes 64 MB at most, and bits for rows. */
#define USUAL_COPIES_BYTES ((uint64_t)56 << 20)

/* ---- making ---- */

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

/* How long the backend of collectives waits at the end for nodes that end a little later. */
enum { COLLECTIVES_CLOSE_MS = 5000 };

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

static bool start(RubatoEngine *engine, GError **error)
{
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

/* A field that has no effect is refused, because its user expects one. */
static bool check_effects(const RubatoEngineConfig *config, GError **error)
{
    const bool is_announced =
        config->announcement != NULL && config->announcement->role != RUBATO_ROLE_NONE;
    const bool is_single = config->cluster_file == NULL && !is_announced;
    const struct {
        bool is_given, has_effect;
        const char *field, *needs;
    } fields[] = {
        { config->cluster_file != NULL, !is_announced, "cluster_file", "no announcement" },
        { config->node != 0, config->cluster_file != NULL, "node", "cluster_file" },
        { config->servers != 0, is_single, "servers",
          "a single process; a cluster file or an announcement has a number of its own" },
        { config->workers != 0, is_single, "workers",
          "a single process; a cluster file or an announcement has a number of its own" },
        { config->take_signal != NULL, config->handle_signals, "take_signal", "handle_signals" },
        { config->signal_data != NULL, config->take_signal != NULL, "signal_data", "take_signal" },
        { config->log_data != NULL, config->log != NULL, "log_data", "log" },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(fields); i++)
        if (fields[i].is_given && !fields[i].has_effect) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                        "the engine's %s has no effect here; it needs %s", fields[i].field,
                        fields[i].needs);
            return false;
        }
    return true;
}

RubatoEngine *engine_new_of(const RubatoEngineConfig *config, const EngineParts *parts,
                            GError **error)
{
    RubatoEngine *engine = NULL;

    if (!engine_check_place("a new engine", error) || /* it would wait for other nodes */
        !check_effects(config, error) ||
        (config->cluster_file != NULL && !rubato_load_plugins_of(config->cluster_file, error)))
        return NULL;
    registry_hold();
    if (posix_memalign((void **)&engine, _Alignof(RubatoEngine), sizeof *engine) != 0)
        g_error("no memory for an engine");
    memset(engine, 0, sizeof *engine);
    engine->config = *config;
    engine->config.cluster_file = NULL;
    engine->config.cluster_file = g_strdup(config->cluster_file);
    engine->log = (LogSink){ config->log_level, config->log,      config->log_data, engine,
                             &engine->is_over,  &engine->is_asked };
    if (config->log != NULL || config->log_level != RUBATO_LOG_MESSAGE)
        log_sink_install();
    LOG_SINK_SCOPE(&engine->log);
    engine->transport = parts->transport;
    engine->faults = parts->faults;
    if (parts->of_packets != NULL) {
        engine->own_faults.of_packets = *parts->of_packets;
        engine->faults = &engine->own_faults;
    }
    engine->n_forks = caller_n_forks();
    engine->snapshot_work = parts->snapshot_work;
    engine->copies_bytes = parts->copies_bytes > 0 ? parts->copies_bytes : USUAL_COPIES_BYTES;
    engine->pace = parts->pace != NULL ? parts->pace : &WRITE_PACE_USUAL;
    engine->sizes = parts->sizes != NULL ? *parts->sizes : FLOW_SIZES_USUAL;
    if (config->cluster_file != NULL && (parts->joins || rendezvous_joins()))
        engine->serving = serving_new();
    engine->tables = g_ptr_array_new_with_free_func((GDestroyNotify)table_free);
    engine->runs = g_ptr_array_new();
    engine->exits = g_array_new(FALSE, FALSE, sizeof(ExitCall));
    pthread_mutex_init(&engine->lock, NULL);
    pthread_mutex_init(&engine->changing, NULL);
    pthread_mutex_init(&engine->status_lock, NULL);
    monotonic_cond_init(&engine->changed);
    actor_init(&engine->helper, handle_invoke, NULL);
    actor_init(&engine->part_steps, handle_invoke, NULL);
    led_snapshots_init(engine);
    snapshot_asks_init(&engine->snapshot_asks, tell_scheduler, engine);
    const bool started = start(engine, error);
    thread_binding_end(engine->binding);
    if (!started) {
        g_clear_pointer(&engine, rubato_engine_free);
        return NULL;
    }
    engine->config.announcement = NULL;
    engine_set_ready(engine);
    if (engine->newcomer != NULL) {
        if (!serving_start(engine, error) || !newcomer_wait_placed(engine, error))
            g_clear_pointer(&engine, rubato_engine_free);
    } else if (engine->serving != NULL) {
        serving_run(engine, error);
        g_clear_pointer(&engine, rubato_engine_free);
    }
    return engine;
}

RubatoEngine *rubato_engine_new(const RubatoEngineConfig *config, GError **error)
{
    g_return_val_if_fail(config != NULL, NULL);
    return engine_new_of(config, &(EngineParts){ .transport = NULL }, error);
}

RubatoEngine *rubato_engine_new_with_faults(const RubatoEngineConfig *config,
                                            const RubatoWireFaults *faults, GError **error)
{
    g_return_val_if_fail(config != NULL && faults != NULL, NULL);
    const double chances[] = { faults->loss, faults->doubling, faults->reordering, faults->cut };
    for (size_t i = 0; i < G_N_ELEMENTS(chances); i++)
        if (!(chances[i] >= 0 && chances[i] <= 1)) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                        "a chance of a fault on the wire is %g; it has to be from 0 to 1",
                        chances[i]);
            return NULL;
        }
    return engine_new_of(config, &(EngineParts){ .of_packets = faults }, error);
}

/* ---- leaving ---- */

static void end_runs(RubatoEngine *engine)
{
    for (;;) {
        RubatoTaskRun *run = NULL;

        pthread_mutex_lock(&engine->lock);
        if (engine->runs->len > 0)
            run = g_ptr_array_index(engine->runs, 0);
        pthread_mutex_unlock(&engine->lock);
        if (run == NULL)
            return;
        rubato_engine_cancel(engine);
        rubato_task_run_wait(run, NULL);
    }
}

/* Says that this node has nothing left to do, and waits until all nodes have said so. */
static void leave(RubatoEngine *engine)
{
    StallClock clock;
    bool has_left; /* it was drained */

    /* A program that has not caught up is of none of the others' calls: its node serves on. */
    const bool serves_only = newcomer_catches_up(engine);

    pthread_mutex_lock(&engine->lock);
    has_left = engine->left;
    pthread_mutex_unlock(&engine->lock);
    if (!has_left && !serves_only)
        engine_tell_scheduler(engine, &(Control){ .kind = CONTROL_LEAVE });
    stall_clock_start(&clock, engine->stall_ms);
    pthread_mutex_lock(&engine->lock);
    while (!engine->left && !engine->scheduler_lost &&
           !(serves_only && engine->newcomer->has_ended)) /* it can serve no more, and is lost */
        if (stall_clock_wait(&clock, &engine->changed, &engine->lock))
            g_message("node %u has nothing left to do and serves the others until they leave too "
                      "(for %.1f s so far)",
                      engine->id, stall_clock_s(&clock));
    pthread_mutex_unlock(&engine->lock);
}

/* If all nodes have left, all close it about now. What they do afterwards, such as waiting for a
 * service that still runs, may take as long as it likes.
 *
 * No task is left here. end_runs has ended and freed all runs, which takes their exchanges from the
 * router, and a run starts only by a call of the program, which must not make one any more. Pieces
 * and decisions that still come find no exchange, and do not reach the backend. Other nodes need no
 * more from it: their tasks had ended before they left. */
static void close_collectives(RubatoEngine *engine)
{
    pthread_mutex_lock(&engine->lock);
    const bool others_close = engine->left && !engine->broken;
    pthread_mutex_unlock(&engine->lock);
    tensor_router_close(engine->tensors, others_close ? COLLECTIVES_CLOSE_MS : 0);
}

/* The last one first. A function may register another. */
static void call_exits(RubatoEngine *engine)
{
    ExitCall call;
    bool is_there;

    do {
        pthread_mutex_lock(&engine->lock);
        is_there = engine->exits->len > 0;
        if (is_there) {
            call = g_array_index(engine->exits, ExitCall, engine->exits->len - 1);
            g_array_set_size(engine->exits, engine->exits->len - 1);
        }
        pthread_mutex_unlock(&engine->lock);
        if (is_there)
            call.function(call.user_data);
    } while (is_there);
}

/* From now on the engine is being freed. False if it is so already, or must not be from here. */
static bool begin_end(RubatoEngine *engine, GError **error)
{
    bool was_ending;

    if (engine->services != NULL && services_are_calling(engine->services)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "rubato_engine_free: called from a service, whose end it waits for; call it "
                    "from outside");
        return false;
    }
    pthread_mutex_lock(&engine->lock);
    was_ending = engine->is_ending;
    engine->is_ending = true;
    pthread_mutex_unlock(&engine->lock);
    if (was_ending)
        g_set_error(
            error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
            "rubato_engine_free: the engine is being freed already, as in an exit function");
    return !was_ending;
}

void rubato_engine_free(RubatoEngine *engine)
{
    g_autoptr(GError) error = NULL;

    if (engine == NULL)
        return;
    /* A forked process does not have the engine's threads. A worker, a callback or a service would
     * wait for its own end, and an exit function's engine would be freed twice. */
    if (!engine_check_caller(engine, "rubato_engine_free", &error) || !begin_end(engine, &error)) {
        g_critical("%s; the engine was not freed", error->message);
        return;
    }
    LOG_SINK_SCOPE(&engine->log);
    end_runs(engine);
    engine_end_history(engine);
    call_exits(engine);
    stream_writers_free(engine->stream_writers);
    if (engine->rendezvous.welcome && (engine->serving == NULL || engine->newcomer != NULL)) {
        leave(engine);
        close_collectives(engine);
    }
    serving_join(engine);
    engine_end_needs(engine);
    if (engine->services != NULL)
        services_break(engine->services, CONTROL_CODE(RUBATO_ERROR_CANCELLED), "its engine ends");
    engine_end_status(engine);
    actor_stop(&engine->part_steps);
    led_snapshots_stop(engine);
    if (engine->network != NULL)
        network_stop(engine->network);
    services_stop(engine->services);
    sweeper_stop(&engine->sweeper);
    for (uint32_t i = 0; i < engine->n_servers; i++)
        server_stop(&engine->servers[i]);
    actor_stop(&engine->helper);
    /* A thread that breaks the run may still be in engine_break: from here on there is none. */
    signal_watch_free(engine->signals);
    engine_end_health(engine);
    services_free(engine->services);
    g_clear_pointer(&engine->tensors, tensor_router_free);
    for (uint32_t i = 0; i < engine->n_servers; i++)
        server_clear(&engine->servers[i]);
    no_numbers_clear(&engine->no_numbers);
    g_free(engine->long_handlers);
    refusals_clear(&engine->refusals);
    history_close(engine->history);
    timeline_free(engine->timeline);
    network_free(engine->network);
    if (engine->journal_file != NULL && engine->scheduler != NULL &&
        scheduler_has_ended(engine->scheduler))
        journal_file_remove(engine->journal_file);
    scheduler_free(engine->scheduler);
    journal_file_free(engine->journal_file);
    if (engine->unheard.send != NULL)
        unheard_clear(&engine->unheard);
    g_free(engine->scheduler_address);
    roster_free(engine->roster);
    if (engine->office.servers != NULL)
        post_office_clear(&engine->office);
    g_aligned_free(engine->servers);
    g_ptr_array_unref(engine->tables);
    g_ptr_array_unref(engine->runs);
    g_array_unref(engine->exits);
    for (uint32_t i = 0; engine->losses != NULL && i < engine->n_nodes; i++)
        g_free(engine->losses[i].text);
    g_free(engine->losses);
    g_free(engine->drains);
    g_free(engine->told_ended);
    if (engine->drain_asks != NULL)
        g_ptr_array_unref(engine->drain_asks);
    g_free(engine->call.lost);
    g_free(engine->call.workerless);
    serving_free(engine->serving);
    newcomer_free(engine->newcomer);
    g_free((void *)(uintptr_t)engine->config.cluster_file);
    g_free(engine->node_ids);
    g_strfreev(engine->node_names);
    g_free(engine->servers_of);
    g_free(engine->workers_of);
    g_free(engine->addresses);
    g_free(engine->restored_from);
    g_free(engine->rendezvous.refusal);
    g_free(engine->rendezvous.later);
    g_free(engine->call.commit_text);
    g_free(engine->broken_text);
    faults_on_demand_clear(&engine->on_demand);
    pthread_cond_destroy(&engine->changed);
    pthread_mutex_destroy(&engine->changing);
    pthread_mutex_destroy(&engine->status_lock);
    pthread_mutex_destroy(&engine->lock);
    cluster_free(engine->cluster);
    snapshot_asks_clear(&engine->snapshot_asks);
    thread_binding_free(engine->binding);
    free(engine);
    registry_release();
}

/* ---- what the engine tells of itself ---- */

static uint32_t sum(const uint32_t *numbers, uint32_t n)
{
    uint32_t total = 0;

    for (uint32_t i = 0; i < n; i++)
        total += numbers[i];
    return total;
}

uint32_t rubato_engine_node(const RubatoEngine *engine)
{
    return engine->id;
}

bool rubato_engine_catches_up(RubatoEngine *engine)
{
    g_return_val_if_fail(engine != NULL, false);
    return newcomer_catches_up(engine);
}

const char *rubato_engine_faults(const RubatoEngine *engine)
{
    return engine->on_demand.text;
}

const char *rubato_engine_binding(const RubatoEngine *engine)
{
    return engine->binding != NULL ? thread_binding_text(engine->binding) : NULL;
}

uint32_t rubato_engine_n_nodes(const RubatoEngine *engine)
{
    return engine->n_nodes;
}

uint32_t rubato_engine_n_servers(const RubatoEngine *engine)
{
    return sum(engine->servers_of, engine->n_nodes);
}

uint32_t rubato_engine_n_workers(const RubatoEngine *engine)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < engine->n_nodes; i++)
        n += engine->cluster != NULL && engine->cluster->nodes[i].spare ? 0 : engine->workers_of[i];
    return n;
}
