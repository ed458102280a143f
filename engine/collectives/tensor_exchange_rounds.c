/* What nodes agree on among themselves, by rounds of bit vectors (tensor_rounds.h): what their
 * workers ask again. See tensor_exchange_private.h.
 *
 * DESIGN NOTE
 *
 * The coordinator hears nothing of what is asked again. So what it decides and what rounds decide
 * are two streams, and each node may be at another place of one than of the other. Why nodes still
 * do the same:
 *
 * - A slot that is told in a round stays as it is until the round ends: it is not asked in full,
 *   and no verdict is heard. For the round may decide that it runs, and then all nodes run it. The
 *   verdicts wait in `unheard`, as does the JOIN of a worker. The round ends soon: other nodes
 *   answer it when it comes, or at their next tick, whatever their workers do (see below). If one
 *   of them dies, the round ends without it, or the task is cancelled, and nobody waits for the
 *   round any more (is_shut).
 * - While verdicts are heard, no vector is told.
 * - A worker that asks for a name in full makes its node tell so with the slot of that name, in
 *   each round until the name is decided. So does a worker that has joined, with all slots of the
 *   set. Then those who asked again, on all nodes, ask in full, too: their requests go to the
 *   coordinator, and all of them meet there. This may happen to a slot without need; it is only
 *   slower.
 * - A slot's id means the same on all nodes that tell it (tensor_slots.h): a node that has not
 *   heard of its being filled anew has requests for its names that are not decided, and does not
 *   tell it.
 * - Operations of rounds have numbers of their own, in which the round is. What a node sends for
 *   one before another knows of it is kept until that round has ended there.
 * - Cut-overs change by a verdict. A vector says which its node has heard of, and what a round
 *   decides goes by the oldest of them.
 *
 * When a vector is told. Workers that do the same again and again do not ask at the same moment. If
 * the first one's vector were answered at once, the round would decide nothing, what was sent ahead
 * with it (tensor_ahead.c) would be dropped, and all would be told once more when the next worker
 * asks. So a node with nothing to tell puts its answer off until one of its workers asks, or joins,
 * or until the next tick (tensor_exchange_tick), some ten milliseconds later at most. It does so
 * only where nobody needs the answer for anything else: the others ask again in sets that have
 * workers here, and nothing is pending here that the coordinator decides, whose verdicts they may
 * hear only behind the round. A node that has given up tells an empty vector, which others answer
 * at once.
 *
 * Threads: any, with the exchange's lock. */
#include <string.h>

#include "engine/collectives/tensor_exchange_private.h"

static bool has_join(const TensorSet *set)
{
    bool any = false;

    for (uint32_t i = 0; i < set->n_local && !any; i++)
        any = set->joins[i] != NULL;
    return any;
}

bool rounds_take(const TensorExchange *exchange, const TensorSet *set)
{
    return exchange->rounds != NULL && !exchange->is_shut && set->id < TENSOR_ROUND_SETS &&
           tensor_rounds_number(exchange->rounds) + 1 < TENSOR_ROUNDS_END && !has_join(set);
}

/* Whether a worker here still asks for one of the slot's names in full. */
static bool is_asked(const TensorSet *set, const TensorSlot *slot)
{
    bool any = false;

    for (uint32_t local = 0; local < set->n_local; local++)
        for (uint32_t i = 0; i < slot->n && !any; i++)
            any = g_hash_table_contains(set->asked[local], slot->names[i]);
    return any;
}

TensorSlot *rounds_find_again(const TensorExchange *exchange, const TensorSet *set, uint32_t local,
                              const TensorEntry *entries, size_t n)
{
    /* One that ended by a round could have ended on some nodes before a loss, and not on others. It
     * has no values that can be missing: decided by the coordinator it ends on all nodes alike. */
    if (exchange->place.continues && entries->part.request.operation == TENSOR_BARRIER)
        return NULL;
    TensorSlot *const slot = exchange_find_again(exchange, set, local, entries, n);

    return slot != NULL && slot->is_in_full && is_asked(set, slot) ? NULL : slot;
}

void rounds_note_again(TensorExchange *exchange, const TensorSet *set, const TensorSlot *slot)
{
    exchange->has_news |= slot->n_held == set->n_local;
}

/* ---- asking in full ---- */

static void note_in_full(TensorExchange *exchange, TensorSet *set, TensorSlot *slot)
{
    if (slot->is_in_full)
        return;
    slot->is_in_full = true;
    g_array_append_val(set->in_full, slot->id);
    exchange->has_news = true;
}

