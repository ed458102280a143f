/* `rubato place`: the plan of a file of tables, and what is wrong with such a file. */
#include <rubato/launcher.h>
#include <string.h>

#include "tests/support/cluster/launch_fixture.h"
#include "tests/support/runner.h"

static const char CLUSTER[] =
    "cluster: { scheduler = { host = \"127.0.0.1\"; port = 4100; };\n"
    "nodes = ( { id = 3; host = \"127.0.0.1\"; port = 0; servers = 2; },\n"
    "          { id = 7; host = \"127.0.0.1\"; port = 0; limits = { memory_mib = 30; }; } );\n"
    "placement = \"balance\"; limits = { memory_mib = 10; queries = 1000; }; };\n";

/* measured: a folder, or NULL. Returns the report. (transfer full) */
static char *place_with(const char *tables, const char *measured, GError **error)
{
    g_autofree char *cluster_file = launch_write_file("servers.cfg", CLUSTER, 0600);
    g_autofree char *table_file = launch_write_file("tables.cfg", tables, 0600);
    GString *report = g_string_new(NULL);
    const bool fits = rubato_launch_place(cluster_file, table_file, measured, report, error);

    ck_assert(fits == (*error == NULL));
    return g_string_free(report, FALSE);
}

static char *place(const char *tables, GError **error)
{
    return place_with(tables, NULL, error);
}

START_TEST(place_prints_where_parts_lie_and_what_servers_have)
{
    g_autoptr(GError) error = NULL;
    g_autofree char *report =
        place("tables = ( { name = \"a\"; memory_mib = 20; queries = 100; parts = 4; },\n"
              "           { name = \"b\"; n_keys = 262144; width = 2; no_split = true;\n"
              "             replicas = 1; } );\n",
              &error);

    ck_assert_msg(error == NULL, "%s", error->message);
    ck_assert_str_eq(
        report,
        "placement \"balance\": each part goes to the server that is then the least full, the "
        "largest parts first\n"
        "\n"
        "table a: 4 parts, a part needs memory 5.0 MiB, queries 25/s\n"
        "  server 0 (node 3): parts 2; then memory 5.0 MiB of 10.0 MiB (50 %), queries 25/s of "
        "1000/s (2 %)\n"
        "  server 1 (node 3): parts 3; then memory 5.0 MiB of 10.0 MiB (50 %), queries 25/s of "
        "1000/s (2 %)\n"
        "  server 2 (node 7): parts 0 1; then memory 10.0 MiB of 30.0 MiB (33 %), queries 50/s of "
        "1000/s (5 %)\n"
        "\n"
        "table b: 1 part, not split, a part needs memory 2.0 MiB\n"
        "  server 0 (node 3): replicas of parts 0; then memory 7.0 MiB of 10.0 MiB (70 %), queries "
        "25/s of 1000/s (2 %)\n"
        "  server 1 (node 3): none; then memory 5.0 MiB of 10.0 MiB (50 %), queries 25/s of "
        "1000/s (2 %)\n"
        "  server 2 (node 7): parts 0; then memory 12.0 MiB of 30.0 MiB (40 %), queries 50/s of "
        "1000/s (5 %)\n");
}
END_TEST

START_TEST(place_prints_the_tables_before_the_one_that_fits_nowhere)
{
    g_autoptr(GError) error = NULL;
    g_autofree char *report = place("tables = ( { name = \"a\"; memory_mib = 3; },\n"
                                    "  { name = \"b\"; max_mib = 11; parts = 3; } );\n",
                                    &error);

    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_INVALID));
    ck_assert_msg(strstr(error->message, "table b: part 1 of 3 fits on no server") != NULL, "%s",
                  error->message);
    ck_assert_msg(strstr(report, "table a: 3 parts") != NULL, "%s", report);
    ck_assert_msg(strstr(report, "table b") == NULL, "%s", report);
}
END_TEST

/* Part 1 took more than part 0, so each of the two may take as much. */
#define MEASURED                                                    \
    "nodes\t1\ntable\tpart\tmemory_bytes\tnetwork_bytes\tqueries\n" \
    "a\t0\t1048576\t0\t20\na\t1\t3145728\t0\t50\n"

