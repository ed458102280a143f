/* Actors: a mailbox and an ownership token.
 *
 * DESIGN NOTE
 *
 * Exclusion. `owned` is a try-lock. Taking it is an acquire, giving it back a release, so each
 * owner sees all that the owners before it did to the actor's state. No thread waits for the token:
 * a sender that finds it taken looks again for a moment at most, and then leaves the message in the
 * mailbox.
 *
 * Order. A thread that posts m1 and then handles m2 itself must not overtake m1. After taking the
 * token, actor_try_handle first handles everything in the mailbox; m1 is there, or an earlier owner
 * has taken and handled it. (An owner that has taken m1 but not handled it yet still holds the
 * token.)
 *
 * No message is forgotten. A sender pushes and then looks at the token; an owner frees the token
 * and then looks at the mailbox. All four are sequentially consistent, so at least one of the two
 * sees what the other did: either the sender finds the token free and wakes the thread, or the
 * owner finds the message. The actor's thread, before it sleeps, sets `asleep` and then looks at
 * mailbox and token. Wakers change mailbox or token and then look at `asleep`. The same argument
 * holds. The thread may find the token taken and continue to sleep; that owner will look at the
 * mailbox when it leaves.
 *
 * An owner that frees the token and then finds messages in the mailbox tries to take the token
 * again, which is cheaper than waking the thread. If that fails there is a new owner, which looks
 * in turn. After MAX_ROUNDS a guest leaves the rest to the thread, so that it does not serve others
 * for ever. If the actor has no thread, the guest continues. A guest that must return soon
 * (actor_try_handle_short) leaves the rest at once, because the new messages may take any time.
 *
 * Lending, sharing and reading beside the owner: see actor_several.c.
 *
 * Answers are sent after the token is freed: waking a sleeper is a system call, and a reply may be
 * sent on a socket. The next request need not wait for either. Beside messages of high priority
 * that would be too late, because an owner goes on as long as such messages come. So answers are
 * then also sent in between: behind the last message of high priority, and after every
 * MOST_IN_A_ROW messages. */
#include "io/net/actor_private.h"
#include "io/net/futex.h"
#include "io/net/log_sink.h"

/* How often a guest of an actor with a thread looks into the mailbox again before it leaves. */
enum { MAX_ROUNDS = 4 };

/* How many messages of high priority are handled while one of normal priority waits. */
enum { MOST_IN_A_ROW = 8 };

void actor_init(Actor *actor, void (*handle)(Actor *actor, Message *message),
                void (*settled)(Actor *actor))
{
    mailbox_init(&actor->mailbox);
    atomic_init(&actor->owned, 0);
    atomic_init(&actor->leader, actor);
    actor->n_lent = 0;
    atomic_init(&actor->asleep, 0);
    atomic_init(&actor->stopping, false);
    actor->handle = handle;
    actor->settled = settled;
    actor->find_work = NULL;
    atomic_store_explicit(&actor->has_thread, false, memory_order_relaxed);
    actor->answered = NULL;
    actor->outbox = NULL;
    actor->taken = actor->taken_high = NULL;
    actor->is_sorted = false;
    atomic_init(&actor->has_high, false);
    priority_order_init(&actor->order, MOST_IN_A_ROW);
    read_gate_init(&actor->gate);
}

void actor_answer(Actor *actor, Message *message)
{
    message->next = actor->answered;
    actor->answered = message;
}

/* The load is one of the four operations of the note. The exchange orders nothing: it reads the 1
 * that the load has seen, or a later value. The thread looks at mailbox and token after each 1 that
 * it stores. */
static void wake_thread(Actor *actor)
{
    if (atomic_load_explicit(&actor->asleep, memory_order_seq_cst) != 0 &&
        atomic_exchange_explicit(&actor->asleep, 0, memory_order_relaxed) != 0)
        futex_wake(&actor->asleep, 1);
}

/* ---- the order of messages ---- */

/* The requests of a worker to a table keep their order. A clock stays behind all messages that came
 * before it, and so does a request that brings a clock. All other messages keep their place,
 * because functions that run as the owner begin and end tasks. */
static PriorityItem item_of(const Message *message)
{
    const PriorityItem request = {
        .rule = message->node_clock > 0 ? PRIORITY_RULE_CARRIES : PRIORITY_RULE_FREE,
        .is_high = message->is_high,
        .source = ((uint64_t)message->node << 48) ^ ((uint64_t)message->request.worker << 24) ^
                  message->table,
    };

    switch (message->kind) {
    case MESSAGE_GET:
    case MESSAGE_ADD:
    case MESSAGE_ADD_GET:
    case MESSAGE_HANDLER:
    case MESSAGE_ANNOUNCE:
    case MESSAGE_TUNE:
        return request;
    case MESSAGE_CLOCK:
        return (PriorityItem){ .rule = PRIORITY_RULE_FOLLOWS };
    default:
        return (PriorityItem){ .rule = PRIORITY_RULE_FIXED };
    }
}

