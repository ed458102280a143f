/* How the nodes of a run without a cluster file gather: servers and workers repeat ANNOUNCE until
 * the scheduler's PLACE has an id for them, and the text that describes the run. The scheduler
 * decides in a Roster. An Announcer hears and sends.
 *
 * The scheduler closes the Announcer's network before the rendezvous opens the engine's network at
 * the same address. The roster gives places only after that. So no node goes on while the scheduler
 * does not listen.
 *
 * Runs on the calling thread, which waits. */
#include "engine/cluster/announce.h"

#include <string.h>

#include "engine/cluster/announcer.h"
#include "engine/engine_private.h"
#include "io/kernel_random.h"

enum {
    ANNOUNCE_MS = 200, /* between two announcements */
    RESOLVE_MS = 1000, /* between two looks for the scheduler's address */
    NOTICE_MS = 5000,  /* between two lines in the log that say whom this node waits for */
};

static const char *role_name(const Announcer *announcer)
{
    return announcer->announcement->role == RUBATO_ROLE_NODE     ? "node"
           : announcer->announcement->role == RUBATO_ROLE_SERVER ? "server"
                                                                 : "worker";
}

const char *announce_name(const RubatoAnnouncement *announcement)
{
    static const char *const names[] = { [RUBATO_ROLE_SCHEDULER] = "the scheduler",
                                         [RUBATO_ROLE_SERVER] = "this server",
                                         [RUBATO_ROLE_WORKER] = "this worker",
                                         [RUBATO_ROLE_NODE] = "this node" };

    return names[announcement->role];
}

/* ---- the scheduler ---- */

/* Whether the numbers of nodes can be. */
static bool check_numbers(const RubatoAnnouncement *announcement, GError **error)
{
    const uint64_t nodes = (uint64_t)announcement->nodes + announcement->spares;

    if (announcement->role == RUBATO_ROLE_NODE) {
        if (announcement->nodes > 0 && nodes <= CLUSTER_MAX_NODES)
            return true;
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "a run cannot have %u nodes, and %u that may come as new ones; it has from 1 "
                    "to %u",
                    announcement->nodes, announcement->spares, CLUSTER_MAX_NODES);
        return false;
    }
    if (announcement->servers == 0 ||
        (uint64_t)announcement->servers + announcement->workers + announcement->spares >=
            CLUSTER_MAX_NODES) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "the scheduler waits for %u servers and %u workers, and %u servers may come as "
                    "new ones; there have to be a server at least, and at most %u nodes",
                    announcement->servers, announcement->workers, announcement->spares,
                    CLUSTER_MAX_NODES - 1);
        return false;
    }
    return true;
}

static bool start_roster(Announcer *announcer, GError **error)
{
    const RubatoAnnouncement *const announcement = announcer->announcement;
    const bool is_node = announcement->role == RUBATO_ROLE_NODE;
    const uint32_t threads = MAX(announcement->threads, 1);

    if (!check_numbers(announcement, error))
        return false;
    announcer->engine->roster = roster_new(&(RosterConfig){
        .n_servers = is_node ? 0 : announcement->servers,
        .n_workers = is_node ? 0 : announcement->workers,
        .n_nodes = is_node ? announcement->nodes - 1 : 0,
        .n_spares = announcement->spares,
        .spare_servers = !is_node ? threads
                         : announcement->servers == 0 && announcement->workers == 0
                             ? 1
                             : announcement->servers,
        .spare_workers = is_node ? announcement->workers : 0,
        .servers = is_node ? announcement->servers : 0,
        .workers = is_node ? announcement->workers : 0,
        .host = announcer->address,
        .listens = announcer->listens,
        .port = announcer->port,
        .settings = announcement->settings,
        .wire_version = WIRE_VERSION,
        .timeout_ms = announcer->own->timeout_ms + announcer->own->heartbeat_ms,
    });
    return true;
}

/* The run does not begin: those who are here learn why. The lock is held. */
static void refuse_all(Announcer *announcer, uint32_t code, const char *text)
{
    Roster *const roster = announcer->engine->roster;
    g_autoptr(GArray) askers = roster_askers(roster);
    const Control refuse = { .kind = CONTROL_REFUSE, .refuse = { code, text } };

    roster_give_up(roster, code, text);
    for (guint i = 0; i < askers->len; i++)
        announcer_answer(announcer, g_array_index(askers, uint64_t, i), &refuse);
}

