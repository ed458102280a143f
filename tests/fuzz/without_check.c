/* What assertions of check call, for a fixture of the tests that a fuzz target uses outside of any
 * test case: there check's own functions end the process, also where an assertion holds. */
#include <check.h>
#include <stdlib.h>

void _mark_point(const char *file, int line)
{
    (void)file;
    (void)line;
}

void _ck_assert_failed(const char *file, int line, const char *expression, const char *message, ...)
{
    (void)file;
    (void)line;
    (void)expression;
    (void)message;
    abort();
}
