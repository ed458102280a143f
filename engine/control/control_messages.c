/* The control messages: one row for each.
 *
 * Runs on any thread. The functions depend on their arguments only. */
#include "engine/control/control_messages.h"

#include <stddef.h>

#include "engine/control/long_handlers.h"
#include "engine/control/node_messages.h"
#include "engine/scheduler/data/scheduler_data.h"
#include "engine/scheduler/journal/scheduler_resume.h"
#include "engine/scheduler/recovery/scheduler_drain.h"
#include "engine/scheduler/recovery/scheduler_recovery.h"
#include "engine/scheduler/rendezvous/scheduler_rendezvous.h"
#include "engine/scheduler/scheduler_collective.h"
#include "engine/scheduler/scheduler_snapshot.h"
#include "engine/scheduler/scheduler_state.h"
#include "engine/scheduler/scheduler_task.h"
#include "engine/scheduler/scheduler_waits.h"
#include "engine/scheduler/tensors/scheduler_tensors.h"

/* ---- what each kind carries ---- */

#define MEMBER(type, member)                             \
    {                                                    \
        CONTROL_MEMBER_##type, offsetof(Control, member) \
    }
#define END                   \
    {                         \
        CONTROL_MEMBER_END, 0 \
    }

static const ControlMember hello[] = {
    MEMBER(UINT32, hello.node_id),     MEMBER(UINT32, hello.number),
    MEMBER(UINT64, hello.incarnation), MEMBER(TEXT, hello.digest),
    MEMBER(ENDPOINT, hello.endpoints), MEMBER(TEXT, hello.description),
    MEMBER(LINES, hello.registered),   END
};
static const ControlMember welcome[] = { MEMBER(UINT64, welcome.run_id), MEMBER(NODES, welcome),
                                         END };
static const ControlMember admitted[] = { MEMBER(UINT64, welcome.run_id), MEMBER(NODES, welcome),
                                          MEMBER(UINT64, welcome.counted_from),
                                          MEMBER(UINT32, welcome.n_before), END };
static const ControlMember refuse[] = { MEMBER(FAULT, refuse.code), MEMBER(TEXT, refuse.text),
                                        END };
static const ControlMember farewell[] = { MEMBER(UINT32, farewell.node_id),
                                          MEMBER(UINT64, farewell.incarnation),
                                          MEMBER(TEXT, farewell.text), END };
static const ControlMember propose[] = { MEMBER(CALL, propose.call),
                                         MEMBER(UINT32, propose.what),
                                         MEMBER(UINT64, propose.hash_seed),
                                         MEMBER(TEXT, propose.name),
                                         MEMBER(TEXT, propose.digest),
                                         MEMBER(LINES, propose.arguments),
                                         MEMBER(LINES, propose.workers),
                                         MEMBER(FILE, propose.told),
                                         MEMBER(BOOL, propose.survives),
                                         MEMBER(UINT32, propose.replace_ms),
                                         END };
static const ControlMember go[] = { MEMBER(CALL, go.call),
                                    MEMBER(UINT64, go.hash_seed),
                                    MEMBER(UINT32, go.id),
                                    MEMBER(UINT32, go.step),
                                    MEMBER(UINT32, go.what),
                                    MEMBER(FILE, go.told),
                                    END };
static const ControlMember call_end[] = { MEMBER(CALL, commit.call),
                                          MEMBER(CODE, commit.outcome.code),
                                          MEMBER(TEXT, commit.outcome.text), END };
static const ControlMember past[] = {
    MEMBER(CALL, past.call),         MEMBER(UINT32, past.id),         MEMBER(BOOL, past.goes_on),
    MEMBER(CODE, past.outcome.code), MEMBER(TEXT, past.outcome.text), MEMBER(CODE, past.end.code),
    MEMBER(TEXT, past.end.text),     MEMBER(FILE, past.told),         END
};
static const ControlMember caught_up[] = { MEMBER(UINT32, caught_up.number),
                                           MEMBER(LINES, caught_up.lines), END };
