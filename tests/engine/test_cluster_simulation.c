/* Whole clusters in simulated time: many seeds, each with other nodes, tables, workers,
 * interleavings and faults; see tests/support/sim/sim_cluster.h.
 *
 * RUBATO_SIM_SEEDS is the number of seeds to run, from RUBATO_SIM_FIRST on, and
 * RUBATO_SIM_DEAF_SEEDS that of clusters with a node that hears no scheduler, and
 * RUBATO_SIM_SLOW_SEEDS that of clusters with slow links. RUBATO_SIM_SEED runs one seed alone and
 * prints everything that happens; with RUBATO_SIM_LOST, a cluster that loses so many servers, one
 * or two; with 3, one that loses workers; with 4 and 5, two servers and one replica, which has been
 * made again in between, or is being made; with 6, a node that is drained; with 7, one while parts
 * without replicas move; with 8, one whose workers are replaced; with 9, one whose workers read a
 * split that cuts keep (RUBATO_SIM_KEPT_SEEDS of them); with 10, one that loses a node, or two,
 * while a task begins; with 11, one with ragged rows (RUBATO_SIM_RAGGED_SEEDS); with 12, one with
 * the split that cuts keep, which loses a node. RUBATO_SIM_NODES is the number of nodes of the one
 * large cluster. RUBATO_SIM_LESS divides the number of programs and streams. */
#include <stdio.h>

#include "tests/support/runner.h"
#include "tests/support/sim/sim_seeds.h"

#define DEFAULT_SEEDS 1600
#define SLOW_SEEDS 160 /* without optimisation, or with a sanitizer */
#define N_BATCHES 8
#define N_SEED_BATCHES 20 /* of the seeds that are the most */

/* So many of n programs or streams, which are always the same. */
static uint64_t fewer(uint64_t n)
{
    const uint64_t few = n / sim_number_of("RUBATO_SIM_LESS", 1);

    return MAX(few, 1);
}

START_TEST(clusters_keep_their_promises_and_end)
{
    const uint64_t n = sim_number_of("RUBATO_SIM_SEEDS", is_slow() ? SLOW_SEEDS : DEFAULT_SEEDS);
    const uint64_t first = sim_number_of("RUBATO_SIM_FIRST", 0);
    g_auto(SimSum) sum = { 0 };

    for (uint64_t seed = first + (uint64_t)_i; seed < first + n; seed += N_SEED_BATCHES)
        sim_add_seed(&sum, seed);
    sim_print_sum(&sum);
    ck_assert_uint_eq(sim_count_interleavings(&sum), sum.n_seeds);
    if (sum.n_seeds >= 40) /* in fewer there may be few cuts */
        ck_assert_uint_gt(sum.n_cuts, sum.n_seeds / 2);
}
END_TEST

/* Otherwise every loss of a node would count as one that the network has caused. */
START_TEST(a_network_without_faults_is_no_reason_to_lose_a_node)
{
    for (uint64_t seed = 0; seed < 40; seed++) {
        SimScenario scenario;
        SimOutcome outcome;
        sim_scenario_draw(&scenario, seed);
        scenario.n_faults = 0;
        sim_cluster_run(&scenario, &outcome);
        ck_assert_uint_eq(outcome.n_lost, 0);
        ck_assert_msg(outcome.silence_ms < scenario.timeout_ms / 2 &&
                          outcome.outage_ms < scenario.timeout_ms / 2,
                      "seed %" G_GUINT64_FORMAT ": nothing was heard for %u ms, or a link was out "
                      "for %u, of a timeout of %u",
                      seed, (unsigned)outcome.silence_ms, (unsigned)outcome.outage_ms,
                      scenario.timeout_ms);
    }
}
END_TEST

/* Seeds with which a node's last words found no room on the link to the scheduler. */
static const uint64_t speechless[] = { 253, 521, 656, 915 };

