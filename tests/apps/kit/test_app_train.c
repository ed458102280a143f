/* What the programs share while workers train: totals, stragglers, and ends before the last
 * epoch. */
#include <glib/gstdio.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "apps/kit/app.h"
#include "tests/support/runner.h"

enum { N_WORKERS = 4, N_ROWS = 4000, BATCH = 10, BAD_STEP = 5, LOOKS_US = 250 * 1000 };

static const AppProgram program = {
    .name = "rubato-test",
    .summary = "Tests.",
    .metric = "accuracy",
    .epochs = 2,
    .batch_size = BATCH,
    .learning_rate = 1,
};

typedef struct {
    App app;
    bool rate_falls;
    bool leads_alone;   /* worker 0 has all rows */
    bool leads_on;      /* worker 0 takes another step once it stops, as by allreduce */
    double loss_of_row; /* falls as 1 / (1 + steps / this) where above 0, else it is 1 */
    double bad_loss;    /* of a step of worker 2, if it is no number from 0 */
    double growth;      /* of the loss with each step; 0: none */
    int signal_number;  /* that worker 1 sends after some steps; 0: none */
    _Atomic uint64_t n_steps[N_WORKERS];
} Job;

/* Counts a clock of a table in each step, as a training loop does. */
static bool train(RubatoWorker *worker, void *user_data, GError **error)
{
    Job *job = user_data;
    const RubatoKey key = 0;
    static const char *const tables[] = { "sum", NULL };
    const int n_workers = job->leads_alone ? 1 : N_WORKERS;
    const uint64_t n_steps_of_epoch = (uint64_t)(N_ROWS / BATCH / n_workers);
    const bool has_rows = !job->leads_alone || rubato_worker_rank(worker) == 0;
    const uint64_t n_steps = has_rows ? job->app.epochs * n_steps_of_epoch : 0;
    const float one = 1;
    float sum;
    bool leads_on = job->leads_on && rubato_worker_rank(worker) == 0;

    g_autoptr(AppWorker) self = app_worker_new(&job->app, worker, error);
    g_autoptr(RubatoKVTable) table =
        self != NULL ? rubato_worker_open_kv_table(worker, "sum", RUBATO_F32, error) : NULL;
    if (table == NULL)
        return false;
    for (uint64_t step = 0; step < n_steps; step++) {
        double loss = job->loss_of_row > 0 ? 1 / (1 + (double)step / job->loss_of_row) : 1;

        if (!app_worker_goes_on(self)) {
            if (!leads_on)
                break;
            leads_on = false;
            loss = 1000;        /* so that the target is missed again */
            g_usleep(LOOKS_US); /* so that it looks at the totals */
        }

        if (step == BAD_STEP && rubato_worker_rank(worker) == 1 && job->signal_number != 0)
            kill(getpid(), job->signal_number);
        loss += job->growth * (double)step;
        if (step == BAD_STEP && rubato_worker_rank(worker) == 2 && !isfinite(job->bad_loss))
            loss = job->bad_loss;
        job->n_steps[rubato_worker_rank(worker)]++;
        if (!rubato_kv_table_get(table, &key, 1, &sum, error) ||
            (job->rate_falls &&
             !app_worker_lower_rate(self, tables, (uint32_t)(step / n_steps_of_epoch), error)) ||
            !rubato_kv_table_add(table, &key, 1, &one, error) ||
            !rubato_kv_table_clock(table, error) ||
            !app_worker_step(self, BATCH, BATCH * loss, BATCH / 2, error))
            return false;
    }
    return true;
}

static Job *start(const char *const *arguments)
{
    Job *job = g_new0(Job, 1);
    char *argv[16] = { (char *)"rubato-test", (char *)"--workers=4", (char *)"--servers=2" };
    int argc = 3;

    g_unsetenv("RUBATO_CLUSTER");
    for (size_t i = 0; arguments[i] != NULL; i++)
        argv[argc++] = (char *)arguments[i];
    ck_assert(app_parse(&job->app, &program, argc, argv));
    ck_assert(app_start(&job->app, NULL));
    return job;
}

