/* The socket on which a reader asks, and receives answers. */
#include "io/stream/zmq/questions.h"

#include <rubato/error.h>
#include <zmq.h>

#include "io/net/monotonic.h"

#define ANSWER_MS 3000

struct Questions {
    /* immutable */
    const char *address;
    void *socket;
    const gint *ends; /* atomic */
    int event;

    zmq_msg_t message; /* the last answer */
    uint64_t last_id;
    int64_t heard_ms;
};

Questions *questions_new(const char *address, void *socket, const gint *ends, int event)
{
    Questions *const questions = g_new0(Questions, 1);

    questions->address = address;
    questions->socket = socket;
    questions->ends = ends;
    questions->event = event;
    zmq_msg_init(&questions->message);
    return questions;
}

void questions_free(Questions *questions)
{
    if (questions == NULL)
        return;
    zmq_msg_close(&questions->message);
    g_free(questions);
}

uint64_t questions_next_id(Questions *questions)
{
    return ++questions->last_id;
}

uint64_t questions_last_id(const Questions *questions)
{
    return questions->last_id;
}

void questions_note_heard(Questions *questions)
{
    questions->heard_ms = monotonic_ms();
}

int64_t questions_silent_ms(const Questions *questions)
{
    return monotonic_ms() - questions->heard_ms;
}

bool questions_fail(const Questions *questions, const char *what, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK, "%s: %s", questions->address, what);
    return false;
}

bool questions_ask(Questions *questions, const StreamMessage *question, GError **error)
{
    g_auto(RubatoByteWriter) bytes = rubato_byte_writer_new(STREAM_MESSAGE_HEAD);

    zmq_pollitem_t items[] = { { .socket = questions->socket, .events = ZMQ_POLLOUT },
                               { .fd = questions->event, .events = ZMQ_POLLIN } };

    stream_message_write(&bytes, question);
    (void)zmq_poll(items, G_N_ELEMENTS(items), ANSWER_MS); /* until it is connected */
    if (zmq_send(questions->socket, bytes.bytes, bytes.n, ZMQ_DONTWAIT) >= 0)
        return true;
    return questions_fail(questions, "nobody answers there", error);
}

Taken questions_receive(Questions *questions, uint64_t first, StreamMessage *answer, GError **error)
{
    const int64_t end_ms = monotonic_ms() + ANSWER_MS;

    for (;;) {
        const int64_t left_ms = end_ms - monotonic_ms();
        zmq_pollitem_t items[] = { { .socket = questions->socket, .events = ZMQ_POLLIN },
                                   { .fd = questions->event, .events = ZMQ_POLLIN } };

        if (g_atomic_int_get(questions->ends) != 0) {
            questions_fail(questions, "the reader ends", error);
            return TAKEN_NOTHING;
        }
        if (left_ms <= 0) {
            questions_fail(questions, "no answer has come in time", error);
            return TAKEN_LATE;
        }
        (void)zmq_poll(items, G_N_ELEMENTS(items), left_ms);
        if (zmq_msg_recv(&questions->message, questions->socket, ZMQ_DONTWAIT) < 0)
            continue;
        if (stream_message_read(zmq_msg_data(&questions->message),
                                zmq_msg_size(&questions->message), answer) &&
            answer->id >= first && answer->id <= questions->last_id) {
            questions->heard_ms = monotonic_ms();
            return TAKEN_ANSWER;
        }
    }
}
