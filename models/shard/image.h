/* The image of a shard: its rows as they were when it began, read in slices while requests go on.
 *
 * Beginning takes no time: nothing is copied. From then on a row is copied before it changes for
 * the first time, unless it has been read. So each row of the image is read once: from its copy or,
 * if it has not changed, from where it lies.
 *
 * Threads: the shard's present owner; an ImageSlice belongs to one thread at a time, and may be
 * used between two calls by another one. */
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

/* Frees it. Does nothing if there is none. */
void shard_end_image(RubatoShard *shard);

bool shard_has_image(const RubatoShard *shard);

/* Bytes of the copies in memory that wait to be read. */
size_t shard_image_bytes(const RubatoShard *shard);

/* Whether a hyper-parameter had another number than the spec says, and which. */
bool shard_image_tuned(const RubatoShard *shard, RubatoHyper hyper, double *value);

/* As shard_get_admission. */
void shard_image_admission(const RubatoShard *shard, size_t first, size_t n, uint64_t *words);

typedef struct ImageCopies ImageCopies;

/* Some rows of an image. All zero at first. */
typedef struct {
    const RubatoKey *keys; /* n; NULL: they follow one another from `first` on */
    RubatoKey first;
    size_t n;           /* with a cover it may be 0 */
    bool at_end;        /* all rows have been read; n is 0 */
    const void *values; /* rows one after the other */
    const void *states; /* the same; the rows of a table without state have 0 bytes of it */

    /* what these lie in */
    ImageCopies *copies;
    RubatoKey *own_keys;
    unsigned char *own_rows;
    size_t n_room; /* rows for which there is room in the two */

    SpillFile *spill; /* not NULL: copies that image_slice_fetch has to read */
    uint64_t offset;
    size_t row_bytes, state_bytes;
} ImageSlice;

/* Reads the next rows, about n_most of them. False: the image is lost, for shard_image_loss. */
bool shard_read_image(RubatoShard *shard, size_t n_most, ImageSlice *slice);

/* Then fetches those that lie in a file. It waits for the disk, so another thread than the shard's
 * owner does it. False: they cannot be read, or there is no memory. */
bool image_slice_fetch(ImageSlice *slice);

/* Why the image is lost. */
const char *shard_image_loss(const RubatoShard *shard);
void image_slice_clear(ImageSlice *slice);

#endif
