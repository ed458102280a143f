/* Whole runs of the scheduler: n simulated nodes go through programs of collective calls and tasks
 * over channels that delay but do not reorder, while nodes fail, freeze, leave early and interrupt.
 *
 * A seed decides a run. Each run asserts the promises of scheduler.h: the same verdict of a call
 * everywhere, COMMIT only after READY, one TASK_END for each task, no barrier released before all
 * have come, and that everything ends. If no node freezes, leaves early or stops the run, the
 * verdicts are compared with those that the programs must get.
 *
 * A failure prints its seed: SEED=n runs that one alone. */
#include "engine/scheduler/scheduler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/runner.h"

#define MAX_NODES 5
#define MAX_CALLS 12
#define SEEDS_PER_CASE 100 /* a fifth of them where everything is slow */
#define N_CASES 20

#define HEARTBEAT_MS 500
#define TIMEOUT_MS 3000
#define MAX_DELAY_MS 800
#define HELLO_MS 200

/* One call of a node's program. */
typedef struct {
    ControlCall what;
    const char *name;
    const char *arguments;
    bool fails; /* the node's part of it */
    bool waits; /* of a RUN: for its end, before the next call */
} Step;

/* A node's part in a task. */
typedef struct {
    uint32_t epoch;
    uint64_t n_rounds; /* barriers that its workers go through */
    uint64_t round;
    bool has_workers, fails;
    bool running, waiting, retired, failed, cancelled, done, ended;
    uint32_t cause_code;
    char *cause;
} Part;

typedef struct {
    /* the program */
    Step steps[MAX_CALLS];
    unsigned n_steps;

    /* where it is */
    unsigned step;
    bool proposed, at_work, said_ready; /* of steps[step] */
    uint32_t go_id;
    uint32_t go_step;       /* of a MOVE */
    uint32_t awaited_epoch; /* before the next step; 0: none */
    bool joined, left, free_to_go;
    bool frozen; /* receives and sends nothing */
    bool out;    /* has heard that it was lost */
    int64_t last_beat_ms, last_hello_ms;
    GPtrArray *parts;
    char *verdicts[MAX_CALLS + 1]; /* "code text" by op - 1 */
    uint32_t lost_heard;           /* as a mask */
} SimNode;

typedef struct {
    GByteArray *body;
    int64_t sent_ms;
    bool greeting;
} Packet;

typedef struct {
    uint64_t seed;
    GRand *rand;
    uint32_t n_nodes, self;
    int64_t now_ms;
    Scheduler *scheduler;
    SimNode nodes[MAX_NODES];
    GQueue to_node[MAX_NODES], to_scheduler[MAX_NODES];
    bool answers_at_once; /* the scheduler's own node */
    bool disturbed;       /* a node froze, left early or stopped the run: verdicts are not
                           * compared */
    bool interrupted;
    uint32_t frozen_mask;
    int64_t frozen_ms; /* when the first one froze */

    /* What must be the same on all nodes, by op - 1 and by epoch. */
    char *verdicts[MAX_CALLS + 1];
    GHashTable *task_ends;
    uint32_t go_ids[MAX_CALLS + 1];
    uint32_t last_steps[MAX_CALLS + 1]; /* of MOVEs: INSTALL or TAKE_BACK; 0: neither yet */
    uint32_t go_seen;
} Sim;

static Sim *sim; /* the one that runs */