static const ControlMember task[] = { MEMBER(EPOCH, task_done.epoch), END };
static const ControlMember task_fault[] = { MEMBER(EPOCH, fail.epoch),
                                            MEMBER(FAULT, fail.outcome.code),
                                            MEMBER(TEXT, fail.outcome.text), END };
static const ControlMember task_end[] = { MEMBER(EPOCH, task_end.epoch),
                                          MEMBER(CODE, task_end.outcome.code),
                                          MEMBER(TEXT, task_end.outcome.text), END };
static const ControlMember barrier[] = { MEMBER(EPOCH, arrive.epoch), MEMBER(UINT64, arrive.round),
                                         MEMBER(BOOL, arrive.has_calls),
                                         MEMBER(LINES, arrive.clocks), END };
static const ControlMember waits[] = {
    MEMBER(EPOCH, waits.epoch),     MEMBER(UINT32, waits.rank),
    MEMBER(UINT32, waits.what),     MEMBER(UINT64, waits.round),
    MEMBER(UINT32, waits.table),    MEMBER(UINT64, waits.clock),
    MEMBER(TEXT, waits.table_name), MEMBER(LINES, waits.own_clocks),
    MEMBER(FILE, waits.asked),      END
};
static const ControlMember made[] = { MEMBER(UINT32, made.server), MEMBER(UINT32, made.n),
                                      MEMBER(UINT32, made.n_missing), END };
static const ControlMember drain[] = { MEMBER(UINT64, drain.number),
                                       MEMBER(UINT32, drain.node_id),
                                       MEMBER(BOOL, drain.ends),
                                       MEMBER(BOOL, drain.goes_on),
                                       MEMBER(CODE, drain.outcome.code),
                                       MEMBER(TEXT, drain.outcome.text),
                                       END };
static const ControlMember runs[] = { MEMBER(UINT32, runs.server), MEMBER(TEXT, runs.handler),
                                      END };
static const ControlMember reader[] = {
    MEMBER(EPOCH, reader.epoch),      MEMBER(READER, reader.reader),
    MEMBER(UINT32, reader.n_epochs),  MEMBER(BOOL, reader.is_dynamic),
    MEMBER(BOOL, reader.is_shuffled), MEMBER(UINT64, reader.seed),
    MEMBER(TEXT, reader.kept_as),     MEMBER(TEXT, reader.description),
    MEMBER(TEXT, reader.digest),      END
};
static const ControlMember inputs[] = { MEMBER(EPOCH, inputs.epoch), MEMBER(READER, inputs.reader),
                                        MEMBER(UINT32, inputs.first), MEMBER(LINES, inputs.lines),
                                        END };
static const ControlMember want[] = { MEMBER(EPOCH, want.epoch),
                                      MEMBER(READER, want.reader),
                                      MEMBER(UINT32, want.n_blocks),
                                      MEMBER(LINES, want.events),
                                      MEMBER(UINT32, want.worker),
                                      MEMBER(BOOL, want.ends),
                                      END };
static const ControlMember blocks[] = {
    MEMBER(EPOCH, blocks.epoch),   MEMBER(READER, blocks.reader), MEMBER(BOOL, blocks.is_last),
    MEMBER(LINES, blocks.tickets), MEMBER(UINT32, blocks.worker), END
};
static const ControlMember tensors[] = { MEMBER(EPOCH, enqueue.epoch), MEMBER(FILE, enqueue.lines),
                                         END };
static const ControlMember lost[] = { MEMBER(UINT32, lost.number), MEMBER(TEXT, lost.text),
                                      MEMBER(UINT64, lost.incarnation), END };
static const ControlMember text[] = { MEMBER(TEXT, waiting.text), END };
static const ControlMember beat[] = { MEMBER(UINT64, beat.n_taken), END };
static const ControlMember resume[] = { MEMBER(UINT32, resume.node_id),
                                        MEMBER(UINT64, resume.incarnation),
                                        MEMBER(UINT64, resume.run_id),
                                        MEMBER(UINT64, resume.scheduler), END };
