/* Which servers have which parts, as lines of text: what nodes and the scheduler tell one another
 * when a node is lost.
 *
 * Threads: any. */
#ifndef RUBATO_ENGINE_CONTROL_PLACE_TEXT_H
#define RUBATO_ENGINE_CONTROL_PLACE_TEXT_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

/* A part as a node has it, or knows of it. */
typedef enum {
    PLACE_KNOWN = 'k', /* there is such a part */
    PLACE_PRIMARY = 'p',
    PLACE_REPLICA = 'r',
} PlaceRole;

typedef struct {
    uint32_t table, part;
    PlaceRole role;
    uint32_t server;   /* that has it */
    uint64_t position; /* of a replica */
} PlaceFound;

void place_text_write_found(GString *text, const PlaceFound *found);
bool place_text_read_found(const char **text, PlaceFound *found);

/* Where a part is from now on: its primary first. */
#define PLACE_MOST_SERVERS 8
typedef struct {
    uint32_t table, part;
    uint32_t n; /* servers, at least 1 */
    uint32_t servers[PLACE_MOST_SERVERS];
} PlaceSet;

/* A copy of a part takes the place of another one: that of the server `from`, a primary or a
 * replica, goes to the server `to`. */
typedef struct {
    uint32_t table, part;
    uint32_t from, to;
    uint32_t n; /* copies that are left then, the primary among them: there must not be fewer */
} PlaceMove;

void place_text_write_move(GString *text, const PlaceMove *move);
bool place_text_read_move(const char **text, PlaceMove *move);

void place_text_write_set(GString *text, const PlaceSet *set);
bool place_text_read_set(const char **text, PlaceSet *set);

#endif
