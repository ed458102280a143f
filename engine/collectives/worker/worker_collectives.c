/* The public calls of collectives on tensors: what each worker may say is checked here; then its
 * request goes to the exchange, and the worker waits, or gets a ticket.
 *
 * Threads: the worker's. */
#include <rubato/error.h>
#include <string.h>

#include "engine/collectives/tensor_exchange.h"
#include "tables/tickets/ticket.h"
#include "tables/worker.h"

enum {
    EARLY_BYTES = 128 << 10, /* that stay in a cache until they are used */
    LINE_BYTES = 64,
};

/* ---- what a worker may say ---- */

/* What a call says besides its tensors. */
typedef struct {
    TensorOperation operation;
    const RubatoReduce *reduce;
    uint32_t root;
    const uint64_t *const *splits; /* by tensor; NULL: none has any */
    RubatoGathered *gathered;      /* the same */
} Said;

/* The same for all tensors of the call. */
typedef struct {
    const Said *said;
    RubatoReduce reduce;
    uint32_t set;
    TensorMember member;
} Asking;

static RubatoReduce complete_reduce(const RubatoReduce *given)
{
    RubatoReduce reduce = given == NULL ? (RubatoReduce){ 0 } : *given;

    reduce.prescale = reduce.prescale == 0 ? 1 : reduce.prescale;
    reduce.postscale = reduce.postscale == 0 ? 1 : reduce.postscale;
    reduce.divides_by_all = reduce.divides_by_all && reduce.reduction == RUBATO_REDUCTION_MEAN;
    return reduce;
}

static bool begin_asking(const RubatoWorker *worker, uint32_t set, const Said *said, Asking *asking,
                         GError **error)
{
    const bool reduces =
        said->operation == TENSOR_ALLREDUCE || said->operation == TENSOR_REDUCE_SCATTER;

    asking->said = said;
    asking->set = set;
    asking->reduce = reduces ? complete_reduce(said->reduce) : (RubatoReduce){ 0 };
    return worker_check_owner(worker, error) &&
           tensor_exchange_enter_set(worker->tensors, set, worker->rank, &asking->member, error);
}

/* Member by member, as make_entry: of a group of many small tensors, a third of the time went into
 * clearing entries first and copying them. Nobody reads dimensions beyond n_dims. */
static void fill_request(const RubatoTensor *tensor, const Asking *asking, TensorRequest *request)
{
    request->operation = asking->said->operation;
    request->dtype = tensor->dtype;
    request->n_dims = tensor->n_dims;
    request->root = asking->said->root;
    request->reduce = asking->reduce;
    for (uint32_t i = 0; i < MIN(tensor->n_dims, RUBATO_TENSOR_MOST_DIMENSIONS); i++)
        request->shape[i] = tensor->shape[i];
}

static bool refuse(const TensorEntry *entry, const char *why, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "%s %s: %s",
                tensor_operation_name(entry->part.request.operation), entry->name, why);
    return false;
}

/* Bytes that the worker's output has; 0 if it has none. */
static uint64_t output_bytes(const TensorRequest *request, const TensorMember *member)
{
    const uint64_t row_bytes = tensor_request_row_bytes(request);
    const uint64_t n_rows = tensor_request_rows(request);

    if (request->operation == TENSOR_ALLGATHER || request->operation == TENSOR_ALLTOALL)
        return 0;
    if (request->operation == TENSOR_REDUCE_SCATTER)
        return rubato_reduce_scatter_rows(n_rows, member->n_members, member->place) * row_bytes;
    return n_rows * row_bytes;
}

/* The loops that combine values use the arrays as C arrays of their dtype. */
static bool is_aligned(const TensorRequest *request, uintptr_t array)
{
    return (request->operation != TENSOR_ALLREDUCE &&
            request->operation != TENSOR_REDUCE_SCATTER) ||
           array % rubato_dtype_size(request->dtype) == 0;
}

