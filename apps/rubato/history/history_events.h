/* What a history says, in memory: tables, tasks, whose requests there are, and of each table the
 * keys that were read and written, sorted by key.
 *
 * Threads: one. */
#ifndef APPS_RUBATO_HISTORY_EVENTS_H
#define APPS_RUBATO_HISTORY_EVENTS_H

#include "apps/rubato/history/history_file.h"

typedef enum {
    BOUND_ASP,
    BOUND_BSP,
    BOUND_SSP,
    BOUND_SPARSE_SSP,
    BOUND_OTHER, /* a model that these rules do not know */
} BoundKind;

typedef struct {
    uint32_t epoch;
    char *name;
    bool has_ended, failed;
    bool replaces; /* processes in the place of lost ones have their workers again */
    /* phases of the nodes */
    uint64_t begun_first, begun_last, ended_first, ended_last;
} HistoryTask;

/* One who makes requests: a worker in a task, or the engine of a node. */
typedef struct {
    uint32_t epoch, rank, node;
    uint32_t table;
    guint task; /* its place among the tasks; G_MAXUINT: the engine */
    uint64_t clock, n_adds;
    uint64_t last_add;   /* the number of its last Add; UINT64_MAX: none */
    const char *handler; /* that it has called last; without an end */
    size_t n_handler;
    uint64_t handler_add; /* and the number of that call among its Adds */
    bool has_announced, has_retired;
    uint64_t first_add; /* its number, of those that its present process makes */
    uint32_t process;   /* as HistoryFile.process: the last one that had this worker */
    uint64_t heard;     /* the lost one's clock on the table, which may be later than where the one
                         * in its place begins; 0: there was none */
    uint32_t heard_by;  /* the process of the latter */
    GArray *announced;  /* of Announcement */
} HistorySource;

typedef struct {
    uint64_t iteration;
    const uint64_t *keys;
    uint32_t n;
    bool run;
} Announcement;

/* Flags of entries, besides those of records: the row that the call of a handler has found, which
 * is a Get; and what it has changed, which is an Add. The row is the one before, and the row after
 * follows it. */
enum { ENTRY_FOUND = 64, ENTRY_CALL = 128 };

/* Of requests, too, none of which has RECORD_LAST: one that a process makes again although the
 * table has had the end of its clock from the process before. */
enum { ENTRY_REPEATED = RECORD_LAST };

/* A key of a Get, an Add or a Set. */
typedef struct {
    uint64_t key;
    const uint8_t *row; /* NULL: rows were reset */
    uint64_t at;        /* its place among all that was read: in the order in which it was made */
    uint32_t source;
    uint32_t clock;
    uint32_t n_adds;
    uint8_t kind, flags;
    uint16_t process; /* as HistoryFile.process */
} HistoryEntry;

/* A call of a handler that writes, as its caller has made it. It counts as an Add. */
typedef struct {
    uint32_t source;
    uint16_t process; /* as HistoryFile.process */
    uint8_t flags;
    bool parts_run; /* as with keys */
    uint64_t clock, number, n_adds;
    const uint64_t *parts; /* that it goes to */
    uint32_t n_parts;
    uint64_t at;
    const char *name; /* of the handler, without an end */
    size_t n_name;
} HistoryCall;

/* A record of what a server has applied. */
typedef struct {
    const HistoryFile *file;
    uint32_t node;
    bool is_lost; /* its process was lost */
    Record record;
} HistoryApplied;

typedef struct {
    uint32_t id;
    char *name, *update;
    RubatoDtype dtype;
    uint32_t width;
    BoundKind bound;
    char *model;
    uint32_t staleness;
    bool sums;                    /* its rows are sums of what was added */
    uint64_t n_handlers;          /* calls of these that write, whose parts are not told */
    GArray *calls;                /* of HistoryCall */
    GArray *applied;              /* of HistoryApplied */
    struct HistoryRagged *ragged; /* of a table of ragged rows: history_ragged.h; else NULL */
    bool has_constant;            /* rows begin with `constant` */
    double constant;
    const char *unjudged; /* why its rows are not compared; NULL: they are */
    HistoryEntry *entries;
    size_t n_entries, capacity;
    uint64_t n_gets, n_adds, n_clocks;
    bool was_read; /* all of its rows, at its end */
} HistoryTable;

