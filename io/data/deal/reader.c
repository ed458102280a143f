/* Readers: a thread takes blocks, reads them and makes batches; the worker takes the batches.
 *
 * Between the two is a queue of at most options.ahead batches, guarded by the lock. The thread
 * waits while it is full, the worker while it is empty. An error ends the queue: the worker gets
 * the batches made before it, then the error.
 *
 * A ticket is open from the moment when the thread takes it until its last row is done: the worker
 * has got it, and has said that it is done if the reader is to be kept in snapshots. When the
 * reader is freed, open tickets are given back with the number of rows that are done. A reader that
 * its worker has left open is stopped when the worker returns: its source and its cancellation
 * belong to the task. */
#include "io/data/deal/reader.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "io/data/deal/batch.h"

#define BATCH_ROWS_DEFAULT 256u
#define BATCH_ROWS_MAX (UINT32_C(1) << 24)
#define AHEAD_DEFAULT 4u
#define AHEAD_MAX 4096u
#define KEPT_AS_MAX 255u /* bytes */

/* A ticket whose rows are not all done. */
typedef struct {
    uint64_t number;
    BlockTicket ticket; /* n_read: the rows that are done */
    uint64_t n_got;     /* the rows that the worker has got; those that others had, too */
    uint64_t n_rows;    /* of the block, those that this reader reads */
} OpenTicket;

/* The block from which the reader's thread takes rows. */
typedef struct {
    DataBlock *block; /* NULL: none */
    BlockTicket ticket;
    uint64_t number;
    size_t n_rows; /* of them, those that this reader reads */
    size_t next;   /* row */
    const uint32_t *order;
} Present;

struct RubatoReader {
    /* immutable */
    RubatoDataset *dataset;
    RubatoReaderOptions options;
    bool awaits_word;              /* the worker says which rows are done */
    BlockSource *source;           /* NULL: it was stopped */
    const _Atomic bool *cancelled; /* NULL: nobody cancels it */
    pthread_t thread;

    /* reader's thread only */
    BlockScratch scratch;
    BatchPool *pool;
    BatchBuilder *builder;
    uint32_t *order;
    size_t order_capacity;
    uint64_t n_tickets;

    /* worker only */
    bool failed;
    ReaderProgress *progress; /* where it tells `position`; NULL: nowhere */
    ReaderPosition position;
    RubatoReader **list; /* of the worker's open readers; NULL: in none */
    RubatoReader *next;  /* there */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock */
    GQueue batches;
    GQueue open; /* of OpenTicket, in the order of their rows */
    bool stop;   /* the worker wants no more */
    bool ended;  /* the thread makes no more */
    GError *error;
};

/* ---- the reader's thread ---- */

static bool out_of_memory(GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                "no memory for the batches that are read ahead; ask for smaller or fewer ones");
    return false;
}

static bool order_rows(RubatoReader *reader, Present *present, GError **error)
{
    const size_t n = present->block->head->n_rows;

    if (n > reader->order_capacity) {
        uint32_t *larger = g_try_realloc_n(reader->order, n, sizeof *larger);

        if (larger == NULL)
            return out_of_memory(error);
        reader->order = larger;
        reader->order_capacity = n;
    }
    present->order =
        block_row_order(reader->dataset, &reader->options, &present->ticket, n, reader->order);
    present->n_rows = present->ticket.end > 0 ? (size_t)MIN(n, present->ticket.end) : n;
    if (reader->source->ops->choose == NULL)
        return true;
    for (size_t i = 0; present->order == NULL && i < n; i++)
        reader->order[i] = (uint32_t)i;
    present->order = reader->order;
    present->n_rows = reader->source->ops->choose(reader->source, present->block, reader->order);
    return true;
}

static void open_ticket(RubatoReader *reader, const Present *present)
{
    OpenTicket *open = g_new(OpenTicket, 1);

    *open = (OpenTicket){ .number = present->number,
                          .ticket = present->ticket,
                          .n_got = present->ticket.n_read,
                          .n_rows = present->n_rows };
    pthread_mutex_lock(&reader->lock);
    g_queue_push_tail(&reader->open, open);
    pthread_mutex_unlock(&reader->lock);
}

