/* The data that a task's workers read: whether all nodes read the same, and which node reads which
 * blocks.
 *
 * Each worker opens its readers in the same order as all others: reader 0, 1, … of the task. A node
 * describes each reader once (READER). If it differs from another node's, the task fails. In a
 * dynamic split the node then tells the inputs that it holds (INPUTS), and asks for blocks (WANT).
 * A dispatcher deals them. A node numbers its inputs itself; only this file uses the dispatcher's
 * numbers.
 *
 * Runs as scheduler.h says. */
#include "engine/scheduler/data/scheduler_data.h"

#include <string.h>

#include "engine/scheduler/data/block_dispatcher.h"
#include "engine/scheduler/data/dealt_blocks.h"
#include "engine/scheduler/data/ended_steps.h"
#include "engine/scheduler/data/scheduler_kept.h"
#include "engine/scheduler/scheduler_base.h"
#include "engine/scheduler/tensors/scheduler_tensors.h"
#include "engine/task/block_ticket_codec.h"
#include "engine/task/status_parts.h"

#define WANTED_MAX 512u
#define EVERY_CLOCK UINT64_MAX

#define TASK_HAS_FAILED "a task failed whose readers it was to keep"
#define READ_AGAIN \
    "there is no snapshot yet: workers in the place of lost ones read again what these had read"
#define ENDED_ALONE                                                                        \
    "there is no snapshot yet: a node was lost whose workers had ended, and no other has " \
    "opened the reader of which they had read rows"

typedef struct {
    uint32_t first; /* the first node to open the reader; the members below are its own */
    uint32_t n_epochs;
    char *kept_as;      /* NULL: no snapshot keeps it */
    bool is_cut;        /* it is part of the snapshot that is cut */
    uint64_t cut_clock; /* which has the rows of steps before it; EVERY_CLOCK: all */
    char *text;         /* "2 epochs, shuffled by seed 7, …" */
    char *digest;
    BlockDispatcher *dispatcher; /* NULL: a fixed split */
    DealtBlocks *dealt;          /* by worker; NULL: lost ones are not replaced */
    EndedSteps *ended;
    GArray **inputs; /* by node: the dispatcher's numbers of its inputs */
    bool *has_asked; /* by node: for blocks, so it has told all its inputs */
    bool any_ended;  /* a node that lives was told that no block is left for it */
    uint32_t n_nodes;
} Reading;

static void reading_free(Reading *reading)
{
    if (reading == NULL)
        return;
    block_dispatcher_free(reading->dispatcher);
    dealt_blocks_free(reading->dealt);
    ended_steps_free(reading->ended);
    for (uint32_t node = 0; node < reading->n_nodes; node++)
        g_array_free(reading->inputs[node], TRUE);
    g_free(reading->inputs);
    g_free(reading->has_asked);
    g_free(reading->kept_as);
    g_free(reading->text);
    g_free(reading->digest);
    g_free(reading);
}

void data_clear(SchedulerTask *task)
{
    g_ptr_array_set_free_func(task->readings, (GDestroyNotify)reading_free);
    g_ptr_array_free(task->readings, TRUE);
}

static Reading *find_reading(const SchedulerTask *task, uint64_t id)
{
    return id < task->readings->len ? task->readings->pdata[id] : NULL;
}

/* Whether a reader of the run is kept by that name. */
static bool is_name_taken(const Scheduler *scheduler, const char *name)
{
    for (guint i = 0; i < scheduler->tasks->len; i++) {
        const SchedulerTask *const task = scheduler->tasks->pdata[i];

        for (guint j = 0; j < task->readings->len; j++) {
            const Reading *const reading = task->readings->pdata[j];

            if (reading != NULL && g_strcmp0(reading->kept_as, name) == 0)
                return true;
        }
    }
    return false;
}

