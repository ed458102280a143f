/* The workers of a task on this node: their threads, their barriers, and how they retire.
 *
 * A barrier is passed in three steps. The last worker of the node to reach it, or to retire while
 * the others wait in it, fences. It then says ARRIVE. When all nodes have said so, the scheduler
 * releases the round. So a request after a barrier sees everything that was sent before the
 * barrier. If lost workers are to be replaced, ARRIVE also tells the clocks with which the node's
 * workers came, so that those in their place do not wait in barriers that were passed. If the run
 * has only one node, the last worker releases the round itself. It looks first whether a worker has
 * failed: the scheduler may not have handled that message yet, and a failed task has no more
 * barriers.
 *
 * Threads: each worker's own thread, from its function to its retirement. task_run_start_workers
 * and _join_workers: the thread of the engine's calls (a worker whose thread cannot be started
 * retires there). task_run_release: a thread that holds the engine's lock.
 *
 * Invariant, until the task is cancelled: one worker in each round finds that the barrier is
 * complete, and says ARRIVE for the node. */
#include "engine/collectives/negotiation/tensor_ranks.h"
#include "engine/control/told_barriers.h"
#include "engine/task/kept_rows.h"
#include "engine/task/task_run_private.h"
#include "engine/task/wait_text.h"
#include "io/net/caller.h"
#include "io/net/fence.h"
#include "io/net/log_sink.h"
#include "tables/worker.h"

/* How long a cancellation may go unnoticed while a part moves. */
#define MOVES_LOOK_MS 20

struct WorkerThread {
    RubatoWorker worker;
    RubatoTaskRun *run;
    Spinner spinner;       /* in barriers; the worker's own */
    _Atomic uint64_t came; /* the clock with which it came to its last barrier */
    uint64_t n_repeated;   /* barriers to which it comes again: the worker's own */
    pthread_t thread;
    bool started;
};

/* ---- what they tell the scheduler ---- */

/* A part that is on its way to another server misses clocks. They are told again before the map is
 * opened: so once it is open, each clock told before has come, or is on its way to the part. */
static void wait_for_moves(RubatoTaskRun *run)
{
    StallClock clock;

    stall_clock_start(&clock, run->host->stall_ms);
    for (size_t i = 0; i < run->n_tables; i++)
        while (!part_map_wait(run->tables[i]->map, MOVES_LOOK_MS) && !task_run_is_cancelled(run))
            if (stall_clock_strikes(&clock))
                g_message("task %s ends once a part of table %s has moved (for %.1f s so far)",
                          run->name, run->tables[i]->spec->name, stall_clock_s(&clock));
}

/* Waits until the maps of the tables with replicas are open. Returns the sum of their numbers: each
 * loss of a node makes it greater. */
static uint64_t wait_for_primaries(RubatoTaskRun *run)
{
    StallClock clock;
    uint64_t sum = 0;

    stall_clock_start(&clock, run->host->stall_ms);
    for (size_t i = 0; i < run->n_tables; i++) {
        PartMap *const map = run->tables[i]->map;

        if (part_map_n_replicated(map) == 0)
            continue;
        while (!part_map_wait(map, MOVES_LOOK_MS) && !task_run_is_cancelled(run))
            if (stall_clock_strikes(&clock))
                g_message("task %s waits until the parts of table %s that were on a lost node have "
                          "another primary (for %.1f s so far)",
                          run->name, run->tables[i]->spec->name, stall_clock_s(&clock));
        sum += part_map_number(map);
    }
    return sum;
}

/* The parts with replicas of all tables of the task. (transfer full) */
static FencedPart *list_replicated(const RubatoTaskRun *run, uint32_t *n)
{
    g_autoptr(GArray) parts = g_array_new(FALSE, FALSE, sizeof(FencedPart));

    for (size_t i = 0; i < run->n_tables; i++) {
        const Table *table = run->tables[i];

        for (uint32_t part = 0; part < part_map_n_replicated(table->map); part++)
            g_array_append_val(
                parts, ((FencedPart){ table->id, part, part_map_server(table->map, part) }));
    }
    *n = parts->len;
    return (FencedPart *)(void *)g_array_free(g_steal_pointer(&parts), FALSE);
}

