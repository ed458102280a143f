#include "tests/support/collectives/tensor_workers.h"

#include <string.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

/* ---- what workers ask ---- */

static void make_odd(World *world, Job *job)
{
    job->odd =
        job->request.operation == TENSOR_ALLREDUCE && tensor_world_chance(world, 6)
            ? tensor_world_member(world, job,
                                  random_below(&world->random, tensor_world_n_members(world, job)))
            : UINT32_MAX;
}

/* What the round before had, which workers may ask again by its slots. */
static void repeat_job(World *world, Job *job, const Job *earlier, uint32_t round)
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
    make_odd(world, job);
}

static void make_job(World *world, Job *job, uint32_t round, uint32_t number)
{
    static const uint32_t rows[] = { 1, 3, 10, 2500, 40000 };
    TensorRequest *const request = &job->request;

    *request = (TensorRequest){
        .operation = tensor_world_chance(world, 2)
                         ? TENSOR_ALLREDUCE
                         : (TensorOperation)random_below(&world->random, TENSOR_OPERATIONS),
        .dtype = RUBATO_I64,
        .reduce = { .prescale = 1, .postscale = 1 },
    };
    if (request->operation != TENSOR_BARRIER) {
        request->n_dims = 1;
        request->shape[0] =
            rows[tensor_world_chance(world, 80)   ? 4
                 : tensor_world_chance(world, 10) ? 3
                                                  : random_below(&world->random, 3)];
    }
    job->round = round;
    job->n_group = number > 0 && job[-1].n_group == 2 ? 0 : 1;
    job->in_set = job->n_group == 0 ? job[-1].in_set : tensor_world_chance(world, 3);
    const uint32_t n_members = tensor_world_n_members(world, job);
    if (request->operation == TENSOR_BROADCAST)
        request->root = random_below(&world->random, n_members);
    if (request->operation == TENSOR_ALLTOALL)
        request->shape[0] = 2 * n_members;
    make_odd(world, job);
    g_snprintf(job->name, sizeof job->name, "t %u", number % N_NAMES);
    if (job->n_group == 1 && number + 1 < N_JOBS && tensor_world_chance(world, 4))
        job->n_group = 2;
}

static void make_request(const World *world, Job *job, uint32_t rank)
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
static bool may_ask(const World *world, const Worker *worker, uint32_t number)
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
static void ask_twice(const World *world, const Worker *worker, const Request *pending)
{
    TensorExchange *const exchange = world->nodes[worker->node].exchange;
    g_autoptr(GError) error = NULL;
    TensorEntry entry = { .name = pending->entry->name,
                          .set = pending->entry->set,
                          .place = pending->entry->place,
                          .part.request = { .operation = TENSOR_BARRIER } };

    TensorSet *const set = exchange_set(exchange, entry.set);
    const uint32_t local = entry.place - set->first_local;
    const TensorSlot *const slot = tensor_slots_of(set->slots, entry.name);
    const bool is_held = slot != NULL && slot->held[local] != NULL;
    if (!is_held && !g_hash_table_contains(set->asked[local], entry.name))
        return;
    require_msg(!tensor_exchange_ask(exchange, worker->rank, &entry, 1, &error),
                "seed %zu: asked twice", (size_t)world->seed);
    require_msg(world->fault != FAULT_NONE ||
                    g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_EXISTS),
                "seed %zu: %s", (size_t)world->seed, error->message);
}

static bool ask_next(World *world, Worker *worker)
{
    const uint32_t first = random_below(&world->random, N_JOBS);
    Job *job = NULL;

    if (worker->n_asked >= worker->quota)
        return false;
    for (uint32_t i = 0; i < N_JOBS && job == NULL; i++)
        if (may_ask(world, worker, (first + i) % N_JOBS))
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
        make_request(world, &job[i], worker->rank);
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
    if (!call_has_ended(&asking->call) && tensor_world_chance(world, 10))
        ask_twice(world, worker, &job->requests[worker->rank]);
    return true;
}

static bool is_loss(const GError *error)
{
    return g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST);
}

/* The worker has got this failure, or success if it is NULL. Returns whether it tells of a loss. */
static bool note_told(const World *world, Worker *worker, const GError *failure)
{
    tensor_exchange_note_told(world->nodes[worker->node].exchange, worker->rank, failure);
    require_msg(!is_loss(failure) || tensor_world_goes_on(world), "seed %zu: %s",
                (size_t)world->seed, failure->message);
    worker->recovery.is_due |= is_loss(failure);
    return is_loss(failure);
}

static bool is_fatal(const GError *error)
{
    return error != NULL && !is_loss(error) &&
           !g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_MISMATCH) &&
           !g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY) &&
           !g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT);
}

