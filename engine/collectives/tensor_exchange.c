/* The workers' requests: how they come together, and the wait for them. See
 * tensor_exchange_private.h. */
#include "engine/collectives/tensor_exchange.h"

#include <rubato/error.h>
#include <string.h>

#include "engine/collectives/tensor_exchange_private.h"
#include "io/net/log_sink.h"

/* ---- life ---- */

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
    pthread_mutex_init(&exchange->lock, NULL);
    monotonic_cond_init(&exchange->changed);
    exchange->pending = g_hash_table_new(NULL, NULL);
    exchange->joins = g_new0(TensorJoin *, exchange->n_local);
    exchange->spinners = g_new0(Spinner, exchange->n_local);
    for (uint32_t i = 0; i < exchange->n_local; i++) {
        spinner_init(&exchange->spinners[i]);
        spinner_share(&exchange->spinners[i], exchange->n_local);
    }
    if (exchange->n_workers == exchange->n_local)
        exchange->matcher = tensor_matcher_new(exchange->n_workers);
    return exchange;
}

void tensor_exchange_link(TensorExchange *exchange, const TensorLinks *links, void *user)
{
    exchange->links = links;
    exchange->user = user;
    exchange->waiters = g_new0(Waiter, exchange->n_local);
    exchange->asked = g_new0(GHashTable *, exchange->n_local);
    for (uint32_t i = 0; i < exchange->n_local; i++)
        exchange->asked[i] = g_hash_table_new(g_str_hash, g_str_equal);
    exchange->has_left = g_new0(bool, exchange->n_local);
    exchange->wishes = g_string_new(NULL);
    exchange->running = g_hash_table_new(g_int64_hash, g_int64_equal);
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
    tensor_matcher_free(exchange->matcher);
    g_hash_table_unref(exchange->pending);
    g_free(exchange->joins);
    g_free(exchange->spinners);
    g_free(exchange->waiters);
    pthread_cond_destroy(&exchange->changed);
    pthread_mutex_destroy(&exchange->lock);
    g_free(exchange);
}

uint32_t tensor_exchange_n_workers(const TensorExchange *exchange)
{
    return exchange->n_workers;
}

uint32_t tensor_exchange_stall_ms(const TensorExchange *exchange)
{
    return exchange->place.stall_ms;
}

/* ---- the matcher of a single node ---- */

/* The lock is held. A join is not used any more once its call has ended. */
static void end_joins(TensorExchange *exchange, const TensorDecision *decision)
{
    for (uint32_t i = 0; i < exchange->n_local; i++) {
        TensorJoin *const join = exchange->joins[i];

        if (join == NULL)
            continue;
        exchange->joins[i] = NULL;
        join->last = decision->last;
        if (decision->error != NULL)
            join->failure = g_error_copy(decision->error);
        call_end_part(&join->call, decision->error == NULL ? CALL_OK : CALL_FAILED, 0);
    }
    operations_wake(exchange);
}

/* Returns the operations that end at once. The lock is held. */
static Operation *take_decisions(TensorExchange *exchange)
{
    Operation *ending = NULL;
    TensorDecision *decision;

    while ((decision = tensor_matcher_next(exchange->matcher)) != NULL) {
        if (decision->name == NULL) {
            end_joins(exchange, decision);
        } else {
            TensorEntry **const entries =
                g_memdup2(decision->tags, exchange->n_local * sizeof *entries);

            for (uint32_t i = 0; i < exchange->n_local; i++)
                if (entries[i] != NULL)
                    g_hash_table_remove(exchange->pending, entries[i]);
            operation_begin(exchange, decision->number, entries, NULL,
                            decision->error == NULL ? NULL : g_error_copy(decision->error),
                            &ending);
        }
        tensor_decision_free(decision);
    }
    return ending;
}

static bool ask_matcher(TensorExchange *exchange, uint32_t local, TensorEntry *entries, size_t n,
                        GError **error)
{
    const TensorAsk one = { entries->name, entries->part.request, entries };
    g_autofree TensorAsk *many = n > 1 ? g_new(TensorAsk, n) : NULL;

    for (size_t i = 0; i < n && many != NULL; i++)
        many[i] = (TensorAsk){ entries[i].name, entries[i].part.request, &entries[i] };
    pthread_mutex_lock(&exchange->lock);
    for (size_t i = 0; i < n; i++)
        g_hash_table_add(exchange->pending, &entries[i]);
    const bool ok =
        tensor_matcher_ask(exchange->matcher, local, many != NULL ? many : &one, n, error);
    for (size_t i = 0; i < n && !ok; i++)
        g_hash_table_remove(exchange->pending, &entries[i]);
    Operation *const ending = take_decisions(exchange);
    pthread_mutex_unlock(&exchange->lock);
    operations_end(exchange, ending);
    return ok;
}

static bool join_matcher(TensorExchange *exchange, uint32_t local, TensorJoin *join, GError **error)
{
    pthread_mutex_lock(&exchange->lock);
    exchange->joins[local] = join;
    const bool ok = tensor_matcher_join(exchange->matcher, local, error);
    if (!ok)
        exchange->joins[local] = NULL;
    Operation *const ending = take_decisions(exchange);
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
        exchange->n_asleep++;
        pthread_cond_wait(&exchange->changed, &exchange->lock);
        exchange->n_asleep--;
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
    const uint32_t local = rank - exchange->first_rank;

    if (entries->is_async && !start_thread(exchange, error))
        return false;
    return exchange->matcher != NULL ? ask_matcher(exchange, local, entries, n, error)
                                     : negotiation_ask(exchange, local, entries, n, error);
}

