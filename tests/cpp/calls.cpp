/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Every call of nvshare.hpp. usage: calls alone|unmanaged|managed|critical FILE, what the program
 * is to find: no library, no scheduler, both, and a class of its own; FILE: settings of a node.
 * Links nothing; the driver is opened at run time.
 */

#include "nvshare/nvshare.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

using std::chrono::microseconds;
using std::chrono::milliseconds;

static void check(bool is_true, const char *what, int line)
{
	if (is_true)
		return;
	std::fprintf(stderr, "line %d: not so: %s\n", line, what);
	std::exit(1);
}

#define CHECK(condition) check((condition), #condition, __LINE__)

static bool has_library, has_scheduler;
static std::string claims_file; /* beside the program */

template <typename F> static bool is_invalid(const char *name, F call)
{
	try {
		call();
	} catch (const std::invalid_argument &error) {
		return std::strncmp(error.what(), name, std::strlen(name)) == 0;
	}
	return false;
}

template <typename F> static void until(F condition)
{
	auto end = std::chrono::steady_clock::now() + std::chrono::seconds(300);

	while (!condition()) {
		CHECK(std::chrono::steady_clock::now() < end);
		std::this_thread::sleep_for(milliseconds(5));
	}
}

static std::uint64_t n_tasks()
{
	return nvshare::metrics().tasks_completed;
}

static std::uint64_t expected(std::uint64_t n)
{
	return has_library ? n : 0;
}

/* A context on GPU 0, so that the library looks after the process. */
static void start_gpu()
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL), *context = nullptr;
	int (*init)(unsigned int), (*retain)(void **, int), (*set_current)(void *);

	CHECK(driver != nullptr);
	*reinterpret_cast<void **>(&init) = dlsym(driver, "cuInit");
	*reinterpret_cast<void **>(&retain) = dlsym(driver, "cuDevicePrimaryCtxRetain");
	*reinterpret_cast<void **>(&set_current) = dlsym(driver, "cuCtxSetCurrent");
	CHECK(init(0) == 0 && retain(&context, 0) == 0 && set_current(context) == 0);
	if (has_library)
		until([] { return nvshare::status().claim.weight != 0; });
	if (has_scheduler)
		until([] { return (nvshare::status().flags & NVSHARE_STATUS_MANAGED) != 0; });
}

static void arguments_are_checked()
{
	nvshare::Scheduler scheduler;
	auto urgent = scheduler.create_task(nvshare::TaskType::LATENCY_CRITICAL, [] {});
	auto calm = scheduler.create_task(nvshare::TaskType::BEST_EFFORT, [] {});

	CHECK(is_invalid("weight", [] { nvshare::set_weight(0); }));
	CHECK(is_invalid("weight", [] { nvshare::set_weight(10001); }));
	CHECK(is_invalid("percent", [] { nvshare::set_compute_limit(101); }));
	CHECK(is_invalid("slo", [] { nvshare::set_slo(microseconds(-1)); }));
	CHECK(is_invalid("slo", [] { nvshare::set_slo(std::chrono::hours(2)); }));
	CHECK(is_invalid("ahead", [] { nvshare::Hint hint(std::chrono::seconds(2)); }));
	CHECK(is_invalid("gpu_id", [] { nvshare::Scheduler other(-2); }));
	CHECK(is_invalid("priority",
			 [] { nvshare::set_priority(static_cast<nvshare::Priority>(4)); }));
	CHECK(is_invalid("priority", [&] { urgent.set_priority(nvshare::Priority::NORMAL); }));
	CHECK(is_invalid("priority", [&] { calm.set_priority(nvshare::Priority::CRITICAL); }));
	CHECK(is_invalid("slo", [&] { urgent.set_slo(std::chrono::hours(2)); }));
}