/* Looks for requests that have ended. *n_open: those that have not; *n_in_set: of them, those in
 * the set, which its removal ends. */
static bool notice_ends(World *world, Worker *worker, uint32_t *n_open, uint32_t *n_in_set)
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
        if (it->has_ended)
            note_told(world, worker, it->entry->failure);
        *n_open += !it->has_ended;
        *n_in_set += !it->has_ended && it->entry->set > 0;
        worker->fails |=
            it->has_ended && is_fatal(it->entry->failure) && worker->phase != PHASE_REMOVE;
    }
    return any;
}

static void begin_round(World *world, Worker *worker)
{
    const Job *const jobs = world->jobs[worker->round];
    uint32_t n_jobs = 0;

    for (uint32_t i = 0; i < N_JOBS; i++)
        n_jobs += tensor_world_place(world, &jobs[i], worker->rank) != UINT32_MAX;
    worker->phase = PHASE_MAKE;
    worker->has_changed = false;
    worker->n_asked = 0;
    worker->quota =
        tensor_world_chance(world, 4) ? random_below(&world->random, n_jobs + 1) : n_jobs;
}

/* ---- the set of a round ---- */

static bool change_sets(World *world, Worker *worker)
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

static bool notice_change(World *world, Worker *worker)
{
    const Members *const set = &world->sets[worker->round];
    uint32_t n_open, n_in_set;

    if (!call_has_ended(&worker->change.call))
        return false;
    notice_ends(world, worker, &n_open, &n_in_set);
    /* What was decided before goes on. If the removal was refused, what is pending in the set ends
     * once one of its workers returns. */
    if (worker->phase >= PHASE_REMOVE && n_open > 0 && worker->change.failure == NULL)
        return false;
    worker->is_changing = false;
    g_autoptr(GError) failure = g_steal_pointer(&worker->change.failure);
    if (note_told(world, worker, failure))
        return true;
    if (g_error_matches(failure, RUBATO_ERROR, RUBATO_ERROR_MISMATCH)) {
        require_msg(worker->phase == PHASE_MAKE && set->odd != UINT32_MAX && set->n > 1,
                    "seed %zu: %s", (size_t)world->seed, failure->message);
        world->n_mismatches++;
        return true; /* it asks again, and now all ask for the same */
    }
    if (failure != NULL) {
        require_msg(world->fault == FAULT_RETURN || world->fault == FAULT_DEATH ||
                        (tensor_world_goes_on(world) && world->n_lost > 0),
                    "seed %zu: %s", (size_t)world->seed, failure->message);
        worker->fails = true;
        return true;
    }
    require_msg(worker->change.set == 1, "seed %zu: set %u", (size_t)world->seed,
                worker->change.set);
    if (worker->phase == PHASE_MAKE) {
        worker->phase = PHASE_ASK;
        return true;
    }
    worker->round = worker->phase == PHASE_CLEAN ? worker->recovery.next : worker->round + 1;
    if (worker->round < world->n_rounds)
        begin_round(world, worker);
    return true;
}

/* ---- behind a loss ---- */

static void choose_set(World *world, uint32_t round);
static void make_round(World *world, uint32_t round, bool repeats);

/* All who have told each other the same go on with that round, and with the jobs that it has from
 * now on. Unless one of them has come here before, none of these that live has begun it; who was
 * lost may have. */
static void agree_on_round(World *world, uint32_t round, uint32_t n_losses,
                           const RubatoGathered *gathered)
{
    const uint64_t *const told = gathered->values;
    Members all = { .n = (uint32_t)gathered->n_rows };

    require_msg(round < MOST_ROUNDS, "seed %zu: round %u", (size_t)world->seed, round);
    for (uint32_t i = 0; i < all.n; i++)
        all.ranks[i] = (uint32_t)told[2 * i];
    if (round < world->n_rounds && world->made_after[round] == n_losses &&
        all.n == world->all[round].n &&
        memcmp(all.ranks, world->all[round].ranks, all.n * sizeof all.ranks[0]) == 0)
        return;
    world->n_rounds = MIN(MAX(world->n_rounds, round + 2), MOST_ROUNDS);
    world->n_recovered++;
    for (uint32_t later = round; later < world->n_rounds; later++) {
        for (uint32_t i = 0; i < N_JOBS; i++)
            for (uint32_t rank = 0; rank < world->n_workers; rank++) {
                Request *const it = &world->jobs[later][i].requests[rank];

                require_msg(!it->is_asked || it->is_void,
                            "seed %zu: rank %u was in round %u before", (size_t)world->seed, rank,
                            later);
                clear_request(it);
            }
        world->all[later] = all;
        world->made_after[later] = n_losses;
        memset(world->jobs[later], 0, sizeof world->jobs[later]);
        make_round(world, later, /* repeats= */ later > round);
    }
}

