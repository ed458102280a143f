/* What a node waits for before it says TASK_DONE: its workers, and its servers.
 *
 * Servers. A node tells its last clock on a table to the root alone, which spreads the common clock
 * RUBATO_CLOCK_RETIRED once it has heard the last clocks of all nodes. Behind it each server counts
 * all workers as retired, and applies what its models kept for that. So a server that has no memory
 * for this says so before its node says TASK_DONE, and when all nodes have said it, nothing is kept
 * any more. Tables whose clocks go straight to all nodes need none of this: their last clocks come
 * before the fence of the node that tells them.
 *
 * Why that wait ends. Each worker retires, or fails, which cancels the task. Last clocks come to
 * the root, and the common clock to each node, as all clocks do
 * (io/net/post_office/post_office_clocks.c). A lost node cancels the task, unless it has no workers
 * of it. With a cancellation, servers count nothing.
 *
 * Threads: as told at each function. */
#include "engine/task/task_run_private.h"

static bool waits_for_common(const TableRoute *route)
{
    return route->collects_clocks;
}

const char *task_run_collecting_table(const RubatoTaskRun *run)
{
    for (size_t i = 0; i < run->n_tables; i++)
        if (waits_for_common(&run->routes[i]))
            return run->routes[i].spec->name;
    return NULL;
}

void task_run_init_end(RubatoTaskRun *run)
{
    run->servers_wait = false;
    for (size_t i = 0; i < run->n_tables && run->host->n_servers > 0; i++)
        run->servers_wait |= waits_for_common(&run->routes[i]);
    run->servers_were_told = false;
    atomic_init(&run->n_counting, run->host->n_servers);
    atomic_init(&run->n_before_done, run->servers_wait ? 2 : 1);
}

/* Any thread that holds no lock of the task. */
static void end_one(RubatoTaskRun *run)
{
    /* acq_rel: the second sees what the first has done */
    if (atomic_fetch_sub_explicit(&run->n_before_done, 1, memory_order_acq_rel) > 1)
        return;
    task_run_tell_scheduler(run,
                            &(Control){ .kind = CONTROL_TASK_DONE, .task_done = { run->epoch } });
}

void task_run_workers_have_ended(RubatoTaskRun *run)
{
    end_one(run);
}

/* ---- the servers ---- */

/* As the server's owner. */
static void end_server(RubatoTaskRun *run)
{
    /* acq_rel: the last one says what all have done */
    if (atomic_fetch_sub_explicit(&run->n_counting, 1, memory_order_acq_rel) == 1)
        end_one(run);
}

static void count_all_as_retired(Server *server, void *data)
{
    RubatoTaskRun *const run = data;

    for (size_t i = 0; i < run->n_tables; i++)
        if (waits_for_common(&run->routes[i]))
            server_retire_all(server, run->epoch, run->routes[i].table);
    end_server(run);
}

static void count_nothing(Server *server, void *data)
{
    (void)server;
    end_server(data);
}

/* The run's lock is held. */
static void tell_servers(RubatoTaskRun *run, void (*count)(Server *server, void *run))
{
    if (!run->servers_wait || run->servers_were_told)
        return;
    run->servers_were_told = true;
    call_begin(&run->counting, NULL);
    servers_post(run->host->servers, run->host->n_servers, count, run, &run->counting);
    call_sent(&run->counting);
}

void task_run_look_retired(RubatoTaskRun *run)
{
    if (!run->servers_wait)
        return;
    for (size_t i = 0; i < run->n_tables; i++)
        if (waits_for_common(&run->routes[i]) && !clocks_all_have_retired(&run->clocks[i]))
            return;
    pthread_mutex_lock(&run->lock);
    tell_servers(run, count_all_as_retired);
    pthread_mutex_unlock(&run->lock);
}

void task_run_cancel_end(RubatoTaskRun *run)
{
    tell_servers(run, count_nothing);
}

void task_run_wait_end(RubatoTaskRun *run)
{
    bool were_told;

    pthread_mutex_lock(&run->lock);
    were_told = run->servers_were_told;
    pthread_mutex_unlock(&run->lock);
    if (were_told)
        call_wait(&run->counting, -1);
}
