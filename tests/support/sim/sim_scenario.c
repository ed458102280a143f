/* The scenario of a seed. The larger a fault, the rarer it is. A third of the seeds have none. */
#include "tests/support/sim/sim_cluster.h"

#include <string.h>

#include "tests/support/engine/engine_fixture.h"

typedef struct {
    uint64_t state;
} Dice;

static uint32_t below(Dice *dice, uint32_t limit)
{
    return random_below(&dice->state, MAX(1, limit));
}

static uint32_t between(Dice *dice, uint32_t least, uint32_t most)
{
    return least + below(dice, most - least + 1);
}

static bool percent(Dice *dice, uint32_t chance)
{
    return below(dice, 100) < chance;
}

static void draw_nodes(SimScenario *scenario, Dice *dice)
{
    scenario->n_nodes = between(dice, 2, 4);
    scenario->scheduler = percent(dice, 70) ? 0 : below(dice, scenario->n_nodes);
    for (uint32_t i = 0; i < scenario->n_nodes; i++) {
        scenario->servers[i] = percent(dice, 70) ? 1 : below(dice, 3);
        scenario->workers[i] =
            between(dice, percent(dice, 20) && scenario->servers[i] > 0 ? 0 : 1, 2);
        scenario->n_servers += scenario->servers[i];
        scenario->n_workers += scenario->workers[i];
    }
    if (scenario->n_servers == 0)
        scenario->n_servers = scenario->servers[below(dice, scenario->n_nodes)] = 1;
    if (scenario->n_workers == 0)
        scenario->n_workers = scenario->workers[below(dice, scenario->n_nodes)] = 1;
    scenario->heartbeat_ms = between(dice, 2, 10) * 100;
    scenario->timeout_ms = scenario->heartbeat_ms * between(dice, 4, 8);
    scenario->slow_worker = percent(dice, 50) ? below(dice, scenario->n_workers) : UINT32_MAX;
}

static void draw_table(SimTable *table, Dice *dice, uint32_t number)
{
    static const SimHandle with_clock[] = { SIM_HANDLE_KV, SIM_HANDLE_KV, SIM_HANDLE_KV_CLIENT,
                                            SIM_HANDLE_CHUNK };

    g_snprintf(table->name, sizeof table->name, "t%u", number);
    table->model = (SimModel)below(dice, 4);
    table->staleness = percent(dice, 30) ? 0 : below(dice, 4);
    table->speculation = below(dice, 4);
    table->max_kept_bytes = percent(dice, 50) ? 0 : between(dice, 1, 2000);
    table->record = percent(dice, 50) ? "hash" : "dense";
    table->handle =
        table->model == SIM_MODEL_SPARSE_SSP ? SIM_HANDLE_SPARSE : with_clock[below(dice, 4)];
    table->is_hash = table->handle != SIM_HANDLE_CHUNK && percent(dice, 40);
    if (table->is_hash)
        table->record = "hash";
    if (percent(dice, 50))
        table->partition = table->is_hash ? "hash" : "range";
    table->cache = (RubatoCache)below(dice, 3);
    table->first_key = percent(dice, 50) ? 0 : below(dice, 1000);
    table->n_keys = percent(dice, 20) ? between(dice, 200, 400) : between(dice, 4, 40);
    table->most_keys = percent(dice, 30) ? table->n_keys : between(dice, 1, 8);
    table->chunk_size = between(dice, 1, 5);
    table->parts = percent(dice, 40) ? 0 : between(dice, 1, 9);
}

static void draw_network(SimScenario *scenario, Dice *dice)
{
    SimNetworkOptions *const network = &scenario->network;

    network->n_nodes = scenario->n_nodes;
    const SimLink usual = { .least_ns = (int64_t)between(dice, 20, 2000) * 1000,
                            .spread_ns = (int64_t)below(dice, 3000) * 1000 };
    const bool differ = percent(dice, 50);

    for (uint32_t from = 0; from < scenario->n_nodes; from++)
        for (uint32_t to = 0; to < scenario->n_nodes; to++) {
            network->usual[from][to] = usual;
            if (differ && percent(dice, 30))
                network->usual[from][to].least_ns *= between(dice, 2, 20);
        }
    network->holds_when_cut = percent(dice, 60);
    network->lends = percent(dice, 30);
    network->shares = percent(dice, 60);
    scenario->options.seed = scenario->seed;
    scenario->options.yield_1024 = percent(dice, 30) ? 0 : below(dice, 300);
    scenario->options.delay_1024 = percent(dice, 60) ? 0 : below(dice, 8);
    scenario->options.most_delay_ns = (int64_t)between(dice, 1, 30) * SIM_MS;
}