bool tensor_exchange_join(TensorExchange *exchange, uint32_t rank, TensorJoin *join, GError **error)
{
    const uint32_t local = rank - exchange->first_rank;

    return exchange->matcher != NULL ? join_matcher(exchange, local, join, error)
                                     : negotiation_join(exchange, local, join, error);
}

void tensor_exchange_leave(TensorExchange *exchange, uint32_t rank)
{
    Operation *ending;

    if (exchange->matcher == NULL) {
        negotiation_leave(exchange, rank - exchange->first_rank);
        return;
    }
    pthread_mutex_lock(&exchange->lock);
    tensor_matcher_leave(exchange->matcher, rank, "has returned");
    ending = take_decisions(exchange);
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
    if (exchange->matcher == NULL) {
        if (exchange->links != NULL)
            negotiation_close(exchange, error);
        return;
    }
    pthread_mutex_lock(&exchange->lock);
    tensor_matcher_cancel(exchange->matcher, error);
    ending = take_decisions(exchange);
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

        for (uint32_t i = 0; i < exchange->n_local; i++) {
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

/* The request that is not decided; NULL: there is none. The lock is held. */
static const TensorEntry *find_pending(const TensorExchange *exchange, const Call *call)
{
    GHashTableIter iter;
    gpointer entry;

    g_hash_table_iter_init(&iter, exchange->pending);
    while (g_hash_table_iter_next(&iter, &entry, NULL))
        if (((const TensorEntry *)entry)->call == call)
            return entry;
    for (uint32_t i = 0; exchange->asked != NULL && i < exchange->n_local; i++) {
        g_hash_table_iter_init(&iter, exchange->asked[i]);
        while (g_hash_table_iter_next(&iter, NULL, &entry))
            if (((const TensorEntry *)entry)->call == call)
                return entry;
    }
    return NULL;
}

/* The lock is held. */
static void say_stalled(TensorExchange *exchange, const Call *call, double waited_s)
{
    const TensorEntry *const entry = find_pending(exchange, call);
    g_autofree char *missing = NULL;
    bool is_join = false;

    for (uint32_t i = 0; entry == NULL && i < exchange->n_local; i++)
        is_join |= exchange->joins[i] != NULL && &exchange->joins[i]->call == call;
    if (entry == NULL && !is_join) {
        say_running(exchange, call, waited_s);
        return;
    }
    if (exchange->matcher != NULL)
        missing = tensor_matcher_missing(exchange->matcher, entry == NULL ? NULL : entry->name);
    if (missing == NULL) /* the scheduler knows who */
        missing = g_strdup("workers that have not asked for it");
    if (is_join)
        g_message("the join of worker(s) of task %s waits for %s (for %.1f s so far)",
                  exchange->place.task, missing, waited_s);
    else
        g_message("%s %s of task %s waits for %s (for %.1f s so far)",
                  tensor_operation_name(entry->part.request.operation), entry->name,
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

/* Sleeps until there is something to look at. The lock is held, but not meanwhile. Returns whether
 * the time to say so has come. */
static bool sleep_on_one_node(TensorExchange *exchange, StallClock *clock)
{
    exchange->n_asleep++;
    const bool has_struck = stall_clock_wait(clock, &exchange->changed, &exchange->lock);
    exchange->n_asleep--;
    return has_struck;
}

/* The same, and may receive meanwhile. */
static bool sleep_between_nodes(TensorExchange *exchange, uint32_t local, StallClock *clock)
{
    Waiter *const waiter = &exchange->waiters[local];

    call_begin(&waiter->call, NULL);
    call_add_parts(&waiter->call, 1);
    call_sent(&waiter->call);
    waiter->call.is_remote = true;
    waiter->call.spinner = &exchange->spinners[local];
    waiter->is_armed = true;
    pthread_mutex_unlock(&exchange->lock);
    exchange->links->wait(exchange->user, &waiter->call, stall_clock_left_ms(clock));
    pthread_mutex_lock(&exchange->lock);
    waiter->is_armed = false;
    return stall_clock_strikes(clock);
}

void tensor_exchange_wait(TensorExchange *exchange, uint32_t rank, Call *call)
{
    const uint32_t local = rank - exchange->first_rank;
    StallClock clock;

    /* On one node it looks before it sleeps: first for others to come, and once it has found all
     * work taken, for those who do it to end. They soon do. */
    bool looks = exchange->links == NULL;

    if (looks && atomic_load_explicit(&exchange->n_ready, memory_order_relaxed) == 0)
        looks = look(exchange, &exchange->spinners[local], call);
    if (looks && call_has_ended(call))
        return;
    stall_clock_start(&clock, exchange->place.stall_ms);
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
        const bool has_struck = exchange->links == NULL
                                    ? sleep_on_one_node(exchange, &clock)
                                    : sleep_between_nodes(exchange, local, &clock);
        if (has_struck && !call_has_ended(call))
            say_stalled(exchange, call, stall_clock_s(&clock));
    }
    pthread_mutex_unlock(&exchange->lock);
}
