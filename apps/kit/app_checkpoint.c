/* Snapshots between epochs, and in the middle of one. Their note is a key file:
 *
 *     [training]
 *     program=rubato-lr
 *     epochs=3
 *
 * In the middle of epoch 4 it has also `steps`, which each worker has done of it, and what decides
 * which rows these had: `workers` and `batch`. Under bsp all workers have done so many. Under other
 * models some are beyond that, and train on a few rows again. */
#include "apps/kit/app_checkpoint.h"

#include <errno.h>
#include <glib/gstdio.h>
#include <math.h>
#include <string.h>

#define GROUP "training"

#define LOOK_US (200 * 1000) /* between two looks into the directory */

bool app_checkpoint_check(const App *app, GError **error)
{
    g_autofree uint64_t *numbers = NULL;
    size_t n;

    if (app->checkpoint == NULL || app->resume)
        return true;
    if (!rubato_snapshot_list(app->checkpoint, &numbers, &n, error))
        return false;
    return n == 0 || app_refuse(error,
                                "--checkpoint %s: there are snapshots in it already; go on from "
                                "them with --resume, or name another directory",
                                app->checkpoint);
}

/* ---- the note ---- */

/* (transfer full) */
static char *note_text(const App *app, uint32_t n_epochs, uint64_t n_steps)
{
    g_autoptr(GKeyFile) note = g_key_file_new();

    g_key_file_set_string(note, GROUP, "program", app->program->name);
    g_key_file_set_uint64(note, GROUP, "epochs", n_epochs);
    if (n_steps > 0) {
        g_key_file_set_uint64(note, GROUP, "steps", n_steps);
        g_key_file_set_uint64(note, GROUP, "workers", rubato_engine_n_workers(app->engine));
        g_key_file_set_uint64(note, GROUP, "batch", app->batch_size);
    }
    return g_key_file_to_data(note, NULL, NULL);
}

/* The step of an epoch goes by the lowest clock, if there is one. */
static uint64_t first_step(const RubatoSnapshot *snapshot, uint64_t n_steps)
{
    for (size_t i = 0; i < rubato_snapshot_n_tables(snapshot); i++) {
        const uint64_t clock = rubato_snapshot_table(snapshot, i)->clock;

        if (clock > 0)
            n_steps = MIN(n_steps, clock);
    }
    return n_steps;
}

static bool check_middle(const App *app, GKeyFile *note, uint64_t number, GError **error)
{
    const uint64_t workers = g_key_file_get_uint64(note, GROUP, "workers", NULL);
    const uint64_t batch = g_key_file_get_uint64(note, GROUP, "batch", NULL);

    if (app->takes_cuts && workers == rubato_engine_n_workers(app->engine) &&
        batch == app->batch_size)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MISMATCH,
                "--resume: snapshot %" G_GUINT64_FORMAT
                " of %s is of the middle of an epoch, with %" G_GUINT64_FORMAT
                " workers, --batch-size %" G_GUINT64_FORMAT
                " and --split fixed: go on with the same",
                number, app->checkpoint, workers, batch);
    return false;
}

static bool read_note(App *app, const RubatoSnapshot *snapshot, uint32_t *n_epochs, GError **error)
{
    const char *text = rubato_snapshot_note(snapshot);
    const uint64_t number = rubato_snapshot_number(snapshot);
    g_autoptr(GKeyFile) note = g_key_file_new();
    g_autofree char *program = NULL;
    uint64_t n = 0, n_steps = 0;

    if (text != NULL && g_key_file_load_from_data(note, text, strlen(text), 0, NULL)) {
        program = g_key_file_get_string(note, GROUP, "program", NULL);
        n = g_key_file_get_uint64(note, GROUP, "epochs", NULL);
        n_steps = g_key_file_get_uint64(note, GROUP, "steps", NULL);
    }
    if (g_strcmp0(program, app->program->name) != 0 || (n == 0 && n_steps == 0) || n > UINT32_MAX) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                    "--resume: snapshot %" G_GUINT64_FORMAT " of %s is not one of %s", number,
                    app->checkpoint, app->program->name);
        return false;
    }
    if (n_steps > 0 && !check_middle(app, note, number, error))
        return false;
    app->first_step = first_step(snapshot, n_steps);
    *n_epochs = (uint32_t)n;
    return true;
}

/* ---- going on ---- */

static bool restore(App *app, const char *const *tables, uint32_t *n_done, GError **error)
{
    const RubatoRestoreSpec spec = { .directory = app->checkpoint, .tables = tables };
    g_autoptr(RubatoSnapshot) snapshot = NULL;
    uint64_t number;

    if (!rubato_engine_restore(app->engine, &spec, &number, error))
        return false;
    snapshot = rubato_snapshot_open(app->checkpoint, number, error);
    if (snapshot == NULL || !read_note(app, snapshot, n_done, error))
        return false;
    if (app->reports && app->first_step > 0)
        g_printerr("%s: going on from snapshot %" G_GUINT64_FORMAT " of %s: %u of %u epochs are "
                   "done, and %" G_GUINT64_FORMAT " steps of the next one\n",
                   app->program->name, number, app->checkpoint, *n_done, app->epochs,
                   app->first_step);
    else if (app->reports)
        g_printerr("%s: going on from snapshot %" G_GUINT64_FORMAT " of %s: %u of %u epochs are "
                   "done\n",
                   app->program->name, number, app->checkpoint, *n_done, app->epochs);
    if (*n_done < app->epochs) /* nobody has drawn anything yet */
        app_progress_begin(&app->progress, app->epochs - *n_done,
                           app->n_rows * (app->epochs - *n_done));
    return true;
}

