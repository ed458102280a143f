/* Calls of handlers that write, on a part with replicas.
 *
 * DESIGN NOTE
 *
 * Such a call is an input like any other: each holder of the part runs the handler on its own rows,
 * and so they stay the same (docs/replication.md). Three things differ from an Add.
 *
 * Its bytes may be many messages. The primary collects them (server_handlers.c) and answers each
 * message but the last one as it comes. Only the whole call is passed on, as numbered inputs that
 * follow each other; the last one names the call. If the primary is lost before, the caller has
 * the call still, and sends all of it again (post_office_again.c).
 *
 * It has an answer: whether it has failed, and why. So each holder of the part remembers failures
 * (models/handlers/call_records.h). A call that comes again has the number that it had, and is
 * answered from them. The number is that of the call, and not of its message: a caller on the
 * primary's node sends none, and its call has to be known, too, when the part is handed over
 * (server_handover.c).
 *
 * It may run later, when its clock has ended. Each holder then keeps a copy of its own, and what it
 * remembers of the call says that it is pending. Those who wait for the answer are attached to
 * that: the call that came first, and one that comes again to the next primary. They are answered
 * when the copy has run (models/model.c), or cancelled with the model. A request to a table of
 * ragged rows is answered when it is kept, so its copies have no record. If one fails later, each
 * holder of the part says so, and the task fails.
 *
 * A handler may fail after it has changed rows. It then has changed the same rows everywhere,
 * because it is a function of the rows, its arguments, and calls before. A handler without memory
 * ends the node, as an Add does.
 *
 * Thread: the server's owner. */
#include "engine/server/replicas/server_calls.h"

#include "engine/server/replicas/server_inputs.h"

#include <string.h>

#include "engine/server/request_ops.h"
#include "io/net/handler_call.h"
#include "models/handlers/call_records.h"
#include "models/handlers/handler.h"
#include "models/ragged/ragged.h"
#include "models/update/bad_gradients.h"

bool server_is_change_call(const Message *message)
{
    return message->kind == MESSAGE_HANDLER &&
           message->request.handler_call->ops->access == RUBATO_ACCESS_WRITES;
}

/* ---- calls that the part has had ---- */

/* Gives the failure of a call that came before to one that came again. NULL: it had none. */
static void fail_again(HandlerCall *call, const InputSequences *had, const CallRecord *record,
                       const CallKey *key)
{
    if (record != NULL)
        call->answer.failure = g_strdup(record->failure);
    else if (call_records_may_hide(had->records, key))
        call->answer.failure = g_strdup_printf(
            "handler %s may have failed: its part has got another primary, and keeps the last %u "
            "failures of a worker",
            call->ops->name, CALL_RECORDS_FAILURES);
}

/* The call is answered as the one that came before, or waits for it. False: it waits. */
static bool answer_again(const InputSequences *had, CallRecord *record, const CallKey *key,
                         RubatoRequest *request)
{
    if (record != NULL && record->is_pending) {
        request->kind = RUBATO_REQUEST_WRITE; /* as its model has set for the first one */
        request->handler_call->record = record;
        call_record_wait(record, request);
        return false;
    }
    fail_again(request->handler_call, had, record, key);
    return true;
}

/* ---- running ---- */

/* What a call does in a task, on each holder of the part. Returns its record, if it has not run;
 * *had_before: of an earlier process of its worker. The request is in the model's outbox, or the
 * caller's if this returns a record. */
static CallRecord *run_in_task(InputSequences *had, RubatoModel *model, RubatoRequest *request,
                               bool *had_before)
{
    HandlerCall *const call = request->handler_call;
    const bool is_new = server_skip_had(had, request, /* row_bytes= */ 0);
    const CallKey key = { .worker = request->worker,
                          .serial = call->serial,
                          .clock = request->clock,
                          .n = had->senders[request->worker].changes.n_now };
    CallRecord *record;

    *had_before = !is_new;
    if (!is_new) {
        record = call_records_find_change(had->records, key.worker, key.clock, key.n);
        if (record != NULL)
            record->key.serial = key.serial;
        return record;
    }
    record = call_records_add(&had->records, &key);
    call->record = record;
    request_ops[MESSAGE_HANDLER]->in_task(model, request);
    if (call->is_parked)
        return record;
    call->record = NULL;
    call_record_end(record, call->answer.failure);
    return NULL;
}

