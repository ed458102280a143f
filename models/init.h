/* Initialisers: the value of a row that nobody has written.
 *
 * Each value follows from the table's seed, the key and the column alone, so it is the same
 * whichever server holds the row, and whenever it is asked.
 *
 * Threads: any once prepared; it is only read. */
#ifndef RUBATO_MODELS_INIT_H
#define RUBATO_MODELS_INIT_H

#include <rubato/storage_ops.h>

/* The numbers of an initialiser, made ready for its table's dtype. */
struct RubatoInit {
    RubatoDtype dtype;
    uint32_t width;
    size_t row_bytes;
    uint64_t seed;
    bool is_zero;

    /* Writes the row of a key. */
    void (*fill)(const RubatoInit *init, RubatoKey key, void *row);

    /* constant: one value, as it lies in memory; for real dtypes low, high of "uniform" or mean,
     * stddev of "normal"; for integers the lowest value and how many there are (0: all 2^64). */
    unsigned char value[8];
    double low, high;
    double mean, stddev;
    int64_t lowest;
    uint64_t n_integers;
};

/* The i-th initialiser's name, NULL past the last. */
const char *init_name(size_t i);

/* Whether the spec's initialiser, which is a known one, makes sense for its dtype. */
bool init_check(const RubatoTableSpec *spec, GError **error);

/* Takes what it needs out of a spec that has passed spec_check. */
void init_prepare(RubatoInit *init, const RubatoTableSpec *spec);

#endif
