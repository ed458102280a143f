/* A lookup in the background. It is shared by who wants it and by the thread that asks; the last one
 * frees it. */
#include "io/net/host_lookup.h"

#include <errno.h>
#include <glib.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "io/net/tcp_address.h"

struct HostLookup {
    char *host, *port;
    _Atomic uint32_t refs;

    /* written by the thread that asks, before `done` */
    struct addrinfo *found;
    int code, number; /* what getaddrinfo and errno say */
    _Atomic bool done;
};

static void unref(HostLookup *lookup)
{
    /* Release and acquire: whoever frees it does so after the other is done with it. */
    if (atomic_fetch_sub_explicit(&lookup->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (lookup->found != NULL)
        freeaddrinfo(lookup->found);
    g_free(lookup->host);
    g_free(lookup->port);
    g_free(lookup);
}

static void ask(HostLookup *lookup)
{
    const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };

    lookup->code = getaddrinfo(lookup->host, lookup->port, &hints, &lookup->found);
    lookup->number = errno;
    if (lookup->code != 0)
        lookup->found = NULL;
    /* Release: pairs with host_lookup_is_done. */
    atomic_store_explicit(&lookup->done, true, memory_order_release);
}

static void *run(void *data)
{
    ask(data);
    unref(data);
    return NULL;
}

/* False: there is no thread to be had. */
static bool start_thread(HostLookup *lookup)
{
    sigset_t all, before;
    pthread_t thread;

    /* Signals are for the threads of the program. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    atomic_store_explicit(&lookup->refs, 2, memory_order_relaxed);
    const int code = pthread_create(&thread, NULL, run, lookup);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code != 0) {
        atomic_store_explicit(&lookup->refs, 1, memory_order_relaxed);
        return false;
    }
    pthread_setname_np(thread, "rubato-lookup");
    pthread_detach(thread);
    return true;
}

HostLookup *host_lookup_new(const char *host, const char *port)
{
    HostLookup *const lookup = g_new0(HostLookup, 1);

    lookup->host = g_strdup(host);
    lookup->port = g_strdup(port);
    atomic_init(&lookup->refs, 1);
    if (tcp_address_is_numeric(host)) {
        ask(lookup);
    } else if (!start_thread(lookup)) {
        lookup->code = EAI_AGAIN;
        atomic_init(&lookup->done, true);
    }
    return lookup;
}

bool host_lookup_is_done(const HostLookup *lookup, const struct addrinfo **found, const char **why)
{
    /* Acquire: pairs with ask. */
    if (!atomic_load_explicit(&lookup->done, memory_order_acquire))
        return false;
    *found = lookup->found;
    *why = lookup->code == EAI_SYSTEM ? g_strerror(lookup->number)
           : lookup->code != 0        ? gai_strerror(lookup->code)
                                      : NULL;
    return true;
}

void host_lookup_free(HostLookup *lookup)
{
    if (lookup != NULL)
        unref(lookup);
}
