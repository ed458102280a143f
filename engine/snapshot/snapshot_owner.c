#include "engine/snapshot/snapshot_owner.h"

#include <rubato/snapshot.h>

#define DOES "takes snapshots"

/* The engine's lock is held. */
static bool owns(const RubatoEngine *engine, const char *directory)
{
    for (guint i = 0; engine->owned_folders != NULL && i < engine->owned_folders->len; i++)
        if (writer_lock_is_of(g_ptr_array_index(engine->owned_folders, i), directory))
            return true;
    return false;
}

bool snapshot_lock_directory(RubatoEngine *engine, const char *directory, WriterLock **lock,
                             GError **error)
{
    bool has;

    if (engine->self != engine->scheduler_node)
        return true;
    pthread_mutex_lock(&engine->lock);
    has = owns(engine, directory);
    pthread_mutex_unlock(&engine->lock);
    if (!has)
        *lock = writer_lock_take(directory, DOES, error);
    return has || *lock != NULL;
}

void snapshot_disown(RubatoEngine *engine)
{
    g_clear_pointer(&engine->owned_folders, g_ptr_array_unref);
}

bool rubato_engine_own_snapshots(RubatoEngine *engine, const char *directory, GError **error)
{
    WriterLock *lock = NULL;
    bool ok;

    g_return_val_if_fail(engine != NULL && directory != NULL, false);
    ok = snapshot_lock_directory(engine, directory, &lock, error);
    if (lock == NULL)
        return ok;
    pthread_mutex_lock(&engine->lock);
    if (engine->owned_folders == NULL)
        engine->owned_folders = g_ptr_array_new_with_free_func((GDestroyNotify)writer_lock_release);
    g_ptr_array_add(engine->owned_folders, lock);
    pthread_mutex_unlock(&engine->lock);
    return true;
}
