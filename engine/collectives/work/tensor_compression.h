/* Floats that travel as halves, and what rounding has cut off from them.
 *
 * Threads: any, for values of their own. */
#ifndef RUBATO_ENGINE_COLLECTIVES_TENSOR_COMPRESSION_H
#define RUBATO_ENGINE_COLLECTIVES_TENSOR_COMPRESSION_H

#include <rubato/collectives.h>

/* What was cut off from the values of a tensor when its name was combined last. */
typedef struct {
    uint64_t n_values;
    RubatoReduce reduce;
    float *part;   /* from what this node's workers have together */
    float *result; /* from the results that this node has sent */
} TensorResidual;

/* NULL: there is no memory. (transfer full) */
TensorResidual *tensor_residual_new(uint64_t n_values, const RubatoReduce *reduce);
void tensor_residual_free(TensorResidual *residual);

/* The dtype of the halves. compression: not NONE. */
RubatoDtype tensor_compressed_dtype(RubatoCompression compression);

/* Adds the residuals to the values, and rounds these to halves. The residuals become what that has
 * cut off; 0 where it is no finite number. The values change. */
void tensor_compress(RubatoCompression compression, float *values, float *residuals,
                     uint16_t *halves, size_t n);

#endif
