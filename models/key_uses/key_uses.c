/* The uses of keys, in chains, or in the set of a long announcement.
 *
 * A use is one entry of one array. So once the array is large enough, entering and removing
 * iterations allocates nothing; free entries form a free list. A key that is announced twice for an
 * iteration has two entries, and is removed twice.
 *
 * Chains cost some cache misses for each key that is entered and removed: whole seconds for ten
 * million keys, while all others wait for the shard. A set takes a twentieth of that, and a search
 * looks into all sets.
 *
 * Thread: the shard's present owner. */
#include "models/key_uses/key_uses.h"

#include <assert.h>
#include <rubato/error.h>
#include <string.h>

#include "models/keys.h"

extern const KeyUsesOps key_uses_hash_ops, key_uses_dense_ops;

static const KeyUsesOps *const kinds[] = { &key_uses_hash_ops, &key_uses_dense_ops };

const KeyUsesOps *key_uses_find_ops(const char *name)
{
    for (size_t i = 0; i < G_N_ELEMENTS(kinds); i++)
        if (strcmp(kinds[i]->name, name) == 0)
            return kinds[i];
    return NULL;
}

const char *key_uses_name(size_t i)
{
    return i < G_N_ELEMENTS(kinds) ? kinds[i]->name : NULL;
}

KeyUses *key_uses_new(const KeyUsesOps *ops, const RubatoModelSetup *setup, GError **error)
{
    KeyUses *uses = g_new0(KeyUses, 1);

    uses->ops = ops;
    uses->n_touched = 1;
    uses->key_hash = key_hash_make(setup->hash_seed);
    if (!ops->create(uses, setup, error)) {
        key_uses_free(uses);
        return NULL;
    }
    return uses;
}

void key_uses_free(KeyUses *uses)
{
    if (uses == NULL)
        return;
    for (uint32_t i = 0; i < uses->n_sets; i++)
        announced_keys_clear(&uses->sets[i].keys);
    g_free(uses->chains);
    g_free(uses->entries);
    g_free(uses);
}

/* Makes room for n more uses. */
static bool reserve(KeyUses *uses, size_t n)
{
    const size_t needed = (size_t)uses->n_uses + 1 + MIN(n, KEY_USES_MAX_KEYS);
    size_t allocated = MAX(uses->n_allocated, 64);

    if (n > KEY_USES_MAX_KEYS || needed > UINT32_MAX)
        return false;
    if (needed <= uses->n_allocated)
        return true;
    while (allocated < needed)
        allocated *= 2;
    allocated = MIN(allocated, UINT32_MAX);

    KeyUse *entries = g_try_renew(KeyUse, uses->entries, allocated);
    if (entries == NULL)
        return false;
    uses->entries = entries;
    uses->n_allocated = (uint32_t)allocated;
    return true;
}

static uint32_t take_entry(KeyUses *uses)
{
    const uint32_t entry = uses->first_free;

    if (entry == KEY_USES_END)
        return uses->n_touched++;
    uses->first_free = uses->entries[entry].next;
    return entry;
}

static bool add_set(KeyUses *uses, uint32_t worker, uint64_t iteration, const RubatoKeys *keys)
{
    KeyUsesOfOne *const set = &uses->sets[uses->n_sets];

    if (!announced_keys_make(&set->keys, keys, &uses->key_hash))
        return false;
    set->announced = keys;
    set->use = (KeyUse){ .iteration = iteration, .worker = worker };
    uses->n_sets++;
    return true;
}

/* False: the keys have no set. */
static bool remove_set(KeyUses *uses, const RubatoKeys *keys)
{
    uint32_t i = 0;

    while (i < uses->n_sets && uses->sets[i].announced != keys)
        i++;
    if (i == uses->n_sets)
        return false;
    announced_keys_clear(&uses->sets[i].keys);
    uses->sets[i] = uses->sets[--uses->n_sets];
    return true;
}

static const KeyUse *find_in_sets(KeyUses *uses, const RubatoKeys *keys, uint64_t last,
                                  uint32_t reader)
{
    for (uint32_t i = 0; i < uses->n_sets; i++) {
        KeyUse *const use = &uses->sets[i].use;

        if (use->iteration > last || use->worker == reader)
            continue;
        const size_t found = announced_keys_find(&uses->sets[i].keys, keys, &uses->key_hash);

        if (found == keys->n)
            continue;
        use->key = keys_get(keys, found);
        return use;
    }
    return NULL;
}

bool key_uses_add(KeyUses *uses, uint32_t worker, uint64_t iteration, const RubatoKeys *keys)
{
    if (keys->n > KEY_USES_SHORT_KEYS && keys->n <= KEY_USES_MAX_KEYS &&
        uses->n_sets < KEY_USES_MOST_SETS)
        return add_set(uses, worker, iteration, keys);
    if (!reserve(uses, keys->n))
        return false;
    uses->n_uses += (uint32_t)keys->n;
    if (uses->ops->grow != NULL)
        uses->ops->grow(uses, uses->n_uses);
    for (size_t i = 0; i < keys->n; i++) {
        const RubatoKey key = keys_get(keys, i);
        uint32_t *chain = &uses->chains[uses->ops->chain_of(uses, key)];
        const uint32_t entry = take_entry(uses);

        uses->entries[entry] =
            (KeyUse){ .key = key, .iteration = iteration, .worker = worker, .next = *chain };
        *chain = entry;
    }
    return true;
}

static void remove_one(KeyUses *uses, uint32_t worker, uint64_t iteration, RubatoKey key)
{
    uint32_t *link = &uses->chains[uses->ops->chain_of(uses, key)];

    for (; *link != KEY_USES_END; link = &uses->entries[*link].next) {
        const uint32_t entry = *link;
        KeyUse *use = &uses->entries[entry];

        if (use->key != key || use->worker != worker || use->iteration != iteration)
            continue;
        *link = use->next;
        use->next = uses->first_free;
        uses->first_free = entry;
        uses->n_uses--;
        return;
    }
    assert(false && "a use that was never entered");
}

void key_uses_remove(KeyUses *uses, uint32_t worker, uint64_t iteration, const RubatoKeys *keys)
{
    if (keys->n > KEY_USES_SHORT_KEYS && remove_set(uses, keys))
        return;
    for (size_t i = 0; i < keys->n; i++)
        remove_one(uses, worker, iteration, keys_get(keys, i));
}

const KeyUse *key_uses_find(KeyUses *uses, const RubatoKeys *keys, uint64_t last, uint32_t reader)
{
    const KeyUse *const in_set = find_in_sets(uses, keys, last, reader);

    if (in_set != NULL)
        return in_set;
    for (size_t i = 0; i < keys->n && uses->n_uses > 0; i++) {
        const RubatoKey key = keys_get(keys, i);
        uint32_t entry = uses->chains[uses->ops->chain_of(uses, key)];

        for (; entry != KEY_USES_END; entry = uses->entries[entry].next) {
            const KeyUse *use = &uses->entries[entry];

            if (use->key == key && use->iteration <= last && use->worker != reader)
                return use;
        }
    }
    return NULL;
}