/* Of such a size, or a few bytes. */
static size_t some_bytes(Dice *dice, uint32_t most)
{
    return 1 + below(dice, percent(dice, 30) ? 64 : most);
}

/* The usual sizes, or small ones: then a few keys are several pieces, and a few requests a
 * window. */
static void draw_sizes(SimScenario *scenario, Dice *dice)
{
    FlowSizes *const sizes = &scenario->sizes;

    *sizes = FLOW_SIZES_USUAL;
    if (percent(dice, 40))
        return;
    sizes->piece_bytes = some_bytes(dice, 1024);
    sizes->near_piece_bytes = some_bytes(dice, 1024);
    sizes->worth_sending_bytes = some_bytes(dice, 512);
    sizes->joined_bytes = some_bytes(dice, 2048);
    sizes->turn_bytes = some_bytes(dice, 2048);
    if (percent(dice, 60))
        sizes->window_bytes = some_bytes(dice, 4096);
    if (percent(dice, 60))
        sizes->out_bytes = 1000 + below(dice, 8192);
    if (percent(dice, 60))
        sizes->mailbox_bytes = some_bytes(dice, 4096);
    if (percent(dice, 60))
        sizes->cache_bytes = some_bytes(dice, 2048);
    sizes->high_piece_bytes = sizes->near_high_piece_bytes = 1 + sizes->piece_bytes / 2;
    sizes->high_out_bytes = 1 + MIN(sizes->high_out_bytes, sizes->out_bytes / 4);
}

static void draw_fault(SimScenario *scenario, Dice *dice, bool is_deadly)
{
    static const SimFaultKind kinds[] = { SIM_FAULT_LOSS,  SIM_FAULT_DOUBLING, SIM_FAULT_DISORDER,
                                          SIM_FAULT_SLOW,  SIM_FAULT_CUT,      SIM_FAULT_CUT,
                                          SIM_FAULT_RESET, SIM_FAULT_STOP };
    SimFault *const fault = &scenario->faults[scenario->n_faults++];
    const uint32_t longest_ms =
        is_deadly ? 3 * scenario->timeout_ms : scenario->timeout_ms * 7 / 10;

    fault->kind = kinds[below(dice, G_N_ELEMENTS(kinds))];
    fault->at_ms = below(dice, 4000);
    fault->for_ms = 1 + below(dice, longest_ms);
    fault->from = percent(dice, 50) ? SIM_ALL_NODES : below(dice, scenario->n_nodes);
    fault->to = percent(dice, 50) ? SIM_ALL_NODES : below(dice, scenario->n_nodes);
    if (fault->kind == SIM_FAULT_STOP)
        fault->from = below(dice, scenario->n_nodes);
    fault->how_often = fault->kind == SIM_FAULT_LOSS ? below(dice, 400) : below(dice, 1024);
    scenario->heals_ms = MAX(scenario->heals_ms, fault->at_ms + fault->for_ms);
}

static void draw_faults(SimScenario *scenario, Dice *dice)
{
    const bool is_deadly = percent(dice, 10);

    scenario->failing_worker = UINT32_MAX;
    scenario->cancelled_ms = -1;
    if (percent(dice, 33))
        return;
    for (uint32_t n = between(dice, 1, 6); n > 0; n--)
        draw_fault(scenario, dice, is_deadly);
    if (percent(dice, 15)) {
        scenario->faults[scenario->n_faults++] = (SimFault){
            .kind = SIM_FAULT_KILL,
            .at_ms = below(dice, 4000),
            .from = below(dice, scenario->n_nodes),
        };
        scenario->heals_ms = MAX(scenario->heals_ms, 4000);
    }
    if (percent(dice, 10)) {
        scenario->failing_worker = below(dice, scenario->n_workers);
        scenario->failing_iteration = below(dice, scenario->n_iterations);
    } else if (percent(dice, 8)) {
        scenario->cancelled_ms = below(dice, 3000);
    }
}