/* The node gives up after a timeout. Even if its last words do not arrive, all others are told
 * within two more. A worker that computes notices it afterwards. */
static void run_deaf(uint64_t seed)
{
    SimScenario scenario;
    SimOutcome outcome;

    sim_scenario_draw_deaf(&scenario, seed);
    sim_cluster_run(&scenario, &outcome);
    const int64_t timeout_ms = scenario.timeout_ms;
    const int64_t thinks_ms = SIM_SLOW_WORKER * scenario.think_ns / SIM_MS + 1;
    const int64_t late_ms = outcome.failed_ms - scenario.faults[0].at_ms;
    if (late_ms > 3 * timeout_ms + thinks_ms)
        ck_abort_msg("seed %" G_GUINT64_FORMAT ": a node is told after %" G_GINT64_FORMAT " ms",
                     seed, late_ms);
    if (outcome.n_lost + outcome.n_ended_well != scenario.n_nodes)
        ck_abort_msg("seed %" G_GUINT64_FORMAT ": a node does not say that another is lost", seed);
}

/* What the scheduler sends to one other node is lost for longer than the timeout, while it hears
 * that node: that node gives up first. The error of every node says so, whatever each was doing. */
START_TEST(a_node_that_hears_no_scheduler_ends_the_run_for_all)
{
    const uint64_t n = sim_number_of("RUBATO_SIM_DEAF_SEEDS", is_slow() ? 40 : 200);
    const uint64_t first = sim_number_of("RUBATO_SIM_FIRST", 0);

    for (uint64_t seed = first + (uint64_t)_i; seed < first + n; seed += N_BATCHES)
        run_deaf(seed);
    if ((size_t)_i < G_N_ELEMENTS(speechless))
        run_deaf(speechless[_i]);
}
END_TEST

/* No common clock comes any more, for which Gets and servers wait. Each of these waits ends with
 * the run, which ends without its scheduler: with an error on each node that had not ended
 * before. */
START_TEST(a_lost_root_of_clocks_ends_every_wait_for_them)
{
    const uint64_t n = is_slow() ? 24 : 100;
    const uint64_t first = sim_number_of("RUBATO_SIM_FIRST", 0);
    uint32_t n_lost = 0;

    for (uint64_t seed = first; seed < first + n; seed++) {
        SimScenario scenario;
        SimOutcome outcome;

        sim_scenario_draw_rootless(&scenario, seed);
        sim_cluster_run(&scenario, &outcome);
        /* the root itself counts if it had ended before */
        if (outcome.n_lost + outcome.n_ended_well < scenario.n_nodes - 1)
            ck_abort_msg("seed %" G_GUINT64_FORMAT ": a node does not say that the scheduler's is "
                         "lost",
                         seed);
        n_lost += outcome.n_lost;
    }
    ck_assert_uint_gt(n_lost, n); /* of most, some worked */
}
END_TEST

/* What was sent again because it was asked for may then come too late. Whoever is lost, the error
 * of each node says so. */
START_TEST(a_network_slower_than_the_timeout_may_lose_a_node)
{
    const uint64_t n = sim_number_of("RUBATO_SIM_SLOW_SEEDS", is_slow() ? 20 : 100);
    const uint64_t first = sim_number_of("RUBATO_SIM_FIRST", 0);

    for (uint64_t seed = first; seed < first + n; seed++) {
        SimScenario scenario;
        SimOutcome outcome;
        sim_scenario_draw_slow(&scenario, seed);
        sim_cluster_run(&scenario, &outcome);
        ck_assert_uint_eq(outcome.n_lost + outcome.n_ended_well, scenario.n_nodes);
    }
}
END_TEST

