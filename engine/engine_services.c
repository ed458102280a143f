/* The public calls on services, barriers of groups, and the list of nodes. */
#include <rubato/service.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_private.h"

bool rubato_engine_serve(RubatoEngine *engine, const char *name, RubatoServiceFunc function,
                         void *user_data, GError **error)
{
    g_return_val_if_fail(engine != NULL && name != NULL && function != NULL, false);
    return engine_check_caller_or_worker(engine, "rubato_engine_serve", error) &&
           services_serve(engine->services, name, function, user_data, error);
}

bool rubato_engine_unserve(RubatoEngine *engine, const char *name, GError **error)
{
    g_return_val_if_fail(engine != NULL && name != NULL, false);
    return engine_check_caller_or_worker(engine, "rubato_engine_unserve", error) &&
           services_unserve(engine->services, name, error);
}

/* ---- who is meant ---- */

static bool refuse_range(GError **error, const char *what, uint32_t number)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_RANGE, "this run has no %s %u", what, number);
    return false;
}

/* The node of a thread, of which each node has so many. */
static bool add_node_of(const RubatoEngine *engine, const uint32_t *threads_of, const char *what,
                        uint32_t number, GArray *nodes, GError **error)
{
    uint32_t first = 0;

    for (uint32_t i = 0; i < engine->n_nodes; i++) {
        if (number - first < threads_of[i]) {
            g_array_append_val(nodes, i);
            return true;
        }
        first += threads_of[i];
    }
    return refuse_range(error, what, number);
}

static bool add_id(const RubatoEngine *engine, uint32_t id, GArray *nodes, GError **error)
{
    for (uint32_t i = 0; i < engine->n_nodes; i++)
        if (engine->node_ids[i] == id) {
            g_array_append_val(nodes, i);
            return true;
        }
    return refuse_range(error, "node", id);
}

/* A spare node that is to be asked by its number. */
static bool check_there(RubatoEngine *engine, const GArray *nodes, GError **error)
{
    bool is_there = true;

    pthread_mutex_lock(&engine->lock);
    for (guint i = 0; i < nodes->len && is_there; i++) {
        const NodeLoss *const loss = &engine->losses[g_array_index(nodes, uint32_t, i)];

        is_there = !loss->is_absent;
        if (!is_there)
            g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST, loss->text);
    }
    pthread_mutex_unlock(&engine->lock);
    return is_there;
}

/* Those that run the program: a node that has joined has no services before it has caught up.
 * threads_of NULL: every such node. */
static bool add_all(RubatoEngine *engine, const uint32_t *threads_of, GArray *nodes)
{
    pthread_mutex_lock(&engine->lock);
    for (uint32_t i = 0; i < engine->n_nodes; i++)
        if ((threads_of == NULL || threads_of[i] > 0) && !engine->losses[i].is_absent &&
            !engine->losses[i].serves)
            g_array_append_val(nodes, i);
    pthread_mutex_unlock(&engine->lock);
    return true;
}

static int compare_numbers(const void *a, const void *b)
{
    const uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

    return left < right ? -1 : left > right;
}

static bool add_list(const RubatoEngine *engine, const RubatoAddressees *to, GArray *nodes,
                     GError **error)
{
    for (size_t i = 0; i < to->n_nodes; i++)
        if (!add_id(engine, to->nodes[i], nodes, error))
            return false;
    g_array_sort(nodes, compare_numbers);
    for (guint i = 1; i < nodes->len; i++)
        if (g_array_index(nodes, uint32_t, i) == g_array_index(nodes, uint32_t, i - 1)) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                        "node %u is twice in a list of nodes",
                        engine->node_ids[g_array_index(nodes, uint32_t, i)]);
            return false;
        }
    return true;
}

/* The numbers of the nodes, ascending. NULL with an error. (transfer full) */
static GArray *find_nodes(RubatoEngine *engine, const RubatoAddressees *to, GError **error)
{
    g_autoptr(GArray) nodes = g_array_new(FALSE, FALSE, sizeof(uint32_t));
    bool found = false;

    switch (to->group) {
    case RUBATO_GROUP_ALL:
        found = add_all(engine, NULL, nodes);
        break;
    case RUBATO_GROUP_SERVERS:
        found = add_all(engine, engine->servers_of, nodes);
        break;
    case RUBATO_GROUP_WORKERS:
        found = add_all(engine, engine->workers_of, nodes);
        break;
    case RUBATO_GROUP_NODES:
        found = add_list(engine, to, nodes, error);
        break;
    case RUBATO_GROUP_NODE:
        found = add_id(engine, to->number, nodes, error);
        break;
    case RUBATO_GROUP_SERVER:
        found = add_node_of(engine, engine->servers_of, "server", to->number, nodes, error);
        break;
    case RUBATO_GROUP_WORKER:
        found = add_node_of(engine, engine->workers_of, "worker", to->number, nodes, error);
        break;
    default:
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "there is no group %d",
                    (int)to->group);
        break;
    }
    return found && check_there(engine, nodes, error) ? g_steal_pointer(&nodes) : NULL;
}

/* ---- requests ---- */

static RubatoServiceCall *ask_nodes(RubatoEngine *engine, const RubatoQuestion *question,
                                    const GArray *nodes, GError **error)
{
    if (question->n_bytes > RUBATO_SERVICE_MOST_BYTES ||
        strlen(question->service) >= RUBATO_SERVICE_NAME_BYTES || *question->service == '\0' ||
        !g_utf8_validate(question->service, -1, NULL)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "a request of %zu bytes to service \"%.80s\": a name has 1 to %d bytes of "
                    "UTF-8, a request at most %zu",
                    question->n_bytes, question->service, RUBATO_SERVICE_NAME_BYTES - 1,
                    RUBATO_SERVICE_MOST_BYTES);
        return NULL;
    }
    return services_request(engine->services, question, (const uint32_t *)(const void *)nodes->data,
                            nodes->len);
}

