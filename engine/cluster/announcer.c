/* Hears and sends for a node of a run without a cluster file: see announcer.h.
 *
 * Runs as announcer.h says. */
#include "engine/cluster/announcer.h"

#include <string.h>

#include "engine/cluster/own_address.h"
#include "io/net/transport/tcp/tcp_address.h"
#include "io/number_text.h"

enum { GATHER_MS = 300000 }; /* rendezvous_ms, if not told: containers start one after the other */

bool announcer_is_scheduler(const Announcer *announcer)
{
    const RubatoAnnouncement *const announcement = announcer->announcement;

    return announcement->role == RUBATO_ROLE_SCHEDULER ||
           (announcement->role == RUBATO_ROLE_NODE && announcement->node == 0);
}

/* ---- the network's events ---- */

static void receive(void *user, Incoming *incoming)
{
    (void)user;
    incoming_free(incoming); /* there are no links */
}

void announcer_answer(Announcer *announcer, uint64_t asker, const Control *control)
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
    if (reply.kind == CONTROL_REFUSE && refusals_are_new(&announcer->refusals, reply.refuse.text))
        g_warning("refused a node: %s", reply.refuse.text);
    announcer_answer(announcer, asker, &reply);
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
    announcer->joins = control->place.joins;
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
    if (announcer_is_scheduler(announcer) && !source->is_answer)
        hear_greeting(announcer, &control, version, source->asker);
    else if (!announcer_is_scheduler(announcer) && source->is_answer)
        hear_answer(announcer, &control);
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->lock);
}

static void tick(void *user, int64_t now_ms)
{
    Announcer *const announcer = user;

    pthread_mutex_lock(&announcer->engine->lock);
    if (announcer_is_scheduler(announcer))
        roster_tick(announcer->engine->roster, now_ms);
    pthread_mutex_unlock(&announcer->engine->lock);
}

static const NetworkHandler handler = { .receive = receive, .greeted = greeted, .tick = tick };

/* ---- where everything is ---- */

bool announcer_split_scheduler(Announcer *announcer, GError **error)
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
bool announcer_read_settings(Announcer *announcer, GError **error)
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

/* Whether the scheduler's host is a name that only this machine takes for loopback, as /etc/hosts
 * often has it: a job system's nodes elsewhere reach it by an address. */
static bool is_hidden(const Announcer *announcer)
{
    return announcer->announcement->role == RUBATO_ROLE_NODE &&
           strcmp(announcer->host, "localhost") != 0 &&
           !g_hostname_is_ip_address(announcer->host) && address_is_loopback(announcer->address);
}

/* Whether others find the scheduler at its host, although its node receives elsewhere. Not if only
 * this machine takes the host for loopback, as /etc/hosts often has it: then the interface is all
 * that is known. (transfer full) */
static char *find_listening_address(const Announcer *announcer)
{
    bool is_own = false;
    g_autofree char *host = host_address_of(announcer->host, &is_own, NULL);

    if (host != NULL && is_own &&
        (!address_is_loopback(host) || address_is_loopback(announcer->address)))
        return g_steal_pointer(&host);
    return g_strdup(announcer->address);
}

bool announcer_find_own_address(Announcer *announcer, GError **error)
{
    const char *const interface = announcer->announcement->interface;
    bool is_own = false;

    if (interface != NULL) {
        announcer->address = own_address_of(interface, error);
        if (announcer->address == NULL)
            return false;
        announcer->listens = find_listening_address(announcer);
        return true;
    }
    announcer->address = host_address_of(announcer->host, &is_own, error);
    if (announcer->address == NULL)
        return false;
    if (is_own) {
        if (is_hidden(announcer)) {
            g_free(announcer->address);
            announcer->address = own_address_outward();
        }
        announcer->listens = g_strdup(announcer->address);
        return true;
    }
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CONFIG,
                "RUBATO_SCHEDULER is %s, which is no address of this machine, so the scheduler "
                "cannot listen there; if others reach this machine by that name, set "
                "RUBATO_INTERFACE to the interface or address at which it listens",
                announcer->announcement->scheduler);
    return false;
}

bool announcer_find_scheduler(Announcer *announcer, char **failure, GError **error)
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
    const bool is_hearing_others =
        announcer->listens != NULL && !address_is_loopback(announcer->listens);
    const char *const address = is_hearing_others ? announcer->listens : announcer->address;
    const bool is_within = address_is_loopback(address);

    if (has_secret || (!own->encrypt && !own->authenticate && (own->insecure || is_within)))
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CONFIG,
                "this node receives at %s%s, and the run has no secret by which nodes know each "
                "other; give all nodes the same RUBATO_SECRET, or a file of it by secret_file in "
                "RUBATO_SETTINGS (`rubato secret FILE` makes one)%s",
                address, is_within ? "" : ", which other machines can reach",
                is_within ? "; encrypt and authenticate need one"
                          : "; insecure = true; in RUBATO_SETTINGS does without");
    return false;
}

bool announcer_find_secret(const Announcer *announcer, RunSecret *secret, SecretOrigin *origin,
                           GError **error)
{
    return secret_find(announcer->own, secret, origin, error) &&
           check_secret(announcer, *origin != SECRET_ORIGIN_NONE, error);
}

bool announcer_open_network(Announcer *announcer, GError **error)
{
    const Cluster *const own = announcer->own;
    const RubatoAnnouncement *const announcement = announcer->announcement;
    g_auto(RunSecret) secret = { { 0 } };
    g_autofree char *endpoint = NULL;
    SecretOrigin origin;

    if (!announcer_find_secret(announcer, &secret, &origin, error))
        return false;
    if (announcer_is_scheduler(announcer))
        endpoint = tcp_address_join("tcp", announcer->listens, announcer->port);
    const NetworkConfig config = {
        .transport = "tcp",
        .n_nodes = announcement->role == RUBATO_ROLE_NODE
                       ? announcement->nodes + announcement->spares
                       : announcement->servers + announcement->workers + announcement->spares + 1,
        .incarnation = announcer->incarnation,
        .secret = origin != SECRET_ORIGIN_NONE ? &secret : NULL,
        .encrypt = own->encrypt,
        .authenticate = own->authenticate,
        .bind_endpoints = (const char *const *)&endpoint,
        .n_bind_endpoints = endpoint != NULL ? 1 : 0,
        .timeout_ms = own->timeout_ms,
    };
    announcer->network = network_new(&config, &handler, announcer, error);
    if (announcer->network == NULL && announcer_is_scheduler(announcer))
        g_prefix_error(error, "the scheduler cannot listen: ");
    return announcer->network != NULL && network_start(announcer->network, error);
}

void announcer_say(Announcer *announcer, const Control *control)
{
    g_autoptr(GVariant) body = control_greeting(control);
    g_autoptr(GError) error = NULL;

    if (!network_greet(announcer->network, announcer->scheduler, body, &error))
        g_warning("cannot announce this node: %s", error->message);
}

void announcer_clear(Announcer *announcer)
{
    network_free(announcer->network);
    cluster_free(announcer->own);
    g_free(announcer->host);
    g_free(announcer->address);
    g_free(announcer->listens);
    g_free(announcer->scheduler);
    g_free(announcer->file);
    g_free(announcer->missing);
    g_free(announcer->refusal);
    refusals_clear(&announcer->refusals);
}
