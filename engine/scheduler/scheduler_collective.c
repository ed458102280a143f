/* Collective calls: all nodes make the same calls in the same order, or are told that they did not.
 *
 * A node has at most one open call. So at most the newest call is undecided. Earlier calls are kept
 * only for nodes that have not come to them yet: these nodes get the same verdict as the others.
 * Calls are matched by their number, so after a mismatch all nodes match again at their next call.
 *
 *   GATHERING --all propose the same--> WORKING --all READY--> DECIDED
 *   GATHERING --barrier complete, mismatch, node left or lost, stopped--> DECIDED
 *
 * After GO, a verdict waits for the READY of every node that can still say it. So no node has to
 * undo a part that it is still doing. A MOVE and a SNAPSHOT have several steps, with a GO and a
 * READY of every node for each; see ControlStep. Processes that have joined propose nothing, but do
 * their part of each call: they may get parts of new tables, and of tables that tasks use.
 *
 * Part maps are numbered here. All tables share the numbers.
 *
 * Runs as scheduler.h says. */
#include "engine/scheduler/scheduler_collective.h"

#include <assert.h>
#include <string.h>

#include "engine/control/told_move.h"
#include "engine/scheduler/data/scheduler_data.h"
#include "engine/scheduler/recovery/scheduler_admission.h"
#include "engine/scheduler/scheduler_base.h"
#include "engine/scheduler/scheduler_past.h"
#include "engine/scheduler/scheduler_task.h"

#define ARGUMENTS_SHOWN 600 /* bytes of each side's arguments in a message */
#define FIELD_SEPARATOR ", "

static const struct {
    const char *did, *does;
} VERBS[CONTROL_CALL_END] = {
    [CONTROL_CALL_CREATE] = { "created ", "create " },
    [CONTROL_CALL_DROP] = { "dropped ", "drop " },
    [CONTROL_CALL_RUN] = { "ran ", "run " },
    [CONTROL_CALL_MOVE] = { "moved ", "move " },
    [CONTROL_CALL_BARRIER] = { "waited in a barrier", "wait in a barrier" },
    [CONTROL_CALL_SNAPSHOT] = { "wrote ", "write " },
    [CONTROL_CALL_RESTORE] = { "restored ", "restore " },
};

static void collective_free(Collective *collective)
{
    g_free(collective->name);
    g_free(collective->digest);
    g_free(collective->arguments);
    g_free(collective->workers);
    g_free(collective->told);
    g_free(collective->proposed);
    g_free(collective->ready);
    verdict_clear(&collective->verdict);
    g_free(collective);
}

void collectives_clear(Scheduler *scheduler)
{
    g_queue_clear_full(&scheduler->collectives, (GDestroyNotify)collective_free);
}

/* The undecided call, if there is one. */
static Collective *open_collective(const Scheduler *scheduler)
{
    Collective *last = g_queue_peek_tail((GQueue *)&scheduler->collectives);
    return last != NULL && last->phase != COLLECTIVE_DECIDED ? last : NULL;
}

/* Forgets calls to which every counted node has come. */
static void prune(Scheduler *scheduler)
{
    Collective *oldest;

    while ((oldest = g_queue_peek_head(&scheduler->collectives)) != NULL &&
           oldest->phase == COLLECTIVE_DECIDED) {
        for (uint32_t i = 0; i < scheduler->config.n_nodes; i++)
            if (scheduler_counts_on(scheduler, i) && !oldest->proposed[i])
                return;
        collective_free(g_queue_pop_head(&scheduler->collectives));
    }
}

static void send_commit(Scheduler *scheduler, const Collective *collective, uint32_t node)
{
    const Control commit = {
        .kind = CONTROL_COMMIT,
        .commit = { collective->number, { collective->verdict.code, collective->verdict.text } },
    };
    scheduler_send(scheduler, node, &commit);
}

/* A table is there on all nodes. */
static void note_table(Scheduler *scheduler, const Collective *collective)
{
    g_hash_table_insert(scheduler->tables, GUINT_TO_POINTER(collective->id),
                        g_strdup(collective->name));
    scheduler->goes_on = scheduler->goes_on || collective->survives;
}