/* The map was not closed for them. So a part may have got another primary after its old one was
 * looked up. Either this sees the new one, or the thread that has stored it finds the fence. */
static void send_fences_again(const RubatoTaskRun *run, const FencedPart *parts, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        for (size_t j = 0; j < run->n_tables; j++) {
            const Table *table = run->tables[j];
            const uint32_t server =
                table->id == parts[i].table ? part_map_server(table->map, parts[i].part) : 0;

            if (table->id == parts[i].table && server != parts[i].server)
                post_office_send_again(run->host->office, table->id, parts[i].part, server);
        }
}

static void wait_for_fence(const RubatoTaskRun *run, Call *call, Spinner *spinner)
{
    PostOffice *const office = run->host->office;
    StallClock clock;

    call->spinner = spinner;
    stall_clock_start(&clock, run->host->stall_ms);
    while (!call_wait(call, stall_clock_left_ms(&clock))) {
        uint32_t node = office->self;

        if (!stall_clock_strikes(&clock))
            continue;
        post_office_waits_for(office, call, &node);
        g_message("task %s waits for node %u to take in what was sent to its servers (for %.1f s "
                  "so far)",
                  run->name, office->node_ids[node], stall_clock_s(&clock));
    }
}

/* memory: what was sent since the last fence; NULL: all servers are asked. */
static void fence_once(const RubatoTaskRun *run, FenceMemory *memory, Spinner *spinner)
{
    PostOffice *const office = run->host->office;
    uint32_t n_parts;
    g_autofree FencedPart *parts = list_replicated(run, &n_parts);
    g_autofree Message *messages = g_new0(Message, office->n_servers + n_parts);
    Call call;

    fence_start(office, run->epoch, &run->cancelled, parts, n_parts, memory, messages, &call);
    send_fences_again(run, parts, n_parts);
    if (!call_has_ended(&call))
        wait_for_fence(run, &call, spinner);
    /* relaxed: the call has ended */
    if (memory != NULL && atomic_load_explicit(&call.status, memory_order_relaxed) == CALL_OK)
        fence_memory_note(memory);
}

/* Returns when every server has handled what this node's workers sent before, and replicas have it,
 * or the task is cancelled.
 *
 * If a node is lost meanwhile, this node tells its clocks to the new primaries before it opens its
 * maps. A fence may have come before these clocks, so another one follows behind them. If a new
 * primary has answered a fence, this node had closed its maps before: so here they are closed
 * still, or have another number. */
static void fence_with(RubatoTaskRun *run, FenceMemory *memory, Spinner *spinner)
{
    uint64_t maps = wait_for_primaries(run);

    for (bool again = true; again;) {
        const uint64_t before = maps;

        fence_once(run, memory, spinner);
        maps = wait_for_primaries(run);
        again = maps != before && !task_run_is_cancelled(run);
    }
}

static void fence(RubatoTaskRun *run, Spinner *spinner)
{
    fence_with(run, run->fenced, spinner);
}

/* If the node is lost after the clock was told to some part, the process in its place begins with
 * that clock (task_run_return). So all parts must have what the worker has added before: with
 * what they lack the new workers would begin earlier, and by then rows may show later clocks, so
 * that they would compute something else. */
void task_run_settle(void *data)
{
    RubatoTaskRun *const run = data;

    if (!task_run_is_cancelled(run))
        fence_with(run, NULL, NULL);
}

/* The lowest clock of a worker on any of the tables. */
static uint64_t lowest_clock(const RubatoTaskRun *run, uint32_t rank)
{
    uint64_t clock = run->n_tables == 0 ? 0 : UINT64_MAX;

    for (size_t i = 0; i < run->n_tables; i++) {
        const uint64_t of_table = clocks_of_worker(&run->clocks[i], rank);

        clock = MIN(clock, of_table);
    }
    return clock;
}

