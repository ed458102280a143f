/* See long_handlers.h. */
#include "engine/control/long_handlers.h"

#include "engine/engine_private.h"
#include "models/handlers/handler.h"

static void look(RubatoEngine *engine, LongHandler *known, uint32_t server,
                 void (*tell)(RubatoEngine *engine, const Control *control))
{
    /* relaxed: for messages to the user alone */
    const char *const runs =
        atomic_load_explicit(&engine->office.servers[server].handler, memory_order_relaxed);
    const char *const is_long = runs == known->seen ? runs : NULL;

    known->seen = runs;
    if (is_long == known->told)
        return;
    known->told = is_long;
    tell(engine,
         &(Control){ .kind = CONTROL_RUNS, .runs = { .server = server, .handler = is_long } });
}

void long_handlers_look(RubatoEngine *engine,
                        void (*tell)(RubatoEngine *engine, const Control *control))
{
    for (uint32_t i = 0; i < engine->n_servers; i++)
        look(engine, &engine->long_handlers[i], engine->servers[i].number, tell);
}

/* What its own servers run, a node knows itself. */
void node_hears_runs(RubatoEngine *engine, uint32_t from, const Control *control)
{
    const uint32_t server = control->runs.server;
    const RubatoHandlerOps *ops;

    (void)from;
    if (server >= engine->office.n_servers || post_office_is_local(&engine->office, server))
        return;
    ops = handler_find(control->runs.handler);
    atomic_store_explicit(&engine->office.servers[server].handler, ops == NULL ? NULL : ops->name,
                          memory_order_relaxed);
}
