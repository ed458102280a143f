/* The records of the scheduler's journal (scheduler_journal.h), and the messages that are held for
 * nodes which have to come back.
 *
 * What is recorded is what decides: messages that count, greetings, and what followed from the
 * time. A heartbeat says nothing that would have to be remembered. If a record cannot be added, the
 * scheduler goes on without its journal, which is then of no use: see the functions of the journal.
 *
 * While records are replayed, all messages to other nodes are held, with their numbers. A node that
 * comes back says how many it has had. A journal that begins anew has no records from which
 * messages follow that were sent before. So these are held, too, until the node has said with a
 * heartbeat that it has had them, and are part of the state.
 *
 * A record is its kind in a byte, the version of a greeting in two, the node's number in four, the
 * time and the asker in eight each, little-endian; then the bytes of a message, or a text with its
 * zero byte.
 *
 * Runs as scheduler.h says. */
#include "engine/scheduler/journal/scheduler_record.h"

#include <string.h>

#include "engine/control/control_messages.h"

enum { HEAD_BYTES = 1 + 2 + 4 + 8 + 8 };

/* ---- writing ---- */

static bool is_recording(const Scheduler *scheduler)
{
    return scheduler->journal.add != NULL && !scheduler->replays;
}

static void put_number(GByteArray *bytes, uint64_t number, unsigned size)
{
    const uint64_t little = GUINT64_TO_LE(number);

    g_byte_array_append(bytes, (const guint8 *)&little, size);
}

/* (transfer full) */
static GByteArray *write_record(const Scheduler *scheduler, const Record *record, const void *body,
                                size_t size)
{
    GByteArray *const bytes = g_byte_array_sized_new((guint)(HEAD_BYTES + size));

    put_number(bytes, record->kind, 1);
    put_number(bytes, record->version, 2);
    put_number(bytes, record->node, 4);
    put_number(bytes, (uint64_t)scheduler->now_ms, 8);
    put_number(bytes, record->asker, 8);
    if (size > 0)
        g_byte_array_append(bytes, body, (guint)size);
    return bytes;
}

static void add(Scheduler *scheduler, const Record *record, const void *body, size_t size)
{
    g_autoptr(GByteArray) bytes = write_record(scheduler, record, body, size);

    scheduler->journal_grown += bytes->len;
    if (!scheduler->journal.add(scheduler->journal.user, bytes->data, bytes->len))
        scheduler->journal = (SchedulerJournal){ 0 };
}

static void add_control(Scheduler *scheduler, const Record *record, const Control *control)
{
    g_autoptr(GByteArray) body = control_encode(control);

    add(scheduler, record, body->data, body->len);
}

void record_message(Scheduler *scheduler, uint32_t node, const Control *control)
{
    const bool counts = control_message_counts(control->kind);

    scheduler->nodes[node].n_taken += counts;
    if ((counts || control->kind == CONTROL_BACK) && is_recording(scheduler))
        add_control(scheduler, &(Record){ .kind = RECORD_MESSAGE, .node = node }, control);
}

void record_greeting(Scheduler *scheduler, const Control *greeting, uint16_t version,
                     uint64_t asker)
{
    /* Before the run begins, only who has come counts: record_begin. */
    if (is_recording(scheduler) && scheduler->begun && greeting->kind != CONTROL_RESUME)
        add_control(scheduler,
                    &(Record){ .kind = RECORD_GREETING, .version = version, .asker = asker },
                    greeting);
}

void record_gone(Scheduler *scheduler, uint32_t node, const char *text)
{
    if (is_recording(scheduler))
        add(scheduler, &(Record){ .kind = RECORD_GONE, .node = node }, text, strlen(text) + 1);
}

void record_effect(Scheduler *scheduler, uint32_t epoch)
{
    if (is_recording(scheduler))
        add(scheduler, &(Record){ .kind = RECORD_EFFECT, .node = epoch }, NULL, 0);
}

void record_tick(Scheduler *scheduler)
{
    if (is_recording(scheduler))
        add(scheduler, &(Record){ .kind = RECORD_TICK }, NULL, 0);
}

void record_begin(Scheduler *scheduler)
{
    const uint32_t n_nodes = scheduler->config.n_nodes;
    g_autofree const char **endpoints = NULL;
    g_autofree uint64_t *incarnations = NULL;

    if (!is_recording(scheduler))
        return;
    endpoints = g_new(const char *, n_nodes);
    incarnations = g_new(uint64_t, n_nodes);
    for (uint32_t i = 0; i < n_nodes; i++) {
        endpoints[i] = scheduler->nodes[i].lost ? "" : scheduler->nodes[i].endpoint;
        incarnations[i] = scheduler->nodes[i].incarnation;
    }
    add_control(scheduler, &(Record){ .kind = RECORD_BEGIN },
                &(Control){ .kind = CONTROL_WELCOME,
                            .welcome = { .run_id = scheduler->run_id,
                                         .n_nodes = n_nodes,
                                         .endpoints = endpoints,
                                         .incarnations = incarnations } });
}

