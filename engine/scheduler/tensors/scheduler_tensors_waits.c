/* Which workers wait in a task's collectives, and for whom: of the oldest name of all, and for each
 * node that does not wait for that one, of another one that it waits for.
 *
 * Runs as scheduler.h says. */
#include "engine/scheduler/scheduler_base.h"
#include "engine/scheduler/tensors/scheduler_tensors.h"
#include "engine/scheduler/tensors/scheduler_tensors_private.h"

enum { MOST_LOOKS = 256 }; /* at names, before it says who waits for whom */

/* A name that is pending in a set. */
typedef struct {
    uint32_t set;
    const TensorMatcher *matcher;
    const uint32_t *ranks; /* of the set */
    uint32_t n_members;
    const char *name;
    const TensorRequest *request;
    void *const *tags;
    int64_t since_ms;
} Awaited;

static void set_pending(Awaited *asked, const TensorPending *pending)
{
    asked->name = pending->name;
    asked->request = pending->request;
    asked->tags = pending->tags;
}

/* When the first of the workers asked. tags: of Asked */
static int64_t first_asked(void *const *tags, uint32_t n)
{
    int64_t since_ms = INT64_MAX;

    for (uint32_t i = 0; tags != NULL && i < n; i++)
        if (tags[i] != NULL)
            since_ms = MIN(since_ms, ((const Asked *)tags[i])->since_ms);
    return since_ms;
}

/* False: nothing is pending in the set. What is asked for again stays where it is, so that a look
 * at it does not lengthen what is said of it. */
static bool find_oldest_of(const TensorCoordinator *it, uint32_t set, Awaited *oldest)
{
    const void *at = NULL;
    TensorPending pending;

    *oldest = (Awaited){ .set = set };
    oldest->matcher = tensor_sets_matcher(it->sets, set, &oldest->ranks, &oldest->n_members);
    if (oldest->matcher == NULL)
        return false;
    if (tensor_matcher_pending(oldest->matcher, &at, &pending))
        set_pending(oldest, &pending);
    oldest->since_ms = first_asked(oldest->tags, oldest->n_members);

    const TensorSlot *const held = tensor_sets_first_held(it->sets, set);
    if (held == NULL || first_asked(held->held, oldest->n_members) >= oldest->since_ms)
        return oldest->tags != NULL;
    uint32_t place = 0;
    while (held->held[place] == NULL)
        place++;
    oldest->tags = held->held;
    oldest->name = held->names[0];
    oldest->request = tensor_slot_request(held, 0, place);
    oldest->since_ms = first_asked(held->held, oldest->n_members);
    return true;
}

/* The same of all sets. */
static bool find_oldest(const TensorCoordinator *it, Awaited *oldest)
{
    bool any = false;

    for (uint32_t set = 0; set < tensor_sets_end(it->sets); set++) {
        Awaited other;

        if (!find_oldest_of(it, set, &other) || (any && other.since_ms >= oldest->since_ms))
            continue;
        *oldest = other;
        any = true;
    }
    return any;
}

/* The nodes of which workers of a set wait: who has a tag, or has joined. (transfer full) */
static bool *find_waiting(const TensorCoordinator *it, const uint32_t *ranks, uint32_t n_members,
                          void *const *tags, const bool *joined)
{
    bool *const waiting = g_new0(bool, it->n_nodes);

    for (uint32_t i = 0, node = 0; i < n_members; i++) {
        while (ranks[i] >= it->first_ranks[node + 1])
            node++;
        waiting[node] |= tags != NULL ? tags[i] != NULL : joined[i];
    }
    return waiting;
}

/* What is told of the waits of a task. */
typedef struct {
    TensorCoordinator *it;
    const char *task;
    GArray *waits;
    bool *told;       /* by node */
    uint32_t n_looks; /* at names that are pending */
} Telling;

/* Whether some of the nodes were told nothing yet. They are told now. */
static bool tells_others(Telling *telling, const bool *waiting)
{
    bool any = false;

    for (uint32_t node = 0; node < telling->it->n_nodes; node++) {
        any |= waiting[node] && !telling->told[node];
        telling->told[node] |= waiting[node];
    }
    return any;
}

