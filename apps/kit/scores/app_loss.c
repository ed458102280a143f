/* Labels that a loss can be for. Pure functions. */
#include "apps/kit/scores/app_loss.h"

#include "apps/kit/app.h"

const char *const app_loss_names[] = { "logistic", "hinge", "squared", NULL };

bool app_loss_take(AppLoss *loss, const char *name, GError **error)
{
    size_t kind = 0;

    if (!app_find_word("loss", app_loss_names, name, &kind, error))
        return false;
    loss->kind = (AppLossKind)kind;
    return true;
}

bool app_loss_follow(AppLoss *loss, const App *app, const char *name, GError **error)
{
    const char *loaded = app_loaded_setting(app, "loss");

    if (loaded != NULL && !g_strv_contains(app_loss_names, loaded))
        loaded = NULL; /* which is refused when the model is loaded */
    return app_loss_take(loss, name != NULL ? name : loaded, error);
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
    if (keys->n_label_words <= 2)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                "%s: expected two labels, found %u: \"%s\", \"%s\", \"%s\"%s", source,
                keys->n_label_words, keys->label_words[0], keys->label_words[1],
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
                "%s: expected one of two labels, %g or %g, found %g",
                place != NULL ? place : "a row", loss->negative, loss->positive, (double)label);
    return false;
}

bool app_loss_check(const AppLoss *loss, RubatoDataset *rows, const RubatoBatch *batch,
                    GError **error)
{
    const float negative = (float)loss->negative, positive = (float)loss->positive;

    if (loss->kind == APP_LOSS_SQUARED)
        return true;
    for (size_t i = 0; i < batch->n_rows; i++)
        if (batch->label[i] != negative && batch->label[i] != positive)
            return refuse_label(loss, rows, batch->label[i], error);
    return true;
}

double app_loss_start(const AppLoss *loss)
{
    return loss->kind == APP_LOSS_SQUARED ? (loss->negative + loss->positive) / 2 : 0;
}