/* Arrays are there, aligned, and do not overlap where they may not. */
static bool check_arrays(const TensorEntry *entry, const TensorMember *member, GError **error)
{
    const TensorPart *const part = &entry->part;
    const TensorRequest *const request = &part->request;
    const uint64_t n_in = tensor_request_rows(request) * tensor_request_row_bytes(request);
    const uint64_t n_out =
        request->operation == TENSOR_ALLREDUCE ? n_in : output_bytes(request, member);
    const uintptr_t input = (uintptr_t)part->input, output = (uintptr_t)part->output;
    const bool broadcasts = request->operation == TENSOR_BROADCAST;
    const bool reads = !broadcasts || member->place == request->root;
    const bool writes = n_out > 0 && !(broadcasts && reads && output == 0);

    if (request->operation == TENSOR_BARRIER)
        return true;
    if (reads && n_in > 0 && input == 0)
        return refuse(entry, "it has no input", error);
    if (writes && output == 0)
        return refuse(entry, "it has no output", error);
    if ((n_in > 0 && !is_aligned(request, input)) || (n_out > 0 && !is_aligned(request, output)))
        return refuse(entry,
                      "its values are combined, so its arrays have to be aligned to the size "
                      "of a value",
                      error);
    if (!reads || !writes || n_in == 0 || input + n_in <= output || output + n_out <= input)
        return true;
    if (input == output && request->operation != TENSOR_REDUCE_SCATTER)
        return true;
    return refuse(entry, "its output overlaps its input", error);
}

/* Copies the splits, or makes even ones. */
static bool take_splits(TensorEntry *entry, const uint64_t *splits, uint32_t n_workers,
                        GError **error)
{
    const uint64_t n_rows = tensor_request_rows(&entry->part.request);
    g_autofree uint64_t *taken = g_new(uint64_t, n_workers);
    uint64_t sum = 0;

    if (splits == NULL && n_rows % n_workers != 0)
        return refuse(entry, "its rows cannot be dealt out evenly; say how many each worker gets",
                      error);
    for (uint32_t i = 0; i < n_workers; i++) {
        taken[i] = splits == NULL ? n_rows / n_workers : splits[i];
        if (__builtin_add_overflow(sum, taken[i], &sum))
            return refuse(entry, "its splits are more rows than can be", error);
    }
    if (sum != n_rows)
        return refuse(entry, "its splits are not all of its rows together", error);
    entry->part.splits = g_steal_pointer(&taken);
    return true;
}

/* Fills in the entry of tensor i, of the set of the call. Nothing of it is allocated on failure. */
static bool make_entry(const Asking *asking, const RubatoTensor *tensor, size_t i,
                       TensorEntry *entry, GError **error)
{
    const Said *const said = asking->said;
    const TensorMember *const member = &asking->member;
    TensorPart *const part = &entry->part;

    entry->name = tensor->name;
    entry->set = asking->set;
    entry->place = member->place;
    fill_request(tensor, asking, &part->request);
    part->input = tensor->input;
    part->output = tensor->output;
    part->readers = NULL;
    part->splits = NULL;
    part->gathered = said->gathered == NULL ? NULL : &said->gathered[i];
    if (part->gathered != NULL)
        part->result = (RubatoGathered){ 0 };
    entry->failure = NULL;
    entry->is_async = false;
    atomic_init(&entry->is_fetched, false);
    return tensor_request_check(&part->request, tensor->name, member->n_members, error) &&
           check_arrays(entry, member, error) &&
           (said->operation != TENSOR_ALLTOALL ||
            take_splits(entry, said->splits == NULL ? NULL : said->splits[i], member->n_members,
                        error));
}

/* ---- blocking, or with a ticket ---- */

static void free_splits(TensorEntry *entries, size_t n)
{
    for (size_t i = 0; i < n; i++)
        g_clear_pointer(&entries[i].part.splits, g_free);
}

/* The first failure; NULL: there is none. The others are freed, and so is what the rest of the
 * group has gathered. (transfer full) */
