/* What the files of a dataset share; nobody else includes this.
 *
 *   dataset.c         opening, blocks, what all of them hold
 *   dataset_cache.c   the caches of its inputs: looking for them, making them
 *   dataset_find.c    a row, by its label
 *   dataset_load.c    one read whole
 *   dataset_rows.c    one of rows in memory
 *
 * Threads: as dataset.h. */
#ifndef RUBATO_IO_DATA_DATASET_STATE_H
#define RUBATO_IO_DATA_DATASET_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "io/data/cache_file.h"
#include "io/data/dataset.h"

/* An input and what is kept of it. */
typedef struct {
    /* immutable */
    Input *input;
    CacheFile *cache; /* NULL: none */
    bool in_memory;   /* all its blocks are kept: no file is read */

    pthread_mutex_t lock;
    /* guarded by lock */
    GPtrArray *kept;     /* of DataBlock by number, those in memory; NULL between them */
    GByteArray *counted; /* by number, 1: its bad rows have been counted */
} Part;

struct RubatoDataset {
    _Atomic uint32_t n_refs;

    /* immutable */
    RubatoDataSpec *spec;
    RowParser *parser;
    RubatoDataKeys keys; /* what it points to is the parser's */
    Part *parts;
    uint32_t n_parts;
    /* False: every input has a cache, so the parser has not read the heads of the files. */
    bool can_parse;

    _Atomic uint64_t n_kept_bytes;
    _Atomic bool damage_told;
    BadRows bad_rows;
};

/* A dataset of one part, whose blocks are these: of DataBlock, by number. The spec names it by its
 * only path, and what its keys mean by its format. (spec, blocks: transfer full) (transfer full) */
RubatoDataset *dataset_new_in_memory(RubatoDataSpec *spec, GPtrArray *blocks, uint64_t size,
                                     GError **error);

/* The kept block of that number, or NULL. (transfer full) */
DataBlock *dataset_find_kept(Part *part, uint64_t number);

/* Opens the caches that fit their inputs. Returns whether every input has one. */
bool dataset_open_caches(RubatoDataset *dataset);

/* Makes the missing caches. If one cannot be written, this is logged, and there is none. */
bool dataset_make_caches(RubatoDataset *dataset, GError **error);

/* Parses a block from its text; *again: not for the first time. *block is NULL if the input ends
 * before it. (transfer full) */
bool dataset_parse_block(RubatoDataset *dataset, Part *part, uint64_t number, BlockScratch *scratch,
                         DataBlock **block, bool *again, GError **error);

#endif
