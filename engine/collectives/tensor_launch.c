/* What was decided begins, on a node whose task has workers on other nodes, too: see
 * tensor_exchange_private.h.
 *
 * An operation that other nodes have begun may send before this node knows of it: such messages are
 * kept, and take room in their sender's window until the decision is here. It does not need this
 * room. */
#include <rubato/error.h>
#include <string.h>

#include "engine/collectives/negotiation/tensor_rounds.h"
#include "engine/collectives/tensor_exchange_private.h"

typedef struct {
    uint32_t node;
    TensorMessage message;
    void *owner;
} EarlyMessage;

/* Those of one operation, as they came. */
typedef struct {
    uint64_t number;
    GArray *messages; /* of EarlyMessage */
} EarlyMessages;

/* What was not taken out is dropped before. */
static void free_early(void *data)
{
    EarlyMessages *const early = data;

    g_array_unref(early->messages);
    g_free(early);
}

GHashTable *launch_new_early(void)
{
    return g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, free_early);
}

static void drop(TensorExchange *exchange, const EarlyMessages *early)
{
    for (guint i = 0; i < early->messages->len; i++)
        exchange->links->carrier.drop(exchange->user,
                                      g_array_index(early->messages, EarlyMessage, i).owner);
}

/* Messages for the operation that came before its verdict; without an operation they are
 * dropped. There may be as many of them as there are operations, so they are found by number. */
static const char *take_early(TensorExchange *exchange, uint64_t number, Operation *operation,
                              uint32_t *node)
{
    const EarlyMessages *const early = g_hash_table_lookup(exchange->early, &number);
    const char *wrong = NULL;

    if (early == NULL)
        return NULL;
    if (operation == NULL)
        drop(exchange, early);
    for (guint i = 0; operation != NULL && i < early->messages->len; i++) {
        const EarlyMessage *const one = &g_array_index(early->messages, EarlyMessage, i);
        const char *const fault =
            tensor_flow_take(operation->flow, one->node, &one->message, one->owner);

        if (fault == NULL)
            continue;
        exchange->links->carrier.drop(exchange->user, one->owner);
        wrong = fault;
        *node = one->node;
    }
    g_hash_table_remove(exchange->early, &number);
    return wrong;
}

/* A node has sent what makes no sense: the operation fails here and on all nodes. */
void launch_fail_by_nonsense(TensorExchange *exchange, Operation *operation, uint32_t node,
                             const char *what)
{
    tensor_flow_fail_here(operation->flow,
                          g_error_new(RUBATO_ERROR, RUBATO_ERROR_FORMAT, "node %u sent %s",
                                      exchange->place.node_ids[node], what));
}

/* What was decided begins. entries NULL: it has none here. The lock is held, but not while there is
 * work. */
static void launch(TensorExchange *exchange, const Decided *decided)
{
    Operation *ending = NULL;
    Operation *const operation =
        decided->entries == NULL ? NULL : operation_begin(exchange, decided, &ending);
    uint32_t node = 0;

    if (operation != NULL)
        operation_enlist(exchange, operation);
    const char *const wrong = take_early(exchange, decided->number, operation, &node);
    if (wrong != NULL)
        launch_fail_by_nonsense(exchange, operation, node, wrong);
    for (uint32_t i = 1; i < decided->n_names; i++) /* nobody sends for these */
        take_early(exchange, decided->number + i, NULL, &node);
    if (operation != NULL)
        operation_work_at_once(exchange, operation);
    if (ending == NULL)
        return;
    pthread_mutex_unlock(&exchange->lock);
    operations_end(exchange, ending);
    pthread_mutex_lock(&exchange->lock);
}

/* The lock is held, but not while there is work. */
void launch_bundle(TensorExchange *exchange)
{
    Decided decided;

    if (fusion_take(exchange, &decided))
        launch(exchange, &decided);
}

/* What a name cannot travel with begins before the name counts: other nodes may send for what
 * counts, and must find it. The set may close meanwhile; then the name fails, because nobody else
 * ends it. */
