/* RubatoKVClientTable: tickets for requests in flight, callbacks on the helper thread, and reads
 * through the process cache.
 *
 * A ticket owns copies of its keys and deltas. Its call may end on any thread; with a callback it
 * goes on to the helper thread, which calls back and then ends the ticket. A ticket stays in the
 * handle's table until it is waited for; one that has called back with success is dropped at once.
 * So the thread that ends a ticket does this, and wakes the waiter, under the handle's lock.
 * Afterwards it uses neither the ticket nor the handle, because the waiter may free both. */
#include <rubato/kv_client_table.h>
#include <string.h>

#include "io/net/monotonic.h"
#include "io/net/stall_clock.h"
#include "tables/process_cache.h"
#include "tables/worker.h"
#include "tables/worker_stats.h"

struct RubatoKVClientTable {
    OpenHandle open;     /* first: the client's list finds the handle; worker thread only */
    TableClient *client; /* worker thread only; NULL: the worker has returned */
    Actor *helper;
    RubatoTicket n_issued; /* worker thread only */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock */
    GHashTable *tickets; /* RubatoTicket → Ticket, in flight or not yet waited for */
};

typedef struct {
    Call call; /* first: the call's end finds the ticket */
    Message to_helper;
    RubatoTicket id;
    RubatoKVClientTable *table;
    RubatoCallback callback;
    void *user_data;
    bool is_get;
    uint64_t clock; /* the worker's clock at the request */
    size_t bytes;   /* see table_client_take_ticket */
    bool ended;     /* guarded by the table's lock */
    CallStatus status;
    Slicer slicer; /* of its own: positions stay until the call has ended */
    uint32_t n_slices;
    Message *messages;
    RubatoKey *keys;
    void *deltas;
} Ticket;

static void free_ticket(void *data)
{
    Ticket *ticket = data;

    slicer_clear(&ticket->slicer);
    g_free(ticket->messages);
    g_free(ticket->keys);
    g_free(ticket->deltas);
    g_free(ticket);
}

/* The first handle that may use the cache makes it. If two make one at the same time, the second
 * one is freed. */
static void ensure_cache(TableRoute *route, Actor *helper)
{
    ProcessCache *none = NULL, *made;

    if (!route->traits->rows_may_be_cached || route->spec->cache == RUBATO_CACHE_NONE ||
        table_route_cache(route) != NULL)
        return;
    if (route->spec->cache == RUBATO_CACHE_REMOTE && route->office->network == NULL)
        return;
    made = process_cache_new(route, helper);
    /* release: with the acquire in table_route_cache */
    if (!atomic_compare_exchange_strong_explicit(&route->cache, &none, made, memory_order_acq_rel,
                                                 memory_order_acquire))
        process_cache_free(made);
}

/* The worker has returned, and its client is freed. */
static void finish(OpenHandle *handle)
{
    RubatoKVClientTable *table = (RubatoKVClientTable *)handle;

    rubato_kv_client_table_wait_all(table, NULL);
    table->client = NULL;
}

static void leave_client(RubatoKVClientTable *table)
{
    OpenHandle **at = &table->client->open;

    while (*at != &table->open)
        at = &(*at)->next;
    *at = table->open.next;
}

RubatoKVClientTable *rubato_worker_open_kv_client_table(RubatoWorker *worker, const char *name,
                                                        RubatoDtype dtype, GError **error)
{
    RubatoKVClientTable *table;
    ProcessCache *cache;
    TableClient *client;

    g_return_val_if_fail(worker != NULL && name != NULL, NULL);
    client = worker_open_table(worker, name, dtype, error);
    if (client == NULL)
        return NULL;
    ensure_cache((TableRoute *)(uintptr_t)client->route, worker->helper);
    cache = table_route_cache(client->route);
    if (cache != NULL && client->adds_uncached) { /* cached rows may lack them */
        process_cache_forget(cache);
        client->adds_uncached = false;
    }
    table = g_new0(RubatoKVClientTable, 1);
    table->client = client;
    table->open = (OpenHandle){ .next = client->open, .finish = finish };
    client->open = &table->open;
    table->helper = worker->helper;
    table->tickets = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, free_ticket);
    pthread_mutex_init(&table->lock, NULL);
    monotonic_cond_init(&table->changed);
    return table;
}

