/* Images of shards, read: see image.c.
 *
 * Threads: see the header. Functions of which nothing is said run as the shard's owner. */
#include "models/shard/image_inside.h"
#include "models/storage/storage.h"

/* The rows of a slice lie among so many words of bits at most. So what the owner does for a slice
 * takes little, and buffers for the bits have a size. */
#define MOST_WORDS ((size_t)1024)

static void give_back(ImageSlice *slice)
{
    if (slice->copies != NULL && slice->copies_are_counted)
        spill_file_give_back(slice->spill, slice->copies, slice->copies_bytes);
    else
        g_free(slice->copies);
    slice->copies = NULL;
}

/* ---- copies ---- */

static void take_copies(ShardImage *image, ImageSlice *slice)
{
    ImageCopies *const copies = image_take_copies(image);

    slice->copies = copies;
    slice->copies_bytes = image->copies_bytes;
    slice->copies_are_counted = copies->is_counted;
    slice->keys = copies->keys;
    slice->n = copies->n;
    slice->values = copies->values;
    slice->states = copies->states;
}

static void take_spilled(ShardImage *image, ImageSlice *slice)
{
    slice->state = SLICE_SPILLED;
    slice->offset = g_array_index(image->spilled, uint64_t, image->spilled->len - 1);
    g_array_set_size(image->spilled, image->spilled->len - 1);
    slice->n = image->n_copies;
}

/* Another thread. */
static bool fetch_spilled(ImageSlice *slice)
{
    const size_t row_bytes = slice->row_bytes + slice->state_bytes;
    const size_t n_bytes = slice->n * (sizeof(RubatoKey) + row_bytes);
    unsigned char *bytes;

    slice->fetched = bytes = g_try_malloc(n_bytes);
    if (bytes == NULL || !spill_file_read(slice->spill, slice->offset, bytes, n_bytes))
        return false;
    slice->keys = (const RubatoKey *)(const void *)bytes;
    slice->values = bytes + slice->n * sizeof(RubatoKey);
    slice->states = bytes + slice->n * (sizeof(RubatoKey) + slice->row_bytes);
    return true;
}

/* ---- lent rows: what the owner does ---- */

/* Of 64 rows, those that are to be read. */
static uint64_t find_unread(const ShardImage *image, uint64_t word)
{
    const uint64_t unchanged = ~image->changed[word];

    return image->cover == NULL ? unchanged : unchanged & image->cover->words[word];
}

/* The lowest n of the bits. */
static uint64_t keep_lowest(uint64_t bits, size_t n)
{
    uint64_t rest = bits;

    for (size_t i = 0; i < n; i++)
        rest &= rest - 1;
    return bits & ~rest;
}

/* The bits of the next rows that are to be read, n_most at most; their number. */
static size_t find_next(const RubatoShard *shard, size_t n_most, uint64_t *bits, ImageSlice *slice)
{
    const ShardImage *const image = shard->image;
    uint64_t number = image->place;
    size_t n = 0;

    slice->first_word = number / 64;
    slice->n_words = 0;
    while (number < shard->n_keys && n < n_most && slice->n_words < MOST_WORDS) {
        const uint64_t end = MIN((number / 64 + 1) * 64, shard->n_keys);
        uint64_t unread = find_unread(image, number / 64) >> number % 64 << number % 64;
        size_t n_unread;

        if (end % 64 != 0)
            unread &= (UINT64_C(1) << end % 64) - 1;
        n_unread = (size_t)__builtin_popcountll(unread);
        number = end;
        if (n_unread > n_most - n) {
            n_unread = n_most - n;
            unread = keep_lowest(unread, n_unread);
            number = (end - 1) / 64 * 64 + 64 - (uint64_t)__builtin_clzll(unread);
        }
        bits[slice->n_words++] = unread;
        n += n_unread;
    }
    slice->end = number;
    return n;
}

static bool make_lent_room(const RubatoShard *shard, ImageSlice *slice, size_t n)
{
    if (slice->lent == NULL)
        slice->lent = g_try_new(uint64_t, MOST_WORDS);
    if (slice->valid == NULL)
        slice->valid = g_try_new(uint64_t, MOST_WORDS);
    if (n > slice->n_lent_room) {
        g_free(slice->lent_rows);
        slice->lent_rows = g_try_malloc_n(n, shard->stride);
        slice->n_lent_room = slice->lent_rows != NULL ? n : 0;
    }
    return slice->lent != NULL && slice->valid != NULL && slice->lent_rows != NULL;
}

