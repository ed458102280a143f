/* Operations on tensors, from their decision to their end: see tensor_exchange_private.h. */
#include <string.h>

#include "engine/collectives/tensor_exchange_private.h"

/* ---- the end ---- */

/* All of the end but the call's. */
static void settle_entry(TensorEntry *entry, const GError *error)
{
    TensorPart *const part = &entry->part;

    if (part->splits != NULL)
        g_clear_pointer(&part->splits, g_free);
    if (part->gathered != NULL && error == NULL)
        *part->gathered = part->result;
    else if (part->gathered != NULL)
        rubato_gathered_clear(&part->result);
    if (error != NULL)
        entry->failure = g_error_copy(error);
}

static CallStatus status_of(const GError *error)
{
    return error == NULL ? CALL_OK : CALL_FAILED;
}

void tensor_entry_end(TensorEntry *entry, const GError *error)
{
    settle_entry(entry, error);
    call_end_part(entry->call, status_of(error), 0);
}

/* Ends the requests of the operation's worker, by its place among those here. Parts of one call end
 * together: its waiter, which looks at the call, would fetch its line from the other processor as
 * often as it changes. */
static void end_entries_of(const Operation *operation, uint32_t place, uint32_t n_places)
{
    const CallStatus status = status_of(operation->error);
    Call *call = NULL;
    uint32_t n_parts = 0;

    for (uint32_t i = place; i < operation->n_entries; i += n_places) {
        TensorEntry *const entry = operation->entries[i];

        if (entry == NULL)
            continue;
        settle_entry(entry, operation->error);
        if (n_parts > 0 && entry->call != call) {
            call_end_parts(call, n_parts, status, 0);
            n_parts = 0;
        }
        call = entry->call;
        n_parts++;
    }
    if (n_parts > 0)
        call_end_parts(call, n_parts, status, 0);
}

static void end_operation(const TensorExchange *exchange, Operation *operation)
{
    if (operation->is_small)
        operation_time_work(exchange, operation);
    if (operation->is_small)
        do
            tensor_work_do(&operation->work, 0);
        while (tensor_work_next_round(&operation->work));
    if (operation->flow != NULL) {
        tensor_flow_tell_failure(operation->flow);
        tensor_flow_free(operation->flow);
    }
    if (G_UNLIKELY(operation->decided_ns != 0))
        operation_note(exchange, operation);
    const uint32_t n_places = operation->n_entries / operation->n_names;
    for (uint32_t place = 0; place < n_places; place++)
        end_entries_of(operation, place, n_places);
    residuals_free(operation);
    tensor_work_clear(&operation->work);
    g_clear_error(&operation->error);
    g_free(operation->entries);
    g_free(operation);
}

void operations_wake(TensorExchange *exchange)
{
    if (tensor_sleepers_any_locked(&exchange->asleep))
        pthread_cond_broadcast(&exchange->changed);
    for (uint32_t i = 0; exchange->links != NULL && i < exchange->n_local; i++) {
        Waiter *const waiter = &exchange->waiters[i];

        if (!waiter->is_armed)
            continue;
        waiter->is_armed = false;
        call_end_part(&waiter->call, CALL_OK, 0);
    }
}

void operations_end(TensorExchange *exchange, Operation *ending)
{
    if (ending == NULL)
        return;
    for (Operation *next; ending != NULL; ending = next) {
        next = ending->next;
        end_operation(exchange, ending);
    }
    if (exchange->links == NULL && !tensor_sleepers_any(&exchange->asleep))
        return;
    pthread_mutex_lock(&exchange->lock);
    operations_wake(exchange);
    pthread_mutex_unlock(&exchange->lock);
}

void operations_end_entries(TensorExchange *exchange, GPtrArray *entries, const GError *error)
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

/* ---- the beginning ---- */

void operation_ready(TensorExchange *exchange, Operation *operation)
{
    if (operation->is_ready)
        return;
    operation->is_ready = true;
    operation->link.data = operation;
    g_queue_push_tail_link(&exchange->ready, &operation->link);
    atomic_fetch_add_explicit(&exchange->n_ready, 1, memory_order_relaxed);
}

