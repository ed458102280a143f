/* The clocks of a worker that waits, as text in a WAITS: "3:17 5:2." are table 3's and table 5's.
 * The end is marked, so that a text which was cut is told from a whole one.
 *
 * Threads: any; functions of their arguments alone. */
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

/* And back; NULL for what is no such text. (transfer full) */
GArray *wait_text_read(const char *text);

#endif
