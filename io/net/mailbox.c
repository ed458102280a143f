/* The mailbox: a stack. Senders push to it; the receiver takes all of it and reverses it.
 *
 * Taking all at once needs no protection against ABA, because no thread pops a single node. A
 * push's release pairs with the acquire of the exchange in mailbox_take, so the receiver sees what
 * the sender wrote into the message. Pushes and the emptiness test are sequentially consistent
 * because the actor's hand-over (actor.c) orders them against its token. */
#include "io/net/mailbox.h"

void mailbox_init(Mailbox *mailbox)
{
    atomic_init(&mailbox->newest, NULL);
}

void mailbox_push(Mailbox *mailbox, Message *message)
{
    Message *newest = atomic_load_explicit(&mailbox->newest, memory_order_relaxed);

    do
        message->next = newest;
    while (!atomic_compare_exchange_weak_explicit(&mailbox->newest, &newest, message,
                                                  memory_order_seq_cst, memory_order_relaxed));
}

bool mailbox_is_empty(const Mailbox *mailbox)
{
    return atomic_load_explicit(&mailbox->newest, memory_order_seq_cst) == NULL;
}

Message *mailbox_take(Mailbox *mailbox)
{
    Message *message, *next, *oldest_first = NULL;

    if (mailbox_is_empty(mailbox)) /* avoids the exchange, which would take the cache line */
        return NULL;
    message = atomic_exchange_explicit(&mailbox->newest, NULL, memory_order_acquire);
    for (; message != NULL; message = next) {
        next = message->next;
        message->next = oldest_first;
        oldest_first = message;
    }
    return oldest_first;
}
