/* Node readers: a queue of blocks for the node's readers, filled by the scheduler; or, if lost
 * workers are to be replaced, a queue for each.
 *
 * The first reader that finds the queue short asks for more blocks, for all readers. At most one
 * request is under way; it also tells the results of earlier blocks. A reader that finds the queue
 * empty waits. A worker may leave a block unfinished. If another worker of this node still reads,
 * the block goes to the front of the queue; otherwise it goes back to the scheduler. When the
 * scheduler has no blocks left, each reader ends as soon as the queue is empty. It does not wait
 * for blocks that other readers may leave unfinished, because these readers may be waiting for its
 * worker's clock.
 *
 * Readers that are kept in snapshots. Tickets with rows that are done, and rows that are not, are
 * noted here: the scheduler does not hear of each row. For a snapshot it is told them while no
 * worker is in a step (engine/snapshot/snapshot_cut.c), so no row becomes done meanwhile. Before
 * that message go the results of tickets that were done before: it waits for threads that are in
 * the middle of sending some, which wait for nothing. A ticket that is given back later
 * says itself how many of its rows are done, and that number is the same.
 *
 * Where Adds are applied by their clock, the snapshot has those of the clocks below the lowest one
 * of all workers. So the rows of a step are done in it exactly if the step's clock is below it. The
 * log has the steps whose clocks may not be.
 *
 * Messages are sent with no lock held, because on the scheduler's node the answer comes within the
 * call. */
#include "engine/task/node_reader.h"

#include <string.h>

#include "engine/task/block_ticket_codec.h"
#include "engine/task/status_parts.h"
#include "io/net/monotonic.h"
#include "io/net/stall_clock.h"

#define NEWS_MAX (CONTROL_MAX_LINES / 2) /* bytes; longer news is sent at once */
#define READY_PER_READER 2u
#define WANTS_END UINT32_MAX   /* in place of a number of blocks: only to hear that all was had */
#define LOG_LOOKED_THROUGH 64u /* steps: a longer log is looked through for those to forget */

/* Blocks of some readers, of all the node's or of one. The node reader's lock guards all but
 * `worker`. */
typedef struct {
    uint32_t worker;   /* the rank of the one; 0: of all */
    GArray *ready;     /* of BlockTicket, the next one last */
    GString *news;     /* results of earlier tickets */
    bool asked;        /* a request for blocks is under way */
    bool has_asked;    /* so there may be results to tell */
    bool ended;        /* no more blocks will come */
    uint32_t n_active; /* readers that may take more */
} Queue;

struct NodeReader {
    _Atomic uint32_t n_refs;

    /* immutable */
    const TaskHost *host;
    char *task;
    uint32_t epoch;
    uint32_t id;
    uint32_t stall_ms;
    RubatoDataset *dataset;
    RubatoReaderOptions options;
    uint32_t n_queues;
    bool are_apart; /* each worker has a queue */
    Queue *queues;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock */
    uint32_t n_sending; /* threads that are telling the scheduler results of tickets */
    bool announced;
    bool cancelled;    /* the task */
    bool closed;       /* the task is over */
    GPtrArray *places; /* of WorkerPlace */
    GArray *begun;     /* of BlockTicket: of readers that are kept, those with rows done and not */
    GArray *log;       /* of LoggedRows, as they were done */
    guint log_limit;   /* its length at which it is looked through next */
};

/* Rows that a worker said to be done in a step which it began at that clock. */
typedef struct {
    uint64_t clock;
    BlockTicket rows; /* n_read to end */
} LoggedRows;

/* How far a worker has come. */
typedef struct {
    uint32_t rank;
    ReaderProgress progress;
} WorkerPlace;

/* One worker's source of blocks. */
typedef struct {
    BlockSource source;
    NodeReader *node_reader;
    Queue *queue;
    bool ended; /* guarded by the node reader's lock */
} NodeReaderSource;

/* ---- life ---- */

