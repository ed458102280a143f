/* A worker's part of the code that the programs share: it adds its loss to the totals, sleeps if it
 * is a straggler, and stops when training should stop.
 *
 * Workers meet in a table of totals, one row without consistency: each adds its rows and losses to
 * it from time to time; worker 0 reads them for the curve. If the loss is low enough, it sets a
 * mark, which the others see when they read the totals next; so does a node that gets a signal
 * (app_signal.c). Each worker checks the time limit itself. So workers may stop a few steps apart;
 * a worker that has stopped holds up no other one under any model.
 *
 * With snapshots in the middle of epochs a signal stops nobody at once: worker 0 takes a snapshot,
 * which needs all workers' steps up to its own, and sets the mark when it is whole.
 *
 * Thread: the worker's. */
#include "apps/kit/app.h"

#include <math.h>

#include "apps/kit/app_checkpoint.h"
#include "apps/kit/app_stream.h"

/* The time between two readings of the totals: a share of the time since training began, because a
 * curve needs more points at its start; within these bounds. */
#define LOOKS_BY_SHARE 64
#define LOOK_LEAST_US (5 * 1000)
#define LOOK_MOST_US (200 * 1000)

#define NAP_MOST_US (50 * 1000) /* a sleeper looks whether the task was cancelled */

struct AppWorker {
    /* immutable */
    App *app;
    RubatoWorker *worker;
    RubatoKVTable *totals;
    RubatoKVTable *done;  /* counts the rows that are done; NULL: nobody does */
    RubatoReader *reader; /* of these rows; NULL: the same */
    bool leads;           /* worker 0 */
    int64_t deadline_us;  /* G_MAXINT64: none */

    GRand *random;
    bool stopped;
    bool is_asked_to_end;  /* of worker 0: a node got a signal */
    bool has_cut_last;     /* worker 0 has taken the snapshot for a signal */
    int64_t look_us;       /* when to look at the totals next */
    uint64_t n_rows;       /* taken so far */
    uint64_t step;         /* of the epoch: the present one */
    RubatoTicket snapshot; /* the last that was asked for; 0: none */
    AppWriteFunc write;    /* before each; NULL: the tables have all */
    void *write_data;
    uint32_t epoch;              /* of the task, that the rate was last lowered in */
    uint64_t epoch_rows;         /* n_rows when it began */
    uint64_t rate_step;          /* of APP_RATE_STEPS, that the tables have */
    double untold[APP_N_TOTALS]; /* not told yet */
};

static const RubatoKey totals_key = 0;

AppWorker *app_worker_new(App *app, RubatoWorker *worker, GError **error)
{
    const uint32_t seeds[] = { (uint32_t)app->seed, (uint32_t)(app->seed >> 32),
                               rubato_worker_rank(worker) };
    RubatoKVTable *totals = rubato_worker_open_kv_table(worker, APP_TOTALS, RUBATO_F64, error);

    if (totals == NULL)
        return NULL;
    AppWorker *self = g_new0(AppWorker, 1);
    self->app = app;
    self->worker = worker;
    if (app->keeps_rows) {
        self->done = rubato_worker_open_kv_table(worker, APP_ROWS_DONE, RUBATO_I64, error);
        if (self->done == NULL) {
            rubato_kv_table_free(totals);
            g_free(self);
            return NULL;
        }
    }
    self->step = app->first_step;
    self->totals = totals;
    self->leads = rubato_worker_rank(worker) == 0;
    self->deadline_us = isfinite(app->time_limit)
                            ? app->begun_us + (int64_t)(app->time_limit * G_USEC_PER_SEC)
                            : G_MAXINT64;
    self->random = g_rand_new_with_seed_array(seeds, G_N_ELEMENTS(seeds));
    if (self->leads)
        app_progress_report(&app->progress, rubato_worker_n_workers(worker),
                            rubato_worker_n_local_workers(worker));
    return self;
}

static bool tell(AppWorker *self, GError **error)
{
    if (!rubato_kv_table_add(self->totals, &totals_key, 1, self->untold, error))
        return false;
    for (size_t i = 0; i < APP_N_TOTALS; i++)
        self->untold[i] = 0;
    return true;
}

