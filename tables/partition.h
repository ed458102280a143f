/* Which server holds a key of a table, and a call's keys cut into one part for each server.
 *
 * Threads: a Partition is immutable once made and may be read by any thread; a Slicer belongs to
 * one. */
#ifndef RUBATO_TABLES_PARTITION_H
#define RUBATO_TABLES_PARTITION_H

#include <rubato/request.h>
#include <rubato/table.h>

typedef struct {
    enum { PARTITION_RANGE, PARTITION_HASH } kind;
    bool dense; /* keys outside first_key .. first_key + n_keys - 1 are errors */
    RubatoKey first_key;
    uint64_t n_keys; /* dense only */
    uint32_t n_servers;
    RubatoKey *bounds; /* range: server i holds bounds[i] .. bounds[i + 1] - 1; the last one's end
                          * is the end of all keys. n_servers entries */
} Partition;

/* The keys of a table, as its storage has them. */
typedef enum {
    PARTITION_OF_ALL_KEYS,
    PARTITION_OF_RANGE, /* first_key and n_keys of the spec */
} PartitionKeys;

/* How the spec, whose names are all given, spreads a table over n_servers servers. Even ranges end
 * at multiples of the spec's chunk size. False with RUBATO_ERROR_INVALID where the spec's own
 * bounds do not fit. */
bool partition_init(Partition *partition, const RubatoTableSpec *spec, PartitionKeys keys,
                    uint32_t n_servers, GError **error);
void partition_clear(Partition *partition);

/* The keys that a server holds: of a dense table exactly, otherwise those that it may be asked. */
void partition_range(const Partition *partition, uint32_t server, RubatoKey *first, uint64_t *n);

uint32_t partition_server(const Partition *partition, RubatoKey key);

/* One server's part of a call's keys. */
typedef struct {
    uint32_t server;
    RubatoKeys keys;
    size_t row; /* of a list or run: the row of the call's values that belongs to its first key */
} Part;

/* Room for cutting one call's keys at a time; grows with the largest call. */
typedef struct {
    Part *parts; /* n_servers entries */
    uint32_t *at;
    uint32_t *servers_of; /* scratch: the server of each key */
    size_t capacity;
    RubatoKey *run; /* scratch: the keys of a run over a hashed table */
} Slicer;

void slicer_init(Slicer *slicer, const Partition *partition);
void slicer_clear(Slicer *slicer);

#define SLICER_NO_MEMORY UINT32_MAX

/* Cuts the n keys into parts; returns how many there are, none of them empty, or SLICER_NO_MEMORY.
 * Sorted keys become
 * lists or runs, others selections. The parts point into `keys` and the slicer, and hold until the
 * next cut. Of a dense table every key must be in the range. */
uint32_t slicer_cut(Slicer *slicer, const Partition *partition, const RubatoKey *keys, size_t n);

/* The same for the run first .. first + n - 1. */
uint32_t slicer_cut_run(Slicer *slicer, const Partition *partition, RubatoKey first, size_t n);

/* Whether all keys lie in a dense table's range; otherwise *wrong is the first that does not. */
bool partition_holds(const Partition *partition, const RubatoKey *keys, size_t n, RubatoKey *wrong);
bool partition_holds_run(const Partition *partition, RubatoKey first, size_t n, RubatoKey *wrong);

#endif
