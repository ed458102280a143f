/* See scheduler_sim.h. */
#include "tests/support/scheduler/scheduler_sim.h"

#include <string.h>

SchedulerSim *scheduler_sim;

uint32_t scheduler_sim_draw(uint32_t n)
{
    return (uint32_t)g_rand_int_range(scheduler_sim->rand, 0, (gint32)n);
}

bool scheduler_sim_chance(unsigned percent)
{
    return scheduler_sim_draw(100) < percent;
}

static void enqueue(GQueue *channel, const Control *control, bool greeting)
{
    SchedulerSimPacket *packet = g_new(SchedulerSimPacket, 1);
    *packet = (SchedulerSimPacket){ control_encode(control), scheduler_sim->now_ms, greeting };
    g_queue_push_tail(channel, packet);
}

void scheduler_sim_packet_free(SchedulerSimPacket *packet)
{
    g_byte_array_unref(packet->body);
    g_free(packet);
}

void scheduler_sim_say(uint32_t number, Control control)
{
    enqueue(&scheduler_sim->to_scheduler[number], &control, control.kind == CONTROL_HELLO);
}

void scheduler_sim_sends(void *user, uint32_t node, const Control *control)
{
    (void)user;
    if (node == scheduler_sim->self && scheduler_sim->answers_at_once)
        scheduler_sim_node_hears(node, control);
    else
        enqueue(&scheduler_sim->to_node[node], control, /* greeting= */ false);
}

void scheduler_sim_greets(void *user, uint64_t asker, const Control *control)
{
    const uint32_t node = (uint32_t)asker;
    (void)user;
    scheduler_sim_assert(node < scheduler_sim->n_nodes, "a greeting to asker %u", node);
    if (!scheduler_sim_chance(20)) /* greetings get lost */
        enqueue(&scheduler_sim->to_node[node], control, /* greeting= */ true);
}

static void scheduler_hears(uint32_t number, const Control *control, bool greeting)
{
    const bool sensible =
        greeting
            ? scheduler_greet(scheduler_sim->scheduler, scheduler_sim->now_ms, control, 1, number)
            : scheduler_receive(scheduler_sim->scheduler, scheduler_sim->now_ms, number, control);
    scheduler_sim_assert(sensible, "%s of node %u made no sense", control_kind_name(control->kind),
                         number);
}

void scheduler_sim_pass_on(GQueue *channel, uint32_t number, bool to_node)
{
    SchedulerSimPacket *packet = g_queue_pop_head(channel);
    g_auto(Control) control = { 0 };
    const bool decoded = control_decode(packet->body->data, packet->body->len, &control, NULL);

    scheduler_sim_assert(decoded, "a message that cannot be read");
    if (to_node)
        scheduler_sim_node_hears(number, &control);
    else
        scheduler_hears(number, &control, packet->greeting);
    scheduler_sim_packet_free(packet);
}

static SchedulerSimPart *find_part(const SchedulerSimNode *node, uint32_t epoch)
{
    for (guint i = 0; i < node->parts->len; i++) {
        SchedulerSimPart *part = node->parts->pdata[i];
        if (part->epoch == epoch)
            return part;
    }
    return NULL;
}

static SchedulerSimPart *require_part(uint32_t number, uint32_t epoch, const Control *control)
{
    SchedulerSimPart *part = find_part(&scheduler_sim->nodes[number], epoch);
    scheduler_sim_assert(part != NULL && part->running && !part->ended,
                         "%s to node %u of task %u that does not run there",
                         control_kind_name(control->kind), number, epoch);
    return part;
}

void scheduler_sim_part_free(SchedulerSimPart *part)
{
    g_free(part->cause);
    g_free(part);
}

