/* Batches: rows gathered from blocks, with their keys numbered anew.
 *
 * A block has its keys sorted, and its entries have the numbers of their keys. So a bitmap with a
 * bit for each key of the block gives the keys of some rows in order: one pass sets bits, one reads
 * them, and one replaces the numbers. If a batch has rows of several blocks, the lists of their
 * keys are merged and numbered once more.
 *
 * Runs on the reader's thread. Batches come back from any thread: the pool's lock guards its list.
 *
 * Invariant: between calls no bit of the builder's maps is set. */
#include "io/data/deal/batch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define POOL_MAX 64u

/* If the entries of a block's rows set few bits, a second map says in which words they are. */
#define SPARSE_WORDS_PER_ENTRY 2u

typedef struct Batch Batch;
struct Batch {
    RubatoBatch batch; /* first: users hold it */
    BatchPool *pool;
    Batch *next_free;

    size_t rows_capacity, entries_capacity, keys_capacity;
    size_t *row_start;
    float *label;
    uint32_t *index;
    uint32_t *field;
    float *value;
    RubatoKey *keys;
    size_t n_ones; /* value[0] .. value[n_ones - 1] are known to be 1 */
    GArray *spans; /* of BatchSpan */
};

struct BatchPool {
    _Atomic uint32_t n_refs;
    pthread_mutex_t lock;
    /* guarded by lock */
    Batch *free;
    unsigned n_free;
};

struct BatchBuilder {
    BatchPool *pool;
    Batch *batch; /* that is being made; NULL: none begun */
    bool has_fields;

    uint64_t *words, *summary; /* maps of keys, and of words of it */
    size_t words_capacity;
    uint32_t *rank; /* by key of a block: its place among the keys of the batch's rows */
    size_t rank_capacity;
    GArray *segments; /* of Segment */
    uint32_t *places; /* of the segments' keys among the batch's */
    size_t places_capacity;
    KeyCoder coder;
};

/* What rows of one block added: entries, numbered by the keys that they added. */
typedef struct {
    size_t first_entry, n_entries;
    size_t first_key, n_keys;
} Segment;

/* ---- batches ---- */

static void batch_destroy(Batch *batch)
{
    g_free(batch->row_start);
    g_free(batch->label);
    g_free(batch->index);
    g_free(batch->field);
    g_free(batch->value);
    g_free(batch->keys);
    g_array_free(batch->spans, TRUE);
    g_free(batch);
}

BatchPool *batch_pool_new(void)
{
    BatchPool *pool = g_new0(BatchPool, 1);

    pool->n_refs = 1;
    pthread_mutex_init(&pool->lock, NULL);
    return pool;
}

void batch_pool_unref(BatchPool *pool)
{
    /* acquire and release pair with one another, so that the last thread sees what all others
     * did */
    if (atomic_fetch_sub_explicit(&pool->n_refs, 1, memory_order_acq_rel) > 1)
        return;
    for (Batch *batch = pool->free, *next; batch != NULL; batch = next) {
        next = batch->next_free;
        batch_destroy(batch);
    }
    pthread_mutex_destroy(&pool->lock);
    g_free(pool);
}

static Batch *take_batch(BatchPool *pool)
{
    Batch *batch;

    pthread_mutex_lock(&pool->lock);
    batch = pool->free;
    if (batch != NULL) {
        pool->free = batch->next_free;
        pool->n_free--;
    }
    pthread_mutex_unlock(&pool->lock);
    if (batch == NULL) {
        batch = g_new0(Batch, 1);
        batch->spans = g_array_new(FALSE, FALSE, sizeof(BatchSpan));
        batch->pool = pool;
    }
    atomic_fetch_add_explicit(&pool->n_refs, 1, memory_order_relaxed);
    batch->batch = (RubatoBatch){ .n_rows = 0 };
    g_array_set_size(batch->spans, 0);
    return batch;
}

void rubato_batch_free(RubatoBatch *public)
{
    Batch *batch = (Batch *)public;

    if (batch == NULL)
        return;
    BatchPool *pool = batch->pool;
    pthread_mutex_lock(&pool->lock);
    const bool keep = pool->n_free < POOL_MAX;
    if (keep) {
        batch->next_free = pool->free;
        pool->free = batch;
        pool->n_free++;
    }
    pthread_mutex_unlock(&pool->lock);
    if (!keep)
        batch_destroy(batch);
    batch_pool_unref(pool);
}

const BatchSpan *batch_spans(const RubatoBatch *public, size_t *n)
{
    const Batch *batch = (const Batch *)public;

    *n = batch->spans->len;
    return (const BatchSpan *)(const void *)batch->spans->data;
}

/* ---- memory ---- */

static bool grow(void *array, size_t n, size_t size)
{
    void **at = array;
    void *larger = g_try_realloc_n(*at, n, size);

    if (larger == NULL)
        return false;
    *at = larger;
    return true;
}