static bool resume(App *app, const char *const *tables, uint32_t *n_done, GError **error)
{
    g_autofree uint64_t *numbers = NULL;
    size_t n;

    *n_done = 0;
    if (!app->resume)
        return true;
    if (!rubato_snapshot_list(app->checkpoint, &numbers, &n, error))
        return false;
    if (n > 0)
        return restore(app, tables, n_done, error);
    if (app->reports)
        g_printerr("%s: there is no snapshot in %s to go on from, so training begins\n",
                   app->program->name, app->checkpoint);
    return true;
}

/* ---- training ---- */

/* Whether the workers have trained on all rows of n_epochs epochs. If not, training was stopped,
 * and no snapshot may say that the epoch is done. All nodes read the same totals, since no worker
 * runs, so all of them decide the same. */
static bool check_whole(const App *app, uint32_t n_epochs, bool *is_whole, GError **error)
{
    const RubatoKey key = 0;
    const double n_rows = (double)app->n_rows * (double)n_epochs;
    double totals[APP_N_TOTALS];

    if (!rubato_engine_get(app->engine, APP_TOTALS, &key, 1, totals, error))
        return false;
    *is_whole =
        totals[APP_TOTAL_STOP] == 0 && totals[APP_TOTAL_ROWS] + totals[APP_TOTAL_SKIPPED] == n_rows;
    if (*is_whole || totals[APP_TOTAL_STOP] > 0 || isfinite(app->time_limit))
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_TASK_FAILED,
                "--checkpoint: the workers have trained on %.0f rows of %.0f, so there is no "
                "snapshot of epoch %u",
                totals[APP_TOTAL_ROWS], n_rows, app->only_epoch);
    return false;
}

static bool take_snapshot(const App *app, const char *const *tables, GError **error)
{
    g_autofree char *note = note_text(app, app->only_epoch, 0);
    const RubatoSnapshotSpec spec = {
        .directory = app->checkpoint,
        .tables = tables,
        .packing = app->checkpoint_packing,
        .full_every = app->full_every,
        .keep = app->keep,
        .note = note,
    };

    return rubato_engine_snapshot(app->engine, &spec, NULL, error);
}

/* `rubato checkpoint take` may ask before the first snapshot, by a file in the directory. */
static bool make_directory(const App *app, GError **error)
{
    if (g_str_has_prefix(app->checkpoint, "s3://") || g_mkdir(app->checkpoint, 0777) == 0 ||
        errno == EEXIST)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "--checkpoint %s: cannot be created: %s",
                app->checkpoint, g_strerror(errno));
    return false;
}

bool app_checkpoint_train(App *app, const RubatoTask *task, GError **error)
{
    bool is_whole = true;
    uint32_t n_done;

    if (!make_directory(app, error) || !resume(app, task->tables, &n_done, error))
        return false;
    for (uint32_t epoch = n_done + 1;
         is_whole && epoch <= app->epochs && app->stopped != APP_STOPPED_BY_CONVERGENCE; epoch++) {
        app->only_epoch = epoch;
        if (!app_training_run(app, task, error) ||
            !check_whole(app, epoch - n_done, &is_whole, error))
            return false;
        app->first_step = 0;
        const bool is_due = (app->checkpoint_every > 0 && epoch % app->checkpoint_every == 0) ||
                            epoch == app->epochs || app->stopped == APP_STOPPED_BY_CONVERGENCE;
        if (is_whole && is_due && !take_snapshot(app, task->tables, error))
            return false;
    }
    return true;
}

/* ---- in the middle of an epoch ---- */

/* Whether `rubato checkpoint take` asks for one. The directory is read, so this looks now and then.
 * Under "bsp" every step is as good as another; so when it looks has no effect on the result. */
static bool is_asked(App *app, int64_t now_us)
{
    if (now_us < app->look_us)
        return false;
    app->look_us = now_us + LOOK_US;
    return rubato_snapshot_is_asked(app->checkpoint);
}

bool app_checkpoint_is_due(App *app)
{
    const int64_t now_us = g_get_monotonic_time();
    const double seconds = (double)(now_us - app->checkpoint_us) / G_USEC_PER_SEC;

    return (app->checkpoint_steps > 0 && app->n_steps >= app->checkpoint_steps) ||
           (app->checkpoint_seconds > 0 && seconds >= app->checkpoint_seconds) ||
           is_asked(app, now_us);
}

bool app_checkpoint_cut(App *app, RubatoWorker *worker, uint64_t step, RubatoTicket *ticket,
                        uint64_t *number, GError **error)
{
    g_autofree char *note = note_text(app, app->only_epoch - 1, step);
    const RubatoSnapshotSpec spec = {
        .directory = app->checkpoint,
        .tables = app->tables,
        .packing = app->checkpoint_packing,
        .full_every = app->full_every,
        .keep = app->keep,
        .note = note,
    };

    app->n_steps = 0;
    app->checkpoint_us = g_get_monotonic_time();
    if (ticket == NULL)
        return rubato_worker_snapshot(worker, &spec, number, error);
    *ticket = rubato_worker_snapshot_async(worker, &spec, number, NULL, error);
    return *ticket != 0;
}