static void place_free(gpointer data)
{
    WorkerPlace *const place = data;

    reader_progress_clear(&place->progress);
    g_free(place);
}

NodeReader *node_reader_new(const NodeReaderPlace *place, RubatoDataset *dataset,
                            const RubatoReaderOptions *options)
{
    NodeReader *node_reader = g_new0(NodeReader, 1);

    node_reader->n_refs = 1;
    node_reader->host = place->host;
    node_reader->task = g_strdup(place->task);
    node_reader->epoch = place->epoch;
    node_reader->id = place->id;
    node_reader->stall_ms = place->host->stall_ms;
    node_reader->dataset = dataset_ref(dataset);
    node_reader->options = *options;
    node_reader->options.kept_as = g_strdup(options->kept_as);
    node_reader->begun = g_array_new(FALSE, FALSE, sizeof(BlockTicket));
    node_reader->log = g_array_new(FALSE, FALSE, sizeof(LoggedRows));
    node_reader->log_limit = LOG_LOOKED_THROUGH;
    node_reader->are_apart = place->n_apart > 0;
    node_reader->n_queues = MAX(1, place->n_apart);
    node_reader->queues = g_new0(Queue, node_reader->n_queues);
    for (uint32_t i = 0; i < node_reader->n_queues; i++) {
        node_reader->queues[i].worker = node_reader->are_apart ? place->first_rank + i : 0;
        node_reader->queues[i].ready = g_array_new(FALSE, FALSE, sizeof(BlockTicket));
        node_reader->queues[i].news = g_string_new(NULL);
    }
    node_reader->places = g_ptr_array_new_with_free_func(place_free);
    pthread_mutex_init(&node_reader->lock, NULL);
    monotonic_cond_init(&node_reader->changed);
    return node_reader;
}

NodeReader *node_reader_ref(NodeReader *node_reader)
{
    atomic_fetch_add_explicit(&node_reader->n_refs, 1, memory_order_relaxed);
    return node_reader;
}

void node_reader_unref(NodeReader *node_reader)
{
    /* acquire and release: pair with one another, so the last thread sees what all others did */
    if (atomic_fetch_sub_explicit(&node_reader->n_refs, 1, memory_order_acq_rel) > 1)
        return;
    for (uint32_t i = 0; i < node_reader->n_queues; i++) {
        g_array_free(node_reader->queues[i].ready, TRUE);
        g_string_free(node_reader->queues[i].news, TRUE);
    }
    g_free(node_reader->queues);
    g_ptr_array_unref(node_reader->places);
    g_array_unref(node_reader->begun);
    g_array_unref(node_reader->log);
    g_free((char *)(uintptr_t)node_reader->options.kept_as);
    pthread_cond_destroy(&node_reader->changed);
    pthread_mutex_destroy(&node_reader->lock);
    rubato_dataset_free(node_reader->dataset);
    g_free(node_reader->task);
    g_free(node_reader);
}

void node_reader_close(NodeReader *node_reader)
{
    pthread_mutex_lock(&node_reader->lock);
    node_reader->closed = true;
    pthread_mutex_unlock(&node_reader->lock);
}

void node_reader_cancel(NodeReader *node_reader)
{
    pthread_mutex_lock(&node_reader->lock);
    node_reader->cancelled = true;
    pthread_cond_broadcast(&node_reader->changed);
    pthread_mutex_unlock(&node_reader->lock);
}

static void tell_scheduler(const NodeReader *node_reader, const Control *control)
{
    node_reader->host->tell_scheduler(node_reader->host->user, control);
}

/* ---- what it is ---- */

static const char *split_name(RubatoSplit split)
{
    static const char *const names[] = { [RUBATO_SPLIT_FIXED] = "fixed",
                                         [RUBATO_SPLIT_DYNAMIC] = "dynamic",
                                         [RUBATO_SPLIT_BY_KEY] = "by-key" };

    return names[split];
}

