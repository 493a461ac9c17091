#pragma once
#include <tutti/config.hpp>

#include <coroutine>
#include <cstdint>
#include <exception>
#include <new>
#include <utility>

#include <tutti/async/frame_cache.hpp>
#include <tutti/async/op_state.hpp>
#include <tutti/core/reduction/users_reduction.hpp>
#include <tutti/core/status.hpp>

namespace tutti {

class background;
class routine;

namespace detail {

struct routine_promise;

class pending_list;

/// Node of an event for which a routine waits, completed by the transport. Lives in the routine's frame. If its
/// operation has failed, the routine is not resumed: the frames of the whole operation are destroyed, so that
/// algorithms contain no error handling, and the op completes with the status. All of this happens under the engine's
/// lock, on the thread that polls.
class pending {
 public:
  pending() = default;
  pending(const pending&) = delete;
  pending& operator=(const pending&) = delete;
  ~pending() { unlink(); }

  [[nodiscard]] bool await_ready() const noexcept { return finished_ && result_.ok(); }
  inline void await_suspend(std::coroutine_handle<routine_promise> h) noexcept;
  void await_resume() const noexcept {}

  [[nodiscard]] bool finished() const noexcept { return finished_; }
  [[nodiscard]] const routine_promise* root() const noexcept { return root_; }

 protected:
  friend class pending_list;
  inline void unlink() noexcept;
  inline void finish(status s, pending_list& ready) noexcept;
  inline void note_step() const noexcept;

  status result_{};
  bool finished_ = false;

 private:
  std::coroutine_handle<routine_promise> waiting_;
  const routine_promise* root_ = nullptr;
  pending_list* ready_ = nullptr;  // queue for a node that finished before it was awaited
  pending_list* list_ = nullptr;
  pending* next_ = nullptr;
  pending* previous_ = nullptr;
};

/// Queue of nodes. A node is in at most one queue.
class pending_list {
 public:
  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  [[nodiscard]] pending* front() const noexcept { return first_; }
  static pending* after(const pending& p) noexcept { return p.next_; }

  void push_back(pending& p) noexcept {
    p.unlink();
    link(p, last_, nullptr);
  }
  void push_front(pending& p) noexcept {
    p.unlink();
    link(p, nullptr, first_);
  }
  void remove(pending& p) noexcept {
    (p.previous_ ? p.previous_->next_ : first_) = p.next_;
    (p.next_ ? p.next_->previous_ : last_) = p.previous_;
    p.next_ = p.previous_ = nullptr;
    p.list_ = nullptr;
  }

  /// Completes a node, and queues it here if a routine is suspended on it.
  void complete(pending& p, status s) noexcept { p.finish(s, *this); }

  /// Resumes the routine of every queued node, or destroys its operation after a failure; includes nodes queued
  /// meanwhile. Returns true if there were any.
  inline bool run() noexcept;

 private:
  void link(pending& p, pending* before, pending* after) noexcept {
    p.list_ = this;
    p.previous_ = before;
    p.next_ = after;
    (before ? before->next_ : first_) = &p;
    (after ? after->previous_ : last_) = &p;
  }

  pending* first_ = nullptr;
  pending* last_ = nullptr;
};

struct routine_promise : cached_frame {
  routine_promise* root = nullptr;  // root routine of the operation
  op_state* op = nullptr;           // set in the root only
  std::coroutine_handle<> parent;
  std::exception_ptr failure;
  bool met = false;  // as in task: the second to arrive continues the parent

  inline routine get_return_object() noexcept;
  std::suspend_always initial_suspend() const noexcept { return {}; }
  void return_void() const noexcept {}
  void unhandled_exception() noexcept { failure = std::current_exception(); }
  /// Returns the status of a root that has ended: ok, out of memory, or an exception of a user's reduction, whose text
  /// the owner receives.
  [[nodiscard]] status outcome() const noexcept {
    if (!failure) return {};
    try {
      std::rethrow_exception(failure);
    } catch (const std::bad_alloc&) {
      return {errc::out_of_resources};
    } catch (const detail::users_reduction::aborted& a) {
      return {errc::aborted, 0, -1, a.why};
    } catch (const std::exception& e) {
      op->owner->threw(e.what());
    } catch (...) {  // no text is known
    }
    return {errc::aborted, 0, -1, status::reduction_threw};
  }

  struct final_awaiter {
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<routine_promise> h) const noexcept {
      routine_promise& p = h.promise();
      if (!p.op) return std::exchange(p.met, true) ? p.parent : std::noop_coroutine();
      op_state* done = p.op;
      const status result = p.outcome();
      h.destroy();
      done->complete(result);
      return std::noop_coroutine();
    }
    void await_resume() const noexcept {}
  };
  final_awaiter final_suspend() const noexcept { return {}; }

