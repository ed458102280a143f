/* How the nodes of a run without a cluster file gather: servers and workers repeat ANNOUNCE until
 * the scheduler's PLACE has an id for them, and the text that describes the run. The scheduler
 * decides in a Roster.
 *
 * For this each node opens a network of its own, which has no links. The scheduler closes this
 * network before the rendezvous opens the engine's network at the same address. The roster gives
 * places only after that. So no node goes on while the scheduler does not listen.
 *
 * The calling thread waits; the network's handler, on its I/O thread, takes greetings. What both
 * touch is guarded by the engine's lock. */
#include "engine/cluster/announce.h"

#include <string.h>
#include <sys/random.h>

#include "engine/cluster/own_address.h"
#include "engine/cluster/secret_source.h"
#include "engine/engine_private.h"
#include "io/net/transport/tcp/tcp_address.h"
#include "io/number_text.h"

enum {
    ANNOUNCE_MS = 200,  /* between two announcements */
    RESOLVE_MS = 1000,  /* between two looks for the scheduler's address */
    NOTICE_MS = 5000,   /* between two lines in the log that say whom this node waits for */
    GATHER_MS = 300000, /* rendezvous_ms, if not told: containers start one after the other */
};

typedef struct {
    /* immutable */
    RubatoEngine *engine;
    const RubatoAnnouncement *announcement;
    Cluster *own; /* of this node's settings alone */
    uint64_t incarnation;
    char *host;      /* of RUBATO_SCHEDULER */
    uint16_t port;   /* the same */
    char *address;   /* where this node receives */
    char *scheduler; /* its endpoint; NULL: the host has no address yet */
    Network *network;

    /* guarded by the engine's lock */
    uint32_t id; /* 0: no place yet */
    char *file;
    char *missing; /* for whom the scheduler waits; NULL: it has not answered */
    char *refusal;
    uint32_t refusal_code;
} Announcer;

static const char *role_name(const Announcer *announcer)
{
    return announcer->announcement->role == RUBATO_ROLE_SERVER ? "server" : "worker";
}

const char *announce_name(const RubatoAnnouncement *announcement)
{
    static const char *const names[] = { [RUBATO_ROLE_SCHEDULER] = "the scheduler",
                                         [RUBATO_ROLE_SERVER] = "this server",
                                         [RUBATO_ROLE_WORKER] = "this worker" };

    return names[announcement->role];
}

static bool is_scheduler(const Announcer *announcer)
{
    return announcer->announcement->role == RUBATO_ROLE_SCHEDULER;
}

/* ---- the network's events ---- */

static void receive(void *user, Incoming *incoming)
{
    (void)user;
    incoming_free(incoming); /* there are no links */
}

static void answer(Announcer *announcer, uint64_t asker, const Control *control)
{
    g_autoptr(GVariant) body = control_greeting(control);
    g_autoptr(GError) error = NULL;

    if (!network_answer(announcer->network, asker, body, &error))
        g_warning("cannot answer an announcement: %s", error->message);
}

/* The scheduler's side. The engine's lock is held. */
static void hear_greeting(Announcer *announcer, const Control *control, uint16_t version,
                          uint64_t asker)
{
    RubatoEngine *const engine = announcer->engine;
    Control reply;

    if (control->kind == CONTROL_FAREWELL)
        roster_forget(engine->roster, control->farewell.incarnation);
    if (control->kind != CONTROL_ANNOUNCE)
        return; /* a HELLO comes again, when the run has its nodes */
    roster_hear(engine->roster, network_now_ms(), &control->announce, version, asker, &reply);
    if (reply.kind == CONTROL_REFUSE)
        g_warning("refused a node: %s", reply.refuse.text);
    answer(announcer, asker, &reply);
}

/* The other side. The engine's lock is held. */
static void hear_answer(Announcer *announcer, const Control *control)
{
    if (control->kind == CONTROL_REFUSE && announcer->refusal == NULL) {
        announcer->refusal = g_strdup(control->refuse.text);
        announcer->refusal_code = control->refuse.code;
    }
    if (control->kind != CONTROL_PLACE || announcer->id != 0 ||
        control->place.incarnation != announcer->incarnation)
        return;
    g_free(announcer->missing);
    announcer->missing = g_strdup(control->place.missing);
    if (control->place.node_id == 0)
        return;
    announcer->id = control->place.node_id;
    announcer->file = g_strdup(control->place.file);
}

static void greeted(void *user, uint16_t version, GVariant *body, const GreetingSource *source)
{
    Announcer *const announcer = user;
    RubatoEngine *const engine = announcer->engine;
    g_auto(Control) control = { 0 };
    g_autoptr(GError) error = NULL;

    if (!control_decode_greeting(body, &control, &error)) {
        g_warning("a greeting from %s cannot be read (%s); dropped", source->address,
                  error->message);
        return;
    }
    pthread_mutex_lock(&engine->lock);
    if (is_scheduler(announcer) && !source->is_answer)
        hear_greeting(announcer, &control, version, source->asker);
    else if (!is_scheduler(announcer) && source->is_answer)
        hear_answer(announcer, &control);
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->lock);
}

