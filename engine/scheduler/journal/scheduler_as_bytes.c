/* The scheduler's whole state as bytes: what its journal begins with, in the place of all records
 * that have led to it (scheduler_journal.h).
 *
 * Each part walks through what it alone knows. What is left out follows from the configuration, or
 * is of one call: labels, what the outbox has, who is told of waits. The outbox is empty, because
 * the journal begins anew only when nothing of an event is left to be delivered.
 *
 * Runs as scheduler.h says. */
#include "engine/scheduler/journal/scheduler_as_bytes.h"

#include "engine/scheduler/data/scheduler_kept.h"
#include "engine/scheduler/journal/scheduler_record.h"
#include "engine/scheduler/recovery/scheduler_drain.h"
#include "engine/scheduler/recovery/scheduler_recovery.h"
#include "engine/scheduler/scheduler_base.h"
#include "engine/scheduler/scheduler_collective.h"
#include "engine/scheduler/scheduler_snapshot.h"
#include "engine/scheduler/scheduler_task.h"

static void walk_held(StateWalk *walk, SchedulerNode *node)
{
    size_t n = walk_count(walk, node->held.length);
    const GList *link = node->held.head;

    for (; n > 0 && !walk->is_wrong; n--) {
        HeldMessage *const held = walk_reads(walk) ? g_new0(HeldMessage, 1) : link->data;

        link = walk_reads(walk) ? NULL : link->next;
        if (walk_reads(walk))
            g_queue_push_tail(&node->held, held);
        WALK(walk, held->number);
        walk_control(walk, &held->control);
        walk->is_wrong |= held->control.kind == 0;
    }
}

static void walk_node(StateWalk *walk, SchedulerNode *node)
{
    WALK(walk, node->here);
    WALK(walk, node->met);
    WALK(walk, node->left);
    WALK(walk, node->lost);
    WALK(walk, node->left_drained);
    WALK(walk, node->serves);
    WALK(walk, node->drains);
    WALK(walk, node->is_drained);
    WALK(walk, node->ends);
    WALK(walk, node->incarnation);
    WALK(walk, node->counted_from);
    WALK(walk, node->asker);
    walk_text(walk, &node->endpoint);
    walk_text(walk, &node->description);
    walk_text(walk, &node->refused);
    WALK(walk, node->heard_ms);
    WALK(walk, node->left_ms);
    WALK(walk, node->n_taken);
    WALK(walk, node->n_sent);
    WALK(walk, node->is_away);
    WALK(walk, node->is_linked);
    verdict_walk(walk, &node->loss);
    WALK(walk, node->n_proposed);
    WALK(walk, node->n_before);
    walk_control(walk, &node->asks);
    walk_held(walk, node);
}

static void walk_tables(StateWalk *walk, Scheduler *scheduler)
{
    size_t n = walk_count(walk, g_hash_table_size(scheduler->tables));
    GHashTableIter iter;
    gpointer id = NULL, name = NULL;

    g_hash_table_iter_init(&iter, scheduler->tables);
    for (; n > 0; n--) {
        if (walk_reads(walk))
            name = NULL;
        else
            (void)g_hash_table_iter_next(&iter, &id, &name);
        id = GUINT_TO_POINTER((guint)walk_number(walk, GPOINTER_TO_UINT(id)));
        walk_text(walk, (char **)&name);
        if (walk_reads(walk))
            g_hash_table_insert(scheduler->tables, id, name);
    }
    WALK(walk, scheduler->next_table);
    WALK(walk, scheduler->goes_on);
}

static void walk_incarnation(StateWalk *walk, void *element)
{
    WALK(walk, *(uint64_t *)element);
}

static void walk_admission(StateWalk *walk, Scheduler *scheduler)
{
    Admission *const it = &scheduler->admission;

    WALK(walk, it->opens);
    WALK(walk, it->node);
    WALK(walk, it->incarnation);
    WALK(walk, it->counted_from);
    WALK(walk, it->asker);
    walk_text(walk, &it->endpoint);
    walk_text(walk, &it->description);
    walk->is_wrong |= it->node >= scheduler->config.n_nodes;
    WALK(walk, scheduler->n_admitted);
    WALK(walk, scheduler->put_off_ms);
    walk_array(walk, scheduler->former, walk_incarnation);
}

/* The process, if it goes on as the scheduler. How long there was none is only said. */
static void walk_own(StateWalk *walk, Scheduler *scheduler)
{
    WALK(walk, scheduler->own.incarnation);
    WALK(walk, scheduler->own.counted_from);
    walk_text(walk, &scheduler->own.endpoint);
    walk_text(walk, &scheduler->own.description);
    WALK(walk, scheduler->own.silent_ms);
    WALK(walk, scheduler->own.was_refused);
}

static void walk_run(StateWalk *walk, Scheduler *scheduler)
{
    WALK(walk, scheduler->now_ms);
    WALK(walk, scheduler->begun);
    WALK(walk, scheduler->ended);
    verdict_walk(walk, &scheduler->refusal);
    verdict_walk(walk, &scheduler->doom);
    WALK(walk, scheduler->run_id);
    WALK(walk, scheduler->ticked);
    WALK(walk, scheduler->start_ms);
    WALK(walk, scheduler->last_tick_ms);
    WALK(walk, scheduler->last_beat_ms);
}

static void walk_all(StateWalk *walk, Scheduler *scheduler)
{
    const uint32_t n_nodes = scheduler->config.n_nodes;

    walk->is_wrong |= walk_number(walk, n_nodes) != n_nodes;
    for (uint32_t i = 0; i < n_nodes && !walk->is_wrong; i++)
        walk_node(walk, &scheduler->nodes[i]);
    walk_run(walk, scheduler);
    walk_own(walk, scheduler);
    walk_tables(walk, scheduler);
    walk_admission(walk, scheduler);
    recovery_walk(walk, scheduler);
    drain_walk(walk, scheduler);
    snapshots_walk(walk, scheduler);
    kept_walk(walk, scheduler);
    collectives_walk(walk, scheduler);
    tasks_walk(walk, scheduler);
}

GByteArray *state_write(Scheduler *scheduler)
{
    StateWalk walk = { .out = g_byte_array_new() };

    g_assert(g_queue_is_empty(&scheduler->outbox));
    walk_all(&walk, scheduler);
    return walk.out;
}

bool state_read(Scheduler *scheduler, const void *bytes, size_t size)
{
    StateWalk walk = { .at = bytes, .end = (const uint8_t *)bytes + size };

    walk_all(&walk, scheduler);
    return !walk.is_wrong && walk.at == walk.end;
}

/* Each byte of a state is written once for two bytes of records at least. */
static bool has_grown_enough(const Scheduler *scheduler)
{
    const uint64_t kept_bytes = scheduler->journal.kept_bytes;

    return kept_bytes == 0 ||
           scheduler->journal_grown >= MAX(kept_bytes, 2 * scheduler->journal_begins);
}

void state_keep(Scheduler *scheduler)
{
    if (scheduler->journal.begin_again == NULL || !scheduler->begun || scheduler->ended ||
        !has_grown_enough(scheduler))
        return;
    g_autoptr(GByteArray) state = state_write(scheduler);

    record_state(scheduler, state->data, state->len);
}