/* The dispatcher of a reader that is kept. NULL, and the task is cancelled: there cannot be one. */
static BlockDispatcher *find_kept(Scheduler *scheduler, SchedulerTask *task,
                                  const ControlReader *reader, const BlockDispatcherConfig *config)
{
    if (!is_name_taken(scheduler, reader->kept_as))
        return kept_find(scheduler, task, reader, config);
    g_autofree char *text = g_strdup_printf("%s: two readers are kept as \"%s\" at a time",
                                            task->name, reader->kept_as);
    task_cancel(scheduler, task, CONTROL_CODE(RUBATO_ERROR_MISMATCH), text);
    return NULL;
}

static Reading *reading_alloc(uint32_t n_nodes)
{
    Reading *const reading = g_new0(Reading, 1);

    reading->n_nodes = n_nodes;
    reading->ended = ended_steps_new(n_nodes);
    reading->inputs = g_new(GArray *, n_nodes);
    reading->has_asked = g_new0(bool, n_nodes);
    for (uint32_t i = 0; i < n_nodes; i++)
        reading->inputs[i] = g_array_new(FALSE, FALSE, sizeof(uint32_t));
    return reading;
}

/* NULL, and the task is cancelled: it cannot go on from a snapshot. */
static Reading *reading_new(Scheduler *scheduler, SchedulerTask *task, uint32_t node,
                            const ControlReader *reader)
{
    const BlockDispatcherConfig config = {
        .n_nodes = scheduler->config.n_nodes,
        .epochs = reader->n_epochs,
        .shuffle = reader->is_shuffled,
        .seed = reader->seed,
        .keeps_finished = task->continues && task->replace_ms == 0,
    };

    /* what another node tells has no NULL in it */
    const bool is_named = reader->kept_as != NULL && *reader->kept_as != '\0';
    const bool is_kept = reader->is_dynamic && is_named;
    BlockDispatcher *const kept = is_kept ? find_kept(scheduler, task, reader, &config) : NULL;
    Reading *reading;

    if (is_kept && kept == NULL)
        return NULL;
    reading = reading_alloc(config.n_nodes);
    reading->first = node;
    reading->kept_as = is_kept ? g_strdup(reader->kept_as) : NULL;
    reading->n_epochs = config.epochs;
    reading->text = g_strdup(reader->description);
    reading->digest = g_strdup(reader->digest);
    if (reader->is_dynamic)
        reading->dispatcher = is_kept ? kept : block_dispatcher_new(&config);
    if (reader->is_dynamic && task->replace_ms > 0)
        reading->dealt = dealt_blocks_new(tensors_first_rank(task->tensors, config.n_nodes));
    return reading;
}

bool data_reader(Scheduler *scheduler, uint32_t node, const Control *control)
{
    const ControlReader *const reader = &control->reader;
    SchedulerTask *task = task_find(scheduler, reader->epoch);
    Reading *reading;

    if (task == NULL)
        return task_is_late(scheduler, reader->epoch);
    if (reader->reader >= CONTROL_MAX_READERS)
        return false;
    reading = find_reading(task, reader->reader);
    if (reading == NULL) {
        reading = reading_new(scheduler, task, node, reader);
        if (reader->reader >= task->readings->len)
            g_ptr_array_set_size(task->readings, (gint)reader->reader + 1);
        task->readings->pdata[reader->reader] = reading;
        return true;
    }
    if (g_strcmp0(reading->text, reader->description) == 0 &&
        g_strcmp0(reading->digest, reader->digest) == 0)
        return true;
    g_autofree char *text = g_strdup_printf(
        "%s: reader %u of its workers reads %s on node %u, but %s on node %u%s", task->name,
        reader->reader, reader->description, scheduler->nodes[node].id, reading->text,
        scheduler->nodes[reading->first].id,
        g_strcmp0(reading->text, reader->description) == 0 ? ", from other files" : "");
    task_cancel(scheduler, task, CONTROL_CODE(RUBATO_ERROR_MISMATCH), text);
    return true;
}

