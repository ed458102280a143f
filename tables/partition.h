/* Which part holds a key of a table; and cutting a call's keys into one slice for each part.
 *
 * Threads: a Partition is immutable after it is made, and any thread may read it. A Slicer belongs
 * to one thread. */
#ifndef RUBATO_TABLES_PARTITION_H
#define RUBATO_TABLES_PARTITION_H

#include <rubato/request.h>
#include <rubato/table.h>

typedef struct {
    enum { PARTITION_RANGE, PARTITION_HASH } kind;
    bool dense; /* keys outside first_key .. first_key + n_keys - 1 are errors */
    RubatoKey first_key;
    uint64_t n_keys; /* dense only */
    uint32_t n_parts;
    RubatoKey *bounds; /* range: part i holds bounds[i] .. bounds[i + 1] - 1; the last one's end
                          * is the end of all keys. n_parts entries */
} Partition;

/* The kind of a table's keys, by its storage. */
typedef enum {
    PARTITION_KEYS_ALL,
    PARTITION_KEYS_RANGE, /* first_key and n_keys of the spec */
} PartitionKeys;

/* How the spec, in which all names are given, divides a table into n_parts parts. Even ranges end
 * at multiples of the spec's chunk size. False with RUBATO_ERROR_INVALID if the spec's own bounds
 * do not fit. */
bool partition_init(Partition *partition, const RubatoTableSpec *spec, PartitionKeys keys,
                    uint32_t n_parts, GError **error);
void partition_clear(Partition *partition);

/* The range of a part's keys. For a dense table it is exact; otherwise all keys of the part are in
 * it. */
void partition_range(const Partition *partition, uint32_t part, RubatoKey *first, uint64_t *n);

/* A number that is the same for two partitions if each part has the same keys in both; never 0. */
uint64_t partition_digest(const Partition *partition);

uint32_t partition_part(const Partition *partition, RubatoKey key);

/* One part's slice of a call's keys. */
typedef struct {
    uint32_t part;
    RubatoKeys keys;
    size_t row; /* of a list or run: the row of its first key in the call's values */
} Slice;

/* Memory for cutting the keys of one call at a time; it grows with the largest call. */
typedef struct {
    Slice *slices; /* n_parts entries */
    uint32_t *at;
    uint32_t *parts_of; /* scratch: the part of each key */
    size_t capacity;
    RubatoKey *run; /* scratch: the keys of a run over a hashed table */
} Slicer;

void slicer_init(Slicer *slicer, const Partition *partition);
void slicer_clear(Slicer *slicer);

#define SLICER_NO_MEMORY UINT32_MAX

/* Cuts the n keys into slices; returns how many there are, none of them empty, or SLICER_NO_MEMORY.
 * Sorted keys become lists or runs, others selections. The slices point into `keys` and the slicer,
 * and hold until the next cut. Of a dense table every key must be in the range. */
uint32_t slicer_cut_parts(Slicer *slicer, const Partition *partition, const RubatoKey *keys,
                          size_t n);
static inline uint32_t slicer_cut(Slicer *slicer, const Partition *partition, const RubatoKey *keys,
                                  size_t n)
{
    if (n == 0)
        return 0;
    if (partition->n_parts > 1)
        return slicer_cut_parts(slicer, partition, keys, n);
    slicer->slices[0] = (Slice){ 0, { .keys = keys, .n = n }, 0 };
    return 1;
}

/* The same for the run first .. first + n - 1. */
uint32_t slicer_cut_run(Slicer *slicer, const Partition *partition, RubatoKey first, size_t n);

/* The same for a list, or for a run where keys->keys is NULL. */
static inline uint32_t slicer_cut_keys(Slicer *slicer, const Partition *partition,
                                       const RubatoKeys *keys)
{
    return keys->keys == NULL && keys->n > 0
               ? slicer_cut_run(slicer, partition, keys->first, keys->n)
               : slicer_cut(slicer, partition, keys->keys, keys->n);
}

/* Whether all keys are in a dense table's range; otherwise *wrong is the first that is not. */
bool partition_holds_all(const Partition *partition, const RubatoKey *keys, size_t n,
                         RubatoKey *wrong);
static inline bool partition_holds(const Partition *partition, const RubatoKey *keys, size_t n,
                                   RubatoKey *wrong)
{
    return !partition->dense || (n == 1 && keys[0] - partition->first_key < partition->n_keys) ||
           partition_holds_all(partition, keys, n, wrong);
}
bool partition_holds_run(const Partition *partition, RubatoKey first, size_t n, RubatoKey *wrong);

#endif
