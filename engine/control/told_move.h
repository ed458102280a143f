/* A move of a part as a line of text: for the scheduler, which goes on with it if a node is lost
 * that it does not concern, and for a process that serves and has not made the call.
 *
 * Threads: any. */
#ifndef RUBATO_ENGINE_CONTROL_TOLD_MOVE_H
#define RUBATO_ENGINE_CONTROL_TOLD_MOVE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    uint32_t from_node, to_node; /* numbers */
    uint32_t table, part;
    uint32_t to; /* a server's number */
} ToldMove;

/* (transfer full) */
char *told_move_write(const ToldMove *move);

/* On failure *move stays. */
bool told_move_read(const char *text, ToldMove *move);

#endif
