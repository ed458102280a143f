/* The negotiation on a node whose task has workers on other nodes, too: see tensor_exchange.h.
 *
 * What workers ask is told to the coordinator, and its verdicts come to all nodes in one order.
 * What they ask again the nodes agree on among themselves (tensor_exchange_rounds.c), if they are
 * few; else the coordinator is told the id of a slot. */
#include <rubato/error.h>
#include <string.h>

#include "engine/collectives/negotiation/tensor_text.h"
#include "engine/collectives/tensor_exchange_private.h"
#include "engine/control/control.h"

/* ---- what is told ---- */

/* The coordinator is told that the worker asks again. */
static void tell_again(TensorExchange *exchange, uint32_t rank, const TensorSet *set,
                       const TensorSlot *slot)
{
    notices_begin(exchange);
    tensor_notice_write(exchange->notices, &(TensorNotice){ .kind = TENSOR_NOTICE_AGAIN,
                                                            .rank = rank,
                                                            .set = set->id,
                                                            .slot = slot->id });
}

/* What the coordinator has decided makes no sense. */
static void close_by_nonsense(TensorExchange *exchange)
{
    g_autoptr(GError) error =
        g_error_new_literal(RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                            "what the coordinator of collectives has decided makes no sense");

    negotiation_close(exchange, error);
}

/* Agrees with the other nodes, and hears what had to wait for it. The lock is held, but not all the
 * time. False: something that was heard makes no sense. */
static bool go_on(TensorExchange *exchange);

/* The same, and releases the lock. */
static void go_on_and_unlock(TensorExchange *exchange)
{
    const bool ok = go_on(exchange);

    pthread_mutex_unlock(&exchange->lock);
    if (!ok)
        close_by_nonsense(exchange);
}

static bool check_not_closed(const TensorSet *set, GError **error)
{
    if (set->closed != NULL)
        g_propagate_error(error, g_error_copy(set->closed));
    return set->closed == NULL;
}

static bool check_open(const TensorSet *set, uint32_t local, uint32_t rank, GError **error)
{
    if (!check_not_closed(set, error))
        return false;
    if (set->joins[local] == NULL)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "worker %u has joined; it can ask again once all have joined", rank);
    return false;
}

/* The entry is looked up among what was asked in full. */
static bool check_new(GHashTable *asked, uint32_t rank, const TensorEntry *entry, GError **error)
{
    const TensorEntry *const other = g_hash_table_lookup(asked, entry->name);

    if (other == NULL)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_EXISTS,
                "worker %u asks for %s %s while its %s of that name is pending", rank,
                tensor_operation_name(entry->part.request.operation), entry->name,
                tensor_operation_name(other->part.request.operation));
    return false;
}

/* Takes all of them in, or none. What is told in a round stays where it is until the round ends:
 * all workers here ask for it, and so it may not be asked for again. */
static bool take_in(TensorExchange *exchange, TensorSet *set, uint32_t local, uint32_t rank,
                    TensorEntry *entries, size_t n, GError **error)
{
    GHashTable *const asked = set->asked[local];
    size_t n_taken = 0;

    for (size_t i = 0; i < n; i++)
        if (!rounds_let_go_of(exchange, set, local, entries[i].name)) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_EXISTS,
                        "worker %u asks for %s %s while its request of that name is pending", rank,
                        tensor_operation_name(entries[i].part.request.operation), entries[i].name);
            return false;
        }
    for (; n_taken < n && check_new(asked, rank, &entries[n_taken], error); n_taken++)
        g_hash_table_insert(asked, (void *)(uintptr_t)entries[n_taken].name, &entries[n_taken]);
    for (size_t i = 0; n_taken < n && i < n_taken; i++)
        g_hash_table_remove(asked, entries[i].name);
    return n_taken == n;
}

