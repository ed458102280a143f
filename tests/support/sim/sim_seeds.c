#include "tests/support/sim/sim_seeds.h"

#include <stdio.h>
#include <time.h>

static double processor_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void sim_run_drawn(void (*draw)(SimScenario *scenario, uint64_t seed), uint64_t seed, bool traces,
                   SimOutcome *outcome)
{
    SimScenario scenario;

    draw(&scenario, seed);
    scenario.options.traces = traces;
    if (traces) {
        g_autofree char *text = sim_scenario_describe(&scenario);
        printf("%s\n", text);
    }
    sim_cluster_run(&scenario, outcome);
}

void sim_run_seed(uint64_t seed, bool traces, SimOutcome *outcome)
{
    sim_run_drawn(sim_scenario_draw, seed, traces, outcome);
}

void sim_add_seed(SimSum *sum, uint64_t seed)
{
    const double began_s = processor_s();
    SimOutcome outcome;

    sim_run_seed(seed, /* traces= */ false, &outcome);
    sum->processor_s += processor_s() - began_s;
    sum->simulated_s += (double)outcome.simulated_ns / 1e9;
    sum->n_seeds++;
    if (sum->digests == NULL)
        sum->digests = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    g_hash_table_add(sum->digests, g_memdup2(&outcome.digest, sizeof outcome.digest));
    sum->n_turns += outcome.n_turns;
    sum->n_packets += outcome.network.n_sent;
    sum->n_cuts += outcome.n_cuts;
    sum->n_ended_well += outcome.n_ended_well;
    sum->n_lost += outcome.n_lost;
    sum->n_failed += outcome.n_failed;
    sum->n_cancelled += outcome.n_cancelled;
}

uint64_t sim_count_interleavings(const SimSum *sum)
{
    return sum->digests != NULL ? g_hash_table_size(sum->digests) : 0;
}

void sim_sum_clear(SimSum *sum)
{
    g_clear_pointer(&sum->digests, g_hash_table_unref);
}

void sim_print_sum(const SimSum *sum)
{
    printf("%" G_GUINT64_FORMAT " seeds, %" G_GUINT64_FORMAT
           " interleavings: %.0f simulated seconds in %.2f s of a processor (%.0f x), "
           "%" G_GUINT64_FORMAT " turns, %" G_GUINT64_FORMAT " packets, %" G_GUINT64_FORMAT
           " cuts; nodes that ended well: "
           "%" G_GUINT64_FORMAT ", lost another: %" G_GUINT64_FORMAT ", had a worker that failed: "
           "%" G_GUINT64_FORMAT ", were cancelled: %" G_GUINT64_FORMAT "\n",
           sum->n_seeds, sim_count_interleavings(sum), sum->simulated_s, sum->processor_s,
           sum->simulated_s / sum->processor_s, sum->n_turns, sum->n_packets, sum->n_cuts,
           sum->n_ended_well, sum->n_lost, sum->n_failed, sum->n_cancelled);
    fflush(stdout);
}

bool sim_can_run(void)
{
#ifdef __has_feature
#if __has_feature(thread_sanitizer)
    printf("skipped: the thread sanitizer takes fibers for one thread\n");
    return false;
#endif
#endif
    return true;
}

uint64_t sim_number_of(const char *variable, uint64_t otherwise)
{
    const char *const text = g_getenv(variable);

    return text != NULL ? g_ascii_strtoull(text, NULL, 10) : otherwise;
}
