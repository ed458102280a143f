/* Calls: a count of unanswered parts, and a futex for the waiter.
 *
 * The count's decrement releases what the part wrote (rows, status, min clock) to the waiter's
 * acquire in call_has_ended. The waiter sets a bit in the same word before it sleeps. So the thread
 * that ends the last part knows from its own decrement whether it must wake the waiter. After that
 * decrement it uses only the call's address, because the call's memory may be freed. */
#include "io/net/call.h"

#include "io/net/monotonic.h"

#define SLEEPING 0x80000000u
#define BELL 0x40000000u
#define FLAGS (SLEEPING | BELL)

/* A wake-up costs more than a short answer, so the waiter looks for a while before it sleeps. */
enum { SPINS = 64 };

void call_begin(Call *call, void (*ended)(Call *call))
{
    atomic_init(&call->pending, 1);
    atomic_init(&call->status, CALL_OK);
    atomic_init(&call->min_clock, UINT64_MAX);
    atomic_init(&call->bell_fd, -1);
    call->ended = ended;
    call->is_remote = false;
    call->spinner = NULL;
}

/* While the caller's part is the only one, no other thread changes the count, so no locked
 * instruction is needed: no part is under way, and no thread waits before the call is sent.
 * Acquire: pairs with the decrements of the parts that have ended. */
static bool is_callers_alone(const Call *call)
{
    return atomic_load_explicit(&call->pending, memory_order_acquire) == 1;
}

void call_add_parts(Call *call, uint32_t n_parts)
{
    if (is_callers_alone(call)) {
        atomic_store_explicit(&call->pending, 1 + n_parts, memory_order_relaxed);
        return;
    }
    /* relaxed: a part can end only after it is sent, and sending orders the two */
    atomic_fetch_add_explicit(&call->pending, n_parts, memory_order_relaxed);
}

void call_join_part(Call *call)
{
    /* relaxed: as above; and what makes the caller end its own part orders that behind this */
    atomic_fetch_add_explicit(&call->pending, 1, memory_order_relaxed);
}

static inline void ring(int bell_fd)
{
    const uint64_t one = 1;

    if (bell_fd != -1)
        (void)!write(bell_fd, &one, sizeof one); /* fails if it is already written */
}

/* The call has ended, and may be gone once `ended` has it. Of its own, so that calls without
 * `ended` keep nothing over this one. */
static __attribute__((noinline)) void hand_over(Call *call, void (*ended)(Call *), uint32_t before,
                                                int bell_fd)
{
    ended(call);
    if ((before & SLEEPING) != 0)
        futex_wake(&call->pending, 1);
    ring(bell_fd);
}

/* The call may be freed after the decrement. So this reads before it what it needs after it. The
 * values are right, because the exchange succeeds only if the flags have not changed since. */
static inline void end_parts(Call *call, uint32_t n_parts)
{
    void (*const ended)(Call *) = call->ended;
    /* acquire, also if the exchange fails: pairs with call_set_bell's release, for the
     * descriptor */
    uint32_t before = atomic_load_explicit(&call->pending, memory_order_acquire);
    int bell_fd;

    do
        bell_fd =
            (before & BELL) != 0 ? atomic_load_explicit(&call->bell_fd, memory_order_relaxed) : -1;
    while (!atomic_compare_exchange_weak_explicit(&call->pending, &before, before - n_parts,
                                                  memory_order_acq_rel, memory_order_acquire));
    if ((before & ~FLAGS) != n_parts)
        return;
    if (ended != NULL) {
        hand_over(call, ended, before, bell_fd);
        return;
    }
    if ((before & SLEEPING) != 0)
        futex_wake(&call->pending, 1);
    ring(bell_fd);
}

/* Relaxed: a thread that reads it has seen the call end, which orders it. */
void call_note_clock(Call *call, uint64_t min_clock)
{
    uint64_t lowest = atomic_load_explicit(&call->min_clock, memory_order_relaxed);

    while (min_clock < lowest &&
           !atomic_compare_exchange_weak_explicit(&call->min_clock, &lowest, min_clock,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

/* Relaxed: as above. */
void call_note_mover(Call *call, uint32_t node)
{
    atomic_store_explicit(&call->mover, node, memory_order_relaxed);
}

static inline void note_end(Call *call, CallStatus status, uint64_t min_clock)
{
    uint32_t worst = atomic_load_explicit(&call->status, memory_order_relaxed);

    while ((uint32_t)status > worst &&
           !atomic_compare_exchange_weak_explicit(&call->status, &worst, (uint32_t)status,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
    call_note_clock(call, min_clock);
}

void call_end_part(Call *call, CallStatus status, uint64_t min_clock)
{
    note_end(call, status, min_clock);
    end_parts(call, 1);
}

void call_end_parts(Call *call, uint32_t n_parts, CallStatus status, uint64_t min_clock)
{
    note_end(call, status, min_clock);
    end_parts(call, n_parts);
}

void call_sent(Call *call)
{
    void (*const ended)(Call *) = call->ended;

    if (!is_callers_alone(call)) {
        end_parts(call, 1);
        return;
    }
    /* release: pairs with call_has_ended, so that what the parts wrote is seen */
    atomic_store_explicit(&call->pending, 0, memory_order_release);
    if (ended != NULL)
        ended(call);
}

bool call_has_ended(Call *call)
{
    /* acquire: with the decrements, for what the parts wrote */
    return (atomic_load_explicit(&call->pending, memory_order_acquire) & ~FLAGS) == 0;
}

bool call_set_bell(Call *call, int fd)
{
    atomic_store_explicit(&call->bell_fd, fd, memory_order_relaxed);
    /* Release: a thread that sees the flag sees the descriptor. Acquire: if the call has ended, its
     * rows are seen. */
    return (atomic_fetch_or_explicit(&call->pending, BELL, memory_order_acq_rel) & ~FLAGS) != 0;
}

void call_clear_bell(Call *call)
{
    /* Relaxed: the caller learns nothing from it. A thread that still reads the flag writes to the
     * eventfd without effect. */
    atomic_fetch_and_explicit(&call->pending, ~BELL, memory_order_relaxed);
}

static bool look(Call *call, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        if (call_has_ended(call))
            return true;
        spin_pause();
    }
    return false;
}

/* Does not look for answers of other nodes: the thread that receives them needs the processor. */
static bool look_longer(Call *call)
{
    SpinnerEnd end;

    if (call->spinner == NULL || call->is_remote || !spinner_begin(call->spinner, &end))
        return false;
    do
        if (look(call, call->spinner->n_looks)) {
            spinner_found(call->spinner);
            return true;
        }
    while (spinner_go_on(call->spinner, &end));
    return false;
}

bool call_wait(Call *call, int timeout_ms)
{
    int64_t deadline_ms;

    if (look(call, call->spinner == NULL ? SPINS : 2 * call->spinner->n_looks) || look_longer(call))
        return true;
    deadline_ms = timeout_ms < 0 ? INT64_MAX : monotonic_ms() + timeout_ms;
    for (;;) {
        /* acquire: as in call_has_ended */
        uint32_t pending = atomic_fetch_or_explicit(&call->pending, SLEEPING, memory_order_acquire);
        const int64_t left_ms = timeout_ms < 0 ? -1 : deadline_ms - monotonic_ms();

        if ((pending & ~FLAGS) == 0)
            return true;
        if (timeout_ms >= 0 && left_ms <= 0)
            return false;
        futex_wait(&call->pending, pending | SLEEPING, (int)left_ms);
    }
}
