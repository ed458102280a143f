/* Actors and mailboxes: one owner at a time, each sender's order, no message forgotten.
 *
 * A case learns that a message was handled from a relaxed counter and a futex. These order no
 * memory; otherwise they could hide an order that the sources lack. */
#include "io/net/actor.h"
#include "tests/weak/cases.h"

enum { SENDERS = 3, MOST = 8 };

static struct {
    Actor actor;               /* first */
    uint32_t handled[SENDERS]; /* plain: two owners at once, or one that does not see what the last
                                * one did, are a race */
    unsigned n_settled;
} diary;

static Message messages[SENDERS][MOST];
static _Atomic uint32_t n_ended;

static void write_down(Actor *actor, Message *message)
{
    weak_expect(diary.handled[message->server]++ == message->table); /* the sender's order */
    actor_answer(actor, message);
}

static void count_end(Message *message)
{
    (void)message;
    atomic_fetch_add_explicit(&n_ended, 1, memory_order_relaxed);
    futex_wake(&n_ended, 1);
}

static void wait_for_ends(uint32_t n)
{
    uint32_t now;

    while ((now = atomic_load_explicit(&n_ended, memory_order_relaxed)) != n)
        futex_wait(&n_ended, now, -1);
}

static void begin(bool has_thread)
{
    actor_init(&diary.actor, write_down, NULL);
    atomic_init(&n_ended, 0);
    for (unsigned i = 0; i < SENDERS; i++)
        diary.handled[i] = 0;
    if (has_thread)
        weak_expect(actor_start(&diary.actor, "server"));
}

static Message *make(uint32_t sender, uint32_t number)
{
    Message *const message = &messages[sender][number];

    message->server = sender;
    message->table = number;
    message->end = count_end;
    return message;
}

static void post(uint32_t sender, uint32_t number)
{
    actor_post(&diary.actor, make(sender, number));
}

static void handle_or_post(uint32_t sender, uint32_t number)
{
    Message *const message = make(sender, number);

    if (!actor_try_handle(&diary.actor, message))
        actor_post(&diary.actor, message);
}

static void *post_one(void *sender)
{
    post((uint32_t)(uintptr_t)sender, 0);
    return NULL;
}

static void *post_two(void *sender)
{
    post((uint32_t)(uintptr_t)sender, 0);
    post((uint32_t)(uintptr_t)sender, 1);
    return NULL;
}

static void *post_many(void *sender)
{
    for (uint32_t i = 0; i < MOST; i++)
        post((uint32_t)(uintptr_t)sender, i);
    return NULL;
}

/* A guest that has posted before must not overtake itself. */
static void *post_and_handle(void *sender)
{
    post((uint32_t)(uintptr_t)sender, 0);
    handle_or_post((uint32_t)(uintptr_t)sender, 1);
    return NULL;
}

static void *handle_one(void *sender)
{
    handle_or_post((uint32_t)(uintptr_t)sender, 0);
    return NULL;
}

static void *handle_soon(void *sender)
{
    Message *const message = make((uint32_t)(uintptr_t)sender, 0);

    if (!actor_try_handle_soon(&diary.actor, message, 0))
        actor_post(&diary.actor, message);
    return NULL;
}

enum { NOBODY };

/* No thread may send when the actor is stopped, so the senders have ended before. */
static void end(uint32_t n, unsigned sender, unsigned other)
{
    wait_for_ends(n);
    if (sender != NOBODY)
        weak_join(sender);
    if (other != NOBODY)
        weak_join(other);
    actor_stop(&diary.actor);
}

static unsigned start(uint32_t number, void *(*run)(void *sender))
{
    return weak_start(number == 1 ? "sender 1" : "sender 2", run, (void *)(uintptr_t)number);
}

static void one_sender(void)
{
    begin(true);
    post_two((void *)0);
    end(2, NOBODY, NOBODY);
}

static void two_senders(void)
{
    begin(true);
    const unsigned other = start(1, post_one);
    post_one((void *)0);
    end(2, other, NOBODY);
}

static void a_sender_and_a_guest(void)
{
    begin(true);
    const unsigned guest = start(1, post_and_handle);
    post_two((void *)0);
    end(4, guest, NOBODY);
}

static void two_guests(void)
{
    begin(true);
    const unsigned guest = start(1, handle_one), other = start(2, handle_soon);
    end(2, guest, other);
}

static void a_guest_leaves_the_rest(void)
{
    begin(true);
    const unsigned guest = start(1, handle_one);
    post_many((void *)0);
    end(MOST + 1, guest, NOBODY);
}

static void without_a_thread(void)
{
    begin(false);
    const unsigned guest = start(1, post_and_handle), other = start(2, post_one);
    end(3, guest, other);
}