/* Goes on to the next block that has rows. *there is false if no block is left. */
static bool next_block(RubatoReader *reader, Present *present, bool *there, GError **error)
{
    /* one that chooses rows has others beside it, which read the same blocks */
    const DatasetKeep keep = reader->options.epochs > 1 || reader->source->ops->choose != NULL
                                 ? DATASET_KEEP_BLOCK
                                 : DATASET_KEEP_NOTHING;
    GError *fault = NULL;

    for (;;) {
        *there = reader->source->ops->take(reader->source, &present->ticket, &fault);
        if (!*there) {
            if (fault != NULL)
                g_propagate_error(error, fault);
            return fault == NULL;
        }
        if (!dataset_block(reader->dataset, present->ticket.input, present->ticket.block, keep,
                           &reader->scratch, &present->block, error))
            return false;
        if (present->block == NULL) {
            reader->source->ops->absent(reader->source, &present->ticket);
            continue;
        }
        if (!order_rows(reader, present, error))
            return false;
        if (present->ticket.n_read < present->n_rows)
            break;
        if (reader->source->ops->finish != NULL)
            reader->source->ops->finish(reader->source, &present->ticket);
        g_clear_pointer(&present->block, data_block_unref);
    }
    present->next = (size_t)present->ticket.n_read;
    present->number = reader->n_tickets++;
    open_ticket(reader, present);
    return true;
}

/* Waits for room and puts the batch into the queue. False if the reader is being freed. */
static bool deliver(RubatoReader *reader, RubatoBatch *batch)
{
    bool stop;

    pthread_mutex_lock(&reader->lock);
    while (!reader->stop && reader->batches.length >= reader->options.ahead)
        pthread_cond_wait(&reader->changed, &reader->lock);
    stop = reader->stop;
    if (!stop) {
        g_queue_push_tail(&reader->batches, batch);
        pthread_cond_signal(&reader->changed);
    }
    pthread_mutex_unlock(&reader->lock);
    if (stop)
        rubato_batch_free(batch);
    return !stop;
}

static bool finish_batch(RubatoReader *reader, uint32_t epoch, bool *wanted, GError **error)
{
    RubatoBatch *batch;

    if (batch_builder_n_rows(reader->builder) == 0)
        return true;
    batch = batch_builder_finish(reader->builder, epoch);
    if (batch == NULL)
        return out_of_memory(error);
    *wanted = deliver(reader, batch);
    return true;
}

static bool make_batches(RubatoReader *reader, Present *present, GError **error)
{
    bool there = true, wanted = true;
    uint32_t epoch = 0;

    while (wanted) {
        if (present->block == NULL) {
            if (!next_block(reader, present, &there, error))
                return false;
            /* no batch spans two epochs */
            if ((!there || present->ticket.epoch != epoch) &&
                !finish_batch(reader, epoch, &wanted, error))
                return false;
            if (!there)
                break;
            epoch = present->ticket.epoch;
        }
        const size_t n_rows = present->n_rows;
        const size_t room = reader->options.batch_rows - batch_builder_n_rows(reader->builder);
        const size_t n = MIN(room, n_rows - present->next);
        if (!batch_builder_add(reader->builder, present->block, present->order, present->next, n,
                               present->number))
            return out_of_memory(error);
        present->next += n;
        if (present->next == n_rows)
            g_clear_pointer(&present->block, data_block_unref);
        if (n == room && !finish_batch(reader, epoch, &wanted, error))
            return false;
    }
    return true;
}

static void *read_ahead(void *user)
{
    RubatoReader *reader = user;
    Present present = { .block = NULL };
    GError *error = NULL;

    (void)make_batches(reader, &present, &error); /* what fails is in error */
    data_block_unref(present.block);
    pthread_mutex_lock(&reader->lock);
    reader->error = error;
    reader->ended = true;
    pthread_cond_signal(&reader->changed);
    pthread_mutex_unlock(&reader->lock);
    return NULL;
}