static GError *take_failure(TensorEntry *entries, size_t n)
{
    size_t first = 0;

    while (first < n && entries[first].failure == NULL)
        first++;
    if (first == n)
        return NULL;
    GError *const failure = g_steal_pointer(&entries[first].failure);
    for (size_t i = 0; i < n; i++) {
        if (i != first && entries[i].failure == NULL)
            rubato_gathered_clear(entries[i].part.gathered);
        g_clear_error(&entries[i].failure);
    }
    return failure;
}

/* While others are waited for, a small tensor comes into the cache: what is not read or written
 * yet, but soon will be. A hint alone; nobody else need see it. n_out: bytes of the output. The
 * values of a broadcast from another node are often there already: the copy then fetches as it
 * goes. */
static void fetch_early(const RubatoWorker *worker, const TensorEntry *entry, uint64_t n_out)
{
    const TensorPart *const part = &entry->part;

    if (part->output == NULL || n_out > EARLY_BYTES ||
        (part->request.operation == TENSOR_BROADCAST &&
         tensor_exchange_is_linked(worker->tensors)) ||
        atomic_load_explicit(&entry->is_fetched, memory_order_relaxed)) /* a hint alone */
        return;
    for (size_t i = 0; i < n_out; i += LINE_BYTES) {
        if (part->request.operation == TENSOR_ALLREDUCE)
            __builtin_prefetch((const char *)part->input + i, /* rw= */ 0);
        __builtin_prefetch((char *)part->output + i, /* rw= */ 1);
    }
}

/* More than one are a group. */
static bool run_all(RubatoWorker *worker, const TensorMember *member, TensorEntry *entries,
                    size_t n, GError **error)
{
    GError *failure;
    Call call, readers;

    call_begin(&call, NULL);
    call_begin(&readers, NULL);
    readers.is_remote = true;
    call_add_parts(&call, (uint32_t)n);
    for (size_t i = 0; i < n; i++) {
        entries[i].call = &call;
        entries[i].part.readers = &readers;
    }
    if (!tensor_exchange_ask(worker->tensors, worker->rank, entries, n, error)) {
        free_splits(entries, n);
        return false;
    }
    call_sent(&call);
    if (n == 1 && !call_has_ended(&call))
        fetch_early(worker, entries, output_bytes(&entries->part.request, member));
    if (!call_has_ended(&call))
        tensor_exchange_wait(worker->tensors, worker->rank, &call);
    failure = take_failure(entries, n);
    tensor_exchange_wait_readers(worker->tensors, entries, &readers, failure != NULL);
    if (G_UNLIKELY(entries->asked_ns != 0))
        tensor_exchange_note_call(worker->tensors, entries, n);
    if (failure == NULL)
        return true;
    tensor_exchange_note_told(worker->tensors, worker->rank, failure);
    g_propagate_error(error, failure);
    return false;
}

static bool run(RubatoWorker *worker, const RubatoTensor *tensor, const Said *said, GError **error)
{
    TensorEntry entry;
    Asking asking;

    return begin_asking(worker, tensor->set, said, &asking, error) &&
           make_entry(&asking, tensor, 0, &entry, error) &&
           run_all(worker, &asking.member, &entry, 1, error);
}

/* Requests with one ticket. Behind the entries are their names. */
typedef struct {
    size_t n;
    TensorEntry entries[];
} Requests;

static GError *end_requests(void *data)
{
    Requests *const requests = data;
    GError *const failure = take_failure(requests->entries, requests->n);

    g_free(requests);
    return failure;
}

static void wait_for_call(void *data, Call *call)
{
    RubatoWorker *const worker = data;
    const uint64_t begun_ns = timeline_now(worker->timeline);

    tensor_exchange_wait(worker->tensors, worker->rank, call);
    if (G_UNLIKELY(begun_ns != 0))
        timeline_note_call(worker->timeline,
                           &(TimelineCall){ .actor = { worker->epoch, worker->rank },
                                            .what = "wait for collectives",
                                            .begun_ns = begun_ns,
                                            .ended_ns = (uint64_t)monotonic_ns() });
}

