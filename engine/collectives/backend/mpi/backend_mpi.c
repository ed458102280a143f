/* The backend "mpi": messages of collectives go by MPI between the processes that mpirun or srun
 * has started. See tensor_backend.h.
 *
 * DESIGN NOTE
 *
 * Messages go from process to process (MPI_Isend, MPI_Improbe). MPI's own collectives are not
 * used. They combine values in an order of their own, know no halves, and all processes have to
 * call them in one order, also for an operation that has failed on some of them. So results keep
 * their bits, Adasum and compression work, a set of workers needs no communicator, and an operation
 * that fails leaves nothing behind that others wait for. A piece has some 100 KB, so that no count
 * is too large for an int.
 *
 * One thread calls MPI once it has begun. (MPI begins, and the communicator is made, on the thread
 * that makes the engine, before this thread starts; it is freed there behind its end.) Others put
 * what they send into a queue. No call of MPI blocks: the thread tests what has begun. While
 * operations run here, or something is on its way out, it polls, as MPI wants it, and after a while
 * without news it sleeps between two looks so that workers get its core. Otherwise it waits for
 * news from this node, and looks rarely: messages that come meanwhile are for operations that will
 * run, and MPI keeps them; or for those that have failed here, and then their senders wait for no
 * more than the next look.
 *
 * The order of messages from one node is kept: MPI matches them in order, and they are handed over
 * in the order in which they were matched, although a large one may be complete behind a small one.
 *
 * Each wait ends. What is sent is received whatever the receiver waits for, because its thread
 * waits for nobody: it takes messages in, or they are kept (TensorWays.keep). So whoever waits for
 * room gets it, unless a node dies. Then the network notices, and cancels the task. If MPI itself
 * reports an error, the run is stopped with its words, and nothing is sent or received any more.
 *
 * Open MPI may not return from a call once a process is gone to which it has connected by TCP: it
 * handles the same event for ever. So the engine's end does not wait for its thread for long then,
 * and leaves it behind, with the memory that it uses.
 *
 * At the end each node sends an empty message to all others, and receives until it has got those of
 * all. Since order is kept, nothing is on its way then, and MPI may end. */
#include <rubato/error.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "engine/cluster/jobs/job_environment.h"
#include "engine/collectives/backend/mpi/mpi_library.h"
#include "engine/collectives/backend/tensor_backend.h"
#include "io/net/log_sink.h"
#include "io/net/monotonic.h"

enum {
    TAG = 1,
    MOST_UNDER_WAY = 64,  /* of what is received, and of what is sent */
    ROOM_BYTES = 2 << 20, /* on their way to a node: a step that sends begins below this */
    FULL_BYTES = 8 << 20, /* and other threads than waiting ones send no more above this */
    N_POLLS = 2000,       /* without news, until the thread sleeps between two */
    NAP_MS = 1,           /* so long */
    LOOK_MS = 50,         /* between two looks while nothing is expected, or of a wait for room */
    RETURN_MS = 1000,     /* for a call of MPI to return, before its thread is left behind */
};

typedef struct MpiBackend MpiBackend;

/* A message: here and in MPI. */
typedef struct {
    uint32_t node; /* from which it comes, or to which it goes */
    bool is_kept;
    size_t n_bytes;
    struct {
        uint64_t epoch;
        uint8_t header[TENSOR_MESSAGE_HEADER_BYTES];
        uint8_t values[]; /* as aligned as the rest */
    } wire __attribute__((aligned(16)));
} Piece;

enum {
    WIRE_HEADER_BYTES = sizeof(uint64_t) + TENSOR_MESSAGE_HEADER_BYTES,
    MOST_WIRE_BYTES = WIRE_HEADER_BYTES + TENSOR_MESSAGE_MOST_BYTES,
};

/* Pieces that MPI has, and its requests for them. */
typedef struct {
    Piece *pieces[MOST_UNDER_WAY];
    MPI_Request requests[MOST_UNDER_WAY];
    uint32_t n;
} UnderWay;

struct MpiBackend {
    TensorBackend base;

    /* immutable */
    TensorBackendPlace place;
    const MpiLibrary *mpi;
    MPI_Comm comm;
    int *rank_of;      /* by node number */
    uint32_t *node_of; /* by rank */
    size_t most_kept;  /* bytes of one node */
    pthread_t thread;

    /* the thread's */
    UnderWay sent, received; /* of `received` the oldest is first */
    uint32_t n_polls;        /* without news */
    uint32_t n_ended;        /* nodes that send no more */

