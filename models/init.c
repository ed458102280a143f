/* Initialisers: constant, uniform, normal, zero_normal.
 *
 * Random values are counter-based: they come from the mixed bits of (seed, key, column), without
 * any state. Real values are computed in double precision and rounded once to the table's dtype.
 *
 * Thread: any. */
#include "models/init.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <rubato/error.h>
#include <rubato/mix.h>
#include <string.h>

#include "models/column_bits.h"
#include "models/normal.h"
#include "models/spec.h"

typedef struct {
    const char *name;
    bool (*check)(const RubatoTableSpec *spec, GError **error);
    void (*prepare)(RubatoInit *init, const RubatoTableSpec *spec);
} InitOps;

#define NORMAL_BLOCK 64u /* values that are drawn at once */

static bool is_real(RubatoDtype dtype)
{
    return dtype == RUBATO_F32 || dtype == RUBATO_F64;
}

/* The integers of a dtype are those from its lowest up to, and without, `end`. Both are exact. */
static double lowest_integer(RubatoDtype dtype)
{
    return dtype == RUBATO_I32 ? -0x1p31 : -0x1p63;
}

static double integer_end(RubatoDtype dtype)
{
    return -lowest_integer(dtype);
}

/* Whether values of this size are numbers of a real dtype. */
static bool fits_real(RubatoDtype dtype, double magnitude)
{
    return isfinite(magnitude) && fabs(magnitude) <= (dtype == RUBATO_F32 ? FLT_MAX : DBL_MAX);
}

static bool refuse(const RubatoTableSpec *spec, GError **error, const char *what)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "table %s: %s (its dtype is %s)",
                spec->name, what, rubato_dtype_name(spec->dtype));
    return false;
}

/* A double in [0, 1) from 64 mixed bits. */
static double unit(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-53;
}

static uint64_t row_bits(const RubatoInit *init, RubatoKey key)
{
    return rubato_mix64(init->seed + rubato_mix64(key + UINT64_C(0x9e3779b97f4a7c15)));
}

/* constant */

static bool constant_check(const RubatoTableSpec *spec, GError **error)
{
    const double value = spec->init_value;

    if (is_real(spec->dtype))
        return fits_real(spec->dtype, value) ||
               refuse(spec, error, "init_value must be a finite number that the dtype holds");
    if (!(value >= lowest_integer(spec->dtype) && value < integer_end(spec->dtype)) ||
        value != floor(value))
        return refuse(spec, error, "init_value must be a whole number that the dtype holds");
    return true;
}

static void constant_fill(const RubatoInit *init, RubatoKey key, void *row)
{
    const size_t size = rubato_dtype_size(init->dtype);
    unsigned char *bytes = row;

    (void)key;
    if (init->is_zero) {
        memset(bytes, 0, init->width * size);
        return;
    }
    for (uint32_t i = 0; i < init->width; i++)
        memcpy(bytes + i * size, init->value, size);
}

static void constant_prepare(RubatoInit *init, const RubatoTableSpec *spec)
{
    static const unsigned char zero[sizeof(init->value)] = { 0 };
    const float f32 = (float)spec->init_value;
    const double f64 = spec->init_value;

    if (spec->dtype == RUBATO_F32) {
        memcpy(init->value, &f32, sizeof(f32));
    } else if (spec->dtype == RUBATO_F64) {
        memcpy(init->value, &f64, sizeof(f64));
    } else if (spec->dtype == RUBATO_I32) {
        const int32_t i32 = (int32_t)spec->init_value;
        memcpy(init->value, &i32, sizeof(i32));
    } else {
        const int64_t i64 = (int64_t)spec->init_value;
        memcpy(init->value, &i64, sizeof(i64));
    }
    init->is_zero = memcmp(init->value, zero, sizeof(zero)) == 0;
    init->fill = constant_fill;
}

/* uniform */

static float lowest_f32_from(double low)
{
    const float nearest = (float)low;

    return (double)nearest < low ? nextafterf(nearest, INFINITY) : nearest;
}

static bool uniform_check(const RubatoTableSpec *spec, GError **error)
{
    const double low = spec->init_low, high = spec->init_high;

    if (!isfinite(low) || !isfinite(high) || !(low < high))
        return refuse(spec, error, "\"uniform\" needs finite init_low below init_high");
    if (is_real(spec->dtype)) {
        if (!fits_real(spec->dtype, low) || !fits_real(spec->dtype, high) || !isfinite(high - low))
            return refuse(spec, error, "init_low and init_high lie too far out");
        if (spec->dtype == RUBATO_F32 && (double)lowest_f32_from(low) >= high)
            return refuse(spec, error, "there is no number between init_low and init_high");
        return true;
    }
    if (low < lowest_integer(spec->dtype) || high > integer_end(spec->dtype))
        return refuse(spec, error, "init_low and init_high lie too far out");
    if (ceil(low) >= ceil(high))
        return refuse(spec, error, "there is no whole number from init_low up to init_high");
    return true;
}