/* No thread waits for the answer: stopping alone must deliver it. */
static void stopped(void)
{
    begin(true);
    post_one((void *)0);
    actor_stop(&diary.actor);
    weak_expect(diary.handled[0] == 1);
}

static void stopped_while_idle(void)
{
    begin(true);
    actor_stop(&diary.actor);
}

/* ---- several actors at once ---- */

static struct {
    Actor actor; /* first */
    uint32_t n;  /* plain, as above */
} shelves[2];

static void count_on_shelf(Actor *actor, Message *message)
{
    shelves[actor == &shelves[1].actor].n++;
    actor_answer(actor, message);
}

static _Atomic uint32_t n_taken;

/* Both, the second one first for the second sender. */
static void *take_both(void *sender)
{
    const size_t first = (uintptr_t)sender == 2;
    Actor *const actors[] = { &shelves[first].actor, &shelves[!first].actor };

    if (!actors_try_take(actors, 2))
        return NULL;
    shelves[0].n++;
    shelves[1].n++;
    atomic_fetch_add_explicit(&n_taken, 1, memory_order_relaxed);
    actors_give_back(actors, 2);
    return NULL;
}

static void two_take_two(void)
{
    atomic_init(&n_ended, 0);
    atomic_init(&n_taken, 0);
    for (unsigned i = 0; i < 2; i++) {
        actor_init(&shelves[i].actor, count_on_shelf, NULL);
        shelves[i].n = 0;
        weak_expect(actor_start(&shelves[i].actor, "server"));
    }
    const unsigned one = start(1, take_both), other = start(2, take_both);

    actor_post(&shelves[0].actor, make(0, 0));
    actor_post(&shelves[1].actor, make(0, 1));
    wait_for_ends(2);
    weak_join(one);
    weak_join(other);
    for (unsigned i = 0; i < 2; i++)
        actor_stop(&shelves[i].actor);
    for (unsigned i = 0; i < 2; i++) /* the joins order these reads */
        weak_expect(shelves[i].n == 1 + atomic_load_explicit(&n_taken, memory_order_relaxed));
}

/* ---- readers beside one another ---- */

/* Reads what the owners have written: a race, unless sharing orders it. */
static void read_shelf(void)
{
    (void)*(volatile uint32_t *)&shelves[0].n;
}

static void *share(void *sender)
{
    Actor *const actors[] = { &shelves[0].actor };

    (void)sender;
    if (!actors_share_soon(actors, 1, 0))
        return NULL;
    read_shelf();
    actors_end_share(actors, 1);
    return NULL;
}

/* Is the owner, and then shares with others. */
static void *write_and_share(void *sender)
{
    Actor *const actors[] = { &shelves[0].actor };

    (void)sender;
    if (!actors_take_soon(actors, 1, 0))
        return NULL;
    shelves[0].n++;
    atomic_fetch_add_explicit(&n_taken, 1, memory_order_relaxed);
    actors_share_on(actors, 1);
    read_shelf();
    actors_end_share(actors, 1);
    return NULL;
}

static void begin_shelf(void)
{
    atomic_init(&n_ended, 0);
    atomic_init(&n_taken, 0);
    actor_init(&shelves[0].actor, count_on_shelf, NULL);
    shelves[0].n = 0;
}

/* Without a thread: the last one that shares has to handle what has come. */
static void readers_and_a_sender(void)
{
    begin_shelf();
    const unsigned one = start(1, share), other = start(2, share);

    actor_post(&shelves[0].actor, make(0, 0));
    wait_for_ends(1);
    weak_join(one);
    weak_join(other);
    weak_expect(shelves[0].n == 1);
}

static void an_owner_that_shares(void)
{
    begin_shelf();
    const unsigned one = start(1, write_and_share), other = start(2, share);

    actor_post(&shelves[0].actor, make(0, 0));
    wait_for_ends(1);
    weak_join(one);
    weak_join(other);
    weak_expect(shelves[0].n == 1 + atomic_load_explicit(&n_taken, memory_order_relaxed));
}

const WeakCase actor_cases[] = {
    { "actor_one_sender", one_sender },
    { "actor_two_senders", two_senders },
    { "actor_a_sender_and_a_guest", a_sender_and_a_guest },
    { "actor_two_guests", two_guests },
    { "actor_a_guest_leaves_the_rest", a_guest_leaves_the_rest },
    { "actor_without_a_thread", without_a_thread },
    { "actor_two_take_two", two_take_two },
    { "actor_readers_and_a_sender", readers_and_a_sender },
    { "actor_an_owner_that_shares", an_owner_that_shares },
    { "actor_stopped", stopped },
    { "actor_stopped_while_idle", stopped_while_idle },
    { NULL, NULL },
};
