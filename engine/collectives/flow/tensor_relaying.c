/* The flow of an allreduce in rounds, in each of which a node sends to one other node and gets from
 * one: see tensor_schedule.h.
 *
 * Each block is cut into chunks. Chunks of the same number of all blocks are a column: nothing of
 * it depends on another column, so while one is in a round, others are in other rounds, and all
 * links are in use. A message has the blocks of one round, of one column or of several that follow
 * one another.
 *
 * At a node a column goes through n_rounds + 1 steps, one behind the other. Step r uses what the
 * rounds before r have brought, and sends what round r sends: sums of this node's own values and of
 * what has come for them, or what has been combined. Where a node has a block's sum, or what all
 * nodes have, it is combined to the result, which goes to this node's workers; results that come go
 * there, too, and what is passed on of them is read there.
 *
 * Input and output may be the same array. A node reads its own values of a block for the last time
 * when it sends the block's sum or combines the result, and writes that block's output behind it,
 * as the steps of a column are one behind the other.
 *
 * What comes is kept until the last step that uses it. So no room of its sender depends on whether
 * this node has room to send. */
#include <string.h>

#include "engine/collectives/flow/tensor_combining_private.h"
#include "engine/collectives/flow/tensor_schedule.h"

enum { COLUMN_VALUES = 16 << 10, LEAST_COLUMN_VALUES = 1 << 10 }; /* in a message */

/* Of a column: what a round brings. */
typedef struct {
    bool has_come;
    CombiningParts *owner; /* NULL: it has not come, or is not needed any more */
    const uint8_t *bytes;
} Brought;

struct TensorRelaying {
    TensorSchedule schedule;
    uint32_t n_rounds, n_combining;
    uint32_t finishes; /* the step that combines the result */
    TensorRound *rounds;
    TensorSegments blocks; /* by doubling there is one, which is that of each node */
    uint64_t n_columns, next_column;
    uint32_t most_columns; /* of a message that this node sends */
    uint32_t *next_step;   /* by column */
    bool *is_busy;         /* the same: that step can be done, or is being done */
    Brought *brought;      /* by column, then by round */
};

/* ---- where values are ---- */

/* What a block has in a column: the first value, and how many. */
static uint64_t values_of(const TensorRelaying *it, uint64_t column, uint32_t block, uint64_t *n)
{
    const uint32_t segment = it->schedule.way == TENSOR_WAY_DOUBLING ? 0 : block;
    const uint64_t end = it->blocks.ends[segment];
    const uint64_t begin =
        tensor_segment_begin(&it->blocks, segment) + column * it->blocks.chunk_values;

    *n = begin < end ? MIN(end - begin, it->blocks.chunk_values) : 0;
    return begin;
}

static uint32_t block_at(const TensorRelaying *it, uint32_t first, uint32_t i)
{
    return (uint32_t)(((uint64_t)first + i) % it->schedule.n_nodes);
}

/* Whether results travel in the round. */
static bool spreads(const TensorRelaying *it, uint32_t round)
{
    return it->schedule.way != TENSOR_WAY_DOUBLING && round >= it->n_combining;
}

static size_t size_in(const TensorCombining *combining, uint32_t round)
{
    return spreads(combining->relaying, round) ? combining->size : combining->part_size;
}

/* How many bytes n blocks have in a column. */
static size_t bytes_of(const TensorCombining *combining, uint64_t column, uint32_t round,
                       uint32_t first, uint32_t n)
{
    const TensorRelaying *const it = combining->relaying;
    uint64_t n_values = 0, n_of_block;

    for (uint32_t i = 0; i < n; i++) {
        (void)values_of(it, column, block_at(it, first, i), &n_of_block);
        n_values += n_of_block;
    }
    return n_values * size_in(combining, round);
}

static size_t sent_bytes(const TensorCombining *combining, uint64_t column, uint32_t round)
{
    const TensorRound *const one = &combining->relaying->rounds[round];

    return bytes_of(combining, column, round, one->sent, one->n);
}

