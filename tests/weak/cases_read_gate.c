/* Readers beside an owner: none is inside while an owner changes what they read, who waits for them
 * is woken, and what was posted before is seen. */
#include "io/net/actor.h"
#include "tests/weak/cases.h"

static struct {
    Actor actor; /* first */
    uint32_t n;  /* plain: a reader beside an owner that changes it is a race */
} shelf;

static Actor *const actors[] = { &shelf.actor };
static Message messages[2];
static _Atomic uint32_t is_posted;

/* Only one that was posted counts: the owner has closed the gate before it took it. */
static void count_posted(Actor *actor, Message *message)
{
    if (message == &messages[0])
        shelf.n++;
    actor_answer(actor, message);
}

static void end_message(Message *message)
{
    (void)message;
}

static void *open_gate(void *unused)
{
    (void)unused;
    if (!actors_share_soon(actors, 1, 0))
        return NULL;
    actors_admit_readers(actors, 1);
    actors_end_share(actors, 1);
    return NULL;
}

static void begin(void)
{
    actor_init(&shelf.actor, count_posted, NULL);
    atomic_init(&is_posted, 0);
    shelf.n = 0;
    for (unsigned i = 0; i < 2; i++)
        messages[i] = (Message){ .end = end_message };
    (void)open_gate(NULL);
}

static void *read_beside(void *reader)
{
    const uint32_t number = (uint32_t)(uintptr_t)reader;
    const bool is_late = atomic_load_explicit(&is_posted, memory_order_acquire) != 0;

    if (!actors_enter(actors, 1, number))
        return NULL;
    weak_expect(*(volatile uint32_t *)&shelf.n == 1 || !is_late);
    actors_leave(actors, 1, number);
    return NULL;
}

static void *change(void *unused)
{
    (void)unused;
    if (!actors_take_soon(actors, 1, 0))
        return NULL;
    actor_exclude_readers(&shelf.actor);
    shelf.n++;
    actors_give_back(actors, 1);
    return NULL;
}

static void *post(void *unused)
{
    (void)unused;
    actor_post(&shelf.actor, &messages[0]);
    atomic_store_explicit(&is_posted, 1, memory_order_release);
    return NULL;
}

static void *handle(void *unused)
{
    (void)unused;
    (void)actor_try_handle(&shelf.actor, &messages[1]);
    return NULL;
}

static void *open_and_read(void *reader)
{
    (void)open_gate(NULL);
    return read_beside(reader);
}

static void run(void *(*one)(void *user), void *(*two)(void *user), void *(*three)(void *user))
{
    begin();
    const unsigned first = weak_start("one", one, (void *)(uintptr_t)1);
    const unsigned second = weak_start("two", two, (void *)(uintptr_t)2);

    (void)three((void *)(uintptr_t)3);
    weak_join(first);
    weak_join(second);
}

static void an_owner_that_excludes(void)
{
    run(read_beside, read_beside, change);
}

static void opened_again(void)
{
    run(open_and_read, change, open_and_read);
}

static void what_was_posted(void)
{
    run(handle, post, read_beside);
}

static void what_was_posted_and_opened(void)
{
    run(handle, post, open_and_read);
}

const WeakCase read_gate_cases[] = {
    { "read_gate_an_owner_that_excludes", an_owner_that_excludes },
    { "read_gate_opened_again", opened_again },
    { "read_gate_what_was_posted", what_was_posted },
    { "read_gate_what_was_posted_and_opened", what_was_posted_and_opened },
    { NULL, NULL },
};
