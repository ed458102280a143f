/* Training on numbered rows by a reader that snapshots keep: two epochs, by any number of workers,
 * with snapshots meanwhile. Afterwards each row must have been trained on twice, also if this run
 * went on from a snapshot of another one.
 *
 * Threads: those of the engine's calls. */
#ifndef TESTS_SUPPORT_ENGINE_KEPT_TRAINING_H
#define TESTS_SUPPORT_ENGINE_KEPT_TRAINING_H

#include <rubato/rubato.h>
#include <stdatomic.h>

enum {
    KEPT_N_ROWS = 640, /* in blocks of ten */
    KEPT_N_BATCH = 7,  /* rows; so batches end within blocks */
    KEPT_N_EPOCHS = 2,
    KEPT_N_BATCHES = KEPT_N_EPOCHS * KEPT_N_ROWS / KEPT_N_BATCH, /* at least */
};

typedef struct {
    const char *directory;            /* of snapshots */
    uint32_t snapshot_every, kill_at; /* batches of this process's workers; 0: never. The first
                                       * snapshot comes before any batch of its first worker, if
                                       * no node is to be lost */
    bool dies_unchanged;              /* this process is killed before it has changed anything */
    uint32_t ends_after;              /* batches of a worker, which returns then; 0: it reads all */
    uint32_t hold_after;              /* batches of a worker, before which it does not wait: */
    int hold_fd;                      /* each worker goes on after a batch only once this file has
                                       * come to its end; 0: they do not wait */
    const RubatoTaskSnapshots *snapshots; /* that the task takes by itself, or NULL */
    RubatoOnLoss on_loss;
    _Atomic uint32_t n_batches; /* of these workers; add up if it runs again */
} KeptTraining;

/* The label of a row is its number. (transfer full) */
RubatoDataset *kept_training_rows(void);

/* The tables: "seen", how often each row was trained on, and "chain", one float that depends on the
 * order of the rows. */
bool kept_training_create(RubatoEngine *engine, const char *model, uint32_t n_replicas,
                          GError **error);

/* A worker's reader of these rows, in an order that is the same in each run. (transfer full) */
RubatoReader *kept_training_open_reader(RubatoWorker *worker, RubatoDataset *rows, GError **error);

bool kept_training_run(RubatoEngine *engine, uint32_t workers_per_node, KeptTraining *training,
                       GError **error);

/* Whether each row was trained on as often as there are epochs. */
bool kept_training_check(RubatoEngine *engine, GError **error);

#endif
