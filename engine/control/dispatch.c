/* Where control messages go: to the scheduler if it runs on this node, and to this node itself.
 *
 * All of them pass through one actor without a thread. So the scheduler and this node's reactions
 * run one at a time, on the thread that brings a message: the I/O thread, or a worker that reports
 * its end. A message sent from inside a reaction is queued and handled after that reaction. Nothing
 * in this file blocks.
 *
 * The thread that receives from other nodes (the I/O thread, or a worker that waits) hands
 * requests, replies and clocks straight to the post office. */
#include <string.h>

#include "engine/control/control_messages.h"
#include "engine/control/long_handlers.h"
#include "engine/engine_private.h"
#include "engine/join/resume.h"
#include "engine/task/task_run.h"
#include "models/registry.h"

typedef enum {
    MAIL_TO_SCHEDULER,
    MAIL_TO_NODE,
    MAIL_GREETING,
    MAIL_TICK,
    MAIL_LOOK,
} MailKind;

/* The asker of this node's own greeting, which does not use the network. */
#define ASKER_SELF ((uint64_t)0)

/* How a node was lost whose address refuses connections. */
#define NODE_ENDED "nobody listens at its address any more, so its process has ended"

enum { REFUSED_MS = 1000 }; /* at most, between two lines that say who was refused */
enum { MISSING_MS = 5000 }; /* at most, between two lines in the log that say who has not come */

/* Somebody wants to see the scheduler's state, and waits for it. */
typedef struct {
    void (*look)(Scheduler *scheduler, int64_t now_ms, void *user);
    void *user;
    Call call;
} Look;

typedef struct {
    Message message; /* first: the actor's handler finds it */
    MailKind kind;
    uint32_t from;         /* node number */
    uint16_t wire_version; /* of a greeting */
    bool is_answer;        /* of a greeting: it answers one that this node sent */
    uint64_t asker;        /* of a greeting: the way back; ASKER_SELF */
    Look *look;            /* of a MAIL_LOOK; on its asker's stack */
    Control control;
} ControlMail;

static void end_mail(Message *message)
{
    ControlMail *mail = (ControlMail *)message;

    control_clear(&mail->control);
    g_free(mail);
}

static ControlMail *new_mail(MailKind kind, uint32_t from)
{
    ControlMail *mail = g_new0(ControlMail, 1);

    mail->message.end = end_mail;
    mail->kind = kind;
    mail->from = from;
    return mail;
}

static RubatoEngine *engine_of_control(Actor *actor)
{
    return (RubatoEngine *)((char *)actor - offsetof(RubatoEngine, control));
}

/* ---- sending ---- */

/* Others would wait for ever for a message that was not sent. */
static void send_body(RubatoEngine *engine, uint32_t node, const GByteArray *body)
{
    Frame *frame = frame_new(&(WireHeader){ .kind = MESSAGE_CONTROL, .value_bytes = body->len });

    if (frame == NULL)
        g_error("no memory for a control message; the node ends here");
    memcpy(frame_values(frame), body->data, body->len);
    network_send(engine->network, node, frame);
}

static void send_to_node(RubatoEngine *engine, uint32_t node, const Control *control)
{
    g_autoptr(GByteArray) body = control_encode(control);

    send_body(engine, node, body);
}

static void send_to_scheduler(void *user, const GByteArray *body)
{
    RubatoEngine *engine = user;

    send_body(engine, engine->scheduler_node, body);
}

void dispatch_say_last_word(RubatoEngine *engine, uint32_t node, const char *text)
{
    send_to_node(engine, node,
                 &(Control){ .kind = CONTROL_LOST, .lost = { .number = node, .text = text } });
}

void engine_tell_scheduler(RubatoEngine *engine, const Control *control)
{
    ControlMail *mail;

    if (engine->scheduler_node != engine->self) {
        unheard_say(&engine->unheard, control);
        return;
    }
    mail = new_mail(MAIL_TO_SCHEDULER, engine->self);
    control_copy(&mail->control, control);
    actor_post(&engine->control, &mail->message);
}

/* The actor handles its mails in their order and waits for nothing, so this ends. */
void dispatch_look_at_scheduler(RubatoEngine *engine,
                                void (*look)(Scheduler *scheduler, int64_t now_ms, void *user),
                                void *user)
{
    ControlMail *const mail = new_mail(MAIL_LOOK, engine->self);
    Look asked = { .look = look, .user = user };

    call_begin(&asked.call, NULL);
    call_add_parts(&asked.call, 1);
    mail->look = &asked;
    actor_post(&engine->control, &mail->message);
    call_sent(&asked.call);
    call_wait(&asked.call, -1);
}

