/* What the programs share: flags, start and end, the model's tables, progress, the result card.
 *
 *     app_parse → app_start → load data → app_create_model → app_train → evaluate → app_finish
 *     → app_end
 *
 * From app_start to app_finish every node makes the same calls. On a cluster one node reports for
 * all: the one that has worker 0. It alone reads and writes files that the shared flags name, and
 * evaluates; the others print errors only.
 *
 * Threads: calls that take an AppWorker or a RubatoWorker come from that worker; all others from
 * main. */
#ifndef RUBATO_APPS_KIT_APP_H
#define RUBATO_APPS_KIT_APP_H

#include <float.h>
#include <pthread.h>
#include <rubato/rubato.h>
#include <semaphore.h>
#include <stdio.h>

#include "apps/kit/app_data.h"
#include "apps/kit/report/app_curve.h"
#include "apps/kit/report/app_progress.h"
#include "apps/kit/report/app_waits.h"

/* What is special about a program. */
typedef struct {
    const char *name;            /* "rubato-lr" */
    const char *summary;         /* of what it does, for --help */
    const GOptionEntry *options; /* flags of its own, ended by G_OPTION_ENTRY_NULL */
    char *const *by;             /* what its --by says; NULL: it has no such flag */

    /* Those of them that are refused if nothing is trained, and if a loaded model is used without
     * rows to train on; names ended by NULL. NULL: none. */
    const char *const *of_training, *const *of_rows;

    AppData *data;      /* takes the flags of training data; NULL: the program has none of them */
    const char *metric; /* what its workers count beside the loss, "accuracy"; NULL: nothing */

    /* Checks and takes over the flags of its own, after the shared ones; NULL: nothing to do. */
    bool (*take_flags)(void *user_data, GError **error);
    void *user_data;

    /* What the shared flags are when they are not given. */
    uint32_t epochs, batch_size; /* batch_size: or one of those below */
    uint32_t batch_size_softmax; /* app_rows_open's, with softmax; 0: batch_size */
    double learning_rate;        /* 0: take_flags sets it if the flag was not given; or
                           * APP_NO_LEARNING_RATE: the flag is refused */
    const char *no_standardize;  /* why it has no use for --standardize; NULL: it has */
    const char *default_train;   /* rows that --train means where they are; NULL: none */

    bool has_steps; /* its workers call app_worker_checkpoint, and begin at app_worker_first_step */
    bool combines;  /* they do so in each step whatever the flags are, so all are at the same one */
    bool keeps_rows; /* and app_worker_begin_adds and _end_adds, with rows of app_rows_read: so
                      * snapshots have which rows of a dynamic split are done */
} AppProgram;

/* A step takes all rows; or the flag is refused. */
#define APP_WHOLE_BATCHES 0
#define APP_NO_BATCH_SIZE UINT32_MAX

#define APP_NO_LEARNING_RATE (-1.0)

typedef struct {
    char *name;
    double value;
} AppMetric;

/* Why training ended before its last epoch. */
typedef enum {
    APP_STOPPED_NOT,
    APP_STOPPED_BY_TIME,        /* --time-limit */
    APP_STOPPED_BY_LOSS,        /* --target-loss */
    APP_STOPPED_BY_SIGNAL,      /* with --save or --checkpoint */
    APP_STOPPED_BY_PATIENCE,    /* --validate */
    APP_STOPPED_BY_CONVERGENCE, /* the program's own, on every node */
} AppStopped;

/* What validation found after an epoch. */
typedef struct {
    uint32_t epoch; /* from 1 */
    double seconds; /* of training until then */
    double loss;
} AppValidatedEpoch;

/* --validate, on the node that reports. */
typedef struct {
    uint32_t patience;   /* epochs without a better loss; 0: no end of it */
    GArray *epochs;      /* of AppValidatedEpoch; NULL: there is no validation */
    uint32_t best_epoch; /* 0: none */
    double best_loss;
} AppValidated;