bool negotiation_ask(TensorExchange *exchange, uint32_t rank, TensorEntry *entries, size_t n,
                     GError **error)
{
    pthread_mutex_lock(&exchange->lock);
    if (!losses_check_known(exchange, entries->set, rank, error)) {
        pthread_mutex_unlock(&exchange->lock);
        return false;
    }
    TensorSet *const set = exchange_set(exchange, entries->set);
    const uint32_t local = entries->place - set->first_local;
    const bool is_open = check_open(set, local, rank, error);
    const bool by_rounds = rounds_take(exchange, set);
    TensorSlot *slot = NULL;
    if (is_open && by_rounds)
        slot = rounds_find_again(exchange, set, local, entries, n);
    else if (is_open && exchange->rounds == NULL)
        slot = exchange_find_again(exchange, set, local, entries, n);
    const bool ok =
        is_open && (slot != NULL || take_in(exchange, set, local, rank, entries, n, error));
    if (ok)
        notices_add_cutovers(exchange);
    if (slot != NULL)
        tensor_slots_hold(set->slots, slot, local, entries);
    if (slot != NULL && by_rounds)
        rounds_note_again(exchange, set, slot);
    else if (slot != NULL)
        tell_again(exchange, rank, set, slot);
    else if (ok)
        notices_add_asks(exchange, rank, entries, n);
    if (ok)
        notices_tell(exchange);
    go_on_and_unlock(exchange);
    return ok;
}

/* The lock is held. */
static void tell_notice(TensorExchange *exchange, const TensorNotice *notice)
{
    notices_begin(exchange);
    tensor_notice_write(exchange->notices, notice);
    notices_tell(exchange);
}

bool negotiation_join(TensorExchange *exchange, uint32_t rank, TensorJoin *join, GError **error)
{
    pthread_mutex_lock(&exchange->lock);
    if (!losses_check_known(exchange, join->set, rank, error)) {
        pthread_mutex_unlock(&exchange->lock);
        return false;
    }
    TensorSet *const set = exchange_set(exchange, join->set);
    const uint32_t local = join->place - set->first_local;
    const bool ok = check_open(set, local, rank, error);
    if (ok) {
        set->joins[local] = join;
        join->rank = rank;
        join->is_told = false;
        rounds_tell_joins(exchange, set);
        notices_tell(exchange);
    }
    go_on_and_unlock(exchange);
    return ok;
}

bool negotiation_change_sets(TensorExchange *exchange, uint32_t rank, TensorSetChange *change,
                             GError **error)
{
    const TensorNotice notice = { .kind = change->n_ranks > 0 ? TENSOR_NOTICE_MAKE
                                                              : TENSOR_NOTICE_REMOVE,
                                  .rank = rank,
                                  .set = change->set,
                                  .n = change->n_ranks,
                                  .ranks = change->ranks };

    pthread_mutex_lock(&exchange->lock);
    const bool ok = losses_check_known(exchange, 0, rank, error) &&
                    check_not_closed(exchange_set(exchange, 0), error) &&
                    losses_check_living(exchange, change, error);
    if (ok) {
        exchange->changes[rank - exchange->first_rank] = change;
        tell_notice(exchange, &notice);
    }
    pthread_mutex_unlock(&exchange->lock);
    return ok;
}

void negotiation_leave(TensorExchange *exchange, uint32_t local)
{
    pthread_mutex_lock(&exchange->lock);
    exchange->has_left[local] = true;
    if (exchange->is_used && !exchange->is_cancelled)
        tell_notice(exchange, &(TensorNotice){ .kind = TENSOR_NOTICE_LEAVE,
                                               .rank = exchange->first_rank + local });
    pthread_mutex_unlock(&exchange->lock);
}

/* ---- what was decided ---- */

/* The entries of a name that are pending here, of the set's workers; they are not pending any more.
 * *n: how many. The lock is held. (transfer full) */
static TensorEntry **take_entries(TensorSet *set, const char *name, uint32_t *n)
{
    TensorEntry **const entries = g_new0(TensorEntry *, set->n_local);

    *n = 0;
    exchange_look_up(set, name);
    for (uint32_t i = 0; i < set->n_local; i++) {
        entries[i] = g_hash_table_lookup(set->asked[i], name);
        if (entries[i] == NULL)
            continue;
        g_hash_table_remove(set->asked[i], name);
        ++*n;
    }
    return entries;
}

