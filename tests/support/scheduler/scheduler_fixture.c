/* See the header. */
#include "tests/support/scheduler/scheduler_fixture.h"

#include <stdlib.h>
#include <string.h>

#include "engine/scheduler/journal/scheduler_as_bytes.h"
#include "engine/scheduler/scheduler_state.h"
#include "engine/scheduler/scheduler_task.h"

#include "tests/support/runner.h"

/* Ids with gaps: no node's number is its id, except for the first. */
const uint32_t IDS[N_NODES] = { 0, 4, 7 };
static const char *const NAMES[N_NODES] = { "127.0.0.1:4101", "127.0.0.1:4102", "127.0.0.1:4103" };
const char *const ENDPOINTS[N_NODES] = { "tcp://a", "tcp://b", "tcp://c" };

const SchedulerConfig CONFIG = {
    .n_nodes = N_NODES,
    .self = 0,
    .node_ids = IDS,
    .node_names = NAMES,
    .digest = "0123456789abcdef",
    .wire_version = 12,
    .heartbeat_ms = 500,
    .timeout_ms = 3000,
    .rendezvous_ms = 30000,
    .stall_ms = 10000,
};

/* Outputs of the scheduler, in their order. */
typedef struct {
    uint32_t node;  /* UINT32_MAX: a greeting */
    uint64_t asker; /* of a greeting; 0: it is none */
    Control control;
} Output;

Scheduler *scheduler;
int64_t now_ms;
enum { LARGE_BYTES = 4 << 10 }; /* of a state */

static SchedulerConfig config_now;
static SchedulerOutput output_now;
static GQueue outputs = G_QUEUE_INIT;
static Control taken; /* by the last expect */

static void output_free(Output *output)
{
    control_clear(&output->control);
    g_free(output);
}

/* The asker that stands for the process at the endpoint; never 0. */
uint64_t asker_of(const char *endpoint)
{
    return (uint64_t)1 << 32 | g_str_hash(endpoint);
}

static void put_output(uint32_t node, uint64_t asker, const Control *control)
{
    Output *output = g_new0(Output, 1);
    g_autoptr(GByteArray) body = control_encode(control);
    output->node = node;
    output->asker = asker;
    require_msg(control_decode(body->data, body->len, &output->control, NULL),
                "an output that cannot be read");
    g_queue_push_tail(&outputs, output);
}

void put_sent(void *user, uint32_t node, const Control *control)
{
    require_msg(user == &outputs, "another user");
    put_output(node, 0, control);
}

static void put_greeted(void *user, uint64_t asker, const Control *control)
{
    require_msg(user == &outputs, "another user");
    put_output(UINT32_MAX, asker, control);
}

void replace_scheduler(const SchedulerConfig *config,
                       void (*send)(void *user, uint32_t node, const Control *control))
{
    config_now = *config;
    output_now = (SchedulerOutput){ send != NULL ? send : put_sent, put_greeted };
    scheduler_free(scheduler);
    scheduler = scheduler_new(config, &output_now, &outputs);
}

/* A state that ends somewhere before its end makes no sense. */
static void expect_cut_refused(const GByteArray *state)
{
    static guint n_cuts;
    const guint left = n_cuts++ * 7919u % state->len;
    Scheduler *const other = scheduler_new(&config_now, &output_now, &outputs);

    require_msg(!state_read(other, state->data, left), "%u of %u bytes make sense", left,
                state->len);
    scheduler_free(other);
}

guint read_scheduler_again(void)
{
    if (scheduler->delivering)
        return 0;
    g_autoptr(GByteArray) state = state_write(scheduler);
    Scheduler *const other = scheduler_new(&config_now, &output_now, &outputs);

    require_msg(state_read(other, state->data, state->len), "a state that makes no sense");
    scheduler_free(scheduler);
    scheduler = other;
    expect_cut_refused(state);
    return state->len;
}

/* In a test that runs once more so. A large state is not read each time. */
static void may_read_again(void)
{
    static guint n_left;

    if (getenv("RUBATO_TEST_STATE") == NULL || n_left-- > 0)
        return;
    n_left = read_scheduler_again() / LARGE_BYTES;
}

void set_up(void)
{
    now_ms = 1000;
    replace_scheduler(&CONFIG, NULL);
}

void tear_down(void)
{
    scheduler_free(scheduler);
    control_clear(&taken);
    g_queue_clear_full(&outputs, (GDestroyNotify)output_free);
    scheduler = NULL;
}

/* Takes the first output for the addressee; it must be of that kind. */
static const Control *expect_output(uint32_t node, const char *endpoint, ControlKind kind)
{
    const uint64_t asker = endpoint != NULL ? asker_of(endpoint) : 0;

    for (GList *link = outputs.head; link != NULL; link = link->next) {
        Output *output = link->data;
        if (output->node != node || output->asker != asker)
            continue;
        ck_assert_msg(output->control.kind == kind, "%s instead of %s",
                      control_kind_name(output->control.kind), control_kind_name(kind));
        control_clear(&taken);
        taken = output->control;
        output->control = (Control){ 0 };
        output_free(output);
        g_queue_delete_link(&outputs, link);
        return &taken;
    }
    ck_abort_msg("nothing came out for node %u %s: %s was due", node, endpoint ? endpoint : "",
                 control_kind_name(kind));
    return NULL;
}

const Control *expect(uint32_t node, ControlKind kind)
{
    return expect_output(node, NULL, kind);
}

const Control *expect_greeting(const char *endpoint, ControlKind kind)
{
    return expect_output(UINT32_MAX, endpoint, kind);
}

