/* Values of any dtype, as the tests write, compare and tell them.
 *
 * Threads: any. */
#ifndef TESTS_KIT_VALUES_H
#define TESTS_KIT_VALUES_H

#include <rubato/types.h>

/* Fills n values that follow from a mark: whole numbers from -64 to 64, or so many 64ths, which
 * every dtype holds exactly. */
void values_fill(RubatoDtype dtype, void *values, size_t n, uint32_t mark);

/* A value as a double. */
double value_number(RubatoDtype dtype, const void *values, size_t i);

/* Gives a value of f32 or f64 a number. */
void value_put(RubatoDtype dtype, void *values, size_t i, double number);

/* The first of n values that differ in their bits; n: none. Not a number is equal to itself. */
size_t values_differ(RubatoDtype dtype, const void *a, const void *b, size_t n);

/* The value in decimal, with all its digits. (transfer full) */
char *value_text(RubatoDtype dtype, const void *values, size_t i);

#endif