static void requests_end_with_their_scope()
{
	std::uint64_t n = n_tasks();

	{
		nvshare::Hint hint(milliseconds(1));
		nvshare::Request request(hint), moved(std::move(request)), other;

		CHECK(n_tasks() == n);
		other = std::move(moved);
		CHECK(n_tasks() == n);
		moved.end();
		moved.end();
		CHECK(n_tasks() == n + expected(1));
	}
	CHECK(n_tasks() == n + expected(2));
	{
		std::unique_ptr<nvshare::Request> source(new nvshare::Request);
		nvshare::Request target(std::move(*source));

		source.reset();
		CHECK(n_tasks() == n + expected(2));
	}
	CHECK(n_tasks() == n + expected(3));
	try {
		nvshare::Request request;
		nvshare::Hint hint(milliseconds(1));
		throw std::runtime_error("mine");
	} catch (const std::runtime_error &) {
	}
	CHECK(n_tasks() == n + expected(4));
}

static void claims_are_taken()
{
	CHECK(nvshare::set_weight(300) == has_scheduler);
	CHECK(nvshare::set_slo(milliseconds(20)) == has_scheduler);
	CHECK(nvshare::set_compute_limit(50) == has_scheduler);
	CHECK(nvshare::set_priority(nvshare::Priority::HIGH) == has_scheduler);
	if (!has_library)
		return;
	until([] {
		nvshare::Status s = nvshare::status();
		return s.claim.weight == 300 && s.claim.slo_us == 20000 &&
		       s.claim.compute_limit == 50 && s.claim.priority == NVSHARE_PRIORITY_HIGH;
	});
	nvshare::set_compute_limit(0);
	nvshare::set_slo(microseconds(0));
	until([] {
		nvshare::Status s = nvshare::status(0);
		return s.claim.compute_limit == 0 && s.claim.slo_us == 0;
	});
	CHECK((nvshare::status().client != 0) == has_scheduler);
	CHECK(nvshare::status(3).claim.weight == 0);
}

static bool is_refused(const char *text, const char *line)
{
	std::ofstream(claims_file) << text;
	try {
		nvshare::Config::from_file(claims_file);
	} catch (const std::invalid_argument &error) {
		return std::string(error.what()).find(line) != std::string::npos;
	}
	return false;
}

static void a_file_is_read_strictly()
{
	CHECK(is_refused("weight: 5\n\nwight: 6\n", "yaml:3: 'wight' is none of"));
	CHECK(is_refused("weight: 5\nweight: 6\n", "yaml:2: 'weight' is there twice"));
	CHECK(is_refused("weight: 0\n", "yaml:1: weight: '0'"));
	CHECK(is_refused("weight: 1.5\n", "yaml:1: weight: '1.5'"));
	CHECK(is_refused("slo_ms: 10 s\n", "yaml:1: slo_ms: '10 s'"));
	CHECK(is_refused("slo_ms:\n", "yaml:1: slo_ms: ''"));
	CHECK(is_refused("priority: urgent\n", "none of low, normal, high, critical"));
	CHECK(is_refused("preemption: on\n", "yaml:1: preemption: 'on' is no section"));
	CHECK(is_refused("weight: 5\n  policy: fair\n", "yaml:2: it belongs to no section"));
	CHECK(is_refused("weight 5\n", "yaml:1: 'weight 5' is not"));
	try {
		nvshare::Config::from_file("no such file");
		CHECK(false);
	} catch (const std::system_error &error) {
		CHECK(error.code().value() == ENOENT);
	}
	try {
		nvshare::Config::from_file("."); /* it opens, but cannot be read */
		CHECK(false);
	} catch (const std::system_error &error) {
		CHECK(error.code().value() == EISDIR);
	}
}

struct CUstream_st; /* as cuda.h has it */
using cudaStream_t = CUstream_st *;

