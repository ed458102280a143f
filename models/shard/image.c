/* Images of shards.
 *
 * Each row has a place, which never changes: in dense storage its number, else what the storage
 * says (RubatoStorageOps.place_of). Rows are read in the order of their places, up to `place`. Of
 * the rows from there on, some have changed since the image began. These were copied before, and
 * the image knows which they are: `changed` has a bit for each row of dense storage, and `keys` has
 * their keys otherwise. A row that was created later counts as changed, and has no copy.
 *
 * So a row of the image is in one of three states: it has been read where it lies; it has been
 * copied, and the copy is or will be read; or it lies unchanged where it was. A request that
 * changes a row finds in constant time which.
 *
 * Copies are read first, so that their memory is free soon. Beyond a bound of memory, full blocks
 * of them go to a file.
 *
 * Thread: the shard's present owner. */
#include "models/shard/image.h"

#include <stdlib.h>

#include "models/shard/image_private.h"
#include "models/shard/key_set.h"
#include "models/shard/shard_private.h"
#include "models/spec.h"
#include "models/storage/storage.h"
#include "models/update/rule.h"

/* So many bytes of copies are read at a time, and no more than this share of their bound. */
#define COPIES_SHARE 16
#define COPIES_BYTES ((size_t)256 << 10)

static const char NO_MEMORY[] = "there was no memory for copies of rows that changed meanwhile";

/* Copies of rows that were about to change. One block holds all of it. */
struct ImageCopies {
    ImageCopies *next;
    size_t n;
    bool is_reserved;      /* counted by the spill file */
    RubatoKey *keys;       /* room for n_copies */
    unsigned char *values; /* likewise */
    unsigned char *states;
};

typedef struct {
    uint64_t place;
    RubatoKey key;
} PlacedKey;

struct ShardImage {
    const char *loss;      /* why it cannot be read to its end; NULL: it can */
    uint64_t place;        /* rows at lower places have been read */
    const KeyCover *cover; /* not NULL: rows of other keys are not read */

    uint64_t *changed; /* dense storage: a bit for each row */
    KeySet keys;       /* other storages: of the rows that have changed */

    /* Other storages: the rows that are read next, by place: those up to `walked`. */
    uint64_t walked;
    bool has_walked; /* all places */
    GArray *found;   /* of RubatoKey: what the storage has told last */
    GArray *ahead;   /* of PlacedKey */
    size_t n_read;   /* of these */

    size_t n_copies;             /* room for so many rows in a block of copies */
    ImageCopies *first, **after; /* oldest first */
    ImageCopies *last;           /* NULL: none */
    size_t n_bytes;              /* of these copies */
    SpillFile *spill;            /* NULL: the memory has no bound */
    GArray *spilled;             /* of uint64_t: where full blocks lie in its file */

    bool is_tuned[N_HYPERS];
    double tuned[N_HYPERS];
    uint64_t *admission; /* the words of shard_get_admission; NULL: it admits all keys */
};

/* ---- its life ---- */

const char *shard_image_fault(const RubatoTableSpec *spec)
{
    if (spec->shape == RUBATO_SHAPE_RAGGED)
        return "its rows have different lengths";
    if (spec->max_bytes > 0)
        return "its rows are evicted (max_bytes)";
    if (spec_stamp_bytes(spec) > 0)
        return "its rows expire (expire)";
    if (!rubato_table_spec_holds_range(spec) && storage_find(spec_storage_name(spec))->walk == NULL)
        return "its storage cannot be read while rows are created";
    return NULL;
}

static size_t block_bytes(const SpillFile *spill)
{
    const uint64_t most = spill != NULL ? spill_file_most_bytes(spill) : UINT64_MAX;

    return (size_t)MIN(most / COPIES_SHARE, COPIES_BYTES);
}

/* Requests write to the admission's memory as they please, so it is copied at once. False: there is
 * no memory. */
static bool copy_admission(const RubatoShard *shard, ShardImage *image)
{
    const size_t n = shard_n_admission_words(shard);

    if (n == 0)
        return true;
    image->admission = g_try_new(uint64_t, n);
    if (image->admission == NULL)
        return false;
    shard_get_admission(shard, 0, n, image->admission);
    return true;
}