static void say_lacking(const AppWorker *self, const GError *fault)
{
    g_printerr("%s: no snapshot in the middle of epoch %u: %s\n", self->app->program->name,
               self->app->only_epoch, fault->message);
}

void app_worker_free(AppWorker *self)
{
    g_autoptr(GError) fault = NULL;

    if (self == NULL)
        return;
    if (self->snapshot != 0 && !rubato_worker_wait(self->worker, self->snapshot, &fault))
        say_lacking(self, fault);
    if (self->app->checkpoint != NULL && self->app->signal_number != 0)
        self->untold[APP_TOTAL_END] = 1;
    /* these fail if the task has failed, which is reported anyway */
    (void)tell(self, NULL);
    (void)app_waits_tell(self->worker, self->app->tables, NULL);
    rubato_kv_table_free(self->totals);
    rubato_kv_table_free(self->done);
    g_rand_free(self->random);
    g_free(self);
}

/* The first reason stands: a worker steps on until all stop, and then sees what it told itself. */
static void stop(AppWorker *self, AppStopped why)
{
    if (self->stopped)
        return;
    self->stopped = true;
    if (self->leads)
        self->app->stopped = why;
}

/* Whether a signal has come that this run obeys by stopping at once. */
static bool is_interrupted(const App *app)
{
    return app->signal_number != 0 && app->save != NULL && app->checkpoint == NULL;
}

static void straggle(AppWorker *self)
{
    const App *app = self->app;
    int64_t now_us = g_get_monotonic_time();
    const int64_t until_us = MIN(now_us + (int64_t)(app->straggler_ms * 1000), self->deadline_us);

    for (; now_us < until_us && !rubato_worker_cancelled(self->worker) && !is_interrupted(app);
         now_us = g_get_monotonic_time())
        g_usleep((gulong)MIN(until_us - now_us, NAP_MOST_US));
}

bool app_worker_goes_on(AppWorker *self)
{
    const double probability = self->app->straggler_probability;

    if (!self->stopped && probability > 0 && g_rand_double(self->random) < probability)
        straggle(self);
    if (!self->stopped && self->deadline_us != G_MAXINT64 &&
        g_get_monotonic_time() >= self->deadline_us)
        stop(self, APP_STOPPED_BY_TIME);
    if (!self->stopped && is_interrupted(self->app))
        stop(self, APP_STOPPED_BY_SIGNAL);
    return !self->stopped;
}

static bool look(AppWorker *self, int64_t now_us, GError **error)
{
    App *app = self->app;
    const bool has_target = isfinite(app->target_loss);
    double totals[APP_N_TOTALS];

    if (!self->leads && !has_target && app->save == NULL)
        return true;
    if (!rubato_kv_table_get(self->totals, &totals_key, 1, totals, error))
        return false;
    if (self->leads) {
        if (totals[APP_TOTAL_ASK] > 0 && !self->is_asked_to_end) {
            self->is_asked_to_end = true;
            self->untold[APP_TOTAL_END] = 1; /* told when it ends, at the latest */
        }
        if (totals[APP_TOTAL_STOP] > 0)
            stop(self, APP_STOPPED_BY_SIGNAL);
        app_curve_take(&app->curve, (double)(now_us - app->begun_us) / G_USEC_PER_SEC,
                       totals[APP_TOTAL_ROWS], totals[APP_TOTAL_LOSS], totals[APP_TOTAL_METRIC]);
        if (!isfinite(totals[APP_TOTAL_LOSS]))
            app_warn_of_divergence(app, "is", totals[APP_TOTAL_LOSS]);
        if (has_target && app_curve_loss(&app->curve) <= app->target_loss) {
            stop(self, APP_STOPPED_BY_LOSS);
            self->untold[APP_TOTAL_STOP] = 1;
            return tell(self, error);
        }
    } else if (totals[APP_TOTAL_STOP] > 0) {
        stop(self, APP_STOPPED_BY_LOSS);
    }
    return true;
}

