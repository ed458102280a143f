/* A node's routing. A message to a server of this node goes straight to the server's actor. A
 * message to another node's server goes into a frame for that node. An answer goes to the call that
 * waits for it.
 *
 * Threads: post_office_set_server and _set_network before any other thread knows the office; the
 * rest from any thread. */
#ifndef RUBATO_IO_NET_POST_OFFICE_POST_OFFICE_H
#define RUBATO_IO_NET_POST_OFFICE_POST_OFFICE_H

#include <pthread.h>

#include "io/net/actor.h"
#include "io/net/flow_sizes.h"
#include "io/net/network/network.h"
#include "io/net/post_office/inline_work.h"

typedef struct {
    uint32_t node; /* number */
    Actor *actor;  /* NULL: it is on another node */
    /* The handler that the server runs now; of a server of another node, that it runs for long. For
     * messages; NULL: none. */
    _Atomic(const char *) handler;
} ServerAddress;

typedef struct PendingRequest PendingRequest;

/* Gets the clocks of other nodes on a table, in a task. */
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
    size_t most_inline; /* values of another node's request that the receiving thread may handle */
    uint32_t *node_ids; /* by number; for messages */
    ServerAddress *servers;
    FlowSizes sizes;
    Network *network;  /* NULL in a single process */
    uint32_t stall_ms; /* a thread that waits so long for room says so */

    /* any thread */
    _Atomic uint64_t n_handler_calls; /* of handlers that write, and calls to other nodes */
    _Atomic bool has_ended; /* all epochs are cancelled; nothing waits for room any more */
    _Atomic bool goes_on;   /* the run may go on without a lost node */

    /* the receiving thread only, one at a time */
    InlineWork inline_work; /* what it handles itself; servers measure */
    uint64_t *required; /* by node: what has to come of it before the next common clock counts */
    GPtrArray *early;   /* common clocks for which not all has come */

    pthread_mutex_t listener_lock;
    ClockListener *listeners; /* guarded by listener_lock */

    /* for clocks between more than two nodes: see post_office_clocks.c */
    uint32_t root;               /* immutable: the number of the node that collects them */
    _Atomic bool *has_sent_high; /* by node; any thread */
    pthread_mutex_t clock_lock;
    /* guarded by clock_lock */
    uint64_t *reported;          /* by node: the position that the root was told last */
    struct RootPositions *known; /* the root's; NULL: none has come */
    WirePosition *positions;     /* room for one of each node */

    pthread_mutex_t lock;
    /* guarded by lock: requests to other nodes that are not answered yet */
    PendingRequest *pending;
    uint32_t n_pending_slots;
    bool *is_lost;    /* by node */
    uint64_t n_asked; /* requests that have had a slot, of all processes of the node */
    uint32_t first_free;
} PostOffice;

/* The id of a request to another node is its number, among all that the office has asked, and then
 * its slot, in so many bits. */
#define POST_OFFICE_SLOT_BITS 20

/* The most bytes of rows that one message to or from another node carries, whatever that node's
 * sizes are. A receiver refuses more. */
#define POST_OFFICE_MAX_VALUE_BYTES ((size_t)512 << 10)

/* The most keys that one message to or from another node carries, with rows of row_bytes; 0: keys
 * without rows. */
size_t post_office_max_keys(size_t row_bytes);

void post_office_init(PostOffice *office, uint32_t self, uint32_t n_nodes, const uint32_t *node_ids,
                      const uint32_t *servers_of, const FlowSizes *sizes);

/* No other thread uses the office any more. Calls that still wait for an answer, which nobody can
 * receive from now on, end as cancelled. */
void post_office_clear(PostOffice *office);

static inline bool post_office_is_local(const PostOffice *office, uint32_t server)
{
    return office->servers[server].actor != NULL;
}

/* So many processes have had this node's place before: the ids of its requests are greater than
 * theirs, which parts know. Before the first request. False: there were too many. */
bool post_office_count_from(PostOffice *office, uint32_t n_before);

/* Another process has the place of a lost node. What waits for answers of that node and has not
 * been sent again has ended, as after post_office_lose_node. Any thread. */
void post_office_regain_node(PostOffice *office, uint32_t node);

/* Asks a server. message->call already has one part for it; more are added if the request becomes
 * several messages. A part for which there is no memory ends with CALL_NO_MEMORY. The caller keeps
 * the message, its keys, input and output until the call has ended. A request to another node
 * leaves with the next flush. */
