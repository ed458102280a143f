/* `rubato drain`: asks the scheduler of a run that goes on to drain a node, as a greeting, until it
 * says how that has ended. This process is no node.
 *
 * Why the wait ends: the scheduler answers each greeting at once, and the drain ends as told in
 * engine/scheduler/recovery/scheduler_drain.c; without an answer for timeout_ms it is given up.
 *
 * Threads: the caller's; the network's handler runs on its I/O thread. */
#include <rubato/launcher.h>
#include <string.h>

#include "engine/cluster/own_address.h"
#include "engine/cluster/secret_source.h"
#include "engine/control/control.h"
#include "io/kernel_random.h"
#include "io/net/monotonic.h"
#include "io/net/network/network.h"
#include "io/net/transport/tcp/tcp_address.h"
#include "io/number_text.h"

enum {
    ASK_MS = 100,      /* between two greetings */
    GONE_MS = 1000,    /* how long nobody may listen at the scheduler's address, */
    NOTICE_MS = 10000, /* between two lines that say that it goes on */
};

/* The entry of a cluster that has a scheduler and nothing else that matters. */
static const char ALONE[] = "cluster: { %s\n scheduler = { host = \"127.0.0.1\"; port = 1; };\n"
                            " nodes = ( { id = 0; host = \"127.0.0.1\"; port = 0; } );\n};\n";

typedef struct {
    /* immutable */
    uint32_t node;
    uint64_t number; /* of this ask, on the wire */
    Cluster *cluster;
    char *host; /* of the scheduler */
    uint16_t port;
    char *endpoint;
    Network *network;

    pthread_mutex_t lock;
    pthread_cond_t changed;

    /* guarded by lock */
    int64_t answered_ms; /* the last time */
    bool has_ended;
    uint32_t code;
    char *text;
} Drain;

/* ---- what the scheduler answers ---- */

static void receive(void *user, Incoming *incoming)
{
    (void)user;
    incoming_free(incoming); /* there are no links */
}

static void hear(Drain *drain, const Control *control)
{
    drain->answered_ms = monotonic_ms();
    if (control->kind == CONTROL_DRAINED && control->drain.number != drain->number)
        return; /* of an earlier process at this address */
    if (drain->has_ended || (control->kind == CONTROL_DRAINED && control->drain.goes_on))
        return;
    const ControlOutcome *const outcome = &control->drain.outcome;
    const bool is_refusal = control->kind == CONTROL_REFUSE;

    drain->has_ended = true;
    drain->code = is_refusal ? control->refuse.code : outcome->code;
    drain->text = g_strdup(is_refusal ? control->refuse.text : outcome->text);
}

static void greeted(void *user, uint16_t version, GVariant *body, const GreetingSource *source)
{
    Drain *const drain = user;
    g_auto(Control) control = { 0 };
    g_autoptr(GError) error = NULL;

    (void)version; /* the scheduler compares it */
    if (!source->is_answer)
        return;
    if (!control_decode_greeting(body, &control, &error)) {
        g_warning("the answer of %s cannot be read: %s", source->address, error->message);
        return;
    }
    if (control.kind != CONTROL_DRAINED && control.kind != CONTROL_REFUSE)
        return;
    pthread_mutex_lock(&drain->lock);
    hear(drain, &control);
    pthread_cond_broadcast(&drain->changed);
    pthread_mutex_unlock(&drain->lock);
}

static void tick(void *user, int64_t now_ms)
{
    (void)user;
    (void)now_ms;
}

static const NetworkHandler handler = { .receive = receive, .greeted = greeted, .tick = tick };

/* ---- where the scheduler is ---- */

static bool read_place(Drain *drain, const RubatoLaunchDrain *asked, GError **error)
{
    if (asked->cluster_file != NULL) {
        drain->cluster = cluster_read(asked->cluster_file, error);
        if (drain->cluster == NULL)
            return false;
        drain->host = g_strdup(drain->cluster->scheduler_host);
        drain->port = drain->cluster->scheduler_port;
        return true;
    }
    const char *const settings = asked->settings != NULL ? asked->settings : "";
    g_autofree char *text = g_strdup_printf(ALONE, settings);
    g_autofree char *endpoint = g_strconcat("tcp://", asked->scheduler, NULL);
    g_autofree char *port_text = NULL;
    uint64_t port;

    if (!tcp_address_split("tcp", endpoint, &drain->host, &port_text, NULL) ||
        !number_text_read(port_text, 1, UINT16_MAX, &port)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "the scheduler is at \"%s\"; that has to be HOST:PORT, such as 10.0.0.1:4100",
                    asked->scheduler);
        return false;
    }
    drain->port = (uint16_t)port;
    drain->cluster = cluster_parse(text, strlen(text), "RUBATO_SETTINGS", error);
    return drain->cluster != NULL;
}

static bool find_secret(const Drain *drain, const RubatoLaunchDrain *asked, RunSecret *secret,
                        bool *has_secret, GError **error)
{
    SecretOrigin origin = SECRET_ORIGIN_FROM_FILE;

    if (asked->secret_file != NULL ? !secret_read_file(asked->secret_file, secret, error)
                                   : !secret_find(drain->cluster, secret, &origin, error))
        return false;
    *has_secret = origin != SECRET_ORIGIN_NONE;
    if (*has_secret || (!drain->cluster->encrypt && !drain->cluster->authenticate))
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CONFIG,
                "the run encrypts or authenticates what its nodes send, and its secret is not "
                "here: give it in RUBATO_SECRET, or a file of it");
    return false;
}