void rubato_kv_client_table_free(RubatoKVClientTable *table)
{
    if (table == NULL)
        return;
    if (table->client != NULL) {
        rubato_kv_client_table_wait_all(table, NULL);
        leave_client(table);
    }
    g_hash_table_destroy(table->tickets);
    pthread_cond_destroy(&table->changed);
    pthread_mutex_destroy(&table->lock);
    g_free(table);
}

uint32_t rubato_kv_client_table_width(const RubatoKVClientTable *table)
{
    g_return_val_if_fail(table != NULL, 0);
    return table->client->route->spec->width;
}

uint64_t rubato_kv_client_table_clock_value(const RubatoKVClientTable *table)
{
    g_return_val_if_fail(table != NULL, 0);
    return table->client->clock;
}

/* ---- the end of a ticket ---- */

static void end_ticket(Ticket *ticket, CallStatus status)
{
    RubatoKVClientTable *table = ticket->table;

    if (ticket->is_get && status == CALL_OK)
        table_client_count_late_get(table->client, ticket->clock, &ticket->call);
    pthread_mutex_lock(&table->lock);
    ticket->ended = true;
    ticket->status = status;
    if (ticket->callback != NULL && status == CALL_OK)
        g_hash_table_remove(table->tickets, &ticket->id);
    pthread_cond_broadcast(&table->changed);
    pthread_mutex_unlock(&table->lock);
}

static CallStatus status_of(Ticket *ticket)
{
    return (CallStatus)atomic_load_explicit(&ticket->call.status, memory_order_relaxed);
}

/* The helper thread. */
static void call_back(Message *message, void *helper)
{
    Ticket *ticket = (Ticket *)((char *)message - offsetof(Ticket, to_helper));
    const CallStatus status = status_of(ticket);
    g_autoptr(GError) error = NULL;

    (void)helper;
    table_client_check_status(ticket->table->client, status, &error);
    caller_place = CALLER_IN_CALLBACK;
    ticket->callback(ticket->id, error, ticket->user_data);
    caller_place = CALLER_OUTSIDE;
    end_ticket(ticket, status);
}

static void ticket_ended(Call *call)
{
    Ticket *ticket = (Ticket *)call;

    if (ticket->bytes > 0)
        table_client_give_ticket(ticket->table->client, ticket->bytes);
    if (ticket->callback != NULL)
        actor_post(ticket->table->helper, &ticket->to_helper);
    else
        end_ticket(ticket, status_of(ticket));
}

/* ---- requests ---- */

/* Sends a Get: slices that may be cached go through the cache, the others to their servers. */
static void send_get(TableClient *client, const Slice *slices, uint32_t n_slices, void *values,
                     Call *call, Message *messages)
{
    ProcessCache *cache = table_route_cache(client->route);
    const TableAsk ask = { .kind = MESSAGE_GET,
                           .row_bytes = client->route->row_bytes,
                           .output = values };

    if (cache == NULL) {
        table_client_send(client, &ask, slices, n_slices, call, messages);
        return;
    }
    for (uint32_t i = 0; i < n_slices; i++)
        if (process_cache_covers(cache, &slices[i]))
            process_cache_get(cache, client, &slices[i], values, call);
        else
            table_client_send(client, &ask, &slices[i], 1, call, &messages[i]);
}

