/* A worker's side of a table whose servers are on another node: no call outlives its task. */
#include "tables/client/client_private.h"
#include "tests/support/network/station.h"
#include "tests/support/runner.h"

enum { EPOCH = 7 };

static const RubatoTableSpec spec = {
    .name = "t",
    .dtype = RUBATO_I64,
    .width = 1,
    .n_keys = 9,
    .storage = "dense",
    .model = "asp",
    .update = "add",
    .partition = "range",
    .chunk_size = 1,
};

/* A worker on node 1 of two, and a table whose one server is on node 0, which answers nothing. */
typedef struct {
    Station *other, *here;
    PostOffice office;
    Partition partition;
    PartMap *map;
    _Atomic bool cancelled;
    Clocks clocks;
    TableRoute route;
    TableClient *client;
} Rig;

static void rig_init(Rig *rig)
{
    static const uint32_t ids[] = { 10, 20 }, servers_of[] = { 1, 0 }, workers_of[] = { 1, 1 };
    const NetworkConfig config = { .stop_ms = 100 };

    memset(rig, 0, sizeof *rig);
    rig->other = station_new(0, 2, &config);
    rig->here = station_new(1, 2, &config);
    stations_join((Station *const[]){ rig->other, rig->here }, 2);
    post_office_init(&rig->office, 1, 2, ids, servers_of, &FLOW_SIZES_USUAL);
    rig->office.network = rig->here->network;
    ck_assert(partition_init(&rig->partition, &spec, PARTITION_KEYS_RANGE, 1, NULL));
    rig->map = part_map_new(1, 1);
    clocks_init(&rig->clocks, 1, 2, workers_of);
    rig->route = (TableRoute){ .spec = &spec,
                               .partition = &rig->partition,
                               .map = rig->map,
                               .traits = rubato_model_traits(spec.model),
                               .epoch = EPOCH,
                               .row_bytes = sizeof(int64_t),
                               .office = &rig->office,
                               .clocks = &rig->clocks,
                               .max_kept_bytes = 1,
                               .cancelled = &rig->cancelled,
                               .stall_ms = 10000 };
    rig->client = table_client_new(&rig->route, 1);
}

static void rig_clear(Rig *rig)
{
    table_client_free(rig->client);
    clocks_clear(&rig->clocks);
    partition_clear(&rig->partition);
    part_map_free(rig->map);
    post_office_clear(&rig->office);
    station_free(rig->here);
    station_free(rig->other);
}

/* As a ticket's request, which has been looked at before: the sweep has come in between. */
static bool send_and_wait(TableClient *client, const RubatoKey *keys, int64_t *values,
                          GError **error)
{
    const TableAsk ask = { .kind = MESSAGE_GET, .row_bytes = sizeof *values, .output = values };
    const Slice slice = { .keys = { .keys = keys, .n = 2 } };
    Message message = { .kind = MESSAGE_GET };
    Call call;

    call_begin(&call, NULL);
    table_client_send(client, &ask, &slice, 1, &call, &message);
    call_sent(&call);
    return table_client_wait(client, &call, error);
}

/* The canceller has swept before the call is registered, so no other thread ends it. */
START_TEST(a_call_that_comes_after_the_sweep_ends_too)
{
    const RubatoKey keys[] = { 1, 8 };
    int64_t values[2];
    GError *error = NULL;
    Rig rig;
    bool ok = true;

    rig_init(&rig);
    atomic_store(&rig.cancelled, true);
    post_office_cancel(&rig.office, EPOCH);
    switch (_i) {
    case 0:
        ok = table_client_get(rig.client, keys, 2, values, &error);
        break;
    case 1:
        ok = table_client_get_run(rig.client, 2, 2, values, &error);
        break;
    case 2:
        ok = table_client_fence(rig.client, &error);
        break;
    case 3:
        ok = table_client_add(rig.client, keys, 2, values, &error);
        break;
    case 4:
        ok = table_client_announce(rig.client, 0, keys, 2, &error);
        break;
    case 5:
        rig.client->adding_bytes = 100; /* more than servers may keep */
        table_client_keep(rig.client);
        ok = table_client_wait_to_add(rig.client, &error);
        break;
    case 6:
        ok = send_and_wait(rig.client, keys, values, &error);
        break;
    }
    ck_assert(!ok);
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_CANCELLED));
    g_clear_error(&error);
    rig_clear(&rig);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("client");
    TCase *const cases = tcase_create("client");

    tcase_add_loop_test(cases, a_call_that_comes_after_the_sweep_ends_too, 0, 7);
    tcase_set_timeout(cases, 10);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
