/* Runs a scenario: each node's main thread makes an engine, its tables, runs the tasks, looks at
 * the rows and leaves.
 *
 * A killed node is stopped and cut off until all others have ended. Then it continues, still cut
 * off, and must end by itself, so that nothing of it stays in memory. */
#include "tests/support/sim/sim_cluster_private.h"

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine_private.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/engine/fitting_spec.h"

/* ---- the cluster file ---- */

static char *write_cluster_file(const SimScenario *scenario)
{
    g_autoptr(GString) text = g_string_new(NULL);
    char *path = NULL;
    GError *error = NULL;

    g_string_printf(text,
                    "cluster: { scheduler = { host = \"127.0.0.1\"; port = 4100; node = %u; };\n"
                    "heartbeat_ms = %u; timeout_ms = %u; rendezvous_ms = 30000; stall_ms = 2000;\n"
                    "transport = \"tcp\"; nodes = (",
                    scenario->scheduler, scenario->heartbeat_ms, scenario->timeout_ms);
    for (uint32_t i = 0; i < scenario->n_nodes; i++)
        g_string_append_printf(
            text, "%s { id = %u; host = \"127.0.0.1\"; port = %u; servers = %u; workers = %u; }",
            i > 0 ? "," : "", i, i % 2 == 0 ? 4101 + i : 0, scenario->servers[i],
            scenario->workers[i]);
    g_string_append(text, " ); };\n");
    const int fd = g_file_open_tmp("rubato-sim-XXXXXX", &path, &error);
    if (fd == -1 || !g_file_set_contents_full(path, text->str, (gssize)text->len,
                                              G_FILE_SET_CONTENTS_NONE, 0600, &error))
        ck_abort_msg("cannot write a cluster file: %s", error->message);
    (void)close(fd);
    return path;
}

/* ---- a node ---- */

static bool create_tables(SimNode *node, const SimJob *job, GError **error)
{
    static const char *const models[] = { "asp", "bsp", "ssp", "sparse_ssp" };
    const SimScenario *const scenario = job->scenario;

    for (uint32_t i = 0; i < scenario->n_tables; i++) {
        const SimTable *const table = &scenario->tables[i];

        if (table->handle == SIM_HANDLE_RAGGED) {
            TRY(sim_ragged_create(node, scenario, table, error));
            continue;
        }
        RubatoTableSpec spec = fitting_spec((RubatoTableSpec){
            .name = table->name,
            .dtype = RUBATO_I64,
            .width = scenario->n_workers,
            .storage = table->is_hash ? "hash" : "dense",
            .first_key = table->first_key,
            .n_keys = table->n_keys,
            .model = models[table->model],
            .staleness = table->staleness,
            .speculation = table->speculation,
            .max_kept_bytes = table->model == SIM_MODEL_BSP ? table->max_kept_bytes : 0,
            .record = table->record,
            .parts = table->parts,
            .partition = table->partition,
            .cache = table->cache,
            .chunk_size = table->handle == SIM_HANDLE_CHUNK ? table->chunk_size : 0,
            .create_on_get = sim_table_creates(scenario, table),
            .replicas = table->is_plain ? 0 : scenario->n_replicas,
        });
        if (sim_table_admits(scenario, table)) {
            spec.admit = "probability";
            spec.admit_probability = 1;
        }
        if (sim_table_expires(scenario, table)) {
            spec.expire = "clocks";
            spec.expire_after = UINT32_MAX;
        }
        TRY(rubato_engine_create_table(node->engine, &spec, error));
    }
    return true;
}

static bool read_rows(SimNode *node, const SimScenario *scenario, const SimTable *table,
                      int64_t *rows, GError **error)
{
    if (table->handle == SIM_HANDLE_RAGGED)
        return sim_ragged_read(node, scenario, table, rows, error);
    return rubato_engine_get_range(node->engine, table->name, table->first_key, table->n_keys, rows,
                                   error);
}

/* (transfer full) */
static int64_t *read_table(SimNode *node, const SimScenario *scenario, const SimTable *table,
                           GError **error)
{
    const size_t n_values = (size_t)table->n_keys * scenario->n_workers;
    int64_t *const rows = g_new(int64_t, n_values);
    SimInputs inputs;

    memset(rows, 0x5a, n_values * sizeof *rows);
    sim_replicas_before_read(node, table->name, &inputs);
    if (read_rows(node, scenario, table, rows, error)) {
        sim_replicas_after_read(node, table->name, &inputs);
        return rows;
    }
    g_free(rows);
    return NULL;
}

