/* A mailbox whose messages are handled one at a time, in the order in which they came, by whichever
 * thread holds its ownership token.
 *
 * An actor needs a thread, not its own thread: a sender that finds the actor idle takes the token
 * and handles its message itself; otherwise the message waits in the mailbox for the present owner
 * or the actor's own thread. The design note is in actor.c.
 *
 * Threads: actor_try_handle, its variants and actor_post from any; actor_answer from the owner,
 * that is from inside `handle`; actor_start and actor_stop from the thread that owns the actor's
 * memory. */
#ifndef RUBATO_IO_NET_ACTOR_H
#define RUBATO_IO_NET_ACTOR_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "io/net/mailbox.h"

typedef struct Actor Actor;
struct Actor {
    Mailbox mailbox;
    _Alignas(
        64) _Atomic uint32_t owned; /* the ownership token: 1 while a thread handles messages */
    _Atomic uint32_t asleep;        /* 1: the actor's thread sleeps, or is about to */
    _Atomic bool stopping;

    /* immutable while started */
    bool has_thread;
    void (*handle)(Actor *actor, Message *message); /* as the owner; may not block */
    void (*settled)(Actor *actor); /* after a batch's answers have gone out; NULL: nothing to do */
    /* The owner asks how long a message may take, in units of its own; NULL: no time at all. */
    size_t (*find_work)(Actor *actor, const Message *message);

    /* owner only; with the token in one cache line, which comes to each owner in any case */
    Message *taken;        /* out of the mailbox, not handled yet */
    Message *answered;     /* what handle gave back, in any order */
    RubatoRequest *outbox; /* for handle to use; NULL at first */

    pthread_t thread; /* immutable while started; seldom looked at */
};

/* Without a thread: whoever posts handles, or leaves it to the present owner. */
void actor_init(Actor *actor, void (*handle)(Actor *actor, Message *message),
                void (*settled)(Actor *actor));

/* Gives the actor a thread of that name (15 characters at most). */
bool actor_start(Actor *actor, const char *name);

/* Handles what is in the mailbox and joins the thread. Nobody may send any more. */
void actor_stop(Actor *actor);

/* Where the actor is idle: handles what waits in the mailbox, then the message, on this thread.
 * False: another thread is at it and nothing has happened. */
bool actor_try_handle(Actor *actor, Message *message);

/* The same, but looks a moment whether the other thread is done: for short requests that costs less
 * than leaving it the message. For threads that have nothing better to do. */
bool actor_try_handle_soon(Actor *actor, Message *message);

/* For threads that must not be kept long: where the actor is idle and nothing waits in its mailbox,
 * handles the message if that is no more than `most` work, and nothing else; what comes meanwhile
 * is left to the actor's thread. True: *work is what it was. False: nothing has happened. */
bool actor_try_handle_short(Actor *actor, Message *message, size_t most, size_t *work);

/* Puts the message into the mailbox and sees to it that somebody handles it. */
void actor_post(Actor *actor, Message *message);

/* The owner, from inside `handle`: handles what has come behind the present message, until a look
 * (sequentially consistent) finds the mailbox empty. */
void actor_drain(Actor *actor);

/* Gives a message back: message_end is called on it once the token is free again. */
void actor_answer(Actor *actor, Message *message);

#endif
