/* Runs a suite of check the way every test program does.
 *
 * Threads: main, before any other thread or ZeroMQ context exists, because each case runs in a
 * fork. */
#ifndef TESTS_SUPPORT_RUNNER_H
#define TESTS_SUPPORT_RUNNER_H

#include <check.h>
#include <stdbool.h>

/* The exit code of a test program that could test nothing here; its output says why. */
#define TEST_SKIPPED 77

/* Runs the suite and frees it. Returns the result of main. check's environment variables hold:
 * CK_FORK=no under a debugger, CK_RUN_CASE=…, CK_VERBOSITY=verbose, CK_TIMEOUT_MULTIPLIER=…. */
int run_suite(Suite *suite);

/* Whether everything is many times slower, without optimisation or with a sanitizer. Then tests use
 * less data and fewer seeds. */
bool is_slow(void);

/* As ck_assert_msg, for loops: check writes to a file at each of its own assertions. */
#define require_msg(condition, ...)    \
    do {                               \
        if (!(condition))              \
            ck_abort_msg(__VA_ARGS__); \
    } while (0)

/* The same for several suites, in their order, in one report. */
int run_suites(Suite *const *suites, size_t n_suites);

#endif
