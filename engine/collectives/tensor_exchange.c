/* The workers' requests meet here: see tensor_exchange.h.
 *
 * DESIGN NOTE
 *
 * One lock guards the matcher and the list of operations with chunks left. A request that completes
 * an operation puts it into this list. Each thread that waits for any request takes chunks from it;
 * so for blocking calls the workers themselves do the work. For calls with tickets, whose workers
 * may compute meanwhile, there is a thread besides. It starts with the first of them.
 *
 * The thread that has done the last chunk of an operation ends its requests. It takes the operation
 * out of all lists under the lock, and ends the calls without it, because a call's end may run
 * code of tickets. A thread that waits looks under the lock whether its call has ended before it
 * sleeps; the ender wakes the sleepers under the lock after it has ended the calls. So no sleeper
 * misses its call's end.
 *
 * Each wait ends: a request is decided once all workers have asked, or one of them has left, or the
 * task is cancelled; and the chunks of an operation are done by those who wait for it, or by the
 * thread. */
#include "engine/collectives/tensor_exchange.h"

#include <rubato/error.h>
#include <string.h>

#include "engine/collectives/tensor_matcher.h"
#include "io/net/log_sink.h"
#include "io/net/monotonic.h"
#include "io/net/stall_clock.h"

/* An operation from its decision to its end. */
typedef struct Operation Operation;
struct Operation {
    TensorWork work;
    GError *error; /* it does not run */
    TensorDecision *decision;
    uint32_t next_chunk, n_done; /* guarded by the exchange's lock */
    Operation *next;             /* in a list of those that end */
};

struct TensorExchange {
    /* immutable */
    const char *task;
    uint32_t n_workers, n_local;
    uint32_t stall_ms;

    Spinner *spinners; /* by rank; each its worker's */

    pthread_mutex_t lock;
    pthread_cond_t changed; /* there is work, or calls have ended */
    /* Operations in `ready`; written with the lock, read without it by those who look for work
     * before they take it. Relaxed: the lock orders what they find. */
    _Atomic uint32_t n_ready;
    /* guarded by lock */
    TensorMatcher *matcher;
    GQueue ready;        /* of Operation: those with chunks that nobody has taken */
    GHashTable *pending; /* of TensorEntry, by call: those that are not decided */
    TensorJoin **joins;  /* by rank; NULL: it has not joined */
    uint32_t n_asleep;
    bool is_stopping;
    bool has_thread;
    pthread_t thread; /* does the work of calls with tickets */
};

/* ---- life ---- */

TensorExchange *tensor_exchange_new(const char *task, uint32_t n_workers, uint32_t n_local,
                                    uint32_t stall_ms)
{
    TensorExchange *const exchange = g_new0(TensorExchange, 1);

    exchange->task = task;
    exchange->n_workers = n_workers;
    exchange->n_local = n_local;
    exchange->stall_ms = stall_ms;
    pthread_mutex_init(&exchange->lock, NULL);
    monotonic_cond_init(&exchange->changed);
    exchange->pending = g_hash_table_new(NULL, NULL);
    if (n_workers != n_local)
        return exchange;
    exchange->matcher = tensor_matcher_new(n_workers);
    exchange->joins = g_new0(TensorJoin *, n_workers);
    exchange->spinners = g_new0(Spinner, n_workers);
    for (uint32_t rank = 0; rank < n_workers; rank++) {
        spinner_init(&exchange->spinners[rank]);
        spinner_share(&exchange->spinners[rank], n_workers);
    }
    return exchange;
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
    tensor_matcher_free(exchange->matcher);
    g_hash_table_unref(exchange->pending);
    g_free(exchange->joins);
    g_free(exchange->spinners);
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
    return exchange->stall_ms;
}

bool tensor_exchange_check(const TensorExchange *exchange, GError **error)
{
    if (exchange->n_workers == exchange->n_local)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "task %s has %u of its %u workers on other nodes; collectives on tensors are "
                "between workers of one node so far",
                exchange->task, exchange->n_workers - exchange->n_local, exchange->n_workers);
    return false;
}

/* ---- operations end ---- */

/* A worker's request has ended: tells what it gathered, or why it failed. */
static void end_entry(TensorEntry *entry, const GError *error)
{
    TensorPart *const part = &entry->part;

    g_clear_pointer(&part->splits, g_free);
    if (error == NULL && part->gathered != NULL)
        *part->gathered = part->result;
    else
        rubato_gathered_clear(&part->result);
    if (error != NULL)
        entry->failure = g_error_copy(error);
    call_end_part(entry->call, error == NULL ? CALL_OK : CALL_FAILED, 0);
}

static void end_operation(TensorExchange *exchange, Operation *operation)
{
    const TensorDecision *const decision = operation->decision;

    for (uint32_t rank = 0; rank < exchange->n_workers; rank++)
        if (decision->tags[rank] != NULL)
            end_entry(decision->tags[rank], operation->error);
    tensor_work_clear(&operation->work);
    g_clear_error(&operation->error);
    tensor_decision_free(operation->decision);
    g_free(operation);
}

