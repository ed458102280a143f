/* How much of the Adds to a key a Get sees at least, and at most: a window for each run of Adds.
 *
 * Threads: one. */
#include "apps/rubato/history/history_judge.h"

typedef uint64_t (*Order)(const HistoryEntry *add);

static uint64_t clock_of(const HistoryEntry *add)
{
    return add->clock;
}

static uint64_t number_of(const HistoryEntry *add)
{
    return add->n_adds;
}

/* How many of a run's first Adds were made below that clock (or phase), or have a lower number. */
static size_t count_below(const Run *run, Order order, uint64_t bound)
{
    size_t least = 0, most = run->n;

    while (least < most) {
        const size_t middle = (least + most) / 2;
        if (order(&run->adds[middle]) < bound)
            least = middle + 1;
        else
            most = middle;
    }
    return least;
}

/* A call that writes does not wait for others, but takes its place among the Adds of its worker;
 * under BSP also among those of its clock. */
static void set_window_of_call(const Judge *judge, Run *run, const HistoryEntry *call)
{
    const uint32_t rank = history_source(judge->history, call->source)->rank;

    if (run->adds[0].source == call->source) {
        run->least = run->most = count_below(run, number_of, call->n_adds);
    } else if (judge->table->bound == BOUND_BSP) {
        run->least = run->most =
            count_below(run, clock_of, (uint64_t)call->clock + (run->source->rank < rank));
    } else {
        run->least = 0;
        run->most = run->n;
    }
}

static void set_window_of_task(const Judge *judge, Run *run, const HistoryEntry *get)
{
    const HistoryTable *const table = judge->table;
    const bool is_own = run->adds[0].source == get->source;

    if (get->flags & ENTRY_FOUND) {
        set_window_of_call(judge, run, get);
        return;
    }
    if (table->bound == BOUND_BSP) {
        run->least = run->most = count_below(run, clock_of, get->clock);
        if (get->flags & ENTRY_REPEATED)
            run->most =
                count_below(run, clock_of, history_source(judge->history, get->source)->heard);
        return;
    }
    run->most = run->n;
    if (is_own) {
        run->least = count_below(run, number_of, get->n_adds);
        /* In the place of a lost worker it makes Adds again that rows may show before. */
        if (!(get->flags & RECORD_OF_TICKET) && get->process == 0)
            run->most = run->least;
    } else if (table->bound == BOUND_ASP) {
        run->least = 0;
    } else {
        run->least = get->clock > table->staleness
                         ? count_below(run, clock_of, get->clock - table->staleness)
                         : 0;
    }
}

/* The Adds of another task, or of an engine, that the Get of a task or of an engine sees. Phases of
 * two nodes that differ by one may be at the same time. */
static void set_window_of_other(const Judge *judge, Run *run, const HistoryEntry *get)
{
    const HistorySource *const reader = history_source(judge->history, get->source);
    const HistoryTask *const its = history_task(judge->history, reader);
    const HistoryTask *const task = history_task(judge->history, run->source);

    run->least = 0;
    run->most = run->n;
    if (task != NULL && its != NULL) {
        if (task->has_ended && task->ended_last < its->begun_first)
            run->least = run->n;
        if (its->has_ended && its->ended_last < task->begun_first)
            run->most = 0;
    } else if (task != NULL) {
        if (task->has_ended && task->ended_last <= get->clock)
            run->least = run->n;
        if (get->clock + 1 < task->begun_first)
            run->most = 0;
    } else if (its != NULL) {
        run->least = count_below(run, clock_of, its->begun_first);
        run->most = its->has_ended ? count_below(run, clock_of, its->ended_last + 1) : run->n;
    } else if (reader->node == run->source->node) {
        while (run->least < run->n && run->adds[run->least].at < get->at)
            run->least++;
        run->most = run->least;
    } else {
        run->least = get->clock > 1 ? count_below(run, clock_of, get->clock - 1) : 0;
        run->most = count_below(run, clock_of, get->clock + 2);
    }
    if (task != NULL && task->failed) /* how much of its Adds was done is not known */
        run->least = 0;
}

void judge_set_windows(const Judge *judge, const HistoryEntry *get)
{
    for (guint i = 0; i < judge->runs->len; i++) {
        Run *const run = &g_array_index(judge->runs, Run, i);
        const HistorySource *const reader = history_source(judge->history, get->source);

        if (reader->rank != RECORD_ENGINE && reader->epoch == run->source->epoch)
            set_window_of_task(judge, run, get);
        else
            set_window_of_other(judge, run, get);
        run->least = MIN(run->least, run->n_sure);
        run->most = MAX(run->least, run->most);
    }
}
