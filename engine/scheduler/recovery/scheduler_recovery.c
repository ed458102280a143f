/* What follows the loss of a node in a run whose tables have replicas: CLOSE, PROMOTE, OPEN
 * (docs/replication.md). If another node is lost meanwhile, this begins again with the next number;
 * answers to an older number do not count.
 *
 * The parts are not known here. Nodes tell in CLOSE which ones they have; the scheduler's own node
 * also tells which ones there are. A part that no live node has is lost, and with it the run.
 *
 * In OPEN that node tells where replicas are to be made, in the place of lost ones: it knows the
 * tables, and what servers have room for. Then EXPECT and COPY follow. The copies are made after
 * that, while calls go on; if a node is lost meanwhile, those that are not whole are dropped.
 *
 * Another process may take the place of a lost node. Then these steps follow ADMIT, in which all
 * nodes open links to it, and TABLES, in which it makes the tables that there are, and hears which
 * tasks run. So it gets replicas as the nodes do that have lived on. Why CLOSE comes again: parts
 * may have changed since the last one, and the node of the scheduler places replicas by what it
 * tells.
 *
 * Parts may also leave a node that lives (scheduler_drain.c). Then SETTLE follows CLOSE: by then
 * all nodes have sent it all that they send by the old map, and its servers have handled it. A
 * primary there takes no more inputs, and replicas that are listed get all that it has had. So each
 * of them can take its place in PROMOTE.
 *
 * A node that has joined gets its share of the parts in the same way: the plan of its OPEN has
 * copies on it, and which servers they leave. Once they are there, and nothing else is under way,
 * nodes do the second round, with the cause BALANCE. If another node is lost in between, the copies
 * count like any other replicas, and the second round comes after that; its OPEN has another plan
 * if copies are missing then, up to MOST_PLANS. If another node joins in between, its CLOSE ends
 * copies that are not whole, and its plan is for that node alone; what the first plan moves stays
 * to be moved. A node that did not get its share so, or before whose plan another one was lost, has
 * a plan in the OPEN of a later round with the cause BALANCE, by which nothing moves yet
 * (scheduler_balance.c).
 *
 * Runs as scheduler.h says. */
#include "engine/scheduler/recovery/scheduler_recovery.h"

#include <string.h>

#include "engine/control/place_text.h"
#include "engine/scheduler/recovery/scheduler_admission.h"
#include "engine/scheduler/recovery/scheduler_recovery_private.h"
#include "engine/scheduler/scheduler_base.h"
#include "engine/scheduler/scheduler_collective.h"

#define MOST_PLANS 4

Recovery *recovery_new(uint32_t n_nodes)
{
    Recovery *recovery = g_new0(Recovery, 1);

    recovery->done = g_new0(bool, n_nodes);
    recovery->told = g_new0(bool, n_nodes);
    recovery->unplanned = g_new0(bool, n_nodes);
    recovery->awaited = g_new0(uint64_t, n_nodes);
    recovery->ordered = g_new0(uint64_t, n_nodes);
    recovery->found = g_array_new(FALSE, FALSE, sizeof(Found));
    recovery->index = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    recovery->moves = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, g_free);
    return recovery;
}

void recovery_free(Recovery *recovery)
{
    if (recovery == NULL)
        return;
    g_array_unref(recovery->found);
    g_hash_table_unref(recovery->index);
    g_hash_table_unref(recovery->moves);
    g_free(recovery->done);
    g_free(recovery->told);
    g_free(recovery->unplanned);
    g_free(recovery->ordered);
    g_free(recovery->awaited);
    g_free(recovery->fault);
    g_free(recovery->places);
    g_free(recovery->text);
    g_free(recovery);
}

/* Only the process that has joined does the step TABLES. */
static bool does_step(const Scheduler *scheduler, uint32_t node)
{
    return !scheduler->nodes[node].lost && (scheduler->recovery->step != CONTROL_RECOVER_TABLES ||
                                            node == scheduler->recovery->node);
}

