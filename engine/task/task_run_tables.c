/* The tables of a task on this node. They are held as long as the task lives. Each table has a
 * route for this node's workers, a model over each shard on this node's servers, and the clocks of
 * this node and of the other nodes.
 *
 * Threads: as task_run_private.h and task_run.h say.
 *
 * Invariants: a table that a task holds cannot be dropped (n_holds). Its route and clocks live
 * until the run is freed; its models live until the task ends or is cancelled. */
#include "engine/control/told_barriers.h"
#include "engine/server/joint/server_joint.h"
#include "engine/task/task_run_private.h"
#include "models/handlers/handler.h"
#include "models/model.h"
#include "models/shard/shard.h"
#include "models/spec.h"
#include "models/update/rule.h"
#include "models/update/update.h"
#include "tables/late_iterations.h"
#include "tables/process_cache.h"

/* ---- clocks of other nodes ---- */

struct ClockEar {
    ClockListener listener; /* first: `hear` finds it */
    const TableRoute *route;
    RubatoTaskRun *run;
};

static void hear_clock(ClockListener *listener, uint32_t node, const WireClock *clock)
{
    const ClockEar *const ear = (ClockEar *)listener;

    table_route_hear(ear->route, node, clock);
    if (clock->node_clock == RUBATO_CLOCK_RETIRED)
        task_run_look_retired(ear->run);
}

static void begin_hearing(RubatoTaskRun *run)
{
    run->ears = g_new0(ClockEar, run->n_tables + 1);
    for (size_t i = 0; i < run->n_tables; i++) {
        run->ears[i] = (ClockEar){
            .listener = { .epoch = run->epoch, .table = run->routes[i].table, .hear = hear_clock },
            .route = &run->routes[i],
            .run = run
        };
        post_office_listen(run->host->office, &run->ears[i].listener);
    }
}

/* ---- routes ---- */

void task_run_make_routes(RubatoTaskRun *run,
                          void (*report_wait)(void *run, uint32_t rank, uint32_t table,
                                              uint64_t clock),
                          void (*settle)(void *run))
{
    PostOffice *const office = run->host->office;

    run->routes = g_new0(TableRoute, run->n_tables + 1);
    run->clocks = g_new0(Clocks, run->n_tables + 1);
    for (size_t i = 0; i < run->n_tables; i++) {
        const Table *table = run->tables[i];
        TableRoute *route = &run->routes[i];

        clocks_init(&run->clocks[i], office->self, office->n_nodes, run->workers_of);
        route->spec = table->spec;
        route->partition = &table->partition;
        route->map = table->map;
        route->update = update_find(table->spec->update);
        route->replayable = rule_is_replayable(table->spec);
        route->check_tuning = rule_check_tuning;
        route->find_handler = handler_find_for;
        route->table = table->id;
        route->hash_seed = table->hash_seed;
        route->epoch = run->epoch;
        route->row_bytes = table->row_bytes;
        route->max_kept_bytes = table->spec->max_kept_bytes;
        route->traits = model_traits(table->spec);
        route->lazy_clocks =
            office->n_nodes == 1 && route->traits->lazy_clocks && !spec_counts_clocks(table->spec);
        route->clocks = &run->clocks[i];
        /* a process in the place of a lost one does not say that its servers have all clocks */
        route->collects_clocks = office->n_nodes > 2 && !run->had_losses &&
                                 !route->traits->per_worker_clocks && route->map->n_replicas == 0;
        table_route_defer_adds(route);
        route->office = office;
        server_join_parts(route);
        if (!spec_counts_clocks(table->spec)) /* servers hear of each clock */
            table_route_note_iterations(route);
        route->cancelled = &run->cancelled;
        route->stall_ms = run->host->stall_ms;
        route->report_wait = report_wait;
        route->settle = run->replace_ms > 0 ? settle : NULL;
        route->run = run;
        route->history = run->host->history;
        route->timeline = run->host->timeline;
    }
    task_run_init_end(run);
    begin_hearing(run);
}

void task_run_clear_routes(RubatoTaskRun *run)
{
    for (size_t i = 0; i < run->n_tables && run->routes != NULL; i++) {
        post_office_unlisten(run->host->office, &run->ears[i].listener);
        process_cache_free(table_route_cache(&run->routes[i]));
        deferred_adds_free(run->routes[i].deferred);
        late_iterations_free(run->routes[i].late);
        clocks_clear(&run->clocks[i]);
    }
    g_clear_pointer(&run->routes, g_free);
    g_clear_pointer(&run->clocks, g_free);
    g_clear_pointer(&run->ears, g_free);
}

