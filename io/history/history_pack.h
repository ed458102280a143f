/* The records of a chunk in fewer bytes.
 *
 * Workers fill chunks with plain records, which cost them least. The history's thread packs what is
 * in a chunk before it writes it, because a file takes less than a few workers make.
 * docs/history.md tells the format.
 *
 * Threads: any; a chunk, one at a time. */
#ifndef RUBATO_IO_HISTORY_HISTORY_PACK_H
#define RUBATO_IO_HISTORY_HISTORY_PACK_H

#include "io/history/history_private.h"

/* What `chunk` says goes to `packed`, in no more bytes. */
void history_pack_chunk(const HistoryChunk *chunk, HistoryChunk *packed);

#endif
