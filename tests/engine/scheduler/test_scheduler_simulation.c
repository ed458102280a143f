/* Whole runs of the scheduler: n simulated nodes go through programs of collective calls and tasks
 * over channels that delay but do not reorder, while nodes fail, freeze, leave early and interrupt.
 *
 * A seed decides a run. Each run asserts the promises of scheduler.h: the same verdict of a call
 * everywhere, COMMIT only after READY, one TASK_END for each task, no barrier released before all
 * have come, and that everything ends. If no node freezes, leaves early or stops the run, the
 * verdicts are compared with those that the programs must get.
 *
 * A failure prints its seed: SEED=n runs that one alone. */
#include "tests/support/scheduler/scheduler_sim.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/runner.h"

#define SEEDS_PER_CASE 100 /* a fifth of them where everything is slow */
#define N_CASES 20

#define MOST_NODES 5     /* of most runs */
#define MOST_STEPS 40000 /* of a run, for each of its nodes */

#define TIMEOUT_MS 3000
#define MAX_DELAY_MS 800

static void write_programs(void)
{
    static const char *const TABLES[] = { "table a", "table b" };
    static const char *const TASKS[] = { "task x", "task y" };
    const unsigned n_steps = scheduler_sim_draw(SCHEDULER_SIM_CALLS + 1);
    const unsigned deviation = scheduler_sim_chance(40) ? 5 : 0,
                   failure = scheduler_sim_chance(40) ? 5 : 0;

    for (unsigned s = 0; s < n_steps; s++) {
        const ControlCall what =
            scheduler_sim_chance(55) ? CONTROL_CALL_RUN : (ControlCall)(1 + scheduler_sim_draw(4));
        SchedulerSimStep step = { .what = what,
                                  .arguments = "same",
                                  .waits = scheduler_sim_chance(60) };
        step.name = what == CONTROL_CALL_RUN       ? TASKS[scheduler_sim_draw(2)]
                    : what == CONTROL_CALL_BARRIER ? ""
                                                   : TABLES[scheduler_sim_draw(2)];
        for (uint32_t i = 0; i < scheduler_sim->n_nodes; i++) {
            SchedulerSimStep *own = &scheduler_sim->nodes[i].steps[s];
            *own = step;
            own->fails = scheduler_sim_chance(failure);
            if (scheduler_sim_chance(deviation))
                own->arguments = "other";
            if (scheduler_sim_chance(deviation) && what != CONTROL_CALL_BARRIER)
                own->name = "task z";
            if (scheduler_sim_chance(deviation)) {
                own->what = CONTROL_CALL_BARRIER;
                own->name = "";
            }
        }
    }
    for (uint32_t i = 0; i < scheduler_sim->n_nodes; i++)
        scheduler_sim->nodes[i].n_steps = n_steps;
    if (n_steps > 0 && scheduler_sim_chance(10)) {
        scheduler_sim->nodes[scheduler_sim_draw(scheduler_sim->n_nodes)].n_steps =
            scheduler_sim_draw(n_steps);
        scheduler_sim->disturbed = true;
    }
}

static void freeze(uint32_t number)
{
    if (number == scheduler_sim->self || scheduler_sim->nodes[number].frozen ||
        !scheduler_has_begun(scheduler_sim->scheduler))
        return;
    scheduler_sim->nodes[number].frozen = true;
    scheduler_sim->disturbed = true;
    if (!scheduler_sim->any_frozen)
        scheduler_sim->frozen_ms = scheduler_sim->now_ms;
    scheduler_sim->any_frozen = true;
}

static void disturb(void)
{
    const uint32_t number = scheduler_sim_draw(scheduler_sim->n_nodes);
    SchedulerSimNode *node = &scheduler_sim->nodes[number];

    if (!node->joined || node->frozen || node->left || node->out)
        return;
    switch (scheduler_sim_draw(4)) {
    case 0:
        freeze(number);
        break;
    case 1:
        scheduler_sim->interrupted = true;
        scheduler_sim_say(
            number, (Control){ .kind = CONTROL_INTERRUPT, .interrupt = { .text = "interrupted" } });
        break;
    case 2:
        scheduler_sim->disturbed = true;
        scheduler_sim_say(number, (Control){ .kind = CONTROL_STOP, .stop = { .text = "SIGINT" } });
        break;
    default:
        /* Leaves with calls and tasks open. */
        scheduler_sim->disturbed = true;
        node->left = true;
        node->n_steps = node->step + (node->proposed ? 1 : 0);
        scheduler_sim_say(number, (Control){ .kind = CONTROL_LEAVE });
        break;
    }
}

/* Whatever has been under way for too long arrives. */
static void deliver_late(GQueue *channel, uint32_t number, bool to_node)
{
    const SchedulerSimPacket *packet;
    while ((packet = g_queue_peek_head(channel)) != NULL &&
           scheduler_sim->now_ms - packet->sent_ms >= MAX_DELAY_MS)
        scheduler_sim_pass_on(channel, number, to_node);
}

