/* Snapshots that a worker asks for. The scheduler leads all nodes through one; the worker waits for
 * its end, or for the cut alone, and gets a ticket.
 *
 * Why the wait ends: the scheduler says how every snapshot ended (scheduler_snapshot.c), and if it
 * cannot any more, this node ends what it has asked for. A snapshot waits for workers in the middle
 * of a step alone, up to stall_ms, and this worker is in none.
 *
 * Threads: the worker's. */
#include <rubato/snapshot.h>

#include "engine/engine_private.h"
#include "engine/snapshot/snapshot_files.h"
#include "engine/task/task_run.h"
#include "io/net/stall_clock.h"
#include "io/store/snapshot_folder.h"
#include "tables/tickets/ticket.h"
#include "tables/worker.h"

static RubatoEngine *engine_of(const RubatoWorker *worker)
{
    return task_run_host(worker->engine_data)->user;
}

/* ---- what it asks for ---- */

/* The text of what it asks for; NULL with an error. (transfer full) */
static char *write_spec(RubatoWorker *worker, const RubatoSnapshotSpec *spec, uint64_t *seed,
                        GError **error)
{
    if (!worker_check_owner(worker, error))
        return NULL;
    if (worker->is_in_step) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "worker %u of task %s asks for a snapshot in the middle of a step, where none "
                    "cuts it: ask before rubato_worker_begin_step or after rubato_worker_end_step",
                    worker->rank, worker->task);
        return NULL;
    }
    if (!snapshot_folder_draw_seed(seed, error))
        return NULL;
    return snapshot_write_ask(engine_of(worker), spec, CHANGES_FOR_SNAPSHOTS, spec->tables, error);
}

/* ---- blocking, or with a ticket ---- */

static void say_stalled(void *server, const Call *call, double waited_s)
{
    const RubatoWorker *const worker = server;

    (void)call;
    g_message("worker %u waits until a snapshot is written (for %.1f s so far)", worker->rank,
              waited_s);
}

static void wait_for(void *server, Call *call)
{
    RubatoWorker *const worker = server;
    StallClock clock;

    stall_clock_start(&clock, task_run_host(worker->engine_data)->stall_ms);
    while (!call_wait(call, stall_clock_left_ms(&clock)))
        if (stall_clock_strikes(&clock))
            say_stalled(worker, call, stall_clock_s(&clock));
}

static bool take_once(RubatoWorker *worker, const RubatoSnapshotSpec *spec, uint64_t *number,
                      GError **error)
{
    SnapshotAsk ask = { .number = 0 };
    Call call;

    g_autofree char *text = write_spec(worker, spec, &ask.seed, error);
    if (text == NULL)
        return false;
    call_begin(&call, NULL);
    call_add_parts(&call, 1);
    ask.call = &call;
    ask.spec = text;
    ask.epoch = task_run_epoch(worker->engine_data);
    snapshot_asks_begin(&engine_of(worker)->snapshot_asks, &ask);
    call_sent(&call);
    wait_for(worker, &call);
    if (ask.failure != NULL) {
        g_propagate_error(error, ask.failure);
        return false;
    }
    if (number != NULL)
        *number = ask.written;
    return true;
}

bool rubato_worker_snapshot(RubatoWorker *worker, const RubatoSnapshotSpec *spec, uint64_t *number,
                            GError **error)
{
    GError *fault = NULL;

    g_return_val_if_fail(worker != NULL && spec != NULL, false);
    for (uint32_t n_tries = 1; !take_once(worker, spec, number, &fault); n_tries++) {
        if (!snapshot_goes_again(engine_of(worker), spec, n_tries, fault)) {
            g_propagate_error(error, fault);
            return false;
        }
        g_clear_error(&fault);
    }
    return true;
}

/* One with a ticket. */
typedef struct {
    SnapshotAsk ask; /* its spec is owned */
    uint64_t *number;
    char *text;
} Request;

static GError *end_request(void *data)
{
    Request *const request = data;
    GError *const failure = request->ask.failure;

    if (failure == NULL && request->number != NULL)
        *request->number = request->ask.written;
    g_free(request->text);
    g_free(request);
    return failure;
}

RubatoTicket rubato_worker_snapshot_async(RubatoWorker *worker, const RubatoSnapshotSpec *spec,
                                          uint64_t *number, const RubatoRequestOptions *options,
                                          GError **error)
{
    TicketOutside outside = {
        .wait = wait_for, .say_stalled = say_stalled, .server = worker, .end = end_request
    };
    RubatoTicket ticket;
    uint64_t seed;
    Call *call, cut;

    g_return_val_if_fail(worker != NULL && spec != NULL, 0);
    if (!snapshot_check_once(spec, error))
        return 0;
    g_autofree char *text = write_spec(worker, spec, &seed, error);
    if (text == NULL)
        return 0;
    Request *const request = g_new0(Request, 1);

    outside.stall_ms = task_run_host(worker->engine_data)->stall_ms;
    outside.request = request;
    ticket = ticket_start_outside(worker->tickets, &outside, options, &call, error);
    if (ticket == 0) {
        g_free(request);
        return 0;
    }
    request->number = number;
    request->text = g_steal_pointer(&text);
    request->ask = (SnapshotAsk){ .call = call,
                                  .spec = request->text,
                                  .cut = &cut,
                                  .seed = seed,
                                  .epoch = task_run_epoch(worker->engine_data) };
    call_begin(&cut, NULL);
    call_add_parts(&cut, 1);
    snapshot_asks_begin(&engine_of(worker)->snapshot_asks, &request->ask);
    call_sent(call); /* the request may be gone */
    call_sent(&cut);
    wait_for(worker, &cut);
    return ticket;
}