/* Called for what is wrong. key NULL: it is about no key. */
typedef void (*HistoryComplainFunc)(void *user, const char *rule, const HistoryTable *table,
                                    const HistorySource *source, uint64_t clock,
                                    const uint64_t *key, const char *text);

typedef struct {
    HistoryComplainFunc complain;
    void *user;
    GPtrArray *tables;  /* of HistoryTable */
    GArray *tasks;      /* of HistoryTask */
    GArray *sources;    /* of HistorySource */
    GHashTable *places; /* of sources, by what names them */
    GArray *files;      /* of HistoryFile */
    uint64_t n_records;
    uint64_t n_places; /* of records and their keys */
    GHashTable *lost;  /* id of a node → how many of its processes were lost, as one node heard */
    GHashTable *lost_here; /* the same, as the node of the present file heard */
    GHashTable *done;   /* a task's epoch and a worker's rank, in one number: it has returned, and
                            * all that it did is in the files */
    uint32_t n_nodes;   /* that have files */
    uint32_t n_missing; /* nodes whose files are not there, or not complete; and lost ones that had
                         * asked something */
    HistoryFile *file;  /* that is read */
    uint32_t last_place;
    RecordOwner last_owner;
    bool has_last;
} History;

/* Reads the files node-*.history of a folder. RUBATO_ERROR_IO, _FORMAT. (transfer full) */
History *history_read(const char *folder, HistoryComplainFunc complain, void *user, GError **error);
void history_free(History *history);

static inline const HistorySource *history_source(const History *history, uint32_t i)
{
    return &g_array_index(history->sources, HistorySource, i);
}

static inline const HistoryTask *history_task(const History *history, const HistorySource *source)
{
    return source->task == G_MAXUINT ? NULL
                                     : &g_array_index(history->tasks, HistoryTask, source->task);
}

/* ---- history_processes.c: processes in the place of lost ones ---- */

/* The line "again EPOCH RANK TABLE CLOCK" of a process, whose place others have had: the worker
 * does again what they have done from that clock on, which is forgotten here. */
void history_take_return(History *history, char **words);

/* A process has begun a task; or it has ended there. */
HistoryFileTask *history_take_file_task(History *history, uint32_t epoch);

/* The line "lost NODE". */
void history_take_loss(History *history, uint32_t node);

/* What `done` has of a worker. (transfer full) */
int64_t *history_worker_name(uint32_t epoch, uint32_t rank);

/* Of how many nodes something may be missing. Sets n_nodes. */
uint32_t history_count_missing(History *history);

/* Whether a process was lost, as far as some node has heard. */
bool history_is_lost(const History *history, const HistoryFile *file);

/* ---- history_calls.c: calls of handlers that write ---- */

/* The parts of the last call that the source has made; what a server has applied. */
void history_take_call(History *history, HistoryTable *table, uint32_t source,
                       const Record *record);
void history_take_applied(History *history, HistoryTable *table, const Record *record);

/* Forgets the calls of a source from the clock on. Returns the number of its first Add among them,
 * or n_adds. */
uint64_t history_forget_calls(HistoryTable *table, uint32_t source, uint64_t clock,
                              uint64_t n_adds);

/* Judges whether each call has run once on each of its parts, and makes entries of what it found
 * and changed. All files have been read. */
void history_join_calls(const History *history, HistoryTable *table);

/* The handler of the call that is that Add; NULL: there is none. (transfer full) */
char *history_name_call(const HistoryTable *table, uint32_t source, uint64_t n_adds);

/* Those of history_events.c. */
void history_add_entry(HistoryTable *table, const HistoryEntry *entry);
HistoryTable *history_take_table(History *history, uint32_t id);
uint32_t history_take_source(History *history, const RecordOwner *owner);

/* Sorts the entries of a table: by key, then by kind, source, number. */
void history_sort(HistoryTable *table);

#endif
