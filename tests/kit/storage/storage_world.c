/* A run of a storage test: performs actions on a shard and on the reference, and compares.
 *
 * Thread: that of the test case. */
#include <string.h>

#include "tests/kit/storage/storage_world_private.h"
#include "tests/kit/values.h"

#define MAX_TOLD 8

void storage_fail(StorageWorld *world, const char *format, ...)
{
    va_list arguments;

    if (world->failure != NULL)
        return;
    va_start(arguments, format);
    world->failure = g_strdup_vprintf(format, arguments);
    va_end(arguments);
}

const char *storage_world_failure(const StorageWorld *world)
{
    return world->failure;
}

/* ---- a shard takes the place of another ---- */

static bool open_shard(StorageWorld *world)
{
    const StorageScenario *scenario = world->scenario;
    const RubatoShardDriverSetup setup = { .spec = &scenario->spec,
                                           .first_key = scenario->spec.first_key,
                                           .n_keys = scenario->spec.n_keys,
                                           .hash_seed = scenario->hash_seed };
    g_autoptr(GError) error = NULL;

    world->driver = rubato_shard_driver_new(&setup, &error);
    if (world->driver == NULL) {
        storage_fail(world, "a shard cannot be made: %s", error->message);
        return false;
    }
    world->storage = rubato_shard_driver_storage(world->driver);
    world->ops = world->storage->ops;
    world->rule = rubato_shard_driver_update_ops(world->driver);
    world->update = rubato_shard_driver_update(world->driver);
    return true;
}

static void move_rows(StorageWorld *world, RubatoShardDriver *from, const RubatoKey *keys, size_t n)
{
    const RubatoKeys some = { .keys = keys, .n = n };
    g_autofree unsigned char *values = g_malloc(n * world->value_bytes + 1);
    g_autofree unsigned char *states = g_malloc(n * world->state_bytes + 1);

    rubato_shard_driver_get(from, &some, values);
    if (!rubato_shard_driver_set(world->driver, &some, values))
        storage_fail(world, "a row could not be moved, as if there were no memory");
    if (world->state_bytes > 0 && (!rubato_shard_driver_get_state(from, &some, states) ||
                                   !rubato_shard_driver_set_state(world->driver, &some, states)))
        storage_fail(world, "a state could not be moved, as if there were no memory");
}

static void perform_move(StorageWorld *world, const StorageAction *action)
{
    const size_t most = MAX(action->count, 1);
    RubatoShardDriver *from = world->driver;
    size_t n;
    g_autofree RubatoKey *keys = storage_list_keys(world, most, &n);

    if (keys == NULL)
        return;
    world->n_held = 0;
    g_clear_pointer(&world->listed, g_free);
    if (open_shard(world))
        for (size_t first = 0; first < n; first += most)
            move_rows(world, from, keys + first, MIN(most, n - first));
    else
        world->driver = NULL;
    rubato_shard_driver_free(from);
}

/* ---- actions ---- */

static void tell(StorageWorld *world, const StorageAction *action)
{
    static const char *const verbs[] = {
        [STORAGE_ACTION_ADD] = "Add to",
        [STORAGE_ACTION_GET] = "Get of",
        [STORAGE_ACTION_SET] = "Set of",
        [STORAGE_ACTION_RESET] = "reset of",
        [STORAGE_ACTION_GET_STATE] = "state read of",
        [STORAGE_ACTION_SET_STATE] = "state set of",
        [STORAGE_ACTION_FIND] = "find",
        [STORAGE_ACTION_CREATE] = "find_or_create, and an Add through the pointers:",
        [STORAGE_ACTION_RUN] = "run:",
        [STORAGE_ACTION_LIST] = "list",
        [STORAGE_ACTION_MOVE] = "move to another shard",
    };

    if (world->story == NULL)
        return;
    g_string_append_printf(world->story, "  %s", verbs[action->kind]);
    if (action->kind == STORAGE_ACTION_LIST || action->kind == STORAGE_ACTION_MOVE) {
        g_string_append_printf(world->story, ", %u keys at a time\n", MAX(action->count, 1));
        return;
    }
    StorageAction told = *action;
    if (action->kind == STORAGE_ACTION_RUN)
        told.form = STORAGE_FORM_RUN;
    Call call = call_new(world, &told, 1);
    g_string_append(world->story, call.keys.n == 0   ? " no key"
                                  : call.keys.n == 1 ? " key"
                                                     : " keys");
    for (size_t i = 0; i < MIN(call.keys.n, MAX_TOLD); i++)
        g_string_append_printf(world->story, " %" G_GUINT64_FORMAT, call_key(&call.keys, i));
    if (call.keys.n > MAX_TOLD)
        g_string_append_printf(world->story, " … (%zu keys)", call.keys.n);
    g_string_append_c(world->story, '\n');
    call_clear(&call);
}

