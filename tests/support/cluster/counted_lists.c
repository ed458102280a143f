/* See the header. Wide rows have the keys 0 to N_WIDE - 1; the first of them is long. */
#include "tests/support/cluster/counted_lists.h"

#include "tests/support/cluster/cluster_run.h"
#include "tests/support/engine/engine_fixture.h"

enum {
    N_WIDE = 16,
    WIDE = 150,
    LONG = 80000,   /* values: more bytes than one message has */
    LONG_EVERY = 8, /* rounds: they add to the long row, too */
    SHARED = N_WIDE,
    OWN,
    REPLACED = OWN + COUNTED_LISTS_MOST_WORKERS,
    N_ROWS = REPLACED + COUNTED_LISTS_MOST_WORKERS,
};

/* ---- the wide rows ---- */

typedef struct {
    RubatoKey keys[N_WIDE];
    uint32_t lengths[N_WIDE];
    size_t n, n_values;
} Wide;

static Wide wide_rows(bool has_long)
{
    Wide wide = { .n = 0 };

    for (uint32_t row = has_long ? 0 : 1; row < N_WIDE; row++) {
        const uint32_t length = row == 0 ? LONG : WIDE + row;

        wide.keys[wide.n] = row;
        wide.lengths[wide.n++] = length;
        wide.n_values += length;
    }
    return wide;
}

static int64_t *repeat(int64_t value, size_t n)
{
    int64_t *const values = g_new(int64_t, n);

    for (size_t i = 0; i < n; i++)
        values[i] = value;
    return values;
}

bool counted_lists_create(RubatoEngine *engine, const RubatoTableSpec *like, GError **error)
{
    const Wide wide = wide_rows(true);
    g_autofree int64_t *zeros = repeat(0, wide.n_values);
    RubatoTableSpec spec = { .name = COUNTED_LISTS,
                             .dtype = RUBATO_I64,
                             .shape = RUBATO_SHAPE_RAGGED,
                             .model = like->model,
                             .staleness = like->staleness,
                             .storage = like->storage,
                             .n_keys = like->n_keys > 0 ? N_ROWS : 0,
                             .parts = like->parts,
                             .replicas = like->replicas };

    TRY(rubato_engine_create_table(engine, &spec, error));
    if (rubato_engine_node(engine) == CLUSTER_IDS[0])
        TRY(rubato_engine_assign_ragged(engine, COUNTED_LISTS, wide.keys, wide.n, wide.lengths,
                                        zeros, error));
    return rubato_engine_barrier(engine, error);
}

RubatoRaggedTable *counted_lists_open(RubatoWorker *worker, GError **error)
{
    return rubato_worker_open_ragged_table(worker, COUNTED_LISTS, RUBATO_I64, error);
}

/* ---- a round ---- */

static bool append(RubatoRaggedTable *table, RubatoKey key, int64_t value, bool is_waited_for,
                   GError **error)
{
    const uint32_t length = 1;

    return is_waited_for ? rubato_ragged_table_append(table, &key, 1, &length, &value, error)
                         : rubato_ragged_table_append_async(table, &key, 1, &length, &value, NULL,
                                                            error) != 0;
}

static bool replace(RubatoRaggedTable *table, RubatoKey key, int64_t round, GError **error)
{
    const uint32_t length = (uint32_t)(round % 5 * 13);
    g_autofree int64_t *values = repeat(round, length);

    return length == 0 ? rubato_ragged_table_erase(table, &key, 1, error)
                       : rubato_ragged_table_assign(table, &key, 1, &length, values, error);
}

static bool get(RubatoWorker *worker, RubatoRaggedTable *table, const RubatoKey *keys, size_t n,
                uint32_t *lengths, int64_t **values, bool is_waited_for, GError **error)
{
    if (is_waited_for)
        return rubato_ragged_table_get(table, keys, n, lengths, (void **)values, error);
    const RubatoTicket ticket =
        rubato_ragged_table_get_async(table, keys, n, lengths, (void **)values, NULL, error);

    return ticket != 0 && rubato_worker_wait(worker, ticket, error);
}

/* Whether a list has the numbers of the first n rounds, in their order. */
static bool check_list(const int64_t *list, uint32_t length, int64_t n, uint32_t rank,
                       GError **error)
{
    EXPECT(length == n, "the list of worker %u has %u values after %" G_GINT64_FORMAT " rounds",
           rank, length, n);
    for (uint32_t i = 0; i < length; i++)
        EXPECT(list[i] == i, "value %u of the list of worker %u is %" G_GINT64_FORMAT, i, rank,
               list[i]);
    return true;
}

/* Who waits for a request this time does so with a ticket the next time. */
static bool waits(const RubatoWorker *worker, int64_t round)
{
    return (round + rubato_worker_rank(worker)) % 2 == 0;
}

