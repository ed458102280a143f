/* Functions that run as the owner of servers.
 *
 * Threads: any that is not a server's owner. */
#include "engine/server/server.h"

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

void servers_post(Server *servers, uint32_t n, void (*function)(Server *server, void *data),
                  void *data, Call *call)
{
    call_add_parts(call, n);
    for (uint32_t i = 0; i < n; i++) {
        Invocation *invocation = g_new0(Invocation, 1);

        *invocation = (Invocation){ .message = { .kind = MESSAGE_INVOKE,
                                                 .call = call,
                                                 .invoke = invoke,
                                                 .end = end_invocation },
                                    .function = function,
                                    .data = data };
        actor_post(&servers[i].actor, &invocation->message);
    }
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
