/* Pieces of requests and answers on their way to other nodes. */
#include "engine/services/services_private.h"

#include <string.h>

#include "io/net/monotonic.h"
#include "io/net/stall_clock.h"

enum { LOOK_MS = 200 }; /* between two looks whether a wait for room or memory is over */

bool service_is_cancelled(void *services)
{
    /* relaxed: the waiter looks again and again */
    return atomic_load_explicit(&((Services *)services)->is_broken, memory_order_relaxed);
}

bool service_send(Services *services, uint32_t node, const ServiceMessage *message)
{
    Network *const network = services->office->network;
    Frame *const frame =
        network_new_frame(network, &(WireHeader){ .kind = MESSAGE_SERVICE,
                                                  .value_bytes = service_message_size(message) });

    if (frame == NULL)
        return false;
    service_message_write(message, frame_values(frame));
    network_send(network, node, frame);
    return true;
}

static bool is_over(Services *services)
{
    return service_is_cancelled(services) || network_is_stopping(services->office->network);
}

void service_send_short(Services *services, uint32_t node, const char *service,
                        const ServiceMessage *message)
{
    StallClock clock;

    stall_clock_start(&clock, services->office->stall_ms);
    while (!service_send(services, node, message) && !is_over(services)) {
        if (stall_clock_strikes(&clock))
            g_message("a message of service %s waits for memory on its way to node %u (for %.1f s "
                      "so far)",
                      service, services->office->node_ids[node], stall_clock_s(&clock));
        monotonic_wait(&services->changed, &services->lock, monotonic_ms() + LOOK_MS);
    }
}

/* False: the run is broken. */
static bool wait_room(Services *services, const ServiceJob *job)
{
    StallClock clock;

    stall_clock_start(&clock, services->office->stall_ms);
    while (!network_wait_room(services->office->network, job->node, service_is_cancelled, services,
                              LOOK_MS)) {
        if (is_over(services))
            return false;
        if (stall_clock_strikes(&clock))
            g_message("the answer of service %s waits for room on its way to node %u (for %.1f s "
                      "so far)",
                      job->name, services->office->node_ids[job->node], stall_clock_s(&clock));
    }
    return true;
}

/* In place of an answer, or of what is left of it. */
static void say_no_memory(Services *services, const ServiceJob *job, size_t n)
{
    g_autofree char *text = g_strdup_printf("no memory there for its answer of %zu bytes", n);
    const ServiceMessage message = { .kind = SERVICE_MESSAGE_ANSWER,
                                     .code = CONTROL_CODE(RUBATO_ERROR_MEMORY),
                                     .serial = job->serial,
                                     .n_whole = strlen(text),
                                     .bytes = text,
                                     .n_bytes = strlen(text) };

    pthread_mutex_lock(&services->lock);
    service_send_short(services, job->node, job->name, &message);
    pthread_mutex_unlock(&services->lock);
}

void service_send_answer(Services *services, const ServiceJob *job, uint32_t code,
                         const void *bytes, size_t n)
{
    size_t offset = 0;

    do {
        const size_t piece = MIN(n - offset, SERVICE_PIECE_BYTES);
        const ServiceMessage message = { .kind = SERVICE_MESSAGE_ANSWER,
                                         .code = code,
                                         .serial = job->serial,
                                         .n_whole = n,
                                         .offset = offset,
                                         .bytes = n > 0 ? (const uint8_t *)bytes + offset : NULL,
                                         .n_bytes = piece };

        if (!wait_room(services, job))
            return;
        if (!service_send(services, job->node, &message)) {
            say_no_memory(services, job, n);
            return;
        }
        offset += piece;
    } while (offset < n);
}

bool service_body_add(ServiceBody *body, const void *bytes, size_t n, uint64_t n_whole)
{
    if (n > body->room - body->n) {
        /* never more than twice what has come: a size alone takes no memory */
        const size_t room = MIN(MAX(2 * body->room, body->n + n), (size_t)n_whole);
        uint8_t *const larger = g_try_realloc(body->bytes, room);

        if (larger == NULL)
            return false;
        body->bytes = larger;
        body->room = room;
    }
    if (n > 0)
        memcpy(body->bytes + body->n, bytes, n);
    body->n += n;
    return true;
}
