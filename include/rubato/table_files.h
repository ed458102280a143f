/* A table as NumPy arrays: for other programs, and for a model that is kept. (Snapshots, in
 * snapshot.h, are for training that goes on, and write many tables from many nodes at once.)
 *
 *     PATH.npy         the rows, n × width, in the order of their keys
 *     PATH.keys.npy    of a table that holds no range: these keys, ascending
 *     PATH.state.npy   if it was asked for: what the update rule keeps beside them
 *     PATH.table       a text that says what these are, with a checksum of each and of itself
 *
 * Arrays of any other origin can be loaded too, without PATH.table: then nothing is known of
 * damage, and the log says so.
 *
 * Errors: those of the calls on rows; RUBATO_ERROR_IO for what the system refuses, _FORMAT for what
 * is damaged or no such array, _MISMATCH for arrays that the table cannot take.
 *
 * Threads: any. Like the calls on rows these are not collective, and meant for the time between
 * tasks. */
#ifndef RUBATO_TABLE_FILES_H
#define RUBATO_TABLE_FILES_H

#include <rubato/engine.h>

G_BEGIN_DECLS

typedef enum {
    RUBATO_TABLE_VALUES,           /* the rows */
    RUBATO_TABLE_VALUES_AND_STATE, /* and the state of the update rule, if it keeps any */
} RubatoTableContent;

/* What was saved or loaded. The checksums are XXH3 in 16 hexadecimal digits, of the values and of
 * the keys without their headers; empty if there is no such file. */
typedef struct {
    uint64_t n_rows;
    char values_checksum[17];
    char keys_checksum[17];
} RubatoTableFiles;

/* Writes the files. None of them may be there (RUBATO_ERROR_EXISTS), so no earlier ones are lost;
 * the folder has to be there. They are on the disk when the call returns; after a failure none is
 * left. RUBATO_ERROR_INVALID: the table has rows of different lengths. files NULL: not needed. */
RUBATO_API bool rubato_engine_save_table(RubatoEngine *engine, const char *table, const char *path,
                                         RubatoTableContent content, RubatoTableFiles *files,
                                         GError **error);

/* Reads the files into a table that is there: of the same dtype and width; one that holds a range
 * takes an array without keys only if it has exactly its rows. Other rows of a hash table stay.
 * All files are checked before the first row is written. With RUBATO_TABLE_VALUES, and if there is
 * no PATH.state.npy, the rows get the state of new ones; state of another update rule is
 * RUBATO_ERROR_MISMATCH. */
RUBATO_API bool rubato_engine_load_table(RubatoEngine *engine, const char *table, const char *path,
                                         RubatoTableContent content, RubatoTableFiles *files,
                                         GError **error);

G_END_DECLS

#endif