static void send_step(Scheduler *scheduler, ControlRecoverStep step)
{
    Recovery *const recovery = scheduler->recovery;
    const Admission *const admission = &scheduler->admission;
    const bool joins = step == CONTROL_RECOVER_ADMIT;
    const Control recover = { .kind = CONTROL_RECOVER,
                              .recover = { .map = scheduler->map_number,
                                           .step = step,
                                           .node = recovery->node,
                                           .cause = recovery->cause,
                                           .text = recovery->text,
                                           .lines = recovery->places,
                                           .incarnation =
                                               joins ? admission->incarnation
                                                     : scheduler->nodes[recovery->node].incarnation,
                                           .counted_from = admission->counted_from,
                                           .endpoints = admission->endpoint } };

    recovery->step = step;
    recovery->since_ms = scheduler->now_ms;
    memset(recovery->done, 0, scheduler->config.n_nodes * sizeof *recovery->done);
    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++) {
        recovery->told[i] = !does_step(scheduler, i);
        if (does_step(scheduler, i))
            scheduler_send(scheduler, i, &recover);
    }
}

/* What nodes are told in CLOSE. (transfer full) NULL: there are none. */
static char *list_draining(const Scheduler *scheduler)
{
    GString *const text = g_string_new(NULL);

    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++)
        if (scheduler->nodes[i].drains)
            g_string_append_printf(text, "%u\n", i);
    return g_string_free(text, /* free_segment= */ text->len == 0);
}

static void send_close(Scheduler *scheduler)
{
    Recovery *const recovery = scheduler->recovery;

    g_free(recovery->places);
    recovery->places = list_draining(scheduler);
    send_step(scheduler, CONTROL_RECOVER_CLOSE);
    g_clear_pointer(&recovery->places, g_free);
}

/* Takes the text. */
static void begin(Scheduler *scheduler, uint32_t node, ControlCause cause, char *text,
                  ControlRecoverStep step)
{
    Recovery *const recovery = scheduler->recovery;

    scheduler->recovers = true;
    recovery->node = node;
    recovery->cause = cause;
    g_free(recovery->text);
    recovery->text = text;
    g_array_set_size(recovery->found, 0);
    g_hash_table_remove_all(recovery->index);
    g_clear_pointer(&recovery->places, g_free);
    scheduler->map_number++;
    if (step == CONTROL_RECOVER_CLOSE)
        send_close(scheduler);
    else
        send_step(scheduler, step);
}

/* To the nodes the process that makes the tables has the place only from CLOSE on. They would count
 * it as lost in the CLOSE of another node, and leave their links to it. */
static void end_tables(Scheduler *scheduler)
{
    Recovery *const recovery = scheduler->recovery;

    begin(scheduler, recovery->node, CONTROL_CAUSE_JOIN, g_steal_pointer(&recovery->text),
          CONTROL_RECOVER_CLOSE);
}

/* Whether the steps that nodes do are those in which a node that has joined is planned for, and
 * nothing says that it has been. */
static bool awaits_plan(const Scheduler *scheduler)
{
    const Recovery *const recovery = scheduler->recovery;
    const bool plans =
        recovery->cause == CONTROL_CAUSE_JOIN || recovery->cause == CONTROL_CAUSE_BALANCE;
    const bool has_plan =
        g_hash_table_size(recovery->moves) > 0 && recovery->joined == recovery->node;

    return plans && !has_plan && !scheduler->nodes[recovery->node].lost;
}

void recovery_begin(Scheduler *scheduler, uint32_t node, const char *text)
{
    Recovery *const recovery = scheduler->recovery;

    admission_end(scheduler); /* one under way is given up */
    if (scheduler->recovers && recovery->step == CONTROL_RECOVER_TABLES &&
        !scheduler->nodes[recovery->node].lost)
        end_tables(scheduler);
    if (scheduler->recovers && awaits_plan(scheduler))
        recovery->unplanned[recovery->node] = true;

    /* what the lost process was to make */
    scheduler->recovery->ordered[node] = 0;
    begin(scheduler, node,
          scheduler->nodes[node].left_drained ? CONTROL_CAUSE_LEAVE : CONTROL_CAUSE_LOSS,
          g_strdup(text), CONTROL_RECOVER_CLOSE);
}