static bool try_to_run(Job *job, GError **error)
{
    const AppArray sum = { .name = "sum",
                           .spec = { .name = "sum",
                                     .n_keys = 1,
                                     .update = job->rate_falls ? "sgd" : "add",
                                     .rule.learning_rate = job->rate_falls ? 1 : 0 } };
    const AppModel model = { .arrays = &sum, .n_arrays = 1 };
    const char *const tables[] = { "sum", NULL };
    const RubatoTask task = { .name = "t", .run = train, .user_data = job, .tables = tables };

    return app_create_model(&job->app, &model, error) && app_train(&job->app, &task, N_ROWS, error);
}

static void run(Job *job)
{
    g_autoptr(GError) error = NULL;

    ck_assert_msg(try_to_run(job, &error), "%s", error != NULL ? error->message : "");
}

static void end(Job *job)
{
    app_end(&job->app, NULL);
    g_free(job);
}

static const char *const models[] = { "bsp", "ssp", "asp", "sparse_ssp" };

START_TEST(every_row_is_counted_once)
{
    Job *job = start((const char *const[]){ "--model", models[_i], NULL });

    ck_assert(app_reports(&job->app));
    run(job);
    ck_assert_uint_eq(job->app.n_samples, 2 * N_ROWS);
    ck_assert_int_eq(job->app.stopped, APP_STOPPED_NOT);
    const GArray *points = job->app.curve.points;
    ck_assert_uint_gt(points->len, 0);
    const AppCurvePoint *last = &g_array_index(points, AppCurvePoint, points->len - 1);
    ck_assert_double_eq(last->epoch, 2);
    ck_assert_double_eq(last->seconds, job->app.seconds);
    ck_assert_double_eq_tol(last->loss, 1, 1e-9);
    ck_assert_double_eq_tol(last->metric, 0.5, 1e-9);
    end(job);
}
END_TEST

/* Each worker's gradient of 1 takes the rate off the sum. */
START_TEST(the_rate_falls_for_all_workers_as_rows_are_learned)
{
    const RubatoKey key = 0;
    const int n_steps = 2 * N_ROWS / BATCH / N_WORKERS;
    double expected = 0;
    float sum;
    Job *job = start((const char *const[]){ "--model", "bsp", NULL });

    job->rate_falls = true;
    run(job);
    for (int step = 0; step < n_steps; step++)
        expected -= N_WORKERS * (1 - 0.95 * (double)(step * 64 / n_steps) / 64);
    ck_assert(rubato_engine_get(job->app.engine, "sum", &key, 1, &sum, NULL));
    ck_assert_double_eq_tol((double)sum, expected, 1e-3 * -expected);
    end(job);
}
END_TEST

/* A small file may come to worker 0 alone: the rate of each epoch begins where that of the one
 * before ends, and not lower. */
START_TEST(the_rate_falls_no_further_in_an_epoch_than_the_epoch_goes)
{
    const RubatoKey key = 0;
    const int n_steps = N_ROWS / BATCH;
    double expected = 0;
    float sum;
    Job *job = start((const char *const[]){ "--model", "bsp", NULL });

    job->rate_falls = job->leads_alone = true;
    run(job);
    for (int step = 0; step < 2 * n_steps; step++) {
        const double of_epoch = (double)(step % n_steps) * N_WORKERS / n_steps;
        const double share = (step / n_steps + MIN(of_epoch, 1)) / 2;

        expected -= 1 - 0.95 * floor(share * 64) / 64;
    }
    ck_assert(rubato_engine_get(job->app.engine, "sum", &key, 1, &sum, NULL));
    ck_assert_double_eq_tol((double)sum, expected, 1e-3 * -expected);
    end(job);
}
END_TEST

