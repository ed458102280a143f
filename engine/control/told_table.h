/* A table as a line of text, for a process that has made none of the calls that made the tables.
 *
 * Threads: any. */
#ifndef RUBATO_ENGINE_CONTROL_TOLD_TABLE_H
#define RUBATO_ENGINE_CONTROL_TOLD_TABLE_H

#include "engine/catalogue.h"

/* Adds a line with the table's number, the seed of its hash, its spec, and how many replicas its
 * parts were given. It does not say where these and the parts are. */
void told_table_write(GString *text, const Table *table);

/* Makes the table of the next line, and advances *text behind it. servers: of the run.
 * RUBATO_ERROR_FORMAT: it is no such line; other codes as those of rubato_engine_create_table. On
 * failure *text stays. (transfer full) */
Table *told_table_read(const char **text, const ServerCount *servers, GError **error);

#endif
