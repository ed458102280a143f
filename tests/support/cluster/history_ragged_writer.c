/* See the header. */
#include "tests/support/cluster/history_ragged_writer.h"

#include <check.h>

enum { ROW = 5 };

History *ragged_writer_open_node(uint32_t node, const char *model)
{
    History *history = history_open(writer_folder, node, /* n_nodes= */ 1, NULL);

    ck_assert_ptr_nonnull(history);
    history_say(history,
                "table 0 dtype i32 width 1 model %s staleness 1 speculation 1 update add aggregate "
                "0 init constant 0 shape ragged name r\n",
                model);
    history_say(history, "task 1 at 2 train\n");
    return history;
}

static HistoryStream *new_stream(History *history, uint32_t epoch, uint32_t rank)
{
    return history_stream_new(
        history,
        &(HistoryIdentity){ .epoch = epoch, .rank = rank, .dtype = RUBATO_I32, .width = 1 });
}

HistoryStream *ragged_writer_new_server(History *history)
{
    return new_stream(history, 0, HISTORY_SERVER);
}

void ragged_writer_begin(RaggedWriter *writer, const char *model)
{
    *writer = (RaggedWriter){ .history = ragged_writer_open_node(0, model) };
    for (uint32_t i = 0; i < WRITER_WORKERS; i++)
        writer->workers[i] = new_stream(writer->history, 1, i);
    writer->server = ragged_writer_new_server(writer->history);
}

uint64_t ragged_writer_ask(RaggedWriter *writer, uint32_t worker, HistoryRaggedOp op,
                           unsigned flags, uint32_t n, const int32_t *values)
{
    const uint64_t number = ++writer->n_calls[worker];
    const bool has_rows = op != HISTORY_RAGGED_ERASE;

    history_note_ragged(writer->workers[worker],
                        &(HistoryRagged){ .op = op,
                                          .flags = flags,
                                          .clock = writer->clocks[worker],
                                          .n_adds = writer->n_adds[worker]++,
                                          .number = number,
                                          .keys = { .first = ROW, .n = 1 },
                                          .lengths = has_rows ? &n : NULL,
                                          .rows = has_rows ? values : NULL });
    return number;
}

void ragged_writer_run(RaggedWriter *writer, uint32_t worker, uint64_t clock, uint64_t number,
                       int64_t more_bytes)
{
    writer->row_bytes += (uint64_t)more_bytes;
    history_note_ragged_ran(
        writer->server,
        &(HistoryApplied){ .epoch = 1, .rank = worker, .clock = clock, .number = number }, 0,
        ++writer->order, writer->row_bytes);
}

void ragged_writer_do(RaggedWriter *writer, uint32_t worker, HistoryRaggedOp op, uint32_t n,
                      const int32_t *values, int64_t more_bytes)
{
    const uint64_t number = ragged_writer_ask(writer, worker, op, 0, n, values);

    ragged_writer_run(writer, worker, writer->clocks[worker], number, more_bytes);
}

void ragged_writer_get(RaggedWriter *writer, uint32_t worker, size_t n_rows,
                       const uint32_t *lengths, const int32_t *values)
{
    history_note_ragged(writer->workers[worker],
                        &(HistoryRagged){ .op = HISTORY_RAGGED_GET,
                                          .clock = writer->clocks[worker],
                                          .n_adds = writer->n_adds[worker],
                                          .keys = { .first = ROW, .n = n_rows },
                                          .lengths = lengths,
                                          .rows = values });
}

void ragged_writer_tick(RaggedWriter *writer)
{
    for (uint32_t i = 0; i < WRITER_WORKERS; i++) {
        history_note(writer->workers[i], &(HistoryRecord){ .kind = HISTORY_CLOCK,
                                                           .clock = ++writer->clocks[i],
                                                           .n_adds = writer->n_adds[i] });
        writer->n_calls[i] = 0;
    }
}

void ragged_writer_end(RaggedWriter *writer, uint32_t n, const int32_t *values)
{
    HistoryStream *engine;

    for (uint32_t i = 0; i < WRITER_WORKERS; i++)
        history_stream_free(writer->workers[i]);
    history_stream_free(writer->server);
    history_next_phase(writer->history);
    history_say(writer->history, "end 1 at 3 well\n");
    engine = new_stream(writer->history, 0, UINT32_MAX);
    history_note_ragged(engine, &(HistoryRagged){ .op = HISTORY_RAGGED_GET,
                                                  .clock = 3,
                                                  .keys = { .first = ROW, .n = 1 },
                                                  .lengths = &n,
                                                  .rows = values });
    history_stream_free(engine);
    history_say(writer->history, "rows 0 at 3\n");
    history_close(writer->history);
}
