/* Values that are sent before nodes have agreed that an operation runs. See
 * tensor_exchange_private.h.
 *
 * DESIGN NOTE
 *
 * A node that tells by a bit that its worker asks again for one small tensor sends the worker's
 * values right behind it. If the round decides that the operation runs, they are there already: one
 * exchange between the nodes does for both, and each copies its values while the other's bit is on
 * its way. If not, they were sent in vain: other nodes drop them at the end of the round
 * (launch_drop_late), and they are sent again with the bit, once others have told theirs.
 *
 * Why they are what the operation's flow would have sent, on all nodes:
 *
 * - Its number is known before: a round gives numbers by set and by name, and this node has told of
 *   one name. So no other operation can run here in this round, and the name travels alone.
 * - Which way it goes is known before: cut-overs are fixed, as far as this node has heard when it
 *   tells its vector, and a round goes by the node that has heard the fewest verdicts on them.
 * - All workers take part, for a slot in whose set one has joined does not run.
 *
 * The values are copied with the lock held. Who cancels the task ends the call whose values they
 * are, under the lock, too; so the caller's array stays for that long. It is some microseconds.
 *
 * Threads: any, with the exchange's lock. */
#include <string.h>

#include "engine/collectives/tensor_exchange_private.h"

typedef struct {
    uint32_t node;
    void *message;
} Sent;

/* The first slot of those that are told; TENSOR_NO_SLOT: there is none. */
static uint32_t first_told(const TensorBits *bits)
{
    for (uint32_t word = 0; word < bits->n_words; word++)
        if (bits->again[word] != 0)
            return word * 64 + (uint32_t)__builtin_ctzll(bits->again[word]);
    return TENSOR_NO_SLOT;
}

/* The only slot that is told in this round, and its set. NULL: nobody asks for it any more, or
 * another node has said that it does not run. */
static const TensorSlot *find_told(const TensorExchange *exchange, const TensorSet **of)
{
    const GArray *const told = tensor_rounds_own(exchange->rounds)->sets;

    for (guint i = 0; i < told->len; i++) {
        const TensorBits *const bits = &g_array_index(told, TensorBits, i);
        const TensorSet *const set = exchange_set(exchange, bits->set);
        const uint32_t id = first_told(bits);
        const TensorSlot *const slot =
            id == TENSOR_NO_SLOT || set == NULL ? NULL : tensor_slots_at(set->slots, id);

        *of = set;
        if (slot != NULL)
            return slot->is_told &&
                           tensor_rounds_may_run(exchange->rounds, bits, id, set->members_of)
                       ? slot
                       : NULL;
    }
    return NULL;
}

/* What the only worker here that asks for the slot asks; NULL: it may not be sent. *n: its
 * bytes. */
static const TensorEntry *find_entry(const TensorExchange *exchange, const TensorSet *set,
                                     const TensorSlot *slot, size_t *n)
{
    uint32_t n_nodes = 0;

    if (slot->n != 1 || set->n_local != 1 || set->closed != NULL)
        return NULL;
    const TensorEntry *const entry = exchange_entry_of(slot, 0, 0, slot->held[0]);
    if (entry->is_async)
        return NULL; /* its worker does not wait: the copy would only make its call longer */
    for (uint32_t node = 0; node < exchange->place.n_nodes; node++) {
        n_nodes += set->members_of[node] > 0;
        if (node != exchange->place.self && set->members_of[node] > 0 &&
            exchange->links->is_full(exchange->user, node))
            return NULL;
    }
    *n = n_nodes < 2 ? 0 : tensor_flow_ahead(&entry->part.request, n_nodes);
    return *n == 0 ? NULL : entry;
}

/* Messages for all other nodes of the set. False: there is no memory for one. */
static bool make_messages(TensorExchange *exchange, const TensorSet *set, const TensorEntry *entry,
                          const TensorMessage *message, GArray *messages)
{
    const TensorCarrier *const carrier = &exchange->links->carrier;
    Sent sent;
    void *bytes;

    for (sent.node = 0; sent.node < exchange->place.n_nodes; sent.node++) {
        if (sent.node == exchange->place.self || set->members_of[sent.node] == 0)
            continue;
        sent.message = carrier->new_message(exchange->user, sent.node, message, &bytes);
        if (sent.message == NULL)
            return false;
        memcpy(bytes, entry->part.input, message->n_bytes);
        g_array_append_val(messages, sent);
    }
    return true;
}

void ahead_send(TensorExchange *exchange)
{
    const TensorCarrier *const carrier = &exchange->links->carrier;
    const TensorSet *set = NULL;
    size_t n_bytes;

    if (exchange->n_told != 1 || exchange->n_cuts > 0 || exchange->is_shut)
        return;
    const TensorSlot *const slot = find_told(exchange, &set);
    const TensorEntry *const entry =
        slot == NULL ? NULL : find_entry(exchange, set, slot, &n_bytes);
    if (entry == NULL)
        return;
    const TensorMessage message = { .kind = TENSOR_MESSAGE_PART,
                                    .number = tensor_round_number(
                                        tensor_rounds_number(exchange->rounds), set->id, 0),
                                    .n_bytes = n_bytes };
    g_autoptr(GArray) messages = g_array_new(FALSE, FALSE, sizeof(Sent));
    const bool ok = make_messages(exchange, set, entry, &message, messages);
    exchange->ahead = ok ? message.number : 0;
    pthread_mutex_unlock(&exchange->lock);
    for (guint i = 0; i < messages->len; i++) {
        const Sent *const sent = &g_array_index(messages, Sent, i);

        if (ok)
            carrier->send(exchange->user, sent->node, sent->message);
        else
            carrier->forget(exchange->user, sent->node, sent->message);
    }
    pthread_mutex_lock(&exchange->lock);
}