static void draw_replicas(SimScenario *scenario, Dice *dice)
{
    uint32_t n_nodes = 0;

    for (uint32_t i = 0; i < scenario->n_nodes; i++)
        n_nodes += scenario->servers[i] > 0;
    if (n_nodes < 2 || percent(dice, 50))
        return;
    scenario->n_replicas = between(dice, 1, MIN(2, n_nodes - 1));
    scenario->n_moves = 0;
}

void sim_scenario_draw(SimScenario *scenario, uint64_t seed)
{
    Dice dice = { seed * UINT64_C(0x9fb21c651e98df25) + 7 };

    memset(scenario, 0, sizeof *scenario);
    scenario->seed = seed;
    draw_nodes(scenario, &dice);
    scenario->n_tables = percent(&dice, 75) ? 1 : 2;
    for (uint32_t i = 0; i < scenario->n_tables; i++)
        draw_table(&scenario->tables[i], &dice, i);
    scenario->has_task_beside = scenario->n_tables == 2 && percent(&dice, 50);
    scenario->n_tasks = percent(&dice, 75) ? 1 : 2;
    scenario->n_iterations = between(&dice, 2, 16);
    scenario->think_ns = (int64_t)below(&dice, percent(&dice, 50) ? 10 : 400) * SIM_MS + 1000;
    scenario->barrier_1024 = percent(&dice, 30) ? below(&dice, 300) : 0;
    draw_network(scenario, &dice);
    draw_sizes(scenario, &dice);
    draw_faults(scenario, &dice);
    scenario->n_moves = percent(&dice, 50) ? 0 : between(&dice, 1, 12);
    scenario->between_moves_ns = (int64_t)below(&dice, percent(&dice, 50) ? 2 : 200) * SIM_MS + 1;
    scenario->asks_services = seed % 4 == 1;
    draw_replicas(scenario, &dice);
}

void sim_scenario_draw_deaf(SimScenario *scenario, uint64_t seed)
{
    Dice dice = { seed * UINT64_C(0xd1342543de82ef95) + 11 };

    sim_scenario_draw(scenario, seed);
    scenario->failing_worker = UINT32_MAX;
    scenario->cancelled_ms = -1;
    const SimFault deaf = {
        .kind = SIM_FAULT_CUT,
        .at_ms = between(&dice, 500, 2500), /* the run has begun */
        .for_ms = 3 * scenario->timeout_ms,
        .from = scenario->scheduler,
        .to = (scenario->scheduler + 1 + below(&dice, scenario->n_nodes - 1)) % scenario->n_nodes,
    };
    memset(scenario->faults, 0, sizeof scenario->faults);
    scenario->faults[0] = deaf;
    scenario->n_faults = 1;
    scenario->asks_services = false;
    scenario->heals_ms = deaf.at_ms + deaf.for_ms;
}

static void announce_nothing(SimScenario *scenario)
{
    for (uint32_t i = 0; i < scenario->n_tables; i++)
        if (scenario->tables[i].model == SIM_MODEL_SPARSE_SSP) {
            scenario->tables[i].model = SIM_MODEL_BSP;
            scenario->tables[i].handle = SIM_HANDLE_KV;
        }
}

void sim_scenario_draw_rootless(SimScenario *scenario, uint64_t seed)
{
    Dice dice = { seed * UINT64_C(0xd1342543de82ef95) + 19 };

    do
        sim_scenario_draw(scenario, seed++);
    while (scenario->n_nodes < 3);
    scenario->failing_worker = UINT32_MAX;
    scenario->cancelled_ms = -1;
    scenario->asks_services = false;
    scenario->n_replicas = 0;
    announce_nothing(scenario);
    memset(scenario->faults, 0, sizeof scenario->faults);
    scenario->faults[0] = (SimFault){ .kind = SIM_FAULT_KILL,
                                      .at_ms = between(&dice, 500, 1500),
                                      .from = scenario->scheduler };
    scenario->n_faults = 1;
    scenario->heals_ms = 4000;
}

