/* Combining values of tensors: see tensor_math.h.
 *
 * A block has so few values that its sums stay in the first cache. Each loop below runs over one
 * block, with one operation and no branch, so that the compiler makes vectors of it. The folder's
 * CMakeLists.txt has the options that this needs.
 *
 * Large tensors are in no cache; then the accesses to memory are all that counts. So the first two
 * inputs are read in one loop. Where the outputs have the wider type, the first output itself takes
 * the sums, unless it is an input. The other outputs are copies of the block, which is in the first
 * cache by then. Outputs of large tensors are written past the caches: that took half of the time
 * with processors of one kind, and as long with others. Who reads a small tensor next would pay for
 * it. Where sums are written past the caches, the loop that adds all inputs writes all outputs, if
 * there is one for that (tensor_fused.h). */
#include "engine/collectives/work/tensor_math.h"

#include <string.h>

#include <rubato/vector_clones.h>

#include "engine/collectives/work/tensor_fused.h"
#include "engine/collectives/work/tensor_halves.h"
#include "engine/collectives/work/tensor_stream.h"

enum { BLOCK_BYTES = 4096, LINE_BYTES = 64 }; /* of sums; of a cache */

typedef union {
    float f32[BLOCK_BYTES / sizeof(float)];
    double f64[BLOCK_BYTES / sizeof(double)];
    uint64_t u64[BLOCK_BYTES / sizeof(uint64_t)];
} Block;

/* ---- halves ---- */

uint16_t tensor_f16_from_float(float value)
{
    return tensor_store_f16(value);
}

float tensor_float_from_f16(uint16_t value)
{
    return tensor_load_f16(value);
}

uint16_t tensor_bf16_from_float(float value)
{
    return tensor_store_bf16(value);
}

float tensor_float_from_bf16(uint16_t value)
{
    return tensor_load_bf16(value);
}

/* ---- loops over one block, for each dtype ----
 *
 * set_… begins with the only input, add_two_… and so on with the first two; add_… and so on take in
 * the next ones. */

#define KEEP(x) (x)
#define FROM_SIGNED(x) ((uint64_t)(int64_t)(x))
#define ADD(a, b) ((a) + (b))
#define MULTIPLY(a, b) ((a) * (b))
#define LESS_REAL(a, b) ((b) < (a) || (b) != (b) ? (b) : (a))
#define MORE_REAL(a, b) ((b) > (a) || (b) != (b) ? (b) : (a))
#define LESS_WHOLE(a, b) ((int64_t)(b) < (int64_t)(a) ? (b) : (a))
#define MORE_WHOLE(a, b) ((int64_t)(b) > (int64_t)(a) ? (b) : (a))

#define SET(name, type, wide, load)                                                              \
    RUBATO_VECTOR_CLONES static void set_##name(wide *restrict sums, const type *restrict input, \
                                                wide scale, size_t n)                            \
    {                                                                                            \
        for (size_t i = 0; i < n; i++)                                                           \
            sums[i] = (wide)load(input[i]) * scale;                                              \
    }

#define LOOP(name, type, wide, load, combine)                                              \
    RUBATO_VECTOR_CLONES static void name(wide *restrict sums, const type *restrict input, \
                                          wide scale, size_t n)                            \
    {                                                                                      \
        for (size_t i = 0; i < n; i++) {                                                   \
            const wide b = (wide)load(input[i]) * scale;                                   \
            sums[i] = combine(sums[i], b);                                                 \
        }                                                                                  \
    }

#define LOOP_TWO(name, type, wide, load, combine)                                           \
    RUBATO_VECTOR_CLONES static void name(wide *restrict sums, const type *restrict one,    \
                                          const type *restrict other, wide scale, size_t n) \
    {                                                                                       \
        for (size_t i = 0; i < n; i++) {                                                    \
            const wide a = (wide)load(one[i]) * scale, b = (wide)load(other[i]) * scale;    \
            sums[i] = combine(a, b);                                                        \
        }                                                                                   \
    }

