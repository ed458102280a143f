/* Collectives on tensors: operations that all workers of a task make together, each with an array
 * of its own.
 *
 * A tensor has a name. Workers may call for several tensors in different orders: what has the same
 * name belongs together, and is done once every worker has called. A worker may call with tickets
 * (ticket.h) and compute meanwhile. Tables and collectives are used together in one task.
 *
 * - A name is free again once it is decided whether its operation runs, so at the latest once the
 *   call has returned or its ticket has ended. A second call of a worker for a name that is
 *   pending fails at once with RUBATO_ERROR_EXISTS.
 * - Workers that disagree on the operation, dtype, shape, reduction, scales or root of a name: the
 *   operation fails on all of them with RUBATO_ERROR_MISMATCH and tells both sides. The task goes
 *   on.
 * - A worker that returns takes part in nothing more. What is pending then in its sets, and what
 *   others call for there later, fails with RUBATO_ERROR_NOT_FOUND and names the worker.
 * - A node is lost, and the task continues (task.h): what is pending in sets that had workers there
 *   fails on all workers with RUBATO_ERROR_NODE_LOST, which names the node and its workers. So does
 *   the next call in such a set of a worker of which nothing was pending: each is told once, before
 *   it takes part in anything new. From then on these sets are of the workers that live, and ranks
 *   in them count these. What was under way may have succeeded on some workers, and failed on
 *   others; named barriers, joins, and changes of the sets end alike on all that live.
 * - Once the task is cancelled, all of it fails with RUBATO_ERROR_CANCELLED and tells why: a worker
 *   that failed, a node that was lost.
 *
 * Results are the same from run to run, bit by bit, and on all workers: values of a node's workers
 * are combined in the order of the ranks, and then those of the nodes. f16 and bf16 are combined as
 * floats and rounded once; integers wrap around.
 *
 * Compressed values are rounded to halves where they go from node to node. A node keeps what that
 * has cut off, and adds it to the values that the name has the next time: so no part of a value is
 * lost for good, and sums over many calls are right. It keeps two floats for each value, of up to
 * 8192 names of a set; beyond them it keeps nothing. As f16, what a node's workers have
 * together, also of a mean, becomes infinite beyond 65504; a prescale makes it smaller. On a single
 * node nothing is rounded.
 *
 * Workers may also make an operation in a set of them: see rubato_worker_make_set. Names of
 * different sets have nothing to do with each other.
 *
 * Arrays belong to the caller and stay until the call has returned, or the ticket has ended; they
 * are never copied. Input and output may be the same array where a call says so, and may not
 * overlap otherwise. Where values are combined, arrays are aligned to the size of a value.
 *
 * Threads: the worker's own. */
#ifndef RUBATO_COLLECTIVES_H
#define RUBATO_COLLECTIVES_H

#include <rubato/ticket.h>

G_BEGIN_DECLS

#define RUBATO_TENSOR_MOST_DIMENSIONS 8
#define RUBATO_TENSOR_NAME_BYTES 256 /* of a name, its end included */
#define RUBATO_TENSOR_MOST_OF_GROUP 65536

/* A worker's part in an operation. A row is what the first dimension counts. */
typedef struct {
    const char *name;
    RubatoDtype dtype;
    uint32_t n_dims; /* 0: a single value */
    uint64_t shape[RUBATO_TENSOR_MOST_DIMENSIONS];
    const void *input;
    void *output;
    uint32_t set; /* of workers; 0: all of the task */
} RubatoTensor;

typedef enum {
    RUBATO_REDUCTION_SUM,     /* bool: or */
    RUBATO_REDUCTION_MEAN,    /* of integers: the sum's quotient, rounded towards 0; not of bool */
    RUBATO_REDUCTION_MIN,     /* a NaN makes the result NaN; bool: and */
    RUBATO_REDUCTION_MAX,     /* the same; bool: or */
    RUBATO_REDUCTION_PRODUCT, /* bool: and */
    RUBATO_REDUCTION_ADASUM,  /* of what is parallel the mean, else the sum; floating-point only */
} RubatoReduction;

typedef enum {
    RUBATO_COMPRESSION_NONE,
    RUBATO_COMPRESSION_F16,
    RUBATO_COMPRESSION_BF16,
} RubatoCompression;

/* How values are combined. Only floating-point tensors have scales; 0 means 1. */
typedef struct {
    RubatoReduction reduction;
    double prescale;     /* each value is multiplied by it first */
    double postscale;    /* and the result in the end */
    bool divides_by_all; /* the mean divides by all workers, also those that have joined */
    RubatoCompression compression; /* of what goes between nodes: sums and means of f32 */
} RubatoReduce;

/* An array of which no worker knows the size before. */
typedef struct {
    void *values;                        /* the caller's; NULL: there are none */
    uint64_t n_rows;                     /* in all */
    uint64_t *rows;                      /* by rank: how many came from it */
    struct RubatoGatheredMemory *memory; /* Rubato's own, of large values */
} RubatoGathered;

