/* Validated training in one process: when it ends, and which epoch's model is left. */
#include <check.h>
#include <math.h>

#include "apps/kit/app_validation.h"
#include "tests/support/runner.h"

#define N_WORKERS 2
#define FAR_KEY 1000000

typedef struct {
    App app;
    AppData data;
    AppProgram program;
    const double *losses; /* that are measured, one after the other */
    uint32_t n_measured;
} Job;

/* In each epoch each worker adds 1 to both tables. */
static bool train(RubatoWorker *worker, void *user_data, GError **error)
{
    static const RubatoKey keys[] = { 0, FAR_KEY };
    Job *job = user_data;
    const uint32_t n_epochs = job->app.only_epoch > 0 ? 1 : job->app.epochs;
    const float one = 1;
    g_autoptr(AppWorker) self = app_worker_new(&job->app, worker, error);

    if (self == NULL)
        return false;
    g_autoptr(RubatoKVTable) dense =
        rubato_worker_open_kv_table(worker, "dense", RUBATO_F32, error);
    g_autoptr(RubatoKVTable) hash = rubato_worker_open_kv_table(worker, "hash", RUBATO_F32, error);

    if (dense == NULL || hash == NULL)
        return false;
    for (uint32_t i = 0; i < n_epochs && app_worker_goes_on(self); i++)
        if (!rubato_kv_table_add(dense, &keys[0], 1, &one, error) ||
            !rubato_kv_table_clock(dense, error) ||
            !rubato_kv_table_add(hash, &keys[1], 1, &one, error) ||
            !rubato_kv_table_clock(hash, error) || !app_worker_step(self, 1, 1, 0, error))
            return false;
    return true;
}

static bool measure(double *loss, void *user_data, GError **error)
{
    Job *job = user_data;

    *loss = job->losses[job->n_measured++];
    if (*loss >= 0 || isnan(*loss))
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT, "rows: they are gone");
    return false;
}

static bool run(Job *job, const char *const *arguments, GError **error)
{
    static const AppArray arrays[] = {
        { .name = "dense", .spec = { .name = "dense", .n_keys = 1 } },
        { .name = "hash", .spec = { .name = "hash", .storage = "hash" } },
    };
    static const char *const tables[] = { "dense", "hash", NULL };
    const AppModel model = { .arrays = arrays, .n_arrays = 2 };
    const RubatoTask task = { .name = "t", .run = train, .user_data = job, .tables = tables };
    char *argv[16] = { (char *)"rubato-test", (char *)"--workers=2", (char *)"--train=rows" };
    int argc = 3;

    g_unsetenv("RUBATO_CLUSTER");
    for (size_t i = 0; arguments[i] != NULL; i++)
        argv[argc++] = (char *)arguments[i];
    job->program =
        (AppProgram){ .name = "rubato-test", .epochs = 6, .batch_size = 1, .data = &job->data };
    ck_assert(app_parse(&job->app, &job->program, argc, argv));
    ck_assert(app_start(&job->app, NULL));
    job->app.validated.patience = (uint32_t)job->data.patience;
    return app_create_model(&job->app, &model, NULL) &&
           app_train_validated(&job->app, &task, N_WORKERS, &model, measure, job, error);
}

static void check_sums(const Job *job, float expected)
{
    static const struct {
        const char *table;
        RubatoKey key;
    } sums[] = { { "dense", 0 }, { "hash", FAR_KEY } };

    for (size_t i = 0; i < G_N_ELEMENTS(sums); i++) {
        float sum;

        ck_assert(rubato_engine_get(job->app.engine, sums[i].table, &sums[i].key, 1, &sum, NULL));
        ck_assert_msg(sum == expected, "%s is %g, not %g", sums[i].table, (double)sum,
                      (double)expected);
    }
}

static const struct {
    const char *patience;
    double losses[6];
    uint32_t n_measured, best_epoch;
    AppStopped stopped;
} courses[] = {
    { "--patience=3", { 5, 4, 3, 2, 1, 0 }, 6, 6, APP_STOPPED_NOT },
    { "--patience=2", { 5, 3, 4, 3, 1, 0 }, 4, 2, APP_STOPPED_BY_PATIENCE },
    { "--patience=1", { 5, 3, 4, 9, 9, 9 }, 3, 2, APP_STOPPED_BY_PATIENCE },
    { "--patience=0", { 5, 3, 4, 9, 9, 9 }, 6, 2, APP_STOPPED_NOT },
    { "--patience=5", { 1, 3, 4, 9, 9, 9 }, 6, 1, APP_STOPPED_NOT }, /* at the end anyway */
    { "--patience=3", { NAN, NAN, 4, NAN, 9, 9 }, 6, 3, APP_STOPPED_NOT },
};

START_TEST(training_ends_when_it_gets_no_better_and_leaves_the_best_model)
{
    Job *job = g_new0(Job, 1);

    job->losses = courses[_i].losses;
    ck_assert(
        run(job, (const char *const[]){ "--validate=rows", courses[_i].patience, NULL }, NULL));
    const AppValidated *validated = &job->app.validated;
    ck_assert_uint_eq(job->n_measured, courses[_i].n_measured);
    ck_assert_uint_eq(validated->epochs->len, courses[_i].n_measured);
    ck_assert_uint_eq(validated->best_epoch, courses[_i].best_epoch);
    ck_assert_uint_eq(job->app.n_samples, courses[_i].n_measured * N_WORKERS);
    ck_assert_int_eq(job->app.stopped, courses[_i].stopped);
    check_sums(job, (float)courses[_i].best_epoch * N_WORKERS);
    app_end(&job->app, NULL);
    g_free(job);
}
END_TEST

START_TEST(without_validation_there_is_one_task)
{
    Job *job = g_new0(Job, 1);

    ck_assert(run(job, (const char *const[]){ NULL }, NULL));
    ck_assert_uint_eq(job->n_measured, 0);
    ck_assert_ptr_null(job->app.validated.epochs);
    check_sums(job, 6 * N_WORKERS);
    app_end(&job->app, NULL);
    g_free(job);
}
END_TEST

START_TEST(rows_that_cannot_be_measured_on_end_the_training)
{
    static const double losses[] = { 5, -1 };
    Job *job = g_new0(Job, 1);
    g_autoptr(GError) error = NULL;

    job->losses = losses;
    ck_assert(!run(job, (const char *const[]){ "--validate=rows", NULL }, &error));
    ck_assert_str_eq(error->message, "rows: they are gone");
    app_end(&job->app, NULL);
    g_free(job);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("app_validation");
    TCase *tcase = tcase_create("app_validation");

    tcase_add_loop_test(tcase, training_ends_when_it_gets_no_better_and_leaves_the_best_model, 0,
                        (int)G_N_ELEMENTS(courses));
    tcase_add_test(tcase, without_validation_there_is_one_task);
    tcase_add_test(tcase, rows_that_cannot_be_measured_on_end_the_training);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