static void add_order(GString *text, const RubatoReaderOptions *options)
{
    g_string_append_printf(text, "%u epochs, %s split, ", options->epochs,
                           split_name(options->split));
    if (options->split == RUBATO_SPLIT_BY_KEY)
        g_string_append_printf(text, "key place %u, ", options->key_place);
    if (options->shuffle)
        g_string_append_printf(text, "shuffled by seed %" G_GUINT64_FORMAT, options->seed);
    else
        g_string_append(text, "not shuffled");
    if (options->kept_as != NULL)
        g_string_append_printf(text, ", kept as \"%s\"", options->kept_as);
}

/* What all nodes must agree on about the files of a fixed split. Each node has all files, but may
 * keep them in different folders. */
static char *digest_inputs(const NodeReader *node_reader)
{
    g_autoptr(GString) text = g_string_new(NULL);

    for (uint32_t i = 0; i < dataset_n_inputs(node_reader->dataset); i++) {
        const Input *input = dataset_input(node_reader->dataset, i);

        g_string_append_printf(text, "%" G_GUINT64_FORMAT " %d\n", input_size(input),
                               input_is_packed(input));
    }
    return g_compute_checksum_for_string(G_CHECKSUM_SHA256, text->str, (gssize)text->len);
}

static void tell_inputs(NodeReader *node_reader, uint32_t first, const GString *lines)
{
    if (lines->len > 0)
        tell_scheduler(node_reader, &(Control){ .kind = CONTROL_INPUTS,
                                                .inputs = { .epoch = node_reader->epoch,
                                                            .reader = node_reader->id,
                                                            .first = first,
                                                            .lines = lines->str } });
}

/* Announces all inputs, in as many messages as they need. */
static void announce_inputs(NodeReader *node_reader)
{
    g_autoptr(GString) lines = g_string_new(NULL);
    uint32_t first = 0;

    for (uint32_t i = 0; i < dataset_n_inputs(node_reader->dataset); i++) {
        const Input *input = dataset_input(node_reader->dataset, i);
        g_autofree char *name = g_strescape(input_path(input), NULL);
        g_autofree char *line =
            g_strdup_printf("%" G_GUINT64_FORMAT " %" G_GUINT64_FORMAT " %d %s\n",
                            input_size(input), dataset_n_blocks(node_reader->dataset, i),
                            dataset_in_any_order(node_reader->dataset, i), name);

        if (lines->len + strlen(line) > CONTROL_MAX_LINES) {
            tell_inputs(node_reader, first, lines);
            g_string_truncate(lines, 0);
            first = i;
        }
        g_string_append(lines, line);
    }
    tell_inputs(node_reader, first, lines);
}

void node_reader_announce(NodeReader *node_reader)
{
    const bool dynamic = node_reader->options.split == RUBATO_SPLIT_DYNAMIC;
    g_autofree char *digest = dynamic ? NULL : digest_inputs(node_reader);
    g_autoptr(GString) text = g_string_new(NULL);

    add_order(text, &node_reader->options);
    tell_scheduler(node_reader, &(Control){ .kind = CONTROL_READER,
                                            .reader = { .epoch = node_reader->epoch,
                                                        .reader = node_reader->id,
                                                        .n_epochs = node_reader->options.epochs,
                                                        .is_dynamic = dynamic,
                                                        .is_shuffled = node_reader->options.shuffle,
                                                        .seed = node_reader->options.seed,
                                                        .kept_as = node_reader->options.kept_as,
                                                        .description = text->str,
                                                        .digest = digest } });
    if (dynamic)
        announce_inputs(node_reader);
    pthread_mutex_lock(&node_reader->lock);
    node_reader->announced = true;
    pthread_cond_broadcast(&node_reader->changed);
    pthread_mutex_unlock(&node_reader->lock);
}

