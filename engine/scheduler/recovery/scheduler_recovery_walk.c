/* What the scheduler knows of parts, as bytes: see scheduler_as_bytes.c.
 *
 * Runs as scheduler.h says. */
#include "engine/scheduler/recovery/scheduler_recovery.h"
#include "engine/scheduler/recovery/scheduler_recovery_private.h"

void recovery_note_index(Recovery *recovery, const Found *found, guint at)
{
    const guint64 key = recovery_key(found->table, found->part);

    g_hash_table_insert(recovery->index, g_memdup2(&key, sizeof key), GUINT_TO_POINTER(at));
}

void recovery_add_move(Recovery *recovery, const PlaceMove *move)
{
    const guint64 key = recovery_key(move->table, move->part);

    g_hash_table_insert(recovery->moves, g_memdup2(&key, sizeof key),
                        g_memdup2(move, sizeof *move));
}

static void walk_found(StateWalk *walk, void *element)
{
    Found *const found = element;

    WALK(walk, found->table);
    WALK(walk, found->part);
    WALK(walk, found->has_primary);
    WALK(walk, found->primary);
    WALK(walk, found->primary_node);
    WALK(walk, found->best);
    WALK(walk, found->n_replicas);
    walk->is_wrong |= found->n_replicas > PLACE_MOST_SERVERS;
    for (uint32_t i = 0; i < found->n_replicas && !walk->is_wrong; i++) {
        WALK(walk, found->replicas[i].server);
        WALK(walk, found->replicas[i].node);
        WALK(walk, found->replicas[i].position);
    }
}

static void walk_moves(StateWalk *walk, Recovery *recovery)
{
    size_t n = walk_count(walk, g_hash_table_size(recovery->moves));
    GHashTableIter iter;
    gpointer written;

    g_hash_table_iter_init(&iter, recovery->moves);
    for (; n > 0; n--) {
        PlaceMove move = { 0 };

        if (!walk_reads(walk) && g_hash_table_iter_next(&iter, NULL, &written))
            move = *(const PlaceMove *)written;
        WALK(walk, move.table);
        WALK(walk, move.part);
        WALK(walk, move.from);
        WALK(walk, move.to);
        WALK(walk, move.n);
        if (walk_reads(walk))
            recovery_add_move(recovery, &move);
    }
}

void recovery_walk(StateWalk *walk, Scheduler *scheduler)
{
    Recovery *const it = scheduler->recovery;
    const uint32_t n_nodes = scheduler->config.n_nodes;

    WALK(walk, scheduler->recovers);
    WALK(walk, scheduler->map_number);
    WALK(walk, it->step);
    WALK(walk, it->node);
    WALK(walk, it->cause);
    walk_text(walk, &it->text);
    walk_flags(walk, it->done, n_nodes);
    walk_flags(walk, it->told, n_nodes);
    walk_array(walk, it->found, walk_found);
    for (guint i = 0; walk_reads(walk) && i < it->found->len; i++)
        recovery_note_index(it, &g_array_index(it->found, Found, i), i);
    walk_text(walk, &it->places);
    WALK(walk, it->since_ms);
    walk_u64s(walk, it->ordered, n_nodes);
    walk_u64s(walk, it->awaited, n_nodes);
    walk_moves(walk, it);
    WALK(walk, it->joined);
    WALK(walk, it->n_plans);
    walk_flags(walk, it->unplanned, n_nodes);
    WALK(walk, it->all_leave);
    walk_text(walk, &it->fault);
    walk->is_wrong |=
        it->node >= n_nodes || it->joined >= n_nodes || it->cause >= CONTROL_CAUSE_END;
}