/* What is wrong with running these; NULL if nothing is. */
static const char *find_fault(const TensorSet *set, TensorEntry *const *entries, const bool *asked)
{
    bool all = true;

    for (uint32_t place = 0; place < set->n; place++)
        all &= asked[place];
    for (uint32_t i = 0; i < set->n_local; i++) {
        if ((entries[i] != NULL) != asked[set->first_local + i])
            return "the coordinator runs it with other workers than have asked";
        if (entries[i] != NULL && !all && !tensor_request_may_join(&entries[i]->part.request))
            return "the coordinator runs it without all workers";
    }
    return NULL;
}

/* Why what the coordinator has decided does not run; NULL: it does. n: of the entries that are
 * there. (transfer full) */
static GError *find_error(TensorSet *set, const TensorVerdict *verdict, TensorEntry *const *entries,
                          uint32_t n, bool *asked)
{
    GError *error = NULL;
    const char *fault;

    if (verdict->kind == TENSOR_VERDICT_FAIL) {
        control_check(verdict->code, verdict->error, &error);
        return error;
    }
    fault = tensor_ranks_read(verdict->ranks, set->n, asked)
                ? find_fault(set, entries, asked)
                : "the coordinator names workers that there are not";
    if (fault == NULL && n > 0 && verdict->slot != TENSOR_NO_SLOT &&
        (n < set->n_local || !exchange_fill(set, verdict->slot, verdict->name, entries)))
        fault = "the coordinator fills another slot with it";
    if (fault != NULL)
        g_set_error_literal(&error, RUBATO_ERROR, RUBATO_ERROR_FORMAT, fault);
    return error;
}

/* All that is pending in the set fails. The lock is held; the entries, which are added to the list,
 * have to be ended without it. */
static void close_set(TensorExchange *exchange, TensorSet *set, const GError *why,
                      GPtrArray *entries)
{
    if (set->closed == NULL)
        set->closed = g_error_copy(why);
    exchange_take_pending(set, entries);
    exchange_end_joins(exchange, set, 0, set->closed);
    if (set->id == 0)
        exchange_refuse_change(exchange, set->closed);
}

void negotiation_close(TensorExchange *exchange, const GError *why)
{
    Operation *ending = NULL;
    GHashTableIter iter;
    gpointer running;

    pthread_mutex_lock(&exchange->lock);
    GPtrArray *const entries = g_ptr_array_new();
    exchange->is_shut = true;
    exchange->n_told = 0; /* nobody waits for the round */
    g_string_truncate(exchange->notices, 0);
    for (guint id = 0; id < exchange->sets->len; id++)
        if (exchange->sets->pdata[id] != NULL)
            close_set(exchange, exchange->sets->pdata[id], why, entries);
    g_hash_table_iter_init(&iter, exchange->running);
    g_autoptr(GPtrArray) operations = g_ptr_array_new();
    while (g_hash_table_iter_next(&iter, NULL, &running))
        g_ptr_array_add(operations, running);
    for (guint i = 0; i < operations->len; i++)
        operation_fail(exchange, operations->pdata[i], why, &ending);
    pthread_cond_broadcast(&exchange->changed); /* a node may wait to be back */
    pthread_mutex_unlock(&exchange->lock);
    operations_end(exchange, ending);
    operations_end_entries(exchange, entries, why);
}

/* A verdict on a name. The lock is held, but not while there is work. */
static void hear_of_name(TensorExchange *exchange, TensorSet *set, const TensorVerdict *verdict)
{
    g_autofree bool *asked = g_new0(bool, set->n);
    uint32_t n;
    TensorEntry **const entries = take_entries(set, verdict->name, &n);

    set->n_verdicts++;
    launch_name(exchange, set, entries, n, asked, find_error(set, verdict, entries, n, asked), 0);
}

