/* This node's requests to services: how they are sent, and the wait for their answers. See
 * services.h.
 *
 * The pieces of a request go to all nodes of its group in turn, as there is room: one that takes
 * nothing holds up no other. The lock is not held while a piece is written and sent. So only the
 * thread to which the call belongs gives a reply up: else a FORGET could overtake a piece.
 *
 * Threads: any; a call belongs to one at a time. */
#include "engine/services/services_private.h"

#include <string.h>

#include "io/net/caller.h"
#include "io/net/monotonic.h"
#include "io/net/stall_clock.h"

enum {
    ROOM_MS = 20,      /* between two looks whether another node has room */
    MOST_NAMED = 8,    /* nodes in a line of the log */
    SHORTEST_WAIT = 1, /* ms */
};

/* ---- giving up: the lock is held ---- */

/* Nobody waits for the reply any more. One that is not whole on the other side is forgotten there
 * at once, and gets no answer. */
static void abandon(RubatoServiceCall *call, uint32_t place)
{
    Services *const services = call->services;
    const ServiceReply *const reply = &call->replies[place];
    ServicePending *const pending =
        reply->serial != 0 ? g_hash_table_lookup(services->pending, &reply->serial) : NULL;

    if (pending == NULL)
        return;
    pending->call = NULL;
    if (reply->node == services->office->self) {
        services->forget(services, reply->node, reply->serial);
        return;
    }
    if (reply->n_sent > 0 || reply->is_sent)
        service_send_short(
            services, reply->node, call->name,
            &(ServiceMessage){ .kind = SERVICE_MESSAGE_FORGET, .serial = reply->serial });
    if (!reply->is_sent)
        service_forget_pending(services, reply->serial);
}

static void give_up(RubatoServiceCall *call, uint32_t place, RubatoError code, const char *text)
{
    if (call->replies[place].is_done)
        return;
    abandon(call, place);
    service_fail_reply(call, place, CONTROL_CODE(code), text);
}

static void time_out(RubatoServiceCall *call, uint32_t place)
{
    const ServiceReply *const reply = &call->replies[place];
    const double seconds = (double)(call->end_ms - call->began_ms) / 1e3;
    const char *const how = reply->is_sent       ? "no answer within"
                            : reply->serial != 0 ? "it did not take the request within"
                                                 : "too many requests to it had no answer within";
    g_autofree char *text = g_strdup_printf("%s %.1f s", how, seconds);

    give_up(call, place, RUBATO_ERROR_TIMEOUT, text);
}

/* Whether the deadline is over, or the task of the worker that asks was cancelled. Then gives up
 * all that is not done. */
static bool is_over(RubatoServiceCall *call, int64_t now_ms)
{
    if (!call->is_cancelled && now_ms < call->end_ms)
        return false;
    for (uint32_t i = 0; i < call->n; i++)
        if (call->is_cancelled)
            give_up(call, i, RUBATO_ERROR_CANCELLED, "the task was cancelled");
        else
            time_out(call, i);
    return true;
}

/* ---- sending ---- */

/* Opens the way to a node, if it has not too many requests open. The lock is held. */
static bool open_reply(RubatoServiceCall *call, uint32_t place)
{
    Services *const services = call->services;
    ServiceReply *const reply = &call->replies[place];

    if (reply->serial != 0)
        return true;
    if (services->n_open[reply->node] >= MOST_OPEN)
        return false;
    ServicePending *const pending = g_new(ServicePending, 1);
    *pending = (ServicePending){ call, place, reply->node };
    reply->serial = ++services->serial;
    services->n_open[reply->node]++;
    g_hash_table_insert(services->pending, g_memdup2(&reply->serial, sizeof reply->serial),
                        pending);
    return true;
}

/* Whether this node may keep so many bytes more of its own requests, as for those of another node.
 * Otherwise the request fails. The lock is held. */
static bool check_kept(RubatoServiceCall *call, uint32_t place)
{
    const Services *const services = call->services;
    const uint64_t kept = services->kept[services->office->self];

    if (call->n_bytes <= services->most_kept_bytes - kept)
        return true;
    g_autofree char *text = g_strdup_printf(
        "it keeps at most %" G_GUINT64_FORMAT " MiB of its own requests (service_mib in the "
        "cluster file); %zu bytes beside %" G_GUINT64_FORMAT " are more",
        services->most_kept_bytes >> 20, call->n_bytes, kept);
    give_up(call, place, RUBATO_ERROR_MEMORY, text);
    return false;
}