/* The result that a message tells. */
static const ControlOutcome *outcome_of(const Control *control)
{
    switch (control->kind) {
    case CONTROL_COMMIT:
        return &control->commit.outcome;
    case CONTROL_CANCEL:
        return &control->cancel.outcome;
    case CONTROL_TASK_END:
        return &control->task_end.outcome;
    default:
        ck_abort_msg("%s tells no end of anything", control_kind_name(control->kind));
        return NULL;
    }
}

void expect_verdict(uint32_t node, ControlKind kind, uint32_t code, const char *text)
{
    const ControlOutcome *outcome = outcome_of(expect(node, kind));
    ck_assert_str_eq(outcome->text, text);
    ck_assert_uint_eq(outcome->code, code);
}

void expect_verdict_everywhere(ControlKind kind, uint32_t code, const char *text)
{
    for (uint32_t i = 0; i < N_NODES; i++)
        expect_verdict(i, kind, code, text);
}

void expect_refusal(const char *endpoint, uint32_t code, const char *text)
{
    const Control *control = expect_greeting(endpoint, CONTROL_REFUSE);
    ck_assert_str_eq(control->refuse.text, text);
    ck_assert_uint_eq(control->refuse.code, code);
}

void expect_quiet(void)
{
    const Output *output = g_queue_peek_head(&outputs);
    if (output != NULL)
        ck_abort_msg("%s came out for node %u", control_kind_name(output->control.kind),
                     output->node);
}

Control hello_of(uint32_t number)
{
    static const char *const DESCRIPTIONS[] = { "ada pid 10", "bob pid 11", "cid pid 12" };
    return (Control){ .kind = CONTROL_HELLO,
                      .hello = { .node_id = IDS[number],
                                 .number = number,
                                 .digest = CONFIG.digest,
                                 .incarnation = 100 + number,
                                 .endpoints = ENDPOINTS[number],
                                 .description = DESCRIPTIONS[number] } };
}

void greet(const Control *hello)
{
    may_read_again();
    ck_assert(scheduler_greet(scheduler, now_ms, hello, CONFIG.wire_version,
                              asker_of(hello->hello.endpoints)));
}

void hello(uint32_t number)
{
    const Control control = hello_of(number);
    greet(&control);
}

void begin(void)
{
    for (uint32_t i = 0; i < N_NODES; i++)
        hello(i);
    for (uint32_t i = 0; i < N_NODES; i++)
        expect_greeting(ENDPOINTS[i], CONTROL_WELCOME);
    expect_quiet();
}

bool hears(uint32_t node, Control control)
{
    may_read_again();
    return scheduler_receive(scheduler, now_ms, node, &control);
}

void say(uint32_t node, Control control)
{
    require_msg(hears(node, control), "%s of node %u was refused", control_kind_name(control.kind),
                node);
}

Control call(uint64_t op, ControlCall what, const char *name, const char *detail)
{
    return (Control){
        .kind = CONTROL_PROPOSE,
        .propose = { .call = op, .what = what, .name = name, .digest = detail, .arguments = detail }
    };
}

void propose(uint32_t node, uint64_t op, ControlCall what, const char *name)
{
    say(node, call(op, what, name, "same"));
}

void ready(uint32_t node, uint64_t op)
{
    say(node, (Control){ .kind = CONTROL_READY, .ready = { .call = op } });
}

uint32_t go(uint64_t op, ControlCall what, const char *name)
{
    uint32_t id = 0;
    for (uint32_t i = 0; i < N_NODES; i++)
        propose(i, op, what, name);
    for (uint32_t i = 0; i < N_NODES; i++) {
        const Control *control = expect(i, CONTROL_GO);
        ck_assert_uint_eq(control->go.call, op);
        ck_assert(i == 0 || control->go.id == id);
        id = control->go.id;
    }
    expect_quiet();
    return id;
}

uint32_t agree(uint64_t op, ControlCall what, const char *name)
{
    const uint32_t id = go(op, what, name);
    for (uint32_t i = 0; i < N_NODES; i++)
        ready(i, op);
    expect_verdict_everywhere(CONTROL_COMMIT, CONTROL_OK, "");
    expect_quiet();
    return id;
}

void done(uint32_t node, uint32_t epoch)
{
    say(node, (Control){ .kind = CONTROL_TASK_DONE, .task_done = { .epoch = epoch } });
}

void fail_worker(uint32_t node, uint32_t epoch, const char *text)
{
    say(node,
        (Control){ .kind = CONTROL_FAIL,
                   .fail = { .epoch = epoch, .outcome.code = FAILED_CODE, .outcome.text = text } });
}

void arrive(uint32_t node, uint32_t epoch, uint64_t round)
{
    say(node, (Control){ .kind = CONTROL_ARRIVE, .arrive = { .epoch = epoch, .round = round } });
}

void tick(void)
{
    may_read_again();
    scheduler_tick(scheduler, now_ms);
}

void pass_ms(int64_t ms, unsigned beating)
{
    for (const int64_t end = now_ms + ms; now_ms < end;) {
        now_ms += 250;
        for (uint32_t i = 0; i < N_NODES; i++)
            if (beating & (1u << i))
                say(i, (Control){ .kind = CONTROL_BEAT });
        tick();
    }
    for (GList *link = outputs.head, *next; link != NULL; link = next) {
        Output *output = link->data;
        next = link->next;
        if (output->control.kind == CONTROL_BEAT) {
            output_free(output);
            g_queue_delete_link(&outputs, link);
        }
    }
}

void expect_waiting(const char *text)
{
    may_read_again();
    g_autofree char *waiting = scheduler_waiting(scheduler, now_ms);
    ck_assert_pstr_eq(waiting, text);
}

void expect_release(uint32_t node, uint32_t epoch, uint64_t round)
{
    const Control *release = expect(node, CONTROL_RELEASE);
    ck_assert_uint_eq(release->release.epoch, epoch);
    ck_assert_uint_eq(release->release.round, round);
}