void launch_name(TensorExchange *exchange, TensorSet *set, TensorEntry **entries, uint32_t n,
                 const bool *asked, GError *error, uint64_t number)
{
    bool suits = error == NULL && n > 0 && n == set->n_local;

    for (uint32_t place = 0; suits && asked != NULL && place < set->n; place++)
        suits = asked[place];
    suits = suits && fusion_suits(exchange, entries[0]);
    if (exchange->bundle.n_names > 0 && !(suits && fusion_fits(exchange, set, entries[0])))
        launch_bundle(exchange);
    if (number == 0)
        number = ++exchange->n_verdicts;
    if (suits && set->closed == NULL) {
        fusion_add(exchange, set, number, entries);
        return;
    }
    if (n == 0) { /* the set has no workers on this node, or all of them have joined */
        g_clear_error(&error);
        g_clear_pointer(&entries, g_free);
    } else if (error == NULL && set->closed != NULL) {
        error = g_error_copy(set->closed);
    }
    launch(exchange, &(Decided){ .set = set,
                                 .number = number,
                                 .entries = entries,
                                 .n_names = 1,
                                 .asked = asked,
                                 .error = error });
}

/* All of the slot's names, which travel together. As above. */
static void launch_together(TensorExchange *exchange, TensorSet *set, const TensorSlot *slot,
                            TensorEntry **entries, uint64_t number)
{
    if (exchange->bundle.n_names > 0 && !fusion_fits_slot(exchange, set, slot))
        launch_bundle(exchange);
    if (number == 0) {
        number = exchange->n_verdicts + 1;
        exchange->n_verdicts += slot->n;
    }
    if (set->closed == NULL)
        fusion_add_slot(exchange, set, number, slot, entries);
    else
        launch(exchange, &(Decided){ .set = set,
                                     .number = number,
                                     .entries = entries,
                                     .n_names = slot->n,
                                     .error = g_error_copy(set->closed) });
}

void launch_slot(TensorExchange *exchange, TensorSet *set, TensorSlot *slot, TensorEntry **entries,
                 uint64_t number)
{
    if (fusion_suits_slot(exchange, set, slot)) {
        launch_together(exchange, set, slot, entries, number);
        return;
    }
    for (uint32_t i = 0; i < slot->n; i++)
        launch_name(exchange, set,
                    g_memdup2(entries + (size_t)i * set->n_local, set->n_local * sizeof *entries),
                    set->n_local, NULL, NULL, number == 0 ? 0 : number + i);
    g_free(entries);
}

/* ---- what came before ---- */

bool launch_is_early(const TensorExchange *exchange, uint64_t number)
{
    if ((number & TENSOR_ROUND_NUMBER) == 0)
        return number > exchange->n_verdicts;
    return exchange->rounds != NULL &&
           tensor_round_of(number) >= tensor_rounds_number(exchange->rounds);
}

void launch_keep_early(TensorExchange *exchange, uint32_t node, const TensorMessage *message,
                       void *owner)
{
    const EarlyMessage one = { node, *message, owner };
    EarlyMessages *early = g_hash_table_lookup(exchange->early, &message->number);

    if (early == NULL) {
        early = g_new(EarlyMessages, 1);
        *early =
            (EarlyMessages){ message->number, g_array_new(FALSE, FALSE, sizeof(EarlyMessage)) };
        g_hash_table_insert(exchange->early, &early->number, early);
    }
    g_array_append_val(early->messages, one);
}

static gboolean drop_late(void *number, void *data, void *user)
{
    TensorExchange *const exchange = user;

    if (launch_is_early(exchange, *(const uint64_t *)number))
        return FALSE;
    drop(exchange, data);
    return TRUE;
}

void launch_drop_late(TensorExchange *exchange)
{
    g_hash_table_foreach_remove(exchange->early, drop_late, exchange);
}

void launch_drop_of_node(TensorExchange *exchange, uint32_t node)
{
    GHashTableIter iter;
    gpointer data;

    g_hash_table_iter_init(&iter, exchange->early);
    while (g_hash_table_iter_next(&iter, NULL, &data)) {
        GArray *const messages = ((EarlyMessages *)data)->messages;

        for (guint i = messages->len; i-- > 0;) {
            const EarlyMessage *const one = &g_array_index(messages, EarlyMessage, i);

            if (one->node != node)
                continue;
            exchange->links->carrier.drop(exchange->user, one->owner);
            g_array_remove_index(messages, i);
        }
    }
}

static gboolean drop_any(void *number, void *data, void *user)
{
    (void)number;
    drop(user, data);
    return TRUE;
}

void launch_drop_all(TensorExchange *exchange)
{
    g_hash_table_foreach_remove(exchange->early, drop_any, exchange);
}
