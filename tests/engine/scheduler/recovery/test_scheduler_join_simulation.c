/* Runs in which nodes are lost and other processes take their places, at any time and again and
 * again.
 *
 * Each node has one server. One table has some parts, each with one replica. Messages between a
 * node and the scheduler are delayed and keep their order; greetings get lost. A node is lost if
 * its parts have another whole copy, so no run may end by a loss. Each run asserts: a process does
 * each step once and in order; only a newcomer makes tables, and does so before anything else; who
 * becomes a primary has the part; bytes are counted from numbers that nobody had before; and in the
 * end each part has its replica again, all programs have made all their calls, and all that live
 * may leave. Every second newcomer runs its program, whose calls are answered as they ended, until
 * it has caught up. In some runs a node is spare: no process is there before one joins. A node that
 * has joined gets parts of others, so that copies of them are made first.
 *
 * In every second run the scheduler is alone on its node. Its process is killed at any time, also
 * between two messages that follow from the same event, and another one goes on from its journal,
 * which in most of them begins anew with the state after some records.
 * Then the same holds: so no node does a step twice, or misses one.
 *
 * Meanwhile nodes ask for snapshots, and for moves of a part. Each ask is answered, and a snapshot
 * that was taken by what is said is whole.
 *
 * A failure prints its seed: SEED=n runs that one alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/runner.h"
#include "tests/support/scheduler/join_sim.h"

enum {
    SEEDS_PER_CASE = 100, /* a fifth of them where everything is slow */
    CASES = 10,
    MOST_LOSSES = 6,
    MOST_RESTARTS = 4,
    MOST_KEPT_BYTES = 4000,
    MOST_STEPS = 200000,
    HEARTBEAT_MS = 500,
    TIMEOUT_MS = 3000,
};

/* ---- which processes are lost, and come ---- */

/* Whether the scheduler waits for a newcomer to do so. */
static bool is_making_tables(void)
{
    bool is_making = false;

    for (uint32_t i = 0; i < join_sim.n_nodes; i++)
        is_making |= !join_sim.scheduler->nodes[i].lost &&
                     !join_sim.processes[join_sim.linked[i]].has_tables;
    return is_making && join_sim.scheduler->map_number == join_sim.admit_map;
}

/* Whether no part is lost with it. While parts are told and change hands, only a node without any
 * is safe to lose. */
static bool may_be_lost(const JoinProcess *process)
{
    const Scheduler *const scheduler = join_sim.scheduler;
    const bool is_still = !join_sim.is_dead && (!scheduler->recovers ||
                                                scheduler->admission.opens || is_making_tables());

    for (uint32_t part = 0; part < join_sim.n_parts; part++) {
        bool has_other = false;

        if (process->parts[part] == JOIN_HOLDING_NONE)
            continue;
        for (uint32_t i = 0; i < join_sim.n_processes; i++)
            has_other |= &join_sim.processes[i] != process && join_sim.processes[i].is_alive &&
                         join_sim.processes[i].parts[part] >= JOIN_HOLDING_COPY;
        if (!has_other || !is_still)
            return false;
    }
    return true;
}

static void lose_one(void)
{
    const uint32_t node = 1 + join_draw(join_sim.n_nodes - 1);
    JoinProcess *const process = &join_sim.processes[join_sim.newest[node]];

    if (join_sim.n_losses == 0 || !process->is_alive || process->has_left || !may_be_lost(process))
        return;
    process->is_alive = false;
    join_sim.n_losses--;
    if (process->is_in && join_chance(70) && !join_sim.is_dead)
        scheduler_node_gone(join_sim.scheduler, join_sim.now_ms, node, "its process has ended");
}

static void start_one(void)
{
    const uint32_t node = 1 + join_draw(join_sim.n_nodes - 1);

    if (!join_sim.is_dead && !join_sim.processes[join_sim.newest[node]].is_alive &&
        join_sim.scheduler->nodes[node].lost && join_sim.n_processes < JOIN_MOST_PROCESSES)
        join_process_new(node, /* has_program= */ false);
}

/* ---- the scheduler's process ---- */

static bool journal_add(void *user, const void *record, size_t size)
{
    (void)user;
    g_ptr_array_add(join_sim.journal, g_bytes_new(record, size));
    return true;
}

static bool journal_read(void *user, SchedulerRecordFunc take, void *taker, GError **error)
{
    (void)user;
    (void)error;
    for (guint i = 0; i < join_sim.journal->len; i++) {
        gsize size;
        const void *const record = g_bytes_get_data(join_sim.journal->pdata[i], &size);

        join_assert(take(taker, record, size), "record %u makes no sense", i);
    }
    return true;
}

static bool journal_begin_again(void *user, const void *record, size_t size)
{
    g_ptr_array_set_size(join_sim.journal, 0);
    join_sim.n_begun++;
    return journal_add(user, record, size);
}