/* Reads a line of INPUTS: bytes, blocks (the largest number means unknown), whether in any order,
 * name. */
static bool add_input(Reading *reading, uint32_t node, const char **text, char **wrong)
{
    BlockDispatcherInput input = { .name = NULL };
    uint64_t any_order;
    const char *at = *text, *end;

    if (!block_ticket_read_number(&at, ' ', UINT64_MAX, &input.bytes) ||
        !block_ticket_read_number(&at, ' ', UINT64_MAX, &input.n_blocks) ||
        !block_ticket_read_number(&at, ' ', 1, &any_order) || (end = strchr(at, '\n')) == NULL)
        return false;
    g_autofree char *name = g_strndup(at, (size_t)(end - at));
    input.name = name;
    input.any_order = any_order != 0;
    *text = end + 1;
    const uint32_t number = block_dispatcher_add_input(reading->dispatcher, node, &input, wrong);
    if (number != BLOCK_DISPATCHER_NO_INPUT)
        g_array_append_val(reading->inputs[node], number);
    return true;
}

bool data_inputs(Scheduler *scheduler, uint32_t node, const Control *control)
{
    const ControlInputs *const inputs = &control->inputs;
    SchedulerTask *task = task_find(scheduler, inputs->epoch);
    g_autofree char *wrong = NULL;

    if (task == NULL)
        return task_is_late(scheduler, inputs->epoch);
    Reading *reading = find_reading(task, inputs->reader);
    if (reading == NULL && task->cause.code != CONTROL_OK) /* it was refused */
        return true;
    if (reading == NULL || reading->dispatcher == NULL || inputs->lines == NULL ||
        inputs->first != reading->inputs[node]->len)
        return false;
    for (const char *at = inputs->lines; *at != '\0' && wrong == NULL;)
        if (!add_input(reading, node, &at, &wrong))
            return false;
    if (wrong != NULL) {
        g_autofree char *text = g_strdup_printf("%s: node %u reads %s; give all nodes the same",
                                                task->name, scheduler->nodes[node].id, wrong);
        task_cancel(scheduler, task, CONTROL_CODE(RUBATO_ERROR_MISMATCH), text);
    }
    return true;
}

/* Whether the dispatcher has to hear the result of a ticket. false, and *ok, if a worker repeats
 * what the lost one in whose place it is had told. */
static bool is_new(Reading *reading, uint32_t worker, BlockTicketEvent news,
                   const BlockTicket *ticket, bool *ok)
{
    const bool is_result = news == BLOCK_TICKET_FINISHED || news == BLOCK_TICKET_GIVEN_BACK ||
                           news == BLOCK_TICKET_ABSENT;

    *ok = true;
    if (reading->dealt == NULL || !is_result)
        return true;
    const DealtVerdict verdict = dealt_blocks_end(reading->dealt, worker, ticket);
    *ok = verdict != DEALT_IS_WRONG;
    return verdict == DEALT_IS_NEW;
}

static bool take_ended(Reading *reading, uint32_t node, uint64_t clock, const BlockTicket *rows)
{
    if (rows->end <= rows->n_read || rows->epoch >= reading->n_epochs)
        return false;
    ended_steps_add(reading->ended, node, clock, rows);
    return true;
}