bool rubato_kv_client_table_get(RubatoKVClientTable *table, const RubatoKey *keys, size_t n,
                                void *values, GError **error)
{
    g_return_val_if_fail(table != NULL && (keys != NULL || n == 0), false);
    g_return_val_if_fail(values != NULL || n == 0, false);

    TableClient *client = table->client;
    uint32_t n_slices;
    Call call;

    if (table_route_cache(client->route) == NULL)
        return table_client_get(client, keys, n, values, error);
    if (!table_client_check(client, keys, n, error))
        return false;
    if (n == 0)
        return true;
    n_slices = slicer_cut(&client->slicer, client->route->partition, keys, n);
    if (n_slices == SLICER_NO_MEMORY)
        return table_client_fail_memory(client, error);
    if (!table_client_wait_room(client, client->slicer.slices, n_slices, error))
        return false;
    call_begin(&call, NULL);
    send_get(client, client->slicer.slices, n_slices, values, &call, client->messages);
    call_sent(&call);
    if (!table_client_wait(client, &call, error))
        return false;
    table_client_count_get(client, &call);
    return true;
}

bool rubato_kv_client_table_add(RubatoKVClientTable *table, const RubatoKey *keys, size_t n,
                                const void *deltas, GError **error)
{
    g_return_val_if_fail(table != NULL && (keys != NULL || n == 0), false);
    g_return_val_if_fail(deltas != NULL || n == 0, false);
    return table_client_add(table->client, keys, n, deltas, error);
}

bool rubato_kv_client_table_get_range(RubatoKVClientTable *table, RubatoKey first, size_t n,
                                      void *values, GError **error)
{
    g_return_val_if_fail(table != NULL, false);
    g_return_val_if_fail(values != NULL || n == 0, false);
    return table_client_get_run(table->client, first, n, values, error);
}

bool rubato_kv_client_table_add_range(RubatoKVClientTable *table, RubatoKey first, size_t n,
                                      const void *deltas, GError **error)
{
    g_return_val_if_fail(table != NULL, false);
    g_return_val_if_fail(deltas != NULL || n == 0, false);
    return table_client_add_run(table->client, first, n, deltas, error);
}

bool rubato_kv_client_table_clock(RubatoKVClientTable *table, GError **error)
{
    g_return_val_if_fail(table != NULL, false);
    return table_client_clock(table->client, error);
}

/* A copy, NULL if there is no memory or nothing to copy. */
static void *copy_of(const void *from, size_t n_bytes)
{
    void *copy = g_try_malloc(n_bytes);

    if (copy != NULL)
        memcpy(copy, from, n_bytes);
    return copy;
}

/* A ticket with copies of keys and deltas, cut into slices; NULL if there is no memory. */
static Ticket *new_ticket(RubatoKVClientTable *table, const RubatoKey *keys, size_t n,
                          const void *deltas, RubatoCallback callback, void *user_data)
{
    const TableRoute *route = table->client->route;
    Ticket *ticket = g_new0(Ticket, 1);

    ticket->table = table;
    ticket->callback = callback;
    ticket->user_data = user_data;
    ticket->clock = table->client->clock;
    ticket->to_helper = (Message){ .kind = MESSAGE_INVOKE, .invoke = call_back };
    slicer_init(&ticket->slicer, route->partition);
    if (n > 0)
        ticket->keys = copy_of(keys, n * sizeof *keys);
    if (n > 0 && deltas != NULL)
        ticket->deltas = copy_of(deltas, n * route->row_bytes);
    ticket->n_slices = n > 0 && (ticket->keys == NULL || (deltas != NULL && ticket->deltas == NULL))
                           ? SLICER_NO_MEMORY
                           : slicer_cut(&ticket->slicer, route->partition, ticket->keys, n);
    if (ticket->n_slices == SLICER_NO_MEMORY) {
        free_ticket(ticket);
        return NULL;
    }
    ticket->messages = g_new0(Message, route->map->n_parts);
    ticket->id = ++table->n_issued;
    pthread_mutex_lock(&table->lock);
    g_hash_table_insert(table->tickets, &ticket->id, ticket);
    pthread_mutex_unlock(&table->lock);
    call_begin(&ticket->call, ticket_ended);
    return ticket;
}

