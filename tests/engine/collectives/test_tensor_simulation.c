/* Collectives on tensors of three simulated nodes: the real scheduler, and on each node the router
 * and the exchange. In each round workers make a set, use it beside all workers, and remove it with
 * what is pending in it. Control messages are late, pieces of tensors come in any order, and other
 * threads of a node go on wherever one of them sends: the seed decides. Every request ends, on all
 * workers alike, also if a worker returns, a node dies, memory is short, or a node sends nonsense.
 *
 * One thread. */
#include <string.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/engine/tensor_world.h"
#include "tests/support/runner.h"

enum {
    N_SEEDS = 250, /* RUBATO_TEST_SEEDS says another number */
    MOST_DEEP = 3, /* threads of a node that are at work at the same time */
};

static World *world;

static bool move(void);

static bool chance(uint32_t one_of)
{
    return random_below(&world->random, one_of) == 0;
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
        control->kind == CONTROL_TASK_END)
        put_control(&world->nodes[node].from_scheduler, control);
}

static bool deliver_to_node(uint32_t number)
{
    Node *const node = &world->nodes[number];

    if (number == world->lost || node->is_hearing || node->from_scheduler.length == 0)
        return false;
    Control *const control = g_queue_pop_head(&node->from_scheduler);
    node->is_hearing = true;
    if (control->kind == CONTROL_DECIDE) {
        world->n_again += g_str_has_prefix(control->decide.lines, "o ") ? 1 : 0;
        require_msg(tensor_router_decide(node->router, &control->decide),
                    "seed %zu: node %u makes no sense of %s", (size_t)world->seed, number,
                    control->decide.lines);
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
    Control *const control = number == world->lost ? NULL : g_queue_pop_head(&node->to_scheduler);

    if (control == NULL)
        return false;
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

/* ---- what workers ask ---- */

static void make_odd(Job *job)
{
    job->odd =
        job->request.operation == TENSOR_ALLREDUCE && chance(6)
            ? tensor_world_member(world, job,
                                  random_below(&world->random, tensor_world_n_members(world, job)))
            : UINT32_MAX;
}

/* What the round before had, which workers may ask again by its slots. */
static void repeat_job(Job *job, const Job *earlier, uint32_t round)
{
    *job = (Job){ .request = earlier->request,
                  .round = round,
                  .in_set = earlier->in_set,
                  .n_group = earlier->n_group };
    memcpy(job->name, earlier->name, sizeof job->name);
    const uint32_t n_members = tensor_world_n_members(world, job);
    if (job->request.operation == TENSOR_BROADCAST)
        job->request.root %= n_members;
    if (job->request.operation == TENSOR_ALLTOALL)
        job->request.shape[0] = 2 * n_members;
    make_odd(job);
}

static void make_job(Job *job, uint32_t round, uint32_t number)
{
    static const uint32_t rows[] = { 1, 3, 10, 2500, 40000 };
    TensorRequest *const request = &job->request;

    *request = (TensorRequest){
        .operation = chance(2) ? TENSOR_ALLREDUCE
                               : (TensorOperation)random_below(&world->random, TENSOR_OPERATIONS),
        .dtype = RUBATO_I64,
        .reduce = { .prescale = 1, .postscale = 1 },
    };
    if (request->operation != TENSOR_BARRIER) {
        request->n_dims = 1;
        request->shape[0] = rows[chance(80) ? 4 : chance(10) ? 3 : random_below(&world->random, 3)];
    }
    job->round = round;
    job->n_group = number > 0 && job[-1].n_group == 2 ? 0 : 1;
    job->in_set = job->n_group == 0 ? job[-1].in_set : chance(3);
    const uint32_t n_members = tensor_world_n_members(world, job);
    if (request->operation == TENSOR_BROADCAST)
        request->root = random_below(&world->random, n_members);
    if (request->operation == TENSOR_ALLTOALL)
        request->shape[0] = 2 * n_members;
    make_odd(job);
    g_snprintf(job->name, sizeof job->name, "t %u", number % N_NAMES);
    if (job->n_group == 1 && number + 1 < N_JOBS && chance(4))
        job->n_group = 2;
}

static void make_request(Job *job, uint32_t rank)
{
    Request *const it = &job->requests[rank];
    TensorPart *const part = &it->entry->part;

    const uint32_t n_members = tensor_world_n_members(world, job);

    it->entry->name = job->name;
    it->entry->set = job->in_set; /* the only one has the id 1 */
    it->entry->place = tensor_world_place(world, job, rank);
    part->request = job->request;
    if (job->odd == rank)
        part->request.shape[0]++;
    if (job->request.operation == TENSOR_ALLGATHER)
        part->request.shape[0] = (part->request.shape[0] + rank) % 7;
    const uint64_t n = tensor_request_values(&part->request);
    uint64_t *const input = g_new(uint64_t, n + 1);
    for (uint64_t i = 0; i < n; i++)
        input[i] = tensor_world_value(world, rank, i);
    part->input = input;
    part->output = g_new0(uint64_t, n + 1);
    part->gathered = &it->gathered;
    if (job->request.operation != TENSOR_ALLTOALL)
        return;
    part->splits = g_new(uint64_t, n_members);
    for (uint32_t i = 0; i < n_members; i++)
        part->splits[i] = 2;
}

static void clear_request(Request *it)
{
    if (it->entry == NULL)
        return;
    g_free((void *)(uintptr_t)it->entry->part.input);
    g_free(it->entry->part.output);
    if (it->is_refused)
        g_free(it->entry->part.splits);
    rubato_gathered_clear(&it->gathered);
    g_clear_error(&it->entry->failure);
    if (it->entry == it->asking->entries + (it->asking->entries[1].name != NULL))
        g_free(it->asking); /* its last one */
}

/* What its earlier jobs under the name must be: ended. */
static bool may_ask(const Worker *worker, uint32_t number)
{
    const Job *const jobs = world->jobs[worker->round];

    for (uint32_t k = number; k < number + jobs[number].n_group; k++)
        for (uint32_t i = 0; i < k; i++)
            if (strcmp(jobs[i].name, jobs[k].name) == 0 && jobs[i].in_set == jobs[k].in_set &&
                tensor_world_place(world, &jobs[i], worker->rank) != UINT32_MAX &&
                !jobs[i].requests[worker->rank].has_ended)
                return false;
    return jobs[number].n_group > 0 &&
           tensor_world_place(world, &jobs[number], worker->rank) != UINT32_MAX &&
           !jobs[number].requests[worker->rank].is_asked;
}

/* While the request is not decided. */
static void ask_twice(const Worker *worker, const Request *pending)
{
    TensorExchange *const exchange = world->nodes[worker->node].exchange;
    g_autoptr(GError) error = NULL;
    TensorEntry entry = { .name = pending->entry->name,
                          .set = pending->entry->set,
                          .place = pending->entry->place,
                          .part.request = { .operation = TENSOR_BARRIER } };

    TensorSet *const set = exchange_set(exchange, entry.set);
    exchange_ask_in_full(set, entry.name);
    if (!g_hash_table_contains(set->asked[entry.place - set->first_local], entry.name))
        return;
    require_msg(!tensor_exchange_ask(exchange, worker->rank, &entry, 1, &error),
                "seed %zu: asked twice", (size_t)world->seed);
    require_msg(world->fault != FAULT_NONE ||
                    g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_EXISTS),
                "seed %zu: %s", (size_t)world->seed, error->message);
}

static bool ask_next(Worker *worker)
{
    const uint32_t first = random_below(&world->random, N_JOBS);
    Job *job = NULL;

    if (worker->n_asked >= worker->quota)
        return false;
    for (uint32_t i = 0; i < N_JOBS && job == NULL; i++)
        if (may_ask(worker, (first + i) % N_JOBS))
            job = &world->jobs[worker->round][(first + i) % N_JOBS];
    if (job == NULL)
        return false;
    const uint32_t n = job->n_group;
    Asking *const asking = g_new0(Asking, 1);
    GError *refusal = NULL;
    for (uint32_t i = 0; i < n; i++) {
        Request *const it = &job[i].requests[worker->rank];

        it->asking = asking;
        it->entry = &asking->entries[i];
        it->entry->call = &asking->call;
        make_request(&job[i], worker->rank);
        it->is_asked = true;
    }
    worker->n_asked += n;
    call_begin(&asking->call, NULL);
    call_add_parts(&asking->call, n);
    const bool ok = tensor_exchange_ask(world->nodes[worker->node].exchange, worker->rank,
                                        asking->entries, n, &refusal);
    for (uint32_t i = 0; i < n && !ok; i++) {
        job[i].requests[worker->rank].is_refused = true;
        asking->entries[i].failure = g_error_copy(refusal);
        call_end_part(&asking->call, CALL_FAILED, 0);
    }
    g_clear_error(&refusal);
    call_sent(&asking->call);
    if (!call_has_ended(&asking->call) && chance(10))
        ask_twice(worker, &job->requests[worker->rank]);
    return true;
}

static bool is_fatal(const GError *error)
{
    return error != NULL && !g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_MISMATCH) &&
           !g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY) &&
           !g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT);
}