/* The requests for all of the slot's names that are there, by name, then by worker. *all: whether
 * none is missing. (transfer full) */
static TensorEntry **find_again(TensorSet *set, TensorSlot *slot, bool *all)
{
    *all = true;
    if (slot->n_held == set->n_local) {
        g_autofree void **held = tensor_slots_let_go(set->slots, slot);

        return exchange_entries_of(slot, set->n_local, held);
    }
    TensorEntry **const entries = g_new(TensorEntry *, (size_t)slot->n * set->n_local);
    for (uint32_t i = 0; i < slot->n; i++) {
        uint32_t n;
        g_autofree TensorEntry **of_name = take_entries(set, slot->names[i], &n);

        memcpy(entries + (size_t)i * set->n_local, of_name, set->n_local * sizeof *entries);
        *all &= n == set->n_local;
    }
    return entries;
}

/* One of the names. entries: of its workers here; some may be missing. The lock is held, but not
 * all the time. */
static void begin_again(TensorExchange *exchange, TensorSet *set, TensorEntry *const *entries)
{
    GError *error = NULL;
    uint32_t n = 0;

    for (uint32_t i = 0; i < set->n_local; i++)
        n += entries[i] != NULL;
    if (n < set->n_local)
        g_set_error_literal(&error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                            "the coordinator runs it again without having been asked");
    launch_name(exchange, set, g_memdup2(entries, set->n_local * sizeof *entries), n, NULL, error,
                0);
}

/* All workers of the set have asked again. The set may close meanwhile: what has not begun by then
 * fails. The lock is held, but not all the time. */
static bool hear_of_again(TensorExchange *exchange, TensorSet *set, const TensorVerdict *verdict)
{
    TensorSlot *const slot = set == NULL ? NULL : tensor_slots_at(set->slots, verdict->slot);

    if (set == NULL || set->n_local == 0) {
        launch_bundle(exchange);
        exchange->n_verdicts += verdict->n;
        return set != NULL || exchange_set(exchange, 0)->closed != NULL;
    }
    if (slot == NULL || slot->n != verdict->n)
        return false;
    bool all;
    g_autofree TensorEntry **entries = find_again(set, slot, &all);
    set->n_verdicts++;
    if (all) {
        launch_slot(exchange, set, slot, g_steal_pointer(&entries), 0);
        return true;
    }
    for (uint32_t i = 0; i < slot->n; i++)
        begin_again(exchange, set, entries + (size_t)i * set->n_local);
    return true;
}

/* Nothing can be asked in the set any more. The lock is held, but not all the time. */
static void hear_of_end(TensorExchange *exchange, TensorSet *set, const TensorVerdict *verdict)
{
    g_autoptr(GError) error = NULL;
    GPtrArray *const entries = g_ptr_array_new();

    control_check(verdict->code, verdict->error, &error);
    close_set(exchange, set, error, entries);
    pthread_mutex_unlock(&exchange->lock);
    operations_end_entries(exchange, entries, error);
    pthread_mutex_lock(&exchange->lock);
}

/* What is pending in a set that is to be removed, and of which the coordinator does not know. The
 * lock is held, but not all the time. */
static void end_asked_again(TensorExchange *exchange, TensorSet *set)
{
    g_autoptr(GError) error = NULL;
    GPtrArray *const entries = g_ptr_array_new();

    error =
        g_error_new(RUBATO_ERROR, RUBATO_ERROR_CANCELLED, "set %u of workers was removed", set->id);
    exchange_take_pending(set, entries);
    pthread_mutex_unlock(&exchange->lock);
    operations_end_entries(exchange, entries, error);
    pthread_mutex_lock(&exchange->lock);
}

/* A change of the sets. Once set 0 has closed here its calls have ended, and nothing changes. The
 * lock is held. */
