/* The record "hash": as many chains as uses, or more; a key's is told by its mixed bits.
 *
 * Thread: the shard's present owner. n_chains is a power of two. */
#include <rubato/error.h>

#include "models/record.h"

#define FIRST_CHAINS 64u

static bool create(Record *record, const RubatoModelSetup *setup, GError **error)
{
    (void)error;
    record->key_hash = key_hash_make(setup->hash_seed);
    record->n_chains = FIRST_CHAINS;
    record->chains = g_new0(uint32_t, FIRST_CHAINS);
    return true;
}

static size_t chain_of(const Record *record, RubatoKey key)
{
    return (size_t)(key_hash(&record->key_hash, key) & (record->n_chains - 1));
}

/* Longer chains are slower and nothing worse, so memory that is not there is no failure. */
static void grow(Record *record, uint32_t n_uses)
{
    uint64_t n_chains = record->n_chains;
    const uint64_t n_before = n_chains;

    while (n_chains < n_uses)
        n_chains *= 2;
    if (n_chains == n_before)
        return;

    uint32_t *chains = g_try_new0(uint32_t, n_chains);
    if (chains == NULL)
        return;

    uint32_t *before = record->chains;
    record->chains = chains;
    record->n_chains = n_chains;
    for (uint64_t i = 0; i < n_before; i++)
        for (uint32_t entry = before[i], next; entry != RECORD_END; entry = next) {
            RecordUse *use = &record->uses[entry];
            uint32_t *chain = &chains[chain_of(record, use->key)];

            next = use->next;
            use->next = *chain;
            *chain = entry;
        }
    g_free(before);
}

const RecordOps record_hash_ops = {
    .name = "hash",
    .create = create,
    .chain_of = chain_of,
    .grow = grow,
};