bool shard_begin_image(RubatoShard *shard, const KeyCover *cover, SpillFile *spill)
{
    ShardImage *image = g_new0(ShardImage, 1);
    const size_t n_copies = block_bytes(spill) / (shard->stride + sizeof(RubatoKey));

    assert(shard->image == NULL && shard_image_fault(shard->spec) == NULL);
    image->after = &image->first;
    image->cover = cover;
    image->spill = spill;
    image->n_copies = MAX(1, n_copies);
    for (uint32_t i = 0; i < N_HYPERS; i++)
        image->is_tuned[i] = shard_tuned(shard, (RubatoHyper)i, &image->tuned[i]);
    if (!copy_admission(shard, image)) {
        g_free(image);
        return false;
    }
    if (shard->is_dense) {
        image->changed = g_try_new0(uint64_t, shard->n_keys / 64 + 1);
        if (image->changed == NULL) {
            g_free(image->admission);
            g_free(image);
            return false;
        }
    } else {
        key_set_init(&image->keys, shard->hash_seed);
        image->found = g_array_new(FALSE, FALSE, sizeof(RubatoKey));
        image->ahead = g_array_new(FALSE, FALSE, sizeof(PlacedKey));
    }
    image->spilled = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    shard->image = image;
    shard_set_watched(shard);
    return true;
}

static size_t copies_bytes(const RubatoShard *shard, const ShardImage *image)
{
    return sizeof(ImageCopies) + image->n_copies * (sizeof(RubatoKey) + shard->stride);
}

/* The memory of a block no longer counts. */
static void release(const RubatoShard *shard, ShardImage *image, const ImageCopies *copies)
{
    image->n_bytes -= copies_bytes(shard, image);
    if (copies->is_reserved)
        spill_file_release(image->spill, copies_bytes(shard, image));
}

static void free_copies(const RubatoShard *shard, ShardImage *image)
{
    for (ImageCopies *copies = image->first, *next; copies != NULL; copies = next) {
        next = copies->next;
        release(shard, image, copies);
        g_free(copies);
    }
    image->first = image->last = NULL;
    image->after = &image->first;
}

void shard_end_image(RubatoShard *shard)
{
    ShardImage *const image = shard->image;

    if (image == NULL)
        return;
    shard->image = NULL;
    shard_set_watched(shard);
    free_copies(shard, image);
    g_array_unref(image->spilled);
    g_free(image->changed);
    g_free(image->admission);
    if (image->found != NULL) {
        key_set_clear(&image->keys);
        g_array_unref(image->found);
        g_array_unref(image->ahead);
    }
    g_free(image);
}

bool shard_has_image(const RubatoShard *shard)
{
    return shard->image != NULL;
}

size_t shard_image_bytes(const RubatoShard *shard)
{
    return shard->image->n_bytes;
}

void shard_image_admission(const RubatoShard *shard, size_t first, size_t n, uint64_t *words)
{
    memcpy(words, shard->image->admission + first, n * sizeof *words);
}

bool shard_image_tuned(const RubatoShard *shard, RubatoHyper hyper, double *value)
{
    *value = shard->image->tuned[hyper];
    return shard->image->is_tuned[hyper];
}

/* ---- copies ---- */

/* Writes a full block to the file, and empties it. It is a call to the kernel, which takes what the
 * disk has not written yet as long as it has room; then it makes the caller wait for the disk, and
 * so those that change rows faster than it writes. The wait ends, because a disk takes the bytes or
 * fails. */
static bool spill_block(const RubatoShard *shard, ImageCopies *copies)
{
    ShardImage *const image = shard->image;
    uint64_t offset;

    if (!spill_file_write(image->spill, copies->keys,
                          image->n_copies * (sizeof(RubatoKey) + shard->stride), &offset))
        return false;
    g_array_append_val(image->spilled, offset);
    copies->n = 0;
    return true;
}

/* The image cannot be read any more. */
static ImageCopies *lose(const RubatoShard *shard, const char *why)
{
    shard->image->loss = why;
    free_copies(shard, shard->image);
    return NULL;
}

/* The block for the next copy; NULL: the image is lost (ShardImage.loss). */
static ImageCopies *find_room(const RubatoShard *shard)
{
    ShardImage *const image = shard->image;
    const size_t n_bytes = copies_bytes(shard, image);
    ImageCopies *copies = image->last;
    bool is_reserved;

    if (copies != NULL && copies->n < image->n_copies)
        return copies;
    is_reserved = image->spill != NULL && spill_file_reserve(image->spill, n_bytes);
    if (copies != NULL && image->spill != NULL && !is_reserved) {
        if (spill_block(shard, copies))
            return copies;
        return lose(shard,
                    "copies of rows that changed meanwhile could not be written to the disk");
    }
    copies = g_try_malloc(n_bytes);
    if (copies == NULL) {
        if (is_reserved)
            spill_file_release(image->spill, n_bytes);
        return lose(shard, NO_MEMORY);
    }
    copies->next = NULL;
    copies->n = 0;
    copies->is_reserved = is_reserved;
    copies->keys = (RubatoKey *)(copies + 1);
    copies->values = (unsigned char *)(copies->keys + image->n_copies);
    copies->states = copies->values + image->n_copies * shard->row_bytes;
    *image->after = image->last = copies;
    image->after = &copies->next;
    image->n_bytes += n_bytes;
    return copies;
}

