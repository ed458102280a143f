/* Images of shards.
 *
 * DESIGN NOTE
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
 * Copies are read first where they take much of their memory. Beyond a bound of memory, full blocks
 * of them go to a file.
 *
 * Lent rows. Rows of dense storage never move, so the shard's owner need not copy them: it lends
 * the rows of the next slice, and another thread reads them while requests go on. Requests copy a
 * lent row before they change it, as any that has not been read. When the reader has all rows, it
 * asks the owner, which tells those that have changed since: what was read of them may be anything,
 * and the reader drops it. Their copies come with the others. With that, `place` is behind the lent
 * rows. So the owner's work for a slice is some words of bits, and each row is read once.
 *
 * Why a row that stays is as it was. Suppose that a request changes it, and the reader might have
 * seen that. If the request came before the owner told, it had set the row's bit, so the row is
 * dropped. Otherwise it came later: the reader's last load came before it asked the owner (a
 * release and an acquire: of the token, or of the message by which it asked), and the owner's
 * answer before the request, so the reader saw nothing of it.
 *
 * Thread: the shard's present owner. */
#include "models/shard/image.h"

#include <stdlib.h>

#include "io/huge_pages.h"
#include "models/shard/image_inside.h"
#include "models/spec.h"
#include "models/storage/storage.h"

/* So many bytes of copies are read at a time, and no more than this share of their bound. */
#define COPIES_SHARE 16
#define COPIES_BYTES ((size_t)256 << 10)

/* Keys lie behind the head of a block, and then values. A block that is aligned to cache lines has
 * both aligned. */
#define COPIES_HEAD ((size_t)64)
#define COPIES_ROUND ((size_t)8)

G_STATIC_ASSERT(sizeof(ImageCopies) <= COPIES_HEAD);

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

size_t image_block_bytes(const SpillFile *spill)
{
    const uint64_t most = spill != NULL ? spill_file_most_bytes(spill) : UINT64_MAX;

    return (size_t)MIN(most / COPIES_SHARE, COPIES_BYTES);
}

