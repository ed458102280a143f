/* Deferred Adds, and turns.
 *
 * If a table's model applies the Adds of a clock together, and all workers are in this process, an
 * Add is not sent: it waits in io/net/deferred_adds.h until a request brings a clock that makes it
 * due. A worker that sends an Add all the same, for its ticket or its answer, or calls a handler
 * that writes, sends all of its Adds up to its next clock: their order stays. While a part moves
 * nothing is deferred, as nothing is sent. So a part that moves lacks no Add of a clock that had
 * passed when it left its server.
 *
 * Turns. Adds of a clock are applied in the order of their workers. If the first worker to come
 * after the clock applied all of them, it would fetch the rows and deltas of all other workers from
 * the caches of their processors, and they would fetch the rows back: that may take longer than all
 * else in an iteration. So before its first Get of a clock a worker waits for its turn and has each
 * part take its own Adds, by a Get without keys. Then it waits for those behind it. The last
 * worker's Get takes its Adds along.
 *
 * Workers go through the parts in the same order. So a worker whose turn it is at the first part of
 * its Get does not wait for its turn at the others: while it is at the first, those before it come
 * on at the next.
 *
 * A Get of all parts has them take the Adds of its worker at once, in one turn, and the last
 * worker's reads the rows before it gives the servers back (server_joint.c).
 *
 * These waits are short, and never needed: what a worker does not have applied, the next Get does.
 * Workers that do not come in time, for example because they only add, make them seldom, as for all
 * that polls (spinner.h). If there are more workers than processors, all of this is left out.
 *
 * A worker that waits has rows fetched meanwhile: those of its last Add, and those that its Get
 * reads. Then its turn, for which others wait, is shorter. It does not own the servers, so it goes
 * by where the rows were when it last did. That may be wrong, and then nothing is gained: a fetch
 * changes nothing, and does not fail.
 *
 * Threads: the client's worker. */
#include "io/net/processors.h"
#include "tables/client/client_private.h"

/* The most queues of a table in a task; beyond that Adds are sent. */
#define MOST_QUEUES ((uint64_t)1 << 14)

/* With more parts the turns take longer than they save. */
#define MOST_PARTS_IN_TURN 8u

void table_route_defer_adds(TableRoute *route)
{
    const uint64_t n_workers = route->clocks->n_workers;
    const uint32_t n_parts = route->map->n_parts;

    if (!route->lazy_clocks || !route->traits->applies_by_clock || n_workers == 0 ||
        route->spec->shape != RUBATO_SHAPE_EVEN || n_parts > MOST_QUEUES / n_workers)
        return;
    route->deferred =
        deferred_adds_new(n_parts, (uint32_t)n_workers, clocks_own_address(route->clocks));
    route->takes_turns = route->deferred != NULL && n_workers > 1 &&
                         route->spec->aggregate == RUBATO_AGGREGATE_NONE &&
                         n_workers <= processors_count() && n_parts <= MOST_PARTS_IN_TURN;
}

bool table_client_defer(TableClient *client, const Slice *slices, uint32_t n_slices,
                        const void *deltas, GError **error)
{
    const TableRoute *route = client->route;
    size_t n_bytes = 1;

    if (!table_client_check_cancelled(client, error) || !table_client_begin_sending(client, error))
        return false;
    for (uint32_t i = 0; i < n_slices && n_bytes > 0; i++) {
        const RubatoRequest request = {
            .worker = client->rank,
            .clock = client->clock,
            .keys = slices[i].keys,
            .input = (const char *)deltas + slices[i].row * route->row_bytes,
        };

        n_bytes = deferred_adds_push(route->deferred, slices[i].part, &request, route->row_bytes);
        client->adding_bytes += n_bytes;
    }
    table_client_end_sending(client);
    return n_bytes > 0 || table_client_fail_memory(client, error);
}

/* ---- turns ---- */

static bool wait_for_turn(TableClient *client, uint32_t part, uint64_t turn, SpinnerEnd *end)
{
    const DeferredAdds *adds = client->route->deferred;

    if (deferred_adds_turn(adds, part) >= turn)
        return true;
    const uint64_t begun_ns = worker_stats_now_ns();
    bool is_due = false;

    do
        for (unsigned i = 0; i < client->turns.n_looks && !is_due; i++) {
            is_due = deferred_adds_turn(adds, part) >= turn;
            spin_pause();
        }
    while (!is_due && spinner_go_on(&client->turns, end));
    client->stats.get_wait_ns += worker_stats_now_ns() - begun_ns;
    table_client_note_wait(client, 0, begun_ns);
    return is_due;
}