/* At which clocks the workers have come to the barrier, for those that may take their place.
 * (transfer full) */
static char *tell_clocks(const RubatoTaskRun *run)
{
    GString *const text = g_string_new(NULL);

    /* Relaxed: they have stored it before they came to the barrier or retired, and this thread
     * has completed it. In a cancelled task it does not matter what is told. */
    for (uint32_t i = 0; i < run->n_local; i++)
        told_barrier_write(text, atomic_load_explicit(&run->workers[i].came, memory_order_relaxed));
    return g_string_free(text, FALSE);
}

static void arrive(RubatoTaskRun *run, uint64_t round)
{
    const bool tells = run->replace_ms > 0 && round != CONTROL_NO_ROUND;
    g_autofree char *clocks = tells ? tell_clocks(run) : NULL;
    /* relaxed: with no round the node's barrier orders it; otherwise it does not count */
    const bool has_calls = atomic_load_explicit(&run->had_late_calls, memory_order_relaxed);

    task_run_tell_scheduler(
        run, &(Control){ .kind = CONTROL_ARRIVE,
                         .arrive = { .epoch = run->epoch,
                                     .round = round,
                                     .has_calls = has_calls && round == CONTROL_NO_ROUND,
                                     .clocks = clocks } });
}

/* All workers of this node that live are in the barrier. */
static void complete(RubatoTaskRun *run, uint64_t round)
{
    if (run->host->office->n_nodes > 1)
        arrive(run, round);
    else if (!task_run_is_cancelled(run) &&
             /* relaxed: the worker that has failed stored it before it retired */
             !atomic_load_explicit(&run->failed, memory_order_relaxed))
        barrier_release(&run->barrier, round);
}

static void report_failure(RubatoTaskRun *run, const RubatoWorker *worker, const GError *error)
{
    /* relaxed: barrier_retire orders it for the worker that completes the barrier */
    atomic_store_explicit(&run->failed, true, memory_order_relaxed);

    /* not by this node: the server's node has given up the task, and may be unable to say so */
    const bool cancelled = g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_CANCELLED);
    const bool starved = g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY);
    const uint32_t code = cancelled ? RUBATO_ERROR_CANCELLED
                          : starved ? RUBATO_ERROR_MEMORY
                                    : RUBATO_ERROR_TASK_FAILED;
    g_autofree char *text = g_strdup_printf(
        "task %s: worker %u (node %u) %s: %s", run->name, worker->rank, worker->node_id,
        cancelled ? "was cancelled" : "failed",
        error == NULL ? "its function returned false and set no error" : error->message);

    task_run_tell_scheduler(
        run,
        &(Control){ .kind = CONTROL_FAIL, .fail = { run->epoch, { CONTROL_CODE(code), text } } });
}

/* Tells the scheduler what it needs to find deadlocks. The worker's clocks do not change while it
 * waits, and it asks for nothing more. */
static void tell_wait(RubatoTaskRun *run, uint32_t rank, const ControlWaits *wait)
{
    g_autoptr(GArray) clocks = g_array_new(FALSE, FALSE, sizeof(WaitClock));
    g_autofree char *own_clocks = NULL, *asked = NULL;
    ControlWaits waits = *wait;

    for (size_t i = 0; i < run->n_tables; i++) {
        const WaitClock one = { run->routes[i].table, clocks_of_worker(&run->clocks[i], rank) };

        g_array_append_val(clocks, one);
    }
    own_clocks = wait_text_write(clocks);
    waits.epoch = run->epoch;
    waits.rank = rank;
    waits.own_clocks = own_clocks;
    if (waits.asked == NULL)
        waits.asked = asked = tensor_exchange_asked(run->tensors, rank);
    task_run_tell_scheduler(run, &(Control){ .kind = CONTROL_WAITS, .waits = waits });
}

