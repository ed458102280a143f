/* See admit.h. */
#include "engine/join/admit.h"

#include "engine/control/told_table.h"
#include "engine/engine_private.h"

/* No call makes or drops one meanwhile. False with an error as soon as they are too much for a
 * message. */
static bool tell_tables(RubatoEngine *engine, GString *lines, GError **error)
{
    pthread_mutex_lock(&engine->lock);
    for (guint i = 0; i < engine->tables->len && lines->len <= CONTROL_MAX_FILE; i++) {
        const Table *const table = g_ptr_array_index(engine->tables, i);

        told_table_write(lines, table);
        if (lines->len > CONTROL_MAX_FILE)
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                        "there are more tables than a process can be told, up to table %s",
                        table->spec->name);
    }
    pthread_mutex_unlock(&engine->lock);
    return lines->len <= CONTROL_MAX_FILE;
}

/* Whether the admission has been given up: another step was told since. */
static bool is_late(RubatoEngine *engine, const ControlRecover *recover)
{
    pthread_mutex_lock(&engine->lock);
    const bool is_late = engine->newest_map != recover->map;
    pthread_mutex_unlock(&engine->lock);
    return is_late;
}

bool admit_process(RubatoEngine *engine, const ControlRecover *recover, GString *lines,
                   GError **error)
{
    const NetworkPeer told = { .endpoint = recover->endpoints,
                               .incarnation = recover->incarnation,
                               .counted_from = recover->counted_from };

    if (recover->node == engine->scheduler_node) /* it has a link, or could not say this */
        return tell_tables(engine, lines, error);
    if (!network_replace(engine->network, recover->node, &told, error)) {
        g_prefix_error(error, "node %u: ", engine->id);
        return false;
    }
    /* A CLOSE that comes later leaves the link; one that came before has not known it. */
    if (is_late(engine, recover))
        network_forget(engine->network, recover->node);
    return engine->self != engine->scheduler_node || tell_tables(engine, lines, error);
}

void admit_note_joined(RubatoEngine *engine, uint32_t node)
{
    pthread_mutex_lock(&engine->lock);
    g_free(engine->losses[node].text);
    engine->losses[node] = (NodeLoss){ .serves = true };
    pthread_mutex_unlock(&engine->lock);
}
