/* Statistics of keys. Every node learns them from the same rows in the same order, so that all have
 * the same. Means and deviations by B. Welford, 1962. Runs on main's thread; workers read. */
#include "apps/kit/scores/app_features.h"

#include <math.h>

#define LEARNED_AT_ONCE 4096
#define SAVED_AT_ONCE 4096
#define CONSTANT 1e-6 /* a deviation below this share of the mean is rounding */

typedef struct {
    RubatoKey key;
    uint64_t n; /* entries */
    double mean, squares;
    bool is_number;      /* csv: in a column of numbers */
    double shift, scale; /* how values change */
} Feature;

struct AppFeatures {
    GHashTable *by_key; /* of Feature *, by its key */
};

static AppFeatures *features_new(void)
{
    AppFeatures *features = g_new0(AppFeatures, 1);

    features->by_key = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, g_free);
    return features;
}

void app_features_free(AppFeatures *features)
{
    if (features == NULL)
        return;
    g_hash_table_unref(features->by_key);
    g_free(features);
}

static Feature *find(const AppFeatures *features, RubatoKey key)
{
    return g_hash_table_lookup(features->by_key, &key);
}

static Feature *find_or_add(AppFeatures *features, RubatoKey key)
{
    Feature *feature = find(features, key);

    if (feature != NULL)
        return feature;
    feature = g_new0(Feature, 1);
    *feature = (Feature){ .key = key, .scale = 1 };
    g_hash_table_insert(features->by_key, &feature->key, feature);
    return feature;
}

/* ---- learned ---- */

/* Whether an entry is a cell of a column of numbers; its key is then the column. */
static bool is_number(const RubatoDataKeys *keys, const RubatoBatch *batch, size_t entry)
{
    const RubatoKey key = batch->keys[batch->index[entry]];

    if (keys->n_columns == 0 || key != batch->field[entry])
        return false;
    for (uint32_t i = 0; i < keys->n_categorical_columns; i++)
        if (keys->categorical_columns[i] == key)
            return false;
    return true;
}

static void take_batch(AppFeatures *features, const RubatoDataKeys *keys, const RubatoBatch *batch)
{
    g_autofree Feature **of_key = g_new(Feature *, MAX(1, batch->n_keys));

    for (size_t k = 0; k < batch->n_keys; k++)
        of_key[k] = find_or_add(features, batch->keys[k]);
    for (size_t e = 0; e < batch->n_entries; e++) {
        Feature *feature = of_key[batch->index[e]];
        const double value = (double)batch->value[e], above = value - feature->mean;

        feature->n++;
        feature->mean += above / (double)feature->n;
        feature->squares += above * (value - feature->mean);
        if (feature->n == 1)
            feature->is_number = is_number(keys, batch, e);
    }
}

static void choose_scaling(Feature *feature, uint64_t n_rows)
{
    const double mean = feature->mean, variance = feature->squares / (double)feature->n;
    const bool is_centred = feature->is_number || feature->n == n_rows;
    const double size = sqrt(is_centred ? variance : variance + mean * mean);

    feature->shift = is_centred ? mean : 0;
    feature->scale = size > CONSTANT * fabs(mean) ? 1 / size : 0;
    if (!is_centred && feature->scale <= 0)
        feature->scale = 1; /* all values are 0 */
}

AppFeatures *app_features_learn(RubatoDataset *rows, GError **error)
{
    const RubatoReaderOptions options = { .batch_rows = LEARNED_AT_ONCE };
    g_autoptr(RubatoReader) reader = rubato_dataset_open_reader(rows, &options, error);
    g_autoptr(AppFeatures) features = features_new();
    RubatoBatch *batch = NULL;
    uint64_t n_rows = 0;
    GHashTableIter iter;
    gpointer feature;

    if (reader == NULL)
        return NULL;
    while (rubato_reader_next(reader, &batch, error)) {
        take_batch(features, rubato_dataset_keys(rows), batch);
        n_rows += batch->n_rows;
    }
    if (rubato_reader_failed(reader))
        return NULL;
    g_hash_table_iter_init(&iter, features->by_key);
    while (g_hash_table_iter_next(&iter, NULL, &feature))
        choose_scaling(feature, n_rows);
    return g_steal_pointer(&features);
}

