/* See unheard.h. */
#include "engine/control/unheard.h"

#include "engine/control/control_messages.h"

void unheard_init(Unheard *unheard, UnheardSendFunc send, void *user)
{
    *unheard = (Unheard){ .send = send, .user = user };
    pthread_mutex_init(&unheard->lock, NULL);
    g_queue_init(&unheard->kept);
}

void unheard_clear(Unheard *unheard)
{
    g_queue_clear_full(&unheard->kept, (GDestroyNotify)g_byte_array_unref);
    pthread_mutex_destroy(&unheard->lock);
}

void unheard_say(Unheard *unheard, const Control *control)
{
    g_autoptr(GByteArray) body = control_encode(control);
    const bool counts = control_message_counts(control->kind);

    pthread_mutex_lock(&unheard->lock);
    if (counts) {
        unheard->n_said++;
        g_queue_push_tail(&unheard->kept, g_byte_array_ref(body));
    }
    if (!unheard->holds)
        unheard->send(unheard->user, body);
    pthread_mutex_unlock(&unheard->lock);
}

/* The lock is held. */
static void drop(Unheard *unheard, uint64_t n_taken)
{
    while (unheard->kept.length > 0 && unheard->n_said - unheard->kept.length < n_taken)
        g_byte_array_unref(g_queue_pop_head(&unheard->kept));
}

void unheard_drop(Unheard *unheard, uint64_t n_taken)
{
    pthread_mutex_lock(&unheard->lock);
    drop(unheard, n_taken);
    pthread_mutex_unlock(&unheard->lock);
}

void unheard_begin_again(Unheard *unheard)
{
    pthread_mutex_lock(&unheard->lock);
    unheard->holds = true;
    pthread_mutex_unlock(&unheard->lock);
}

uint64_t unheard_end_again(Unheard *unheard, const Control *first, uint64_t n_taken)
{
    g_autoptr(GByteArray) body = control_encode(first);
    uint64_t n;

    pthread_mutex_lock(&unheard->lock);
    drop(unheard, n_taken);
    unheard->send(unheard->user, body);
    for (const GList *link = unheard->kept.head; link != NULL; link = link->next)
        unheard->send(unheard->user, link->data);
    n = unheard->kept.length;
    unheard->holds = false;
    pthread_mutex_unlock(&unheard->lock);
    return n;
}
