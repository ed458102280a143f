/* Actions of a storage test by the storage's ops.
 *
 * Thread: that of the test case. */
#include <string.h>

#include "tests/kit/storage/storage_world_private.h"
#include "tests/kit/values.h"

#define MOST_PIECES 100

/* Two rows are the same if their keys are, and do not overlap otherwise. */
static void compare_places(StorageWorld *world, const RubatoKey *keys, void *const *rows, size_t n)
{
    const size_t bytes = world->value_bytes + world->state_bytes;

    for (size_t i = 0; i < MIN(n, MAX_LISTED) && world->scenario->row_of == NULL; i++)
        for (size_t k = 0; k < n; k++) {
            const unsigned char *one = rows[i], *other = rows[k];

            if (one == NULL || other == NULL || (keys[i] == keys[k] && one == other))
                continue;
            if (keys[i] == keys[k])
                storage_fail(world, "key %" G_GUINT64_FORMAT " has two rows", keys[i]);
            else if (one < other + bytes && other < one + bytes)
                storage_fail(world,
                             "the rows of the keys %" G_GUINT64_FORMAT " and %" G_GUINT64_FORMAT
                             " overlap",
                             keys[i], keys[k]);
        }
}

/* A block of keys is found, or its rows are made and, by the rule, written to. */
static void look_up(StorageWorld *world, const RubatoKey *keys, size_t n, bool makes, uint32_t mark)
{
    const RubatoDtype dtype = world->scenario->spec.dtype;
    void *rows[BLOCK];

    memset(rows, UNTOUCHED, sizeof rows);
    if (!makes)
        world->ops->find(world->storage, keys, n, rows);
    else if (!world->ops->find_or_create(world->storage, keys, n, rows))
        storage_fail(world, "find_or_create failed as if there were no memory");
    for (size_t i = 0; makes && i < n; i++)
        (void)reference_make(world, keys[i]);
    if (world->failure != NULL)
        return;
    for (size_t i = 0; i < n; i++)
        reference_compare_row(world, keys[i], rows[i], makes ? "find_or_create" : "find");
    compare_places(world, keys, rows, n);
    if (world->failure != NULL)
        return;
    if (makes) {
        g_autofree unsigned char *deltas = g_malloc(n * world->value_bytes + 1);

        values_fill(dtype, deltas, n * world->value_bytes / rubato_dtype_size(dtype), mark);
        world->rule->apply_rows(world->update, rows, deltas, NULL, n);
        for (size_t i = 0; i < n; i++)
            reference_apply(world, keys[i], deltas + i * world->value_bytes);
    }
    memcpy(world->held_keys, keys, n * sizeof *keys);
    memcpy(world->held_rows, rows, n * sizeof *rows);
    world->n_held = n;
}

void storage_perform_look_up(StorageWorld *world, const StorageAction *action)
{
    const bool makes = action->kind == STORAGE_ACTION_CREATE;
    Call call = call_new(world, action, 1);
    RubatoKey block[BLOCK];

    for (size_t begin = 0; begin < call.keys.n && world->failure == NULL; begin += BLOCK) {
        const size_t n = MIN(call.keys.n - begin, BLOCK);

        for (size_t i = 0; i < n; i++)
            block[i] = call_key(&call.keys, begin + i);
        look_up(world, block, n, makes, action->mark + (uint32_t)begin);
    }
    call_clear(&call);
}

bool storage_rows_stay(const StorageWorld *world)
{
    return world->ops->rows_stay != NULL && world->ops->rows_stay(world->storage);
}

/* If rows stay, one that was absent may be there by now. */
void storage_check_held(StorageWorld *world)
{
    for (size_t i = 0; i < world->n_held; i++)
        if (world->held_rows[i] != NULL || !storage_rows_stay(world))
            reference_compare_row(world, world->held_keys[i], world->held_rows[i],
                                  "a row found before, through the same pointer");
}

void storage_perform_run(StorageWorld *world, const StorageAction *action)
{
    const size_t stride = world->value_bytes + world->state_bytes;
    const RubatoKey first = storage_key(world->scenario, action->keys[0]);
    const uint64_t most = storage_keys_from(world->scenario, first);
    const size_t n = (size_t)MIN(action->count, most);
    const unsigned char *rows = world->ops->run(world->storage, first, n);

    for (size_t i = 0; rows != NULL && i < n; i++)
        reference_compare_row(world, first + i, rows + i * stride, "run");
}

RubatoKey *storage_list_keys(StorageWorld *world, size_t n_at_a_time, size_t *n)
{
    uint64_t n_rows = 0, n_bytes = 0;

    world->ops->size(world->storage, &n_rows, &n_bytes);
    *n = (size_t)n_rows;
    if (world->ops->list == NULL && !world->scenario->holds_range)
        return NULL;
    RubatoKey *keys = g_new(RubatoKey, n_rows + 1);
    n_at_a_time = MAX(n_at_a_time, n_rows / MOST_PIECES); /* each begins with a search */
    for (size_t first = 0; first < n_rows; first += n_at_a_time)
        if (world->ops->list != NULL)
            world->ops->list(world->storage, first, MIN(n_at_a_time, n_rows - first), keys + first);
    for (size_t i = 0; world->ops->list == NULL && i < n_rows; i++)
        keys[i] = world->scenario->spec.first_key + i;
    return keys;
}

void storage_perform_list(StorageWorld *world, const StorageAction *action)
{
    g_autoptr(GHashTable) seen = g_hash_table_new(reference_hash, g_int64_equal);
    size_t n;
    RubatoKey *keys = storage_list_keys(world, MAX(action->count, 1), &n);

    if (keys == NULL)
        return;
    for (size_t i = 0; i < n; i++) {
        if (!world->scenario->holds_range && reference_find(world, keys[i]) == NULL)
            storage_fail(world, "list: key %" G_GUINT64_FORMAT " is in it; nobody has made its row",
                         keys[i]);
        if (!g_hash_table_add(seen, &keys[i]))
            storage_fail(world, "list: key %" G_GUINT64_FORMAT " is in it twice", keys[i]);
    }
    if (world->listed != NULL && world->n_listed == n &&
        memcmp(world->listed, keys, n * sizeof *keys) != 0)
        storage_fail(world, "list: the order has changed, and no row was made");
    g_hash_table_remove_all(seen);
    g_free(world->listed);
    world->listed = keys;
    world->n_listed = n;
}

void storage_check_size(StorageWorld *world)
{
    const uint64_t n_expected = world->scenario->holds_range ? world->scenario->spec.n_keys
                                                             : g_hash_table_size(world->rows);
    uint64_t n_rows = UINT64_MAX, n_bytes = UINT64_MAX;

    world->ops->size(world->storage, &n_rows, &n_bytes);
    if (world->scenario->row_of == NULL && n_rows != n_expected)
        storage_fail(world, "size: %" G_GUINT64_FORMAT " rows; there are %" G_GUINT64_FORMAT,
                     n_rows, n_expected);
    else if (n_bytes == UINT64_MAX || n_bytes < n_rows * (world->value_bytes + world->state_bytes))
        storage_fail(
            world, "size: %" G_GUINT64_FORMAT " rows in %" G_GUINT64_FORMAT " bytes; a row has %zu",
            n_rows, n_bytes, world->value_bytes + world->state_bytes);
}
