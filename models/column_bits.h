/* The random bits of a value: they follow from those of its row and from its column.
 *
 * Threads: any. */
#ifndef RUBATO_MODELS_COLUMN_BITS_H
#define RUBATO_MODELS_COLUMN_BITS_H

#include <rubato/mix.h>

static inline uint64_t column_bits(uint64_t row, uint64_t column)
{
    return rubato_mix64(row + (column + 1) * UINT64_C(0x9e3779b97f4a7c15));
}

#endif