/* How large blocks are: all alike, but for rows that do not fit one. */
static void size_blocks(const RubatoShard *shard, ShardImage *image)
{
    const size_t row_bytes = shard->stride + sizeof(RubatoKey);
    const size_t most_bytes = image_block_bytes(image->spill);

    image->n_copies = most_bytes > COPIES_HEAD ? MAX(1, (most_bytes - COPIES_HEAD) / row_bytes) : 1;
    if (image->n_copies >= COPIES_ROUND)
        image->n_copies -= image->n_copies % COPIES_ROUND;
    image->copies_bytes = MAX(COPIES_HEAD + image->n_copies * row_bytes, most_bytes);
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

/* Pages that the kernel fills with zeros when they are used first: taking them, however many, takes
 * no time. */
static uint64_t *make_bits(SpillFile *spill, size_t n_words)
{
    const size_t n_bytes = n_words * sizeof(uint64_t);
    void *const bits = spill != NULL ? spill_file_take_zeros(spill, n_bytes) : NULL;

    return bits != NULL ? bits : huge_pages_take(n_bytes);
}

size_t image_bits_bytes(uint64_t n_keys)
{
    return (size_t)(n_keys / 64 + 1) * sizeof(uint64_t);
}

static ImageRows *make_rows(const RubatoShard *shard)
{
    ImageRows *const rows = g_new0(ImageRows, 1);

    atomic_init(&rows->n_users, 1);
    pthread_mutex_init(&rows->lock, NULL);
    rows->rows = shard->rows;
    rows->first_key = shard->first_key;
    rows->row_bytes = shard->row_bytes;
    rows->state_bytes = shard->stride - shard->row_bytes;
    return rows;
}

void image_rows_unref(ImageRows *rows)
{
    /* acq_rel: what the other user did with it comes before it is freed */
    if (rows == NULL || atomic_fetch_sub_explicit(&rows->n_users, 1, memory_order_acq_rel) > 1)
        return;
    pthread_mutex_destroy(&rows->lock);
    g_free(rows);
}

bool shard_begin_image(RubatoShard *shard, const KeyCover *cover, SpillFile *spill)
{
    ShardImage *image = g_new0(ShardImage, 1);

    assert(shard->image == NULL && shard_image_fault(shard->spec) == NULL);
    image->after = &image->first;
    image->cover = cover;
    image->spill = spill;
    size_blocks(shard, image);
    for (uint32_t i = 0; i < N_HYPERS; i++)
        image->is_tuned[i] = shard_tuned(shard, (RubatoHyper)i, &image->tuned[i]);
    if (!copy_admission(shard, image)) {
        g_free(image);
        return false;
    }
    if (shard->is_dense) {
        image->n_words = image_bits_bytes(shard->n_keys) / sizeof(uint64_t);
        image->changed = make_bits(spill, image->n_words);
        if (image->changed == NULL) {
            g_free(image->admission);
            g_free(image);
            return false;
        }
        if (shard->rows != NULL)
            image->rows = make_rows(shard);
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

/* The memory of a block goes back to where it came from. */
static void free_block(const ShardImage *image, ImageCopies *copies)
{
    if (copies->is_counted)
        spill_file_give_back(image->spill, copies, image->copies_bytes);
    else
        g_free(copies);
}

static void free_copies(ShardImage *image)
{
    for (ImageCopies *copies = image->first, *next; copies != NULL; copies = next) {
        next = copies->next;
        free_block(image, copies);
    }
    image->n_bytes = 0;
    image->first = image->last = NULL;
    image->after = &image->first;
}

ShardImage *shard_take_image(RubatoShard *shard)
{
    ShardImage *const image = shard->image;

    if (image == NULL)
        return NULL;
    shard->image = NULL;
    shard_set_watched(shard);
    if (image->rows == NULL)
        return image;
    pthread_mutex_lock(&image->rows->lock);
    image->rows->rows = NULL;
    pthread_mutex_unlock(&image->rows->lock);
    return image;
}

void shard_image_free(ShardImage *image)
{
    if (image == NULL)
        return;
    free_copies(image);
    image_rows_unref(image->rows);
    g_array_unref(image->spilled);
    huge_pages_free(image->changed, image->n_words * sizeof(uint64_t));
    g_free(image->admission);
    if (image->found != NULL) {
        key_set_clear(&image->keys);
        g_array_unref(image->found);
        g_array_unref(image->ahead);
    }
    g_free(image);
}

void shard_end_image(RubatoShard *shard)
{
    shard_image_free(shard_take_image(shard));
}

bool shard_has_image(const RubatoShard *shard)
{
    return shard->image != NULL;
}

size_t shard_image_bytes(const RubatoShard *shard)
{
    return shard->image->n_bytes;
}

uint64_t shard_image_n_changes(const RubatoShard *shard)
{
    return shard->image->n_changes;
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
    free_copies(shard->image);
    return NULL;
}

/* The block for the next copy; NULL: the image is lost (ShardImage.loss). */
static ImageCopies *find_room(const RubatoShard *shard)
{
    ShardImage *const image = shard->image;
    ImageCopies *copies = image->last;
    bool is_counted;
    void *block = NULL;

    if (copies != NULL && copies->n < image->n_copies)
        return copies;
    is_counted = image->spill != NULL && spill_file_take(image->spill, image->copies_bytes, &block);
    if (copies != NULL && image->spill != NULL && !is_counted) {
        if (spill_block(shard, copies))
            return copies;
        return lose(shard,
                    "copies of rows that changed meanwhile could not be written to the disk");
    }
    if (!is_counted)
        block = g_try_malloc(image->copies_bytes);
    copies = block;
    if (copies == NULL)
        return lose(shard, IMAGE_NO_MEMORY);
    copies->next = NULL;
    copies->n = 0;
    copies->is_counted = is_counted;
    copies->keys = (RubatoKey *)(void *)((unsigned char *)copies + COPIES_HEAD);
    copies->values = (unsigned char *)(copies->keys + image->n_copies);
    copies->states = copies->values + image->n_copies * shard->row_bytes;
    *image->after = image->last = copies;
    image->after = &copies->next;
    image->n_bytes += image->copies_bytes;
    return copies;
}

ImageCopies *image_take_copies(ShardImage *image)
{
    ImageCopies *const copies = image->first;

    image->first = copies->next;
    if (image->first == NULL) {
        image->after = &image->first;
        image->last = NULL;
    }
    image->n_bytes -= image->copies_bytes;
    return copies;
}

/* Called with a constant size for widths that are usual. */
static inline __attribute__((always_inline)) void copy_rows(ImageCopies *copies,
                                                            const RubatoKey *keys,
                                                            void *const *rows, size_t n,
                                                            size_t row_bytes, size_t state_bytes)
{
    unsigned char *const values = copies->values + copies->n * row_bytes;
    unsigned char *const states = copies->states + copies->n * state_bytes;

    for (size_t i = 0; i < n; i++) {
        copies->keys[copies->n + i] = keys[i];
        memcpy(values + i * row_bytes, rows[i], row_bytes);
        if (state_bytes > 0)
            memcpy(states + i * state_bytes, (unsigned char *)rows[i] + row_bytes, state_bytes);
    }
}

/* Copies rows, none of which is NULL. */
static void copy_all(const RubatoShard *shard, const RubatoKey *keys, void *const *rows, size_t n)
{
    const size_t row_bytes = shard->row_bytes, state_bytes = shard->stride - row_bytes;

    for (size_t done = 0; done < n;) {
        ImageCopies *const copies = find_room(shard);

        if (copies == NULL)
            return;

        const size_t some = MIN(n - done, shard->image->n_copies - copies->n);

        if (row_bytes == 4)
            copy_rows(copies, keys + done, rows + done, some, 4, state_bytes);
        else if (row_bytes == 64)
            copy_rows(copies, keys + done, rows + done, some, 64, state_bytes);
        else
            copy_rows(copies, keys + done, rows + done, some, row_bytes, state_bytes);
        copies->n += some;
        done += some;
    }
}

/* Of the keys of a block, those whose rows have not changed, and have not been read; their number.
 * Without branches, because random keys make them unpredictable. It stores no bits, although a key
 * may come twice: a store of a word for each key takes longer, and after a while most have changed.
 * Nor does it load those of rows that have been read, for most loads are misses of a cache. */
static size_t find_due(const RubatoShard *shard, const RubatoKeys *keys, size_t begin, size_t n,
                       RubatoKey *due)
{
    const uint64_t *const changed = shard->image->changed;
    const uint64_t place = shard->image->place, first_key = shard->first_key;
    size_t n_due = 0;

    for (size_t i = begin; i < begin + n; i++) {
        const RubatoKey key = keys_get(keys, i);
        const uint64_t number = key - first_key, left = MAX(number, place);

        due[n_due] = key;
        n_due += (size_t)((uint64_t)(number >= place) & (~changed[left / 64] >> left % 64));
    }
    return n_due;
}

/* The same, each once and without those that the image does not cover: their rows are to be
 * copied, and have changed from now on. */
static size_t choose_dense(const RubatoShard *shard, const RubatoKeys *keys, size_t begin, size_t n,
                           RubatoKey *chosen)
{
    ShardImage *const image = shard->image;
    const size_t n_due = find_due(shard, keys, begin, n, chosen);
    size_t n_chosen = 0;

    for (size_t i = 0; i < n_due; i++) {
        const RubatoKey key = chosen[i];
        const uint64_t number = key - shard->first_key;
        uint64_t *const word = &image->changed[number / 64];
        const uint64_t is_due = (~*word >> number % 64) & 1 & (uint64_t)image_covers(image, key);

        *word |= is_due << number % 64;
        chosen[n_chosen] = key;
        n_chosen += is_due;
    }
    return n_chosen;
}

static void save_dense(RubatoShard *shard, const RubatoKeys *keys)
{
    RubatoKey chosen[BLOCK];
    void *rows[BLOCK];

    if (shard->image->place == shard->n_keys) /* until the disk has taken all of it */
        return;
    for (size_t begin = 0; begin < keys->n && shard->image->loss == NULL; begin += BLOCK) {
        const size_t n =
            choose_dense(shard, keys, begin, MIN(keys->n - begin, (size_t)BLOCK), chosen);

        if (n == 0)
            continue;
        shard_find(shard, chosen, n, rows);
        copy_all(shard, chosen, rows, n);
    }
}

/* The same for other storages. */
static size_t choose_keys(RubatoShard *shard, const RubatoKeys *keys, size_t begin, size_t n,
                          RubatoKey *chosen)
{
    ShardImage *const image = shard->image;
    size_t n_chosen = 0;

    for (size_t i = begin; i < begin + n; i++) {
        const RubatoKey key = keys_get(keys, i);

        if (!image_covers(image, key) || shard->ops->place_of(shard->storage, key) < image->place)
            continue;
        switch (key_set_add(&image->keys, key)) {
        case KEY_SET_ADDED:
            chosen[n_chosen++] = key;
            break;
        case KEY_SET_NO_MEMORY:
            image->loss = IMAGE_NO_MEMORY;
            return 0;
        case KEY_SET_HAD:
            break;
        }
    }
    return n_chosen;
}

/* Those that are there. */
static size_t keep_found(RubatoKey *keys, void **rows, size_t n)
{
    size_t n_found = 0;

    for (size_t i = 0; i < n; i++) {
        if (rows[i] == NULL)
            continue;
        keys[n_found] = keys[i];
        rows[n_found++] = rows[i];
    }
    return n_found;
}

static void save_found(RubatoShard *shard, const RubatoKeys *keys)
{
    RubatoKey chosen[BLOCK];
    void *rows[BLOCK];

    for (size_t begin = 0; begin < keys->n && shard->image->loss == NULL; begin += BLOCK) {
        const size_t n =
            choose_keys(shard, keys, begin, MIN(keys->n - begin, (size_t)BLOCK), chosen);

        shard->ops->find(shard->storage, chosen, n, rows);
        copy_all(shard, chosen, rows, keep_found(chosen, rows, n));
    }
}

void shard_save(RubatoShard *shard, const RubatoKeys *keys)
{
    shard->image->n_changes++;
    if (shard->image->loss != NULL)
        return;
    if (shard->is_dense)
        save_dense(shard, keys);
    else
        save_found(shard, keys);
}
