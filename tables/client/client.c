/* The worker's side of a table: it checks the keys, slices them by partition, sends a slice to each
 * server, and waits (client_wait.c). Here are Get and Add; what is rarer is in client_ask.c.
 *
 * Parts for other nodes leave first, so that they are under way while this thread handles the local
 * ones itself. Workers share only the process cache here.
 *
 * Threads: the client's worker; table_client_count_late_get from any. */
#include "tables/client/client_private.h"
#include "tables/process_cache.h"

TableClient *table_client_new(const TableRoute *route, uint32_t rank)
{
    TableClient *client = g_new0(TableClient, 1);

    client->route = route;
    client->owner = caller_number();
    client->n_forks = caller_n_forks();
    client->rank = rank;
    client->lead = table_route_lead(route);
    slicer_init(&client->slicer, route->partition);
    part_map_join(route->map, &client->sender);
    client->sent_clock = UINT64_MAX;
    spinner_init(&client->spinner);
    spinner_init(&client->turns);
    if (route->clocks != NULL)
        spinner_share(&client->spinner, route->clocks->n_workers);
    client->messages = g_new0(Message, route->map->n_parts + route->office->n_servers);
    pthread_mutex_init(&client->late_lock, NULL);
    if (route->history != NULL)
        table_client_begin_history(client);
    table_client_begin_watch(client);
    return client;
}

void table_client_free(TableClient *client)
{
    if (client == NULL)
        return;
    table_client_end_history(client);
    part_map_leave(client->route->map, &client->sender);
    pthread_mutex_destroy(&client->late_lock);
    slicer_clear(&client->slicer);
    g_clear_pointer(&client->kept, g_array_unref);
    g_free(client->messages);
    g_free(client);
}

/* ---- checks ---- */

static bool fail_range(const TableClient *client, RubatoKey wrong, GError **error)
{
    const RubatoTableSpec *spec = client->route->spec;

    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_RANGE,
                "table %s: key %" G_GUINT64_FORMAT " is outside its range %" G_GUINT64_FORMAT
                " to %" G_GUINT64_FORMAT,
                spec->name, wrong, spec->first_key, spec->first_key + (spec->n_keys - 1));
    return false;
}

static bool check_count(const TableClient *client, size_t n, GError **error)
{
    if (n <= UINT32_MAX)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "table %s: %zu keys in one call; ask for %u at most", client->route->spec->name, n,
                UINT32_MAX);
    return false;
}

bool table_client_check(const TableClient *client, const RubatoKey *keys, size_t n, GError **error)
{
    RubatoKey wrong = 0;

    return table_client_check_owner(client, error) && check_count(client, n, error) &&
           (partition_holds(client->route->partition, keys, n, &wrong) ||
            fail_range(client, wrong, error));
}

bool table_client_check_run(const TableClient *client, RubatoKey first, size_t n, GError **error)
{
    const Partition *partition = client->route->partition;
    RubatoKey wrong = 0;

    if (!table_client_check_owner(client, error))
        return false;
    if (!partition->dense && n > 0 && first > UINT64_MAX - (n - 1)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_RANGE,
                    "table %s: %zu keys from %" G_GUINT64_FORMAT " go past the last key there is",
                    client->route->spec->name, n, first);
        return false;
    }
    /* a run over a hashed table becomes a list */
    if (partition->kind == PARTITION_HASH && !check_count(client, n, error))
        return false;
    return partition_holds_run(partition, first, n, &wrong) || fail_range(client, wrong, error);
}

bool table_client_check_keys(const TableClient *client, const RubatoKeys *keys, GError **error)
{
    return keys->keys == NULL ? table_client_check_run(client, keys->first, keys->n, error)
                              : table_client_check(client, keys->keys, keys->n, error);
}

/* ---- sending ---- */

/* A request registered after the canceller's sweep would wait for ever. One of the two sees the
 * other: the flag is set before the sweep, and read after the registration. */
void table_client_cancel_if_late(TableClient *client)
{
    if (table_client_is_cancelled(client))
        post_office_cancel(client->route->office, client->route->epoch);
}

/* The slice with which a worker's large requests to local servers begin. If all workers began with
 * the first server, they would meet there in each iteration. Small requests all begin there:
 * workers that follow one another from server to server then meet less. */
static uint32_t first_slice(const TableClient *client, uint32_t n_slices)
{
    const Clocks *const clocks = client->route->clocks;

    if (clocks == NULL)
        return 0;
    return (uint32_t)((uint64_t)(client->rank - clocks->first_rank) % clocks->n_workers * n_slices /
                      clocks->n_workers);
}

