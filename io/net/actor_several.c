/* Several actors at once: taken, shared, or read beside their owners.
 *
 * DESIGN NOTE
 *
 * Taking. The tokens are only tried, so two threads that take several never wait for each other.
 * What is in a mailbox is not handled with several tokens: it may wait for another of these actors.
 *
 * Lending. To take a token is to have its cache line come from another processor. Threads that
 * take the same actors again and again lend all tokens but one: that one, their leader's, then
 * stands for all. `owned` of the others is LENT, and `leader` tells whose token stands for theirs;
 * both change only while that token is held. So who holds the leader's token is the owner of all of
 * them: nobody takes one back meanwhile. An owner of the leader sees what owners of the others have
 * done: the last one has lent the token while it held the leader's, too.
 *
 * Who wants a single actor whose token is lent takes it back: it takes the leader's token, makes
 * itself the actor's owner, and gives the leader's back. If the leader's is taken, the actor has an
 * owner, and its message stays in the mailbox. No leader's own token is ever lent: who lends one
 * holds it, and one that stands for others is not lent. So nobody has to go further.
 *
 * No message is forgotten. A sender pushes, looks at the token, and if that is lent, at its
 * leader's. If both are not free, somebody has the leader's token, or shares the leader, and knows
 * for which others it stands: `lent` changes with that token alone. It gives the token back and
 * then looks at the mailboxes of all of them. Or somebody has taken the actor back meanwhile, and
 * looks as each owner does. All of these operations are sequentially consistent, so one of the two
 * sees what the other did. What is found so is left to the actor's own thread: the one that found
 * it may have to return soon.
 *
 * Sharing. Threads that only read the actor's state share it: `owned` counts SHARE for each of
 * them. While it is not 0 nobody becomes the owner, so what they read stays. A thread shares the
 * actor only if its mailbox is empty afterwards, for it may have posted before, and so that senders
 * do not wait for ever while others come to share. A sender that finds the actor shared leaves the
 * message in the mailbox, as it does with an owner. The last one that ends its share changes the
 * token and then looks at the mailbox, as an owner that leaves: both are sequentially consistent.
 * To share a leader is to share all actors for which its token stands: they stay lent.
 *
 * Reading beside the owner. An owner closes the gate before it takes messages from the mailbox, and
 * takes them when no reader is inside. A reader looks at the mailbox inside. So a message that was
 * posted before is there, and the reader leaves; or an owner took it while the gate was closed, and
 * then it has been opened again. That does a thread which shares the actor, so it does it after the
 * owner has handled the message, and the reader sees what the message has done. */
#include "io/net/actor_private.h"

#include "io/net/futex.h"

/* Of several actors the one whose token stands for all, if the others lend theirs. */
static Actor *leader_of(Actor *const *actors, size_t n)
{
    Actor *leader = actors[0];

    for (size_t i = 1; i < n; i++)
        if ((uintptr_t)actors[i] < (uintptr_t)leader)
            leader = actors[i];
    return leader;
}

/* Whether the leader's token stands for this one. If the caller does not have it: a hint. */
static bool is_lent_to(const Actor *actor, const Actor *leader)
{
    /* relaxed, both: they change with the leader's token alone */
    return atomic_load_explicit(&actor->owned, memory_order_relaxed) == ACTOR_LENT &&
           atomic_load_explicit(&actor->leader, memory_order_relaxed) == leader;
}

/* ---- taking ---- */

/* Looks for a moment whether the token is free. */
static bool take_token_soon(Actor *actor, uint64_t most_ns)
{
    ActorLooks looks = { 0 };

    while (!actor_take_token(actor))
        do
            if (!actor_looks_on(&looks, most_ns))
                return false;
        while (!actor_seems_free(actor));
    return true;
}

static void give_back(Actor *const *actors, size_t n, Actor *leader)
{
    for (size_t i = 0; i < n; i++)
        if (actors[i] != leader && !is_lent_to(actors[i], leader))
            actor_leave(actors[i]);
        else if (G_UNLIKELY(actors[i]->answered != NULL) && actors[i] != leader)
            actor_send_answers_between(actors[i]);
    actor_leave(leader);
}

static bool try_token(Actor *actor, uint64_t most_ns)
{
    (void)most_ns;
    return actor_take_token(actor);
}