    pthread_mutex_t lock;
    pthread_cond_t news; /* for the thread */
    pthread_cond_t room; /* pieces have gone, or it is broken */
    /* guarded by lock */
    GQueue out;                          /* of Piece */
    size_t *out_bytes;                   /* by node: of those and of `sent` */
    size_t *kept_bytes;                  /* by node */
    uint32_t n_expecting;                /* exchanges */
    bool is_closing, is_broken, is_over; /* it is over: the thread has ended, or will */
    bool has_returned;                   /* the thread calls MPI no more */
};

static MpiBackend *mpi_of(TensorBackend *backend)
{
    return (MpiBackend *)(void *)backend;
}

static bool refuse(GError **error, const char *format, ...) G_GNUC_PRINTF(2, 3);

static bool refuse(GError **error, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    g_autofree char *text = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CONFIG, "collectives = \"mpi\": %s", text);
    return false;
}

/* ---- what an exchange calls ---- */

static Piece *piece_new(uint32_t node, size_t n_bytes)
{
    Piece *const piece =
        n_bytes > SIZE_MAX - sizeof *piece ? NULL : g_try_malloc(sizeof *piece + n_bytes);

    if (piece == NULL)
        return NULL;
    piece->node = node;
    piece->is_kept = false;
    piece->n_bytes = n_bytes;
    return piece;
}

static void *new_message(TensorBackend *backend, uint32_t node, uint32_t epoch,
                         const TensorMessage *message, void **bytes)
{
    Piece *const piece = piece_new(UINT32_MAX, WIRE_HEADER_BYTES + message->n_bytes);

    (void)backend;
    (void)node;
    if (piece == NULL)
        return NULL;
    piece->wire.epoch = epoch;
    tensor_message_write(message, piece->wire.header);
    *bytes = piece->wire.values;
    return piece;
}

static void forget(TensorBackend *backend, uint32_t node, void *message)
{
    (void)backend;
    (void)node;
    g_free(message);
}

static void send_message(TensorBackend *backend, uint32_t node, void *message)
{
    MpiBackend *const it = mpi_of(backend);
    Piece *const piece = message;

    piece->node = node;
    pthread_mutex_lock(&it->lock);
    const bool takes = !it->is_over;
    if (takes) {
        it->out_bytes[node] += piece->n_bytes;
        g_queue_push_tail(&it->out, piece);
        pthread_cond_signal(&it->news);
    }
    pthread_mutex_unlock(&it->lock);
    if (!takes)
        g_free(piece);
}

/* It stays where it is: the thread has received it into memory of its own. */
static void *keep(TensorBackend *backend, void *message, const void **bytes)
{
    MpiBackend *const it = mpi_of(backend);
    Piece *const piece = message;

    *bytes = piece->wire.values;
    pthread_mutex_lock(&it->lock);
    piece->is_kept = it->kept_bytes[piece->node] + piece->n_bytes <= it->most_kept;
    if (piece->is_kept)
        it->kept_bytes[piece->node] += piece->n_bytes;
    pthread_mutex_unlock(&it->lock);
    if (piece->is_kept)
        return piece;
    g_free(piece);
    return NULL;
}

static void drop(TensorBackend *backend, void *message)
{
    MpiBackend *const it = mpi_of(backend);
    Piece *const piece = message;

    if (piece->is_kept) {
        pthread_mutex_lock(&it->lock);
        it->kept_bytes[piece->node] -= piece->n_bytes;
        pthread_mutex_unlock(&it->lock);
    }
    g_free(piece);
}

static bool is_full(TensorBackend *backend, uint32_t node)
{
    MpiBackend *const it = mpi_of(backend);

    pthread_mutex_lock(&it->lock);
    const bool full = it->out_bytes[node] > FULL_BYTES;
    pthread_mutex_unlock(&it->lock);
    return full;
}

/* It looks now and then whether the wait is over, because nobody says so. */
static bool wait_room(TensorBackend *backend, uint32_t node, bool (*is_over)(void *data),
                      void *data, int timeout_ms)
{
    MpiBackend *const it = mpi_of(backend);
    const int64_t end_ms = monotonic_ms() + timeout_ms;
    bool ends;

    pthread_mutex_lock(&it->lock);
    while (!(ends = it->out_bytes[node] <= ROOM_BYTES || it->is_over || is_over(data)) &&
           monotonic_ms() < end_ms) {
        const int64_t look_ms = monotonic_ms() + LOOK_MS;

        monotonic_wait(&it->room, &it->lock, MIN(end_ms, look_ms));
    }
    pthread_mutex_unlock(&it->lock);
    return ends;
}

