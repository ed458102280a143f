/* The list of storages.
 *
 * Thread: any. */
#include "models/storage/storage.h"

#include <string.h>

extern const RubatoStorageOps dense_storage_ops, hash_storage_ops;

static const RubatoStorageOps *const storages[] = { &dense_storage_ops, &hash_storage_ops };

const RubatoStorageOps *storage_find(const char *name)
{
    for (size_t i = 0; i < G_N_ELEMENTS(storages); i++)
        if (strcmp(storages[i]->name, name) == 0)
            return storages[i];
    return NULL;
}

const char *storage_name(size_t i)
{
    return i < G_N_ELEMENTS(storages) ? storages[i]->name : NULL;
}
