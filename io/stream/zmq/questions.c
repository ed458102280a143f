/* The socket on which a reader asks, and receives answers.
 *
 * A question that is under way on a connection is lost with it, and so may its answer be. ZeroMQ
 * connects again, and tells of such losses by a socket of their own; so it is asked again at once.
 */
#include "io/stream/zmq/questions.h"

#include <errno.h>
#include <rubato/error.h>
#include <zmq.h>

#include "io/net/monotonic.h"

#define ANSWER_MS 3000
#define LOSSES "inproc://losses" /* of a context of one reader */

struct Questions {
    /* immutable */
    void *context;
    const char *address;
    void *socket;
    void *losses;     /* a message comes when the connection of `socket` is lost */
    const gint *ends; /* atomic */
    int event;

    zmq_msg_t message; /* the last answer */
    uint64_t last_id;
    int64_t heard_ms;
};

/* It takes all of them: the thread of ZeroMQ would wait if there were no room. */
static bool hear_losses(Questions *questions)
{
    const int no_bound = 0, no_linger = 0;

    questions->losses = zmq_socket(questions->context, ZMQ_PAIR);
    return questions->losses != NULL &&
           zmq_setsockopt(questions->losses, ZMQ_RCVHWM, &no_bound, sizeof no_bound) == 0 &&
           zmq_setsockopt(questions->losses, ZMQ_LINGER, &no_linger, sizeof no_linger) == 0 &&
           zmq_socket_monitor(questions->socket, LOSSES, ZMQ_EVENT_DISCONNECTED) == 0 &&
           zmq_connect(questions->losses, LOSSES) == 0;
}

Questions *questions_new(void *context, const char *address, void *socket, const gint *ends,
                         int event, GError **error)
{
    Questions *const questions = g_new0(Questions, 1);

    questions->context = context;
    questions->address = address;
    questions->socket = socket;
    questions->ends = ends;
    questions->event = event;
    zmq_msg_init(&questions->message);
    if (hear_losses(questions))
        return questions;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK, "%s: lost connections are not told: %s",
                address, zmq_strerror(errno));
    questions_free(questions);
    return NULL;
}

void questions_free(Questions *questions)
{
    if (questions == NULL)
        return;
    if (questions->losses != NULL)
        zmq_close(questions->losses);
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

bool questions_forget_losses(Questions *questions)
{
    bool is_one = false;

    while (zmq_recv(questions->losses, NULL, 0, ZMQ_DONTWAIT) >= 0)
        is_one = true;
    return is_one;
}

/* False: there is no connection yet, or it is being lost. */
static bool send_now(const Questions *questions, const RubatoByteWriter *bytes)
{
    return zmq_send(questions->socket, bytes->bytes, bytes->n, ZMQ_DONTWAIT) >= 0;
}

/* If it is not sent at once there is no connection: that it was lost is known. */
bool questions_ask(Questions *questions, const StreamMessage *question, GError **error)
{
    g_auto(RubatoByteWriter) bytes = rubato_byte_writer_new(STREAM_MESSAGE_HEAD);
    const int64_t end_ms = monotonic_ms() + ANSWER_MS;

    stream_message_write(&bytes, question);
    while (!send_now(questions, &bytes)) {
        const int64_t left_ms = end_ms - monotonic_ms();
        zmq_pollitem_t items[] = { { .socket = questions->socket, .events = ZMQ_POLLOUT },
                                   { .fd = questions->event, .events = ZMQ_POLLIN } };

        if (left_ms <= 0 || g_atomic_int_get(questions->ends) != 0)
            return questions_fail(questions, "nobody answers there", error);
        (void)questions_forget_losses(questions);
        (void)zmq_poll(items, G_N_ELEMENTS(items), left_ms);
    }
    return true;
}

typedef enum {
    COME_NOTHING,
    COME_OTHER,
    COME_ANSWER,
} Come;

static Come take_one(Questions *questions, uint64_t first, StreamMessage *answer)
{
    if (zmq_msg_recv(&questions->message, questions->socket, ZMQ_DONTWAIT) < 0)
        return COME_NOTHING;
    if (!stream_message_read(zmq_msg_data(&questions->message), zmq_msg_size(&questions->message),
                             answer) ||
        answer->id < first || answer->id > questions->last_id)
        return COME_OTHER;
    questions_note_heard(questions);
    return COME_ANSWER;
}

/* Looks for an answer before it looks at the time, or for a loss: it may have come before. */
Taken questions_receive(Questions *questions, uint64_t first, StreamMessage *answer, GError **error)
{
    const int64_t end_ms = monotonic_ms() + ANSWER_MS;

    while (g_atomic_int_get(questions->ends) == 0) {
        const int64_t left_ms = end_ms - monotonic_ms();
        zmq_pollitem_t items[] = { { .socket = questions->socket, .events = ZMQ_POLLIN },
                                   { .socket = questions->losses, .events = ZMQ_POLLIN },
                                   { .fd = questions->event, .events = ZMQ_POLLIN } };
        const Come come = take_one(questions, first, answer);

        if (come == COME_ANSWER)
            return TAKEN_ANSWER;
        if (left_ms <= 0) {
            questions_fail(questions, "no answer has come in time", error);
            return TAKEN_LATE;
        }
        if (come == COME_OTHER)
            continue;
        if (questions_forget_losses(questions)) {
            questions_fail(questions, "the connection was lost before an answer came", error);
            return TAKEN_LATE;
        }
        (void)zmq_poll(items, G_N_ELEMENTS(items), left_ms);
    }
    questions_fail(questions, "the reader ends", error);
    return TAKEN_NOTHING;
}
