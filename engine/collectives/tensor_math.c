/* Combining values of tensors: see tensor_math.h.
 *
 * A block has so few values that its sums stay in the first cache. Each loop below runs over one
 * block, with one operation and no branch, so that the compiler makes vectors of it. The folder's
 * CMakeLists.txt has the options that this needs. */
#include "engine/collectives/tensor_math.h"

#include <string.h>

#include <rubato/vector_clones.h>

enum { BLOCK = 2048 }; /* values */

typedef union {
    float f32[BLOCK];
    double f64[BLOCK];
    uint64_t u64[BLOCK];
} Sums;

/* ---- halves ---- */

static inline uint32_t bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The exponent of a half is moved to that of a float by a multiplication, which also normalises
 * what is subnormal as a half. */
static inline float load_f16(uint16_t half)
{
    const uint32_t bits = bits_of(float_of((uint32_t)(half & 0x7fff) << 13) * 0x1p112f);
    const uint32_t special = (half & 0x7c00) == 0x7c00 ? 0x7f800000u : 0;

    return float_of(bits | special | (uint32_t)(half & 0x8000) << 16);
}

/* What is subnormal as a half is rounded by the addition of 0.5, whose last bit is worth as much as
 * that of such a half. What is larger is rounded by an addition to the bits that are cut off. */
static inline uint16_t store_f16(float value)
{
    const uint32_t bits = bits_of(value), size = bits & 0x7fffffffu;
    const uint32_t small = bits_of(float_of(size) + 0.5f) - 0x3f000000u;
    const uint32_t normal = (size + 0xc8000fffu + (size >> 13 & 1)) >> 13;
    uint32_t half = size < 0x38800000u ? small : normal;

    half = size >= 0x47800000u ? 0x7c00u : half;
    half = size > 0x7f800000u ? 0x7e00u : half;
    return (uint16_t)(half | (bits >> 16 & 0x8000u));
}

static inline float load_bf16(uint16_t half)
{
    return float_of((uint32_t)half << 16);
}

static inline uint16_t store_bf16(float value)
{
    const uint32_t bits = bits_of(value);
    const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;

    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16 | 0x40u) : rounded);
}

uint16_t tensor_f16_from_float(float value)
{
    return store_f16(value);
}

float tensor_float_from_f16(uint16_t value)
{
    return load_f16(value);
}

uint16_t tensor_bf16_from_float(float value)
{
    return store_bf16(value);
}

float tensor_float_from_bf16(uint16_t value)
{
    return load_bf16(value);
}

/* ---- loops over one block, for each dtype ----
 *
 * set_… begins with the first input, add_… and so on take in the next ones. */

#define KEEP(x) (x)
#define FROM_SIGNED(x) ((uint64_t)(int64_t)(x))
#define ADD(a, b) ((a) + (b))
#define MULTIPLY(a, b) ((a) * (b))
#define LESS_REAL(a, b) ((b) < (a) || (b) != (b) ? (b) : (a))
#define MORE_REAL(a, b) ((b) > (a) || (b) != (b) ? (b) : (a))
#define LESS_WHOLE(a, b) ((int64_t)(b) < (int64_t)(a) ? (b) : (a))
#define MORE_WHOLE(a, b) ((int64_t)(b) > (int64_t)(a) ? (b) : (a))

#define LOOP(name, type, wide, load, combine)                                              \
    RUBATO_VECTOR_CLONES static void name(wide *restrict sums, const type *restrict input, \
                                          wide scale, size_t n)                            \
    {                                                                                      \
        for (size_t i = 0; i < n; i++) {                                                   \
            const wide b = (wide)load(input[i]) * scale;                                   \
            sums[i] = combine(sums[i], b);                                                 \
        }                                                                                  \
    }

#define TAKE(a, b) (b)