/* ---- the worker ---- */

/* Rows of the oldest open ticket are done. The lock is held. */
static void count_done(RubatoReader *reader, OpenTicket *open, uint64_t n)
{
    open->ticket.n_read += n;
    if (open->ticket.n_read < open->n_rows)
        return;
    g_queue_pop_head(&reader->open);
    if (reader->source->ops->finish != NULL)
        reader->source->ops->finish(reader->source, &open->ticket);
    g_free(open);
}

/* The oldest ticket of which the worker has not got all rows. */
static OpenTicket *find_getting(const RubatoReader *reader)
{
    for (GList *link = reader->open.head; link != NULL; link = link->next) {
        OpenTicket *const open = link->data;

        if (open->n_got < open->n_rows)
            return open;
    }
    return NULL;
}

/* The worker has got a batch. The lock is held. */
static void count_read(RubatoReader *reader, const RubatoBatch *batch)
{
    ReaderPosition *const position = &reader->position;
    size_t n_spans;
    const BatchSpan *spans = batch_spans(batch, &n_spans);

    position->n_rows += batch->n_rows;
    for (size_t i = 0; i < n_spans; i++) {
        OpenTicket *const open = find_getting(reader);

        open->n_got += spans[i].n_rows;
        position->has_block = true;
        position->place = open->ticket;
        position->place.n_read = open->n_got;
        position->block_rows = open->n_rows;
        position->n_blocks += open->n_got == open->n_rows;
        if (!reader->awaits_word)
            count_done(reader, open, spans[i].n_rows);
    }
}

/* Rows that the worker has got, and that are not done. The lock is held. */
static uint64_t count_undone(const RubatoReader *reader)
{
    uint64_t n = 0;

    for (const GList *link = reader->open.head; link != NULL; link = link->next) {
        const OpenTicket *const open = link->data;

        n += open->n_got - open->ticket.n_read;
    }
    return n;
}

bool reader_finish_rows(RubatoReader *reader, uint64_t n_rows, GArray *done, GError **error)
{
    uint64_t n_undone;

    pthread_mutex_lock(&reader->lock);
    n_undone = count_undone(reader);
    for (uint64_t left = n_rows <= n_undone ? n_rows : 0; left > 0;) {
        OpenTicket *const open = g_queue_peek_head(&reader->open);
        const uint64_t n = MIN(left, open->n_got - open->ticket.n_read);
        const ReaderRows rows = { .ticket = open->ticket,
                                  .end = open->ticket.n_read + n,
                                  .is_last = open->ticket.n_read + n == open->n_rows };

        g_array_append_val(done, rows);
        count_done(reader, open, n);
        left -= n;
    }
    pthread_mutex_unlock(&reader->lock);
    if (n_rows <= n_undone)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "%" G_GUINT64_FORMAT
                " rows of a reader are said to be done, and its worker has got "
                "%" G_GUINT64_FORMAT " that are not done yet",
                n_rows, n_undone);
    return false;
}

static void tell_position(RubatoReader *reader)
{
    if (reader->progress == NULL)
        return;
    reader->position.told_us = g_get_monotonic_time();
    reader_progress_tell(reader->progress, &reader->position);
}

/* Once: what the worker had read of goes away. */
static void tell_end(RubatoReader *reader, bool has_read_all)
{
    if (!reader->position.has_ended) {
        reader->position.has_ended = true;
        reader->position.has_read_all = has_read_all;
        tell_position(reader);
    }
    reader->progress = NULL;
}

/* Whether the task has been cancelled: reading then ends, as every other call does. */
static bool is_cancelled(const RubatoReader *reader)
{
    /* seq_cst: as task_run_cancel sets it */
    return reader->cancelled != NULL &&
           atomic_load_explicit(reader->cancelled, memory_order_seq_cst);
}

