/* A file of a version, asked for in pieces and written.
 *
 * A link may be slow: so much is asked for at a time as it brings in a second (fetch_pace.h). When
 * an answer stays away, the pieces from there on are asked for again, a few times one after the
 * other, before the file is given up.
 *
 * Threads: the reader's. */
#ifndef RUBATO_IO_STREAM_ZMQ_FILE_FETCH_H
#define RUBATO_IO_STREAM_ZMQ_FILE_FETCH_H

#include "io/store/block_file.h"
#include "io/stream/zmq/fetch_pace.h"
#include "io/stream/zmq/questions.h"

typedef struct {
    Questions *questions; /* (transfer none) */
    FetchPace pace;
    bool is_gone; /* what was asked for last was not there any more */
} FileFetcher;

/* Fetches the file of a part, or the manifest (STREAM_MANIFEST). sum: what it must agree with;
 * NULL: it ends with an answer that is short, and is not checked. path: of the file to write.
 * RUBATO_ERROR_NETWORK, _IO, _FORMAT. */
bool file_fetch(FileFetcher *fetcher, const ListedVersion *version, uint32_t table, uint32_t part,
                const BlockFileSum *sum, const char *path, GError **error);

#endif