static void pass_time(void)
{
    scheduler_sim->now_ms += 1 + scheduler_sim_draw(100);
    for (uint32_t i = 0; i < scheduler_sim->n_nodes; i++) {
        deliver_late(&scheduler_sim->to_node[i], i, /* to_node= */ true);
        deliver_late(&scheduler_sim->to_scheduler[i], i, /* to_node= */ false);
        if (scheduler_sim->now_ms - scheduler_sim->nodes[i].last_beat_ms >=
            SCHEDULER_SIM_HEARTBEAT_MS)
            scheduler_sim_node_steps(i);
    }
    scheduler_tick(scheduler_sim->scheduler, scheduler_sim->now_ms);
}

static bool is_over(void)
{
    for (uint32_t i = 0; i < scheduler_sim->n_nodes; i++)
        if (!scheduler_sim->nodes[i].frozen && !scheduler_sim->nodes[i].out &&
            !scheduler_sim->nodes[i].free_to_go)
            return false;
    return true;
}

/* The verdict of a call if no node disturbs the run: it follows from the programs alone. */
static void check_oracle(unsigned op)
{
    const SchedulerSimStep *first = &scheduler_sim->nodes[0].steps[op];
    bool same = true, fails = false;
    const char *const verdict = scheduler_sim->verdicts[op];

    for (uint32_t i = 0; i < scheduler_sim->n_nodes; i++) {
        const SchedulerSimStep *step = &scheduler_sim->nodes[i].steps[op];
        same &= step->what == first->what && strcmp(step->name, first->name) == 0 &&
                strcmp(step->arguments, first->arguments) == 0;
        fails |= step->fails;
    }
    scheduler_sim_assert(verdict != NULL, "call %u has no verdict", op + 1);
    if (!same) {
        scheduler_sim_assert(atoi(verdict) == (int)CONTROL_CODE(RUBATO_ERROR_MISMATCH),
                             "call %u: '%s'", op + 1, verdict);
        scheduler_sim_assert(strstr(verdict, " while node ") ||
                                 strstr(verdict, "different arguments: "),
                             "call %u: '%s'", op + 1, verdict);
    } else if (fails && first->what != CONTROL_CALL_BARRIER) {
        scheduler_sim_assert(atoi(verdict) == (int)CONTROL_CODE(RUBATO_ERROR_MEMORY),
                             "call %u: '%s'", op + 1, verdict);
    } else {
        scheduler_sim_assert(strcmp(verdict, "0 ") == 0, "call %u: '%s'", op + 1, verdict);
    }
}

static void check_end_of_run(void)
{
    for (uint32_t i = 0; i < scheduler_sim->n_nodes; i++) {
        const SchedulerSimNode *node = &scheduler_sim->nodes[i];
        if (node->frozen || node->out)
            continue;
        scheduler_sim_assert(node->step == node->n_steps, "node %u is at step %u of %u", i,
                             node->step, node->n_steps);
        for (guint p = 0; p < node->parts->len; p++)
            scheduler_sim_assert(((const SchedulerSimPart *)node->parts->pdata[p])->ended ||
                                     scheduler_sim->disturbed,
                                 "a task has not ended on node %u", i);
    }
    for (unsigned op = 0; op < scheduler_sim->nodes[0].n_steps && !scheduler_sim->disturbed; op++)
        check_oracle(op);
    scheduler_sim_assert(scheduler_has_ended(scheduler_sim->scheduler), "the scheduler goes on");
}

static void run_until_over(void)
{
    const unsigned n_disturbances = scheduler_sim_chance(35) ? 1 + scheduler_sim_draw(2) : 0;
    unsigned left = n_disturbances;

    for (unsigned step = 0; !is_over(); step++) {
        if (step > MOST_STEPS * scheduler_sim->n_nodes) {
            g_autofree char *waiting =
                scheduler_waiting(scheduler_sim->scheduler, scheduler_sim->now_ms);
            scheduler_sim_assert(false, "the run hangs: %s",
                                 waiting != NULL ? waiting : "nobody waits");
        }
        const uint32_t number = scheduler_sim_draw(scheduler_sim->n_nodes);
        const uint32_t action = scheduler_sim_draw(100);
        if (action < 35) {
            scheduler_sim_node_steps(number);
        } else if (action < 60) {
            if (!g_queue_is_empty(&scheduler_sim->to_node[number]))
                scheduler_sim_pass_on(&scheduler_sim->to_node[number], number, /* to_node= */ true);
        } else if (action < 85) {
            if (!g_queue_is_empty(&scheduler_sim->to_scheduler[number]))
                scheduler_sim_pass_on(&scheduler_sim->to_scheduler[number], number,
                                      /* to_node= */ false);
        } else {
            pass_time();
            if (left > 0 && scheduler_sim_chance(3)) {
                left--;
                disturb();
            }
        }
        /* Silence is noticed in time, and everyone is told. */
        if (scheduler_sim->any_frozen &&
            scheduler_sim->now_ms - scheduler_sim->frozen_ms > 2 * TIMEOUT_MS)
            for (uint32_t i = 0; i < scheduler_sim->n_nodes; i++)
                scheduler_sim_assert(scheduler_sim->nodes[i].frozen ||
                                         scheduler_sim->nodes[i].out ||
                                         scheduler_sim->nodes[i].free_to_go ||
                                         scheduler_sim->nodes[i].has_heard_loss,
                                     "node %u does not know that one is lost", i);
    }
}

