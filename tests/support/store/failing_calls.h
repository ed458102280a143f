/* System calls on files that fail when a test says so. A test that uses it is linked with
 * --wrap for each of these calls (tests/CMakeLists.txt).
 *
 * Threads: one. */
#ifndef TESTS_SUPPORT_STORE_FAILING_CALLS_H
#define TESTS_SUPPORT_STORE_FAILING_CALLS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum {
    FAILING_ONE,  /* one call fails, and the next ones work again */
    FAILING_REST, /* from this call on all fail: the process might as well have died */
} FailingWhich;

/* Call number `at` fails with this errno, counted from 0 from now on. */
void failing_calls_begin(uint64_t at, FailingWhich which, int error_number);

/* From now on no call fails. Returns whether one has failed. */
bool failing_calls_end(void);

/* Writes take one byte at a time, and every other one is interrupted before that. */
void failing_calls_be_short(bool is_short);

/* From now on the names of calls are noted, without those that open and close. */
void failing_calls_note(void);

/* What was noted: "mkdir writev fsync ". */
const char *failing_calls_noted(void);

/* The name of the call that failed first. */
const char *failing_calls_name(void);

#endif