static gboolean has_name(gpointer id, gpointer name, gpointer wanted)
{
    (void)id;
    return g_str_equal(name, wanted);
}

/* A table is gone on all nodes. Of a name there is one at a time. */
static void forget_table(Scheduler *scheduler, const Collective *collective)
{
    g_hash_table_foreach_remove(scheduler->tables, has_name, collective->name);
}

/* Processes that serve may have asked while nodes did their part of it. */
static void answer_those_who_ask(Scheduler *scheduler)
{
    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++) {
        SchedulerNode *const node = &scheduler->nodes[i];

        if (node->asks.kind != CONTROL_PROPOSE ||
            !past_answer(scheduler, i, &node->asks.propose, /* told= */ NULL))
            continue;
        control_clear(&node->asks);
        node->asks = (Control){ 0 };
    }
}

/* Ends an open call with its verdict. */
static void decide(Scheduler *scheduler, Collective *collective)
{
    const bool started = collective->phase == COLLECTIVE_WORKING;

    collective->phase = COLLECTIVE_DECIDED;
    past_note(scheduler, collective);
    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++)
        if (collective->proposed[i] || (started && scheduler->nodes[i].serves))
            send_commit(scheduler, collective, i);
    if (started && collective->verdict.code == CONTROL_OK) {
        if (collective->what == CONTROL_CALL_CREATE)
            note_table(scheduler, collective);
        if (collective->what == CONTROL_CALL_DROP)
            forget_table(scheduler, collective);
    }
    if (started && collective->what == CONTROL_CALL_RUN)
        task_decided(scheduler, collective->id, collective->verdict.code == CONTROL_OK);
    answer_those_who_ask(scheduler);
}

static void send_go(Scheduler *scheduler, const Collective *collective)
{
    const Control control = {
        .kind = CONTROL_GO,
        .go = { .call = collective->number,
                .hash_seed = collective->hash_seed,
                .id = collective->id,
                .step = collective->step,
                .what = collective->what },
    };
    Control whole = control;

    whole.go.told = collective->told;
    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++)
        if (scheduler_does_part(scheduler, i))
            scheduler_send(scheduler, i, scheduler->nodes[i].serves ? &whole : &control);
}

static bool find_next_step_of_snapshot(const Collective *collective, ControlStep *step)
{
    const bool failed = collective->verdict.code != CONTROL_OK;

    if (collective->step == CONTROL_STEP_FORGET)
        return false;
    *step = snapshot_step_after(collective->step, failed);
    return true;
}

/* The step after the present one, with which all nodes are ready. Once a part has been sent, it
 * moves, even if the call has failed for another reason meanwhile. False: it was the last step. */
static bool find_next_step(const Collective *collective, ControlStep *step)
{
    const bool failed = collective->verdict.code != CONTROL_OK;

    if (collective->what == CONTROL_CALL_SNAPSHOT)
        return find_next_step_of_snapshot(collective, step);
    if (collective->what != CONTROL_CALL_MOVE)
        return false;
    switch (collective->step) {
    case CONTROL_STEP_PREPARE:
        *step = failed ? CONTROL_STEP_TAKE_BACK : CONTROL_STEP_AHEAD;
        return true;
    case CONTROL_STEP_AHEAD:
        *step = failed ? CONTROL_STEP_TAKE_BACK : CONTROL_STEP_CLOSE;
        return true;
    case CONTROL_STEP_CLOSE:
        *step = failed ? CONTROL_STEP_TAKE_BACK : CONTROL_STEP_SEND;
        return true;
    case CONTROL_STEP_SEND:
        *step = failed ? CONTROL_STEP_TAKE_BACK : CONTROL_STEP_INSTALL;
        return true;
    case CONTROL_STEP_INSTALL:
        *step = CONTROL_STEP_OPEN;
        return true;
    case CONTROL_STEP_TAKE_BACK:
        *step = CONTROL_STEP_REOPEN;
        return true;
    default:
        return false;
    }
}

