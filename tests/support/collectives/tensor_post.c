/* See the header. */
#include "tests/support/collectives/tensor_post.h"

#include <string.h>

#include "io/net/transport/lent_memory.h"
#include "tests/support/runner.h"

typedef struct {
    Incoming incoming;
    uint64_t room[8];
    uint32_t to;
    uint64_t bytes[];
} Letter;

static TensorPostHooks hooks;
static GPtrArray *letters; /* of Letter: on their way */
static uint32_t n_letters; /* that exist */
static uint32_t n_queued;  /* that were to leave with the next one, ever */
static GPtrArray *loans;   /* of Loan: memory that nodes have lent, ever */
static uint32_t n_loans;   /* of which some reader has not given it back */
static uint32_t n_shared;  /* readers of what another one reads, too, ever */

typedef struct {
    void *values; /* NULL: all have given it back */
    uint32_t n_readers, n_out;
    bool *is_out; /* by reader */
} Loan;

static void free_loan(void *data)
{
    Loan *const loan = data;

    g_free(loan->values);
    g_free(loan->is_out);
    g_free(loan);
}

void tensor_post_begin(const TensorPostHooks *given)
{
    hooks = *given;
    letters = g_ptr_array_new();
    n_letters = n_loans = 0;
    loans = g_ptr_array_new_with_free_func(free_loan);
}

void tensor_post_end(void)
{
    require_msg(n_letters == 0, "%u messages are left", n_letters);
    g_clear_pointer(&letters, g_ptr_array_unref);
    require_msg(n_loans == 0, "%u blocks of memory have not come back", n_loans);
    g_clear_pointer(&loans, g_ptr_array_unref);
}

Network *tensor_post_network(uint32_t node)
{
    return (Network *)((uintptr_t)node + 1);
}

static uint32_t number_of(const Network *network)
{
    return (uint32_t)((uintptr_t)network - 1);
}

/* ---- the network's functions ---- */

Frame *__wrap_network_new_frame(Network *network, const WireHeader *header);
void __wrap_network_push(Network *network, uint32_t to, Frame *frame);
void __wrap_network_send(Network *network, uint32_t to, Frame *frame);
bool __wrap_network_is_full(const Network *network, uint32_t node, unsigned n_windows);
bool __wrap_network_is_memory(const Network *network, uint32_t node);
bool __wrap_network_is_stopping(const Network *network);
bool __wrap_network_wait_room(Network *network, uint32_t node, bool (*cancelled)(void *user),
                              void *user, int timeout_ms);
void __wrap_incoming_free(Incoming *incoming);
Incoming *__wrap_incoming_detach(Incoming *incoming);
bool __wrap_incoming_park(Incoming *incoming, size_t more_bytes);

Frame *__wrap_network_new_frame(Network *network, const WireHeader *header)
{
    (void)network;
    return hooks.is_starved() ? NULL : frame_new(header);
}

void __wrap_network_send(Network *network, uint32_t to, Frame *frame)
{
    const WireHeader *const header = frame_header(frame);
    Letter *const letter = g_malloc(sizeof(Letter) + header->value_bytes);

    *letter = (Letter){ .to = to,
                        .incoming = { .node = number_of(network),
                                      .header = *header,
                                      .value_bytes = header->value_bytes } };
    memcpy(letter->bytes, frame_values(frame), header->value_bytes);
    letter->incoming.values = letter->bytes;
    letter->incoming.room = letter->room;
    frame_free(frame);
    n_letters++;
    g_ptr_array_add(letters, letter);
    hooks.sent();
}

/* Each is on its way by itself here. */
void __wrap_network_push(Network *network, uint32_t to, Frame *frame)
{
    n_queued++;
    __wrap_network_send(network, to, frame);
}

bool __wrap_network_is_full(const Network *network, uint32_t node, unsigned n_windows)
{
    (void)network;
    (void)node;
    (void)n_windows;
    return hooks.has_no_room();
}

