/* The coordinator of a task's collectives on tensors: what nodes tell of their workers (ENQUEUE)
 * goes to the matchers of its sets of workers (tensor_sets.h), and what these decide goes
 * to all nodes with workers (DECIDE), numbered, in the same order. Tensors themselves go from node
 * to node.
 *
 * How many workers a node has, the proposal of the task says. A node that has no worker left has
 * none that asks: the matchers learn it as if each of them had said so.
 *
 * If a node is lost and the task goes on, nodes hear so between the same two verdicts (LOST), and
 * what their workers had asked before in its sets fails. It may still be on its way here then, and
 * must not be taken for what the living ask of each other. So a node says how many losses it has
 * heard of (HEARD) before it tells what was asked behind them; what is told without that, of a set
 * that has changed since, is dropped.
 *
 * If a process takes the place of a lost node, it has its workers, and its exchange is new. Nodes
 * hear between two verdicts that it is REPLACED, and nothing is told to it before it says that it
 * is BACK. Then it is told how things stand: the sets, and how many verdicts and losses there were.
 * Meanwhile nothing is decided in its sets, because its workers have not asked.
 *
 * Runs as scheduler.h says. */
#include "engine/scheduler/tensors/scheduler_tensors.h"

#include <string.h>

#include "engine/scheduler/scheduler_base.h"
#include "engine/scheduler/tensors/scheduler_tensors_private.h"

/* Of verdicts in a message: less than it may have, by more than one verdict. */
enum { DECIDED_BYTES = 512 << 10 };

/* A group that a worker asks for, which may come in several messages. */
typedef struct {
    uint32_t n;
    GArray *notices; /* of TensorNotice: those that have come */
} OpenGroup;

static void open_group_free(void *data)
{
    OpenGroup *const group = data;

    g_array_unref(group->notices);
    g_free(group);
}

static OpenGroup *group_new(uint32_t n)
{
    OpenGroup *const group = g_new(OpenGroup, 1);

    group->n = n;
    group->notices = g_array_new(FALSE, FALSE, sizeof(TensorNotice));
    return group;
}

static TensorCoordinator *coordinator_new(uint32_t n_nodes)
{
    TensorCoordinator *const it = g_new0(TensorCoordinator, 1);

    it->n_nodes = n_nodes;
    it->groups = g_hash_table_new_full(NULL, NULL, NULL, open_group_free);
    it->first_ranks = g_new0(uint32_t, n_nodes + 1);
    it->heard = g_new0(uint32_t, n_nodes);
    it->is_away = g_new0(bool, n_nodes);
    it->waiting = g_ptr_array_new_with_free_func(g_free);
    return it;
}

/* "2 0 1": the workers of each node. Ranks leave out those of lost nodes, and of nodes in whose
 * place others serve. */
TensorCoordinator *tensors_new(const Scheduler *scheduler, const char *workers)
{
    const uint32_t n_nodes = scheduler->config.n_nodes;
    TensorCoordinator *const it = coordinator_new(n_nodes);
    g_auto(GStrv) numbers = g_strsplit(workers != NULL ? workers : "", " ", -1);
    uint64_t n_workers = 0;

    for (uint32_t node = 0; node < n_nodes; node++) {
        uint64_t n;

        if (g_strv_length(numbers) != n_nodes ||
            !g_ascii_string_to_unsigned(numbers[node], 10, 0, CONTROL_MAX_WORKERS, &n, NULL) ||
            n_workers + n > CONTROL_MAX_WORKERS) {
            tensors_free(it);
            return NULL;
        }
        n_workers += scheduler_has_program(scheduler, node) ? n : 0;
        it->first_ranks[node + 1] = (uint32_t)n_workers;
    }
    it->n_workers = (uint32_t)n_workers;
    return it;
}

/* ---- what requests are known by ---- */

static Asked *asked_new(int64_t since_ms)
{
    Asked *const asked = g_new(Asked, 1);

    asked->since_ms = since_ms;
    return asked;
}

static void *recall_tag(void *user, const TensorSlot *slot, uint32_t name, uint32_t place,
                        void *held)
{
    (void)user;
    (void)slot;
    (void)name;
    (void)place;
    return asked_new(((const Asked *)held)->since_ms);
}

static void free_asked(void *user, void *asked)
{
    (void)user;
    g_free(asked);
}

static const TensorRecall recall = { .tag = recall_tag, .drop = free_asked, .untag = free_asked };

