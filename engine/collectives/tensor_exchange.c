/* The workers' requests: how they come together, and the wait for them. See
 * tensor_exchange_private.h. */
#include "engine/collectives/tensor_exchange.h"

#include <limits.h>
#include <rubato/error.h>
#include <string.h>

#include "engine/collectives/tensor_exchange_private.h"
#include "io/net/log_sink.h"

/* Among more nodes than that, vectors of bits between all of them are more messages than it takes
 * to ask the coordinator. */
enum { MOST_NODES_OF_ROUNDS = 8 };

/* A worker that waits so long for others to ask again asks in full. */
enum { ALONE_MS = 500 };

/* A worker that waits so long for others says so to the scheduler, or after stall_ms; and after as
 * long again, if what is pending has changed. */
enum { REPORT_MS = 1000 };

/* Between two looks whether arrays that are read are to be copied. */
enum { READERS_MS = 200 };

/* ---- life ---- */

/* Workers that do the same at the same time meet at the lock, and hold it for a fraction of the
 * time that it takes to sleep and to be woken. So it is one that is looked at for a while first. */
static void init_lock(pthread_mutex_t *lock)
{
    pthread_mutexattr_t attributes;

    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

TensorExchange *tensor_exchange_new(const TensorPlace *place)
{
    TensorExchange *const exchange = g_new0(TensorExchange, 1);

    exchange->place = *place;
    for (uint32_t node = 0; node < place->n_nodes; node++) {
        if (node == place->self)
            exchange->first_rank = exchange->n_workers;
        exchange->n_workers += place->workers_of[node];
    }
    exchange->n_local = place->workers_of[place->self];
    init_lock(&exchange->lock);
    monotonic_cond_init(&exchange->changed);
    exchange->gathered = tensor_gathered_pool_new();
    exchange->pending = g_hash_table_new(NULL, NULL);
    exchange_sets_init(exchange);
    exchange->spinners = g_new0(Spinner, exchange->n_local);
    for (uint32_t i = 0; i < exchange->n_local; i++) {
        spinner_init(&exchange->spinners[i]);
        spinner_share(&exchange->spinners[i], exchange->n_local);
    }
    if (exchange->n_workers == exchange->n_local)
        exchange->matchers = tensor_sets_new(exchange->n_workers);
    if (exchange->matchers != NULL)
        tensor_sets_recall(exchange->matchers, &exchange_recall, exchange);
    return exchange;
}

static bool has_rounds(const TensorExchange *exchange)
{
    const TensorPlace *const place = &exchange->place;
    uint32_t n_nodes = 0;

    for (uint32_t node = 0; node < place->n_nodes; node++)
        n_nodes += place->workers_of[node] > 0;
    return n_nodes <= MOST_NODES_OF_ROUNDS && !place->has_no_rounds && !place->replaces &&
           exchange->links->always_receives != NULL &&
           exchange->links->always_receives(exchange->user);
}

bool tensor_exchange_is_linked(const TensorExchange *exchange)
{
    return exchange->links != NULL;
}

void tensor_exchange_link(TensorExchange *exchange, const TensorLinks *links, void *user)
{
    exchange->links = links;
    for (uint32_t i = 0; i < exchange->n_local; i++)
        exchange->spinners[i].looks_long = true; /* another node copies its values meanwhile */
    if (exchange->place.tuning != NULL) {
        exchange->wants_cutovers = true;
        exchange->wanted_cutovers = tensor_tuning_cutovers(exchange->place.tuning);
    }
    exchange->user = user;
    exchange->waiters = g_new0(Waiter, exchange->n_local);
    exchange_sets_link(exchange);
    exchange->has_left = g_new0(bool, exchange->n_local);
    exchange->is_lost = g_new0(bool, exchange->place.n_nodes);
    exchange->is_away = exchange->place.returns;
    exchange->losses = g_ptr_array_new_with_free_func(g_free);
    exchange->known = g_new0(uint32_t, exchange->n_local);
    exchange->notices = g_string_new(NULL);
    exchange->running = g_hash_table_new(g_int64_hash, g_int64_equal);
    exchange->early = launch_new_early();
    if (exchange->n_local > 0 && has_rounds(exchange))
        exchange->rounds = tensor_rounds_new(exchange->place.workers_of, exchange->place.n_nodes,
                                             exchange->place.self);
}

void tensor_exchange_free(TensorExchange *exchange)
{
    if (exchange == NULL)
        return;
    if (exchange->has_thread) {
        pthread_mutex_lock(&exchange->lock);
        exchange->is_stopping = true;
        pthread_cond_broadcast(&exchange->changed);
        pthread_mutex_unlock(&exchange->lock);
        pthread_join(exchange->thread, NULL);
    }
    if (exchange->links != NULL)
        negotiation_clear(exchange);
    tensor_sets_free(exchange->matchers);
    exchange_sets_clear(exchange);
    tensor_gathered_pool_close(exchange->gathered);
    g_hash_table_unref(exchange->pending);
    g_free(exchange->spinners);
    g_free(exchange->waiters);
    pthread_cond_destroy(&exchange->changed);
    pthread_mutex_destroy(&exchange->lock);
    g_free(exchange);
}

uint32_t tensor_exchange_stall_ms(const TensorExchange *exchange)
{
    return exchange->place.stall_ms;
}

/* ---- the matchers of a single node ---- */

static void begin_bundle(TensorExchange *exchange, Operation **ending)
{
    Decided decided;

    if (fusion_take(exchange, &decided))
        operation_begin(exchange, &decided, ending);
}

/* What was decided begins, or travels with what is decided behind it, if there is more. */
static void begin_decided(TensorExchange *exchange, const Decided *decided, bool is_last,
                          Operation **ending)
{
    bool suits = decided->error == NULL && !(is_last && exchange->bundle.n_names == 0);

    for (uint32_t i = 0; suits && i < decided->set->n_local; i++)
        suits = decided->entries[i] != NULL;
    suits = suits && fusion_suits(exchange, decided->entries[0]);
    if (exchange->bundle.n_names > 0 &&
        !(suits && fusion_fits(exchange, decided->set, decided->entries[0])))
        begin_bundle(exchange, ending);
    if (suits)
        fusion_add(exchange, decided->set, decided->number, decided->entries);
    else
        operation_begin(exchange, decided, ending);
}

/* A name was decided. */
static void begin_name(TensorExchange *exchange, const TensorOutcome *outcome, Operation **ending)
{
    const TensorDecision *const decision = outcome->decision;
    TensorSet *const set = exchange_set(exchange, outcome->set);
    TensorEntry **const entries = g_memdup2(decision->tags, outcome->n_members * sizeof *entries);
    const Decided decided = { .set = set,
                              .number = decision->number,
                              .entries = entries,
                              .n_names = 1,
                              .error =
                                  decision->error == NULL ? NULL : g_error_copy(decision->error) };

    for (uint32_t i = 0; i < outcome->n_members; i++)
        if (entries[i] != NULL)
            g_hash_table_remove(exchange->pending, entries[i]);
    if (outcome->slot != TENSOR_NO_SLOT)
        exchange_fill(set, outcome->slot, decision->name, entries);
    begin_decided(exchange, &decided, !tensor_sets_has_next(exchange->matchers), ending);
}

/* All workers have asked again for what is in a slot. */
static void begin_again(TensorExchange *exchange, const TensorOutcome *outcome, Operation **ending)
{
    const TensorSet *const set = exchange_set(exchange, outcome->set);
    TensorSlot *const slot = tensor_slots_at(set->slots, outcome->slot);

    if (slot->n > 1 && fusion_suits_slot(exchange, set, slot)) {
        if (exchange->bundle.n_names > 0 && !fusion_fits_slot(exchange, set, slot))
            begin_bundle(exchange, ending);
        fusion_add_slot(exchange, set, 0, slot,
                        exchange_entries_of(slot, set->n_local, outcome->held));
        return;
    }
    const bool is_last = slot->n == 1 && !tensor_sets_has_next(exchange->matchers);

    for (uint32_t i = 0; i < slot->n; i++) {
        TensorEntry **const entries = g_new(TensorEntry *, set->n);

        for (uint32_t place = 0; place < set->n; place++)
            entries[place] = exchange_entry_of(slot, i, place, outcome->held[place]);
        begin_decided(exchange, &(Decided){ .set = set, .entries = entries, .n_names = 1 }, is_last,
                      ending);
    }
}

/* Returns the operations that end at once. The lock is held. */
static Operation *take_outcomes(TensorExchange *exchange)
{
    Operation *ending = NULL;
    TensorOutcome *outcome;

    while ((outcome = tensor_sets_next(exchange->matchers)) != NULL) {
        if (exchange_set(exchange, outcome->set) != NULL)
            exchange_set(exchange, outcome->set)->n_verdicts++;
        if (outcome->kind != TENSOR_OUTCOME_NAME && outcome->kind != TENSOR_OUTCOME_AGAIN)
            begin_bundle(exchange, &ending);
        switch (outcome->kind) {
        case TENSOR_OUTCOME_NAME:
            begin_name(exchange, outcome, &ending);
            break;
        case TENSOR_OUTCOME_AGAIN:
            begin_again(exchange, outcome, &ending);
            break;
        case TENSOR_OUTCOME_JOIN: /* a join is not used any more once its call has ended */
            exchange_end_joins(exchange, exchange_set(exchange, outcome->set),
                               outcome->decision->last, outcome->decision->error);
            break;
        case TENSOR_OUTCOME_CLOSED: /* the matcher tells it to those who ask */
            break;
        case TENSOR_OUTCOME_MADE:
            exchange_make_set(exchange, outcome->set);
            break;
        case TENSOR_OUTCOME_REMOVED:
            exchange_remove_set(exchange, outcome->set);
            break;
        case TENSOR_OUTCOME_REFUSED:
            exchange_refuse_change(exchange, outcome->error);
            break;
        case TENSOR_OUTCOME_LOST: /* of other nodes, which there are none of */
        case TENSOR_OUTCOME_REPLACED:
            break;
        }
        tensor_outcome_free(outcome);
    }
    begin_bundle(exchange, &ending);
    return ending;
}

/* The lock is held. */
static bool ask_in_full(TensorExchange *exchange, uint32_t rank, TensorEntry *entries, size_t n,
                        GError **error)
{
    const TensorAsk one = { entries->name, entries->part.request, entries };
    g_autofree TensorAsk *many = n > 1 ? g_new(TensorAsk, n) : NULL;

    for (size_t i = 0; i < n && many != NULL; i++)
        many[i] = (TensorAsk){ entries[i].name, entries[i].part.request, &entries[i] };
    for (size_t i = 0; i < n; i++)
        g_hash_table_add(exchange->pending, &entries[i]);
    const bool ok = tensor_sets_ask(exchange->matchers, entries->set, rank,
                                    many != NULL ? many : &one, n, error);
    for (size_t i = 0; i < n && !ok; i++)
        g_hash_table_remove(exchange->pending, &entries[i]);
    return ok;
}

static bool ask_matcher(TensorExchange *exchange, uint32_t rank, TensorEntry *entries, size_t n,
                        GError **error)
{
    pthread_mutex_lock(&exchange->lock);
    const TensorSlot *const slot = exchange_find_again(
        exchange, exchange_set(exchange, entries->set), entries->place, entries, n);
    const bool ok = slot == NULL ? ask_in_full(exchange, rank, entries, n, error)
                                 : tensor_sets_again(exchange->matchers, entries->set, rank,
                                                     slot->id, entries, error);
    Operation *const ending = take_outcomes(exchange);
    pthread_mutex_unlock(&exchange->lock);
    operations_end(exchange, ending);
    return ok;
}

static bool join_matcher(TensorExchange *exchange, uint32_t rank, TensorJoin *join, GError **error)
{
    pthread_mutex_lock(&exchange->lock);
    TensorSet *const set = exchange_set(exchange, join->set);
    set->joins[join->place] = join;
    const bool ok = tensor_sets_join(exchange->matchers, join->set, rank, error);
    if (!ok)
        set->joins[join->place] = NULL;
    Operation *const ending = take_outcomes(exchange);
    pthread_mutex_unlock(&exchange->lock);
    operations_end(exchange, ending);
    return ok;
}

static bool change_matchers(TensorExchange *exchange, uint32_t rank, TensorSetChange *change,
                            GError **error)
{
    pthread_mutex_lock(&exchange->lock);
    exchange->changes[rank] = change;
    const bool ok =
        change->n_ranks > 0
            ? tensor_sets_make(exchange->matchers, rank, change->ranks, change->n_ranks, error)
            : tensor_sets_remove(exchange->matchers, rank, change->set, error);
    if (!ok)
        exchange->changes[rank] = NULL;
    Operation *const ending = take_outcomes(exchange);
    pthread_mutex_unlock(&exchange->lock);
    operations_end(exchange, ending);
    return ok;
}

/* ---- requests ---- */

static void *work(void *user)
{
    TensorExchange *const exchange = user;

    pthread_mutex_lock(&exchange->lock);
    while (!exchange->is_stopping) {
        if (operation_work(exchange))
            continue;
        tensor_sleepers_enter(&exchange->asleep);
        pthread_cond_wait(&exchange->changed, &exchange->lock);
        tensor_sleepers_leave(&exchange->asleep);
    }
    pthread_mutex_unlock(&exchange->lock);
    return NULL;
}

static bool start_thread(TensorExchange *exchange, GError **error)
{
    pthread_mutex_lock(&exchange->lock);
    if (!exchange->has_thread)
        exchange->has_thread = log_sink_start_thread(&exchange->thread, work, exchange) == 0;
    const bool ok = exchange->has_thread;
    pthread_mutex_unlock(&exchange->lock);
    if (!ok)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "no thread for the collectives with tickets of task %s", exchange->place.task);
    return ok;
}

