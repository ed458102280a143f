/* Moves as lines of text: "move 0 2;4 1 5" moves part 1 of table 4 from a server of node 0 to
 * server 5, of node 2.
 *
 * Runs on the caller's thread and keeps no state. */
#include "engine/control/told_move.h"

#include <glib.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

char *told_move_write(const ToldMove *move)
{
    return g_strdup_printf("move %u %u;%u %u %u", move->from_node, move->to_node, move->table,
                           move->part, move->to);
}

bool told_move_read(const char *text, ToldMove *move)
{
    ToldMove told = { 0 };
    int n = 0;

    if (text == NULL ||
        sscanf(text, "move %" SCNu32 " %" SCNu32 ";%" SCNu32 " %" SCNu32 " %" SCNu32 "%n",
               &told.from_node, &told.to_node, &told.table, &told.part, &told.to, &n) != 5 ||
        text[n] != '\0')
        return false;
    *move = told;
    return true;
}
