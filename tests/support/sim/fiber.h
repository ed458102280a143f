/* Fibers: functions with a stack of their own, one of which runs at a time, all on one thread.
 *
 * A fiber runs from fiber_resume to its next fiber_pause, or to its end; nothing else interrupts
 * it. Stacks are reused, and have a guard page below them.
 *
 * Threads: one; a fiber is resumed from outside all fibers. */
#ifndef TESTS_SUPPORT_SIM_FIBER_H
#define TESTS_SUPPORT_SIM_FIBER_H

#include <stdbool.h>

typedef struct Fiber Fiber;

/* A fiber that has not begun. (transfer full) */
Fiber *fiber_new(void (*run)(void *data), void *data);

/* Frees a fiber that has ended, or never began. Everything on the stack of another one would be
 * lost. */
void fiber_free(Fiber *fiber);

/* Runs the fiber until it pauses or ends. */
void fiber_resume(Fiber *fiber);

/* In a fiber: returns to the caller of fiber_resume. */
void fiber_pause(void);

bool fiber_has_ended(const Fiber *fiber);

#endif
