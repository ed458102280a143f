/* Readers that snapshots keep: which rows of their files are done.
 *
 * For a snapshot each node tells, in its CUT, which rows of the tickets that it has are done
 * (engine/task/node_reader.c). When all have done CUT, the scheduler writes down its dispatchers
 * with that. No worker is in a step from before the first CUT until WRITE, which is sent after
 * that; so all nodes tell of one moment, and of the one that the tables show. What comes meanwhile
 * changes nothing of it: nodes may ask for blocks and give tickets back, and a row that is not done
 * stays so.
 *
 * A reader of a restored snapshot is kept until the first block of a reader of its name is dealt:
 * before that no row becomes done, so a snapshot in between has it as it was. From then on the
 * task's own reader is cut. If that block is dealt after CUT has begun, a node may have done CUT
 * before it heard of the reader, and says nothing of it. Therefore what is kept when CUT begins
 * goes into the cut at once: no row is done before WRITE. If a node does tell of the reader, its
 * own text is put instead.
 *
 * A task that fails may have changed its tables in the middle of a step, and when it has ended its
 * readers are gone. So no snapshot of such a table is written if the task has failed since CUT, or
 * had failed before and not ended. Whether a node asked for the snapshot or all nodes called for it
 * makes no difference. Snapshots of other tables have nothing of the task.
 *
 * Where Adds are applied by their clock, a node tells in CUT which rows of its workers' last steps
 * are not in the tables yet. If it is lost when its workers have ended, what they read is not dealt
 * again. So it has told before which rows they read at which clocks, and each CUT has its own
 * clock: the scheduler tells in its place (ended_steps.h).
 *
 * Runs as scheduler.h says. */
#include "engine/scheduler/data/scheduler_kept.h"

#include <string.h>

#include "engine/control/told_task.h"
#include "engine/scheduler/journal/scheduler_record.h"
#include "engine/scheduler/scheduler_base.h"
#include "engine/snapshot/snapshot_text.h"

#define READS "reads " /* the first line: what the nodes say of the reader */

static GHashTable *names_new(void)
{
    return g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
}

void kept_init(Scheduler *scheduler)
{
    scheduler->kept = names_new();
    scheduler->cut = names_new();
}

void kept_clear(Scheduler *scheduler)
{
    g_hash_table_unref(scheduler->kept);
    g_hash_table_unref(scheduler->cut);
    g_free(scheduler->cut_spec);
}

static void add_all(GHashTable *names, GHashTable *from)
{
    GHashTableIter all;
    gpointer name, text;

    g_hash_table_iter_init(&all, from);
    while (g_hash_table_iter_next(&all, &name, &text))
        g_hash_table_insert(names, g_strdup(name), g_strdup(text));
}

/* ---- cutting ---- */

static bool contains(const uint32_t *tables, uint32_t n, uint32_t table)
{
    uint32_t i = 0;

    while (i < n && tables[i] != table)
        i++;
    return i < n;
}

bool kept_has_table_of(const Scheduler *scheduler, const char *spec, const SchedulerTask *task)
{
    const char *lines = task->told;
    SnapshotText asked;
    ToldTask told;
    bool has = false;

    if (spec == NULL || !told_task_read(&lines, scheduler->config.n_nodes, &told))
        return true;
    if (snapshot_text_read(spec, &asked, NULL)) {
        for (guint i = 0; i < asked.tables->len && !has; i++)
            has = contains(told.tables, told.n_tables, g_array_index(asked.tables, uint32_t, i));
        snapshot_text_clear(&asked);
    }
    told_task_clear(&told);
    return has;
}

bool kept_cuts_table_of(const Scheduler *scheduler, const SchedulerTask *task)
{
    return kept_has_table_of(scheduler, scheduler->cut_spec, task);
}

void kept_begin_cut(Scheduler *scheduler, const char *spec)
{
    g_hash_table_remove_all(scheduler->cut);
    add_all(scheduler->cut, scheduler->kept);
    scheduler->cut_is_torn = false;
    g_free(scheduler->cut_spec);
    scheduler->cut_spec = g_strdup(spec);
}

