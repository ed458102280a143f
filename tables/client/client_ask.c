/* A client's rarer requests: those of any kind, with a wait for the answer, which the engine makes
 * between tasks; and messages to every part of the table, or to every server.
 *
 * Threads: the client's worker, or one that holds the engine's call. */
#include "io/net/fence.h"
#include "tables/client/client_private.h"

/* ---- any request, with a wait for its answer ---- */

/* Every slice is answered, so that a failed one is known. */
static bool ask_slices(TableClient *client, const TableAsk *ask, uint32_t n_slices, GError **error)
{
    Call call;

    if (n_slices == SLICER_NO_MEMORY)
        return table_client_fail_memory(client, error);
    if (!table_client_wait_room(client, client->slicer.slices, n_slices, error))
        return false;
    call_begin(&call, NULL);
    call.spinner = &client->spinner;
    table_client_send(client, ask, client->slicer.slices, n_slices, &call, client->messages);
    call_sent(&call);
    return table_client_wait(client, &call, error);
}

bool table_client_ask(TableClient *client, const TableAsk *ask, const RubatoKey *keys, size_t n,
                      GError **error)
{
    if (!table_client_check(client, keys, n, error))
        return false;
    if (n == 0)
        return true;
    const bool is_done = ask_slices(
        client, ask, slicer_cut(&client->slicer, client->route->partition, keys, n), error);

    if (client->history != NULL)
        table_client_note_ask(client, ask, &(RubatoKeys){ .keys = keys, .n = n }, is_done);
    return is_done;
}

bool table_client_ask_run(TableClient *client, const TableAsk *ask, RubatoKey first, size_t n,
                          GError **error)
{
    if (!table_client_check_run(client, first, n, error))
        return false;
    if (n == 0)
        return true;
    const bool is_done = ask_slices(
        client, ask, slicer_cut_run(&client->slicer, client->route->partition, first, n), error);

    if (client->history != NULL)
        table_client_note_ask(client, ask, &(RubatoKeys){ .first = first, .n = n }, is_done);
    return is_done;
}

/* ---- messages to every part, or every server ---- */

bool table_client_tune(TableClient *client, RubatoHyper hyper, double value, GError **error)
{
    const TableRoute *route = client->route;
    PostOffice *office = route->office;
    const TableAsk ask = { .kind = MESSAGE_TUNE };
    const uint32_t n_parts = route->map->n_parts;
    bool is_sent = true;

    if (!route->check_tuning(route->spec, hyper, value, error) ||
        !table_client_check_cancelled(client, error) || !table_client_wait_to_add(client, error) ||
        !table_client_wait_room_of_all(client, error) || !table_client_begin_sending(client, error))
        return false;
    for (uint32_t part = 0; part < n_parts && is_sent; part++) {
        Message message;

        table_client_set_message(&message, client, &ask, &(Slice){ .part = part }, NULL);
        message.server = part_map_server(route->map, part);
        message.request.tuning = (RubatoTuning){ .hyper = hyper, .value = value };
        is_sent = table_client_tell_change(client, &message);
    }
    table_client_end_sending(client);
    if (route->map->n_replicas > 0)
        table_client_cancel_if_late(client);
    if (!is_sent)
        return table_client_fail_memory(client, error);
    if (route->max_kept_bytes > 0)
        client->adding_bytes += n_parts * TABLE_CLIENT_ADD_BYTES;
    if (client->history != NULL)
        table_client_note(client, HISTORY_TUNE, client->clock);
    post_office_flush(office);
    return client->unheard_bytes < office->sizes.mailbox_bytes || table_client_fence(client, error);
}

bool table_client_return(TableClient *client, ReturnAnswer *answer, GError **error)
{
    const uint32_t n_parts = client->route->map->n_parts;
    g_autofree ReturnAnswer *of_parts = g_new0(ReturnAnswer, n_parts);
    g_autofree Slice *slices = g_new0(Slice, n_parts);
    const TableAsk ask = { .kind = MESSAGE_RETURN,
                           .row_bytes = sizeof *of_parts,
                           .output = of_parts };
    Call call;

    for (uint32_t part = 0; part < n_parts; part++)
        slices[part] = (Slice){ .part = part, .keys = { .n = 1 }, .row = part };
    if (!table_client_wait_room(client, slices, n_parts, error))
        return false;
    call_begin(&call, NULL);
    table_client_send(client, &ask, slices, n_parts, &call, client->messages);
    call_sent(&call);
    if (!table_client_wait(client, &call, error))
        return false;
    *answer = (ReturnAnswer){ 0 };
    for (uint32_t part = 0; part < n_parts; part++) {
        answer->clock = MAX(answer->clock, of_parts[part].clock);
        answer->had_until = MAX(answer->had_until, of_parts[part].had_until);
    }
    return true;
}

bool table_client_fence(TableClient *client, GError **error)
{
    const TableRoute *route = client->route;
    const uint32_t n_parts = part_map_n_replicated(route->map);
    g_autofree FencedPart *parts = n_parts == 0 ? NULL : g_new(FencedPart, n_parts);
    Call call;

    for (uint32_t part = 0; part < n_parts; part++)
        parts[part] = (FencedPart){ route->table, part, part_map_server(route->map, part) };
    fence_start(route->office, route->epoch, route->cancelled, parts, n_parts, NULL,
                client->messages, &call);
    client->unheard_bytes = 0;
    /* The process cache may be locked: this handles no messages of others. */
    return table_client_wait_alone(client, &call, error);
}
