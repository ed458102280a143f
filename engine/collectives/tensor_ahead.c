/* Values that are sent before nodes have agreed that an operation runs. See
 * tensor_exchange_private.h.
 *
 * DESIGN NOTE
 *
 * A node that tells by a bit that its worker asks again for one small tensor sends the worker's
 * values right behind it, in the same packet where it can: all of them, or to each node those that
 * it combines or gathers. If the round decides that the operation runs, they are there already: one
 * exchange between the nodes does for both. If not, they were sent in vain: other nodes drop them
 * at the end of the round (launch_drop_late), and they are sent again with the bit, once others
 * have told theirs.
 *
 * Of a large tensor that is broadcast or gathered within a host it is the first piece. So where
 * workers do the same again and again, one node makes the beginning of a tensor while another takes
 * in the end of the one before.
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
#include "engine/collectives/work/tensor_fetch.h"
#include "engine/collectives/work/tensor_stream.h"

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

/* What the only worker here that asks for the slot asks; NULL: it may not be sent. */
static TensorEntry *find_entry(const TensorExchange *exchange, const TensorSet *set,
                               const TensorSlot *slot)
{
    if (slot->n != 1 || set->n_local != 1 || set->closed != NULL)
        return NULL;
    TensorEntry *const entry = exchange_entry_of(slot, 0, 0, slot->held[0]);
    if (entry->is_async)
        return NULL; /* its worker does not wait: the copy would only make its call longer */
    for (uint32_t node = 0; node < exchange->place.n_nodes; node++)
        if (node != exchange->place.self && set->members_of[node] > 0 &&
            exchange->links->is_full(exchange->user, node))
            return NULL;
    return entry;
}

/* Messages on their way to be made. */
typedef struct {
    const TensorExchange *exchange;
    uint64_t number;     /* of the operation */
    GArray *made;        /* of AheadMessage */
    TensorAhead first;   /* what the first of them with values has, */
    void *first_message; /* which is this one; NULL: there is none */
} Messages;

/* False: there is no memory for it. */
static bool make_sizes(Messages *messages, uint32_t node, const TensorAhead *ahead)
{
    const TensorExchange *const exchange = messages->exchange;
    const TensorMessage message = { .kind = TENSOR_MESSAGE_SIZES,
                                    .number = messages->number,
                                    .n_bytes = ahead->n_sizes * sizeof(uint64_t) };
    AheadMessage made = { .node = node };
    void *bytes;

    made.message = exchange->links->carrier.new_message(exchange->user, node, &message, &bytes);
    if (made.message == NULL)
        return false;
    memcpy(bytes, ahead->sizes, message.n_bytes);
    g_array_append_val(messages->made, made);
    return true;
}

/* A message with the same values as the first one; NULL: it cannot be. */
static void *share_first(const Messages *messages, uint32_t node, const TensorMessage *message)
{
    const TensorExchange *const exchange = messages->exchange;
    const TensorCarrier *const carrier = &exchange->links->carrier;

    return messages->first_message == NULL || carrier->share_message == NULL ||
                   messages->first.place != message->place ||
                   messages->first.bytes != message->bytes ||
                   messages->first.n_bytes != message->n_bytes
               ? NULL
               : carrier->share_message(exchange->user, node, message, messages->first_message);
}

/* A message to a node with values of the worker. Nodes that get the same read it at one place if
 * they can. False: there is no memory for it. */
static bool make_values(Messages *messages, uint32_t node, const TensorAhead *ahead)
{
    const TensorExchange *const exchange = messages->exchange;
    const TensorMessage message = { .kind = ahead->kind,
                                    .number = messages->number,
                                    .place = ahead->place,
                                    .bytes = ahead->bytes,
                                    .n_bytes = ahead->n_bytes };
    AheadMessage made = { .node = node, .message = share_first(messages, node, &message) };
    void *bytes;

    if (made.message == NULL) {
        made.message = exchange->links->carrier.new_message(exchange->user, node, &message, &bytes);
        if (made.message == NULL)
            return false;
        const size_t n = MIN(ahead->n_fetched, ahead->n_bytes);

        tensor_copy_fetching(bytes, ahead->bytes, n, ahead->fetched);
        tensor_stream_near((uint8_t *)bytes + n, ahead->bytes + n, ahead->n_bytes - n);
    }
    if (messages->first_message == NULL) {
        messages->first = *ahead;
        messages->first_message = made.message;
    }
    g_array_append_val(messages->made, made);
    return true;
}

/* Messages for all other nodes of the plan. False: nothing is sent before it is decided. */
static bool make_messages(Messages *messages, const TensorFlowPlan *plan)
{
    TensorAhead ahead;
    bool ok = plan->n_nodes >= 2 && tensor_flow_ahead(plan, plan->self, &ahead);

    for (uint32_t to = 0; to < plan->n_nodes && ok; to++) {
        const uint32_t node = plan->nodes[to];

        if (!exchange_has_node(messages->exchange, node))
            continue;
        ok = tensor_flow_ahead(plan, to, &ahead) &&
             (ahead.sizes == NULL || make_sizes(messages, node, &ahead)) &&
             (ahead.n_bytes == 0 || make_values(messages, node, &ahead));
    }
    return ok;
}

/* Of a worker's request. (transfer full) */
static GArray *make_ahead(TensorExchange *exchange, const TensorSet *set, TensorEntry *entry)
{
    const TensorCarrier *const carrier = &exchange->links->carrier;
    TensorPart *part = &entry->part;
    Messages messages = { .exchange = exchange,
                          .number = tensor_round_number(tensor_rounds_number(exchange->rounds),
                                                        set->id, 0),
                          .made = g_array_new(FALSE, FALSE, sizeof(AheadMessage)) };
    FlowNodes nodes;

    flow_nodes_find(exchange, set, NULL, &nodes);
    nodes.plan.parts = &part;
    nodes.plan.carrier = carrier;
    nodes.plan.user = exchange->user;
    const bool ok = make_messages(&messages, &nodes.plan);
    flow_nodes_clear(&nodes);
    if (ok) {
        exchange->ahead = messages.number;
        return messages.made;
    }
    for (guint i = 0; i < messages.made->len; i++) {
        const AheadMessage *const made = &g_array_index(messages.made, AheadMessage, i);

        carrier->forget(exchange->user, made->node, made->message);
    }
    g_array_unref(messages.made);
    return NULL;
}

GArray *ahead_make(TensorExchange *exchange)
{
    const TensorSet *set = NULL;

    if (exchange->n_told != 1 || exchange->n_cuts > 0 || exchange->is_shut)
        return NULL;
    const TensorSlot *const slot = find_told(exchange, &set);
    TensorEntry *const entry = slot == NULL ? NULL : find_entry(exchange, set, slot);
    GArray *const messages = entry == NULL ? NULL : make_ahead(exchange, set, entry);
    if (messages != NULL && entry->part.request.operation == TENSOR_ALLREDUCE)
        /* relaxed: a hint alone */
        atomic_store_explicit(&entry->is_fetched, true, memory_order_relaxed);
    return messages;
}