START_TEST(place_takes_what_was_measured_where_the_file_says_nothing)
{
    g_autoptr(GError) error = NULL;
    g_free(launch_write_file("needs-0.tsv", MEASURED, 0600));
    g_autofree char *report =
        place_with("tables = ( { name = \"a\"; storage = \"hash\"; parts = 3; },\n"
                   "           { name = \"b\"; n_keys = 262144; } );\n",
                   launch_folder, &error);
    g_autofree char *unknown =
        g_strdup_printf("table b was not measured: %s does not name it\n", launch_folder);

    ck_assert_msg(error == NULL, "%s", error->message);
    ck_assert_msg(strstr(report, "a: 3 parts, a part needs memory 2.0 MiB, queries 34/s\n") != NULL,
                  "%s", report);
    ck_assert_msg(g_str_has_prefix(report, unknown), "%s", report);
    g_autofree char *declared =
        place_with("tables = ( { name = \"a\"; memory_mib = 9; } );\n", launch_folder, &error);
    ck_assert_msg(strstr(declared, "a part needs memory 3.0 MiB, queries 34/s\n") != NULL, "%s",
                  declared);
}
END_TEST

START_TEST(place_refuses_a_damaged_measurement_with_file_and_line)
{
    g_autoptr(GError) error = NULL;
    g_free(launch_write_file("needs-0.tsv", MEASURED "a\t2\n", 0600));
    g_autofree char *report =
        place_with("tables = ( { name = \"a\"; n_keys = 4; } );\n", launch_folder, &error);

    ck_assert_str_eq(report, "");
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT));
    ck_assert_msg(strstr(error->message, "needs-0.tsv:5: it has not five columns") != NULL, "%s",
                  error->message);
}
END_TEST

static const struct {
    const char *tables;
    RubatoError code;
    const char *says;
} wrong[] = {
    { "", RUBATO_ERROR_CONFIG, ":1: the file has no list of tables; write tables = (" },
    { "tables = ();", RUBATO_ERROR_CONFIG, "the file has no list of tables" },
    { "tables = ( 3 );", RUBATO_ERROR_CONFIG, "entry 1 of 'tables' is a whole number" },
    { "tables = ( { n_keys = 3; } );", RUBATO_ERROR_CONFIG, "has no 'name'" },
    { "tables = (\n{ name = \"a\"; nkeys = 3; } );", RUBATO_ERROR_CONFIG,
      ":2: unknown key 'nkeys' in entry 1 of 'tables'; did you mean 'n_keys'?" },
    { "tables = ( { name = \"a\"; dtype = \"f16\"; } );", RUBATO_ERROR_CONFIG,
      "unknown dtype \"f16\"; known: f32, f64, i32, i64" },
    { "tables = ( { name = \"a\"; parts = 5000; } );", RUBATO_ERROR_CONFIG, "from 1 to 4096" },
    { "tables = ( { name = \"a\"; n_keys = 1; },\n{ name = \"a\"; n_keys = 1; } );",
      RUBATO_ERROR_CONFIG, ":2: entry 2 of 'tables' has the name of entry 1" },
    { "tables = ( { name = \"a\"; n_keys = 1; replicas = 2; } );", RUBATO_ERROR_INVALID,
      "2 replicas need servers on 3 nodes, and 2 nodes have some" },
    { "tables = ( { name = \"a\"; n_keys = 9; memory_mib = 3; } );", RUBATO_ERROR_INVALID,
      "needs.memory_bytes has no effect here" },
    { "tables = ( { name = \"a\"; } );", RUBATO_ERROR_INVALID, "give its needs.memory_bytes" },
    { "tables = ( { name = \"a\"; update = \"adamm\"; n_keys = 3; } );", RUBATO_ERROR_NOT_FOUND,
      "there is no update rule \"adamm\"" },
};

START_TEST(place_says_what_is_wrong_with_a_file_of_tables)
{
    g_autoptr(GError) error = NULL;
    char *report = place(wrong[_i].tables, &error);

    g_free(report);
    ck_assert_msg(g_error_matches(error, RUBATO_ERROR, (gint)wrong[_i].code), "%s", error->message);
    ck_assert_msg(strstr(error->message, wrong[_i].says) != NULL, "%s", error->message);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("launcher: place");
    TCase *tcase = launch_add_case(suite, "place");

    tcase_add_test(tcase, place_prints_where_parts_lie_and_what_servers_have);
    tcase_add_test(tcase, place_prints_the_tables_before_the_one_that_fits_nowhere);
    tcase_add_test(tcase, place_takes_what_was_measured_where_the_file_says_nothing);
    tcase_add_test(tcase, place_refuses_a_damaged_measurement_with_file_and_line);
    tcase_add_loop_test(tcase, place_says_what_is_wrong_with_a_file_of_tables, 0,
                        (int)G_N_ELEMENTS(wrong));
    return run_suite(suite);
}
