/* A list of Adds for each worker and key, with their clocks and the sums up to each. */
#include "tests/support/sim/sim_history.h"

#include <string.h>

#include "tests/support/sim/sim.h"

typedef struct {
    uint64_t clock;
    uint64_t number;     /* among the Adds of all histories: the same for all keys of a call */
    uint32_t n_barriers; /* that its worker had reached */
    int64_t sum;         /* of all Adds before */
} Added;

typedef struct {
    Added *added; /* n of them, and one more, without a clock: the sum of all */
    uint32_t n, room;
    uint32_t n_made;  /* by the worker's present process, and by others before its first clock */
    uint32_t n_shown; /* so many Adds a Get has shown */
} Log;

struct SimHistory {
    char *name;
    SimModel model;
    uint64_t staleness;
    bool has_cache; /* a Get may be answered with rows that were read earlier */
    bool has_adopted;
    bool replaces, may_be_ahead;
    uint64_t *first_clocks; /* of each worker that is in the place of a lost one; else UINT64_MAX */
    uint32_t *n_barriers;   /* that each worker has reached */
    uint32_t *nodes;        /* of each worker of the task; UINT32_MAX: it has not begun */
    uint64_t lost_nodes;    /* a bit for each */
    RubatoKey first_key;
    uint32_t n_keys, n_workers;
    Log *logs; /* by key, then worker */
};

static Log *log_of(const SimHistory *history, RubatoKey key, uint32_t worker)
{
    g_assert(key - history->first_key < history->n_keys && worker < history->n_workers);
    return &history->logs[(key - history->first_key) * history->n_workers + worker];
}

SimHistory *sim_history_new(const char *name, SimModel model, uint64_t staleness, bool has_cache,
                            RubatoKey first_key, uint32_t n_keys, uint32_t n_workers)
{
    SimHistory *const history = g_new0(SimHistory, 1);
    const size_t n_logs = (size_t)n_keys * n_workers;

    history->name = g_strdup(name);
    history->model = model;
    history->staleness = staleness;
    history->has_cache = has_cache;
    history->n_barriers = g_new0(uint32_t, n_workers);
    history->nodes = g_new(uint32_t, n_workers);
    memset(history->nodes, 0xff, n_workers * sizeof *history->nodes);
    history->first_clocks = g_new(uint64_t, n_workers);
    memset(history->first_clocks, 0xff, n_workers * sizeof *history->first_clocks);
    history->first_key = first_key;
    history->n_keys = n_keys;
    history->n_workers = n_workers;
    history->logs = g_new0(Log, n_logs);
    for (size_t i = 0; i < n_logs; i++) {
        history->logs[i].room = 4;
        history->logs[i].added = g_new0(Added, 4);
    }
    return history;
}

void sim_history_free(SimHistory *history)
{
    if (history == NULL)
        return;
    for (size_t i = 0; i < (size_t)history->n_keys * history->n_workers; i++)
        g_free(history->logs[i].added);
    g_free(history->logs);
    g_free(history->n_barriers);
    g_free(history->nodes);
    g_free(history->first_clocks);
    g_free(history->name);
    g_free(history);
}

void sim_history_begin_task(SimHistory *history)
{
    for (size_t i = 0; i < (size_t)history->n_keys * history->n_workers; i++) {
        Log *const log = &history->logs[i];
        log->added[0].sum = log->added[log->n].sum;
        log->n = log->n_made = log->n_shown = 0;
    }
    memset(history->nodes, 0xff, history->n_workers * sizeof *history->nodes);
    memset(history->first_clocks, 0xff, history->n_workers * sizeof *history->first_clocks);
    memset(history->n_barriers, 0, history->n_workers * sizeof *history->n_barriers);
}

void sim_history_replace(SimHistory *history, bool may_be_ahead)
{
    history->replaces = true;
    history->may_be_ahead = may_be_ahead;
}

