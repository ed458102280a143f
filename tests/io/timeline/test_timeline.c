/* The file of a timeline: each event is in it or counted as dropped; it can be read at any time;
 * a disk that is full loses no run. */
#include <glib/gstdio.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/timeline/timeline.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/engine/trace_file.h"
#include "tests/support/runner.h"

static char *folder, *path;

/* Times in files are since the case began. Events come long after it: a recording takes none that
 * began before it did. */
#define LATER_NS UINT64_C(1000000000000)

static uint64_t base_ns;
static TimelineClock own_clock;

static void make_folder(void)
{
    base_ns = (uint64_t)monotonic_ns();
    own_clock = (TimelineClock){ .offset_ns = -(int64_t)base_ns };
    folder = g_dir_make_tmp("timeline-XXXXXX", NULL);
    path = g_strdup_printf("%s/trace.json", folder);
}

static void remove_folder(void)
{
    g_unlink(path);
    g_rmdir(folder);
    g_free(path);
    g_free(folder);
}

static Timeline *start(void)
{
    Timeline *const timeline = timeline_new(7);

    ck_assert(!timeline_is_on(timeline));
    ck_assert(timeline_start(timeline, path, &own_clock, NULL));
    ck_assert(timeline_is_on(timeline));
    return timeline;
}

static void note_get_of(Timeline *timeline, uint32_t epoch, const char *table, uint64_t begun_ns)
{
    timeline_note_call(timeline, &(TimelineCall){ .actor = { epoch, 3 },
                                                  .what = "Get",
                                                  .subject = table,
                                                  .begun_ns = begun_ns,
                                                  .ended_ns = begun_ns + 1500,
                                                  .numbers = { { "keys", 5 }, { "clock", 2 } } });
}

static void note_get(Timeline *timeline, const char *table)
{
    static uint64_t n;

    note_get_of(timeline, 1, table, base_ns + LATER_NS + ++n * 2000);
}

START_TEST(calls_are_written_with_names_of_any_bytes)
{
    Timeline *const timeline = start();

    timeline_name(timeline, (TimelineActor){ 1, 3 }, "count");
    note_get(timeline, "a \"b\"\\c\n\xc3\xa9");
    note_get(timeline, "\xff");
    ck_assert(timeline_stop(timeline, NULL));
    ck_assert(!timeline_is_on(timeline));
    note_get(timeline, "late");
    timeline_free(timeline);

    g_auto(TraceFile) trace = trace_file_read(path);
    JsonObject *const get = trace_find(&trace, "X", "Get a \"b\"\\c\n\xc3\xa9", 10000003);
    ck_assert(json_object_get_double_member(get, "dur") == 1.5);
    ck_assert_int_eq(trace_number(get, "keys"), 5);
    ck_assert_int_eq(trace_number(get, "clock"), 2);
    ck_assert_uint_eq(trace_count(&trace, "X", "Get \xef\xbf\xbd", 10000003), 1);
    ck_assert_uint_eq(trace_count(&trace, "X", "Get late", -1), 0);
    ck_assert_uint_eq(trace_count(&trace, "M", "process_name", 10000003), 1);
    ck_assert_uint_eq(trace_count(&trace, "i", "recording begins", 7), 1);
}
END_TEST

static void note_operation(Timeline *timeline, const TimelineTick *ticks, uint32_t n_ticks)
{
    const uint64_t asked_ns = base_ns + LATER_NS, decided_ns = asked_ns + 1000000;

    timeline_note_operation(timeline, &(TimelineOperation){ .actor = { 2, 0 },
                                                            .operation = "allreduce",
                                                            .name = "grad/7",
                                                            .n_together = 3,
                                                            .number = 12,
                                                            .n_bytes = 400,
                                                            .asked_ns = asked_ns,
                                                            .decided_ns = decided_ns,
                                                            .begun_ns = decided_ns,
                                                            .ended_ns = decided_ns,
                                                            .ticks = ticks,
                                                            .n_ticks = n_ticks });
}

