/* What the files of node_reader.h share:
 *
 *   node_reader_status.c  how far its workers have come
 *   node_reader_source.c  a worker's source of blocks
 *   node_reader_rows.c    rows that are done, for snapshots
 *   node_reader.c         its life, and its queues of blocks
 *
 * A file of this list calls only those below it. Threads: as node_reader.h says. */
#ifndef RUBATO_ENGINE_TASK_NODE_READER_PRIVATE_H
#define RUBATO_ENGINE_TASK_NODE_READER_PRIVATE_H

#include "engine/task/block_ticket_codec.h"
#include "engine/task/node_reader.h"

#define NODE_READER_NEWS_MAX (CONTROL_MAX_LINES / 2) /* bytes; longer news is sent at once */
#define NODE_READER_WANTS_END UINT32_MAX /* for a number of blocks: only to hear that all was had */

/* Blocks of some readers, of all the node's or of one. The node reader's lock guards all but
 * `worker`. */
typedef struct {
    uint32_t worker;   /* the rank of the one; 0: of all */
    GArray *ready;     /* of BlockTicket, the next one last */
    GString *news;     /* results of earlier tickets */
    bool asked;        /* a request for blocks is under way */
    bool has_asked;    /* so there may be results to tell */
    bool ended;        /* no more blocks will come */
    uint32_t n_active; /* readers that may take more */
} ReaderQueue;

struct NodeReader {
    _Atomic uint32_t n_refs;

    /* immutable */
    const TaskHost *host;
    char *task;
    uint32_t epoch;
    uint32_t id;
    uint32_t stall_ms;
    RubatoDataset *dataset;
    RubatoReaderOptions options;
    uint32_t n_queues;
    bool are_apart; /* each worker has a queue */
    ReaderQueue *queues;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock */
    uint32_t n_sending; /* threads that are telling the scheduler results of tickets */
    bool announced;
    bool cancelled;    /* the task */
    bool closed;       /* the task is over */
    GPtrArray *places; /* of WorkerPlace */
    GArray *begun;     /* of BlockTicket: of readers that are kept, those with rows done and not */
    GArray *log;       /* of LoggedRows, as they were done */
    guint log_limit;   /* its length at which it is looked through next */
};

/* Rows that a worker said to be done in a step which it began at that clock. */
typedef struct {
    uint64_t clock;
    BlockTicket rows; /* n_read to end */
} LoggedRows;

/* How far a worker has come. */
typedef struct {
    uint32_t rank;
    ReaderProgress progress;
} WorkerPlace;

/* One worker's source of blocks. */
typedef struct {
    BlockSource source;
    NodeReader *node_reader;
    ReaderQueue *queue;
    bool ended; /* guarded by the node reader's lock */
} NodeReaderSource;

/* ---- node_reader.c: the lock is held ---- */

/* The task is cancelled, or over. */
bool node_reader_is_over(const NodeReader *node_reader);

/* "fixed" or "dynamic". Needs no lock. */
const char *node_reader_split_name(RubatoSplit split);

/* The queue of a worker; NULL: it is not of this node. Needs no lock. */
ReaderQueue *node_reader_find_queue(const NodeReader *node_reader, uint32_t worker);

/* Requests blocks, or sends only news if wanted is 0. The lock is released while the message is
 * sent. */
void node_reader_send_want(NodeReader *node_reader, ReaderQueue *queue, uint32_t wanted);

/* What became of a ticket, which is told with the next request, or at once if there is much. */
void node_reader_add_news(NodeReader *node_reader, ReaderQueue *queue, BlockTicketEvent news,
                          const BlockTicket *ticket);

/* Requests more blocks if the queue is short. */
void node_reader_ask(NodeReader *node_reader, ReaderQueue *queue);

/* Gives back the blocks that no reader of this node will read any more. */
void node_reader_empty(NodeReader *node_reader, ReaderQueue *queue);

/* ---- node_reader_rows.c: the lock is held ---- */

/* Rows of the ticket are done, by a worker that gave it back: a snapshot has to hear of them while
 * the next worker reads on. */
void node_reader_note_begun(NodeReader *node_reader, const BlockTicket *ticket);

/* The ticket is no longer one that a worker has begun. */
void node_reader_forget_begun(NodeReader *node_reader, const BlockTicket *ticket);

#endif
