/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVSHARE_NVSHARE_HPP
#define NVSHARE_NVSHARE_HPP

/*
 * nvshare.h for C++11 and later: requests and hints that end with their scope, claims, and a
 * Scheduler that runs tasks of this process on two threads, latency-critical tasks on their own.
 *
 *     nvshare::Hint hint(std::chrono::milliseconds(2));
 *     auto batch = prepare();
 *     nvshare::Request request(hint);
 *     infer(batch);
 *
 * A program links nothing but threads, for Scheduler. Without libnvshare.so tasks run, and all
 * other calls do nothing. An argument out of range is a std::invalid_argument that names it,
 * with and without the library.
 */

#include "nvshare/nvshare.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <fstream>
#include <functional>
#include <future>
#include <locale>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

struct CUstream_st; /* what a cudaStream_t and a CUstream point to */

namespace nvshare
{

/* The class of a process. While a CRITICAL one has a request, others are kept off the GPU. */
enum class Priority : std::uint32_t {
	LOW = NVSHARE_PRIORITY_LOW,
	NORMAL = NVSHARE_PRIORITY_NORMAL,
	HIGH = NVSHARE_PRIORITY_HIGH,
	CRITICAL = NVSHARE_PRIORITY_CRITICAL
};

using Status = struct ::nvshare_status;

inline bool is_loaded() noexcept
{
	return nvshare_is_loaded() != 0;
}

namespace detail
{

inline void require(bool is_right, const char *what)
{
	if (!is_right)
		throw std::invalid_argument(what);
}

inline std::uint32_t hint_us(std::chrono::microseconds ahead)
{
	require(ahead.count() >= 0 && ahead.count() <= NVSHARE_HINT_US_MAX, "ahead: 0 to 1 s");
	return static_cast<std::uint32_t>(ahead.count());
}

inline std::uint32_t slo_us(std::chrono::microseconds slo)
{
	require(slo.count() >= 0 && slo.count() <= NVSHARE_SLO_US_MAX, "slo: 0 to 1 h");
	return static_cast<std::uint32_t>(slo.count());
}

inline bool claim(int r, const char *what)
{
	if (r != 0 && r != -ENOTCONN)
		throw std::system_error(-r, std::generic_category(), what);
	return r == 0;
}

} /* namespace detail */

/* Announces a request. The end of the scope withdraws the hint, unless the request has begun. */
class Hint
{
public:
	explicit Hint(std::chrono::microseconds ahead)
	{
		std::uint32_t us = detail::hint_us(ahead);

		if (is_loaded())
			(void)nvshare_hint_prepare(us);
	}
	~Hint()
	{
		cancel();
	}
	Hint(const Hint &) = delete;
	Hint &operator=(const Hint &) = delete;

	void cancel() noexcept
	{
		if (is_open_ && is_loaded())
			(void)nvshare_hint_prepare(0);
		is_open_ = false;
	}

private:
	friend class Request;
	bool is_open_ = true;
};

/* One request, from here to the end of the scope or to end(). */
class Request
{
public:
	Request() noexcept : number_(is_loaded() ? nvshare_request_begin() : 0)
	{
	}
	explicit Request(Hint &hint) noexcept : Request()
	{
		hint.is_open_ = false;
	}
	Request(Request &&other) noexcept : number_(other.number_)
	{
		other.number_ = 0;
	}
	Request &operator=(Request &&other) noexcept
	{
		std::swap(number_, other.number_);
		return *this;
	}
	~Request()
	{
		end();
	}

