/* See the header.
 *
 * A block of rows takes little memory: call_trace_most_rows bounds it. */
#include "models/handlers/call_trace.h"

#include "io/history/history.h"

/* Rows that are copied at once take about this much memory. */
#define COPIED_BYTES ((size_t)256 << 10)

/* A row that was handed out. */
typedef struct {
    RubatoKey key;
    const void *row; /* where it lies; NULL: it was not handed out, but may change */
} Traced;

struct CallTrace {
    RubatoShard *shard;
    HistoryStream *stream;
    HistoryApplied applied;
    uint32_t n_records;

    GArray *rows;           /* of Traced; none: no block is handed out */
    GHashTable *seen;       /* where those lie, if one may be handed out more than once; or NULL */
    unsigned char *before;  /* their values */
    size_t n_before;        /* rows for which there is room */
    GArray *keys;           /* of RubatoKey: of the rows that have changed */
    GByteArray *changed;    /* before and after, by key */
    unsigned char *present; /* one row */
};

CallTrace *call_trace_begin(const RubatoShard *shard, const HandlerCall *call)
{
    const ShardPlace *const place = &shard->place;
    const HandlerCaller *const by = &call->by;
    CallTrace *trace;

    if (G_LIKELY(place->find_stream == NULL) || call->number == 0 ||
        call->ops->access != RUBATO_ACCESS_WRITES || shard_lacks_ragged_rows(shard))
        return NULL;
    trace = g_new0(CallTrace, 1);
    trace->shard = (RubatoShard *)(uintptr_t)shard;
    trace->stream = place->find_stream(place->server, place->table, shard->spec);
    trace->applied =
        (HistoryApplied){ .epoch = by->epoch,
                          .rank = by->epoch == 0 ? place->node_ids[by->rank] : by->rank,
                          .clock = by->clock,
                          .number = call->number,
                          .part = place->part };
    trace->rows = g_array_new(FALSE, FALSE, sizeof(Traced));
    trace->keys = g_array_new(FALSE, FALSE, sizeof(RubatoKey));
    trace->changed = g_byte_array_new();
    trace->present = g_malloc(shard->row_bytes);
    return trace;
}

size_t call_trace_most_rows(const RubatoShard *shard)
{
    return CLAMP(COPIED_BYTES / shard->row_bytes, 1, 4096);
}

/* ---- before ---- */

static unsigned char *before_of(const CallTrace *trace, size_t i)
{
    return trace->before + i * trace->shard->row_bytes;
}

static void make_room(CallTrace *trace, size_t n)
{
    if (n <= trace->n_before)
        return;
    g_free(trace->before);
    trace->before = g_malloc_n(n, trace->shard->row_bytes);
    trace->n_before = n;
}

void call_trace_open(CallTrace *trace, const RubatoPartRows *rows, const void *fresh,
                     size_t n_fresh)
{
    const bool may_repeat = rows->rows != NULL; /* then the first one counts */

    make_room(trace, rows->n);
    if (may_repeat && trace->seen == NULL)
        trace->seen = g_hash_table_new(NULL, NULL);
    for (size_t i = 0; i < rows->n; i++) {
        const Traced traced = { rubato_part_rows_key(rows, i), rubato_part_rows_row(rows, i) };

        if ((uintptr_t)traced.row - (uintptr_t)fresh < n_fresh ||
            (may_repeat && !g_hash_table_add(trace->seen, rubato_part_rows_row(rows, i))))
            continue;
        memcpy(before_of(trace, trace->rows->len), traced.row, trace->shard->row_bytes);
        g_array_append_val(trace->rows, traced);
    }
}

/* As a Get reads it, which creates no row. */
static void read_row(const CallTrace *trace, RubatoKey key, void *values)
{
    RubatoShard *const shard = trace->shard;
    void *row;

    shard_find(shard, &key, 1, &row);
    if (row != NULL)
        shard_copy_row(values, row, shard->row_bytes);
    else
        init_values(&shard->init, key, values);
}

static int compare_keys(const void *left, const void *right)
{
    const RubatoKey *const a = left, *const b = right;

    return *a < *b ? -1 : *a > *b;
}