/* Those who asked again ask in full. It is not told. */
static void ask_in_full(TensorExchange *exchange, TensorSet *set, TensorSlot *slot)
{
    for (uint32_t local = 0; local < set->n_local; local++) {
        const TensorEntry *const entries = slot->held[local];

        if (entries != NULL)
            notices_add_asks(exchange, entries->rank, entries, slot->n);
    }
    exchange_look_up(set, slot->names[0]);
    note_in_full(exchange, set, slot);
}

/* All of the set that is not told. */
static void ask_set_in_full(TensorExchange *exchange, TensorSet *set)
{
    for (uint32_t id = 0; id < tensor_slots_end(set->slots); id++) {
        TensorSlot *const slot = tensor_slots_at(set->slots, id);

        if (slot != NULL && slot->n_held > 0 && !slot->is_told)
            ask_in_full(exchange, set, slot);
    }
}

bool rounds_let_go_of(TensorExchange *exchange, TensorSet *set, uint32_t local, const char *name)
{
    TensorSlot *const slot = tensor_slots_of(set->slots, name);

    if (slot == NULL)
        return true;
    if (exchange->rounds == NULL) {
        exchange_look_up(set, name);
        return true;
    }
    if (slot->is_told || slot->held[local] != NULL)
        return false;
    if (slot->n_held > 0)
        ask_in_full(exchange, set, slot);
    else
        note_in_full(exchange, set, slot);
    return true;
}

void rounds_ask_in_full(TensorExchange *exchange)
{
    for (guint id = 0; exchange->rounds != NULL && id < exchange->sets->len; id++) {
        TensorSet *const set = exchange->sets->pdata[id];

        if (set != NULL && set->closed == NULL && tensor_slots_first_held(set->slots) != NULL)
            ask_set_in_full(exchange, set);
    }
}

/* A worker asks for nothing behind its join, so what it asked again has to be told before. */
void rounds_tell_joins(TensorExchange *exchange, TensorSet *set)
{
    if (exchange->n_told > 0 || !has_join(set))
        return;
    if (exchange->rounds != NULL)
        ask_set_in_full(exchange, set);
    for (uint32_t i = 0; i < set->n_local; i++) {
        TensorJoin *const join = set->joins[i];

        if (join == NULL || join->is_told)
            continue;
        join->is_told = true;
        exchange->has_news |= tensor_slots_end(set->slots) > 0;
        notices_begin(exchange);
        tensor_notice_write(
            exchange->notices,
            &(TensorNotice){ .kind = TENSOR_NOTICE_JOIN, .rank = join->rank, .set = set->id });
    }
}

/* ---- vectors ---- */

/* The slots that are asked in full; those that are no more are forgotten. */
static void add_in_full(TensorSet *set, TensorBits *bits)
{
    for (guint i = 0; i < set->in_full->len;) {
        TensorSlot *const slot =
            tensor_slots_at(set->slots, g_array_index(set->in_full, uint32_t, i));

        /* its id may be that of another slot by now, which is in the list by itself if it must */
        if (slot != NULL && slot->is_in_full && is_asked(set, slot)) {
            tensor_bit_set(bits->in_full, slot->id);
            i++;
            continue;
        }
        if (slot != NULL)
            slot->is_in_full = false;
        g_array_remove_index_fast(set->in_full, i);
    }
}

/* Those for which all workers here ask again. */
static void add_again(TensorExchange *exchange, const TensorSet *set, TensorBits *bits)
{
    for (GList *link = tensor_slots_held(set->slots); link != NULL; link = link->next) {
        TensorSlot *const slot = link->data;

        if (slot->n_held < set->n_local)
            continue;
        tensor_bit_set(bits->again, slot->id);
        slot->is_told = true;
        exchange->n_told++;
    }
}

static void add_set(TensorExchange *exchange, TensorSet *set, TensorVector *vector)
{
    const bool is_joined = has_join(set) && tensor_slots_end(set->slots) > 0;

    if (!is_joined && set->in_full->len == 0 && tensor_slots_first_held(set->slots) == NULL)
        return;
    TensorBits *const bits =
        tensor_vector_add(vector, set->id, set->serial, tensor_slots_end(set->slots));
    bits->is_joined = is_joined;
    add_in_full(set, bits);
    if (!is_joined)
        add_again(exchange, set, bits);
}

