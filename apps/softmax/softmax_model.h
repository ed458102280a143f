/* Softmax regression on grey images: the arithmetic, without tables.
 *
 * The weights are a matrix of one row per pixel and a last one for the bias, one column per class.
 * A pixel counts as its brightness from 0 to 1.
 *
 * Threads: any. */
#ifndef RUBATO_APPS_SOFTMAX_SOFTMAX_MODEL_H
#define RUBATO_APPS_SOFTMAX_SOFTMAX_MODEL_H

#include <rubato/data.h>

#define SOFTMAX_CLASSES_MAX 256 /* labels are bytes */

/* Rows of the weights. */
size_t softmax_n_inputs(const RubatoImages *images);

/* Over some images: the sum of their losses, and how many have their own class as the likeliest. */
typedef struct {
    double loss;
    uint64_t n_right;
} SoftmaxTally;

/* Writes scale × the sum of the gradients of n images into gradient, which is shaped as the
 * weights are, and tells how well the weights did on them. */
SoftmaxTally softmax_gradient(const float *weights, uint32_t n_classes, const RubatoImages *images,
                              const uint64_t *rows, size_t n, float scale, float *gradient);

/* The likeliest class of an image, whose label is not looked at. */
uint32_t softmax_classify(const float *weights, uint32_t n_classes, const RubatoImages *images,
                          size_t image);

/* How well the weights do on all images. */
SoftmaxTally softmax_evaluate(const float *weights, uint32_t n_classes, const RubatoImages *images);

#endif
