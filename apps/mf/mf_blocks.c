/* Ratings in blocks. Users and items get numbers in the order of the files; then the one with most
 * ratings goes to the worker, or block, that has fewest so far, and so on.
 *
 * Within a block, ratings of users and items that are near each other stand together, so that their
 * rows stay in the cache; there they have a random order. */
#include "apps/mf/mf_blocks.h"

#include <rubato/mix.h>
#include <string.h>

#define READ_AT_ONCE 65536
#define NEAR 1024 /* rows of users, and of items, that stay in the cache together */

/* Users, or items. */
typedef struct {
    GArray *keys;   /* of RubatoKey, by number */
    GArray *counts; /* of uint64_t: ratings, by number */

    /* once all are known, by number */
    uint32_t *group; /* of n_groups: worker or block */
    uint32_t *place; /* in the group, by key */
} Side;

enum { USERS, ITEMS, N_SIDES };

typedef struct {
    Side sides[N_SIDES];
    GHashTable *codes; /* key → code */
    GArray *ratings;   /* of MfRating, with numbers for places */
    double sum;
} Reading;

bool mf_check_rows(const RubatoBatch *batch, GError **error)
{
    for (size_t row = 0; row < batch->n_rows; row++)
        if (batch->row_start[row + 1] - batch->row_start[row] != 2) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                        "expected rows of a user and an item, found one with %zu entries (for "
                        "files of user, item and rating: --format ratings)",
                        batch->row_start[row + 1] - batch->row_start[row]);
            return false;
        }
    return true;
}

/* The code of a key, a new one if need be: 2 × its number + its side + 1. */
static uint64_t code_of(Reading *reading, RubatoKey key, int side)
{
    const gpointer name = GSIZE_TO_POINTER(key);
    const uint64_t none = 0;
    uint64_t code = GPOINTER_TO_SIZE(g_hash_table_lookup(reading->codes, name));

    if (code == 0) {
        code = 2 * (uint64_t)reading->sides[side].keys->len + (uint64_t)side + 1;
        g_hash_table_insert(reading->codes, name, GSIZE_TO_POINTER(code));
        g_array_append_val(reading->sides[side].keys, key);
        g_array_append_val(reading->sides[side].counts, none);
    }
    return code;
}

static bool refuse_key(RubatoKey key, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                "key %" G_GUINT64_FORMAT " is a user in one row and an item in another one; with "
                "--format ratings both have keys of their own",
                key);
    return false;
}

/* A key is looked up once in a batch. */
static bool take_batch(Reading *reading, const RubatoBatch *batch, GError **error)
{
    g_autofree uint64_t *codes = g_new0(uint64_t, batch->n_keys + 1);

    if (!mf_check_rows(batch, error))
        return false;
    for (size_t row = 0; row < batch->n_rows; row++) {
        MfRating rating = { .rating = batch->label[row] };

        for (int side = 0; side < N_SIDES; side++) {
            const uint32_t index = batch->index[2 * row + (size_t)side];

            if (codes[index] == 0)
                codes[index] = code_of(reading, batch->keys[index], side);
            if ((codes[index] - 1) % 2 != (uint64_t)side)
                return refuse_key(batch->keys[index], error);
            const uint32_t number = (uint32_t)((codes[index] - 1) / 2);
            *(side == USERS ? &rating.user : &rating.item) = number;
            g_array_index(reading->sides[side].counts, uint64_t, number)++;
        }
        reading->sum += (double)rating.rating;
        g_array_append_val(reading->ratings, rating);
    }
    return true;
}

static bool read_all(Reading *reading, RubatoDataset *rows, GError **error)
{
    const RubatoReaderOptions options = { .batch_rows = READ_AT_ONCE };
    g_autoptr(RubatoReader) reader = rubato_dataset_open_reader(rows, &options, error);
    g_autoptr(RubatoBatch) batch = NULL;
    bool good = reader != NULL;

    while (good && rubato_reader_next(reader, &batch, error))
        good = take_batch(reading, batch, error);
    return good && !rubato_reader_failed(reader);
}