/* Looks for requests that have ended. *n_open: those that have not; *n_in_set: of them, those in
 * the set, which its removal ends. */
static bool notice_ends(Worker *worker, uint32_t *n_open, uint32_t *n_in_set)
{
    bool any = false;

    *n_open = 0;
    *n_in_set = 0;
    for (uint32_t i = 0; i < N_JOBS; i++) {
        Request *const it = &world->jobs[worker->round][i].requests[worker->rank];

        if (!it->is_asked || it->has_ended)
            continue;
        it->has_ended = call_has_ended(&it->asking->call);
        any |= it->has_ended;
        *n_open += !it->has_ended;
        *n_in_set += !it->has_ended && it->entry->set > 0;
        worker->fails |=
            it->has_ended && is_fatal(it->entry->failure) && worker->phase != PHASE_REMOVE;
    }
    return any;
}

static void begin_round(Worker *worker)
{
    const Job *const jobs = world->jobs[worker->round];
    uint32_t n_jobs = 0;

    for (uint32_t i = 0; i < N_JOBS; i++)
        n_jobs += tensor_world_place(world, &jobs[i], worker->rank) != UINT32_MAX;
    worker->phase = PHASE_MAKE;
    worker->has_changed = false;
    worker->n_asked = 0;
    worker->quota = chance(4) ? random_below(&world->random, n_jobs + 1) : n_jobs;
}

