/* What the shard of a part with replicas decides by itself, and repeats: see the header.
 *
 * Thread: the shard's present owner. Keys have been checked. */
#include "models/shard/shard_roles.h"

#include "models/shard/shard_private.h"

struct ShardLeaving {
    uint64_t n_made; /* rows, when the present input began */
    GArray *list;    /* of ShardEviction: what the input has evicted, or is to evict */
    guint n_taken;   /* of these, by a shard that follows */
};

void shard_clear_role(RubatoShard *shard)
{
    if (shard->leaving != NULL)
        g_array_unref(shard->leaving->list);
    g_clear_pointer(&shard->leaving, g_free);
    g_clear_pointer(&shard->wanted, g_array_unref);
    shard_forget_made(shard);
    shard_close_failures(shard);
}

static uint64_t count_made(const RubatoShard *shard)
{
    return shard->bounded->n_made(shard->storage) - shard->leaving->n_made;
}

/* Whether a row leaves for the one that is about to be made. */
static bool leaves(void *user, RubatoKey *key)
{
    RubatoShard *const shard = user;
    ShardLeaving *const leaving = shard->leaving;
    const ShardEviction *next;

    if (leaving->n_taken == leaving->list->len)
        return false;
    next = &g_array_index(leaving->list, ShardEviction, leaving->n_taken);
    if (next->made > count_made(shard))
        return false;
    *key = next->key;
    leaving->n_taken++;
    if (shard->is_watched)
        shard_watch(shard, &(RubatoKeys){ .first = *key, .n = 1 });
    return true;
}

void shard_set_role(RubatoShard *shard, ShardRole role)
{
    shard_clear_role(shard);
    shard->role = role;
    if (shard->create_on_get && role == SHARD_LEADS)
        shard->wanted = g_array_new(FALSE, FALSE, sizeof(RubatoKey));
    if (shard->bounded == NULL)
        return;
    if (role != SHARD_ALONE) {
        shard->leaving = g_new0(ShardLeaving, 1);
        shard->leaving->list = g_array_new(FALSE, FALSE, sizeof(ShardEviction));
    }
    shard->bounded->set_leaves(shard->storage, role == SHARD_FOLLOWS ? leaves : NULL, shard);
    shard_hear_evictions(shard);
}

bool shard_tells_evictions(const RubatoShard *shard)
{
    return shard->leaving != NULL && shard->role == SHARD_LEADS;
}

bool shard_tells_more(const RubatoShard *shard)
{
    return shard_chooses_rows(shard) || shard->ragged != NULL;
}

void shard_note_more(RubatoShard *shard, bool notes)
{
    if (shard->ragged == NULL)
        shard_note_made(shard, notes && shard_chooses_rows(shard));
    else if (notes)
        shard_open_failures(shard);
    else
        shard_close_failures(shard);
}

bool shard_await_rows(RubatoShard *shard, bool awaits)
{
    if (shard->ragged == NULL)
        return shard_await_made(shard, awaits);
    shard_note_more(shard, awaits);
    return true;
}

void shard_end_input(RubatoShard *shard)
{
    shard->by_place = false;
    shard_read_words(shard);
    shard_end_failures(shard);
}

bool shard_goes_first(const RubatoShard *shard)
{
    return shard_tells_evictions(shard) ||
           ((shard->made != NULL || shard->failures != NULL) && shard->role == SHARD_LEADS);
}

void shard_begin_input(RubatoShard *shard)
{
    shard_begin_places(shard);
    shard_begin_failures(shard);
    if (shard->leaving == NULL)
        return;
    shard->leaving->n_made = shard->bounded->n_made(shard->storage);
    g_array_set_size(shard->leaving->list, 0);
}

const ShardEviction *shard_evictions(const RubatoShard *shard, size_t *n)
{
    *n = shard->leaving == NULL ? 0 : shard->leaving->list->len;
    if (*n == 0)
        return NULL;
    return (const ShardEviction *)(const void *)shard->leaving->list->data;
}

void shard_note_eviction(RubatoShard *shard, RubatoKey key)
{
    const ShardEviction eviction = { count_made(shard), key };

    g_array_append_val(shard->leaving->list, eviction);
}

bool shard_expect_evictions(RubatoShard *shard, const ShardEviction *evictions, size_t n)
{
    if (shard->leaving == NULL || shard->role != SHARD_FOLLOWS)
        return false;
    g_array_append_vals(shard->leaving->list, evictions, (guint)n);
    return true;
}

void shard_begin_told_input(RubatoShard *shard)
{
    shard->by_place = shard->made != NULL;
    shard_begin_failures(shard);
    if (shard->leaving != NULL)
        shard->leaving->n_made = shard->bounded->n_made(shard->storage);
}

void shard_end_told_input(RubatoShard *shard)
{
    shard_end_places(shard);
    shard_end_failures(shard);
    if (shard->leaving == NULL)
        return;
    shard->leaving->n_taken = 0;
    g_array_set_size(shard->leaving->list, 0);
}

/* ---- rows that Gets create ---- */

void shard_note_wanted(RubatoShard *shard, const RubatoKey *keys, size_t n, void *const *rows)
{
    for (size_t i = 0; i < n; i++)
        if (rows[i] == NULL)
            g_array_append_val(shard->wanted, keys[i]);
}

GArray *shard_take_wanted(RubatoShard *shard)
{
    if (shard->wanted == NULL || shard->wanted->len == 0)
        return NULL;

    GArray *const taken = shard->wanted;

    shard->wanted = g_array_new(FALSE, FALSE, sizeof(RubatoKey));
    return taken;
}

void shard_create_rows(RubatoShard *shard, const RubatoKey *keys, size_t n)
{
    void *rows[BLOCK];

    for (size_t begin = 0; begin < n; begin += BLOCK) {
        const size_t some = MIN(n - begin, BLOCK);

        if (!shard_find_or_create(shard, keys + begin, some, rows))
            return;
    }
}