/* A program that has yet to catch up would read rows of a later time. */
static bool check_tables(SimNode *node, const SimJob *job, GError **error)
{
    const SimScenario *const scenario = job->scenario;
    const bool is_late = rubato_engine_catches_up(node->engine);

    for (uint32_t i = 0; i < scenario->n_tables && !is_late; i++)
        sim_replicas_have_all(node, scenario->tables[i].name);
    for (uint32_t i = 0; i < scenario->n_tables && !is_late; i++) {
        const SimTable *const table = &scenario->tables[i];
        g_autofree int64_t *rows = read_table(node, scenario, table, error);

        TRY(rows != NULL);
        if (node->was_killed) /* it goes on when all others have ended, with rows of long ago */
            continue;
        sim_history_check_all(job->histories[i], table->first_key, table->n_keys, rows);
    }
    for (uint32_t i = 0; i < scenario->n_tables; i++)
        TRY(sim_replicas_compare(node, scenario->tables[i].name, error));
    return true;
}

/* The one table of a program that is not sim_worker.c's. */
static RubatoTableSpec find_table(const SimScenario *scenario)
{
    return scenario->keeps_rows ? sim_kept_table(scenario) : sim_exact_table(scenario);
}

/* Cuts the tables of the task, of which `job` knows the Adds; NULL: of another program. */
static bool cut_tables(SimNode *node, const SimJob *job, GError **error)
{
    const char *names[SIM_MOST_TABLES + 1] = { find_table(node->cluster->scenario).name };

    for (uint32_t i = 0; job != NULL && i < job->scenario->n_tables; i++)
        names[i] = job->scenario->tables[i].name;
    return sim_cut_take(node, job, names, error);
}

/* Moves parts while a task runs, and cuts the tables now and then: the same on every node, as these
 * are collective calls. */
static bool move_parts(SimNode *node, const SimJob *job, const SimScenario *scenario, uint32_t task,
                       GError **error)
{
    uint64_t state = scenario->seed * 7919 + task, cuts = scenario->seed * 104729 + task;

    for (uint32_t i = 0; i < scenario->n_moves; i++) {
        const bool is_other = job == NULL;
        const uint32_t drawn = random_below(&state, scenario->n_tables);
        const SimTable *const table = &scenario->tables[scenario->tables[1].is_plain ? 1 : drawn];
        const RubatoTableSpec other = is_other ? find_table(scenario) : (RubatoTableSpec){ 0 };
        const uint32_t given = is_other ? other.parts : table->parts;
        const uint32_t n_parts = given == 0 ? scenario->n_servers : given;
        const uint32_t part = random_below(&state, n_parts);
        const uint32_t server = random_below(&state, scenario->n_servers);

        sim_sleep_ns((int64_t)(next_random(&state) % (uint64_t)scenario->between_moves_ns));
        g_autoptr(GError) unmoved = NULL;
        g_autoptr(GError) uncut = NULL;
        if (rubato_engine_move_part(node->engine, is_other ? other.name : table->name, part, server,
                                    &unmoved))
            SIM_TRACE("part %u has moved to server %u", part, server);
        else if (!scenario->outlives ||
                 !g_error_matches(unmoved, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST)) {
            g_propagate_error(error, g_steal_pointer(&unmoved));
            return false;
        }
        if (random_below(&cuts, 2) == 0 && !cut_tables(node, job, &uncut)) {
            if (!scenario->outlives ||
                !g_error_matches(uncut, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST)) {
                g_propagate_error(error, g_steal_pointer(&uncut));
                return false;
            }
        }
        node->cluster->progress_ns = sim_now_ns();
    }
    return true;
}

/* Another node may be killed meanwhile, or the node itself. */
static void drain_node(SimNode *node, const SimScenario *scenario)
{
    SimCluster *const cluster = node->cluster;
    g_autoptr(GError) error = NULL;

    if (scenario->drain_ns == 0 || node->number != scenario->scheduler || cluster->is_drained ||
        cluster->has_kept)
        return;
    sim_sleep_ns(scenario->drain_ns);
    if (rubato_engine_drain_node(node->engine, scenario->drained, &error)) {
        SIM_TRACE("node %u is drained", scenario->drained);
        sim_replicas_check_drained(cluster, scenario->drained);
        cluster->is_drained = true;
    } else {
        SIM_TRACE("node %u is not drained: %s", scenario->drained, error->message);
        cluster->has_kept = true;
        if (scenario->n_faults == 0)
            sim_fail("node %u was not drained: %s", scenario->drained, error->message);
    }
    cluster->progress_ns = sim_now_ns();
}

