#include "tests/support/scheduler/join_sim.h"

#include <string.h>

#include "engine/control/control_messages.h"
#include "engine/control/place_text.h"

#define TABLES "the tables"
#define TOLD "table a as it is"
#define MOVE "move 1 2;4 1 5" /* from server 1 to server 2 */

JoinSim join_sim;

uint32_t join_draw(uint32_t n)
{
    return (uint32_t)g_rand_int_range(join_sim.rand, 0, (gint32)n);
}

bool join_chance(unsigned percent)
{
    return join_draw(100) < percent;
}

/* ---- messages ---- */

static void control_free(gpointer control)
{
    control_clear(control);
    g_free(control);
}

static void enqueue(GQueue *queue, const Control *control)
{
    Control *const copy = g_new0(Control, 1);

    control_copy(copy, control);
    g_queue_push_tail(queue, copy);
}

static void sends(void *user, uint32_t node, const Control *control)
{
    JoinProcess *const to = &join_sim.processes[join_sim.linked[node]];

    (void)user;
    if (join_sim.left_to_send == 0)
        return; /* it has been killed */
    join_sim.left_to_send -= join_sim.left_to_send < UINT32_MAX;
    join_assert(node == 0 || !to->is_in || !to->is_alive || to->scheduler == join_sim.incarnation,
                "a %s to node %u, which has not come back", control_kind_name(control->kind), node);
    if (to->is_alive)
        enqueue(&to->in, control);
}

static void enters(JoinProcess *process, const ControlWelcome *admitted)
{
    join_assert(admitted->incarnations[process->node] == process->incarnation, "a false admission");
    for (uint32_t i = 0; i < join_sim.n_nodes; i++)
        join_assert(i == process->node || admitted->endpoints[i][0] == '\0' ||
                        join_sim.processes[join_sim.linked[i]].incarnation ==
                            admitted->incarnations[i],
                    "node %u is told as a process that it is not", i);
    for (uint32_t i = 0; i < join_sim.n_nodes; i++)
        process->counts_lost[i] = admitted->endpoints[i][0] == '\0';
    process->is_in = true;
    process->scheduler = join_sim.incarnation;
}

/* Another process goes on as the scheduler. */
static void comes_back(JoinProcess *process, const ControlResumed *resumed)
{
    if (process->scheduler == resumed->scheduler)
        return;
    if (resumed->outcome.code != CONTROL_OK) {
        join_assert(!process->has_program, "%s", resumed->outcome.text);
        process->is_alive = false;
        return;
    }
    unheard_begin_again(&process->unheard);
    process->scheduler = resumed->scheduler;
    g_queue_clear_full(&process->in, control_free);
    g_queue_clear_full(&process->out, control_free);
    unheard_end_again(&process->unheard,
                      &(Control){ .kind = CONTROL_BACK, .back = { process->n_heard } },
                      resumed->n_taken);
    join_sim.n_resumed++;
}

static void greets(void *user, uint64_t asker, const Control *control)
{
    JoinProcess *const process = &join_sim.processes[asker];

    (void)user;
    if (join_chance(20) || !process->is_alive || join_sim.left_to_send == 0)
        return;
    if (control->kind == CONTROL_RESUMED)
        comes_back(process, &control->resumed);
    if (process->is_in)
        return;
    if (control->kind == CONTROL_ADMITTED)
        enters(process, &control->welcome);
    else if (control->kind == CONTROL_REFUSE)
        process->is_alive = false;
}

static void sends_out(void *user, const GByteArray *body)
{
    JoinProcess *const process = user;
    Control *const control = g_new0(Control, 1);

    ck_assert(control_decode(body->data, body->len, control, NULL));
    g_queue_push_tail(&process->out, control);
}

static void say(JoinProcess *process, Control control)
{
    if (process->node == 0)
        enqueue(&process->out, &control);
    else
        unheard_say(&process->unheard, &control);
}

/* ---- what a process does ---- */

static void list_parts(const JoinProcess *process, GString *lines)
{
    for (uint32_t part = 0; part < join_sim.n_parts; part++) {
        PlaceFound found = { .table = 0, .part = part, .server = process->node };

        if (process->node == 0) {
            found.role = PLACE_KNOWN;
            place_text_write_found(lines, &found);
        }
        found.role = process->parts[part] == JOIN_HOLDING_PRIMARY ? PLACE_PRIMARY : PLACE_REPLICA;
        if (process->parts[part] >= JOIN_HOLDING_COPY)
            place_text_write_found(lines, &found);
    }
}

