/* Sets of keys by bits. */
#include "io/store/key_cover.h"

#include <glib.h>

bool key_cover_init(KeyCover *cover, bool is_range, RubatoKey first, uint64_t n_bits)
{
    *cover = (KeyCover){ .n_bits = n_bits, .is_range = is_range, .first = first };
    key_cover_set_hash(cover);
    cover->words = g_try_new0(uint64_t, key_cover_n_words(n_bits) + 1);
    return cover->words != NULL;
}

void key_cover_set_hash(KeyCover *cover)
{
    if (!cover->is_range)
        cover->hash = key_hash_make(cover->first);
}

void key_cover_clear(KeyCover *cover)
{
    g_clear_pointer(&cover->words, g_free);
}

static void add_run(KeyCover *cover, uint64_t begin, uint64_t end)
{
    for (uint64_t bit = begin; bit < end;) {
        const uint64_t n = MIN(64 - bit % 64, end - bit);
        const uint64_t ones = n == 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1;

        cover->words[bit / 64] |= ones << bit % 64;
        bit += n;
    }
}

void key_cover_add_keys(KeyCover *cover, const RubatoKeys *keys)
{
    const RubatoKey *const list = keys->keys;

    if (list == NULL && cover->is_range)
        add_run(cover, keys->first - cover->first, keys->first - cover->first + keys->n);
    else if (list == NULL)
        for (size_t i = 0; i < keys->n; i++)
            key_cover_add(cover, keys->first + i);
    else if (keys->at != NULL)
        for (size_t i = 0; i < keys->n; i++)
            key_cover_add(cover, list[keys->at[i]]);
    else
        for (size_t i = 0; i < keys->n; i++)
            key_cover_add(cover, list[i]);
}

bool key_cover_merge(KeyCover *cover, const KeyCover *other)
{
    if (cover->is_range != other->is_range || cover->first != other->first ||
        cover->n_bits != other->n_bits)
        return false;
    for (uint64_t i = 0; i < key_cover_n_words(cover->n_bits); i++)
        cover->words[i] |= other->words[i];
    return true;
}