RubatoTicket rubato_kv_client_table_get_async(RubatoKVClientTable *table, const RubatoKey *keys,
                                              size_t n, void *values, RubatoCallback callback,
                                              void *user_data, GError **error)
{
    g_return_val_if_fail(table != NULL && (keys != NULL || n == 0), 0);
    g_return_val_if_fail(values != NULL || n == 0, 0);

    TableClient *client = table->client;
    Ticket *ticket;
    RubatoTicket id;
    uint32_t n_slices;
    size_t bytes = 0;

    if (!table_client_check(client, keys, n, error))
        return 0;
    n_slices = slicer_cut(&client->slicer, client->route->partition, keys, n);
    if (n_slices != SLICER_NO_MEMORY &&
        (!table_client_wait_room(client, client->slicer.slices, n_slices, error) ||
         !table_client_take_ticket(client, client->slicer.slices, n_slices, &bytes, error)))
        return 0;
    ticket = n_slices == SLICER_NO_MEMORY
                 ? NULL
                 : new_ticket(table, keys, n, /* deltas= */ NULL, callback, user_data);
    if (ticket == NULL) {
        table_client_give_ticket(client, bytes);
        table_client_fail_memory(client, error);
        return 0;
    }
    ticket->bytes = bytes;
    ticket->is_get = n > 0;
    id = ticket->id;
    n_slices = ticket->n_slices;
    send_get(client, ticket->slicer.slices, n_slices, values, &ticket->call, ticket->messages);
    call_sent(&ticket->call); /* the ticket may be gone from here on */
    return id;
}

RubatoTicket rubato_kv_client_table_add_async(RubatoKVClientTable *table, const RubatoKey *keys,
                                              size_t n, const void *deltas, RubatoCallback callback,
                                              void *user_data, GError **error)
{
    g_return_val_if_fail(table != NULL && (keys != NULL || n == 0), 0);
    g_return_val_if_fail(deltas != NULL || n == 0, 0);

    TableClient *client = table->client;
    ProcessCache *cache = table_route_cache(client->route);
    Ticket *ticket;
    RubatoTicket id;
    uint32_t n_slices;

    if (!table_client_check(client, keys, n, error) || !table_client_wait_to_add(client, error))
        return 0;
    n_slices = slicer_cut(&client->slicer, client->route->partition, keys, n);
    if (n_slices != SLICER_NO_MEMORY &&
        !table_client_wait_room(client, client->slicer.slices, n_slices, error))
        return 0;
    ticket = n_slices == SLICER_NO_MEMORY ? NULL
                                          : new_ticket(table, keys, n, deltas, callback, user_data);
    if (ticket == NULL) {
        table_client_fail_memory(client, error);
        return 0;
    }
    id = ticket->id;
    n_slices = ticket->n_slices;
    process_cache_begin_add(cache, &(RubatoKeys){ .keys = keys, .n = n }, deltas);
    const TableAsk ask = { .kind = MESSAGE_ADD,
                           .row_bytes = client->route->row_bytes,
                           .input = ticket->deltas };
    table_client_send(client, &ask, ticket->slicer.slices, n_slices, &ticket->call,
                      ticket->messages);
    process_cache_end_add(cache);
    table_client_count_add(client, n, n_slices);
    client->stats.n_adds += n > 0;
    call_sent(&ticket->call); /* the ticket may be gone from here on */
    return id;
}

/* ---- waiting ---- */

/* A ticket that has not ended, NULL if it has, or has been dropped. The lock is held. */
static Ticket *find_unended(RubatoKVClientTable *table, RubatoTicket id)
{
    Ticket *ticket = g_hash_table_lookup(table->tickets, &id);

    return ticket != NULL && !ticket->ended ? ticket : NULL;
}

/* Waits until the ticket has ended, but at most until a time. If the ticket has not ended, returns
 * it. */
static Ticket *wait_until(RubatoKVClientTable *table, RubatoTicket id, int64_t end_ms)
{
    Ticket *ticket;

    while ((ticket = find_unended(table, id)) != NULL &&
           monotonic_wait(&table->changed, &table->lock, end_ms))
        ;
    return ticket;
}

