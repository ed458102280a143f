/* What the tables of this node take, for plans of later runs: RUBATO_MEASURE.
 *
 * A table is measured when it is dropped, and those that are left when all nodes have left. So a
 * run that is measured only counts its requests beside its work.
 *
 * Threads: those of the engine's calls. */
#include <errno.h>
#include <glib/gstdio.h>
#include <math.h>

#include "engine/engine_private.h"

bool engine_begin_needs(RubatoEngine *engine, GError **error)
{
    const char *const folder = g_getenv(NEEDS_VARIABLE);

    if (folder == NULL || *folder == '\0')
        return true;
    if (g_mkdir_with_parents(folder, 0777) != 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, NEEDS_VARIABLE "=%s: cannot be made: %s",
                    folder, g_strerror(errno));
        return false;
    }
    if (!measured_needs_delete(folder, engine->id, error))
        return false;
    engine->needs_folder = g_strdup(folder);
    engine->needs = measured_needs_new();
    return true;
}

typedef struct {
    uint32_t table;
    PartUse *uses;
    pthread_mutex_t lock;
} Uses;

static void add_uses(Server *server, void *data)
{
    Uses *const uses = data;

    pthread_mutex_lock(&uses->lock);
    server_add_uses(server, uses->table, uses->uses);
    pthread_mutex_unlock(&uses->lock);
}

/* Rounded up. */
static uint64_t a_second(uint64_t amount, double seconds)
{
    return (uint64_t)ceil((double)amount / seconds);
}

void engine_measure_table(RubatoEngine *engine, const Table *table)
{
    const uint32_t n = table->map->n_parts;
    const int64_t took_us = g_get_monotonic_time() - table->made_us;
    const double seconds = (double)MAX(took_us, 1) / G_USEC_PER_SEC;
    g_autofree PartUse *parts = g_new0(PartUse, n);
    Uses uses = { table->id, parts, PTHREAD_MUTEX_INITIALIZER };

    if (engine->needs == NULL)
        return;
    servers_run(engine->servers, engine->n_servers, add_uses, &uses);
    pthread_mutex_destroy(&uses.lock);
    pthread_mutex_lock(&engine->lock); /* another thread may drop another table */
    for (uint32_t i = 0; i < n; i++) {
        const RubatoNeeds taken = { .memory_bytes = parts[i].n_bytes,
                                    .network_bytes = a_second(parts[i].n_network_bytes, seconds),
                                    .queries = a_second(parts[i].n_requests, seconds) };

        measured_needs_note(engine->needs, table->spec->name, i, &taken);
    }
    pthread_mutex_unlock(&engine->lock);
}

/* An engine that did not start has no tables, and writes nothing. */
void engine_end_needs(RubatoEngine *engine)
{
    const bool was_in_run = engine->cluster == NULL || engine->rendezvous.welcome;
    g_autoptr(GError) error = NULL;

    if (engine->needs == NULL)
        return;
    for (guint i = 0; i < engine->tables->len; i++)
        engine_measure_table(engine, g_ptr_array_index(engine->tables, i));
    if (was_in_run && !measured_needs_write(engine->needs, engine->needs_folder, engine->id,
                                            engine->n_nodes, &error))
        g_warning("node %u: what its tables took is lost: %s", engine->id, error->message);
    g_clear_pointer(&engine->needs, measured_needs_free);
    g_clear_pointer(&engine->needs_folder, g_free);
}
