/* Runs suites of check. Fork mode is check's default, so a case that hangs or crashes is known by
 * its name, and the next one starts fresh. */
#include "tests/support/runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static bool has_ended;
static pid_t runner_pid;

/* Without forks a case that exits ends all of them, with its own status. */
static void refuse_early_end(void)
{
    if (has_ended || getpid() != runner_pid)
        return;
    fprintf(stderr, "a case called exit; run its program with CK_FORK=yes\n");
    _exit(EXIT_FAILURE);
}

int run_suites(Suite *const *suites, size_t n_suites)
{
    SRunner *runner = srunner_create(NULL);

    runner_pid = getpid();
    atexit(refuse_early_end);
    for (size_t i = 0; i < n_suites; i++)
        srunner_add_suite(runner, suites[i]);
    srunner_run_all(runner, CK_ENV);
    has_ended = true;

    const int n_failed = srunner_ntests_failed(runner);
    const int n_run = srunner_ntests_run(runner);
    srunner_free(runner);
    return n_failed == 0 && n_run > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

bool is_slow(void)
{
#ifdef __OPTIMIZE__
    const char *sanitize = getenv("RUBATO_SANITIZE");

    return sanitize != NULL && *sanitize != '\0';
#else
    return true;
#endif
}

int run_suite(Suite *suite)
{
    return run_suites(&suite, 1);
}
