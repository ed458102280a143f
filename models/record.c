/* The uses of keys, in chains.
 *
 * A use is one entry of one array, so that entering and removing iterations allocates nothing once
 * the array is large enough; entries that are free are chained too. A key told twice for an
 * iteration has two entries, and is removed twice.
 *
 * Thread: the shard's present owner. */
#include "models/record.h"

#include <assert.h>
#include <rubato/error.h>
#include <string.h>

#include "models/keys.h"

extern const RecordOps record_hash_ops, record_dense_ops;

static const RecordOps *const kinds[] = { &record_hash_ops, &record_dense_ops };

const RecordOps *record_find_ops(const char *name)
{
    for (size_t i = 0; i < G_N_ELEMENTS(kinds); i++)
        if (strcmp(kinds[i]->name, name) == 0)
            return kinds[i];
    return NULL;
}

const char *record_name(size_t i)
{
    return i < G_N_ELEMENTS(kinds) ? kinds[i]->name : NULL;
}

Record *record_new(const RecordOps *ops, const RubatoModelSetup *setup, GError **error)
{
    Record *record = g_new0(Record, 1);

    record->ops = ops;
    record->n_touched = 1;
    if (!ops->create(record, setup, error)) {
        record_free(record);
        return NULL;
    }
    return record;
}

void record_free(Record *record)
{
    if (record == NULL)
        return;
    g_free(record->chains);
    g_free(record->uses);
    g_free(record);
}

/* Makes room for n more uses. */
static bool reserve(Record *record, size_t n)
{
    const size_t needed = (size_t)record->n_uses + 1 + MIN(n, RECORD_MAX_KEYS);
    size_t allocated = MAX(record->n_allocated, 64);

    if (n > RECORD_MAX_KEYS || needed > UINT32_MAX)
        return false;
    if (needed <= record->n_allocated)
        return true;
    while (allocated < needed)
        allocated *= 2;
    allocated = MIN(allocated, UINT32_MAX);

    RecordUse *uses = g_try_renew(RecordUse, record->uses, allocated);
    if (uses == NULL)
        return false;
    record->uses = uses;
    record->n_allocated = (uint32_t)allocated;
    return true;
}

static uint32_t take_entry(Record *record)
{
    const uint32_t entry = record->first_free;

    if (entry == RECORD_END)
        return record->n_touched++;
    record->first_free = record->uses[entry].next;
    return entry;
}

bool record_add(Record *record, uint32_t worker, uint64_t iteration, const RubatoKeys *keys)
{
    if (!reserve(record, keys->n))
        return false;
    record->n_uses += (uint32_t)keys->n;
    if (record->ops->grow != NULL)
        record->ops->grow(record, record->n_uses);
    for (size_t i = 0; i < keys->n; i++) {
        const RubatoKey key = keys_get(keys, i);
        uint32_t *chain = &record->chains[record->ops->chain_of(record, key)];
        const uint32_t entry = take_entry(record);

        record->uses[entry] =
            (RecordUse){ .key = key, .iteration = iteration, .worker = worker, .next = *chain };
        *chain = entry;
    }
    return true;
}

static void remove_one(Record *record, uint32_t worker, uint64_t iteration, RubatoKey key)
{
    uint32_t *link = &record->chains[record->ops->chain_of(record, key)];

    for (; *link != RECORD_END; link = &record->uses[*link].next) {
        const uint32_t entry = *link;
        RecordUse *use = &record->uses[entry];

        if (use->key != key || use->worker != worker || use->iteration != iteration)
            continue;
        *link = use->next;
        use->next = record->first_free;
        record->first_free = entry;
        record->n_uses--;
        return;
    }
    assert(false && "a use that was never entered");
}

void record_remove(Record *record, uint32_t worker, uint64_t iteration, const RubatoKeys *keys)
{
    for (size_t i = 0; i < keys->n; i++)
        remove_one(record, worker, iteration, keys_get(keys, i));
}

const RecordUse *record_find(const Record *record, const RubatoKeys *keys, uint64_t last,
                             uint32_t reader)
{
    for (size_t i = 0; i < keys->n; i++) {
        const RubatoKey key = keys_get(keys, i);
        uint32_t entry = record->chains[record->ops->chain_of(record, key)];

        for (; entry != RECORD_END; entry = record->uses[entry].next) {
            const RecordUse *use = &record->uses[entry];

            if (use->key == key && use->iteration <= last && use->worker != reader)
                return use;
        }
    }
    return NULL;
}
