/* See the header. */
#include "tests/support/cluster/history_writer.h"

#include <math.h>
#include <sys/wait.h>

#include "test_paths.h"
#include "tests/support/cluster/program_run.h"
#include "tests/support/runner.h"

char *writer_folder;

void writer_set_up(void)
{
    writer_folder = make_folder();
}

void writer_tear_down(void)
{
    remove_folder(writer_folder);
    g_free(writer_folder);
}

/* ---- writing ---- */

History *writer_open_node(uint32_t node, const char *model, const char *update)
{
    History *history = history_open(writer_folder, node, /* n_nodes= */ 1, NULL);

    ck_assert_ptr_nonnull(history);
    history_say(history,
                "table 0 dtype f32 width 1 model %s staleness 1 speculation 1 update %s aggregate "
                "0 init constant 0 name w\n",
                model, update);
    history_say(history, "task 1 at 2 train\n");
    return history;
}

void writer_begin(Writer *writer, const char *model, const char *update)
{
    writer->history = writer_open_node(0, model, update);
    for (uint32_t i = 0; i < WRITER_WORKERS; i++)
        writer->workers[i] = history_stream_new(
            writer->history,
            &(HistoryIdentity){ .epoch = 1, .rank = i, .dtype = RUBATO_F32, .width = 1 });
}

void writer_add(Writer *writer, uint32_t worker, RubatoKey key, float delta)
{
    history_note(writer->workers[worker],
                 &(HistoryRecord){ .kind = HISTORY_ADD,
                                   .clock = writer->clocks[worker],
                                   .n_adds = writer->n_adds[worker]++,
                                   .keys = &(RubatoKeys){ .keys = &key, .n = 1 },
                                   .rows = &delta });
}

void writer_get(Writer *writer, uint32_t worker, RubatoKey key, float value)
{
    history_note(writer->workers[worker],
                 &(HistoryRecord){ .kind = HISTORY_GET,
                                   .clock = writer->clocks[worker],
                                   .n_adds = writer->n_adds[worker],
                                   .keys = &(RubatoKeys){ .keys = &key, .n = 1 },
                                   .rows = &value });
}

void writer_announce(Writer *writer, uint32_t worker, uint64_t iteration, RubatoKey key)
{
    history_note(writer->workers[worker],
                 &(HistoryRecord){ .kind = HISTORY_ANNOUNCE,
                                   .clock = iteration,
                                   .n_adds = writer->n_adds[worker],
                                   .keys = &(RubatoKeys){ .keys = &key, .n = 1 } });
}

void writer_tick(Writer *writer, uint32_t worker)
{
    history_note(writer->workers[worker], &(HistoryRecord){ .kind = HISTORY_CLOCK,
                                                            .clock = ++writer->clocks[worker],
                                                            .n_adds = writer->n_adds[worker] });
    writer->n_calls[worker] = 0;
}

uint64_t writer_call(Writer *writer, uint32_t worker, uint32_t n_parts, bool is_done)
{
    HistoryRecord record = { .kind = HISTORY_HANDLER_KEYS,
                             .flags = HISTORY_WRITES | (is_done ? 0 : HISTORY_FAILED),
                             .clock = writer->clocks[worker],
                             .n_adds = writer->n_adds[worker]++ };

    history_note_handler(writer->workers[worker], &record, "scale", NULL, 0);
    record.kind = HISTORY_HANDLER_PARTS;
    record.n_adds = ++writer->n_calls[worker];
    record.keys = &(RubatoKeys){ .n = n_parts };
    history_note(writer->workers[worker], &record);
    return record.n_adds;
}

HistoryStream *writer_new_server(History *history)
{
    return history_stream_new(
        history, &(HistoryIdentity){ .rank = HISTORY_SERVER, .dtype = RUBATO_F32, .width = 1 });
}

void writer_apply(HistoryStream *server, const HistoryApplied *applied, float before, float after)
{
    const RubatoKeys keys = { .first = 5, .n = 1 };
    const float rows[] = { before, after };
    uint32_t n_records = 0;

    if (before != after)
        history_note_applied(server, applied, &keys, rows, &n_records);
    history_note_applied_end(server, applied, 0, n_records);
}

void writer_run(Writer *writer, uint32_t worker, uint64_t number, float before, float after)
{
    if (writer->server == NULL)
        writer->server = writer_new_server(writer->history);
    writer_apply(
        writer->server,
        &(HistoryApplied){
            .epoch = 1, .rank = worker, .clock = writer->clocks[worker], .number = number },
        before, after);
}

void writer_end(Writer *writer, float last)
{
    const RubatoKey key = 5;

    for (uint32_t i = 0; i < WRITER_WORKERS; i++)
        history_stream_free(writer->workers[i]);
    history_stream_free(writer->server);
    history_next_phase(writer->history);
    history_say(writer->history, "end 1 at 3 well\n");
    HistoryStream *engine = history_stream_new(
        writer->history, &(HistoryIdentity){ .rank = UINT32_MAX, .dtype = RUBATO_F32, .width = 1 });
    if (!isnan(last))
        history_note(engine, &(HistoryRecord){ .kind = HISTORY_GET,
                                               .clock = 3,
                                               .keys = &(RubatoKeys){ .keys = &key, .n = 1 },
                                               .rows = &last });
    history_stream_free(engine);
    history_say(writer->history, "rows 0 at 3\n");
    history_close(writer->history);
}

/* ---- checking ---- */

char *writer_check(const char *flag, int status)
{
    const char *argv[] = { TEST_BIN_DIR "/rubato", "history", "check", writer_folder, flag, NULL };
    char *said;
    int found;

    ck_assert(g_spawn_sync(NULL, (char **)(uintptr_t)argv, NULL, G_SPAWN_DEFAULT, NULL, NULL, &said,
                           NULL, &found, NULL));
    ck_assert_msg(WIFEXITED(found) && WEXITSTATUS(found) == status, "it ends with %d: %s", found,
                  said);
    return said;
}

/* Bytes from `begin` to `end`; 0: to the file's end. */
static void expect_no_crash(const char *name, gsize begin, gsize end, gsize stride)
{
    const char *argv[] = { TEST_BIN_DIR "/rubato", "history", "check", writer_folder, NULL };
    g_autofree char *path = g_build_filename(writer_folder, name, NULL);
    g_autofree char *bytes = NULL;
    gsize size;

    ck_assert(g_file_get_contents(path, &bytes, &size, NULL));
    for (gsize i = begin; i < (end == 0 ? size : end); i += stride) {
        const char kept = bytes[i];
        int status;

        bytes[i] = (char)~kept;
        ck_assert(g_file_set_contents(path, bytes, (gssize)size, NULL));
        ck_assert(g_spawn_sync(NULL, (char **)(uintptr_t)argv, NULL,
                               G_SPAWN_STDOUT_TO_DEV_NULL | G_SPAWN_STDERR_TO_DEV_NULL, NULL, NULL,
                               NULL, NULL, &status, NULL));
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) <= EXIT_INCOMPLETE,
                      "byte %zu: it ends with %d", (size_t)i, status);
        bytes[i] = kept;
    }
}

void writer_expect_no_crash(gsize stride)
{
    expect_no_crash("node-0.history", 64, 0, stride);
}

void writer_expect_no_crash_of(const char *name, gsize end, gsize stride)
{
    expect_no_crash(name, 0, end, stride);
}