/* The next step of a MOVE. All nodes take the same ones. */
static void hear_next_go(uint32_t number, const Control *control)
{
    SchedulerSimNode *node = &scheduler_sim->nodes[number];
    const uint32_t from = node->go_step, to = control->go.step;
    uint32_t *const seen = &scheduler_sim->last_steps[node->step];

    scheduler_sim_assert(node->steps[node->step].what == CONTROL_CALL_MOVE && node->said_ready &&
                             control->go.call == node->step + 1 && control->go.id == node->go_id,
                         "GO %" G_GUINT64_FORMAT " to node %u, which is at work", control->go.call,
                         number);
    scheduler_sim_assert((from == CONTROL_STEP_PREPARE && to == CONTROL_STEP_AHEAD) ||
                             (from == CONTROL_STEP_AHEAD && to == CONTROL_STEP_CLOSE) ||
                             (from == CONTROL_STEP_CLOSE && to == CONTROL_STEP_SEND) ||
                             (from == CONTROL_STEP_SEND && to == CONTROL_STEP_INSTALL) ||
                             (from < CONTROL_STEP_INSTALL && to == CONTROL_STEP_TAKE_BACK) ||
                             (from == CONTROL_STEP_INSTALL && to == CONTROL_STEP_OPEN) ||
                             (from == CONTROL_STEP_TAKE_BACK && to == CONTROL_STEP_REOPEN),
                         "step %u after step %u", to, from);
    if (to == CONTROL_STEP_INSTALL || to == CONTROL_STEP_TAKE_BACK) {
        scheduler_sim_assert(*seen == 0 || *seen == to, "call %u: steps %u and %u", node->step,
                             *seen, to);
        *seen = to;
    }
    node->go_step = to;
    node->said_ready = false;
}

static void hear_go(uint32_t number, const Control *control)
{
    SchedulerSimNode *node = &scheduler_sim->nodes[number];

    if (node->at_work) {
        hear_next_go(number, control);
        return;
    }
    scheduler_sim_assert(node->proposed && !node->at_work && control->go.call == node->step + 1,
                         "GO %" G_GUINT64_FORMAT " to node %u out of turn", control->go.call,
                         number);
    scheduler_sim_assert(control->go.step == CONTROL_STEP_PREPARE, "call %u begins with step %u",
                         node->step, control->go.step);
    node->at_work = true;
    node->go_step = control->go.step;
    node->go_id = control->go.id;
    if (!(scheduler_sim->go_seen & (1u << node->step))) {
        scheduler_sim->go_seen |= 1u << node->step;
        scheduler_sim->go_ids[node->step] = control->go.id;
    }
    scheduler_sim_assert(scheduler_sim->go_ids[node->step] == control->go.id,
                         "two ids of one call");
    if (node->steps[node->step].what == CONTROL_CALL_RUN) {
        SchedulerSimPart *part = g_new0(SchedulerSimPart, 1);
        scheduler_sim_assert(find_part(node, control->go.id) == NULL, "an epoch comes twice");
        part->epoch = control->go.id;
        part->has_workers = scheduler_sim_chance(75);
        part->n_rounds = part->has_workers ? scheduler_sim_draw(4) : 0;
        part->fails = part->has_workers && scheduler_sim_chance(8);
        g_ptr_array_add(node->parts, part);
    }
}

