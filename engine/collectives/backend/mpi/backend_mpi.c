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
#include <string.h>
#include <unistd.h>

#include "engine/collectives/backend/mpi/mpi_private.h"
#include "io/net/log_sink.h"
#include "io/net/monotonic.h"

enum {
    ROOM_BYTES = 2 << 20, /* on their way to a node: a step that sends begins below this */
    FULL_BYTES = 8 << 20, /* and other threads than waiting ones send no more above this */
    LOOK_MS = 50,         /* between two looks of a wait for room */
    RETURN_MS = 1000,     /* for a call of MPI to return, before its thread is left behind */
};

static MpiBackend *mpi_of(TensorBackend *backend)
{
    return (MpiBackend *)(void *)backend;
}

/* ---- what an exchange calls ---- */

static void *new_message(TensorBackend *backend, uint32_t node, uint32_t epoch,
                         const TensorMessage *message, void **bytes)
{
    Piece *const piece = mpi_piece_new(UINT32_MAX, WIRE_HEADER_BYTES + message->n_bytes);

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

/* ---- life ---- */

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
        return mpi_refuse(error, "MPI makes no communicator");
    if (!mpi_check_count(n, n_ranks, error))
        return false;
    it->node_of = g_new(uint32_t, n);
    it->rank_of = g_new(int, n);
    if (mpi->MPI_Allgather(&office->self, 1, mpi->uint32, it->node_of, 1, mpi->uint32, it->comm) !=
        MPI_SUCCESS)
        return mpi_refuse(error, "MPI does not reach all processes");
    for (uint32_t node = 0; node < n; node++)
        it->rank_of[node] = -1;
    for (uint32_t rank = 0; rank < n; rank++)
        if (it->node_of[rank] < n)
            it->rank_of[it->node_of[rank]] = (int)rank;
    for (uint32_t node = 0; node < n; node++)
        if (it->rank_of[node] < 0)
            return mpi_refuse(error, "no process of this mpirun or srun is node %u",
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
    if (find_ranks(it, error) && log_sink_start_thread(&it->thread, mpi_run, it) == 0)
        return &it->base;
    if (error != NULL && *error == NULL)
        mpi_refuse(error, "no thread for it");
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
        Piece *const piece = node == office->self ? NULL : mpi_piece_new(node, 0);

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
    .check = mpi_check,
    .open = open_mpi,
    .close = close_mpi,
};
