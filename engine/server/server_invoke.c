/* Functions that run as the owner of servers.
 *
 * Threads: any that is not a server's owner. */
#include "engine/server/server.h"

#include "engine/server/replicas/server_copies.h"
#include "engine/server/replicas/server_feed.h"

typedef struct {
    Message message; /* first: the handler finds it by the message */
    void (*function)(Server *server, void *data);
    void *data;
} Invocation;

static void invoke(Message *message, void *server)
{
    Invocation *invocation = (Invocation *)message;

    invocation->function(server, invocation->data);
}

static void end_invocation(Message *message)
{
    message_end_call(message);
    g_free(message);
}

static Message *make_invocation(void (*function)(Server *server, void *data), void *data,
                                Call *call)
{
    Invocation *const invocation = g_new0(Invocation, 1);

    *invocation = (Invocation){ .message = { .kind = MESSAGE_INVOKE,
                                             .call = call,
                                             .invoke = invoke,
                                             .end = end_invocation },
                                .function = function,
                                .data = data };
    return &invocation->message;
}

void servers_post(Server *servers, uint32_t n, void (*function)(Server *server, void *data),
                  void *data, Call *call)
{
    call_add_parts(call, n);
    for (uint32_t i = 0; i < n; i++)
        actor_post(&servers[i].actor, make_invocation(function, data, call));
}

static void end_feeds(Message *message, void *server)
{
    (void)message;
    server_forget_copies(server);
    server_end_feeds(server);
}

static void free_message(Message *message)
{
    g_free(message);
}

/* For which nobody waits. */
static void post_all(Server *servers, uint32_t n, void (*invoked)(Message *message, void *server))
{
    for (uint32_t i = 0; i < n; i++) {
        Message *message = g_new0(Message, 1);

        *message = (Message){ .kind = MESSAGE_INVOKE, .invoke = invoked, .end = free_message };
        actor_post(&servers[i].actor, message);
    }
}

void servers_post_end_feeds(Server *servers, uint32_t n)
{
    post_all(servers, n, end_feeds);
}

static void make_copies(Message *message, void *server)
{
    (void)message;
    server_make_copies(server);
}

void servers_post_copies(Server *servers, uint32_t n)
{
    post_all(servers, n, make_copies);
}

static void drop_table(Server *server, void *data)
{
    server_drop_table(server, *(const uint32_t *)data);
}

void servers_drop_table(Server *servers, uint32_t n, uint32_t table)
{
    servers_run(servers, n, drop_table, &table);
    servers_post_copies(servers, n); /* the present one may have been of a part of it */
}

void servers_run(Server *servers, uint32_t n, void (*function)(Server *server, void *data),
                 void *data)
{
    Call call;

    call_begin(&call, NULL);
    servers_post(servers, n, function, data, &call);
    call_sent(&call);
    call_wait(&call, -1);
}

void server_run_here(Server *server, void (*function)(Server *server, void *data), void *data)
{
    Message *message;
    Call call;

    call_begin(&call, NULL);
    call_add_parts(&call, 1);
    message = make_invocation(function, data, &call);
    if (!actor_try_handle_soon(&server->actor, message, 0))
        actor_post(&server->actor, message);
    call_sent(&call);
    call_wait(&call, -1);
}