/* ---- groups ---- */

typedef struct {
    uint64_t count;
    RubatoKey key;
    uint32_t number;
} Member;

static int compare_counts(const void *a, const void *b)
{
    const Member *left = a, *right = b;

    if (left->count != right->count)
        return left->count > right->count ? -1 : 1;
    return (left->key > right->key) - (left->key < right->key);
}

static int compare_keys(const void *a, const void *b)
{
    const Member *left = a, *right = b;

    return (left->key > right->key) - (left->key < right->key);
}

/* Gives each to one of n groups, and a place there. keys and sizes get those of each group. */
static void group(Side *side, uint32_t n, RubatoKey **keys, size_t *sizes)
{
    const guint n_all = side->keys->len;
    g_autofree Member *members = g_new(Member, n_all + 1);
    g_autofree uint64_t *loads = g_new0(uint64_t, n);

    side->group = g_new(uint32_t, n_all + 1);
    side->place = g_new(uint32_t, n_all + 1);
    for (guint i = 0; i < n_all; i++)
        members[i] = (Member){ g_array_index(side->counts, uint64_t, i),
                               g_array_index(side->keys, RubatoKey, i), i };
    qsort(members, n_all, sizeof *members, compare_counts);
    for (guint i = 0; i < n_all; i++) {
        uint32_t least = 0;

        for (uint32_t g = 1; g < n; g++)
            if (loads[g] < loads[least])
                least = g;
        loads[least] += members[i].count;
        sizes[least]++;
        side->group[members[i].number] = least;
    }
    for (uint32_t g = 0; g < n; g++) {
        keys[g] = g_new(RubatoKey, sizes[g] + 1);
        sizes[g] = 0;
    }
    qsort(members, n_all, sizeof *members, compare_keys);
    for (guint i = 0; i < n_all; i++) {
        const uint32_t g = side->group[members[i].number];

        side->place[members[i].number] = (uint32_t)sizes[g];
        keys[g][sizes[g]++] = members[i].key;
    }
}

/* ---- shares ---- */

/* Where a rating stands in a share: by block, and there by neighbours. */
static size_t bucket_of(const MfBlocks *blocks, const MfShare *share, uint32_t block,
                        const MfRating *rating)
{
    const size_t n_users = share->n_users / NEAR + 1;
    size_t before = 0;

    for (uint32_t b = 0; b < block; b++)
        before += n_users * (blocks->n_items[b] / NEAR + 1);
    return before + rating->user / NEAR * (blocks->n_items[block] / NEAR + 1) + rating->item / NEAR;
}

static void shuffle(MfRating *ratings, size_t n, uint64_t seed)
{
    for (size_t i = n; i > 1; i--) {
        const size_t other = (size_t)(rubato_mix64(seed + i) % i);
        const MfRating rating = ratings[other];

        ratings[other] = ratings[i - 1];
        ratings[i - 1] = rating;
    }
}