/* Asks one node, and waits. */
static bool ask_one(RubatoEngine *engine, const RubatoQuestion *question, const GArray *node,
                    GBytes **bytes, GError **error)
{
    LOG_SINK_SCOPE(&engine->log);
    g_autoptr(RubatoServiceCall) call = ask_nodes(engine, question, node, error);
    RubatoServiceAnswer answer;

    if (call == NULL || !rubato_service_call_next(call, &answer))
        return false;
    if (answer.error != NULL) {
        g_propagate_error(error, g_error_copy(answer.error));
        return false;
    }
    if (bytes != NULL)
        *bytes = g_bytes_ref(answer.bytes);
    return true;
}

RubatoServiceCall *rubato_engine_request(RubatoEngine *engine, const RubatoQuestion *question,
                                         GError **error)
{
    g_return_val_if_fail(engine != NULL && question != NULL && question->service != NULL, NULL);
    g_return_val_if_fail(question->bytes != NULL || question->n_bytes == 0, NULL);
    if (!engine_check_caller_or_worker(engine, "rubato_engine_request", error))
        return NULL;
    g_autoptr(GArray) nodes = find_nodes(engine, &question->to, error);
    return nodes != NULL ? ask_nodes(engine, question, nodes, error) : NULL;
}

bool rubato_engine_ask(RubatoEngine *engine, const RubatoQuestion *question, GBytes **answer,
                       GError **error)
{
    g_return_val_if_fail(engine != NULL && question != NULL && question->service != NULL, false);
    g_return_val_if_fail(question->bytes != NULL || question->n_bytes == 0, false);
    if (!engine_check_caller_or_worker(engine, "rubato_engine_ask", error))
        return false;
    g_autoptr(GArray) nodes = find_nodes(engine, &question->to, error);
    if (nodes == NULL)
        return false;
    if (nodes->len != 1) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "rubato_engine_ask: service %s is asked of a group of %u nodes; use "
                    "rubato_engine_request",
                    question->service, nodes->len);
        return false;
    }
    return ask_one(engine, question, nodes, answer, error);
}

bool rubato_engine_group_barrier(RubatoEngine *engine, const RubatoAddressees *group,
                                 uint32_t timeout_ms, GError **error)
{
    bool is_part = false;

    g_return_val_if_fail(engine != NULL && group != NULL, false);
    if (!engine_check_caller_or_worker(engine, "rubato_engine_group_barrier", error))
        return false;
    g_autoptr(GArray) nodes = find_nodes(engine, group, error);
    if (nodes == NULL)
        return false;
    for (guint i = 0; i < nodes->len; i++)
        is_part |= g_array_index(nodes, uint32_t, i) == engine->self;
    if (!is_part) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "node %u is not in the group whose barrier it comes to", engine->id);
        return false;
    }
    const RubatoQuestion question = { .service = SERVICE_BARRIER,
                                      .bytes = nodes->data,
                                      .n_bytes = nodes->len * sizeof(uint32_t),
                                      .timeout_ms = timeout_ms };
    g_autoptr(GArray) first = g_array_new(FALSE, FALSE, sizeof(uint32_t));
    g_array_append_vals(first, nodes->data, 1);
    return ask_one(engine, &question, first, NULL, error);
}

/* ---- the end, and who lives ---- */

void rubato_engine_at_exit(RubatoEngine *engine, void (*function)(void *user_data), void *user_data)
{
    const ExitCall call = { function, user_data };

    g_return_if_fail(engine != NULL && function != NULL);
    pthread_mutex_lock(&engine->lock);
    g_array_append_val(engine->exits, call);
    pthread_mutex_unlock(&engine->lock);
}

RubatoNodeState *rubato_engine_list_nodes(RubatoEngine *engine, size_t *n)
{
    RubatoNodeState *states;

    g_return_val_if_fail(engine != NULL && n != NULL, NULL);
    states = g_new0(RubatoNodeState, engine->n_nodes);
    pthread_mutex_lock(&engine->lock);
    for (uint32_t i = 0; i < engine->n_nodes; i++) {
        const NodeLoss *const loss = &engine->losses[i];
        const int64_t heard_ms = i != engine->self && engine->network != NULL
                                     ? network_heard_ms(engine->network, i)
                                     : -1;

        states[i] = (RubatoNodeState){
            .node = engine->node_ids[i],
            .servers = engine->servers_of[i],
            .workers = engine->workers_of[i],
            .name = g_strdup(engine->node_names[i]),
            .is_lost = loss->text != NULL && !loss->is_absent,
            .is_spare = loss->is_absent,
            .is_drained = loss->is_drained,
            .silent_s = loss->text != NULL ? loss->silent_s
                        : heard_ms >= 0    ? (double)(network_now_ms() - heard_ms) / 1e3
                                           : 0,
            .lost_us = loss->at_us,
            .why = g_strdup(loss->text),
        };
    }
    pthread_mutex_unlock(&engine->lock);
    *n = engine->n_nodes;
    return states;
}

void rubato_node_states_free(RubatoNodeState *states, size_t n)
{
    for (size_t i = 0; states != NULL && i < n; i++) {
        g_free(states[i].name);
        g_free(states[i].why);
    }
    g_free(states);
}
