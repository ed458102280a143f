/* A node's routing: messages to a server go straight to its actor where it lives on this node, and
 * into a frame for its node where it does not; answers find the call that waits for them.
 *
 * Threads: post_office_set_server and _set_network before any other thread knows the office; the
 * rest from any thread. */
#ifndef RUBATO_IO_NET_POST_OFFICE_H
#define RUBATO_IO_NET_POST_OFFICE_H

#include <pthread.h>

#include "io/net/actor.h"
#include "io/net/flow_sizes.h"
#include "io/net/network.h"

typedef struct {
    uint32_t node; /* number */
    Actor *actor;  /* NULL: lives on another node */
} ServerAddress;

typedef struct PendingRequest PendingRequest;

/* Hears the clocks of other nodes on a table, in a task. */
typedef struct ClockListener ClockListener;
struct ClockListener {
    uint32_t epoch;
    uint32_t table;
    /* May not block. */
    void (*hear)(ClockListener *listener, uint32_t node, const WireClock *clock);
    ClockListener *next; /* the office's */
};

typedef struct {
    /* immutable */
    uint32_t self; /* this node's number */
    uint32_t n_nodes;
    uint32_t n_servers; /* of all nodes */
    size_t most_inline; /* values of another node's request that whoever receives it may handle */
    uint32_t *node_ids; /* by number; for messages */
    ServerAddress *servers;
    FlowSizes sizes;
    Network *network; /* NULL in a single process */

    /* whoever receives, one thread at a time */
    size_t inline_left; /* values that it may still handle itself in this batch */

    pthread_mutex_t listener_lock;
    ClockListener *listeners; /* guarded by listener_lock */

    pthread_mutex_t lock;
    /* guarded by lock: what was asked of other nodes and is not answered yet */
    PendingRequest *pending;
    uint32_t n_pending_slots;
    uint32_t first_free;
} PostOffice;

/* The most bytes of rows that one message to or from another node carries, whatever that node's
 * sizes are: what a receiver refuses beyond. */
#define POST_OFFICE_MAX_VALUE_BYTES ((size_t)512 << 10)

/* The most keys of rows so long that one message to or from another node carries; 0: of keys
 * without rows. */
size_t post_office_max_keys(size_t row_bytes);

void post_office_init(PostOffice *office, uint32_t self, uint32_t n_nodes, const uint32_t *node_ids,
                      const uint32_t *servers_of, const FlowSizes *sizes);
void post_office_clear(PostOffice *office);

static inline bool post_office_is_local(const PostOffice *office, uint32_t server)
{
    return office->servers[server].actor != NULL;
}

/* Asks a server. message->call has one part for it already; more are added where the request
 * becomes several messages. A part for which there is no memory ends with CALL_NO_MEMORY. The
 * message, its keys, its input and its output stay where they are until the call has ended. Asked
 * of another node it leaves with the next flush. */
void post_office_ask(PostOffice *office, Message *message);

/* Tells a server, which may answer to message->call, or to nobody (NULL); sets message->end. The
 * message, its keys and its input may be reused at once; it has no output. Returns the bytes that
 * had to be copied into a busy local server's mailbox, 0 where it was handled at once or sent.
 * POST_OFFICE_UNSENT: there is no memory to send all of it, and a call has heard so. */
#define POST_OFFICE_UNSENT SIZE_MAX
size_t post_office_tell(PostOffice *office, Message *message);

/* The same for a MESSAGE_CLOCK to a server of this node. */
void post_office_tell_local_clock(PostOffice *office, Message *message);

/* Tells every other node a clock: of source (a node number, or a worker's rank where the table's
 * model wants those), and, for messages to the user, the node's clock and its slowest worker. */
void post_office_tell_clock(PostOffice *office, uint32_t epoch, uint32_t table, uint32_t source,
                            uint64_t clock, uint64_t node_clock, uint32_t slowest);

/* Sends what was asked and told of other nodes since the last flush, in one packet for each. */
void post_office_flush(PostOffice *office);

/* The same for what nobody waits for: see network_flush_soon. */
void post_office_flush_soon(PostOffice *office);

/* Ends, as cancelled, what waits for an answer of another node: of one epoch, or of all with
 * POST_OFFICE_ALL_EPOCHS. */
#define POST_OFFICE_ALL_EPOCHS UINT32_MAX
void post_office_cancel(PostOffice *office, uint32_t epoch);

/* call_wait for calls that may have been asked of other nodes: see network_help. */
bool post_office_wait(PostOffice *office, Call *call, int timeout_ms);

/* Whether, and of which node, a call waits for an answer; for messages. */
bool post_office_waits_for(PostOffice *office, const Call *call, uint32_t *node);

/* From now on, and until post_office_unlisten has returned, the listener hears each clock before
 * this node's servers do: on the thread that receives it, with no lock held but the listeners'. */
void post_office_listen(PostOffice *office, ClockListener *listener);
void post_office_unlisten(PostOffice *office, ClockListener *listener);

/* A message other than MESSAGE_CONTROL came; takes it over. Returns what is wrong with it, NULL
 * where nothing is. Whoever receives calls this, one at a time, and it takes no lock that is held
 * for long. */
const char *post_office_receive(PostOffice *office, Incoming *incoming);

/* What that does with each kind. */

/* A MESSAGE_REPLY came. Returns what is wrong with it, NULL where nothing is. An answer that nobody
 * waits for any more is dropped. */
const char *post_office_receive_reply(PostOffice *office, const Incoming *incoming);

/* A request for one of this node's servers came; takes it over. Returns what is wrong with it, NULL
 * where nothing is; a wrong one is freed. */
const char *post_office_receive_request(PostOffice *office, Incoming *incoming);

/* A MESSAGE_CLOCK came: its listener hears it, and every server of this node gets it. */
void post_office_receive_clock(PostOffice *office, const Incoming *incoming);

/* The last packet of a batch was taken in: sends what there is to send. */
void post_office_end_batch(PostOffice *office);

/* Bytes of NetworkConfig.room_bytes that the office needs. */
size_t post_office_room_bytes(void);

/* A Get stays with its model until a clock releases it: one of another node no longer takes any of
 * that node's window. The server. */
void post_office_park(Message *message);

/* Makes room for so many bytes of output; for a request of another node, by the server, right
 * before it fills them. False where the memory is not there. */
bool post_office_make_room(Message *message, size_t n_bytes);

#endif
