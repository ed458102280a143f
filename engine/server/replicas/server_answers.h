/* Answers of Adds and Gets in one request, on a part with replicas: server_answers.c.
 *
 * Thread: the server's owner. */
#ifndef RUBATO_ENGINE_SERVER_REPLICAS_SERVER_ANSWERS_H
#define RUBATO_ENGINE_SERVER_REPLICAS_SERVER_ANSWERS_H

#include "engine/server/replicas/server_replicas.h"

/* Whether the holders of the part keep the answer to the message. */
bool server_keeps_answer(const BoundPart *part, const Message *message);

/* On the primary: a request that was sent again is answered as before. False: that answer is not
 * kept. */
bool server_answer_as_before(const BoundPart *part, Message *message);

/* On the primary: the Add has just been fed. The first one: so it was by an earlier process in the
 * worker's place, and is answered as then; or false. The second one: it has just been answered by
 * the rows, and its answer has not left. */
bool server_repeat_answer(const BoundPart *part, Message *message);
void server_keep_answer(const BoundPart *part, const Message *message);

/* On a replica: the Add of these keys has just been applied. */
void replica_keep_answer(const Replica *replica, const ReplicaModel *of_task,
                         const Message *message, const RubatoKeys *keys);

/* ---- images ---- */

/* The answers of a task. push sends a message of the image. */
void server_push_answers(uint32_t epoch, const InputSequences *had,
                         void (*push)(void *user, Message *message, uint8_t fed_kind), void *user);

/* A FEED_ANSWERED has come. False: it makes no sense. */
bool replica_take_answer(InputSequences *had, const Message *message);

#endif
