/* Sets of workers: see tensor_sets.h.
 *
 * Invariant: between two calls no change can be decided, and the matchers' queues are empty. */
#include "engine/collectives/negotiation/tensor_sets.h"

#include <string.h>

#include "engine/collectives/negotiation/tensor_ranks.h"
#include "engine/collectives/negotiation/tensor_text.h"

typedef struct {
    uint32_t n_members;
    uint32_t made;       /* it is this one of those that were made, from 1; set 0: 0 */
    uint32_t generation; /* since when it has these */
    TensorMatcher *matcher;
    TensorSlots *slots;
    uint32_t filling; /* the slot that the decisions of a group fill; TENSOR_NO_SLOT: none */
    size_t n_to_come; /* of this group */
    uint32_t ranks[]; /* of the members, rising */
} Set;

/* The change that a worker asks for. */
typedef struct {
    uint32_t set;     /* that is to be removed; 0: one is to be made */
    uint32_t n_ranks; /* of the new one */
    uint32_t ranks[];
} Change;

struct TensorSets {
    uint32_t n_workers;
    GPtrArray *sets;  /* of Set, by id; NULL: the id is free */
    Change **changes; /* by rank; NULL: it has not asked for one */
    uint32_t n_changes;
    char **left;                /* by rank: why; NULL: it has not */
    bool *lost;                 /* by rank */
    uint32_t n_living;          /* not lost */
    uint32_t generation;        /* losses, so far */
    uint32_t n_made;            /* sets that were ever made */
    GQueue outcomes;            /* of TensorOutcome */
    const TensorRecall *recall; /* NULL: nothing is asked again */
    void *user;                 /* its */
};

/* ---- life ---- */

