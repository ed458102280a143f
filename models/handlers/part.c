/* What a part offers to a handler: its rows, some at a time, and rows by key.
 *
 * Thread: the shard's present owner. */
#include "models/handlers/part.h"

#include <rubato/error.h>

#include "models/model.h"
#include "models/spec.h"

/* The initial values of a block's absent rows take at most this much memory, so a block has fewer
 * keys if rows are long. */
#define FRESH_BYTES ((size_t)64 << 10)

/* Rows that are saved for an image before a handler gets them. */
#define SAVED_AT_ONCE ((size_t)4096)

void part_begin(RubatoPart *part, const HandlerCall *call, RubatoShard *shard,
                const RubatoKeys *keys)
{
    part->call = call;
    part->shard = shard;
    part->keys = keys;
    part->n_done = 0;
    part->is_starved = false;
    part->fresh = NULL;
    part->trace = call_trace_begin(shard, call);
}

void part_end(RubatoPart *part, bool has_failed)
{
    call_trace_end(part->trace, has_failed);
    g_free(part->fresh);
}

/* ---- what it is ---- */

const RubatoTableSpec *rubato_part_spec(const RubatoPart *part)
{
    return part->shard->spec;
}

uint32_t rubato_part_number(const RubatoPart *part)
{
    return part->shard->place.part;
}

RubatoScope rubato_part_scope(const RubatoPart *part)
{
    return part->call->is_whole ? RUBATO_SCOPE_PART : RUBATO_SCOPE_KEYS;
}

uint64_t rubato_part_n_rows(const RubatoPart *part)
{
    if (!part->call->is_whole)
        return part->keys->n;
    return part->shard->is_dense ? part->shard->n_keys : shard_n_rows(part->shard);
}

static bool writes(const RubatoPart *part)
{
    return part->call->ops->access == RUBATO_ACCESS_WRITES;
}

/* ---- its rows, some at a time ---- */

RubatoKey rubato_part_rows_key(const RubatoPartRows *rows, size_t i)
{
    return rows->keys != NULL ? rows->keys[i] : rows->first + i;
}

void *rubato_part_rows_row(const RubatoPartRows *rows, size_t i)
{
    return rows->rows != NULL ? rows->rows[i]
                              : (void *)((unsigned char *)rows->run + i * rows->stride_bytes);
}

/* Initial values in place of absent rows. False: no memory. */
static bool fill_absent(RubatoPart *part, const RubatoKey *keys, size_t n, size_t most)
{
    RubatoShard *shard = part->shard;

    for (size_t i = 0; i < n; i++) {
        if (part->rows[i] != NULL)
            continue;
        if (part->fresh == NULL)
            part->fresh = g_try_malloc_n(most, shard->row_bytes);
        if (part->fresh == NULL)
            return false;
        part->rows[i] = (unsigned char *)part->fresh + i * shard->row_bytes;
        init_values(&shard->init, keys[i], part->rows[i]);
    }
    return true;
}

/* All rows of a table whose rows expire: leaves out those that have. A handler that writes gets the
 * others as rows that are written now. Nothing is removed, because rows would change their
 * order. */
static size_t find_living(RubatoPart *part, size_t n)
{
    RubatoShard *const shard = part->shard;
    size_t n_living = 0;

    shard_find(shard, part->block, n, part->rows);
    for (size_t i = 0; i < n; i++)
        if (part->rows[i] != NULL) {
            part->block[n_living] = part->block[i];
            part->rows[n_living++] = part->rows[i];
        }
    if (writes(part) && shard->is_watched)
        shard_watch(shard, &(RubatoKeys){ .keys = part->block, .n = n_living });
    if (writes(part))
        shard_stamp(shard, part->rows, n_living);
    return n_living;
}

static bool find_block(RubatoPart *part, const RubatoKey *keys, size_t n, size_t most)
{
    RubatoShard *const shard = part->shard;

    if (writes(part) && shard->admission == NULL)
        return shard_find_or_create(shard, keys, n, part->rows);
    if (writes(part)) {
        if (!shard_find_or_admit(shard, keys, n, part->rows))
            return false;
    } else
        shard_find(shard, keys, n, part->rows);
    return fill_absent(part, keys, n, most);
}

