/* Tickets as text in control messages and snapshots, one ticket a line: what the line says, a clock
 * and a space if it says something of one, epoch, input, block, n_read, and `end` unless it is 0.
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
    /* For the snapshot that is cut now: it has the reader; rows before n_read are done; rows n_read
     * to `end`, which were done, are not in it. */
    BLOCK_TICKET_CUT = 'c',          /* of no ticket */
    BLOCK_TICKET_CUT_BY_CLOCK = 'k', /* likewise; it has the rows of steps before the clock */
    BLOCK_TICKET_DONE = 'p',
    BLOCK_TICKET_UNDONE = 'u',
    /* Of a node whose workers have ended: rows n_read to `end` were done in a step of that clock.
     * They count when the node is lost. */
    BLOCK_TICKET_ENDED = 'e',
} BlockTicketEvent;

/* The most bytes that a line takes. */
#define BLOCK_TICKET_TEXT_MAX 120u

void block_ticket_write(GString *text, BlockTicketEvent news, const BlockTicket *ticket);

/* A line that says something of a clock: CUT_BY_CLOCK or ENDED. */
void block_ticket_write_clock(GString *text, BlockTicketEvent news, uint64_t clock,
                              const BlockTicket *ticket);

/* Reads the line at *text and moves *text behind it. *clock: 0 if the line says nothing of one.
 * False if the line is no ticket. Do not call it with *text at its end. */
bool block_ticket_read(const char **text, BlockTicketEvent *news, uint64_t *clock,
                       BlockTicket *ticket);

/* Reads a number and the character behind it, from a text that came from another process. */
bool block_ticket_read_number(const char **text, char behind, uint64_t max, uint64_t *number);

#endif
