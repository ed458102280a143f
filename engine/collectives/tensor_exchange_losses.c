/* Workers of other nodes that are lost while the task goes on. See tensor_exchange_private.h.
 *
 * DESIGN NOTE
 *
 * A loss is a verdict like others (tensor_sets.h): all nodes hear it at the same place among what
 * the coordinator decides. So they agree on which sets it changes, and on what is left of these.
 * What is decided behind it belongs to the next generation: those that live.
 *
 * What was pending before has to end everywhere, but an operation that was decided before may have
 * ended already on some nodes, with its values, and lack values of the lost node on others, where
 * it fails. Nobody could know this in time but by another message for each operation. Barriers,
 * joins and changes of the sets have no values: they are decided by verdicts alone, and so end on
 * all nodes alike. Of all else workers are not told whether it has succeeded on all of them; they
 * are told of the loss, each of them, before it can ask for anything of the next generation. A
 * worker learns of it by a call that fails by it, which was pending, or else is its next one in a
 * set that the loss has changed. So none of them can wait for others that do not come because they
 * know of the loss, and ask for something else.
 *
 * Rounds of bit vectors (tensor_rounds.h) are another stream, in which nodes may be further than
 * others, and verdicts wait while slots are told in a round. A round in which the lost node has no
 * vector would never end. So a node looks for a loss in what comes, before it can be heard. It then
 * ends the round without that vector, and nothing of the sets of the lost workers runs in it. What
 * a node has begun there by an earlier round, of which others know nothing, fails with the rest,
 * once the loss is heard.
 *
 * A set that has changed has another serial number, and none of the slots that it had. So vectors,
 * which may still be told of the old one, are not taken for it, and no number of an operation of
 * the old one can be that of one of the new. Messages of the lost node are dropped; those of others
 * for operations that have failed here are late by their numbers.
 *
 * If others take the place of the lost workers, nobody agrees in rounds, and all of the above
 * holds; but the sets keep their workers, and wait for the others. What the lost process had sent
 * is late by its number, and what the new one sends is of operations that come behind.
 *
 * Threads: as each function says. */
#include <rubato/error.h>
#include <string.h>

#include "engine/collectives/negotiation/tensor_ranks.h"
#include "engine/collectives/tensor_exchange_private.h"
#include "engine/control/control.h"

/* ---- what workers know ---- */

/* The lost nodes that the worker does not know of. */
static GError *tell_losses(const TensorExchange *exchange, uint32_t n_known)
{
    GString *const text = g_string_new(exchange->losses->pdata[n_known]);
    GError *error;

    for (guint i = n_known + 1; i < exchange->losses->len; i++)
        if (strcmp(exchange->losses->pdata[i - 1], exchange->losses->pdata[i]) != 0)
            g_string_append_printf(text, "; %s", (const char *)exchange->losses->pdata[i]);
    error = g_error_new_literal(RUBATO_ERROR, RUBATO_ERROR_NODE_LOST, text->str);
    g_string_free(text, TRUE);
    return error;
}

bool losses_check_known(TensorExchange *exchange, uint32_t id, uint32_t rank, GError **error)
{
    const TensorSet *const set = exchange_set(exchange, id);
    uint32_t *const known = &exchange->known[rank - exchange->first_rank];

    /* a set that there is not may have ended by the loss */
    if (*known == exchange->losses->len || (set != NULL && set->generation <= *known))
        return true;
    g_propagate_error(error, tell_losses(exchange, *known));
    *known = exchange->losses->len;
    return false;
}

bool tensor_exchange_enter_set(TensorExchange *exchange, uint32_t id, uint32_t rank,
                               TensorMember *member, GError **error)
{
    exchange_lock_sets(exchange);
    const bool ok = (exchange->links == NULL || losses_check_known(exchange, id, rank, error)) &&
                    exchange_find_member(exchange, id, rank, member, error);
    exchange_unlock_sets(exchange);
    return ok;
}

