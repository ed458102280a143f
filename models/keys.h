/* Walking the three forms of RubatoKeys.
 *
 * Threads: any; keys are only read. */
#ifndef RUBATO_MODELS_KEYS_H
#define RUBATO_MODELS_KEYS_H

#include <rubato/request.h>

/* The i-th key. */
static inline RubatoKey keys_get(const RubatoKeys *keys, size_t i)
{
    if (keys->keys == NULL)
        return keys->first + i;
    return keys->keys[keys->at == NULL ? i : keys->at[i]];
}

/* Which row of the request's flat values belongs to it. */
static inline size_t keys_row(const RubatoKeys *keys, size_t i)
{
    return keys->at == NULL || keys->keys == NULL ? i : keys->at[i];
}

#endif
