/* Greetings, which processes send before their networks are joined. */
#include <rubato/error.h>

#include "tests/support/network/station_pair.h"
#include "tests/support/runner.h"

#define PATIENCE_MS STATION_PATIENCE_MS

START_TEST(greeting_arrives_before_anybody_has_joined)
{
    const StationPair pair = station_pair_open(NULL);
    GError *error = NULL;

    for (int i = 0; i < 3; i++)
        ck_assert(network_greet(pair.a->network, network_endpoint(pair.b->network, 0),
                                g_variant_new("(is)", i, "hello"), &error));
    for (int i = 0; i < 3; i++) {
        g_autofree char *expected = g_strdup_printf("(%d, 'hello')", i);
        StationGreeting *const greeting = station_take_greeting(pair.b, PATIENCE_MS);
        ck_assert_ptr_nonnull(greeting);
        ck_assert_uint_eq(greeting->version, WIRE_VERSION);
        ck_assert_str_eq(greeting->text, expected);
        ck_assert_str_eq(greeting->address, "127.0.0.1");
        station_greeting_free(greeting);
    }
    ck_assert_uint_eq(station_stats(pair.a).greetings_sent, 3);
    ck_assert_uint_eq(station_stats(pair.b).greetings_received, 3);
    station_pair_close(&pair);
}
END_TEST

START_TEST(greeting_that_cannot_be_sent_is_an_error)
{
    Station *const station = station_new(0, 1, NULL);
    g_autofree char *large = g_strnfill(WIRE_MAX_GREETING_BYTES, 'x');
    GError *error = NULL;

    ck_assert(
        !network_greet(station->network, "tcp://127.0.0.1:1", g_variant_new("s", large), &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_INVALID));
    g_clear_error(&error);
    ck_assert(!network_greet(station->network, "nowhere", g_variant_new("s", ""), &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK));
    g_clear_error(&error);
    station_free(station);
}
END_TEST

START_TEST(greeting_many_endpoints_takes_bounded_room)
{
    const StationPair pair = station_pair_open(NULL);

    for (int port = 1; port < 200; port++) {
        g_autofree char *endpoint = g_strdup_printf("tcp://127.0.0.1:%d", port);
        ck_assert(network_greet(pair.a->network, endpoint, g_variant_new("i", port), NULL));
    }
    ck_assert(network_greet(pair.a->network, network_endpoint(pair.b->network, 0),
                            g_variant_new("i", 1), NULL));
    StationGreeting *const greeting = station_take_greeting(pair.b, PATIENCE_MS);
    ck_assert_ptr_nonnull(greeting);
    station_greeting_free(greeting);
    station_pair_close(&pair);
}
END_TEST

int main(void)
{
    /* Some cases are about addresses of TCP. */
    const bool over_tcp = g_getenv("RUBATO_TEST_TRANSPORT") == NULL;
    Suite *const suite = suite_create("network greetings");
    TCase *const greetings = tcase_create("greetings");

    if (over_tcp)
        tcase_add_test(greetings, greeting_arrives_before_anybody_has_joined);
    tcase_add_test(greetings, greeting_that_cannot_be_sent_is_an_error);
    if (over_tcp)
        tcase_add_test(greetings, greeting_many_endpoints_takes_bounded_room);
    tcase_set_timeout(greetings, 60);
    suite_add_tcase(suite, greetings);
    return run_suite(suite);
}
