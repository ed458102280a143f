/* A client's clock on its table: how servers and other nodes hear of it.
 *
 * clocks.c decides which of a node's clocks are sent. A clock travels behind the Adds that were
 * sent before it, so a server has all of them when the clock arrives.
 *
 * Lazy clocks. If all workers are in this process, the servers need not be told each clock: a Get
 * carries the clock. This is as good as a clock message of the same thread right before the Get:
 * the Adds that the clock counts have been posted by then, and leave the mailbox first. Only if the
 * Get is still too early, and is kept, another worker has to send its clock: see clocks_await. A
 * model that keeps Adds until their clock has passed is also told at the end, and when a worker has
 * added much since it was told last: a Get brings the clock to the parts of its keys alone, so the
 * other parts would be told nothing, and keep all that was added to them.
 *
 * Clocks between nodes. If there are more than two, a new clock is reported to the root alone. The
 * root spreads the common clock of all nodes (io/net/post_office/post_office_clocks.c). Besides, a
 * Get brings its node's clock to another node, as a lazy clock: if all nodes ask all parts, as they
 * usually do, servers hear of each clock as soon as if it had been sent to them. Told straight to
 * each node are
 *   - clocks that are told again: a part moves or has moved, or a snapshot is cut, and a fence
 *     follows;
 *   - clocks of single workers, which a model like "sparse_ssp" decides by;
 *   - clocks of tables with replicas. If a node is lost these count by the number of the part map
 *     (docs/replication.md), and requests to the lost node never come, which a position would wait
 *     for;
 *   - clocks of tasks that begin after a node was lost: a process in its place does not say that a
 *     task has ended there.
 * A node's last clock goes to the root alone, too, so the end of a task takes no N (N - 1) clocks.
 * A node with servers waits for the common clock that counts all of them (engine/task/task_end.c).
 *
 * Threads: the client's worker. What workers share here is the route's clocks. */
#include "tables/client/client_private.h"
#include "tables/tickets/ticket.h"

/* When a worker has added so many bytes since it told a clock, it tells the next one. */
#define MOST_UNTOLD_BYTES ((uint64_t)256 << 10)

/* How long a cancellation may go unnoticed while the map is closed. */
#define LOOK_MS 20

/* So many bytes of Adds take longer to apply than it takes to wake a server's thread. */
#define MANY_BYTES ((uint64_t)64 << 10)

uint64_t table_client_clock_to_tell(const TableClient *client)
{
    Clocks *clocks = client->route->clocks;
    uint64_t clock;

    if (!client->route->lazy_clocks)
        return 0;
    clock = clocks_own(clocks);
    if (client->clock > client->lead && clock < client->clock - client->lead)
        clock = clocks_await(clocks, client->clock - client->lead);
    return clock;
}

uint64_t table_client_clock_to_await(const TableClient *client, uint64_t needed)
{
    Clocks *clocks = client->route->clocks;

    if (!client->route->lazy_clocks)
        return 0;
    const uint64_t clock = clocks_own(clocks);
    return clock < needed ? clocks_await(clocks, needed) : clock;
}

static Message clock_message(const TableRoute *route, uint32_t server, uint32_t source,
                             uint64_t clock)
{
    return (Message){ .kind = MESSAGE_CLOCK,
                      .epoch = route->epoch,
                      .table = route->table,
                      .server = server,
                      .node = route->office->self,
                      .clock = {
                          .source = source, .map = part_map_number(route->map), .clock = clock } };
}

/* The number of the map is loaded behind the clock. If a part has got another primary, either this
 * finds the new number, or the thread that stores it finds the clock, and tells it again. */
static void order_clock_and_map(const TableRoute *route)
{
    if (route->map->n_replicas > 0) /* seq_cst: against the one in engine/parts/engine_recovery.c */
        atomic_thread_fence(memory_order_seq_cst);
}

static WireClock wire_clock(const TableRoute *route, uint32_t source, uint64_t clock,
                            NodeClock node)
{
    return (WireClock){ .table = route->table,
                        .source = source,
                        .clock = clock,
                        .node_clock = node.clock,
                        .slowest = node.slowest,
                        .map = part_map_number(route->map) };
}

static bool is_root(const TableRoute *route)
{
    return route->office->self == route->office->root;
}

static bool spread_common(void *user, NodeClock common)
{
    const TableRoute *const route = user;
    const WireClock clock = wire_clock(route, MESSAGE_CLOCK_OF_ALL, common.clock, common);

    return post_office_spread_clock(route->office, route->epoch, &clock);
}

/* The root has learned a clock of its own or of another node. */
static void spread(const TableRoute *route, ClocksSpread what)
{
    if (route->collects_clocks && is_root(route))
        clocks_spread(route->clocks, what, spread_common, (void *)route);
}

