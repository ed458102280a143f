/* An actor from inside: what actor.c and actor_several.c share.
 *
 * Threads: actor_take_token, actor_take_lent, actor_seems_free and actors_attend any; the rest the
 * owner, or for actor_lent one that shares the actor. */
#ifndef RUBATO_IO_NET_ACTOR_PRIVATE_H
#define RUBATO_IO_NET_ACTOR_PRIVATE_H

#include "io/net/actor.h"
#include "io/net/actor_looks.h"

/* Values of `owned`: an owner, each thread that shares the actor, and a token that is lent. */
enum { ACTOR_OWNED = 1, ACTOR_SHARE = 2, ACTOR_LENT = INT32_MAX };

/* Becomes the owner of an actor whose token is lent, or was. False: it has another one, or the
 * token that stands for its own is taken. */
bool actor_take_lent(Actor *actor);

/* Does not read the token first: that would fetch its cache line twice, to read and then to
 * write. The owner's own line comes while the message is handled. */
static inline bool actor_take_token(Actor *actor)
{
    uint32_t seen = 0;

    /* acquire: with the store in actor_free_token, so that the last owner's changes are seen */
    if (!atomic_compare_exchange_strong_explicit(&actor->owned, &seen, ACTOR_OWNED,
                                                 memory_order_acquire, memory_order_relaxed) &&
        (G_LIKELY(seen != ACTOR_LENT) || !actor_take_lent(actor)))
        return false;
    __builtin_prefetch(&actor->answered, 1);
    return true;
}

/* A hint: whether actor_take_token would succeed. */
static inline bool actor_seems_free(const Actor *actor)
{
    /* relaxed, all: a hint; a load leaves the token's cache line with the owner, an exchange would
     * not */
    const uint32_t owned = atomic_load_explicit(&actor->owned, memory_order_relaxed);

    if (G_LIKELY(owned != ACTOR_LENT))
        return owned == 0;
    const Actor *const leader = atomic_load_explicit(&actor->leader, memory_order_relaxed);

    return atomic_load_explicit(&leader->owned, memory_order_relaxed) == 0;
}

void actor_handle_mailbox(Actor *actor);

/* Sends what has been answered so far. With the token. */
void actor_send_answers_between(Actor *actor);

/* settled: the actor's. Without the token the actor may be gone after the last one. */
void actor_send_answers(Actor *actor, Message *message, void (*settled)(Actor *));

/* Has messages handled that are in the mailbox although nobody has the token. */
void actor_attend(Actor *actor);

/* The tokens for which an actor's stands, noted before it is given back. */
typedef struct {
    uint32_t n;
    Actor *actors[ACTOR_MOST_LENT];
} LentTokens;

static inline __attribute__((always_inline)) LentTokens actor_lent(const Actor *actor)
{
    LentTokens lent;

    lent.n = actor->n_lent;
    for (uint32_t i = 0; i < lent.n; i++)
        lent.actors[i] = actor->lent[i];
    return lent;
}

/* After the token was given back: nobody else looks at the mailboxes of these. */
static inline __attribute__((always_inline)) void actors_attend(const LentTokens *lent)
{
    for (uint32_t i = 0; i < lent->n; i++)
        if (G_UNLIKELY(!mailbox_is_empty(&lent->actors[i]->mailbox)))
            actor_attend(lent->actors[i]);
}

/* Gives back the token and then the answers. Returns whether new messages are in the mailbox. An
 * owner without answers does not write to its line, so others still have it. */
static inline __attribute__((always_inline)) bool actor_free_token(Actor *actor)
{
    Message *const answered = actor->answered;
    void (*const settled)(Actor *) = answered == NULL ? NULL : actor->settled;
    const LentTokens lent = actor_lent(actor);
    bool filled;

    if (answered != NULL)
        actor->answered = NULL;
    /* release: to the acquires in actor_take_token and actor_take_lent; seq_cst: against
     * mailbox_push, see the note in actor.c */
    atomic_store_explicit(&actor->owned, 0, memory_order_seq_cst);
    filled = !mailbox_is_empty(&actor->mailbox);
    actors_attend(&lent);
    if (answered != NULL)
        actor_send_answers(actor, answered, settled);
    return filled;
}

/* Gives it back, and sees to it that new messages are handled. The second function is for an actor
 * that was given back with new ones. */
void actor_leave_filled(Actor *actor);
static inline __attribute__((always_inline)) void actor_leave(Actor *actor)
{
    if (G_UNLIKELY(actor_free_token(actor)))
        actor_leave_filled(actor);
}

#endif