void dispatch_greet(RubatoEngine *engine, const char *scheduler, const Control *greeting)
{
    g_autoptr(GError) error = NULL;

    if (engine->self != engine->scheduler_node) {
        g_autoptr(GVariant) body = control_greeting(greeting);

        if (!network_greet(engine->network, scheduler, body, &error))
            g_warning("cannot greet the scheduler: %s", error->message);
        return;
    }
    ControlMail *const mail = new_mail(MAIL_GREETING, engine->self);
    mail->wire_version = WIRE_VERSION;
    mail->asker = ASKER_SELF;
    control_copy(&mail->control, greeting);
    actor_post(&engine->control, &mail->message);
}

/* ---- the actor ---- */

static void handle_for_node(RubatoEngine *engine, uint32_t from, const Control *control)
{
    const ControlMessage *const message = control_message(control->kind);

    if (message->to_node != NULL)
        message->to_node(engine, from, control);
}

/* Before the run has begun: logs which nodes the scheduler waits for. */
static void say_missing(RubatoEngine *engine, int64_t now_ms)
{
    g_autofree char *missing = NULL;

    if (engine->times.missed_ms == 0)
        engine->times.missed_ms = now_ms;
    if (engine->rendezvous.welcome ||
        now_ms - engine->times.missed_ms < MIN(engine->stall_ms, MISSING_MS))
        return;
    engine->times.missed_ms = now_ms;
    missing = scheduler_missing(engine->scheduler);
    if (missing != NULL && !scheduler_has_ended(engine->scheduler))
        g_message("the run begins once all are here; missing: %s", missing);
}

/* An answer is accepted if this node has asked, a HELLO if the scheduler is here. Returns whether
 * the greeting made sense. */
static bool take_greeting(RubatoEngine *engine, const ControlMail *mail, int64_t now_ms)
{
    if (mail->is_answer) {
        const bool may =
            (control_message(mail->control.kind)->senders & CONTROL_SENDER_ANSWERER) != 0;

        if (may)
            handle_for_node(engine, engine->self, &mail->control);
        return may;
    }
    if (engine->scheduler == NULL)
        return false;
    if (mail->control.kind == CONTROL_RESUME && !engine->rendezvous.welcome)
        return true; /* it asks again */
    const bool is_sensible =
        scheduler_greet(engine->scheduler, now_ms, &mail->control, mail->wire_version, mail->asker);
    SchedulerLink link;

    if (is_sensible && mail->control.kind == CONTROL_RESUME &&
        scheduler_opens_link(engine->scheduler, &mail->control, &link))
        resume_open_link(engine, &link);
    return is_sensible;
}

/* A loss is known as soon as the node's process has ended, and not only by its silence. That holds
 * also for a process that has ended before this node was connected to it: each listens before it
 * greets the scheduler, and there are links only to those that have. What a process said before it
 * ended is handled first: its connection is read to the end before another one is tried. */
static void find_ended(RubatoEngine *engine, int64_t now_ms)
{
    for (uint32_t i = 0; engine->rendezvous.welcome && i < engine->n_nodes; i++)
        if (i != engine->self && network_is_refused(engine->network, i))
            scheduler_node_gone(engine->scheduler, now_ms, i, NODE_ENDED);
}

/* Workers of all nodes would wait for what is dropped of an ENQUEUE: so its node counts as lost. */
static void handle_for_scheduler(RubatoEngine *engine, const ControlMail *mail, int64_t now_ms)
{
    if (scheduler_receive(engine->scheduler, now_ms, mail->from, &mail->control))
        return;
    g_warning("node %u sent a %s that makes no sense; dropped", engine->node_ids[mail->from],
              control_kind_name(mail->control.kind));
    if (mail->control.kind == CONTROL_ENQUEUE && mail->from != engine->self)
        scheduler_node_gone(engine->scheduler, now_ms, mail->from,
                            "it sent an ENQUEUE that makes no sense");
}

