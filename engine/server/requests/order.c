/* Messages about order: clocks, the keys of iterations to come, iterations, and fences.
 *
 * A clock is no request: it names no keys, goes to all servers of a node at once, and is handled by
 * server_handle.c itself.
 *
 * Thread: the server's owner. */
#include "engine/server/request_ops.h"
#include "models/spec.h"

extern const RequestOps clock_request, announce_request, iterate_request, fence_request;

const RequestOps clock_request = {
    .name = "clock",
    .releases = true,
};

const RequestOps announce_request = {
    .name = "announcement",
    .releases = true,
    .is_input = true,
    .find_fault = request_find_key_fault,
    .in_task = model_announce,
};

const RequestOps iterate_request = {
    .name = "iteration",
    .rows = REQUEST_OUTPUT,
    .releases = true,
    .is_of_even_rows = true,
    .row_bytes = spec_row_bytes,
    .find_fault = request_find_key_fault,
    .in_task = model_iterate,
};

const RequestOps fence_request = {
    .name = "fence",
    .is_empty = true,
};
