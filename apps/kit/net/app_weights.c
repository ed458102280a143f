/* A worker's arrays for the layers of a net. Runs on the worker's thread. */
#include "apps/kit/net/app_weights.h"

void app_weights_clear(AppWeights *it)
{
    for (uint32_t l = 0; l < APP_NET_LAYERS_MAX; l++) {
        rubato_kv_table_free(it->tables[l]);
        rubato_kv_table_free(it->states_tables[l]);
        g_free(it->weights[l]);
        g_free(it->gradients[l]);
        g_free(it->states[l]);
    }
    rubato_kv_table_free(it->steps_table);
    *it = (AppWeights){ .layers = NULL };
}

static bool open_layer(AppWeights *it, uint32_t l, GError **error)
{
    const AppLayers *const layers = it->layers;
    const size_t n = app_net_layer_values(&layers->shape, l);
    const uint32_t n_states = layers->of_workers ? app_net_rule_n_states(layers->rule) : 0;

    it->tables[l] = rubato_worker_open_kv_table(it->worker, layers->names[l], RUBATO_F32, error);
    if (it->tables[l] == NULL)
        return false;
    it->weights[l] = g_try_new(float, n);
    it->gradients[l] = g_try_new(float, n);
    if (n_states > 0) {
        it->states_tables[l] =
            rubato_worker_open_kv_table(it->worker, layers->states[l], RUBATO_F32, error);
        if (it->states_tables[l] == NULL)
            return false;
        it->states[l] = g_try_new(float, n_states *n);
    }
    if (it->weights[l] != NULL && it->gradients[l] != NULL &&
        (n_states == 0 || it->states[l] != NULL))
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "no memory for %s, of %zu weights",
                layers->names[l], n);
    return false;
}

bool app_weights_open(AppWeights *it, const AppLayers *layers, RubatoWorker *worker, GError **error)
{
    *it = (AppWeights){ .layers = layers, .worker = worker };
    for (uint32_t l = 0; l < layers->shape.n_layers; l++)
        if (!open_layer(it, l, error))
            return false;
    if (it->states[0] == NULL)
        return true;
    it->steps_table = rubato_worker_open_kv_table(worker, APP_LAYERS_STEPS, RUBATO_F64, error);
    return it->steps_table != NULL;
}

/* Those that were asked for are waited for in any case, because until then their arrays may be
 * written to. */
bool app_weights_get(const AppWeights *it, GError **error)
{
    const AppNetShape *const shape = &it->layers->shape;
    RubatoTicket tickets[APP_NET_LAYERS_MAX];
    uint32_t n_asked = 0;
    bool good = true;

    for (; good && n_asked < shape->n_layers; n_asked += good) {
        tickets[n_asked] = rubato_kv_table_get_range_async(
            it->tables[n_asked], 0, shape->sizes[n_asked + 1], it->weights[n_asked], NULL, error);
        good = tickets[n_asked] != 0;
    }
    for (uint32_t l = 0; l < n_asked; l++)
        good = rubato_worker_wait(it->worker, tickets[l], good ? error : NULL) && good;
    return good;
}

/* ---- where workers apply the rule ---- */

/* Rows of a layer's table of states. */
static size_t n_state_rows(const AppWeights *it, uint32_t l)
{
    return (size_t)app_net_rule_n_states(it->layers->rule) * it->layers->shape.sizes[l + 1];
}

bool app_weights_get_states(AppWeights *it, GError **error)
{
    double n_steps = 0;

    for (uint32_t l = 0; l < it->layers->shape.n_layers; l++)
        if (it->states[l] != NULL &&
            !rubato_kv_table_get_range(it->states_tables[l], 0, n_state_rows(it, l), it->states[l],
                                       error))
            return false;
    if (it->steps_table != NULL &&
        !rubato_kv_table_get_range(it->steps_table, 0, 1, &n_steps, error))
        return false;
    it->n_steps = (uint64_t)n_steps;
    return true;
}

/* These tables take what is added instead of what they have. */
bool app_weights_write(void *user_data, GError **error)
{
    const AppWeights *const it = user_data;
    const AppNetShape *const shape = &it->layers->shape;
    const double n_steps = (double)it->n_steps;

    for (uint32_t l = 0; l < shape->n_layers; l++)
        if (!rubato_kv_table_add_range(it->tables[l], 0, shape->sizes[l + 1], it->weights[l],
                                       error) ||
            (it->states[l] != NULL &&
             !rubato_kv_table_add_range(it->states_tables[l], 0, n_state_rows(it, l), it->states[l],
                                        error)))
            return false;
    return it->steps_table == NULL ||
           rubato_kv_table_add_range(it->steps_table, 0, 1, &n_steps, error);
}

size_t app_weights_tensors(const AppWeights *it, RubatoTensor *tensors)
{
    const AppLayers *const layers = it->layers;

    for (uint32_t l = 0; l < layers->shape.n_layers; l++)
        tensors[l] = (RubatoTensor){ .name = layers->names[l],
                                     .dtype = RUBATO_F32,
                                     .n_dims = 1,
                                     .shape = { app_net_layer_values(&layers->shape, l) },
                                     .input = it->gradients[l],
                                     .output = it->gradients[l] };
    return layers->shape.n_layers;
}

void app_weights_step(AppWeights *it, double rate)
{
    const AppLayers *const layers = it->layers;

    for (uint32_t l = 0; l < layers->shape.n_layers; l++)
        app_net_rule_step(layers->rule, rate, it->n_steps, app_net_layer_values(&layers->shape, l),
                          it->gradients[l], it->weights[l], it->states[l]);
    it->n_steps++;
}
