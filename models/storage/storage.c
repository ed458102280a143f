/* The list of storages: the built-in ones, then those that the program has registered.
 *
 * Thread: any. */
#include "models/storage/storage.h"

#include <string.h>

#include "models/registry.h"
#include "models/storage/bounded.h"

extern const RubatoStorageOps dense_storage_ops, hash_storage_ops;

extern const BoundedStorageOps bounded_hash_storage_ops;

static const BoundedStorageOps *const bounded_storages[] = { &bounded_hash_storage_ops };

static const RubatoStorageOps *const storages[] = { &dense_storage_ops, &hash_storage_ops };

const RubatoStorageOps *storage_find(const char *name)
{
    for (size_t i = 0; i < G_N_ELEMENTS(storages); i++)
        if (strcmp(storages[i]->name, name) == 0)
            return storages[i];
    return registry_find(REGISTRY_STORAGES, name);
}

const BoundedStorageOps *storage_find_bounded(const char *name)
{
    for (size_t i = 0; i < G_N_ELEMENTS(bounded_storages); i++)
        if (strcmp(bounded_storages[i]->base.name, name) == 0)
            return bounded_storages[i];
    return NULL;
}

const char *storage_name(size_t i)
{
    return i < G_N_ELEMENTS(storages)
               ? storages[i]->name
               : registry_name(REGISTRY_STORAGES, i - G_N_ELEMENTS(storages));
}