static const ControlMember resumed[] = {
    MEMBER(UINT64, resumed.incarnation),  MEMBER(UINT64, resumed.scheduler),
    MEMBER(UINT64, resumed.counted_from), MEMBER(ENDPOINT, resumed.endpoints),
    MEMBER(UINT64, resumed.n_taken),      MEMBER(CODE, resumed.outcome.code),
    MEMBER(TEXT, resumed.outcome.text),   END,
};
static const ControlMember back[] = { MEMBER(UINT64, back.n_taken), END };

static const ControlMember recover[] = {
    MEMBER(UINT32, recover.map),         MEMBER(UINT32, recover.step),
    MEMBER(UINT32, recover.node),        MEMBER(UINT32, recover.cause),
    MEMBER(TEXT, recover.text),          MEMBER(FILE, recover.lines),
    MEMBER(UINT64, recover.incarnation), MEMBER(UINT64, recover.counted_from),
    MEMBER(ENDPOINT, recover.endpoints), END
};

static const ControlMember snapshot[] = {
    MEMBER(CALL, snapshot.number),
    MEMBER(UINT32, snapshot.step),
    MEMBER(UINT32, snapshot.asker),
    MEMBER(UINT64, snapshot.asked),
    MEMBER(UINT32, snapshot.epoch),
    MEMBER(UINT64, snapshot.seed),
    MEMBER(UINT64, snapshot.written),
    MEMBER(CODE, snapshot.outcome.code),
    MEMBER(TEXT, snapshot.outcome.text),
    MEMBER(FILE, snapshot.spec),
    END,
};

static const ControlMember announce[] = {
    MEMBER(UINT64, announce.incarnation), MEMBER(UINT32, announce.role),
    MEMBER(UINT32, announce.servers),     MEMBER(UINT32, announce.workers),
    MEMBER(UINT32, announce.wanted_id),   MEMBER(ENDPOINT, announce.host),
    MEMBER(TEXT, announce.description),   END
};
static const ControlMember place[] = {
    MEMBER(UINT64, place.incarnation), MEMBER(UINT32, place.node_id), MEMBER(TEXT, place.missing),
    MEMBER(FILE, place.file),          MEMBER(BOOL, place.joins),     END
};

/* ---- what is wrong with a whole message ---- */

static const char *find_fault_of_hello(const Control *control)
{
    return control->hello.endpoints[0] == '\0' ? "does not say where its sender receives" : NULL;
}

static const char *find_fault_of_welcome(const Control *control)
{
    return control->welcome.n_nodes == 0 ? "welcomes to a run without nodes" : NULL;
}

static const char *find_fault_of_go(const Control *control)
{
    return control->go.step < CONTROL_STEP_END ? NULL : "GO is for no step of a call";
}

static const char *find_fault_of_recover(const Control *control)
{
    if (control->recover.step >= CONTROL_RECOVER_END)
        return "is for no step after a node's loss";
    return control->recover.cause < CONTROL_CAUSE_END ? NULL : "is for no reason";
}

static const char *find_fault_of_snapshot(const Control *control)
{
    return control->snapshot.step < CONTROL_STEP_END ? NULL : "is for no step of a snapshot";
}

static const char *find_fault_of_propose(const Control *control)
{
    const ControlCall what = control->propose.what;

    return what < CONTROL_CALL_CREATE || what >= CONTROL_CALL_END
               ? "proposes a call that there is not"
               : NULL;
}

static const char *find_fault_of_waits(const Control *control)
{
    const ControlWait what = control->waits.what;

    if (what < CONTROL_WAIT_BARRIER || what >= CONTROL_WAIT_END)
        return "waits for what there is not";
    return control->waits.rank >= CONTROL_MAX_WORKERS ? "is of more workers than can be" : NULL;
}

