/* Workers that append to shared lists.
 *
 * At its clock c worker w appends to some of the lists the value 1000 w + c, a number of times that
 * depends on list, worker and clock. So a list shows who has appended what before whom. */
#include "tests/support/engine/ragged_lists.h"

#include <string.h>

#include "tests/support/engine/engine_fixture.h"

enum { N_ROWS = RAGGED_LISTS_SHARED + RAGGED_LISTS_MOST_WORKERS, FIRST_KEY = 500 };

static RubatoKey key_of(const RaggedLists *lists, uint32_t row)
{
    return lists->is_hashed ? rubato_mix64(row) : FIRST_KEY + row;
}

RubatoTableSpec ragged_lists_spec(const RaggedLists *lists)
{
    return (RubatoTableSpec){ .name = "lists",
                              .dtype = RUBATO_I32,
                              .shape = RUBATO_SHAPE_RAGGED,
                              .model = lists->model,
                              .staleness = lists->staleness,
                              .first_key = lists->is_hashed ? 0 : FIRST_KEY,
                              .n_keys = lists->is_hashed ? 0 : N_ROWS,
                              .parts = 5 };
}

static bool is_bsp(const RaggedLists *lists)
{
    return strcmp(lists->model, "bsp") == 0;
}

/* How many values a worker appends to a list at a clock. */
static uint32_t n_appended(const RaggedLists *lists, uint32_t row, uint32_t worker, uint64_t clock)
{
    const uint32_t mixed = (uint32_t)rubato_mix64(row * 64 + worker * 8191 + clock * 131071);

    return mixed % 3 == 0 ? 0 : lists->scale * (1 + mixed % 5);
}

/* What a worker's own row has after its clock. */
static uint32_t n_assigned(const RaggedLists *lists, uint64_t clock)
{
    return clock % 4 == 3 ? 0 : lists->scale * (uint32_t)(5 * clock % 23);
}

/* ---- what a list shows ---- */

typedef struct {
    uint64_t least, most; /* clocks of a worker that must be seen, and that may be */
} Bounds;

static Bounds bounds_of(const RaggedLists *lists, uint32_t rank, uint32_t worker, uint64_t clock)
{
    if (is_bsp(lists))
        return (Bounds){ clock, clock };
    if (worker == rank)
        return (Bounds){ clock, clock };
    if (strcmp(lists->model, "asp") == 0)
        return (Bounds){ 0, lists->n_clocks };
    return (Bounds){ clock > lists->staleness ? clock - lists->staleness : 0, lists->n_clocks };
}

/* Under BSP a list is by clock, then by worker. */
static bool check_order(const RaggedLists *lists, uint32_t row, uint32_t n_workers, uint64_t clock,
                        const int32_t *values, uint32_t n, GError **error)
{
    uint32_t at = 0;

    for (uint64_t c = 0; c < clock; c++)
        for (uint32_t w = 0; w < n_workers; w++)
            for (uint32_t i = n_appended(lists, row, w, c); i > 0; i--, at++)
                REQUIRE(at < n && values[at] == (int32_t)(1000 * w + c),
                        "(place %u of %u of list %u)", at, n, row);
    return true;
}

/* Of each worker there is what it appended, in its order, up to a clock within the bounds. */
static bool check_list(const RaggedLists *lists, uint32_t row, uint32_t rank, uint32_t n_workers,
                       uint64_t clock, const int32_t *values, uint32_t n, GError **error)
{
    uint32_t n_found = 0;

    for (uint32_t w = 0; w < n_workers; w++) {
        const Bounds bounds = bounds_of(lists, rank, w, clock);
        uint32_t at = 0;
        uint64_t c = 0;

        for (;; c++) {
            uint32_t left = c < lists->n_clocks ? n_appended(lists, row, w, c) : 0;
            const bool must = c < bounds.least;
            const bool had_some = left > 0;

            for (; left > 0; left--, at++, n_found++) {
                while (at < n && values[at] / 1000 != (int32_t)w)
                    at++;
                if (at == n || values[at] != (int32_t)(1000 * w + c))
                    break;
            }
            if (c == lists->n_clocks || (left > 0 && !must))
                break;
            REQUIRE(left == 0, "(list %u lacks what worker %u appended at clock %u)", row, w,
                    (uint32_t)c);
            REQUIRE(!had_some || c < bounds.most,
                    "(worker %u at clock %u sees list %u with clock %u of worker %u)", rank,
                    (uint32_t)clock, row, (uint32_t)c, w);
        }
    }
    REQUIRE(n_found == n, "(list %u has %u values, and %u of them in order)", row, n, n_found);
    return !is_bsp(lists) || check_order(lists, row, n_workers, clock, values, n, error);
}

static bool check_all(const RaggedLists *lists, uint32_t rank, uint32_t n_workers, uint64_t clock,
                      const uint32_t *lengths, const int32_t *values, GError **error)
{
    size_t at = 0;

    for (uint32_t row = 0; row < RAGGED_LISTS_SHARED; row++) {
        const int32_t *const list = lengths[row] == 0 ? NULL : &values[at];

        TRY(check_list(lists, row, rank, n_workers, clock, list, lengths[row], error));
        at += lengths[row];
    }
    return true;
}

/* ---- what a worker does ---- */