static Set *set_new(const uint32_t *ranks, uint32_t n, uint32_t generation, uint32_t made)
{
    Set *const set = g_malloc(sizeof(Set) + n * sizeof set->ranks[0]);

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

static void set_free(Set *set)
{
    if (set == NULL)
        return;
    tensor_matcher_free(set->matcher);
    tensor_slots_free(set->slots);
    g_free(set);
}

/* What nobody decides any more. */
static void drop_held(const TensorSets *sets, Set *set)
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
    g_ptr_array_add(sets->sets, set_new(NULL, n_workers, 0, 0));
    sets->changes = g_new0(Change *, n_workers);
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
        set_free(sets->sets->pdata[i]);
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

/* Takes the decision and the error. */
static TensorOutcome *add_outcome(TensorSets *sets, TensorOutcomeKind kind, uint32_t id,
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
static uint32_t fill_slot(const TensorSets *sets, Set *set, const TensorDecision *decision)
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

/* What the set's matcher has decided. */
static void take_decisions(TensorSets *sets, uint32_t id)
{
    Set *const set = sets->sets->pdata[id];
    TensorDecision *decision;

    while ((decision = tensor_matcher_next(set->matcher)) != NULL) {
        const bool is_name = decision->name != NULL;
        TensorOutcome *const outcome =
            add_outcome(sets, is_name ? TENSOR_OUTCOME_NAME : TENSOR_OUTCOME_JOIN, id,
                        set->n_members, decision, NULL);

        if (is_name)
            outcome->slot = fill_slot(sets, set, decision);
    }
}

/* ---- requests in a set ---- */

static Set *find_set(const TensorSets *sets, uint32_t id)
{
    return id < sets->sets->len ? sets->sets->pdata[id] : NULL;
}

static bool is_member(const Set *set, uint32_t rank, uint32_t *place)
{
    return tensor_ranks_find(set->ranks, set->n_members, rank, place);
}

static Set *find_member(const TensorSets *sets, uint32_t id, uint32_t rank, uint32_t *place,
                        GError **error)
{
    Set *const set = find_set(sets, id);

    if (set != NULL && is_member(set, rank, place))
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
    const Set *const set = sets->sets->pdata[id];
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
        take_decisions(sets, id);
    }
    return ok;
}

/* The matcher takes what some workers have asked again. It refuses none of it: nothing else of the
 * slot's names is pending, nobody has joined, and it is not closed; else they were not held. Others
 * have not asked, so that none of it is decided. */
static void ask_held(TensorSets *sets, uint32_t id, TensorSlot *slot)
{
    const Set *const set = sets->sets->pdata[id];
    g_autofree void **held = tensor_slots_let_go(set->slots, slot);

    for (uint32_t place = 0; place < set->n_members; place++)
        if (held[place] != NULL)
            ask_slot(sets, id, slot, place, held[place], NULL);
}

static void ask_all_held(TensorSets *sets, uint32_t id)
{
    const Set *const set = sets->sets->pdata[id];
    TensorSlot *slot;

    while (set != NULL && (slot = tensor_slots_first_held(set->slots)) != NULL)
        ask_held(sets, id, slot);
}

void tensor_sets_ask_in_full(TensorSets *sets)
{
    for (uint32_t id = 0; id < sets->sets->len; id++)
        ask_all_held(sets, id);
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
    const Set *const of = find_member(sets, set, rank, &place, error);
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
        add_outcome(sets, TENSOR_OUTCOME_AGAIN, set, of->n_members, NULL, NULL);
    outcome->slot = slot;
    outcome->n_names = it->n;
    outcome->held = tensor_slots_let_go(of->slots, it);
    return true;
}

bool tensor_sets_ask(TensorSets *sets, uint32_t set, uint32_t rank, const TensorAsk *asks, size_t n,
                     GError **error)
{
    uint32_t place;
    const Set *const of = find_member(sets, set, rank, &place, error);

    for (size_t i = 0; of != NULL && i < n && tensor_slots_first_held(of->slots) != NULL; i++) {
        TensorSlot *const slot = tensor_slots_of(of->slots, asks[i].name);

        if (slot != NULL && slot->n_held > 0)
            ask_held(sets, set, slot);
    }
    const bool ok = of != NULL && tensor_matcher_ask(of->matcher, place, asks, n, error);
    if (ok)
        take_decisions(sets, set);
    return ok;
}

bool tensor_sets_join(TensorSets *sets, uint32_t set, uint32_t rank, GError **error)
{
    uint32_t place;
    const Set *const of = find_member(sets, set, rank, &place, error);

    if (of != NULL)
        ask_all_held(sets, set);
    const bool ok = of != NULL && tensor_matcher_join(of->matcher, place, error);

    if (ok)
        take_decisions(sets, set);
    return ok;
}

/* ---- ends ---- */

static bool is_open(const Set *set)
{
    return set != NULL && tensor_matcher_closed(set->matcher) == NULL;
}

/* The set's matcher was closed. */
static void tell_closed(TensorSets *sets, uint32_t id)
{
    const Set *const set = sets->sets->pdata[id];

    take_decisions(sets, id);
    add_outcome(sets, TENSOR_OUTCOME_CLOSED, id, set->n_members, NULL,
                g_error_copy(tensor_matcher_closed(set->matcher)));
}

static void clear_changes(TensorSets *sets)
{
    for (uint32_t rank = 0; rank < sets->n_workers; rank++)
        g_clear_pointer(&sets->changes[rank], g_free);
    sets->n_changes = 0;
}

/* Takes the error. */
static void refuse_changes(TensorSets *sets, GError *error)
{
    clear_changes(sets);
    add_outcome(sets, TENSOR_OUTCOME_REFUSED, 0, sets->n_workers, NULL, error);
}

/* Set 0 is closed: nothing changes any more. */
static void end_changes(TensorSets *sets)
{
    const Set *const all = sets->sets->pdata[0];

    if (sets->n_changes > 0)
        refuse_changes(sets, g_error_copy(tensor_matcher_closed(all->matcher)));
}

void tensor_sets_cancel(TensorSets *sets, const GError *why)
{
    for (uint32_t id = 0; id < sets->sets->len; id++) {
        Set *const set = sets->sets->pdata[id];

        if (!is_open(set))
            continue;
        ask_all_held(sets, id);
        tensor_matcher_cancel(set->matcher, why);
        tell_closed(sets, id);
    }
    end_changes(sets);
}

/* If it is open, and the worker in it. */
static void close_for(TensorSets *sets, uint32_t id, uint32_t rank)
{
    Set *const set = sets->sets->pdata[id];
    uint32_t place;

    if (!is_open(set) || !is_member(set, rank, &place))
        return;
    ask_all_held(sets, id);
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
    end_changes(sets);
}

/* ---- losses ---- */

static bool has_one_of(const Set *set, uint32_t first, uint32_t end)
{
    for (uint32_t place = 0; set != NULL && place < set->n_members; place++)
        if (set->ranks[place] >= first && set->ranks[place] < end)
            return true;
    return false;
}

/* The set has those of its workers that are left, and begins anew. */
static void shrink(TensorSets *sets, uint32_t id)
{
    Set *const set = sets->sets->pdata[id];
    g_autofree uint32_t *ranks = g_new(uint32_t, set->n_members);
    uint32_t n = 0;

    for (uint32_t place = 0; place < set->n_members; place++)
        if (!sets->lost[set->ranks[place]])
            ranks[n++] = set->ranks[place];
    sets->sets->pdata[id] = n == 0 ? NULL : set_new(ranks, n, sets->generation, set->made);
    set_free(set);
}

/* All that is pending in the set fails by the loss. */
static void fail_by_loss(TensorSets *sets, uint32_t id, const GError *why)
{
    const Set *const set = sets->sets->pdata[id];
    const GList *const before = sets->outcomes.tail;

    ask_all_held(sets, id);
    tensor_matcher_cancel(set->matcher, why);
    take_decisions(sets, id);
    for (const GList *link = sets->outcomes.tail; link != before; link = link->prev)
        ((TensorOutcome *)link->data)->is_by_loss = true;
}

/* What is pending in the sets of these workers fails, and the sets begin anew. */
static void begin_anew(TensorSets *sets, TensorOutcomeKind kind, uint32_t first, uint32_t end,
                       const GError *why)
{
    sets->generation++;
    if (sets->n_changes > 0) {
        refuse_changes(sets, g_error_copy(why));
        ((TensorOutcome *)g_queue_peek_tail(&sets->outcomes))->is_by_loss = true;
    }
    for (uint32_t id = 0; id < sets->sets->len; id++)
        if (has_one_of(sets->sets->pdata[id], first, end)) {
            fail_by_loss(sets, id, why);
            shrink(sets, id);
        }
    add_outcome(sets, kind, 0, sets->n_living, NULL, g_error_copy(why));
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
    const Set *const found = sets->sets->pdata[set];

    *made = found->made;
    *generation = found->generation;
}

bool tensor_sets_is_late(const TensorSets *sets, uint32_t set, uint32_t heard)
{
    const Set *const found = find_set(sets, set);

    return heard < (found == NULL ? sets->generation : found->generation);
}

/* ---- changes ---- */

static uint32_t find_free_id(const TensorSets *sets)
{
    uint32_t id = 1;

    while (id < sets->sets->len && sets->sets->pdata[id] != NULL)
        id++;
    return id;
}

static void make_set(TensorSets *sets, const Change *change)
{
    const uint32_t id = find_free_id(sets);

    if (id == sets->sets->len)
        g_ptr_array_add(sets->sets, NULL);
    sets->sets->pdata[id] =
        set_new(change->ranks, change->n_ranks, sets->generation, ++sets->n_made);
    add_outcome(sets, TENSOR_OUTCOME_MADE, id, change->n_ranks, NULL, NULL);
}

static void remove_set(TensorSets *sets, uint32_t id)
{
    Set *const set = sets->sets->pdata[id];
    g_autoptr(GError) why =
        g_error_new(RUBATO_ERROR, RUBATO_ERROR_CANCELLED, "set %u of workers was removed", id);

    ask_all_held(sets, id);
    tensor_matcher_cancel(set->matcher, why);
    take_decisions(sets, id);
    add_outcome(sets, TENSOR_OUTCOME_REMOVED, id, set->n_members, NULL, NULL);
    sets->sets->pdata[id] = NULL;
    set_free(set);
}

static bool is_same(const Change *one, const Change *other)
{
    return one->set == other->set && one->n_ranks == other->n_ranks &&
           memcmp(one->ranks, other->ranks, one->n_ranks * sizeof one->ranks[0]) == 0;
}

/* "the removal of set 2", "a set of the workers 0-3, 7". (transfer full) */
static char *describe_change(const TensorSets *sets, const Change *change)
{
    if (change->set != 0)
        return g_strdup_printf("the removal of set %u", change->set);
    g_autofree char *ranks = tensor_ranks_describe(change->ranks, change->n_ranks);
    return g_strdup_printf("a set of %s",
                           change->n_ranks == sets->n_workers ? "all workers" : ranks);
}

/* Who asks for this change, or for none if it is NULL. (transfer full) */
static char *name_asking(const TensorSets *sets, const Change *change)
{
    g_autoptr(GArray) ranks = g_array_new(FALSE, FALSE, sizeof(uint32_t));

    for (uint32_t rank = 0; rank < sets->n_workers; rank++) {
        const Change *const other = sets->changes[rank];

        if (!sets->lost[rank] &&
            (change == NULL ? other == NULL : other != NULL && is_same(change, other)))
            g_array_append_val(ranks, rank);
    }
    return tensor_ranks_describe((const uint32_t *)(const void *)ranks->data, ranks->len);
}

static GError *tell_mismatch(const TensorSets *sets, const Change *one, const Change *other)
{
    g_autofree char *what = describe_change(sets, one);
    g_autofree char *other_what = describe_change(sets, other);
    g_autofree char *who = name_asking(sets, one);
    g_autofree char *other_who = name_asking(sets, other);

    return g_error_new(RUBATO_ERROR, RUBATO_ERROR_MISMATCH,
                       "workers disagree on their sets: %s is asked for by %s, but %s by %s", what,
                       who, other_what, other_who);
}

/* Decides the change once all workers have asked for one. */
static void check_changes(TensorSets *sets)
{
    const Change *first = NULL;

    if (sets->n_changes < sets->n_living)
        return;
    for (uint32_t rank = 0; rank < sets->n_workers; rank++) {
        const Change *const change = sets->changes[rank];

        if (first == NULL)
            first = change;
        if (change != NULL && !is_same(first, change)) {
            refuse_changes(sets, tell_mismatch(sets, first, change));
            return;
        }
    }
    if (first->set != 0)
        remove_set(sets, first->set);
    else
        make_set(sets, first);
    clear_changes(sets);
}

static bool check_may_change(const TensorSets *sets, uint32_t rank, GError **error)
{
    const Set *const all = sets->sets->pdata[0];
    const GError *const closed = tensor_matcher_closed(all->matcher);

    if (closed != NULL) {
        g_propagate_error(error, g_error_copy(closed));
        return false;
    }
    if (sets->changes[rank] == NULL)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_EXISTS,
                "worker %u asks for another change of the sets before the last one is decided",
                rank);
    return false;
}

