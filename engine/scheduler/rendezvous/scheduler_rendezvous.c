/* The rendezvous: each node repeats HELLO until it is answered. When all nodes are here that are
 * not spare, all get WELCOME. Later a process may say JOIN, to take the place of a lost node, or to
 * be a spare one: see scheduler_admission.c.
 *
 * Greetings may be lost. They may come from any process that knows the secret or, if there is no
 * secret, from any process. So the answer to a HELLO depends on the scheduler's state only. It goes
 * back by the connection on which the HELLO came, and a repeated HELLO is answered again. Only the
 * newcomer is told what is wrong with it. If the run then does not begin in time, the others are
 * told too, with the name of the missing node.
 *
 * Runs as scheduler.h says. */
#include "engine/scheduler/rendezvous/scheduler_rendezvous.h"

#include <assert.h>
#include <string.h>

#include "engine/scheduler/journal/scheduler_record.h"
#include "engine/scheduler/recovery/scheduler_admission.h"
#include "engine/scheduler/recovery/scheduler_recovery.h"
#include "engine/scheduler/scheduler_base.h"
#include "engine/scheduler/scheduler_collective.h"
#include "engine/scheduler/scheduler_snapshot.h"
#include "models/registry.h"

#define DIGEST_SHOWN 12 /* digits: enough to tell two files apart */

static void send_refusal(Scheduler *scheduler, uint64_t asker, uint32_t code, const char *text)
{
    const Control refuse = { .kind = CONTROL_REFUSE, .refuse = { code, text } };
    scheduler_send_greeting(scheduler, asker, &refuse);
}

/* The run cannot begin: all processes that are here, or come later, are told why. */
static void give_up(Scheduler *scheduler, uint32_t code, const char *text)
{
    verdict_set(&scheduler->refusal, code, text);
    scheduler->ended = true;
    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++)
        if (scheduler->nodes[i].here)
            send_refusal(scheduler, scheduler->nodes[i].asker, code, text);
}

static uint32_t find_node(const Scheduler *scheduler, uint32_t id)
{
    uint32_t number = 0;
    while (number < scheduler->config.n_nodes && scheduler->nodes[number].id != id)
        number++;
    return number;
}

static const char *text_or(const char *text, const char *otherwise)
{
    return text != NULL && text[0] != '\0' ? text : otherwise;
}

static char *list_ids(const Scheduler *scheduler)
{
    GString *ids = g_string_new(NULL);
    for (uint32_t i = 0; i < scheduler->config.n_nodes && i < 16; i++)
        g_string_append_printf(ids, "%s%u", i > 0 ? ", " : "", scheduler->nodes[i].id);
    if (scheduler->config.n_nodes > 16)
        g_string_append(ids, ", ...");
    return g_string_free(ids, FALSE);
}

/* How what the process has registered differs from what the scheduler has; NULL if it does not. */
static char *compare_registered(const Scheduler *scheduler, const ControlHello *hello)
{
    const char *const theirs = hello->registered != NULL ? hello->registered : "";
    g_autofree char *who = g_strdup_printf("node %u (%s)", hello->node_id,
                                           text_or(hello->description, "unknown process"));
    g_autofree char *difference =
        registry_compare(theirs, who, scheduler->registered, "the scheduler");

    return difference == NULL
               ? NULL
               : g_strdup_printf("%s: register the same models, storages and update rules on every "
                                 "node, or load the same plug-ins",
                                 difference);
}

/* Why a process cannot take part; NULL if it can. number is n_nodes where its id is unknown. */
static char *find_fault(const Scheduler *scheduler, const ControlHello *hello, uint16_t version,
                        uint32_t number, uint32_t *code)
{
    const SchedulerConfig *config = &scheduler->config;
    const char *const who = text_or(hello->description, "unknown process");
    const char *const digest = text_or(hello->digest, "none");

    *code = CONTROL_CODE(RUBATO_ERROR_MISMATCH);
    if (version != config->wire_version)
        return g_strdup_printf("node %u (%s) speaks wire version %u, the scheduler speaks wire "
                               "version %u: start every node with the same build of Rubato",
                               hello->node_id, who, version, config->wire_version);
    if (strcmp(digest, text_or(scheduler->digest, "none")) != 0)
        return g_strdup_printf("node %u (%s) runs with another cluster file than the scheduler: "
                               "digest %.*s there, %.*s here; start every node with the same file",
                               hello->node_id, who, DIGEST_SHOWN, digest, DIGEST_SHOWN,
                               text_or(scheduler->digest, "none"));

    char *other = compare_registered(scheduler, hello);
    if (other != NULL)
        return other;

    *code = CONTROL_CODE(RUBATO_ERROR_INVALID);
    if (number == config->n_nodes) {
        g_autofree char *ids = list_ids(scheduler);
        return g_strdup_printf("there is no node %u in the cluster file; its nodes are %s",
                               hello->node_id, ids);
    }
    if (hello->number != number)
        return g_strdup_printf("node %u (%s) takes itself for number %u of the nodes, but is "
                               "number %u",
                               hello->node_id, who, hello->number, number);
    return NULL;
}