void call_trace_before(CallTrace *trace, const RubatoKey *keys, size_t n)
{
    g_autofree RubatoKey *sorted = g_memdup2(keys, n * sizeof *keys);

    make_room(trace, n);
    qsort(sorted, n, sizeof *sorted, compare_keys);
    for (size_t i = 0; i < n; i++) {
        const Traced traced = { .key = sorted[i] };

        if (i > 0 && sorted[i] == sorted[i - 1])
            continue;
        read_row(trace, traced.key, before_of(trace, trace->rows->len));
        g_array_append_val(trace->rows, traced);
    }
}

/* ---- after ---- */

static void note_changes(CallTrace *trace)
{
    const RubatoKey *const keys = (const RubatoKey *)(const void *)trace->keys->data;
    const guint n = trace->keys->len;
    guint n_run = MIN(n, 1);

    while (n_run < n && keys[n_run] == keys[0] + n_run)
        n_run++;
    if (n == 0)
        return;
    history_note_applied(trace->stream, &trace->applied,
                         n_run == n ? &(RubatoKeys){ .first = keys[0], .n = n }
                                    : &(RubatoKeys){ .keys = keys, .n = n },
                         trace->changed->data, &trace->n_records);
}

void call_trace_close(CallTrace *trace)
{
    size_t row_bytes;

    if (G_LIKELY(trace == NULL) || trace->rows->len == 0)
        return;
    row_bytes = trace->shard->row_bytes;
    for (guint i = 0; i < trace->rows->len; i++) {
        const Traced *const traced = &g_array_index(trace->rows, Traced, i);

        if (traced->row != NULL)
            memcpy(trace->present, traced->row, row_bytes);
        else
            read_row(trace, traced->key, trace->present);
        if (memcmp(before_of(trace, i), trace->present, row_bytes) == 0)
            continue;
        g_array_append_val(trace->keys, traced->key);
        g_byte_array_append(trace->changed, before_of(trace, i), (guint)row_bytes);
        g_byte_array_append(trace->changed, trace->present, (guint)row_bytes);
    }
    note_changes(trace);
    g_array_set_size(trace->rows, 0);
    if (trace->seen != NULL)
        g_hash_table_remove_all(trace->seen);
    g_array_set_size(trace->keys, 0);
    g_byte_array_set_size(trace->changed, 0);
}

/* What a part with replicas has applied outlives its server. So it is in the file before anybody is
 * told: the process may be killed. */
void call_trace_end(CallTrace *trace, bool has_failed)
{
    const unsigned flags = has_failed ? HISTORY_FAILED : 0;

    if (G_LIKELY(trace == NULL))
        return;
    call_trace_close(trace);
    if (trace->shard->ragged != NULL)
        history_note_ragged_ran(trace->stream, &trace->applied, flags,
                                ++trace->shard->n_ragged_writes,
                                ragged_heap_row_bytes(trace->shard->ragged));
    else
        history_note_applied_end(trace->stream, &trace->applied, flags, trace->n_records);
    if (trace->shard->role != SHARD_ALONE)
        history_stream_flush(trace->stream);
    g_array_unref(trace->rows);
    g_clear_pointer(&trace->seen, g_hash_table_unref);
    g_array_unref(trace->keys);
    g_byte_array_unref(trace->changed);
    g_free(trace->before);
    g_free(trace->present);
    g_free(trace);
}

/* ---- rows of different lengths ---- */

bool call_trace_count(const RubatoShard *shard, uint64_t *n_writes)
{
    *n_writes = shard->n_ragged_writes;
    return shard->place.find_stream != NULL;
}

void call_trace_go_on(RubatoShard *shard, uint64_t n_writes)
{
    const ShardPlace *const place = &shard->place;
    HistoryStream *stream;

    shard->n_ragged_writes = n_writes;
    if (place->find_stream == NULL)
        return;
    stream = place->find_stream(place->server, place->table, shard->spec);
    history_note_ragged_ran(stream, &(HistoryApplied){ .part = place->part }, 0, n_writes,
                            ragged_heap_row_bytes(shard->ragged));
    if (shard->role != SHARD_ALONE)
        history_stream_flush(stream);
}