/* Exchanges expect, and expect no more, in turn. */
static void expect(TensorBackend *backend, bool expects)
{
    MpiBackend *const it = mpi_of(backend);

    pthread_mutex_lock(&it->lock);
    if (expects && it->n_expecting++ == 0)
        pthread_cond_signal(&it->news);
    else if (!expects)
        it->n_expecting--;
    pthread_mutex_unlock(&it->lock);
}

static const TensorWays ways = {
    .new_message = new_message,
    .send = send_message,
    .forget = forget,
    .keep = keep,
    .drop = drop,
    .is_full = is_full,
    .wait_room = wait_room,
    .expect = expect,
};

/* ---- the thread ---- */

static void stop_run(MpiBackend *it, const char *text)
{
    pthread_mutex_lock(&it->lock);
    const bool is_first = !it->is_broken;
    it->is_broken = it->is_over = true;
    pthread_cond_broadcast(&it->room);
    pthread_mutex_unlock(&it->lock);
    mpi_library_forget();
    if (is_first)
        it->place.broke(it->place.user, text);
}

/* The node sent what no node sends. */
static void stop_for(MpiBackend *it, uint32_t node, const char *what)
{
    g_autofree char *text =
        g_strdup_printf("node %u sent %s by MPI", it->place.office->node_ids[node], what);

    stop_run(it, text);
}

/* Returns whether a call of MPI has succeeded; else the run stops. node UINT32_MAX: of any. */
static bool check(MpiBackend *it, int code, const char *what, uint32_t node)
{
    const PostOffice *const office = it->place.office;

    if (code == MPI_SUCCESS)
        return true;
    g_autofree char *why = mpi_library_explain(it->mpi, code);
    g_autofree char *whom = node == UINT32_MAX ? g_strdup("other nodes")
                                               : g_strdup_printf("node %u", office->node_ids[node]);
    g_autofree char *text = g_strdup_printf("node %u cannot %s %s by MPI: %s",
                                            office->node_ids[office->self], what, whom, why);
    stop_run(it, text);
    return false;
}

static Piece *take_out(MpiBackend *it)
{
    pthread_mutex_lock(&it->lock);
    Piece *const piece = g_queue_pop_head(&it->out);
    pthread_mutex_unlock(&it->lock);
    return piece;
}

/* Each function below returns whether there was something to do. */

static bool begin_sends(MpiBackend *it)
{
    UnderWay *const sent = &it->sent;
    bool any = false;
    Piece *piece;

    while (sent->n < MOST_UNDER_WAY && (piece = take_out(it)) != NULL) {
        any = true;
        sent->pieces[sent->n] = piece;
        const int code =
            it->mpi->MPI_Isend(&piece->wire, (int)piece->n_bytes, it->mpi->byte,
                               it->rank_of[piece->node], TAG, it->comm, &sent->requests[sent->n]);
        if (!check(it, code, "send to", piece->node)) {
            g_free(piece);
            break;
        }
        sent->n++;
    }
    return any;
}

static void sent_piece(MpiBackend *it, Piece *piece)
{
    pthread_mutex_lock(&it->lock);
    it->out_bytes[piece->node] -= piece->n_bytes;
    pthread_cond_broadcast(&it->room);
    pthread_mutex_unlock(&it->lock);
    g_free(piece);
}

static bool end_sends(MpiBackend *it)
{
    UnderWay *const sent = &it->sent;
    int ended[MOST_UNDER_WAY], n = 0;
    uint32_t left = 0;

    if (sent->n == 0 ||
        !check(it,
               it->mpi->MPI_Testsome((int)sent->n, sent->requests, &n, ended, MPI_STATUSES_IGNORE),
               "send to", UINT32_MAX) ||
        n <= 0)
        return false;
    for (int i = 0; i < n; i++) {
        sent_piece(it, sent->pieces[ended[i]]);
        sent->pieces[ended[i]] = NULL;
    }
    for (uint32_t i = 0; i < sent->n; i++)
        if (sent->pieces[i] != NULL) {
            sent->pieces[left] = sent->pieces[i];
            sent->requests[left++] = sent->requests[i];
        }
    sent->n = left;
    return true;
}

/* A message of another node begins to be received. The size is another program's: MPI has checked
 * nothing. */
