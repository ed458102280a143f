/* The timeline of a node: where it is written, from when to when.
 *
 * Threads: any, unless engine_private.h says otherwise. */
#include <string.h>

#include "engine/engine_private.h"

/* Each node writes a file of its own: "trace.json" becomes "trace.node-3.json". (transfer full) */
static char *path_of_node(const RubatoEngine *engine, const char *file)
{
    const char *const slash = strrchr(file, '/');
    const char *const dot = strrchr(slash == NULL ? file : slash, '.');
    const int length = dot == NULL ? (int)strlen(file) : (int)(dot - file);

    if (engine->n_nodes == 1)
        return g_strdup(file);
    return g_strdup_printf("%.*s.node-%u%s", length, file, engine->id, file + length);
}

static bool start(RubatoEngine *engine, const char *file, GError **error)
{
    g_autofree char *path = path_of_node(engine, file);

    if (!timeline_start(engine->timeline, path, error))
        return false;
    g_message("node %u records its timeline in %s", engine->id, path);
    return true;
}

bool engine_begin_timeline(RubatoEngine *engine, GError **error)
{
    const char *const file = g_getenv(TIMELINE_VARIABLE);

    engine->timeline = timeline_new(engine->id);
    if (file == NULL || *file == '\0' || start(engine, file, error))
        return true;
    g_prefix_error(error, "the environment variable " TIMELINE_VARIABLE " is \"%s\": ", file);
    return false;
}
