/* Reads the files of a run, checks the order of each worker's own records, and collects the keys.
 *
 * Threads: one. */
#include "apps/rubato/history/history_events.h"

#include <stdlib.h>
#include <string.h>

#include <rubato/mix.h>

#include "apps/rubato/history/history_ragged.h"

enum { N_BUCKETS = 4096 };

/* ---- tables and tasks ---- */

static HistoryTable *find_table(const History *history, uint32_t id)
{
    for (guint i = 0; i < history->tables->len; i++) {
        HistoryTable *const table = g_ptr_array_index(history->tables, i);
        if (table->id == id)
            return table;
    }
    return NULL;
}

HistoryTable *history_take_table(History *history, uint32_t id)
{
    HistoryTable *table = find_table(history, id);

    if (table == NULL) {
        table = g_new0(HistoryTable, 1);
        table->id = id;
        table->name = g_strdup_printf("number %u", id);
        table->model = g_strdup("");
        table->update = g_strdup("");
        table->bound = BOUND_OTHER;
        table->unjudged = "its history does not say what it is";
        table->calls = g_array_new(FALSE, FALSE, sizeof(HistoryCall));
        table->applied = g_array_new(FALSE, FALSE, sizeof(HistoryApplied));
        g_ptr_array_add(history->tables, table);
    }
    return table;
}

static guint take_task(History *history, uint32_t epoch)
{
    for (guint i = history->tasks->len; i-- > 0;)
        if (g_array_index(history->tasks, HistoryTask, i).epoch == epoch)
            return i;
    const HistoryTask task = {
        .epoch = epoch, .name = g_strdup("?"), .begun_first = UINT64_MAX, .ended_first = UINT64_MAX
    };
    g_array_append_val(history->tasks, task);
    return history->tasks->len - 1;
}

static BoundKind bound_of(const char *model)
{
    static const char *const names[] = { "asp", "bsp", "ssp", "sparse_ssp" };

    for (guint i = 0; i < G_N_ELEMENTS(names); i++)
        if (strcmp(model, names[i]) == 0)
            return (BoundKind)i;
    return BOUND_OTHER;
}

/* Update rules whose rows are sums of what was added. */
static const char *const rules_of_sums[] = { "add", NULL };

/* "table ID dtype … width W …": words in pairs, the name at the end. */
static void read_table_line(History *history, char **words, const char *line)
{
    HistoryTable *const table =
        history_take_table(history, (uint32_t)g_ascii_strtoull(words[1], NULL, 10));
    const char *const name = strstr(line, " name ");
    int aggregate = 0;

    for (guint i = 2; words[i] != NULL && words[i + 1] != NULL; i += 2) {
        const char *const value = words[i + 1];

        if (strcmp(words[i], "name") == 0)
            break;
        if (strcmp(words[i], "width") == 0)
            table->width = (uint32_t)g_ascii_strtoull(value, NULL, 10);
        else if (strcmp(words[i], "staleness") == 0)
            table->staleness = (uint32_t)g_ascii_strtoull(value, NULL, 10);
        else if (strcmp(words[i], "aggregate") == 0)
            aggregate = atoi(value);
        else if (strcmp(words[i], "model") == 0) {
            g_free(table->model);
            table->model = g_strdup(value);
            table->bound = bound_of(value);
        } else if (strcmp(words[i], "update") == 0) {
            g_free(table->update);
            table->update = g_strdup(value);
            table->sums = g_strv_contains(rules_of_sums, value);
        } else if (strcmp(words[i], "init") == 0 && words[i + 2] != NULL) {
            table->has_constant = strcmp(value, "constant") == 0;
            table->constant = g_ascii_strtod(words[i + 2], NULL);
            i++;
        } else if (strcmp(words[i], "shape") == 0 && strcmp(value, "ragged") == 0) {
            history_take_ragged_table(table);
        }
    }
    g_free(table->name);
    table->name = g_strdup(name != NULL ? name + 6 : "?");
    table->unjudged = aggregate != 0                ? "the Adds of a clock are aggregated"
                      : table->bound == BOUND_OTHER ? "its model is of another kind"
                                                    : NULL;
}