static bool begin_receives(MpiBackend *it)
{
    const MpiLibrary *const mpi = it->mpi;
    UnderWay *const received = &it->received;
    MPI_Message message;
    MPI_Status status;
    int there = 0, n = 0;

    if (received->n == MOST_UNDER_WAY ||
        !check(it, mpi->MPI_Improbe(MPI_ANY_SOURCE, TAG, it->comm, &there, &message, &status),
               "receive from", UINT32_MAX) ||
        !there)
        return false;
    const uint32_t node = it->node_of[status.MPI_SOURCE];
    if (!check(it, mpi->MPI_Get_count(&status, it->mpi->byte, &n), "receive from", node))
        return false;
    if (n < 0 || n > MOST_WIRE_BYTES) {
        stop_for(it, node, "a piece of a tensor that is larger than any");
        return false;
    }
    Piece *const piece = piece_new(node, (size_t)n);
    if (piece == NULL) {
        stop_run(it, "no memory for values of a tensor that come by MPI");
        return false;
    }
    received->pieces[received->n] = piece;
    const int code =
        mpi->MPI_Imrecv(&piece->wire, n, it->mpi->byte, &message, &received->requests[received->n]);
    if (!check(it, code, "receive from", node)) {
        g_free(piece);
        return false;
    }
    received->n++;
    return true;
}

static void hand_over(MpiBackend *it, Piece *piece)
{
    TensorMessage message;
    const char *wrong;

    if (piece->n_bytes == 0) {
        it->n_ended++;
        g_free(piece);
        return;
    }
    wrong = piece->n_bytes < WIRE_HEADER_BYTES || piece->wire.epoch > UINT32_MAX
                ? "a piece of a tensor without a header"
                : tensor_message_read(piece->wire.header, piece->n_bytes - sizeof piece->wire.epoch,
                                      &message);
    const uint32_t node = piece->node;
    if (wrong == NULL)
        wrong =
            it->place.receive(it->place.user, node, (uint32_t)piece->wire.epoch, &message, piece);
    if (wrong == NULL)
        return;
    g_free(piece);
    stop_for(it, node, wrong);
}

static bool end_receives(MpiBackend *it)
{
    UnderWay *const received = &it->received;
    uint32_t n = 0;

    for (; n < received->n; n++) {
        int is_complete = 0;

        if (!check(it, it->mpi->MPI_Test(&received->requests[n], &is_complete, MPI_STATUS_IGNORE),
                   "receive from", received->pieces[n]->node) ||
            !is_complete)
            break;
        hand_over(it, received->pieces[n]);
    }
    if (n == 0)
        return false;
    received->n -= n;
    memmove(received->pieces, received->pieces + n, received->n * sizeof *received->pieces);
    memmove(received->requests, received->requests + n, received->n * sizeof *received->requests);
    return true;
}

/* Until there may be more to do. The wait is for news of this node; other nodes' are polled for. */
static void rest(MpiBackend *it)
{
    pthread_mutex_lock(&it->lock);
    if (it->out.head == NULL && !it->is_over) {
        const bool polls =
            it->n_expecting > 0 || it->sent.n > 0 || it->received.n > 0 || it->is_closing;

        if (!polls || it->n_polls > N_POLLS)
            monotonic_wait(&it->news, &it->lock, monotonic_ms() + (polls ? NAP_MS : LOOK_MS));
    }
    pthread_mutex_unlock(&it->lock);
    sched_yield();
}

/* Whether nothing is on its way any more, and will not be. */
static bool has_parted(MpiBackend *it)
{
    pthread_mutex_lock(&it->lock);
    const bool parted = it->is_closing && it->out.head == NULL && it->sent.n == 0 &&
                        it->n_ended == it->place.office->n_nodes - 1;
    pthread_mutex_unlock(&it->lock);
    return parted;
}

static bool is_over(MpiBackend *it)
{
    pthread_mutex_lock(&it->lock);
    const bool over = it->is_over;
    pthread_mutex_unlock(&it->lock);
    return over;
}

/* MPI writes to the sockets of processes that may be gone, and a program ends by the signal for
 * that unless it ignores it. It goes to the thread that writes. */