static void note_failure(void *data, const GError *failure)
{
    const RubatoWorker *const worker = data;

    tensor_exchange_note_told(worker->tensors, worker->rank, failure);
}

static void say_stalled(void *data, const Call *call, double waited_s)
{
    const RubatoWorker *const worker = data;

    tensor_exchange_say_stalled(worker->tensors, call, waited_s);
}

/* The entries, with names of their own. NULL: one of them makes no sense. (transfer full) */
static Requests *make_requests(const RubatoWorker *worker, const RubatoTensor *tensors, size_t n,
                               const Said *said, GError **error)
{
    size_t n_bytes = sizeof(Requests) + n * sizeof(TensorEntry);
    Asking asking;

    if (!begin_asking(worker, tensors->set, said, &asking, error))
        return NULL;
    for (size_t i = 0; i < n; i++)
        n_bytes += strlen(tensors[i].name) + 1;
    g_autofree Requests *requests = g_malloc(n_bytes);
    char *name = (char *)&requests->entries[n];
    requests->n = n;
    for (size_t i = 0; i < n; i++) {
        const size_t n_name = strlen(tensors[i].name) + 1;

        if (!make_entry(&asking, &tensors[i], i, &requests->entries[i], error)) {
            free_splits(requests->entries, i);
            return NULL;
        }
        memcpy(name, tensors[i].name, n_name);
        requests->entries[i].name = name;
        requests->entries[i].is_async = true;
        name += n_name;
    }
    return g_steal_pointer(&requests);
}

static RubatoTicket start_all(RubatoWorker *worker, const RubatoTensor *tensors, size_t n,
                              const Said *said, const RubatoRequestOptions *options, GError **error)
{
    g_autofree Requests *requests = make_requests(worker, tensors, n, said, error);
    RubatoTicket ticket;
    Call *call;

    if (requests == NULL)
        return 0;
    const TicketOutside outside = { .wait = wait_for_call,
                                    .say_stalled = say_stalled,
                                    .stall_ms = tensor_exchange_stall_ms(worker->tensors),
                                    .server = worker,
                                    .note_failure = note_failure,
                                    .end = end_requests,
                                    .request = requests };
    ticket = ticket_start_outside(worker->tickets, &outside, options, &call, error);
    if (ticket == 0) {
        free_splits(requests->entries, n);
        return 0;
    }
    call_add_parts(call, (uint32_t)n - 1);
    for (size_t i = 0; i < n; i++)
        requests->entries[i].call = call;
    if (!tensor_exchange_ask(worker->tensors, worker->rank, requests->entries, n, error)) {
        ticket_cancel_outside(call);
        free_splits(requests->entries, n);
        return 0;
    }
    requests = NULL; /* the ticket's */
    call_sent(call);
    return ticket;
}

static RubatoTicket start(RubatoWorker *worker, const RubatoTensor *tensor, const Said *said,
                          const RubatoRequestOptions *options, GError **error)
{
    return start_all(worker, tensor, 1, said, options, error);
}

/* ---- the calls ---- */

static bool is_tensor(const RubatoTensor *tensor)
{
    return tensor != NULL && tensor->name != NULL;
}

bool rubato_worker_allreduce(RubatoWorker *worker, const RubatoTensor *tensor,
                             const RubatoReduce *reduce, GError **error)
{
    g_return_val_if_fail(worker != NULL && is_tensor(tensor), false);
    return run(worker, tensor, &(Said){ .operation = TENSOR_ALLREDUCE, .reduce = reduce }, error);
}

RubatoTicket rubato_worker_allreduce_async(RubatoWorker *worker, const RubatoTensor *tensor,
                                           const RubatoReduce *reduce,
                                           const RubatoRequestOptions *options, GError **error)
{
    g_return_val_if_fail(worker != NULL && is_tensor(tensor), 0);
    return start(worker, tensor, &(Said){ .operation = TENSOR_ALLREDUCE, .reduce = reduce },
                 options, error);
}