/* The error of a worker whose loss is no number. */
static bool refuse_divergence(const App *app, double loss, GError **error)
{
    g_autofree char *text = app_divergence_text(app, "is", loss);

    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_TASK_FAILED, "%s; --keep-going trains on", text);
    return false;
}

bool app_worker_step(AppWorker *self, uint64_t n_rows, double loss, double metric, GError **error)
{
    App *app = self->app;
    const int64_t now_us = g_get_monotonic_time();

    self->n_rows += n_rows;
    self->step++;
    if (self->leads) {
        app->n_steps++;
        app->n_unstreamed++;
    }
    if (G_UNLIKELY(!isfinite(loss)) && !app->keep_going)
        return refuse_divergence(app, loss, error);
    app_progress_count(&app->progress, n_rows);
    if (self->leads)
        app_progress_draw(&app->progress, n_rows, loss);
    self->untold[APP_TOTAL_ROWS] += (double)n_rows;
    self->untold[APP_TOTAL_LOSS] += loss;
    self->untold[APP_TOTAL_METRIC] += metric;
    if (now_us < self->look_us)
        return true;
    self->look_us =
        now_us + CLAMP((now_us - app->begun_us) / LOOKS_BY_SHARE, LOOK_LEAST_US, LOOK_MOST_US);
    return tell(self, error) && look(self, now_us, error);
}

/* ---- snapshots ---- */

uint64_t app_worker_first_step(const AppWorker *self)
{
    return self->app->first_step;
}

void app_worker_skip(AppWorker *self, uint64_t n_rows)
{
    self->n_rows += n_rows;
    self->untold[APP_TOTAL_SKIPPED] += (double)n_rows;
    app_progress_count(&self->app->progress, n_rows);
}

uint64_t app_worker_n_rows(const AppWorker *self)
{
    return self->n_rows;
}

/* Whether a signal is to end the run, once there is a snapshot. */
static bool is_ended(const AppWorker *self)
{
    return self->app->cuts_at_signals && (self->app->signal_number != 0 || self->is_asked_to_end);
}

void app_worker_keep_rows(AppWorker *self, RubatoReader *reader)
{
    if (self->app->keeps_rows)
        self->reader = reader;
}

bool app_worker_keeps_rows(const AppWorker *self)
{
    return self->reader != NULL;
}

bool app_worker_begin_adds(AppWorker *self, GError **error)
{
    return self->reader == NULL || rubato_worker_begin_step(self->worker, error);
}

/* The count is under the model of the other tables, if that applies Adds by their clock: so it has
 * a clock in each step, as they have. */
bool app_worker_end_adds(AppWorker *self, uint64_t n_rows, GError **error)
{
    const int64_t n = (int64_t)n_rows;

    if (self->reader == NULL)
        return true;
    return (n == 0 || rubato_kv_table_add(self->done, &totals_key, 1, &n, error)) &&
           (!self->app->model_traits->applies_by_clock ||
            rubato_kv_table_clock(self->done, error)) &&
           rubato_worker_finish_rows(self->worker, self->reader, n_rows, error) &&
           rubato_worker_end_step(self->worker, error);
}

void app_worker_write_before_snapshots(AppWorker *self, AppWriteFunc write, void *user_data)
{
    self->write = write;
    self->write_data = user_data;
}

static bool write_all(const AppWorker *self, GError **error)
{
    return self->write == NULL || self->write(self->write_data, error);
}

/* A version is cut at any moment, but not in a step. */
static bool write_for_stream(AppWorker *self, GError **error)
{
    if (!self->leads || self->write == NULL || !app_stream_wants_write(self->app))
        return true;
    app_stream_written(self->app);
    return rubato_worker_begin_step(self->worker, error) && write_all(self, error) &&
           rubato_worker_end_step(self->worker, error);
}

/* As between epochs (app_checkpoint.c). (fault: transfer full) */
static bool pass_over(const AppWorker *self, GError *fault, GError **error)
{
    if (!app_checkpoint_may_lack(fault)) {
        g_propagate_error(error, fault);
        return false;
    }
    say_lacking(self, fault);
    g_error_free(fault);
    return true;
}

