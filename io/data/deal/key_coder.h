/* Numbers keys: the distinct ones in ascending order, and for each key its place among them.
 *
 * Threads: one at a time; a coder keeps its memory from call to call. */
#ifndef RUBATO_IO_DATA_DEAL_KEY_CODER_H
#define RUBATO_IO_DATA_DEAL_KEY_CODER_H

#include <rubato/types.h>

typedef struct {
    RubatoKey *keys; /* after a call: n_keys distinct ones, ascending */
    size_t n_keys;

    /* scratch */
    size_t keys_capacity, sort_capacity, slots_capacity;
    RubatoKey *sort_keys;
    uint32_t *sort_ids, *ids;
    uint32_t *slots;
} KeyCoder;

void key_coder_init(KeyCoder *coder);
void key_coder_clear(KeyCoder *coder);

/* Writes the place of key[i] to index[i]; n is below 2^32. False if there is no memory. */
bool key_coder_code(KeyCoder *coder, const RubatoKey *key, size_t n, uint32_t *index);

#endif