static size_t got_bytes(const TensorCombining *combining, uint64_t column, uint32_t round)
{
    const TensorRound *const one = &combining->relaying->rounds[round];

    return bytes_of(combining, column, round, one->got, one->n);
}

static Brought *brought_at(const TensorRelaying *it, uint64_t column, uint32_t round)
{
    return &it->brought[column * it->n_rounds + round];
}

/* Where the values are that a round has brought of a block. NULL: it brings none of it. */
static const uint8_t *brought_of(const TensorCombining *combining, uint64_t column, uint32_t round,
                                 uint32_t block)
{
    const TensorRelaying *const it = combining->relaying;
    const TensorRound *const one = &it->rounds[round];

    if (!tensor_schedule_has(&it->schedule, one->got, one->n, block))
        return NULL;
    const uint32_t n_before = block_at(it, block, it->schedule.n_nodes - one->got);
    return brought_at(it, column, round)->bytes +
           bytes_of(combining, column, round, one->got, n_before);
}

/* ---- whether what comes is right ---- */

/* How many columns, from that one on, have the message's bytes. 0: no number has. */
static uint32_t columns_of(const TensorCombining *combining, uint32_t round, uint64_t column,
                           size_t n_bytes)
{
    uint32_t n = 0;
    size_t n_of_column;

    for (; n_bytes > 0; n_bytes -= n_of_column, n++) {
        if (column + n >= combining->relaying->n_columns)
            return 0;
        n_of_column = got_bytes(combining, column + n, round);
        if (n_of_column == 0 || n_of_column > n_bytes)
            return 0;
    }
    return n;
}

static uint32_t round_of(const TensorMessage *message)
{
    return (uint32_t)(message->place >> 32);
}

static uint64_t column_of(const TensorMessage *message)
{
    return (uint32_t)message->place;
}

/* NULL and how many columns it is of, or what is wrong. */
static const char *check(const TensorFlow *flow, uint32_t from, const TensorMessage *message,
                         uint32_t *n_columns)
{
    const TensorCombining *const combining = flow->combining;
    const TensorRelaying *const it = combining->relaying;
    const uint32_t round = round_of(message);
    const uint64_t column = column_of(message);

    if (round >= it->n_rounds || column >= it->n_columns)
        return "a piece of a tensor behind its end";
    if (it->rounds[round].from != from ||
        message->kind != (spreads(it, round) ? TENSOR_MESSAGE_RESULT : TENSOR_MESSAGE_PART))
        return "a piece of a tensor that is not for this node";
    const uint32_t n = columns_of(combining, round, column, message->n_bytes);
    if (n == 0)
        return "a piece of a tensor of a wrong size";
    for (uint32_t i = 0; i < n; i++)
        if (brought_at(it, column + i, round)->has_come)
            return "a piece of a tensor twice";
    *n_columns = n;
    return NULL;
}

/* The results of one block lie there as they come: its columns follow one another. This node has
 * sent what it had of the block in an earlier round, and sends the results on from there. */
static uint8_t *find_place(const TensorFlow *flow, uint32_t from, const TensorMessage *message)
{
    const TensorRelaying *const it = flow->combining->relaying;
    uint32_t n;
    uint64_t n_first;

    if (check(flow, from, message, &n) != NULL || !spreads(it, round_of(message)) ||
        it->rounds[round_of(message)].n != 1)
        return NULL;
    const uint64_t begin =
        values_of(it, column_of(message), it->rounds[round_of(message)].got, &n_first);
    return combining_place(flow, begin, message->n_bytes / flow->combining->size);
}

/* ---- making ---- */

static void expect(TensorFlow *flow)
{
    const TensorRelaying *const it = flow->combining->relaying;

    flow->n_left = it->n_columns * (it->n_rounds + 1);
    for (uint64_t column = 0; column < it->n_columns; column++)
        for (uint32_t round = 0; round < it->n_rounds; round++)
            flow->n_awaited[it->rounds[round].from] +=
                got_bytes(flow->combining, column, round) > 0;
}