void recovery_drain(Scheduler *scheduler, ControlCause cause, uint32_t node, const char *what)
{
    begin(scheduler, node, cause, g_strdup_printf("%s %s", scheduler->nodes[node].label, what),
          CONTROL_RECOVER_CLOSE);
}

bool recovery_has_handed_over(const Scheduler *scheduler)
{
    const Recovery *const recovery = scheduler->recovery;

    return !scheduler->recovers && recovery->cause == CONTROL_CAUSE_HAND_OVER &&
           recovery->all_leave;
}

const char *recovery_drain_fault(const Scheduler *scheduler)
{
    return scheduler->recovery->fault;
}

bool recovery_awaits_copies(const Scheduler *scheduler)
{
    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++)
        if (!scheduler->nodes[i].lost && scheduler->recovery->awaited[i] > 0)
            return true;
    return false;
}

void recovery_admit(Scheduler *scheduler)
{
    const Admission *const admission = &scheduler->admission;
    Recovery *const recovery = scheduler->recovery;
    const bool is_new = scheduler_is_absent(scheduler, admission->node);

    /* The one before waits for copies, which CLOSE may end, and this one's parts may be among those
     * that move. */
    if (g_hash_table_size(recovery->moves) > 0)
        recovery->unplanned[recovery->joined] = recovery->unplanned[admission->node] = true;
    begin(scheduler, admission->node, CONTROL_CAUSE_JOIN,
          g_strdup_printf("%s %s %s",
                          admission->description[0] != '\0' ? admission->description : "a process",
                          is_new ? "joins the run as" : "takes the place of",
                          scheduler->nodes[admission->node].label),
          CONTROL_RECOVER_ADMIT);
}

/* ---- what nodes have ---- */

static Found *find_part(Recovery *recovery, uint32_t table, uint32_t part)
{
    const guint64 key = recovery_key(table, part);
    const Found found = { .table = table, .part = part };
    gpointer at;

    if (!g_hash_table_lookup_extended(recovery->index, &key, NULL, &at)) {
        at = GUINT_TO_POINTER(recovery->found->len);
        recovery_note_index(recovery, &found, recovery->found->len);
        g_array_append_val(recovery->found, found);
    }
    return &g_array_index(recovery->found, Found, GPOINTER_TO_UINT(at));
}

static bool are_readable(const char *lines)
{
    PlaceFound told;

    while (*lines != '\0')
        if (!place_text_read_found(&lines, &told))
            return false;
    return true;
}

/* Where replicas are to be made, and which of the parts move then. False: it makes no sense. */
static bool take_plan(Recovery *recovery, const char *lines)
{
    const char *end = lines;
    PlaceSet set;
    PlaceMove move;

    while (place_text_read_set(&end, &set))
        continue;
    const char *at = end;
    while (place_text_read_move(&at, &move))
        continue;
    if (end == lines || *at != '\0')
        return false;
    recovery->places = g_strndup(lines, (gsize)(end - lines));
    if (*end != '\0') {
        recovery->n_plans = recovery->cause == CONTROL_CAUSE_JOIN ? 1 : recovery->n_plans + 1;
        recovery->joined = recovery->node;
    }
    while (place_text_read_move(&end, &move))
        recovery_add_move(recovery, &move);
    return true;
}

static void note_found(Recovery *recovery, uint32_t node, const char *lines)
{
    PlaceFound told;

    while (place_text_read_found(&lines, &told)) {
        Found *const part = find_part(recovery, told.table, told.part);

        if (told.role == PLACE_PRIMARY) {
            part->has_primary = true;
            part->primary = told.server;
            part->primary_node = node;
        } else if (told.role == PLACE_REPLICA && part->n_replicas < PLACE_MOST_SERVERS) {
            part->replicas[part->n_replicas].server = told.server;
            part->replicas[part->n_replicas].node = node;
            part->replicas[part->n_replicas++].position = told.position;
            part->best = MAX(part->best, told.position);
        }
    }
}