static bool hear_of_change(TensorExchange *exchange, const TensorVerdict *verdict)
{
    g_autoptr(GError) error = NULL;
    const TensorSet *const all = exchange_set(exchange, 0);

    if (all->closed != NULL)
        return true;
    if (verdict->kind == TENSOR_VERDICT_MADE)
        return exchange_make_set(exchange, verdict->set);
    if (verdict->kind == TENSOR_VERDICT_REMOVED) {
        TensorSet *const set = exchange_set(exchange, verdict->set);

        if (exchange->rounds != NULL && set != NULL)
            end_asked_again(exchange, set);
        return exchange_remove_set(exchange, verdict->set);
    }
    control_check(verdict->code, verdict->error, &error);
    exchange_refuse_change(exchange, error);
    return true;
}

/* A node was lost. Where its messages were carried with all others', nothing goes on. The lock is
 * held, but not all the time. */
static bool hear_of_loss(TensorExchange *exchange, const TensorVerdict *verdict)
{
    g_autoptr(GError) why = NULL;

    if (exchange->is_shut)
        return true;
    if (exchange->links->outlives_losses(exchange->user))
        return losses_hear(exchange, verdict);
    why = g_error_new(RUBATO_ERROR, RUBATO_ERROR_CANCELLED,
                      "%s; collectives that go by MPI end with the first loss", verdict->error);
    pthread_mutex_unlock(&exchange->lock);
    negotiation_close(exchange, why);
    pthread_mutex_lock(&exchange->lock);
    return true;
}

/* The lock is held, but not all the time. */
static bool hear(TensorExchange *exchange, const TensorVerdict *verdict)
{
    if (exchange->is_away || verdict->kind >= TENSOR_VERDICT_SET)
        return returns_hear(exchange, verdict);
    if (verdict->number != exchange->n_verdicts + 1)
        return false;
    TensorSet *const set = exchange_set(exchange, verdict->set);
    if (verdict->kind == TENSOR_VERDICT_AGAIN)
        return hear_of_again(exchange, set, verdict);
    if (set != NULL &&
        (verdict->kind == TENSOR_VERDICT_RUN || verdict->kind == TENSOR_VERDICT_FAIL)) {
        hear_of_name(exchange, set, verdict);
        return true;
    }
    launch_bundle(exchange);
    exchange->n_verdicts++;
    if (verdict->kind == TENSOR_VERDICT_CUT) {
        exchange->n_cuts++;
        exchange->cutovers = verdict->cutovers;
        return true;
    }
    if (verdict->kind == TENSOR_VERDICT_LOST || verdict->kind == TENSOR_VERDICT_REPLACED)
        return hear_of_loss(exchange, verdict);
    if (verdict->kind >= TENSOR_VERDICT_MADE)
        return hear_of_change(exchange, verdict);
    if (set == NULL) /* one that was made after set 0 had closed here */
        return exchange_set(exchange, 0)->closed != NULL;
    if (verdict->kind == TENSOR_VERDICT_JOINED)
        exchange_end_joins(exchange, set, verdict->last, NULL);
    else
        hear_of_end(exchange, set, verdict);
    return true;
}

/* Hears a message. Bundles end with it, as on all nodes. The lock is held, but not all the time. */
static bool hear_message(TensorExchange *exchange, const char *verdicts)
{
    bool ok = true;

    while (ok && *verdicts != '\0') {
        g_auto(TensorVerdict) verdict = { 0 };

        ok = tensor_verdict_read(&verdicts, &verdict) && hear(exchange, &verdict);
    }
    launch_bundle(exchange);
    return ok;
}

/* Hears what has come, unless another thread does, or slots are told in a round: see
 * tensor_exchange_rounds.c. Who ends the round goes on here. The lock is held, but not all the
 * time. *any: whether something was heard. */
static bool hear_all(TensorExchange *exchange, bool *any)
{
    bool ok = true;

    if (exchange->is_hearing)
        return true;
    exchange->is_hearing = true;
    while (ok && exchange->unheard.length > 0 && exchange->n_told == 0) {
        g_autofree char *verdicts = g_queue_pop_head(&exchange->unheard);

        ok = hear_message(exchange, verdicts);
        *any = true;
    }
    exchange->is_hearing = false;
    return ok;
}

