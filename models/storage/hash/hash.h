/* Hash storage, for its tests: which instructions find its rows.
 *
 * Threads: the shard's present owner. */
#ifndef RUBATO_MODELS_STORAGE_HASH_HASH_H
#define RUBATO_MODELS_STORAGE_HASH_HASH_H

#include "models/storage/storage.h"

typedef enum {
    HASH_WIDEST, /* those of a new storage: the widest that the processor has */
    HASH_PLAIN,  /* those that every processor of the kind has */
    HASH_AVX2,
    HASH_AVX512,
} HashInstructions;

/* From now on rows are found by these. False: the processor does not have them; then by the plain
 * ones. All of them find the same. */
bool hash_storage_use(RubatoStorage *storage, HashInstructions instructions);

#endif
