/* Tickets as text: how they travel in control messages, a line each.
 *
 * Threads: any. */
#ifndef RUBATO_ENGINE_TASK_TICKET_TEXT_H
#define RUBATO_ENGINE_TASK_TICKET_TEXT_H

#include "io/data/deal/block_source.h"

/* What a line says of its ticket. */
typedef enum {
    TICKET_DEALT = 'd',
    TICKET_FINISHED = 'f',
    TICKET_GIVEN_BACK = 'b',
    TICKET_ABSENT = 'a',
} TicketNews;

/* The most bytes that a line takes. */
#define TICKET_TEXT_MAX 72u

void ticket_text_add(GString *text, TicketNews news, const BlockTicket *ticket);

/* Reads the line at *text, which is then behind it. False where it is no such line; *text at its end is
 * not for this function. */
bool ticket_text_read(const char **text, TicketNews *news, BlockTicket *ticket);

/* Reads a number and the character behind it, from a text that came from outside. */
bool ticket_text_number(const char **text, char behind, uint64_t max, uint64_t *number);

#endif