START_TEST(all_workers_stop_at_the_target_loss)
{
    Job *job = start((const char *const[]){ "--model", models[_i], "--epochs", "1000000",
                                            "--target-loss", "0.5", NULL });

    job->loss_of_row = 1000;
    run(job);
    ck_assert_int_eq(job->app.stopped, APP_STOPPED_BY_LOSS);
    ck_assert_uint_lt(job->app.n_samples, UINT64_C(1000000) * N_ROWS);
    uint64_t n_steps = 0;
    for (int i = 0; i < N_WORKERS; i++)
        n_steps += job->n_steps[i];
    ck_assert_uint_eq(job->app.n_samples, n_steps * BATCH);
    g_autofree char *text = app_card_text(&job->app);
    ck_assert(strstr(text, "  stopped        at the target loss of 0.5\n") != NULL);
    end(job);
}
END_TEST

START_TEST(a_worker_that_steps_on_after_the_target_loss_tells_no_other_reason)
{
    Job *job = start((const char *const[]){ "--epochs", "1000000", "--target-loss", "0.5", NULL });

    job->loss_of_row = 1000;
    job->leads_on = true;
    run(job);
    ck_assert_int_eq(job->app.stopped, APP_STOPPED_BY_LOSS);
    end(job);
}
END_TEST

START_TEST(all_workers_stop_at_the_time_limit)
{
    Job *job = start((const char *const[]){ "--model", models[_i], "--epochs", "1000000",
                                            "--time-limit", "0.05", NULL });

    run(job);
    ck_assert_int_eq(job->app.stopped, APP_STOPPED_BY_TIME);
    ck_assert_double_ge(job->app.seconds, 0.05);
    g_autofree char *text = app_card_text(&job->app);
    ck_assert(strstr(text, "  stopped        after the time limit of 0.05 s\n") != NULL);
    ck_assert(strstr(text, " of 1000000 epochs") != NULL);
    end(job);
}
END_TEST

/* An hour of sleep ends with the limit. */
START_TEST(a_straggler_sleeps_no_longer_than_training_lasts)
{
    Job *job =
        start((const char *const[]){ "--straggler", "1:3600000", "--time-limit", "0.05", NULL });

    run(job);
    ck_assert_int_eq(job->app.stopped, APP_STOPPED_BY_TIME);
    ck_assert_uint_eq(job->app.n_samples, 0);
    end(job);
}
END_TEST

START_TEST(stragglers_sleep_before_each_step_where_the_probability_is_one)
{
    Job *job = start((const char *const[]){ "--straggler", "1:0.5", "--epochs", "1", NULL });

    run(job);
    ck_assert_double_ge(job->app.seconds, 0.5e-3 * N_ROWS / BATCH / N_WORKERS);
    ck_assert_uint_eq(job->app.n_samples, N_ROWS);
    end(job);
}
END_TEST

static const double bad_losses[] = { (double)NAN, (double)INFINITY };

START_TEST(training_that_diverges_fails_with_advice)
{
    Job *job = start((const char *const[]){ "--epochs", "1000000", NULL });
    g_autoptr(GError) error = NULL;

    job->bad_loss = bad_losses[_i];
    ck_assert(!try_to_run(job, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_TASK_FAILED));
    g_autofree char *text = g_strdup_printf(
        "worker 2 (node 0) failed: training diverges: the loss is %g. Take a smaller "
        "--learning-rate (it was 1) or scale the data; --keep-going trains on",
        bad_losses[_i]);
    ck_assert_msg(strstr(error->message, text) != NULL, "%s", error->message);
    ck_assert(strchr(error->message, '\n') == NULL);
    end(job);
}
END_TEST

START_TEST(training_that_diverges_goes_on_where_the_user_says_so)
{
    Job *job = start((const char *const[]){ "--keep-going", NULL });

    job->bad_loss = bad_losses[_i];
    run(job);
    ck_assert_uint_eq(job->app.n_samples, 2 * N_ROWS);
    ck_assert(job->app.diverged);
    ck_assert(!isfinite(app_curve_loss(&job->app.curve)));
    end(job);
}
END_TEST

/* A loss that only grows is a number, too, but no result. A model that was loaded may have begun
 * with a very small one. */
START_TEST(a_loss_that_ends_far_above_its_begin_is_told)
{
    Job *job = start((const char *const[]){ NULL });

    job->growth = 1;
    run(job);
    ck_assert(job->app.diverged);
    end(job);
    job = start((const char *const[]){ NULL });
    job->growth = 1e-3;
    run(job);
    ck_assert(!job->app.diverged);
    end(job);
}
END_TEST