/* The lock is held. */
static bool gather(Announcer *announcer, GError **error)
{
    RubatoEngine *const engine = announcer->engine;
    Roster *const roster = engine->roster;
    const uint32_t patience_ms = announcer->own->rendezvous_ms;
    const int64_t began_ms = network_now_ms();
    int64_t notice_ms = began_ms;
    g_autoptr(GError) failure = NULL;

    while (roster_file(roster) == NULL && engine->broken_text == NULL) {
        const int64_t now_ms = network_now_ms();

        if (now_ms - began_ms > (int64_t)patience_ms) {
            g_set_error(&failure, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST,
                        "after %.0f s only %s: start the missing ones with RUBATO_SCHEDULER=%s, "
                        "and look at what they say",
                        (double)patience_ms / 1e3, roster_missing(roster),
                        announcer->announcement->scheduler);
            break;
        }
        if (now_ms - notice_ms >= MIN(announcer->own->stall_ms, NOTICE_MS)) {
            g_message("the scheduler at %s waits until all nodes are here: %s",
                      announcer->announcement->scheduler, roster_missing(roster));
            notice_ms = now_ms;
        }
        engine_wait_changed(engine, ANNOUNCE_MS);
    }
    if (failure == NULL && roster_file(roster) != NULL) {
        announcer->file = g_strdup(roster_file(roster));
        return true;
    }
    if (failure == NULL)
        control_check(engine->broken_code, engine->broken_text, &failure);
    refuse_all(announcer, control_code_of(failure), failure->message);
    g_propagate_error(error, g_steal_pointer(&failure));
    return false;
}

/* ---- servers and workers ---- */

static ControlRole control_role(RubatoRole role)
{
    return role == RUBATO_ROLE_NODE     ? CONTROL_ROLE_NODE
           : role == RUBATO_ROLE_SERVER ? CONTROL_ROLE_SERVER
                                        : CONTROL_ROLE_WORKER;
}

static void announce_self(Announcer *announcer)
{
    const RubatoAnnouncement *const announcement = announcer->announcement;
    const ControlRole role = control_role(announcement->role);
    const bool is_node = role == CONTROL_ROLE_NODE;
    const uint32_t threads = MAX(announcement->threads, 1);
    g_autofree char *description =
        g_strdup_printf("%s process %ld", g_get_host_name(), (long)getpid());

    announcer_say(announcer,
                  &(Control){ .kind = CONTROL_ANNOUNCE,
                              .announce = { .incarnation = announcer->incarnation,
                                            .role = role,
                                            .servers = is_node ? announcement->servers
                                                       : role == CONTROL_ROLE_SERVER ? threads
                                                                                     : 0,
                                            .workers = is_node ? announcement->workers
                                                       : role == CONTROL_ROLE_WORKER ? threads
                                                                                     : 0,
                                            .wanted_id = announcement->node,
                                            .host = announcer->address,
                                            .description = description } });
}

/* One step of asking, without the lock. False with an error that will not go away. */
static bool ask(Announcer *announcer, int64_t now_ms, int64_t *broken_ms, char **failure,
                GError **error)
{
    bool broken;

    if (announcer->scheduler == NULL) {
        if (!announcer_find_scheduler(announcer, failure, error))
            return false;
        if (announcer->scheduler == NULL)
            return true;
        if (!announcer_open_network(announcer, error))
            return false;
    }
    announce_self(announcer);
    broken = network_greeting_state(announcer->network, announcer->scheduler) ==
             NETWORK_PEER_DISCONNECTED;
    *broken_ms = broken ? MIN(*broken_ms, now_ms) : INT64_MAX;
    return true;
}

/* Says why this node stops waiting. The lock is held. */
static bool give_up(const Announcer *announcer, double seconds, bool was_there, const char *failure,
                    GError **error)
{
    const char *const where = announcer->announcement->scheduler;

    if (was_there)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST,
                    "%s: the scheduler at %s was lost before the run began: the connection to it "
                    "broke, and for %.1f s there was no other",
                    role_name(announcer), where, seconds);
    else if (failure != NULL)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                    "%s: no scheduler at %s within %.1f s: %s", role_name(announcer), where,
                    seconds, failure);
    else
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                    "%s: no answer of the scheduler at %s within %.1f s; is it running there, with "
                    "the same secret as this node?",
                    role_name(announcer), where, seconds);
    return false;
}

