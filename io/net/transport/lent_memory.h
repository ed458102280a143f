/* Memory of this process from which other processes of the host read large values: they are written
 * there once, and a message says where they are.
 *
 * It is cut into blocks. A block is lent to one node, or to several that read the same; the process
 * of each says in the same memory when it is done with it, at a place of its own. The block is free
 * once all have. Each use of a block has a number. So what a process says that was lost, and whose
 * block was taken back, does not end a later use.
 *
 * DESIGN NOTE
 *
 * The memory is nameless, and comes to the other process with its connection: nothing of it stays
 * behind a process, however it dies. Neither end trusts it. Who reads checks which block is meant;
 * the values may change while it reads them, and so must be such that any of them are possible. Who
 * lends reads only the numbers of uses. A wrong one keeps a block away from this process until its
 * node is lost, or ends a use while the block is read, so that wrong values are; and that is all.
 *
 * Blocks that came back last are lent first: they are in a cache.
 *
 * Threads: any. */
#ifndef RUBATO_IO_NET_TRANSPORT_LENT_MEMORY_H
#define RUBATO_IO_NET_TRANSPORT_LENT_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LENT_BLOCK_BYTES ((size_t)128 << 10)
#define LENT_BLOCKS 64u
#define LENT_READERS 16u /* of a block at most */

typedef struct LentMemory LentMemory;         /* of this process */
typedef struct BorrowedMemory BorrowedMemory; /* of another one, as this one sees it */

/* A block that is lent to a node. */
typedef struct {
    uint16_t block;
    uint16_t reader; /* which of those that read it */
    uint32_t use;
} LentPlace;

/* NULL with errno. (transfer full) */
LentMemory *lent_memory_new(void);
void lent_memory_free(LentMemory *memory);

/* Its descriptor. (transfer none) */
int lent_memory_fd(const LentMemory *memory);

/* Whether the process of a node to which a block was lent is gone. */
typedef bool (*LentIsGone)(void *user, uint32_t node, uint64_t incarnation);

/* A block for values that the process of the node reads. NULL: all are lent. is_gone is called with
 * the memory's lock held. */
void *lent_memory_take(LentMemory *memory, uint32_t node, uint64_t incarnation, LentIsGone is_gone,
                       void *user, LentPlace *place);

/* The block is lent to the process of one more node, which reads the same. That of `first` was not
 * told of it yet. False: so many read it that no more can. */
bool lent_memory_share(LentMemory *memory, LentPlace first, uint32_t node, uint64_t incarnation,
                       LentPlace *place);

/* The values are there, and the message is sent: that reader's part in the block may be taken back
 * once its process is gone. */
void lent_memory_sent(LentMemory *memory, LentPlace place);

/* It was not sent to that reader. */
void lent_memory_take_back(LentMemory *memory, LentPlace place);

/* Whether a block can be lent. */
bool lent_memory_has_room(LentMemory *memory);

/* The memory of another process. NULL: it is no such memory, or cannot be mapped.
 * (transfer full) */
BorrowedMemory *borrowed_memory_new(int fd);
BorrowedMemory *borrowed_memory_ref(BorrowedMemory *memory);
void borrowed_memory_unref(BorrowedMemory *memory); /* NULL is allowed */

/* n_bytes of a block, which any process may have named. NULL: there are no such bytes. */
const void *borrowed_memory_at(const BorrowedMemory *memory, LentPlace place, size_t n_bytes);

/* This process is done with a block, which borrowed_memory_at has found. */
void borrowed_memory_return(BorrowedMemory *memory, LentPlace place);

#endif
