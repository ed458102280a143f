#include "tests/support/cluster/cluster_moves.h"

static bool move_parts(RubatoEngine *engine, ClusterMoves *moves, GError **error)
{
    uint64_t state = 5;

    for (uint32_t i = 0; i < moves->n_moves; i++) {
        const uint32_t part = random_below(&state, moves->n_parts);
        const uint32_t server = random_below(&state, rubato_engine_n_servers(engine));

        if (!rubato_engine_move_part(engine, moves->table, part, server, error))
            return false;
        event_raise(&moves->moved);
    }
    return true;
}

bool cluster_run_moving(RubatoEngine *engine, const RubatoTask *task, ClusterMoves *moves,
                        GError **error)
{
    RubatoTaskRun *const run = rubato_engine_start(engine, task, error);

    if (run == NULL)
        return false;
    const bool moved = move_parts(engine, moves, error);
    return rubato_task_run_wait(run, moved ? error : NULL) && moved;
}

bool cluster_await_moves(RubatoWorker *worker, ClusterMoves *moves, uint64_t clock,
                         uint64_t n_clocks, GError **error)
{
    return rubato_worker_rank(worker) != 0 ||
           event_await(&moves->moved, (uint32_t)(clock * moves->n_moves / n_clocks), worker, error);
}