static void tell_all_nodes(const TableRoute *route, const WireClock *clock)
{
    post_office_tell_clock(route->office, route->epoch, clock);
    spread(route, CLOCKS_HIGHER);
}

static void tell_other_nodes(const TableRoute *route, uint32_t source, uint64_t clock,
                             NodeClock node)
{
    const WireClock told = wire_clock(route, source, clock, node);

    if (!route->collects_clocks)
        tell_all_nodes(route, &told);
    else if (is_root(route))
        spread(route, CLOCKS_HIGHER);
    else
        post_office_report_clock(route->office, route->epoch, &told);
}

void table_route_hear(const TableRoute *route, uint32_t node, const WireClock *clock)
{
    const NodeClock news = { clock->node_clock, clock->slowest };

    if (clock->source == MESSAGE_CLOCK_OF_ALL) {
        clocks_hear_common(route->clocks, news);
        return;
    }
    clocks_hear(route->clocks, node, news);
    spread(route, CLOCKS_HIGHER);
}

void table_route_tell_news(const TableRoute *route)
{
    NodeClock news;

    if (clocks_has_news(route->clocks, &news)) {
        const uint32_t source =
            route->traits->per_worker_clocks ? news.slowest : route->office->self;
        const WireClock told = wire_clock(route, source, news.clock, news);

        if (!route->collects_clocks)
            post_office_tell_clock(route->office, route->epoch, &told);
        else if (!is_root(route))
            post_office_report_clock(route->office, route->epoch, &told);
    }
    spread(route, CLOCKS_NEWS);
}

/* A server of this node finds a clock in its mailbox. */
static void post_clock(const TableRoute *route, uint32_t server, uint32_t source, uint64_t clock)
{
    const Message message = clock_message(route, server, source, clock);

    actor_post(route->office->servers[server].actor, message_copy_clock(&message));
}

void table_route_tell_clock_here(const TableRoute *route, uint32_t source, uint64_t clock)
{
    PostOffice *office = route->office;

    for (uint32_t server = 0; server < office->n_servers; server++)
        if (post_office_is_local(office, server)) {
            Message message = clock_message(route, server, source, clock);

            post_office_tell_local_clock(office, &message);
        }
}

/* The same if the clock makes many Adds due: the servers apply them at the same time, this thread
 * as one of them. */
static void tell_local_clock_of_many(const TableRoute *route, uint32_t source, uint64_t clock)
{
    PostOffice *office = route->office;
    uint32_t own = UINT32_MAX;

    for (uint32_t server = office->n_servers; server-- > 0;)
        if (post_office_is_local(office, server)) {
            if (own != UINT32_MAX)
                post_clock(route, own, source, clock);
            own = server;
        }
    if (own != UINT32_MAX) {
        Message message = clock_message(route, own, source, clock);

        post_office_tell_local_clock(office, &message);
    }
}

/* Tells a clock to every server of every node. n_bytes: what the worker has added since the last
 * one and servers have kept. */
static void tell_clock(const TableRoute *route, uint32_t source, uint64_t clock, NodeClock node,
                       uint64_t n_bytes)
{
    PostOffice *office = route->office;

    order_clock_and_map(route);
    if (office->network != NULL) {
        tell_other_nodes(route, source, clock, node);
        post_office_flush_later(office);
    }
    if (n_bytes < MANY_BYTES)
        table_route_tell_clock_here(route, source, clock);
    else
        tell_local_clock_of_many(route, source, clock);
    if (!route->traits->per_worker_clocks)
        clocks_tell(route->clocks, clock);
}

/* The same for a thread that may not handle messages: servers of this node find it in their
 * mailbox. */
static void tell_clock_later(const TableRoute *route, uint32_t source, uint64_t clock,
                             NodeClock node)
{
    PostOffice *office = route->office;

    order_clock_and_map(route);
    if (office->network != NULL) {
        const WireClock told = wire_clock(route, source, clock, node);

        tell_all_nodes(route, &told);
    }
    for (uint32_t server = 0; server < office->n_servers; server++)
        if (post_office_is_local(office, server))
            post_clock(route, server, source, clock);
}

void table_route_tell_again(const TableRoute *route)
{
    const Clocks *clocks = route->clocks;
    const NodeClock node = clocks_news(route->clocks);

    if (!route->traits->per_worker_clocks)
        tell_clock_later(route, route->office->self, node.clock, node);
    else
        for (uint32_t i = 0; i < clocks->n_workers; i++) {
            const uint32_t rank = clocks->first_rank + i;

            tell_clock_later(route, rank, clocks_of_worker(clocks, rank), node);
        }
    post_office_flush(route->office);
}

/* Whether servers are told a new clock of the node although no Get brings it. */
static bool is_needed_now(const TableRoute *route, const NodeClock *news)
{
    return !route->lazy_clocks || clocks_are_awaited(route->clocks) ||
           (route->traits->applies_by_clock && news->clock == RUBATO_CLOCK_RETIRED);
}

