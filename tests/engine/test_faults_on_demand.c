/* RUBATO_FAULTS: what it says, and what is refused by name. */
#include <stdlib.h>
#include <string.h>

#include <rubato/error.h>

#include "engine/faults_on_demand.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

START_TEST(each_fault_is_read)
{
    FaultsOnDemand faults;
    const char *const text =
        "drop=0.1,double=0.05,delay=20ms,reorder=.1,cut=2s/0.5m,kill=3@12s,seed=7";

    ck_assert(!faults_on_demand_parse(&faults, text, NULL)); /* ".1" is no number */
    ck_assert(faults_on_demand_parse(
        &faults, "drop=0.1,double=0.05,delay=20ms,reorder=0.2,cut=2s/0.5m,kill=3@12s,seed=7",
        NULL));
    ck_assert(faults.has_wire && faults.kills);
    ck_assert_double_eq(faults.of_packets.loss, 0.1);
    ck_assert_double_eq(faults.of_packets.doubling, 0.05);
    ck_assert_double_eq(faults.of_packets.reordering, 0.2);
    ck_assert_uint_eq(faults.of_packets.delay_ms, 20);
    ck_assert_uint_eq(faults.of_packets.cut_ms, 2000);
    ck_assert_uint_eq(faults.of_packets.cut_every_ms, 30000);
    ck_assert_uint_eq(faults.of_packets.seed, 7);
    ck_assert_uint_eq(faults.kill_node, 3);
    ck_assert_uint_eq(faults.kill_ms, 12000);
    faults_on_demand_clear(&faults);
    ck_assert(faults_on_demand_parse(&faults, "", NULL));
    ck_assert(!faults.has_wire && !faults.kills && faults.text == NULL);
    ck_assert(faults_on_demand_parse(&faults, "kill=0@1ms", NULL));
    ck_assert(!faults.has_wire && faults.kills);
    faults_on_demand_clear(&faults);
}
END_TEST

static const struct {
    const char *text, *said, *why;
} wrong[] = {
    { "drop", "\"drop\"", "=VALUE" },
    { "drop=2", "\"drop=2\"", "from 0 to 1" },
    { "drop=-0.1", "\"drop=-0.1\"", "from 0 to 1" },
    { "drop=nan", "\"drop=nan\"", "from 0 to 1" },
    { "double=0.1x", "\"double=0.1x\"", "from 0 to 1" },
    { "reorder=", "\"reorder=\"", "from 0 to 1" },
    { "drop=0.1,loss=0.1", "\"loss=0.1\"", "there is no such fault" },
    { "drop=0.1,", "\"\"", "there is no such fault" },
    { "drop=0.1,drop=0.2", "\"drop=0.2\"", "twice" },
    { "delay=20", "\"delay=20\"", "from 1ms to 60s" },
    { "delay=0ms", "\"delay=0ms\"", "from 1ms to 60s" },
    { "delay=61s", "\"delay=61s\"", "from 1ms to 60s" },
    { "delay=infs", "\"delay=infs\"", "from 1ms to 60s" },
    { "cut=2s", "\"cut=2s\"", "2s/30s" },
    { "cut=30s/30s", "\"cut=30s/30s\"", "2s/30s" },
    { "kill=3", "\"kill=3\"", "3@12s" },
    { "kill=x@1s", "\"kill=x@1s\"", "3@12s" },
    { "seed=-1", "\"seed=-1\"", "whole number" },
};

START_TEST(what_makes_no_sense_is_refused_by_name)
{
    const RubatoEngineConfig config = { .servers = 1 };
    GError *error = NULL;

    g_setenv(FAULTS_VARIABLE, wrong[_i].text, TRUE);
    ck_assert_ptr_null(rubato_engine_new(&config, &error));
    check_error(&error, RUBATO_ERROR_INVALID, wrong[_i].said, NULL);
    ck_assert_ptr_null(rubato_engine_new(&config, &error));
    check_error(&error, RUBATO_ERROR_INVALID, wrong[_i].why, NULL);
}
END_TEST

START_TEST(a_kill_of_an_unknown_node_is_refused)
{
    const RubatoEngineConfig config = { .servers = 1 };
    GError *error = NULL;

    g_setenv(FAULTS_VARIABLE, "kill=3@12s", TRUE);
    ck_assert_ptr_null(rubato_engine_new(&config, &error));
    check_error(&error, RUBATO_ERROR_INVALID, "kills node 3", NULL);
}
END_TEST

static GString *said;

static GLogWriterOutput write_log(GLogLevelFlags level, const GLogField *fields, gsize n,
                                  gpointer data)
{
    (void)data;
    for (gsize i = 0; i < n; i++)
        if (g_str_equal(fields[i].key, "MESSAGE"))
            g_string_append_printf(said, "%d %s\n", (level & G_LOG_LEVEL_WARNING) != 0,
                                   (const char *)fields[i].value);
    return G_LOG_WRITER_HANDLED;
}

START_TEST(faults_are_announced_and_can_be_asked_for)
{
    const RubatoEngineConfig config = { .servers = 1 };

    said = g_string_new(NULL);
    g_log_set_writer_func(write_log, NULL, NULL);
    g_unsetenv(FAULTS_VARIABLE);
    RubatoEngine *engine = rubato_engine_new(&config, NULL);
    ck_assert_ptr_null(rubato_engine_faults(engine));
    rubato_engine_free(engine);
    ck_assert_str_eq(said->str, "");
    g_setenv(FAULTS_VARIABLE, "drop=0.5,seed=1", TRUE);
    engine = rubato_engine_new(&config, NULL);
    ck_assert_str_eq(rubato_engine_faults(engine), "drop=0.5,seed=1");
    rubato_engine_free(engine);
    ck_assert_msg(strstr(said->str, "1 node 0: FAULTS ON DEMAND: RUBATO_FAULTS=drop=0.5,seed=1") !=
                      NULL,
                  "%s", said->str);
    g_string_free(said, TRUE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("faults on demand");
    TCase *tcase = tcase_create("environment");

    tcase_add_test(tcase, each_fault_is_read);
    tcase_add_loop_test(tcase, what_makes_no_sense_is_refused_by_name, 0, G_N_ELEMENTS(wrong));
    tcase_add_test(tcase, a_kill_of_an_unknown_node_is_refused);
    tcase_add_test(tcase, faults_are_announced_and_can_be_asked_for);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
