/* The requests that servers take, one row for each.
 *
 * Thread: the server's owner. */
#include "engine/server/request_ops.h"

extern const RequestOps get_request, add_request, add_get_request, set_request, reset_request;
extern const RequestOps get_state_request, set_state_request;
extern const RequestOps count_keys_request, list_keys_request;
extern const RequestOps count_bad_gradients_request, list_bad_gradients_request;
extern const RequestOps set_bad_gradients_request, set_clocks_request;
extern const RequestOps tune_request, announce_request, clock_request, fence_request;
extern const RequestOps handler_request;
extern const RequestOps feed_request, position_request, return_request;
extern const RequestOps set_uses_request, set_marks_request, set_admission_request, remove_request;
extern const RequestOps iterate_request;

const RequestOps *const request_ops[MESSAGE_N_KINDS] = {
    [MESSAGE_GET] = &get_request,
    [MESSAGE_ADD] = &add_request,
    [MESSAGE_CLOCK] = &clock_request,
    [MESSAGE_ANNOUNCE] = &announce_request,
    [MESSAGE_FENCE] = &fence_request,
    [MESSAGE_TUNE] = &tune_request,
    [MESSAGE_SET] = &set_request,
    [MESSAGE_RESET] = &reset_request,
    [MESSAGE_GET_STATE] = &get_state_request,
    [MESSAGE_SET_STATE] = &set_state_request,
    [MESSAGE_COUNT_KEYS] = &count_keys_request,
    [MESSAGE_LIST_KEYS] = &list_keys_request,
    [MESSAGE_COUNT_BAD_GRADIENTS] = &count_bad_gradients_request,
    [MESSAGE_LIST_BAD_GRADIENTS] = &list_bad_gradients_request,
    [MESSAGE_SET_BAD_GRADIENTS] = &set_bad_gradients_request,
    [MESSAGE_SET_CLOCKS] = &set_clocks_request,
    [MESSAGE_ADD_GET] = &add_get_request,
    [MESSAGE_HANDLER] = &handler_request,
    [MESSAGE_FEED] = &feed_request,
    [MESSAGE_POSITION] = &position_request,
    [MESSAGE_SET_USES] = &set_uses_request,
    [MESSAGE_SET_MARKS] = &set_marks_request,
    [MESSAGE_REMOVE] = &remove_request,
    [MESSAGE_SET_ADMISSION] = &set_admission_request,
    [MESSAGE_RETURN] = &return_request,
    [MESSAGE_ITERATE] = &iterate_request,
};

MessageKind request_kind_of_kept(const RubatoRequest *kept)
{
    switch (kept->kind) {
    case RUBATO_REQUEST_TUNE:
        return MESSAGE_TUNE;
    case RUBATO_REQUEST_ANNOUNCE:
        return MESSAGE_ANNOUNCE;
    case RUBATO_REQUEST_WRITE:
        return MESSAGE_HANDLER;
    default:
        return MESSAGE_ADD;
    }
}

const char *request_find_key_fault(const RubatoShard *shard, const RubatoRequest *request)
{
    return shard_keys_ok(shard, &request->keys) ? NULL : "a key that this server does not hold";
}

const char *request_find_number_fault(uint64_t n, const RubatoRequest *request)
{
    const RubatoKeys *numbers = &request->keys;
    const bool ok =
        numbers->keys == NULL && numbers->first <= n && numbers->n <= n - numbers->first;

    return ok ? NULL : "a number of what this server does not have";
}