void app_features_shares(const AppFeatures *features, const RubatoBatch *batch, uint64_t n_rows,
                         float *shares)
{
    for (size_t k = 0; k < batch->n_keys; k++) {
        const Feature *feature = find(features, batch->keys[k]);

        shares[k] = feature != NULL ? (float)((double)n_rows / (double)feature->n) : 1;
    }
}

void app_features_scaling(const AppFeatures *features, RubatoKey key, double *mean, double *scale)
{
    const Feature *feature = find(features, key);

    *mean = feature != NULL ? feature->shift : 0;
    *scale = feature != NULL ? feature->scale : 1;
}

/* ---- kept with the model ---- */

RubatoTableSpec app_features_table(void)
{
    return (
        RubatoTableSpec){ .name = APP_SCALING, .dtype = RUBATO_F64, .width = 2, .storage = "hash" };
}

static bool changes(const Feature *feature)
{
    return fabs(feature->shift) > 0 || fabs(feature->scale - 1) > 0;
}

static bool save(const AppFeatures *features, const App *app, GError **error)
{
    RubatoKey keys[SAVED_AT_ONCE];
    double rows[SAVED_AT_ONCE][2];
    size_t n = 0;
    GHashTableIter iter;
    gpointer value;

    g_hash_table_iter_init(&iter, features->by_key);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const Feature *feature = value;

        if (!changes(feature))
            continue;
        keys[n] = feature->key;
        rows[n][0] = feature->shift;
        rows[n++][1] = feature->scale;
        if (n < SAVED_AT_ONCE)
            continue;
        if (!rubato_engine_set(app->engine, APP_SCALING, keys, n, rows, error))
            return false;
        n = 0;
    }
    return rubato_engine_set(app->engine, APP_SCALING, keys, n, rows, error);
}

static bool load(AppFeatures *features, const App *app, GError **error)
{
    g_autofree RubatoKey *keys = NULL;
    GHashTableIter iter;
    gpointer value;
    size_t n;

    g_hash_table_iter_init(&iter, features->by_key);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        ((Feature *)value)->shift = 0;
        ((Feature *)value)->scale = 1;
    }
    if (!rubato_engine_list_keys(app->engine, APP_SCALING, &keys, &n, error))
        return false;
    g_autofree double *rows = g_new(double, 2 * MAX(1, n));
    if (!rubato_engine_get(app->engine, APP_SCALING, keys, n, rows, error))
        return false;
    for (size_t i = 0; i < n; i++) {
        Feature *feature = find_or_add(features, keys[i]);

        feature->shift = rows[2 * i];
        feature->scale = rows[2 * i + 1];
    }
    return true;
}

bool app_features_settle(AppFeatures **features, const App *app, GError **error)
{
    if (app->load == NULL)
        return (!app_reports(app) || save(*features, app, error)) &&
               rubato_engine_barrier(app->engine, error);
    if (*features == NULL)
        *features = features_new();
    return load(*features, app, error) && rubato_engine_barrier(app->engine, error);
}

/* ---- batches ---- */

void app_scaled_batch_clear(AppScaledBatch *scaled)
{
    g_free(scaled->values);
    *scaled = (AppScaledBatch){ .values = NULL };
}

bool app_scaled_batch_fill(AppScaledBatch *scaled, const AppFeatures *features,
                           const RubatoBatch *batch, GError **error)
{
    const size_t n = batch->n_entries + 2 * batch->n_keys;

    if (n > scaled->n_max) {
        app_scaled_batch_clear(scaled);
        scaled->values = g_try_new(float, n);
        if (scaled->values == NULL) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                        "no memory for a batch of %zu entries: give a smaller --batch-size",
                        batch->n_entries);
            return false;
        }
        scaled->n_max = n;
    }
    float *const shift = scaled->values + batch->n_entries, *const scale = shift + batch->n_keys;
    for (size_t k = 0; k < batch->n_keys; k++) {
        double mean, factor;

        app_features_scaling(features, batch->keys[k], &mean, &factor);
        shift[k] = (float)mean;
        scale[k] = (float)factor;
    }
    for (size_t e = 0; e < batch->n_entries; e++)
        scaled->values[e] = (batch->value[e] - shift[batch->index[e]]) * scale[batch->index[e]];
    scaled->batch = *batch;
    scaled->batch.value = scaled->values;
    return true;
}
