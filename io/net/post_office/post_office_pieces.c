/* A request to another node, cut into pieces of a good size, each of which is one message.
 *
 * Threads: any. */
#include "io/net/post_office/post_office_private.h"

#include "io/net/link/block_pool.h"
#include "io/net/link/key_codec.h"
#include "io/net/stall_clock.h"

#include <string.h>

/* The memory of messages is reused: fresh pages cost more than filling them. */
G_STATIC_ASSERT(POST_OFFICE_MAX_VALUE_BYTES + (4 << 10) <= BLOCK_POOL_MOST_BYTES);

/* When piece sizes vary: the smallest piece is this fraction of the largest, and each of the last
 * pieces is this fraction of the rest. */
#define LEAST_PART 8
#define LAST_PART 4

/* A call is sent in pieces without a wait between them, up to this many windows. With that and with
 * the pieces of others, a node stays far below what a receiver takes (TAKEN_WINDOWS in
 * network.c). The same holds for a call to a server of this node that passes it on to replicas. */
#define CALL_WINDOWS 16

static void gather_input(void *to, const RubatoKeys *keys, const char *input, size_t row_bytes)
{
    char *out = to;

    if (keys->at == NULL) {
        memcpy(out, input, keys->n * row_bytes);
        return;
    }
    for (size_t i = 0; i < keys->n; i++)
        memcpy(out + i * row_bytes, input + keys->at[i] * row_bytes, row_bytes);
}

uint64_t post_office_n_announced(const Message *message, size_t n_piece)
{
    const size_t n = message->request.keys.n;

    if (message->request.n_announced != 0) /* it is itself a piece */
        return message->request.n_announced;
    return n_piece == n ? 0 : n;
}

static void add_announcement(WireRequest *to, const Message *message, const RubatoKeys *piece)
{
    to->n_announced = post_office_n_announced(message, piece->n);
}

static void add_tuning(WireRequest *to, const Message *message, const RubatoKeys *piece)
{
    (void)piece;
    to->tuning = message->request.tuning;
}

static void add_piece(WireRequest *to, const Message *message, const RubatoKeys *piece)
{
    const HandlerCall *const call = message->request.handler_call;

    (void)piece;
    to->piece.serial = call->serial;
    to->piece.n_bytes = call->n_payload_bytes;
}

static void add_input(WireRequest *to, const Message *message, const RubatoKeys *piece)
{
    const RubatoTuning *const tuning = &message->request.tuning;

    (void)piece;
    to->input.number = message->number;
    to->input.sequence = message->sequence;
    to->input.kind = message->fed_kind;
    to->input.hyper = 0;
    /* no model takes as many keys as the most that fits */
    if (message->fed_kind == MESSAGE_ANNOUNCE)
        to->input.hyper = (uint32_t)MIN(message->request.n_announced, UINT32_MAX);
    if (message->fed_kind == MESSAGE_HANDLER) /* which HANDLER_CALL_MOST_BYTES bounds */
        to->input.hyper = (uint32_t)message->request.piece.n_bytes;
    if (message->fed_kind != MESSAGE_TUNE)
        return;
    to->input.hyper = (uint32_t)tuning->hyper;
    memcpy(&to->first_key, &tuning->value, sizeof to->first_key);
}

/* By kind: adds to a header what the kind carries besides keys and input. NULL: nothing. */
static void (*const additions[MESSAGE_N_WIRE_KINDS])(WireRequest *to, const Message *message,
                                                     const RubatoKeys *piece) = {
    [MESSAGE_ANNOUNCE] = add_announcement, [MESSAGE_TUNE] = add_tuning,
    [MESSAGE_HANDLER] = add_piece,         [MESSAGE_FEED] = add_input,
    [MESSAGE_POSITION] = add_input,
};

/* A piece of a request: some of its keys, and where their input and output begin. */
typedef struct {
    RubatoKeys keys;
    const char *input;
    char *output;
    PostOfficeInput stays;
} Piece;

/* The values of a piece are not read any more (direct_write.h). */
static void end_direct_write(void *call)
{
    call_end_part(call, CALL_OK, UINT64_MAX);
}

