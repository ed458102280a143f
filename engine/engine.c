/* The engine's life: how it is made and freed. How its threads and its network begin is in
 * engine_begin.c.
 *
 * Threads stop in the reverse of the order in which they started. The thread of part steps starts
 * with the first and stops before all others, which it uses. Tables and runs are in lists under
 * the engine's lock. */
#include <errno.h>
#include <rubato/plugin.h>
#include <string.h>

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

/* How long the backend of collectives waits at the end for nodes that end a little later. */
enum { COLLECTIVES_CLOSE_MS = 5000 };

/* ---- making ---- */

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
    const bool started = engine_begin(engine, error);
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

/* What the engine has with other nodes ends: calls, tasks, streams, its membership of the run. */
static void end_membership(RubatoEngine *engine)
{
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
}

/* The order: who may call another one ends before it. */
static void stop_threads(RubatoEngine *engine)
{
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
}

static void free_parts(RubatoEngine *engine)
{
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
    roster_free(engine->roster);
    if (engine->office.servers != NULL)
        post_office_clear(&engine->office);
    g_aligned_free(engine->servers);
    g_ptr_array_unref(engine->tables);
    g_ptr_array_unref(engine->runs);
    g_array_unref(engine->exits);
    serving_free(engine->serving);
    newcomer_free(engine->newcomer);
    faults_on_demand_clear(&engine->on_demand);
    cluster_free(engine->cluster);
    snapshot_asks_clear(&engine->snapshot_asks);
}

static void free_texts_and_lists(RubatoEngine *engine)
{
    for (uint32_t i = 0; engine->losses != NULL && i < engine->n_nodes; i++)
        g_free(engine->losses[i].text);
    g_free(engine->losses);
    g_free(engine->drains);
    g_free(engine->told_ended);
    if (engine->drain_asks != NULL)
        g_ptr_array_unref(engine->drain_asks);
    g_free(engine->call.lost);
    g_free(engine->call.workerless);
    g_free(engine->call.commit_text);
    g_free((void *)(uintptr_t)engine->config.cluster_file);
    g_free(engine->scheduler_address);
    g_free(engine->node_ids);
    g_strfreev(engine->node_names);
    g_free(engine->servers_of);
    g_free(engine->workers_of);
    g_free(engine->addresses);
    g_free(engine->restored_from);
    g_free(engine->rendezvous.refusal);
    g_free(engine->rendezvous.later);
    g_free(engine->broken_text);
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
    end_membership(engine);
    stop_threads(engine);
    free_parts(engine);
    free_texts_and_lists(engine);
    pthread_cond_destroy(&engine->changed);
    pthread_mutex_destroy(&engine->changing);
    pthread_mutex_destroy(&engine->status_lock);
    pthread_mutex_destroy(&engine->lock);
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