struct App {
    const AppProgram *program;

    /* The flags; immutable once parsed. A file or folder that was not given is NULL. */
    char *model;
    const RubatoModelTraits *model_traits;
    bool by_allreduce;               /* workers combine their gradients so, and not by tables */
    uint32_t staleness, speculation; /* 0 if the model has none */
    uint32_t parts;                  /* of each table; 0: one for each server thread */
    uint32_t replicas;               /* of each part */
    uint32_t epochs;                 /* 0: no training */
    bool only_loads;     /* a loaded model predicts or is tested; no rows to train on are needed */
    uint32_t batch_size; /* rows of a step, over all workers together */
    bool has_batch_size; /* a flag said so */
    double learning_rate;
    uint64_t seed;
    char *json; /* "-": standard output */
    char *save, *load;
    char *predict;
    char *output; /* "-": standard output */
    char *plot;
    char *checkpoint; /* a directory of snapshots */
    /* How often: one of the three, the others are 0. */
    uint32_t checkpoint_every; /* epochs */
    uint64_t checkpoint_steps;
    double checkpoint_seconds;
    uint32_t full_every; /* of so many snapshots one has all rows; 0: each */
    uint32_t keep;       /* snapshots; 0: all */
    bool resume;
    RubatoPacking checkpoint_packing;
    char *stream; /* the URI of a stream */
    RubatoPacking stream_packing;
    /* How often versions flow out: one of the two, the other is 0. */
    double stream_every_s;
    uint64_t stream_every_clocks;
    double straggler_probability, straggler_ms;
    double time_limit;  /* seconds; infinite: none */
    double target_loss; /* minus infinity: none */
    bool keep_going;    /* when training diverges */
    bool bind_cores;    /* threads to cores, */
    bool numa;          /* and rows to NUMA nodes */
    char *cluster;
    RubatoAnnouncement announcement; /* in its place; no role: none */
    uint32_t node, servers, workers;

    /* the engine's thread that takes signals, and any that asks */
    _Atomic int signal_number;     /* the first that came; 0: none */
    _Atomic bool keeps_at_signals; /* training has begun, and what it learns is to be saved */
    _Atomic bool cuts_at_signals;  /* worker 0 then takes a snapshot, and training stops */
    _Atomic bool ends_at_signals;  /* the epoch is then the last, and a snapshot follows it */

    sem_t signals;           /* counts those that came during training, for the next */
    pthread_t teller;        /* while training goes on: tells worker 0 of them */
    _Atomic bool is_trained; /* so it is to end */

    RubatoEngine *engine;
    bool reports;
    struct _JsonNode *description; /* of the loaded model; NULL: none */
    GPtrArray *notes;              /* said when training begins */
    GArray *metrics;               /* of AppMetric */
    GArray *table_rows;            /* of AppTableRows */

    const char *const *tables;          /* of the task, while it runs */
    const char *const *snapshot_tables; /* with --checkpoint: those in snapshots */

    /* main's before and after a run, worker 0's during it */
    uint32_t only_epoch; /* which the task trains, from 1; 0: it trains all */
    uint64_t first_step; /* of the task's epoch; not 0: it goes on from a snapshot in its middle */
    bool takes_cuts;     /* snapshots are taken in the middle of epochs, too */
    bool lacks_snapshot; /* the last one that was due between epochs has failed */
    bool lacks_version;  /* the last one of the stream has */
    bool keeps_rows;     /* of a dynamic split: snapshots have which rows are done */
    uint64_t n_rows_before;    /* of the task's epoch: those that are done before it begins */
    int64_t checkpoint_us;     /* when the last snapshot was asked for, or training began */
    int64_t look_us;           /* when to look whether somebody asks for one */
    uint64_t n_steps;          /* of worker 0 since then */
    int64_t stream_written_us; /* when worker 0 last wrote its arrays for the stream, or training
                                * began */
    uint64_t n_unstreamed;     /* steps of worker 0 since then */
    uint64_t n_rows;           /* of an epoch */
    uint64_t n_samples;        /* trained on */
    double seconds;
    int64_t begun_us;
    AppStopped stopped;
    bool diverged; /* and the user was told */
    AppCurve curve;
    AppValidated validated;
    AppWaits waits;
    AppProgress progress;
};