	void end() noexcept
	{
		if (number_ > 0)
			(void)nvshare_request_end(number_);
		number_ = 0;
	}

private:
	std::int64_t number_;
};

/*
 * Claims of the whole process. true: the scheduler has granted the claim. false: no scheduler
 * now; the library claims it when it reaches one, and never if it is not loaded. Throws
 * std::system_error if the scheduler refuses or does not answer.
 */
inline bool set_priority(Priority priority)
{
	auto value = static_cast<std::uint32_t>(priority);

	detail::require(value < NVSHARE_PRIORITY_COUNT, "priority: none of Priority");
	return is_loaded() &&
	       detail::claim(nvshare_set_priority(static_cast<enum ::nvshare_priority>(value)),
			     "priority");
}

/* The process's share of the GPU's time among clients of its class. */
inline bool set_weight(std::uint32_t weight)
{
	detail::require(weight >= NVSHARE_WEIGHT_MIN && weight <= NVSHARE_WEIGHT_MAX,
			"weight: 1 to 10000");
	return is_loaded() && detail::claim(nvshare_set_weight(weight), "weight");
}

/* The longest time that a request should take; 0: no limit. */
inline bool set_slo(std::chrono::microseconds slo)
{
	std::uint32_t us = detail::slo_us(slo);

	return is_loaded() && detail::claim(nvshare_set_slo(us), "slo");
}

/* The largest part of a GPU's time for this process, percent; 0: no limit. */
inline bool set_compute_limit(std::uint32_t percent)
{
	detail::require(percent <= 100, "percent: 0 to 100");
	return is_loaded() && detail::claim(nvshare_set_compute_limit(percent), "compute limit");
}

/* By CUDA ordinal; -1: the first GPU that the process uses. All zero if it does not use it. */
inline Status status(int device = -1) noexcept
{
	Status found = Status();

	if (is_loaded())
		(void)::nvshare_status(device, &found, sizeof(found));
	return found;
}

/* This process on one GPU, since its first use. A task is a request or a burst of work. */
struct Metrics {
	double busy_seconds;    /* it had work on the GPU, as far as the library measured it */
	double gpu_seconds;     /* the part of them in which its own work had the GPU */
	double held_seconds;    /* it was kept off the GPU, for others or by its limit */
	double gpu_utilization; /* percent; only Scheduler::get_metrics() fills it */
	std::uint64_t total_preemptions;
	std::uint64_t preemption_failures;
	std::uint64_t tasks_completed;
	std::uint64_t slo_violations;
	std::uint64_t hints;
	double last_latency_us; /* of tasks */
	double avg_latency_us;
	double p50_latency_us; /* of the last 256 tasks */
	double p99_latency_us;
	double max_latency_us;
};

inline Metrics metrics(int device = -1) noexcept
{
	Status found = status(device);
	Metrics result = Metrics();

	result.busy_seconds = static_cast<double>(found.busy_ns) / 1e9;
	result.gpu_seconds = static_cast<double>(found.gpu_ns) / 1e9;
	result.held_seconds = static_cast<double>(found.held_ns) / 1e9;
	result.total_preemptions = found.n_holds;
	result.preemption_failures = found.n_hold_failures;
	result.tasks_completed = found.n_tasks;
	result.slo_violations = found.n_slo_violations;
	result.hints = found.n_hints;
	result.last_latency_us = static_cast<double>(found.task_ns_last) / 1e3;
	result.avg_latency_us = static_cast<double>(found.task_ns_avg) / 1e3;
	result.p50_latency_us = static_cast<double>(found.task_ns_p50) / 1e3;
	result.p99_latency_us = static_cast<double>(found.task_ns_p99) / 1e3;
	result.max_latency_us = static_cast<double>(found.task_ns_max) / 1e3;
	return result;
}

namespace detail
{

/* Reads the lines of a file for Config: "name: value", comments, and sections of indented lines. */
class ConfigFile
{
public:
	explicit ConfigFile(const std::string &path) : path_(path), lines_(path)
	{
		if (!lines_)
			throw std::system_error(errno, std::generic_category(), path);
	}

	/* Takes the next "name: value"; a section has the value "". false: the file has ended. */
	bool next(std::string &name, std::string &value)
	{
		std::string line;

		while (std::getline(lines_, line)) {
			number_++;
			cut(line);
			if (line.empty())
				continue;
			if (line[0] != ' ' && line[0] != '-') {
				split(line, name, value);
				return true;
			}
			if (!is_in_section_)
				fail("it belongs to no section");
		}
		if (lines_.bad())
			throw std::system_error(errno, std::generic_category(), path_);
		return false;
	}

	void fail(const std::string &what) const
	{
		throw std::invalid_argument(path_ + ":" + std::to_string(number_) + ": " + what);
	}

	/* The number in value, from low to high. */
	double number(const std::string &name, const std::string &value, double low,
		      double high) const
	{
		std::istringstream in(value);
		double found = 0;

		in.imbue(std::locale::classic());
		if (!(in >> found) || in.peek() != std::istringstream::traits_type::eof() ||
		    !(found >= low && found <= high))
			fail(name + ": '" + value + "' is no number in its range");
		return found;
	}

private:
	/* Removes a comment, and blanks at the end. */
	static void cut(std::string &line)
	{
		std::size_t end = line[0] == '#' ? 0 : line.find(" #");

		if (end != std::string::npos)
			line.erase(end);
		line.erase(line.find_last_not_of(" \t\r") + 1);
	}

