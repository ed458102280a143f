/* The state of a part as requests. Rows go as Sets, and Sets of state for what the update rule
 * keeps beside them. Tunings, counts of bad deltas, and what admits and evicts keys go with them.
 *
 * Threads: the part's owner. */
#include "engine/server/moving/part_state.h"

#include "models/handlers/call_trace.h"
#include "models/handlers/handler.h"
#include "models/ragged/ragged.h"
#include "models/shard/image.h"
#include "models/shard/shard_roles.h"
#include "models/spec.h"
#include "models/update/rule.h"

#include <string.h>

/* So many keys of rows of different lengths are read at a time. */
#define RAGGED_KEYS ((size_t)1024)

/* Beside its values a row has a key and a length. */
#define RAGGED_ROW_BYTES (sizeof(RubatoKey) + sizeof(uint32_t))

static bool is_ragged(const PartState *state)
{
    return shard_spec(state->shard)->shape == RUBATO_SHAPE_RAGGED;
}

bool part_state_init(PartState *state)
{
    const RubatoTableSpec *const spec = shard_spec(state->shard);

    state->row_bytes = spec_row_bytes(spec);
    state->state_bytes = spec_state_bytes(spec);
    const size_t longest = MAX(state->row_bytes, state->state_bytes);

    state->most = MAX(1, PART_STATE_BLOCK_BYTES / MAX(longest, 1));
    if (shard_is_bounded(state->shard)) /* a row is not evicted before its state and mark come */
        state->most = MIN(state->most, RUBATO_STORAGE_BLOCK);
    if (is_ragged(state))
        state->most = RAGGED_KEYS;
    state->values = g_try_malloc(MAX(PART_STATE_BLOCK_BYTES, longest));
    state->keys = g_try_new(RubatoKey, state->most);
    if (state->values != NULL && state->keys != NULL)
        return true;
    part_state_clear(state);
    return false;
}

void part_state_clear(PartState *state)
{
    g_clear_pointer(&state->values, g_free);
    g_clear_pointer(&state->keys, g_free);
}

static bool send_values(const PartState *state, MessageKind kind, const RubatoKeys *keys,
                        size_t row_bytes, GError **error)
{
    Message message = {
        .kind = kind,
        .row_bytes = row_bytes,
        .request = { .worker = BAD_GRADIENTS_NO_WORKER, .keys = *keys, .input = state->values }
    };

    return state->send(state->user, &message, error);
}

static bool send_rows_of(const PartState *state, const RubatoKeys *keys, GError **error)
{
    shard_get(state->shard, keys, state->values);
    if (!send_values(state, MESSAGE_SET, keys, state->row_bytes, error))
        return false;
    if (state->state_bytes > 0) {
        shard_get_state(state->shard, keys, state->values);
        if (!send_values(state, MESSAGE_SET_STATE, keys, state->state_bytes, error))
            return false;
    }
    if (!shard_is_bounded(state->shard))
        return true;
    shard_get_marks(state->shard, keys, state->values);
    return send_values(state, MESSAGE_SET_MARKS, keys, sizeof(uint32_t), error);
}

/* ---- rows of different lengths ---- */

/* Runs a request on the shard. False: there is no memory. */
static bool ask_here(const PartState *state, const char *name, const RubatoKeys *keys,
                     HandlerAnswer *answer)
{
    HandlerCall call = { .ops = ragged_find(name), .arguments = "" };

    handler_run(&call, state->shard, keys);
    *answer = call.answer;
    return answer->failure == NULL && (answer->bytes != NULL || keys->n == 0);
}

/* Sends rows as an assignment: the result of a Get is what an assignment takes. */
static bool assign_there(const PartState *state, const RubatoKeys *keys, GError **error)
{
    HandlerCall assigning = { .ops = ragged_find("ragged.assign") };
    HandlerAnswer rows;
    const bool is_read = ask_here(state, "ragged.get", keys, &rows);

    assigning.arguments = rows.bytes;
    assigning.n_bytes = rows.n_bytes;
    const bool ok = state->assign(state->user, keys, is_read ? &assigning : NULL, error);

    handler_answer_clear(&rows);
    return ok;
}

static RubatoKeys some_keys(const RubatoKeys *keys, size_t begin, size_t n)
{
    return (RubatoKeys){ .keys = keys->keys == NULL ? NULL : keys->keys + begin,
                         .first = keys->first + begin,
                         .n = n };
}

/* Sends the first ones of these rows, until they have *n_bytes, and one row at least: about
 * PART_STATE_BLOCK_BYTES of them at a time. *n_bytes: what is left of it. */