/* ---- where parts are from now on ---- */

/* The primary stays, or the replica with the greatest position becomes one. Other replicas follow
 * it, unless they have missed inputs. */
static PlaceSet choose(const Found *found)
{
    PlaceSet set = { .table = found->table, .part = found->part };

    if (found->has_primary)
        set.servers[set.n++] = found->primary;
    for (uint32_t i = 0; i < found->n_replicas && set.n < PLACE_MOST_SERVERS; i++)
        if (found->has_primary || found->replicas[i].position == found->best)
            set.servers[set.n++] = found->replicas[i].server;
    return set;
}

/* How many primaries a server has, by the sets that have been chosen so far. */
static uint32_t *count_of(GHashTable *primaries, uint32_t server)
{
    uint32_t *n = g_hash_table_lookup(primaries, GUINT_TO_POINTER(server));

    if (n == NULL) {
        n = g_new0(uint32_t, 1);
        g_hash_table_insert(primaries, GUINT_TO_POINTER(server), n);
    }
    return n;
}

/* The same where parts leave nodes. The replica that takes the place of a primary is on the server
 * with the fewest primaries. A part stays where it is if there is no other whole copy of it. */
static PlaceSet choose_staying(Scheduler *scheduler, const Found *found, GHashTable *primaries)
{
    const bool leaves = found->has_primary && scheduler->nodes[found->primary_node].drains;
    PlaceSet set = { .table = found->table, .part = found->part };
    uint32_t best = 0;

    if (!found->has_primary)
        return choose(found);
    if (!leaves)
        set.servers[set.n++] = found->primary;
    for (uint32_t i = 0; i < found->n_replicas && set.n < PLACE_MOST_SERVERS; i++)
        if (!scheduler->nodes[found->replicas[i].node].drains)
            set.servers[set.n++] = found->replicas[i].server;
    if (set.n == 0) {
        scheduler->recovery->all_leave = false;
        return choose(found);
    }
    for (uint32_t i = 1; i < set.n && leaves; i++)
        if (*count_of(primaries, set.servers[i]) < *count_of(primaries, set.servers[best]))
            best = i;
    const uint32_t primary = set.servers[best];

    set.servers[best] = set.servers[0];
    set.servers[0] = primary;
    return set;
}

static uint32_t find_server(const PlaceSet *set, uint32_t server)
{
    uint32_t i = 0;

    while (i < set->n && set->servers[i] != server)
        i++;
    return i;
}

/* The same where a copy of the part takes the place of another one. If one of the two is not there,
 * or the others have become fewer, all stay. */
static PlaceSet choose_moved(Scheduler *scheduler, const Found *found)
{
    const guint64 key = recovery_key(found->table, found->part);
    const PlaceMove *const move = g_hash_table_lookup(scheduler->recovery->moves, &key);
    PlaceSet set = choose(found);

    if (move == NULL || !found->has_primary || set.n <= move->n)
        return set;
    const uint32_t from = find_server(&set, move->from), to = find_server(&set, move->to);

    if (from == set.n || to == set.n || to == 0 || from == to)
        return set;
    set.servers[from] = move->to; /* the primary is the first */
    set.servers[to] = set.servers[--set.n];
    return set;
}

/* What follows for all parts. (transfer full) NULL: *lost has no live node. */
static char *choose_all(Scheduler *scheduler, PlaceSet *lost)
{
    Recovery *const recovery = scheduler->recovery;
    const bool leave = recovery->cause == CONTROL_CAUSE_HAND_OVER;
    g_autoptr(GHashTable) primaries =
        g_hash_table_new_full(g_direct_hash, g_direct_equal, NULL, g_free);
    GString *const text = g_string_new(NULL);

    recovery->all_leave = true;
    for (guint i = 0; i < recovery->found->len; i++) {
        const Found *const found = &g_array_index(recovery->found, Found, i);

        if (leave && found->has_primary && !scheduler->nodes[found->primary_node].drains)
            ++*count_of(primaries, found->primary);
    }
    for (guint i = 0; i < recovery->found->len; i++) {
        const Found *const found = &g_array_index(recovery->found, Found, i);
        const PlaceSet set = leave ? choose_staying(scheduler, found, primaries)
                             : recovery->cause == CONTROL_CAUSE_BALANCE
                                 ? choose_moved(scheduler, found)
                                 : choose(found);

        if (leave && set.n > 0 && (!found->has_primary || set.servers[0] != found->primary))
            ++*count_of(primaries, set.servers[0]);
        if (set.n == 0) {
            *lost = set;
            g_string_free(text, TRUE);
            return NULL;
        }
        place_text_write_set(text, &set);
    }
    return g_string_free(text, FALSE);
}