/* n_nodes 0: a few, by the seed. */
static void simulate(uint64_t seed, uint32_t n_nodes)
{
    const SchedulerOutput output = { scheduler_sim_sends, scheduler_sim_greets };
    g_autofree SchedulerSim *run = g_new0(SchedulerSim, 1);
    uint32_t ids[SCHEDULER_SIM_NODES];

    for (uint32_t i = 0; i < SCHEDULER_SIM_NODES; i++)
        ids[i] = i;
    scheduler_sim = run;
    scheduler_sim->seed = seed;
    scheduler_sim->rand = g_rand_new_with_seed_array((const guint32[]){ (guint32)seed, 17 }, 2);
    scheduler_sim->n_nodes = n_nodes > 0 ? n_nodes : 1 + scheduler_sim_draw(MOST_NODES);
    scheduler_sim->self = scheduler_sim_draw(scheduler_sim->n_nodes);
    scheduler_sim->answers_at_once = scheduler_sim_chance(50);
    scheduler_sim->now_ms = scheduler_sim_draw(100000);
    scheduler_sim->task_ends = g_hash_table_new_full(NULL, NULL, NULL, g_free);
    for (uint32_t i = 0; i < scheduler_sim->n_nodes; i++) {
        scheduler_sim->nodes[i].parts =
            g_ptr_array_new_with_free_func((GDestroyNotify)scheduler_sim_part_free);
        scheduler_sim->nodes[i].last_hello_ms = scheduler_sim->now_ms - SCHEDULER_SIM_HELLO_MS;
        scheduler_sim->nodes[i].last_beat_ms = scheduler_sim->now_ms;
    }
    write_programs();
    const SchedulerConfig config = {
        .n_nodes = scheduler_sim->n_nodes,
        .self = scheduler_sim->self,
        .node_ids = ids,
        .digest = "file",
        .wire_version = 1,
        .heartbeat_ms = SCHEDULER_SIM_HEARTBEAT_MS,
        .timeout_ms = TIMEOUT_MS,
        .rendezvous_ms = 60000,
        .stall_ms = 1000,
    };
    scheduler_sim->scheduler = scheduler_new(&config, &output, NULL);

    run_until_over();
    check_end_of_run();

    scheduler_free(scheduler_sim->scheduler);
    for (uint32_t i = 0; i < scheduler_sim->n_nodes; i++) {
        g_ptr_array_free(scheduler_sim->nodes[i].parts, TRUE);
        g_queue_clear_full(&scheduler_sim->to_node[i], (GDestroyNotify)scheduler_sim_packet_free);
        g_queue_clear_full(&scheduler_sim->to_scheduler[i],
                           (GDestroyNotify)scheduler_sim_packet_free);
    }
    for (unsigned i = 0; i <= SCHEDULER_SIM_CALLS; i++)
        g_free(scheduler_sim->verdicts[i]);
    g_hash_table_unref(scheduler_sim->task_ends);
    g_rand_free(scheduler_sim->rand);
}

START_TEST(scheduler_brings_every_run_to_the_same_end_on_every_node)
{
    const char *const seed = getenv("SEED");
    if (seed != NULL) {
        simulate(strtoull(seed, NULL, 10), 0);
        return;
    }
    for (uint64_t i = 0; i < (is_slow() ? SEEDS_PER_CASE / 5 : SEEDS_PER_CASE); i++)
        simulate((uint64_t)_i * SEEDS_PER_CASE + i, 0);
}
END_TEST

START_TEST(scheduler_brings_runs_of_512_nodes_to_the_same_end)
{
    for (uint64_t seed = 0; seed < (is_slow() ? 2 : 10); seed++)
        simulate(1000000 + seed, SCHEDULER_SIM_NODES);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scheduler simulation");
    TCase *runs = tcase_create("runs");

    tcase_set_timeout(runs, 60);
    tcase_add_loop_test(runs, scheduler_brings_every_run_to_the_same_end_on_every_node, 0, N_CASES);
    tcase_add_test(runs, scheduler_brings_runs_of_512_nodes_to_the_same_end);
    suite_add_tcase(suite, runs);
    return run_suite(suite);
}
