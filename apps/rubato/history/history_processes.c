/* Processes that take the places of lost ones, and what is missing of these.
 *
 * A task may say that its lost workers are replaced. Then a process makes the calls of a lost one
 * again, from a clock on that it tells in its file. What the lost one had done before that clock is
 * in the lost one's file, which a worker writes before it tells a clock. What it had done from that
 * clock on may be there in part, and counts as the calls of the new process, which are the same: so
 * only these are kept.
 *
 * Threads: one. */
#include "apps/rubato/history/history_ragged.h"

int64_t *history_worker_name(uint32_t epoch, uint32_t rank)
{
    const int64_t name = (int64_t)((uint64_t)epoch << 32 | rank);

    return g_memdup2(&name, sizeof name);
}

void history_take_loss(History *history, uint32_t node)
{
    const gpointer id = GUINT_TO_POINTER(node);
    const guint n = GPOINTER_TO_UINT(g_hash_table_lookup(history->lost_here, id)) + 1;

    g_hash_table_insert(history->lost_here, id, GUINT_TO_POINTER(n));
    if (n > GPOINTER_TO_UINT(g_hash_table_lookup(history->lost, id)))
        g_hash_table_insert(history->lost, id, GUINT_TO_POINTER(n));
}

/* Forgets what the worker did from the clock on. Returns the number of its first Add among that. */
static uint64_t forget(HistoryTable *table, uint32_t place, uint64_t clock, uint64_t n_adds)
{
    size_t n = 0;

    for (size_t i = 0; i < table->n_entries; i++) {
        const HistoryEntry *const entry = &table->entries[i];

        if (entry->source != place || entry->clock < clock)
            table->entries[n++] = *entry;
        else if (entry->kind == RECORD_ADD && entry->n_adds < n_adds)
            n_adds = entry->n_adds;
    }
    table->n_entries = n;
    return history_forget_ragged(table, place, clock,
                                 history_forget_calls(table, place, clock, n_adds));
}

HistoryFileTask *history_take_file_task(History *history, uint32_t epoch)
{
    HistoryFile *const file = history->file;
    const HistoryFileTask task = { .epoch = epoch };

    if (file->tasks == NULL)
        file->tasks = g_array_new(FALSE, FALSE, sizeof task);
    for (guint i = 0; i < file->tasks->len; i++)
        if (g_array_index(file->tasks, HistoryFileTask, i).epoch == epoch)
            return &g_array_index(file->tasks, HistoryFileTask, i);
    g_array_append_val(file->tasks, task);
    return &g_array_index(file->tasks, HistoryFileTask, file->tasks->len - 1);
}

void history_take_return(History *history, char **words)
{
    const RecordOwner owner = { .node = history->file->node,
                                .epoch = (uint32_t)g_ascii_strtoull(words[1], NULL, 10),
                                .rank = (uint32_t)g_ascii_strtoull(words[2], NULL, 10),
                                .table = (uint32_t)g_ascii_strtoull(words[3], NULL, 10) };
    const uint64_t clock = g_ascii_strtoull(words[4], NULL, 10);
    const uint64_t heard = words[5] == NULL ? clock : g_ascii_strtoull(words[5], NULL, 10);
    const uint32_t place = history_take_source(history, &owner);
    HistorySource *const source = &g_array_index(history->sources, HistorySource, place);

    source->process = history->file->process;
    if (clock == UINT64_MAX) /* the lost one had returned */
        return;
    source->n_adds = source->first_add =
        forget(history_take_table(history, owner.table), place, clock, source->n_adds);
    source->last_add = UINT64_MAX;
    source->clock = clock;
    source->heard = heard;
    source->heard_by = history->file->process;
    source->has_retired = false;
}

bool history_is_lost(const History *history, const HistoryFile *file)
{
    const gpointer node = GUINT_TO_POINTER(file->node);

    return file->process < GPOINTER_TO_UINT(g_hash_table_lookup(history->lost, node));
}

/* ---- what is missing ---- */

static bool is_done(const History *history, const HistorySource *source)
{
    g_autofree int64_t *name = history_worker_name(source->epoch, source->rank);

    return g_hash_table_contains(history->done, name);
}

/* Whether a task that replaces lost workers has ended well. */
static bool has_ended_replaced(const History *history, uint32_t epoch)
{
    for (guint i = 0; i < history->tasks->len; i++) {
        const HistoryTask *const task = &g_array_index(history->tasks, HistoryTask, i);

        if (task->epoch == epoch)
            return task->replaces && task->has_ended && !task->failed;
    }
    return false;
}

/* Whether all that a lost process has done in a task counts, and is there, or is done again by
 * later ones. */
static bool is_replaced_in(const History *history, const HistoryFile *file,
                           const HistoryFileTask *its)
{
    uint32_t n_known = 0;

    if (!has_ended_replaced(history, its->epoch))
        return false;
    for (guint i = 0; i < history->sources->len; i++) {
        const HistorySource *const source = history_source(history, i);

        if (source->task == G_MAXUINT || source->epoch != its->epoch || source->node != file->node)
            continue;
        if (source->process <= file->process && !is_done(history, source))
            return false;
        n_known++;
    }
    return n_known >= its->n_workers; /* one for each table that a worker uses */
}

/* Whether nothing of a process that was lost is missing, because it was in a task that replaces
 * lost workers. When it says that a task has ended, all before that is in its file. */
static bool is_replaced(const History *history, const HistoryFile *file)
{
    bool any = false;

    for (guint i = 0; file->tasks != NULL && i < file->tasks->len; i++) {
        const HistoryFileTask *const its = &g_array_index(file->tasks, HistoryFileTask, i);

        if (!its->has_ended && !is_replaced_in(history, file, its))
            return false;
        any |= its->replaces;
    }
    return any;
}

/* What a lost node has asked may have been done or not, if others do not do it again. One that has
 * asked nothing has nothing that could be missing, whatever became of it. */
static bool is_whole(const History *history, const HistoryFile *file)
{
    const bool is_lost = history_is_lost(history, file);

    switch (file->state) {
    case HISTORY_FILE_COMPLETE:
        return !is_lost || file->n_records == 0 || is_replaced(history, file);
    case HISTORY_FILE_SILENT:
        return file->n_records == 0;
    case HISTORY_FILE_OPEN:
        return is_lost && is_replaced(history, file);
    default:
        return false;
    }
}

uint32_t history_count_missing(History *history)
{
    uint32_t n_begun = 0, n_known = 0, n_torn = 0;

    for (guint i = 0; i < history->files->len;) {
        const HistoryFile *const first = &g_array_index(history->files, HistoryFile, i);
        bool whole = true;

        for (const HistoryFile *file = first; i < history->files->len && file->node == first->node;
             file++, i++)
            whole &= is_whole(history, file);
        n_begun = MAX(n_begun, first->n_nodes);
        n_known += first->n_nodes > 0;
        n_torn += !whole;
        history->n_nodes++;
    }
    return n_torn + (n_known < n_begun ? n_begun - n_known : 0);
}