static void read_task_line(History *history, char **words, const char *line)
{
    const guint place = take_task(history, (uint32_t)g_ascii_strtoull(words[1], NULL, 10));
    HistoryTask *const task = &g_array_index(history->tasks, HistoryTask, place);
    const uint64_t at = g_ascii_strtoull(words[3], NULL, 10);

    history_take_file_task(history, task->epoch)->has_ended |= strcmp(words[0], "end") == 0;
    if (strcmp(words[0], "end") == 0) {
        task->has_ended = true;
        task->failed |= strcmp(words[4], "well") != 0;
        task->ended_first = MIN(task->ended_first, at);
        task->ended_last = MAX(task->ended_last, at);
        return;
    }
    task->begun_first = MIN(task->begun_first, at);
    task->begun_last = MAX(task->begun_last, at);
    const char *name = line;
    for (int i = 0; i < 4 && name != NULL; i++)
        name = strchr(name + 1, ' ');
    g_free(task->name);
    task->name = g_strdup(name != NULL ? name + 1 : "?");
}

/* "replaces EPOCH for WORKERS" */
static void read_replaces_line(History *history, char **words)
{
    const uint32_t epoch = (uint32_t)g_ascii_strtoull(words[1], NULL, 10);

    g_array_index(history->tasks, HistoryTask, take_task(history, epoch)).replaces = true;
    *history_take_file_task(history, epoch) =
        (HistoryFileTask){ .epoch = epoch,
                           .replaces = true,
                           .n_workers = (uint32_t)g_ascii_strtoull(words[3], NULL, 10) };
}

static void read_line(void *user, uint32_t node, const char *line)
{
    History *const history = user;
    g_auto(GStrv) words = g_strsplit(line, " ", -1);
    const guint n = g_strv_length(words);

    (void)node;
    if (n >= 4 && strcmp(words[0], "table") == 0)
        read_table_line(history, words, line);
    else if (n >= 5 && (strcmp(words[0], "task") == 0 || strcmp(words[0], "end") == 0))
        read_task_line(history, words, line);
    else if (n >= 2 && strcmp(words[0], "rows") == 0)
        history_take_table(history, (uint32_t)g_ascii_strtoull(words[1], NULL, 10))->was_read =
            true;
    else if (n >= 2 && strcmp(words[0], "lost") == 0)
        history_take_loss(history, (uint32_t)g_ascii_strtoull(words[1], NULL, 10));
    else if (n >= 4 && strcmp(words[0], "replaces") == 0)
        read_replaces_line(history, words);
    else if (n >= 5 && strcmp(words[0], "again") == 0)
        history_take_return(history, words);
    else if (n >= 3 && strcmp(words[0], "done") == 0)
        g_hash_table_add(history->done,
                         history_worker_name((uint32_t)g_ascii_strtoull(words[1], NULL, 10),
                                             (uint32_t)g_ascii_strtoull(words[2], NULL, 10)));
}

/* ---- who asks ---- */

uint32_t history_take_source(History *history, const RecordOwner *owner)
{
    if (history->has_last && memcmp(&history->last_owner, owner, sizeof *owner) == 0)
        return history->last_place;
    g_autofree char *name = g_strdup_printf("%u %u %u %u", owner->epoch, owner->rank, owner->table,
                                            owner->rank == RECORD_ENGINE ? owner->node : 0);
    gpointer place;

    if (!g_hash_table_lookup_extended(history->places, name, NULL, &place)) {
        const HistorySource source = {
            .epoch = owner->epoch,
            .rank = owner->rank,
            .node = owner->node,
            .table = owner->table,
            .task = owner->rank == RECORD_ENGINE ? G_MAXUINT : take_task(history, owner->epoch),
            .last_add = UINT64_MAX,
        };
        g_array_append_val(history->sources, source);
        place = GUINT_TO_POINTER(history->sources->len - 1);
        g_hash_table_insert(history->places, g_steal_pointer(&name), place);
    }
    history->has_last = true;
    history->last_owner = *owner;
    history->last_place = GPOINTER_TO_UINT(place);
    return history->last_place;
}

static void complain(const History *history, const char *rule, const HistoryTable *table,
                     const HistorySource *source, uint64_t clock, const char *format, ...)
    G_GNUC_PRINTF(6, 7);
static void complain(const History *history, const char *rule, const HistoryTable *table,
                     const HistorySource *source, uint64_t clock, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    g_autofree char *text = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    history->complain(history->user, rule, table, source, clock, NULL, text);
}

