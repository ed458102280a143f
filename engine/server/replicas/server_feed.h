/* A part with replicas, on its primary: which replicas there are, and answers that wait for them.
 *
 * Thread: the server's owner. */
#ifndef RUBATO_ENGINE_SERVER_REPLICAS_SERVER_FEED_H
#define RUBATO_ENGINE_SERVER_REPLICAS_SERVER_FEED_H

#include "engine/server/replicas/replica_feed.h"
#include "engine/server/server_private.h"

struct FedPart {
    uint32_t table, part;
    ReplicaFeed feed;
    InputSequences *had; /* between tasks, by node */
    uint32_t map;        /* the number of the map by which it became the primary */
    bool is_settled;     /* it is to be replaced: it takes no more inputs (server_handover.c) */
    GArray *untold_ends; /* of uint32_t: epochs of tasks that have ended since; NULL: none has */
};

/* Replicas are on these servers, and have what the part has: nothing yet. (transfer full) */
FedPart *fed_part_new(const Server *server, uint32_t table, uint32_t part, const uint32_t *replicas,
                      uint32_t n);

/* Answers that wait are cancelled. NULL is allowed. */
void fed_part_free(FedPart *fed);

/* The part has no replicas on other servers than these n any more. */
void server_keep_replicas(Server *server, FedPart *fed, const uint32_t *replicas, uint32_t n);

/* The part has none on that server, or that node, any more. */
void server_drop_replica(Server *server, FedPart *fed, uint32_t replica);
void server_drop_replicas_of(Server *server, FedPart *fed, uint32_t node);

/* As server_answer, but the answer may leave later. message->is_answered is set. */
void server_answer_fed(Server *server, FedPart *fed, Message *message, CallStatus status);

/* As server_empty_outbox. */
void server_empty_fed(Server *server, const BoundPart *part);

/* The end of a task, behind all its inputs. Its answers that wait are cancelled. */
void server_feed_end(Server *server, FedPart *fed, uint32_t epoch);

/* The last input of a primary that is to be replaced. None follows, unless it stays. */
void server_feed_last(Server *server, FedPart *fed);

/* It stays after all: it tells what replicas have not heard since then. */
void server_feed_go_on(Server *server, FedPart *fed);

/* Ends a part of the call once all such primaries here have their inputs on their replicas. */
void server_await_settled(Server *server, Call *call);

/* To be called after what may bring that about; what is in this header does so itself. */
void server_check_settled(Server *server);

/* The wait is over with this status: there is none any more. */
void server_end_settling(Server *server, CallStatus status);

/* A MESSAGE_POSITION. */
void server_take_position(Server *server, Message *message);

/* The run has ended: answers for this node are cancelled, and none is sent to others. No answer
 * waits from now on. */
void server_end_feeds(Server *server);

#endif