bool tensor_exchange_ask(TensorExchange *exchange, uint32_t rank, TensorEntry *entries, size_t n,
                         GError **error)
{
    if (entries->is_async && !start_thread(exchange, error))
        return false;
    const uint64_t asked_ns = timeline_now(exchange->place.timeline);
    for (size_t i = 0; i < n; i++) {
        entries[i].first = entries;
        entries[i].n_group = (uint32_t)n;
        entries[i].rank = rank;
        entries[i].asked_ns = asked_ns;
        entries[i].part.gathered_pool = exchange->gathered;
    }
    return exchange->matchers != NULL ? ask_matcher(exchange, rank, entries, n, error)
                                      : negotiation_ask(exchange, rank, entries, n, error);
}

bool tensor_exchange_join(TensorExchange *exchange, uint32_t rank, TensorJoin *join, GError **error)
{
    return exchange->matchers != NULL ? join_matcher(exchange, rank, join, error)
                                      : negotiation_join(exchange, rank, join, error);
}

bool tensor_exchange_change_sets(TensorExchange *exchange, uint32_t rank, TensorSetChange *change,
                                 GError **error)
{
    return exchange->matchers != NULL ? change_matchers(exchange, rank, change, error)
                                      : negotiation_change_sets(exchange, rank, change, error);
}