/* What a program returns when its flags are wrong. */
#define APP_EXIT_USAGE 2

/* Reads the flags. False if one is wrong, after printing what is wrong; then the program must
 * return APP_EXIT_USAGE. --help ends the program in this call. */
bool app_parse(App *app, const AppProgram *program, int argc, char **argv);

/* Refuses a flag, as RUBATO_ERROR_INVALID; false. */
bool app_refuse(GError **error, const char *format, ...) G_GNUC_PRINTF(2, 3);

/* Loads the files of --plugin, a list that NULL ends. What they hold can then be named by other
 * flags. NULL: there are none. */
bool app_load_plugins(char *const *paths, GError **error);

/* For take_flags: the place of a flag's word in a list that NULL ends. A flag of NULL means the
 * first word. */
bool app_find_word(const char *flag, const char *const *words, const char *word, size_t *index,
                   GError **error);

/* For take_flags: whether a flag's count is from 1 to `most`, or APP_COUNT_NOT_GIVEN. */
#define APP_COUNT_NOT_GIVEN G_MININT
bool app_check_count(const char *flag, int count, int most, GError **error);

/* For take_flags: whether a flag's number is one from 0, or APP_NOT_GIVEN. */
#define APP_NOT_GIVEN (-DBL_MAX)
bool app_check_number(const char *flag, double number, GError **error);

/* Starts the engine that the flags ask for; from here on it is known which node reports, and what
 * the description of the model to load says. */
bool app_start(App *app, GError **error);

/* Whether there is nothing to do but to load a model, and to test it or predict with it: the
 * program then needs no data to train on. */
bool app_only_loads(const App *app);

/* What the model to load was saved with: the text of a setting; NULL if no model is loaded, or one
 * without this setting. For what no flag says. (transfer none) */
const char *app_loaded_setting(const App *app, const char *name);

/* The same of a number from 1 to `most`; `otherwise` if there is none. What is no such number is
 * refused when the model is loaded. */
uint32_t app_loaded_count(const App *app, const char *name, uint32_t most, uint32_t otherwise);

/* A line that the reporting node prints when training begins. */
void app_note(App *app, const char *format, ...) G_GNUC_PRINTF(2, 3);

/* Whether this node reports. */
bool app_reports(const App *app);

/* ---- the model: what is created, saved, loaded and predicted with ---- */

/* A table of the model, saved as NAME.npy (rows × width) and, beside it, NAME.state.npy if its
 * update rule keeps state, and NAME.keys.npy of a hash table. The flags decide its consistency
 * model, if the spec has none. */
typedef struct {
    const char *name;
    RubatoTableSpec spec;
    bool is_state; /* what workers' rule keeps: it begins anew if a loaded model lacks it */
} AppArray;

/* What must be the same when a model is loaded: "factors" "16". */
typedef struct {
    const char *name, *text;
} AppSetting;

/* A number that is saved with the model, and set on the reporting node when the model is loaded. */
typedef struct {
    const char *name;
    double *value;
} AppNumber;

/* Writes a prediction a line for each row of a file; on the reporting node. Whether `output` took
 * them is checked afterwards. */
typedef bool (*AppPredictFunc)(const char *path, FILE *output, void *user_data, GError **error);

typedef struct {
    const AppArray *arrays;
    size_t n_arrays;
    const AppSetting *settings; /* ended by one without a name; NULL: none */
    const AppNumber *numbers;   /* the same */
    AppPredictFunc predict;     /* NULL: --predict is refused */
    void *user_data;
} AppModel;

/* Creates the model's tables under the flags' consistency model and, with --load, fills them. What
 * is wrong with the files fails the call on every node. */
