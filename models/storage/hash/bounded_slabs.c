/* The free rows of slabs, where rows do not lie in the cells.
 *
 * The free rows of a slab are a list: each begins with the number of the next one. Slabs with free
 * rows are a list, too. A slab whose rows are all free may give its memory to the pool; it then is
 * in the list of empty ones, and its rows' numbers wait until it has memory again. Rows never move.
 *
 * Thread: the shard's present owner. */
#include "models/storage/hash/bounded_private.h"

#define NONE BOUNDED_NO_NUMBER
#define RELEASED_AT_ONCE 8u /* a block may go back to the kernel, which takes some microseconds */
#define SEEN_AT_ONCE 256u

bool bounded_has_room_for(const BoundedStorage *bounded, uint64_t n_bytes)
{
    const HashStorage *hash = &bounded->hash;
    const uint64_t n_zero = hash->row_of_empty_key == NULL ? 0 : hash->row_bytes;
    uint64_t n_rows, n_now;

    hash_storage_size(&hash->base, &n_rows, &n_now);
    return n_now - n_zero + n_bytes <= bounded->max_bytes;
}

/* ---- lists of slabs ---- */

static void link_slab(BoundedStorage *bounded, uint32_t *first, uint32_t number)
{
    bounded->slabs[number].next = *first;
    bounded->slabs[number].before = NONE;
    if (*first != NONE)
        bounded->slabs[*first].before = number;
    *first = number;
}

static void unlink_slab(BoundedStorage *bounded, uint32_t *first, uint32_t number)
{
    const BoundedSlab *slab = &bounded->slabs[number];

    if (slab->next != NONE)
        bounded->slabs[slab->next].before = slab->before;
    if (slab->before != NONE)
        bounded->slabs[slab->before].next = slab->next;
    else
        *first = slab->next;
}

static uint32_t rows_of_slab(const BoundedStorage *bounded)
{
    return UINT32_C(1) << bounded->hash.slab_bits;
}

/* ---- rows ---- */

void bounded_give_number(BoundedStorage *bounded, uint32_t number)
{
    BoundedSlab *slab = &bounded->slabs[number >> bounded->hash.slab_bits];

    memcpy(hash_slab_row(&bounded->hash, number), &slab->first, sizeof slab->first);
    slab->first = number;
    if (slab->n_free++ == 0)
        link_slab(bounded, &bounded->first_free, number >> bounded->hash.slab_bits);
}

uint32_t bounded_take_free(BoundedStorage *bounded)
{
    const uint32_t from = bounded->first_free;
    uint32_t number;

    if (from == NONE)
        return NONE;

    BoundedSlab *slab = &bounded->slabs[from];

    number = slab->first;
    memcpy(&slab->first, hash_slab_row(&bounded->hash, number), sizeof slab->first);
    if (--slab->n_free == 0)
        unlink_slab(bounded, &bounded->first_free, from);
    return number;
}

/* An empty slab gets memory, and all its rows are free. */
static bool fill_empty(BoundedStorage *bounded)
{
    HashStorage *hash = &bounded->hash;
    const uint32_t filled = bounded->first_empty;
    unsigned char *memory = segment_pool_take(&hash->pool);

    if (memory == NULL)
        return false;
    unlink_slab(bounded, &bounded->first_empty, filled);
    hash->slabs[filled] = memory;
    for (uint32_t i = rows_of_slab(bounded); i-- > 0;)
        bounded_give_number(bounded, (filled << hash->slab_bits) + i);
    return true;
}

/* A row of the last slab, or of a new one. */
static uint32_t take_last(BoundedStorage *bounded, uint64_t reserve)
{
    HashStorage *hash = &bounded->hash;
    BoundedSlab *slabs;

    if (hash->n_slab_rows >> hash->slab_bits < hash->n_slabs)
        return hash->n_slab_rows++;
    if (!bounded_has_room_for(bounded, hash_slab_bytes(hash) + sizeof *slabs + reserve))
        return NONE;
    slabs = g_try_renew(BoundedSlab, bounded->slabs, hash->n_slabs + 1);
    if (slabs == NULL)
        return NONE;
    bounded->slabs = slabs;
    if (!hash_ensure_slab_row(hash))
        return NONE;
    bounded->slabs[bounded->n_slabs++] = (BoundedSlab){ .first = NONE };
    hash->n_bytes += sizeof *slabs;
    return hash->n_slab_rows++;
}

uint32_t bounded_take_new(BoundedStorage *bounded, uint64_t reserve)
{
    if (bounded->first_empty == NONE)
        return take_last(bounded, reserve);
    if (!bounded_has_room_for(bounded, hash_slab_bytes(&bounded->hash) + reserve) ||
        !fill_empty(bounded))
        return NONE;
    return bounded_take_free(bounded);
}

/* ---- memory ---- */

static void release(BoundedStorage *bounded, uint32_t number)
{
    HashStorage *hash = &bounded->hash;

    unlink_slab(bounded, &bounded->first_free, number);
    segment_pool_give(&hash->pool, hash->slabs[number]);
    hash->slabs[number] = NULL;
    bounded->slabs[number] = (BoundedSlab){ .first = NONE };
    link_slab(bounded, &bounded->first_empty, number);
}

uint32_t bounded_release_slabs(BoundedStorage *bounded, uint32_t from)
{
    uint32_t n_released = 0, number = from;

    for (;
         number < bounded->n_slabs && number - from < SEEN_AT_ONCE && n_released < RELEASED_AT_ONCE;
         number++)
        if (bounded->slabs[number].n_free == rows_of_slab(bounded)) {
            release(bounded, number);
            n_released++;
        }
    return number < bounded->n_slabs ? number : NONE;
}
