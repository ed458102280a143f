/* Actors: one owner at a time, each sender's order, no message forgotten, answers after the
 * token. */
#include <pthread.h>
#include <stdlib.h>

#include "io/net/actor.h"
#include "io/net/monotonic.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

/* ---- one thread ---- */

enum { MAX_HANDLED = 32 };

/* Records the messages that it handles, in order. */
typedef struct {
    Actor actor; /* first */
    uint32_t handled[MAX_HANDLED];
    unsigned n_handled;
    unsigned n_settled;
    unsigned depth;   /* of handle inside handle */
    Message *to_post; /* posted while the next message is handled */
} Diary;

static void write_down(Actor *actor, Message *message)
{
    Diary *diary = (Diary *)actor;

    ck_assert_uint_eq(diary->depth++, 0);
    diary->handled[diary->n_handled++] = message->server;
    if (diary->to_post != NULL) {
        Message *posted = diary->to_post;

        diary->to_post = NULL;
        actor_post(actor, posted);
    }
    actor_answer(actor, message);
    diary->depth--;
}

static void note_settled(Actor *actor)
{
    ((Diary *)actor)->n_settled++;
}

static void leave_process(Message *message)
{
    (void)message;
}

START_TEST(without_a_thread_whoever_posts_handles)
{
    Diary diary = { .n_handled = 0 };
    Message first = { .server = 1, .end = leave_process };
    Message second = { .server = 2, .end = leave_process };

    actor_init(&diary.actor, write_down, note_settled);
    actor_post(&diary.actor, &first);
    ck_assert_uint_eq(diary.n_handled, 1);
    ck_assert(actor_try_handle(&diary.actor, &second));
    ck_assert_uint_eq(diary.n_handled, 2);
    ck_assert_uint_eq(diary.n_settled, 2);
    actor_stop(&diary.actor); /* nothing to stop */
}
END_TEST

START_TEST(what_is_posted_while_handling_comes_afterwards)
{
    Diary diary = { .n_handled = 0 };
    Message outer = { .server = 1 }, inner = { .server = 2 };

    actor_init(&diary.actor, write_down, NULL);
    diary.to_post = &inner;
    if (_i == 0)
        actor_post(&diary.actor, &outer);
    else
        ck_assert(actor_try_handle(&diary.actor, &outer));
    ck_assert_uint_eq(diary.n_handled, 2);
    ck_assert_uint_eq(diary.handled[0], 1);
    ck_assert_uint_eq(diary.handled[1], 2);
}
END_TEST

/* ---- priority ---- */

static Message request_of(uint32_t worker, MessageKind kind, bool is_high, uint32_t name)
{
    return (Message){
        .kind = kind, .is_high = is_high, .server = name, .request = { .worker = worker }
    };
}

/* As actor_post while there is an owner. */
static void keep_waiting(Actor *actor, Message *message)
{
    mailbox_push(&actor->mailbox, message);
    if (message->is_high)
        atomic_store(&actor->has_high, true);
}

static void assert_handled(const Diary *diary, const uint32_t *names, unsigned n)
{
    ck_assert_uint_eq(diary->n_handled, n);
    for (unsigned i = 0; i < n; i++)
        ck_assert_uint_eq(diary->handled[i], names[i]);
}

START_TEST(high_priority_goes_before_the_requests_of_others)
{
    Diary diary = { .n_handled = 0 };
    Message waiting[] = {
        request_of(0, MESSAGE_ADD, false, 1),   request_of(1, MESSAGE_ADD, false, 2),
        { .kind = MESSAGE_CLOCK, .server = 3 }, request_of(2, MESSAGE_GET, true, 4),
        request_of(0, MESSAGE_GET, true, 5),    { .kind = MESSAGE_CLOCK, .server = 6 }
    };
    Message last = request_of(3, MESSAGE_GET, false, 7);

    actor_init(&diary.actor, write_down, NULL);
    for (size_t i = 0; i < G_N_ELEMENTS(waiting); i++)
        keep_waiting(&diary.actor, &waiting[i]);
    ck_assert(actor_try_handle(&diary.actor, &last));
    assert_handled(&diary, (const uint32_t[]){ 4, 1, 2, 3, 5, 6, 7 }, 7);
}
END_TEST