/* An error that tells a loss has its text, which names the node and its workers. */
void tensor_exchange_note_told(TensorExchange *exchange, uint32_t rank, const GError *failure)
{
    if (exchange->links == NULL || !g_error_matches(failure, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST))
        return;
    pthread_mutex_lock(&exchange->lock);
    uint32_t *const known = &exchange->known[rank - exchange->first_rank];
    for (guint n = exchange->losses->len; n > *known; n--)
        if (strstr(failure->message, exchange->losses->pdata[n - 1]) != NULL)
            *known = n;
    pthread_mutex_unlock(&exchange->lock);
}

bool losses_check_living(const TensorExchange *exchange, const TensorSetChange *change,
                         GError **error)
{
    const TensorSet *const all = exchange_set(exchange, 0);
    uint32_t place;

    for (uint32_t i = 0; i < change->n_ranks; i++)
        if (!tensor_ranks_find(all->ranks, all->n, change->ranks[i], &place)) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                        "this is no set of workers: worker %u was lost", change->ranks[i]);
            return false;
        }
    if (change->n_ranks > 0 || exchange_set(exchange, change->set) != NULL)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "set %u of workers has ended, because all of them were lost", change->set);
    return false;
}

/* ---- a loss ---- */

void losses_look_ahead(TensorExchange *exchange, const char *verdicts)
{
    uint32_t node;

    if (exchange->rounds != NULL && tensor_verdict_tells_loss(verdicts, &node) &&
        exchange_has_node(exchange, node))
        tensor_rounds_lose(exchange->rounds, node);
}

/* Operations in which the node takes part. */
static void fail_operations(TensorExchange *exchange, uint32_t node, const GError *why,
                            Operation **ending)
{
    g_autoptr(GPtrArray) operations = g_ptr_array_new();
    GHashTableIter iter;
    gpointer running;

    g_hash_table_iter_init(&iter, exchange->running);
    while (g_hash_table_iter_next(&iter, NULL, &running))
        if (tensor_flow_has_node(((const Operation *)running)->flow, node))
            g_ptr_array_add(operations, running);
    for (guint i = 0; i < operations->len; i++)
        operation_fail(exchange, operations->pdata[i], why, ending);
}

/* What is pending in the sets that had workers there, and these sets. They keep those workers if
 * others take their place. */
static void leave_out(TensorExchange *exchange, uint32_t node, bool is_replaced, const GError *why,
                      GPtrArray *entries)
{
    exchange_refuse_change(exchange, why);
    for (guint id = 0; id < exchange->sets->len; id++) {
        TensorSet *const set = exchange->sets->pdata[id];

        if (set == NULL || set->members_of[node] == 0)
            continue;
        exchange_take_pending(set, entries);
        exchange_end_joins(exchange, set, 0, why);
        if (is_replaced)
            exchange_begin_set_anew(exchange, set);
        else
            exchange_shrink_set(exchange, set, node);
    }
}

bool losses_hear(TensorExchange *exchange, const TensorVerdict *verdict)
{
    g_autoptr(GError) why = NULL;
    const bool is_replaced = verdict->kind == TENSOR_VERDICT_REPLACED;
    Operation *ending = NULL;

    if (!exchange_has_node(exchange, verdict->node) || verdict->n != exchange->losses->len + 1)
        return false;
    control_check(verdict->code, verdict->error, &why);
    GPtrArray *const entries = g_ptr_array_new();
    exchange->is_lost[verdict->node] = !is_replaced;
    g_ptr_array_add(exchange->losses, g_strdup(why->message));
    fail_operations(exchange, verdict->node, why, &ending);
    leave_out(exchange, verdict->node, is_replaced, why, entries);
    launch_drop_of_node(exchange, verdict->node);
    pthread_mutex_unlock(&exchange->lock);
    operations_end(exchange, ending);
    operations_end_entries(exchange, entries, why);
    pthread_mutex_lock(&exchange->lock);
    return true;
}
