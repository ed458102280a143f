/* Feeds: a queue of blocks for the node's readers, filled by the scheduler.
 *
 * The first reader that finds the queue short asks for more, for all of them; one question is under way
 * at a time, and what became of blocks dealt before goes with it. Who finds the queue empty waits. A
 * block that a worker leaves unfinished goes to the front of the queue while another worker of this
 * node still reads, else back to the scheduler. When the scheduler has nothing left, each reader
 * ends once the queue is empty; it does not wait for blocks that others are reading, which they might
 * leave: they in turn may be waiting for its worker's clock.
 *
 * Messages are sent with no lock held: on the scheduler's node the answer comes back within the call. */
#include "engine/task/feed.h"

#include <string.h>

#include "engine/task/ticket_text.h"
#include "io/net/monotonic.h"

#define NEWS_MAX (CONTROL_MAX_DETAIL / 2) /* bytes; then they are sent without a question */
#define READY_PER_READER 2u

struct Feed {
    _Atomic uint32_t n_refs;

    /* immutable */
    RubatoEngine *engine;
    char *task;
    uint32_t epoch;
    uint32_t id;
    uint32_t stall_ms;
    RubatoDataset *dataset;
    RubatoReaderOptions options;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock */
    GArray *ready; /* of BlockTicket, the next one last */
    GString *news; /* what became of others */
    bool announced;
    bool asked;        /* a question is under way */
    bool ended;        /* no more will come */
    bool cancelled;    /* the task */
    bool closed;       /* the task is over */
    uint32_t n_active; /* readers that may take more */
};

/* A worker's end of it. */
typedef struct {
    BlockSource source;
    Feed *feed;
    bool ended; /* guarded by the feed's lock */
} FeedReader;

/* ---- life ---- */

Feed *feed_new(const FeedPlace *place, RubatoDataset *dataset, const RubatoReaderOptions *options)
{
    Feed *feed = g_new0(Feed, 1);

    feed->n_refs = 1;
    feed->engine = place->engine;
    feed->task = g_strdup(place->task);
    feed->epoch = place->epoch;
    feed->id = place->id;
    feed->stall_ms = place->engine->stall_ms;
    feed->dataset = dataset_ref(dataset);
    feed->options = *options;
    feed->ready = g_array_new(FALSE, FALSE, sizeof(BlockTicket));
    feed->news = g_string_new(NULL);
    pthread_mutex_init(&feed->lock, NULL);
    monotonic_cond_init(&feed->changed);
    return feed;
}

void feed_unref(Feed *feed)
{
    /* acquire and release: with one another, so that the last sees what all others did */
    if (atomic_fetch_sub_explicit(&feed->n_refs, 1, memory_order_acq_rel) > 1)
        return;
    g_array_free(feed->ready, TRUE);
    g_string_free(feed->news, TRUE);
    pthread_cond_destroy(&feed->changed);
    pthread_mutex_destroy(&feed->lock);
    rubato_dataset_free(feed->dataset);
    g_free(feed->task);
    g_free(feed);
}

void feed_close(Feed *feed)
{
    pthread_mutex_lock(&feed->lock);
    feed->closed = true;
    pthread_mutex_unlock(&feed->lock);
}

void feed_cancel(Feed *feed)
{
    pthread_mutex_lock(&feed->lock);
    feed->cancelled = true;
    pthread_cond_broadcast(&feed->changed);
    pthread_mutex_unlock(&feed->lock);
}

/* ---- what it is ---- */

static const char *split_name(RubatoSplit split)
{
    return split == RUBATO_SPLIT_DYNAMIC ? "dynamic" : "fixed";
}

static void add_order(GString *text, const RubatoReaderOptions *options)
{
    g_string_append_printf(text, "%u epochs, %s split, ", options->epochs,
                           split_name(options->split));
    if (options->shuffle)
        g_string_append_printf(text, "shuffled by seed %" G_GUINT64_FORMAT, options->seed);
    else
        g_string_append(text, "not shuffled");
}

/* What all nodes must agree on of the files of a fixed split: each has all of them, wherever they lie
 * there. */
static char *digest_inputs(const Feed *feed)
{
    g_autoptr(GString) text = g_string_new(NULL);

    for (uint32_t i = 0; i < dataset_n_inputs(feed->dataset); i++) {
        const Input *input = dataset_input(feed->dataset, i);

        g_string_append_printf(text, "%" G_GUINT64_FORMAT " %d\n", input_size(input),
                               input_is_packed(input));
    }
    return g_compute_checksum_for_string(G_CHECKSUM_SHA256, text->str, (gssize)text->len);
}