/* ---- the order of a worker's own records ---- */

static void check_announced(const History *history, const HistoryTable *table,
                            const HistorySource *source, const Record *record)
{
    for (guint i = source->announced->len; i-- > 0;) {
        const Announcement *const told = &g_array_index(source->announced, Announcement, i);
        if (told->iteration != record->clock)
            continue;
        bool same = told->n == record->n_keys;
        for (uint32_t k = 0; k < record->n_keys && same; k++)
            same = record_key(record, k) == (told->run ? told->keys[0] + k : told->keys[k]);
        if (!same && record->n_keys != told->n)
            complain(history, "announced", table, source, record->clock,
                     "a Get of %u keys, but %u were announced", record->n_keys, told->n);
        else if (!same)
            complain(history, "announced", table, source, record->clock,
                     "a Get of other keys than were announced");
        return;
    }
    complain(history, "announced", table, source, record->clock,
             "a Get of %u keys that were not announced", record->n_keys);
}

static bool is_change_call(const Record *record)
{
    return record->kind == RECORD_HANDLER && record->flags & RECORD_WRITES;
}

static bool is_ragged_write(const Record *record)
{
    return record->kind == RECORD_RAGGED && record->op >= RAGGED_ADD;
}

static void check_order(const History *history, const HistoryTable *table, HistorySource *source,
                        const Record *record)
{
    const bool by_ticket = record->flags & RECORD_OF_TICKET;

    if (source->rank == RECORD_ENGINE)
        return;
    if (record->kind == RECORD_CLOCK) {
        if (record->clock != source->clock + 1)
            complain(history, "order", table, source, record->clock,
                     "its clock goes from %" G_GUINT64_FORMAT " to %" G_GUINT64_FORMAT,
                     source->clock, record->clock);
        source->clock = record->clock;
        return;
    }
    if (record->kind == RECORD_ANNOUNCE || record->kind == RECORD_HANDLER_KEYS ||
        record->kind == RECORD_HANDLER_PARTS || by_ticket)
        return;
    if (record->clock != source->clock)
        complain(history, "order", table, source, record->clock,
                 "a request of clock %" G_GUINT64_FORMAT ", when it is at %" G_GUINT64_FORMAT,
                 record->clock, source->clock);
    if (record->kind == RECORD_ADD || is_change_call(record) || is_ragged_write(record)) {
        const bool goes_on = record->n_adds == source->last_add; /* a piece of the same Add */
        if (!goes_on && record->n_adds != source->n_adds)
            complain(history, "order", table, source, record->clock,
                     "its Add number %" G_GUINT64_FORMAT " comes after %" G_GUINT64_FORMAT
                     " Adds: some are missing, or there twice",
                     record->n_adds, source->n_adds);
        source->last_add = is_change_call(record) ? UINT64_MAX : record->n_adds;
        source->n_adds = record->n_adds + 1;
    } else if (record->n_adds != source->n_adds) {
        complain(history, "order", table, source, record->clock,
                 "a request after %" G_GUINT64_FORMAT " Adds, of which %" G_GUINT64_FORMAT
                 " are there",
                 record->n_adds, source->n_adds);
        source->n_adds = record->n_adds;
    }
}

/* ---- keys ---- */

static void make_room(HistoryTable *table, size_t n)
{
    if (table->capacity - table->n_entries >= n)
        return;
    table->capacity = MAX(table->capacity * 2, table->n_entries + n);
    table->entries = g_renew(HistoryEntry, table->entries, table->capacity);
}

void history_add_entry(HistoryTable *table, const HistoryEntry *entry)
{
    make_room(table, 1);
    table->entries[table->n_entries++] = *entry;
}

static void add_entries(HistoryTable *table, uint32_t source, uint16_t process,
                        const RecordOwner *owner, const Record *record)
{
    const size_t row_bytes = record_row_bytes(owner);

    make_room(table, record->n_keys);
    for (uint32_t i = 0; i < record->n_keys; i++)
        table->entries[table->n_entries++] =
            (HistoryEntry){ .key = record_key(record, i),
                            .row = record->rows != NULL ? record->rows + i * row_bytes : NULL,
                            .at = record->at + i,
                            .source = source,
                            .clock = (uint32_t)MIN(record->clock, UINT32_MAX),
                            .n_adds = (uint32_t)MIN(record->n_adds, UINT32_MAX),
                            .kind = (uint8_t)record->kind,
                            .flags = (uint8_t)record->flags,
                            .process = process };
}

