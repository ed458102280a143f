/* What servers keep of a worker's Adds, and waiting until it is less.
 *
 * Under a model that applies the Adds of a clock when the min clock passes it, servers keep them
 * until then. So a worker that only adds and clocks would fill their memory. Therefore its next Add
 * waits while they keep more than the table's max_kept_bytes of its earlier clocks. It waits by a
 * Get without keys, which a server answers once the min clock is high enough to release enough of
 * the kept Adds.
 *
 * Why that ends. The Adds of the present clock do not count, and of the earlier ones only those
 * that the min clock has not passed. The slowest worker has none of these, so it never waits here,
 * and each of its clocks lets others go on. Kept Adds take no room in the window: an Add is
 * acknowledged when it is kept. So the slowest worker's Add finds room as under any model, and the
 * Get without keys takes only the room of a header.
 *
 * Threads: the client's worker. Invariants: the clocks in `kept` ascend, and kept_bytes is their
 * sum. */
#include "tables/client/client_private.h"

typedef struct {
    uint64_t clock;
    uint64_t n_bytes;
} KeptClock;

/* A place in `kept`, which has room for more. */
#define CLOCK_BYTES (sizeof(KeptClock) + sizeof(KeptClock) / 2)

void table_client_count_kept(TableClient *client, const Slice *slices, uint32_t n_slices)
{
    const size_t row_bytes = client->route->row_bytes;

    for (uint32_t i = 0; i < n_slices; i++) {
        const RubatoKeys *const keys = &slices[i].keys;
        const size_t key_bytes = keys->keys == NULL ? 0 : sizeof(RubatoKey);

        client->adding_bytes += keys->n * (key_bytes + row_bytes) + TABLE_CLIENT_ADD_BYTES;
    }
}

void table_client_keep(TableClient *client)
{
    const KeptClock kept = { client->clock, client->adding_bytes + CLOCK_BYTES };

    client->adding_bytes = 0;
    client->kept_bytes += kept.n_bytes;
    client->untold_bytes += kept.n_bytes;
    if (client->kept == NULL)
        client->kept = g_array_new(FALSE, FALSE, sizeof(KeptClock));
    g_array_append_val(client->kept, kept);
}

void table_client_drop_kept(TableClient *client, uint64_t min_clock)
{
    guint n = 0;

    for (; n < client->kept->len; n++) {
        const KeptClock *kept = &g_array_index(client->kept, KeptClock, n);

        if (kept->clock >= min_clock)
            break;
        client->kept_bytes -= kept->n_bytes;
    }
    if (n > 0)
        g_array_remove_range(client->kept, 0, n);
}

/* The lowest min clock at which no more than the limit is kept. */
static uint64_t find_clock(const TableClient *client)
{
    uint64_t left = client->kept_bytes;
    guint i = 0;

    while (left > client->route->max_kept_bytes)
        left -= g_array_index(client->kept, KeptClock, i++).n_bytes;
    return g_array_index(client->kept, KeptClock, i - 1).clock + 1;
}

/* Waits until a part has reached a min clock; workers ask different parts. */
static bool wait_for_clock(TableClient *client, uint64_t clock, GError **error)
{
    const TableRoute *route = client->route;
    const Slice slice = { .part = client->rank % route->map->n_parts };
    Resending resending = { 0 };
    Call call;
    Message message = { .kind = MESSAGE_GET,
                        .epoch = route->epoch,
                        .table = route->table,
                        .part = slice.part,
                        .node = route->office->self,
                        .call = &call,
                        .end = message_end_call,
                        .request = { .worker = client->rank, .clock = clock } };

    do {
        if (!table_client_wait_room(client, &slice, 1, error))
            return false;
        message.server = table_route_server(route, &slice);
        message.status = CALL_OK;
        message.is_answered = false;
        message.node_clock = table_client_clock_to_await(client, clock);
        call_begin(&call, NULL);
        call_add_parts(&call, 1);
        post_office_ask(route->office, &message);
        if (!post_office_is_local(route->office, message.server)) {
            post_office_flush(route->office);
            table_client_cancel_if_late(client);
        }
        call_sent(&call);
        if (table_client_wait_clock(client, &call, clock, error))
            return true;
    } while (table_client_may_send_again(client, &call, &resending, error));
    return false;
}

bool table_client_wait_kept(TableClient *client, GError **error)
{
    const TableRoute *route = client->route;
    NodeClock slowest;
    uint32_t node;
    uint64_t clock;

    if (clocks_slowest(route->clocks, &slowest, &node)) {
        table_client_tell_lazy_clock(client); /* that clock, or a later one */
        table_client_drop_kept(client, slowest.clock);
    }
    if (client->kept_bytes <= route->max_kept_bytes)
        return true;
    clock = find_clock(client);
    if (!wait_for_clock(client, clock, error))
        return false;
    table_client_drop_kept(client, clock);
    return true;
}
