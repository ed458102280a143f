/* A process that runs its program again: the program waits until the process has done its part of
 * the calls that the others have made before. */
#include "engine/join/newcomer.h"

#include "engine/engine_private.h"
#include "tests/support/runner.h"

typedef struct {
    RubatoEngine engine;
    bool may_do; /* guarded by the lock */
    int n_done;  /* likewise */
} Process;

/* Does two calls, the second one as soon as it may. */
static void *serve(void *data)
{
    Process *const process = data;

    pthread_mutex_lock(&process->engine.lock);
    process->n_done++;
    newcomer_note_done(&process->engine);
    while (!process->may_do)
        pthread_cond_wait(&process->engine.changed, &process->engine.lock);
    process->n_done++;
    newcomer_note_done(&process->engine);
    pthread_mutex_unlock(&process->engine.lock);
    return NULL;
}

START_TEST(program_waits_for_its_call_and_those_before_alone)
{
    Process process = { .engine = { .lock = PTHREAD_MUTEX_INITIALIZER,
                                    .changed = PTHREAD_COND_INITIALIZER,
                                    .stall_ms = 10000,
                                    .newcomer = newcomer_new() } };
    RubatoEngine *const engine = &process.engine;
    pthread_t thread;

    pthread_mutex_lock(&engine->lock);
    newcomer_await_done(engine, 9); /* it was told of none */
    newcomer_note_told(engine->newcomer, 5);
    newcomer_note_told(engine->newcomer, 8);
    newcomer_await_done(engine, 4);
    ck_assert_int_eq(pthread_create(&thread, NULL, serve, &process), 0);
    newcomer_await_done(engine, 7);
    ck_assert_int_eq(process.n_done, 1);
    process.may_do = true;
    pthread_cond_broadcast(&engine->changed);
    newcomer_await_done(engine, 8);
    ck_assert_int_eq(process.n_done, 2);
    newcomer_note_told(engine->newcomer, 9);
    engine->newcomer->has_ended = true; /* nobody does it any more */
    newcomer_await_done(engine, 9);
    pthread_mutex_unlock(&engine->lock);
    pthread_join(thread, NULL);
    newcomer_free(engine->newcomer);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("newcomer");
    TCase *cases = tcase_create("newcomer");

    tcase_add_test(cases, program_waits_for_its_call_and_those_before_alone);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
