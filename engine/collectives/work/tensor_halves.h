/* Halves and floats: conversions that compilers make vectors of.
 *
 * Threads: any; the functions depend on their arguments only. */
#ifndef RUBATO_ENGINE_COLLECTIVES_TENSOR_HALVES_H
#define RUBATO_ENGINE_COLLECTIVES_TENSOR_HALVES_H

#include <stdint.h>
#include <string.h>

static inline uint32_t tensor_bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float tensor_float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The exponent of a half is moved to that of a float by a multiplication, which also normalises
 * what is subnormal as a half. */
static inline float tensor_load_f16(uint16_t half)
{
    const uint32_t bits =
        tensor_bits_of(tensor_float_of((uint32_t)(half & 0x7fff) << 13) * 0x1p112f);
    const uint32_t special = (half & 0x7c00) == 0x7c00 ? 0x7f800000u : 0;

    return tensor_float_of(bits | special | (uint32_t)(half & 0x8000) << 16);
}

/* What is subnormal as a half is rounded by the addition of 0.5, whose last bit is worth as much as
 * that of such a half. What is larger is rounded by an addition to the bits that are cut off. */
static inline uint16_t tensor_store_f16(float value)
{
    const uint32_t bits = tensor_bits_of(value), size = bits & 0x7fffffffu;
    const uint32_t small = tensor_bits_of(tensor_float_of(size) + 0.5f) - 0x3f000000u;
    const uint32_t normal = (size + 0xc8000fffu + (size >> 13 & 1)) >> 13;
    uint32_t half = size < 0x38800000u ? small : normal;

    half = size >= 0x47800000u ? 0x7c00u : half;
    half = size > 0x7f800000u ? 0x7e00u : half;
    return (uint16_t)(half | (bits >> 16 & 0x8000u));
}

static inline float tensor_load_bf16(uint16_t half)
{
    return tensor_float_of((uint32_t)half << 16);
}

static inline uint16_t tensor_store_bf16(float value)
{
    const uint32_t bits = tensor_bits_of(value);
    const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;

    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16 | 0x40u) : rounded);
}

#endif
