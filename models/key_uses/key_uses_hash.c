/* The uses "hash": at least as many chains as uses; the key's hash chooses the chain.
 *
 * Thread: the shard's present owner. n_chains is a power of two. */
#include <rubato/error.h>

#include "models/key_uses/key_uses.h"

#define FIRST_CHAINS 64u

static bool create(KeyUses *uses, const RubatoModelSetup *setup, GError **error)
{
    (void)setup;
    (void)error;
    uses->n_chains = FIRST_CHAINS;
    uses->chains = g_new0(uint32_t, FIRST_CHAINS);
    return true;
}

static size_t chain_of(const KeyUses *uses, RubatoKey key)
{
    return (size_t)(key_hash(&uses->key_hash, key) & (uses->n_chains - 1));
}

/* Longer chains are only slower, so a lack of memory is no failure. */
static void grow(KeyUses *uses, uint32_t n_uses)
{
    uint64_t n_chains = uses->n_chains;
    const uint64_t n_before = n_chains;

    while (n_chains < n_uses)
        n_chains *= 2;
    if (n_chains == n_before)
        return;

    uint32_t *chains = g_try_new0(uint32_t, n_chains);
    if (chains == NULL)
        return;

    uint32_t *before = uses->chains;
    uses->chains = chains;
    uses->n_chains = n_chains;
    for (uint64_t i = 0; i < n_before; i++)
        for (uint32_t entry = before[i], next; entry != KEY_USES_END; entry = next) {
            KeyUse *use = &uses->entries[entry];
            uint32_t *chain = &chains[chain_of(uses, use->key)];

            next = use->next;
            use->next = *chain;
            *chain = entry;
        }
    g_free(before);
}

const KeyUsesOps key_uses_hash_ops = {
    .name = "hash",
    .create = create,
    .chain_of = chain_of,
    .grow = grow,
};
