/* A client's calls of handlers that write, where servers keep them until their clock has ended.
 *
 * Under a model that applies by clock, a call made at clock c runs when the min clock passes c. A
 * caller that waited for it at its own clock c would wait for itself. So the call goes on without
 * its worker: it is sent, and servers answer it when it has run. Its arguments and keys are copied,
 * because the caller may reuse them at once.
 *
 * If it fails, its worker is told, and nobody else. The worker's clock that would end c + 1 waits
 * first until the calls of clock c have run, and fails if one of them has failed. The worker may
 * then clock again. What runs after the worker's last clock is waited for at the end of its
 * function.
 *
 * Why that wait ends. The worker waits for a min clock up to its own clock, as its Get would. Its
 * own clock is as high, so nobody whom it waits for waits for this clock. The table's servers are
 * told such a clock even if no Get waits for it (clocks_await). If the task is cancelled, the
 * models that keep the calls answer them, or the post office does so.
 *
 * Threads: the client's worker. */
#include "tables/client/client_handlers.h"

#include <inttypes.h>
#include <string.h>

#include "tables/process_cache.h"

typedef struct {
    Call call;
    uint64_t clock; /* at which it was made */
    Slicer slicer;
    Calling calling;
    RubatoHandlerCall asked;          /* what calling.asked points to */
    _Alignas(RubatoKey) char bytes[]; /* keys, then arguments */
} KeptCall;

bool calling_is_kept(const Calling *calling)
{
    const TableRoute *const route = calling->client->route;

    return calling_writes(calling) && route->clocks != NULL && route->traits->applies_by_clock;
}

/* ---- its memory ---- */

/* The call has ended, or was not sent. */
static void free_call(void *data)
{
    KeptCall *const kept = data;

    if (kept->calling.calls != NULL)
        calling_clear(&kept->calling);
    g_free(kept->calling.calls);
    g_free(kept->calling.messages);
    slicer_clear(&kept->slicer);
    g_free(kept);
}

/* NULL: there is no memory. */
static KeptCall *copy_call(const Calling *calling)
{
    const RubatoHandlerCall *const asked = calling->asked;
    TableClient *const client = calling->client;
    const size_t key_bytes =
        asked->scope == RUBATO_SCOPE_KEYS ? asked->n_keys * sizeof(RubatoKey) : 0;
    KeptCall *const kept = g_try_malloc(sizeof *kept + key_bytes + asked->n_argument_bytes);

    if (kept == NULL)
        return NULL;
    kept->clock = client->clock;
    kept->asked = *asked;
    kept->calling = (Calling){ .client = client,
                               .asked = &kept->asked,
                               .slicer = &kept->slicer,
                               .is_high = calling->is_high,
                               .ops = calling->ops,
                               .number = calling->number };
    if (key_bytes > 0)
        kept->asked.keys = memcpy(kept->bytes, asked->keys, key_bytes);
    if (asked->n_argument_bytes > 0)
        kept->asked.arguments =
            memcpy(kept->bytes + key_bytes, asked->arguments, asked->n_argument_bytes);
    kept->asked.handler = calling->ops->name;
    slicer_init(&kept->slicer, client->route->partition);
    if (!calling_cut(&kept->calling)) {
        kept->calling.n_slices = 0;
        free_call(kept);
        return NULL;
    }
    kept->calling.calls = g_new0(HandlerCall, kept->calling.n_slices);
    kept->calling.messages = g_new(Message, kept->calling.n_slices);
    return kept;
}

/* ---- sending ---- */

static bool send_call(KeptCall *kept, GError **error)
{
    Calling *const calling = &kept->calling;
    TableClient *const client = calling->client;
    ProcessCache *const cache = table_route_cache(client->route);

    if (!table_client_wait_to_add(client, error) ||
        !table_client_wait_room(client, calling->slices, calling->n_slices, error) ||
        !table_client_begin_sending(client, error))
        return false;
    client->adds_uncached |= cache == NULL;
    call_begin(&kept->call, NULL);
    calling_post(calling, &kept->call, 0);
    table_client_end_sending(client);
    call_sent(&kept->call);
    calling_count_write(calling);
    if (cache != NULL)
        process_cache_forget(cache);
    return true;
}

bool calling_keep(const Calling *calling, GError **error)
{
    TableClient *const client = calling->client;
    KeptCall *const kept = copy_call(calling);

    if (kept == NULL)
        return table_client_fail_memory(client, error);
    if (!send_call(kept, error)) {
        free_call(kept);
        return false;
    }
    if (client->route->lazy_clocks)
        (void)clocks_await(client->route->clocks, client->clock + 1);
    if (client->kept_calls == NULL)
        client->kept_calls = g_ptr_array_new_with_free_func(free_call);
    g_ptr_array_add(client->kept_calls, kept);
    return true;
}

/* ---- how they ended ---- */

static bool await_call(KeptCall *kept, GError **error)
{
    TableClient *const client = kept->calling.client;

    client->handler = kept->asked.handler;
    table_client_wait_ended(client, &kept->call, kept->clock + 1, &client->stats.send_wait_ns);
    client->handler = NULL;
    /* relaxed: the call has ended, which orders it */
    const CallStatus status =
        (CallStatus)atomic_load_explicit(&kept->call.status, memory_order_relaxed);

    return status == CALL_FAILED ? calling_take_result(&kept->calling, status, NULL, error)
                                 : table_client_check_call(client, &kept->call, error);
}

/* Waits for the calls of clocks below this one. The first that has failed says why. */
static bool end_calls(TableClient *client, uint64_t clock, GError **error)
{
    GPtrArray *const calls = client->kept_calls;
    uint64_t failed_at = 0;
    GError *first = NULL;
    guint n = 0, n_failed = 0;

    for (; n < calls->len; n++) {
        KeptCall *const kept = g_ptr_array_index(calls, n);

        if (kept->clock >= clock)
            break;
        if (await_call(kept, first == NULL ? &first : NULL))
            continue;
        if (n_failed++ == 0)
            failed_at = kept->clock;
    }
    if (n == calls->len)
        g_clear_pointer(&client->kept_calls, g_ptr_array_unref);
    else if (n > 0)
        g_ptr_array_remove_range(calls, 0, n);
    if (first == NULL)
        return true;
    if (g_error_matches(first, RUBATO_ERROR, RUBATO_ERROR_HANDLER)) {
        g_autofree char *others = n_failed == 1 ? g_strdup("")
                                  : n_failed == 2
                                      ? g_strdup("; another one failed, too")
                                      : g_strdup_printf("; %u others failed, too", n_failed - 1);
        g_autofree char *said = g_steal_pointer(&first->message);

        first->message = g_strdup_printf("%s (worker %u called it at clock %" PRIu64 "%s)", said,
                                         client->rank, failed_at, others);
    }
    g_propagate_error(error, first);
    return false;
}

bool table_client_end_earlier_calls(TableClient *client, GError **error)
{
    return end_calls(client, client->clock, error);
}

bool table_client_end_calls(TableClient *client, GError **error)
{
    return client->kept_calls == NULL || end_calls(client, UINT64_MAX, error);
}