/* The leader first: others may lend it theirs. For the others it does not look longer, because it
 * keeps the leader meanwhile. */
static inline __attribute__((always_inline)) bool take_all(Actor *const *actors, size_t n,
                                                           bool (*take)(Actor *, uint64_t),
                                                           uint64_t most_ns)
{
    Actor *const leader = leader_of(actors, n);
    bool is_idle;
    size_t i;

    if (!take(leader, most_ns))
        return false;
    is_idle = mailbox_is_empty(&leader->mailbox);
    for (i = 0; i < n && is_idle; i++) {
        if (actors[i] == leader)
            continue;
        if (!is_lent_to(actors[i], leader) && !take(actors[i], 0))
            break;
        is_idle = mailbox_is_empty(&actors[i]->mailbox);
    }
    if (i == n && is_idle)
        return true;
    give_back(actors, i, leader);
    return false;
}

bool actors_try_take(Actor *const *actors, size_t n)
{
    return take_all(actors, n, try_token, 0);
}

bool actors_take_soon(Actor *const *actors, size_t n, uint64_t most_ns)
{
    return take_all(actors, n, take_token_soon, most_ns);
}

void actors_give_back(Actor *const *actors, size_t n)
{
    give_back(actors, n, leader_of(actors, n));
}

/* ---- lending ---- */

bool actors_take_lent(Actor *const *actors, size_t n, uint64_t most_ns)
{
    const Actor *const leader = leader_of(actors, n);

    for (size_t i = 0; i < n; i++)
        if (actors[i] != leader && !is_lent_to(actors[i], leader))
            return false;
    return actors_take_soon(actors, n, most_ns);
}

/* The caller has both tokens. */
static void lend(Actor *actor, Actor *leader)
{
    if (is_lent_to(actor, leader) || actor->n_lent > 0 || leader->n_lent == ACTOR_MOST_LENT)
        return;
    leader->lent[leader->n_lent++] = actor;
    atomic_store_explicit(&actor->leader, leader, memory_order_relaxed);
    /* seq_cst: against mailbox_push, see the note */
    atomic_store_explicit(&actor->owned, ACTOR_LENT, memory_order_seq_cst);
}

void actors_lend(Actor *const *actors, size_t n)
{
    Actor *const leader = leader_of(actors, n);

    for (size_t i = 0; i < n; i++)
        if (actors[i] != leader)
            lend(actors[i], leader);
}

/* The caller has the leader's token. */
static void end_loan(Actor *actor, Actor *leader)
{
    uint32_t i = 0;

    while (leader->lent[i] != actor)
        i++;
    leader->lent[i] = leader->lent[--leader->n_lent];
    /* relaxed: it only changes who is the owner, and the caller is */
    atomic_store_explicit(&actor->owned, ACTOR_OWNED, memory_order_relaxed);
}

/* The leader that it sees may be an earlier one, or the actor itself, which stands for nobody. Then
 * it looks again, as it does when another thread has changed what it has seen: so not for long. */
bool actor_take_lent(Actor *actor)
{
    uint32_t seen = ACTOR_LENT;

    while (seen == ACTOR_LENT) {
        /* relaxed: the leader's token tells whether it is right */
        Actor *const leader = atomic_load_explicit(&actor->leader, memory_order_relaxed);
        uint32_t of_leader = 0;
        bool is_lent = false;

        /* acquire: as in actor_take_token */
        if (atomic_compare_exchange_strong_explicit(&leader->owned, &of_leader, ACTOR_OWNED,
                                                    memory_order_acquire, memory_order_relaxed)) {
            is_lent = is_lent_to(actor, leader);
            if (is_lent)
                end_loan(actor, leader);
            if (actor_free_token(leader))
                actor_attend(leader);
        } else if (of_leader != ACTOR_LENT) /* if it is lent, it stands for no other any more */
            return false;
        if (is_lent)
            return true;
        seen = 0;
        /* acquire: as in actor_take_token */
        if (atomic_compare_exchange_strong_explicit(&actor->owned, &seen, ACTOR_OWNED,
                                                    memory_order_acquire, memory_order_relaxed))
            return true;
    }
    return false;
}

/* ---- sharing ---- */

