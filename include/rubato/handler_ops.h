/* What a handler implements: a function that runs on a server and works on one part of a table.
 *
 * A handler computes where the rows are: its arguments go to the servers, its results come back,
 * and the rows stay. It runs once on each part that a call reaches. Then `reduce` combines the
 * parts' results into one, at the caller.
 *
 * A program, or a plug-in file, registers one of its own: plugin.h. handler.h has the calls.
 * A built-in one is a file of models/handlers/ that ends in its constant RubatoHandlerOps, and a
 * line in the array of models/handlers/handler.c.
 *
 * Threads: the part's present owner calls `run`, one thread at a time for a part; meanwhile its
 * server does nothing else. The caller and the owner call `check`. The caller calls `reduce` or, if
 * it calls by ticket, its node's helper thread does. None of them may block, or call an engine, a
 * worker or a handle. */
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

/* Which rows a call of a handler concerns. */
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

/* One part of a table, and the rows of it that a call concerns. */
typedef struct RubatoPart RubatoPart;

typedef struct {
    const char *name;
    RubatoAccess access;

    /* Whether the call makes sense, for its table and arguments. It is called before anything is
     * sent, and again on each server. A handler that writes checks here everything that can be
     * wrong with a call: under a model that keeps Adds, its caller has gone on when it runs. May be
     * NULL. */
    bool (*check)(const RubatoHandlerSetting *setting, RubatoByteReader *arguments, GError **error);

    /* Runs on one part, and writes its result. False with an error: the call fails with this text,
     * and the task goes on. If the handler writes and "bsp" had kept the call, a later clock of its
     * caller fails instead. Under a model of a plug-in that keeps calls and does not say
     * applies_by_clock, the task fails. Changes that it has made before stay. */
    bool (*run)(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                GError **error);

    /* Combines the results of n parts into the call's result. They come in the order of the parts;
     * n is at least 1, or 0 for a call on no keys. Each reader is at the start of a result. The
     * results come from other nodes, so they may be any bytes. NULL: the results are joined, one
     * after the other. */
    bool (*reduce)(const RubatoHandlerSetting *setting, RubatoByteReader *arguments,
                   RubatoByteReader *results, size_t n, RubatoByteWriter *result, GError **error);
} RubatoHandlerOps;

/* The most bytes of arguments and of a part's result; keys of a call count as 8 bytes each. */
#define RUBATO_HANDLER_MOST_BYTES ((size_t)256 << 20)

/* ---- what a part offers ---- */

/* The spec of the part's table, and the part's number in it. (transfer none) */
RUBATO_API const RubatoTableSpec *rubato_part_spec(const RubatoPart *part);
RUBATO_API uint32_t rubato_part_number(const RubatoPart *part);

/* Which rows of the part the call concerns: RUBATO_SCOPE_KEYS, or RUBATO_SCOPE_PART for all. */
RUBATO_API RubatoScope rubato_part_scope(const RubatoPart *part);

/* How many rows of the part the call concerns. */
RUBATO_API uint64_t rubato_part_n_rows(const RubatoPart *part);

/* Some rows of a part. */
typedef struct {
    size_t n;
    const RubatoKey *keys; /* NULL: the keys are first, first + 1, … */
    RubatoKey first;
    void *const *rows; /* NULL: the rows lie stride_bytes apart, from `run` on */
    void *run;
    size_t stride_bytes;
} RubatoPartRows;

/* The key of row i, and its values: `width` of the table's dtype, aligned for it. Only a handler
 * that writes may change them. */
RUBATO_API RubatoKey rubato_part_rows_key(const RubatoPartRows *rows, size_t i);
RUBATO_API void *rubato_part_rows_row(const RubatoPartRows *rows, size_t i);

/* Writes the next rows of the call to *rows. False after the last; the next call then begins again.
 * A call on keys gets its keys in their order; a repeated key comes again. For a handler that
 * reads, an absent row has its initial values; for one that writes, it is created. A call on all
 * rows gets each row once: in dense storage in the order of the keys, otherwise in any order. The
 * pointers are valid until the next call on the part. */
RUBATO_API bool rubato_part_next(RubatoPart *part, RubatoPartRows *rows);

/* Reads the rows of n keys into values; an absent row has its initial values. The keys must be keys
 * of the call or, for a call on all rows, keys of the part. RUBATO_ERROR_RANGE for a key that a
 * dense part does not have. */
RUBATO_API bool rubato_part_get(RubatoPart *part, const RubatoKey *keys, size_t n, void *values,
                                GError **error);

/* The first applies deltas by the table's update rule. The second writes values without the rule;
 * the rows get the state of new rows. Keys and errors are those of rubato_part_get.
 * RUBATO_ERROR_INVALID if the handler only reads. */
RUBATO_API bool rubato_part_add(RubatoPart *part, const RubatoKey *keys, size_t n,
                                const void *deltas, GError **error);
RUBATO_API bool rubato_part_set(RubatoPart *part, const RubatoKey *keys, size_t n,
                                const void *values, GError **error);

/* Reads the rows of n keys of the same part of another table. It does not ask that table's model.
 * So in a task it must be a model that never makes a Get wait, such as "asp". Errors:
 * RUBATO_ERROR_NOT_FOUND if there is no such table. RUBATO_ERROR_INVALID if its parts are not cut
 * like those of this table, if this part of it is on another server, or if its model does not allow
 * it. RUBATO_ERROR_RANGE for a key that a dense part does not have. */
RUBATO_API bool rubato_part_get_other(RubatoPart *part, const char *table, const RubatoKey *keys,
                                      size_t n, void *values, GError **error);

G_END_DECLS

#endif