static bool open_network(Drain *drain, const RubatoLaunchDrain *asked, GError **error)
{
    g_auto(RunSecret) secret = { { 0 } };
    uint64_t incarnation;
    bool has_secret, is_own;

    if (!find_secret(drain, asked, &secret, &has_secret, error))
        return false;
    g_autofree char *address = host_address_of(drain->host, &is_own, error);
    if (address == NULL)
        return false;
    if (!kernel_random(&incarnation) || !kernel_random(&drain->number)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "the system gives no random bytes");
        return false;
    }
    drain->number = MAX(drain->number, 1);
    drain->endpoint = tcp_address_join("tcp", address, drain->port);
    const NetworkConfig config = {
        .transport = "tcp",
        .n_nodes = drain->cluster->n_nodes,
        .incarnation = incarnation,
        .secret = has_secret ? &secret : NULL,
        .encrypt = drain->cluster->encrypt,
        .authenticate = drain->cluster->authenticate,
        .timeout_ms = drain->cluster->timeout_ms,
    };
    drain->network = network_new(&config, &handler, drain, error);
    return drain->network != NULL && network_start(drain->network, error);
}

/* ---- asking ---- */

static bool ask(Drain *drain, GError **error)
{
    g_autoptr(GVariant) body = control_greeting(
        &(Control){ .kind = CONTROL_DRAIN,
                    .drain = { .number = drain->number, .node_id = drain->node, .ends = true } });

    return network_greet(drain->network, drain->endpoint, body, error);
}

static bool give_up(const Drain *drain, int64_t silent_ms, bool is_gone, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                "%s the scheduler at %s:%u for %.1f s: does the run still go on there, and is its "
                "secret the one given here (RUBATO_SECRET, or a file of it)?",
                is_gone ? "there is no connection to" : "no answer of", drain->host, drain->port,
                (double)silent_ms / 1e3);
    return false;
}

/* The lock is held; it is released while the scheduler is asked. */
static bool ask_once(Drain *drain, int64_t *connected_ms, GError **error)
{
    pthread_mutex_unlock(&drain->lock);
    const bool ok = ask(drain, error);
    if (network_greeting_state(drain->network, drain->endpoint) == NETWORK_PEER_CONNECTED)
        *connected_ms = monotonic_ms();
    pthread_mutex_lock(&drain->lock);
    return ok;
}

/* The lock is held. */
static bool wait_for_end(Drain *drain, uint32_t timeout_ms, GError **error)
{
    const int64_t began_ms = monotonic_ms();
    int64_t asked_ms = began_ms - ASK_MS, connected_ms = began_ms, notice_ms = began_ms;

    drain->answered_ms = began_ms;
    while (!drain->has_ended) {
        const int64_t now_ms = monotonic_ms();

        if (now_ms - asked_ms >= ASK_MS) {
            if (!ask_once(drain, &connected_ms, error))
                return false;
            asked_ms = now_ms;
            continue; /* the answer may have come while the lock was free */
        }
        const int64_t silent_ms = now_ms - drain->answered_ms;
        const bool is_gone = now_ms - connected_ms >= MIN(GONE_MS, timeout_ms);

        if (is_gone || silent_ms >= timeout_ms)
            return give_up(drain, MIN(silent_ms, now_ms - began_ms), is_gone, error);
        if (now_ms - notice_ms >= NOTICE_MS) {
            g_message("node %u is being drained (for %.1f s so far)", drain->node,
                      (double)(now_ms - began_ms) / 1e3);
            notice_ms = now_ms;
        }
        (void)monotonic_wait(&drain->changed, &drain->lock, asked_ms + ASK_MS); /* or until then */
    }
    return control_check(drain->code, drain->text, error);
}

bool rubato_launch_drain(const RubatoLaunchDrain *asked, char **told, GError **error)
{
    Drain drain = { .node = asked->node };
    bool ok;

    g_return_val_if_fail((asked->cluster_file != NULL) != (asked->scheduler != NULL), false);
    pthread_mutex_init(&drain.lock, NULL);
    monotonic_cond_init(&drain.changed);
    ok = read_place(&drain, asked, error) && open_network(&drain, asked, error);
    pthread_mutex_lock(&drain.lock);
    ok = ok && wait_for_end(&drain, asked->timeout_ms > 0 ? asked->timeout_ms : 10000, error);
    pthread_mutex_unlock(&drain.lock);
    network_free(drain.network);
    if (ok && told != NULL)
        *told = drain.text != NULL && *drain.text != '\0'
                    ? g_strdup(drain.text)
                    : g_strdup_printf("node %u was drained, and has left the run", asked->node);
    cluster_free(drain.cluster);
    g_free(drain.host);
    g_free(drain.endpoint);
    g_free(drain.text);
    pthread_cond_destroy(&drain.changed);
    pthread_mutex_destroy(&drain.lock);
    return ok;
}
