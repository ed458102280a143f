/* The expiries that there are. See rubato/expiry_ops.h.
 *
 * Threads: any. */
#ifndef RUBATO_MODELS_STORAGE_EXPIRY_EXPIRY_H
#define RUBATO_MODELS_STORAGE_EXPIRY_EXPIRY_H

#include <rubato/expiry_ops.h>

/* NULL for an unknown name, and for that of tables whose rows stay. */
const RubatoExpiryOps *expiry_find(const char *name);

/* The name of the i-th expiry, NULL past the last. */
const char *expiry_name(size_t i);

/* Of what may be chosen. */
extern const RubatoExpiryOps clocks_expiry_ops, seconds_expiry_ops, score_expiry_ops;

/* For those that go by the age alone. */
bool expiry_check_age(const RubatoTableSpec *spec, GError **error);
bool expiry_is_of_age(const RubatoTableSpec *spec, RubatoKey key, const void *values, uint32_t age);

#endif
