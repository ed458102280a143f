/* Bad deltas.
 *
 * Nearly all deltas are good, so the search only says whether any is not: a comparison and an "or" for
 * each, which vectorise. What kind it is is asked again, delta by delta, where there is one.
 *
 * Thread: the shard's present owner. */
#include "models/bad_gradients.h"

#include <math.h>

void bad_gradients_clear(BadGradients *bad)
{
    g_clear_pointer(&bad->by_worker, g_hash_table_destroy);
}

/* A comparison with what is no number is false. */
#define DEFINE_SEARCH(suffix, type, word, absolute)                           \
    static bool are_good_##suffix(const type *deltas, size_t n, type largest) \
    {                                                                         \
        word n_bad = 0;                                                       \
                                                                              \
        for (size_t i = 0; i < n; i++)                                        \
            n_bad |= (word) !(absolute(deltas[i]) <= largest);                \
        return n_bad == 0;                                                    \
    }

DEFINE_SEARCH(f32, float, uint32_t, fabsf)
DEFINE_SEARCH(f64, double, uint64_t, fabs)

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