bool rubato_worker_broadcast(RubatoWorker *worker, const RubatoTensor *tensor, uint32_t root,
                             GError **error)
{
    g_return_val_if_fail(worker != NULL && is_tensor(tensor), false);
    return run(worker, tensor, &(Said){ .operation = TENSOR_BROADCAST, .root = root }, error);
}

RubatoTicket rubato_worker_broadcast_async(RubatoWorker *worker, const RubatoTensor *tensor,
                                           uint32_t root, const RubatoRequestOptions *options,
                                           GError **error)
{
    g_return_val_if_fail(worker != NULL && is_tensor(tensor), 0);
    return start(worker, tensor, &(Said){ .operation = TENSOR_BROADCAST, .root = root }, options,
                 error);
}

bool rubato_worker_allgather(RubatoWorker *worker, const RubatoTensor *tensor,
                             RubatoGathered *gathered, GError **error)
{
    g_return_val_if_fail(worker != NULL && is_tensor(tensor) && gathered != NULL, false);
    return run(worker, tensor, &(Said){ .operation = TENSOR_ALLGATHER, .gathered = gathered },
               error);
}

RubatoTicket rubato_worker_allgather_async(RubatoWorker *worker, const RubatoTensor *tensor,
                                           RubatoGathered *gathered,
                                           const RubatoRequestOptions *options, GError **error)
{
    g_return_val_if_fail(worker != NULL && is_tensor(tensor) && gathered != NULL, 0);
    return start(worker, tensor, &(Said){ .operation = TENSOR_ALLGATHER, .gathered = gathered },
                 options, error);
}

bool rubato_worker_reduce_scatter(RubatoWorker *worker, const RubatoTensor *tensor,
                                  const RubatoReduce *reduce, GError **error)
{
    g_return_val_if_fail(worker != NULL && is_tensor(tensor), false);
    return run(worker, tensor, &(Said){ .operation = TENSOR_REDUCE_SCATTER, .reduce = reduce },
               error);
}

RubatoTicket rubato_worker_reduce_scatter_async(RubatoWorker *worker, const RubatoTensor *tensor,
                                                const RubatoReduce *reduce,
                                                const RubatoRequestOptions *options, GError **error)
{
    g_return_val_if_fail(worker != NULL && is_tensor(tensor), 0);
    return start(worker, tensor, &(Said){ .operation = TENSOR_REDUCE_SCATTER, .reduce = reduce },
                 options, error);
}

bool rubato_worker_alltoall(RubatoWorker *worker, const RubatoTensor *tensor,
                            const uint64_t *splits, RubatoGathered *gathered, GError **error)
{
    g_return_val_if_fail(worker != NULL && is_tensor(tensor) && gathered != NULL, false);
    return run(worker, tensor,
               &(Said){ .operation = TENSOR_ALLTOALL, .splits = &splits, .gathered = gathered },
               error);
}

RubatoTicket rubato_worker_alltoall_async(RubatoWorker *worker, const RubatoTensor *tensor,
                                          const uint64_t *splits, RubatoGathered *gathered,
                                          const RubatoRequestOptions *options, GError **error)
{
    g_return_val_if_fail(worker != NULL && is_tensor(tensor) && gathered != NULL, 0);
    return start(worker, tensor,
                 &(Said){ .operation = TENSOR_ALLTOALL, .splits = &splits, .gathered = gathered },
                 options, error);
}

/* ---- groups ---- */

static bool are_tensors(const RubatoTensor *tensors, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (tensors == NULL || tensors[i].name == NULL)
            return false;
    return true;
}

