/* What a node tells of the run: see engine_status.h.
 *
 * Three pictures make a status:
 *
 *   the scheduler's   made by whoever has the control actor, between two of its events, so it is
 *                     of one moment. It takes as long as a copy of some numbers and names. The
 *                     asker waits for the actor, the actor for nobody.
 *   this node's       copied worker by worker under the engine's lock, which no request of a worker
 *                     takes. What it says of one worker is of one moment.
 *   another node's    made there in the same way, by the thread of a service of the engine's own.
 *
 * They are of different moments: a worker may begin a block after the scheduler's picture and
 * before its node's. So what is said of one thing comes from one picture alone: which worker has
 * which block from its node, how many blocks are left from the scheduler. A node that does not
 * answer in time is shown as such, with what the scheduler knows of it.
 *
 * One asker at a time is answered, the others wait: many of them do not keep the nodes busy. */
#include "engine/health/engine_status.h"

#include <string.h>

#include "engine/engine_private.h"
#include "engine/task/status_parts.h"
#include "engine/task/task_run.h"
#include "io/net/log_sink.h"

enum { USUAL_WAIT_MS = 2000 };

/* ---- this node ---- */

static void add_table(const Table *table, GVariantBuilder *list)
{
    const RubatoTableSpec *const spec = table->spec;
    GVariantBuilder part;

    g_variant_builder_init(&part, STATUS_PART);
    status_add_text(&part, "name", spec->name);
    status_add_text(&part, "dtype", rubato_dtype_name(spec->dtype));
    status_add_count(&part, "width", spec->width);
    status_add_text(&part, "storage", spec->storage);
    status_add_text(&part, "model", spec->model);
    status_add_text(&part, "update", spec->update);
    if (rubato_table_spec_holds_range(spec))
        status_add_count(&part, "keys", spec->n_keys);
    status_add_count(&part, "parts", table->map->n_parts);
    status_add_count(&part, "replicas", table->map->n_replicas);
    g_variant_builder_add_value(list, g_variant_builder_end(&part));
}

/* What this node alone knows. */
static GVariant *describe_node(RubatoEngine *engine)
{
    GVariantBuilder part, tasks;

    g_variant_builder_init(&part, STATUS_PART);
    g_variant_builder_init(&tasks, STATUS_LIST);
    status_add_count(&part, "node", engine->id);
    status_add_count(&part, "servers", engine->servers_of[engine->self]);
    pthread_mutex_lock(&engine->lock);
    for (guint i = 0; i < engine->runs->len; i++)
        g_variant_builder_add_value(&tasks, task_run_status(engine->runs->pdata[i]));
    pthread_mutex_unlock(&engine->lock);
    status_add_built(&part, "tasks", &tasks);
    return g_variant_builder_end(&part);
}

static void add_tables(RubatoEngine *engine, GVariantBuilder *part)
{
    GVariantBuilder tables;

    g_variant_builder_init(&tables, STATUS_LIST);
    pthread_mutex_lock(&engine->lock);
    for (guint i = 0; i < engine->tables->len; i++)
        add_table(engine->tables->pdata[i], &tables);
    pthread_mutex_unlock(&engine->lock);
    status_add_built(part, "tables", &tables);
}

/* ---- other nodes ---- */

static bool answer(const RubatoServiceRequest *request, RubatoByteWriter *writer, void *user_data,
                   GError **error)
{
    g_autoptr(GVariant) part = g_variant_ref_sink(describe_node(user_data));

    (void)request;
    (void)error;
    rubato_write(writer, g_variant_get_data(part), g_variant_get_size(part));
    return true;
}

void engine_serve_status(RubatoEngine *engine)
{
    pthread_mutex_lock(&engine->lock);
    engine->status_wait_ms = USUAL_WAIT_MS;
    pthread_mutex_unlock(&engine->lock);
    services_serve_own(engine->services, SERVICE_STATUS, answer, engine);
}

/* What another node has answered, or why it has not. */
static GVariant *read_answer(const RubatoServiceAnswer *answer)
{
    g_autoptr(GVariant) part =
        answer->error == NULL
            ? g_variant_ref_sink(g_variant_new_from_bytes(STATUS_PART, answer->bytes, FALSE))
            : NULL;
    GVariantBuilder failure;

    if (part != NULL && g_variant_is_normal_form(part))
        return g_steal_pointer(&part);
    g_variant_builder_init(&failure, STATUS_PART);
    status_add_count(&failure, "node", answer->node);
    status_add_text(&failure, "no_answer",
                    answer->error != NULL ? answer->error->message
                                          : "what it answers makes no sense");
    return g_variant_ref_sink(g_variant_builder_end(&failure));
}