/* Whether what all nodes have cut is to be written. */
static void check_cut(Scheduler *scheduler, Collective *collective)
{
    const Verdict awaited = tasks_find_awaited(scheduler, collective->told);
    const Verdict tear = data_find_tear(scheduler);

    verdict_set(&collective->verdict, tear.code, tear.text);
    verdict_set(&collective->verdict, awaited.code, awaited.text);
}

static void check_ready(Scheduler *scheduler, Collective *collective)
{
    bool anybody = false;

    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++) {
        if (scheduler_does_part(scheduler, i) && !collective->ready[i])
            return;
        anybody |= scheduler_does_part(scheduler, i);
    }
    if (collective->what == CONTROL_CALL_SNAPSHOT && collective->step == CONTROL_STEP_CUT)
        check_cut(scheduler, collective);
    if (anybody && find_next_step(collective, &collective->step)) {
        memset(collective->ready, 0, scheduler->config.n_nodes * sizeof *collective->ready);
        collective->since_ms = scheduler->now_ms;
        if (collective->what == CONTROL_CALL_SNAPSHOT)
            data_hear_step(scheduler, collective->step, collective->told);
        send_go(scheduler, collective);
        return;
    }
    decide(scheduler, collective);
    prune(scheduler);
}

/* Fails an open call: at once, or as soon as the nodes that work on it are ready. */
static void fail(Scheduler *scheduler, Collective *collective, uint32_t code, const char *text)
{
    verdict_set(&collective->verdict, code, text);
    if (collective->phase == COLLECTIVE_GATHERING) {
        decide(scheduler, collective);
        prune(scheduler);
    } else {
        check_ready(scheduler, collective);
    }
}

/* Each node looks by itself for the newest snapshot. So if one node restores a snapshot and the
 * other does something else, their files may differ. Empty if neither restores. (transfer full) */
static char *hint_at_files(ControlCall one, uint32_t node, ControlCall other, uint32_t other_node)
{
    static const char *const needs =
        "All nodes need the same directory, on a shared file system or in a bucket";

    if (one == CONTROL_CALL_RESTORE && other == CONTROL_CALL_RESTORE)
        return g_strdup_printf("; do both see the same snapshots? %s", needs);
    if (one == CONTROL_CALL_RESTORE || other == CONTROL_CALL_RESTORE)
        return g_strdup_printf("; does node %u see that snapshot? %s",
                               one == CONTROL_CALL_RESTORE ? other_node : node, needs);
    return g_strdup("");
}

static void fail_by_leaving(Scheduler *scheduler, Collective *collective, uint32_t gone)
{
    const SchedulerNode *nodes = scheduler->nodes;
    g_autofree char *text = NULL, *hint = NULL;

    /* in a barrier, so to speak: it has restored nothing */
    hint = collective->proposed[gone] ? g_strdup("")
                                      : hint_at_files(collective->what, nodes[collective->first].id,
                                                      CONTROL_CALL_BARRIER, nodes[gone].id);
    if (collective->first == gone)
        text = g_strdup_printf("node %u left the run in the middle of a call: %s%s", nodes[gone].id,
                               VERBS[collective->what].does, collective->name);
    else
        text = g_strdup_printf("node %u left the run while node %u %s%s%s", nodes[gone].id,
                               nodes[collective->first].id, VERBS[collective->what].did,
                               collective->name, hint);
    fail(scheduler, collective, CONTROL_CODE(RUBATO_ERROR_MISMATCH), text);
}

/* The fields of a description, parted by commas, that another description lacks, or all of it if it
 * has none. (transfer full) */
static char *find_own_fields(const char *arguments, const char *other)
{
    g_auto(GStrv) fields = g_strsplit(arguments, FIELD_SEPARATOR, -1);
    g_auto(GStrv) others = g_strsplit(other, FIELD_SEPARATOR, -1);
    GString *own = g_string_new(NULL);

    for (char **field = fields; *field != NULL; field++)
        if (!g_strv_contains((const char *const *)others, *field))
            g_string_append_printf(own, "%s%s", own->len > 0 ? FIELD_SEPARATOR : "", *field);
    if (own->len == 0)
        g_string_assign(own, arguments);
    return g_string_free(own, FALSE);
}