/* The next block of the call's keys, or of all rows' keys. */
static const RubatoKey *take_keys(RubatoPart *part, size_t n)
{
    if (!part->call->is_whole)
        return shard_take_block(part->keys, (size_t)part->n_done, n, part->block);
    shard_list(part->shard, part->n_done, n, part->block);
    return part->block;
}

/* The rest of a dense part. While there is an image, or a history, a handler that writes gets less
 * at a time, since each row is saved before. */
static void take_run(RubatoPart *part, uint64_t n_left, RubatoPartRows *rows)
{
    RubatoShard *const shard = part->shard;
    const bool saves = shard->is_watched && writes(part);
    const size_t most = part->trace != NULL ? call_trace_most_rows(shard)
                        : saves             ? SAVED_AT_ONCE
                                            : SIZE_MAX;
    const size_t n = (size_t)MIN(n_left, most);
    const RubatoKey first = shard->first_key + part->n_done;

    if (saves)
        shard_watch(shard, &(RubatoKeys){ .first = first, .n = n });
    *rows = (RubatoPartRows){ .n = n,
                              .first = first,
                              .run = shard->rows + part->n_done * shard->stride,
                              .stride_bytes = shard->stride };
    part->n_done += n;
}

bool rubato_part_next(RubatoPart *part, RubatoPartRows *rows)
{
    RubatoShard *const shard = part->shard;
    const uint64_t n_left = rubato_part_n_rows(part) - part->n_done;
    const size_t most = CLAMP(FRESH_BYTES / shard->row_bytes, 1, BLOCK);
    const bool are_living = part->call->is_whole && shard->expiry != NULL;

    call_trace_close(part->trace);
    if (n_left == 0 || part->is_starved) {
        part->n_done = 0;
        return false;
    }
    if (part->call->is_whole && shard->rows != NULL) {
        take_run(part, n_left, rows);
        if (G_UNLIKELY(part->trace != NULL))
            call_trace_open(part->trace, rows, NULL, 0);
        return true;
    }
    const size_t n = (size_t)MIN(n_left, most);
    const RubatoKey *const keys = take_keys(part, n);
    size_t n_found = n;

    if (are_living) {
        n_found = find_living(part, n);
    } else if (!find_block(part, keys, n, most)) {
        part->is_starved = true;
        return false;
    }
    *rows = (RubatoPartRows){ .n = n_found, .keys = keys, .rows = part->rows };
    if (G_UNLIKELY(part->trace != NULL))
        call_trace_open(part->trace, rows, part->fresh,
                        part->fresh == NULL ? 0 : most * shard->row_bytes);
    part->n_done += n;
    return true;
}

/* ---- rows by key ---- */

static bool check_keys(const RubatoShard *shard, const RubatoKey *keys, size_t n, GError **error)
{
    if (shard_keys_ok(shard, &(RubatoKeys){ .keys = keys, .n = n }))
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_RANGE,
                "it asks for a key that the part of table %s does not have", shard->spec->name);
    return false;
}

static bool check_write(const RubatoPart *part, const RubatoKey *keys, size_t n, GError **error)
{
    if (writes(part))
        return check_keys(part->shard, keys, n, error);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "it changes rows, but its access is RUBATO_ACCESS_READS");
    return false;
}

/* Unlike a Get it creates no row: a handler that reads leaves a table as it is. */
static void read_rows(RubatoShard *shard, const RubatoKey *keys, size_t n, unsigned char *values)
{
    void *rows[BLOCK];

    for (size_t begin = 0; begin < n; begin += BLOCK) {
        const size_t some = MIN(n - begin, BLOCK);

        shard_find(shard, keys + begin, some, rows);
        for (size_t i = 0; i < some; i++) {
            unsigned char *const to = values + (begin + i) * shard->row_bytes;

            if (rows[i] != NULL)
                shard_copy_row(to, rows[i], shard->row_bytes);
            else
                init_values(&shard->init, keys[begin + i], to);
        }
    }
}

