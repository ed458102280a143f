/* The gate for readers beside an owner.
 *
 * A reader adds to its seat, then loads `is_open`. Who closes the gate stores `is_open`, then loads
 * the seats. All four are sequentially consistent, so one of the two sees the other: either the
 * reader finds the gate closed, and leaves, or it is waited for. In the same way a reader that
 * leaves changes its seat and then loads `is_open`: either its change has been seen, or it wakes
 * who waits. */
#include "io/net/read_gate.h"

#include <sched.h>

/* How often who closes it yields to a reader before it sleeps. */
enum { YIELDS = 16 };

void read_gate_init(ReadGate *gate)
{
    atomic_init(&gate->is_open, 0);
    for (unsigned i = 0; i < READ_GATE_SEATS; i++)
        atomic_init(&gate->seats[i].n, 0);
}

static void wait_for_seat(ReadSeat *seat)
{
    uint32_t n_looks = 0, n;

    /* acquire: with read_gate_leave, so that the reader has read before anything changes */
    while ((n = atomic_load_explicit(&seat->n, memory_order_seq_cst)) != 0)
        if (n_looks++ < YIELDS)
            sched_yield();
        else
            futex_wait(&seat->n, n, -1);
}

void read_gate_close_slowly(ReadGate *gate)
{
    atomic_store_explicit(&gate->is_open, 0, memory_order_seq_cst);
    for (unsigned i = 0; i < READ_GATE_SEATS; i++)
        wait_for_seat(&gate->seats[i]);
}
