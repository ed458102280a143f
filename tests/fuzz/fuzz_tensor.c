/* Reads arbitrary bytes as pieces of tensors, as vectors of bits, and as lines of the negotiation.
 * What is taken is written again, and has to be the same. */
#include <stdlib.h>
#include <string.h>

#include "engine/collectives/flow/tensor_message.h"
#include "engine/collectives/negotiation/tensor_rounds.h"
#include "engine/collectives/negotiation/tensor_text.h"

enum { N_WORKERS = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_message(const uint8_t *data, size_t size)
{
    uint8_t header[TENSOR_MESSAGE_HEADER_BYTES + TENSOR_MESSAGE_LOAN_BYTES];
    TensorMessage message;

    if (tensor_message_read(data, size, &message) != NULL)
        return;
    tensor_message_write(&message, header);
    const size_t n = TENSOR_MESSAGE_HEADER_BYTES +
                     (message.is_lent ? TENSOR_MESSAGE_LOAN_BYTES : message.n_bytes);
    if (memcmp(header, data, message.is_lent ? n : TENSOR_MESSAGE_HEADER_BYTES) != 0 || n != size)
        abort();
}

static void read_vector(const uint8_t *data, size_t size)
{
    TensorVector *const vector = tensor_vector_read(data, size);

    if (vector == NULL)
        return;
    g_autoptr(GByteArray) bytes = tensor_vector_write(vector);
    if (bytes->len != size || memcmp(bytes->data, data, size) != 0)
        abort();
    tensor_vector_free(vector);
}

/* Numbers may have zeros in front, so it is what is read again that has to be the same. */
static void read_notices(const char *text)
{
    for (;;) {
        g_auto(TensorNotice) notice = { 0 }, again = { 0 };
        g_autoptr(GString) line = g_string_new(NULL);

        if (!tensor_notice_read(&text, N_WORKERS, &notice))
            return;
        tensor_notice_write(line, &notice);
        const char *at = line->str;
        if (!tensor_notice_read(&at, N_WORKERS, &again) || *at != '\0' ||
            again.kind != notice.kind || again.rank != notice.rank || again.set != notice.set ||
            (notice.kind == TENSOR_NOTICE_GROUP && again.n != notice.n))
            abort();
        if (notice.kind == TENSOR_NOTICE_MAKE &&
            (again.n != notice.n ||
             memcmp(again.ranks, notice.ranks, notice.n * sizeof *notice.ranks) != 0))
            abort();
        if (notice.kind == TENSOR_NOTICE_ASK &&
            (strcmp(again.name, notice.name) != 0 ||
             !tensor_request_fits(&again.request, &notice.request)))
            abort();
    }
}

static void read_verdicts(const char *text)
{
    for (;;) {
        g_auto(TensorVerdict) verdict = { 0 }, again = { 0 };
        g_autoptr(GString) line = g_string_new(NULL);
        bool asked[N_WORKERS];

        if (!tensor_verdict_read(&text, &verdict))
            return;
        tensor_ranks_read(verdict.ranks, N_WORKERS, asked);
        tensor_verdict_write(line, &verdict);
        const char *at = line->str;
        if (!tensor_verdict_read(&at, &again) || *at != '\0' || again.kind != verdict.kind ||
            again.number != verdict.number || again.set != verdict.set ||
            g_strcmp0(again.error, verdict.error) != 0 ||
            g_strcmp0(again.ranks, verdict.ranks) != 0)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    g_autofree char *text = g_strndup((const char *)data, size);

    read_message(data, size);
    read_vector(data, size);
    read_notices(text);
    read_verdicts(text);
    return 0;
}
