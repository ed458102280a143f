/* How sets of workers are made and removed: see tensor_sets.h. */
#include "engine/collectives/negotiation/tensor_sets_private.h"

#include <string.h>

#include "engine/collectives/negotiation/tensor_ranks.h"
#include "engine/collectives/negotiation/tensor_text.h"

/* ---- no change ---- */

static void clear_changes(TensorSets *sets)
{
    for (uint32_t rank = 0; rank < sets->n_workers; rank++)
        g_clear_pointer(&sets->changes[rank], g_free);
    sets->n_changes = 0;
}

void sets_refuse_changes(TensorSets *sets, GError *error)
{
    clear_changes(sets);
    sets_add_outcome(sets, TENSOR_OUTCOME_REFUSED, 0, sets->n_workers, NULL, error);
}

void sets_end_changes(TensorSets *sets)
{
    const WorkerSet *const all = sets->sets->pdata[0];

    if (sets->n_changes > 0)
        sets_refuse_changes(sets, g_error_copy(tensor_matcher_closed(all->matcher)));
}

/* ---- changes ---- */

static uint32_t find_free_id(const TensorSets *sets)
{
    uint32_t id = 1;

    while (id < sets->sets->len && sets->sets->pdata[id] != NULL)
        id++;
    return id;
}

static void make_set(TensorSets *sets, const SetChange *change)
{
    const uint32_t id = find_free_id(sets);

    if (id == sets->sets->len)
        g_ptr_array_add(sets->sets, NULL);
    sets->sets->pdata[id] =
        sets_new_set(change->ranks, change->n_ranks, sets->generation, ++sets->n_made);
    sets_add_outcome(sets, TENSOR_OUTCOME_MADE, id, change->n_ranks, NULL, NULL);
}

static void remove_set(TensorSets *sets, uint32_t id)
{
    WorkerSet *const set = sets->sets->pdata[id];
    g_autoptr(GError) why =
        g_error_new(RUBATO_ERROR, RUBATO_ERROR_CANCELLED, "set %u of workers was removed", id);

    sets_ask_all_held(sets, id);
    tensor_matcher_cancel(set->matcher, why);
    sets_take_decisions(sets, id);
    sets_add_outcome(sets, TENSOR_OUTCOME_REMOVED, id, set->n_members, NULL, NULL);
    sets->sets->pdata[id] = NULL;
    sets_free_set(set);
}

static bool is_same(const SetChange *one, const SetChange *other)
{
    return one->set == other->set && one->n_ranks == other->n_ranks &&
           memcmp(one->ranks, other->ranks, one->n_ranks * sizeof one->ranks[0]) == 0;
}

/* "the removal of set 2", "a set of the workers 0-3, 7". (transfer full) */
static char *describe_change(const TensorSets *sets, const SetChange *change)
{
    if (change->set != 0)
        return g_strdup_printf("the removal of set %u", change->set);
    g_autofree char *ranks = tensor_ranks_describe(change->ranks, change->n_ranks);
    return g_strdup_printf("a set of %s",
                           change->n_ranks == sets->n_workers ? "all workers" : ranks);
}

/* Who asks for this change, or for none if it is NULL. (transfer full) */
static char *name_asking(const TensorSets *sets, const SetChange *change)
{
    g_autoptr(GArray) ranks = g_array_new(FALSE, FALSE, sizeof(uint32_t));

    for (uint32_t rank = 0; rank < sets->n_workers; rank++) {
        const SetChange *const other = sets->changes[rank];

        if (!sets->lost[rank] &&
            (change == NULL ? other == NULL : other != NULL && is_same(change, other)))
            g_array_append_val(ranks, rank);
    }
    return tensor_ranks_describe((const uint32_t *)(const void *)ranks->data, ranks->len);
}

static GError *tell_mismatch(const TensorSets *sets, const SetChange *one, const SetChange *other)
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
    const SetChange *first = NULL;

    if (sets->n_changes < sets->n_living)
        return;
    for (uint32_t rank = 0; rank < sets->n_workers; rank++) {
        const SetChange *const change = sets->changes[rank];

        if (first == NULL)
            first = change;
        if (change != NULL && !is_same(first, change)) {
            sets_refuse_changes(sets, tell_mismatch(sets, first, change));
            return;
        }
    }
    if (first->set != 0)
        remove_set(sets, first->set);
    else
        make_set(sets, first);
    clear_changes(sets);
}

/* ---- requests ---- */

static bool check_may_change(const TensorSets *sets, uint32_t rank, GError **error)
{
    const WorkerSet *const all = sets->sets->pdata[0];
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
    SetChange *const change = g_malloc(sizeof(SetChange) + n * sizeof change->ranks[0]);

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
    if (set == 0 || sets_find(sets, set) == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "there is no set %u to be removed",
                    set);
        return false;
    }
    add_change(sets, rank, set, NULL, 0);
    return true;
}

/* ---- who is missing ---- */

bool tensor_sets_changes(const TensorSets *sets, uint32_t rank)
{
    return sets->changes[rank] != NULL;
}

char *tensor_sets_missing(const TensorSets *sets)
{
    return sets->n_changes == 0 ? NULL : name_asking(sets, NULL);
}