static bool is_possible(const StorageWorld *world, const StorageAction *action)
{
    switch (action->kind) {
    case STORAGE_ACTION_GET_STATE:
    case STORAGE_ACTION_SET_STATE:
        return world->state_bytes > 0;
    case STORAGE_ACTION_FIND:
        return world->ops->find != NULL;
    case STORAGE_ACTION_CREATE:
        return world->ops->find_or_create != NULL;
    default:
        return true;
    }
}

void storage_world_perform(StorageWorld *world, const StorageAction *action)
{
    if (world->failure != NULL || !is_possible(world, action))
        return;
    tell(world, action);
    switch (action->kind) {
    case STORAGE_ACTION_ADD:
        storage_perform_add(world, action);
        break;
    case STORAGE_ACTION_GET:
    case STORAGE_ACTION_GET_STATE:
        storage_perform_get(world, action);
        break;
    case STORAGE_ACTION_SET:
    case STORAGE_ACTION_SET_STATE:
        storage_perform_set(world, action);
        break;
    case STORAGE_ACTION_RESET:
        storage_perform_reset(world, action);
        break;
    case STORAGE_ACTION_FIND:
    case STORAGE_ACTION_CREATE:
        storage_perform_look_up(world, action);
        break;
    case STORAGE_ACTION_RUN:
        storage_perform_run(world, action);
        break;
    case STORAGE_ACTION_LIST:
        storage_perform_list(world, action);
        break;
    case STORAGE_ACTION_MOVE:
        perform_move(world, action);
        break;
    case STORAGE_ACTION_N_KINDS:
        g_assert_not_reached();
    }
    if (world->failure == NULL)
        storage_check_held(world);
    if (world->failure == NULL)
        storage_check_size(world);
}

/* ---- the beginning and the end ---- */

StorageWorld *storage_world_new(const StorageScenario *scenario, GString *story)
{
    StorageWorld *world = g_new0(StorageWorld, 1);

    world->scenario = scenario;
    world->story = story;
    if (!open_shard(world))
        return world;
    const size_t size = rubato_dtype_size(scenario->spec.dtype);
    world->value_bytes = world->update->width * size;
    world->state_bytes = world->update->state_width * size;
    reference_init(world);
    storage_check_size(world);
    return world;
}

void storage_world_free(StorageWorld *world)
{
    reference_clear(world);
    rubato_shard_driver_free(world->driver);
    g_free(world->listed);
    g_free(world->failure);
    g_free(world);
}

void storage_world_end(StorageWorld *world)
{
    GHashTableIter rows;
    gpointer key;
    void *row;

    if (world->failure != NULL)
        return;
    storage_perform_list(world, &(StorageAction){ .kind = STORAGE_ACTION_LIST, .count = 100 });
    g_hash_table_iter_init(&rows, world->rows);
    while (world->failure == NULL && g_hash_table_iter_next(&rows, &key, NULL)) {
        const RubatoKey *at = key;

        row = world->ops->run(world->storage, *at, 1);
        if (row != NULL)
            reference_compare_row(world, *at, row, "run at the end");
        if (world->ops->find == NULL)
            continue;
        world->ops->find(world->storage, at, 1, &row);
        reference_compare_row(world, *at, row, "find at the end");
    }
}
