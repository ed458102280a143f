/* See the header. */
#include "tests/support/collectives/tensor_world.h"

#include <rubato/mix.h>
#include <string.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

bool tensor_world_goes_on(const World *world)
{
    return world->fault == FAULT_LOSS || world->fault == FAULT_REPLACED;
}

bool tensor_world_chance(World *world, uint32_t one_of)
{
    return random_below(&world->random, one_of) == 0;
}

uint64_t tensor_world_value(const World *world, uint32_t rank, uint64_t i)
{
    return rubato_mix64(world->seed * 64 + rank) + i * (rank + 1);
}

uint32_t tensor_world_n_members(const World *world, const Job *job)
{
    return job->in_set ? world->sets[job->round].n : world->all[job->round].n;
}

uint32_t tensor_world_member(const World *world, const Job *job, uint32_t place)
{
    return (job->in_set ? world->sets : world->all)[job->round].ranks[place];
}

uint32_t tensor_world_place(const World *world, const Job *job, uint32_t rank)
{
    for (uint32_t place = 0; place < tensor_world_n_members(world, job); place++)
        if (tensor_world_member(world, job, place) == rank)
            return place;
    return UINT32_MAX;
}

static bool is_joinable(const Job *job)
{
    return tensor_request_may_join(&job->request);
}

static uint64_t sum_of(const World *world, const Job *job, uint64_t i)
{
    uint64_t sum = 0;

    for (uint32_t rank = 0; rank < world->n_workers; rank++)
        sum += job->requests[rank].is_asked ? tensor_world_value(world, rank, i) : 0;
    return sum;
}

static bool is_reduced(const World *world, const Job *job, uint32_t rank)
{
    const TensorPart *const part = &job->requests[rank].entry->part;
    const bool scatters = job->request.operation == TENSOR_REDUCE_SCATTER;
    const uint32_t n_members = tensor_world_n_members(world, job);
    const uint32_t place = tensor_world_place(world, job, rank);
    const uint64_t n_rows = tensor_request_values(&part->request);
    const uint64_t n = scatters ? rubato_reduce_scatter_rows(n_rows, n_members, place) : n_rows;
    uint64_t first = 0;

    for (uint32_t i = 0; i < place && scatters; i++)
        first += rubato_reduce_scatter_rows(n_rows, n_members, i);
    for (uint64_t i = 0; i < n; i++)
        if (((const uint64_t *)part->output)[i] != sum_of(world, job, first + i))
            return false;
    return true;
}

static bool is_gathered(const World *world, const Job *job, uint32_t rank)
{
    const RubatoGathered *const gathered = &job->requests[rank].gathered;
    const uint64_t *value = gathered->values;
    const uint32_t place = tensor_world_place(world, job, rank);

    for (uint32_t i_from = 0; i_from < tensor_world_n_members(world, job); i_from++) {
        const uint32_t from = tensor_world_member(world, job, i_from);
        const bool deals = job->request.operation == TENSOR_ALLTOALL;
        const uint64_t n =
            deals ? 2 : tensor_request_values(&job->requests[from].entry->part.request);

        if (gathered->rows[i_from] != n)
            return false;
        for (uint64_t i = 0; i < n; i++)
            if (*value++ != tensor_world_value(world, from, (deals ? 2 * place : 0) + i))
                return false;
    }
    return true;
}

static bool is_right(const World *world, const Job *job, uint32_t rank)
{
    const TensorPart *const part = &job->requests[rank].entry->part;

    switch (job->request.operation) {
    case TENSOR_ALLREDUCE:
    case TENSOR_REDUCE_SCATTER:
        return is_reduced(world, job, rank);
    case TENSOR_ALLGATHER:
    case TENSOR_ALLTOALL:
        return is_gathered(world, job, rank);
    case TENSOR_BROADCAST:
        for (uint64_t i = 0; i < part->request.shape[0]; i++)
            if (((const uint64_t *)part->output)[i] !=
                tensor_world_value(world, tensor_world_member(world, job, job->request.root), i))
                return false;
        return true;
    default:
        return true;
    }
}

static uint32_t count_asked(const World *world, const Job *job)
{
    uint32_t n_asked = 0;

    for (uint32_t rank = 0; rank < world->n_workers; rank++)
        n_asked += job->requests[rank].is_asked;
    return n_asked;
}

/* Nobody joins in a set: what some of its workers do not ask for is pending until its removal. */
static bool is_removed(const World *world, const Job *job)
{
    return job->in_set && count_asked(world, job) < tensor_world_n_members(world, job);
}

