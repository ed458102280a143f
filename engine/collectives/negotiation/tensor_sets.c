/* Sets of workers, and what is asked in them: see tensor_sets.h.
 *
 * Invariant: between two calls no change can be decided, and the matchers' queues are empty. */
#include "engine/collectives/negotiation/tensor_ranks.h"
#include "engine/collectives/negotiation/tensor_sets_private.h"

/* ---- life ---- */

WorkerSet *sets_new_set(const uint32_t *ranks, uint32_t n, uint32_t generation, uint32_t made)
{
    WorkerSet *const set = g_malloc(sizeof(WorkerSet) + n * sizeof set->ranks[0]);

    set->n_members = n;
    set->generation = generation;
    set->made = made;
    for (uint32_t i = 0; i < n; i++)
        set->ranks[i] = ranks == NULL ? i : ranks[i];
    set->matcher = tensor_matcher_new(n);
    tensor_matcher_name_workers(set->matcher, set->ranks);
    set->slots = tensor_slots_new(n);
    set->filling = TENSOR_NO_SLOT;
    set->n_to_come = 0;
    return set;
}

void sets_free_set(WorkerSet *set)
{
    if (set == NULL)
        return;
    tensor_matcher_free(set->matcher);
    tensor_slots_free(set->slots);
    g_free(set);
}

/* What nobody decides any more. */
static void drop_held(const TensorSets *sets, WorkerSet *set)
{
    TensorSlot *slot;

    while (set != NULL && (slot = tensor_slots_first_held(set->slots)) != NULL) {
        g_autofree void **held = tensor_slots_let_go(set->slots, slot);

        for (uint32_t place = 0; place < set->n_members; place++)
            if (held[place] != NULL)
                sets->recall->drop(sets->user, held[place]);
    }
}

TensorSets *tensor_sets_new(uint32_t n_workers)
{
    TensorSets *const sets = g_new0(TensorSets, 1);

    sets->n_workers = n_workers;
    sets->sets = g_ptr_array_new();
    g_ptr_array_add(sets->sets, sets_new_set(NULL, n_workers, 0, 0));
    sets->changes = g_new0(SetChange *, n_workers);
    sets->left = g_new0(char *, n_workers);
    sets->lost = g_new0(bool, n_workers);
    sets->n_living = n_workers;
    return sets;
}

void tensor_outcome_free(TensorOutcome *outcome)
{
    if (outcome == NULL)
        return;
    tensor_decision_free(outcome->decision);
    g_free(outcome->held);
    g_clear_error(&outcome->error);
    g_free(outcome);
}

void tensor_sets_free(TensorSets *sets)
{
    TensorOutcome *outcome;

    if (sets == NULL)
        return;
    for (guint i = 0; i < sets->sets->len; i++)
        drop_held(sets, sets->sets->pdata[i]);
    while ((outcome = tensor_sets_next(sets)) != NULL)
        tensor_outcome_free(outcome);
    for (guint i = 0; i < sets->sets->len; i++)
        sets_free_set(sets->sets->pdata[i]);
    g_ptr_array_unref(sets->sets);
    for (uint32_t rank = 0; rank < sets->n_workers; rank++) {
        g_free(sets->changes[rank]);
        g_free(sets->left[rank]);
    }
    g_free(sets->changes);
    g_free(sets->left);
    g_free(sets->lost);
    g_free(sets);
}

/* ---- outcomes ---- */

TensorOutcome *tensor_sets_next(TensorSets *sets)
{
    return g_queue_pop_head(&sets->outcomes);
}

bool tensor_sets_has_next(const TensorSets *sets)
{
    return sets->outcomes.head != NULL;
}

TensorOutcome *sets_add_outcome(TensorSets *sets, TensorOutcomeKind kind, uint32_t id,
                                uint32_t n_members, TensorDecision *decision, GError *error)
{
    TensorOutcome *const outcome = g_new(TensorOutcome, 1);

    *outcome = (TensorOutcome){ .kind = kind,
                                .set = id,
                                .n_members = n_members,
                                .slot = TENSOR_NO_SLOT,
                                .decision = decision,
                                .error = error };
    g_queue_push_tail(&sets->outcomes, outcome);
    return outcome;
}

