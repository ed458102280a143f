/* The negotiation on a node whose task has workers on other nodes, too: see tensor_exchange.h.
 *
 * What workers ask is told to the coordinator in the order in which it was asked. One thread tells
 * at a time, and takes along what others have asked meanwhile. Verdicts come to all nodes in the
 * same order. An operation that other nodes have begun may send before this node knows of it: such
 * messages are kept, and take room in their sender's window until the verdict is here. It does not
 * need this room. */
#include <rubato/error.h>
#include <string.h>

#include "engine/collectives/negotiation/tensor_text.h"
#include "engine/collectives/tensor_exchange_private.h"
#include "engine/control/control.h"

/* Bytes of wishes that are told at once: less than a control message may have. */
enum { TOLD_BYTES = 512 << 10 };

typedef struct {
    uint32_t node;
    TensorMessage message;
    void *owner;
} EarlyMessage;

/* ---- what is told ---- */

/* Whole lines, up to TOLD_BYTES. The lock is held. (transfer full) */
static char *take_wishes(TensorExchange *exchange)
{
    GString *const wishes = exchange->wishes;
    size_t n = wishes->len;

    if (n > TOLD_BYTES)
        for (n = TOLD_BYTES; wishes->str[n - 1] != '\n';)
            n--;
    char *const taken = g_strndup(wishes->str, n);
    g_string_erase(wishes, 0, (gssize)n);
    return taken;
}

/* Tells what there is, unless another thread does. The lock is held, but not meanwhile. */
static void tell(TensorExchange *exchange)
{
    if (exchange->is_telling)
        return;
    exchange->is_telling = true;
    while (exchange->wishes->len > 0) {
        g_autofree char *wishes = take_wishes(exchange);

        pthread_mutex_unlock(&exchange->lock);
        exchange->links->tell(exchange->user, wishes);
        pthread_mutex_lock(&exchange->lock);
    }
    exchange->is_telling = false;
}

/* The coordinator learns with the first wish of those that left before. */
static void begin_wishes(TensorExchange *exchange)
{
    for (uint32_t i = 0; i < exchange->n_local && !exchange->is_used; i++)
        if (exchange->has_left[i])
            tensor_wish_write(exchange->wishes, &(TensorWish){ .kind = TENSOR_WISH_LEAVE,
                                                               .rank = exchange->first_rank + i });
    exchange->is_used = true;
}

/* The node of rank 0 has found other cut-overs. */
static void add_cutovers(TensorExchange *exchange)
{
    if (!exchange->wants_cutovers)
        return;
    exchange->wants_cutovers = false;
    begin_wishes(exchange);
    tensor_wish_write(exchange->wishes,
                      &(TensorWish){ .kind = TENSOR_WISH_CUT, .n = exchange->wanted_cutovers });
}

/* The lock is held. */
static void add_asks(TensorExchange *exchange, uint32_t rank, const TensorEntry *entries, size_t n)
{
    TensorWish wish = { .kind = TENSOR_WISH_GROUP, .rank = rank, .n = (uint32_t)n };

    begin_wishes(exchange);
    if (n > 1)
        tensor_wish_write(exchange->wishes, &wish);
    wish.kind = TENSOR_WISH_ASK;
    wish.set = entries->set;
    for (size_t i = 0; i < n; i++) {
        wish.request = entries[i].part.request;
        g_strlcpy(wish.name, entries[i].name, sizeof wish.name);
        tensor_wish_write(exchange->wishes, &wish);
    }
}

