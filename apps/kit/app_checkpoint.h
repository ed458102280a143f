/* --checkpoint: snapshots between epochs, and going on from one.
 *
 * Each epoch is a task, and --checkpoint-every epochs a snapshot of the model's tables follows. The
 * order of an epoch's rows depends on --seed and the epoch alone. So a run that goes on from a
 * snapshot does what the run before it would have done.
 *
 * Threads: main's, but where worker 0's is named. */
#ifndef RUBATO_APPS_KIT_APP_CHECKPOINT_H
#define RUBATO_APPS_KIT_APP_CHECKPOINT_H

#include "apps/kit/app.h"

/* On the reporting node, before anything is done: refuses a directory that has snapshots of an
 * earlier run, unless this one is to go on from them. */
bool app_checkpoint_check(const App *app, GError **error);

/* Trains, between app_training_begin and app_training_end. With --resume the model's tables, which
 * are new, get the rows of the newest good snapshot first. Collective. */
bool app_checkpoint_train(App *app, const RubatoTask *task, GError **error);

/* Whether a snapshot in the middle of an epoch is due, or somebody asks for one. Worker 0. */
bool app_checkpoint_is_due(App *app);

/* Takes one, which training goes on from with this step of the epoch: waits until it is whole, or
 * until the cut alone if there is a ticket. One that is waited for is taken again if a node is lost
 * meanwhile. Worker 0. */
bool app_checkpoint_cut(App *app, RubatoWorker *worker, uint64_t step, RubatoTicket *ticket,
                        uint64_t *number, GError **error);

/* Whether training goes on without a snapshot that failed so. A disk that is full for some time
 * does not end hours of training, nor does the loss of a node that the run survives. If the run
 * does not survive it, all that follows fails, too. */
bool app_checkpoint_may_lack(const GError *fault);

#endif
