/* The format of all bytes between nodes.
 *
 * A packet is one message of the transport: a prefix, the rest of a PacketHeader, then messages. A
 * message is a WireHeader, then its keys, then its values, each padded to 8 bytes, so that all are
 * aligned if the buffer is. Numbers are little-endian on all hosts.
 *
 *   packet:   0 magic  4 version  6 kind  8 sender  12 flags  16 run id  24 incarnation
 *            32 sequence number  40 acknowledged  48 consumed  56 payload bytes  60 messages
 *   greeting: 0 magic  4 version  6 kind  8 body bytes  12 zero, then the body: a GVariant boxed in
 *             a "v". Its form is the same in all versions, so that they can refuse each other.
 *   message:  0 kind  2 zero  4 epoch  8 key bytes  12 value bytes, then what its kind carries:
 *     request:  16 id  24 table  28 part  32 server  36 worker  40 clock  48 key encoding  52 keys
 *               56 first key; of an announcement: 64 keys in all; of a tuning: 64 number
 *               72 hyper-parameter; of the call of a handler, whose keys are the numbers of its
 *               bytes: 64 number of the call  72 bytes in all; of an input of a replica, and of the
 *               position of one: 16 number of the input, in place of an id  64 sequence number of
 *               the input  76 kind of the input; of a tuning as an input: 56 number
 *               72 hyper-parameter; of an announcement as an input: 72 keys in all
 *     clock:    16 clock  24 table  28 source  32 clock of the node  40 its slowest worker
 *               44 number of the part map
 *     reply:    16 request id  24 status  32 min clock  40 bytes of the answer that still follow
 *     control:  nothing: all of it is in the values
 *
 * No byte is trusted: the readers check that all sizes fit into the bytes that came.
 *
 * Threads: any. The functions depend on their arguments only. */
#ifndef RUBATO_IO_NET_LINK_WIRE_H
#define RUBATO_IO_NET_LINK_WIRE_H

#include <string.h>

#include "io/net/message.h"

#define WIRE_MAGIC 0x4f544252u /* "RBTO" */
#define WIRE_VERSION 45

#define WIRE_PREFIX_BYTES 16
#define WIRE_PACKET_HEADER_BYTES 64
#define WIRE_MESSAGE_HEADER_BYTES 80

/* The largest packet that a node accepts. */
#define WIRE_MAX_PACKET_BYTES ((size_t)1 << 30)

/* The most bytes that the keys and values of one message may take together, padding included. */
#define WIRE_MAX_PAYLOAD_BYTES \
    (WIRE_MAX_PACKET_BYTES - WIRE_PACKET_HEADER_BYTES - WIRE_MESSAGE_HEADER_BYTES)

/* The largest body of a greeting. */
#define WIRE_MAX_GREETING_BYTES ((size_t)1 << 20)

typedef enum {
    WIRE_KEYS_RUN = 0,    /* no keys follow: they are first_key .. first_key + n_keys - 1 */
    WIRE_KEYS_LIST = 1,   /* n_keys keys of 8 bytes follow */
    WIRE_KEYS_DELTAS = 2, /* the first is first_key; the others' differences follow: key_codec.h */
} WireKeys;

/* What every request to a server carries. */
typedef struct {
    uint64_t id; /* comes back with the reply; 0: no reply is expected */
    uint32_t table;
    uint32_t part; /* of the table */
    uint32_t server;
    uint32_t worker;
    uint64_t clock; /* the worker's; of an announcement: the iteration */
    uint64_t n_keys;
    uint64_t first_key; /* WIRE_KEYS_RUN, WIRE_KEYS_DELTAS */
    union {
        uint64_t node_clock;  /* MESSAGE_GET, MESSAGE_ADD_GET: as Message.node_clock; first, so that
                               * it is 0 unless a kind sets another member */
        uint64_t n_announced; /* MESSAGE_ANNOUNCE: as RubatoRequest.n_announced */
        RubatoTuning tuning;  /* MESSAGE_TUNE */
        struct {
            uint64_t serial, n_bytes; /* as RubatoRequest.piece */
        } piece;                      /* MESSAGE_HANDLER */
        struct {
            uint64_t sequence; /* as Message.sequence */
            uint32_t hyper;    /* of a tuning, whose number is in the place of the first key; of
                                * an announcement: n_announced; of a piece of a handler's call:
                                * n_bytes */
            uint32_t kind;     /* as Message.fed_kind */
            uint64_t number;   /* as Message.number */
        } input;               /* MESSAGE_FEED, MESSAGE_POSITION: no reply is expected */
    };
} WireRequest;

/* MESSAGE_CLOCK. Its values are an array of WirePosition, which may be empty. */
typedef struct {
    uint32_t table;
    uint32_t source;     /* as MessageClock.source */
    uint64_t clock;      /* that it has reached */
    uint64_t node_clock; /* for messages to the user: the clock of the node, */
    uint32_t slowest;    /* and the rank of its slowest worker */
    uint32_t map;        /* as MessageClock.map */
} WireClock;