static void add_change(TensorSets *sets, uint32_t rank, uint32_t set, const uint32_t *ranks,
                       uint32_t n)
{
    Change *const change = g_malloc(sizeof(Change) + n * sizeof change->ranks[0]);

    change->set = set;
    change->n_ranks = n;
    for (uint32_t i = 0; i < n; i++)
        change->ranks[i] = ranks[i];
    sets->changes[rank] = change;
    sets->n_changes++;
    check_changes(sets);
}

bool tensor_sets_make(TensorSets *sets, uint32_t rank, const uint32_t *ranks, uint32_t n,
                      GError **error)
{
    if (!check_may_change(sets, rank, error))
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (sets->lost[ranks[i]]) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                        "worker %u was lost, so no set can have it", ranks[i]);
            return false;
        }
    add_change(sets, rank, 0, ranks, n);
    return true;
}

bool tensor_sets_remove(TensorSets *sets, uint32_t rank, uint32_t set, GError **error)
{
    if (!check_may_change(sets, rank, error))
        return false;
    if (set == 0 || find_set(sets, set) == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "there is no set %u to be removed",
                    set);
        return false;
    }
    add_change(sets, rank, set, NULL, 0);
    return true;
}

/* ---- who is missing ---- */

uint32_t tensor_sets_end(const TensorSets *sets)
{
    return sets->sets->len;
}