static void copy_row(const RubatoShard *shard, RubatoKey key, const unsigned char *row)
{
    const size_t state_bytes = shard->stride - shard->row_bytes;
    ImageCopies *const copies = find_room(shard);

    if (copies == NULL)
        return;
    copies->keys[copies->n] = key;
    shard_copy_row(copies->values + copies->n * shard->row_bytes, row, shard->row_bytes);
    if (state_bytes > 0)
        memcpy(copies->states + copies->n * state_bytes, row + shard->row_bytes, state_bytes);
    copies->n++;
}

static bool is_covered(const ShardImage *image, RubatoKey key)
{
    return image->cover == NULL || key_cover_has(image->cover, key);
}

static void save_dense(RubatoShard *shard, RubatoKey key)
{
    ShardImage *const image = shard->image;
    const uint64_t number = key - shard->first_key, bit = UINT64_C(1) << number % 64;
    void *row;

    if (number < image->place || (image->changed[number / 64] & bit) != 0 ||
        !is_covered(image, key))
        return;
    image->changed[number / 64] |= bit;
    shard_find(shard, &key, 1, &row);
    copy_row(shard, key, row);
}

/* The keys of a block whose rows are to be copied; their number. */
static size_t choose_keys(RubatoShard *shard, const RubatoKeys *keys, size_t begin, size_t n,
                          RubatoKey *chosen)
{
    ShardImage *const image = shard->image;
    size_t n_chosen = 0;

    for (size_t i = begin; i < begin + n; i++) {
        const RubatoKey key = keys_get(keys, i);

        if (!is_covered(image, key) || shard->ops->place_of(shard->storage, key) < image->place)
            continue;
        switch (key_set_add(&image->keys, key)) {
        case KEY_SET_ADDED:
            chosen[n_chosen++] = key;
            break;
        case KEY_SET_NO_MEMORY:
            image->loss = NO_MEMORY;
            return 0;
        case KEY_SET_HAD:
            break;
        }
    }
    return n_chosen;
}

static void save_found(RubatoShard *shard, const RubatoKeys *keys)
{
    RubatoKey chosen[BLOCK];
    void *rows[BLOCK];

    for (size_t begin = 0; begin < keys->n; begin += BLOCK) {
        const size_t n =
            choose_keys(shard, keys, begin, MIN(keys->n - begin, (size_t)BLOCK), chosen);

        shard->ops->find(shard->storage, chosen, n, rows);
        for (size_t i = 0; i < n; i++)
            if (rows[i] != NULL)
                copy_row(shard, chosen[i], rows[i]);
    }
}

void shard_save(RubatoShard *shard, const RubatoKeys *keys)
{
    if (shard->image->loss != NULL)
        return;
    if (shard->is_dense)
        for (size_t i = 0; i < keys->n && shard->image->loss == NULL; i++)
            save_dense(shard, keys_get(keys, i));
    else
        save_found(shard, keys);
}

/* ---- reading ---- */

static bool make_room(const RubatoShard *shard, ImageSlice *slice, size_t n)
{
    if (n <= slice->n_room)
        return true;
    g_free(slice->own_keys);
    g_free(slice->own_rows);
    slice->own_keys = g_try_new(RubatoKey, n);
    slice->own_rows = g_try_malloc_n(n, shard->stride);
    slice->n_room = slice->own_keys != NULL && slice->own_rows != NULL ? n : 0;
    return slice->n_room > 0;
}

static void take_copies(RubatoShard *shard, ImageSlice *slice)
{
    ShardImage *const image = shard->image;
    ImageCopies *const copies = image->first;

    image->first = copies->next;
    if (image->first == NULL) {
        image->after = &image->first;
        image->last = NULL;
    }
    release(shard, image, copies);
    slice->copies = copies;
    slice->keys = copies->keys;
    slice->n = copies->n;
    slice->values = copies->values;
    slice->states = copies->states;
}

static void take_spilled(const RubatoShard *shard, ImageSlice *slice)
{
    ShardImage *const image = shard->image;

    slice->spill = image->spill;
    slice->offset = g_array_index(image->spilled, uint64_t, image->spilled->len - 1);
    g_array_set_size(image->spilled, image->spilled->len - 1);
    slice->n = image->n_copies;
    slice->row_bytes = shard->row_bytes;
    slice->state_bytes = shard->stride - shard->row_bytes;
}

