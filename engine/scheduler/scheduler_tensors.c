/* The coordinator of a task's collectives on tensors: what nodes tell of their workers' wishes
 * (ENQUEUE) goes to a matcher (engine/collectives/tensor_matcher.h), and what that decides goes to
 * all nodes with workers (DECIDE), numbered, in the same order. Tensors themselves go from node to
 * node.
 *
 * How many workers a node has, the proposal of the task says. A node that has no worker left has
 * none that asks: the matcher learns it as if each of them had said so.
 *
 * Runs as scheduler.h says. */
#include <string.h>

#include "engine/collectives/tensor_matcher.h"
#include "engine/collectives/tensor_text.h"
#include "engine/scheduler/scheduler_state.h"

/* Bytes of verdicts in a message: less than it may have, by more than one verdict. */
enum { DECIDED_BYTES = 512 << 10 };

struct TensorCoordinator {
    uint32_t n_nodes;
    uint32_t *first_ranks; /* by node number; and behind the last one */
    uint32_t n_workers;
    TensorMatcher *matcher; /* NULL: no worker has asked yet */
    GHashTable *groups;     /* of OpenGroup, by rank: those of which asks are still to come */
    bool is_closed;         /* CLOSED has been told */
    uint64_t n_verdicts;
    bool *waiting; /* by node: for the oldest name; kept for a Wait that points to it */
};

/* What the matcher knows a request by. */
typedef struct {
    int64_t since_ms;
} Asked;

/* A group that a worker asks for, which may come in several messages. */
typedef struct {
    uint32_t n;
    GArray *wishes; /* of TensorWish: those that have come */
} OpenGroup;

static void open_group_free(void *data)
{
    OpenGroup *const group = data;

    g_array_unref(group->wishes);
    g_free(group);
}

/* "2 0 1": the workers of each node. Ranks leave out those of lost nodes. */
TensorCoordinator *tensors_new(const Scheduler *scheduler, const char *workers)
{
    const uint32_t n_nodes = scheduler->config.n_nodes;
    TensorCoordinator *const it = g_new0(TensorCoordinator, 1);
    g_auto(GStrv) numbers = g_strsplit(workers != NULL ? workers : "", " ", -1);
    uint64_t n_workers = 0;

    it->n_nodes = n_nodes;
    it->groups = g_hash_table_new_full(NULL, NULL, NULL, open_group_free);
    it->first_ranks = g_new0(uint32_t, n_nodes + 1);
    for (uint32_t node = 0; node < n_nodes; node++) {
        uint64_t n;

        if (g_strv_length(numbers) != n_nodes ||
            !g_ascii_string_to_unsigned(numbers[node], 10, 0, CONTROL_MAX_WORKERS, &n, NULL) ||
            n_workers + n > CONTROL_MAX_WORKERS) {
            tensors_free(it);
            return NULL;
        }
        n_workers += scheduler->nodes[node].lost ? 0 : n;
        it->first_ranks[node + 1] = (uint32_t)n_workers;
    }
    it->n_workers = (uint32_t)n_workers;
    return it;
}

static void free_tags(const TensorCoordinator *it, const TensorDecision *decision)
{
    for (uint32_t rank = 0; rank < it->n_workers; rank++)
        g_free(decision->tags[rank]);
}

void tensors_free(TensorCoordinator *it)
{
    g_autoptr(GError) end = NULL;
    TensorDecision *decision;

    if (it == NULL)
        return;
    if (it->matcher != NULL) {
        end = g_error_new_literal(RUBATO_ERROR, RUBATO_ERROR_CANCELLED, "the task has ended");
        tensor_matcher_cancel(it->matcher, end);
        while ((decision = tensor_matcher_next(it->matcher)) != NULL) {
            free_tags(it, decision);
            tensor_decision_free(decision);
        }
    }
    tensor_matcher_free(it->matcher);
    g_hash_table_unref(it->groups);
    g_free(it->waiting);
    g_free(it->first_ranks);
    g_free(it);
}

/* ---- what is told ---- */

