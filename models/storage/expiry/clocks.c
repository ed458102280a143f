/* A row expires so many clocks after its last write.
 *
 * Thread: the shard's present owner. */
#include "models/storage/expiry/expiry.h"

const RubatoExpiryOps clocks_expiry_ops = {
    .name = "clocks",
    .unit = RUBATO_TIME_CLOCKS,
    .check = expiry_check_age,
    .expires = expiry_is_of_age,
};
