/* A client's clock on its table: how far it may be ahead of the slowest worker's, and how servers
 * and other nodes hear of it.
 *
 * clocks.c decides which of a node's clocks are sent. A clock travels behind the Adds that were
 * sent before it, so a server has all of them when the clock arrives.
 *
 * Lazy clocks. If all workers are in this process, the servers need not be told each clock: a Get
 * carries the clock. This is as good as a clock message of the same thread right before the Get:
 * the Adds that the clock counts have been posted by then, and leave the mailbox first. Only if the
 * Get is still too early, and is kept, another worker has to send its clock: see clocks_await.
 *
 * Threads: the client's worker; table_route_lead any. What workers share here is the route's
 * clocks. */
#include "tables/client/client_private.h"

/* ---- being ahead ---- */

uint64_t table_route_lead(const TableRoute *route)
{
    switch (route->traits->lead) {
    case RUBATO_LEAD_NONE:
        break;
    case RUBATO_LEAD_STALENESS:
        return route->spec->staleness;
    case RUBATO_LEAD_UNBOUNDED:
        return UINT64_MAX;
    }
    return 0; /* whatever the spec says */
}

static bool all_local(const TableRoute *route, const Slice *slices, uint32_t n_slices)
{
    for (uint32_t i = 0; i < n_slices; i++)
        if (!table_route_is_local(route, &slices[i]))
            return false;
    return true;
}

/* Whether the servers would answer a Get at once, as far as this node's workers are concerned. */
static bool others_have_come(const TableClient *client)
{
    const TableRoute *route = client->route;

    return (route->lazy_clocks ? clocks_own(route->clocks) : clocks_told(route->clocks)) >=
           client->clock - client->lead;
}

static void look_for_others(TableClient *client, SpinnerEnd end)
{
    do
        for (unsigned i = 0; i < client->spinner.n_looks; i++) {
            if (others_have_come(client)) {
                spinner_found(&client->spinner);
                return;
            }
            spin_pause();
        }
    while (spinner_go_on(&client->spinner, end));
}

/* Servers would keep the Get until the slowest worker of this node has reached a certain clock.
 * Usually it reaches it soon. Then it is better to ask late: otherwise the slowest worker would
 * have to gather the rows, and become even slower. The servers still decide. */
void table_client_wait_for_others(TableClient *client, uint32_t n_slices)
{
    const TableRoute *route = client->route;
    uint64_t begun_ns;
    SpinnerEnd end;

    if (route->clocks == NULL || route->traits->per_worker_clocks || others_have_come(client) ||
        !all_local(route, client->slicer.slices, n_slices) ||
        !spinner_begin(&client->spinner, &end))
        return;
    begun_ns = worker_stats_now_ns();
    look_for_others(client, end);
    client->stats.get_wait_ns += worker_stats_now_ns() - begun_ns;
}

/* ---- telling ---- */

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

/* Tells a clock to every server of this node. */
static void tell_local_clock(const TableRoute *route, uint32_t source, uint64_t clock)
{
    PostOffice *office = route->office;

    for (uint32_t server = 0; server < office->n_servers; server++)
        if (post_office_is_local(office, server)) {
            Message message = { .kind = MESSAGE_CLOCK,
                                .epoch = route->epoch,
                                .table = route->table,
                                .server = server,
                                .node = office->self,
                                .clock = { .source = source, .clock = clock } };

            post_office_tell_local_clock(office, &message);
        }
}

/* Tells a clock to every server of every node. */
static void tell_clock(const TableRoute *route, uint32_t source, uint64_t clock, NodeClock node)
{
    PostOffice *office = route->office;

    if (office->network != NULL) {
        post_office_tell_clock(office, route->epoch, route->table, source, clock, node.clock,
                               node.slowest);
        post_office_flush(office);
    }
    tell_local_clock(route, source, clock);
    if (!route->traits->per_worker_clocks)
        clocks_tell(route->clocks, clock);
}

/* The same for a thread that may not handle messages: servers of this node find it in their
 * mailbox. */
static void tell_clock_later(const TableRoute *route, uint32_t source, uint64_t clock,
                             NodeClock node)
{
    PostOffice *office = route->office;

    if (office->network != NULL)
        post_office_tell_clock(office, route->epoch, route->table, source, clock, node.clock,
                               node.slowest);
    for (uint32_t server = 0; server < office->n_servers; server++)
        if (post_office_is_local(office, server)) {
            const Message message = { .kind = MESSAGE_CLOCK,
                                      .epoch = route->epoch,
                                      .table = route->table,
                                      .server = server,
                                      .node = office->self,
                                      .clock = { .source = source, .clock = clock } };

            actor_post(office->servers[server].actor, message_copy_clock(&message));
        }
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

/* Returns whether others were told. */
static bool advance(const TableRoute *route, uint32_t rank, uint64_t clock)
{
    NodeClock news;
    const bool moved = clocks_advance(route->clocks, rank, clock, &news);

    if (route->traits->per_worker_clocks)
        tell_clock(route, rank, clock, news);
    else if (moved && (!route->lazy_clocks || clocks_are_awaited(route->clocks)))
        tell_clock(route, route->office->self, news.clock, news);
    else
        return false;
    return true;
}

/* A clock is sent at once, because others may wait for it. A worker that only clocks waits for room
 * afterwards. */
bool table_client_clock(TableClient *client, GError **error)
{
    if (!table_client_check_owner(client, error) || !table_client_check_cancelled(client, error))
        return false;
    if (client->adding_bytes > 0)
        table_client_keep(client);
    client->clock++;
    client->stats.n_clocks++;
    if (G_UNLIKELY(client->history != NULL))
        table_client_note(client, HISTORY_CLOCK, client->clock, &(RubatoKeys){ .n = 0 });
    return !advance(client->route, client->rank, client->clock) ||
           table_client_wait_room_of_all(client, error);
}

void table_route_retire(const TableRoute *route, uint32_t rank)
{
    advance(route, rank, RUBATO_CLOCK_RETIRED);
}