/* How two nodes' calls differ; NULL if they do not. Names both nodes, the one with the lower number
 * last. */
static char *find_mismatch(const Scheduler *scheduler, const Collective *collective, uint32_t node,
                           const ControlPropose *propose)
{
    const SchedulerNode *nodes = scheduler->nodes;
    const uint32_t first = collective->first;
    const char *const verb = VERBS[collective->what].did;

    if (propose->what != collective->what || strcmp(propose->name, collective->name) != 0) {
        const char *const other = VERBS[propose->what].did;
        g_autofree char *hint =
            hint_at_files(collective->what, nodes[first].id, propose->what, nodes[node].id);
        if (node > first)
            return g_strdup_printf("node %u %s%s while node %u %s%s%s", nodes[node].id, other,
                                   propose->name, nodes[first].id, verb, collective->name, hint);
        return g_strdup_printf("node %u %s%s while node %u %s%s%s", nodes[first].id, verb,
                               collective->name, nodes[node].id, other, propose->name, hint);
    }
    if (strcmp(propose->digest, collective->digest) == 0)
        return NULL;

    const bool ordered = first < node;
    const char *const left = ordered ? collective->arguments : propose->arguments;
    const char *const right = ordered ? propose->arguments : collective->arguments;
    g_autofree char *own_left = find_own_fields(left, right);
    g_autofree char *own_right = find_own_fields(right, left);
    return g_strdup_printf("node %u and node %u %s%s with different arguments: %.*s / %.*s",
                           nodes[ordered ? first : node].id, nodes[ordered ? node : first].id,
                           VERBS[collective->what].does, collective->name, ARGUMENTS_SHOWN,
                           own_left, ARGUMENTS_SHOWN, own_right);
}

/* All nodes have proposed the same call. While parts get other primaries, a node is drained, or a
 * snapshot is taken, no call begins, because then all nodes agree on the tables that there are.
 * Nor does one before the scheduler's node has joined again: it completes snapshots and places
 * parts. */
static void go(Scheduler *scheduler, Collective *collective)
{
    const bool needs_own =
        collective->what == CONTROL_CALL_SNAPSHOT || collective->what == CONTROL_CALL_RESTORE;

    if ((scheduler->recovers || scheduler->takes_snapshot || scheduler->drain.stage > DRAIN_WAITS ||
         admission_awaits_own(scheduler)) &&
        collective->what != CONTROL_CALL_BARRIER)
        return;
    if (needs_own && scheduler->nodes[scheduler->config.self].lost) {
        fail(scheduler, collective, CONTROL_CODE(RUBATO_ERROR_NODE_LOST), SCHEDULER_LACKS_OWN);
        return;
    }
    collective->since_ms = scheduler->now_ms;
    if (collective->what == CONTROL_CALL_BARRIER) {
        decide(scheduler, collective);
        prune(scheduler);
        return;
    }
    collective->phase = COLLECTIVE_WORKING;
    if (collective->what == CONTROL_CALL_CREATE) {
        collective->id = scheduler->next_table++;
    } else if (collective->what == CONTROL_CALL_RUN) {
        collective->id = scheduler->next_epoch++;
        task_prepare(scheduler, collective);
        g_free(collective->told);
        collective->told = g_strdup(task_find(scheduler, collective->id)->told);
    } else if (collective->what == CONTROL_CALL_MOVE) {
        collective->id = ++scheduler->map_number;
        collective->step = CONTROL_STEP_PREPARE;
    }
    send_go(scheduler, collective);
}