START_TEST(high_priority_goes_before_what_an_owner_has_taken)
{
    Diary diary = { .n_handled = 0 };
    Message waiting[] = { request_of(0, MESSAGE_ADD, false, 1),
                          request_of(0, MESSAGE_ADD, false, 2) };
    Message last = request_of(3, MESSAGE_GET, false, 3);
    Message late = request_of(4, MESSAGE_GET, true, 4);

    actor_init(&diary.actor, write_down, NULL);
    for (size_t i = 0; i < G_N_ELEMENTS(waiting); i++)
        keep_waiting(&diary.actor, &waiting[i]);
    diary.to_post = &late; /* while the first one is handled */
    ck_assert(actor_try_handle(&diary.actor, &last));
    assert_handled(&diary, (const uint32_t[]){ 1, 4, 2, 3 }, 4);
}
END_TEST

/* A Get that brings its node's clock is a clock, too: it stays behind the Adds that came before it,
 * which that clock counts. It keeps its worker's order as well. */
START_TEST(a_get_that_brings_a_clock_is_not_handled_before_what_came_before_it)
{
    enum { MOST = 20 };
    const uint32_t n_normal = _i == 1 ? 10 : 1, n_high = _i == 1 ? 10 : MOST;
    Diary diary = { .n_handled = 0 };
    Message high[MOST], normal[MOST];
    Message bringer = request_of(2, MESSAGE_GET, _i == 1, 200);
    Message next = request_of(2, MESSAGE_GET, true, 300);
    Message last = request_of(3, MESSAGE_GET, false, 400);
    unsigned n_before = 0;

    bringer.node_clock = 1;
    actor_init(&diary.actor, write_down, NULL);
    for (uint32_t i = 0; i < n_normal; i++) {
        normal[i] = request_of(0, MESSAGE_ADD, false, 100 + i);
        keep_waiting(&diary.actor, &normal[i]);
    }
    for (uint32_t i = 0; i < n_high; i++) {
        high[i] = request_of(1, MESSAGE_ADD, true, i);
        keep_waiting(&diary.actor, &high[i]);
    }
    keep_waiting(&diary.actor, &bringer);
    keep_waiting(&diary.actor, &next);
    ck_assert(actor_try_handle(&diary.actor, &last));
    ck_assert_uint_eq(diary.n_handled, n_normal + n_high + 3);
    while (diary.handled[n_before] != 200)
        ck_assert_uint_ne(diary.handled[n_before++], 300);
    ck_assert_uint_eq(n_before, n_normal + n_high);
}
END_TEST

/* A function that runs as the owner begins or ends a task. */
START_TEST(nothing_goes_before_a_function_that_runs_as_the_owner)
{
    Diary diary = { .n_handled = 0 };
    Message waiting[] = { request_of(0, MESSAGE_ADD, false, 1),
                          { .kind = MESSAGE_INVOKE, .server = 2 },
                          request_of(1, MESSAGE_GET, true, 3) };
    Message last = request_of(3, MESSAGE_GET, false, 4);

    actor_init(&diary.actor, write_down, NULL);
    for (size_t i = 0; i < G_N_ELEMENTS(waiting); i++)
        keep_waiting(&diary.actor, &waiting[i]);
    ck_assert(actor_try_handle(&diary.actor, &last));
    assert_handled(&diary, (const uint32_t[]){ 1, 2, 3, 4 }, 4);
}
END_TEST

/* ---- those who must not be kept long ---- */

/* A message's epoch is its length. */
static size_t length_of(Actor *actor, const Message *message)
{
    (void)actor;
    return message->epoch;
}

START_TEST(a_message_is_handled_at_once_only_if_it_is_short)
{
    Diary diary = { .n_handled = 0 };
    Message longer = { .server = 1, .epoch = 11 }, shorter = { .server = 2, .epoch = 10 };
    size_t work = 77;

    actor_init(&diary.actor, write_down, NULL);
    diary.actor.find_work = length_of;
    ck_assert(!actor_try_handle_short(&diary.actor, &longer, 10, &work));
    ck_assert_uint_eq(diary.n_handled, 0);
    ck_assert_uint_eq(work, 77);
    ck_assert(actor_try_handle_short(&diary.actor, &shorter, 10, &work));
    ck_assert_uint_eq(diary.n_handled, 1);
    ck_assert_uint_eq(work, 10);
    actor_post(&diary.actor, &longer); /* the token is free again */
    ck_assert_uint_eq(diary.n_handled, 2);
}
END_TEST

/* Messages in the mailbox may be long, and so may be those that come while the message is
 * handled. */
