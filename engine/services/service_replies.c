/* Answers to this node's requests. See services.h.
 *
 * A request stays in `pending` until its answer is there, also if nobody waits for it any more. So
 * a node never has more requests open than MOST_OPEN, and the node that answers may rely on that.
 *
 * Threads: the receiving one, a service's, or that of a call; with the lock. */
#include "engine/services/services_private.h"

#include <string.h>

static void end_reply(RubatoServiceCall *call, uint32_t place)
{
    ServiceReply *const reply = &call->replies[place];

    if (reply->is_done)
        return;
    reply->is_done = true;
    g_free(reply->body.bytes);
    reply->body = (ServiceBody){ 0 };
    call->order[call->n_done++] = place;
    pthread_cond_broadcast(&call->services->changed);
}

char *service_node_text(const Services *services, uint32_t node)
{
    return g_strdup_printf("node %u (%s)", services->office->node_ids[node],
                           services->node_names[node]);
}

void service_fail_reply(RubatoServiceCall *call, uint32_t place, uint32_t code, const char *text)
{
    ServiceReply *const reply = &call->replies[place];
    g_autofree char *where = service_node_text(call->services, reply->node);

    if (reply->is_done)
        return;
    control_check(code, text, &reply->error);
    g_prefix_error(&reply->error, "service %s on %s: ", call->name, where);
    end_reply(call, place);
}

void service_forget_pending(Services *services, uint64_t serial)
{
    const ServicePending *const pending = g_hash_table_lookup(services->pending, &serial);

    if (pending == NULL)
        return;
    services->n_open[pending->node]--;
    g_hash_table_remove(services->pending, &serial);
    pthread_cond_broadcast(&services->changed);
}

static void take_answer(const ServicePending *pending, const ServiceMessage *message)
{
    RubatoServiceCall *const call = pending->call;
    ServiceReply *const reply = &call->replies[pending->place];

    if (message->code != CONTROL_OK) {
        g_autofree char *text = g_utf8_make_valid(message->bytes, (gssize)message->n_bytes);
        service_fail_reply(call, pending->place, message->code, text);
    } else if (!reply->is_done && !service_body_add(&reply->body, message->bytes, message->n_bytes,
                                                    message->n_whole)) {
        g_autofree char *text = g_strdup_printf(
            "no memory here for its answer of %" G_GUINT64_FORMAT " bytes", message->n_whole);
        service_fail_reply(call, pending->place, CONTROL_CODE(RUBATO_ERROR_MEMORY), text);
    }
    if (reply->is_done || reply->body.n < message->n_whole)
        return;
    reply->bytes = g_bytes_new_take(g_steal_pointer(&reply->body.bytes), reply->body.n);
    end_reply(call, pending->place);
}

const char *service_replies_receive(Services *services, uint32_t node,
                                    const ServiceMessage *message)
{
    ServicePending *const pending = g_hash_table_lookup(services->pending, &message->serial);

    if (message->serial == 0 || message->serial > services->serial)
        return "an answer to a request that was never made";
    if (pending == NULL)
        return services->broken_text != NULL ? NULL : "a second answer to a request";
    if (pending->node != node)
        return "an answer to a request to another node";
    if (pending->call != NULL) {
        const ServiceReply *const reply = &pending->call->replies[pending->place];

        /* a failure may come in place of any piece */
        if (!reply->is_done && message->code == CONTROL_OK && message->offset != reply->body.n)
            return "a piece of an answer out of its order";
        if (!reply->is_sent)
            return "an answer to a request that it has not got whole";
        take_answer(pending, message);
    }
    if (message->offset + message->n_bytes == message->n_whole)
        service_forget_pending(services, message->serial);
    return NULL;
}

void service_replies_answer_own(Services *services, const ServiceJob *job, uint32_t code,
                                GBytes *bytes)
{
    const ServicePending *const pending = g_hash_table_lookup(services->pending, &job->serial);
    gsize n;

    if (pending != NULL && pending->call != NULL) {
        RubatoServiceCall *const call = pending->call;

        if (code != CONTROL_OK) {
            const char *const text = g_bytes_get_data(bytes, &n);
            g_autofree char *copy = g_strndup(text != NULL ? text : "", n);
            service_fail_reply(call, pending->place, code, copy);
        } else if (!call->replies[pending->place].is_done) {
            call->replies[pending->place].bytes = g_bytes_ref(bytes);
            end_reply(call, pending->place);
        }
    }
    service_forget_pending(services, job->serial);
}

void service_replies_break(Services *services)
{
    GHashTableIter iter;
    gpointer value;

    g_hash_table_iter_init(&iter, services->pending);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const ServicePending *const pending = value;

        if (pending->call != NULL)
            service_fail_reply(pending->call, pending->place, services->broken_code,
                               services->broken_text);
        services->n_open[pending->node]--;
        g_hash_table_iter_remove(&iter);
    }
    pthread_cond_broadcast(&services->changed);
}
