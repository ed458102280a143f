/* Softmax regression on grey images: the arithmetic, without tables.
 *
 * The weights are a matrix of one row per pixel and a last one for the bias, one column per class.
 * A pixel counts as its brightness from 0 to 1.
 *
 * Threads: any. */
#ifndef RUBATO_APPS_SOFTMAX_MODEL_H
#define RUBATO_APPS_SOFTMAX_MODEL_H

#include <rubato/data.h>

/* Rows of the weights. */
size_t softmax_n_inputs(const RubatoImages *images);

/* Writes scale × the sum of the gradients of n images into gradient, which is shaped as the
 * weights are, and returns the sum of their losses. */
double softmax_gradient(const float *weights, uint32_t n_classes, const RubatoImages *images,
                        const uint64_t *rows, size_t n, float scale, float *gradient);

/* The mean loss and the share of images whose most likely class is their own. */
void softmax_evaluate(const float *weights, uint32_t n_classes, const RubatoImages *images,
                      double *loss, double *accuracy);

#endif