static void take_own_record(History *history, HistoryTable *table, const RecordOwner *owner,
                            Record *record)
{
    const uint32_t place = history_take_source(history, owner);
    HistorySource *const source = &g_array_index(history->sources, HistorySource, place);
    const uint16_t process = (uint16_t)MIN(history->file->process, UINT16_MAX);

    record->flags &= ~(unsigned)ENTRY_REPEATED;
    if (source->heard_by == history->file->process && record->clock < source->heard)
        record->flags |= ENTRY_REPEATED;
    if (record->kind != RECORD_HANDLER_PARTS) /* which has a number of another kind there */
        record->n_adds += source->first_add;
    source->process = history->file->process;
    history->n_records++;
    table->dtype = owner->dtype;
    table->width = owner->width;
    check_order(history, table, source, record);
    switch (record->kind) {
    case RECORD_GET:
        table->n_gets++;
        if (source->has_announced && !(record->flags & RECORD_OF_TICKET))
            check_announced(history, table, source, record);
        add_entries(table, place, process, owner, record);
        break;
    case RECORD_ADD:
        table->n_adds++;
        add_entries(table, place, process, owner, record);
        break;
    case RECORD_SET:
        add_entries(table, place, process, owner, record);
        break;
    case RECORD_CLOCK:
        table->n_clocks++;
        break;
    case RECORD_ANNOUNCE: {
        const Announcement told = { record->clock, record->keys, record->n_keys,
                                    record->flags & RECORD_RUN_OF_KEYS };
        if (source->announced == NULL)
            source->announced = g_array_new(FALSE, FALSE, sizeof told);
        g_array_append_val(source->announced, told);
        source->has_announced = true;
        if (source->announced->len > 4096) /* only those ahead count */
            g_array_remove_range(source->announced, 0, 2048);
        break;
    }
    case RECORD_HANDLER:
        table->n_handlers += is_change_call(record);
        source->handler = record->name;
        source->n_handler = record->n_name;
        source->handler_add = record->n_adds;
        break;
    case RECORD_RAGGED:
        history_take_ragged(history, table, place, record);
        break;
    case RECORD_HANDLER_PARTS:
        history_take_call(history, table, place, record);
        break;
    case RECORD_RETIRE:
        source->has_retired = true;
        break;
    case RECORD_TUNE:
    case RECORD_HANDLER_KEYS:
    case RECORD_APPLIED:
    case RECORD_RAGGED_RAN:
        break;
    }
}

static void take_record(void *user, const RecordOwner *owner, const Record *read)
{
    History *const history = user;
    HistoryTable *const table = history_take_table(history, owner->table);
    Record record = *read;

    record.at = history->n_places;
    history->n_places += MAX(record.n_keys, 1);

    if (record.kind == RECORD_APPLIED || record.kind == RECORD_RAGGED_RAN) {
        table->dtype = owner->dtype;
        table->width = owner->width;
        if (record.kind == RECORD_APPLIED)
            history_take_applied(history, table, &record);
        else
            history_take_ragged_ran(history, table, &record);
        return;
    }
    take_own_record(history, table, owner, &record);
}