/* A call of an earlier one is pending: its end is noticed first. */
static bool tell_round(World *world, Worker *worker)
{
    Restart *const it = &worker->recovery;
    TensorExchange *const exchange = world->nodes[worker->node].exchange;
    g_autoptr(GError) failure = NULL;
    TensorMember member;

    it->told[0] = worker->rank;
    it->told[1] = worker->round;
    it->entry = (TensorEntry){ .name = "recover", .call = &it->call };
    it->entry.part = (TensorPart){ .request = { .operation = TENSOR_ALLGATHER,
                                                .dtype = RUBATO_I64,
                                                .n_dims = 2,
                                                .shape = { 1, 2 },
                                                .reduce = { .prescale = 1, .postscale = 1 } },
                                   .input = it->told,
                                   .gathered = &it->gathered };
    call_begin(&it->call, NULL);
    call_add_parts(&it->call, 1);
    it->is_due = false;
    it->is_pending = tensor_exchange_enter_set(exchange, 0, worker->rank, &member, &failure);
    it->entry.place = it->is_pending ? member.place : 0;
    it->is_pending =
        it->is_pending && tensor_exchange_ask(exchange, worker->rank, &it->entry, 1, &failure);
    if (!it->is_pending && !note_told(world, worker, failure))
        worker->fails = true;
    call_sent(&it->call);
    return true;
}

static bool notice_recovery(World *world, Worker *worker)
{
    Restart *const it = &worker->recovery;

    if (!call_has_ended(&it->call))
        return false;
    g_autoptr(GError) failure = g_steal_pointer(&it->entry.failure);
    it->is_pending = false;
    if (note_told(world, worker, failure))
        return true;
    if (failure != NULL) {
        worker->fails = true;
        return true;
    }
    const TensorExchange *const exchange = world->nodes[worker->node].exchange;
    const uint32_t n_losses = exchange->known[worker->rank - exchange->first_rank];
    it->next = 0;
    for (uint64_t i = 0; i < it->gathered.n_rows; i++)
        it->next = MAX(it->next, 1 + (uint32_t)((const uint64_t *)it->gathered.values)[2 * i + 1]);
    agree_on_round(world, it->next, n_losses, &it->gathered);
    world->n_back += world->is_new[worker->rank];
    rubato_gathered_clear(&it->gathered);
    if (tensor_exchange_set_size(world->nodes[worker->node].exchange, 1) > 0) {
        worker->phase = PHASE_CLEAN;
        return change_sets(world, worker);
    }
    worker->round = it->next;
    begin_round(world, worker);
    return true;
}

/* ---- what workers do ---- */

static bool join(const World *world, Worker *worker)
{
    const Job of_all = { .round = worker->round };

    worker->join = (TensorJoin){ .place = tensor_world_place(world, &of_all, worker->rank) };
    worker->is_joining = true;
    call_begin(&worker->join.call, NULL);
    call_add_parts(&worker->join.call, 1);
    if (!tensor_exchange_join(world->nodes[worker->node].exchange, worker->rank, &worker->join,
                              &worker->join.failure))
        call_end_part(&worker->join.call, CALL_FAILED, 0);
    call_sent(&worker->join.call);
    return true;
}

