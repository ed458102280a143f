/* Labels that a loss can be for. Pure functions. */
#include "apps/kit/scores/app_loss.h"

#include <math.h>
#include <stdlib.h>

#include "apps/kit/app.h"

const char *const app_loss_names[] = { "logistic", "hinge", "squared", "softmax", NULL };

void app_loss_clear(AppLoss *loss)
{
    g_clear_pointer(&loss->classes, g_free);
    loss->n_classes = 0;
}

bool app_loss_take(AppLoss *loss, const char *name, GError **error)
{
    size_t kind = 0;

    if (!app_find_word("loss", app_loss_names, name, &kind, error))
        return false;
    loss->kind = (AppLossKind)kind;
    return true;
}

/* What cannot be classes is refused when the model is loaded. */
static void take_loaded_classes(AppLoss *loss, const char *text)
{
    g_auto(GStrv) words = g_strsplit(text != NULL ? text : "", ",", -1);
    const guint n = g_strv_length(words);

    if (loss->kind != APP_LOSS_SOFTMAX || n < 2 || n > APP_CLASSES_MAX)
        return;
    loss->classes = g_new(float, n);
    for (; loss->n_classes < n; loss->n_classes++)
        loss->classes[loss->n_classes] = (float)g_ascii_strtod(words[loss->n_classes], NULL);
}

bool app_loss_follow(AppLoss *loss, const App *app, const char *name, GError **error)
{
    const char *loaded = app_loaded_setting(app, "loss");

    if (loaded != NULL && !g_strv_contains(app_loss_names, loaded))
        loaded = NULL; /* which is refused when the model is loaded */
    if (!app_loss_take(loss, name != NULL ? name : loaded, error))
        return false;
    take_loaded_classes(loss, app_loaded_setting(app, "classes"));
    return true;
}

const char *app_loss_metric(const AppLoss *loss)
{
    return loss->kind == APP_LOSS_SQUARED ? NULL : "accuracy";
}

/* Labels that are words are places among these words. */
static bool check_words(const AppLoss *loss, const RubatoDataKeys *keys, const char *source,
                        GError **error)
{
    if (keys == NULL || keys->label_words == NULL)
        return true;
    if (loss->kind == APP_LOSS_SQUARED) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                    "%s: labels are words, such as \"%s\"; --loss squared needs numbers", source,
                    keys->label_words[0]);
        return false;
    }
    if (keys->n_label_words <= 2 || loss->kind == APP_LOSS_SOFTMAX)
        return true;
    g_set_error(
        error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
        "%s: expected two labels, found %u: \"%s\", \"%s\", \"%s\"%s; --loss softmax is for "
        "more",
        source, keys->n_label_words, keys->label_words[0], keys->label_words[1],
        keys->label_words[2], keys->n_label_words > 3 ? ", …" : "");
    return false;
}

bool app_loss_fit(AppLoss *loss, const RubatoDataSummary *rows, const RubatoDataKeys *keys,
                  const char *source, GError **error)
{
    if (rows->n_rows == 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT, "%s: expected rows, found none",
                    source);
        return false;
    }
    if (!check_words(loss, keys, source, error))
        return false;
    if (loss->kind != APP_LOSS_SQUARED && !(rows->min_label < rows->max_label)) {
        g_autofree char *label = app_data_label_text(keys, (double)rows->min_label);

        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                    "%s: expected two labels, such as -1 and 1; all rows have label %s", source,
                    label);
        return false;
    }
    loss->negative = (double)rows->min_label;
    loss->positive = (double)rows->max_label;
    return true;
}

static bool refuse_label(const AppLoss *loss, RubatoDataset *rows, float label, GError **error)
{
    g_autofree char *place = rubato_dataset_find_label(rows, label);

    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                "%s: expected one of two labels, %g or %g, found %g; --loss softmax is for more",
                place != NULL ? place : "a row", loss->negative, loss->positive, (double)label);
    return false;
}

/* ---- classes ---- */

static int compare_labels(const void *a, const void *b)
{
    const float left = *(const float *)a, right = *(const float *)b;

    return (left > right) - (left < right);
}

uint32_t app_loss_class_of(const AppLoss *loss, float label)
{
    const float *found = loss->n_classes == 0 ? NULL
                                              : bsearch(&label, loss->classes, loss->n_classes,
                                                        sizeof label, compare_labels);

    return found != NULL ? (uint32_t)(found - loss->classes) : loss->n_classes;
}