bool image_slice_fetch(ImageSlice *slice)
{
    const size_t row_bytes = slice->row_bytes + slice->state_bytes;
    const size_t n_bytes = slice->n * (sizeof(RubatoKey) + row_bytes);
    unsigned char *bytes;

    if (slice->spill == NULL)
        return true;
    slice->copies = g_try_malloc(n_bytes); /* bytes that are freed like a block */
    bytes = (unsigned char *)slice->copies;
    if (bytes == NULL || !spill_file_read(slice->spill, slice->offset, bytes, n_bytes))
        return false;
    slice->keys = (const RubatoKey *)(const void *)bytes;
    slice->values = bytes + slice->n * sizeof(RubatoKey);
    slice->states = bytes + slice->n * (sizeof(RubatoKey) + slice->row_bytes);
    return true;
}

const char *shard_image_loss(const RubatoShard *shard)
{
    return shard->image->loss;
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

/* Of 64 rows, those that are to be read. */
static uint64_t find_unread(const ShardImage *image, uint64_t word)
{
    const uint64_t unchanged = ~image->changed[word];

    return image->cover == NULL ? unchanged : unchanged & image->cover->words[word];
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

static int compare_places(const void *a, const void *b)
{
    const PlacedKey *left = a, *right = b;

    return left->place < right->place ? -1 : left->place > right->place;
}

/* Finds the rows to be read next: whole pieces of the storage, of some thousand rows. */
static void walk(RubatoShard *shard)
{
    ShardImage *const image = shard->image;

    g_array_set_size(image->found, 0);
    g_array_set_size(image->ahead, 0);
    image->n_read = 0;
    image->has_walked = !shard->ops->walk(shard->storage, &image->walked, image->found);
    for (guint i = 0; i < image->found->len; i++) {
        const RubatoKey key = g_array_index(image->found, RubatoKey, i);
        const PlacedKey placed = { shard->ops->place_of(shard->storage, key), key };

        g_array_append_val(image->ahead, placed);
    }
    if (image->ahead->len > 0) /* an empty array has no memory */
        qsort(image->ahead->data, image->ahead->len, sizeof(PlacedKey), compare_places);
}

static const PlacedKey *ahead(const ShardImage *image, size_t i)
{
    return &g_array_index(image->ahead, PlacedKey, i);
}

/* The same for other storages. Rows at the same place are read together. */
static bool read_walked(RubatoShard *shard, size_t n_most, ImageSlice *slice)
{
    ShardImage *const image = shard->image;
    RubatoKeys keys = { .n = 0 };
    size_t end;

    if (image->n_read == image->ahead->len && image->has_walked)
        return false;
    if (image->n_read == image->ahead->len)
        walk(shard);
    end = image->n_read + MIN(image->ahead->len - image->n_read, n_most);
    while (end > 0 && end < image->ahead->len &&
           ahead(image, end - 1)->place == ahead(image, end)->place)
        end++;
    if (!make_room(shard, slice, end - image->n_read)) {
        image->loss = NO_MEMORY;
        return false;
    }
    keys.keys = slice->own_keys;
    for (; image->n_read < end; image->n_read++) {
        const RubatoKey key = ahead(image, image->n_read)->key;

        if (is_covered(image, key) && !key_set_has(&image->keys, key))
            slice->own_keys[keys.n++] = key;
    }
    image->place = end < image->ahead->len ? ahead(image, end)->place : image->walked;
    read_rows(shard, slice, &keys);
    return end < image->ahead->len || !image->has_walked;
}

bool shard_read_image(RubatoShard *shard, size_t n_most, ImageSlice *slice)
{
    ShardImage *const image = shard->image;
    bool goes_on = true, is_short = true;

    g_clear_pointer(&slice->copies, g_free);
    slice->n = 0;
    slice->at_end = false;
    slice->spill = NULL;
    if (image->loss == NULL && image->first != NULL) {
        take_copies(shard, slice);
        return true;
    }
    if (image->loss == NULL && image->spilled->len > 0) {
        take_spilled(shard, slice);
        return true;
    }
    if (shard->is_dense && !make_room(shard, slice, n_most))
        image->loss = NO_MEMORY;
    while (image->loss == NULL && slice->n == 0 && goes_on && is_short) {
        goes_on =
            shard->is_dense ? read_dense(shard, n_most, slice) : read_walked(shard, n_most, slice);
        is_short = image->cover == NULL; /* else many pieces may have no row that is read */
    }
    slice->at_end = slice->n == 0 && !goes_on;
    return image->loss == NULL;
}

void image_slice_clear(ImageSlice *slice)
{
    g_clear_pointer(&slice->copies, g_free);
    g_clear_pointer(&slice->own_keys, g_free);
    g_clear_pointer(&slice->own_rows, g_free);
}