	void split(const std::string &line, std::string &name, std::string &value)
	{
		std::size_t colon = line.find(':');
		std::size_t start = line.find_first_not_of(' ', colon + 1);

		if (colon == std::string::npos || start == colon + 1)
			fail("'" + line + "' is not `name: value`");
		name = line.substr(0, colon);
		value = start == std::string::npos ? "" : line.substr(start);
		if (value.size() > 1 && (value[0] == '"' || value[0] == '\'') &&
		    value.back() == value[0])
			value = value.substr(1, value.size() - 2);
		is_in_section_ = start == std::string::npos;
		if (!names_.insert(name).second)
			fail("'" + name + "' is there twice");
	}

	std::string path_;
	std::ifstream lines_;
	std::set<std::string> names_;
	unsigned int number_ = 0;
	bool is_in_section_ = false;
};

} /* namespace detail */

/*
 * Claims of this process from a file of `priority: high`, `weight: 200`, `slo_ms: 10` and
 * `compute_limit: 50`. The sections `preemption:` and `scheduler:` concern all programs of the
 * node. They are skipped: nvshare-scheduler has its own file.
 */
class Config
{
public:
	/* Throws std::system_error if it cannot be read, std::invalid_argument with file and line.
	 */
	static Config from_file(const std::string &path)
	{
		detail::ConfigFile file(path);
		std::string name, value;
		Config config;

		while (file.next(name, value))
			config.take(file, name, value);
		return config;
	}

	/* Claims what the file has. Throws std::system_error if the scheduler refuses. */
	void apply() const
	{
		for (const auto &claim : claims_)
			claim();
	}

private:
	void take(const detail::ConfigFile &file, const std::string &name, const std::string &value)
	{
		if (name == "preemption" || name == "scheduler") {
			if (!value.empty())
				file.fail(name + ": '" + value + "' is no section");
		} else if (name == "priority") {
			Priority priority = priority_of(file, value);
			claims_.push_back([priority] { set_priority(priority); });
		} else if (name == "weight") {
			auto weight =
				whole(file, name, value, NVSHARE_WEIGHT_MIN, NVSHARE_WEIGHT_MAX);
			claims_.push_back([weight] { set_weight(weight); });
		} else if (name == "slo_ms") {
			double ms = file.number(name, value, 0.001, NVSHARE_SLO_US_MAX / 1000.0);
			std::chrono::microseconds slo(static_cast<std::int64_t>(ms * 1000 + 0.5));
			claims_.push_back([slo] { set_slo(slo); });
		} else if (name == "compute_limit") {
			auto percent = whole(file, name, value, 1, 100);
			claims_.push_back([percent] { set_compute_limit(percent); });
		} else {
			file.fail("'" + name +
				  "' is none of priority, weight, slo_ms, compute_limit,"
				  " preemption, scheduler");
		}
	}

	static std::uint32_t whole(const detail::ConfigFile &file, const std::string &name,
				   const std::string &value, double low, double high)
	{
		double found = file.number(name, value, low, high);
		auto number = static_cast<std::uint32_t>(found);

		if (number < found)
			file.fail(name + ": '" + value + "' is no whole number");
		return number;
	}

	static Priority priority_of(const detail::ConfigFile &file, const std::string &value)
	{
		static const char *const names[] = {"low", "normal", "high", "critical"};

		for (std::uint32_t i = 0; i < NVSHARE_PRIORITY_COUNT; i++) {
			if (value == names[i])
				return static_cast<Priority>(i);
		}
		file.fail("priority: '" + value + "' is none of low, normal, high, critical");
		return Priority::NORMAL; /* fail() has thrown */
	}

	std::deque<std::function<void()>> claims_;
};

enum class TaskType { LATENCY_CRITICAL, BEST_EFFORT };

namespace detail
{

/* The claims of one task; has_priority false: the class of the process stays as it is. */
struct Wish {
	TaskType type;
	bool has_priority;
	Priority priority;
	std::chrono::microseconds slo;
};

/* The claims of this process's tasks so far: of all their wishes the most urgent ones. */
class Claims
{
public:
	static Claims &get()
	{
		static Claims claims;
		return claims;
	}

