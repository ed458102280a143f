/* What a publisher of versions and its readers say to each other (docs/wire.md, "Streams over
 * ZeroMQ"). A message is a head of 56 bytes and what follows it. It names no files: bytes are those
 * of the manifest of a version, or of part P of its table T.
 *
 * Threads: any; functions of their arguments alone. */
#ifndef RUBATO_IO_STREAM_ZMQ_STREAM_MESSAGE_H
#define RUBATO_IO_STREAM_ZMQ_STREAM_MESSAGE_H

#include <rubato/bytes.h>
#include <stdbool.h>

#define STREAM_MESSAGE_HEAD ((size_t)56)
#define STREAM_MOST_BYTES ((uint32_t)256 << 10) /* of a file in one answer */
#define STREAM_MOST_LISTED ((uint32_t)1 << 16)  /* the newest ones */
#define STREAM_MOST_ANSWER (STREAM_MESSAGE_HEAD + (size_t)STREAM_MOST_LISTED * 32)
#define STREAM_MANIFEST UINT32_MAX /* instead of a table */

typedef enum {
    STREAM_MESSAGE_NEWEST = 1, /* to all: the newest version; number 0: there is none */
    STREAM_MESSAGE_ASK_LIST,   /* with the newest one that the reader has; 0: none */
    STREAM_MESSAGE_LIST,
    STREAM_MESSAGE_ASK_BYTES,
    STREAM_MESSAGE_BYTES,
    STREAM_MESSAGE_GONE, /* instead of bytes: there is no such version, or no such file, any more */
} StreamMessageKind;

typedef struct {
    uint64_t number, seed;
    uint64_t base, base_seed; /* on which it builds; 0: it has all rows */
} ListedVersion;

typedef struct {
    StreamMessageKind kind;
    uint64_t id;           /* of a question, and of its answer */
    uint64_t number, seed; /* of a version */
    uint32_t table, part;
    uint64_t offset;
    uint32_t n; /* versions of a list; bytes that are asked for, or that follow */
    /* What follows, where it lies: n_bytes of a file, or of versions as they are sent. */
    const void *body;
    size_t n_bytes;
} StreamMessage;

/* Appends the head. */
void stream_message_write(RubatoByteWriter *to, const StreamMessage *message);
void stream_message_write_version(RubatoByteWriter *to, const ListedVersion *version);

/* False: it is none, for what it says or how long it is. The body points into the bytes. */
bool stream_message_read(const void *bytes, size_t n, StreamMessage *message);

/* The versions of a list; false: they do not ascend, or one builds on a later one. versions: room
 * for message->n. */
bool stream_message_read_versions(const StreamMessage *message, ListedVersion *versions);

#endif
