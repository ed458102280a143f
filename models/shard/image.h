/* The image of a shard: its rows as they were when it began, read in slices while requests go on.
 *
 * Beginning takes no time: nothing is copied. From then on a row is copied before it changes for
 * the first time, unless it has been read. So each row of the image is read once: from its copy or,
 * if it has not changed, from where it lies.
 *
 * Threads: the shard's present owner; an ImageSlice belongs to one thread at a time, and may be
 * used between two calls by another one. image_slice_fetch, image_slice_clear and shard_image_free:
 * any but the shard's owner, for they may take long. */
#ifndef RUBATO_MODELS_SHARD_IMAGE_H
#define RUBATO_MODELS_SHARD_IMAGE_H

#include "io/store/key_cover.h"
#include "io/store/spill_file.h"
#include "models/shard/shard.h"

/* Why such a table has no image; NULL: it has one. */
const char *shard_image_fault(const RubatoTableSpec *spec);

/* Begins an image. The table can have one, and the shard has none. Of a table that does not admit
 * all keys, what the shard answers from is copied, which takes as long as copying admit_bytes of a
 * part. False: there is no memory.
 * cover: the image has the rows of these keys alone, and the set stays as it is until the image
 * ends; NULL: it has all rows. (transfer none)
 * spill: bounds the memory of copies, of all images that share it, beside one block of an image's
 * own; copies beyond that go to its file. NULL: there is no bound. (transfer none) */
bool shard_begin_image(RubatoShard *shard, const KeyCover *cover, SpillFile *spill);

/* What images take of the spill file, which may have it ready: blocks of so many bytes for copies,
 * but for rows that are larger, and zeros for a dense part of so many keys. Any thread. */
size_t image_block_bytes(const SpillFile *spill);
size_t image_bits_bytes(uint64_t n_keys);

/* Ends it, and frees it. Does nothing if there is none. */
void shard_end_image(RubatoShard *shard);

/* Ends it, without what takes long: for shard_image_free. NULL: there is none. (transfer full) */
typedef struct ShardImage ShardImage;
ShardImage *shard_take_image(RubatoShard *shard);
void shard_image_free(ShardImage *image); /* NULL is allowed */

/* Whether its rows can be listed piece by piece: they are a range, or its storage has a walk
 * (include/rubato/storage_ops.h), which is the second function. */
bool shard_has_pieces(const RubatoShard *shard);
bool shard_walk(const RubatoShard *shard, uint64_t *place, GArray *keys);

bool shard_has_image(const RubatoShard *shard);

/* Bytes of the copies in memory that wait to be read. */
size_t shard_image_bytes(const RubatoShard *shard);

/* How many times requests have changed rows since it began, whether that made copies or not. */
uint64_t shard_image_n_changes(const RubatoShard *shard);

/* Whether a hyper-parameter had another number than the spec says, and which. */
bool shard_image_tuned(const RubatoShard *shard, RubatoHyper hyper, double *value);

/* As shard_get_admission. */
void shard_image_admission(const RubatoShard *shard, size_t first, size_t n, uint64_t *words);

typedef struct ImageCopies ImageCopies;
typedef struct ImageRows ImageRows;

/* What image_slice_fetch has to do. */
typedef enum {
    SLICE_HAS_ROWS, /* nothing */
    SLICE_SPILLED,  /* copies are in a file */
    SLICE_LENT,     /* to read rows where they lie; the next call says which of them are valid */
    SLICE_SETTLED,  /* to sort out those that are not */
} SliceState;

/* Some rows of an image. All zero at first. */
typedef struct {
    const RubatoKey *keys; /* n; NULL: they follow one another from `first` on */
    RubatoKey first;
    size_t n;           /* may be 0 before the end */
    bool at_end;        /* all rows have been read; n is 0 */
    bool has_rows_left; /* not all have been read or copied: changes cost more until then */
    const void *values; /* rows one after the other */
    const void *states; /* the same; the rows of a table without state have 0 bytes of it */
    SliceState state;

    /* what these lie in */
    ImageCopies *copies; /* a block of its spill file, or of no spill file */
    size_t copies_bytes;
    bool copies_are_counted;
    SpillFile *spill; /* of the image */
    unsigned char *fetched;
    RubatoKey *own_keys;
    unsigned char *own_rows;
    size_t n_room; /* rows for which there is room in these two */

    uint64_t offset; /* in the file */
    size_t row_bytes, state_bytes;

    /* rows that are lent: bits of dense rows by number, of words from first_word on */
    ImageRows *rows;
    uint64_t first_word, end;
    size_t n_words;
    uint64_t *lent;  /* those that are read */
    uint64_t *valid; /* those that have not changed before all had been read */
    unsigned char *lent_rows;
    size_t n_lent_room; /* rows for which there is room */
    size_t n_lent_most; /* set by who has it, if there are to be more than of others; or 0 */
} ImageSlice;

/* Goes on to the next rows, about n_most of them, as far as that takes no time: image_slice_fetch
 * has to follow. The slice may then be empty, and not the last. False: the image is lost, for
 * shard_image_loss. */
bool shard_read_image(RubatoShard *shard, size_t n_most, ImageSlice *slice);

/* Does the rest, for the shard's requests need not wait for it: reads rows where they lie, or
 * copies from a file. Another thread than the shard's owner does it. False: they cannot be read, or
 * there is no memory. */
bool image_slice_fetch(ImageSlice *slice);

/* Why the image is lost. */
const char *shard_image_loss(const RubatoShard *shard);
void image_slice_clear(ImageSlice *slice);

#endif