void task_run_report_wait(void *data, uint32_t rank, uint32_t table, uint64_t clock)
{
    RubatoTaskRun *run = data;
    ControlWaits waits = { .what = CONTROL_WAIT_CLOCK,
                           .round = barrier_round(&run->barrier),
                           .table = table,
                           .clock = clock };

    for (size_t i = 0; i < run->n_tables; i++)
        if (run->routes[i].table == table)
            waits.table_name = run->routes[i].spec->name;
    tell_wait(run, rank, &waits);
}

void task_run_report_collective(void *data, uint32_t rank, const char *asked)
{
    RubatoTaskRun *run = data;

    tell_wait(run, rank,
              &(ControlWaits){ .what = CONTROL_WAIT_COLLECTIVE,
                               .round = barrier_round(&run->barrier),
                               .asked = asked });
}

/* ---- barriers ---- */

static bool is_in_barrier(const RubatoTaskRun *run, uint64_t round)
{
    return !barrier_is_passed(&run->barrier, round) && !task_run_is_cancelled(run);
}

/* Looks for a while whether the barrier is passed, as long as that has helped lately. On several
 * nodes it takes longer, and the threads that receive need the processor. */
static void look_in_barrier(RubatoTaskRun *run, Spinner *spinner, uint64_t round)
{
    SpinnerEnd end;

    if (run->host->office->n_nodes > 1 || !spinner_begin(spinner, &end))
        return;
    do
        for (unsigned i = 0; i < spinner->n_looks; i++) {
            if (!is_in_barrier(run, round)) {
                spinner_found(spinner);
                return;
            }
            spin_pause();
        }
    while (spinner_go_on(spinner, &end));
}

/* Sleeps in a barrier until it is passed, the task is cancelled, or a time has come. */
static void sleep_until(RubatoTaskRun *run, uint64_t round, int64_t end_ms)
{
    for (int64_t left_ms; is_in_barrier(run, round) && (left_ms = end_ms - monotonic_ms()) > 0;)
        barrier_sleep(&run->barrier, round, &run->cancelled, (int)MIN(left_ms, INT_MAX));
}

/* Sleeps until the barrier is passed or the task is cancelled. Reports a long wait, and logs it. */
static void sleep_in_barrier(RubatoTaskRun *run, uint32_t rank, uint64_t round)
{
    const ControlWaits waits = { .what = CONTROL_WAIT_BARRIER, .round = round };
    StallClock clock;

    stall_clock_start(&clock, run->host->stall_ms);
    sleep_until(run, round, MIN(clock.begun_ms + TABLE_CLIENT_REPORT_MS, clock.strike_ms));
    if (is_in_barrier(run, round))
        tell_wait(run, rank, &waits);
    while (is_in_barrier(run, round)) {
        sleep_until(run, round, clock.strike_ms);
        if (!stall_clock_strikes(&clock) || !is_in_barrier(run, round))
            continue;
        tell_wait(run, rank, &waits); /* what it has asked for may have been decided meanwhile */
        g_message("worker %u waits in a barrier of task %s with %u of this node's %u workers "
                  "that have not returned (for %.1f s so far)",
                  rank, run->name, barrier_n_waiting(&run->barrier), barrier_n_live(&run->barrier),
                  stall_clock_s(&clock));
    }
}

static bool barrier(RubatoWorker *worker, GError **error)
{
    RubatoTaskRun *run = worker->engine_data;
    WorkerThread *self = &run->workers[worker->local_rank];
    uint64_t round;

    if (self->n_repeated > 0 && !task_run_is_cancelled(run)) {
        self->n_repeated--;
        return true;
    }
    if (run->replace_ms > 0) /* relaxed: barrier_arrive orders it for the one that completes it */
        atomic_store_explicit(&self->came, lowest_clock(run, worker->rank), memory_order_relaxed);
    if (barrier_arrive(&run->barrier, &round)) {
        fence(run, &self->spinner);
        complete(run, round);
    }
    if (is_in_barrier(run, round))
        look_in_barrier(run, &self->spinner, round);
    if (is_in_barrier(run, round))
        sleep_in_barrier(run, worker->rank, round);
    if (task_run_is_cancelled(run)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CANCELLED, "task %s was cancelled",
                    run->name);
        return false;
    }
    return true;
}