static TensorVector *make_vector(TensorExchange *exchange)
{
    TensorVector *const vector = tensor_vector_new(exchange->n_cuts, exchange->cutovers);

    for (guint id = 0; id < MIN(exchange->sets->len, TENSOR_ROUND_SETS); id++) {
        TensorSet *const set = exchange->sets->pdata[id];

        if (set != NULL && set->n_local > 0 && set->closed == NULL)
            add_set(exchange, set, vector);
    }
    return vector;
}

/* Whether there is such a message, to that node. */
static bool ahead_is_for(const GArray *ahead, guint i, uint32_t node)
{
    return ahead != NULL && i < ahead->len && g_array_index(ahead, AheadMessage, i).node == node;
}

/* With more behind it, which may be sent together. */
static void send(const TensorExchange *exchange, uint32_t node, void *message, bool has_next)
{
    const TensorCarrier *const carrier = &exchange->links->carrier;

    if (has_next && carrier->send_with_next != NULL)
        carrier->send_with_next(exchange->user, node, message);
    else
        carrier->send(exchange->user, node, message);
}

/* A vector is small: without memory for it nothing else of the process goes on either. */
static void send_vector(const TensorExchange *exchange, uint32_t node, uint64_t round,
                        const GByteArray *vector, bool has_next)
{
    const TensorMessage message = { .kind = TENSOR_MESSAGE_BITS,
                                    .number = round,
                                    .n_bytes = vector->len };
    void *bytes, *sent = NULL;

    for (unsigned i = 0; sent == NULL && i < 3; i++)
        sent = exchange->links->carrier.new_message(exchange->user, node, &message, &bytes);
    if (sent == NULL)
        g_error("no memory for %u bytes that agree on collectives", vector->len);
    memcpy(bytes, vector->data, vector->len);
    send(exchange, node, sent, has_next);
}

/* What is sent ahead to the node, from the i-th message on. Returns the next one that is not. */
static guint send_ahead(const TensorExchange *exchange, uint32_t node, const GArray *ahead, guint i)
{
    for (; ahead_is_for(ahead, i, node); i++)
        send(exchange, node, g_array_index(ahead, AheadMessage, i).message,
             ahead_is_for(ahead, i + 1, node));
    return i;
}

static void tell_vector(TensorExchange *exchange)
{
    const uint32_t n_nodes = exchange->place.n_nodes;
    const uint64_t round = tensor_rounds_number(exchange->rounds);
    TensorVector *const vector = make_vector(exchange);
    g_autoptr(GByteArray) bytes = tensor_vector_write(vector);
    g_autofree bool *hears = g_new(bool, n_nodes);
    guint n_sent = 0;

    for (uint32_t node = 0; node < n_nodes; node++)
        hears[node] = exchange_has_node(exchange, node);

    exchange->has_news = exchange->is_hurried = false;
    tensor_rounds_tell(exchange->rounds, vector);
    g_autoptr(GArray) ahead = ahead_make(exchange); /* only for nodes that hear */
    pthread_mutex_unlock(&exchange->lock);
    for (uint32_t node = 0; node < n_nodes; node++) {
        if (!hears[node])
            continue;
        send_vector(exchange, node, round, bytes, ahead_is_for(ahead, n_sent, node));
        n_sent = send_ahead(exchange, node, ahead, n_sent);
    }
    pthread_mutex_lock(&exchange->lock);
}

/* ---- what a round has decided ---- */

/* All workers ask again. The lock is held, but not all the time. */
static void run_again(TensorExchange *exchange, TensorSet *set, TensorSlot *slot, uint64_t number)
{
    g_autofree void **held = tensor_slots_let_go(set->slots, slot);

    set->n_rounds++;
    launch_slot(exchange, set, slot, exchange_entries_of(slot, set->n_local, held), number);
}

/* What becomes of the slots of a set that this node has told. Others end them where the task is
 * cancelled meanwhile: then they are told no more. The lock is held, but not all the time. */
static void end_set_of_round(TensorExchange *exchange, TensorSet *set, const TensorBits *own)
{
    const uint64_t round = tensor_rounds_number(exchange->rounds);
    uint32_t n_names = 0;

    for (uint32_t id = 0; id < own->n_words * 64; id++) {
        TensorSlot *const slot =
            (own->again[id / 64] >> id % 64 & 1) != 0 ? tensor_slots_at(set->slots, id) : NULL;

        if (slot == NULL || !slot->is_told)
            continue;
        slot->is_told = false;
        switch (tensor_rounds_outcome(exchange->rounds, own, id, set->members_of)) {
        case TENSOR_ROUND_RUNS:
            run_again(exchange, set, slot, tensor_round_number(round, set->id, n_names));
            n_names += slot->n;
            break;
        case TENSOR_ROUND_IN_FULL:
            ask_in_full(exchange, set, slot);
            break;
        case TENSOR_ROUND_OPEN:
            break;
        }
    }
}