static void forget_rows(ImageSlice *slice)
{
    image_rows_unref(slice->rows);
    slice->rows = NULL;
}

static void hold_rows(const ShardImage *image, ImageSlice *slice)
{
    if (slice->rows == image->rows)
        return;
    forget_rows(slice);
    slice->rows = image->rows;
    /* relaxed: the image has it, too, so it is not freed meanwhile */
    atomic_fetch_add_explicit(&slice->rows->n_users, 1, memory_order_relaxed);
}

/* False: there are no rows left to lend. */
static bool lend(RubatoShard *shard, size_t n_others, ImageSlice *slice)
{
    ShardImage *const image = shard->image;
    const size_t n_most = MAX(n_others, slice->n_lent_most);

    if (image->place == shard->n_keys)
        return false;
    if (!make_lent_room(shard, slice, n_most)) {
        image->loss = IMAGE_NO_MEMORY;
        return true;
    }
    hold_rows(image, slice);
    if (find_next(shard, n_most, slice->lent, slice) > 0)
        slice->state = SLICE_LENT;
    else
        image->place = slice->end; /* all of these have been read as copies, or are not read */
    return true;
}

/* The reader has read what was lent. */
static void settle(ShardImage *image, ImageSlice *slice)
{
    slice->state = SLICE_HAS_ROWS;
    if (slice->rows != image->rows) /* which were lent by an image that has ended */
        return;
    slice->state = SLICE_SETTLED;
    for (size_t i = 0; i < slice->n_words; i++) {
        slice->valid[i] = slice->lent[i] & ~image->changed[slice->first_word + i];
        slice->n += (size_t)__builtin_popcountll(slice->valid[i]);
    }
    image->place = slice->end;
}

/* ---- lent rows: what another thread does ---- */

/* So many bytes ahead are asked for: the processor itself looks no further than the page. */
#define READ_AHEAD 1024

/* Requests may change the rows meanwhile. What is read of these is dropped, whatever it is: see
 * image.c. So nothing may be assumed about it, and ThreadSanitizer need not look. */
__attribute__((no_sanitize("thread"))) static void read_changing(unsigned char *to,
                                                                 const unsigned char *from,
                                                                 size_t n)
{
    typedef uint64_t Words __attribute__((vector_size(16), aligned(1), may_alias));
    typedef uint32_t Value __attribute__((aligned(1), may_alias));
    size_t i = 0;

    for (; i + 4 * sizeof(Words) <= n; i += 4 * sizeof(Words)) {
        const volatile Words *const words = (const volatile Words *)(from + i);
        Words *const copies = (Words *)(to + i);

        __builtin_prefetch(from + i + READ_AHEAD);
        copies[0] = words[0];
        copies[1] = words[1];
        copies[2] = words[2];
        copies[3] = words[3];
    }
    for (; i + sizeof(Value) <= n; i += sizeof(Value))
        *(Value *)(to + i) = *(const volatile Value *)(from + i);
    for (; i < n; i++)
        to[i] = *(const volatile unsigned char *)(from + i);
}

/* A run of set bits from *bit on or later; its length. 0: there is none. */
static unsigned next_run(uint64_t bits, unsigned *bit)
{
    const uint64_t left = *bit < 64 ? bits >> *bit : 0;

    if (left == 0)
        return 0;
    *bit += (unsigned)__builtin_ctzll(left);

    /* Above the highest bit there are zeros, but if all 64 are set. */
    const uint64_t ends = ~(bits >> *bit);

    return ends == 0 ? 64 : (unsigned)__builtin_ctzll(ends);
}

static void read_lent(ImageSlice *slice)
{
    ImageRows *const all = slice->rows;
    const size_t stride = all->row_bytes + all->state_bytes;
    unsigned char *to = slice->lent_rows;

    pthread_mutex_lock(&all->lock);
    for (size_t i = 0; i < slice->n_words && all->rows != NULL; i++)
        for (unsigned bit = 0, n; (n = next_run(slice->lent[i], &bit)) > 0; bit += n) {
            read_changing(to, all->rows + ((slice->first_word + i) * 64 + bit) * stride,
                          n * stride);
            to += n * stride;
        }
    pthread_mutex_unlock(&all->lock);
}

