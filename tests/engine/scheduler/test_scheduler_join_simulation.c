/* Runs in which nodes are lost and other processes take their places, at any time and again and
 * again.
 *
 * Each node has one server. One table has some parts, each with one replica. Messages between a
 * node and the scheduler are delayed and keep their order; greetings get lost. A node is lost if
 * its parts have another whole copy, so no run may end by a loss. Each run asserts: a process does
 * each step once and in order; only a newcomer makes tables, and does so before anything else; who
 * becomes a primary has the part; bytes are counted from numbers that nobody had before; and in the
 * end each part has its replica again, all programs have made all their calls, and all that live
 * may leave.
 *
 * In every second run the scheduler is alone on its node. Its process is killed at any time, also
 * between two messages that follow from the same event, and another one goes on from its journal.
 * Then the same holds: so no node does a step twice, or misses one.
 *
 * A failure prints its seed: SEED=n runs that one alone. */
#include <stdio.h>
#include <stdlib.h>

#include "engine/control/control_messages.h"
#include "engine/control/place_text.h"
#include "engine/control/unheard.h"
#include "engine/scheduler/scheduler_state.h"
#include "tests/support/runner.h"

enum {
    SEEDS_PER_CASE = 100, /* a fifth of them where everything is slow */
    CASES = 10,
    MOST_NODES = 5,
    MOST_PARTS = 4,
    MOST_PROCESSES = 40,
    MOST_COPIES = 256,
    MOST_LOSSES = 6,
    MOST_RESTARTS = 4,
    CALLS = 8,
    MOST_STEPS = 200000,
    HEARTBEAT_MS = 500,
    TIMEOUT_MS = 3000,
};

#define TABLES "the tables"
#define TOLD "table a as it is"

typedef enum { HOLDING_NONE, HOLDING_ROOM, HOLDING_COPY, HOLDING_PRIMARY } Holding;

typedef struct {
    uint32_t node;
    uint64_t incarnation;
    bool has_program, is_alive, is_in, has_tables, has_left, is_free;
    uint32_t map, step;           /* of the last step that it has done */
    bool counts_lost[MOST_NODES]; /* by node; its links to them are left in a CLOSE */
    Holding parts[MOST_PARTS];
    uint32_t room_of[MOST_PARTS]; /* HOLDING_ROOM: the map by which it has */
    uint64_t n_calls;             /* that it has proposed */
    bool is_waiting;              /* for the end of the last one */
    GQueue in;                    /* of Control: from the scheduler */
    GQueue out;                   /* to it */
    uint64_t scheduler;           /* the incarnation of its process to which the link leads */
    uint64_t n_heard;             /* messages of it that count */
    Unheard unheard;
} Process;

typedef struct {
    uint32_t from, to; /* processes */
    uint32_t part, map;
} Copy;

static struct {
    uint64_t seed;
    GRand *rand;
    Scheduler *scheduler;
    int64_t now_ms, beat_ms;
    uint32_t n_nodes, n_parts, n_processes, n_losses;
    Process processes[MOST_PROCESSES];
    uint32_t linked[MOST_NODES]; /* the process to which the scheduler's node has a link */
    uint32_t newest[MOST_NODES]; /* the last process of the node */
    Copy copies[MOST_COPIES];
    unsigned n_copies;
    uint32_t n_restarts;   /* of the scheduler, that are left */
    uint32_t n_resumed;    /* nodes that have come back */
    bool is_alone;         /* the scheduler on its node */
    bool is_dead;          /* its process was killed, and no other has begun */
    uint64_t incarnation;  /* of its process */
    GPtrArray *journal;    /* of GBytes */
    uint32_t left_to_send; /* before it is killed */
    uint64_t counted_from; /* of the last ADMIT, */
    uint32_t admit_map;    /* and its map */
} sim;

