/* A worker's questions about itself, and the tables that it has opened; the end
 * of what it has left open. */
#include "tables/worker.h"

#include <string.h>

#include "io/data/deal/reader.h"
#include "tables/tickets/ticket.h"
#include "tables/worker_stats.h"

uint32_t rubato_worker_rank(const RubatoWorker *worker)
{
    return worker->rank;
}

uint32_t rubato_worker_local_rank(const RubatoWorker *worker)
{
    return worker->local_rank;
}

uint32_t rubato_worker_node(const RubatoWorker *worker)
{
    return worker->node_id;
}

uint32_t rubato_worker_n_workers(const RubatoWorker *worker)
{
    return worker->n_workers;
}

uint32_t rubato_worker_n_local_workers(const RubatoWorker *worker)
{
    return worker->n_local_workers;
}

uint64_t rubato_worker_id(const RubatoWorker *worker)
{
    return worker->id;
}

uint64_t rubato_worker_first_clock(const RubatoWorker *worker)
{
    return worker->first_clock;
}

void worker_begin(RubatoWorker *worker)
{
    worker->owner = caller_number();
    worker->n_forks = caller_n_forks();
    worker->tickets = tickets_new(worker->helper);
}

bool worker_check_owner(const RubatoWorker *worker, GError **error)
{
    if (worker->owner == caller_thread)
        return true;
    if (worker->n_forks != caller_n_forks())
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "worker %u of task %s belongs to the process that this one was forked from; "
                    "nothing of an engine works in a forked process",
                    worker->rank, worker->task);
    else
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "worker %u of task %s is used by another thread; its calls are for its own",
                    worker->rank, worker->task);
    return false;
}

bool rubato_worker_barrier(RubatoWorker *worker, GError **error)
{
    const uint64_t begun_ns = worker_stats_now_ns();

    g_return_val_if_fail(worker != NULL, false);
    if (!worker_check_owner(worker, error))
        return false;
    const bool passed = worker->barrier(worker, error);

    worker->n_barriers += passed;
    worker->barrier_wait_ns += worker_stats_now_ns() - begun_ns;
    if (timeline_is_on(worker->timeline))
        timeline_note_call(worker->timeline,
                           &(TimelineCall){ .actor = { worker->epoch, worker->rank },
                                            .what = "barrier",
                                            .begun_ns = begun_ns,
                                            .ended_ns = worker_stats_now_ns() });
    return passed;
}

/* The index of a table's route in the task; n_routes with RUBATO_ERROR_NOT_FOUND if the task does
 * not have the table. */
static size_t find_route(const RubatoWorker *worker, const char *table, GError **error)
{
    for (size_t i = 0; i < worker->n_routes; i++)
        if (strcmp(worker->routes[i].spec->name, table) == 0)
            return i;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND,
                "task %s does not use a table %s; name it in the task's tables", worker->task,
                table);
    return worker->n_routes;
}

/* The client on a route; NULL if there is no such route. */
static TableClient *open_client(RubatoWorker *worker, size_t route)
{
    if (route == worker->n_routes)
        return NULL;
    if (worker->clients[route] == NULL) {
        worker->clients[route] = table_client_new(&worker->routes[route], worker->rank);
        worker->clients[route]->tickets = worker->tickets;
        worker->clients[route]->clock = worker->first_clock;
    }
    return worker->clients[route];
}

bool rubato_worker_tune(RubatoWorker *worker, const char *table, RubatoHyper hyper, double value,
                        GError **error)
{
    TableClient *client;

    g_return_val_if_fail(worker != NULL && table != NULL, false);
    if (!worker_check_owner(worker, error))
        return false;
    client = open_client(worker, find_route(worker, table, error));
    return client != NULL && table_client_tune(client, hyper, value, error);
}

/* The client of the call's table; NULL: this thread is not the worker's, or the task has no such
 * table. */
static TableClient *client_of_call(RubatoWorker *worker, const RubatoHandlerCall *call,
                                   GError **error)
{
    return worker_check_owner(worker, error)
               ? open_client(worker, find_route(worker, call->table, error))
               : NULL;
}

static bool is_complete(const RubatoHandlerCall *call)
{
    return call != NULL && call->table != NULL && call->handler != NULL &&
           (call->arguments != NULL || call->n_argument_bytes == 0) &&
           (call->keys != NULL || call->n_keys == 0);
}

RubatoTicket rubato_worker_call_handler_async(RubatoWorker *worker, const RubatoHandlerCall *call,
                                              GBytes **result, const RubatoRequestOptions *options,
                                              GError **error)
{
    g_return_val_if_fail(worker != NULL && is_complete(call), 0);
    TableClient *const client = client_of_call(worker, call, error);

    return client == NULL ? 0 : ticket_start_handler(client, call, result, options, error);
}

bool rubato_worker_call_handler(RubatoWorker *worker, const RubatoHandlerCall *call,
                                GBytes **result, GError **error)
{
    g_return_val_if_fail(worker != NULL && is_complete(call), false);
    TableClient *const client = client_of_call(worker, call, error);

    return client != NULL && table_client_call(client, call, result, error);
}

bool rubato_worker_stats(const RubatoWorker *worker, const char *table, RubatoWorkerStats *stats,
                         GError **error)
{
    size_t first = 0, end;
    RubatoWorkerStats sum = { 0 };

    g_return_val_if_fail(worker != NULL && stats != NULL, false);
    end = worker->n_routes;
    if (table != NULL) {
        first = find_route(worker, table, error);
        if (first == worker->n_routes)
            return false;
        end = first + 1;
    } else {
        sum.n_barriers = worker->n_barriers;
        sum.barrier_wait_ns = worker->barrier_wait_ns;
    }
    for (size_t i = first; i < end; i++)
        if (worker->clients[i] != NULL)
            table_client_add_stats(worker->clients[i], &sum);
    *stats = sum;
    return true;
}

