/* What a handler implements: a function that runs on the server, with a part of a table in hand.
 *
 * A handler computes where the rows are: its arguments go to the servers, its results come back,
 * and the rows stay. It runs once on each part that a call reaches; `reduce` then makes one result
 * of the parts' results, at the caller.
 *
 * A program, or a plug-in file, registers one of its own: plugin.h. handler.h has the calls.
 * A built-in one is a file of models/handlers/ that ends in its constant RubatoHandlerOps, and a
 * line in the array of models/handlers/handler.c.
 *
 * Threads: `run` is called by the part's present owner, one thread at a time for a part, and holds
 * up everything else that its server has to do; `check` by the caller and by the owner, `reduce` by
 * the caller. None of them may block, or call an engine, a worker or a handle. */
#ifndef RUBATO_HANDLER_OPS_H
#define RUBATO_HANDLER_OPS_H

#include <rubato/bytes.h>
#include <rubato/table.h>

G_BEGIN_DECLS

/* What a handler does with rows, and so how a table's consistency model treats its calls. */
typedef enum {
    /* It only reads. A call waits as a Get of its rows does, and sees what that Get would see. */
    RUBATO_ACCESS_READS,

    /* It changes rows, and has no result. A call takes effect as an Add of its rows does: once, in
     * order with its worker's Adds, and under "bsp" at the end of its clock, in worker order. */
    RUBATO_ACCESS_WRITES,
} RubatoAccess;

/* Of which rows a call of a handler is. */
typedef enum {
    RUBATO_SCOPE_TABLE, /* all rows of all parts */
    RUBATO_SCOPE_PART,  /* all rows of one part */
    RUBATO_SCOPE_KEYS,  /* the rows of some keys */
} RubatoScope;

/* A call, as `check` and `reduce` see it. */
typedef struct {
    const RubatoTableSpec *spec; /* of the table */
    RubatoScope scope;
} RubatoHandlerSetting;

/* The rows that a call of a handler has on one part. */
typedef struct RubatoPart RubatoPart;

typedef struct {
    const char *name;
    RubatoAccess access;

    /* Whether the call makes sense, for its table and arguments. Asked before anything is sent, and
     * again on the server. Everything that can be wrong with the call of a handler that writes
     * belongs here: under a model that keeps Adds, nobody waits any more when it runs. May be
     * NULL. */
    bool (*check)(const RubatoHandlerSetting *setting, RubatoByteReader *arguments, GError **error);

    /* Runs on one part, and writes its result. False with an error: the call fails with its text,
     * and nothing else does. If the handler writes and the model had kept the call, its task fails.
     * What it has changed until then stays. */
    bool (*run)(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                GError **error);

    /* Makes the call's result of the results of n parts, in the order of the parts; n is at least
     * 1, or 0 for a call on no keys. Each reader is at the start of a result. The results come from
     * other nodes: they may be anything. NULL: they lie one behind the other. */
    bool (*reduce)(const RubatoHandlerSetting *setting, RubatoByteReader *arguments,
                   RubatoByteReader *results, size_t n, RubatoByteWriter *result, GError **error);
} RubatoHandlerOps;

/* The most bytes of arguments and of a part's result; keys of a call count as 8 bytes each. */
#define RUBATO_HANDLER_MOST_BYTES ((size_t)256 << 20)

/* ---- what a part offers ---- */

/* Its table's spec, and its number among the table's parts. (transfer none) */
RUBATO_API const RubatoTableSpec *rubato_part_spec(const RubatoPart *part);
RUBATO_API uint32_t rubato_part_number(const RubatoPart *part);

/* Of which rows of the part the call is: RUBATO_SCOPE_KEYS, or RUBATO_SCOPE_PART for all. */
RUBATO_API RubatoScope rubato_part_scope(const RubatoPart *part);

/* How many rows the call has here. */
RUBATO_API uint64_t rubato_part_n_rows(const RubatoPart *part);

/* Some rows of a part. */
typedef struct {
    size_t n;
    const RubatoKey *keys; /* NULL: first, first + 1, … */
    RubatoKey first;
    void *const *rows; /* NULL: they lie stride_bytes apart, from `run` on */
    void *run;
    size_t stride_bytes;
} RubatoPartRows;

/* The key of row i, and its values: `width` of the table's dtype, aligned for it. Only a handler
 * that writes may change them. */
RUBATO_API RubatoKey rubato_part_rows_key(const RubatoPartRows *rows, size_t i);
RUBATO_API void *rubato_part_rows_row(const RubatoPartRows *rows, size_t i);

/* The next rows of the call; false past the last, and then it begins again. A call on keys gets
 * its keys in their order, repeated ones again: an absent row has its initial values for a handler
 * that reads, and is created for one that writes. A call on all rows gets each row once, of dense
 * storage by key. The pointers hold until the next call on the part. */
RUBATO_API bool rubato_part_next(RubatoPart *part, RubatoPartRows *rows);

/* Reads the rows of n keys into values; an absent one has its initial values. Keys: of the call or,
 * for a call on all rows, of the part. RUBATO_ERROR_RANGE for a key that a dense part does not
 * have. */
RUBATO_API bool rubato_part_get(RubatoPart *part, const RubatoKey *keys, size_t n, void *values,
                                GError **error);

/* Applies deltas by the table's update rule, and gives rows values past it, with the state of new
 * rows. Only for a handler that writes: RUBATO_ERROR_INVALID for others. */
RUBATO_API bool rubato_part_add(RubatoPart *part, const RubatoKey *keys, size_t n,
                                const void *deltas, GError **error);
RUBATO_API bool rubato_part_set(RubatoPart *part, const RubatoKey *keys, size_t n,
                                const void *values, GError **error);

/* Reads the rows of n keys of the same part of another table, which no model protects: so in a task
 * the table's model has to be one that never makes a Get wait, as "asp". RUBATO_ERROR_NOT_FOUND if
 * there is no such table, RUBATO_ERROR_INVALID if its parts are not cut as those of this table, or
 * this part of it is on another server, or its model does not allow it; RUBATO_ERROR_RANGE. */
RUBATO_API bool rubato_part_get_other(RubatoPart *part, const char *table, const RubatoKey *keys,
                                      size_t n, void *values, GError **error);

G_END_DECLS

#endif