/* Whether the workers that asked do not fit together. */
static bool is_job_mismatch(const World *world, const Job *job)
{
    const uint32_t n_asked = count_asked(world, job);

    if (job->in_set && n_asked < tensor_world_n_members(world, job))
        return false;
    return (job->odd != UINT32_MAX && job->requests[job->odd].is_asked && n_asked > 1) ||
           (!job->in_set && n_asked < world->all[job->round].n && !is_joinable(job));
}

/* The same of its group. */
static bool is_mismatch(const World *world, const Job *job)
{
    return is_job_mismatch(world, job) || (job->n_group == 2 && is_job_mismatch(world, job + 1)) ||
           (job->n_group == 0 && is_job_mismatch(world, job - 1));
}

static void judge_request(const World *world, const Job *job, uint32_t rank)
{
    const Request *const it = &job->requests[rank];
    const GError *const error = it->is_asked ? it->entry->failure : NULL;
    const int code = error == NULL ? 0 : error->code;
    const bool is_end = code == RUBATO_ERROR_NOT_FOUND || code == RUBATO_ERROR_CANCELLED;
    const bool is_loss = code == RUBATO_ERROR_NODE_LOST || code == RUBATO_ERROR_NOT_FOUND;

    if (!it->is_asked || it->is_void || world->is_lost[world->workers[rank].node])
        return;
    require_msg(it->has_ended, "seed %zu: rank %u waits for %s", (size_t)world->seed, rank,
                job->name);
    if (error == NULL)
        require_msg(!is_mismatch(world, job) && !is_removed(world, job) &&
                        is_right(world, job, rank),
                    "seed %zu: rank %u has a wrong %s %s", (size_t)world->seed, rank,
                    tensor_operation_name(job->request.operation), job->name);
    else if (code == RUBATO_ERROR_MISMATCH)
        require_msg(is_mismatch(world, job), "seed %zu: %s", (size_t)world->seed, error->message);
    else if (code != RUBATO_ERROR_CANCELLED || !is_removed(world, job))
        require_msg((code == RUBATO_ERROR_MEMORY && world->fault == FAULT_MEMORY) ||
                        (code == RUBATO_ERROR_FORMAT && world->fault == FAULT_NONSENSE &&
                         strstr(error->message, "node 7 sent") != NULL) ||
                        (is_loss && tensor_world_goes_on(world) && world->n_lost > 0) ||
                        (is_end && (world->fault == FAULT_RETURN || world->fault == FAULT_DEATH)),
                    "seed %zu: rank %u: %s", (size_t)world->seed, rank, error->message);
}

/* What has no values ends alike on all that live: a barrier, and the join of a round. */
static void judge_agreed(const World *world, uint32_t round)
{
    bool joined = false, unjoined = false;

    for (uint32_t rank = 0; rank < world->n_workers; rank++) {
        const bool lives = !world->is_lost[world->workers[rank].node];

        joined |= lives && world->joined[round][rank];
        unjoined |= lives && world->unjoined[round][rank];
    }
    require_msg(!joined || !unjoined, "seed %zu: only some have joined in round %u",
                (size_t)world->seed, round);
    for (uint32_t i = 0; i < N_JOBS; i++) {
        const Job *const job = &world->jobs[round][i];
        bool ended = false, failed = false;

        for (uint32_t rank = 0; rank < world->n_workers; rank++) {
            const Request *const it = &job->requests[rank];
            const bool counts =
                it->is_asked && !it->is_void && !world->is_lost[world->workers[rank].node];

            ended |= counts && it->entry->failure == NULL;
            failed |= counts && it->entry->failure != NULL;
        }
        require_msg(
            job->request.operation != TENSOR_BARRIER || job->n_group != 1 || !ended || !failed,
            "seed %zu: %s was passed by some in round %u", (size_t)world->seed, job->name, round);
    }
}

void tensor_world_judge(const World *world)
{
    for (uint32_t node = 0; node < N_NODES; node++)
        require_msg(world->nodes[node].exchange == NULL || world->is_lost[node],
                    "seed %zu: node %u waits for ever", (size_t)world->seed, node);
    for (uint32_t round = 0; tensor_world_goes_on(world) && round < world->n_rounds; round++)
        judge_agreed(world, round);
    for (uint32_t round = 0; round < world->n_rounds; round++)
        for (uint32_t i = 0; i < N_JOBS; i++)
            for (uint32_t rank = 0; rank < world->n_workers; rank++)
                judge_request(world, &world->jobs[round][i], rank);
}