/* The rows of keys that follow one another need no keys. */
static void find_first(ImageSlice *slice)
{
    slice->keys = slice->own_keys;
    slice->first = slice->own_keys[0];
    if (slice->own_keys[slice->n - 1] - slice->own_keys[0] == slice->n - 1)
        slice->keys = NULL;
}

/* Of all rows that stay, n that follow one another, from the number `at` on: values come to the
 * front of all, and states behind them. */
static void place_rows(ImageSlice *slice, size_t at, const unsigned char *rows, size_t n)
{
    const size_t row_bytes = slice->rows->row_bytes, state_bytes = slice->rows->state_bytes;
    unsigned char *const values = (unsigned char *)slice->own_rows + at * row_bytes;
    unsigned char *const states =
        (unsigned char *)slice->own_rows + slice->n * row_bytes + at * state_bytes;
    unsigned char *const rows_stay = slice->lent_rows + at * row_bytes;

    if (state_bytes == 0) {
        if (rows_stay != rows)
            memmove(rows_stay, rows, n * row_bytes);
        return;
    }
    for (size_t i = 0; i < n; i++, rows += row_bytes + state_bytes) {
        memcpy(values + i * row_bytes, rows, row_bytes);
        memcpy(states + i * state_bytes, rows + row_bytes, state_bytes);
    }
}

/* The keys of 64 rows that stay, from the number `at` of all on; how many these are. */
static size_t place_keys(ImageSlice *slice, size_t at, RubatoKey first, uint64_t valid)
{
    RubatoKey *const keys = slice->own_keys + at;
    size_t n_keys = 0;

    for (unsigned bit = 0, n; (n = next_run(valid, &bit)) > 0; bit += n)
        for (unsigned i = 0; i < n; i++)
            keys[n_keys++] = first + bit + i;
    return n_keys;
}

/* Among 64 lent rows, those that stay are all of them, or some runs. */
static void sort_out(ImageSlice *slice)
{
    const ImageRows *const all = slice->rows;
    const size_t stride = all->row_bytes + all->state_bytes;
    const unsigned char *rows = slice->lent_rows;
    size_t n_done = 0;

    for (size_t i = 0; i < slice->n_words; i++) {
        const uint64_t lent = slice->lent[i], valid = slice->valid[i];
        const size_t n_lent = (size_t)__builtin_popcountll(lent);
        const size_t n_keys =
            place_keys(slice, n_done, all->first_key + (slice->first_word + i) * 64, valid);

        if (n_keys == n_lent)
            place_rows(slice, n_done, rows, n_lent);
        else
            for (unsigned bit = 0, n, at = (unsigned)n_done; (n = next_run(valid, &bit)) > 0;
                 bit += n, at += n) {
                const uint64_t before = lent & ((UINT64_C(1) << bit) - 1);

                place_rows(slice, at, rows + (size_t)__builtin_popcountll(before) * stride, n);
            }
        rows += n_lent * stride;
        n_done += n_keys;
    }
    slice->values = all->state_bytes > 0 ? slice->own_rows : slice->lent_rows;
    slice->states = slice->own_rows + slice->n * all->row_bytes;
}

/* ---- rows that the owner copies ---- */

static bool make_room(ImageSlice *slice, size_t n)
{
    if (n <= slice->n_room)
        return true;
    g_free(slice->own_keys);
    g_free(slice->own_rows);
    slice->own_keys = g_try_new(RubatoKey, n);
    slice->own_rows = g_try_malloc_n(n, slice->row_bytes + slice->state_bytes);
    slice->n_room = slice->own_keys != NULL && slice->own_rows != NULL ? n : 0;
    return slice->n_room > 0;
}

