/* Normal deviates that follow from the bits of a row and from the column.
 *
 * Threads: any. */
#ifndef RUBATO_MODELS_NORMAL_H
#define RUBATO_MODELS_NORMAL_H

#include <stddef.h>
#include <stdint.h>

/* The largest deviate's size is below this: they are made from 53 bits. */
#define NORMAL_MAX_DEVIATE 9.0

/* Writes the deviates (mean 0, standard deviation 1) of n columns, from `first` on. The same bits
 * give the same deviates on every processor. */
void normal_draw(uint64_t row_bits, size_t first, size_t n, double *deviates);

#endif
