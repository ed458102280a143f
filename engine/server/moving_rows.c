/* The rows of a part that moves are sent as requests to the server that expects the part: Sets, and
 * Sets of state for what the update rule keeps beside them. Rows of different lengths are sent as
 * assignments. Tunings, counts of bad deltas, and what admits keys are sent with them.
 *
 * Threads: that of part steps, which owns the part. */
#include "engine/server/moving_part.h"
#include "io/net/handler_call.h"
#include "models/handlers/handler.h"
#include "models/ragged/ragged.h"
#include "models/shard/shard.h"
#include "models/spec.h"
#include "models/update/rule.h"

#include <string.h>

/* About so many bytes of rows are read at a time. */
#define BLOCK_BYTES ((size_t)256 << 10)

/* So many keys of rows of different lengths are read at a time. */
#define RAGGED_KEYS ((size_t)1024)

typedef struct {
    const MovingPart *moving;
    const PartWay *way;
    Call *call;
    size_t row_bytes, state_bytes;
    size_t most; /* rows at a time */
    void *values;
    RubatoKey *keys;
    HandlerCall *assigning; /* of ragged rows; it gets the answers until the call has ended */
} RowSender;

static bool send_values(const RowSender *sender, MessageKind kind, const RubatoKeys *keys,
                        size_t row_bytes, GError **error)
{
    Message message = {
        .kind = kind,
        .call = sender->call,
        .row_bytes = row_bytes,
        .request = { .worker = BAD_GRADIENTS_NO_WORKER, .keys = *keys, .input = sender->values }
    };

    return moving_part_ask(sender->moving, sender->way, &message, error);
}

static bool send_rows_of(const RowSender *sender, const RubatoKeys *keys, GError **error)
{
    RubatoShard *shard = sender->moving->shard;

    shard_get(shard, keys, sender->values);
    if (!send_values(sender, MESSAGE_SET, keys, sender->row_bytes, error))
        return false;
    if (sender->state_bytes > 0) {
        shard_get_state(shard, keys, sender->values);
        if (!send_values(sender, MESSAGE_SET_STATE, keys, sender->state_bytes, error))
            return false;
    }
    if (!shard_is_bounded(shard))
        return true;
    shard_get_marks(shard, keys, sender->values);
    return send_values(sender, MESSAGE_SET_MARKS, keys, sizeof(uint32_t), error);
}

/* The counts of uses come first: so the marks of the rows that follow have a meaning. */
static bool send_uses(const RowSender *sender, GError **error)
{
    const StorageUses uses = shard_uses(sender->moving->shard);
    const RubatoKeys one = { .n = 1 };

    if (!shard_is_bounded(sender->moving->shard))
        return true;
    memcpy(sender->values, &uses, sizeof uses);
    return send_values(sender, MESSAGE_SET_USES, &one, sizeof uses, error);
}

static bool send_admission(const RowSender *sender, GError **error)
{
    const RubatoShard *shard = sender->moving->shard;
    const size_t n = shard_n_admission_words(shard), most = BLOCK_BYTES / sizeof(uint64_t);

    for (size_t begin = 0; begin < n; begin += most) {
        const RubatoKeys numbers = { .first = begin, .n = MIN(n - begin, most) };

        shard_get_admission(shard, begin, numbers.n, sender->values);
        if (!send_values(sender, MESSAGE_SET_ADMISSION, &numbers, sizeof(uint64_t), error))
            return false;
    }
    return true;
}

/* ---- rows of different lengths ---- */

/* Runs a request on this shard. False: there is no memory. */
static bool ask_here(const RowSender *sender, const char *name, const RubatoKeys *keys,
                     HandlerAnswer *answer)
{
    HandlerCall call = { .ops = ragged_find(name), .arguments = "" };

    handler_run(&call, sender->moving->shard, keys);
    *answer = call.answer;
    return answer->failure == NULL && (answer->bytes != NULL || keys->n == 0);
}

/* Sends rows as an assignment: the result of a Get is what an assignment takes. */
static bool assign_there(const RowSender *sender, const RubatoKeys *keys, GError **error)
{
    HandlerCall *const call = sender->assigning;
    Message message = {
        .kind = MESSAGE_HANDLER,
        .call = sender->call,
        .request = { .worker = BAD_GRADIENTS_NO_WORKER, .keys = *keys, .handler_call = call }
    };
    HandlerAnswer rows;
    bool ok;

    if (!ask_here(sender, "ragged.get", keys, &rows)) {
        handler_answer_clear(&rows);
        return moving_part_check(sender->moving, sender->way, CALL_NO_MEMORY, error);
    }
    call->ops = ragged_find("ragged.assign");
    call->arguments = rows.bytes;
    call->n_bytes = rows.n_bytes;
    ok = moving_part_ask(sender->moving, sender->way, &message, error);
    handler_answer_clear(&rows); /* they were copied */
    return ok;
}

static RubatoKeys some_keys(const RubatoKeys *keys, size_t begin, size_t n)
{
    return (RubatoKeys){ .keys = keys->keys == NULL ? NULL : keys->keys + begin,
                         .first = keys->first + begin,
                         .n = n };
}

