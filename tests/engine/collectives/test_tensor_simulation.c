/* Collectives on tensors of three simulated nodes: the real scheduler, and on each node the router
 * and the exchange. In each round workers make a set, use it beside all workers, and remove it with
 * what is pending in it. Control messages are late, pieces of tensors come in any order, and other
 * threads of a node go on wherever one of them sends: the seed decides. It also decides whether
 * nodes agree among themselves on what workers ask again, or ask the scheduler. Every request ends,
 * on all workers alike, also if a worker returns, a node dies, memory is short, or a node sends
 * nonsense. If nodes die and the task goes on, those that live agree among themselves how to go on,
 * whatever each of them had done before: nobody waits for others, and the values are theirs alone.
 * If other processes take the place of those that died, they agree with all others in the same way.
 *
 * What workers do is in tests/support/collectives/tensor_workers.c, what must become of it in
 * tensor_world.c. One thread. */
#include "engine/collectives/flow/tensor_flow_private.h"
#include "engine/scheduler/scheduler_base.h"
#include "engine/scheduler/scheduler_state.h"
#include "engine/scheduler/scheduler_task.h"
#include "tests/support/collectives/tensor_workers.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum {
    READ_EVERY = 64, /* messages: then the scheduler is made of its state */
    N_SEEDS = 250,   /* RUBATO_TEST_SEEDS says another number */
    MOST_DEEP = 3,   /* threads of a node that are at work at the same time */
    MOVES_OF_TICK = 50,
};

static World *world;

static bool move(void);

static bool chance(uint32_t one_of)
{
    return tensor_world_chance(world, one_of);
}

/* Other threads go on. */
static void let_others_go_on(void)
{
    if (world->depth >= MOST_DEEP || !chance(3))
        return;
    world->depth++;
    for (uint32_t n = random_below(&world->random, 4); n > 0; n--)
        move();
    world->depth--;
}

/* ---- the network ---- */

static bool is_starved(void)
{
    return world->fault == FAULT_MEMORY && world->n_until_fault > 0 && --world->n_until_fault == 0;
}

static bool has_no_room(void)
{
    return chance(4);
}

static const TensorPostHooks hooks = { is_starved, has_no_room, let_others_go_on };

/* ---- control messages ---- */

static void put_control(GQueue *queue, const Control *control)
{
    Control *const copy = g_new(Control, 1);
    g_autoptr(GByteArray) body = control_encode(control);

    require_msg(control_decode(body->data, body->len, copy, NULL), "a message that nobody reads");
    g_queue_push_tail(queue, copy);
}

static void free_control(void *control)
{
    control_clear(control);
    g_free(control);
}

static void sent(void *user, uint32_t node, const Control *control)
{
    (void)user;
    if (control->kind == CONTROL_GO)
        world->epoch = control->go.id;
    if (control->kind == CONTROL_DECIDE || control->kind == CONTROL_CANCEL ||
        control->kind == CONTROL_TASK_END || control->kind == CONTROL_RECOVER)
        put_control(&world->nodes[node].from_scheduler, control);
}

static bool deliver_to_node(uint32_t number)
{
    Node *const node = &world->nodes[number];

    if (world->is_lost[number] || node->is_hearing || node->from_scheduler.length == 0)
        return false;
    Control *const control = g_queue_pop_head(&node->from_scheduler);
    node->is_hearing = true;
    if (control->kind == CONTROL_DECIDE) {
        world->n_again += g_str_has_prefix(control->decide.lines, "o ") ? 1 : 0;
        require_msg(tensor_router_decide(node->router, &control->decide),
                    "seed %zu: node %u makes no sense of %s", (size_t)world->seed, number,
                    control->decide.lines);
    } else if (control->kind == CONTROL_RECOVER) {
        const ControlRecover *const step = &control->recover;

        put_control(&node->to_scheduler,
                    &(Control){ .kind = CONTROL_RECOVERED,
                                .recover = { .map = step->map, .step = step->step } });
    } else if (control->kind == CONTROL_CANCEL && node->exchange != NULL) {
        tensor_exchange_cancel(node->exchange, control->cancel.outcome.text);
    }
    node->is_over |= control->kind == CONTROL_TASK_END;
    node->is_hearing = false;
    free_control(control);
    return true;
}

static bool deliver_to_scheduler(uint32_t number)
{
    Node *const node = &world->nodes[number];
    Control *const control = world->is_lost[number] ? NULL : g_queue_pop_head(&node->to_scheduler);

    if (control == NULL)
        return false;
    if (++world->n_delivered % READ_EVERY == 0)
        read_scheduler_again();
    require_msg(scheduler_receive(scheduler, now_ms, number, control),
                "seed %zu: the scheduler refuses %s of node %u", (size_t)world->seed,
                control_kind_name(control->kind), number);
    free_control(control);
    return true;
}