/* A node tells the result of a worker's ticket, with its own number of the input. */
static bool take_news(Reading *reading, uint32_t node, uint32_t worker, BlockTicketEvent news,
                      uint64_t clock, BlockTicket ticket)
{
    const GArray *inputs = reading->inputs[node];
    bool ok;

    const bool is_cut = news == BLOCK_TICKET_CUT || news == BLOCK_TICKET_CUT_BY_CLOCK;

    reading->is_cut |= is_cut;
    if (news == BLOCK_TICKET_CUT_BY_CLOCK) /* all nodes tell the same */
        reading->cut_clock = clock;
    if (is_cut || ticket.input >= inputs->len)
        return is_cut;
    ticket.input = g_array_index(inputs, uint32_t, ticket.input);
    if (!is_new(reading, worker, news, &ticket, &ok))
        return ok;
    switch (news) {
    case BLOCK_TICKET_FINISHED:
        return block_dispatcher_finish(reading->dispatcher, node, &ticket);
    case BLOCK_TICKET_GIVEN_BACK:
        return block_dispatcher_give_back(reading->dispatcher, node, &ticket);
    case BLOCK_TICKET_ABSENT:
        return block_dispatcher_absent(reading->dispatcher, node, &ticket);
    case BLOCK_TICKET_DONE:
        return block_dispatcher_note_done(reading->dispatcher, &ticket);
    case BLOCK_TICKET_UNDONE:
        return block_dispatcher_note_undone(reading->dispatcher, &ticket);
    case BLOCK_TICKET_ENDED:
        return take_ended(reading, node, clock, &ticket);
    default:
        return false;
    }
}

/* The node's number of an input. */
static uint32_t own_number(const Reading *reading, uint32_t node, uint32_t input)
{
    const GArray *inputs = reading->inputs[node];
    uint32_t number = 0;

    while (number + 1 < inputs->len && g_array_index(inputs, uint32_t, number) != input)
        number++;
    return number;
}

/* Blocks for a worker of the node: those of the lost one in whose place it is come first. */
static size_t assign(Reading *reading, uint32_t node, const ControlWant *want, BlockTicket *tickets)
{
    const size_t wanted = MIN(want->n_blocks, WANTED_MAX);
    bool has_ended = false;
    size_t n = reading->dealt == NULL
                   ? 0
                   : dealt_blocks_repeat(reading->dealt, want->worker, wanted, tickets, &has_ended);

    if (n > 0 || has_ended)
        return n;
    n = block_dispatcher_assign(reading->dispatcher, node, wanted, tickets);
    if (reading->dealt != NULL)
        dealt_blocks_note(reading->dealt, want->worker, tickets, n);
    return n;
}

static void deal(Scheduler *scheduler, Reading *reading, uint32_t node, const ControlWant *want)
{
    BlockTicket tickets[WANTED_MAX];
    const size_t n = assign(reading, node, want, tickets);
    g_autoptr(GString) text = g_string_new(NULL);

    if (reading->kept_as != NULL) /* from now on this reader is cut */
        g_hash_table_remove(scheduler->kept, reading->kept_as);
    reading->any_ended = reading->any_ended || n == 0;
    for (size_t i = 0; i < n; i++) {
        tickets[i].input = own_number(reading, node, tickets[i].input);
        block_ticket_write(text, BLOCK_TICKET_DEALT, &tickets[i]);
    }
    const Control blocks = {
        .kind = CONTROL_BLOCKS,
        .blocks = { .epoch = want->epoch,
                    .reader = want->reader,
                    .is_last = n == 0,
                    .tickets = text->str,
                    .worker = want->worker },
    };
    scheduler_send(scheduler, node, &blocks);
}

/* Whether each node that may read has told which files it has: it does so before it asks. */
static bool knows_all_files(const Scheduler *scheduler, const SchedulerTask *task,
                            const Reading *reading)
{
    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++)
        if (!task->retired[i] && !reading->has_asked[i])
            return false;
    return true;
}

static bool has_worker(const SchedulerTask *task, uint32_t node, uint32_t rank)
{
    const uint32_t first = tensors_first_rank(task->tensors, node);

    return rank >= first && rank - first < tensors_n_workers(task->tensors, node);
}

/* A worker has told all results, and ends once it knows that they were heard. */
static void answer_end(Scheduler *scheduler, uint32_t node, const ControlWant *want)
{
    const Control heard = { .kind = CONTROL_BLOCKS,
                            .blocks = { .epoch = want->epoch,
                                        .reader = want->reader,
                                        .is_last = true,
                                        .tickets = "",
                                        .worker = want->worker } };

    scheduler_send(scheduler, node, &heard);
}