static bool check_group(const RubatoTensor *tensors, size_t n, GError **error)
{
    if (n == 0 || n > RUBATO_TENSOR_MOST_OF_GROUP) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "a group of %zu tensors: it may have 1 to %d", n, RUBATO_TENSOR_MOST_OF_GROUP);
        return false;
    }
    for (size_t i = 1; i < n; i++)
        if (tensors[i].set != tensors[0].set) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                        "a group of tensors of sets %u and %u: it is of one set", tensors[0].set,
                        tensors[i].set);
            return false;
        }
    return true;
}

static bool run_group(RubatoWorker *worker, const RubatoTensor *tensors, size_t n, const Said *said,
                      GError **error)
{
    Asking asking;

    if (!check_group(tensors, n, error) ||
        !begin_asking(worker, tensors->set, said, &asking, error))
        return false;
    g_autofree TensorEntry *entries = g_new(TensorEntry, n);
    for (size_t i = 0; i < n; i++)
        if (!make_entry(&asking, &tensors[i], i, &entries[i], error)) {
            free_splits(entries, i);
            return false;
        }
    return run_all(worker, &asking.member, entries, n, error);
}

static RubatoTicket start_group(RubatoWorker *worker, const RubatoTensor *tensors, size_t n,
                                const Said *said, const RubatoRequestOptions *options,
                                GError **error)
{
    return check_group(tensors, n, error) ? start_all(worker, tensors, n, said, options, error) : 0;
}

bool rubato_worker_allreduce_group(RubatoWorker *worker, const RubatoTensor *tensors, size_t n,
                                   const RubatoReduce *reduce, GError **error)
{
    g_return_val_if_fail(worker != NULL && are_tensors(tensors, n), false);
    return run_group(worker, tensors, n, &(Said){ .operation = TENSOR_ALLREDUCE, .reduce = reduce },
                     error);
}

RubatoTicket rubato_worker_allreduce_group_async(RubatoWorker *worker, const RubatoTensor *tensors,
                                                 size_t n, const RubatoReduce *reduce,
                                                 const RubatoRequestOptions *options,
                                                 GError **error)
{
    g_return_val_if_fail(worker != NULL && are_tensors(tensors, n), 0);
    return start_group(worker, tensors, n,
                       &(Said){ .operation = TENSOR_ALLREDUCE, .reduce = reduce }, options, error);
}

bool rubato_worker_broadcast_group(RubatoWorker *worker, const RubatoTensor *tensors, size_t n,
                                   uint32_t root, GError **error)
{
    g_return_val_if_fail(worker != NULL && are_tensors(tensors, n), false);
    return run_group(worker, tensors, n, &(Said){ .operation = TENSOR_BROADCAST, .root = root },
                     error);
}

RubatoTicket rubato_worker_broadcast_group_async(RubatoWorker *worker, const RubatoTensor *tensors,
                                                 size_t n, uint32_t root,
                                                 const RubatoRequestOptions *options,
                                                 GError **error)
{
    g_return_val_if_fail(worker != NULL && are_tensors(tensors, n), 0);
    return start_group(worker, tensors, n, &(Said){ .operation = TENSOR_BROADCAST, .root = root },
                       options, error);
}

bool rubato_worker_allgather_group(RubatoWorker *worker, const RubatoTensor *tensors, size_t n,
                                   RubatoGathered *gathered, GError **error)
{
    g_return_val_if_fail(worker != NULL && are_tensors(tensors, n), false);
    g_return_val_if_fail(gathered != NULL || n == 0, false);
    return run_group(worker, tensors, n,
                     &(Said){ .operation = TENSOR_ALLGATHER, .gathered = gathered }, error);
}

RubatoTicket rubato_worker_allgather_group_async(RubatoWorker *worker, const RubatoTensor *tensors,
                                                 size_t n, RubatoGathered *gathered,
                                                 const RubatoRequestOptions *options,
                                                 GError **error)
{
    g_return_val_if_fail(worker != NULL && are_tensors(tensors, n), 0);
    g_return_val_if_fail(gathered != NULL || n == 0, 0);
    return start_group(worker, tensors, n,
                       &(Said){ .operation = TENSOR_ALLGATHER, .gathered = gathered }, options,
                       error);
}

