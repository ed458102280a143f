/* How far a client's clock may be ahead of the slowest worker's, and what it does before a request
 * that would be kept for that: it gives the other workers of its node a moment to come on.
 *
 * Threads: the client's worker; table_route_lead any. */
#include "tables/client/client_private.h"

/* The most looks, of a few ten nanoseconds each, before a Get beyond the staleness: as many as keys
 * are read beside owners at most, so that the others may finish an iteration of as many. */
#define MOST_BRIEF_LOOKS 16384u

/* Some microseconds, about as long as it takes to tell servers what workers have noted
 * (client_late.c). If the others come meanwhile, nobody is told; else all tell their iterations
 * until the Get is answered, and fall further behind by that. */
#define LEAST_LATE_LOOKS 256u

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

/* Whether this node's workers have come to a clock, as far as its servers know or will hear with
 * the next requests. */
static bool others_have_come(const TableRoute *route, uint64_t needed)
{
    return (route->lazy_clocks || route->traits->per_worker_clocks
                ? clocks_own(route->clocks)
                : clocks_told(route->clocks)) >= needed;
}

bool table_client_others_have_come(const TableClient *client)
{
    return client->clock <= client->lead ||
           others_have_come(client->route, client->clock - client->lead);
}

/* Workers that take turns clock once in a round, so it is their own clocks that are looked at: the
 * node's follows later. Otherwise looks would take a clock's cache line from a worker that uses it
 * more often. */
static bool look_once(const TableClient *client, uint64_t needed, uint32_t *n_passed)
{
    const TableRoute *const route = client->route;

    return route->takes_turns ? clocks_have_reached(route->clocks, needed, n_passed)
                              : others_have_come(route, needed);
}

static bool look_for_others(TableClient *client, uint64_t needed, SpinnerEnd end)
{
    uint32_t n_passed = 0;

    do
        for (unsigned i = 0; i < client->spinner.n_looks; i++) {
            if (look_once(client, needed, &n_passed)) {
                spinner_found(&client->spinner);
                return true;
            }
            spin_pause();
        }
    while (spinner_go_on(&client->spinner, &end));
    return false;
}

static bool wait_for_others(TableClient *client, uint64_t needed)
{
    uint64_t begun_ns;
    SpinnerEnd end;
    bool have_come;

    if (!spinner_begin(&client->spinner, &end))
        return false;
    begun_ns = worker_stats_now_ns();
    have_come = look_for_others(client, needed, end);
    client->stats.get_wait_ns += worker_stats_now_ns() - begun_ns;
    table_client_note_wait(client, needed, begun_ns);
    return have_come;
}

bool table_client_wait_until_others_come(TableClient *client)
{
    if (table_client_others_have_come(client))
        return true;
    client->waited_clock = client->clock;
    return wait_for_others(client, client->clock - client->lead);
}

/* Servers would keep the Get until the slowest worker of this node has reached a certain clock.
 * Usually it reaches it soon. Then it is better to ask late: otherwise the slowest worker would
 * have to gather the rows, and become even slower. The servers still decide. */
void table_client_wait_for_others(TableClient *client, uint32_t n_slices)
{
    const TableRoute *route = client->route;

    if (route->clocks != NULL && !route->traits->per_worker_clocks &&
        client->waited_clock != client->clock &&
        !others_have_come(route, client->clock - client->lead) &&
        all_local(route, client->slicer.slices, n_slices))
        wait_for_others(client, client->clock - client->lead);
}

/* Looks so many times whether the others have come to a clock. */
static void look_briefly(TableClient *client, uint64_t needed, size_t n_looks)
{
    const uint64_t begun_ns = worker_stats_now_ns();

    for (size_t i = 0; i < n_looks && !others_have_come(client->route, needed); i++)
        spin_pause();
    client->stats.get_wait_ns += worker_stats_now_ns() - begun_ns;
    table_client_note_wait(client, needed, begun_ns);
}

/* Before a Get that may be answered although it is beyond the staleness.
 *
 * Such a Get makes its servers enter the keys of the others' iterations, look for its own among
 * them, and remove them again. The others' requests wait meanwhile, so these workers fall further
 * behind, and the next Get is beyond the staleness again. A look takes about as long as a server
 * needs for one key: with as many looks as there are keys, the Get is at most twice as long under
 * way, and usually the others have come before.
 *
 * If workers share processors, the slowest one may wait for this worker's processor. It gets it. */
static void wait_for_staleness(TableClient *client, uint64_t needed, size_t n_keys)
{
    const Spinner *spinner = &client->spinner;

    if (spinner->n_sharing > 1)
        wait_for_others(client, needed);
    else if (!spinner->is_alone)
        look_briefly(client, needed,
                     MIN(client->route->late == NULL ? n_keys : MAX(n_keys, LEAST_LATE_LOOKS),
                         MOST_BRIEF_LOOKS));
}

/* Servers have not heard of the worker's new clock yet, and with a staleness its node has not,
 * either (client_announce.c). Who waits for it is ahead of this worker, and this worker is ahead of
 * the one that it waits for, so it makes nobody's wait longer by more than these looks. */
void table_client_wait_before_iterating(TableClient *client, size_t n_keys)
{
    const RubatoTableSpec *spec = client->route->spec;
    const uint64_t staleness = spec->staleness;
    const uint64_t reach = staleness + spec->speculation;

    if (client->clock > staleness && !others_have_come(client->route, client->clock - staleness))
        wait_for_staleness(client, client->clock - staleness, n_keys);
    if (client->clock > reach && !others_have_come(client->route, client->clock - reach))
        wait_for_others(client, client->clock - reach);
}
