/* The training of rubato-softmax, by tables or by allreduce.
 *
 * Threads: each worker's own. */
#ifndef RUBATO_APPS_SOFTMAX_SOFTMAX_TRAIN_H
#define RUBATO_APPS_SOFTMAX_SOFTMAX_TRAIN_H

#include "apps/kit/app.h"
#include "apps/softmax/softmax_model.h"

typedef struct {
    App app;
    RubatoImages *train, *test; /* NULL: a loaded model only predicts */
    const char *table;          /* named for the data, so that nodes with other data do not join */
    size_t n_inputs;            /* rows of the table: pixels and the bias */
    uint32_t n_classes;

    /* flags */
    char *dir, *by; /* NULL: not given */
    gboolean generated;
} SoftmaxJob;

/* A RubatoTaskFunc. user_data: a SoftmaxJob. */
bool softmax_train(RubatoWorker *worker, void *user_data, GError **error);

#endif
