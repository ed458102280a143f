/* Senders over a connection that breaks, and takes bytes, as the test decides.
 *
 * All in one thread, which is the holder of the channel and the I/O thread in turn. */
#include <sys/epoll.h>
#include <unistd.h>

#include "io/net/transport/sender.h"
#include "tests/support/runner.h"

enum { PACKET_BYTES = 100, LONG_MS = 600000 };

/* What was written of a packet in one go. */
typedef struct {
    const Packet *packet;
    size_t from, to;
} Writing;

typedef struct {
    Sender base;     /* first */
    bool is_refused; /* it does not connect */
    bool is_ended;   /* it begins to connect, which then fails for another reason */
    bool breaks;     /* with the next byte */
    size_t room;     /* bytes that the connection takes */
    size_t gains;    /* the same, more with each go: the other end reads meanwhile */
    unsigned n_attempts, n_opened;
    Writing writings[8];
    unsigned n_writings;
    unsigned *n_freed;
} Pipe;

static bool open_pipe(Sender *sender)
{
    Pipe *const pipe = (Pipe *)sender;

    pipe->n_attempts++;
    if (pipe->is_refused) {
        sender_note_refused(sender);
        return false;
    }
    if (pipe->is_ended)
        return true;
    pipe->n_opened++;
    sender_note_connected(sender);
    return true;
}

static void shut_pipe(Sender *sender)
{
    (void)sender;
}

static SenderProgress write_pipe(Sender *sender, Packet *packet, size_t *at, size_t *budget)
{
    Pipe *const pipe = (Pipe *)sender;
    const size_t n = MIN(pipe->room, packet->size - *at);

    if (pipe->breaks) {
        pipe->breaks = false;
        return SENDER_BROKEN;
    }
    if (n > 0) {
        ck_assert_uint_lt(pipe->n_writings, G_N_ELEMENTS(pipe->writings));
        pipe->writings[pipe->n_writings++] = (Writing){ packet, *at, *at + n };
    }
    pipe->room += pipe->gains - n;
    *budget -= n;
    *at += n;
    return *at == packet->size ? SENDER_DONE : SENDER_LATER;
}

static bool hear_pipe(Sender *sender, uint32_t events)
{
    (void)sender;
    return events != EPOLLHUP;
}

static void free_pipe(Sender *sender)
{
    (*((Pipe *)sender)->n_freed)++;
    g_free(sender);
}

static const SenderOps pipe_ops = {
    .open = open_pipe,
    .shut = shut_pipe,
    .write = write_pipe,
    .hear = hear_pipe,
    .free = free_pipe,
};

/* A transport with one sender, and two packets for it. */
typedef struct {
    Senders senders;
    Pipe *pipe;
    Channel *channel;
    Packet *packets[2];
    unsigned n_freed;
} Rig;

static void rig_init(Rig *rig, bool is_refused)
{
    *rig = (Rig){ .pipe = g_new0(Pipe, 1) };
    senders_init(&rig->senders);
    for (size_t i = 0; i < G_N_ELEMENTS(rig->packets); i++)
        rig->packets[i] = packet_new(PACKET_BYTES);
    rig->pipe->n_freed = &rig->n_freed;
    rig->pipe->is_refused = is_refused;
    sender_start(&rig->pipe->base, &pipe_ops, &rig->senders, /* longest_pause_ms= */ 20);
    rig->channel = &rig->pipe->base.base;
}

/* The sender is freed with everything that it held. */
static void rig_clear(Rig *rig)
{
    ck_assert_uint_eq(rig->n_freed, 1);
    for (size_t i = 0; i < G_N_ELEMENTS(rig->packets); i++) {
        ck_assert(!packet_is_shared(rig->packets[i]));
        packet_unref(rig->packets[i]);
    }
    senders_clear(&rig->senders);
}

static void send_packet(Rig *rig, size_t i)
{
    rig->channel->ops->send(rig->channel, rig->packets[i]);
}

static void check_writing(const Rig *rig, unsigned n, size_t packet, size_t from, size_t to)
{
    const Writing *const writing = &rig->pipe->writings[n];

    ck_assert_uint_lt(n, rig->pipe->n_writings);
    ck_assert_ptr_eq(writing->packet, rig->packets[packet]);
    ck_assert_uint_eq(writing->from, from);
    ck_assert_uint_eq(writing->to, to);
}