/* The lock is held, but not all the time. */
static void end_round(TensorExchange *exchange)
{
    const TensorVector *const own = tensor_rounds_own(exchange->rounds);

    exchange->has_round_cut = tensor_rounds_cutovers(exchange->rounds, &exchange->round_cut);
    for (guint i = 0; i < own->sets->len; i++) {
        const TensorBits *const bits = &g_array_index(own->sets, TensorBits, i);
        TensorSet *const set = exchange_set(exchange, bits->set);

        if (set != NULL && set->serial == bits->serial)
            end_set_of_round(exchange, set, bits);
    }
    launch_bundle(exchange);
    exchange->n_told = 0;
    exchange->ahead = 0;
    tensor_rounds_end(exchange->rounds);
    launch_drop_late(exchange);
    for (guint id = 0; id < exchange->sets->len; id++)
        if (exchange->sets->pdata[id] != NULL)
            rounds_tell_joins(exchange, exchange->sets->pdata[id]);
    notices_tell(exchange);
}

const char *rounds_receive(TensorExchange *exchange, uint32_t node, const TensorMessage *message)
{
    if (exchange->is_shut)
        return NULL;
    return exchange->rounds == NULL ? "a vector of bits, which this task does not agree by"
                                    : tensor_rounds_take(exchange->rounds, node, message->number,
                                                         message->bytes, message->n_bytes);
}

static bool has_workers(const void *user, const TensorBits *bits)
{
    const TensorSet *const set = exchange_set(user, bits->set);

    return set != NULL && set->serial == bits->serial && set->n_local > 0 && set->closed == NULL;
}

/* Whether something is pending in the set that was told, or is asked in full, or a worker has
 * joined. */
static bool is_pending_in(const TensorSet *set)
{
    bool any = set->in_full->len > 0 || has_join(set);

    for (uint32_t i = 0; i < set->n_local && !any; i++)
        any = g_hash_table_size(set->asked[i]) > 0;
    for (const GList *link = tensor_slots_held(set->slots); link != NULL && !any; link = link->next)
        any = ((const TensorSlot *)link->data)->n_held == set->n_local;
    return any;
}

/* Whether something is pending here but what some worker asks again and others do not yet, or what
 * runs by a round; or a worker has left, and asks for nothing more. */
static bool is_pending(const TensorExchange *exchange)
{
    GHashTableIter iter;
    gpointer operation;
    bool any = false;

    for (uint32_t i = 0; i < exchange->n_local && !any; i++)
        any = exchange->has_left[i] || exchange->changes[i] != NULL;
    for (guint id = 0; id < exchange->sets->len && !any; id++) {
        const TensorSet *const set = exchange->sets->pdata[id];

        any = set != NULL && is_pending_in(set);
    }
    g_hash_table_iter_init(&iter, exchange->running);
    while (!any && g_hash_table_iter_next(&iter, NULL, &operation))
        any = (((const Operation *)operation)->number & TENSOR_ROUND_NUMBER) == 0;
    return any;
}

/* Whether the answer to another node's vector is put off: see the top. */
static bool puts_off(const TensorExchange *exchange)
{
    return !exchange->is_hurried &&
           tensor_rounds_may_wait(exchange->rounds, has_workers, exchange) && !is_pending(exchange);
}

/* Whether a vector is due, and may be told: verdicts that can be heard are heard first. */
static bool is_due(const TensorExchange *exchange)
{
    return !tensor_rounds_has_told(exchange->rounds) && !exchange->is_hearing &&
           exchange->unheard.length == 0 &&
           (exchange->has_news || (tensor_rounds_awaited(exchange->rounds) && !puts_off(exchange)));
}

void rounds_go_on(TensorExchange *exchange)
{
    if (exchange->rounds == NULL || exchange->is_agreeing)
        return;
    exchange->is_agreeing = true;
    while (!exchange->is_shut)
        if (tensor_rounds_is_complete(exchange->rounds))
            end_round(exchange);
        else if (is_due(exchange))
            tell_vector(exchange);
        else
            break;
    exchange->is_agreeing = false;
}