/* Rounding may leave [low, high): then take the neighbour inside. */
static float uniform_f32(const RubatoInit *init, uint64_t bits)
{
    float value = (float)(init->low + unit(bits) * (init->high - init->low));

    while ((double)value >= init->high)
        value = nextafterf(value, -INFINITY);
    return (double)value < init->low ? lowest_f32_from(init->low) : value;
}

static double uniform_f64(const RubatoInit *init, uint64_t bits)
{
    const double value = init->low + unit(bits) * (init->high - init->low);

    return value >= init->high ? nextafter(init->high, -INFINITY) : value;
}

/* The high half of bits × n_integers: even to one part in 2^64 / n_integers. */
static uint64_t uniform_offset(const RubatoInit *init, uint64_t bits)
{
    if (init->n_integers == 0)
        return bits;
    return (uint64_t)(((unsigned __int128)bits * init->n_integers) >> 64);
}

static void uniform_fill(const RubatoInit *init, RubatoKey key, void *row)
{
    const uint64_t bits = row_bits(init, key);

    for (uint32_t i = 0; i < init->width; i++) {
        const uint64_t column = column_bits(bits, i);

        switch (init->dtype) {
        case RUBATO_F32:
            ((float *)row)[i] = uniform_f32(init, column);
            break;
        case RUBATO_F64:
            ((double *)row)[i] = uniform_f64(init, column);
            break;
        case RUBATO_I32:
            ((int32_t *)row)[i] = (int32_t)(init->lowest + (int64_t)uniform_offset(init, column));
            break;
        case RUBATO_I64:
            ((int64_t *)row)[i] = (int64_t)((uint64_t)init->lowest + uniform_offset(init, column));
            break;
        case RUBATO_U8:  /* in ragged rows alone */
        case RUBATO_F16: /* the rest: of tensors alone */
        case RUBATO_BF16:
        case RUBATO_I8:
        case RUBATO_I16:
        case RUBATO_BOOL:
            break;
        }
    }
}

static void uniform_prepare(RubatoInit *init, const RubatoTableSpec *spec)
{
    init->low = spec->init_low;
    init->high = spec->init_high;
    if (!is_real(spec->dtype)) {
        const double end = ceil(spec->init_high);

        init->lowest = (int64_t)ceil(spec->init_low);
        /* 2^63 itself is no int64_t; modulo 2^64 the difference is right */
        init->n_integers =
            (end >= 0x1p63 ? UINT64_C(1) << 63 : (uint64_t)(int64_t)end) - (uint64_t)init->lowest;
    }
    init->fill = uniform_fill;
}

/* normal */

static bool normal_check(const RubatoTableSpec *spec, GError **error)
{
    const double mean = spec->init_mean, stddev = spec->init_stddev;

    if (!isfinite(mean) || !isfinite(stddev) || stddev < 0)
        return refuse(spec, error,
                      "normal values need finite init_mean and init_stddev of 0 or more");
    if (is_real(spec->dtype) && !fits_real(spec->dtype, fabs(mean) + NORMAL_MAX_DEVIATE * stddev))
        return refuse(spec, error, "init_mean and init_stddev are too large");
    if (!is_real(spec->dtype) &&
        (mean < lowest_integer(spec->dtype) || mean >= integer_end(spec->dtype)))
        return refuse(spec, error, "init_mean lies too far out");
    return true;
}

/* The nearest integer that the dtype holds. */
static int64_t normal_integer(const RubatoInit *init, double normal)
{
    const double value = rint(normal);

    if (value >= integer_end(init->dtype))
        return init->dtype == RUBATO_I32 ? INT32_MAX : INT64_MAX;
    if (value <= lowest_integer(init->dtype))
        return init->dtype == RUBATO_I32 ? INT32_MIN : INT64_MIN;
    return (int64_t)value;
}

static void normal_store(const RubatoInit *init, const double *deviates, size_t n, void *values)
{
    for (size_t i = 0; i < n; i++) {
        const double value = init->mean + init->stddev * deviates[i];

        switch (init->dtype) {
        case RUBATO_F32:
            ((float *)values)[i] = (float)value;
            break;
        case RUBATO_F64:
            ((double *)values)[i] = value;
            break;
        case RUBATO_I32:
            ((int32_t *)values)[i] = (int32_t)normal_integer(init, value);
            break;
        case RUBATO_I64:
            ((int64_t *)values)[i] = normal_integer(init, value);
            break;
        case RUBATO_U8:  /* in ragged rows alone */
        case RUBATO_F16: /* the rest: of tensors alone */
        case RUBATO_BF16:
        case RUBATO_I8:
        case RUBATO_I16:
        case RUBATO_BOOL:
            break;
        }
    }
}

/* The values of n columns, from `first` on, of the row of "normal" that these bits give. */
static void normal_fill_some(const RubatoInit *init, uint64_t bits, size_t first, size_t n,
                             void *values)
{
    const size_t size = rubato_dtype_size(init->dtype);
    double deviates[NORMAL_BLOCK];

    for (size_t begin = 0; begin < n; begin += NORMAL_BLOCK) {
        const size_t some = MIN(n - begin, NORMAL_BLOCK);

        normal_draw(bits, first + begin, some, deviates);
        normal_store(init, deviates, some, (unsigned char *)values + begin * size);
    }
}

