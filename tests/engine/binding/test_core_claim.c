/* Claims of processors: who comes second is told which of his the first one has. */
#include <glib/gstdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/binding/core_claim.h"
#include "tests/support/runner.h"

static char *path;

static void make_path(void)
{
    const int fd = g_file_open_tmp("cores-XXXXXX", &path, NULL);

    ck_assert_int_ge(fd, 0);
    close(fd);
}

static void remove_path(void)
{
    g_unlink(path);
    g_free(path);
}

/* taken NULL: nobody has any of them. */
static CoreClaim *expect_claim(const char *processors, const char *taken)
{
    g_autofree char *found = NULL;
    CoreClaim *const claim = core_claim_new(path, processors, &found);

    ck_assert_ptr_nonnull(claim);
    ck_assert_msg(g_strcmp0(found, taken) == 0, "%s", found != NULL ? found : "none");
    return claim;
}

START_TEST(the_second_is_told_what_the_first_has)
{
    CoreClaim *const first = expect_claim("2-5,8,11", NULL);
    CoreClaim *const apart = expect_claim("0-1,6-7,12", NULL);

    core_claim_free(expect_claim("5", "5"));
    core_claim_free(expect_claim("3-4", "3-4"));
    core_claim_free(expect_claim("4-9", "4-8"));
    core_claim_free(expect_claim("9-13", "11-12"));
    core_claim_free(apart);
    core_claim_free(expect_claim("0-13", "2-5,8,11"));
    core_claim_free(first);
    core_claim_free(expect_claim("0-13", NULL)); /* a claim ends */
}
END_TEST

START_TEST(a_claim_ends_with_its_process)
{
    const pid_t pid = fork();
    int status;

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        char *taken = NULL;

        _exit(core_claim_new(path, "0-3", &taken) != NULL && taken == NULL ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    core_claim_free(expect_claim("0-3", NULL));
}
END_TEST

START_TEST(a_claim_that_is_freed_ends_although_a_forked_process_lives)
{
    CoreClaim *const claim = expect_claim("0-3", NULL);
    int wait[2], status;
    char byte;

    ck_assert_int_eq(pipe(wait), 0);
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) { /* it lives until the other end is closed */
        close(wait[1]);
        _exit(read(wait[0], &byte, 1) == 0 ? 0 : 1);
    }
    core_claim_free(claim);
    core_claim_free(expect_claim("0-3", NULL));
    close(wait[1]);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    close(wait[0]);
}
END_TEST

START_TEST(without_the_file_nobody_can_tell)
{
    char *taken;

    ck_assert_ptr_null(core_claim_new("/nowhere/cores", "0-3", &taken));
    ck_assert_ptr_null(taken);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core claim");
    TCase *tcase = tcase_create("claim");

    tcase_add_checked_fixture(tcase, make_path, remove_path);
    tcase_add_test(tcase, the_second_is_told_what_the_first_has);
    tcase_add_test(tcase, a_claim_ends_with_its_process);
    tcase_add_test(tcase, a_claim_that_is_freed_ends_although_a_forked_process_lives);
    tcase_add_test(tcase, without_the_file_nobody_can_tell);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