static void tell_scheduler(void *user, const Control *control)
{
    Node *const node = user;
    const uint32_t number = (uint32_t)(node - world->nodes);

    put_control(&node->to_scheduler, control);
    if (number == CONFIG.self && chance(2)) { /* what it decides may come within the call */
        while (deliver_to_scheduler(number))
            continue;
        deliver_to_node(number);
    }
    let_others_go_on();
}

/* ---- what nodes do ---- */

static bool work_on(uint32_t number)
{
    TensorExchange *const exchange = world->nodes[number].exchange;

    if (exchange == NULL || exchange->ready.length == 0)
        return false;
    pthread_mutex_lock(&exchange->lock);
    operation_work(exchange);
    pthread_mutex_unlock(&exchange->lock);
    return true;
}

static bool deliver_piece(void)
{
    uint32_t which, to;

    if (tensor_post_count() == 0)
        return false;
    which = tensor_post_choose(random_below(&world->random, tensor_post_count()), &to);
    Node *const node = &world->nodes[to];
    if (node->is_receiving)
        return false;
    if (world->is_lost[to]) {
        tensor_post_drop(which);
        return true;
    }
    node->is_receiving = true;
    const char *const wrong = tensor_router_receive(node->router, tensor_post_take(which));
    node->is_receiving = false;
    require_msg(wrong == NULL, "seed %zu: %s", (size_t)world->seed, wrong);
    return true;
}

static void forget_task(Node *node)
{
    tensor_router_remove(node->router, world->epoch);
    tensor_exchange_free(node->exchange);
    node->exchange = NULL;
}

/* A node whose workers have all returned says so, and forgets the task once all nodes have. */
static bool end_task(uint32_t number)
{
    Node *const node = &world->nodes[number];

    if (world->is_lost[number] || node->exchange == NULL || world->depth > 0)
        return false;
    for (uint32_t rank = 0; rank < world->n_workers && !node->is_done; rank++)
        if (world->workers[rank].node == number &&
            (!world->workers[rank].has_left || world->workers[rank].is_joining ||
             world->workers[rank].is_changing))
            return false;
    if (!node->is_done) {
        put_control(&node->to_scheduler,
                    &(Control){ .kind = CONTROL_TASK_DONE, .task_done = { world->epoch } });
        node->is_done = true;
        return true;
    }
    if (!node->is_over)
        return false;
    for (uint32_t rank = 0; rank < world->n_workers; rank++) {
        if (world->workers[rank].node != number || world->workers[rank].round >= world->n_rounds)
            continue;
        if (tensor_worker_open(world, rank) > 0)
            return false;
    }
    forget_task(node);
    return true;
}

/* Node 2 sends node 0 a piece, which lies behind the end of any tensor, of the next operation or
 * the one behind it. */
static void send_nonsense(void)
{
    const Node *const to = &world->nodes[0];
    TensorMessage message = { .kind = TENSOR_MESSAGE_PART, .place = UINT64_MAX - 3, .n_bytes = 8 };
    uint64_t bytes[(TENSOR_MESSAGE_HEADER_BYTES + 8) / 8] = { 0 };

    if (to->exchange == NULL || to->is_receiving || to->is_hearing)
        return;
    message.number = to->exchange->n_verdicts + 1 + random_below(&world->random, 2);
    tensor_message_write(&message, bytes);
    require_msg(tensor_router_receive(
                    to->router, tensor_post_forge(2, world->epoch, bytes, sizeof bytes)) == NULL,
                "seed %zu: refused too early", (size_t)world->seed);
}

/* What was sent to the process before this one, whose place this one took, tells of memory that was
 * lent to that. Of no task here it is late; else it is nonsense. */
static void expect_of_far_memory(uint32_t epoch, const char *expected)
{
    const TensorMessage message = { .kind = TENSOR_MESSAGE_PART,
                                    .number = 1,
                                    .n_bytes = 8,
                                    .is_lent = true,
                                    .loan = { .use = 1 } };
    uint64_t bytes[(TENSOR_MESSAGE_HEADER_BYTES + TENSOR_MESSAGE_LOAN_BYTES) / 8];

    tensor_message_write(&message, bytes);
    ck_assert_pstr_eq(
        tensor_router_receive(world->nodes[0].router,
                              tensor_post_forge(TENSOR_POST_FAR, epoch, bytes, sizeof bytes)),
        expected);
}

