/* Actors whose tokens are lent: one owner at a time, each sees what those before it have done, and
 * no message is forgotten, whoever takes a token back meanwhile. */
#include "io/net/actor.h"
#include "tests/weak/cases.h"

enum { SHELVES = 3 };

static struct {
    Actor actor; /* first */
    uint32_t n;  /* plain: two owners at once, or one that does not see what the last one did, are a
                  * race */
} shelves[SHELVES];

static Message messages[SHELVES][2];
static _Atomic uint32_t n_ended;

static Actor *const pair[] = { &shelves[0].actor, &shelves[1].actor };
static Actor *const turned[] = { &shelves[1].actor, &shelves[0].actor };
static Actor *const upper[] = { &shelves[1].actor, &shelves[2].actor };
static Actor *const second[] = { &shelves[1].actor };

static void count(Actor *actor, Message *message)
{
    for (unsigned i = 0; i < SHELVES; i++)
        shelves[i].n += actor == &shelves[i].actor;
    actor_answer(actor, message);
}

/* Relaxed, and a futex: they order no memory, so they hide no order that the sources lack. */
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

static void add_one(Actor *const *actors)
{
    for (unsigned i = 0; i < SHELVES; i++)
        if (actors[0] == &shelves[i].actor || actors[1] == &shelves[i].actor)
            shelves[i].n++;
}

static void lend(Actor *const *actors)
{
    if (!actors_try_take(actors, 2))
        return;
    add_one(actors);
    actors_lend(actors, 2);
    actors_give_back(actors, 2);
}

/* ---- what threads do ---- */

static void *lend_pair(void *unused)
{
    (void)unused;
    lend(pair);
    return NULL;
}

static void *lend_turned(void *unused)
{
    (void)unused;
    lend(turned);
    return NULL;
}

static void *lend_upper(void *unused)
{
    (void)unused;
    lend(upper);
    return NULL;
}

static void *take_lent(void *unused)
{
    (void)unused;
    if (!actors_take_lent(pair, 2, 0))
        return NULL;
    add_one(pair);
    actors_give_back(pair, 2);
    return NULL;
}

static void *take_second(void *unused)
{
    (void)unused;
    if (!actors_take_soon(second, 1, 0))
        return NULL;
    shelves[1].n++;
    actors_give_back(second, 1);
    return NULL;
}

static void read_all(Actor *const *actors, size_t n)
{
    if (!actors_share_soon(actors, n, 0))
        return;
    for (unsigned i = 0; i < SHELVES; i++)
        if (actors[0] == &shelves[i].actor || actors[n - 1] == &shelves[i].actor)
            (void)*(volatile uint32_t *)&shelves[i].n; /* a race, unless sharing orders it */
    actors_end_share(actors, n);
}

static void *share_pair(void *unused)
{
    (void)unused;
    read_all(pair, 2);
    return NULL;
}

static void *share_second(void *unused)
{
    (void)unused;
    read_all(second, 1);
    return NULL;
}

/* Lends, and goes on from being the owner to sharing. */
static void *lend_and_share(void *unused)
{
    (void)unused;
    if (!actors_try_take(pair, 2))
        return NULL;
    add_one(pair);
    actors_lend(pair, 2);
    actors_share_on(pair, 2);
    (void)*(volatile uint32_t *)&shelves[1].n;
    actors_end_share(pair, 2);
    return NULL;
}

static void send(unsigned shelf, unsigned number)
{
    Message *const message = &messages[shelf][number];

    *message = (Message){ .end = count_end };
    if (number == 0)
        actor_post(&shelves[shelf].actor, message);
    else if (!actor_try_handle_soon(&shelves[shelf].actor, message, 0))
        actor_post(&shelves[shelf].actor, message);
}

static void *post_second(void *unused)
{
    (void)unused;
    send(1, 0);
    return NULL;
}

static void *handle_second(void *unused)
{
    (void)unused;
    send(1, 1);
    return NULL;
}

/* ---- the cases ---- */

typedef void *(*Doing)(void *unused);

/* Begins with a pair that is lent, or not; two threads and this one do something beside one
 * another, and n messages of them end. */
static void run(bool has_threads, bool is_lent, Doing one, Doing other, Doing third, uint32_t n)
{
    atomic_init(&n_ended, 0);
    for (unsigned i = 0; i < SHELVES; i++) {
        actor_init(&shelves[i].actor, count, NULL);
        shelves[i].n = 0;
    }
    if (is_lent)
        lend(pair);
    for (unsigned i = 0; i < 2 && has_threads; i++)
        weak_expect(actor_start(&shelves[i].actor, "server"));
    const unsigned first = weak_start("one", one, NULL), last = weak_start("other", other, NULL);

    (void)third(NULL);
    wait_for_ends(n);
    weak_join(first);
    weak_join(last);
    for (unsigned i = 0; i < 2 && has_threads; i++)
        actor_stop(&shelves[i].actor);
}

static void taken_and_sent_to(void)
{
    run(false, true, take_lent, post_second, take_lent, 1);
}

static void lent_and_sent_to(void)
{
    run(false, false, lend_pair, post_second, take_lent, 1);
}

static void lent_and_handled(void)
{
    run(false, false, lend_turned, handle_second, lend_pair, 1);
}

static void two_take_it_back(void)
{
    run(false, true, take_second, post_second, handle_second, 2);
}

static void sent_to_with_threads(void)
{
    run(true, true, take_lent, post_second, lend_pair, 1);
}

static void shared_and_sent_to(void)
{
    run(false, true, share_pair, post_second, share_second, 1);
}

static void lent_and_shared(void)
{
    run(false, false, lend_and_share, share_pair, handle_second, 1);
}

static void lent_to_another(void)
{
    run(false, true, lend_upper, handle_second, lend_pair, 1);
}

const WeakCase lent_cases[] = {
    { "lent_taken_and_sent_to", taken_and_sent_to },
    { "lent_and_sent_to", lent_and_sent_to },
    { "lent_and_handled", lent_and_handled },
    { "lent_two_take_it_back", two_take_it_back },
    { "lent_sent_to_with_threads", sent_to_with_threads },
    { "lent_shared_and_sent_to", shared_and_sent_to },
    { "lent_and_shared", lent_and_shared },
    { "lent_to_another", lent_to_another },
    { NULL, NULL },
};