/* Some nodes are on other hosts: messages to them have more bytes. */
bool __wrap_network_is_memory(const Network *network, uint32_t node)
{
    return (number_of(network) + node) % 2 == 0;
}

bool __wrap_network_is_stopping(const Network *network)
{
    (void)network;
    return false;
}

bool __wrap_network_wait_room(Network *network, uint32_t node, bool (*cancelled)(void *user),
                              void *user, int timeout_ms)
{
    (void)network;
    (void)node;
    (void)timeout_ms;
    hooks.sent();
    return !cancelled(user) && !hooks.has_no_room();
}

void __wrap_incoming_free(Incoming *incoming)
{
    if (incoming == NULL)
        return;
    n_letters--;
    g_free(incoming);
}

/* Moves it: whoever used its old place would find nothing there. */
Incoming *__wrap_incoming_detach(Incoming *incoming)
{
    Letter *const letter = (Letter *)incoming;
    Letter *const moved = g_memdup2(letter, sizeof(Letter) + incoming->value_bytes);

    moved->incoming.values = moved->bytes;
    moved->incoming.room = moved->room;
    g_free(letter);
    return &moved->incoming;
}

bool __wrap_incoming_park(Incoming *incoming, size_t more_bytes)
{
    (void)incoming;
    (void)more_bytes;
    return !hooks.is_starved();
}

/* ---- memory that is lent: whoever uses it once it has come back, uses freed memory ---- */

bool __wrap_network_lends(const Network *network, uint32_t node, size_t n_bytes);
bool __wrap_network_has_loans(const Network *network, uint32_t node);
bool __wrap_network_lend(const Network *network, uint32_t node, size_t n_bytes, NetworkLoan *loan);
bool __wrap_network_share_loan(const Network *network, uint32_t node, LentPlace first,
                               LentPlace *place);
void __wrap_network_note_loan(const Network *network, uint32_t node, LentPlace place);
void __wrap_network_end_loan(const Network *network, uint32_t node, LentPlace place);
BorrowedMemory *__wrap_network_borrow(const Network *network, uint32_t node);
const void *__wrap_borrowed_memory_at(const BorrowedMemory *memory, LentPlace place,
                                      size_t n_bytes);
void __wrap_borrowed_memory_return(BorrowedMemory *memory, LentPlace place);
void __wrap_borrowed_memory_unref(BorrowedMemory *memory);

bool __wrap_network_lends(const Network *network, uint32_t node, size_t n_bytes)
{
    (void)network;
    (void)node;
    return n_bytes > 0;
}

bool __wrap_network_has_loans(const Network *network, uint32_t node)
{
    (void)network;
    (void)node;
    return true;
}

static void add_reader(Loan *loan)
{
    loan->is_out = g_renew(bool, loan->is_out, loan->n_readers + 1);
    loan->is_out[loan->n_readers++] = true;
    loan->n_out++;
}

bool __wrap_network_lend(const Network *network, uint32_t node, size_t n_bytes, NetworkLoan *loan)
{
    (void)network;
    (void)node;
    if (hooks.has_no_room())
        return false;
    Loan *const made = g_new0(Loan, 1);
    made->values = loan->values = g_malloc(n_bytes);
    loan->place = (LentPlace){ (uint16_t)loans->len, 0, 1 };
    g_ptr_array_add(loans, made);
    add_reader(made);
    n_loans++;
    return true;
}

/* NULL: there is none. */
static Loan *find_loan(LentPlace place)
{
    Loan *const loan = place.block < loans->len ? loans->pdata[place.block] : NULL;

    return loan != NULL && loan->values != NULL && place.reader < loan->n_readers &&
                   loan->is_out[place.reader]
               ? loan
               : NULL;
}

bool __wrap_network_share_loan(const Network *network, uint32_t node, LentPlace first,
                               LentPlace *place)
{
    Loan *const loan = find_loan(first);

    (void)network;
    (void)node;
    require_msg(loan != NULL, "block %u is shared without having been lent", first.block);
    if (hooks.has_no_room())
        return false;
    *place = (LentPlace){ first.block, (uint16_t)loan->n_readers, 1 };
    add_reader(loan);
    n_shared++;
    return true;
}