/* Adds the labels of a batch that are not there yet. */
static bool add_classes(AppLoss *loss, const RubatoBatch *batch, const char *source, GError **error)
{
    for (size_t i = 0; i < batch->n_rows; i++) {
        if (app_loss_class_of(loss, batch->label[i]) < loss->n_classes)
            continue;
        if (loss->n_classes == APP_CLASSES_MAX) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                        "%s: has more than %u different labels, the most that classes may be; "
                        "numbers are for --loss squared, which some programs have",
                        source, APP_CLASSES_MAX);
            return false;
        }
        loss->classes[loss->n_classes++] = batch->label[i];
        qsort(loss->classes, loss->n_classes, sizeof *loss->classes, compare_labels);
    }
    return true;
}

bool app_loss_learn_classes(AppLoss *loss, RubatoDataset *rows, const char *source, GError **error)
{
    const RubatoReaderOptions options = { .batch_rows = 4096 };
    RubatoBatch *batch = NULL;
    bool good = true;

    g_autoptr(RubatoReader) reader = rubato_dataset_open_reader(rows, &options, error);
    if (reader == NULL)
        return false;
    if (loss->classes == NULL)
        loss->classes = g_new(float, APP_CLASSES_MAX);
    while (good && rubato_reader_next(reader, &batch, error))
        good = add_classes(loss, batch, source, error);
    rubato_batch_free(batch);
    return good && !rubato_reader_failed(reader);
}

char *app_loss_classes_text(const AppLoss *loss)
{
    GString *text = g_string_new(NULL);

    for (uint32_t k = 0; k < loss->n_classes; k++) {
        char number[G_ASCII_DTOSTR_BUF_SIZE];

        g_ascii_formatd(number, sizeof number, "%.9g", (double)loss->classes[k]);
        g_string_append_printf(text, "%s%s", k > 0 ? "," : "", number);
    }
    return g_string_free(text, FALSE);
}

uint32_t app_loss_best_class(const AppLoss *loss, const double *scores, double *probability)
{
    uint32_t best = 0;
    double sum = 0;

    for (uint32_t k = 1; k < loss->n_classes; k++)
        if (scores[k] > scores[best])
            best = k;
    for (uint32_t k = 0; k < loss->n_classes; k++)
        sum += exp(scores[k] - scores[best]);
    *probability = 1 / sum;
    return best;
}

double app_loss_of_classes(const AppLoss *loss, float *scores, float label, float scale,
                           size_t *n_right)
{
    const uint32_t n = loss->n_classes, own = app_loss_class_of(loss, label);
    uint32_t best = 0;
    double sum = 0;

    for (uint32_t k = 1; k < n; k++)
        if (scores[k] > scores[best])
            best = k;
    const float highest = scores[best], of_label = scores[own];
    for (uint32_t k = 0; k < n; k++) {
        scores[k] = expf(scores[k] - highest);
        sum += (double)scores[k];
    }
    for (uint32_t k = 0; k < n; k++)
        scores[k] = scale * (scores[k] / (float)sum - (k == own));
    *n_right += best == own;
    return log(sum) + (double)(highest - of_label);
}

double app_loss_of_row(const AppLoss *loss, const double *scores, float label)
{
    double probability;
    float slope;

    if (loss->kind != APP_LOSS_SOFTMAX)
        return (double)app_loss_of(loss, (float)scores[0], label, &slope);
    const uint32_t best = app_loss_best_class(loss, scores, &probability);
    return scores[best] - scores[app_loss_class_of(loss, label)] - log(probability);
}

static bool refuse_class(RubatoDataset *rows, float label, GError **error)
{
    g_autofree char *place = rubato_dataset_find_label(rows, label);

    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                "%s: expected a label that the rows to train on have, found %g",
                place != NULL ? place : "a row", (double)label);
    return false;
}

bool app_loss_check(const AppLoss *loss, RubatoDataset *rows, const RubatoBatch *batch,
                    GError **error)
{
    const float negative = (float)loss->negative, positive = (float)loss->positive;

    if (loss->kind == APP_LOSS_SQUARED)
        return true;
    if (loss->kind == APP_LOSS_SOFTMAX) {
        for (size_t i = 0; i < batch->n_rows; i++)
            if (app_loss_class_of(loss, batch->label[i]) == loss->n_classes)
                return refuse_class(rows, batch->label[i], error);
        return true;
    }
    for (size_t i = 0; i < batch->n_rows; i++)
        if (batch->label[i] != negative && batch->label[i] != positive)
            return refuse_label(loss, rows, batch->label[i], error);
    return true;
}

double app_loss_start(const AppLoss *loss)
{
    return loss->kind == APP_LOSS_SQUARED ? (loss->negative + loss->positive) / 2 : 0;
}