static void append(Message **first, Message **last, Message *message)
{
    message->next = NULL;
    if (*first == NULL)
        *first = message;
    else
        (*last)->next = message;
    *last = message;
}

static void sort(Actor *actor, Message *message)
{
    for (Message *next; message != NULL; message = next) {
        const PriorityItem item = item_of(message);

        next = message->next;
        if (priority_order_join(&actor->order, &item, &message->follows) == PRIORITY_QUEUE_HIGH)
            append(&actor->taken_high, &actor->last_taken_high, message);
        else
            append(&actor->taken, &actor->last_taken, message);
    }
}

/* Takes the messages of the mailbox and puts them after those that were taken before. Sorting reads
 * each message twice, so they are sorted only if one of high priority may be among them. */
static void take_mailbox(Actor *actor)
{
    /* relaxed, both: the poster sets it after each such message. A message that is not seen now is
     * taken from the mailbox later, like any other. */
    const bool has_high = atomic_load_explicit(&actor->has_high, memory_order_relaxed);

    if (G_UNLIKELY(has_high))
        atomic_store_explicit(&actor->has_high, false, memory_order_relaxed);
    if (G_LIKELY(!has_high && actor->taken == NULL && actor->taken_high == NULL)) {
        actor->taken = mailbox_take(&actor->mailbox);
        actor->is_sorted = false;
        return;
    }
    if (!actor->is_sorted) {
        Message *const rest = actor->taken;

        actor->taken = NULL;
        actor->is_sorted = true;
        sort(actor, rest);
    }
    sort(actor, mailbox_take(&actor->mailbox));
}

static Message *next_sorted(Actor *actor)
{
    Message **first = &actor->taken;
    PriorityQueue from = PRIORITY_QUEUE_NORMAL;

    if (actor->taken_high != NULL) {
        from = priority_order_next(&actor->order, actor->taken == NULL ? 0 : actor->taken->follows);
        first = from == PRIORITY_QUEUE_HIGH ? &actor->taken_high : &actor->taken;
    }
    Message *const message = *first;

    if (message == NULL)
        return NULL;
    *first = message->next;
    priority_order_leave(&actor->order, from, 1);
    return message;
}

void actor_send_answers(Actor *actor, Message *message, void (*settled)(Actor *))
{
    bool all_end_here = true;

    for (Message *next; message != NULL; message = next) {
        next = message->next;
        all_end_here &= message_ends_here(message);
        message_end(message);
    }
    if (settled != NULL && !all_end_here)
        settled(actor);
}

void actor_send_answers_between(Actor *actor)
{
    Message *const answered = actor->answered;

    actor->answered = NULL;
    actor_send_answers(actor, answered, actor->settled);
}

/* Handles what was taken, and what comes as long as one of high priority may be among it. */
static void handle_sorted(Actor *actor)
{
    uint32_t n_handled = 0; /* since answers were sent */
    Message *message;

    while ((message = next_sorted(actor)) != NULL) {
        const bool is_high = message->is_high; /* it may be gone afterwards */

        actor->handle(actor, message);
        if (atomic_load_explicit(&actor->has_high, memory_order_relaxed))
            take_mailbox(actor);
        if (++n_handled < MOST_IN_A_ROW && (!is_high || actor->taken_high != NULL))
            continue;
        actor_send_answers_between(actor);
        n_handled = 0;
    }
}

/* Messages that have come meanwhile stay in the mailbox, unless one of high priority may be among
 * them. Not inline, because most owners find the mailbox empty. */
static __attribute__((noinline)) void handle_taken(Actor *actor)
{
    while (!actor->is_sorted && actor->taken != NULL) {
        Message *const message = actor->taken;

        actor->taken = message->next;
        actor->handle(actor, message);
        if (G_UNLIKELY(atomic_load_explicit(&actor->has_high, memory_order_relaxed)))
            take_mailbox(actor);
    }
    if (G_UNLIKELY(actor->is_sorted))
        handle_sorted(actor);
}

void actor_handle_mailbox(Actor *actor)
{
    if (mailbox_is_empty(&actor->mailbox))
        return;
    actor_exclude_readers(actor); /* before anything is taken: see the note */
    take_mailbox(actor);
    handle_taken(actor);
}

void actor_leave_filled(Actor *actor)
{
    for (int round = 0;
         round < MAX_ROUNDS || !atomic_load_explicit(&actor->has_thread, memory_order_relaxed);
         round++) {
        if (!actor_take_token(actor))
            return;
        actor_handle_mailbox(actor);
        if (!actor_free_token(actor))
            return;
    }
    wake_thread(actor);
}

void actor_attend(Actor *actor)
{
    /* relaxed: as in actor_post */
    if (atomic_load_explicit(&actor->has_thread, memory_order_relaxed))
        wake_thread(actor);
    else if (actor_take_token(actor)) {
        actor_handle_mailbox(actor);
        actor_leave(actor);
    }
}