static void normal_fill(const RubatoInit *init, RubatoKey key, void *row)
{
    normal_fill_some(init, row_bits(init, key), 0, init->width, row);
}

static void normal_prepare(RubatoInit *init, const RubatoTableSpec *spec)
{
    init->mean = spec->init_mean;
    init->stddev = spec->init_stddev;
    init->fill = normal_fill;
}

/* zero_normal: a row's first value is 0, or the first of every so many. The others are those of a
 * row of "normal" that is narrower by as many values. */

static void zero_normal_fill(const RubatoInit *init, RubatoKey key, void *row)
{
    const uint64_t bits = row_bits(init, key);
    const size_t size = rubato_dtype_size(init->dtype);
    size_t n_drawn = 0;

    for (uint32_t i = 0; i < init->width; i += init->zero_every) {
        unsigned char *values = (unsigned char *)row + i * size;
        const size_t n = MIN(init->zero_every, init->width - i) - 1;

        memset(values, 0, size);
        normal_fill_some(init, bits, n_drawn, n, values + size);
        n_drawn += n;
    }
}

static void zero_normal_prepare(RubatoInit *init, const RubatoTableSpec *spec)
{
    normal_prepare(init, spec);
    init->zero_every = init->width;
    if (spec->init_zero_every > 0)
        init->zero_every = MIN(init->width, spec->init_zero_every);
    init->fill = zero_normal_fill;
}

/* The initialisers that there are, a line each. */
static const InitOps initialisers[] = {
    { "constant", constant_check, constant_prepare },
    { "uniform", uniform_check, uniform_prepare },
    { "normal", normal_check, normal_prepare },
    { "zero_normal", normal_check, zero_normal_prepare },
};

static const InitOps *find_initialiser(const RubatoTableSpec *spec)
{
    for (size_t i = 0; i < G_N_ELEMENTS(initialisers); i++)
        if (strcmp(initialisers[i].name, spec_init_name(spec)) == 0)
            return &initialisers[i];
    return NULL;
}

const char *init_name(size_t i)
{
    return i < G_N_ELEMENTS(initialisers) ? initialisers[i].name : NULL;
}

bool init_check(const RubatoTableSpec *spec, GError **error)
{
    return find_initialiser(spec)->check(spec, error);
}

void init_prepare(RubatoInit *init, const RubatoTableSpec *spec)
{
    const InitOps *ops = find_initialiser(spec);

    assert(ops != NULL);
    *init = (RubatoInit){
        .dtype = spec->dtype,
        .width = spec_width(spec),
        .row_bytes = spec_row_bytes(spec),
        .seed = rubato_mix64(spec->seed ^ UINT64_C(0xa0761d6478bd642f)),
    };
    ops->prepare(init, spec);
}

void init_add_state(RubatoInit *init, const RubatoUpdateOps *ops, const RubatoUpdate *update)
{
    const size_t size = rubato_dtype_size(init->dtype);

    if (update->state_width == 0)
        return;
    init->state_bytes = update->state_width * size;
    init->row_bytes = init->width * size + init->state_bytes;
    init->update = update;
    init->init_state = ops->init_state;
    if (init->is_zero && ops->init_state != NULL) {
        g_autofree unsigned char *row = g_malloc(init->row_bytes);

        rubato_init_row(init, 0, row);
        for (size_t i = 0; i < init->row_bytes; i++)
            init->is_zero &= row[i] == 0;
    }
}

void init_add_stamp(RubatoInit *init, size_t stamp_bytes, const uint64_t *time)
{
    init->stamp_bytes = stamp_bytes;
    init->time = time;
    init->is_zero = false;
}

void init_values(const RubatoInit *init, RubatoKey key, void *values)
{
    init->fill(init, key, values);
}

void init_state(const RubatoInit *init, void *row)
{
    if (init->init_state != NULL)
        init->init_state(init->update, row);
    else
        memset((unsigned char *)row + (init->row_bytes - init->state_bytes), 0, init->state_bytes);
}

void rubato_init_row(const RubatoInit *init, RubatoKey key, void *row)
{
    init->fill(init, key, row);
    if (init->state_bytes > 0)
        init_state(init, row);
    if (init->time != NULL) {
        const uint32_t stamp[] = { (uint32_t)*init->time, 0 };

        memcpy((unsigned char *)row + init->row_bytes, stamp, init->stamp_bytes);
    }
}

void rubato_init_run(const RubatoInit *init, RubatoKey first, uint64_t n, void *rows)
{
    unsigned char *row = rows;

    for (uint64_t i = 0; i < n; i++, row += init->row_bytes)
        rubato_init_row(init, first + i, row);
}

bool rubato_init_is_zero(const RubatoInit *init)
{
    return init->is_zero;
}