void tensor_exchange_leave(TensorExchange *exchange, uint32_t rank)
{
    Operation *ending;

    if (exchange->matchers == NULL) {
        negotiation_leave(exchange, rank - exchange->first_rank);
        return;
    }
    pthread_mutex_lock(&exchange->lock);
    tensor_sets_leave(exchange->matchers, rank, "has returned");
    ending = take_outcomes(exchange);
    pthread_mutex_unlock(&exchange->lock);
    operations_end(exchange, ending);
}

void tensor_exchange_cancel(TensorExchange *exchange, const char *why)
{
    g_autoptr(GError) error = NULL;
    Operation *ending;

    error = g_error_new(RUBATO_ERROR, RUBATO_ERROR_CANCELLED, "task %s was cancelled: %s",
                        exchange->place.task, why != NULL ? why : "");
    /* relaxed: who waits for room looks again and again */
    atomic_store_explicit(&exchange->is_cancelled, true, memory_order_relaxed);
    if (exchange->matchers == NULL) {
        if (exchange->links != NULL)
            negotiation_close(exchange, error);
        return;
    }
    pthread_mutex_lock(&exchange->lock);
    tensor_sets_cancel(exchange->matchers, error);
    ending = take_outcomes(exchange);
    pthread_mutex_unlock(&exchange->lock);
    operations_end(exchange, ending);
}

