/* Which rows inputs make: a primary's shard notes it, and one that does not have all rows yet is
 * told (shard_roles.h).
 *
 * A place is the number of a key among all keys for which an input wants rows to write to. Both
 * shards handle the input by the same code, so they want the same rows in the same order. What they
 * want does not depend on which rows there are.
 *
 * A key may come several times in an input, and be refused first and admitted later. So places are
 * told, and not keys.
 *
 * In the primary's shard the storage makes rows in the order of their places, and keeps the rows of
 * the same block from leaving. So does that of the other shard, which is asked for fewer rows at a
 * time: those that it has, and those that it is to make.
 *
 * Only the primary's shard asks what admits keys. When all rows have been sent, what it asks from
 * follows in slices, and so the words that have changed are told, too.
 *
 * Thread: the shard's present owner. Keys have been checked. */
#include "models/shard/image.h"
#include "models/shard/shard_private.h"
#include "models/shard/shard_roles.h"

struct ShardMade {
    GArray *places; /* of uint64_t: where the present input has made rows, or is to make some */
    guint n_taken;  /* of these, by a shard that is told */
    uint64_t place; /* of the next key */

    /* of a primary's shard, when all rows have been sent */
    GArray *changed; /* of uint64_t: words of what admits keys that the present input has changed;
                      * NULL: they are not noted */
    GArray *words;   /* of ShardWord: these, when the input has ended */
};

bool shard_chooses_rows(const RubatoShard *shard)
{
    return shard->ragged == NULL && (shard->bounded != NULL || shard->admission != NULL);
}

void shard_forget_made(RubatoShard *shard)
{
    if (shard->made != NULL) {
        g_array_unref(shard->made->places);
        g_clear_pointer(&shard->made->changed, g_array_unref);
        g_clear_pointer(&shard->made->words, g_array_unref);
    }
    g_clear_pointer(&shard->made, g_free);
    shard->by_place = false;
}

static void begin(RubatoShard *shard)
{
    shard->made = g_new0(ShardMade, 1);
    shard->made->places = g_array_new(FALSE, FALSE, sizeof(uint64_t));
}

void shard_note_made(RubatoShard *shard, bool notes)
{
    if (notes && shard->made == NULL)
        begin(shard);
    else if (!notes && shard->made != NULL)
        shard_forget_made(shard);
}

bool shard_await_made(RubatoShard *shard, bool awaits)
{
    shard_forget_made(shard);
    if (!awaits)
        return true;
    if (!shard_make_refused(shard))
        return false;
    begin(shard);
    return true;
}

void shard_begin_places(RubatoShard *shard)
{
    if (shard->made == NULL)
        return;
    shard->by_place = true;
    shard->made->place = 0;
    g_array_set_size(shard->made->places, 0);
    if (shard->made->changed == NULL)
        return;
    g_array_set_size(shard->made->changed, 0);
    g_array_set_size(shard->made->words, 0);
}

void shard_end_places(RubatoShard *shard)
{
    if (shard->made == NULL)
        return;
    shard->by_place = false;
    shard->made->place = 0;
    shard->made->n_taken = 0;
    g_array_set_size(shard->made->places, 0);
}

/* ---- what admits keys ---- */

void shard_note_words(RubatoShard *shard)
{
    if (shard->admission == NULL || !shard_knows_admission_words(shard))
        return;
    shard_note_made(shard, true);
    if (shard->made->changed != NULL)
        return;
    shard->made->changed = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    shard->made->words = g_array_new(FALSE, FALSE, sizeof(ShardWord));
}

void shard_read_words(RubatoShard *shard)
{
    const ShardMade *const made = shard->made;

    for (guint i = 0; made != NULL && made->changed != NULL && i < made->changed->len; i++) {
        ShardWord word = { .at = g_array_index(made->changed, uint64_t, i) };

        shard_get_admission(shard, (size_t)word.at, 1, &word.word);
        g_array_append_val(made->words, word);
    }
}

