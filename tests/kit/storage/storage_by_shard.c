/* Actions of a storage test by the shard, as workers and engines use it.
 *
 * Thread: that of the test case. */
#include <string.h>

#include "tests/kit/storage/storage_world_private.h"

void storage_perform_add(StorageWorld *world, const StorageAction *action)
{
    Call call = call_new(world, action, world->value_bytes);

    call_fill(world, &call, action->mark);
    if (!rubato_shard_driver_add(world->driver, 0, &call.keys, call.values))
        storage_fail(world, "the Add failed as if there were no memory");
    for (size_t i = 0; i < call.keys.n; i++)
        reference_apply(world, call_key(&call.keys, i), call_row(&call, i));
    call_clear(&call);
}

/* Rows of a selection that nobody asked for stay as they are. */
static void check_untouched(StorageWorld *world, const Call *call)
{
    for (size_t row = 1; call->keys.at != NULL && row < call->n_rows; row += 2)
        for (size_t i = 0; i < call->row_bytes; i++)
            if (call->values[row * call->row_bytes + i] != UNTOUCHED)
                storage_fail(world, "a Get wrote to a row that was not asked for");
    if (call->values[call->n_rows * call->row_bytes] != UNTOUCHED)
        storage_fail(world, "a Get wrote behind its rows");
}

void storage_perform_get(StorageWorld *world, const StorageAction *action)
{
    const bool of_state = action->kind == STORAGE_ACTION_GET_STATE;
    Call call = call_new(world, action, of_state ? world->state_bytes : world->value_bytes);

    if (of_state)
        (void)rubato_shard_driver_get_state(world->driver, &call.keys, call.values);
    else
        rubato_shard_driver_get(world->driver, &call.keys, call.values);
    for (size_t i = 0; i < call.keys.n; i++) {
        const RubatoKey key = call_key(&call.keys, i);

        if (world->scenario->spec.create_on_get && !of_state)
            (void)reference_make(world, key);
        reference_compare(world, key, of_state ? NULL : call_row(&call, i),
                          of_state ? call_row(&call, i) : NULL, "a Get");
    }
    check_untouched(world, &call);
    call_clear(&call);
}

static void set_reference(StorageWorld *world, RubatoKey key, const void *values)
{
    unsigned char *row = reference_make(world, key);

    memcpy(row, values, world->value_bytes);
    memset(row + world->value_bytes, 0, world->state_bytes);
    if (world->rule->init_state != NULL)
        world->rule->init_state(world->update, row);
}

void storage_perform_set(StorageWorld *world, const StorageAction *action)
{
    const bool of_state = action->kind == STORAGE_ACTION_SET_STATE;
    Call call = call_new(world, action, of_state ? world->state_bytes : world->value_bytes);

    call_fill(world, &call, action->mark);
    if (!(of_state ? rubato_shard_driver_set_state(world->driver, &call.keys, call.values)
                   : rubato_shard_driver_set(world->driver, &call.keys, call.values)))
        storage_fail(world, "the Set failed as if there were no memory");
    for (size_t i = 0; i < call.keys.n; i++)
        if (of_state)
            memcpy(reference_make(world, call_key(&call.keys, i)) + world->value_bytes,
                   call_row(&call, i), world->state_bytes);
        else
            set_reference(world, call_key(&call.keys, i), call_row(&call, i));
    call_clear(&call);
}

void storage_perform_reset(StorageWorld *world, const StorageAction *action)
{
    Call call = call_new(world, action, 1);

    rubato_shard_driver_reset(world->driver, &call.keys);
    for (size_t i = 0; i < call.keys.n; i++) {
        const RubatoKey key = call_key(&call.keys, i);

        if (world->scenario->row_of != NULL || reference_find(world, key) != NULL)
            rubato_init_row(rubato_shard_driver_init(world->driver), key,
                            reference_make(world, key));
    }
    call_clear(&call);
}