bool node_reader_check(const NodeReader *node_reader, const RubatoDataset *dataset,
                       const RubatoReaderOptions *options, GError **error)
{
    g_autoptr(GString) own = g_string_new(NULL);
    g_autoptr(GString) first = g_string_new(NULL);

    add_order(own, options);
    add_order(first, &node_reader->options);
    if (dataset == node_reader->dataset && strcmp(own->str, first->str) == 0)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MISMATCH,
                "task %s: reader %u is opened with %s, another worker's with %s%s; open the same "
                "ones in the same order",
                node_reader->task, node_reader->id, own->str, first->str,
                dataset == node_reader->dataset ? "" : " of another dataset");
    return false;
}

/* ---- asking ---- */

static bool is_over(const NodeReader *node_reader)
{
    return node_reader->cancelled || node_reader->closed;
}

/* Requests blocks, or sends only news if wanted is 0. The caller holds the lock; it is released
 * while the message is sent. */
static void send_want(NodeReader *node_reader, Queue *queue, uint32_t wanted)
{
    GString *news = queue->news;

    if (node_reader->closed)
        return;
    queue->news = g_string_new(NULL);
    node_reader->n_sending++;
    pthread_mutex_unlock(&node_reader->lock);
    tell_scheduler(node_reader, &(Control){ .kind = CONTROL_WANT,
                                            .want = { .epoch = node_reader->epoch,
                                                      .reader = node_reader->id,
                                                      .n_blocks = wanted == WANTS_END ? 0 : wanted,
                                                      .events = news->str,
                                                      .worker = queue->worker,
                                                      .ends = wanted == WANTS_END } });
    g_string_free(news, TRUE);
    pthread_mutex_lock(&node_reader->lock);
    if (--node_reader->n_sending == 0)
        pthread_cond_broadcast(&node_reader->changed);
}

static void add_news(NodeReader *node_reader, Queue *queue, BlockTicketEvent news,
                     const BlockTicket *ticket)
{
    block_ticket_write(queue->news, news, ticket);
    if (queue->news->len > NEWS_MAX)
        send_want(node_reader, queue, 0);
}

/* Requests more blocks if the queue is short. */
static void ask(NodeReader *node_reader, Queue *queue)
{
    const uint32_t enough = READY_PER_READER * queue->n_active;

    if (!node_reader->announced || queue->asked || queue->ended || is_over(node_reader) ||
        queue->ready->len >= queue->n_active)
        return;
    queue->asked = queue->has_asked = true;
    send_want(node_reader, queue, enough - queue->ready->len);
}

/* Gives back the blocks that no reader of this node will read any more. The lock is held. */
static void empty(NodeReader *node_reader, Queue *queue)
{
    for (guint i = 0; i < queue->ready->len; i++)
        block_ticket_write(queue->news, BLOCK_TICKET_GIVEN_BACK,
                           &g_array_index(queue->ready, BlockTicket, i));
    g_array_set_size(queue->ready, 0);
    if (queue->news->len > 0)
        send_want(node_reader, queue, 0);
}

/* The one of a worker; NULL: it is not of this node. */
static Queue *find_queue(const NodeReader *node_reader, uint32_t worker)
{
    for (uint32_t i = 0; i < node_reader->n_queues; i++)
        if (!node_reader->are_apart || node_reader->queues[i].worker == worker)
            return &node_reader->queues[i];
    return NULL;
}

void node_reader_receive(NodeReader *node_reader, const ControlBlocks *blocks)
{
    g_autoptr(GArray) tickets = g_array_new(FALSE, FALSE, sizeof(BlockTicket));
    Queue *const queue = find_queue(node_reader, blocks->worker);
    BlockTicketEvent news;
    BlockTicket ticket;

    if (queue == NULL) {
        g_warning("the scheduler sent blocks of a worker of another node; dropped");
        return;
    }
    for (const char *at = blocks->tickets; *at != '\0';) {
        if (!block_ticket_read(&at, &news, &ticket) || news != BLOCK_TICKET_DEALT ||
            ticket.input >= dataset_n_inputs(node_reader->dataset)) {
            g_warning("the scheduler sent blocks that make no sense; dropped");
            break;
        }
        g_array_prepend_val(tickets, ticket);
    }
    pthread_mutex_lock(&node_reader->lock);
    g_array_prepend_vals(queue->ready, tickets->data, tickets->len);
    queue->asked = false;
    queue->ended |= blocks->is_last;
    if (queue->n_active == 0)
        empty(node_reader, queue);
    pthread_cond_broadcast(&node_reader->changed);
    pthread_mutex_unlock(&node_reader->lock);
}