const ShardWord *shard_words(const RubatoShard *shard, size_t *n)
{
    const GArray *const words = shard->made == NULL ? NULL : shard->made->words;

    *n = words == NULL ? 0 : words->len;
    return *n == 0 ? NULL : (const ShardWord *)(const void *)words->data;
}

/* ---- places ---- */

const uint64_t *shard_made(const RubatoShard *shard, size_t *n)
{
    *n = shard->made == NULL ? 0 : shard->made->places->len;
    return *n == 0 ? NULL : (const uint64_t *)(const void *)shard->made->places->data;
}

bool shard_expect_made(RubatoShard *shard, const uint64_t *places, size_t n)
{
    if (shard->made == NULL || shard->role != SHARD_FOLLOWS)
        return false;
    g_array_append_vals(shard->made->places, places, (guint)n);
    return true;
}

/* ---- rows ---- */

/* As ever: rows of keys that are not admitted are NULL. */
static bool find_or_make(RubatoShard *shard, RubatoAdmission *admission, const RubatoKey *keys,
                         size_t n, void **rows)
{
    if (G_UNLIKELY(shard->is_watched))
        shard_watch(shard, &(RubatoKeys){ .keys = keys, .n = n });
    if (admission != NULL)
        return shard_find_or_admit_watched(shard, keys, n, rows);
    return shard_find_or_create_watched(shard, keys, n, rows);
}

static bool find_and_note(RubatoShard *shard, RubatoAdmission *admission, const RubatoKey *keys,
                          size_t n, void **rows)
{
    GArray *const changed = admission == NULL ? NULL : shard->made->changed;
    const uint64_t n_refused = admission == NULL ? 0 : admission->n_refused;
    void *before[BLOCK];

    shard_find(shard, keys, n, before);
    if (!find_or_make(shard, admission, keys, n, rows))
        return false;
    for (size_t i = 0; changed != NULL && i < n; i++)
        if (before[i] == NULL) /* it was asked for, perhaps */
            shard_list_asked_words(shard, keys[i], changed);
    if (changed != NULL)
        shard_list_refused_words(shard, n_refused, changed);
    for (size_t i = 0; i < n; i++) {
        const uint64_t place = shard->made->place + i;

        if (before[i] == NULL && rows[i] != NULL)
            g_array_append_val(shard->made->places, place);
    }
    return true;
}

/* Whether the next place that it was told is this one. */
static bool is_told(ShardMade *made, uint64_t place)
{
    const bool is_next = made->n_taken < made->places->len &&
                         g_array_index(made->places, uint64_t, made->n_taken) == place;

    made->n_taken += is_next;
    return is_next;
}

/* Keys that are left out count as uses, as they do in the primary's storage: so marks are the same.
 * Their own marks come with their rows. */
static bool find_told(RubatoShard *shard, const RubatoKey *keys, size_t n, void **rows)
{
    RubatoKey some[BLOCK];
    void *found[BLOCK];
    uint16_t at[BLOCK];
    size_t n_some = 0;

    shard_find(shard, keys, n, rows);
    for (size_t i = 0; i < n; i++) {
        if (!is_told(shard->made, shard->made->place + i) && rows[i] == NULL)
            continue;
        at[n_some] = (uint16_t)i;
        some[n_some++] = keys[i];
    }
    if (shard->bounded != NULL)
        shard->bounded->uses(shard->storage)->n_uses += n - n_some;
    if (n_some > 0 && !find_or_make(shard, /* admission= */ NULL, some, n_some, found))
        return false;
    for (size_t i = 0; i < n_some; i++)
        rows[at[i]] = found[i];
    return true;
}

bool shard_find_by_place(RubatoShard *shard, RubatoAdmission *admission, const RubatoKey *keys,
                         size_t n, void **rows)
{
    const bool follows = shard->role == SHARD_FOLLOWS;

    if (!(follows ? find_told(shard, keys, n, rows)
                  : find_and_note(shard, admission, keys, n, rows)))
        return false;
    shard->made->place += n;
    if (follows || admission != NULL)
        shard_fill_refused(shard, rows, n);
    return true;
}
