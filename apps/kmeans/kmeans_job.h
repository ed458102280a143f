/* rubato-kmeans: what its files share.
 *
 *   kmeans.c        tables, Lloyd's iterations and mini-batches, evaluation and prediction
 *   kmeans_flags.c  flags
 *   kmeans_seed.c   the first centres
 *   kmeans_model.c  the arithmetic
 *
 * Threads: main, except as said. */
#ifndef RUBATO_APPS_KMEANS_KMEANS_JOB_H
#define RUBATO_APPS_KMEANS_KMEANS_JOB_H

#include "apps/kit/app.h"
#include "apps/kit/scores/app_rows.h"
#include "apps/kmeans/kmeans_model.h"

/* Tables: what is saved, and the sums that centres follow from: one for each cluster, and a row
 * whose first value is how often a row has changed its cluster. */
#define KMEANS_CENTRES "centers"
#define KMEANS_SUMS "sums"

#define KMEANS_CLUSTERS 10 /* unless told otherwise */
#define KMEANS_CLUSTERS_MAX (1 << 20)

typedef enum {
    KMEANS_SEED_PLUS_PLUS, /* one centre after another */
    KMEANS_SEED_PARALLEL,  /* many candidates at a time */
} KmeansSeed;

typedef struct {
    App app;
    AppProgram program;

    /* flags */
    AppData data;
    char *seed_name; /* NULL: not given */
    KmeansSeed seed;
    int n_clusters; /* perhaps not given, until it is settled */
    double tolerance;

    AppLoss loss; /* its labels are not looked at */
    AppRows rows;
    uint32_t n_columns;
    KmeansShare *shares; /* by rank; those of other nodes' workers stay zeroed */
    uint32_t n_shares;
    KmeansCentres final; /* of the reporting node, after training; for tests and predictions */
} KmeansJob;

/* Reads the flags. False if one is wrong, after printing what is wrong: APP_EXIT_USAGE. */
bool kmeans_parse(KmeansJob *job, int argc, char **argv);

/* Frees everything, after printing the error if there is one; the program's exit status. */
int kmeans_end(KmeansJob *job, const GError *error);

/* Reads a worker's rows, unless an earlier task did. A worker's thread. */
bool kmeans_load_share(KmeansJob *job, RubatoWorker *worker, GError **error);

/* Fills the table of centres, which is new. Collective. */
bool kmeans_seed(KmeansJob *job, GError **error);

#endif
