/* A worker's source of blocks, from its node's reader: see node_reader.c. */
#include "engine/task/node_reader_private.h"

#include "io/net/stall_clock.h"

/* Waits. Logs it if the wait is long. */
static void wait_for_blocks(NodeReader *node_reader, StallClock *clock)
{
    if (stall_clock_wait(clock, &node_reader->changed, &node_reader->lock))
        g_message("a reader of task %s waits for the scheduler to deal blocks (for %.1f s so far)",
                  node_reader->task, stall_clock_s(clock));
}

static bool take(BlockSource *source, BlockTicket *ticket, GError **error)
{
    NodeReaderSource *reader = (NodeReaderSource *)source;
    NodeReader *node_reader = reader->node_reader;
    ReaderQueue *const queue = reader->queue;
    StallClock clock;
    bool taken;

    stall_clock_start(&clock, node_reader->stall_ms);
    pthread_mutex_lock(&node_reader->lock);
    for (node_reader_ask(node_reader, queue);
         queue->ready->len == 0 && !queue->ended && !node_reader_is_over(node_reader);
         node_reader_ask(node_reader, queue))
        if (queue->asked || !node_reader->announced)
            wait_for_blocks(node_reader, &clock);
    taken = queue->ready->len > 0 && !node_reader_is_over(node_reader);
    if (taken) {
        *ticket = g_array_index(queue->ready, BlockTicket, queue->ready->len - 1);
        g_array_set_size(queue->ready, queue->ready->len - 1);
        node_reader_note_begun(node_reader, ticket);
    } else {
        reader->ended = true;
        queue->n_active--;
        if (node_reader_is_over(node_reader))
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CANCELLED, "task %s was cancelled",
                        node_reader->task);
    }
    pthread_mutex_unlock(&node_reader->lock);
    return taken;
}

static void absent(BlockSource *source, const BlockTicket *ticket)
{
    NodeReaderSource *const reader = (NodeReaderSource *)source;
    NodeReader *const node_reader = reader->node_reader;

    pthread_mutex_lock(&node_reader->lock);
    node_reader_forget_begun(node_reader, ticket);
    node_reader_add_news(node_reader, reader->queue, BLOCK_TICKET_ABSENT, ticket);
    pthread_mutex_unlock(&node_reader->lock);
}

static void finish(BlockSource *source, const BlockTicket *ticket)
{
    NodeReaderSource *const reader = (NodeReaderSource *)source;
    NodeReader *const node_reader = reader->node_reader;

    pthread_mutex_lock(&node_reader->lock);
    node_reader_forget_begun(node_reader, ticket);
    node_reader_add_news(node_reader, reader->queue, BLOCK_TICKET_FINISHED, ticket);
    pthread_mutex_unlock(&node_reader->lock);
}

/* The worker takes no more blocks. The lock is held. */
static void retire(NodeReaderSource *reader)
{
    if (!reader->ended)
        reader->queue->n_active--;
    reader->ended = true;
}

static void give_back(BlockSource *source, const BlockTicket *ticket)
{
    NodeReaderSource *reader = (NodeReaderSource *)source;
    NodeReader *node_reader = reader->node_reader;

    pthread_mutex_lock(&node_reader->lock);
    node_reader_forget_begun(node_reader, ticket);
    retire(reader);
    if (reader->queue->n_active > 0) {
        g_array_append_val(reader->queue->ready, *ticket);
        pthread_cond_signal(&node_reader->changed);
    } else {
        node_reader_add_news(node_reader, reader->queue, BLOCK_TICKET_GIVEN_BACK, ticket);
    }
    pthread_mutex_unlock(&node_reader->lock);
}

static void destroy(BlockSource *source)
{
    NodeReaderSource *reader = (NodeReaderSource *)source;
    NodeReader *node_reader = reader->node_reader;

    pthread_mutex_lock(&node_reader->lock);
    retire(reader);
    if (reader->queue->n_active == 0)
        node_reader_empty(node_reader, reader->queue);
    pthread_mutex_unlock(&node_reader->lock);
    node_reader_unref(node_reader);
    g_free(reader);
}

static const BlockSourceOps node_reader_ops = {
    .take = take, .absent = absent, .finish = finish, .give_back = give_back, .destroy = destroy
};

BlockSource *node_reader_open(NodeReader *node_reader, uint32_t rank)
{
    NodeReaderSource *reader = g_new0(NodeReaderSource, 1);

    reader->source.ops = &node_reader_ops;
    reader->node_reader = node_reader;
    reader->queue = node_reader_find_queue(node_reader, rank);
    node_reader_ref(node_reader);
    pthread_mutex_lock(&node_reader->lock);
    reader->queue->n_active++;
    reader->queue->ended = false; /* blocks that came back since then are for this reader */
    pthread_mutex_unlock(&node_reader->lock);
    return &reader->source;
}

/* The lock is held. */
static void wait_for_answer(NodeReader *node_reader, const ReaderQueue *queue, StallClock *clock)
{
    while ((queue->asked || node_reader->n_sending > 0) && !node_reader_is_over(node_reader))
        if (stall_clock_wait(clock, &node_reader->changed, &node_reader->lock))
            g_message("the end of worker %u of task %s waits for the scheduler to hear which "
                      "blocks it has read (for %.1f s so far)",
                      queue->worker, node_reader->task, stall_clock_s(clock));
}

/* The scheduler answers at once. If it is lost, the next process gets and answers what it had not
 * heard, or the task is cancelled. Blocks that were under way when the worker closed its reader go
 * back first, and what other threads send. */
void node_reader_end_worker(NodeReader *node_reader, uint32_t rank)
{
    ReaderQueue *const queue = node_reader_find_queue(node_reader, rank);
    StallClock clock;

    stall_clock_start(&clock, node_reader->stall_ms);
    pthread_mutex_lock(&node_reader->lock);
    wait_for_answer(node_reader, queue, &clock);
    if (queue->has_asked && !node_reader_is_over(node_reader)) {
        queue->asked = true;
        node_reader_send_want(node_reader, queue, NODE_READER_WANTS_END);
        wait_for_answer(node_reader, queue, &clock);
    }
    pthread_mutex_unlock(&node_reader->lock);
}