/* Has all workers stop, so that the model can be saved. */
static bool stop_all(AppWorker *self, GError **error)
{
    stop(self, APP_STOPPED_BY_SIGNAL);
    self->untold[APP_TOTAL_STOP] = 1;
    return tell(self, error);
}

/* Without a model to save, the task ends by an error on all nodes. */
static bool end_with_snapshot(AppWorker *self, GError **error)
{
    const App *const app = self->app;
    GError *fault = NULL;
    uint64_t number;

    self->has_cut_last = true;
    if (!write_all(self, error))
        return false;
    if (!app_checkpoint_cut(self->app, self->worker, self->step, NULL, &number, &fault)) {
        if (app->save != NULL)
            return pass_over(self, fault, error) && stop_all(self, error);
        g_propagate_error(error, fault);
        return false;
    }
    if (app->save != NULL) {
        g_printerr("%s: a signal ended training; snapshot %" G_GUINT64_FORMAT
                   " is whole, and --resume goes on from there\n",
                   app->program->name, number);
        return stop_all(self, error);
    }
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CANCELLED,
                "a signal ended training; snapshot %" G_GUINT64_FORMAT
                " has all of it, and --resume goes on from there",
                number);
    return false;
}

bool app_worker_checkpoint(AppWorker *self, GError **error)
{
    App *app = self->app;
    GError *fault = NULL;

    if (!write_for_stream(self, error))
        return false;
    if (!self->leads || !app->takes_cuts || self->has_cut_last)
        return true;
    /* In front of the first step of all there is nothing to keep. An epoch may have one step. */
    if (self->step == 0 && app->only_epoch <= 1)
        return true;
    if (is_ended(self))
        return end_with_snapshot(self, error);
    if ((self->step == 0 && app->checkpoint_steps > 0) || !app_checkpoint_is_due(app))
        return true;
    /* The one before has to be written first: for that steps wait, and seconds pass. */
    if (self->snapshot != 0 && app->checkpoint_steps == 0 &&
        !rubato_worker_poll(self->worker, self->snapshot))
        return true;
    if (self->snapshot != 0 && !rubato_worker_wait(self->worker, self->snapshot, &fault) &&
        !pass_over(self, g_steal_pointer(&fault), error))
        return false;
    self->snapshot = 0;
    return write_all(self, error) &&
           (app_checkpoint_cut(app, self->worker, self->step, &self->snapshot, NULL, &fault) ||
            pass_over(self, fault, error));
}

/* Tells the servers, if the rate has changed. */
static bool tune(AppWorker *self, const char *const *tables, uint64_t rate_step, GError **error)
{
    const double rate = app_learning_rate(self->app, rate_step, APP_RATE_STEPS);

    if (rate_step == self->rate_step)
        return true;
    self->rate_step = rate_step;
    for (size_t i = 0; tables[i] != NULL; i++)
        if (!rubato_worker_tune(self->worker, tables[i], RUBATO_HYPER_LEARNING_RATE, rate, error))
            return false;
    return true;
}

bool app_worker_lower_rate_to(AppWorker *self, const char *const *tables, uint64_t rate_step,
                              GError **error)
{
    return !self->leads || tune(self, tables, rate_step, error);
}

/* By its own rows, as if the other workers had as many; so the rate does not depend on time. In a
 * small file they may have fewer, or none: so no epoch counts for more than one. */
bool app_worker_lower_rate(AppWorker *self, const char *const *tables, uint32_t epoch,
                           GError **error)
{
    const App *app = self->app;

    if (!self->leads)
        return true;
    if (epoch != self->epoch) {
        self->epoch = epoch;
        self->epoch_rows = self->n_rows;
    }
    const double before = app->only_epoch > 0 ? app->only_epoch - 1 : epoch;
    const double rows =
        (double)(self->n_rows - self->epoch_rows) * rubato_worker_n_workers(self->worker);
    const double share = (before + MIN(rows / (double)app->n_rows, 1)) / app->epochs;

    return tune(self, tables, (uint64_t)(MIN(share, 1) * APP_RATE_STEPS), error);
}
