/* RubatoSparseKVClientTable: iterations whose keys are announced ahead.
 *
 * A worker at clock c has announced its iterations up to c + ahead - 1; `ahead` is the table's
 * speculation. Why that is enough: a reader is at most staleness + speculation clocks ahead of the
 * slowest worker, and its Get depends on iterations at least staleness + 1 clocks before its own.
 * So a server has to know the iterations c .. c + speculation - 1 of a worker at clock c. */
#include <rubato/sparse_kv_client_table.h>

#include "tables/tickets/ticket.h"
#include "tables/worker.h"

typedef struct {
    RubatoKey *keys; /* a copy, so that the callback may reuse its own */
    size_t n;
} ToldIteration;

struct RubatoSparseKVClientTable {
    TableHandle handle;
    RubatoIterationFunc next;
    void *user_data;
    const RubatoIteration *iterations; /* of the array form */
    size_t n_iterations;

    uint64_t first; /* iteration: 0, unless the worker is in the place of a lost one */
    GArray *told;   /* of ToldIteration: iterations first_told, first_told + 1, … */
    uint64_t first_told;
    uint64_t n_known;  /* how many iterations have been asked for */
    uint64_t n_told;   /* how many of them the servers were told */
    bool is_exhausted; /* there are no more, */
    bool end_is_told;  /* and the servers know it */
    uint64_t n_gets;   /* the iteration that the next Get begins */
    bool has_ended;    /* the one before it, by its clock */
};

static bool next_of_array(uint64_t iteration, RubatoIteration *keys, void *user_data)
{
    const RubatoSparseKVClientTable *table = user_data;

    if (iteration >= table->n_iterations)
        return false;
    *keys = table->iterations[iteration];
    return true;
}

static void clear_told(void *told)
{
    g_free(((ToldIteration *)told)->keys);
}

static ToldIteration *told_at(const RubatoSparseKVClientTable *table, uint64_t iteration)
{
    return &g_array_index(table->told, ToldIteration, iteration - table->first_told);
}

static bool servers_want(const RubatoSparseKVClientTable *table)
{
    return table->handle.client->route->spec->speculation > 0;
}

/* Asks for the next iteration, if there is one. */
static bool ask_next(RubatoSparseKVClientTable *table, GError **error)
{
    RubatoIteration next = { 0 };

    if (!table->next(table->n_known, &next, table->user_data)) {
        table->is_exhausted = true;
        return true;
    }
    if (!table_client_check(table->handle.client, next.keys, next.n, error))
        return false;
    g_array_append_val(
        table->told, ((ToldIteration){ g_memdup2(next.keys, next.n * sizeof *next.keys), next.n }));
    table->n_known++;
    return true;
}

/* Tells iterations until `end` of them have been told, or there are no more. */
static bool tell_until(RubatoSparseKVClientTable *table, uint64_t end, GError **error)
{
    TableClient *client = table->handle.client;

    while (table->n_told < end) {
        if (table->n_told == table->n_known && !table->is_exhausted && !ask_next(table, error))
            return false;
        if (table->n_told == table->n_known) {
            const bool tells = servers_want(table) && !table->end_is_told;

            table->end_is_told = true;
            return !tells || table_client_announce(client, RUBATO_CLOCK_RETIRED, NULL, 0, error);
        }
        const ToldIteration *next = told_at(table, table->n_told);

        if (servers_want(table) &&
            !table_client_announce(client, table->n_told, next->keys, next->n, error))
            return false;
        table->n_told++;
    }
    return true;
}

static uint64_t ahead(const RubatoSparseKVClientTable *table)
{
    return MAX(1, table->handle.client->route->spec->speculation);
}

static RubatoSparseKVClientTable *open_table(RubatoWorker *worker, const char *name,
                                             RubatoDtype dtype, GError **error)
{
    RubatoSparseKVClientTable *table;
    TableClient *client = worker_open_table(worker, name, dtype, error);

    if (client == NULL)
        return NULL;
    if (client->announces || client->clock > rubato_worker_first_clock(worker)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "table %s: its clock has begun already; a worker opens one "
                    "RubatoSparseKVClientTable on a table, before it clocks it in any other way",
                    name);
        return NULL;
    }
    client->announces = true;
    table = g_new0(RubatoSparseKVClientTable, 1);
    table->first = table->first_told = client->clock;
    table->n_known = table->n_told = table->n_gets = table->first;
    table_handle_open(&table->handle, client, "RubatoSparseKVClientTable",
                      "rubato_sparse_kv_client_table_free()");
    table->told = g_array_new(FALSE, FALSE, sizeof(ToldIteration));
    g_array_set_clear_func(table->told, clear_told);
    return table;
}

