/* Tickets as text: how they travel in control messages, a line each.
 *
 * Threads: any. */
#ifndef RUBATO_ENGINE_TASK_BLOCK_TICKET_CODEC_H
#define RUBATO_ENGINE_TASK_BLOCK_TICKET_CODEC_H

#include "io/data/deal/block_source.h"

/* What a line says of its ticket. */
typedef enum {
    BLOCK_TICKET_DEALT = 'd',
    BLOCK_TICKET_FINISHED = 'f',
    BLOCK_TICKET_GIVEN_BACK = 'b',
    BLOCK_TICKET_ABSENT = 'a',
} BlockTicketEvent;

/* The most bytes that a line takes. */
#define BLOCK_TICKET_TEXT_MAX 72u

void block_ticket_write(GString *text, BlockTicketEvent news, const BlockTicket *ticket);

/* Reads the line at *text, which is then behind it. False where it is no such line; *text at its
 * end is not for this function. */
bool block_ticket_read(const char **text, BlockTicketEvent *news, BlockTicket *ticket);

/* Reads a number and the character behind it, from a text that came from outside. */
bool block_ticket_read_number(const char **text, char behind, uint64_t max, uint64_t *number);

#endif
