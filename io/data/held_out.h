/* Rows that are set aside to measure on.
 *
 * Threads: any. */
#ifndef RUBATO_IO_DATA_HELD_OUT_H
#define RUBATO_IO_DATA_HELD_OUT_H

#include <rubato/data.h>

#include "io/data/formats/row_block.h"

/* Of the rows from `first` on, which were read from the text at this offset of their file, drops
 * those that a dataset of this spec does not have. */
void held_out_filter(const RubatoDataSpec *spec, uint64_t offset, size_t first, RowBlock *rows);

#endif
