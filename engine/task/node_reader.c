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
 * log has the steps whose clocks may not be. When the node's workers have ended, the scheduler is
 * told the log: if the node is lost then, others go on, and nobody repeats what it had done.
 *
 * Messages are sent with no lock held, because on the scheduler's node the answer comes within the
 * call. */
#include "engine/task/node_reader_private.h"

#include <string.h>

#include "engine/task/block_ticket_codec.h"
#include "io/net/monotonic.h"

#define READY_PER_READER 2u

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
    node_reader->are_apart = place->n_apart > 0;
    node_reader->n_queues = MAX(1, place->n_apart);
    node_reader->queues = g_new0(ReaderQueue, node_reader->n_queues);
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

bool node_reader_is_kept(const NodeReader *node_reader)
{
    return node_reader->options.kept_as != NULL;
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

const char *node_reader_split_name(RubatoSplit split)
{
    static const char *const names[] = { [RUBATO_SPLIT_FIXED] = "fixed",
                                         [RUBATO_SPLIT_DYNAMIC] = "dynamic",
                                         [RUBATO_SPLIT_BY_KEY] = "by-key" };

    return names[split];
}

static void add_order(GString *text, const RubatoReaderOptions *options)
{
    g_string_append_printf(text, "%u epochs, %s split, ", options->epochs,
                           node_reader_split_name(options->split));
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

bool node_reader_is_over(const NodeReader *node_reader)
{
    return node_reader->cancelled || node_reader->closed;
}

void node_reader_send_want(NodeReader *node_reader, ReaderQueue *queue, uint32_t wanted)
{
    GString *news = queue->news;

    if (node_reader->closed)
        return;
    queue->news = g_string_new(NULL);
    node_reader->n_sending++;
    pthread_mutex_unlock(&node_reader->lock);
    tell_scheduler(node_reader,
                   &(Control){ .kind = CONTROL_WANT,
                               .want = { .epoch = node_reader->epoch,
                                         .reader = node_reader->id,
                                         .n_blocks = wanted == NODE_READER_WANTS_END ? 0 : wanted,
                                         .events = news->str,
                                         .worker = queue->worker,
                                         .ends = wanted == NODE_READER_WANTS_END } });
    g_string_free(news, TRUE);
    pthread_mutex_lock(&node_reader->lock);
    if (--node_reader->n_sending == 0)
        pthread_cond_broadcast(&node_reader->changed);
}

void node_reader_add_news(NodeReader *node_reader, ReaderQueue *queue, BlockTicketEvent news,
                          const BlockTicket *ticket)
{
    block_ticket_write(queue->news, news, ticket);
    if (queue->news->len > NODE_READER_NEWS_MAX)
        node_reader_send_want(node_reader, queue, 0);
}

void node_reader_ask(NodeReader *node_reader, ReaderQueue *queue)
{
    const uint32_t enough = READY_PER_READER * queue->n_active;

    if (!node_reader->announced || queue->asked || queue->ended ||
        node_reader_is_over(node_reader) || queue->ready->len >= queue->n_active)
        return;
    queue->asked = queue->has_asked = true;
    node_reader_send_want(node_reader, queue, enough - queue->ready->len);
}

void node_reader_empty(NodeReader *node_reader, ReaderQueue *queue)
{
    for (guint i = 0; i < queue->ready->len; i++)
        block_ticket_write(queue->news, BLOCK_TICKET_GIVEN_BACK,
                           &g_array_index(queue->ready, BlockTicket, i));
    g_array_set_size(queue->ready, 0);
    if (queue->news->len > 0)
        node_reader_send_want(node_reader, queue, 0);
}

ReaderQueue *node_reader_find_queue(const NodeReader *node_reader, uint32_t worker)
{
    for (uint32_t i = 0; i < node_reader->n_queues; i++)
        if (!node_reader->are_apart || node_reader->queues[i].worker == worker)
            return &node_reader->queues[i];
    return NULL;
}

void node_reader_receive(NodeReader *node_reader, const ControlBlocks *blocks)
{
    g_autoptr(GArray) tickets = g_array_new(FALSE, FALSE, sizeof(BlockTicket));
    ReaderQueue *const queue = node_reader_find_queue(node_reader, blocks->worker);
    BlockTicketEvent news;
    BlockTicket ticket;
    uint64_t clock;

    if (queue == NULL) {
        g_warning("the scheduler sent blocks of a worker of another node; dropped");
        return;
    }
    for (const char *at = blocks->tickets; *at != '\0';) {
        if (!block_ticket_read(&at, &news, &clock, &ticket) || news != BLOCK_TICKET_DEALT ||
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
        node_reader_empty(node_reader, queue);
    pthread_cond_broadcast(&node_reader->changed);
    pthread_mutex_unlock(&node_reader->lock);
}

/* ---- its workers ---- */

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