/* What combining has in common is there. */
static void begin(TensorFlow *flow)
{
    TensorRelaying *const it = flow->combining->relaying = g_new0(TensorRelaying, 1);
    const bool is_doubling = flow->way == TENSOR_WAY_DOUBLING;
    const uint32_t n_nodes = flow->plan.n_nodes;

    flow->find_place = find_place;
    it->schedule = (TensorSchedule){ flow->way, n_nodes, flow->plan.self };
    it->n_rounds = tensor_schedule_rounds(&it->schedule);
    it->n_combining = tensor_schedule_combining(&it->schedule);
    it->finishes = is_doubling ? it->n_rounds : it->n_combining;
    it->rounds = g_new(TensorRound, it->n_rounds);
    for (uint32_t round = 0; round < it->n_rounds; round++)
        it->rounds[round] = tensor_schedule_round(&it->schedule, round);
    const uint32_t most_blocks = tensor_schedule_most(&it->schedule);
    const uint64_t column_values = MAX(COLUMN_VALUES / most_blocks, LEAST_COLUMN_VALUES);
    tensor_segments_init(&it->blocks, is_doubling ? 1 : n_nodes, column_values);
    tensor_segments_share(&it->blocks, tensor_request_values(&flow->request));
    tensor_segments_number(&it->blocks);
    it->n_columns = it->blocks.n_turns;
    it->most_columns =
        tensor_flow_most_pieces(flow, column_values * most_blocks * flow->combining->part_size);
    it->next_step = g_new0(uint32_t, it->n_columns);
    it->is_busy = g_new0(bool, it->n_columns);
    it->brought = g_new0(Brought, it->n_columns * it->n_rounds);
    expect(flow);
}

static void drop_brought(const TensorFlow *flow, Brought *brought)
{
    CombiningParts *const owner = brought->owner;

    brought->owner = NULL;
    if (owner == NULL || --owner->n_chunks > 0)
        return;
    tensor_flow_drop(flow, owner->owner);
    g_free(owner);
}

static void end(TensorFlow *flow)
{
    TensorRelaying *const it = flow->combining->relaying;

    for (uint64_t i = 0; i < it->n_columns * it->n_rounds; i++)
        drop_brought(flow, &it->brought[i]);
    g_free(it->brought);
    g_free(it->is_busy);
    g_free(it->next_step);
    tensor_segments_clear(&it->blocks);
    g_free(it->rounds);
    g_free(it);
    tensor_combining_ops.end(flow);
}

/* ---- what comes ---- */

static bool can_go_on(const TensorCombining *combining, uint64_t column)
{
    const TensorRelaying *const it = combining->relaying;
    const uint32_t step = it->next_step[column];

    return !it->is_busy[column] && step > 0 && step <= it->n_rounds &&
           (brought_at(it, column, step - 1)->has_come ||
            got_bytes(combining, column, step - 1) == 0);
}

/* Of these columns those go on that can. */
static void go_on(TensorFlow *flow, uint64_t first, uint32_t n)
{
    TensorRelaying *const it = flow->combining->relaying;
    uint32_t done = 0, run;

    for (; done < n; done += MAX(run, 1)) {
        const uint32_t step = it->next_step[first + done];

        for (run = 0; done + run < n && run < it->most_columns; run++) {
            const uint64_t column = first + done + run;

            if (it->next_step[column] != step || !can_go_on(flow->combining, column))
                break;
            it->is_busy[column] = true;
        }
        if (run > 0)
            tensor_flow_add_step(
                flow, step < it->n_rounds ? TENSOR_STEPS_OF_MESSAGES : TENSOR_STEPS_WITHOUT_ROOM,
                &(TensorStep){ .what = step, .place = first + done, .n = run });
    }
}