/* This node's own service gets a copy. The lock is held. */
static void give_own(RubatoServiceCall *call, uint32_t place)
{
    ServiceReply *const reply = &call->replies[place];
    void *copy;

    if (!check_kept(call, place))
        return;
    copy = g_try_malloc(MAX(call->n_bytes, 1));
    if (copy == NULL) {
        give_up(call, place, RUBATO_ERROR_MEMORY, "no memory for a copy of the request");
        return;
    }
    if (call->n_bytes > 0)
        memcpy(copy, call->bytes, call->n_bytes);
    ServiceJob *const job = g_new0(ServiceJob, 1);
    job->node = reply->node;
    job->serial = reply->serial;
    g_strlcpy(job->name, call->name, sizeof job->name);
    job->local = g_bytes_new_take(copy, call->n_bytes);
    job->n_kept = call->n_bytes;
    call->services->kept[job->node] += job->n_kept;
    reply->is_sent = true;
    call->services->take_own(call->services, job);
}

/* Sends the next piece to another node. The lock is held, but not while the piece is sent. */
static void send_piece(RubatoServiceCall *call, uint32_t place)
{
    Services *const services = call->services;
    ServiceReply *const reply = &call->replies[place];
    const size_t piece = MIN(call->n_bytes - reply->n_sent, SERVICE_PIECE_BYTES);
    const ServiceMessage message = { .kind = SERVICE_MESSAGE_REQUEST,
                                     .serial = reply->serial,
                                     .n_whole = call->n_bytes,
                                     .offset = reply->n_sent,
                                     .name = call->name,
                                     .bytes = piece > 0 ? call->bytes + reply->n_sent : NULL,
                                     .n_bytes = piece };

    reply->n_sent += piece;
    reply->is_sent = reply->n_sent == call->n_bytes; /* its answer may come within the call below */
    pthread_mutex_unlock(&services->lock);
    const bool sent = service_send(services, reply->node, &message);
    pthread_mutex_lock(&services->lock);
    if (sent)
        return;
    reply->n_sent -= piece;
    reply->is_sent = false;
    give_up(call, place, RUBATO_ERROR_MEMORY, "no memory to send the request");
}

/* Sends what can be sent now to this reply's node. Returns whether something was. The lock is
 * held. */
static bool send_some(RubatoServiceCall *call, uint32_t place)
{
    Services *const services = call->services;
    ServiceReply *const reply = &call->replies[place];

    if (services->broken_text != NULL) {
        service_fail_reply(call, place, services->broken_code, services->broken_text);
        return true;
    }
    if (!open_reply(call, place))
        return false;
    if (reply->node == services->office->self) {
        give_own(call, place);
        return true;
    }
    if (!network_has_room(services->office->network, reply->node))
        return false;
    send_piece(call, place);
    return true;
}

static bool is_waiting(const ServiceReply *reply)
{
    return !reply->is_done && !reply->is_sent;
}

/* Waits a moment for a node that takes nothing more. The lock is held, but not during the wait. */
static void wait_for_room(const RubatoServiceCall *call, const ServiceReply *reply,
                          uint32_t n_waiting, int64_t now_ms)
{
    Services *const services = call->services;
    const int64_t left_ms = MIN(call->end_ms - now_ms, ROOM_MS / (int64_t)n_waiting);
    const int ms = (int)MAX(left_ms, SHORTEST_WAIT);

    if (reply->serial == 0) {
        monotonic_wait(&services->changed, &services->lock, now_ms + ms);
        return;
    }
    pthread_mutex_unlock(&services->lock);
    network_wait_room(services->office->network, reply->node, service_is_cancelled, services, ms);
    pthread_mutex_lock(&services->lock);
}

static void say_waiting(const RubatoServiceCall *call, double seconds)
{
    g_autoptr(GString) names = g_string_new(NULL);
    uint32_t n = 0;

    for (uint32_t i = 0; i < call->n; i++) {
        if (call->replies[i].is_done || n++ >= MOST_NAMED)
            continue;
        g_autofree char *name = service_node_text(call->services, call->replies[i].node);
        g_string_append_printf(names, "%s%s", names->len > 0 ? ", " : "", name);
    }
    if (n > MOST_NAMED)
        g_string_append_printf(names, " and %u more", n - MOST_NAMED);
    g_message("node %u waits for service %s on %s (for %.1f s so far)",
              call->services->office->node_ids[call->services->office->self], call->name,
              names->str, seconds);
}