bool rubato_reader_next(RubatoReader *reader, RubatoBatch **batch, GError **error)
{
    g_return_val_if_fail(reader != NULL && batch != NULL, false);
    bool has_failed = false;

    g_clear_pointer(batch, rubato_batch_free);
    if (is_cancelled(reader)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CANCELLED, "the task was cancelled");
        reader->failed = true;
        return false;
    }
    pthread_mutex_lock(&reader->lock);
    while (reader->batches.length == 0 && !reader->ended)
        pthread_cond_wait(&reader->changed, &reader->lock);
    *batch = g_queue_pop_head(&reader->batches);
    if (*batch != NULL) {
        count_read(reader, *batch);
        pthread_cond_signal(&reader->changed);
    } else if (reader->error != NULL) {
        reader->failed = has_failed = true;
        if (error != NULL)
            *error = g_error_copy(reader->error);
    }
    pthread_mutex_unlock(&reader->lock);
    if (*batch != NULL)
        tell_position(reader);
    else
        tell_end(reader, /* has_read_all= */ !has_failed);
    return *batch != NULL;
}

bool rubato_reader_failed(const RubatoReader *reader)
{
    g_return_val_if_fail(reader != NULL, false);
    return reader->failed;
}

/* ---- life ---- */

static bool check_kept(const RubatoReaderOptions *options, GError **error)
{
    const char *const name = options->kept_as;

    bool is_name = *name != '\0' && strlen(name) <= KEPT_AS_MAX && g_utf8_validate(name, -1, NULL);

    for (const char *at = name; *at != '\0'; at++)
        is_name = is_name && (unsigned char)*at >= ' ';
    if (options->split == RUBATO_SPLIT_DYNAMIC && is_name)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                options->split != RUBATO_SPLIT_DYNAMIC
                    ? "a reader that is kept as %.60s needs RUBATO_SPLIT_DYNAMIC"
                    : "a reader cannot be kept as \"%.60s\": give 1 to 255 bytes of "
                      "UTF-8 on one line",
                name);
    return false;
}

bool reader_options_fill(const RubatoReaderOptions *options, RubatoReaderOptions *filled,
                         GError **error)
{
    if (options->batch_rows > BATCH_ROWS_MAX || options->ahead > AHEAD_MAX) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    options->ahead > AHEAD_MAX
                        ? "%u batches ahead are too many; give 4096 at most"
                        : "batches of %u rows are too large; give 16777216 at most",
                    options->ahead > AHEAD_MAX ? options->ahead : options->batch_rows);
        return false;
    }
    if ((unsigned)options->split > RUBATO_SPLIT_BY_KEY) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "there is no split %d; give RUBATO_SPLIT_FIXED, _DYNAMIC or _BY_KEY",
                    (int)options->split);
        return false;
    }
    if (options->key_place > 0 && options->split != RUBATO_SPLIT_BY_KEY) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "key_place %u needs RUBATO_SPLIT_BY_KEY", options->key_place);
        return false;
    }
    if (options->kept_as != NULL && !check_kept(options, error))
        return false;
    *filled = *options;
    filled->epochs = MAX(options->epochs, 1);
    if (options->batch_rows == 0)
        filled->batch_rows = BATCH_ROWS_DEFAULT;
    if (options->ahead == 0)
        filled->ahead = AHEAD_DEFAULT;
    return true;
}

static void reader_destroy(RubatoReader *reader)
{
    if (reader->source != NULL)
        reader->source->ops->destroy(reader->source);
    batch_builder_free(reader->builder);
    batch_pool_unref(reader->pool);
    block_scratch_clear(&reader->scratch);
    pthread_cond_destroy(&reader->changed);
    pthread_mutex_destroy(&reader->lock);
    rubato_dataset_free(reader->dataset);
    g_clear_error(&reader->error);
    g_free(reader->order);
    g_free(reader);
}

