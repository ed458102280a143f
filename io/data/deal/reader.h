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

/* Rows of a ticket that are done: those from ticket.n_read on, up to but not including `end`. */
typedef struct {
    BlockTicket ticket; /* as it was before */
    uint64_t end;
    bool is_last; /* none of the ticket's rows is left */
} ReaderRows;

/* Of a reader that awaits the word: the oldest n_rows that its worker has got are done. Appends
 * them as ReaderRows. RUBATO_ERROR_INVALID: it has not got so many. The worker's thread. */
bool reader_finish_rows(RubatoReader *reader, uint64_t n_rows, GArray *done, GError **error);

/* Whether the worker says which rows are done; else those are that it has got. */
bool reader_awaits_word(const RubatoReader *reader);

/* NULL: it was stopped. (transfer none) */
BlockSource *reader_source(const RubatoReader *reader);

/* From now on the reader tells there how far its worker has come, until it ends, is freed or is
 * finished by readers_finish. Once, before the first batch is taken; the worker's thread. */
void reader_tell_progress(RubatoReader *reader, ReaderProgress *progress);

/* Enters the reader into a list, which it leaves when it is freed. The caller's thread from then on
 * alone opens and frees readers of the list. */
void reader_enter(RubatoReader *reader, RubatoReader **list);

/* Whether it is in that list. */
bool reader_is_in(const RubatoReader *reader, RubatoReader *const *list);

/* What the readers of the list read from ends: so do they, and rubato_reader_next fails with
 * RUBATO_ERROR_INVALID. They leave the list, and still have to be freed. Returns how many they
 * were. */
unsigned readers_finish(RubatoReader **list);

#endif