void task_run_release(RubatoTaskRun *run, uint64_t round)
{
    barrier_release(&run->barrier, round);
}

/* ---- their threads ---- */

/* They live as long as the run. (transfer full) */
static GPtrArray *list_readers(RubatoTaskRun *run)
{
    GPtrArray *const readers = g_ptr_array_new();

    pthread_mutex_lock(&run->lock);
    for (guint i = 0; i < run->node_readers->len; i++)
        if (run->node_readers->pdata[i] != NULL)
            g_ptr_array_add(readers, run->node_readers->pdata[i]);
    pthread_mutex_unlock(&run->lock);
    return readers;
}

/* Where Adds are applied by their clock, those of the node's last steps may wait in servers for
 * slower workers, and snapshots are without them. The scheduler has heard which rows came with them
 * before it hears that the node's workers have ended: so it can say that if the node is lost. */
static void tell_last_steps(RubatoTaskRun *run)
{
    uint64_t lowest = RUBATO_CLOCK_RETIRED;

    for (size_t i = 0; i < run->n_tables; i++) {
        const uint64_t of_table = run->routes[i].traits->applies_by_clock
                                      ? task_run_lowest_clock(run, run->routes[i].table)
                                      : RUBATO_CLOCK_RETIRED;

        lowest = MIN(lowest, of_table);
    }
    g_autoptr(GPtrArray) readers = list_readers(run);
    for (guint i = 0; i < readers->len; i++)
        node_reader_tell_ended(readers->pdata[i], lowest);
}

/* A worker has ended: its function has returned, or never began. */
static void retire(RubatoTaskRun *run, WorkerThread *self)
{
    /* relaxed: barrier_retire orders it for the one that completes the barrier */
    atomic_store_explicit(&self->came, BARRIER_RETURNED, memory_order_relaxed);
    uint64_t round;
    bool completes_barrier;
    const bool last = barrier_retire(&run->barrier, &round, &completes_barrier) == 0;

    if (!last && !completes_barrier)
        return;
    if (last)
        wait_for_moves(run);
    if (!task_run_is_cancelled(run))
        fence(run, NULL);
    if (!last) {
        complete(run, round);
        return;
    }
    tell_last_steps(run);
    arrive(run, CONTROL_NO_ROUND);
}

/* Nothing is left of a worker. The last one of the node says so. Its fence came before calls for
 * which a worker has waited since, and parts may have moved meanwhile. */
static void leave(RubatoTaskRun *run)
{
    /* acq_rel: the last one sees what the others have stored */
    if (atomic_fetch_sub_explicit(&run->n_ending, 1, memory_order_acq_rel) > 1)
        return;
    if (atomic_load_explicit(&run->had_late_calls, memory_order_relaxed)) {
        wait_for_moves(run);
        if (!task_run_is_cancelled(run))
            fence(run, NULL);
    }
    task_run_workers_have_ended(run);
}

/* A worker has returned. Servers may still keep its calls of handlers. If one of these fails now,
 * nobody is left who could be told, so the task fails. */
static void end_calls(RubatoTaskRun *run, RubatoWorker *worker, bool ok)
{
    g_autoptr(GError) error = NULL;

    if (!worker_has_calls(worker))
        return;
    if (!worker_end_calls(worker, &error) && ok && !task_run_is_cancelled(run))
        report_failure(run, worker, error);
}

/* A set of those workers that live. */
static bool make_set(RubatoWorker *worker, const RubatoWorkerSet *set, GError **error)
{
    uint32_t id;

    if (rubato_worker_set_size(worker, 0) == worker->n_workers)
        return rubato_worker_make_set(worker, set->ranks, set->n, &id, error);
    g_autofree uint32_t *living = g_new(uint32_t, worker->n_workers);
    g_autofree uint32_t *ranks = g_new(uint32_t, set->n);
    const uint32_t n_living = rubato_worker_set_ranks(worker, 0, living, worker->n_workers);
    size_t n = 0;
    uint32_t place;

    for (size_t i = 0; i < set->n; i++)
        if (tensor_ranks_find(living, n_living, set->ranks[i], &place))
            ranks[n++] = set->ranks[i];
    if (n > 0)
        return rubato_worker_make_set(worker, ranks, n, &id, error);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "all of them are lost");
    return false;
}