/* The workers would go on for hours. */
START_TEST(a_signal_stops_training_where_the_model_is_to_be_saved)
{
    g_autofree char *dir = g_dir_make_tmp("rubato-train-XXXXXX", NULL);
    g_autofree char *model = g_build_filename(dir, "model", NULL);
    Job *job = start((const char *const[]){ "--model", models[_i], "--epochs", "1000000",
                                            "--straggler", "1:1", "--save", model, NULL });

    job->signal_number = SIGINT;
    run(job);
    ck_assert_int_eq(job->app.stopped, APP_STOPPED_BY_SIGNAL);
    g_autofree char *text = app_card_text(&job->app);
    ck_assert(strstr(text, "  stopped        by a signal\n") != NULL);
    ck_assert(g_rmdir(dir) == 0);
    ck_assert_int_eq(app_end(&job->app, NULL), 128 + SIGINT);
    g_free(job);
}
END_TEST

START_TEST(a_signal_cancels_training_where_nothing_is_to_be_saved)
{
    Job *job = start((const char *const[]){ "--epochs", "1000000", NULL });
    g_autoptr(GError) error = NULL;

    job->signal_number = SIGTERM;
    ck_assert(!try_to_run(job, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_CANCELLED));
    ck_assert_msg(strstr(error->message, "the run was ended by signal 15") != NULL, "%s",
                  error->message);
    ck_assert_int_eq(app_end(&job->app, error), 128 + SIGTERM);
    g_free(job);
}
END_TEST

START_TEST(without_epochs_nothing_runs)
{
    Job *job = start((const char *const[]){ "--epochs", "0", NULL });

    run(job);
    ck_assert_uint_eq(job->n_steps[0], 0);
    ck_assert(app_reports(&job->app));
    g_autofree char *text = app_card_text(&job->app);
    ck_assert(strstr(text, "training") == NULL);
    g_autofree char *json = app_card_json(&job->app);
    ck_assert(strstr(json, "\"curve\":{\"seconds\":[],") != NULL);
    end(job);
}
END_TEST

START_TEST(a_worker_that_fails_fails_the_run)
{
    Job *job = start((const char *const[]){ NULL });
    const RubatoTask task = { .name = "t", .run = train, .user_data = job };
    g_autoptr(GError) error = NULL;

    ck_assert(!app_train(&job->app, &task, N_ROWS, &error)); /* there is no table "sum" */
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_TASK_FAILED));
    end(job);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("app train");
    TCase *cases = tcase_create("train");

    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, every_row_is_counted_once, 0, 4);
    tcase_add_test(cases, the_rate_falls_for_all_workers_as_rows_are_learned);
    tcase_add_test(cases, the_rate_falls_no_further_in_an_epoch_than_the_epoch_goes);
    tcase_add_loop_test(cases, all_workers_stop_at_the_target_loss, 0, 4);
    tcase_add_test(cases, a_worker_that_steps_on_after_the_target_loss_tells_no_other_reason);
    tcase_add_loop_test(cases, all_workers_stop_at_the_time_limit, 0, 4);
    tcase_add_test(cases, a_straggler_sleeps_no_longer_than_training_lasts);
    tcase_add_test(cases, stragglers_sleep_before_each_step_where_the_probability_is_one);
    tcase_add_loop_test(cases, training_that_diverges_fails_with_advice, 0, 2);
    tcase_add_loop_test(cases, training_that_diverges_goes_on_where_the_user_says_so, 0, 2);
    tcase_add_test(cases, a_loss_that_ends_far_above_its_begin_is_told);
    tcase_add_loop_test(cases, a_signal_stops_training_where_the_model_is_to_be_saved, 0, 4);
    tcase_add_test(cases, a_signal_cancels_training_where_nothing_is_to_be_saved);
    tcase_add_test(cases, without_epochs_nothing_runs);
    tcase_add_test(cases, a_worker_that_fails_fails_the_run);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
