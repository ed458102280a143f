/* Streams over ZeroMQ in tests: a table whose versions are written, a publisher, followers, and
 * sockets that say to either what a test likes. All values of a version are its number.
 *
 * A failure here fails the case.
 *
 * Threads: the case's own. */
#ifndef TESTS_SUPPORT_STREAM_STREAM_FIXTURE_H
#define TESTS_SUPPORT_STREAM_STREAM_FIXTURE_H

#include <check.h>
#include <rubato/rubato.h>

#include "io/stream/zmq/stream_message.h"
#include "io/stream/zmq/zmq_publisher.h"

enum { STREAM_KEYS = 2000, STREAM_WAIT_S = 20 };

typedef struct {
    char *temporary;  /* where readers keep their versions, and all else lies */
    char *directory;  /* of the versions */
    char *rest, *uri; /* of the stream: "tcp://…", and with "zmq:" in front of it */
    unsigned port;
    RubatoEngine *engine; /* with a table "n" of STREAM_KEYS rows */
} StreamFixture;

extern StreamFixture stream;

/* The fixture of each case. */
void stream_set_up(void);
void stream_tear_down(void);

/* Runs a suite of such cases, as run_suite does. */
int stream_run_suite(Suite *suite);

/* Again, once the one before is dropped. */
void stream_create_table(uint32_t parts);

/* Writes a version; the second one also tells it. */
void stream_write(uint32_t full_every, uint32_t keep);
void stream_go_on(RubatoStreamWriter *writer, uint32_t full_every, uint32_t keep);

RubatoStreamWriter *stream_publish(void);
RubatoFollower *stream_follow(void);

void stream_check_rows(RubatoFollower *follower, int64_t value);

/* Advances until it has that version; each one on the way is whole. Returns how many were read
 * anew. */
int stream_advance_to(RubatoFollower *follower, uint64_t version);

/* Waits until the follower says why nothing comes. */
void stream_expect_fault(RubatoFollower *follower, RubatoError code, const char *text);

/* A socket of ZeroMQ's type at that port. (transfer full, zmq_close) */
void *stream_open_socket(void *context, int type, unsigned number, bool binds);
void stream_send(void *socket, const StreamMessage *message, int flags);

/* Asks a publisher; *part is the answer (zmq_msg_t, transfer full). A machine that stands still for
 * some seconds loses the connection, whose ends hear nothing, and the question with it: then it is
 * asked again, as readers do. */
StreamMessageKind stream_ask(void *socket, const StreamMessage *question, void *part);

#endif
