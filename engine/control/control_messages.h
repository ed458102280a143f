/* The description of each kind of control message: one row of an array.
 *
 * A new message is a kind and what it carries (control.h), a row of the array in
 * control_messages.c, and the function that handles it.
 *
 * Threads: any; the array is constant. The handlers run as scheduler.h and node_messages.h say. */
#ifndef RUBATO_ENGINE_CONTROL_CONTROL_MESSAGES_H
#define RUBATO_ENGINE_CONTROL_CONTROL_MESSAGES_H

#include <rubato/engine.h>

#include "engine/control/control.h"
#include "engine/scheduler/scheduler.h"

/* Who may send a message, as bits. */
typedef enum {
    CONTROL_SENDER_GREETER = 1,   /* a process that greets the scheduler */
    CONTROL_SENDER_ANSWERER = 2,  /* the scheduler, as the answer to a greeting */
    CONTROL_SENDER_NODE = 4,      /* a node of the run, to the scheduler */
    CONTROL_SENDER_SCHEDULER = 8, /* the scheduler, to a node of the run */
    CONTROL_SENDER_PEER = 16,     /* a node of the run, to another one */
} ControlSender;

/* The type of a body's member: how it is encoded, and which checks it must pass. */
typedef enum {
    CONTROL_MEMBER_END, /* no more members */
    CONTROL_MEMBER_BOOL,
    CONTROL_MEMBER_UINT32,
    CONTROL_MEMBER_UINT64,
    CONTROL_MEMBER_CODE,   /* uint32_t: CONTROL_OK or a known code */
    CONTROL_MEMBER_FAULT,  /* uint32_t: a known code, but not CONTROL_OK */
    CONTROL_MEMBER_EPOCH,  /* uint32_t: of a task, not 0 */
    CONTROL_MEMBER_CALL,   /* uint64_t: the number of a collective call, not 0 */
    CONTROL_MEMBER_READER, /* uint32_t: below CONTROL_MAX_READERS */
    CONTROL_MEMBER_TEXT,
    CONTROL_MEMBER_LINES,
    CONTROL_MEMBER_ENDPOINT,
    CONTROL_MEMBER_FILE,
    CONTROL_MEMBER_NODES, /* the lists of a WELCOME with their length */
    CONTROL_MEMBER_END_OF_TYPES,
} ControlMemberType;

typedef struct {
    ControlMemberType type;
    size_t offset; /* in Control */
} ControlMember;

typedef struct {
    const char *name;
    unsigned senders;             /* of ControlSender */
    const ControlMember *members; /* its members in the order of the bytes; NULL: it has none */

    /* What is wrong with a message whose members are each valid; NULL if nothing is. This function
     * may be NULL too. */
    const char *(*find_fault)(const Control *control);

    /* Called when the scheduler gets the message in a greeting: see scheduler_greet. */
    void (*to_rendezvous)(Scheduler *scheduler, const Control *control, uint16_t version,
                          uint64_t asker);

    /* Called when the scheduler gets the message from a node of the run. Returns whether it made
     * sense. */
    bool (*to_scheduler)(Scheduler *scheduler, uint32_t node, const Control *control);

    /* Called when a node gets the message from the node `from`, or in an answer to its greeting.
     * NULL: the message only shows that its sender lives. */
    void (*to_node)(RubatoEngine *engine, uint32_t from, const Control *control);
} ControlMessage;

/* By kind. The row of an unknown kind has no name. */
extern const ControlMessage control_messages[CONTROL_END_OF_KINDS];

/* Whether a message between a node and the scheduler is one of those that must not be forgotten:
 * both count these. The others say what is true at that time alone. */
bool control_message_counts(ControlKind kind);

/* The row of a kind; NULL for an unknown kind. */
const ControlMessage *control_message(ControlKind kind);

#endif