static void handle(Actor *actor, Message *message)
{
    RubatoEngine *engine = engine_of_control(actor);
    ControlMail *mail = (ControlMail *)message;
    const int64_t now_ms = network_now_ms();

    switch (mail->kind) {
    case MAIL_TO_NODE:
        handle_for_node(engine, mail->from, &mail->control);
        break;
    case MAIL_TO_SCHEDULER:
        handle_for_scheduler(engine, mail, now_ms);
        break;
    case MAIL_GREETING:
        if (!take_greeting(engine, mail, now_ms))
            g_warning("a greeting that makes no sense came; dropped");
        break;
    case MAIL_TICK:
        say_missing(engine, now_ms);
        find_ended(engine, now_ms);
        for (uint32_t i = 0; engine->rendezvous.welcome && i < engine->n_nodes; i++)
            if (i != engine->self)
                scheduler_heard(engine->scheduler, i, network_heard_ms(engine->network, i));
        scheduler_tick(engine->scheduler, now_ms);
        break;
    case MAIL_LOOK:
        mail->look->look(engine->scheduler, now_ms, mail->look->user);
        call_end_part(&mail->look->call, CALL_OK, 0);
        break;
    }
    actor_answer(actor, message);
}

void dispatch_init(RubatoEngine *engine)
{
    actor_init(&engine->control, handle, NULL);
    unheard_init(&engine->unheard, send_to_scheduler, engine);
}

/* ---- the scheduler's output ---- */

static void scheduler_sends(void *user, uint32_t node, const Control *control)
{
    RubatoEngine *engine = user;

    if (node == engine->self)
        handle_for_node(engine, engine->self, control);
    else
        send_to_node(engine, node, control);
}

static void scheduler_greets(void *user, uint64_t asker, const Control *control)
{
    RubatoEngine *engine = user;
    const int64_t now_ms = network_now_ms();
    g_autoptr(GError) error = NULL;

    if (asker == ASKER_SELF) {
        handle_for_node(engine, engine->self, control);
        return;
    }
    if (control->kind == CONTROL_REFUSE && now_ms - engine->times.refused_ms >= REFUSED_MS &&
        refusals_are_new(&engine->refusals, control->refuse.text)) {
        engine->times.refused_ms = now_ms;
        g_warning("refused a greeting: %s", control->refuse.text);
    }
    g_autoptr(GVariant) body = control_greeting(control);
    if (!network_answer(engine->network, asker, body, &error))
        g_warning("cannot answer a greeting: %s", error->message);
}

static bool go_on_as_scheduler(RubatoEngine *engine, GError **error)
{
    g_autofree char *description =
        g_strdup_printf("%s process %ld", g_get_host_name(), (long)getpid());

    return scheduler_resume(engine->scheduler, network_now_ms(),
                            &(SchedulerProcess){ .incarnation = engine->incarnation,
                                                 .endpoints = engine->addresses,
                                                 .description = description },
                            error);
}

bool dispatch_start_scheduler(RubatoEngine *engine, GError **error)
{
    static const SchedulerOutput output = { scheduler_sends, scheduler_greets };
    const bool single = engine->cluster == NULL;
    g_autofree char *registered = registry_describe();
    g_autofree bool *is_spare = g_new0(bool, engine->n_nodes);
    const SchedulerConfig config = {
        .n_nodes = engine->n_nodes,
        .self = engine->self,
        .node_ids = engine->node_ids,
        .node_names = (const char *const *)engine->node_names,
        .is_spare = is_spare,
        .digest = single ? "" : engine->cluster->digest,
        .registered = registered,
        .wire_version = WIRE_VERSION,
        .heartbeat_ms = single ? 0 : engine->heartbeat_ms,
        .timeout_ms = single ? 0 : engine->silence_ms,
        .rendezvous_ms = single ? 0 : engine->cluster->rendezvous_ms,
        .stall_ms = single ? 0 : engine->stall_ms,
        .roster = engine->roster,
        .single = single,
        .admits = !single,
        .journal = engine->journal.add != NULL ? &engine->journal : NULL,
    };

    for (uint32_t i = 0; i < engine->n_nodes; i++)
        is_spare[i] = !single && engine->cluster->nodes[i].spare;
    engine->scheduler = scheduler_new(&config, &output, engine);
    return config.journal == NULL || engine->serving == NULL || go_on_as_scheduler(engine, error);
}

/* ---- the network's events, one at a time: see NetworkHandler ---- */