/* ---- waiting ---- */

/* For whom an operation waits that was decided. The lock is held. */
static void say_running(const TensorExchange *exchange, const Call *call, double waited_s)
{
    GHashTableIter iter;
    gpointer value;
    uint32_t node;

    if (exchange->running != NULL)
        g_hash_table_iter_init(&iter, exchange->running);
    while (exchange->running != NULL && g_hash_table_iter_next(&iter, NULL, &value)) {
        const Operation *const operation = value;

        for (uint32_t i = 0; i < operation->n_entries; i++) {
            const TensorEntry *const entry = operation->entries[i];

            if (entry == NULL || entry->call != call ||
                !tensor_flow_waits_for(operation->flow, &node))
                continue;
            g_message("%s %s of task %s waits for values of node %u (for %.1f s so far)",
                      tensor_operation_name(entry->part.request.operation), entry->name,
                      exchange->place.task, exchange->place.node_ids[node], waited_s);
            return;
        }
    }
    g_message("a worker of task %s waits for values to be combined (for %.1f s so far)",
              exchange->place.task, waited_s);
}

/* What a call waits for that is not decided. */
typedef struct {
    const TensorEntry *entry; /* NULL: it is none, but ... */
    const TensorJoin *join;
    const TensorSetChange *change;
} Undecided;