static void lose(uint32_t node)
{
    if (world->is_lost[node])
        return;
    world->is_lost[node] = true;
    world->n_lost++;
    scheduler_node_gone(scheduler, now_ms, node, "its process has ended");
}

/* The fault comes at its time. */
static void maybe_fail(void)
{
    if (world->fault == FAULT_NONE || world->fault == FAULT_MEMORY || world->n_until_fault == 0 ||
        --world->n_until_fault > 0)
        return;
    if (world->fault == FAULT_NONSENSE) {
        send_nonsense();
        return;
    }
    if (world->fault == FAULT_RETURN) {
        world->workers[random_below(&world->random, world->n_workers)].fails = true;
        return;
    }
    lose(1 + random_below(&world->random, N_NODES - 1));
    if (tensor_world_goes_on(world) && world->n_lost < MOST_LOSSES && chance(2))
        world->n_until_fault = 1 + random_below(&world->random, chance(2) ? 20 : 800);
}

/* Operations under way that are of more than one name, and those that nodes have agreed on without
 * the scheduler. */
static void count_together(void)
{
    for (uint32_t node = 0; node < N_NODES; node++) {
        GHashTableIter iter;
        gpointer operation;

        if (world->nodes[node].exchange == NULL)
            continue;
        g_hash_table_iter_init(&iter, world->nodes[node].exchange->running);
        while (g_hash_table_iter_next(&iter, NULL, &operation)) {
            world->n_together += ((const Operation *)operation)->n_names > 1;
            world->n_ahead += ((const Operation *)operation)->flow->plan.was_sent;
            world->n_by_rounds +=
                (((const Operation *)operation)->number & TENSOR_ROUND_NUMBER) != 0;
        }
    }
    require_msg(world->n_together == 0 || world->fusion_bytes > 0,
                "seed %zu: names travel together", (size_t)world->seed);
    require_msg(world->n_by_rounds == 0 || !world->has_no_rounds, "seed %zu: nodes agreed",
                (size_t)world->seed);
}

/* The node of rank 0 finds other cut-overs. */
static void maybe_cut(void)
{
    uint32_t node = 0;

    while (world->n_workers_of[node] == 0)
        node++;
    TensorExchange *const exchange = world->nodes[node].exchange;
    if (exchange == NULL || !world->has_cuts || !chance(20))
        return;
    exchange->wanted_cutovers =
        tensor_cutovers_all((TensorWay)random_below(&world->random, TENSOR_WAYS));
    exchange->wants_cutovers = true;
}

/* Time passes on a node that keeps others waiting for its workers. */
static bool hurry(uint32_t number)
{
    const Node *const node = &world->nodes[number];
    const TensorExchange *const exchange = node->exchange;

    if (world->is_lost[number] || exchange == NULL || exchange->rounds == NULL ||
        exchange->is_shut || !tensor_rounds_awaited(exchange->rounds))
        return false;
    world->n_hurried++;
    tensor_router_tick(node->router);
    return true;
}

static void begin_exchange(uint32_t number, bool returns);

/* Nothing of the lost process is left, or under way. */
static void clear_lost(uint32_t number)
{
    Node *const node = &world->nodes[number];

    if (node->exchange != NULL) {
        tensor_exchange_cancel(node->exchange, "the process has ended");
        while (work_on(number))
            continue;
        forget_task(node);
    }
    tensor_post_drop_of(number);
    g_queue_clear_full(&node->to_scheduler, free_control);
    g_queue_clear_full(&node->from_scheduler, free_control);
}

/* A process takes the place of a lost node, and has its workers again, if the task waits for it. */
static bool come_back(uint32_t number)
{
    Node *const node = &world->nodes[number];
    const SchedulerTask *const task = task_find(scheduler, world->epoch);

    if (world->fault != FAULT_REPLACED || !world->is_lost[number] || world->depth > 0 ||
        scheduler->recovers || node->is_hearing || node->is_receiving || task == NULL ||
        task->lost_ms[number] == INT64_MAX)
        return false;
    clear_lost(number);
    world->is_lost[number] = false;
    scheduler->nodes[number].lost = false;
    g_free(task_replace(scheduler, number, world->epoch));
    node->is_done = node->is_over = false;
    begin_exchange(number, /* returns= */ true);
    for (uint32_t rank = 0; rank < world->n_workers; rank++)
        if (world->workers[rank].node == number)
            tensor_worker_replace(world, rank);
    pthread_mutex_lock(&node->exchange->lock);
    returns_begin(node->exchange);
    pthread_mutex_unlock(&node->exchange->lock);
    return true;
}