bool data_want(Scheduler *scheduler, uint32_t node, const Control *control)
{
    const ControlWant *const want = &control->want;
    SchedulerTask *task = task_find(scheduler, want->epoch);
    BlockTicketEvent news;
    BlockTicket ticket;
    uint64_t clock;

    if (task == NULL)
        return task_is_late(scheduler, want->epoch);
    Reading *reading = find_reading(task, want->reader);
    if (reading == NULL && task->cause.code != CONTROL_OK)
        return true;
    if (reading == NULL || reading->dispatcher == NULL || want->events == NULL ||
        (reading->dealt != NULL && !has_worker(task, node, want->worker)))
        return false;
    for (const char *at = want->events; *at != '\0';)
        if (!block_ticket_read(&at, &news, &clock, &ticket) ||
            !take_news(reading, node, want->worker, news, clock, ticket))
            return false;
    if (want->ends)
        answer_end(scheduler, node, want);
    if (want->n_blocks == 0 || want->ends)
        return true;
    reading->has_asked[node] = true;
    if (reading->kept_as != NULL && knows_all_files(scheduler, task, reading))
        kept_check_files(scheduler, task, reading->dispatcher);
    if (task->cause.code == CONTROL_OK)
        deal(scheduler, reading, node, want);
    return true;
}

/* ---- cutting ---- */

static void begin_cut(const SchedulerTask *task)
{
    for (guint i = 0; i < task->readings->len; i++) {
        Reading *const reading = task->readings->pdata[i];

        if (reading == NULL || reading->kept_as == NULL)
            continue;
        reading->is_cut = false;
        reading->cut_clock = EVERY_CLOCK;
        block_dispatcher_begin_cut(reading->dispatcher);
    }
}

static void end_cut(Scheduler *scheduler, const SchedulerTask *task)
{
    for (guint i = 0; i < task->readings->len; i++) {
        const Reading *const reading = task->readings->pdata[i];

        if (reading == NULL || reading->kept_as == NULL || !reading->is_cut)
            continue;
        if (reading->cut_clock != EVERY_CLOCK)
            ended_steps_cut(reading->ended, reading->cut_clock, reading->dispatcher);
        kept_put(scheduler, reading->kept_as, reading->text, reading->dispatcher);
    }
}

bool data_has_kept(const SchedulerTask *task)
{
    for (guint i = 0; i < task->readings->len; i++) {
        const Reading *const reading = task->readings->pdata[i];

        if (reading != NULL && reading->kept_as != NULL)
            return true;
    }
    return false;
}

static bool has_failed(const SchedulerTask *task)
{
    return task->cause.code != CONTROL_OK || task->effect.code != CONTROL_OK;
}

void data_forget(Scheduler *scheduler, const SchedulerTask *task)
{
    if (has_failed(task) && data_has_kept(task) && kept_cuts_table_of(scheduler, task))
        scheduler->cut_is_torn = true;
}

/* Whether others in the place of the task's lost workers have yet to tell again what these had told
 * of readers that are kept. */
static bool is_behind(const SchedulerTask *task)
{
    for (guint i = 0; i < task->readings->len; i++) {
        const Reading *const reading = task->readings->pdata[i];

        if (reading == NULL || reading->kept_as == NULL || reading->dealt == NULL)
            continue;
        for (uint32_t rank = 0; rank < tensors_first_rank(task->tensors, reading->n_nodes); rank++)
            if (dealt_blocks_are_behind(reading->dealt, rank))
                return true;
    }
    return false;
}

/* Whether only nodes that are lost have read, so that none has told of the reader in the cut. Once
 * another one opens it, that does. */
static bool is_told_by_nobody(const SchedulerTask *task)
{
    for (guint i = 0; i < task->readings->len; i++) {
        const Reading *const reading = task->readings->pdata[i];

        if (reading != NULL && reading->kept_as != NULL && !reading->is_cut &&
            ended_steps_are_lost(reading->ended))
            return true;
    }
    return false;
}

