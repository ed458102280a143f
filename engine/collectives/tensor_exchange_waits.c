/* What a worker that waits has asked for, as the scheduler is told: see tensor_asked.h.
 *
 * All of it is looked up in one hold of the lock: what is pending in a set, and how much was
 * decided in it. Whoever takes something out of what is pending, because it was decided, counts
 * that before it releases the lock. */
#include "engine/collectives/negotiation/tensor_asked.h"
#include "engine/collectives/tensor_exchange_private.h"
#include "engine/control/control.h"

/* What a worker has asked for. */
typedef struct {
    const TensorExchange *exchange;
    const Call *call; /* for which it waits; NULL: for none of the exchange */
    GString *text;
    bool waits; /* something that is not decided belongs to the call */
} Telling;

static void tell(Telling *telling, TensorAskedKind kind, const char *name, const Call *call)
{
    const bool waits = call == telling->call;

    tensor_asked_add(telling->text, kind, name, waits);
    telling->waits |= waits;
}

/* On one node. What was asked again has been asked in full. */
static void tell_pending(Telling *telling, const TensorSet *set, uint32_t rank)
{
    GHashTableIter iter;
    gpointer entry;

    g_hash_table_iter_init(&iter, telling->exchange->pending);
    while (g_hash_table_iter_next(&iter, &entry, NULL)) {
        const TensorEntry *const one = entry;

        if (one->rank == rank && one->set == set->id)
            tell(telling, TENSOR_ASKED_NAME, one->name, one->call);
    }
}

/* On several nodes. local: the worker's place among those of the set here. */
static void tell_asked(Telling *telling, const TensorSet *set, uint32_t local)
{
    GHashTableIter iter;
    gpointer entry;

    g_hash_table_iter_init(&iter, set->asked[local]);
    while (g_hash_table_iter_next(&iter, NULL, &entry))
        tell(telling, TENSOR_ASKED_NAME, ((const TensorEntry *)entry)->name,
             ((const TensorEntry *)entry)->call);
    for (GList *link = tensor_slots_held(set->slots); link != NULL; link = link->next) {
        const TensorSlot *const slot = link->data;

        for (uint32_t i = 0; slot->held[local] != NULL && i < slot->n; i++) {
            const TensorEntry *const one = exchange_entry_of(slot, i, local, slot->held[local]);

            tell(telling, TENSOR_ASKED_NAME, one->name, one->call);
        }
    }
}

static void tell_set(Telling *telling, const TensorSet *set, uint32_t rank)
{
    const TensorExchange *const exchange = telling->exchange;
    const TensorSetChange *const change =
        set->id == 0 ? exchange->changes[rank - exchange->first_rank] : NULL;
    TensorMember member;

    if (!exchange_find_member(exchange, set->id, rank, &member, NULL))
        return;
    const uint32_t local = member.place - set->first_local;
    const TensorJoin *const join = set->joins[local];

    tensor_asked_add_set(telling->text, &(TensorAskedSet){ .made = set->made,
                                                           .generation = set->generation,
                                                           .id = set->id,
                                                           .n = set->n,
                                                           .n_verdicts = set->n_verdicts,
                                                           .n_rounds = set->n_rounds });
    if (exchange->matchers != NULL)
        tell_pending(telling, set, rank);
    else
        tell_asked(telling, set, local);
    if (join != NULL)
        tell(telling, TENSOR_ASKED_JOIN, NULL, &join->call);
    if (change != NULL)
        tell(telling, TENSOR_ASKED_CHANGE, NULL, &change->call);
}

/* NULL: it does not wait for the call, or it has asked for more than can be told; nobody judges it
 * then. (transfer full) */
static char *write_asked(TensorExchange *exchange, uint32_t rank, const Call *call)
{
    Telling telling = { .exchange = exchange, .call = call, .text = g_string_new(NULL) };

    if (exchange->matchers != NULL)
        tensor_sets_ask_in_full(exchange->matchers);
    for (guint id = 0; id < exchange->sets->len; id++)
        if (exchange->sets->pdata[id] != NULL)
            tell_set(&telling, exchange->sets->pdata[id], rank);
    tensor_asked_end(telling.text);
    const bool is_told = telling.text->len < CONTROL_MAX_FILE && (call == NULL || telling.waits);
    return g_string_free(telling.text, !is_told);
}

char *tensor_exchange_asked(TensorExchange *exchange, uint32_t rank)
{
    pthread_mutex_lock(&exchange->lock);
    char *const text = write_asked(exchange, rank, NULL);
    pthread_mutex_unlock(&exchange->lock);
    return text;
}

void waits_report(TensorExchange *exchange, uint32_t rank, const Call *call, char **told)
{
    g_autofree char *text = NULL;

    if (exchange->place.report_wait == NULL)
        return;
    text = write_asked(exchange, rank, call);
    if (text == NULL || g_strcmp0(text, *told) == 0)
        return;
    g_free(*told);
    *told = g_steal_pointer(&text);
    pthread_mutex_unlock(&exchange->lock);
    exchange->place.report_wait(exchange->place.run, rank, *told);
    pthread_mutex_lock(&exchange->lock);
}
