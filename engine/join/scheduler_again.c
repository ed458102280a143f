/* See scheduler_again.h. */
#include "engine/join/scheduler_again.h"

#include "engine/engine_private.h"
#include "engine/join/journal_file.h"

bool scheduler_again_is_asked(const RubatoEngine *engine)
{
    return engine->serving != NULL && engine->self == engine->scheduler_node;
}

static bool refuse(const RubatoEngine *engine, const char *why, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "node %u: %s", engine->id, why);
    return false;
}

bool scheduler_again_open_journal(RubatoEngine *engine, GError **error)
{
    const char *const path = g_getenv(JOURNAL_VARIABLE);
    const bool is_asked = scheduler_again_is_asked(engine);

    if (engine->self != engine->scheduler_node || engine->journal_file != NULL)
        return true;
    if (path == NULL || *path == '\0')
        return is_asked ? refuse(engine,
                                 "cannot join a run: the scheduler runs there, and without a "
                                 "journal (" JOURNAL_VARIABLE ") the run ends with it; start all "
                                 "nodes again",
                                 error)
                        : true;
    if (engine->cluster == NULL || engine->announces)
        return refuse(engine, JOURNAL_VARIABLE " is for runs with a cluster file", error);
    if (engine->servers_of[engine->self] > 0 || engine->workers_of[engine->self] > 0)
        return refuse(engine,
                      JOURNAL_VARIABLE " is for a scheduler that is alone on its node: give the "
                                       "node no servers and no workers",
                      error);
    engine->journal_file =
        journal_file_open(path, is_asked ? JOURNAL_FILE_GO_ON : JOURNAL_FILE_BEGIN,
                          engine->cluster->digest, /* max_bytes= */ 0, error);
    if (engine->journal_file == NULL)
        return false;
    engine->journal = journal_file_journal(engine->journal_file);
    return true;
}

/* ---- coming into the run ---- */

typedef struct {
    RubatoEngine *engine;
    bool ok;
    GError *error;
} Entry;

/* As node_hears_admitted. No link is open at first: each node opens its own when it comes back. */
static void enter(Scheduler *scheduler, int64_t now_ms, void *user)
{
    Entry *const entry = user;
    RubatoEngine *const engine = entry->engine;
    g_autofree NetworkPeer *peers = g_new0(NetworkPeer, engine->n_nodes);

    g_autofree char *learned = scheduler_describe_resumed(scheduler);

    (void)now_ms;
    g_message("node %u goes on as the scheduler, by the journal of the process before: %s",
              engine->id, learned);
    engine_prepare_replicas(engine); /* before a message of another node comes */
    for (uint32_t i = 0; i < engine->n_nodes; i++) {
        SchedulerLink link;
        const bool lives = scheduler_find_link(scheduler, i, &link);

        peers[i] =
            (NetworkPeer){ .incarnation = link.incarnation, .counted_from = link.counted_from };
        if (!lives && i != engine->self && link.incarnation == 0)
            engine_note_absent(engine, i);
        else if (!lives && i != engine->self)
            engine_note_earlier_loss(engine, i);
    }
    entry->ok = network_join(engine->network, scheduler_run_id(scheduler), peers, &entry->error);
    pthread_mutex_lock(&engine->lock);
    engine->rendezvous.welcome = entry->ok;
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->lock);
}

bool scheduler_again_enter(RubatoEngine *engine, GError **error)
{
    Entry entry = { .engine = engine };

    dispatch_look_at_scheduler(engine, enter, &entry);
    if (!entry.ok)
        g_propagate_error(error, entry.error);
    return entry.ok;
}

void scheduler_again_note_losses(RubatoEngine *engine)
{
    for (uint32_t i = 0; i < engine->n_nodes; i++) {
        SchedulerLink link;

        if (i == engine->self || scheduler_find_link(engine->scheduler, i, &link))
            continue;
        pthread_mutex_lock(&engine->lock);
        const bool is_known = engine->losses[i].text != NULL;
        pthread_mutex_unlock(&engine->lock);
        if (!is_known)
            engine_note_earlier_loss(engine, i);
    }
}
