/* Answers over HTTP the probes of what starts and watches processes, such as Kubernetes: GET /live
 * and GET /ready, with status 200 or 503 and a line of text. And, for those on this host alone,
 * because it names files and hosts, GET /status as JSON; GET /end answers the same when the source
 * ends, so that who watches a run can tell its end from that of a connection.
 *
 * Each connection has a thread of its own. So a probe is answered while a status is made. Of all
 * connections, few may ask for the status at a time, and few wait for the end, so that some are
 * left for probes; others get 503.
 *
 * Threads: made and freed by the engine's owner; the source's functions are called by those of
 * connections. */
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

typedef struct {
    void (*look)(void *user, HealthState *state);
    GVariant *(*tell_status)(
        void *user); /* a{sv}; may wait for some seconds. (transfer floating) */
    void *user;
} HealthSource;

typedef struct Health Health;

/* Listens at all addresses of the host. The source is copied. Port 0 is any free one. NULL with
 * RUBATO_ERROR_NETWORK if the port is taken, or with RUBATO_ERROR_INVALID in a build without
 * libmicrohttpd. */
Health *health_new(uint16_t port, const HealthSource *source, GError **error);

uint16_t health_port(const Health *health);

/* Tells the end to those who wait for it: the source's status, once more. After that the source is
 * not called any more. NULL is allowed. */
void health_free(Health *health);

#endif
