/* The thread that advances a follower which is served, and takes it to other versions when somebody
 * asks.
 *
 * Threads: any, but _new and _free. */
#ifndef RUBATO_ENGINE_SERVING_SERVING_FOLLOWING_H
#define RUBATO_ENGINE_SERVING_SERVING_FOLLOWING_H

#include <rubato/remote_follower.h>

typedef struct ServingFollowing ServingFollowing;

/* (transfer full) */
ServingFollowing *serving_following_new(const RubatoFollowerSpec *spec, bool holds, GError **error);

/* Nobody waits in serving_following_go_to any more. NULL is allowed. */
void serving_following_free(ServingFollowing *following);

/* Who waits in serving_following_go_to returns, and so does everybody who comes later. */
void serving_following_end(ServingFollowing *following);

/* For reading alone. (transfer none) */
RubatoFollower *serving_following_follower(const ServingFollowing *following);

void serving_following_continue(ServingFollowing *following);

/* Both return when it is there, and goes no further. RUBATO_ERROR_CANCELLED: it ends; and those of
 * rubato_follower_go_to. */
bool serving_following_hold(ServingFollowing *following, GError **error);
bool serving_following_go_to(ServingFollowing *following, uint64_t version, GError **error);

/* version, time_us, is_held and fault. */
void serving_following_status(ServingFollowing *following, RubatoServedStatus *status);

#endif