bool counted_lists_write(RubatoWorker *worker, RubatoRaggedTable *table, int64_t round,
                         GError **error)
{
    const Wide wide = wide_rows(round % LONG_EVERY == 0);
    const uint32_t rank = rubato_worker_rank(worker);
    g_autofree int64_t *ones = repeat(1, wide.n_values);

    return rubato_ragged_table_add(table, wide.keys, wide.n, wide.lengths, ones, error) &&
           append(table, OWN + rank, round, waits(worker, round), error) &&
           append(table, SHARED, rank, !waits(worker, round), error) &&
           replace(table, REPLACED + rank, round, error);
}

bool counted_lists_round(RubatoWorker *worker, RubatoRaggedTable *table, bool is_bsp, int64_t round,
                         GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker);
    const int64_t n_seen = round + (is_bsp ? 0 : 1);
    const RubatoKey asked[] = { 1, OWN + rank };
    g_autofree int64_t *values = NULL;
    uint32_t lengths[G_N_ELEMENTS(asked)];

    TRY(counted_lists_write(worker, table, round, error) &&
        get(worker, table, asked, G_N_ELEMENTS(asked), lengths, &values, waits(worker, round),
            error));
    EXPECT(lengths[0] == WIDE + 1, "a wide row has %u values", lengths[0]);
    for (uint32_t i = 0; i < lengths[0]; i++)
        EXPECT(values[i] >= n_seen,
               "value %u of a wide row is %" G_GINT64_FORMAT " after %" G_GINT64_FORMAT " rounds",
               i, values[i], n_seen);
    return check_list(values + lengths[0], lengths[1], n_seen, rank, error);
}

/* ---- after the task ---- */

static bool check_wide(RubatoEngine *engine, int64_t n_rounds, int64_t n_long, GError **error)
{
    const Wide wide = wide_rows(true);
    uint32_t lengths[N_WIDE];
    g_autofree int64_t *values = NULL;
    size_t at = 0;

    TRY(rubato_engine_get_ragged(engine, COUNTED_LISTS, wide.keys, wide.n, lengths,
                                 (void **)&values, error));
    for (uint32_t row = 0; row < N_WIDE; row++) {
        EXPECT(lengths[row] == wide.lengths[row], "row %u has %u values", row, lengths[row]);
        for (uint32_t i = 0; i < lengths[row]; i++, at++)
            EXPECT(values[at] == (row == 0 ? n_long : n_rounds),
                   "value %u of row %u is %" G_GINT64_FORMAT ", and not %" G_GINT64_FORMAT, i, row,
                   values[at], row == 0 ? n_long : n_rounds);
    }
    return true;
}

static bool check_shared(RubatoEngine *engine, const uint32_t *rounds_of, GError **error)
{
    const RubatoKey key = SHARED;
    uint32_t n_of[COUNTED_LISTS_MOST_WORKERS] = { 0 }, length;
    g_autofree int64_t *values = NULL;

    TRY(rubato_engine_get_ragged(engine, COUNTED_LISTS, &key, 1, &length, (void **)&values, error));
    for (uint32_t i = 0; i < length; i++) {
        EXPECT(values[i] >= 0 && values[i] < COUNTED_LISTS_MOST_WORKERS,
               "the shared list has %" G_GINT64_FORMAT, values[i]);
        n_of[values[i]]++;
    }
    for (uint32_t rank = 0; rank < COUNTED_LISTS_MOST_WORKERS; rank++)
        EXPECT(n_of[rank] == rounds_of[rank],
               "worker %u is in the shared list %u times, and not %u", rank, n_of[rank],
               rounds_of[rank]);
    return true;
}

bool counted_lists_check(RubatoEngine *engine, GError **error)
{
    RubatoKey keys[COUNTED_LISTS_MOST_WORKERS];
    uint32_t rounds_of[COUNTED_LISTS_MOST_WORKERS];
    g_autofree int64_t *values = NULL;
    const int64_t *list;
    int64_t n_rounds = 0, n_long = 0;

    for (uint32_t rank = 0; rank < COUNTED_LISTS_MOST_WORKERS; rank++)
        keys[rank] = OWN + rank;
    TRY(rubato_engine_get_ragged(engine, COUNTED_LISTS, keys, COUNTED_LISTS_MOST_WORKERS, rounds_of,
                                 (void **)&values, error));
    list = values;
    for (uint32_t rank = 0; rank < COUNTED_LISTS_MOST_WORKERS; rank++) {
        const uint32_t n = rounds_of[rank];

        TRY(check_list(list, n, n, rank, error));
        list += n;
        n_rounds += n;
        n_long += (n + LONG_EVERY - 1) / LONG_EVERY;
    }
    EXPECT(n_rounds > 0, "there were %s", "no rounds");
    return check_wide(engine, n_rounds, n_long, error) && check_shared(engine, rounds_of, error);
}
