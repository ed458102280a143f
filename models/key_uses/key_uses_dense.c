/* The uses "dense": a chain for each key of the shard's range.
 *
 * Thread: the shard's present owner. Keys lie in the range: the caller has checked them. */
#include <assert.h>
#include <rubato/error.h>

#include "models/key_uses/key_uses.h"

static bool create(KeyUses *uses, const RubatoModelSetup *setup, GError **error)
{
    uses->first_key = setup->first_key;
    uses->n_chains = setup->n_keys;
    if (setup->n_keys < G_MAXSIZE / sizeof(uint32_t))
        uses->chains = g_try_new0(uint32_t, (gsize)MAX(setup->n_keys, 1));
    if (uses->chains != NULL)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                "table %s: no memory for a dense uses of %" G_GUINT64_FORMAT
                " keys; take the uses \"hash\"",
                setup->spec->name, setup->n_keys);
    return false;
}

static size_t chain_of(const KeyUses *uses, RubatoKey key)
{
    assert(key - uses->first_key < uses->n_chains);
    return (size_t)(key - uses->first_key);
}

const KeyUsesOps key_uses_dense_ops = {
    .name = "dense",
    .wants_range = true,
    .create = create,
    .chain_of = chain_of,
};