/* ---- replicas that are made ---- */

/* The node that has told of the server in CLOSE. */
static uint32_t node_of(const Found *found, uint32_t server)
{
    uint32_t node = found->primary_node;

    for (uint32_t i = 0; i < found->n_replicas; i++)
        if (found->replicas[i].server == server)
            node = found->replicas[i].node;
    return node;
}

/* The primary of a part is to make those of the plan that the part does not have yet. */
static void note_orders(Recovery *recovery)
{
    const char *lines = recovery->places;
    PlaceSet set;

    while (place_text_read_set(&lines, &set)) {
        const Found *const found = find_part(recovery, set.table, set.part);
        const uint32_t n_before = choose(found).n;

        if (n_before > 0 && set.n > n_before) {
            const uint32_t node = node_of(found, set.servers[0]);

            recovery->ordered[node] += set.n - n_before;
            recovery->awaited[node] += set.n - n_before;
        }
    }
}

bool recovery_hears_made(Scheduler *scheduler, uint32_t node, uint32_t n, uint32_t n_missing)
{
    Recovery *const recovery = scheduler->recovery;
    const uint64_t told = (uint64_t)n + n_missing;

    if (told == 0 || told > recovery->ordered[node])
        return false;
    recovery->ordered[node] -= told;
    recovery->awaited[node] -= MIN(told, recovery->awaited[node]);
    if (n_missing > 0 && recovery->fault == NULL)
        recovery->fault = g_strdup_printf("%s could not make all copies of its parts on others; "
                                          "its log says why",
                                          scheduler->nodes[node].label);
    return true;
}

/* ---- the steps ---- */

/* A failure that ends the run. */
static void give_up(Scheduler *scheduler, const char *why)
{
    Recovery *const recovery = scheduler->recovery;
    g_autofree char *text = g_strdup_printf("%s; %s", recovery->text, why);

    scheduler->recovers = false;
    scheduler_send_all(scheduler, &(Control){ .kind = CONTROL_LOST,
                                              .lost = { .number = recovery->node, .text = text } });
    scheduler_doom(scheduler, CONTROL_CODE(RUBATO_ERROR_NODE_LOST), text);
}

static void end_recovery(Scheduler *scheduler)
{
    Recovery *const recovery = scheduler->recovery;

    /* The same steps once more would find the same. */
    if (recovery->cause == CONTROL_CAUSE_HAND_OVER && !recovery->all_leave &&
        recovery->fault == NULL && !recovery_awaits_copies(scheduler))
        recovery->fault = g_strdup("other nodes do not have copies of all of its parts, and no "
                                   "more are made");
    if (recovery->cause == CONTROL_CAUSE_BALANCE && scheduler->nodes[scheduler->config.self].lost)
        g_hash_table_remove_all(recovery->moves); /* nobody has planned others */
    scheduler->recovers = false;
    collectives_go_on(scheduler);
}

/* Whether the run is whole if parts stay where they are. */
static bool loses_nothing(const Recovery *recovery)
{
    return recovery->cause == CONTROL_CAUSE_DRAIN || control_cause_hands_over(recovery->cause);
}

/* Nodes open their maps again, and nothing else. */
static void stay_as_they_are(Scheduler *scheduler)
{
    Recovery *const recovery = scheduler->recovery;

    g_free(recovery->places);
    recovery->places = g_strdup("");
    recovery->all_leave = false;
    recovery->fault = g_strdup("there are more parts with replicas than nodes can be told");
    send_step(scheduler, CONTROL_RECOVER_PROMOTE);
}

