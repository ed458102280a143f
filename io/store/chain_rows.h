/* The rows of a part that lies in several snapshots: one with all rows, and those with changes that
 * build on it.
 *
 * The files are read from the newest on. A row is taken where its key comes first: not if a newer
 * file covers the key. So each row comes once, as it was at the newest snapshot, and one that was
 * gone then does not come.
 *
 * Threads: one at a time. */
#ifndef RUBATO_IO_STORE_CHAIN_ROWS_H
#define RUBATO_IO_STORE_CHAIN_ROWS_H

#include "io/store/part_rows.h"

typedef struct {
    /* immutable */
    const PartTaker *taker; /* the caller's */
    PartShape shape;

    GArray *covers; /* of KeyCover: of the files that were read; one for all with the same bits */
    uint64_t n_rows;

    /* rows that are taken out of some */
    GArray *keys;
    GByteArray *values, *states;
    GArray *lengths;
} ChainRows;

void chain_rows_init(ChainRows *chain, const PartShape *shape, const PartTaker *taker);
void chain_rows_clear(ChainRows *chain);

/* Reads the next older file of the part; has_cover: it holds changes. What has come from it is not
 * yet all of the part then. */
bool chain_rows_read(ChainRows *chain, const PartFile *file, bool has_cover, GError **error);

#endif