static void run_between(InputSequences *had, RubatoShard *shard, uint32_t node,
                        RubatoRequest *request)
{
    HandlerCall *const call = request->handler_call;
    const CallKey key = { .worker = node, .serial = call->serial };

    request_ops[MESSAGE_HANDLER]->between_tasks(shard, request);
    if (call->answer.failure != NULL)
        call_record_end(call_records_add(&had->records, &key), call->answer.failure);
}

/* ---- the primary ---- */

/* The call as bytes. NULL: no memory. (transfer full) */
static unsigned char *write_call(const RubatoRequest *request, size_t *n)
{
    unsigned char *bytes;

    *n = handler_call_size(request->handler_call, &request->keys);
    bytes = g_try_malloc(*n);
    if (bytes != NULL)
        handler_call_write(request->handler_call, &request->keys, bytes);
    return bytes;
}

/* A piece of a call as an input, or of an image. */
static Message piece_of(const Message *call, const unsigned char *bytes, size_t n, size_t begin)
{
    const size_t most = post_office_max_keys(1), some = MIN(most, n - begin);

    return (Message){
        .epoch = call->epoch,
        .row_bytes = 1,
        .sequence = begin + some == n ? call->request.handler_call->serial : 0,
        .request = { .worker = call->request.worker,
                     .clock = call->epoch == 0 ? call->node : call->request.clock,
                     .keys = { .first = begin, .n = some },
                     .input = bytes + begin,
                     .piece = { .n_bytes = n } },
    };
}

/* Passes all on but the last piece. */
static Message pass_on_most(Server *server, FedPart *fed, const Message *message,
                            const unsigned char *bytes, size_t n)
{
    Message piece = piece_of(message, bytes, n, 0);

    for (size_t begin = piece.request.keys.n; begin < n; begin += piece.request.keys.n) {
        server_pass_on(server, fed, &piece, MESSAGE_HANDLER);
        piece = piece_of(message, bytes, n, begin);
    }
    return piece;
}

static bool is_new(InputSequences *had, uint32_t sender, const Message *message)
{
    return input_sequences_take_call(had, sender, message->request.handler_call->serial);
}

/* Without memory to pass it on, the call has not come. */
void server_take_change_call(Server *server, const BoundPart *part, Message *message)
{
    RubatoRequest *const request = &message->request;
    const CallKey key = { .worker = request->worker, .serial = request->handler_call->serial };
    InputSequences *const had = part->had;
    CallRecord *record;
    bool had_before;
    size_t n;
    g_autofree unsigned char *bytes = write_call(request, &n);

    if (bytes == NULL) {
        server->starved = true;
        rubato_model_finish(part->model, request);
        return;
    }
    if (!is_new(had, key.worker, message)) {
        record = call_records_find(had->records, key.worker, key.serial);
        if (answer_again(had, record, &key, request))
            rubato_model_finish(part->model, request);
        return;
    }
    Message last = pass_on_most(server, part->fed, message, bytes, n);

    server_begin_input(server, part->fed, part->shard, &last, MESSAGE_HANDLER);
    record = run_in_task(had, part->model, request, &had_before);
    server_end_input(server, part->fed, part->shard, &last, MESSAGE_HANDLER);
    server_check_memory(server);
    if (had_before) {
        const CallKey place = { .worker = key.worker,
                                .clock = request->clock,
                                .n = had->senders[key.worker].changes.n_now };

        if (answer_again(had, record, &place, request))
            rubato_model_finish(part->model, request);
    } else if (record != NULL) {
        call_record_wait(record, request);
    }
}