static inline bool is_large(const Slice *slices, uint32_t n_slices)
{
    return n_slices > 1 && slices[0].keys.n >= TABLE_CLIENT_MANY_KEYS;
}

/* Asks a server of this node. */
static inline __attribute__((always_inline)) void ask_here(const TableClient *client,
                                                           const TableAsk *ask, Message *message)
{
    if (ask->input != NULL && G_UNLIKELY(client->route->map->n_replicas > 0))
        table_client_ask_replicated(client, message);
    else
        post_office_ask(client->route->office, message);
}

/* Sends the slices from begin to end that go to local servers. */
static inline __attribute__((always_inline)) void send_local_slices(
    const TableClient *client, const TableAsk *ask, const Slice *slices, uint32_t begin,
    uint32_t end, Call *call, Message *messages, uint64_t node_clock)
{
    PostOffice *office = client->route->office;

    for (uint32_t i = begin; i < end; i++)
        if (post_office_is_local(office, messages[i].server)) {
            table_client_set_message(&messages[i], client, ask, &slices[i], call);
            messages[i].node_clock = node_clock;
            ask_here(client, ask, &messages[i]);
        }
}

/* Not inline, so that small requests do without its registers. */
static __attribute__((noinline)) void send_large_slices(const TableClient *client,
                                                        const TableAsk *ask, const Slice *slices,
                                                        uint32_t n_slices, Call *call,
                                                        Message *messages, uint64_t node_clock)
{
    const uint32_t first = first_slice(client, n_slices);

    send_local_slices(client, ask, slices, first, n_slices, call, messages, node_clock);
    send_local_slices(client, ask, slices, 0, first, call, messages, node_clock);
}

/* Looks up each server once, because its part may move meanwhile. Called with a constant kind where
 * it matters. */
static inline __attribute__((always_inline)) void send_slices(TableClient *client,
                                                              const TableAsk *ask,
                                                              const Slice *slices,
                                                              uint32_t n_slices, Call *call,
                                                              Message *messages)
{
    const TableRoute *route = client->route;
    PostOffice *office = route->office;
    const bool reads = ask->kind == MESSAGE_GET || ask->kind == MESSAGE_ADD_GET;
    const uint64_t node_clock = reads ? table_client_clock_to_bring(client, ask->is_high) : 0;
    bool sent_away = false;

    call_add_parts(call, n_slices);
    if (n_slices == 1) { /* as most small requests have: no loops */
        messages[0].server = table_route_server(route, &slices[0]);
        if (G_LIKELY(post_office_is_local(office, messages[0].server))) {
            table_client_set_message(&messages[0], client, ask, &slices[0], call);
            messages[0].node_clock = node_clock;
            ask_here(client, ask, &messages[0]);
            return;
        }
    }
    for (uint32_t i = 0; i < n_slices; i++) {
        messages[i].server = table_route_server(route, &slices[i]);
        if (!post_office_is_local(office, messages[i].server)) {
            table_client_set_message(&messages[i], client, ask, &slices[i], call);
            if (reads && route->collects_clocks && !ask->is_high)
                messages[i].node_clock = clocks_own(route->clocks);
            post_office_ask(office, &messages[i]);
            sent_away = true;
        }
    }
    if (sent_away) {
        post_office_flush(office);
        table_client_cancel_if_late(client);
    }
    if (G_UNLIKELY(is_large(slices, n_slices))) {
        const TableAsk copy = *ask; /* so that small requests keep theirs in registers */

        send_large_slices(client, &copy, slices, n_slices, call, messages, node_clock);
    } else
        send_local_slices(client, ask, slices, 0, n_slices, call, messages, node_clock);
}

void table_client_send_told(TableClient *client, const TableAsk *ask, const Slice *slices,
                            uint32_t n_slices, Call *call, Message *messages)
{
    if (!table_client_begin_sending(client, NULL)) {
        call_add_parts(call, 1);
        call_end_part(call, CALL_CANCELLED, UINT64_MAX);
        return;
    }
    send_slices(client, ask, slices, n_slices, call, messages);
    table_client_end_sending(client);
}

/* A model may keep all but Adds. */
void table_client_send(TableClient *client, const TableAsk *ask, const Slice *slices,
                       uint32_t n_slices, Call *call, Message *messages)
{
    if (ask->kind != MESSAGE_ADD)
        table_client_end_lateness(client);
    table_client_send_told(client, ask, slices, n_slices, call, messages);
}

