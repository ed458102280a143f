/* Segments in which a key has two homes: it lies in one of two buckets that its hash chooses, and
 * nowhere else. A new key goes to the bucket with fewer keys (Azar, Broder, Karlin, Upfal,
 * "Balanced allocations", STOC 1994). If both are full, one of their keys may move to its other
 * home (Pagh, Rodler, "Cuckoo hashing", ESA 2001; here a single step). So a segment can be full to
 * the last slot, a search looks at two buckets however full it is, and a key can be removed, or
 * give its cell to another, without a change elsewhere.
 *
 * Copied to a segment of another size or depth, keys find room: each stays in its bucket, or goes
 * to the one of the same lower bits. So what was in one bucket does not meet other keys.
 *
 * Threads: the owner of the segment. */
#ifndef RUBATO_MODELS_STORAGE_HASH_PAIRED_H
#define RUBATO_MODELS_STORAGE_HASH_PAIRED_H

#include "models/storage/hash/segment.h"

#define PAIRED_MAX_CELLS 12u /* of two buckets */

/* The cell of a key; NULL if it is absent. */
unsigned char *paired_find(BucketLayout layout, const Segment *segment, uint64_t hash,
                           RubatoKey key);

/* Gives an absent key a cell; NULL if both homes are full. */
unsigned char *paired_insert(BucketLayout layout, const Segment *segment, uint64_t hash,
                             RubatoKey key);

/* Makes room in a home of a key by moving one of the keys there. False: none can move. */
bool paired_make_room(const SegmentSource *source, const Segment *segment, uint64_t hash);

/* Gives a key that lies in a bucket of `from` its cell in a copy of the segment. */
unsigned char *paired_insert_copy(BucketLayout layout, const Segment *from,
                                  const unsigned char *bucket, const Segment *to, uint64_t hash,
                                  RubatoKey key);

/* Gives `to` the keys of another segment of the same size, and their cells. False: one of them
 * found no room, and `to` has the keys that it had. */
bool paired_absorb(const SegmentSource *source, const Segment *to, const Segment *from);

/* The cells of the keys in the homes of a hash. Returns how many. */
size_t paired_cells(BucketLayout layout, const Segment *segment, uint64_t hash,
                    unsigned char *cells[PAIRED_MAX_CELLS]);

/* The key of a cell. */
RubatoKey paired_key(BucketLayout layout, const Segment *segment, const unsigned char *cell);

/* Gives a cell to another key of the same home. */
void paired_rename(BucketLayout layout, const Segment *segment, const unsigned char *cell,
                   RubatoKey key);

/* Removes the key of a cell. Another key of its bucket may move. */
void paired_erase(BucketLayout layout, const Segment *segment, unsigned char *cell);

#endif