static void tick(void *user, int64_t now_ms)
{
    Announcer *const announcer = user;

    pthread_mutex_lock(&announcer->engine->lock);
    if (is_scheduler(announcer))
        roster_tick(announcer->engine->roster, now_ms);
    pthread_mutex_unlock(&announcer->engine->lock);
}

static const NetworkHandler handler = { .receive = receive, .greeted = greeted, .tick = tick };

/* ---- where everything is ---- */

static bool split_scheduler(Announcer *announcer, GError **error)
{
    const char *const text = announcer->announcement->scheduler;
    g_autofree char *endpoint = g_strconcat("tcp://", text, NULL);
    g_autofree char *port_text = NULL;
    uint64_t port;

    if (!tcp_address_split("tcp", endpoint, &announcer->host, &port_text, NULL) ||
        !number_text_read(port_text, 1, UINT16_MAX, &port)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "RUBATO_SCHEDULER is \"%s\"; it has to be HOST:PORT, where the scheduler "
                    "listens, such as 10.0.0.1:4100",
                    text);
        return false;
    }
    announcer->port = (uint16_t)port;
    return true;
}

/* A cluster of this node alone: how long it waits, and where its secret is. */
static bool read_settings(Announcer *announcer, GError **error)
{
    const char *const told = announcer->announcement->settings;
    const char *const given = told != NULL ? told : "";
    /* A setting that is there twice is refused. */
    const bool has_time = strstr(given, "rendezvous_ms") != NULL;
    g_autofree char *settings =
        has_time ? g_strdup(given) : g_strdup_printf("rendezvous_ms = %d; %s", GATHER_MS, given);
    g_autofree char *text = g_strdup_printf(
        "cluster: { %s\n scheduler = { host = \"127.0.0.1\"; port = 1; };\n nodes = ( { id = 0; "
        "host = \"127.0.0.1\"; port = 0; } );\n};\n",
        settings);

    announcer->own = cluster_parse(text, strlen(text), "RUBATO_SETTINGS", error);
    return announcer->own != NULL;
}

/* The scheduler listens at its interface, or at its host. */
static bool find_own_address(Announcer *announcer, GError **error)
{
    const char *const interface = announcer->announcement->interface;
    bool is_own = false;

    if (interface != NULL) {
        announcer->address = own_address_of(interface, error);
        return announcer->address != NULL;
    }
    announcer->address = host_address_of(announcer->host, &is_own, error);
    if (announcer->address == NULL || is_own)
        return announcer->address != NULL;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CONFIG,
                "RUBATO_SCHEDULER is %s, which is no address of this machine, so the scheduler "
                "cannot listen there; if others reach this machine by that name, set "
                "RUBATO_INTERFACE to the interface or address at which it listens",
                announcer->announcement->scheduler);
    return false;
}

/* Looks for the scheduler's address, and for this node's own. The name may not be known yet: then
 * *failure says so, and this is called again. False with an error that will not go away. */
static bool find_scheduler(Announcer *announcer, char **failure, GError **error)
{
    const char *const interface = announcer->announcement->interface;
    g_autoptr(GError) cause = NULL;
    bool is_own;
    g_autofree char *address = host_address_of(announcer->host, &is_own, &cause);

    g_free(*failure);
    *failure = cause != NULL ? g_strdup(cause->message) : NULL;
    if (address == NULL)
        return true;
    announcer->address =
        interface != NULL ? own_address_of(interface, error) : own_address_towards(address, error);
    if (announcer->address == NULL)
        return false;
    announcer->scheduler = tcp_address_join("tcp", address, announcer->port);
    return true;
}

/* ---- the network ---- */

static bool check_secret(const Announcer *announcer, bool has_secret, GError **error)
{
    const Cluster *const own = announcer->own;
    const bool is_within = address_is_loopback(announcer->address);

    if (has_secret || (!own->encrypt && !own->authenticate && (own->insecure || is_within)))
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CONFIG,
                "this node receives at %s%s, and the run has no secret by which nodes know each "
                "other; give all nodes the same RUBATO_SECRET, or a file of it by secret_file in "
                "RUBATO_SETTINGS (`rubato secret FILE` makes one)%s",
                announcer->address, is_within ? "" : ", which other machines can reach",
                is_within ? "; encrypt and authenticate need one"
                          : "; insecure = true; in RUBATO_SETTINGS does without");
    return false;
}

