/* rubato-gbdt: what its files share.
 *
 *   gbdt.c         the tables, evaluation and prediction
 *   gbdt_load.c    flags, and what follows from them and from the rows
 *   gbdt_train.c   how trees grow
 *   gbdt_bins.c    values as small numbers
 *   gbdt_rows.c    a worker's rows while a tree grows
 *   gbdt_split.c   the best split, which servers find
 *   gbdt_forest.c  trees, and the rows that walk through them
 *
 * Threads: main, except as said. */
#ifndef RUBATO_APPS_GBDT_GBDT_JOB_H
#define RUBATO_APPS_GBDT_GBDT_JOB_H

#include "apps/gbdt/gbdt_forest.h"
#include "apps/gbdt/gbdt_rows.h"
#include "apps/kit/app.h"
#include "apps/kit/scores/app_rows.h"

/* The tables: nodes of trees; and histograms, a row for each node of a level. */
#define GBDT_TREES "trees"
#define GBDT_HISTOGRAMS "histograms"

/* A worker's rows. */
typedef struct {
    AppDense dense; /* their values, until they are scored */
    GbdtRows rows;
    bool is_scored; /* scores count all trees so far */
} GbdtShare;

/* The rows of --validate, on the reporting node: each round adds only its own trees to their
 * scores. */
typedef struct {
    GArray *scores;   /* of double, row by row, by the trees that there were; NULL: none yet */
    size_t row;       /* the next that is scored */
    uint64_t n_trees; /* of these scores */
} GbdtValidation;

typedef struct {
    App app;
    AppProgram program;

    /* flags */
    AppData data;
    char *loss_name; /* NULL: not given */
    int n_bins, max_depth;
    GbdtTerms terms; /* once there are bins: all of it */

    AppLoss loss;
    AppRows rows;
    uint32_t depth;
    GbdtBins bins;     /* of a model that is only loaded: the number of columns alone */
    double scale;      /* the fixed-point numbers of 1.0 */
    uint64_t n_loaded; /* rounds of the loaded model */
    GbdtShare *shares; /* by rank; those of other nodes' workers stay zeroed */
    uint32_t n_shares;
    GbdtForest forest; /* of the reporting node; zeroed: to be read */
    GbdtValidation validation;
} GbdtJob;

/* Reads the flags. False if one is wrong, after printing what is wrong: APP_EXIT_USAGE. */
bool gbdt_parse(GbdtJob *job, int argc, char **argv);

/* After app_start: opens the rows and cuts their values into bins. Collective. */
bool gbdt_load(GbdtJob *job, GError **error);

/* Two tasks; their user_data is the job. The first reads each worker's rows, the second grows
 * trees. Workers. */
bool gbdt_read_share(RubatoWorker *worker, void *user_data, GError **error);
bool gbdt_train(RubatoWorker *worker, void *user_data, GError **error);

/* After app_create_model: how many rounds the loaded model has. */
bool gbdt_count_loaded(GbdtJob *job, GError **error);

/* Reads all trees that there are. Main, or a worker before it has added any. */
bool gbdt_read_forest(const GbdtJob *job, GbdtForest *forest, GError **error);

/* Reads the trees first .. end - 1, which this run has added. */
bool gbdt_read_trees(const GbdtJob *job, uint64_t first, uint64_t end, GbdtForest *forest,
                     GError **error);

/* Frees everything, after printing the error if there is one; the program's exit status. */
int gbdt_end(GbdtJob *job, const GError *error);

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(GbdtForest, gbdt_forest_clear)

#endif