static void hear_commit(uint32_t number, const Control *control)
{
    SchedulerSimNode *node = &scheduler_sim->nodes[number];
    const SchedulerSimStep *step = &node->steps[node->step];
    g_autofree char *verdict =
        g_strdup_printf("%u %s", control->commit.outcome.code, control->commit.outcome.text);

    scheduler_sim_assert(node->proposed && control->commit.call == node->step + 1,
                         "COMMIT %" G_GUINT64_FORMAT " to node %u out of turn",
                         control->commit.call, number);
    scheduler_sim_assert(!node->at_work || node->said_ready || node->left,
                         "COMMIT to node %u, which is at work", number);
    scheduler_sim_assert(control->commit.outcome.code != CONTROL_OK || node->at_work ||
                             step->what == CONTROL_CALL_BARRIER,
                         "a good COMMIT to node %u without a GO", number);
    if (scheduler_sim->verdicts[node->step] == NULL)
        scheduler_sim->verdicts[node->step] = g_strdup(verdict);
    scheduler_sim_assert(strcmp(scheduler_sim->verdicts[node->step], verdict) == 0,
                         "call %u: '%s' on node %u, '%s' on another", node->step + 1, verdict,
                         number, scheduler_sim->verdicts[node->step]);

    if (step->what == CONTROL_CALL_RUN && node->at_work) {
        SchedulerSimPart *part = find_part(node, node->go_id);
        if (control->commit.outcome.code == CONTROL_OK) {
            part->running = true;
            node->awaited_epoch = step->waits ? part->epoch : 0;
            if (!part->has_workers) {
                scheduler_sim_say(number, (Control){ .kind = CONTROL_ARRIVE,
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
    SchedulerSimPart *part = require_part(number, control->cancel.epoch, control);

    scheduler_sim_assert(!part->cancelled, "a second CANCEL of a task to node %u", number);
    part->cancelled = true;
    part->waiting = false;
    part->cause_code = control->cancel.outcome.code;
    part->cause = g_strdup(control->cancel.outcome.text);
}

static void hear_task_end(uint32_t number, const Control *control)
{
    SchedulerSimNode *node = &scheduler_sim->nodes[number];
    SchedulerSimPart *part = require_part(number, control->task_end.epoch, control);
    char *verdict =
        g_strdup_printf("%u %s", control->task_end.outcome.code, control->task_end.outcome.text);
    gpointer epoch = GUINT_TO_POINTER(control->task_end.epoch);

    scheduler_sim_assert(part->done || node->left,
                         "the end of a task to node %u, which is not done", number);
    scheduler_sim_assert(part->cancelled == (control->task_end.outcome.code != CONTROL_OK),
                         "a task ends with '%s' on node %u, but was %scancelled", verdict, number,
                         part->cancelled ? "" : "not ");
    scheduler_sim_assert(
        !part->cancelled || (part->cause_code == control->task_end.outcome.code &&
                             strcmp(part->cause, control->task_end.outcome.text) == 0),
        "a task ends with another cause than it was cancelled with: '%s'", verdict);
    const char *known = g_hash_table_lookup(scheduler_sim->task_ends, epoch);
    scheduler_sim_assert(known == NULL || strcmp(known, verdict) == 0,
                         "two ends of one task: '%s' and '%s'", known, verdict);
    g_hash_table_replace(scheduler_sim->task_ends, epoch, verdict);
    part->ended = true;
    if (node->awaited_epoch == part->epoch)
        node->awaited_epoch = 0;
}

static void hear_release(uint32_t number, const Control *control)
{
    SchedulerSimPart *part = require_part(number, control->release.epoch, control);

    /* After a failure of its own it no longer waits; a release may have been under way. */
    if (part->cancelled || part->failed)
        return;
    scheduler_sim_assert(part->waiting && control->release.round == part->round,
                         "node %u is released from barrier %" G_GUINT64_FORMAT, number,
                         control->release.round);
    part->waiting = false;
    part->round++;

    /* No node may be behind: all others have arrived, or never will. */
    for (uint32_t i = 0; i < scheduler_sim->n_nodes; i++) {
        const SchedulerSimPart *other = find_part(&scheduler_sim->nodes[i], part->epoch);
        if (other == NULL || scheduler_sim->nodes[i].frozen || other->failed || other->cancelled)
            continue;
        scheduler_sim_assert(other->retired || other->done ||
                                 other->round > control->release.round ||
                                 (other->round == control->release.round && other->waiting),
                             "node %u leaves barrier %" G_GUINT64_FORMAT " before node %u comes",
                             number, control->release.round, i);
    }
}

void scheduler_sim_node_hears(uint32_t number, const Control *control)
{
    SchedulerSimNode *node = &scheduler_sim->nodes[number];

    if (node->frozen || node->out)
        return;
    /* A greeting that was repeated may be late. */
    scheduler_sim_assert(!node->free_to_go || control->kind == CONTROL_WELCOME,
                         "%s to node %u after LEFT", control_kind_name(control->kind), number);
    switch (control->kind) {
    case CONTROL_WELCOME:
        scheduler_sim_assert(control->welcome.n_nodes == scheduler_sim->n_nodes,
                             "a welcome to another run");
        node->joined = true;
        break;
    case CONTROL_BEAT:
    case CONTROL_MADE:
    case CONTROL_RUNS:
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
        scheduler_sim_assert(scheduler_sim->nodes[control->lost.number].frozen,
                             "node %u was lost: %s", control->lost.number, control->lost.text);
        node->has_heard_loss = true;
        scheduler_sim_assert(scheduler_sim->now_ms - scheduler_sim->frozen_ms > 0,
                             "lost before it froze");
        break;
    case CONTROL_LEFT:
        scheduler_sim_assert(node->left, "LEFT to node %u, which has not left", number);
        node->free_to_go = true;
        break;
    default:
        scheduler_sim_assert(false, "%s to node %u", control_kind_name(control->kind), number);
    }
}

/* A worker of the part takes a step. */
static void part_steps(uint32_t number, SchedulerSimPart *part)
{
    const uint32_t epoch = part->epoch;

    if (!part->running || part->done || part->waiting)
        return;
    if (part->fails && !part->failed && !part->cancelled && scheduler_sim_chance(50)) {
        g_autofree char *text = g_strdup_printf("a worker of node %u failed", number);
        part->failed = true;
        scheduler_sim_say(
            number, (Control){ .kind = CONTROL_FAIL,
                               .fail = { .epoch = epoch,
                                         .outcome.code = CONTROL_CODE(RUBATO_ERROR_TASK_FAILED),
                                         .outcome.text = text } });
    } else if (part->cancelled || part->failed || part->round == part->n_rounds) {
        if (!part->retired && scheduler_sim_chance(50)) {
            scheduler_sim_say(number,
                              (Control){ .kind = CONTROL_ARRIVE,
                                         .arrive = { .epoch = epoch, .round = CONTROL_NO_ROUND } });
            part->retired = true;
        }
        scheduler_sim_say(number,
                          (Control){ .kind = CONTROL_TASK_DONE, .task_done = { .epoch = epoch } });
        part->done = true;
    } else {
        scheduler_sim_say(number, (Control){ .kind = CONTROL_ARRIVE,
                                             .arrive = { .epoch = epoch, .round = part->round } });
        part->waiting = true;
    }
}

static void program_steps(uint32_t number)
{
    SchedulerSimNode *node = &scheduler_sim->nodes[number];
    const SchedulerSimStep *step = &node->steps[node->step];
    const uint64_t op = node->step + 1;

    if (node->at_work && !node->said_ready) {
        node->said_ready = true;
        if (step->fails && node->go_step < CONTROL_STEP_INSTALL) { /* these cannot fail */
            g_autofree char *text =
                g_strdup_printf("node %u cannot do call %u", number, node->step);
            scheduler_sim_say(
                number, (Control){ .kind = CONTROL_READY,
                                   .ready = { .call = op,
                                              .outcome.code = CONTROL_CODE(RUBATO_ERROR_MEMORY),
                                              .outcome.text = text } });
        } else {
            scheduler_sim_say(number, (Control){ .kind = CONTROL_READY, .ready = { .call = op } });
        }
    } else if (!node->proposed && node->awaited_epoch == 0 && node->step < node->n_steps) {
        node->proposed = true;
        scheduler_sim_say(number, (Control){ .kind = CONTROL_PROPOSE,
                                             .propose = { .call = op,
                                                          .what = step->what,
                                                          .name = step->name,
                                                          .digest = step->arguments,
                                                          .arguments = step->arguments } });
    } else if (node->step == node->n_steps) {
        for (guint i = 0; i < node->parts->len; i++)
            if (!((const SchedulerSimPart *)node->parts->pdata[i])->ended)
                return;
        node->left = true;
        scheduler_sim_say(number, (Control){ .kind = CONTROL_LEAVE });
    }
}

void scheduler_sim_node_steps(uint32_t number)
{
    SchedulerSimNode *node = &scheduler_sim->nodes[number];

    if (node->frozen || node->out || node->free_to_go)
        return;
    if (!node->joined) {
        if (scheduler_sim->now_ms - node->last_hello_ms < SCHEDULER_SIM_HELLO_MS)
            return;
        node->last_hello_ms = scheduler_sim->now_ms;
        g_autofree char *endpoint = g_strdup_printf("%u", number);
        if (!scheduler_sim_chance(20))
            scheduler_sim_say(number, (Control){ .kind = CONTROL_HELLO,
                                                 .hello = { .node_id = number,
                                                            .number = number,
                                                            .incarnation = number + 1,
                                                            .digest = "file",
                                                            .endpoints = endpoint,
                                                            .description = "simulated" } });
        return;
    }
    if (scheduler_sim->now_ms - node->last_beat_ms >= SCHEDULER_SIM_HEARTBEAT_MS) {
        node->last_beat_ms = scheduler_sim->now_ms;
        scheduler_sim_say(number, (Control){ .kind = CONTROL_BEAT });
    }
    if (node->left)
        return;
    if (node->parts->len > 0 && scheduler_sim_chance(60))
        part_steps(number, node->parts->pdata[scheduler_sim_draw(node->parts->len)]);
    else
        program_steps(number);
}