/* The example of design notes: a file, and functions that take a stream. */
static void a_file_of_the_node_and_tasks_with_a_stream_are_taken(const char *path)
{
	nvshare::Scheduler scheduler(nvshare::Config::from_file(path));
	int input = 0;
	auto lc_task = scheduler.create_task(nvshare::TaskType::LATENCY_CRITICAL,
					     [](cudaStream_t stream, void *data) {
						     *static_cast<int *>(data) = 7;
						     return stream;
					     });
	auto be_task =
		scheduler.create_task(nvshare::TaskType::BEST_EFFORT,
				      [](cudaStream_t, void *data) { return data != nullptr; });

	lc_task.set_slo(milliseconds(10));
	lc_task.set_priority(nvshare::Priority::HIGH);
	auto lc_future = scheduler.submit(lc_task, &input);
	auto be_future = scheduler.submit(be_task, &input);
	CHECK(lc_future.get() == reinterpret_cast<cudaStream_t>(std::uintptr_t(2)));
	CHECK(be_future.get() && input == 7);
}

static void claims_come_from_a_file()
{
	std::ofstream(claims_file) << "# mine\npriority: 'high'  # first\nweight: 250\n"
				      "preemption:\n  timeslice:\n    - lc_task_us: 1\n"
				      "slo_ms: 12.5\n";
	nvshare::Scheduler scheduler(nvshare::Config::from_file(claims_file), 0);

	if (!has_library)
		return;
	until([] {
		nvshare::Status s = nvshare::status();
		return s.claim.weight == 250 && s.claim.slo_us == 12500 &&
		       s.claim.priority == NVSHARE_PRIORITY_HIGH;
	});
	nvshare::set_slo(microseconds(0));
}

static void tasks_run_apart()
{
	std::promise<void> gate;
	std::shared_future<void> opened = gate.get_future().share();
	std::atomic<int> n_done(0);
	nvshare::Scheduler scheduler(0);
	auto calm = scheduler.create_task(nvshare::TaskType::BEST_EFFORT, [&n_done, opened] {
		opened.wait();
		return ++n_done;
	});
	auto urgent =
		scheduler.create_task(nvshare::TaskType::LATENCY_CRITICAL,
				      [](const std::string &text, std::unique_ptr<std::size_t> &n) {
					      return text.size() + *n;
				      });
	auto wrong = scheduler.create_task(nvshare::TaskType::LATENCY_CRITICAL,
					   [](int) -> int { throw std::runtime_error("mine"); });
	std::uint64_t n = n_tasks();

	calm.set_priority(nvshare::Priority::LOW);
	urgent.set_slo(milliseconds(10));
	urgent.set_priority(nvshare::Priority::HIGH);
	wrong.set_priority(nvshare::Priority::HIGH);
	auto first = scheduler.submit(calm), second = scheduler.submit(calm);
	auto size =
		scheduler.submit(urgent, "four", std::unique_ptr<std::size_t>(new std::size_t(5)));
	CHECK(size.get() == 9);
	auto error = scheduler.submit(wrong, 1);
	try {
		error.get();
		CHECK(false);
	} catch (const std::runtime_error &) {
	}
	CHECK(n_done == 0 && first.wait_for(milliseconds(0)) == std::future_status::timeout);
	CHECK(n_tasks() == n + expected(2));
	gate.set_value();
	first.wait();
	CHECK(first.get() == 1 && second.get() == 2);
	CHECK(n_tasks() == n + expected(2)); /* work without a hurry is no request */
	CHECK(scheduler.get_metrics().gpu_utilization >= 0);
	CHECK(scheduler.get_metrics().tasks_completed == n_tasks());
}

static void critical_tasks_make_the_process_critical()
{
	std::vector<std::future<void>> futures;
	std::uint64_t n = n_tasks();

	{
		nvshare::Scheduler scheduler;
		auto urgent = scheduler.create_task(nvshare::TaskType::LATENCY_CRITICAL, [] {});
		auto calm = scheduler.create_task(nvshare::TaskType::BEST_EFFORT, [] {});

		auto slower = scheduler.create_task(nvshare::TaskType::LATENCY_CRITICAL, [] {});

		slower.set_slo(milliseconds(30));
		slower.set_priority(nvshare::Priority::HIGH);
		scheduler.submit(urgent).get();
		for (int i = 0; i < 100; i++) {
			futures.push_back(scheduler.submit(urgent));
			futures.push_back(scheduler.submit(calm));
		}
		futures.push_back(scheduler.submit(slower));
	}
	for (auto &future : futures) {
		CHECK(future.wait_for(milliseconds(0)) == std::future_status::ready);
		future.get(); /* it has run, and was not given up */
	}
	CHECK(n_tasks() == n + expected(102));
	if (!has_library)
		return;
	nvshare::set_weight(301);
	until([] { return nvshare::status().claim.weight == 301; });
	CHECK(nvshare::status().claim.priority == NVSHARE_PRIORITY_CRITICAL);
	CHECK(nvshare::status().claim.slo_us == 10000); /* the shortest that was asked for */
}