	void add(const Wish &wish)
	{
		std::lock_guard<std::mutex> guard(lock_);

		if (wish.has_priority && (!has_priority_ || wish.priority > priority_)) {
			has_priority_ = true;
			priority_ = wish.priority;
			ask([this] { set_priority(priority_); });
		}
		if (wish.slo.count() && (!slo_.count() || wish.slo < slo_)) {
			slo_ = wish.slo;
			ask([this] { set_slo(slo_); });
		}
	}

private:
	/* A refused claim must not keep the task from its work. */
	template <typename F> static void ask(F setter)
	{
		try {
			setter();
		} catch (const std::system_error &) {
		}
	}

	std::mutex lock_;
	bool has_priority_ = false;
	Priority priority_ = Priority::NORMAL;
	std::chrono::microseconds slo_{0};
};

/*
 * One call of a task. The call of a best-effort task is no request: in a critical process it
 * would keep others off the GPU.
 */
template <typename R, typename F> struct Call {
	Wish wish;
	F function;

	R operator()()
	{
		Claims::get().add(wish);
		if (wish.type != TaskType::LATENCY_CRITICAL)
			return function();
		Request request;
		return function();
	}
};

/* Whether a function takes these arguments. */
template <typename... Args> struct Takes {
	template <typename F>
	static auto test(int)
		-> decltype(std::declval<F &>()(std::declval<Args>()...), std::true_type());
	template <typename F> static std::false_type test(...);
};

/* A function of a task may take a stream before its arguments. */
template <typename F, typename... Args> struct Bound {
	static constexpr bool has_stream = !decltype(Takes<Args...>::template test<F>(0))::value;

	template <typename G>
	static auto call(std::false_type, G &f, Args... args)
		-> decltype(f(std::forward<Args>(args)...));
	template <typename G>
	static auto call(std::true_type, G &f, Args... args)
		-> decltype(f(std::declval<CUstream_st *&>(), std::forward<Args>(args)...));
	using Stream = std::integral_constant<bool, has_stream>;
	using Result = decltype(call(Stream(), std::declval<F &>(), std::declval<Args>()...));
};

template <typename F, typename... Args>
auto bind_task(std::false_type, const F &function, Args &&...args)
	-> decltype(std::bind(function, std::forward<Args>(args)...))
{
	return std::bind(function, std::forward<Args>(args)...);
}

/* Each lane is a thread, so the thread's own default stream keeps the lanes apart. */
template <typename F, typename... Args>
auto bind_task(std::true_type, const F &function, Args &&...args)
	-> decltype(std::bind(function, static_cast<CUstream_st *>(nullptr),
			      std::forward<Args>(args)...))
{
	auto per_thread = reinterpret_cast<CUstream_st *>(std::uintptr_t(2));

	return std::bind(function, per_thread, std::forward<Args>(args)...);
}

/* A thread and its queue of work. The thread starts with its first work. */
struct Lane {
	std::condition_variable changed;
	std::deque<std::function<void()>> queue;
	std::thread thread;
};

/*
 * The lanes of a Scheduler. Work may add work to both lanes, so the lanes end together: when
 * both queues are empty and both threads idle. One lock guards both, never while work runs.
 */
class Lanes
{
public:
	Lane urgent;
	Lane others;

	Lanes() = default;
	Lanes(const Lanes &) = delete;
	Lanes &operator=(const Lanes &) = delete;
	~Lanes()
	{
		std::unique_lock<std::mutex> guard(lock_);

		all_done_.wait(guard, [this] { return n_open_ == 0; });
		is_ending_ = true;
		guard.unlock();
		end(urgent);
		end(others);
	}

	/* lane: urgent or others. */
	void add(Lane &lane, std::function<void()> work)
	{
		std::lock_guard<std::mutex> guard(lock_);

		if (!lane.thread.joinable())
			lane.thread = std::thread([this, &lane] { run(lane); });
		lane.queue.push_back(std::move(work));
		n_open_++;
		lane.changed.notify_one();
	}

private:
	void run(Lane &lane)
	{
		std::unique_lock<std::mutex> guard(lock_);

		for (;;) {
			lane.changed.wait(guard, [&] { return is_ending_ || !lane.queue.empty(); });
			if (lane.queue.empty())
				return;
			std::function<void()> work = std::move(lane.queue.front());
			lane.queue.pop_front();
			guard.unlock();
			work();
			work = nullptr; /* its destructor must run without the lock, too */
			guard.lock();
			if (--n_open_ == 0)
				all_done_.notify_one();
		}
	}

	static void end(Lane &lane)
	{
		lane.changed.notify_one();
		if (lane.thread.joinable())
			lane.thread.join();
	}

