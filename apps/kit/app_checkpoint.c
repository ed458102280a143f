/* Snapshots between epochs, and in the middle of one. Their note is a key file:
 *
 *     [training]
 *     program=rubato-lr
 *     epochs=3
 *
 * In the middle of epoch 4 it has also `steps`, which each worker has done of it, and what decides
 * which rows these had: `workers` and `batch`. Under bsp all workers have done so many. Under other
 * models some are beyond that, and train on a few rows again. If the run itself went on from the
 * middle of that epoch, `first` says from which step: the clocks of its tables count from there.
 * `clocked` says that each worker clocks each of the tables in each step: so one of clock 0 has a
 * worker that has done none. Without it, workers combine something in each step, and all of them
 * are at the same one; then some tables are clocked by nobody.
 * If the split is dynamic, it has `split=dynamic` in place of these, but for `steps`: the snapshot
 * itself keeps which rows are done, and the table APP_ROWS_DONE how many, under each model. */
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
        if (app->keeps_rows) {
            g_key_file_set_string(note, GROUP, "split", "dynamic");
            return g_key_file_to_data(note, NULL, NULL);
        }
        g_key_file_set_uint64(note, GROUP, "workers", rubato_engine_n_workers(app->engine));
        g_key_file_set_uint64(note, GROUP, "batch", app->batch_size);
        if (app->first_step > 0)
            g_key_file_set_uint64(note, GROUP, "first", app->first_step);
        if (!app->by_allreduce && !app->program->combines)
            g_key_file_set_boolean(note, GROUP, "clocked", true);
    }
    return g_key_file_to_data(note, NULL, NULL);
}

/* The step of an epoch goes by the lowest clock, if there is one. Clocks are 0 at the step at which
 * the run that took the snapshot began. Notes from before `clocked` lack it in any case; there a
 * clock of 0 counts for none, as it did. */
static uint64_t first_step(const RubatoSnapshot *snapshot, bool is_clocked, uint64_t begun,
                           uint64_t n_steps)
{
    for (size_t i = 0; i < rubato_snapshot_n_tables(snapshot); i++) {
        const uint64_t clock = rubato_snapshot_table(snapshot, i)->clock;

        if (clock > 0 || is_clocked)
            n_steps = MIN(n_steps, begun + clock);
    }
    return n_steps;
}

static bool check_middle(const App *app, GKeyFile *note, uint64_t number, GError **error)
{
    const uint64_t workers = g_key_file_get_uint64(note, GROUP, "workers", NULL);
    const uint64_t batch = g_key_file_get_uint64(note, GROUP, "batch", NULL);

    if (g_key_file_has_key(note, GROUP, "split", NULL)) {
        if (app->keeps_rows)
            return true;
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MISMATCH,
                    "--resume: snapshot %" G_GUINT64_FORMAT
                    " of %s is of the middle of an epoch with --split dynamic: go on with the same",
                    number, app->checkpoint);
        return false;
    }
    if (app->takes_cuts && !app->keeps_rows && workers == rubato_engine_n_workers(app->engine) &&
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
    uint64_t n = 0, n_steps = 0, begun = 0;
    bool is_clocked = false;

    if (text != NULL && g_key_file_load_from_data(note, text, strlen(text), 0, NULL)) {
        program = g_key_file_get_string(note, GROUP, "program", NULL);
        n = g_key_file_get_uint64(note, GROUP, "epochs", NULL);
        n_steps = g_key_file_get_uint64(note, GROUP, "steps", NULL);
        begun = g_key_file_get_uint64(note, GROUP, "first", NULL);
        is_clocked = g_key_file_get_boolean(note, GROUP, "clocked", NULL);
    }
    if (g_strcmp0(program, app->program->name) != 0 || (n == 0 && n_steps == 0) || n > UINT32_MAX) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                    "--resume: snapshot %" G_GUINT64_FORMAT " of %s is not one of %s", number,
                    app->checkpoint, app->program->name);
        return false;
    }
    if (n_steps > 0 && !check_middle(app, note, number, error))
        return false;
    app->first_step = app->keeps_rows ? 0 : first_step(snapshot, is_clocked, begun, n_steps);
    *n_epochs = (uint32_t)n;
    return true;
}