static bool go_on(TensorExchange *exchange)
{
    bool ok, any;

    do {
        any = false;
        rounds_go_on(exchange);
        ok = hear_all(exchange, &any);
    } while (ok && any);
    return ok;
}

/* What comes behind nonsense cannot be understood either: nobody may wait for it. */
bool tensor_exchange_hear(TensorExchange *exchange, const char *verdicts)
{
    pthread_mutex_lock(&exchange->lock);
    losses_look_ahead(exchange, verdicts);
    g_queue_push_tail(&exchange->unheard, g_strdup(verdicts));
    const bool ok = go_on(exchange);
    pthread_mutex_unlock(&exchange->lock);
    if (!ok)
        close_by_nonsense(exchange);
    return ok;
}

void tensor_exchange_tick(TensorExchange *exchange)
{
    pthread_mutex_lock(&exchange->lock);
    if (exchange->rounds == NULL || exchange->is_shut || !tensor_rounds_awaited(exchange->rounds)) {
        pthread_mutex_unlock(&exchange->lock);
        return;
    }
    exchange->is_hurried = true;
    go_on_and_unlock(exchange);
}

void negotiation_ask_alone(TensorExchange *exchange)
{
    if (exchange->rounds == NULL || exchange->is_shut)
        return;
    rounds_ask_in_full(exchange);
    notices_tell(exchange);
    go_on_and_unlock(exchange);
    pthread_mutex_lock(&exchange->lock);
}

/* ---- what comes from other nodes ---- */

/* The vector of another node in a round. Releases the lock. */
static const char *receive_bits(TensorExchange *exchange, uint32_t node,
                                const TensorMessage *message, void *owner)
{
    const char *const wrong = rounds_receive(exchange, node, message);

    if (wrong == NULL)
        exchange->links->carrier.drop(exchange->user, owner);
    go_on_and_unlock(exchange);
    return wrong;
}

const char *tensor_exchange_receive(TensorExchange *exchange, uint32_t node,
                                    const TensorMessage *message, void *owner)
{
    TensorMessage came = *message;
    const char *wrong = NULL;

    pthread_mutex_lock(&exchange->lock);
    if (message->kind == TENSOR_MESSAGE_BITS)
        return receive_bits(exchange, node, message, owner);
    Operation *const operation = g_hash_table_lookup(exchange->running, &message->number);
    /* what was sent before its node was lost, or was read for an operation that has ended */
    if (exchange->is_lost[node] || (operation != NULL && !arrivals_take(operation, node, &came)) ||
        (operation == NULL && message->is_direct)) {
        exchange->links->carrier.drop(exchange->user, owner);
    } else if (operation != NULL) {
        wrong = tensor_flow_take(operation->flow, node, &came, owner);
        if (wrong != NULL)
            launch_fail_by_nonsense(exchange, operation, node, wrong);
        operation_work_at_once(exchange, operation);
    } else if (launch_is_early(exchange, message->number) && !exchange->is_cancelled) {
        launch_keep_early(exchange, node, message, owner);
    } else { /* of an operation that has failed here */
        exchange->links->carrier.drop(exchange->user, owner);
    }
    pthread_mutex_unlock(&exchange->lock);
    return wrong;
}

void tensor_exchange_unlink(TensorExchange *exchange)
{
    pthread_mutex_lock(&exchange->lock);
    launch_drop_all(exchange);
    pthread_mutex_unlock(&exchange->lock);
}

void negotiation_clear(TensorExchange *exchange)
{
    tensor_exchange_unlink(exchange);
    g_free(exchange->has_left);
    g_string_free(exchange->notices, TRUE);
    g_queue_clear_full(&exchange->unheard, g_free);
    g_free(exchange->is_lost);
    g_free(exchange->known);
    g_ptr_array_unref(exchange->losses);
    g_hash_table_unref(exchange->running);
    g_hash_table_unref(exchange->early);
    tensor_rounds_free(exchange->rounds);
}