bool app_create_model(App *app, const AppModel *model, GError **error);

/* The shape of a table of the model to load: its width and, of a dense one, its keys (else 0). For
 * a program without data from which it could know them. */
bool app_model_shape(const App *app, const char *array, uint32_t *width, uint64_t *n_keys,
                     GError **error);

/* Fills in the consistency model that the flags ask for, for a table that is not part of the
 * model. */
void app_set_model(const App *app, RubatoTableSpec *spec);

/* Creates a table with as many replicas as --replicas says. A table that is made otherwise has
 * none, so a node that has a part of it cannot be lost without the run. */
bool app_create_table(const App *app, const RubatoTableSpec *spec, GError **error);

/* After training: --save, --predict, --plot and the result card, on the node that reports. */
bool app_finish(const App *app, const AppModel *model, GError **error);

/* ---- training ---- */

/* Runs a task that goes through n_rows rows in each epoch, shows progress, and measures the time.
 * With --checkpoint it runs the task once for each epoch. Does nothing if there are no epochs. */
bool app_train(App *app, const RubatoTask *task, uint64_t n_rows, GError **error);

/* Its steps, for app_validation.c and app_checkpoint.c. Begin creates tables; run runs the task,
 * once for all epochs, or for each with app->only_epoch set; end drops the tables, if all was
 * good. */
bool app_training_begin(App *app, uint64_t n_rows, GError **error);
bool app_training_run(App *app, const RubatoTask *task, GError **error);
bool app_training_end(App *app, bool good, GError **error);

/* A worker's part of what the programs share. Each worker makes one first in its function, and
 * frees it last.
 *
 *     g_autoptr(AppWorker) self = app_worker_new(&job->app, worker, error);
 *     if (self == NULL)
 *         return false;
 *     for (step = 0; step < n_steps && app_worker_goes_on(self); step++) {
 *         … a step …
 *         if (!app_worker_step(self, n, loss, n_right, error))
 *             return false;
 *     } */
typedef struct AppWorker AppWorker;

/* (transfer full) */
AppWorker *app_worker_new(App *app, RubatoWorker *worker, GError **error);
void app_worker_free(AppWorker *self);

/* Before each step: false if training is to stop (--time-limit, --target-loss, a signal). It sleeps
 * if --straggler says so. */
bool app_worker_goes_on(AppWorker *self);

/* After each step: how many rows it took, and the sums over them of loss and of what the program's
 * metric counts (0 if there is none), as the model was before the step. A loss that is no finite
 * number is RUBATO_ERROR_TASK_FAILED, with advice, unless --keep-going was given. */
bool app_worker_step(AppWorker *self, uint64_t n_rows, double loss, double metric, GError **error);

/* The step of the epoch with which the worker begins, from 0. */
uint64_t app_worker_first_step(const AppWorker *self);

/* Those before had so many rows of the worker. */
void app_worker_skip(AppWorker *self, uint64_t n_rows);

/* The rows of the worker's steps so far, and of those that it left out. */
uint64_t app_worker_n_rows(const AppWorker *self);

/* In each step between its Gets and its Adds: worker 0 takes a snapshot if --checkpoint-every says
 * so, or a signal has come. Then all tables under bsp have the same clock (rubato/snapshot.h). With
 * --stream it also writes what is in arrays, if it is time. */
bool app_worker_checkpoint(AppWorker *self, GError **error);

/* Whether the worker's steps have to end all their clocks themselves. */
bool app_worker_keeps_rows(const AppWorker *self);

/* Around each step's Adds, and the clocks behind them, by workers of a program that keeps rows: a
 * snapshot then has the rows of the step as done exactly if it has its Adds. Between the two the
 * worker waits for nobody. n_rows: as app_worker_step gets them next. Without a dynamic split that
 * is kept, they do nothing. */
bool app_worker_begin_adds(AppWorker *self, GError **error);
bool app_worker_end_adds(AppWorker *self, uint64_t n_rows, GError **error);