/* ---- a worker's source ---- */

/* Waits. Logs it if the wait is long. */
static void wait_for_blocks(NodeReader *node_reader, StallClock *clock)
{
    if (stall_clock_wait(clock, &node_reader->changed, &node_reader->lock))
        g_message("a reader of task %s waits for the scheduler to deal blocks (for %.1f s so far)",
                  node_reader->task, stall_clock_s(clock));
}

/* Rows of the ticket are done, by a worker that gave it back: a snapshot has to hear of them while
 * the next worker reads on. The lock is held. */
static void note_begun(NodeReader *node_reader, const BlockTicket *ticket)
{
    if (node_reader->options.kept_as != NULL && ticket->n_read > 0)
        g_array_append_val(node_reader->begun, *ticket);
}

static bool take(BlockSource *source, BlockTicket *ticket, GError **error)
{
    NodeReaderSource *reader = (NodeReaderSource *)source;
    NodeReader *node_reader = reader->node_reader;
    Queue *const queue = reader->queue;
    StallClock clock;
    bool taken;

    stall_clock_start(&clock, node_reader->stall_ms);
    pthread_mutex_lock(&node_reader->lock);
    for (ask(node_reader, queue); queue->ready->len == 0 && !queue->ended && !is_over(node_reader);
         ask(node_reader, queue))
        if (queue->asked || !node_reader->announced)
            wait_for_blocks(node_reader, &clock);
    taken = queue->ready->len > 0 && !is_over(node_reader);
    if (taken) {
        *ticket = g_array_index(queue->ready, BlockTicket, queue->ready->len - 1);
        g_array_set_size(queue->ready, queue->ready->len - 1);
        note_begun(node_reader, ticket);
    } else {
        reader->ended = true;
        queue->n_active--;
        if (is_over(node_reader))
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CANCELLED, "task %s was cancelled",
                        node_reader->task);
    }
    pthread_mutex_unlock(&node_reader->lock);
    return taken;
}

/* The ticket is no longer one that a worker has begun. The lock is held. */
static void forget_begun(NodeReader *node_reader, const BlockTicket *ticket)
{
    GArray *const begun = node_reader->begun;

    for (guint i = 0; i < begun->len; i++)
        if (block_ticket_is_same(&g_array_index(begun, BlockTicket, i), ticket)) {
            g_array_remove_index_fast(begun, i);
            return;
        }
}

static void absent(BlockSource *source, const BlockTicket *ticket)
{
    NodeReaderSource *const reader = (NodeReaderSource *)source;
    NodeReader *const node_reader = reader->node_reader;

    pthread_mutex_lock(&node_reader->lock);
    forget_begun(node_reader, ticket);
    add_news(node_reader, reader->queue, BLOCK_TICKET_ABSENT, ticket);
    pthread_mutex_unlock(&node_reader->lock);
}