/* Once for each Get. Rows of a run are not fetched: the processor does that by itself. */
void table_client_fetch_rows(TableClient *client, const JointAsk *ask)
{
    const DeferredAdds *const deferred = client->route->deferred;
    const uint64_t own = deferred_adds_turn_of(deferred, client->clock - 1, client->rank);

    if (client->fetched_clock == client->clock || client->places.n == 0)
        return;
    client->fetched_clock = client->clock;
    if (deferred_adds_turn(deferred, 0) <= own) {
        const RubatoKeys adds = deferred_adds_last_keys(deferred, client->rank, client->clock - 1);

        if (adds.keys != NULL)
            row_places_fetch(&client->places, adds.keys, MIN(adds.n, JOINT_MOST_KEYS));
    }
    row_places_fetch(&client->places, ask->keys, ask->n_keys);
}

/* Has a part take this worker's Adds. The answer says nothing: if the task is cancelled, the Get
 * that follows tells, and if the part is not there, it takes them. */
static void take_own(TableClient *client, uint32_t part, uint64_t node_clock)
{
    const TableRoute *route = client->route;
    const TableAsk ask = { .kind = MESSAGE_GET };
    Message *const message = client->messages;
    Call call;

    call_begin(&call, NULL);
    call.spinner = &client->spinner;
    call_add_parts(&call, 1);
    table_client_set_message(message, client, &ask, &(Slice){ .part = part }, &call);
    message->server = part_map_server(route->map, part);
    message->node_clock = node_clock;
    post_office_ask(route->office, message);
    call_sent(&call);
    table_client_wait_ended(client, &call, 0, &client->stats.get_wait_ns);
}

static bool is_among(uint32_t part, const Slice *slices, uint32_t n_slices)
{
    for (uint32_t i = 0; i < n_slices; i++)
        if (slices[i].part == part)
            return true;
    return false;
}

void table_client_take_turn(TableClient *client, const Slice *slices, uint32_t n_slices)
{
    const TableRoute *route = client->route;
    const uint32_t n_parts = route->map->n_parts, n_workers = route->clocks->n_workers;
    const bool is_last = client->rank + 1 == n_workers;
    const uint64_t node_clock = clocks_own(route->clocks);
    const uint64_t own = deferred_adds_turn_of(route->deferred, client->clock - 1, client->rank);
    const uint64_t all = deferred_adds_turn_of(route->deferred, client->clock, 0);
    /* a large Get may begin with another part, and Adds of others would cost it much */
    const bool waits_for_all = slices[0].keys.n >= TABLE_CLIENT_MANY_KEYS;
    SpinnerEnd end;

    client->turn_clock = client->clock;
    if (node_clock < client->clock || !spinner_begin(&client->turns, &end))
        return;
    for (uint32_t part = 0; part < n_parts; part++) {
        const bool get_takes = is_last && is_among(part, slices, n_slices);

        if (get_takes && part != slices[0].part && !waits_for_all)
            continue;
        if (!wait_for_turn(client, part, own, &end))
            return;
        if (!get_takes)
            take_own(client, part, node_clock);
    }
    for (uint32_t i = 0; i < (waits_for_all ? n_slices : 1) && !is_last; i++)
        if (!wait_for_turn(client, slices[i].part, all, &end))
            return;
    spinner_found(&client->turns);
}

static bool wait_for_joint_turn(TableClient *client, const JointAsk *ask, uint32_t part,
                                uint64_t turn, SpinnerEnd *end)
{
    if (deferred_adds_turn(client->route->deferred, part) >= turn)
        return true;
    table_client_fetch_rows(client, ask);
    return wait_for_turn(client, part, turn, end);
}

/* The turn comes at all parts before any of them takes Adds, for otherwise those of others would be
 * taken along. */
JointTurn table_client_take_turn_jointly(TableClient *client, const JointAsk *ask,
                                         uint64_t *min_clock)
{
    const TableRoute *route = client->route;
    const uint32_t n_parts = route->map->n_parts;
    const bool is_last = client->rank + 1 == route->clocks->n_workers;
    const uint64_t own = deferred_adds_turn_of(route->deferred, client->clock - 1, client->rank);
    const uint64_t all = deferred_adds_turn_of(route->deferred, client->clock, 0);
    JointAsk taking = *ask;
    SpinnerEnd end;

    taking.places = &client->places;
    client->turn_clock = client->clock;
    if (ask->node_clock < client->clock || !spinner_begin(&client->turns, &end))
        return JOINT_TURN_MISSED;
    for (uint32_t part = 0; part < n_parts; part++)
        if (!wait_for_joint_turn(client, ask, part, own, &end))
            return JOINT_TURN_MISSED;
    if (!is_last)
        taking.values = NULL;
    if (!route->joint->take_turn(route, &taking, min_clock))
        return JOINT_TURN_MISSED;
    for (uint32_t part = 0; part < n_parts && !is_last; part++)
        if (!wait_for_joint_turn(client, ask, part, all, &end))
            return JOINT_TURN_MISSED;
    spinner_found(&client->turns);
    return is_last ? JOINT_TURN_READ : JOINT_TURN_TAKEN;
}
