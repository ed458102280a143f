/* The clocks of a worker that waits, as text in a WAITS. "3:17 5:2." says: clock 17 on table 3,
 * clock 2 on table 5. A full stop marks the end, so a text that was cut is recognised.
 *
 * Threads: any. The functions depend on their arguments only. */
#ifndef RUBATO_ENGINE_TASK_WAIT_TEXT_H
#define RUBATO_ENGINE_TASK_WAIT_TEXT_H

#include <glib.h>
#include <stdint.h>

typedef struct {
    uint32_t table;
    uint64_t clock;
} WaitClock;

/* A list of WaitClock as text. (transfer full) */
char *wait_text_write(const GArray *clocks);

/* Reads such a text; NULL if it is none. (transfer full) */
GArray *wait_text_read(const char *text);

#endif