void record_readers(Scheduler *scheduler, GHashTable *readers)
{
    g_autoptr(GByteArray) names = NULL;
    GHashTableIter iter;
    gpointer name, text;

    if (!is_recording(scheduler))
        return;
    names = g_byte_array_new();
    g_hash_table_iter_init(&iter, readers);
    while (g_hash_table_iter_next(&iter, &name, &text)) {
        g_byte_array_append(names, name, (guint)strlen(name) + 1);
        g_byte_array_append(names, text, (guint)strlen(text) + 1);
    }
    add(scheduler, &(Record){ .kind = RECORD_READERS }, names->data, names->len);
}

void record_process(Scheduler *scheduler, const SchedulerProcess *process)
{
    if (is_recording(scheduler))
        add_control(scheduler, &(Record){ .kind = RECORD_PROCESS },
                    &(Control){ .kind = CONTROL_JOIN,
                                .hello = { .node_id = scheduler->nodes[scheduler->config.self].id,
                                           .number = scheduler->config.self,
                                           .incarnation = process->incarnation,
                                           .endpoints = process->endpoints,
                                           .description = process->description } });
}

void record_state(Scheduler *scheduler, const void *state, size_t size)
{
    g_autoptr(GByteArray) bytes =
        write_record(scheduler, &(Record){ .kind = RECORD_STATE }, state, size);

    if (scheduler->journal.begin_again(scheduler->journal.user, bytes->data, bytes->len))
        scheduler->journal_begins = bytes->len;
    scheduler->journal_grown = 0; /* else it is tried again when it has grown as much once more */
}

/* ---- reading ---- */

static uint64_t take_number(const uint8_t **at, unsigned size)
{
    uint64_t little = 0;

    memcpy(&little, *at, size);
    *at += size;
    return GUINT64_FROM_LE(little);
}

static bool is_text(const uint8_t *bytes, size_t size)
{
    return size > 0 && memchr(bytes, 0, size) == bytes + size - 1;
}

/* Pairs of texts, each with its zero byte. */
static bool are_pairs(const uint8_t *bytes, size_t size)
{
    size_t n = 0;

    for (size_t i = 0; i < size; i++)
        n += bytes[i] == 0;
    return n % 2 == 0 && (size == 0 || bytes[size - 1] == 0);
}

static bool read_body(Record *record, const uint8_t *body, size_t size)
{
    switch (record->kind) {
    case RECORD_MESSAGE:
    case RECORD_GREETING:
    case RECORD_BEGIN:
    case RECORD_PROCESS:
        return control_decode(body, size, &record->control, NULL);
    case RECORD_GONE:
        record->text = (const char *)body;
        return is_text(body, size);
    case RECORD_READERS:
        record->names = (const char *)body;
        record->names_bytes = size;
        return are_pairs(body, size);
    case RECORD_STATE:
        record->state = body;
        record->state_bytes = size;
        return true;
    case RECORD_EFFECT:
    case RECORD_TICK:
        return size == 0;
    }
    return false;
}

bool record_read(const void *bytes, size_t size, Record *record)
{
    const uint8_t *at = bytes;

    *record = (Record){ 0 };
    if (size < HEAD_BYTES)
        return false;
    record->kind = (RecordKind)take_number(&at, 1);
    record->version = (uint16_t)take_number(&at, 2);
    record->node = (uint32_t)take_number(&at, 4);
    record->now_ms = (int64_t)take_number(&at, 8);
    record->asker = take_number(&at, 8);
    return read_body(record, at, size - HEAD_BYTES);
}

/* ---- messages that are held ---- */

static void held_free(HeldMessage *held)
{
    control_clear(&held->control);
    g_free(held);
}

static void drop_first(SchedulerNode *node)
{
    held_free(g_queue_pop_head(&node->held));
}

bool record_lets_go(Scheduler *scheduler, uint32_t node, const Control *control)
{
    SchedulerNode *const to = &scheduler->nodes[node];
    const bool is_here = !scheduler->replays && !to->is_away;
    const bool counts = control_message_counts(control->kind);
    const bool is_kept = !is_here || scheduler->journal.begin_again != NULL;

    to->n_sent += counts;
    if (is_kept && counts && !to->lost && node != scheduler->config.self) {
        HeldMessage *const held = g_new0(HeldMessage, 1);

        held->number = to->n_sent;
        control_copy(&held->control, control);
        g_queue_push_tail(&to->held, held);
    }
    return is_here;
}

void record_was_heard(SchedulerNode *node, uint64_t n)
{
    const HeldMessage *held;

    while ((held = g_queue_peek_head(&node->held)) != NULL && held->number <= n)
        drop_first(node);
}

void record_forget_sent(SchedulerNode *node)
{
    g_queue_clear_full(&node->held, (GDestroyNotify)held_free);
    node->n_sent = node->n_taken = 0;
    node->is_away = node->is_linked = false;
}
