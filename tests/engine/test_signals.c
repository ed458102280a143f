/* SIGINT, SIGTERM and SIGHUP: the first cancels in order, the second ends the process at once.
 *
 * docs/liveness.md: An interrupt */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

static const int signals[] = { SIGINT, SIGTERM, SIGHUP };

static RubatoEngine *make_engine(void)
{
    RubatoEngine *engine =
        rubato_engine_new(&(RubatoEngineConfig){ .servers = 2, .handle_signals = true }, NULL);

    ck_assert_ptr_nonnull(engine);
    create_table(engine, &(RubatoTableSpec){ .name = "t", .dtype = RUBATO_I64, .model = "bsp" });
    return engine;
}

/* Worker 0 waits for the others; one of them sends the signal. */
static bool be_interrupted(RubatoWorker *worker, void *user_data, GError **error)
{
    const int signal_number = *(const int *)user_data;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    const RubatoKey key = 0;
    int64_t value;

    TRY(table != NULL);
    switch (rubato_worker_rank(worker)) {
    case 0:
        TRY(rubato_kv_table_clock(table, error));
        return rubato_kv_table_get(table, &key, 1, &value, error);
    case 1:
        return rubato_worker_barrier(worker, error);
    default:
        kill(getpid(), signal_number);
        while (!rubato_worker_cancelled(worker))
            sched_yield();
        return true;
    }
}

START_TEST(the_first_signal_cancels_the_run_and_says_which_it_was)
{
    RubatoEngine *engine = make_engine();
    const char *const tables[] = { "t", NULL };
    const RubatoTask task = { .name = "interrupted",
                              .run = be_interrupted,
                              .user_data = (void *)(uintptr_t)&signals[_i],
                              .tables = tables,
                              .workers_per_node = 3 };
    g_autofree char *name = g_strdup_printf("signal %d (%s)", signals[_i], strsignal(signals[_i]));
    GError *error = NULL;

    run_fails(engine, &task, RUBATO_ERROR_CANCELLED, "the run was ended by", name, NULL);
    /* the run is over: what comes after it is refused for the same reason */
    run_fails(engine, &task, RUBATO_ERROR_CANCELLED, name, NULL);
    ck_assert(!rubato_engine_create_table(engine, &(RubatoTableSpec){ .name = "u" }, &error));
    check_error(&error, RUBATO_ERROR_CANCELLED, name, NULL);
    ck_assert(!rubato_engine_barrier(engine, &error));
    check_error(&error, RUBATO_ERROR_CANCELLED, name, NULL);
    rubato_engine_free(engine);
}
END_TEST

/* ---- a program that takes the first one ---- */

typedef struct {
    Event taken; /* how many signals the program was asked about */
    int number;
    bool takes;
} Program;

static bool take_signal(int signal_number, void *user_data)
{
    Program *program = user_data;

    program->number = signal_number;
    event_raise(&program->taken);
    return program->takes;
}

/* The program takes the first signal, so that the worker goes on; the second cancels the run. */
static bool be_interrupted_twice(RubatoWorker *worker, void *user_data, GError **error)
{
    Program *program = user_data;

    kill(getpid(), SIGINT);
    if (program->takes) {
        TRY(event_await(&program->taken, 1, worker, error));
        TRY(!rubato_worker_cancelled(worker));
        kill(getpid(), SIGTERM);
    }
    while (!rubato_worker_cancelled(worker))
        sched_yield();
    return true;
}

START_TEST(a_program_may_take_the_first_signal)
{
    Program program = { .taken = EVENT_INIT, .takes = _i == 1 };
    const RubatoEngineConfig config = { .handle_signals = true,
                                        .take_signal = take_signal,
                                        .signal_data = &program };
    RubatoEngine *engine = rubato_engine_new(&config, NULL);
    const RubatoTask task = { .name = "t", .run = be_interrupted_twice, .user_data = &program };

    run_fails(engine, &task, RUBATO_ERROR_CANCELLED, program.takes ? "signal 15" : "signal 2",
              NULL);
    ck_assert_int_eq(program.number, SIGINT);
    ck_assert_uint_eq(program.taken.count, 1);
    rubato_engine_free(engine);
}
END_TEST

/* The signal is blocked until the engine watches for it, which it does before it is complete. The
 * many servers give the signal time to come in between. */