#define sim_assert(condition, ...)                                                 \
    do {                                                                           \
        if (!(condition)) {                                                        \
            fprintf(stderr, "SEED=%" G_GUINT64_FORMAT ": ", sim->seed);            \
            fprintf(stderr, __VA_ARGS__);                                          \
            fputc('\n', stderr);                                                   \
            ck_abort_msg("seed %" G_GUINT64_FORMAT ": %s", sim->seed, #condition); \
        }                                                                          \
    } while (0)

static uint32_t draw(uint32_t n)
{
    return (uint32_t)g_rand_int_range(sim->rand, 0, (gint32)n);
}

static bool chance(unsigned percent)
{
    return draw(100) < percent;
}

static void node_hears(uint32_t number, const Control *control);

/* Channels. */

static void enqueue(GQueue *channel, const Control *control, bool greeting)
{
    Packet *packet = g_new(Packet, 1);
    *packet = (Packet){ control_encode(control), sim->now_ms, greeting };
    g_queue_push_tail(channel, packet);
}

static void packet_free(Packet *packet)
{
    g_byte_array_unref(packet->body);
    g_free(packet);
}

static void say_to_scheduler(uint32_t number, Control control)
{
    enqueue(&sim->to_scheduler[number], &control, control.kind == CONTROL_HELLO);
}

static void scheduler_sends(void *user, uint32_t node, const Control *control)
{
    (void)user;
    if (node == sim->self && sim->answers_at_once)
        node_hears(node, control);
    else
        enqueue(&sim->to_node[node], control, /* greeting= */ false);
}

static void scheduler_greets(void *user, uint64_t asker, const Control *control)
{
    const uint32_t node = (uint32_t)asker;
    (void)user;
    sim_assert(node < sim->n_nodes, "a greeting to asker %u", node);
    if (!chance(20)) /* greetings get lost */
        enqueue(&sim->to_node[node], control, /* greeting= */ true);
}

static void scheduler_hears(uint32_t number, const Control *control, bool greeting)
{
    const bool sensible = greeting
                              ? scheduler_greet(sim->scheduler, sim->now_ms, control, 1, number)
                              : scheduler_receive(sim->scheduler, sim->now_ms, number, control);
    sim_assert(sensible, "%s of node %u made no sense", control_kind_name(control->kind), number);
}

static void pass_on(GQueue *channel, uint32_t number, bool to_node)
{
    Packet *packet = g_queue_pop_head(channel);
    g_auto(Control) control = { 0 };
    const bool decoded = control_decode(packet->body->data, packet->body->len, &control, NULL);

    sim_assert(decoded, "a message that cannot be read");
    if (to_node)
        node_hears(number, &control);
    else
        scheduler_hears(number, &control, packet->greeting);
    packet_free(packet);
}

/* Nodes. */

static Part *find_part(const SimNode *node, uint32_t epoch)
{
    for (guint i = 0; i < node->parts->len; i++) {
        Part *part = node->parts->pdata[i];
        if (part->epoch == epoch)
            return part;
    }
    return NULL;
}

static Part *require_part(uint32_t number, uint32_t epoch, const Control *control)
{
    Part *part = find_part(&sim->nodes[number], epoch);
    sim_assert(part != NULL && part->running && !part->ended,
               "%s to node %u of task %u that does not run there", control_kind_name(control->kind),
               number, epoch);
    return part;
}

static void part_free(Part *part)
{
    g_free(part->cause);
    g_free(part);
}

/* The next step of a MOVE. All nodes take the same ones. */
static void hear_next_go(uint32_t number, const Control *control)
{
    SimNode *node = &sim->nodes[number];
    const uint32_t from = node->go_step, to = control->go.step;
    uint32_t *const seen = &sim->last_steps[node->step];

    sim_assert(node->steps[node->step].what == CONTROL_CALL_MOVE && node->said_ready &&
                   control->go.call == node->step + 1 && control->go.id == node->go_id,
               "GO %" G_GUINT64_FORMAT " to node %u, which is at work", control->go.call, number);
    sim_assert((from == CONTROL_STEP_CLOSE && to == CONTROL_STEP_SEND) ||
                   (from == CONTROL_STEP_SEND && to == CONTROL_STEP_INSTALL) ||
                   (from < CONTROL_STEP_INSTALL && to == CONTROL_STEP_TAKE_BACK) ||
                   (from == CONTROL_STEP_INSTALL && to == CONTROL_STEP_OPEN) ||
                   (from == CONTROL_STEP_TAKE_BACK && to == CONTROL_STEP_REOPEN),
               "step %u after step %u", to, from);
    if (to == CONTROL_STEP_INSTALL || to == CONTROL_STEP_TAKE_BACK) {
        sim_assert(*seen == 0 || *seen == to, "call %u: steps %u and %u", node->step, *seen, to);
        *seen = to;
    }
    node->go_step = to;
    node->said_ready = false;
}

static void hear_go(uint32_t number, const Control *control)
{
    SimNode *node = &sim->nodes[number];

    if (node->at_work) {
        hear_next_go(number, control);
        return;
    }
    sim_assert(node->proposed && !node->at_work && control->go.call == node->step + 1,
               "GO %" G_GUINT64_FORMAT " to node %u out of turn", control->go.call, number);
    sim_assert(control->go.step == 0, "call %u begins with step %u", node->step, control->go.step);
    node->at_work = true;
    node->go_step = 0;
    node->go_id = control->go.id;
    if (!(sim->go_seen & (1u << node->step))) {
        sim->go_seen |= 1u << node->step;
        sim->go_ids[node->step] = control->go.id;
    }
    sim_assert(sim->go_ids[node->step] == control->go.id, "two ids of one call");
    if (node->steps[node->step].what == CONTROL_CALL_RUN) {
        Part *part = g_new0(Part, 1);
        sim_assert(find_part(node, control->go.id) == NULL, "an epoch comes twice");
        part->epoch = control->go.id;
        part->has_workers = chance(75);
        part->n_rounds = part->has_workers ? draw(4) : 0;
        part->fails = part->has_workers && chance(8);
        g_ptr_array_add(node->parts, part);
    }
}

static void hear_commit(uint32_t number, const Control *control)
{
    SimNode *node = &sim->nodes[number];
    const Step *step = &node->steps[node->step];
    g_autofree char *verdict =
        g_strdup_printf("%u %s", control->commit.outcome.code, control->commit.outcome.text);

    sim_assert(node->proposed && control->commit.call == node->step + 1,
               "COMMIT %" G_GUINT64_FORMAT " to node %u out of turn", control->commit.call, number);
    sim_assert(!node->at_work || node->said_ready || node->left,
               "COMMIT to node %u, which is at work", number);
    sim_assert(control->commit.outcome.code != CONTROL_OK || node->at_work ||
                   step->what == CONTROL_CALL_BARRIER,
               "a good COMMIT to node %u without a GO", number);
    if (sim->verdicts[node->step] == NULL)
        sim->verdicts[node->step] = g_strdup(verdict);
    sim_assert(strcmp(sim->verdicts[node->step], verdict) == 0,
               "call %u: '%s' on node %u, '%s' on another", node->step + 1, verdict, number,
               sim->verdicts[node->step]);

    if (step->what == CONTROL_CALL_RUN && node->at_work) {
        Part *part = find_part(node, node->go_id);
        if (control->commit.outcome.code == CONTROL_OK) {
            part->running = true;
            node->awaited_epoch = step->waits ? part->epoch : 0;
            if (!part->has_workers) {
                say_to_scheduler(number, (Control){ .kind = CONTROL_ARRIVE,
                                                    .arrive = { .epoch = part->epoch,
                                                                .round = CONTROL_NO_ROUND } });
                part->retired = true;
            }
        } else {
            g_ptr_array_remove(node->parts, part);
        }
    }
    node->proposed = node->at_work = node->said_ready = false;
    node->step++;
}

static void hear_cancel(uint32_t number, const Control *control)
{
    Part *part = require_part(number, control->cancel.epoch, control);

    sim_assert(!part->cancelled, "a second CANCEL of a task to node %u", number);
    part->cancelled = true;
    part->waiting = false;
    part->cause_code = control->cancel.outcome.code;
    part->cause = g_strdup(control->cancel.outcome.text);
}

static void hear_task_end(uint32_t number, const Control *control)
{
    SimNode *node = &sim->nodes[number];
    Part *part = require_part(number, control->task_end.epoch, control);
    char *verdict =
        g_strdup_printf("%u %s", control->task_end.outcome.code, control->task_end.outcome.text);
    gpointer epoch = GUINT_TO_POINTER(control->task_end.epoch);

    sim_assert(part->done || node->left, "the end of a task to node %u, which is not done", number);
    sim_assert(part->cancelled == (control->task_end.outcome.code != CONTROL_OK),
               "a task ends with '%s' on node %u, but was %scancelled", verdict, number,
               part->cancelled ? "" : "not ");
    sim_assert(!part->cancelled || (part->cause_code == control->task_end.outcome.code &&
                                    strcmp(part->cause, control->task_end.outcome.text) == 0),
               "a task ends with another cause than it was cancelled with: '%s'", verdict);
    const char *known = g_hash_table_lookup(sim->task_ends, epoch);
    sim_assert(known == NULL || strcmp(known, verdict) == 0, "two ends of one task: '%s' and '%s'",
               known, verdict);
    g_hash_table_replace(sim->task_ends, epoch, verdict);
    part->ended = true;
    if (node->awaited_epoch == part->epoch)
        node->awaited_epoch = 0;
}

static void hear_release(uint32_t number, const Control *control)
{
    Part *part = require_part(number, control->release.epoch, control);

    /* After a failure of its own it no longer waits; a release may have been under way. */
    if (part->cancelled || part->failed)
        return;
    sim_assert(part->waiting && control->release.round == part->round,
               "node %u is released from barrier %" G_GUINT64_FORMAT, number,
               control->release.round);
    part->waiting = false;
    part->round++;

    /* No node may be behind: all others have arrived, or never will. */
    for (uint32_t i = 0; i < sim->n_nodes; i++) {
        const Part *other = find_part(&sim->nodes[i], part->epoch);
        if (other == NULL || sim->nodes[i].frozen || other->failed || other->cancelled)
            continue;
        sim_assert(other->retired || other->done || other->round > control->release.round ||
                       (other->round == control->release.round && other->waiting),
                   "node %u leaves barrier %" G_GUINT64_FORMAT " before node %u comes", number,
                   control->release.round, i);
    }
}

static void node_hears(uint32_t number, const Control *control)
{
    SimNode *node = &sim->nodes[number];

    if (node->frozen || node->out)
        return;
    /* A greeting that was repeated may be late. */
    sim_assert(!node->free_to_go || control->kind == CONTROL_WELCOME, "%s to node %u after LEFT",
               control_kind_name(control->kind), number);
    switch (control->kind) {
    case CONTROL_WELCOME:
        sim_assert(control->welcome.n_nodes == sim->n_nodes, "a welcome to another run");
        node->joined = true;
        break;
    case CONTROL_BEAT:
    case CONTROL_WAITING:
        break;
    case CONTROL_GO:
        hear_go(number, control);
        break;
    case CONTROL_COMMIT:
        hear_commit(number, control);
        break;
    case CONTROL_CANCEL:
        hear_cancel(number, control);
        break;
    case CONTROL_TASK_END:
        hear_task_end(number, control);
        break;
    case CONTROL_RELEASE:
        hear_release(number, control);
        break;
    case CONTROL_LOST:
        if (control->lost.number == number) {
            node->out = true;
            break;
        }
        sim_assert(sim->frozen_mask & (1u << control->lost.number), "node %u was lost: %s",
                   control->lost.number, control->lost.text);
        node->lost_heard |= 1u << control->lost.number;
        sim_assert(sim->now_ms - sim->frozen_ms > 0, "lost before it froze");
        break;
    case CONTROL_LEFT:
        sim_assert(node->left, "LEFT to node %u, which has not left", number);
        node->free_to_go = true;
        break;
    default:
        sim_assert(false, "%s to node %u", control_kind_name(control->kind), number);
    }
}

/* A worker of the part takes a step. */
static void part_steps(uint32_t number, Part *part)
{
    const uint32_t epoch = part->epoch;

    if (!part->running || part->done || part->waiting)
        return;
    if (part->fails && !part->failed && !part->cancelled && chance(50)) {
        g_autofree char *text = g_strdup_printf("a worker of node %u failed", number);
        part->failed = true;
        say_to_scheduler(
            number, (Control){ .kind = CONTROL_FAIL,
                               .fail = { .epoch = epoch,
                                         .outcome.code = CONTROL_CODE(RUBATO_ERROR_TASK_FAILED),
                                         .outcome.text = text } });
    } else if (part->cancelled || part->failed || part->round == part->n_rounds) {
        if (!part->retired && chance(50)) {
            say_to_scheduler(number,
                             (Control){ .kind = CONTROL_ARRIVE,
                                        .arrive = { .epoch = epoch, .round = CONTROL_NO_ROUND } });
            part->retired = true;
        }
        say_to_scheduler(number,
                         (Control){ .kind = CONTROL_TASK_DONE, .task_done = { .epoch = epoch } });
        part->done = true;
    } else {
        say_to_scheduler(number, (Control){ .kind = CONTROL_ARRIVE,
                                            .arrive = { .epoch = epoch, .round = part->round } });
        part->waiting = true;
    }
}

static void program_steps(uint32_t number)
{
    SimNode *node = &sim->nodes[number];
    const Step *step = &node->steps[node->step];
    const uint64_t op = node->step + 1;

    if (node->at_work && !node->said_ready) {
        node->said_ready = true;
        if (step->fails && node->go_step < CONTROL_STEP_INSTALL) { /* these cannot fail */
            g_autofree char *text =
                g_strdup_printf("node %u cannot do call %u", number, node->step);
            say_to_scheduler(
                number, (Control){ .kind = CONTROL_READY,
                                   .ready = { .call = op,
                                              .outcome.code = CONTROL_CODE(RUBATO_ERROR_MEMORY),
                                              .outcome.text = text } });
        } else {
            say_to_scheduler(number, (Control){ .kind = CONTROL_READY, .ready = { .call = op } });
        }
    } else if (!node->proposed && node->awaited_epoch == 0 && node->step < node->n_steps) {
        node->proposed = true;
        say_to_scheduler(number, (Control){ .kind = CONTROL_PROPOSE,
                                            .propose = { .call = op,
                                                         .what = step->what,
                                                         .name = step->name,
                                                         .digest = step->arguments,
                                                         .arguments = step->arguments } });
    } else if (node->step == node->n_steps) {
        for (guint i = 0; i < node->parts->len; i++)
            if (!((const Part *)node->parts->pdata[i])->ended)
                return;
        node->left = true;
        say_to_scheduler(number, (Control){ .kind = CONTROL_LEAVE });
    }
}

static void node_steps(uint32_t number)
{
    SimNode *node = &sim->nodes[number];

    if (node->frozen || node->out || node->free_to_go)
        return;
    if (!node->joined) {
        if (sim->now_ms - node->last_hello_ms < HELLO_MS)
            return;
        node->last_hello_ms = sim->now_ms;
        g_autofree char *endpoint = g_strdup_printf("%u", number);
        if (!chance(20))
            say_to_scheduler(number, (Control){ .kind = CONTROL_HELLO,
                                                .hello = { .node_id = number,
                                                           .number = number,
                                                           .incarnation = number + 1,
                                                           .digest = "file",
                                                           .endpoints = endpoint,
                                                           .description = "simulated" } });
        return;
    }
    if (sim->now_ms - node->last_beat_ms >= HEARTBEAT_MS) {
        node->last_beat_ms = sim->now_ms;
        say_to_scheduler(number, (Control){ .kind = CONTROL_BEAT });
    }
    if (node->left)
        return;
    if (node->parts->len > 0 && chance(60))
        part_steps(number, node->parts->pdata[draw(node->parts->len)]);
    else
        program_steps(number);
}

/* Runs. */

static void write_programs(void)
{
    static const char *const TABLES[] = { "table a", "table b" };
    static const char *const TASKS[] = { "task x", "task y" };
    const unsigned n_steps = draw(MAX_CALLS + 1);
    const unsigned deviation = chance(40) ? 5 : 0, failure = chance(40) ? 5 : 0;

    for (unsigned s = 0; s < n_steps; s++) {
        const ControlCall what = chance(55) ? CONTROL_CALL_RUN : (ControlCall)(1 + draw(4));
        Step step = { .what = what, .arguments = "same", .waits = chance(60) };
        step.name = what == CONTROL_CALL_RUN       ? TASKS[draw(2)]
                    : what == CONTROL_CALL_BARRIER ? ""
                                                   : TABLES[draw(2)];
        for (uint32_t i = 0; i < sim->n_nodes; i++) {
            Step *own = &sim->nodes[i].steps[s];
            *own = step;
            own->fails = chance(failure);
            if (chance(deviation))
                own->arguments = "other";
            if (chance(deviation) && what != CONTROL_CALL_BARRIER)
                own->name = "task z";
            if (chance(deviation)) {
                own->what = CONTROL_CALL_BARRIER;
                own->name = "";
            }
        }
    }
    for (uint32_t i = 0; i < sim->n_nodes; i++)
        sim->nodes[i].n_steps = n_steps;
    if (n_steps > 0 && chance(10)) {
        sim->nodes[draw(sim->n_nodes)].n_steps = draw(n_steps);
        sim->disturbed = true;
    }
}

static void freeze(uint32_t number)
{
    if (number == sim->self || sim->nodes[number].frozen || !scheduler_has_begun(sim->scheduler))
        return;
    sim->nodes[number].frozen = true;
    sim->disturbed = true;
    if (sim->frozen_mask == 0)
        sim->frozen_ms = sim->now_ms;
    sim->frozen_mask |= 1u << number;
}

static void disturb(void)
{
    const uint32_t number = draw(sim->n_nodes);
    SimNode *node = &sim->nodes[number];

    if (!node->joined || node->frozen || node->left || node->out)
        return;
    switch (draw(4)) {
    case 0:
        freeze(number);
        break;
    case 1:
        sim->interrupted = true;
        say_to_scheduler(
            number, (Control){ .kind = CONTROL_INTERRUPT, .interrupt = { .text = "interrupted" } });
        break;
    case 2:
        sim->disturbed = true;
        say_to_scheduler(number, (Control){ .kind = CONTROL_STOP, .stop = { .text = "SIGINT" } });
        break;
    default:
        /* Leaves with calls and tasks open. */
        sim->disturbed = true;
        node->left = true;
        node->n_steps = node->step + (node->proposed ? 1 : 0);
        say_to_scheduler(number, (Control){ .kind = CONTROL_LEAVE });
        break;
    }
}

/* Whatever has been under way for too long arrives. */
static void deliver_late(GQueue *channel, uint32_t number, bool to_node)
{
    const Packet *packet;
    while ((packet = g_queue_peek_head(channel)) != NULL &&
           sim->now_ms - packet->sent_ms >= MAX_DELAY_MS)
        pass_on(channel, number, to_node);
}

static void pass_time(void)
{
    sim->now_ms += 1 + draw(100);
    for (uint32_t i = 0; i < sim->n_nodes; i++) {
        deliver_late(&sim->to_node[i], i, /* to_node= */ true);
        deliver_late(&sim->to_scheduler[i], i, /* to_node= */ false);
        if (sim->now_ms - sim->nodes[i].last_beat_ms >= HEARTBEAT_MS)
            node_steps(i);
    }
    scheduler_tick(sim->scheduler, sim->now_ms);
}

static bool is_over(void)
{
    for (uint32_t i = 0; i < sim->n_nodes; i++)
        if (!sim->nodes[i].frozen && !sim->nodes[i].out && !sim->nodes[i].free_to_go)
            return false;
    return true;
}

/* The verdict of a call if no node disturbs the run: it follows from the programs alone. */
static void check_oracle(unsigned op)
{
    const Step *first = &sim->nodes[0].steps[op];
    bool same = true, fails = false;
    const char *const verdict = sim->verdicts[op];

    for (uint32_t i = 0; i < sim->n_nodes; i++) {
        const Step *step = &sim->nodes[i].steps[op];
        same &= step->what == first->what && strcmp(step->name, first->name) == 0 &&
                strcmp(step->arguments, first->arguments) == 0;
        fails |= step->fails;
    }
    sim_assert(verdict != NULL, "call %u has no verdict", op + 1);
    if (!same) {
        sim_assert(atoi(verdict) == (int)CONTROL_CODE(RUBATO_ERROR_MISMATCH), "call %u: '%s'",
                   op + 1, verdict);
        sim_assert(strstr(verdict, " while node ") || strstr(verdict, "different arguments: "),
                   "call %u: '%s'", op + 1, verdict);
    } else if (fails && first->what != CONTROL_CALL_BARRIER) {
        sim_assert(atoi(verdict) == (int)CONTROL_CODE(RUBATO_ERROR_MEMORY), "call %u: '%s'", op + 1,
                   verdict);
    } else {
        sim_assert(strcmp(verdict, "0 ") == 0, "call %u: '%s'", op + 1, verdict);
    }
}

static void check_end_of_run(void)
{
    for (uint32_t i = 0; i < sim->n_nodes; i++) {
        const SimNode *node = &sim->nodes[i];
        if (node->frozen || node->out)
            continue;
        sim_assert(node->step == node->n_steps, "node %u is at step %u of %u", i, node->step,
                   node->n_steps);
        for (guint p = 0; p < node->parts->len; p++)
            sim_assert(((const Part *)node->parts->pdata[p])->ended || sim->disturbed,
                       "a task has not ended on node %u", i);
    }
    for (unsigned op = 0; op < sim->nodes[0].n_steps && !sim->disturbed; op++)
        check_oracle(op);
    sim_assert(scheduler_has_ended(sim->scheduler), "the scheduler goes on");
}

static void run_until_over(void)
{
    const unsigned n_disturbances = chance(35) ? 1 + draw(2) : 0;
    unsigned left = n_disturbances;

    for (unsigned step = 0; !is_over(); step++) {
        if (step > 200000) {
            g_autofree char *waiting = scheduler_waiting(sim->scheduler, sim->now_ms);
            sim_assert(false, "the run hangs: %s", waiting != NULL ? waiting : "nobody waits");
        }
        const uint32_t number = draw(sim->n_nodes);
        const uint32_t action = draw(100);
        if (action < 35) {
            node_steps(number);
        } else if (action < 60) {
            if (!g_queue_is_empty(&sim->to_node[number]))
                pass_on(&sim->to_node[number], number, /* to_node= */ true);
        } else if (action < 85) {
            if (!g_queue_is_empty(&sim->to_scheduler[number]))
                pass_on(&sim->to_scheduler[number], number, /* to_node= */ false);
        } else {
            pass_time();
            if (left > 0 && chance(3)) {
                left--;
                disturb();
            }
        }
        /* Silence is noticed in time, and everyone is told. */
        if (sim->frozen_mask != 0 && sim->now_ms - sim->frozen_ms > 2 * TIMEOUT_MS)
            for (uint32_t i = 0; i < sim->n_nodes; i++)
                sim_assert(sim->nodes[i].frozen || sim->nodes[i].out || sim->nodes[i].free_to_go ||
                               sim->nodes[i].lost_heard != 0,
                           "node %u does not know that one is lost", i);
    }
}

static void simulate(uint64_t seed)
{
    const uint32_t ids[MAX_NODES] = { 0, 1, 2, 3, 4 };
    const SchedulerOutput output = { scheduler_sends, scheduler_greets };
    Sim run = { .seed = seed };

    sim = &run;
    sim->rand = g_rand_new_with_seed_array((const guint32[]){ (guint32)seed, 17 }, 2);
    sim->n_nodes = 1 + draw(MAX_NODES);
    sim->self = draw(sim->n_nodes);
    sim->answers_at_once = chance(50);
    sim->now_ms = draw(100000);
    sim->task_ends = g_hash_table_new_full(NULL, NULL, NULL, g_free);
    for (uint32_t i = 0; i < sim->n_nodes; i++) {
        sim->nodes[i].parts = g_ptr_array_new_with_free_func((GDestroyNotify)part_free);
        sim->nodes[i].last_hello_ms = sim->now_ms - HELLO_MS;
        sim->nodes[i].last_beat_ms = sim->now_ms;
    }
    write_programs();
    const SchedulerConfig config = {
        .n_nodes = sim->n_nodes,
        .self = sim->self,
        .node_ids = ids,
        .digest = "file",
        .wire_version = 1,
        .heartbeat_ms = HEARTBEAT_MS,
        .timeout_ms = TIMEOUT_MS,
        .rendezvous_ms = 60000,
        .stall_ms = 1000,
    };
    sim->scheduler = scheduler_new(&config, &output, NULL);

    run_until_over();
    check_end_of_run();

    scheduler_free(sim->scheduler);
    for (uint32_t i = 0; i < sim->n_nodes; i++) {
        g_ptr_array_free(sim->nodes[i].parts, TRUE);
        g_queue_clear_full(&sim->to_node[i], (GDestroyNotify)packet_free);
        g_queue_clear_full(&sim->to_scheduler[i], (GDestroyNotify)packet_free);
    }
    for (unsigned i = 0; i <= MAX_CALLS; i++)
        g_free(sim->verdicts[i]);
    g_hash_table_unref(sim->task_ends);
    g_rand_free(sim->rand);
}

START_TEST(scheduler_brings_every_run_to_the_same_end_on_every_node)
{
    const char *const seed = getenv("SEED");
    if (seed != NULL) {
        simulate(strtoull(seed, NULL, 10));
        return;
    }
    for (uint64_t i = 0; i < (is_slow() ? SEEDS_PER_CASE / 5 : SEEDS_PER_CASE); i++)
        simulate((uint64_t)_i * SEEDS_PER_CASE + i);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scheduler simulation");
    TCase *runs = tcase_create("runs");

    tcase_set_timeout(runs, 60);
    tcase_add_loop_test(runs, scheduler_brings_every_run_to_the_same_end_on_every_node, 0, N_CASES);
    suite_add_tcase(suite, runs);
    return run_suite(suite);
}