/* The lock is not held. */
static void end_operations(TensorExchange *exchange, Operation *operations)
{
    if (operations == NULL)
        return;
    for (Operation *next; operations != NULL; operations = next) {
        next = operations->next;
        end_operation(exchange, operations);
    }
    pthread_mutex_lock(&exchange->lock);
    if (exchange->n_asleep > 0)
        pthread_cond_broadcast(&exchange->changed);
    pthread_mutex_unlock(&exchange->lock);
}

/* The lock is held, which the waiters take before they go. */
static void end_joins(TensorExchange *exchange, const TensorDecision *decision)
{
    for (uint32_t rank = 0; rank < exchange->n_workers; rank++) {
        TensorJoin *const join = exchange->joins[rank];

        if (join == NULL)
            continue;
        exchange->joins[rank] = NULL;
        join->last = decision->last;
        if (decision->error != NULL)
            join->failure = g_error_copy(decision->error);
        call_end_part(&join->call, decision->error == NULL ? CALL_OK : CALL_FAILED, 0);
    }
    if (exchange->n_asleep > 0)
        pthread_cond_broadcast(&exchange->changed);
}

/* ---- operations begin ---- */

/* What was decided runs, or is put in front of the list of those that end. The lock is held. */
static void begin_operation(TensorExchange *exchange, TensorDecision *decision, Operation **ending)
{
    Operation *const operation = g_new0(Operation, 1);
    g_autofree TensorPart **parts = g_new0(TensorPart *, exchange->n_workers);
    bool is_async = false;

    operation->decision = decision;
    for (uint32_t rank = 0; rank < exchange->n_workers; rank++) {
        TensorEntry *const entry = decision->tags[rank];

        if (entry == NULL)
            continue;
        parts[rank] = &entry->part;
        is_async |= entry->is_async;
        g_hash_table_remove(exchange->pending, entry->call);
    }
    if (decision->error != NULL)
        operation->error = g_error_copy(decision->error);
    else if (tensor_work_init(&operation->work, parts, exchange->n_workers, &operation->error) &&
             operation->work.n_chunks > 0) {
        g_queue_push_tail(&exchange->ready, operation);
        atomic_fetch_add_explicit(&exchange->n_ready, 1, memory_order_relaxed);
        if (exchange->n_asleep > 0 && (is_async || operation->work.n_chunks > 1))
            pthread_cond_broadcast(&exchange->changed);
        return;
    }
    operation->next = *ending;
    *ending = operation;
}

/* Returns the operations that end at once. The lock is held. */
static Operation *take_decisions(TensorExchange *exchange)
{
    Operation *ending = NULL;
    TensorDecision *decision;

    while ((decision = tensor_matcher_next(exchange->matcher)) != NULL) {
        if (decision->name != NULL) {
            begin_operation(exchange, decision, &ending);
            continue;
        }
        end_joins(exchange, decision);
        tensor_decision_free(decision);
    }
    return ending;
}

/* ---- the work ---- */

/* Does a chunk, if there is one that nobody has taken. The lock is held, but not meanwhile. */
static bool do_chunk(TensorExchange *exchange)
{
    Operation *const operation = g_queue_peek_head(&exchange->ready);

    if (operation == NULL)
        return false;
    const uint32_t chunk = operation->next_chunk++;
    if (operation->next_chunk == operation->work.n_chunks) {
        g_queue_pop_head(&exchange->ready);
        atomic_fetch_sub_explicit(&exchange->n_ready, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&exchange->lock);
    tensor_work_do(&operation->work, chunk);
    pthread_mutex_lock(&exchange->lock);
    if (++operation->n_done == operation->work.n_chunks) {
        pthread_mutex_unlock(&exchange->lock);
        end_operations(exchange, operation);
        pthread_mutex_lock(&exchange->lock);
    }
    return true;
}

static void *work(void *user)
{
    TensorExchange *const exchange = user;

    pthread_mutex_lock(&exchange->lock);
    while (!exchange->is_stopping) {
        if (do_chunk(exchange))
            continue;
        exchange->n_asleep++;
        pthread_cond_wait(&exchange->changed, &exchange->lock);
        exchange->n_asleep--;
    }
    pthread_mutex_unlock(&exchange->lock);
    return NULL;
}

/* The lock is held. */
static bool start_thread(TensorExchange *exchange, GError **error)
{
    if (!exchange->has_thread)
        exchange->has_thread = log_sink_start_thread(&exchange->thread, work, exchange) == 0;
    if (exchange->has_thread)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                "no thread for the collectives with tickets of task %s", exchange->task);
    return false;
}

/* ---- requests ---- */

