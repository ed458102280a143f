/* What this node has told the scheduler, and what the scheduler may not have in its journal yet. It
 * is said again to a process that goes on as the scheduler. The scheduler's heartbeats say what
 * need not be kept any more; so it is no more than is said in a heartbeat, and while the
 * scheduler's process is away.
 *
 * Threads: any, but as told. */
#ifndef RUBATO_ENGINE_CONTROL_UNHEARD_H
#define RUBATO_ENGINE_CONTROL_UNHEARD_H

#include <pthread.h>

#include "engine/control/control.h"

/* Sends an encoded message. Called with the lock held, so that messages leave in their order. */
typedef void (*UnheardSendFunc)(void *user, const GByteArray *body);

typedef struct {
    /* immutable */
    UnheardSendFunc send;
    void *user;

    pthread_mutex_t lock; /* no other is taken under it, but by `send` */
    /* guarded by lock */
    GQueue kept;     /* of GByteArray, the oldest first: the last one is message n_said */
    uint64_t n_said; /* messages that count (control_message_counts) */
    bool holds;      /* messages are kept alone: the link to the scheduler is being replaced */
} Unheard;

void unheard_init(Unheard *unheard, UnheardSendFunc send, void *user);
void unheard_clear(Unheard *unheard);

/* Sends the message, and keeps it if it counts. */
void unheard_say(Unheard *unheard, const Control *control);

/* The scheduler will not forget the first so many. */
void unheard_drop(Unheard *unheard, uint64_t n_taken);

/* The link is replaced between the two: `end` sends `first`, and again all but the first n_taken
 * messages. Returns how many. One thread at a time. */
void unheard_begin_again(Unheard *unheard);
uint64_t unheard_end_again(Unheard *unheard, const Control *first, uint64_t n_taken);

#endif