/* All workers make them in the same order, and so with the ids 1, 2, and so on. Those in the place
 * of lost ones go on where these were. What fails by a loss is made again, on all nodes alike,
 * without the lost workers or with those in their place: until the last set is made, all of them
 * have been told of the same losses. */
static bool make_sets(const RubatoTaskRun *run, RubatoWorker *worker, GError **error)
{
    for (size_t i = tensor_exchange_n_made_before(run->tensors); i < run->n_sets; i++) {
        g_autoptr(GError) fault = NULL;
        bool ok;

        do {
            g_clear_error(&fault);
            ok = make_set(worker, &run->sets[i], &fault);
        } while (!ok && g_error_matches(fault, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST));
        if (ok)
            continue;
        g_propagate_prefixed_error(error, g_steal_pointer(&fault),
                                   "task %s, set %zu of its workers: ", run->name, i + 1);
        return false;
    }
    return true;
}

/* All in one step, so that a snapshot has a worker's end on all tables or on none: under a model
 * that applies Adds by their clock, other workers' Adds may have waited for it. */
static void retire_clocks(RubatoTaskRun *run, RubatoWorker *worker)
{
    while (!worker->is_in_step && !task_run_is_cancelled(run))
        worker->is_in_step = step_gate_enter(run->steps, worker->rank, MOVES_LOOK_MS);
    for (size_t i = 0; i < run->n_tables; i++)
        table_route_retire(&run->routes[i], worker->rank);
    task_run_look_retired(run); /* on the root it may be the last one */
}

/* Once a part has heard that the worker has retired, its function is not called again in another
 * process: nobody would tell what became of its blocks, and nobody would read those that it had
 * left. So the scheduler has heard that before any part may. If the node is lost in between,
 * another process repeats the worker's last clock, reads the same, and what it tells is known. */
static void settle_readers(RubatoTaskRun *run, RubatoWorker *worker)
{
    worker_close_readers(worker);
    g_autoptr(GPtrArray) readers = list_readers(run);
    for (guint i = 0; i < readers->len; i++)
        node_reader_end_worker(readers->pdata[i], worker->rank);
}

/* The worker has done all, and its file says so, also if the process is killed from now on. */
static void keep_history(const RubatoTaskRun *run, const RubatoWorker *worker)
{
    History *const history = run->host->history;

    if (history == NULL)
        return;
    for (size_t i = 0; i < run->n_tables; i++)
        if (worker->clients[i] != NULL)
            table_client_hand_over_history(worker->clients[i]);
    history_say(history, "done %u %u\n", run->epoch, worker->rank);
    history_flush(history);
}

static void name_worker(RubatoTaskRun *run, uint32_t rank)
{
    timeline_name(run->host->timeline, (TimelineActor){ run->epoch, rank }, run->name);
}

void task_run_name_workers(RubatoTaskRun *run)
{
    for (uint32_t i = 0; i < run->n_local; i++)
        name_worker(run, run->first_rank + i);
}

