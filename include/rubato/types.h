/* The types that every part of Rubato shares: keys, element types, exported symbols.
 *
 * Threads: any. */
#ifndef RUBATO_TYPES_H
#define RUBATO_TYPES_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define RUBATO_API __attribute__((visibility("default")))
#else
#define RUBATO_API
#endif

G_BEGIN_DECLS

/* Names a row of a table. */
typedef uint64_t RubatoKey;

/* The type of the values of a table's rows, or of a tensor; all values of one have the same. Tables
 * hold the first five; tensors (collectives.h) hold all of them. */
typedef enum {
    RUBATO_F32,  /* float */
    RUBATO_F64,  /* double */
    RUBATO_I32,  /* int32_t */
    RUBATO_I64,  /* int64_t */
    RUBATO_U8,   /* uint8_t: bytes; only in tables of RUBATO_SHAPE_RAGGED */
    RUBATO_F16,  /* IEEE 754 binary16, as uint16_t */
    RUBATO_BF16, /* the upper half of a float, as uint16_t */
    RUBATO_I8,   /* int8_t */
    RUBATO_I16,  /* int16_t */
    RUBATO_BOOL, /* bool: a byte, 0 or 1 */
} RubatoDtype;

/* Bytes of one value; 0 if it is no dtype. */
RUBATO_API size_t rubato_dtype_size(RubatoDtype dtype);

/* "f32", "f64", "i32", "i64", "u8", "f16", "bf16", "i8", "i16", "bool", or "?" if it is no dtype.
 * (transfer none) */
RUBATO_API const char *rubato_dtype_name(RubatoDtype dtype);

G_END_DECLS

#endif
