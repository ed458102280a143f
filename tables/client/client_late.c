/* Iterations that servers are told of late, or never: see tables/late_iterations.h.
 *
 * A worker begins an iteration without a word to any server, and reads its rows beside the
 * servers' owners if the other workers of the node have come far enough. That they have it sees in
 * the node's clock (client_ahead.c): an Add of a lower clock has been posted before that clock was
 * shown, and who reads beside owners sees all that was posted before (joint_several.c).
 *
 * If the others have not come, or a server is busy, its Get goes to the servers. Their model
 * decides by the clocks and keys of all workers, so they are told these before. Until the Get is
 * answered, each worker tells its iterations as it begins them: so the Get waits no longer than it
 * would if they always did.
 *
 * A request of another kind that a model may keep ends all of this for the task: it waits on some
 * other thread, or the worker does not say when it is over. So do iterations of so many keys that
 * their rows are not read beside owners.
 *
 * The clock goes first, because the iterations between the last one that was told and this one are
 * not announced any more, and the model takes them as finished. An Add that the worker has made in
 * its iteration may have come to a server before its clock: it counts for that clock all the same,
 * since the request says so.
 *
 * Threads: the client's worker. */
#include "tables/client/client_private.h"
#include "tables/late_iterations.h"

void table_route_note_iterations(TableRoute *route)
{
    if (route->reads_beside && route->traits->takes_announcements &&
        route->traits->per_worker_clocks && route->office->network == NULL)
        route->late = late_iterations_new(route->clocks->first_rank, route->clocks->n_workers);
}

/* user: the client of the worker that tells. Without memory for a slice nothing is announced, and
 * servers wait for the iteration as for any that they do not know. */
static void tell(void *user, uint32_t rank, uint64_t clock, const RubatoKeys *keys)
{
    TableClient *const client = user;

    table_route_tell_clock_here(client->route, rank, clock);
    (void)table_client_announce_of(client, rank, clock, keys);
}

/* Has the worker's own iteration told, or those of all. If the task is cancelled, nobody waits for
 * them any more. */
typedef enum { TELL_OWN, TELL_ALL } TellWhich;
static void tell_noted(TableClient *client, TellWhich which)
{
    LateIterations *const late = client->route->late;

    if (!table_client_begin_sending(client, NULL))
        return;
    if (which == TELL_ALL)
        late_iterations_tell_all(late, tell, client);
    else
        late_iterations_tell(late, client->rank, tell, client);
    table_client_end_sending(client);
}

void table_client_tell_noted_now(TableClient *client)
{
    tell_noted(client, TELL_OWN);
}

void table_client_end_lateness_now(TableClient *client)
{
    if (late_iterations_end(client->route->late))
        tell_noted(client, TELL_ALL);
}

bool table_client_begin_late(TableClient *client, const RubatoKey *keys, size_t n)
{
    const TableRoute *const route = client->route;
    LateIterationNote note = LATE_ITERATION_REFUSED;

    if (route->late == NULL || late_iterations_have_ended(route->late) ||
        table_client_is_cancelled(client) || !table_client_check_owner(client, NULL))
        return false;
    if (n == 0 || table_client_may_read_jointly(route, n))
        note = late_iterations_begin(route->late, client->rank, client->clock + 1, keys, n);
    if (note == LATE_ITERATION_REFUSED) {
        table_client_end_lateness_now(client);
        return false;
    }
    if (G_UNLIKELY(client->history != NULL))
        table_client_note_keys(client, HISTORY_ANNOUNCE, client->clock + 1,
                               &(RubatoKeys){ .keys = keys, .n = n });
    table_client_count_clock(client);
    if (note == LATE_ITERATION_ASKED)
        tell_noted(client, TELL_OWN);
    table_client_show_clock(client);
    return true;
}

/* Servers decide. While they may keep the Get, others tell them what it waits for. */
static bool ask_servers(TableClient *client, const RubatoKey *keys, size_t n, void *values,
                        GError **error)
{
    const TableRoute *const route = client->route;
    const TableAsk ask = { .kind = MESSAGE_GET, .row_bytes = route->row_bytes, .output = values };
    const uint32_t n_slices = slicer_cut(&client->slicer, route->partition, keys, n);
    Call call;

    if (n_slices == SLICER_NO_MEMORY)
        return table_client_fail_memory(client, error);
    call_begin(&call, NULL);
    call.spinner = &client->spinner;
    table_client_send_told(client, &ask, client->slicer.slices, n_slices, &call, client->messages);
    call_sent(&call);
    if (!table_client_wait(client, &call, error))
        return false;
    table_client_note_answered(client, &call, n_slices);
    return true;
}

bool table_client_get_late(TableClient *client, const RubatoKey *keys, size_t n, void *values,
                           GError **error)
{
    const RubatoKeys all = { .keys = keys, .n = n };
    LateIterations *const late = client->route->late;
    const uint64_t begun_ns = table_client_time(client);
    bool is_read;

    if (n == 0)
        return true;
    table_client_wait_before_iterating(client, n);
    is_read = table_client_get_jointly(client, keys, n, values);
    if (!is_read) {
        late_iterations_ask(late);
        tell_noted(client, TELL_ALL);
        is_read = ask_servers(client, keys, n, values, error);
        late_iterations_end_ask(late);
    }
    if (is_read)
        table_client_note_read(client, &all, values, begun_ns);
    return is_read;
}