static bool send_some_ragged(const PartState *state, const RubatoKeys *keys, size_t *n_bytes,
                             size_t *n_sent, GError **error)
{
    const size_t value_bytes = rubato_dtype_size(shard_spec(state->shard)->dtype);
    HandlerAnswer lengths;
    bool ok = ask_here(state, "ragged.lengths", keys, &lengths) ||
              state->assign(state->user, keys, NULL, error);
    size_t end = 0;

    for (size_t begin = 0; ok && lengths.bytes != NULL && *n_bytes > 0 && end != keys->n;
         begin = end) {
        const size_t most = MIN(*n_bytes, PART_STATE_BLOCK_BYTES);
        size_t n = 0;

        for (; end < keys->n && n < most; end++)
            n += RAGGED_ROW_BYTES + value_bytes * ((const uint32_t *)lengths.bytes)[end];

        const RubatoKeys some = some_keys(keys, begin, end - begin);

        ok = assign_there(state, &some, error);
        *n_bytes -= MIN(*n_bytes, n);
    }
    handler_answer_clear(&lengths);
    *n_sent = end;
    return ok;
}

static bool send_ragged_rows(const PartState *state, const RubatoKeys *keys, GError **error)
{
    size_t n_bytes = SIZE_MAX, n_sent;

    return send_some_ragged(state, keys, &n_bytes, &n_sent, error);
}

static bool send_n_writes(const PartState *state, GError **error)
{
    uint64_t n;
    const HandlerCall going_on = { .ops = ragged_find("ragged.go_on"),
                                   .arguments = &n,
                                   .n_bytes = sizeof n };

    return !call_trace_count(state->shard, &n) ||
           state->assign(state->user, &(RubatoKeys){ .n = 0 }, &going_on, error);
}

/* ---- the rest ---- */

/* The counts of uses come first: so the marks of the rows that follow have a meaning. */
bool part_state_send_uses(const PartState *state, GError **error)
{
    const StorageUses uses = shard_uses(state->shard);
    const RubatoKeys one = { .n = 1 };

    if (!shard_is_bounded(state->shard))
        return true;
    memcpy(state->values, &uses, sizeof uses);
    return send_values(state, MESSAGE_SET_USES, &one, sizeof uses, error);
}

/* Of what admits keys, these words. */
static bool send_words(const PartState *state, size_t first, size_t n, GError **error)
{
    const size_t most = PART_STATE_BLOCK_BYTES / sizeof(uint64_t);

    for (size_t begin = 0; begin < n; begin += most) {
        const RubatoKeys numbers = { .first = first + begin, .n = MIN(n - begin, most) };

        shard_get_admission(state->shard, numbers.first, numbers.n, state->values);
        if (!send_values(state, MESSAGE_SET_ADMISSION, &numbers, sizeof(uint64_t), error))
            return false;
    }
    return true;
}

static bool send_admission(const PartState *state, GError **error)
{
    return send_words(state, 0, shard_n_admission_words(state->shard), error);
}

static bool send_all_rows(const PartState *state, GError **error)
{
    const bool is_range = rubato_table_spec_holds_range(shard_spec(state->shard));
    RubatoKey first;
    uint64_t n;

    shard_range(state->shard, &first, &n);
    if (!is_range)
        n = shard_n_rows(state->shard);
    for (uint64_t begin = 0; begin < n; begin += state->most) {
        RubatoKeys keys = { .first = first + begin, .n = (size_t)MIN(n - begin, state->most) };

        if (!is_range) {
            shard_list(state->shard, begin, keys.n, state->keys);
            keys.keys = state->keys;
        }
        if (!(is_ragged(state) ? send_ragged_rows(state, &keys, error)
                               : send_rows_of(state, &keys, error)))
            return false;
    }
    return true;
}

static bool send_counts(const PartState *state, GError **error)
{
    const BadGradients *bad = shard_bad_gradients(state->shard);
    const uint32_t n = bad_gradients_length(bad);
    const uint32_t most = (uint32_t)(PART_STATE_BLOCK_BYTES / sizeof(BadCounts));

    for (uint32_t begin = 0; begin < n; begin += most) {
        const RubatoKeys numbers = { .first = begin, .n = MIN(n - begin, most) };

        bad_gradients_read(bad, begin, numbers.n, state->values);
        if (!send_values(state, MESSAGE_SET_BAD_GRADIENTS, &numbers, sizeof(BadCounts), error))
            return false;
    }
    return true;
}

static bool send_tunings(const PartState *state, GError **error)
{
    for (uint32_t i = 0; i < N_HYPERS; i++) {
        const RubatoHyper hyper = (RubatoHyper)i;
        Message message = { .kind = MESSAGE_TUNE,
                            .request = { .worker = BAD_GRADIENTS_NO_WORKER } };
        double value;

        if (!shard_tuned(state->shard, hyper, &value))
            continue;
        message.request.tuning = (RubatoTuning){ .hyper = hyper, .value = value };
        if (!state->send(state->user, &message, error))
            return false;
    }
    return true;
}

