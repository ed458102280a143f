/* Values of rows, rounded. */
#include "io/store/rounding.h"

#include <math.h>
#include <string.h>

#define MOST_STEPS 127.0

static double get(const RoundedRows *rows, const void *values, size_t i)
{
    return rows->value_bytes == sizeof(float) ? (double)((const float *)values)[i]
                                              : ((const double *)values)[i];
}

static void set(const RoundedRows *rows, void *values, size_t i, double value)
{
    if (rows->value_bytes == sizeof(float))
        ((float *)values)[i] = (float)value;
    else
        ((double *)values)[i] = value;
}

uint64_t rounding_bytes(const RoundedRows *rows, uint64_t n)
{
    const uint64_t n_values = n * rows->width;
    const uint64_t n_bytes = rows->rounding == ROUNDING_BF16 ? n_values * sizeof(uint16_t)
                                                             : n * sizeof(float) + n_values;

    return rows->rounding == ROUNDING_NONE ? n_values * rows->value_bytes : (n_bytes + 7) / 8 * 8;
}

/* ---- one value ---- */

static uint16_t to_bf16(double value)
{
    const float f32 = (float)value;
    uint32_t bits;

    memcpy(&bits, &f32, sizeof bits);
    if (isnan(f32))
        return (uint16_t)(bits >> 16 | 0x40); /* it stays one without its lower bits */
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static double from_bf16(uint16_t upper)
{
    const uint32_t bits = (uint32_t)upper << 16;
    float f32;

    memcpy(&f32, &bits, sizeof f32);
    return (double)f32;
}

/* NaN: the row has a value that is not finite, or beyond f32. */
static float find_step(const RoundedRows *rows, const void *values, size_t first)
{
    double largest = 0;
    float step;

    for (size_t i = first; i < first + rows->width; i++) {
        const double value = fabs(get(rows, values, i));

        if (!isfinite(value))
            return NAN;
        largest = fmax(largest, value);
    }
    step = (float)(largest / MOST_STEPS);
    return isfinite(step) ? step : NAN;
}

static int8_t to_steps(double value, float step)
{
    if (!(step > 0)) /* the row has zeros alone, or its step is NaN */
        return 0;
    return (int8_t)fmax(-MOST_STEPS, fmin(MOST_STEPS, nearbyint(value / (double)step)));
}

/* ---- rows ---- */

static void note(RoundingLoss *loss, double exact, double stored)
{
    const double error = exact == stored || isnan(exact) ? 0 : fabs(stored - exact);

    /* NaN is larger than all. */
    if (isnan(error) || error > loss->largest)
        loss->largest = error;
    loss->sum_of_squares += error * error;
    loss->n_values++;
}

static void encode_bf16(const RoundedRows *rows, size_t n, const void *values, unsigned char *to,
                        RoundingLoss *loss)
{
    for (size_t i = 0; i < n * rows->width; i++) {
        const double value = get(rows, values, i);
        const uint16_t upper = to_bf16(value);

        memcpy(to + i * sizeof upper, &upper, sizeof upper);
        note(loss, value, from_bf16(upper));
    }
}

static void encode_8bit(const RoundedRows *rows, size_t n, const void *values, unsigned char *to,
                        RoundingLoss *loss)
{
    unsigned char *const steps = to + n * sizeof(float);

    for (size_t row = 0; row < n; row++) {
        const float step = find_step(rows, values, row * rows->width);

        memcpy(to + row * sizeof step, &step, sizeof step);
        for (size_t i = row * rows->width; i < (row + 1) * rows->width; i++) {
            const double value = get(rows, values, i);
            const int8_t n_steps = to_steps(value, step);

            memcpy(steps + i, &n_steps, 1);
            note(loss, value, n_steps * (double)step);
        }
    }
}

void rounding_encode(const RoundedRows *rows, size_t n, const void *values, void *to,
                     RoundingLoss *loss)
{
    memset(to, 0, (size_t)rounding_bytes(rows, n));
    if (rows->rounding == ROUNDING_BF16)
        encode_bf16(rows, n, values, to, loss);
    else
        encode_8bit(rows, n, values, to, loss);
}

static void decode_8bit(const RoundedRows *rows, size_t n, const unsigned char *from, void *values)
{
    const unsigned char *const steps = from + n * sizeof(float);

    for (size_t row = 0; row < n; row++) {
        float step;

        memcpy(&step, from + row * sizeof step, sizeof step);
        for (size_t i = row * rows->width; i < (row + 1) * rows->width; i++) {
            int8_t n_steps;

            memcpy(&n_steps, steps + i, 1);
            set(rows, values, i, n_steps * (double)step);
        }
    }
}

void rounding_decode(const RoundedRows *rows, size_t n, const void *from, void *values)
{
    if (rows->rounding == ROUNDING_8BIT) {
        decode_8bit(rows, n, from, values);
        return;
    }
    for (size_t i = 0; i < n * rows->width; i++) {
        uint16_t upper;

        memcpy(&upper, (const unsigned char *)from + i * sizeof upper, sizeof upper);
        set(rows, values, i, from_bf16(upper));
    }
}

void rounding_loss_add(RoundingLoss *to, const RoundingLoss *loss)
{
    if (isnan(loss->largest) || loss->largest > to->largest)
        to->largest = loss->largest;
    to->sum_of_squares += loss->sum_of_squares;
    to->n_values += loss->n_values;
}