static void unready(TensorExchange *exchange, Operation *operation)
{
    if (!operation->is_ready)
        return;
    operation->is_ready = false;
    g_queue_unlink(&exchange->ready, &operation->link);
    atomic_fetch_sub_explicit(&exchange->n_ready, 1, memory_order_relaxed);
}

/* Prepares the work of an operation of this node's workers alone. False: there is none to do. */
static bool prepare_work(const TensorSet *set, Operation *operation)
{
    const uint32_t n_names = operation->n_names;
    g_autofree TensorPart **parts = g_new0(TensorPart *, (size_t)n_names * set->n);

    for (uint32_t k = 0; k < n_names; k++)
        for (uint32_t i = 0; i < set->n_local; i++) {
            TensorEntry *const entry = operation->entries[k * set->n_local + i];

            if (entry != NULL)
                parts[k * set->n + set->first_local + i] = &entry->part;
        }
    return tensor_work_init(&operation->work, parts, n_names, set->n, &operation->error) &&
           operation->work.n_chunks > 0;
}

static bool prepare_flow(const TensorExchange *exchange, const TensorSet *set, Operation *operation,
                         FlowNodes *nodes)
{
    g_autofree TensorPart **parts = g_new0(TensorPart *, operation->n_entries);
    bool is_compressed = false;

    for (uint32_t i = 0; i < operation->n_entries; i++)
        if (operation->entries[i] != NULL) {
            parts[i] = &operation->entries[i]->part;
            is_compressed = parts[i]->request.reduce.compression != RUBATO_COMPRESSION_NONE;
        }
    const bool has_memory = !is_compressed || residuals_take(set, operation);
    nodes->plan.residuals = operation->residuals;
    nodes->plan.number = operation->number;
    nodes->plan.parts = parts;
    nodes->plan.n_tensors = operation->n_names;
    const bool by_round = (operation->number & TENSOR_ROUND_NUMBER) != 0;
    if ((by_round ? exchange->has_round_cut : exchange->n_cuts > 0) &&
        nodes->plan.n_asking == exchange->n_workers)
        nodes->plan.cutovers = by_round ? &exchange->round_cut : &exchange->cutovers;
    nodes->plan.was_sent = by_round && operation->number == exchange->ahead;
    nodes->plan.carrier = &exchange->links->carrier;
    nodes->plan.user = exchange->user;
    operation->flow = tensor_flow_new(&nodes->plan);
    if (!has_memory) {
        tensor_flow_fail_here(operation->flow, NULL);
        operation->error = g_error_copy(tensor_flow_error(operation->flow));
    }
    return !tensor_flow_has_ended(operation->flow);
}

static bool is_barrier(const Operation *operation)
{
    for (uint32_t i = 0; i < operation->n_entries; i++)
        if (operation->entries[i] != NULL)
            return operation->entries[i]->part.request.operation == TENSOR_BARRIER;
    return true;
}

/* Whether the thread that decided the operation does its work, too: it would take longer to hand it
 * to another. All its workers wait on this node, and the thread is a worker. The end of a ticket
 * runs its owner's code, and so is left to the threads that wait. */
static bool is_small(const TensorExchange *exchange, const Operation *operation)
{
    if (exchange->links != NULL || operation->work.n_chunks > 1)
        return false;
    for (uint32_t i = 0; i < operation->n_entries; i++)
        if (operation->entries[i] != NULL && operation->entries[i]->is_async)
            return false;
    return true;
}

Operation *operation_begin(TensorExchange *exchange, const Decided *decided, Operation **ending)
{
    Operation *const operation = g_new0(Operation, 1);
    const TensorSet *const set = decided->set;
    bool runs = false;
    FlowNodes nodes = { .plan = { 0 } };

    operation->number = decided->number;
    operation->entries = decided->entries;
    operation->n_names = decided->n_names;
    operation->n_entries = decided->n_names * set->n_local;
    operation->error = decided->error;
    operation->decided_ns = timeline_now(exchange->place.timeline);
    if (exchange->place.tuning != NULL && tensor_tuning_measures(exchange->place.tuning))
        operation->tuned_ns = monotonic_ns();
    if (decided->error == NULL && exchange->links != NULL)
        flow_nodes_find(exchange, set, decided->asked, &nodes);
    if (decided->error == NULL && nodes.plan.n_nodes < 2)
        runs = prepare_work(set, operation);
    else if (decided->error == NULL && !is_barrier(operation))
        runs = prepare_flow(exchange, set, operation, &nodes);
    flow_nodes_clear(&nodes);
    operation->is_small = runs && is_small(exchange, operation);
    if (!runs || operation->is_small) {
        operation->next = *ending;
        *ending = operation;
        return NULL;
    }
    if (operation->flow != NULL)
        return operation;
    operation_ready(exchange, operation);
    operations_wake(exchange);
    return NULL;
}

