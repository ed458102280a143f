/* What a reader asks the publisher, and the answers.
 *
 * Each question has an id, and its answer the same one. Answers come in the order of the questions,
 * and some may be lost; those to questions that were given up are dropped.
 *
 * Why the waits end: each is bounded by ANSWER_MS, and ends at once when the reader is to end.
 *
 * Threads: the reader's. */
#ifndef RUBATO_IO_STREAM_ZMQ_QUESTIONS_H
#define RUBATO_IO_STREAM_ZMQ_QUESTIONS_H

#include <glib.h>
#include <stdbool.h>

#include "io/stream/zmq/stream_message.h"

typedef struct Questions Questions;

typedef enum {
    TAKEN_ANSWER,
    TAKEN_LATE,    /* no answer has come in time, or it is lost */
    TAKEN_NOTHING, /* nothing that is of use */
} Taken;

/* context: of this reader alone; address: for messages; socket: connected (zmq_stream.h); ends:
 * atomic, not 0 if the reader is to end, and event can be read then. They must stay.
 * RUBATO_ERROR_NETWORK. (transfer full) */
Questions *questions_new(void *context, const char *address, void *socket, const gint *ends,
                         int event, GError **error);

/* Before the socket is closed. NULL is allowed. */
void questions_free(Questions *questions);

/* Ids ascend; that of the last question. */
uint64_t questions_next_id(Questions *questions);
uint64_t questions_last_id(const Questions *questions);

/* The publisher was heard now, here or elsewhere; for how long it was not. */
void questions_note_heard(Questions *questions);
int64_t questions_silent_ms(const Questions *questions);

/* RUBATO_ERROR_NETWORK: the address, and what is wrong there. Returns false. */
bool questions_fail(const Questions *questions, const char *what, GError **error);

/* Whether the connection was lost since the last call, or since it was heard of here. Who asks
 * nothing for long calls it now and then. */
bool questions_forget_losses(Questions *questions);

/* Asks, once there is a connection. RUBATO_ERROR_NETWORK. */
bool questions_ask(Questions *questions, const StreamMessage *question, GError **error);

/* Receives an answer with an id from `first` on; others are of questions that were given up. It
 * points into memory that stays until the next call. */
Taken questions_receive(Questions *questions, uint64_t first, StreamMessage *answer,
                        GError **error);

#endif