/* Returns whether others were told. */
static inline bool advance(const TableRoute *route, uint32_t rank, uint64_t clock, uint64_t n_bytes)
{
    NodeClock news;
    const bool moved = clocks_advance(route->clocks, rank, clock, &news);

    if (route->traits->per_worker_clocks)
        tell_clock(route, rank, clock, news, n_bytes);
    else if (moved && is_needed_now(route, &news))
        tell_clock(route, route->office->self, news.clock, news, n_bytes);
    else
        return false;
    return true;
}

/* The worker itself has come to its next clock. */
static inline void count_clock(TableClient *client, bool is_watched)
{
    if (client->adding_bytes > 0)
        table_client_keep(client);
    client->clock++;
    client->stats.n_clocks++;
    if (is_watched && client->history != NULL)
        table_client_note(client, HISTORY_CLOCK, client->clock);
}

void table_client_count_clock(TableClient *client)
{
    count_clock(client, table_client_is_watched(client));
}

void table_client_show_clock(TableClient *client)
{
    NodeClock news;

    clocks_advance(client->route->clocks, client->rank, client->clock, &news);
}

/* A Get that is sent again, to another primary, must not come behind Adds of its own clock. So
 * under a model that gives no lead, its worker does not end the clock before the Get is answered.
 */
static void wait_for_tickets(TableClient *client)
{
    if (client->lead == 0 && client->tickets != NULL)
        tickets_wait_for_client(client);
}

/* Where a clock changes rows, it waits while the map is closed, as an Add does: see
 * engine/snapshot/snapshot_cut.c. It is sent at once, because others may wait for it. A worker that
 * only clocks waits for room afterwards. */
static inline __attribute__((always_inline)) bool end_clock(TableClient *client, bool is_watched,
                                                            GError **error)
{
    const TableRoute *const route = client->route;
    const bool is_change = route->traits->applies_by_clock;
    bool others_were_told;

    if (!table_client_check_owner(client, error) || !table_client_check_cancelled(client, error))
        return false;
    if (G_UNLIKELY(route->map->n_replicas > 0)) {
        wait_for_tickets(client);
        if (route->settle != NULL) {
            route->settle(route->run);
            table_client_flush_history(client);
        }
    }
    const uint64_t untold_bytes = client->untold_bytes, n_bytes = client->adding_bytes;

    if (is_change && ((G_UNLIKELY(client->kept_calls != NULL) &&
                       !table_client_end_earlier_calls(client, error)) ||
                      !table_client_begin_sending(client, error)))
        return false;
    count_clock(client, is_watched);
    others_were_told = advance(route, client->rank, client->clock, n_bytes);
    if (is_change)
        table_client_end_sending(client);
    if (others_were_told) {
        client->untold_bytes = 0;
        return table_client_wait_room_of_all(client, error);
    }
    if (untold_bytes > MIN(MOST_UNTOLD_BYTES, route->max_kept_bytes))
        table_client_tell_lazy_clock(client);
    return true;
}

static __attribute__((noinline)) bool clock_watched(TableClient *client, GError **error)
{
    const uint64_t begun_ns = table_client_time(client);
    const bool done = end_clock(client, true, error);

    if (done)
        table_client_note_time(client, "Clock", begun_ns, 0);
    return done;
}

bool table_client_clock(TableClient *client, GError **error)
{
    return table_client_is_watched(client) ? clock_watched(client, error)
                                           : end_clock(client, false, error);
}

/* If the map stays closed although the task is cancelled, the clock is told all the same: then it
 * changes nothing any more. */
void table_route_retire(const TableRoute *route, uint32_t rank)
{
    const bool is_change = route->traits->applies_by_clock;
    PartSender sender;

    if (is_change) {
        part_map_join(route->map, &sender);
        /* relaxed: it only ends the wait */
        while (!part_map_begin_slowly(route->map, &sender) &&
               !atomic_load_explicit(route->cancelled, memory_order_relaxed))
            (void)part_map_wait(route->map, LOOK_MS);
    }
    advance(route, rank, RUBATO_CLOCK_RETIRED, 0);
    if (is_change) {
        part_map_end(&sender);
        part_map_leave(route->map, &sender);
    }
}

void table_client_tell_lazy_clock(TableClient *client)
{
    const TableRoute *route = client->route;
    uint64_t clock;

    client->untold_bytes = 0;
    if (!route->lazy_clocks)
        return;
    clock = clocks_own(route->clocks);
    table_route_tell_clock_here(route, route->office->self, clock);
    clocks_tell(route->clocks, clock);
}

void table_client_tell_before(TableClient *client)
{
    const uint64_t needed = table_client_needed_clock(client);

    if (client->route->lazy_clocks && table_client_clock_to_tell(client) >= needed &&
        clocks_told(client->route->clocks) < needed)
        table_client_tell_lazy_clock(client);
}