void sim_scenario_draw_slow(SimScenario *scenario, uint64_t seed)
{
    Dice dice = { seed * UINT64_C(0xd1342543de82ef95) + 13 };

    sim_scenario_draw(scenario, seed);
    scenario->failing_worker = UINT32_MAX;
    scenario->cancelled_ms = -1;
    const SimFault slow = {
        .kind = SIM_FAULT_SLOW,
        .at_ms = between(&dice, 500, 2500), /* the run has begun */
        .for_ms = 26 * scenario->timeout_ms / 10,
        .from = SIM_ALL_NODES,
        .to = SIM_ALL_NODES,
        .how_often = 700,
    };
    memset(scenario->faults, 0, sizeof scenario->faults);
    scenario->faults[0] = scenario->faults[1] = slow;
    scenario->faults[1].kind = SIM_FAULT_DISORDER;
    for (scenario->n_faults = 2; scenario->n_faults < 5; scenario->n_faults++) {
        SimFault *const reset = &scenario->faults[scenario->n_faults];
        *reset = slow;
        reset->kind = SIM_FAULT_RESET;
        reset->at_ms += between(&dice, 0, (uint32_t)slow.for_ms);
        reset->for_ms = 1;
    }
    scenario->heals_ms = slow.at_ms + slow.for_ms + 1;
}

/* Everybody that a lost node must not have, or must. It is so many nodes behind the scheduler's. */
static uint32_t make_victim(SimScenario *scenario, uint32_t behind)
{
    const uint32_t victim = (scenario->scheduler + behind) % scenario->n_nodes;

    scenario->servers[victim] = MAX(1, scenario->servers[victim]);
    scenario->servers[scenario->scheduler] = MAX(1, scenario->servers[scenario->scheduler]);
    scenario->workers[scenario->scheduler] = MAX(1, scenario->workers[scenario->scheduler]);
    scenario->workers[victim] = 0;
    scenario->n_workers = scenario->n_servers = 0;
    for (uint32_t i = 0; i < scenario->n_nodes; i++) {
        scenario->n_workers += scenario->workers[i];
        scenario->n_servers += scenario->servers[i];
    }
    if (scenario->slow_worker != UINT32_MAX)
        scenario->slow_worker %= scenario->n_workers;
    return victim;
}

void sim_scenario_draw_loss(SimScenario *scenario, uint64_t seed)
{
    Dice dice = { seed * UINT64_C(0xd1342543de82ef95) + 17 };

    sim_scenario_draw(scenario, seed);
    scenario->failing_worker = UINT32_MAX;
    scenario->cancelled_ms = -1;
    scenario->asks_services = false;
    scenario->has_task_beside = false;
    scenario->n_moves = 0;
    scenario->n_replicas = 1;
    scenario->outlives = true;
    memset(scenario->faults, 0, sizeof scenario->faults);
    scenario->faults[0] =
        (SimFault){ .kind = SIM_FAULT_KILL,
                    .at_ms = between(&dice, 100, 3000),
                    .from = make_victim(scenario, 1 + below(&dice, scenario->n_nodes - 1)) };
    scenario->n_faults = 1;
    scenario->heals_ms = 4000;
}

/* Makes it four nodes, each with a server. */
static void grow(SimScenario *scenario)
{
    if (scenario->n_nodes < 4) {
        scenario->workers[scenario->n_nodes] = 1;
        scenario->servers[scenario->n_nodes++] = 1;
    }
    if (scenario->n_nodes < 4) {
        scenario->workers[scenario->n_nodes] = 0;
        scenario->servers[scenario->n_nodes++] = 1;
    }
    scenario->network.n_nodes = scenario->n_nodes;
    for (uint32_t from = 0; from < scenario->n_nodes; from++)
        for (uint32_t to = 0; to < scenario->n_nodes; to++)
            scenario->network.usual[from][to] = scenario->network.usual[0][1];
    for (uint32_t i = 0; i < scenario->n_nodes; i++)
        scenario->servers[i] = MAX(1, scenario->servers[i]);
}

/* Parts of a table without replicas lie on the first servers: a node after the others is the one
 * that is killed. */
void sim_scenario_draw_moves(SimScenario *scenario, uint64_t seed)
{
    Dice dice = { seed * UINT64_C(0xd1342543de82ef95) + 47 };
    SimTable *const plain = &scenario->tables[1];

    sim_scenario_draw_loss(scenario, seed);
    grow(scenario);
    scenario->scheduler = below(&dice, 3);
    scenario->faults[0].from = make_victim(scenario, 3 - scenario->scheduler);
    scenario->faults[0].at_ms = between(&dice, 100, 1500);
    if (scenario->n_tables == 1) {
        scenario->tables[1] = scenario->tables[0];
        g_strlcpy(plain->name, "plain", sizeof plain->name);
        scenario->n_tables = 2;
    }
    plain->is_plain = true;
    plain->parts = between(&dice, 1, scenario->n_servers - scenario->servers[3]);
    scenario->n_moves = between(&dice, 4, 24);
    scenario->between_moves_ns = (int64_t)below(&dice, percent(&dice, 50) ? 2 : 60) * SIM_MS + 1;
}