static const TensorEntry *find_entry(GHashTable *entries, const Call *call)
{
    GHashTableIter iter;
    gpointer entry;

    g_hash_table_iter_init(&iter, entries);
    while (g_hash_table_iter_next(&iter, NULL, &entry))
        if (((const TensorEntry *)entry)->call == call)
            return entry;
    return NULL;
}

/* False: it has been decided. The lock is held. */
static bool find_undecided(const TensorExchange *exchange, const Call *call, Undecided *found)
{
    *found = (Undecided){ .entry = find_entry(exchange->pending, call) };
    for (guint id = 0; id < exchange->sets->len; id++) {
        const TensorSet *const set = exchange->sets->pdata[id];

        for (uint32_t i = 0; set != NULL && i < set->n_local; i++) {
            if (found->entry == NULL && set->asked != NULL)
                found->entry = find_entry(set->asked[i], call);
            if (set->joins[i] != NULL && &set->joins[i]->call == call)
                found->join = set->joins[i];
        }
    }
    for (uint32_t i = 0; i < exchange->n_local; i++)
        if (exchange->changes[i] != NULL && &exchange->changes[i]->call == call)
            found->change = exchange->changes[i];
    return found->entry != NULL || found->join != NULL || found->change != NULL;
}

/* For whom it waits. On several nodes the scheduler knows. (transfer full) */
static char *find_missing(const TensorExchange *exchange, const Undecided *undecided, uint32_t id)
{
    const uint32_t *ranks;
    uint32_t n_members;
    char *missing = NULL;

    if (exchange->matchers != NULL && undecided->change != NULL)
        missing = tensor_sets_missing(exchange->matchers);
    else if (exchange->matchers != NULL)
        missing =
            tensor_matcher_missing(tensor_sets_matcher(exchange->matchers, id, &ranks, &n_members),
                                   undecided->entry == NULL ? NULL : undecided->entry->name);
    return missing != NULL ? missing : g_strdup("workers that have not asked for it");
}