static const char *take(TensorFlow *flow, uint32_t from, const TensorMessage *message, void *owner)
{
    const TensorCombining *const combining = flow->combining;
    const TensorRelaying *const it = combining->relaying;
    const uint32_t round = round_of(message);
    const uint64_t column = column_of(message);
    const void *bytes = message->bytes;
    uint32_t n = 0;

    const char *const wrong = check(flow, from, message, &n);
    if (wrong != NULL)
        return wrong;
    owner = tensor_flow_keep(flow, owner, &bytes);
    if (owner == NULL)
        return NULL;
    CombiningParts *const parts = g_new(CombiningParts, 1);
    const uint8_t *at = bytes;
    *parts = (CombiningParts){ owner, n };
    for (uint32_t i = 0; i < n; i++) {
        *brought_at(it, column + i, round) = (Brought){ true, parts, at };
        at += got_bytes(combining, column + i, round);
    }
    flow->n_awaited[from] -= n;
    go_on(flow, column, n);
    return NULL;
}

/* ---- steps ---- */

static bool has_next(const TensorFlow *flow)
{
    return flow->combining->relaying->next_column < flow->combining->relaying->n_columns;
}

/* Columns begin. */
static bool next(TensorFlow *flow, TensorStep *step)
{
    TensorRelaying *const it = flow->combining->relaying;
    const uint64_t first = it->next_column, n = MIN(it->n_columns - first, it->most_columns);

    if (n == 0)
        return false;
    for (uint64_t i = 0; i < n; i++)
        it->is_busy[first + i] = true;
    it->next_column += n;
    *step = (TensorStep){ .what = 0, .place = first, .n = (uint32_t)n };
    return true;
}

/* Later columns have no more values than earlier ones. */
static bool sends_to(const TensorFlow *flow, const TensorStep *step, uint32_t to)
{
    const TensorRelaying *const it = flow->combining->relaying;

    return step->what < it->n_rounds && it->rounds[step->what].to == to &&
           sent_bytes(flow->combining, step->place, step->what) > 0;
}

/* The results that a round has brought go to this node's workers. */
static void copy_out(const TensorFlow *flow, uint64_t column, uint32_t round)
{
    const TensorRelaying *const it = flow->combining->relaying;
    const TensorRound *const one = &it->rounds[round];

    for (uint32_t i = 0; i < one->n; i++) {
        const uint32_t block = block_at(it, one->got, i);
        uint64_t n;
        const uint64_t begin = values_of(it, column, block, &n);

        if (n > 0)
            combining_copy_out(flow, begin, brought_of(flow->combining, column, round, block),
                               n * flow->combining->size);
    }
}

/* The result of what has come: by doubling of all nodes' values, in their order; else of this
 * node's block, of its own values and what the rounds have brought, in theirs. */
static bool finish(const TensorFlow *flow, uint64_t column)
{
    const TensorRelaying *const it = flow->combining->relaying;
    const uint32_t self = it->schedule.self, n_nodes = it->schedule.n_nodes;
    const bool is_doubling = it->schedule.way == TENSOR_WAY_DOUBLING;
    g_autofree const void **parts = g_new0(const void *, n_nodes);
    uint32_t n_parts = is_doubling ? n_nodes : 1;
    uint64_t n;
    const uint64_t begin = values_of(it, column, self, &n);

    if (n == 0)
        return true;
    for (uint32_t round = 0; round < it->finishes; round++) {
        const TensorRound *const one = &it->rounds[round];

        for (uint32_t i = 0; i < one->n; i++) {
            const uint32_t block = block_at(it, one->got, i);

            if (is_doubling || block == self)
                parts[is_doubling ? block : n_parts++] =
                    brought_of(flow->combining, column, round, block);
        }
    }
    return combining_combine_parts(
        flow, begin, n,
        &(CombiningInputs){ .parts = parts, .n = n_parts, .own = is_doubling ? self : 0 }, NULL, 0);
}

/* A block's sum of what this node has of it when the round begins. */
static void add_up(const TensorFlow *flow, uint64_t column, uint32_t round, uint32_t block,
                   void *sum)
{
    const TensorCombining *const combining = flow->combining;
    g_autofree const void **parts = g_new(const void *, round + 1);
    uint32_t n_parts = 1;
    uint64_t n;
    const uint64_t begin = values_of(combining->relaying, column, block, &n);

    for (uint32_t before = 0; before < round; before++) {
        parts[n_parts] = brought_of(combining, column, before, block);
        n_parts += parts[n_parts] != NULL;
    }
    parts[0] = n_parts > 1 ? combining_part_in_place(flow, begin, n) : NULL;
    if (parts[0] == NULL) {
        combining_make_part(flow, begin, n, &sum, 1);
        parts[0] = sum;
    }
    if (n_parts > 1)
        tensor_reduce(&combining->middle, parts, n_parts, &sum, 1, 0, n, 0);
}