/* As most local calls have when they are sent. */
static bool has_ended_well(Call *call)
{
    return call_has_ended(call) &&
           atomic_load_explicit(&call->status, memory_order_relaxed) == CALL_OK;
}

/* The server of a part with replicas may be lost: see client_moved.c. This is a function of its own
 * so that the request of a usual Get is in no memory. */
static __attribute__((noinline, cold)) void send_replicated_get(TableClient *client,
                                                                uint32_t n_slices, void *values,
                                                                Call *call)
{
    const TableAsk ask = { .kind = MESSAGE_GET,
                           .row_bytes = client->route->row_bytes,
                           .output = values };

    table_client_send(client, &ask, client->slicer.slices, n_slices, call, client->messages);
}

static bool get_slices(TableClient *client, uint32_t n_slices, void *values, GError **error)
{
    const TableAsk ask = { .kind = MESSAGE_GET,
                           .row_bytes = client->route->row_bytes,
                           .output = values };
    Resending resending = { 0 };
    Call call;

    if (n_slices == SLICER_NO_MEMORY)
        return table_client_fail_memory(client, error);
again:
    if (!table_client_wait_room(client, client->slicer.slices, n_slices, error))
        return false;
    if (client->clock > client->lead) {
        table_client_end_lateness(client);
        table_client_wait_for_others(client, n_slices);
        if (client->route->takes_turns && client->turn_clock < client->clock)
            table_client_take_turn(client, client->slicer.slices, n_slices);
    }
    call_begin(&call, NULL);
    call.spinner = &client->spinner;
    if (G_UNLIKELY(client->route->map->n_replicas > 0))
        send_replicated_get(client, n_slices, values, &call);
    else
        send_slices(client, &ask, client->slicer.slices, n_slices, &call, client->messages);
    call_sent(&call);
    if (!has_ended_well(&call) && !table_client_wait(client, &call, error)) {
        if (table_client_may_send_again(client, &call, &resending, error))
            goto again;
        return false;
    }
    table_client_note_answered(client, &call, n_slices);
    return true;
}

/* False if there is no memory to send it. */
static inline __attribute__((always_inline)) bool tell_slice(TableClient *client,
                                                             const TableAsk *ask,
                                                             const Slice *slice)
{
    Message message;

    table_client_set_message(&message, client, ask, slice, NULL);
    message.server = table_route_server(client->route, slice);
    return table_client_tell_change(client, &message);
}

/* Tells servers the slices from begin to end. False if there is no memory to send one of them. */
static inline __attribute__((always_inline)) bool tell_slices(TableClient *client,
                                                              const TableAsk *ask,
                                                              const Slice *slices, uint32_t begin,
                                                              uint32_t end)
{
    bool is_sent = true;

    for (uint32_t i = begin; i < end && is_sent; i++)
        is_sent = tell_slice(client, ask, &slices[i]);
    return is_sent;
}

static __attribute__((noinline)) bool tell_large_slices(TableClient *client, const TableAsk *ask,
                                                        const Slice *slices, uint32_t n_slices)
{
    const uint32_t first = first_slice(client, n_slices);

    return tell_slices(client, ask, slices, first, n_slices) &&
           tell_slices(client, ask, slices, 0, first);
}

static bool add_slices(TableClient *client, uint32_t n_slices, const void *deltas, GError **error)
{
    const TableRoute *route = client->route;
    PostOffice *office = route->office;
    const TableAsk ask = { .kind = MESSAGE_ADD, .row_bytes = route->row_bytes, .input = deltas };
    const Slice *slices = client->slicer.slices;
    bool is_sent;

    if (n_slices == SLICER_NO_MEMORY)
        return table_client_fail_memory(client, error);
    if (table_client_defers(client)) {
        if (!table_client_defer(client, slices, n_slices, deltas, error))
            return false;
        client->stats.n_adds++;
        return true;
    }
    if (!table_client_wait_room(client, slices, n_slices, error) ||
        !table_client_begin_sending(client, error))
        return false;
    if (n_slices == 1)
        is_sent = tell_slice(client, &ask, &slices[0]);
    else if (G_UNLIKELY(is_large(slices, n_slices)))
        is_sent = tell_large_slices(client, &ask, slices, n_slices);
    else
        is_sent = tell_slices(client, &ask, slices, 0, n_slices);
    table_client_end_sending(client);
    if (!is_sent)
        return table_client_fail_memory(client, error);
    if (G_UNLIKELY(route->map->n_replicas > 0))
        table_client_cancel_if_late(client);
    post_office_flush_soon(office);
    table_client_count_add(client, slices, n_slices);
    client->stats.n_adds++;
    if (client->unheard_bytes < office->sizes.mailbox_bytes)
        return true;
    return table_client_fence(client, error);
}

