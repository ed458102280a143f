/* Bad deltas.
 *
 * Nearly all deltas are good, so the search only says whether there is a bad one. It works on the
 * bits. Without their signs, the bits of numbers have the same order as the numbers; infinity comes
 * behind them, and NaN behind infinity. So largest - delta, as integers, is negative only for a bad
 * delta. If there is one, a second search looks at each delta and finds its kind.
 *
 * Thread: the shard's present owner. */
#include "models/update/bad_gradients.h"

#include <math.h>
#include <rubato/vector_clones.h>
#include <string.h>

void bad_gradients_clear(BadGradients *bad)
{
    g_clear_pointer(&bad->counts, g_array_unref);
}

enum { N_LANES = 16 }; /* so many that one need not wait for another */

#define DEFINE_SEARCH(suffix, type, word, without_sign)                                         \
    static inline word excess_##suffix(const type *delta, word largest)                         \
    {                                                                                           \
        word bits;                                                                              \
                                                                                                \
        memcpy(&bits, delta, sizeof bits);                                                      \
        return largest - (bits & without_sign);                                                 \
    }                                                                                           \
                                                                                                \
    RUBATO_VECTOR_CLONES static bool are_good_##suffix(const type *deltas, size_t n, type most) \
    {                                                                                           \
        word largest, lanes[N_LANES] = { 0 }, found = 0;                                        \
        size_t i = 0;                                                                           \
                                                                                                \
        memcpy(&largest, &most, sizeof largest);                                                \
        for (; n - i >= N_LANES; i += N_LANES)                                                  \
            for (size_t k = 0; k < N_LANES; k++)                                                \
                lanes[k] |= excess_##suffix(deltas + i + k, largest);                           \
        for (size_t k = 0; k < N_LANES; k++)                                                    \
            found |= lanes[k];                                                                  \
        for (; i < n; i++)                                                                      \
            found |= excess_##suffix(deltas + i, largest);                                      \
        return found >= 0;                                                                      \
    }

DEFINE_SEARCH(f32, float, int32_t, INT32_MAX)
DEFINE_SEARCH(f64, double, int64_t, INT64_MAX)

bool deltas_are_good(RubatoDtype dtype, const void *deltas, size_t n, double largest)
{
    return dtype == RUBATO_F32 ? are_good_f32(deltas, n, (float)largest)
                               : are_good_f64(deltas, n, largest);
}

static BadCounts *counts_of(BadGradients *bad, uint32_t worker)
{
    const uint32_t number = worker + 1; /* 0 of BAD_GRADIENTS_NO_WORKER */

    if (bad->counts == NULL)
        bad->counts = g_array_new(FALSE, /* clear= */ TRUE, sizeof(BadCounts));
    if (bad->counts->len <= number)
        g_array_set_size(bad->counts, number + 1);
    return &g_array_index(bad->counts, BadCounts, number);
}

bool bad_gradients_count(BadGradients *bad, uint32_t worker, RubatoDtype dtype, const void *deltas,
                         size_t n, double largest, bool is_refused)
{
    BadCounts *counts = counts_of(bad, worker);
    const bool had_any = counts->n_nan + counts->n_infinite > 0;

    for (size_t i = 0; i < n; i++) {
        const double delta =
            dtype == RUBATO_F32 ? (double)((const float *)deltas)[i] : ((const double *)deltas)[i];

        if (isnan(delta))
            counts->n_nan++;
        else if (isinf(delta))
            counts->n_infinite++;
        else if (fabs(delta) > largest)
            counts->n_large++;
    }
    counts->n_refused_rows += is_refused;
    return !had_any && counts->n_nan + counts->n_infinite > 0;
}

uint32_t bad_gradients_length(const BadGradients *bad)
{
    return bad->counts == NULL ? 0 : bad->counts->len;
}

void bad_gradients_read(const BadGradients *bad, size_t first, size_t n, BadCounts *counts)
{
    if (n > 0)
        memcpy(counts, &g_array_index(bad->counts, BadCounts, first), n * sizeof *counts);
}

void bad_gradients_set(BadGradients *bad, uint32_t first, uint32_t n, const BadCounts *counts)
{
    if (n == 0)
        return;
    (void)counts_of(bad, bad_gradients_worker(first + n - 1));
    memcpy(&g_array_index(bad->counts, BadCounts, first), counts, n * sizeof *counts);
}
