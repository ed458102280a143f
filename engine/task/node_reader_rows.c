/* Rows that are done, and those that are not, of readers that are kept in snapshots: see
 * node_reader.c. */
#include "engine/task/node_reader_private.h"

#include <string.h>

#define LOG_LOOKED_THROUGH 64u /* steps: a longer log is looked through for those to forget */

void node_reader_note_begun(NodeReader *node_reader, const BlockTicket *ticket)
{
    if (node_reader->options.kept_as != NULL && ticket->n_read > 0)
        g_array_append_val(node_reader->begun, *ticket);
}

void node_reader_forget_begun(NodeReader *node_reader, const BlockTicket *ticket)
{
    GArray *const begun = node_reader->begun;

    for (guint i = 0; i < begun->len; i++)
        if (block_ticket_is_same(&g_array_index(begun, BlockTicket, i), ticket)) {
            g_array_remove_index_fast(begun, i);
            return;
        }
}

/* The lock is held. */
static void prune_log(NodeReader *node_reader, uint64_t lowest)
{
    GArray *const log = node_reader->log;
    guint n = 0;

    for (guint i = 0; i < log->len; i++)
        if (g_array_index(log, LoggedRows, i).clock >= lowest)
            g_array_index(log, LoggedRows, n++) = g_array_index(log, LoggedRows, i);
    g_array_set_size(log, n);
    node_reader->log_limit = 2 * n;
}

static void note_rows(NodeReader *node_reader, const ReaderRows *rows, uint64_t clock)
{
    BlockTicket begun = rows->ticket;

    if (clock != NODE_READER_NO_CLOCK) {
        LoggedRows logged = { clock, rows->ticket };

        logged.rows.end = rows->end;
        g_array_append_val(node_reader->log, logged);
    }
    if (rows->is_last) /* its result was told */
        return;
    node_reader_forget_begun(node_reader, &begun);
    begun.n_read = rows->end;
    g_array_append_val(node_reader->begun, begun);
}

void node_reader_note_done(BlockSource *source, const ReaderRows *rows, size_t n,
                           NodeReaderClock at)
{
    NodeReader *const node_reader = ((NodeReaderSource *)source)->node_reader;

    pthread_mutex_lock(&node_reader->lock);
    for (size_t i = 0; i < n; i++)
        note_rows(node_reader, &rows[i], at.clock);
    if (node_reader->log->len > MAX(node_reader->log_limit, LOG_LOOKED_THROUGH))
        prune_log(node_reader, at.lowest);
    pthread_mutex_unlock(&node_reader->lock);
}

/* The lock is held. */
static void send_news(NodeReader *node_reader)
{
    for (uint32_t i = 0; i < node_reader->n_queues; i++)
        if (node_reader->queues[i].news->len > 0)
            node_reader_send_want(node_reader, &node_reader->queues[i], 0);
}

/* The lock is held, and released in between: so the lines were written before. */
static void send_lines(NodeReader *node_reader, const GString *lines)
{
    ReaderQueue *const first = &node_reader->queues[0];

    for (char *line = lines->str, *end; *line != '\0'; line = end + 1) {
        end = strchr(line, '\n');
        g_string_append_len(first->news, line, end + 1 - line);
        if (first->news->len > NODE_READER_NEWS_MAX)
            node_reader_send_want(node_reader, first, 0);
    }
    send_news(node_reader);
}

static void write_cut(GString *lines, uint64_t lowest)
{
    const BlockTicket none = { 0 };

    if (lowest == NODE_READER_NO_CLOCK)
        block_ticket_write(lines, BLOCK_TICKET_CUT, &none);
    else
        block_ticket_write_clock(lines, BLOCK_TICKET_CUT_BY_CLOCK, lowest, &none);
}

/* A snapshot that has no clock says nothing of those that later ones may be without. */
static void write_undone(NodeReader *node_reader, uint64_t lowest, GString *lines)
{
    prune_log(node_reader, lowest);
    for (guint i = 0; i < node_reader->log->len; i++)
        block_ticket_write(lines, BLOCK_TICKET_UNDONE,
                           &g_array_index(node_reader->log, LoggedRows, i).rows);
}

void node_reader_tell_done(NodeReader *node_reader, uint64_t lowest)
{
    g_autoptr(GString) lines = g_string_new(NULL);

    if (!node_reader_is_kept(node_reader))
        return;
    pthread_mutex_lock(&node_reader->lock);
    send_news(node_reader);
    while (node_reader->n_sending > 0)
        pthread_cond_wait(&node_reader->changed, &node_reader->lock);
    if (node_reader->announced) /* else it has got no block */
        write_cut(lines, lowest);
    for (guint i = 0; i < node_reader->begun->len; i++)
        block_ticket_write(lines, BLOCK_TICKET_DONE,
                           &g_array_index(node_reader->begun, BlockTicket, i));
    for (uint32_t j = 0; j < node_reader->n_queues; j++) {
        const GArray *const ready = node_reader->queues[j].ready;

        for (guint i = 0; i < ready->len; i++) /* a worker may have left them */
            block_ticket_write(lines, BLOCK_TICKET_DONE, &g_array_index(ready, BlockTicket, i));
    }
    if (lowest != NODE_READER_NO_CLOCK)
        write_undone(node_reader, lowest, lines);
    send_lines(node_reader, lines);
    pthread_mutex_unlock(&node_reader->lock);
}

void node_reader_tell_ended(NodeReader *node_reader, uint64_t lowest)
{
    g_autoptr(GString) lines = g_string_new(NULL);

    pthread_mutex_lock(&node_reader->lock);
    prune_log(node_reader, lowest);
    for (guint i = 0; i < node_reader->log->len; i++) {
        const LoggedRows *const logged = &g_array_index(node_reader->log, LoggedRows, i);

        block_ticket_write_clock(lines, BLOCK_TICKET_ENDED, logged->clock, &logged->rows);
    }
    send_lines(node_reader, lines);
    pthread_mutex_unlock(&node_reader->lock);
}