static bool notice_join(World *world, Worker *worker)
{
    if (!call_has_ended(&worker->join.call))
        return false;
    worker->is_joining = false;
    g_autoptr(GError) failure = g_steal_pointer(&worker->join.failure);
    world->joined[worker->round][worker->rank] = failure == NULL;
    world->unjoined[worker->round][worker->rank] = is_loss(failure);
    if (note_told(world, worker, failure))
        return true;
    if (failure != NULL) {
        worker->fails = true;
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

static bool leave(const World *world, Worker *worker)
{
    worker->has_left = true;
    tensor_exchange_leave(world->nodes[worker->node].exchange, worker->rank);
    return true;
}

/* The first calls of a worker in the place of a lost one fail by the loss, and it begins with those
 * of the lost one. If nobody had used collectives, or all workers are new, they do not fail: what
 * the lost one had asked has come nowhere. */
static void begin_again(World *world, Worker *worker)
{
    const TensorExchange *const exchange = world->nodes[worker->node].exchange;

    worker->begins = false;
    for (uint32_t round = 0; exchange->losses->len == 0 && round < world->n_rounds; round++) {
        world->last[round] = UINT32_MAX;
        world->joined[round][worker->rank] = world->unjoined[round][worker->rank] = false;
        for (uint32_t i = 0; i < N_JOBS; i++) {
            Request *const it = &world->jobs[round][i].requests[worker->rank];

            clear_request(it);
            *it = (Request){ 0 };
        }
    }
}

/* What the worker does next. False: it waits. */
static bool step(World *world, Worker *worker)
{
    uint32_t n_open = 0, n_in_set = 0;

    if (world->is_lost[worker->node] || (world->nodes[worker->node].exchange != NULL &&
                                         world->nodes[worker->node].exchange->is_away))
        return false;
    if (worker->begins)
        begin_again(world, worker);
    if (worker->recovery.is_pending)
        return notice_recovery(world, worker);
    if (worker->round == world->n_rounds || worker->has_left)
        return !worker->has_left && leave(world, worker);
    if (worker->is_changing) /* what is pending in the set ends before the removal does */
        return notice_change(world, worker);
    if (notice_ends(world, worker, &n_open, &n_in_set))
        return true;
    if (worker->is_joining) /* what it has asked before may end later */
        return n_open == n_in_set && notice_join(world, worker);
    if (worker->fails)
        return leave(world, worker);
    if (worker->recovery.is_due)
        return n_open == n_in_set && tell_round(world, worker);
    if (worker->phase != PHASE_ASK)
        return change_sets(world, worker);
    if (ask_next(world, worker))
        return true;
    /* what others have no quota for may stay pending in the set, and keep its names */
    return (worker->n_asked >= worker->quota || n_open == n_in_set) && join(world, worker);
}

bool tensor_worker_step(World *world, uint32_t rank)
{
    Worker *const worker = &world->workers[rank];

    if (worker->is_busy)
        return false;
    worker->is_busy = true;
    const bool moved = step(world, worker);
    worker->is_busy = false;
    return moved;
}

uint32_t tensor_worker_open(World *world, uint32_t rank)
{
    uint32_t n_open, n_in_set;

    notice_ends(world, &world->workers[rank], &n_open, &n_in_set);
    return n_open;
}

/* ---- beginning and end ---- */

static void choose_set(World *world, uint32_t round)
{
    const Members *const all = &world->all[round];
    Members *const set = &world->sets[round];

    set->n = 0;
    for (uint32_t i = 0; i < all->n; i++)
        if (tensor_world_chance(world, 2))
            set->ranks[set->n++] = all->ranks[i];
    if (set->n == 0)
        set->ranks[set->n++] = all->ranks[random_below(&world->random, all->n)];
    set->odd = tensor_world_chance(world, 4) ? all->ranks[random_below(&world->random, all->n)]
                                             : UINT32_MAX;
}

/* What workers ask in the round, which has its workers. repeats: what they asked in the one before,
 * if there was one. */
static void make_round(World *world, uint32_t round, bool repeats)
{
    world->last[round] = UINT32_MAX;
    choose_set(world, round);
    for (uint32_t i = 0; i < N_JOBS; i++)
        if (round > 0 && repeats)
            repeat_job(world, &world->jobs[round][i], &world->jobs[round - 1][i], round);
        else
            make_job(world, &world->jobs[round][i], round, i);
}

void tensor_workers_begin(World *world)
{
    const bool repeats = !tensor_world_chance(world, 4);

    world->n_rounds = N_ROUNDS;
    for (uint32_t round = 0; round < N_ROUNDS; round++) {
        for (uint32_t rank = 0; rank < world->n_workers; rank++)
            world->all[round].ranks[world->all[round].n++] = rank;
        make_round(world, round, repeats);
    }
    for (uint32_t rank = 0; rank < world->n_workers; rank++)
        begin_round(world, &world->workers[rank]);
}

void tensor_worker_replace(World *world, uint32_t rank)
{
    Worker *const worker = &world->workers[rank];

    for (uint32_t round = 0; round < world->n_rounds; round++)
        for (uint32_t i = 0; i < N_JOBS; i++) {
            Request *const it = &world->jobs[round][i].requests[rank];

            it->is_void |= it->is_asked;
            it->has_ended |= it->is_asked;
        }
    g_clear_error(&worker->join.failure);
    g_clear_error(&worker->change.failure);
    g_clear_error(&worker->recovery.entry.failure);
    rubato_gathered_clear(&worker->recovery.gathered);
    *worker = (Worker){ .rank = rank, .node = worker->node };
    begin_round(world, worker);
    worker->begins = true;
    world->is_new[rank] = true;
}

void tensor_workers_end(World *world)
{
    for (uint32_t round = 0; round < world->n_rounds; round++)
        for (uint32_t i = 0; i < N_JOBS; i++)
            for (uint32_t rank = 0; rank < world->n_workers; rank++)
                clear_request(&world->jobs[round][i].requests[rank]);
    for (uint32_t rank = 0; rank < world->n_workers; rank++) {
        g_clear_error(&world->workers[rank].join.failure);
        g_clear_error(&world->workers[rank].change.failure);
        g_clear_error(&world->workers[rank].recovery.entry.failure);
        rubato_gathered_clear(&world->workers[rank].recovery.gathered);
    }
}