void __wrap_network_note_loan(const Network *network, uint32_t node, LentPlace place)
{
    (void)network;
    (void)node;
    require_msg(find_loan(place) != NULL && place.use == 1,
                "block %u is told without having been lent", place.block);
}

/* Whoever uses it once all have given it back, uses freed memory. */
static void end_loan(LentPlace place)
{
    Loan *const loan = find_loan(place);

    require_msg(loan != NULL, "block %u comes back twice", place.block);
    loan->is_out[place.reader] = false;
    if (--loan->n_out > 0)
        return;
    g_clear_pointer(&loan->values, g_free);
    n_loans--;
}

void __wrap_network_end_loan(const Network *network, uint32_t node, LentPlace place)
{
    __wrap_network_note_loan(network, node, place);
    end_loan(place);
}

uint32_t tensor_post_n_shared(void)
{
    return n_shared;
}

/* Only for comparisons, as the network. */
BorrowedMemory *__wrap_network_borrow(const Network *network, uint32_t node)
{
    (void)network;
    return node == TENSOR_POST_FAR ? NULL : (BorrowedMemory *)((uintptr_t)node + 1);
}

const void *__wrap_borrowed_memory_at(const BorrowedMemory *memory, LentPlace place, size_t n_bytes)
{
    (void)memory;
    (void)n_bytes;
    const Loan *const loan = find_loan(place);

    return loan == NULL ? NULL : loan->values;
}

void __wrap_borrowed_memory_return(BorrowedMemory *memory, LentPlace place)
{
    (void)memory;
    end_loan(place);
}

void __wrap_borrowed_memory_unref(BorrowedMemory *memory)
{
    (void)memory;
}

/* ---- what is on its way ---- */

uint32_t tensor_post_n_queued(void)
{
    return n_queued;
}

uint32_t tensor_post_count(void)
{
    return letters->len;
}

uint32_t tensor_post_choose(uint32_t which, uint32_t *to)
{
    const Letter *const chosen = letters->pdata[which];

    *to = chosen->to;
    for (uint32_t i = 0; i < which; i++) {
        const Letter *const other = letters->pdata[i];
        TensorMessage message;

        if (other->to == chosen->to && other->incoming.node == chosen->incoming.node &&
            tensor_message_read(other->bytes, other->incoming.value_bytes, &message) == NULL &&
            message.kind == TENSOR_MESSAGE_SIZES)
            return i;
    }
    return which;
}

Incoming *tensor_post_take(uint32_t which)
{
    return &((Letter *)g_ptr_array_remove_index(letters, which))->incoming;
}

void tensor_post_drop(uint32_t which)
{
    Incoming *const incoming = tensor_post_take(which);
    TensorMessage message;

    if (tensor_message_read(incoming->values, incoming->value_bytes, &message) == NULL &&
        message.is_lent)
        end_loan(message.loan); /* the sender sees that its receiver is gone */
    __wrap_incoming_free(incoming);
}

void tensor_post_drop_of(uint32_t node)
{
    for (guint i = letters->len; i-- > 0;) {
        const Letter *const letter = letters->pdata[i];

        if (letter->to == node || letter->incoming.node == node)
            tensor_post_drop(i);
    }
}

Incoming *tensor_post_forge(uint32_t from, uint32_t epoch, const void *bytes, size_t n)
{
    Letter *const letter = g_malloc(sizeof(Letter) + n);

    *letter = (Letter){ .incoming = { .node = from,
                                      .header = { .kind = MESSAGE_TENSOR, .epoch = epoch },
                                      .values = letter->bytes,
                                      .value_bytes = n } };
    memcpy(letter->bytes, bytes, n);
    letter->incoming.room = letter->room;
    n_letters++;
    return &letter->incoming;
}
