/* The record "dense": a chain for each key of the shard's range.
 *
 * Thread: the shard's present owner. Keys lie in the range: whoever calls has checked them. */
#include <assert.h>
#include <rubato/error.h>

#include "models/record.h"

static bool create(Record *record, const RubatoModelSetup *setup, GError **error)
{
    record->first_key = setup->first_key;
    record->n_chains = setup->n_keys;
    if (setup->n_keys < G_MAXSIZE / sizeof(uint32_t))
        record->chains = g_try_new0(uint32_t, (gsize)MAX(setup->n_keys, 1));
    if (record->chains != NULL)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                "table %s: no memory for a dense record of %" G_GUINT64_FORMAT
                " keys; take the record \"hash\"",
                setup->spec->name, setup->n_keys);
    return false;
}

static size_t chain_of(const Record *record, RubatoKey key)
{
    assert(key - record->first_key < record->n_chains);
    return (size_t)(key - record->first_key);
}

const RecordOps record_dense_ops = {
    .name = "dense",
    .wants_range = true,
    .create = create,
    .chain_of = chain_of,
};
