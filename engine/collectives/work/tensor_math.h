/* Combining values of tensors, vectorised.
 *
 * Values are combined block by block: a block of each input in turn, in the order given, in a wider
 * type (f16, bf16 and f32 as float, f64 as double, integers and bool as int64_t modulo 2^64). The
 * result is converted once, and then written to each output. So inputs may be outputs. No result
 * depends on where a range begins.
 *
 * Threads: any. */
#ifndef RUBATO_ENGINE_COLLECTIVES_TENSOR_MATH_H
#define RUBATO_ENGINE_COLLECTIVES_TENSOR_MATH_H

#include <rubato/collectives.h>

typedef struct {
    RubatoDtype dtype;   /* of the inputs */
    RubatoDtype result;  /* of the outputs: one that is combined in the same wider type */
    RubatoReduce reduce; /* no scale is 0 */
    uint32_t divisor;    /* of a mean */
    uint32_t n_streamed; /* outputs, the last ones, that are written past the caches, unless inputs
                          * are among them (tensor_stream.h) */
} TensorReduction;

/* Combines the values begin … end - 1 of each input and writes them to each output, `shift` values
 * further to the front. n_inputs is not 0. */
void tensor_reduce(const TensorReduction *reduction, const void *const *inputs, uint32_t n_inputs,
                   void *const *outputs, uint32_t n_outputs, size_t begin, size_t end,
                   size_t shift);

/* One value, rounded to the nearest, to even if there are two. NaN stays NaN. */
uint16_t tensor_f16_from_float(float value);
float tensor_float_from_f16(uint16_t value);
uint16_t tensor_bf16_from_float(float value);
float tensor_float_from_bf16(uint16_t value);

#endif