START_TEST(who_must_not_be_kept_long_handles_nothing_of_the_mailbox)
{
    Diary diary = { .n_handled = 0 };
    Message waiting = { .server = 1 }, own = { .server = 2 }, late = { .server = 3 };
    size_t work;

    actor_init(&diary.actor, write_down, NULL);
    mailbox_push(&diary.actor.mailbox, &waiting);
    ck_assert(!actor_try_handle_short(&diary.actor, &own, 10, &work));
    ck_assert_uint_eq(diary.n_handled, 0);

    actor_init(&diary.actor, write_down, NULL);
    diary.actor.has_thread = true; /* it says so: its thread is slow to come */
    diary.to_post = &late;
    ck_assert(actor_try_handle_short(&diary.actor, &own, 10, &work));
    ck_assert_uint_eq(diary.n_handled, 1);
    ck_assert(!mailbox_is_empty(&diary.actor.mailbox));
    ck_assert(actor_try_handle(&diary.actor, &waiting));
    ck_assert_uint_eq(diary.n_handled, 3);
    ck_assert_uint_eq(diary.handled[1], 3);
}
END_TEST

/* ---- answers ---- */

typedef struct {
    Message message; /* first */
    Actor *actor;
    Message *then;
    bool was_idle;
} Retry;

/* Runs when the answer is sent: the actor must take the next message at once. */
static void send_next(Message *message)
{
    Retry *retry = (Retry *)message;

    retry->was_idle = actor_try_handle(retry->actor, retry->then);
}

START_TEST(answers_go_out_once_the_actor_is_free)
{
    Diary diary = { .n_handled = 0 };
    Message then = { .server = 2, .end = leave_process };
    Retry retry = { .message = { .server = 1, .end = send_next },
                    .actor = &diary.actor,
                    .then = &then };

    actor_init(&diary.actor, write_down, note_settled);
    ck_assert(actor_try_handle(&diary.actor, &retry.message));
    ck_assert(retry.was_idle);
    ck_assert_uint_eq(diary.n_handled, 2);
    ck_assert_uint_eq(diary.n_settled, 2);
}
END_TEST

static void keep(Actor *actor, Message *message)
{
    (void)actor;
    (void)message;
}

START_TEST(where_nothing_is_answered_nothing_settles)
{
    Diary diary = { .n_settled = 0 };
    Message message = { .server = 1 };

    actor_init(&diary.actor, keep, note_settled);
    ck_assert(actor_try_handle(&diary.actor, &message));
    ck_assert_uint_eq(diary.n_settled, 0);
}
END_TEST

START_TEST(answers_that_stay_in_the_process_do_not_settle)
{
    Diary diary = { .n_settled = 0 };
    Call call;
    Message told = { .server = 1 };
    Message asked = { .server = 2, .call = &call, .end = message_end_call };

    call_begin(&call, NULL);
    call_add_parts(&call, 1);
    actor_init(&diary.actor, write_down, note_settled);
    ck_assert(actor_try_handle(&diary.actor, &told));
    ck_assert(actor_try_handle(&diary.actor, &asked));
    call_sent(&call);
    ck_assert(call_has_ended(&call));
    ck_assert_uint_eq(diary.n_settled, 0);
}
END_TEST

/* A message that notes how many had been handled when its answer left. */
typedef struct {
    Message message; /* first */
    const Diary *diary;
    unsigned at_end;
} Timed;

static void note_end(Message *message)
{
    Timed *timed = (Timed *)message;

    timed->at_end = timed->diary->n_handled;
}

/* While the owner handles the first message, others come: as the rest of a list. */
static void post_all(Actor *actor, Message *message)
{
    Diary *diary = (Diary *)actor;

    for (Message *posted = diary->to_post, *next; posted != NULL; posted = next) {
        next = posted->next;
        actor_post(actor, posted);
    }
    diary->to_post = NULL;
    diary->handled[diary->n_handled++] = message->server;
    actor_answer(actor, message);
}

/* Beside normal messages, the answer of one of high priority does not wait for them. In a row of
 * such messages, no answer waits for more than eight. */