void sim_history_lose_node(SimHistory *history, uint32_t node)
{
    history->lost_nodes |= UINT64_C(1) << node;
}

static bool is_lost_node(const SimHistory *history, uint32_t node)
{
    return node != UINT32_MAX && (history->lost_nodes >> node & 1) != 0;
}

static bool is_lost(const SimHistory *history, uint32_t worker)
{
    return !history->replaces && is_lost_node(history, history->nodes[worker]);
}

void sim_history_enter_barrier(SimHistory *history, uint32_t worker)
{
    history->n_barriers[worker]++;
}

static void append(const SimHistory *history, Log *log, uint32_t worker, uint64_t clock,
                   uint64_t number)
{
    const int64_t delta = 1 + (int64_t)sim_below(UINT64_C(1) << 44);

    if (log->n + 2 > log->room) {
        log->room *= 2;
        log->added = g_renew(Added, log->added, log->room);
    }
    log->added[log->n].clock = clock;
    log->added[log->n].number = number;
    log->added[log->n].n_barriers = history->n_barriers[worker];
    log->added[log->n + 1].sum = log->added[log->n].sum + delta;
    log->n++;
}

void sim_history_add(SimHistory *history, uint32_t worker, uint64_t clock, const RubatoKey *keys,
                     size_t n, int64_t *deltas)
{
    static uint64_t n_calls; /* only their order matters */

    memset(deltas, 0, n * history->n_workers * sizeof *deltas);
    n_calls++;
    for (size_t i = 0; i < n; i++) {
        Log *const log = log_of(history, keys[i], worker);

        if (log->n_made == log->n)
            append(history, log, worker, clock, n_calls);
        const Added *const added = &log->added[log->n_made];
        if (added->clock != clock && !is_lost_node(history, sim_node()))
            sim_fail("table %s, key %" G_GUINT64_FORMAT ": worker %u makes again at clock %" //
                     G_GUINT64_FORMAT " an Add of clock %" G_GUINT64_FORMAT,
                     history->name, keys[i], worker, clock, added->clock);
        deltas[i * history->n_workers + worker] = added[1].sum - added->sum;
        log->n_made++;
    }
}

