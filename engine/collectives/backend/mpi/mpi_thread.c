/* The thread that calls MPI: see backend_mpi.c. */
#include <sched.h>
#include <signal.h>
#include <string.h>

#include "engine/collectives/backend/mpi/mpi_private.h"
#include "io/net/monotonic.h"

enum {
    TAG = 1,
    N_POLLS = 2000, /* without news, until the thread sleeps between two */
    NAP_MS = 1,     /* so long */
    LOOK_MS = 50,   /* between two looks while nothing is expected */
};

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
    Piece *const piece = mpi_piece_new(node, (size_t)n);
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

void *mpi_run(void *data)
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