/* The process cannot take the place. Nodes leave their links to it in CLOSE. */
static void refuse_admission(Scheduler *scheduler, const char *why)
{
    const uint32_t node = scheduler->admission.node;
    g_autofree char *text =
        g_strdup_printf("no process took the place of %s: %s", scheduler->nodes[node].label, why);
    const Control refuse = { .kind = CONTROL_REFUSE,
                             .refuse = { CONTROL_CODE(RUBATO_ERROR_INVALID), why } };

    if (node == scheduler->config.self)
        scheduler->own.was_refused = true; /* it goes on as the scheduler alone */
    else
        scheduler_send_greeting(scheduler, scheduler->admission.asker, &refuse);
    recovery_begin(scheduler, node, text);
}

/* What the process is told in TABLES. (transfer full) */
static char *describe_run(const Scheduler *scheduler)
{
    GString *const text = g_string_new(scheduler->recovery->places);

    for (guint i = 0; i < scheduler->tasks->len; i++)
        g_string_append(text, ((const SchedulerTask *)scheduler->tasks->pdata[i])->told);
    return g_string_free(text, FALSE);
}

static void end_admit(Scheduler *scheduler)
{
    Recovery *const recovery = scheduler->recovery;
    char *const run = describe_run(scheduler);

    g_free(recovery->places);
    recovery->places = run;
    if (strlen(run) > CONTROL_MAX_FILE) {
        refuse_admission(scheduler, "there are more tables and tasks than a process can be told");
        return;
    }
    admission_install(scheduler);
    if (recovery->node != scheduler->config.self) /* it knows */
        admission_answer(scheduler, recovery->node);
    send_step(scheduler, CONTROL_RECOVER_TABLES);
}

static void end_step(Scheduler *scheduler)
{
    Recovery *const recovery = scheduler->recovery;
    PlaceSet lost = { 0 };

    switch ((ControlRecoverStep)recovery->step) {
    case CONTROL_RECOVER_ADMIT:
        end_admit(scheduler);
        break;
    case CONTROL_RECOVER_TABLES:
        send_close(scheduler);
        break;
    case CONTROL_RECOVER_CLOSE:
        memset(recovery->awaited, 0, scheduler->config.n_nodes * sizeof *recovery->awaited);
        g_clear_pointer(&recovery->fault, g_free);
        recovery->places = choose_all(scheduler, &lost);
        if (recovery->places == NULL) {
            const char *const table =
                g_hash_table_lookup(scheduler->tables, GUINT_TO_POINTER(lost.table));
            g_autofree char *why = g_strdup_printf("no other node has part %u of %s", lost.part,
                                                   table != NULL ? table : "a table");

            give_up(scheduler, why);
            return;
        }
        if (strlen(recovery->places) > CONTROL_MAX_FILE && loses_nothing(recovery)) {
            stay_as_they_are(scheduler);
            return;
        }
        if (strlen(recovery->places) > CONTROL_MAX_FILE) {
            give_up(scheduler, "there are more parts with replicas than can be told after a loss");
            return;
        }
        send_step(scheduler, control_cause_hands_over(recovery->cause) ? CONTROL_RECOVER_SETTLE
                                                                       : CONTROL_RECOVER_PROMOTE);
        break;
    case CONTROL_RECOVER_SETTLE:
        send_step(scheduler, CONTROL_RECOVER_PROMOTE);
        break;
    case CONTROL_RECOVER_PROMOTE:
        send_step(scheduler, CONTROL_RECOVER_OPEN);
        g_clear_pointer(&recovery->places, g_free);
        break;
    case CONTROL_RECOVER_OPEN:
        if (recovery->places != NULL)
            send_step(scheduler, CONTROL_RECOVER_EXPECT);
        else
            end_recovery(scheduler);
        break;
    case CONTROL_RECOVER_EXPECT:
        send_step(scheduler, CONTROL_RECOVER_COPY);
        break;
    default:
        end_recovery(scheduler);
        break;
    }
}