static void expect(const TensorExchange *exchange, bool expects)
{
    if (exchange->links->expect != NULL)
        exchange->links->expect(exchange->user, expects);
}

void operation_enlist(TensorExchange *exchange, Operation *operation)
{
    g_hash_table_insert(exchange->running, &operation->number, operation);
    if (g_hash_table_size(exchange->running) == 1)
        expect(exchange, true);
}

static void delist(TensorExchange *exchange, Operation *operation)
{
    arrivals_revoke(operation); /* its calls end next, and their arrays are the workers' again */
    g_hash_table_remove(exchange->running, &operation->number);
    if (g_hash_table_size(exchange->running) == 0)
        expect(exchange, false);
}

/* ---- the work ---- */

/* An operation with a flow has succeeded. */
static void note_time(TensorExchange *exchange, const Operation *operation)
{
    TensorWay way;
    const uint32_t size_class = tensor_flow_class(operation->flow, &way);

    if (operation->tuned_ns == 0 || size_class == TENSOR_CLASSES ||
        !tensor_tuning_note(exchange->place.tuning, size_class, way,
                            (uint64_t)(monotonic_ns() - operation->tuned_ns)))
        return;
    exchange->wants_cutovers = true;
    exchange->wanted_cutovers = tensor_tuning_cutovers(exchange->place.tuning);
}

/* Ends the operation if nothing of it is left and no thread is at it. Releases the lock meanwhile.
 * Returns whether it has ended. */
static bool end_if_done(TensorExchange *exchange, Operation *operation)
{
    const bool is_done = operation->flow == NULL
                             ? operation->n_done == operation->work.n_chunks
                             : operation->n_running == 0 && tensor_flow_has_ended(operation->flow);

    if (!is_done)
        return false;
    unready(exchange, operation);
    if (operation->flow != NULL) {
        const GError *const error = tensor_flow_error(operation->flow);

        delist(exchange, operation);
        if (error != NULL)
            operation->error = g_error_copy(error);
        else
            residuals_give_back(exchange, operation);
        if (error == NULL)
            note_time(exchange, operation);
    }
    pthread_mutex_unlock(&exchange->lock);
    operations_end(exchange, operation);
    pthread_mutex_lock(&exchange->lock);
    return true;
}

static bool is_over(void *data)
{
    /* relaxed: asked again and again */
    return atomic_load_explicit(&((TensorExchange *)data)->is_cancelled, memory_order_relaxed);
}

/* The operation that is sent. It goes on: a thread is at one of its steps. */
typedef struct {
    TensorExchange *exchange;
    const Operation *operation;
} Sending;

static void say_full(const Sending *sending, uint32_t node, double waited_s)
{
    TensorExchange *const exchange = sending->exchange;
    const Operation *const operation = sending->operation;
    const TensorEntry *entry = NULL;

    pthread_mutex_lock(&exchange->lock);
    for (uint32_t i = 0; i < operation->n_entries && entry == NULL; i++)
        entry = operation->entries[i];
    if (entry != NULL)
        g_message("%s %s of task %s waits for node %u to take in what was sent to it, last heard "
                  "%.1f s ago (for %.1f s so far)",
                  tensor_operation_name(entry->part.request.operation), entry->name,
                  exchange->place.task, exchange->place.node_ids[node],
                  exchange->links->silence_s(exchange->user, node), waited_s);
    pthread_mutex_unlock(&exchange->lock);
}

static void wait_room(void *data, uint32_t node)
{
    const Sending *const sending = data;
    TensorExchange *const exchange = sending->exchange;
    StallClock clock;

    stall_clock_start(&clock, exchange->place.stall_ms);
    while (!exchange->links->wait_room(exchange->user, node, is_over, exchange,
                                       stall_clock_left_ms(&clock)))
        if (stall_clock_strikes(&clock))
            say_full(sending, node, stall_clock_s(&clock));
}