static void kill_two(SimScenario *scenario, Dice *dice)
{
    const uint32_t first = below(dice, 3);

    for (uint32_t i = 0; i < 2; i++)
        scenario->faults[i] = (SimFault){ .kind = SIM_FAULT_KILL,
                                          .at_ms = between(dice, 100, 3000),
                                          .from = make_victim(scenario, 1 + (first + i) % 3) };
    scenario->n_faults = 2;
    scenario->heals_ms = 6000;
}

void sim_scenario_draw_losses(SimScenario *scenario, uint64_t seed)
{
    Dice dice = { seed * UINT64_C(0xd1342543de82ef95) + 19 };

    sim_scenario_draw_loss(scenario, seed);
    grow(scenario);
    kill_two(scenario, &dice);
    scenario->n_replicas = 2;
}

static void give_victims_workers(SimScenario *scenario, Dice *dice)
{
    for (uint32_t i = 0; i < scenario->n_faults; i++) {
        const uint32_t n = between(dice, 1, 2);

        scenario->workers[scenario->faults[i].from] = n;
        scenario->n_workers += n;
    }
}

static void continue_without(SimScenario *scenario, Dice *dice)
{
    give_victims_workers(scenario, dice);
    scenario->continues = true;
}

void sim_scenario_draw_restored(SimScenario *scenario, uint64_t seed)
{
    Dice dice = { seed * UINT64_C(0xd1342543de82ef95) + 31 };

    sim_scenario_draw_losses(scenario, seed);
    scenario->n_replicas = 1;
    scenario->restores = true;
    scenario->faults[1].at_ms = scenario->faults[0].at_ms + between(&dice, 1, 300);
    if (seed % 3 == 2)
        continue_without(scenario, &dice);
}

void sim_scenario_draw_overlap(SimScenario *scenario, uint64_t seed)
{
    Dice dice = { seed * UINT64_C(0xd1342543de82ef95) + 37 };

    sim_scenario_draw_losses(scenario, seed);
    scenario->n_replicas = between(&dice, 1, 2);
    scenario->faults[1].at_ms = scenario->faults[0].at_ms + 1;
    scenario->after_loss_ns = 1 + (int64_t)between(&dice, 0, 40000) * SIM_MS / 1000;
}

/* A node that is to be drained, of four, with workers or without. */
static void drain(SimScenario *scenario, Dice *dice, uint64_t seed)
{
    scenario->drained = (scenario->scheduler + 1 + below(dice, 3)) % 4;
    scenario->drain_ns = 1 + (int64_t)below(dice, percent(dice, 50) ? 20 : 800) * SIM_MS;
    scenario->n_replicas = 1 + seed % 2;
    scenario->n_faults = 0;
    scenario->heals_ms = 4000;
}

void sim_scenario_draw_drain(SimScenario *scenario, uint64_t seed)
{
    Dice dice = { seed * UINT64_C(0xd1342543de82ef95) + 43 };

    sim_scenario_draw_loss(scenario, seed);
    grow(scenario);
    drain(scenario, &dice, seed);
    if (seed % 3 == 0) { /* it ends, once it is drained */
        (void)make_victim(scenario, (scenario->drained + 4 - scenario->scheduler) % 4);
        scenario->ends_drained = true;
        scenario->faults[scenario->n_faults++] =
            (SimFault){ .kind = SIM_FAULT_KILL, .at_ms = 100, .from = scenario->drained };
    } else if (seed % 3 == 1) { /* it or another one dies meanwhile */
        scenario->faults[scenario->n_faults++] =
            (SimFault){ .kind = SIM_FAULT_KILL,
                        .at_ms = between(&dice, 100, 1500),
                        .from = make_victim(scenario, 1 + below(&dice, 3)) };
        if (seed % 9 == 1)
            continue_without(scenario, &dice);
    }
    scenario->n_workers = scenario->n_servers = 0;
    for (uint32_t i = 0; i < 4; i++) {
        scenario->n_workers += scenario->workers[i];
        scenario->n_servers += scenario->servers[i];
    }
}

