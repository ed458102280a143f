/* Sums of large tensors that go to several arrays: the loop that makes them writes them to all of
 * these. With a loop for each array the processor reads nothing from memory while it writes past
 * the caches.
 *
 * Threads: any; the functions depend on their arguments only. */
#ifndef RUBATO_ENGINE_COLLECTIVES_TENSOR_FUSED_H
#define RUBATO_ENGINE_COLLECTIVES_TENSOR_FUSED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rubato/types.h>

/* Where sums go, and what they become before. */
typedef struct {
    void *const *arrays; /* of which the last ones are written past the caches (tensor_stream.h) */
    uint32_t n, n_streamed;
    size_t offset;  /* of the first value: bytes in each of them */
    double divisor; /* each sum is divided by this, */
    double scale;   /* and then multiplied; both 1: neither is done */
} TensorFusedOutputs;

/* How many of n values, from the first one on, tensor_fused_add can add: whole lines of the arrays
 * that are streamed. 0: this processor has no loop for the dtype, or the arrays have different
 * lines. */
size_t tensor_fused_values(RubatoDtype dtype, const TensorFusedOutputs *outputs, size_t n);

/* Adds as many values of the inputs, from the value `begin` of each on. None of them is one of the
 * outputs. The results have the bits that the loops of tensor_math.c give, but perhaps another NaN
 * where two are added. */
void tensor_fused_add(RubatoDtype dtype, const void *const *inputs, uint32_t n_inputs, size_t begin,
                      const TensorFusedOutputs *outputs, size_t n);

#endif