#define LOOPS(name, type, wide, load, less, more)     \
    LOOP(set_##name, type, wide, load, TAKE)          \
    LOOP(add_##name, type, wide, load, ADD)           \
    LOOP(multiply_##name, type, wide, load, MULTIPLY) \
    LOOP(less_##name, type, wide, load, less)         \
    LOOP(more_##name, type, wide, load, more)

LOOPS(f32, float, float, KEEP, LESS_REAL, MORE_REAL)
LOOPS(f16, uint16_t, float, load_f16, LESS_REAL, MORE_REAL)
LOOPS(bf16, uint16_t, float, load_bf16, LESS_REAL, MORE_REAL)
LOOPS(f64, double, double, KEEP, LESS_REAL, MORE_REAL)
LOOPS(i8, int8_t, uint64_t, FROM_SIGNED, LESS_WHOLE, MORE_WHOLE)
LOOPS(i16, int16_t, uint64_t, FROM_SIGNED, LESS_WHOLE, MORE_WHOLE)
LOOPS(i32, int32_t, uint64_t, FROM_SIGNED, LESS_WHOLE, MORE_WHOLE)
LOOPS(i64, int64_t, uint64_t, FROM_SIGNED, LESS_WHOLE, MORE_WHOLE)
LOOPS(u8, uint8_t, uint64_t, FROM_SIGNED, LESS_WHOLE, MORE_WHOLE)

/* The result, as the tensor's dtype. */
#define STORE(name, type, wide, store)                                                        \
    RUBATO_VECTOR_CLONES static void store_##name##s(                                         \
        type *restrict output, const wide *restrict sums, wide divisor, wide scale, size_t n) \
    {                                                                                         \
        if (divisor == 1)                                                                     \
            for (size_t i = 0; i < n; i++)                                                    \
                output[i] = (type)store(sums[i] * scale);                                     \
        else                                                                                  \
            for (size_t i = 0; i < n; i++)                                                    \
                output[i] = (type)store(sums[i] / divisor * scale);                           \
    }

STORE(f32, float, float, KEEP)
STORE(f16, uint16_t, float, store_f16)
STORE(bf16, uint16_t, float, store_bf16)
STORE(f64, double, double, KEEP)

#define STORE_WHOLE(name, type, store)                                                          \
    static void store_##name##s(type *output, const uint64_t *sums, uint32_t divisor, size_t n) \
    {                                                                                           \
        if (divisor == 1)                                                                       \
            for (size_t i = 0; i < n; i++)                                                      \
                output[i] = (type)store(sums[i]);                                               \
        else                                                                                    \
            for (size_t i = 0; i < n; i++)                                                      \
                output[i] = (type)store((int64_t)sums[i] / (int64_t)divisor);                   \
    }

#define IS_TRUE(x) ((x) != 0)

STORE_WHOLE(i8, int8_t, KEEP)
STORE_WHOLE(i16, int16_t, KEEP)
STORE_WHOLE(i32, int32_t, KEEP)
STORE_WHOLE(i64, int64_t, KEEP)
STORE_WHOLE(u8, uint8_t, KEEP)
STORE_WHOLE(bool, bool, IS_TRUE)

/* ---- one block ---- */

#define COMBINE(name, member, type, scale)                    \
    do {                                                      \
        const type *const from = (const type *)input + begin; \
                                                              \
        if (is_first)                                         \
            set_##name(sums->member, from, scale, n);         \
        else if (reduction == RUBATO_REDUCTION_MIN)           \
            less_##name(sums->member, from, scale, n);        \
        else if (reduction == RUBATO_REDUCTION_MAX)           \
            more_##name(sums->member, from, scale, n);        \
        else if (reduction == RUBATO_REDUCTION_PRODUCT)       \
            multiply_##name(sums->member, from, scale, n);    \
        else                                                  \
            add_##name(sums->member, from, scale, n);         \
    } while (0)

/* Takes the values begin … begin + n - 1 of an input in. */
static void take_in(const TensorReduction *asked, Sums *sums, const void *input, bool is_first,
                    size_t begin, size_t n)
{
    const RubatoReduction reduction = asked->reduce.reduction;
    const double scale = asked->reduce.prescale;

    switch (asked->dtype) {
    case RUBATO_F32:
        COMBINE(f32, f32, float, (float)scale);
        break;
    case RUBATO_F16:
        COMBINE(f16, f32, uint16_t, (float)scale);
        break;
    case RUBATO_BF16:
        COMBINE(bf16, f32, uint16_t, (float)scale);
        break;
    case RUBATO_F64:
        COMBINE(f64, f64, double, scale);
        break;
    case RUBATO_I8:
        COMBINE(i8, u64, int8_t, 1);
        break;
    case RUBATO_I16:
        COMBINE(i16, u64, int16_t, 1);
        break;
    case RUBATO_I32:
        COMBINE(i32, u64, int32_t, 1);
        break;
    case RUBATO_I64:
        COMBINE(i64, u64, int64_t, 1);
        break;
    case RUBATO_U8:
    case RUBATO_BOOL:
        COMBINE(u8, u64, uint8_t, 1);
        break;
    }
}

/* Writes the block to an output, from its value `at` on. */
static void write_block(const TensorReduction *asked, const Sums *sums, void *output, size_t at,
                        size_t n)
{
    const uint32_t divisor = asked->reduce.reduction == RUBATO_REDUCTION_MEAN ? asked->divisor : 1;
    const double scale = asked->reduce.postscale;

    switch (asked->result) {
    case RUBATO_F32:
        store_f32s((float *)output + at, sums->f32, (float)divisor, (float)scale, n);
        break;
    case RUBATO_F16:
        store_f16s((uint16_t *)output + at, sums->f32, (float)divisor, (float)scale, n);
        break;
    case RUBATO_BF16:
        store_bf16s((uint16_t *)output + at, sums->f32, (float)divisor, (float)scale, n);
        break;
    case RUBATO_F64:
        store_f64s((double *)output + at, sums->f64, divisor, scale, n);
        break;
    case RUBATO_I8:
        store_i8s((int8_t *)output + at, sums->u64, divisor, n);
        break;
    case RUBATO_I16:
        store_i16s((int16_t *)output + at, sums->u64, divisor, n);
        break;
    case RUBATO_I32:
        store_i32s((int32_t *)output + at, sums->u64, divisor, n);
        break;
    case RUBATO_I64:
        store_i64s((int64_t *)output + at, sums->u64, divisor, n);
        break;
    case RUBATO_U8:
        store_u8s((uint8_t *)output + at, sums->u64, divisor, n);
        break;
    case RUBATO_BOOL:
        store_bools((bool *)output + at, sums->u64, divisor, n);
        break;
    }
}

void tensor_reduce(const TensorReduction *reduction, const void *const *inputs, uint32_t n_inputs,
                   void *const *outputs, uint32_t n_outputs, size_t begin, size_t end, size_t shift)
{
    const size_t size = rubato_dtype_size(reduction->result);
    Sums sums;

    for (size_t n; begin < end; begin += n) {
        n = MIN(end - begin, BLOCK);
        for (uint32_t i = 0; i < n_inputs; i++)
            take_in(reduction, &sums, inputs[i], i == 0, begin, n);
        if (n_outputs == 0)
            continue;
        write_block(reduction, &sums, outputs[0], begin - shift, n);
        for (uint32_t i = 1; i < n_outputs; i++)
            memcpy((char *)outputs[i] + (begin - shift) * size,
                   (const char *)outputs[0] + (begin - shift) * size, n * size);
    }
}