/* The lock is held. */
static void say_stalled(TensorExchange *exchange, const Call *call, double waited_s)
{
    Undecided undecided;

    if (exchange->matchers != NULL)
        tensor_sets_ask_in_full(exchange->matchers);
    if (!find_undecided(exchange, call, &undecided)) {
        say_running(exchange, call, waited_s);
        return;
    }
    const TensorEntry *const entry = undecided.entry;
    const uint32_t id = entry != NULL            ? entry->set
                        : undecided.join != NULL ? undecided.join->set
                                                 : 0;
    g_autofree char *missing = find_missing(exchange, &undecided, id);
    g_autofree char *set = id == 0 ? g_strdup("") : g_strdup_printf("set %u of ", id);

    if (undecided.change != NULL)
        g_message("a change of the sets of task %s waits for %s (for %.1f s so far)",
                  exchange->place.task, missing, waited_s);
    else if (entry == NULL)
        g_message("the join of worker(s) of %stask %s waits for %s (for %.1f s so far)", set,
                  exchange->place.task, missing, waited_s);
    else
        g_message("%s %s of %stask %s waits for %s (for %.1f s so far)",
                  tensor_operation_name(entry->part.request.operation), entry->name, set,
                  exchange->place.task, missing, waited_s);
}

void tensor_exchange_say_stalled(TensorExchange *exchange, const Call *call, double waited_s)
{
    pthread_mutex_lock(&exchange->lock);
    say_stalled(exchange, call, waited_s);
    pthread_mutex_unlock(&exchange->lock);
}

/* Looks for a while whether there is work or the call has ended. Returns whether it is so. */
static bool look(TensorExchange *exchange, Spinner *spinner, Call *call)
{
    SpinnerEnd end;

    if (!spinner_begin(spinner, &end))
        return false;
    do
        for (unsigned i = 0; i < spinner->n_looks; i++) {
            if (call_has_ended(call) ||
                atomic_load_explicit(&exchange->n_ready, memory_order_relaxed) > 0) {
                spinner_found(spinner);
                return true;
            }
            spin_pause();
        }
    while (spinner_go_on(spinner, &end));
    return false;
}

/* Sleeps until there is something to look at, or that time has come. The lock is held, but not
 * meanwhile. */
static void sleep_on_one_node(TensorExchange *exchange, Call *call, int64_t end_ms)
{
    tensor_sleepers_enter(&exchange->asleep);
    if (!call_has_ended(call))
        monotonic_wait(&exchange->changed, &exchange->lock, end_ms);
    tensor_sleepers_leave(&exchange->asleep);
}

/* The same, and may receive meanwhile. If nobody else has come for long, the coordinator is asked,
 * which can say who is missing. */
static void sleep_between_nodes(TensorExchange *exchange, uint32_t local, Call *call,
                                int64_t end_ms)
{
    Waiter *const waiter = &exchange->waiters[local];
    const int64_t left_ms = end_ms - monotonic_ms();
    const int most_ms = exchange->rounds != NULL ? ALONE_MS : INT_MAX;

    call_begin(&waiter->call, NULL);
    call_add_parts(&waiter->call, 1);
    call_sent(&waiter->call);
    waiter->call.is_remote = true;
    waiter->call.spinner = &exchange->spinners[local];
    waiter->is_armed = true;
    pthread_mutex_unlock(&exchange->lock);
    exchange->links->wait(exchange->user, &waiter->call, (int)CLAMP(left_ms, 0, most_ms));
    pthread_mutex_lock(&exchange->lock);
    waiter->is_armed = false;
    if (!call_has_ended(&waiter->call) && !call_has_ended(call))
        negotiation_ask_alone(exchange);
}