static void add_newcomer(SimScenario *scenario, Dice *dice, uint32_t node)
{
    SimNewcomer *const newcomer = &scenario->newcomers[scenario->n_newcomers++];

    /* it may come before the loss is known */
    *newcomer =
        (SimNewcomer){ .node = node,
                       .after_ms = 1 + below(dice, percent(dice, 80) ? 2 * scenario->timeout_ms
                                                                     : 8 * scenario->timeout_ms) };
    if (percent(dice, 40)) /* while it joins, or repeats, or after that */
        newcomer->killed_after_ms = 1 + below(dice, 2 * scenario->timeout_ms);
}

/* All processes have the same links. */
static void link_newcomers(SimScenario *scenario)
{
    const SimLink usual = scenario->network.usual[0][1];

    scenario->network.n_nodes = scenario->n_nodes + scenario->n_newcomers;
    for (uint32_t from = 0; from < SIM_MOST_LINKED; from++)
        for (uint32_t to = 0; to < SIM_MOST_LINKED; to++)
            scenario->network.usual[from][to] = usual;
}

void sim_scenario_draw_replaced(SimScenario *scenario, uint64_t seed)
{
    Dice dice = { seed * UINT64_C(0xd1342543de82ef95) + 53 };
    uint32_t n_lost;

    sim_scenario_draw_losses(scenario, seed);
    scenario->n_faults = n_lost = seed % 3 == 2 ? 2 : 1;
    give_victims_workers(scenario, &dice);
    scenario->barrier_1024 = percent(&dice, 50) ? below(&dice, 700) : 0;
    scenario->n_replicas = 1 + seed / 3 % 2;
    scenario->n_iterations = between(&dice, 4, 24);
    scenario->replace_ms = percent(&dice, 15) ? 1 + below(&dice, 4 * scenario->timeout_ms) : 20000;
    for (uint32_t i = 0; i < n_lost; i++) {
        scenario->faults[i].at_ms = between(&dice, 100, 2000);
        for (uint32_t n = percent(&dice, 10) ? 0 : between(&dice, 1, 2); n > 0; n--)
            add_newcomer(scenario, &dice, scenario->faults[i].from);
    }
    link_newcomers(scenario);
    for (uint32_t n = percent(&dice, 33) ? between(&dice, 1, 4) : 0; n > 0; n--)
        draw_fault(scenario, &dice, /* is_deadly= */ false);
    if (percent(&dice, 25)) {
        scenario->drained = (scenario->scheduler + 1 + below(&dice, 3)) % 4;
        scenario->drain_ns = 1 + (int64_t)below(&dice, 800) * SIM_MS;
    }
}

void sim_scenario_draw_worker_loss(SimScenario *scenario, uint64_t seed)
{
    Dice dice = { seed * UINT64_C(0xd1342543de82ef95) + 29 };

    if (seed % 4 == 3)
        sim_scenario_draw_losses(scenario, seed);
    else
        sim_scenario_draw_loss(scenario, seed);
    continue_without(scenario, &dice);
}

void sim_scenario_draw_start(SimScenario *scenario, uint64_t seed)
{
    static void (*const draws[])(SimScenario * scenario, uint64_t seed) = {
        sim_scenario_draw_loss,
        sim_scenario_draw_losses,
        sim_scenario_draw_worker_loss,
        sim_scenario_draw_replaced,
    };
    Dice dice = { seed * UINT64_C(0xd1342543de82ef95) + 61 };

    draws[seed / 8 % G_N_ELEMENTS(draws)](scenario, seed); /* a batch has each eighth seed */
    const SimLink *const link = &scenario->network.usual[0][1];
    const int64_t way_ns = link->least_ns + link->spread_ns;

    while (scenario->faults[scenario->n_faults - 1].kind != SIM_FAULT_KILL)
        scenario->n_faults--;
    scenario->at_task = between(&dice, 1, scenario->n_tasks);
    for (uint32_t i = 0; i < scenario->n_faults; i++)
        scenario->at_task_ns[i] =
            1 + (int64_t)below(&dice, 1000) * (percent(&dice, 70) ? 6 : 40) * way_ns / 1000;
}

