/* What goes to the journal, and messages for nodes that have to come back.
 *
 * Threads: as scheduler.h. */
#ifndef RUBATO_ENGINE_SCHEDULER_JOURNAL_SCHEDULER_RECORD_H
#define RUBATO_ENGINE_SCHEDULER_JOURNAL_SCHEDULER_RECORD_H

#include "engine/scheduler/scheduler_state.h"

/* Before what follows from it is delivered: a message of a node, a greeting, the loss of a node, a
 * worker's failure whose cause is not told (the task fails with it), a tick from which something
 * followed, the nodes of the run that begins, readers that were restored, and the process that goes
 * on as the scheduler. Nothing while the journal is replayed. */
void record_message(Scheduler *scheduler, uint32_t node, const Control *control);
void record_greeting(Scheduler *scheduler, const Control *greeting, uint16_t version,
                     uint64_t asker);
void record_gone(Scheduler *scheduler, uint32_t node, const char *text);
void record_effect(Scheduler *scheduler, uint32_t epoch);
void record_tick(Scheduler *scheduler);
void record_begin(Scheduler *scheduler);
void record_readers(Scheduler *scheduler, GHashTable *readers);
void record_process(Scheduler *scheduler, const SchedulerProcess *process);

/* The journal begins anew, with the state. If that is not possible, it goes on as it is. */
void record_state(Scheduler *scheduler, const void *state, size_t size);

/* What a record says. */
typedef enum {
    RECORD_MESSAGE = 1,
    RECORD_GREETING,
    RECORD_GONE,
    RECORD_EFFECT,
    RECORD_TICK,
    RECORD_BEGIN,
    RECORD_READERS,
    RECORD_PROCESS,
    RECORD_STATE, /* in the place of all records before it: the first one, if there is one */
} RecordKind;
typedef struct {
    RecordKind kind;
    int64_t now_ms;
    uint64_t asker;
    uint32_t node; /* of an EFFECT: the epoch */
    uint16_t version;
    Control control;   /* of MESSAGE, GREETING, BEGIN (a WELCOME) and PROCESS (a JOIN) */
    const char *text;  /* of a GONE; borrowed, as the next one is */
    const char *names; /* of READERS: pairs of a name and a text, each with a zero byte behind */
    size_t names_bytes;
    const void *state; /* of a STATE: borrowed, too */
    size_t state_bytes;
} Record;

/* Whether it makes sense. control_clear frees its message. */
bool record_read(const void *bytes, size_t size, Record *record);

/* A message is about to leave. False: it is held, or the process that it is for has ended. */
bool record_lets_go(Scheduler *scheduler, uint32_t node, const Control *control);

/* The node has had so many of the messages to it. */
void record_was_heard(SchedulerNode *node, uint64_t n);

/* Another process has the node's place: nothing was sent to it yet. */
void record_forget_sent(SchedulerNode *node);

#endif
