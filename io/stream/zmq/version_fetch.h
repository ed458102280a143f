/* A version, fetched as a whole: written into a folder without its name, which gets its name when
 * all checksums have been compared. So what is cut off, damaged or gone meanwhile is never seen.
 *
 * Threads: the reader's. */
#ifndef RUBATO_IO_STREAM_ZMQ_VERSION_FETCH_H
#define RUBATO_IO_STREAM_ZMQ_VERSION_FETCH_H

#include "io/stream/zmq/file_fetch.h"
#include "io/stream/zmq/mirror_folder.h"

/* Nothing of it stays if it fails. RUBATO_ERROR_NETWORK, _IO, _FORMAT. */
bool version_fetch(FileFetcher *fetcher, const ListedVersion *version, MirrorFolder *mirror,
                   GError **error);

#endif