void sim_scenario_draw_ragged(SimScenario *scenario, uint64_t seed)
{
    static void (*const draws[])(SimScenario *, uint64_t) = {
        sim_scenario_draw,          sim_scenario_draw_loss,     sim_scenario_draw_losses,
        sim_scenario_draw_restored, sim_scenario_draw_overlap,  sim_scenario_draw_drain,
        sim_scenario_draw_moves,    sim_scenario_draw_replaced, sim_scenario_draw_worker_loss,
    };

    draws[seed % G_N_ELEMENTS(draws)](scenario, seed);
    announce_nothing(scenario);
    for (uint32_t i = 0; i < scenario->n_tables; i++)
        scenario->tables[i].handle = SIM_HANDLE_RAGGED;
}

void sim_scenario_draw_large(SimScenario *scenario, uint32_t n_nodes)
{
    static const SimLink usual = { .least_ns = 50000, .spread_ns = 100000 };
    SimTable *const table = &scenario->tables[0];

    *scenario = (SimScenario){ .seed = n_nodes,
                               .options = { .seed = n_nodes },
                               .sizes = FLOW_SIZES_USUAL,
                               .n_nodes = n_nodes,
                               .n_workers = n_nodes,
                               .n_servers = n_nodes,
                               .heartbeat_ms = 2000,
                               .timeout_ms = 20000,
                               .n_tables = 1,
                               .n_tasks = 2,
                               .n_iterations = 3,
                               .think_ns = SIM_MS,
                               .slow_worker = UINT32_MAX,
                               .barrier_1024 = 300,
                               .failing_worker = UINT32_MAX,
                               .cancelled_ms = -1 };
    for (uint32_t i = 0; i < n_nodes; i++)
        scenario->servers[i] = scenario->workers[i] = 1;
    *table = (SimTable){ .name = "t0",
                         .model = SIM_MODEL_SSP,
                         .handle = SIM_HANDLE_KV,
                         .staleness = 1,
                         .record = "dense",
                         .n_keys = 16,
                         .most_keys = 4,
                         .parts = 16 };
    scenario->network.n_nodes = n_nodes;
    scenario->network.shares = true;
    for (uint32_t from = 0; from < SIM_MOST_LINKED; from++)
        for (uint32_t to = 0; to < SIM_MOST_LINKED; to++)
            scenario->network.usual[from][to] = usual;
}

static void drop_fault(SimScenario *scenario, uint32_t i)
{
    scenario->faults[i] = scenario->faults[--scenario->n_faults];
}

void sim_scenario_draw_exact(SimScenario *scenario, uint64_t seed, uint64_t program)
{
    sim_scenario_draw(scenario, seed);
    scenario->exact_program = program;
    scenario->failing_worker = UINT32_MAX;
    scenario->cancelled_ms = -1;
    scenario->barrier_1024 = 0;
    for (uint32_t i = scenario->n_faults; i-- > 0;)
        if (scenario->faults[i].kind == SIM_FAULT_KILL ||
            scenario->faults[i].for_ms >= scenario->timeout_ms)
            drop_fault(scenario, i);
    memset(scenario->workers, 0, sizeof scenario->workers);
    for (scenario->n_workers = 0; scenario->n_workers < SIM_EXACT_WORKERS; scenario->n_workers++)
        scenario->workers[(seed * 7 + scenario->n_workers * (seed % 3)) % scenario->n_nodes]++;
    for (uint32_t i = 0; i < scenario->n_nodes; i++)
        if (scenario->workers[i] == 0 && scenario->servers[i] == 0)
            scenario->servers[i] = 1; /* a node needs a server or a worker */
    if (scenario->slow_worker != UINT32_MAX)
        scenario->slow_worker %= SIM_EXACT_WORKERS;
}