static void send_verdicts(Scheduler *scheduler, const SchedulerTask *task, GString *lines)
{
    const TensorCoordinator *const it = task->tensors;
    const Control decide = { .kind = CONTROL_DECIDE, .decide = { task->epoch, lines->str } };

    for (uint32_t node = 0; lines->len > 0 && node < it->n_nodes; node++)
        if (it->first_ranks[node] < it->first_ranks[node + 1])
            scheduler_send(scheduler, node, &decide);
    g_string_truncate(lines, 0);
}

static void add_error(TensorVerdict *verdict, const GError *error)
{
    verdict->code = control_code_of(error);
    verdict->error = g_strdup(error->message);
}

static void add_decision(TensorCoordinator *it, const TensorDecision *decision, GString *lines)
{
    g_auto(TensorVerdict)
        verdict = { .kind = decision->error != NULL ? TENSOR_VERDICT_FAIL : TENSOR_VERDICT_RUN };

    if (decision->name == NULL && decision->error != NULL)
        return; /* CLOSED follows, which ends joins, too */
    verdict.number = ++it->n_verdicts;
    if (decision->error != NULL)
        add_error(&verdict, decision->error);
    if (decision->name == NULL) {
        verdict.kind = TENSOR_VERDICT_JOINED;
        verdict.last = decision->last;
    } else {
        g_strlcpy(verdict.name, decision->name, sizeof verdict.name);
        if (decision->error == NULL)
            verdict.ranks = tensor_ranks_write(decision->tags, it->n_workers);
    }
    tensor_verdict_write(lines, &verdict);
}

/* Tells what was decided, and whether nothing can be asked any more. */
static void tell_decided(Scheduler *scheduler, const SchedulerTask *task)
{
    TensorCoordinator *const it = task->tensors;
    g_autoptr(GString) lines = g_string_new(NULL);
    TensorDecision *decision;

    while ((decision = tensor_matcher_next(it->matcher)) != NULL) {
        add_decision(it, decision, lines);
        free_tags(it, decision);
        tensor_decision_free(decision);
        if (lines->len > DECIDED_BYTES)
            send_verdicts(scheduler, task, lines);
    }
    const GError *const closed = tensor_matcher_closed(it->matcher);
    if (closed != NULL && !it->is_closed) {
        g_auto(TensorVerdict)
            verdict = { .kind = TENSOR_VERDICT_CLOSED, .number = ++it->n_verdicts };

        it->is_closed = true;
        add_error(&verdict, closed);
        tensor_verdict_write(lines, &verdict);
    }
    send_verdicts(scheduler, task, lines);
}

/* ---- what nodes say ---- */

static void leave(TensorCoordinator *it, uint32_t node)
{
    for (uint32_t rank = it->first_ranks[node]; rank < it->first_ranks[node + 1]; rank++)
        tensor_matcher_leave(it->matcher, rank, "has returned");
}

static void begin(TensorCoordinator *it, const SchedulerTask *task)
{
    if (it->matcher != NULL)
        return;
    it->matcher = tensor_matcher_new(it->n_workers);
    for (uint32_t node = 0; node < it->n_nodes; node++)
        if (task->retired[node])
            leave(it, node);
}

static bool ask(TensorCoordinator *it, const TensorWish *wishes, size_t n, int64_t now_ms)
{
    g_autofree TensorAsk *asks = g_new(TensorAsk, n);

    for (size_t i = 0; i < n; i++) {
        Asked *const asked = g_new(Asked, 1);

        asked->since_ms = now_ms;
        asks[i] = (TensorAsk){ wishes[i].name, wishes[i].request, asked };
    }
    const bool ok = tensor_matcher_ask(it->matcher, wishes->rank, asks, n, NULL);
    for (size_t i = 0; i < n && !ok; i++)
        g_free(asks[i].tag);
    return ok;
}

static bool open_group(TensorCoordinator *it, const TensorWish *wish)
{
    OpenGroup *const group = g_new(OpenGroup, 1);

    group->n = wish->n;
    group->wishes = g_array_new(FALSE, FALSE, sizeof *wish);
    g_hash_table_insert(it->groups, GUINT_TO_POINTER(wish->rank), group);
    return true;
}

