/* A mailbox with an ownership token. The thread that holds the token handles the messages one at a
 * time, in the order in which they came, or those of high priority first, where order allows it.
 *
 * An actor needs a thread, not its own thread: a sender that finds the actor idle takes the token
 * and handles its message itself; otherwise the message waits in the mailbox for the present owner
 * or the actor's own thread. The design note is in actor.c.
 *
 * One thread may be the owner of several actors. Their tokens can be made one, which is cheaper for
 * threads that take the same actors again and again.
 *
 * Threads that only read what the actor's messages change may share it: while they do, it has no
 * owner. If its gate is open, they may also read beside the owner, what it then changes by atomic
 * stores alone.
 *
 * Threads: actor_try_handle, its variants, actors_try_take, actors_take_soon, actors_take_lent,
 * actors_share_soon, actors_enter and actor_post from any; actor_answer, actors_lend,
 * actors_share_on and actor_exclude_readers from the owner; actors_admit_readers from one that
 * shares the actors; actor_start and actor_stop from the thread that owns the actor's memory. */
#ifndef RUBATO_IO_NET_ACTOR_H
#define RUBATO_IO_NET_ACTOR_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "io/net/mailbox.h"
#include "io/net/priority_order.h"
#include "io/net/read_gate.h"

/* For so many other tokens one stands at most. */
#define ACTOR_MOST_LENT 3u

typedef struct Actor Actor;
struct Actor {
    Mailbox mailbox;

    /* The ownership token: 1 while a thread handles messages; 2 for each thread that shares the
     * actor; ACTOR_LENT if its leader's token stands for it. In its cache line is nothing else that
     * changes often, because senders look at it while the owner works. */
    _Alignas(64) _Atomic uint32_t owned;
    _Atomic(Actor *) leader; /* whose token stands for it, or did; the actor itself at first */

    /* owner only; in one cache line, which each owner fetches while it handles its message */
    _Alignas(64) Message *taken; /* taken from the mailbox, not handled yet; the normal ones, */
    Message *taken_high;         /* and those of high priority */
    Message *answered;           /* what handle gave back, in any order */
    RubatoRequest *outbox;       /* for handle to use; NULL at first */
    bool is_sorted; /* what was taken; otherwise it is one list, in the order in which it came */

    /* owner only: the order of the two lists, and their last messages where there are some */
    _Alignas(64) Message *last_taken, *last_taken_high;
    PriorityOrder order;

    _Alignas(64) _Atomic uint32_t asleep; /* 1: the actor's thread sleeps, or is about to */
    _Atomic bool stopping;
    _Atomic bool has_thread;
    _Atomic bool has_high; /* the mailbox may have messages of high priority */

    /* Owner, and those that share: the tokens for which its own stands. Not in that one's cache
     * line: who gives it back would have it come twice, to read and then to write. */
    uint32_t n_lent;
    Actor *lent[ACTOR_MOST_LENT];

    /* immutable while started */
    void (*handle)(Actor *actor, Message *message); /* as the owner; may not block */
    /* Called after the answers of a batch have left, if some of them were not for calls of this
     * process; may be NULL. */
    void (*settled)(Actor *actor);
    /* Tells the owner how much work a message may be, in the actor's own units; NULL: none. */
    size_t (*find_work)(Actor *actor, const Message *message);

    pthread_t thread; /* immutable while started; seldom read */

    ReadGate gate; /* of readers beside the owner; closed at first */
};

/* Without a thread: a thread that posts a message handles it, or leaves it to the present owner. */
void actor_init(Actor *actor, void (*handle)(Actor *actor, Message *message),
                void (*settled)(Actor *actor));

/* Gives the actor a thread of that name (15 characters at most). */
bool actor_start(Actor *actor, const char *name);

/* Handles the messages in the mailbox and joins the thread. No thread may send any more. */
void actor_stop(Actor *actor);

/* If the actor is idle: handles the messages in the mailbox, then this message, on this thread.
 * False: another thread owns the actor, and nothing has happened. */
bool actor_try_handle(Actor *actor, Message *message);

/* The same, but looks for a moment whether the other thread has finished, and, if the message takes
 * longer, for about as long: most_ns (io/net/actor_looks.h). That costs less than leaving the
 * message to it. For threads that have no other work. */
bool actor_try_handle_soon(Actor *actor, Message *message, uint64_t most_ns);

/* For threads that must return soon. If the actor is idle, its mailbox is empty, and the message is
 * at most `most` work, handles this message only. Messages that come meanwhile are left to the
 * actor's thread. True: *work is the work that was done. False: nothing has happened. */
bool actor_try_handle_short(Actor *actor, Message *message, size_t most, size_t *work);

/* If all of these actors are idle and their mailboxes are empty, becomes the owner of all: true.
 * The thread then gives them back, and waits for nothing before. False: nothing has happened. For
 * threads that have no other work. */
bool actors_try_take(Actor *const *actors, size_t n);
void actors_give_back(Actor *const *actors, size_t n);

/* The same, but looks for a moment whether each token becomes free, and for the first one up to
 * most_ns. The actors differ. It waits for no token longer than that, so two threads that take
 * several do not wait for each other for ever. */
bool actors_take_soon(Actor *const *actors, size_t n, uint64_t most_ns);

/* Makes the tokens of these actors one, as far as that is possible: until somebody wants one of the
 * actors alone, who owns their leader owns them all. The caller is their owner, and stays so. */
void actors_lend(Actor *const *actors, size_t n);

/* actors_take_soon if the tokens of these actors have become one; otherwise false at once. */
bool actors_take_lent(Actor *const *actors, size_t n, uint64_t most_ns);

/* If none of these actors has an owner, or none after a moment each, or up to most_ns of the first
 * one, and their mailboxes are empty: true, and the thread shares them, with any number of others,
 * until actors_end_share. It waits for nothing else before. False: nothing has happened. For
 * threads that have no other work. */
bool actors_share_soon(Actor *const *actors, size_t n, uint64_t most_ns);
void actors_end_share(Actor *const *actors, size_t n);

/* The owner of these actors does not own them any more, but shares them: actors_end_share ends
 * that. */
void actors_share_on(Actor *const *actors, size_t n);

/* If the gates of all these actors are open, and their mailboxes are empty: true, and the thread
 * may read beside their owners until actors_leave. All messages that were posted before have been
 * handled. It waits for nothing before. False: nothing has happened. reader: any number, best one
 * of its own. */
bool actors_enter(Actor *const *actors, size_t n, uint32_t reader);
void actors_leave(Actor *const *actors, size_t n, uint32_t reader);

/* Opens the gates of actors that the thread shares. Each closes when its owner finds a message in
 * the mailbox, or says so. */
void actors_admit_readers(Actor *const *actors, size_t n);

/* By the owner, before it changes in another way what readers read. Waits until none is inside. */
static inline void actor_exclude_readers(Actor *actor)
{
    read_gate_close(&actor->gate);
}

/* Puts the message into the mailbox and ensures that a thread handles it. */
void actor_post(Actor *actor, Message *message);

/* Gives a message back: message_end is called on it once the token is free again, or, beside
 * messages of high priority, earlier. */
void actor_answer(Actor *actor, Message *message);

#endif
