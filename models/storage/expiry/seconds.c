/* A row expires so many seconds after its last write.
 *
 * Thread: the shard's present owner. */
#include "models/storage/expiry/expiry.h"

const RubatoExpiryOps seconds_expiry_ops = {
    .name = "seconds",
    .unit = RUBATO_TIME_SECONDS,
    .check = expiry_check_age,
    .expires = expiry_is_of_age,
};