/* A frame whose values stay where they are, which is a part of the call. NULL: no memory. */
static Frame *new_direct_frame(PostOffice *office, const Message *message, const WireHeader *header,
                               const char *values)
{
    const DirectWriteSource source = { .bytes = values,
                                       .n_bytes = (size_t)header->value_bytes,
                                       .end = end_direct_write,
                                       .user = message->call };
    Frame *const frame = network_new_direct_frame(office->network, header, &source);

    if (frame != NULL)
        call_add_parts(message->call, 1);
    return frame;
}

/* stays: the input, if it stays there until the call has ended; NULL: there is room for it in the
 * frame. A list of keys is written unless it is packed, which leaves it to the caller. */
static inline __attribute__((always_inline)) Frame *make_frame(PostOffice *office,
                                                               const Message *message,
                                                               const RubatoKeys *keys,
                                                               bool has_input, const char *stays,
                                                               bool is_packed)
{
    const uint32_t node = office->servers[message->server].node;
    const size_t delta_bytes =
        keys->keys == NULL || network_is_memory(office->network, node) ? 0 : key_codec_size(keys);
    WireHeader header = {
        .kind = message->kind,
        .is_high = message->is_high,
        .epoch = message->epoch,
        .keys = keys->keys == NULL ? WIRE_KEYS_RUN
                : delta_bytes > 0  ? WIRE_KEYS_DELTAS
                                   : WIRE_KEYS_LIST,
        .key_bytes = keys->keys == NULL ? 0
                     : delta_bytes > 0  ? delta_bytes
                                        : keys->n * sizeof(RubatoKey),
        .value_bytes = has_input ? keys->n * message->row_bytes : 0,
        .request = { .table = message->table,
                     .part = message->part,
                     .server = message->server,
                     .worker = message->request.worker,
                     .clock = message->request.clock,
                     .node_clock = message->node_clock,
                     .n_keys = keys->n,
                     .first_key = delta_bytes == 0   ? keys->first
                                  : keys->at == NULL ? keys->keys[0]
                                                     : keys->keys[keys->at[0]] },
    };
    if (additions[message->kind] != NULL)
        additions[message->kind](&header.request, message, keys);
    Frame *const frame = stays == NULL ? network_new_frame(office->network, &header)
                                       : new_direct_frame(office, message, &header, stays);

    if (frame == NULL)
        return NULL;
    if (delta_bytes > 0)
        key_codec_encode(keys, frame_keys(frame), delta_bytes);
    else if (keys->keys != NULL && !is_packed)
        frame_set_keys(frame, keys);
    return frame;
}

Frame *post_office_make_frame(PostOffice *office, const Message *message, const RubatoKeys *keys,
                              const char *input)
{
    Frame *const frame = make_frame(office, message, keys, input != NULL, /* stays= */ NULL,
                                    /* is_packed= */ false);

    if (frame != NULL && input != NULL && keys->n > 0)
        gather_input(frame_values(frame), keys, input, message->row_bytes);
    return frame;
}

/* Keys and input of a piece as they go on the wire, if they can be copied from there into memory
 * that is shared with the node; else NULL. So an input of a part goes to its replicas out of the
 * packet in which it came, and a change that its worker keeps goes out of the copy that is kept.
 * Both are read before the piece is sent, and not afterwards: the owner of the message may free
 * them then, as before. */
static const void *find_packed(const PostOffice *office, const Message *message, const Piece *piece)
{
    const void *const packed = message_packed(message, &piece->keys, piece->input);
    const size_t n_bytes = piece->keys.n * (sizeof(RubatoKey) + message->row_bytes);

    return packed != NULL && network_takes_packed(office->network,
                                                  office->servers[message->server].node, n_bytes)
               ? packed
               : NULL;
}

/* Sends one message of keys, whose input and output are at most POST_OFFICE_MAX_VALUE_BYTES. False
 * if there is no memory for it. */