bool part_state_send(const PartState *state, GError **error)
{
    return part_state_send_first(state, error) && send_admission(state, error) &&
           send_all_rows(state, error) && (!is_ragged(state) || send_n_writes(state, error)) &&
           send_counts(state, error);
}

/* ---- rows in slices ---- */

bool part_state_send_first(const PartState *state, GError **error)
{
    return send_tunings(state, error) && part_state_send_uses(state, error);
}

bool part_state_send_last(const PartState *state, GError **error)
{
    return (!is_ragged(state) || send_n_writes(state, error)) && send_counts(state, error);
}

void part_slice_clear(PartSlice *slice)
{
    if (slice->found != NULL)
        g_array_unref(slice->found);
    *slice = (PartSlice){ 0 };
}

/* The next rows of a range, n at most. */
static RubatoKeys next_of_range(const PartState *state, PartSlice *slice, size_t n)
{
    RubatoKeys keys = { 0 };
    uint64_t n_all;

    shard_range(state->shard, &keys.first, &n_all);
    keys.first += slice->next;
    keys.n = (size_t)MIN(n_all - slice->next, n);
    slice->next += keys.n;
    slice->has_all_rows = slice->next == n_all;
    return keys;
}

/* The same of other storage. A row that was found may have been evicted since, or have expired;
 * then it is not sent. One that is made later need not be found: the other part gets what makes
 * it. */
static RubatoKeys next_found(const PartState *state, PartSlice *slice, size_t n)
{
    if (slice->found == NULL)
        slice->found = g_array_new(FALSE, FALSE, sizeof(RubatoKey));
    if (slice->n_sent == slice->found->len) {
        g_array_set_size(slice->found, 0);
        slice->n_sent = 0;
        slice->has_walked = !shard_walk(state->shard, &slice->next, slice->found);
    }
    const guint begin = slice->n_sent;

    slice->n_sent += (guint)MIN(slice->found->len - begin, n);
    slice->has_all_rows = slice->has_walked && slice->n_sent == slice->found->len;
    if (slice->n_sent == begin)
        return (RubatoKeys){ 0 };

    RubatoKey *const keys = &g_array_index(slice->found, RubatoKey, begin);
    const size_t n_found = slice->n_sent - begin;

    return (RubatoKeys){ .keys = keys,
                         .n = shard_chooses_rows(state->shard)
                                  ? shard_leave_out_absent(state->shard, keys, n_found)
                                  : n_found };
}

static RubatoKeys next_rows(const PartState *state, PartSlice *slice, size_t n)
{
    return rubato_table_spec_holds_range(shard_spec(state->shard)) ? next_of_range(state, slice, n)
                                                                   : next_found(state, slice, n);
}

/* The last n of the rows before are to be sent, too. */
static void go_back(const PartState *state, PartSlice *slice, size_t n)
{
    if (n == 0)
        return;
    slice->has_all_rows = false;
    if (rubato_table_spec_holds_range(shard_spec(state->shard)))
        slice->next -= n;
    else
        slice->n_sent -= (guint)n;
}

/* How many rows fit is seen when their lengths are known. *n_bytes: what is left of it. */
static bool send_ragged_slice(const PartState *state, PartSlice *slice, size_t *n_bytes,
                              GError **error)
{
    while (*n_bytes > 0 && !slice->has_all_rows) {
        const RubatoKeys keys = next_rows(state, slice, state->most);
        size_t n_sent = 0;

        if (keys.n > 0 && !send_some_ragged(state, &keys, n_bytes, &n_sent, error))
            return false;
        go_back(state, slice, keys.n - n_sent);
    }
    return true;
}

/* The same of rows of one length. */
static bool send_even_slice(const PartState *state, PartSlice *slice, size_t *n_bytes,
                            GError **error)
{
    const size_t row_bytes = MAX(1, state->row_bytes + state->state_bytes);

    while (*n_bytes > 0 && !slice->has_all_rows) {
        const size_t most = MIN(MAX(1, *n_bytes / row_bytes), state->most);
        const RubatoKeys keys = next_rows(state, slice, most);

        if (keys.n > 0 && !send_rows_of(state, &keys, error))
            return false;
        *n_bytes -= MIN(*n_bytes, keys.n * row_bytes);
    }
    return true;
}

/* From the first of them on the shard notes which ones change; what it cannot note is sent at
 * once. */
