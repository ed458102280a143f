/* What tables have taken in a run, by part: memory, bytes a second over the network, requests a
 * second. Each node of such a run writes a file of its own into one folder, and those who plan a
 * later run read all of them.
 *
 * A file is text. Its first line says how many nodes the run had, its second one names the columns,
 * and each line after them is a part; tabs part the columns. A table's name is escaped as in URIs.
 *
 * Threads: one at a time. */
#ifndef RUBATO_ENGINE_PLACEMENT_MEASURED_NEEDS_H
#define RUBATO_ENGINE_PLACEMENT_MEASURED_NEEDS_H

#include <rubato/table.h>

/* The folder into which nodes write. */
#define NEEDS_VARIABLE "RUBATO_MEASURE"

typedef struct MeasuredNeeds MeasuredNeeds;

MeasuredNeeds *measured_needs_new(void);
void measured_needs_free(MeasuredNeeds *needs);

/* What a part of a table has taken on this node. If something is known of the part already, because
 * a table of this name was dropped before, the larger of the two numbers counts for each need. */
void measured_needs_note(MeasuredNeeds *needs, const char *table, uint32_t part,
                         const RubatoNeeds *taken);

/* Writes the file of a node, whole or not at all. RUBATO_ERROR_IO. */
bool measured_needs_write(const MeasuredNeeds *needs, const char *folder, uint32_t node,
                          uint32_t n_nodes, GError **error);

/* Deletes the file of a node, if there is one: it is of an earlier run. RUBATO_ERROR_IO. */
bool measured_needs_delete(const char *folder, uint32_t node, GError **error);

/* Reads the files of all nodes in a folder, and adds up. NULL with RUBATO_ERROR_IO, or
 * RUBATO_ERROR_FORMAT with file:line, also if a node's file is missing; or RUBATO_ERROR_NOT_FOUND:
 * there is none. (transfer full) */
MeasuredNeeds *measured_needs_read(const char *folder, GError **error);

/* Gives a spec the needs that it leaves out, such that each part may take what the largest part
 * took. Memory only if the spec does not tell it by itself. False: no such table was measured. */
bool measured_needs_fill(const MeasuredNeeds *needs, RubatoTableSpec *spec);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(MeasuredNeeds, measured_needs_free)

#endif