static bool send_piece(PostOffice *office, const Message *message, const Piece *piece)
{
    const RubatoKeys *keys = &piece->keys;
    const uint32_t node = office->servers[message->server].node;
    const size_t value_bytes = piece->input != NULL ? keys->n * message->row_bytes : 0;
    const bool is_direct = piece->stays == POST_OFFICE_INPUT_STAYS && keys->at == NULL &&
                           network_sends_direct(office->network, node, value_bytes);
    const void *const packed = find_packed(office, message, piece);
    Frame *const frame = make_frame(office, message, keys, piece->input != NULL,
                                    is_direct ? piece->input : NULL, packed != NULL);

    if (frame == NULL)
        return false;
    if (message->call != NULL) {
        const uint64_t id =
            post_office_add_pending(office, message, keys, piece->input, piece->output);

        if (id == 0) {
            frame_free(frame);
            return false;
        }
        frame_header(frame)->request.id = id;
    }
    if (message->is_high)
        post_office_note_high(office, node);
    if (packed != NULL) {
        network_push_packed(office->network, node, frame, packed);
        return true;
    }
    if (is_direct) {
        network_push(office->network, node, frame);
        return true;
    }
    if (keys->at == NULL && network_takes_values(office->network, node, value_bytes)) {
        network_push_values(office->network, node, frame, piece->input);
        return true;
    }
    if (value_bytes > 0)
        gather_input(frame_values(frame), keys, piece->input, message->row_bytes);
    network_push(office->network, node, frame);
    return true;
}

bool post_office_push(PostOffice *office, const Message *message)
{
    const Piece piece = { .keys = message->request.keys,
                          .input = message->request.input,
                          .stays = POST_OFFICE_INPUT_GOES };

    return send_piece(office, message, &piece);
}

size_t post_office_max_keys(size_t row_bytes)
{
    return MAX(1, POST_OFFICE_MAX_VALUE_BYTES / MAX(row_bytes, 1));
}

/* The number of keys in a piece for a node. A list of keys takes room too. */
static size_t piece_keys(const PostOffice *office, uint32_t node, const Message *message)
{
    const FlowSizes *const sizes = &office->sizes;
    const RubatoRequest *const request = &message->request;
    const size_t row_bytes =
        request->input != NULL || request->output != NULL ? message->row_bytes : 0;
    const size_t key_bytes = MAX(row_bytes, request->keys.keys != NULL ? sizeof(RubatoKey) : 1);
    const bool is_near = network_is_memory(office->network, node);
    const size_t high_bytes = is_near ? sizes->near_high_piece_bytes : sizes->high_piece_bytes;
    size_t bytes = is_near ? sizes->near_piece_bytes : sizes->piece_bytes;

    /* A small request is one piece in any case, and need not ask. */
    if (request->keys.n > 1 && request->keys.n * key_bytes > high_bytes &&
        network_hurries(office->network, node))
        bytes = MIN(bytes, high_bytes);
    return MAX(1, bytes / key_bytes);
}

/* How many keys the pieces of a request have. All but the last have a multiple of `unit`. */
typedef struct {
    size_t least, most, unit;
} PieceSizes;

/* For a request with output the first piece is small, so that the answer begins to come soon. The
 * last ones are small too, because no other work is done while the very last is read. If bytes are
 * only copied, or for input, this saves less than the pieces cost. */
static PieceSizes find_sizes(const PostOffice *office, uint32_t node, const Message *message)
{
    const size_t n = piece_keys(office, node, message);
    const bool is_graded =
        message->request.output != NULL && !network_is_memory(office->network, node);
    /* so that the input of a piece can stay with the caller (network_sends_direct) */
    const size_t unit =
        n > 1 && message->request.input != NULL && message->row_bytes % 8 == 4 ? 2 : 1;

    return (
        PieceSizes){ .least = is_graded ? MAX(unit, n / LEAST_PART) : n, .most = n, .unit = unit };
}

/* The number of keys in the next piece, out of those left. */
static size_t next_piece(PieceSizes sizes, size_t left, bool is_first)
{
    if (is_first && left > sizes.most)
        return sizes.least - sizes.least % sizes.unit;
    if (is_first)
        return left;
    const size_t n = CLAMP(left / LAST_PART, sizes.least, sizes.most);

    return MIN(left, n - n % sizes.unit);
}

