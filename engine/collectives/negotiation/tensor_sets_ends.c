/* Sets of workers that close, and that lose workers: see tensor_sets.h. */
#include "engine/collectives/negotiation/tensor_sets_private.h"

/* ---- ends ---- */

static bool is_open(const WorkerSet *set)
{
    return set != NULL && tensor_matcher_closed(set->matcher) == NULL;
}

/* The set's matcher was closed. */
static void tell_closed(TensorSets *sets, uint32_t id)
{
    const WorkerSet *const set = sets->sets->pdata[id];

    sets_take_decisions(sets, id);
    sets_add_outcome(sets, TENSOR_OUTCOME_CLOSED, id, set->n_members, NULL,
                     g_error_copy(tensor_matcher_closed(set->matcher)));
}

void tensor_sets_cancel(TensorSets *sets, const GError *why)
{
    for (uint32_t id = 0; id < sets->sets->len; id++) {
        WorkerSet *const set = sets->sets->pdata[id];

        if (!is_open(set))
            continue;
        sets_ask_all_held(sets, id);
        tensor_matcher_cancel(set->matcher, why);
        tell_closed(sets, id);
    }
    sets_end_changes(sets);
}

/* If it is open, and the worker in it. */
static void close_for(TensorSets *sets, uint32_t id, uint32_t rank)
{
    WorkerSet *const set = sets->sets->pdata[id];
    uint32_t place;

    if (!is_open(set) || !sets_is_member(set, rank, &place))
        return;
    sets_ask_all_held(sets, id);
    tensor_matcher_leave(set->matcher, place, sets->left[rank]);
    tell_closed(sets, id);
}

void tensor_sets_leave(TensorSets *sets, uint32_t rank, const char *why)
{
    if (sets->lost[rank])
        return;
    if (sets->left[rank] == NULL)
        sets->left[rank] = g_strdup(why);
    for (uint32_t id = 0; id < sets->sets->len; id++)
        close_for(sets, id, rank);
    sets_end_changes(sets);
}

/* ---- losses ---- */

static bool has_one_of(const WorkerSet *set, uint32_t first, uint32_t end)
{
    for (uint32_t place = 0; set != NULL && place < set->n_members; place++)
        if (set->ranks[place] >= first && set->ranks[place] < end)
            return true;
    return false;
}

/* The set has those of its workers that are left, and begins anew. */
static void shrink(TensorSets *sets, uint32_t id)
{
    WorkerSet *const set = sets->sets->pdata[id];
    g_autofree uint32_t *ranks = g_new(uint32_t, set->n_members);
    uint32_t n = 0;

    for (uint32_t place = 0; place < set->n_members; place++)
        if (!sets->lost[set->ranks[place]])
            ranks[n++] = set->ranks[place];
    sets->sets->pdata[id] = n == 0 ? NULL : sets_new_set(ranks, n, sets->generation, set->made);
    sets_free_set(set);
}

/* All that is pending in the set fails by the loss. */
static void fail_by_loss(TensorSets *sets, uint32_t id, const GError *why)
{
    const WorkerSet *const set = sets->sets->pdata[id];
    const GList *const before = sets->outcomes.tail;

    sets_ask_all_held(sets, id);
    tensor_matcher_cancel(set->matcher, why);
    sets_take_decisions(sets, id);
    for (const GList *link = sets->outcomes.tail; link != before; link = link->prev)
        ((TensorOutcome *)link->data)->is_by_loss = true;
}

/* What is pending in the sets of these workers fails, and the sets begin anew. */
static void begin_anew(TensorSets *sets, TensorOutcomeKind kind, uint32_t first, uint32_t end,
                       const GError *why)
{
    sets->generation++;
    if (sets->n_changes > 0) {
        sets_refuse_changes(sets, g_error_copy(why));
        ((TensorOutcome *)g_queue_peek_tail(&sets->outcomes))->is_by_loss = true;
    }
    for (uint32_t id = 0; id < sets->sets->len; id++)
        if (has_one_of(sets->sets->pdata[id], first, end)) {
            fail_by_loss(sets, id, why);
            shrink(sets, id);
        }
    sets_add_outcome(sets, kind, 0, sets->n_living, NULL, g_error_copy(why));
    for (uint32_t id = 0; id < sets->sets->len; id++)
        for (uint32_t rank = 0; rank < sets->n_workers; rank++)
            if (sets->left[rank] != NULL)
                close_for(sets, id, rank);
}

void tensor_sets_lose(TensorSets *sets, uint32_t first, uint32_t end, const GError *why)
{
    for (uint32_t rank = first; rank < end; rank++) {
        sets->n_living -= !sets->lost[rank];
        sets->lost[rank] = true;
    }
    begin_anew(sets, TENSOR_OUTCOME_LOST, first, end, why);
}

void tensor_sets_replace(TensorSets *sets, uint32_t first, uint32_t end, const GError *why)
{
    for (uint32_t rank = first; rank < end; rank++)
        g_clear_pointer(&sets->left[rank], g_free);
    begin_anew(sets, TENSOR_OUTCOME_REPLACED, first, end, why);
}

uint32_t tensor_sets_generation(const TensorSets *sets)
{
    return sets->generation;
}

uint32_t tensor_sets_n_made(const TensorSets *sets)
{
    return sets->n_made;
}

void tensor_sets_age(const TensorSets *sets, uint32_t set, uint32_t *made, uint32_t *generation)
{
    const WorkerSet *const found = sets->sets->pdata[set];

    *made = found->made;
    *generation = found->generation;
}

bool tensor_sets_is_late(const TensorSets *sets, uint32_t set, uint32_t heard)
{
    const WorkerSet *const found = sets_find(sets, set);

    return heard < (found == NULL ? sets->generation : found->generation);
}