/* ---- the set of a round ---- */

static bool change_sets(Worker *worker)
{
    Members *const set = &world->sets[worker->round];
    const bool is_odd = set->odd == worker->rank && !worker->has_changed;

    worker->change = (TensorSetChange){ .set = 1 };
    if (worker->phase == PHASE_MAKE) {
        worker->change.ranks = set->ranks;
        worker->change.n_ranks = set->n;
    }
    if (is_odd && worker->phase == PHASE_MAKE && set->n > 1)
        worker->change.n_ranks--;
    worker->has_changed = true;
    worker->is_changing = true;
    call_begin(&worker->change.call, NULL);
    call_add_parts(&worker->change.call, 1);
    if (!tensor_exchange_change_sets(world->nodes[worker->node].exchange, worker->rank,
                                     &worker->change, &worker->change.failure))
        call_end_part(&worker->change.call, CALL_FAILED, 0);
    call_sent(&worker->change.call);
    return true;
}

static bool notice_change(Worker *worker)
{
    const Members *const set = &world->sets[worker->round];
    uint32_t n_open, n_in_set;

    if (!call_has_ended(&worker->change.call))
        return false;
    notice_ends(worker, &n_open, &n_in_set);
    /* What was decided before goes on. If the removal was refused, what is pending in the set ends
     * once one of its workers returns. */
    if (worker->phase == PHASE_REMOVE && n_open > 0 && worker->change.failure == NULL)
        return false;
    worker->is_changing = false;
    g_autoptr(GError) failure = g_steal_pointer(&worker->change.failure);
    if (g_error_matches(failure, RUBATO_ERROR, RUBATO_ERROR_MISMATCH)) {
        require_msg(worker->phase == PHASE_MAKE && set->odd != UINT32_MAX && set->n > 1,
                    "seed %zu: %s", (size_t)world->seed, failure->message);
        world->n_mismatches++;
        return true; /* it asks again, and now all ask for the same */
    }
    if (failure != NULL) {
        require_msg(world->fault == FAULT_RETURN || world->fault == FAULT_DEATH, "seed %zu: %s",
                    (size_t)world->seed, failure->message);
        worker->fails = true;
        return true;
    }
    require_msg(worker->change.set == 1, "seed %zu: set %u", (size_t)world->seed,
                worker->change.set);
    if (worker->phase == PHASE_MAKE) {
        worker->phase = PHASE_ASK;
        return true;
    }
    if (++worker->round < N_ROUNDS)
        begin_round(worker);
    return true;
}

