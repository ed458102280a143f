/* Takes the records of requests to ragged rows.
 *
 * Threads: one. */
#include <string.h>

#include "apps/rubato/history/history_call_name.h"
#include "apps/rubato/history/history_ragged.h"

uint64_t ragged_key(const RaggedRequest *request, uint32_t i)
{
    uint64_t key;

    memcpy(&key, request->keys + (request->is_run ? 0 : 8 * (size_t)i), sizeof key);
    return GUINT64_FROM_LE(key) + (request->is_run ? i : 0);
}

uint32_t ragged_length(const RaggedRequest *request, uint32_t i)
{
    uint32_t length;

    memcpy(&length, request->lengths + 4 * (size_t)i, sizeof length);
    return GUINT32_FROM_LE(length);
}

/* ---- the table ---- */

static void clear_request(gpointer data)
{
    RaggedRequest *const request = data;

    g_clear_pointer(&request->gathered, g_byte_array_unref);
}

void history_take_ragged_table(HistoryTable *table)
{
    if (table->ragged != NULL)
        return;
    table->ragged = g_new0(HistoryRagged, 1);
    table->ragged->requests = g_array_new(FALSE, FALSE, sizeof(RaggedRequest));
    table->ragged->coming = g_array_new(FALSE, FALSE, sizeof(guint));
    table->ragged->ran = g_array_new(FALSE, FALSE, sizeof(RaggedRan));
    g_array_set_clear_func(table->ragged->requests, clear_request);
}

void history_free_ragged(HistoryTable *table)
{
    if (table->ragged == NULL)
        return;
    g_array_unref(table->ragged->requests);
    g_array_unref(table->ragged->coming);
    g_array_unref(table->ragged->ran);
    g_clear_pointer(&table->ragged, g_free);
}

/* ---- records ---- */

static void complain(const History *history, const HistoryTable *table,
                     const RaggedRequest *request, const char *text)
{
    const CallName name =
        call_name_of(history_source(history, request->source), request->clock, request->number);

    call_name_complain(history, table, "order", &name, "%s", text);
}

static bool is_same(const RaggedRequest *request, const Record *record, uint32_t source)
{
    return request->source == source && request->part == record->part &&
           request->op == record->op && request->number == record->number &&
           request->clock == record->clock && request->flags == record->flags &&
           request->n_bytes == record->n_bytes && request->gathered->len == record->bytes_at;
}

/* The next bytes of a request that does not fit into one record. */
static void go_on(const History *history, HistoryTable *table, uint32_t source,
                  const Record *record)
{
    GArray *const coming = table->ragged->coming;

    for (guint i = coming->len; i-- > 0;) {
        RaggedRequest *const request =
            &g_array_index(table->ragged->requests, RaggedRequest, g_array_index(coming, guint, i));

        if (!is_same(request, record, source))
            continue;
        g_byte_array_append(request->gathered, record->bytes, (guint)record->n_bytes_here);
        if (request->gathered->len == request->n_bytes)
            g_array_remove_index_fast(coming, i);
        return;
    }
    const RaggedRequest lost = { .source = source,
                                 .clock = record->clock,
                                 .number = record->number };

    complain(history, table, &lost, "some of its request to ragged rows comes without the rest");
}

void history_take_ragged(History *history, HistoryTable *table, uint32_t source,
                         const Record *record)
{
    RaggedRequest request = { .source = source,
                              .part = record->part,
                              .process = (uint16_t)MIN(history->file->process, UINT16_MAX),
                              .flags = (uint8_t)record->flags,
                              .op = record->op,
                              .clock = record->clock,
                              .n_adds = record->n_adds,
                              .number = record->number,
                              .at = record->at,
                              .bytes = record->bytes,
                              .n_bytes = record->n_bytes,
                              .n_keys = record->n_keys,
                              .is_run = record->flags & RECORD_RUN_OF_KEYS };

    history_take_ragged_table(table);
    if (record->bytes_at > 0) {
        go_on(history, table, source, record);
        return;
    }
    if (record->n_bytes_here < record->n_bytes) {
        request.gathered = g_byte_array_new();
        g_byte_array_append(request.gathered, record->bytes, (guint)record->n_bytes_here);
        const guint place = table->ragged->requests->len;

        g_array_append_val(table->ragged->coming, place);
    }
    g_array_append_val(table->ragged->requests, request);
    table->n_adds += ragged_writes(&request);
    table->n_gets += !ragged_writes(&request);
}

void history_take_ragged_ran(const History *history, HistoryTable *table, const Record *record)
{
    const RaggedRan ran = { .file = history->file, .record = *record };

    history_take_ragged_table(table);
    g_array_append_val(table->ragged->ran, ran);
}

uint64_t history_forget_ragged(HistoryTable *table, uint32_t source, uint64_t clock,
                               uint64_t n_adds)
{
    GArray *const requests = table->ragged == NULL ? NULL : table->ragged->requests;

    if (requests == NULL)
        return n_adds;
    g_array_set_size(table->ragged->coming, 0); /* of earlier files, which have been read */
    for (guint i = requests->len; i-- > 0;) {
        const RaggedRequest *const request = &g_array_index(requests, RaggedRequest, i);

        if (request->source != source || request->clock < clock)
            continue;
        if (ragged_writes(request))
            n_adds = MIN(n_adds, request->n_adds);
        g_array_remove_index(requests, i);
    }
    return n_adds;
}

/* ---- what a request has ---- */

static size_t padded(size_t n)
{
    return (n + 7) / 8 * 8;
}

enum { MOST_KEYS_WITHOUT_LENGTHS = 1 << 16 };

/* Whether the bytes are what such a request has. */
static bool open_request(RaggedRequest *request, size_t value_bytes)
{
    const size_t n = request->n_keys;
    const size_t key_bytes = (request->is_run ? MIN(n, 1) : n) * 8;
    const size_t length_bytes = request->op == RAGGED_ERASE ? 0 : padded(4 * n);
    uint64_t n_values = 0;

    if (request->gathered != NULL) {
        request->bytes = request->gathered->data;
        if (request->gathered->len != request->n_bytes)
            return false;
    }
    if (request->op == RAGGED_ERASE && n > MOST_KEYS_WITHOUT_LENGTHS)
        return false;
    if (request->n_bytes < key_bytes + length_bytes ||
        ragged_writes(request) != (request->number > 0))
        return false;
    request->keys = request->bytes;
    request->lengths = request->bytes + key_bytes;
    request->values = request->lengths + length_bytes;
    for (uint32_t i = 0; i < n && request->op != RAGGED_ERASE; i++)
        n_values += ragged_length(request, i);
    const uint64_t n_bytes = request->op == RAGGED_GET ? 8 * n
                             : request->op == RAGGED_LENGTHS || request->op == RAGGED_ERASE
                                 ? 0
                                 : padded(n_values * value_bytes);
    return request->n_bytes == key_bytes + length_bytes + n_bytes;
}

void history_open_ragged(const History *history, HistoryTable *table)
{
    const size_t value_bytes = rubato_dtype_size(table->dtype);
    GArray *const requests = table->ragged->requests;

    for (guint i = 0; i < requests->len; i++) {
        RaggedRequest *const request = &g_array_index(requests, RaggedRequest, i);

        request->is_whole = open_request(request, value_bytes);
        if (!request->is_whole && history->n_missing == 0)
            complain(history, table, request, "its request to ragged rows has another size");
    }
}