/* Draws batch i of the seeds, usually of so many, each with so many lost nodes. */
static void run_losses(void (*draw)(SimScenario *scenario, uint64_t seed), uint64_t usual,
                       uint32_t n_lost, int i)
{
    const uint64_t n = sim_number_of("RUBATO_SIM_LOSS_SEEDS", is_slow() ? usual / 8 : usual);
    const uint64_t first = sim_number_of("RUBATO_SIM_FIRST", 0);
    uint32_t n_ended_well = 0, n_nodes = 0;

    for (uint64_t seed = first + (uint64_t)i; seed < first + n; seed += N_BATCHES) {
        SimScenario scenario;
        SimOutcome outcome;

        draw(&scenario, seed);
        scenario.options.traces = g_getenv("RUBATO_SIM_TRACES") != NULL;
        sim_cluster_run(&scenario, &outcome);
        n_ended_well += outcome.n_ended_well;
        n_nodes += scenario.n_nodes - n_lost;
    }
    ck_assert_uint_gt(n_ended_well, n_nodes / 2); /* others had not begun when one was killed */
}

/* A server's node is lost while workers of others use its parts. They notice nothing: every row is
 * what their Adds make it, and every replica that is left is what its primary is. */
START_TEST(a_lost_server_ends_no_task_and_loses_no_add)
{
    run_losses(sim_scenario_draw_loss, 800, 1, _i);
}
END_TEST

/* Its workers are lost with it, and the task goes on: the Adds of the others count, and the first
 * ones of the lost workers, once on all replicas; under BSP those of whole clocks. */
START_TEST(a_task_continues_without_the_workers_of_a_lost_node)
{
    run_losses(sim_scenario_draw_worker_loss, 200, 1, _i); /* or two */
}
END_TEST

/* Its workers are lost with it, and other processes have them again: all rows are what all Adds
 * make them, each once, and nobody waits for ever. */
START_TEST(a_task_waits_for_the_workers_of_a_lost_node)
{
    const uint64_t n = sim_number_of("RUBATO_SIM_LOSS_SEEDS", is_slow() ? 100 : 320) / 4;
    const uint64_t first = sim_number_of("RUBATO_SIM_FIRST", 0);
    uint32_t n_replaced = 0, n_too_late = 0, n_ended_well = 0;

    for (uint64_t seed = first + (uint64_t)_i; seed < first + n; seed += N_BATCHES) {
        SimOutcome outcome;

        sim_run_drawn(sim_scenario_draw_replaced, seed, /* traces= */ false, &outcome);
        n_replaced += outcome.n_replaced;
        n_too_late += outcome.n_too_late;
        n_ended_well += outcome.n_ended_well;
    }
    if (n / N_BATCHES < 8) /* some may have none of these */
        return;
    ck_assert_uint_gt(n_replaced, n / N_BATCHES / 4);
    ck_assert_uint_gt(n_ended_well, n / N_BATCHES);
    ck_assert_uint_gt(n_too_late, 0);
}
END_TEST

/* Between the calls of the first node and of the last one, and their ends: the task begins without
 * the node, or without its workers. */
START_TEST(a_task_begins_although_a_node_is_lost_meanwhile)
{
    run_losses(sim_scenario_draw_start, 400, 1, _i); /* or two */
}
END_TEST

/* The second node is lost before, while, or after the parts of the first get other primaries. */
START_TEST(two_lost_servers_end_no_task_and_lose_no_add)
{
    run_losses(sim_scenario_draw_losses, 800, 2, _i);
}
END_TEST

/* Each part has one replica, and has another one when the second node is lost. A third of the
 * seeds lose workers, too. */
START_TEST(a_second_loss_loses_nothing_that_has_a_replica_again)
{
    run_losses(sim_scenario_draw_restored, 800, 2, _i);
}
END_TEST

/* With one replica, parts that have no new one yet are lost, and the run ends. */
START_TEST(a_second_loss_while_replicas_are_made_hangs_nobody)
{
    run_losses(sim_scenario_draw_overlap, 400, 2, _i);
}
END_TEST

/* Its parts go to other nodes while workers use them: nobody notices anything. It has nothing left
 * then, and may end. */