/* Finds the addressee of a message from another node. False if that node may not send it here. */
static bool find_addressee(const RubatoEngine *engine, ControlMail *mail)
{
    const ControlMessage *const message = control_message(mail->control.kind);
    const bool has_scheduler = engine->scheduler_node == engine->self;
    const bool is_schedulers = engine->scheduler_node == mail->from;

    mail->kind = has_scheduler && (message->senders & CONTROL_SENDER_NODE) ? MAIL_TO_SCHEDULER
                                                                           : MAIL_TO_NODE;
    return mail->kind == MAIL_TO_SCHEDULER ||
           (is_schedulers && (message->senders & CONTROL_SENDER_SCHEDULER));
}

static void tell_broken(RubatoEngine *engine, uint32_t node, uint64_t incarnation, const char *text)
{
    engine_tell_scheduler(
        engine, &(Control){ .kind = CONTROL_BROKEN, .broken = { node, text, incarnation } });
}

/* The scheduler's node is lost to this one. This node's last words may still reach it: then the
 * scheduler ends the run for all others, too. */
static void lose_scheduler(RubatoEngine *engine, const char *how)
{
    const uint32_t node = engine->scheduler_node;
    g_autofree char *name = engine_node_text(engine, node);
    g_autofree char *text =
        g_strdup_printf("%s, where the scheduler runs, was lost: %s", name, how);
    bool left;

    pthread_mutex_lock(&engine->lock);
    left = engine->left || engine->scheduler_lost;
    if (!left)
        engine->scheduler_lost = true;
    if (!left)
        engine_note_loss(engine, node, text);
    pthread_mutex_unlock(&engine->lock);
    if (left)
        return;
    tell_broken(engine, node, network_incarnation(engine->network, node), how);
    network_forget(engine->network, node);
    engine_break(engine, CONTROL_CODE(RUBATO_ERROR_NODE_LOST), text);
}

/* Another node sends what makes no sense: the scheduler calls it lost. */
static void broken(void *user, uint32_t node, uint64_t incarnation, const char *text)
{
    RubatoEngine *engine = user;

    g_warning("node %u is broken: %s", engine->node_ids[node], text);
    if (node == engine->scheduler_node)
        lose_scheduler(engine, text);
    else
        tell_broken(engine, node, incarnation, text);
}

/* The bytes came as they were sent, so the node itself has made them wrong. A thread that waits for
 * the right message would wait for ever. */
static void receive_nonsense(RubatoEngine *engine, uint32_t node, const char *what)
{
    g_autofree char *text = g_strdup_printf("it sent %s", what);

    network_give_up(engine->network, node, text);
}

/* The kinds that do not count are not counted by the other side either.
 *
 * relaxed: a helper may receive while the I/O thread's heartbeat tells the number. That a message
 * counts a moment before it is posted loses nothing: this process handles it, whatever becomes of
 * the scheduler. */
static void count_heard(RubatoEngine *engine, const ControlMail *mail)
{
    if (mail->from == engine->scheduler_node && control_message_counts(mail->control.kind))
        atomic_fetch_add_explicit(&engine->n_heard, 1, memory_order_relaxed);
}

static void send_beat(RubatoEngine *engine)
{
    const uint64_t n_heard = atomic_load_explicit(&engine->n_heard, memory_order_relaxed);

    engine_tell_scheduler(engine, &(Control){ .kind = CONTROL_BEAT, .beat = { n_heard } });
}

static void receive_control(RubatoEngine *engine, Incoming *incoming)
{
    ControlMail *mail = new_mail(MAIL_TO_NODE, incoming->node);
    g_autoptr(GError) error = NULL;
    g_autofree char *wrong = NULL;

    if (!control_decode(incoming->values, incoming->value_bytes, &mail->control, &error))
        wrong = g_strdup_printf("a control message that cannot be read (%s)", error->message);
    else if (!find_addressee(engine, mail))
        wrong = g_strdup_printf("a %s, which it may not send to this node",
                                control_kind_name(mail->control.kind));
    incoming_free(incoming);
    if (wrong == NULL) {
        count_heard(engine, mail);
        actor_post(&engine->control, &mail->message);
        return;
    }
    receive_nonsense(engine, mail->from, wrong);
    end_mail(&mail->message);
}

/* Data messages end here: they take no lock of the engine, and wait for no control message. */
static void receive(void *user, Incoming *incoming)
{
    RubatoEngine *engine = user;
    const uint32_t node = incoming->node;

    if (incoming->header.kind == MESSAGE_CONTROL) {
        receive_control(engine, incoming);
        return;
    }
    const MessageKind kind = incoming->header.kind;
    const char *const wrong = kind == MESSAGE_SERVICE ? services_receive(engine->services, incoming)
                              : kind == MESSAGE_TENSOR
                                  ? tensor_router_receive(engine->tensors, incoming)
                                  : post_office_receive(&engine->office, incoming);
    if (wrong != NULL)
        receive_nonsense(engine, node, wrong);
}