START_TEST(answers_do_not_wait_for_all_that_is_handled_beside_high_priority)
{
    const bool all_are_high = _i == 1;
    enum { N = 24 };
    Diary diary = { .n_handled = 0 };
    Message first = { .kind = MESSAGE_GET, .end = leave_process };
    Timed timed[N];

    actor_init(&diary.actor, post_all, note_settled);
    for (unsigned i = 0; i < N; i++) {
        timed[i] = (Timed){ .message = { .kind = MESSAGE_GET,
                                         .is_high = all_are_high || i == N - 1,
                                         .node = i == N - 1 ? 2 : 1,
                                         .end = note_end,
                                         .next = i + 1 < N ? &timed[i + 1].message : NULL },
                            .diary = &diary };
    }
    diary.to_post = &timed[0].message;
    ck_assert(actor_try_handle(&diary.actor, &first));
    ck_assert_uint_eq(diary.n_handled, N + 1);
    if (!all_are_high)
        ck_assert_uint_eq(timed[N - 1].at_end, 2);
    for (unsigned i = 0; i < N; i++)
        ck_assert_uint_le(timed[i].at_end, all_are_high ? 1 + (i / 8 + 1) * 8 : N + 1);
    ck_assert_uint_ge(diary.n_settled, 3);
}
END_TEST

/* ---- two threads ---- */

/* Stays inside the message with server 0 until it is released. */
typedef struct {
    Actor actor; /* first */
    Event inside, go_on;
    uint32_t handled[MAX_HANDLED];
    unsigned n_handled;
} Gate;

static void wait_in_gate(Actor *actor, Message *message)
{
    Gate *gate = (Gate *)actor;

    if (message->server == 0) {
        event_raise(&gate->inside);
        event_wait(&gate->go_on, 1);
    }
    gate->handled[gate->n_handled++] = message->server;
    actor_answer(actor, message);
}

static void *enter_gate(void *user)
{
    Gate *gate = user;
    Message message = { .server = 0 };

    if (!actor_try_handle(&gate->actor, &message))
        abort();
    return NULL;
}

/* A busy actor is looked at for as long as the message would take. */
static void check_patience(Actor *actor, Message *message)
{
    enum { WORK_NS = 300000 };
    int64_t begun_ns = monotonic_ns();

    ck_assert(!actor_try_handle_soon(actor, message, WORK_NS));
    ck_assert_int_ge(monotonic_ns() - begun_ns, WORK_NS);
    begun_ns = monotonic_ns();
    ck_assert(!actors_take_soon(&actor, 1, WORK_NS));
    ck_assert_int_ge(monotonic_ns() - begun_ns, WORK_NS);
    begun_ns = monotonic_ns();
    ck_assert(!actors_share_soon(&actor, 1, WORK_NS));
    ck_assert_int_ge(monotonic_ns() - begun_ns, WORK_NS);
    ck_assert(!actor_try_handle_soon(actor, message, UINT64_MAX)); /* and not for ever */
}

START_TEST(a_busy_actor_is_left_alone_and_handles_what_was_posted)
{
    Gate gate = { .inside = EVENT_INIT, .go_on = EVENT_INIT };
    Message posted[] = { { .server = 1 }, { .server = 2 } };
    Message refused = { .server = 3 };
    pthread_t thread;

    actor_init(&gate.actor, wait_in_gate, NULL);
    pthread_create(&thread, NULL, enter_gate, &gate);
    event_wait(&gate.inside, 1);
    ck_assert(!actor_try_handle(&gate.actor, &refused));
    ck_assert(!actor_try_handle_soon(&gate.actor, &refused, 0));
    check_patience(&gate.actor, &refused);
    actor_post(&gate.actor, &posted[0]);
    actor_post(&gate.actor, &posted[1]);
    ck_assert_uint_eq(gate.n_handled, 0);
    event_raise(&gate.go_on);
    pthread_join(thread, NULL);
    ck_assert_uint_eq(gate.n_handled, 3);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_uint_eq(gate.handled[i], i);
}
END_TEST