START_TEST(a_node_that_is_drained_has_nothing_and_nothing_is_lost)
{
    run_losses(sim_scenario_draw_drain, 400, 0, _i);
}
END_TEST

/* Parts without replicas move between nodes meanwhile. A move whose node is lost ends in an error,
 * and others go on: also those that begin after the loss. The same is true of the cuts of
 * snapshots. The run ends if such a part was on the lost node, and a task fails if what it had
 * there was on its way. */
START_TEST(a_move_whose_node_is_lost_hangs_nobody)
{
    const uint64_t n = sim_number_of("RUBATO_SIM_LOSS_SEEDS", is_slow() ? 80 : 400);
    const uint64_t first = sim_number_of("RUBATO_SIM_FIRST", 0);
    uint32_t n_ended_well = 0;
    uint64_t n_cuts_after = 0, n_went_on = 0;

    for (uint64_t seed = first + (uint64_t)_i; seed < first + n; seed += N_BATCHES) {
        SimOutcome outcome;

        sim_run_drawn(sim_scenario_draw_moves, seed, /* traces= */ false, &outcome);
        n_ended_well += outcome.n_ended_well;
        n_cuts_after += outcome.n_cuts_after;
        n_went_on += outcome.n_went_on;
    }
    if (n / N_BATCHES >= 8) { /* in fewer there may be none */
        ck_assert_uint_gt(n_cuts_after, 0);
        ck_assert_uint_gt(n_went_on, 0);
        ck_assert_uint_gt(n_ended_well, n / N_BATCHES / 2); /* most runs lose a part */
    }
}
END_TEST

/* Requests to ragged rows are calls of handlers, in pieces: all that is promised of rows of one
 * length holds for them, while parts move, nodes are lost, drained and replaced. */
START_TEST(ragged_rows_keep_their_promises)
{
    const uint64_t n = sim_number_of("RUBATO_SIM_RAGGED_SEEDS", is_slow() ? 16 : 160);
    const uint64_t first = sim_number_of("RUBATO_SIM_FIRST", 0);
    uint32_t n_ended_well = 0;

    for (uint64_t seed = first + (uint64_t)_i; seed < first + n; seed += N_BATCHES) {
        SimOutcome outcome;

        sim_run_drawn(sim_scenario_draw_ragged, seed, /* traces= */ false, &outcome);
        n_ended_well += outcome.n_ended_well;
    }
    if (n / N_BATCHES >= 8) /* in fewer there may be none */
        ck_assert_uint_ge(n_ended_well, n / N_BATCHES);
}
END_TEST

/* A cut has a row of the training data as done exactly if it has what came of it, under each model,
 * while parts move. */
START_TEST(a_cut_has_the_place_in_the_data_that_its_rows_have)
{
    const uint64_t n = sim_number_of("RUBATO_SIM_KEPT_SEEDS", is_slow() ? 24 : 80);
    const uint64_t first = sim_number_of("RUBATO_SIM_FIRST", 0);
    uint64_t n_cuts = 0;

    for (uint64_t seed = first + (uint64_t)_i; seed < first + n; seed += N_BATCHES) {
        SimOutcome outcome;

        sim_run_drawn(sim_scenario_draw_kept, seed, /* traces= */ false, &outcome);
        n_cuts += outcome.n_cuts;
    }
    printf("%" G_GUINT64_FORMAT " cuts with a reader\n", n_cuts);
    ck_assert_uint_gt(n_cuts, n / N_BATCHES);
}
END_TEST

/* The same if a node with workers is killed at any time, and its workers are replaced, or are not;
 * nor is a row left out. */
