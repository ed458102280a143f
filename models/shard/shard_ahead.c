/* Rows that change while they are sent ahead: see ahead.h. Each way by which a shard changes a row,
 * makes one, or removes one that has expired calls shard_watch before; of one that is evicted the
 * storage tells (changes.c).
 *
 * Thread: the shard's present owner. */
#include "models/shard/ahead.h"

#include "io/memory_room.h"
#include "models/shard/image.h"
#include "models/shard/key_set.h"
#include "models/shard/shard_private.h"

struct ShardAhead {
    KeySet set;
    GArray *keys; /* of RubatoKey: those of the set */
    bool lacks_memory;
};

static void begin_notes(RubatoShard *shard)
{
    /* another seed than that of the storage, which nobody may know */
    key_set_init(&shard->ahead->set, rubato_mix64(shard->hash_seed));
    shard->ahead->keys = g_array_new(FALSE, FALSE, sizeof(RubatoKey));
}

void shard_begin_ahead(RubatoShard *shard)
{
    shard->ahead = g_new0(ShardAhead, 1);
    begin_notes(shard);
    shard_hear_evictions(shard);
    shard_set_watched(shard);
}

bool shard_is_ahead(const RubatoShard *shard)
{
    return shard->ahead != NULL && !shard->ahead->lacks_memory;
}

GArray *shard_take_ahead(RubatoShard *shard)
{
    GArray *const keys = g_steal_pointer(&shard->ahead->keys);

    key_set_clear(&shard->ahead->set);
    begin_notes(shard);
    return keys;
}

void shard_end_ahead(RubatoShard *shard)
{
    if (shard->ahead == NULL)
        return;
    key_set_clear(&shard->ahead->set);
    g_array_unref(shard->ahead->keys);
    g_clear_pointer(&shard->ahead, g_free);
    shard_hear_evictions(shard);
    shard_set_watched(shard);
}

/* An array doubles when it is full, which is when it has a power of two of keys at the latest. */
static bool has_room(const GArray *keys)
{
    const size_t n = keys->len;

    return (n & (n - 1)) != 0 || memory_leaves_room(2 * n * sizeof(RubatoKey));
}

void shard_note_ahead(RubatoShard *shard, const RubatoKeys *keys)
{
    ShardAhead *const ahead = shard->ahead;

    for (size_t i = 0; i < keys->n && !ahead->lacks_memory; i++) {
        const RubatoKey key = keys_get(keys, i);
        const KeySetAdded added =
            has_room(ahead->keys) ? key_set_add(&ahead->set, key) : KEY_SET_NO_MEMORY;

        ahead->lacks_memory = added == KEY_SET_NO_MEMORY;
        if (added == KEY_SET_ADDED)
            g_array_append_val(ahead->keys, key);
    }
}