/* If a move fails, so does the task, unless it is over: a node is lost. */
static bool run_and_move(SimNode *node, const SimJob *job, const SimScenario *scenario,
                         const RubatoTask *task, uint32_t number, GError **error)
{
    g_autoptr(GError) unmoved = NULL;

    sim_cluster_plan_kills(node->cluster, number);
    RubatoTaskRun *const run = rubato_engine_start(node->engine, task, error);
    TRY(run != NULL);
    const bool moved = move_parts(node, job, scenario, number, &unmoved);
    drain_node(node, scenario);
    TRY(rubato_task_run_wait(run, error));
    if (!moved)
        g_propagate_error(error, g_steal_pointer(&unmoved));
    return moved;
}

static RubatoOnLoss on_loss(const SimScenario *scenario)
{
    if (scenario->replace_ms > 0)
        return RUBATO_ON_LOSS_REPLACE;
    return scenario->continues ? RUBATO_ON_LOSS_CONTINUE : RUBATO_ON_LOSS_FAIL;
}

static bool run_tasks(SimNode *node, SimJob *job, GError **error)
{
    const SimScenario *const scenario = job->scenario;
    const char *names[SIM_MOST_TABLES + 1] = { NULL };
    const RubatoTask task = {
        .name = "work",
        .run = sim_worker_run,
        .user_data = job,
        .tables = names,
        .on_loss = on_loss(scenario),
        .replace_ms = scenario->replace_ms,
    };

    for (uint32_t i = 0; i < scenario->n_tables; i++)
        names[i] = scenario->tables[i].name;
    for (uint32_t i = 1; i <= scenario->n_tasks; i++) {
        job->task = MAX(job->task, i); /* a newcomer makes the calls of earlier ones */
        TRY(run_and_move(node, job, scenario, &task, i, error));
        SIM_TRACE("task %u has ended", i);
        *job->progress_ns = sim_now_ns();
        TRY(check_tables(node, job, error));
        TRY(sim_services_ask(node, i, error));
        TRY(rubato_engine_barrier(node->engine, error)); /* no node adds before all have read */
    }
    for (uint32_t i = 0; i < scenario->n_tables; i++)
        TRY(rubato_engine_drop_table(node->engine, scenario->tables[i].name, error));
    return true;
}

static int64_t longest_silence_ms(const SimCluster *cluster)
{
    const uint32_t scheduler = cluster->scenario->scheduler;
    int64_t longest_ns = 0;

    for (uint32_t i = 0; i < cluster->scenario->n_nodes; i++) {
        if (i == scheduler)
            continue;
        const int64_t to_ns = sim_network_longest_silence_ns(i, scheduler);
        const int64_t from_ns = sim_network_longest_silence_ns(scheduler, i);
        longest_ns = MAX(longest_ns, MAX(to_ns, from_ns));
    }
    return longest_ns / SIM_MS;
}

static int64_t longest_outage_ms(const SimCluster *cluster)
{
    int64_t longest_ns = 0;

    for (uint32_t from = 0; from < cluster->scenario->n_nodes; from++)
        for (uint32_t to = 0; to < cluster->scenario->n_nodes; to++) {
            const int64_t its_ns = sim_network_longest_outage_ns(from, to);
            longest_ns = MAX(longest_ns, its_ns);
        }
    return longest_ns / SIM_MS;
}

static int64_t longest_round_trip_ms(const SimCluster *cluster)
{
    int64_t longest_ns = 0;

    for (uint32_t a = 0; a < cluster->scenario->n_nodes; a++)
        for (uint32_t b = a + 1; b < cluster->scenario->n_nodes; b++) {
            const int64_t its_ns = sim_network_longest_round_trip_ns(a, b);
            longest_ns = MAX(longest_ns, its_ns);
        }
    return longest_ns / SIM_MS;
}

/* The node has failed: what the network did to it until now. */
static void note_outages(SimNode *node)
{
    node->silence_ms = longest_silence_ms(node->cluster);
    node->outage_ms = longest_outage_ms(node->cluster);
    node->round_trip_ms = longest_round_trip_ms(node->cluster);
}

