/* What the programs share: flags, start and end, progress, the result card.
 *
 *     parse flags → load data → start the engine → run a task → evaluate → result card → end
 *
 * On a cluster one node speaks for all: the one that has worker 0. The others print errors only.
 *
 * Threads: calls that take a RubatoWorker come from that worker; all others from main. */
#ifndef RUBATO_APPS_APP_H
#define RUBATO_APPS_APP_H

#include <rubato/rubato.h>

#include "apps/app_progress.h"

/* What is special about a program. */
typedef struct {
    const char *name;            /* "rubato-lr" */
    const char *summary;         /* of what it does, for --help */
    const GOptionEntry *options; /* flags of its own, ended by G_OPTION_ENTRY_NULL */

    /* What the shared flags are when they are not given. */
    uint32_t epochs, batch_size;
    double learning_rate;
} AppProgram;

typedef struct {
    char *name;
    double value;
} AppMetric;

typedef struct {
    const AppProgram *program;

    /* The flags; immutable once parsed. */
    char *model;
    uint32_t staleness, speculation; /* 0 where the model has none */
    uint32_t epochs;
    uint32_t batch_size; /* rows of a step, over all workers together */
    double learning_rate;
    uint64_t seed;
    char *json; /* NULL: none; "-": standard output */
    char *cluster;
    uint32_t node, servers, workers;

    RubatoEngine *engine;
    GPtrArray *notes; /* said once it is known which node speaks */
    GArray *metrics;  /* of AppMetric */
    uint64_t n_samples;
    double seconds;
    AppProgress progress;
} App;

/* What a program returns when its flags are wrong. */
#define APP_EXIT_USAGE 2

/* Reads the flags. False, after saying so, where one is wrong: the program is then to return
 * APP_EXIT_USAGE. --help ends the program right here. */
bool app_parse(App *app, const AppProgram *program, int argc, char **argv);

/* Starts the engine that the flags ask for. */
bool app_start(App *app, GError **error);

/* A line that the speaking node prints when training begins. */
void app_note(App *app, const char *format, ...) G_GNUC_PRINTF(2, 3);

/* Fills in the consistency model that the flags ask for. */
void app_set_model(const App *app, RubatoTableSpec *spec);

/* Runs a task that goes through n_rows rows in each epoch, with progress, and takes the time. */
bool app_train(App *app, const RubatoTask *task, uint64_t n_rows, GError **error);

/* Each worker calls it first, then after each step: how many rows it took and their summed loss. */
void app_worker_begin(App *app, RubatoWorker *worker);
void app_worker_step(App *app, RubatoWorker *worker, uint64_t n_rows, double loss);

/* The learning rate of step `step` out of n_steps: it falls in a straight line to a twentieth. */
double app_learning_rate(const App *app, uint64_t step, uint64_t n_steps);

/* Whether this node speaks; known once the task has run. */
bool app_speaks(const App *app);

/* Puts a number on the result card. */
void app_add_metric(App *app, const char *name, double value);

/* Prints the result card, and the JSON where --json asks for it, on the node that speaks. */
bool app_report(App *app, GError **error);

/* Frees everything, after printing the error if there is one; the program's exit status. */
int app_end(App *app, const GError *error);

/* The card as text, and as JSON in one line. For app_report. (transfer full) */
char *app_card_text(const App *app);
char *app_card_json(const App *app);

#endif