/* Sends rows of about BLOCK_BYTES at a time, and one row at least. */
static bool send_ragged_rows(const RowSender *sender, const RubatoKeys *keys, GError **error)
{
    const size_t value_bytes = rubato_dtype_size(shard_spec(sender->moving->shard)->dtype);
    HandlerAnswer lengths;
    bool ok = true;

    if (!ask_here(sender, "ragged.lengths", keys, &lengths)) {
        handler_answer_clear(&lengths);
        return moving_part_check(sender->moving, sender->way, CALL_NO_MEMORY, error);
    }
    for (size_t begin = 0, i = 0; begin < keys->n && ok; begin = i) {
        for (size_t n_bytes = 0; i < keys->n && n_bytes < BLOCK_BYTES; i++)
            n_bytes += value_bytes * ((const uint32_t *)lengths.bytes)[i];

        const RubatoKeys some = some_keys(keys, begin, i - begin);

        ok = assign_there(sender, &some, error);
    }
    handler_answer_clear(&lengths);
    return ok;
}

/* ---- all rows ---- */

static bool send_all_rows(const RowSender *sender, GError **error)
{
    RubatoShard *shard = sender->moving->shard;
    const bool is_range = rubato_table_spec_holds_range(shard_spec(shard));
    RubatoKey first;
    uint64_t n;

    shard_range(shard, &first, &n);
    if (!is_range)
        n = shard_n_rows(shard);
    for (uint64_t begin = 0; begin < n; begin += sender->most) {
        RubatoKeys keys = { .first = first + begin, .n = (size_t)MIN(n - begin, sender->most) };

        if (!is_range) {
            shard_list(shard, begin, keys.n, sender->keys);
            keys.keys = sender->keys;
        }
        if (!(sender->assigning != NULL ? send_ragged_rows(sender, &keys, error)
                                        : send_rows_of(sender, &keys, error)))
            return false;
    }
    return true;
}

static bool send_counts(const RowSender *sender, GError **error)
{
    const BadGradients *bad = shard_bad_gradients(sender->moving->shard);
    const uint32_t n = bad_gradients_length(bad);
    const uint32_t most = (uint32_t)(BLOCK_BYTES / sizeof(BadCounts));

    for (uint32_t begin = 0; begin < n; begin += most) {
        const RubatoKeys numbers = { .first = begin, .n = MIN(n - begin, most) };

        bad_gradients_read(bad, begin, numbers.n, sender->values);
        if (!send_values(sender, MESSAGE_SET_BAD_GRADIENTS, &numbers, sizeof(BadCounts), error))
            return false;
    }
    return true;
}

static bool send_tunings(const RowSender *sender, GError **error)
{
    for (uint32_t i = 0; i < N_HYPERS; i++) {
        const RubatoHyper hyper = (RubatoHyper)i;
        Message message = { .kind = MESSAGE_TUNE,
                            .call = sender->call,
                            .request = { .worker = BAD_GRADIENTS_NO_WORKER } };
        double value;

        if (!shard_tuned(sender->moving->shard, hyper, &value))
            continue;
        message.request.tuning = (RubatoTuning){ .hyper = hyper, .value = value };
        if (!moving_part_ask(sender->moving, sender->way, &message, error))
            return false;
    }
    return true;
}

bool moving_part_send_rows(MovingPart *moving, const PartWay *way, GError **error)
{
    const RubatoTableSpec *spec = shard_spec(moving->shard);
    Call call;
    RowSender sender = { .moving = moving,
                         .way = way,
                         .call = &call,
                         .row_bytes = spec_row_bytes(spec),
                         .state_bytes = spec_state_bytes(spec) };
    const size_t longest = MAX(sender.row_bytes, sender.state_bytes);
    HandlerCall assigning = { 0 };
    bool ok;

    sender.most = MAX(1, BLOCK_BYTES / longest);
    if (shard_is_bounded(moving->shard)) /* a row is not evicted before its state and mark come */
        sender.most = MIN(sender.most, RUBATO_STORAGE_BLOCK);
    if (spec->shape == RUBATO_SHAPE_RAGGED) {
        sender.most = RAGGED_KEYS;
        sender.assigning = &assigning;
    }
    g_autofree void *values = g_try_malloc(MAX(BLOCK_BYTES, longest));
    g_autofree RubatoKey *keys = g_try_new(RubatoKey, sender.most);
    if (values == NULL || keys == NULL)
        return moving_part_check(moving, way, CALL_NO_MEMORY, error);
    sender.values = values;
    sender.keys = keys;
    call_begin(&call, NULL);
    ok = send_tunings(&sender, error) && send_uses(&sender, error) &&
         send_admission(&sender, error) && send_all_rows(&sender, error) &&
         send_counts(&sender, error);
    const CallStatus status = moving_part_finish(way, &call);

    handler_answer_clear(&assigning.answer);
    return ok && moving_part_check(moving, way, moving->starved ? CALL_NO_MEMORY : status, error);
}
