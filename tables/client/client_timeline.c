/* What a worker asks of tables, and how long that takes, for the timeline of its node.
 *
 * Threads: the client's worker; table_client_note_ticket any. */
#include "tables/client/client_private.h"

static const _Atomic bool always = true, never = false;

void table_client_begin_watch(TableClient *client)
{
    const Timeline *const timeline = client->route->timeline;

    client->is_watched = client->history != NULL ? &always
                         : timeline != NULL      ? &timeline->is_on
                                                 : &never;
}

static void note(const TableClient *client, const char *what, uint64_t id, uint64_t begun_ns,
                 const TimelineNumber *number)
{
    timeline_note_call(client->route->timeline,
                       &(TimelineCall){ .actor = { client->route->epoch, client->rank },
                                        .what = what,
                                        .subject = client->route->spec->name,
                                        .id = id,
                                        .begun_ns = begun_ns,
                                        .ended_ns = (uint64_t)monotonic_ns(),
                                        .numbers = { *number } });
}

void table_client_note_call(const TableClient *client, const char *what, uint64_t begun_ns,
                            size_t n_keys)
{
    note(client, what, 0, begun_ns, &(TimelineNumber){ n_keys > 0 ? "keys" : NULL, n_keys });
}

void table_client_note_wait(const TableClient *client, uint64_t clock, uint64_t begun_ns)
{
    if (timeline_is_on(client->route->timeline))
        note(client, clock > 0 ? "wait for clock of" : "wait for", 0, begun_ns,
             &(TimelineNumber){ clock > 0 ? "clock" : NULL, clock });
}

void table_client_note_ticket(const TableClient *client, const char *what, uint64_t id,
                              uint64_t begun_ns, size_t n_keys)
{
    note(client, what, id, begun_ns, &(TimelineNumber){ "keys", n_keys });
}
