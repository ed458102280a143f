/* A lookup by a thread of its own, which nobody has to wait for: it and the caller share the
 * lookup, and who lets go of it last frees it. Numeric addresses need no thread.
 *
 * Why the wait ends: with the answer, or at end_ms.
 *
 * Threads: the caller's, and one for each lookup. */
#include "engine/serving/name_lookup.h"

#include <glib.h>
#include <pthread.h>
#include <stdbool.h>

#include "io/net/monotonic.h"

typedef struct {
    /* immutable */
    char *host, *port;
    struct addrinfo hints;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock */
    bool is_done, is_left; /* by the thread; by the caller */
    int code;
    struct addrinfo *found;
} Lookup;

/* By who has let go of it last. */
static void lookup_free(Lookup *lookup)
{
    if (lookup->found != NULL)
        freeaddrinfo(lookup->found);
    pthread_cond_destroy(&lookup->changed);
    pthread_mutex_destroy(&lookup->lock);
    g_free(lookup->host);
    g_free(lookup->port);
    g_free(lookup);
}

static void *look_up(void *data)
{
    Lookup *const lookup = data;
    struct addrinfo *found = NULL;
    const int code = getaddrinfo(lookup->host, lookup->port, &lookup->hints, &found);

    pthread_mutex_lock(&lookup->lock);
    lookup->code = code;
    lookup->found = code == 0 ? found : NULL;
    lookup->is_done = true;
    const bool is_left = lookup->is_left;
    pthread_cond_signal(&lookup->changed);
    pthread_mutex_unlock(&lookup->lock);
    if (is_left)
        lookup_free(lookup);
    return NULL;
}

static bool start(Lookup *lookup)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, look_up, lookup) != 0)
        return false;
    pthread_detach(thread);
    return true;
}

/* Takes the answer, or leaves the lookup to its thread. */
static int await(Lookup *lookup, int64_t end_ms, struct addrinfo **found)
{
    int code = EAI_AGAIN;

    pthread_mutex_lock(&lookup->lock);
    while (!lookup->is_done && monotonic_wait(&lookup->changed, &lookup->lock, end_ms))
        continue;
    const bool is_done = lookup->is_done;
    if (is_done) {
        code = lookup->code;
        *found = g_steal_pointer(&lookup->found);
    }
    lookup->is_left = true;
    pthread_mutex_unlock(&lookup->lock);
    if (is_done)
        lookup_free(lookup);
    return code;
}

int name_lookup(const char *host, const char *port, const struct addrinfo *hints, int64_t end_ms,
                struct addrinfo **found)
{
    struct addrinfo numeric = *hints;

    numeric.ai_flags |= AI_NUMERICHOST;
    if (getaddrinfo(host, port, &numeric, found) == 0)
        return 0;
    Lookup *const lookup = g_new0(Lookup, 1);
    lookup->host = g_strdup(host);
    lookup->port = g_strdup(port);
    lookup->hints = *hints;
    pthread_mutex_init(&lookup->lock, NULL);
    monotonic_cond_init(&lookup->changed);
    *found = NULL;
    if (start(lookup))
        return await(lookup, end_ms, found);
    lookup_free(lookup);
    return EAI_AGAIN;
}
