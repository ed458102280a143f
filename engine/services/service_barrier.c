/* Barriers of a group of nodes: a service that keeps each request until all nodes of the group have
 * made theirs. The first node of the group runs it, on its clerk.
 *
 * A node that makes a second request has timed out with the first, which is answered then. One that
 * times out is told of by a FORGET, and is not in the barrier any more. */
#include "engine/services/services_private.h"

#include <string.h>

void barrier_room_free(gpointer data)
{
    BarrierRoom *const room = data;

    g_bytes_unref(room->group);
    g_ptr_array_unref(room->held);
    g_free(room);
}

static GBytes *body_of(const ServiceJob *job)
{
    return job->local != NULL ? g_bytes_ref(job->local)
                              : g_bytes_new_static(job->body.bytes, job->body.n);
}

/* Whether it is a group, of which this node is the first and the other one a part. */
static bool is_group(const Services *services, GBytes *group, uint32_t asker)
{
    gsize n;
    const uint8_t *const bytes = g_bytes_get_data(group, &n);
    uint32_t last = 0;
    bool is_part = false;

    if (n == 0 || n % sizeof last != 0)
        return false;
    for (size_t at = 0; at < n; at += sizeof last) {
        uint32_t node;

        memcpy(&node, bytes + at, sizeof node);
        if (node >= services->office->n_nodes || (at > 0 && node <= last) ||
            (at == 0 && node != services->office->self))
            return false;
        is_part |= node == asker;
        last = node;
    }
    return is_part;
}

/* Its answer is due. */
static void settle(ServiceJob *job, uint32_t code, const char *text)
{
    job->is_held = false;
    job->code = code;
    g_free(job->text);
    job->text = g_strdup(text);
}

static void answer(GPtrArray *done, ServiceJob *job, uint32_t code, const char *text)
{
    settle(job, code, text);
    g_ptr_array_add(done, job);
}

static BarrierRoom *find_room(Services *services, GBytes *group)
{
    for (guint i = 0; i < services->rooms->len; i++) {
        BarrierRoom *const room = g_ptr_array_index(services->rooms, i);

        if (g_bytes_equal(room->group, group))
            return room;
    }
    BarrierRoom *const room = g_new0(BarrierRoom, 1);
    gsize n;
    const void *const bytes = g_bytes_get_data(group, &n);
    room->group = g_bytes_new(bytes, n);
    room->held = g_ptr_array_new();
    g_ptr_array_add(services->rooms, room);
    return room;
}

/* An earlier job of the same node has timed out. */
static void release_earlier(BarrierRoom *room, uint32_t node, GPtrArray *done)
{
    for (guint i = room->held->len; i-- > 0;) {
        ServiceJob *const held = g_ptr_array_index(room->held, i);

        if (held->node != node)
            continue;
        g_ptr_array_remove_index(room->held, i);
        answer(done, held, CONTROL_CODE(RUBATO_ERROR_CANCELLED), "it has left the barrier");
    }
}

void service_barrier_take(Services *services, ServiceJob *job, GPtrArray *done)
{
    g_autoptr(GBytes) group = body_of(job);

    if (!is_group(services, group, job->node)) {
        answer(done, job, CONTROL_CODE(RUBATO_ERROR_INVALID), "this is no group of nodes");
        return;
    }
    BarrierRoom *const room = find_room(services, group);
    release_earlier(room, job->node, done);
    job->is_held = true;
    g_ptr_array_add(room->held, job);
    if (room->held->len < g_bytes_get_size(group) / sizeof(uint32_t))
        return;
    for (guint i = 0; i < room->held->len; i++)
        answer(done, g_ptr_array_index(room->held, i), CONTROL_OK, NULL);
    g_ptr_array_remove(services->rooms, room);
}

void service_barrier_forget(Services *services, ServiceJob *job)
{
    g_autoptr(GBytes) group = body_of(job);
    BarrierRoom *const room = find_room(services, group);

    g_ptr_array_remove(room->held, job);
    if (room->held->len == 0)
        g_ptr_array_remove(services->rooms, room);
    settle(job, CONTROL_CODE(RUBATO_ERROR_CANCELLED), "it has left the barrier");
}
