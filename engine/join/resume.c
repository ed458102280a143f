/* See resume.h.
 *
 * Until the answer comes, everything between nodes goes on, and what the scheduler would have to
 * hear is kept (engine/control/unheard.h). If no process goes on as the scheduler within the
 * timeout, the run ends for this node, as it does without a journal: see check_scheduler in
 * engine/control/dispatch.c. It is this node's own silence that decides: nobody else has to say so.
 *
 * An answer is taken from who is at the scheduler's address and, if the run has a secret, knows it:
 * as in the rendezvous. Only one process can be there; the one before has left it. What is still
 * under way from that one counts until the link is replaced, and BACK says so; after that it is a
 * stranger's. */
#include "engine/join/resume.h"

#include "engine/engine_private.h"

enum { LOOK_MS = 200 }; /* between two greetings */

void resume_look(RubatoEngine *engine, int64_t now_ms)
{
    const uint32_t scheduler = engine->scheduler_node;
    const int64_t silent_ms = now_ms - network_heard_ms(engine->network, scheduler);
    const bool is_broken =
        network_peer_state(engine->network, scheduler) == NETWORK_PEER_DISCONNECTED;

    if ((!is_broken && silent_ms < 2 * (int64_t)engine->heartbeat_ms) ||
        now_ms - engine->times.looked_ms < LOOK_MS || engine->scheduler_address == NULL)
        return;
    engine->times.looked_ms = now_ms;
    const Control resume = { .kind = CONTROL_RESUME,
                             .resume = { .node_id = engine->id,
                                         .incarnation = engine->incarnation,
                                         .run_id = network_run_id(engine->network),
                                         .scheduler =
                                             network_incarnation(engine->network, scheduler) } };
    g_autoptr(GVariant) body = control_greeting(&resume);

    /* It may fail, as any greeting: the next one follows. */
    (void)network_greet(engine->network, engine->scheduler_address, body, NULL);
}

char *resume_hear(RubatoEngine *engine, const ControlResumed *resumed)
{
    const uint32_t node = engine->scheduler_node;
    const NetworkPeer told = { .endpoint = resumed->endpoints,
                               .incarnation = resumed->scheduler,
                               .counted_from = resumed->counted_from };
    g_autoptr(GError) error = NULL;

    if (resumed->incarnation != engine->incarnation || node == engine->self ||
        resumed->scheduler == network_incarnation(engine->network, node))
        return NULL;
    pthread_mutex_lock(&engine->lock);
    const bool is_over = engine->scheduler_lost || engine->left ||
                         !engine->rendezvous.welcome; /* or has not begun */
    pthread_mutex_unlock(&engine->lock);
    if (is_over)
        return NULL;
    if (resumed->outcome.code != CONTROL_OK)
        return g_strdup(resumed->outcome.text);
    const int64_t silent_ms = network_now_ms() - network_heard_ms(engine->network, node);

    unheard_begin_again(&engine->unheard);
    if (!network_replace_greeted(engine->network, node, &told, &error))
        return g_strdup(error->message);
    const Control back = { .kind = CONTROL_BACK, .back = { engine->n_heard } };
    const uint64_t n = unheard_end_again(&engine->unheard, &back, resumed->n_taken);

    /* relaxed: the next tick sees it, or the one after it */
    atomic_store_explicit(&engine->back_ms, network_now_ms(), memory_order_relaxed);

    g_message(
        "node %u: another process goes on as the scheduler; nothing was heard of one for %.1f "
        "s, and %" G_GUINT64_FORMAT " messages are said again",
        engine->id, (double)silent_ms / 1e3, n);
    return NULL;
}

/* ---- on the new process ---- */

typedef struct {
    Message message; /* first: the thread finds the link by it */
    RubatoEngine *engine;
    uint32_t node;
    NetworkPeer told;
    char *endpoints;
} OpenLink;

static void open_link(Message *message, void *actor)
{
    OpenLink *const link = (OpenLink *)message;
    g_autoptr(GError) error = NULL;

    (void)actor;
    if (!network_replace(link->engine->network, link->node, &link->told, &error))
        g_warning("node %u: the link to node %u cannot be opened: %s", link->engine->id,
                  link->engine->node_ids[link->node], error->message);
    g_free(link->endpoints);
    g_free(link);
}

/* The network is not called by a thread that may receive. That of part steps has nothing to wait
 * for: no step is done here before all nodes that live have come back. */
void resume_open_link(RubatoEngine *engine, const SchedulerLink *link)
{
    OpenLink *const open = g_new0(OpenLink, 1);

    open->message = (Message){ .kind = MESSAGE_INVOKE, .invoke = open_link };
    open->engine = engine;
    open->node = link->node;
    open->endpoints = g_strdup(link->endpoints);
    open->told = (NetworkPeer){ .endpoint = open->endpoints,
                                .incarnation = link->incarnation,
                                .counted_from = link->counted_from };
    actor_post(&engine->part_steps, &open->message);
}