/* The reader whose rows these are, which app_rows_read has opened. (transfer none) */
void app_worker_keep_rows(AppWorker *self, RubatoReader *reader);

/* For a program whose workers have what they learn in arrays of their own: before each such
 * snapshot, and for the versions of a stream, worker 0 calls this, which writes to the tables what
 * they do not have yet. It waits for no other worker. */
typedef bool (*AppWriteFunc)(void *user_data, GError **error);
void app_worker_write_before_snapshots(AppWorker *self, AppWriteFunc write, void *user_data);

/* Before each step's Adds, if the learning rate of the servers' update rule should fall during
 * training: worker 0 tunes it on the tables (a list ended by NULL) as app_learning_rate says.
 * epoch: of the batch, from 0. */
bool app_worker_lower_rate(AppWorker *self, const char *const *tables, uint32_t epoch,
                           GError **error);

/* The same for workers that are always in the same step, of a known number of steps: rate_step is
 * how many of APP_RATE_STEPS equal parts of them are done. */
bool app_worker_lower_rate_to(AppWorker *self, const char *const *tables, uint64_t rate_step,
                              GError **error);
#define APP_RATE_STEPS 64 /* in which the learning rate falls: a straight line, near enough */

G_DEFINE_AUTOPTR_CLEANUP_FUNC(AppWorker, app_worker_free)

/* The learning rate when `done` of `total` steps, or rows, are done: it falls linearly to a
 * twentieth. */
double app_learning_rate(const App *app, uint64_t done, uint64_t total);

/* ---- the result ---- */

/* Puts a number on the result card. */
void app_add_metric(App *app, const char *name, double value);

/* Frees everything, after printing the error if there is one; the program's exit status: 128 + the
 * signal if one came. */
int app_end(App *app, const GError *error);

/* ---- for the files of this folder, and tests ---- */

/* Runs a function on the reporting node, inside a task: if it fails every node does.
 * Collective. */
typedef bool (*AppReporterFunc)(App *app, void *data, GError **error);
bool app_call_on_reporter(App *app, const char *what, AppReporterFunc function, void *data,
                          GError **error);

/* Prints the result card, and the JSON if --json asks for it, on the node that reports. */
bool app_report(const App *app, GError **error);

/* "2 nodes, 2 servers, 4 workers, bsp". (transfer full) */
char *app_run_text(const App *app);

/* The card as text, and as JSON in one line. (transfer full) */
char *app_card_text(const App *app);
char *app_card_json(const App *app);

/* Writes the predictions to the output that --output names: a file is written completely or not at
 * all. */
bool app_predict(const App *app, const AppModel *model, GError **error);

/* Draws the curve, as --plot asks for. */
bool app_plot(const App *app, GError **error);

/* "training diverges: the loss is inf. Take a smaller …"; what: "is". (transfer full) */
char *app_divergence_text(const App *app, const char *what, double loss);

/* Tells the user so, once. */
void app_warn_of_divergence(App *app, const char *what, double loss);

/* The table in which the workers add up rows and losses, and which tells them to stop. */
#define APP_TOTALS "app-totals"
typedef enum {
    APP_TOTAL_ROWS,
    APP_TOTAL_LOSS,
    APP_TOTAL_METRIC,
    APP_TOTAL_STOP,    /* not 0: stop */
    APP_TOTAL_SKIPPED, /* rows that a snapshot in the middle of an epoch has */
    APP_TOTAL_END,     /* not 0: a signal came, so this epoch is the last. Where worker 0 takes a
                        * snapshot in its middle, APP_TOTAL_STOP follows when that is whole */
    APP_TOTAL_ASK,     /* not 0: a node got such a signal, so worker 0 is to see to that */
    APP_N_TOTALS,
} AppTotal;

/* The table that counts the rows that are done, if a dynamic split is kept: one number, over all
 * epochs. It is in the snapshots. */
#define APP_ROWS_DONE "app-rows-done"

#endif