/* Until all is on its way, or the call is over. The lock is held. */
static void send_all(RubatoServiceCall *call)
{
    StallClock clock;

    stall_clock_start(&clock, call->services->office->stall_ms);
    while (!is_over(call, monotonic_ms())) {
        const ServiceReply *last = NULL;
        uint32_t n_waiting = 0;
        bool sends = false;

        for (uint32_t i = 0; i < call->n; i++) {
            if (!is_waiting(&call->replies[i]))
                continue;
            sends |= send_some(call, i);
            if (is_waiting(&call->replies[i])) {
                last = &call->replies[i];
                n_waiting++;
            }
        }
        if (last == NULL)
            return;
        if (stall_clock_strikes(&clock))
            say_waiting(call, stall_clock_s(&clock));
        if (!sends)
            wait_for_room(call, last, n_waiting, monotonic_ms());
    }
}

RubatoServiceCall *services_request(Services *services, const RubatoQuestion *question,
                                    const uint32_t *nodes, size_t n_nodes)
{
    RubatoServiceCall *const call = g_new0(RubatoServiceCall, 1);

    call->services = services;
    call->name = g_strdup(question->service);
    call->bytes = question->bytes;
    call->n_bytes = question->n_bytes;
    call->n = (uint32_t)n_nodes;
    call->replies = g_new0(ServiceReply, n_nodes + 1);
    call->order = g_new0(uint32_t, n_nodes + 1);
    for (size_t i = 0; i < n_nodes; i++)
        call->replies[i].node = nodes[i];
    call->began_ms = monotonic_ms();
    call->end_ms = call->began_ms + (question->timeout_ms > 0 ? question->timeout_ms
                                                              : (int64_t)RUBATO_SERVICE_TIMEOUT_MS);
    call->epoch = caller_task.epoch;
    pthread_mutex_lock(&services->lock);
    g_hash_table_add(services->calls, call);
    /* seq_cst: the canceller sets it likewise, before services_cancel looks for the call */
    call->is_cancelled = caller_task.cancelled != NULL &&
                         atomic_load_explicit(caller_task.cancelled, memory_order_seq_cst);
    send_all(call);
    pthread_mutex_unlock(&services->lock);
    call->bytes = NULL; /* the caller's */
    return call;
}

void services_cancel(Services *services, uint32_t epoch)
{
    GHashTableIter iter;
    gpointer key;

    pthread_mutex_lock(&services->lock);
    g_hash_table_iter_init(&iter, services->calls);
    while (g_hash_table_iter_next(&iter, &key, NULL)) {
        RubatoServiceCall *const call = key;

        call->is_cancelled |= call->epoch == epoch;
    }
    pthread_cond_broadcast(&services->changed);
    pthread_mutex_unlock(&services->lock);
}

/* ---- waiting ---- */

bool rubato_service_call_next(RubatoServiceCall *call, RubatoServiceAnswer *answer)
{
    Services *services;
    StallClock clock;

    g_return_val_if_fail(call != NULL && answer != NULL, false);
    services = call->services;
    if (call->n_told == call->n)
        return false;
    stall_clock_start(&clock, services->office->stall_ms);
    pthread_mutex_lock(&services->lock);
    while (call->n_told == call->n_done) {
        const int64_t now_ms = monotonic_ms();

        if (is_over(call, now_ms))
            break;
        if (stall_clock_strikes(&clock))
            say_waiting(call, stall_clock_s(&clock));
        const int left_ms = stall_clock_left_ms(&clock);
        const int64_t next_ms = now_ms + MAX(left_ms, (int)SHORTEST_WAIT);
        monotonic_wait(&services->changed, &services->lock, MIN(call->end_ms, next_ms));
    }
    const ServiceReply *const reply = &call->replies[call->order[call->n_told++]];
    pthread_mutex_unlock(&services->lock);
    *answer = (RubatoServiceAnswer){ .node = services->office->node_ids[reply->node],
                                     .bytes = reply->bytes,
                                     .error = reply->error };
    return true;
}

void rubato_service_call_free(RubatoServiceCall *call)
{
    if (call == NULL)
        return;
    pthread_mutex_lock(&call->services->lock);
    for (uint32_t i = 0; i < call->n; i++)
        if (!call->replies[i].is_done)
            abandon(call, i);
    g_hash_table_remove(call->services->calls, call);
    pthread_mutex_unlock(&call->services->lock);
    for (uint32_t i = 0; i < call->n; i++) {
        g_free(call->replies[i].body.bytes);
        g_clear_pointer(&call->replies[i].bytes, g_bytes_unref);
        g_clear_error(&call->replies[i].error);
    }
    g_free(call->replies);
    g_free(call->order);
    g_free(call->name);
    g_free(call);
}
