/* Whether keys lie in a range.
 *
 * Threads: any. The function depends on its arguments only. */
#ifndef RUBATO_IO_NET_LINK_KEY_RANGE_H
#define RUBATO_IO_NET_LINK_KEY_RANGE_H

#include <rubato/request.h>

/* The place of the first of n keys that is not in first_key .. first_key + n_keys - 1; n if all
 * are. */
size_t key_range_find_outside(const RubatoKey *keys, size_t n, RubatoKey first_key,
                              uint64_t n_keys);

#endif