/* ---- going on ---- */

/* How many rows of the next epoch are done. */
static bool count_rows_before(App *app, uint32_t n_done, GError **error)
{
    const RubatoKey key = 0;
    int64_t n;

    if (!app->keeps_rows)
        return true;
    if (!rubato_engine_get(app->engine, APP_ROWS_DONE, &key, 1, &n, error))
        return false;
    n -= (int64_t)(app->n_rows * n_done);
    if (n >= 0 && (uint64_t)n <= app->n_rows) {
        app->n_rows_before = (uint64_t)n;
        return true;
    }
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MISMATCH,
                "--resume: the run before had another number of rows than %" G_GUINT64_FORMAT
                ": give the same with --train",
                app->n_rows);
    return false;
}

static bool restore_tables(App *app, uint64_t *number, GError **error)
{
    const RubatoRestoreSpec spec = { .directory = app->checkpoint, .tables = app->snapshot_tables };

    if (rubato_engine_restore(app->engine, &spec, number, error))
        return true;
    if (app->keeps_rows && error != NULL &&
        g_error_matches(*error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND))
        g_prefix_error(error, "--resume with --split dynamic goes on from such a run alone: ");
    return false;
}

static bool restore(App *app, uint32_t *n_done, GError **error)
{
    g_autoptr(RubatoSnapshot) snapshot = NULL;
    uint64_t number;

    if (!restore_tables(app, &number, error))
        return false;
    snapshot = rubato_snapshot_open(app->checkpoint, number, error);
    if (snapshot == NULL || !read_note(app, snapshot, n_done, error) ||
        !count_rows_before(app, *n_done, error))
        return false;
    if (app->reports && app->n_rows_before > 0)
        g_printerr("%s: going on from snapshot %" G_GUINT64_FORMAT " of %s: %u of %u epochs are "
                   "done, and %" G_GUINT64_FORMAT " of the %" G_GUINT64_FORMAT
                   " rows of the next one\n",
                   app->program->name, number, app->checkpoint, *n_done, app->epochs,
                   app->n_rows_before, app->n_rows);
    else if (app->reports && app->first_step > 0)
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

static bool resume(App *app, uint32_t *n_done, GError **error)
{
    g_autofree uint64_t *numbers = NULL;
    size_t n;

    *n_done = 0;
    if (!app->resume)
        return true;
    if (!rubato_snapshot_list(app->checkpoint, &numbers, &n, error))
        return false;
    if (n > 0)
        return restore(app, n_done, error);
    if (app->reports)
        g_printerr("%s: there is no snapshot in %s to go on from, so training begins\n",
                   app->program->name, app->checkpoint);
    return true;
}

/* ---- training ---- */

/* Whether the workers have trained on all rows of n_epochs epochs. If not, training was stopped,
 * and no snapshot may say that the epoch is done. All nodes read the same totals, since no worker
 * runs, so all of them decide the same. */
static bool check_whole(App *app, uint32_t n_epochs, bool *is_whole, GError **error)
{
    const RubatoKey key = 0;
    const double n_rows = (double)app->n_rows * (double)n_epochs;
    double totals[APP_N_TOTALS];

    if (!rubato_engine_get(app->engine, APP_TOTALS, &key, 1, totals, error))
        return false;
    if (totals[APP_TOTAL_END] > 0) /* on whichever node it came */
        app->stopped = APP_STOPPED_BY_SIGNAL;
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

bool app_checkpoint_may_lack(const GError *fault)
{
    return g_error_matches(fault, RUBATO_ERROR, RUBATO_ERROR_IO) ||
           g_error_matches(fault, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST);
}

static RubatoSnapshotSpec spec_of(const App *app, const char *note)
{
    return (RubatoSnapshotSpec){
        .directory = app->checkpoint,
        .tables = app->snapshot_tables,
        .packing = app->checkpoint_packing,
        .full_every = app->full_every,
        .keep = app->keep,
        .note = note,
        .again_after_loss = true,
    };
}

static bool take_snapshot(const App *app, GError **error)
{
    g_autofree char *note = note_text(app, app->only_epoch, 0);
    const RubatoSnapshotSpec spec = spec_of(app, note);

    return rubato_engine_snapshot(app->engine, &spec, NULL, error);
}

/* All nodes get the same error, so all of them take the snapshot again, or go on. */
static bool try_snapshot(App *app, GError **error)
{
    g_autoptr(GError) fault = NULL;

    app->lacks_snapshot = !take_snapshot(app, &fault);
    if (!app->lacks_snapshot)
        return true;
    if (!app_checkpoint_may_lack(fault)) {
        g_propagate_error(error, g_steal_pointer(&fault));
        return false;
    }
    if (app->reports)
        g_printerr("%s: no snapshot of epoch %u: %s\n", app->program->name, app->only_epoch,
                   fault->message);
    return true;
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

/* The count of rows that are done. A snapshot with a fast worker's Adds to tables of one kind of
 * models would not have those to tables of the other kind: so it has the model of the others, or
 * one that applies Adds at once as well. */
static bool create_rows_done(App *app, GError **error)
{
    RubatoTableSpec spec = { .name = APP_ROWS_DONE, .dtype = RUBATO_I64, .n_keys = 1 };

    if (!app->keeps_rows)
        return true;
    if (app->model_traits->applies_by_clock)
        app_set_model(app, &spec);
    return app_create_table(app, &spec, error);
}

/* All nodes know it when an epoch ends. If a signal stops training in the middle of one, is_whole
 * of train_epochs says so. */
static bool has_ended(const App *app)
{
    return app->stopped == APP_STOPPED_BY_CONVERGENCE || app->stopped == APP_STOPPED_BY_SIGNAL;
}

static bool train_epochs(App *app, const RubatoTask *task, GError **error)
{
    bool is_whole = true;
    uint32_t n_done;

    if (!make_directory(app, error) ||
        !rubato_engine_own_snapshots(app->engine, app->checkpoint, error) ||
        !create_rows_done(app, error) || !resume(app, &n_done, error))
        return false;
    for (uint32_t epoch = n_done + 1; is_whole && epoch <= app->epochs && !has_ended(app);
         epoch++) {
        app->only_epoch = epoch;
        if (!app_training_run(app, task, error) ||
            !check_whole(app, epoch - n_done, &is_whole, error))
            return false;
        app->first_step = app->n_rows_before = 0;
        const bool is_due = (app->checkpoint_every > 0 && epoch % app->checkpoint_every == 0) ||
                            epoch == app->epochs || has_ended(app);
        if (is_whole && is_due && !try_snapshot(app, error))
            return false;
    }
    return !app->keeps_rows || rubato_engine_drop_table(app->engine, APP_ROWS_DONE, error);
}

/* (transfer container) */
static const char **add_rows_done(const App *app, const char *const *tables)
{
    const guint n = g_strv_length((char **)(uintptr_t)tables);
    const char **all = g_new0(const char *, n + 2);

    for (guint i = 0; i < n; i++)
        all[i] = tables[i];
    all[n] = app->keeps_rows ? APP_ROWS_DONE : NULL;
    return all;
}

bool app_checkpoint_train(App *app, const RubatoTask *task, GError **error)
{
    g_autofree const char **tables = add_rows_done(app, task->tables);

    app->snapshot_tables = tables;
    const bool good = train_epochs(app, task, error);
    app->snapshot_tables = NULL;
    return good;
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
    RubatoSnapshotSpec spec = spec_of(app, note);

    app->n_steps = 0;
    app->checkpoint_us = g_get_monotonic_time();
    if (ticket != NULL) {
        spec.again_after_loss = false; /* then it is lacking: nobody waits for it */
        *ticket = rubato_worker_snapshot_async(worker, &spec, number, NULL, error);
        return *ticket != 0;
    }
    return rubato_worker_snapshot(worker, &spec, number, error);
}
