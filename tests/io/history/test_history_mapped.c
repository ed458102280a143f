/* The file of records that outlive their process: the process is killed, a disk is full, bytes are
 * wrong. `rubato history check` reads it. */
#include <glib/gstdio.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/cluster/history_ragged_writer.h"
#include "tests/support/runner.h"

enum {
    HEADER = 32, /* of a chunk */
    RECORD = 64, /* of a request that a server has run */
    SLOT = 1 << 18,
    IN_SLOT = (SLOT - HEADER) / RECORD,
    N_CALLS = IN_SLOT + 100,
    VALUE = 4
};

/* (transfer full) */
static char *path_of(const char *name)
{
    return g_build_filename(writer_folder, name, NULL);
}

static gsize size_of(const char *name)
{
    g_autofree char *path = path_of(name);
    GStatBuf status;

    ck_assert_int_eq(g_stat(path, &status), 0);
    return (gsize)status.st_size;
}

/* What the worker's calls 1 to n have done. */
static void run_calls(HistoryStream *server, uint64_t n)
{
    for (uint64_t i = 1; i <= n; i++) {
        history_note_ragged_ran(server, &(HistoryApplied){ .epoch = 1, .number = i }, 0, i,
                                VALUE * i);
        history_stream_flush(server);
    }
}

static void make_calls(RaggedWriter *writer, uint32_t n)
{
    const int32_t value = 7;

    ragged_writer_begin(writer, "asp");
    for (uint32_t i = 0; i < n; i++)
        ragged_writer_ask(writer, 0, HISTORY_RAGGED_APPEND, 0, 1, &value);
}

static void end_calls(RaggedWriter *writer, uint32_t n)
{
    g_autofree int32_t *values = g_new(int32_t, n);

    for (uint32_t i = 0; i < n; i++)
        values[i] = 7;
    ragged_writer_end(writer, n, values);
}

