/* The reference of a storage test: the row of each key in memory of its own.
 *
 * Thread: that of the test case. */
#include "tests/kit/storage/storage_world_private.h"

#include <rubato/mix.h>

#include "tests/kit/values.h"

typedef struct {
    RubatoKey key;
    _Alignas(8) unsigned char bytes[];
} Row;

static RubatoKey owner_of(const StorageWorld *world, RubatoKey key)
{
    const StorageScenario *scenario = world->scenario;

    return scenario->row_of == NULL ? key : scenario->row_of(key, scenario->user);
}

guint reference_hash(gconstpointer key)
{
    return (guint)rubato_mix64(*(const RubatoKey *)key);
}

void reference_init(StorageWorld *world)
{
    world->rows = g_hash_table_new_full(reference_hash, g_int64_equal, NULL, g_free);
    world->fresh = g_malloc(world->value_bytes + world->state_bytes);
}

void reference_clear(StorageWorld *world)
{
    g_clear_pointer(&world->rows, g_hash_table_unref);
    g_clear_pointer(&world->fresh, g_free);
}

unsigned char *reference_find(const StorageWorld *world, RubatoKey key)
{
    const RubatoKey owner = owner_of(world, key);
    Row *row = g_hash_table_lookup(world->rows, &owner);

    return row == NULL ? NULL : row->bytes;
}

unsigned char *reference_make(StorageWorld *world, RubatoKey key)
{
    unsigned char *bytes = reference_find(world, key);

    if (!storage_rows_stay(world))
        world->n_held = 0; /* it was asked for by find_or_create */
    if (bytes != NULL)
        return bytes;
    g_clear_pointer(&world->listed, g_free);

    Row *row = g_malloc(sizeof *row + world->value_bytes + world->state_bytes);
    row->key = owner_of(world, key);
    rubato_init_row(rubato_shard_driver_init(world->driver), row->key, row->bytes);
    g_hash_table_replace(world->rows, &row->key, row);
    return row->bytes;
}

void reference_apply(StorageWorld *world, RubatoKey key, const void *deltas)
{
    void *row = reference_make(world, key);

    world->rule->apply_rows(world->update, &row, deltas, NULL, 1);
}

const unsigned char *reference_read(StorageWorld *world, RubatoKey key)
{
    const unsigned char *bytes = reference_find(world, key);

    if (bytes != NULL)
        return bytes;
    rubato_init_row(rubato_shard_driver_init(world->driver), owner_of(world, key), world->fresh);
    return world->fresh;
}

static void compare(StorageWorld *world, RubatoKey key, const void *found, const void *expected,
                    size_t n_bytes, const char *what, const char *part)
{
    const RubatoDtype dtype = world->scenario->spec.dtype;
    const size_t n = n_bytes / rubato_dtype_size(dtype);
    const size_t i = values_differ(dtype, found, expected, n);

    if (i == n)
        return;
    g_autofree char *is = value_text(dtype, found, i);
    g_autofree char *should = value_text(dtype, expected, i);
    storage_fail(world, "%s: %s %zu of key %" G_GUINT64_FORMAT " is %s; it has to be %s", what,
                 part, i, key, is, should);
}

void reference_compare(StorageWorld *world, RubatoKey key, const void *values, const void *state,
                       const char *what)
{
    const unsigned char *expected = reference_read(world, key);

    if (values != NULL)
        compare(world, key, values, expected, world->value_bytes, what, "value");
    if (state != NULL)
        compare(world, key, state, expected + world->value_bytes, world->state_bytes, what,
                "number of the state");
}

void reference_compare_row(StorageWorld *world, RubatoKey key, const void *row, const char *what)
{
    const bool is_made = reference_find(world, key) != NULL;

    if (row == NULL && (is_made || world->scenario->holds_range))
        storage_fail(world, "%s: there is no row of key %" G_GUINT64_FORMAT, what, key);
    else if (row != NULL && !is_made && !world->scenario->holds_range &&
             world->scenario->row_of == NULL)
        storage_fail(world,
                     "%s: there is a row of key %" G_GUINT64_FORMAT ", which nobody has made", what,
                     key);
    else if (row != NULL && (uintptr_t)row % rubato_dtype_size(world->scenario->spec.dtype) != 0)
        storage_fail(world, "%s: the row of key %" G_GUINT64_FORMAT " is not aligned for %s", what,
                     key, rubato_dtype_name(world->scenario->spec.dtype));
    else if (row != NULL)
        reference_compare(
            world, key, row,
            world->state_bytes == 0 ? NULL : (const unsigned char *)row + world->value_bytes, what);
}