void server_take_call_between(Server *server, FedPart *fed, RubatoShard *shard, Message *message)
{
    RubatoRequest *const request = &message->request;
    const CallKey key = { .worker = message->node, .serial = request->handler_call->serial };
    size_t n;
    g_autofree unsigned char *bytes = write_call(request, &n);

    if (bytes == NULL) {
        server_answer(server, message, CALL_NO_MEMORY);
        return;
    }
    if (!is_new(fed->had, key.worker, message)) {
        fail_again(request->handler_call, fed->had,
                   call_records_find(fed->had->records, key.worker, key.serial), &key);
    } else {
        Message last = pass_on_most(server, fed, message, bytes, n);

        server_begin_input(server, fed, shard, &last, MESSAGE_HANDLER);
        run_between(fed->had, shard, message->node, request);
        server_end_input(server, fed, shard, &last, MESSAGE_HANDLER);
        server_check_memory(server);
    }
    server_feed_created(server, fed, shard);
    server_answer_fed(server, fed, message, CALL_OK);
}

/* ---- images ---- */

/* What FEED_CALLED brings in front of the reason. */
typedef struct {
    uint64_t clock, n, is_pending, hides_earlier;
} Called;

static void push_record(uint32_t epoch, const CallRecord *record, CallPush *push, void *user)
{
    const char *const failure = record->failure == NULL ? "" : record->failure;
    const Called called = { record->key.clock, record->key.n, record->is_pending,
                            record->hides_earlier };
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    Message message = { .epoch = epoch,
                        .row_bytes = 1,
                        .sequence = record->key.serial,
                        .request = { .worker = record->key.worker } };

    g_byte_array_append(bytes, (const guint8 *)&called, sizeof called);
    g_byte_array_append(bytes, (const guint8 *)failure, (guint)strlen(failure));
    message.request.keys.n = bytes->len;
    message.request.input = bytes->data;
    push(user, &message, FEED_CALLED);
}

void server_push_failed_calls(uint32_t epoch, const InputSequences *had, CallPush *push, void *user)
{
    const CallRecord *record;

    for (guint i = 0; (record = call_records_get(had->records, i)) != NULL; i++)
        if (!record->is_pending)
            push_record(epoch, record, push, user);
}

static void push_call(const Message *call, const unsigned char *bytes, size_t n, CallPush *push,
                      void *user)
{
    for (size_t begin = 0; begin < n;) {
        Message piece = piece_of(call, bytes, n, begin);

        begin += piece.request.keys.n;
        push(user, &piece, MESSAGE_HANDLER);
    }
}

bool server_push_kept_call(uint32_t epoch, const RubatoRequest *kept, CallPush *push, void *user)
{
    const CallRecord *const record = kept->handler_call->record;
    HandlerCall named = *kept->handler_call;
    Message call = { .epoch = epoch, .request = *kept };
    size_t n;
    g_autofree unsigned char *bytes = write_call(kept, &n);

    if (bytes == NULL)
        return false;
    if (record != NULL) { /* whose number another process of the worker may have changed */
        named.serial = record->key.serial;
        push_record(epoch, record, push, user);
    }
    call.request.handler_call = &named;
    push_call(&call, bytes, n, push, user);
    return true;
}

bool server_push_assignment(const RubatoKeys *keys, const HandlerCall *assigning, CallPush *push,
                            void *user)
{
    HandlerCall assigned = *assigning;
    const Message call = {
        .request = { .worker = BAD_GRADIENTS_NO_WORKER, .keys = *keys, .handler_call = &assigned }
    };
    size_t n;
    g_autofree unsigned char *bytes = write_call(&call.request, &n);

    if (bytes != NULL)
        push_call(&call, bytes, n, push, user);
    return bytes != NULL;
}

bool replica_take_called(InputSequences *had, const Message *message)
{
    const size_t n = message->request.keys.n;
    CallKey key = { .worker = message->request.worker, .serial = message->sequence };
    CallRecord *record;
    Called called;

    if (had == NULL || key.worker >= had->n_senders || !replica_has_words(message, 1) ||
        n < sizeof called || n > sizeof called + 4 * (size_t)CALL_RECORDS_REASON_BYTES)
        return false;
    memcpy(&called, message->request.input, sizeof called);
    key.clock = called.clock;
    key.n = called.n;
    record = call_records_add(&had->records, &key);
    if (called.is_pending != 0)
        return true;
    g_autofree char *some =
        g_strndup((const char *)message->request.input + sizeof called, n - sizeof called);
    g_autofree char *failure = g_utf8_make_valid(some, -1);

    call_record_restore(record, failure, called.hides_earlier != 0);
    return true;
}