const TensorMatcher *tensor_sets_matcher(const TensorSets *sets, uint32_t set,
                                         const uint32_t **ranks, uint32_t *n_members)
{
    const Set *const found = find_set(sets, set);

    if (found == NULL)
        return NULL;
    *ranks = found->ranks;
    *n_members = found->n_members;
    return found->matcher;
}

const TensorSlot *tensor_sets_first_held(const TensorSets *sets, uint32_t set)
{
    const Set *const found = find_set(sets, set);

    return found == NULL ? NULL : tensor_slots_first_held(found->slots);
}

bool tensor_sets_changes(const TensorSets *sets, uint32_t rank)
{
    return sets->changes[rank] != NULL;
}

char *tensor_sets_missing(const TensorSets *sets)
{
    return sets->n_changes == 0 ? NULL : name_asking(sets, NULL);
}

/* ---- as bytes ---- */

static void walk_set(StateWalk *walk, TensorSets *sets, uint32_t id, TensorTagWalk tag)
{
    Set *set = sets->sets->pdata[id];
    const size_t n = walk_count(walk, set == NULL ? 0 : set->n_members);

    if (walk_reads(walk)) { /* a new one has set 0 */
        set_free(set);
        set = sets->sets->pdata[id] = n == 0 ? NULL : set_new(NULL, (uint32_t)n, 0, 0);
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
    Change *change = sets->changes[rank];
    const bool is_there = walk_number(walk, change != NULL) != 0;
    const size_t n = walk_count(walk, change == NULL ? 0 : change->n_ranks);

    if (!is_there)
        return;
    if (walk_reads(walk)) {
        change = g_malloc0(sizeof(Change) + n * sizeof change->ranks[0]);
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
