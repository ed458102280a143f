/* The transports by name.
 *
 * Threads: any; constant data alone. */
#include <string.h>

#include <rubato/error.h>

#include "io/net/transport/transport_ops.h"

static const TransportOps *const transports[] = {
    &transport_tcp, &transport_zmq, &transport_ipc, &transport_shm,
#ifdef RUBATO_HAS_UCX
    &transport_ucx,
#endif
};

const TransportOps *transport_at(size_t i)
{
    return i < G_N_ELEMENTS(transports) ? transports[i] : NULL;
}

const TransportOps *transport_find(const char *name, GError **error)
{
    if (name == NULL)
        return transports[0];
    for (size_t i = 0; i < G_N_ELEMENTS(transports); i++)
        if (strcmp(transports[i]->name, name) == 0)
            return transports[i];

    g_autoptr(GString) known = g_string_new(NULL);
    for (size_t i = 0; i < G_N_ELEMENTS(transports); i++)
        g_string_append_printf(known, "%s\"%s\"", i == 0 ? "" : ", ", transports[i]->name);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND,
                "there is no transport \"%s\"; the known ones are %s%s", name, known->str,
                strcmp(name, "ucx") == 0 ? " (build it where libucx-dev is)" : "");
    return NULL;
}

const TransportOps *transport_of(const char *endpoint, GError **error)
{
    const char *const colon = strstr(endpoint, "://");

    if (colon != NULL && colon != endpoint) {
        g_autofree char *name = g_strndup(endpoint, (gsize)(colon - endpoint));
        return transport_find(name, error);
    }
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                "\"%s\" is no address: write one like tcp://HOST:PORT", endpoint);
    return NULL;
}
