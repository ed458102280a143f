/* A client calls handlers: on all of its table, on one part, or on some keys.
 *
 * The handler runs on each part that the call reaches, at the same time on different servers. The
 * parts' results are combined here. A call that reads is sent like a Get, and is sent again if a
 * part has moved meanwhile. A call that writes is sent like an Add: the part map does not change
 * until all of the call is posted. The worker waits for both, because a handler may fail. It does
 * not wait for a call that servers keep: see client_kept_calls.c.
 *
 * A model that decides by keys (RubatoModelTraits.takes_announcements) cannot treat a call on all
 * rows: such calls are refused. A call that writes may change rows of the process cache, so the
 * cache then forgets all of them. The servers have answered before that, so rows that are fetched
 * afterwards have the change.
 *
 * Threads: the client's worker. */
#include "tables/client/client_handlers.h"

#include "io/net/caller.h"
#include "tables/process_cache.h"

/* ---- checks ---- */

static bool check_shape(const TableClient *client, const RubatoHandlerCall *asked, GError **error)
{
    const RubatoTableSpec *spec = client->route->spec;

    if (spec->shape == RUBATO_SHAPE_EVEN)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "table %s: handler %s wants rows of one length, and these have different ones",
                spec->name, asked->handler);
    return false;
}

static bool check_size(const TableClient *client, const RubatoHandlerCall *asked, GError **error)
{
    const size_t most = RUBATO_HANDLER_MOST_BYTES;

    if (asked->n_argument_bytes <= most &&
        asked->n_keys <= (most - asked->n_argument_bytes) / sizeof(RubatoKey))
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "table %s: a call of handler %s has %zu bytes of arguments and %zu keys; together "
                "they may take %zu bytes",
                client->route->spec->name, asked->handler, asked->n_argument_bytes, asked->n_keys,
                most);
    return false;
}

static bool check_scope(const TableClient *client, const RubatoHandlerCall *asked, GError **error)
{
    const TableRoute *route = client->route;

    if (asked->scope == RUBATO_SCOPE_KEYS)
        return table_client_check(client, asked->keys, asked->n_keys, error);
    if (asked->scope == RUBATO_SCOPE_PART && asked->part >= route->map->n_parts) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_RANGE,
                    "table %s: there is no part %u; it has %u parts", route->spec->name,
                    asked->part, route->map->n_parts);
        return false;
    }
    if (route->clocks != NULL && route->traits->takes_announcements) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "table %s: handler %s cannot be called on all rows under model %s, which goes "
                    "by the keys that workers announce; name keys, or call it between tasks",
                    route->spec->name, asked->handler, route->spec->model);
        return false;
    }
    return true;
}

bool calling_check(Calling *calling, GError **error)
{
    const TableClient *client = calling->client;
    const RubatoHandlerCall *asked = calling->asked;

    if (!table_client_check_owner(client, error) || !check_shape(client, asked, error) ||
        !check_size(client, asked, error))
        return false;
    calling->ops = client->route->find_handler(client->route->spec, asked, error);
    if (calling->ops == NULL || !check_scope(client, asked, error))
        return false;
    table_client_end_lateness(calling->client);
    calling->number = calling_writes(calling) ? table_client_number_call(calling->client) : 0;
    return true;
}

/* ---- sending, and waiting ---- */

bool calling_cut(Calling *calling)
{
    const RubatoHandlerCall *asked = calling->asked;
    Slicer *slicer = calling->slicer;
    const TableRoute *route = calling->client->route;

    calling->slices = slicer->slices;
    if (asked->scope == RUBATO_SCOPE_KEYS) {
        calling->n_slices = slicer_cut(slicer, route->partition, asked->keys, asked->n_keys);
        return calling->n_slices != SLICER_NO_MEMORY;
    }
    calling->n_slices = asked->scope == RUBATO_SCOPE_PART ? 1 : route->map->n_parts;
    for (uint32_t i = 0; i < calling->n_slices; i++)
        slicer->slices[i] = (Slice){ .part = asked->scope == RUBATO_SCOPE_PART ? asked->part : i };
    return true;
}