/* And what the requests were known by. */
static void free_outcome(TensorOutcome *outcome)
{
    for (uint32_t i = 0; outcome->decision != NULL && i < outcome->n_members; i++)
        g_free(outcome->decision->tags[i]);
    for (uint32_t i = 0; outcome->held != NULL && i < outcome->n_members; i++)
        g_free(outcome->held[i]);
    tensor_outcome_free(outcome);
}

void tensors_free(TensorCoordinator *it)
{
    g_autoptr(GError) end = NULL;
    TensorOutcome *outcome;

    if (it == NULL)
        return;
    if (it->sets != NULL) {
        end = g_error_new_literal(RUBATO_ERROR, RUBATO_ERROR_CANCELLED, "the task has ended");
        tensor_sets_cancel(it->sets, end);
        while ((outcome = tensor_sets_next(it->sets)) != NULL)
            free_outcome(outcome);
    }
    tensor_sets_free(it->sets);
    g_hash_table_unref(it->groups);
    g_ptr_array_unref(it->waiting);
    g_clear_error(&it->why);
    g_free(it->is_away);
    g_free(it->heard);
    g_free(it->first_ranks);
    g_free(it);
}

/* ---- what is told ---- */

static void send_verdicts(Scheduler *scheduler, const SchedulerTask *task, GString *lines)
{
    const TensorCoordinator *const it = task->tensors;
    const Control decide = { .kind = CONTROL_DECIDE, .decide = { task->epoch, lines->str } };

    for (uint32_t node = 0; lines->len > 0 && node < it->n_nodes; node++)
        if (it->first_ranks[node] < it->first_ranks[node + 1] && !it->is_away[node])
            scheduler_send(scheduler, node, &decide);
    g_string_truncate(lines, 0);
}

static void add_error(TensorVerdict *verdict, const GError *error)
{
    verdict->code = control_code_of(error);
    verdict->error = g_strdup(error->message);
}

static void describe_name(const TensorOutcome *outcome, TensorVerdict *verdict)
{
    const TensorDecision *const decision = outcome->decision;

    verdict->kind = decision->error != NULL ? TENSOR_VERDICT_FAIL : TENSOR_VERDICT_RUN;
    g_strlcpy(verdict->name, decision->name, sizeof verdict->name);
    verdict->slot = outcome->slot;
    if (decision->error != NULL)
        add_error(verdict, decision->error);
    else
        verdict->ranks = tensor_ranks_write(decision->tags, outcome->n_members);
}

static void add_outcome(TensorCoordinator *it, const TensorOutcome *outcome, GString *lines)
{
    g_auto(TensorVerdict) verdict = { .set = outcome->set };

    switch (outcome->kind) {
    case TENSOR_OUTCOME_NAME:
        describe_name(outcome, &verdict);
        break;
    case TENSOR_OUTCOME_AGAIN:
        verdict.kind = TENSOR_VERDICT_AGAIN;
        verdict.slot = outcome->slot;
        verdict.n = outcome->n_names;
        break;
    case TENSOR_OUTCOME_JOIN:
        if (outcome->decision->error != NULL)
            return; /* CLOSED follows, which ends joins, too */
        verdict.kind = TENSOR_VERDICT_JOINED;
        verdict.last = outcome->decision->last;
        break;
    case TENSOR_OUTCOME_CLOSED:
        verdict.kind = TENSOR_VERDICT_CLOSED;
        add_error(&verdict, outcome->error);
        break;
    case TENSOR_OUTCOME_MADE:
        verdict.kind = TENSOR_VERDICT_MADE;
        break;
    case TENSOR_OUTCOME_REMOVED:
        verdict.kind = TENSOR_VERDICT_REMOVED;
        break;
    case TENSOR_OUTCOME_REFUSED:
        verdict.kind = TENSOR_VERDICT_REFUSED;
        add_error(&verdict, outcome->error);
        break;
    case TENSOR_OUTCOME_LOST:
    case TENSOR_OUTCOME_REPLACED:
        verdict.kind =
            outcome->kind == TENSOR_OUTCOME_LOST ? TENSOR_VERDICT_LOST : TENSOR_VERDICT_REPLACED;
        verdict.node = it->lost;
        verdict.n = tensor_sets_generation(it->sets);
        add_error(&verdict, outcome->error);
        break;
    }
    verdict.number = it->n_verdicts + 1;
    it->n_verdicts += verdict.kind == TENSOR_VERDICT_AGAIN ? verdict.n : 1;
    tensor_verdict_write(lines, &verdict);
}