/* Spans without length nest, too. */
START_TEST(a_collective_has_its_phases_and_a_tick_for_each_rank)
{
    const uint64_t asked_ns = base_ns + LATER_NS;
    const TimelineTick ticks[] = { { 0, asked_ns }, { 1, asked_ns + 700001 } };
    Timeline *const timeline = start();

    note_operation(timeline, ticks, 2);
    ck_assert(timeline_stop(timeline, NULL));
    timeline_free(timeline);

    g_auto(TraceFile) trace = trace_file_read(path);
    JsonObject *const whole = trace_find(&trace, "b", "grad/7", 20000000);
    ck_assert(trace_time(whole) == 1000000000);
    ck_assert_int_eq(trace_number(whole, "number"), 12);
    ck_assert_int_eq(trace_number(whole, "bytes"), 400);
    ck_assert_int_eq(trace_number(whole, "together"), 3);
    ck_assert_int_eq(trace_number(whole, "failed"), 0);
    ck_assert(trace_time(trace_find(&trace, "e", "negotiate", -1)) == 1000001000);
    ck_assert(trace_time(trace_find(&trace, "n", "rank 1", -1)) == 1000000700.001);
    ck_assert_uint_eq(trace_count(&trace, "n", "rank 0", -1), 1);
    ck_assert_uint_eq(trace_count(&trace, "b", "queue", -1), 1);
    ck_assert_uint_eq(trace_count(&trace, "b", "allreduce", -1), 1);
}
END_TEST

START_TEST(times_are_those_of_the_scheduler_s_node)
{
    const TimelineClock clock = { .offset_ns = own_clock.offset_ns + 500000, .error_ns = 700 };
    Timeline *const timeline = timeline_new(7);

    ck_assert(timeline_start(timeline, path, NULL, NULL));
    timeline_set_clock(timeline, &clock);
    note_operation(timeline, NULL, 0);
    ck_assert(timeline_stop(timeline, NULL));
    timeline_free(timeline);

    g_auto(TraceFile) trace = trace_file_read(path);
    JsonObject *const begin = trace_find(&trace, "i", "recording begins", 7);
    ck_assert_int_eq(trace_number(begin, "clock_offset_ns"), clock.offset_ns);
    ck_assert_int_eq(trace_number(begin, "clock_error_ns"), 700);
    ck_assert(trace_time(trace_find(&trace, "b", "grad/7", -1)) == 1000000500);
}
END_TEST

START_TEST(a_clock_that_nobody_compared_is_not_said_to_be_exact)
{
    const TimelineClock clock = { .is_own = true };
    Timeline *const timeline = timeline_new(7);

    ck_assert(timeline_start(timeline, path, &clock, NULL));
    ck_assert(timeline_stop(timeline, NULL));
    timeline_free(timeline);

    g_auto(TraceFile) trace = trace_file_read(path);
    JsonObject *const arguments =
        json_object_get_object_member(trace_find(&trace, "i", "recording begins", 7), "args");
    ck_assert(!json_object_has_member(arguments, "clock_error_ns"));
    ck_assert_str_eq(json_object_get_string_member(arguments, "clock"), "the node's own time");
}
END_TEST

/* Node 3 and rank 3 of a task are different processes. Numbers repeat after 200 tasks. */
START_TEST(workers_of_late_tasks_have_processes_of_their_own)
{
    const uint64_t begun_ns = base_ns + LATER_NS;
    Timeline *const timeline = start();

    note_get_of(timeline, 1, "t", begun_ns);
    note_get_of(timeline, 200, "t", begun_ns);
    note_get_of(timeline, 201, "t", begun_ns + 2000);
    ck_assert(timeline_stop(timeline, NULL));
    timeline_free(timeline);

    g_auto(TraceFile) trace = trace_file_read(path);
    ck_assert_uint_eq(trace_count(&trace, "X", "Get t", 3), 0); /* that of node 3 */
    ck_assert_uint_eq(trace_count(&trace, "X", "Get t", 2000000003), 1);
    ck_assert_uint_eq(trace_count(&trace, "X", "Get t", 10000003), 2);
}
END_TEST