static inline __attribute__((always_inline)) bool get_list(TableClient *client,
                                                           const RubatoKey *keys, size_t n,
                                                           void *values, GError **error)
{
    if (!table_client_check(client, keys, n, error))
        return false;
    if (n == 0)
        return true;
    if (client->route->joint != NULL && table_client_get_jointly(client, keys, n, values))
        return true;
    return get_slices(client, slicer_cut(&client->slicer, client->route->partition, keys, n),
                      values, error);
}

static inline __attribute__((always_inline)) bool get_run(TableClient *client, RubatoKey first,
                                                          size_t n, void *values, GError **error)
{
    if (!table_client_check_run(client, first, n, error))
        return false;
    if (n == 0)
        return true;
    return get_slices(client, slicer_cut_run(&client->slicer, client->route->partition, first, n),
                      values, error);
}

/* watched: of a client that is watched the same keys, which lie there since the request began: the
 * history would wait for a copy that is stored just before it is read in larger pieces. */
static inline __attribute__((always_inline)) bool add_list(TableClient *client,
                                                           const RubatoKeys *watched,
                                                           const RubatoKey *keys, size_t n,
                                                           const void *deltas, GError **error)
{
    const TableRoute *route = client->route;
    ProcessCache *cache = table_route_cache(route);
    bool added;

    if (!table_client_check(client, keys, n, error))
        return false;
    if (n == 0)
        return true;
    if (!table_client_wait_to_add(client, error))
        return false;
    client->adds_uncached |= cache == NULL;
    process_cache_begin_add(cache, &(RubatoKeys){ .keys = keys, .n = n }, deltas);
    added =
        (route->adds_jointly && table_client_add_jointly(client, keys, n, deltas)) ||
        add_slices(client, slicer_cut(&client->slicer, route->partition, keys, n), deltas, error);
    process_cache_end_add(cache);
    if (watched != NULL && client->history != NULL)
        table_client_note_add(client, watched, deltas, added);
    return added;
}

static inline __attribute__((always_inline)) bool add_run(TableClient *client,
                                                          const RubatoKeys *watched,
                                                          RubatoKey first, size_t n,
                                                          const void *deltas, GError **error)
{
    const TableRoute *route = client->route;
    ProcessCache *cache = table_route_cache(route);
    bool added;

    if (!table_client_check_run(client, first, n, error))
        return false;
    if (n == 0)
        return true;
    if (!table_client_wait_to_add(client, error))
        return false;
    client->adds_uncached |= cache == NULL;
    process_cache_begin_add(cache, &(RubatoKeys){ .first = first, .n = n }, deltas);
    added = add_slices(client, slicer_cut_run(&client->slicer, route->partition, first, n), deltas,
                       error);
    process_cache_end_add(cache);
    if (watched != NULL && client->history != NULL)
        table_client_note_add(client, watched, deltas, added);
    return added;
}

/* ---- the same, noted if the client is watched ---- */

static __attribute__((noinline)) bool get_watched(TableClient *client, const RubatoKeys *keys,
                                                  void *values, GError **error)
{
    const uint64_t begun_ns = table_client_time(client);
    const bool done = keys->keys != NULL ? get_list(client, keys->keys, keys->n, values, error)
                                         : get_run(client, keys->first, keys->n, values, error);

    if (done && keys->n > 0 && client->history != NULL)
        table_client_note_get(client, keys, values);
    if (done)
        table_client_note_time(client, "Get", begun_ns, keys->n);
    return done;
}

static __attribute__((noinline)) bool add_watched(TableClient *client, const RubatoKeys *keys,
                                                  const void *deltas, GError **error)
{
    const uint64_t begun_ns = table_client_time(client);
    const bool done = keys->keys != NULL
                          ? add_list(client, keys, keys->keys, keys->n, deltas, error)
                          : add_run(client, keys, keys->first, keys->n, deltas, error);

    if (done)
        table_client_note_time(client, "Add", begun_ns, keys->n);
    return done;
}