/* The node of rank 0 has found other cut-overs. All nodes hear it between the same two verdicts. */
static void add_cutovers(TensorCoordinator *it, GString *lines)
{
    if (!it->has_cutovers)
        return;
    it->has_cutovers = false;
    it->n_cuts++;
    tensor_verdict_write(lines, &(TensorVerdict){ .kind = TENSOR_VERDICT_CUT,
                                                  .number = ++it->n_verdicts,
                                                  .cutovers = it->cutovers });
}

/* Tells what was decided. */
static void tell_decided(Scheduler *scheduler, const SchedulerTask *task)
{
    TensorCoordinator *const it = task->tensors;
    g_autoptr(GString) lines = g_string_new(NULL);
    TensorOutcome *outcome;

    add_cutovers(it, lines);
    while ((outcome = tensor_sets_next(it->sets)) != NULL) {
        if (outcome->kind == TENSOR_OUTCOME_LOST) /* a node looks for it in front */
            send_verdicts(scheduler, task, lines);
        if (!outcome->is_by_loss)
            add_outcome(it, outcome, lines);
        free_outcome(outcome);
        if (lines->len > DECIDED_BYTES)
            send_verdicts(scheduler, task, lines);
    }
    send_verdicts(scheduler, task, lines);
}

/* ---- what nodes say ---- */

static void leave(TensorCoordinator *it, uint32_t node)
{
    for (uint32_t rank = it->first_ranks[node]; rank < it->first_ranks[node + 1]; rank++)
        tensor_sets_leave(it->sets, rank, "has returned");
}

static void make_sets(TensorCoordinator *it)
{
    it->sets = tensor_sets_new(it->n_workers);
    tensor_sets_recall(it->sets, &recall, NULL);
}

static void begin(TensorCoordinator *it, const SchedulerTask *task)
{
    if (it->sets != NULL)
        return;
    make_sets(it);
    for (uint32_t node = 0; node < it->n_nodes; node++)
        if (task->retired[node])
            leave(it, node);
}

static bool ask(TensorCoordinator *it, const TensorNotice *notices, size_t n, int64_t now_ms)
{
    g_autofree TensorAsk *asks = g_new(TensorAsk, n);

    for (size_t i = 0; i < n; i++)
        asks[i] = (TensorAsk){ notices[i].name, notices[i].request, asked_new(now_ms) };
    const bool ok = tensor_sets_ask(it->sets, notices->set, notices->rank, asks, n, NULL);
    for (size_t i = 0; i < n && !ok; i++)
        g_free(asks[i].tag);
    return ok;
}

static bool ask_again(TensorCoordinator *it, const TensorNotice *notice, int64_t now_ms)
{
    Asked *const asked = asked_new(now_ms);
    const bool ok =
        tensor_sets_again(it->sets, notice->set, notice->rank, notice->slot, asked, NULL);

    if (!ok)
        g_free(asked);
    return ok;
}

static void open_group(TensorCoordinator *it, const TensorNotice *notice)
{
    g_hash_table_insert(it->groups, GUINT_TO_POINTER(notice->rank), group_new(notice->n));
}

/* Another one of the group's. */
static bool ask_of_group(TensorCoordinator *it, OpenGroup *group, const TensorNotice *notice,
                         int64_t now_ms)
{
    if (group->notices->len > 0 &&
        g_array_index(group->notices, TensorNotice, 0).set != notice->set)
        return false;
    g_array_append_val(group->notices, *notice);
    if (group->notices->len < group->n)
        return true;
    const bool ok =
        ask(it, (const TensorNotice *)(const void *)group->notices->data, group->n, now_ms);
    g_hash_table_remove(it->groups, GUINT_TO_POINTER(notice->rank));
    return ok;
}

/* Whether nothing can be asked in the set any more. */
static bool is_closed(const TensorCoordinator *it, uint32_t set)
{
    const uint32_t *ranks;
    uint32_t n_members;
    const TensorMatcher *const matcher = tensor_sets_matcher(it->sets, set, &ranks, &n_members);

    return matcher != NULL && tensor_matcher_closed(matcher) != NULL;
}

/* The node has heard of as many losses. */
static bool hear_of_losses(TensorCoordinator *it, uint32_t node, uint32_t n)
{
    const bool ok = n >= it->heard[node] && n <= tensor_sets_generation(it->sets);

    if (ok)
        it->heard[node] = n;
    return ok;
}

/* Whether it was asked before a loss that the node had not heard of, in a set that this has
 * changed. Of a group that is known with the first of its asks. */
