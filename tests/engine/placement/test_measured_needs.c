/* What tables took in a run: what nodes write is read again, their numbers add up, and a folder
 * that is not whole is refused with file and line. */
#include <glib/gstdio.h>
#include <rubato/error.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/placement/measured_needs.h"
#include "models/spec.h"
#include "tests/support/runner.h"

#define HEADING "nodes\t1\ntable\tpart\tmemory_bytes\tnetwork_bytes\tqueries\n"

static char *folder;

static void make_folder(void)
{
    folder = g_dir_make_tmp("needs-XXXXXX", NULL);
    ck_assert_ptr_nonnull(folder);
}

static void remove_folder(void)
{
    g_autoptr(GDir) dir = g_dir_open(folder, 0, NULL);
    const char *name;

    while ((name = g_dir_read_name(dir)) != NULL) {
        g_autofree char *path = g_build_filename(folder, name, NULL);

        g_unlink(path);
    }
    g_rmdir(folder);
    g_free(folder);
}

static void write_file(const char *name, const char *text)
{
    g_autofree char *path = g_build_filename(folder, name, NULL);

    ck_assert(g_file_set_contents(path, text, -1, NULL));
}

static void write_needs(const MeasuredNeeds *needs, uint32_t node, uint32_t n_nodes)
{
    g_autoptr(GError) error = NULL;

    ck_assert_msg(measured_needs_write(needs, folder, node, n_nodes, &error), "%s",
                  error == NULL ? "" : error->message);
}

static MeasuredNeeds *read_needs(void)
{
    g_autoptr(GError) error = NULL;
    MeasuredNeeds *const needs = measured_needs_read(folder, &error);

    ck_assert_msg(needs != NULL, "%s", error == NULL ? "" : error->message);
    return needs;
}

static void expect_needs(const MeasuredNeeds *needs, RubatoTableSpec spec, uint64_t memory_bytes,
                         uint64_t network_bytes, uint64_t queries)
{
    ck_assert(measured_needs_fill(needs, &spec));
    ck_assert_uint_eq(spec.needs.memory_bytes, memory_bytes);
    ck_assert_uint_eq(spec.needs.network_bytes, network_bytes);
    ck_assert_uint_eq(spec.needs.queries, queries);
}

START_TEST(parts_of_all_nodes_add_up_and_each_may_be_as_large_as_the_largest)
{
    const RubatoTableSpec users = { .name = "users\tof\n\xc3\xa4 %41", .storage = "hash" };
    const RubatoNeeds taken[] = { { 100, 10, 1 }, { 300, 0, 7 }, { 200, 40, 0 } };

    for (uint32_t node = 0; node < 2; node++) {
        g_autoptr(MeasuredNeeds) needs = measured_needs_new();

        measured_needs_note(needs, users.name, node, &taken[node]);
        measured_needs_note(needs, users.name, 2, &taken[2]); /* it moved: both had it */
        write_needs(needs, 5 * node, 2);
    }
    g_autoptr(MeasuredNeeds) needs = read_needs();

    expect_needs(needs, users, 3 * UINT64_C(400), 3 * 80, 3 * 7);
    ck_assert(!measured_needs_fill(needs, &(RubatoTableSpec){ .name = "others" }));
}
END_TEST

START_TEST(of_a_table_that_is_made_twice_the_larger_needs_count)
{
    const RubatoTableSpec users = { .name = "users", .storage = "hash" };
    const RubatoNeeds taken[] = { { 100, 10, 1 }, { 90, 20, 0 } };
    g_autoptr(MeasuredNeeds) needs = measured_needs_new();

    for (size_t i = 0; i < G_N_ELEMENTS(taken); i++)
        measured_needs_note(needs, users.name, 0, &taken[i]);
    expect_needs(needs, users, 100, 20, 1);
}
END_TEST

START_TEST(what_a_spec_declares_stands_and_what_it_tells_by_itself_is_not_declared)
{
    const RubatoNeeds taken = { 100, 10, 1 };
    g_autoptr(MeasuredNeeds) needs = measured_needs_new();

    measured_needs_note(needs, "a", 0, &taken);
    expect_needs(needs, (RubatoTableSpec){ .name = "a", .storage = "hash", .needs = { 7, 0, 9 } },
                 7, 10, 9);
    expect_needs(needs, (RubatoTableSpec){ .name = "a", .n_keys = 25 }, 0, 10, 1);
    expect_needs(needs, (RubatoTableSpec){ .name = "a", .storage = "hash", .max_bytes = 4096 }, 0,
                 10, 1);
}
END_TEST

START_TEST(a_node_deletes_what_it_wrote_in_an_earlier_run)
{
    g_autoptr(MeasuredNeeds) needs = measured_needs_new();
    g_autoptr(GError) error = NULL;

    write_needs(needs, 3, 1);
    ck_assert(measured_needs_delete(folder, 4, NULL)); /* there is none */
    measured_needs_free(read_needs());
    ck_assert(measured_needs_delete(folder, 3, NULL));
    ck_assert_ptr_null(measured_needs_read(folder, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND));
    ck_assert_msg(strstr(error->message, "has no file needs-N.tsv") != NULL, "%s", error->message);
}
END_TEST

