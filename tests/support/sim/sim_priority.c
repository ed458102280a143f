/* Requests of one priority beside a stream of the other, in simulated clusters.
 *
 * Node 0 has the only server. All workers but the last one keep so many calls of a handler under
 * way that its mailbox always has some; a call takes a millisecond. The last worker makes a Get now
 * and then. Nothing else takes time but the network, so how long a Get takes shows how many calls
 * went before it.
 *
 * Threads: the workers' of the simulation, and the nodes' main threads. */
#include <check.h>
#include <rubato/rubato.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/sim/sim_cluster.h"

#define TABLE "busy"
#define HANDLER "linger"
#define N_GETS 12

static bool run_linger(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                       GError **error)
{
    (void)part;
    (void)arguments;
    (void)result;
    (void)error;
    sim_sleep_ns(SIM_MS);
    return true;
}

void sim_priority_register(void)
{
    static const RubatoHandlerOps ops = { .name = HANDLER, .run = run_linger };

    ck_assert(rubato_register_handler(&ops, NULL));
}

/* Until the last worker has made its Gets. */
static bool stream(RubatoWorker *worker, const SimStreamJob *job, GError **error)
{
    const RubatoRequestOptions options = { .priority = job->scenario->stream };
    const RubatoHandlerCall call = { .table = TABLE, .handler = HANDLER };
    RubatoTicket tickets[SIM_STREAM_AHEAD] = { 0 };

    for (size_t i = 0; !job->is_done; i = (i + 1) % SIM_STREAM_AHEAD) {
        TRY(tickets[i] == 0 || rubato_worker_wait(worker, tickets[i], error));
        tickets[i] = rubato_worker_call_handler_async(worker, &call, NULL, &options, error);
        TRY(tickets[i] != 0);
    }
    return rubato_worker_wait_all(worker, error);
}

static bool get_now_and_then(RubatoWorker *worker, SimStreamJob *job, GError **error)
{
    const RubatoRequestOptions options = { .priority = job->scenario->stream == RUBATO_PRIORITY_HIGH
                                                           ? RUBATO_PRIORITY_NORMAL
                                                           : RUBATO_PRIORITY_HIGH };
    const RubatoKey key = 3;
    int64_t value;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, TABLE, RUBATO_I64, error);

    TRY(table != NULL);
    for (int i = 0; i < N_GETS; i++) {
        /* the first one finds the mailbox full */
        sim_sleep_ns(50 * SIM_MS + (int64_t)sim_below(20 * (uint64_t)SIM_MS));
        const int64_t began_ns = sim_now_ns();
        const RubatoTicket ticket =
            rubato_kv_table_get_async(table, &key, 1, &value, &options, error);
        TRY(ticket != 0 && rubato_worker_wait(worker, ticket, error));
        const int64_t its_ns = sim_now_ns() - began_ns;
        job->longest_ns = MAX(job->longest_ns, its_ns);
    }
    job->is_done = true;
    return true;
}

static bool work(RubatoWorker *worker, void *user_data, GError **error)
{
    SimStreamJob *const job = user_data;

    TRY(rubato_worker_barrier(worker, error));
    return rubato_worker_rank(worker) + 1 < rubato_worker_n_workers(worker)
               ? stream(worker, job, error)
               : get_now_and_then(worker, job, error);
}

bool sim_priority_run(RubatoEngine *engine, SimStreamJob *job, GError **error)
{
    static const char *const tables[] = { TABLE, NULL };
    const RubatoTableSpec spec = { .name = TABLE, .dtype = RUBATO_I64, .n_keys = 10 };
    const RubatoTask task = { .name = "stream", .run = work, .user_data = job, .tables = tables };

    /* workers are told apart by a hash of worker and table: another one for each seed */
    for (uint64_t i = 0; i < job->scenario->seed % 8; i++) {
        g_autofree char *name = g_strdup_printf("idle %d", (int)i);

        TRY(rubato_engine_create_table(
            engine, &(RubatoTableSpec){ .name = name, .dtype = RUBATO_I64, .n_keys = 1 }, error));
    }
    return rubato_engine_create_table(engine, &spec, error) &&
           rubato_engine_run(engine, &task, error);
}

void sim_scenario_draw_stream(SimScenario *scenario, uint64_t seed, RubatoPriority priority)
{
    uint64_t state = seed * 31 + 5;
    const SimLink link = { .least_ns = (1 + random_below(&state, 20)) * SIM_MS / 10,
                           .spread_ns = random_below(&state, 20) * SIM_MS / 10 };
    const uint32_t n_streaming = 1 + random_below(&state, 3);
    const bool is_beside = random_below(&state, 2) == 0; /* on the node of those that stream */

    sim_scenario_draw(scenario, seed);
    *scenario = (SimScenario){
        .seed = seed,
        .options = { .seed = seed, .yield_1024 = scenario->options.yield_1024 },
        .network = { .n_nodes = is_beside ? 2 : 3,
                     .lends = scenario->network.lends,
                     .shares = scenario->network.shares },
        .sizes = FLOW_SIZES_USUAL,
        .n_nodes = is_beside ? 2 : 3,
        .servers = { 1 },
        .workers = { 0, n_streaming + is_beside, !is_beside },
        .n_workers = n_streaming + 1,
        .n_servers = 1,
        .heartbeat_ms = scenario->heartbeat_ms,
        .timeout_ms = scenario->timeout_ms,
        .slow_worker = UINT32_MAX,
        .failing_worker = UINT32_MAX,
        .cancelled_ms = -1,
        .streams = true,
        .stream = priority,
    };
    for (uint32_t from = 0; from < scenario->n_nodes; from++)
        for (uint32_t to = 0; to < scenario->n_nodes; to++)
            scenario->network.usual[from][to] = link;
}