void rendezvous_leave_out(SchedulerNode *node)
{
    node->lost = true;
    node->loss.code = CONTROL_CODE(RUBATO_ERROR_NODE_LOST);
    node->loss.text =
        g_strdup_printf("%s is spare, and no process has joined the run as it yet", node->label);
}

void rendezvous_begin(Scheduler *scheduler)
{
    const uint32_t n_nodes = scheduler->config.n_nodes;

    /* Random incarnations distinguish processes, and so they distinguish runs. */
    uint64_t run_id = 0;
    for (uint32_t i = 0; i < n_nodes; i++) {
        run_id = (run_id ^ scheduler->nodes[i].incarnation) * UINT64_C(0x9e3779b97f4a7c15);
        run_id ^= run_id >> 29;
        scheduler->nodes[i].heard_ms = scheduler->now_ms;
    }
    scheduler->run_id = run_id != 0 ? run_id : 1;
    scheduler->begun = true;
    record_begin(scheduler);
}

void rendezvous_begin_again(Scheduler *scheduler, const ControlWelcome *welcome)
{
    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++) {
        SchedulerNode *const node = &scheduler->nodes[i];

        node->here = node->met = !node->lost;
        node->incarnation = welcome->incarnations[i];
        g_free(node->endpoint);
        node->endpoint = g_strdup(welcome->endpoints[i]);
    }
    rendezvous_begin(scheduler);
}

static void send_welcome(Scheduler *scheduler, uint32_t number)
{
    const uint32_t n_nodes = scheduler->config.n_nodes;
    g_autofree const char **endpoints = g_new(const char *, n_nodes);
    g_autofree uint64_t *incarnations = g_new(uint64_t, n_nodes);

    for (uint32_t i = 0; i < n_nodes; i++) {
        endpoints[i] = scheduler->nodes[i].lost ? "" : scheduler->nodes[i].endpoint;
        incarnations[i] = scheduler->nodes[i].incarnation;
    }
    const Control welcome = {
        .kind = CONTROL_WELCOME,
        .welcome = { .run_id = scheduler->run_id,
                     .n_nodes = n_nodes,
                     .endpoints = endpoints,
                     .incarnations = incarnations },
    };
    scheduler_send_greeting(scheduler, scheduler->nodes[number].asker, &welcome);
}

/* Why another process of a node that is here is refused. (transfer full) */
static char *refuse_another(const SchedulerNode *node, const ControlHello *hello)
{
    const char *const who = text_or(hello->description, "another process");

    if (node->lost)
        return g_strdup_printf("%s; the run goes on without it, and %s came later and is refused",
                               node->loss.text, who);
    return g_strdup_printf("node %u was started twice: %s is in the run, %s came later and is "
                           "refused; if the first one has ended, the run does not know it yet",
                           node->id, text_or(node->description, "one process"), who);
}

/* A valid process says HELLO for a node that is already here. */
static void meet_again(Scheduler *scheduler, uint32_t number, const ControlHello *hello,
                       uint64_t asker)
{
    SchedulerNode *node = &scheduler->nodes[number];

    if (hello->incarnation != node->incarnation) {
        g_autofree char *text = refuse_another(node, hello);

        send_refusal(scheduler, asker, CONTROL_CODE(RUBATO_ERROR_INVALID), text);
        return;
    }
    if (node->lost) {
        send_refusal(scheduler, asker, node->loss.code, node->loss.text);
        return;
    }
    node->heard_ms = scheduler->now_ms;
    node->asker = asker;
    if (scheduler->begun)
        send_welcome(scheduler, number);
}

