/* Shards of tables whose rows leave: marks of rows, counts, and rows that are removed.
 *
 * Thread: the shard's present owner. Keys have been checked. */
#include "models/shard/shard_private.h"
#include "models/storage/eviction/eviction.h"

bool shard_is_bounded(const RubatoShard *shard)
{
    return shard->bounded != NULL;
}

void shard_get_marks(RubatoShard *shard, const RubatoKeys *keys, uint32_t *marks)
{
    RubatoKey block[BLOCK];
    void *found[BLOCK];

    for (size_t begin = 0; begin < keys->n; begin += BLOCK) {
        const size_t n = MIN(keys->n - begin, BLOCK);

        shard->bounded->find_marks(shard->storage, shard_take_block(keys, begin, n, block), n,
                                   found);
        for (size_t i = 0; i < n; i++) {
            uint32_t *mark = &marks[keys_row(keys, begin + i)];

            *mark = 0;
            if (found[i] != NULL)
                memcpy(mark, found[i], sizeof *mark);
        }
    }
}

void shard_set_marks(RubatoShard *shard, const RubatoKeys *keys, const uint32_t *marks)
{
    RubatoKey block[BLOCK];
    void *found[BLOCK];

    for (size_t begin = 0; begin < keys->n; begin += BLOCK) {
        const size_t n = MIN(keys->n - begin, BLOCK);

        shard->bounded->find_marks(shard->storage, shard_take_block(keys, begin, n, block), n,
                                   found);
        for (size_t i = 0; i < n; i++) {
            /* the bit above is the storage's, and only while it runs */
            const uint32_t mark = marks[keys_row(keys, begin + i)] & EVICTION_MARK_MASK;

            if (found[i] != NULL)
                memcpy(found[i], &mark, sizeof mark);
        }
    }
}

void shard_remove(RubatoShard *shard, const RubatoKeys *keys)
{
    RubatoKey block[BLOCK];

    if (shard->is_watched)
        shard_watch(shard, keys);
    for (size_t begin = 0; begin < keys->n; begin += BLOCK) {
        const size_t n = MIN(keys->n - begin, BLOCK);

        shard->bounded->erase(shard->storage, shard_take_block(keys, begin, n, block), n);
    }
}

StorageUses shard_uses(const RubatoShard *shard)
{
    return shard->bounded == NULL ? (StorageUses){ 0 } : *shard->bounded->uses(shard->storage);
}

void shard_set_uses(RubatoShard *shard, const StorageUses *uses)
{
    StorageUses *own = shard->bounded->uses(shard->storage);

    *own = *uses;
    own->time = MIN(own->time, UINT32_MAX); /* also if another node says more */
}