/* Frees what it holds, on any thread, also after the task. Of values of 4 MB and more a running
 * task keeps what was freed, 256 MB of it on each node at most, and uses it for the next ones of
 * about the same size; it frees that when it ends. Values that are taken out before, with NULL in
 * their place, are freed with g_free, and are not kept. */
RUBATO_API void rubato_gathered_clear(RubatoGathered *gathered);

/* Combines the inputs of all workers, value by value, into each worker's output, which may be its
 * input. reduce NULL: the sum. */
RUBATO_API bool rubato_worker_allreduce(RubatoWorker *worker, const RubatoTensor *tensor,
                                        const RubatoReduce *reduce, GError **error);

/* The same for several tensors, which all workers call for together as a group, in any order: all
 * of them run once each of them could, or all fail, and then nothing of the group is pending. A
 * worker that calls for one of them alone, or in another group, makes all of them fail with
 * RUBATO_ERROR_MISMATCH. 1 to RUBATO_TENSOR_MOST_OF_GROUP tensors. */
RUBATO_API bool rubato_worker_allreduce_group(RubatoWorker *worker, const RubatoTensor *tensors,
                                              size_t n, const RubatoReduce *reduce, GError **error);

/* The same for n numbers in place, without a name: for counts, losses and sums. All workers make
 * the call with the same n and reduction. Values are combined in the order of the ranks, on any
 * number of nodes, so that the bits depend only on the workers. Between nodes a worker therefore
 * gets the numbers of all: for large arrays use allreduce. By Adasum it is just that allreduce,
 * and the bits depend on the nodes, too. RUBATO_ERROR_MISMATCH as above; RUBATO_ERROR_MEMORY. */
RUBATO_API bool rubato_worker_reduce(RubatoWorker *worker, double *values, size_t n,
                                     RubatoReduction reduction, GError **error);

/* Copies the input of the worker with rank `root` to the output of each worker. The root's output
 * may be its input, or NULL; the others' input is not read. */
RUBATO_API bool rubato_worker_broadcast(RubatoWorker *worker, const RubatoTensor *tensor,
                                        uint32_t root, GError **error);

/* Puts the inputs of all workers one behind another, in the order of the ranks. They may have
 * different numbers of rows. tensor->output is not used; *gathered is written once the call has
 * returned, or the ticket has ended, with success. */
RUBATO_API bool rubato_worker_allgather(RubatoWorker *worker, const RubatoTensor *tensor,
                                        RubatoGathered *gathered, GError **error);

/* Combines as allreduce does, and gives each worker a run of rows of the result, in the order of
 * the ranks: rubato_reduce_scatter_rows says how many. */
RUBATO_API bool rubato_worker_reduce_scatter(RubatoWorker *worker, const RubatoTensor *tensor,
                                             const RubatoReduce *reduce, GError **error);

/* How many of n_rows the worker of that rank gets: all the same, the first ones one more if need
 * be. */
RUBATO_API uint64_t rubato_reduce_scatter_rows(uint64_t n_rows, uint32_t n_workers, uint32_t rank);

/* Sends rows of the input to each worker: the first splits[0] to rank 0, the next splits[1] to rank
 * 1, and so on; together they are all rows. splits NULL: the same number to each. splits is read
 * before the call, also the asynchronous one, returns. tensor->output is not used; *gathered is
 * written as by allgather. */
RUBATO_API bool rubato_worker_alltoall(RubatoWorker *worker, const RubatoTensor *tensor,
                                       const uint64_t *splits, RubatoGathered *gathered,
                                       GError **error);

/* Returns once every worker has called for a barrier of that name. It says nothing of tables:
 * rubato_worker_barrier waits for their Adds, too. */
RUBATO_API bool rubato_worker_named_barrier(RubatoWorker *worker, const char *name, GError **error);

/* This worker has no more data: until all have joined it takes part in each allreduce and each
 * named barrier with values that change nothing. Another operation on a name, which it could not
 * take part in, fails on all workers with RUBATO_ERROR_MISMATCH and names it. Returns when all have
 * joined; *last is then the rank of the last one. */
RUBATO_API bool rubato_worker_join(RubatoWorker *worker, uint32_t *last, GError **error);

/* A set of workers makes collectives among themselves: RubatoTensor.set names it by its id, and set
 * 0 is all workers of the task. In a set, "all workers" of this page are those of the set, and
 * ranks count them: a root, splits, rows that are gathered or scattered, the last one to join.
 *
 * All workers of the task make a set together, also those that are not in it. ranks: of its n
 * workers, in any order. *set: its id, the lowest that is free. Sets that RubatoTask.sets lists are
 * there from the beginning. RUBATO_ERROR_INVALID: no workers, or a rank twice, or one that there is
 * not; _MISMATCH: workers ask for different sets, or one for a removal; then nothing changes, and
 * all are told both sides. Other errors as above. */
RUBATO_API bool rubato_worker_make_set(RubatoWorker *worker, const uint32_t *ranks, size_t n,
                                       uint32_t *set, GError **error);

/* All workers of the task remove a set together. What is pending in it fails with
 * RUBATO_ERROR_CANCELLED. Its id is free for another set. RUBATO_ERROR_INVALID: there is no such
 * set, or it is set 0; _MISMATCH as above. */