void post_office_ask(PostOffice *office, Message *message);

/* Calls a handler: a MESSAGE_HANDLER whose end is handler_call_end. As post_office_ask, but never
 * on this thread: a server of this node handles it on its own one. */
void post_office_call_handler(PostOffice *office, Message *message);

/* The same, but this thread handles it if it is for a server of this node that is idle. Not for
 * handlers of a program: these run on servers' threads. */
void post_office_call_handler_here(PostOffice *office, Message *message);

/* A call of another node is complete: the message is done with it, and frees it, when it ends. The
 * server calls this. (call: transfer full, one block) */
typedef struct HandlerCall HandlerCall;
void post_office_give_call(Message *message, HandlerCall *call);

/* Tells a server, which may answer to message->call, or not at all (NULL). Sets message->end. The
 * message, its keys and its input may be reused at once; it has no output. Returns the bytes that
 * had to be copied into a busy local server's mailbox; 0 if the message was handled at once or
 * sent. POST_OFFICE_UNSENT: there is no memory to send all of it; a call has been told. */
#define POST_OFFICE_UNSENT SIZE_MAX
size_t post_office_tell(PostOffice *office, Message *message);

/* Sends a message that nobody waits for to a server of another node, in one piece of at most
 * POST_OFFICE_MAX_VALUE_BYTES, with the next flush. It waits for no room. The message, its keys and
 * its input may be reused at once. False: there is no memory for it. */
bool post_office_push(PostOffice *office, const Message *message);

/* The same for a MESSAGE_CLOCK to a server of this node. */
void post_office_tell_local_clock(PostOffice *office, Message *message);

/* To be called between the pieces of a call that a node gets, or that a server of this node passes
 * on to it: if many windows are under way to the node, waits for room, as any sender does. The wait
 * ends when the node has handled what it got, or is lost, or the run ends. Never on a thread that
 * has to handle messages. */
void post_office_pace(PostOffice *office, uint32_t node);

/* Tells every other node a clock of this node, or of one of its workers. */
void post_office_tell_clock(PostOffice *office, uint32_t epoch, const WireClock *clock);

/* Tells it the root alone, which is another node. */
void post_office_report_clock(PostOffice *office, uint32_t epoch, const WireClock *clock);

/* Tells every other node a clock that all nodes have reached, as this node, the root, has heard or
 * knows of itself. False: a node was left out, because much is under way to it; it is to be told
 * later. Calls that concern one table come one at a time, the lowest clock first. */
bool post_office_spread_clock(PostOffice *office, uint32_t epoch, const WireClock *clock);

/* Sends the messages for other nodes since the last flush, in one packet for each node. */
void post_office_flush(PostOffice *office);

/* The same for messages that no thread waits for: see network_flush_soon. */
void post_office_flush_soon(PostOffice *office);

/* The same for messages that may wait for the worker's next request: see network_flush_later. */
void post_office_flush_later(PostOffice *office);

/* Ends, as cancelled, the requests that wait for an answer of another node: those of one epoch, or
 * all with POST_OFFICE_ALL_EPOCHS. */
#define POST_OFFICE_ALL_EPOCHS UINT32_MAX
void post_office_cancel(PostOffice *office, uint32_t epoch);

/* The run has ended for this node: nothing waits for room any more, and if the run may go on
 * without this node, other nodes get no answer that their request is cancelled. Before the tasks
 * are cancelled; post_office_cancel of all epochs does it, too. */
void post_office_end(PostOffice *office);

/* call_wait for calls that may have gone to other nodes: see network_help. */
bool post_office_wait(PostOffice *office, Call *call, int timeout_ms);

/* Whether, and of which node, a call waits for an answer; for messages. */
bool post_office_waits_for(PostOffice *office, const Call *call, uint32_t *node);

/* Ends, as cancelled, what those calls wait for that the function names, and that only the answer
 * of a lost node could end. */
void post_office_leave_calls(PostOffice *office, uint32_t node,
                             bool (*is_one)(const Call *call, const void *data), const void *data);

/* A node is lost: fences of its servers end, now and from now on. */
void post_office_lose_node(PostOffice *office, uint32_t node);

/* Ends fences of servers of nodes that were lost before they were asked. */
void post_office_end_fences(PostOffice *office);