void sim_scenario_draw_exact_loss(SimScenario *scenario, uint64_t seed, uint64_t program)
{
    Dice dice = { seed * UINT64_C(0xd1342543de82ef95) + 23 };

    sim_scenario_draw_exact(scenario, seed, program);
    const uint32_t victim = make_victim(scenario, 1 + below(&dice, scenario->n_nodes - 1));
    memset(scenario->workers, 0, sizeof scenario->workers);
    scenario->n_workers = SIM_EXACT_WORKERS;
    for (uint32_t i = 0, node = scenario->scheduler; i < SIM_EXACT_WORKERS; i++) {
        scenario->workers[node]++;
        do
            node = (node + 1) % scenario->n_nodes;
        while (node == victim);
    }
    scenario->slow_worker = UINT32_MAX;
    scenario->n_moves = 0;
    scenario->n_replicas = 1;
    scenario->outlives = true;
    scenario->faults[0] =
        (SimFault){ .kind = SIM_FAULT_KILL, .at_ms = between(&dice, 100, 3000), .from = victim };
    scenario->n_faults = 1;
    scenario->heals_ms = 4000;
}

void sim_scenario_draw_exact_replaced(SimScenario *scenario, uint64_t seed, uint64_t program)
{
    Dice dice = { seed * UINT64_C(0xd1342543de82ef95) + 59 };

    sim_scenario_draw_exact_loss(scenario, seed, program);
    const uint32_t victim = scenario->faults[0].from;
    memset(scenario->workers, 0, sizeof scenario->workers);
    scenario->workers[victim] = between(&dice, 1, 3);
    for (uint32_t i = scenario->workers[victim], node = scenario->scheduler; i < SIM_EXACT_WORKERS;
         i++) {
        scenario->workers[node]++;
        do
            node = (node + 1) % scenario->n_nodes;
        while (node == victim);
    }
    for (uint32_t i = 0; i < scenario->n_nodes; i++)
        scenario->servers[i] = MAX(1, scenario->servers[i]);
    scenario->faults[0].at_ms = between(&dice, 20, 800);
    scenario->replace_ms = 60000;
    for (uint32_t n = between(&dice, 1, 3); n > 0; n--)
        add_newcomer(scenario, &dice, victim);
    scenario->newcomers[scenario->n_newcomers - 1].killed_after_ms = 0;
    link_newcomers(scenario);
}

void sim_scenario_draw_kept_loss(SimScenario *scenario, uint64_t seed)
{
    Dice dice = { seed * UINT64_C(0xd1342543de82ef95) + 61 };

    if (seed % 2 == 0) {
        sim_scenario_draw_exact_replaced(scenario, seed, 1);
    } else {
        sim_scenario_draw_exact_loss(scenario, seed, 1);
        continue_without(scenario, &dice);
    }
    scenario->exact_program = 0;
    scenario->keeps_rows = true;
    scenario->faults[0].at_ms = between(&dice, 1, 800);
}

void sim_scenario_draw_exact_restored(SimScenario *scenario, uint64_t seed, uint64_t program)
{
    Dice dice = { seed * UINT64_C(0xd1342543de82ef95) + 41 };

    sim_scenario_draw_exact(scenario, seed, program);
    memset(scenario->faults, 0, sizeof scenario->faults);
    grow(scenario);
    memset(scenario->workers, 0, sizeof scenario->workers);
    scenario->slow_worker = UINT32_MAX;
    kill_two(scenario, &dice);
    memset(scenario->workers, 0, sizeof scenario->workers);
    scenario->n_workers = SIM_EXACT_WORKERS;
    for (uint32_t i = 0, node = scenario->scheduler; i < SIM_EXACT_WORKERS; i++) {
        scenario->workers[node]++;
        do
            node = (node + 1) % scenario->n_nodes;
        while (node == scenario->faults[0].from || node == scenario->faults[1].from);
    }
    scenario->n_moves = 0;
    scenario->n_replicas = 1;
    scenario->outlives = scenario->restores = true;
    scenario->faults[0].at_ms = between(&dice, 20, 600); /* later, many programs have ended */
    scenario->faults[1].at_ms = scenario->faults[0].at_ms + between(&dice, 1, 300);
}

void sim_scenario_draw_exact_drain(SimScenario *scenario, uint64_t seed, uint64_t program)
{
    Dice dice = { seed * UINT64_C(0xd1342543de82ef95) + 47 };

    sim_scenario_draw_exact_restored(scenario, seed, program);
    scenario->restores = false;
    drain(scenario, &dice, seed);
    scenario->drain_ns = 1 + (int64_t)below(&dice, 300) * SIM_MS;
    memset(scenario->workers, 0, sizeof scenario->workers);
    for (uint32_t i = 0; i < SIM_EXACT_WORKERS; i++)
        scenario->workers[(seed + i) % 4]++;
}