static const struct {
    const char *text; /* of needs-3.tsv */
    const char *says;
} wrong[] = {
    { "", "needs-3.tsv:1: the first line must be" },
    { "nodes\t0\n", "needs-3.tsv:1: the first line must be" },
    { "nodes\t1\ntable\n", "needs-3.tsv:2: the second line must name the columns" },
    { "nodes\t1", "needs-3.tsv:1: the first line must be" },
    { "nodes\t1\ntable", "needs-3.tsv:2: the second line must name the columns" },
    { HEADING "a\t0\t1\t2\t3\na\t1\t1\t2\n", "needs-3.tsv:4: it has not five columns" },
    { HEADING "a\t0\t1\t2\t3\t4\n", "needs-3.tsv:3: it has not five columns" },
    { HEADING "\t0\t1\t2\t3\n", "needs-3.tsv:3: its table has no name" },
    { HEADING "a%0\t0\t1\t2\t3\n", "needs-3.tsv:3: its table has no name" },
    { HEADING "a\t1\t1\t2\t3\n", "needs-3.tsv:3: it is not the table's next part" },
    { HEADING "a\t0\t1\t2\t3\nb\t0\t1\t2\t3\na\t0\t1\t2\t3\n",
      "needs-3.tsv:5: it is not the table's next part; a file has them from 0 on, each once" },
    { HEADING "a\t4096\t1\t2\t3\n", "needs-3.tsv:3: the part is no number below 4096" },
    { HEADING "a\t-1\t1\t2\t3\n", "needs-3.tsv:3: the part is no number below 4096" },
    { HEADING "a\t0\t1.5\t2\t3\n", "needs-3.tsv:3: memory_bytes, network_bytes and queries" },
    { HEADING "a\t0\t1\t70368744177665\t3\n", "must be whole numbers up to 2^46" },
    { HEADING "a\t0\t1\t2\t\n", "must be whole numbers up to 2^46" },
    { HEADING "a\t0\t1\t2\t3", "needs-3.tsv:3: the last line does not end: the file was cut off" },
    { "nodes\t2\ntable\tpart\tmemory_bytes\tnetwork_bytes\tqueries\n",
      "has the files of 1 nodes, and the run had 2" },
};

START_TEST(a_wrong_file_is_refused_with_its_line)
{
    g_autoptr(GError) error = NULL;

    write_file("needs-3.tsv", wrong[_i].text);
    write_file("notes", "another file in the folder is left alone");
    ck_assert_ptr_null(measured_needs_read(folder, &error));
    ck_assert_msg(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT), "%s", error->message);
    ck_assert_msg(strstr(error->message, wrong[_i].says) != NULL, "%s", error->message);
}
END_TEST

START_TEST(needs_that_are_too_large_together_are_the_largest_that_a_spec_may_have)
{
    const RubatoTableSpec users = { .name = "users", .storage = "hash" };
    g_autoptr(GString) text = g_string_new(HEADING);

    for (unsigned part = 0; part < SPEC_MAX_PARTS; part++)
        g_string_append_printf(text, "users\t%u\t70368744177664\t70368744177664\t7\n", part);
    text->str[strlen("nodes\t")] = '5';
    for (unsigned node = 0; node < 5; node++) {
        g_autofree char *name = g_strdup_printf("needs-%u.tsv", node);

        write_file(name, text->str);
    }
    g_autoptr(MeasuredNeeds) needs = read_needs();

    expect_needs(needs, users, SPEC_MAX_NEED, SPEC_MAX_NEED, (uint64_t)SPEC_MAX_PARTS * 5 * 7);
}
END_TEST

/* Nobody writes into it: whoever waited for somebody would wait for ever. */
START_TEST(a_fifo_is_refused)
{
    g_autofree char *path = g_build_filename(folder, "needs-0.tsv", NULL);
    g_autoptr(GError) error = NULL;

    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_assert_ptr_null(measured_needs_read(folder, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT));
    ck_assert_msg(strstr(error->message, "it is not a regular file") != NULL, "%s", error->message);
}
END_TEST

START_TEST(files_of_two_runs_are_refused)
{
    g_autoptr(MeasuredNeeds) needs = measured_needs_new();
    g_autoptr(GError) error = NULL;

    write_needs(needs, 0, 2);
    write_needs(needs, 1, 3);
    ck_assert_ptr_null(measured_needs_read(folder, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT));
    ck_assert_msg(strstr(error->message, "measure into an empty folder") != NULL, "%s",
                  error->message);
}
END_TEST

START_TEST(a_folder_that_is_not_there_is_named)
{
    g_autoptr(GError) error = NULL;

    ck_assert_ptr_null(measured_needs_read("/nowhere/at all", &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_IO));
    ck_assert_msg(strstr(error->message, "/nowhere/at all: cannot be read") != NULL, "%s",
                  error->message);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("measured needs");
    TCase *tcase = tcase_create("measured needs");

    tcase_add_checked_fixture(tcase, make_folder, remove_folder);
    tcase_add_test(tcase, parts_of_all_nodes_add_up_and_each_may_be_as_large_as_the_largest);
    tcase_add_test(tcase, of_a_table_that_is_made_twice_the_larger_needs_count);
    tcase_add_test(tcase, what_a_spec_declares_stands_and_what_it_tells_by_itself_is_not_declared);
    tcase_add_test(tcase, a_node_deletes_what_it_wrote_in_an_earlier_run);
    tcase_add_loop_test(tcase, a_wrong_file_is_refused_with_its_line, 0, (int)G_N_ELEMENTS(wrong));
    tcase_add_test(tcase, needs_that_are_too_large_together_are_the_largest_that_a_spec_may_have);
    tcase_add_test(tcase, a_fifo_is_refused);
    tcase_add_test(tcase, files_of_two_runs_are_refused);
    tcase_add_test(tcase, a_folder_that_is_not_there_is_named);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