static int compare_entries(const void *left, const void *right)
{
    const HistoryEntry *const a = left, *const b = right;

    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (a->source != b->source)
        return a->source < b->source ? -1 : 1;
    if (a->n_adds != b->n_adds)
        return a->n_adds < b->n_adds ? -1 : 1;
    if (a->process != b->process) /* their rows are in other files */
        return a->process < b->process ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

void history_sort(HistoryTable *table)
{
    g_autofree size_t *ends = g_new0(size_t, N_BUCKETS + 1);
    HistoryEntry *const sorted = g_new(HistoryEntry, MAX(table->n_entries, 1));

    for (size_t i = 0; i < table->n_entries; i++)
        ends[rubato_mix64(table->entries[i].key) % N_BUCKETS + 1]++;
    for (size_t i = 1; i <= N_BUCKETS; i++)
        ends[i] += ends[i - 1];
    for (size_t i = 0; i < table->n_entries; i++)
        sorted[ends[rubato_mix64(table->entries[i].key) % N_BUCKETS]++] = table->entries[i];
    for (size_t i = 0, begin = 0; i < N_BUCKETS; begin = ends[i++])
        qsort(sorted + begin, ends[i] - begin, sizeof *sorted, compare_entries);
    g_free(table->entries);
    table->entries = sorted;
    table->capacity = table->n_entries;
}

/* ---- the folder ---- */

/* By node, and then by process. */
static int compare_files(const void *left, const void *right)
{
    const HistoryFile *const a = left, *const b = right;

    if (a->node != b->node)
        return a->node < b->node ? -1 : 1;
    return a->process < b->process ? -1 : a->process > b->process;
}

static bool open_files(History *history, const char *folder, GError **error)
{
    g_autoptr(GError) found = NULL;
    g_autoptr(GDir) dir = g_dir_open(folder, 0, &found);
    const char *name;

    if (dir == NULL) {
        g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_IO, found->message);
        return false;
    }
    while ((name = g_dir_read_name(dir)) != NULL) {
        HistoryFile file = { .bytes = NULL };

        if (!g_str_has_prefix(name, "node-") || !g_str_has_suffix(name, ".history"))
            continue;
        file.path = g_build_filename(folder, name, NULL);
        const bool ok = history_file_open(&file, error);
        g_array_append_val(history->files, file);
        if (!ok)
            return false;
    }
    if (history->files->len == 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND,
                    "%s has no history: there is no file node-ID.history in it", folder);
        return false;
    }
    g_array_sort(history->files, compare_files);
    return true;
}

static bool read_files(History *history, const char *folder, GError **error)
{
    const HistoryVisitor visitor = { read_line, take_record, history };

    if (!open_files(history, folder, error))
        return false;
    for (guint i = 0; i < history->files->len; i++) {
        HistoryFile *const file = &g_array_index(history->files, HistoryFile, i);
        const uint64_t n_before = history->n_records;

        history->file = file;
        g_hash_table_remove_all(history->lost_here);
        if (!history_file_read(file, &visitor, error))
            return false;
        file->n_records = history->n_records - n_before;
    }
    history->n_missing = history_count_missing(history);
    for (guint i = 0; i < history->tables->len; i++) {
        HistoryTable *const table = g_ptr_array_index(history->tables, i);

        history_join_calls(history, table);
    }
    return true;
}

static void free_table(gpointer data)
{
    HistoryTable *const table = data;

    g_free(table->name);
    g_free(table->model);
    g_free(table->update);
    g_free(table->entries);
    g_array_unref(table->calls);
    g_array_unref(table->applied);
    history_free_ragged(table);
    g_free(table);
}

History *history_read(const char *folder, HistoryComplainFunc func, void *user, GError **error)
{
    History *const history = g_new0(History, 1);

    history->complain = func;
    history->user = user;
    history->tables = g_ptr_array_new_with_free_func(free_table);
    history->tasks = g_array_new(FALSE, FALSE, sizeof(HistoryTask));
    history->sources = g_array_new(FALSE, FALSE, sizeof(HistorySource));
    history->places = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    history->files = g_array_new(FALSE, FALSE, sizeof(HistoryFile));
    history->lost = g_hash_table_new(NULL, NULL);
    history->lost_here = g_hash_table_new(NULL, NULL);
    history->done = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    if (read_files(history, folder, error))
        return history;
    history_free(history);
    return NULL;
}

void history_free(History *history)
{
    if (history == NULL)
        return;
    for (guint i = 0; i < history->tasks->len; i++)
        g_free(g_array_index(history->tasks, HistoryTask, i).name);
    for (guint i = 0; i < history->sources->len; i++)
        if (history_source(history, i)->announced != NULL)
            g_array_unref(history_source(history, i)->announced);
    for (guint i = 0; i < history->files->len; i++)
        history_file_clear(&g_array_index(history->files, HistoryFile, i));
    g_ptr_array_unref(history->tables);
    g_array_unref(history->tasks);
    g_array_unref(history->sources);
    g_hash_table_unref(history->places);
    g_array_unref(history->files);
    g_hash_table_unref(history->lost);
    g_hash_table_unref(history->lost_here);
    g_hash_table_unref(history->done);
    g_free(history);
}