static void share_on(Actor *actor)
{
    if (G_UNLIKELY(actor->answered != NULL))
        actor_send_answers_between(actor);
    /* release: to the acquire in try_share; who ends the last share looks at the mailbox */
    atomic_store_explicit(&actor->owned, ACTOR_SHARE, memory_order_release);
}

static bool try_share(Actor *actor)
{
    uint32_t owned = 0;

    /* acquire: pairs with the stores in actor_free_token and share_on, so that the last owner's
     * changes are seen; those who share besides only add to what these stored */
    while (!atomic_compare_exchange_weak_explicit(&actor->owned, &owned, owned + ACTOR_SHARE,
                                                  memory_order_acquire, memory_order_relaxed)) {
        if (owned == ACTOR_OWNED)
            return false;
        if (owned != ACTOR_LENT)
            continue;
        if (!actor_take_lent(actor))
            return false;
        share_on(actor);
        break;
    }
    return true;
}

static bool share_soon(Actor *actor, uint64_t most_ns)
{
    ActorLooks looks = { 0 };

    while (!try_share(actor))
        do
            if (!actor_looks_on(&looks, most_ns))
                return false; /* relaxed: a hint, as in take_token_soon */
        while (atomic_load_explicit(&actor->owned, memory_order_relaxed) == ACTOR_OWNED);
    return true;
}

static void end_share(Actor *actor)
{
    const LentTokens lent = actor_lent(actor);
    /* release: to the acquire in actor_take_token, so that the next owner changes nothing before
     * this thread has read it; seq_cst: against mailbox_push, see the note */
    const uint32_t before =
        atomic_fetch_sub_explicit(&actor->owned, ACTOR_SHARE, memory_order_seq_cst);

    if (before != ACTOR_SHARE)
        return;
    actors_attend(&lent);
    if (!mailbox_is_empty(&actor->mailbox) && actor_take_token(actor)) {
        actor_handle_mailbox(actor);
        actor_leave(actor);
    }
}

/* The leader last: until then the others stay lent. */
static void end_shares(Actor *const *actors, size_t n, Actor *leader)
{
    for (size_t i = 0; i < n; i++)
        if (actors[i] != leader && !is_lent_to(actors[i], leader))
            end_share(actors[i]);
    end_share(leader);
}

bool actors_share_soon(Actor *const *actors, size_t n, uint64_t most_ns)
{
    Actor *const leader = leader_of(actors, n);
    bool is_idle;
    size_t i;

    if (!share_soon(leader, most_ns))
        return false;
    is_idle = mailbox_is_empty(&leader->mailbox);
    for (i = 0; i < n && is_idle; i++) {
        if (actors[i] == leader)
            continue;
        if (!is_lent_to(actors[i], leader) && !share_soon(actors[i], 0))
            break;
        is_idle = mailbox_is_empty(&actors[i]->mailbox);
    }
    if (i == n && is_idle)
        return true;
    end_shares(actors, i, leader);
    return false;
}

void actors_end_share(Actor *const *actors, size_t n)
{
    end_shares(actors, n, leader_of(actors, n));
}

void actors_share_on(Actor *const *actors, size_t n)
{
    Actor *const leader = leader_of(actors, n);

    for (size_t i = 0; i < n; i++)
        if (actors[i] != leader && !is_lent_to(actors[i], leader))
            share_on(actors[i]);
        else if (G_UNLIKELY(actors[i]->answered != NULL))
            actor_send_answers_between(actors[i]);
    share_on(leader);
}

/* ---- reading beside the owner ---- */

void actors_leave(Actor *const *actors, size_t n, uint32_t reader)
{
    for (size_t i = 0; i < n; i++)
        read_gate_leave(&actors[i]->gate, reader);
}

bool actors_enter(Actor *const *actors, size_t n, uint32_t reader)
{
    size_t n_entered = 0;
    bool may_read = true;

    while (n_entered < n && may_read && read_gate_enter(&actors[n_entered]->gate, reader))
        may_read = mailbox_is_empty(&actors[n_entered++]->mailbox);
    if (n_entered == n && may_read)
        return true;
    actors_leave(actors, n_entered, reader);
    return false;
}

void actors_admit_readers(Actor *const *actors, size_t n)
{
    for (size_t i = 0; i < n; i++)
        read_gate_open(&actors[i]->gate);
}
