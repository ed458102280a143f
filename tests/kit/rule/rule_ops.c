/* The ops of an update rule by themselves, on rows in memory of the test's own.
 *
 * Around each row lies memory that nobody may write to.
 *
 * Thread: that of the test case. */
#include <string.h>

#include "tests/kit/rule/rule_world.h"
#include "tests/kit/values.h"

enum { N_ROWS = 7, N_APPLIED = 12, GUARD = 64, GUARD_BYTE = 0xa5 };

/* Row i of deltas takes its place among N_APPLIED; rows repeat. */
static const uint32_t places[N_APPLIED] = { 11, 3, 0, 7, 7, 2, 10, 1, 9, 5, 8, 4 };
static const uint32_t numbers[N_APPLIED] = { 0, 3, 3, 6, 1, 0, 5, 2, 4, 3, 6, 0 };

typedef struct {
    const RubatoUpdateOps *ops;
    const RubatoUpdate *update;
    size_t value_bytes, row_bytes, stride; /* stride: from one row to the next, guards included */
    char *failure;
} Trial;

static void fail(Trial *trial, const char *text)
{
    if (trial->failure == NULL)
        trial->failure = g_strdup(text);
}

static void *row_at(const Trial *trial, unsigned char *memory, size_t i)
{
    return memory + i * trial->stride + GUARD;
}

/* Rows with values and their first state. (transfer full) */
static unsigned char *make_rows(const Trial *trial)
{
    unsigned char *memory = g_malloc(N_ROWS * trial->stride);

    memset(memory, GUARD_BYTE, N_ROWS * trial->stride);
    for (size_t i = 0; i < N_ROWS; i++) {
        unsigned char *row = row_at(trial, memory, i);

        values_fill(trial->update->dtype, row, trial->update->width, (uint32_t)i + 100);
        memset(row + trial->value_bytes, 0, trial->row_bytes - trial->value_bytes);
        if (trial->ops->init_state != NULL)
            trial->ops->init_state(trial->update, row);
    }
    return memory;
}

static bool guards_hold(const Trial *trial, const unsigned char *memory)
{
    for (size_t i = 0; i < N_ROWS * trial->stride; i++) {
        const size_t at = i % trial->stride;

        if ((at < GUARD || at >= GUARD + trial->row_bytes) && memory[i] != GUARD_BYTE)
            return false;
    }
    return true;
}

static bool rows_are_equal(const Trial *trial, unsigned char *one, unsigned char *other)
{
    const size_t n = trial->row_bytes / rubato_dtype_size(trial->update->dtype);

    for (size_t i = 0; i < N_ROWS; i++)
        if (values_differ(trial->update->dtype, row_at(trial, one, i), row_at(trial, other, i), n) <
            n)
            return false;
    return true;
}

static unsigned char *make_deltas(const Trial *trial)
{
    unsigned char *deltas = g_malloc(N_APPLIED * trial->value_bytes);

    values_fill(trial->update->dtype, deltas, (size_t)N_APPLIED * trial->update->width, 7);
    return deltas;
}

static void check_apply_rows(Trial *trial)
{
    g_autofree unsigned char *together = make_rows(trial), *alone = make_rows(trial);
    g_autofree unsigned char *deltas = make_deltas(trial), *same = make_deltas(trial);
    void *rows[N_APPLIED];

    for (size_t i = 0; i < N_APPLIED; i++)
        rows[i] = row_at(trial, together, numbers[i]);
    trial->ops->apply_rows(trial->update, rows, deltas, places, N_APPLIED);
    trial->ops->apply_rows(trial->update, rows, deltas, NULL, N_APPLIED);
    trial->ops->apply_rows(trial->update, rows, deltas, NULL, 0);
    for (size_t i = 0; i < 2 * N_APPLIED; i++) {
        const size_t at = i < N_APPLIED ? places[i] : i - N_APPLIED;
        void *row = row_at(trial, alone, numbers[i % N_APPLIED]);

        trial->ops->apply_rows(trial->update, &row, deltas + at * trial->value_bytes, NULL, 1);
    }
    if (!guards_hold(trial, together) || !guards_hold(trial, alone))
        fail(trial, "apply_rows: it writes beside its rows");
    if (memcmp(deltas, same, N_APPLIED * trial->value_bytes) != 0)
        fail(trial, "apply_rows: it changes the deltas");
    if (!rows_are_equal(trial, together, alone))
        fail(trial, "apply_rows: several rows in one call do not come out as one row in each call");
}