RubatoSparseKVClientTable *rubato_worker_open_sparse_kv_client_table_with(
    RubatoWorker *worker, const char *name, RubatoDtype dtype, RubatoIterationFunc next,
    void *user_data, GError **error)
{
    g_autoptr(RubatoSparseKVClientTable) table = NULL;

    g_return_val_if_fail(worker != NULL && name != NULL && next != NULL, NULL);
    table = open_table(worker, name, dtype, error);
    if (table == NULL)
        return NULL;
    table->next = next;
    table->user_data = user_data;
    if (!tell_until(table, ahead(table), error))
        return NULL;
    return g_steal_pointer(&table);
}

RubatoSparseKVClientTable *rubato_worker_open_sparse_kv_client_table(
    RubatoWorker *worker, const char *name, RubatoDtype dtype, const RubatoIteration *iterations,
    size_t n_iterations, GError **error)
{
    g_autoptr(RubatoSparseKVClientTable) table = NULL;

    g_return_val_if_fail(worker != NULL && name != NULL, NULL);
    g_return_val_if_fail(iterations != NULL || n_iterations == 0, NULL);
    table = open_table(worker, name, dtype, error);
    if (table == NULL)
        return NULL;
    table->iterations = iterations;
    table->n_iterations = n_iterations;
    table->next = next_of_array;
    table->user_data = table;
    if (!tell_until(table, ahead(table), error))
        return NULL;
    return g_steal_pointer(&table);
}

void rubato_sparse_kv_client_table_free(RubatoSparseKVClientTable *table)
{
    if (table == NULL)
        return;
    table_handle_close(&table->handle);
    g_array_unref(table->told);
    g_free(table);
}

uint32_t rubato_sparse_kv_client_table_width(const RubatoSparseKVClientTable *table)
{
    g_return_val_if_fail(table != NULL, 0);
    return table->handle.client->route->spec->width;
}

uint64_t rubato_sparse_kv_client_table_clock_value(const RubatoSparseKVClientTable *table)
{
    g_return_val_if_fail(table != NULL, 0);
    return table->handle.client->clock;
}

bool rubato_sparse_kv_client_table_next(RubatoSparseKVClientTable *table, RubatoIteration *keys)
{
    g_return_val_if_fail(table != NULL, false);

    const ToldIteration *told;

    if (!tell_until(table, table->n_gets + 1, NULL) || table->n_gets >= table->n_told)
        return false;
    told = told_at(table, table->n_gets);
    *keys = (RubatoIteration){ told->keys, told->n };
    return true;
}

static void forget_first(RubatoSparseKVClientTable *table)
{
    g_array_remove_index(table->told, 0);
    table->first_told++;
}

/* Ends the iteration before, if there was one, and begins the next. NULL with an error. */
static const ToldIteration *begin_iteration(RubatoSparseKVClientTable *table, GError **error)
{
    if (!tell_until(table, table->n_gets + 1, error))
        return NULL;
    if (table->n_gets >= table->n_told) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_RANGE,
                    "table %s: all %" G_GUINT64_FORMAT " iterations have been read",
                    table_handle_spec(&table->handle)->name, table->n_told);
        return NULL;
    }
    if (table->n_gets > table->first) {
        if (!table->has_ended && !table_client_clock(table->handle.client, error))
            return NULL;
        table->has_ended = false;
        forget_first(table);
    }
    if (!tell_until(table, table->n_gets + ahead(table), error))
        return NULL;
    return told_at(table, table->n_gets);
}

/* The iteration that the last Get began. NULL with an error if there was none. */
static const ToldIteration *present_iteration(const RubatoSparseKVClientTable *table,
                                              GError **error)
{
    if (table->n_gets > table->first && !table->has_ended)
        return told_at(table, table->n_gets - 1);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "table %s: an Add or a clock before the %s Get belongs to no iteration",
                table_handle_spec(&table->handle)->name,
                table->n_gets > table->first ? "next" : "first");
    return NULL;
}

/* Whether the next iteration is the only one that servers are to be told now. */
static bool tells_next_alone(const RubatoSparseKVClientTable *table)
{
    return servers_want(table) && ahead(table) == 1 && table->n_gets > table->first &&
           !table->has_ended && table->n_told == table->n_gets;
}

/* Begins the next iteration, whose keys are known, at all parts at once. False: it has not
 * begun. */
static bool get_jointly(RubatoSparseKVClientTable *table, void *values)
{
    const ToldIteration *const told = told_at(table, table->n_gets);

    if (!table_client_iterate_jointly(table->handle.client, told->keys, told->n, values))
        return false;
    forget_first(table);
    table->n_told++;
    table->n_gets++;
    return true;
}

/* The same beside owners, or by asking servers. Its keys have been noted, and it has begun. */
static bool get_late(RubatoSparseKVClientTable *table, void *values, GError **error)
{
    const ToldIteration *told;

    forget_first(table);
    told = told_at(table, table->n_gets);
    table->n_told++;
    if (!table_client_get_late(table->handle.client, told->keys, told->n, values, error))
        return false;
    table->n_gets++;
    return true;
}

