/* Answers of Adds and Gets in one request, on a part with replicas.
 *
 * DESIGN NOTE
 *
 * Under a model that answers at once, such a request shows its row as its own Add has left it. So
 * workers can draw numbers from a row. If the primary is lost before its answer has come, the
 * request is sent again. Its Add counts once; but the rows may have had later Adds since, and a
 * Get of them now would give the same number to two requests. So each holder of the part keeps the
 * answers (add_answers.h).
 *
 * A replica does not get the answer: it reads the rows itself, behind the Add. They are those that
 * the primary has read, because it has had the same inputs, and nothing comes between the Add and
 * the Get. What the Get creates is an input of its own, behind that; until then absent rows read
 * alike. Which answers are kept, the primary says, by the kind of the input: those that are small.
 *
 * The image of a replica that is made has the answers at its end: before that the replica lacks
 * rows, and cannot read them.
 *
 * A process in the place of a lost one makes its worker's requests again by other numbers, also
 * those that the lost one had made of a server of its own node, without a number. Their Adds count
 * once, by their places among the worker's changes. By these the answers are found, too: others
 * may have drawn from the row since.
 *
 * Thread: the server's owner. */
#include "engine/server/replicas/server_answers.h"

#include <string.h>

#include "engine/server/replicas/add_answers.h"

static size_t answer_bytes(const RubatoShard *shard, const RubatoKeys *keys)
{
    return keys->n * shard_row_bytes(shard);
}

/* Copies the rows of keys from where a request has them, one behind the other, or back. */
static void copy_rows(const RubatoKeys *keys, size_t row_bytes, unsigned char *packed, char *rows,
                      bool packs)
{
    const size_t n_bytes = keys->at == NULL ? keys->n * row_bytes : row_bytes;
    const size_t n = keys->at == NULL ? MIN(keys->n, 1) : keys->n;

    for (size_t i = 0; i < n; i++) {
        char *const row = rows + (keys->at == NULL ? 0 : keys->at[i]) * row_bytes;

        if (packs)
            memcpy(packed + i * row_bytes, row, n_bytes);
        else
            memcpy(row, packed + i * row_bytes, n_bytes);
    }
}

bool server_keeps_answer(const BoundPart *part, const Message *message)
{
    return message->kind == MESSAGE_ADD_GET &&
           part->model->ops->traits.lead == RUBATO_LEAD_UNBOUNDED &&
           answer_bytes(part->shard, &message->request.keys) <= ADD_ANSWERS_BYTES;
}

/* The part has just had the Add of these keys, by this process or by an earlier one. */
static AddAsked asked_by(const InputSequences *had, const Message *message, const RubatoKeys *keys)
{
    const RubatoRequest *const request = &message->request;
    const InputProgress *const changes = &had->senders[request->worker].changes;

    return (AddAsked){ .worker = request->worker,
                       .sequence = message->sequence,
                       .clock = changes->now_clock,
                       .at = changes->n_now - keys->n };
}

/* False: there is no memory for it. */
static bool answer_with(const BoundPart *part, Message *message, AddAnswer *answer)
{
    RubatoRequest *const request = &message->request;

    if (request->output == NULL && !post_office_make_room(message, answer->n_bytes))
        return false;
    copy_rows(&request->keys, shard_row_bytes(part->shard), answer->rows, request->output,
              /* packs= */ false);
    rubato_model_finish(part->model, request);
    return true;
}

bool server_answer_as_before(const BoundPart *part, Message *message)
{
    const RubatoRequest *const request = &message->request;
    AddAnswer *const answer =
        add_answers_find(part->had->answers, request->worker, message->sequence,
                         answer_bytes(part->shard, &request->keys));

    return answer != NULL && answer_with(part, message, answer);
}

bool server_repeat_answer(const BoundPart *part, Message *message)
{
    const RubatoKeys *const keys = &message->request.keys;
    const AddAsked asked = asked_by(part->had, message, keys);
    AddAnswer *const answer =
        server_keeps_answer(part, message)
            ? add_answers_repeat(part->had->answers, &asked, answer_bytes(part->shard, keys))
            : NULL;

    return answer != NULL && answer_with(part, message, answer);
}

void server_keep_answer(const BoundPart *part, const Message *message)
{
    const RubatoRequest *const request = &message->request;
    const AddAsked asked = asked_by(part->had, message, &request->keys);
    AddAnswer *answer;

    if (request->output == NULL || !server_keeps_answer(part, message))
        return;
    answer =
        add_answers_keep(&part->had->answers, &asked, answer_bytes(part->shard, &request->keys));
    if (answer != NULL)
        copy_rows(&request->keys, shard_row_bytes(part->shard), answer->rows, request->output,
                  /* packs= */ true);
}

void replica_keep_answer(const Replica *replica, const ReplicaModel *of_task,
                         const Message *message, const RubatoKeys *keys)
{
    const size_t n_bytes = answer_bytes(replica->shard, keys);
    const AddAsked asked = asked_by(of_task->had, message, keys);
    AddAnswer *answer;

    /* it does not have all rows, and gets all answers at the end of its image */
    if (replica->stage == REPLICA_COMING ||
        add_answers_repeat(of_task->had->answers, &asked, n_bytes) != NULL)
        return;
    answer = add_answers_keep(&of_task->had->answers, &asked, n_bytes);
    if (answer != NULL)
        shard_get(replica->shard, keys, answer->rows);
}

/* ---- images ---- */

typedef struct {
    uint32_t epoch;
    void (*push)(void *user, Message *message, uint8_t fed_kind);
    void *user;
} Image;

static void push_answer(void *user, const AddAnswer *answer)
{
    const Image *const image = user;
    Message message = { .epoch = image->epoch,
                        .row_bytes = 1,
                        .sequence = answer->asked.sequence,
                        .request = { .worker = answer->asked.worker,
                                     .clock = answer->asked.clock,
                                     .keys = { .first = answer->asked.at, .n = answer->n_bytes },
                                     .input = answer->rows } };

    image->push(image->user, &message, FEED_ANSWERED);
}

void server_push_answers(uint32_t epoch, const InputSequences *had,
                         void (*push)(void *user, Message *message, uint8_t fed_kind), void *user)
{
    add_answers_each(had->answers, push_answer, &(Image){ epoch, push, user });
}

bool replica_take_answer(InputSequences *had, const Message *message)
{
    const RubatoRequest *const request = &message->request;
    AddAnswer *answer;

    if (had == NULL || request->worker >= had->n_senders || !replica_has_words(message, 1) ||
        request->keys.n > ADD_ANSWERS_BYTES)
        return false;
    answer = add_answers_keep(&had->answers,
                              &(AddAsked){ .worker = request->worker,
                                           .sequence = message->sequence,
                                           .clock = request->clock,
                                           .at = request->keys.first },
                              request->keys.n);
    if (answer != NULL)
        memcpy(answer->rows, request->input, request->keys.n);
    return true;
}