static void set_call(Calling *calling, uint32_t i, Call *call, uint64_t node_clock)
{
    const TableClient *client = calling->client;
    const TableRoute *route = client->route;
    const RubatoHandlerCall *asked = calling->asked;
    const Slice *slice = &calling->slices[i];

    handler_answer_clear(&calling->calls[i].answer); /* of an earlier try */
    calling->calls[i] = (HandlerCall){
        .ops = calling->ops,
        .arguments = asked->arguments,
        .n_bytes = asked->n_argument_bytes,
        .is_whole = asked->scope != RUBATO_SCOPE_KEYS,
        .comes_again = route->map->n_replicas > 0 && calling_writes(calling),
        .number = calling->number,
    };
    calling->messages[i] = (Message){
        .kind = MESSAGE_HANDLER,
        .epoch = route->epoch,
        .table = route->table,
        .is_high = calling->is_high,
        .part = slice->part,
        .server = table_route_server(route, slice),
        .node = route->office->self,
        .call = call,
        .end = handler_call_end,
        .request = { .worker = client->rank,
                     .clock = client->clock,
                     .keys = slice->keys,
                     .handler_call = &calling->calls[i] },
    };
    if (post_office_is_local(route->office, calling->messages[i].server))
        calling->messages[i].node_clock = node_clock;
}

/* Those of other nodes leave first. */
void calling_post(Calling *calling, Call *call, uint64_t node_clock)
{
    PostOffice *office = calling->client->route->office;
    bool sent_away = false;

    call_add_parts(call, calling->n_slices);
    for (uint32_t i = 0; i < calling->n_slices; i++) {
        set_call(calling, i, call, node_clock);
        if (!post_office_is_local(office, calling->messages[i].server)) {
            post_office_call_handler(office, &calling->messages[i]);
            sent_away = true;
        }
    }
    if (sent_away) {
        post_office_flush(office);
        table_client_cancel_if_late(calling->client);
    }
    for (uint32_t i = 0; i < calling->n_slices; i++)
        if (post_office_is_local(office, calling->messages[i].server))
            post_office_call_handler(office, &calling->messages[i]);
}

static bool send_reads(Calling *calling, GError **error)
{
    TableClient *client = calling->client;
    Resending resending = { 0 };
    Call call;

    do {
        if (!table_client_wait_room(client, calling->slices, calling->n_slices, error))
            return false;
        call_begin(&call, NULL);
        calling_post(calling, &call, table_client_clock_to_tell(client));
        call_sent(&call);
        if (table_client_wait(client, &call, error)) {
            client->unheard_bytes = 0;
            return true;
        }
    } while (table_client_may_send_again(client, &call, &resending, error));
    return false;
}

void calling_count_write(const Calling *calling)
{
    const RubatoHandlerCall *asked = calling->asked;
    TableClient *client = calling->client;

    client->n_write_calls++;
    client->sent_clock = client->clock; /* the later Adds of this clock come behind it */
    if (client->route->max_kept_bytes > 0)
        client->adding_bytes += asked->n_keys * sizeof(RubatoKey) +
                                calling->n_slices * (TABLE_CLIENT_ADD_BYTES + sizeof(HandlerCall) +
                                                     asked->n_argument_bytes);
}

static bool send_writes(Calling *calling, GError **error)
{
    TableClient *client = calling->client;
    ProcessCache *const cache = table_route_cache(client->route);
    Call call;

    if (!table_client_wait_to_add(client, error) ||
        !table_client_wait_room(client, calling->slices, calling->n_slices, error) ||
        !table_client_begin_sending(client, error))
        return false;
    client->adds_uncached |= cache == NULL;
    call_begin(&call, NULL);
    calling_post(calling, &call, 0);
    table_client_end_sending(client);
    call_sent(&call);
    calling_count_write(calling);
    const bool ok = table_client_wait_clock(client, &call, 0, error);

    if (cache != NULL)
        process_cache_forget(cache);
    return ok;
}

/* ---- the result ---- */

/* The first part whose handler failed says why. */
static void tell_failure(const Calling *calling, GError **error)
{
    const char *failure = NULL;

    for (uint32_t i = 0; i < calling->n_slices && failure == NULL; i++)
        failure = calling->calls[i].answer.failure;
    if (failure == NULL) /* its node did not say */
        failure = "a handler failed";
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_HANDLER, failure);
}