/* ---- models on the servers ---- */

typedef struct {
    RubatoTaskRun *run;
    pthread_mutex_t lock;
    GError *error; /* guarded by lock: the first */
} Beginning;

static void begin_models(Server *server, void *data)
{
    Beginning *beginning = data;
    RubatoTaskRun *run = beginning->run;

    for (size_t i = 0; i < run->n_tables; i++) {
        const Table *table = run->tables[i];
        const RubatoModelSetup setup = { .spec = table->spec,
                                         .n_workers = run->n_workers,
                                         .hash_seed = table->hash_seed };
        GError *error = NULL;

        if (server_begin_task(server, run->epoch, table->id, &setup, run->host->office->n_nodes,
                              run->workers_of, &error)) {
            server_defer_adds(server, run->epoch, table->id, run->routes[i].deferred);
            if (run->replace_ms > 0)
                server_keep_lost_workers(server, run->epoch, table->id);
            continue;
        }
        pthread_mutex_lock(&beginning->lock);
        if (beginning->error == NULL)
            beginning->error = g_steal_pointer(&error);
        pthread_mutex_unlock(&beginning->lock);
        g_clear_error(&error);
    }
}

static void end_models(Server *server, void *data)
{
    server_end_task(server, (uint32_t)(uintptr_t)data);
}

bool task_run_begin_models(RubatoTaskRun *run, GError **error)
{
    const TaskHost *host = run->host;
    Beginning beginning = { .run = run, .lock = PTHREAD_MUTEX_INITIALIZER };

    servers_run(host->servers, host->n_servers, begin_models, &beginning);
    if (beginning.error == NULL)
        return true;
    task_run_end_models(run);
    g_propagate_error(error, beginning.error);
    return false;
}

void task_run_end_models(RubatoTaskRun *run)
{
    const TaskHost *host = run->host;

    servers_run(host->servers, host->n_servers, end_models, (void *)(uintptr_t)run->epoch);
}

void task_run_post_end_models(RubatoTaskRun *run)
{
    const TaskHost *host = run->host;

    call_begin(&run->teardown, NULL);
    servers_post(host->servers, host->n_servers, end_models, (void *)(uintptr_t)run->epoch,
                 &run->teardown);
}

/* ---- clocks between nodes ---- */

void task_run_tell_news(RubatoTaskRun *run)
{
    for (size_t i = 0; i < run->n_tables; i++)
        table_route_tell_news(&run->routes[i]);
    post_office_flush(run->host->office);
}

void task_run_tell_clocks(RubatoTaskRun *run, uint32_t table)
{
    for (size_t i = 0; i < run->n_tables; i++)
        if (run->routes[i].table == table)
            table_route_tell_again(&run->routes[i]);
}

/* Clocks of tables without replicas need nothing of this: a task that uses one ends with its lost
 * workers, or these had retired, and their last clocks have come to the root. */
void task_run_lose_workers(RubatoTaskRun *run, const bool *workerless)
{
    const PostOffice *const office = run->host->office;

    for (uint32_t node = 0; node < office->n_nodes && run->replace_ms == 0; node++)
        for (size_t i = 0; i < run->n_tables && workerless[node]; i++)
            if (run->routes[i].map->n_replicas > 0)
                clocks_lose(&run->clocks[i], node);
}

/* ---- workers in the place of lost ones ---- */

/* The clock that all tables have heard of a worker, and some part of each. What the lost one had
 * added at clocks before it, all parts have: the clock was told once they had that
 * (task_run_settle). */
static bool find_first_clock(RubatoTaskRun *run, uint32_t local_rank, GError **error)
{
    uint64_t *const first = &run->first_clocks[local_rank];
    uint64_t *const heard = &run->heard_clocks[local_rank * run->n_tables];
    bool ok = true;

    *first = run->n_tables == 0 ? 0 : RUBATO_CLOCK_RETIRED;
    for (size_t i = 0; i < run->n_tables && ok; i++) {
        TableRoute route = run->routes[i];
        ReturnAnswer answer = { 0 };

        route.history = NULL; /* it asks for nothing that a history has */
        TableClient *const client = table_client_new(&route, run->first_rank + local_rank);
        ok = table_client_return(client, &answer, error);
        heard[i] = answer.clock;
        *first = MIN(*first, answer.clock);
        run->had_until[i * run->n_local + local_rank] = answer.had_until;
        table_client_free(client);
    }
    return ok;
}