START_TEST(an_actor_that_is_shared_has_no_owner)
{
    Diary diary = { .n_handled = 0 };
    Actor *const actors[] = { &diary.actor };
    Message refused = { .server = 1 }, posted = { .server = 2 };

    actor_init(&diary.actor, write_down, NULL);
    ck_assert(actors_share_soon(actors, 1, 0));
    ck_assert(actors_share_soon(actors, 1, 0)); /* any number of threads may */
    ck_assert(!actor_try_handle(&diary.actor, &refused));
    ck_assert(!actors_take_soon(actors, 1, 0));
    actors_end_share(actors, 1);
    actor_post(&diary.actor, &posted);
    ck_assert(!actors_share_soon(actors, 1, 0)); /* nobody overtakes what was posted */
    ck_assert_uint_eq(diary.n_handled, 0);
    actors_end_share(actors, 1); /* the last one handles it */
    ck_assert_uint_eq(diary.n_handled, 1);
    ck_assert(actors_take_soon(actors, 1, 0));
    ck_assert(!actors_share_soon(actors, 1, 0));
    actors_share_on(actors, 1);
    ck_assert(actors_share_soon(actors, 1, 0));
    actors_end_share(actors, 1);
    ck_assert(!actor_try_handle(&diary.actor, &refused));
    actors_end_share(actors, 1);
    ck_assert(actor_try_handle(&diary.actor, &refused));
}
END_TEST

START_TEST(one_token_stands_for_actors_that_are_lent)
{
    Diary diaries[2] = { { .n_handled = 0 }, { .n_handled = 0 } };
    Actor *const actors[] = { &diaries[1].actor, &diaries[0].actor };
    Actor *const first = &diaries[0].actor, *const second = &diaries[1].actor;
    Message messages[4] = { { .server = 1 }, { .server = 2 }, { .server = 3 }, { .server = 4 } };

    actor_init(first, write_down, NULL);
    actor_init(second, write_down, NULL);
    ck_assert(!actors_take_lent(actors, 2, 0));
    ck_assert(actors_try_take(actors, 2));
    actors_lend(actors, 2);
    actors_lend(actors, 2); /* changes nothing */
    ck_assert(!actor_try_handle(second, &messages[0]));
    actors_give_back(actors, 2);
    ck_assert(actors_take_lent(actors, 2, 0));
    ck_assert(!actors_share_soon(&second, 1, 0));
    actor_post(second, &messages[0]); /* nobody but the owner of both handles it */
    ck_assert_uint_eq(diaries[1].n_handled, 0);
    actors_give_back(actors, 2);
    ck_assert_uint_eq(diaries[1].n_handled, 1);
    ck_assert(!actors_take_lent(actors, 2, 0)); /* somebody has wanted one of them alone */
    ck_assert(actors_take_soon(actors, 2, 0));
    actors_lend(actors, 2);
    actors_share_on(actors, 2);
    ck_assert(actors_share_soon(actors, 2, 0));
    ck_assert(!actor_try_handle(second, &messages[1]));
    actors_end_share(actors, 2);
    actor_post(second, &messages[1]);
    ck_assert_uint_eq(diaries[1].n_handled, 1);
    actors_end_share(actors, 2); /* the last one handles it */
    ck_assert_uint_eq(diaries[1].n_handled, 2);
    ck_assert(actor_try_handle(first, &messages[2]));
    ck_assert(actor_try_handle(second, &messages[3]));
}
END_TEST

/* The owner leaves; the actor's own thread handles the waiting messages. */
START_TEST(the_actors_thread_handles_what_an_owner_leaves)
{
    Gate gate = { .inside = EVENT_INIT, .go_on = EVENT_INIT };
    Message posted = { .server = 1 };
    pthread_t thread;

    actor_init(&gate.actor, wait_in_gate, NULL);
    ck_assert(actor_start(&gate.actor, "gate"));
    pthread_create(&thread, NULL, enter_gate, &gate);
    event_wait(&gate.inside, 1);
    actor_post(&gate.actor, &posted);
    event_raise(&gate.go_on);
    pthread_join(thread, NULL);
    actor_stop(&gate.actor);
    ck_assert_uint_eq(gate.n_handled, 2);
    ck_assert_uint_eq(gate.handled[1], 1);
}
END_TEST

/* Each message posts the next one while it is handled. */
enum { N_CHAIN = 200 };

typedef struct {
    Actor actor; /* first */
    Message messages[N_CHAIN];
    pthread_t first, last;
    Event ended;
} Chain;

static void handle_link(Actor *actor, Message *message)
{
    Chain *chain = (Chain *)actor;

    if (message == chain->messages)
        chain->first = pthread_self();
    if (message + 1 < chain->messages + N_CHAIN) {
        actor_post(actor, message + 1);
    } else {
        chain->last = pthread_self();
        event_raise(&chain->ended);
    }
    actor_answer(actor, message);
}