void tensor_exchange_wait(TensorExchange *exchange, uint32_t rank, Call *call)
{
    const uint32_t local = rank - exchange->first_rank;
    g_autofree char *told = NULL;
    StallClock clock, reports;

    /* On one node it looks before it sleeps: first for others to come, and once it has found all
     * work taken, for those who do it to end. They soon do. */
    bool looks = exchange->links == NULL;

    if (looks && atomic_load_explicit(&exchange->n_ready, memory_order_relaxed) == 0)
        looks = look(exchange, &exchange->spinners[local], call);
    if (looks && call_has_ended(call))
        return;
    stall_clock_start(&clock, exchange->place.stall_ms);
    stall_clock_start_at(&reports, MIN(REPORT_MS, clock.stall_ms), clock.begun_ms);
    pthread_mutex_lock(&exchange->lock);
    while (!call_has_ended(call)) {
        if (operation_work(exchange)) {
            looks = exchange->links == NULL;
            continue;
        }
        if (looks) {
            pthread_mutex_unlock(&exchange->lock);
            looks = look(exchange, &exchange->spinners[local], call);
            pthread_mutex_lock(&exchange->lock);
            continue;
        }
        const int64_t end_ms = MIN(clock.strike_ms, reports.strike_ms);
        if (exchange->links == NULL)
            sleep_on_one_node(exchange, call, end_ms);
        else
            sleep_between_nodes(exchange, local, call, end_ms);
        if (call_has_ended(call) || monotonic_ms() < end_ms)
            continue;
        if (stall_clock_strikes(&clock))
            say_stalled(exchange, call, stall_clock_s(&clock));
        if (stall_clock_strikes(&reports))
            waits_report(exchange, rank, call, &told);
    }
    /* Its last step may have made others possible while nobody else saw work. */
    if (exchange->ready.head != NULL)
        operations_wake(exchange);
    pthread_mutex_unlock(&exchange->lock);
}

/* For whom the request waits, which has ended but for them. */
static void say_read(const TensorExchange *exchange, const TensorEntry *entry, double waited_s)
{
    const TensorPlace *const place = &exchange->place;

    for (uint32_t node = 0; node < place->n_nodes; node++)
        if (exchange_has_node(exchange, node) && exchange->links->reads_lent(exchange->user, node))
            g_message("%s %s of task %s waits for node %u to acknowledge values that are sent from "
                      "its arrays, last heard %.1f s ago (for %.1f s so far)",
                      tensor_operation_name(entry->part.request.operation), entry->name,
                      place->task, place->node_ids[node],
                      exchange->links->silence_s(exchange->user, node), waited_s);
}

/* Why nobody reads the arrays behind it. An operation ends once no thread is at one of its steps
 * (end_if_done, operation_fail), so each message that reads them was sent by then, or forgotten,
 * and is a part of the call. Whoever may still need its bytes holds the packet, and the part ends
 * with the last of them: the link, which sends it again until it is acknowledged, and the
 * transport, also if RUBATO_FAULTS holds it back or sends it twice. If the packet outlives the
 * part, it was copied.
 *
 * Why the wait ends. A node that lives acknowledges a packet whatever its workers do: its network
 * does so by itself, and it takes in pieces of tensors that nobody awaits yet, or no more. One
 * that has stopped or died is lost, and what goes to it is dropped when it is forgotten. Neither
 * may come for long if the operation has failed, or the task is cancelled, as it is before the
 * network stops: then what is left is copied, and sent from there. Only where there is no memory
 * for a copy the wait goes on until the node acknowledges the packet, or is lost, as for the
 * values of an Add (direct_write.h). */
void tensor_exchange_wait_readers(TensorExchange *exchange, const TensorEntry *entry, Call *readers,
                                  bool failed)
{
    StallClock clock;

    call_sent(readers); /* no message reads them that is not sent yet */
    if (call_has_ended(readers))
        return;
    stall_clock_start(&clock, exchange->place.stall_ms);
    while (!call_has_ended(readers)) {
        /* relaxed: it is asked again and again */
        if (failed || atomic_load_explicit(&exchange->is_cancelled, memory_order_relaxed))
            exchange->links->revoke(exchange->user);
        exchange->links->wait(exchange->user, readers, stall_clock_look_ms(&clock, READERS_MS));
        if (!call_has_ended(readers) && stall_clock_strikes(&clock))
            say_read(exchange, entry, stall_clock_s(&clock));
    }
}