START_TEST(what_began_before_a_recording_is_not_in_it)
{
    const uint64_t before_ns = base_ns - 1;
    Timeline *const timeline = start();

    note_get_of(timeline, 1, "early", before_ns);
    timeline_note_operation(timeline, &(TimelineOperation){ .actor = { 1, 3 },
                                                            .operation = "allreduce",
                                                            .name = "early",
                                                            .asked_ns = before_ns,
                                                            .decided_ns = base_ns + LATER_NS,
                                                            .begun_ns = base_ns + LATER_NS,
                                                            .ended_ns = base_ns + LATER_NS });
    note_get(timeline, "t");
    ck_assert(timeline_stop(timeline, NULL));
    timeline_free(timeline);

    g_auto(TraceFile) trace = trace_file_read(path);
    ck_assert_uint_eq(trace_count(&trace, "X", "Get early", -1), 0);
    ck_assert_uint_eq(trace_count(&trace, "b", "early", -1), 0);
    ck_assert_uint_eq(trace_count(&trace, "X", "Get t", -1), 1);
}
END_TEST

/* The second probe came back first. */
START_TEST(the_clock_is_that_of_the_shortest_round_trip)
{
    const TimelineProbe probes[] = { { 1000, 1900, 99000 },
                                     { 2000, 2100, 102040 },
                                     { 3000, 3400, 103000 } };
    TimelineClock clock = timeline_estimate(probes, 3);

    ck_assert_int_eq(clock.offset_ns, 102040 - 2050);
    ck_assert_uint_eq(clock.error_ns, 51);
    clock = timeline_estimate(&(TimelineProbe){ 2000, 2000, 500 }, 1);
    ck_assert_int_eq(clock.offset_ns, -1500);
}
END_TEST

/* One event is larger than the buffer. Of the others the writer takes as many as it can. */
START_TEST(events_that_do_not_fit_are_dropped_and_counted)
{
    enum { N = 1000, N_TICKS = (4 << 20) / sizeof(TimelineTick) };
    TimelineTick *const ticks = g_new0(TimelineTick, N_TICKS);
    static const char dropped[] = "events were dropped: the file could not be written as fast";
    Timeline *const timeline = start();
    uint64_t n_dropped = 0;

    note_operation(timeline, ticks, N_TICKS);
    g_free(ticks);
    for (int i = 0; i < N; i++)
        note_get(timeline, "t");
    ck_assert(timeline_stop(timeline, NULL));
    timeline_free(timeline);

    g_auto(TraceFile) trace = trace_file_read(path);
    ck_assert_uint_eq(trace_count(&trace, "b", "grad/7", -1), 0);
    for (guint i = 0; i < json_array_get_length(trace.events); i++) {
        JsonObject *const event = json_array_get_object_element(trace.events, i);

        if (g_str_equal(json_object_get_string_member(event, "name"), dropped))
            n_dropped += (uint64_t)trace_number(event, "dropped");
    }
    ck_assert_uint_ge(n_dropped, 1);
    ck_assert_uint_eq(trace_count(&trace, "X", "Get t", -1) + n_dropped, N + 1);
}
END_TEST

/* Waits until the file has more bytes. It ends, because the writer writes now and then. */
static void wait_for_more(goffset n_bytes)
{
    GStatBuf now;

    do {
        sched_yield();
        g_stat(path, &now);
    } while (now.st_size <= n_bytes);
}

/* All of the file is in one page. A process that is killed within a write may have written some
 * pages of it. */
static void record_until_killed(void)
{
    Timeline *const timeline = start();
    GStatBuf first;

    wait_for_more(10); /* the beginning */
    g_stat(path, &first);
    for (int i = 0; i < 10; i++)
        note_get(timeline, "t");
    wait_for_more(first.st_size);
    raise(SIGKILL);
}

START_TEST(a_killed_process_leaves_a_file_that_can_be_read)
{
    const pid_t child = fork();
    int status;

    if (child == 0)
        record_until_killed();
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);

    g_auto(TraceFile) trace = trace_file_read(path);
    ck_assert_uint_gt(trace_count(&trace, "X", "Get t", -1), 0);
}
END_TEST