static void take_places(JoinProcess *process, const char *lines)
{
    PlaceSet set;

    while (place_text_read_set(&lines, &set)) {
        JoinHolding *const own = &process->parts[set.part];
        JoinHolding now = JOIN_HOLDING_NONE;

        for (uint32_t i = 0; i < set.n; i++)
            if (set.servers[i] == process->node)
                now = i == 0 ? JOIN_HOLDING_PRIMARY : JOIN_HOLDING_COPY;
        join_assert(now == JOIN_HOLDING_NONE || *own >= JOIN_HOLDING_COPY,
                    "node %u is to have part %u, and has not", process->node, set.part);
        *own = now;
    }
}

/* The node that has joined is to have the part in the place of another one. */
static void plan_move(uint32_t node, PlaceSet *set, GString *moves)
{
    const PlaceMove move = { .table = set->table,
                             .part = set->part,
                             .from = set->servers[join_draw(2)],
                             .to = node,
                             .n = 2 };

    if (node == set->servers[0] || node == set->servers[1] || node < join_sim.is_alone)
        return;
    set->servers[set->n++] = node;
    place_text_write_move(moves, &move);
}

/* The scheduler's node knows who lives, as it is told. */
static void plan_copies(const ControlRecover *recover, GString *plan)
{
    const char *lines = recover->lines;
    g_autoptr(GString) moves = g_string_new(NULL);
    PlaceSet set;

    while (place_text_read_set(&lines, &set)) {
        for (uint32_t node = join_sim.is_alone; node < join_sim.n_nodes && set.n < 2; node++)
            if (node != set.servers[0] && !join_sim.scheduler->nodes[node].lost)
                set.servers[set.n++] = node;
        if (recover->cause == CONTROL_CAUSE_JOIN && set.n == 2 && join_chance(50))
            plan_move(recover->node, &set, moves);
        if (set.n >= 2)
            place_text_write_set(plan, &set);
    }
    g_string_append(plan, moves->str);
}

static void expect_copies(JoinProcess *process, const ControlRecover *recover)
{
    const char *lines = recover->lines;
    PlaceSet set;

    while (place_text_read_set(&lines, &set))
        for (uint32_t i = 1; i < set.n; i++)
            if (set.servers[i] == process->node && process->parts[set.part] == JOIN_HOLDING_NONE) {
                process->parts[set.part] = JOIN_HOLDING_ROOM;
                process->room_of[set.part] = recover->map;
            }
}

static void begin_copies(const JoinProcess *process, const ControlRecover *recover)
{
    const char *lines = recover->lines;
    PlaceSet set;

    while (place_text_read_set(&lines, &set))
        for (uint32_t i = 1; set.servers[0] == process->node && i < set.n; i++) {
            join_assert(join_sim.n_copies < JOIN_MOST_COPIES, "too many copies");
            join_sim.copies[join_sim.n_copies++] =
                (JoinCopy){ .from = (uint32_t)(process - join_sim.processes),
                            .to = join_sim.linked[set.servers[i]],
                            .part = set.part,
                            .map = recover->map };
        }
}

void join_end_a_copy(void)
{
    if (join_sim.n_copies == 0)
        return;
    JoinCopy *const one = &join_sim.copies[join_draw(join_sim.n_copies)];
    JoinProcess *const to = &join_sim.processes[one->to];

    if (join_sim.processes[one->from].is_alive && to->is_alive &&
        to->parts[one->part] == JOIN_HOLDING_ROOM && to->room_of[one->part] == one->map) {
        to->parts[one->part] = JOIN_HOLDING_COPY;
        say(&join_sim.processes[one->from],
            (Control){ .kind = CONTROL_MADE, .made = { .server = 0, .n = 1 } });
    }
    *one = join_sim.copies[--join_sim.n_copies];
}

static void admits(const JoinProcess *process, const ControlRecover *recover)
{
    join_assert(recover->cause == CONTROL_CAUSE_JOIN && recover->node != process->node,
                "a node is to admit itself");
    join_assert(recover->map == join_sim.admit_map ||
                    recover->counted_from > join_sim.counted_from ||
                    recover->node == 0, /* whose links are open already */
                "bytes are counted from a number that somebody had");
    join_sim.counted_from = recover->counted_from;
    join_sim.admit_map = recover->map;
    if (process->node == 0) /* from here on the scheduler hears this process, and no other */
        join_sim.linked[recover->node] = (uint32_t)recover->incarnation - 1;
}