static bool reduce(const Calling *calling, RubatoByteWriter *result, GError **error)
{
    const RubatoHandlerCall *asked = calling->asked;
    const RubatoHandlerSetting setting = { .spec = calling->client->route->spec,
                                           .scope = asked->scope };
    RubatoByteReader arguments = rubato_byte_reader_new(asked->arguments, asked->n_argument_bytes);
    g_autofree RubatoByteReader *results = g_new0(RubatoByteReader, calling->n_slices);
    g_autoptr(GError) found = NULL;
    bool ok = true;

    for (uint32_t i = 0; i < calling->n_slices; i++) {
        const HandlerAnswer *answer = &calling->calls[i].answer;

        results[i] = rubato_byte_reader_new(answer->bytes, answer->n_bytes);
        if (calling->ops->reduce == NULL)
            rubato_write(result, answer->bytes, answer->n_bytes);
    }
    if (calling->ops->reduce != NULL) {
        const CallerPlace before = caller_enter(CALLER_IN_HANDLER);

        ok = calling->ops->reduce(&setting, &arguments, results, calling->n_slices, result, &found);
        caller_leave(before);
    }
    if (ok && !result->failed)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_HANDLER,
                "table %s: the results of handler %s cannot become one: %s", setting.spec->name,
                calling->ops->name,
                ok              ? "there is no memory for it"
                : found == NULL ? "it gave no reason"
                                : found->message);
    return false;
}

static bool take_result(const Calling *calling, GBytes **result, GError **error)
{
    RubatoByteWriter writer = rubato_byte_writer_new(SIZE_MAX);
    const bool ok = reduce(calling, &writer, error);

    if (ok && result != NULL)
        *result = g_bytes_new_take(g_steal_pointer(&writer.bytes), writer.n);
    rubato_byte_writer_clear(&writer);
    return ok;
}

bool calling_take_result(const Calling *calling, CallStatus status, GBytes **result, GError **error)
{
    if (status == CALL_OK)
        return take_result(calling, result, error);
    tell_failure(calling, error);
    return false;
}

void calling_clear(Calling *calling)
{
    for (uint32_t i = 0; i < calling->n_slices; i++)
        handler_answer_clear(&calling->calls[i].answer);
}

static bool call_parts(Calling *calling, GBytes **result, GError **error)
{
    GError *found = NULL;

    if (calling_writes(calling) ? send_writes(calling, &found) : send_reads(calling, &found))
        return take_result(calling, result, error);
    if (g_error_matches(found, RUBATO_ERROR, RUBATO_ERROR_HANDLER)) {
        g_error_free(found);
        tell_failure(calling, error);
    } else {
        g_propagate_error(error, found);
    }
    return false;
}

/* It will be done, unless its task fails. A call that writes has no result. */
static bool keep_call(const Calling *calling, GBytes **result, GError **error)
{
    TableClient *const client = calling->client;

    if (!calling_keep(calling, error))
        return false;
    if (client->history != NULL)
        table_client_note_handler(client, calling->asked, calling->number, NULL,
                                  /* is_done= */ true);
    if (result != NULL)
        *result = g_bytes_new(NULL, 0);
    return true;
}

bool table_client_call(TableClient *client, const RubatoHandlerCall *asked, GBytes **result,
                       GError **error)
{
    Calling calling = { .client = client, .asked = asked, .slicer = &client->slicer };

    if (!calling_check(&calling, error))
        return false;
    if (calling_is_kept(&calling))
        return keep_call(&calling, result, error);
    if (!calling_cut(&calling))
        return table_client_fail_memory(client, error);
    g_autofree HandlerCall *calls = g_new0(HandlerCall, calling.n_slices);
    g_autofree Message *messages = g_new(Message, calling.n_slices);
    calling.calls = calls;
    calling.messages = messages;
    client->handler = asked->handler;
    g_autoptr(GBytes) seen = NULL; /* for the history */
    const bool keeps = client->history != NULL;
    const bool ok = call_parts(&calling, keeps ? &seen : result, error);
    if (keeps) {
        table_client_note_handler(client, asked, calling.number, seen, ok);
        if (ok && result != NULL)
            *result = g_steal_pointer(&seen);
    }

    client->handler = NULL;
    calling_clear(&calling);
    return ok;
}
