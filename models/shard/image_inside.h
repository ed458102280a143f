/* The inside of an image: what image.c, image_copies.c and image_read.c share.
 *
 * Threads: the shard's present owner; ImageRows says who else. */
#ifndef RUBATO_MODELS_SHARD_IMAGE_INSIDE_H
#define RUBATO_MODELS_SHARD_IMAGE_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>

#include "models/shard/image.h"
#include "models/shard/key_set.h"
#include "models/shard/shard_private.h"
#include "models/update/rule.h"

#define IMAGE_NO_MEMORY "there was no memory for copies of rows that changed meanwhile"

/* Copies of rows that were about to change. One block holds all of it. */
struct ImageCopies {
    ImageCopies *next;
    size_t n;
    bool is_counted;       /* by the spill file's bound */
    RubatoKey *keys;       /* room for n_copies */
    unsigned char *values; /* likewise */
    unsigned char *states;
};

/* Where rows lie that another thread reads. The image has it, and the slice that reads. */
struct ImageRows {
    _Atomic uint32_t n_users;

    /* The reader holds it while it copies a slice, which waits for nothing. So the end of the image
     * waits no longer than that, and the rows stay as long. */
    pthread_mutex_t lock;
    const unsigned char *rows; /* guarded by lock; NULL: the image has ended */

    /* immutable */
    RubatoKey first_key;
    size_t row_bytes, state_bytes;
};

typedef struct {
    uint64_t place;
    RubatoKey key;
} PlacedKey;

struct ShardImage {
    const char *loss;      /* why it cannot be read to its end; NULL: it can */
    uint64_t place;        /* rows at lower places have been read */
    const KeyCover *cover; /* not NULL: rows of other keys are not read */
    uint64_t n_changes;    /* how many times requests have changed rows since it began */

    uint64_t *changed; /* dense storage: a bit for each row */
    size_t n_words;    /* of these; at least 1 */
    ImageRows *rows;   /* dense storage whose rows follow one another; else NULL */
    KeySet keys;       /* other storages: of the rows that have changed */

    /* Other storages: the rows that are read next, those up to `walked`, by ranges of places. */
    uint64_t walked;
    bool has_walked; /* all places */
    GArray *found;   /* of RubatoKey: what the storage has told last */
    GArray *ahead;   /* of PlacedKey: of these, those that have not been read, in any order */
    size_t n_ranges; /* of these places; all but the last are equally wide */
    size_t range;    /* the one that is read next */
    uint64_t range_first, range_width;

    size_t n_copies;             /* room for so many rows in a block of copies */
    size_t copies_bytes;         /* such a block */
    ImageCopies *first, **after; /* oldest first */
    ImageCopies *last;           /* NULL: none */
    size_t n_bytes;              /* of these copies */
    SpillFile *spill;            /* NULL: the memory has no bound */
    GArray *spilled;             /* of uint64_t: where full blocks lie in its file */

    bool is_tuned[N_HYPERS];
    double tuned[N_HYPERS];
    uint64_t *admission; /* the words of shard_get_admission; NULL: it admits all keys */
};

static inline bool image_covers(const ShardImage *image, RubatoKey key)
{
    return image->cover == NULL || key_cover_has(image->cover, key);
}

/* The oldest block of copies, of which there is one: the image has it no more. */
ImageCopies *image_take_copies(ShardImage *image);

void image_rows_unref(ImageRows *rows);

#endif