/* Another one of the group's. */
static bool ask_of_group(TensorCoordinator *it, OpenGroup *group, const TensorWish *wish,
                         int64_t now_ms)
{
    g_array_append_val(group->wishes, *wish);
    if (group->wishes->len < group->n)
        return true;
    const bool ok =
        ask(it, (const TensorWish *)(const void *)group->wishes->data, group->n, now_ms);
    g_hash_table_remove(it->groups, GUINT_TO_POINTER(wish->rank));
    return ok;
}

/* A wish of a worker; the node has seen to it that it makes sense. After CLOSED it is late. */
static bool take_wish(TensorCoordinator *it, const TensorWish *wish, int64_t now_ms)
{
    const bool is_late = tensor_matcher_closed(it->matcher) != NULL;
    OpenGroup *const group = g_hash_table_lookup(it->groups, GUINT_TO_POINTER(wish->rank));
    bool ok = false;

    if (group != NULL && wish->kind != TENSOR_WISH_ASK)
        return false;
    switch (wish->kind) {
    case TENSOR_WISH_ASK:
        ok = group != NULL ? ask_of_group(it, group, wish, now_ms) : ask(it, wish, 1, now_ms);
        break;
    case TENSOR_WISH_GROUP:
        ok = open_group(it, wish);
        break;
    case TENSOR_WISH_JOIN:
        ok = tensor_matcher_join(it->matcher, wish->rank, NULL);
        break;
    case TENSOR_WISH_LEAVE:
        tensor_matcher_leave(it->matcher, wish->rank, "has returned");
        ok = true;
        break;
    }
    return ok || is_late;
}

bool tensors_enqueue(Scheduler *scheduler, uint32_t node, const Control *control)
{
    const ControlTensors *const enqueue = &control->enqueue;
    SchedulerTask *const task = task_find(scheduler, enqueue->epoch);
    const char *at = enqueue->lines;
    bool ok = true;

    if (task == NULL)
        return task_is_late(scheduler, enqueue->epoch);
    TensorCoordinator *const it = task->tensors;
    if (it == NULL || at == NULL)
        return false;
    if (task->cause.code != CONTROL_OK) /* all that is pending fails with the task */
        return true;
    begin(it, task);
    while (ok && *at != '\0') {
        TensorWish wish;

        ok = tensor_wish_read(&at, it->n_workers, &wish) && wish.rank >= it->first_ranks[node] &&
             wish.rank < it->first_ranks[node + 1] && take_wish(it, &wish, scheduler->now_ms);
    }
    tell_decided(scheduler, task);
    return ok;
}

void tensors_retire(Scheduler *scheduler, SchedulerTask *task, uint32_t node)
{
    TensorCoordinator *const it = task->tensors;

    if (it == NULL || it->matcher == NULL || task->cause.code != CONTROL_OK)
        return;
    leave(it, node);
    tell_decided(scheduler, task);
}

/* ---- who waits ---- */

void tensors_add_wait(const SchedulerTask *task, GArray *waits)
{
    TensorCoordinator *const it = task->tensors;
    const TensorRequest *request;
    const char *name;
    int64_t since_ms = INT64_MAX;

    if (it == NULL || it->matcher == NULL || task->cause.code != CONTROL_OK)
        return;
    void *const *const tags = tensor_matcher_oldest(it->matcher, &name, &request);
    if (tags == NULL)
        return;
    g_free(it->waiting);
    it->waiting = g_new0(bool, it->n_nodes);
    for (uint32_t node = 0; node < it->n_nodes; node++)
        for (uint32_t rank = it->first_ranks[node]; rank < it->first_ranks[node + 1]; rank++)
            if (tags[rank] != NULL) {
                it->waiting[node] = true;
                since_ms = MIN(since_ms, ((const Asked *)tags[rank])->since_ms);
            }
    g_autofree char *missing = tensor_matcher_missing(it->matcher, name);
    wait_add(waits,
             g_strdup_printf("%s %s of %s waits for %s", tensor_operation_name(request->operation),
                             name, task->name, missing != NULL ? missing : "others of its group"),
             it->waiting, since_ms);
}
