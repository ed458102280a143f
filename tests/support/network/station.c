/* A network that records what comes.
 *
 * Threads: the handler's functions run on the I/O thread, the rest on the test's. */
#include "tests/support/network/station.h"

#include <check.h>
#include <string.h>
#include <time.h>

static void on_receive(void *user, Incoming *incoming)
{
    Station *const station = user;

    if (station->echoes && incoming->header.kind != MESSAGE_REPLY) {
        const WireHeader header = { .kind = MESSAGE_REPLY,
                                    .value_bytes = incoming->value_bytes,
                                    .reply = { .request_id = station_number(incoming) } };
        Frame *const frame = frame_new(&header);
        if (incoming->value_bytes > 0)
            memcpy(frame_values(frame), incoming->values, incoming->value_bytes);
        network_push(station->network, incoming->node, frame);
        network_flush(station->network, incoming->node);
        incoming_free(incoming);
        return;
    }
    pthread_mutex_lock(&station->lock);
    while (station->is_held)
        pthread_cond_wait(&station->changed, &station->lock);
    station->n_taken++;
    g_queue_push_tail(&station->incoming, incoming);
    pthread_cond_broadcast(&station->changed);
    pthread_mutex_unlock(&station->lock);
}

static bool on_takes_more(void *user)
{
    Station *const station = user;

    pthread_mutex_lock(&station->lock);
    const bool takes_more = station->most_taken == 0 || station->n_taken < station->most_taken;
    pthread_mutex_unlock(&station->lock);
    return takes_more;
}

static void on_received(void *user)
{
    Station *const station = user;

    pthread_mutex_lock(&station->lock);
    station->longest_batch = MAX(station->longest_batch, station->n_taken);
    station->n_taken = 0;
    pthread_mutex_unlock(&station->lock);
}

void station_hold(Station *station, bool is_held)
{
    pthread_mutex_lock(&station->lock);
    station->is_held = is_held;
    pthread_cond_broadcast(&station->changed);
    pthread_mutex_unlock(&station->lock);
}

static void on_greeted(void *user, uint16_t version, GVariant *body, const GreetingSource *source)
{
    Station *const station = user;
    StationGreeting *const greeting = g_new0(StationGreeting, 1);

    greeting->version = version;
    greeting->text = g_variant_print(body, FALSE);
    greeting->address = g_strdup(source->address);
    greeting->is_answer = source->is_answer;
    greeting->asker = source->asker;
    pthread_mutex_lock(&station->lock);
    g_queue_push_tail(&station->greetings, greeting);
    pthread_cond_broadcast(&station->changed);
    pthread_mutex_unlock(&station->lock);
}

static void on_broken(void *user, uint32_t node, uint64_t incarnation, const char *text)
{
    Station *const station = user;

    (void)incarnation;
    pthread_mutex_lock(&station->lock);
    g_string_append_printf(station->broken, "%u: %s\n", node, text);
    pthread_cond_broadcast(&station->changed);
    pthread_mutex_unlock(&station->lock);
}

static void on_tick(void *user, int64_t now_ms)
{
    Station *const station = user;

    (void)now_ms;
    pthread_mutex_lock(&station->lock);
    station->n_ticks++;
    pthread_cond_broadcast(&station->changed);
    pthread_mutex_unlock(&station->lock);
}