typedef enum { PATIENCE_NONE, PATIENCE_ROOM } Patience;

/* Does a step of a flow. Returns whether the operation has ended. */
static bool do_step(TensorExchange *exchange, Operation *operation, TensorStep *step,
                    Patience patience)
{
    operation->n_running++;
    operation_time_work(exchange, operation);
    if (!tensor_flow_has_step(operation->flow))
        unready(exchange, operation);
    pthread_mutex_unlock(&exchange->lock);
    if (patience == PATIENCE_ROOM)
        tensor_flow_each_target(operation->flow, step, wait_room,
                                &(Sending){ exchange, operation });
    const bool ok = tensor_flow_do(operation->flow, step);
    pthread_mutex_lock(&exchange->lock);
    operation->n_running--;
    tensor_flow_did(operation->flow, step, ok);
    if (end_if_done(exchange, operation))
        return true;
    if (tensor_flow_has_step(operation->flow))
        operation_ready(exchange, operation);
    if (tensor_flow_has_long_steps(operation->flow))
        operations_wake(exchange);
    return false;
}

/* If all chunks of a round are done and there is another one, it begins. Nobody else is at the
 * operation then, so the lock may be released meanwhile. */
static void begin_next_round(TensorExchange *exchange, Operation *operation)
{
    if (operation->n_done < operation->work.n_chunks || operation->work.dots == NULL)
        return;
    pthread_mutex_unlock(&exchange->lock);
    const bool goes_on = tensor_work_next_round(&operation->work);
    pthread_mutex_lock(&exchange->lock);
    if (!goes_on)
        return;
    operation->next_chunk = operation->n_done = 0;
    operation_ready(exchange, operation);
    operations_wake(exchange);
}

static void do_chunk(TensorExchange *exchange, Operation *operation)
{
    const uint32_t chunk = operation->next_chunk++;

    operation_time_work(exchange, operation);
    if (operation->next_chunk == operation->work.n_chunks)
        unready(exchange, operation);
    pthread_mutex_unlock(&exchange->lock);
    tensor_work_do(&operation->work, chunk);
    pthread_mutex_lock(&exchange->lock);
    operation->n_done++;
    begin_next_round(exchange, operation);
    end_if_done(exchange, operation);
}

bool operation_work(TensorExchange *exchange)
{
    Operation *const operation = g_queue_peek_head(&exchange->ready);
    TensorStep step;

    if (operation == NULL)
        return false;
    if (operation->flow == NULL)
        do_chunk(exchange, operation);
    else if (tensor_flow_next(operation->flow, TENSOR_STEPS_ALL, &step))
        do_step(exchange, operation, &step, PATIENCE_ROOM);
    else
        unready(exchange, operation);
    return true;
}

/* What the thread that receives may do of an operation that is not small. It takes in what came
 * even if there is no room to send: that is what the other nodes wait for that have none. */
static TensorSteps steps_at_once(const TensorExchange *exchange)
{
    for (uint32_t node = 0; node < exchange->place.n_nodes; node++)
        if (exchange_has_node(exchange, node) && exchange->links->is_full(exchange->user, node))
            return TENSOR_STEPS_WITHOUT_ROOM;
    return TENSOR_STEPS_OF_MESSAGES;
}

void operation_work_at_once(TensorExchange *exchange, Operation *operation)
{
    const bool is_small = tensor_flow_is_small(operation->flow);
    TensorStep step;

    while (tensor_flow_next(operation->flow, is_small ? TENSOR_STEPS_ALL : steps_at_once(exchange),
                            &step))
        if (do_step(exchange, operation, &step, PATIENCE_NONE))
            return;
    if (end_if_done(exchange, operation) || !tensor_flow_has_step(operation->flow))
        return;
    operation_ready(exchange, operation);
    operations_wake(exchange);
}

void operation_fail(TensorExchange *exchange, Operation *operation, const GError *error,
                    Operation **ending)
{
    tensor_flow_fail(operation->flow, error);
    unready(exchange, operation);
    if (operation->n_running > 0)
        return; /* the thread that is at it ends it */
    delist(exchange, operation);
    operation->error = g_error_copy(tensor_flow_error(operation->flow));
    operation->next = *ending;
    *ending = operation;
}