START_TEST(a_cut_has_that_place_also_after_a_loss)
{
    const uint64_t n = sim_number_of("RUBATO_SIM_KEPT_SEEDS", is_slow() ? 16 : 80);
    const uint64_t first = sim_number_of("RUBATO_SIM_FIRST", 0);
    uint64_t n_after = 0, n_ended_well = 0;

    for (uint64_t seed = first + (uint64_t)_i; seed < first + n; seed += N_BATCHES) {
        SimOutcome outcome;

        sim_run_drawn(sim_scenario_draw_kept_loss, seed, g_getenv("RUBATO_SIM_TRACES") != NULL,
                      &outcome);
        n_after += outcome.n_cuts_after;
        n_ended_well += outcome.n_ended_well;
    }
    if (n / N_BATCHES >= 8) { /* in fewer there may be none */
        ck_assert_uint_gt(n_after, 0);
        ck_assert_uint_gt(n_ended_well, n / N_BATCHES);
    }
}
END_TEST

/* Seeds with which the new primary of a part ended a task before a replica knew it as primary; with
 * which the last fence of a task came to a new primary before the last clocks; with which a table
 * was dropped when two nodes were lost, and the parts of one of them with both; with which a node
 * that had given up the scheduler's stopped node ended while that one compared replicas; with which
 * the node of a worker that was to fail was lost before its tasks; with which a lost node, which
 * had ended its task, told a replica so. */
static const uint64_t late_ends[] = { 1546, 1044, 300723, 214500, 301728, 111344 };

/* Under bsp a server had not heard the last clocks when its node would have said that the task had
 * ended there, and Adds of the last iteration were lost. */
START_TEST(a_task_ends_once_servers_have_counted_its_last_clocks)
{
    SimOutcome outcome;

    sim_run_seed(700035, /* traces= */ false, &outcome);
}
END_TEST

START_TEST(what_ends_while_parts_get_another_primary_ends)
{
    SimOutcome outcome;

    sim_run_seed(late_ends[_i], /* traces= */ false, &outcome);
    ck_assert_uint_gt(outcome.n_lost + outcome.n_ended_well + outcome.n_cancelled, 0);
}
END_TEST

/* Seeds with which workers of two nodes were sending to each other's node when the second server
 * was lost: each waited for room that answers were to bring back, which waited for a replica on the
 * lost node, and the maps of both waited for their worker. With the last seed they did so since the
 * first server had been lost. */
static const uint64_t full_windows[] = { 2434, 100736, 19726 };

START_TEST(a_worker_that_waits_for_room_holds_up_no_recovery)
{
    SimOutcome outcome;

    sim_run_drawn(sim_scenario_draw_losses, full_windows[_i], /* traces= */ false, &outcome);
    ck_assert_uint_gt(outcome.n_ended_well, 0);
}
END_TEST

/* Each program is run on several clusters, with other faults. */
START_TEST(bsp_is_the_same_to_the_bit_on_every_cluster)
{
    const uint64_t n_programs = fewer(is_slow() ? 12 : 72);

    for (uint64_t program = 1; program <= n_programs; program++) {
        uint64_t expected = 0;
        for (uint64_t i = 0; i < 4; i++) {
            SimScenario scenario;
            SimOutcome outcome;
            sim_scenario_draw_exact(&scenario, program * 4 + i, program);
            sim_cluster_run(&scenario, &outcome);
            if (outcome.n_ended_well < scenario.n_nodes)
                continue; /* a node was lost */
            if (expected != 0 && outcome.rows_digest != expected)
                ck_abort_msg("program %" G_GUINT64_FORMAT " ends otherwise on the cluster of seed "
                             "%" G_GUINT64_FORMAT,
                             program, scenario.seed);
            expected = outcome.rows_digest;
        }
        ck_assert_uint_ne(expected, 0);
    }
}
END_TEST

/* Runs each program without faults, and on clusters that lose so many nodes while it runs, or
 * before, or after. */
