/* The storages that there are.
 *
 * Threads: any. */
#ifndef RUBATO_MODELS_STORAGE_STORAGE_H
#define RUBATO_MODELS_STORAGE_STORAGE_H

#include <rubato/storage_ops.h>

/* NULL for an unknown name. */
const RubatoStorageOps *storage_find(const char *name);

/* The name of the i-th storage, NULL past the last. */
const char *storage_name(size_t i);

#endif
