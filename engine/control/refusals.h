/* Who was refused, as far as the log has said it. A refused process greets again until it hears the
 * answer, and the log tells of it once.
 *
 * Threads: one at a time. */
#ifndef RUBATO_ENGINE_CONTROL_REFUSALS_H
#define RUBATO_ENGINE_CONTROL_REFUSALS_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

enum { REFUSALS_KNOWN = 16 };

/* The last texts that were logged; all zero at first. */
typedef struct {
    char *texts[REFUSALS_KNOWN];
    uint32_t next; /* the place of the oldest */
} Refusals;

/* Whether the text is none of the last ones; from then on it is one. A text names the process. */
static inline bool refusals_are_new(Refusals *refusals, const char *text)
{
    for (uint32_t i = 0; i < REFUSALS_KNOWN; i++)
        if (g_strcmp0(refusals->texts[i], text) == 0)
            return false;
    g_free(refusals->texts[refusals->next]);
    refusals->texts[refusals->next] = g_strdup(text);
    refusals->next = (refusals->next + 1) % REFUSALS_KNOWN;
    return true;
}

static inline void refusals_clear(Refusals *refusals)
{
    for (uint32_t i = 0; i < REFUSALS_KNOWN; i++)
        g_clear_pointer(&refusals->texts[i], g_free);
}

#endif