/* ---- what workers do ---- */

static bool join(Worker *worker)
{
    worker->join = (TensorJoin){ .place = worker->rank };
    worker->is_joining = true;
    call_begin(&worker->join.call, NULL);
    call_add_parts(&worker->join.call, 1);
    if (!tensor_exchange_join(world->nodes[worker->node].exchange, worker->rank, &worker->join,
                              &worker->join.failure))
        call_end_part(&worker->join.call, CALL_FAILED, 0);
    call_sent(&worker->join.call);
    return true;
}

static bool notice_join(Worker *worker)
{
    if (!call_has_ended(&worker->join.call))
        return false;
    worker->is_joining = false;
    if (worker->join.failure != NULL) {
        worker->fails = true;
        g_clear_error(&worker->join.failure);
        return true;
    }
    uint32_t *const last = &world->last[worker->round];
    require_msg(*last == UINT32_MAX || *last == worker->join.last,
                "seed %zu: rank %u joined last, or rank %u", (size_t)world->seed, *last,
                worker->join.last);
    *last = worker->join.last;
    worker->phase = PHASE_REMOVE;
    return true;
}

static bool leave(Worker *worker)
{
    worker->has_left = true;
    tensor_exchange_leave(world->nodes[worker->node].exchange, worker->rank);
    return true;
}

/* What the worker does next. False: it waits. */
static bool step(Worker *worker)
{
    uint32_t n_open = 0, n_in_set = 0;

    if (worker->node == world->lost || worker->round == N_ROUNDS) {
        const bool leaves = worker->node != world->lost && !worker->has_left;
        return leaves && leave(worker);
    }
    if (worker->is_changing) /* what is pending in the set ends before the removal does */
        return notice_change(worker);
    if (notice_ends(worker, &n_open, &n_in_set))
        return true;
    if (worker->is_joining) /* what it has asked before may end later */
        return n_open == n_in_set && notice_join(worker);
    if (worker->fails)
        return !worker->has_left && leave(worker);
    if (worker->phase != PHASE_ASK)
        return change_sets(worker);
    if (ask_next(worker))
        return true;
    /* what others have no quota for may stay pending in the set, and keep its names */
    return (worker->n_asked >= worker->quota || n_open == n_in_set) && join(worker);
}