#define LOOPS_OF(operation, name, type, wide, load, combine) \
    LOOP(operation##_##name, type, wide, load, combine)      \
    LOOP_TWO(operation##_two_##name, type, wide, load, combine)

#define LOOPS(name, type, wide, load, least, most)       \
    SET(name, type, wide, load)                          \
    LOOPS_OF(add, name, type, wide, load, ADD)           \
    LOOPS_OF(multiply, name, type, wide, load, MULTIPLY) \
    LOOPS_OF(less, name, type, wide, load, least)        \
    LOOPS_OF(more, name, type, wide, load, most)

LOOPS(f32, float, float, KEEP, LESS_REAL, MORE_REAL)
LOOPS(f16, uint16_t, float, tensor_load_f16, LESS_REAL, MORE_REAL)
LOOPS(bf16, uint16_t, float, tensor_load_bf16, LESS_REAL, MORE_REAL)
LOOPS(f64, double, double, KEEP, LESS_REAL, MORE_REAL)
LOOPS(i8, int8_t, uint64_t, FROM_SIGNED, LESS_WHOLE, MORE_WHOLE)
LOOPS(i16, int16_t, uint64_t, FROM_SIGNED, LESS_WHOLE, MORE_WHOLE)
LOOPS(i32, int32_t, uint64_t, FROM_SIGNED, LESS_WHOLE, MORE_WHOLE)
LOOPS(i64, int64_t, uint64_t, FROM_SIGNED, LESS_WHOLE, MORE_WHOLE)
LOOPS(u8, uint8_t, uint64_t, FROM_SIGNED, LESS_WHOLE, MORE_WHOLE)

/* The sums become the result. */
#define FINISH(name, wide)                                                                         \
    RUBATO_VECTOR_CLONES static void finish_##name(wide *sums, wide divisor, wide scale, size_t n) \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            sums[i] = sums[i] / divisor * scale;                                                   \
    }

FINISH(f32, float)
FINISH(f64, double)

static void finish_whole(uint64_t *sums, uint32_t divisor, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sums[i] = (uint64_t)((int64_t)sums[i] / (int64_t)divisor);
}

/* The result, as the tensor's dtype. */
#define STORE(name, type, wide, store)                                                    \
    RUBATO_VECTOR_CLONES static void store_##name##s(type *restrict output,               \
                                                     const wide *restrict sums, size_t n) \
    {                                                                                     \
        for (size_t i = 0; i < n; i++)                                                    \
            output[i] = (type)store(sums[i]);                                             \
    }

#define IS_TRUE(x) ((x) != 0)

STORE(f16, uint16_t, float, tensor_store_f16)
STORE(bf16, uint16_t, float, tensor_store_bf16)
STORE(i8, int8_t, uint64_t, KEEP)
STORE(i16, int16_t, uint64_t, KEEP)
STORE(i32, int32_t, uint64_t, KEEP)
STORE(u8, uint8_t, uint64_t, KEEP)
STORE(bool, bool, uint64_t, IS_TRUE)

/* ---- one block ---- */

#define COMBINE_BY(operation, name, type, scale)                                 \
    do {                                                                         \
        if (n_inputs > 1)                                                        \
            operation##_two_##name(sums, (const type *)inputs[0] + begin,        \
                                   (const type *)inputs[1] + begin, scale, n);   \
        for (uint32_t i = 2; i < n_inputs; i++)                                  \
            operation##_##name(sums, (const type *)inputs[i] + begin, scale, n); \
    } while (0)

#define COMBINE(name, type, scale)                                       \
    do {                                                                 \
        if (n_inputs == 1)                                               \
            set_##name(sums, (const type *)inputs[0] + begin, scale, n); \
        else if (reduction == RUBATO_REDUCTION_MIN)                      \
            COMBINE_BY(less, name, type, scale);                         \
        else if (reduction == RUBATO_REDUCTION_MAX)                      \
            COMBINE_BY(more, name, type, scale);                         \
        else if (reduction == RUBATO_REDUCTION_PRODUCT)                  \
            COMBINE_BY(multiply, name, type, scale);                     \
        else                                                             \
            COMBINE_BY(add, name, type, scale);                          \
    } while (0)

