/* What the rows to train on say of each key: how many entries it has there, and how --standardize
 * changes its values.
 *
 * A standardised value is (value − mean) × scale. If every row has the key, or it is a column of
 * numbers in csv, mean and deviation are those of its values, and scale is 1 / deviation: an empty
 * cell then counts as the mean. Values of other keys keep their zeros: mean is 0, and scale is 1 /
 * the root of the mean of the squares. So keys whose values are all 1 stay as they are. Keys that
 * the rows to train on do not have stay as they are, too. A column that has the same value in every
 * row becomes 0.
 *
 * Threads: any that only read; learning, loading and saving are main's. */
#ifndef RUBATO_APPS_KIT_SCORES_APP_FEATURES_H
#define RUBATO_APPS_KIT_SCORES_APP_FEATURES_H

#include "apps/kit/app.h"

/* The table that has mean and scale of the keys whose values change; it is saved with the model. */
#define APP_SCALING "scaling"

typedef struct AppFeatures AppFeatures;

/* Reads all rows once. (transfer full) */
AppFeatures *app_features_learn(RubatoDataset *rows, GError **error);

/* NULL is allowed. */
void app_features_free(AppFeatures *features);

/* For penalties on all weights, which are paid at the entries of their keys: for each key of a
 * batch, all n_rows rows / the entries of the key in them. What the entries pay adds up to the same
 * for each weight, and a row needs only the weights of its own keys. shares: n_keys. */
void app_features_shares(const AppFeatures *features, const RubatoBatch *batch, uint64_t n_rows,
                         float *shares);

/* Mean and scale of a key. */
void app_features_scaling(const AppFeatures *features, RubatoKey key, double *mean, double *scale);

/* The spec of the table, without a consistency model. */
RubatoTableSpec app_features_table(void);

/* After app_create_model: fills the table from what was learned or, of a loaded model, takes mean
 * and scale from the table; what was learned of them is then given up. Collective. */
bool app_features_settle(AppFeatures **features, const App *app, GError **error);

/* A batch whose values are standardised; it grows with the largest batch. */
typedef struct {
    RubatoBatch batch; /* valid as long as the batch that it was made of */
    float *values;
    size_t n_max;
} AppScaledBatch;

void app_scaled_batch_clear(AppScaledBatch *scaled);

/* RUBATO_ERROR_MEMORY if there is none. */
bool app_scaled_batch_fill(AppScaledBatch *scaled, const AppFeatures *features,
                           const RubatoBatch *batch, GError **error);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(AppFeatures, app_features_free)

#endif