bool rubato_worker_reduce_scatter_group(RubatoWorker *worker, const RubatoTensor *tensors, size_t n,
                                        const RubatoReduce *reduce, GError **error)
{
    g_return_val_if_fail(worker != NULL && are_tensors(tensors, n), false);
    return run_group(worker, tensors, n,
                     &(Said){ .operation = TENSOR_REDUCE_SCATTER, .reduce = reduce }, error);
}

RubatoTicket rubato_worker_reduce_scatter_group_async(RubatoWorker *worker,
                                                      const RubatoTensor *tensors, size_t n,
                                                      const RubatoReduce *reduce,
                                                      const RubatoRequestOptions *options,
                                                      GError **error)
{
    g_return_val_if_fail(worker != NULL && are_tensors(tensors, n), 0);
    return start_group(worker, tensors, n,
                       &(Said){ .operation = TENSOR_REDUCE_SCATTER, .reduce = reduce }, options,
                       error);
}

bool rubato_worker_alltoall_group(RubatoWorker *worker, const RubatoTensor *tensors, size_t n,
                                  const uint64_t *const *splits, RubatoGathered *gathered,
                                  GError **error)
{
    g_return_val_if_fail(worker != NULL && are_tensors(tensors, n), false);
    g_return_val_if_fail(gathered != NULL || n == 0, false);
    return run_group(
        worker, tensors, n,
        &(Said){ .operation = TENSOR_ALLTOALL, .splits = splits, .gathered = gathered }, error);
}

RubatoTicket rubato_worker_alltoall_group_async(RubatoWorker *worker, const RubatoTensor *tensors,
                                                size_t n, const uint64_t *const *splits,
                                                RubatoGathered *gathered,
                                                const RubatoRequestOptions *options, GError **error)
{
    g_return_val_if_fail(worker != NULL && are_tensors(tensors, n), 0);
    g_return_val_if_fail(gathered != NULL || n == 0, 0);
    return start_group(
        worker, tensors, n,
        &(Said){ .operation = TENSOR_ALLTOALL, .splits = splits, .gathered = gathered }, options,
        error);
}

/* ---- without tensors ---- */

bool rubato_worker_set_barrier(RubatoWorker *worker, uint32_t set, const char *name, GError **error)
{
    g_return_val_if_fail(worker != NULL && name != NULL, false);
    return run(worker, &(RubatoTensor){ .name = name, .set = set },
               &(Said){ .operation = TENSOR_BARRIER }, error);
}

bool rubato_worker_named_barrier(RubatoWorker *worker, const char *name, GError **error)
{
    return rubato_worker_set_barrier(worker, /* set= */ 0, name, error);
}

bool rubato_worker_set_join(RubatoWorker *worker, uint32_t set, uint32_t *last, GError **error)
{
    TensorMember member;

    g_return_val_if_fail(worker != NULL && last != NULL, false);
    if (!worker_check_owner(worker, error) ||
        !tensor_exchange_enter_set(worker->tensors, set, worker->rank, &member, error))
        return false;
    TensorJoin join = { .set = set, .place = member.place };
    call_begin(&join.call, NULL);
    call_add_parts(&join.call, 1);
    if (!tensor_exchange_join(worker->tensors, worker->rank, &join, error))
        return false;
    call_sent(&join.call);
    if (!call_has_ended(&join.call))
        tensor_exchange_wait(worker->tensors, worker->rank, &join.call);
    if (join.failure != NULL) {
        tensor_exchange_note_told(worker->tensors, worker->rank, join.failure);
        g_propagate_error(error, join.failure);
        return false;
    }
    *last = join.last;
    return true;
}

bool rubato_worker_join(RubatoWorker *worker, uint32_t *last, GError **error)
{
    return rubato_worker_set_join(worker, /* set= */ 0, last, error);
}
