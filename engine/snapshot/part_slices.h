/* The rows of a part, slice by slice, as a snapshot has them. A slice is copied on the thread of
 * the part's server, so that requests are handled between two slices, and no more than a slice is
 * in memory. If the part has an image (models/shard/image.h), the rows are those of the image.
 *
 * Threads: any that is not a server's owner; one at a time. */
#ifndef RUBATO_ENGINE_SNAPSHOT_PART_SLICES_H
#define RUBATO_ENGINE_SNAPSHOT_PART_SLICES_H

#include <rubato/error.h>

#include "engine/catalogue.h"
#include "engine/server/server.h"
#include "io/net/handler_call.h"
#include "io/store/part_rows.h"
#include "models/shard/changes.h"
#include "models/shard/image.h"

typedef struct {
    const Table *table;
    uint32_t part;
    Server *server;
    ChangesFor whom;
    const KeyCover *cover; /* only rows of these keys are read; NULL: all */
    uint64_t n_rows;       /* of the part at the cut, also those that are not read */
    uint64_t next;         /* the next row's number */
    uint64_t n_listed;     /* rows when the first slice was read */
    size_t most;           /* rows of a slice */
    RubatoKey *keys;       /* most */
    void *values;          /* of most rows; with state behind them */
    uint32_t *places;      /* with a cover: of the keys among those that were listed */
    bool at_end;           /* all rows have been read */
    HandlerAnswer answer;  /* of rows of different lengths */
    ImageSlice image;      /* of an image */
    bool has_image;        /* the present slice is of one */
    uint64_t n_changes;    /* of rows since it began, when the present slice was read */
    const char *fault;     /* why the last slice could not be read */
    RubatoError fault_code;

    RubatoSnapshotRows rows; /* the present slice; n is 0 behind the last one */
} PartSlices;

typedef enum {
    SLICES_OF_ALL,
    SLICES_OF_CHANGES, /* since the snapshot before, if its server knows them; else of all */
    SLICES_OF_STREAM,  /* the same, since the version before */
} SlicesOf;

/* Begins with a part that is on that server of this node. RUBATO_ERROR_MEMORY. */
bool part_slices_init(PartSlices *slices, const Table *table, uint32_t part, Server *server,
                      SlicesOf rows, GError **error);
void part_slices_clear(PartSlices *slices);

/* Reads the next slice. RUBATO_ERROR_MEMORY; RUBATO_ERROR_IO if the disk refuses copies of rows;
 * RUBATO_ERROR_INVALID if the part has no image, and rows were created since the first one. */
bool part_slices_next(PartSlices *slices, GError **error);

/* Gets what decides which keys are given rows, piece by piece: nothing if all are. */
typedef bool (*PartAdmissionFunc)(const PartAdmission *admission, void *user_data, GError **error);
bool part_slices_admission(const PartSlices *slices, PartAdmissionFunc function, void *user_data,
                           GError **error);

/* Gets the hyper-parameters that were tuned. */
typedef bool (*PartTunedFunc)(uint32_t hyper, double value, void *user_data, GError **error);
bool part_slices_tuned(const PartSlices *slices, PartTunedFunc function, void *user_data,
                       GError **error);

#endif
