/* A worker's side of a table from inside: what the files of a client share.
 *
 *   client.c        its life, the checks of keys, Get and Add, what was counted
 *   client_kept.c   what servers keep of its Adds: how much, and waiting until it is less
 *   client_clock.c  the clock: how far ahead it may be, telling others of it
 *   client_moved.c  what was sent while parts moved
 *   client_wait.c   waiting, saying for whom, and how a call ended
 *
 * Threads: the client's worker. */
#ifndef RUBATO_TABLES_CLIENT_PRIVATE_H
#define RUBATO_TABLES_CLIENT_PRIVATE_H

#include "tables/client.h"
#include "tables/worker_stats.h"

/* ---- client.c ---- */

/* After something was asked of another node: ends it where the task was cancelled before. */
void table_client_cancel_if_late(TableClient *client);

/* ---- client_kept.c ---- */

/* The clock, client->clock, is over. */
void table_client_keep(TableClient *client);

/* Everything of the clocks below this one has been released. */
void table_client_drop_kept(TableClient *client, uint64_t min_clock);

/* ---- client_clock.c ---- */

/* By how many clocks Gets may be ahead of the slowest worker and still be answered in any case. */
uint64_t table_route_lead(const TableRoute *route);

/* Before a Get, at a clock above the lead, of the slices that the slicer has cut: where its servers
 * would only keep it for other workers of this node, gives these a moment to come. */
void table_client_wait_for_others(TableClient *client, uint32_t n_slices);

/* The node's clock, for a Get to bring to the servers; 0 where they are told otherwise. */
uint64_t table_client_clock_to_tell(const TableClient *client);

/* ---- client_moved.c ---- */

/* After messages that are not waited for: the map had that number before the servers were looked
 * up. Where a part has moved meanwhile, returns once the part that each slice names has taken in
 * what was sent. */
void table_client_fence_slices(TableClient *client, const Slice *slices, uint32_t n_slices);
static inline void table_client_end_sending(TableClient *client, uint32_t number,
                                            const Slice *slices, uint32_t n_slices)
{
    if (G_UNLIKELY(part_map_number(client->route->map) != number))
        table_client_fence_slices(client, slices, n_slices);
}

/* The same after something that went to all parts. */
void table_client_end_sending_to_all(TableClient *client, uint32_t number);

/* ---- client_wait.c ---- */

static inline bool table_client_is_cancelled(const TableClient *client)
{
    /* seq_cst: as whoever cancels sets it, before post_office_cancel sweeps */
    return atomic_load_explicit(client->route->cancelled, memory_order_seq_cst);
}

/* Whether the task goes on; otherwise RUBATO_ERROR_CANCELLED. */
static inline bool table_client_check_cancelled(const TableClient *client, GError **error)
{
    return !table_client_is_cancelled(client) ||
           table_client_check_status(client, CALL_CANCELLED, error);
}

/* As table_client_wait, but this thread handles nobody else's messages meanwhile, and the time
 * counts as spent on sending. */
bool table_client_wait_alone(TableClient *client, Call *call, GError **error);

/* As table_client_wait, for a min clock, before an Add; the time counts as spent on sending. */
bool table_client_wait_clock(TableClient *client, Call *call, uint64_t clock, GError **error);

/* Waits until all nodes have room for what goes to every server. */
bool table_client_wait_room_of_all(TableClient *client, GError **error);

/* Waits until a node that has no room has some, and counts the time. RUBATO_ERROR_CANCELLED. */
bool table_client_wait_room_of(TableClient *client, uint32_t node, GError **error);

#endif
