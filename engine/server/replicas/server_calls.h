/* Calls of handlers that write, on a part with replicas: server_calls.c.
 *
 * Thread: the server's owner. */
#ifndef RUBATO_ENGINE_SERVER_REPLICAS_SERVER_CALLS_H
#define RUBATO_ENGINE_SERVER_REPLICAS_SERVER_CALLS_H

#include "engine/server/replicas/server_feed.h"
#include "engine/server/replicas/server_replicas.h"

/* Whether a message is such a call. */
bool server_is_change_call(const Message *message);

/* The call, whole, has come to the part's primary: in a task, and between tasks. The first one
 * brings the answer to the model's outbox, or the call waits; with server->starved, there was no
 * memory to pass it on. The second one answers. */
void server_take_change_call(Server *server, const BoundPart *part, Message *message);
void server_take_call_between(Server *server, FedPart *fed, RubatoShard *shard, Message *message);

/* ---- images ---- */

/* Sends a message of an image. */
typedef void CallPush(void *user, Message *message, uint8_t fed_kind);

/* The calls of a task, or between tasks, that have failed. */
void server_push_failed_calls(uint32_t epoch, const InputSequences *had, CallPush *push,
                              void *user);

/* A call that a model keeps, and what the part remembers of it. False: there is no memory. */
bool server_push_kept_call(uint32_t epoch, const RubatoRequest *kept, CallPush *push, void *user);

/* Ragged rows, as a call that assigns them. False: there is no memory. */
bool server_push_assignment(const RubatoKeys *keys, const HandlerCall *assigning, CallPush *push,
                            void *user);

/* A FEED_CALLED has come. False: it makes no sense. */
bool replica_take_called(InputSequences *had, const Message *message);

/* ---- pieces of calls that come to a replica ---- */

typedef enum {
    FED_CALL_GOES_ON, /* there are pieces to come */
    FED_CALL_WHOLE,
    FED_CALL_NO_MEMORY,
    FED_CALL_NONSENSE,
} FedCallState;

/* Takes in a piece, which has been checked as any message. */
FedCallState replica_take_call_piece(Replica *replica, const Message *message);

/* Whether the bytes are those of a call that can be run here. */
bool replica_can_run_call(const Replica *replica, const Message *last);

/* Does what the whole call asks for: of_task as of an input. */
void replica_run_call(Replica *replica, const ReplicaModel *of_task, const Message *last);

/* Of an image: gives it to the model; assigns ragged rows. False: it makes no sense. */
bool replica_keep_call(Replica *replica, const ReplicaModel *of_task, const Message *last);
bool replica_assign_rows(Replica *replica, const Message *last);

/* Forgets the pieces of a call whose rest does not come. */
void replica_drop_call(Replica *replica);

#endif
