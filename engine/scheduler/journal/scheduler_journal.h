/* What the scheduler must remember, so that another process can go on as it.
 *
 * The scheduler's state follows from what it is told, in its order. So it writes that down, each
 * time before anybody hears what follows from it: one record for each message, and for each
 * decision that depends on the time. Who reads the records from the first one on has the same
 * state, and knows what nodes were sent. When there are many of them, the state itself takes their
 * place, as one record: so a journal is as large as that, whatever the run has done.
 *
 * This is where other places for it come in. A file of the host (engine/join/journal_file.h) is
 * enough for a process that is started again there. A scheduler that moves to another host needs a
 * store on which several hosts agree, such as etcd: the same functions, in which `add` also fails
 * once another process has added something.
 *
 * Threads: one at a time. */
#ifndef RUBATO_ENGINE_SCHEDULER_JOURNAL_SCHEDULER_JOURNAL_H
#define RUBATO_ENGINE_SCHEDULER_JOURNAL_SCHEDULER_JOURNAL_H

#include <rubato/error.h>
#include <stdbool.h>
#include <stddef.h>

/* Takes a record. False: it makes no sense, and nothing follows it. */
typedef bool (*SchedulerRecordFunc)(void *user, const void *record, size_t size);

typedef struct {
    /* Adds a record behind all others. It is there when this returns, whatever becomes of the
     * process. May block, as a write to a file does. False: it could not be added, and the journal
     * is of no use from here on; the function has said why. */
    bool (*add)(void *user, const void *record, size_t size);

    /* Hands over all records, the oldest first. False with an error: they cannot be read. */
    bool (*read)(void *user, SchedulerRecordFunc take, void *taker, GError **error);

    /* All records so far are forgotten, and this one is the only one: a process that ends at any
     * time leaves the one or the other. False: nothing has changed, and the function has said why.
     * NULL: the journal only grows. */
    bool (*begin_again)(void *user, const void *record, size_t size);

    uint64_t kept_bytes; /* it begins anew when the records behind the first one have as many, and
                          * twice as many as that one; 0: with each tick */

    void *user; /* outlives the scheduler */
} SchedulerJournal;

#endif