static inline __attribute__((always_inline)) bool try_handle(Actor *actor, Message *message)
{
    if (!actor_take_token(actor))
        return false;
    actor_handle_mailbox(actor);
    actor->handle(actor, message);
    actor_leave(actor);
    return true;
}

bool actor_try_handle(Actor *actor, Message *message)
{
    return try_handle(actor, message);
}

bool actor_try_handle_soon(Actor *actor, Message *message, uint64_t most_ns)
{
    if (try_handle(actor, message))
        return true;
    for (ActorLooks looks = { 0 }; actor_looks_on(&looks, most_ns);)
        if (actor_seems_free(actor) && actor_try_handle(actor, message))
            return true;
    return false;
}

/* Looks at the mailbox with the token held, so that a thread which posts and then calls this does
 * not overtake its own message. */
bool actor_try_handle_short(Actor *actor, Message *message, size_t most, size_t *work)
{
    bool is_short;

    if (!mailbox_is_empty(&actor->mailbox) || !actor_take_token(actor))
        return false;
    const size_t found = actor->find_work == NULL ? 0 : actor->find_work(actor, message);
    is_short = found <= most && mailbox_is_empty(&actor->mailbox);
    if (is_short) {
        *work = found;
        actor->handle(actor, message);
    }
    if (!atomic_load_explicit(&actor->has_thread, memory_order_relaxed))
        actor_leave(actor);
    else if (actor_free_token(actor))
        wake_thread(actor);
    return is_short;
}

/* Whether nobody has the token, nor the one that stands for it. */
static bool is_free(const Actor *actor)
{
    /* seq_cst, both: against the store in actor_free_token, see the note */
    const uint32_t owned = atomic_load_explicit(&actor->owned, memory_order_seq_cst);

    if (G_LIKELY(owned != ACTOR_LENT))
        return owned == 0;
    /* relaxed: stored before the token that was just seen */
    const Actor *const leader = atomic_load_explicit(&actor->leader, memory_order_relaxed);

    return atomic_load_explicit(&leader->owned, memory_order_seq_cst) == 0;
}

void actor_post(Actor *actor, Message *message)
{
    const bool is_high = message->is_high; /* it may be gone after the push */

    mailbox_push(&actor->mailbox, message);
    if (G_UNLIKELY(is_high)) /* relaxed: see handle_taken */
        atomic_store_explicit(&actor->has_high, true, memory_order_relaxed);
    if (!is_free(actor))
        return;
    /* relaxed: it changes before the first message and behind the last one; but a server that has
     * passed the last one on to another may still be here when that other is stopped */
    if (atomic_load_explicit(&actor->has_thread, memory_order_relaxed))
        wake_thread(actor);
    else if (actor_take_token(actor)) {
        actor_handle_mailbox(actor);
        actor_leave(actor);
    }
}

static void sleep_until_needed(Actor *actor)
{
    /* seq_cst, as the loads of stopping, mailbox and token below: against wakers, see the note */
    atomic_store_explicit(&actor->asleep, 1, memory_order_seq_cst);
    /* relaxed: an old 1 causes one more look, and futex_wait compares the word itself */
    while (atomic_load_explicit(&actor->asleep, memory_order_relaxed) != 0) {
        const bool needed = atomic_load_explicit(&actor->stopping, memory_order_seq_cst) ||
                            (!mailbox_is_empty(&actor->mailbox) && is_free(actor));

        if (needed) {
            /* relaxed: a waker that still sees 1 makes an unnecessary system call */
            atomic_store_explicit(&actor->asleep, 0, memory_order_relaxed);
            return;
        }
        futex_wait(&actor->asleep, 1, -1);
    }
}

static void *serve(void *user)
{
    Actor *actor = user;

    for (;;) {
        while (!mailbox_is_empty(&actor->mailbox) && actor_take_token(actor)) {
            actor_handle_mailbox(actor);
            actor_free_token(actor);
        }
        /* acquire: pairs with the store in actor_stop, so that messages posted before it are
         * seen */
        if (atomic_load_explicit(&actor->stopping, memory_order_acquire) &&
            mailbox_is_empty(&actor->mailbox))
            return NULL;
        sleep_until_needed(actor);
    }
}

bool actor_start(Actor *actor, const char *name)
{
    atomic_store_explicit(&actor->has_thread, true, memory_order_relaxed);
    if (log_sink_start_thread(&actor->thread, serve, actor) != 0) {
        atomic_store_explicit(&actor->has_thread, false, memory_order_relaxed);
        return false;
    }
    pthread_setname_np(actor->thread, name);
    return true;
}

void actor_stop(Actor *actor)
{
    if (!atomic_load_explicit(&actor->has_thread, memory_order_relaxed))
        return;
    /* seq_cst: against the load in sleep_until_needed; release: to the acquire in serve */
    atomic_store_explicit(&actor->stopping, true, memory_order_seq_cst);
    wake_thread(actor);
    pthread_join(actor->thread, NULL);
    atomic_store_explicit(&actor->has_thread, false, memory_order_relaxed);
}