static void end_node(SimNode *node)
{
    SimCluster *const cluster = node->cluster;

    node->has_ended = true;
    cluster->progress_ns = sim_now_ns();
    SIM_TRACE("has ended: %s", node->error == NULL ? "well" : node->error->message);
    if (node->was_killed || --cluster->n_living > 0)
        return;
    for (uint32_t i = 0; i < sim_cluster_n_processes(cluster); i++)
        if (cluster->nodes[i].was_killed)
            sim_thaw(i);
}

/* After a task that failed: nothing of it may reach a table any more. */
static bool read_what_is_left(SimNode *node, const SimJob *job, GError **error)
{
    TRY(rubato_engine_barrier(node->engine, error));
    for (uint32_t i = 0; i < job->scenario->n_tables; i++) {
        const SimTable *const table = &job->scenario->tables[i];
        g_autofree int64_t *rows = read_table(node, job->scenario, table, error);

        TRY(rows != NULL);
        sim_history_adopt(job->histories[i], table->first_key, table->n_keys, rows);
    }
    return rubato_engine_barrier(node->engine, error);
}

/* A task that failed leaves the engine as it was. */
static bool can_go_on(const SimNode *node)
{
    return g_error_matches(node->error, RUBATO_ERROR, RUBATO_ERROR_TASK_FAILED) ||
           g_error_matches(node->error, RUBATO_ERROR, RUBATO_ERROR_CANCELLED);
}

static bool run_exact_program(SimNode *node, GError **error)
{
    const SimScenario *const scenario = node->cluster->scenario;
    const char *const names[] = { SIM_EXACT_TABLE, NULL };
    const RubatoTask task = { .name = "exact",
                              .run = sim_exact_run,
                              .user_data = (void *)(uintptr_t)scenario,
                              .tables = names,
                              .on_loss = on_loss(scenario),
                              .replace_ms = scenario->replace_ms };
    const RubatoTableSpec spec = sim_exact_table(scenario);

    TRY(rubato_engine_create_table(node->engine, &spec, error));
    TRY(run_and_move(node, NULL, scenario, &task, 1, error));
    return sim_exact_digest(node->engine, &node->rows_digest, error) &&
           sim_replicas_compare(node, SIM_EXACT_TABLE, error);
}

static bool run_kept_task(SimNode *node, const RubatoTask *task, GError **error)
{
    const SimScenario *const scenario = node->cluster->scenario;
    RubatoTask own = *task;

    own.on_loss = on_loss(scenario);
    own.replace_ms = scenario->replace_ms;
    return run_and_move(node, NULL, scenario, &own, 1, error);
}

/* The tasks, and the one beside them, if there is one. */
static bool run_tasks_beside(SimNode *node, GError **error)
{
    SimCluster *const cluster = node->cluster;
    const char *const names[] = { cluster->beside.tables[0].name, NULL };
    const RubatoTask task = {
        .name = "beside", .run = sim_worker_run, .user_data = &cluster->job_beside, .tables = names
    };

    if (!cluster->scenario->has_task_beside)
        return run_tasks(node, &cluster->job, error);
    cluster->job_beside.task = 1;
    TRY(create_tables(node, &cluster->job_beside, error));
    RubatoTaskRun *const run = rubato_engine_start(node->engine, &task, error);
    TRY(run != NULL);
    const bool ok = run_tasks(node, &cluster->job, error);
    if (!rubato_task_run_wait(run, &node->error_beside) ||
        !check_tables(node, &cluster->job_beside, &node->error_beside))
        note_outages(node);
    return ok;
}

/* Other tables of the same names, and tasks of them, perhaps after a loss. */
static bool use_engine_again(SimNode *node, GError **error)
{
    SimJob *const job = &node->cluster->job_again;

    return !node->cluster->scenario->outlives ||
           (create_tables(node, job, error) && run_tasks(node, job, error));
}