/* The share's ratings, in their places: counted first, then put where they belong. */
static void fill_share(const MfBlocks *blocks, const Reading *reading, uint32_t worker,
                       MfShare *share, uint64_t seed)
{
    const Side *users = &reading->sides[USERS], *items = &reading->sides[ITEMS];
    const MfRating none = { 0 };
    const size_t n_buckets = bucket_of(blocks, share, blocks->n_blocks, &none);
    g_autofree size_t *ends = g_new0(size_t, n_buckets + 2);

    for (int pass = 0; pass < 2; pass++) {
        for (guint i = 0; i < reading->ratings->len; i++) {
            const MfRating *read = &g_array_index(reading->ratings, MfRating, i);
            const MfRating rating = { users->place[read->user], items->place[read->item],
                                      read->rating };

            if (users->group[read->user] != worker)
                continue;
            const size_t bucket = bucket_of(blocks, share, items->group[read->item], &rating);
            if (pass == 0)
                ends[bucket + 1]++;
            else
                share->ratings[ends[bucket]++] = rating;
        }
        for (size_t b = 0; pass == 0 && b < n_buckets; b++)
            ends[b + 1] += ends[b];
        if (pass == 0)
            share->ratings = g_new(MfRating, ends[n_buckets] + 1);
    }
    /* now ends[b] is the end of bucket b, and the begin of the next one */
    for (uint32_t block = 0; block <= blocks->n_blocks; block++) {
        const size_t bucket = bucket_of(blocks, share, block, &none);

        share->starts[block] = bucket > 0 ? ends[bucket - 1] : 0;
    }
    for (size_t b = 0, begin = 0; b < n_buckets; begin = ends[b++])
        shuffle(share->ratings + begin, ends[b] - begin, rubato_mix64(seed ^ (b << 20 | worker)));
}

static void fill(MfBlocks *blocks, Reading *reading, uint32_t n_workers, uint32_t first,
                 uint64_t seed)
{
    g_autofree RubatoKey **keys = g_new0(RubatoKey *, n_workers);
    g_autofree size_t *sizes = g_new0(size_t, n_workers);

    blocks->items = g_new0(RubatoKey *, n_workers);
    blocks->n_items = g_new0(size_t, n_workers + 1); /* buckets end where that block would begin */
    group(&reading->sides[ITEMS], n_workers, blocks->items, blocks->n_items);
    group(&reading->sides[USERS], n_workers, keys, sizes);
    for (uint32_t i = 0; i < blocks->n_shares; i++) {
        MfShare *share = &blocks->shares[i];

        share->users = g_steal_pointer(&keys[first + i]);
        share->n_users = sizes[first + i];
        share->starts = g_new0(size_t, n_workers + 1);
        fill_share(blocks, reading, first + i, share, seed);
    }
    for (uint32_t i = 0; i < n_workers; i++)
        g_free(keys[i]);
}

bool mf_blocks_read(MfBlocks *blocks, RubatoDataset *rows, uint32_t n_workers, uint32_t first,
                    uint32_t n_own, uint64_t seed, GError **error)
{
    Reading reading = { .codes = g_hash_table_new(NULL, NULL),
                        .ratings = g_array_new(FALSE, FALSE, sizeof(MfRating)) };

    *blocks =
        (MfBlocks){ .n_blocks = n_workers, .n_shares = n_own, .shares = g_new0(MfShare, n_own) };
    for (int side = 0; side < N_SIDES; side++)
        reading.sides[side] = (Side){ .keys = g_array_new(FALSE, FALSE, sizeof(RubatoKey)),
                                      .counts = g_array_new(FALSE, FALSE, sizeof(uint64_t)) };
    const bool good = read_all(&reading, rows, error);
    if (good) {
        blocks->mean = reading.sum / MAX(1, reading.ratings->len);
        fill(blocks, &reading, n_workers, first, seed);
    }
    for (int side = 0; side < N_SIDES; side++) {
        g_array_unref(reading.sides[side].keys);
        g_array_unref(reading.sides[side].counts);
        g_free(reading.sides[side].group);
        g_free(reading.sides[side].place);
    }
    g_hash_table_unref(reading.codes);
    g_array_unref(reading.ratings);
    return good;
}

void mf_blocks_clear(MfBlocks *blocks)
{
    for (uint32_t i = 0; blocks->items != NULL && i < blocks->n_blocks; i++)
        g_free(blocks->items[i]);
    for (uint32_t i = 0; i < blocks->n_shares; i++) {
        g_free(blocks->shares[i].users);
        g_free(blocks->shares[i].ratings);
        g_free(blocks->shares[i].starts);
    }
    g_free(blocks->items);
    g_free(blocks->n_items);
    g_free(blocks->shares);
    *blocks = (MfBlocks){ .n_blocks = 0 };
}