START_TEST(a_guest_does_not_stay_for_ever_but_nothing_is_left_lying)
{
    Chain chain = { .ended = EVENT_INIT };

    actor_init(&chain.actor, handle_link, NULL);
    ck_assert(actor_start(&chain.actor, "chain"));
    for (uint32_t i = 1; i <= 50; i++) {
        /* the thread has to be woken: one that is still on its way to sleep finds the rest
         * itself */
        while (atomic_load(&chain.actor.asleep) == 0)
            sched_yield();
        for (int k = 0; k < 10; k++)
            sched_yield();
        while (!actor_try_handle(&chain.actor, &chain.messages[0]))
            sched_yield();
        event_wait(&chain.ended, i);
        ck_assert(pthread_equal(chain.first, pthread_self()));
        ck_assert(!pthread_equal(chain.last, pthread_self()));
    }
    actor_stop(&chain.actor);
}
END_TEST

START_TEST(without_a_thread_the_guest_stays_to_the_end)
{
    Chain chain = { .ended = EVENT_INIT };

    actor_init(&chain.actor, handle_link, NULL);
    ck_assert(actor_try_handle(&chain.actor, &chain.messages[0]));
    ck_assert_uint_eq(event_count(&chain.ended), 1);
}
END_TEST

/* ---- many threads ---- */

enum { N_SENDERS = 4, N_EACH = 4000, KEEP_EVERY = 5 };

/* Owner only, and so plain: two owners at once would be a data race. */
typedef struct {
    Actor actor; /* first */
    uint64_t next_of[N_SENDERS];
    uint64_t n_handled;
    uint64_t n_disorder;
    unsigned n_inside, n_crowded;
    Message *kept; /* answered with a later message, as a model does */
} Register;

static void enter_register(Actor *actor, Message *message)
{
    Register *all = (Register *)actor;

    if (all->n_inside++ != 0)
        all->n_crowded++;
    if (message->request.clock != all->next_of[message->server])
        all->n_disorder++;
    all->next_of[message->server] = message->request.clock + 1;
    if (all->kept != NULL) {
        Message *kept = all->kept;

        all->kept = NULL;
        actor_answer(actor, kept);
    }
    if (message->call != NULL && ++all->n_handled % KEEP_EVERY == 0)
        all->kept = message;
    else
        actor_answer(actor, message);
    all->n_inside--;
}

typedef struct {
    Register *all;
    uint32_t number;
    pthread_barrier_t *begin;
    Call call;
} Sender;

static void end_heap_message(Message *message)
{
    if (message->call != NULL)
        message_end_call(message);
    free(message);
}

static void *send_all(void *user)
{
    Sender *sender = user;
    Actor *actor = &sender->all->actor;
    uint64_t random = sender->number + 1;

    pthread_barrier_wait(sender->begin);
    for (uint64_t i = 0; i < N_EACH; i++) {
        const Message plain = { .server = sender->number, .request = { .clock = i } };
        Message here = plain;

        if (random_below(&random, 4) < 2 && actor_try_handle(actor, &here))
            continue;
        Message *copy = malloc(sizeof *copy);
        *copy = plain;
        copy->end = end_heap_message;
        if (random_below(&random, 2) == 0) {
            copy->call = &sender->call;
            call_add_parts(&sender->call, 1);
        }
        if (random_below(&random, 2) == 0 || !actor_try_handle_soon(actor, copy, 0))
            actor_post(actor, copy);
    }
    return NULL;
}

/* _i: with a thread of its own or without. */
START_TEST(under_load_owners_exclude_each_other_and_every_senders_order_holds)
{
    Register all = { .n_handled = 0 };
    pthread_barrier_t begin;
    pthread_t threads[N_SENDERS];
    Sender senders[N_SENDERS];
    Message last = { .server = 0, .request = { .clock = N_EACH } };

    actor_init(&all.actor, enter_register, NULL);
    if (_i % 2 == 0)
        ck_assert(actor_start(&all.actor, "register"));
    pthread_barrier_init(&begin, NULL, N_SENDERS);
    for (uint32_t i = 0; i < N_SENDERS; i++) {
        senders[i] = (Sender){ .all = &all, .number = i, .begin = &begin };
        call_begin(&senders[i].call, NULL);
        ck_assert_int_eq(pthread_create(&threads[i], NULL, send_all, &senders[i]), 0);
    }
    for (uint32_t i = 0; i < N_SENDERS; i++)
        pthread_join(threads[i], NULL);
    actor_stop(&all.actor);
    ck_assert(actor_try_handle(&all.actor, &last)); /* lets go what is kept */
    for (uint32_t i = 0; i < N_SENDERS; i++) {
        ck_assert_uint_eq(all.next_of[i], i == 0 ? N_EACH + 1 : N_EACH);
        call_sent(&senders[i].call);
        ck_assert(call_wait(&senders[i].call, -1));
    }
    ck_assert_uint_eq(all.n_disorder, 0);
    ck_assert_uint_eq(all.n_crowded, 0);
    pthread_barrier_destroy(&begin);
}
END_TEST

