/* Which address of this machine is meant by RUBATO_INTERFACE. Each machine has the loopback. */
#include <rubato/error.h>
#include <string.h>

#include "engine/cluster/own_address.h"
#include "tests/support/runner.h"

static const struct {
    const char *interface;
    const char *address; /* NULL: it is refused */
} meant[] = {
    { "lo", "127.0.0.1" },          { "127.0.0.0/8", "127.0.0.1" }, { "127.0.0.1/32", "127.0.0.1" },
    { "126.0.0.0/7", "127.0.0.1" }, /* the last bits of a byte count not */
    { "127.0.0.2", "127.0.0.2" },   { "127.0.0.2/32", NULL }, /* no interface has it */
    { "128.0.0.0/7", NULL },        { "127.0.0.0/33", NULL },       { "127.0.0/8", NULL },
    { "127.0.0.0/", NULL },         { "127.0.0.0/8/8", NULL },      { "no-such-interface", NULL },
};

START_TEST(an_interface_is_a_name_a_network_or_an_address)
{
    g_autoptr(GError) error = NULL;
    g_autofree char *address = own_address_of(meant[_i].interface, &error);

    if (meant[_i].address != NULL) {
        ck_assert_msg(address != NULL, "%s", error != NULL ? error->message : "no error");
        ck_assert_str_eq(address, meant[_i].address);
        return;
    }
    ck_assert_ptr_null(address);
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_CONFIG));
    ck_assert_ptr_nonnull(strstr(error->message, meant[_i].interface));
    ck_assert_ptr_nonnull(strstr(error->message, "lo (127.0.0.1)"));
}
END_TEST

/* Where the kernel has IPv6. */
START_TEST(a_network_of_version_6_has_addresses_of_version_6)
{
    g_autofree char *loopback = own_address_of("::1/128", NULL);
    g_autofree char *all = own_address_of("::/0", NULL);
    g_autofree char *interface = loopback != NULL ? own_interface_of(loopback) : NULL;

    if (loopback == NULL)
        return;
    ck_assert_str_eq(loopback, "::1");
    ck_assert_str_eq(interface, "lo");
    ck_assert_ptr_nonnull(strchr(all, ':'));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("own address");
    TCase *tcase = tcase_create("own address");

    tcase_add_loop_test(tcase, an_interface_is_a_name_a_network_or_an_address, 0,
                        G_N_ELEMENTS(meant));
    tcase_add_test(tcase, a_network_of_version_6_has_addresses_of_version_6);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
