/* Following, for a process that serves.
 *
 * Why each wait ends. Who asks for a version waits until the thread has taken the follower there,
 * or ends; the thread looks for such a request every 50 ms. A thread that holds waits for a
 * request, for `continue` or for the end; each of them wakes it.
 *
 * Threads: run is the thread's; the rest as in the header. */
#include "engine/serving/serving_following.h"

#include <pthread.h>
#include <rubato/error.h>
#include <string.h>

#include "io/net/log_sink.h"
#include "io/net/monotonic.h"

#define LOOK_S 0.05
#define AFTER_FAULT_MS 200

/* Somebody waits until the follower is held at a version. On the stack of who asks. */
typedef struct {
    const uint64_t *version; /* NULL: the present one */
    GError *fault;
    bool is_done;
} GoTo;

struct ServingFollowing {
    RubatoFollower *follower; /* immutable */
    pthread_t thread;
    bool has_thread;

    pthread_mutex_t lock;
    pthread_cond_t asked; /* the thread waits */
    pthread_cond_t done;  /* who asks waits */
    /* guarded by lock */
    bool ends, is_held, holds_first;
    GQueue requests; /* of GoTo */
    char *fault;     /* NULL: none */
};

/* ---- the thread ---- */

/* The lock is held, but not while it reads. */
static void go_to(ServingFollowing *following, GoTo *request)
{
    bool ok;

    pthread_mutex_unlock(&following->lock);
    ok = request->version == NULL ||
         rubato_follower_go_to(following->follower, *request->version, &request->fault);
    pthread_mutex_lock(&following->lock);
    if (ok)
        following->is_held = true;
    request->is_done = true;
    pthread_cond_broadcast(&following->done);
}

/* The same. */
static void note_fault(ServingFollowing *following, const GError *fault)
{
    if (fault != NULL && g_strcmp0(following->fault, fault->message) != 0)
        g_message("a follower gets no newer version than %" G_GUINT64_FORMAT ": %s",
                  rubato_follower_version(following->follower, NULL), fault->message);
    g_free(following->fault);
    following->fault = fault != NULL ? g_strdup(fault->message) : NULL;
}

static void advance(ServingFollowing *following)
{
    g_autoptr(GError) fault = NULL;
    RubatoFollowed followed = RUBATO_FOLLOWED_NOTHING;

    pthread_mutex_unlock(&following->lock);
    rubato_follower_advance(following->follower, LOOK_S, &followed, &fault);
    pthread_mutex_lock(&following->lock);
    note_fault(following, fault);
    if (following->holds_first && followed != RUBATO_FOLLOWED_NOTHING)
        following->is_held = true;
    following->holds_first &= !following->is_held;
    if (fault != NULL && !following->ends && g_queue_is_empty(&following->requests))
        monotonic_wait(&following->asked, &following->lock, monotonic_ms() + AFTER_FAULT_MS);
}

static void *run(void *data)
{
    ServingFollowing *const following = data;
    GoTo *request;

    pthread_mutex_lock(&following->lock);
    while (!following->ends) {
        request = g_queue_pop_head(&following->requests);
        if (request != NULL)
            go_to(following, request);
        else if (following->is_held)
            pthread_cond_wait(&following->asked, &following->lock);
        else
            advance(following);
    }
    pthread_mutex_unlock(&following->lock);
    return NULL;
}

/* ---- its life ---- */

ServingFollowing *serving_following_new(const RubatoFollowerSpec *spec, bool holds, GError **error)
{
    RubatoFollower *const follower = rubato_follower_new(spec, error);
    ServingFollowing *following;

    if (follower == NULL)
        return NULL;
    following = g_new0(ServingFollowing, 1);
    following->follower = follower;
    following->holds_first = holds;
    pthread_mutex_init(&following->lock, NULL);
    monotonic_cond_init(&following->asked);
    pthread_cond_init(&following->done, NULL);
    g_queue_init(&following->requests);
    following->has_thread = log_sink_start_thread(&following->thread, run, following) == 0;
    if (following->has_thread)
        return following;
    serving_following_free(following);
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                        "a thread that follows the stream cannot be started");
    return NULL;
}

void serving_following_end(ServingFollowing *following)
{
    pthread_mutex_lock(&following->lock);
    following->ends = true;
    pthread_cond_broadcast(&following->asked);
    pthread_cond_broadcast(&following->done);
    pthread_mutex_unlock(&following->lock);
}

void serving_following_free(ServingFollowing *following)
{
    if (following == NULL)
        return;
    serving_following_end(following);
    if (following->has_thread)
        pthread_join(following->thread, NULL);
    rubato_follower_free(following->follower);
    pthread_cond_destroy(&following->done);
    pthread_cond_destroy(&following->asked);
    pthread_mutex_destroy(&following->lock);
    g_free(following->fault);
    g_free(following);
}

RubatoFollower *serving_following_follower(const ServingFollowing *following)
{
    return following->follower;
}

/* ---- requests ---- */

void serving_following_continue(ServingFollowing *following)
{
    pthread_mutex_lock(&following->lock);
    following->is_held = following->holds_first = false;
    pthread_cond_signal(&following->asked);
    pthread_mutex_unlock(&following->lock);
}

static bool ask(ServingFollowing *following, const uint64_t *version, GError **error)
{
    GoTo request = { .version = version };

    pthread_mutex_lock(&following->lock);
    g_queue_push_tail(&following->requests, &request);
    pthread_cond_signal(&following->asked);
    /* One that the thread has taken is waited for: the thread writes to it. */
    while (!request.is_done && !(following->ends && g_queue_remove(&following->requests, &request)))
        pthread_cond_wait(&following->done, &following->lock);
    pthread_mutex_unlock(&following->lock);
    if (request.is_done && request.fault == NULL)
        return true;
    if (request.fault != NULL)
        g_propagate_error(error, request.fault);
    else
        g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_CANCELLED, "the follower ends");
    return false;
}

bool serving_following_hold(ServingFollowing *following, GError **error)
{
    return ask(following, NULL, error);
}

bool serving_following_go_to(ServingFollowing *following, uint64_t version, GError **error)
{
    return ask(following, &version, error);
}

void serving_following_status(ServingFollowing *following, RubatoServedStatus *status)
{
    status->version = rubato_follower_version(following->follower, &status->time_us);
    pthread_mutex_lock(&following->lock);
    status->is_held = following->is_held;
    g_strlcpy(status->fault, following->fault != NULL ? following->fault : "",
              sizeof status->fault);
    pthread_mutex_unlock(&following->lock);
}