static const char *find_fault_of_announce(const Control *control)
{
    const ControlRole role = control->announce.role;

    if (role < CONTROL_ROLE_SERVER || role >= CONTROL_ROLE_END)
        return "announces a role that there is not";
    return control->announce.host[0] == '\0' ? "does not say where its sender receives" : NULL;
}

/* ---- the array ---- */

const ControlMessage control_messages[CONTROL_END_OF_KINDS] = {
    [CONTROL_HELLO] = { .name = "HELLO",
                        .senders = CONTROL_SENDER_GREETER,
                        .members = hello,
                        .find_fault = find_fault_of_hello,
                        .to_rendezvous = rendezvous_hello },
    [CONTROL_WELCOME] = { .name = "WELCOME",
                          .senders = CONTROL_SENDER_ANSWERER,
                          .members = welcome,
                          .find_fault = find_fault_of_welcome,
                          .to_node = node_hears_welcome },
    [CONTROL_REFUSE] = { .name = "REFUSE",
                         .senders = CONTROL_SENDER_ANSWERER,
                         .members = refuse,
                         .to_node = node_hears_refuse },
    [CONTROL_FAREWELL] = { .name = "FAREWELL",
                           .senders = CONTROL_SENDER_GREETER,
                           .members = farewell,
                           .to_rendezvous = rendezvous_farewell },
    [CONTROL_BEAT] = { .name = "BEAT",
                       .senders = CONTROL_SENDER_NODE | CONTROL_SENDER_SCHEDULER,
                       .members = beat,
                       .to_scheduler = scheduler_hears_beat,
                       .to_node = node_hears_beat },

    [CONTROL_MADE] = { .name = "MADE",
                       .senders = CONTROL_SENDER_NODE | CONTROL_SENDER_SCHEDULER,
                       .members = made,
                       .to_scheduler = scheduler_hears_made,
                       .to_node = node_hears_made },
    [CONTROL_RUNS] = { .name = "RUNS",
                       .senders = CONTROL_SENDER_NODE | CONTROL_SENDER_SCHEDULER,
                       .members = runs,
                       .to_scheduler = scheduler_hears_runs,
                       .to_node = node_hears_runs },

    [CONTROL_PROPOSE] = { .name = "PROPOSE",
                          .senders = CONTROL_SENDER_NODE,
                          .members = propose,
                          .find_fault = find_fault_of_propose,
                          .to_scheduler = collective_propose },
    [CONTROL_READY] = { .name = "READY",
                        .senders = CONTROL_SENDER_NODE,
                        .members = call_end,
                        .to_scheduler = collective_ready },
    [CONTROL_FAIL] = { .name = "FAIL",
                       .senders = CONTROL_SENDER_NODE,
                       .members = task_fault,
                       .to_scheduler = task_fail },
    [CONTROL_TASK_DONE] = { .name = "TASK_DONE",
                            .senders = CONTROL_SENDER_NODE,
                            .members = task,
                            .to_scheduler = task_done },
    [CONTROL_ARRIVE] = { .name = "ARRIVE",
                         .senders = CONTROL_SENDER_NODE,
                         .members = barrier,
                         .to_scheduler = task_arrive },
    [CONTROL_WAITS] = { .name = "WAITS",
                        .senders = CONTROL_SENDER_NODE,
                        .members = waits,
                        .find_fault = find_fault_of_waits,
                        .to_scheduler = task_waits },
    [CONTROL_READER] = { .name = "READER",
                         .senders = CONTROL_SENDER_NODE,
                         .members = reader,
                         .to_scheduler = data_reader },
    [CONTROL_INPUTS] = { .name = "INPUTS",
                         .senders = CONTROL_SENDER_NODE,
                         .members = inputs,
                         .to_scheduler = data_inputs },
    [CONTROL_WANT] = { .name = "WANT",
                       .senders = CONTROL_SENDER_NODE,
                       .members = want,
                       .to_scheduler = data_want },
    [CONTROL_ENQUEUE] = { .name = "ENQUEUE",
                          .senders = CONTROL_SENDER_NODE,
                          .members = tensors,
                          .to_scheduler = tensors_enqueue },
    [CONTROL_INTERRUPT] = { .name = "INTERRUPT",
                            .senders = CONTROL_SENDER_NODE,
                            .members = text,
                            .to_scheduler = scheduler_hears_interrupt },
    [CONTROL_STOP] = { .name = "STOP",
                       .senders = CONTROL_SENDER_NODE,
                       .members = text,
                       .to_scheduler = scheduler_hears_stop },
    [CONTROL_LEAVE] = { .name = "LEAVE",
                        .senders = CONTROL_SENDER_NODE,
                        .to_scheduler = scheduler_hears_leave },
    [CONTROL_BROKEN] = { .name = "BROKEN",
                         .senders = CONTROL_SENDER_NODE,
                         .members = lost,
                         .to_scheduler = scheduler_hears_broken },

    [CONTROL_GO] = { .name = "GO",
                     .senders = CONTROL_SENDER_SCHEDULER,
                     .members = go,
                     .find_fault = find_fault_of_go,
                     .to_node = node_hears_go },
    [CONTROL_COMMIT] = { .name = "COMMIT",
                         .senders = CONTROL_SENDER_SCHEDULER,
                         .members = call_end,
                         .to_node = node_hears_commit },
    [CONTROL_PAST] = { .name = "PAST",
                       .senders = CONTROL_SENDER_SCHEDULER,
                       .members = past,
                       .to_node = node_hears_past },
    [CONTROL_CAUGHT_UP] = { .name = "CAUGHT_UP",
                            .senders = CONTROL_SENDER_SCHEDULER,
                            .members = caught_up,
                            .to_node = node_hears_caught_up },
    [CONTROL_CANCEL] = { .name = "CANCEL",
                         .senders = CONTROL_SENDER_SCHEDULER,
                         .members = task_fault,
                         .to_node = node_hears_cancel },
    [CONTROL_TASK_END] = { .name = "TASK_END",
                           .senders = CONTROL_SENDER_SCHEDULER,
                           .members = task_end,
                           .to_node = node_hears_task_end },
    [CONTROL_RELEASE] = { .name = "RELEASE",
                          .senders = CONTROL_SENDER_SCHEDULER,
                          .members = barrier,
                          .to_node = node_hears_release },
    [CONTROL_BLOCKS] = { .name = "BLOCKS",
                         .senders = CONTROL_SENDER_SCHEDULER,
                         .members = blocks,
                         .to_node = node_hears_blocks },
    [CONTROL_DECIDE] = { .name = "DECIDE",
                         .senders = CONTROL_SENDER_SCHEDULER,
                         .members = tensors,
                         .to_node = node_hears_decide },
    [CONTROL_LOST] = { .name = "LOST",
                       .senders = CONTROL_SENDER_SCHEDULER | CONTROL_SENDER_PEER,
                       .members = lost,
                       .to_node = node_hears_lost },
    [CONTROL_WAITING] = { .name = "WAITING",
                          .senders = CONTROL_SENDER_SCHEDULER | CONTROL_SENDER_ANSWERER,
                          .members = text,
                          .to_node = node_hears_waiting },
    [CONTROL_LEFT] = { .name = "LEFT",
                       .senders = CONTROL_SENDER_SCHEDULER,
                       .to_node = node_hears_left },

    [CONTROL_ANNOUNCE] = { .name = "ANNOUNCE",
                           .senders = CONTROL_SENDER_GREETER,
                           .members = announce,
                           .find_fault = find_fault_of_announce,
                           .to_rendezvous = rendezvous_announce },
    [CONTROL_PLACE] = { .name = "PLACE",
                        .senders = CONTROL_SENDER_ANSWERER,
                        .members = place,
                        .to_node = node_hears_place },

    [CONTROL_RECOVER] = { .name = "RECOVER",
                          .senders = CONTROL_SENDER_SCHEDULER,
                          .members = recover,
                          .find_fault = find_fault_of_recover,
                          .to_node = node_hears_recover },
    [CONTROL_RECOVERED] = { .name = "RECOVERED",
                            .senders = CONTROL_SENDER_NODE,
                            .members = recover,
                            .find_fault = find_fault_of_recover,
                            .to_scheduler = recovery_hears_done },

    [CONTROL_JOIN] = { .name = "JOIN",
                       .senders = CONTROL_SENDER_GREETER,
                       .members = hello,
                       .find_fault = find_fault_of_hello,
                       .to_rendezvous = rendezvous_join },
    [CONTROL_ADMITTED] = { .name = "ADMITTED",
                           .senders = CONTROL_SENDER_ANSWERER,
                           .members = admitted,
                           .find_fault = find_fault_of_welcome,
                           .to_node = node_hears_admitted },

    [CONTROL_DRAIN] = { .name = "DRAIN",
                        .senders = CONTROL_SENDER_NODE | CONTROL_SENDER_GREETER,
                        .members = drain,
                        .to_scheduler = drain_hears_ask,
                        .to_rendezvous = rendezvous_drain },
    [CONTROL_DRAINED] = { .name = "DRAINED",
                          .senders = CONTROL_SENDER_SCHEDULER | CONTROL_SENDER_ANSWERER,
                          .members = drain,
                          .to_node = node_hears_drained },

    [CONTROL_RESUME] = { .name = "RESUME",
                         .senders = CONTROL_SENDER_GREETER,
                         .members = resume,
                         .to_rendezvous = resume_greet },
    [CONTROL_RESUMED] = { .name = "RESUMED",
                          .senders = CONTROL_SENDER_ANSWERER,
                          .members = resumed },
    [CONTROL_BACK] = { .name = "BACK",
                       .senders = CONTROL_SENDER_NODE,
                       .members = back,
                       .to_scheduler = resume_hears_back },

    [CONTROL_SNAPSHOT_ASK] = { .name = "SNAPSHOT_ASK",
                               .senders = CONTROL_SENDER_NODE,
                               .members = snapshot,
                               .find_fault = find_fault_of_snapshot,
                               .to_scheduler = snapshots_hear_ask },
    [CONTROL_SNAPSHOT_STEP] = { .name = "SNAPSHOT_STEP",
                                .senders = CONTROL_SENDER_SCHEDULER,
                                .members = snapshot,
                                .find_fault = find_fault_of_snapshot,
                                .to_node = node_hears_snapshot_step },
    [CONTROL_SNAPSHOT_DONE] = { .name = "SNAPSHOT_DONE",
                                .senders = CONTROL_SENDER_NODE,
                                .members = snapshot,
                                .find_fault = find_fault_of_snapshot,
                                .to_scheduler = snapshots_hear_done },
    [CONTROL_SNAPSHOT_END] = { .name = "SNAPSHOT_END",
                               .senders = CONTROL_SENDER_SCHEDULER,
                               .members = snapshot,
                               .find_fault = find_fault_of_snapshot,
                               .to_node = node_hears_snapshot_end },
};

/* Kinds that carry the same members share one description of them: the union gives them the same
 * layout. */
#define SAME_PLACE(one, other) G_STATIC_ASSERT(offsetof(Control, one) == offsetof(Control, other))

SAME_PLACE(ready, commit);
SAME_PLACE(fail, cancel);
SAME_PLACE(fail, task_end);
SAME_PLACE(arrive, release);
SAME_PLACE(interrupt, waiting);
SAME_PLACE(stop, waiting);
SAME_PLACE(enqueue, decide);
SAME_PLACE(broken, lost);

bool control_message_counts(ControlKind kind)
{
    return kind != CONTROL_BEAT && kind != CONTROL_WAITING && kind != CONTROL_BACK;
}

const ControlMessage *control_message(ControlKind kind)
{
    const unsigned number = (unsigned)kind;

    return number < CONTROL_END_OF_KINDS && control_messages[number].name != NULL
               ? &control_messages[number]
               : NULL;
}
