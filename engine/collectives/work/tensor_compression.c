/* Floats that travel as halves: see tensor_compression.h. */
#include "engine/collectives/work/tensor_compression.h"

#include <float.h>
#include <math.h>
#include <rubato/vector_clones.h>

#include "engine/collectives/work/tensor_halves.h"

TensorResidual *tensor_residual_new(uint64_t n_values, const RubatoReduce *reduce)
{
    TensorResidual *const residual = g_new0(TensorResidual, 1);

    residual->n_values = n_values;
    residual->reduce = *reduce;
    residual->part = g_try_new0(float, n_values + 1);
    residual->result = g_try_new0(float, n_values + 1); /* what is not used takes no memory */
    if (residual->part != NULL && residual->result != NULL)
        return residual;
    tensor_residual_free(residual);
    return NULL;
}

void tensor_residual_free(TensorResidual *residual)
{
    if (residual == NULL)
        return;
    g_free(residual->part);
    g_free(residual->result);
    g_free(residual);
}

RubatoDtype tensor_compressed_dtype(RubatoCompression compression)
{
    return compression == RUBATO_COMPRESSION_F16 ? RUBATO_F16 : RUBATO_BF16;
}

/* An infinity or a NaN that was left behind would spoil the value for ever. */
#define COMPRESS(name, store, load)                                                             \
    RUBATO_VECTOR_CLONES static void compress_##name(                                           \
        float *restrict values, float *restrict residuals, uint16_t *restrict halves, size_t n) \
    {                                                                                           \
        for (size_t i = 0; i < n; i++) {                                                        \
            const float value = values[i] + residuals[i];                                       \
            const uint16_t half = store(value);                                                 \
            const float rest = value - load(half);                                              \
                                                                                                \
            halves[i] = half;                                                                   \
            residuals[i] = fabsf(rest) <= FLT_MAX ? rest : 0;                                   \
        }                                                                                       \
    }

COMPRESS(f16, tensor_store_f16, tensor_load_f16)
COMPRESS(bf16, tensor_store_bf16, tensor_load_bf16)

void tensor_compress(RubatoCompression compression, float *values, float *residuals,
                     uint16_t *halves, size_t n)
{
    if (compression == RUBATO_COMPRESSION_F16)
        compress_f16(values, residuals, halves, n);
    else
        compress_bf16(values, residuals, halves, n);
}
