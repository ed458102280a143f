/* A call: a worker has asked several servers and waits until the last has answered.
 *
 * The thread that answers a part of a call ends it: a server's owner, the I/O thread, or the thread
 * that cancels. The last one hands the call to `ended`, if it has that, and wakes the waiter, if
 * there is one. A call's memory must stay until then. So the caller waits for a cancelled call like
 * for any other.
 *
 * Threads: call_join_part, call_end_part, call_end_parts and call_note_mover from any; the rest
 * from the caller, which adds no parts itself where others join. */
#ifndef RUBATO_IO_NET_CALL_H
#define RUBATO_IO_NET_CALL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "io/net/spinner.h"

typedef enum {
    CALL_OK,
    CALL_FAILED,    /* the handler that was called failed: its answer says why */
    CALL_CANCELLED, /* the task has ended, or was cancelled */
    CALL_REFUSED,   /* the server refused it: a bad message, an unknown table */
    CALL_NO_MEMORY, /* there was no memory for it, here or on the server */
    CALL_MOVED,     /* the server does not have the part: ask again by the present map */
} CallStatus;

typedef struct Call Call;
struct Call {
    /* Parts not ended yet, plus one that the caller holds while it sends. */
    _Atomic uint32_t pending;
    _Atomic uint32_t status;    /* the worst CallStatus of the parts */
    _Atomic uint64_t min_clock; /* the lowest min clock of the answers */
    _Atomic uint32_t mover;     /* if the status is CALL_MOVED: the number of a node that said so,
                                 * or, with CALL_MOVER_LOST, was lost before it answered */
    void (*ended)(Call *call);  /* runs on the thread that ends the last part; may be NULL */
    _Atomic int bell_fd;        /* see call_set_bell */
    bool is_remote;             /* the caller's: another node was asked for a part */
    Spinner *spinner;           /* the caller's, for call_wait; NULL: sleep soon */
};

void call_begin(Call *call, void (*ended)(Call *call));
void call_add_parts(Call *call, uint32_t n_parts);

/* One more part, which another thread than the caller may add. The caller's own has not ended. */
void call_join_part(Call *call);

void call_end_part(Call *call, CallStatus status, uint64_t min_clock);

/* The same for so many parts at once, of which one at least. */
void call_end_parts(Call *call, uint32_t n_parts, CallStatus status, uint64_t min_clock);

#define CALL_MOVER_LOST 0x80000000u

/* A node has answered CALL_MOVED, or was lost (see `mover`). Before call_end_part. */
void call_note_mover(Call *call, uint32_t node);

/* A part was answered at once, from rows read at that min clock. The caller, before call_sent. */
void call_note_clock(Call *call, uint64_t min_clock);

/* The caller has sent all parts: ends the part that it held. Other threads may wait for the call
 * only after this. */
void call_sent(Call *call);

/* Whether the call has ended. If so, what the parts wrote is visible. */
bool call_has_ended(Call *call);

/* While the bell is set, the end of the last part writes to this eventfd, for a caller that also
 * waits for other events. False: the call has ended. The caller. */
bool call_set_bell(Call *call, int fd);
void call_clear_bell(Call *call);

/* Waits up to timeout_ms (negative: for ever). Returns whether the call has ended. */
bool call_wait(Call *call, int timeout_ms);

#endif
