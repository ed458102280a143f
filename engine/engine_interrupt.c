/* What a signal does that asks the process to end: the program may take it; a node that only serves
 * is drained where the run goes on without it; else the run ends in order, on all nodes.
 *
 * Threads: that of signals (signals.h); `interrupt` also that of a drain that has failed. */
#include <string.h>

#include "engine/cluster/announce.h"
#include "engine/engine_private.h"

/* Who was ended, as the others call it: with the lock held. (transfer full) */
static char *name_of_ended(const RubatoEngine *engine)
{
    if (engine->announces)
        return g_strdup(announce_name(engine->config.announcement));
    return engine->cluster == NULL ? g_strdup("the run") : g_strdup_printf("node %u", engine->id);
}

static void cancel_run(RubatoEngine *engine, int signal_number)
{
    bool running, announces;

    /* relaxed: who looks at it looks again */
    atomic_store_explicit(&engine->is_over, true, memory_order_relaxed);
    pthread_mutex_lock(&engine->lock);
    announces = engine->announces;
    g_autofree char *ended = name_of_ended(engine);
    g_autofree char *text = g_strdup_printf("%s was ended by signal %d (%s)", ended, signal_number,
                                            strsignal(signal_number));
    running = !announces && (engine->cluster == NULL || engine->rendezvous.welcome);
    if (announces && engine->broken_text == NULL) { /* there is nothing yet to break */
        engine->broken_text = g_strdup(text);
        engine->broken_code = CONTROL_CODE(RUBATO_ERROR_CANCELLED);
        pthread_cond_broadcast(&engine->changed);
    }
    pthread_mutex_unlock(&engine->lock);
    if (announces)
        return;
    if (running)
        engine_tell_scheduler(engine, &(Control){ .kind = CONTROL_STOP, .stop = { text } });
    else
        engine_break(engine, CONTROL_CODE(RUBATO_ERROR_CANCELLED), text);
}

/* The program may take the first signal. Returns whether the run is cancelled. */
static bool interrupt(RubatoEngine *engine, int signal_number)
{
    const RubatoEngineConfig *config = &engine->config;
    const bool is_first = !engine->was_asked;

    engine->was_asked = true;
    /* relaxed: who looks at it looks again */
    atomic_store_explicit(&engine->is_asked, true, memory_order_relaxed);
    if (is_first && config->take_signal != NULL &&
        config->take_signal(signal_number, config->signal_data))
        return false;
    cancel_run(engine, signal_number);
    return true;
}

bool engine_interrupted(RubatoEngine *engine, int signal_number)
{
    return (!engine->was_asked && engine_drain_at_signal(engine, signal_number, interrupt)) ||
           interrupt(engine, signal_number);
}