static void compare_losses(void (*draw)(SimScenario *scenario, uint64_t seed, uint64_t program),
                           uint64_t n_programs, uint32_t n_lost)
{
    uint64_t n_losses = 0;

    for (uint64_t program = 1; program <= n_programs; program++) {
        SimScenario scenario;
        SimOutcome undisturbed;

        sim_scenario_draw_exact(&scenario, program, program);
        scenario.n_faults = 0;
        sim_cluster_run(&scenario, &undisturbed);
        ck_assert_uint_eq(undisturbed.n_ended_well, scenario.n_nodes);
        for (uint64_t i = 0; i < 5; i++) {
            SimOutcome outcome;

            draw(&scenario, program * 4 + i, program);
            sim_cluster_run(&scenario, &outcome);
            if (outcome.n_ended_well < scenario.n_nodes - n_lost)
                continue; /* one was lost before the task had begun */
            if (outcome.rows_digest != undisturbed.rows_digest)
                ck_abort_msg("program %" G_GUINT64_FORMAT " ends otherwise on the cluster of seed "
                             "%" G_GUINT64_FORMAT ", which lost %u",
                             program, scenario.seed, n_lost);
            n_losses += outcome.n_ended_well == scenario.n_nodes - n_lost;
        }
    }
    ck_assert_uint_gt(n_losses, n_programs);
}

START_TEST(bsp_is_the_same_to_the_bit_after_a_loss)
{
    compare_losses(sim_scenario_draw_exact_loss, fewer(is_slow() ? 12 : 48), 1);
}
END_TEST

/* The second node is lost once each part has a replica again: so parts may have a primary that was
 * made from an image, with the Adds that the model kept then. */
START_TEST(bsp_is_the_same_to_the_bit_after_a_second_loss)
{
    compare_losses(sim_scenario_draw_exact_restored, fewer(is_slow() ? 8 : 32), 2);
}
END_TEST

START_TEST(bsp_is_the_same_to_the_bit_after_workers_were_replaced)
{
    compare_losses(sim_scenario_draw_exact_replaced, fewer(is_slow() ? 4 : 16), 1);
}
END_TEST

START_TEST(bsp_is_the_same_to_the_bit_while_a_node_is_drained)
{
    compare_losses(sim_scenario_draw_exact_drain, fewer(is_slow() ? 8 : 32), 0);
}
END_TEST

/* How long a Get beside a stream of the other priority may take, and how long it may take if its
 * worker has the same hash as another, because the requests of these two keep their order.
 *
 * Each call of the stream takes a millisecond. One of them runs when the Get comes. A Get of high
 * priority is next, and is answered at once. Before one of normal priority eight more are handled,
 * and eight others before its answer leaves. On its way, and on the way back, it may wait for one
 * packet that is not acknowledged. A millisecond is for everything else. */
static void bounds_of(const SimScenario *scenario, int64_t *usual_ns, int64_t *most_ns)
{
    const SimLink *const link = &scenario->network.usual[0][1];
    const bool beside_high = scenario->stream == RUBATO_PRIORITY_HIGH;
    const int64_t ways_ns = (beside_high ? 6 : 2) * (link->least_ns + link->spread_ns);

    *usual_ns = ways_ns + (beside_high ? 1 + 8 + 8 + 1 : 1 + 1) * SIM_MS;
    *most_ns = *usual_ns + (beside_high ? 9 : 3) * SIM_STREAM_AHEAD * SIM_MS;
}

/* One in 64 pairs of workers has the same hash, so few seeds have such a pair. */
START_TEST(requests_of_either_priority_pass_a_stream_of_the_other)
{
    const RubatoPriority stream = _i == 0 ? RUBATO_PRIORITY_HIGH : RUBATO_PRIORITY_NORMAL;
    const uint64_t n = fewer(is_slow() ? 24 : 96);
    uint64_t n_late = 0;

    sim_priority_register();
    for (uint64_t seed = 0; seed < n; seed++) {
        SimScenario scenario;
        SimOutcome outcome;
        int64_t usual_ns, most_ns;
        sim_scenario_draw_stream(&scenario, seed, stream);
        bounds_of(&scenario, &usual_ns, &most_ns);
        sim_cluster_run(&scenario, &outcome);
        ck_assert_uint_eq(outcome.n_ended_well, scenario.n_nodes);
        if (outcome.longest_get_ns > most_ns)
            ck_abort_msg("seed %" G_GUINT64_FORMAT ": a Get took %" G_GINT64_FORMAT
                         " us beside a stream, and not at most %" G_GINT64_FORMAT,
                         seed, outcome.longest_get_ns / 1000, most_ns / 1000);
        n_late += outcome.longest_get_ns > usual_ns;
    }
    ck_assert_uint_le(n_late, n / 4);
}
END_TEST

