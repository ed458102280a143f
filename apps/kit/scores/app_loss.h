/* Losses of a row's score, and the labels that the rows have for them.
 *
 * Threads: any. */
#ifndef RUBATO_APPS_KIT_SCORES_APP_LOSS_H
#define RUBATO_APPS_KIT_SCORES_APP_LOSS_H

#include <math.h>

#include <rubato/data.h>

typedef struct App App;

typedef enum {
    APP_LOSS_LOGISTIC, /* log(1 + exp(−±score)) */
    APP_LOSS_HINGE,    /* max(0, 1 − ±score) */
    APP_LOSS_SQUARED,  /* (score − label)² / 2 */
} AppLossKind;

typedef struct {
    AppLossKind kind;
    double negative,
        positive; /* the two labels that there are; squared: the least and the largest */
} AppLoss;

/* "logistic", …; ended by NULL, in the order of AppLossKind. */
extern const char *const app_loss_names[];

/* Takes the kind by its name, NULL for the first. RUBATO_ERROR_INVALID, of --loss, if there is none
 * of that name. */
bool app_loss_take(AppLoss *loss, const char *name, GError **error);

/* The same after app_start: a flag of NULL means the loss of the loaded model, if there is one. */
bool app_loss_follow(AppLoss *loss, const App *app, const char *name, GError **error);

/* What workers count beside the loss, as AppProgram has it; NULL: nothing. */
const char *app_loss_metric(const AppLoss *loss);

/* Takes the labels from rows, whose keys may be NULL. RUBATO_ERROR_FORMAT if there are none, if
 * they are all the same but two are needed, or if they are words where numbers are needed, or other
 * than two of them; `source` names the rows in the message. */
bool app_loss_fit(AppLoss *loss, const RubatoDataSummary *rows, const RubatoDataKeys *keys,
                  const char *source, GError **error);

/* RUBATO_ERROR_FORMAT, with file and line, if a batch of these rows has a third label. */
bool app_loss_check(const AppLoss *loss, RubatoDataset *rows, const RubatoBatch *batch,
                    GError **error);

/* The initial value of a learned bias. */
double app_loss_start(const AppLoss *loss);

/* Whether the score's sign fits the label; always false for the squared loss. */
static inline bool app_loss_is_right(const AppLoss *loss, float score, float label)
{
    return loss->kind != APP_LOSS_SQUARED && (score > 0) == ((double)label >= loss->positive);
}

/* The loss of a score, and its slope there. */
static inline float app_loss_of(const AppLoss *loss, float score, float label, float *slope)
{
    const float sign = (double)label >= loss->positive ? 1 : -1;
    const float margin = sign * score;

    switch (loss->kind) {
    case APP_LOSS_SQUARED:
        *slope = score - label;
        return *slope * *slope / 2;
    case APP_LOSS_HINGE:
        *slope = margin < 1 ? -sign : 0;
        return margin < 1 ? 1 - margin : 0;
    case APP_LOSS_LOGISTIC:
    default: {
        const float small = expf(-fabsf(margin)); /* so that nothing overflows */

        *slope = -sign * (margin > 0 ? small : 1) / (1 + small);
        return log1pf(small) + (margin < 0 ? -margin : 0);
    }
    }
}

#endif
