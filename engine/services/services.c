/* The services of this node: their life, and the public calls on them. See services.h. */
#include "engine/services/services_private.h"

#include <string.h>

#include "io/net/monotonic.h"

static void job_free(gpointer data)
{
    ServiceJob *const job = data;

    g_clear_pointer(&job->local, g_bytes_unref);
    g_free(job->body.bytes);
    g_free(job->text);
    g_free(job);
}

void services_serve_own(Services *services, const char *name, RubatoServiceFunc function,
                        void *user_data)
{
    pthread_mutex_lock(&services->lock);
    g_ptr_array_add(services->runners, service_runner_new(name, function, user_data));
    pthread_mutex_unlock(&services->lock);
}

/* ---- the public calls ---- */

static bool is_own(const char *name)
{
    return g_str_has_prefix(name, "rubato.");
}

static bool check_name(const char *name, GError **error)
{
    const size_t n = strlen(name);

    if (n > 0 && n < RUBATO_SERVICE_NAME_BYTES && g_utf8_validate(name, -1, NULL) && !is_own(name))
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "\"%.80s\" is no name for a service: give it 1 to %d bytes of UTF-8 that do not "
                "begin with \"rubato.\"",
                name, RUBATO_SERVICE_NAME_BYTES - 1);
    return false;
}

bool services_serve(Services *services, const char *name, RubatoServiceFunc function,
                    void *user_data, GError **error)
{
    ServiceRunner *runner;
    bool is_new, started = false;

    if (!check_name(name, error))
        return false;
    runner = service_runner_new(name, function, user_data);
    pthread_mutex_lock(&services->lock);
    is_new = service_runner_find(services, name) == NULL;
    if (is_new)
        started = service_runner_start(services, runner) == 0;
    if (started)
        g_ptr_array_add(services->runners, runner);
    pthread_mutex_unlock(&services->lock);
    if (started)
        return true;
    service_runner_free(runner);
    if (is_new)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "no thread for service %s", name);
    else
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_EXISTS, "this node serves %s already", name);
    return false;
}

/* Whether the end of this service waits for the end of `own`, which runs a function now. The lock
 * is held. */
static bool waits_for(const ServiceRunner *runner, const ServiceRunner *own)
{
    while (runner != NULL && runner != own)
        runner = runner->awaited;
    return runner != NULL;
}

static void refuse_circle(const ServiceRunner *runner, const ServiceRunner *own, GError **error)
{
    if (runner == own)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "service %s cannot end itself, because its end waits for that of its function; "
                    "call rubato_engine_unserve from outside",
                    own->name);
    else
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "service %s cannot end service %s, which waits for its end; call "
                    "rubato_engine_unserve from outside",
                    own->name, runner->name);
}

bool services_unserve(Services *services, const char *name, GError **error)
{
    bool is_circle;

    pthread_mutex_lock(&services->lock);
    ServiceRunner *const runner = is_own(name) ? NULL : service_runner_find(services, name);
    ServiceRunner *const own = service_runner_own(services);
    is_circle = runner != NULL && own != NULL && waits_for(runner, own);
    if (runner != NULL && !is_circle) {
        runner->is_ending = true; /* no other thread ends it as well */
        if (own != NULL)
            own->awaited = runner;
    }
    pthread_mutex_unlock(&services->lock);
    if (is_circle) {
        refuse_circle(runner, own, error);
        return false;
    }
    if (runner == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND, "this node does not serve %s",
                    name);
        return false;
    }
    service_runner_end(services, runner);
    pthread_mutex_lock(&services->lock);
    g_ptr_array_remove(services->runners, runner);
    if (own != NULL)
        own->awaited = NULL;
    pthread_mutex_unlock(&services->lock);
    service_runner_free(runner);
    return true;
}

bool services_are_calling(Services *services)
{
    pthread_mutex_lock(&services->lock);
    const bool is_calling = service_runner_own(services) != NULL;
    pthread_mutex_unlock(&services->lock);
    return is_calling;
}

void services_break(Services *services, uint32_t code, const char *text)
{
    pthread_mutex_lock(&services->lock);
    if (services->broken_text == NULL) {
        services->broken_code = code;
        services->broken_text = g_strdup(text);
        /* relaxed: see service_is_cancelled */
        atomic_store_explicit(&services->is_broken, true, memory_order_relaxed);
    }
    service_replies_break(services);
    pthread_mutex_unlock(&services->lock);
}

/* ---- life ---- */

Services *services_new(PostOffice *office, char *const *node_names, uint64_t most_kept_bytes)
{
    Services *const services = g_new0(Services, 1);
    const uint32_t n = office->n_nodes;

    services->office = office;
    services->node_names = node_names;
    services->most_kept_bytes = most_kept_bytes;
    services->take_own = service_requests_take_own;
    services->forget = service_requests_forget;
    pthread_mutex_init(&services->lock, NULL);
    monotonic_cond_init(&services->changed);
    services->runners = g_ptr_array_new();
    services->jobs = g_new0(GHashTable *, n);
    for (uint32_t i = 0; i < n; i++)
        services->jobs[i] = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, job_free);
    services->kept = g_new0(uint64_t, n);
    services->n_open = g_new0(uint32_t, n);
    services->rooms = g_ptr_array_new_with_free_func(barrier_room_free);
    services->calls = g_hash_table_new(NULL, NULL);
    services->pending = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, g_free);
    g_ptr_array_add(services->runners, service_runner_new("clerk", NULL, NULL));
    return services;
}

void services_stop(Services *services)
{
    if (services == NULL)
        return;
    for (bool is_clerk = false; !is_clerk;) { /* the clerk last */
        pthread_mutex_lock(&services->lock);
        ServiceRunner *const runner =
            g_ptr_array_index(services->runners, services->runners->len - 1);
        is_clerk = services->runners->len == 1;
        pthread_mutex_unlock(&services->lock);

        service_runner_end(services, runner);
        pthread_mutex_lock(&services->lock); /* functions that still run may look at the others */
        g_ptr_array_remove(services->runners, runner);
        pthread_mutex_unlock(&services->lock);
        service_runner_free(runner);
    }
}

void services_free(Services *services)
{
    if (services == NULL)
        return;
    for (uint32_t i = 0; i < services->office->n_nodes; i++)
        g_hash_table_unref(services->jobs[i]);
    g_free(services->jobs);
    g_free(services->kept);
    g_free(services->n_open);
    g_ptr_array_unref(services->rooms);
    g_ptr_array_unref(services->runners);
    g_hash_table_unref(services->calls);
    g_hash_table_unref(services->pending);
    g_free(services->broken_text);
    pthread_cond_destroy(&services->changed);
    pthread_mutex_destroy(&services->lock);
    g_free(services);
}
