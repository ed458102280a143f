/* Monotonic time, and waits that end with it. */
#include "io/net/monotonic.h"
#include "tests/support/runner.h"

START_TEST(time_does_not_go_back_and_its_units_agree)
{
    int64_t last = monotonic_ns();

    for (int i = 0; i < 1000; i++) {
        const int64_t before_ms = monotonic_ms(), now = monotonic_ns(), after_ms = monotonic_ms();

        require_msg(now >= last, "it has gone back");
        require_msg(before_ms <= now / 1000000 && now / 1000000 <= after_ms, "they disagree");
        last = now;
    }
}
END_TEST

START_TEST(a_wait_ends_at_its_moment_and_not_before)
{
    static const int waits_ms[] = { -1000, 0, 3 };
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    const int64_t end_ms = monotonic_ms() + waits_ms[_i];
    pthread_cond_t cond;

    monotonic_cond_init(&cond);
    pthread_mutex_lock(&mutex);
    while (monotonic_wait(&cond, &mutex, end_ms))
        ;
    ck_assert_int_ge(monotonic_ms(), end_ms);
    pthread_mutex_unlock(&mutex);
    pthread_cond_destroy(&cond);
}
END_TEST

typedef struct {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool is_said;
} Word;

static void *say(void *user)
{
    Word *word = user;

    pthread_mutex_lock(&word->mutex);
    word->is_said = true;
    pthread_cond_signal(&word->cond);
    pthread_mutex_unlock(&word->mutex);
    return NULL;
}

START_TEST(a_signal_ends_a_wait)
{
    Word word = { .mutex = PTHREAD_MUTEX_INITIALIZER };
    const int64_t end_ms = monotonic_ms() + 3600 * 1000;
    pthread_t thread;

    monotonic_cond_init(&word.cond);
    pthread_mutex_lock(&word.mutex);
    pthread_create(&thread, NULL, say, &word);
    while (!word.is_said)
        ck_assert(monotonic_wait(&word.cond, &word.mutex, end_ms));
    pthread_mutex_unlock(&word.mutex);
    pthread_join(thread, NULL);
    pthread_cond_destroy(&word.cond);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("monotonic");
    TCase *cases = tcase_create("monotonic");

    tcase_add_test(cases, time_does_not_go_back_and_its_units_agree);
    tcase_add_loop_test(cases, a_wait_ends_at_its_moment_and_not_before, 0, 3);
    tcase_add_test(cases, a_signal_ends_a_wait);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