/* The values of a node as they came. */
static void pass_on(const TensorFlow *flow, uint64_t column, uint32_t round, uint32_t block,
                    void *values, size_t n_bytes)
{
    const uint8_t *from = NULL;

    for (uint32_t before = 0; before < round && from == NULL; before++)
        from = brought_of(flow->combining, column, before, block);
    memcpy(values, from, n_bytes);
}

/* Writes what a round sends of a column, and returns where it ends. */
static uint8_t *write_column(const TensorFlow *flow, uint64_t column, uint32_t round, uint8_t *to)
{
    const TensorCombining *const combining = flow->combining;
    const TensorRelaying *const it = combining->relaying;
    const TensorRound *const one = &it->rounds[round];
    const bool is_doubling = it->schedule.way == TENSOR_WAY_DOUBLING;

    for (uint32_t i = 0; i < one->n; i++) {
        const uint32_t block = block_at(it, one->sent, i);
        uint64_t n;
        const uint64_t begin = values_of(it, column, block, &n);
        const size_t n_bytes = n * size_in(combining, round);

        if (n == 0)
            continue;
        if (spreads(it, round))
            combining_read_out(flow, begin, n, to);
        else if (is_doubling && block != it->schedule.self)
            pass_on(flow, column, round, block, to, n_bytes);
        else
            add_up(flow, column, is_doubling ? 0 : round, block, to);
        to += n_bytes;
    }
    return to;
}

static bool send_columns(TensorFlow *flow, const TensorStep *step)
{
    const TensorRelaying *const it = flow->combining->relaying;
    const uint32_t round = step->what;
    TensorOutgoing outgoing;
    size_t n_bytes = 0;

    for (uint32_t i = 0; i < step->n; i++)
        n_bytes += sent_bytes(flow->combining, step->place + i, round);
    if (n_bytes == 0)
        return true;
    if (!tensor_flow_begin_message(
            flow, spreads(it, round) ? TENSOR_MESSAGE_RESULT : TENSOR_MESSAGE_PART,
            (uint64_t)round << 32 | step->place, n_bytes, it->rounds[round].to, &outgoing))
        return false;
    uint8_t *to = outgoing.bytes;
    for (uint32_t i = 0; i < step->n; i++)
        to = write_column(flow, step->place + i, round, to);
    tensor_flow_send(flow, &outgoing);
    return true;
}

static bool run(TensorFlow *flow, const TensorStep *step)
{
    const TensorRelaying *const it = flow->combining->relaying;

    for (uint32_t i = 0; i < step->n; i++) {
        if (step->what > 0 && spreads(it, step->what - 1))
            copy_out(flow, step->place + i, step->what - 1);
        if (step->what == it->finishes && !finish(flow, step->place + i))
            return false;
    }
    return step->what == it->n_rounds || send_columns(flow, step);
}

static void did(TensorFlow *flow, const TensorStep *step)
{
    TensorRelaying *const it = flow->combining->relaying;

    for (uint32_t i = 0; i < step->n; i++) {
        const uint64_t column = step->place + i;

        for (uint32_t round = 0; round < step->what; round++)
            if (it->rounds[round].last_use == step->what)
                drop_brought(flow, brought_at(it, column, round));
        it->next_step[column] = step->what + 1;
        it->is_busy[column] = false;
    }
    go_on(flow, step->place, step->n);
}

const TensorFlowOps tensor_relaying_ops = {
    .begin = begin,
    .end = end,
    .take = take,
    .next = next,
    .has_next = has_next,
    .sends_to = sends_to,
    .run = run,
    .did = did,
};