/* In a CLOSE. A process that lives may have the place of a node that others count as lost. */
static void leave_lost(JoinProcess *process, const ControlRecover *recover)
{
    process->counts_lost[recover->node] = recover->cause == CONTROL_CAUSE_LOSS;
    for (uint32_t i = 0;
         i < join_sim.n_nodes && recover->cause == CONTROL_CAUSE_LOSS && !join_sim.is_dead; i++)
        join_assert(!process->counts_lost[i] || join_sim.scheduler->nodes[i].lost,
                    "node %u leaves its link to node %u, which is in the run", process->node, i);
}

static void do_step(JoinProcess *process, const ControlRecover *recover)
{
    g_autoptr(GString) lines = g_string_new(NULL);

    join_assert(recover->map > process->map ||
                    (recover->map == process->map && recover->step > process->step),
                "step %u of map %u after step %u of map %u", recover->step, recover->map,
                process->step, process->map);
    process->map = recover->map;
    process->step = recover->step;
    join_assert((recover->step == CONTROL_RECOVER_TABLES) != process->has_tables ||
                    recover->step == CONTROL_RECOVER_ADMIT,
                "node %u does step %u", process->node, recover->step);
    switch ((ControlRecoverStep)recover->step) {
    case CONTROL_RECOVER_ADMIT:
        join_assert(process->has_tables, "a newcomer is to admit another one");
        admits(process, recover);
        g_string_assign(lines, process->node == 0 || recover->node == 0 ? TABLES : "");
        break;
    case CONTROL_RECOVER_TABLES:
        ck_assert_str_eq(recover->lines, TABLES);
        process->has_tables = true;
        break;
    case CONTROL_RECOVER_CLOSE:
        leave_lost(process, recover);
        list_parts(process, lines);
        break;
    case CONTROL_RECOVER_SETTLE:
        join_assert(recover->cause == CONTROL_CAUSE_BALANCE, "primaries settle for cause %u",
                    recover->cause);
        break;
    case CONTROL_RECOVER_PROMOTE:
        take_places(process, recover->lines);
        join_sim.n_balanced += recover->cause == CONTROL_CAUSE_BALANCE && process->node == 0;
        break;
    case CONTROL_RECOVER_OPEN:
        process->is_placed = true;
        if (process->node == 0)
            plan_copies(recover, lines);
        break;
    case CONTROL_RECOVER_EXPECT:
        expect_copies(process, recover);
        break;
    default:
        begin_copies(process, recover);
        break;
    }
    say(process, (Control){ .kind = CONTROL_RECOVERED,
                            .recover = { .map = recover->map,
                                         .step = recover->step,
                                         .node = recover->node,
                                         .lines = lines->str } });
}

/* A snapshot is whole once the scheduler's node has done COMMIT, if it has heard of no failure. */
static void do_snapshot_step(JoinProcess *process, const ControlSnapshot *told)
{
    const bool is_next = told->number == process->snapshot
                             ? told->step > process->snapshot_step
                             : told->number > process->snapshot &&
                                   (told->step == CONTROL_STEP_PREPARE ||
                                    (told->step == CONTROL_STEP_FORGET &&
                                     (!process->has_program || process->catches_up)));
    const bool completes = told->step == CONTROL_STEP_COMMIT && process->node == 0;

    join_assert(is_next, "node %u does step %u of snapshot %u after step %u of snapshot %u",
                process->node, told->step, (unsigned)told->number, process->snapshot_step,
                (unsigned)process->snapshot);
    process->snapshot = told->number;
    process->snapshot_step = (ControlStep)told->step;
    if (completes)
        join_sim.is_whole[told->number] = true;
    say(process, (Control){ .kind = CONTROL_SNAPSHOT_DONE,
                            .snapshot = { .number = told->number,
                                          .step = told->step,
                                          .written = completes ? told->number : 0 } });
}

static void ask_for_snapshot(JoinProcess *process)
{
    join_sim.n_asked++;
    say(process, (Control){ .kind = CONTROL_SNAPSHOT_ASK,
                            .snapshot = { .number = ++process->n_asked, .spec = "here\n" } });
}

/* Whoever is told that it is whole can rely on that. */
static void end_snapshot(JoinProcess *process, const ControlSnapshot *end)
{
    const uint32_t code = end->outcome.code;

    join_assert(end->number == ++process->n_answered, "snapshots end out of turn");
    join_assert(code == CONTROL_OK ? end->written > 0 && join_sim.is_whole[end->written]
                                   : code == CONTROL_CODE(RUBATO_ERROR_NODE_LOST),
                "a snapshot of node %u: %s", process->node, end->outcome.text);
    join_sim.n_taken += code == CONTROL_OK;
}