static Collective *collective_new(Scheduler *scheduler, uint32_t node,
                                  const ControlPropose *propose)
{
    Collective *collective = g_new0(Collective, 1);

    collective->number = ++scheduler->n_calls;
    collective->what = propose->what;
    collective->first = node;
    collective->hash_seed = propose->hash_seed;
    collective->name = g_strdup(propose->name);
    collective->digest = g_strdup(propose->digest);
    collective->arguments = g_strdup(propose->arguments);
    collective->workers = g_strdup(propose->workers);
    collective->told = g_strdup(propose->told);
    collective->survives = propose->survives;
    collective->replace_ms = propose->replace_ms;
    collective->proposed = g_new0(bool, scheduler->config.n_nodes);
    collective->ready = g_new0(bool, scheduler->config.n_nodes);
    collective->since_ms = scheduler->now_ms;
    g_queue_push_tail(&scheduler->collectives, collective);
    return collective;
}

static Collective *find_collective(const Scheduler *scheduler, uint64_t number)
{
    for (GList *link = scheduler->collectives.head; link != NULL; link = link->next) {
        Collective *collective = link->data;
        if (collective->number == number)
            return collective;
    }
    return NULL;
}

/* Whether a move does not concern the node, or has come so far that it ends as it would without the
 * loss. */
static bool moves_on(const Collective *collective, uint32_t lost)
{
    ToldMove move;

    return collective->step >= CONTROL_STEP_INSTALL ||
           (told_move_read(collective->told, &move) && move.from_node != lost &&
            move.to_node != lost);
}

/* Whether a call goes on when a node is lost. The nodes that live can make all calls without it:
 * each knows, when it hears GO, which nodes had been lost when that was sent. Of those that nodes
 * do their part of: a new table's parts get other primaries after it, as those of all tables do; so
 * do those that a new task uses, and it begins unless it needs workers that are lost; a snapshot is
 * whole once all have written it, and needs all before. */
static bool outlives(const Scheduler *scheduler, const Collective *collective, uint32_t lost)
{
    if (collective->phase == COLLECTIVE_GATHERING)
        return true;
    switch (collective->what) {
    case CONTROL_CALL_CREATE:
    case CONTROL_CALL_DROP:
        return true;
    case CONTROL_CALL_RUN:
        return task_find(scheduler, collective->id)->cause.code == CONTROL_OK;
    case CONTROL_CALL_MOVE:
        return moves_on(collective, lost);
    case CONTROL_CALL_SNAPSHOT:
        return collective->step >= CONTROL_STEP_COMMIT;
    default:
        return false;
    }
}

/* The first node to come to a call: the call may already be bound to fail. */
static void check_hope(Scheduler *scheduler, Collective *collective)
{
    if (scheduler->doom.code != CONTROL_OK) {
        fail(scheduler, collective, scheduler->doom.code, scheduler->doom.text);
        return;
    }
    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++) {
        const SchedulerNode *const node = &scheduler->nodes[i];

        if (node->left) {
            fail_by_leaving(scheduler, collective, i);
            return;
        }
    }
}

static bool all_have_proposed(const Scheduler *scheduler, const Collective *collective)
{
    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++)
        if (scheduler_has_program(scheduler, i) && !collective->proposed[i])
            return false;
    return true;
}

/* The process makes the same calls as the others, from call `next` on. */
static void end_catching_up(Scheduler *scheduler, uint32_t node, uint64_t next)
{
    admission_catch_up(scheduler, node);
    tasks_catch_up(scheduler, node);
    for (GList *link = scheduler->collectives.head; link != NULL; link = link->next) {
        Collective *const earlier = link->data;

        if (earlier->number < next)
            earlier->proposed[node] = true;
    }
}

/* A process that serves makes a call: one that the run has made, or is making, or the next one.
 * True: then it makes the same calls as the others from here on. So it does after the call of a
 * task in which it has workers again, if that is the last one: then the others wait for it in the
 * next. */
static bool catch_up(Scheduler *scheduler, uint32_t node, const Control *control,
                     const ControlPropose *propose)
{
    const Collective *const open = open_collective(scheduler);

    const uint32_t epoch = past_find_task(scheduler, propose);
    g_autofree char *told = epoch == 0 ? NULL : task_replace(scheduler, node, epoch);

    if (past_answer(scheduler, node, propose, told)) {
        if (told != NULL && propose->call == scheduler->n_calls)
            end_catching_up(scheduler, node, propose->call + 1);
        return false;
    }
    if (open != NULL && open->number == propose->call && open->phase == COLLECTIVE_WORKING) {
        control_copy(&scheduler->nodes[node].asks, control); /* its texts are not NULL */
        return false;
    }
    end_catching_up(scheduler, node, propose->call);
    return true;
}

