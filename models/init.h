/* Initialisers: the value of a row before its first write, and the state behind it.
 *
 * Each value depends on the table's seed, the key and the column alone, so it is the same on every
 * server and at any time.
 *
 * Threads: any once prepared; it is only read. */
#ifndef RUBATO_MODELS_INIT_H
#define RUBATO_MODELS_INIT_H

#include <rubato/storage_ops.h>
#include <rubato/update_ops.h>

/* An initialiser, prepared for its table's dtype. */
struct RubatoInit {
    RubatoDtype dtype;
    uint32_t width;
    size_t row_bytes; /* state included, but not the stamp */
    uint64_t seed;
    bool is_zero;

    /* The state of the update rule; 0 and NULL if it keeps none. */
    size_t state_bytes;
    const RubatoUpdate *update;
    void (*init_state)(const RubatoUpdate *update, void *row);

    /* Behind the state, if rows expire: the time when they are made; NULL: they do not. */
    const uint64_t *time;
    size_t stamp_bytes;

    /* Writes the values of a key's row. */
    void (*fill)(const RubatoInit *init, RubatoKey key, void *row);

    /* constant: one value in its form in memory; for real dtypes low, high of "uniform" or mean,
     * stddev of "normal"; for integers the lowest value and how many there are (0: all 2^64). Of
     * "zero_normal", the first of this many values is 0, from 1 to the width. */
    unsigned char value[8];
    double low, high;
    double mean, stddev;
    int64_t lowest;
    uint64_t n_integers;
    uint32_t zero_every;
};

/* The i-th initialiser's name, NULL past the last. */
const char *init_name(size_t i);

/* Whether the numbers of the spec's (known) initialiser fit its dtype. */
bool init_check(const RubatoTableSpec *spec, GError **error);

/* Prepares the initialiser of a spec that has passed spec_check. */
void init_prepare(RubatoInit *init, const RubatoTableSpec *spec);

/* From now on rows are made with the state of an update rule behind them. update outlives the
 * initialiser. */
void init_add_state(RubatoInit *init, const RubatoUpdateOps *ops, const RubatoUpdate *update);

/* From now on rows are made with a stamp of so many bytes, which says the time. time outlives the
 * initialiser. */
void init_add_stamp(RubatoInit *init, size_t stamp_bytes, const uint64_t *time);

/* Writes the initial values of a key's row, without any state. */
void init_values(const RubatoInit *init, RubatoKey key, void *values);

/* Writes the initial state behind the values of a row. */
void init_state(const RubatoInit *init, void *row);

#endif