/* It does each step of a call once, and in order. */
static void do_call(JoinProcess *process, const ControlGo *go)
{
    const ControlStep step = (ControlStep)go->step;
    const bool is_move = process->has_program && process->n_calls % 3 == 0;

    join_assert(process->has_program ? process->is_waiting && go->call == process->n_calls
                                     : process->has_tables && (strcmp(go->told, TOLD) == 0 ||
                                                               strcmp(go->told, MOVE) == 0),
                "GO out of turn");
    join_assert(!is_move || step == CONTROL_STEP_PREPARE || step > process->move_step,
                "node %u does step %u of a move after step %u", process->node, step,
                process->move_step);
    process->move_step = step;
    say(process, (Control){ .kind = CONTROL_READY, .ready = { .call = go->call } });
}

/* A loss may take a move back, and nothing else fails. */
static void end_call(JoinProcess *process, const ControlOutcome *outcome)
{
    const bool is_move = process->n_calls % 3 == 0;

    join_assert(outcome->code == CONTROL_OK ||
                    (is_move && outcome->code == CONTROL_CODE(RUBATO_ERROR_NODE_LOST)),
                "call %u fails: %s", (unsigned)process->n_calls, outcome->text);
    join_sim.n_moved += is_move && outcome->code == CONTROL_OK;
    process->is_waiting = false;
    process->move_step = CONTROL_STEP_PREPARE;
}

static void hear(JoinProcess *process, const Control *control)
{
    switch (control->kind) {
    case CONTROL_RECOVER:
        do_step(process, &control->recover);
        break;
    case CONTROL_GO:
        do_call(process, &control->go);
        break;
    case CONTROL_COMMIT:
        if (process->has_program || !process->catches_up)
            end_call(process, &control->commit.outcome);
        break;
    case CONTROL_PAST:
        join_assert(process->catches_up && !process->has_program && process->is_waiting &&
                        control->past.call == process->n_calls,
                    "call %u of node %u is past", (unsigned)process->n_calls, process->node);
        end_call(process, &control->past.outcome);
        break;
    case CONTROL_CAUGHT_UP:
        if (control->caught_up.number != process->node)
            break;
        join_assert(process->catches_up && process->is_waiting, "nobody catches up");
        process->has_program = true;
        join_sim.n_caught_up++;
        break;
    case CONTROL_SNAPSHOT_STEP:
        do_snapshot_step(process, &control->snapshot);
        break;
    case CONTROL_SNAPSHOT_END:
        end_snapshot(process, &control->snapshot);
        break;
    case CONTROL_LOST:
        join_assert(!process->has_program && control->lost.number == process->node, "%s",
                    control->lost.text);
        process->is_alive = false;
        break;
    case CONTROL_LEFT:
        process->is_free = true;
        break;
    case CONTROL_BEAT:
        if (join_chance(50)) /* or it is said again in vain */
            unheard_drop(&process->unheard, control->beat.n_taken);
        break;
    default:
        break;
    }
}

/* Whether every part has all copies that it can have, and nothing is under way. */
static bool is_restored(void)
{
    uint32_t n_live = 0;

    if (join_sim.is_dead)
        return false;
    for (uint32_t i = join_sim.is_alone; i < join_sim.n_nodes; i++)
        n_live += !join_sim.scheduler->nodes[i].lost;
    for (uint32_t part = 0; part < join_sim.n_parts; part++) {
        uint32_t n = 0;

        for (uint32_t i = 0; i < join_sim.n_processes; i++)
            n += join_sim.processes[i].is_alive &&
                 join_sim.processes[i].parts[part] >= JOIN_HOLDING_COPY;
        if (n < MIN(2, n_live))
            return false;
    }
    return !join_sim.scheduler->recovers;
}

/* No process joins a run that nodes have left: nor does the scheduler's node, which would plan
 * further replicas. */
static bool is_ending(void)
{
    return !join_sim.is_dead && join_sim.is_alone && join_sim.scheduler->nodes[0].left;
}

static void propose(JoinProcess *process)
{
    static const ControlCall whats[] = { CONTROL_CALL_MOVE, CONTROL_CALL_BARRIER,
                                         CONTROL_CALL_CREATE };
    const ControlCall what = whats[++process->n_calls % G_N_ELEMENTS(whats)];

    process->is_waiting = true;
    say(process, (Control){ .kind = CONTROL_PROPOSE,
                            .propose = { .call = process->n_calls,
                                         .what = what,
                                         .name = "table a",
                                         .told = what == CONTROL_CALL_MOVE ? MOVE : TOLD,
                                         .digest = "",
                                         .arguments = "" } });
}