static bool all_ask(const TensorDecision *decision, uint32_t n_members)
{
    for (uint32_t place = 0; place < n_members; place++)
        if (decision->tags[place] == NULL)
            return false;
    return true;
}

/* The slot that a decision on a name fills; TENSOR_NO_SLOT: none. All of a group are decided alike,
 * one behind another. */
static uint32_t fill_slot(const TensorSets *sets, WorkerSet *set, const TensorDecision *decision)
{
    if (sets->recall == NULL || decision->error != NULL || !all_ask(decision, set->n_members))
        return TENSOR_NO_SLOT;
    if (set->n_to_come == 0) {
        set->n_to_come = decision->n_group;
        set->filling = tensor_slots_begin(set->slots, (uint32_t)decision->n_group);
    }
    set->n_to_come--;
    if (set->filling != TENSOR_NO_SLOT)
        tensor_slots_add(set->slots, set->filling, decision->name, decision->requests,
                         /* order= */ NULL);
    return set->filling;
}

void sets_take_decisions(TensorSets *sets, uint32_t id)
{
    WorkerSet *const set = sets->sets->pdata[id];
    TensorDecision *decision;

    while ((decision = tensor_matcher_next(set->matcher)) != NULL) {
        const bool is_name = decision->name != NULL;
        TensorOutcome *const outcome =
            sets_add_outcome(sets, is_name ? TENSOR_OUTCOME_NAME : TENSOR_OUTCOME_JOIN, id,
                             set->n_members, decision, NULL);

        if (is_name)
            outcome->slot = fill_slot(sets, set, decision);
    }
}

/* ---- requests in a set ---- */

WorkerSet *sets_find(const TensorSets *sets, uint32_t id)
{
    return id < sets->sets->len ? sets->sets->pdata[id] : NULL;
}

bool sets_is_member(const WorkerSet *set, uint32_t rank, uint32_t *place)
{
    return tensor_ranks_find(set->ranks, set->n_members, rank, place);
}

static WorkerSet *find_member(const TensorSets *sets, uint32_t id, uint32_t rank, uint32_t *place,
                              GError **error)
{
    WorkerSet *const set = sets_find(sets, id);

    if (set != NULL && sets_is_member(set, rank, place))
        return set;
    if (set == NULL)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "there is no set %u of workers", id);
    else
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "worker %u is not in set %u", rank,
                    id);
    return NULL;
}

/* A worker asks for all that is in the slot, as if it had not asked before. Takes `held` on
 * success. */
static bool ask_slot(TensorSets *sets, uint32_t id, const TensorSlot *slot, uint32_t place,
                     void *held, GError **error)
{
    const WorkerSet *const set = sets->sets->pdata[id];
    g_autofree TensorAsk *asks = g_new(TensorAsk, slot->n);

    for (uint32_t i = 0; i < slot->n; i++)
        asks[i] = (TensorAsk){ slot->names[i], *tensor_slot_request(slot, i, place),
                               sets->recall->tag(sets->user, slot, i, place, held) };
    const uint32_t n = slot->n;
    const bool ok = tensor_matcher_ask(set->matcher, place, asks, n, error);
    for (uint32_t i = 0; i < n && !ok; i++)
        sets->recall->untag(sets->user, asks[i].tag);
    if (ok) {
        sets->recall->drop(sets->user, held);
        sets_take_decisions(sets, id);
    }
    return ok;
}

/* The matcher takes what some workers have asked again. It refuses none of it: nothing else of the
 * slot's names is pending, nobody has joined, and it is not closed; else they were not held. Others
 * have not asked, so that none of it is decided. */