/* Node 1, which only serves, is killed. There is no other thread yet, which a fork would lose. */
static void play_and_be_killed(void (*play)(uint64_t n_calls), uint64_t n_calls)
{
    const pid_t child = fork();
    int status;

    ck_assert_int_ge(child, 0);
    if (child == 0) {
        play(n_calls);
        kill(getpid(), SIGKILL);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void serve(uint64_t n_calls)
{
    run_calls(ragged_writer_new_server(ragged_writer_open_node(1, "asp")), n_calls);
}

static void serve_and_be_killed(uint64_t n_calls)
{
    play_and_be_killed(serve, n_calls);
}

/* _i 1: files cannot be mapped here. */
START_TEST(what_was_flushed_is_there_when_the_process_is_killed)
{
    g_autofree char *mapped = path_of("node-1.mapped");
    RaggedWriter writer;

    if (_i == 1)
        ck_assert_int_eq(g_mkdir(mapped, 0700), 0);
    serve_and_be_killed(N_CALLS);
    make_calls(&writer, N_CALLS);
    end_calls(&writer, N_CALLS);
    if (_i == 1)
        ck_assert_int_eq(g_rmdir(mapped), 0);
    else
        ck_assert_uint_eq(size_of("node-1.mapped"), 2 * SLOT);
    /* the first call was waited for: then its stream is known to be flushed */
    ck_assert((size_of("node-1.history") < 1000) == (_i == 0));
    g_free(writer_check(NULL, EXIT_SUCCESS));
}
END_TEST

START_TEST(what_is_not_there_is_missed)
{
    RaggedWriter writer;

    serve_and_be_killed(2);
    make_calls(&writer, 3);
    end_calls(&writer, 3);
    g_autofree char *said = writer_check(NULL, EXIT_WRONG);
    ck_assert_msg(strstr(said, "its call number 3, is lost") != NULL, "%s", said);
}
END_TEST

/* The process is killed before the last record has its kind, and before a slot has its header. */
START_TEST(a_record_that_was_not_finished_does_not_count)
{
    g_autofree char *path = path_of("node-1.mapped");
    g_autofree char *bytes = NULL;
    g_autofree char *longer = g_malloc0(2 * SLOT);
    RaggedWriter writer;
    gsize size;

    serve_and_be_killed(4);
    make_calls(&writer, 3);
    end_calls(&writer, 3);
    g_free(writer_check(NULL, EXIT_WRONG)); /* nobody has made call 4 */
    ck_assert(g_file_get_contents(path, &bytes, &size, NULL));
    ck_assert_uint_eq(size, SLOT);
    /* the first call of a stream waits for the writer */
    ck_assert_int_ne(bytes[HEADER + 2 * RECORD], 0);
    ck_assert_int_eq(bytes[HEADER + 3 * RECORD], 0);
    bytes[HEADER + 2 * RECORD] = 0;
    memcpy(longer, bytes, size);
    ck_assert(g_file_set_contents(path, longer, 2 * SLOT, NULL));
    g_free(writer_check(NULL, EXIT_SUCCESS));
}
END_TEST

/* Of a call that changes nothing there are 48 bytes, and 112 of one that does. */
static void serve_handler(uint64_t n_calls)
{
    HistoryStream *server = writer_new_server(writer_open_node(1, "asp", "add"));

    for (uint64_t i = 1; i <= n_calls; i++) {
        writer_apply(server, &(HistoryApplied){ .epoch = 1, .number = i }, 0, i == 2 ? 1 : 0);
        history_stream_flush(server);
    }
}

START_TEST(a_slot_ends_with_less_than_a_record)
{
    Writer writer = { 0 };

    G_STATIC_ASSERT((SLOT - HEADER - 112) % 48 == 16);
    play_and_be_killed(serve_handler, SLOT / 40);
    writer_begin(&writer, "asp", "add");
    for (uint32_t i = 0; i < SLOT / 40; i++)
        (void)writer_call(&writer, 0, 1, true);
    writer_end(&writer, 1);
    g_free(writer_check(NULL, EXIT_SUCCESS));
}
END_TEST

START_TEST(damaged_slots_are_refused_or_judged)
{
    RaggedWriter writer;

    serve_and_be_killed(3);
    make_calls(&writer, 3);
    end_calls(&writer, 3);
    writer_expect_no_crash_of("node-1.mapped", HEADER + 3 * RECORD, 29);
}
END_TEST

static unsigned n_said;

static GLogWriterOutput count_warnings(GLogLevelFlags level, const GLogField *fields, gsize n,
                                       gpointer data)
{
    (void)data;
    for (gsize i = 0; i < n; i++)
        n_said += (level & G_LOG_LEVEL_WARNING) && g_str_equal(fields[i].key, "MESSAGE") &&
                  strstr(fields[i].value, "INCOMPLETE") != NULL;
    return G_LOG_WRITER_HANDLED;
}

/* There is room for one slot. */
START_TEST(a_full_disk_is_said_once)
{
    const struct rlimit limit = { SLOT + SLOT / 2, SLOT + SLOT / 2 };
    History *history = history_open(writer_folder, 1, 1, NULL);
    g_autofree char *path = path_of("node-1.history");
    g_autofree char *bytes = NULL;
    HistoryStream *server = ragged_writer_new_server(history);
    uint32_t state;

    g_log_set_writer_func(count_warnings, NULL, NULL);
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    run_calls(server, N_CALLS);
    history_stream_free(server);
    history_close(history);
    ck_assert_uint_eq(n_said, 1);
    ck_assert_uint_eq(size_of("node-1.mapped"), SLOT);
    ck_assert(g_file_get_contents(path, &bytes, NULL, NULL));
    memcpy(&state, bytes + 8, sizeof state);
    ck_assert_uint_eq(state, 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("history mapped");
    TCase *tcase = tcase_create("mapped");

    tcase_add_checked_fixture(tcase, writer_set_up, writer_tear_down);
    tcase_add_loop_test(tcase, what_was_flushed_is_there_when_the_process_is_killed, 0, 2);
    tcase_add_test(tcase, what_is_not_there_is_missed);
    tcase_add_test(tcase, a_record_that_was_not_finished_does_not_count);
    tcase_add_test(tcase, a_slot_ends_with_less_than_a_record);
    tcase_add_test(tcase, damaged_slots_are_refused_or_judged);
    tcase_add_test(tcase, a_full_disk_is_said_once);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