static bool open_network(Announcer *announcer, GError **error)
{
    const Cluster *const own = announcer->own;
    const RubatoAnnouncement *const announcement = announcer->announcement;
    g_auto(RunSecret) secret = { { 0 } };
    g_autofree char *endpoint = NULL;
    SecretOrigin origin;

    if (!secret_find(own, &secret, &origin, error) ||
        !check_secret(announcer, origin != SECRET_ORIGIN_NONE, error))
        return false;
    if (is_scheduler(announcer))
        endpoint = tcp_address_join("tcp", announcer->address, announcer->port);
    const NetworkConfig config = {
        .transport = "tcp",
        .n_nodes = announcement->servers + announcement->workers + 1,
        .incarnation = announcer->incarnation,
        .secret = origin != SECRET_ORIGIN_NONE ? &secret : NULL,
        .encrypt = own->encrypt,
        .authenticate = own->authenticate,
        .bind_endpoints = (const char *const *)&endpoint,
        .n_bind_endpoints = endpoint != NULL ? 1 : 0,
        .timeout_ms = own->timeout_ms,
    };
    announcer->network = network_new(&config, &handler, announcer, error);
    if (announcer->network == NULL && is_scheduler(announcer))
        g_prefix_error(error, "the scheduler cannot listen: ");
    return announcer->network != NULL && network_start(announcer->network, error);
}

/* ---- the scheduler ---- */

static bool start_roster(Announcer *announcer, GError **error)
{
    const RubatoAnnouncement *const announcement = announcer->announcement;

    if (announcement->servers == 0 ||
        (uint64_t)announcement->servers + announcement->workers >= CLUSTER_MAX_NODES) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "the scheduler waits for %u servers and %u workers; there have to be a server "
                    "at least, and at most %u nodes",
                    announcement->servers, announcement->workers, CLUSTER_MAX_NODES - 1);
        return false;
    }
    announcer->engine->roster = roster_new(&(RosterConfig){
        .n_servers = announcement->servers,
        .n_workers = announcement->workers,
        .host = announcer->address,
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
        answer(announcer, g_array_index(askers, uint64_t, i), &refuse);
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

static void say_announce(Announcer *announcer, const Control *control)
{
    g_autoptr(GVariant) body = control_greeting(control);
    g_autoptr(GError) error = NULL;

    if (!network_greet(announcer->network, announcer->scheduler, body, &error))
        g_warning("cannot announce this node: %s", error->message);
}

static void announce_self(Announcer *announcer)
{
    const RubatoAnnouncement *const announcement = announcer->announcement;
    g_autofree char *description =
        g_strdup_printf("%s process %ld", g_get_host_name(), (long)getpid());

    say_announce(announcer,
                 &(Control){ .kind = CONTROL_ANNOUNCE,
                             .announce = { .incarnation = announcer->incarnation,
                                           .role = announcement->role == RUBATO_ROLE_SERVER
                                                       ? CONTROL_ROLE_SERVER
                                                       : CONTROL_ROLE_WORKER,
                                           .threads = MAX(announcement->threads, 1),
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
        if (!find_scheduler(announcer, failure, error))
            return false;
        if (announcer->scheduler == NULL)
            return true;
        if (!open_network(announcer, error))
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

    if (!split_scheduler(announcer, error) || !read_settings(announcer, error))
        return false;
    if (is_scheduler(announcer) &&
        (!find_own_address(announcer, error) || !start_roster(announcer, error) ||
         !open_network(announcer, error)))
        return false;
    pthread_mutex_lock(&engine->lock);
    met = is_scheduler(announcer) ? gather(announcer, error) : wait_for_place(announcer, error);
    pthread_mutex_unlock(&engine->lock);
    if (!met && !is_scheduler(announcer) && announcer->network != NULL)
        say_announce(announcer, &(Control){ .kind = CONTROL_FAREWELL,
                                            .farewell = { 0, announcer->incarnation, "it ends" } });
    return met;
}

static void announcer_clear(Announcer *announcer)
{
    network_free(announcer->network);
    cluster_free(announcer->own);
    g_free(announcer->host);
    g_free(announcer->address);
    g_free(announcer->scheduler);
    g_free(announcer->file);
    g_free(announcer->missing);
    g_free(announcer->refusal);
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

bool announce(RubatoEngine *engine, GError **error)
{
    Announcer announcer = { .engine = engine, .announcement = engine->config.announcement };

    if (getrandom(&announcer.incarnation, sizeof announcer.incarnation, 0) !=
        (ssize_t)sizeof announcer.incarnation)
        announcer.incarnation = (uint64_t)g_get_real_time() ^ ((uint64_t)getpid() << 48);
    const bool met = meet(&announcer, error);
    if (met) {
        engine->config.node = announcer.id;
        engine->cluster = read_cluster(&announcer, error);
    }
    announcer_clear(&announcer);
    if (engine->roster != NULL)
        roster_open(engine->roster);
    return met && engine->cluster != NULL;
}
