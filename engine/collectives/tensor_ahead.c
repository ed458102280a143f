/* Values that are sent before nodes have agreed that an operation runs. See
 * tensor_exchange_private.h.
 *
 * DESIGN NOTE
 *
 * A node that tells by a bit that its worker asks again for one small tensor sends the worker's
 * values right behind it, in the same packet where it can: all of them, or to each node those that
 * it combines. If the round decides that the operation runs, they are there already: one exchange
 * between the nodes does for both. If not, they were sent in vain: other nodes drop them at the end
 * of the round (launch_drop_late), and they are sent again with the bit, once others have told
 * theirs.
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
#include "engine/collectives/tensor_exchange_private.h"
#include "engine/collectives/work/tensor_fetch.h"

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

/* What the only worker here that asks for the slot asks; NULL: it may not be sent. *n_nodes: of the
 * set. */
static TensorEntry *find_entry(const TensorExchange *exchange, const TensorSet *set,
                               const TensorSlot *slot, uint32_t *n_nodes)
{
    TensorAhead ahead;

    *n_nodes = 0;

    if (slot->n != 1 || set->n_local != 1 || set->closed != NULL)
        return NULL;
    TensorEntry *const entry = exchange_entry_of(slot, 0, 0, slot->held[0]);
    if (entry->is_async)
        return NULL; /* its worker does not wait: the copy would only make its call longer */
    for (uint32_t node = 0; node < exchange->place.n_nodes; node++) {
        *n_nodes += set->members_of[node] > 0;
        if (node != exchange->place.self && set->members_of[node] > 0 &&
            exchange->links->is_full(exchange->user, node))
            return NULL;
    }
    const TensorRequest *const request = &entry->part.request;
    return *n_nodes >= 2 && tensor_flow_ahead(request, *n_nodes, 0, &ahead) ? entry : NULL;
}

static bool is_same(const TensorAhead *one, const TensorAhead *other)
{
    return one->place == other->place && one->begin == other->begin &&
           one->n_bytes == other->n_bytes;
}

/* Messages on their way to be made. */
typedef struct {
    GArray *made;      /* of AheadMessage */
    TensorAhead first; /* what the first of them has */
} Messages;

/* A message to a node with a part of the entry's values. Nodes that get the same read it at one
 * place if they can. False: there is no memory for it. */
static bool make_message(const TensorExchange *exchange, const TensorEntry *entry, uint32_t node,
                         const TensorAhead *ahead, TensorMessage message, Messages *messages)
{
    const TensorCarrier *const carrier = &exchange->links->carrier;
    const bool may_share = messages->made->len > 0 && carrier->share_message != NULL &&
                           is_same(&messages->first, ahead);
    AheadMessage made = { .node = node };
    void *bytes;

    message.place = ahead->place;
    message.n_bytes = ahead->n_bytes;
    if (may_share)
        made.message = carrier->share_message(
            exchange->user, node, &message, g_array_index(messages->made, AheadMessage, 0).message);
    if (made.message == NULL) {
        made.message = carrier->new_message(exchange->user, node, &message, &bytes);
        if (made.message == NULL)
            return false;
        tensor_copy_fetching(bytes, (const uint8_t *)entry->part.input + ahead->begin,
                             ahead->n_bytes, (const uint8_t *)entry->part.output + ahead->begin);
    }
    if (messages->made->len == 0)
        messages->first = *ahead;
    g_array_append_val(messages->made, made);
    return true;
}

/* Messages for all other nodes of the set. False: there is no memory for one. */
static bool make_messages(const TensorExchange *exchange, const TensorSet *set,
                          const TensorEntry *entry, uint32_t n_nodes, const TensorMessage *message,
                          GArray *made)
{
    Messages messages = { .made = made };
    uint32_t place = 0; /* of the node among those of the set */
    TensorAhead ahead;

    for (uint32_t node = 0; node < exchange->place.n_nodes; node++) {
        if (set->members_of[node] == 0)
            continue;
        tensor_flow_ahead(&entry->part.request, n_nodes, place++, &ahead);
        if (exchange_has_node(exchange, node) && ahead.n_bytes > 0 &&
            !make_message(exchange, entry, node, &ahead, *message, &messages))
            return false;
    }
    return true;
}

GArray *ahead_make(TensorExchange *exchange)
{
    const TensorCarrier *const carrier = &exchange->links->carrier;
    const TensorSet *set = NULL;
    uint32_t n_nodes;

    if (exchange->n_told != 1 || exchange->n_cuts > 0 || exchange->is_shut)
        return NULL;
    const TensorSlot *const slot = find_told(exchange, &set);
    TensorEntry *const entry = slot == NULL ? NULL : find_entry(exchange, set, slot, &n_nodes);
    if (entry == NULL)
        return NULL;
    const TensorMessage message = { .kind = TENSOR_MESSAGE_PART,
                                    .number = tensor_round_number(
                                        tensor_rounds_number(exchange->rounds), set->id, 0) };
    GArray *const messages = g_array_new(FALSE, FALSE, sizeof(AheadMessage));
    if (make_messages(exchange, set, entry, n_nodes, &message, messages)) {
        exchange->ahead = message.number;
        /* relaxed: a hint alone */
        atomic_store_explicit(&entry->is_fetched, true, memory_order_relaxed);
        return messages;
    }
    for (guint i = 0; i < messages->len; i++) {
        const AheadMessage *const made = &g_array_index(messages, AheadMessage, i);

        carrier->forget(exchange->user, made->node, made->message);
    }
    g_array_unref(messages);
    return NULL;
}