/* Copies the rows of the slice's own keys, or of its run. */
static void read_rows(RubatoShard *shard, ImageSlice *slice, const RubatoKeys *keys)
{
    const size_t state_bytes = shard->stride - shard->row_bytes;
    RubatoKey block[BLOCK];
    void *rows[BLOCK];
    unsigned char *states;

    slice->n = keys->n;
    if (keys->n == 0) /* there may be no room yet */
        return;
    states = slice->own_rows + keys->n * shard->row_bytes;
    slice->keys = keys->keys;
    slice->first = keys->first;
    slice->values = slice->own_rows;
    slice->states = states;
    for (size_t begin = 0; begin < keys->n; begin += BLOCK) {
        const size_t n = MIN(keys->n - begin, (size_t)BLOCK);

        shard_find(shard, shard_take_block(keys, begin, n, block), n, rows);
        for (size_t i = 0; i < n; i++) {
            const unsigned char *const row = rows[i];

            shard_copy_row(slice->own_rows + (begin + i) * shard->row_bytes, row, shard->row_bytes);
            if (state_bytes > 0)
                memcpy(states + (begin + i) * state_bytes, row + shard->row_bytes, state_bytes);
        }
    }
}

/* The rows from `place` on, up to n_most of them, without those that have changed. */
static bool read_dense(RubatoShard *shard, size_t n_most, ImageSlice *slice)
{
    ShardImage *const image = shard->image;
    const uint64_t n_all = shard->n_keys;
    uint64_t number = image->place;
    RubatoKeys keys = { .keys = slice->own_keys };

    while (number < n_all && keys.n < n_most) {
        const uint64_t left = find_unread(image, number / 64) >> number % 64;

        if (left == 0) { /* up to the next word */
            number = (number / 64 + 1) * 64;
            continue;
        }
        number += (uint64_t)__builtin_ctzll(left);
        if (number < n_all)
            slice->own_keys[keys.n++] = shard->first_key + number;
        number++;
    }
    image->place = MIN(number, n_all);
    if (keys.n > 0 && slice->own_keys[keys.n - 1] - slice->own_keys[0] == keys.n - 1) {
        keys.keys = NULL;
        keys.first = slice->own_keys[0];
    }
    read_rows(shard, slice, &keys);
    return image->place < n_all;
}

bool shard_has_pieces(const RubatoShard *shard)
{
    return shard->is_dense || shard->ops->walk != NULL;
}

bool shard_walk(const RubatoShard *shard, uint64_t *place, GArray *keys)
{
    return shard->ops->walk(shard->storage, place, keys);
}

/* Finds the rows to be read next: whole pieces of the storage, of some thousand rows. Rows that are
 * created later need not be found, because they count as changed. */
static void walk(RubatoShard *shard, size_t n_most)
{
    ShardImage *const image = shard->image;
    uint64_t lowest = UINT64_MAX, highest = 0;

    g_array_set_size(image->found, 0);
    g_array_set_size(image->ahead, 0);
    image->has_walked = !shard_walk(shard, &image->walked, image->found);
    for (guint i = 0; i < image->found->len; i++) {
        const RubatoKey key = g_array_index(image->found, RubatoKey, i);
        const PlacedKey placed = { shard->ops->place_of(shard->storage, key), key };

        g_array_append_val(image->ahead, placed);
        lowest = MIN(lowest, placed.place);
        highest = MAX(highest, placed.place);
    }
    image->n_ranges = (image->found->len + n_most - 1) / n_most;
    image->range = 0;
    image->range_first = lowest;
    image->range_width = image->n_ranges > 0 ? (highest - lowest) / image->n_ranges : 0;
}

/* The end of the present range of places. A slice has the rows of a range, about as many as its
 * share, because keys are hashed; sorting them by their places would take longer than all the rest.
 * Rows of another distribution make larger slices, but none is larger than what was found. */
static uint64_t find_range_end(const ShardImage *image)
{
    return image->range + 1 >= image->n_ranges
               ? image->walked
               : image->range_first + (image->range + 1) * image->range_width;
}

/* Those of the rows that were found whose places are below `end`, and which are to be read: writes
 * their keys, and forgets them. Their number. */
static size_t take_range(const ShardImage *image, uint64_t end, RubatoKey *keys)
{
    PlacedKey *const ahead = (PlacedKey *)(void *)image->ahead->data;
    guint n_left = 0;
    size_t n = 0;

    for (guint i = 0; i < image->ahead->len; i++) {
        const PlacedKey placed = ahead[i];

        if (placed.place >= end)
            ahead[n_left++] = placed;
        else if (image_covers(image, placed.key) && !key_set_has(&image->keys, placed.key))
            keys[n++] = placed.key;
    }
    g_array_set_size(image->ahead, n_left);
    return n;
}

