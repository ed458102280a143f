/* The handler "top_k": the rows with the largest values in a column.
 *
 * Arguments: u32 k (1 to 2^20), u32 column, u32 order (0: by value; 1: by magnitude). The result:
 * at most k entries, u64 key and f64 value, the largest first; of equal ones the lower key first.
 * NaNs are left out. So the result does not depend on how rows are divided among parts.
 *
 * A heap holds the best k rows that were seen; its root is the worst of them.
 *
 * Thread: the part's owner; reduce: the caller. */
#include <rubato/error.h>

#include "models/handlers/values.h"

enum {
    MOST_ENTRIES = 1 << 20,
    ENTRY_BYTES = 16,
};

typedef struct {
    uint32_t k, column, order;
} Wanted;

typedef struct {
    RubatoKey key;
    double value;
} Entry;

typedef struct {
    Wanted wanted;
    GArray *entries; /* of Entry: a heap */
} Best;

static Wanted read_wanted(RubatoByteReader *arguments)
{
    Wanted wanted;

    wanted.k = rubato_read_u32(arguments);
    wanted.column = rubato_read_u32(arguments);
    wanted.order = rubato_read_u32(arguments);
    return wanted;
}

static bool check(const RubatoHandlerSetting *setting, RubatoByteReader *arguments, GError **error)
{
    const Wanted wanted = read_wanted(arguments);
    const uint32_t width = spec_width(setting->spec);

    if (!rubato_byte_reader_finish(arguments, "its arguments, u32 k, u32 column, u32 order,",
                                   error))
        return false;
    if (wanted.k >= 1 && wanted.k <= MOST_ENTRIES && wanted.column < width && wanted.order <= 1)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "it needs a k from 1 to %d, a column below %u and an order of 0 or 1, and got %u, "
                "%u and %u",
                MOST_ENTRIES, width, wanted.k, wanted.column, wanted.order);
    return false;
}

/* Whether a comes before b. */
static bool is_better(const Best *best, const Entry *a, const Entry *b)
{
    const double one = best->wanted.order == 0 ? a->value : fabs(a->value);
    const double other = best->wanted.order == 0 ? b->value : fabs(b->value);

    return one > other || (one == other && a->key < b->key);
}

static Entry *entry_at(const Best *best, size_t i)
{
    return &g_array_index(best->entries, Entry, i);
}

static void swap(const Best *best, size_t i, size_t j)
{
    const Entry held = *entry_at(best, i);

    *entry_at(best, i) = *entry_at(best, j);
    *entry_at(best, j) = held;
}

static void sift_up(const Best *best, size_t i)
{
    while (i > 0 && is_better(best, entry_at(best, (i - 1) / 2), entry_at(best, i))) {
        swap(best, i, (i - 1) / 2);
        i = (i - 1) / 2;
    }
}

static void sift_down(const Best *best, size_t n)
{
    size_t i = 0;

    for (;;) {
        size_t worst = i;

        for (size_t child = 2 * i + 1; child <= 2 * i + 2 && child < n; child++)
            if (is_better(best, entry_at(best, worst), entry_at(best, child)))
                worst = child;
        if (worst == i)
            return;
        swap(best, i, worst);
        i = worst;
    }
}

static void offer(Best *best, const Entry *entry)
{
    if (isnan(entry->value))
        return;
    if (best->entries->len < best->wanted.k) {
        g_array_append_val(best->entries, *entry);
        sift_up(best, best->entries->len - 1);
    } else if (is_better(best, entry, entry_at(best, 0))) {
        *entry_at(best, 0) = *entry;
        sift_down(best, best->entries->len);
    }
}

/* Takes the heap apart, worst first, so that its memory is sorted, best first; then writes it. */
static void write_entries(Best *best, RubatoByteWriter *result)
{
    for (size_t n = best->entries->len; n > 1; n--) {
        swap(best, 0, n - 1);
        sift_down(best, n - 1);
    }
    for (guint i = 0; i < best->entries->len; i++) {
        rubato_write_u64(result, entry_at(best, i)->key);
        rubato_write_f64(result, entry_at(best, i)->value);
    }
    g_array_unref(best->entries);
}

static Best begin(RubatoByteReader *arguments)
{
    return (Best){ .wanted = read_wanted(arguments),
                   .entries = g_array_new(FALSE, FALSE, sizeof(Entry)) };
}

static bool run(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                GError **error)
{
    const RubatoDtype dtype = rubato_part_spec(part)->dtype;
    Best best = begin(arguments);
    RubatoPartRows rows;

    (void)error;
    while (rubato_part_next(part, &rows))
        for (size_t i = 0; i < rows.n; i++) {
            const Entry entry = { .key = rubato_part_rows_key(&rows, i),
                                  .value = value_as_double(dtype, rubato_part_rows_row(&rows, i),
                                                           best.wanted.column) };

            offer(&best, &entry);
        }
    write_entries(&best, result);
    return true;
}

static bool reduce(const RubatoHandlerSetting *setting, RubatoByteReader *arguments,
                   RubatoByteReader *results, size_t n, RubatoByteWriter *result, GError **error)
{
    Best best = begin(arguments);
    bool ok = true;

    (void)setting;
    for (size_t i = 0; i < n && ok; i++) {
        while (rubato_byte_reader_left(&results[i]) >= ENTRY_BYTES) {
            Entry entry;

            entry.key = rubato_read_u64(&results[i]);
            entry.value = rubato_read_f64(&results[i]);
            offer(&best, &entry);
        }
        ok = rubato_byte_reader_finish(&results[i], "a part's entries", error);
    }
    write_entries(&best, result);
    return ok;
}

extern const RubatoHandlerOps top_k_handler_ops;

const RubatoHandlerOps top_k_handler_ops = {
    .name = "top_k",
    .access = RUBATO_ACCESS_READS,
    .check = check,
    .run = run,
    .reduce = reduce,
};