bool rubato_worker_cancelled(const RubatoWorker *worker)
{
    return atomic_load_explicit(worker->cancelled, memory_order_seq_cst);
}

static bool fail_shape(const char *table, RubatoShape shape, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_TYPE, "table %s has rows of %s", table,
                shape == RUBATO_SHAPE_RAGGED
                    ? "one length; open it by a handle for those, such as RubatoKVTable"
                    : "different lengths; open it as a RubatoRaggedTable");
    return false;
}

TableClient *worker_open_table(RubatoWorker *worker, const char *table, RubatoDtype dtype,
                               GError **error)
{
    return worker_open_shape(worker, table, dtype, RUBATO_SHAPE_EVEN, error);
}

TableClient *worker_open_shape(RubatoWorker *worker, const char *table, RubatoDtype dtype,
                               RubatoShape shape, GError **error)
{
    if (!worker_check_owner(worker, error))
        return NULL;
    const size_t i = find_route(worker, table, error);

    if (i < worker->n_routes && worker->routes[i].spec->shape != shape) {
        fail_shape(table, shape, error);
        return NULL;
    }

    if (i < worker->n_routes && worker->routes[i].spec->dtype != dtype) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_TYPE,
                    "table %s holds %s; it cannot be opened as %s", table,
                    rubato_dtype_name(worker->routes[i].spec->dtype), rubato_dtype_name(dtype));
        return NULL;
    }
    return open_client(worker, i);
}

bool worker_has_calls(const RubatoWorker *worker)
{
    for (size_t i = 0; i < worker->n_routes; i++)
        if (worker->clients[i] != NULL && worker->clients[i]->kept_calls != NULL)
            return true;
    return false;
}

bool worker_end_calls(RubatoWorker *worker, GError **error)
{
    GError *first = NULL;

    for (size_t i = 0; i < worker->n_routes; i++)
        if (worker->clients[i] != NULL)
            (void)table_client_end_calls(worker->clients[i], first == NULL ? &first : NULL);
    if (first == NULL)
        return true;
    g_propagate_error(error, first);
    return false;
}

void worker_close_tables(RubatoWorker *worker)
{
    for (size_t i = 0; i < worker->n_routes; i++)
        if (worker->clients[i] != NULL)
            table_handles_finish(worker->clients[i], worker->task);
    if (worker->tickets != NULL)                        /* its thread was started */
        tickets_wait_for_handle(worker->tickets, NULL); /* calls of handlers have no handle */
}

void worker_free_tables(RubatoWorker *worker)
{
    for (size_t i = 0; i < worker->n_routes; i++)
        table_client_free(worker->clients[i]);
    g_clear_pointer(&worker->clients, g_free);
    g_clear_pointer(&worker->tickets, tickets_free);
}

void worker_close_readers(RubatoWorker *worker)
{
    const unsigned n = readers_finish(&worker->readers);
    g_autofree char *how_many =
        n == 1 ? g_strdup("an open reader") : g_strdup_printf("%u open readers", n);

    if (n > 0)
        g_warning("worker %u of task %s has returned with %s; call rubato_reader_free() before, or "
                  "declare the reader g_autoptr(RubatoReader)",
                  worker->rank, worker->task, how_many);
}

/* ---- tickets ---- */

bool rubato_worker_wait(RubatoWorker *worker, RubatoTicket ticket, GError **error)
{
    g_return_val_if_fail(worker != NULL, false);
    if (!worker_check_owner(worker, error))
        return false;
    return tickets_wait(worker->tickets, worker->rank, ticket, error);
}

bool rubato_worker_wait_for(RubatoWorker *worker, RubatoTicket ticket, uint32_t timeout_ms,
                            GError **error)
{
    g_return_val_if_fail(worker != NULL, false);
    return worker_check_owner(worker, error) &&
           tickets_wait_for(worker->tickets, worker->rank, ticket, timeout_ms, error);
}

bool rubato_worker_wait_any(RubatoWorker *worker, const RubatoTicket *tickets, size_t n,
                            size_t *ended, GError **error)
{
    g_return_val_if_fail(worker != NULL && (tickets != NULL || n == 0) && ended != NULL, false);
    if (!worker_check_owner(worker, error))
        return false;
    return tickets_wait_any(worker->tickets, worker->rank, tickets, n, ended, error);
}

bool rubato_worker_wait_all(RubatoWorker *worker, GError **error)
{
    g_return_val_if_fail(worker != NULL, false);
    return worker_check_owner(worker, error) && tickets_wait_all(worker->tickets, error);
}

bool rubato_worker_poll(RubatoWorker *worker, RubatoTicket ticket)
{
    g_return_val_if_fail(worker != NULL, false);
    return tickets_poll(worker->tickets, ticket);
}

/* A scope has no state but its worker, and it ends before the worker does. */
RubatoTicketScope *rubato_worker_ticket_scope(RubatoWorker *worker)
{
    g_return_val_if_fail(worker != NULL, NULL);
    return (RubatoTicketScope *)worker;
}

void rubato_ticket_scope_end(RubatoTicketScope *scope)
{
    if (scope != NULL)
        (void)rubato_worker_wait_all((RubatoWorker *)scope, NULL);
}
