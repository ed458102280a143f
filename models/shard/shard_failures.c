/* Which requests that write ragged rows fail: a primary's shard notes it, and one that does not
 * have all rows yet is told (shard_roles.h).
 *
 * Such a request may fail by what rows are: an Add that brings another number of values than the
 * row has, an append to a row that would become too long. Where rows are missing, another one would
 * fail, or none. So the other shard fails in the requests of which it is told, at the same row and
 * with the same reason. In all others it leaves out what does not fit a row: that row has not come.
 * Thus a row that has come is changed as in the primary's shard, and calls are answered alike.
 *
 * Both shards run the same requests of an input in the same order. So a number tells which one it
 * is.
 *
 * Thread: the shard's present owner. */
#include "models/shard/shard_private.h"
#include "models/shard/shard_roles.h"

struct ShardFailures {
    GArray *list;      /* of ShardFailure: of the present input; each has its own reason */
    guint n_taken;     /* of these, by a shard that is told */
    uint64_t n_writes; /* requests of the input that have begun */
    bool in_input;
};

static void clear_failure(void *failure)
{
    g_free((char *)(uintptr_t)((ShardFailure *)failure)->reason);
}

static void add(ShardFailures *failures, const ShardFailure *failure)
{
    const ShardFailure own = { failure->write, failure->n_rows, g_strdup(failure->reason) };

    g_array_append_val(failures->list, own);
}

void shard_open_failures(RubatoShard *shard)
{
    if (shard->failures != NULL)
        return;
    shard->failures = g_new0(ShardFailures, 1);
    shard->failures->list = g_array_new(FALSE, FALSE, sizeof(ShardFailure));
    g_array_set_clear_func(shard->failures->list, clear_failure);
}

void shard_close_failures(RubatoShard *shard)
{
    if (shard->failures != NULL)
        g_array_unref(shard->failures->list);
    g_clear_pointer(&shard->failures, g_free);
}

/* A shard that is told has heard of its input's failures before. */
void shard_begin_failures(RubatoShard *shard)
{
    ShardFailures *const failures = shard->failures;

    if (failures == NULL)
        return;
    failures->in_input = true;
    failures->n_writes = 0;
    failures->n_taken = 0;
    if (shard->role == SHARD_LEADS)
        g_array_set_size(failures->list, 0);
}

void shard_end_failures(RubatoShard *shard)
{
    ShardFailures *const failures = shard->failures;

    if (failures == NULL)
        return;
    failures->in_input = false;
    if (shard->role == SHARD_FOLLOWS)
        g_array_set_size(failures->list, 0);
}

const ShardFailure *shard_failures(const RubatoShard *shard, size_t *n)
{
    *n = shard->failures == NULL ? 0 : shard->failures->list->len;
    return *n == 0 ? NULL : (const ShardFailure *)(const void *)shard->failures->list->data;
}

bool shard_expect_failure(RubatoShard *shard, const ShardFailure *failure)
{
    if (shard->failures == NULL || shard->role != SHARD_FOLLOWS)
        return false;
    add(shard->failures, failure);
    return true;
}

/* ---- requests that write ragged rows ---- */

ShardFate shard_begin_write(RubatoShard *shard)
{
    ShardFailures *const failures = shard->failures;
    ShardFate fate = { .n_rows = UINT64_MAX };
    const ShardFailure *next;

    if (G_LIKELY(failures == NULL) || !failures->in_input)
        return fate;
    failures->n_writes++;
    fate.is_told = shard->role == SHARD_FOLLOWS;
    if (!fate.is_told || failures->n_taken == failures->list->len)
        return fate;
    next = &g_array_index(failures->list, ShardFailure, failures->n_taken);
    if (next->write != failures->n_writes)
        return fate;
    failures->n_taken++;
    fate.n_rows = next->n_rows;
    fate.reason = next->reason;
    return fate;
}

void shard_note_failure(RubatoShard *shard, uint64_t n_rows, const char *reason)
{
    ShardFailures *const failures = shard->failures;

    if (G_LIKELY(failures == NULL) || !failures->in_input || shard->role != SHARD_LEADS)
        return;
    add(failures, &(ShardFailure){ failures->n_writes, n_rows, reason });
}