RUBATO_API bool rubato_worker_remove_set(RubatoWorker *worker, uint32_t set, GError **error);

/* How many workers the set has; 0: there is no such set. Workers that were lost do not count. */
RUBATO_API uint32_t rubato_worker_set_size(const RubatoWorker *worker, uint32_t set);

/* Writes their ranks in the task, rising: at most `most` of them. ranks may be NULL if that is 0.
 * Returns how many workers the set has, as above. */
RUBATO_API uint32_t rubato_worker_set_ranks(const RubatoWorker *worker, uint32_t set,
                                            uint32_t *ranks, uint32_t most);

/* The worker's rank in the set: how many workers of it have lower ranks in the task. False: it is
 * not in the set, or there is no such set. */
RUBATO_API bool rubato_worker_set_rank(const RubatoWorker *worker, uint32_t set, uint32_t *rank);

/* A named barrier and a join of the workers of a set. */
RUBATO_API bool rubato_worker_set_barrier(RubatoWorker *worker, uint32_t set, const char *name,
                                          GError **error);
RUBATO_API bool rubato_worker_set_join(RubatoWorker *worker, uint32_t set, uint32_t *last,
                                       GError **error);

/* The same for groups, as by rubato_worker_allreduce_group: of n broadcasts from one root; of n
 * allgathers and n alltoalls, which write n RubatoGathered, in which nothing is to be freed if the
 * call fails; and of n reduce_scatters. splits: of each tensor; NULL: all rows are dealt out
 * evenly. */
RUBATO_API bool rubato_worker_broadcast_group(RubatoWorker *worker, const RubatoTensor *tensors,
                                              size_t n, uint32_t root, GError **error);
RUBATO_API bool rubato_worker_allgather_group(RubatoWorker *worker, const RubatoTensor *tensors,
                                              size_t n, RubatoGathered *gathered, GError **error);
RUBATO_API bool rubato_worker_reduce_scatter_group(RubatoWorker *worker,
                                                   const RubatoTensor *tensors, size_t n,
                                                   const RubatoReduce *reduce, GError **error);
RUBATO_API bool rubato_worker_alltoall_group(RubatoWorker *worker, const RubatoTensor *tensors,
                                             size_t n, const uint64_t *const *splits,
                                             RubatoGathered *gathered, GError **error);

/* The same with tickets. 0 with an error if the call could not be made. Of the options, buffers and
 * priority are not looked at. */
RUBATO_API RubatoTicket rubato_worker_allreduce_async(RubatoWorker *worker,
                                                      const RubatoTensor *tensor,
                                                      const RubatoReduce *reduce,
                                                      const RubatoRequestOptions *options,
                                                      GError **error);
/* One ticket for the whole group. */
RUBATO_API RubatoTicket rubato_worker_allreduce_group_async(RubatoWorker *worker,
                                                            const RubatoTensor *tensors, size_t n,
                                                            const RubatoReduce *reduce,
                                                            const RubatoRequestOptions *options,
                                                            GError **error);
RUBATO_API RubatoTicket rubato_worker_broadcast_async(RubatoWorker *worker,
                                                      const RubatoTensor *tensor, uint32_t root,
                                                      const RubatoRequestOptions *options,
                                                      GError **error);
RUBATO_API RubatoTicket rubato_worker_allgather_async(RubatoWorker *worker,
                                                      const RubatoTensor *tensor,
                                                      RubatoGathered *gathered,
                                                      const RubatoRequestOptions *options,
                                                      GError **error);
RUBATO_API RubatoTicket rubato_worker_reduce_scatter_async(RubatoWorker *worker,
                                                           const RubatoTensor *tensor,
                                                           const RubatoReduce *reduce,
                                                           const RubatoRequestOptions *options,
                                                           GError **error);
RUBATO_API RubatoTicket rubato_worker_alltoall_async(
    RubatoWorker *worker, const RubatoTensor *tensor, const uint64_t *splits,
    RubatoGathered *gathered, const RubatoRequestOptions *options, GError **error);
RUBATO_API RubatoTicket rubato_worker_broadcast_group_async(RubatoWorker *worker,
                                                            const RubatoTensor *tensors, size_t n,
                                                            uint32_t root,
                                                            const RubatoRequestOptions *options,
                                                            GError **error);
RUBATO_API RubatoTicket rubato_worker_allgather_group_async(RubatoWorker *worker,
                                                            const RubatoTensor *tensors, size_t n,
                                                            RubatoGathered *gathered,
                                                            const RubatoRequestOptions *options,
                                                            GError **error);
RUBATO_API RubatoTicket rubato_worker_reduce_scatter_group_async(
    RubatoWorker *worker, const RubatoTensor *tensors, size_t n, const RubatoReduce *reduce,
    const RubatoRequestOptions *options, GError **error);
RUBATO_API RubatoTicket rubato_worker_alltoall_group_async(
    RubatoWorker *worker, const RubatoTensor *tensors, size_t n, const uint64_t *const *splits,
    RubatoGathered *gathered, const RubatoRequestOptions *options, GError **error);

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(RubatoGathered, rubato_gathered_clear)

G_END_DECLS

#endif