/* Combines the values begin … begin + n - 1 of the inputs. */
static void combine_block(const TensorReduction *asked, void *sums, const void *const *inputs,
                          uint32_t n_inputs, size_t begin, size_t n)
{
    const RubatoReduction reduction = asked->reduce.reduction;
    const double scale = asked->reduce.prescale;

    switch (asked->dtype) {
    case RUBATO_F32:
        COMBINE(f32, float, (float)scale);
        break;
    case RUBATO_F16:
        COMBINE(f16, uint16_t, (float)scale);
        break;
    case RUBATO_BF16:
        COMBINE(bf16, uint16_t, (float)scale);
        break;
    case RUBATO_F64:
        COMBINE(f64, double, scale);
        break;
    case RUBATO_I8:
        COMBINE(i8, int8_t, 1);
        break;
    case RUBATO_I16:
        COMBINE(i16, int16_t, 1);
        break;
    case RUBATO_I32:
        COMBINE(i32, int32_t, 1);
        break;
    case RUBATO_I64:
        COMBINE(i64, int64_t, 1);
        break;
    case RUBATO_U8:
    case RUBATO_BOOL:
        COMBINE(u8, uint8_t, 1);
        break;
    }
}

static uint32_t divisor_of(const TensorReduction *asked)
{
    return asked->reduce.reduction == RUBATO_REDUCTION_MEAN ? asked->divisor : 1;
}

/* Divides and scales the sums. */
static void finish_block(const TensorReduction *asked, void *sums, size_t n)
{
    const uint32_t divisor = divisor_of(asked);
    const double scale = asked->reduce.postscale;

    if (divisor == 1 && scale == 1)
        return;
    switch (asked->result) {
    case RUBATO_F32:
    case RUBATO_F16:
    case RUBATO_BF16:
        finish_f32(sums, (float)divisor, (float)scale, n);
        break;
    case RUBATO_F64:
        finish_f64(sums, divisor, scale, n);
        break;
    case RUBATO_I8:
    case RUBATO_I16:
    case RUBATO_I32:
    case RUBATO_I64:
    case RUBATO_U8:
    case RUBATO_BOOL:
        finish_whole(sums, divisor, n);
        break;
    }
}

/* Whether sums have the type of the result. */
static bool is_wide(RubatoDtype result)
{
    return result == RUBATO_F32 || result == RUBATO_F64 || result == RUBATO_I64;
}

/* Writes the block to an output that has another type. */
static void store_block(RubatoDtype result, const void *sums, void *output, size_t n)
{
    switch (result) {
    case RUBATO_F16:
        store_f16s(output, sums, n);
        break;
    case RUBATO_BF16:
        store_bf16s(output, sums, n);
        break;
    case RUBATO_I8:
        store_i8s(output, sums, n);
        break;
    case RUBATO_I16:
        store_i16s(output, sums, n);
        break;
    case RUBATO_I32:
        store_i32s(output, sums, n);
        break;
    case RUBATO_U8:
        store_u8s(output, sums, n);
        break;
    case RUBATO_BOOL:
        store_bools(output, sums, n);
        break;
    case RUBATO_F32:
    case RUBATO_F64:
    case RUBATO_I64:
        break; /* is_wide */
    }
}

static size_t block_values(RubatoDtype result)
{
    return result == RUBATO_F32 || result == RUBATO_F16 || result == RUBATO_BF16
               ? BLOCK_BYTES / sizeof(float)
               : BLOCK_BYTES / sizeof(double);
}

/* Whether an output can take the sums while inputs are still read. */
static bool is_apart(const void *output, const void *const *inputs, uint32_t n_inputs,
                     size_t input_begin, size_t n_bytes)
{
    const uintptr_t to = (uintptr_t)output;

    for (uint32_t i = 0; i < n_inputs; i++) {
        const uintptr_t from = (uintptr_t)inputs[i] + input_begin;

        if (from < to + n_bytes && to < from + n_bytes)
            return false;
    }
    return true;
}

