/* Programs as a user runs them: in one process, and as two nodes through `rubato run`.
 *
 * Threads: the case's only one. */
#ifndef TESTS_SUPPORT_CLUSTER_PROGRAM_RUN_H
#define TESTS_SUPPORT_CLUSTER_PROGRAM_RUN_H

#include <glib.h>
#include <json-glib/json-glib.h>
#include <stdbool.h>

typedef enum { PLACE_ONE_PROCESS, PLACE_TWO_NODES } Place;

/* The results of a program. */
typedef struct {
    int status;
    char *out, *err;
} Outcome;

void outcome_clear(Outcome *outcome);

/* Runs a program with the arguments, ended by NULL, on one process of four workers or on two nodes
 * of two. */
Outcome run_program(Place place, const char *name, const char *const *arguments);

/* Runs a program that must succeed, and returns its result card. (transfer full) */
JsonNode *run_for_card(Place place, const char *name, const char *const *arguments);

/* Members of a card. */
double metric(JsonNode *card, const char *name);
int64_t number(JsonNode *card, const char *name);

/* The lowest loss of the card's curve. A run stops at a target once its loss is as low, but its
 * workers train on until all know that, and the loss of so few rows may rise again. */
double lowest_loss(JsonNode *card);

/* Runs a program so many times. Each time it must learn from n_rows rows, counted in every epoch.
 * Returns the largest number of rows that it learned from in a second. */
double best_rows_per_second(int n_repeats, int64_t n_rows, Place place, const char *name,
                            const char *const *arguments);

/* A call that a program must refuse. */
typedef struct {
    const char *text;         /* of the training rows; NULL: no such file */
    const char *arguments[2]; /* beside --train */
    int status;
    const char *message; /* in its output */
} BadCall;

void check_bad_call(const char *name, const BadCall *call);

/* A file of real rows, such as "a9a/a9a.t", and whether it is there. (transfer full) */
char *data_path(const char *name);
bool has_data(const char *name);

/* Makes a new folder, and removes it with everything in it. (transfer full) */
char *make_folder(void);
void remove_folder(const char *path);

/* Writes a file into a folder, and returns its path. (transfer full) */
char *write_text(const char *dir, const char *name, const char *text);

/* A new folder, and paths in it for what a program reads and writes. */
typedef struct {
    char *dir, *train, *test, *model, *output;
} ProgramFiles;

/* format: the end of the names of train and test, such as "csv". */
void program_files_make(ProgramFiles *files, const char *format);
void program_files_remove(ProgramFiles *files);

#endif
