/* Fibers: functions with a stack each, of which one at a time runs on the one thread that there is.
 *
 * A fiber runs from fiber_resume to its next fiber_pause, or to its end; nothing else takes the
 * processor away from it. Stacks are used again, and have a guard page below them.
 *
 * Threads: one; a fiber is resumed from outside all fibers. */
#ifndef TESTS_SUPPORT_FIBER_H
#define TESTS_SUPPORT_FIBER_H

#include <stdbool.h>

typedef struct Fiber Fiber;

/* Made, and not begun. (transfer full) */
Fiber *fiber_new(void (*run)(void *data), void *data);

/* Of one that has ended, or never began: what lies on the stack of another is lost. */
void fiber_free(Fiber *fiber);

/* Goes on with the fiber until it pauses or ends. */
void fiber_resume(Fiber *fiber);

/* In a fiber: goes back to who resumed it. */
void fiber_pause(void);

bool fiber_has_ended(const Fiber *fiber);

#endif