/* How many of the outputs are written past the caches. Not an input: it is in a cache by then. */
static uint32_t count_streamed(const TensorReduction *reduction, const void *const *inputs,
                               uint32_t n_inputs, void *const *outputs, uint32_t n_outputs,
                               size_t input_begin, size_t output_begin, size_t n_bytes)
{
    const uint32_t n = MIN(reduction->n_streamed, n_outputs);

    for (uint32_t i = n_outputs - n; i < n_outputs; i++)
        if (!is_apart((const char *)outputs[i] + output_begin, inputs, n_inputs, input_begin,
                      n_bytes))
            return 0;
    return n;
}

/* Whether it is sums that may be made by tensor_fused_add, if some outputs are streamed, and the
 * others are no inputs. */
static bool may_fuse(const TensorReduction *reduction, uint32_t n_inputs)
{
    const RubatoReduce *const reduce = &reduction->reduce;

    return n_inputs > 1 && reduction->dtype == reduction->result && reduce->prescale == 1 &&
           (reduce->reduction == RUBATO_REDUCTION_SUM ||
            reduce->reduction == RUBATO_REDUCTION_MEAN);
}

void tensor_reduce(const TensorReduction *reduction, const void *const *inputs, uint32_t n_inputs,
                   void *const *outputs, uint32_t n_outputs, size_t begin, size_t end, size_t shift)
{
    const size_t size = rubato_dtype_size(reduction->result);
    const size_t most = block_values(reduction->result);
    const bool wide = is_wide(reduction->result);
    Block block, narrow;

    if (n_outputs == 0 || begin >= end)
        return;
    const size_t in_begin = begin * rubato_dtype_size(reduction->dtype);
    const uint32_t n_near =
        n_outputs - count_streamed(reduction, inputs, n_inputs, outputs, n_outputs, in_begin,
                                   (begin - shift) * size, (end - begin) * size);
    const bool direct = wide && n_near > 0 && reduction->dtype == reduction->result &&
                        is_apart((char *)outputs[0] + (begin - shift) * size, inputs, n_inputs,
                                 begin * size, (end - begin) * size);
    bool fuses = n_near < n_outputs && may_fuse(reduction, n_inputs);
    for (uint32_t i = 0; i < n_near; i++)
        fuses = fuses && is_apart((char *)outputs[i] + (begin - shift) * size, inputs, n_inputs,
                                  in_begin, (end - begin) * size);
    TensorFusedOutputs fused = { .arrays = outputs,
                                 .n = n_outputs,
                                 .n_streamed = n_outputs - n_near,
                                 .divisor = divisor_of(reduction),
                                 .scale = reduction->reduce.postscale };
    /* blocks end where lines do, so that each line is written as a whole */
    size_t before = n_near == n_outputs
                        ? 0
                        : ((uintptr_t)outputs[n_near] + (begin - shift) * size) % LINE_BYTES / size;
    for (size_t n; begin < end; begin += n, before = 0) {
        const size_t first = (begin - shift) * size; /* byte of each output */
        void *const output = n_near > 0 ? (char *)outputs[0] + first : (char *)&narrow;
        void *const sums = direct ? output : &block;
        const void *result = wide && n_near == 0 ? sums : output;

        fused.offset = first;
        n = fuses ? tensor_fused_values(reduction->result, &fused, end - begin) : 0;
        if (n > 0) {
            tensor_fused_add(reduction->result, inputs, n_inputs, begin, &fused, n);
            continue;
        }
        n = MIN(end - begin, most - before);
        combine_block(reduction, sums, inputs, n_inputs, begin, n);
        finish_block(reduction, sums, n);
        if (!wide)
            store_block(reduction->result, sums, output, n);
        else if (sums != result)
            memcpy(output, sums, n * size);
        for (uint32_t i = 1; i < n_near; i++)
            memcpy((char *)outputs[i] + first, result, n * size);
        for (uint32_t i = n_near; i < n_outputs; i++)
            tensor_stream((char *)outputs[i] + first, result, n * size);
    }
    if (n_near < n_outputs)
        tensor_stream_end();
}