bool tensor_exchange_ask(TensorExchange *exchange, uint32_t rank, TensorEntry *entry,
                         GError **error)
{
    const TensorAsk ask = { entry->name, entry->part.request, entry };
    Operation *ending = NULL;
    bool ok;

    pthread_mutex_lock(&exchange->lock);
    ok = !entry->is_async || start_thread(exchange, error);
    if (ok) {
        g_hash_table_insert(exchange->pending, entry->call, entry);
        ok = tensor_matcher_ask(exchange->matcher, rank, &ask, 1, error);
        if (!ok)
            g_hash_table_remove(exchange->pending, entry->call);
        ending = take_decisions(exchange);
    }
    pthread_mutex_unlock(&exchange->lock);
    end_operations(exchange, ending);
    return ok;
}

bool tensor_exchange_join(TensorExchange *exchange, uint32_t rank, TensorJoin *join, GError **error)
{
    Operation *ending = NULL;
    bool ok;

    pthread_mutex_lock(&exchange->lock);
    exchange->joins[rank] = join;
    ok = tensor_matcher_join(exchange->matcher, rank, error);
    if (!ok)
        exchange->joins[rank] = NULL;
    ending = take_decisions(exchange);
    pthread_mutex_unlock(&exchange->lock);
    end_operations(exchange, ending);
    return ok;
}

void tensor_exchange_leave(TensorExchange *exchange, uint32_t rank)
{
    Operation *ending;

    if (exchange->matcher == NULL)
        return;
    pthread_mutex_lock(&exchange->lock);
    tensor_matcher_leave(exchange->matcher, rank, "has returned");
    ending = take_decisions(exchange);
    pthread_mutex_unlock(&exchange->lock);
    end_operations(exchange, ending);
}

void tensor_exchange_cancel(TensorExchange *exchange)
{
    g_autoptr(GError) error = NULL;
    Operation *ending;

    if (exchange->matcher == NULL)
        return;
    error =
        g_error_new(RUBATO_ERROR, RUBATO_ERROR_CANCELLED, "task %s was cancelled", exchange->task);
    pthread_mutex_lock(&exchange->lock);
    tensor_matcher_cancel(exchange->matcher, error);
    ending = take_decisions(exchange);
    pthread_mutex_unlock(&exchange->lock);
    end_operations(exchange, ending);
}

/* ---- waiting ---- */

/* Looks for a while whether there is work or the call has ended. */
static void look(TensorExchange *exchange, Spinner *spinner, Call *call)
{
    SpinnerEnd end;

    if (!spinner_begin(spinner, &end))
        return;
    do
        for (unsigned i = 0; i < spinner->n_looks; i++) {
            if (call_has_ended(call) ||
                atomic_load_explicit(&exchange->n_ready, memory_order_relaxed) > 0) {
                spinner_found(spinner);
                return;
            }
            spin_pause();
        }
    while (spinner_go_on(spinner, &end));
}

/* The lock is held. */
static void say_stalled(TensorExchange *exchange, const Call *call, double waited_s)
{
    const TensorEntry *const entry = g_hash_table_lookup(exchange->pending, call);
    g_autofree char *missing = NULL;

    for (uint32_t rank = 0; entry == NULL && rank < exchange->n_workers; rank++)
        if (exchange->joins[rank] != NULL && &exchange->joins[rank]->call == call)
            missing = tensor_matcher_missing(exchange->matcher, NULL);
    if (missing != NULL) {
        g_message("the join of worker(s) of task %s waits for %s (for %.1f s so far)",
                  exchange->task, missing, waited_s);
        return;
    }
    if (entry == NULL) {
        g_message("a worker of task %s waits for values to be combined (for %.1f s so far)",
                  exchange->task, waited_s);
        return;
    }
    missing = tensor_matcher_missing(exchange->matcher, entry->name);
    g_message("%s %s of task %s waits for %s (for %.1f s so far)",
              tensor_operation_name(entry->part.request.operation), entry->name, exchange->task,
              missing, waited_s);
}

void tensor_exchange_say_stalled(TensorExchange *exchange, const Call *call, double waited_s)
{
    pthread_mutex_lock(&exchange->lock);
    say_stalled(exchange, call, waited_s);
    pthread_mutex_unlock(&exchange->lock);
}

void tensor_exchange_wait(TensorExchange *exchange, uint32_t rank, Call *call)
{
    StallClock clock;

    if (atomic_load_explicit(&exchange->n_ready, memory_order_relaxed) == 0)
        look(exchange, &exchange->spinners[rank], call);
    stall_clock_start(&clock, exchange->stall_ms);
    pthread_mutex_lock(&exchange->lock);
    while (!call_has_ended(call)) {
        if (do_chunk(exchange))
            continue;
        exchange->n_asleep++;
        const bool has_struck = stall_clock_wait(&clock, &exchange->changed, &exchange->lock);
        exchange->n_asleep--;
        if (has_struck && !call_has_ended(call))
            say_stalled(exchange, call, stall_clock_s(&clock));
    }
    pthread_mutex_unlock(&exchange->lock);
}
