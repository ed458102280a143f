/* Calls: a waiting thread is woken and sees what every part has written; no thread touches a call
 * that has ended. */
#include "io/net/call.h"
#include "tests/weak/cases.h"

enum { PARTS = 2 };

static Call call;
static uint64_t rows[PARTS]; /* plain: written by the parts, read by who has seen the call end */
static _Atomic uint32_t has_ended;
static int bell;

static void *answer(void *part)
{
    const uintptr_t i = (uintptr_t)part;

    rows[i] = i + 1;
    call_end_part(&call, i == 1 ? CALL_REFUSED : CALL_OK, 10 + i);
    return NULL;
}

static unsigned start(uintptr_t part)
{
    return weak_start(part == 0 ? "part 0" : "part 1", answer, (void *)part);
}

static void begin(void (*ended)(Call *call))
{
    for (unsigned i = 0; i < PARTS; i++)
        rows[i] = 0;
    atomic_init(&has_ended, 0);
    call_begin(&call, ended);
}

/* The first `n` parts have been answered. */
static void check_rows(unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        weak_expect(rows[i] == i + 1);
    weak_expect(atomic_load_explicit(&call.min_clock, memory_order_relaxed) == 10);
    weak_expect(atomic_load_explicit(&call.status, memory_order_relaxed) ==
                (n == 2 ? CALL_REFUSED : CALL_OK));
}

/* The call's memory is the caller's again: this is a race if another thread still uses it. */
static void reuse(void)
{
    call_begin(&call, NULL);
    for (unsigned i = 0; i < PARTS; i++)
        rows[i] = 0;
}

static void waited_for(void)
{
    begin(NULL);
    call_add_parts(&call, PARTS);
    const unsigned first = start(0), second = start(1);
    call_sent(&call);
    weak_expect(call_wait(&call, -1));
    check_rows(PARTS);
    reuse();
    weak_join(first);
    weak_join(second);
}

/* The second part is added when the first may have ended already. */
static void parts_one_by_one(void)
{
    begin(NULL);
    call_add_parts(&call, 1);
    const unsigned first = start(0);
    call_add_parts(&call, 1);
    const unsigned second = start(1);
    call_sent(&call);
    weak_expect(call_wait(&call, -1));
    check_rows(PARTS);
    reuse();
    weak_join(first);
    weak_join(second);
}

static void take_rows(Call *ended)
{
    (void)ended;
    check_rows(PARTS);
    reuse();
    atomic_store_explicit(&has_ended, 1, memory_order_relaxed);
    futex_wake(&has_ended, 1);
}

/* The thread that ends the last part, or the caller, sees what the others have written. */
static void handed_over(void)
{
    begin(take_rows);
    call_add_parts(&call, PARTS);
    const unsigned first = start(0), second = start(1);
    call_sent(&call);
    while (atomic_load_explicit(&has_ended, memory_order_relaxed) == 0)
        futex_wait(&has_ended, 0, -1);
    weak_join(first);
    weak_join(second);
}

static void *look(void *unused)
{
    (void)unused;
    while (!call_has_ended(&call))
        weak_yield();
    check_rows(1);
    return NULL;
}

/* The part may have ended before the caller gives up its own. */
static void seen_by_another(void)
{
    begin(NULL);
    call_add_parts(&call, 1);
    const unsigned part = start(0), other = weak_start("other", look, NULL);
    call_sent(&call);
    weak_join(part);
    weak_join(other);
}

/* The caller ends it, but another sees that. */
static void ended_by_the_caller(void)
{
    begin(NULL);
    call_add_parts(&call, 1);
    const unsigned part = start(0), other = weak_start("other", look, NULL);
    weak_join(part);
    call_sent(&call);
    weak_join(other);
}

static void listen_for_bell(void)
{
    struct pollfd polled = { .fd = bell, .events = POLLIN };

    if (call_set_bell(&call, bell)) {
        (void)poll(&polled, 1, -1);
        call_clear_bell(&call);
        weak_expect(call_has_ended(&call));
    }
    check_rows(PARTS);
    reuse();
}

static void bell_rings(void)
{
    bell = eventfd(0, 0);
    begin(NULL);
    call_add_parts(&call, PARTS);
    const unsigned first = start(0), second = start(1);
    call_sent(&call);
    listen_for_bell();
    weak_join(first);
    weak_join(second);
}

/* The caller stops listening, and then listens again. */
static void bell_set_again(void)
{
    bell = eventfd(0, 0);
    begin(NULL);
    call_add_parts(&call, PARTS);
    const unsigned first = start(0), second = start(1);
    call_sent(&call);
    if (call_set_bell(&call, bell))
        call_clear_bell(&call);
    listen_for_bell();
    weak_join(first);
    weak_join(second);
}

const WeakCase call_cases[] = {
    { "call_waited_for", waited_for },
    { "call_parts_one_by_one", parts_one_by_one },
    { "call_handed_over", handed_over },
    { "call_seen_by_another", seen_by_another },
    { "call_ended_by_the_caller", ended_by_the_caller },
    { "call_bell_rings", bell_rings },
    { "call_bell_set_again", bell_set_again },
    { NULL, NULL },
};