void kept_put(Scheduler *scheduler, const char *name, const char *description,
              BlockDispatcher *dispatcher)
{
    GString *const text = g_string_new(READS);

    g_string_append_printf(text, "%s\n", description);
    block_dispatcher_write(dispatcher, text);
    g_hash_table_insert(scheduler->cut, g_strdup(name), g_string_free(text, FALSE));
}

GHashTable *scheduler_cut_readers(const Scheduler *scheduler)
{
    GHashTable *const readers = names_new();

    add_all(readers, scheduler->cut);
    return readers;
}

/* ---- going on ---- */

void scheduler_restore_readers(Scheduler *scheduler, GHashTable *readers)
{
    record_readers(scheduler, readers);
    g_hash_table_unref(scheduler->kept);
    scheduler->kept = readers;
}

/* The dispatcher's text, behind the first line; NULL: there is none. */
static const char *find_dispatcher(const char *text)
{
    const char *const end = strchr(text, '\n');

    return g_str_has_prefix(text, READS) && end != NULL ? end + 1 : NULL;
}

bool scheduler_check_kept_reader(const char *text)
{
    const char *const lines = find_dispatcher(text);
    const BlockDispatcherConfig config = { .n_nodes = 1, .only_checks = true };
    BlockDispatcher *const dispatcher =
        lines != NULL ? block_dispatcher_read(&config, lines) : NULL;

    block_dispatcher_free(dispatcher);
    return dispatcher != NULL;
}

/* NULL: it can go on. (transfer full) */
static char *find_fault(const SchedulerTask *task, const ControlReader *reader, const char *text)
{
    if (text == NULL)
        return NULL;
    const char *const was = text + strlen(READS);
    const size_t n = strcspn(was, "\n");
    if (strlen(reader->description) == n && memcmp(was, reader->description, n) == 0)
        return NULL;
    return g_strdup_printf("%s: reader %u of its workers reads %s, but in the snapshot that the "
                           "run goes on from %.*s",
                           task->name, reader->reader, reader->description, (int)n, was);
}

BlockDispatcher *kept_find(Scheduler *scheduler, SchedulerTask *task, const ControlReader *reader,
                           const BlockDispatcherConfig *config)
{
    const char *const text = g_hash_table_lookup(scheduler->kept, reader->kept_as);
    g_autofree char *fault = find_fault(task, reader, text);
    BlockDispatcher *dispatcher;

    if (fault != NULL) {
        task_cancel(scheduler, task, CONTROL_CODE(RUBATO_ERROR_MISMATCH), fault);
        return NULL;
    }
    if (text == NULL)
        return block_dispatcher_new(config);
    dispatcher = block_dispatcher_read(config, find_dispatcher(text));
    if (dispatcher != NULL)
        return dispatcher;
    /* it made sense when it was restored */
    fault =
        g_strdup_printf("%s: there is no memory for what the snapshot that the run goes on from "
                        "says of the reader \"%s\"",
                        task->name, reader->kept_as);
    task_cancel(scheduler, task, CONTROL_CODE(RUBATO_ERROR_MEMORY), fault);
    return NULL;
}

void kept_check_files(Scheduler *scheduler, SchedulerTask *task, const BlockDispatcher *dispatcher)
{
    const char *const missing = block_dispatcher_find_missing(dispatcher);

    if (missing == NULL)
        return;
    g_autofree char *text = g_strdup_printf(
        "%s: no node reads %s, of which the snapshot that the run goes on from has rows that are "
        "not done; give the same files",
        task->name, missing);
    task_cancel(scheduler, task, CONTROL_CODE(RUBATO_ERROR_MISMATCH), text);
}

/* ---- as bytes ---- */

void kept_walk(StateWalk *walk, Scheduler *scheduler)
{
    walk_texts(walk, scheduler->kept);
    walk_texts(walk, scheduler->cut);
    WALK(walk, scheduler->cut_is_torn);
    walk_text(walk, &scheduler->cut_spec);
}