static void finish(BlockSource *source, const BlockTicket *ticket)
{
    NodeReaderSource *const reader = (NodeReaderSource *)source;
    NodeReader *const node_reader = reader->node_reader;

    pthread_mutex_lock(&node_reader->lock);
    forget_begun(node_reader, ticket);
    add_news(node_reader, reader->queue, BLOCK_TICKET_FINISHED, ticket);
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
    forget_begun(node_reader, ticket);
    retire(reader);
    if (reader->queue->n_active > 0) {
        g_array_append_val(reader->queue->ready, *ticket);
        pthread_cond_signal(&node_reader->changed);
    } else {
        add_news(node_reader, reader->queue, BLOCK_TICKET_GIVEN_BACK, ticket);
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
        empty(node_reader, reader->queue);
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
    reader->queue = find_queue(node_reader, rank);
    node_reader_ref(node_reader);
    pthread_mutex_lock(&node_reader->lock);
    reader->queue->n_active++;
    reader->queue->ended = false; /* blocks that came back since then are for this reader */
    pthread_mutex_unlock(&node_reader->lock);
    return &reader->source;
}

/* The lock is held. */
static void wait_for_answer(NodeReader *node_reader, const Queue *queue, StallClock *clock)
{
    while ((queue->asked || node_reader->n_sending > 0) && !is_over(node_reader))
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
    Queue *const queue = find_queue(node_reader, rank);
    StallClock clock;

    stall_clock_start(&clock, node_reader->stall_ms);
    pthread_mutex_lock(&node_reader->lock);
    wait_for_answer(node_reader, queue, &clock);
    if (queue->has_asked && !is_over(node_reader)) {
        queue->asked = true;
        send_want(node_reader, queue, WANTS_END);
        wait_for_answer(node_reader, queue, &clock);
    }
    pthread_mutex_unlock(&node_reader->lock);
}

/* ---- in snapshots ---- */

/* The lock is held. */
static void prune_log(NodeReader *node_reader, uint64_t lowest)
{
    GArray *const log = node_reader->log;
    guint n = 0;

    for (guint i = 0; i < log->len; i++)
        if (g_array_index(log, LoggedRows, i).clock >= lowest)
            g_array_index(log, LoggedRows, n++) = g_array_index(log, LoggedRows, i);
    g_array_set_size(log, n);
    node_reader->log_limit = MAX(2 * n, LOG_LOOKED_THROUGH);
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
    forget_begun(node_reader, &begun);
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
    if (node_reader->log->len > node_reader->log_limit)
        prune_log(node_reader, at.lowest);
    pthread_mutex_unlock(&node_reader->lock);
}

bool node_reader_is_kept(const NodeReader *node_reader)
{
    return node_reader->options.kept_as != NULL;
}

/* The lock is held. */
static void send_news(NodeReader *node_reader)
{
    for (uint32_t i = 0; i < node_reader->n_queues; i++)
        if (node_reader->queues[i].news->len > 0)
            send_want(node_reader, &node_reader->queues[i], 0);
}

void node_reader_tell_done(NodeReader *node_reader, uint64_t lowest)
{
    g_autoptr(GString) lines = g_string_new(NULL);
    Queue *const first = &node_reader->queues[0];

    if (!node_reader_is_kept(node_reader))
        return;
    pthread_mutex_lock(&node_reader->lock);
    send_news(node_reader);
    while (node_reader->n_sending > 0)
        pthread_cond_wait(&node_reader->changed, &node_reader->lock);
    if (node_reader->announced) /* else it has got no block */
        block_ticket_write(lines, BLOCK_TICKET_CUT, &(BlockTicket){ 0 });
    for (guint i = 0; i < node_reader->begun->len; i++)
        block_ticket_write(lines, BLOCK_TICKET_DONE,
                           &g_array_index(node_reader->begun, BlockTicket, i));
    for (uint32_t j = 0; j < node_reader->n_queues; j++) {
        const GArray *const ready = node_reader->queues[j].ready;

        for (guint i = 0; i < ready->len; i++) /* a worker may have left them */
            block_ticket_write(lines, BLOCK_TICKET_DONE, &g_array_index(ready, BlockTicket, i));
    }
    prune_log(node_reader, lowest);
    for (guint i = 0; i < node_reader->log->len; i++)
        block_ticket_write(lines, BLOCK_TICKET_UNDONE,
                           &g_array_index(node_reader->log, LoggedRows, i).rows);
    for (char *line = lines->str, *end; *line != '\0'; line = end + 1) {
        end = strchr(line, '\n');
        g_string_append_len(first->news, line, end + 1 - line);
        if (first->news->len > NEWS_MAX)
            send_want(node_reader, first, 0);
    }
    send_news(node_reader);
    pthread_mutex_unlock(&node_reader->lock);
}

/* ---- how far its workers have come ---- */

ReaderProgress *node_reader_add_worker(NodeReader *node_reader, uint32_t rank)
{
    WorkerPlace *const place = g_new0(WorkerPlace, 1);

    place->rank = rank;
    reader_progress_init(&place->progress);
    pthread_mutex_lock(&node_reader->lock);
    g_ptr_array_add(node_reader->places, place);
    pthread_mutex_unlock(&node_reader->lock);
    return &place->progress;
}

static void add_place(const NodeReader *node_reader, WorkerPlace *place, GVariantBuilder *list)
{
    const ReaderPosition at = reader_progress_get(&place->progress);
    const int64_t end_us = at.has_ended ? at.told_us : g_get_monotonic_time();
    GVariantBuilder part;

    g_variant_builder_init(&part, STATUS_PART);
    status_add_count(&part, "worker", place->rank);
    if (at.has_block) {
        status_add_count(&part, "epoch", (uint64_t)at.place.epoch + 1);
        status_add_text(&part, "file",
                        input_path(dataset_input(node_reader->dataset, at.place.input)));
        status_add_count(&part, "block", at.place.block);
        status_add_count(&part, "block_row", at.place.n_read);
        status_add_count(&part, "block_rows", at.block_rows);
    }
    status_add_count(&part, "blocks", at.n_blocks);
    status_add_count(&part, "rows", at.n_rows);
    status_add_seconds(&part, "seconds", (double)(end_us - at.begun_us) / G_USEC_PER_SEC);
    status_add_flag(&part, "ended", at.has_ended);
    status_add_flag(&part, "read_all", at.has_read_all);
    g_variant_builder_add_value(list, g_variant_builder_end(&part));
}

/* Of an epoch; UINT64_MAX if a file's end is not known. */
static uint64_t count_blocks(const RubatoDataset *dataset)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < dataset_n_inputs(dataset); i++) {
        const uint64_t n_blocks = dataset_n_blocks(dataset, i);

        if (n_blocks == INPUT_BLOCKS_UNKNOWN || n_blocks > UINT64_MAX - n)
            return UINT64_MAX;
        n += n_blocks;
    }
    return n;
}

