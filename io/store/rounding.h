/* Values of rows, rounded so that they take fewer bytes.
 *
 *   bf16    the upper 16 bits of an f32, rounded to the nearest, to even ones at a tie: 8 bits of
 *           precision, and the range of f32
 *   8 bits  of each row its largest absolute value / 127 as f32, then for each value how many of
 *           these it is, from -127 to 127, rounded to the nearest. All values of a row with one
 *           that is not finite, or beyond f32, become NaN
 *
 * The bytes of n rows are filled up to a multiple of 8.
 *
 * Threads: any; functions of their arguments alone. */
#ifndef RUBATO_IO_STORE_ROUNDING_H
#define RUBATO_IO_STORE_ROUNDING_H

#include <stddef.h>
#include <stdint.h>

typedef enum {
    ROUNDING_NONE,
    ROUNDING_BF16,
    ROUNDING_8BIT,
} Rounding;

/* How far what is stored is from what was to be. */
typedef struct {
    double largest; /* infinite or NaN, if a value has become so that was not */
    double sum_of_squares;
    uint64_t n_values;
} RoundingLoss;

/* Rows of `width` values of value_bytes each: 4 are f32, 8 are f64. */
typedef struct {
    Rounding rounding;
    size_t width, value_bytes;
} RoundedRows;

uint64_t rounding_bytes(const RoundedRows *rows, uint64_t n);

/* Writes rounding_bytes(rows, n) bytes, and adds to the loss. */
void rounding_encode(const RoundedRows *rows, size_t n, const void *values, void *to,
                     RoundingLoss *loss);

/* Writes n × width values. */
void rounding_decode(const RoundedRows *rows, size_t n, const void *from, void *values);

/* That of both. */
void rounding_loss_add(RoundingLoss *to, const RoundingLoss *loss);

#endif