START_TEST(a_signal_while_the_engine_is_made_is_not_forgotten)
{
    const RubatoEngineConfig config = { .servers = 200, .handle_signals = true };
    RubatoEngine *engine;
    sigset_t set;
    GError *error = NULL;

    sigemptyset(&set);
    sigaddset(&set, signals[_i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    kill(getpid(), signals[_i]);
    engine = rubato_engine_new(&config, NULL);
    ck_assert_ptr_nonnull(engine);
    while (rubato_engine_barrier(engine, &error))
        sched_yield();
    check_error(&error, RUBATO_ERROR_CANCELLED, "signal", NULL);
    rubato_engine_free(engine);
}
END_TEST

/* As nohup leaves it to its program. */
START_TEST(a_hangup_that_is_ignored_stays_so)
{
    RubatoEngine *engine;
    GError *error = NULL;

    signal(SIGHUP, SIG_IGN);
    engine = make_engine();
    kill(getpid(), SIGHUP);
    kill(getpid(), SIGTERM); /* comes after it, and is the first */
    while (rubato_engine_barrier(engine, &error))
        sched_yield();
    check_error(&error, RUBATO_ERROR_CANCELLED, strsignal(SIGTERM), NULL);
    rubato_engine_free(engine);
}
END_TEST

START_TEST(a_signal_between_tasks_is_not_forgotten)
{
    RubatoEngine *engine = make_engine();
    const RubatoTask task = { .name = "late", .run = be_interrupted };
    GError *error = NULL;

    kill(getpid(), signals[_i]);
    /* the signal comes as soon as its thread runs */
    while (rubato_engine_barrier(engine, &error))
        sched_yield();
    check_error(&error, RUBATO_ERROR_CANCELLED, "signal", NULL);
    run_fails(engine, &task, RUBATO_ERROR_CANCELLED, "signal", NULL);
    rubato_engine_free(engine);
}
END_TEST

static bool be_stubborn(RubatoWorker *worker, void *user_data, GError **error)
{
    const int signal_number = *(const int *)user_data;

    (void)error;
    kill(getpid(), signal_number);
    while (!rubato_worker_cancelled(worker))
        sched_yield();
    kill(getpid(), signal_number);
    while (true) /* it does not care */
        pause();
    return true;
}

/* Ends with 128 + the signal's number, as a shell has it. */
static void be_ended(const int *signal_number)
{
    RubatoEngine *engine = make_engine();

    run_fails(engine,
              &(RubatoTask){ .name = "stubborn",
                             .run = be_stubborn,
                             .user_data = (void *)(uintptr_t)signal_number },
              RUBATO_ERROR_CANCELLED, NULL);
}

START_TEST(a_second_sigint_ends_the_process_at_once)
{
    be_ended(&signals[0]);
}
END_TEST

START_TEST(a_second_sigterm_ends_the_process_at_once)
{
    be_ended(&signals[1]);
}
END_TEST

START_TEST(signals_are_the_applications_unless_asked_for)
{
    sigset_t mask;
    RubatoEngine *engine = engine_with_servers(1);

    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    ck_assert(!sigismember(&mask, SIGINT) && !sigismember(&mask, SIGTERM));
    rubato_engine_free(engine);
    engine = make_engine();
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    ck_assert(sigismember(&mask, SIGINT) && sigismember(&mask, SIGTERM));
    rubato_engine_free(engine);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    ck_assert(!sigismember(&mask, SIGINT) && !sigismember(&mask, SIGTERM));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("signals");
    TCase *cases = tcase_create("signals");

    tcase_add_loop_test(cases, the_first_signal_cancels_the_run_and_says_which_it_was, 0,
                        (int)G_N_ELEMENTS(signals));
    tcase_add_loop_test(cases, a_program_may_take_the_first_signal, 0, 2);
    tcase_add_loop_test(cases, a_signal_between_tasks_is_not_forgotten, 0,
                        (int)G_N_ELEMENTS(signals));
    tcase_add_loop_test(cases, a_signal_while_the_engine_is_made_is_not_forgotten, 0,
                        (int)G_N_ELEMENTS(signals));
    tcase_add_test(cases, a_hangup_that_is_ignored_stays_so);
    tcase_add_exit_test(cases, a_second_sigint_ends_the_process_at_once, 128 + SIGINT);
    tcase_add_exit_test(cases, a_second_sigterm_ends_the_process_at_once, 128 + SIGTERM);
    tcase_add_test(cases, signals_are_the_applications_unless_asked_for);
    suite_add_tcase(suite, cases);
    signal(SIGHUP, SIG_DFL); /* also if this program runs under nohup, which ignores it */
    return run_suite(suite);
}
