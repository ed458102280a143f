/* Requests that come to this node: pieces of other nodes' ones, and its own ones whole. See
 * services.h.
 *
 * A request is a job from its first piece on, and stays in `jobs` until it is answered. All of its
 * bytes count as kept from then on, although memory is taken only as they come. If its answer will
 * be an error, its further pieces are counted and dropped.
 *
 * Threads: the receiving one, or that of a call of this node; with the lock. */
#include "engine/services/services_private.h"

#include <string.h>

static bool is_barrier(const ServiceJob *job)
{
    return strcmp(job->name, SERVICE_BARRIER) == 0;
}

/* Its answer will be an error; the first one stays. */
static void refuse(ServiceJob *job, RubatoError code, const char *text)
{
    if (job->code != CONTROL_OK)
        return;
    job->code = CONTROL_CODE(code);
    job->text = g_strdup(text);
}

/* All of the job has come. */
static void take_whole(Services *services, ServiceJob *job)
{
    job->is_whole = true;
    ServiceRunner *const runner = job->code == CONTROL_OK && !is_barrier(job)
                                      ? service_runner_find(services, job->name)
                                      : NULL;
    if (runner == NULL && !is_barrier(job))
        refuse(job, RUBATO_ERROR_NOT_FOUND, "this node has no such service");
    service_runner_give(services, runner != NULL ? runner : service_runner_clerk(services), job);
}

static void insert(Services *services, ServiceJob *job)
{
    g_hash_table_insert(services->jobs[job->node], &job->serial, job);
}

void service_requests_take_own(Services *services, ServiceJob *job)
{
    insert(services, job);
    take_whole(services, job);
}

void service_requests_forget(Services *services, uint32_t node, uint64_t serial)
{
    ServiceJob *const job = g_hash_table_lookup(services->jobs[node], &serial);

    if (job == NULL)
        return; /* it was answered meanwhile */
    if (!job->is_whole) {
        service_job_end(services, job);
    } else if (job->is_held) {
        service_barrier_forget(services, job);
        service_runner_give(services, service_runner_clerk(services), job);
    }
}

/* Counts the bytes that will come, or refuses them. */
static void keep(Services *services, ServiceJob *job)
{
    uint64_t *const kept = &services->kept[job->node];

    if (job->n_whole <= services->most_kept_bytes - *kept) {
        job->n_kept = job->n_whole;
        *kept += job->n_kept;
        return;
    }
    g_autofree char *text = g_strdup_printf(
        "it keeps at most %" G_GUINT64_FORMAT " MiB of another node's requests (service_mib in the "
        "cluster file); %" G_GUINT64_FORMAT " bytes beside %" G_GUINT64_FORMAT " are more",
        services->most_kept_bytes >> 20, job->n_whole, *kept);
    refuse(job, RUBATO_ERROR_MEMORY, text);
}

static const char *begin_job(Services *services, uint32_t node, const ServiceMessage *message)
{
    if (message->offset != 0)
        return "a piece of a request without those before it";
    if (g_hash_table_size(services->jobs[node]) >= 2 * MOST_OPEN)
        return "more requests to services than a node may have open";
    ServiceJob *const job = g_new0(ServiceJob, 1);
    job->node = node;
    job->serial = message->serial;
    job->n_whole = message->n_whole;
    g_strlcpy(job->name, message->name, sizeof job->name);
    insert(services, job);
    if (!is_barrier(job) && service_runner_find(services, job->name) == NULL)
        refuse(job, RUBATO_ERROR_NOT_FOUND, "this node has no such service");
    else
        keep(services, job);
    return NULL;
}

static void refuse_for_memory(Services *services, ServiceJob *job)
{
    g_autofree char *text = g_strdup_printf(
        "no memory there for the request of %" G_GUINT64_FORMAT " bytes", job->n_whole);

    service_job_release(services, job);
    refuse(job, RUBATO_ERROR_MEMORY, text);
}

static const char *take_request(Services *services, uint32_t node, const ServiceMessage *message)
{
    const char *wrong = NULL;
    ServiceJob *job = g_hash_table_lookup(services->jobs[node], &message->serial);

    if (job == NULL) {
        wrong = begin_job(services, node, message);
        job = g_hash_table_lookup(services->jobs[node], &message->serial);
    }
    if (wrong != NULL)
        return wrong;
    if (job->is_whole || message->offset != job->body.n || message->n_whole != job->n_whole)
        return "a piece of a request out of its order";
    if (job->code != CONTROL_OK) {
        job->body.n += message->n_bytes; /* counted, and dropped */
    } else if (!service_body_add(&job->body, message->bytes, message->n_bytes, message->n_whole)) {
        refuse_for_memory(services, job);
        job->body.n += message->n_bytes;
    }
    if (job->body.n == job->n_whole)
        take_whole(services, job);
    return NULL;
}

const char *services_receive(Services *services, Incoming *incoming)
{
    const uint32_t node = incoming->node;
    ServiceMessage message;
    const char *wrong = service_message_read(incoming->values, incoming->value_bytes, &message);

    if (wrong == NULL) {
        pthread_mutex_lock(&services->lock);
        if (message.kind == SERVICE_MESSAGE_REQUEST)
            wrong = take_request(services, node, &message);
        else if (message.kind == SERVICE_MESSAGE_ANSWER)
            wrong = service_replies_receive(services, node, &message);
        else
            service_requests_forget(services, node, message.serial);
        pthread_mutex_unlock(&services->lock);
    }
    incoming_free(incoming);
    return wrong;
}
