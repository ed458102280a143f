/* A connection between a follower and a program: a handshake (io/net/secure/handshake.h), then
 * messages, each sealed.
 *
 *     bytes of the message (u32), tag (16), the message
 *
 * Every wait has an end: the time that its caller gives, or shutdown() of the socket by another
 * thread.
 *
 * Threads: one at a time. */
#ifndef RUBATO_ENGINE_SERVING_SERVING_LINE_H
#define RUBATO_ENGINE_SERVING_SERVING_LINE_H

#include "io/net/secure/handshake.h"

typedef struct {
    int fd; /* -1: none */
    Seal sends, receives;
    bool has_seals;
} ServingLine;

/* The end of a wait that has no time. */
#define SERVING_LINE_NEVER INT64_MAX

/* Takes the socket over. The handshake has to be over at end_ms (monotonic_ms). secret NULL: none.
 * RUBATO_ERROR_NETWORK, _TIMEOUT; then the socket is closed. */
bool serving_line_open(ServingLine *line, int fd, HandshakeRole role, const RunSecret *secret,
                       int64_t end_ms, GError **error);

/* Closes it. Once more is allowed. */
void serving_line_close(ServingLine *line);

/* Sends a message, whose bytes are not the same afterwards. */
bool serving_line_send(ServingLine *line, uint8_t *bytes, size_t n, int64_t end_ms, GError **error);

/* Waits until a message begins to come, or the connection ends. */
bool serving_line_wait(ServingLine *line, int64_t end_ms, GError **error);

/* The head of a message that comes. */
typedef struct {
    size_t n; /* of its bytes */
    uint8_t tag[SEAL_TAG_BYTES];
} ServingHead;

/* most: RUBATO_ERROR_FORMAT: it has more. */
bool serving_line_receive_head(ServingLine *line, ServingHead *head, size_t most, int64_t end_ms,
                               GError **error);

/* The message itself, into head->n bytes. */
bool serving_line_receive(ServingLine *line, const ServingHead *head, uint8_t *bytes,
                          int64_t end_ms, GError **error);

#endif