/* The lock is held. */
static bool wait_for_place(Announcer *announcer, GError **error)
{
    RubatoEngine *const engine = announcer->engine;
    const Cluster *const own = announcer->own;
    const int64_t began_ms = network_now_ms();
    int64_t asked_ms = INT64_MIN / 2, notice_ms = began_ms, broken_ms = INT64_MAX;
    g_autofree char *failure = NULL;

    while (announcer->id == 0 && announcer->refusal == NULL && engine->broken_text == NULL) {
        const int64_t now_ms = network_now_ms();

        if (now_ms - asked_ms >= (announcer->scheduler == NULL ? RESOLVE_MS : ANNOUNCE_MS)) {
            pthread_mutex_unlock(&engine->lock);
            const bool goes_on = ask(announcer, now_ms, &broken_ms, &failure, error);
            pthread_mutex_lock(&engine->lock);
            if (!goes_on)
                return false;
            asked_ms = now_ms;
            continue; /* the answer may have come while the lock was free */
        }
        if (broken_ms != INT64_MAX && now_ms - broken_ms >= own->timeout_ms)
            return give_up(announcer, (double)(now_ms - broken_ms) / 1e3, true, NULL, error);
        /* The scheduler, if it is there, has a little time to say who is missing. */
        if (now_ms - began_ms > (int64_t)own->rendezvous_ms + own->timeout_ms)
            return give_up(announcer, (double)(now_ms - began_ms) / 1e3, false, failure, error);
        if (now_ms - notice_ms >= MIN(own->stall_ms, NOTICE_MS)) {
            g_message("%s waits for the scheduler at %s: %s",
                      announce_name(announcer->announcement), announcer->announcement->scheduler,
                      announcer->missing != NULL ? announcer->missing
                      : failure != NULL          ? failure
                                                 : "it has not answered yet");
            notice_ms = now_ms;
        }
        engine_wait_changed(engine, ANNOUNCE_MS);
    }
    if (announcer->refusal != NULL)
        return control_check(announcer->refusal_code, announcer->refusal, error);
    return announcer->id != 0 || control_check(engine->broken_code, engine->broken_text, error);
}

/* ---- both ---- */

static bool meet(Announcer *announcer, GError **error)
{
    RubatoEngine *const engine = announcer->engine;
    bool met;

    if (!announcer_split_scheduler(announcer, error) || !announcer_read_settings(announcer, error))
        return false;
    if (announcer_is_scheduler(announcer) &&
        (!announcer_find_own_address(announcer, error) || !start_roster(announcer, error) ||
         !announcer_open_network(announcer, error)))
        return false;
    pthread_mutex_lock(&engine->lock);
    met = announcer_is_scheduler(announcer) ? gather(announcer, error)
                                            : wait_for_place(announcer, error);
    pthread_mutex_unlock(&engine->lock);
    if (!met && !announcer_is_scheduler(announcer) && announcer->network != NULL)
        announcer_say(announcer,
                      &(Control){ .kind = CONTROL_FAREWELL,
                                  .farewell = { 0, announcer->incarnation, "it ends" } });
    return met;
}

/* What the scheduler has said, but for the file of the secret: each node has its own. */
static Cluster *read_cluster(const Announcer *announcer, GError **error)
{
    Cluster *const cluster =
        cluster_parse(announcer->file, strlen(announcer->file), "RUBATO_SETTINGS", error);

    if (cluster != NULL) {
        g_free(cluster->secret_file);
        cluster->secret_file = g_strdup(announcer->own->secret_file);
    }
    return cluster;
}

/* The text of the run says where the lost process was. How many threads the place has, all nodes
 * know from the beginning. */
static void take_place(RubatoEngine *engine, const Announcer *announcer)
{
    const RubatoAnnouncement *const announcement = announcer->announcement;
    const bool is_node = announcement->role == RUBATO_ROLE_NODE;
    const uint32_t threads = MAX(announcement->threads, 1);
    uint32_t number;

    engine->serving = serving_new();
    if (engine->cluster == NULL || cluster_find(engine->cluster, announcer->id, &number) == NULL)
        return; /* the engine says what is wrong with the text */
    ClusterNode *const node = &engine->cluster->nodes[number];
    const uint32_t n_told = is_node ? announcement->servers : threads;
    if (announcement->role != RUBATO_ROLE_WORKER && node->servers != n_told)
        g_message("node %u has %u server thread%s, as its place in the run has, and not %u",
                  announcer->id, node->servers, node->servers == 1 ? "" : "s", n_told);
    g_free(node->host);
    node->host = g_strdup(announcer->address);
}

bool announce(RubatoEngine *engine, GError **error)
{
    Announcer announcer = { .engine = engine, .announcement = engine->config.announcement };

    if (!kernel_random(&announcer.incarnation))
        announcer.incarnation = (uint64_t)g_get_real_time() ^ ((uint64_t)getpid() << 48);
    const bool met = meet(&announcer, error);
    if (met) {
        engine->config.node = announcer.id;
        engine->cluster = read_cluster(&announcer, error);
        if (announcer.joins)
            take_place(engine, &announcer);
    }
    announcer_clear(&announcer);
    if (engine->roster != NULL)
        roster_open(engine->roster);
    return met && engine->cluster != NULL;
}