static bool append(RubatoWorker *worker, RubatoRaggedTable *table, const RaggedLists *lists,
                   uint64_t clock, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker);
    g_autofree int32_t *values = g_new(int32_t, RAGGED_LISTS_SHARED * 5 * lists->scale);
    RubatoKey keys[RAGGED_LISTS_SHARED];
    uint32_t lengths[RAGGED_LISTS_SHARED], n = 0, n_values = 0;

    for (uint32_t i = 0; i < RAGGED_LISTS_SHARED; i++) {
        const uint32_t row = (i * 7 + rank) % RAGGED_LISTS_SHARED;
        const uint32_t length = n_appended(lists, row, rank, clock);

        if (length == 0)
            continue;
        keys[n] = key_of(lists, row);
        lengths[n++] = length;
        for (uint32_t j = 0; j < length; j++)
            values[n_values++] = (int32_t)(1000 * rank + clock);
    }
    if (clock % 2 == 0)
        return rubato_ragged_table_append(table, keys, n, lengths, values, error);
    /* it is copied, and in flight when the clock ends */
    return rubato_ragged_table_append_async(table, keys, n, lengths, values, NULL, error) != 0;
}

static bool assign(RubatoWorker *worker, RubatoRaggedTable *table, const RaggedLists *lists,
                   uint64_t clock, GError **error)
{
    const RubatoKey key = key_of(lists, RAGGED_LISTS_SHARED + rubato_worker_rank(worker));
    const uint32_t length = n_assigned(lists, clock);
    g_autofree int32_t *values = g_new(int32_t, length + 1);

    for (uint32_t i = 0; i < length; i++)
        values[i] = (int32_t)(clock + i);
    if (length == 0)
        return rubato_ragged_table_erase(table, &key, 1, error);
    if (clock % 2 == 0)
        return rubato_ragged_table_assign(table, &key, 1, &length, values, error);
    return rubato_ragged_table_assign_async(table, &key, 1, &length, values, NULL, error) != 0;
}

static bool check_own(RubatoWorker *worker, RubatoRaggedTable *table, const RaggedLists *lists,
                      uint64_t clock, GError **error)
{
    const RubatoKey key = key_of(lists, RAGGED_LISTS_SHARED + rubato_worker_rank(worker));
    g_autofree int32_t *values = NULL;
    uint32_t length = 0, expected;

    TRY(rubato_ragged_table_get(table, &key, 1, &length, (void **)&values, error));
    expected = clock == 0 ? 0 : n_assigned(lists, clock - 1);
    REQUIRE(length == expected, "(%u values at clock %u, not %u)", length, (uint32_t)clock,
            expected);
    for (uint32_t i = 0; i < length; i++)
        REQUIRE(values[i] == (int32_t)(clock - 1 + i));
    return true;
}

static bool get(RubatoWorker *worker, RubatoRaggedTable *table, const RubatoKey *keys,
                uint64_t clock, uint32_t *lengths, void **values, GError **error)
{
    const uint32_t n = RAGGED_LISTS_SHARED;
    RubatoTicket ticket;

    if ((clock + rubato_worker_rank(worker)) % 2 == 0)
        return rubato_ragged_table_get(table, keys, n, lengths, values, error);
    ticket = rubato_ragged_table_get_async(table, keys, n, lengths, values, NULL, error);
    return ticket != 0 && rubato_worker_wait(worker, ticket, error);
}

bool ragged_lists_work(RubatoWorker *worker, void *user_data, GError **error)
{
    const RaggedLists *lists = user_data;
    const uint32_t rank = rubato_worker_rank(worker);
    RubatoKey keys[RAGGED_LISTS_SHARED];
    g_autoptr(RubatoRaggedTable) table =
        rubato_worker_open_ragged_table(worker, "lists", RUBATO_I32, error);

    if (table == NULL)
        return false;
    for (uint32_t i = 0; i < RAGGED_LISTS_SHARED; i++)
        keys[i] = key_of(lists, i);
    for (uint64_t clock = 0; clock < lists->n_clocks; clock++) {
        g_autofree void *values = NULL;
        uint32_t lengths[RAGGED_LISTS_SHARED];

        TRY(get(worker, table, keys, clock, lengths, &values, error));
        TRY(check_all(lists, rank, rubato_worker_n_workers(worker), clock, lengths, values, error));
        TRY(check_own(worker, table, lists, clock, error));
        TRY(append(worker, table, lists, clock, error));
        TRY(lists->at_clock == NULL || lists->at_clock(worker, clock, lists->user, error));
        TRY(assign(worker, table, lists, clock, error));
        TRY(rubato_ragged_table_clock(table, error));
    }
    return rubato_worker_wait_all(worker, error);
}

bool ragged_lists_read(RubatoEngine *engine, const RaggedLists *lists, GError **error)
{
    g_autofree void *values = NULL;
    uint32_t lengths[N_ROWS];
    RubatoKey keys[N_ROWS];

    for (uint32_t i = 0; i < N_ROWS; i++)
        keys[i] = key_of(lists, i);
    return rubato_engine_get_ragged(engine, "lists", keys, N_ROWS, lengths, &values, error);
}

bool ragged_lists_check(RubatoEngine *engine, const RaggedLists *lists, uint32_t n_workers,
                        GError **error)
{
    g_autofree void *values = NULL;
    uint32_t lengths[RAGGED_LISTS_SHARED];
    RubatoKey keys[RAGGED_LISTS_SHARED];
    RaggedLists all = *lists;

    for (uint32_t i = 0; i < RAGGED_LISTS_SHARED; i++)
        keys[i] = key_of(lists, i);
    TRY(rubato_engine_get_ragged(engine, "lists", keys, RAGGED_LISTS_SHARED, lengths, &values,
                                 error));
    all.staleness = 0;
    if (!is_bsp(lists))
        all.model = "ssp";
    return check_all(&all, 0, n_workers, lists->n_clocks, lengths, values, error);
}