static void use_engine(SimNode *node)
{
    SimCluster *const cluster = node->cluster;

    if (cluster->scenario->streams) {
        if (!sim_priority_run(node->engine, &cluster->stream, &node->error))
            note_outages(node);
        return;
    }
    if (cluster->scenario->keeps_rows) {
        if (!sim_kept_run(node, run_kept_task, &node->error))
            note_outages(node);
        return;
    }
    if (cluster->scenario->exact_program != 0) {
        if (!run_exact_program(node, &node->error))
            note_outages(node);
        return;
    }
    if (sim_services_begin(node, &node->error) &&
        create_tables(node, &cluster->job, &node->error) && run_tasks_beside(node, &node->error) &&
        use_engine_again(node, &node->error))
        return;
    node->failed_ms = sim_now_ms() - cluster->begun_ms;
    note_outages(node);
    if (!can_go_on(node) || (read_what_is_left(node, &cluster->job_again, &node->error_again) &&
                             run_tasks(node, &cluster->job_again, &node->error_again)))
        return;
    note_outages(node);
}

static void *run_node(void *data)
{
    SimNode *const node = data;
    SimCluster *const cluster = node->cluster;
    const RubatoEngineConfig config = { .cluster_file = cluster->path,
                                        .node = node->place,
                                        .catches_up = true };
    const CutWork cut_work = sim_cut_work(node);
    const EngineParts parts = { .joins = sim_cluster_is_newcomer(node),
                                .transport = &sim_transport,
                                .sizes = &cluster->scenario->sizes,
                                .snapshot_work = &cut_work };
    RubatoEngine *engine = engine_new_of(&config, &parts, &node->error);

    while (engine == NULL && sim_newcomer_came_too_early(node)) {
        sim_sleep_ns(SIM_MS * node->cluster->scenario->heartbeat_ms);
        g_clear_error(&node->error);
        engine = engine_new_of(&config, &parts, &node->error);
    }
    if (engine != NULL) {
        node->engine = engine;
        node->has_joined = true;
        use_engine(node);
        node->engine = NULL;
        while (node->is_used || sim_replicas_are_compared(cluster))
            sim_sleep_ns(SIM_MS);
        rubato_engine_free(engine);
    } else {
        note_outages(node);
    }
    end_node(node);
    return NULL;
}

static void *cancel(void *data)
{
    SimCluster *const cluster = data;
    SimNode *const node = &cluster->nodes[sim_node()];

    sim_sleep_ns(cluster->scenario->cancelled_ms * SIM_MS);
    if (node->engine == NULL)
        return NULL;
    node->is_used = true;
    SIM_TRACE("cancels");
    rubato_engine_cancel(node->engine);
    node->is_used = false;
    return NULL;
}

/* ---- the run ---- */

static void say_scenario(void *user)
{
    const SimScenario *const scenario = user;
    g_autofree char *text = sim_scenario_describe(scenario);

    fprintf(stderr,
            "%s\n\nRUBATO_SIM_SEED=%" G_GUINT64_FORMAT " runs this again, with all that happens.\n",
            text, scenario->seed);
}

static void trace_log(const gchar *domain, GLogLevelFlags level, const gchar *text, gpointer user)
{
    (void)user;
    if ((level & (G_LOG_LEVEL_ERROR | G_LOG_LEVEL_CRITICAL)) != 0) {
        if (sim_is_inside())
            sim_fail("%s: %s", domain != NULL ? domain : "log", text);
        g_log_default_handler(domain, level, text, NULL);
    }
    SIM_TRACE("log: %s", text);
}

static void job_init(SimJob *job, SimCluster *cluster, const SimScenario *scenario)
{
    job->cluster = cluster;
    job->scenario = scenario;
    job->progress_ns = &cluster->progress_ns;
    for (uint32_t i = 0; i < scenario->n_tables; i++) {
        const SimTable *const table = &scenario->tables[i];
        job->histories[i] =
            sim_history_new(table->name, table->model, table->staleness,
                            table->handle == SIM_HANDLE_KV_CLIENT && table->model == SIM_MODEL_SSP,
                            table->first_key, table->n_keys, scenario->n_workers);
        if (scenario->replace_ms > 0)
            sim_history_replace(job->histories[i], i + 1 < scenario->n_tables);
    }
}

void sim_cluster_start(SimCluster *cluster, uint32_t number)
{
    cluster->n_living++;
    sim_spawn(number, "main", run_node, &cluster->nodes[number]);
}

static void divide(SimCluster *cluster, const SimScenario *scenario)
{
    cluster->plain = cluster->beside = cluster->again = *scenario;
    if (scenario->has_task_beside) {
        cluster->plain.n_tables = cluster->beside.n_tables = cluster->again.n_tables = 1;
        cluster->beside.tables[0] = scenario->tables[1];
    }
    cluster->beside.n_tasks = cluster->again.n_tasks = 1;
    cluster->beside.failing_worker = cluster->again.failing_worker = UINT32_MAX;
}