static bool want_rows(Batch *batch, size_t n)
{
    if (n < batch->rows_capacity)
        return true;
    n = MAX(n + 1, batch->rows_capacity * 2);
    if (!grow(&batch->row_start, n, sizeof *batch->row_start) ||
        !grow(&batch->label, n, sizeof *batch->label))
        return false;
    batch->rows_capacity = n;
    return true;
}

static bool want_entries(Batch *batch, size_t n)
{
    if (n <= batch->entries_capacity && batch->index != NULL)
        return true;
    n = MAX(n + 1, batch->entries_capacity * 2);
    if (!grow(&batch->index, n, sizeof *batch->index) ||
        !grow(&batch->value, n, sizeof *batch->value) ||
        !grow(&batch->field, n, sizeof *batch->field))
        return false;
    batch->entries_capacity = n;
    return true;
}

static bool want_keys(Batch *batch, size_t n)
{
    if (n <= batch->keys_capacity && batch->keys != NULL)
        return true;
    n = MAX(n + 1, batch->keys_capacity * 2);
    if (!grow(&batch->keys, n, sizeof *batch->keys))
        return false;
    batch->keys_capacity = n;
    return true;
}

static bool want_maps(BatchBuilder *builder, size_t n_keys)
{
    const size_t n_words = n_keys / 64 + 1;

    if (n_keys > builder->rank_capacity) {
        if (!grow(&builder->rank, n_keys, sizeof *builder->rank))
            return false;
        builder->rank_capacity = n_keys;
    }
    if (n_words > builder->words_capacity) {
        const size_t before = builder->words_capacity, n_summary = n_words / 64 + 1;
        const size_t summary_before = before == 0 ? 0 : before / 64 + 1;

        if (!grow(&builder->words, n_words, sizeof *builder->words) ||
            !grow(&builder->summary, n_summary, sizeof *builder->summary))
            return false;
        memset(builder->words + before, 0, (n_words - before) * sizeof *builder->words);
        memset(builder->summary + summary_before, 0,
               (n_summary - summary_before) * sizeof *builder->summary);
        builder->words_capacity = n_words;
    }
    return true;
}

/* ---- gathering ---- */

static void fill_ones(Batch *batch, size_t first, size_t n)
{
    if (first > batch->n_ones || first + n > batch->n_ones) {
        for (size_t i = first; i < first + n; i++)
            batch->value[i] = 1;
        if (first <= batch->n_ones)
            batch->n_ones = first + n;
    }
}

static inline void copy_entries(Batch *batch, const DataBlock *block, size_t to, size_t from,
                                size_t n)
{
    memcpy(batch->index + to, block->index + from, n * sizeof *batch->index);
    if (block->field != NULL)
        memcpy(batch->field + to, block->field + from, n * sizeof *batch->field);
    if (block->value != NULL)
        memcpy(batch->value + to, block->value + from, n * sizeof *batch->value);
}

static size_t count_entries(const DataBlock *block, const uint32_t *order, size_t first, size_t n)
{
    size_t n_entries = 0;

    if (order == NULL)
        return block->row_start[first + n] - block->row_start[first];
    for (size_t i = first; i < first + n; i++)
        n_entries += block->row_start[order[i] + 1] - block->row_start[order[i]];
    return n_entries;
}

static void gather(Batch *batch, const DataBlock *block, const uint32_t *order, size_t first,
                   size_t n)
{
    size_t row = batch->batch.n_rows, at = batch->batch.n_entries;

    if (order == NULL) {
        const size_t from = block->row_start[first];

        memcpy(batch->label + row, block->label + first, n * sizeof *batch->label);
        for (size_t i = 0; i < n; i++)
            batch->row_start[row + i] = at + block->row_start[first + i] - from;
        copy_entries(batch, block, at, from, block->row_start[first + n] - from);
        return;
    }
    for (size_t i = first; i < first + n; i++, row++) {
        const size_t from = block->row_start[order[i]];
        const size_t length = block->row_start[order[i] + 1] - from;

        batch->label[row] = block->label[order[i]];
        batch->row_start[row] = at;
        copy_entries(batch, block, at, from, length);
        at += length;
    }
}

/* ---- numbering ---- */

/* Takes a word's keys off the map and numbers them. */
static inline void take_word(BatchBuilder *builder, const DataBlock *block, size_t word,
                             RubatoKey *keys, size_t *n_keys)
{
    for (uint64_t bits = builder->words[word]; bits != 0; bits &= bits - 1) {
        const size_t key = word * 64 + (size_t)__builtin_ctzll(bits);

        builder->rank[key] = (uint32_t)*n_keys;
        keys[(*n_keys)++] = block->keys[key];
    }
    builder->words[word] = 0;
}

/* Numbers the entries by the keys that they have, ascending; keys has room for as many as there are
 * of the one and of the other. */