static void tell_inputs(Feed *feed, uint32_t first, const GString *lines)
{
    if (lines->len > 0)
        engine_tell_scheduler(feed->engine, &(Control){ .kind = CONTROL_INPUTS,
                                                        .epoch = feed->epoch,
                                                        .id = feed->id,
                                                        .number = first,
                                                        .detail = lines->str });
}

/* All inputs, in as many messages as it takes. */
static void announce_inputs(Feed *feed)
{
    g_autoptr(GString) lines = g_string_new(NULL);
    uint32_t first = 0;

    for (uint32_t i = 0; i < dataset_n_inputs(feed->dataset); i++) {
        const Input *input = dataset_input(feed->dataset, i);
        g_autofree char *name = g_strescape(input_path(input), NULL);
        g_autofree char *line = g_strdup_printf(
            "%" G_GUINT64_FORMAT " %" G_GUINT64_FORMAT " %d %s\n", input_size(input),
            dataset_n_blocks(feed->dataset, i), dataset_in_any_order(feed->dataset, i), name);

        if (lines->len + strlen(line) > CONTROL_MAX_DETAIL) {
            tell_inputs(feed, first, lines);
            g_string_truncate(lines, 0);
            first = i;
        }
        g_string_append(lines, line);
    }
    tell_inputs(feed, first, lines);
}

void feed_announce(Feed *feed)
{
    const bool dynamic = feed->options.split == RUBATO_SPLIT_DYNAMIC;
    g_autofree char *digest = dynamic ? NULL : digest_inputs(feed);
    g_autoptr(GString) text = g_string_new(NULL);

    add_order(text, &feed->options);
    engine_tell_scheduler(feed->engine,
                          &(Control){ .kind = CONTROL_READER,
                                      .epoch = feed->epoch,
                                      .id = feed->id,
                                      .op = feed->options.epochs,
                                      .what = (dynamic ? CONTROL_SPLIT_DYNAMIC : 0u) |
                                              (feed->options.shuffle ? CONTROL_SPLIT_SHUFFLED : 0u),
                                      .round = feed->options.seed,
                                      .text = text->str,
                                      .digest = digest });
    if (dynamic)
        announce_inputs(feed);
    pthread_mutex_lock(&feed->lock);
    feed->announced = true;
    pthread_cond_broadcast(&feed->changed);
    pthread_mutex_unlock(&feed->lock);
}

bool feed_check(const Feed *feed, const RubatoDataset *dataset, const RubatoReaderOptions *options,
                GError **error)
{
    g_autoptr(GString) own = g_string_new(NULL);
    g_autoptr(GString) first = g_string_new(NULL);

    add_order(own, options);
    add_order(first, &feed->options);
    if (dataset == feed->dataset && strcmp(own->str, first->str) == 0)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MISMATCH,
                "task %s: reader %u is opened with %s, another worker's with %s%s; open the same "
                "ones in the same order",
                feed->task, feed->id, own->str, first->str,
                dataset == feed->dataset ? "" : " of another dataset");
    return false;
}

/* ---- asking ---- */

static bool is_over(const Feed *feed)
{
    return feed->cancelled || feed->closed;
}

/* Sends a question, or only news where wanted is 0. The lock is held, but not while sending. */
static void send_want(Feed *feed, uint32_t wanted)
{
    GString *news = feed->news;

    if (feed->closed)
        return;
    feed->news = g_string_new(NULL);
    pthread_mutex_unlock(&feed->lock);
    engine_tell_scheduler(feed->engine, &(Control){ .kind = CONTROL_WANT,
                                                    .epoch = feed->epoch,
                                                    .id = feed->id,
                                                    .number = wanted,
                                                    .detail = news->str });
    g_string_free(news, TRUE);
    pthread_mutex_lock(&feed->lock);
}

static void add_news(Feed *feed, TicketNews news, const BlockTicket *ticket)
{
    ticket_text_add(feed->news, news, ticket);
    if (feed->news->len > NEWS_MAX)
        send_want(feed, 0);
}

/* Asks when the queue is short. */
static void ask(Feed *feed)
{
    const uint32_t enough = READY_PER_READER * feed->n_active;

    if (!feed->announced || feed->asked || feed->ended || is_over(feed) ||
        feed->ready->len >= feed->n_active)
        return;
    feed->asked = true;
    send_want(feed, enough - feed->ready->len);
}

/* What nobody here will read any more goes back. The lock is held. */
static void empty(Feed *feed)
{
    for (guint i = 0; i < feed->ready->len; i++)
        ticket_text_add(feed->news, TICKET_GIVEN_BACK, &g_array_index(feed->ready, BlockTicket, i));
    g_array_set_size(feed->ready, 0);
    if (feed->news->len > 0)
        send_want(feed, 0);
}

