/* What a worker asks, and what it sees, for the history of its node.
 *
 * Threads: the client's worker; table_client_note_late_get and _late_ragged from any. */
#include "tables/client/client_private.h"

/* The engine's clients have no clock: their requests have the node's phase in its place. */
static uint64_t clock_of(const TableClient *client)
{
    return client->route->epoch == 0 ? history_phase(client->route->history) : client->clock;
}

static HistoryStream *new_stream(const TableClient *client)
{
    const TableRoute *const route = client->route;

    return history_stream_new(route->history,
                              &(HistoryIdentity){ .epoch = route->epoch,
                                                  .rank = client->rank,
                                                  .table = route->table,
                                                  .dtype = route->spec->dtype,
                                                  .width = MAX(route->spec->width, 1) });
}

void table_client_begin_history(TableClient *client)
{
    client->history = new_stream(client);
}

void table_client_hand_over_history(TableClient *client)
{
    history_stream_hand_over(client->history);
}

void table_client_flush_history(TableClient *client)
{
    if (client->history == NULL)
        return;
    history_stream_hand_over(client->history);
    history_flush(client->route->history);
}

void table_client_end_history(TableClient *client)
{
    if (client->history != NULL && client->route->epoch != 0)
        table_client_note(client, HISTORY_RETIRE, client->clock);
    history_stream_free(client->history);
    history_stream_free(client->late_history);
}

void table_client_note(TableClient *client, HistoryKind kind, uint64_t clock)
{
    history_note(client->history,
                 &(HistoryRecord){ .kind = kind, .clock = clock, .n_adds = client->history_adds });
}

void table_client_note_keys(TableClient *client, HistoryKind kind, uint64_t clock,
                            const RubatoKeys *keys)
{
    history_note(client->history,
                 &(HistoryRecord){
                     .kind = kind, .clock = clock, .n_adds = client->history_adds, .keys = keys });
}

void table_client_note_get(TableClient *client, const RubatoKeys *keys, const void *values)
{
    history_note(client->history, &(HistoryRecord){ .kind = HISTORY_GET,
                                                    .clock = clock_of(client),
                                                    .n_adds = client->history_adds,
                                                    .keys = keys,
                                                    .rows = values });
}

void table_client_note_add(TableClient *client, const RubatoKeys *keys, const void *deltas,
                           bool is_done)
{
    history_note(client->history, &(HistoryRecord){ .kind = HISTORY_ADD,
                                                    .flags = is_done ? 0 : HISTORY_FAILED,
                                                    .clock = clock_of(client),
                                                    .n_adds = client->history_adds++,
                                                    .keys = keys,
                                                    .rows = deltas });
}

void table_client_note_add_get(TableClient *client, const RubatoKeys *keys, const void *deltas,
                               const void *values, bool is_done)
{
    table_client_note_add(client, keys, deltas, is_done);
    if (is_done)
        table_client_note_get(client, keys, values);
}

/* Of requests by tickets. The caller unlocks it. */
static HistoryStream *lock_late_stream(TableClient *client)
{
    pthread_mutex_lock(&client->late_lock);
    if (client->late_history == NULL)
        client->late_history = new_stream(client);
    return client->late_history;
}

void table_client_note_late_get(TableClient *client, uint64_t clock, uint64_t n_adds,
                                const RubatoKeys *keys, const void *values)
{
    HistoryStream *const stream = lock_late_stream(client);

    history_note(stream, &(HistoryRecord){ .kind = HISTORY_GET,
                                           .flags = HISTORY_OF_TICKET,
                                           .clock = clock,
                                           .n_adds = n_adds,
                                           .keys = keys,
                                           .rows = values });
    pthread_mutex_unlock(&client->late_lock);
}

void table_client_note_ragged(TableClient *client, HistoryRagged *request)
{
    request->clock = clock_of(client);
    request->n_adds = client->history_adds;
    client->history_adds += request->number > 0;
    history_note_ragged(client->history, request);
}

void table_client_note_late_ragged(TableClient *client, const HistoryRagged *request)
{
    history_note_ragged(lock_late_stream(client), request);
    pthread_mutex_unlock(&client->late_lock);
}

uint64_t table_client_number_call(TableClient *client)
{
    if (client->history == NULL)
        return 0;
    if (client->route->epoch == 0) /* whose clients make one call */
        return history_number_call(client->route->history);
    if (client->calls_clock != client->clock)
        client->n_calls = 0;
    client->calls_clock = client->clock;
    return ++client->n_calls;
}

/* The parts that a call of some keys goes to. Returns how many. */
static size_t find_parts(const TableRoute *route, const RubatoHandlerCall *asked, RubatoKey *parts)
{
    const uint32_t n_parts = route->map->n_parts;
    g_autofree bool *has = g_new0(bool, n_parts);
    size_t n = 0;

    for (size_t i = 0; i < asked->n_keys; i++)
        has[partition_part(route->partition, asked->keys[i])] = true;
    for (uint32_t i = 0; i < n_parts; i++)
        if (has[i])
            parts[n++] = i;
    return n;
}

static void note_parts(TableClient *client, const RubatoHandlerCall *asked, HistoryRecord *record)
{
    RubatoKeys keys = { .n = 0 };
    const TableRoute *const route = client->route;
    g_autofree RubatoKey *parts = g_new(RubatoKey, route->map->n_parts);

    switch (asked->scope) {
    case RUBATO_SCOPE_TABLE:
        keys = (RubatoKeys){ .n = route->map->n_parts };
        break;
    case RUBATO_SCOPE_PART:
        keys = (RubatoKeys){ .first = asked->part, .n = 1 };
        break;
    case RUBATO_SCOPE_KEYS:
        keys = (RubatoKeys){ .keys = parts, .n = find_parts(route, asked, parts) };
        break;
    }
    record->keys = &keys;
    history_note(client->history, record);
}

void table_client_note_handler(TableClient *client, const RubatoHandlerCall *asked, uint64_t number,
                               GBytes *result, bool is_done)
{
    const bool writes = number > 0;
    gsize n = 0;
    const void *const bytes = result != NULL ? g_bytes_get_data(result, &n) : NULL;
    const RubatoKeys keys = { .keys = asked->keys, .n = asked->n_keys };
    HistoryRecord record = { .kind = HISTORY_HANDLER_KEYS,
                             .flags =
                                 (writes ? HISTORY_WRITES : 0) | (is_done ? 0 : HISTORY_FAILED),
                             .clock = clock_of(client),
                             .n_adds = client->history_adds,
                             .keys = &keys };

    history_note_handler(client->history, &record, asked->handler, bytes, n);
    client->history_adds += writes;
    record.kind = HISTORY_HANDLER_PARTS;
    record.n_adds = number;
    if (writes)
        note_parts(client, asked, &record);
}

void table_client_note_ask(TableClient *client, const TableAsk *ask, const RubatoKeys *keys,
                           bool is_done)
{
    if (ask->kind == MESSAGE_GET && is_done)
        table_client_note_get(client, keys, ask->output);
    else if (ask->kind == MESSAGE_ADD)
        table_client_note_add(client, keys, ask->input, is_done);
    else if (ask->kind == MESSAGE_SET || ask->kind == MESSAGE_RESET)
        history_note(client->history, &(HistoryRecord){ .kind = HISTORY_SET,
                                                        .flags = is_done ? 0 : HISTORY_FAILED,
                                                        .clock = clock_of(client),
                                                        .keys = keys,
                                                        .rows = ask->input });
}
