/* What a node tells probes: see engine_health.h. */
#include "engine/health/engine_health.h"

#include <rubato/error.h>

#include "engine/engine_private.h"
#include "engine/health/engine_status.h"
#include "io/number_text.h"

/* A node is live until its run has broken, which it does not survive. A node that waits is live:
 * to start it again would not bring the others. */
static void look(void *user, HealthState *state)
{
    RubatoEngine *const engine = user;

    pthread_mutex_lock(&engine->lock);
    state->is_live = engine->broken_text == NULL;
    state->is_ready = state->is_live && engine->is_ready;
    if (!state->is_live)
        state->text = g_strdup(engine->broken_text);
    else if (!state->is_ready)
        state->text = g_strdup("this node waits for the other nodes of its run");
    else
        state->text = g_strdup_printf("node %u takes part in its run", engine->id);
    pthread_mutex_unlock(&engine->lock);
}

static GVariant *tell_status(void *user)
{
    return engine_status(user);
}

bool engine_begin_health(RubatoEngine *engine, GError **error)
{
    const HealthSource source = { look, tell_status, engine };
    const char *const text = g_getenv(HEALTH_VARIABLE);
    uint64_t port;

    if (text == NULL || *text == '\0')
        return true;
    if (!number_text_read(text, 0, UINT16_MAX, &port)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "the environment variable " HEALTH_VARIABLE " is \"%s\"; it has to be a port "
                    "from 1 to 65535, or 0 for any free one",
                    text);
        return false;
    }
    engine->health = health_new((uint16_t)port, &source, error);
    if (engine->health != NULL && port == 0)
        g_message("probes are answered at port %u", health_port(engine->health));
    return engine->health != NULL;
}

void engine_set_ready(RubatoEngine *engine)
{
    pthread_mutex_lock(&engine->lock);
    engine->is_ready = true;
    pthread_mutex_unlock(&engine->lock);
}

void engine_end_health(RubatoEngine *engine)
{
    health_free(engine->health);
    engine->health = NULL;
}
