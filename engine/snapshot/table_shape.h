/* What saving and loading a table as arrays share: the shape of its rows, its files, checksums, the
 * text that describes them. rubato/table_files.h tells what the files are.
 *
 * Threads: the caller's; a value belongs to one. */
#ifndef RUBATO_ENGINE_SNAPSHOT_TABLE_SHAPE_H
#define RUBATO_ENGINE_SNAPSHOT_TABLE_SHAPE_H

#include <rubato/npy.h>
#include <rubato/table_files.h>

#include "io/store/byte_sum.h"

/* Bytes of rows that are on their way between files and tables. */
#define TABLE_CHUNK_BYTES ((size_t)1 << 20)

typedef struct {
    RubatoDtype dtype;
    uint32_t width, state_width; /* 0: no state */
    bool is_range;               /* first_key .. first_key + n_keys - 1 */
    RubatoKey first_key;
    uint64_t n_keys;
    char *update;
} TableShape;

/* Of a table of the engine. */
bool table_shape_find(RubatoEngine *engine, const char *table, TableShape *shape, GError **error);
void table_shape_clear(TableShape *shape);

/* Rows in a chunk, one at least. */
size_t table_shape_chunk(const TableShape *shape);

typedef enum {
    TABLE_FILE_VALUES,
    TABLE_FILE_KEYS,
    TABLE_FILE_STATE,
    TABLE_FILE_TEXT, /* written last */
    TABLE_N_FILES,
} TableFile;

#define TABLE_N_ARRAYS TABLE_FILE_TEXT

/* PATH.npy and so on. (transfer full) */
char *table_file_path(const char *path, TableFile file);

/* What the text says. */
typedef struct {
    char dtype[8];
    uint32_t width, state_width;
    bool is_range;
    RubatoKey first_key;
    uint64_t n_rows;
    char *update;
    char sums[TABLE_N_ARRAYS][BYTE_SUM_TEXT]; /* empty: there is no such file */
} TableText;

void table_text_clear(TableText *text);

/* (transfer full) */
char *table_text_write(const TableText *text);

/* path: for errors. RUBATO_ERROR_FORMAT. */
bool table_text_read(const char *path, const char *bytes, TableText *text, GError **error);

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(TableShape, table_shape_clear)
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(TableText, table_text_clear)

#endif