static bool any_comes_back(void)
{
    bool any = false;

    for (uint32_t node = 0; node < N_NODES && !any; node++)
        any = come_back(node);
    return any;
}

/* One thing of those that can be done. False: there is none. */
static bool move(void)
{
    const uint32_t n = world->n_workers + 4 * N_NODES + 4;
    const uint32_t first = random_below(&world->random, n);

    maybe_fail();
    maybe_cut();
    count_together();
    if (chance(50) && any_comes_back())
        return true;
    if (++world->n_moves % MOVES_OF_TICK == 0)
        hurry((uint32_t)(world->n_moves / MOVES_OF_TICK % N_NODES));
    for (uint32_t i = 0; i < n; i++) {
        uint32_t what = (first + i) % n;

        if (what < world->n_workers) {
            if (tensor_worker_step(world, what))
                return true;
            continue;
        }
        what -= world->n_workers;
        const uint32_t node = what % N_NODES;
        const bool moved = what >= 4 * N_NODES   ? deliver_piece()
                           : what >= 3 * N_NODES ? end_task(node)
                           : what >= 2 * N_NODES ? !world->is_lost[node] && work_on(node)
                           : what >= N_NODES     ? deliver_to_node(node)
                                                 : deliver_to_scheduler(node);
        if (moved)
            return true;
    }
    for (uint32_t node = 0; node < N_NODES; node++)
        if (hurry(node))
            return true;
    return any_comes_back();
}

/* ---- making ---- */

static void begin_task(void)
{
    g_autofree char *workers = NULL;
    const bool are_alone = chance(3); /* they send before it is decided */

    for (uint32_t node = 0; node < N_NODES; node++)
        world->n_workers_of[node] = random_below(&world->random, are_alone ? 2 : MOST_LOCAL + 1);
    world->n_workers_of[CONFIG.self] += world->n_workers_of[1] + world->n_workers_of[2] == 0;
    world->n_workers_of[2] += world->n_workers_of[1] + world->n_workers_of[2] == 0;
    workers = g_strdup_printf("%u %u %u", world->n_workers_of[0], world->n_workers_of[1],
                              world->n_workers_of[2]);
    for (uint32_t node = 0; node < N_NODES; node++) {
        Control run = call(1, CONTROL_CALL_RUN, "task x", "same");

        run.propose.workers = workers;
        run.propose.survives = tensor_world_goes_on(world);
        run.propose.replace_ms = world->fault == FAULT_REPLACED ? 60000 : 0;
        say(node, run);
    }
    for (uint32_t node = 0; node < N_NODES; node++)
        ready(node, 1);
}

static void begin_exchange(uint32_t number, bool returns)
{
    Node *const node = &world->nodes[number];

    node->exchange = tensor_exchange_new(&(TensorPlace){ .task = "x",
                                                         .n_nodes = N_NODES,
                                                         .self = number,
                                                         .node_ids = IDS,
                                                         .workers_of = world->n_workers_of,
                                                         .stall_ms = 60000,
                                                         .asks_in_full = chance(4),
                                                         .has_no_rounds = world->has_no_rounds,
                                                         .continues = world->fault == FAULT_LOSS,
                                                         .replaces = world->fault == FAULT_REPLACED,
                                                         .returns = returns,
                                                         .fusion_bytes = world->fusion_bytes });
    tensor_router_add(node->router, world->epoch, node->exchange);
}

static void begin_node(uint32_t number)
{
    Node *const node = &world->nodes[number];

    node->office.network = tensor_post_network(number);
    node->router = tensor_router_new(&node->office, tell_scheduler, node);
    ck_assert(tensor_router_open(node->router, TENSOR_BACKEND_OWN, NULL));
    begin_exchange(number, /* returns= */ false);
    for (uint32_t i = 0; i < world->n_workers_of[number]; i++) {
        world->workers[world->n_workers] = (Worker){ .rank = world->n_workers, .node = number };
        world->n_workers++;
    }
}

static void begin_world(uint64_t seed)
{
    world = g_new0(World, 1);
    world->seed = seed;
    world->random = seed * 2 + 1;
    world->fault = (Fault)(seed % N_FAULTS);
    tensor_post_begin(&hooks);
    world->n_until_fault = 1 + random_below(&world->random, chance(2) ? 20 : 400);
    if (tensor_world_goes_on(world)) /* also while workers ask again */
        world->n_until_fault += random_below(&world->random, chance(2) ? 100 : 1200);
    replace_scheduler(&CONFIG, sent);
    begin();
    scheduler->goes_on = tensor_world_goes_on(world);
    world->has_no_rounds = chance(4);
    world->has_cuts = chance(2);
    world->fusion_bytes = chance(3) ? 0 : chance(2) ? 64 : 64 << 20;
    begin_task();
    for (uint32_t node = 0; node < N_NODES; node++)
        begin_node(node);
    tensor_workers_begin(world);
}