/* Each with a server and a worker. Their work is little, but the messages that grow with the number
 * of nodes are all there. */
START_TEST(many_nodes_meet_work_and_end)
{
    const uint32_t n_nodes = (uint32_t)sim_number_of("RUBATO_SIM_NODES", 48);
    SimScenario scenario;
    SimOutcome outcome;

    ck_assert_uint_le(n_nodes, SIM_MOST_NODES);
    sim_scenario_draw_large(&scenario, n_nodes);
    sim_cluster_run(&scenario, &outcome);
    ck_assert_uint_eq(outcome.n_ended_well, n_nodes);
    /* each greets each other one; tasks must not take a message between any two nodes, too */
    ck_assert_uint_lt(outcome.network.n_sent, (uint64_t)8 * n_nodes * n_nodes);
    printf("%u nodes: %.2f simulated seconds, %" G_GUINT64_FORMAT " turns, %" G_GUINT64_FORMAT
           " packets\n",
           n_nodes, (double)outcome.simulated_ns / 1e9, outcome.n_turns, outcome.network.n_sent);
}
END_TEST

START_TEST(a_seed_runs_again_bit_for_bit)
{
    for (uint64_t seed = 0; seed < fewer(40); seed++) {
        SimOutcome once, again;
        sim_run_seed(seed, /* traces= */ false, &once);
        sim_run_seed(seed, /* traces= */ false, &again);
        ck_assert_uint_eq(once.digest, again.digest);
        ck_assert_uint_eq(once.n_turns, again.n_turns);
        ck_assert_int_eq(once.simulated_ns, again.simulated_ns);
    }
}
END_TEST

START_TEST(the_seed_that_is_asked_for)
{
    void (*const draws[])(SimScenario * scenario, uint64_t seed) = {
        sim_scenario_draw,           sim_scenario_draw_loss,
        sim_scenario_draw_losses,    sim_scenario_draw_worker_loss,
        sim_scenario_draw_restored,  sim_scenario_draw_overlap,
        sim_scenario_draw_drain,     sim_scenario_draw_moves,
        sim_scenario_draw_replaced,  sim_scenario_draw_kept,
        sim_scenario_draw_start,     sim_scenario_draw_ragged,
        sim_scenario_draw_kept_loss,
    };
    const uint64_t n_lost = sim_number_of("RUBATO_SIM_LOST", 0);
    SimOutcome outcome;

    ck_assert_uint_lt(n_lost, G_N_ELEMENTS(draws));
    sim_run_drawn(draws[n_lost], sim_number_of("RUBATO_SIM_SEED", 0), /* traces= */ true, &outcome);
    printf("its digest is %016" G_GINT64_MODIFIER "x\n", outcome.digest);
}
END_TEST