bool collective_propose(Scheduler *scheduler, uint32_t node, const Control *control)
{
    const Collective *open = open_collective(scheduler);
    ControlPropose propose = control->propose;

    if (propose.name == NULL || propose.what == CONTROL_CALL_BARRIER)
        propose.name = "";
    propose.digest = propose.digest != NULL ? propose.digest : "";
    propose.arguments = propose.arguments != NULL ? propose.arguments : "";
    if (scheduler->nodes[node].lost || scheduler->nodes[node].left ||
        propose.call != scheduler->nodes[node].n_proposed + 1 ||
        (open != NULL && open->proposed[node]) || propose.what < CONTROL_CALL_CREATE ||
        propose.what >= CONTROL_CALL_END)
        return false;
    scheduler->nodes[node].n_proposed++;
    if (scheduler->nodes[node].serves && !catch_up(scheduler, node, control, &propose))
        return true;

    Collective *collective = find_collective(scheduler, propose.call);
    if (collective == NULL) {
        assert(propose.call == scheduler->n_calls + 1);
        collective = collective_new(scheduler, node, &propose);
        collective->proposed[node] = true;
        check_hope(scheduler, collective);
    } else {
        collective->proposed[node] = true;
        if (collective->phase == COLLECTIVE_DECIDED) {
            send_commit(scheduler, collective, node);
            prune(scheduler);
            return true;
        }
        g_autofree char *mismatch = find_mismatch(scheduler, collective, node, &propose);
        if (mismatch != NULL)
            fail(scheduler, collective, CONTROL_CODE(RUBATO_ERROR_MISMATCH), mismatch);
    }

    /* It may be decided, and forgotten, by now. */
    collective = open_collective(scheduler);
    if (collective == NULL)
        return true;
    if (all_have_proposed(scheduler, collective))
        go(scheduler, collective);
    return true;
}

bool collective_ready(Scheduler *scheduler, uint32_t node, const Control *control)
{
    const ControlCallEnd *const ready = &control->ready;
    Collective *collective = open_collective(scheduler);

    if (collective == NULL || collective->phase != COLLECTIVE_WORKING ||
        collective->number != ready->call || collective->ready[node])
        return false;
    collective->ready[node] = true;
    verdict_set(&collective->verdict, ready->outcome.code, ready->outcome.text);
    check_ready(scheduler, collective);
    return true;
}

/* A task says more of why it cannot begin. */
static void fail_by_loss(Scheduler *scheduler, Collective *collective, const char *text)
{
    const Verdict loss = { CONTROL_CODE(RUBATO_ERROR_NODE_LOST), (char *)text };
    const Verdict *const why =
        collective->what == CONTROL_CALL_RUN ? &task_find(scheduler, collective->id)->cause : &loss;

    fail(scheduler, collective, why->code, why->text);
}

void collectives_lose_node(Scheduler *scheduler, uint32_t node, const char *text)
{
    Collective *const collective = open_collective(scheduler);

    if (collective != NULL) /* a process in its place has not */
        collective->proposed[node] = false;
    if (collective != NULL && !outlives(scheduler, collective, node))
        fail_by_loss(scheduler, collective, text);
    else if (collective != NULL && collective->phase == COLLECTIVE_WORKING)
        check_ready(scheduler, collective);
    else if (collective != NULL && all_have_proposed(scheduler, collective))
        go(scheduler, collective);
    prune(scheduler);
}

bool collectives_work(const Scheduler *scheduler)
{
    const Collective *const collective = open_collective(scheduler);

    return collective != NULL && collective->phase == COLLECTIVE_WORKING;
}