/* Whether the run cannot begin, or go on, before a process has come. */
static bool is_missing(const SchedulerNode *node)
{
    return !node->here && !node->lost;
}

static void meet(Scheduler *scheduler, uint32_t number, const ControlHello *hello, uint64_t asker)
{
    SchedulerNode *node = &scheduler->nodes[number];

    g_free(node->endpoint);
    g_free(node->description);
    node->asker = asker;
    node->endpoint = g_strdup(hello->endpoints);
    node->description = g_strdup(hello->description);
    node->incarnation = hello->incarnation;
    node->heard_ms = scheduler->now_ms;
    node->here = node->met = true;

    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++)
        if (is_missing(&scheduler->nodes[i]))
            return;
    rendezvous_begin(scheduler);
    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++)
        if (!scheduler->nodes[i].lost)
            send_welcome(scheduler, i);
}

void rendezvous_hello(Scheduler *scheduler, const Control *control, uint16_t version,
                      uint64_t asker)
{
    const ControlHello *const hello = &control->hello;
    const uint32_t number = find_node(scheduler, hello->node_id);
    const bool awaited =
        number < scheduler->config.n_nodes && is_missing(&scheduler->nodes[number]);
    uint32_t code;

    if (scheduler->refusal.code != CONTROL_OK) {
        send_refusal(scheduler, asker, scheduler->refusal.code, scheduler->refusal.text);
        return;
    }
    g_autofree char *fault = find_fault(scheduler, hello, version, number, &code);
    if (fault != NULL) {
        send_refusal(scheduler, asker, code, fault);
        if (awaited) {
            g_free(scheduler->nodes[number].refused);
            scheduler->nodes[number].refused = g_steal_pointer(&fault);
        }
    } else if (awaited) {
        meet(scheduler, number, hello, asker);
    } else if (scheduler_is_absent(scheduler, number)) {
        g_autofree char *text = g_strdup_printf(
            "%s is spare: a process joins the run as it (rubato run --join, RUBATO_JOIN=1)",
            scheduler->nodes[number].label);

        send_refusal(scheduler, asker, CONTROL_CODE(RUBATO_ERROR_INVALID), text);
    } else {
        meet_again(scheduler, number, hello, asker);
    }
}

/* Why the process cannot take the place of the node; NULL: it can. */
static char *find_fault_of_joining(const Scheduler *scheduler, uint32_t number,
                                   const ControlHello *join, uint32_t *code)
{
    const SchedulerNode *const node = &scheduler->nodes[number];
    const char *const who = text_or(join->description, "unknown process");

    *code = CONTROL_CODE(RUBATO_ERROR_INVALID);
    if (!node->lost)
        return g_strdup_printf("%s is in the run (%s) and not lost, so %s cannot take its place",
                               node->label, text_or(node->description, "one process"), who);
    if (admission_knows(scheduler, join->incarnation))
        return g_strdup_printf("%s wants to take the place of %s, but is, or says that it is, a "
                               "process that is or was in the run",
                               who, node->label);
    return NULL;
}

static bool is_busy(const Scheduler *scheduler)
{
    return scheduler->recovers || scheduler->takes_snapshot || collectives_work(scheduler);
}

void rendezvous_admit_own(Scheduler *scheduler)
{
    if (!admission_awaits_own(scheduler) || is_busy(scheduler) || scheduler->ended)
        return;
    admission_begin_own(scheduler);
    recovery_admit(scheduler);
}

/* What an admission waits for. (transfer full) */
static char *find_busy(const Scheduler *scheduler)
{
    g_autoptr(GArray) waits = g_array_new(FALSE, FALSE, sizeof(Wait));
    GString *const text = g_string_new(NULL);

    recovery_add_waits(scheduler, waits);
    snapshots_add_waits(scheduler, waits);
    collectives_add_waits(scheduler, waits);
    for (guint i = 0; i < waits->len; i++) {
        const Wait *const wait = &g_array_index(waits, Wait, i);

        if (i == 0)
            g_string_printf(text, "%s (for %.1f s so far)", wait->text,
                            (double)(scheduler->now_ms - wait->since_ms) / 1e3);
        g_free(wait->text);
    }
    if (text->len == 0)
        g_string_assign(text, "the scheduler's own node joins first");
    return g_string_free(text, FALSE);
}