static size_t number_entries(BatchBuilder *builder, const DataBlock *block, uint32_t *index,
                             size_t n, RubatoKey *keys)
{
    const size_t n_words = block->head->n_keys / 64 + 1;
    size_t n_keys = 0;

    for (size_t i = 0; i < n; i++)
        builder->words[index[i] / 64] |= UINT64_C(1) << (index[i] % 64);
    if (n_words <= n * SPARSE_WORDS_PER_ENTRY) {
        for (size_t word = 0; word < n_words; word++)
            take_word(builder, block, word, keys, &n_keys);
    } else {
        for (size_t i = 0; i < n; i++)
            builder->summary[index[i] / 4096] |= UINT64_C(1) << (index[i] / 64 % 64);
        for (size_t i = 0; i < n_words / 64 + 1; i++) {
            for (uint64_t bits = builder->summary[i]; bits != 0; bits &= bits - 1)
                take_word(builder, block, i * 64 + (size_t)__builtin_ctzll(bits), keys, &n_keys);
            builder->summary[i] = 0;
        }
    }
    for (size_t i = 0; i < n; i++)
        index[i] = builder->rank[index[i]];
    return n_keys;
}

bool batch_builder_add(BatchBuilder *builder, const DataBlock *block, const uint32_t *order,
                       size_t first, size_t n, uint64_t ticket)
{
    if (builder->batch == NULL)
        builder->batch = take_batch(builder->pool);

    Batch *batch = builder->batch;
    RubatoBatch *public = &batch->batch;
    const size_t n_entries = count_entries(block, order, first, n);
    const size_t most_keys = MIN(n_entries, block->head->n_keys);
    if (public->n_entries + n_entries >= UINT32_MAX || !want_rows(batch, public->n_rows + n) ||
        !want_entries(batch, public->n_entries + n_entries) ||
        !want_keys(batch, public->n_keys + most_keys) || !want_maps(builder, block->head->n_keys))
        return false;

    gather(batch, block, order, first, n);
    if (block->value == NULL)
        fill_ones(batch, public->n_entries, n_entries);
    else
        batch->n_ones = MIN(batch->n_ones, public->n_entries);
    builder->has_fields = block->field != NULL;

    const Segment segment = {
        .first_entry = public->n_entries,
        .n_entries = n_entries,
        .first_key = public->n_keys,
        .n_keys = number_entries(builder, block, batch->index + public->n_entries, n_entries,
                                 batch->keys + public->n_keys),
    };
    g_array_append_val(builder->segments, segment);
    g_array_append_val(batch->spans, ((BatchSpan){ ticket, n }));
    public->n_rows += n;
    public->n_entries += n_entries;
    public->n_keys += segment.n_keys;
    return true;
}

/* Makes one list out of the segments' keys. */
static bool join_segments(BatchBuilder *builder)
{
    Batch *batch = builder->batch;
    RubatoBatch *public = &batch->batch;

    if (public->n_keys > builder->places_capacity) {
        if (!grow(&builder->places, public->n_keys, sizeof *builder->places))
            return false;
        builder->places_capacity = public->n_keys;
    }
    if (!key_coder_code(&builder->coder, batch->keys, public->n_keys, builder->places))
        return false;
    for (guint i = 0; i < builder->segments->len; i++) {
        const Segment *segment = &g_array_index(builder->segments, Segment, i);
        const uint32_t *places = builder->places + segment->first_key;
        uint32_t *index = batch->index + segment->first_entry;

        for (size_t k = 0; k < segment->n_entries; k++)
            index[k] = places[index[k]];
    }
    public->n_keys = builder->coder.n_keys;
    if (public->n_keys > 0)
        memcpy(batch->keys, builder->coder.keys, public->n_keys * sizeof *batch->keys);
    return true;
}

RubatoBatch *batch_builder_finish(BatchBuilder *builder, uint32_t epoch)
{
    Batch *batch = builder->batch;
    RubatoBatch *public = &batch->batch;
    const bool ok = builder->segments->len == 1 || public->n_keys == 0 || join_segments(builder);

    g_array_set_size(builder->segments, 0);
    builder->batch = NULL;
    if (!ok) {
        rubato_batch_free(public);
        return NULL;
    }
    batch->row_start[public->n_rows] = public->n_entries;
    public->keys = batch->keys;
    public->row_start = batch->row_start;
    public->index = batch->index;
    public->field = builder->has_fields ? batch->field : NULL;
    public->value = batch->value;
    public->label = batch->label;
    public->epoch = epoch;
    return public;
}

size_t batch_builder_n_rows(const BatchBuilder *builder)
{
    return builder->batch != NULL ? builder->batch->batch.n_rows : 0;
}

BatchBuilder *batch_builder_new(BatchPool *pool)
{
    BatchBuilder *builder = g_new0(BatchBuilder, 1);

    atomic_fetch_add_explicit(&pool->n_refs, 1, memory_order_relaxed);
    builder->pool = pool;
    builder->segments = g_array_new(FALSE, FALSE, sizeof(Segment));
    key_coder_init(&builder->coder);
    return builder;
}

void batch_builder_free(BatchBuilder *builder)
{
    if (builder->batch != NULL)
        rubato_batch_free(&builder->batch->batch);
    batch_pool_unref(builder->pool);
    g_array_free(builder->segments, TRUE);
    key_coder_clear(&builder->coder);
    g_free(builder->words);
    g_free(builder->summary);
    g_free(builder->rank);
    g_free(builder->places);
    g_free(builder);
}
