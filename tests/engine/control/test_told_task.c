/* Tasks as lines of text: what is read is what was written. */
#include "engine/control/told_task.h"
#include "tests/support/runner.h"

enum { N_NODES = 3 };

START_TEST(tasks_that_are_read_are_those_that_were_written)
{
    static uint32_t workers_of[2][N_NODES] = { { 2, 0, 1 }, { 0, 7, 0 } };
    g_autoptr(GString) text = g_string_new(NULL);
    ToldTask task;

    told_task_write(text, &(ToldTask){ .epoch = 5, .workers_of = workers_of[0], .replaces = true },
                    N_NODES, "0 4000000000");
    told_task_write(text, &(ToldTask){ .epoch = UINT32_MAX, .workers_of = workers_of[1] }, N_NODES,
                    "");
    const char *at = text->str;
    ck_assert(told_task_read(&at, N_NODES, &task));
    ck_assert_uint_eq(task.epoch, 5);
    ck_assert(task.replaces);
    ck_assert_uint_eq(task.n_workers, 3);
    ck_assert_mem_eq(task.workers_of, workers_of[0], sizeof workers_of[0]);
    ck_assert_uint_eq(task.n_tables, 2);
    ck_assert_uint_eq(task.tables[0], 0);
    ck_assert_uint_eq(task.tables[1], 4000000000u);
    told_task_clear(&task);
    ck_assert(told_task_read(&at, N_NODES, &task));
    ck_assert_uint_eq(task.epoch, UINT32_MAX);
    ck_assert(!task.replaces);
    ck_assert_mem_eq(task.workers_of, workers_of[1], sizeof workers_of[1]);
    ck_assert_uint_eq(task.n_tables, 0);
    told_task_clear(&task);
    ck_assert_str_eq(at, "");
}
END_TEST

static const char *const nonsense[] = {
    "",
    "task 1;1 0 0;0;0", /* no end */
    "1;1 0 0;0;0\n",
    "task 0;1 0 0;0;0\n",
    "task 4294967296;1 0 0;0;0\n",
    "task 1;1 0;0;0\n",
    "task 1;1 0 0 0;0;0\n",
    "task 1;0 0 0;0;0\n", /* no worker */
    "task 1;4194304 1 0;0;0\n",
    "task 1;1 -1 0;0;0\n",
    "task 1;1 0 0;0\n",
    "task 1;1 0 0;0;0;0\n",
    "task 1;1 0 0;a;0\n",
    "task 1;1 0 0;0 ;0\n",
    "task 1;1 0 0;0;2\n",
};

START_TEST(what_is_no_task_is_refused_and_left)
{
    const char *at = nonsense[_i];
    ToldTask task = { .epoch = 77 };

    ck_assert(!told_task_read(&at, N_NODES, &task));
    ck_assert_ptr_eq(at, nonsense[_i]);
    ck_assert_uint_eq(task.epoch, 77);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("told_task");
    TCase *texts = tcase_create("texts");

    tcase_add_test(texts, tasks_that_are_read_are_those_that_were_written);
    tcase_add_loop_test(texts, what_is_no_task_is_refused_and_left, 0, G_N_ELEMENTS(nonsense));
    suite_add_tcase(suite, texts);
    return run_suite(suite);
}
