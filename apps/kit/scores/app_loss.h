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
    APP_LOSS_SOFTMAX,  /* a score for each class: −log(exp(the label's) / Σ exp(each)) */
} AppLossKind;

#define APP_CLASSES_MAX 1000u

typedef struct {
    AppLossKind kind;
    double negative,
        positive; /* the two labels that there are; squared: the least and the largest */

    /* softmax */
    float *classes; /* n_classes labels, ascending; NULL: not known yet */
    uint32_t n_classes;
} AppLoss;

void app_loss_clear(AppLoss *loss);

/* How many scores a row has. */
static inline uint32_t app_loss_n_scores(const AppLoss *loss)
{
    return loss->kind == APP_LOSS_SOFTMAX ? loss->n_classes : 1;
}

/* "logistic", …; ended by NULL, in the order of AppLossKind. */
extern const char *const app_loss_names[];

/* Takes the kind by its name, NULL for the first. RUBATO_ERROR_INVALID, of --loss, if there is none
 * of that name. */
bool app_loss_take(AppLoss *loss, const char *name, GError **error);

/* The same after app_start: a flag of NULL means the loss of the loaded model, if there is one.
 * Classes are the loaded model's. */
bool app_loss_follow(AppLoss *loss, const App *app, const char *name, GError **error);

/* What workers count beside the loss, as AppProgram has it; NULL: nothing. */
const char *app_loss_metric(const AppLoss *loss);

/* Takes the labels from rows, whose keys may be NULL. RUBATO_ERROR_FORMAT if there are none, if
 * they are all the same but two are needed, or if they are words where numbers are needed, or other
 * than two of them; `source` names the rows in the message. */
bool app_loss_fit(AppLoss *loss, const RubatoDataSummary *rows, const RubatoDataKeys *keys,
                  const char *source, GError **error);

/* With softmax: adds the classes that the rows have to those learned so far, which were not loaded
 * with a model. RUBATO_ERROR_FORMAT if there are too many. */
bool app_loss_learn_classes(AppLoss *loss, RubatoDataset *rows, const char *source, GError **error);

/* The classes as a model's setting: "1,2,5"; empty without softmax. (transfer full) */
char *app_loss_classes_text(const AppLoss *loss);

/* The place of a label among the classes; n_classes if it is none of them. */
uint32_t app_loss_class_of(const AppLoss *loss, float label);

/* The class with the highest of n_classes scores, and its probability. */
uint32_t app_loss_best_class(const AppLoss *loss, const double *scores, double *probability);

/* The loss of a row's scores by softmax, in whose place its slopes are put, multiplied by `scale`.
 * Adds one to *n_right if the label's score is the highest. */
double app_loss_of_classes(const AppLoss *loss, float *scores, float label, float scale,
                           size_t *n_right);

/* The loss of a row's scores, of any kind. */
double app_loss_of_row(const AppLoss *loss, const double *scores, float label);

/* RUBATO_ERROR_FORMAT, with file and line, if a batch of these rows has a third label, or with
 * softmax one that is no class. */
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
    case APP_LOSS_SOFTMAX: /* which has more than one score */
    case APP_LOSS_LOGISTIC:
    default: {
        const float small = expf(-fabsf(margin)); /* so that nothing overflows */

        *slope = -sign * (margin > 0 ? small : 1) / (1 + small);
        return log1pf(small) + (margin < 0 ? -margin : 0);
    }
    }
}

#endif
