/* Block files: a stream of bytes on disk, cut into blocks, each with a checksum.
 *
 *   block   at most 1 MB of the stream: a head of 24 bytes, then the bytes, perhaps packed
 *   end     a head, then how many bytes the stream has, and a number that the writer chose
 *
 * Numbers are little-endian. A block's checksum is XXH3 of its head and its stored bytes. The seed
 * is the checksum of the block before, and of the first block a number that the writer and the
 * reader know. So a block that is changed, missing, doubled or of another file is found where it
 * lies, and the checksum of the end stands for the whole file. No byte is given to a reader before
 * its block has been checked.
 *
 * A file takes as many bytes as it says at its end; more is an error, too.
 *
 * Threads: a writer and a reader belong to one thread at a time. */
#ifndef RUBATO_IO_STORE_BLOCK_FILE_H
#define RUBATO_IO_STORE_BLOCK_FILE_H

#include <rubato/snapshot.h>

/* The most bytes of the stream in a block. */
#define BLOCK_FILE_MOST ((size_t)1 << 20)

/* What stands for a whole file. */
typedef struct {
    uint64_t n_bytes; /* on disk */
    uint64_t checksum;
} BlockFileSum;

/* ---- writing ---- */

typedef struct BlockWriter BlockWriter;

/* Creates a file; one that is there is an error. (transfer full) */
BlockWriter *block_writer_new(const char *path, uint64_t seed, RubatoPacking packing,
                              GError **error);

/* Its end waits for no disk (store_file.h). */
void block_writer_leave_to_kernel(BlockWriter *writer);

/* While it is held, the disk is told of nothing (store_file.h). */
void block_writer_hold(BlockWriter *writer, bool holds);

/* n bytes follow which a reader wants in one place: the present block ends here if they do not fit
 * it, but would fit one of their own. A hint; blocks stay half full, two by two. */
bool block_writer_begin_record(BlockWriter *writer, uint64_t n, GError **error);

/* RUBATO_ERROR_IO names the file. After an error only block_writer_free may follow. */
bool block_writer_write(BlockWriter *writer, const void *bytes, size_t n, GError **error);

/* Writes the end, with the writer's number. Only the next three may follow. It has no memory for
 * blocks any more, but an object of a bucket has a part of itself (block_writer_keeps_much). */
bool block_writer_end(BlockWriter *writer, uint64_t number, BlockFileSum *sum, GError **error);

/* Whether it is better not to have many that have ended. */
bool block_writer_keeps_much(const BlockWriter *writer);

/* Has the disk take some more of it, which takes some milliseconds; sets whether there is more.
 * Nothing has to be settled before block_writer_sync. */
bool block_writer_settle(BlockWriter *writer, bool *has_more, GError **error);

/* Has the disk take all of it, which nothing may follow. */
bool block_writer_sync(BlockWriter *writer, GError **error);

/* block_writer_end, and block_writer_sync. */
bool block_writer_finish(BlockWriter *writer, uint64_t number, BlockFileSum *sum, GError **error);

/* NULL is allowed. An unfinished file stays where it is: its folder goes as a whole. */
void block_writer_free(BlockWriter *writer);

/* ---- reading ---- */

typedef struct BlockReader BlockReader;

/* Opens a file. sum: what the file must agree with. RUBATO_ERROR_IO, or RUBATO_ERROR_FORMAT for a
 * file of another length. (transfer full) */
BlockReader *block_reader_new(const char *path, uint64_t seed, const BlockFileSum *sum,
                              GError **error);

/* Reads n bytes. RUBATO_ERROR_FORMAT names the file and the offset of the block that is damaged;
 * RUBATO_ERROR_IO. After an error only block_reader_free may follow. */
bool block_reader_read(BlockReader *reader, void *bytes, size_t n, GError **error);

/* The next n bytes where they lie, if they lie in one block and are aligned for any number: they
 * are then read, and valid until the next call. NULL: they must be read. */
const void *block_reader_borrow(BlockReader *reader, size_t n);

/* Whether the stream has ended, which is checked like a block. */
bool block_reader_at_end(BlockReader *reader, bool *at_end, GError **error);

/* Checks all that is left, and gives none of it. */
bool block_reader_skip(BlockReader *reader, GError **error);

/* How many bytes of the stream have been read. */
uint64_t block_reader_position(const BlockReader *reader);

/* The file's path, for messages. (transfer none) */
const char *block_reader_path(const BlockReader *reader);

/* The number that the writer chose. Once the end has been reached. */
uint64_t block_reader_number(const BlockReader *reader);

/* NULL is allowed. */
void block_reader_free(BlockReader *reader);

/* What stands for a file, and its number, as its end says. Only the end is read; a reader that gets
 * this sum checks the rest. */
bool block_file_read_end(const char *path, BlockFileSum *sum, uint64_t *number, GError **error);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(BlockWriter, block_writer_free)
G_DEFINE_AUTOPTR_CLEANUP_FUNC(BlockReader, block_reader_free)

#endif