static void ask_to_join(const JoinProcess *process)
{
    const Control join = { .kind = CONTROL_JOIN,
                           .hello = { .node_id = process->node,
                                      .number = process->node,
                                      .incarnation = process->incarnation,
                                      .digest = "file",
                                      .endpoints = "somewhere",
                                      .description = "simulated" } };

    if (!join_chance(20) && !join_sim.is_dead)
        scheduler_greet(join_sim.scheduler, join_sim.now_ms, &join, 1,
                        (uint64_t)(process - join_sim.processes));
}

static void look_for_scheduler(const JoinProcess *process)
{
    const Control resume = { .kind = CONTROL_RESUME,
                             .resume = { .node_id = process->node,
                                         .incarnation = process->incarnation,
                                         .run_id = scheduler_run_id(join_sim.scheduler),
                                         .scheduler = process->scheduler } };
    SchedulerLink link;

    scheduler_greet(join_sim.scheduler, join_sim.now_ms, &resume, 1,
                    (uint64_t)(process - join_sim.processes));
    if (scheduler_opens_link(join_sim.scheduler, &resume, &link))
        join_assert(link.node == process->node && link.incarnation == process->incarnation,
                    "a link to another process");
}

void join_process_loses(JoinProcess *process)
{
    for (uint32_t n = join_draw(g_queue_get_length(&process->in) + 1); n > 0; n--)
        control_free(g_queue_pop_tail(&process->in));
}

void join_process_beats(JoinProcess *process)
{
    if (process->is_alive && process->is_in && process->node != 0)
        say(process, (Control){ .kind = CONTROL_BEAT, .beat = { process->n_heard } });
}

static bool may_propose(const JoinProcess *process)
{
    return (process->has_program || (process->catches_up && process->is_placed)) &&
           !process->is_waiting && process->n_calls < JOIN_CALLS;
}

void join_process_steps(JoinProcess *process)
{
    if (!process->is_alive || process->is_free)
        return;
    if (!process->is_in) {
        ask_to_join(process);
    } else if (!g_queue_is_empty(&process->in) && join_chance(70)) {
        Control *const control = g_queue_pop_head(&process->in);

        process->n_heard += control_message_counts(control->kind);
        hear(process, control);
        control_free(control);
    } else if (process->node != 0 && process->scheduler != join_sim.incarnation &&
               !join_sim.is_dead && join_chance(50)) {
        look_for_scheduler(process);
    } else if (may_propose(process)) {
        if (process->catches_up || join_chance(4)) /* which leaves calls for those that catch up */
            propose(process);
    } else if (process->has_program && !process->has_left && process->n_asked < 4 &&
               join_sim.n_asked < JOIN_MOST_SNAPSHOTS && join_chance(10)) {
        ask_for_snapshot(process);
    } else if (process->has_program && !process->is_waiting && !process->has_left &&
               process->n_answered == process->n_asked && join_sim.n_losses == 0 &&
               (is_restored() || is_ending())) {
        process->has_left = true;
        say(process, (Control){ .kind = CONTROL_LEAVE });
    }
}

/* What a process has said join_arrives, unless the link is another one's. */
void join_arrives(JoinProcess *process)
{
    Control *const control = g_queue_pop_head(&process->out);

    if (control == NULL)
        return;
    if (!join_sim.is_dead &&
        join_sim.linked[process->node] == (uint32_t)(process - join_sim.processes) &&
        (process->node == 0 || process->scheduler == join_sim.incarnation))
        join_assert(
            scheduler_receive(join_sim.scheduler, join_sim.now_ms, process->node, control) ||
                control->kind == CONTROL_RECOVERED,
            "%s of node %u makes no sense", control_kind_name(control->kind), process->node);
    control_free(control);
}

/* ---- its life ---- */

uint32_t join_process_new(uint32_t node, bool has_program)
{
    const uint32_t number = join_sim.n_processes++;

    join_assert(number < JOIN_MOST_PROCESSES, "too many processes");
    join_sim.processes[number] =
        (JoinProcess){ .node = node,
                       .incarnation = number + 1,
                       .has_program = has_program,
                       .is_alive = true,
                       .is_in = has_program,
                       .catches_up = !has_program && node > 0 && join_chance(50),
                       .has_tables = has_program,
                       .scheduler = has_program ? join_sim.incarnation : 0 };
    g_queue_init(&join_sim.processes[number].in);
    g_queue_init(&join_sim.processes[number].out);
    unheard_init(&join_sim.processes[number].unheard, sends_out, &join_sim.processes[number]);
    join_sim.newest[node] = number;
    return number;
}

void join_process_clear(JoinProcess *process)
{
    g_queue_clear_full(&process->in, control_free);
    g_queue_clear_full(&process->out, control_free);
    unheard_clear(&process->unheard);
}

const SchedulerOutput join_output = { sends, greets };