Verdict data_find_tear(const Scheduler *scheduler)
{
    const Verdict torn = { CONTROL_CODE(RUBATO_ERROR_CANCELLED), (char *)TASK_HAS_FAILED };
    const Verdict behind = { CONTROL_CODE(RUBATO_ERROR_NODE_LOST), (char *)READ_AGAIN };
    const Verdict unknown = { CONTROL_CODE(RUBATO_ERROR_NODE_LOST), (char *)ENDED_ALONE };
    Verdict tear = scheduler->cut_is_torn ? torn : (Verdict){ .code = CONTROL_OK };

    for (guint i = 0; i < scheduler->tasks->len && !scheduler->cut_is_torn; i++) {
        const SchedulerTask *const task = scheduler->tasks->pdata[i];

        if (!data_has_kept(task) ||
            !(has_failed(task) || is_behind(task) || is_told_by_nobody(task)) ||
            !kept_cuts_table_of(scheduler, task))
            continue;
        if (has_failed(task))
            return torn;
        tear = is_behind(task) ? behind : unknown;
    }
    return tear;
}

void data_hear_step(Scheduler *scheduler, ControlStep step, const char *spec)
{
    if (step == CONTROL_STEP_CUT)
        kept_begin_cut(scheduler, spec);
    else if (step != CONTROL_STEP_WRITE)
        return;
    for (guint i = 0; i < scheduler->tasks->len; i++)
        if (step == CONTROL_STEP_CUT)
            begin_cut(scheduler->tasks->pdata[i]);
        else
            end_cut(scheduler, scheduler->tasks->pdata[i]);
}

/* ---- what nodes no longer read ---- */

void data_node_out(SchedulerTask *task, uint32_t node)
{
    for (guint i = 0; i < task->readings->len; i++) {
        Reading *reading = task->readings->pdata[i];

        if (reading != NULL && reading->dispatcher != NULL)
            block_dispatcher_node_out(reading->dispatcher, node);
    }
}

void data_await(SchedulerTask *task, uint32_t node)
{
    for (guint i = 0; i < task->readings->len; i++) {
        Reading *const reading = task->readings->pdata[i];

        if (reading == NULL || reading->dealt == NULL)
            continue;
        ended_steps_begin_again(reading->ended, node);
        g_array_set_size(reading->inputs[node], 0);
        reading->has_asked[node] = false;
        for (uint32_t rank = tensors_first_rank(task->tensors, node); has_worker(task, node, rank);
             rank++)
            dealt_blocks_begin_again(reading->dealt, rank);
    }
}

void data_lose_ended(SchedulerTask *task, uint32_t node)
{
    for (guint i = 0; i < task->readings->len; i++) {
        Reading *const reading = task->readings->pdata[i];

        if (reading != NULL && reading->kept_as != NULL && reading->inputs[node]->len > 0)
            ended_steps_lose(reading->ended, node);
    }
}

void data_settle(SchedulerTask *task, uint32_t node)
{
    for (guint i = 0; i < task->readings->len; i++) {
        Reading *reading = task->readings->pdata[i];

        if (reading != NULL && reading->dispatcher != NULL)
            block_dispatcher_settle(reading->dispatcher, node);
    }
}

const char *data_needs_all(const SchedulerTask *task)
{
    for (guint i = 0; i < task->readings->len; i++) {
        const Reading *reading = task->readings->pdata[i];

        if (reading != NULL && reading->dispatcher == NULL)
            return "each of its workers reads a fixed share of the data";
    }
    return NULL;
}

uint64_t data_n_unread(const SchedulerTask *task)
{
    uint64_t n = 0;

    for (guint i = 0; i < task->readings->len; i++) {
        const Reading *reading = task->readings->pdata[i];

        if (reading != NULL && reading->dispatcher != NULL && reading->any_ended)
            n += block_dispatcher_n_orphans(reading->dispatcher);
    }
    return n;
}

