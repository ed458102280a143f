/* Snapshots between epochs. Their note is a key file:
 *
 *     [training]
 *     program=rubato-lr
 *     epochs=3 */
#include "apps/kit/app_checkpoint.h"

#include <math.h>
#include <string.h>

#define GROUP "training"

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
static char *note_text(const App *app, uint32_t n_epochs)
{
    g_autoptr(GKeyFile) note = g_key_file_new();

    g_key_file_set_string(note, GROUP, "program", app->program->name);
    g_key_file_set_uint64(note, GROUP, "epochs", n_epochs);
    return g_key_file_to_data(note, NULL, NULL);
}

static bool read_note(const App *app, const RubatoSnapshot *snapshot, uint32_t *n_epochs,
                      GError **error)
{
    const char *text = rubato_snapshot_note(snapshot);
    g_autoptr(GKeyFile) note = g_key_file_new();
    g_autofree char *program = NULL;
    uint64_t n = 0;

    if (text != NULL && g_key_file_load_from_data(note, text, strlen(text), 0, NULL)) {
        program = g_key_file_get_string(note, GROUP, "program", NULL);
        n = g_key_file_get_uint64(note, GROUP, "epochs", NULL);
    }
    if (g_strcmp0(program, app->program->name) != 0 || n == 0 || n > UINT32_MAX) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                    "--resume: snapshot %" G_GUINT64_FORMAT " of %s is not one of %s",
                    rubato_snapshot_number(snapshot), app->checkpoint, app->program->name);
        return false;
    }
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
    if (app->reports)
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
    *is_whole = totals[APP_TOTAL_STOP] == 0 && totals[APP_TOTAL_ROWS] == n_rows;
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
    g_autofree char *note = note_text(app, app->only_epoch);
    const RubatoSnapshotSpec spec = {
        .directory = app->checkpoint, .tables = tables, .keep = app->keep, .note = note
    };

    return rubato_engine_snapshot(app->engine, &spec, NULL, error);
}

bool app_checkpoint_train(App *app, const RubatoTask *task, GError **error)
{
    bool is_whole = true;
    uint32_t n_done;

    if (!resume(app, task->tables, &n_done, error))
        return false;
    for (uint32_t epoch = n_done + 1;
         is_whole && epoch <= app->epochs && app->stopped != APP_STOPPED_BY_CONVERGENCE; epoch++) {
        app->only_epoch = epoch;
        if (!app_training_run(app, task, error) ||
            !check_whole(app, epoch - n_done, &is_whole, error))
            return false;
        const bool is_due = epoch % app->checkpoint_every == 0 || epoch == app->epochs ||
                            app->stopped == APP_STOPPED_BY_CONVERGENCE;
        if (is_whole && is_due && !take_snapshot(app, task->tables, error))
            return false;
    }
    return true;
}