void recovery_check(Scheduler *scheduler)
{
    Recovery *const recovery = scheduler->recovery;

    if (!scheduler->recovers)
        return;
    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++)
        if (does_step(scheduler, i) && !recovery->done[i])
            return;
    end_step(scheduler);
}

/* Who says in ADMIT which tables there are: the scheduler's node or, if that is the one that joins,
 * each node; all say the same, since no call begins meanwhile. */
static bool tells_tables(const Scheduler *scheduler, uint32_t node)
{
    const uint32_t self = scheduler->config.self;

    return node == self || scheduler->recovery->node == self;
}

/* A loss may have come between the two rounds for a node that has joined, and with it an end to
 * copies: then they are planned once more, but not for ever. */
static bool may_plan(const Recovery *recovery)
{
    return recovery->cause != CONTROL_CAUSE_BALANCE || recovery->n_plans < MOST_PLANS;
}

bool recovery_hears_done(Scheduler *scheduler, uint32_t node, const Control *control)
{
    const ControlRecover *const told = &control->recover;
    Recovery *const recovery = scheduler->recovery;

    if (told->map > scheduler->map_number)
        return false;
    if (!scheduler->recovers || told->map < scheduler->map_number)
        return true; /* it is late */
    if (told->step != recovery->step || recovery->done[node] || !does_step(scheduler, node))
        return false;
    if (told->step == CONTROL_RECOVER_ADMIT && told->text != NULL && told->text[0] != '\0') {
        refuse_admission(scheduler, told->text);
        return true;
    }
    if (told->step == CONTROL_RECOVER_ADMIT && tells_tables(scheduler, node)) {
        g_free(recovery->places);
        recovery->places = g_strdup(told->lines);
    }
    if (told->step == CONTROL_RECOVER_CLOSE) {
        if (!are_readable(told->lines)) /* nothing of it counts */
            return false;
        note_found(recovery, node, told->lines);
    }
    const bool plans = told->step == CONTROL_RECOVER_OPEN && node == scheduler->config.self;

    if (plans && told->text != NULL && told->text[0] != '\0') {
        g_free(recovery->fault);
        recovery->fault = g_strdup(told->text);
    }
    if (plans && recovery->cause == CONTROL_CAUSE_BALANCE)
        g_hash_table_remove_all(recovery->moves); /* all nodes have done them */
    if (told->step == CONTROL_RECOVER_OPEN && told->lines != NULL && told->lines[0] != '\0' &&
        may_plan(recovery)) {
        if (!plans || !take_plan(recovery, told->lines))
            return false;
        note_orders(recovery);
    }
    recovery->done[node] = recovery->told[node] = true;
    recovery_check(scheduler);
    return true;
}

void recovery_add_waits(const Scheduler *scheduler, GArray *waits)
{
    static const char *const waiters[CONTROL_CAUSE_END] = {
        [CONTROL_CAUSE_LOSS] = "the parts of a lost node wait",
        [CONTROL_CAUSE_JOIN] = "a process that joins the run waits",
        [CONTROL_CAUSE_DRAIN] = "the parts of a node that is drained wait",
        [CONTROL_CAUSE_HAND_OVER] = "the parts of a node that is drained wait",
        [CONTROL_CAUSE_LEAVE] = "a drained node that has left waits",
        [CONTROL_CAUSE_BALANCE] = "the parts of a node that has joined wait",
    };
    const Recovery *const recovery = scheduler->recovery;
    g_autoptr(GArray) awaited = g_array_new(FALSE, FALSE, sizeof(uint32_t));

    if (!scheduler->recovers)
        return;
    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++)
        if (does_step(scheduler, i) && !recovery->done[i])
            g_array_append_val(awaited, i);
    g_autofree char *names = scheduler_name_nodes(scheduler, awaited, /* with_heard= */ true);

    wait_add(waits, g_strdup_printf("%s for %s", waiters[recovery->cause], names), recovery->told,
             recovery->since_ms);
}