/* The same by one message to each part. */
static bool get_in_one(RubatoSparseKVClientTable *table, uint32_t n_slices, void *values,
                       GError **error)
{
    const ToldIteration *told;

    forget_first(table);
    told = told_at(table, table->n_gets);
    table->n_told++;
    if (!table_client_iterate(table->handle.client, told->keys, told->n, n_slices, values, error))
        return false;
    table->n_gets++;
    return true;
}

bool rubato_sparse_kv_client_table_get(RubatoSparseKVClientTable *table, void *values,
                                       GError **error)
{
    const ToldIteration *told;
    uint32_t n_slices;

    g_return_val_if_fail(table != NULL, false);
    if (tells_next_alone(table)) {
        if (table->n_known == table->n_gets && !table->is_exhausted && !ask_next(table, error))
            return false;
        if (values != NULL && table->n_known > table->n_gets) {
            if (get_jointly(table, values))
                return true;
            told = told_at(table, table->n_gets);
            if (table_client_begin_late(table->handle.client, told->keys, told->n))
                return get_late(table, values, error);
            if (table_client_may_iterate(table->handle.client, told->keys, told->n, &n_slices))
                return get_in_one(table, n_slices, values, error);
        }
    }
    told = begin_iteration(table, error);
    if (told == NULL)
        return false;
    g_return_val_if_fail(values != NULL || told->n == 0, false);
    if (!table_client_get(table->handle.client, told->keys, told->n, values, error))
        return false;
    table->n_gets++;
    return true;
}

bool rubato_sparse_kv_client_table_add(RubatoSparseKVClientTable *table, const void *deltas,
                                       GError **error)
{
    g_return_val_if_fail(table != NULL, false);

    const ToldIteration *told = present_iteration(table, error);

    if (told == NULL)
        return false;
    g_return_val_if_fail(deltas != NULL || told->n == 0, false);
    table_client_fetch_to_add(table->handle.client, told->keys, told->n);
    return table_client_add(table->handle.client, told->keys, told->n, deltas, error);
}

bool rubato_sparse_kv_client_table_clock(RubatoSparseKVClientTable *table, GError **error)
{
    g_return_val_if_fail(table != NULL, false);
    if (present_iteration(table, error) == NULL || !table_client_clock(table->handle.client, error))
        return false;
    table->has_ended = true;
    return true;
}

RubatoTicket rubato_sparse_kv_client_table_get_async(RubatoSparseKVClientTable *table, void *values,
                                                     const RubatoRequestOptions *options,
                                                     GError **error)
{
    g_return_val_if_fail(table != NULL, 0);

    const ToldIteration *told = begin_iteration(table, error);
    RubatoTicket ticket;

    if (told == NULL)
        return 0;
    g_return_val_if_fail(values != NULL || told->n == 0, 0);
    ticket = ticket_start(&table->handle,
                          &(TableRequest){ .kind = MESSAGE_GET,
                                           .keys = table_keys_list(told->keys, told->n),
                                           .values = values,
                                           .copies_keys = true },
                          options, error);
    table->n_gets += ticket != 0;
    return ticket;
}

RubatoTicket rubato_sparse_kv_client_table_add_async(RubatoSparseKVClientTable *table,
                                                     const void *deltas,
                                                     const RubatoRequestOptions *options,
                                                     GError **error)
{
    g_return_val_if_fail(table != NULL, 0);

    const ToldIteration *told = present_iteration(table, error);

    if (told == NULL)
        return 0;
    g_return_val_if_fail(deltas != NULL || told->n == 0, 0);
    return ticket_start(&table->handle,
                        &(TableRequest){ .kind = MESSAGE_ADD,
                                         .keys = table_keys_list(told->keys, told->n),
                                         .deltas = deltas,
                                         .copies_keys = true },
                        options, error);
}

bool rubato_sparse_kv_client_table_add_get(RubatoSparseKVClientTable *table, const void *deltas,
                                           void *values, GError **error)
{
    g_return_val_if_fail(table != NULL, false);

    const ToldIteration *told = present_iteration(table, error);

    if (told == NULL)
        return false;
    g_return_val_if_fail((deltas != NULL && values != NULL) || told->n == 0, false);
    const RubatoKeys keys = table_keys_list(told->keys, told->n);

    return table_client_add_get(table->handle.client, &keys, deltas, values, error);
}

RubatoTicket rubato_sparse_kv_client_table_add_get_async(RubatoSparseKVClientTable *table,
                                                         const void *deltas, void *values,
                                                         const RubatoRequestOptions *options,
                                                         GError **error)
{
    g_return_val_if_fail(table != NULL, 0);

    const ToldIteration *told = present_iteration(table, error);

    if (told == NULL)
        return 0;
    g_return_val_if_fail((deltas != NULL && values != NULL) || told->n == 0, 0);
    return ticket_start(&table->handle,
                        &(TableRequest){ .kind = MESSAGE_ADD_GET,
                                         .keys = table_keys_list(told->keys, told->n),
                                         .deltas = deltas,
                                         .values = values,
                                         .copies_keys = true },
                        options, error);
}
