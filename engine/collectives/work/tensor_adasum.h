/* Adasum: a sum of gradients that takes out what they have in common (Maleki et al., "Scaling
 * Distributed Training with Adaptive Summation", MLSys 2021).
 *
 * Two vectors a and b become (1 - ab / 2aa) a + (1 - ab / 2bb) b: their sum if they are orthogonal,
 * and their mean if they are parallel. More of them are combined pairwise: the first with the
 * second, the third with the fourth and so on, then these results in the same way, until one is
 * left. A vector without a partner goes on as it is. The result is a weighted sum of all vectors,
 * and its weights follow from the dot products of each two of them. So no result in between is
 * made: first come the dots, then the weights, then the sum.
 *
 * Dots, weights and the sum are doubles. A vector whose length is nothing but the error of rounding
 * counts as zero, which changes nothing: the other one stays as it is. If a vector has a value
 * that is no finite number, or a square is beyond the range of a double, all weights are NaN.
 *
 * Threads: any; the functions depend on their arguments only. */
#ifndef RUBATO_ENGINE_COLLECTIVES_TENSOR_ADASUM_H
#define RUBATO_ENGINE_COLLECTIVES_TENSOR_ADASUM_H

#include <rubato/types.h>
#include <stdint.h>

/* How many dots n vectors have: of the first with all, of the second with those behind the first,
 * and so on; each with itself, too. */
uint64_t tensor_adasum_n_dots(uint32_t n);

/* Adds to the dots what the values begin … end - 1 have. NULL among the vectors: zeros. dtype: a
 * floating-point one. */
void tensor_adasum_add_dots(RubatoDtype dtype, const void *const *vectors, uint32_t n, size_t begin,
                            size_t end, double *dots);

/* The weights of the n vectors, multiplied by `scale`. */
void tensor_adasum_weigh(const double *dots, uint32_t n, double scale, double *weights);

/* Writes the weighted sum of the values begin … end - 1 to each output. Vectors may be outputs. */
void tensor_adasum_combine(RubatoDtype dtype, const void *const *vectors, uint32_t n,
                           const double *weights, void *const *outputs, uint32_t n_outputs,
                           size_t begin, size_t end);

#endif
