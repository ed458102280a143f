/* Data messages of other nodes are handled on the thread that receives them. None of them waits for
 * the engine's lock, as control messages do. */
#include <errno.h>

#include "engine/control/dispatch.h"
#include "engine/engine_private.h"
#include "tests/support/network/station.h"
#include "tests/support/runner.h"

/* An engine that has a lock, held by this thread, an office with a server, and nothing else. */
typedef struct {
    RubatoEngine engine;
    Station *here, *other;
    Actor desk;
    unsigned n_handled;
} Rig;

static Rig rig;

static void handle(Actor *actor, Message *message)
{
    rig.n_handled++;
    message->status = CALL_OK;
    actor_answer(actor, message);
}

static void rig_init(void)
{
    static const uint32_t ids[] = { 10, 20 }, servers_of[] = { 0, 1 };
    pthread_mutexattr_t checked;

    pthread_mutexattr_init(&checked);
    pthread_mutexattr_settype(&checked, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&rig.engine.lock, &checked);
    pthread_mutexattr_destroy(&checked);
    rig.engine.runs = g_ptr_array_new();
    post_office_init(&rig.engine.office, 1, 2, ids, servers_of, &FLOW_SIZES_USUAL);
    actor_init(&rig.desk, handle, NULL);
    rig.engine.office.servers[0].actor = &rig.desk;
    const NetworkConfig config = { .room_bytes = post_office_room_bytes() };
    rig.other = station_new(0, 2, NULL);
    rig.here = station_new(1, 2, &config);
    stations_join((Station *const[]){ rig.other, rig.here }, 2);
    rig.engine.office.network = rig.here->network;
    ck_assert_int_eq(pthread_mutex_lock(&rig.engine.lock), 0);
}

static void rig_clear(void)
{
    post_office_clear(&rig.engine.office);
    station_free(rig.here);
    station_free(rig.other);
    g_ptr_array_unref(rig.engine.runs);
}

/* Hands over a message of node 0, as the network does. */
static void receive(Frame *frame)
{
    network_send(rig.other->network, 1, frame);
    Incoming *const incoming = station_take(rig.here, STATION_PATIENCE_MS);
    ck_assert_ptr_nonnull(incoming);
    dispatch_network_handler.receive(&rig.engine, incoming);
}

typedef struct {
    ClockListener listener; /* first */
    WireClock heard;
    unsigned n_heard;
} Ear;

static void hear(ClockListener *listener, uint32_t node, const WireClock *clock)
{
    Ear *const ear = (Ear *)listener;

    ck_assert_uint_eq(node, 0);
    ear->heard = *clock;
    ear->n_heard++;
}

static Frame *clock_frame(uint32_t epoch, uint32_t table)
{
    return frame_new(
        &(WireHeader){ .kind = MESSAGE_CLOCK,
                       .epoch = epoch,
                       .clock = { .table = table, .clock = 5, .node_clock = 4, .slowest = 3 } });
}

/* The lock detects a thread that takes or gives it twice: this thread still holds it when all
 * messages were handled. */
START_TEST(data_messages_take_no_lock_of_the_engine)
{
    Ear ear = { .listener = { .epoch = 7, .table = 2, .hear = hear } };

    rig_init();
    post_office_listen(&rig.engine.office, &ear.listener);
    receive(clock_frame(7, 2));
    ck_assert_uint_eq(ear.n_heard, 1);
    ck_assert_uint_eq(rig.n_handled, 1);
    receive(station_frame(MESSAGE_FENCE, 1, 0));
    ck_assert_uint_eq(rig.n_handled, 2);
    receive(station_frame(MESSAGE_REPLY, 1, 0)); /* nobody waits for it */
    ck_assert_int_eq(pthread_mutex_lock(&rig.engine.lock), EDEADLK);
    ck_assert_int_eq(pthread_mutex_unlock(&rig.engine.lock), 0);
    post_office_unlisten(&rig.engine.office, &ear.listener);
    rig_clear();
}
END_TEST

START_TEST(a_clock_is_heard_by_its_own_task_and_table)
{
    Ear ears[] = { { .listener = { .epoch = 7, .table = 2, .hear = hear } },
                   { .listener = { .epoch = 7, .table = 3, .hear = hear } },
                   { .listener = { .epoch = 8, .table = 2, .hear = hear } } };

    rig_init();
    for (size_t i = 0; i < G_N_ELEMENTS(ears); i++)
        post_office_listen(&rig.engine.office, &ears[i].listener);
    receive(clock_frame(7, 3));
    receive(clock_frame(9, 3));
    ck_assert_uint_eq(ears[0].n_heard, 0);
    ck_assert_uint_eq(ears[1].n_heard, 1);
    ck_assert_uint_eq(ears[2].n_heard, 0);
    ck_assert_uint_eq(ears[1].heard.clock, 5);
    ck_assert_uint_eq(ears[1].heard.node_clock, 4);
    ck_assert_uint_eq(ears[1].heard.slowest, 3);
    post_office_unlisten(&rig.engine.office, &ears[1].listener); /* from the middle */
    receive(clock_frame(7, 3));
    receive(clock_frame(8, 2));
    ck_assert_uint_eq(ears[1].n_heard, 1);
    ck_assert_uint_eq(ears[2].n_heard, 1);
    ck_assert_uint_eq(rig.n_handled, 4); /* the server gets them all */
    for (size_t i = 0; i < G_N_ELEMENTS(ears); i++)
        post_office_unlisten(&rig.engine.office, &ears[i].listener);
    rig_clear();
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("data messages");
    TCase *const cases = tcase_create("data messages");

    tcase_add_test(cases, data_messages_take_no_lock_of_the_engine);
    tcase_add_test(cases, a_clock_is_heard_by_its_own_task_and_table);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
