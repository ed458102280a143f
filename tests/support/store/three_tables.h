/* Tables of each kind for snapshots of engines: rows of a range under "adagrad", rows of any keys
 * under "adam", rows of different lengths. Their contents follow from the keys alone, so they can
 * be checked whatever servers, nodes and parts hold them.
 *
 * Threads: that of the engine's calls. */
#ifndef TESTS_SUPPORT_STORE_THREE_TABLES_H
#define TESTS_SUPPORT_STORE_THREE_TABLES_H

#include <rubato/rubato.h>

#define THREE_RATE 0.25 /* to which the learning rate of "range" is tuned */

/* What restores into the tables may change. */
typedef struct {
    uint32_t parts;      /* of each; 0: one for each server */
    bool swaps_storages; /* the rows of a range in hash storage, and of any keys in a range */
    bool is_double;      /* f64 in place of f32 */
} ThreeShapes;

/* Creates the tables "any", "lists" and "range". Collective. */
bool three_tables_create(RubatoEngine *engine, const ThreeShapes *shapes, GError **error);

/* Fills them with rows and state. Between tasks; one node does it. */
bool three_tables_fill(RubatoEngine *engine, GError **error);

/* Whether they hold that, and learn at the tuned rate. Changes a row; any one node does it. */
bool three_tables_check(RubatoEngine *engine, const ThreeShapes *shapes, GError **error);

#endif