START_TEST(what_does_not_fit_waits_in_order)
{
    Rig rig;

    rig_init(&rig, false);
    rig.pipe->room = 60;
    send_packet(&rig, 0);
    rig.pipe->room = 10;
    rig.pipe->gains = 50;
    send_packet(&rig, 1); /* behind the rest of the first, for which there is no room at once */
    ck_assert_uint_eq(rig.pipe->n_writings, 2);
    rig.pipe->gains = 0;
    check_writing(&rig, 0, 0, 0, 60);
    check_writing(&rig, 1, 0, 60, 70);
    rig.pipe->room = PACKET_BYTES * 2;
    senders_hear(&rig.senders, rig.pipe->base.id, EPOLLOUT);
    check_writing(&rig, 2, 0, 70, PACKET_BYTES);
    check_writing(&rig, 3, 1, 0, PACKET_BYTES);
    ck_assert_uint_eq(rig.pipe->n_writings, 4);
    rig.channel->ops->close(rig.channel, LONG_MS);
    rig_clear(&rig);
}
END_TEST

START_TEST(closed_sender_stays_until_all_is_written)
{
    Rig rig;

    rig_init(&rig, false);
    send_packet(&rig, 0);
    rig.channel->ops->close(rig.channel, LONG_MS);
    senders_go_on(&rig.senders);
    ck_assert_uint_eq(rig.n_freed, 0);
    rig.pipe->room = PACKET_BYTES - 1;
    senders_go_on(&rig.senders);
    ck_assert_uint_eq(rig.n_freed, 0);
    rig.pipe->room = 1;
    senders_go_on(&rig.senders);
    rig_clear(&rig);
}
END_TEST

START_TEST(closed_sender_without_time_gives_up)
{
    Rig rig;

    rig_init(&rig, _i == 1);
    send_packet(&rig, 0);
    rig.channel->ops->close(rig.channel, 0);
    rig_clear(&rig);
}
END_TEST

START_TEST(closed_sender_begins_its_first_packet_anew_on_another_connection)
{
    const int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    Rig rig;

    ck_assert_int_ge(epoll_fd, 0);
    rig_init(&rig, false);
    Pipe *const pipe = rig.pipe;
    pipe->room = 60;
    send_packet(&rig, 0);
    send_packet(&rig, 1);
    rig.channel->ops->close(rig.channel, LONG_MS);
    pipe->breaks = true;
    senders_go_on(&rig.senders);
    ck_assert_uint_eq(rig.n_freed, 0);
    ck_assert_uint_eq(pipe->n_writings, 1);
    ck_assert(!pipe->base.is_open);
    pipe->room = PACKET_BYTES; /* for the first alone: with it, the sender would be gone */
    while (pipe->n_opened == 1)
        senders_go_on(&rig.senders);
    check_writing(&rig, 0, 0, 0, 60);
    check_writing(&rig, 1, 0, 0, PACKET_BYTES);
    ck_assert_uint_eq(pipe->n_writings, 2);
    pipe->room = PACKET_BYTES;
    senders_finish(&rig.senders, epoll_fd, 1);
    rig_clear(&rig);
    close(epoll_fd);
}
END_TEST

START_TEST(what_waits_is_dropped_when_an_open_channel_loses_its_connection)
{
    Rig rig;

    rig_init(&rig, false);
    rig.pipe->room = 60;
    send_packet(&rig, 0);
    rig.pipe->is_refused = true;
    senders_hear(&rig.senders, rig.pipe->base.id, EPOLLHUP);
    ck_assert_int_eq(rig.channel->ops->state(rig.channel), NETWORK_PEER_DISCONNECTED);
    ck_assert(!packet_is_shared(rig.packets[0]));
    send_packet(&rig, 1); /* the link has it, and sends it again */
    ck_assert(!packet_is_shared(rig.packets[1]));
    ck_assert_uint_eq(rig.channel->ops->n_resets(rig.channel), 0);
    ck_assert(!senders_take_resets(&rig.senders));
    rig.pipe->is_refused = false;
    while (rig.channel->ops->state(rig.channel) != NETWORK_PEER_CONNECTED)
        ;
    ck_assert_uint_eq(rig.channel->ops->n_resets(rig.channel), 1);
    ck_assert(senders_take_resets(&rig.senders));
    ck_assert(!senders_take_resets(&rig.senders)); /* once */
    ck_assert_uint_eq(rig.pipe->n_writings, 1);
    rig.channel->ops->close(rig.channel, LONG_MS);
    rig_clear(&rig);
}
END_TEST

/* One more. */
static void attempt(Rig *rig)
{
    const unsigned n = rig->pipe->n_attempts;

    while (rig->pipe->n_attempts == n)
        (void)rig->channel->ops->state(rig->channel);
}

