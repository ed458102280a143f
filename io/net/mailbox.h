/* A queue of messages from which exactly one thread at a time receives.
 *
 * Any number of threads push; a push is one compare-and-swap and never blocks. The receiver takes
 * everything that is there at once, in the order in which it was pushed. A push that happens before
 * another (in one thread, or through any synchronisation between two) comes out before it.
 *
 * Threads: mailbox_push and mailbox_is_empty from any; the rest from the receiver. */
#ifndef RUBATO_IO_NET_MAILBOX_H
#define RUBATO_IO_NET_MAILBOX_H

#include <stdatomic.h>
#include <stdbool.h>

#include "io/net/message.h"

typedef struct {
    _Alignas(64) _Atomic(Message *) newest; /* chained from the newest to the oldest */
} Mailbox;

void mailbox_init(Mailbox *mailbox);

/* Hands the message over; the mailbox chains it by its `next`. */
void mailbox_push(Mailbox *mailbox, Message *message);

bool mailbox_is_empty(const Mailbox *mailbox);

/* All messages, chained by `next`, oldest first; NULL if there are none. (transfer full) */
Message *mailbox_take(Mailbox *mailbox);

#endif