static void begin(SimCluster *cluster, const SimScenario *scenario)
{
    memset(cluster, 0, sizeof *cluster);
    cluster->scenario = cluster->stream.scenario = scenario;
    divide(cluster, scenario);
    cluster->killed_ms = -1;
    cluster->path = write_cluster_file(scenario);
    job_init(&cluster->job, cluster, &cluster->plain);
    cluster->job.asks_for_cuts =
        scenario->n_moves > 0 && scenario->exact_program == 0 && !scenario->keeps_rows;
    job_init(&cluster->job_beside, cluster, &cluster->beside);
    job_init(&cluster->job_again, cluster, &cluster->again);
    sim_on_failure(say_scenario, (void *)(uintptr_t)scenario);
    sim_begin(&scenario->options);
    sim_network_begin(&scenario->network);
    cluster->begun_ms = sim_now_ms();
    for (uint32_t i = 0; i < sim_cluster_n_processes(cluster); i++)
        cluster->nodes[i] = (SimNode){
            .cluster = cluster,
            .number = i,
            .place = i < scenario->n_nodes ? i : scenario->newcomers[i - scenario->n_nodes].node
        };
    for (uint32_t i = 0; i < scenario->n_nodes; i++)
        sim_cluster_start(cluster, i);
    if (scenario->cancelled_ms >= 0)
        sim_spawn((uint32_t)scenario->seed % scenario->n_nodes, "canceller", cancel, cluster);
    sim_cluster_plan_faults(cluster);
}

static void end(SimCluster *cluster)
{
    sim_end();
    sim_network_end();
    sim_on_failure(NULL, NULL);
    for (uint32_t i = 0; i < sim_cluster_n_processes(cluster); i++) {
        g_clear_error(&cluster->nodes[i].error);
        g_clear_error(&cluster->nodes[i].error_beside);
        g_clear_error(&cluster->nodes[i].error_again);
    }
    for (uint32_t i = 0; i < SIM_MOST_TABLES; i++) {
        sim_history_free(cluster->job.histories[i]);
        sim_history_free(cluster->job_beside.histories[i]);
        sim_history_free(cluster->job_again.histories[i]);
    }
    for (uint32_t i = 0; i < SIM_MOST_TABLES; i++) /* of a cut that not all nodes have read */
        g_free(cluster->cut.rows[i]);
    (void)unlink(cluster->path);
    g_free(cluster->path);
}

static SimEnd run_while_it_goes_on(SimCluster *cluster)
{
    const int64_t heals_ns = sim_now_ns() + cluster->scenario->heals_ms * SIM_MS;
    int64_t until_ns;
    SimEnd how;

    cluster->progress_ns = heals_ns;
    do {
        until_ns = MAX(heals_ns, cluster->progress_ns) + SIM_PATIENCE_MS * SIM_MS;
        how = sim_run(until_ns);
    } while (how == SIM_END_LATE && cluster->progress_ns + SIM_PATIENCE_MS * SIM_MS > until_ns);
    return how;
}

void sim_cluster_run(const SimScenario *scenario, SimOutcome *outcome)
{
    SimCluster cluster;
    const GLogFunc before = g_log_set_default_handler(trace_log, NULL);

    memset(outcome, 0, sizeof *outcome);
    begin(&cluster, scenario);
    const int64_t began_ns = sim_now_ns();
    const SimEnd how = run_while_it_goes_on(&cluster);
    if (how != SIM_END_DONE)
        sim_fail("%s",
                 how == SIM_END_LATE ? "nothing gets done any more" : "nobody will ever go on");
    sim_cluster_judge(&cluster, outcome);
    outcome->silence_ms = longest_silence_ms(&cluster);
    outcome->outage_ms = longest_outage_ms(&cluster);
    outcome->n_cuts = cluster.cut.n_done;
    outcome->n_cuts_after = cluster.cut.n_whole;
    outcome->n_went_on = cluster.cut.n_went_on;
    outcome->n_replaced = cluster.job.n_replaced + cluster.job_again.n_replaced;
    outcome->longest_get_ns = cluster.stream.longest_ns;
    outcome->digest = sim_digest();
    outcome->n_turns = sim_n_turns();
    outcome->simulated_ns = sim_now_ns() - began_ns;
    sim_network_stats(&outcome->network);
    end(&cluster);
    g_log_set_default_handler(before, NULL);
}