/* Adds of clocks below this. */
static uint32_t count_before(const Log *log, uint64_t clock)
{
    uint32_t low = 0, high = log->n;

    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (log->added[middle].clock < clock)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool sim_history_begin_worker(SimHistory *history, uint32_t worker, uint32_t node, uint64_t clock,
                              uint32_t n_barriers)
{
    const bool is_again = history->nodes[worker] != UINT32_MAX;

    history->nodes[worker] = node;
    history->n_barriers[worker] = n_barriers;
    if (is_again)
        history->first_clocks[worker] = clock;
    for (size_t i = 0; i < (size_t)history->n_keys; i++) {
        Log *const log = log_of(history, history->first_key + i, worker);

        log->n_made = count_before(log, clock);
    }
    return is_again;
}

/* Adds before the worker reached the last of n barriers. */
static uint32_t count_before_barrier(const Log *log, uint32_t n_barriers)
{
    uint32_t n = log->n;

    while (n > 0 && log->added[n - 1].n_barriers >= n_barriers)
        n--;
    return n;
}

void sim_history_begin_get(SimHistory *history, SimGet *get, uint32_t worker, uint64_t clock,
                           const RubatoKey *keys, size_t n)
{
    *get = (SimGet){
        .worker = worker, .clock = clock, .n_barriers = history->n_barriers[worker], .n = n
    };
    get->keys = g_memdup2(keys, n * sizeof *keys);
    get->least = g_new(uint32_t, n);
    for (size_t i = 0; i < n; i++)
        get->least[i] = log_of(history, keys[i], worker)->n_made;
}

/* The last barrier that both workers have passed. One that is lost may have come to its last one
 * without its node having told that its Adds had arrived. */
static uint32_t barriers_since(const SimHistory *history, const SimGet *get, uint32_t worker)
{
    const uint32_t n = history->n_barriers[worker];

    return is_lost(history, worker) ? MIN(get->n_barriers, n > 0 ? n - 1 : 0) : get->n_barriers;
}

/* How many Adds of a worker the Get must see, and may see. Of a worker that is lost with its node,
 * those count that had come. */
static void find_bounds(const SimHistory *history, const SimGet *get, size_t i, uint32_t worker,
                        uint32_t *least, uint32_t *most)
{
    const Log *const log = log_of(history, get->keys[i], worker);
    const uint64_t stale = MIN(history->staleness, get->clock);

    switch (history->model) {
    case SIM_MODEL_BSP:
        *most = count_before(log, get->clock);
        *least = is_lost(history, worker) ? 0 : *most;
        if (history->may_be_ahead && get->clock == history->first_clocks[get->worker])
            *most = count_before(log, get->clock + 1);
        return;
    case SIM_MODEL_ASP:
        *least = 0;
        break;
    case SIM_MODEL_SSP:
    case SIM_MODEL_SPARSE_SSP:
        *least = is_lost(history, worker) ? 0 : count_before(log, get->clock - stale);
        break;
    }
    *most = log->n;
    if (worker == get->worker)
        *least = get->least[i];
    if (!history->has_cache) {
        const uint32_t n = count_before_barrier(log, barriers_since(history, get, worker));
        *least = MAX(*least, n);
    }
}

/* Whether they are all Adds of some clocks. */
static bool are_whole_clocks(const Log *log, uint32_t n)
{
    return n == 0 || n == log->n || log->added[n - 1].clock != log->added[n].clock;
}

void sim_history_end_get(SimHistory *history, SimGet *get, const int64_t *rows)
{
    if (is_lost_node(history, sim_node())) /* it goes on when all others have ended */
        return;
    for (size_t i = 0; i < get->n; i++)
        for (uint32_t worker = 0; worker < history->n_workers; worker++) {
            Log *const log = log_of(history, get->keys[i], worker);
            const int64_t sum = rows[i * history->n_workers + worker];
            uint32_t least = 0, most = 0, seen = 0;

            find_bounds(history, get, i, worker, &least, &most);
            while (seen <= log->n && log->added[seen].sum != sum)
                seen++;
            if (seen > log->n)
                sim_fail("table %s, key %" G_GUINT64_FORMAT ": worker %u reads at clock %" //
                         G_GUINT64_FORMAT " %" G_GINT64_FORMAT " of worker %u, which is the sum "
                         "of none of its first Adds (it made %u)",
                         history->name, get->keys[i], get->worker, get->clock, sum, worker, log->n);
            if (seen < least || seen > most)
                sim_fail("table %s, key %" G_GUINT64_FORMAT ": worker %u sees at clock %" //
                         G_GUINT64_FORMAT " %u Adds of worker %u, and not %u to %u",
                         history->name, get->keys[i], get->worker, get->clock, seen, worker, least,
                         most);
            if (history->model == SIM_MODEL_BSP && !are_whole_clocks(log, seen))
                sim_fail("table %s, key %" G_GUINT64_FORMAT ": worker %u sees half a clock of "
                         "worker %u",
                         history->name, get->keys[i], get->worker, worker);
            log->n_shown = MAX(log->n_shown, seen);
        }
}

void sim_get_clear(SimGet *get)
{
    g_free(get->keys);
    g_free(get->least);
}

void sim_history_adopt(SimHistory *history, RubatoKey first, size_t n, const int64_t *rows)
{
    for (size_t i = 0; i < n; i++)
        for (uint32_t worker = 0; worker < history->n_workers; worker++) {
            Log *const log = log_of(history, first + i, worker);
            const int64_t sum = rows[i * history->n_workers + worker];
            if (history->has_adopted && log->added[0].sum != sum)
                sim_fail("table %s, key %" G_GUINT64_FORMAT ": after a task that failed one node "
                         "reads %" G_GINT64_FORMAT " and another %" G_GINT64_FORMAT,
                         history->name, first + i, log->added[0].sum, sum);
            log->added[0].sum = sum;
        }
    history->has_adopted = true;
}

/* How many Adds of a worker a row has. */
static uint32_t count_seen(const SimHistory *history, size_t row, uint32_t worker, const Log *log,
                           int64_t sum)
{
    uint32_t seen = 0;

    while (seen <= log->n && log->added[seen].sum != sum)
        seen++;
    if (seen > log->n)
        sim_fail("table %s, key %" G_GUINT64_FORMAT ": a cut has %" G_GINT64_FORMAT
                 " of worker %u, which is the sum of none of its first Adds (it made %u)",
                 history->name, history->first_key + row, sum, worker, log->n);
    return seen;
}

void sim_history_see_prefixes(const SimHistory *history, const int64_t *rows, SimPrefix *prefixes)
{
    for (size_t i = 0; i < history->n_keys; i++)
        for (uint32_t worker = 0; worker < history->n_workers; worker++) {
            const Log *const log = log_of(history, history->first_key + i, worker);
            const int64_t sum = rows[i * history->n_workers + worker];
            const uint32_t seen = count_seen(history, i, worker, log, sum);
            SimPrefix *const prefix = &prefixes[worker];

            if (seen > 0)
                prefix->last_seen = MAX(prefix->last_seen, log->added[seen - 1].number);
            if (seen < log->n)
                prefix->first_unseen = MIN(prefix->first_unseen, log->added[seen].number);
        }
}

void sim_history_check_clock(const SimHistory *history, const int64_t *rows, uint64_t clock)
{
    bool is_all = clock == 0, is_cut = true;

    for (size_t i = 0; i < history->n_keys; i++)
        for (uint32_t worker = 0; worker < history->n_workers; worker++) {
            const Log *const log = log_of(history, history->first_key + i, worker);
            const int64_t sum = rows[i * history->n_workers + worker];

            is_all = is_all && sum == log->added[log->n].sum;
            is_cut = is_cut && sum == log->added[count_before(log, clock)].sum;
        }
    if (!is_all && !is_cut)
        sim_fail("table %s: a cut at clock %" G_GUINT64_FORMAT " has other Adds than those of the "
                 "clocks before",
                 history->name, clock);
}

/* The Adds that had come of a worker that is lost are all that it has made, for all who read. */
static void forget_lost(const SimHistory *history, RubatoKey key, uint32_t worker, int64_t sum)
{
    Log *const log = log_of(history, key, worker);
    uint32_t n = 0;

    while (n < log->n && log->added[n].sum != sum)
        n++;
    if (n < log->n_shown)
        sim_fail("table %s, key %" G_GUINT64_FORMAT ": in the end there are %u Adds of worker %u, "
                 "which is lost, and a Get has shown %u",
                 history->name, key, n, worker, log->n_shown);
    if (history->model == SIM_MODEL_BSP && !are_whole_clocks(log, n))
        sim_fail("table %s, key %" G_GUINT64_FORMAT ": in the end there is half a clock of worker "
                 "%u, which is lost",
                 history->name, key, worker);
    log->n = log->n_made = n;
}

void sim_history_check_all(const SimHistory *history, RubatoKey first, size_t n,
                           const int64_t *rows)
{
    for (size_t i = 0; i < n; i++)
        for (uint32_t worker = 0; worker < history->n_workers; worker++) {
            const Log *const log = log_of(history, first + i, worker);
            const int64_t sum = rows[i * history->n_workers + worker];

            if (is_lost(history, worker))
                forget_lost(history, first + i, worker, sum);
            if (sum != log->added[log->n].sum)
                sim_fail("table %s, key %" G_GUINT64_FORMAT ": in the end there is %" //
                         G_GINT64_FORMAT " of worker %u, and not %" G_GINT64_FORMAT,
                         history->name, first + i, sum, worker, log->added[log->n].sum);
        }
}