void collectives_go_on(Scheduler *scheduler)
{
    Collective *const collective = open_collective(scheduler);

    if (collective != NULL && collective->phase == COLLECTIVE_GATHERING &&
        all_have_proposed(scheduler, collective))
        go(scheduler, collective);
    tasks_go_on(scheduler);
}

void scheduler_doom(Scheduler *scheduler, uint32_t code, const char *text)
{
    verdict_set(&scheduler->doom, code, text);
    tasks_cancel(scheduler, code, text);
    collectives_doomed(scheduler);
}

void collectives_doomed(Scheduler *scheduler)
{
    Collective *collective = open_collective(scheduler);
    if (collective != NULL)
        fail(scheduler, collective, scheduler->doom.code, scheduler->doom.text);
}

void collectives_node_out(Scheduler *scheduler, uint32_t node)
{
    Collective *collective = open_collective(scheduler);

    /* A loss has doomed the call already. If it is still open, it waits only for the other
     * nodes. */
    if (collective != NULL && scheduler->nodes[node].lost)
        check_ready(scheduler, collective);
    else if (collective != NULL)
        fail_by_leaving(scheduler, collective, node);
    prune(scheduler);
}

void collectives_add_waits(const Scheduler *scheduler, GArray *waits)
{
    const Collective *collective = open_collective(scheduler);
    g_autoptr(GArray) awaited = g_array_new(FALSE, FALSE, sizeof(uint32_t));

    if (collective == NULL)
        return;
    const bool gathering = collective->phase == COLLECTIVE_GATHERING;
    const bool *const came = gathering ? collective->proposed : collective->ready;
    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++)
        if ((gathering ? scheduler_counts_on(scheduler, i) : scheduler_does_part(scheduler, i)) &&
            !came[i])
            g_array_append_val(awaited, i);
    if (awaited->len == 0) /* it begins once parts have other primaries: recovery_add_waits */
        return;
    g_autofree char *names = scheduler_name_nodes(scheduler, awaited, /* with_heard= */ true);
    wait_add(waits,
             g_strdup_printf(gathering ? "the call to %s%s waits for %s to make it too"
                                       : "the call to %s%s waits for %s to do its part",
                             VERBS[collective->what].does, collective->name, names),
             came, collective->since_ms);
}

/* ---- as bytes ---- */

static void walk_collective(StateWalk *walk, Collective *it, uint32_t n_nodes)
{
    WALK(walk, it->number);
    WALK(walk, it->what);
    WALK(walk, it->first);
    walk_text(walk, &it->name);
    walk_text(walk, &it->digest);
    walk_text(walk, &it->arguments);
    walk_text(walk, &it->workers);
    walk_text(walk, &it->told);
    WALK(walk, it->survives);
    WALK(walk, it->replace_ms);
    WALK(walk, it->phase);
    walk_flags(walk, it->proposed, n_nodes);
    walk_flags(walk, it->ready, n_nodes);
    WALK(walk, it->id);
    WALK(walk, it->step);
    WALK(walk, it->hash_seed);
    verdict_walk(walk, &it->verdict);
    WALK(walk, it->since_ms);
    walk->is_wrong |= it->what >= CONTROL_CALL_END || it->first >= n_nodes || it->name == NULL ||
                      it->digest == NULL || it->arguments == NULL;
}

void collectives_walk(StateWalk *walk, Scheduler *scheduler)
{
    const uint32_t n_nodes = scheduler->config.n_nodes;
    size_t n = walk_count(walk, scheduler->collectives.length);
    const GList *link = scheduler->collectives.head;

    for (; n > 0; n--) {
        Collective *const it = walk_reads(walk) ? g_new0(Collective, 1) : link->data;

        link = walk_reads(walk) ? NULL : link->next;
        if (walk_reads(walk)) {
            it->proposed = g_new0(bool, n_nodes);
            it->ready = g_new0(bool, n_nodes);
            g_queue_push_tail(&scheduler->collectives, it);
        }
        walk_collective(walk, it, n_nodes);
    }
    WALK(walk, scheduler->n_calls);
    past_walk(walk, scheduler->past);
}