static void add_others(RubatoEngine *engine, GVariantBuilder *list)
{
    g_autoptr(GArray) nodes = g_array_new(FALSE, FALSE, sizeof(uint32_t));
    RubatoQuestion question = { .service = SERVICE_STATUS };
    RubatoServiceAnswer reply;

    pthread_mutex_lock(&engine->lock);
    question.timeout_ms = engine->status_wait_ms;
    for (uint32_t i = 0; i < engine->n_nodes; i++)
        if (i != engine->self && engine->losses[i].text == NULL)
            g_array_append_val(nodes, i);
    pthread_mutex_unlock(&engine->lock);
    g_autoptr(RubatoServiceCall) call = services_request(
        engine->services, &question, (const uint32_t *)(const void *)nodes->data, nodes->len);
    while (rubato_service_call_next(call, &reply)) {
        g_autoptr(GVariant) part = read_answer(&reply);
        g_variant_builder_add_value(list, part);
    }
}

/* ---- the run ---- */

static void take_scheduler(Scheduler *scheduler, int64_t now_ms, void *user)
{
    g_autoptr(GVariant) part = g_variant_ref_sink(scheduler_status(scheduler, now_ms));

    /* as bytes, since the thread that asks reads it and frees it */
    *(GBytes **)user = g_bytes_new(g_variant_get_data(part), g_variant_get_size(part));
}

static void add_run(RubatoEngine *engine, GVariantBuilder *part)
{
    g_autoptr(GBytes) bytes = NULL;
    GVariantBuilder nodes;

    g_variant_builder_init(&nodes, STATUS_LIST);
    dispatch_look_at_scheduler(engine, take_scheduler, &bytes);
    g_variant_builder_add(part, "{sv}", "run",
                          g_variant_new_from_bytes(STATUS_PART, bytes, /* trusted= */ TRUE));
    g_variant_builder_add_value(&nodes, describe_node(engine));
    if (engine->n_nodes > 1)
        add_others(engine, &nodes);
    status_add_built(part, "nodes", &nodes);
}

static void add_restored(RubatoEngine *engine, GVariantBuilder *part)
{
    GVariantBuilder restored;

    pthread_mutex_lock(&engine->lock);
    if (engine->restored_from != NULL) {
        g_variant_builder_init(&restored, STATUS_PART);
        status_add_text(&restored, "directory", engine->restored_from);
        status_add_count(&restored, "snapshot", engine->restored_number);
        status_add_built(part, "restored", &restored);
    }
    pthread_mutex_unlock(&engine->lock);
}

/* Without the run: this node alone. */
static void add_own(RubatoEngine *engine, GVariantBuilder *part)
{
    GVariantBuilder nodes;

    g_variant_builder_init(&nodes, STATUS_LIST);
    g_variant_builder_add_value(&nodes, describe_node(engine));
    status_add_built(part, "nodes", &nodes);
}

/* Returns whether there is a run of which more can be told. */
static bool add_state(RubatoEngine *engine, GVariantBuilder *part)
{
    const char *state = "runs";
    bool is_there;

    pthread_mutex_lock(&engine->lock);
    is_there = engine->is_ready && !engine->status_ended;
    if (engine->broken_text != NULL)
        state = "broken";
    else if (engine->status_ended)
        state = "ends";
    else if (!engine->is_ready)
        state = "waits for nodes";
    status_add_text(part, "state", state);
    status_add_text(part, "why", engine->broken_text);
    pthread_mutex_unlock(&engine->lock);
    return is_there;
}

GVariant *engine_status(RubatoEngine *engine)
{
    LOG_SINK_SCOPE(&engine->log);
    GVariantBuilder part;

    g_variant_builder_init(&part, STATUS_PART);
    status_add_count(&part, "rubato_status", STATUS_FORMAT);
    status_add_text(&part, "version", RUBATO_VERSION);
    status_add_count(&part, "time_us", (uint64_t)g_get_real_time());
    pthread_mutex_lock(&engine->status_lock);
    if (add_state(engine, &part)) {
        status_add_count(&part, "node", engine->id);
        status_add_count(&part, "scheduler", engine->node_ids[engine->scheduler_node]);
        status_add_text(&part, "scheduler_name", engine->node_names[engine->scheduler_node]);
        status_add_count(&part, "n_nodes", engine->n_nodes);
        if (engine->self == engine->scheduler_node)
            add_run(engine, &part);
        else
            add_own(engine, &part);
        add_tables(engine, &part);
        add_restored(engine, &part);
    }
    pthread_mutex_unlock(&engine->status_lock);
    return g_variant_builder_end(&part);
}

void engine_end_status(RubatoEngine *engine)
{
    pthread_mutex_lock(&engine->status_lock);
    pthread_mutex_lock(&engine->lock);
    engine->status_ended = true;
    pthread_mutex_unlock(&engine->lock);
    pthread_mutex_unlock(&engine->status_lock);
}