static void ask_again(TensorExchange *exchange, uint32_t rank, TensorSet *set, TensorSlot *slot,
                      TensorEntry *entries)
{
    const TensorWish wish = {
        .kind = TENSOR_WISH_AGAIN, .rank = rank, .set = set->id, .slot = slot->id
    };

    tensor_slots_hold(set->slots, slot, entries->place - set->first_local, entries);
    tensor_wish_write(exchange->wishes, &wish);
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

/* Takes all of them in, or none. */
static bool take_in(TensorSet *set, uint32_t local, uint32_t rank, TensorEntry *entries, size_t n,
                    GError **error)
{
    GHashTable *const asked = set->asked[local];
    size_t n_taken = 0;

    for (size_t i = 0; i < n; i++)
        exchange_ask_in_full(set, entries[i].name);
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
    TensorSet *const set = exchange_set(exchange, entries->set);
    const uint32_t local = entries->place - set->first_local;
    const bool is_open = check_open(set, local, rank, error);
    TensorSlot *const slot = is_open ? exchange_find_again(exchange, set, local, entries, n) : NULL;
    const bool ok = is_open && (slot != NULL || take_in(set, local, rank, entries, n, error));
    if (ok)
        add_cutovers(exchange);
    if (slot != NULL)
        ask_again(exchange, rank, set, slot, entries);
    else if (ok)
        add_asks(exchange, rank, entries, n);
    if (ok)
        tell(exchange);
    pthread_mutex_unlock(&exchange->lock);
    return ok;
}

/* The lock is held. */
static void tell_wish(TensorExchange *exchange, const TensorWish *wish)
{
    begin_wishes(exchange);
    tensor_wish_write(exchange->wishes, wish);
    tell(exchange);
}

bool negotiation_join(TensorExchange *exchange, uint32_t rank, TensorJoin *join, GError **error)
{
    pthread_mutex_lock(&exchange->lock);
    TensorSet *const set = exchange_set(exchange, join->set);
    const uint32_t local = join->place - set->first_local;
    const bool ok = check_open(set, local, rank, error);
    if (ok) {
        set->joins[local] = join;
        tell_wish(exchange,
                  &(TensorWish){ .kind = TENSOR_WISH_JOIN, .rank = rank, .set = join->set });
    }
    pthread_mutex_unlock(&exchange->lock);
    return ok;
}

bool negotiation_change_sets(TensorExchange *exchange, uint32_t rank, TensorSetChange *change,
                             GError **error)
{
    const TensorWish wish = { .kind = change->n_ranks > 0 ? TENSOR_WISH_MAKE : TENSOR_WISH_REMOVE,
                              .rank = rank,
                              .set = change->set,
                              .n = change->n_ranks,
                              .ranks = change->ranks };

    pthread_mutex_lock(&exchange->lock);
    const bool ok = check_not_closed(exchange_set(exchange, 0), error);
    if (ok) {
        exchange->changes[rank - exchange->first_rank] = change;
        tell_wish(exchange, &wish);
    }
    pthread_mutex_unlock(&exchange->lock);
    return ok;
}

void negotiation_leave(TensorExchange *exchange, uint32_t local)
{
    pthread_mutex_lock(&exchange->lock);
    exchange->has_left[local] = true;
    if (exchange->is_used && !exchange->is_cancelled)
        tell_wish(exchange,
                  &(TensorWish){ .kind = TENSOR_WISH_LEAVE, .rank = exchange->first_rank + local });
    pthread_mutex_unlock(&exchange->lock);
}

/* ---- what was decided ---- */

/* The entries of a name that are pending here, of the set's workers; they are not pending any more.
 * *n: how many. The lock is held. (transfer full) */
static TensorEntry **take_entries(TensorSet *set, const char *name, uint32_t *n)
{
    TensorEntry **const entries = g_new0(TensorEntry *, set->n_local);

    *n = 0;
    exchange_ask_in_full(set, name);
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

/* Messages for the operation that came before its verdict; without an operation they are
 * dropped. */
static const char *take_early(TensorExchange *exchange, uint64_t number, Operation *operation,
                              uint32_t *node)
{
    const char *wrong = NULL;

    for (GList *link = exchange->early.head, *next; link != NULL; link = next) {
        EarlyMessage *const early = link->data;
        const char *fault = NULL;

        next = link->next;
        if (early->message.number != number)
            continue;
        g_queue_delete_link(&exchange->early, link);
        if (operation != NULL)
            fault = tensor_flow_take(operation->flow, early->node, &early->message, early->owner);
        if (operation == NULL || fault != NULL)
            exchange->links->carrier.drop(exchange->user, early->owner);
        if (fault != NULL) {
            wrong = fault;
            *node = early->node;
        }
        g_free(early);
    }
    return wrong;
}

/* A node has sent what makes no sense: the operation fails here and on all nodes. */
static void fail_by_nonsense(TensorExchange *exchange, Operation *operation, uint32_t node,
                             const char *what)
{
    tensor_flow_fail_here(operation->flow,
                          g_error_new(RUBATO_ERROR, RUBATO_ERROR_FORMAT, "node %u sent %s",
                                      exchange->place.node_ids[node], what));
}

/* All that is pending in the set fails. The lock is held; the entries, which are added to the list,
 * have to be ended without it. */
static void close_set(TensorExchange *exchange, TensorSet *set, const GError *why,
                      GPtrArray *entries)
{
    if (set->closed == NULL)
        set->closed = g_error_copy(why);
    exchange_ask_all_in_full(exchange);
    for (uint32_t i = 0; i < set->n_local; i++) {
        GHashTableIter iter;
        gpointer entry;

        g_hash_table_iter_init(&iter, set->asked[i]);
        while (g_hash_table_iter_next(&iter, NULL, &entry)) {
            g_ptr_array_add(entries, entry);
            g_hash_table_iter_remove(&iter);
        }
    }
    exchange_end_joins(exchange, set, 0, set->closed);
    if (set->id == 0)
        exchange_refuse_change(exchange, set->closed);
}

/* The lock is not held. Frees the list. */
static void end_entries(TensorExchange *exchange, GPtrArray *entries, const GError *error)
{
    for (guint i = 0; i < entries->len; i++)
        tensor_entry_end(entries->pdata[i], error);
    if (entries->len > 0) {
        pthread_mutex_lock(&exchange->lock);
        operations_wake(exchange);
        pthread_mutex_unlock(&exchange->lock);
    }
    g_ptr_array_unref(entries);
}

void negotiation_close(TensorExchange *exchange, const GError *why)
{
    Operation *ending = NULL;
    GHashTableIter iter;
    gpointer running;

    pthread_mutex_lock(&exchange->lock);
    GPtrArray *const entries = g_ptr_array_new();
    g_string_truncate(exchange->wishes, 0);
    for (guint id = 0; id < exchange->sets->len; id++)
        if (exchange->sets->pdata[id] != NULL)
            close_set(exchange, exchange->sets->pdata[id], why, entries);
    g_hash_table_iter_init(&iter, exchange->running);
    g_autoptr(GPtrArray) operations = g_ptr_array_new();
    while (g_hash_table_iter_next(&iter, NULL, &running))
        g_ptr_array_add(operations, running);
    for (guint i = 0; i < operations->len; i++)
        operation_fail(exchange, operations->pdata[i], why, &ending);
    pthread_mutex_unlock(&exchange->lock);
    operations_end(exchange, ending);
    end_entries(exchange, entries, why);
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
        fail_by_nonsense(exchange, operation, node, wrong);
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
static void launch_bundle(TensorExchange *exchange)
{
    Decided decided;

    if (fusion_take(exchange, &decided))
        launch(exchange, &decided);
}

/* The next verdict's name begins, or travels with those behind it. What it cannot travel with
 * begins before it counts: other nodes may send for what counts, and must find it. The set may
 * close meanwhile; then it fails, because nobody else ends it. n: of the entries that are there.
 * Takes entries and error. The lock is held, but not all the time. */
static void begin_name(TensorExchange *exchange, TensorSet *set, TensorEntry **entries, uint32_t n,
                       const bool *asked, GError *error)
{
    bool suits = error == NULL && n > 0 && n == set->n_local;

    for (uint32_t place = 0; suits && asked != NULL && place < set->n; place++)
        suits = asked[place];
    suits = suits && fusion_suits(exchange, entries[0]);
    if (exchange->bundle.n_names > 0 && !(suits && fusion_fits(exchange, set, entries[0])))
        launch_bundle(exchange);
    exchange->n_verdicts++;
    if (suits && set->closed == NULL) {
        fusion_add(exchange, set, exchange->n_verdicts, entries);
        return;
    }
    if (n == 0) { /* the set has no workers on this node, or all of them have joined */
        g_clear_error(&error);
        g_clear_pointer(&entries, g_free);
    } else if (error == NULL && set->closed != NULL) {
        error = g_error_copy(set->closed);
    }
    launch(exchange, &(Decided){ .set = set,
                                 .number = exchange->n_verdicts,
                                 .entries = entries,
                                 .n_names = 1,
                                 .asked = asked,
                                 .error = error });
}

/* A verdict on a name. The lock is held, but not while there is work. */
static void hear_of_name(TensorExchange *exchange, TensorSet *set, const TensorVerdict *verdict)
{
    g_autofree bool *asked = g_new0(bool, set->n);
    uint32_t n;
    TensorEntry **const entries = take_entries(set, verdict->name, &n);

    begin_name(exchange, set, entries, n, asked, find_error(set, verdict, entries, n, asked));
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
    begin_name(exchange, set, g_memdup2(entries, set->n_local * sizeof *entries), n, NULL, error);
}

/* All of the slot's names travel together, with those before them if they fit. The set may close
 * while those before begin; then the names fail, because nobody else ends them. Takes entries. The
 * lock is held, but not all the time. */
static void begin_slot(TensorExchange *exchange, TensorSet *set, const TensorSlot *slot,
                       TensorEntry **entries)
{
    const uint64_t number = exchange->n_verdicts + 1;

    if (exchange->bundle.n_names > 0 && !fusion_fits_slot(exchange, set, slot))
        launch_bundle(exchange);
    exchange->n_verdicts += slot->n;
    if (set->closed == NULL)
        fusion_add_slot(exchange, set, number, slot, entries);
    else
        launch(exchange, &(Decided){ .set = set,
                                     .number = number,
                                     .entries = entries,
                                     .n_names = slot->n,
                                     .error = g_error_copy(set->closed) });
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
    if (all && fusion_suits_slot(exchange, set, slot)) {
        begin_slot(exchange, set, slot, g_steal_pointer(&entries));
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
    end_entries(exchange, entries, error);
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
    if (verdict->kind == TENSOR_VERDICT_REMOVED)
        return exchange_remove_set(exchange, verdict->set);
    control_check(verdict->code, verdict->error, &error);
    exchange_refuse_change(exchange, error);
    return true;
}

/* The lock is held, but not all the time. */
static bool hear(TensorExchange *exchange, const TensorVerdict *verdict)
{
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
        exchange->has_cutovers = true;
        exchange->cutovers = verdict->n;
        return true;
    }
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

bool tensor_exchange_hear(TensorExchange *exchange, const char *verdicts)
{
    bool ok = true;

    pthread_mutex_lock(&exchange->lock);
    while (ok && *verdicts != '\0') {
        g_auto(TensorVerdict) verdict = { 0 };

        ok = tensor_verdict_read(&verdicts, &verdict) && hear(exchange, &verdict);
    }
    launch_bundle(exchange);
    pthread_mutex_unlock(&exchange->lock);
    return ok;
}

/* ---- what comes from other nodes ---- */

const char *tensor_exchange_receive(TensorExchange *exchange, uint32_t node,
                                    const TensorMessage *message, void *owner)
{
    const char *wrong = NULL;

    pthread_mutex_lock(&exchange->lock);
    Operation *const operation = g_hash_table_lookup(exchange->running, &message->number);
    if (operation != NULL) {
        wrong = tensor_flow_take(operation->flow, node, message, owner);
        if (wrong != NULL)
            fail_by_nonsense(exchange, operation, node, wrong);
        operation_work_at_once(exchange, operation);
    } else if (message->number > exchange->n_verdicts && !exchange->is_cancelled) {
        EarlyMessage *const early = g_new(EarlyMessage, 1);

        *early = (EarlyMessage){ node, *message, owner };
        g_queue_push_tail(&exchange->early, early);
    } else { /* of an operation that has failed here */
        exchange->links->carrier.drop(exchange->user, owner);
    }
    pthread_mutex_unlock(&exchange->lock);
    return wrong;
}

void tensor_exchange_unlink(TensorExchange *exchange)
{
    EarlyMessage *early;

    pthread_mutex_lock(&exchange->lock);
    while ((early = g_queue_pop_head(&exchange->early)) != NULL) {
        exchange->links->carrier.drop(exchange->user, early->owner);
        g_free(early);
    }
    pthread_mutex_unlock(&exchange->lock);
}

void negotiation_clear(TensorExchange *exchange)
{
    tensor_exchange_unlink(exchange);
    g_free(exchange->has_left);
    g_string_free(exchange->wishes, TRUE);
    g_hash_table_unref(exchange->running);
}