/* Parts that have heard a later clock ignore it. */
static void begin_clocks(RubatoTaskRun *run)
{
    NodeClock news;

    for (size_t i = 0; i < run->n_tables; i++) {
        for (uint32_t j = 0; j < run->n_local; j++)
            if (run->first_clocks[j] > 0)
                (void)clocks_advance(&run->clocks[i], run->first_rank + j, run->first_clocks[j],
                                     &news);
        table_route_tell_again(&run->routes[i]);
    }
}

/* Where its workers are in the task's barriers. */
static bool begin_barriers(RubatoTaskRun *run, const char *barriers, GError **error)
{
    uint64_t round;

    run->repeated = g_new0(uint64_t, run->n_local + 1);
    if (!told_barriers_read(barriers, run->first_clocks, run->n_local, &round, run->repeated)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MISMATCH,
                    "task %s: the scheduler's list of the barriers that were passed is none",
                    run->name);
        return false;
    }
    barrier_begin_with(&run->barrier, round);
    return true;
}

bool task_run_return(RubatoTaskRun *run, const char *barriers, GError **error)
{
    run->first_clocks = g_new0(uint64_t, run->n_local + 1);
    run->heard_clocks = g_new0(uint64_t, run->n_local * run->n_tables + 1);
    run->had_until = g_new0(uint64_t, run->n_tables * run->n_local + 1);
    for (uint32_t j = 0; j < run->n_local; j++)
        if (!find_first_clock(run, j, error))
            return false;
    if (!begin_barriers(run, barriers, error))
        return false;
    if (run->is_linked)
        tensor_exchange_come_back(run->tensors);
    for (size_t i = 0; i < run->n_tables; i++)
        run->routes[i].repeats = true; /* its workers have not begun */
    begin_clocks(run);
    if (run->n_local > 0 && run->first_clocks[0] == RUBATO_CLOCK_RETIRED)
        g_message("task %s: node %u has taken over the workers of a lost process, which had ended",
                  run->name, task_host_id(run->host));
    else
        g_message("task %s: node %u has taken over the workers of a lost process, from clock "
                  "%" G_GUINT64_FORMAT " on",
                  run->name, task_host_id(run->host), run->first_clocks[0]);
    return true;
}

void task_run_note_return(const RubatoTaskRun *run)
{
    for (uint32_t j = 0; run->first_clocks != NULL && j < run->n_local; j++)
        for (size_t i = 0; i < run->n_tables; i++)
            history_say(run->host->history,
                        "again %u %u %u %" G_GUINT64_FORMAT " %" G_GUINT64_FORMAT "\n", run->epoch,
                        run->first_rank + j, run->tables[i]->id, run->first_clocks[j],
                        run->heard_clocks[j * run->n_tables + i]);
}

/* It begins with `first`, and goes through the rows of earlier clocks without a change. */
static bool worker_repeats(const RubatoTaskRun *run, uint32_t local_rank, uint64_t first)
{
    for (size_t i = 0; i < run->n_tables; i++) {
        const uint64_t until = run->had_until[i * run->n_local + local_rank];

        if (until > 0 && clocks_of_worker(&run->clocks[i], run->first_rank + local_rank) <
                             MAX(until, first > 0 ? first + 1 : 0))
            return true;
    }
    return false;
}

bool task_run_repeats(const RubatoTaskRun *run, uint64_t lowest, uint32_t *rank)
{
    for (uint32_t j = 0; run->first_clocks != NULL && j < run->n_local; j++) {
        const uint64_t first = run->first_clocks[j];

        *rank = run->first_rank + j;
        if (first != RUBATO_CLOCK_RETIRED &&
            (worker_repeats(run, j, first) || (first > 0 && lowest <= first)))
            return true;
    }
    return false;
}

uint64_t task_run_lowest_clock(const RubatoTaskRun *run, uint32_t table)
{
    NodeClock slowest = { .clock = RUBATO_CLOCK_RETIRED };
    uint32_t node;

    for (size_t i = 0; i < run->n_tables; i++)
        if (run->routes[i].table == table)
            (void)clocks_slowest(&run->clocks[i], &slowest, &node); /* else all have ended */
    return slowest.clock;
}

bool task_run_goes_on(const RubatoTaskRun *run)
{
    bool goes_on = !task_run_is_cancelled(run);

    for (size_t i = 0; i < run->n_tables; i++)
        goes_on =
            goes_on && task_run_lowest_clock(run, run->routes[i].table) != RUBATO_CLOCK_RETIRED;
    return goes_on;
}

void task_run_tell_deferred(RubatoTaskRun *run)
{
    for (size_t i = 0; i < run->n_tables; i++)
        if (run->routes[i].deferred != NULL)
            table_route_tell_again(&run->routes[i]);
}