static void block_broken_pipes(void)
{
    sigset_t signals;

    sigemptyset(&signals);
    sigaddset(&signals, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
}

static void *run(void *data)
{
    MpiBackend *const it = data;

    block_broken_pipes();
    while (!is_over(it) && !has_parted(it)) {
        bool any = begin_sends(it);

        any |= end_sends(it);
        any |= begin_receives(it);
        any |= end_receives(it);
        it->n_polls = any ? 0 : it->n_polls + 1;
        if (!any)
            rest(it);
    }
    pthread_mutex_lock(&it->lock);
    it->is_over = it->has_returned = true;
    pthread_cond_broadcast(&it->room);
    pthread_mutex_unlock(&it->lock);
    return NULL;
}

/* ---- life ---- */

/* Open MPI ends with the first connection to mpirun that ends (open_mpi.c). */
static bool check_place(const MpiLibrary *mpi, GError **error)
{
    const char *const space = g_getenv("PMIX_NAMESPACE");
    int has_begun = 0;

    mpi->MPI_Initialized(&has_begun);
    return has_begun || space == NULL || job_recall(space) == NULL ||
           refuse(error, "Rubato has asked mpirun where node 0 runs, and MPI cannot begin behind "
                         "that; set RUBATO_SCHEDULER=HOST:PORT to where it does");
}

static bool check_count(uint32_t n_nodes, int64_t n_processes, GError **error)
{
    return n_processes == (int64_t)n_nodes ||
           refuse(error,
                  "the run has %u nodes, but MPI %" G_GINT64_FORMAT " process(es); start each node "
                  "by one and the same mpirun, or by srun --mpi=pmix",
                  n_nodes, n_processes);
}

/* Hydra speaks PMI-1, where Open MPI asks for PMIx: each process would be an MPI of one. */
static bool check_starter(GError **error)
{
    return g_getenv("OMPI_COMM_WORLD_SIZE") != NULL || g_getenv("PMI_FD") == NULL ||
           g_getenv("MPI_LOCALNRANKS") == NULL ||
           refuse(error,
                  "MPICH's mpiexec has started this process, and Open MPI's library finds no "
                  "other one by it; start the nodes by Open MPI's mpirun, or leave this "
                  "setting out, and collectives go over Rubato's own network");
}

/* Open MPI would say that it was built wrongly, and end the process. A program that has begun MPI
 * did so by some way of its own. */
static bool check_step(const MpiLibrary *mpi, GError **error)
{
    int has_begun = 0;

    mpi->MPI_Initialized(&has_begun);
    return has_begun || g_getenv("SLURM_PROCID") == NULL || g_getenv("PMIX_RANK") != NULL ||
           g_getenv("PMI_RANK") != NULL ||
           refuse(error, "this is a step of Slurm, and its tasks have no PMIx, by which MPI finds "
                         "the others; start them by srun --mpi=pmix");
}

/* If mpirun says how many processes it has started. MPI would wait for all of them, and those that
 * are no nodes do not come. */
static bool check_started(uint32_t n_nodes, GError **error)
{
    const char *const text = g_getenv("OMPI_COMM_WORLD_SIZE");
    guint64 n_processes;

    if (text == NULL || !g_ascii_string_to_unsigned(text, 10, 1, INT32_MAX, &n_processes, NULL))
        return true;
    return check_count(n_nodes, (int64_t)n_processes, error);
}

static bool check_mpi(uint32_t n_nodes, GError **error)
{
    const MpiLibrary *const mpi = mpi_library_load(error);

    return mpi != NULL && mpi_library_check(mpi, error) && check_place(mpi, error) &&
           check_starter(error) && check_step(mpi, error) && check_started(n_nodes, error);
}

/* Finds the process of each node. They tell each other their nodes' numbers. */
static bool find_ranks(MpiBackend *it, GError **error)
{
    const MpiLibrary *const mpi = it->mpi;
    const PostOffice *const office = it->place.office;
    const uint32_t n = office->n_nodes;
    int n_ranks = 0;

    if (mpi->MPI_Comm_dup(mpi->world, &it->comm) != MPI_SUCCESS ||
        mpi->MPI_Comm_set_errhandler(it->comm, mpi->errors_return) != MPI_SUCCESS ||
        mpi->MPI_Comm_size(it->comm, &n_ranks) != MPI_SUCCESS)
        return refuse(error, "MPI makes no communicator");
    if (!check_count(n, n_ranks, error))
        return false;
    it->node_of = g_new(uint32_t, n);
    it->rank_of = g_new(int, n);
    if (mpi->MPI_Allgather(&office->self, 1, mpi->uint32, it->node_of, 1, mpi->uint32, it->comm) !=
        MPI_SUCCESS)
        return refuse(error, "MPI does not reach all processes");
    for (uint32_t node = 0; node < n; node++)
        it->rank_of[node] = -1;
    for (uint32_t rank = 0; rank < n; rank++)
        if (it->node_of[rank] < n)
            it->rank_of[it->node_of[rank]] = (int)rank;
    for (uint32_t node = 0; node < n; node++)
        if (it->rank_of[node] < 0)
            return refuse(error, "no process of this mpirun or srun is node %u",
                          office->node_ids[node]);
    return true;
}

/* What MPI still has of it stays: MPI may write there. */
static void free_backend(MpiBackend *it)
{
    Piece *piece;

    while ((piece = g_queue_pop_head(&it->out)) != NULL)
        g_free(piece);
    pthread_cond_destroy(&it->news);
    pthread_cond_destroy(&it->room);
    pthread_mutex_destroy(&it->lock);
    g_free(it->rank_of);
    g_free(it->node_of);
    g_free(it->out_bytes);
    g_free(it->kept_bytes);
    g_free(it);
}

/* As the network: a quarter of the memory, and at least 1 GiB. */
static size_t usual_kept_bytes(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    const size_t least = (size_t)1 << 30;

    return pages <= 0 || page <= 0 ? least : MAX(least, (size_t)pages / 4 * (size_t)page);
}

static TensorBackend *open_mpi(const TensorBackendPlace *place, GError **error)
{
    const MpiLibrary *const mpi = mpi_library_load(error);

    if (mpi == NULL)
        return NULL;
    g_message("node %u waits for all processes of its mpirun or srun to begin MPI",
              place->office->node_ids[place->office->self]);
    if (!mpi_library_begin(mpi, error))
        return NULL;
    MpiBackend *const it = g_new0(MpiBackend, 1);
    it->base = (TensorBackend){ &tensor_backend_mpi, &ways };
    it->place = *place;
    it->mpi = mpi;
    it->most_kept = usual_kept_bytes();
    it->out_bytes = g_new0(size_t, place->office->n_nodes);
    it->kept_bytes = g_new0(size_t, place->office->n_nodes);
    pthread_mutex_init(&it->lock, NULL);
    monotonic_cond_init(&it->news);
    monotonic_cond_init(&it->room);
    if (find_ranks(it, error) && log_sink_start_thread(&it->thread, run, it) == 0)
        return &it->base;
    if (error != NULL && *error == NULL)
        refuse(error, "no thread for it");
    mpi_library_forget();
    mpi_library_end();
    free_backend(it);
    return NULL;
}

/* The empty messages go behind all that was sent. */
static void say_goodbye(MpiBackend *it)
{
    const PostOffice *const office = it->place.office;

    for (uint32_t node = 0; node < office->n_nodes; node++) {
        Piece *const piece = node == office->self ? NULL : piece_new(node, 0);

        if (piece != NULL)
            send_message(&it->base, node, piece);
    }
}

/* Waits for the other nodes; then for the thread to return from MPI. False: it has not done so. */
static bool end_thread(MpiBackend *it, unsigned patience_ms, bool *parted)
{
    int64_t end_ms = monotonic_ms() + patience_ms;

    pthread_mutex_lock(&it->lock);
    it->is_closing = true;
    pthread_cond_signal(&it->news);
    while (!it->is_over && monotonic_wait(&it->room, &it->lock, end_ms))
        continue;
    *parted = it->is_over && !it->is_broken;
    it->is_over = true;
    pthread_cond_signal(&it->news);
    end_ms = monotonic_ms() + RETURN_MS;
    while (!it->has_returned && monotonic_wait(&it->room, &it->lock, end_ms))
        continue;
    const bool has_returned = it->has_returned;
    pthread_mutex_unlock(&it->lock);
    if (has_returned)
        pthread_join(it->thread, NULL);
    return has_returned;
}

static void close_mpi(TensorBackend *backend, unsigned patience_ms)
{
    MpiBackend *const it = mpi_of(backend);
    bool parted;

    say_goodbye(it);
    const bool has_returned = end_thread(it, patience_ms, &parted);
    if (parted && has_returned)
        it->mpi->MPI_Comm_free(&it->comm);
    else
        mpi_library_forget();
    mpi_library_end();
    if (has_returned) {
        free_backend(it);
        return;
    }
    g_warning("a call of MPI has not returned for %d ms; the thread that makes it is left behind",
              RETURN_MS);
    pthread_detach(it->thread);
}

const TensorBackendOps tensor_backend_mpi = {
    .name = "mpi",
    .check = check_mpi,
    .open = open_mpi,
    .close = close_mpi,
};
