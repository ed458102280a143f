/* Adasum in double, pair by pair, as its definition says.
 *
 * Threads: any. */
#ifndef TESTS_SUPPORT_COLLECTIVES_ADASUM_REFERENCE_H
#define TESTS_SUPPORT_COLLECTIVES_ADASUM_REFERENCE_H

#include <rubato/types.h>
#include <stddef.h>
#include <stdint.h>

/* Combines the n vectors, one behind another; the first becomes the result, and the others are
 * overwritten. n: 64 at most. */
void adasum_reference(double *vectors, uint32_t n, size_t n_values);

/* Writes and reads number i of an array of a floating-point dtype. */
void adasum_put(RubatoDtype dtype, void *values, size_t i, double value);
double adasum_get(RubatoDtype dtype, const void *values, size_t i);

#endif