bool table_client_get(TableClient *client, const RubatoKey *keys, size_t n, void *values,
                      GError **error)
{
    if (table_client_is_watched(client))
        return get_watched(client, &(RubatoKeys){ .keys = keys, .n = n }, values, error);
    return get_list(client, keys, n, values, error);
}

bool table_client_get_run(TableClient *client, RubatoKey first, size_t n, void *values,
                          GError **error)
{
    if (table_client_is_watched(client))
        return get_watched(client, &(RubatoKeys){ .first = first, .n = n }, values, error);
    return get_run(client, first, n, values, error);
}

bool table_client_add(TableClient *client, const RubatoKey *keys, size_t n, const void *deltas,
                      GError **error)
{
    if (table_client_is_watched(client))
        return add_watched(client, &(RubatoKeys){ .keys = keys, .n = n }, deltas, error);
    return add_list(client, NULL, keys, n, deltas, error);
}

bool table_client_add_run(TableClient *client, RubatoKey first, size_t n, const void *deltas,
                          GError **error)
{
    if (table_client_is_watched(client))
        return add_watched(client, &(RubatoKeys){ .first = first, .n = n }, deltas, error);
    return add_run(client, NULL, first, n, deltas, error);
}

void table_client_send_add(TableClient *client, const TableAsk *ask, const RubatoKeys *keys,
                           uint32_t n_slices, const Slice *slices, Call *call, Message *messages)
{
    ProcessCache *cache = table_route_cache(client->route);

    client->sent_clock = client->clock;
    client->adds_uncached |= cache == NULL;
    process_cache_begin_add(cache, keys, ask->input);
    table_client_send(client, ask, slices, n_slices, call, messages);
    process_cache_end_add(cache);
    table_client_count_add(client, slices, n_slices);
    client->stats.n_adds++;
}

/* It cannot be sent again, so it goes as an Add goes while a part moves, and is never answered
 * CALL_MOVED. */
static bool add_get(TableClient *client, const RubatoKeys *keys, const void *deltas, void *values,
                    GError **error)
{
    const TableAsk ask = { .kind = MESSAGE_ADD_GET,
                           .row_bytes = client->route->row_bytes,
                           .input = deltas,
                           .output = values };
    uint32_t n_slices;
    Call call;

    if (!table_client_check_keys(client, keys, error))
        return false;
    if (keys->n == 0)
        return true;
    if (!table_client_wait_to_add(client, error))
        return false;
    n_slices = slicer_cut_keys(&client->slicer, client->route->partition, keys);
    if (n_slices == SLICER_NO_MEMORY)
        return table_client_fail_memory(client, error);
    if (!table_client_wait_room(client, client->slicer.slices, n_slices, error))
        return false;
    call_begin(&call, NULL);
    call.spinner = &client->spinner;
    table_client_send_add(client, &ask, keys, n_slices, client->slicer.slices, &call,
                          client->messages);
    call_sent(&call);
    const bool is_done = table_client_wait(client, &call, error);
    if (G_UNLIKELY(client->history != NULL))
        table_client_note_add_get(client, keys, deltas, values, is_done);
    if (!is_done)
        return false;
    table_client_note_answered(client, &call, n_slices);
    return true;
}

bool table_client_add_get(TableClient *client, const RubatoKeys *keys, const void *deltas,
                          void *values, GError **error)
{
    const uint64_t begun_ns = table_client_time(client);
    const bool done = add_get(client, keys, deltas, values, error);

    if (done)
        table_client_note_time(client, "AddGet", begun_ns, keys->n);
    return done;
}

/* ---- statistics ---- */

void table_client_count_get(TableClient *client, const Call *call)
{
    worker_stats_count_get(&client->stats, client->clock,
                           atomic_load_explicit(&call->min_clock, memory_order_relaxed));
}

void table_client_count_late_get(TableClient *client, uint64_t clock, const Call *call)
{
    pthread_mutex_lock(&client->late_lock);
    worker_stats_count_get(&client->late, clock,
                           atomic_load_explicit(&call->min_clock, memory_order_relaxed));
    pthread_mutex_unlock(&client->late_lock);
}

void table_client_add_stats(TableClient *client, RubatoWorkerStats *stats)
{
    rubato_worker_stats_add(stats, &client->stats);
    pthread_mutex_lock(&client->late_lock);
    rubato_worker_stats_add(stats, &client->late);
    pthread_mutex_unlock(&client->late_lock);
}