static bool send_admission_slice(const PartState *state, PartSlice *slice, size_t n_bytes,
                                 GError **error)
{
    const size_t n_left = shard_n_admission_words(state->shard) - slice->n_words;
    const size_t n = shard_knows_admission_words(state->shard)
                         ? MIN(n_left, MAX(1, n_bytes / sizeof(uint64_t)))
                         : n_left;

    shard_note_words(state->shard);
    if (!send_words(state, slice->n_words, n, error))
        return false;
    slice->n_words += n;
    slice->at_end = n == n_left;
    return true;
}

bool part_state_send_rows(const PartState *state, PartSlice *slice, size_t *n_bytes, GError **error)
{
    return is_ragged(state) ? send_ragged_slice(state, slice, n_bytes, error)
                            : send_even_slice(state, slice, n_bytes, error);
}

/* The next keys of a list, *n_listed of them. Returns how many have rows; `some` has those. */
static size_t take_listed(const PartState *state, const GArray *keys, size_t begin, RubatoKey *some,
                          size_t *n_listed)
{
    *n_listed = MIN(keys->len - begin, MIN((size_t)RUBATO_STORAGE_BLOCK, state->most));
    memcpy(some, &g_array_index(keys, RubatoKey, begin), *n_listed * sizeof *some);
    return rubato_table_spec_holds_range(shard_spec(state->shard))
               ? *n_listed
               : shard_leave_out_absent(state->shard, some, *n_listed);
}

/* Of n keys, those that are not among `present`, which has some of them in the same order. */
static size_t take_gone(const RubatoKey *keys, size_t n, const RubatoKey *present, size_t n_present,
                        RubatoKey *gone)
{
    size_t n_gone = 0, next = 0;

    for (size_t i = 0; i < n; i++)
        if (next < n_present && keys[i] == present[next])
            next++;
        else
            gone[n_gone++] = keys[i];
    return n_gone;
}

bool part_state_send_gone(const PartState *state, GArray *keys, size_t *n_looked, size_t *n_bytes,
                          GError **error)
{
    const size_t row_bytes = MAX(1, state->row_bytes + state->state_bytes);

    if (!shard_is_bounded(state->shard))
        *n_looked = keys->len;
    while (*n_bytes > 0 && *n_looked < keys->len) {
        RubatoKey some[RUBATO_STORAGE_BLOCK], gone[RUBATO_STORAGE_BLOCK];
        const RubatoKey *const listed = &g_array_index(keys, RubatoKey, *n_looked);
        size_t n_listed;
        const size_t n_rows = take_listed(state, keys, *n_looked, some, &n_listed);
        const RubatoKeys absent = { .keys = gone,
                                    .n = take_gone(listed, n_listed, some, n_rows, gone) };

        if (absent.n > 0 && !send_values(state, MESSAGE_REMOVE, &absent, 0, error))
            return false;
        *n_looked += n_listed;
        *n_bytes -= MIN(*n_bytes, n_listed * row_bytes);
    }
    return true;
}

bool part_state_send_keys(const PartState *state, GArray *keys, size_t *n_sent, size_t *n_bytes,
                          GError **error)
{
    const size_t row_bytes = MAX(1, state->row_bytes + state->state_bytes);

    while (*n_bytes > 0 && *n_sent < keys->len) {
        RubatoKey some[RUBATO_STORAGE_BLOCK];
        size_t n_listed;
        const size_t n_rows = take_listed(state, keys, *n_sent, some, &n_listed);

        *n_sent += n_listed;

        const RubatoKeys present = { .keys = some, .n = n_rows };
        size_t n_left = SIZE_MAX, n_all;

        if (n_rows > 0 &&
            !(is_ragged(state) ? send_some_ragged(state, &present, &n_left, &n_all, error)
                               : send_rows_of(state, &present, error)))
            return false;

        const size_t n_used = is_ragged(state) ? SIZE_MAX - n_left : n_listed * row_bytes;

        *n_bytes -= MIN(*n_bytes, n_used);
    }
    return true;
}

bool part_state_send_rest(const PartState *state, GArray *keys, GError **error)
{
    size_t n_bytes = SIZE_MAX, n_looked = 0, n_sent = 0;

    return part_state_send_first(state, error) && send_admission(state, error) &&
           part_state_send_gone(state, keys, &n_looked, &n_bytes, error) &&
           part_state_send_keys(state, keys, &n_sent, &n_bytes, error) &&
           part_state_send_uses(state, error) && part_state_send_last(state, error);
}

bool part_state_send_slice(const PartState *state, PartSlice *slice, size_t n_bytes, GError **error)
{
    if (!part_state_send_rows(state, slice, &n_bytes, error))
        return false;
    return !slice->has_all_rows || (n_bytes == 0 && shard_n_admission_words(state->shard) > 0) ||
           send_admission_slice(state, slice, n_bytes, error);
}