	std::mutex lock_;
	std::condition_variable all_done_;
	std::size_t n_open_ = 0; /* work that is queued or runs */
	bool is_ending_ = false;
};

} /* namespace detail */

/* Scheduler::create_task() makes one. It may be submitted any number of times. */
template <typename F> class Task
{
public:
	/* The longest time that a call should take, from its start; 0: no limit. */
	void set_slo(std::chrono::microseconds slo)
	{
		(void)detail::slo_us(slo);
		wish_.slo = slo;
	}

	/* A latency-critical task: CRITICAL (the default) or HIGH; others: HIGH, NORMAL or LOW. */
	void set_priority(Priority priority)
	{
		bool is_urgent = wish_.type == TaskType::LATENCY_CRITICAL;

		detail::require(is_urgent ? priority == Priority::HIGH ||
						    priority == Priority::CRITICAL
					  : priority <= Priority::HIGH,
				"priority: not one of this type of task");
		wish_.has_priority = true;
		wish_.priority = priority;
	}

private:
	friend class Scheduler;
	Task(TaskType type, F function)
	    : wish_{type, type == TaskType::LATENCY_CRITICAL, Priority::CRITICAL,
		    std::chrono::microseconds(0)},
	      function_(std::move(function))
	{
	}

	detail::Wish wish_;
	F function_;
};

/*
 * Runs tasks on two threads of this process: latency-critical tasks on one, all others on the
 * other, each in the order of submission. A call of a latency-critical task is a request. A call
 * of another task is none, so metrics() does not count it once the process has begun a request.
 *
 * nvshare-scheduler still decides when each process computes. The process claims the most urgent
 * class and the smallest SLO of the tasks that have run. Tasks run also if it refuses the claim;
 * status() shows the granted one.
 *
 * The destructor waits for all submitted work, also work that tasks submit meanwhile. A child
 * of fork() must not use its parent's Scheduler.
 */
class Scheduler
{
public:
	/* gpu_id: the GPU of get_metrics(), by CUDA ordinal; -1: the first that is used. */
	explicit Scheduler(int gpu_id = -1)
	    : device_(gpu_id), since_(std::chrono::steady_clock::now()),
	      gpu_seconds_(metrics(gpu_id).gpu_seconds)
	{
		detail::require(gpu_id >= -1, "gpu_id: a CUDA ordinal, or -1");
	}

	/* Makes the claims of config first. */
	explicit Scheduler(const Config &config, int gpu_id = -1) : Scheduler(gpu_id)
	{
		config.apply();
	}

	template <typename F>
	Task<typename std::decay<F>::type> create_task(TaskType type, F &&function)
	{
		return Task<typename std::decay<F>::type>(type, std::forward<F>(function));
	}

	/*
	 * Queues one call of the task's function with copies of args; the future has its result. A
	 * function that takes a cudaStream_t or CUstream before args gets the default stream of its
	 * thread. It waits itself for what it submits: the task ends when the function returns.
	 */
	template <typename F, typename... Args>
	auto submit(const Task<F> &task, Args &&...args) -> std::future<
		typename detail::Bound<F, typename std::decay<Args>::type &...>::Result>
	{
		using Bound = detail::Bound<F, typename std::decay<Args>::type &...>;
		using R = typename Bound::Result;
		auto bound = detail::bind_task(typename Bound::Stream(), task.function_,
					       std::forward<Args>(args)...);
		auto work = std::make_shared<std::packaged_task<R()>>(
			detail::Call<R, decltype(bound)>{task.wish_, std::move(bound)});
		auto future = work->get_future();

		lanes_.add(task.wish_.type == TaskType::LATENCY_CRITICAL ? lanes_.urgent
									 : lanes_.others,
			   [work] { (*work)(); });
		return future;
	}

	/* gpu_utilization counts from the construction of this object. */
	Metrics get_metrics() const
	{
		Metrics found = metrics(device_);
		std::chrono::duration<double> passed = std::chrono::steady_clock::now() - since_;

		if (passed.count() > 0)
			found.gpu_utilization =
				100 * (found.gpu_seconds - gpu_seconds_) / passed.count();
		found.gpu_utilization = std::min(std::max(found.gpu_utilization, 0.0), 100.0);
		return found;
	}

private:
	int device_;
	std::chrono::steady_clock::time_point since_;
	double gpu_seconds_;
	detail::Lanes lanes_; /* last, so destroyed first: its tasks may use the other members */
};

} /* namespace nvshare */

#endif