/* A run of values at once, in two parts, and by rows. */
static void check_apply(Trial *trial)
{
    const RubatoUpdate *update = trial->update;
    const size_t n = (size_t)N_APPLIED * update->width, size = rubato_dtype_size(update->dtype);
    const size_t n_bytes = n * size;
    g_autofree unsigned char *deltas = make_deltas(trial);
    g_autofree unsigned char *at_once = g_malloc(n_bytes + GUARD);
    g_autofree unsigned char *in_parts = g_malloc(n_bytes), *by_rows = g_malloc(n_bytes);

    memset(at_once + n_bytes, GUARD_BYTE, GUARD);
    values_fill(update->dtype, at_once, n, 3);
    memcpy(in_parts, at_once, n_bytes);
    memcpy(by_rows, at_once, n_bytes);
    trial->ops->apply(update, at_once, deltas, n);
    trial->ops->apply(update, at_once, deltas, 0);
    for (size_t begin = 0, part = 1; begin < n; begin += part, part = MIN(part + 1, n - begin))
        trial->ops->apply(update, in_parts + begin * size, deltas + begin * size, part);
    for (size_t i = 0; i < N_APPLIED; i++) {
        void *row = by_rows + i * trial->value_bytes;

        trial->ops->apply_rows(update, &row, deltas + i * trial->value_bytes, NULL, 1);
    }
    for (size_t i = 0; i < GUARD; i++)
        if (at_once[n_bytes + i] != GUARD_BYTE)
            fail(trial, "apply: it writes behind its values");
    if (values_differ(update->dtype, at_once, in_parts, n) < n)
        fail(trial, "apply: a run of values does not come out as in several parts");
    if (values_differ(update->dtype, at_once, by_rows, n) < n)
        fail(trial, "apply: a run of rows does not come out as by apply_rows");
}

/* The first state follows from the values and from nothing else. */
static void check_init_state(Trial *trial)
{
    const RubatoUpdate *update = trial->update;
    g_autofree unsigned char *memory = make_rows(trial), *again = make_rows(trial);

    for (size_t i = 0; i < N_ROWS; i++) {
        unsigned char *row = row_at(trial, again, i);

        memset(row + trial->value_bytes, GUARD_BYTE, trial->row_bytes - trial->value_bytes);
        trial->ops->init_state(update, row);
    }
    if (!guards_hold(trial, memory))
        fail(trial, "init_state: it writes beside its row");
    if (!rows_are_equal(trial, memory, again))
        fail(trial, "init_state: the state depends on what was there before, or values change");
}

char *rule_check_ops(const RubatoUpdateOps *ops, const RubatoUpdate *update)
{
    const size_t size = rubato_dtype_size(update->dtype);
    Trial trial = { .ops = ops, .update = update, .value_bytes = update->width * size };

    trial.row_bytes = trial.value_bytes + update->state_width * size;
    trial.stride = (trial.row_bytes + 7) / 8 * 8 + (size_t)2 * GUARD;
    if (ops->state_width != NULL && ops->state_width(update) != update->state_width)
        fail(&trial, "state_width: it is another number when it is asked again");
    if (ops->traits.replayable && (update->state_width > 0 || ops->traits.hypers != 0))
        fail(&trial, "traits: a rule with state or hyper-parameters cannot be replayable");
    check_apply_rows(&trial);
    if (ops->apply != NULL)
        check_apply(&trial);
    if (ops->init_state != NULL)
        check_init_state(&trial);
    return trial.failure;
}
