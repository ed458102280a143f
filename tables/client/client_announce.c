/* Announcing the keys of iterations ahead, for models that take announcements.
 *
 * The next iteration in one. A worker that announces one iteration ahead would send each part three
 * messages, one right after the other: the keys of the next iteration, its own clock, and a Get of
 * the same keys. In a run of one process, one message to each part does all three. The part handles
 * them in this order, so it sees what it would see otherwise. The keys are checked and cut once,
 * and the server's token is taken once instead of three times.
 *
 * It is only done if the keys reach all parts. Others would not hear of the clock.
 *
 * If rows can be read beside owners (joint_several.c), and the other workers have come far enough,
 * the worker owns the servers only to tell them the keys and the clock, and reads the rows then.
 *
 * No part moves while the messages are posted, so none is answered CALL_MOVED, and none is sent
 * twice.
 *
 * Threads: the client's worker. */
#include "tables/client/client_private.h"

static Message announcement(const TableClient *client, uint32_t rank, const Slice *slice,
                            uint64_t iteration)
{
    const TableRoute *route = client->route;

    return (Message){ .kind = MESSAGE_ANNOUNCE,
                      .status = CALL_OK,
                      .epoch = route->epoch,
                      .table = route->table,
                      .part = slice->part,
                      .server = part_map_server(route->map, slice->part),
                      .node = route->office->self,
                      .request = { .worker = rank, .clock = iteration, .keys = slice->keys } };
}

static bool announce_slices(TableClient *client, uint32_t rank, uint64_t iteration,
                            const Slice *slices, uint32_t n_slices)
{
    const TableRoute *const route = client->route;
    uint32_t slice = 0;
    bool is_sent = true;

    for (uint32_t part = 0; part < route->map->n_parts && is_sent; part++) {
        /* the slices are in the order of their parts; a part without keys gets an empty one */
        const Slice none = { .part = part };
        const bool has_keys = slice < n_slices && slices[slice].part == part;
        Message message =
            announcement(client, rank, has_keys ? &slices[slice++] : &none, iteration);

        is_sent = table_client_tell_change(client, &message);
    }
    return is_sent;
}

bool table_client_announce_of(TableClient *client, uint32_t rank, uint64_t iteration,
                              const RubatoKeys *keys)
{
    Slicer slicer;
    uint32_t n_slices;
    bool is_sent;

    slicer_init(&slicer, client->route->partition);
    n_slices = slicer_cut(&slicer, client->route->partition, keys->keys, keys->n);
    is_sent = n_slices != SLICER_NO_MEMORY &&
              announce_slices(client, rank, iteration, slicer.slices, n_slices);
    slicer_clear(&slicer);
    return is_sent;
}

bool table_client_announce(TableClient *client, uint64_t iteration, const RubatoKey *keys, size_t n,
                           GError **error)
{
    const TableRoute *route = client->route;
    PostOffice *office = route->office;
    uint32_t n_slices;
    bool is_sent;

    if (!table_client_check(client, keys, n, error) || !table_client_check_cancelled(client, error))
        return false;
    if (!route->traits->takes_announcements)
        return true;
    if (!table_client_wait_room_of_all(client, error))
        return false;
    table_client_tell_noted(client);
    n_slices = slicer_cut(&client->slicer, route->partition, keys, n);
    if (n_slices == SLICER_NO_MEMORY)
        return table_client_fail_memory(client, error);
    if (!table_client_begin_sending(client, error))
        return false;
    is_sent = announce_slices(client, client->rank, iteration, client->slicer.slices, n_slices);
    table_client_end_sending(client);
    if (G_UNLIKELY(route->map->n_replicas > 0))
        table_client_cancel_if_late(client);
    post_office_flush(office);
    if (client->history != NULL)
        table_client_note_keys(client, HISTORY_ANNOUNCE, iteration,
                               &(RubatoKeys){ .keys = keys, .n = keys == NULL ? 0 : n });
    return is_sent || table_client_fail_memory(client, error);
}

bool table_client_may_iterate(TableClient *client, const RubatoKey *keys, size_t n,
                              uint32_t *n_slices)
{
    const TableRoute *route = client->route;

    if (!route->traits->takes_announcements || !route->traits->per_worker_clocks ||
        route->office->network != NULL || route->map->n_replicas > 0 ||
        table_client_is_cancelled(client) || !table_client_check_owner(client, NULL))
        return false;
    table_client_tell_noted(client);
    *n_slices = slicer_cut(&client->slicer, route->partition, keys, n);
    return *n_slices == route->map->n_parts;
}

void table_client_note_read(TableClient *client, const RubatoKeys *keys, const void *values,
                            uint64_t begun_ns)
{
    if (G_UNLIKELY(client->history != NULL))
        table_client_note_get(client, keys, values);
    table_client_note_time(client, "Clock and Get", begun_ns, keys->n);
}

void table_client_note_begun(TableClient *client, const Call *call, const RubatoKeys *keys,
                             const void *values, uint64_t begun_ns)
{
    table_client_count_get(client, call);
    client->unheard_bytes = 0;
    table_client_note_read(client, keys, values, begun_ns);
}

/* A worker that waits for this worker's clock sends its Get when the clock is shown. So the clock
 * is shown when all servers have been told it, or have it in their mailboxes. Otherwise the other's
 * Get could come first, and a server would have to look for its keys among those of unfinished
 * iterations, and perhaps to keep it.
 *
 * Two workers never wait for each other so. Let a worker with the clock x, not shown yet, wait for
 * one with the clock y, not shown yet either. That one has shown y - 1, and y - 1 < x - staleness,
 * so y is below x. Without staleness y may be x: then each would wait until the other had told its
 * servers, and so the clock is shown before. (Besides, a worker only looks for some time.) */
static bool shows_late(const TableClient *client)
{
    return client->route->spec->staleness > 0;
}

bool table_client_iterate(TableClient *client, const RubatoKey *keys, size_t n, uint32_t n_slices,
                          void *values, GError **error)
{
    const RubatoKeys all = { .keys = keys, .n = n };
    TableAsk ask = { .kind = MESSAGE_ITERATE,
                     .row_bytes = client->route->row_bytes,
                     .output = values };
    const uint64_t begun_ns = table_client_time(client);
    bool has_begun;
    Call call;

    if (G_UNLIKELY(client->history != NULL))
        table_client_note_keys(client, HISTORY_ANNOUNCE, client->clock + 1, &all);
    table_client_count_clock(client);
    if (!shows_late(client))
        table_client_show_clock(client);
    table_client_wait_before_iterating(client, n);
    has_begun = table_client_begin_jointly(client, keys, n);
    if (has_begun) {
        if (shows_late(client))
            table_client_show_clock(client);
        if (table_client_get_jointly(client, keys, n, values)) {
            table_client_note_read(client, &all, values, begun_ns);
            return true;
        }
        ask.kind = MESSAGE_GET;
    }
    call_begin(&call, NULL);
    call.spinner = &client->spinner;
    table_client_send(client, &ask, client->slicer.slices, n_slices, &call, client->messages);
    if (shows_late(client) && !has_begun)
        table_client_show_clock(client);
    call_sent(&call);
    if (!table_client_wait(client, &call, error))
        return false;
    table_client_note_begun(client, &call, &all, values, begun_ns);
    return true;
}