GVariant *node_reader_status(NodeReader *node_reader)
{
    const RubatoReaderOptions *const options = &node_reader->options;
    GVariantBuilder part, workers;
    uint64_t n_queued = 0;

    g_variant_builder_init(&part, STATUS_PART);
    g_variant_builder_init(&workers, STATUS_LIST);
    status_add_count(&part, "reader", node_reader->id);
    status_add_text(&part, "split", split_name(options->split));
    status_add_count(&part, "epochs", options->epochs);
    status_add_flag(&part, "shuffled", options->shuffle);
    status_add_count(&part, "files", dataset_n_inputs(node_reader->dataset));
    status_add_count(&part, "blocks", count_blocks(node_reader->dataset));
    pthread_mutex_lock(&node_reader->lock);
    for (uint32_t i = 0; i < node_reader->n_queues; i++)
        n_queued += node_reader->queues[i].ready->len;
    if (options->split == RUBATO_SPLIT_DYNAMIC)
        status_add_count(&part, "queued", n_queued);
    for (guint i = 0; i < node_reader->places->len; i++)
        add_place(node_reader, node_reader->places->pdata[i], &workers);
    pthread_mutex_unlock(&node_reader->lock);
    status_add_built(&part, "workers", &workers);
    return g_variant_builder_end(&part);
}