static bool takes_more(void *user)
{
    return post_office_takes_more(&((const RubatoEngine *)user)->office);
}

static void received(void *user)
{
    post_office_end_batch(&((RubatoEngine *)user)->office);
}

/* Here, since the link can be replaced in this call alone. */
static void hear_resumed(RubatoEngine *engine, ControlMail *mail)
{
    if (mail->is_answer && engine->self != engine->scheduler_node &&
        mail->wire_version == WIRE_VERSION) {
        g_autofree char *over = resume_hear(engine, &mail->control.resumed);

        if (over != NULL)
            lose_scheduler(engine, over);
    } else {
        g_warning("a greeting that makes no sense came; dropped");
    }
    end_mail(&mail->message);
}

static void greeted(void *user, uint16_t version, GVariant *body, const GreetingSource *source)
{
    RubatoEngine *engine = user;
    ControlMail *mail = new_mail(MAIL_GREETING, engine->self);
    g_autoptr(GError) error = NULL;

    mail->wire_version = version;
    mail->is_answer = source->is_answer;
    mail->asker = source->asker;
    if (control_decode_greeting(body, &mail->control, &error)) {
        if (mail->control.kind != CONTROL_RESUMED)
            actor_post(&engine->control, &mail->message);
        else
            hear_resumed(engine, mail);
        return;
    }
    g_warning("a greeting from %s cannot be read (%s); dropped", source->address, error->message);
    end_mail(&mail->message);
}

/* The scheduler tells a node which nodes are lost. A node finds the loss of the scheduler's own
 * node by its silence. */
static void check_scheduler(RubatoEngine *engine, int64_t now_ms)
{
    const int64_t heard_ms = network_heard_ms(engine->network, engine->scheduler_node);
    const int64_t silent_ms = now_ms - MAX(heard_ms, engine->times.silent_since_ms);

    if (silent_ms < engine->silence_ms)
        return;
    g_autofree char *how =
        g_strdup_printf("nothing heard from it for %.1f s", (double)silent_ms / 1000);
    lose_scheduler(engine, how);
}

/* A node that lives sends heartbeats, which are messages in their order. This is for one of which
 * only packets without messages come. */
static void check_progress(RubatoEngine *engine, uint32_t node, int64_t now_ms)
{
    const int64_t advanced_ms = network_advanced_ms(engine->network, node);
    const int64_t still_ms = now_ms - MAX(advanced_ms, engine->times.resumed_ms);

    if (still_ms < 2 * (int64_t)engine->silence_ms)
        return;
    g_autofree char *text = g_strdup_printf("it acknowledges what comes, but has sent no heartbeat "
                                            "for %.1f s",
                                            (double)still_ms / 1000);
    network_give_up(engine->network, node, text);
}

/* A node that was itself stopped cannot tell whether others were silent: it has not yet read what
 * they sent in that time. So that time does not count as their silence. */
static void leave_out_pause(RubatoEngine *engine, int64_t now_ms)
{
    DispatchTimes *const times = &engine->times;
    const int64_t pause_ms = times->tick_ms != 0 ? now_ms - times->tick_ms : 0;

    times->tick_ms = now_ms;
    if (pause_ms <= scheduler_longest_tick_ms(engine->heartbeat_ms, engine->timeout_ms))
        return;
    const int64_t heard_ms = network_heard_ms(engine->network, engine->scheduler_node);
    times->silent_since_ms = MIN(MAX(times->silent_since_ms, heard_ms) + pause_ms, now_ms);
    if (pause_ms <= engine->timeout_ms / 2)
        return;
    times->resumed_ms = now_ms;
    g_message("node %u stood still for %.1f s, which do not count as the silence of others",
              engine->id, (double)pause_ms / 1000);
}

/* A scheduler's new process has no link to a node that has ended before it came back, so the others
 * say what their links show. After a timeout such a node is lost in any case. */
