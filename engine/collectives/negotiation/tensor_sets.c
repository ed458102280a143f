/* Sets of workers: see tensor_sets.h.
 *
 * Invariant: between two calls no change can be decided, and the matchers' queues are empty. */
#include "engine/collectives/negotiation/tensor_sets.h"

#include <string.h>

#include "engine/collectives/negotiation/tensor_ranks.h"
#include "engine/collectives/negotiation/tensor_text.h"

typedef struct {
    uint32_t n_members;
    TensorMatcher *matcher;
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
    GQueue outcomes; /* of TensorOutcome */
};

/* ---- life ---- */

static Set *set_new(const uint32_t *ranks, uint32_t n)
{
    Set *const set = g_malloc(sizeof(Set) + n * sizeof set->ranks[0]);

    set->n_members = n;
    for (uint32_t i = 0; i < n; i++)
        set->ranks[i] = ranks == NULL ? i : ranks[i];
    set->matcher = tensor_matcher_new(n);
    tensor_matcher_name_workers(set->matcher, set->ranks);
    return set;
}

static void set_free(Set *set)
{
    if (set == NULL)
        return;
    tensor_matcher_free(set->matcher);
    g_free(set);
}

TensorSets *tensor_sets_new(uint32_t n_workers)
{
    TensorSets *const sets = g_new0(TensorSets, 1);

    sets->n_workers = n_workers;
    sets->sets = g_ptr_array_new();
    g_ptr_array_add(sets->sets, set_new(NULL, n_workers));
    sets->changes = g_new0(Change *, n_workers);
    return sets;
}

void tensor_outcome_free(TensorOutcome *outcome)
{
    if (outcome == NULL)
        return;
    tensor_decision_free(outcome->decision);
    g_clear_error(&outcome->error);
    g_free(outcome);
}

void tensor_sets_free(TensorSets *sets)
{
    TensorOutcome *outcome;

    if (sets == NULL)
        return;
    while ((outcome = tensor_sets_next(sets)) != NULL)
        tensor_outcome_free(outcome);
    for (guint i = 0; i < sets->sets->len; i++)
        set_free(sets->sets->pdata[i]);
    g_ptr_array_unref(sets->sets);
    for (uint32_t rank = 0; rank < sets->n_workers; rank++)
        g_free(sets->changes[rank]);
    g_free(sets->changes);
    g_free(sets);
}

/* ---- outcomes ---- */

TensorOutcome *tensor_sets_next(TensorSets *sets)
{
    return g_queue_pop_head(&sets->outcomes);
}

/* Takes the decision and the error. */
static void add_outcome(TensorSets *sets, TensorOutcomeKind kind, uint32_t id, uint32_t n_members,
                        TensorDecision *decision, GError *error)
{
    TensorOutcome *const outcome = g_new(TensorOutcome, 1);

    *outcome = (TensorOutcome){ kind, id, n_members, decision, error };
    g_queue_push_tail(&sets->outcomes, outcome);
}

/* What the set's matcher has decided. */
static void take_decisions(TensorSets *sets, uint32_t id)
{
    const Set *const set = sets->sets->pdata[id];
    TensorDecision *decision;

    while ((decision = tensor_matcher_next(set->matcher)) != NULL)
        add_outcome(sets, decision->name != NULL ? TENSOR_OUTCOME_NAME : TENSOR_OUTCOME_JOIN, id,
                    set->n_members, decision, NULL);
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

bool tensor_sets_ask(TensorSets *sets, uint32_t set, uint32_t rank, const TensorAsk *asks, size_t n,
                     GError **error)
{
    uint32_t place;
    const Set *const of = find_member(sets, set, rank, &place, error);
    const bool ok = of != NULL && tensor_matcher_ask(of->matcher, place, asks, n, error);

    if (ok)
        take_decisions(sets, set);
    return ok;
}

bool tensor_sets_join(TensorSets *sets, uint32_t set, uint32_t rank, GError **error)
{
    uint32_t place;
    const Set *const of = find_member(sets, set, rank, &place, error);
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
        tensor_matcher_cancel(set->matcher, why);
        tell_closed(sets, id);
    }
    end_changes(sets);
}

void tensor_sets_leave(TensorSets *sets, uint32_t rank, const char *why)
{
    for (uint32_t id = 0; id < sets->sets->len; id++) {
        Set *const set = sets->sets->pdata[id];
        uint32_t place;

        if (!is_open(set) || !is_member(set, rank, &place))
            continue;
        tensor_matcher_leave(set->matcher, place, why);
        tell_closed(sets, id);
    }
    end_changes(sets);
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
    sets->sets->pdata[id] = set_new(change->ranks, change->n_ranks);
    add_outcome(sets, TENSOR_OUTCOME_MADE, id, change->n_ranks, NULL, NULL);
}

static void remove_set(TensorSets *sets, uint32_t id)
{
    Set *const set = sets->sets->pdata[id];
    g_autoptr(GError) why =
        g_error_new(RUBATO_ERROR, RUBATO_ERROR_CANCELLED, "set %u of workers was removed", id);

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

        if (change == NULL ? other == NULL : other != NULL && is_same(change, other))
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
    const Change *const first = sets->changes[0];

    if (sets->n_changes < sets->n_workers)
        return;
    for (uint32_t rank = 1; rank < sets->n_workers; rank++)
        if (!is_same(first, sets->changes[rank])) {
            refuse_changes(sets, tell_mismatch(sets, first, sets->changes[rank]));
            return;
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
    const bool ok = check_may_change(sets, rank, error);

    if (ok)
        add_change(sets, rank, 0, ranks, n);
    return ok;
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

bool tensor_sets_changes(const TensorSets *sets, uint32_t rank)
{
    return sets->changes[rank] != NULL;
}

char *tensor_sets_missing(const TensorSets *sets)
{
    return sets->n_changes == 0 ? NULL : name_asking(sets, NULL);
}
