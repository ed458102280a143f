/* Servers: their life. What they do is in the other files of this folder; server_private.h lists
 * them.
 *
 * Threads: see the header. */
#include "engine/server/server.h"

#include "engine/server/replicas/server_copies.h"
#include "engine/server/replicas/server_feed.h"
#include "engine/server/replicas/server_handover.h"

void server_init(Server *server, uint32_t number, PostOffice *office,
                 void (*fail_task)(void *user, uint32_t epoch, int code, const char *text),
                 void *user)
{
    actor_init(&server->actor, server_handle, server_settled);
    server->actor.find_work = server_find_work;
    server->number = number;
    server->office = office;
    server->tables = g_ptr_array_new();
    server->bindings = g_array_new(FALSE, FALSE, sizeof(Binding));
    server->n_refused = 0;
    server->copies = NULL;
    server->settling = NULL;
    server->given = NULL;
    server->fail_task = fail_task;
    server->user = user;
    server->no_numbers = NULL;
    server->home = NULL;
    server->tell_made = NULL;
    server->arrival = (Arrival){ 0 };
    server->sweeps = (SweepPace){ .now_us = g_get_monotonic_time };
    server->seconds = 0;
    server->starved = false;
    server->complaint = NULL;
    server->partial_calls = NULL;
    server->collected_bytes = 0;
    server_fill_reserve(server);
}

void server_measure(Server *server)
{
    server->actor.handle = server_handle_measured;
}

bool server_start(Server *server)
{
    char name[16];

    g_snprintf(name, sizeof name, "server %u", server->number);
    return actor_start(&server->actor, name);
}

void server_stop(Server *server)
{
    actor_stop(&server->actor);
}

void server_clear(Server *server)
{
    server_drop_arrival(server);
    server_forget_copies(server);
    server_end_settling(server, CALL_CANCELLED);
    server_drop_given(server);
    for (guint i = 0; i < server->tables->len; i++)
        server_drop_table(server, i);
    g_ptr_array_unref(server->tables);
    g_array_unref(server->bindings);
    server_drop_calls(server, SERVER_ALL_EPOCHS);
    g_clear_pointer(&server->partial_calls, g_array_unref);
    g_clear_pointer(&server->streams, g_hash_table_unref);
    g_free(server->complaint);
    g_free(server->reserve);
}
