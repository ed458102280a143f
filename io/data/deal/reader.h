/* The reader behind RubatoReader, on any source of blocks.
 *
 * Threads: as rubato/data.h says. */
#ifndef RUBATO_IO_DATA_DEAL_READER_H
#define RUBATO_IO_DATA_DEAL_READER_H

#include "io/data/deal/reader_progress.h"

/* Checks options and fills in their defaults. RUBATO_ERROR_INVALID. */
bool reader_options_fill(const RubatoReaderOptions *options, RubatoReaderOptions *filled,
                         GError **error);

/* Takes the source. The options have been filled in; `cancelled`, which may be NULL, outlives the
 * reader and ends rubato_reader_next with RUBATO_ERROR_CANCELLED. (transfer full) */
RubatoReader *reader_new(RubatoDataset *dataset, const RubatoReaderOptions *options,
                         BlockSource *source, const _Atomic bool *cancelled, GError **error);

/* From now on the reader tells there how far its worker has come, until it ends, is freed or is
 * finished by readers_finish. Once, before the first batch is taken; the worker's thread. */
void reader_tell_progress(RubatoReader *reader, ReaderProgress *progress);

/* Enters the reader into a list, which it leaves when it is freed. The caller's thread from then on
 * alone opens and frees readers of the list. */
void reader_enter(RubatoReader *reader, RubatoReader **list);

/* What the readers of the list read from ends: so do they, and rubato_reader_next fails with
 * RUBATO_ERROR_INVALID. They leave the list, and still have to be freed. Returns how many they
 * were. */
unsigned readers_finish(RubatoReader **list);

#endif
