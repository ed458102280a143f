/* What nodes send to each other for services: the body of a MESSAGE_SERVICE.
 *
 * A request or an answer goes as pieces, in their order. As bytes: kind 4; code 4; serial 8; bytes
 * of the whole 8; offset of this piece 8; a name of 64, padded with zeros (requests only); the
 * piece. A failure is one piece, and may come in place of any piece of an answer.
 *
 * Threads: any; the functions depend on their arguments only. */
#ifndef RUBATO_ENGINE_SERVICES_SERVICE_MESSAGE_H
#define RUBATO_ENGINE_SERVICES_SERVICE_MESSAGE_H

#include <rubato/service.h>

#define SERVICE_PIECE_BYTES ((size_t)256 << 10) /* of a body, in one message */

typedef enum {
    SERVICE_MESSAGE_REQUEST = 1,
    SERVICE_MESSAGE_ANSWER,
    SERVICE_MESSAGE_FORGET, /* nobody waits for this request any more */
    SERVICE_MESSAGE_END,
} ServiceMessageKind;

typedef struct {
    ServiceMessageKind kind;
    uint32_t code;     /* of an answer: CONTROL_OK, or how it failed; its bytes are a text then */
    uint64_t serial;   /* the request's, of the node that asks */
    uint64_t n_whole;  /* bytes of the whole body */
    uint64_t offset;   /* of this piece */
    const char *name;  /* of a request: the service */
    const void *bytes; /* of this piece */
    size_t n_bytes;
} ServiceMessage;

size_t service_message_size(const ServiceMessage *message);
void service_message_write(const ServiceMessage *message, void *bytes);

/* Reads a stranger's bytes. Name and piece stay where they lie. NULL, or what is wrong. */
const char *service_message_read(const void *bytes, size_t n, ServiceMessage *message);

#endif