static void tell_ended(RubatoEngine *engine, int64_t now_ms)
{
    const int64_t back_ms = atomic_load_explicit(&engine->back_ms, memory_order_relaxed);

    if (back_ms == 0 || now_ms - back_ms > 2 * (int64_t)engine->silence_ms)
        return;
    for (uint32_t i = 0; i < engine->n_nodes; i++) {
        if (i == engine->self || i == engine->scheduler_node ||
            !network_is_refused(engine->network, i) ||
            engine->told_ended[i] == network_incarnation(engine->network, i))
            continue;
        engine->told_ended[i] = network_incarnation(engine->network, i);
        tell_broken(engine, i, engine->told_ended[i], NODE_ENDED);
    }
}

static void tick(void *user, int64_t now_ms)
{
    RubatoEngine *engine = user;
    bool welcome, beats;

    leave_out_pause(engine, now_ms);
    pthread_mutex_lock(&engine->lock);
    welcome = engine->rendezvous.welcome;
    /* Once all have left, the scheduler may be gone, and acknowledge no heartbeat. */
    beats = welcome && !engine->left && now_ms - engine->times.beat_ms >= engine->heartbeat_ms;
    if (beats)
        for (guint i = 0; i < engine->runs->len; i++)
            task_run_tell_news(g_ptr_array_index(engine->runs, i));
    pthread_mutex_unlock(&engine->lock);
    if (beats)
        long_handlers_look(engine, engine_tell_scheduler);
    if (engine->scheduler_node == engine->self)
        actor_post(&engine->control, &new_mail(MAIL_TICK, engine->self)->message);
    if (!welcome)
        return;
    tensor_router_tick(engine->tensors);
    if (beats) {
        engine->times.beat_ms = now_ms;
        if (engine->scheduler_node != engine->self)
            send_beat(engine);
    }
    for (uint32_t i = 0; i < engine->n_nodes; i++)
        if (i != engine->self &&
            (i == engine->scheduler_node || engine->scheduler_node == engine->self))
            check_progress(engine, i, now_ms);
    if (engine->scheduler_node != engine->self) {
        resume_look(engine, now_ms);
        tell_ended(engine, now_ms);
        check_scheduler(engine, now_ms);
    }
}

static bool begin_direct(void *user, uint32_t node, const WireHeader *header, const void *first,
                         DirectRead *direct)
{
    RubatoEngine *engine = user;

    return header->kind == MESSAGE_TENSOR
               ? tensor_router_begin_direct(engine->tensors, node, header, first, direct)
               : post_office_begin_direct(&engine->office, node, header, direct);
}

static void end_direct(void *user, DirectRead *direct)
{
    RubatoEngine *engine = user;

    if (direct->is_piece)
        tensor_router_end_direct(engine->tensors, direct);
    else
        post_office_end_direct(&engine->office, direct);
}

const NetworkHandler dispatch_network_handler = {
    .receive = receive,
    .takes_more = takes_more,
    .received = received,
    .greeted = greeted,
    .broken = broken,
    .begin_direct = begin_direct,
    .end_direct = end_direct,
    .tick = tick,
};

/* ---- the end ---- */

void engine_break(RubatoEngine *engine, uint32_t code, const char *text)
{
    pthread_mutex_lock(&engine->lock);
    Network *const network = engine->network; /* it may be created a moment later */
    if (engine->broken_text == NULL) {
        engine->broken_text = g_strdup(text);
        engine->broken_code = code;
    }
    /* seq_cst: before the sweep below; see cancel_if_late in tables/client/client.c */
    atomic_store_explicit(&engine->broken, true, memory_order_seq_cst);
    atomic_store_explicit(&engine->is_over, true, memory_order_relaxed); /* it is asked again */
    post_office_end(&engine->office); /* before servers answer that a task is cancelled */
    for (guint i = 0; i < engine->runs->len; i++) {
        task_run_cancel(g_ptr_array_index(engine->runs, i), code, text);
        if (engine->scheduler_lost || engine->left) /* no other node will say so */
            task_run_end(g_ptr_array_index(engine->runs, i), code, text);
    }
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->lock);
    post_office_cancel(&engine->office, POST_OFFICE_ALL_EPOCHS);
    /* relaxed: a server without parts with replicas has nothing to end */
    if (atomic_load_explicit(&engine->office.goes_on, memory_order_relaxed))
        servers_post_end_feeds(engine->servers, engine->n_servers);
    services_break(engine->services, code, text);
    snapshot_asks_break(&engine->snapshot_asks, code, text);
    if (network != NULL)
        network_wake_waiters(network);
}