Station *station_new(uint32_t self, uint32_t n_nodes, const NetworkConfig *config)
{
    const char *const transport = g_getenv("RUBATO_TEST_TRANSPORT");
    const bool has_port = g_strcmp0(transport, "shm") != 0 && g_strcmp0(transport, "ipc") != 0;
    g_autofree char *address = g_strconcat(transport != NULL ? transport : "tcp",
                                           has_port ? "://127.0.0.1:0" : "://*", NULL);
    const char *const any[] = { address };
    const NetworkHandler handler = { .receive = on_receive,
                                     .takes_more = on_takes_more,
                                     .received = on_received,
                                     .greeted = on_greeted,
                                     .broken = on_broken,
                                     .tick = on_tick };
    Station *const station = g_new0(Station, 1);
    NetworkConfig all = config != NULL ? *config : (NetworkConfig){ 0 };
    pthread_condattr_t attributes;
    GError *error = NULL;

    all.self = self;
    all.n_nodes = n_nodes;
    if (all.incarnation == 0)
        all.incarnation = STATION_INCARNATION(self);
    if (all.n_bind_endpoints == 0) {
        all.bind_endpoints = any;
        all.n_bind_endpoints = 1;
    }
    if (all.tick_ms == 0)
        all.tick_ms = 10;
    pthread_mutex_init(&station->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&station->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    g_queue_init(&station->incoming);
    g_queue_init(&station->greetings);
    station->broken = g_string_new(NULL);

    station->network = network_new(&all, &handler, station, &error);
    ck_assert_msg(station->network != NULL, "%s", error != NULL ? error->message : "");
    ck_assert(network_start(station->network, &error));
    return station;
}

void station_free(Station *station)
{
    network_stop(station->network);
    g_queue_clear_full(&station->incoming, (GDestroyNotify)incoming_free);
    g_queue_clear_full(&station->greetings, (GDestroyNotify)station_greeting_free);
    network_free(station->network);
    g_string_free(station->broken, TRUE);
    pthread_cond_destroy(&station->changed);
    pthread_mutex_destroy(&station->lock);
    g_free(station);
}

NetworkPeer station_peer(const Station *station, uint32_t self)
{
    return (NetworkPeer){ .endpoint = network_endpoint(station->network, 0),
                          .incarnation = STATION_INCARNATION(self) };
}

void stations_join(Station *const *stations, uint32_t n)
{
    g_autofree NetworkPeer *peers = g_new0(NetworkPeer, n);

    for (uint32_t i = 0; i < n; i++)
        peers[i] = station_peer(stations[i], i);
    for (uint32_t i = 0; i < n; i++) {
        GError *error = NULL;
        ck_assert_msg(network_join(stations[i]->network, STATION_RUN_ID, peers, &error), "%s",
                      error != NULL ? error->message : "");
    }
}

/* Waits for a change; false when the time is over. Called with the lock held. */
static bool wait_until(Station *station, int64_t end_ms)
{
    const struct timespec end = { .tv_sec = (time_t)(end_ms / 1000),
                                  .tv_nsec = (long)(end_ms % 1000) * 1000000 };

    return pthread_cond_timedwait(&station->changed, &station->lock, &end) == 0;
}

static void *take(Station *station, GQueue *queue, int timeout_ms)
{
    const int64_t end_ms = network_now_ms() + timeout_ms;

    pthread_mutex_lock(&station->lock);
    while (g_queue_is_empty(queue) && wait_until(station, end_ms))
        ;
    void *const taken = g_queue_pop_head(queue);
    pthread_mutex_unlock(&station->lock);
    return taken;
}

Incoming *station_take(Station *station, int timeout_ms)
{
    return take(station, &station->incoming, timeout_ms);
}

StationGreeting *station_take_greeting(Station *station, int timeout_ms)
{
    return take(station, &station->greetings, timeout_ms);
}

void station_greeting_free(StationGreeting *greeting)
{
    if (greeting == NULL)
        return;
    g_free(greeting->text);
    g_free(greeting->address);
    g_free(greeting);
}

bool station_wait_ticks(Station *station, uint64_t n)
{
    const int64_t end_ms = network_now_ms() + STATION_PATIENCE_MS;

    pthread_mutex_lock(&station->lock);
    const uint64_t until = station->n_ticks + n;
    while (station->n_ticks < until && wait_until(station, end_ms))
        ;
    const bool ticked = station->n_ticks >= until;
    pthread_mutex_unlock(&station->lock);
    return ticked;
}

bool station_wait_until(Station *station, bool (*done)(void *user), void *user)
{
    const int64_t end_ms = network_now_ms() + STATION_PATIENCE_MS;

    while (!done(user)) {
        if (network_now_ms() >= end_ms || !station_wait_ticks(station, 1))
            return false;
    }
    return true;
}

/* Values: their number, then a pattern. They are written and compared by blocks of it, because the
 * sanitizers look at each access. */
typedef struct {
    uint8_t bytes[256]; /* and so on: the bytes after them are the same again */
} Pattern;

static Pattern pattern_of(uint64_t number)
{
    Pattern pattern;

    for (size_t i = 0; i < sizeof pattern; i++)
        pattern.bytes[i] = (uint8_t)(number * 31 + i * 7);
    return pattern;
}

static uint8_t byte_of(uint64_t number, size_t i)
{
    return (uint8_t)(number >> (8 * i));
}

static void values_fill(uint8_t *values, size_t n_bytes, uint64_t number)
{
    const Pattern pattern = pattern_of(number);

    for (size_t i = 0; i < n_bytes; i += sizeof pattern)
        memcpy(values + i, pattern.bytes, MIN(sizeof pattern, n_bytes - i));
    for (size_t i = 0; i < sizeof number && i < n_bytes; i++)
        values[i] = byte_of(number, i);
}

static bool values_are(const uint8_t *values, size_t n_bytes, uint64_t number)
{
    const Pattern pattern = pattern_of(number);

    for (size_t i = 0; i < sizeof number && i < n_bytes; i++)
        if (values[i] != byte_of(number, i))
            return false;
    for (size_t i = sizeof number, n; i < n_bytes; i += n) {
        const size_t at = i % sizeof pattern;

        n = MIN(sizeof pattern - at, n_bytes - i);
        if (memcmp(values + i, pattern.bytes + at, n) != 0)
            return false;
    }
    return true;
}

Frame *station_frame(MessageKind kind, uint64_t number, size_t n_bytes)
{
    const bool has_keys = kind != MESSAGE_REPLY && kind != MESSAGE_CONTROL &&
                          kind != MESSAGE_CLOCK && kind != MESSAGE_SERVICE;
    WireHeader header = { .kind = kind, .value_bytes = n_bytes };

    if (kind == MESSAGE_REPLY)
        header.reply.request_id = number;
    if (kind == MESSAGE_CLOCK)
        header.clock.clock = number;
    if (has_keys) {
        header.key_bytes = 16;
        header.keys = WIRE_KEYS_LIST;
        header.request = (WireRequest){ .id = number, .n_keys = 2 };
    }
    Frame *const frame = frame_new(&header);

    if (has_keys)
        frame_set_keys(frame, &(RubatoKeys){ .first = number, .n = 2 });
    values_fill(frame_values(frame), n_bytes, number);
    return frame;
}

uint64_t station_number(const Incoming *incoming)
{
    switch (incoming->header.kind) {
    case MESSAGE_REPLY:
        return incoming->header.reply.request_id;
    case MESSAGE_CLOCK:
        return incoming->header.clock.clock;
    case MESSAGE_CONTROL:
    case MESSAGE_SERVICE:
        return incoming->value_bytes >= 8 ? wire_load_u64(incoming->values) : UINT64_MAX;
    default:
        return incoming->header.request.id;
    }
}

bool station_is(const Incoming *incoming, MessageKind kind, uint64_t number, size_t n_bytes)
{
    if (incoming == NULL || incoming->header.kind != kind || incoming->value_bytes != n_bytes ||
        station_number(incoming) != number)
        return false;
    return values_are(incoming->values, n_bytes, number) &&
           (incoming->keys == NULL ||
            (incoming->keys[0] == number && incoming->keys[1] == number + 1));
}