static void *work(void *user)
{
    WorkerThread *self = user;
    RubatoTaskRun *run = self->run;
    RubatoWorker *worker = &self->worker;
    g_autoptr(GError) error = NULL;
    thread_binding_bind_worker(run->host->binding, worker->local_rank);
    worker_begin(worker);
    if (timeline_is_on(run->host->timeline))
        name_worker(run, worker->rank);
    caller_place = CALLER_IN_TASK;
    caller_task = (CallerTask){ run->epoch, &run->cancelled };
    bool ok = make_sets(run, worker, &error) &&
              (worker->first_clock == RUBATO_CLOCK_RETIRED || /* the lost one had returned */
               run->function(worker, run->user_data, &error));
    caller_place = CALLER_OUTSIDE;
    caller_task = (CallerTask){ 0 };
    /* relaxed: it is only shown */
    atomic_store_explicit(&run->returned[worker->local_rank], true, memory_order_relaxed);

    /* it ends its step by returning */
    ok = ok && (!worker->is_in_step || kept_rows_end_step(worker, &error));
    /* after a cancellation every call fails: such a failure is not the cause */
    if (!ok && !(task_run_is_cancelled(run) &&
                 g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_CANCELLED)))
        report_failure(run, worker, error);
    /* Its clocks retire first: its open calls may wait for workers that wait for these clocks. */
    if (ok && run->replace_ms > 0) {
        settle_readers(run, worker);
        task_run_settle(run);
        keep_history(run, worker);
    }
    if (ok)
        retire_clocks(run, worker);
    if (worker->is_in_step)
        step_gate_leave(run->steps, worker->rank);
    /* Nothing may be written to its arrays any more, and nobody waits for its collectives. */
    tensor_exchange_leave(run->tensors, worker->rank);
    worker_close_readers(worker);
    worker_close_tables(worker);
    if (worker_has_calls(worker)) /* relaxed: retire and leave order it */
        atomic_store_explicit(&run->had_late_calls, true, memory_order_relaxed);
    retire(run, self);
    /* Not before: these calls may wait for workers that wait for this one in a barrier. */
    end_calls(run, worker, ok);
    worker_free_tables(worker);
    leave(run);
    return NULL;
}

static void start_worker(RubatoTaskRun *run, uint32_t local_rank)
{
    WorkerThread *thread = &run->workers[local_rank];
    const uint32_t rank = run->first_rank + local_rank;
    char name[16];

    *thread = (WorkerThread){
        .worker = { .id = ((uint64_t)run->epoch << 32) | rank,
                    .rank = rank,
                    .local_rank = local_rank,
                    .node_id = task_host_id(run->host),
                    .n_workers = run->n_workers,
                    .n_local_workers = run->n_local,
                    .task = run->name,
                    .routes = run->routes,
                    .n_routes = run->n_tables,
                    .helper = run->host->helper,
                    .tensors = run->tensors,
                    .timeline = run->host->timeline,
                    .epoch = run->epoch,
                    .cancelled = &run->cancelled,
                    .barrier = barrier,
                    .first_clock = run->first_clocks == NULL ? 0 : run->first_clocks[local_rank],
                    .engine_data = run },
        .run = run
    };
    atomic_init(&thread->came, 0);
    thread->n_repeated = run->repeated == NULL ? 0 : run->repeated[local_rank];
    spinner_init(&thread->spinner);
    spinner_share(&thread->spinner, run->n_local);
    thread->worker.clients = g_new0(TableClient *, run->n_tables + 1);
    thread->started = log_sink_start_thread(&thread->thread, work, thread) == 0;
    if (thread->started) {
        g_snprintf(name, sizeof name, "worker %u", rank);
        pthread_setname_np(thread->thread, name);
        return;
    }
    report_failure(run, &thread->worker,
                   &(GError){ .message = (char *)"its thread could not be started" });
    tensor_exchange_leave(run->tensors, rank);
    worker_close_tables(&thread->worker);
    retire(run, thread);
    worker_free_tables(&thread->worker);
    leave(run);
}

void task_run_start_workers(RubatoTaskRun *run)
{
    run->workers = g_new0(WorkerThread, run->n_local + 1);
    atomic_init(&run->n_ending, run->n_local);
    atomic_init(&run->had_late_calls, false);
    for (uint32_t i = 0; i < run->n_local; i++)
        start_worker(run, i);
    if (run->n_local == 0) {
        arrive(run, CONTROL_NO_ROUND);
        task_run_workers_have_ended(run);
    }
}

void task_run_join_workers(RubatoTaskRun *run)
{
    for (uint32_t i = 0; i < run->n_local; i++)
        if (run->workers[i].started)
            pthread_join(run->workers[i].thread, NULL);
}
