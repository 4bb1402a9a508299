/* SPDX-License-Identifier: Apache-2.0 */

/* Two ends of a gRPC connection, whose bytes the test carries, in the test's own time. */

#include "k8s/grpc.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SEC    1000000000ull
#define NOBODY ((enum grpc_code) - 1)

/* What the service and the client have seen. */
static struct {
	uint64_t now_ns;
	struct grpc server, client;
	struct grpc_call *call; /* the service's, unanswered */
	unsigned int n_requests, n_gone, n_done;
	uint8_t request[64];
	size_t request_len;
	enum grpc_code code;
	char text[GRPC_TEXT_LEN];
	uint8_t answer[64];
	size_t answer_len;
} rig;

static void on_request(struct grpc_call *call, const uint8_t *message, size_t len)
{
	rig.call = call;
	rig.n_requests++;
	rig.request_len = len;
	memcpy(rig.request, message, len < sizeof(rig.request) ? len : sizeof(rig.request));
}

static void on_gone(struct grpc_call *call)
{
	assert_ptr_equal(call, rig.call);
	rig.call = NULL;
	rig.n_gone++;
}

static void on_done(void *owner, enum grpc_code code, const char *text, const uint8_t *message,
		    size_t len)
{
	assert_ptr_equal(owner, &rig);
	rig.n_done++;
	rig.code = code;
	(void)snprintf(rig.text, sizeof(rig.text), "%s", text);
	rig.answer_len = len;
	if (len)
		memcpy(rig.answer, message, len < sizeof(rig.answer) ? len : sizeof(rig.answer));
}

static const struct grpc_service service = {on_request, on_gone, &rig};

/* Returns the bytes that went over. is_dropped: they do not arrive. */
static size_t carry(struct grpc *from, struct grpc *to, bool is_dropped)
{
	size_t sum = 0;

	for (;;) {
		const uint8_t *bytes;
		ssize_t n = grpc_send(from, &bytes, rig.now_ns);

		assert_true(n >= 0);
		if (n == 0)
			return sum;
		sum += (size_t)n;
		if (!is_dropped)
			assert_int_equal(grpc_receive(to, bytes, (size_t)n, rig.now_ns), 0);
	}
}

static void settle(void)
{
	while (carry(&rig.client, &rig.server, false) + carry(&rig.server, &rig.client, false))
		;
}