static void start_scheduler(void)
{
    const SchedulerJournal journal = { .add = journal_add,
                                       .read = journal_read,
                                       .begin_again =
                                           join_sim.begins_anew ? journal_begin_again : NULL,
                                       .kept_bytes = join_sim.kept_bytes };
    uint32_t ids[JOIN_MOST_NODES];
    bool is_spare[JOIN_MOST_NODES] = { false };
    const SchedulerConfig config = { .n_nodes = join_sim.n_nodes,
                                     .node_ids = ids,
                                     .is_spare = is_spare,
                                     .digest = "file",
                                     .wire_version = 1,
                                     .heartbeat_ms = HEARTBEAT_MS,
                                     .timeout_ms = TIMEOUT_MS,
                                     .admits = true,
                                     .journal = join_sim.is_alone ? &journal : NULL };

    for (uint32_t i = 0; i < join_sim.n_nodes; i++)
        ids[i] = i;
    is_spare[join_sim.n_nodes - 1] = join_sim.has_spare;
    join_sim.scheduler = scheduler_new(&config, &join_output, NULL);
    join_sim.scheduler->goes_on = true;
    join_sim.left_to_send = UINT32_MAX;
}

/* It may be in the middle of what follows from an event: only some of it has been sent. */
static void kill_scheduler(void)
{
    JoinProcess *const own = &join_sim.processes[join_sim.linked[0]];

    if (join_sim.n_restarts == 0 || join_sim.is_dead || join_sim.n_processes == JOIN_MOST_PROCESSES)
        return;
    if (join_chance(50)) {
        join_sim.left_to_send = join_draw(2 * join_sim.n_nodes);
        join_arrives(&join_sim.processes[join_draw(join_sim.n_processes)]);
    }
    join_sim.left_to_send = UINT32_MAX;
    if (scheduler_has_ended(
            join_sim.scheduler)) { /* those that have not heard so end at the timeout */
        for (uint32_t i = 0; i < join_sim.n_processes; i++)
            join_sim.processes[i].is_free |= join_sim.processes[i].is_in;
        return;
    }
    scheduler_free(g_steal_pointer(&join_sim.scheduler));
    for (uint32_t i = 0; i < join_sim.n_processes; i++)
        join_process_loses(&join_sim.processes[i]);
    join_sim.is_dead = true;
    join_sim.n_restarts--;
    own->is_alive = false;
}

static void start_scheduler_again(void)
{
    JoinProcess *own;

    if (!join_sim.is_dead)
        return;
    start_scheduler();
    own = &join_sim.processes[join_process_new(0, /* has_program= */ false)];
    join_sim.incarnation = own->incarnation;
    join_sim.linked[0] = join_sim.newest[0];
    own->is_in = true;
    join_sim.is_dead = false;
    join_assert(scheduler_resume(join_sim.scheduler, join_sim.now_ms,
                                 &(SchedulerProcess){ own->incarnation, "here", "simulated" },
                                 NULL),
                "no process can go on as the scheduler");
    for (uint32_t i = 0; i < join_sim.n_nodes; i++)
        own->counts_lost[i] = join_sim.scheduler->nodes[i].lost;
}

static void pass_time(void)
{
    join_sim.now_ms += join_draw(60);
    if (join_sim.is_dead)
        return;
    if (join_sim.now_ms - join_sim.beat_ms >= HEARTBEAT_MS) {
        join_sim.beat_ms = join_sim.now_ms;
        for (uint32_t i = 0; i < join_sim.n_nodes; i++) {
            const JoinProcess *const process = &join_sim.processes[join_sim.linked[i]];

            if (process->is_alive)
                scheduler_heard(join_sim.scheduler, i, join_sim.now_ms);
            join_process_beats(&join_sim.processes[join_sim.linked[i]]);
        }
    }
    scheduler_tick(join_sim.scheduler, join_sim.now_ms);
}

static bool is_over(void)
{
    for (uint32_t i = 0; i < join_sim.n_processes; i++)
        if (join_sim.processes[i].is_alive && !join_sim.processes[i].is_free)
            return false;
    return true;
}

static void begin_run(void)
{
    join_sim.incarnation = 1; /* of process 0 */
    start_scheduler();
    for (uint32_t i = 0; i < join_sim.n_nodes; i++) {
        join_sim.linked[i] = join_process_new(i, /* has_program= */ true);
        const Control hello = { .kind = CONTROL_HELLO,
                                .hello = { .node_id = i,
                                           .number = i,
                                           .incarnation = join_sim.processes[i].incarnation,
                                           .digest = "file",
                                           .endpoints = "somewhere",
                                           .description = "simulated" } };
        if (i < join_sim.n_nodes - join_sim.has_spare)
            scheduler_greet(join_sim.scheduler, join_sim.now_ms, &hello, 1, i);
        else
            join_sim.processes[i].is_alive = false;
    }
    for (uint32_t part = 0; part < join_sim.n_parts; part++) {
        const uint32_t n = join_sim.n_nodes - join_sim.is_alone - join_sim.has_spare;

        join_sim.processes[part % n + join_sim.is_alone].parts[part] = JOIN_HOLDING_PRIMARY;
        join_sim.processes[(part + 1) % n + join_sim.is_alone].parts[part] = JOIN_HOLDING_COPY;
    }
}