static bool is_of_earlier(TensorCoordinator *it, uint32_t node, const TensorNotice *notice,
                          bool changes)
{
    const bool says_set = changes || notice->kind == TENSOR_NOTICE_ASK ||
                          notice->kind == TENSOR_NOTICE_AGAIN || notice->kind == TENSOR_NOTICE_JOIN;

    if (!says_set || !tensor_sets_is_late(it->sets, changes ? 0 : notice->set, it->heard[node]))
        return false;
    OpenGroup *const group = g_hash_table_lookup(it->groups, GUINT_TO_POINTER(notice->rank));
    if (group != NULL && --group->n <= group->notices->len)
        g_hash_table_remove(it->groups, GUINT_TO_POINTER(notice->rank));
    return true;
}

/* A notice of a worker; the node has seen to it that it makes sense. After CLOSED it is late. */
static bool take_notice(TensorCoordinator *it, uint32_t node, const TensorNotice *notice,
                        int64_t now_ms)
{
    const bool changes = notice->kind == TENSOR_NOTICE_MAKE || notice->kind == TENSOR_NOTICE_REMOVE;

    if (is_of_earlier(it, node, notice, changes))
        return true;
    const bool is_late = is_closed(it, changes ? 0 : notice->set);
    g_autofree char *changing = changes ? tensor_sets_missing(it->sets) : NULL;
    OpenGroup *const group = g_hash_table_lookup(it->groups, GUINT_TO_POINTER(notice->rank));
    bool ok = false;

    if (group != NULL && notice->kind != TENSOR_NOTICE_ASK)
        return false;
    if (changes && changing == NULL)
        it->change_since_ms = now_ms;
    switch (notice->kind) {
    case TENSOR_NOTICE_ASK:
        ok = group != NULL ? ask_of_group(it, group, notice, now_ms) : ask(it, notice, 1, now_ms);
        break;
    case TENSOR_NOTICE_AGAIN:
        ok = ask_again(it, notice, now_ms);
        break;
    case TENSOR_NOTICE_GROUP:
        open_group(it, notice);
        ok = true;
        break;
    case TENSOR_NOTICE_JOIN:
        it->joined_ms = now_ms;
        ok = tensor_sets_join(it->sets, notice->set, notice->rank, NULL);
        break;
    case TENSOR_NOTICE_LEAVE:
        tensor_sets_leave(it->sets, notice->rank, "has returned");
        ok = true;
        break;
    case TENSOR_NOTICE_MAKE:
        ok = tensor_sets_make(it->sets, notice->rank, notice->ranks, notice->n, NULL);
        break;
    case TENSOR_NOTICE_REMOVE:
        ok = tensor_sets_remove(it->sets, notice->rank, notice->set, NULL);
        break;
    case TENSOR_NOTICE_CUT:
        ok = it->has_cutovers = notice->rank == 0;
        it->cutovers = notice->cutovers;
        break;
    case TENSOR_NOTICE_HEARD:
        ok = hear_of_losses(it, node, notice->n);
        break;
    case TENSOR_NOTICE_BACK: /* it is not away */
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
    if (it->is_away[node])
        return tensors_come_back(scheduler, task, node, at);
    begin(it, task);
    while (ok && *at != '\0') {
        g_auto(TensorNotice) notice = { 0 };

        ok = tensor_notice_read(&at, it->n_workers, &notice) &&
             notice.rank >= it->first_ranks[node] && notice.rank < it->first_ranks[node + 1] &&
             take_notice(it, node, &notice, scheduler->now_ms);
    }
    tell_decided(scheduler, task);
    return ok;
}

void tensors_retire(Scheduler *scheduler, SchedulerTask *task, uint32_t node)
{
    TensorCoordinator *const it = task->tensors;

    if (it == NULL || it->sets == NULL || task->cause.code != CONTROL_OK)
        return;
    leave(it, node);
    tell_decided(scheduler, task);
}

/* Whether a worker is left without those of the node. */
static bool has_others(const TensorCoordinator *it, const Scheduler *scheduler, uint32_t node)
{
    bool any = false;

    for (uint32_t i = 0; i < it->n_nodes && !any; i++)
        any = i != node && !scheduler->nodes[i].lost && tensors_n_workers(it, i) > 0;
    return any;
}

/* Nothing of the node's is under way any more. */
static void note_loss(SchedulerTask *task, uint32_t node, const char *text)
{
    TensorCoordinator *const it = task->tensors;
    const uint32_t first = it->first_ranks[node], end = it->first_ranks[node + 1];
    const bool is_one = end - first == 1;
    g_autofree char *ranks = is_one ? g_strdup_printf("worker %u", first)
                                    : g_strdup_printf("workers %u-%u", first, end - 1);

    for (uint32_t rank = first; rank < end; rank++)
        g_hash_table_remove(it->groups, GUINT_TO_POINTER(rank));
    it->lost = node;
    g_clear_error(&it->why);
    it->why = g_error_new(RUBATO_ERROR, RUBATO_ERROR_NODE_LOST, "%s, and %s of %s %s lost with it",
                          text, ranks, task->name, is_one ? "is" : "are");
}

void tensors_lose(Scheduler *scheduler, SchedulerTask *task, uint32_t node, const char *text)
{
    TensorCoordinator *const it = task->tensors;

    if (it == NULL || tensors_n_workers(it, node) == 0 || !has_others(it, scheduler, node))
        return;
    begin(it, task);
    note_loss(task, node, text);
    tensor_sets_lose(it->sets, it->first_ranks[node], it->first_ranks[node + 1], it->why);
    tell_decided(scheduler, task);
}

void tensors_replace(Scheduler *scheduler, SchedulerTask *task, uint32_t node, const char *text)
{
    TensorCoordinator *const it = task->tensors;

    if (it == NULL || tensors_n_workers(it, node) == 0)
        return;
    it->is_away[node] = true;
    if (it->sets == NULL || task->cause.code != CONTROL_OK)
        return;
    note_loss(task, node, text);
    tensor_sets_replace(it->sets, it->first_ranks[node], it->first_ranks[node + 1], it->why);
    tell_decided(scheduler, task);
}

uint32_t tensors_first_rank(const TensorCoordinator *it, uint32_t node)
{
    return it == NULL ? 0 : it->first_ranks[node];
}

uint32_t tensors_n_workers(const TensorCoordinator *it, uint32_t node)
{
    return it == NULL ? 0 : it->first_ranks[node + 1] - it->first_ranks[node];
}

bool tensors_are_used(const TensorCoordinator *it)
{
    return it != NULL && it->sets != NULL;
}

/* ---- as bytes ---- */

static void *walk_asked(StateWalk *walk, void *tag)
{
    Asked *const asked = tag == NULL ? asked_new(0) : tag;

    WALK(walk, asked->since_ms);
    return asked;
}

/* Asks have no ranks. */
static void walk_notice(StateWalk *walk, void *element)
{
    TensorNotice *const notice = element;

    WALK(walk, notice->rank);
    WALK(walk, notice->set);
    walk_bytes(walk, notice->name, sizeof notice->name);
    tensor_request_walk(walk, &notice->request);
}

static void walk_groups(StateWalk *walk, TensorCoordinator *it)
{
    size_t n = walk_count(walk, g_hash_table_size(it->groups));
    GHashTableIter iter;
    gpointer rank = NULL, group = NULL;

    g_hash_table_iter_init(&iter, it->groups);
    for (; n > 0; n--) {
        if (walk_reads(walk))
            group = group_new(0);
        else
            (void)g_hash_table_iter_next(&iter, &rank, &group);
        rank = GUINT_TO_POINTER((guint)walk_number(walk, GPOINTER_TO_UINT(rank)));
        if (walk_reads(walk))
            g_hash_table_insert(it->groups, rank, group);
        WALK(walk, ((OpenGroup *)group)->n);
        walk_array(walk, ((OpenGroup *)group)->notices, walk_notice);
    }
}

TensorCoordinator *tensors_walk(StateWalk *walk, TensorCoordinator *it, uint32_t n_nodes)
{
    if (walk_number(walk, it != NULL) == 0)
        return NULL;
    if (walk_reads(walk))
        it = coordinator_new(n_nodes);
    walk_u32s(walk, it->first_ranks, n_nodes + 1);
    it->n_workers = it->first_ranks[n_nodes];
    for (uint32_t node = 0; node < n_nodes; node++)
        walk->is_wrong |= it->first_ranks[node] > it->first_ranks[node + 1];
    if (it->n_workers > CONTROL_MAX_WORKERS || walk->is_wrong) {
        walk->is_wrong = true;
        return it;
    }
    if (walk_number(walk, it->sets != NULL) != 0) {
        if (walk_reads(walk))
            make_sets(it);
        tensor_sets_walk(walk, it->sets, walk_asked);
    }
    walk_groups(walk, it);
    WALK(walk, it->n_verdicts);
    walk_u32s(walk, it->heard, n_nodes);
    WALK(walk, it->lost);
    walk_flags(walk, it->is_away, n_nodes);
    walk_error(walk, &it->why);
    WALK(walk, it->n_cuts);
    WALK(walk, it->has_cutovers);
    WALK(walk, it->cutovers);
    WALK(walk, it->change_since_ms);
    WALK(walk, it->joined_ms);
    return it;
}