int main(void)
{
    if (!sim_can_run())
        return TEST_SKIPPED;

    Suite *const suite = suite_create("cluster simulation");
    TCase *const cases = tcase_create("cluster simulation");
    TCase *const deaf = tcase_create("deaf");
    TCase *const moves = tcase_create("moves");
    TCase *const replaced = tcase_create("replaced");
    TCase *const kept = tcase_create("kept");
    TCase *const ragged = tcase_create("ragged");
    TCase *const large = tcase_create("large");

    tcase_set_timeout(cases, 30);
    tcase_set_timeout(deaf, 30);
    tcase_set_timeout(moves, 30);
    tcase_set_timeout(replaced, 30);
    tcase_set_timeout(kept, 30);
    tcase_set_timeout(ragged, 30);
    tcase_set_timeout(large, 60);
    if (g_getenv("RUBATO_SIM_SEED") != NULL) {
        tcase_add_test(cases, the_seed_that_is_asked_for);
    } else {
        tcase_add_loop_test(cases, clusters_keep_their_promises_and_end, 0, N_SEED_BATCHES);
        tcase_add_loop_test(cases, a_lost_server_ends_no_task_and_loses_no_add, 0, N_BATCHES);
        tcase_add_loop_test(cases, a_task_continues_without_the_workers_of_a_lost_node, 0,
                            N_BATCHES);
        tcase_add_loop_test(replaced, a_task_begins_although_a_node_is_lost_meanwhile, 0,
                            N_BATCHES);
        tcase_add_loop_test(replaced, a_task_waits_for_the_workers_of_a_lost_node, 0, N_BATCHES);
        tcase_add_loop_test(cases, two_lost_servers_end_no_task_and_lose_no_add, 0, N_BATCHES);
        tcase_add_loop_test(cases, a_second_loss_loses_nothing_that_has_a_replica_again, 0,
                            N_BATCHES);
        tcase_add_loop_test(cases, a_second_loss_while_replicas_are_made_hangs_nobody, 0,
                            N_BATCHES);
        tcase_add_test(cases, a_task_ends_once_servers_have_counted_its_last_clocks);
        tcase_add_loop_test(cases, a_node_that_is_drained_has_nothing_and_nothing_is_lost, 0,
                            N_BATCHES);
        tcase_add_loop_test(moves, a_move_whose_node_is_lost_hangs_nobody, 0, N_BATCHES);
        tcase_add_loop_test(ragged, ragged_rows_keep_their_promises, 0, N_BATCHES);
        tcase_add_loop_test(kept, a_cut_has_the_place_in_the_data_that_its_rows_have, 0, N_BATCHES);
        tcase_add_loop_test(kept, a_cut_has_that_place_also_after_a_loss, 0, N_BATCHES);
        tcase_add_loop_test(cases, what_ends_while_parts_get_another_primary_ends, 0,
                            G_N_ELEMENTS(late_ends));
        tcase_add_loop_test(cases, a_worker_that_waits_for_room_holds_up_no_recovery, 0,
                            G_N_ELEMENTS(full_windows));
        tcase_add_test(cases, a_network_without_faults_is_no_reason_to_lose_a_node);
        tcase_add_loop_test(deaf, a_node_that_hears_no_scheduler_ends_the_run_for_all, 0,
                            N_BATCHES);
        tcase_add_test(deaf, a_lost_root_of_clocks_ends_every_wait_for_them);
        tcase_add_test(deaf, a_network_slower_than_the_timeout_may_lose_a_node);
        tcase_add_test(cases, bsp_is_the_same_to_the_bit_on_every_cluster);
        tcase_add_test(cases, bsp_is_the_same_to_the_bit_after_a_loss);
        tcase_add_test(cases, bsp_is_the_same_to_the_bit_after_a_second_loss);
        tcase_add_test(replaced, bsp_is_the_same_to_the_bit_after_workers_were_replaced);
        tcase_add_test(cases, bsp_is_the_same_to_the_bit_while_a_node_is_drained);
        tcase_add_loop_test(cases, requests_of_either_priority_pass_a_stream_of_the_other, 0, 2);
        tcase_add_test(large, many_nodes_meet_work_and_end);
        tcase_add_test(cases, a_seed_runs_again_bit_for_bit);
    }
    suite_add_tcase(suite, cases);
    suite_add_tcase(suite, deaf);
    suite_add_tcase(suite, moves);
    suite_add_tcase(suite, replaced);
    suite_add_tcase(suite, kept);
    suite_add_tcase(suite, ragged);
    suite_add_tcase(suite, large);
    return run_suite(suite);
}