/* The process asks again, and has to wait as long as it hears this. */
static void send_later(Scheduler *scheduler, uint32_t number, uint64_t asker)
{
    g_autofree char *busy = find_busy(scheduler);
    g_autofree char *text =
        g_strdup_printf("%s joins the run later: %s", scheduler->nodes[number].label, busy);

    scheduler_send_greeting(scheduler, asker,
                            &(Control){ .kind = CONTROL_WAITING, .waiting = { text } });
}

/* Begins the admission if nothing else is under way. If not, the process asks again. */
static void admit(Scheduler *scheduler, uint32_t number, const ControlHello *join, uint64_t asker)
{
    if (is_busy(scheduler) || admission_awaits_own(scheduler)) {
        if (scheduler->takes_snapshot)
            scheduler->put_off_ms = scheduler->now_ms;
        send_later(scheduler, number, asker);
        return;
    }
    if (admission_begin(scheduler, number, join, asker))
        recovery_admit(scheduler);
    else
        send_refusal(scheduler, asker, CONTROL_CODE(RUBATO_ERROR_INVALID),
                     "too many processes have taken the places of others in this run");
}

void rendezvous_join(Scheduler *scheduler, const Control *control, uint16_t version, uint64_t asker)
{
    const ControlHello *const join = &control->hello;
    const uint32_t number = find_node(scheduler, join->node_id);
    Admission *const admission = &scheduler->admission;
    uint32_t code, obstacle_code;
    g_autofree char *fault = find_fault(scheduler, join, version, number, &code);
    const char *const obstacle = admission_find_obstacle(scheduler, &obstacle_code);

    if (scheduler->config.roster != NULL)
        roster_note_joining(scheduler->config.roster, scheduler->now_ms, join->node_id);
    if (fault != NULL) {
        send_refusal(scheduler, asker, code, fault);
    } else if (scheduler->ended) {
        /* Also a process that was to be admitted, or does not know that it is. */
        send_refusal(scheduler, asker, obstacle_code, obstacle);
    } else if (scheduler->nodes[number].serves && !scheduler->nodes[number].lost &&
               scheduler->nodes[number].incarnation == join->incarnation) {
        scheduler->nodes[number].asker = asker;
        admission_answer(scheduler, number);
    } else if (!scheduler->begun && scheduler_is_absent(scheduler, number)) {
        /* it asks again: the run begins soon, or its process gives up */
    } else if (admission->opens && admission->incarnation == join->incarnation) {
        admission->asker = asker; /* it is answered when all have opened links to it */
        send_later(scheduler, number, asker);
    } else if (obstacle != NULL) {
        send_refusal(scheduler, asker, obstacle_code, obstacle);
    } else if ((fault = find_fault_of_joining(scheduler, number, join, &code)) != NULL) {
        send_refusal(scheduler, asker, code, fault);
    } else {
        admit(scheduler, number, join, asker);
    }
}

/* By id, which is the number in a run without a cluster file. (transfer full) */
static bool *list_lost(const Scheduler *scheduler)
{
    bool *const is_lost = g_new(bool, scheduler->config.n_nodes);

    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++)
        is_lost[i] = scheduler->nodes[i].lost;
    return is_lost;
}

/* Before the run begins, only spare nodes are lost: a process that gets their place asks to join
 * until the run has begun. */
void rendezvous_announce(Scheduler *scheduler, const Control *control, uint16_t version,
                         uint64_t asker)
{
    const ControlAnnounce *const announce = &control->announce;
    Roster *const roster = scheduler->config.roster;
    Control answer;
    uint32_t code;

    if (roster == NULL) {
        send_refusal(scheduler, asker, CONTROL_CODE(RUBATO_ERROR_MISMATCH),
                     "the scheduler has a cluster file, and takes only the nodes of it: start this "
                     "process with RUBATO_CLUSTER and RUBATO_NODE in place of RUBATO_ROLE");
        return;
    }
    const char *const obstacle = admission_find_obstacle(scheduler, &code);
    if (obstacle != NULL && scheduler->begun && !roster_knows(roster, announce->incarnation)) {
        send_refusal(scheduler, asker, code, obstacle);
        return;
    }
    g_autofree bool *is_lost = list_lost(scheduler);
    if (!roster_replace(roster, scheduler->now_ms, announce, version, asker, is_lost, &answer))
        roster_hear(roster, scheduler->now_ms, announce, version, asker, &answer);
    scheduler_send_greeting(scheduler, asker, &answer);
}