static void ask_held(TensorSets *sets, uint32_t id, TensorSlot *slot)
{
    const WorkerSet *const set = sets->sets->pdata[id];
    g_autofree void **held = tensor_slots_let_go(set->slots, slot);

    for (uint32_t place = 0; place < set->n_members; place++)
        if (held[place] != NULL)
            ask_slot(sets, id, slot, place, held[place], NULL);
}

void sets_ask_all_held(TensorSets *sets, uint32_t id)
{
    const WorkerSet *const set = sets->sets->pdata[id];
    TensorSlot *slot;

    while (set != NULL && (slot = tensor_slots_first_held(set->slots)) != NULL)
        ask_held(sets, id, slot);
}

void tensor_sets_ask_in_full(TensorSets *sets)
{
    for (uint32_t id = 0; id < sets->sets->len; id++)
        sets_ask_all_held(sets, id);
}

void tensor_sets_recall(TensorSets *sets, const TensorRecall *recall, void *user)
{
    sets->recall = recall;
    sets->user = user;
}

bool tensor_sets_again(TensorSets *sets, uint32_t set, uint32_t rank, uint32_t slot, void *held,
                       GError **error)
{
    uint32_t place;
    const WorkerSet *const of = find_member(sets, set, rank, &place, error);
    TensorSlot *const it = of == NULL ? NULL : tensor_slots_at(of->slots, slot);

    if (of == NULL)
        return false;
    if (it == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "set %u has no slot %u", set, slot);
        return false;
    }
    if (it->held[place] != NULL) /* the matcher says what is wrong */
        ask_held(sets, set, it);
    if (it->n_held == 0 && !tensor_matcher_is_idle(of->matcher, it->names, it->n))
        return ask_slot(sets, set, it, place, held, error);
    tensor_slots_hold(of->slots, it, place, held);
    tensor_matcher_note(of->matcher, place, it->names[it->n - 1]);
    if (it->n_held < of->n_members)
        return true;
    TensorOutcome *const outcome =
        sets_add_outcome(sets, TENSOR_OUTCOME_AGAIN, set, of->n_members, NULL, NULL);
    outcome->slot = slot;
    outcome->n_names = it->n;
    outcome->held = tensor_slots_let_go(of->slots, it);
    return true;
}

bool tensor_sets_ask(TensorSets *sets, uint32_t set, uint32_t rank, const TensorAsk *asks, size_t n,
                     GError **error)
{
    uint32_t place;
    const WorkerSet *const of = find_member(sets, set, rank, &place, error);

    for (size_t i = 0; of != NULL && i < n && tensor_slots_first_held(of->slots) != NULL; i++) {
        TensorSlot *const slot = tensor_slots_of(of->slots, asks[i].name);

        if (slot != NULL && slot->n_held > 0)
            ask_held(sets, set, slot);
    }
    const bool ok = of != NULL && tensor_matcher_ask(of->matcher, place, asks, n, error);
    if (ok)
        sets_take_decisions(sets, set);
    return ok;
}

bool tensor_sets_join(TensorSets *sets, uint32_t set, uint32_t rank, GError **error)
{
    uint32_t place;
    const WorkerSet *const of = find_member(sets, set, rank, &place, error);

    if (of != NULL)
        sets_ask_all_held(sets, set);
    const bool ok = of != NULL && tensor_matcher_join(of->matcher, place, error);

    if (ok)
        sets_take_decisions(sets, set);
    return ok;
}

/* ---- the sets ---- */

uint32_t tensor_sets_end(const TensorSets *sets)
{
    return sets->sets->len;
}

const TensorMatcher *tensor_sets_matcher(const TensorSets *sets, uint32_t set,
                                         const uint32_t **ranks, uint32_t *n_members)
{
    const WorkerSet *const found = sets_find(sets, set);

    if (found == NULL)
        return NULL;
    *ranks = found->ranks;
    *n_members = found->n_members;
    return found->matcher;
}

const TensorSlot *tensor_sets_first_held(const TensorSets *sets, uint32_t set)
{
    const WorkerSet *const found = sets_find(sets, set);

    return found == NULL ? NULL : tensor_slots_first_held(found->slots);
}