RubatoReader *reader_new(RubatoDataset *dataset, const RubatoReaderOptions *options,
                         BlockSource *source, const _Atomic bool *cancelled, GError **error)
{
    RubatoReader *reader = g_new0(RubatoReader, 1);

    reader->dataset = dataset_ref(dataset);
    reader->options = *options;
    reader->awaits_word = options->kept_as != NULL;
    reader->options.kept_as = NULL; /* the caller's */
    reader->source = source;
    reader->cancelled = cancelled;
    block_scratch_init(&reader->scratch);
    reader->pool = batch_pool_new();
    reader->builder = batch_builder_new(reader->pool);
    pthread_mutex_init(&reader->lock, NULL);
    pthread_cond_init(&reader->changed, NULL);
    g_queue_init(&reader->batches);
    g_queue_init(&reader->open);
    if (pthread_create(&reader->thread, NULL, read_ahead, reader) != 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "the thread that reads ahead could not be started");
        reader_destroy(reader);
        return NULL;
    }
    pthread_setname_np(reader->thread, "reader");
    return reader;
}

RubatoReader *rubato_dataset_open_reader(RubatoDataset *dataset, const RubatoReaderOptions *options,
                                         GError **error)
{
    RubatoReaderOptions filled;

    g_return_val_if_fail(dataset != NULL && options != NULL, NULL);
    if (!reader_options_fill(options, &filled, error))
        return NULL;
    if (filled.kept_as != NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "kept_as %.60s: no snapshot keeps a reader outside tasks", filled.kept_as);
        return NULL;
    }
    return reader_new(dataset, &filled, fixed_split_new(dataset, &filled, 0, 1),
                      /* cancelled= */ NULL, error);
}

/* Ends the thread, and gives back what the worker has not got. */
static void stop(RubatoReader *reader)
{
    OpenTicket *open;
    RubatoBatch *batch;

    pthread_mutex_lock(&reader->lock);
    reader->stop = true;
    pthread_cond_signal(&reader->changed);
    pthread_mutex_unlock(&reader->lock);
    pthread_join(reader->thread, NULL);
    while ((batch = g_queue_pop_head(&reader->batches)) != NULL)
        rubato_batch_free(batch);
    while ((open = g_queue_pop_head(&reader->open)) != NULL) {
        if (reader->source->ops->give_back != NULL)
            reader->source->ops->give_back(reader->source, &open->ticket);
        g_free(open);
    }
}

void reader_tell_progress(RubatoReader *reader, ReaderProgress *progress)
{
    reader->position = reader_progress_get(progress);
    reader->progress = progress;
}

BlockSource *reader_source(const RubatoReader *reader)
{
    return reader->source;
}

bool reader_awaits_word(const RubatoReader *reader)
{
    return reader->awaits_word;
}

bool reader_is_in(const RubatoReader *reader, RubatoReader *const *list)
{
    return reader->list == list;
}

void reader_enter(RubatoReader *reader, RubatoReader **list)
{
    reader->list = list;
    reader->next = *list;
    *list = reader;
}

static void leave_list(RubatoReader *reader)
{
    RubatoReader **at = reader->list;

    if (at == NULL)
        return;
    while (*at != reader)
        at = &(*at)->next;
    *at = reader->next;
    reader->list = NULL;
}

unsigned readers_finish(RubatoReader **list)
{
    unsigned n = 0;

    for (; *list != NULL; n++) {
        RubatoReader *const reader = *list;

        leave_list(reader);
        tell_end(reader, /* has_read_all= */ false);
        stop(reader);
        reader->source->ops->destroy(reader->source);
        reader->source = NULL;
        reader->cancelled = NULL;
        g_clear_error(&reader->error);
        g_set_error(&reader->error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "the worker of this reader has returned; read before");
    }
    return n;
}

void rubato_reader_free(RubatoReader *reader)
{
    if (reader == NULL)
        return;
    leave_list(reader);
    if (reader->source != NULL) {
        tell_end(reader, /* has_read_all= */ false);
        stop(reader);
    }
    reader_destroy(reader);
}
