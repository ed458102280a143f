/* Versions that readers are fetching. Their files stay open, so that a reader gets a version as a
 * whole, although the run removes it before the last byte is on its way. Otherwise a reader to
 * which all rows take longer than the stream keeps them would never get any.
 *
 * They take room on the disk meanwhile, and descriptors: up to half of those that the process may
 * have. So the one that was asked for first goes when another needs its descriptors, and each goes
 * when nobody has asked for it for HELD_MS.
 *
 * Threads: one at a time. */
#ifndef RUBATO_IO_STREAM_ZMQ_HELD_VERSIONS_H
#define RUBATO_IO_STREAM_ZMQ_HELD_VERSIONS_H

#include <stdint.h>

#include "io/stream/zmq/stream_message.h"

#define HELD_MS 15000 /* more than a reader waits before it gives a version up */

typedef struct HeldVersions HeldVersions;

/* directory: where versions lie. (transfer full) */
HeldVersions *held_versions_new(const char *directory);
void held_versions_free(HeldVersions *held); /* NULL is allowed */

/* A reader begins to fetch a version. One of too many files is not held: the log says so once. */
void held_versions_hold(HeldVersions *held, const ListedVersion *version, int64_t now_ms);

/* The file that a question asks for, which stays the version's; -1: it is not held. */
int held_versions_find(HeldVersions *held, const StreamMessage *asked, int64_t now_ms);

/* Lets those go that nobody has asked for lately. */
void held_versions_tidy(HeldVersions *held, int64_t now_ms);

#endif