/* Critical by its environment: a request would keep all others off the GPU. */
static void best_effort_tasks_are_no_requests()
{
	std::uint64_t n = n_tasks();
	nvshare::Scheduler scheduler;
	auto calm = scheduler.create_task(nvshare::TaskType::BEST_EFFORT, [] { return n_tasks(); });
	auto urgent = scheduler.create_task(nvshare::TaskType::LATENCY_CRITICAL, [] {});

	until([] { return nvshare::status().claim.priority == NVSHARE_PRIORITY_CRITICAL; });
	for (int i = 0; i < 10; i++)
		CHECK(scheduler.submit(calm).get() == n);
	CHECK(n_tasks() == n);
	scheduler.submit(urgent).get();
	CHECK(scheduler.submit(calm).get() == n + 1 && n_tasks() == n + 1);
}

/* From the first call on a Scheduler is ending; each call submits the next, to either thread. */
static void what_tasks_submit_is_waited_for_too(nvshare::TaskType first)
{
	const int n_calls = 8;
	std::atomic<bool> is_ending(false);
	std::atomic<int> n_done(0);
	std::function<void()> submit_next;
	auto *scheduler = new nvshare::Scheduler;
	auto call = [&] {
		until([&] { return is_ending.load(); });
		std::this_thread::sleep_for(milliseconds(20)); /* it waits by now */
		if (++n_done < n_calls)
			submit_next();
	};
	auto urgent = scheduler->create_task(nvshare::TaskType::LATENCY_CRITICAL, call);
	auto calm = scheduler->create_task(nvshare::TaskType::BEST_EFFORT, call);

	/* Two of one kind, two of the other. */
	submit_next = [&] {
		bool is_first = n_done % 4 < 1 || n_done % 4 > 2;
		bool is_urgent = is_first == (first == nvshare::TaskType::LATENCY_CRITICAL);

		scheduler->submit(is_urgent ? urgent : calm);
	};
	submit_next();
	is_ending = true;
	delete scheduler;
	CHECK(n_done == n_calls);
}

int main(int argc, char **argv)
{
	bool is_critical;

	claims_file = std::string(argv[0]) + ".yaml";
	CHECK(argc == 3); /* the second one: a file with settings of a node */
	is_critical = std::strcmp(argv[1], "critical") == 0;
	has_scheduler = is_critical || std::strcmp(argv[1], "managed") == 0;
	has_library = has_scheduler || std::strcmp(argv[1], "unmanaged") == 0;
	CHECK(nvshare::is_loaded() == has_library);
	arguments_are_checked();
	start_gpu();
	{
		nvshare::Request request; /* from now on bursts are not taken for requests */
	}
	if (is_critical) {
		best_effort_tasks_are_no_requests();
	} else {
		requests_end_with_their_scope();
		claims_are_taken();
		a_file_is_read_strictly();
		claims_come_from_a_file();
		a_file_of_the_node_and_tasks_with_a_stream_are_taken(argv[2]);
		tasks_run_apart();
		critical_tasks_make_the_process_critical();
	}
	what_tasks_submit_is_waited_for_too(nvshare::TaskType::LATENCY_CRITICAL);
	what_tasks_submit_is_waited_for_too(nvshare::TaskType::BEST_EFFORT);
	std::printf("verified\n");
	return 0;
}