/* ---- a replica ---- */

void replica_drop_call(Replica *replica)
{
    g_clear_pointer(&replica->call_bytes, g_free);
    replica->n_call_come = replica->n_call_bytes = 0;
}

FedCallState replica_take_call_piece(Replica *replica, const Message *message)
{
    const RubatoRequest *const request = &message->request;
    const size_t at = (size_t)request->keys.first, n_bytes = (size_t)request->piece.n_bytes;

    if (at == 0) {
        replica_drop_call(replica);
        replica->call_bytes = g_try_malloc(n_bytes);
        if (replica->call_bytes == NULL)
            return FED_CALL_NO_MEMORY;
        replica->n_call_bytes = n_bytes;
    }
    if (replica->call_bytes == NULL || at != replica->n_call_come ||
        n_bytes != replica->n_call_bytes)
        return FED_CALL_NONSENSE;
    memcpy(replica->call_bytes + at, request->input, request->keys.n);
    replica->n_call_come += request->keys.n;
    return replica->n_call_come == n_bytes ? FED_CALL_WHOLE : FED_CALL_GOES_ON;
}

/* Makes a call of the bytes. It has not come with a clock of its node, as its message is none.
 * False: the primary has checked another one. */
static bool read_call(const Replica *replica, const Message *last, HandlerCall *call,
                      Message *message)
{
    const char *name;

    *message = (Message){
        .kind = MESSAGE_HANDLER,
        .epoch = last->epoch,
        .node = last->epoch == 0 ? (uint32_t)last->request.clock : 0,
        .request = { .worker = last->request.worker, .clock = last->request.clock },
    };
    *call = (HandlerCall){ .serial = last->sequence, .in_task = last->epoch != 0 };
    handler_call_note_caller(call, message);
    if (handler_call_read(replica->call_bytes, replica->n_call_bytes, call, &message->request.keys,
                          &name) != NULL)
        return false;
    call->ops = handler_find(name);
    message->request.handler_call = call;
    return call->ops != NULL && call->ops->access == RUBATO_ACCESS_WRITES &&
           handler_find_fault(replica->shard, call, &message->request.keys) == NULL;
}

bool replica_can_run_call(const Replica *replica, const Message *last)
{
    HandlerCall call;
    Message message;

    return read_call(replica, last, &call, &message);
}

void replica_run_call(Replica *replica, const ReplicaModel *of_task, const Message *last)
{
    HandlerCall call;
    Message message;
    bool had_before;

    (void)read_call(replica, last, &call, &message);
    if (last->epoch == 0) {
        run_between(replica->had, replica->shard, message.node, &message.request);
    } else {
        (void)run_in_task(of_task->had, of_task->model, &message.request, &had_before);
        /* the request itself, if it has run; there are no Gets */
        (void)model_take_answered(of_task->model);
    }
    handler_answer_clear(&call.answer);
    replica_drop_call(replica);
}

bool replica_keep_call(Replica *replica, const ReplicaModel *of_task, const Message *last)
{
    HandlerCall call;
    Message message;

    if (!read_call(replica, last, &call, &message))
        return false;
    const bool is_answered = ragged_is_request(call.ops); /* before it has run: it has no record */

    call.record = call_records_find(of_task->had->records, last->request.worker, last->sequence);
    if (is_answered != (call.record == NULL) || (!is_answered && !call.record->is_pending))
        return false;
    model_call(of_task->model, &message.request);
    (void)model_take_answered(of_task->model);
    handler_answer_clear(&call.answer);
    replica_drop_call(replica);
    return call.is_parked != is_answered; /* the others wait at their primary, too */
}

bool replica_assign_rows(Replica *replica, const Message *last)
{
    HandlerCall call;
    Message message;

    if (!read_call(replica, last, &call, &message) ||
        (call.ops != ragged_find("ragged.assign") && call.ops != ragged_find("ragged.go_on")))
        return false;
    handler_run(&call, replica->shard, &message.request.keys);
    const bool ok = call.answer.failure == NULL;

    handler_answer_clear(&call.answer);
    replica_drop_call(replica);
    return ok;
}
