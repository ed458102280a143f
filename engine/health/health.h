/* Answers the probes of what starts and watches processes, such as Kubernetes: GET /live and
 * GET /ready over HTTP, with status 200 or 503 and a line of text.
 *
 * Threads: made and freed by the engine's owner; `look` is called by the server's own thread. */
#ifndef RUBATO_ENGINE_HEALTH_HEALTH_H
#define RUBATO_ENGINE_HEALTH_HEALTH_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    bool is_live;  /* false: it ought to be started again */
    bool is_ready; /* it takes part in its run */
    char *text;    /* why, for people (transfer full) */
} HealthState;

typedef struct Health Health;

/* Listens at all addresses of the host. Port 0 is any free one. NULL with RUBATO_ERROR_NETWORK if
 * the port is taken, or with RUBATO_ERROR_INVALID in a build without libmicrohttpd. */
Health *health_new(uint16_t port, void (*look)(void *user, HealthState *state), void *user,
                   GError **error);

uint16_t health_port(const Health *health);

/* `look` is not called any more. NULL is allowed. */
void health_free(Health *health);

#endif