void rendezvous_farewell(Scheduler *scheduler, const Control *control, uint16_t version,
                         uint64_t asker)
{
    const ControlFarewell *const farewell = &control->farewell;
    const uint32_t number = find_node(scheduler, farewell->node_id);

    (void)version;
    (void)asker; /* it has gone */
    if (scheduler->config.roster != NULL)
        roster_forget(scheduler->config.roster, farewell->incarnation);
    if (scheduler->begun || scheduler->ended || number == scheduler->config.n_nodes)
        return;
    const SchedulerNode *const node = &scheduler->nodes[number];
    if (!node->here || farewell->incarnation != node->incarnation)
        return; /* it is not in the run, or another process is */
    g_autofree char *text = g_strdup_printf("%s ended before the run began: %s", node->label,
                                            text_or(farewell->text, "?"));
    give_up(scheduler, CONTROL_CODE(RUBATO_ERROR_NODE_LOST), text);
}

void rendezvous_stop(Scheduler *scheduler, const char *text)
{
    if (!scheduler->ended)
        give_up(scheduler, CONTROL_CODE(RUBATO_ERROR_CANCELLED), text);
}

void rendezvous_node_gone(Scheduler *scheduler, uint32_t node)
{
    scheduler->nodes[node].here = false;
}

/* Why a process that came for one of the missing nodes was refused; NULL: none was. */
static const char *find_refused(const Scheduler *scheduler)
{
    const char *refused = NULL;

    for (uint32_t i = 0; i < scheduler->config.n_nodes && refused == NULL; i++)
        if (is_missing(&scheduler->nodes[i]))
            refused = scheduler->nodes[i].refused;
    return refused;
}

char *scheduler_missing(const Scheduler *scheduler)
{
    g_autoptr(GArray) missing = g_array_new(FALSE, FALSE, sizeof(uint32_t));

    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++)
        if (is_missing(&scheduler->nodes[i]))
            g_array_append_val(missing, i);
    if (missing->len == 0)
        return NULL;
    return scheduler_name_nodes(scheduler, missing, /* with_heard= */ false);
}

void rendezvous_tick(Scheduler *scheduler)
{
    const SchedulerConfig *config = &scheduler->config;

    assert(!scheduler->begun);
    /* A node that waits for its WELCOME repeats its HELLO. So a node that stops repeating it has
     * died. It may be started again, within as much time as it took to find its death. */
    for (uint32_t i = 0; i < config->n_nodes && config->timeout_ms > 0 && !scheduler->ended; i++) {
        SchedulerNode *const node = &scheduler->nodes[i];
        const int64_t silence_ms = scheduler->now_ms - node->heard_ms;
        if (i == config->self || !node->met || silence_ms < config->timeout_ms)
            continue;
        node->here = false;
        if (silence_ms < 2 * (int64_t)config->timeout_ms)
            continue;
        g_autofree char *lost =
            g_strdup_printf("%s was lost before the run began: nothing heard from it for %.1f s",
                            node->label, (double)silence_ms / 1e3);
        give_up(scheduler, CONTROL_CODE(RUBATO_ERROR_NODE_LOST), lost);
    }
    if (scheduler->ended)
        return;

    if (config->rendezvous_ms == 0 ||
        scheduler->now_ms - scheduler->start_ms < config->rendezvous_ms)
        return;
    g_autofree char *missing = scheduler_missing(scheduler);
    const char *const refused = find_refused(scheduler);
    g_autofree char *text = g_strdup_printf(
        "%s did not come within %.0f s: %s%s", missing != NULL ? missing : "somebody",
        (double)config->rendezvous_ms / 1e3, refused != NULL ? "refused was one, for " : "",
        refused != NULL
            ? refused
            : "start every node of the cluster file, and look at what the missing ones say");
    give_up(scheduler,
            refused != NULL ? CONTROL_CODE(RUBATO_ERROR_MISMATCH)
                            : CONTROL_CODE(RUBATO_ERROR_NODE_LOST),
            text);
}