static void end_run(void)
{
    join_assert(scheduler_has_ended(join_sim.scheduler), "the scheduler goes on");
    for (uint32_t i = 0; i < join_sim.n_processes; i++) {
        JoinProcess *const process = &join_sim.processes[i];

        join_assert(!process->is_alive || !process->has_program || process->n_calls == JOIN_CALLS,
                    "node %u has made %u calls", process->node, (unsigned)process->n_calls);
        join_process_clear(process);
    }
    g_ptr_array_unref(join_sim.journal);
    scheduler_free(join_sim.scheduler);
    g_rand_free(join_sim.rand);
}

/* Returns how many processes have taken the place of others, and had the tables. */
static unsigned simulate(uint64_t seed)
{
    unsigned n_joined = 0;

    memset(&join_sim, 0, sizeof join_sim);
    join_sim.seed = seed;
    join_sim.rand = g_rand_new_with_seed((guint32)seed);
    join_sim.n_nodes = 3 + join_draw(JOIN_MOST_NODES - 2);
    join_sim.has_spare = join_sim.n_nodes > 3 && seed % 3 == 0;
    join_sim.n_parts = 1 + join_draw(JOIN_MOST_PARTS);
    join_sim.n_losses = join_draw(MOST_LOSSES + 1);
    join_sim.is_alone = seed % 2 == 1;
    join_sim.n_restarts = join_sim.is_alone ? join_draw(MOST_RESTARTS + 1) : 0;
    join_sim.begins_anew = join_chance(80);
    join_sim.kept_bytes = join_chance(50) ? 0 : join_draw(MOST_KEPT_BYTES);
    join_sim.journal = g_ptr_array_new_with_free_func((GDestroyNotify)g_bytes_unref);
    join_sim.now_ms = 1000;
    begin_run();
    for (unsigned step = 0; !is_over(); step++) {
        const uint32_t action = join_draw(100);
        JoinProcess *const process = &join_sim.processes[join_draw(join_sim.n_processes)];

        if (step > MOST_STEPS) {
            g_autofree char *waiting =
                join_sim.is_dead ? NULL : scheduler_waiting(join_sim.scheduler, join_sim.now_ms);
            join_assert(false, "the run hangs: %s", waiting != NULL ? waiting : "nobody waits");
        }
        if (action < 50)
            join_process_steps(process);
        else if (action < 85)
            join_arrives(process);
        else if (action < 90)
            join_end_a_copy();
        else if (action < 91)
            lose_one();
        else if (action < 92)
            start_one();
        else if (action < 93 && join_sim.is_dead)
            start_scheduler_again();
        else if (action < 93 && join_chance(20))
            kill_scheduler();
        else
            pass_time();
    }
    for (uint32_t i = join_sim.n_nodes; i < join_sim.n_processes; i++)
        n_joined += join_sim.processes[i].has_tables;
    end_run();
    return n_joined;
}

START_TEST(processes_take_the_places_of_lost_nodes_and_replicas_are_restored)
{
    const char *const seed = getenv("SEED");
    unsigned n_joined = 0, n_resumed = 0, n_taken = 0, n_moved = 0, n_caught_up = 0, n_balanced = 0;
    unsigned n_begun = 0;

    if (seed != NULL) {
        simulate(strtoull(seed, NULL, 10));
        return;
    }
    for (uint64_t i = 0; i < (is_slow() ? SEEDS_PER_CASE / 5 : SEEDS_PER_CASE); i++) {
        n_joined += simulate((uint64_t)_i * SEEDS_PER_CASE + i);
        n_resumed += join_sim.n_resumed;
        n_taken += join_sim.n_taken;
        n_moved += join_sim.n_moved;
        n_caught_up += join_sim.n_caught_up;
        n_balanced += join_sim.n_balanced;
        n_begun += join_sim.n_begun;
    }
    ck_assert_uint_gt(n_joined, 0);
    ck_assert_uint_gt(n_resumed, 0);
    ck_assert_uint_gt(n_taken, 0);
    ck_assert_uint_gt(n_moved, 0);
    ck_assert_uint_gt(n_caught_up, 0);
    ck_assert_uint_gt(n_balanced, 0);
    ck_assert_uint_gt(n_begun, 0);
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