/* Sends again, in their order, the requests about a part that wait for an answer of another node:
 * to the server that has the part now. For parts that know what they have had (a table with
 * replicas): what was done is not done again. It may be sent at any time; but what a server may be
 * sent before must not come behind. A call of a handler ends as CALL_MOVED. */
void post_office_send_again(PostOffice *office, uint32_t table, uint32_t part, uint32_t server);

/* The same of what waits for an answer of one node, from which the part had moved away before it
 * was lost: its server had handled all that it was sent, and passed on what waited. So what changes
 * rows is not sent again, and ends; an add_get is read again. For parts without replicas. */
void post_office_ask_again(PostOffice *office, uint32_t node, uint32_t table, uint32_t part,
                           uint32_t server);

typedef struct {
    uint32_t table, part;
} AskedPart;

/* The parts about which requests wait for an answer of that node, each once. (element-type
 * AskedPart, transfer full) */
GArray *post_office_list_asked(PostOffice *office, uint32_t node);

/* From now on, until post_office_unlisten has returned, the listener gets each clock before this
 * node's servers do: on the thread that receives it, with only the listeners' lock held. */
void post_office_listen(PostOffice *office, ClockListener *listener);
void post_office_unlisten(PostOffice *office, ClockListener *listener);

/* A message other than MESSAGE_CONTROL came; takes it over. Returns what is wrong with it; NULL if
 * nothing is. The receiving thread calls this, one at a time. It takes no lock that is held for
 * long. */
const char *post_office_receive(PostOffice *office, Incoming *incoming);

/* The same for each kind. */

/* A MESSAGE_REPLY came. Returns what is wrong with it; NULL if nothing is. An answer for which no
 * call waits any more is dropped. */
const char *post_office_receive_reply(PostOffice *office, const Incoming *incoming);

/* A reply of the node is arriving, which brings the header.value_bytes that follow. True: the
 * direct read was started, because all of them go to one place of the caller's. It has to be ended,
 * after the reply was received, or if it never is. False: they are to be read to a block. Receiving
 * thread. */
bool post_office_begin_direct(PostOffice *office, uint32_t node, const WireHeader *header,
                              DirectRead *direct);
void post_office_end_direct(PostOffice *office, DirectRead *direct);

/* A request for one of this node's servers came; takes it over. Returns what is wrong with it; NULL
 * if nothing is. A wrong one is freed. */
const char *post_office_receive_request(PostOffice *office, Incoming *incoming);

/* A MESSAGE_CLOCK came: its listener and every server of this node get it, now or when all that it
 * counts has come. Returns what is wrong with it; NULL if nothing is. */
const char *post_office_receive_clock(PostOffice *office, const Incoming *incoming);

/* Whether the receiving thread may handle another request of any size itself in this batch. */
bool post_office_takes_more(const PostOffice *office);

/* The last packet of a batch was handled: sends everything that is queued. */
void post_office_end_batch(PostOffice *office);

/* Bytes of NetworkConfig.room_bytes that the office needs. */
size_t post_office_room_bytes(void);

/* Whether a request's input lies in memory that is there only until the receiving thread, which
 * handles it, is done with it; and has it copied, so that the request may be kept. Called by the
 * server, or before the request goes to another thread. */
bool post_office_is_lent(const Message *message);
void post_office_own(Message *message);

/* A Get that its model may park. If it came in a packet with others and is small, moves it to
 * memory of its own, so that it keeps no more than it needs. Returns the message, which may lie
 * elsewhere now. Called by the server before the model gets the message. */
Message *post_office_detach(Message *message);

/* A Get stays with its model until a clock releases it. If it is of another node, it no longer
 * takes room in that node's window. row_bytes: of the rows that it will need. False if more is kept
 * for that node's parked Gets now than is allowed. Called by the server. */
bool post_office_park(Message *message, size_t row_bytes);

/* Makes room for n_bytes of output. The server calls this for a request of another node,
 * right before it fills the output. False if there is no memory. */
bool post_office_make_room(Message *message, size_t n_bytes);

/* The same, but the rows need not be copied to request.output: they lie at `rows`, and stay as they
 * are until the message is given back. rows NULL takes that back: they are in request.output now.
 * False: they have to be copied, because nothing would be saved; or there is no memory. */
bool post_office_lend(Message *message, const void *rows, size_t n_bytes);

#endif