static void add_queue(const Scheduler *scheduler, const Reading *reading, GVariantBuilder *part)
{
    const BlockDispatcherProgress progress = block_dispatcher_progress(reading->dispatcher);
    GVariantBuilder nodes;

    g_variant_builder_init(&nodes, STATUS_LIST);
    status_add_count(part, "files", progress.n_inputs);
    status_add_count(part, "epoch", (uint64_t)progress.epoch + 1);
    status_add_count(part, "done", progress.n_done);
    status_add_count(part, "dealt", progress.n_dealt);
    status_add_count(part, "left", progress.n_left);
    for (uint32_t i = 0; i < reading->n_nodes; i++) {
        GVariantBuilder node;

        if (reading->inputs[i]->len == 0) /* it does not read */
            continue;
        g_variant_builder_init(&node, STATUS_PART);
        status_add_count(&node, "node", scheduler->nodes[i].id);
        status_add_count(&node, "dealt", block_dispatcher_n_dealt(reading->dispatcher, i));
        g_variant_builder_add_value(&nodes, g_variant_builder_end(&node));
    }
    status_add_built(part, "nodes", &nodes);
}

void data_add_status(const Scheduler *scheduler, const SchedulerTask *task, GVariantBuilder *list)
{
    for (guint i = 0; i < task->readings->len; i++) {
        const Reading *const reading = task->readings->pdata[i];
        GVariantBuilder part;

        if (reading == NULL)
            continue;
        g_variant_builder_init(&part, STATUS_PART);
        status_add_count(&part, "reader", i);
        status_add_text(&part, "reads", reading->text);
        status_add_count(&part, "epochs", reading->n_epochs);
        if (reading->dispatcher != NULL)
            add_queue(scheduler, reading, &part);
        g_variant_builder_add_value(list, g_variant_builder_end(&part));
    }
}

/* ---- as bytes ---- */

static void walk_own_number(StateWalk *walk, void *element)
{
    WALK(walk, *(uint32_t *)element);
}

static void walk_reading(StateWalk *walk, const SchedulerTask *task, Reading *it)
{
    WALK(walk, it->first);
    WALK(walk, it->n_epochs);
    walk_text(walk, &it->kept_as);
    WALK(walk, it->is_cut);
    WALK(walk, it->cut_clock);
    walk_text(walk, &it->text);
    walk_text(walk, &it->digest);
    it->dispatcher = block_dispatcher_walk(walk, it->dispatcher, it->n_nodes);
    if (walk_number(walk, it->dealt != NULL) != 0) {
        if (walk_reads(walk))
            it->dealt = dealt_blocks_new(tensors_first_rank(task->tensors, it->n_nodes));
        dealt_blocks_walk(walk, it->dealt);
    }
    ended_steps_walk(walk, it->ended);
    for (uint32_t node = 0; node < it->n_nodes; node++)
        walk_array(walk, it->inputs[node], walk_own_number);
    walk_flags(walk, it->has_asked, it->n_nodes);
    WALK(walk, it->any_ended);
    walk->is_wrong |= it->first >= it->n_nodes || (it->dealt != NULL && it->dispatcher == NULL);
}

void data_walk(StateWalk *walk, const Scheduler *scheduler, SchedulerTask *task)
{
    const size_t n = walk_count(walk, task->readings->len);

    g_ptr_array_set_size(task->readings, (gint)n);
    for (size_t i = 0; i < n && !walk->is_wrong; i++) {
        if (walk_number(walk, task->readings->pdata[i] != NULL) == 0)
            continue;
        if (walk_reads(walk))
            task->readings->pdata[i] = reading_alloc(scheduler->config.n_nodes);
        walk_reading(walk, task, task->readings->pdata[i]);
    }
}