/* Takes both. */
static void tell(Telling *telling, char *text, bool *waiting, int64_t since_ms)
{
    g_ptr_array_add(telling->it->waiting, waiting);
    wait_add(telling->waits, text, waiting, since_ms);
}

static void tell_change(Telling *telling)
{
    const TensorCoordinator *const it = telling->it;
    g_autofree char *missing = tensor_sets_missing(it->sets);

    if (missing == NULL)
        return;
    bool *const waiting = g_new0(bool, it->n_nodes);
    for (uint32_t node = 0; node < it->n_nodes; node++)
        for (uint32_t rank = it->first_ranks[node]; rank < it->first_ranks[node + 1]; rank++)
            waiting[node] |= tensor_sets_changes(it->sets, rank);
    tell(telling,
         g_strdup_printf("a change of the sets of workers of %s waits for %s", telling->task,
                         missing),
         waiting, it->change_since_ms);
}

/* "set 1 of task x". (transfer full) */
static char *name_set(const Telling *telling, uint32_t set)
{
    return set == 0 ? g_strdup(telling->task) : g_strdup_printf("set %u of %s", set, telling->task);
}

/* Of a name, if nodes wait for it that were told nothing. */
static void tell_name(Telling *telling, const Awaited *asked)
{
    g_autofree bool *waiting =
        find_waiting(telling->it, asked->ranks, asked->n_members, asked->tags, NULL);

    if (!tells_others(telling, waiting))
        return;
    g_autofree char *missing = tensor_matcher_without(asked->matcher, asked->tags);
    g_autofree char *set = name_set(telling, asked->set);
    tell(telling,
         g_strdup_printf("%s %s of %s waits for %s",
                         tensor_operation_name(asked->request->operation), asked->name, set,
                         missing != NULL ? missing : "others of its group"),
         g_steal_pointer(&waiting), asked->since_ms);
}

/* The same of the join of the set. */
static void tell_join(Telling *telling, const Awaited *asked)
{
    const bool *const joined = tensor_matcher_joined(asked->matcher);

    if (joined == NULL)
        return;
    g_autofree bool *waiting =
        find_waiting(telling->it, asked->ranks, asked->n_members, NULL, joined);
    if (!tells_others(telling, waiting))
        return;
    g_autofree char *missing = tensor_matcher_missing(asked->matcher, /* name= */ NULL);
    g_autofree char *set = name_set(telling, asked->set);
    tell(telling, g_strdup_printf("the join of worker(s) of %s waits for %s", set, missing),
         g_steal_pointer(&waiting), telling->it->joined_ms);
}

/* What the nodes wait for in the set that were told nothing, as far as it looks. */
static void tell_set(Telling *telling, uint32_t set)
{
    Awaited asked = { .set = set };
    TensorPending pending;
    const void *at = NULL;

    asked.matcher = tensor_sets_matcher(telling->it->sets, set, &asked.ranks, &asked.n_members);
    if (asked.matcher == NULL)
        return;
    while (telling->n_looks < MOST_LOOKS && tensor_matcher_pending(asked.matcher, &at, &pending)) {
        telling->n_looks++;
        set_pending(&asked, &pending);
        asked.since_ms = first_asked(asked.tags, asked.n_members);
        tell_name(telling, &asked);
    }
    tell_join(telling, &asked);
}

/* Of the oldest name of all; and each node that does not wait for that one, of another one that it
 * waits for. */
void tensors_add_wait(const SchedulerTask *task, GArray *waits)
{
    TensorCoordinator *const it = task->tensors;
    Awaited oldest;

    if (it == NULL || it->sets == NULL || task->cause.code != CONTROL_OK)
        return;
    g_ptr_array_set_size(it->waiting, 0);
    g_autofree bool *told = g_new0(bool, it->n_nodes);
    Telling telling = { .it = it, .task = task->name, .waits = waits, .told = told };
    tell_change(&telling);
    if (find_oldest(it, &oldest))
        tell_name(&telling, &oldest);
    for (uint32_t set = 0; set < tensor_sets_end(it->sets); set++)
        tell_set(&telling, set);
}