void feed_receive(Feed *feed, const Control *blocks)
{
    g_autoptr(GArray) tickets = g_array_new(FALSE, FALSE, sizeof(BlockTicket));
    TicketNews news;
    BlockTicket ticket;

    for (const char *at = blocks->detail; *at != '\0';) {
        if (!ticket_text_read(&at, &news, &ticket) || news != TICKET_DEALT ||
            ticket.input >= dataset_n_inputs(feed->dataset)) {
            g_warning("the scheduler sent blocks that make no sense; dropped");
            break;
        }
        g_array_prepend_val(tickets, ticket);
    }
    pthread_mutex_lock(&feed->lock);
    g_array_prepend_vals(feed->ready, tickets->data, tickets->len);
    feed->asked = false;
    feed->ended |= blocks->what != 0;
    if (feed->n_active == 0)
        empty(feed);
    pthread_cond_broadcast(&feed->changed);
    pthread_mutex_unlock(&feed->lock);
}

/* ---- a worker's end ---- */

/* Waits; says so in the log when it takes long. */
static void wait_for_blocks(Feed *feed, uint32_t *waited_ms)
{
    const int64_t before_ms = monotonic_ms();

    monotonic_wait(&feed->changed, &feed->lock, before_ms + feed->stall_ms);
    if (monotonic_ms() - before_ms < feed->stall_ms)
        return;
    *waited_ms += feed->stall_ms;
    g_message("a reader of task %s waits for the scheduler to deal blocks (for %.1f s so far)",
              feed->task, (double)*waited_ms / 1000);
}

static bool take(BlockSource *source, BlockTicket *ticket, GError **error)
{
    FeedReader *reader = (FeedReader *)source;
    Feed *feed = reader->feed;
    uint32_t waited_ms = 0;
    bool taken;

    pthread_mutex_lock(&feed->lock);
    for (ask(feed); feed->ready->len == 0 && !feed->ended && !is_over(feed); ask(feed))
        if (feed->asked || !feed->announced)
            wait_for_blocks(feed, &waited_ms);
    taken = feed->ready->len > 0 && !is_over(feed);
    if (taken) {
        *ticket = g_array_index(feed->ready, BlockTicket, feed->ready->len - 1);
        g_array_set_size(feed->ready, feed->ready->len - 1);
    } else {
        reader->ended = true;
        feed->n_active--;
        if (is_over(feed))
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CANCELLED, "task %s was cancelled",
                        feed->task);
    }
    pthread_mutex_unlock(&feed->lock);
    return taken;
}

static void absent(BlockSource *source, const BlockTicket *ticket)
{
    Feed *feed = ((FeedReader *)source)->feed;

    pthread_mutex_lock(&feed->lock);
    add_news(feed, TICKET_ABSENT, ticket);
    pthread_mutex_unlock(&feed->lock);
}

static void finish(BlockSource *source, const BlockTicket *ticket)
{
    Feed *feed = ((FeedReader *)source)->feed;

    pthread_mutex_lock(&feed->lock);
    add_news(feed, TICKET_FINISHED, ticket);
    pthread_mutex_unlock(&feed->lock);
}

/* The worker takes no more. The lock is held. */
static void retire(FeedReader *reader)
{
    if (!reader->ended)
        reader->feed->n_active--;
    reader->ended = true;
}

static void give_back(BlockSource *source, const BlockTicket *ticket)
{
    FeedReader *reader = (FeedReader *)source;
    Feed *feed = reader->feed;

    pthread_mutex_lock(&feed->lock);
    retire(reader);
    if (feed->n_active > 0) {
        g_array_append_val(feed->ready, *ticket);
        pthread_cond_signal(&feed->changed);
    } else {
        add_news(feed, TICKET_GIVEN_BACK, ticket);
    }
    pthread_mutex_unlock(&feed->lock);
}

static void destroy(BlockSource *source)
{
    FeedReader *reader = (FeedReader *)source;
    Feed *feed = reader->feed;

    pthread_mutex_lock(&feed->lock);
    retire(reader);
    if (feed->n_active == 0)
        empty(feed);
    pthread_mutex_unlock(&feed->lock);
    feed_unref(feed);
    g_free(reader);
}

static const BlockSourceOps feed_ops = {
    .take = take, .absent = absent, .finish = finish, .give_back = give_back, .destroy = destroy
};

BlockSource *feed_open(Feed *feed)
{
    FeedReader *reader = g_new0(FeedReader, 1);

    reader->source.ops = &feed_ops;
    reader->feed = feed;
    atomic_fetch_add_explicit(&feed->n_refs, 1, memory_order_relaxed);
    pthread_mutex_lock(&feed->lock);
    feed->n_active++;
    feed->ended = false; /* what came back since is for this one */
    pthread_mutex_unlock(&feed->lock);
    return &reader->source;
}
