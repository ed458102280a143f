/* Sets of workers as bytes: see tensor_sets.h. */
#include "engine/collectives/negotiation/tensor_sets_private.h"

static void walk_set(StateWalk *walk, TensorSets *sets, uint32_t id, TensorTagWalk tag)
{
    WorkerSet *set = sets->sets->pdata[id];
    const size_t n = walk_count(walk, set == NULL ? 0 : set->n_members);

    if (walk_reads(walk)) { /* a new one has set 0 */
        sets_free_set(set);
        set = sets->sets->pdata[id] = n == 0 ? NULL : sets_new_set(NULL, (uint32_t)n, 0, 0);
    }
    if (set == NULL)
        return;
    walk_u32s(walk, set->ranks, n);
    WALK(walk, set->generation);
    WALK(walk, set->made);
    WALK(walk, set->filling);
    WALK(walk, set->n_to_come);
    for (size_t i = 0; i < n; i++)
        walk->is_wrong |= set->ranks[i] >= sets->n_workers;
    tensor_matcher_walk(walk, set->matcher, tag);
    tensor_slots_walk(walk, set->slots, tag);
}

static void walk_change(StateWalk *walk, TensorSets *sets, uint32_t rank)
{
    SetChange *change = sets->changes[rank];
    const bool is_there = walk_number(walk, change != NULL) != 0;
    const size_t n = walk_count(walk, change == NULL ? 0 : change->n_ranks);

    if (!is_there)
        return;
    if (walk_reads(walk)) {
        change = g_malloc0(sizeof(SetChange) + n * sizeof change->ranks[0]);
        change->n_ranks = (uint32_t)n;
        sets->changes[rank] = change;
        sets->n_changes++;
    }
    WALK(walk, change->set);
    walk_u32s(walk, change->ranks, n);
}

void tensor_sets_walk(StateWalk *walk, TensorSets *sets, TensorTagWalk tag)
{
    const size_t n = walk_count(walk, sets->sets->len);

    g_ptr_array_set_size(sets->sets, (gint)MAX(n, 1));
    for (uint32_t id = 0; id < n && !walk->is_wrong; id++)
        walk_set(walk, sets, id, tag);
    for (uint32_t rank = 0; rank < sets->n_workers && !walk->is_wrong; rank++) {
        walk_change(walk, sets, rank);
        walk_text(walk, &sets->left[rank]);
        sets->n_living -= WALK(walk, sets->lost[rank]) && walk_reads(walk);
    }
    WALK(walk, sets->generation);
    WALK(walk, sets->n_made);
}