/* How far requests have to have come from one node to another: see network_pushed. In a clock that
 * goes to the root, `node` is the receiver of these requests; their sender is that of the clock;
 * in one that comes from the root, `node` is the sender. */
typedef struct {
    uint64_t node;
    uint64_t pushed;
} WirePosition;

/* MESSAGE_REPLY */
typedef struct {
    uint64_t request_id;
    CallStatus status;
    uint64_t min_clock;  /* the shard's when it read the rows */
    uint64_t more_bytes; /* of a handler's result: bytes that further replies bring */
} WireReply;

/* The header of a message, as a host struct. It has no padding: with padding, gcc 12 clears all of
 * it before it sets the members, which each small Add would pay for. */
typedef struct {
    MessageKind kind;     /* below MESSAGE_N_WIRE_KINDS */
    uint32_t is_high;     /* of a request or a reply: 1 if it has high priority */
    uint32_t epoch;       /* the task's */
    WireKeys keys;        /* of a request: how its keys are written */
    uint64_t key_bytes;   /* WIRE_KEYS_LIST: 8 × n_keys; WIRE_KEYS_RUN: 0; WIRE_KEYS_DELTAS: any */
    uint64_t value_bytes; /* below 2^32, as all of a packet */
    union {
        WireRequest request; /* all other kinds but those of control, services and tensors, which
                              * carry values alone */
        WireClock clock;
        WireReply reply;
    };
} WireHeader;

typedef enum {
    PACKET_LINK = 1,
    PACKET_GREETING = 2,
} PacketKind;

enum {
    PACKET_ASK = 1,   /* answer at once with what you acknowledge and have consumed */
    PACKET_AGAIN = 2, /* send again what follows the packet that I acknowledge */
};

typedef struct {
    uint32_t sender; /* node number */
    uint32_t flags;
    uint64_t run_id;
    uint64_t incarnation; /* the sender's */
    uint64_t sequence;    /* 1, 2, 3, … for each receiver; 0: no messages, not numbered */
    uint64_t ack;         /* every packet up to this one has come */
    uint64_t consumed;    /* bytes of the receiver's requests that the sender has done with */
    uint32_t payload_bytes;
    uint32_t n_messages;
} PacketHeader;

/* n rounded up to the next multiple of 8. */
static inline size_t wire_padded(size_t n)
{
    return (n + 7) & ~(size_t)7;
}

/* Little-endian numbers at any address. Rows and keys are also sent as they are in memory. */
G_STATIC_ASSERT(G_BYTE_ORDER == G_LITTLE_ENDIAN);

static inline void wire_store_u16(void *at, uint16_t value)
{
    memcpy(at, &value, sizeof value);
}

static inline void wire_store_u32(void *at, uint32_t value)
{
    memcpy(at, &value, sizeof value);
}

static inline void wire_store_u64(void *at, uint64_t value)
{
    memcpy(at, &value, sizeof value);
}

static inline uint16_t wire_load_u16(const void *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline uint32_t wire_load_u32(const void *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline uint64_t wire_load_u64(const void *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* Stores key i of a message's key list. */
static inline void wire_store_key(void *keys, size_t i, RubatoKey key)
{
    wire_store_u64((uint8_t *)keys + 8 * i, key);
}

/* Bytes of a message in a packet, its padding included. The header's sizes are in bounds. */
static inline size_t wire_message_bytes(const WireHeader *header)
{
    return WIRE_MESSAGE_HEADER_BYTES + wire_padded((size_t)header->key_bytes) +
           wire_padded((size_t)header->value_bytes);
}

/* Whether a message takes room in its receiver until it is handled. Requests do, and wait for room.
 * Replies and control messages must never wait. */
static inline bool wire_is_charged(MessageKind kind)
{
    return kind != MESSAGE_REPLY && kind != MESSAGE_CONTROL;
}

/* Writes WIRE_PACKET_HEADER_BYTES, WIRE_MESSAGE_HEADER_BYTES and WIRE_PREFIX_BYTES bytes. */
void wire_write_packet_header(void *at, const PacketHeader *header);
void wire_write_message_header(void *at, const WireHeader *header);
void wire_write_greeting_prefix(void *at, uint16_t version, uint32_t body_bytes);

/* Reads the beginning that packets of all versions share. Returns NULL, or what is wrong with
 * it. */
const char *wire_read_prefix(const void *bytes, size_t size, uint16_t *version, PacketKind *kind);

/* Reads the header of a PACKET_LINK packet of this version. NULL, or what is wrong with it. */
const char *wire_read_packet_header(const void *bytes, size_t size, PacketHeader *header);

/* Finds the body of a PACKET_GREETING packet of any version. NULL, or what is wrong with it. */
const char *wire_read_greeting(const void *bytes, size_t size, size_t *body_bytes);

/* Reads the message at the start of a packet's remaining bytes. Returns NULL, or what is wrong with
 * it; then the header has no meaning, and the rest of the packet cannot be read. Of the union only
 * what the kind carries is set. */
const char *wire_read_message(const void *bytes, size_t size, WireHeader *header);

#endif
