/* Get, Add and the begin of an iteration at all parts of a table at once: see tables/joint.h.
 *
 * A single worker waits for nothing here. What has to wait, for its turn or for room, goes the
 * usual way. One of several workers first gives the others a moment, and then its turn.
 *
 * Threads: the client's worker. */
#include <assert.h>

#include "tables/client/client_private.h"

static_assert(JOINT_MOST_KEYS <= DEFERRED_ADDS_MOST_WHOLE, "an Add of so many keys may be whole");

/* So many Gets of a worker lie between two that open the gates of servers again. Who closes them
 * has to wait for readers, and should not have to for each of its requests. */
#define GETS_BEFORE_OPENING 32u

/* So many Gets, or Adds, lie between two that make the tokens of all servers one. Who wants one of
 * the servers alone, as a request of few keys does, has to undo that. */
#define ASKS_BEFORE_LENDING 32u

/* Several workers cut Adds of more values, so that one can be at each server. */
#define MOST_SHARED_VALUES 4096u

/* With 1,000 keys an iteration takes longer with that than without. */
#define MOST_FETCHED_TO_ADD 256u

static bool is_worth_it(const TableRoute *route, size_t n)
{
    return n >= route->least_joint_keys && n <= MIN(route->most_joint_keys, JOINT_MOST_KEYS);
}

/* Where Adds are deferred a Get may become the owner, and has those applied that are due. */
bool table_client_may_read_jointly(const TableRoute *route, size_t n)
{
    const size_t most = route->takes_turns        ? JOINT_MOST_KEYS_IN_TURN
                        : route->deferred != NULL ? JOINT_MOST_KEYS
                        : route->reads_beside     ? JOINT_MOST_KEYS_BESIDE
                                                  : JOINT_MOST_KEYS_TO_READ;

    return n >= route->least_joint_keys && n <= MIN(route->most_joint_keys, most);
}

static bool lends_now(const TableClient *client, uint64_t n_asks)
{
    return n_asks % ASKS_BEFORE_LENDING == 0 && client->route->map->n_parts > 1;
}

/* Whether an Add may be made at all parts at once. Those that are deferred may not any more if an
 * earlier one was sent. */
static bool may_add(const TableClient *client, size_t n)
{
    const TableRoute *const route = client->route;

    if (!is_worth_it(route, n) || table_client_is_cancelled(client))
        return false;
    return route->defers_jointly
               ? table_client_defers(client)
               : route->clocks->n_workers == 1 || n * route->spec->width <= MOST_SHARED_VALUES;
}

/* Whether a Get can be answered as far as the client knows, and needs no turn. */
static bool may_get(const TableClient *client)
{
    return !table_client_is_cancelled(client) && table_client_others_have_come(client) &&
           (!client->route->takes_turns || client->turn_clock == client->clock);
}

/* A Get that shares the servers with those of other workers. It waits for them as any other one
 * does before it is sent: see client_ahead.c and client_deferred.c. */
static bool get_shared(TableClient *client, const RubatoKey *keys, size_t n, void *values,
                       uint64_t *min_clock)
{
    const TableRoute *const route = client->route;
    const bool is_ahead = client->clock > client->lead;
    JointTurn turn = JOINT_TURN_TAKEN;
    JointAsk ask = { .worker = client->rank,
                     .clock = client->clock,
                     .keys = keys,
                     .n_keys = n,
                     .values = values,
                     .places = &client->places,
                     .lends = lends_now(client, client->stats.n_gets),
                     .admits_readers = client->stats.n_gets % GETS_BEFORE_OPENING == 0 };

    if (is_ahead && route->traits->takes_announcements && !table_client_others_have_come(client))
        return false; /* it may be answered all the same */
    if (is_ahead && route->takes_turns && !table_client_others_have_come(client))
        table_client_fetch_rows(client, &ask);
    if (is_ahead && !table_client_wait_until_others_come(client))
        return false;
    if (table_client_is_cancelled(client))
        return false;
    ask.node_clock = clocks_own(route->clocks);
    if (is_ahead) /* the others have come, though the node's clock may follow later */
        ask.node_clock = MAX(ask.node_clock, client->clock - client->lead);
    if (route->takes_turns && client->turn_clock < client->clock)
        turn = table_client_take_turn_jointly(client, &ask, min_clock);
    return turn == JOINT_TURN_READ ||
           (turn == JOINT_TURN_TAKEN && route->joint->get(route, &ask, min_clock));
}

static bool get_alone(TableClient *client, const RubatoKey *keys, size_t n, void *values,
                      uint64_t *min_clock)
{
    const TableRoute *const route = client->route;

    if (!may_get(client))
        return false;
    const JointAsk ask = { .worker = client->rank,
                           .clock = client->clock,
                           .node_clock = table_client_clock_to_tell(client),
                           .keys = keys,
                           .n_keys = n,
                           .values = values };

    return route->joint->get(route, &ask, min_clock);
}