static void end_world(void)
{
    for (uint32_t number = 0; number < N_NODES; number++) {
        Node *const node = &world->nodes[number];

        if (world->is_lost[number])
            clear_lost(number);
        tensor_router_free(node->router);
        g_queue_clear_full(&node->to_scheduler, free_control);
        g_queue_clear_full(&node->from_scheduler, free_control);
    }
    tensor_post_end();
    tensor_workers_end(world);
    g_clear_pointer(&world, g_free);
    tear_down();
}

static uint64_t count_failures(int code)
{
    uint64_t n = 0;

    for (uint32_t round = 0; round < world->n_rounds; round++)
        for (uint32_t i = 0; i < N_JOBS; i++)
            for (uint32_t rank = 0; rank < world->n_workers; rank++) {
                const Request *const it = &world->jobs[round][i].requests[rank];

                n += it->is_asked && g_error_matches(it->entry->failure, RUBATO_ERROR, code);
            }
    return n;
}

static uint64_t number_in(const char *variable, uint64_t otherwise)
{
    const char *const text = g_getenv(variable);

    return text != NULL ? g_ascii_strtoull(text, NULL, 10) : otherwise;
}

/* RUBATO_TEST_SEED: that one alone. RUBATO_TEST_SEEDS: so many. */
START_TEST(every_request_ends_on_all_workers_alike)
{
    const uint64_t first = number_in("RUBATO_TEST_SEED", 0);
    const uint64_t n = number_in("RUBATO_TEST_SEEDS", N_SEEDS);
    uint64_t n_by_nonsense = 0, n_removed = 0, n_mismatches = 0, n_again = 0, n_together = 0;
    uint64_t n_by_rounds = 0, n_ahead = 0, n_lost = 0, n_recovered = 0, n_twice = 0, n_hurried = 0;
    uint64_t n_back = 0;

    for (uint64_t seed = first; seed < (g_getenv("RUBATO_TEST_SEED") != NULL ? first + 1 : n);
         seed++) {
        begin_world(seed);
        expect_of_far_memory(world->epoch + 1, NULL);
        expect_of_far_memory(world->epoch, "a piece of a tensor in memory that it does not lend");
        while (move())
            continue;
        tensor_world_judge(world);
        n_by_nonsense += count_failures(RUBATO_ERROR_FORMAT);
        n_removed += world->fault == FAULT_NONE ? count_failures(RUBATO_ERROR_CANCELLED) : 0;
        n_mismatches += world->n_mismatches;
        n_again += world->n_again;
        n_together += world->n_together;
        n_by_rounds += world->n_by_rounds;
        n_ahead += world->n_ahead;
        n_hurried += world->n_hurried;
        n_lost += count_failures(RUBATO_ERROR_NODE_LOST);
        n_recovered += world->n_recovered;
        n_back += world->n_back;
        n_twice += world->n_lost > 1 && world->n_recovered > 1;
        end_world();
    }
    require_msg(n_by_nonsense > 0 || first > 0, "nonsense did no harm");
    require_msg(n_removed > 0 || first > 0, "no set was removed with what was pending");
    require_msg(n_mismatches > 0 || first > 0, "nobody asked for another set");
    require_msg(n_again > 0 || first > 0, "nothing was asked again");
    require_msg(n_lost > 0 || first > 0, "nothing failed by a loss");
    require_msg(n_recovered > n_twice || first > 0, "nobody went on behind a loss");
    require_msg(n_back > 0 || first > 0, "nobody went on in the place of lost workers");
    require_msg(n_twice > 0 || first > 0, "nobody went on behind two losses");
    require_msg(n_by_rounds > 0 || first > 0, "nodes agreed on nothing by bits");
    require_msg(n_hurried > 0 || first > 0, "nobody kept others waiting until time had passed");
    require_msg(n_together > 0 || first > 0, "nothing travelled together");
    require_msg(n_ahead > 0 || first > 0, "nothing was sent before it was decided");
    require_msg(tensor_post_n_queued() > 0 || first > 0, "bits did not leave with what follows");
    require_msg(tensor_post_n_shared() > 0 || first > 0, "no two nodes read the same memory");
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("tensor_simulation");
    TCase *const cases = tcase_create("cases");

    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, every_request_ends_on_all_workers_alike);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