  /// Destroys all routines of the operation and completes its op with the failure.
  void fail(status s) noexcept {
    op_state* done = root->op;
    std::coroutine_handle<routine_promise>::from_promise(*root).destroy();
    done->complete(s);
  }
};

}  // namespace detail

/// Coroutine of a collective algorithm. Lazy: it begins when it is started with an op, which it completes at its end,
/// or when another routine awaits it. Runs under the engine's lock, and awaits only nodes of a transport and other
/// routines.
class [[nodiscard]] routine {
 public:
  using promise_type = detail::routine_promise;

  explicit routine(std::coroutine_handle<promise_type> h) noexcept : handle_(h) {}
  routine(routine&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  routine& operator=(routine&&) = delete;
  ~routine() {
    if (handle_) handle_.destroy();
  }

  /// Runs the routine until it first suspends. From then on the frame owns itself: at its end the routine destroys it
  /// and completes `state`.
  void start(op_state& state) && noexcept {
    promise_type& p = handle_.promise();
    p.root = &p;
    p.op = &state;
    state.work = &p;
    std::exchange(handle_, nullptr).resume();
  }

  auto operator co_await() && noexcept {
    struct awaiter {
      std::coroutine_handle<promise_type> child;
      [[nodiscard]] bool await_ready() const noexcept { return false; }
      bool await_suspend(std::coroutine_handle<promise_type> parent) const noexcept {
        promise_type& p = child.promise();
        p.root = parent.promise().root;
        p.parent = parent;
        child.resume();
        return !std::exchange(p.met, true);
      }
      void await_resume() const {
        if (child.promise().failure) std::rethrow_exception(child.promise().failure);
      }
    };
    return awaiter{handle_};
  }

 private:
  friend class background;
  std::coroutine_handle<promise_type> handle_;
};

/// Routine that runs concurrently with the routine that begins it, in whose frame this object lives and with which it
/// is destroyed. Awaiting its end rethrows its exception.
class background {
 public:
  explicit background(routine&& r) noexcept : running_(std::exchange(r.handle_, nullptr)) {}
  background(const background&) = delete;
  background& operator=(const background&) = delete;
  ~background() { running_.destroy(); }

  /// Returns an awaitable that runs the routine until it first suspends.
  auto begin() noexcept {
    struct awaiter {
      handle child;
      [[nodiscard]] bool await_ready() const noexcept { return false; }
      bool await_suspend(handle parent) const noexcept {
        child.promise().root = parent.promise().root;
        child.resume();
        return false;
      }
      void await_resume() const noexcept {}
    };
    return awaiter{running_};
  }

  /// Waits for the end of the routine, which must have begun.
  auto operator co_await() noexcept {
    struct awaiter {
      handle child;
      [[nodiscard]] bool await_ready() const noexcept { return false; }
      bool await_suspend(handle parent) const noexcept {
        child.promise().parent = parent;
        return !std::exchange(child.promise().met, true);
      }
      void await_resume() const {
        if (child.promise().failure) std::rethrow_exception(child.promise().failure);
      }
    };
    return awaiter{running_};
  }

 private:
  using handle = std::coroutine_handle<detail::routine_promise>;
  handle running_;
};

namespace detail {

inline routine routine_promise::get_return_object() noexcept {
  return routine{std::coroutine_handle<routine_promise>::from_promise(*this)};
}

inline void pending::await_suspend(std::coroutine_handle<routine_promise> h) noexcept {
  waiting_ = h;
  root_ = h.promise().root;
  if (finished_) ready_->push_back(*this);
}

inline void pending::unlink() noexcept {
  if (list_) list_->remove(*this);
}

inline void pending::finish(status s, pending_list& ready) noexcept {
  unlink();
  finished_ = true;
  result_ = s;
  ready_ = &ready;
  if (waiting_) ready.push_back(*this);
}

inline void pending::note_step() const noexcept {
  op_state& s = *root_->op;
  if (s.steps == op_state::steps_noted) return;
  ++s.steps;
  s.owner->stepped(s);
}

inline bool pending_list::run() noexcept {
  if (empty()) return false;
  while (pending* p = first_) {
    remove(*p);
    const auto h = p->waiting_;
    if (p->result_.ok()) {
      p->note_step();
      h.resume();
    } else {
      h.promise().fail(p->result_);
    }
  }
  return true;
}

}  // namespace detail
}  // namespace tutti