static int setup(void **state)
{
	(void)state;
	memset(&rig, 0, sizeof(rig));
	rig.code = NOBODY;
	rig.now_ns = 1000 * SEC;
	assert_int_equal(grpc_open_server(&rig.server, &service, rig.now_ns), 0);
	assert_int_equal(grpc_open_client(&rig.client, rig.now_ns), 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	grpc_close(&rig.server);
	grpc_close(&rig.client);
	return 0;
}

static void ask(const void *message, size_t len)
{
	assert_int_equal(grpc_ask(&rig.client, "/a/b", message, len, on_done, &rig), 0);
	settle();
}

static void a_call_is_answered(void **state)
{
	(void)state;
	ask("ping", 4);
	assert_int_equal(rig.n_requests, 1);
	assert_memory_equal(rig.request, "ping", 4);
	assert_string_equal(rig.call->path, "/a/b");
	assert_int_equal(rig.n_done, 0);
	grpc_reply(rig.call, "pong!", 5);
	settle();
	assert_int_equal(rig.n_done, 1);
	assert_int_equal(rig.code, GRPC_OK);
	assert_int_equal(rig.answer_len, 5);
	assert_memory_equal(rig.answer, "pong!", 5);
	assert_int_equal(rig.server.n_calls, 0);
	assert_int_equal(rig.server.buffered, 0);
	assert_int_equal(rig.client.n_calls, 0);
	assert_int_equal(rig.n_gone, 0);
}

static void an_error_has_its_text(void **state)
{
	(void)state;
	ask("", 0);
	grpc_fail(rig.call, GRPC_FAILED_PRECONDITION, "100 %% of %s\n", "caf\xc3\xa9");
	settle();
	assert_int_equal(rig.code, GRPC_FAILED_PRECONDITION);
	assert_string_equal(rig.text, "100 % of caf\xc3\xa9?");
}

static void a_message_of_the_largest_size_goes_over_and_no_larger_one(void **state)
{
	uint8_t *bytes = calloc(1, GRPC_MESSAGE_MAX + 1);

	(void)state;
	assert_non_null(bytes);
	assert_int_equal(grpc_ask(&rig.client, "/a/b", bytes, GRPC_MESSAGE_MAX + 1, on_done, &rig),
			 -EMSGSIZE);
	ask(bytes, GRPC_MESSAGE_MAX);
	assert_int_equal(rig.request_len, GRPC_MESSAGE_MAX);
	grpc_reply(rig.call, bytes, GRPC_MESSAGE_MAX);
	settle();
	assert_int_equal(rig.code, GRPC_OK);
	assert_int_equal(rig.answer_len, GRPC_MESSAGE_MAX);
	ask("", 0);
	grpc_reply(rig.call, bytes, GRPC_MESSAGE_MAX + 1);
	settle();
	assert_int_equal(rig.code, GRPC_RESOURCE_EXHAUSTED);
	free(bytes);
}

/* Each is below its own limit, and together they are above that of the connection. */
static void all_requests_together_have_a_limit(void **state)
{
	uint8_t *bytes = calloc(1, GRPC_MESSAGE_MAX);

	(void)state;
	assert_non_null(bytes);
	for (unsigned int i = 0; i < 3; i++) {
		assert_int_equal(grpc_ask(&rig.client, "/a/b", bytes, 3u << 20, on_done, &rig), 0);
		settle();
		rig.call = NULL; /* all stay unanswered */
	}
	assert_int_equal(rig.n_requests, 2);
	assert_int_equal(rig.n_done, 1);
	assert_int_equal(rig.code, GRPC_RESOURCE_EXHAUSTED);
	while (rig.server.calls) {
		rig.call = rig.server.calls;
		grpc_reply(rig.call, "", 0);
		settle();
	}
	assert_int_equal(rig.server.buffered, 0);
	assert_int_equal(rig.n_done, 3);
	free(bytes);
}

static void calls_beyond_the_limit_wait_at_the_client(void **state)
{
	(void)state;
	settle(); /* the client knows the limit */
	for (unsigned int i = 0; i < GRPC_STREAMS_MAX + 5; i++)
		ask("", 0);
	assert_int_equal(rig.server.n_calls, GRPC_STREAMS_MAX);
	while (rig.server.calls) {
		grpc_reply(rig.server.calls, "", 0);
		settle();
	}
	assert_int_equal(rig.n_done, GRPC_STREAMS_MAX + 5);
}

static void a_stream_has_one_message_at_a_time(void **state)
{
	(void)state;
	ask("", 0);
	grpc_stream(rig.call);
	assert_true(grpc_is_drained(rig.call));
	assert_int_equal(grpc_push(rig.call, "one", 3), 0);
	assert_false(grpc_is_drained(rig.call));
	settle();
	assert_true(grpc_is_drained(rig.call));
	assert_int_equal(grpc_push(rig.call, "two", 3), 0);
	settle();
	assert_int_equal(rig.client.calls->in.len, 2 * (GRPC_PREFIX_LEN + 3));
	assert_memory_equal(rig.client.calls->in.at + 2 * GRPC_PREFIX_LEN + 3, "two", 3);
	grpc_fail(rig.call, GRPC_UNAVAILABLE, "enough");
	settle();
	assert_int_equal(rig.n_done, 1);
	assert_int_equal(rig.code, GRPC_UNAVAILABLE);
	assert_string_equal(rig.text, "enough");
	assert_int_equal(rig.n_gone, 0);
}

static void a_client_that_leaves_takes_its_calls_along(void **state)
{
	(void)state;
	ask("", 0);
	grpc_close(&rig.client);
	assert_int_equal(rig.code, GRPC_UNAVAILABLE);
	grpc_close(&rig.server);
	assert_int_equal(rig.n_gone, 1);
	(void)grpc_open_server(&rig.server, &service, rig.now_ns);
	(void)grpc_open_client(&rig.client, rig.now_ns);
}

static void a_call_without_an_answer_ends_at_both_ends(void **state)
{
	(void)state;
	ask("", 0);
	assert_int_equal(grpc_due(&rig.client), rig.now_ns + GRPC_REQUEST_NS);
	assert_int_equal(grpc_due(&rig.server), rig.now_ns + GRPC_ANSWER_NS);
	rig.now_ns += GRPC_REQUEST_NS - 1;
	assert_int_equal(grpc_expire(&rig.client, rig.now_ns), 0);
	settle();
	assert_int_equal(rig.n_done, 0);
	rig.now_ns++;
	assert_int_equal(grpc_expire(&rig.client, rig.now_ns), 0);
	settle();
	assert_int_equal(rig.n_done, 1);
	assert_int_equal(rig.code, GRPC_UNAVAILABLE);
	assert_string_equal(rig.text, "there is no answer");
	assert_int_equal(rig.n_gone, 1);
	assert_int_equal(rig.server.n_calls, 0);
}

static void a_request_that_never_ends_is_reset(void **state)
{
	uint8_t *bytes = calloc(1, GRPC_MESSAGE_MAX);

	(void)state;
	assert_non_null(bytes);
	assert_int_equal(grpc_ask(&rig.client, "/a/b", bytes, GRPC_MESSAGE_MAX, on_done, &rig), 0);
	(void)carry(&rig.client, &rig.server, false); /* as much as the window allows */
	assert_int_equal(rig.server.n_calls, 1);
	assert_int_equal(rig.n_requests, 0);
	rig.now_ns += GRPC_REQUEST_NS;
	assert_int_equal(grpc_expire(&rig.server, rig.now_ns), 0);
	settle();
	assert_int_equal(rig.server.n_calls, 0);
	assert_int_equal(rig.server.buffered, 0);
	assert_int_equal(rig.n_done, 1);
	assert_int_equal(rig.code, GRPC_UNAVAILABLE);
	free(bytes);
}

static void a_peer_that_does_not_even_take_the_reset_loses_its_connection(void **state)
{
	(void)state;
	ask("", 0);
	rig.now_ns += GRPC_ANSWER_NS;
	assert_int_equal(grpc_expire(&rig.server, rig.now_ns), 0);
	assert_int_equal(grpc_due(&rig.server), rig.now_ns + GRPC_REQUEST_NS);
	rig.now_ns += GRPC_REQUEST_NS;
	assert_int_equal(grpc_expire(&rig.server, rig.now_ns), -ETIMEDOUT);
}

static void a_connection_without_calls_ends(void **state)
{
	(void)state;
	assert_int_equal(grpc_due(&rig.server), rig.now_ns + GRPC_REQUEST_NS);
	ask("", 0);
	grpc_reply(rig.call, "", 0);
	settle();
	assert_int_equal(grpc_due(&rig.server), rig.now_ns + GRPC_IDLE_NS);
	rig.now_ns += GRPC_IDLE_NS - 1;
	assert_int_equal(grpc_expire(&rig.server, rig.now_ns), 0);
	rig.now_ns++;
	assert_int_equal(grpc_expire(&rig.server, rig.now_ns), -ETIMEDOUT);
}

static void a_stream_may_last(void **state)
{
	(void)state;
	ask("", 0);
	grpc_stream(rig.call);
	settle();
	assert_int_equal(grpc_due(&rig.server), UINT64_MAX);
	rig.now_ns += 3600 * SEC;
	assert_int_equal(grpc_expire(&rig.server, rig.now_ns), 0);
	assert_int_equal(grpc_push(rig.call, "late", 4), 0);
	settle();
	assert_true(grpc_is_drained(rig.call));
}

static void after_a_goodbye_the_connection_has_ended(void **state)
{
	(void)state;
	settle();
	assert_false(grpc_has_ended(&rig.server));
	grpc_goodbye(&rig.server);
	assert_true(grpc_wants_to_send(&rig.server));
	settle();
	assert_true(grpc_has_ended(&rig.server));
	assert_true(grpc_has_ended(&rig.client));
}

static void texts_are_encoded_and_decoded(void **state)
{
	static const struct {
		const char *encoded, *text;
	} table[] = {
		{"plain", "plain"}, {"%41%C3%a9", "A\xc3\xa9"},
		{"%", "%"},         {"%4", "%4"},
		{"%4x", "%4x"},     {"%%41", "%A"},
		{"", ""},           {"%00x", ""},
	};
	char buf[32], small[8];

	(void)state;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		grpc_text_decode((const uint8_t *)table[i].encoded, strlen(table[i].encoded), buf,
				 sizeof(buf));
		assert_string_equal(buf, table[i].text);
	}
	grpc_text_encode("a%\n\xc3", buf, sizeof(buf));
	assert_string_equal(buf, "a%25%0A%C3");
	grpc_text_encode("\n\n\n\n", small, sizeof(small));
	assert_string_equal(small, "%0A%0A");
	grpc_text_decode((const uint8_t *)"0123456789", 10, small, sizeof(small));
	assert_string_equal(small, "0123456");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_call_is_answered),
		TEST(an_error_has_its_text),
		TEST(a_message_of_the_largest_size_goes_over_and_no_larger_one),
		TEST(all_requests_together_have_a_limit),
		TEST(calls_beyond_the_limit_wait_at_the_client),
		TEST(a_stream_has_one_message_at_a_time),
		TEST(a_client_that_leaves_takes_its_calls_along),
		TEST(a_call_without_an_answer_ends_at_both_ends),
		TEST(a_request_that_never_ends_is_reset),
		TEST(a_peer_that_does_not_even_take_the_reset_loses_its_connection),
		TEST(a_connection_without_calls_ends),
		TEST(a_stream_may_last),
		TEST(after_a_goodbye_the_connection_has_ended),
		TEST(texts_are_encoded_and_decoded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