static uint32_t count_pieces(PieceSizes sizes, size_t n_keys)
{
    uint32_t n = 0;

    for (size_t at = 0; at < n_keys; n++)
        at += next_piece(sizes, n_keys - at, n == 0);
    return MAX(1, n);
}

static bool has_ended(void *office)
{
    return atomic_load_explicit(&((PostOffice *)office)->has_ended, memory_order_relaxed);
}

/* Waits until what the node has not taken in fits into its window. Every piece that was sent gives
 * its room back by itself, so the wait ends as any wait for room does: see the note in
 * network_parcel.c. */
static void wait_between_pieces(PostOffice *office, uint32_t node)
{
    StallClock clock;

    stall_clock_start(&clock, office->stall_ms);
    while (!network_wait_room(office->network, node, has_ended, office,
                              1 + stall_clock_left_ms(&clock)) &&
           !network_is_stopping(office->network) && !has_ended(office))
        if (stall_clock_strikes(&clock))
            g_message("a call waits for node %u to take in what was sent to it; %" G_GUINT64_FORMAT
                      " bytes of requests are under way to its servers, and more of the same call "
                      "have to wait for room (for %.1f s so far)",
                      office->node_ids[node], network_charged_bytes(office->network, node),
                      stall_clock_s(&clock));
}

void post_office_pace(PostOffice *office, uint32_t node)
{
    if (network_is_full(office->network, node, CALL_WINDOWS))
        wait_between_pieces(office, node);
}

/* An Add-and-Get with a list of keys that does not fit into one message becomes an Add and a Get.
 * A list may repeat a key, and each of its places is to show all deltas, also those of a later
 * piece. */
static bool send_halves(PostOffice *office, const Message *message, PostOfficeInput input)
{
    Message add = *message, get = *message;

    add.kind = MESSAGE_ADD;
    add.request.output = NULL;
    get.kind = MESSAGE_GET;
    get.request.input = NULL;
    call_add_parts(message->call, 1);
    const bool is_sent = post_office_send_pieces(office, &add, input);

    return post_office_send_pieces(office, &get, input) && is_sent;
}

bool post_office_send_pieces(PostOffice *office, const Message *message, PostOfficeInput input)
{
    const uint32_t node = office->servers[message->server].node;
    const RubatoRequest *request = &message->request;
    const RubatoKeys *keys = &request->keys;
    const PieceSizes sizes = find_sizes(office, node, message);
    const size_t input_bytes = request->input != NULL ? message->row_bytes : 0;
    const size_t key_bytes = keys->keys != NULL ? sizeof(RubatoKey) : 0;
    size_t begin = 0, waiting_bytes = 0;
    bool all = true;

    if (message->kind == MESSAGE_ADD_GET && keys->keys != NULL && keys->n > sizes.most)
        return send_halves(office, message, input);
    if (message->call != NULL)
        message->call->is_remote = true;
    if (message->call != NULL && keys->n > sizes.most)
        call_add_parts(message->call, count_pieces(sizes, keys->n) - 1);
    do {
        const size_t n = next_piece(sizes, keys->n - begin, begin == 0);
        /* a selection's positions count from the start of all rows */
        const size_t at = keys->at != NULL ? 0 : begin * message->row_bytes;
        const Piece piece = {
            .keys = message_keys_from(keys, begin, n),
            .input = request->input == NULL ? NULL : (const char *)request->input + at,
            .output = request->output == NULL ? NULL : (char *)request->output + at,
            .stays = input,
        };

        if (!send_piece(office, message, &piece)) {
            all = false;
            if (message->call == NULL)
                break;
            call_end_part(message->call, CALL_NO_MEMORY, UINT64_MAX);
        }
        waiting_bytes += n * (key_bytes + input_bytes);
        /* So the other side can work meanwhile; but several small pieces are sent to it at once. */
        if (begin + n < keys->n &&
            (begin == 0 || waiting_bytes >= office->sizes.worth_sending_bytes)) {
            network_flush(office->network, node);
            waiting_bytes = 0;
            post_office_pace(office, node);
        }
        begin += n;
    } while (begin < keys->n);
    return all;
}