static unsigned n_said;

static GLogWriterOutput count_warnings(GLogLevelFlags level, const GLogField *fields, gsize n,
                                       gpointer data)
{
    (void)data;
    for (gsize i = 0; i < n; i++)
        n_said += (level & G_LOG_LEVEL_WARNING) && g_str_equal(fields[i].key, "MESSAGE") &&
                  strstr(fields[i].value, "ends early") != NULL;
    return G_LOG_WRITER_HANDLED;
}

START_TEST(a_full_disk_is_said_once_and_leaves_what_was_written)
{
    struct rlimit usual, limit;
    Timeline *const timeline = start();
    GError *error = NULL;

    g_log_set_writer_func(count_warnings, NULL, NULL);
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &usual), 0);
    limit = (struct rlimit){ 50000, usual.rlim_max };
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    wait_for_more(10); /* the beginning */
    for (int i = 0; i < 1000; i++)
        note_get(timeline, "t");
    while (timeline_is_on(timeline)) /* until the writer finds no room */
        sched_yield();
    note_get(timeline, "t");
    ck_assert(!timeline_stop(timeline, &error));
    check_error(&error, RUBATO_ERROR_IO, path, g_strerror(EFBIG), NULL);
    ck_assert_uint_eq(n_said, 1);
    timeline_free(timeline);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &usual), 0); /* what counts lines writes a file, too */

    g_auto(TraceFile) trace = trace_file_read(path);
    ck_assert_uint_eq(trace_count(&trace, "i", "recording begins", 7), 1);
}
END_TEST

START_TEST(it_is_started_and_stopped_in_turn)
{
    g_autofree char *below = g_strdup_printf("%s/no/trace.json", folder);
    Timeline *const timeline = timeline_new(7);
    GError *error = NULL;

    ck_assert(!timeline_stop(timeline, &error));
    check_error(&error, RUBATO_ERROR_INVALID, "no timeline of node 7", NULL);
    ck_assert(!timeline_start(timeline, below, &own_clock, &error));
    check_error(&error, RUBATO_ERROR_IO, "cannot write a timeline to", below, NULL);
    for (int i = 0; i < 2; i++) {
        ck_assert(timeline_start(timeline, path, &own_clock, NULL));
        ck_assert(!timeline_start(timeline, path, &own_clock, &error));
        check_error(&error, RUBATO_ERROR_INVALID, "already", path, NULL);
        note_get(timeline, i == 0 ? "first" : "second");
        ck_assert(timeline_stop(timeline, NULL));
    }
    timeline_free(timeline);

    g_auto(TraceFile) trace = trace_file_read(path);
    ck_assert_uint_eq(trace_count(&trace, "X", "Get first", -1), 0);
    ck_assert_uint_eq(trace_count(&trace, "X", "Get second", -1), 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("timeline");
    TCase *tcase = tcase_create("file");

    tcase_add_checked_fixture(tcase, make_folder, remove_folder);
    tcase_add_test(tcase, calls_are_written_with_names_of_any_bytes);
    tcase_add_test(tcase, a_collective_has_its_phases_and_a_tick_for_each_rank);
    tcase_add_test(tcase, times_are_those_of_the_scheduler_s_node);
    tcase_add_test(tcase, a_clock_that_nobody_compared_is_not_said_to_be_exact);
    tcase_add_test(tcase, workers_of_late_tasks_have_processes_of_their_own);
    tcase_add_test(tcase, what_began_before_a_recording_is_not_in_it);
    tcase_add_test(tcase, the_clock_is_that_of_the_shortest_round_trip);
    tcase_add_test(tcase, events_that_do_not_fit_are_dropped_and_counted);
    tcase_add_test(tcase, a_killed_process_leaves_a_file_that_can_be_read);
    tcase_add_test(tcase, a_full_disk_is_said_once_and_leaves_what_was_written);
    tcase_add_test(tcase, it_is_started_and_stopped_in_turn);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