#define sim_assert(condition, ...)                                                \
    do {                                                                          \
        if (!(condition)) {                                                       \
            fprintf(stderr, "SEED=%" G_GUINT64_FORMAT ": ", sim.seed);            \
            fprintf(stderr, __VA_ARGS__);                                         \
            fputc('\n', stderr);                                                  \
            ck_abort_msg("seed %" G_GUINT64_FORMAT ": %s", sim.seed, #condition); \
        }                                                                         \
    } while (0)

static uint32_t draw(uint32_t n)
{
    return (uint32_t)g_rand_int_range(sim.rand, 0, (gint32)n);
}

static bool chance(unsigned percent)
{
    return draw(100) < percent;
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
    Process *const to = &sim.processes[sim.linked[node]];

    (void)user;
    if (sim.left_to_send == 0)
        return; /* it has been killed */
    sim.left_to_send -= sim.left_to_send < UINT32_MAX;
    sim_assert(node == 0 || !to->is_in || !to->is_alive || to->scheduler == sim.incarnation,
               "a %s to node %u, which has not come back", control_kind_name(control->kind), node);
    if (to->is_alive)
        enqueue(&to->in, control);
}

static void enters(Process *process, const ControlWelcome *admitted)
{
    sim_assert(admitted->incarnations[process->node] == process->incarnation, "a false admission");
    for (uint32_t i = 0; i < sim.n_nodes; i++)
        sim_assert(i == process->node || admitted->endpoints[i][0] == '\0' ||
                       sim.processes[sim.linked[i]].incarnation == admitted->incarnations[i],
                   "node %u is told as a process that it is not", i);
    for (uint32_t i = 0; i < sim.n_nodes; i++)
        process->counts_lost[i] = admitted->endpoints[i][0] == '\0';
    process->is_in = true;
    process->scheduler = sim.incarnation;
}

/* Another process goes on as the scheduler. */
static void comes_back(Process *process, const ControlResumed *resumed)
{
    if (process->scheduler == resumed->scheduler)
        return;
    if (resumed->outcome.code != CONTROL_OK) {
        sim_assert(!process->has_program, "%s", resumed->outcome.text);
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
    sim.n_resumed++;
}

static void greets(void *user, uint64_t asker, const Control *control)
{
    Process *const process = &sim.processes[asker];

    (void)user;
    if (chance(20) || !process->is_alive || sim.left_to_send == 0)
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
    Process *const process = user;
    Control *const control = g_new0(Control, 1);

    ck_assert(control_decode(body->data, body->len, control, NULL));
    g_queue_push_tail(&process->out, control);
}

static void say(Process *process, Control control)
{
    if (process->node == 0)
        enqueue(&process->out, &control);
    else
        unheard_say(&process->unheard, &control);
}

/* ---- what a process does ---- */

static void list_parts(const Process *process, GString *lines)
{
    for (uint32_t part = 0; part < sim.n_parts; part++) {
        PlaceFound found = { .table = 0, .part = part, .server = process->node };

        if (process->node == 0) {
            found.role = PLACE_KNOWN;
            place_text_write_found(lines, &found);
        }
        found.role = process->parts[part] == HOLDING_PRIMARY ? PLACE_PRIMARY : PLACE_REPLICA;
        if (process->parts[part] >= HOLDING_COPY)
            place_text_write_found(lines, &found);
    }
}

static void take_places(Process *process, const char *lines)
{
    PlaceSet set;

    while (place_text_read_set(&lines, &set)) {
        Holding *const own = &process->parts[set.part];
        Holding now = HOLDING_NONE;

        for (uint32_t i = 0; i < set.n; i++)
            if (set.servers[i] == process->node)
                now = i == 0 ? HOLDING_PRIMARY : HOLDING_COPY;
        sim_assert(now == HOLDING_NONE || *own >= HOLDING_COPY,
                   "node %u is to have part %u, and has not", process->node, set.part);
        *own = now;
    }
}

/* The scheduler's node knows who lives, as it is told. */
static void plan_copies(const char *lines, GString *plan)
{
    PlaceSet set;

    while (place_text_read_set(&lines, &set)) {
        for (uint32_t node = sim.is_alone; node < sim.n_nodes && set.n < 2; node++)
            if (node != set.servers[0] && !sim.scheduler->nodes[node].lost)
                set.servers[set.n++] = node;
        if (set.n == 2)
            place_text_write_set(plan, &set);
    }
}

static void expect_copies(Process *process, const ControlRecover *recover)
{
    const char *lines = recover->lines;
    PlaceSet set;

    while (place_text_read_set(&lines, &set))
        for (uint32_t i = 1; i < set.n; i++)
            if (set.servers[i] == process->node && process->parts[set.part] == HOLDING_NONE) {
                process->parts[set.part] = HOLDING_ROOM;
                process->room_of[set.part] = recover->map;
            }
}

static void begin_copies(const Process *process, const ControlRecover *recover)
{
    const char *lines = recover->lines;
    PlaceSet set;

    while (place_text_read_set(&lines, &set))
        if (set.servers[0] == process->node) {
            sim_assert(sim.n_copies < MOST_COPIES, "too many copies");
            sim.copies[sim.n_copies++] = (Copy){ .from = (uint32_t)(process - sim.processes),
                                                 .to = sim.linked[set.servers[1]],
                                                 .part = set.part,
                                                 .map = recover->map };
        }
}

/* One of them is whole, if both processes live and nothing has come between. */
static void end_a_copy(void)
{
    if (sim.n_copies == 0)
        return;
    Copy *const one = &sim.copies[draw(sim.n_copies)];
    Process *const to = &sim.processes[one->to];

    if (sim.processes[one->from].is_alive && to->is_alive && to->parts[one->part] == HOLDING_ROOM &&
        to->room_of[one->part] == one->map)
        to->parts[one->part] = HOLDING_COPY;
    *one = sim.copies[--sim.n_copies];
}

static void admits(const Process *process, const ControlRecover *recover)
{
    sim_assert(recover->cause == CONTROL_CAUSE_JOIN && recover->node != process->node,
               "a node is to admit itself");
    sim_assert(recover->map == sim.admit_map || recover->counted_from > sim.counted_from ||
                   recover->node == 0, /* whose links are open already */
               "bytes are counted from a number that somebody had");
    sim.counted_from = recover->counted_from;
    sim.admit_map = recover->map;
    if (process->node == 0) /* from here on the scheduler hears this process, and no other */
        sim.linked[recover->node] = (uint32_t)recover->incarnation - 1;
}

/* In a CLOSE. A process that lives may have the place of a node that others count as lost. */
static void leave_lost(Process *process, const ControlRecover *recover)
{
    process->counts_lost[recover->node] = recover->cause == CONTROL_CAUSE_LOSS;
    for (uint32_t i = 0; i < sim.n_nodes && recover->cause == CONTROL_CAUSE_LOSS && !sim.is_dead;
         i++)
        sim_assert(!process->counts_lost[i] || sim.scheduler->nodes[i].lost,
                   "node %u leaves its link to node %u, which is in the run", process->node, i);
}

static void do_step(Process *process, const ControlRecover *recover)
{
    g_autoptr(GString) lines = g_string_new(NULL);

    sim_assert(recover->map > process->map ||
                   (recover->map == process->map && recover->step > process->step),
               "step %u of map %u after step %u of map %u", recover->step, recover->map,
               process->step, process->map);
    process->map = recover->map;
    process->step = recover->step;
    sim_assert((recover->step == CONTROL_RECOVER_TABLES) != process->has_tables ||
                   recover->step == CONTROL_RECOVER_ADMIT,
               "node %u does step %u", process->node, recover->step);
    switch ((ControlRecoverStep)recover->step) {
    case CONTROL_RECOVER_ADMIT:
        sim_assert(process->has_tables, "a newcomer is to admit another one");
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
    case CONTROL_RECOVER_PROMOTE:
        take_places(process, recover->lines);
        break;
    case CONTROL_RECOVER_OPEN:
        if (process->node == 0)
            plan_copies(recover->lines, lines);
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

static void hear(Process *process, const Control *control)
{
    switch (control->kind) {
    case CONTROL_RECOVER:
        do_step(process, &control->recover);
        break;
    case CONTROL_GO:
        sim_assert(process->has_program
                       ? process->is_waiting && control->go.call == process->n_calls
                       : process->has_tables && strcmp(control->go.told, TOLD) == 0,
                   "GO out of turn");
        say(process, (Control){ .kind = CONTROL_READY, .ready = { .call = control->go.call } });
        break;
    case CONTROL_COMMIT:
        sim_assert(control->commit.outcome.code == CONTROL_OK, "call %u fails: %s",
                   (unsigned)process->n_calls, control->commit.outcome.text);
        process->is_waiting = false;
        break;
    case CONTROL_LOST:
        sim_assert(!process->has_program && control->lost.number == process->node, "%s",
                   control->lost.text);
        process->is_alive = false;
        break;
    case CONTROL_LEFT:
        process->is_free = true;
        break;
    case CONTROL_BEAT:
        if (chance(50)) /* or it is said again in vain */
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

    if (sim.is_dead)
        return false;
    for (uint32_t i = sim.is_alone; i < sim.n_nodes; i++)
        n_live += !sim.scheduler->nodes[i].lost;
    for (uint32_t part = 0; part < sim.n_parts; part++) {
        uint32_t n = 0;

        for (uint32_t i = 0; i < sim.n_processes; i++)
            n += sim.processes[i].is_alive && sim.processes[i].parts[part] >= HOLDING_COPY;
        if (n < MIN(2, n_live))
            return false;
    }
    return !sim.scheduler->recovers;
}

/* No process joins a run that nodes have left: nor does the scheduler's node, which would plan
 * further replicas. */
static bool is_ending(void)
{
    return !sim.is_dead && sim.is_alone && sim.scheduler->nodes[0].left;
}

static void propose(Process *process)
{
    process->is_waiting = true;
    process->n_calls++;
    say(process, (Control){ .kind = CONTROL_PROPOSE,
                            .propose = { .call = process->n_calls,
                                         .what = process->n_calls % 2 == 0 ? CONTROL_CALL_CREATE
                                                                           : CONTROL_CALL_BARRIER,
                                         .name = "table a",
                                         .told = TOLD,
                                         .digest = "",
                                         .arguments = "" } });
}

static void ask_to_join(const Process *process)
{
    const Control join = { .kind = CONTROL_JOIN,
                           .hello = { .node_id = process->node,
                                      .number = process->node,
                                      .incarnation = process->incarnation,
                                      .digest = "file",
                                      .endpoints = "somewhere",
                                      .description = "simulated" } };

    if (!chance(20) && !sim.is_dead)
        scheduler_greet(sim.scheduler, sim.now_ms, &join, 1, (uint64_t)(process - sim.processes));
}

static void look_for_scheduler(const Process *process)
{
    const Control resume = { .kind = CONTROL_RESUME,
                             .resume = { .node_id = process->node,
                                         .incarnation = process->incarnation,
                                         .run_id = scheduler_run_id(sim.scheduler),
                                         .scheduler = process->scheduler,
                                         .endpoints = "somewhere" } };
    SchedulerLink link;

    scheduler_greet(sim.scheduler, sim.now_ms, &resume, 1, (uint64_t)(process - sim.processes));
    if (scheduler_opens_link(sim.scheduler, &resume, &link))
        sim_assert(link.node == process->node && link.incarnation == process->incarnation,
                   "a link to another process");
}

static void process_steps(Process *process)
{
    if (!process->is_alive || process->is_free)
        return;
    if (!process->is_in) {
        ask_to_join(process);
    } else if (!g_queue_is_empty(&process->in) && chance(70)) {
        Control *const control = g_queue_pop_head(&process->in);

        process->n_heard += control_message_counts(control->kind);
        hear(process, control);
        control_free(control);
    } else if (process->node != 0 && process->scheduler != sim.incarnation && !sim.is_dead &&
               chance(50)) {
        look_for_scheduler(process);
    } else if (process->has_program && !process->is_waiting && process->n_calls < CALLS) {
        propose(process);
    } else if (process->has_program && !process->is_waiting && !process->has_left &&
               sim.n_losses == 0 && (is_restored() || is_ending())) {
        process->has_left = true;
        say(process, (Control){ .kind = CONTROL_LEAVE });
    }
}

/* What a process has said arrives, unless the link is another one's. */
static void arrives(Process *process)
{
    Control *const control = g_queue_pop_head(&process->out);

    if (control == NULL)
        return;
    if (!sim.is_dead && sim.linked[process->node] == (uint32_t)(process - sim.processes) &&
        (process->node == 0 || process->scheduler == sim.incarnation))
        sim_assert(scheduler_receive(sim.scheduler, sim.now_ms, process->node, control) ||
                       control->kind == CONTROL_RECOVERED,
                   "%s of node %u makes no sense", control_kind_name(control->kind), process->node);
    control_free(control);
}

/* ---- what becomes of processes ---- */

static uint32_t process_new(uint32_t node, bool has_program)
{
    const uint32_t number = sim.n_processes++;

    sim_assert(number < MOST_PROCESSES, "too many processes");
    sim.processes[number] = (Process){ .node = node,
                                       .incarnation = number + 1,
                                       .has_program = has_program,
                                       .is_alive = true,
                                       .is_in = has_program,
                                       .has_tables = has_program,
                                       .scheduler = has_program ? sim.incarnation : 0 };
    g_queue_init(&sim.processes[number].in);
    g_queue_init(&sim.processes[number].out);
    unheard_init(&sim.processes[number].unheard, sends_out, &sim.processes[number]);
    sim.newest[node] = number;
    return number;
}

/* Whether the scheduler waits for a newcomer to do so. */
static bool is_making_tables(void)
{
    bool is_making = false;

    for (uint32_t i = 0; i < sim.n_nodes; i++)
        is_making |= !sim.scheduler->nodes[i].lost && !sim.processes[sim.linked[i]].has_tables;
    return is_making && sim.scheduler->map_number == sim.admit_map;
}

/* Whether no part is lost with it. While parts are told and change hands, only a node without any
 * is safe to lose. */
static bool may_be_lost(const Process *process)
{
    const Scheduler *const scheduler = sim.scheduler;
    const bool is_still =
        !sim.is_dead && (!scheduler->recovers || scheduler->admission.opens || is_making_tables());

    for (uint32_t part = 0; part < sim.n_parts; part++) {
        bool has_other = false;

        if (process->parts[part] == HOLDING_NONE)
            continue;
        for (uint32_t i = 0; i < sim.n_processes; i++)
            has_other |= &sim.processes[i] != process && sim.processes[i].is_alive &&
                         sim.processes[i].parts[part] >= HOLDING_COPY;
        if (!has_other || !is_still)
            return false;
    }
    return true;
}

static void lose_one(void)
{
    const uint32_t node = 1 + draw(sim.n_nodes - 1);
    Process *const process = &sim.processes[sim.newest[node]];

    if (sim.n_losses == 0 || !process->is_alive || process->has_left || !may_be_lost(process))
        return;
    process->is_alive = false;
    sim.n_losses--;
    if (process->is_in && chance(70) && !sim.is_dead)
        scheduler_node_gone(sim.scheduler, sim.now_ms, node, "its process has ended");
}

static void start_one(void)
{
    const uint32_t node = 1 + draw(sim.n_nodes - 1);

    if (!sim.is_dead && !sim.processes[sim.newest[node]].is_alive &&
        sim.scheduler->nodes[node].lost && sim.n_processes < MOST_PROCESSES)
        process_new(node, /* has_program= */ false);
}

/* ---- the scheduler's process ---- */

static bool journal_add(void *user, const void *record, size_t size)
{
    (void)user;
    g_ptr_array_add(sim.journal, g_bytes_new(record, size));
    return true;
}

static bool journal_read(void *user, SchedulerRecordFunc take, void *taker, GError **error)
{
    (void)user;
    (void)error;
    for (guint i = 0; i < sim.journal->len; i++) {
        gsize size;
        const void *const record = g_bytes_get_data(sim.journal->pdata[i], &size);

        sim_assert(take(taker, record, size), "record %u makes no sense", i);
    }
    return true;
}

static void start_scheduler(void)
{
    static const SchedulerOutput output = { sends, greets };
    static const SchedulerJournal journal = { journal_add, journal_read, NULL };
    uint32_t ids[MOST_NODES];
    const SchedulerConfig config = { .n_nodes = sim.n_nodes,
                                     .node_ids = ids,
                                     .digest = "file",
                                     .wire_version = 1,
                                     .heartbeat_ms = HEARTBEAT_MS,
                                     .timeout_ms = TIMEOUT_MS,
                                     .admits = true,
                                     .journal = sim.is_alone ? &journal : NULL };

    for (uint32_t i = 0; i < sim.n_nodes; i++)
        ids[i] = i;
    sim.scheduler = scheduler_new(&config, &output, NULL);
    sim.scheduler->goes_on = true;
    sim.left_to_send = UINT32_MAX;
}

/* It may be in the middle of what follows from an event: only some of it has been sent. */
static void kill_scheduler(void)
{
    Process *const own = &sim.processes[sim.linked[0]];

    if (sim.n_restarts == 0 || sim.is_dead || sim.n_processes == MOST_PROCESSES)
        return;
    if (chance(50)) {
        sim.left_to_send = draw(2 * sim.n_nodes);
        arrives(&sim.processes[draw(sim.n_processes)]);
    }
    sim.left_to_send = UINT32_MAX;
    if (scheduler_has_ended(sim.scheduler)) { /* those that have not heard so end at the timeout */
        for (uint32_t i = 0; i < sim.n_processes; i++)
            sim.processes[i].is_free |= sim.processes[i].is_in;
        return;
    }
    scheduler_free(g_steal_pointer(&sim.scheduler));
    sim.is_dead = true;
    sim.n_restarts--;
    own->is_alive = false;
}

static void start_scheduler_again(void)
{
    Process *own;

    if (!sim.is_dead)
        return;
    start_scheduler();
    own = &sim.processes[process_new(0, /* has_program= */ false)];
    sim.incarnation = own->incarnation;
    sim.linked[0] = sim.newest[0];
    own->is_in = true;
    sim.is_dead = false;
    sim_assert(scheduler_resume(sim.scheduler, sim.now_ms,
                                &(SchedulerProcess){ own->incarnation, "here", "simulated" }, NULL),
               "no process can go on as the scheduler");
    for (uint32_t i = 0; i < sim.n_nodes; i++)
        own->counts_lost[i] = sim.scheduler->nodes[i].lost;
}

static void pass_time(void)
{
    sim.now_ms += draw(60);
    if (sim.is_dead)
        return;
    if (sim.now_ms - sim.beat_ms >= HEARTBEAT_MS) {
        sim.beat_ms = sim.now_ms;
        for (uint32_t i = 0; i < sim.n_nodes; i++) {
            const Process *const process = &sim.processes[sim.linked[i]];

            if (process->is_alive)
                scheduler_heard(sim.scheduler, i, sim.now_ms);
        }
    }
    scheduler_tick(sim.scheduler, sim.now_ms);
}

static bool is_over(void)
{
    for (uint32_t i = 0; i < sim.n_processes; i++)
        if (sim.processes[i].is_alive && !sim.processes[i].is_free)
            return false;
    return true;
}

static void begin_run(void)
{
    sim.incarnation = 1; /* of process 0 */
    start_scheduler();
    for (uint32_t i = 0; i < sim.n_nodes; i++) {
        sim.linked[i] = process_new(i, /* has_program= */ true);
        const Control hello = { .kind = CONTROL_HELLO,
                                .hello = { .node_id = i,
                                           .number = i,
                                           .incarnation = sim.processes[i].incarnation,
                                           .digest = "file",
                                           .endpoints = "somewhere",
                                           .description = "simulated" } };
        scheduler_greet(sim.scheduler, sim.now_ms, &hello, 1, i);
    }
    for (uint32_t part = 0; part < sim.n_parts; part++) {
        const uint32_t n = sim.n_nodes - sim.is_alone;

        sim.processes[part % n + sim.is_alone].parts[part] = HOLDING_PRIMARY;
        sim.processes[(part + 1) % n + sim.is_alone].parts[part] = HOLDING_COPY;
    }
}

static void end_run(void)
{
    sim_assert(scheduler_has_ended(sim.scheduler), "the scheduler goes on");
    for (uint32_t i = 0; i < sim.n_processes; i++) {
        Process *const process = &sim.processes[i];

        sim_assert(!process->is_alive || !process->has_program || process->n_calls == CALLS,
                   "node %u has made %u calls", process->node, (unsigned)process->n_calls);
        g_queue_clear_full(&process->in, control_free);
        g_queue_clear_full(&process->out, control_free);
        unheard_clear(&process->unheard);
    }
    g_ptr_array_unref(sim.journal);
    scheduler_free(sim.scheduler);
    g_rand_free(sim.rand);
}

/* Returns how many processes have taken the place of others, and had the tables. */
static unsigned simulate(uint64_t seed)
{
    unsigned n_joined = 0;

    memset(&sim, 0, sizeof sim);
    sim.seed = seed;
    sim.rand = g_rand_new_with_seed((guint32)seed);
    sim.n_nodes = 3 + draw(MOST_NODES - 2);
    sim.n_parts = 1 + draw(MOST_PARTS);
    sim.n_losses = draw(MOST_LOSSES + 1);
    sim.is_alone = seed % 2 == 1;
    sim.n_restarts = sim.is_alone ? draw(MOST_RESTARTS + 1) : 0;
    sim.journal = g_ptr_array_new_with_free_func((GDestroyNotify)g_bytes_unref);
    sim.now_ms = 1000;
    begin_run();
    for (unsigned step = 0; !is_over(); step++) {
        const uint32_t action = draw(100);
        Process *const process = &sim.processes[draw(sim.n_processes)];

        if (step > MOST_STEPS) {
            g_autofree char *waiting =
                sim.is_dead ? NULL : scheduler_waiting(sim.scheduler, sim.now_ms);
            sim_assert(false, "the run hangs: %s", waiting != NULL ? waiting : "nobody waits");
        }
        if (action < 50)
            process_steps(process);
        else if (action < 85)
            arrives(process);
        else if (action < 90)
            end_a_copy();
        else if (action < 91)
            lose_one();
        else if (action < 92)
            start_one();
        else if (action < 93 && sim.is_dead)
            start_scheduler_again();
        else if (action < 93 && chance(20))
            kill_scheduler();
        else
            pass_time();
    }
    for (uint32_t i = sim.n_nodes; i < sim.n_processes; i++)
        n_joined += sim.processes[i].has_tables;
    end_run();
    return n_joined;
}

START_TEST(processes_take_the_places_of_lost_nodes_and_replicas_are_restored)
{
    const char *const seed = getenv("SEED");
    unsigned n_joined = 0, n_resumed = 0;

    if (seed != NULL) {
        simulate(strtoull(seed, NULL, 10));
        return;
    }
    for (uint64_t i = 0; i < (is_slow() ? SEEDS_PER_CASE / 5 : SEEDS_PER_CASE); i++) {
        n_joined += simulate((uint64_t)_i * SEEDS_PER_CASE + i);
        n_resumed += sim.n_resumed;
    }
    ck_assert_uint_gt(n_joined, 0);
    ck_assert_uint_gt(n_resumed, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scheduler join simulation");
    TCase *runs = tcase_create("runs");

    tcase_set_timeout(runs, 60);
    tcase_add_loop_test(runs, processes_take_the_places_of_lost_nodes_and_replicas_are_restored, 0,
                        CASES);
    suite_add_tcase(suite, runs);
    return run_suite(suite);
}