bool table_client_get_jointly(TableClient *client, const RubatoKey *keys, size_t n, void *values)
{
    const TableRoute *const route = client->route;
    uint64_t min_clock;
    Call call;

    if (!table_client_may_read_jointly(route, n) ||
        !(route->clocks->n_workers > 1 ? get_shared(client, keys, n, values, &min_clock)
                                       : get_alone(client, keys, n, values, &min_clock)))
        return false;
    call_begin(&call, NULL);
    call_note_clock(&call, min_clock);
    table_client_note_answered(client, &call, route->map->n_parts);
    return true;
}

/* While the map is closed nothing is sent: who asks goes the usual way, and waits. */
static bool begin_sending(TableClient *client)
{
    PartMap *const map = client->route->map;

    return part_map_begin(map, &client->sender) || part_map_begin_slowly(map, &client->sender);
}

/* The servers have the clock before the worker's node: nobody else waits for it. */
bool table_client_iterate_jointly(TableClient *client, const RubatoKey *keys, size_t n,
                                  void *values)
{
    const TableRoute *const route = client->route;
    const RubatoKeys all = { .keys = keys, .n = n };
    const JointAsk ask = { .worker = client->rank,
                           .clock = client->clock + 1,
                           .keys = keys,
                           .n_keys = n,
                           .values = values,
                           .begins_iteration = true };
    const uint64_t begun_ns = table_client_time(client);
    uint64_t min_clock;
    bool has_begun;
    Call call;

    if (route->joint == NULL || route->clocks->n_workers > 1 ||
        !route->traits->takes_announcements || !is_worth_it(route, n) ||
        table_client_is_cancelled(client) || !table_client_check_owner(client, NULL) ||
        !begin_sending(client))
        return false;
    has_begun = route->joint->get(route, &ask, &min_clock);
    table_client_end_sending(client);
    if (!has_begun)
        return false;
    call_begin(&call, NULL);
    call_note_clock(&call, min_clock);
    if (G_UNLIKELY(client->history != NULL))
        table_client_note_keys(client, HISTORY_ANNOUNCE, ask.clock, &all);
    table_client_count_clock(client);
    table_client_show_clock(client);
    table_client_note_begun(client, &call, &all, values, begun_ns);
    return true;
}

bool table_client_begin_jointly(TableClient *client, const RubatoKey *keys, size_t n)
{
    const TableRoute *const route = client->route;
    const JointAsk ask = { .worker = client->rank,
                           .clock = client->clock,
                           .keys = keys,
                           .n_keys = n,
                           .lends = lends_now(client, client->stats.n_gets) };
    bool has_begun;

    if (!route->reads_beside || n < JOINT_LEAST_KEYS || !table_client_may_read_jointly(route, n) ||
        !table_client_others_have_come(client) || !begin_sending(client))
        return false;
    has_begun = route->joint->begin(route, &ask, client->slicer.slices);
    table_client_end_sending(client);
    return has_begun;
}

/* Another worker may be the owner meanwhile, and waits for this one less long. The rows were read
 * before, but their lines may be in both processors' caches, and have to leave the other one. */
void table_client_fetch_to_add(const TableClient *client, const RubatoKey *keys, size_t n)
{
    const RowPlaces *const places = &client->places;

    if (!client->route->reads_beside || places->n == 0 || n > MOST_FETCHED_TO_ADD)
        return;
    for (size_t i = 0; i < n; i++)
        __builtin_prefetch(row_place(places, places->n, keys[i], places->stride), 1);
}

static bool defer_whole(TableClient *client, const JointAsk *ask)
{
    const TableRoute *const route = client->route;
    const RubatoRequest request = { .worker = ask->worker,
                                    .clock = ask->clock,
                                    .keys = { .keys = ask->keys, .n = ask->n_keys },
                                    .input = ask->deltas };
    const size_t n_bytes = deferred_adds_push_whole(route->deferred, &request, route->row_bytes);

    client->adding_bytes += n_bytes;
    return n_bytes > 0;
}

/* An Add that may not be deferred any more is sent to each part, behind those that are. */
bool table_client_add_jointly(TableClient *client, const RubatoKey *keys, size_t n,
                              const void *deltas)
{
    const TableRoute *const route = client->route;
    const JointAsk ask = { .worker = client->rank,
                           .clock = client->clock,
                           .keys = keys,
                           .n_keys = n,
                           .deltas = deltas,
                           .lends = route->clocks->n_workers > 1 &&
                                    lends_now(client, client->stats.n_adds) };
    bool is_done;

    if (!may_add(client, n) || !begin_sending(client))
        return false;
    is_done = route->defers_jointly ? defer_whole(client, &ask) : route->joint->add(route, &ask);
    table_client_end_sending(client);
    client->stats.n_adds += is_done;
    return is_done;
}