/* The report may end the ticket, on this thread. */
static void report_wait(RubatoKVClientTable *table)
{
    pthread_mutex_unlock(&table->lock);
    table_client_report_wait(table->client);
    pthread_mutex_lock(&table->lock);
}

/* Waits until the ticket has ended, and logs now and then for whom it waits. Returns it, still in
 * the table, or NULL if it has been dropped; the lock is held. */
static Ticket *wait_ended(RubatoKVClientTable *table, RubatoTicket id)
{
    TableClient *client = table->client;
    StallClock clock;

    stall_clock_start(&clock, client->route->stall_ms);
    const Ticket *ticket =
        wait_until(table, id, MIN(clock.begun_ms + TABLE_CLIENT_REPORT_MS, clock.strike_ms));

    if (ticket != NULL) {
        client->awaited =
            ticket->is_get && ticket->clock > client->lead ? ticket->clock - client->lead : 0;
        report_wait(table);
    }
    while ((ticket = wait_until(table, id, clock.strike_ms)) != NULL)
        if (stall_clock_strikes(&clock))
            table_client_say_stalled(client, &ticket->call, stall_clock_s(&clock));
    return g_hash_table_lookup(table->tickets, &id);
}

/* The same, counting the time. */
static Ticket *wait_for(RubatoKVClientTable *table, RubatoTicket id)
{
    RubatoWorkerStats *stats = &table->client->stats;
    Ticket *ticket = g_hash_table_lookup(table->tickets, &id);
    uint64_t *waited_ns, begun_ns;

    if (ticket == NULL || ticket->ended)
        return ticket;
    waited_ns = ticket->is_get ? &stats->get_wait_ns : &stats->send_wait_ns;
    begun_ns = worker_stats_now_ns();
    ticket = wait_ended(table, id);
    *waited_ns += worker_stats_now_ns() - begun_ns;
    return ticket;
}

bool rubato_kv_client_table_wait(RubatoKVClientTable *table, RubatoTicket id, GError **error)
{
    g_return_val_if_fail(table != NULL, false);

    CallStatus status = CALL_OK;
    Ticket *ticket;

    if (id == 0 || id > table->n_issued) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "table %s: ticket %" G_GUINT64_FORMAT " was never given out",
                    table->client->route->spec->name, id);
        return false;
    }
    pthread_mutex_lock(&table->lock);
    ticket = wait_for(table, id);
    if (ticket != NULL) {
        status = ticket->status;
        g_hash_table_remove(table->tickets, &id);
    }
    pthread_mutex_unlock(&table->lock);
    return table_client_check_status(table->client, status, error);
}

bool rubato_kv_client_table_wait_all(RubatoKVClientTable *table, GError **error)
{
    g_return_val_if_fail(table != NULL, false);

    CallStatus first = CALL_OK;
    GHashTableIter iter;
    void *key;

    pthread_mutex_lock(&table->lock);
    for (;;) {
        RubatoTicket id;
        Ticket *ticket;

        g_hash_table_iter_init(&iter, table->tickets);
        if (!g_hash_table_iter_next(&iter, &key, NULL))
            break;
        id = *(const RubatoTicket *)key;
        ticket = wait_for(table, id);
        if (ticket == NULL)
            continue;
        if (first == CALL_OK)
            first = ticket->status;
        g_hash_table_remove(table->tickets, &id);
    }
    pthread_mutex_unlock(&table->lock);
    return table_client_check_status(table->client, first, error);
}

bool rubato_kv_client_table_poll(RubatoKVClientTable *table, RubatoTicket id)
{
    g_return_val_if_fail(table != NULL, false);

    const Ticket *ticket;
    bool ended;

    pthread_mutex_lock(&table->lock);
    ticket = g_hash_table_lookup(table->tickets, &id);
    ended = ticket == NULL || ticket->ended;
    pthread_mutex_unlock(&table->lock);
    return ended;
}
