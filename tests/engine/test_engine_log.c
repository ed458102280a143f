/* Each engine's lines go to its own log, from its threads, its workers and its calls.
 *
 * docs/reference/engine.md: The log */
#include <math.h>
#include <string.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { STALL_MS = 20 };

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    GString *lines; /* "1 text\n": the level, the text */
    RubatoEngine *engine;
    bool is_mixed; /* lines of different engines */
} Log;

static void take_line(RubatoLogLevel level, const char *text, RubatoEngine *engine, void *user_data)
{
    Log *log = user_data;

    pthread_mutex_lock(&log->lock);
    log->is_mixed |= log->engine != NULL && log->engine != engine;
    log->engine = engine;
    g_string_append_printf(log->lines, "%u %s\n", level, text);
    pthread_cond_broadcast(&log->changed);
    pthread_mutex_unlock(&log->lock);
}

static void await_line(Log *log, const char *text)
{
    pthread_mutex_lock(&log->lock);
    while (strstr(log->lines->str, text) == NULL)
        pthread_cond_wait(&log->changed, &log->lock);
    pthread_mutex_unlock(&log->lock);
}

static RubatoEngine *engine_with_log(Log *log, RubatoLogLevel level)
{
    GError *error = NULL;

    *log = (Log){ .lines = g_string_new(NULL) };
    pthread_mutex_init(&log->lock, NULL);
    pthread_cond_init(&log->changed, NULL);
    RubatoEngine *engine = rubato_engine_new(&(RubatoEngineConfig){ .servers = 2,
                                                                    .stall_ms = STALL_MS,
                                                                    .log_level = level,
                                                                    .log = take_line,
                                                                    .log_data = log },
                                             &error);
    ck_assert_msg(engine != NULL, "%s", error != NULL ? error->message : "");
    create_table(engine,
                 &(RubatoTableSpec){ .name = "t", .n_keys = 10, .model = "ssp", .update = "sgd" });
    return engine;
}

typedef struct {
    Log *log;
    float delta;
} Job;

static void log_clear(Log *log)
{
    g_string_free(log->lines, TRUE);
    pthread_cond_destroy(&log->changed);
    pthread_mutex_destroy(&log->lock);
}

/* Worker 0 adds something bad, waits for worker 1's clock, and leaves its handle open. Worker 1
 * clocks once the log says that worker 0 waits. */
static RubatoKVTable *left_open[2]; /* it can still be reached, so no sanitizer takes it for lost */

static bool misbehave(RubatoWorker *worker, void *user_data, GError **error)
{
    const Job *job = user_data;
    const RubatoKey key = 0;
    float value;

    RubatoKVTable *table = rubato_worker_open_kv_table(worker, "t", RUBATO_F32, error);
    TRY(table != NULL);
    if (rubato_worker_rank(worker) == 1) {
        if (job->log != NULL)
            await_line(job->log, "0 worker 0 waits for clock 1 of table t");
        TRY(rubato_kv_table_clock(table, error));
        rubato_kv_table_free(table);
        return true;
    }
    left_open[left_open[0] != NULL] = table;
    TRY(rubato_kv_table_add(table, &key, 1, &job->delta, error));
    TRY(rubato_kv_table_clock(table, error));
    return rubato_kv_table_get(table, &key, 1, &value, error);
}

START_TEST(an_engine_has_a_log_of_its_own)
{
    Log first, second;
    RubatoEngine *const engine = engine_with_log(&first, RUBATO_LOG_MESSAGE);
    RubatoEngine *const other = engine_with_log(&second, RUBATO_LOG_MESSAGE);

    run_ok(engine, 2, misbehave, &(Job){ &first, NAN }, "t");
    rubato_engine_free(other);
    rubato_engine_free(engine);
    ck_assert_ptr_nonnull(strstr(first.lines->str, "1 table t: "));
    ck_assert_ptr_nonnull(strstr(first.lines->str, "1 worker 0 of task"));
    ck_assert_ptr_eq(first.engine, engine);
    ck_assert(!first.is_mixed);
    ck_assert_str_eq(second.lines->str, "");
    log_clear(&first);
    log_clear(&second);
}
END_TEST

START_TEST(lines_below_the_level_are_dropped)
{
    Log log;
    RubatoEngine *engine = engine_with_log(&log, RUBATO_LOG_WARNING);

    run_ok(engine, 2, misbehave, &(Job){ NULL, NAN }, "t");
    rubato_engine_free(engine);
    ck_assert_ptr_nonnull(strstr(log.lines->str, "1 table t: "));
    ck_assert_ptr_null(strstr(log.lines->str, "waits for clock"));
    log_clear(&log);

    engine = engine_with_log(&log, RUBATO_LOG_NOTHING);
    run_ok(engine, 2, misbehave, &(Job){ NULL, NAN }, "t");
    rubato_engine_free(engine);
    ck_assert_str_eq(log.lines->str, "");
    log_clear(&log);
}
END_TEST

/* ---- calls of the application's threads ---- */

/* Ends once the log says that the engine's call waits for it. */
static bool hold_on(RubatoWorker *worker, void *user_data, GError **error)
{
    (void)worker;
    (void)error;
    await_line(user_data, "have not returned yet");
    return true;
}

START_TEST(a_call_logs_for_the_engine_that_it_is_made_to)
{
    Log logs[2];
    RubatoEngine *engines[2];
    RubatoTaskRun *runs[2];

    for (int i = 0; i < 2; i++) {
        engines[i] = engine_with_log(&logs[i], RUBATO_LOG_MESSAGE);
        runs[i] = rubato_engine_start(engines[i],
                                      &(RubatoTask){ .name = i == 0 ? "one" : "two",
                                                     .run = hold_on,
                                                     .user_data = &logs[i],
                                                     .workers_per_node = 1 },
                                      NULL);
        ck_assert_ptr_nonnull(runs[i]);
        rubato_engine_cancel(engines[i]);
    }
    for (int i = 0; i < 2; i++)
        ck_assert(!rubato_task_run_wait(runs[i], NULL));
    ck_assert_ptr_nonnull(strstr(logs[0].lines->str, "task one was cancelled"));
    ck_assert_ptr_nonnull(strstr(logs[1].lines->str, "task two was cancelled"));
    for (int i = 0; i < 2; i++) {
        rubato_engine_free(engines[i]);
        ck_assert(!logs[i].is_mixed && logs[i].engine == engines[i]);
        log_clear(&logs[i]);
    }
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("engine_log");
    TCase *const cases = tcase_create("log");

    tcase_add_test(cases, an_engine_has_a_log_of_its_own);
    tcase_add_test(cases, lines_below_the_level_are_dropped);
    tcase_add_test(cases, a_call_logs_for_the_engine_that_it_is_made_to);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