/* If a message woke no thread, this would wait for ever. */
START_TEST(a_sleeping_actor_wakes_for_each_message)
{
    Register all = { .n_handled = 0 };

    actor_init(&all.actor, enter_register, NULL);
    ck_assert(actor_start(&all.actor, "register"));
    for (uint64_t i = 0; i < 2000; i++) {
        Call call;
        Message message = { .request = { .clock = i }, .end = message_end_call };

        all.n_handled = 0; /* nothing is kept: the actor is idle and nobody else sends */
        call_begin(&call, NULL);
        call_add_parts(&call, 1);
        call_sent(&call);
        message.call = &call;
        actor_post(&all.actor, &message);
        ck_assert(call_wait(&call, -1));
    }
    actor_stop(&all.actor);
    ck_assert_uint_eq(all.next_of[0], 2000);
    ck_assert_uint_eq(all.n_disorder, 0);
}
END_TEST

static void count_and_free(Actor *actor, Message *message)
{
    ((Register *)actor)->n_handled++;
    actor_answer(actor, message);
}

START_TEST(stopping_handles_what_is_left)
{
    Register all = { .n_handled = 0 };

    actor_init(&all.actor, count_and_free, NULL);
    ck_assert(actor_start(&all.actor, "register"));
    for (uint64_t i = 0; i < 1000; i++) {
        Message *message = calloc(1, sizeof *message);

        message->end = end_heap_message;
        actor_post(&all.actor, message);
    }
    actor_stop(&all.actor);
    ck_assert_uint_eq(all.n_handled, 1000);
    ck_assert(mailbox_is_empty(&all.actor.mailbox));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("actor");
    TCase *alone = tcase_create("alone");
    TCase *together = tcase_create("together");

    tcase_add_test(alone, without_a_thread_whoever_posts_handles);
    tcase_add_loop_test(alone, what_is_posted_while_handling_comes_afterwards, 0, 2);
    tcase_add_test(alone, high_priority_goes_before_the_requests_of_others);
    tcase_add_test(alone, high_priority_goes_before_what_an_owner_has_taken);
    tcase_add_loop_test(alone, a_get_that_brings_a_clock_is_not_handled_before_what_came_before_it,
                        0, 2);
    tcase_add_test(alone, nothing_goes_before_a_function_that_runs_as_the_owner);
    tcase_add_test(alone, a_message_is_handled_at_once_only_if_it_is_short);
    tcase_add_test(alone, who_must_not_be_kept_long_handles_nothing_of_the_mailbox);
    tcase_add_test(alone, answers_go_out_once_the_actor_is_free);
    tcase_add_loop_test(alone, answers_do_not_wait_for_all_that_is_handled_beside_high_priority, 0,
                        2);
    tcase_add_test(alone, where_nothing_is_answered_nothing_settles);
    tcase_add_test(alone, answers_that_stay_in_the_process_do_not_settle);
    tcase_add_test(alone, a_busy_actor_is_left_alone_and_handles_what_was_posted);
    tcase_add_test(alone, an_actor_that_is_shared_has_no_owner);
    tcase_add_test(alone, one_token_stands_for_actors_that_are_lent);
    tcase_add_test(alone, the_actors_thread_handles_what_an_owner_leaves);
    tcase_add_test(alone, a_guest_does_not_stay_for_ever_but_nothing_is_left_lying);
    tcase_add_test(alone, without_a_thread_the_guest_stays_to_the_end);
    suite_add_tcase(suite, alone);
    tcase_add_loop_test(together,
                        under_load_owners_exclude_each_other_and_every_senders_order_holds, 0, 6);
    tcase_add_test(together, a_sleeping_actor_wakes_for_each_message);
    tcase_add_loop_test(together, stopping_handles_what_is_left, 0, 5);
    tcase_set_timeout(together, 20);
    suite_add_tcase(suite, together);
    return run_suite(suite);
}