/* One attempt may come when the other process makes its socket anew. It does not matter whether
 * there was a connection before. */
START_TEST(a_channel_is_refused_when_two_attempts_were)
{
    Rig rig;

    rig_init(&rig, true);
    ck_assert_uint_eq(rig.pipe->n_attempts, 1);
    ck_assert(!rig.channel->ops->is_refused(rig.channel));
    attempt(&rig);
    ck_assert(rig.channel->ops->is_refused(rig.channel));
    ck_assert_int_eq(rig.channel->ops->state(rig.channel), NETWORK_PEER_CONNECTING);
    for (int i = 0; i < 2; i++) {
        rig.pipe->is_refused = false;
        while (rig.channel->ops->state(rig.channel) != NETWORK_PEER_CONNECTED)
            ;
        ck_assert(!rig.channel->ops->is_refused(rig.channel));
        rig.pipe->is_refused = true;
        rig.pipe->n_attempts = 0;
        senders_hear(&rig.senders, rig.pipe->base.id, EPOLLHUP);
        while (rig.pipe->n_attempts < 2) {
            ck_assert(!rig.channel->ops->is_refused(rig.channel));
            (void)rig.channel->ops->state(rig.channel);
        }
        ck_assert(rig.channel->ops->is_refused(rig.channel));
    }
    rig.channel->ops->close(rig.channel, 0);
    senders_go_on(&rig.senders);
    rig_clear(&rig);
}
END_TEST

/* One attempt more, whose end says nothing of who listens there. */
static void attempt_in_vain(Rig *rig)
{
    const unsigned n = rig->pipe->n_attempts;

    rig->pipe->is_refused = false;
    rig->pipe->is_ended = true;
    while (rig->pipe->n_attempts == n)
        (void)rig->channel->ops->state(rig->channel);
    rig->pipe->is_ended = false;
    rig->pipe->is_refused = true;
    senders_hear(&rig->senders, rig->pipe->base.id, EPOLLHUP);
}

START_TEST(refused_attempts_count_one_after_the_other)
{
    Rig rig;

    rig_init(&rig, false);
    rig.pipe->is_refused = true;
    senders_hear(&rig.senders, rig.pipe->base.id, EPOLLHUP);
    if (rig.pipe->n_attempts == 1)
        attempt(&rig); /* the connection was so short that the first attempt had to wait */
    attempt_in_vain(&rig);
    attempt(&rig);
    ck_assert(!rig.channel->ops->is_refused(rig.channel));
    attempt(&rig);
    ck_assert(rig.channel->ops->is_refused(rig.channel));
    attempt_in_vain(&rig); /* it disproves nothing */
    ck_assert(rig.channel->ops->is_refused(rig.channel));
    rig.channel->ops->close(rig.channel, 0);
    senders_go_on(&rig.senders);
    rig_clear(&rig);
}
END_TEST

START_TEST(what_is_sent_before_the_first_connection_waits_for_it)
{
    Rig rig;

    rig_init(&rig, true);
    rig.pipe->room = PACKET_BYTES;
    send_packet(&rig, 0);
    ck_assert_int_eq(rig.channel->ops->state(rig.channel), NETWORK_PEER_CONNECTING);
    ck_assert_uint_eq(rig.pipe->n_writings, 0);
    rig.pipe->is_refused = false;
    while (rig.channel->ops->state(rig.channel) != NETWORK_PEER_CONNECTED)
        ;
    check_writing(&rig, 0, 0, 0, PACKET_BYTES);
    ck_assert_uint_eq(rig.channel->ops->n_resets(rig.channel), 0);
    rig.channel->ops->close(rig.channel, LONG_MS);
    rig_clear(&rig);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("sender");
    TCase *const cases = tcase_create("sender");

    tcase_add_test(cases, what_does_not_fit_waits_in_order);
    tcase_add_test(cases, closed_sender_stays_until_all_is_written);
    tcase_add_loop_test(cases, closed_sender_without_time_gives_up, 0, 2);
    tcase_add_test(cases, closed_sender_begins_its_first_packet_anew_on_another_connection);
    tcase_add_test(cases, what_waits_is_dropped_when_an_open_channel_loses_its_connection);
    tcase_add_test(cases, a_channel_is_refused_when_two_attempts_were);
    tcase_add_test(cases, refused_attempts_count_one_after_the_other);
    tcase_add_test(cases, what_is_sent_before_the_first_connection_waits_for_it);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
