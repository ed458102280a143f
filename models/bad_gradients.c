/* Bad deltas.
 *
 * Nearly all deltas are good, so the search only says whether any is not. It works on the bits: without
 * their signs, the bits of numbers are ordered as the numbers are, behind them comes infinity, and
 * behind that what is no number. So largest - delta, as integers, is negative for a bad one alone. What
 * kind it is is asked again, delta by delta, where there is one.
 *
 * Thread: the shard's present owner. */
#include "models/bad_gradients.h"

#include <math.h>
#include <string.h>

void bad_gradients_clear(BadGradients *bad)
{
    g_clear_pointer(&bad->by_worker, g_hash_table_destroy);
}

enum { N_LANES = 16 }; /* so many that one need not wait for another */

#define DEFINE_SEARCH(suffix, type, word, without_sign)                    \
    static inline word excess_##suffix(const type *delta, word largest)    \
    {                                                                      \
        word bits;                                                         \
                                                                           \
        memcpy(&bits, delta, sizeof bits);                                 \
        return largest - (bits & without_sign);                            \
    }                                                                      \
                                                                           \
    static bool are_good_##suffix(const type *deltas, size_t n, type most) \
    {                                                                      \
        word largest, lanes[N_LANES] = { 0 }, found = 0;                   \
        size_t i = 0;                                                      \
                                                                           \
        memcpy(&largest, &most, sizeof largest);                           \
        for (; n - i >= N_LANES; i += N_LANES)                             \
            for (size_t k = 0; k < N_LANES; k++)                           \
                lanes[k] |= excess_##suffix(deltas + i + k, largest);      \
        for (size_t k = 0; k < N_LANES; k++)                               \
            found |= lanes[k];                                             \
        for (; i < n; i++)                                                 \
            found |= excess_##suffix(deltas + i, largest);                 \
        return found >= 0;                                                 \
    }

DEFINE_SEARCH(f32, float, int32_t, INT32_MAX)
DEFINE_SEARCH(f64, double, int64_t, INT64_MAX)

bool deltas_are_good(RubatoDtype dtype, const void *deltas, size_t n, double largest)
{
    return dtype == RUBATO_F32 ? are_good_f32(deltas, n, (float)largest)
                               : are_good_f64(deltas, n, largest);
}

static RubatoBadGradients *counts_of(BadGradients *bad, uint32_t worker)
{
    RubatoBadGradients *counts;

    if (bad->by_worker == NULL)
        bad->by_worker = g_hash_table_new_full(NULL, NULL, NULL, g_free);
    counts = g_hash_table_lookup(bad->by_worker, GUINT_TO_POINTER(worker));
    if (counts == NULL) {
        counts = g_new0(RubatoBadGradients, 1);
        counts->worker = worker;
        g_hash_table_insert(bad->by_worker, GUINT_TO_POINTER(worker), counts);
    }
    return counts;
}

void bad_gradients_count(BadGradients *bad, uint32_t worker, RubatoDtype dtype, const void *deltas,
                         size_t n, double largest, bool is_refused)
{
    RubatoBadGradients *counts = counts_of(bad, worker);

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
}

void bad_gradients_collect(const BadGradients *bad, GArray *counts)
{
    GHashTableIter iter;
    void *value;

    if (bad->by_worker == NULL)
        return;
    g_hash_table_iter_init(&iter, bad->by_worker);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const RubatoBadGradients *found = value;
        RubatoBadGradients *at;
        guint i = 0;

        while (i < counts->len &&
               g_array_index(counts, RubatoBadGradients, i).worker < found->worker)
            i++;
        if (i == counts->len ||
            g_array_index(counts, RubatoBadGradients, i).worker != found->worker)
            g_array_insert_val(counts, i, ((RubatoBadGradients){ .worker = found->worker }));
        at = &g_array_index(counts, RubatoBadGradients, i);
        at->n_nan += found->n_nan;
        at->n_infinite += found->n_infinite;
        at->n_large += found->n_large;
        at->n_refused_rows += found->n_refused_rows;
    }
}