static bool step_worker(uint32_t rank)
{
    Worker *const worker = &world->workers[rank];

    if (worker->is_busy)
        return false;
    worker->is_busy = true;
    const bool moved = step(worker);
    worker->is_busy = false;
    return moved;
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
    if (to == world->lost) {
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

    if (number == world->lost || node->exchange == NULL || world->depth > 0)
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
        uint32_t n_open, n_in_set;

        if (world->workers[rank].node != number || world->workers[rank].round == N_ROUNDS)
            continue;
        notice_ends(&world->workers[rank], &n_open, &n_in_set);
        if (n_open > 0)
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
    world->lost = 1 + random_below(&world->random, N_NODES - 1);
    scheduler_node_gone(scheduler, now_ms, world->lost, "its process has ended");
}

/* Operations under way that are of more than one name. */
static void count_together(void)
{
    for (uint32_t node = 0; node < N_NODES; node++) {
        GHashTableIter iter;
        gpointer operation;

        if (world->nodes[node].exchange == NULL)
            continue;
        g_hash_table_iter_init(&iter, world->nodes[node].exchange->running);
        while (g_hash_table_iter_next(&iter, NULL, &operation))
            world->n_together += ((const Operation *)operation)->n_names > 1;
    }
    require_msg(world->n_together == 0 || world->fusion_bytes > 0,
                "seed %zu: names travel together", (size_t)world->seed);
}

/* One thing of those that can be done. False: there is none. */
static bool move(void)
{
    const uint32_t n = world->n_workers + 4 * N_NODES + 4;
    const uint32_t first = random_below(&world->random, n);

    maybe_fail();
    count_together();
    for (uint32_t i = 0; i < n; i++) {
        uint32_t what = (first + i) % n;

        if (what < world->n_workers) {
            if (step_worker(what))
                return true;
            continue;
        }
        what -= world->n_workers;
        const uint32_t node = what % N_NODES;
        const bool moved = what >= 4 * N_NODES   ? deliver_piece()
                           : what >= 3 * N_NODES ? end_task(node)
                           : what >= 2 * N_NODES ? node != world->lost && work_on(node)
                           : what >= N_NODES     ? deliver_to_node(node)
                                                 : deliver_to_scheduler(node);
        if (moved)
            return true;
    }
    return false;
}

/* ---- making ---- */

static void begin_task(void)
{
    g_autofree char *workers = NULL;

    for (uint32_t node = 0; node < N_NODES; node++)
        world->n_workers_of[node] = random_below(&world->random, MOST_LOCAL + 1);
    world->n_workers_of[CONFIG.self] += world->n_workers_of[1] + world->n_workers_of[2] == 0;
    world->n_workers_of[2] += world->n_workers_of[1] + world->n_workers_of[2] == 0;
    workers = g_strdup_printf("%u %u %u", world->n_workers_of[0], world->n_workers_of[1],
                              world->n_workers_of[2]);
    for (uint32_t node = 0; node < N_NODES; node++) {
        Control run = call(1, CONTROL_CALL_RUN, "task x", "same");

        run.propose.workers = workers;
        say(node, run);
    }
    for (uint32_t node = 0; node < N_NODES; node++)
        ready(node, 1);
}

static void begin_node(uint32_t number)
{
    Node *const node = &world->nodes[number];

    node->office.network = tensor_post_network(number);
    node->router = tensor_router_new(&node->office, tell_scheduler, node);
    node->exchange = tensor_exchange_new(&(TensorPlace){ .task = "x",
                                                         .n_nodes = N_NODES,
                                                         .self = number,
                                                         .node_ids = IDS,
                                                         .workers_of = world->n_workers_of,
                                                         .asks_in_full = chance(4),
                                                         .fusion_bytes = world->fusion_bytes });
    tensor_router_add(node->router, world->epoch, node->exchange);
    for (uint32_t i = 0; i < world->n_workers_of[number]; i++) {
        world->workers[world->n_workers] = (Worker){ .rank = world->n_workers, .node = number };
        world->n_workers++;
    }
}

static void choose_set(Members *set)
{
    for (uint32_t rank = 0; rank < world->n_workers; rank++)
        if (chance(2))
            set->ranks[set->n++] = rank;
    if (set->n == 0)
        set->ranks[set->n++] = random_below(&world->random, world->n_workers);
    set->odd = chance(4) ? random_below(&world->random, world->n_workers) : UINT32_MAX;
}

static void begin_world(uint64_t seed)
{
    world = g_new0(World, 1);
    world->seed = seed;
    world->random = seed * 2 + 1;
    world->fault = (Fault)(seed % N_FAULTS);
    world->lost = UINT32_MAX;
    tensor_post_begin(&hooks);
    world->n_until_fault = 1 + random_below(&world->random, chance(2) ? 20 : 400);
    replace_scheduler(&CONFIG, sent);
    begin();
    world->fusion_bytes = chance(3) ? 0 : chance(2) ? 64 : 64 << 20;
    begin_task();
    for (uint32_t node = 0; node < N_NODES; node++)
        begin_node(node);
    const bool repeats = !chance(4);
    for (uint32_t round = 0; round < N_ROUNDS; round++) {
        world->last[round] = UINT32_MAX;
        choose_set(&world->sets[round]);
        for (uint32_t i = 0; i < N_JOBS; i++)
            if (round > 0 && repeats)
                repeat_job(&world->jobs[round][i], &world->jobs[round - 1][i], round);
            else
                make_job(&world->jobs[round][i], round, i);
    }
    for (uint32_t rank = 0; rank < world->n_workers; rank++)
        begin_round(&world->workers[rank]);
}

static void end_world(void)
{
    for (uint32_t number = 0; number < N_NODES; number++) {
        Node *const node = &world->nodes[number];

        if (number == world->lost && node->exchange != NULL) {
            tensor_exchange_cancel(node->exchange, "the process has ended");
            while (work_on(number))
                continue;
            forget_task(node);
        }
        tensor_router_free(node->router);
        g_queue_clear_full(&node->to_scheduler, free_control);
        g_queue_clear_full(&node->from_scheduler, free_control);
    }
    tensor_post_end();
    for (uint32_t round = 0; round < N_ROUNDS; round++)
        for (uint32_t i = 0; i < N_JOBS; i++)
            for (uint32_t rank = 0; rank < world->n_workers; rank++)
                clear_request(&world->jobs[round][i].requests[rank]);
    for (uint32_t rank = 0; rank < world->n_workers; rank++) {
        g_clear_error(&world->workers[rank].join.failure);
        g_clear_error(&world->workers[rank].change.failure);
    }
    g_clear_pointer(&world, g_free);
    tear_down();
}

static uint64_t count_failures(int code)
{
    uint64_t n = 0;

    for (uint32_t round = 0; round < N_ROUNDS; round++)
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

    for (uint64_t seed = first; seed < (g_getenv("RUBATO_TEST_SEED") != NULL ? first + 1 : n);
         seed++) {
        begin_world(seed);
        while (move())
            continue;
        tensor_world_judge(world);
        n_by_nonsense += count_failures(RUBATO_ERROR_FORMAT);
        n_removed += world->fault == FAULT_NONE ? count_failures(RUBATO_ERROR_CANCELLED) : 0;
        n_mismatches += world->n_mismatches;
        n_again += world->n_again;
        n_together += world->n_together;
        end_world();
    }
    require_msg(n_by_nonsense > 0 || first > 0, "nonsense did no harm");
    require_msg(n_removed > 0 || first > 0, "no set was removed with what was pending");
    require_msg(n_mismatches > 0 || first > 0, "nobody asked for another set");
    require_msg(n_again > 0 || first > 0, "nothing was asked again");
    require_msg(n_together > 0 || first > 0, "nothing travelled together");
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