bool rubato_part_get(RubatoPart *part, const RubatoKey *keys, size_t n, void *values,
                     GError **error)
{
    if (!check_keys(part->shard, keys, n, error))
        return false;
    read_rows(part->shard, keys, n, values);
    return true;
}

/* For a history some at a time. */
static void write_rows(RubatoPart *part,
                       void (*write)(RubatoShard *shard, const RubatoKeys *keys, const void *rows),
                       const RubatoKey *keys, size_t n, const void *rows)
{
    const size_t most = part->trace == NULL ? MAX(n, 1) : call_trace_most_rows(part->shard);

    call_trace_close(part->trace);
    for (size_t begin = 0; begin < n; begin += most) {
        const RubatoKeys some = { .keys = keys + begin, .n = MIN(n - begin, most) };

        if (G_UNLIKELY(part->trace != NULL))
            call_trace_before(part->trace, some.keys, some.n);
        write(part->shard, &some, (const char *)rows + begin * part->shard->row_bytes);
        call_trace_close(part->trace);
    }
}

bool rubato_part_add(RubatoPart *part, const RubatoKey *keys, size_t n, const void *deltas,
                     GError **error)
{
    if (!check_write(part, keys, n, error))
        return false;
    write_rows(part, shard_add, keys, n, deltas);
    return true;
}

bool rubato_part_set(RubatoPart *part, const RubatoKey *keys, size_t n, const void *values,
                     GError **error)
{
    if (!check_write(part, keys, n, error))
        return false;
    write_rows(part, shard_set, keys, n, values);
    return true;
}

/* ---- another table ---- */

/* Whether both tables are cut into parts in the same way. */
static bool are_cut_alike(const RubatoShard *one, const RubatoShard *other)
{
    const RubatoTableSpec *a = one->spec, *b = other->spec;

    return one->is_dense == other->is_dense && one->first_key == other->first_key &&
           one->n_keys == other->n_keys && a->dtype == b->dtype &&
           one->row_bytes == other->row_bytes && a->parts == b->parts &&
           strcmp(spec_partition_name(a), spec_partition_name(b)) == 0 &&
           a->n_bounds == b->n_bounds &&
           (a->n_bounds == 0 || memcmp(a->bounds, b->bounds, a->n_bounds * sizeof *a->bounds) == 0);
}

static RubatoShard *find_other(const RubatoPart *part, const char *table, GError **error)
{
    const HandlerCall *call = part->call;
    bool exists = false;

    if (writes(part) && part->shard->role != SHARD_ALONE) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "it writes to table %s, which has replicas: so it cannot read table %s, whose "
                    "parts are not beside all of them",
                    part->shard->spec->name, table);
        return NULL;
    }
    const ShardPlace *place = &part->shard->place;
    RubatoShard *other = place->find_shard == NULL
                             ? NULL
                             : place->find_shard(place->server, table, place->part, &exists);

    if (!exists) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND, "there is no table %s", table);
        return NULL;
    }
    if (other == NULL || !are_cut_alike(part->shard, other)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "part %u of table %s is not beside it: both tables need the same keys, "
                    "rows, partition and parts, on the same servers",
                    place->part, table);
        return NULL;
    }
    if (call->in_task && model_traits(other->spec)->lead != RUBATO_LEAD_UNBOUNDED) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "in a task it cannot read table %s, whose model %s has to be asked first; "
                    "call it between tasks",
                    table, spec_model_name(other->spec));
        return NULL;
    }
    return other;
}

bool rubato_part_get_other(RubatoPart *part, const char *table, const RubatoKey *keys, size_t n,
                           void *values, GError **error)
{
    RubatoShard *const other = find_other(part, table, error);

    if (other == NULL || !check_keys(other, keys, n, error))
        return false;
    read_rows(other, keys, n, values);
    return true;
}
