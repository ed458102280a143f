/* The inputs of a part with replicas, on its primary: each goes to the replicas, and then to the
 * model, or to the shard between tasks.
 *
 * Thread: the server's owner. */
#ifndef RUBATO_ENGINE_SERVER_REPLICAS_SERVER_INPUTS_H
#define RUBATO_ENGINE_SERVER_REPLICAS_SERVER_INPUTS_H

#include "engine/server/replicas/server_feed.h"
#include "io/net/link/wire.h"

/* A request that changes the part, and of which `had` knows the senders: whether it is new. It then
 * counts as had. Otherwise it was sent again and must not be applied again, but is answered as if
 * it were new. */
bool server_has_not_had(InputSequences *had, uint32_t sender, const Message *message);

/* The bytes that an input takes on its way, or more. */
static inline size_t server_input_bytes(const Message *input)
{
    const RubatoRequest *const request = &input->request;

    return WIRE_MESSAGE_HEADER_BYTES +
           request->keys.n * ((request->keys.keys != NULL ? sizeof(RubatoKey) : 0) +
                              (request->input != NULL ? input->row_bytes : 0));
}

/* Sends an input, or what makes a replica, to one replica: behind all that it was sent before.
 * input->number is set. False: there is no memory. */
bool server_try_push_input(Server *server, const FedPart *fed, uint32_t replica, Message *input,
                           uint8_t kind);

/* The same. A node without memory for it ends. */
void server_push_input(Server *server, const FedPart *fed, uint32_t replica, Message *input,
                       uint8_t kind);

/* Passes an input on to all replicas. input->number is set. What the input does goes between the
 * second and the third one, in which it is passed on; a node without memory for that ends by the
 * last one. */
void server_pass_on(Server *server, FedPart *fed, Message *input, MessageKind kind);
void server_begin_input(Server *server, FedPart *fed, RubatoShard *shard, Message *input,
                        MessageKind kind);
void server_end_input(Server *server, FedPart *fed, RubatoShard *shard, Message *input,
                      MessageKind kind);
void server_check_memory(const Server *server);

/* Tells a task to a replica, or to all that do not see tasks begin by themselves. False: there is
 * no memory, and some of them may not know it. */
bool server_feed_task_to(Server *server, const FedPart *fed, uint32_t replica, const Binding *task);
bool server_feed_task(Server *server, const FedPart *fed, const Binding *task);

/* The inputs of a part in a task: each goes to the replicas and to the model. An Add, the Add of an
 * Add and Get, or an announcement does not come to the outbox. */
void server_feed_add(Server *server, const BoundPart *part, const Message *message);
void server_feed_announcement(Server *server, const BoundPart *part, const Message *message);
void server_feed_tuning(Server *server, const BoundPart *part, Message *message);
void server_feed_clock(Server *server, const BoundPart *part, const Message *message);

/* A worker's process is in the place of a lost one, and begins to repeat what that one sent. */
ReturnAnswer server_feed_return(Server *server, const BoundPart *part, const Message *message);

/* An Add of rows of row_bytes, or with 0 a tuning, of a worker in a task. Takes away what the part
 * has had of an earlier process of the worker. False: that is all. */
bool server_skip_had(InputSequences *had, RubatoRequest *change, size_t row_bytes);

/* The same of keys that a worker in a task announces. */
bool server_skip_announced(InputSequences *had, RubatoRequest *told);

/* The n workers of ranks from `first` on are lost with their node. */
void server_feed_loss(Server *server, const BoundPart *part, uint32_t epoch, uint32_t node,
                      uint32_t first, uint32_t n);

/* An input between tasks. */
void server_feed_past_models(Server *server, FedPart *fed, RubatoShard *shard,
                             const Message *message);

/* Rows that Gets have asked for, of a table whose Gets create rows: makes them, and passes that on.
 * The caller has answers that show them, and sends these after that. */
void server_feed_created(Server *server, FedPart *fed, RubatoShard *shard);

/* The server's time reaches a part whose rows expire by it. To be called before any request. */
void server_feed_time(Server *server, FedPart *fed, RubatoShard *shard);

#endif
