/* A call in flight: a worker has asked several servers and waits until the last has answered.
 *
 * The parts of a call are ended by whoever answers: a server's owner, the I/O thread, or the one
 * that cancels. The last one wakes the waiter, or hands the call to `ended`. A call's memory must
 * stay until then, which is why a cancelled call is waited for like any other.
 *
 * Threads: call_end_part from any; the rest from the caller. */
#ifndef RUBATO_IO_NET_CALL_H
#define RUBATO_IO_NET_CALL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "io/net/spinner.h"

typedef enum {
    CALL_OK,
    CALL_CANCELLED, /* the task is over, or was cancelled */
    CALL_REFUSED,   /* the server could not do it: a bad message, an unknown table */
    CALL_NO_MEMORY, /* there was no memory for it, here or on the server */
} CallStatus;

typedef struct Call Call;
struct Call {
    /* Parts not ended yet, plus one that the caller holds while it is still sending. */
    _Atomic uint32_t pending;
    _Atomic uint32_t status;    /* the worst CallStatus of the parts */
    _Atomic uint64_t min_clock; /* the lowest min clock of the answers */
    void (*ended)(
        Call *call);     /* runs on the thread that ends the last part; NULL: wake the waiter */
    _Atomic int bell_fd; /* see call_set_bell */
    bool is_remote;      /* the caller's: a part of it was asked of another node */
    Spinner *spinner;    /* the caller's, for call_wait; NULL: it sleeps soon */
};

void call_begin(Call *call, void (*ended)(Call *call));
void call_add_parts(Call *call, uint32_t n_parts);
void call_end_part(Call *call, CallStatus status, uint64_t min_clock);

/* A part was answered at once, from what was read at that min clock. The caller, before
 * call_sent. */
void call_note_clock(Call *call, uint64_t min_clock);

/* The caller has sent all parts: gives up the part that it held. Only then may others wait for
 * it. */
void call_sent(Call *call);

/* Whether it has ended: what the parts wrote is then visible. */
bool call_has_ended(Call *call);

/* While it is set, ending the last part writes to this eventfd, for a caller that waits for other
 * things as well. False: the call has ended. The caller. */
bool call_set_bell(Call *call, int fd);
void call_clear_bell(Call *call);

/* Waits up to timeout_ms (negative: for ever); whether it has ended. */
bool call_wait(Call *call, int timeout_ms);

#endif
