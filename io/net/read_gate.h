/* A gate for threads that read an actor's state beside its owner.
 *
 * To own an actor or to share it is to write to its token, whose cache line then goes from one
 * processor to another. A reader that passes the gate writes to a seat alone, which threads seldom
 * have in common. While the gate is open, an owner changes what readers read by single atomic
 * stores only. Before it changes anything in another way, it closes the gate.
 *
 * Threads: read_gate_open and read_gate_close from those that keep others from being the owner; the
 * rest any. */
#ifndef RUBATO_IO_NET_READ_GATE_H
#define RUBATO_IO_NET_READ_GATE_H

#include <glib.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "io/net/futex.h"

#define READ_GATE_SEATS 8u

typedef struct {
    _Alignas(64) _Atomic uint32_t n; /* readers that have it */
} ReadSeat;

typedef struct {
    _Alignas(64) _Atomic uint32_t is_open; /* seldom changes, so each processor's cache has it */
    ReadSeat seats[READ_GATE_SEATS];
} ReadGate;

void read_gate_init(ReadGate *gate); /* closed */

/* The caller sees all that others have changed before, and so do those who find the gate open. */
static inline void read_gate_open(ReadGate *gate)
{
    /* release: to the load in read_gate_is_open */
    atomic_store_explicit(&gate->is_open, 1, memory_order_release);
}

/* Waits until no reader is inside. That comes, because a reader waits for nothing there. */
void read_gate_close_slowly(ReadGate *gate);

static inline void read_gate_close(ReadGate *gate)
{
    /* relaxed: whoever opened it kept others from being the owner, so this one sees it */
    if (G_UNLIKELY(atomic_load_explicit(&gate->is_open, memory_order_relaxed) != 0))
        read_gate_close_slowly(gate);
}

static inline bool read_gate_is_open(const ReadGate *gate)
{
    /* acquire: with the store in read_gate_open; seq_cst: against that of read_gate_close_slowly */
    return atomic_load_explicit(&gate->is_open, memory_order_seq_cst) != 0;
}

static inline void read_gate_leave(ReadGate *gate, uint32_t reader)
{
    ReadSeat *const seat = &gate->seats[reader % READ_GATE_SEATS];

    /* release: to the load of read_gate_close_slowly; seq_cst: against it, see read_gate.c */
    atomic_fetch_sub_explicit(&seat->n, 1, memory_order_seq_cst);
    if (G_UNLIKELY(!read_gate_is_open(gate))) /* somebody closes it, and may wait for the seat */
        futex_wake(&seat->n, 1);
}

/* Whether the reader is inside now. */
static inline bool read_gate_enter(ReadGate *gate, uint32_t reader)
{
    ReadSeat *const seat = &gate->seats[reader % READ_GATE_SEATS];

    /* relaxed: a hint, which spares those who find it closed the rest */
    if (atomic_load_explicit(&gate->is_open, memory_order_relaxed) == 0)
        return false;
    /* seq_cst: against the load of read_gate_close_slowly, see read_gate.c */
    atomic_fetch_add_explicit(&seat->n, 1, memory_order_seq_cst);
    if (G_LIKELY(read_gate_is_open(gate)))
        return true;
    read_gate_leave(gate, reader);
    return false;
}

#endif