static size_t count_below(const ShardImage *image, uint64_t end)
{
    size_t n = 0;

    for (guint i = 0; i < image->ahead->len; i++)
        n += g_array_index(image->ahead, PlacedKey, i).place < end;
    return n;
}

/* The same for other storages. */
static bool read_walked(RubatoShard *shard, size_t n_most, ImageSlice *slice)
{
    ShardImage *const image = shard->image;
    RubatoKeys keys = { .n = 0 };
    uint64_t end;

    if (image->range == image->n_ranges && image->has_walked)
        return false;
    if (image->range == image->n_ranges)
        walk(shard, n_most);
    end = find_range_end(image);
    if (!make_room(slice, count_below(image, end))) {
        image->loss = IMAGE_NO_MEMORY;
        return false;
    }
    keys.n = take_range(image, end, slice->own_keys);
    keys.keys = slice->own_keys;
    image->place = end;
    image->range += image->range < image->n_ranges; /* a piece without rows has no range */
    read_rows(shard, slice, &keys);
    return image->range < image->n_ranges || !image->has_walked;
}

/* ---- slices ---- */

/* The rows of a range in a storage that does not hold them one after the other. */
static bool read_apart(RubatoShard *shard, size_t n_most, ImageSlice *slice)
{
    if (make_room(slice, n_most))
        return read_dense(shard, n_most, slice);
    shard->image->loss = IMAGE_NO_MEMORY;
    return false;
}

/* False: all rows have been read, or copied. */
static bool read_next(RubatoShard *shard, size_t n_most, ImageSlice *slice)
{
    return shard->rows != NULL ? lend(shard, n_most, slice)
           : shard->is_dense   ? read_apart(shard, n_most, slice)
                               : read_walked(shard, n_most, slice);
}

static bool has_rows_left(const RubatoShard *shard)
{
    const ShardImage *const image = shard->image;

    return shard->is_dense ? image->place < shard->n_keys
                           : image->range < image->n_ranges || !image->has_walked;
}

/* A row that has been read needs no copy later, so rows come before copies as long as these leave
 * half of their memory free. If rows are lent: others are read by the owner, and while it does so
 * it is better that memory becomes free. */
static bool has_time(const ShardImage *image)
{
    return image->rows != NULL && image->spill != NULL && spill_file_has_half(image->spill);
}

bool shard_read_image(RubatoShard *shard, size_t n_most, ImageSlice *slice)
{
    ShardImage *const image = shard->image;
    const bool was_lent = slice->state == SLICE_LENT;

    give_back(slice);
    slice->n = 0;
    slice->at_end = false;
    slice->state = SLICE_HAS_ROWS;
    slice->spill = image->spill;
    slice->row_bytes = shard->row_bytes;
    slice->state_bytes = shard->stride - shard->row_bytes;
    if (image->loss != NULL)
        return false;
    if (was_lent)
        settle(image, slice);
    else if (has_time(image) && read_next(shard, n_most, slice))
        ; /* rows, or none of these need be read */
    else if (image->first != NULL)
        take_copies(image, slice);
    else if (image->spilled->len > 0)
        take_spilled(image, slice);
    else
        slice->at_end = !read_next(shard, n_most, slice) && slice->n == 0;
    slice->has_rows_left = has_rows_left(shard);
    return image->loss == NULL;
}

bool image_slice_fetch(ImageSlice *slice)
{
    g_clear_pointer(&slice->fetched, g_free);
    switch (slice->state) {
    case SLICE_SPILLED:
        return fetch_spilled(slice);
    case SLICE_LENT:
        read_lent(slice);
        break;
    case SLICE_SETTLED:
        if (slice->n == 0)
            break;
        if (!make_room(slice, slice->n_lent_room))
            return false;
        sort_out(slice);
        find_first(slice);
        break;
    case SLICE_HAS_ROWS:
        break;
    }
    return true;
}

const char *shard_image_loss(const RubatoShard *shard)
{
    return shard->image->loss;
}

void image_slice_clear(ImageSlice *slice)
{
    give_back(slice);
    forget_rows(slice);
    g_clear_pointer(&slice->fetched, g_free);
    g_clear_pointer(&slice->own_keys, g_free);
    g_clear_pointer(&slice->own_rows, g_free);
    g_clear_pointer(&slice->lent, g_free);
    g_clear_pointer(&slice->valid, g_free);
    g_clear_pointer(&slice->lent_rows, g_free);
}
