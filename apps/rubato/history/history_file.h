/* Reads the files of a history: chunks, records, keys. It follows docs/history.md and shares no
 * code with what writes them.
 *
 * Threads: one. */
#ifndef APPS_RUBATO_HISTORY_FILE_H
#define APPS_RUBATO_HISTORY_FILE_H

#include <rubato/rubato.h>

typedef enum {
    RECORD_GET = 1,
    RECORD_ADD,
    RECORD_SET,
    RECORD_CLOCK,
    RECORD_ANNOUNCE,
    RECORD_HANDLER,
    RECORD_TUNE,
    RECORD_RETIRE,
    RECORD_HANDLER_KEYS,
    RECORD_HANDLER_PARTS,
    RECORD_APPLIED,
    RECORD_RAGGED,
    RECORD_RAGGED_RAN,
} RecordKind;

enum {
    RECORD_RUN_OF_KEYS = 1,
    RECORD_SAME_KEYS = 2,
    RECORD_FAILED = 4,
    RECORD_OF_TICKET = 8,
    RECORD_WRITES = 16,
    RECORD_LAST = 32,
    RECORD_UNTOLD = 64,
    RECORD_CLOCKED = 128,
};

/* What is asked of ragged rows. */
typedef enum {
    RAGGED_LENGTHS = 1,
    RAGGED_GET,
    RAGGED_ADD,
    RAGGED_ASSIGN,
    RAGGED_APPEND,
    RAGGED_ERASE,
} RaggedOp;

#define RECORD_ENGINE UINT32_MAX       /* the rank of an engine's requests */
#define RECORD_SERVER (UINT32_MAX - 1) /* that of what a server has applied */

enum { RECORD_NAME_BYTES = 256 };

/* Whose records a chunk has. */
typedef struct {
    uint32_t node, epoch, rank, table;
    RubatoDtype dtype;
    uint32_t width;
} RecordOwner;

typedef struct {
    RecordKind kind;
    unsigned flags;
    uint32_t n_keys;
    uint64_t clock, n_adds;
    const uint64_t *keys; /* with RECORD_RUN_OF_KEYS the first; NULL: none */
    const uint8_t *rows;  /* NULL: none. RECORD_APPLIED: two for each key, before and after */
    uint64_t at;          /* its place among all that are read; the reader of the files sets it */

    uint32_t epoch, rank, part, place; /* RECORD_APPLIED, _RAGGED_RAN; of _RAGGED the part */
    uint64_t order, row_bytes;         /* RECORD_RAGGED_RAN */

    /* RECORD_RAGGED: some of the request's bytes, and where they begin among all of them */
    RaggedOp op;
    uint64_t number;
    const uint8_t *bytes;
    uint64_t bytes_at, n_bytes_here, n_bytes;

    const char *name; /* RECORD_HANDLER: of the handler, without an end */
    size_t n_name;
} Record;

static inline uint64_t record_key(const Record *record, uint32_t i)
{
    return record->flags & RECORD_RUN_OF_KEYS ? record->keys[0] + i : record->keys[i];
}

/* The bytes of a row in a record. */
size_t record_row_bytes(const RecordOwner *owner);

typedef struct {
    void (*line)(void *user, uint32_t node, const char *line);
    void (*record)(void *user, const RecordOwner *owner, const Record *record);
    void *user;
} HistoryVisitor;

typedef enum {
    HISTORY_FILE_OPEN, /* its node was killed, or still runs */
    HISTORY_FILE_COMPLETE,
    HISTORY_FILE_INCOMPLETE, /* a write had failed */
    HISTORY_FILE_SILENT,     /* as OPEN, and its node had asked nothing */
} HistoryFileState;

/* A task that a process has begun. */
typedef struct {
    uint32_t epoch;
    bool replaces;      /* lost workers */
    uint32_t n_workers; /* if so: of the node */
    bool has_ended;     /* as the process itself says */
} HistoryFileTask;

typedef struct {
    uint32_t node;
    uint32_t n_nodes; /* with which the run begins; 0: this one is not among them */
    uint32_t process; /* processes that had the node's place before, and have files */
    HistoryFileState state;
    uint64_t n_records; /* in it */
    char *path;         /* owned */
    GArray *tasks;      /* of HistoryFileTask; NULL: none */
    /* rows of records point into them */
    GMappedFile *bytes;
    GMappedFile *mapped; /* the second file, of records that outlive the process; NULL: none */
    /* or into these: owned blocks, and what is left of the last one; NULL: there is none */
    GPtrArray *unpacked;
    uint8_t *unpacked_at;
    size_t unpacked_left;
} HistoryFile;

/* Opens the file at `path`, and reads what it says of itself. It stays open until
 * history_file_clear. RUBATO_ERROR_IO, _FORMAT. */
bool history_file_open(HistoryFile *file, GError **error);

/* Calls the visitor for all that is in it, in its order. RUBATO_ERROR_FORMAT, with the place that
 * is wrong. */
bool history_file_read(HistoryFile *file, const HistoryVisitor *visitor, GError **error);
void history_file_clear(HistoryFile *file);

#endif
